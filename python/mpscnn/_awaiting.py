# SPDX-License-Identifier: Apache-2.0
"""Calls that event loops await: at most four of a loop are on the device's queue."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    import asyncio

_Call = TypeVar("_Call")

# Max calls on the device's queue, per network or graph and event loop.
_MAX_AWAITED = 4


class Turns(WeakValueDictionary["asyncio.AbstractEventLoop", "asyncio.Semaphore"]):
    """Semaphores of the event loops that await calls of one network or graph."""

    async def call(self, submit: Callable[[Callable[[], None]], _Call]) -> _Call:
        """Wait for a turn, submit a call, and return it when it has completed.

        Parameters
        ----------
        submit : callable(completed)
            Commits the work and returns the call. ``completed`` is to be called on any thread when the work is done.
        """
        import asyncio  # here, so that programs without an event loop do not import it

        loop = asyncio.get_running_loop()
        turns = self.setdefault(loop, asyncio.Semaphore(_MAX_AWAITED))
        await turns.acquire()
        done = loop.create_future()

        def finish() -> None:
            turns.release()
            if not done.done():
                done.set_result(None)

        def completed() -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(finish)

        try:
            call = submit(completed)
        except BaseException:
            turns.release()
            raise
        await done
        return call
