# SPDX-License-Identifier: Apache-2.0
"""net.apredict: correct results for each request, a bounded queue, cancellation, loops that start and end."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from network.graphs import residual
from support import held_queue


class Watched:
    """The core of a network that counts calls submitted and not completed."""

    def __init__(self, core: Any) -> None:
        self.core, self.lock = core, threading.Lock()
        self.at_work = self.most = self.submitted = 0
        self.order: list[float] = []

    def submit(self, arrays: Any, outs: Any, *rest: Any) -> Any:
        *boundary, handler = rest

        def completed() -> None:
            with self.lock:
                self.at_work -= 1
            handler()

        with self.lock:
            self.submitted += 1
            self.at_work += 1
            self.most = max(self.most, self.at_work)
        try:
            call = self.core.submit(arrays, outs, *boundary, completed)
        except BaseException:
            with self.lock:
                self.at_work -= 1
            raise
        self.order.append(float(np.asarray(arrays[0]).flat[0]))
        return call

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)


@pytest.fixture
def double() -> Iterator[mpscnn.Network]:
    """2 x, with a Watched core."""
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronLinear", graph.input("x", channels=4), a=2.0, b=0.0), "y")
    net = mpscnn.Network(graph)
    net._core = Watched(net._core)  # type: ignore[assignment]
    yield net
    gc.collect()  # exceptions hold the frames of requests
    assert net._turns == {}, "nobody waits any more, and no loop is kept"


def watched(net: mpscnn.Network) -> Watched:
    assert isinstance(net._core, Watched)
    return net._core


def batch(value: float, n: int = 1) -> NDArray[np.float32]:
    return np.full((n, 3, 5, 4), value, np.float32)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """asyncio.run() with a timeout for requests that wait for each other."""

    async def limited() -> Any:
        return await asyncio.wait_for(main, 60)

    return asyncio.run(limited())


async def until(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.001)


# -------------------------------------------------------------------------------------------------- many requests


def test_a_thousand_requests(double: mpscnn.Network) -> None:
    finished: list[int] = []

    async def request(i: int) -> NDArray[Any]:
        y = await double.apredict(batch(i, 1 + i % 3))
        finished.append(i)
        return y

    async def main() -> list[NDArray[Any]]:
        return await asyncio.gather(*(request(i) for i in range(1000)))

    results = run(main())
    for i, y in enumerate(results):
        assert y.shape == (1 + i % 3, 3, 5, 4)
        assert (y == 2 * i).all()
    assert watched(double).order == list(range(1000)), "first come, first served"
    assert finished == list(range(1000))
    assert watched(double).submitted == 1000


def test_never_more_than_four_at_work(double: mpscnn.Network) -> None:
    async def main() -> None:
        with held_queue(double.device) as gate:
            requests = [asyncio.ensure_future(double.apredict(batch(i))) for i in range(30)]
            await until(lambda: watched(double).at_work == 4)
            await asyncio.sleep(0.02)
            assert watched(double).submitted == 4
            gate.set()
            await asyncio.gather(*requests)

    run(main())
    assert watched(double).most == 4
    assert watched(double).submitted == 30


def test_the_event_loop_goes_on(double: mpscnn.Network) -> None:
    async def main() -> int:
        ticks = 0
        with held_queue(double.device) as gate:
            request = asyncio.ensure_future(double.apredict(batch(3)))
            for _ in range(20):
                await asyncio.sleep(0.001)
                ticks += 1
            assert not request.done()
            gate.set()
            assert (await request == 6).all()
        return ticks

    assert run(main()) == 20


def test_as_the_call_does() -> None:
    net = mpscnn.Network(residual())
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 7)).astype(np.float32)

    async def main() -> Any:
        return await net.apredict(x), await net.apredict(x=x), await net.apredict(x[:0])

    by_position, by_name, none = run(main())
    for result in (by_position, by_name):
        assert all(np.array_equal(a, b) for a, b in zip(result, net(x), strict=True))
    assert [one.shape for one in none] == [(0, 10, 9, 7), (0, 9, 7, 16)]


def test_out(double: mpscnn.Network) -> None:
    out = np.full((2, 3, 5, 4), np.nan, np.float32)
    half = np.zeros((2, 3, 5, 4), np.float16)

    async def main() -> None:
        assert await double.apredict(batch(4, 2), out=out) is out
        assert await double.apredict(batch(5, 2), out=[half]) is half

    run(main())
    assert (out == 8).all()
    assert (half == 10).all()


# -------------------------------------------------------------------------------------------------- cancellation


def test_cancelled_before_its_turn(double: mpscnn.Network) -> None:
    """A cancelled request is never run; the next one takes its turn."""

    async def main() -> list[Any]:
        with held_queue(double.device) as gate:
            requests = [asyncio.ensure_future(double.apredict(batch(i))) for i in range(10)]
            await until(lambda: watched(double).at_work == 4)
            for i in (5, 6, 9):
                requests[i].cancel()
            await asyncio.sleep(0)
            gate.set()
            return await asyncio.gather(*requests, return_exceptions=True)

    results = run(main())
    for i, result in enumerate(results):
        if i in (5, 6, 9):
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert (result == 2 * i).all()
    assert watched(double).order == [0, 1, 2, 3, 4, 7, 8]


def test_cancelled_during_its_turn(double: mpscnn.Network) -> None:
    """The work continues, its place is free afterwards, and no other request gets its result."""
    out = np.zeros((1, 3, 5, 4), np.float32)

    async def main() -> list[Any]:
        with held_queue(double.device) as gate:
            first = asyncio.ensure_future(double.apredict(batch(100), out=out))
            requests = [asyncio.ensure_future(double.apredict(batch(i))) for i in range(8)]
            await until(lambda: watched(double).at_work == 4)
            first.cancel()
            requests[1].cancel()
            await asyncio.sleep(0.01)
            assert first.cancelled()
            assert watched(double).submitted == 4, "its place is taken until the device is done"
            gate.set()
            return await asyncio.gather(*requests, return_exceptions=True)

    results = run(main())
    assert isinstance(results[1], asyncio.CancelledError)
    assert all((y == 2 * i).all() for i, y in enumerate(results) if i != 1)
    assert watched(double).submitted == 9
    assert (out == 200).all()
    assert watched(double).at_work == 0


def test_time_limits(double: mpscnn.Network) -> None:
    async def main() -> None:
        with held_queue(double.device) as gate:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(double.apredict(batch(1)), 0.01)
            gate.set()
        assert (await double.apredict(batch(2)) == 4).all()
        await until(lambda: not double._turns)

    run(main())


# ------------------------------------------------------------------------------------------------------ exceptions


def test_wrong_arrays_take_no_turn(double: mpscnn.Network) -> None:
    wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((np.zeros((1, 3, 5, 7), np.float32),), ValueError, "number of channels"),
        (("four",), TypeError, "x (str) is not an array"),
        ((), TypeError, "the number of arrays (0) is not 1"),
        ((np.zeros((1, 3, 5, 4), np.float64),), TypeError, "float64"),
    ]

    async def main() -> list[Any]:
        requests = [double.apredict(*wrong[i // 2 % 4][0]) if i % 2 else double.apredict(batch(i)) for i in range(80)]
        return await asyncio.gather(*requests, return_exceptions=True)

    for i, result in enumerate(run(main())):
        if i % 2:
            _, kind, text = wrong[i // 2 % 4]
            assert type(result) is kind
            assert text in str(result)
        else:
            assert (result == 2 * i).all()


def test_a_device_that_fails(double: mpscnn.Network) -> None:
    core = watched(double).core

    class Failing:
        def submit(self, *given: Any) -> Any:
            call = core.submit(*given)

            class Call:
                def wait(self) -> Any:
                    call.wait()
                    raise RuntimeError("the device failed")

            return Call()

    double._core.core = Failing()  # type: ignore[attr-defined]

    async def main() -> list[Any]:
        return await asyncio.gather(*(double.apredict(batch(i)) for i in range(12)), return_exceptions=True)

    assert [str(one) for one in run(main())] == ["the device failed"] * 12


def test_outside_of_an_event_loop(double: mpscnn.Network) -> None:
    request = double.apredict(batch(1))
    with pytest.raises(RuntimeError, match="no running event loop"):
        request.send(None)


# ----------------------------------------------------------------------------------------------------------- loops


def test_a_loop_that_is_closed_while_the_device_works(double: mpscnn.Network, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    loop = asyncio.new_event_loop()
    with held_queue(double.device):
        request = loop.create_task(double.apredict(batch(1)))
        loop.run_until_complete(asyncio.sleep(0.01))
        assert watched(double).at_work == 1
        request.cancel()
        loop.run_until_complete(asyncio.gather(request, return_exceptions=True))
        loop.close()
    end = time.monotonic() + 30
    while watched(double).at_work and time.monotonic() < end:
        time.sleep(0.001)
    assert (double(batch(2)) == 4).all()
    assert unraisable == []


@pytest.mark.parametrize("waiting", [1, 9], ids=["at work", "waiting for their turn, too"])
def test_loops_that_are_closed_under_requests(
    double: mpscnn.Network, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    """Nothing is awaited or cancelled: the loops are closed, as by a program that is about to end."""
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    gone = []
    for number in range(6):
        with held_queue(double.device):
            loop = asyncio.new_event_loop()
            gone.append(weakref.ref(loop))
            loop.set_exception_handler(lambda loop, context: None)  # "Task was destroyed but it is pending!"
            requests = [loop.create_task(double.apredict(batch(i))) for i in range(waiting)]
            loop.run_until_complete(asyncio.sleep(0.01))
            if number % 2:
                loop.close()
        while watched(double).at_work:
            time.sleep(0.001)
        loop.close()  # the device's callback is in its queue
        del loop, requests
    end = time.monotonic() + 10
    while any(one() for one in gone) and time.monotonic() < end:  # the device's thread may still leave a callback
        time.sleep(0.01)
        gc.collect()
    assert double._turns == {}
    assert [one() for one in gone] == [None] * 6
    assert unraisable == []


def test_one_loop_after_another(double: mpscnn.Network) -> None:
    """Each asyncio.run() has its own loop, which the network does not keep alive."""
    gone = []

    async def main() -> None:
        gone.append(weakref.ref(asyncio.get_running_loop()))
        await asyncio.gather(*(double.apredict(batch(i)) for i in range(10)))

    for _ in range(5):
        run(main())
    gc.collect()
    assert [one() for one in gone] == [None] * 5


def test_two_loops_in_two_threads(double: mpscnn.Network) -> None:
    results: dict[int, list[Any]] = {}

    async def main(first: int) -> list[Any]:
        return await asyncio.gather(*(double.apredict(batch(i)) for i in range(first, first + 200)))

    def serve(first: int) -> None:
        results[first] = run(main(first))

    workers = [threading.Thread(target=serve, args=(first,)) for first in (0, 1000)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for first in (0, 1000):
        assert [float(y.flat[0]) for y in results[first]] == [2 * i for i in range(first, first + 200)]
    assert watched(double).most <= 8, "four of each"


def test_beside_calls_and_streams(double: mpscnn.Network) -> None:
    async def main() -> list[Any]:
        request = asyncio.gather(*(double.apredict(batch(i)) for i in range(50)))
        stream = mpscnn.Network(residual()).stream([np.ones((1, 3, 4, 4), np.float32)] * 5)
        await asyncio.sleep(0)
        assert len(list(stream)) == 5
        return await request

    assert [float(y.flat[0]) for y in run(main())] == [2 * i for i in range(50)]
