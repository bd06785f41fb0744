# SPDX-License-Identifier: Apache-2.0
"""mpscnn.profile: the networks whose times it collects, plausible times, and unchanged results."""

from __future__ import annotations

import gc
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from mpscnn.profiling import Event
from network.graphs import residual
from support import held_queue, random, run_python

Make = Callable[..., NDArray[np.float32]]
X = (1, 8, 6, 4)


@pytest.fixture(autouse=True)
def _no_profile_is_left() -> Iterator[None]:
    yield
    with mpscnn.profile():  # RuntimeError if another profile is active
        pass


def pairs(events: list[Event]) -> dict[int, tuple[Event, Event]]:
    """Return (encode, execute) of each command buffer; check that each has one of both."""
    found: dict[int, dict[str, Event]] = {}
    for event in events:
        kinds = found.setdefault(event.command_buffer, {})
        assert event.kind not in kinds, f"two events of one kind: {event}"
        kinds[event.kind] = event
    assert all(set(kinds) == {"encode", "execute"} for kinds in found.values())
    return {number: (kinds["encode"], kinds["execute"]) for number, kinds in found.items()}


def test_each_kernel_of_a_network(net: mpscnn.Network, make_x: Make) -> None:
    with mpscnn.profile() as profile:
        net(make_x())
    steps = [(step["node"], step["kernel"]) for step in net._core.steps([(2, 9, 7, 3)])]
    for kind in ("encode", "execute"):
        assert [(event.name, event.kernel) for event in profile.events if event.kind == kind] == steps
    assert "head" in {name for name, _ in steps}


def test_a_command_buffer_as_a_whole(net: mpscnn.Network, make_x: Make) -> None:
    with mpscnn.profile(per_kernel=False) as profile:
        net(make_x())
    assert [(event.name, event.kernel, event.kind) for event in profile.events] == [
        ("Network", "", "encode"),
        ("Network", "", "execute"),
    ]


@pytest.mark.parametrize("per_kernel", [True, False])
def test_kernels_and_command_buffers_of_ones_own(per_kernel: bool) -> None:
    image = mpscnn.Image.from_array(random(X))
    with mpscnn.profile(per_kernel=per_kernel) as profile:
        mpscnn.NeuronReLU()(random(X))
        with mpscnn.CommandBuffer(label="mine") as commands:
            mpscnn.NeuronTanH().encode(commands, mpscnn.NeuronReLU().encode(commands, image, temporary=True))
    found = pairs(profile.events)
    assert sorted(found) == [1, 2]
    assert found[2][1].name == "mine"


@pytest.mark.parametrize("per_kernel", [True, False])
def test_times_are_in_order(net: mpscnn.Network, make_x: Make, per_kernel: bool) -> None:
    x, start = make_x(), time.monotonic()
    with mpscnn.profile(per_kernel=per_kernel) as profile:
        for _ in range(3):
            net(x)
    seconds = time.monotonic() - start
    events = profile.events
    assert [event.start for event in events] == sorted(event.start for event in events)
    for encode, execute in pairs(events).values():
        assert encode.duration >= 0
        assert encode.end <= execute.start, "it is encoded before it runs"
        assert 0 < execute.duration < seconds
    assert max(event.end for event in events) - min(event.start for event in events) <= seconds
    executions = [event for event in events if event.kind == "execute"]
    for one, next_one in itertools.pairwise(executions):
        assert one.end <= next_one.start, "one queue does one thing at a time"


def test_time_on_the_device_is_the_time_that_it_worked(net: mpscnn.Network) -> None:
    """A kernel with a thousand times the work takes longer."""
    graph = mpscnn.Graph()
    weight = np.ones((64, 64, 3, 3), np.float32)
    x = graph.input("x", channels=64)
    small = graph.add("PoolingMax", x, kernel_size=1, stride=16, name="small")
    graph.output(graph.add("Convolution", x, weight=weight, padding=1, name="large"), "large")
    graph.output(small, "small")
    net, x_array = mpscnn.Network(graph), np.ones((1, 96, 96, 64), np.float32)
    net(x_array)
    with mpscnn.profile() as profile:
        net(x_array)
    times = {event.name: event.duration for event in profile.events if event.kind == "execute"}
    assert times["large"] > times["small"]
    assert profile.table().splitlines()[1].startswith("large"), "the longest first"


@pytest.mark.parametrize("per_kernel", [True, False])
def test_numbers_are_the_same_under_a_profile(net: mpscnn.Network, make_x: Make, per_kernel: bool) -> None:
    for n, h, w in [(1, 9, 7), (3, 16, 5)]:
        x = make_x(n, h, w)
        expected = net(x)
        out = [np.full(one.shape, np.nan, np.float32) for one in expected]
        with mpscnn.profile(per_kernel=per_kernel):
            results = net(x)
            net(x, out=out)
            streamed = next(net.stream([x]))
        for one in (results, out, streamed):
            for a, b in zip(one, expected, strict=True):
                assert a.shape == b.shape
                assert np.abs(a - b).max() <= 2e-6 * np.abs(b).max()


def test_streams_are_collected(net: mpscnn.Network, make_x: Make) -> None:
    x = make_x()
    with mpscnn.profile(per_kernel=False) as profile:
        assert len(list(net.stream([x] * 5))) == 5
    assert len(pairs(profile.events)) == 5


def test_threads_have_numbers_of_their_own(net: mpscnn.Network, make_x: Make) -> None:
    x, together = make_x(), threading.Barrier(4)

    def work() -> None:
        together.wait(60)
        for _ in range(5):
            net(x)

    with mpscnn.profile(per_kernel=False) as profile:
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    found = pairs(profile.events)
    assert sorted(found) == list(range(1, 21))
    counts: dict[int, int] = {}
    for encode, execute in found.values():
        assert encode.thread == execute.thread
        counts[encode.thread] = counts.get(encode.thread, 0) + 1
    assert sorted(counts.values()) == [5, 5, 5, 5]


def test_only_what_is_inside_is_collected(net: mpscnn.Network, make_x: Make) -> None:
    x = make_x()
    net(x)
    profile = mpscnn.profile(per_kernel=False)
    assert profile.events == []
    net(x)
    with profile:
        net(x)
    net(x)
    assert len(profile.events) == 2
    with profile:  # resumes
        net(x)
        assert len(profile.events) == 4, "they are there while it collects"
    assert len(profile.events) == 4


def test_one_at_a_time(net: mpscnn.Network, make_x: Make) -> None:
    sentence = r"profile: another profile collects already; there is one at a time\."
    with mpscnn.profile(per_kernel=False) as outer:
        with pytest.raises(RuntimeError, match=sentence), mpscnn.profile():
            pass
        with pytest.raises(RuntimeError, match=sentence), outer:
            pass
        mpscnn.profile().__exit__(None, None, None)  # it has not begun
        net(make_x())
    assert len(outer.events) == 2, "others have not stopped it"


def test_an_exception_ends_it(net: mpscnn.Network) -> None:
    with pytest.raises(ValueError, match="number of channels"), mpscnn.profile():
        net(np.zeros((1, 5, 4, 4), np.float32))
    assert mpscnn.profile().events == []


def test_work_that_ends_after_the_profile(net: mpscnn.Network, make_x: Make) -> None:
    """Work committed inside a profile may complete after it."""
    with held_queue(net.device):
        with mpscnn.profile(per_kernel=False) as profile:
            call = net._submit(make_x())
        before = len(profile.events)
    assert before <= 1
    assert len(call.wait()) == 2
    del profile
    gc.collect()
    net(make_x())


def test_a_profile_that_is_dropped_in_the_middle() -> None:
    """Nothing can end the profile any more; the process continues and exits."""
    run_python(
        """
        import gc, numpy as np, mpscnn
        profile = mpscnn.profile().__enter__()
        del profile
        gc.collect()
        mpscnn.NeuronReLU()(np.ones((1, 4, 4, 4), np.float32))
        """
    )


def test_events_of_a_network_are_freed(net: mpscnn.Network, make_x: Make) -> None:
    x = make_x()
    with mpscnn.profile() as profile:
        for _ in range(20):
            net(x)
    assert len(profile.events) == 40 * len(net._core.steps([(2, 9, 7, 3)]))
    allocated = net.device.allocated_bytes
    for _ in range(5):
        with mpscnn.profile() as profile:
            net(x)
    assert net.device.allocated_bytes <= allocated


def traced(net: mpscnn.Network, x: NDArray[Any]) -> mpscnn.profile:
    with mpscnn.profile() as profile:
        net(x)
        worker = threading.Thread(target=net, args=(x,))
        worker.start()
        worker.join(60)
    return profile


def test_a_trace_in_chromes_format(net: mpscnn.Network, make_x: Make, tmp_path: Path) -> None:
    profile = traced(net, make_x())
    profile.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace == profile.trace()
    assert trace["displayTimeUnit"] == "ms"
    names = {one["tid"]: one["args"]["name"] for one in trace["traceEvents"] if one["ph"] == "M"}
    assert names == {0: "device", 1: "thread 1: encode", 2: "thread 2: encode"}
    complete = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    assert len(complete) + len(names) == len(trace["traceEvents"])
    assert len(complete) == len(profile.events)
    assert min(one["ts"] for one in complete) == 0
    for one, event in zip(complete, profile.events, strict=True):
        assert set(one) == {"ph", "pid", "tid", "ts", "dur", "name", "cat", "args"}
        assert one["pid"] == 1
        assert (one["tid"] == 0) == (event.kind == "execute")
        assert one["dur"] == pytest.approx(event.duration * 1e6)
        assert one["ts"] == pytest.approx((event.start - profile.events[0].start) * 1e6)
        assert (one["name"], one["cat"], one["args"]["kernel"]) == (event.name, event.kind, event.kernel)
    assert {one["tid"] for one in complete} == {0, 1, 2}


def test_an_empty_trace_and_table() -> None:
    profile = mpscnn.profile()
    assert [one["args"]["name"] for one in json.loads(json.dumps(profile.trace()))["traceEvents"]] == ["device"]
    assert len(profile.table().splitlines()) == 1


def test_a_table(make_x: Make) -> None:
    net = mpscnn.Network(residual())
    profile = traced(net, make_x())
    head, *lines = profile.table().splitlines()
    assert head.split() == ["name", "kernel", "calls", "ms", "share"]
    rows = [line.split() for line in lines]
    steps = {step["node"]: step["kernel"] for step in net._core.steps([(2, 9, 7, 3)])}
    assert {row[0]: row[1] for row in rows} == steps
    assert all(row[2] == "2" for row in rows)
    times = [float(row[3]) for row in rows]
    assert times == sorted(times, reverse=True)
    assert sum(float(row[4].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.1 * len(rows))
    total = sum(event.duration for event in profile.events if event.kind == "execute")
    assert sum(times) == pytest.approx(total * 1e3, abs=1e-3 * len(rows))


def test_a_command_buffer_without_a_label_is_called_so() -> None:
    with mpscnn.profile() as profile:
        mpscnn.NeuronReLU()(random(X))
    assert profile.table().splitlines()[1].startswith("command buffer")
    assert profile.trace()["traceEvents"][-1]["name"] == "command buffer"
