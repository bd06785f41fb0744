# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that move values: reshapes, slices, concatenations; and shapes as values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Tensor, UnmappedError
from ..ops import arithmetic, elementwise, general, resize, shape
from . import moved
from .extent import BATCH, Extent, extents, settled
from .node import OF_VALUES, Alone, Call, Moved, Value, whole_shape
from .reading import BFLOAT16, DTYPES, dtype_name
from .table import operator


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
    """Return whole numbers as floats, truth values as 1 and 0."""
    number = call.integer("to")
    if number not in DTYPES:
        raise UnmappedError(f"values that are computed as {dtype_name(number)}")
    return _as_type(call, "" if number == BFLOAT16 else DTYPES[number].name)


def _as_type(call: Call, name: str) -> Tensor:
    """Return values as those of a type; they do not leave its range."""
    x, dtype = call.tensor(), np.dtype(name or np.float32)
    if dtype.kind == "b":
        return x if call.type_of(0) == "bool" else elementwise.binary(call.builder, x, 0.0, "ne")
    if dtype.kind not in "iu":
        return x
    of = call.type_of(0)
    if of:
        # Computed integers of 32 and 64 bits are below 2 ** 24; those of an operator may be negative.
        if dtype.itemsize < 4 and not np.can_cast(of, dtype):
            raise UnmappedError(f"values of {of} that are computed as {name}, which may wrap: convert them to floats")
        if dtype.kind == "u" and np.dtype(of).kind == "i":
            raise UnmappedError(
                f"values of {of} that are computed as {name}, which wrap below 0: convert them to int64"
            )
        return x
    if dtype.itemsize < 4:
        raise UnmappedError(f"values that are computed as {name}, which may wrap: convert them to int32 or floats")
    return elementwise.unary(call.builder, x, "trunc")


@operator("CastLike")
def _cast_like(call: Call) -> Any:
    """Return values as those of the type of another value, of which only the type is read."""
    x, like = call.any_value(0), call.any_value(1)
    if like is None or (isinstance(like, np.ndarray) and like.dtype.kind not in "fiub"):
        raise UnmappedError("values that are computed as another type")
    name = call.type_of(1)
    if isinstance(x, (Alone, Moved)):
        return replace(x, tensor=_as_type(call.with_values([x.tensor]), name))
    return _as_type(call, name)


def in_groups(x: Tensor, groups: int) -> bool:
    """Return whether the channels are the first axis of each image and divisible into `groups` groups."""
    return x.flat is None and x.axes[1:2] == "C" and x.channels % groups == 0


@operator("Reshape")
def _reshape(call: Call) -> Any:
    x = call.tensor()
    target = call.value(1)
    if target is None or isinstance(target, Tensor):
        raise UnmappedError(f"a shape {OF_VALUES}")
    together = moved.merged(call, x, target)
    if together is not None:
        return together
    extents = whole_shape(call, x, target)
    groups = extents[0] if len(extents) == 2 else 0
    if groups > 1 and set(call.readers) == {"InstanceNormalization"} and x.rank > 2 and x.shape[0] % groups == 0:
        # A group normalization: no other node reads this shape, which is valid at any size.
        x = general.with_channels_second(call.builder, x)
        if in_groups(x, groups):
            return replace(x, flat=(groups, x.size // groups))
    return shape.reshape(call.builder, x, extents)


@operator("Flatten")
def _flatten(call: Call) -> Any:
    x, axis = call.tensor(), call.integer("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis == 1:
        return shape.flatten(call.builder, x, 1) if x.rank > 1 else shape.unsqueeze(call.builder, x, 1)
    if 1 < axis <= x.rank and math.prod(x.shape[: axis - 1]) == 1:
        call.builder.fix_unless_constant(x)
        return shape.reshape(call.builder, x, (math.prod(x.shape[axis - 1 :]),))
    if not 1 < axis <= x.rank:
        raise UnmappedError("the batch taken together with other axes")
    # Rows of all images are one batch.
    together = moved.merged(call, x, extents([BATCH * math.prod(x.shape[: axis - 1]), math.prod(x.shape[axis - 1 :])]))
    assert together is not None
    return together


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
def _transpose(call: Call) -> Any:
    x = call.tensor()
    order = call.integers("perm", list(range(x.rank))[::-1])
    if order and order[0] != 0 and sorted(order) == list(range(x.rank)):
        return moved.transposed(call, x, order)
    if x.flat is not None and x.axes == "NCHW" and len(x.flat) == 5 and tuple(order) in BLOCKS:
        y = _blocks(call, x, tuple(order))
        if y is not None:
            return y
    return shape.permute(call.builder, x, order)


# Permutations of six axes that are pixel shuffles: whether channels become pixels, and whether they are position-major.
BLOCKS: dict[tuple[int, ...], tuple[bool, bool]] = {
    (0, 1, 4, 2, 5, 3): (True, False),
    (0, 3, 4, 1, 5, 2): (True, True),
    (0, 1, 3, 5, 2, 4): (False, False),
    (0, 3, 5, 1, 2, 4): (False, True),
}


def _blocks(call: Call, x: Tensor, order: tuple[int, ...]) -> Tensor | None:
    """Return a pixel shuffle, or its inverse, for a Transpose of split axes; None if it is neither."""
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
        raise UnmappedError(f"a shape {OF_VALUES}")
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
        value = extent if same else int(settled(extents([item]), call.builder.fix)[0])
        rest.append(extent if value in (1, -1) else value)
    return shape.expand(call.builder, x, rest)


@operator("Tile")
def _tile(call: Call) -> Value:
    x, repeats = call.tensor(), call.array(1, "repeats").ravel().tolist()
    if len(repeats) != x.rank or min(repeats) < 0:
        raise InvalidModelError(f"{call.name}: repeats {repeats} of a tensor of {x.rank} axes.")
    if repeats[0] != 1 or 0 in repeats:
        raise UnmappedError(f"values repeated {repeats} times")
    return shape.repeat(call.builder, x, repeats[1:])


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
        if array.ndim != first.rank or array.shape[0] != 1:
            raise UnmappedError(f"a constant of shape {array.shape} beside computed values")
        if first.flat is not None:
            operands.append(general.constant(builder, first, array[0]))
            continue
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
        if step < 0:
            extent = x.shape[axis - 1]
            places = np.arange(extent)[slice(start, None if stop < -extent else stop, step)]
            if not places.size:
                raise UnmappedError(f"a part without values: {start}:{stop}:{step} of {extent}")
            x = picked(call, x, axis, places)
            continue
        x = shape.strided_slice(call.builder, x, axis, start, stop, step)
    return x


def picked(call: Call, x: Tensor, axis: int, numbers: NDArray[Any]) -> Tensor:
    """Return the values at constant indices along an axis."""
    if x.flat is None and x.axes[axis] == "C":
        return shape.pick_channels(call.builder, x, numbers.tolist())
    return general.gather(call.builder, x, axis - 1, numbers)


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
    if not indices.size:
        raise UnmappedError(f"indices of shape {indices.shape}")
    numbers = indices.ravel().astype(np.int64) % extent
    if np.array_equal(numbers, np.arange(numbers[0], numbers[0] + len(numbers))):
        y = shape.narrow(call.builder, x, axis, int(numbers[0]), len(numbers))
    else:
        y = picked(call, x, axis, numbers)
    if indices.ndim == 1:
        return y
    return shape.reshape(call.builder, y, (*y.shape[: axis - 1], *indices.shape, *y.shape[axis:]))


@operator("Trilu")
def _trilu(call: Call) -> Value:
    x, upper = call.tensor(), bool(call.integer("upper", 1))
    k = call.array(1, "k", None)
    if x.rank < 3:
        raise UnmappedError("a triangle of which the batch is an axis")
    call.builder.fix_unless_constant(x)
    function = np.triu if upper else np.tril
    mask = function(np.ones(x.shape[-2:], bool), 0 if k is None else int(k.reshape(())))
    return elementwise.where(call.builder, mask, x, 0.0)


@operator("Shape")
def _shape(call: Call) -> Value:
    return call.shape_slice(call.shape_of(call.tensor()))


@operator("Size")
def _size(call: Call) -> Value:
    total = np.empty((), object)
    total[()] = math.prod(call.shape_of(call.tensor()))
    return total
