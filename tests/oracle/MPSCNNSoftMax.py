# SPDX-License-Identifier: Apache-2.0
"""MPSCNNSoftMax, MPSCNNLogSoftMax [MPSCNNSoftMax.h], over the channels of each pixel."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def log_softmax(x: Array) -> Array:
    """x_k - log(sum exp(x_q)); NaN for a pixel with a NaN or +inf, and for one that is -inf everywhere."""
    with np.errstate(all="ignore"):
        near = x - x.max(axis=-1, keepdims=True)
        return near - np.log(np.exp(near).sum(axis=-1, keepdims=True))


def softmax(x: Array) -> Array:
    """exp(x_k) / sum exp(x_q)."""
    with np.errstate(all="ignore"):
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)
