# SPDX-License-Identifier: Apache-2.0
"""MPSCNNConvolution, MPSCNNFullyConnected, MPSCNNConvolutionTranspose [MPSCNNConvolution.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Pair = tuple[int, int]


def tap(x: Array, rows: NDArray[np.int64], columns: NDArray[np.int64], edge: str) -> Array:
    """Return pixels (rows, columns) of every image; out-of-bounds pixels are 0 ("zero") or clamped ("clamp")."""
    height, width = x.shape[1:3]
    pixels = x[:, np.clip(rows, 0, height - 1)][:, :, np.clip(columns, 0, width - 1)]
    if edge == "clamp":
        return pixels
    inside = ((rows >= 0) & (rows < height))[:, None] & ((columns >= 0) & (columns < width))[None, :]
    return np.where(inside[None, :, :, None], pixels, 0.0)


def convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    size: Pair,
    offset: Pair,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    groups: int = 1,
    edge: str = "zero",
) -> Array:
    """Cross-correlation of `size` pixels. Tap (p, q) of result (i, j) is source row

        offset[0] + i * stride[0] + p * dilation[0] - ((kH - 1) * dilation[0] + 1) // 2

    and the same column. Result channel o reads the channels of group o // (O / groups).
    """
    (out_channels, kernel_h, kernel_w, in_group), out_group = weight.shape, weight.shape[0] // groups
    result = np.zeros((x.shape[0], *size, out_channels))
    for p in range(kernel_h):
        for q in range(kernel_w):
            rows = (
                offset[0] + np.arange(size[0]) * stride[0] + p * dilation[0] - ((kernel_h - 1) * dilation[0] + 1) // 2
            )
            columns = (
                offset[1] + np.arange(size[1]) * stride[1] + q * dilation[1] - ((kernel_w - 1) * dilation[1] + 1) // 2
            )
            pixels = tap(x, rows, columns, edge)
            for group in range(groups):
                reads = slice(group * in_group, (group + 1) * in_group)
                writes = slice(group * out_group, (group + 1) * out_group)
                result[..., writes] += pixels[..., reads] @ weight[writes, p, q].T
    return result if bias is None else result + bias


def depthwise(x: Array, weight: Array, bias: Array | None, **window: object) -> Array:
    """weight (C, kH, kW): channel c of the result reads channel c of the source only."""
    channels = [
        convolution(x[..., c : c + 1], weight[c : c + 1, :, :, None], None, **window)  # type: ignore[arg-type]
        for c in range(x.shape[-1])
    ]
    result = np.concatenate(channels, axis=-1)
    return result if bias is None else result + bias


def sub_pixel(x: Array, factor: int) -> Array:
    """Position-major depth to space, C = channels / r / r:

    y[Y, X, c] = x[Y // r, X // r, (r * (Y % r) + X % r) * C + c]
    """
    images, height, width, channels = x.shape
    channels //= factor * factor
    result = np.empty((images, height * factor, width * factor, channels))
    for dy in range(factor):
        for dx in range(factor):
            first = (factor * dy + dx) * channels
            result[:, dy::factor, dx::factor] = x[..., first : first + channels]
    return result


def fully_connected(x: Array, weight: Array, bias: Array | None) -> Array:
    """weight (O, H, W, C) covers the source."""
    result = x.reshape(len(x), -1) @ weight.reshape(len(weight), -1).T
    return (result if bias is None else result + bias)[:, None, None]


def stuffed(x: Array, stride: Pair) -> Array:
    """Return the source with stride - 1 zero pixels between its own."""
    images, height, width, channels = x.shape
    result = np.zeros((images, (height - 1) * stride[0] + 1, (width - 1) * stride[1] + 1, channels))
    result[:, :: stride[0], :: stride[1]] = x
    return result


def transpose(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    size: Pair,
    stride: Pair = (1, 1),
    offset: Pair = (0, 0),
    kernel_offset: Pair = (0, 0),
    groups: int = 1,
) -> Array:
    """MPS's rule: the unrotated kernel on the zero-stuffed source, from offset * stride + kernel_offset on."""
    start = (offset[0] * stride[0] + kernel_offset[0], offset[1] * stride[1] + kernel_offset[1])
    return convolution(stuffed(x, stride), weight, bias, size=size, offset=start, groups=groups)


def transpose_kernel_offset(kernel: int, before: int) -> int:
    """Return the kernelOffset with which the rotated kernel crops `before` pixels at the top or left, as in PyTorch."""
    return kernel // 2 - kernel + 1 + before


def transpose_size(source: int, kernel: int, stride: int, before: int, after: int, extra: int) -> int:
    return (source - 1) * stride + kernel - before - after + extra


def rotated(weight_iohw: Array, groups: int) -> Array:
    """Return PyTorch's transposed weight (I, O / groups, kH, kW) in MPS's order: OHWI, rotated by 180 degrees."""
    parts = np.split(weight_iohw, groups)
    return np.concatenate([part[:, :, ::-1, ::-1].transpose(1, 2, 3, 0) for part in parts])


def fold_batch_norm(
    weight: Array, bias: Array | None, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float
) -> tuple[Array, Array]:
    """Return weights and bias whose convolution is gamma * (y - mean) / sqrt(variance + epsilon) + beta."""
    scale = gamma / np.sqrt(variance + epsilon)
    return weight * scale[:, None, None, None], beta + (0.0 if bias is None else bias * scale) - mean * scale


def to_half(weight: ArrayLike) -> Array:
    """Return the factors of a kernel that stores its weights as half."""
    return np.asarray(weight).astype(np.float32).astype(np.float16).astype(np.float64)


def from_ranges(codes: NDArray[np.uint8], ranges: Array) -> Array:
    """Decode codes (O, ...) by ranges (O, 2): 0 is the first value of its output channel, 255 the second."""
    low, high = (ranges[:, i].reshape(-1, *[1] * (codes.ndim - 1)) for i in (0, 1))
    return codes / 255.0 * (high - low) + low


def from_table(codes: NDArray[np.uint8], table: Array) -> Array:
    return table[codes]


def placed(
    result: Array, out: Array, *, clip: tuple[tuple[int, int, int], tuple[int, int, int]], channel: int
) -> Array:
    """Return `out` with `result` at clip = ((y, x, image), (height, width, images)), from `channel` on."""
    (y, x, image), (height, width, images) = clip
    out = out.copy()
    out[image : image + images, y : y + height, x : x + width, channel : channel + result.shape[-1]] = result
    return out
