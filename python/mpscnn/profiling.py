# SPDX-License-Identifier: Apache-2.0
"""Recording of encode and execution times of kernels: profile()."""

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
    """Time interval of an encode, or of an execution on the device.

    Attributes
    ----------
    name : str
        Name of the network's node, or label of the command buffer.
    kernel : str
        Name of the kernel; empty for a command buffer of several kernels.
    kind : "encode" or "execute"
        Encoded on the calling thread, or executed on the device.
    start, end : float, seconds
        All events use the same clock.
    command_buffer : int
        Numbered from 1.
    thread : int
        The encoding thread.
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
        """Duration in seconds."""
        return self.end - self.start


class profile(_checks.Made):  # noqa: N801  (called like a function: with mpscnn.profile() as p)
    """Context manager that records the times of all kernels run inside of a ``with`` block, on any thread.

    Parameters
    ----------
    per_kernel : bool, default True
        Encode each kernel of a network on a separate command buffer, to time each kernel. This prevents fusion within
        a command buffer and temporary images, so networks are slower. False: one event per command buffer, at the usual
        speed.

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
        """The events recorded so far, in order of start time."""
        return sorted((Event(*event) for event in self._core.events()), key=lambda event: (event.start, event.end))

    def table(self) -> str:
        """Return the device time of each kernel of each network, longest first.

        Returns
        -------
        str
            A header, and a line per kernel: name, kernel, calls, milliseconds, share of the total.
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
        """Return the table, for notebooks."""
        return html_table(_COLUMNS, self._rows(), right=3) if vars(self) else None

    def trace(self) -> dict[str, Any]:
        """Return the events in Chrome's trace format, which https://ui.perfetto.dev shows.

        Returns
        -------
        dict
            For json.dump(): "traceEvents", times in microseconds since the first event; one track for the device and
            one for each encoding thread.
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
            JSON, UTF-8; overwritten if it exists.

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
