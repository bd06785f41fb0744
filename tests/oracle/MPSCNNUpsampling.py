# SPDX-License-Identifier: Apache-2.0
"""MPSCNNUpsamplingNearest, MPSCNNUpsamplingBilinear [MPSCNNUpsampling.h]: positions along one axis, and samples."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .MPSCNNConvolution import tap

Array = NDArray[np.float64]


def positions(count: int, source: int, result: int, offset: int = 0, *, align_corners: bool = False) -> Array:
    """Return the source positions of the first `count` of `result` pixels; the source has `source` pixels.

    Pixel i samples offset + i * source / result, with `align_corners` offset + i * (source - 1) / (result - 1); a
    result of one pixel samples the first.
    """
    steps = np.arange(count, dtype=np.float64)
    if not align_corners:
        return offset + steps * source / result
    return offset + steps * (source - 1) / max(result - 1, 1)


def nearest(x: Array, rows: Array, columns: Array, edge: str) -> Array:
    """Return the pixels at the positions rounded down."""
    return tap(x, np.floor(rows).astype(int), np.floor(columns).astype(int), edge)


def _around(x: Array, rows: Array, columns: Array, edge: str) -> list[Array]:
    """Return the four pixels around each position: above left, above right, below left, below right."""
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    return [tap(x, top + dy, left + dx, edge) for dy in (0, 1) for dx in (0, 1)]


def bilinear(x: Array, rows: Array, columns: Array, edge: str) -> Array:
    """Interpolate between the four pixels around each position."""
    down, right = (rows - np.floor(rows))[:, None, None], (columns - np.floor(columns))[:, None]
    above_left, above_right, below_left, below_right = _around(x, rows, columns, edge)
    above = above_left * (1 - right) + above_right * right
    below = below_left * (1 - right) + below_right * right
    return above * (1 - down) + below * down


def greatest(x: Array, rows: Array, columns: Array, edge: str) -> Array:
    """Return the max of the four absolute values: errors of weights are relative to 1, however small the weights."""
    return np.abs(_around(x, rows, columns, edge)).max(axis=0)
