# SPDX-License-Identifier: Apache-2.0
"""Quantized ONNX operators: QuantizeLinear and DequantizeLinear, and operators of ONNX and ONNX Runtime on numbers.

The latter are an operator of floats between both (`_FORMS`). Weights are dequantized at import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Tensor, UnmappedError
from ..ops import quantization
from . import elementwise, layers, normalization, resizing, scales, shaping, static  # noqa: F401  (they fill the table)
from .node import Call, Value
from .table import OPERATORS, Handler, operator

if TYPE_CHECKING:
    from onnx import NodeProto

RUNTIME = "com.microsoft."  # the domain of ONNX Runtime's operators


def _scale_and_zero(
    call: Call, x: Tensor, first: int, axis: int | None, divides: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.float32], np.dtype[Any] | None]:
    """Return the scale, which is input `first`, and the zero point after it, with its type.

    `axis` None: one each. `divides`: values are divided by the scale.
    """
    scale, zero = call.weights(first, "scales"), call.array(first + 1, "a zero point", None)
    if axis is not None and scale.size > 1 and scales.axis_of(axis, x.rank) == 0:
        raise UnmappedError("a scale for each image of the batch")
    step, offset = scales.checked(scale, zero, (None, *x.shape), axis, divides)
    return step.astype(np.float32), offset.astype(np.float32), None if zero is None else zero.dtype


def _quantized(call: Call, x: Tensor, scale: NDArray[Any], zero: NDArray[Any], dtype: np.dtype[Any]) -> Tensor:
    limits = np.iinfo(scales.of_numbers(dtype))
    return quantization.quantize(call.builder, x, scale, zero, (int(limits.min), int(limits.max)))


@operator("QuantizeLinear", f"{RUNTIME}QuantizeLinear")
def _quantize_linear(call: Call) -> Value:
    x = call.tensor()
    scale, zero, dtype = _scale_and_zero(call, x, 1, static.axis_of_scales(call), divides=True)
    return _quantized(call, x, scale, zero, static.type_of_numbers(call, dtype))


@operator("DequantizeLinear", f"{RUNTIME}DequantizeLinear")
def _dequantize_linear(call: Call) -> Value:
    x = call.tensor()
    scale, zero, _ = _scale_and_zero(call, x, 1, static.axis_of_scales(call))
    return quantization.dequantize(call.builder, x, scale, zero)


# ---- operators between both


@dataclass(frozen=True)
class _Form:
    """An operator of floats with its inputs: places of those of the quantized operator."""

    operator: str
    sources: tuple[int, ...]  # each followed by its scale and zero point
    result: int  # its scale, followed by its zero point
    bias: int | None = None  # whole numbers with the step of the products
    floats: tuple[int, ...] = ()  # inputs in front of the sources that are no numbers


_ONE, _TWO = ((0,), 3), ((0, 3), 6)
_FORMS = {
    "QLinearConv": _Form("Conv", *_TWO, bias=8),
    "QLinearMatMul": _Form("MatMul", *_TWO),
    f"{RUNTIME}QGemm": _Form("Gemm", (0, 3), 7, bias=6),
    f"{RUNTIME}QLinearAdd": _Form("Add", *_TWO),
    f"{RUNTIME}QLinearMul": _Form("Mul", *_TWO),
    f"{RUNTIME}QLinearWhere": _Form("Where", (1, 4), 7, floats=(0,)),
    f"{RUNTIME}QLinearAveragePool": _Form("AveragePool", *_ONE),
    f"{RUNTIME}QLinearGlobalAveragePool": _Form("GlobalAveragePool", *_ONE),
    f"{RUNTIME}QLinearLeakyRelu": _Form("LeakyRelu", *_ONE),
    f"{RUNTIME}QLinearSigmoid": _Form("Sigmoid", *_ONE),
    f"{RUNTIME}QLinearSoftmax": _Form("Softmax", *_ONE),
    f"{RUNTIME}QLinearConcat": _Form("Concat", (), 0),  # any number of sources, after the scale of the result
}

READS = frozenset({"DequantizeLinear", f"{RUNTIME}DequantizeLinear", *_FORMS})
"""Operators that take whole numbers."""


def stores(name: str, inputs: list[str]) -> bool:
    """Return whether the result of an operator with these inputs is whole numbers."""
    form = _FORMS.get(name)
    if form is None:
        return name in ("QuantizeLinear", f"{RUNTIME}QuantizeLinear")
    return form.result < len(inputs) and inputs[form.result] != ""


def zero_place(name: str) -> int:
    """Return the place of the zero point of an operator's result, whose type is that of the numbers."""
    form = _FORMS.get(name)
    return 2 if form is None else form.result + 1


def moves(node: NodeProto) -> bool:
    """Return whether a node moves or chooses numbers: one of `MOVES`, without interpolation."""
    return node.op_type in MOVES and all(
        a.s == b"nearest" for a in node.attribute if a.name == "mode" and node.op_type == "Resize"
    )


def _output_axis(call: Call, form: _Form) -> int:
    """Return the axis of the weights that has a scale for each output."""
    if form.operator == "Conv" or (form.operator == "Gemm" and call.integer("transB", 0)):
        return 0
    return -1


def _source(call: Call, form: _Form, place: int) -> Value:
    """Return the values of a source; scales of constants are numbers, or along the axis of the outputs."""
    numbers = call.value(place)
    if isinstance(numbers, Tensor):
        return quantization.dequantize(call.builder, numbers, *_scale_and_zero(call, numbers, place + 1, None)[:2])
    weights, scale = call.array(place, "weights"), call.weights(place + 1, "scales")
    zero, axis = call.array(place + 2, "a zero point", None), _output_axis(call, form)
    step, offset = scales.checked(scale, zero, weights.shape, axis if weights.ndim else None)
    return scales.dequantized(weights, step, offset)


def _bias(call: Call, form: _Form) -> NDArray[np.float32] | None:
    bias = call.array(form.bias, "a bias", None) if form.bias is not None else None
    if bias is None:
        return None
    outputs = call.array(form.sources[1], "weights").shape[_output_axis(call, form)]
    if form.operator == "Conv" and bias.shape != (outputs,):
        raise InvalidModelError(f"a bias of shape {bias.shape} for {outputs} outputs.")
    steps = [call.weights(place + 1, "scales").astype(np.float64).reshape(-1) for place in form.sources]
    factor = call.real("alpha", 1.0) if form.operator == "Gemm" else 1.0
    return (bias.astype(np.float64) * steps[0] * steps[1] * factor).astype(np.float32)


def _between(form: _Form) -> Handler:
    def run(call: Call) -> Value:
        if call.integer("channels_last", 0):
            raise UnmappedError("channels_last")
        sources = form.sources or tuple(range(2, len(call.values), 3))
        inputs = [call.value(place) for place in form.floats] + [_source(call, form, place) for place in sources]
        if form.bias is not None:
            inputs.append(_bias(call, form))
        y = OPERATORS[form.operator](call.of_floats(form.operator, inputs))
        assert isinstance(y, Tensor)
        if call.value(form.result) is None:
            return y
        scale, zero, dtype = _scale_and_zero(call, y, form.result, None, divides=True)
        return _quantized(call, y, scale, zero, dtype or np.dtype(np.uint8))

    return run


OPERATORS.update({name: _between(form) for name, form in _FORMS.items()})


# ---- operators that move or choose numbers


def _of_numbers(handler: Handler) -> Handler:
    def run(call: Call) -> Value | list[Value]:
        result = handler(call)
        x = call.value(0)
        if isinstance(x, Tensor):

            def again(same: Tensor) -> list[Value]:
                found = handler(call.of_floats(call.operator, [same, *call.values[1:]]))
                return found if isinstance(found, list) else [found]

            quantization.moved(call.builder, x, result if isinstance(result, list) else [result], again)
        return result

    return run


MOVES = (
    *("DepthToSpace", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth"),
    *("Split", "Squeeze", "Transpose", "Unsqueeze"),
)
"""Operators whose results are numbers of their first source, or constants; see `moves`."""
OPERATORS.update({name: _of_numbers(OPERATORS[name]) for name in MOVES})
