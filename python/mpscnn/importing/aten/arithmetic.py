# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of two tensors, or of a tensor and a constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..builder import Builder, Tensor
from ..ops import arithmetic, elementwise
from ..torch_arguments import Arguments, Operand
from .registry import operator


@operator("add")
def _add(b: Builder, a: Arguments) -> Tensor:
    return elementwise.of_several(b, arithmetic.add, a.operand("self"), a.operand("other"), alpha=a.number("alpha"))


@operator("sub", "subtract")
def _sub(b: Builder, a: Arguments) -> Tensor:
    return elementwise.of_several(
        b, arithmetic.subtract, a.operand("self"), a.operand("other"), alpha=a.number("alpha")
    )


@operator("rsub")
def _rsub(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.subtract(b, a.operand("other"), a.operand("self"), alpha=a.number("alpha"))


@operator("mul", "multiply")
def _mul(b: Builder, a: Arguments) -> Tensor:
    return elementwise.of_several(b, arithmetic.multiply, a.operand("self"), a.operand("other"))


@operator("div", "divide", "true_divide")
def _div(b: Builder, a: Arguments) -> Tensor:
    mode = a.values.get("rounding_mode")
    if mode is not None:
        return elementwise.binary(b, a.operand("self"), a.operand("other"), f"{mode}_divide")
    return elementwise.of_several(b, arithmetic.divide, a.operand("self"), a.operand("other"))


@operator("pow")
def _pow(b: Builder, a: Arguments) -> Tensor:
    return elementwise.pow(b, a.operand("self"), a.operand("exponent"))


def _binary(names: str, kind: str) -> None:
    @operator(*names.split())
    def compute(b: Builder, a: Arguments) -> Tensor:
        return elementwise.binary(b, a.operand("self"), a.operand("other"), kind)


_binary("gt greater", "gt")
_binary("ge greater_equal", "ge")
_binary("lt less", "lt")
_binary("le less_equal", "le")
_binary("eq", "eq")
_binary("ne not_equal", "ne")
_binary("logical_and __and__ bitwise_and", "and")
_binary("logical_or __or__ bitwise_or", "or")
_binary("logical_xor __xor__ bitwise_xor", "xor")
_binary("atan2 arctan2", "atan2")
_binary("fmod", "fmod")
_binary("remainder", "remainder")
_binary("floor_divide", "floor_divide")
_binary("copysign", "copysign")


@operator("heaviside")
def _heaviside(b: Builder, a: Arguments) -> Tensor:
    return elementwise.binary(b, a.operand("self"), a.operand("values"), "heaviside")


@operator("where")
def _where(b: Builder, a: Arguments) -> Tensor:
    condition = a["condition"]
    if isinstance(condition, torch.Tensor) and condition.numel() == 1:
        chosen = a["self" if bool(condition) else "other"]
        if isinstance(chosen, Tensor) and chosen.shape == tuple(map(int, a.shape[1:])):
            return chosen
    return elementwise.where(b, a.operand("condition"), a.operand("self"), a.operand("other"))


@operator("masked_fill")
def _masked_fill(b: Builder, a: Arguments) -> Tensor:
    return elementwise.where(b, a.operand("mask"), a.operand("value"), a.operand("self"))


@operator("maximum")
def maximum(b: Builder, a: Arguments) -> Tensor:
    """Return the elementwise max; also for aten.max."""
    return elementwise.maximum(b, a.operand("self"), a.operand("other"))


@operator("minimum")
def minimum(b: Builder, a: Arguments) -> Tensor:
    """Return the elementwise min; also for aten.min."""
    return elementwise.minimum(b, a.operand("self"), a.operand("other"))


@operator("addcmul")
def _addcmul(b: Builder, a: Arguments) -> Tensor:
    product = _product(b, a.operand("tensor1"), a.operand("tensor2"))
    return arithmetic.add(b, a.operand("self"), product, alpha=a.number("value"))


def _product(b: Builder, first: Operand, second: Operand) -> Operand:
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        return arithmetic.multiply(b, first, second)
    product: NDArray[Any] = np.asarray(first) * np.asarray(second)
    return product


@operator("addcdiv")
def _addcdiv(b: Builder, a: Arguments) -> Tensor:
    first, second = a.operand("tensor1"), a.operand("tensor2")
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        quotient: Operand = arithmetic.divide(b, first, second)
    else:
        quotient = np.asarray(first) / np.asarray(second)
    return arithmetic.add(b, a.operand("self"), quotient, alpha=a.number("value"))


@operator("lerp")
def _lerp(b: Builder, a: Arguments) -> Tensor:
    start, end, weight = (a.operand(name) for name in ("self", "end", "weight"))
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        distance: Operand = arithmetic.subtract(b, end, start)
    else:
        distance = np.asarray(end) - np.asarray(start)
    return arithmetic.add(b, start, _product(b, distance, weight))
