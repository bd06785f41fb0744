# SPDX-License-Identifier: Apache-2.0
"""Conversions between values and whole numbers of 8 or 16 bits: value = scale * (number - zero).

Numbers of 8 bits with one scale are images of uint8, which hold q / 255: one linear function converts values to
numbers, another one converts numbers to values, and the image rounds and clamps. The CPU engine computes with the
numbers themselves; on other devices kernels compute with the values. Where an operator reads the numbers, they are
floats with the same whole values. Results differ from those of an 8-bit program where float32's rounding moves a value
across the middle between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor
from . import arithmetic, elementwise

BYTES = 255  # the largest number of an image of uint8
# The parameters of the linear functions, 255 * step and its reciprocal, are normal numbers of float32.
MIN_STEP, MAX_STEP = 1e-35, 1e35
ONE, NOUGHT = np.ones((), np.float32), np.zeros((), np.float32)


class _Numbers:
    """Tensors of whole numbers, and the same numbers as images of uint8, for one graph."""

    def __init__(self) -> None:
        self.images: dict[str, tuple[Tensor, int]] = {}  # by the name of the whole numbers: image, offset of its zero
        self.values: dict[tuple[str, float, float], Tensor] = {}  # dequantized images


_NUMBERS: WeakKeyDictionary[Builder, _Numbers] = WeakKeyDictionary()


def quantize(builder: Builder, x: Tensor, scale: NDArray[Any], zero: NDArray[Any], limits: tuple[int, int]) -> Tensor:
    """Return round(x / scale) + zero within the limits, both included, as whole numbers.

    If they may be an image of uint8, the graph has that too, and drops whichever nothing reads. Scale and zero are one
    number each, or broadcast with x.
    """
    # A product with the reciprocal would round values in the middle between two numbers either way.
    y = elementwise.binary(builder, x, scale, "divide") if (scale != 1).any() else x
    y = elementwise.unary(builder, y, "round")
    y = elementwise.of_several(builder, arithmetic.add, y, zero) if zero.any() else y
    y = arithmetic.clamp(builder, y, float(limits[0]), float(limits[1]))
    is_one = scale.size == zero.size == 1
    if limits[1] - limits[0] == BYTES and is_one and MIN_STEP < float(scale.reshape(())) < MAX_STEP:
        _store(builder, x, y, float(scale.reshape(())), float(zero.reshape(())), -limits[0])
    return y


def _store(builder: Builder, x: Tensor, y: Tensor, scale: float, zero: float, offset: int) -> None:
    """Add the image of the whole numbers `y` of `x`."""
    image = builder.add("NeuronLinear", x, a=1 / (BYTES * scale), b=(zero + offset) / BYTES, result_dtype="uint8")
    _NUMBERS.setdefault(builder, _Numbers()).images[y.value.name] = image, offset


def dequantize(builder: Builder, x: Tensor, scale: NDArray[Any], zero: NDArray[Any]) -> Tensor:
    """Return scale * (x - zero) for whole numbers x."""
    known = _NUMBERS.get(builder)
    if known and x.value.name in known.images and scale.size == zero.size == 1:
        image, offset = known.images[x.value.name]
        step, nought = float(scale.reshape(())), float(zero.reshape(())) + offset
        key = image.value.name, step, nought
        if key not in known.values:
            known.values[key] = builder.add("NeuronLinear", image, a=BYTES * step, b=-nought * step)
        return replace(known.values[key], axes=x.axes, flat=x.flat)
    y = elementwise.of_several(builder, arithmetic.subtract, x, zero) if zero.any() else x
    return elementwise.of_several(builder, arithmetic.multiply, y, scale)


def moved(builder: Builder, x: Tensor, results: Sequence[Any], again: Callable[[Tensor], Sequence[Any]]) -> None:
    """Add images of `results` if x has one: numbers of x that an operator moved or chose.

    `again` applies the operator to another tensor with the numbers.
    """
    known = _NUMBERS.get(builder)
    if known is None or x.value.name not in known.images:
        return
    offset = known.images[x.value.name][1]
    for y, same in zip(results, again(dequantize(builder, x, ONE, NOUGHT)), strict=True):
        if isinstance(y, Tensor) and y.value.name not in known.images:
            _store(builder, same, y, 1.0, 0.0, offset)
