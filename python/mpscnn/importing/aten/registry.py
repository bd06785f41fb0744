# SPDX-License-Identifier: Apache-2.0
"""OPERATORS: functions of a Builder and Arguments, by operator name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from ...errors import InvalidModelError
from ..builder import Builder
from ..torch_arguments import Arguments

Operator: TypeAlias = "Callable[[Builder, Arguments], Any]"

OPERATORS: dict[str, Operator] = {}
Function = TypeVar("Function", bound=Callable[..., Any])


def operator(*names: str) -> Callable[[Function], Function]:
    """Register a function for all overloads of operators with these names."""

    def enter(function: Function) -> Function:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = function
        return function

    return enter


def axis(a: Arguments, name: str) -> int:
    """Return an axis as a non-negative number."""
    dim, rank = a.integer(name), a.source.rank
    if not -rank <= dim < rank:
        raise InvalidModelError(f"{a.builder.origin}: {name} ({dim}) is not one of the {rank} axes.")
    return dim + rank if dim < 0 else dim
