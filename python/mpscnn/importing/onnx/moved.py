# SPDX-License-Identifier: Apache-2.0
"""Operators on tensors whose batch is not the first axis, or is taken together with other axes, as windows of images.

They are the operators of tensors with the batch first, with other axes and shapes: `apply` makes the call of these.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Tensor, UnmappedError
from ..ops import shape
from . import indexing
from .extent import BATCH, Extent, ImageNumber, extents, settled
from .node import Call, Moved
from .table import OPERATORS

# Operators of each value, and of several that broadcast.
POINTWISE = frozenset(
    {
        *("Abs", "Add", "Cast", "Clip", "Div", "Dropout", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish"),
        *("Identity", "LeakyRelu", "Log", "Max", "Min", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Sigmoid"),
        *("Softplus", "Sqrt", "Sub", "Sum", "Tanh", "Where"),
    }
)
# Operators with an attribute "axis", with its default.
ALONG = {"Concat": None, "Gather": 0, "LayerNormalization": -1, "LogSoftmax": -1, "Softmax": -1, "Split": 0}
# Operators with the axes in an attribute or in the input of this index.
OVER = {"ReduceL2": 1, "ReduceMax": 1, "ReduceMean": 1, "ReduceMin": 1, "ReduceSum": 1}


def multiple_of_batch(item: Any) -> int:
    """Return how many times the batch an extent of a shape is, 0 if it is no multiple."""
    if not isinstance(item, Extent):
        return 0
    ratio = item.is_multiple_of(BATCH)
    return int(ratio) if isinstance(ratio, Fraction) and ratio.denominator == 1 else 0


def merged(call: Call, x: Tensor, target: NDArray[Any]) -> Any:
    """Return the result of a Reshape that takes the batch together with other axes; None if it does not."""
    items = list(target.ravel())
    if not items:
        return None
    count, rest = multiple_of_batch(items[0]), items[1:]
    if count < 2 and (isinstance(items[0], Extent) or items[0] != -1):
        return None
    if any(isinstance(item, Extent) and item.value is None for item in rest):
        return None
    own: list[Any] = [BATCH, *x.shape]
    zeros = bool(call.integer("allowzero", 0))
    numbers = [
        int(own[i] if not zeros and item == 0 and i < len(own) else item)
        for i, item in enumerate(settled(extents(rest), call.builder.fix), 1)
    ]
    known = math.prod(n for n in numbers if n != -1)
    if count < 2:  # the first extent is inferred
        if known < 1 or -1 in numbers or x.size % known or x.size == known:
            return None
        count = x.size // known
    inferred = -1 in numbers
    if known < 1 or numbers.count(-1) > 1 or (x.size % (count * known) if inferred else x.size != count * known):
        raise InvalidModelError(f"{call.name} (Reshape): {x.shape} has {x.size} values, not {[count, *numbers]}.")
    call.builder.fix_unless_constant(x)
    numbers = [x.size // (count * known) if n == -1 else n for n in numbers]
    return Moved(shape.reshape(call.builder, x, [count, *numbers]), 0, True)


def transposed(call: Call, x: Tensor, order: list[int]) -> Any:
    """Return a Transpose that moves the batch."""
    inner = [axis for axis in order if axis]
    y = x if inner == sorted(inner) else shape.permute(call.builder, x, [0, *inner])
    return Moved(y, order.index(0), False)


def _like(x: Moved, tensor: Tensor, place: int) -> Any:
    """Return a result whose batch is taken together with the same axis, if any, as that of `x`."""
    return replace(x, tensor=tensor, place=place) if place or x.merged else tensor


class _Lifted:
    """Places of the model's axes in the tensors with the batch first."""

    def __init__(self, call: Call) -> None:
        values: list[Any] = list(call.values)
        found: list[Moved] = [value for value in values if isinstance(value, Moved)]
        first = found[0]
        self.call, self.first, self.rank = call, first, first.rank
        self.front = 1 + first.merged
        for value in values:
            if isinstance(value, Tensor):
                raise UnmappedError("tensors with the batch at different places")
        for value in found:
            kinds = [(x.place, x.merged, x.behind, x.images) for x in (value, first)]
            if kinds[0] != kinds[1]:
                raise UnmappedError("tensors with the batch at different places")

    def axis(self, axis: int, rank: int | None = None) -> int:
        rank = self.rank if rank is None else rank
        if not -rank <= axis < rank:
            raise InvalidModelError(f"axis {axis} of {rank}.")
        axis %= rank
        if axis == self.first.place:
            raise UnmappedError(
                "an operator along the batch, which is not the first axis or taken together with others"
            )
        return axis + self.front - (axis > self.first.place)

    def constant(self, array: NDArray[Any], is_repeated: bool = False) -> NDArray[Any]:
        """Return a constant that broadcasts with the tensors as it does with the model's.

        `is_repeated`: the model has its first axis once for each image.
        """
        place = self.first.place
        if array.ndim <= self.rank - 1 - place or array.size == 1:
            return array.reshape(()) if array.size == 1 else array
        whole: NDArray[Any] = array.reshape((1,) * (self.rank - array.ndim) + array.shape)
        is_one = is_repeated or self.call.batch == 1
        if is_one and place == 0 and not self.first.behind and whole.shape[0] == self.first.images > 1:
            return whole[None]
        if whole.ndim != self.rank or whole.shape[place] != 1:
            raise UnmappedError(f"a constant of shape {array.shape} with values of its own for each image of the batch")
        whole = np.moveaxis(whole, place, 0)
        return whole[:, None] if self.first.merged else whole

    def shape(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the shape of a result of as many axes, with the batch first."""
        items = list(array.ravel())
        if len(items) != self.rank:
            raise UnmappedError(f"a shape of {len(items)} axes for a tensor of {self.rank}")
        item = items.pop(self.first.place)
        count = multiple_of_batch(item) or (1 if not isinstance(item, Extent) and item == 1 else 0)
        if count not in (1, self.first.images):
            raise UnmappedError("the batch repeated")
        return extents([BATCH, *([count] if self.first.merged else []), *items])

    def run(self, operator: str, values: list[Any], **changed: Any) -> Any:
        same = operator == self.call.operator
        other = self.call.with_values(values) if same else self.call.of_floats(operator, values)
        other.batch = None
        for name, value in changed.items():
            other = other.with_attribute(name, value)
        return OPERATORS[operator](other)

    def back(self, result: Any, place: int | None = None) -> Any:
        if isinstance(result, list):
            return [self.back(each, place) for each in result]
        assert isinstance(result, Tensor)
        return _like(self.first, result, self.first.place if place is None else place)


def apply(call: Call) -> Any:
    """Return the result of an operator some of whose inputs are `Moved`."""
    lifted, operator, first = _Lifted(call), call.operator, call.any_value(0)
    given: list[Any] = list(call.values)
    if operator == "Shape":
        assert isinstance(first, Moved)
        own = list(call.shape_of(first.tensor))
        batch = BATCH * first.images if first.merged else BATCH
        own = own[lifted.front :]
        return call.shape_slice([*own[: first.place], batch, *own[first.place :]])
    values = [value.tensor if isinstance(value, Moved) else value for value in given]
    rows = 1 if len(values) > 1 and isinstance(values[1], np.ndarray) and values[1].ndim == 2 else 2
    if (
        operator in POINTWISE
        or operator == "Einsum"
        or (operator == "MatMul" and lifted.first.place < lifted.rank - rows)
    ):
        values = [
            lifted.constant(settled(v, call.builder.fix), is_repeated)
            if isinstance(v, np.ndarray) and (operator != "MatMul" or v.ndim > 2)
            else v
            for v, is_repeated in zip(values, call.repeated or [False] * len(values), strict=True)
        ]
        if operator != "Clip" and operator in POINTWISE:
            ranks = {v.rank for v in values if isinstance(v, Tensor)}
            if len(ranks) > 1:
                raise UnmappedError("tensors of several ranks with the batch at another place")
        return lifted.back(lifted.run(operator, values))
    if operator == "Concat" and not all(isinstance(v, Tensor) for v in values):
        raise UnmappedError("constants beside tensors whose batch is at another place")
    if not isinstance(first, Moved):
        raise UnmappedError("a constant beside a tensor whose batch is at another place")
    if operator == "Reshape" and isinstance(given[1], np.ndarray):
        target: Any = values[1]
        if not call.integer("allowzero", 0) and any(not isinstance(i, Extent) and i == 0 for i in target.ravel()):
            raise UnmappedError("a shape with extents of a tensor whose batch is taken together with other axes")
        if first.place == 0 and not first.behind:
            return lifted.run(operator, values)
        return _reshaped(call, first, list(target.ravel()))
    if operator == "BatchNormalization" and lifted.first.place == 0:
        return _normalized(call, lifted)
    if operator == "Gather" and first.merged and call.integer("axis", 0) in (0, -first.rank) and not first.place:
        return _gathered(call, lifted)
    if operator == "GatherND" and not call.integer("batch_dims", 0):
        return _gathered_along_several(call, first)
    if operator == "Pad":
        return _padded(call, lifted)
    if operator == "Gemm" and first.rank == 2 and first.place == 0:
        return _linear(call, lifted)
    if operator in ("Squeeze", "Unsqueeze"):
        axes = call.numbers(1, "axes", "axes")
        if axes is not None:
            return (_unsqueezed if operator == "Unsqueeze" else _squeezed)(call, lifted, first, axes)
    if operator == "Slice":
        return _sliced(call, lifted, first)
    if operator == "Transpose":
        return _permuted(call, first, call.integers("perm", list(range(first.rank))[::-1]))
    if operator == "Expand" and isinstance(values[1], np.ndarray):
        return lifted.back(lifted.run(operator, [values[0], lifted.shape(values[1])]))
    if operator in ALONG and (operator not in ("Softmax", "LogSoftmax") or call.opset >= 13):
        default = ALONG[operator]
        axis = call.integer("axis") if default is None else call.integer("axis", default)
        if operator == "LayerNormalization" and axis % first.rank <= first.place:
            raise UnmappedError("normalization over the batch")
        place = first.place
        if operator == "Gather":
            indices = call.array(1, "indices")
            place += (indices.ndim - 1) * (axis % first.rank < place)
        return lifted.back(lifted.run(operator, values, axis=lifted.axis(axis)), place)
    if operator in OVER and call.integer("keepdims", 1):
        axes = call.numbers(OVER[operator], "axes", "axes")
        if axes:
            places = [lifted.axis(axis) for axis in axes]
            if call.has("axes"):
                return lifted.back(lifted.run(operator, values, axes=places))
            return lifted.back(lifted.run(operator, [values[0], np.array(places, np.int64)]))
    raise UnmappedError("a tensor whose batch is not the first axis, or taken together with other axes")


def _sliced(call: Call, lifted: _Lifted, x: Moved) -> Any:
    """Return a part along other axes than the batch's."""
    starts, stops, axes, steps = call.slices(x.rank, call.values[1:])
    parts = [
        part
        for part in zip(starts, stops, axes, steps, strict=True)
        if not (part[2] == x.place and part[0] == 0 and part[3] == 1 and part[1] >= 2**31 - 1)  # the whole batch
    ]
    numbers = [[part[i] for part in parts] for i in range(4)]
    numbers[2] = [lifted.axis(axis) for axis in numbers[2]]
    if not parts:
        return x
    if call.opset < 10:
        return lifted.back(lifted.run("Slice", [x.tensor], starts=numbers[0], ends=numbers[1], axes=numbers[2]))
    return lifted.back(lifted.run("Slice", [x.tensor, *(np.array(row, np.int64) for row in numbers)]))


def _gathered(call: Call, lifted: _Lifted) -> Any:
    """Return values of each image at constant places of its own part of an axis, as of a strided view of all images."""
    x, indices = lifted.first, call.value(1)
    refused = UnmappedError("values of other images of the batch, or at places that are computed")
    if not isinstance(indices, np.ndarray) or not indices.ndim or x.behind:
        raise refused
    if indices.dtype == object:
        numbers = indices.ravel().tolist()
        if indices.shape[0] != 1 or not all(isinstance(n, ImageNumber) and n.factor == x.images for n in numbers):
            raise refused
        places = np.array([n.offset for n in numbers], np.int64).reshape(indices.shape[1:])
    else:
        if indices.dtype.kind not in "iu" or call.batch is None or indices.shape[0] != call.batch:
            raise refused
        first = np.arange(call.batch).reshape(-1, *(1,) * (indices.ndim - 1)) * x.images
        own = indices.astype(np.int64) - first
        if not (own == own[:1]).all():
            raise refused
        places = own[0]
    if places.size and not 0 <= places.min() <= places.max() < x.images:
        raise refused
    return lifted.run("Gather", [x.tensor, places], axis=1)


def _gathered_along_several(call: Call, x: Moved) -> Any:
    """Return values at constant places along the axes in front of the batch."""
    indices = call.array(1, "indices")
    axes = indices.shape[-1] if indices.ndim > 1 else 0
    if not 0 < axes <= x.place or x.merged:
        raise UnmappedError("indices of images, or of axes behind that of the batch, which is not the first")
    call.builder.fix_unless_constant(x.tensor)
    y = indexing.taken(call.builder, x.tensor, indices)
    return replace(x, tensor=y, place=x.place - axes + indices.ndim - 1)


def _padded(call: Call, lifted: _Lifted) -> Any:
    """Return a padding along other axes than the batch's."""
    x = lifted.first
    pads = call.numbers(1, "pads", "pads")
    axes = call.numbers(3, None, "axes") if call.opset >= 18 else None
    axes = list(range(x.rank)) if axes is None else axes
    if pads is None or len(pads) != 2 * len(axes):
        raise InvalidModelError(f"{call.name} (Pad): pads {pads} for axes {axes} of {x.rank}.")
    sides = [0] * (2 * x.tensor.rank)
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        if before or after:
            place = lifted.axis(axis)
            sides[place], sides[place + x.tensor.rank] = before, after
    if not any(sides):
        return x
    if call.has("pads"):
        return lifted.back(lifted.run("Pad", [x.tensor, *call.values[1:]], pads=sides))
    value = call.value(2)
    return lifted.back(lifted.run("Pad", [x.tensor, np.array(sides, np.int64), value]))


def _permuted(call: Call, x: Moved, order: list[int]) -> Any:
    if sorted(order) != list(range(x.rank)):
        raise InvalidModelError(f"{call.name} (Transpose): perm {order} of {x.rank} axes.")
    front = 1 + x.merged
    inner = [axis + front - (axis > x.place) for axis in order if axis != x.place]
    y = x.tensor
    if inner != sorted(inner):
        y = shape.permute(call.builder, y, [*range(front), *inner])
    return _like(x, y, order.index(x.place))


def _numbers(call: Call, items: list[Any], size: int) -> list[int]:
    """Return the extents of a shape behind the batch, of which one may be inferred."""
    if any(isinstance(item, Extent) and item.value is None for item in items):
        raise UnmappedError("the batch taken together with other axes")
    found = [int(item) for item in settled(extents(items), call.builder.fix)]
    known = math.prod(n for n in found if n != -1)
    if found.count(-1) > 1 or known < 1 or (size % known if -1 in found else size != known):
        raise InvalidModelError(f"{call.name} (Reshape): {size} values of an image as {found}.")
    return [size // known if n == -1 else n for n in found]


def _reshaped(call: Call, x: Moved, items: list[Any]) -> Any:
    """Return a Reshape of a tensor (a, batch, ...), or (a * batch, ...) of one: the first axis stays."""
    refused = UnmappedError("the axis of the batch taken together with others, or apart")
    is_second = x.place == 1 and not x.merged
    if not (is_second or (x.place == 0 and x.behind)) or len(items) < 2:
        raise refused
    b, t, count = call.builder, x.tensor, x.tensor.shape[0]
    b.fix_unless_constant(t)
    parts = multiple_of_batch(items[1])
    if parts:
        inside = _numbers(call, [items[0], parts, *items[2:]], t.size)
        if inside[0] != count:
            raise refused
        if parts == 1:
            return Moved(shape.reshape(b, t, [count, *inside[2:]]), 1, False)
        if not is_second:
            raise refused
        y = shape.reshape(b, t, inside)
        return Moved(shape.permute(b, y, [0, 2, 1, *range(3, len(inside) + 1)]), 1, True)
    if multiple_of_batch(items[0]) != count:
        raise refused
    return Moved(shape.reshape(b, t, _numbers(call, [count, *items[1:]], t.size)), 0, True, True)


def _linear(call: Call, lifted: _Lifted) -> Any:
    """Return a Gemm with constant weights of tensors that have another axis behind the batch here."""
    weight, bias = call.weights(1, "weights"), call.array(2, "a bias", None)
    if call.integer("transA", 0) or call.real("alpha", 1.0) != 1 or call.real("beta", 1.0) != 1 or weight.ndim != 2:
        raise UnmappedError("a product whose batch is taken together with other axes, with alpha, beta or transA")
    y = lifted.run("MatMul", [lifted.first.tensor, weight.T if call.integer("transB", 0) else weight])
    return lifted.back(y if bias is None else lifted.run("Add", [y, lifted.constant(bias)]))


def _normalized(call: Call, lifted: _Lifted) -> Any:
    """Return a batch normalization with constant statistics, as a product and a sum for each channel."""
    x = lifted.first.tensor
    factor, offset = normalization_of(call, x.shape[lifted.axis(1) - 1] if lifted.rank > 1 else 0, lifted.rank)
    return lifted.back(lifted.run("Add", [lifted.run("Mul", [x, factor]), offset]))


def normalization_of(call: Call, channels: int, rank: int) -> list[NDArray[np.float32]]:
    """Return factors and offsets of a batch normalization, for tensors of `rank` axes."""
    if call.integer("training_mode", 0) or not call.integer("spatial", 1) or call.opset < 7:
        raise UnmappedError("batch normalization in training, or of an opset before 7, of a batch with other axes")
    call.only_first_output()
    weight, bias, mean, variance = (
        call.weights(i, what).astype(np.float64) for i, what in enumerate(("scales", "a bias", "means", "variances"), 1)
    )
    if any(array.shape != (channels,) for array in (weight, bias, mean, variance)):
        raise InvalidModelError(
            f"{call.name} (BatchNormalization): statistics of {mean.shape} for {channels} channels."
        )
    factor = weight / np.sqrt(variance + call.real("epsilon", 1e-5))
    return [array.astype(np.float32).reshape(-1, *(1,) * (rank - 2)) for array in (factor, bias - mean * factor)]


def _unsqueezed(call: Call, lifted: _Lifted, x: Moved, axes: list[int]) -> Any:
    rank = x.rank + len(axes)
    places = sorted(axis % rank for axis in axes)
    place = [axis for axis in range(rank) if axis not in places][x.place]
    y = x.tensor
    for axis in places:
        y = shape.unsqueeze(call.builder, y, axis + lifted.front - (axis > place))
    return _like(x, y, place)


def _squeezed(call: Call, lifted: _Lifted, x: Moved, axes: list[int]) -> Any:
    places = sorted(lifted.axis(axis) for axis in axes)
    if any(x.tensor.shape[axis - 1] != 1 for axis in places):
        raise InvalidModelError(f"{call.name}: axes {axes} are not all 1.")
    place = x.place - sum(axis % x.rank < x.place for axis in axes)
    return _like(x, shape.squeeze(call.builder, x.tensor, places), place)
