# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of tensors, numbers and arrays with NumPy's broadcasting, and elementwise functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...graph import CHANNEL_LIMIT, EXTENT_LIMIT
from ..builder import Builder, Tensor, UnmappedError, as_image
from . import general, shape

Constant: TypeAlias = "float | int | NDArray[Any]"
Operand: TypeAlias = "Tensor | Constant"

WEIGHTS_LIMIT = 1 << 26  # max values of generated weights


def _described(tensor: Tensor) -> str:
    return f"{tensor.axes} {tensor.shape}"


def align(builder: Builder, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return both with the same axes, broadcast as in NumPy. UnmappedError if that requires transposing an image."""
    if a.flat is not None or b.flat is not None:
        same = (a.height, a.width, a.channels) == (b.height, b.width, b.channels)
        if a.flat == b.flat and a.axes == b.axes and same:
            return a, b
        a, b = as_image(a), as_image(b)
    if a.rank != b.rank:
        raise UnmappedError(f"tensors of {a.rank} and {b.rank} axes: the batch of one meets another axis of the other")
    if a.axes == b.axes:
        _broadcast(a.shape, b.shape)
        return a, b
    # An axis of extent 1 matches any: each position takes the letter of the tensor with the larger extent.
    letters = ["N"]
    for i in range(1, a.rank):
        one, other = a.axes[i], b.axes[i]
        extents = a.extent(one), b.extent(other)
        if one != other and extents[0] > 1 and extents[1] > 1:
            raise UnmappedError(f"tensors whose axes are in another order: {_described(a)} and {_described(b)}")
        letters.append(other if extents[0] == 1 and extents[1] > 1 else one if extents[0] > 1 else "")
    for i, letter in enumerate(letters):
        if not letter:
            free = [c for c in (a.axes[i], b.axes[i], *"CHW") if c not in letters]
            letters[i] = free[0]
    axes = "".join(letters)
    if len(set(axes)) != len(axes):
        raise UnmappedError(f"tensors whose axes are in another order: {_described(a)} and {_described(b)}")
    _broadcast(a.shape, b.shape)
    for x in (a, b):
        for was, now in zip(x.axes, axes, strict=True):
            if was != now and not builder.is_constant(x, was):
                builder.fix()  # the axis has extent 1 only here
    return replace(a, axes=axes), replace(b, axes=axes)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise UnmappedError(f"shapes {a} and {b} behind the batch do not broadcast") from None


def _of_same_parts(builder: Builder, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]] | None:
    """Return two tensors whose channels were taken apart alike as images, and the shape of a result; None for others.

    One of them may have a single pixel.
    """
    large, small = (a, b) if a.size >= b.size else (b, a)
    count = shape.parts_of_channels(large)
    if count < 2 or small.flat is None or small.rank != large.rank or small.flat[:count] != large.shape[:count]:
        return None
    if shape.parts_of_channels(small) == count and small.axes == large.axes:
        one = replace(small, flat=None)
    elif small.size == large.channels and all(builder.is_constant(small, axis) for axis in "HW"):
        one = replace(general.store(builder, small, (1, 1, small.size)), axes=large.axes, flat=None)
    else:
        return None
    found = [replace(large, flat=None) if x is large else one for x in (a, b)]
    return found[0], found[1], large.shape


def _binary(builder: Builder, kernel: str, a: Tensor, b: Tensor, **arguments: Any) -> Tensor:
    parts = _of_same_parts(builder, a, b) if a.flat != b.flat or a.axes != b.axes else None
    if parts is not None:
        return replace(_binary(builder, kernel, parts[0], parts[1], **arguments), flat=parts[2])
    a, b = align(builder, a, b)
    return builder.add(
        kernel,
        a,
        b,
        height=max(a.height, b.height),
        width=max(a.width, b.width),
        channels=max(a.channels, b.channels),
        **arguments,
    )


def as_float32(constant: Constant) -> NDArray[np.float32]:
    """Return the constant as float32; UnmappedError for complex numbers and text."""
    array = np.asarray(constant)
    if array.dtype.kind not in "fiub" and array.dtype.name not in ("bfloat16",):
        raise UnmappedError(f"a constant of type {array.dtype}")
    with np.errstate(over="ignore"):
        return np.asarray(array, np.float32)


def _placed(tensor: Tensor, constant: Constant) -> NDArray[np.float32]:
    """Return the constant with an extent (1 or the tensor's) per axis after the batch; UnmappedError if it has more."""
    array = as_float32(constant)
    if array.size == 1 and array.ndim <= tensor.rank:
        return array.reshape((1,) * (tensor.rank - 1))
    if array.ndim > tensor.rank:
        raise UnmappedError(f"a constant of shape {array.shape} with a tensor of {tensor.rank} axes")
    shape = [1] * (tensor.rank - array.ndim) + list(array.shape)
    if shape[0] != 1:
        raise UnmappedError(f"a constant of shape {array.shape} with values of its own for each image of the batch")
    array = array.reshape(shape[1:])
    _broadcast(tensor.shape, array.shape)
    return array


def _by_axis(tensor: Tensor, array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the array as (H, W, C), each 1 or the image's extent."""
    missing = [letter for letter in "HWC" if letter not in tensor.axes]
    array = array.reshape(array.shape + (1,) * len(missing))
    order = tensor.axes[1:] + "".join(missing)
    return np.transpose(array, [order.index(letter) for letter in "HWC"])


def _split(builder: Builder, tensor: Tensor, constant: Constant) -> tuple[Tensor, NDArray[np.float32], str]:
    """Return the tensor, the constant as an array, and its kind: "scalar", (1,), "channels", (C,), or "image"."""
    array = _placed(tensor, constant)
    if array.size > 1 and (array == array.flat[0]).all() and _broadcast(tensor.shape, array.shape) == tensor.shape:
        array = array.ravel()[:1].reshape((1,) * array.ndim)  # all numbers are equal
    if array.size == 1:
        return tensor, array.reshape(1), "scalar"
    if tensor.flat is not None:
        if array.shape != tensor.flat:
            tensor = as_image(tensor)
        else:
            builder.fix_unless_constant(tensor)
            extents = tuple(tensor.extent(axis) for axis in tensor.axes[1:])
            array = array.reshape(extents)
    image = _by_axis(tensor, array)
    if image.shape[:2] == (1, 1) and image.shape[2] == tensor.channels:
        return tensor, image.reshape(-1), "channels"
    return tensor, image, "image"


def constant_image(builder: Builder, like: Tensor, image: NDArray[np.float32]) -> Tensor:
    """Return constants, (H, W, C), as a tensor with the batch of `like`: the bias of a layer with weights of 0."""
    height, width, channels = image.shape
    if image.size > CHANNEL_LIMIT and max(height, width) <= EXTENT_LIMIT and channels <= CHANNEL_LIMIT:
        y = general.constant(builder, like, image)
        return replace(y, axes="NHWC", flat=None)
    if max(height, width) > EXTENT_LIMIT or image.size > CHANNEL_LIMIT:
        raise UnmappedError(
            f"a constant of {height} x {width} pixels and {channels} channels, more than the maximum"
            f" ({EXTENT_LIMIT} x {EXTENT_LIMIT}, {CHANNEL_LIMIT} values)"
        )
    builder.fix_unless_constant(like, "H" * (height > 1) + "W" * (width > 1))
    one = builder.add("Slice", like, size=1, source_feature_channel_max_count=1, height=1, width=1, channels=1)
    one = builder.add("NeuronSigmoid", one)  # finite even if the source is infinite
    size = image.size
    flat = builder.add(
        "FullyConnected",
        one,
        height=1,
        width=1,
        channels=size,
        weight=np.zeros((size, 1), np.float32),
        bias=np.ascontiguousarray(image, np.float32).reshape(-1),
    )
    if (height, width) == (1, 1):
        return flat
    return builder.add("Reshape", flat, shape=(height, width, channels), height=height, width=width, channels=channels)


def _affine(builder: Builder, tensor: Tensor, scale: NDArray[np.float32], shift: NDArray[np.float32]) -> Tensor:
    """Return scale[c] * x + shift[c], for arrays of shape (1,) or (C,)."""
    if scale.size == shift.size == 1:
        a, b = float(scale[0]), float(shift[0])
        if (a, b) == (1.0, 0.0):
            return tensor
        return builder.add("NeuronLinear", tensor, a=a, b=b)
    zeros, ones = np.zeros(tensor.channels, np.float32), np.ones(tensor.channels, np.float32)
    y = builder.add(
        "BatchNormalization", tensor, gamma=scale * ones, beta=shift + zeros, mean=zeros, variance=ones, epsilon=0.0
    )
    return builder.in_trainer(y, statistics="none")


ONE, ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)
_Line: TypeAlias = "Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], NDArray[np.float32]]]"


def _with_constant(
    builder: Builder, kernel: str, tensor: Tensor, constant: Constant, line: _Line | None, *, first: bool = False
) -> Tensor:
    """Return a binary kernel's result for a tensor and a constant; `first`: the constant is the first operand.

    `line` returns scale and shift if the result is affine in the tensor.
    """
    tensor, array, kind = _split(builder, tensor, constant)
    if line is not None and kind != "image":
        with np.errstate(divide="ignore"):
            return _affine(builder, tensor, *line(array))
    image = array.reshape(1, 1, -1) if kind != "image" else array
    other = replace(constant_image(builder, tensor, image), axes=tensor.axes, flat=tensor.flat)
    return _binary(builder, kernel, other, tensor) if first else _binary(builder, kernel, tensor, other)


def _tensors(name: str, a: Operand, b: Operand) -> None:
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        raise TypeError(f"{name}: neither a ({type(a).__name__}) nor b ({type(b).__name__}) is a Tensor.")


def add(builder: Builder, a: Operand, b: Operand, *, alpha: float = 1.0) -> Tensor:
    """Return the sum, a + alpha * b."""
    _tensors("add", a, b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _binary(builder, "Add", a, b, **({} if alpha == 1 else {"secondary_scale": float(alpha)}))
    if isinstance(a, Tensor):
        return _with_constant(builder, "Add", a, as_float32(b) * np.float32(alpha), lambda c: (ONE, c))  # type: ignore[arg-type]
    assert isinstance(b, Tensor)
    return _with_constant(builder, "Add", multiply(builder, b, alpha), a, lambda c: (ONE, c))


def subtract(builder: Builder, a: Operand, b: Operand, *, alpha: float = 1.0) -> Tensor:
    """Return the difference, a - alpha * b."""
    _tensors("subtract", a, b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _binary(builder, "Subtract", a, b, **({} if alpha == 1 else {"secondary_scale": float(alpha)}))
    if isinstance(a, Tensor):
        return add(builder, a, -as_float32(b) * np.float32(alpha))  # type: ignore[arg-type]
    assert isinstance(b, Tensor)
    if alpha != 1:
        b = multiply(builder, b, alpha)
    return _with_constant(builder, "Subtract", b, a, lambda c: (-ONE, c), first=True)


def multiply(builder: Builder, a: Operand, b: Operand) -> Tensor:
    """Return the product."""
    _tensors("multiply", a, b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _binary(builder, "Multiply", a, b)
    tensor, constant = (a, b) if isinstance(a, Tensor) else (b, a)
    return _with_constant(builder, "Multiply", tensor, constant, lambda c: (c, ZERO))  # type: ignore[arg-type]


def divide(builder: Builder, a: Operand, b: Operand) -> Tensor:
    """Return the quotient, by true division."""
    _tensors("divide", a, b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _binary(builder, "Divide", a, b)
    if isinstance(a, Tensor):
        divisor = as_float32(b)  # type: ignore[arg-type]
        is_subnormal = (divisor != 0) & (np.abs(divisor) < np.finfo(np.float32).tiny)
        if is_subnormal.any():  # constants are biases of convolutions, which take subnormal numbers as zeros
            scale = np.where(is_subnormal, np.float32(2.0**64), ONE)  # if a * scale is infinite, so is the quotient
            return divide(builder, multiply(builder, a, scale), divisor * scale)
        with np.errstate(all="ignore"):
            factor = np.asarray(1 / divisor.astype(np.float64))
            exact = np.isfinite(factor.astype(np.float32)) & (np.abs(factor) >= np.finfo(np.float32).tiny)
        if exact.all():
            return multiply(builder, a, factor)
        return _with_constant(builder, "Divide", a, divisor, None)
    assert isinstance(b, Tensor)
    return multiply(builder, reciprocal(builder, b), a)


def clamp(builder: Builder, tensor: Tensor, minimum: float | None = None, maximum: float | None = None) -> Tensor:
    """Clamp values to `minimum` and `maximum`; None: no bound."""
    bounds: dict[str, Any] = {
        name: float(bound)
        for name, bound in (("minimum_value", minimum), ("maximum_value", maximum))
        if bound is not None and not math.isinf(bound)
    }
    if not bounds:
        return tensor
    # x / 2 + x / 2 is x; an Add has bounds on both sides, which no neuron has.
    return builder.add("Add", tensor, tensor, primary_scale=0.5, secondary_scale=0.5, **bounds)


def _at_least(builder: Builder, tensor: Tensor, bounds: NDArray[np.float32]) -> Tensor:
    """Return max(x, t) for a finite t per channel.

    With p = max(t, 0) and n = max(-t, 0) it is relu(x - p) + p - n * min(relu(-x) / n, 1), which avoids cancellation:
    the shorter relu(x - t) + t would lose digits of values that are small compared with a negative t.
    """
    positive, negative = np.maximum(bounds, 0), np.maximum(-bounds, 0)
    negative[negative < np.finfo(np.float32).tiny] = 0  # 1 / n is finite
    upper = tensor if not positive.any() else _affine(builder, tensor, ONE, -positive)
    upper = clamp(builder, upper, 0.0)
    if positive.any():
        upper = _affine(builder, upper, ONE, positive)
    if not negative.any():
        return upper
    scale = np.where(negative > 0, negative, np.float32(1))
    lower = clamp(builder, _affine(builder, tensor, np.divide(-ONE, scale), ZERO), 0.0, 1.0)
    return add(builder, upper, _affine(builder, lower, -negative, ZERO))


def _extremum(builder: Builder, name: str, a: Operand, b: Operand) -> Tensor:
    _tensors(name, a, b)
    if not isinstance(a, Tensor):
        a, b = b, a
    assert isinstance(a, Tensor)
    if not isinstance(b, Tensor):
        a, array, kind = _split(builder, a, b)
        if kind == "scalar":
            bound = float(array[0])
            return clamp(builder, a, bound) if name == "maximum" else clamp(builder, a, None, bound)
        if kind == "channels" and np.isfinite(array).all():
            if name == "maximum":
                return _at_least(builder, a, array)
            return neg(builder, _at_least(builder, neg(builder, a), -array))
        builder.fix_unless_constant(a)
        image, extents = array.reshape(1, 1, -1) if kind != "image" else array, (a.height, a.width, a.channels)
        if np.broadcast_shapes(image.shape, extents) != extents:
            raise UnmappedError(f"{name} of tensors of different shapes: {a.shape} and {array.shape}")
        image = np.broadcast_to(image, extents)
        b = replace(constant_image(builder, a, image), axes=a.axes, flat=a.flat)
    a, b = align(builder, a, b)
    if (a.height, a.width, a.channels) != (b.height, b.width, b.channels):
        raise UnmappedError(f"{name} of tensors of different shapes: {a.shape} and {b.shape}")
    if a.width * a.channels > EXTENT_LIMIT:
        raise UnmappedError(f"{name} of tensors of {a.width} x {a.channels} values in each row")
    # Concatenate the two as channels of one image, and take the max or min over its channels.
    size = {"height": a.height, "width": a.width * a.channels, "channels": 1}
    if a.channels > 1:
        builder.fix_unless_constant(a)
        a_row, b_row = (builder.add("Reshape", x, shape=(a.height, a.width * a.channels, 1), **size) for x in (a, b))
    else:
        a_row, b_row = a, b
    value = builder.graph.concatenate(
        a_row.value, b_row.value, name=builder.graph.unique(builder._name or "concatenate"), origin=builder.origin
    )
    both = replace(a_row, value=value, channels=2)
    kernel = "ReduceFeatureChannelsMax" if name == "maximum" else "ReduceFeatureChannelsMin"
    row = builder.add(kernel, both, channels=1)
    if a.channels > 1:
        shape = (a.height, a.width, a.channels)
        row = builder.add("Reshape", row, shape=shape, height=shape[0], width=shape[1], channels=shape[2])
    return replace(row, axes=a.axes, flat=a.flat)


def maximum(builder: Builder, a: Operand, b: Operand) -> Tensor:
    """Return the elementwise max."""
    return _extremum(builder, "maximum", a, b)


def minimum(builder: Builder, a: Operand, b: Operand) -> Tensor:
    """Return the elementwise min."""
    return _extremum(builder, "minimum", a, b)


def neg(builder: Builder, tensor: Tensor) -> Tensor:
    """Return -x."""
    return builder.add("NeuronLinear", tensor, a=-1.0, b=0.0)


def abs(builder: Builder, tensor: Tensor) -> Tensor:
    """Return |x|."""
    return builder.add("NeuronAbsolute", tensor)


def square(builder: Builder, tensor: Tensor) -> Tensor:
    """Return the square, x * x."""
    return builder.add("Multiply", tensor, tensor)


def sqrt(builder: Builder, tensor: Tensor) -> Tensor:
    """Return the square root."""
    return builder.add("NeuronPower", tensor, c=0.5)


def rsqrt(builder: Builder, tensor: Tensor) -> Tensor:
    """Return the reciprocal square root."""
    return builder.add("NeuronPower", tensor, c=-0.5)


def reciprocal(builder: Builder, tensor: Tensor) -> Tensor:
    """Return 1 / x."""
    return builder.add("NeuronPower", tensor, c=-1.0)


def exp(builder: Builder, tensor: Tensor) -> Tensor:
    """Return the exponential."""
    return builder.add("NeuronExponential", tensor)


def log(builder: Builder, tensor: Tensor) -> Tensor:
    """Return the natural logarithm."""
    return builder.add("NeuronLogarithm", tensor)


def pow(builder: Builder, base: Operand, exponent: Operand) -> Tensor:
    """Return base ** exponent; one of them is a number."""
    _tensors("pow", base, exponent)
    if isinstance(base, Tensor) and isinstance(exponent, Tensor):
        raise UnmappedError("a power whose base and exponent are both computed")
    if isinstance(base, Tensor):
        base, power, kind = _split(builder, base, exponent)  # type: ignore[arg-type]
        if kind != "scalar":
            raise UnmappedError("a power with an exponent of its own for each value")
        c = float(power[0])
        if c == 1:
            return base
        if c == 2:
            return square(builder, base)
        if c == 3:
            return builder.add("Multiply", square(builder, base), base)
        return builder.add("NeuronPower", base, c=c)
    assert isinstance(exponent, Tensor)
    exponent, number, kind = _split(builder, exponent, base)
    if kind != "scalar" or not float(number[0]) > 0:
        raise UnmappedError("a power of other than one positive number")
    return builder.add("NeuronExponential", exponent, c=float(number[0]))
