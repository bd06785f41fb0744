# SPDX-License-Identifier: Apache-2.0
"""Quantized ONNX operators.

Numbers of 8 bits between QuantizeLinear and DequantizeLinear are images of uint8, which hold q / 255: one linear
function converts values to numbers, another one converts numbers to values, and the image rounds and clamps. The CPU
engine computes with the numbers themselves; on other devices kernels compute with the values. Where an operator
reads the numbers, they are floats with the same whole values. Weights are dequantized at import. Results differ from
those of an 8-bit program where float32's rounding moves a value across the middle between two steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import arithmetic, convolution, elementwise
from .layers import convolve
from .node import Call, Value
from .reading import DTYPES, dtype_name
from .table import operator


def _along(values: NDArray[Any], rank: int, axis: int, name: str) -> NDArray[np.float32]:
    """Return one number, or numbers along an axis, in a shape that broadcasts with a tensor."""
    numbers = values.astype(np.float32)
    if numbers.size == 1:
        return numbers.reshape(())
    if numbers.ndim != 1:
        raise UnmappedError("blocks of quantized values")
    axis %= rank
    if axis == 0:
        raise InvalidModelError(f"{name}: a scale for each image of the batch.")
    return numbers.reshape((-1, *[1] * (rank - 1 - axis)))


def _scale_and_zero(call: Call, x: Tensor, first: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32], Any]:
    if call.integer("block_size", 0):
        raise UnmappedError("blocks of quantized values")
    axis = call.integer("axis", 1)
    zero = call.array(first + 1, "a zero point", None)
    scale = _along(call.weights(first, "scales"), x.rank, axis, call.name)
    offset = np.zeros((), np.float32) if zero is None else _along(zero, x.rank, axis, call.name)
    return scale, offset, None if zero is None else zero.dtype


class _Numbers:
    """Tensors of whole numbers, and the same numbers as images of uint8, for one graph."""

    def __init__(self) -> None:
        self.images: dict[str, tuple[Tensor, int]] = {}  # by the name of the whole numbers: image, offset of its zero
        self.values: dict[tuple[str, float, float], Tensor] = {}  # dequantized images


_NUMBERS: WeakKeyDictionary[Builder, _Numbers] = WeakKeyDictionary()


def _quantized(call: Call, x: Tensor, scale: NDArray[Any], zero: NDArray[Any], dtype: np.dtype[Any]) -> Tensor:
    """Return whole numbers, and remember them as an image of uint8. The graph drops the one that nothing reads."""
    y = _whole_numbers(call, x, scale, zero, dtype)
    if dtype.itemsize == 1 and scale.size == zero.size == 1 and float(scale.reshape(())) > 0:
        step, offset = float(scale.reshape(())), -np.iinfo(dtype).min
        a, b = 1 / (255 * step), (float(zero.reshape(())) + offset) / 255
        image = call.builder.add("NeuronLinear", x, a=a, b=b, result_dtype="uint8")
        _NUMBERS.setdefault(call.builder, _Numbers()).images[y.value.name] = image, offset
    return y


def _whole_numbers(call: Call, x: Tensor, scale: NDArray[Any], zero: NDArray[Any], dtype: np.dtype[Any]) -> Tensor:
    """Return round(x / scale) + zero, within the range of the type."""
    if dtype.kind not in "iu":
        raise UnmappedError(f"values quantized as {dtype}")
    b, limits = call.builder, np.iinfo(dtype)
    y = elementwise.of_several(b, arithmetic.divide, x, scale) if (scale != 1).any() else x
    y = elementwise.unary(b, y, "round")
    y = elementwise.of_several(b, arithmetic.add, y, zero) if zero.any() else y
    return arithmetic.clamp(b, y, float(limits.min), float(limits.max))


def _dequantized(call: Call, x: Tensor, scale: NDArray[Any], zero: NDArray[Any]) -> Tensor:
    b = call.builder
    known = _NUMBERS.get(b)
    if known and x.value.name in known.images and scale.size == zero.size == 1:
        image, offset = known.images[x.value.name]
        step, nought = float(scale.reshape(())), float(zero.reshape(())) + offset
        key = image.value.name, step, nought
        if key not in known.values:
            known.values[key] = b.add("NeuronLinear", image, a=255 * step, b=-nought * step)
        return replace(known.values[key], axes=x.axes, flat=x.flat)
    y = elementwise.of_several(b, arithmetic.subtract, x, zero) if zero.any() else x
    return elementwise.of_several(b, arithmetic.multiply, y, scale)


@operator("QuantizeLinear")
def _quantize_linear(call: Call) -> Value:
    x = call.tensor()
    scale, zero, dtype = _scale_and_zero(call, x)
    if dtype is None:
        number = call.integer("output_dtype", 0) or 2
        dtype = DTYPES.get(number)
        if dtype is None:
            raise UnmappedError(f"values quantized as {dtype_name(number)}")
    return _quantized(call, x, scale, zero, dtype)


@operator("DequantizeLinear")
def _dequantize_linear(call: Call) -> Value:
    x = call.tensor()
    scale, zero, _ = _scale_and_zero(call, x)
    return _dequantized(call, x, scale, zero)


def _weights(call: Call, first: int, axis: int) -> NDArray[np.float32]:
    """Return dequantized weights; scales and zero points are numbers, or along `axis`."""
    weights, scale = call.array(first, "weights"), call.weights(first + 1, "scales")
    zero = call.array(first + 2, "a zero point", None)
    shape = [1] * weights.ndim
    shape[axis] = -1

    def placed(values: NDArray[Any]) -> NDArray[np.float64]:
        numbers = values.astype(np.float64)
        return numbers.reshape(()) if numbers.size == 1 else numbers.reshape(shape)

    offset = np.zeros(()) if zero is None else placed(zero)
    return ((weights.astype(np.float64) - offset) * placed(scale)).astype(np.float32)


def _result(call: Call, y: Tensor, scale_index: int) -> Tensor:
    scale, zero = call.weights(scale_index, "scales"), call.array(scale_index + 1, "a zero point")
    return _quantized(call, y, scale.reshape(()), zero.astype(np.float32).reshape(()), zero.dtype)


@operator("QLinearConv")
def _qlinear_conv(call: Call) -> Value:
    x = call.tensor()
    scale, zero = call.weights(1, "scales").reshape(()), call.array(2, "a zero point").astype(np.float32).reshape(())
    weight, bias = _weights(call, 3, 0), call.array(8, "a bias", None)
    if bias is not None:
        # The bias has the step of the products, x_scale * w_scale.
        bias = (bias.astype(np.float64) * float(scale) * call.weights(4, "scales").reshape(-1)).astype(np.float32)
    x = _dequantized(call, x, scale, zero)
    return _result(call, convolve(call, x, weight, bias), 6)


@operator("QLinearMatMul")
def _qlinear_matmul(call: Call) -> Value:
    x = call.tensor()
    scale, zero = call.weights(1, "scales").reshape(()), call.array(2, "a zero point").astype(np.float32).reshape(())
    weight = _weights(call, 3, -1)
    if weight.ndim != 2 or x.rank < 2:
        raise UnmappedError(f"a product with weights {weight.shape} of a tensor of {x.rank} axes")
    y = convolution.linear(call.builder, _dequantized(call, x, scale, zero), np.ascontiguousarray(weight.T))
    return _result(call, y, 6)
