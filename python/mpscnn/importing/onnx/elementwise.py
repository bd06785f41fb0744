# SPDX-License-Identifier: Apache-2.0
"""Elementwise ONNX operators, reductions, and orders along an axis."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import activation, arithmetic, elementwise, general, ordering, reduction, shape
from . import shaping
from .node import Call, Value
from .table import OPERATORS, operator, unary

unary("Relu", activation.relu)
unary("Sigmoid", activation.sigmoid)
unary("HardSwish", activation.hardswish)
unary("Tanh", activation.tanh)
unary("Softplus", activation.softplus)
unary("Softsign", activation.softsign)
unary("Mish", activation.mish)
unary("Exp", arithmetic.exp)
unary("Log", arithmetic.log)
unary("Abs", arithmetic.abs)
unary("Neg", arithmetic.neg)
unary("Sqrt", arithmetic.sqrt)
unary("Reciprocal", arithmetic.reciprocal)
unary("Elu", activation.elu, alpha=1.0)
for _name in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"):
    unary(_name, functools.partial(elementwise.unary, kind=_name.lower()))
for _name in ("Erf", "Floor", "Ceil", "Round", "Sign", "Not", "IsNaN"):
    unary(_name, functools.partial(elementwise.unary, kind=_name.lower()))


@operator("LeakyRelu")
def _leaky_relu(call: Call) -> Value:
    return activation.leaky_relu(call.builder, call.tensor(), call.real("alpha", 0.01))


@operator("HardSigmoid")
def _hard_sigmoid(call: Call) -> Value:
    return activation.hardsigmoid(call.builder, call.tensor(), call.real("alpha", 0.2), call.real("beta", 0.5))


@operator("Selu")
def _selu(call: Call) -> Value:
    alpha, gamma = call.real("alpha", 1.67326319217681884765625), call.real("gamma", 1.05070102214813232421875)
    return activation.elu(call.builder, call.tensor(), alpha, gamma)


@operator("Celu")
def _celu(call: Call) -> Value:
    return activation.celu(call.builder, call.tensor(), call.real("alpha", 1.0))


@operator("Gelu")
def _gelu(call: Call) -> Value:
    return activation.gelu(call.builder, call.tensor(), call.text("approximate", "none"))


@operator("Swish")
def _swish(call: Call) -> Value:
    x, alpha = call.tensor(), call.real("alpha", 1.0)
    scaled = arithmetic.multiply(call.builder, x, alpha) if alpha != 1 else x
    return arithmetic.multiply(call.builder, x, activation.sigmoid(call.builder, scaled))


@operator("ThresholdedRelu")
def _thresholded_relu(call: Call) -> Value:
    alpha = call.real("alpha", 1.0)
    if alpha != 0:
        return elementwise.threshold(call.builder, call.tensor(), alpha, 0.0)
    return activation.relu(call.builder, call.tensor())


@operator("Shrink")
def _shrink(call: Call) -> Value:
    b, x = call.builder, call.tensor()
    bias, lambd = call.real("bias", 0.0), call.real("lambd", 0.5)
    if bias == lambd:
        return activation.softshrink(b, x, lambd)
    y = elementwise.binary(b, x, lambd, "hardshrink")
    if bias == 0:
        return y
    sign = elementwise.unary(b, y, "sign")
    return arithmetic.subtract(b, y, arithmetic.multiply(b, sign, bias))


@operator("IsInf")
def _is_inf(call: Call) -> Value:
    b, x = call.builder, call.tensor()
    signs = [(call.integer("detect_positive", 1), np.inf), (call.integer("detect_negative", 1), -np.inf)]
    wanted = [number for detected, number in signs if detected]
    if len(wanted) == 2:
        return elementwise.unary(b, x, "isinf")
    return elementwise.binary(b, x, wanted[0], "eq") if wanted else elementwise.binary(b, x, x, "gt")


@operator("Clip")
def _clip(call: Call) -> Value:
    bounds: list[float | None] = []
    for i, name in ((1, "min"), (2, "max")):
        if call.has(name):
            bounds.append(call.real(name))
            continue
        array = call.array(i, "bounds", None)
        if array is not None and array.size != 1:
            raise InvalidModelError(f"{call.name}: {name} of shape {array.shape}.")
        bounds.append(None if array is None else float(array.reshape(())))
    return activation.clamp(call.builder, call.tensor(), *bounds)


# ---- several tensors


def _binary(function: Callable[..., Tensor]) -> Callable[[Call], Value]:
    return lambda call: elementwise.of_several(call.builder, function, call.operand(0), call.operand(1))


def _of_kind(kind: str) -> Callable[[Call], Value]:
    return lambda call: elementwise.binary(call.builder, call.operand(0), call.operand(1), kind)


OPERATORS["Add"] = _binary(arithmetic.add)
OPERATORS["Sub"] = _binary(arithmetic.subtract)
OPERATORS["Mul"] = _binary(arithmetic.multiply)
OPERATORS["Greater"] = _of_kind("gt")
OPERATORS["GreaterOrEqual"] = _of_kind("ge")
OPERATORS["Less"] = _of_kind("lt")
OPERATORS["LessOrEqual"] = _of_kind("le")
OPERATORS["Equal"] = _of_kind("eq")
OPERATORS["And"] = _of_kind("and")
OPERATORS["Or"] = _of_kind("or")
OPERATORS["Xor"] = _of_kind("xor")


@operator("Pow")
def _pow(call: Call) -> Value:
    y = elementwise.pow(call.builder, call.operand(0), call.operand(1))
    if not call.type_of(0):
        return y
    if not call.type_of(1):
        raise UnmappedError("a power of integers with an exponent of floats: convert them to floats with a Cast before")
    return elementwise.unary(call.builder, y, "round")  # float32's powers are rounded


@operator("Div")
def _div(call: Call) -> Value:
    if call.type_of(0) and call.type_of(1):  # whole numbers, exact for those that float32 holds
        return elementwise.binary(call.builder, call.operand(0), call.operand(1), "trunc_divide")
    return elementwise.of_several(call.builder, arithmetic.divide, call.operand(0), call.operand(1))


@operator("Mod")
def _mod(call: Call) -> Value:
    kind = "fmod" if call.integer("fmod", 0) else "remainder"
    return elementwise.binary(call.builder, call.operand(0), call.operand(1), kind)


@operator("Where")
def _where(call: Call) -> Value:
    return elementwise.where(call.builder, call.operand(0), call.operand(1), call.operand(2))


def _folded(call: Call, function: Callable[..., Tensor]) -> Tensor:
    """Fold the operands with a function, constants last."""
    operands = [call.operand(i) for i in range(len(call.values))]
    operands.sort(key=lambda operand: not isinstance(operand, Tensor))
    result = operands[0]
    if not isinstance(result, Tensor):
        raise UnmappedError("constants alone")
    for operand in operands[1:]:
        result = elementwise.of_several(call.builder, function, result, operand)
    return result


@operator("Sum")
def _sum(call: Call) -> Value:
    return _folded(call, arithmetic.add)


@operator("Mean")
def _mean(call: Call) -> Value:
    return arithmetic.divide(call.builder, _folded(call, arithmetic.add), len(call.values))


@operator("Max")
def _max(call: Call) -> Value:
    return _folded(call, elementwise.maximum)


@operator("Min")
def _min(call: Call) -> Value:
    return _folded(call, elementwise.minimum)


# ---- reductions


def _dims(call: Call, x: Tensor) -> list[int] | None:
    """Return the axes; None: no reduction."""
    axes = call.numbers(1, "axes", "axes")
    if axes:
        return axes
    return None if call.integer("noop_with_empty_axes", 0) else list(range(x.rank))


def _reduction(
    function: Callable[..., Tensor],
    before: Callable[[Builder, Tensor], Tensor] | None = None,
    after: Callable[[Builder, Tensor], Tensor] | None = None,
) -> Callable[[Call], Value]:
    def run(call: Call) -> Value:
        x = call.tensor()
        dims = _dims(call, x)
        if before is not None:
            x = before(call.builder, x)
        if dims is not None:
            x = function(call.builder, x, dims, bool(call.integer("keepdims", 1)))
        return x if after is None else after(call.builder, x)

    return run


OPERATORS["ReduceMean"] = _reduction(reduction.mean)
OPERATORS["ReduceSum"] = _reduction(reduction.sum)
OPERATORS["ReduceMax"] = _reduction(reduction.amax)
OPERATORS["ReduceMin"] = _reduction(reduction.amin)
OPERATORS["ReduceL1"] = _reduction(reduction.sum, arithmetic.abs)
OPERATORS["ReduceL2"] = _reduction(reduction.sum, arithmetic.square, arithmetic.sqrt)
OPERATORS["ReduceSumSquare"] = _reduction(reduction.sum, arithmetic.square)
OPERATORS["ReduceLogSum"] = _reduction(reduction.sum, None, arithmetic.log)


@operator("ReduceLogSumExp")
def _reduce_log_sum_exp(call: Call) -> Value:
    x = call.tensor()
    dims = _dims(call, x)
    return x if dims is None else reduction.logsumexp(call.builder, x, dims, bool(call.integer("keepdims", 1)))


def _argument(function: Callable[..., Tensor]) -> Callable[[Call], Value]:
    def run(call: Call) -> Value:
        b, x, axis, keep = call.builder, call.tensor(), call.integer("axis", 0), bool(call.integer("keepdims", 1))
        place = axis + x.rank if axis < 0 else axis
        if not call.integer("select_last_index", 0) or not 0 < place < x.rank:
            return function(b, x, axis, keep)
        last = x.shape[place - 1] - 1
        b.fix_unless_constant(x)
        turned = shaping.picked(call, x, place, np.arange(last, -1, -1))
        return arithmetic.subtract(b, float(last), function(b, turned, axis, keep))

    return run


OPERATORS["ArgMax"] = _argument(reduction.argmax)
OPERATORS["ArgMin"] = _argument(reduction.argmin)


@operator("ReduceProd")
def _reduce_prod(call: Call) -> Value:
    x = call.tensor()
    dims = _dims(call, x) or []
    for dim in sorted((d % x.rank for d in dims), reverse=True):
        x = ordering.product(call.builder, x, dim, bool(call.integer("keepdims", 1)))
    return x


@operator("TopK")
def _top_k(call: Call) -> list[Value]:
    count = call.integer("k") if call.has("k") else int(call.array(1, "k").reshape(()))
    wanted = (call.wanted[0], call.wanted[1] if len(call.wanted) > 1 else False)
    x = call.tensor()
    found = ordering.top(call.builder, x, count, call.integer("axis", -1), bool(call.integer("largest", 1)), wanted)
    return [x if y is None else y for y in found]  # one that nothing reads


def _accumulated(call: Call, product: bool) -> Value:
    axis = int(call.array(1, "an axis").reshape(()))
    exclusive, reverse = bool(call.integer("exclusive", 0)), bool(call.integer("reverse", 0))
    return ordering.accumulated(
        call.builder, call.tensor(), axis, product=product, exclusive=exclusive, reverse=reverse
    )


OPERATORS["CumSum"] = lambda call: _accumulated(call, False)
OPERATORS["CumProd"] = lambda call: _accumulated(call, True)


@operator("GatherElements")
def _gather_elements(call: Call) -> Value:
    x, indices = call.tensor(), call.operand(1)
    if not isinstance(indices, Tensor):
        indices = general.constant(call.builder, x, elementwise.of_image(indices, x.rank))
    return ordering.pick(call.builder, x, call.integer("axis", 0), indices)


@operator("OneHot")
def _one_hot(call: Call) -> Value:
    b, x = call.builder, call.tensor()
    depth, values = int(call.array(1, "a depth").reshape(())), call.array(2, "values").ravel()
    axis = call.integer("axis", -1)
    if axis % (x.rank + 1) != x.rank:
        raise UnmappedError(f"classes along axis {axis}, not the last")
    if depth < 1 or values.size != 2:
        raise InvalidModelError(f"{call.name}: a depth of {depth} and {values.size} values.")
    numbers = np.arange(depth, dtype=np.float32)
    x = elementwise.where(b, elementwise.binary(b, x, 0.0, "lt"), arithmetic.add(b, x, depth), x)
    y = general.binary(b, elementwise.binary, shape.unsqueeze(b, x, x.rank), numbers, kind="eq")
    return elementwise.where(b, y, float(values[1]), float(values[0]))


def _softmax(function: Callable[..., Tensor]) -> Callable[[Call], Value]:
    def run(call: Call) -> Value:
        x = call.tensor()
        if call.opset >= 13:
            return function(call.builder, x, call.integer("axis", -1))
        axis = call.integer("axis", 1)  # and all following axes
        axis = axis + x.rank if axis < 0 else axis
        return function(call.builder, x, range(axis, x.rank))

    return run


OPERATORS["Softmax"] = _softmax(reduction.softmax)
OPERATORS["LogSoftmax"] = _softmax(reduction.log_softmax)


@operator("Hardmax")
def _hardmax(call: Call) -> Value:
    """Return 1 at the first max along an axis, 0 elsewhere."""
    b, x = call.builder, call.tensor()
    axis = call.integer("axis", -1 if call.opset >= 13 else 1)
    axis = axis + x.rank if axis < 0 else axis
    if call.opset < 13 and math.prod(x.shape[axis:]) > 1:  # over all following axes
        raise UnmappedError("the max over several axes, as before version 13")
    if not 0 < axis < x.rank:
        raise UnmappedError("the max over the batch")
    b.fix_unless_constant(x)
    found = reduction.argmax(b, x, axis, True)
    numbers: NDArray[Any] = np.arange(x.shape[axis - 1], dtype=np.float32)
    numbers = numbers.reshape([-1 if i == axis - 1 else 1 for i in range(len(x.shape))])
    return general.binary(b, elementwise.binary, found, numbers, kind="eq")


@operator("SwiGLU")
def _swiglu(call: Call) -> Value:
    gate, alpha = call.tensor(), call.real("alpha", 1.0)
    scaled = arithmetic.multiply(call.builder, gate, alpha) if alpha != 1 else gate
    swish = arithmetic.multiply(call.builder, gate, activation.sigmoid(call.builder, scaled))
    return elementwise.of_several(call.builder, arithmetic.multiply, swish, call.operand(1))


def is_number(value: Any, number: float) -> bool:
    """Return whether an input is that number, up to rounding."""
    return isinstance(value, np.ndarray) and value.size == 1 and _near(value, number)


def _near(value: NDArray[Any], number: float) -> bool:
    return value.dtype.kind == "f" and bool(np.abs(value.ravel()[0] - number) <= 1e-6 * abs(number))
