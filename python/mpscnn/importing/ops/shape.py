# SPDX-License-Identifier: Apache-2.0
"""Axes: relabelling, merging, splitting and permuting them; concatenation and slicing along them."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ...errors import InvalidModelError
from ...graph import CHANNEL_LIMIT, EXTENT_LIMIT
from ..builder import Builder, Tensor, UnmappedError
from . import general, positions

# Max rows or columns that a convolution crops from both ends; for more, heights and widths are fixed instead.
MAXIMUM_CUT = 16
# A stop of at least this means the end: PyTorch writes the max integer, some exporters that of 32 bits.
ENDLESS = 2**31 - 1
# Max values of weights that pick channels.
MAXIMUM_PICK = 1 << 24
# Max repetitions by a concatenation.
MAXIMUM_REPEAT = 8


def is_constant(builder: Builder, x: Tensor, axis: str) -> bool:
    """Call `Builder.is_constant`."""
    return builder.is_constant(x, axis)


def fix_unless_constant(builder: Builder, x: Tensor, axes: str = "HW") -> None:
    """Call `Builder.fix_unless_constant`."""
    builder.fix_unless_constant(x, axes)


# ---- axes


def _is_unit(builder: Builder, x: Tensor, axis: str) -> bool:
    """Return whether the extent is 1 for all inputs."""
    return x.extent(axis) == 1 and builder.is_constant(x, axis)


def arrange(builder: Builder, x: Tensor, axes: str) -> Tensor:
    """Return the tensor in an image with axes `axes`: relabelled if axes of extent 1 allow it, otherwise reshaped.

    An image is stored row by row, pixel by pixel, channel by channel. UnmappedError if the order of stored values would
    change.
    """
    if x.rank != len(axes):
        raise UnmappedError(f"a tensor of shape {x.shape} behind the batch as {axes}")
    extents = dict(zip(axes[1:], x.shape, strict=True))
    new = {axis: extents.get(axis, 1) for axis in "HWC"}
    if x.flat is None:
        if x.axes == axes:
            return x
        if all(was == now or _is_unit(builder, x, was) for was, now in zip(x.axes[1:], axes[1:], strict=True)):
            return replace(x, axes=axes)
    before = [axis for axis in x.axes[1:] if not _is_unit(builder, x, axis)]
    after = [axis for axis in axes[1:] if new[axis] > 1]
    if x.flat is None and before and after == [axes[x.axes.index(axis)] for axis in before]:
        # The same axes of the model, in any order: stored alike if sorting both moves them alike.
        moves = [[letters.index(axis) for axis in _stored(letters)] for letters in (before, after)]
        if moves[0] == moves[1]:
            return _stored_as(builder, x, axes, new)
    if before != _stored(before) or after != _stored(after):
        raise UnmappedError(f"values of {x.shape} in another order: {x.axes} as {axes}")
    return _stored_as(builder, x, axes, new)


def _stored_as(builder: Builder, x: Tensor, axes: str, new: dict[str, int]) -> Tensor:
    """Return a tensor as the image with axes `axes` that stores its values in the same order."""
    before = [axis for axis in x.axes[1:] if not _is_unit(builder, x, axis)]
    general.check_image((new["H"], new["W"], new["C"]))
    free = [axis for axis in before if not builder.is_constant(x, axis)]
    shape = [new["H"], new["W"], new["C"]]
    if x.flat is None and len(free) == 1:
        shape["HWC".index(axes[x.axes.index(free[0])])] = -1
    elif free:
        builder.fix()
    varying = [axis for axis in before if axis in builder.varying(x)]
    if len(varying) > 1 or (varying and x.flat is not None):
        builder.note_fixed()
    y = builder.add("Reshape", x, height=new["H"], width=new["W"], channels=new["C"], shape=tuple(shape))
    if x.flat is None:
        builder.note_reshaped(y, (axes[x.axes.index(axis)] for axis in varying))
    return replace(y, axes=axes, flat=None)


def _stored(axes: Iterable[str]) -> list[str]:
    """Return the axes in the storage order of an image."""
    return sorted(axes, key="HWC".index)


def reshape(builder: Builder, x: Tensor, shape: Sequence[int], computed: Iterable[int] = ()) -> Tensor:
    """Same as torch.reshape and view; `shape` excludes the batch and may have one -1.

    If only axes of extent 1 are added or removed, the result has axes; otherwise it is flat: the same values in the
    same order. Heights and widths stay free if they are merged into the -1, as in flatten(2), or into one of the places
    `computed` of `shape`, whose extents the source model computes from those of the source.
    """
    wanted = tuple(int(extent) for extent in shape)
    shape = _resolve(x, wanted)
    names = _relabelled(builder, x, shape)
    if names is not None:
        return replace(x, axes="N" + names, flat=None)
    if not _keeps_free_axes(builder, x, shape, {*computed, *(i for i, extent in enumerate(wanted) if extent == -1)}):
        builder.fix()
    return replace(x, flat=shape)


def _resolve(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    if shape.count(-1) > 1 or any(extent < -1 or extent == 0 for extent in shape):
        raise InvalidModelError(f"{shape} is no shape.")
    if -1 in shape:
        rest = -math.prod(shape)
        if x.size % rest:
            raise InvalidModelError(f"{x.shape} has {x.size} values, no multiple of those of {shape}.")
        shape = tuple(x.size // rest if extent == -1 else extent for extent in shape)
    if math.prod(shape) != x.size:
        raise InvalidModelError(f"{x.shape} has {x.size} values, the shape {shape} has {math.prod(shape)}.")
    return shape


def _relabelled(builder: Builder, x: Tensor, shape: tuple[int, ...]) -> str | None:
    """Return names for the axes of `shape` if it differs from `x.axes` only in axes of extent 1, otherwise None."""
    if len(shape) > 3:
        return None
    old = x.axes[1:]
    best: tuple[int, str] | None = None
    for kept in range(len(old), -1, -1):
        for chosen in itertools.combinations(old, kept):
            if not all(_is_unit(builder, x, axis) for axis in old if axis not in chosen):
                continue
            for places in itertools.combinations(range(len(shape)), kept):
                named = dict(zip(places, chosen, strict=True))
                if any(shape[place] != x.extent(axis) for place, axis in named.items()):
                    continue
                if any(extent != 1 for place, extent in enumerate(shape) if place not in named):
                    continue
                unused = iter(axis for axis in "CHW" if axis not in chosen)
                names = "".join(named[place] if place in named else next(unused) for place in range(len(shape)))
                same = sum(a == b for a, b in zip(names, old, strict=False))
                if best is None or same > best[0]:
                    best = same, names
        if best is not None:
            return best[1]
    return None


def _keeps_free_axes(builder: Builder, x: Tensor, shape: tuple[int, ...], computed: set[int]) -> bool:
    """Return whether each free axis is an axis of `shape`, or merged with other whole axes at a computed place."""
    bounds = list(itertools.accumulate(shape, lambda a, b: a * b, initial=1))
    spans = list(itertools.pairwise(bounds))
    taken = [spans[place] for place in computed]
    edges = list(itertools.accumulate((x.extent(axis) for axis in x.axes[1:]), lambda a, b: a * b, initial=1))
    for axis, (before, after) in zip(x.axes[1:], itertools.pairwise(edges), strict=True):
        alone = after > before and (before, after) in spans
        together = any(first <= before <= after <= last for first, last in taken)
        if not (alone or together or builder.is_constant(x, axis)):
            return False
    # Only whole axes may be merged: otherwise part of one axis would depend on the extent of another.
    return all(set(span) <= set(edges) for span in taken)


def flatten(builder: Builder, x: Tensor, start_dim: int = 1, end_dim: int = -1) -> Tensor:
    """Same as torch.flatten, without the batch."""
    start, end = _dim(x, start_dim), _dim(x, end_dim)
    if start == 0:
        raise UnmappedError("the batch taken together with other axes")
    if start > end:
        return x
    shape = x.shape
    return reshape(builder, x, (*shape[: start - 1], -1, *shape[end:]))


def _dim(x: Tensor, dim: int, rank: int | None = None) -> int:
    rank = x.rank if rank is None else rank
    if not -rank <= dim < rank:
        raise InvalidModelError(f"axis {dim} is not one of the {rank} axes.")
    return dim % rank


def squeeze(builder: Builder, x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Same as torch.squeeze. The batch cannot be squeezed."""
    if dim is None:
        gone = {place for place, extent in enumerate(x.shape, 1) if extent == 1}
    else:
        gone = {_dim(x, place) for place in ((dim,) if isinstance(dim, int) else dim)}
        gone = {place for place in gone if place == 0 or x.shape[place - 1] == 1}
    if 0 in gone:
        raise UnmappedError("the axis of the batch squeezed")
    if x.flat is None and len(gone) < len(x.shape):
        for place in gone:
            if not _is_unit(builder, x, x.axes[place]):
                builder.fix()
        return replace(x, axes="".join(axis for place, axis in enumerate(x.axes) if place not in gone))
    return reshape(builder, x, [extent for place, extent in enumerate(x.shape, 1) if place not in gone])


def unsqueeze(builder: Builder, x: Tensor, dim: int) -> Tensor:
    """Same as torch.unsqueeze."""
    place = _dim(x, dim, x.rank + 1)
    if place == 0:
        raise UnmappedError("an axis in front of the batch")
    if x.flat is None and x.rank < 4:
        axis = next(axis for axis in "CHW" if axis not in x.axes)
        return replace(x, axes=x.axes[:place] + axis + x.axes[place:])
    return reshape(builder, x, (*x.shape[: place - 1], 1, *x.shape[place - 1 :]))


def transpose(builder: Builder, x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Same as torch.transpose."""
    order = list(range(x.rank))
    first, second = _dim(x, dim0), _dim(x, dim1)
    order[first], order[second] = second, first
    return permute(builder, x, order)


def permute(builder: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Same as torch.permute. Axes of the image are only relabelled; no values are moved.

    If the channels are split into axes, these may be permuted too (a channel shuffle), by a 1 x 1 convolution.
    """
    order = [_dim(x, dim) for dim in dims]
    if sorted(order) != list(range(x.rank)):
        raise InvalidModelError(f"{tuple(dims)} is no order of {x.rank} axes.")
    if order == list(range(x.rank)):
        return x
    if order[0] != 0:
        raise UnmappedError("the axis of the batch at another place")
    if x.flat is None:
        return replace(x, axes="".join(x.axes[place] for place in order))
    with contextlib.suppress(UnmappedError):
        return permute(builder, in_one_row(builder, x), order)
    places = [place - 1 for place in order[1:]]
    try:
        return _permute_flat(builder, x, places)
    except UnmappedError:
        return general.permute(builder, x, places)


def _permute_flat(builder: Builder, x: Tensor, order: list[int]) -> Tensor:
    flat = x.shape
    owners = _owners(x, flat)
    moved = [place for place in order if flat[place] > 1]
    letters = [owners[place] for place in moved]
    axes = [axis for axis, _ in itertools.groupby(letters)]
    if len(set(axes)) < len(axes):
        raise UnmappedError(f"values of {flat} in the order of the axes {tuple(order)}")
    for axis in set(axes) - {"C"}:
        places = [place for place in moved if owners[place] == axis]
        if places != sorted(places):
            raise UnmappedError(f"values of {flat} in the order of the axes {tuple(order)}")
    parts = [place for place in range(len(flat)) if owners[place] == "C" and flat[place] > 1]
    after = [place for place in moved if owners[place] == "C"]
    y = replace(x, flat=None)
    if parts != after:
        channels = np.arange(x.channels).reshape([flat[place] for place in parts])
        y = pick_channels(builder, y, channels.transpose([parts.index(place) for place in after]).ravel())
    rest = [axis for axis in x.axes[1:] if axis not in axes]
    return reshape(builder, replace(y, axes="N" + "".join(axes + rest)), [flat[place] for place in order])


def _owners(x: Tensor, flat: tuple[int, ...]) -> list[str]:
    """Return the axis of the image that each axis of `flat` is a part of."""
    owners: list[str] = []
    axes = [axis for axis in x.axes[1:] if x.extent(axis) > 1]
    left = x.extent(axes[0]) if axes else 1
    for extent in flat:
        if extent == 1:
            owners.append("")
            continue
        if left % extent:
            raise UnmappedError(f"axes {x.axes} of an image taken together in {flat}")
        owners.append(axes[0])
        left //= extent
        if left == 1 and axes:
            axes.pop(0)
            left = x.extent(axes[0]) if axes else 1
    return owners


# ---- concatenation


def cat(builder: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Same as torch.cat: channels by a concatenation; rows and columns by zero padding and addition, which is exact."""
    if not tensors:
        raise InvalidModelError("there is nothing to concatenate.")
    first = tensors[0]
    place = _dim(first, dim)
    if place == 0:
        raise UnmappedError("a concatenation along the batch")
    if any(x.rank != first.rank for x in tensors):
        raise InvalidModelError(f"tensors of shapes {[x.shape for x in tensors]} are concatenated.")
    if len(tensors) == 1:
        return first
    try:
        in_rows = _all_in_one_row(builder, tensors, place)
        if in_rows:
            tensors = in_rows
        elif any(x.flat is not None for x in tensors):
            if first.rank > 4:
                raise UnmappedError(f"a concatenation of tensors with {first.rank} axes")
            axes = "NC" if first.rank == 2 else "N" + "HWC"[1 - first.rank :]
            tensors = [arrange(builder, x, axes) for x in tensors]
        elif any(x.axes != first.axes for x in tensors):
            tensors = _in_common_axes(builder, tensors, place)
    except UnmappedError:
        return _cat_around(builder, tensors, place - 1)
    first = tensors[0]
    axis = first.axes[place]
    for x in tensors[1:]:
        if any(x.extent(other) != first.extent(other) for other in "HWC" if other != axis):
            raise InvalidModelError(f"tensors of shapes {[x.shape for x in tensors]} are concatenated along {dim}.")
    if axis == "C" and sum(x.channels for x in tensors) > CHANNEL_LIMIT:
        return _cat_around(builder, tensors, place - 1)
    if axis == "C":
        return _side_by_side(builder, tensors)
    if not all(builder.is_constant(x, axis) for x in tensors):
        with contextlib.suppress(UnmappedError):  # no compiler
            return positions.joined(builder, tensors, axis)
    for x in tensors:
        builder.fix_unless_constant(x, axis)
    total, before, joined = sum(x.extent(axis) for x in tensors), 0, None
    for x in tensors:
        pads = (before, total - before - x.extent(axis))
        before += x.extent(axis)
        extents = {"height" if axis == "H" else "width": total}
        padding = (pads, (0, 0)) if axis == "H" else ((0, 0), pads)
        y = builder.add("Pad", x, padding=padding, **extents)
        joined = y if joined is None else builder.add("Add", joined, y)
    assert joined is not None
    return joined


def _cat_around(builder: Builder, tensors: Sequence[Tensor], place: int) -> Tensor:
    """Concatenate tensors of any number of axes along one of them; `place` is without the batch."""
    shape = list(tensors[0].shape)
    shape[place] = 0
    for x in tensors:
        if [e for i, e in enumerate(x.shape) if i != place] != [e for i, e in enumerate(shape) if i != place]:
            raise InvalidModelError(
                f"tensors of shapes {[x.shape for x in tensors]} are concatenated along {place + 1}."
            )
        shape[place] += x.shape[place]
    last = place == len(shape) - 1 and shape[place] <= CHANNEL_LIMIT
    if not last and shape[place] > EXTENT_LIMIT:
        parts = _grouped_parts(builder, tensors, place)
    else:
        parts = [general.store(builder, x) if last else _rows_of_parts(builder, x, place) for x in tensors]
    y = cat(builder, [replace(x, axes="NHWC", flat=None) for x in parts], 3 if last else 2)
    return general.reshape(y, shape)


def in_one_row(builder: Builder, x: Tensor) -> Tensor:
    """Return a tensor whose last axis are all pixels of an image, as flatten(2) makes it, as an image of one row.

    Its height and width stay free. UnmappedError if it is another tensor, or has more pixels than a row.
    """
    pixels = x.height * x.width
    if x.flat is None or x.axes != "NCHW" or len(x.flat) < 2 or x.flat[-1] != pixels or pixels > EXTENT_LIMIT:
        raise UnmappedError(f"a tensor of shape {x.shape}, whose last axis is not a row of pixels")
    flat = x.flat if len(x.flat) > 2 else None
    if _is_unit(builder, x, "H"):
        return replace(x, axes="NCW", flat=flat)
    varying = builder.varying(x)
    y = builder.add("Reshape", x, height=1, width=x.flat[-1], shape=(1, -1, x.channels))
    builder.note_reshaped(y, "W" if varying else "")
    return replace(y, axes="NCW", flat=flat)


def _all_in_one_row(builder: Builder, tensors: Sequence[Tensor], place: int) -> list[Tensor]:
    """Return tensors to concatenate, of three axes, as images of one row, channels first; none if they are others."""
    if tensors[0].rank != 3 or not any(x.flat is not None for x in tensors):
        return []
    if any(x.axes != ("NCW" if x.flat is None else "NCHW") for x in tensors):
        return []
    if sum(x.shape[1] for x in tensors) > EXTENT_LIMIT and place == 2:
        return []
    try:
        return [x if x.flat is None else in_one_row(builder, x) for x in tensors]
    except UnmappedError:
        return []


def parts_of_channels(x: Tensor) -> int:
    """Return the number of axes that the channels were taken apart into; 0 unless all others are axes of the image."""
    if x.flat is None or x.axes[1:2] != "C":
        return 0
    rest = tuple(x.extent(axis) for axis in x.axes[2:])
    count = len(x.flat) - len(rest)
    if count < 1 or x.flat[count:] != rest or math.prod(x.flat[:count]) != x.channels:
        return 0
    return count


def with_part_as_channels(builder: Builder, x: Tensor, dim: int) -> Tensor:
    """Return the same tensor in an image whose channels are one of two `parts_of_channels`, axis `dim`.

    The other part is its columns, and the columns of `x` are its rows, which stay free.
    """
    if x.flat is not None and len(x.flat) == 3 and x.axes == "NCHW":
        x = in_one_row(builder, x)
    count = parts_of_channels(x)
    if x.flat is None or count != 2 or x.rank != 4 or not 0 < dim <= 2 or not _is_unit(builder, x, "H"):
        raise UnmappedError(f"axis {dim} of a tensor of shape {x.shape} as the channels")
    parts, place = x.flat[:2], dim - 1
    general.check_image((x.width, parts[1 - place], parts[place]))
    order = np.moveaxis(np.arange(x.channels).reshape(parts), place, -1).ravel()
    y = pick_channels(builder, replace(x, flat=None), order)
    varying = builder.varying(y)
    extents = x.width, parts[1 - place], parts[place]
    y = builder.add("Reshape", y, height=extents[0], width=extents[1], channels=extents[2], shape=(-1, *extents[1:]))
    builder.note_reshaped(y, "H" if varying else "")
    return replace(y, axes="NCWH" if place == 0 else "NWCH", flat=None)


def _in_common_axes(builder: Builder, tensors: Sequence[Tensor], place: int) -> list[Tensor]:
    """Arrange all tensors with the axes of one of them, if possible without moving values and `place` as channels."""
    reason = None
    for axes in sorted(dict.fromkeys(x.axes for x in tensors), key=lambda axes: axes[place] != "C"):
        try:
            return [arrange(builder, x, axes) for x in tensors]
        except UnmappedError as error:
            reason = reason or error
    raise UnmappedError(str(reason))


def _side_by_side(builder: Builder, tensors: Sequence[Tensor]) -> Tensor:
    graph = builder.graph
    value = graph.concatenate(
        *(x.value for x in tensors), name=graph.unique(builder._name or "concatenate"), origin=builder.origin
    )
    return replace(tensors[0], value=value, channels=sum(x.channels for x in tensors))


def stack(builder: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Same as torch.stack."""
    return cat(builder, [unsqueeze(builder, x, dim) for x in tensors], dim)


def _grouped_parts(builder: Builder, tensors: Sequence[Tensor], place: int) -> list[Tensor]:
    """Return images whose columns are groups of axis `place`, of equal length, and the axes behind it."""
    before, behind = math.prod(tensors[0].shape[:place]), math.prod(tensors[0].shape[place + 1 :])
    common = math.gcd(*(x.shape[place] for x in tensors))
    each = max((n for n in range(1, common + 1) if common % n == 0 and n * behind <= CHANNEL_LIMIT), default=1)
    images = [(before, x.shape[place] // each, each * behind) for x in tensors]
    return [general.store(builder, general.reshape(x, image), image) for x, image in zip(tensors, images, strict=True)]


def _rows_of_parts(builder: Builder, x: Tensor, place: int) -> Tensor:
    """Return an image whose rows are concatenated instead of axis `place`: as many axes as fit are its channels."""
    first, shape = place + 1, general.with_short_end((*x.shape, 1) if place == len(x.shape) - 1 else x.shape)
    while first < len(shape) - 1 and math.prod(shape[first:]) > CHANNEL_LIMIT:
        first += 1
    image = math.prod(shape[:place]), math.prod(shape[place:first]), math.prod(shape[first:])
    return general.store(builder, general.reshape(x, image), image)


# ---- slicing


def narrow(builder: Builder, x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Same as torch.narrow: `length` channels, rows or columns from `start`."""
    return strided_slice(builder, x, dim, start, start + length)


def strided_slice(
    builder: Builder, x: Tensor, dim: int, start: int | None = 0, stop: int | None = None, step: int = 1
) -> Tensor:
    """Same as x[start:stop:step] along axis `dim`; negative numbers count from the end.

    Heights and widths stay free if start and stop are relative to the nearest end of the axis: x[1:], x[:-1], x[::2].
    """
    place = _dim(x, dim)
    if place == 0:
        raise UnmappedError("a part of the batch")
    if step < 1:
        raise UnmappedError(f"a step of {step}")
    extent = x.shape[place - 1]
    from_end = (stop is None or stop < 0 or stop >= ENDLESS) and (start is None or start >= 0)
    first, last, _ = slice(start, stop).indices(extent)
    if first >= last:
        raise UnmappedError(f"a part without values: {start}:{stop} of {extent}")
    if x.flat is not None:
        return _part_of_flat(builder, x, place - 1, range(first, last, step))
    axis = x.axes[place]
    if axis == "C":
        return pick_channels(builder, x, range(first, last, step))
    behind = extent - last
    if not from_end or first + behind > MAXIMUM_CUT:
        builder.fix_unless_constant(x, axis)
    if (first, behind) != (0, 0) and builder.is_constant(x, "H") and builder.is_constant(x, "W"):
        x = _crop(builder, x, axis, first, last - first)
        first = behind = 0
    if first or behind:
        return _cut(builder, x, axis, first, behind, step)
    if step == 1:
        return x
    result = -(-x.extent(axis) // step)
    stride = (step, 1) if axis == "H" else (1, step)
    return builder.add("PoolingMax", x, kernel_size=1, stride=stride, **{"height" if axis == "H" else "width": result})


def _crop(builder: Builder, x: Tensor, axis: str, start: int, length: int) -> Tensor:
    size = (length, x.width) if axis == "H" else (x.height, length)
    offset = (start, 0) if axis == "H" else (0, start)
    return builder.add("Slice", x, height=size[0], width=size[1], size=size, offset=offset)


def _cut(builder: Builder, x: Tensor, axis: str, before: int, behind: int, step: int) -> Tensor:
    """Crop rows or columns at both ends by a depth-wise convolution, which works at any extent."""
    taps = before + behind + 1
    weight = np.zeros((x.channels, 1, taps, 1) if axis == "H" else (x.channels, 1, 1, taps), np.float32)
    weight.reshape(x.channels, taps)[:, before] = 1
    arguments: dict[str, object] = {"groups": x.channels} if x.channels > 1 else {}
    if step > 1:
        arguments["stride"] = (step, 1) if axis == "H" else (1, step)
    result = (x.extent(axis) - taps) // step + 1
    arguments["height" if axis == "H" else "width"] = result
    return builder.add("Convolution", x, weight=weight, **arguments)  # type: ignore[arg-type]


def pick_channels(builder: Builder, x: Tensor, channels: Iterable[int]) -> Tensor:
    """Return the channels with these indices, in this order; contiguous channels are read in place."""
    wanted = [int(channel) for channel in channels]
    if wanted == list(range(x.channels)):
        return x
    first, count = wanted[0], len(wanted)
    if wanted == list(range(first, first + count)):
        # Slice starts at multiples of 4 channels, Pad at any channel.
        return builder.add(
            "Slice" if first % 4 == 0 else "Pad",
            x,
            channels=count,
            source_feature_channel_offset=first,
            source_feature_channel_max_count=count,
        )
    if count * x.channels > MAXIMUM_PICK:
        raise UnmappedError(f"{count} of {x.channels} channels in another order")
    weight = np.zeros((count, x.channels, 1, 1), np.float32)
    weight[range(count), wanted] = 1
    return builder.add("Convolution", x, channels=count, weight=weight)


def _part_of_flat(builder: Builder, x: Tensor, place: int, wanted: range) -> Tensor:
    """Slice a flat tensor along an axis that is a part of the channels, or after arranging it as an image."""
    flat = x.shape
    shape = (*flat[:place], len(wanted), *flat[place + 1 :])
    try:
        owners = _owners(x, flat)
    except UnmappedError:
        owners = []
    if owners and owners[place] == "C":
        parts = [spot for spot in range(len(flat)) if owners[spot] == "C"]
        channels = np.arange(x.channels).reshape([flat[spot] for spot in parts])
        chosen = np.take(channels, list(wanted), axis=parts.index(place)).ravel()
        return reshape(builder, pick_channels(builder, replace(x, flat=None), chosen), shape)
    axes = "NC" if len(flat) == 1 else "N" + "HWC"[-len(flat) :]
    if len(flat) <= 3:
        try:
            return strided_slice(builder, arrange(builder, x, axes), place + 1, wanted.start, wanted.stop, wanted.step)
        except UnmappedError:
            pass
    return general.part(builder, x, place, wanted)


def select(builder: Builder, x: Tensor, dim: int, index: int) -> Tensor:
    """Same as torch.select: one index along an axis, without that axis."""
    place = _dim(x, dim)
    extent = x.shape[place - 1] if place else 0
    if place and not -extent <= index < extent:
        raise InvalidModelError(f"index {index} is not one of the {extent} along axis {dim}.")
    stop = index + 1 if index != -1 else None
    part = strided_slice(builder, x, place, index, stop)
    return reshape(builder, part, [e for spot, e in enumerate(part.shape, 1) if spot != place])


def split(builder: Builder, x: Tensor, split_size: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Same as torch.split: parts of one length, or of the given lengths."""
    place = _dim(x, dim)
    if place == 0:
        raise UnmappedError("a part of the batch")
    extent = x.shape[place - 1]
    if isinstance(split_size, int):
        if split_size < 1:
            raise InvalidModelError(f"split_size ({split_size}) is less than the minimum (1).")
        sizes = [min(split_size, extent - start) for start in range(0, extent, split_size)]
    else:
        sizes = list(split_size)
        if sum(sizes) != extent:
            raise InvalidModelError(f"the lengths {sizes} are not {extent} together.")
    parts, start = [], 0
    for size in sizes:
        parts.append(narrow(builder, x, dim, start, size))
        start += size
    return parts


def chunk(builder: Builder, x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """Same as torch.chunk: at most `chunks` parts, the last possibly shorter."""
    place = _dim(x, dim)
    if place == 0:
        raise UnmappedError("a part of the batch")
    return split(builder, x, -(-x.shape[place - 1] // chunks), dim)


def expand(builder: Builder, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Same as torch.expand, for the shape without the batch: repeats axes of extent 1; -1 keeps an axis."""
    if len(shape) < len(x.shape):
        raise InvalidModelError(f"{x.shape} cannot be expanded to {tuple(shape)}.")
    while len(x.shape) < len(shape):
        x = unsqueeze(builder, x, 1)
    for place, extent in enumerate(shape, 1):
        if extent in (-1, x.shape[place - 1]):
            continue
        if x.flat is not None and x.shape[place - 1] == 1:
            return general.broadcast(builder, x, [a if b == -1 else b for a, b in zip(x.shape, shape, strict=True)])
        if x.flat is not None or x.shape[place - 1] != 1:
            raise UnmappedError(f"{x.shape} expanded to {tuple(shape)}")
        axis = x.axes[place]
        if axis == "C":
            x = builder.add("Convolution", x, channels=extent, weight=np.ones((extent, 1, 1, 1), np.float32))
        else:
            builder.fix()
            factor = (extent, 1) if axis == "H" else (1, extent)
            x = builder.add(
                "UpsamplingNearest", x, scale_factor=factor, **{"height" if axis == "H" else "width": extent}
            )
    return x


def repeat(builder: Builder, x: Tensor, counts: Sequence[int]) -> Tensor:
    """Same as torch.tile, with a count for each axis after the batch."""
    changed = [place for place, count in enumerate(counts) if count != 1]
    if x.flat is None and len(counts) <= 3 and all(counts[place] <= MAXIMUM_REPEAT for place in changed):
        for place in changed:
            x = cat(builder, [x] * counts[place], place + 1)
        return x
    return general.repeat(builder, x, counts) if changed else x


def repeat_interleave(builder: Builder, x: Tensor, repeats: int, dim: int) -> Tensor:
    """Same as torch.repeat_interleave: each index along an axis, `repeats` times."""
    place = _dim(x, dim)
    if place == 0:
        raise UnmappedError("the batch repeated")
    if repeats < 1:
        raise UnmappedError(f"a tensor without values: {repeats} repetitions")
    if x.flat is None:
        axis, total = x.axes[place], x.shape[place - 1] * repeats
        if axis == "C" and total <= CHANNEL_LIMIT:
            with contextlib.suppress(UnmappedError):
                return pick_channels(builder, x, np.repeat(np.arange(x.channels), repeats))
        if axis == "H" and total <= EXTENT_LIMIT:
            return builder.add("UpsamplingNearest", x, scale_factor=(repeats, 1), height=total)
        if axis == "W" and total <= EXTENT_LIMIT:
            return builder.add("UpsamplingNearest", x, scale_factor=(1, repeats), width=total)
    return general.gather(builder, x, place - 1, np.repeat(np.arange(x.shape[place - 1]), repeats))


def roll(builder: Builder, x: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    """Same as torch.roll along some axes."""
    for shift, dim in zip(shifts, dims, strict=True):
        place = _dim(x, dim)
        if place == 0:
            raise UnmappedError("images of the batch in another order")
        extent = x.shape[place - 1]
        cut = -shift % extent
        if shift:  # by an extent, too: others are moved by it
            builder.fix_unless_constant(x, "HW" if x.flat is not None else x.axes[place])
        if cut:
            x = cat(builder, [narrow(builder, x, dim, cut, extent - cut), narrow(builder, x, dim, 0, cut)], dim)
    return x
