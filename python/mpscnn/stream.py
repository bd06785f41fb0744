# SPDX-License-Identifier: Apache-2.0
"""Stream: a network on one batch after another."""

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
    """Stands where the result would that an exception has taken the place of."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def wait(self) -> Any:
        raise self._error


class Stream(_checks.Made, Iterator[Any]):
    """Results of a network, in the order of the batches; made by `Network.stream`.

    At most ``in_flight`` batches are taken from the iterable ahead of the result that is asked for. What the iterable
    raises is raised here after the results of the batches before it. A batch that the network does not take, or that
    the device fails on, raises in the place of its result, and the next call goes on behind it. Ctrl-C and what
    ``progress`` raises lose nothing: the next call goes on with the result that was due. (A generator in which Ctrl-C
    arrives has ended, as anywhere in Python.) Batches must not be written before their results are there.

    As a context manager it waits, in the end, for what is still at work. One thread at a time may be in next().
    """

    def __init__(self, network: Network, batches: Iterable[Any], *, in_flight: int = 3, progress: Any = None) -> None:
        from .network import Network

        in_flight = _checks.integer(in_flight, "in_flight", minimum=1)
        if not hasattr(type(batches), "__iter__") and not hasattr(type(batches), "__getitem__"):
            _checks.refuse(batches, "batches", "iterable")
        self._network = _checks.made(_checks.instance(network, "network", Network), "network")
        self._in_flight = in_flight
        # Python handles signals behind calls and jumps, never inside of a function in C nor between two deletions. So
        # that none finds a batch that is nowhere, or in two places, batches go from the iterable into a list in one
        # call, and stay there until their results are handed out. The call at `i` is that of the batch at `i`.
        self._taken: list[Any] = []
        self._calls: list[Any] = []
        self._end: BaseException | None = None  # what is raised behind the last result
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
            return result  # since the deletions nothing has been called
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
        """Take no more batches, and wait for those at work; their results are dropped."""
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
    """How many there are, of those that know."""
    with contextlib.suppress(TypeError):  # some have __len__, and do not know
        return len(batches) if isinstance(batches, Sized) else None
    return None
