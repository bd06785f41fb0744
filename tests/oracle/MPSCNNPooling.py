# SPDX-License-Identifier: Apache-2.0
"""MPSCNNPoolingMax, MPSCNNDilatedPoolingMax, MPSCNNPoolingAverage, MPSCNNPoolingL2Norm [MPSCNNPooling.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .MPSCNNConvolution import tap

Array = NDArray[np.float64]
Pair = tuple[int, int]


def windows(x: Array, *, size: Pair, offset: Pair, kernel: Pair, stride: Pair, dilation: Pair, edge: str) -> Array:
    """Return every tap of every window: (taps, N, size, C). Tap (p, q) of result (i, j) is source row

        offset[0] + i * stride[0] + p * dilation[0] - ((kH - 1) * dilation[0] + 1) // 2

    and the same column; outside of the source it is 0 ("zero") or the nearest pixel ("clamp").
    """
    taps = []
    for p in range(kernel[0]):
        for q in range(kernel[1]):
            rows, columns = (
                offset[axis]
                + np.arange(size[axis]) * stride[axis]
                + at * dilation[axis]
                - ((kernel[axis] - 1) * dilation[axis] + 1) // 2
                for axis, at in ((0, p), (1, q))
            )
            taps.append(tap(x, rows, columns, edge))
    return np.stack(taps)


def maximum(x: Array, **window: object) -> Array:
    """Return the max tap. NaN is greater than any number."""
    return windows(x, **window).max(axis=0)  # type: ignore[arg-type]


def l2_norm(x: Array, **window: object) -> Array:
    """Return the root of the sum of the squared taps."""
    return np.sqrt((windows(x, **window) ** 2).sum(axis=0))  # type: ignore[arg-type]


def average(x: Array, *, edge: str, zero_pad: Pair = (0, 0), **window: object) -> Array:
    """Return the sum of the taps within the source, divided by

    * "zero": the number of taps a window has;
    * "clamp": the number of those within the source grown by `zero_pad` pixels on each side; 0 where there is none.
    """
    sums = windows(x, edge="zero", **window).sum(axis=0)  # type: ignore[arg-type]
    kernel: Pair = window["kernel"]  # type: ignore[assignment]
    if edge == "zero":
        return sums / (kernel[0] * kernel[1])
    (top, left), ones = zero_pad, np.ones((1, x.shape[1] + 2 * zero_pad[0], x.shape[2] + 2 * zero_pad[1], 1))
    offset: Pair = window.pop("offset")  # type: ignore[assignment]
    inside = windows(ones, edge="zero", offset=(offset[0] + top, offset[1] + left), **window)  # type: ignore[arg-type]
    return sums / np.maximum(inside.sum(axis=0), 1)
