# SPDX-License-Identifier: Apache-2.0
"""A server of networks with the Open Inference Protocol over HTTP and gRPC: ``mpscnn serve`` (docs/scaling.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .batching import Batcher, BusyError
from .models import Model, NetworkModel, Tensor

if TYPE_CHECKING:
    from .app import make_app
    from .server import serve
    from .service import Limits

# Imported when they are asked for: they need the packages of the extra "serve".
_LAZY = {"Limits": "service", "make_app": "app", "serve": "server"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'mpscnn.serving' has no attribute '{name}'")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    return value


__all__ = ["Batcher", "BusyError", "Limits", "Model", "NetworkModel", "Tensor", "make_app", "serve"]
