# SPDX-License-Identifier: Apache-2.0
"""ONNX operators with constant indices along several axes: GatherND, ScatterND, ScatterElements and Scatter.

Each image has the same indices. Those that count images are the image's own number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import scattering
from .extent import ImageNumber, extents, settled
from .node import Call, Value
from .table import operator

INDEX_LIMIT = 1 << 26  # max numbers of computed tables


def _alike(call: Call, array: NDArray[Any], what: str) -> NDArray[Any]:
    """Return the part of a constant for one image; it has an axis for the images, which are as many as the batch."""
    if not array.ndim or array.shape[0] != call.batch:
        raise UnmappedError(f"{what} of shape {array.shape} with a batch of {call.batch or 'any size'}")
    if not (array == array[:1]).all():
        raise UnmappedError(f"{what} of their own for each image of the batch")
    first: NDArray[Any] = array[0]
    return first


def _whole(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu" or array.ndim == 0:
        raise InvalidModelError(f"indices of type {array.dtype} and shape {array.shape}.")
    return array.astype(np.int64)


def _within(indices: NDArray[np.int64], extents: tuple[int, ...]) -> NDArray[np.int64]:
    """Return indices, along the last axis one for each of `extents`, that count from the first place of an axis."""
    limits = np.asarray(extents, np.int64)
    wrong = (indices < -limits) | (indices >= limits)
    if wrong.any():
        axis = int(np.argwhere(wrong)[0][-1])
        raise InvalidModelError(f"the index {int(indices[wrong][0])} of an axis of {extents[axis]}.")
    return np.where(indices < 0, indices + limits, indices)


def _places(indices: NDArray[np.int64], extents: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the places that indices mean, counted along their axes together."""
    found = _within(indices, extents)
    steps = np.array([math.prod(extents[i + 1 :]) for i in range(len(extents))], np.int64)
    return np.asarray((found * steps).sum(-1, dtype=np.int64))


def taken(builder: Builder, x: Tensor, indices: NDArray[Any]) -> Tensor:
    """Return values at constant places, with an index for each of the first axes behind the batch."""
    axes = indices.shape[-1]
    return scattering.take(builder, x, _places(_whole(indices), x.shape[:axes]), axes)


def _of_each_image(call: Call, rank: int) -> NDArray[np.int64]:
    """Return the indices of one image behind the batch, for indices (input 1) whose first one counts images."""
    given = call.value(1)
    if isinstance(given, np.ndarray) and given.dtype == object and given.ndim > 1 and given.shape[0] == 1:
        first = given[..., 0].ravel().tolist()
        if all(isinstance(n, ImageNumber) and (n.factor, n.offset) == (1, 0) for n in first):
            inner = given[0, ..., 1:]
            return _whole(settled(extents(inner.ravel()), call.builder.fix).reshape(inner.shape))
    found = _whole(call.array(1, "indices"))
    if not 1 <= found.shape[-1] <= rank:
        raise InvalidModelError(f"{found.shape[-1]} indices for {rank} axes.")
    numbers = found[..., 0]
    if found.ndim < 2 or found.shape[0] != call.batch:
        raise UnmappedError(f"indices of shape {found.shape} with a batch of {call.batch or 'any size'}")
    own = np.arange(found.shape[0]).reshape(-1, *(1,) * (numbers.ndim - 1))
    if not ((numbers == own) | (numbers == own - found.shape[0])).all():
        raise UnmappedError("indices of other images of the batch")
    return _alike(call, found[..., 1:], "indices")


@operator("GatherND")
def _gather_nd(call: Call) -> Value:
    x, lead = call.tensor(), call.integer("batch_dims", 0)
    if lead == 0:
        found = _of_each_image(call, x.rank)
    else:
        indices = call.array(1, "indices")
        if not 0 < lead < min(x.rank, max(indices.ndim, 1)):
            raise InvalidModelError(f"{call.name}: batch_dims {lead} for {x.rank} and {indices.ndim} axes.")
        found = _whole(_alike(call, indices, "indices"))
        shared = x.shape[: lead - 1]
        if found.shape[: lead - 1] != shared or lead + found.shape[-1] > x.rank:
            raise InvalidModelError(f"{call.name}: indices {indices.shape} of {x.shape}, batch_dims {lead}.")
        own = [
            np.broadcast_to(
                np.arange(e).reshape([-1 if i == axis else 1 for i in range(found.ndim - 1)]), found.shape[:-1]
            )
            for axis, e in enumerate(shared)
        ]
        found = np.concatenate([np.stack(own, -1), found], -1) if own else found
    axes = found.shape[-1]
    call.builder.fix_unless_constant(x)
    if axes == 0:
        raise UnmappedError("indices of images alone")
    return scattering.take(call.builder, x, _places(found, x.shape[:axes]), axes)


def _data(call: Call) -> tuple[Any, Any, tuple[int, ...]]:
    """Return data and updates, constants of one image each, and the shape of the data behind the batch."""
    operands: list[Any] = [call.value(0), call.value(2)]
    if any(value is None for value in operands):
        raise InvalidModelError(f"{call.name}: an input is missing.")
    x, updates = (
        v if isinstance(v, Tensor) else _alike(call, call.array(2 * i, "values"), "values")
        for i, v in enumerate(operands)
    )
    for value in (x, updates):
        if isinstance(value, Tensor):
            call.builder.fix_unless_constant(value)
    return x, updates, tuple(x.shape)


def _kind(call: Call) -> str:
    kind = call.text("reduction", "none")
    if kind not in ("none", *scattering.COMBINED):
        raise InvalidModelError(f'{call.name}: reduction "{kind}".')
    return kind


@operator("ScatterND")
def _scatter_nd(call: Call) -> Value:
    x, updates, shape = _data(call)
    found = _of_each_image(call, len(shape) + 1)
    axes = found.shape[-1]
    if tuple(updates.shape) != (*found.shape[:-1], *shape[axes:]):
        raise InvalidModelError(f"{call.name}: updates {updates.shape} for indices {found.shape} of {shape}.")
    if axes == 0:
        raise UnmappedError("updates of whole images")
    return scattering.put(call.builder, x, _places(found, shape[:axes]), updates, shape, axes, _kind(call))


@operator("ScatterElements", "Scatter")
def _scatter_elements(call: Call) -> Value:
    x, updates, extents = _data(call)
    rank, axis = len(extents) + 1, call.integer("axis", 0)
    if not -rank <= axis < rank:
        raise InvalidModelError(f"{call.name}: axis {axis} of {rank}.")
    if axis % rank == 0:
        raise UnmappedError("values of other images of the batch")
    place = axis % rank - 1
    indices = _whole(_alike(call, call.array(1, "indices"), "indices"))
    if indices.ndim != len(extents) or tuple(updates.shape) != indices.shape:
        raise InvalidModelError(f"{call.name}: indices {indices.shape} and updates {updates.shape} of {extents}.")
    if any(a > b for i, (a, b) in enumerate(zip(indices.shape, extents, strict=True)) if i != place):
        raise InvalidModelError(f"{call.name}: indices of shape {indices.shape} of {extents}.")
    # Axes behind that have the same indices at all places are moved together.
    axes = len(extents)
    while axes > place + 1 and indices.shape[-1] == extents[axes - 1] and (indices == indices[..., :1]).all():
        indices, axes = indices[..., 0], axes - 1
    if indices.size * axes > INDEX_LIMIT:
        raise UnmappedError(f"{indices.size * axes} indices, more than the maximum ({INDEX_LIMIT})")
    found = np.stack([indices if i == place else own for i, own in enumerate(np.indices(indices.shape))], -1)
    return scattering.put(call.builder, x, _places(found, extents[:axes]), updates, extents, axes, _kind(call))
