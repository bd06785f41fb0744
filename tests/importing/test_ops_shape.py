# SPDX-License-Identifier: Apache-2.0
"""Axes of importers' tensors against PyTorch, at the imported size and at others, and operations that fix sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from interpreter import interpret
from mpscnn.importing.builder import Builder, UnmappedError
from mpscnn.importing.ops import activation, reduction, shape

# PyTorch's function, ours, the shape without the batch, axes, whether other heights and widths are accepted.
ROWS: dict[str, tuple[Any, Any, tuple[int, ...], str, bool]] = {
    "vector_to_rows": (
        lambda x: x.reshape(-1, 3, 4),
        lambda b, x: shape.arrange(b, shape.reshape(b, x, (3, 4)), "NWC"),
        (12,),
        "NC",
        True,
    ),
    "channels_as_width": (
        lambda x: x[:, None],
        lambda b, x: shape.arrange(b, shape.unsqueeze(b, x, 1), "NCW"),
        (12,),
        "NC",
        True,
    ),
    "width_as_channels": (lambda x: x, lambda b, x: shape.arrange(b, x, "NC"), (13,), "NW", True),
    "one_channel_last": (
        lambda x: x.permute(0, 2, 3, 1),
        lambda b, x: shape.permute(b, x, (0, 2, 3, 1)),
        (1, 6, 7),
        "NCHW",
        True,
    ),
    "shuffle": (
        lambda x: x.reshape(len(x), 2, 3, *x.shape[2:]).transpose(1, 2).reshape(x.shape),
        lambda b, x: shape.flatten(b, shape.transpose(b, shape.reshape(b, x, (2, 3, x.height, x.width)), 1, 2), 1, 2),
        (6, 5, 7),
        "NCHW",
        True,
    ),
    "channels_apart_to_the_end": (
        lambda x: x.reshape(len(x), 2, 3, *x.shape[2:]).permute(0, 3, 4, 2, 1),
        lambda b, x: shape.permute(b, shape.reshape(b, x, (2, 3, 5, 7)), (0, 3, 4, 2, 1)),
        (6, 5, 7),
        "NCHW",
        False,
    ),
    "flat_part_of_channels": (
        lambda x: x.reshape(len(x), 2, 3, 5, 7)[:, :, 1:],
        lambda b, x: shape.narrow(b, shape.reshape(b, x, (2, 3, 5, 7)), 2, 1, 2),
        (6, 5, 7),
        "NCHW",
        False,
    ),
    "mean_of_flattened": (
        lambda x: x.flatten(2).mean(2),
        lambda b, x: reduction.mean(b, shape.flatten(b, x, 2), 2),
        (6, 5, 7),
        "NCHW",
        True,
    ),
    "cat_rows": (
        lambda x: torch.cat([x, x * 2, x], 2),
        lambda b, x: shape.cat(b, [x, twice(b, x), x], 2),
        (3, 5, 7),
        "NCHW",
        True,
    ),
    "cat_columns": (
        lambda x: torch.cat([x, x * 2], 3),
        lambda b, x: shape.cat(b, [x, twice(b, x)], 3),
        (3, 5, 7),
        "NCHW",
        True,
    ),
    "cat_last": (
        lambda x: torch.cat([x, x * 2], -1),
        lambda b, x: shape.cat(b, [x, twice(b, x)], -1),
        (5, 7, 3),
        "NHWC",
        True,
    ),
    "cat_flat": (
        lambda x: torch.cat([x.flatten(1), x.flatten(1)], 1),
        lambda b, x: shape.cat(b, [shape.flatten(b, x), shape.flatten(b, x)], 1),
        (5, 7, 3),
        "NHWC",
        False,
    ),
    "stack_vectors": (
        lambda x: torch.stack([x, x * 2], 1),
        lambda b, x: shape.stack(b, [x, twice(b, x)], 1),
        (5,),
        "NC",
        True,
    ),
    "first_row": (lambda x: x[:, :, 0], lambda b, x: shape.select(b, x, 2, 0), (3, 5, 7), "NCHW", False),
    "last_column": (lambda x: x[..., -1], lambda b, x: shape.select(b, x, 3, -1), (3, 5, 7), "NCHW", False),
    "without_borders": (
        lambda x: x[:, :, 1:-2],
        lambda b, x: shape.strided_slice(b, x, 2, 1, -2),
        (3, 6, 7),
        "NCHW",
        True,
    ),
    "without_many": (lambda x: x[:, :, 20:], lambda b, x: shape.strided_slice(b, x, 2, 20), (3, 26, 7), "NCHW", False),
    "every_third_from_1": (
        lambda x: x[..., 1::3],
        lambda b, x: shape.strided_slice(b, x, 3, 1, None, 3),
        (3, 6, 8),
        "NCHW",
        True,
    ),
    "every_second": (
        lambda x: x[..., ::2],
        lambda b, x: shape.strided_slice(b, x, 3, 0, 2**63 - 1, 2),
        (3, 6, 7),
        "NCHW",
        True,
    ),
    "all_that_there_is_now": (
        lambda x: x[..., :7],
        lambda b, x: shape.strided_slice(b, x, 3, 0, 7),
        (3, 6, 7),
        "NCHW",
        False,
    ),
    "channels_in_steps": (
        lambda x: x[:, 1::2],
        lambda b, x: shape.strided_slice(b, x, 1, 1, None, 2),
        (7, 3, 4),
        "NCHW",
        True,
    ),
    "expand_channels": (
        lambda x: x.expand(-1, 4, -1, -1),
        lambda b, x: shape.expand(b, x, (4, -1, -1)),
        (1, 3, 4),
        "NCHW",
        True,
    ),
    "squeeze_channel": (lambda x: x.squeeze(1), lambda b, x: shape.squeeze(b, x, 1), (1, 3, 4), "NCHW", True),
    "squeeze_a_row_that_is_one_here": (
        lambda x: x.squeeze(2),
        lambda b, x: shape.squeeze(b, x, 2),
        (3, 1, 4),
        "NCHW",
        False,
    ),
    "chunks": (lambda x: x.chunk(3, 1)[2], lambda b, x: shape.chunk(b, x, 3, 1)[2], (8, 3, 4), "NCHW", True),
}


def twice(builder: Builder, x: Any) -> Any:
    return builder.add("NeuronLinear", x, a=2.0)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("batch", [1, 3])
def test_against_pytorch(rng: np.random.Generator, name: str, batch: int) -> None:
    theirs, ours, extents, axes, free = ROWS[name]
    builder = Builder()
    builder.output("y", ours(builder, builder.input("x", extents, axes)))
    (spec,) = builder.graph.inputs.values()
    assert (not spec.fixed_by) == free
    sizes = [extents]
    if free:
        more = {"H": 3, "W": 5, "C": 0, "N": 0}
        sizes.append(tuple(extent + more[axis] for axis, extent in zip(axes[1:], extents, strict=True)))
    for size in sizes:
        x = rng.standard_normal((batch, *size)).astype(np.float32)
        expected = theirs(torch.tensor(x)).numpy()
        found = interpret(builder.graph, x=x)["y"]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_relabelling_adds_no_node() -> None:
    builder = Builder()
    x = builder.input("x", (5, 1, 1))
    builder.fix()
    y = shape.reshape(builder, shape.permute(builder, x, (0, 2, 3, 1)), (5,))
    y = shape.unsqueeze(builder, shape.squeeze(builder, shape.reshape(builder, y, (5, 1, 1)), 3), 1)
    assert len(builder.graph) == 0
    assert y.shape == (1, 5, 1)


def test_names_of_axes_that_come_and_go() -> None:
    builder = Builder()
    vector = builder.input("vector", (5,), "NC")
    assert shape.reshape(builder, vector, (5, 1, 1)).axes == "NCHW"
    assert shape.reshape(builder, vector, (1, 1, 5)).axes[3] == "C"
    image = builder.input("image", (1, 6, 7))
    assert shape.squeeze(builder, image, 1).axes == "NHW"
    assert shape.unsqueeze(builder, shape.squeeze(builder, image, 1), 1).axes == "NCHW"


def test_a_linear_activation_keeps_a_flat_tensor() -> None:
    builder = Builder()
    x = shape.flatten(builder, builder.input("x", (3, 4, 5)), 2)
    assert activation.relu(builder, x).shape == (3, 20)
    assert not builder.graph.inputs["x"].fixed_by


UNMAPPED = {
    "batch_moved": (lambda b, x: shape.permute(b, x, (1, 0, 2, 3)), "axis of the batch"),
    "batch_flattened": (lambda b, x: shape.flatten(b, x, 0, 1), "the batch taken together"),
    "batch_sliced": (lambda b, x: shape.narrow(b, x, 0, 0, 1), "a part of the batch"),
    "batch_joined": (lambda b, x: shape.cat(b, [x, x], 0), "along the batch"),
    "values_in_other_order": (lambda b, x: shape.arrange(b, shape.flatten(b, x), "NC"), "in another order"),
    "backwards": (lambda b, x: shape.strided_slice(b, x, 2, None, None, -1), "a step of -1"),
    "nothing": (lambda b, x: shape.strided_slice(b, x, 2, 3, 3), "a part without values"),
    "many_channels": (
        lambda b, x: shape.pick_channels(
            b, shape.expand(b, x, (8192, 6, 7)) if x.channels == 1 else x, [1, 0] * 5_000_000
        ),
        "in another order",
    ),
}
INVALID = {
    "size": (lambda b, x: shape.reshape(b, x, (5, 5)), "has 126 values"),
    "two_unknowns": (lambda b, x: shape.reshape(b, x, (-1, -1)), "is no shape"),
    "no_multiple": (lambda b, x: shape.reshape(b, x, (-1, 4)), "no multiple"),
    "axis": (lambda b, x: shape.transpose(b, x, 1, 4), "axis 4 is not one of the 4 axes"),
    "order": (lambda b, x: shape.permute(b, x, (0, 1, 1, 2)), "no order of 4 axes"),
    "lengths": (lambda b, x: shape.split(b, x, [1, 1], 1), r"lengths \[1, 1\] are not 3"),
    "index": (lambda b, x: shape.select(b, x, 1, 3), "index 3"),
    "extents": (lambda b, x: shape.cat(b, [x, shape.narrow(b, x, 2, 0, 2)], 1), "are concatenated along 1"),
    "none": (lambda b, x: shape.cat(b, [], 1), "nothing"),
}


@pytest.mark.parametrize("name", [*UNMAPPED, *INVALID])
def test_refused(name: str) -> None:
    body, reason = (UNMAPPED | INVALID)[name]
    builder = Builder()
    with pytest.raises(UnmappedError if name in UNMAPPED else mpscnn.InvalidModelError, match=reason):
        body(builder, builder.input("x", (3, 6, 7)))
