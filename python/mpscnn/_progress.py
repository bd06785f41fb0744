# SPDX-License-Identifier: Apache-2.0
"""Progress bars and callbacks: the argument ``progress`` of long operations; and those that have no such argument."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import _checks
from .errors import MissingPackageError

# Shorter operations show nothing.
PATIENCE_SECONDS = 2.0

_logger = logging.getLogger("mpscnn")


def shower(progress: Any, total: int | None, unit: str) -> tuple[Callable[..., object], Callable[[], object]]:
    """Return two functions: update(done, text="") with the number of completed units, and close().

    A bar shows the text; a callable does not receive it.

    Parameters
    ----------
    progress : bool, callable or None
        True: show a tqdm bar. A callable is called with the number of completed units and the total, or None.
    """
    if progress is None or progress is False:
        return lambda done, text="": None, lambda: None
    if progress is True:
        try:
            tqdm = importlib.import_module("tqdm.auto").tqdm  # tqdm has no type annotations
        except ModuleNotFoundError:
            raise MissingPackageError("progress=True", "tqdm") from None
        bar, shown = tqdm(total=total, unit=unit), 0

        def update(done: int, text: str = "") -> None:
            nonlocal shown
            if text:
                bar.set_postfix_str(text, refresh=False)
            bar.update(done - shown)
            shown = done

        return update, bar.close
    if not callable(progress):
        _checks.refuse(progress, "progress", "a bool, a callable or None")
    return lambda done, text="": progress(done, total), lambda: None


@contextlib.contextmanager
def shown(text: str) -> Iterator[None]:
    """Show what the block does and the seconds passed, on stderr if that is a terminal, if it takes longer than two.

    The text is erased at the end. The logger "mpscnn" has it with the seconds it took, at level INFO.
    """
    stream, began, ended = sys.stderr, time.monotonic(), threading.Event()

    def show() -> None:
        wait = PATIENCE_SECONDS
        while not ended.wait(wait):
            stream.write(f"\r{text} ({time.monotonic() - began:.0f} s)\x1b[K")
            stream.flush()
            wait = 1.0
        if wait != PATIENCE_SECONDS:
            stream.write("\r\x1b[K")
            stream.flush()

    is_terminal = stream is not None and stream.isatty()
    thread = threading.Thread(target=show, name="mpscnn progress", daemon=True) if is_terminal else None
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread is not None:
            thread.join()
        _logger.info("%s: %.1f s", text, time.monotonic() - began)
