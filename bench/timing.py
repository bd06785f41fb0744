# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of several contestants, by the method of mpscnn.benchmarking (see there)."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from mpscnn.benchmarking import MIN_ROUNDS, ROUND_SECONDS, interleaved, pause

__all__ = ["Prepared", "interleaved", "interleaved_prepared"]

# A function that is not timed, and a timed function of its result.
Prepared = tuple[Callable[[], Any], Callable[[Any], object]]


def interleaved_prepared(
    contestants: Mapping[str, Prepared], seconds: float, *, best: bool = False
) -> dict[str, float]:
    """Like interleaved(), for contestants that prepare each call; a round's time is the mean of its calls."""

    def timed(contestant: Prepared, calls: int) -> float:
        total = 0.0
        for _ in range(calls):
            prepared = contestant[0]()
            start = time.perf_counter()
            contestant[1](prepared)
            total += time.perf_counter() - start
        return total / calls

    calls = {
        name: max(1, int(ROUND_SECONDS / min(timed(contestant, 1) for _ in range(3))))
        for name, contestant in contestants.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(next(iter(samples.values()))) < MIN_ROUNDS:
        for name in random.sample(list(contestants), len(contestants)):
            pause()
            timed(contestants[name], 1)
            samples[name].append(timed(contestants[name], calls[name]))
    return {name: (min if best else statistics.median)(values) for name, values in samples.items()}
