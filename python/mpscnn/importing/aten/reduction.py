# SPDX-License-Identifier: Apache-2.0
"""Reductions, softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import arithmetic, elementwise, general, ordering, reduction, scattering, shape
from ..torch_arguments import Arguments, Missing
from .arithmetic import maximum, minimum
from .registry import Operator, operator


def _dims(a: Arguments, name: str = "dim") -> tuple[int, ...]:
    """Return the axes; UnmappedError if none are given, which means all axes including the batch."""
    if name not in a or a[name] is None or a[name] == []:
        raise UnmappedError("a reduction over all axes, the batch included")
    return a.integers(name)


def _reduction(names: str, function: Callable[..., Tensor]) -> None:
    @operator(*names.split())
    def reduce(b: Builder, a: Arguments) -> Tensor:
        _refuse_dtype(a)
        return function(b, a.source, _dims(a), bool(a["keepdim"]))


def _refuse_dtype(a: Arguments) -> None:
    if a.values.get("dtype") not in (None, torch.float32, a.node.meta["val"].dtype):
        raise UnmappedError(f"a result of {a['dtype']}")


_reduction("mean", reduction.mean)
_reduction("sum", reduction.sum)
_reduction("amax", reduction.amax)
_reduction("amin", reduction.amin)
_reduction("logsumexp", reduction.logsumexp)


def _extremum(name: str, function: Callable[..., Tensor], index: Callable[..., Tensor], pair: Operator) -> None:
    @operator(name)
    def reduce(b: Builder, a: Arguments) -> Any:
        if "other" in a:
            return pair(b, a)
        dims, keepdim = _dims(a), bool(a["keepdim"])
        users = {user.args[1] for user in a.node.users if user.users}
        values: Any = function(b, a.source, dims, keepdim) if 0 in users else Missing("values that nothing reads")
        indices: Any = index(b, a.source, dims[0], keepdim) if 1 in users else Missing("indices that nothing reads")
        return [values, indices]


_extremum("max", reduction.amax, reduction.argmax, maximum)
_extremum("min", reduction.amin, reduction.argmin, minimum)


@operator("argmax")
def _argmax(b: Builder, a: Arguments) -> Tensor:
    return reduction.argmax(b, a.source, _dims(a)[0], bool(a["keepdim"]))


@operator("argmin")
def _argmin(b: Builder, a: Arguments) -> Tensor:
    return reduction.argmin(b, a.source, _dims(a)[0], bool(a["keepdim"]))


@operator("any")
def _any(b: Builder, a: Arguments) -> Tensor:
    return reduction.amax(b, elementwise.binary(b, a.source, 0.0, "ne"), _dims(a), bool(a["keepdim"]))


@operator("all")
def _all(b: Builder, a: Arguments) -> Tensor:
    return reduction.amin(b, elementwise.binary(b, a.source, 0.0, "ne"), _dims(a), bool(a["keepdim"]))


@operator("prod")
def _prod(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    return ordering.product(b, a.source, _dims(a)[0], bool(a["keepdim"]))


@operator("cumsum")
def _cumsum(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    return ordering.accumulated(b, a.source, _dims(a)[0])


@operator("cumprod")
def _cumprod(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    return ordering.accumulated(b, a.source, _dims(a)[0], product=True)


def _top(b: Builder, a: Arguments, count: int | None, largest: bool) -> list[Any]:
    """Return values and indices in order; None: all values."""
    x, dim = a.source, _dims(a)[0]
    users = {user.args[1] for user in a.node.users if user.users}
    count = x.shape[dim % x.rank - 1] if count is None and dim % x.rank else count or 0
    found = ordering.top(b, x, count, dim, largest, (0 in users, 1 in users))
    return [Missing("a result that nothing reads") if y is None else y for y in found]


@operator("topk")
def _topk(b: Builder, a: Arguments) -> list[Any]:
    return _top(b, a, a.integer("k"), bool(a["largest"]))


@operator("sort")
def _sort(b: Builder, a: Arguments) -> list[Any]:
    return _top(b, a, None, bool(a["descending"]))


@operator("argsort")
def _argsort(b: Builder, a: Arguments) -> Any:
    x, dim = a.source, _dims(a)[0]
    if dim % x.rank == 0:
        raise UnmappedError("an order of the images of the batch")
    return ordering.top(b, x, x.shape[dim % x.rank - 1], dim, bool(a["descending"]), (False, True))[1]


def _smallest(b: Builder, a: Arguments, k: int | None) -> list[Any]:
    """Return the k-th smallest value along an axis, the lower one of the middle by default, and its index."""
    x, dim, keepdim = a.source, _dims(a)[0] % a.source.rank, bool(a["keepdim"])
    if dim == 0:
        raise UnmappedError("an order of the images of the batch")
    k = (x.shape[dim - 1] + 1) // 2 if k is None else k
    users = {user.args[1] for user in a.node.users if user.users}
    found: list[Any] = []
    for y in ordering.top(b, x, k, dim, False, (0 in users, 1 in users)):
        if y is None:
            found.append(Missing("a result that nothing reads"))
        else:
            last = shape.narrow(b, y, dim, k - 1, 1)
            found.append(last if keepdim else shape.squeeze(b, last, dim))
    return found


@operator("kthvalue")
def _kthvalue(b: Builder, a: Arguments) -> list[Any]:
    return _smallest(b, a, a.integer("k"))


@operator("median")
def _median(b: Builder, a: Arguments) -> list[Any]:
    return _smallest(b, a, None)


@operator("aminmax")
def _aminmax(b: Builder, a: Arguments) -> list[Tensor]:
    dims, keepdim = _dims(a), bool(a["keepdim"])
    return [function(b, a.source, dims, keepdim) for function in (reduction.amin, reduction.amax)]


@operator("cosine_similarity")
def _cosine_similarity(b: Builder, a: Arguments) -> Tensor:
    rank, eps = len(a.shape) + 1, a.number("eps")
    parts = []
    for name in ("x1", "x2"):
        x = a.operand(name)
        if not isinstance(x, Tensor):
            array = np.asarray(x, np.float64)
            array = array.reshape((1,) * (rank - array.ndim) + array.shape)
            length = np.sqrt((array * array).sum(a.integer("dim"), keepdims=True))
            parts.append((array / np.maximum(length, eps)).astype(np.float32))
            continue
        if x.rank < rank:
            raise UnmappedError(
                f"tensors of {x.rank} and {rank} axes: the batch of one meets another axis of the other"
            )
        length = reduction.norm(b, x, 2, a.integer("dim"), True)
        parts.append(elementwise.of_several(b, arithmetic.divide, x, arithmetic.clamp(b, length, eps)))
    return reduction.sum(b, elementwise.of_several(b, arithmetic.multiply, *parts), a.integer("dim"), False)


@operator("cdist")
def _cdist(b: Builder, a: Arguments) -> Tensor:
    """Return distances by differences: the shorter sum of squares less products loses the digits of small ones."""
    first, second = a.operand("x1"), a.operand("x2")
    p = a.number("p")
    if not isinstance(first, Tensor) or len(first.shape) != 2:
        raise UnmappedError("distances of other tensors than (N, P, M)")
    one = shape.unsqueeze(b, first, 2)
    other: Any = shape.unsqueeze(b, second, 1) if isinstance(second, Tensor) else np.asarray(second)[..., None, :, :]
    y = general.binary(b, arithmetic.subtract, one, other if isinstance(other, Tensor) else _of_image(other, 4))
    if p == math.inf:
        return reduction.amax(b, arithmetic.abs(b, y), 3, False)
    return reduction.norm(b, y, p, 3, False)


def _of_image(array: Any, rank: int) -> Any:
    """Return constants without the axis of the batch."""
    if array.ndim == rank:
        if len(array) != 1:
            raise UnmappedError(f"constants of shape {array.shape}, of their own for each image")
        return array[0]
    return array


@operator("gather")
def _gather(b: Builder, a: Arguments) -> Tensor:
    if isinstance(a["index"], torch.Tensor):
        return _at_constant(b, a, a.array("index"))
    return ordering.pick(b, a.source, a.integer("dim"), a.tensor("index"))


@operator("take_along_dim")
def _take_along_dim(b: Builder, a: Arguments) -> Tensor:
    if a["dim"] is None:
        raise UnmappedError("values of the batch in one row")
    x, dim = a.source, a.integer("dim") % a.source.rank
    if isinstance(a["indices"], torch.Tensor):
        return _at_constant(b, a, a.array("indices"))
    indices = a.tensor("indices")
    if indices.rank != x.rank:
        raise UnmappedError(f"values of {x.shape} by indices of shape {indices.shape}")
    rest = [e if place != dim else -1 for place, e in enumerate(x.shape, 1)]
    return ordering.pick(b, x, dim, shape.expand(b, indices, rest))


def _at_constant(b: Builder, a: Arguments, indices: Any) -> Tensor:
    """Return values at constant indices along an axis, which are the same for each image."""
    x = a.source
    dim = a.integer("dim") % x.rank
    if dim == 0 or indices.ndim != x.rank or not (indices == indices[:1]).all():
        raise UnmappedError(f"values of {x.shape} by indices of shape {indices.shape}, of their own for each image")
    b.fix_unless_constant(x)
    extent = x.shape[dim - 1]
    if indices.size and not (-extent <= indices.min() and indices.max() < extent):
        raise InvalidModelError(f"{b.origin}: an index along axis {dim} is not one of the {extent}.")
    wanted = [int(e) for e in (*a.shape[1:dim], indices.shape[dim], *a.shape[dim + 1 :])]
    table = np.broadcast_to(indices[0] % extent, wanted)
    places = np.indices(wanted)
    places[dim - 1] = table
    # Axes behind `dim` along which the indices are equal, and whole, are moved together.
    axes = len(wanted)
    while axes > dim and wanted[axes - 1] == x.shape[axes - 1] and (table == table.take([0], axes - 1)).all():
        table = table.take([0], axes - 1)
        axes -= 1
    first = (slice(None),) * (axes) + (0,) * (len(wanted) - axes)
    flat = np.ravel_multi_index([one[first] for one in places[:axes]], x.shape[:axes])
    return scattering.take(b, x, flat, axes)


@operator("one_hot")
def _one_hot(b: Builder, a: Arguments) -> Tensor:
    x, count = a.source, a.integer("num_classes")
    if count < 1:
        raise UnmappedError("a number of classes that depends on values")
    numbers = np.arange(count, dtype=np.float32)
    return general.binary(b, elementwise.binary, shape.unsqueeze(b, x, x.rank), numbers, kind="eq")


@operator("softmax", "_softmax", "special_softmax")
def _softmax(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    return reduction.softmax(b, a.source, a.integer("dim"))


@operator("log_softmax", "_log_softmax", "special_log_softmax")
def _log_softmax(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    return reduction.log_softmax(b, a.source, a.integer("dim"))


@operator("linalg_vector_norm", "norm", "frobenius_norm")
def _norm(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    ord_ = next((a.optional_number(name) for name in ("ord", "p") if name in a), 2.0)
    return reduction.norm(b, a.source, 2.0 if ord_ is None else ord_, _dims(a), bool(a["keepdim"]))


def _variance(b: Builder, a: Arguments) -> Tensor:
    x, dims = a.source, _dims(a)
    if "correction" in a:
        correction = 1.0 if a["correction"] is None else a.number("correction")
    else:
        correction = 1.0 if a["unbiased"] else 0.0
    mean = reduction.mean(b, x, dims, True)
    if x.flat is None:
        distance = arithmetic.subtract(b, x, mean)
    else:
        distance = general.binary(b, arithmetic.subtract, x, mean)
    mean = reduction.mean(b, arithmetic.square(b, distance), dims, bool(a["keepdim"]))
    if correction == 0:
        return mean
    b.fix_unless_constant(x, "HW" if x.flat is not None else "".join(x.axis(dim) for dim in dims))
    count = math.prod(x.shape[dim % x.rank - 1] for dim in dims)
    if count <= correction:
        raise UnmappedError(f"a variance of {count} values with a correction of {correction}")
    return arithmetic.multiply(b, mean, count / (count - correction))


@operator("var")
def _var(b: Builder, a: Arguments) -> Tensor:
    return _variance(b, a)


@operator("std")
def _std(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.sqrt(b, _variance(b, a))


@operator("var_mean")
def _var_mean(b: Builder, a: Arguments) -> list[Tensor]:
    return [_variance(b, a), reduction.mean(b, a.source, _dims(a), bool(a["keepdim"]))]
