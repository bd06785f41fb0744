# SPDX-License-Identifier: Apache-2.0
"""Operators of models for one image, on tensors of any axes: each image of a batch is computed as the model's one.

Exporters that write the number of images as a constant take the axis of the batch, 1, together with others, and apart
from them, in ways that do not tell it from others. Here all axes of the model are axes behind the batch.
"""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import einsum, general, shape
from . import moved
from .extent import extents, settled
from .node import Alone, Call, Moved
from .table import OPERATORS

# Operators of each value, and of several that broadcast.
POINTWISE = moved.POINTWISE | {
    *("And", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mean", "Mish", "Mod"),
    *("Not", "Or", "Round", "Selu", "Sign", "Softsign", "Sqrt", "Swish", "Xor"),
}
# Operators with an attribute "axis", with its default.
ALONG = moved.ALONG | {"ArgMax": 0, "ArgMin": 0}
SOFTMAX = ("Softmax", "LogSoftmax")
REDUCTIONS = frozenset({"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"})


def tensor_of(builder: Builder, value: Any) -> Tensor:
    """Return a computed value as a tensor that has all axes of the model behind the batch."""
    if isinstance(value, Alone):
        return value.tensor
    x: Tensor = value.tensor if isinstance(value, Moved) else value
    builder.fix_unless_constant(x)
    if not isinstance(value, Moved):
        return shape.reshape(builder, x, (1, *x.shape))
    if value.merged and value.place:
        place = value.place
        x = shape.permute(builder, x, [0, *range(2, place + 2), 1, *range(place + 2, x.rank)])
    inner = list(value.inner)
    return shape.reshape(builder, x, [*inner[: value.place], value.images, *inner[value.place :]])


def result(builder: Builder, y: Any) -> Any:
    """Return a result, whose first axis is that of the batch if it is 1."""
    if isinstance(y, list):
        return [result(builder, each) for each in y]
    if y.rank > 2 and y.shape[0] == 1:
        return shape.reshape(builder, y, y.shape[1:])
    return Alone(y)


def apply(call: Call) -> Any:
    """Return the result of an operator, for a model whose batch is 1; UnmappedError if it has no form here."""
    builder, operator = call.builder, call.operator
    values: list[Any] = [
        tensor_of(builder, v) if isinstance(v, (Tensor, Moved, Alone)) else v for v in list(call.values)
    ]
    found = _computed(call, operator, values)
    return found if isinstance(found, np.ndarray) else result(builder, found)


def _computed(call: Call, operator: str, values: list[Any]) -> Any:
    x, given = values[0], values[1:]
    if operator in POINTWISE or operator == "MatMul":
        return _run(call, operator, _of_one_rank(call, operator, values))
    if operator == "Einsum":
        return _einsum(call, values)
    if operator == "BatchNormalization" and x.rank > 2:
        factor, offset = moved.normalization_of(call, x.shape[1], x.rank - 1)
        return _run(call, "Add", [_run(call, "Mul", [x, factor]), offset])
    if operator == "Gemm":
        return _gemm(call, values)
    if operator == "Concat":
        return _concat(call, values)
    if not isinstance(x, Tensor):
        raise UnmappedError("constants in front of computed values")
    rank = x.rank - 1
    if operator == "Shape":
        return call.shape_slice(extents(x.shape))
    if operator == "Reshape":
        return shape.reshape(call.builder, x, _target(call, x, given[0]))
    if operator == "Flatten":
        axis = call.integer("axis", 1)
        axis = axis + rank if axis < 0 else axis
        return shape.reshape(call.builder, x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])
    if operator == "Transpose":
        order = call.integers("perm", list(range(rank))[::-1])
        return shape.permute(call.builder, x, [0, *(axis % rank + 1 for axis in order)])
    if operator in ("Squeeze", "Unsqueeze"):
        axes = call.numbers(1, "axes", "axes")
        if axes is None:
            raise UnmappedError("axes of extent 1 that are not named, of a model for one image")
        return (_squeezed if operator == "Squeeze" else _unsqueezed)(call, x, axes)
    if operator == "Slice":
        starts, stops, axes, steps = call.slices(rank, given)
        numbers = [np.array(row, np.int64) for row in (starts, stops, [axis + 1 for axis in axes], steps)]
        return _run(call, operator, [x, *numbers]) if call.opset >= 10 else _refuse(operator)
    if operator == "Expand" and isinstance(given[0], np.ndarray):
        target = [int(e) for e in settled(given[0], call.builder.fix).ravel()]
        if len(target) > rank:
            x = shape.reshape(call.builder, x, (*(1,) * (len(target) - rank), *x.shape))
        return _run(call, operator, [x, np.array([1] * (x.rank - len(target)) + target, np.int64)])
    if operator == "Pad":
        return _padded(call, x)
    if operator in ALONG:
        default = ALONG[operator]
        axis = call.integer("axis", 1 if operator in SOFTMAX and call.opset < 13 else default or 0)
        return _run(call, operator, values, axis=axis % rank + 1)
    if operator in REDUCTIONS:
        axes = call.numbers(1, "axes", "axes") or list(range(rank))
        places = [axis % rank + 1 for axis in axes]
        if call.has("axes") or len(call.values) < 2:
            return _run(call, operator, [x], axes=places)
        return _run(call, operator, [x, np.array(places, np.int64)])
    return _refuse(operator)


def _refuse(operator: str) -> Any:
    raise UnmappedError(f"{operator} of a tensor whose first axis is not that of the batch")


def _run(call: Call, operator: str, values: list[Any], **changed: Any) -> Any:
    other = call.with_values(values) if operator == call.operator else call.of_floats(operator, values)
    other.batch = None
    for name, value in changed.items():
        other = other.with_attribute(name, value)
    return OPERATORS[operator](other)


def _of_one_rank(call: Call, operator: str, values: list[Any]) -> list[Any]:
    """Return the operands with as many axes, which broadcast."""
    if operator == "Clip":
        return values
    ranks = [v.rank - 1 if isinstance(v, Tensor) else np.ndim(v) for v in values if v is not None]
    if operator == "MatMul" and min(ranks) < 2:
        raise UnmappedError("a product with a vector, in a model for one image")
    rank = max(ranks)
    return [
        shape.reshape(call.builder, v, (*(1,) * (rank + 1 - v.rank), *v.shape))
        if isinstance(v, Tensor) and v.rank <= rank
        else v
        for v in values
    ]


def _target(call: Call, x: Tensor, target: Any) -> list[int]:
    if not isinstance(target, np.ndarray):
        raise UnmappedError("a shape that depends on values of an input")
    items = [moved.multiple_of_batch(item) or item for item in target.ravel()]  # the batch is 1
    numbers = [int(e) for e in settled(extents(items), call.builder.fix)]
    if not call.integer("allowzero", 0):
        if any(e == 0 and i >= len(x.shape) for i, e in enumerate(numbers)):
            raise InvalidModelError(f"{call.name} (Reshape): 0 at an axis that {x.shape} has not.")
        numbers = [x.shape[i] if e == 0 else e for i, e in enumerate(numbers)]
    return numbers


def _squeezed(call: Call, x: Tensor, axes: list[int]) -> Tensor:
    gone = {axis % (x.rank - 1) for axis in axes}
    if any(x.shape[axis] != 1 for axis in gone):
        raise InvalidModelError(f"{call.name}: axes {axes} of {x.shape} are not all 1.")
    return shape.reshape(call.builder, x, [e for axis, e in enumerate(x.shape) if axis not in gone] or [1])


def _unsqueezed(call: Call, x: Tensor, axes: list[int]) -> Tensor:
    rank = x.rank - 1 + len(axes)
    new, rest = {axis % rank for axis in axes}, iter(x.shape)
    return shape.reshape(call.builder, x, [1 if axis in new else next(rest) for axis in range(rank)])


def _padded(call: Call, x: Tensor) -> Any:
    rank = x.rank - 1
    pads = call.numbers(1, "pads", "pads")
    axes = call.numbers(3, None, "axes") if call.opset >= 18 else None
    axes = list(range(rank)) if axes is None else axes
    if pads is None or len(pads) != 2 * len(axes):
        raise InvalidModelError(f"{call.name} (Pad): pads {pads} for axes {axes} of {rank}.")
    sides = [0] * (2 * x.rank)
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        sides[axis % rank + 1], sides[axis % rank + 1 + x.rank] = before, after
    if not any(sides):
        return x
    if call.has("pads"):
        return _run(call, "Pad", [x], pads=sides)
    return _run(call, "Pad", [x, np.array(sides, np.int64), call.value(2)])


def _concat(call: Call, values: list[Any]) -> Tensor:
    tensors = [v for v in values if isinstance(v, Tensor)]
    rank, axis = tensors[0].rank - 1, call.integer("axis")
    operands = [v if isinstance(v, Tensor) else general.constant(call.builder, tensors[0], _floats(v)) for v in values]
    return shape.cat(call.builder, operands, axis % rank + 1)


def _floats(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(array, np.float32)


def _gemm(call: Call, values: list[Any]) -> Any:
    """Return alpha * a @ b + beta * c, of matrices of each image."""
    a, b = (
        _turned(call, value) if call.integer(name, 0) else value
        for value, name in zip(values[:2], ("transA", "transB"), strict=True)
    )
    y = _run(call, "MatMul", [a, b])
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    y = y if alpha == 1 else _run(call, "Mul", [y, np.float32(alpha)])
    if len(values) < 3 or values[2] is None:
        return y
    c = values[2]
    if beta != 1:
        c = _run(call, "Mul", [c, np.float32(beta)]) if isinstance(c, Tensor) else c * np.float32(beta)
    return _run(call, "Add", _of_one_rank(call, "Add", [y, c]))


def _einsum(call: Call, values: list[Any]) -> Tensor:
    """Return a sum of products, with a letter more for the images in front of those of each tensor."""
    terms, arrow, y = call.text("equation").replace(" ", "").partition("->")
    letters = terms.split(",")
    new = next((letter for letter in string.ascii_letters if letter not in terms), "")
    if not arrow or not new or len(letters) != len(values):
        raise UnmappedError(f'einsum "{call.text("equation")}", in a model for one image')
    named = [new + one if isinstance(v, Tensor) else one for one, v in zip(letters, values, strict=True)]
    return einsum.einsum(call.builder, f"{','.join(named)}->{new}{y}", values)


def _turned(call: Call, value: Any) -> Any:
    return shape.transpose(call.builder, value, 1, 2) if isinstance(value, Tensor) else value.T
