# SPDX-License-Identifier: Apache-2.0
"""ONNX operators on whole numbers whose scale is computed: DynamicQuantizeLinear, ConvInteger, MatMulInteger.

ONNX has one scale of all images. A model whose batch is 1 has one for its image, as each image has here.

Sums are computed as floats, which are exact up to `EXACT`. Larger ones are rounded as sums of floats are, and only
accepted if the model converts them to floats, which rounds them too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Tensor, UnmappedError
from ..ops import arithmetic, dynamic_quantization, elementwise
from . import layers
from .node import Alone, Call, Moved, Value
from .table import OPERATORS, operator

EXACT, WRAPS = 1 << 24, 1 << 31
# Winograd's transform has errors of some 1e-6 of the largest sum: rounding removes them up to this sum.
ROUNDED = 1 << 18
DIFFERENCE = 255  # max difference of two numbers of 8 bits


@operator("DynamicQuantizeLinear")
def _dynamic_quantize_linear(call: Call) -> list[Any]:
    x = call.tensor()
    if call.batch != 1:
        size = "any size" if call.batch is None else call.batch
        raise UnmappedError(f"one scale of all images of a batch of {size}; declare a batch of 1 in the model")
    y, scale, zero = dynamic_quantization.quantize(call.builder, x)
    return [y, Alone(scale), Alone(zero)]


def _less_zero(call: Call, index: int, zero_index: int, axis: int | None) -> Tensor | NDArray[Any]:
    """Return the numbers of an input less their zero point, one or, for constants, one for each place along `axis`."""
    numbers, zero = call.any_value(index), call.any_value(zero_index)
    if isinstance(numbers, Tensor):
        if isinstance(zero, Alone):
            own = zero.as_operand(call.builder, numbers.rank)
            return elementwise.of_several(call.builder, arithmetic.subtract, numbers, own)
        zero = call.array(zero_index, "a zero point", None)
        if zero is None or not zero.any():
            return numbers
        if zero.size > 1:
            raise UnmappedError(f"{zero.size} zero points of computed numbers")
        return elementwise.of_several(call.builder, arithmetic.subtract, numbers, _whole(zero).reshape(()))
    array, zero = _whole(call.array(index, "numbers")), call.array(zero_index, "a zero point", None)
    if zero is None:
        return array
    zero = _whole(zero)
    if zero.size == 1:
        return array - zero.reshape(())
    if axis is None or zero.ndim != 1 or not array.ndim or zero.size != array.shape[axis]:
        raise UnmappedError(f"zero points of shape {zero.shape} for numbers of shape {array.shape}")
    return array - zero.reshape([-1 if i == axis % array.ndim else 1 for i in range(array.ndim)])


def _whole(array: NDArray[Any]) -> NDArray[np.float32]:
    if array.dtype.kind not in "iu" or array.dtype.itemsize != 1:
        raise InvalidModelError(f"numbers of type {array.dtype}, not of 8 bits.")
    return array.astype(np.float32)


def _sums(call: Call, y: Value, largest: float, limit: int) -> Value:
    """Return sums of at most `largest`; those that the model does not convert to floats are whole, up to `limit`."""
    if largest >= WRAPS:
        raise UnmappedError(f"sums of up to {largest:.0f}, which wrap beyond {WRAPS - 1}")
    if set(call.readers) == {"Cast"}:
        return y
    if largest > limit:
        raise UnmappedError(
            f"sums of up to {largest:.0f}, which are exact up to {limit} and not converted to floats at once"
        )
    assert isinstance(y, Tensor)
    return y if limit == EXACT else elementwise.unary(call.builder, y, "round")


@operator("ConvInteger")
def _conv_integer(call: Call) -> Value:
    x, weight = _less_zero(call, 0, 2, None), _less_zero(call, 1, 3, 0)
    if not isinstance(x, Tensor) or isinstance(weight, Tensor):
        raise UnmappedError("a constant source" if isinstance(weight, np.ndarray) else "weights that are computed")
    largest = float(np.abs(weight).reshape(len(weight), -1).sum(1, dtype=np.float64).max(initial=0)) * DIFFERENCE
    return _sums(call, layers.convolve(call, x, weight, None), largest, ROUNDED)


@operator("MatMulInteger")
def _matmul_integer(call: Call) -> Value:
    a, b = _less_zero(call, 0, 2, -2), _less_zero(call, 1, 3, -1)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        largest = float(a.shape[-1] if a.shape else 1) * DIFFERENCE**2
    else:
        constant: Any = b if isinstance(a, Tensor) else a
        axis = -2 if isinstance(a, Tensor) and constant.ndim > 1 else -1
        largest = float(np.abs(constant).sum(axis, dtype=np.float64).max(initial=0)) * DIFFERENCE
    y = OPERATORS["MatMul"](call.of_floats("MatMul", [a, b]))
    assert isinstance(y, Tensor)
    return _sums(call, y, largest, EXACT)


# ---- values without the axis of the batch

_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
READ = frozenset({*_ARITHMETIC, "Cast", "Identity", "ConvInteger", "MatMulInteger", "DequantizeLinear"})
"""Operators that take values without the axis of the batch."""


def apply(call: Call) -> Any:
    """Return the result of an operator some of whose inputs are `Alone`."""
    if call.operator not in READ or any(isinstance(value, Moved) for value in list[Any](call.values)):
        raise UnmappedError("a value that is computed of all values of a tensor")
    if call.operator == "DequantizeLinear":
        return _dequantized(call)
    if call.operator in ("ConvInteger", "MatMulInteger"):
        if any(isinstance(call.any_value(i), Alone) for i in (0, 1)):
            raise UnmappedError("a value that is computed of all values of a tensor")
        return OPERATORS[call.operator](call)
    values: list[Any] = list(call.values)
    ranks = [value.rank for value in values if isinstance(value, Tensor)]
    stays = not ranks  # with constants alone
    if stays:
        ranks = [1 + (value.rank if isinstance(value, Alone) else np.ndim(value)) for value in values]
    operands = [value.as_operand(call.builder, max(ranks)) if isinstance(value, Alone) else value for value in values]
    result = OPERATORS[call.operator](call.with_values(operands))
    return Alone(result) if stays and isinstance(result, Tensor) else result


def _dequantized(call: Call) -> Value:
    x = call.tensor()
    parts: list[Any] = []
    for index in (1, 2):
        value = call.any_value(index)
        if isinstance(value, Alone):
            parts.append(value.as_operand(call.builder, x.rank))
        elif isinstance(value, Tensor) or value is None or value.size != 1:
            raise UnmappedError("scales of which some are computed")
        else:
            parts.append(value.reshape(()).astype(np.float32))
    y = elementwise.of_several(call.builder, arithmetic.subtract, x, parts[1])
    return elementwise.of_several(call.builder, arithmetic.multiply, y, parts[0])
