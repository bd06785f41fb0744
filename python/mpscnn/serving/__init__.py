# SPDX-License-Identifier: Apache-2.0
"""A server of networks with the Open Inference Protocol over HTTP and gRPC: ``mpscnn serve`` (docs/scaling.md)."""

from __future__ import annotations

from .app import make_app
from .batching import Batcher, BusyError
from .models import Model, NetworkModel, Tensor
from .server import serve
from .service import Limits

__all__ = ["Batcher", "BusyError", "Limits", "Model", "NetworkModel", "Tensor", "make_app", "serve"]
