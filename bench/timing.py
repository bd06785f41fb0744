# SPDX-License-Identifier: Apache-2.0
"""Timing of several contestants side by side: interleaved rounds, medians.

A round runs each contestant once, in random order: a pause, one call that is not counted, which wakes the threads and
warms the caches, and then calls for about two milliseconds. A contestant's time is the median over the rounds. The
pause is for the threads of the one before: those of an OpenMP library spin for some six milliseconds after their work,
on processors that the next one needs, and two libraries (PyTorch brings one of its own) do not know of each other.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

ROUND_SECONDS = 2e-3
PAUSE_SECONDS = 10e-3


def _seconds(run: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def interleaved(
    contestants: dict[str, Callable[[], object]], seconds: float, *, best: bool = False
) -> dict[str, float]:
    """Median seconds per call of each contestant; `seconds` is for all of them together, warm-up not counted.

    `best`: the least in place of the median, which says more where others use the machine too.
    """
    calls = {}
    for name, run in contestants.items():
        calls[name] = max(1, int(ROUND_SECONDS / min(_seconds(run, 1) for _ in range(3))))
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(samples.values()))) < 5:
        for name in random.sample(list(contestants), len(contestants)):
            time.sleep(PAUSE_SECONDS)
            _seconds(contestants[name], 1)
            samples[name].append(_seconds(contestants[name], calls[name]))
    return {name: (min if best else statistics.median)(values) for name, values in samples.items()}
