# SPDX-License-Identifier: Apache-2.0
"""The case rows on the Objective-C classes themselves, in every encode form, run by tests/objc/rows_test.mm."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cases
from rows import (
    objc_batch_normalization,
    objc_conversions,
    objc_filters,
    objc_forward,
    objc_gradients,
    objc_losses,
    objc_matrices,
    objc_optimizers,
    objc_places,
    objc_recurrent,
)
from rows.row_file import Row, write
from support import only_openmps

ROOT = Path(__file__).resolve().parent.parent
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
HEADERS = sorted(module.name for module in pkgutil.iter_modules(cases.__path__))
WITHOUT_GRADIENTS = {"MPSCNNBinaryConvolution", "MPSNNReduce", "MPSNNResize", "MPSNNSlice"}

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="the program tries openmps, which is not built on macOS"),
    only_openmps("the program tries openmps itself"),
    pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan"),
]


def run(rows: list[Row], folder: Path, **environment: str) -> None:
    assert FOLDER is not None
    assert rows
    file = folder / "rows"
    write(file, rows)
    program = ROOT / FOLDER / "objc_rows"
    environment = {**os.environ, **environment}
    result = subprocess.run([program, file], capture_output=True, text=True, timeout=1800, env=environment)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    passed = int(result.stdout.split()[-4])
    assert passed >= 3 * len(rows), result.stdout[-400:]


def cases_of(header: str) -> list[cases.Case]:
    return list(importlib.import_module(f"cases.{header}").CASES)


@pytest.mark.parametrize("header", HEADERS)
def test_forward(header: str, tmp_path: Path) -> None:
    run(objc_forward.rows(cases_of(header) + objc_forward.MORE.get(header, [])), tmp_path)


@pytest.mark.parametrize("header", sorted({*HEADERS} - WITHOUT_GRADIENTS))
def test_gradients(header: str, tmp_path: Path) -> None:
    run(objc_gradients.rows(cases_of(header) + objc_gradients.MORE.get(header, [])), tmp_path)


def test_losses(tmp_path: Path) -> None:
    run(objc_losses.rows(), tmp_path)


def test_optimizers(tmp_path: Path) -> None:
    run(objc_optimizers.rows(), tmp_path)


def test_batch_normalization(tmp_path: Path) -> None:
    run(objc_batch_normalization.rows(), tmp_path)


def test_conversions(tmp_path: Path) -> None:
    run(list(objc_conversions.rows()), tmp_path)


def test_filters(tmp_path: Path) -> None:
    run(list(objc_filters.rows()), tmp_path)


def test_matrices(tmp_path: Path) -> None:
    run(list(objc_matrices.rows()), tmp_path)


def test_places(tmp_path: Path) -> None:
    run(list(objc_places.rows()), tmp_path)


@pytest.mark.parametrize("part", objc_recurrent.PARTS, ids=lambda part: part.__name__)
def test_recurrent_layers(part: Callable[[], Iterator[Row]], tmp_path: Path) -> None:
    run(list(part()), tmp_path)


@pytest.mark.parametrize("engine", ["split", "cuda-host"])
def test_recurrent_layers_on_other_engines(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Without the CPU engine on cuda-host: all their problems have kernels."""
    if engine == "cuda-host":
        request.getfixturevalue("cuda_host")
    rows = [row for part in objc_recurrent.PARTS if part is not objc_recurrent.large for row in part()]
    run(rows, tmp_path, MPSCNN_ENGINE=engine, MPSCNN_CUDA_FALLBACK="0")


def test_a_wrong_value_is_seen(tmp_path: Path) -> None:
    """For every kind of row, the program fails if a number is changed."""
    assert FOLDER is not None
    header = cases_of("MPSCNNSoftMax")
    for all_rows in (
        objc_forward.rows(header),
        objc_gradients.rows(header),
        objc_losses.rows(),
        objc_optimizers.rows(),
        objc_batch_normalization.rows(),
        list(objc_conversions.rows()),
        list(objc_filters.rows()),
        list(objc_matrices.rows()),
        list(objc_places.rows()),
        *(list(part()) for part in objc_recurrent.PARTS if part is not objc_recurrent.large),
    ):
        row = all_rows[0]
        key = next(key for key in row.arrays if key in ("expected", "gradient", "y0") or key.startswith("after."))
        row.arrays[key] = row.arrays[key].copy()
        row.arrays[key].flat[-1] += 0.125
        write(tmp_path / "rows", [row])
        result = subprocess.run([ROOT / FOLDER / "objc_rows", tmp_path / "rows"], capture_output=True, text=True)
        assert result.returncode == 1
        assert f"FAILED: {row.name}" in result.stdout
