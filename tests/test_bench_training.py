# SPDX-License-Identifier: Apache-2.0
"""bench/training.py on a small network: its output, and the results that it refuses to time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mpscnn import benchmarking  # noqa: E402
from support import only_openmps  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
MEMORY = {"ours": {"resident": 2_000_000, "device": 1_000_000}, "torch": {"resident": 3_000_000}}


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import training

    def make() -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return torch.nn.Sequential(
                torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
                torch.nn.Flatten(), torch.nn.Linear(4, 5),
            )  # fmt: skip

    monkeypatch.setattr(training, "CASES", [training.Case("tiny", (3, 6, 5), 7, 5, 2, make)])
    return training


def run(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    from bench import __main__

    assert __main__.main(["training", "--seconds", "0", *options]) == 0
    return capsys.readouterr().out


def test_fields(training: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_memory_of_a_process", lambda case, batch, who, reduced: MEMORY[who])
    rows = json.loads(run(capsys, "--json", "--batch", "3"))["training"]
    assert [row["reduced_precision"] for row in rows] == [False, True]
    for row in rows:
        assert (row["case"], row["batch"], row["threads"]) == ("tiny", 3, torch.get_num_threads())
        assert 0 < row["least"]["ours"] <= row["seconds"]["ours"]
        assert 0 < row["least"]["torch"] <= row["seconds"]["torch"]
        assert row["ratio"].keys() == {"torch"}
        assert row["ratio"]["torch"] > 0
        assert row["rounds"] >= 9
        assert row["memory"] == MEMORY
    assert 0 <= rows[0]["difference"]["losses"] < 1e-4
    assert 0 < rows[0]["difference"]["parameters"] < 1e-4
    assert 0 <= rows[1]["difference"]["losses"] < 0.05
    text = run(capsys)
    assert "tiny, batch 7" in text
    lines = [line.split() for line in text.splitlines()[-4:]]
    assert [line[3:5] for line in lines] == [
        ["float32", "ours"], ["float32", "torch"], ["bfloat16", "ours"], ["bfloat16", "torch"],
    ]  # fmt: skip
    assert lines[0][-2:] == ["2", "1"]
    assert lines[1][-1] == "3"


def test_steps_in_a_row(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def step(x: Any, labels: Any) -> Any:
        seen.append((x, labels))
        return lambda: len(seen)

    assert training._some(step, [(1, 2), (3, 4)], 5) == 5
    assert seen == [(1, 2), (3, 4), (1, 2), (3, 4), (1, 2)]
    monkeypatch.setattr(training, "_memory_of_a_process", lambda case, batch, who, reduced: MEMORY[who])
    monkeypatch.setattr(benchmarking, "rounds", lambda players, seconds: {"ours": [4.0], "torch": [10.0]})
    row, _ = training.run(0)  # two steps are timed together
    assert row["seconds"] == row["least"] == {"ours": 2.0, "torch": 5.0}


@only_openmps("the device counts its memory")
def test_memory(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = training.Case("digits", (1, 8, 8), 64, 10, 1, training._digits)
    ours = training._memory_of_a_process(case, 1024, "ours")  # another process makes its own list of cases
    values = 4 * 1024 * (8 * 8 * (16 + 32) + 4 * 4 * 64)  # of the convolutions, needed for their gradients
    assert values < ours["device"] < 10 * values
    assert values < ours["resident"]
    theirs = training._memory_of_a_process(case, 1024, "torch")
    assert set(theirs) == {"resident"}
    assert values < theirs["resident"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"momentum": 0.8}, 'tiny, batch 7: ".*" differs from PyTorch\'s by '),
        ({"lr": 1e-2}, "tiny, batch 7: the loss of step 1 differs from PyTorch's by "),
    ],
)
def test_steps_that_differ_are_not_timed(
    training: Any, monkeypatch: pytest.MonkeyPatch, mistake: dict[str, float], message: str
) -> None:
    optimizer, timed = torch.optim.SGD, []
    monkeypatch.setattr(torch.optim, "SGD", lambda values, **given: optimizer(values, **{**given, **mistake}))
    monkeypatch.setattr(benchmarking, "rounds", lambda *arguments, **named: timed.append(arguments))
    with pytest.raises(benchmarking.ResultsDifferError, match=message):
        training.run(0.0)
    assert timed == []


def test_batch_is_checked(training: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(capsys, "--batch", "0")
    assert "argument --batch: 0 is less than the minimum (1)" in capsys.readouterr().err
