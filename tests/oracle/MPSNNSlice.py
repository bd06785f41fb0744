# SPDX-License-Identifier: Apache-2.0
"""MPSNNSlice [MPSNNSlice.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .MPSCNNConvolution import tap

Array = NDArray[np.float64]


def cut(x: Array, size: tuple[int, int], offset: tuple[int, int], edge: str) -> Array:
    """Return pixels offset ... offset + size - 1; out-of-bounds pixels are 0 ("zero") or clamped ("clamp")."""
    return tap(x, offset[0] + np.arange(size[0]), offset[1] + np.arange(size[1]), edge)
