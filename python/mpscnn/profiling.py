# SPDX-License-Identifier: Apache-2.0
"""profile(): when kernels were encoded, and when they ran."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from . import _checks, _core
from ._html import table as html_table

_COLUMNS = ("name", "kernel", "calls", "ms", "share")


@dataclass(frozen=True)
class Event:
    """A stretch of time.

    Attributes
    ----------
    name : str
        Of the node of the network, or the label of the command buffer.
    kernel : str
        The kernel's name; empty for a command buffer of several.
    kind : "encode" or "execute"
        On the thread that called, or on the device.
    start, end : float, seconds
        On one clock for all events.
    command_buffer : int
        Numbered from 1.
    thread : int
        That encoded it.
    """

    name: str
    kernel: str
    kind: Literal["encode", "execute"]
    start: float
    end: float
    command_buffer: int
    thread: int

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.start


class profile(_checks.Made):  # noqa: N801  (called like a function: with mpscnn.profile() as p)
    """Collects the times of what is run inside of a ``with`` block, by any thread.

    Parameters
    ----------
    per_kernel : bool, default True
        Networks encode every kernel on a command buffer of its own, so that each has times of its own. What a device
        fuses within a command buffer is not fused then, and images are not temporary: the whole takes longer than it
        does without. False: one event for each command buffer, at its usual speed.

    Raises
    ------
    RuntimeError
        "profile: another profile collects already; there is one at a time."
    TypeError
        "per_kernel (int) is not True or False."

    Source
    ------
    Metal/MTLCommandBuffer.h, GPUStartTime and GPUEndTime.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> with mpscnn.profile() as p:
    ...     y = mpscnn.NeuronReLU()(np.ones((1, 8, 8, 4), np.float32))
    >>> [event.kind for event in p.events]
    ['encode', 'execute']
    """

    def __init__(self, *, per_kernel: bool = True) -> None:
        self._core = _core._Profile(_checks.boolean(per_kernel, "per_kernel"))

    def __enter__(self) -> profile:
        self._core.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._core.stop()

    def __repr__(self) -> str:
        return "<mpscnn.profile>" if vars(self) else "<mpscnn.profile, not made>"

    @property
    def events(self) -> list[Event]:
        """What has been collected so far, by the time of its beginning."""
        return sorted((Event(*event) for event in self._core.events()), key=lambda event: (event.start, event.end))

    def table(self) -> str:
        """Time on the device by kernel of each network, the longest first.

        Returns
        -------
        str
            A line for each, under a heading: name, kernel, calls, milliseconds, share of the whole.
        """
        rows = self._rows()
        width = max((len(row[0]) for row in rows), default=4)
        return "\n".join(
            f"{name:<{width}}  {kernel:<24} {calls:>6} {ms:>10} {share:>7}"
            for name, kernel, calls, ms, share in [_COLUMNS, *rows]
        )

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        times: dict[tuple[str, str], list[float]] = {}
        for event in self.events:
            if event.kind == "execute":
                times.setdefault((event.name or "command buffer", event.kernel), []).append(event.duration)
        total = sum(map(sum, times.values())) or 1.0
        return [
            (name, kernel, str(len(each)), f"{sum(each) * 1e3:.3f}", f"{sum(each) / total:.1%}")
            for (name, kernel), each in sorted(times.items(), key=lambda row: -sum(row[1]))
        ]

    def _repr_html_(self) -> str | None:
        """The table, in a notebook."""
        return html_table(_COLUMNS, self._rows(), right=3) if vars(self) else None

    def trace(self) -> dict[str, Any]:
        """The events in Chrome's trace format, which https://ui.perfetto.dev shows.

        Returns
        -------
        dict
            For json.dump(): "traceEvents", times in microseconds from the first event on; one track for the device and
            one for each thread that encoded.
        """
        events = self.events
        origin = events[0].start if events else 0.0
        threads = {thread: number for number, thread in enumerate(dict.fromkeys(event.thread for event in events))}
        tracks = [(0, "device")] + [(1 + number, f"thread {number + 1}: encode") for number in threads.values()]
        return {
            "displayTimeUnit": "ms",
            "traceEvents": [
                {"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": name}}
                for track, name in tracks
            ]
            + [
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": 0 if event.kind == "execute" else 1 + threads[event.thread],
                    "ts": (event.start - origin) * 1e6,
                    "dur": event.duration * 1e6,
                    "name": event.name or event.kernel or "command buffer",
                    "cat": event.kind,
                    "args": {"kernel": event.kernel, "command_buffer": event.command_buffer},
                }
                for event in events
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `trace()` to a file.

        Parameters
        ----------
        path : path
            JSON, UTF-8; written over if it exists.

        Raises
        ------
        TypeError
            "path (int) is not a path."
        OSError
            The file cannot be written.
        """
        _checks.path(path, "path")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.trace(), file)
