# SPDX-License-Identifier: Apache-2.0
"""Permutations and products of tensors of any number of axes against NumPy, in shapes of networks with attention."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from mpscnn.importing.builder import Builder, Tensor, UnmappedError
from mpscnn.importing.ops import general
from support import only_openmps

BATCH = 2

# (shape of a, shape of b) without the batch: queries and keys, scores and values of a head, and odd ones.
PRODUCTS = {
    "vit_scores": ((12, 197, 64), (12, 64, 197)),
    "vit_values": ((12, 197, 197), (12, 197, 64)),
    "swin_scores": ((64, 3, 49, 32), (64, 3, 32, 49)),
    "swin_values": ((16, 6, 49, 49), (16, 6, 49, 32)),
    "segformer_scores": ((1, 4096, 32), (1, 32, 64)),
    "segformer_values": ((2, 1024, 64), (2, 64, 32)),
    "decoder_scores": ((1, 1024, 512), (1, 512, 1024)),
    "one_row": ((3, 1, 20), (3, 20, 7)),
    "one_column": ((3, 9, 20), (3, 20, 1)),
    "outer": ((4, 6, 1), (4, 1, 5)),
    "odd": ((2, 3, 13, 29), (2, 3, 29, 11)),
    "one_matrix": ((13, 29), (29, 11)),
    "shared_left": ((13, 29), (5, 29, 11)),
    "shared_right": ((4, 2, 13, 29), (2, 29, 11)),
    "one_value": ((1, 1), (1, 1)),
    # more than an image has columns or channels
    "rows_in_parts": ((17000, 3), (3, 5)),
    "sums_in_parts": ((2, 3, 17000), (17000, 4)),
    "columns_in_parts": ((3, 4), (2, 4, 17000)),
}

# (shape, order), without the batch.
PERMUTATIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "vit_heads": ((197, 3, 12, 64), (1, 2, 0, 3)),
    "vit_join": ((12, 197, 64), (1, 0, 2)),
    "keys": ((12, 197, 64), (0, 2, 1)),
    "swin_windows": ((8, 7, 8, 7, 96), (0, 2, 1, 3, 4)),
    "swin_back": ((8, 8, 7, 7, 96), (0, 2, 1, 3, 4)),
    "swin_heads": ((64, 49, 3, 3, 32), (2, 0, 3, 1, 4)),
    "segformer": ((1024, 160), (1, 0)),
    "decoder": ((512, 32, 32), (1, 2, 0)),
    "six_axes": ((3, 2, 5, 2, 3, 7), (4, 1, 5, 0, 3, 2)),
    "odd": ((5, 7, 3), (2, 0, 1)),
}
PERMUTATIONS["rows_in_parts"] = ((2, 17000, 3), (1, 0, 2))
PERMUTATIONS |= {f"of_four_{order}": ((4, 6, 5, 8), order) for order in itertools.permutations(range(4))}
PERMUTATIONS |= {f"of_three_{order}": ((8, 3, 4), order) for order in itertools.permutations(range(3))}

# (shape, shape of torch.expand): without the batch.
REPEATED = {
    "rows": ((1, 7, 6), (5, 7, 6)),
    "columns": ((5, 1, 6), (5, 7, 6)),
    "channels": ((5, 7, 1), (5, 7, 6)),
    "heads": ((3, 1, 7, 5), (3, 4, 7, 5)),
}


def run(compute: Any, *arrays: NDArray[Any]) -> NDArray[Any]:
    """Return a network's result on tensors whose axes, after the batch, are the arrays'."""
    builder = Builder()
    sources, images = [], []
    for i, array in enumerate(arrays):
        image = general.storage_of(general.with_short_end(array.shape[1:]))
        x = builder.input(f"x{i}", image, "NHWC")
        builder.fix_unless_constant(x)
        sources.append(general.reshape(x, array.shape[1:]))
        images.append(array.reshape(len(array), *image))
    y: Tensor = compute(builder, *sources)
    stored = general.store(builder, y, general.storage_of(general.with_short_end(y.shape)))
    builder.output("y", replace(stored, axes="NHWC", flat=None))
    return np.asarray(mpscnn.Network(builder.graph)(*images)).reshape(BATCH, *y.shape)


def values(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal((BATCH, *shape)).astype(np.float32)


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name: str) -> None:
    first, second = PRODUCTS[name]
    a, b = values(*first), values(*second, seed=1)
    ranks = max(a.ndim, b.ndim)
    right_a, right_b = (x.astype(float).reshape(BATCH, *(1,) * (ranks - x.ndim), *x.shape[1:]) for x in (a, b))
    expected, bound = right_a @ right_b, np.abs(right_a) @ np.abs(right_b)
    found = run(general.matmul, a, b)
    assert found.shape == expected.shape
    # Each product and each sum rounds once; sums of n terms round at most n times.
    assert (np.abs(found - expected) <= bound * (first[-1] + 1) * 2.0**-24).all()


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_permutation(name: str) -> None:
    shape, order = PERMUTATIONS[name]
    x = values(*shape)
    found = run(lambda builder, t: general.permute(builder, t, order), x)
    np.testing.assert_array_equal(found, x.transpose(0, *(place + 1 for place in order)))


@pytest.mark.parametrize("name", REPEATED)
def test_repeated(name: str) -> None:
    shape, wanted = REPEATED[name]
    x = values(*shape)
    found = run(lambda builder, t: general.broadcast(builder, t, wanted), x)
    np.testing.assert_array_equal(found, np.broadcast_to(x, (BATCH, *wanted)))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("wanted", [range(1, 3), range(0, 4, 2), range(3, 4)], ids=str)
def test_part(place: int, wanted: range) -> None:
    x = values(4, 5, 6, 8)
    found = run(lambda builder, t: general.part(builder, t, place, wanted), x)
    np.testing.assert_array_equal(found, x.take(wanted, place + 1))


@pytest.mark.parametrize("order", ["".join(order) for order in itertools.permutations("HWC")])
@pytest.mark.parametrize("extents", [(3, 5, 6), (4, 6, 8)])
def test_of_an_image(order: str, extents: tuple[int, int, int]) -> None:
    """The axes of an image in any order, seen as two axes, exchanged: the places in the image are not in a row."""
    x = values(*extents)  # N, H, W, C
    seen = x.transpose([0, *("NHWC".index(letter) for letter in order)])
    builder = Builder()
    image = builder.input("image", seen.shape[1:], "N" + order)
    builder.fix_unless_constant(image)
    rows, columns = seen[0].size // seen.shape[-1], seen.shape[-1]
    y = general.strided(builder, image, (columns, rows), (1, columns))
    builder.output("y", replace(y, axes="NHWC", flat=None))
    found = np.asarray(mpscnn.Network(builder.graph)(np.ascontiguousarray(seen)))
    np.testing.assert_array_equal(
        found.reshape(BATCH, columns, rows), seen.reshape(BATCH, rows, columns).swapaxes(1, 2)
    )


@only_openmps("the trace is that of the CPU engine")
def test_the_engine_computes_them() -> None:
    """None of the shapes of real networks is left to the function itself."""
    names = [name for name in PRODUCTS if name.startswith(("vit", "swin", "segformer", "decoder"))]
    moves = [name for name in PERMUTATIONS if name.startswith(("vit", "swin", "segformer", "decoder"))]
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import test_ops_general as t\n"
        f"[t.test_product(name) for name in {names}]\n[t.test_permutation(name) for name in {moves}]\n"
    )
    settings = {k: v for k, v in os.environ.items() if not k.startswith("MPSCNN_") or k == "MPSCNN_DEVICE"}
    settings |= {"MPSCNN_TRACE": "dispatch", "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=settings, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    took = [line for line in done.stderr.splitlines() if line.startswith("mpscnn dispatch: function_threads")]
    assert any(line.endswith(": function_product") for line in took)
    assert any(line.endswith(": function_permutation") for line in took)
    assert not [line for line in took if line.endswith(": function_threads")]


@pytest.mark.parametrize("op", [general.channels_second, lambda builder, x: general.with_last(builder, x, [1])[0]])
def test_more_channels_than_an_image_has(op: Any) -> None:
    """A last axis may be stored as two, but not where an operation takes it for the channels."""
    with pytest.raises(UnmappedError, match="9000 channels, more than the maximum"):
        run(op, values(9000, 4))
