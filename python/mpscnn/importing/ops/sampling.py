# SPDX-License-Identifier: Apache-2.0
"""Weighted sums and maxima of neighbouring rows and columns, and samples at computed positions.

They are Metal functions: MPS has no bicubic interpolation, no antialias, and no windows of different sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from . import general

TAPS_LIMIT = 1 << 24  # max weights of a table

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// For each row or column of the result, a weighted sum or the max of consecutive ones of the source: first, count.
kernel void windows(texture2d_array<float, access::read> x [[texture(0)]],
                    texture2d_array<float, access::write> y [[texture(1)]],
                    constant uint* spans [[buffer(0)]], constant float* weights [[buffer(1)]],
                    constant uint& taps [[buffer(2)]], constant uint& flags [[buffer(3)]],
                    uint3 gid [[thread_position_in_grid]]) {
    bool rows = (flags & 1) != 0, is_max = (flags & 2) != 0;
    uint at = rows ? gid.y : gid.x, first = spans[2 * at], count = spans[2 * at + 1];
    float4 v = is_max ? float4(-INFINITY) : float4(0.0f);
    for (uint i = 0; i < count; ++i) {
        float4 one = x.read(rows ? uint2(gid.x, first + i) : uint2(first + i, gid.y), gid.z);
        // The max of NaN is NaN.
        v = is_max ? select(select(v, one, v < one), one, isnan(one)) : v + weights[at * taps + i] * one;
    }
    y.write(v, gid.xy, gid.z);
}

// flags: bits 0 and 1 the interpolation (linear, nearest, cubic), 2 and 3 the padding (zeros, border, reflection),
// 4 aligned corners.
static float source_position(float p, int extent, uint flags) {
    bool aligned = (flags & 16) != 0;
    return aligned ? (p + 1.0f) / 2.0f * float(extent - 1) : ((p + 1.0f) * float(extent) - 1.0f) / 2.0f;
}

// Position inside of the image, by the padding.
static float inside(float p, int extent, uint flags) {
    uint padding = flags >> 2 & 3;
    if (padding == 2) {
        bool aligned = (flags & 16) != 0;
        float low = aligned ? 0.0f : -0.5f, span = aligned ? float(extent - 1) : float(extent);
        if (span == 0.0f) return 0.0f;
        float distance = abs(p - low), turns = floor(distance / span), rest = distance - turns * span;
        p = fmod(turns, 2.0f) == 0.0f ? rest + low : span - rest + low;
    }
    return padding == 0 ? p : clamp(p, 0.0f, float(extent - 1));
}

static float4 value_at(texture2d_array<float, access::read> x, int column, int row, uint slice) {
    int width = x.get_width(), height = x.get_height();
    if (column < 0 || row < 0 || column >= width || row >= height) return 0.0f;
    return x.read(uint2(column, row), slice);
}

static float4 cubic_weights(float t) {
    const float a = -0.75f;
    float s = 1.0f - t, p = 1.0f + t, q = 1.0f + s;
    return float4(((a * p - 5.0f * a) * p + 8.0f * a) * p - 4.0f * a, ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f,
                  ((a + 2.0f) * s - (a + 3.0f)) * s * s + 1.0f, ((a * q - 5.0f * a) * q + 8.0f * a) * q - 4.0f * a);
}

kernel void sample(texture2d_array<float, access::read> x [[texture(0)]],
                   texture2d_array<float, access::read> positions [[texture(1)]],
                   texture2d_array<float, access::write> y [[texture(2)]],
                   constant uint& flags [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    int width = x.get_width(), height = x.get_height();
    float4 at = positions.read(gid.xy, 0);
    float column = source_position(at.x, width, flags), row = source_position(at.y, height, flags);
    uint interpolation = flags & 3;
    float4 v = 0.0f;
    if (isnan(column) || isnan(row)) {
        column = isnan(column) ? -1.0f : column;
        row = isnan(row) ? -1.0f : row;
    }
    // Beyond the range of an int every position is outside of the image.
    column = clamp(column, -1.0e8f, 1.0e8f);
    row = clamp(row, -1.0e8f, 1.0e8f);
    if (interpolation == 2) {
        float left = floor(column), top = floor(row);
        float4 across = cubic_weights(column - left), down = cubic_weights(row - top);
        for (int i = 0; i < 4; ++i) {
            float4 sum = 0.0f;
            int r = int(rint(inside(top + float(i - 1), height, flags)));
            for (int j = 0; j < 4; ++j) {
                int c = int(rint(inside(left + float(j - 1), width, flags)));
                sum += across[j] * value_at(x, c, r, gid.z);
            }
            v += down[i] * sum;
        }
    } else {
        column = inside(column, width, flags);
        row = inside(row, height, flags);
        if (interpolation == 1) {
            v = value_at(x, int(rint(column)), int(rint(row)), gid.z);
        } else {
            int left = int(floor(column)), top = int(floor(row));
            float right = column - float(left), below = row - float(top);
            float4 upper = mix(value_at(x, left, top, gid.z), value_at(x, left + 1, top, gid.z), right);
            float4 lower = mix(value_at(x, left, top + 1, gid.z), value_at(x, left + 1, top + 1, gid.z), right);
            v = mix(upper, lower, below);
        }
    }
    y.write(v, gid.xy, gid.z);
}
"""

RESAMPLE = """
#include <metal_stdlib>
using namespace metal;

// Of pixel i of m of the result along an axis of n pixels: weights of four pixels; returns the second.
// p: coordinates (0 half a pixel, 1 that or 0 if m is 1, 2 aligned corners, 3 asymmetric), the scale's numerator and
// denominator (0: m / n). Positions are fractions, exact at any extent. flags: 1 cubic, 2 no weight outside.
static int taps(int i, int n, int m, constant int* p, float a, int flags, thread float4& weights) {
    int up = p[1] == 0 ? m : p[1], down = p[1] == 0 ? n : p[2];
    int over = 2 * up, position = (2 * i + 1) * down - up;
    if (p[0] == 1 && m == 1) position = 0;
    if (p[0] == 2) {
        position = i * (n - 1);
        over = max(m - 1, 1);
    } else if (p[0] == 3) {
        position = i * down;
        over = up;
    }
    int first = position / over;
    if (first * over > position) --first;
    float t = float(position - first * over) / float(over), s = 1.0f - t;
    weights = float4(0.0f, s, t, 0.0f);
    if ((flags & 1) != 0)
        weights = float4(a * t * s * s, ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f,
                         ((a + 2.0f) * s - (a + 3.0f)) * s * s + 1.0f, a * s * t * t);
    if ((flags & 2) != 0) {
        float sum = 0.0f;
        for (int k = 0; k < 4; ++k) {
            if (first + k - 1 < 0 || first + k - 1 >= n) weights[k] = 0.0f;
            sum += weights[k];
        }
        weights = weights / sum;
    }
    return first;
}

static float4 resample(texture2d_array<float, access::read> x, int2 size, constant int* p, float a, uint3 gid) {
    int width = x.get_width(), height = x.get_height();
    float4 down = 0.0f, across = 0.0f, v = 0.0f;
    int top = taps(int(gid.y), height, size.y, p + 1, a, p[0], down);
    int left = taps(int(gid.x), width, size.x, p + 4, a, p[0], across);
    for (int i = 0; i < 4; ++i) {
        if (down[i] == 0.0f) continue;
        int row = clamp(top + i - 1, 0, height - 1);
        float4 sum = 0.0f;
        for (int j = 0; j < 4; ++j)
            if (across[j] != 0.0f) sum += across[j] * x.read(uint2(clamp(left + j - 1, 0, width - 1), row), gid.z);
        v += down[i] * sum;
    }
    return v;
}

kernel void resampled(texture2d_array<float, access::read> x [[texture(0)]],
                      texture2d_array<float, access::write> y [[texture(1)]],
                      constant int* p [[buffer(0)]], constant float& a [[buffer(1)]],
                      uint3 gid [[thread_position_in_grid]]) {
    y.write(resample(x, int2(y.get_width(), y.get_height()), p, a, gid), gid.xy, gid.z);
}

kernel void resampled_like(texture2d_array<float, access::read> x [[texture(0)]],
                           texture2d_array<float, access::read> like [[texture(1)]],
                           texture2d_array<float, access::write> y [[texture(2)]],
                           constant int* p [[buffer(0)]], constant float& a [[buffer(1)]],
                           uint3 gid [[thread_position_in_grid]]) {
    y.write(resample(x, int2(like.get_width(), like.get_height()), p, a, gid), gid.xy, gid.z);
}
"""

INTERPOLATIONS = {"bilinear": 0, "linear": 0, "nearest": 1, "bicubic": 2, "cubic": 2}
PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


@dataclass(frozen=True)
class Table:
    """For each pixel of an axis of the result: the first pixel of the source, their number, and their weights."""

    first: NDArray[np.int64]
    count: NDArray[np.int64]
    weights: NDArray[np.float32] | None
    """None: the max of the pixels."""

    @classmethod
    def of_taps(cls, places: NDArray[np.int64], weights: NDArray[np.float64], extent: int) -> Table:
        """Return the table of taps (result, taps) at places that clamp to the edge; equal places are added."""
        places = np.clip(places, 0, extent - 1)
        first = places.min(1)
        count = places.max(1) - first + 1
        if len(first) * int(count.max()) > TAPS_LIMIT:
            raise UnmappedError(
                f"{len(first)} sums of {count.max()} pixels, more than the maximum ({TAPS_LIMIT} weights)"
            )
        dense = np.zeros((len(first), int(count.max())))
        np.add.at(dense, (np.arange(len(first))[:, None], places - first[:, None]), weights)
        return cls(first, count, dense.astype(np.float32))

    @classmethod
    def of_areas(cls, areas: list[tuple[int, int]], *, mean: bool) -> Table:
        """Return the table for the means, or the max, of areas from their starts to their ends."""
        first, last = np.array(areas, np.int64).T
        count = last - first
        if not mean:
            return cls(first, count, None)
        taps = np.arange(int(count.max()))
        weights = np.where(taps < count[:, None], 1 / count[:, None], 0)
        return cls(first, count, weights.astype(np.float32))


def windows(builder: Builder, x: Tensor, tables: dict[str, Table]) -> Tensor:
    """Return weighted sums, or maxima, along the image's axes "H" and "W" of tables, columns first."""
    builder.fix_unless_constant(x)
    for axis in "WH":
        if axis not in tables:
            continue
        table = tables[axis]
        extents = {"H": x.height, "W": x.width, "C": x.channels} | {axis: len(table.first)}
        image = (extents["H"], extents["W"], extents["C"])
        general.check_image(image)
        weights = np.zeros((1, 1), np.float32) if table.weights is None else table.weights
        x = builder.add(
            general.function("windows", SOURCE),
            x,
            out_shape=general.Shaped(image),
            spans=np.ascontiguousarray(np.stack([table.first, table.count], 1), np.uint32).reshape(-1),
            weights=np.ascontiguousarray(weights).reshape(-1),
            taps=weights.shape[1],
            flags=(axis == "H") + 2 * (table.weights is None),
            height=image[0],
            width=image[1],
            channels=image[2],
        )
    return x


def cubic(t: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Return Keys's cubic kernel at distances t."""
    t = np.abs(t)
    near, far = ((a + 2) * t - (a + 3)) * t * t + 1, a * (((t - 5) * t + 8) * t - 4)
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def triangle(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the kernel of linear interpolation at distances t."""
    return np.asarray(np.maximum(1 - np.abs(t), 0))


def interpolation_table(
    positions: NDArray[np.float64], extent: int, kernel: Callable[..., NDArray[np.float64]], reach: int, inner: bool
) -> Table:
    """Return the table for samples at positions of the source. `inner`: taps outside of it have no weight."""
    places = np.floor(positions).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    weights = kernel(positions[:, None] - places)
    if inner:
        weights = np.where((places >= 0) & (places < extent), weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
    return Table.of_taps(places, weights, extent)


def antialias_table(
    extent: int, count: int, scale: float, kernel: Callable[..., NDArray[np.float64]], reach: int
) -> Table:
    """Return the table for a resize whose kernel is as wide as a pixel of the result, as in Pillow and PyTorch.

    `scale` is the number of pixels of the source for each of the result.
    """
    width = max(scale, 1.0)
    centres = scale * (np.arange(count) + 0.5)
    support = reach * width
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + support + 0.5).astype(np.int64), extent)
    places = first[:, None] + np.arange(int((last - first).max()))
    weights = np.where(places < last[:, None], kernel((places - centres[:, None] + 0.5) / width), 0)
    return Table.of_taps(places, weights / weights.sum(1, keepdims=True), extent)


@dataclass(frozen=True)
class Scaled:
    """Rule for a resize by a factor of each axis, or to the height and width of the second source."""

    rows: float = 0.0
    columns: float = 0.0

    def __call__(self, shape: tuple[int, ...], *like: tuple[int, ...]) -> tuple[int, ...]:  # noqa: D102
        n, h, w, c = shape
        return (n, *like[0][1:3], c) if like else (n, math.floor(h * self.rows), math.floor(w * self.columns), c)


# Numbers of coordinates, by ONNX's names, for `resampled`.
POSITIONS = {"half_pixel": 0, "pytorch_half_pixel": 1, "align_corners": 2, "asymmetric": 3}


def fraction(scale: float) -> tuple[int, int] | None:
    """Return a scale as a fraction of small numbers, or None if it is none."""
    found = Fraction(scale).limit_denominator(1000)
    if abs(float(found) - scale) > 1e-12 * scale or found.numerator > 1 << 14:
        return None
    return found.numerator, found.denominator


def resampled(
    builder: Builder,
    x: Tensor,
    by: tuple[float, float] | Tensor,
    coordinates: str,
    *,
    cubic: bool = True,
    coefficient: float = -0.75,
    inner: bool = False,
) -> Tensor:
    """Resize an image of any height and width by factors that are a `fraction`, or to the extents of another image.

    `coefficient` is that of Keys's kernel; `inner`: taps outside of the source have no weight.
    """
    kind, flags = POSITIONS[coordinates], cubic + 2 * inner
    if isinstance(by, Tensor):
        parts, sources, rule = [(0, 0), (0, 0)], [x, by], Scaled()
    else:
        parts, sources, rule = [fraction(scale) or (0, 0) for scale in by], [x], Scaled(*by)
    result = rule(*((1, y.height, y.width, y.channels) for y in sources))
    general.check_image((result[1], result[2], result[3]))
    return builder.add(
        general.function("resampled_like" if len(sources) > 1 else "resampled", RESAMPLE),
        *sources,
        out_shape=rule,
        p=np.array([flags, kind, *parts[0], kind, *parts[1]], np.int32),
        a=float(coefficient),
        height=result[1],
        width=result[2],
    )


def grid_sample(
    builder: Builder,
    x: Tensor,
    grid: Tensor | NDArray[np.float32],
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Same as torch.nn.functional.grid_sample for images; a grid that is an array is without the batch."""
    if mode not in INTERPOLATIONS or padding_mode not in PADDINGS:
        raise UnmappedError(f'samples with the mode "{mode}" and the padding "{padding_mode}"')
    x = general.with_channels_second(builder, x)
    if x.rank != 4 or len(grid.shape) != 3 or grid.shape[2] != 2:
        raise UnmappedError(f"samples of {x.shape} at positions of shape {grid.shape}")
    extents = x.axes[2:]
    if isinstance(grid, Tensor):
        builder.fix_unless_constant(grid)
        positions = general.store(builder, grid, (grid.shape[0], grid.shape[1], 2))
    else:
        positions = general.constant(builder, x, grid)
    builder.fix_unless_constant(x)
    if extents == "WH":
        x = general.channels_second(builder, x)
    image = (positions.height, positions.width, x.channels)
    general.check_image(image)
    y = builder.add(
        general.function("sample", SOURCE),
        x,
        replace(positions, axes="NHWC", flat=None),
        out_shape=general.Shaped(image),
        flags=INTERPOLATIONS[mode] + 4 * PADDINGS[padding_mode] + 16 * align_corners,
        height=image[0],
        width=image[1],
    )
    return replace(y, axes="NCHW", flat=None)
