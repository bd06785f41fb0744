# SPDX-License-Identifier: Apache-2.0
"""The table of ONNX operators: name to the function that adds kernels for a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..builder import Tensor
from .node import Call, Value

Handler: TypeAlias = "Callable[[Call], Value | list[Value]]"

OPERATORS: dict[str, Handler] = {}


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Put a function into the table, for the operators of these names."""

    def put(handler: Handler) -> Handler:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = handler
        return handler

    return put


def unary(name: str, function: Callable[..., Tensor], **attributes: float) -> None:
    """Put an operator of one tensor into the table, with numbers of its node as keywords: their defaults."""

    def run(call: Call) -> Value:
        return function(call.builder, call.tensor(), **{key: call.real(key, v) for key, v in attributes.items()})

    OPERATORS[name] = run
