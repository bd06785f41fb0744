# SPDX-License-Identifier: Apache-2.0
"""Activation functions: MPSCNN's neurons, and others composed of several kernels."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError

# From this argument on, softplus equals its argument in float32: log1p(exp(-t)) / t < 2 ** -24.
SOFTPLUS_IS_LINEAR = 15.0


def relu(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.relu."""
    return builder.add("NeuronReLU", x, a=0.0)


def leaky_relu(builder: Builder, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Same as torch.nn.functional.leaky_relu."""
    return builder.add("NeuronReLU", x, a=float(negative_slope))


def rrelu(builder: Builder, x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3) -> Tensor:
    """Same as torch.nn.functional.rrelu in inference: the mean slope."""
    return leaky_relu(builder, x, (lower + upper) / 2)


def prelu(builder: Builder, x: Tensor, weight: NDArray[Any]) -> Tensor:
    """Same as torch.nn.functional.prelu: one slope for all channels, or one per channel (axis 1)."""
    if weight.size == 1:
        return leaky_relu(builder, x, float(weight.reshape(())))
    if x.flat is not None or x.rank < 2 or x.axes[1] != "C":
        raise UnmappedError(f"slopes for {x.axes}, whose axis 1 is not the image's channels")
    if weight.shape != (x.channels,):
        raise InvalidModelError(f"the slopes have shape {weight.shape}, the source has {x.channels} channels.")
    return builder.add("NeuronPReLU", x, a=weight)


def relu6(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.relu6."""
    return builder.add("NeuronReLUN", x, a=0.0, b=6.0)


def hardtanh(builder: Builder, x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Same as torch.nn.functional.hardtanh."""
    return clamp(builder, x, min_val, max_val)


def clamp(builder: Builder, x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """Same as torch.clamp with numbers.

    If no neuron has these bounds, they are set on the sum x / 2 + x / 2.
    """
    low = None if min is None or min == -math.inf else float(min)
    high = None if max is None or max == math.inf else float(max)
    if (low is not None and math.isnan(low)) or (high is not None and math.isnan(high)):
        raise UnmappedError(f"bounds {min} and {max}")
    if low is None and high is None:
        return x
    if low is not None and high is not None and low > high:
        low = high  # as in PyTorch: all values become the upper bound
    if low == 0.0:
        return relu(builder, x) if high is None else builder.add("NeuronReLUN", x, a=0.0, b=high)
    if low is None:
        return builder.add("NeuronReLUN", x, a=1.0, b=high)
    bounds: dict[str, Any] = {"minimum_value": low} | ({} if high is None else {"maximum_value": high})
    return builder.add("Add", x, x, primary_scale=0.5, secondary_scale=0.5, **bounds)


def threshold(builder: Builder, x: Tensor, threshold: float, value: float) -> Tensor:
    """Same as torch.nn.functional.threshold, if `value` equals the threshold."""
    if threshold != value:
        raise UnmappedError(f"a jump from {value} to {threshold}")
    return clamp(builder, x, min=threshold)


def elu(builder: Builder, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """Same as torch.nn.functional.elu, and aten.elu: scale * (x if x > 0 else alpha * expm1(x * input_scale))."""
    if input_scale == 1.0:
        y = builder.add("NeuronELU", x, a=float(alpha))
    else:
        if input_scale <= 0:
            raise UnmappedError(f"input_scale {input_scale}")
        # x and alpha * expm1(s x) are 1 / s times s x and s alpha expm1(s x).
        y = builder.add("NeuronLinear", x, a=float(input_scale), b=0.0)
        y = builder.add("NeuronELU", y, a=float(alpha * input_scale))
        scale = scale / input_scale
    return y if scale == 1.0 else builder.add("NeuronLinear", y, a=float(scale), b=0.0)


def selu(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.selu."""
    return elu(builder, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def celu(builder: Builder, x: Tensor, alpha: float = 1.0) -> Tensor:
    """Same as torch.nn.functional.celu."""
    if alpha == 0:
        raise InvalidModelError("celu: alpha is 0.")
    return elu(builder, x, alpha, 1.0, 1.0 / alpha)


def gelu(builder: Builder, x: Tensor, approximate: str = "none") -> Tensor:
    """Same as torch.nn.functional.gelu: exact, with the error function, or "tanh", the approximation."""
    if approximate == "none":
        return builder.add("Neuron", x, type="gelu")
    if approximate != "tanh":
        raise InvalidModelError(f'gelu: approximate ("{approximate}") is not "none" or "tanh".')
    # x / 2 * (1 + tanh(u)) = x * sigmoid(2 u), u = sqrt(2 / pi) * x * (1 + 0.044715 x ** 2)
    slope = 2 * math.sqrt(2 / math.pi)
    inner = builder.add("NeuronLinear", builder.add("Multiply", x, x), a=slope * 0.044715, b=slope)
    gate = builder.add("NeuronSigmoid", builder.add("Multiply", x, inner))
    return builder.add("Multiply", x, gate)


def sigmoid(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.sigmoid."""
    return builder.add("NeuronSigmoid", x)


def hardsigmoid(builder: Builder, x: Tensor, alpha: float = 1 / 6, beta: float = 0.5) -> Tensor:
    """Same as torch.nn.functional.hardsigmoid; `alpha` and `beta` as in ONNX: min(max(alpha * x + beta, 0), 1)."""
    return builder.add("NeuronHardSigmoid", x, a=float(alpha), b=float(beta))


def logsigmoid(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.logsigmoid: -log(1 + exp(-x))."""
    return builder.add("NeuronSoftPlus", x, a=-1.0, b=-1.0)


def tanh(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.tanh."""
    return builder.add("NeuronTanH", x, a=1.0, b=1.0)


def silu(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.silu: x * sigmoid(x)."""
    return builder.add("Multiply", x, sigmoid(builder, x))


def hardswish(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.hardswish: x * min(max(x / 6 + 1 / 2, 0), 1)."""
    return builder.add("Multiply", x, hardsigmoid(builder, x))


def softplus(builder: Builder, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Same as torch.nn.functional.softplus, if the threshold above which it returns `x` has no effect in float32."""
    if beta == 0:
        raise InvalidModelError("softplus: beta is 0.")
    if threshold < SOFTPLUS_IS_LINEAR:
        raise UnmappedError(f"a threshold of {threshold}, at which softplus is not linear yet")
    return builder.add("NeuronSoftPlus", x, a=1.0 / beta, b=float(beta))


def mish(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.mish: x * tanh(softplus(x))."""
    return builder.add("Multiply", x, tanh(builder, softplus(builder, x)))


def softsign(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.softsign."""
    return builder.add("NeuronSoftSign", x)


def tanhshrink(builder: Builder, x: Tensor) -> Tensor:
    """Same as torch.nn.functional.tanhshrink: x - tanh(x)."""
    return builder.add("Subtract", x, tanh(builder, x))


def softshrink(builder: Builder, x: Tensor, lambd: float = 0.5) -> Tensor:
    """Same as torch.nn.functional.softshrink: x - clamp(x, -lambd, lambd)."""
    if lambd < 0:
        raise InvalidModelError(f"softshrink: lambd ({lambd}) is less than the minimum (0).")
    return builder.add("Subtract", x, clamp(builder, x, -lambd, lambd))
