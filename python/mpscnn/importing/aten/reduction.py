# SPDX-License-Identifier: Apache-2.0
"""Reductions, softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..builder import Builder, Tensor, UnmappedError
from ..ops import arithmetic, elementwise, general, ordering, reduction, shape
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


@operator("gather")
def _gather(b: Builder, a: Arguments) -> Tensor:
    return ordering.pick(b, a.source, a.integer("dim"), a.tensor("index"))


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
