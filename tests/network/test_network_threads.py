# SPDX-License-Identifier: Apache-2.0
"""One network on several threads, and networks made and dropped meanwhile: results equal those computed alone."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from network.graphs import residual
from support import held_queue, only_openmps

Make = Callable[..., NDArray[np.float32]]
THREADS = 8
# Batch, height, width, different for each thread; plans are shared, made and evicted.
SHAPES = [(1 + i % 3, 5 + i, 4 + 3 * i % 11) for i in range(20)]


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    """Switch threads between almost any two calls of Python instead of every 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run work(0), ..., work(count - 1), each on a thread, started together; raise the first exception."""
    barrier, errors = threading.Barrier(count), []

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            work(number)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert not any(worker.is_alive() for worker in workers), "they wait for each other"
    if errors:
        raise errors[0]


def same(results: Any, expected: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))


def test_different_shapes_at_once(net: mpscnn.Network, make_x: Make) -> None:
    inputs = {(i, shape): make_x(*shape, seed=100 * i + j) for i in range(THREADS) for j, shape in enumerate(SHAPES)}
    alone = {key: net(x) for key, x in inputs.items()}
    fresh = mpscnn.Network(residual())  # whose plans are made while all threads request them

    def work(number: int) -> None:
        order = np.random.default_rng(number).permutation(len(SHAPES) * 2) % len(SHAPES)
        for j in order:
            key = (number, SHAPES[j])
            assert same(fresh(inputs[key]), alone[key]), key

    together(work)
    assert fresh._core.plans <= 16


def test_one_shape_at_once(net: mpscnn.Network, make_x: Make) -> None:
    """One plan on all threads, each with its own arrays."""
    inputs = [make_x(2, 9, 7, seed=i) for i in range(THREADS)]
    alone = [net(x) for x in inputs]

    def work(number: int) -> None:
        out = [np.empty_like(one) for one in alone[number]]
        for turn in range(1000):
            results = net(inputs[number], out=out) if turn % 2 else net(inputs[number])
            assert same(results, alone[number])
            for one in out:
                one.fill(np.nan)

    together(work)


def test_one_array_on_all_threads(net: mpscnn.Network, make_x: Make) -> None:
    x = make_x(3, 8, 8)
    alone = net(x)
    before = x.copy()
    together(lambda number: [_assert(same(net(x), alone)) for _ in range(30)] and None)
    assert np.array_equal(x, before)


def _assert(condition: bool) -> None:
    assert condition


def test_calls_streams_and_images_at_once(net: mpscnn.Network, make_x: Make) -> None:
    inputs = [make_x(1 + i % 2, 9, 7, seed=i) for i in range(10)]
    alone = [net(x) for x in inputs]

    def work(number: int) -> None:
        for _ in range(5):
            if number % 3 == 0:
                for results, expected in zip(net.stream(inputs, in_flight=1 + number), alone, strict=True):
                    assert same(results, expected)
            elif number % 3 == 1:
                for x, expected in zip(inputs, alone, strict=True):
                    assert same(net(x), expected)
            else:
                for x, expected in zip(inputs, alone, strict=True):
                    with mpscnn.CommandBuffer() as commands:
                        y, features = net.encode(commands, mpscnn.Image.from_array(x, "NCHW"))
                    assert same((y.numpy("NCHW"), features.numpy()), expected)

    together(work)


def test_several_networks_at_once(make_x: Make) -> None:
    nets = [mpscnn.Network(residual(seed)) for seed in range(THREADS)]
    x = make_x(2, 9, 7)
    alone = [net(x) for net in nets]
    assert not same(alone[0], alone[1])

    def work(number: int) -> None:
        for turn in range(32):
            which = (number + turn) % THREADS
            assert same(nets[which](x), alone[which])

    together(work)


def test_while_networks_come_and_go(net: mpscnn.Network, make_x: Make) -> None:
    x = make_x(2, 9, 7)
    alone = {seed: mpscnn.Network(residual(seed))(x) for seed in range(3)}
    expected, stop = net(x), threading.Event()
    made = [0, 0]

    def work(number: int) -> None:
        if number < 2:  # make networks, run them or not, and drop them
            while not stop.is_set():
                seed = made[number] % 3
                other = mpscnn.Network(residual(seed), optimize=bool(number))
                if made[number] % 2 == 0 and number:
                    assert same(other(x), alone[seed])
                elif made[number] % 4 == 1:
                    other.stream([x]).__next__()
                    other._submit(x)  # also with work in progress
                del other
                made[number] += 1
                if made[number] % 8 == 0:
                    gc.collect()
        else:
            try:
                for turn in range(60):
                    shape = SHAPES[(turn + number) % len(SHAPES)]
                    assert same(net(x), expected)
                    net(make_x(*shape))
            finally:
                finished.append(number)
                if len(finished) == 4:
                    stop.set()

    finished: list[int] = []
    together(work, 6)
    assert min(made) > 2


def test_layouts_are_set_between_calls_of_others(net: mpscnn.Network, make_x: Make) -> None:
    """A call uses the layouts of one moment: never old ones for its inputs and new ones for its results."""
    x = make_x(1, 6, 6)
    as_is = net(x)
    turned = [one.transpose(0, 2, 3, 1) if i == 0 else one for i, one in enumerate(as_is)]
    stop = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            try:
                for turn in range(300):
                    net.output_layout = {"y": ("NHWC", "NCHW")[turn % 2]}
            finally:
                stop.set()
        else:
            while not stop.is_set():
                results = net(x)
                assert same(results, as_is) or same(results, turned)

    together(work, 4)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_errors_of_one_thread_are_not_anothers(dtype: str, make_x: Make) -> None:
    net = mpscnn.Network(residual(), dtype=dtype)
    x = make_x(2, 9, 7)
    expected, wrong = net(x), np.zeros((1, 4, 5, 5), np.float32)

    def work(number: int) -> None:
        for turn in range(40):
            if (number + turn) % 2:
                with pytest.raises(ValueError, match=r'input "x": its number of channels \(4\) is not 3'):
                    net(wrong)
            else:
                assert same(net(x), expected)

    together(work)


@only_openmps("threads of a network")
def test_networks_with_threads(make_x: Make) -> None:
    """Calls, streams and other networks at once: results equal those of the same number of threads, bit by bit."""
    nets = [mpscnn.Network(residual(), num_threads=count) for count in (1, 2, None)]
    inputs = [make_x(1 + i % 2, 9, 7, seed=i) for i in range(10)]
    alone = [[net(x) for x in inputs] for net in nets]

    def work(number: int) -> None:
        net, expected = nets[number % 3], alone[number % 3]
        for turn in range(20):
            if turn % 4 == 3:
                for results, wanted in zip(net.stream(inputs, in_flight=3), expected, strict=True):
                    assert same(results, wanted)
            for i in np.random.default_rng(20 * number + turn).permutation(len(inputs)):
                assert same(net(inputs[i]), expected[i])

    together(work)


@only_openmps("threads of a network")
@pytest.mark.parametrize("how", ["call", "stream"])
def test_threads_follow_the_devices_queue(how: str) -> None:
    """A call reads what a command buffer, committed before it, writes to its array."""
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronLinear", graph.input("x", channels=4, layout="NHWC"), a=2.0), "y", layout="NHWC")
    net = mpscnn.Network(graph, num_threads=1)
    ones, written = np.ones((1, 8, 8, 4), np.float32), mpscnn.empty((1, 8, 8, 4))
    written[:] = 0
    commands = mpscnn.CommandBuffer()
    double = mpscnn.NeuronLinear(a=3.0)
    double.encode(commands, mpscnn.Image.from_array(ones), out=mpscnn.Image.from_array(written))
    with held_queue() as gate:
        commands.commit()
        release = threading.Timer(0.2, gate.set)
        release.start()
        (found,) = [net(written)] if how == "call" else list(net.stream([written]))
        release.join()
    commands.wait()
    np.testing.assert_array_equal(np.asarray(found), 6 * ones)
