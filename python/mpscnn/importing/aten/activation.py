# SPDX-License-Identifier: Apache-2.0
"""Activation functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..builder import Builder, Tensor
from ..ops import activation, arithmetic, elementwise, shape
from ..torch_arguments import Arguments, Missing
from .registry import axis, operator


def _unary(names: str, function: Callable[[Builder, Tensor], Tensor]) -> None:
    operator(*names.split())(lambda b, a: function(b, a.source))


_unary("relu", activation.relu)
_unary("relu6", activation.relu6)
_unary("selu", activation.selu)
_unary("sigmoid special_expit", activation.sigmoid)
_unary("hardsigmoid", activation.hardsigmoid)
_unary("log_sigmoid", activation.logsigmoid)
_unary("tanh", activation.tanh)
_unary("silu", activation.silu)
_unary("hardswish", activation.hardswish)
_unary("mish", activation.mish)
_unary("neg negative", arithmetic.neg)
_unary("abs absolute", arithmetic.abs)
_unary("square", arithmetic.square)
_unary("sqrt", arithmetic.sqrt)
_unary("rsqrt", arithmetic.rsqrt)
_unary("reciprocal", arithmetic.reciprocal)
_unary("exp", arithmetic.exp)
_unary("log", arithmetic.log)
for _kind in set(elementwise.UNARY) - {"not"}:
    _unary(_kind, functools.partial(elementwise.unary, kind=_kind))
_unary("logical_not bitwise_not", functools.partial(elementwise.unary, kind="not"))
_unary("sgn", functools.partial(elementwise.unary, kind="sign"))


@operator("leaky_relu")
def _leaky_relu(b: Builder, a: Arguments) -> Tensor:
    return activation.leaky_relu(b, a.source, a.number("negative_slope"))


@operator("rrelu")
def _rrelu(b: Builder, a: Arguments) -> Tensor:
    a.refuse(training=False)
    return activation.rrelu(b, a.source, a.number("lower"), a.number("upper"))


@operator("rrelu_with_noise_functional")
def _rrelu_with_noise(b: Builder, a: Arguments) -> Any:
    return [_rrelu(b, a), Missing("the noise of rrelu")]


@operator("prelu", "_prelu_kernel")
def _prelu(b: Builder, a: Arguments) -> Tensor:
    weight = a.array("weight")
    return activation.prelu(b, a.source, weight.reshape(-1))


@operator("hardtanh")
def _hardtanh(b: Builder, a: Arguments) -> Tensor:
    return activation.hardtanh(b, a.source, a.number("min_val"), a.number("max_val"))


@operator("clamp", "clip", "clamp_min", "clamp_max")
def _clamp(b: Builder, a: Arguments) -> Tensor:
    bounds: list[float | None] = []
    for name in ("min", "max"):
        value = a.operand(name) if name in a and a[name] is not None else None
        if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.size != 1):
            return _clamp_to_tensors(b, a)
        bounds.append(None if value is None else float(value))
    return activation.clamp(b, a.source, *bounds)


def _clamp_to_tensors(b: Builder, a: Arguments) -> Tensor:
    y: Any = a.source
    for name, function in (("min", elementwise.maximum), ("max", elementwise.minimum)):
        if a.values.get(name) is not None:
            y = function(b, y, a.operand(name))
    return y  # type: ignore[no-any-return]


@operator("threshold")
def _threshold(b: Builder, a: Arguments) -> Tensor:
    threshold, value = a.number("threshold"), a.number("value")
    if threshold != value:
        return elementwise.threshold(b, a.source, threshold, value)
    return activation.threshold(b, a.source, threshold, value)


@operator("hardshrink")
def _hardshrink(b: Builder, a: Arguments) -> Tensor:
    return elementwise.binary(b, a.source, a.number("lambd"), "hardshrink")


@operator("nan_to_num")
def _nan_to_num(b: Builder, a: Arguments) -> Tensor:
    numbers = [a.optional_number(name) for name in ("nan", "posinf", "neginf")]
    most = float(np.finfo(np.float32).max)
    nan, high, low = (d if n is None else n for n, d in zip(numbers, (0.0, most, -most), strict=True))
    return elementwise.nan_to_num(b, a.source, nan, high, low)


@operator("elu")
def _elu(b: Builder, a: Arguments) -> Tensor:
    return activation.elu(b, a.source, a.number("alpha"), a.number("scale"), a.number("input_scale"))


@operator("celu")
def _celu(b: Builder, a: Arguments) -> Tensor:
    return activation.celu(b, a.source, a.number("alpha"))


@operator("gelu")
def _gelu(b: Builder, a: Arguments) -> Tensor:
    return activation.gelu(b, a.source, a["approximate"])


@operator("log_sigmoid_forward")
def _log_sigmoid_forward(b: Builder, a: Arguments) -> list[Any]:
    return [activation.logsigmoid(b, a.source), Missing("a buffer of log_sigmoid")]


@operator("softplus")
def _softplus(b: Builder, a: Arguments) -> Tensor:
    return activation.softplus(b, a.source, a.number("beta"), a.number("threshold"))


@operator("softshrink")
def _softshrink(b: Builder, a: Arguments) -> Tensor:
    return activation.softshrink(b, a.source, a.number("lambd"))


@operator("glu")
def _glu(b: Builder, a: Arguments) -> Tensor:
    values, gates = shape.split(b, a.source, a.source.shape[axis(a, "dim") - 1] // 2, axis(a, "dim"))
    return arithmetic.multiply(b, values, activation.sigmoid(b, gates))
