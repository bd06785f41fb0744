# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of the engine: cpp_engine_rows runs rows of tests/rows/engine_*.py through the fields of each problem, on
the engine that MPSCNN_ENGINE names or the CPU engine; and with single implementations.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from rows import row_file
from support import only_openmps

ROOT = Path(__file__).resolve().parent.parent
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
SOURCES = sorted((ROOT / "tests" / "rows").glob("engine_*.py"))
# The lists in docs/engine.md.
IMPLEMENTATIONS = {
    "convolve": "nothing_seen multiplier inner_product taps primitive materialized apart depthwise_loop loop",
    "convolve_transpose": "primitive stuffed loop",
    "convolve_gradient, data": "depthwise taps narrow primitive patches",
    "convolve_gradient, weights": "depthwise taps in_place primitive patches",
}
NAMES = sorted({name for names in IMPLEMENTATIONS.values() for name in names.split()})
SMALL = 1 << 20  # bytes of a row for every implementation
MIN_TAKEN = 5  # problems per implementation

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="the program tries openmps, which is not built on macOS"),
    only_openmps("the program tries openmps itself"),
    pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan"),
]


@lru_cache(maxsize=1)  # rows of convolutions are large, and every implementation uses them
def rows_of(family: str) -> list[row_file.Row]:
    return list(importlib.import_module(f"rows.{family}").rows())


def run(path: Path, rows: list[row_file.Row], **environment: str) -> subprocess.CompletedProcess[str]:
    assert FOLDER is not None
    row_file.write(path, rows)
    program = ROOT / FOLDER / "cpp_engine_rows"
    assert program.exists(), f"{program} was not built"
    done = subprocess.run(
        [program, path], capture_output=True, text=True, timeout=1800, env=os.environ | environment, check=False
    )
    path.unlink()
    return done


@pytest.mark.parametrize("family", [path.stem for path in SOURCES])
def test_rows(family: str, tmp_path: Path) -> None:
    done = run(tmp_path / "rows", rows_of(family))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("family", [path.stem for path in SOURCES if path.stem != "engine_convolution"])
def test_last_implementations(family: str, tmp_path: Path) -> None:
    """With only the last of each list, which accepts everything; "loop" is in a list of the convolutions."""
    done = run(tmp_path / "rows", rows_of(family), MPSCNN_IMPL="loop")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def is_small(row: row_file.Row) -> bool:
    return "weights" in row.arrays and sum(array.nbytes for array in row.arrays.values()) <= SMALL


@pytest.mark.parametrize("name", NAMES)
def test_one_implementation(name: str, tmp_path: Path) -> None:
    """With only this implementation and the last of each list: same results, and it computes some of the rows."""
    rows = [row for row in rows_of("engine_convolution") if is_small(row)]
    done = run(tmp_path / "rows", rows, MPSCNN_IMPL=name, MPSCNN_TRACE="dispatch")
    assert done.returncode == 0, done.stdout[-4000:]
    lines = Counter(re.findall(r"^mpscnn dispatch: (.*): (\w+)$", done.stderr, re.MULTILINE))
    for entry, names in IMPLEMENTATIONS.items():
        if name in names.split():
            assert lines[entry, name] >= MIN_TAKEN, f"{entry}: {name} has taken {lines[entry, name]} problems"


def test_every_kind_of_problem_has_rows() -> None:
    problem = (ROOT / "csrc" / "openmps" / "engine" / "problem" / "fwd.hpp").read_text()
    variant = re.search(r"std::variant<(.*?)>", problem, re.DOTALL)
    assert variant
    kinds = set(re.findall(r"(\w+)Problem", variant[1]))
    text = "".join(path.read_text() for path in SOURCES)
    assert len(kinds) > 30
    assert {kind for kind in kinds if f'"{kind}"' not in text} == set()
