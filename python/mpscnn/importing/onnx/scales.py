# SPDX-License-Identifier: Apache-2.0
"""Checks of the scales and zero points of quantized ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import UnmappedError


def axis_of(axis: int, rank: int) -> int:
    """Return the axis, counted from the first one."""
    if not -rank <= axis < rank:
        raise InvalidModelError(f"the axis ({axis}) is not one of {rank}.")
    return axis % rank


def checked(
    scale: NDArray[Any],
    zero: NDArray[Any] | None,
    shape: Sequence[int | None],
    axis: int | None,
    divides: bool = False,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return scale and zero point, one each or one for each place along `axis`, in shapes that broadcast with `shape`.

    With `axis` None, one each. `divides`: values are divided by the scale, which is positive then.
    """
    zero = np.zeros((), np.uint8) if zero is None else zero
    if zero.dtype.kind not in "iu":
        raise InvalidModelError(f"the zero point is of type {zero.dtype}.")
    if scale.dtype.kind != "f":
        raise InvalidModelError(f"the scale is of type {scale.dtype}.")
    wrong = ~np.isfinite(scale) | ((scale <= 0) & divides)
    if wrong.any():
        limits = "is not finite and greater than 0" if divides else "is not finite"
        raise InvalidModelError(f"the scale ({float(scale[wrong][0])}) {limits}.")
    return _placed(scale, "scales", shape, axis), _placed(zero, "zero points", shape, axis)


def _placed(values: NDArray[Any], what: str, shape: Sequence[int | None], axis: int | None) -> NDArray[Any]:
    if values.size == 1:
        return values.reshape(())
    if values.ndim > 1:
        raise UnmappedError("blocks of quantized values")
    needed = 1 if axis is None else shape[axis_of(axis, len(shape))]
    if axis is None or values.size != needed:
        raise InvalidModelError(f"{values.size} {what} for {needed}.")
    return values.reshape([-1 if i == axis_of(axis, len(shape)) else 1 for i in range(len(shape))])


def of_numbers(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type if its whole numbers have 8 or 16 bits: float32 has all of these."""
    if dtype.kind not in "iu" or dtype.itemsize > 2:
        raise UnmappedError(f"values quantized as {dtype}")
    return dtype


def quantized(values: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return round(values / scale) + zero as whole numbers of the type, half to even, within its limits."""
    if np.isnan(values).any():
        raise InvalidModelError("a value (nan) has no number.")
    limits = np.iinfo(dtype)
    with np.errstate(over="ignore"):  # an infinite quotient has a limit as its number
        quotient = np.divide(values, scale, dtype=np.float64 if values.dtype.kind in "iu" else np.float32)
    numbers = np.rint(quotient).astype(np.float64) + zero.astype(np.float64)
    clamped: NDArray[Any] = np.clip(numbers, limits.min, limits.max).astype(dtype)
    return clamped


def dequantized(values: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any]) -> NDArray[np.float32]:
    """Return (values - zero) * scale; raise InvalidModelError if float32 does not hold a result."""
    exact = (values.astype(np.float64) - zero.astype(np.float64)) * scale.astype(np.float64)
    if (np.abs(exact) > np.finfo(np.float32).max).any():
        raise InvalidModelError(f"the scale ({float(np.abs(scale).max())}) makes values beyond the range of float32.")
    return exact.astype(np.float32)
