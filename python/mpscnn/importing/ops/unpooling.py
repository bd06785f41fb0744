# SPDX-License-Identifier: Apache-2.0
"""Values put to the places of the maxima of a pooling, as the decoders of SegNet and ENet do.

MPS's poolings return no places. A Metal function finds those of a pixel's windows again, in the source of the pooling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..builder import Builder, Tensor, UnmappedError
from . import general

Pair = tuple[int, int]

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// values: one for each window of the pooling of x. p: windows' extents, strides, pixels before the image, dilations,
// rows first. Places are numbers of pixels of x, row by row, and those of the result are counted in the same way.
kernel void unpooled(texture2d_array<float, access::read> values [[texture(0)]],
                     texture2d_array<float, access::read> x [[texture(1)]],
                     texture2d_array<float, access::write> y [[texture(2)]],
                     constant int* p [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    int height = x.get_height(), width = x.get_width();
    int place = int(gid.y) * int(y.get_width()) + int(gid.x), row = place / width, column = place - row * width;
    int rows = values.get_height(), columns = values.get_width();
    float4 v = 0.0f;
    // Of several windows with their max here, the last one counts, as in PyTorch with one thread.
    for (int i = max(row + p[4] - (p[0] - 1) * p[6], 0) / p[2]; i < rows && i * p[2] - p[4] <= row; ++i) {
        for (int j = max(column + p[5] - (p[1] - 1) * p[7], 0) / p[3]; j < columns && j * p[3] - p[5] <= column; ++j) {
            float4 best = -INFINITY, at = -1.0f;
            float here = -2.0f;
            for (int k = 0; k < p[0]; ++k) {
                int r = i * p[2] - p[4] + k * p[6];
                if (r < 0 || r >= height) continue;
                for (int l = 0; l < p[1]; ++l) {
                    int c = j * p[3] - p[5] + l * p[7];
                    if (c < 0 || c >= width) continue;
                    float number = float(k * p[1] + l);
                    float4 one = x.read(uint2(c, r), gid.z);
                    // The first of equal maxima, the last NaN, and the first pixel if all are -INFINITY.
                    at = select(at, float4(number), at < 0.0f);
                    at = select(select(at, float4(number), best < one), float4(number), isnan(one));
                    best = select(select(best, one, best < one), one, isnan(one));
                    if (r == row && c == column) here = number;
                }
            }
            v = select(v, values.read(uint2(j, i), gid.z), at == here);
        }
    }
    y.write(v, gid.xy, gid.z);
}
"""


@dataclass(frozen=True)
class Windows:
    """Windows of a pooling, rows first."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    def source_extents(self, pooled: Pair) -> Pair:
        """Return the min extents of a source that has exactly these windows."""
        return tuple(  # type: ignore[return-value]
            (n - 1) * s + k - 2 * p for n, k, s, p in zip(pooled, self.kernel, self.stride, self.padding, strict=True)
        )

    def last_place(self, pooled: Pair, source: Pair) -> int:
        """Return the last number of a pixel of the source that may be a max."""
        row, column = (
            min((n - 1) * s - p + (k - 1) * d, extent - 1)
            for n, k, s, p, d, extent in zip(
                pooled, self.kernel, self.stride, self.padding, self.dilation, source, strict=True
            )
        )
        return int(row * source[1] + column)


@dataclass(frozen=True)
class Unpooled:
    """Rule for the result: an image with the extents of the pooling's source, or the min ones for its windows."""

    windows: Windows
    is_min: bool

    def __call__(self, shape: tuple[int, ...], source: tuple[int, ...]) -> tuple[int, ...]:  # noqa: D102
        height, width = self.windows.source_extents(shape[1:3]) if self.is_min else source[1:3]  # type: ignore[arg-type]
        if self.windows.last_place(shape[1:3], source[1:3]) >= height * width:  # type: ignore[arg-type]
            raise ValueError(
                f"places of maxima in {source[1]} x {source[2]} pixels may be beyond the {height} x {width} of the"
                " result of max_unpool2d"
            )
        return (shape[0], height, width, shape[3])


def max_unpool2d(
    builder: Builder, values: Tensor, source: Tensor, windows: Windows, extents: Pair, *, is_free: bool, is_min: bool
) -> Tensor:
    """Same as torch.nn.functional.max_unpool2d, for the places of the maxima of `source`.

    `extents` are those of the result. `is_min`, `is_free`: see `Unpooled`; whether the rule is valid for all sizes.
    """
    pooled = (values.height, values.width)
    if values.axes != "NCHW" or values.flat is not None or values.channels != source.channels:
        raise UnmappedError(f"{values.shape}, places of maxima of {source.shape}")
    if windows.last_place(pooled, (source.height, source.width)) >= extents[0] * extents[1]:
        raise UnmappedError(f"places of {source.height} x {source.width} pixels in {extents[0]} x {extents[1]}")
    image = (*extents, values.channels)
    general.check_image(image)
    if not is_free:
        builder.note_fixed()
        builder.fix_unless_constant(values)
        builder.fix_unless_constant(source)
    rule = Unpooled(windows, is_min) if is_free else general.Shaped(image)
    numbers = (*windows.kernel, *windows.stride, *windows.padding, *windows.dilation)
    return builder.add(
        general.function("unpooled", SOURCE),
        values,
        source,
        out_shape=rule,
        p=np.array(numbers, np.int32),
        height=image[0],
        width=image[1],
    )
