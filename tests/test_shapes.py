# SPDX-License-Identifier: Apache-2.0
"""Layers with the sizes of real networks (shapes.txt), forward and gradients, against PyTorch.

Random rows that take a minute; MPSCNN_SHAPES_SEED=<number> repeats an earlier run, whose output has the number. All
rows: make test-shapes. Height and width are cut to 32, which changes neither the channels nor the kernel; only make
test-shapes runs weights of more than 2^25 values, without gradients.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shapes  # noqa: E402
from shapes import Row  # noqa: E402
from support import PROCESSOR  # noqa: E402

SECONDS = 30.0
SIZE = 32
MOST_WEIGHTS = 1 << 25
ALL = os.environ.get("MPSCNN_SHAPES") == "all"
SEED = int(os.environ.get("MPSCNN_SHAPES_SEED") or np.random.SeedSequence().entropy % 2**32)  # type: ignore[operator]
# Few rows are transposes, where implementations differ most.
TURNS = (
    "conv",
    "transpose",
    "conv",
    "linear",
    "conv",
    "transpose",
    "conv",
    "max",
    "conv",
    "transpose",
    "conv",
    "average",
)


def nchw(array: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 3, 1, 2)))


def result(row: Row, x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn import functional

    if row.kind == "linear":
        return functional.linear(x[:, :, 0, 0], weight, bias)[:, :, None, None]
    if row.kind == "max":
        return functional.max_pool2d(x, row.kernel, row.stride, row.padding, ceil_mode=bool(row.extra))
    if row.kind == "average":
        return functional.avg_pool2d(x, row.kernel, row.stride, row.padding, bool(row.extra), bool(row.bias))
    if row.kind == "transpose":
        return functional.conv_transpose2d(x, weight, bias, row.stride, row.padding, row.extra, row.groups)
    return functional.conv2d(x, weight, bias, row.stride, row.padding, row.dilation, row.groups)


def own_order(row: Row, grad: np.ndarray) -> np.ndarray:
    """Return PyTorch's gradient of the weights in the state's order: OHWI, with reversed taps for transposes."""
    if row.kind == "linear":
        return grad[:, None, None]
    if row.kind == "transpose":
        return np.concatenate([part.transpose(1, 2, 3, 0) for part in np.split(grad[:, :, ::-1, ::-1], row.groups)])
    return grad.transpose(0, 2, 3, 1)


def expected(row: Row, arrays: dict[str, Any], *, gradients: bool = True) -> dict[str, np.ndarray]:
    leaves = {"x": nchw(arrays["x"])} | {n: torch.from_numpy(v) for n, v in arrays.items() if n != "x"}
    for leaf in leaves.values():
        leaf.requires_grad_(gradients)
    y = result(row, leaves["x"], leaves.get("weight"), leaves.get("bias"))
    values = y.detach().permute(0, 2, 3, 1).numpy()
    wanted = {"y": values, "activated": np.where(values >= 0, values, shapes.SLOPE * values)}
    if gradients:
        grads = torch.autograd.grad(y, list(leaves.values()), nchw(shapes.incoming(values.shape)))
        named = {f"grad_{name}": grad.numpy() for name, grad in zip(leaves, grads, strict=True)}
        named["grad_x"] = named["grad_x"].transpose(0, 2, 3, 1)
        if "grad_weight" in named:
            named["grad_weight"] = own_order(row, named["grad_weight"])
        wanted |= named
    return wanted


def problems(row: Row, seed: int) -> list[str]:
    arrays = shapes.given(row, seed)
    gradients = row.weights <= MOST_WEIGHTS
    found = shapes.computed(row, arrays, gradients=gradients)
    return shapes.differences(row, found, expected(row, arrays, gradients=gradients))


def shuffled(rng: np.random.Generator, size: int) -> dict[str, list[Row]]:
    """Return the rows of each kind in random order."""
    kinds: dict[str, list[Row]] = {}
    for row in shapes.rows():
        kinds.setdefault(row.kind, []).append(row.cut(size))
    return {kind: [of_kind[i] for i in rng.permutation(len(of_kind))] for kind, of_kind in kinds.items()}


def test_the_list() -> None:
    rows = shapes.rows()
    assert len(set(rows)) == len(rows) > 1000
    assert len({row.network for row in rows}) >= 40
    assert {row.kind for row in rows} == set(TURNS)
    assert all(row == Row.parse(str(row)) for row in rows)


def test_rows_drawn_at_random() -> None:
    """30 seconds: each row is a layer of a real network."""
    print(f"MPSCNN_SHAPES_SEED={SEED}")
    left = shuffled(np.random.default_rng(SEED), SIZE)
    wrong: list[str] = []
    end, turn, seen = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end and left["conv"]:
        kind = TURNS[turn % len(TURNS)]
        turn += 1
        if left[kind] and left[kind][-1].weights <= MOST_WEIGHTS:
            wrong += problems(left[kind][-1], SEED + turn)
            seen += 1
        del left[kind][-1:]
    print(f"{seen} rows")
    assert not wrong, "\n".join(wrong)
    assert seen >= 10


@pytest.mark.parametrize("network", sorted({row.network for row in shapes.rows()} if ALL else ()))
def test_all_rows(network: str) -> None:
    """One to four minutes for each instruction set: has parameters only under make test-shapes."""
    wrong = []
    for seed, row in enumerate(shapes.rows()):
        if row.network == network:
            wrong += problems(row.cut(SIZE), seed)
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------------------------- one implementation at a time

# The names in docs/engine.md, without nothing_seen, multiplier and apart, which no row uses, and matrix_vector, which
# some drawings of rows do not use: test_engine_rows has them.
IMPLEMENTATIONS = [
    "inner_product",
    "taps",
    "winograd",
    "primitive",
    "materialized",
    "depthwise_loop",
    "loop",
    "stuffed",
    "narrow",
    "in_place",
    "depthwise",
    "patches",
]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of a few pixels with PyTorch's results, the same for all implementations."""
    left = shuffled(np.random.default_rng(SEED), 8)
    conv = left["conv"]
    drawn = [
        *[row for row in conv if row.groups == row.inputs][:3],
        *[row for row in conv if 1 < row.groups < row.inputs][:2],
        *[row for row in conv if row.kernel == (1, 1)][:3],
        *[row for row in conv if row.groups == 1 and max(row.kernel) > 1 and row.inputs > 8][:6],
        *[row for row in conv if row.inputs <= 4][:1],
        *[
            row.cut(2)
            for row in conv
            if row.kernel == (3, 3)
            and row.stride == row.padding == row.dilation == (1, 1)
            and row.groups == 1
            and 64 <= row.inputs == row.outputs <= 512  # computed by "taps"
        ][:2],
        *left["transpose"][:6],
        *left["linear"][:3],
    ]
    path = tmp_path_factory.mktemp("shapes") / "cases.npz"
    usable = [row for row in drawn if row.multiplications < 200e6 and row.weights < 1 << 23]
    shapes.save(path, ((row, SEED + i, expected(row, shapes.given(row, SEED + i))) for i, row in enumerate(usable)))
    return path


def run(cases: Path, **environment: str) -> str:
    """Return the trace of a process that has found no difference."""
    command = [sys.executable, str(Path(shapes.__file__)), str(cases)]
    settings = os.environ | {"MPSCNN_TRACE": "dispatch"} | environment
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=settings)
    print(f"MPSCNN_SHAPES_SEED={SEED}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stdout.strip(), f"{environment}\n{done.stdout}"
    return done.stderr


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_one_implementation(name: str, cases: Path) -> None:
    """With only this implementation and the loops: PyTorch's results, and the implementation is used."""
    if name == "winograd" and "avx2" not in PROCESSOR:
        pytest.skip("the processor has no AVX2")
    took = set(re.findall(r"^mpscnn dispatch: convolve[\w, ]*: (\w+)$", run(cases, MPSCNN_IMPL=name), re.MULTILINE))
    assert name in took
    assert took <= {name, "loop", "patches"}


def test_an_implementation_that_does_not_exist(cases: Path) -> None:
    """The run fails and lists the existing names, instead of using the loops only."""
    command = [sys.executable, str(Path(shapes.__file__)), str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | {"MPSCNN_IMPL": "lop"})
    assert done.returncode != 0
    assert re.search(r"MPSCNN_IMPL \(lop\) names no implementation \(.*\bloop\b.*\)", done.stderr)


@pytest.mark.parametrize("isa", ["SSE41", "AVX", "AVX2", "AVX512_CORE", "DEFAULT"])
def test_one_instruction_set(isa: str, cases: Path) -> None:
    """oneDNN's implementations for processors with at most this instruction set."""
    assert "convolve: primitive" in run(cases, ONEDNN_MAX_CPU_ISA=isa, MPSCNN_WINOGRAD="0")
