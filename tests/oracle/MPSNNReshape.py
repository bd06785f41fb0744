# SPDX-License-Identifier: Apache-2.0
"""MPSNNReshape, MPSNNPad [MPSNNReshape.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def reshape(x: Array, shape: tuple[int, int, int]) -> Array:
    """Reshape the values of each image in the order channels, columns, rows."""
    return x.reshape(x.shape[0], *shape)


def places(start: int, count: int, size: int, edge: str) -> NDArray[np.int64]:
    """Map indices start ... start + count - 1 into an axis of `size`; -1: a zero or the constant."""
    found = []
    for index in range(start, start + count):
        i = index
        if edge == "clamp":
            i = min(max(i, 0), size - 1)
        elif edge == "mirror":  # the outermost pixel is not repeated
            while not 0 <= i < size:
                i = 0 if size == 1 else -i if i < 0 else 2 * (size - 1) - i
        elif edge == "mirror_with_edge":
            while not 0 <= i < size:
                i = -i - 1 if i < 0 else 2 * size - 1 - i
        found.append(i if 0 <= i < size else -1)
    return np.array(found)


def pad(x: Array, starts: tuple[int, int, int], size: tuple[int, int, int], edge: str, fill: Array) -> Array:
    """Pad a source by `edge`: `size` (height, width, channels) from (y, x, channel) `starts` on; `fill` is the
    constant, or one value for each channel of the result.
    """
    axes = [places(starts[i], size[i], x.shape[i + 1], edge) for i in range(3)]
    result = x[:, axes[0]][:, :, axes[1]][..., axes[2]]
    outside = (axes[0] < 0)[:, None, None] | (axes[1] < 0)[:, None] | (axes[2] < 0)
    return np.where(outside, fill if edge == "constant" else 0.0, result)
