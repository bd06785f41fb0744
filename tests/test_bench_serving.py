# SPDX-License-Identifier: Apache-2.0
"""bench/serving.py: memory of processes that share a file's weights, and networks that it does not know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system has no smaps_rollup")

ROOT = Path(__file__).resolve().parent.parent


def test_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Four processes map 45 MB of weights once; without mapping, each has a copy."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import serving

    path = tmp_path / "report.json"
    assert serving.main(["--memory", "--network", "resnet18", "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    megabytes = {(row["mapped"], row["processes"]): row["all_mb"] for row in report["memory"]}
    assert megabytes.keys() == {(mapped, count) for mapped in (True, False) for count in (1, 2, 4)}
    assert 40 <= report["file_mb"] <= 50
    # Programs that share libraries may start or end between the two measurements.
    assert megabytes[True, 4] < megabytes[False, 4] - 1.5 * report["file_mb"]


def test_networks_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import serving

    with pytest.raises(SystemExit) as stop:
        serving.main(["--network", "nonsense"])
    assert stop.value.code == 2
    assert "--network: nonsense is not one of resnet50, resnet18, " in capsys.readouterr().err
