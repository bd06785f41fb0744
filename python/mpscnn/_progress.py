# SPDX-License-Identifier: Apache-2.0
"""Progress bars and callbacks: the argument ``progress`` of long operations."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from . import _checks
from .errors import MissingPackageError


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
