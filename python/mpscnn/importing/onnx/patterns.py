# SPDX-License-Identifier: Apache-2.0
"""Patterns of several nodes that exporters write for one function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ops.activation import SOFTPLUS_IS_LINEAR
from .elementwise import is_number

if TYPE_CHECKING:
    from onnx import NodeProto


class Patterns:
    """Finder of patterns of nodes that compute a function of one value.

    The patterns are GELU, x / 2 * (1 + erf(x / sqrt(2))), with its factors in any usual order, and softplus that
    returns x above a threshold where both are equal in float32.

    Parameters
    ----------
    nodes : sequence of NodeProto
    constant : callable
        Takes a name and returns the constant with this name, or None.
    """

    def __init__(self, nodes: Any, constant: Callable[[str], Any]) -> None:
        self._constant = constant
        self._makers: dict[str, NodeProto] = {name: node for node in nodes for name in node.output if name}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self.sources: dict[str, tuple[str, str]] = {}
        """For each such value, "gelu" or "same", and the value that it is a function of."""
        for node in nodes:
            if node.op_type == "Erf" and not node.domain and len(node.input) == 1:
                self._match_gelu(node)
            if node.op_type == "Where" and not node.domain and len(node.input) == 3:
                self._match_softplus(node)

    def readers(self, name: str) -> tuple[str, ...]:
        """Return the operators of the nodes that read a value."""
        return tuple(str(node.op_type) for node in self._readers.get(name, ()))

    def _other(self, node: NodeProto, operator: str, test: Callable[[str], bool]) -> str | None:
        """Return the other operand of a binary node if one passes the test, otherwise None."""
        if node.op_type != operator or node.domain or len(node.input) != 2:
            return None
        for i in (0, 1):
            if test(node.input[i]) and not (operator == "Div" and i == 0):
                return str(node.input[1 - i])
        return None

    def _is(self, number: float) -> Callable[[str], bool]:
        return lambda name: is_number(self._constant(name), number)

    def _only_reader(self, name: str) -> NodeProto | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 else None

    def _match_gelu(self, erf: NodeProto) -> None:
        scaled = self._makers.get(erf.input[0])
        if scaled is None:
            return
        x = self._other(scaled, "Div", self._is(math.sqrt(2))) or self._other(scaled, "Mul", self._is(math.sqrt(0.5)))
        plus = self._only_reader(erf.output[0])
        if x is None or plus is None or self._other(plus, "Add", self._is(1.0)) != erf.output[0]:
            return
        product = self._only_reader(plus.output[0])
        if product is None or product.op_type != "Mul" or len(product.input) != 2:
            return
        factor = self._other(product, "Mul", lambda name: name == plus.output[0])
        if factor is None:
            return
        halved = self._makers.get(factor)
        if halved is not None and factor != x and self._half_of(halved) == x:
            self._found(product, x)  # (x / 2) * (1 + erf)
            return
        last = self._only_reader(product.output[0])
        if last is None:
            return
        if factor == x and self._half_of(last) == product.output[0]:
            self._found(last, x)  # (x * (1 + erf)) / 2
        elif self._is(0.5)(factor) and self._other(last, "Mul", lambda name: name == product.output[0]) == x:
            self._found(last, x)  # x * ((1 + erf) / 2)

    def _half_of(self, node: NodeProto) -> str | None:
        return self._other(node, "Mul", self._is(0.5)) or self._other(node, "Div", self._is(2.0))

    def _found(self, node: NodeProto, x: str) -> None:
        self.sources[node.output[0]] = "gelu", x

    def _match_softplus(self, where: NodeProto) -> None:
        """Match Where(beta * x > threshold, x, softplus(beta * x) / beta)."""
        greater, x, y = (self._makers.get(where.input[0]), where.input[1], where.input[2])
        if greater is None or greater.op_type != "Greater" or len(greater.input) != 2:
            return
        threshold = self._constant(greater.input[1])
        if threshold is None or threshold.dtype.kind != "f" or not threshold.ravel()[0] >= SOFTPLUS_IS_LINEAR:
            return
        argument = greater.input[0]
        softplus = self._makers.get(y)
        if argument != x:
            scaled = self._makers.get(argument)
            beta = next((n for n in scaled.input if n != x), None) if scaled is not None else None
            if scaled is None or beta is None or self._other(scaled, "Mul", lambda name: name == beta) != x:
                return
            if softplus is None or softplus.op_type != "Div" or list(softplus.input)[1:] != [beta]:
                return
            softplus = self._makers.get(softplus.input[0])
        if softplus is not None and softplus.op_type == "Softplus" and list(softplus.input) == [argument]:
            self.sources[where.output[0]] = "same", y
