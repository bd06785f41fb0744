# SPDX-License-Identifier: Apache-2.0
"""Constants of a program that depend on heights and widths: positions of pixels, as detectors decode their boxes with.

PyTorch computes such a constant for the size of the example only. `Positions` says how its values follow from the
places of pixels, for any size, and `images` computes it in the network.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .builder import Builder, Tensor, UnmappedError
from .ops import positions, shape
from .torch_arguments import Computed, Sized

FindImage = Callable[[Sequence[Any]], Tensor | None]


@dataclass(frozen=True)
class Axis:
    """An axis: of constant extent, or all places of `sides`, row by row: extents that depend on heights and widths."""

    extent: int
    sides: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Part:
    """A constant without concatenations. Its values are sums of terms: a factor of each side's place, and a number.

    Attributes
    ----------
    axes : tuple of Axis
    terms : array
        For each index of the axes of constant extent, in order: the factor of each side, of all axes in order, and the
        number.
    """

    axes: tuple[Axis, ...]
    terms: NDArray[np.float64]

    @property
    def sides(self) -> tuple[Any, ...]:
        """The sides of all axes, in order."""
        return tuple(side for axis in self.axes for side in axis.sides)

    def rank_before(self, place: int) -> int:
        """Return how many axes before `place` have a constant extent."""
        return sum(not axis.sides for axis in self.axes[:place])


@dataclass(frozen=True)
class Positions:
    """A constant: parts that are concatenated along an axis."""

    parts: tuple[Part, ...]
    dim: int = 0

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.parts[0].axes)


def of_program(name: str, arguments: dict[str, Any], result: Any) -> Any:
    """Return the Positions of an operator's result, a list of them, or None if they are not known.

    `arguments` are by name, with Positions for tensors that have them; `result` has the extents (one list for each
    result if there are several).
    """
    function = _OPERATORS.get(name)
    try:
        return None if function is None else function(arguments, result)
    except (UnmappedError, KeyError, TypeError, ValueError):
        return None


def images(b: Builder, constant: Positions, rank: int, find: FindImage) -> Tensor:
    """Return a constant as a tensor that broadcasts with one of `rank` axes, the batch first."""
    tensors = [_image(b, part, rank, find) for part in constant.parts]
    if len(tensors) == 1:
        return tensors[0]
    return shape.cat(b, tensors, constant.dim - constant.rank)


def _image(b: Builder, part: Part, rank: int, find: FindImage) -> Tensor:
    axes = list(part.axes)
    if len(axes) == rank:
        if axes[0].sides or axes[0].extent != 1:
            raise UnmappedError("positions for each image of the batch")
        axes = axes[1:]
    if len(axes) > rank - 1:
        raise UnmappedError("positions of more axes than the other tensor")
    constant = [axis for axis in axes if not axis.sides]
    pixels = [axis for axis in axes if axis.sides]
    sides = part.sides
    terms = part.terms.reshape(-1, len(sides) + 1)
    if len(constant) > 1 or not 1 <= len(pixels) <= 2:
        raise UnmappedError("positions along other axes than those of an image")
    like = find(sides)
    if like is None or len(sides) > 2:
        raise UnmappedError("positions of the pixels of no image")
    rows, columns = (terms[:, 0], terms[:, 1]) if len(sides) == 2 else (0 * terms[:, 0], 0 * terms[:, 0])
    if len(sides) == 1 and terms[:, 0].any():
        raise UnmappedError("positions along rows and columns that were taken together")
    y = positions.positions(b, like, np.stack([rows, columns, terms[:, -1]], 1))
    letters = iter("HW" if len(pixels) == 2 else "W")
    names = "".join("C" if not axis.sides else next(letters) for axis in axes)
    if len(pixels) == 1:
        y = shape.in_one_row(b, shape.flatten(b, y, 2))
    unused = [letter for letter in "CHW" if letter not in names]
    missing = "".join(unused[: rank - 1 - len(axes)])  # axes of extent 1 in front
    return replace(y, axes=f"N{missing}{names}", flat=None)


# ---- operators


def same(one: Any, other: Any) -> bool:
    """Return whether two extents are the same for all sizes."""
    import sympy  # type: ignore[import-untyped]

    first, second = (extent.expression if isinstance(extent, Computed) else extent for extent in (one, other))
    return bool(first == second or sympy.expand(first - second) == 0)


def _axis(extent: Any) -> Axis:
    if isinstance(extent, Sized):
        if extent.of_batch:
            raise UnmappedError("a constant that depends on the number of images")
        if extent.of_extents:
            return Axis(int(extent), (extent,))
    return Axis(int(extent))


def _arange(arguments: dict[str, Any], result: Any) -> Positions:
    if arguments.get("start", 0) != 0 or arguments.get("step", 1) != 1:
        raise UnmappedError("a range with another start or step")
    axis = _axis(result[0])
    if not axis.sides:
        raise UnmappedError("a range of constant extent")
    return Positions((Part((axis,), np.array([1.0, 0.0])),))


def _full(value: float | None) -> Callable[[dict[str, Any], Any], Positions]:
    def full(arguments: dict[str, Any], result: Any) -> Positions:
        axes = tuple(map(_axis, result))
        terms = np.zeros(
            [*(axis.extent for axis in axes if not axis.sides), sum(bool(axis.sides) for axis in axes) + 1]
        )
        terms[..., -1] = arguments["fill_value"] if value is None else value
        return Positions((Part(axes, terms),))

    return full


def _kept(arguments: dict[str, Any], result: Any) -> Positions:
    found = arguments["self"]
    if not isinstance(found, Positions):
        raise UnmappedError("a constant")
    return found


def _number(value: Any) -> float:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, (bool, int, float)) and not isinstance(value, Computed):
        return float(value)
    raise UnmappedError("another operand than a number")


def _scaled(factor: Callable[[float], float], shift: Callable[[float], float]) -> Callable[..., Positions]:
    """Return the function for an operator with a number n: factor(n) times the values, and shift(n)."""

    def scaled(arguments: dict[str, Any], result: Any) -> Positions:
        x, n = arguments["self"], arguments["other"]
        if not isinstance(x, Positions):
            if arguments["operator"] not in ("add", "mul") or arguments.get("alpha", 1) != 1:
                raise UnmappedError("a number first")
            x, n = n, x
        number = _number(n) * _number(arguments.get("alpha", 1))
        if arguments.get("rounding_mode") is not None or not math.isfinite(number):
            raise UnmappedError("rounded quotients")
        parts, x = [], _kept({"self": x}, result)
        if len(result) != x.rank:
            raise UnmappedError("a number of more axes")
        for part in x.parts:
            terms = part.terms * factor(number)
            terms[..., -1] += shift(number)
            parts.append(replace(part, terms=terms))
        return replace(x, parts=tuple(parts))

    return scaled


def _meshgrid(arguments: dict[str, Any], result: Any) -> list[Positions]:
    sources = [_only(x) for x in arguments["tensors"]]
    if len(sources) != 2 or any(len(x.axes) != 1 or len(x.sides) != 1 for x in sources):
        raise UnmappedError("another grid")
    (first, one), (second, other) = ((x.axes[0], x.terms) for x in sources)
    found = [
        Part((first, second), np.array([one[0], 0.0, one[1]])),
        Part((first, second), np.array([0.0, other[0], other[1]])),
    ]
    grid = [Positions((part,)) for part in found]
    if arguments.get("indexing", "ij") == "xy":
        return [_permuted(x, [1, 0]) for x in grid]
    return grid


def _only(x: Any) -> Part:
    if not isinstance(x, Positions) or len(x.parts) != 1:
        raise UnmappedError("a concatenation")
    return x.parts[0]


def _stack(arguments: dict[str, Any], result: Any) -> Positions:
    sources = [_only(x) for x in arguments["tensors"]]
    first = sources[0]
    if any(not _alike(x.axes, first.axes) for x in sources):
        raise UnmappedError("positions of different images")
    dim = int(arguments.get("dim", 0)) % (len(first.axes) + 1)
    axes = (*first.axes[:dim], Axis(len(sources)), *first.axes[dim:])
    return Positions((Part(axes, np.stack([x.terms for x in sources], first.rank_before(dim))),))


def _alike(one: Sequence[Axis], other: Sequence[Axis]) -> bool:
    return len(one) == len(other) and all(
        len(a.sides) == len(b.sides) and (all(map(same, a.sides, b.sides)) if a.sides else a.extent == b.extent)
        for a, b in zip(one, other, strict=True)
    )


def _cat(arguments: dict[str, Any], result: Any) -> Positions:
    parts = [_only(x) for x in arguments["tensors"]]
    first, dim = parts[0], int(arguments.get("dim", 0)) % len(parts[0].axes)
    for part in parts:
        rest, others = ([a for i, a in enumerate(x.axes) if i != dim] for x in (part, first))
        if not part.axes[dim].sides or not _alike(rest, others):
            raise UnmappedError("a concatenation along another axis")
    return Positions(tuple(parts), dim)


def _permuted(x: Positions, order: Sequence[int]) -> Positions:
    parts = []
    for part in x.parts:
        constant = [place for place, axis in enumerate(part.axes) if not axis.sides]
        ends = list(itertools.accumulate(len(axis.sides) for axis in part.axes))
        columns = [i for place in order for i in range(ends[place] - len(part.axes[place].sides), ends[place])]
        kept = [constant.index(place) for place in order if place in constant]
        terms = np.transpose(part.terms, [*kept, len(kept)])[..., [*columns, -1]]
        parts.append(Part(tuple(part.axes[place] for place in order), terms))
    return Positions(tuple(parts), list(order).index(x.dim))


def _permute(arguments: dict[str, Any], result: Any) -> Positions:
    x = _kept(arguments, result)
    return _permuted(x, [int(dim) % x.rank for dim in arguments["dims"]])


def _transpose(arguments: dict[str, Any], result: Any) -> Positions:
    x = _kept(arguments, result)
    order = list(range(x.rank))
    one, other = (int(arguments.get(name, place)) % x.rank for place, name in enumerate(("dim0", "dim1")))
    order[one], order[other] = other, one
    return _permuted(x, order)


def _unsqueeze(arguments: dict[str, Any], result: Any) -> Positions:
    x = _kept(arguments, result)
    dim = int(arguments["dim"]) % (x.rank + 1)
    parts = [
        Part((*part.axes[:dim], Axis(1), *part.axes[dim:]), np.expand_dims(part.terms, part.rank_before(dim)))
        for part in x.parts
    ]
    return Positions(tuple(parts), x.dim + (dim <= x.dim))


def _expand(arguments: dict[str, Any], result: Any) -> Positions:
    """Repeat for each image of the batch."""
    x = _kept(arguments, result)
    part = _only(x)
    axes = [Axis(1)] * (len(result) - len(part.axes)) + list(part.axes)
    for place, (axis, extent) in enumerate(zip(axes, result, strict=True)):
        is_batch = place == 0 and isinstance(extent, Computed) and extent.of_batch and axis == Axis(1)
        own: Any = _of(math.prod(side.expression for side in axis.sides)) if axis.sides else axis.extent
        if not is_batch and not same(own, extent):
            raise UnmappedError("other repetitions than for the images")
    terms = part.terms.reshape([*(axis.extent for axis in axes if not axis.sides), part.terms.shape[-1]])
    return Positions((Part(tuple(axes), terms),))


def _reshape(arguments: dict[str, Any], result: Any) -> Positions:
    """Add and remove axes of extent 1, and take neighbouring axes of pixels together."""
    x = _kept(arguments, result)
    part, axes = _only(x), []
    left = [axis for axis in part.axes if axis.sides or axis.extent != 1]
    for extent in result:
        if not (isinstance(extent, Sized) and extent.of_extents):
            if int(extent) == 1:
                axes.append(Axis(1))
                continue
            axis = left.pop(0)
            if axis.sides or axis.extent != int(extent):
                raise UnmappedError("axes taken together or apart")
            axes.append(axis)
            continue
        sides: tuple[Any, ...] = ()
        whole = 1
        while left and left[0].sides and not (sides and same(_of(whole), extent)):
            axis = left.pop(0)
            sides += axis.sides
            for side in axis.sides:
                whole = whole * side.expression
        if not sides or not same(_of(whole), extent):
            raise UnmappedError("axes taken together or apart")
        axes.append(Axis(int(extent), sides))
    if left:
        raise UnmappedError("axes taken together or apart")
    terms = part.terms.reshape([*(axis.extent for axis in axes if not axis.sides), part.terms.shape[-1]])
    return Positions((Part(tuple(axes), terms),))


def _of(expression: Any) -> Any:
    return Sized.of(0, expression, False, True)


_OPERATORS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "arange": _arange,
    "full": _full(None),
    "new_full": _full(None),
    "zeros": _full(0.0),
    "new_zeros": _full(0.0),
    "ones": _full(1.0),
    "new_ones": _full(1.0),
    "add": _scaled(lambda n: 1.0, lambda n: n),
    "sub": _scaled(lambda n: 1.0, lambda n: -n),
    "mul": _scaled(lambda n: n, lambda n: 0.0),
    "div": _scaled(lambda n: 1 / n, lambda n: 0.0),
    "meshgrid": _meshgrid,
    "stack": _stack,
    "cat": _cat,
    "permute": _permute,
    "transpose": _transpose,
    "t": _transpose,
    "unsqueeze": _unsqueeze,
    "expand": _expand,
    **dict.fromkeys(("view", "reshape", "squeeze", "flatten"), _reshape),
    **dict.fromkeys(("to", "_to_copy", "type_as", "clone", "contiguous", "detach", "alias", "lift_fresh_copy"), _kept),
}
