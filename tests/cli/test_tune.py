# SPDX-License-Identifier: Apache-2.0
"""mpscnn tune, and what other commands show of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="openmps is Linux only")


def mpscnn(home: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: choices are read once per process."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("MPSCNN_")}
    command = [sys.executable, "-m", "mpscnn", *map(str, arguments)]
    environment = settings | {"XDG_CACHE_HOME": str(home), "COLUMNS": "300"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def as_json(home: Path, *arguments: object) -> Any:
    ran = mpscnn(home, *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_tune(classifier: Path, tmp_path: Path) -> None:
    home = tmp_path / "cache"
    found = as_json(home, "tune", classifier, "--batch", "1,2", "--rounds", 2, "--input-shape", "1x3x16x12")
    assert [one["batch"] for one in found["tunings"]] == [1, 2]
    assert all(one["calls"] for one in found["tunings"])
    assert all(one["file"] == str(home / "mpscnn" / "cpu") for one in found["tunings"])
    changed = {
        call["description"] for one in found["tunings"] for call in one["calls"] if call["chosen"] != call["model"]
    }
    assert (as_json(home, "info")["choices"] > 0) == bool(changed)
    assert as_json(home, "cache")["files"] == 1
    assert as_json(home, "cache", "--clear")["removed_files"] == 1
    assert as_json(home, "info")["choices"] == 0


def test_tune_as_text(classifier: Path, tmp_path: Path) -> None:
    ran = mpscnn(tmp_path / "cache", "tune", classifier, "--rounds", 1, "--input-shape", "1x3x16x12")
    assert ran.returncode == 0, ran.stderr
    header, _, *rows = [line.split() for line in ran.stdout.splitlines() if line.strip()]
    assert header[:3] == ["call", "model", "chosen"]
    assert len(rows) > 1
    assert " calls have another implementation than the model's" in ran.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "0"], "0 is less than the minimum (1)"),
        (["--rounds", "0"], "0 is less than the minimum (1)"),
        (["--num-threads", "0"], "0 is less than the minimum (1)"),
    ],
)
def test_wrong_use(run, classifier: Path, options: list[str], message: str) -> None:
    ran = run("tune", classifier, *options)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.message
