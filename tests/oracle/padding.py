# SPDX-License-Identifier: Apache-2.0
"""MPSNNPaddingMethod along one axis: the size of a result and the position of its windows.

[MPSNeuralNetworkTypes.h] `kernel` is the dilated extent, `offset` the source pixel under the centre of the first
window; the centre is tap kernel // 2.
"""

from __future__ import annotations

STYLES = {"valid": -1, "same": 0, "full": 1}


def quotient(numerator: int, denominator: int) -> int:
    """Divide like C: truncate toward zero, so that -1 / 2 is 0."""
    magnitude = abs(numerator) // abs(denominator)
    return magnitude if (numerator < 0) == (denominator < 0) else -magnitude


def forward_size(source: int, kernel: int, stride: int, size: str) -> int:
    return quotient(source + STYLES[size] * (kernel - 1) + stride - 1, stride)


def forward_offset(source: int, kernel: int, stride: int, size: str, *, remainder_first: bool) -> int:
    """`remainder_first`: an odd pixel of padding goes to the top or left; unused pixels are negative padding."""
    extra = (forward_size(source, kernel, stride, size) - 1) * stride + kernel - source
    return kernel // 2 - quotient(extra + remainder_first, 2)


def reverse_size(source: int, kernel: int, stride: int, size: str) -> int:
    """For kernels that up-sample: the source with stride - 1 zeros between its pixels, read with stride 1."""
    return (source - 1) * stride + 1 + STYLES[size] * (kernel - 1)


def reverse_offset(source: int, kernel: int, stride: int, size: str, *, remainder_first: bool) -> int:
    """In pixels of the up-sampled source (unverified: the forward rule applied to it)."""
    return forward_offset((source - 1) * stride + 1, kernel, 1, size, remainder_first=remainder_first)


def framework_size(source: int, kernel: int, stride: int, before: int, after: int, *, ceil: bool = False) -> int:
    """Padding in pixels on both sides, as in PyTorch and ONNX: only windows inside of the padded source.

    `ceil`: also a window that ends outside, unless it begins in the padding after the source.
    """
    windows = (source + before + after - kernel) // stride + 1
    if ceil and (source + before + after - kernel) % stride and windows * stride < source + before:
        windows += 1
    return windows


def framework_offset(kernel: int, before: int) -> int:
    return kernel // 2 - before
