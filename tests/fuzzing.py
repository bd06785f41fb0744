# SPDX-License-Identifier: Apache-2.0
"""Duration and number of examples of fuzz tests.

By default, a few examples, always the same. MPSCNN_FUZZ_SECONDS=600 searches new ones in each file for that time,
shared by the file's tests, which print the number of examples (pytest -s).
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

SECONDS = float(os.environ.get("MPSCNN_FUZZ_SECONDS", "0"))


class Seeds:
    """Seeds with which a test has failed, in a file of the corpus."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[int]:
        return iter(int(line) for line in self.path.read_text().split())

    @contextmanager
    def keep(self, seed: int) -> Iterator[None]:
        """Append the seed if the block fails, in a long search."""
        try:
            yield
        except Exception:
            if SECONDS:
                with self.path.open("a") as file:
                    file.write(f"{seed}\n")
            raise


class Fuzz:
    """Decorators of the fuzz tests of one file."""

    def __init__(self) -> None:
        self._tests = 0

    def given(
        self, examples: int, *strategies: Any, **named: Any
    ) -> Callable[[Callable[..., None]], Callable[[], None]]:
        """Like hypothesis.given, with this number of examples."""

        def decorate(test: Callable[..., None]) -> Callable[[], None]:
            count = 0

            @functools.wraps(test)
            def counted(*args: Any, **kwargs: Any) -> None:
                nonlocal count
                count += 1
                test(*args, **kwargs)

            options = settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=not SECONDS,
                suppress_health_check=list(HealthCheck),
            )
            look = options(given(*strategies, **named)(counted))

            def run() -> None:
                for _ in self._rounds():
                    look()
                _report(test, count)

            return self._entered(test, run)

        return decorate

    def seeds(self, examples: int, seconds: float = 10) -> Callable[[Callable[[int], None]], Callable[[], None]]:
        """Call the test with seeds, and report all that fail; by default for at most `seconds`."""

        def decorate(test: Callable[[int], None]) -> Callable[[], None]:
            def run() -> None:
                end = time.monotonic() + (self._share() if SECONDS else seconds)
                first = int(time.time()) << 20 if SECONDS else 0
                seed, failed = first, []
                while time.monotonic() < end and (SECONDS or seed < examples) and len(failed) < 20:
                    seed += 1
                    try:
                        test(seed)
                    except Exception as error:
                        failed.append(f"{seed}: {type(error).__name__}: {error}")
                _report(test, seed - first)
                assert not failed, "\n".join(failed)

            return self._entered(test, run)

        return decorate

    def _entered(self, test: Callable[..., None], run: Callable[[], None]) -> Callable[[], None]:
        self._tests += 1
        run.__name__, run.__qualname__, run.__doc__, run.__module__ = (
            test.__name__,
            test.__qualname__,
            test.__doc__,
            test.__module__,
        )
        return run

    def _share(self) -> float:
        return SECONDS / self._tests

    def _rounds(self) -> Iterator[None]:
        end = time.monotonic() + self._share()
        yield
        while time.monotonic() < end:
            yield


def _report(test: Callable[..., None], count: int) -> None:
    if SECONDS:
        print(f"{test.__module__}.{test.__name__}: {count} examples")
