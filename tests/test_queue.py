# SPDX-License-Identifier: Apache-2.0
"""Threads that run the work of a command buffer, and guarantees that do not depend on the thread."""

from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

import mpscnn
from support import only_openmps, random

X = (1, 9, 7, 4)


def handler_threads(commands: mpscnn.CommandBuffer) -> list[int]:
    threads: list[int] = []
    mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(random(X)))
    commands.add_completed_handler(lambda: threads.append(threading.get_ident()))
    return threads


@pytest.mark.skipif(sys.platform == "darwin", reason="which thread works is Metal's business there")
@only_openmps("work on the thread that waits")
def test_who_waits_for_an_idle_queue_does_its_work() -> None:
    with mpscnn.CommandBuffer() as commands:
        threads = handler_threads(commands)
    assert threads == [threading.get_ident()]


@pytest.mark.skipif(sys.platform == "darwin", reason="which thread works is Metal's business there")
def test_work_that_is_not_awaited_at_once_runs_on_the_queue() -> None:
    commands = mpscnn.CommandBuffer()
    threads = handler_threads(commands)
    commands.commit()
    commands.wait()
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_in_a_handler_reaches_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python delivers Ctrl-C to its main thread: if a handler runs there, wait() raises it, not the handler."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background
    commands = mpscnn.CommandBuffer()
    commands.add_completed_handler(lambda: signal.raise_signal(signal.SIGINT))

    def run() -> None:
        with commands:
            pass
        time.sleep(5)  # the interrupt is raised in the next Python code

    try:
        with pytest.raises(KeyboardInterrupt):
            run()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert commands.status == "completed"


def test_the_order_holds_whoever_works() -> None:
    """Some command buffers are left to the queue, others awaited at once, on two threads."""
    order: list[int] = []
    commands: list[mpscnn.CommandBuffer] = []
    for i in range(60):
        commands.append(mpscnn.CommandBuffer())
        mpscnn.NeuronReLU().encode(commands[-1], mpscnn.Image.from_array(random(X)))
        commands[-1].add_completed_handler(lambda i=i: order.append(i))
        if i % 7 < 3:
            commands[-1].commit()
        elif i % 7 < 5:
            with commands[-1]:
                pass
            assert order == list(range(i + 1)), "all before it are done, too"
        else:
            thread = threading.Thread(target=commands[-1].__exit__, args=(None, None, None))
            thread.start()
            thread.join()
            assert order[-1] == i
    last = mpscnn.CommandBuffer()
    last.commit()
    last.wait()
    assert order == list(range(60))


@only_openmps("handlers on the thread that does the work")
def test_a_handler_of_the_waiting_thread_may_not_wait_for_itself() -> None:
    said: list[str] = []
    commands = mpscnn.CommandBuffer()

    def wait() -> None:
        other = mpscnn.CommandBuffer()
        other.commit()
        try:
            other.wait()
        except RuntimeError as error:
            said.append(str(error))

    commands.add_completed_handler(wait)
    with commands:
        pass
    assert len(said) == 1
    assert "would never end" in said[0]
