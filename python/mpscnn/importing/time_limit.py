# SPDX-License-Identifier: Apache-2.0
"""A limit for the time of a block of Python code, which may be stopped at any instruction."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator

_INTERVAL = 0.1  # seconds between looks at the clock


class OverdueError(BaseException):
    """The block took longer than its limit. No Exception, so that code inside does not handle it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise OverdueError inside of the block when this thread has computed for `seconds` in it.

    Processor time is counted where the system tells that of a thread: other work of the machine does not matter.
    """
    thread, clock = threading.get_ident(), _clock()
    end, lock, left = clock() + seconds, threading.Lock(), threading.Event()

    def watch() -> None:
        while not left.wait(_INTERVAL):
            with lock:
                if not left.is_set() and clock() > end:
                    _raise(thread, OverdueError)
                    return

    watcher = threading.Thread(target=watch, name="mpscnn time limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            left.set()
            _raise(thread, None)  # one that was not delivered yet


def _clock() -> Callable[[], float]:
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    number = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(number)


def _raise(thread: int, error: type[BaseException] | None) -> None:
    """Raise `error` in a thread at its next instruction; None: take back one that was not raised yet."""
    value = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)
