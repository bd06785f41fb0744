# SPDX-License-Identifier: Apache-2.0
"""Numbers of 8 bits with a scale and a zero point that are computed of the values, by Metal functions."""

from __future__ import annotations

from dataclasses import replace

from ..builder import Builder, Tensor
from . import elementwise, general, reduction

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// The scale (kind 0) or the zero point of the range from the least value, or 0, to the largest, or 0.
kernel void parameter(texture2d_array<float, access::read> least [[texture(0)]],
                      texture2d_array<float, access::read> largest [[texture(1)]],
                      texture2d_array<float, access::write> y [[texture(2)]],
                      constant uint& kind [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    float low = min(least.read(gid.xy, gid.z).x, 0.0f), high = max(largest.read(gid.xy, gid.z).x, 0.0f);
    float scale = high == low ? 1.0f : (high - low) / 255.0f;
    float value = kind == 0 ? scale : rint(clamp(-low / scale, 0.0f, 255.0f));
    y.write(float4(value, 0.0f, 0.0f, 0.0f), gid.xy, gid.z);
}

kernel void numbers(texture2d_array<float, access::read> x [[texture(0)]],
                    texture2d_array<float, access::read> scale [[texture(1)]],
                    texture2d_array<float, access::read> zero [[texture(2)]],
                    texture2d_array<float, access::write> y [[texture(3)]], uint3 gid [[thread_position_in_grid]]) {
    float step = scale.read(uint2(0, 0), 0).x, nought = zero.read(uint2(0, 0), 0).x;
    float4 v = rint(x.read(gid.xy, gid.z) / step) + nought;
    y.write(clamp(v, 0.0f, 255.0f), gid.xy, gid.z);
}
"""


def quantize(builder: Builder, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return whole numbers from 0 to 255, their scale and their zero point, one of each image.

    The scale and the zero point are tensors without axes but that of the batch.
    """
    dims = range(1, x.rank)
    least, largest = reduction.amin(builder, x, dims), reduction.amax(builder, x, dims)
    ends = [replace(end, axes="NHWC", flat=None) for end in (least, largest)]
    scale, zero = (builder.add(general.function("parameter", SOURCE), *ends, kind=kind) for kind in (0, 1))
    y = builder.add(general.function("numbers", SOURCE), x, scale, zero, out_shape=elementwise._broadcast)
    return y, replace(scale, axes="N"), replace(zero, axes="N")
