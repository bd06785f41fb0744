# SPDX-License-Identifier: Apache-2.0
"""Stream: a network on one batch after another."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _checks
from .errors import MissingPackageError

if TYPE_CHECKING:
    from .network import Network


class Stream(_checks.Made, Iterator[Any]):
    """Results of a network, in the order of the batches; made by `Network.stream`.

    At most ``in_flight`` batches are taken from the iterable ahead of the result that is asked for. What the iterable
    raises is raised here after the results of the batches before it. An exception out of ``next()``, Ctrl-C among them,
    loses nothing: the next call goes on with the result that was due. Batches must not be written before their results
    are there. As a context manager it waits, in the end, for what is still at work.
    """

    def __init__(self, network: Network, batches: Iterable[Any], *, in_flight: int = 3, progress: Any = None) -> None:
        from .network import Network

        in_flight = _checks.integer(in_flight, "in_flight", minimum=1)
        if not hasattr(type(batches), "__iter__") and not hasattr(type(batches), "__getitem__"):
            _checks.refuse(batches, "batches", "iterable")
        self._network = _checks.made(_checks.instance(network, "network", Network), "network")
        self._batches = iter(batches)
        self._in_flight = in_flight
        self._calls: deque[Any] = deque()
        self._batch: list[Any] = []  # taken and not at work yet
        self._end: BaseException | None = None
        total = len(batches) if isinstance(batches, Sized) else None
        self._done = 0
        self._show, self._close = _progress(progress, total)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        self._fill()
        if not self._calls:
            self._close()
            end, self._end = self._end, StopIteration()
            raise end if end is not None else StopIteration
        results = self._calls[0].wait()
        self._calls.popleft()
        self._done += 1
        self._show(self._done)
        return results[0] if len(results) == 1 else tuple(results)

    def _fill(self) -> None:
        while self._end is None and len(self._calls) < self._in_flight:
            if not self._batch:
                try:
                    self._batch.append(next(self._batches))
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    self._end = error
                    return
            try:
                call = self._network._submit(self._batch[0])
            except Exception as error:
                self._batch.clear()
                self._end = error
                return
            self._calls.append(call)
            self._batch.clear()

    def close(self) -> None:
        """Take no more batches, and wait for those at work; their results are dropped."""
        self._end = StopIteration()
        self._batch.clear()
        while self._calls:
            self._calls[0].wait()
            self._calls.popleft()
        self._close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _progress(progress: Any, total: int | None) -> tuple[Callable[[int], object], Callable[[], object]]:
    """What to call after each result, and in the end."""
    if progress is None or progress is False:
        return lambda done: None, lambda: None
    if progress is True:
        try:
            tqdm = importlib.import_module("tqdm.auto").tqdm  # not imported by name: it has no types
        except ModuleNotFoundError:
            raise MissingPackageError("progress=True", "tqdm", "progress") from None
        bar = tqdm(total=total, unit="batch")
        return lambda done: bar.update(), bar.close
    if not callable(progress):
        _checks.refuse(progress, "progress", "a bool, a callable or None")
    return lambda done: progress(done, total), lambda: None
