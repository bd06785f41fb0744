# SPDX-License-Identifier: Apache-2.0
"""Reductions over channels, height and width, and soft max over any of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ..builder import Builder, Tensor, UnmappedError
from . import arithmetic

KERNEL = {"W": "ReduceRow", "H": "ReduceColumn", "C": "ReduceFeatureChannels"}
EXTENT = {"W": "width", "H": "height", "C": "channels"}


def reduce_axis(builder: Builder, tensor: Tensor, axis: str, kind: str) -> Tensor:
    """One axis of the image becomes 1; `kind` is "Mean", "Sum", "Max" or "Min"."""
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
        raise UnmappedError(f"axes {tuple(dims)}: one stands there twice")
    if 0 in found:
        raise UnmappedError("a reduction over the batch")
    return found


def axes_of(tensor: Tensor, dims: Iterable[int]) -> str:
    """The image's axes that axes `dims` of the tensor are, also where axes were taken together. UnmappedError."""
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
    """`result`, whose image has extent 1 along `dims`, with the axes that the source model gives it."""
    if tensor.flat is not None:
        flat = tuple(1 if d in dims else e for d, e in enumerate(tensor.flat, 1) if keepdim or d not in dims)
        return replace(result, axes=tensor.axes, flat=flat)
    if keepdim:
        return replace(result, axes=tensor.axes)
    return replace(result, axes="".join(letter for d, letter in enumerate(tensor.axes) if d not in dims))


def _reduce(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None, keepdim: bool, kind: str) -> Tensor:
    dims = _dims(tensor, dim)
    axes = axes_of(tensor, dims)
    result = tensor
    for axis in "WHC":  # rows first: their values stand side by side
        if axis in axes:
            result = reduce_axis(builder, result, axis, kind)
    return reduced(tensor, result, dims, keepdim)


def mean(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None = None, keepdim: bool = False) -> Tensor:
    """The mean over some axes; None: all but the batch."""
    return _reduce(builder, tensor, dim, keepdim, "Mean")


def sum(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None = None, keepdim: bool = False) -> Tensor:
    """The sum over some axes; None: all but the batch."""
    return _reduce(builder, tensor, dim, keepdim, "Sum")


def amax(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None = None, keepdim: bool = False) -> Tensor:
    """The greatest value over some axes; None: all but the batch."""
    return _reduce(builder, tensor, dim, keepdim, "Max")


def amin(builder: Builder, tensor: Tensor, dim: int | Iterable[int] | None = None, keepdim: bool = False) -> Tensor:
    """The least value over some axes; None: all but the batch."""
    return _reduce(builder, tensor, dim, keepdim, "Min")


def norm(
    builder: Builder, tensor: Tensor, p: float = 2, dim: int | Iterable[int] | None = None, keepdim: bool = False
) -> Tensor:
    """The norm over some axes, sum(|x| ** p) ** (1 / p), p 1 or 2."""
    if p == 1:
        return sum(builder, arithmetic.abs(builder, tensor), dim, keepdim)
    if p == 2:
        return arithmetic.sqrt(builder, sum(builder, arithmetic.square(builder, tensor), dim, keepdim))
    raise UnmappedError(f"a norm with exponent {p}")


def logsumexp(builder: Builder, tensor: Tensor, dim: int | Iterable[int], keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over some axes, which cannot overflow."""
    greatest = amax(builder, tensor, dim, True)
    total = sum(builder, arithmetic.exp(builder, arithmetic.subtract(builder, tensor, greatest)), dim, True)
    result = arithmetic.add(builder, arithmetic.log(builder, total), greatest)
    return reduced(tensor, result, _dims(tensor, dim), keepdim)


def _argument(builder: Builder, tensor: Tensor, dim: int, keepdim: bool, kind: str) -> Tensor:
    dims = _dims(tensor, dim)
    axes = axes_of(tensor, dims).replace("H", "H" * (tensor.height > 1)).replace("W", "W" * (tensor.width > 1))
    if axes not in ("C", ""):
        raise UnmappedError(f"the place of an extreme value along {axes}: only channels are looked through")
    result = builder.add(f"ReduceFeatureChannelsArgument{kind}", tensor, channels=1)
    if axes == "" and tensor.channels > 1:
        raise UnmappedError("the place of an extreme value along an axis of extent 1")
    return reduced(tensor, result, dims, keepdim)


def argmax(builder: Builder, tensor: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Which channel is the greatest, the first of several: a float."""
    return _argument(builder, tensor, dim, keepdim, "Max")


def argmin(builder: Builder, tensor: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Which channel is the least, the first of several: a float."""
    return _argument(builder, tensor, dim, keepdim, "Min")


def softmax(builder: Builder, tensor: Tensor, dim: int | Iterable[int]) -> Tensor:
    """exp(x) over its sum along some axes, which cannot overflow."""
    dims = _dims(tensor, dim)
    if _of_channels(tensor, dims):
        return builder.add("SoftMax", tensor)
    powers = arithmetic.exp(builder, arithmetic.subtract(builder, tensor, amax(builder, tensor, dims, True)))
    return arithmetic.divide(builder, powers, sum(builder, powers, dims, True))


def log_softmax(builder: Builder, tensor: Tensor, dim: int | Iterable[int]) -> Tensor:
    """The values less the logarithm of the sum of exp(x) along some axes."""
    dims = _dims(tensor, dim)
    if _of_channels(tensor, dims):
        return builder.add("LogSoftMax", tensor)
    lowered = arithmetic.subtract(builder, tensor, amax(builder, tensor, dims, True))
    total = sum(builder, arithmetic.exp(builder, lowered), dims, True)
    return arithmetic.subtract(builder, lowered, arithmetic.log(builder, total))


def _of_channels(tensor: Tensor, dims: tuple[int, ...]) -> bool:
    """Whether the axes are the channels alone, at every height and width."""
    return axes_of(tensor, dims) == "C"
