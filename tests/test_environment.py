# SPDX-License-Identifier: Apache-2.0
"""Environment variables: one table in the library, one page, and an error for every unknown value."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

on_linux = pytest.mark.skipif(sys.platform == "darwin", reason="openmps is Linux only")
ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "csrc/openmps/engine/shared/env.cpp"
# Variables of builds and tests, which other files read.
NOT_OF_THE_LIBRARY = {"MPSCNN_CPP_TESTS", "MPSCNN_SHAPES", "MPSCNN_TIER", "MPSCNN_FUZZ", "MPSCNN_UNITY"}


def rows() -> dict[str, str]:
    """Return the choices of each variable in the library's table."""
    return dict(re.findall(r'\.name = "(\w+)", \.choices = "([^"]*)"', TABLE.read_text()))


def test_the_page_has_every_variable() -> None:
    page = (ROOT / "docs/environment.md").read_text()
    page, _, _ = page.partition("Variables of other programs")
    described = dict(re.findall(r"^\| `(MPSCNN_\w+)` \| (.*?) \|", page, re.MULTILINE))
    assert list(described) == list(rows())
    for name, choices in rows().items():
        for choice in filter(None, choices.split(",")):
            assert f"`{choice}`" in described[name], (name, choice)


def test_nothing_reads_the_environment_beside_the_table() -> None:
    sources = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".cpp", ".hpp", ".mm", ".hh")]
    found = {(path.name, name) for path in sources for name in re.findall(r'"(MPSCNN_[A-Z]\w*)"', path.read_text())}
    assert {name for _, name in found} == set(rows())
    assert {file for file, _ in found} == {TABLE.name}
    of_python = "".join(path.read_text() for path in (ROOT / "python").rglob("*.py"))
    assert not set(re.findall(r'environ\S*"(MPSCNN_\w+)"', of_python)) - NOT_OF_THE_LIBRARY


def test_the_page_has_the_variables_of_others() -> None:
    page = (ROOT / "docs/environment.md").read_text()
    sources = "".join(path.read_text() for path in (ROOT / "csrc").rglob("*.cpp"))
    found = set(re.findall(r'getenv\("(\w+)"\)', sources))
    of_python = "".join(path.read_text() for path in (ROOT / "python").rglob("*.py"))
    found |= set(re.findall(r'"([A-Z_]+)" (?:not )?in os\.environ', of_python))
    assert found >= {"HOME", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX"}
    assert {name for name in found if f"`{name}`" not in page} == set()


def test_the_page_has_the_variables_of_tests() -> None:
    page = (ROOT / "docs/environment.md").read_text().partition("Variables of the tests")[2]
    programs = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").glob("*.py")]
    found = {name for path in programs for name in re.findall(r'environ\S*"(MPSCNN_\w+)"', path.read_text())}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == found - set(rows()) | {"MPSCNN_PICTURES"}


@on_linux
@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("MPSCNN_DEVICE", "zz", "MPSCNN_DEVICE (zz) is not openmps or apple."),
        ("MPSCNN_DEVICE", "openmps,apple", "MPSCNN_DEVICE (openmps,apple) is not openmps or apple."),
        ("MPSCNN_FUSE", "no", "MPSCNN_FUSE (no) is not 0 or 1."),
        (
            "MPSCNN_TRACE",
            "steps,plans",
            "MPSCNN_TRACE (steps,plans) is not dispatch or steps, or some of these separated by commas.",
        ),
        ("MPSCNN_TRACE", "steps,,dispatch", "MPSCNN_TRACE (steps,,dispatch) is not dispatch or steps, or some of"),
        ("MPSCNN_ENGINE", "zz", "MPSCNN_ENGINE (zz) names no engine of this library (cpu, null, split, cuda:0, ...)."),
    ],
)
def test_values_that_are_no_choice(variable: str, value: str, sentence: str) -> None:
    command = [sys.executable, "-c", "import mpscnn; mpscnn.Device()"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {variable: value})
    assert done.returncode == 1
    assert f"ValueError: {sentence}" in done.stderr


@on_linux
@pytest.mark.parametrize("value", ["steps", "dispatch", "dispatch,steps", ""])
def test_traces(value: str) -> None:
    program = """
import numpy, mpscnn
mpscnn.Convolution(numpy.ones((4, 3, 3, 3), numpy.float32), layout="OIHW")(numpy.ones((1, 5, 5, 3), numpy.float32))
"""
    command = [sys.executable, "-c", program]
    environment = os.environ | {"MPSCNN_TRACE": value}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    kinds = {line.split(":")[0] for line in done.stderr.splitlines()}
    assert kinds == {f"mpscnn {word}" for word in value.split(",") if word}
