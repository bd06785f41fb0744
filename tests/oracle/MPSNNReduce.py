# SPDX-License-Identifier: Apache-2.0
"""MPSNNReduceUnary's and MPSNNReduceBinary's subclasses [MPSNNReduce.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .MPSCNNConvolution import tap

Array = NDArray[np.float64]
Region = tuple[tuple[int, int, int], tuple[int, int, int]]

AXES = {"Row": 2, "Column": 1, "FeatureChannels": 3}
"""Reduced axis of (N, H, W, C): a row over its columns, a column over its rows."""


def part(x: Array, rect: Region | None) -> Array:
    """Return the part of a source inside ((y, x, image), (height, width, images)), which may exceed it."""
    if rect is None:
        return x
    (y, left, image), (height, width, images) = rect
    return x[image : image + images, y : y + height, left : left + width]


# NaN is both max and min, and the index is that of the first one, as in NumPy.
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Max": np.max,
    "Min": np.min,
    "Mean": np.mean,
    "Sum": np.sum,
    "ArgumentMax": np.argmax,
    "ArgumentMin": np.argmin,
}


def reduce(axis: str, function: str, x: Array) -> Array:
    """Return one value along the axis; indices count from 0."""
    with np.errstate(all="ignore"):
        return FUNCTIONS[function](x, axis=AXES[axis], keepdims=True).astype(np.float64)


def weighted_mean(x: Array, weights: Array) -> Array:
    """Return the sum of the products over the channels, divided by their number."""
    return (x * weights).sum(axis=3, keepdims=True) / x.shape[3]


def weighted_sum(x: Array, weights: Array, *, by_nonzero_weights: bool = False) -> Array:
    """Return the sum of the products; `by_nonzero_weights`: divided by the number of nonzero weights, if any."""
    result = (x * weights).sum(axis=3, keepdims=True)
    if not by_nonzero_weights:
        return result
    return result / np.maximum((weights != 0).sum(axis=3, keepdims=True), 1)


def local_correlation(a: Array, b: Array, reach: tuple[int, int], step: tuple[int, int], edge: str = "zero") -> Array:
    """Return the sums over the channels of a's pixels times b's around the same place, columns before rows."""
    rows, columns = np.arange(a.shape[1]), np.arange(a.shape[2])
    results = [
        (a * tap(b, rows + j * step[0], columns + i * step[1], edge)).sum(axis=3)
        for j in range(-reach[0], reach[0] + 1)
        for i in range(-reach[1], reach[1] + 1)
    ]
    return np.stack(results, axis=3)


KERNELS = {
    f"Reduce{axis}{function}": (axis, function)
    for axis in AXES
    for function in FUNCTIONS
    if axis == "FeatureChannels" or not function.startswith("Argument")
}
"""Kernels of one source: the axis and the function."""
