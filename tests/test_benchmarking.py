# SPDX-License-Identifier: Apache-2.0
"""The pause before each contestant of a benchmark."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
import torch
from bench import contestants

from mpscnn import benchmarking
from support import run_python


def test_pause_waits_for_threads_that_compute() -> None:
    """Processor time may be counted in ticks of 4 ms, or between them."""
    block = bytes(1 << 20)
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.02:
        hashlib.sha256(block)  # without the GIL
    rounds = threading.Event()
    count = 0

    def compute() -> None:
        nonlocal count
        rounds.set()
        end = time.perf_counter() + 0.06
        while time.perf_counter() < end:
            hashlib.sha256(block)
            count += 1

    thread = threading.Thread(target=compute)
    thread.start()
    rounds.wait()
    begin = time.perf_counter()
    benchmarking.pause()
    assert not thread.is_alive() or time.perf_counter() - begin >= benchmarking.MAX_PAUSE_SECONDS
    thread.join()
    assert count


def test_pause_is_short_where_nothing_computes() -> None:
    for _ in range(20):
        begin = time.perf_counter()
        benchmarking.pause()
        if time.perf_counter() - begin < benchmarking.MAX_PAUSE_SECONDS:
            return
    pytest.fail("threads of this process compute all the time")


def test_pause_where_linux_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(benchmarking.os, "listdir", missing)
    begin = time.perf_counter()
    benchmarking.pause()
    assert time.perf_counter() - begin >= benchmarking.PAUSE_SECONDS


def test_ratio_is_of_rounds() -> None:
    """A machine that is slow for some rounds is slow for both: a ratio of medians would be 4 / 2."""
    assert benchmarking.ratio([1.0, 4.0, 5.0], [1.0, 4.0, 2.0]) == 1.0
    with pytest.raises(ValueError, match="zip"):
        benchmarking.ratio([1.0], [1.0, 2.0])


THREADS = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[2])})  # first: imports start threads
import numpy as np
from mpscnn import benchmarking
one = benchmarking.onnxruntime_contestant(sys.argv[1], {"x": np.zeros((1, 3, 8, 8), np.float32)})
threads = [int(thread) for thread in os.listdir("/proc/self/task")]
print(benchmarking.processors(), set().union(*map(os.sched_getaffinity, threads)))
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinities")
def test_onnxruntime_stays_on_its_processors(tmp_path: Path) -> None:
    """By default it would have as many threads as the machine has cores, each on one of them."""
    pytest.importorskip("onnxruntime")
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) == 1:
        pytest.skip("the process may use one processor only")
    file = tmp_path / "net.onnx"
    file.write_bytes(contestants.onnx(torch.nn.Conv2d(3, 4, 3), (3, 8, 8)))
    assert run_python(THREADS, str(file), str(processors[0])).strip() == f"1 {{{processors[0]}}}"
