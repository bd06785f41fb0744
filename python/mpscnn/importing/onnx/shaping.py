# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that move values: shapes, parts, padding, resizing; and shapes as values."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Tensor, UnmappedError
from ..ops import arithmetic, resize, shape
from . import static
from .node import Call, Value, whole_shape
from .reading import DTYPES, dtype_name
from .static import Extent, settled
from .table import operator

REPEATS_LIMIT = 64  # parts of a concatenation that repeats its source


@operator("Identity")
def _identity(call: Call) -> Value:
    return call.tensor()


@operator("Dropout")
def _dropout(call: Call) -> Value:
    call.only_first_output()
    training = call.array(2, "a mode", None)
    if training is not None and training.any():
        raise UnmappedError("dropout in training")
    return call.tensor()


@operator("Cast")
def _cast(call: Call) -> Value:
    number = call.integer("to")
    dtype = DTYPES.get(number)
    if dtype is None or (dtype.kind != "f" and number != 16):
        raise UnmappedError(f"values that are computed as {dtype_name(number)}")
    return call.tensor()


@operator("CastLike")
def _cast_like(call: Call) -> Value:
    like = call.value(1)
    if not isinstance(like, Tensor) and (like is None or like.dtype.kind != "f"):
        raise UnmappedError("values that are computed as another type")
    return call.tensor()


def in_groups(x: Tensor, groups: int) -> bool:
    """Whether the channels, which are the first axis of each image, can be taken together in so many groups."""
    return x.flat is None and x.axes[1:2] == "C" and x.channels % groups == 0


@operator("Reshape")
def _reshape(call: Call) -> Value:
    x = call.tensor()
    target = call.value(1)
    if target is None or isinstance(target, Tensor):
        raise UnmappedError("a shape that is computed of values")
    extents = whole_shape(call, x, target)
    groups = extents[0] if len(extents) == 2 else 0
    if groups > 1 and set(call.readers) == {"InstanceNormalization"} and in_groups(x, groups):
        # A group normalization: nothing else sees how its values are taken together, which may be any number.
        return replace(x, flat=(groups, x.size // groups))
    return shape.reshape(call.builder, x, extents)


@operator("Flatten")
def _flatten(call: Call) -> Value:
    x, axis = call.tensor(), call.integer("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis == 1:
        return shape.flatten(call.builder, x, 1) if x.rank > 1 else shape.unsqueeze(call.builder, x, 1)
    if 1 < axis <= x.rank and math.prod(x.shape[: axis - 1]) == 1:
        call.builder.fix_unless_constant(x)
        return shape.reshape(call.builder, x, (math.prod(x.shape[axis - 1 :]),))
    raise UnmappedError("the batch taken together with other axes")


@operator("Squeeze")
def _squeeze(call: Call) -> Value:
    x = call.tensor()
    axes = call.numbers(1, "axes", "axes")
    if axes is not None and any(-x.rank <= a < x.rank and a % x.rank and x.shape[a % x.rank - 1] != 1 for a in axes):
        raise InvalidModelError(f"{call.name}: axes {axes} of {x.shape} behind the batch are not all 1.")
    if axes is None and call.batch == 1:
        raise UnmappedError("the axis of the batch squeezed")
    return shape.squeeze(call.builder, x, axes)


@operator("Unsqueeze")
def _unsqueeze(call: Call) -> Value:
    x = call.tensor()
    axes = call.numbers(1, "axes", "axes")
    if axes is None:
        raise InvalidModelError(f"{call.name}: axes are missing.")
    rank = x.rank + len(axes)
    for axis in sorted(a + rank if a < 0 else a for a in axes):
        x = shape.unsqueeze(call.builder, x, axis)
    return x


@operator("Transpose")
def _transpose(call: Call) -> Value:
    x = call.tensor()
    order = call.integers("perm", list(range(x.rank))[::-1])
    if x.flat is not None and x.axes == "NCHW" and len(x.flat) == 5 and tuple(order) in BLOCKS:
        y = _blocks(call, x, tuple(order))
        if y is not None:
            return y
    return shape.permute(call.builder, x, order)


# Orders of six axes that move blocks of pixels: whether out of channels, and whether channels are position-major.
BLOCKS: dict[tuple[int, ...], tuple[bool, bool]] = {
    (0, 1, 4, 2, 5, 3): (True, False),
    (0, 3, 4, 1, 5, 2): (True, True),
    (0, 1, 3, 5, 2, 4): (False, False),
    (0, 3, 5, 1, 2, 4): (False, True),
}


def _blocks(call: Call, x: Tensor, order: tuple[int, ...]) -> Tensor | None:
    """Depth to space, or back, written as a Transpose of axes that were taken apart. None: it is something else."""
    assert x.flat is not None
    to_space, major = BLOCKS[order]
    image, flat = replace(x, flat=None), tuple(x.flat[axis - 1] for axis in order[1:])
    if to_space:
        r = x.flat[0] if major else x.flat[1]
        taken = (r, r, x.channels // (r * r)) if major else (x.channels // (r * r), r, r)
        if x.flat != (*taken, x.height, x.width):
            return None
        return replace(resize.pixel_shuffle(call.builder, image, r, position_major=major), flat=flat)
    r = x.flat[2]
    if x.flat != (x.channels, x.height // r, r, x.width // r, r):
        return None
    return replace(resize.pixel_unshuffle(call.builder, image, r, position_major=major), flat=flat)


@operator("Expand")
def _expand(call: Call) -> Value:
    x, target = call.tensor(), call.value(1)
    if target is None or isinstance(target, Tensor):
        raise UnmappedError("a shape that is computed of values")
    items: list[Any] = list(target.ravel())
    if len(items) < x.rank:
        items = [1] * (x.rank - len(items)) + items
    elif len(items) > x.rank:
        raise UnmappedError("axes in front of the batch")
    first = items[0]
    if isinstance(first, Extent):
        if not first.is_batch:
            raise UnmappedError("the batch repeated")
    elif first not in (1, -1, call.batch):
        raise UnmappedError("the batch repeated")
    own = call.shape_of(x)
    rest = []
    for extent, item, mine in zip(x.shape, items[1:], list(own)[1:], strict=True):
        same = isinstance(item, Extent) and isinstance(mine, Extent) and item.is_multiple_of(mine) == 1
        value = extent if same else int(settled(static.extents([item]), call.builder.fix)[0])
        rest.append(extent if value in (1, -1) else value)
    return shape.expand(call.builder, x, rest)


@operator("Tile")
def _tile(call: Call) -> Value:
    x, repeats = call.tensor(), call.array(1, "repeats").ravel().tolist()
    if len(repeats) != x.rank or min(repeats) < 0:
        raise InvalidModelError(f"{call.name}: repeats {repeats} of a tensor of {x.rank} axes.")
    if repeats[0] != 1 or 0 in repeats or max(repeats) > REPEATS_LIMIT:
        raise UnmappedError(f"values repeated {repeats} times")
    for axis, count in enumerate(repeats):
        if count > 1:
            x = shape.cat(call.builder, [x] * count, axis)
    return x


@operator("Concat")
def _concat(call: Call) -> Value:
    builder = call.builder
    tensors = [v for v in call.values if isinstance(v, Tensor)]
    first, axis = tensors[0], call.integer("axis")
    operands: list[Tensor] = []
    for i, value in enumerate(call.values):
        if isinstance(value, Tensor):
            operands.append(value)
            continue
        array = arithmetic.as_float32(np.asarray(call.operand(i)))
        if array.ndim != first.rank or array.shape[0] != 1 or first.flat is not None:
            raise UnmappedError(f"a constant of shape {array.shape} beside computed values")
        letters = first.axes[1:] + "".join(letter for letter in "HWC" if letter not in first.axes)
        image = array[0].reshape(array.shape[1:] + (1,) * (len(letters) - array.ndim + 1))
        image = image.transpose([letters.index(letter) for letter in "HWC"])
        constant = arithmetic.constant_image(builder, first, image)
        operands.append(replace(constant, axes=first.axes, flat=None))
    return shape.cat(builder, operands, axis)


@operator("Split")
def _split(call: Call) -> list[Value]:
    x, axis = call.tensor(), call.integer("axis", 0)
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis < x.rank:
        raise InvalidModelError(f"{call.name}: axis {axis} of {x.rank}.")
    if axis == 0:
        raise UnmappedError("a part of the batch")
    given = call.value(1)
    if isinstance(given, Tensor):
        raise UnmappedError("parts of computed lengths")
    sizes = call.split_sizes(x.shape[axis - 1], given)
    if 0 in sizes:
        raise UnmappedError("a part without values")
    parts: list[Value] = []
    start = 0
    for size, wanted in zip(sizes, call.wanted, strict=True):
        parts.append(shape.narrow(call.builder, x, axis, start, size) if wanted else x)
        start += size
    return parts


@operator("Slice")
def _slice(call: Call) -> Value:
    x = call.tensor()
    starts, stops, axes, steps = call.slices(x.rank, call.values[1:])
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        if axis == 0:
            if step == 1 and start == 0 and stop >= 2**31 - 1:
                continue
            raise UnmappedError("a part of the batch")
        if (start, step) == (0, 1) and stop >= 2**31 - 1:
            continue
        x = shape.strided_slice(call.builder, x, axis, start, stop, step)
    return x


@operator("Gather")
def _gather(call: Call) -> Value:
    x, axis = call.tensor(), call.integer("axis", 0)
    axis = axis + x.rank if axis < 0 else axis
    indices = call.array(1, "indices")
    if axis == 0:
        raise UnmappedError("a part of the batch")
    if not 0 < axis < x.rank:
        raise InvalidModelError(f"{call.name}: axis {axis} of {x.rank}.")
    extent = x.shape[axis - 1]
    if indices.dtype.kind not in "iu" or (indices.size and not (-extent <= indices.min() <= indices.max() < extent)):
        raise InvalidModelError(f"{call.name}: indices {indices.ravel()[:4].tolist()} of {extent}.")
    if indices.ndim == 0:
        return shape.select(call.builder, x, axis, int(indices))
    if indices.ndim > 1 or not indices.size:
        raise UnmappedError(f"indices of shape {indices.shape}")
    numbers = [int(i) % extent for i in indices]
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return shape.narrow(call.builder, x, axis, numbers[0], len(numbers))
    if x.flat is None and x.axes[axis] == "C":
        return shape.pick_channels(call.builder, x, numbers)
    raise UnmappedError("rows or columns in another order")


@operator("Shape")
def _shape(call: Call) -> Value:
    return call.shape_slice(call.shape_of(call.tensor()))


@operator("Size")
def _size(call: Call) -> Value:
    total = np.empty((), object)
    total[()] = math.prod(call.shape_of(call.tensor()))
    return total


# ---- padding and resizing


@operator("Pad")
def _pad(call: Call) -> Value:
    x = call.tensor()
    pads = call.numbers(1, "pads", "pads")
    if pads is None:
        raise InvalidModelError(f"{call.name}: pads are missing.")
    value = call.real("value", 0.0)
    constant = call.array(2, "a value", None) if call.opset >= 11 else None
    if constant is not None:
        value = float(constant.ravel()[0]) if constant.size else 0.0
    axes = call.numbers(3, None, "axes") if call.opset >= 18 else None
    axes = list(range(x.rank)) if axes is None else [a % x.rank if -x.rank <= a < x.rank else -1 for a in axes]
    if len(pads) != 2 * len(axes) or -1 in axes:
        raise InvalidModelError(f"{call.name}: pads {pads} for axes {axes} of {x.rank}.")
    sides = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    if any(sides.get(0, (0, 0))):
        raise UnmappedError("padding of the batch")
    mode = call.text("mode", "constant")
    if mode not in ("constant", "reflect", "edge"):
        raise UnmappedError(f'padding "{mode}"')
    flat = [p for axis in range(x.rank - 1, 0, -1) for p in sides.get(axis, (0, 0))]
    return resize.pad(call.builder, x, flat, mode, value)


def _sizes(call: Call, x: Tensor, array: NDArray[Any]) -> tuple[list[int | None], list[float | None]]:
    """Extents of the result, or scales where an extent is a multiple of the source's at any size."""
    sizes: list[int | None] = []
    scales: list[float | None] = []
    for item, mine in zip(array.ravel(), call.shape_of(x), strict=True):
        multiple = item.is_multiple_of(mine) if isinstance(item, Extent) and isinstance(mine, Extent) else None
        if multiple is not None:
            scales.append(float(multiple))
            sizes.append(None)
        else:
            sizes.append(int(settled(static.extents([item]), call.builder.fix)[0]))
            scales.append(None)
    return sizes, scales


def _window_axes(call: Call, x: Tensor, axes: list[int]) -> None:
    if any(a not in range(x.rank) for a in axes) or len(set(axes)) != len(axes):
        raise InvalidModelError(f"{call.name}: axes {axes} of {x.rank}.")


@operator("Resize", "Upsample")
def _resize(call: Call) -> Value:
    x = call.tensor()
    mode = call.text("mode", "nearest")
    old = call.operator == "Upsample" or call.opset < 11
    if mode not in ("nearest", "linear"):
        raise UnmappedError(f'a resize "{mode}"')
    if old:
        coordinates, rounding = "asymmetric", "floor"
    else:
        coordinates = call.text("coordinate_transformation_mode", "half_pixel")
        rounding = call.text("nearest_mode", "round_prefer_floor")
    if coordinates not in resize.COORDINATES:
        raise UnmappedError(f'coordinates "{coordinates}"')
    if call.integer("exclude_outside", 0):
        raise UnmappedError("exclude_outside")
    axes = call.integers("axes", list(range(x.rank)))
    axes = [a + x.rank if a < 0 else a for a in axes]
    _window_axes(call, x, axes)
    place = 1 if old else 2
    scale_values = np.array(call.reals("scales"), np.float32) if call.has("scales") else call.value(place)
    size_values = None if old else call.value(3)
    if isinstance(scale_values, Tensor) or isinstance(size_values, Tensor):
        raise UnmappedError("extents that are computed of values")
    sizes: list[int | None] = [None] * x.rank
    scales: list[float | None] = [None] * x.rank
    if size_values is not None and size_values.size:
        if size_values.size != len(axes):
            raise InvalidModelError(f"{call.name}: {size_values.size} sizes for {len(axes)} axes.")
        if len(axes) == x.rank:
            sizes, scales = _sizes(call, x, size_values)
        else:
            for axis, size in zip(axes, settled(size_values, call.builder.fix).ravel().tolist(), strict=True):
                sizes[axis] = int(size)
        sizes, scales = _with_policy(call, x, axes, sizes, scales)
    elif scale_values is not None and scale_values.size:
        values = settled(scale_values, call.builder.fix).ravel().tolist()
        if len(values) != len(axes):
            raise InvalidModelError(f"{call.name}: {len(values)} scales for {len(axes)} axes.")
        for axis, scale in zip(axes, values, strict=True):
            scales[axis] = _exact(float(scale))
    else:
        raise InvalidModelError(f"{call.name}: neither scales nor sizes.")
    return _resized(call, x, sizes, scales, mode, coordinates, rounding, old)


def _exact(scale: float) -> float:
    """1 / 3 as it was meant, where float32 is the nearest to it."""
    fraction = Fraction(scale).limit_denominator(64)
    return float(fraction) if np.float32(float(fraction)) == np.float32(scale) else scale


def _with_policy(
    call: Call, x: Tensor, axes: list[int], sizes: list[int | None], scales: list[float | None]
) -> tuple[list[int | None], list[float | None]]:
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes, scales
    if policy not in ("not_larger", "not_smaller") or any(sizes[a] is None for a in axes) or 0 in axes:
        raise UnmappedError(f'a resize with the policy "{policy}"')
    of = [(sizes[a] or 0) / x.shape[a - 1] for a in axes]
    scale = min(of) if policy == "not_larger" else max(of)
    call.builder.fix_unless_constant(x)
    for a in axes:
        sizes[a], scales[a] = math.floor(x.shape[a - 1] * scale + 0.5), scale
    return sizes, scales


def _resized(
    call: Call,
    x: Tensor,
    sizes: list[int | None],
    scales: list[float | None],
    mode: str,
    coordinates: str,
    rounding: str,
    old: bool,
) -> Value:
    if scales[0] not in (None, 1.0) or (sizes[0] is not None and sizes[0] != call.batch):
        raise UnmappedError("the batch resized")
    changed = []
    for axis in range(1, x.rank):
        same = scales[axis] in (None, 1.0) and sizes[axis] in (None, x.shape[axis - 1])
        if not same:
            changed.append(axis)
        elif sizes[axis] is not None and x.flat is None and x.axes[axis] != "C":
            call.builder.fix_unless_constant(x, x.axes[axis])  # the extent is given, and is the source's here alone
    if not changed:
        return x
    if x.flat is not None or any(x.axes[axis] == "C" for axis in changed):
        raise UnmappedError(f"a resize of a tensor with axes {x.axes} {x.shape}")
    smaller = any((scales[a] or (sizes[a] or 0) / x.shape[a - 1]) < 1 for a in changed)
    if smaller and call.integer("antialias", 0):
        raise UnmappedError("antialias")
    if old and mode == "nearest" and smaller and any((1 / (scales[a] or 1)) % 1 for a in changed):
        raise UnmappedError("a reduction by no whole number, whose rounding ONNX left open before version 11")
    if coordinates == "align_corners" and any(
        sizes[a] is None and (x.shape[a - 1] * (scales[a] or 1)) % 1 for a in changed
    ):
        raise UnmappedError("aligned corners of a result whose extent was rounded: ONNX takes the one that was not")
    spatial = [axis for axis in range(1, x.rank) if x.axes[axis] != "C"]
    place = x.axes.find("C")
    axes = x.axes if place < 0 else "NC" + x.axes[1:place] + x.axes[place + 1 :]
    moved = Tensor(x.value, x.height, x.width, x.channels, axes if place >= 0 else "NC" + x.axes[1:])
    y = resize.resize(
        call.builder,
        moved,
        size=[sizes[a] for a in spatial],
        scale=[scales[a] for a in spatial],
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
    )
    return Tensor(y.value, y.height, y.width, y.channels, x.axes)


def _is_position_major(call: Call) -> bool:
    mode = call.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise InvalidModelError(f'{call.name}: mode "{mode}".')
    return mode == "DCR"


@operator("DepthToSpace")
def _depth_to_space(call: Call) -> Value:
    major = _is_position_major(call)
    return resize.pixel_shuffle(call.builder, call.tensor(), call.integer("blocksize"), position_major=major)


@operator("SpaceToDepth")
def _space_to_depth(call: Call) -> Value:
    major = _is_position_major(call)
    return resize.pixel_unshuffle(call.builder, call.tensor(), call.integer("blocksize"), position_major=major)
