# SPDX-License-Identifier: Apache-2.0
"""MPSNNPaddingMethod: how large a result is and where its windows lie, along one axis.

[MPSNeuralNetworkTypes.h] `kernel` is the dilated extent, `offset` the source pixel under the centre of the first
window; the centre is tap kernel // 2.
"""

from __future__ import annotations

STYLES = {"valid": -1, "same": 0, "full": 1}


def quotient(numerator: int, denominator: int) -> int:
    """Division of integers in C: the fraction is dropped, so that -1 / 2 is 0."""
    magnitude = abs(numerator) // abs(denominator)
    return magnitude if (numerator < 0) == (denominator < 0) else -magnitude


def forward_size(source: int, kernel: int, stride: int, size: str) -> int:
    return quotient(source + STYLES[size] * (kernel - 1) + stride - 1, stride)


def forward_offset(source: int, kernel: int, stride: int, size: str, *, remainder_first: bool) -> int:
    """`remainder_first`: an odd pixel of padding goes to the top or left; pixels left over are padding below 0."""
    extra = (forward_size(source, kernel, stride, size) - 1) * stride + kernel - source
    return kernel // 2 - quotient(extra + remainder_first, 2)


def reverse_size(source: int, kernel: int, stride: int, size: str) -> int:
    """Kernels that up-sample: the source with stride - 1 pixels between its own, seen with stride 1."""
    return (source - 1) * stride + 1 + STYLES[size] * (kernel - 1)


def reverse_offset(source: int, kernel: int, stride: int, size: str, *, remainder_first: bool) -> int:
    """In pixels of the up-sampled source (unverified: the forward rule applied to it)."""
    return forward_offset((source - 1) * stride + 1, kernel, 1, size, remainder_first=remainder_first)


def framework_size(source: int, kernel: int, stride: int, before: int, after: int, *, ceil: bool = False) -> int:
    """Pixels of padding on either side, as PyTorch and ONNX count: only windows that lie inside.

    `ceil`: also one that ends beyond, unless it begins in the padding behind the source.
    """
    windows = (source + before + after - kernel) // stride + 1
    if ceil and (source + before + after - kernel) % stride and windows * stride < source + before:
        windows += 1
    return windows


def framework_offset(kernel: int, before: int) -> int:
    return kernel // 2 - before
