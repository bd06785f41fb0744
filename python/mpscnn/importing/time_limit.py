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
def limited(seconds: float, is_late: Callable[[float], bool] = lambda part: False) -> Iterator[None]:
    """Raise OverdueError inside of the block when this thread has computed for `seconds` in it.

    Processor time is counted where the system tells that of a thread: other work of the machine does not matter.
    `is_late` returns whether the block, after this part of the time, will not end within it.
    """
    thread, clock = threading.get_ident(), thread_clock()
    began, lock, left, raised = clock(), threading.Lock(), threading.Event(), threading.Event()

    def watch() -> None:
        while not left.wait(_INTERVAL):
            with lock:
                part = (clock() - began) / max(seconds, 1e-9)
                if not left.is_set() and (part > 1 or is_late(part)):
                    raised.set()
                    _raise(thread, OverdueError)
                    return

    watcher = threading.Thread(target=watch, name="mpscnn time limit", daemon=True)
    watcher.start()
    try:
        yield
    except Exception:
        if raised.is_set():  # code that was stopped in the middle of its own cleaning up
            raise OverdueError from None
        raise
    finally:
        with lock:
            left.set()
        if raised.is_set():
            _drop_undelivered(thread)


def thread_clock() -> Callable[[], float]:
    """Return a function that returns the processor time of this thread in seconds, or else the time of day."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    number = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(number)


def _raise(thread: int, error: type[BaseException]) -> None:
    """Raise `error` in a thread at its next instruction, in place of one that has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


class _Dropped(BaseException):
    """Replaces an error that the thread has not raised yet."""


def _drop_undelivered(thread: int) -> None:
    """Make sure that this thread will raise no OverdueError.

    Not with PyThreadState_SetAsyncExc(thread, NULL): CPython up to 3.12 then looks for an exception at every call and
    jump from then on, and hangs under a trace function (the loop of RESUME in DO_TRACING, ceval.c of 3.11).
    """
    with contextlib.suppress(_Dropped):
        _raise(thread, _Dropped)
        while True:  # raised here at the latest
            pass
