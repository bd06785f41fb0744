# SPDX-License-Identifier: Apache-2.0
"""Choices between the CPU engine's implementations by their times: Network.tune, and the file that keeps them.

cpp_engine_choices, which test_cpp.py runs too, tests the rules and the results of each implementation with made-up
times.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mpscnn
from mpscnn import tuning
from support import ENGINE, PROCESSOR, only_openmps

ROOT = Path(__file__).resolve().parent.parent
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
CALLS = 20

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="openmps is Linux only"),
    only_openmps("the implementations are the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu"), reason="the implementations are the CPU engine's"),
]
in_program = pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test")


# ---- the file


def environment(cache: Path, **more: str) -> dict[str, str]:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("MPSCNN_")}
    return settings | {"XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "2"} | more


def start(mode: str, first: int, cache: Path, **more: str) -> subprocess.Popen[str]:
    assert FOLDER is not None
    command = [str(ROOT / FOLDER / "cpp_engine_choices"), mode, str(first), str(CALLS)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment(cache, **more), **pipes)


def program(mode: str, cache: Path, **more: str) -> tuple[str, str]:
    """Return what the program prints on stdout and stderr."""
    process = start(mode, 1000, cache, **more)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    return out, err


def in_use(cache: Path, **more: str) -> int:
    """Return how many of the made-up choices a later process uses."""
    found, total = re.fullmatch(r"(\d+) of (\d+)\n", program("run", cache, **more)[0]).groups()
    assert int(total) >= int(found)
    return int(found)


def files(cache: Path) -> list[Path]:
    return sorted((cache / "mpscnn" / "cpu").iterdir())


@in_program
def test_later_processes_use_the_choices(tmp_path: Path) -> None:
    assert in_use(tmp_path) == 0
    assert not (tmp_path / "mpscnn").exists()  # nothing is written without tuning
    out, _ = program("keep", tmp_path)
    assert f"file\t{tmp_path}/mpscnn/cpu\n" in out
    (file,) = files(tmp_path)
    assert re.fullmatch(r"choices-[0-9a-f]{32}", file.name)
    assert in_use(tmp_path) == CALLS
    assert in_use(tmp_path, MPSCNN_TUNED="0") == 0
    assert in_use(tmp_path, MPSCNN_IMPL="loop") == 0


@in_program
@pytest.mark.skipif("avx2" not in PROCESSOR, reason="Winograd's convolution needs AVX2")
def test_the_trace_tells_what_times_chose(tmp_path: Path) -> None:
    before = program("run", tmp_path, MPSCNN_TRACE="dispatch")[1]
    assert "chosen by times" not in before
    own, second = program("keep", tmp_path)[0].split()[:2]
    assert f"mpscnn dispatch: convolve: {own}\n" in before
    after = program("run", tmp_path, MPSCNN_TRACE="dispatch")[1].splitlines()
    assert after[1] == f"mpscnn dispatch: convolve, chosen by times: {second}"
    # A model of times does not overrule the choice.
    pointwise = "mpscnn dispatch: convolve, chosen by times: pointwise"
    assert after[3] == pointwise
    # A choice that declines: the list decides.
    after = after[[line.startswith("mpscnn dispatch: ConvProblem") for line in after].index(True, 3) :]
    assert after[1].startswith("mpscnn dispatch: convolve, chosen by times: taps declines: ")
    assert after[-1] == "mpscnn dispatch: convolve: primitive"


@in_program
@pytest.mark.skipif("avx2" not in PROCESSOR, reason="oneDNN is held to AVX2")
def test_choices_of_another_processor_are_not_used(tmp_path: Path) -> None:
    program("keep", tmp_path, ONEDNN_MAX_CPU_ISA="SSE41")
    assert in_use(tmp_path) == 0
    program("keep", tmp_path)
    assert len(files(tmp_path)) == 2
    assert in_use(tmp_path) == in_use(tmp_path, ONEDNN_MAX_CPU_ISA="SSE41") == CALLS


@in_program
def test_a_damaged_file_is_ignored_and_replaced(tmp_path: Path) -> None:
    program("keep", tmp_path)
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole + b"\n", whole.replace(b"primitive", b"primitivf"), b"\0" * len(whole)):
        file.write_bytes(damaged)
        assert in_use(tmp_path) == 0
    program("keep", tmp_path)
    assert file.read_bytes() != damaged
    assert in_use(tmp_path) == CALLS


@in_program
def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "mpscnn").mkdir()
    (tmp_path / "mpscnn" / "cpu").write_text("a file where the folder should be")
    out, _ = program("keep", tmp_path)
    assert "file\t\n" in out
    assert in_use(tmp_path) == 0


@in_program
def test_processes_that_write_at_once(tmp_path: Path) -> None:
    """None of them loses the choices of another."""
    processes = [start("keep", 10_000 * (1 + number), tmp_path) for number in range(8)]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, out + err
    assert [file.name.count(".") for file in files(tmp_path)] == [0]  # no partial file is left
    for number in range(8):
        out, _ = start("run", 10_000 * (1 + number), tmp_path).communicate(timeout=60)
        assert out == f"{CALLS} of {8 * CALLS + (3 if 'avx2' in PROCESSOR else 2)}\n"


@in_program
@pytest.mark.parametrize(
    ("setting", "reason"), [("MPSCNN_TUNED=0", "MPSCNN_TUNED is 0"), ("MPSCNN_IMPL=loop", "MPSCNN_IMPL is set")]
)
def test_settings_that_exclude_choices(setting: str, reason: str, tmp_path: Path) -> None:
    name, _, value = setting.partition("=")
    assert program("keep", tmp_path, **{name: value})[0] == reason + "\n"
    assert not (tmp_path / "mpscnn").exists()


# ---- Network.tune


def small_network() -> mpscnn.Network:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3, height=8, width=8, layout="NCHW")
    graph.output(graph.add("Convolution", x, weight=np.ones((4, 3, 3, 3), np.float32)), "y", layout="NCHW")
    return mpscnn.Network(graph)


NETWORK = """
import json, sys, numpy as np, mpscnn
from mpscnn import tuning

def random(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)

graph = mpscnn.Graph()
x = graph.input("x", channels=16, layout="NCHW")
y = graph.add("Convolution", x, weight=random(32, 16, 3, 3), padding=1)
y = graph.add("Convolution", graph.add("NeuronReLU", y), weight=random(64, 32, 1, 1))
y = graph.add("Convolution", y, weight=random(64, 1, 3, 3), padding=1, groups=64)
y = graph.add("Convolution", y, weight=random(32, 64, 1, 1))
z = graph.add("Convolution", graph.add("NeuronReLU", y), weight=random(32, 32, 3, 3), padding=1)
graph.output(graph.add("Add", y, z), "y", layout="NCHW")
network = mpscnn.Network(graph, allow_reduced_precision="reduced" in sys.argv)
image = random(2, 16, 14, 15)
"""


def run(code: str, cache: Path, *arguments: str, **more: str) -> str:
    command = [sys.executable, "-c", NETWORK + code, *arguments]
    done = subprocess.run(
        command, env=environment(cache, **more), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("precision", ["exact", "reduced"])
def test_tune(precision: str, tmp_path: Path) -> None:
    """Results stay what they were, for all choices; the list says what was timed."""
    tolerance = 1e-5 if precision == "exact" else 0.02
    code = f"""
before = network(image)
progress = []
found = network.tune(image.shape, rounds=3, progress=lambda *counts: progress.append(counts))
after = network(image)
assert np.abs(after - before).max() <= {tolerance} * np.abs(before).max()
assert progress[-1] == (3, 3) and all(total == 3 for _, total in progress)
assert tuning.choices() == len(found.changed)
for call in found:
    assert call.kind in ("convolve", "chain") and {{call.model, call.chosen}} <= set(call.seconds)
    assert all(0 < seconds < 10 for seconds in call.seconds.values()), call
    assert call.chosen == call.model or call.ratio <= 0.95
if found.network_seconds:
    assert bool(found.changed) == (found.network_seconds[1] <= 0.99 * found.network_seconds[0])
assert found.file is not None
assert len(str(found).splitlines()) == len(found) + 2 and "</table>" in found._repr_html_()
json.dumps(found.to_dict())
print("\\n".join(call.description for call in found))
"""
    described = run(code, tmp_path, precision).splitlines()
    ending = "" if precision == "exact" or "avx512_bf16" not in PROCESSOR else ", reduced precision"
    assert any(re.match(r"2x14x15x16 -> 2x14x15x32, 3x3(, bfloat16 images)?" + ending, line) for line in described)
    assert any(re.search(r"2x14x15x32 -> 2x14x15x32, 3x3, sum", line) for line in described)


def test_calls_during_tuning_are_right(tmp_path: Path) -> None:
    """Other threads may use the network meanwhile."""
    run(
        """
import threading
before, wrong, ended = network(image), [], threading.Event()

def call():
    while not ended.is_set():
        wrong.append(np.abs(network(image) - before).max() > 1e-5 * np.abs(before).max())

threads = [threading.Thread(target=call) for _ in range(2)]
[thread.start() for thread in threads]
network.tune(image.shape, rounds=5)
ended.set()
[thread.join() for thread in threads]
assert len(wrong) > 5 and not any(wrong)
""",
        tmp_path,
    )


def test_an_interrupted_tuning_changes_nothing(tmp_path: Path) -> None:
    run(
        """
def progress(*counts):
    raise KeyboardInterrupt

try:
    network.tune(image.shape, rounds=3, progress=progress)
except KeyboardInterrupt:
    pass
else:
    raise AssertionError
assert tuning.choices() == 0
network.tune(image.shape, rounds=1)  # it has ended
""",
        tmp_path,
    )


def test_two_at_once(tmp_path: Path) -> None:
    run(
        """
def progress(*counts):
    try:
        network.tune(image.shape)
    except RuntimeError as error:
        assert str(error) == "tune: another call of tune is under way.", error
    else:
        raise AssertionError

network.tune(image.shape, rounds=1, progress=progress)
""",
        tmp_path,
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("MPSCNN_TUNED=0", "tune: MPSCNN_TUNED is 0."),
        ("MPSCNN_IMPL=primitive", "tune: MPSCNN_IMPL is set."),
    ],
)
def test_settings_are_errors(setting: str, message: str, tmp_path: Path) -> None:
    name, _, value = setting.partition("=")
    code = "try:\n    network.tune(image.shape)\nexcept RuntimeError as error:\n    print(error)"
    assert run(code, tmp_path, **{name: value}) == message + "\n"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rounds": 0}, ValueError, r"rounds \(0\) is less than the minimum \(1\)"),
        ({"rounds": 1.5}, TypeError, r"rounds \(float\)"),
        ({"input_shapes": (1, 4, 8, 8)}, ValueError, "channels"),
        ({"progress": 3}, TypeError, r"progress \(int\)"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        small_network().tune(**arguments)


@pytest.mark.parametrize(("ratio", "outcome"), [(0.98, tuning._KEEP_FASTEST), (0.995, tuning._KEEP_UNCHANGED)])
def test_choices_are_kept_if_the_network_is_faster(ratio: float, outcome: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stops = []

    class Library:
        """All calls have been timed, and one has another choice."""

        def openmps_tune_start(self) -> None:
            pass

        def openmps_tune_rounds(self) -> int:
            return 1000

        def openmps_tune_begin(self, kind: int) -> int:
            return int(kind == tuning._FASTEST)

        def openmps_tune_stop(self, outcome: int) -> bytes:
            stops.append(outcome)
            return b"file\t\nconvolve\tcall\tprimitive\ttaps\tprimitive=2\ttaps=1\n"

    monkeypatch.setattr(tuning, "_library", Library)
    monkeypatch.setattr(tuning, "_seconds", lambda *given: ratio if given[-1] == tuning._FASTEST else 1.0)
    found = small_network().tune(rounds=3)
    assert stops[0] == outcome
    assert found == [tuning.TimedCall("convolve", "call", "primitive", "taps", {"primitive": 2.0, "taps": 1.0})]
    assert found.network_seconds == (1.0, ratio)
    assert found.file is None


def test_tuning_as_text() -> None:
    calls = [
        tuning.TimedCall(
            "convolve", "1x7x7x8 -> 1x7x7x8, 1x1", "primitive", "pointwise", {"primitive": 2e-3, "pointwise": 1e-3}
        ),
        tuning.TimedCall("convolve", "other", "taps", "taps", {"taps": 3e-3, "primitive": 4e-3}),
    ]
    found = tuning.Tuning(calls, None, (2.0, 1.5))
    assert found.changed == calls[:1]
    assert [line.split() for line in str(found).splitlines()[2:]] == [
        ["1x7x7x8", "->", "1x7x7x8,", "1x1", "primitive", "pointwise", "2.000", "1.000", "0.50"],
        ["other", "taps", "primitive", "4.000", "3.000", "3.000", "1.00"],
    ]
    assert found.to_dict()["network_seconds"] == (2.0, 1.5)
    assert found.to_dict()["file"] is None
