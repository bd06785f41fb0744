# SPDX-License-Identifier: Apache-2.0
"""Runs the programs built from ``tests/cpp/test_*.cpp``; the make targets say where they are (MPSCNN_CPP_TESTS)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
SOURCES = sorted((ROOT / "tests" / "cpp").glob("test_*.cpp"))


@pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_program(source: Path) -> None:
    assert FOLDER is not None
    program = ROOT / FOLDER / source.stem.replace("test_", "cpp_", 1)
    assert program.exists(), f"{program} was not built"
    result = subprocess.run([program], capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
