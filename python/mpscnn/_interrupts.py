# SPDX-License-Identifier: Apache-2.0
"""Handling of SIGINT: deferred in critical sections; ends the command while its modules are imported."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer SIGINT until the end of the block.

    A partly encoded command buffer that is never committed would keep states and optimizer states in use.
    """
    before = signal.getsignal(signal.SIGINT)
    # Handlers run on the main thread, and can be set only there.
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


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def leave_if_command() -> None:
    """Make Ctrl-C exit the command `mpscnn`, or `python -m mpscnn`, without a traceback, until `raise_again()`.

    Used during imports only: they need no cleanup, and may turn KeyboardInterrupt into another exception.
    """
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    is_module = name == "-m" and "mpscnn" in sys.orig_argv  # later it is the path of __main__.py
    is_command = is_module or os.path.basename(name) == "mpscnn"
    if not is_command or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_again() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again, as by default."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


leave_if_command()
