# SPDX-License-Identifier: Apache-2.0
"""Stream: an iterator of a network's results, batch by batch."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _checks, _progress

if TYPE_CHECKING:
    from .network import Network


_BUSY = "Stream: another thread, or the iterable itself, is in next(); one at a time."


class _Failed:
    """Placeholder for a batch that failed."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def wait(self) -> Any:
        raise self._error


class Stream(_checks.Made, Iterator[Any]):
    """Iterator over the results of a network, in the order of the batches; made by `Network.stream`.

    At most ``in_flight`` batches are taken from the iterable ahead of the requested result. An exception of the
    iterable is raised after the results of the batches before it. If the network rejects a batch, or the device fails,
    an exception is raised in place of the result; the next call continues with the following batch. After Ctrl-C or an
    exception of ``progress``, the next call returns the result that is due. (A generator that Ctrl-C interrupts has
    ended, as always in Python.) Do not write to a batch before its result is available.

    As a context manager it waits on exit for batches in flight. Only one thread at a time may call next().
    """

    def __init__(self, network: Network, batches: Iterable[Any], *, in_flight: int = 4, progress: Any = None) -> None:
        from .network import Network

        in_flight = _checks.integer(in_flight, "in_flight", minimum=1)
        if not hasattr(type(batches), "__iter__") and not hasattr(type(batches), "__getitem__"):
            _checks.refuse(batches, "batches", "iterable")
        self._network = _checks.made(_checks.instance(network, "network", Network), "network")
        self._in_flight = in_flight
        # Python handles signals after calls and jumps, never inside of a C function nor between two deletions. So that
        # no signal loses or duplicates a batch, batches move from the iterable into a list in one call, and stay there
        # until their results are returned. The call at index i belongs to the batch at index i.
        self._taken: list[Any] = []
        self._calls: list[Any] = []
        self._end: BaseException | None = None  # raised after the last result
        self._done = self._shown = 0
        self._is_busy = False
        self._show, self._close = _progress.shower(progress, _length(batches), "batch")
        self._batches = iter(batches)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        if self._is_busy:
            raise RuntimeError(_BUSY)
        self._is_busy = True
        try:
            self._fill()
            if not self._calls:
                self._close()
                end, self._end = self._end, StopIteration()
                raise end or StopIteration
            try:
                results = self._calls[0].wait()
            except KeyboardInterrupt:
                raise
            except BaseException:
                del self._taken[0], self._calls[0]
                self._done += 1
                raise
            result = results[0] if len(results) == 1 else tuple(results)
            if self._shown == self._done:
                self._shown += 1
                self._show(self._shown)
            del self._taken[0], self._calls[0]
            self._done += 1
            return result  # no call since the deletions
        finally:
            self._is_busy = False

    def _fill(self) -> None:
        while len(self._calls) < self._in_flight:
            if len(self._taken) == len(self._calls):
                if self._end is not None:
                    return
                try:
                    self._taken.extend(itertools.islice(self._batches, 1))
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    self._end = error
                    return
                if len(self._taken) == len(self._calls):
                    self._end = StopIteration()
                    return
            try:
                self._calls.append(self._network._submit(self._taken[-1]))
            except Exception as error:
                self._calls.append(_Failed(error))

    def close(self) -> None:
        """Take no more batches, wait for those in flight, and drop their results."""
        if self._is_busy:
            raise RuntimeError(_BUSY)
        self._is_busy = True
        try:
            self._end = StopIteration()
            del self._taken[len(self._calls) :]
            while self._calls:
                with contextlib.suppress(Exception):  # dropped like the result
                    self._calls[0].wait()
                del self._taken[0], self._calls[0]
            self._close()
        finally:
            self._is_busy = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.Stream, not made>"
        return f"<mpscnn.Stream, {self._done} done, {len(self._calls)} at work>"


def _length(batches: Iterable[Any]) -> int | None:
    """Return the number of batches, or None if it is unknown."""
    with contextlib.suppress(TypeError):  # __len__ may raise it
        return len(batches) if isinstance(batches, Sized) else None
    return None
