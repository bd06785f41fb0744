# SPDX-License-Identifier: Apache-2.0
"""Images whose heights and widths are free, joined side by side, and images of the positions of their pixels.

They are Metal functions: MPS joins channels only, and has no kernel whose result depends on the position of a pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor
from . import general

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// The second image behind the first, along rows or columns.
kernel void joined(texture2d_array<float, access::read> a [[texture(0)]],
                   texture2d_array<float, access::read> b [[texture(1)]],
                   texture2d_array<float, access::write> y [[texture(2)]],
                   constant uint& rows [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    uint first = rows != 0 ? a.get_height() : a.get_width(), at = rows != 0 ? gid.y : gid.x;
    uint2 second = rows != 0 ? uint2(gid.x, at - first) : uint2(at - first, gid.y);
    if (at < first)
        y.write(a.read(gid.xy, gid.z), gid.xy, gid.z);
    else
        y.write(b.read(second, gid.z), gid.xy, gid.z);
}

// terms[3 * c] * row + terms[3 * c + 1] * column + terms[3 * c + 2] in channel c.
kernel void positions(texture2d_array<float, access::read> like [[texture(0)]],
                      texture2d_array<float, access::write> y [[texture(1)]],
                      constant float* terms [[buffer(0)]], constant uint& count [[buffer(1)]],
                      uint3 gid [[thread_position_in_grid]]) {
    float4 v = 0.0f;
    for (uint lane = 0; lane < 4; ++lane) {
        uint c = 4 * gid.z + lane;
        if (c < count) v[lane] = terms[3 * c] * float(gid.y) + terms[3 * c + 1] * float(gid.x) + terms[3 * c + 2];
    }
    y.write(v, gid.xy, gid.z);
}
"""


@dataclass(frozen=True)
class Joined:
    """Rule for images side by side, along axis 1 (rows) or 2 of their shape."""

    axis: int

    def __call__(  # noqa: D102
        self, shape: tuple[int, ...], other: tuple[int, ...]
    ) -> tuple[int, ...]:
        return (*shape[: self.axis], shape[self.axis] + other[self.axis], *shape[self.axis + 1 :])


@dataclass(frozen=True)
class Channels:
    """Rule for an image of the source's height and width with another number of channels."""

    count: int

    def __call__(self, shape: tuple[int, ...]) -> tuple[int, ...]:  # noqa: D102
        return (*shape[:3], self.count)


def joined(builder: Builder, tensors: Sequence[Tensor], axis: str) -> Tensor:
    """Concatenate images of equal axes along "H" or "W", whose extents may be free."""
    function, result = general.function("joined", SOURCE), tensors[0]
    for x in tensors[1:]:
        total = result.extent(axis) + x.extent(axis)
        result = builder.add(
            function,
            result,
            x,
            out_shape=Joined("NHW".index(axis)),
            rows=int(axis == "H"),
            **{"height" if axis == "H" else "width": total},
        )
    return result


def positions(builder: Builder, like: Tensor, terms: NDArray[Any]) -> Tensor:
    """Return an image of the height and width of `like`: a channel a y + b x + c for each row of `terms`, (a, b, c)."""
    y = builder.add(
        general.function("positions", SOURCE),
        like,
        out_shape=Channels(len(terms)),
        terms=np.ascontiguousarray(terms, np.float32).reshape(-1),
        count=len(terms),
        channels=len(terms),
    )
    return replace(y, axes="NCHW", flat=None)
