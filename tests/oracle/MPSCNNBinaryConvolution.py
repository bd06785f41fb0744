# SPDX-License-Identifier: Apache-2.0
"""Convolutions with weights of one bit: MPSCNNBinaryConvolution, MPSCNNBinaryFullyConnected. float64 NumPy.

With edge mode zero, u is 0 outside of the source: its bit is 1, its magnitude in beta is 0.
"""
# ruff: noqa: N999  (named after Apple's class)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .MPSCNNConvolution import tap

Array = NDArray[np.float64]
Pair = tuple[int, int]


def factors(kind: str, u: Array, bits: NDArray[np.uint8]) -> tuple[Array, Array]:
    """Return the factors of the products: of the source, of the weights."""
    signs = 2.0 * bits - 1.0
    if kind == "binary_weights":
        return u, signs
    if kind == "xnor":
        return np.where(u < 0, -1.0, 1.0), signs
    return np.where(u < 0, 0.0, 1.0), bits.astype(np.float64)


def convolution(
    u: Array,
    bits: NDArray[np.uint8],
    kind: str,
    *,
    size: Pair,
    offset: Pair,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    edge: str = "zero",
    sizes: bool = False,
) -> tuple[Array, Array]:
    """Return sums of the products, (N, h, w, O), and beta, (N, h, w, 1). `sizes`: sums of their absolute values."""
    height, width = bits.shape[1:3]
    extents = ((height - 1) * dilation[0] + 1, (width - 1) * dilation[1] + 1)
    sums = np.zeros((len(u), *size, len(bits)))
    beta = np.zeros((len(u), *size, 1))
    for p in range(height):
        for q in range(width):
            rows = offset[0] - extents[0] // 2 + np.arange(size[0]) * stride[0] + p * dilation[0]
            columns = offset[1] - extents[1] // 2 + np.arange(size[1]) * stride[1] + q * dilation[1]
            seen = tap(u, rows, columns, edge)
            a, w = factors(kind, seen, bits[:, p, q])
            sums += np.abs(a) @ np.abs(w).T if sizes else a @ w.T
            beta += np.abs(seen).mean(axis=-1, keepdims=True)
    return sums, beta / (height * width)
