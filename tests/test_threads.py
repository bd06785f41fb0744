# SPDX-License-Identifier: Apache-2.0
"""Several threads at once: one kernel, several command buffers, handlers on the queue's thread, the GIL."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import assert_close, conv2d, held_queue, random

W = (8, 4, 3, 3)


def in_threads(work: Callable[[int], None], count: int = 4) -> None:
    """Run work(0), work(1), ... at the same time; raise the first failure."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(index: int) -> None:
        start.wait()
        try:
            work(index)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("padding", [1, "same", "valid", ((0, 2), (1, 0))], ids=str)
def test_one_kernel_in_four_threads(padding: Any) -> None:
    """Different shapes at the same time: the offset that MPS stores in the kernel belongs to each encode."""
    weight, bias = random((8, 4, 4, 3)), random((8,))
    kernel = mpscnn.Convolution(weight, bias, stride=2, padding=padding)
    shapes = [(1, 9, 7, 4), (2, 12, 10, 4), (1, 5, 16, 4), (3, 8, 8, 4)]
    cases = []
    for shape in shapes:
        x = random(shape)
        cases.append((x, mpscnn.Convolution(weight, bias, stride=2, padding=padding)(x)))
    if padding == 1:
        assert_close(cases[0][1], conv2d(cases[0][0], weight, bias, stride=2, padding=1))

    def work(index: int) -> None:
        for turn in range(50):
            x, expected = cases[(index + turn) % len(cases)]
            np.testing.assert_array_equal(kernel(x), expected)

    in_threads(work)


def test_one_transposed_kernel_in_four_threads() -> None:
    weight = random((4, 8, 3, 3))
    kernel = mpscnn.ConvolutionTranspose(weight, stride=2, padding=1, output_padding=1)
    cases = [
        (x, mpscnn.ConvolutionTranspose(weight, stride=2, padding=1, output_padding=1)(x))
        for x in (random(shape) for shape in [(1, 4, 7, 4), (2, 3, 3, 4), (1, 8, 2, 4), (1, 5, 5, 4)])
    ]

    def work(index: int) -> None:
        for _ in range(50):
            np.testing.assert_array_equal(kernel(cases[index][0]), cases[index][1])

    in_threads(work)


def test_encoding_one_kernel_to_four_command_buffers() -> None:
    weight = random(W)
    conv, relu = mpscnn.Convolution(weight, padding=1), mpscnn.NeuronReLU()

    def work(index: int) -> None:
        x = random((1, 5 + index, 7, 4), seed=index)
        expected = np.maximum(conv2d(x, weight, padding=1), 0)
        for _ in range(20):
            with mpscnn.CommandBuffer() as commands:
                middle = conv.encode(commands, mpscnn.Image.from_array(x), temporary=True)
                y = relu.encode(commands, middle)
            assert_close(y.numpy(), expected)

    in_threads(work)


def test_kernels_made_and_dropped_in_four_threads() -> None:
    def work(index: int) -> None:
        x = random((1, 6, 7, 4), seed=index)
        for turn in range(20):
            weight = random(W, seed=100 * index + turn)
            y = mpscnn.Convolution(weight, activation="relu")(x)
            assert_close(y, np.maximum(conv2d(x, weight), 0))

    in_threads(work)


def test_errors_in_four_threads() -> None:
    kernel, x = mpscnn.Convolution(random(W)), random((1, 6, 7, 4))
    expected = kernel(x)

    def work(index: int) -> None:
        for _ in range(50):
            if index % 2:
                with pytest.raises(ValueError, match=r"x has 3 channels"):
                    kernel(x[..., :3])
            else:
                np.testing.assert_array_equal(kernel(x), expected)

    in_threads(work)


def test_attributes_set_while_others_compute() -> None:
    """An attribute set on one thread applies to all later encodes: each result has either the old or the new value."""
    x, weight = random((1, 6, 7, 4)), random(W)
    kernel = mpscnn.Convolution(weight, padding=1)
    results = {}
    for mode in ("zero", "clamp"):
        kernel.edge_mode = mode
        results[mode] = kernel(x)
    assert (results["zero"] != results["clamp"]).any()
    stop = threading.Event()

    def work(index: int) -> None:
        if index == 0:
            try:
                for turn in range(200):
                    kernel.edge_mode = "clamp" if turn % 2 else "zero"
                    assert kernel.edge_mode == ("clamp" if turn % 2 else "zero")
            finally:
                stop.set()
            return
        while not stop.is_set():
            y = kernel(x)
            assert any(np.array_equal(y, result) for result in results.values())

    in_threads(work)


def test_work_is_committed_from_one_thread_and_waited_for_in_others() -> None:
    x = random((1, 6, 7, 4))
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x))
    with held_queue() as gate:
        commands.commit()
        threading.Timer(0.05, gate.set).start()

        def work(index: int) -> None:
            commands.wait()
            np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))

        in_threads(work)


# ------------------------------------------------------------------------------------------ the GIL


def test_python_runs_while_a_thread_waits() -> None:
    commands = mpscnn.CommandBuffer()
    with held_queue() as gate:
        commands.commit()
        waiter = threading.Thread(target=commands.wait)
        waiter.start()
        counted, end = 0, time.monotonic() + 0.2
        while time.monotonic() < end:
            counted += 1
            time.sleep(0)
        assert waiter.is_alive()
        assert counted > 100
        gate.set()
        waiter.join(60)
    assert not waiter.is_alive()


def test_python_runs_while_a_kernel_computes() -> None:
    """A counter advances during one long call."""
    x = np.ones((4, 160, 160, 64), np.float32)
    kernel = mpscnn.Convolution(np.ones((64, 64, 5, 5), np.float32), padding=2)
    kernel(x[:1, :32, :32])
    spans: list[tuple[float, float]] = []
    computing = threading.Event()

    def compute() -> None:
        computing.set()
        start = time.monotonic()
        kernel(x)
        spans.append((start, time.monotonic()))

    worker = threading.Thread(target=compute)
    ticks: list[float] = []
    worker.start()
    computing.wait(60)
    while worker.is_alive():
        ticks.append(time.monotonic())
        time.sleep(0.0005)
    worker.join()
    start, stop = spans[0]
    inside = [tick for tick in ticks if start + 0.1 * (stop - start) < tick < stop - 0.1 * (stop - start)]
    assert len(inside) >= min(10, (stop - start) / 0.01), f"{len(inside)} ticks in {1e3 * (stop - start):.0f} ms"


# ------------------------------------------------------------------------------------------ handlers


def test_handlers_are_called_once_on_another_thread() -> None:
    threads: list[int] = []
    commands = mpscnn.CommandBuffer()
    for _ in range(3):
        commands.add_completed_handler(lambda: threads.append(threading.get_ident()))
    commands.commit()
    commands.wait()
    assert len(threads) == 3, "wait() returns when the handlers have been called"
    assert threading.get_ident() not in threads


def test_handlers_see_the_result() -> None:
    x, seen = random((1, 5, 7, 4)), []
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x))

    def look() -> None:
        seen.append((commands.status, y.numpy().copy()))

    commands.add_completed_handler(look)
    commands.commit()
    commands.wait()
    [(status, value)] = seen
    assert status == "completed"
    np.testing.assert_array_equal(value, np.maximum(x, 0))


def test_handlers_come_in_the_order_of_the_commits() -> None:
    order: list[int] = []
    buffers = []
    for index in range(20):
        commands = mpscnn.CommandBuffer()
        commands.add_completed_handler(lambda index=index: order.append(index))
        buffers.append(commands)
    for commands in buffers:
        commands.commit()
    buffers[-1].wait()
    assert order == list(range(20))


def test_handlers_may_encode_and_commit_more() -> None:
    """A pipeline without its own thread: each completion commits the next step."""
    x, kernel = random((1, 5, 7, 4)), mpscnn.NeuronLinear(1.0, 1.0)
    finished, images = threading.Event(), [mpscnn.Image.from_array(x)]

    def step() -> None:
        if len(images) > 5:
            finished.set()
            return
        commands = mpscnn.CommandBuffer()
        images.append(kernel.encode(commands, images[-1]))
        commands.add_completed_handler(step)
        commands.commit()

    step()
    assert finished.wait(60)
    np.testing.assert_allclose(images[-1].numpy(), x + 5, rtol=1e-5)


def test_exceptions_in_handlers_go_to_the_unraisable_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", caught.append)
    x = random((1, 5, 7, 4))
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x))
    later: list[bool] = []

    def fail() -> None:
        raise ZeroDivisionError("in a handler")

    commands.add_completed_handler(fail)
    commands.add_completed_handler(lambda: later.append(True))
    commands.commit()
    commands.wait()
    assert later == [True], "the next handler is called all the same"
    assert commands.status == "completed"
    [unraisable] = caught
    assert unraisable.exc_type is ZeroDivisionError
    assert str(unraisable.exc_value) == "in a handler"
    assert unraisable.object is fail
    del caught[:], unraisable
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))
