# SPDX-License-Identifier: Apache-2.0
"""MPSCNNCrossChannelNormalization, MPSCNNSpatialNormalization, MPSCNNLocalContrastNormalization
[MPSCNNNormalization.h].

A window of k reaches from k // 2 values before to (k - 1) // 2 after a value; sums are divided by k, or k * k, even if
a part of the window is out of bounds.
"""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .MPSCNNConvolution import tap
from .MPSCNNPooling import windows

Array = NDArray[np.float64]
Pair = tuple[int, int]


def around_channels(x: Array, size: int) -> Array:
    """Return the sum of the neighbours of each channel, itself included."""
    before, after, channels = size // 2, (size - 1) // 2, x.shape[3]
    return np.stack(
        [x[..., max(c - before, 0) : min(c + after, channels - 1) + 1].sum(axis=3) for c in range(channels)], axis=3
    )


def cross_channel(x: Array, *, size: int, alpha: float, beta: float, delta: float) -> Array:
    """x / (delta + alpha / size * sum of squares) ** beta."""
    return x * (delta + alpha / size * around_channels(x**2, size)) ** -beta


def means(x: Array, *, size: Pair, offset: Pair, kernel: int, edge: str) -> Array:
    """Return the means of the windows around each pixel."""
    window = {"size": size, "offset": offset, "kernel": (kernel, kernel), "stride": (1, 1), "dilation": (1, 1)}
    return windows(x, edge=edge, **window).mean(axis=0)  # type: ignore[arg-type]


def centres(x: Array, *, size: Pair, offset: Pair, edge: str) -> Array:
    """Return the pixels at the centres of the windows."""
    return tap(x, offset[0] + np.arange(size[0]), offset[1] + np.arange(size[1]), edge)


def spatial(
    x: Array, *, size: Pair, offset: Pair, kernel: int, edge: str, alpha: float, beta: float, delta: float
) -> Array:
    """x / (delta + alpha * mean of squares) ** beta."""
    square = means(x**2, size=size, offset=offset, kernel=kernel, edge=edge)
    return centres(x, size=size, offset=offset, edge=edge) * (delta + alpha * square) ** -beta


def local_contrast(
    x: Array,
    *,
    size: Pair,
    offset: Pair,
    kernel: int,
    edge: str,
    alpha: float,
    beta: float,
    delta: float,
    p0: float,
    pm: float,
    ps: float,
) -> Array:
    """pm + ps * (x - p0 * mean) / (delta + alpha * variance) ** beta."""
    window = {"size": size, "offset": offset, "kernel": kernel, "edge": edge}
    mean = means(x, **window)  # type: ignore[arg-type]
    variance = means(x**2, **window) - mean**2  # type: ignore[arg-type]
    centre = centres(x, size=size, offset=offset, edge=edge)
    return pm + ps * (centre - p0 * mean) * (delta + alpha * np.maximum(variance, 0)) ** -beta
