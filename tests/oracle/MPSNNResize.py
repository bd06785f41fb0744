# SPDX-License-Identifier: Apache-2.0
"""MPSNNResizeBilinear (see MPSCNNUpsampling) and MPSNNCropAndResizeBilinear [MPSNNResize.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .MPSCNNUpsampling import bilinear

Array = NDArray[np.float64]


def positions_in(begin: float, extent: float, source: int, count: int) -> Array:
    """TensorFlow's crop_and_resize: 0 is the first pixel and 1 the last; a single sample is in the middle."""
    if count == 1:
        return np.array([(begin + extent / 2) * (source - 1)])
    return begin * (source - 1) + np.arange(count) * (extent * (source - 1)) / (count - 1)


def crop_and_resize(x: Array, size: tuple[int, int], regions: Array, sample: Callable[..., Array] = bilinear) -> Array:
    """`regions`: rows of y, x, height, width. All regions of the first image come before those of the second. A sample
    beyond the first or the last pixel is 0.
    """
    results = []
    for image in x:
        for y, left, height, width in regions:
            rows = positions_in(y, height, x.shape[1], size[0])
            columns = positions_in(left, width, x.shape[2], size[1])
            inside = ((rows >= 0) & (rows <= x.shape[1] - 1))[:, None] & ((columns >= 0) & (columns <= x.shape[2] - 1))
            results.append(np.where(inside[..., None], sample(image[None], rows, columns, "clamp")[0], 0.0))
    return np.stack(results)
