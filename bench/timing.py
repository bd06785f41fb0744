# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of several contestants, by the method of mpscnn.benchmarking (see there)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mpscnn.benchmarking import MIN_ROUNDS, ROUND_SECONDS, interleaved, pause

__all__ = ["Prepared", "ServedProcess", "implementation_process", "interleaved", "interleaved_prepared"]

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


class ServedProcess:
    """A process that runs the function serve() of a module: it answers each line of JSON with another."""

    def __init__(self, module: str, **environment: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=Path(__file__).resolve().parent.parent,
            env=os.environ | environment,
        )

    def ask(self, *request: Any) -> Any:
        """Send a line of JSON, and return the answer, another."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended
            print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            code = self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"The process ended with code {code}: {last}")
        return json.loads(answer)

    def close(self) -> None:
        self._process.communicate()  # ends its input
        self._errors.close()


def implementation_process(module: str, implementation: str) -> ServedProcess:
    """Return a process that runs a module's serve() with only one implementation (MPSCNN_IMPL)."""
    return ServedProcess(module, MPSCNN_IMPL=implementation)
