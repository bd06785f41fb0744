# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose taps are at computed positions.

A Metal function takes the samples, as many as there are taps, and a 1 x 1 convolution adds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from . import convolution, general

Pair = tuple[int, int]

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// p: channels of a group, taps, taps of a row, channels that share offsets, strides, dilations, pixels before the image
// (rows first), channels of the result.
static uint number_of_offset(constant uint* p, uint k) {
    uint group = k / (p[1] * p[0]), rest = k - group * p[1] * p[0], tap = rest / p[0];
    uint channel = group * p[0] + rest - tap * p[0];
    return channel / p[3] * p[1] + tap;
}

static float at(texture2d_array<float, access::read> x, int column, int row, uint channel) {
    int width = x.get_width(), height = x.get_height();
    if (column < 0 || row < 0 || column >= width || row >= height) return 0.0f;
    return x.read(uint2(column, row), channel / 4)[channel % 4];
}

static float sample_of(texture2d_array<float, access::read> x, texture2d_array<float, access::read> offsets,
                       constant uint* p, uint3 gid, uint k, uint number) {
    uint group = k / (p[1] * p[0]), rest = k - group * p[1] * p[0], tap = rest / p[0];
    uint channel = group * p[0] + rest - tap * p[0], second = 2 * number + 1;
    float down = offsets.read(gid.xy, number / 2)[2 * number % 4];
    float across = offsets.read(gid.xy, second / 4)[second % 4];
    float row = float(int(gid.y * p[4] + tap / p[2] * p[6]) - int(p[8])) + down;
    float column = float(int(gid.x * p[5] + tap % p[2] * p[7]) - int(p[9])) + across;
    // Also false for NaN.
    if (!(row > -1.0f && column > -1.0f && row < float(x.get_height()) && column < float(x.get_width()))) return 0.0f;
    int top = int(floor(row)), left = int(floor(column));
    float below = row - float(top), right = column - float(left);
    float upper = mix(at(x, left, top, channel), at(x, left + 1, top, channel), right);
    float lower = mix(at(x, left, top + 1, channel), at(x, left + 1, top + 1, channel), right);
    return mix(upper, lower, below);
}

// Samples of four channels of the result, multiplied by those of `mask` if it is one.
static float4 samples_of(texture2d_array<float, access::read> x, texture2d_array<float, access::read> offsets,
                         texture2d_array<float, access::read> mask, bool is_masked, constant uint* p, uint3 gid) {
    float4 v = 0.0f;
    for (uint lane = 0; lane < 4; ++lane) {
        uint k = 4 * gid.z + lane;
        if (k >= p[10]) break;
        uint number = number_of_offset(p, k);
        v[lane] = sample_of(x, offsets, p, gid, k, number);
        if (is_masked) v[lane] *= mask.read(gid.xy, number / 4)[number % 4];
    }
    return v;
}

kernel void deformed(texture2d_array<float, access::read> x [[texture(0)]],
                     texture2d_array<float, access::read> offsets [[texture(1)]],
                     texture2d_array<float, access::write> y [[texture(2)]],
                     constant uint* p [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    y.write(samples_of(x, offsets, offsets, false, p, gid), gid.xy, gid.z);
}

kernel void deformed_with_mask(texture2d_array<float, access::read> x [[texture(0)]],
                               texture2d_array<float, access::read> offsets [[texture(1)]],
                               texture2d_array<float, access::read> mask [[texture(2)]],
                               texture2d_array<float, access::write> y [[texture(3)]],
                               constant uint* p [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    y.write(samples_of(x, offsets, mask, true, p, gid), gid.xy, gid.z);
}
"""


@dataclass(frozen=True)
class Sampled:
    """Rule for the samples: an image of the height and width of the offsets."""

    channels: int

    def __call__(  # noqa: D102
        self, shape: tuple[int, ...], offsets: tuple[int, ...], *others: tuple[int, ...]
    ) -> tuple[int, ...]:
        return (shape[0], *offsets[1:3], self.channels)


def _image(builder: Builder, x: Tensor) -> Tensor:
    """Return a tensor with four axes as an image with its rows and columns."""
    if x.rank != 4:
        raise UnmappedError(f"a deformable convolution of a tensor with {x.rank} axes")
    x = general.with_channels_second(builder, x)
    return general.channels_second(builder, x) if x.axes != "NCHW" else x


def deform_conv2d(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    offset: Tensor,
    mask: Tensor | None,
    bias: NDArray[Any] | None,
    stride: Pair,
    padding: tuple[Pair, Pair],
    dilation: Pair,
    groups: int,
    offset_groups: int,
) -> Tensor:
    """Same as torchvision.ops.deform_conv2d; `padding` is ((top, bottom), (left, right))."""
    outputs, inside, *kernel = weight.shape
    taps, channels = kernel[0] * kernel[1], inside * groups
    x, offset = _image(builder, x), _image(builder, offset)
    mask = None if mask is None else _image(builder, mask)
    extents = [
        (extent + before + after - d * (k - 1) - 1) // s + 1
        for extent, (before, after), d, k, s in zip((x.height, x.width), padding, dilation, kernel, stride, strict=True)
    ]
    of_mask = None if mask is None else (mask.height, mask.width, mask.channels)
    if (
        x.channels != channels
        or channels % offset_groups
        or outputs % groups
        or (offset.height, offset.width, offset.channels) != (*extents, 2 * taps * offset_groups)
        or of_mask not in (None, (*extents, taps * offset_groups))
    ):
        raise InvalidModelError(
            f"{builder.origin}: weights {weight.shape}, offsets {offset.shape} and a mask {of_mask} do not fit"
            f" {x.shape}."
        )
    image = (extents[0], extents[1], taps * channels)
    general.check_image(image)
    numbers = [inside, taps, kernel[1], channels // offset_groups, *stride, *dilation, padding[0][0], padding[1][0]]
    columns = builder.add(
        general.function("deformed" if mask is None else "deformed_with_mask", SOURCE),
        x,
        offset,
        *(() if mask is None else (mask,)),
        out_shape=Sampled(image[2]),
        p=np.array([*numbers, image[2]], np.uint32),
        height=image[0],
        width=image[1],
        channels=image[2],
    )
    # In the order of the samples: each group has its taps, and each tap the channels of the group.
    weight = np.ascontiguousarray(weight.transpose(0, 2, 3, 1)).reshape(outputs, taps * inside, 1, 1)
    return convolution.conv2d(builder, columns, weight, bias, groups=groups)
