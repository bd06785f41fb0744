# SPDX-License-Identifier: Apache-2.0
"""Reductions over channels, height and width, and softmax over any of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import replace

from ..builder import Builder, Tensor, UnmappedError
from . import arithmetic, general, ordering, shape

# Max images of a sum over an axis that the channels were taken apart into.
MAXIMUM_PARTS = 16

KERNEL = {"W": "ReduceRow", "H": "ReduceColumn", "C": "ReduceFeatureChannels"}
EXTENT = {"W": "width", "H": "height", "C": "channels"}


def reduce_axis(builder: Builder, tensor: Tensor, axis: str, kind: str) -> Tensor:
    """Reduce one axis of the image to extent 1; `kind` is "Mean", "Sum", "Max" or "Min"."""
    if axis == "C" and tensor.channels == 1:
        return tensor
    return builder.add(KERNEL[axis] + kind, tensor, **{EXTENT[axis]: 1})


def _dims(tensor: Tensor, dim: int | Iterable[int] | None) -> tuple[int, ...]:
    dims = range(1, tensor.rank) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    for d in dims:
        if not -tensor.rank <= d < tensor.rank:
            raise UnmappedError(f"axis {d} is not one of the {tensor.rank} axes")
    found = tuple(sorted(d % tensor.rank for d in dims))
    if len(set(found)) != len(found):
        raise UnmappedError(f"axes {tuple(dims)}: one appears twice")
    if 0 in found:
        raise UnmappedError("a reduction over the batch")
    return found


def axes_of(tensor: Tensor, dims: Iterable[int]) -> str:
    """Return the image's axes for axes `dims` of the tensor, also if axes were merged. UnmappedError if split."""
    if tensor.flat is None:
        return "".join(tensor.axes[d] for d in dims)
    letters, groups = list(tensor.axes[1:]), []
    for extent in tensor.flat:
        group = ""
        while letters and math.prod(map(tensor.extent, group)) < extent:
            group += letters.pop(0)
        if math.prod(map(tensor.extent, group)) != extent:
            raise UnmappedError(f"an axis of a tensor whose axes were taken apart: {tensor.shape}")
        groups.append(group)
    return "".join(groups[d - 1] for d in dims)


def reduced(tensor: Tensor, result: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """Return `result`, whose image has extent 1 along `dims`, with the axes of the source model's result."""
    if tensor.flat is not None:
        flat = tuple(1 if d in dims else e for d, e in enumerate(tensor.flat, 1) if keepdim or d not in dims)
        return replace(result, axes=tensor.axes, flat=flat)
    if keepdim:
        return replace(result, axes=tensor.axes)
    return replace(result, axes="".join(letter for d, letter in enumerate(tensor.axes) if d not in dims))


def _reduce(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None, keepdim: bool, kind: str) -> Tensor:
    dims = _dims(tensor, dim)
    try:
        axes = axes_of(tensor, dims)
    except UnmappedError:
        with contextlib.suppress(UnmappedError):
            if len(dims) == 1:
                if kind in ("Sum", "Mean") and shape.parts_of_channels(tensor) > 1 and dims[0] == 1:
                    return _sum_of_parts(builder, tensor, keepdim, kind)
                parts = shape.with_part_as_channels(builder, tensor, dims[0])
                return reduced(parts, reduce_axis(builder, parts, "C", kind), dims, keepdim)
        last, _ = general.with_last(builder, tensor, dims)
        result = reduce_axis(builder, last, "C", kind)
        left = [1 if d in dims else e for d, e in enumerate(tensor.shape, 1) if keepdim or d not in dims]
        return general.reshape(result, left)
    result = tensor
    for axis in "WHC":  # rows first: their values are adjacent
        if axis in axes:
            result = reduce_axis(builder, result, axis, kind)
    return reduced(tensor, result, dims, keepdim)


def _sum_of_parts(builder: Builder, tensor: Tensor, keepdim: bool, kind: str) -> Tensor:
    """Return the sum or mean over axis 1, which the channels begin with: a sum of images, at any height and width."""
    assert tensor.flat is not None
    count, rest = tensor.flat[0], tensor.flat[1:]
    if count > MAXIMUM_PARTS:
        raise UnmappedError(f"a sum of {count} images")
    whole, each = replace(tensor, flat=None), tensor.channels // count
    total = shape.pick_channels(builder, whole, range(each))
    for part in range(1, count):
        total = arithmetic.add(
            builder, total, shape.pick_channels(builder, whole, range(part * each, (part + 1) * each))
        )
    if kind == "Mean":
        total = arithmetic.multiply(builder, total, 1 / count)
    left = (1, *rest) if keepdim else rest
    return total if left == total.shape else replace(total, flat=left)


def mean(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None = None, keepdim: bool = False) -> Tensor:
    """Return the mean over some axes; None: all but the batch."""
    return _reduce(builder, tensor, dim, keepdim, "Mean")


def sum(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None = None, keepdim: bool = False) -> Tensor:
    """Return the sum over some axes; None: all but the batch."""
    return _reduce(builder, tensor, dim, keepdim, "Sum")


def amax(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None = None, keepdim: bool = False) -> Tensor:
    """Return the max over some axes; None: all but the batch."""
    return _reduce(builder, tensor, dim, keepdim, "Max")


def amin(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None = None, keepdim: bool = False) -> Tensor:
    """Return the min over some axes; None: all but the batch."""
    return _reduce(builder, tensor, dim, keepdim, "Min")


def norm(
    builder: Builder, tensor: Tensor, p: float = 2, dim: int | Iterable[int] | None = None, keepdim: bool = False
) -> Tensor:
    """Return the norm over some axes, sum(|x| ** p) ** (1 / p), p 1 or 2."""
    if p == 1:
        return sum(builder, arithmetic.abs(builder, tensor), dim, keepdim)
    if p == 2:
        return arithmetic.sqrt(builder, sum(builder, arithmetic.square(builder, tensor), dim, keepdim))
    raise UnmappedError(f"a norm with exponent {p}")


def logsumexp(builder: Builder, tensor: Tensor, dim: int | Iterable[int], keepdim: bool = False) -> Tensor:
    """Return log(sum(exp(x))) over some axes, without overflow."""
    if tensor.flat is not None:
        dims = _dims(tensor, dim)
        last, _ = general.with_last(builder, tensor, dims)
        left = [1 if d in dims else e for d, e in enumerate(tensor.shape, 1) if keepdim or d not in dims]
        image = replace(last, axes="NHWC", flat=None)
        return general.reshape(logsumexp(builder, image, 3, True), left)
    maximum = amax(builder, tensor, dim, True)
    total = sum(builder, arithmetic.exp(builder, arithmetic.subtract(builder, tensor, maximum)), dim, True)
    result = arithmetic.add(builder, arithmetic.log(builder, total), maximum)
    return reduced(tensor, result, _dims(tensor, dim), keepdim)


def _argument(builder: Builder, tensor: Tensor, dim: int, keepdim: bool, kind: str) -> Tensor:
    dims = _dims(tensor, dim)
    try:
        axes = axes_of(tensor, dims).replace("H", "H" * (tensor.height > 1)).replace("W", "W" * (tensor.width > 1))
    except UnmappedError:
        axes = "another"
    if axes not in ("C", ""):
        return ordering.argument(builder, tensor, dims[0], keepdim, kind == "Max")
    result = builder.add(f"ReduceFeatureChannelsArgument{kind}", tensor, channels=1)
    if axes == "" and tensor.channels > 1:
        raise UnmappedError("the place of an extreme value along an axis of extent 1")
    return reduced(tensor, result, dims, keepdim)


def argmax(builder: Builder, tensor: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Return the index of the max channel, the first of equals, as a float."""
    return _argument(builder, tensor, dim, keepdim, "Max")


def argmin(builder: Builder, tensor: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Return the index of the min channel, the first of equals, as a float."""
    return _argument(builder, tensor, dim, keepdim, "Min")


def softmax(builder: Builder, tensor: Tensor, dim: int | Iterable[int]) -> Tensor:
    """Return exp(x) over its sum along some axes, without overflow."""
    dims = _dims(tensor, dim)
    try:
        of_channels = _of_channels(tensor, dims)
    except UnmappedError:
        with contextlib.suppress(UnmappedError):
            if len(dims) == 1:
                return builder.add("SoftMax", shape.with_part_as_channels(builder, tensor, dims[0]))
        last, order = general.with_last(builder, tensor, dims)
        return general.restored(builder, builder.add("SoftMax", last), tensor.shape, order)
    if of_channels:
        return builder.add("SoftMax", tensor)
    if tensor.flat is not None:
        last, order = general.with_last(builder, tensor, dims)
        return general.restored(builder, builder.add("SoftMax", last), tensor.shape, order)
    powers = arithmetic.exp(builder, arithmetic.subtract(builder, tensor, amax(builder, tensor, dims, True)))
    return arithmetic.divide(builder, powers, sum(builder, powers, dims, True))


def log_softmax(builder: Builder, tensor: Tensor, dim: int | Iterable[int]) -> Tensor:
    """Return x - log(sum(exp(x))) along some axes."""
    dims = _dims(tensor, dim)
    try:
        of_channels = _of_channels(tensor, dims)
    except UnmappedError:
        of_channels = False
    if of_channels:
        return builder.add("LogSoftMax", tensor)
    if tensor.flat is not None:
        last, order = general.with_last(builder, tensor, dims)
        return general.restored(builder, builder.add("LogSoftMax", last), tensor.shape, order)
    lowered = arithmetic.subtract(builder, tensor, amax(builder, tensor, dims, True))
    total = sum(builder, arithmetic.exp(builder, lowered), dims, True)
    return arithmetic.subtract(builder, lowered, arithmetic.log(builder, total))


def _of_channels(tensor: Tensor, dims: tuple[int, ...]) -> bool:
    """Return whether the axes are the channels only, at any height and width."""
    return axes_of(tensor, dims) == "C"
