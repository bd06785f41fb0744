# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, where it must not strike."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """SIGINT waits until the end.

    A command buffer that is encoded in part and never committed would hold what states and optimizers remember.
    """
    before = signal.getsignal(signal.SIGINT)
    # Handlers run on the main thread, and only there they can be set.
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            before(signal.SIGINT, caught[0])
