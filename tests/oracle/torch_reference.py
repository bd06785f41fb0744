# SPDX-License-Identifier: Apache-2.0
"""The same rows through PyTorch's operators in float64, where these exist, to check the oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from cases import Case, Inputs

from . import compare, normalized_by_torch, torch_others
from .expected import NEURON_KERNELS, SHORT_ACTIVATIONS
from .padding import framework_size

Array = NDArray[np.float64]


# Tensors that gradients() differentiates by, by the argument's name; None outside of gradients().
_leaves: dict[str, torch.Tensor] | None = None


def _tensor(array: NDArray[Any], name: str = "") -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64))
    if _leaves is not None and name:
        _leaves[name] = tensor.requires_grad_()
    return tensor


def _oihw(case: Case, inputs: Inputs) -> torch.Tensor:
    """Return the weights in PyTorch's order; transposed ones (I, O / groups, kH, kW)."""
    raw = inputs.weight
    assert raw is not None
    layout = case.layout
    out_axis = layout.replace("C1", "O1").index("O") if layout != "IOHW" else 0
    if case.quantized == "ranges":
        assert inputs.ranges is not None
        bounds = inputs.ranges.astype(np.float64)
        shape = [-1 if axis == out_axis else 1 for axis in range(raw.ndim)]
        low, high = bounds[:, 0].reshape(shape), bounds[:, 1].reshape(shape)
        values = low + raw * (high - low) / 255
    elif case.quantized:
        assert inputs.lookup_table is not None
        values = inputs.lookup_table.astype(np.float64)[raw]
    else:
        values = raw.astype(np.float64)
    weight = _tensor(values, "weight")
    if layout == "OI":
        channels, height, width = case.params.get("feature_map") or (raw.shape[1], 1, 1)
        weight = weight.reshape(-1, channels, height, width)
    elif layout == "HWIO":
        weight = weight.permute(3, 2, 0, 1)
    elif layout == "OHWI":
        weight = weight.permute(0, 3, 1, 2)
        if case.kernel == "ConvolutionTranspose":  # MPS's order is rotated
            parts = [part.transpose(0, 1) for part in weight.flip(2, 3).chunk(case.groups)]
            weight = torch.cat(parts)
    halved = case.quantized or case.weight_dtype == "float16" or case.params.get("kernel_dtype") == "float16"
    return weight.float().half().double() if halved else weight


def _activate(y: torch.Tensor, name: str, a: Any, b: float, c: float) -> torch.Tensor:
    """y is NCHW."""
    calls = {
        "none": lambda: y,
        "relu": lambda: F.leaky_relu(y, a) if a else torch.relu(y),
        "linear": lambda: a * y + b,
        "sigmoid": lambda: torch.sigmoid(y),
        "hard_sigmoid": lambda: torch.clamp(a * y + b, 0, 1),
        "tanh": lambda: a * torch.tanh(b * y),
        "absolute": lambda: y.abs(),
        "softplus": lambda: a * F.softplus(b * y, threshold=40),  # beyond it, e**-40 is below the precision
        "softsign": lambda: F.softsign(y),
        "elu": lambda: F.elu(y, a),
        "prelu": lambda: F.prelu(y, _tensor(a)),
        "relun": lambda: torch.minimum(
            F.leaky_relu(y, a) if a else torch.relu(y), torch.tensor(b, dtype=torch.float64)
        ),
        "power": lambda: (a * y + b) ** c,
        "exponential": lambda: torch.exp(a * y + b) if c == -1 else c ** (a * y + b),
        "logarithm": lambda: torch.log(a * y + b) / (1.0 if c == -1 else float(np.log(c))),
        "gelu": lambda: y * torch.special.erfc(-y * 0.5**0.5) / 2,  # F.gelu() loses digits far below 0
    }
    return calls[name]()


def _numbers(case: Case, inputs: Inputs) -> tuple[str, list[Any]]:
    if case.kernel == "Neuron":
        name, *defaults = SHORT_ACTIVATIONS.get(case.params["type"], (case.params["type"],))
        given = [case.params.get(letter, value) for letter, value in zip("abc", [*defaults, 0, 0, 0], strict=False)]
    elif case.kernel in NEURON_KERNELS:
        name, defaults = NEURON_KERNELS[case.kernel]
        given = [case.params.get(letter, value) for letter, value in zip("abc", defaults, strict=False)]
    elif isinstance(case.activation, str):
        name, given = SHORT_ACTIVATIONS[case.activation][0], list(SHORT_ACTIVATIONS[case.activation][1:])
    else:
        name, given = (case.activation or ("none",))[0], list((case.activation or ("none",))[1:])
    if name == "prelu":
        return name, [inputs.slopes, 0.0, 0.0]
    return name, [float(np.float32(number)) for number in [*given, 0.0, 0.0, 0.0][:3]]


def _same(case: Case, kernel: tuple[int, int], source: tuple[int, int]) -> list[int] | None:
    """Return TensorFlow's SAME or VALID in the order of F.pad(); None where MPS centres the windows differently."""
    amounts = []
    for k, s, n in zip(reversed(kernel), reversed(case.pair("stride")), reversed(source), strict=True):
        if case.params["padding"] == "valid":
            if (n - k) % s > 1:
                return None
            amounts += [0, 0]
        else:
            total = (-(-n // s) - 1) * s + k - n
            if total < -1:
                return None
            amounts += [max(total, 0) // 2, max(total, 0) - max(total, 0) // 2]
    return amounts


def _sources(case: Case, inputs: Inputs) -> tuple[torch.Tensor, ...]:
    """Return the sources of a kernel of two, (N, C, H, W); axes with stride 0 are reduced to the repeated pixel."""
    tensors = []
    for prefix, array in zip(("primary_", "secondary_"), inputs.sources, strict=True):
        x = compare.as_numbers(array)[..., case.params.get(f"{prefix}source_feature_channel_offset", 0) :]
        x = x[..., : case.params.get(f"{prefix}source_feature_channel_max_count")]
        tensor = _tensor(x.transpose(0, 3, 1, 2), f"source{len(tensors)}")
        steps = case.params.get(f"{prefix}stride", 1)
        for axis, step in zip((2, 3), (steps, steps) if isinstance(steps, int) else steps, strict=True):
            tensor = tensor.narrow(axis, 0, 1) if step == 0 else tensor
        if case.params.get(f"{prefix}stride_in_feature_channels") == 0:
            tensor = tensor.narrow(1, 0, 1)
        tensors.append(torch_others.seen(case, tensor, prefix) if f"{prefix}offset" in case.params else tensor)
    return tuple(tensors)


def _read(case: Case, inputs: Inputs) -> list[torch.Tensor]:
    """Return the images and channels of each source that are read, (N, C, H, W)."""
    tensors = []
    for prefix, array in zip(("primary_", "secondary_") if case.second else ("",), inputs.sources, strict=True):
        x = compare.as_numbers(array)[..., case.params.get(f"{prefix}source_feature_channel_offset", 0) :]
        x = x[..., : case.params.get(f"{prefix}source_feature_channel_max_count")]
        offset = case.params.get(f"{prefix}offset", (0, 0))
        array = x[offset[2] if len(offset) == 3 else 0 :].transpose(0, 3, 1, 2)
        tensors.append(_tensor(array, f"source{len(tensors)}"))
    return tensors


def _arithmetic(case: Case, inputs: Inputs) -> torch.Tensor:
    """Arithmetic with PyTorch's own broadcasting and clamp."""
    params = case.params
    number = {
        name: float(np.float32(value)) for name, value in params.items() if name.endswith(("scale", "bias", "_value"))
    }
    a, b = _sources(case, inputs)
    if case.kernel == "Compare":
        return _comparison(params["comparison"], params.get("threshold", 0.0), a, b)
    a, b = a * number.get("primary_scale", 1.0), b * number.get("secondary_scale", 1.0)
    operations = {"Add": torch.add, "Subtract": torch.sub, "Multiply": torch.mul, "Divide": torch.div}
    y = operations[case.kernel](a, b) + number.get("bias", 0.0)
    limits = number.get("minimum_value"), number.get("maximum_value")
    return y if limits == (None, None) else torch.clamp(y, *limits)


def _comparison(name: str, threshold: float, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch compares without a threshold, except in isclose()."""
    functions = {"less": torch.lt, "less_or_equal": torch.le, "greater": torch.gt, "greater_or_equal": torch.ge}
    if name in functions:
        return functions[name](a, b).to(a.dtype)
    is_equal = torch.isclose(a, b, rtol=0.0, atol=threshold)
    return (is_equal if name == "equal" else ~is_equal).to(a.dtype)


def _gradient(case: Case, inputs: Inputs) -> torch.Tensor:
    """Gradient by PyTorch's autograd."""
    gradient, x = _sources(case, inputs)
    x.requires_grad_()
    name, numbers = _numbers(case, inputs)
    y = _activate(x, name, *numbers)
    return torch.autograd.grad(y, x, gradient)[0]


def reference(case: Case, inputs: Inputs) -> Array | None:
    """Return the result (N, H, W, C) before it is stored; None without a counterpart in PyTorch."""
    y = _result(case, inputs)
    return None if y is None else np.ascontiguousarray(y.detach().numpy().transpose(0, 2, 3, 1))


def gradients(case: Case, inputs: Inputs, grad_y: NDArray[Any]) -> dict[str, Array] | None:
    """Return autograd's gradients of the row's function in float64: "source0", "source1" (N, H, W, C), "weight" in the
    row's layout, "bias", "gamma", "beta". None without a counterpart in PyTorch."""
    global _leaves
    _leaves = leaves = {}
    try:
        y = _result(case, inputs)
    finally:
        _leaves = None
    if y is None or not leaves:
        return None
    found = torch.autograd.grad(y, list(leaves.values()), _tensor(grad_y.transpose(0, 3, 1, 2)), allow_unused=True)
    named = {name: grad.numpy() for name, grad in zip(leaves, found, strict=True) if grad is not None}
    return {name: g.transpose(0, 2, 3, 1) if name.startswith("source") else g for name, g in named.items()}


def _sees_places(case: Case, inputs: Inputs) -> bool:
    """Return whether the reference supports offsets: for element-wise functions of whole images of one size."""
    if not case.second:
        return case.kernel in NEURON_KERNELS
    strides = any("stride" in name for name in case.params)
    images = any(name.endswith("offset") and np.ndim(value) and len(value) == 3 for name, value in case.params.items())
    same = len({x.shape for x in inputs.sources}) == 1
    return case.kernel != "NeuronGradient" and same and not strides and not images


def _result(case: Case, inputs: Inputs) -> torch.Tensor | None:
    """(N, C, H, W)"""
    params = case.params
    if case.kernel in torch_others.KERNELS:
        return torch_others.reference(case, _read(case, inputs))
    offsets = [value for name, value in params.items() if name.endswith("offset") and "channel" not in name]
    if (offsets and not _sees_places(case, inputs)) or "clip_rect" in params:
        return None
    if case.second:
        return _gradient(case, inputs) if case.kernel == "NeuronGradient" else _arithmetic(case, inputs)
    source = _read(case, inputs)[0]
    y = torch_others.seen(case, source) if offsets else source
    if case.kernel in POOLING:
        return _pooled(case, source)
    if case.kernel in normalized_by_torch.KERNELS:
        y = normalized_by_torch.normalized(case, source, inputs, _tensor)
    if case.is_binary:
        found = _binary(case, inputs, source)
        if found is None:
            return None
        y = found
    elif case.weight:
        weight = _oihw(case, inputs)
        bias = None if inputs.bias is None else _tensor(inputs.bias, "bias")
        found = _convolved(case, source, weight, bias)
        if found is None:
            return None
        y = found
        if inputs.norm is not None:
            if params.get("kernel_dtype") == "float16":
                return None  # the folded weights are rounded
            norm = {name: _tensor(value) for name, value in inputs.norm.items() if name != "epsilon"}
            y = F.batch_norm(y, norm["mean"], norm["variance"], norm["gamma"], norm["beta"], eps=inputs.norm["epsilon"])
    name, numbers = _numbers(case, inputs)
    y = _activate(y, name, *numbers)
    factor = params.get("sub_pixel_scale_factor", 1)
    if factor > 1:
        channels = y.shape[1] // factor**2
        # PyTorch has the positions of one channel together, MPS the channels of one position.
        y = F.pixel_shuffle(y.unflatten(1, (factor**2, channels)).transpose(1, 2).flatten(1, 2), factor)
    return y


POOLING = ("DilatedPoolingMax", "PoolingAverage", "PoolingL2Norm", "PoolingMax")


def _pooled(case: Case, x: torch.Tensor) -> torch.Tensor | None:
    """Use PyTorch's own padding and divisors where these exist, otherwise a source padded by hand."""
    params, maximum = case.params, case.kernel in ("PoolingMax", "DilatedPoolingMax")
    kernel, dilation, ceil = case.pair("kernel_size"), case.pair("dilation"), params.get("ceil_mode", False)
    stride = case.pair("stride") if params.get("stride") is not None else kernel
    pad, edge = params.get("padding", 0), params.get("edge_mode", "clamp" if maximum else "zero")
    if "zero_pad_size" in params:
        return None
    if isinstance(pad, str):
        extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
        amounts = _same(case, (extents[0], extents[1]), (x.shape[2], x.shape[3]))
        if amounts is None:
            return None
        left, right, top, bottom = amounts
    else:
        top, bottom, left, right = _sides(pad)
    symmetric = (top, left) == (bottom, right) and 2 * top <= kernel[0] and 2 * left <= kernel[1]
    if maximum and edge == "clamp" and (symmetric or not any((top, bottom, left, right))):
        # With dilation, a clamped tap may read a pixel that no other tap reads, and that PyTorch's padding omits.
        if dilation != (1, 1) and (ceil or any((top, left))):
            return None
        return F.max_pool2d(x, kernel, stride, (top, left), dilation, ceil)
    if "count_include_pad" in params or (case.kernel == "PoolingAverage" and edge == "clamp"):
        include = params.get("count_include_pad", False)
        return F.avg_pool2d(x, kernel, stride, (top, left), ceil, include) if symmetric else None
    if ceil:  # more padding at the end for a last window that needs it
        sizes = [
            framework_size(size, (k - 1) * d + 1, s, before, after, ceil=True)
            for size, k, d, s, before, after in zip(
                x.shape[2:], kernel, dilation, stride, (top, left), (bottom, right), strict=True
            )
        ]
        bottom = (sizes[0] - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1 - x.shape[2] - top
        right = (sizes[1] - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1 - x.shape[3] - left
    x = F.pad(x, [left, right, top, bottom], mode="replicate" if edge == "clamp" else "constant")
    if maximum:
        return F.max_pool2d(x, kernel, stride, 0, dilation)
    if case.kernel == "PoolingL2Norm":
        return torch.sqrt(F.avg_pool2d(x**2, kernel, stride, 0) * kernel[0] * kernel[1])
    return F.avg_pool2d(x, kernel, stride, 0)


def _binary(case: Case, inputs: Inputs, x: torch.Tensor) -> torch.Tensor | None:
    """An ordinary convolution of the bits' values; the padding has the value of bit 0."""
    assert inputs.bits is not None
    params, kind = case.params, case.params.get("type", "xnor")
    bits = _tensor(inputs.bits.transpose(0, 3, 1, 2))
    terms = {name: _tensor(values)[:, None, None] for name, values in inputs.given.items()}
    u = (x + terms.get("input_bias", 0.0)) * terms.get("input_scale", 1.0)
    stride, dilation, pad = case.pair("stride"), case.pair("dilation"), params.get("padding", 0)
    if isinstance(pad, str):
        dilated = tuple((k - 1) * d + 1 for k, d in zip(bits.shape[2:], dilation, strict=True))
        amounts = _same(case, (dilated[0], dilated[1]), (x.shape[2], x.shape[3]))
        if amounts is None:
            return None
    else:
        top, bottom, left, right = _sides(pad)
        amounts = [left, right, top, bottom]
    u = F.pad(u, amounts, mode="replicate" if params.get("edge_mode") == "clamp" else "constant")
    ones = torch.ones_like(u)
    a = {"binary_weights": u, "xnor": torch.where(u < 0, -ones, ones), "and": (u >= 0).to(u.dtype)}[kind]
    y = F.conv2d(a, bits if kind == "and" else 2 * bits - 1, stride=stride, dilation=dilation)
    y = y * terms.get("scale", 1.0)
    if params.get("beta_scaling"):
        mean = torch.full((1, 1, *bits.shape[2:]), 1 / (bits.shape[2] * bits.shape[3]), dtype=u.dtype)
        y = y * F.conv2d(u.abs().mean(1, keepdim=True), mean, stride=stride, dilation=dilation)
    return y if inputs.bias is None else y + _tensor(inputs.bias)[:, None, None]


def _convolved(case: Case, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    pad: Any = case.params.get("padding", 0)
    if case.kernel == "FullyConnected":
        return F.linear(x.flatten(1), weight.flatten(1), bias)[:, :, None, None]
    if case.kernel == "ConvolutionTranspose":
        if isinstance(pad, str):
            return None
        extra = case.pair("output_padding") if "output_padding" in case.params else (0, 0)
        sides = _sides(pad)
        # Compute the whole result, then crop it; output_padding appends pixels that PyTorch's own formula omits.
        y = F.conv_transpose2d(x, weight, None, stride=case.pair("stride"), groups=case.groups)
        y = F.pad(y, [-sides[2], extra[1] - sides[3], -sides[0], extra[0] - sides[1]])
        return y if bias is None else y + bias[:, None, None]
    dilation, stride = case.pair("dilation"), case.pair("stride")
    dilated = tuple((k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilation, strict=True))
    if isinstance(pad, str):
        amounts = _same(case, dilated, tuple(x.shape[2:]))
        if amounts is None:
            return None
    else:
        top, bottom, left, right = _sides(pad)
        amounts = [left, right, top, bottom]
    mode = "replicate" if case.params.get("edge_mode") == "clamp" else "constant"
    groups = weight.shape[0] if case.layout == "C1HW" else case.groups
    return F.conv2d(F.pad(x, amounts, mode=mode), weight, bias, stride=stride, dilation=dilation, groups=groups)


def _sides(pad: Any) -> tuple[int, int, int, int]:
    """Return top, bottom, left, right."""
    if isinstance(pad, int):
        return pad, pad, pad, pad
    if isinstance(pad[0], int):
        return pad[0], pad[0], pad[1], pad[1]
    return (*pad[0], *pad[1])
