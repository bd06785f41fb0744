# SPDX-License-Identifier: Apache-2.0
"""History: round trips through JSON, invalid JSON, and plots."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import mpscnn
from mpscnn.training import Epoch, History

EPOCHS = [
    Epoch(2.5, 0.25, 2.25, 0.3, 0.1, 12, 1.5),
    Epoch(1.125, 0.75, None, None, 0.1, 12, 1.25),
    Epoch(0.5, None, 0.625, None, 0.05, 12, 1.0),
]


def test_round_trip() -> None:
    history = History(EPOCHS)
    again = History.from_dict(json.loads(json.dumps(history.to_dict())))
    assert again == history
    assert type(again) is History
    assert all(type(epoch) is Epoch for epoch in again)
    assert History.from_dict(History().to_dict()) == []
    endless = History([Epoch(1.0, None, math.inf, None, 0.1, 1, 1.0)])
    assert History.from_dict(json.loads(json.dumps(endless.to_dict()))) == endless


def test_text() -> None:
    assert [str(epoch) for epoch in EPOCHS] == [
        "loss 2.5, accuracy 25.0%; validation 2.25, 30.0%",
        "loss 1.125, accuracy 75.0%",
        "loss 0.5; validation 0.625",
    ]


GOOD = History(EPOCHS).to_dict()["epochs"][0]
NONE_OF_OURS: dict[str, tuple[Any, str]] = {
    "none": (None, "is not what"),
    "a list": ([], "is not what"),
    "text": ("epochs", "is not what"),
    "empty": ({}, "is not what"),
    "epochs are a dict": ({"epochs": {}}, "is not what"),
    "an epoch is a list": ({"epochs": [[1]]}, "is not what"),
    "one is missing": ({"epochs": [{k: v for k, v in GOOD.items() if k != "steps"}]}, "is not what"),
    "one more": ({"epochs": [{**GOOD, "more": 1}]}, "is not what"),
    "text in it": ({"epochs": [{**GOOD, "loss": "1"}]}, r"loss \(str\) is no number"),
    "true": ({"epochs": [GOOD, {**GOOD, "loss": True}]}, r"loss \(bool\) is no number"),
    "nothing": ({"epochs": [{**GOOD, "loss": None}]}, r"loss \(NoneType\) is no number"),
    "a list in it": ({"epochs": [{**GOOD, "accuracy": [1]}]}, r"accuracy \(list\) is no number"),
    "an object": ({"epochs": [{**GOOD, "seconds": object()}]}, r"seconds \(object\) is no number"),
    "not a number": ({"epochs": [{**GOOD, "loss": math.nan}]}, r"loss \(nan\) is no finite number"),
    "too large": ({"epochs": [{**GOOD, "seconds": math.inf}]}, r"seconds \(inf\) is no finite number"),
    "far too large": ({"epochs": [{**GOOD, "learning_rate": 10**400}]}, r"learning_rate \(10+\) is no finite number"),
    "half a step": ({"epochs": [{**GOOD, "steps": 1.5}]}, r"steps \(float\) is no number"),
}


@pytest.mark.parametrize("name", NONE_OF_OURS)
def test_nonsense(name: str) -> None:
    given, match = NONE_OF_OURS[name]
    with pytest.raises(ValueError, match=rf"^history\b.*{match}"):
        History.from_dict(given)


@pytest.mark.parametrize(("end", "count"), [("svg", 1), ("svg", 60), ("png", 2), ("pdf", 3)])
def test_plot(end: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / f"history.{end}"
    history = History([EPOCHS[i % 3] for i in range(count)])
    history.plot(path if count == 1 else str(path), title="a title")
    assert path.read_bytes().startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[end])
    assert path.stat().st_size > 3000


@pytest.mark.parametrize(
    "epoch",
    [
        Epoch(0.0, None, None, None, 0.1, 1, 1.0),
        Epoch(-1.5, None, -2.0, None, 0.1, 1, 1.0),
        Epoch(1.0, 0.5, math.nan, math.nan, 0.1, 1, 1.0),
        Epoch(1.0, 0.5, math.inf, 0.1, 0.1, 1, 1.0),
    ],
    ids=str,
)
def test_plot_of_unusual_numbers(epoch: Epoch, tmp_path: Path) -> None:
    """Losses of 0 and below have no logarithm."""
    History([epoch, epoch]).plot(tmp_path / "history.svg")
    assert (tmp_path / "history.svg").stat().st_size > 3000


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(EPOCHS)
    with pytest.raises(ValueError, match=r"^history is empty: nothing has been trained\.$"):
        History().plot(tmp_path / "history.svg")
    for path in (tmp_path / "history.txt", tmp_path / "history", "history."):
        with pytest.raises(ValueError, match=r'^path \(".*history.*"\) does not end in .*\.png.*\.svg'):
            history.plot(path)
    with pytest.raises(TypeError, match=r"^path \(int\) is not a path\.$"):
        history.plot(3)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="missing"):
        history.plot(tmp_path / "missing" / "history.svg")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(mpscnn.errors.MissingPackageError, match="matplotlib"):
        history.plot(tmp_path / "history.svg")
    assert list(tmp_path.iterdir()) == []


def test_plots_keep_nothing(tmp_path: Path) -> None:
    """No figure stays registered with pyplot."""
    from matplotlib._pylab_helpers import Gcf

    before = len(Gcf.figs)
    History(EPOCHS).plot(tmp_path / "history.svg")
    assert len(Gcf.figs) == before
