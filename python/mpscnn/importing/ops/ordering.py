# SPDX-License-Identifier: Apache-2.0
"""Operators along one axis whose values are looked through in order: top k, sorts, sums so far, picks by index.

They are Metal functions along the channels of an image in which the axis is last, with a thread for each pixel.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...graph import CHANNEL_LIMIT, EXTENT_LIMIT
from ..builder import Builder, Tensor, UnmappedError
from . import arithmetic, general, shape

WORK_LIMIT = 1 << 33  # max comparisons of an image
PART_LIMIT = CHANNEL_LIMIT  # max values that one kernel looks through

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// The k largest (sign 1) or smallest (sign -1) of the first n channels, sorted, or their indices.
// Ties: lowest index first. NaN is greater than all others.
kernel void top(texture2d_array<float, access::read> x [[texture(0)]],
                texture2d_array<float, access::write> y [[texture(1)]],
                constant uint& n [[buffer(0)]], constant uint& k [[buffer(1)]], constant float& sign [[buffer(2)]],
                constant uint& indices [[buffer(3)]], uint3 gid [[thread_position_in_grid]]) {
    float4 result = 0.0f;
    float last = 0.0f;
    uint taken = 0;
    bool last_is_nan = false;
    for (uint j = 0; j < k; ++j) {
        bool found = false, best_is_nan = false;
        float best = 0.0f;
        uint place = 0;
        for (uint c = 0; c < n; ++c) {
            float v = x.read(gid.xy, c / 4)[c % 4] * sign;
            bool is_nan = isnan(v);
            if (is_nan) v = sign * INFINITY;
            // In order: by value, NaN in front of infinity (or behind it, if the least are wanted), by index.
            bool ahead = sign > 0.0f ? is_nan : !is_nan, last_ahead = sign > 0.0f ? last_is_nan : !last_is_nan;
            bool best_ahead = sign > 0.0f ? best_is_nan : !best_is_nan;
            bool after = j == 0 || v < last || (v == last && (ahead == last_ahead ? c > taken : last_ahead));
            bool better = !found || v > best || (v == best && ahead && !best_ahead);
            if (after && better) {
                found = true;
                best = v;
                best_is_nan = is_nan;
                place = c;
            }
        }
        last = best;
        last_is_nan = best_is_nan;
        taken = place;
        result[j % 4] = indices != 0 ? float(place) : x.read(gid.xy, place / 4)[place % 4];
        if (j % 4 == 3 || j + 1 == k) {
            y.write(result, gid.xy, j / 4);
            result = 0.0f;
        }
    }
}

// Sums (or products) of the channels so far. flags: 1 product, 2 without the own channel, 4 from the last.
kernel void accumulate(texture2d_array<float, access::read> x [[texture(0)]],
                       texture2d_array<float, access::write> y [[texture(1)]],
                       constant uint& n [[buffer(0)]], constant uint& flags [[buffer(1)]],
                       uint3 gid [[thread_position_in_grid]]) {
    float start = (flags & 1) != 0 ? 1.0f : 0.0f, total = start;
    float4 result = 0.0f;
    for (uint i = 0; i < n; ++i) {
        uint c = (flags & 4) != 0 ? n - 1 - i : i;
        float v = x.read(gid.xy, c / 4)[c % 4], before = total;
        total = (flags & 1) != 0 ? total * v : total + v;
        result[c % 4] = (flags & 2) != 0 ? before : total;
        if (i + 1 == n || c % 4 == ((flags & 4) != 0 ? 0 : 3)) {
            y.write(result, gid.xy, c / 4);
            result = 0.0f;
        }
    }
}

// Channels of x whose numbers are the channels of `places`; negative numbers count from the end.
kernel void pick(texture2d_array<float, access::read> x [[texture(0)]],
                 texture2d_array<float, access::read> places [[texture(1)]],
                 texture2d_array<float, access::write> y [[texture(2)]],
                 constant uint& n [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    float4 at = places.read(gid.xy, gid.z), v = 0.0f;
    for (uint lane = 0; lane < 4; ++lane) {
        int c = int(at[lane]);
        c = clamp(c < 0 ? c + int(n) : c, 0, int(n) - 1);
        v[lane] = x.read(gid.xy, c / 4)[c % 4];
    }
    y.write(v, gid.xy, gid.z);
}

// The same along n pixels, `rows` rows of the source for each row of the result.
kernel void pick_pixels(texture2d_array<float, access::read> x [[texture(0)]],
                        texture2d_array<float, access::read> places [[texture(1)]],
                        texture2d_array<float, access::write> y [[texture(2)]],
                        constant uint& n [[buffer(0)]], constant uint& rows [[buffer(1)]],
                        uint3 gid [[thread_position_in_grid]]) {
    float4 at = places.read(gid.xy, gid.z), v = 0.0f;
    uint width = x.get_width();
    for (uint lane = 0; lane < 4; ++lane) {
        int c = int(at[lane]);
        uint pixel = clamp(c < 0 ? c + int(n) : c, 0, int(n) - 1);
        v[lane] = x.read(uint2(pixel % width, gid.y * rows + pixel / width), gid.z)[lane];
    }
    y.write(v, gid.xy, gid.z);
}
"""


def _one_thread_each(extents: tuple[int, ...]) -> tuple[int, int, int]:
    return extents[2], extents[1], 1


def _last(builder: Builder, x: Tensor, dim: int) -> tuple[Tensor, list[int]]:
    """Return the tensor in an image whose channels are axis `dim`, and the order of all axes."""
    if x.rank < 2 or dim % x.rank == 0:
        raise UnmappedError("an order of the images of the batch")
    return general.with_last(builder, x, [dim % x.rank])


def _back(builder: Builder, y: Tensor, x: Tensor, dim: int, count: int, order: list[int]) -> Tensor:
    extents = list(x.shape)
    extents[dim % x.rank - 1] = count
    return general.restored(builder, y, extents, order)


def _along(builder: Builder, name: str, y: Tensor, count: int, **values: Any) -> Tensor:
    image = (y.height, y.width, count)
    source = replace(y, axes="NHWC", flat=None)
    general.check_image(image)
    return builder.add(
        general.function(name, SOURCE),
        source,
        out_shape=general.Shaped(image),
        grid=_one_thread_each,
        channels=count,
        n=y.channels,
        **values,
    )


def top(
    builder: Builder, x: Tensor, k: int, dim: int = -1, largest: bool = True, wanted: tuple[bool, bool] = (True, True)
) -> list[Tensor | None]:
    """Same as torch.topk, sorted: values and indices; of equal values, the first in order. Indices are floats.

    `wanted`: which of both are computed.
    """
    if x.rank > 1 and dim % x.rank and x.shape[dim % x.rank - 1] > CHANNEL_LIMIT:
        return _top_of_parts(builder, x, k, dim % x.rank, largest, wanted)
    y, order = _last(builder, x, dim)
    extent = y.channels
    if not 1 <= k <= extent:
        raise UnmappedError(f"the {k} {'largest' if largest else 'smallest'} of {extent} values")
    if k * y.size > WORK_LIMIT:
        raise UnmappedError(
            f"the {k} {'largest' if largest else 'smallest'} of {extent} values, {y.height * y.width} times:"
            f" {k * y.size} comparisons are more than the maximum ({WORK_LIMIT})"
        )
    found: list[Tensor | None] = []
    for indices, is_wanted in enumerate(wanted):
        if not is_wanted:
            found.append(None)
            continue
        z = _along(builder, "top", y, k, k=k, sign=1.0 if largest else -1.0, indices=indices)
        found.append(_back(builder, z, x, dim, k, order))
    return found


def _top_of_parts(
    builder: Builder, x: Tensor, k: int, dim: int, largest: bool, wanted: tuple[bool, bool]
) -> list[Tensor | None]:
    """Return `top` of more values than an image has channels: that of the best of parts.

    Of equal values the first stays the first: parts are in order, and so are the best of each.
    """
    extent = x.shape[dim - 1]
    if not 1 <= k <= PART_LIMIT // 2:
        raise UnmappedError(
            f"the {k} {'largest' if largest else 'smallest'} of {extent} values: at most {PART_LIMIT // 2} of more than"
            f" {PART_LIMIT} are found"
        )
    parts = next((n for n in range(2, extent // k + 1) if extent % n == 0 and extent // n <= PART_LIMIT), 0)
    if parts > EXTENT_LIMIT or (parts and parts * k > extent // 2):
        parts = 0
    if parts:
        inner = (*x.shape[: dim - 1], parts, extent // parts, *x.shape[dim:])
        values, places = _both(top(builder, shape.reshape(builder, x, inner), k, dim + 1, largest))
        starts = np.arange(parts, dtype=np.float32).reshape(parts, *[1] * (len(inner) - dim)) * (extent // parts)
        places = general.binary(builder, arithmetic.add, places, starts)
        together = (*x.shape[: dim - 1], parts * k, *x.shape[dim:])
        values, places = (shape.reshape(builder, y, together) for y in (values, places))
    else:
        found = []
        for first in range(0, extent, PART_LIMIT):
            count = min(PART_LIMIT, extent - first)
            one, at = _both(top(builder, shape.narrow(builder, x, dim, first, count), min(k, count), dim, largest))
            found.append((one, arithmetic.add(builder, at, float(first)) if first else at))
        values, places = (shape.cat(builder, list(group), dim) for group in zip(*found, strict=True))
    best, chosen = top(builder, values, k, dim, largest, wanted)
    return [best, None if chosen is None else pick(builder, places, dim, chosen)]


def _both(found: list[Tensor | None]) -> tuple[Tensor, Tensor]:
    values, places = found
    assert values is not None
    assert places is not None
    return values, places


def argument(builder: Builder, x: Tensor, dim: int, keepdim: bool, largest: bool) -> Tensor:
    """Return the index of the max or min along an axis, the first of equals, as a float."""
    if x.rank > 1 and dim % x.rank and x.shape[dim % x.rank - 1] > PART_LIMIT:
        found = top(builder, x, 1, dim, largest, (False, True))[1]
        assert found is not None
        result = found
    else:
        y, order = _last(builder, x, dim)
        kind = "Max" if largest else "Min"
        z = builder.add(f"ReduceFeatureChannelsArgument{kind}", replace(y, axes="NHWC", flat=None), channels=1)
        result = _back(builder, z, x, dim, 1, order)
    return (
        result
        if keepdim
        else shape.reshape(builder, result, [e for d, e in enumerate(result.shape, 1) if d != dim % x.rank])
    )


def accumulated(
    builder: Builder, x: Tensor, dim: int, *, product: bool = False, exclusive: bool = False, reverse: bool = False
) -> Tensor:
    """Same as torch.cumsum or torch.cumprod; `exclusive` and `reverse` as in ONNX."""
    y, order = _last(builder, x, dim)
    z = _along(builder, "accumulate", y, y.channels, flags=product + 2 * exclusive + 4 * reverse)
    return _back(builder, z, x, dim, y.channels, order)


def product(builder: Builder, x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Same as torch.prod along one axis."""
    y = shape.narrow(builder, accumulated(builder, x, dim, product=True), dim, x.shape[dim % x.rank - 1] - 1, 1)
    return y if keepdim else shape.reshape(builder, y, [e for d, e in enumerate(y.shape, 1) if d != dim % x.rank])


def pick(builder: Builder, x: Tensor, dim: int, indices: Tensor) -> Tensor:
    """Same as torch.gather: values at computed indices along one axis. Indices beyond the axis clamp to its ends."""
    place = dim % x.rank
    before, after = list(x.shape), list(indices.shape)
    if place == 0 or len(before) != len(after):
        raise UnmappedError(f"values of {x.shape} by indices of shape {indices.shape}")
    count = after.pop(place - 1)
    before.pop(place - 1)
    if any(a < b for a, b in zip(before, after, strict=True)):
        raise UnmappedError(f"values of {x.shape} by indices of shape {indices.shape}")
    for axis, extent in enumerate(indices.shape, 1):
        if axis != place and x.shape[axis - 1] != extent:
            x = shape.narrow(builder, x, axis, 0, extent)
    if x.shape[place - 1] > CHANNEL_LIMIT:
        return _pick_pixels(builder, x, place, indices)
    y, order = _last(builder, x, place)
    where, _ = _last(builder, indices, place)
    if math.prod((y.height, y.width)) != math.prod((where.height, where.width)):
        raise UnmappedError(f"values of {x.shape} by indices of shape {indices.shape}")
    image = (y.height, y.width, count)
    where = general.store(builder, where, image)
    z = builder.add(
        general.function("pick", SOURCE),
        replace(y, axes="NHWC", flat=None),
        replace(where, axes="NHWC", flat=None),
        out_shape=general.Shaped(image),
        n=y.channels,
        channels=count,
    )
    return _back(builder, z, x, dim, count, order)


def _pick_pixels(builder: Builder, x: Tensor, place: int, indices: Tensor) -> Tensor:
    """Return what `pick` does for more values than an image has channels: the axis is one of rows and columns."""
    n, count = x.shape[place - 1], indices.shape[place - 1]
    lead, channels = math.prod(x.shape[: place - 1]), math.prod(x.shape[place:])
    rows = general.equal_parts(n, EXTENT_LIMIT)  # for each row of the result
    builder.depend(x)
    builder.depend(indices)
    source, image = (lead * rows, n // rows, channels), (lead, count, channels)
    y = general.store(builder, general.reshape(x, source), source)
    where = general.store(builder, general.reshape(indices, image), image)
    z = builder.add(
        general.function("pick_pixels", SOURCE),
        replace(y, axes="NHWC", flat=None),
        replace(where, axes="NHWC", flat=None),
        out_shape=general.Shaped(image),
        n=n,
        rows=rows,
        height=lead,
        width=count,
        channels=channels,
    )
    return general.reshape(z, indices.shape)
