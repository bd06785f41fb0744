# SPDX-License-Identifier: Apache-2.0
"""Modules that free the memory of their tensors, as reversible networks do.

torch.export cannot trace ``x.set_()`` or ``x.untyped_storage().resize_(0)``. What is freed is not read again, so
the result of a module that keeps the memory is the same.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

_LOCK = threading.Lock()
_THREADS: list[int] = []  # those in a block, once for each block
_REPLACED: dict[tuple[Any, str], Any] = {}  # methods by class and name, while there are such threads; None: inherited


def _is_freed(name: str, args: tuple[Any, ...]) -> bool:
    """Return whether a call of a method frees all memory: set_() or resize_(0)."""
    return args == (() if name == "set_" else (0,))


def _method(name: str, before: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() in _THREADS and not kwargs and _is_freed(name, args):
            return self
        return before(self, *args, **kwargs)

    return method


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Let calls of this thread that free the memory of tensors have no effect inside of the block."""
    thread = threading.get_ident()
    with _LOCK:
        if not _THREADS:
            for kind, name in _METHODS:
                _REPLACED[kind, name] = vars(kind).get(name)
                setattr(kind, name, _method(name, getattr(kind, name)))
        _THREADS.append(thread)
    try:
        yield
    finally:
        with _LOCK:
            _THREADS.remove(thread)
            if not _THREADS:
                for (kind, name), before in _REPLACED.items():
                    if before is None:
                        delattr(kind, name)
                    else:
                        setattr(kind, name, before)


_METHODS = ((torch.Tensor, "set_"), (torch.UntypedStorage, "resize_"), (torch.TypedStorage, "resize_"))
