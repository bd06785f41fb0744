# SPDX-License-Identifier: Apache-2.0
"""Operators on tensors whose batch is not the first axis, or is merged with other axes.

Both are tensors with the batch first, and another order of axes: `lifted` calls an operator for these, with its axes
and shapes changed.
"""

from __future__ import annotations

from typing import Any

import torch

from .builder import Tensor, UnmappedError
from .ops import shape as shapes
from .torch_arguments import Arguments, Merged, Missing, Places, Turned

# Arguments that are axes.
_AXES = {"dim", "dims", "dim0", "dim1", "axis0", "axis1", "start_dim", "end_dim"}
# Operators for which an axis may be the one behind the last.
_INSERTS = {"unsqueeze", "stack"}
# Operators whose constants broadcast with the tensor.
_POINTWISE = {
    *("add", "div", "mul", "rsub", "sub", "maximum", "minimum", "pow", "masked_fill", "where", "fmod", "remainder"),
    *("eq", "ge", "gt", "le", "lt", "ne", "logical_and", "logical_or", "logical_xor"),
}


def is_moved(value: Any) -> bool:
    """Return whether the value, or one in a list, has its batch elsewhere."""
    if isinstance(value, (list, tuple)):
        return any(map(is_moved, value))
    return isinstance(value, (Merged, Turned))


class _Lifted(Arguments):
    """Arguments of an operator on tensors with the batch first; `place` of the batch, None if it is merged."""

    def __init__(self, given: Arguments, values: dict[str, Any], place: int | None, rank: int, name: str) -> None:
        self.given = given
        super().__init__(
            given.builder, given.node, values, given._batch, given._number, given._constant, given._computed
        )
        self.place, self.source_rank, self.operator = place, rank, name
        if "indices" in values and isinstance(values["indices"], (list, tuple)):
            self.values = values | {"indices": self._of_axes(values["indices"])}

    def _of_axes(self, indices: Any) -> list[Any]:
        """Return indices of the axes of the tensor with its batch in front: one for each axis, or None."""
        found: list[Any] = [None] * (self.source_rank + 1)
        for dim, index in enumerate(indices):
            if index is not None:
                found[self._moved(dim)] = index
        return found

    def _moved(self, dim: int) -> int:
        rank = self.source_rank + (self.operator in _INSERTS)
        if not -rank <= dim < rank:
            raise UnmappedError(f"axis {dim} is not one of the {rank} axes")
        dim %= rank
        if self.place is None:
            if dim == 0:
                raise UnmappedError("an operator along the batch taken together with other axes")
            return dim + 1
        if self.operator in _INSERTS:
            return dim + 1 if dim <= self.place else dim
        if dim == self.place:
            raise UnmappedError("an operator along the batch")
        return dim + 1 if dim < self.place else dim

    def integer(self, name: str) -> int:
        value = self.given.integer(name)
        return self._moved(value) if name in _AXES else value

    def integers(self, name: str) -> tuple[int, ...]:
        values = self.given.integers(name)
        return tuple(map(self._moved, values)) if name in _AXES else values

    def _in_front(self, extents: tuple[Any, ...], place: int | None) -> tuple[Any, ...]:
        if place is None:
            return (self.batch, int(extents[0]) // int(self.batch), *extents[1:])
        if len(extents) <= place:
            return extents
        return (extents[place], *extents[:place], *extents[place + 1 :])

    @property
    def shape(self) -> tuple[Any, ...]:
        return self._in_front(self.given.shape, self.place)

    def shape_of(self, name: str) -> tuple[Any, ...]:
        return self._in_front(self.given.shape_of(name), self.place)


def apply(function: Any, name: str, given: Arguments) -> Any:
    """Return the result of an operator, which is lifted if it does not take its arguments as they are."""
    values = dict(given.values)
    try:
        return function(given.builder, given)
    except UnmappedError:
        given.values = values  # operators may change them
        if not any(map(is_moved, values.values())):
            raise
    return lifted(function, name, given)


def lifted(function: Any, name: str, given: Arguments) -> Any:
    """Return the result of an operator some of whose arguments have their batch elsewhere."""
    found = [value for value in _flat(given.values.values()) if isinstance(value, (Merged, Turned))]
    first = found[0]
    place = None if isinstance(first, Merged) else first.place
    for value in found:
        if isinstance(value, Turned) != isinstance(first, Turned):
            raise UnmappedError("tensors with the batch at different places")
        if isinstance(value, Merged) and isinstance(first, Merged) and value.shape[0] != first.shape[0]:
            raise UnmappedError(f"{first.shape} and {value.shape}, the batch taken together with other axes")
        if isinstance(value, Merged) and isinstance(first, Merged) and value.is_inner != first.is_inner:
            raise UnmappedError("the batch taken together with axes before it, and with axes behind it")
        if isinstance(value, Turned) and value.place != place:
            raise UnmappedError("tensors with the batch at different places")
    if any(isinstance(value, (Tensor, Places)) for value in _flat(given.values.values())):
        raise UnmappedError("tensors with the batch at different places")
    values = {key: _in_front(value, given, first) for key, value in given.values.items()}
    rank = len(first.shape)
    if place and name in _POINTWISE:
        values = {key: _turned_constant(value, place, rank) for key, value in values.items()}
    if name in ("permute", "transpose", "swapaxes", "swapdims"):
        return _permuted(given, first, name, rank)
    arguments = _Lifted(given, values, place, rank, name)
    result = apply(function, name, arguments)

    def back(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [back(part) for part in value]
        if isinstance(value, Places):
            return Missing(value.why)
        if not isinstance(value, (Tensor, Merged)):
            return value
        if place is None:
            return first.with_(value) if isinstance(first, Merged) and isinstance(value, Tensor) else value
        after = len(value.shape) + isinstance(value, Tensor)
        return turned(value, _new_place(given, name, place, rank, after))

    return back(result)


def _flat(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += _flat(value) if isinstance(value, (list, tuple)) else [value]
    return found


def _in_front(value: Any, given: Arguments, first: Merged | Turned) -> Any:
    if isinstance(value, (list, tuple)):
        return [_in_front(part, given, first) for part in value]
    if isinstance(value, torch.Tensor) and isinstance(first, Merged):
        return _of_one_image(value, first, int(given.batch))
    if isinstance(value, Merged):
        return value.apart(given.builder)
    return value.tensor if isinstance(value, Turned) else value


def _turned_constant(value: Any, place: int, rank: int) -> Any:
    """Return a constant that broadcasts with a tensor of `rank` axes whose axis `place` becomes the first."""
    if not isinstance(value, torch.Tensor) or value.ndim <= rank - 1 - place:
        return value
    whole = value.reshape((1,) * (rank - value.ndim) + tuple(value.shape))
    return whole.movedim(place, 0)


def _of_one_image(constant: torch.Tensor, like: Merged, batch: int) -> torch.Tensor:
    """Return the part of a constant for one image, if it has the merged axis of `like` and repeats for each image."""
    if constant.ndim != len(like.shape) or len(constant) != like.shape[0] or len(constant) % batch:
        return constant
    count = len(constant) // batch
    if like.is_inner:
        parts = constant.reshape(count, batch, *constant.shape[1:]).transpose(0, 1)
    else:
        parts = constant.reshape(batch, count, *constant.shape[1:])
    return parts[:1] if bool((parts == parts[:1]).all()) else constant


def turned(tensor: Tensor | Merged, place: int) -> Tensor | Merged | Turned:
    """Return the tensor with its batch as axis `place`."""
    return Turned(tensor, place) if place else tensor


def _new_place(given: Arguments, name: str, place: int, before: int, after: int) -> int:
    """Return the batch's axis in the result of an operator that adds or removes axes."""
    if before == after:
        return place
    dims = given.values.get("dim")
    if dims is None:
        raise UnmappedError("axes removed around the batch")
    places: list[int] = [int(dim) for dim in (dims if isinstance(dims, (list, tuple)) else [dims])]
    if name in _INSERTS:
        return place + sum(dim % (before + 1) <= place for dim in places)
    return place - sum(dim % before < place for dim in places)


def _permuted(given: Arguments, x: Merged | Turned, name: str, rank: int) -> Any:
    if name == "permute":
        order = [dim % rank for dim in given.integers("dims")]
    else:
        one, other = ("axis0", "axis1") if "axis0" in given else ("dim0", "dim1")
        order = list(range(rank))
        first, second = given.integer(one) % rank, given.integer(other) % rank
        order[first], order[second] = order[second], order[first]
    if isinstance(x, Merged):
        rest = [dim for dim in order if dim]
        source = x.apart(given.builder)
        y = x.with_(shapes.permute(given.builder, source, [0, 1, *(dim + 1 for dim in rest)]))
        return turned(y, order.index(0))
    place = order.index(x.place)
    inside = [dim + 1 if dim < x.place else dim for dim in order if dim != x.place]
    if isinstance(x.tensor, Merged):
        source = x.tensor.apart(given.builder)
        y = x.tensor.with_(shapes.permute(given.builder, source, [0, 1, *(dim + 1 for dim in inside)]))
        return turned(y, place)
    return turned(shapes.permute(given.builder, x.tensor, [0, *inside]), place)
