# SPDX-License-Identifier: Apache-2.0
"""bench/contention.py on a network of one convolution."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

CONTESTANTS = ("mpscnn", "mpscnn, after torch", "mpscnn, after numpy", "torch", "unknown")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def contention(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import contention, networks

    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    monkeypatch.setattr(networks, "_module", lambda name: module)
    monkeypatch.setattr(networks, "NETWORKS", {"tiny": networks.Case("Tiny", (3, 6, 5))})
    monkeypatch.setattr(contention, "NETWORKS", ("tiny",))
    monkeypatch.setattr(contention, "CONTESTANTS", CONTESTANTS)
    return contention


def test_rows(contention: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from bench import __main__

    assert __main__.main(["contention", "--seconds", "0.05", "--case", "0 busy", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["contention"]
    assert (row["case"], row["busy_loops"]) == ("tiny", 0)
    assert [one["name"] for one in row["measured"]] == list(CONTESTANTS[:-1])
    assert list(row["absent"]) == ["unknown"]
    for one in row["measured"]:
        assert one["p90"] > 0
        assert one["processor"] > 0


def test_table(contention: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from bench import __main__

    row = {"name": "mpscnn", "seconds": 2e-3, "p90": 3e-3, "processor": 4e-3, "ratio": 1.0}
    measured = [row, {**row, "name": "slow", "seconds": 5e-3, "ratio": 2.5}]
    __main__._print_contention([{"case": "tiny", "busy_loops": 2, "measured": measured, "absent": {"other": "why"}}])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split() == ["tiny", "2", "slow", "5.00", "3.00", "4.00", "2.50"]
    assert lines[-1] == "without other: why"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_busy_loops_end(contention: Any) -> None:
    from bench import contestants

    with contestants.busy_loops(2):
        mine = [child for child in _children(os.getpid()) if "getppid" in child[1]]
        assert len(mine) == 2
    assert not any("getppid" in command for _, command in _children(os.getpid()))
    # Also if the process that started them is killed.
    code = (
        "from bench import contestants\n"
        "with contestants.busy_loops(1):\n"
        "    print('ready', flush=True)\n"
        "    import time; time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    assert parent.stdout.readline() == "ready\n"
    (loop,) = _children(parent.pid)
    parent.kill()
    parent.communicate()
    end = time.monotonic() + 20
    while Path("/proc", loop[0]).exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path("/proc", loop[0]).exists()


def _children(parent: int) -> list[tuple[str, str]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append((folder.name, (folder / "cmdline").read_text()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
