# SPDX-License-Identifier: Apache-2.0
"""Dynamic batching: requests of equal shapes that wait at the same time are computed in one call."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..weights import empty
from .models import Model

Arrays = Mapping[str, NDArray[Any]]


class BusyError(Exception):
    """The queue is full; `retry_after` is the time in seconds until about half of it is computed."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass
class _Request:
    arrays: Arrays
    rows: int
    kind: tuple[Any, ...]
    future: asyncio.Future[dict[str, NDArray[Any]]]
    arrived: float = field(default_factory=time.perf_counter)


class Batcher:
    """Puts requests together into batches and computes these with a model.

    Requests start in the order of their arrival. One that can be computed at once waits at most ``max_delay`` for
    others of its shapes and types; while the device is busy, requests wait anyway and form larger batches.

    Parameters
    ----------
    model : Model
    max_batch : int, >= 1, default 8
        Rows of a batch; a request of more rows is computed alone.
    max_delay : float, seconds, >= 0, default 0.002
    batches : int, >= 1, default 1
        Batches that the model computes at once: for a network with ``num_threads``, as many as have threads.
    max_queue : int, >= 1, default 64
        Requests that wait; further ones raise BusyError.
    observe : callable, optional
        Called for each batch with its rows, the times that its requests waited, and the time that it was computed, in
        seconds.
    """

    def __init__(
        self,
        model: Model,
        *,
        max_batch: int = 8,
        max_delay: float = 0.002,
        batches: int = 1,
        max_queue: int = 64,
        observe: Callable[[int, list[float], float], None] | None = None,
    ) -> None:
        for name, value in (("max_batch", max_batch), ("batches", batches), ("max_queue", max_queue)):
            if value < 1:
                raise ValueError(f"{name} ({value}) is less than the minimum (1).")
        if not 0 <= max_delay < math.inf:
            raise ValueError(f"max_delay ({max_delay}) is not finite and at least 0.")
        self.model, self.max_batch, self.max_delay, self.max_queue = model, max_batch, max_delay, max_queue
        self._in_flight = batches + 1  # while some compute, the arrays of the next are put together
        self._observe = observe
        self._waiting: deque[_Request] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()  # a request arrived, or a batch ended
        self._loop: asyncio.Task[None] | None = None
        self._seconds_per_request = 0.0  # running mean

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._waiting)

    async def __call__(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the outputs for the arrays of a request.

        Raises
        ------
        BusyError
            max_queue requests wait.
        RuntimeError
            The device failed.
        """
        self.check_free()
        rows = len(next(iter(arrays.values())))
        kind = tuple((array.dtype, array.shape[1:]) for array in arrays.values())
        request = _Request(arrays, rows, kind, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())
        self._changed.set()
        try:
            return await request.future
        except asyncio.CancelledError:
            self._changed.set()  # its place in the queue is free
            raise

    def check_free(self) -> None:
        """Raise BusyError if the queue is full."""
        if len(self._waiting) >= self.max_queue:
            seconds = max(1, min(60, math.ceil(self._seconds_per_request * self.max_queue / 2)))
            raise BusyError(f"{len(self._waiting)} requests wait, the maximum.", seconds)

    async def close(self) -> None:
        """Compute what waits, then stop."""
        while self._waiting or self._running:
            self._changed.set()
            await asyncio.sleep(0.001)
        loop, self._loop = self._loop, None  # a request that arrives now makes another one
        if loop is not None:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._drop_cancelled()
            if not self._waiting or len(self._running) >= self._in_flight:
                await self._change(None)
                continue
            first = self._waiting[0]
            batch = self._batch_of(first)
            left = first.arrived + self.max_delay - time.perf_counter()
            is_full = sum(request.rows for request in batch) >= self.max_batch or len(self._waiting) >= self.max_queue
            is_full = is_full or not self.model.is_joined
            if left > 0 and not is_full:
                await self._change(left)
                continue
            taken = set(map(id, batch))
            self._waiting = deque(request for request in self._waiting if id(request) not in taken)
            task = asyncio.create_task(self._compute(batch))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _drop_cancelled(self) -> None:
        if any(request.future.done() for request in self._waiting):
            self._waiting = deque(request for request in self._waiting if not request.future.done())

    def _batch_of(self, first: _Request) -> list[_Request]:
        """Return the first request and those after it of the same kind that fit."""
        batch, rows = [first], first.rows
        if not self.model.is_joined:
            return batch
        for request in list(self._waiting)[1:]:
            if request.kind == first.kind and rows + request.rows <= self.max_batch:
                batch.append(request)
                rows += request.rows
        return batch

    async def _change(self, seconds: float | None) -> None:
        self._changed.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._changed.set()

    async def _compute(self, batch: list[_Request]) -> None:
        start = time.perf_counter()
        try:
            results = await self.model.compute(_together([request.arrays for request in batch]))
        except Exception as error:
            for request in batch:
                if not request.future.done():
                    request.future.set_exception(_copy_of(error))
            return
        seconds = time.perf_counter() - start
        self._seconds_per_request += 0.1 * (seconds / len(batch) - self._seconds_per_request)
        first = 0
        for request in batch:
            if not request.future.done():
                request.future.set_result(
                    {name: array[first : first + request.rows] for name, array in results.items()}
                )
            first += request.rows
        if self._observe is not None:
            self._observe(first, [start - request.arrived for request in batch], seconds)


def _copy_of(error: Exception) -> Exception:
    """Return an exception for one of several requests: a raised exception has one traceback."""
    return type(error)(*error.args)


def _together(requests: list[Arrays]) -> Arrays:
    if len(requests) == 1:
        return requests[0]
    joined = {}
    for name, array in requests[0].items():
        arrays = [request[name] for request in requests]
        # empty(): memory that images share.
        whole = empty((sum(map(len, arrays)), *array.shape[1:]), array.dtype.name)
        joined[name] = np.concatenate(arrays, out=whole)
    return joined
