# SPDX-License-Identifier: Apache-2.0
"""Tensors of any number of axes, in any order: permutations, products of computed matrices, large constants.

Axes beyond those of an image are `Tensor.flat`. MPS has no kernels of images for these operations, so they are
functions in the Metal Shading Language (`SOURCE`). They fix heights and widths.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import CHANNEL_LIMIT, EXTENT_LIMIT
from ..builder import Builder, Tensor, UnmappedError

TABLE_LIMIT = 1 << 26  # max values of a constant
MAXIMUM_MORE = 16  # times as many equal parts of a factor or an image as are needed at least

SOURCE = """
#include <metal_stdlib>
using namespace metal;

// Where the value at (x, y, c) of the result is in the source, as (column, row, channel). p: number of axes, width and
// channels of the result, three extents of the source, the image's axis of each, place of the first value, extents and
// strides of the axes.
static uint3 place(constant uint* p, uint x, uint y, uint c) {
    uint n = p[0], left = (y * p[1] + x) * p[2] + c, at = p[9];
    for (uint d = n; d-- > 0;) {
        uint extent = p[10 + d], rest = left / extent;
        at += (left - rest * extent) * p[10 + n + d];
        left = rest;
    }
    uint found[3] = {0, 0, 0};
    found[p[8]] = at % p[5];
    at /= p[5];
    found[p[7]] = at % p[4];
    found[p[6]] = at / p[4];
    return uint3(found[1], found[0], found[2]);
}

#pragma openmps permutation(rearrange)
kernel void rearrange(texture2d_array<float, access::read> x [[texture(0)]],
                      texture2d_array<float, access::write> y [[texture(1)]],
                      constant uint* p [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    float4 v = 0.0f;
    for (uint lane = 0; lane < 4; ++lane) {
        uint c = 4 * gid.z + lane;
        if (c < p[2]) {
            uint3 at = place(p, gid.x, gid.y, c);
            v[lane] = x.read(at.xy, at.z / 4)[at.z % 4];
        }
    }
    y.write(v, gid.xy, gid.z);
}

// The same if channels are moved in fours.
#pragma openmps permutation(rearrange_slices)
kernel void rearrange_slices(texture2d_array<float, access::read> x [[texture(0)]],
                             texture2d_array<float, access::write> y [[texture(1)]],
                             constant uint* p [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    uint3 at = place(p, gid.x, gid.y, 4 * gid.z);
    y.write(x.read(at.xy, at.z / 4), gid.xy, gid.z);
}

// A matrix product for each row of images: rows of a matrix along the width, columns along the channels.
#pragma openmps product(multiply_matrices)
kernel void multiply_matrices(texture2d_array<float, access::read> a [[texture(0)]],
                              texture2d_array<float, access::read> b [[texture(1)]],
                              texture2d_array<float, access::write> y [[texture(2)]],
                              uint3 gid [[thread_position_in_grid]]) {
    uint row = 4 * gid.x, batch = gid.y, depth = a.get_array_size(), height = a.get_width();
    float4 r0 = 0.0f, r1 = 0.0f, r2 = 0.0f, r3 = 0.0f;
    for (uint k = 0; k < depth; ++k) {
        float4 b0 = b.read(uint2(4 * k, batch), gid.z), b1 = b.read(uint2(4 * k + 1, batch), gid.z);
        float4 b2 = b.read(uint2(4 * k + 2, batch), gid.z), b3 = b.read(uint2(4 * k + 3, batch), gid.z);
        float4 v = a.read(uint2(row, batch), k);
        r0 += v.x * b0 + v.y * b1 + v.z * b2 + v.w * b3;
        v = a.read(uint2(row + 1, batch), k);
        r1 += v.x * b0 + v.y * b1 + v.z * b2 + v.w * b3;
        v = a.read(uint2(row + 2, batch), k);
        r2 += v.x * b0 + v.y * b1 + v.z * b2 + v.w * b3;
        v = a.read(uint2(row + 3, batch), k);
        r3 += v.x * b0 + v.y * b1 + v.z * b2 + v.w * b3;
    }
    y.write(r0, uint2(row, batch), gid.z);
    if (row + 1 < height) y.write(r1, uint2(row + 1, batch), gid.z);
    if (row + 2 < height) y.write(r2, uint2(row + 2, batch), gid.z);
    if (row + 3 < height) y.write(r3, uint2(row + 3, batch), gid.z);
}

// Constants, in the order of rows, columns, channels.
kernel void constants(texture2d_array<float, access::read> like [[texture(0)]],
                      texture2d_array<float, access::write> y [[texture(1)]],
                      constant float* values [[buffer(0)]], constant uint& count [[buffer(1)]],
                      uint3 gid [[thread_position_in_grid]]) {
    uint c = 4 * gid.z, at = (gid.y * y.get_width() + gid.x) * count + c;
    float4 v = 0.0f;
    for (uint lane = 0; lane < 4; ++lane)
        if (c + lane < count) v[lane] = values[at + lane];
    y.write(v, gid.xy, gid.z);
}

kernel void gather_columns(texture2d_array<float, access::read> x [[texture(0)]],
                           texture2d_array<float, access::write> y [[texture(1)]],
                           constant uint* indices [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    y.write(x.read(uint2(indices[gid.x], gid.y), gid.z), gid.xy, gid.z);
}

// Values at any places, in the order of rows, columns, channels. p: channels of the result and of the source.
kernel void gather_values(texture2d_array<float, access::read> x [[texture(0)]],
                          texture2d_array<float, access::write> y [[texture(1)]],
                          constant uint* indices [[buffer(0)]], constant uint* p [[buffer(1)]],
                          uint3 gid [[thread_position_in_grid]]) {
    uint c = 4 * gid.z, first = (gid.y * y.get_width() + gid.x) * p[0] + c;
    float4 v = 0.0f;
    for (uint lane = 0; lane < 4; ++lane) {
        if (c + lane < p[0]) {
            uint at = indices[first + lane], pixel = at / p[1], channel = at % p[1];
            v[lane] = x.read(uint2(pixel % x.get_width(), pixel / x.get_width()), channel / 4)[channel % 4];
        }
    }
    y.write(v, gid.xy, gid.z);
}
"""


@functools.cache
def function(name: str, source: str = SOURCE) -> Any:
    """Return a function of a source, compiled for the default device, with IEEE arithmetic.

    UnmappedError if it cannot be compiled: there is no compiler.
    """
    from ...metal import MetalFunction

    try:
        return MetalFunction(source, name, fast_math=source is SOURCE)
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise UnmappedError(f"a Metal function, which cannot be compiled: {error}") from error


@dataclass(frozen=True)
class Shaped:
    """Rule for a result of one shape (H, W, C) for each image of the first source."""

    extents: tuple[int, int, int]

    def __call__(  # noqa: D102
        self, shape: tuple[int, ...], *others: tuple[int, ...]
    ) -> tuple[int, ...]:
        return (shape[0], *self.extents)


def _matrix_grid(shape: tuple[int, ...]) -> tuple[int, int, int]:
    return -(-shape[2] // 4), shape[1], -(-shape[3] // 4)


def _call(
    builder: Builder, name: str, shape: tuple[int, int, int], *sources: Tensor, is_read: bool = True, **values: Any
) -> Tensor:
    """Add a function whose result is an image (H, W, C). `is_read`: its sources are read, not only their batch."""
    check_image(shape)
    for source in sources:
        if is_read:
            builder.depend(source)
        else:
            builder.fix_unless_constant(source)  # in a trace for all sizes, such a constant may be free
    return builder.add(
        function(name),
        *sources,
        out_shape=Shaped(shape),
        **values,
        height=shape[0],
        width=shape[1],
        channels=shape[2],
    )


def check_image(shape: tuple[int, int, int]) -> None:
    """Raise UnmappedError unless an image can have this shape (H, W, C)."""
    if max(shape[:2]) > EXTENT_LIMIT or shape[2] > CHANNEL_LIMIT:
        raise UnmappedError(
            f"an image of {shape[0]} x {shape[1]} pixels and {shape[2]} channels, more than the maximum"
            f" ({EXTENT_LIMIT} x {EXTENT_LIMIT}, {CHANNEL_LIMIT})"
        )


def image_of(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return the image (H, W, C) that stores a tensor of `shape` (without the batch): its last axis is the channels."""
    if not shape:
        return 1, 1, 1
    rows = shape[-2] if len(shape) > 1 else 1
    return math.prod(shape[:-2]), rows, shape[-1]


def with_short_end(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape with the same values whose last axis an image can have as channels: two axes if it is longer."""
    if not shape or shape[-1] <= CHANNEL_LIMIT:
        return tuple(shape)
    last = shape[-1]
    count = next((n for n in range(2, EXTENT_LIMIT + 1) if last % n == 0 and last // n <= CHANNEL_LIMIT), 1)
    return (*shape[:-1], count, last // count)


def storage_of(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return `image_of`, or, if that has too many rows or columns, another image that has the same channels."""
    height, width, channels = image_of(shape)
    if len(shape) > 3 and height > EXTENT_LIMIT:
        height, width = height // shape[-3], width * shape[-3]
    if width > EXTENT_LIMIT >= height:
        most = EXTENT_LIMIT // max(height, 1)
        parts = next((n for n in range(2, most + 1) if width % n == 0 and width // n <= EXTENT_LIMIT), 1)
        height, width = height * parts, width // parts
    if max(height, width) > EXTENT_LIMIT:
        rows = height * width
        first = -(-rows // EXTENT_LIMIT)
        found = next((n for n in range(first, min(MAXIMUM_MORE * first, EXTENT_LIMIT) + 1) if rows % n == 0), 0)
        height, width = (found, rows // found) if found else (height, width)
    return height, width, channels


def is_stored(x: Tensor) -> bool:
    """Return whether the values are stored in the order of the tensor's axes."""
    axes = [axis for axis in x.axes[1:] if x.extent(axis) > 1]
    return axes == sorted(axes, key="HWC".index)


def _with_axes(y: Tensor, shape: Sequence[int]) -> Tensor:
    """Return an image in the order of `shape` with axes, flat if there are more than three."""
    shape = tuple(shape)
    if len(shape) <= 3:
        axes = "N" + ("" if not shape else "HWC"[-len(shape) :])
        if shape == tuple({"H": y.height, "W": y.width, "C": y.channels}[axis] for axis in axes[1:]):
            return replace(y, axes=axes, flat=None)
    return replace(y, axes="NHWC", flat=shape)


def store(builder: Builder, x: Tensor, image: tuple[int, int, int] | None = None) -> Tensor:
    """Return the tensor in an image (H, W, C) that has its values in the order of its axes; default: `storage_of`."""
    shape = x.shape
    image = storage_of(shape) if image is None else image
    if is_stored(x):
        if (x.height, x.width, x.channels) == image:
            builder.fix_unless_constant(x)
            return _with_axes(x, shape)
        check_image(image)
        builder.fix_unless_constant(x)
        y = builder.add("Reshape", x, shape=image, height=image[0], width=image[1], channels=image[2])
        return _with_axes(y, shape)
    return strided(builder, x, shape, strides_of(shape), image)


def strides_of(shape: Sequence[int]) -> list[int]:
    """Return the strides of a contiguous tensor, in values."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return strides


def strided(
    builder: Builder,
    x: Tensor,
    shape: Sequence[int],
    strides: Sequence[int],
    image: tuple[int, int, int] | None = None,
    first: int = 0,
) -> Tensor:
    """Return a tensor of `shape`; `strides` and `first` are places in the values of `x`, in the order of its axes.

    Without `image`, a last axis that is longer than an image has channels is stored as two: its image has others.
    """
    image = storage_of(with_short_end(shape)) if image is None else image
    letters = [*x.axes[1:], *(axis for axis in "HWC" if axis not in x.axes)]
    extents = [x.extent(axis) for axis in letters]
    kept = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent > 1] or [(1, 0)]
    joined = [kept[0]]
    for extent, stride in kept[1:]:
        if joined[-1][1] == extent * stride:
            joined[-1] = (joined[-1][0] * extent, stride)
        else:
            joined.append((extent, stride))
    rows = [len(joined), image[1], image[2], *extents, *("HWC".index(axis) for axis in letters), first]
    rows += [extent for extent, _ in joined] + [stride for _, stride in joined]
    real = [axis for axis in letters if x.extent(axis) > 1]
    in_fours = (
        bool(real)
        and real[-1] == "C"
        and x.channels % 4 == 0
        and joined[-1][1] == 1
        and first % 4 == 0
        and joined[-1][0] % 4 == 0
        and image[2] % 4 == 0
        and all(stride % 4 == 0 for _, stride in joined[:-1])
    )
    name = "rearrange_slices" if in_fours else "rearrange"
    return _with_axes(_call(builder, name, image, x, p=np.array(rows, np.uint32)), shape)


def permute(builder: Builder, x: Tensor, order: Sequence[int]) -> Tensor:
    """Same as torch.permute; `order` is that of the axes after the batch, from 0."""
    strides = strides_of(x.shape)
    return strided(builder, x, [x.shape[place] for place in order], [strides[place] for place in order])


def part(builder: Builder, x: Tensor, place: int, wanted: range) -> Tensor:
    """Return a part along one axis; `place` is without the batch."""
    strides, shape = strides_of(x.shape), list(x.shape)
    first = wanted.start * strides[place]
    shape[place], strides[place] = len(wanted), strides[place] * wanted.step
    return strided(builder, x, shape, strides, None, first)


def channels_second(builder: Builder, x: Tensor) -> Tensor:
    """Return a tensor of two to four axes as an image whose channels are axis 1."""
    count, strides = len(x.shape), strides_of(x.shape)
    shape = (*x.shape[1:], x.shape[0])
    y = strided(builder, x, shape, (*strides[1:], strides[0]), image_of(shape))
    return replace(y, axes="NC" + "HW"[3 - count :], flat=None)


def with_channels_second(builder: Builder, x: Tensor) -> Tensor:
    """Return a tensor as an image whose channels are axis 1, in place if it is one."""
    if (x.flat is None and x.axes[1:2] == "C") or not 3 <= x.rank <= 4:
        return x
    return channels_second(builder, x)


def broadcast(builder: Builder, x: Tensor, shape: Sequence[int], *, as_matrices: bool = False) -> Tensor:
    """Same as torch.expand, for the shape without the batch; `as_matrices`: in an image as `image_of`."""
    missing = len(shape) - len(x.shape)
    before, strides = (1,) * missing + x.shape, [0] * missing + strides_of(x.shape)
    if missing < 0 or any(a not in (1, b) for a, b in zip(before, shape, strict=True)):
        raise UnmappedError(f"{x.shape} as {tuple(shape)}")
    zeroed = [0 if a == 1 else s for a, s in zip(before, strides, strict=True)]
    return strided(builder, x, shape, zeroed, image_of(shape) if as_matrices else None)


def repeat(builder: Builder, x: Tensor, counts: Sequence[int]) -> Tensor:
    """Same as torch.tile, with a count for each axis after the batch."""
    strides = strides_of(x.shape)
    shape = [extent for pair in zip(counts, x.shape, strict=True) for extent in pair]
    y = strided(builder, x, shape, [value for stride in strides for value in (0, stride)])
    return store(builder, reshape(y, [count * extent for count, extent in zip(counts, x.shape, strict=True)]))


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the tensor with other axes, without moving values; heights and widths are fixed already."""
    return replace(x, flat=tuple(shape))


def constant(builder: Builder, like: Tensor, values: NDArray[Any]) -> Tensor:
    """Return constants, without the batch, as a tensor with the batch of `like`."""
    if values.size > TABLE_LIMIT:
        raise UnmappedError(f"a constant of {values.size} values, more than the maximum ({TABLE_LIMIT})")
    image = image_of(values.shape)
    table = np.ascontiguousarray(values, np.float32).reshape(-1)
    return _with_axes(
        _call(builder, "constants", image, like, is_read=False, values=table, count=image[2]), values.shape
    )


def matrices(builder: Builder, constant_: Any, like: Tensor) -> Tensor:
    """Return constant matrices for a product with `like`; those with as many axes have one for the batch."""
    array = np.asarray(constant_, np.float32)
    if array.ndim == like.rank:
        if len(array) != 1:
            raise UnmappedError(f"a product with a constant of shape {array.shape}, of its own for each image")
        array = array[0]
    if array.ndim < 2:
        raise UnmappedError(f"a product with a constant of shape {array.shape}")
    return constant(builder, like, array)


def matmul(builder: Builder, a: Tensor, b: Tensor) -> Tensor:
    """Same as torch.matmul of two computed tensors of two or more axes after the batch."""
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise UnmappedError(f"a product of {a.shape} and {b.shape}")
    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise UnmappedError(f"a product of {a.shape} and {b.shape}") from None
    limits = ((a.shape[-2], EXTENT_LIMIT), (a.shape[-1], CHANNEL_LIMIT), (b.shape[-1], CHANNEL_LIMIT))
    counts = [equal_parts(extent, limit) for extent, limit in limits]
    if max(counts) > 1:
        return _product_of_parts(builder, a, b, lead, *counts)
    a, b = (
        store(builder, x, image_of(x.shape))
        if x.shape[:-2] == lead
        else broadcast(builder, x, (*lead, *x.shape[-2:]), as_matrices=True)
        for x in (a, b)
    )
    shape = (*lead, a.shape[-2], b.shape[-1])
    y = _call(builder, "multiply_matrices", image_of(shape), a, b, grid=_matrix_grid)
    return _with_axes(y, shape)


def equal_parts(extent: int, limit: int) -> int:
    """Return the min number of equal parts that are no longer than the limit; 1 if there are none."""
    first = -(-extent // limit)
    return next((n for n in range(first, min(MAXIMUM_MORE * first, extent) + 1) if extent % n == 0), 1)


def _product_of_parts(
    builder: Builder, a: Tensor, b: Tensor, lead: Sequence[int], rows: int, sums: int, columns: int
) -> Tensor:
    """Return a product of matrices that are taken apart: into `rows` and `columns`, and into `sums` that are added."""
    m, k, n = a.shape[-2] // rows, a.shape[-1] // sums, b.shape[-1] // columns

    def taken_apart(x: Tensor, parts: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> Tensor:
        own = (1,) * (len(lead) + 2 - len(x.shape)) + x.shape
        before = [0 if extent == 1 else stride for extent, stride in zip(own, strides_of(own), strict=True)][:-2]
        shape = (*lead, *parts, *shape)
        return strided(builder, x, shape, [*before, *strides], image_of(shape))

    parts = (sums, rows, columns)
    a = taken_apart(a, parts, (k, m * k * sums, 0, k * sums, 1), (m, k))
    b = taken_apart(b, parts, (k * n * columns, 0, n, n * columns, 1), (k, n))
    y = matmul(builder, a, b)
    found = [reshape(part(builder, y, len(lead), range(i, i + 1)), (*lead, rows, columns, m, n)) for i in range(sums)]
    total = found[0]
    for one in found[1:]:
        total = builder.add("Add", total, one)
    if columns > 1:
        first = len(lead)
        total = permute(builder, total, [*range(first), first, first + 2, first + 1, first + 3])
    return reshape(total, (*lead, rows * m, columns * n))


def einsum(builder: Builder, a: tuple[str, Tensor], b: tuple[str, Tensor], result: str) -> Tensor:
    """Return the sum of products of two tensors, as torch.einsum, with a letter for each axis after the batch."""
    (first, x), (second, y) = a, b
    extents = dict(zip(first, x.shape, strict=True)) | dict(zip(second, y.shape, strict=True))
    lead = [letter for letter in result if letter in first and letter in second]
    rows = [letter for letter in result if letter in first and letter not in second]
    columns = [letter for letter in result if letter in second and letter not in first]
    summed = [letter for letter in first if letter in second and letter not in result]
    if {*first, *second} - {*lead, *rows, *columns, *summed}:
        raise UnmappedError(f'einsum "{first},{second}->{result}", a sum over an axis of one tensor')

    def matrices(letters: str, z: Tensor, *groups: list[str]) -> Tensor:
        order = [letters.index(letter) for group in groups for letter in group]
        z = store(builder, z) if order == list(range(len(order))) else permute(builder, z, order)
        return reshape(z, [math.prod(extents[letter] for letter in group) for group in groups])

    product = matmul(builder, matrices(first, x, lead, rows, summed), matrices(second, y, lead, summed, columns))
    letters = [*lead, *rows, *columns]
    product = reshape(product, [extents[letter] for letter in letters])
    order = [letters.index(letter) for letter in result]
    return product if order == list(range(len(order))) else permute(builder, product, order)


def attention(
    builder: Builder, query: Tensor, key: Tensor, value: Tensor, mask: NDArray[Any] | Tensor | None, scale: float | None
) -> Tensor:
    """Same as torch.nn.functional.scaled_dot_product_attention; a mask is added."""
    from . import arithmetic

    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    order = [*range(len(key.shape) - 2), len(key.shape) - 1, len(key.shape) - 2]
    scores = matmul(builder, arithmetic.multiply(builder, query, scale), permute(builder, key, order))
    if mask is not None:
        scores = binary(builder, arithmetic.add, scores, mask)
    return matmul(builder, builder.add("SoftMax", scores), value)


def binary(builder: Builder, compute: Callable[..., Tensor], *operands: Any, **options: Any) -> Tensor:
    """Apply a function of operands of any axes, with NumPy's broadcasting. Arrays are without the batch."""
    like = next(x for x in operands if isinstance(x, Tensor))
    shapes = [x.shape if isinstance(x, Tensor) else np.shape(x) for x in operands]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(map(str, shapes))
        raise UnmappedError(f"shapes {text} behind the batch do not broadcast") from None
    result, shape = shape, with_short_end(shape)
    end = shape[len(result) - 1 :]  # of the axes in place of the last one
    stored = []
    for x, extents in zip(operands, shapes, strict=True):
        own = (1,) * (len(result) - len(extents)) + tuple(extents)
        if len(end) > 1:
            own = (*own[:-1], *(end if own[-1] > 1 else (1, 1)))
        if not isinstance(x, Tensor):
            x = constant(builder, like, np.asarray(x, np.float32).reshape(own))
        elif x.shape != own:
            builder.fix_unless_constant(x)
            x = reshape(x, own)
        groups = [(own[:-2], shape[:-2]), (own[-2:-1], shape[-2:-1]), (own[-1:], shape[-1:])]
        fits = all(tuple(one) == tuple(other) or math.prod(one) == 1 for one, other in groups)
        x = store(builder, x, image_of(own)) if fits else broadcast(builder, x, shape, as_matrices=True)
        stored.append(replace(x, axes="NHWC", flat=None))
    return _with_axes(compute(builder, *stored, **options), result)


def with_last(builder: Builder, x: Tensor, dims: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Return the tensor with the axes `dims` (of the tensor, batch 0) as its channels, and the order of all axes."""
    last = [dim - 1 for dim in dims]
    order = [place for place in range(len(x.shape)) if place not in last] + last
    y = x if order == list(range(len(x.shape))) else permute(builder, x, order)
    kept = y.shape[: len(order) - len(last)]
    return store(builder, reshape(y, (*kept, math.prod(y.shape[len(kept) :])))), order


def restored(builder: Builder, y: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """Return a result of `with_last` with the axes of the source, whose shape is `shape`."""
    y = reshape(y, [shape[place] for place in order])
    back = [list(order).index(place) for place in range(len(order))]
    return y if back == list(range(len(order))) else permute(builder, y, back)


def around(builder: Builder, x: Tensor, place: int) -> Tensor:
    """Return an image (H, W, C) of the axes before `place`, of `place`, and after it; `place` is from 0."""
    shape = x.shape
    before, after = math.prod(shape[:place]), math.prod(shape[place + 1 :])
    y = store(builder, reshape(x, (before, shape[place], after)), (before, shape[place], after))
    return replace(y, axes="NHWC", flat=None)


def gather(builder: Builder, x: Tensor, place: int, indices: NDArray[Any]) -> Tensor:
    """Return the values at constant indices along one axis; `place` is without the batch."""
    shape = list(x.shape)
    builder.fix_unless_constant(x)
    table = np.ascontiguousarray(indices, np.uint32)
    before, after = math.prod(shape[:place]), math.prod(shape[place + 1 :])
    if max(before, shape[place], len(table)) > EXTENT_LIMIT or after > CHANNEL_LIMIT:
        values = np.arange(x.size, dtype=np.uint32).reshape(shape)
        return gather_values(builder, x, np.take(values, table, axis=place))
    y = around(builder, x, place)
    y = _call(builder, "gather_columns", (y.height, len(table), y.channels), y, indices=table)
    shape[place] = len(table)
    return reshape(y, shape)


def gather_values(builder: Builder, x: Tensor, places: NDArray[Any]) -> Tensor:
    """Return a tensor with the shape of `places`, which are constant places in the values of `x`."""
    if places.size > TABLE_LIMIT:
        raise UnmappedError(f"{places.size} constant places, more than the maximum ({TABLE_LIMIT})")
    y = store(builder, x, storage_of(with_short_end(x.shape)))
    image = storage_of(with_short_end(places.shape))
    table = np.ascontiguousarray(places.reshape(-1), np.uint32)
    p = np.array([image[2], y.channels], np.uint32)
    return _with_axes(_call(builder, "gather_values", image, y, indices=table, p=p), places.shape)
