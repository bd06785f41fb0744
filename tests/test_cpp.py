# SPDX-License-Identifier: Apache-2.0
"""Runs the programs built from tests/cpp and tests/objc, which the make targets put into MPSCNN_CPP_TESTS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import only_openmps

ROOT = Path(__file__).resolve().parent.parent
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
# test_engine_rows.py runs cpp_engine_rows, which needs a file, and test_cuda_kernels.py cpp_engine_compile.
OTHERS = ("test_engine_rows", "test_engine_compile")
CPP = [path.stem for path in (ROOT / "tests" / "cpp").glob("test_*.cpp") if path.stem not in OTHERS]
PROGRAMS = sorted(
    [name.replace("test_", "cpp_", 1) for name in CPP]
    + ["objc_" + path.stem.removesuffix("_test") for path in (ROOT / "tests" / "objc").glob("*_test.mm")]
)
# These synchronize all that they read, so they also run where storage is managed.
PORTABLE = [
    "objc_" + name
    for name in (
        "functions",
        "initializers",
        "metal_commands",
        "mps_batch_normalization_gradient",
        "mps_local_normalization",
        "mps_local_normalization_gradient",
        "mps_matrix_kernels",
        "mps_pooling_gradient",
        "mps_reduce",
        "mps_rnn",
    )
]

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="the programs try openmps, which is not built on macOS"),
    only_openmps("the programs try openmps itself, those of PORTABLE also with MPSCNN_DEVICE=apple"),
    pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan"),
]


def run(name: str, **environment: str) -> None:
    assert FOLDER is not None
    program = ROOT / FOLDER / name
    assert program.exists(), f"{program} was not built"
    result = subprocess.run([program], env=os.environ | environment, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert "passed" in result.stdout, result.stdout[-4000:]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    run(name)


@pytest.mark.parametrize("name", PORTABLE)
def test_on_a_device_with_apples_rules(name: str) -> None:
    run(name, MPSCNN_DEVICE="apple")
