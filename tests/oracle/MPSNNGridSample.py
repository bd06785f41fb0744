# SPDX-License-Identifier: Apache-2.0
"""MPSNNGridSample [MPSNNGridSample.h]: samples at positions that another image has, in pixels."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def grid_sample(x: Array, rows: Array, columns: Array, edge: str, adds_position: bool = False) -> Array:
    """Interpolate between the four pixels around each position; `rows` and `columns` are (N, H, W). `adds_position`:
    they are distances from the result's own pixel.
    """
    if adds_position:
        rows = rows + np.arange(rows.shape[1])[:, None]
        columns = columns + np.arange(rows.shape[2])
    height, width = x.shape[1:3]
    rows, columns = np.clip(rows, -2, height + 1), np.clip(columns, -2, width + 1)
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    images = np.arange(len(x))[:, None, None]
    result = np.zeros((*rows.shape, x.shape[3]))
    for dy in (0, 1):
        for dx in (0, 1):
            y, z = top + dy, left + dx
            weight = (1 - np.abs(rows - y)) * (1 - np.abs(columns - z))
            if edge == "zero":
                weight = weight * ((y >= 0) & (y < height) & (z >= 0) & (z < width))
            pixels = x[images, np.clip(y, 0, height - 1), np.clip(z, 0, width - 1)]
            result += weight[..., None] * pixels
    return result
