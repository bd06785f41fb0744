# SPDX-License-Identifier: Apache-2.0
"""Normalization by mean and variance: MPSCNNBatchNormalization and its statistics [MPSCNNBatchNormalization.h],
MPSCNNInstanceNormalization [MPSCNNInstanceNormalization.h], MPSCNNGroupNormalization [MPSCNNGroupNormalization.h].
"""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def normalize(x: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    """Return (x - mean) * gamma / sqrt(variance + epsilon) + beta; mean and variance broadcast against x."""
    return (x - mean) * gamma / np.sqrt(variance + epsilon) + beta


def statistics(x: Array) -> tuple[Array, Array]:
    """Return mean and variance of each channel over all other axes, (C,)."""
    mean = x.mean(axis=(0, 1, 2))
    return mean, ((x - mean) ** 2).mean(axis=(0, 1, 2))


def of_groups(x: Array, groups: int) -> tuple[Array, Array]:
    """Return mean and variance of groups of adjacent channels of each image, (N, 1, 1, C)."""
    images, height, width, channels = x.shape
    runs = x.reshape(images, height, width, groups, channels // groups)
    mean = runs.mean(axis=(1, 2, 4), keepdims=True)
    variance = ((runs - mean) ** 2).mean(axis=(1, 2, 4), keepdims=True)

    def of_channels(values: Array) -> Array:
        return np.repeat(values.reshape(images, 1, 1, groups), channels // groups, axis=3)

    return of_channels(mean), of_channels(variance)


def of_instances(x: Array) -> tuple[Array, Array]:
    """Return mean and variance of each channel of each image, (N, 1, 1, C)."""
    return of_groups(x, x.shape[3])
