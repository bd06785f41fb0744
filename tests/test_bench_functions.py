# SPDX-License-Identifier: Apache-2.0
"""bench/functions.py on small images: every function has PyTorch's results, and the table has its times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parent.parent
NAMES = ["copy", "add", "swish", "depth_to_space", "bilateral"]


def test_functions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import __main__, functions

    monkeypatch.setattr(functions, "SIZE", (1, 6, 10, 32))
    monkeypatch.setattr(functions, "PICTURE", (1, 9, 11, 4))
    assert __main__.main(["functions", "--seconds", "0.01", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["functions"]
    assert [row["case"] for row in rows] == NAMES
    for row in rows:
        contestants = {"function", "torch"} | ({"kernel"} if row["case"] in ("copy", "add") else set())
        assert row["seconds"].keys() == contestants
        assert min(row["seconds"].values()) > 0
        assert row["gigabytes"] > 0
    assert __main__.main(["functions", "--seconds", "0.01", "--case", "swish"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.split()[:8] == ["swish", "1", "x", "6", "x", "10", "x", "32"]
    assert line.split().count("-") == 2, "there is no kernel beside it"


def test_wrong_results_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import functions

    row = functions.Row("copy", functions.COPY, ((1, 2, 3, 4),), lambda torch, out, x: torch.add(x, 1, out=out))
    with pytest.raises(AssertionError, match="copy differs by"):
        functions._contestants(row)
