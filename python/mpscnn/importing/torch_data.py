# SPDX-License-Identifier: Apache-2.0
"""Modules that read or set ``weight.data``, as reparameterized convolutions do that compute their weights when called.

torch.export does not trace it: what is computed from ``weight.data`` would be constants without values.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

from .torch_caches import is_of_module

_LOCK = threading.Lock()
_MODULES: dict[int, list[torch.nn.Module]] = {}  # those that are traced, by thread; the last one is the current one
_DATA: Any = torch.Tensor.data


def _traced() -> torch.nn.Module | None:
    """Return the module that is traced if its own code is the caller's caller."""
    modules = _MODULES.get(threading.get_ident())
    return modules[-1] if modules and is_of_module(sys._getframe(2).f_code.co_filename) else None


def _get(tensor: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _DATA.__get__(tensor) if _traced() is None else tensor.detach()
    return found


def _set(tensor: torch.Tensor, value: torch.Tensor) -> None:
    module = _traced()
    owners = [] if module is None else _owners(module, tensor)
    for attributes, name in owners:
        attributes[name] = value
    if not owners:
        _DATA.__set__(tensor, value)


def _owners(module: torch.nn.Module, tensor: torch.Tensor) -> list[tuple[dict[str, Any], str]]:
    """Return where the parts of a module have a tensor: parameters, buffers and other attributes."""
    named = [attributes for part in module.modules() for attributes in (part._parameters, part._buffers, vars(part))]
    return [(attributes, name) for attributes in named for name, value in attributes.items() if value is tensor]


@contextlib.contextmanager
def traced(module: torch.nn.Module) -> Iterator[None]:
    """Inside of the block, let a trace of a module by this thread have ``weight.data`` as what it is computed from.

    The caller restores the module's attributes.
    """
    thread = threading.get_ident()
    with _LOCK:
        if not _MODULES:
            setattr(torch.Tensor, "data", property(_get, _set))  # noqa: B010  (mypy)
        _MODULES.setdefault(thread, []).append(module)
    try:
        yield
    finally:
        with _LOCK:
            _MODULES[thread].pop()
            if not _MODULES[thread]:
                del _MODULES[thread]
            if not _MODULES:
                del torch.Tensor.data
