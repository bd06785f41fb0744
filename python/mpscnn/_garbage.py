# SPDX-License-Identifier: Apache-2.0
"""Imports without searches for garbage, which take a sixth of the time of networks with thousands of layers."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

# A search after so many objects more than before, and after so many of these for objects that were kept once and twice.
_THRESHOLDS = (1_000_000, 50, 1000)
_LOCK = threading.Lock()
_before: tuple[int, int, int] | None = None  # the thresholds outside of the blocks, while a thread is in one
_count = 0  # of blocks


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Let Python search for garbage rarely inside of the block, in all threads."""
    global _before, _count
    with _LOCK:
        if not _count:
            _before = gc.get_threshold()
            if _before[0]:  # 0: never
                gc.set_threshold(*map(max, _before, _THRESHOLDS))
        _count += 1
    try:
        yield
    finally:
        with _LOCK:
            _count -= 1
            if not _count and _before is not None:
                gc.set_threshold(*_before)
