# SPDX-License-Identifier: Apache-2.0
"""net.stream: results in order, work in advance, and nothing lost after an exception."""

from __future__ import annotations

import dis
import gc
import itertools
import os
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from mpscnn.stream import Stream
from support import held_queue

Array = NDArray[np.float32]


@pytest.fixture
def double() -> mpscnn.Network:
    """2 x."""
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronLinear", graph.input("x", channels=4), a=2.0, b=0.0), "y")
    return mpscnn.Network(graph)


@pytest.fixture
def difference() -> mpscnn.Network:
    """a - b and a + b."""
    graph = mpscnn.Graph()
    a, b = graph.input("a", channels=4), graph.input("b", channels=4)
    graph.output(graph.add("Subtract", a, b), "difference")
    graph.output(graph.add("Add", a, b), "sum")
    return mpscnn.Network(graph)


def batch(value: float, n: int = 1) -> Array:
    return np.full((n, 3, 5, 4), value, np.float32)


def values(results: Any) -> list[float]:
    """Return the value that fills each result, divided by 2."""
    found = []
    for y in results:
        assert (y == y.flat[0]).all()
        found.append(float(y.flat[0]) / 2)
    return found


class Counted:
    """An iterator of batches that counts the batches taken."""

    def __init__(self, count: int) -> None:
        self.count, self.taken = count, 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> Array:
        if self.taken == self.count:
            raise StopIteration
        taken = batch(self.taken)
        self.taken += 1
        return taken  # no call since the batch was counted: Ctrl-C takes none


# ------------------------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize("in_flight", [1, 2, 3, 8, 100])
def test_results_come_in_the_order_of_the_batches(double: mpscnn.Network, in_flight: int) -> None:
    assert values(double.stream((batch(i) for i in range(40)), in_flight=in_flight)) == list(range(40))


def test_batches_of_different_sizes(double: mpscnn.Network) -> None:
    sizes = [1, 7, 2, 2, 16, 1]
    for n, y in zip(sizes, double.stream(batch(n, n) for n in sizes), strict=True):
        assert y.shape == (n, 3, 5, 4)
        assert (y == 2 * n).all()


def test_work_in_large_batches_stays_in_order(double: mpscnn.Network) -> None:
    """Long work before short work: the short one is not returned first."""
    batches = [batch(i, 2000 if i % 2 == 0 else 1) for i in range(10)]
    assert values(double.stream(batches, in_flight=4)) == list(range(10))


@pytest.mark.parametrize("source", [[], (), iter(()), (one for one in ())])
def test_nothing_comes_of_nothing(double: mpscnn.Network, source: Any) -> None:
    stream = double.stream(source)
    assert list(stream) == []
    assert list(stream) == []


def test_tuples_and_dicts_for_several_inputs(difference: mpscnn.Network) -> None:
    batches = [(batch(5), batch(3)), [batch(6), batch(3)], {"b": batch(3), "a": batch(7)}]
    results = list(difference.stream(batches))
    assert [(float(d.flat[0]), float(s.flat[0])) for d, s in results] == [(2, 8), (3, 9), (4, 10)]
    assert all(isinstance(result, tuple) for result in results)


def test_dicts_for_one_input(double: mpscnn.Network) -> None:
    assert values(double.stream([{"x": batch(3)}, batch(4)])) == [3, 4]


def test_an_array_is_its_images(double: mpscnn.Network) -> None:
    """Objects that are iterable through __getitem__ are accepted; their items are not batches of this network."""
    with pytest.raises(ValueError, match=r"x\.ndim \(3\) is not 4"):
        next(double.stream(batch(1, 3)))


# ----------------------------------------------------------------------------------------------------- back-pressure


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_how_far_the_iterable_is_ahead(double: mpscnn.Network, in_flight: int) -> None:
    source = Counted(20)
    stream = double.stream(source, in_flight=in_flight)
    assert source.taken == 0, "nothing is taken before the first result is asked for"
    for number, y in enumerate(stream):
        assert values([y]) == [number]
        assert source.taken == min(20, number + in_flight)


def test_that_much_is_at_work_at_once(double: mpscnn.Network) -> None:
    """After a blocked queue, next() waits, and in_flight batches have been submitted to the device."""
    source, results = Counted(10), []
    stream = double.stream(source, in_flight=3)
    consumer = threading.Thread(target=lambda: results.append(next(stream)))
    with held_queue(double.device):
        consumer.start()
        until(lambda: source.taken == 3)
        time.sleep(0.05)
        assert source.taken == 3
        assert not results
    consumer.join(60)
    assert values(results) == [0]


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


# -------------------------------------------------------------------------------------------------------- exceptions


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit, StopAsyncIteration])
@pytest.mark.parametrize("in_flight", [1, 3, 20])
def test_exceptions_of_the_iterable_come_after_its_results(
    double: mpscnn.Network, in_flight: int, kind: type[BaseException]
) -> None:
    def produce() -> Iterator[Array]:
        for i in range(6):
            yield batch(i)
        raise kind("after six")

    stream, results = double.stream(produce(), in_flight=in_flight), []
    with pytest.raises(kind, match="after six"):
        results.extend(values([y])[0] for y in stream)
    assert results == list(range(6))
    assert list(stream) == [], "it is raised once"


@pytest.mark.parametrize("in_flight", [1, 3, 20])
def test_a_wrong_batch_is_raised_in_its_place(double: mpscnn.Network, in_flight: int) -> None:
    batches: list[Any] = [batch(0), batch(1), np.zeros((1, 3, 5, 7), np.float32), batch(3), "four", batch(5)]
    stream, seen = double.stream(batches, in_flight=in_flight), []
    while True:
        try:
            seen.append(values([next(stream)])[0])
        except StopIteration:
            break
        except (TypeError, ValueError) as error:
            seen.append(str(error))
    assert [one for one in seen if isinstance(one, float)] == [0, 1, 3, 5]
    assert "number of channels (7) is not 4" in seen[2]
    assert "x (str) is not an array" in seen[4]


class FailingCore:
    """Every third call fails on the device, each time it is awaited."""

    def __init__(self, core: Any) -> None:
        self.core, self.count = core, itertools.count()

    def submit(self, *given: Any) -> Any:
        call = self.core.submit(*given)
        if next(self.count) % 3 != 1:
            return call

        def wait() -> Any:
            call.wait()
            raise RuntimeError("the device failed")

        return types.SimpleNamespace(wait=wait)


def test_a_device_that_fails_on_one_batch(double: mpscnn.Network) -> None:
    double._core = FailingCore(double._core)  # type: ignore[assignment]
    stream, seen = double.stream(batch(i) for i in range(7)), []
    while len(seen) < 20:
        try:
            seen.append(values([next(stream)])[0])
        except StopIteration:
            break
        except RuntimeError:
            seen.append(None)
    assert seen == [0, None, 2, 3, None, 5, 6]


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("source", [lambda: Counted(200), lambda: iter([batch(i) for i in range(200)])])
def test_ctrl_c_while_waiting_loses_nothing(double: mpscnn.Network, in_flight: int, source: Any) -> None:
    """Signals at many moments, in next() and in its callees; the iteration continues after each.

    Iterations are repeated until a signal came within one: on a busy machine the thread that sends them may wait for
    the GIL longer than one iteration takes.
    """
    stop = threading.Event()

    def disturb() -> None:
        while not stop.wait(0.0007):
            os.kill(os.getpid(), signal.SIGINT)

    def interrupted(_: int, frame: types.FrameType | None) -> None:
        # Not in this function: after next() returned, before `y` is assigned, the result would be lost by the test.
        if interruptible and frame is not None and frame.f_code is not own:
            raise KeyboardInterrupt

    own = sys._getframe().f_code

    before = signal.signal(signal.SIGINT, interrupted)
    interruptible = False
    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        caught, iterations = 0, 0
        while caught == 0 and iterations < 1000:
            iterations += 1
            results: list[Any] = []
            stream = double.stream(source(), in_flight=in_flight)
            while True:
                try:
                    interruptible = True
                    y = next(stream)
                    interruptible = False
                except KeyboardInterrupt:
                    interruptible = False
                    caught += 1
                except StopIteration:
                    break
                else:
                    results.append(values([y])[0])
            interruptible = False
            assert results == list(range(200))
    finally:
        interruptible = False
        stop.set()
        disturber.join()
        signal.signal(signal.SIGINT, before)
    assert caught > 0, f"no signal came in {iterations} iterations"


def next_interrupted(stream: Stream, at: int) -> Any:
    """Call next(stream) with a KeyboardInterrupt at the `at`th place where Python handles signals, if there is one.

    These are after calls and jumps, and at the start of functions (CHECK_EVAL_BREAKER in CPython's ceval.c).
    """
    places, before = itertools.count(), {}

    def trace(frame: types.FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != sys.modules[Stream.__module__].__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last = before.get(frame)
            before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if last is not None and last.startswith(("CALL", "RESUME", "JUMP")) and next(places) == at:
                raise KeyboardInterrupt
        return trace

    outer = sys.gettrace()
    # Python 3.12 sends opcode events only if some frame requests them before settrace() is called (gh-103615).
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        return next(stream)
    finally:
        sys.settrace(outer)


@pytest.mark.parametrize("in_flight", [1, 3])
def test_an_interrupt_at_any_place_loses_nothing(double: mpscnn.Network, in_flight: int) -> None:
    at, was_interrupted = 0, True
    while was_interrupted:
        shown: list[int] = []
        stream = double.stream(
            map(batch, range(6)),
            in_flight=in_flight,
            progress=lambda done, _, shown=shown: shown.append(done),  # type: ignore[misc]
        )
        seen = values([next(stream)])
        try:
            seen += values([next_interrupted(stream, at)])
            was_interrupted = False
        except KeyboardInterrupt:
            pass
        seen += values(stream)
        assert seen == list(range(6)), f"place {at}"
        assert shown[-1] == 6
        assert len(shown) >= 5  # one may have been interrupted
        at += 1
    assert at > 10


def test_exceptions_of_progress_lose_nothing(double: mpscnn.Network) -> None:
    shown: list[int] = []

    def progress(done: int, total: int | None) -> None:
        shown.append(done)
        if done == 3:
            raise ZeroDivisionError("third")

    stream = double.stream([batch(i) for i in range(5)], progress=progress)
    assert values([next(stream), next(stream)]) == [0, 1]
    with pytest.raises(ZeroDivisionError, match="third"):
        next(stream)
    assert values(stream) == [2, 3, 4]
    assert shown == [1, 2, 3, 4, 5]


# ------------------------------------------------------------------------------------------------------------- ends


def test_close_waits_and_takes_no_more(double: mpscnn.Network) -> None:
    source = Counted(10)
    stream = double.stream(source, in_flight=3)
    next(stream)
    with held_queue(double.device):
        stream._fill()
        calls = list(stream._calls)
        assert len(calls) == 3
        closer = threading.Thread(target=stream.close)
        closer.start()
        closer.join(0.05)
        assert closer.is_alive(), "the device has not done the work"
    closer.join(60)
    assert all(call.is_done for call in calls)
    assert list(stream) == []
    assert source.taken == 4
    stream.close()


def test_a_context_manager_waits(double: mpscnn.Network) -> None:
    with double.stream(Counted(10), in_flight=4) as stream:
        next(stream)
        calls = list(stream._calls)
    assert [call.is_done for call in calls] == [True] * 3


def test_close_drops_the_errors_of_dropped_batches(double: mpscnn.Network) -> None:
    with double.stream([batch(0), "one", batch(2)]) as stream:
        assert values([next(stream)]) == [0]
    assert list(stream) == []


def test_a_stream_that_is_dropped_frees_its_batches(double: mpscnn.Network) -> None:
    batches = [batch(i) for i in range(5)]
    stream = double.stream(iter(batches))
    y = next(stream)
    gone = [weakref.ref(one) for one in batches]
    kept = weakref.ref(y)
    del stream, batches, y
    gc.collect()
    double(batch(0))  # queued after the work in progress
    gc.collect()
    assert [one() for one in gone] == [None] * 5
    assert kept() is None


def test_results_stay_when_the_stream_goes_on(double: mpscnn.Network) -> None:
    results = list(double.stream([batch(i) for i in range(30)]))
    assert values(results) == list(range(30))
    assert len({y.__array_interface__["data"][0] for y in results}) == 30


# --------------------------------------------------------------------------------------------------------- progress


def test_progress_is_told_the_number_and_the_total(double: mpscnn.Network) -> None:
    told: list[tuple[int, int | None]] = []
    list(double.stream([batch(i) for i in range(3)], progress=lambda *given: told.append(given)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    told.clear()
    list(double.stream((batch(i) for i in range(3)), progress=lambda *given: told.append(given)))
    assert told == [(1, None), (2, None), (3, None)]


def test_an_unknown_length(double: mpscnn.Network) -> None:
    class Endless:
        def __len__(self) -> int:
            raise TypeError("has no length")

        def __iter__(self) -> Iterator[Array]:
            return iter([batch(1)])

    told: list[int | None] = []
    list(double.stream(Endless(), progress=lambda done, total: told.append(total)))
    assert told == [None]


@pytest.mark.parametrize("ended_by", ["the end", "close"])
def test_a_bar_of_tqdm(double: mpscnn.Network, monkeypatch: pytest.MonkeyPatch, ended_by: str) -> None:
    pytest.importorskip("tqdm")
    import tqdm.auto

    bars: list[Any] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            self.options, self.count, self.closed = options, 0, False
            bars.append(self)

        def update(self, more: int = 1) -> None:
            self.count += more

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    stream = double.stream([batch(i) for i in range(4)], progress=True)
    for _ in range(4):
        next(stream)
    (bar,) = bars
    assert (bar.options, bar.count, bar.closed) == ({"total": 4, "unit": "batch"}, 4, False)
    if ended_by == "close":
        stream.close()
    else:
        assert list(stream) == []
    assert bar.closed


def test_a_bar_is_written(double: mpscnn.Network, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    assert len(list(double.stream([batch(0)] * 3, progress=True))) == 3
    assert "3/3" in capfd.readouterr().err


def test_without_tqdm_the_package_is_named(double: mpscnn.Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(mpscnn.MissingPackageError, match=r"progress=True needs the package tqdm.*: pip install tqdm\."):
        double.stream([], progress=True)


# ---------------------------------------------------------------------------------------------------------- threads


def test_made_on_one_thread_and_used_on_another(double: mpscnn.Network) -> None:
    stream, results = double.stream(Counted(20)), []
    worker = threading.Thread(target=lambda: results.extend(stream))
    worker.start()
    worker.join(60)
    assert values(results) == list(range(20))


def test_one_thread_at_a_time(double: mpscnn.Network) -> None:
    stream, results = double.stream(Counted(5)), []
    worker = threading.Thread(target=lambda: results.extend(stream))
    with held_queue(double.device):
        worker.start()
        until(lambda: len(stream._calls) == 4)
        for use in (lambda: next(stream), stream.close):
            with pytest.raises(RuntimeError, match=r"Stream: another thread, or the iterable itself, is in next\(\)"):
                use()
    worker.join(60)
    assert values(results) == list(range(5))


def test_an_iterable_that_reads_its_own_results(double: mpscnn.Network) -> None:
    def produce() -> Iterator[Array]:
        yield batch(0)
        yield next(stream)

    stream = double.stream(produce())
    assert values([next(stream)]) == [0]
    with pytest.raises(RuntimeError, match="one at a time"):
        next(stream)


def test_two_streams_of_one_network(double: mpscnn.Network) -> None:
    for a, b in zip(double.stream(map(batch, range(20))), double.stream(map(batch, range(20, 40))), strict=True):
        assert values([b])[0] == values([a])[0] + 20


def test_a_network_after_a_network(double: mpscnn.Network) -> None:
    again = double.stream(double.stream(map(batch, range(10))))
    assert values(again) == [2 * i for i in range(10)]
