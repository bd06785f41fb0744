# SPDX-License-Identifier: Apache-2.0
"""Timing of several contestants side by side: interleaved rounds, medians.

A call is one run of the work; a round runs each contestant once, in random order, each for a number of calls that
lasts about two milliseconds; a contestant's time is the median over the rounds.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

ROUND_SECONDS = 2e-3


def _seconds(run: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def interleaved(contestants: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median seconds per call of each contestant; `seconds` is for all of them together, warm-up not counted."""
    for run in contestants.values():
        _seconds(run, 2)
    calls = {name: max(1, int(ROUND_SECONDS / _seconds(run, 3))) for name, run in contestants.items()}
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(samples.values()))) < 5:
        for name in random.sample(list(contestants), len(contestants)):
            samples[name].append(_seconds(contestants[name], calls[name]))
    return {name: statistics.median(values) for name, values in samples.items()}
