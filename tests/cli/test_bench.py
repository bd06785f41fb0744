# SPDX-License-Identifier: Apache-2.0
"""mpscnn bench and trace, and the module mpscnn.benchmarking."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mpscnn import benchmarking
from mpscnn.benchmarking import Contestant, ResultsDifferError, compare, interleaved, rounds

from .conftest import normal


def test_alone(run, classifier: Path) -> None:
    ran = run("bench", classifier, "--seconds", 0, "--batch", "1,3", "--json")
    assert ran.status == 0
    assert [one["batch"] for one in ran.json["comparisons"]] == [1, 3]
    for one in ran.json["comparisons"]:
        (ours,) = one["measured"]
        assert (ours["name"], ours["ratio"], ours["difference"]) == ("mpscnn", 1, 0)
        assert 0 < ours["least"] <= ours["seconds"] <= ours["upper_quartile"] < 10
        assert ours["images_per_second"] == pytest.approx(one["batch"] / ours["seconds"])
    assert ran.json["machine"]["cpus"] >= 1


@pytest.mark.parametrize("peer", ["onnxruntime", "openvino"])
def test_beside_others(run, classifier: Path, peer: str) -> None:
    pytest.importorskip(peer)
    ran = run("bench", classifier, "--seconds", 0, "--against", peer, "--json")
    assert ran.status == 0
    ours, theirs = ran.json["comparisons"][0]["measured"]
    assert theirs["name"] == peer
    assert theirs["least"] / ours["upper_quartile"] / 100 < theirs["ratio"] < 100 * theirs["seconds"] / ours["least"]
    assert 0 <= theirs["difference"] < 1e-4
    assert ran.json["comparisons"][0]["absent"] == {}


def test_who_is_not_installed_is_named(run, classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    ran = run("bench", classifier, "--seconds", 0, "--against", "openvino", "--json")
    assert ran.status == 0
    assert ran.json["comparisons"][0]["absent"] == {
        "openvino": "OpenVINO needs the package openvino, which is not installed: pip install openvino."
    }
    assert "without openvino: OpenVINO needs the package" in ran.message


def test_reduced_precision_is_one_more(run, classifier: Path) -> None:
    ran = run("bench", classifier, "--seconds", 0, "--reduced-precision", "--json")
    assert [one["name"] for one in ran.json["comparisons"][0]["measured"]] == ["mpscnn", "mpscnn, reduced"]


def test_as_text_and_as_a_picture(run, classifier: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = run("bench", classifier, "--seconds", 0, "--batch", "2", "--plot", tmp_path / "times.svg")
    assert ran.status == 0
    assert "images/s" in ran.out
    assert "<svg" in (tmp_path / "times.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "one"], '"one" is not whole numbers'),
        (["--batch", "0"], "0 is less than the minimum (1)"),
        (["--against", "caffe"], '"caffe" is not one of torch, onnxruntime, openvino'),
        (["--against", "torch"], "torch needs a module"),
        (["--seconds=-1"], "-1.0 is less than the minimum (0)"),
    ],
)
def test_wrong_use(run, classifier: Path, options: list[str], message: str) -> None:
    ran = run("bench", classifier, *options)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.message


def contestant(name: str, value: float, precision: str = "float32") -> Contestant:
    return Contestant(name, "1", precision, lambda: [np.full((2, 3), value, np.float32)])


def test_results_are_compared_first() -> None:
    with pytest.raises(
        ResultsDifferError, match=r"net, batch 2: results of other differ from those of ours by 5\.0e-02"
    ):
        compare("net", 2, [contestant("ours", 1.0), contestant("other", 1.05)], 0)
    reduced = compare("net", 2, [contestant("ours", 1.0), contestant("other", 1.05, "bfloat16")], 0)
    assert reduced.measured[1].difference == pytest.approx(0.05)
    with pytest.raises(ResultsDifferError):
        compare("net", 2, [contestant("ours", 1.0), contestant("other", float("nan"))], 0)


def test_results_that_differ_are_one_sentence(run, classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("mpscnn.benchmarking.TOLERANCE", 0.0)
    ran = run("bench", classifier, "--batch", 3, "--seconds", 0, "--against", "onnxruntime", "--json")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("mpscnn: classifier.onnx, batch 3: results of onnxruntime differ from those of mpscnn by")


def test_rounds_are_interleaved() -> None:
    order: list[str] = []
    found = rounds({name: lambda name=name: order.append(name) or time.sleep(3e-3) for name in "ab"}, 0)
    assert {len(times) for times in found.values()} == {9}
    measured = order[8:]  # after twice two calls each that estimate the duration
    assert [set(measured[i : i + 4]) for i in range(0, 36, 4)] == [{"a", "b"}] * 9
    assert [measured[i] == measured[i + 1] for i in range(0, 36, 2)] == [
        True
    ] * 18  # a warm-up call, then a measured one


@pytest.mark.parametrize(("spins", "lasts"), [(0.0, 0.01), (0.008, 0.0175), (0.04, 0.0475), (10.0, 0.2)])
def test_a_pause_lasts_while_threads_spin(monkeypatch: pytest.MonkeyPatch, spins: float, lasts: float) -> None:
    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(benchmarking, "time", clock)
    monkeypatch.setattr(benchmarking, "_others_run", lambda: clock.now < spins)
    benchmarking.pause()
    assert clock.now == pytest.approx(lasts, abs=1e-3)


def test_networks_are_compared_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"ours": [1.0, 4.0, 5.0], "other": [1.0, 4.0, 2.0]}
    monkeypatch.setattr(benchmarking, "rounds", lambda *_, **__: times)
    _, other = compare("net", 2, [contestant("ours", 1.0), contestant("other", 1.0)], 0).measured
    assert (other.seconds, other.ratio, other.least) == (2.0, 1.0, 1.0)


def test_medians_and_least() -> None:
    times = [0.02] * 4 + [seconds for nap in (90, 30, 120, 60, 300, 91, 92, 40, 50) for seconds in (0, nap * 1e-3)]

    def naps() -> dict[str, Callable[[], None]]:
        left = iter(times)
        return {"a": lambda: time.sleep(next(left))}

    assert 0.09 <= interleaved(naps(), 0)["a"] < 0.12
    assert 0.03 <= interleaved(naps(), 0, best=True)["a"] < 0.06


# ---- trace


def test_trace(run, classifier: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    ran = run("trace", classifier, "-o", file, "--runs", 2, "--json")
    assert ran.status == 0
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
    kernels = ["b_node", "c_node", "e_node", "f_node", "f_node_2", "y_node"]
    for kind in ("encode", "execute"):
        assert sorted(event["name"] for event in events if event["cat"] == kind) == sorted(2 * kernels)
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events)
    assert {row["name"] for row in ran.json["kernels"]} == set(kernels)
    assert all(row["calls"] == 2 for row in ran.json["kernels"])


def test_trace_of_the_whole(run, classifier: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    ran = run("trace", classifier, "-o", file, "--whole")
    assert ran.status == 0
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
    assert sorted(event["cat"] for event in events) == ["encode", "execute"]


def test_trace_into_a_folder_that_is_not_there(run, classifier: Path, tmp_path: Path) -> None:
    ran = run("trace", classifier, "-o", tmp_path / "none" / "trace.json")
    assert (ran.status, ran.out) == (1, "")
    assert "none/trace.json" in ran.err


def test_inputs_are_seeded() -> None:
    from mpscnn.cli.models import random_arrays

    first, again, other = (random_arrays({"x": (1, 2, 3, 4)}, seed)["x"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0
    assert first.dtype == normal(0, 1).dtype
