# SPDX-License-Identifier: Apache-2.0
"""The table of ONNX operators: functions by operator name that add the kernels of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..builder import Tensor
from .node import Call, Value

Handler: TypeAlias = "Callable[[Call], Value | list[Value]]"

OPERATORS: dict[str, Handler] = {}


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Register a function for operators with these names."""

    def put(handler: Handler) -> Handler:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = handler
        return handler

    return put


def unary(name: str, function: Callable[..., Tensor], **attributes: float) -> None:
    """Register an operator of one tensor; `attributes` are its number attributes with their defaults."""

    def run(call: Call) -> Value:
        return function(call.builder, call.tensor(), **{key: call.real(key, v) for key, v in attributes.items()})

    OPERATORS[name] = run
