# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of two tensors, or of a tensor and a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from ..ops import arithmetic, general, shape
from ..torch_arguments import Arguments, Operand
from .registry import operator


def _of_two(b: Builder, function: Callable[..., Tensor], first: Operand, second: Operand, **options: Any) -> Tensor:
    """Apply a function of two operands. If they do not broadcast, arrange the smaller one like the larger one."""
    try:
        return function(b, first, second, **options)
    except UnmappedError as error:
        refused = error
    like = first if isinstance(first, Tensor) else second
    if isinstance(first, Tensor) and isinstance(second, Tensor) and first.rank == second.rank:
        like = first if first.size >= second.size else second
        if like.flat is None:
            try:
                one, other = (x if x is like else shape.arrange(b, x, like.axes) for x in (first, second))
                return function(b, one, other, **options)
            except UnmappedError:
                pass
    try:
        if isinstance(first, Tensor) and isinstance(second, Tensor) and first.rank != second.rank:
            raise refused  # the batch of one meets another axis of the other
        operands = [x if isinstance(x, Tensor) else _of_images(x, like) for x in (first, second)]
        return general.binary(b, function, *operands, **options)
    except UnmappedError as error:
        raise refused if str(error) == str(refused) else UnmappedError(f"{refused}; {error}") from None


def _of_images(constant: Any, like: Any) -> NDArray[Any]:
    """Return a constant without the axis of the batch."""
    array: NDArray[Any] = np.asarray(constant)
    other = like if isinstance(like, Tensor) else None
    rank = other.rank if other is not None else array.ndim
    if array.ndim == rank and array.ndim:
        if array.shape[0] != 1:
            raise UnmappedError(f"a constant of shape {array.shape} with values of its own for each image of the batch")
        first: NDArray[Any] = array[0]
        return first
    if array.ndim > rank:
        raise UnmappedError(f"a constant of shape {array.shape} with a tensor of {rank} axes")
    return array


@operator("add")
def _add(b: Builder, a: Arguments) -> Tensor:
    return _of_two(b, arithmetic.add, a.operand("self"), a.operand("other"), alpha=a.number("alpha"))


@operator("sub", "subtract")
def _sub(b: Builder, a: Arguments) -> Tensor:
    return _of_two(b, arithmetic.subtract, a.operand("self"), a.operand("other"), alpha=a.number("alpha"))


@operator("rsub")
def _rsub(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.subtract(b, a.operand("other"), a.operand("self"), alpha=a.number("alpha"))


@operator("mul", "multiply")
def _mul(b: Builder, a: Arguments) -> Tensor:
    return _of_two(b, arithmetic.multiply, a.operand("self"), a.operand("other"))


@operator("div", "divide", "true_divide")
def _div(b: Builder, a: Arguments) -> Tensor:
    a.refuse(rounding_mode=None)
    return _of_two(b, arithmetic.divide, a.operand("self"), a.operand("other"))


@operator("pow")
def _pow(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.pow(b, a.operand("self"), a.operand("exponent"))


@operator("maximum")
def maximum(b: Builder, a: Arguments) -> Tensor:
    """Return the elementwise max; also for aten.max."""
    return arithmetic.maximum(b, a.operand("self"), a.operand("other"))


@operator("minimum")
def minimum(b: Builder, a: Arguments) -> Tensor:
    """Return the elementwise min; also for aten.min."""
    return arithmetic.minimum(b, a.operand("self"), a.operand("other"))


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
