# SPDX-License-Identifier: Apache-2.0
"""MPSImageLanczosScale, MPSImageBilinearScale [MPSImageResampling.h]: positions, and Lanczos resampling."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .MPSCNNConvolution import tap

Array = NDArray[np.float64]

LOBES = 3


def positions(count: int, scale: float, translation: float = 0.0, first: int = 0) -> Array:
    """Return the source positions of pixels first ... first + count - 1 of the result. Both images are areas: pixel i
    covers [i, i + 1), and the centre i + 1/2 of the result is the image of scale * (position + 1/2) + translation.
    """
    return (np.arange(first, first + count) + 0.5 - translation) / scale - 0.5


def _axis(x: Array, axis: int, at: Array, step: float, edge: str) -> Array:
    """Resample along an axis: the mean of the pixels within three lobes of each position; a lobe is as wide as the
    distance between positions, at least a pixel.
    """
    lobe = max(step, 1.0)
    results = []
    for position in at:
        taps = np.arange(np.floor(position - LOBES * lobe), np.ceil(position + LOBES * lobe) + 1).astype(int)
        t = (taps - position) / lobe
        weights = np.where(np.abs(t) < LOBES, np.sinc(t) * np.sinc(t / LOBES), 0.0)
        every = np.arange(x.shape[3 - axis])
        pixels = tap(x, taps, every, edge) if axis == 1 else tap(x, every, taps, edge)
        results.append(np.tensordot(weights / weights.sum(), pixels, (0, axis)))
    return np.stack(results, axis=axis)


def lanczos(x: Array, rows: Array, columns: Array, step_h: float, step_w: float, edge: str) -> Array:
    """`step`: distance of adjacent positions. Positions far outside read the edge's pixel, or zeros."""
    rows, columns = (
        np.clip(at, -LOBES * max(step, 1.0) - 2, size + LOBES * max(step, 1.0) + 2)
        for at, step, size in ((rows, step_h, x.shape[1]), (columns, step_w, x.shape[2]))
    )
    return _axis(_axis(x, 1, rows, step_h, edge), 2, columns, step_w, edge)
