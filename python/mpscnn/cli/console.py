# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .options import State

# Shorter operations show no progress.
_PATIENCE_SECONDS = 2.0


def end_by_sigpipe() -> None:
    """End the process on SIGPIPE, like other programs. GNUstep ignores SIGPIPE once a device exists."""
    if State.is_process:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def stdout() -> Console:
    """Return the console for results. Lines wrap only on a terminal."""
    end_by_sigpipe()
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=240)


def stderr() -> Console:
    """Return the console for messages and progress."""
    end_by_sigpipe()
    return Console(stderr=True, highlight=False)


def _text(text: str, **style: Any) -> Text:
    """Return the text without markup. Undecodable bytes of file names are shown as escapes."""
    return Text(text.encode("utf-8", "backslashreplace").decode("utf-8"), **style)


def say(text: str) -> None:
    """Print a message."""
    stderr().print(_text(text), soft_wrap=True)


def write(text: str = "") -> None:
    """Print a line of the result."""
    stdout().print(_text(text), soft_wrap=True)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON.")


def write_json(value: Any) -> None:
    """Write the whole result to stdout. Infinity and NaN, which JSON lacks, become null."""
    end_by_sigpipe()
    json.dump(_finite(value), sys.stdout, indent=2, default=_plain, allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return None
    return value


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    totals: Sequence[str] = (),
    *,
    right: int = 0,
    less_important: Sequence[str] = (),
) -> Table:
    """Return a table whose last `right` columns are numbers; narrow terminals drop the less important columns."""
    numeric = set(header[len(header) - right :])
    lines = [list(line) for line in (header, *rows, *([totals] if totals else []))]
    for name in less_important:
        widths = [max(len(line[number]) for line in lines) for number in range(len(lines[0]))]
        if sum(widths) + 3 * len(widths) <= stdout().width:
            break
        number = lines[0].index(name)
        for line in lines:
            del line[number]
    header, rows, totals = lines[0], lines[1 : 1 + len(rows)], lines[1 + len(rows)] if totals else ()
    made = Table(box=box.SIMPLE_HEAD, show_footer=bool(totals), pad_edge=False, header_style="bold")
    for number, name in enumerate(header):
        made.add_column(
            _text(name),
            _text(totals[number]) if totals else "",
            justify="right" if name in numeric else "left",
            overflow="fold",
            footer_style="bold",
        )
    for row in rows:
        made.add_row(*map(_text, row))
    return made


def pairs(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of names and values."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in rows:
        made.add_row(_text(name, style="dim"), _text(value, overflow="fold"))
    return made


@contextmanager
def progress(text: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Show a bar on stderr if the block takes longer than two seconds; yield a function that sets the progress."""
    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if total is not None:
        columns += [BarColumn(), MofNCompleteColumn() if total > 1 else TextColumn("{task.percentage:.0f} %")]
    bar = Progress(*columns, TimeElapsedColumn(), console=stderr(), transient=True)
    task = bar.add_task(_text(text).plain, total=total)
    timer = threading.Timer(_PATIENCE_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done: bar.update(task, completed=done)
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:  # otherwise it would write an empty line
            bar.stop()
