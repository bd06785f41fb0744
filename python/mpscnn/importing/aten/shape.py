# SPDX-License-Identifier: Apache-2.0
"""Shapes: reshapes, permutations, slices, concatenations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import arithmetic, convolution, elementwise, general, resize, scattering, shape
from ..torch_arguments import Arguments, Computed, Merged, Missing, Rows, Sized, Turned, same_extent
from .registry import axis, operator

FEW = 16  # parts of an axis whose extents may be computed from that of the axis


@operator("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as", "squeeze", "unsqueeze")
def _reshape(b: Builder, a: Arguments) -> Any:
    name = a.node.target._schema.name.removeprefix("aten::").rstrip("_")  # type: ignore[union-attr]
    if "dtype" in a:
        raise UnmappedError(f"values seen as {a['dtype']}")
    to = a.shape
    source = a["self"]
    if isinstance(source, Merged):
        if name == "unsqueeze" and a.integer("dim") % len(to) == 0:
            raise UnmappedError("an axis in front of the batch, which is taken together with other axes")
        if source.is_inner:
            return _inner_apart(b, a, source, to)
        if to and a.is_batch(to[0]) and (int(a.batch) > 1 or source.tensor.size == math.prod(map(int, to))):
            if tuple(map(int, to[1:])) == source.tensor.shape:
                return source.tensor
            return shape.reshape(b, source.tensor, [int(extent) for extent in to[1:]])
        return Merged(source.tensor, tuple(map(int, to)))
    if isinstance(source, Rows):
        return _rows_apart(b, source, to)
    if isinstance(source, Turned):
        if name in ("squeeze", "unsqueeze"):
            raise UnmappedError(f"the axis of the batch at place {source.place}")  # lifted
        before, place = a.shape_of("self"), source.place
        if len(to) <= place or not all(map(same_extent, before[: place + 1], to[: place + 1])):
            return _turned_and_merged(b, source, before, to)
        rest = [int(extent) for extent in (*to[:place], *to[place + 1 :])]
        if isinstance(source.tensor, Merged):
            return Turned(replace(source.tensor, shape=(source.tensor.shape[0], *rest)), place)
        return Turned(shape.reshape(b, source.tensor, rest), place)
    x = a.source
    if name == "squeeze" and "dim" in a:
        dims = [dim for dim in a.integers("dim") if dim % x.rank or int(a.batch) == 1]
        return shape.squeeze(b, x, dims)
    if name == "unsqueeze":
        dim = a.integer("dim") % (x.rank + 1)
        return Turned(shape.unsqueeze(b, x, 1), 1) if dim == 0 else shape.unsqueeze(b, x, dim)
    if not to or not a.is_batch(to[0]):
        return Merged(x, tuple(map(int, to)))
    if name == "squeeze" and int(to[0]) == 1:
        raise UnmappedError("all axes of extent 1 squeezed, the batch of one image among them")
    computed = [place for place, extent in enumerate(to[1:]) if isinstance(extent, Sized) and extent.of_extents]
    return shape.reshape(b, x, [int(extent) for extent in to[1:]], computed)


def _inner_apart(b: Builder, a: Arguments, x: Merged, to: tuple[Any, ...]) -> Merged | Turned:
    """Return a view of a tensor whose batch is merged with extents before it, together or apart."""
    before, count = a.shape_of("self"), x.shape[0] // int(a.batch)
    if same_extent(before[0], to[0]):
        return replace(x, shape=tuple(map(int, to)))
    if len(to) > 1 and not isinstance(to[0], Computed) and to[0] == count and a.is_batch(to[1]):
        return Turned(shape.reshape(b, x.tensor, (count, *map(int, to[2:]))), 1)
    raise UnmappedError(f"{x.shape}, the batch taken together with axes before it, as {tuple(map(int, to))}")


def _rows_apart(b: Builder, x: Rows, to: tuple[Any, ...]) -> Turned:
    """Return a view that takes apart the axes that were taken together."""
    place, own = x.turned.place, x.turned.tensor.shape
    inside = tuple(map(int, (*to[:place], *to[place + 1 :])))
    if len(to) <= place or inside[:place] != own[:place] or math.prod(inside) != math.prod(own):
        raise UnmappedError(f"{x.shape}, the batch taken together with axes before it, as {tuple(map(int, to))}")
    assert isinstance(x.turned.tensor, Tensor)
    return Turned(shape.reshape(b, x.turned.tensor, inside), place)


def _turned_and_merged(b: Builder, x: Turned, before: tuple[Any, ...], to: tuple[Any, ...]) -> Any:
    """Return a view that takes the batch, which is not the first axis, together with others."""
    place, rest = x.place, tuple(map(int, to))
    refused = UnmappedError(f"the axis of the batch at place {place}, taken together with others, {rest}")
    own = x.rest
    if isinstance(x.tensor, Merged) and x.tensor.is_inner:
        raise refused
    if len(to) > place and all(map(same_extent, before[:place], to[:place])):
        # (L, N, h * d) as (L, N * h, d); if N already has axes merged with it, they are axis 1 of each image
        count, left = divmod(int(to[place]), int(before[place]))
        if left or count * math.prod(rest[place + 1 :]) != math.prod(own[place:]):
            raise refused
        whole = x.tensor.apart(b) if isinstance(x.tensor, Merged) else x.tensor
        merged = whole.shape[: whole.rank - 1 - len(own)]
        first = 1 + len(merged)
        y = shape.reshape(b, whole, (*merged, *own[:place], count, *rest[place + 1 :]))
        moved = [first + place, *range(first, first + place), *range(first + place + 1, y.rank)]
        y = shape.permute(b, y, [*range(first), *moved])
        return Turned(Merged(y, (rest[place], *rest[:place], *rest[place + 1 :])), place)
    if isinstance(x.tensor, Tensor) and place == 1 and len(to) > 2 and rest[0] == own[0] * int(before[1]):
        # (3, N, h * w, d) as (3 * N, h, w, d)
        return Merged(shape.reshape(b, x.tensor, (own[0], *rest[1:])), rest, is_inner=True)
    if isinstance(x.tensor, Merged):
        # (L, N * h, d) as (L * N, h * d)
        whole = x.tensor.apart(b)
        order = [0, *range(2, place + 2), 1, *range(place + 2, whole.rank)]
        x = Turned(shape.permute(b, whole, order), place)
        own = x.rest
    assert isinstance(x.tensor, Tensor)
    if len(to) == 2 and math.prod(own[place:]) % rest[-1] == 0:
        # (L, N, h, d) as (L * N, h * d)
        count = math.prod(own[place:]) // rest[-1]
        inner = (*own[:place], *((count,) if count > 1 else ()), rest[-1])
        return Rows(Turned(shape.reshape(b, x.tensor, inner), place), rest)
    raise refused


@operator("permute")
def _permute(b: Builder, a: Arguments) -> Tensor | Turned:
    x = a.source
    order = [dim % x.rank for dim in a.integers("dims")]
    return _with_batch_at(shape.permute(b, x, [0, *(dim for dim in order if dim)]), order.index(0))


def _with_batch_at(x: Tensor, place: int) -> Tensor | Turned:
    return Turned(x, place) if place else x


@operator("transpose", "swapaxes", "swapdims")
def _transpose(b: Builder, a: Arguments) -> Tensor | Turned:
    first, second = ("axis0", "axis1") if "axis0" in a else ("dim0", "dim1")
    x = a.source
    order = list(range(x.rank))
    one, other = a.integer(first) % x.rank, a.integer(second) % x.rank
    order[one], order[other] = order[other], order[one]
    return _with_batch_at(shape.permute(b, x, [0, *(dim for dim in order if dim)]), order.index(0))


@operator("mT")
def _matrix_transpose(b: Builder, a: Arguments) -> Tensor:
    return shape.transpose(b, a.source, -2, -1)


@operator("movedim", "moveaxis")
def _movedim(b: Builder, a: Arguments) -> Tensor:
    rank = a.source.rank
    sources, targets = ([dim % rank for dim in a.integers(name)] for name in ("source", "destination"))
    order = [dim for dim in range(rank) if dim not in sources]
    for target, source in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source)
    return shape.permute(b, a.source, order)


@operator("contiguous", "clone", "detach", "alias", "lift_fresh_copy", "positive")
def _same_values(b: Builder, a: Arguments) -> Any:
    return a["self"] if isinstance(a["self"], (Merged, Turned, Rows)) else a.source


@operator("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout")
def _dropout(b: Builder, a: Arguments) -> Any:
    if a["train"] and a.number("p") > 0:
        raise UnmappedError("dropout in training: call module.eval() before the export")
    return [a.source, Missing("the mask of a dropout")] if isinstance(a.node.meta["val"], (list, tuple)) else a.source


# Integers are floats, exact up to 2 ** 24; narrow ones would wrap.
_INTEGERS = (torch.int64, torch.int32)


def _has_weights_of(a: Arguments, dtype: torch.dtype) -> bool:
    """Return whether this is the type of the module: networks keep more digits than it does."""
    if dtype not in (torch.float16, torch.bfloat16):
        return False
    found = [node.meta.get("val") for node in a.node.graph.nodes if node.op == "placeholder"]
    return any(isinstance(value, torch.Tensor) and value.dtype == dtype for value in found)


@operator("to", "_to_copy", "type_as")
def _to(b: Builder, a: Arguments) -> Any:
    before, after = a.node.args[0].meta["val"].dtype, a.node.meta["val"].dtype  # type: ignore[union-attr]
    if isinstance(a["self"], torch.Tensor):
        return a["self"].to(after)
    if after == torch.bool and before != torch.bool:
        return elementwise.binary(b, a.source, 0.0, "ne")
    if after in _INTEGERS and before.is_floating_point:
        return elementwise.unary(b, a.source, "trunc")
    whole = before == torch.bool or before in _INTEGERS
    if after not in (before, torch.float32) and not (whole and after in _INTEGERS) and not _has_weights_of(a, after):
        raise UnmappedError(f"a conversion from {before} to {after}, which rounds: the network computes in float32")
    return a["self"] if isinstance(a["self"], Merged) else a.source


@operator(
    "new_full", "new_zeros", "new_ones", "full_like", "zeros_like", "ones_like", "fill", "empty_like", "new_empty"
)
def _full(b: Builder, a: Arguments) -> Any:
    """Return a constant with the type, and perhaps the shape, of a tensor; zeros if its values may be any."""
    name = a.node.target._schema.name  # type: ignore[union-attr]
    value = float("ones" in name)
    if "fill_value" in a:
        value = a.number("fill_value")
    elif "value" in a:
        filled = a.operand("value")
        if isinstance(filled, Tensor):
            raise UnmappedError("values that are replaced by a computed one")
        value = float(np.reshape(filled, ()))
    if any(isinstance(extent, Computed) and extent.of_extents for extent in a.shape):
        x = a["self"]
        if "like" in name and isinstance(x, Tensor) and x.flat is None and a.node.meta["val"].is_floating_point():
            finite = b.add("NeuronSigmoid", x)  # even if x is infinite
            return b.add("NeuronLinear", finite, a=0.0, b=value)
        b.fix()
    shape = [int(extent) for extent in a.shape]
    if math.prod(shape) > general.TABLE_LIMIT:
        raise UnmappedError(f"a constant of shape {tuple(shape)}")
    return torch.full(shape, value, dtype=a.node.meta["val"].dtype)


@operator("cat", "concat", "concatenate", "stack")
def _cat(b: Builder, a: Arguments) -> Tensor:
    values = list(a["tensors"])
    like = next((value for value in values if isinstance(value, Tensor)), None)
    if like is None:
        why = [value.why for value in values if isinstance(value, Missing)]
        raise UnmappedError(
            f"a concatenation of {why[0]}" if why else "a concatenation of tensors without the batch first"
        )
    tensors = []
    for place, value in enumerate(values):
        a.values["part"] = value
        if not isinstance(value, torch.Tensor):
            tensors.append(a.tensor("part"))
        elif value.numel() > 0:
            tensors.append(_constant_tensor(b, a, like, place))
    join = shape.stack if a.node.target._schema.name == "aten::stack" else shape.cat  # type: ignore[union-attr]
    return join(b, tensors, a.integer("dim"))


def _constant_tensor(b: Builder, a: Arguments, like: Tensor, place: int) -> Tensor:
    """Return a constant that is concatenated with tensors, with the axes of `like`."""
    array = np.asarray(a.operand("part"), np.float32)
    if array.ndim != like.rank or len(array) != 1:
        raise UnmappedError(f"a concatenation with a constant of shape {array.shape}")
    if like.flat is not None:
        return general.constant(b, like, array[0])
    missing = [axis for axis in "HWC" if axis not in like.axes]
    letters = [*like.axes[1:], *missing]
    image = array[0].reshape(array.shape[1:] + (1,) * len(missing))
    image = image.transpose([letters.index(axis) for axis in "HWC"])
    return replace(arithmetic.constant_image(b, like, image), axes=like.axes)


@operator("copy")
def _copy(b: Builder, a: Arguments) -> Any:
    """Return `src` with the shape of `self`, whose values it replaces."""
    if isinstance(a["src"], torch.Tensor):
        raise UnmappedError("values that are replaced by constants")
    return shape.expand(b, a.tensor("src"), [int(extent) for extent in a.shape[1:]])


def _both(b: Builder, a: Arguments, name: str) -> tuple[Tensor, Tensor]:
    """Return `self` and another argument of the same rank, of which one may be a constant."""
    values = a["self"], a[name]
    like = next(value for value in values if isinstance(value, Tensor))
    found = []
    for place, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            a.values["part"] = value
            found.append(_constant_tensor(b, a, like, place))
        else:
            found.append(a.tensor("self" if place == 0 else name))
    return found[0], found[1]


def _replaced(b: Builder, x: Tensor, dim: int, places: NDArray[Any], values: Tensor) -> Tensor:
    """Return `x` with the values at some places along an axis replaced, in their order."""
    count = x.shape[dim - 1]
    first = int(places[0])
    if np.array_equal(places, np.arange(first, first + len(places))):
        parts = [shape.narrow(b, x, dim, 0, first)] if first else []
        last = first + len(places)
        parts += [values, *([shape.narrow(b, x, dim, last, count - last)] if last < count else [])]
        return shape.cat(b, parts, dim)
    indices = np.arange(count)
    indices[places] = count + np.arange(len(places))
    return _picked(b, shape.cat(b, [x, values], dim), dim, indices)


@operator("slice_scatter")
def _slice_scatter(b: Builder, a: Arguments) -> Any:
    rank = len(a.shape)
    dim = a.integer("dim") % rank
    start, end = (a.optional_integer(name) if dim else a[name] for name in ("start", "end"))
    if dim == 0:
        whole = start in (None, 0) and a["step"] == 1 and (end is None or int(end) >= int(a.shape[0]))
        if not whole:
            raise UnmappedError("a part of the batch replaced")
        return a["src"] if isinstance(a["src"], torch.Tensor) else a.tensor("src")
    places = np.arange(int(a.shape[dim]))[slice(start, end, a.integer("step"))]
    x, values = _both(b, a, "src")
    if isinstance(a.shape[dim], Sized):
        b.fix()
    return values if len(places) == x.shape[dim - 1] else _replaced(b, x, dim, places, values)


@operator("select_scatter")
def _select_scatter(b: Builder, a: Arguments) -> Tensor:
    dim = a.integer("dim") % len(a.shape)
    if dim == 0:
        raise UnmappedError("an image of the batch replaced")
    src = a["src"]
    a.values["src"] = src.unsqueeze(dim) if isinstance(src, torch.Tensor) else shape.unsqueeze(b, a.tensor("src"), dim)
    x, values = _both(b, a, "src")
    return _replaced(b, x, dim, np.array([a.integer("index") % x.shape[dim - 1]]), values)


@operator("index_put")
def _index_put(b: Builder, a: Arguments) -> Tensor:
    """Replace rows, columns or channels at constant indices along one axis."""
    x = a.source
    places = [place for place, index in enumerate(a["indices"]) if index is not None]
    masked = _masked(b, a, x, places)
    if masked is not None:
        return masked
    if len(places) != 1 or places[0] == 0:
        raise UnmappedError(f"values replaced by indices along the axes {places}")
    if a["accumulate"]:
        raise UnmappedError("values that are added at indices")
    dim = places[0]
    a.values["index"] = a["indices"][dim]
    if isinstance(a["index"], Tensor):
        raise UnmappedError("values replaced at computed indices")
    index = a.array("index")
    if index.ndim != 1:
        raise UnmappedError(f"values replaced at indices of shape {index.shape}")
    chosen = np.flatnonzero(index) if index.dtype == np.bool_ else index % x.shape[dim - 1]
    mask = np.zeros(x.shape[dim - 1], bool)
    mask[chosen] = True
    values = a.operand("values")
    if not isinstance(values, Tensor) and np.size(values) == 1:
        return elementwise.where(b, mask.reshape((-1, *[1] * (x.rank - 1 - dim))), float(np.reshape(values, ())), x)
    values = a.tensor("values")
    if values.shape != tuple(len(chosen) if d == dim else e for d, e in enumerate(x.shape, 1)):
        raise UnmappedError(f"values of shape {values.shape} at {len(chosen)} indices")
    order = np.argsort(chosen, kind="stable")
    if len(set(chosen.tolist())) != len(chosen):
        raise UnmappedError("values replaced twice")
    if not np.array_equal(order, np.arange(len(order))):
        values = _picked(b, values, dim, order)
    return _replaced(b, x, dim, np.sort(chosen), values)


def _masked(b: Builder, a: Arguments, x: Tensor, places: Sequence[int]) -> Tensor | None:
    """Return `x` with a number where a mask of its first axes, or of some behind the batch, is true."""
    if len(places) != 1 or a["accumulate"]:
        return None
    mask, values = a["indices"][places[0]], a.operand("values")
    index: Any = a.node.args[1][places[0]]  # type: ignore[index]
    if index.meta["val"].dtype != torch.bool or isinstance(values, Tensor) or np.size(values) != 1:
        return None
    number = float(np.reshape(values, ()))
    if isinstance(mask, Tensor):
        if places[0] or mask.shape != x.shape[: len(mask.shape)]:
            raise UnmappedError(f"values replaced by a mask of shape {mask.shape} in {x.shape}")
        while len(mask.shape) < len(x.shape):
            mask = shape.unsqueeze(b, mask, len(mask.shape) + 1)
        return elementwise.where(b, mask, number, x)
    if not isinstance(mask, torch.Tensor) or places[0] == 0:
        return None
    after = x.rank - places[0] - mask.ndim
    return elementwise.where(b, mask.numpy().reshape(*mask.shape, *[1] * after), number, x)


@operator("masked_scatter")
def _masked_scatter(b: Builder, a: Arguments) -> Tensor:
    """Return values of `source` in the place of those of `self` that a constant mask has, in their order."""
    x, source = a.source, a.tensor("source")
    kept = a.operand("mask")
    if isinstance(kept, Tensor):
        raise UnmappedError("values replaced by a computed mask")
    if np.ndim(kept) == x.rank and len(np.asarray(kept)) != 1:
        raise UnmappedError(f"a mask of shape {np.shape(kept)}, of its own for each image")
    mask: NDArray[Any] = np.broadcast_to(np.asarray(kept), (1, *x.shape))[0]
    if mask.sum() != source.size:
        raise UnmappedError(f"{source.size} values of each image for {mask.sum()} places")
    places = np.maximum(np.cumsum(mask.reshape(-1)) - 1, 0).reshape(mask.shape)
    return elementwise.where(b, mask, general.gather_values(b, source, places), x)


@operator("tril", "triu")
def _triangle(b: Builder, a: Arguments) -> Tensor:
    x = a.source
    if x.rank < 3:
        raise UnmappedError("a triangle of which the batch is an axis")
    b.fix_unless_constant(x)
    kept = np.ones(x.shape[-2:], bool)
    lower = a.node.target._schema.name == "aten::tril"  # type: ignore[union-attr]
    mask = np.tril(kept, a.integer("diagonal")) if lower else np.triu(kept, a.integer("diagonal"))
    return elementwise.where(b, mask, x, 0.0)


@operator("diagonal")
def _diagonal(b: Builder, a: Arguments) -> Tensor:
    x = a.source
    one, other = a.integer("dim1") % x.rank, a.integer("dim2") % x.rank
    if 0 in (one, other):
        raise UnmappedError("a diagonal of which the batch is an axis")
    strides, offset = general.strides_of(x.shape), a.integer("offset")
    first = offset * strides[other - 1] if offset >= 0 else -offset * strides[one - 1]
    kept = [place for place in range(len(x.shape)) if place + 1 not in (one, other)]
    count = int(a.shape[-1])
    extents, steps = [x.shape[place] for place in kept], [strides[place] for place in kept]
    return general.strided(b, x, [*extents, count], [*steps, strides[one - 1] + strides[other - 1]], None, first)


@operator("unfold")
def _unfold(b: Builder, a: Arguments) -> Tensor:
    x, size, step = a.source, a.integer("size"), a.integer("step")
    dim = a.integer("dimension") % x.rank
    if dim == 0:
        raise UnmappedError("windows of the batch")
    extents, strides = list(x.shape), general.strides_of(x.shape)
    stride = strides[dim - 1]
    extents[dim - 1], strides[dim - 1] = (extents[dim - 1] - size) // step + 1, stride * step
    return general.strided(b, x, [*extents, size], [*strides, stride])


@operator("rot90")
def _rot90(b: Builder, a: Arguments) -> Tensor:
    x, turns = a.source, a.integer("k") % 4
    one, other = (dim % x.rank for dim in a.integers("dims"))
    if 0 in (one, other):
        raise UnmappedError("a turn of the batch")
    if turns in (1, 2):
        x = _flipped(b, x, other)
    if turns in (2, 3):
        x = _flipped(b, x, one)
    return shape.transpose(b, x, one, other) if turns % 2 else x


@operator("split", "split_with_sizes")
def _split(b: Builder, a: Arguments) -> list[Any]:
    sizes = next(a[name] for name in ("split_size", "split_sizes") if name in a)
    if isinstance(sizes, (list, tuple)):
        sizes = list(a.integers("split_sizes" if "split_sizes" in a else "split_size"))
    else:
        sizes = a.integer("split_size")
    parts = shape.split(b, a.source, sizes, a.integer("dim"))
    _note_number(b, a.source, a.integer("dim"), len(parts))
    return list(parts)


def _note_number(b: Builder, x: Tensor, dim: int, parts: int) -> None:
    """Note that the size is fixed if an axis that varies is taken apart into more than a few parts.

    Their number is that of the trace. A few may be a half or a quarter of any size each.
    """
    if parts > FEW and x.flat is None and x.axis(dim) in b.varying(x):
        b.note_fixed()


@operator("chunk")
def _chunk(b: Builder, a: Arguments) -> list[Tensor]:
    return shape.chunk(b, a.source, a.integer("chunks"), a.integer("dim"))


@operator("tensor_split")
def _tensor_split(b: Builder, a: Arguments) -> list[Tensor]:
    x, dim = a.source, axis(a, "dim")
    if dim == 0:
        raise UnmappedError("a part of the batch")
    extent = x.shape[dim - 1]
    if "sections" in a:
        count = a.integer("sections")
        sizes = [extent // count + (part < extent % count) for part in range(count)]
    elif "indices" in a:
        bounds = [0, *a.integers("indices"), extent]
        sizes = [after - before for before, after in itertools.pairwise(bounds)]
    else:
        raise UnmappedError("places that a tensor holds")
    return shape.split(b, x, sizes, dim)


@operator("unbind")
def _unbind(b: Builder, a: Arguments) -> list[Tensor]:
    dim = axis(a, "dim")
    if dim == 0:
        raise UnmappedError("the images of the batch taken apart")
    _note_number(b, a.source, dim, a.source.shape[dim - 1])
    return [shape.select(b, a.source, dim, index) for index in range(a.source.shape[dim - 1])]


@operator("slice")
def _slice(b: Builder, a: Arguments) -> Any:
    dim, extents, result = a.integer("dim"), a.shape_of("self"), a.shape
    whole = a["step"] == 1 and -len(extents) <= dim < len(extents) and same_extent(extents[dim], result[dim])
    if whole:
        return _same_values(b, a)
    if any(not isinstance(extent, Computed) and extent == 0 for extent in result):
        return torch.zeros([int(extent) for extent in result])  # concatenations leave it out
    return shape.strided_slice(
        b, a.source, axis(a, "dim"), a.optional_integer("start"), a.optional_integer("end"), a.integer("step")
    )


@operator("narrow")
def _narrow(b: Builder, a: Arguments) -> Tensor:
    return shape.narrow(b, a.source, a.integer("dim"), a.integer("start"), a.integer("length"))


@operator("select")
def _select(b: Builder, a: Arguments) -> Tensor:
    return shape.select(b, a.source, a.integer("dim"), a.integer("index"))


@operator("index_select")
def _index_select(b: Builder, a: Arguments) -> Tensor:
    return _picked(b, a.source, axis(a, "dim"), a.array("index"))


@operator("index")
def _index(b: Builder, a: Arguments) -> Tensor:
    places = [place for place, index in enumerate(a["indices"]) if index is not None]
    if len(places) != 1:
        return _of_several_axes(b, a, places)
    a.values["index"] = a["indices"][places[0]]
    indices, x, dim = a.array("index"), a.source, places[0]
    if dim == 0:
        raise UnmappedError("images of the batch in another order")
    if indices.dtype == np.bool_:
        last = dim + indices.ndim
        if x.shape[dim - 1 : last - 1] != indices.shape:
            raise InvalidModelError(f"{b.origin}: a mask of shape {indices.shape} for {x.shape}, from axis {dim}.")
        if not indices.any():
            raise UnmappedError("a part without values: a mask of nothing")
        x = shape.reshape(b, x, (*x.shape[: dim - 1], indices.size, *x.shape[last - 1 :]))
        indices = np.flatnonzero(indices)
    if indices.ndim == 1:
        return _picked(b, x, dim, indices)
    y = _picked(b, x, dim, indices.reshape(-1))
    return shape.reshape(b, y, (*y.shape[: dim - 1], *indices.shape, *y.shape[dim:]))


def _of_several_axes(b: Builder, a: Arguments, places: list[int]) -> Tensor:
    """Return the parts at constant indices along the first axes behind the batch."""
    x = a.source
    if places != list(range(1, len(places) + 1)):
        raise UnmappedError(f"indices along the axes {places}")
    found = []
    for place in places:
        a.values["index"] = a["indices"][place]
        index, extent = a.array("index"), x.shape[place - 1]
        if index.dtype == np.bool_:
            raise UnmappedError(f"indices of {index.dtype} along {len(places)} axes")
        if index.size and not (-extent <= index.min() and index.max() < extent):
            raise InvalidModelError(f"{b.origin}: an index along axis {place} is not one of the {extent}.")
        found.append(index % extent)
    return scattering.take(b, x, np.ravel_multi_index(np.broadcast_arrays(*found), x.shape[: len(places)]), len(places))


def _picked(b: Builder, x: Tensor, dim: int, indices: NDArray[Any]) -> Tensor:
    if x.flat is not None or x.axis(dim) != "C":
        try:
            return _padded(b, x, dim, indices)
        except UnmappedError:
            return _gathered(b, x, dim, indices)
    count = x.channels
    wanted = [int(index) for index in indices.reshape(-1)]
    if any(not -count <= index < count for index in wanted):
        raise InvalidModelError(f"{b.origin}: an index of {wanted} is not one of the {count} channels.")
    return shape.pick_channels(b, x, [index % count for index in wanted])


def _gathered(b: Builder, x: Tensor, dim: int, indices: NDArray[Any]) -> Tensor:
    if dim == 0:
        raise UnmappedError("images of the batch in another order")
    count, wanted = x.shape[dim - 1], indices.reshape(-1).astype(np.int64)
    if wanted.size and not (-count <= wanted.min() and wanted.max() < count):
        raise InvalidModelError(
            f"{b.origin}: an index of {wanted.tolist()} is not one of the {count} along axis {dim}."
        )
    return general.gather(b, x, dim - 1, wanted % count)


def _padded(b: Builder, x: Tensor, dim: int, indices: NDArray[Any]) -> Tensor:
    """Pick rows or columns by index, as core ATen expresses padding."""
    extent = x.shape[dim - 1]
    for before in range(len(indices) - extent + 1):
        pads = (before, len(indices) - extent - before)
        if np.array_equal(np.pad(np.arange(extent), pads, "edge"), indices):
            mode = "replicate"
        elif max(pads) < extent and np.array_equal(np.pad(np.arange(extent), pads, "reflect"), indices):
            mode = "reflect"
        else:
            continue
        b.fix_unless_constant(x, x.axis(dim))
        return resize.pad(b, x, [*[0, 0] * (x.rank - 1 - dim), *pads], mode)
    raise UnmappedError("indices along another axis than the channels")


@operator("flip")
def _flip(b: Builder, a: Arguments) -> Tensor:
    x = a.source
    for dim in a.integers("dims"):
        x = _flipped(b, x, dim % x.rank)
    return x


def _flipped(b: Builder, x: Tensor, dim: int) -> Tensor:
    if dim == 0:
        raise UnmappedError("images of the batch in another order")
    if x.flat is None and x.axes[dim] == "C":
        return _picked(b, x, dim, np.arange(x.channels)[::-1])
    return general.gather(b, x, dim - 1, np.arange(x.shape[dim - 1])[::-1])


@operator("channel_shuffle")
def _channel_shuffle(b: Builder, a: Arguments) -> Tensor:
    x, groups = a.source, a.integer("groups")
    if x.axis(1) != "C" or x.channels % groups:
        raise UnmappedError(f"{groups} groups of {x.axes}, {x.shape}")
    return shape.pick_channels(b, x, np.arange(x.channels).reshape(groups, -1).T.ravel())


class _Patches:
    """Geometry of patches: kernel, dilation, padding and stride as (height, width), and the number of patches."""

    def __init__(self, a: Arguments, height: int, width: int) -> None:
        names = ("kernel_size", "dilation", "padding", "stride")
        self.kernel, self.dilation, self.padding, self.stride = (a.pair(name) for name in names)
        self.count = tuple(
            (extent + 2 * p - d * (k - 1) - 1) // s + 1
            for extent, k, d, p, s in zip(
                (height, width), self.kernel, self.dilation, self.padding, self.stride, strict=True
            )
        )


@operator("im2col")
def _im2col(b: Builder, a: Arguments) -> Tensor:
    x = a.source
    if x.rank != 4:
        raise UnmappedError(f"patches of a tensor with {x.rank} axes")
    channels, height, width = x.shape
    w = _Patches(a, height, width)
    (h, v), (ph, pw) = w.kernel, w.padding
    if ph or pw:
        x = resize.pad(b, general.store(b, x) if x.flat is not None else x, [pw, pw, ph, ph])
    area, row, one = general.strides_of(x.shape)
    (dh, dw), (sh, sw), (rows, columns) = w.dilation, w.stride, w.count
    extents, strides = (channels, h, v, rows, columns), (area, dh * row, dw * one, sh * row, sw * one)
    y = general.strided(b, x, extents, strides)
    return shape.reshape(b, y, (channels * h * v, rows * columns))


@operator("col2im")
def _col2im(b: Builder, a: Arguments) -> Tensor:
    """Add patches, by a transposed convolution with the weights of an identity."""
    x = a.source
    height, width = a.pair("output_size")
    w = _Patches(a, height, width)
    h, v = w.kernel
    if x.rank != 3 or x.shape[1] != math.prod(w.count) or x.shape[0] % (h * v):
        raise UnmappedError(f"patches of a tensor of shape {x.shape}")
    channels = x.shape[0] // (h * v)
    y = general.channels_second(b, shape.reshape(b, x, (channels * h * v, *w.count)))
    weight = np.tile(np.eye(h * v, dtype=np.float32), (channels, 1)).reshape(channels * h * v, 1, h, v)
    more = tuple(
        extent - ((n - 1) * s - 2 * p + d * (k - 1) + 1)
        for extent, n, s, p, d, k in zip(
            (height, width), w.count, w.stride, w.padding, w.dilation, w.kernel, strict=True
        )
    )
    return convolution.conv_transpose2d(
        b, y, weight, None, w.stride, w.padding, (more[0], more[1]), channels, w.dilation
    )


@operator("repeat_interleave")
def _repeat_interleave(b: Builder, a: Arguments) -> Tensor:
    x, dim = a.source, a["dim"]
    if dim is None or not isinstance(a["repeats"], int):
        raise UnmappedError("repetitions of all axes, or of another number for each value")
    place = axis(a, "dim")
    if place == 0:
        raise UnmappedError("the batch repeated")
    return shape.repeat_interleave(b, x, a.integer("repeats"), place)


# Operators that broadcast.
_BROADCASTING = {"add", "sub", "mul", "div", "rsub", "multiply", "subtract", "divide", "true_divide"}


@operator("expand", "expand_as")
def _expand(b: Builder, a: Arguments) -> Tensor:
    x, to = a.source, a.shape
    if not a.is_batch(to[0]):
        raise UnmappedError("the batch repeated")
    while len(x.shape) < len(to) - 1:
        x = shape.unsqueeze(b, x, 1)
    if all(_broadcasts(user, a.node) for user in a.node.users):
        return x
    return shape.expand(b, x, [int(extent) for extent in to[1:]])


def _broadcasts(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Return whether the result of `user` is the same without the expand: its other source has all extents."""
    name = getattr(user.target, "_opname", "").rstrip("_")
    others = [argument for argument in user.args[:2] if argument is not node]
    if name not in _BROADCASTING or len(others) != 1 or not isinstance(others[0], torch.fx.Node):
        return False
    other, result = others[0].meta.get("val"), user.meta.get("val")
    if "expand" in str(others[0].target) or not isinstance(other, torch.Tensor) or not isinstance(result, torch.Tensor):
        return False
    return [str(extent) for extent in other.shape] == [str(extent) for extent in result.shape]


@operator("repeat", "tile")
def _repeat(b: Builder, a: Arguments) -> Tensor:
    x = a.source
    counts = a["repeats" if "repeats" in a else "dims"]
    counts = [1] * (x.rank - len(counts)) + list(counts)
    if counts[0] != 1 or len(counts) != x.rank:
        raise UnmappedError("the batch repeated")
    if any(isinstance(count, Computed) and count.of_extents for count in counts):
        b.fix()
    return shape.repeat(b, x, [int(count) for count in counts[1:]])


@operator("roll")
def _roll(b: Builder, a: Arguments) -> Tensor:
    shifts, dims = a.integers("shifts"), a.integers("dims")
    if not dims:
        raise UnmappedError("values in another order, the batch included")
    return shape.roll(b, a.source, shifts, dims)
