# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples (torch.testing's OpInfo) of operators that both have, float32, against PyTorch's results.

An adapter turns a sample into the kernel and its sources, or returns the reason why MPS cannot compute it. Tensors of
element-wise operators and reductions become (N, H, W, C) with ones in front; those of network layers are (N, C, H, W).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn

F = torch.nn.functional

# (kernel, sources, conversion of the result), or the reason for skipping a sample.
Adapted = tuple[Any, list[np.ndarray], Callable[[np.ndarray], np.ndarray]] | str


def front(x: torch.Tensor) -> np.ndarray:
    """Prepend ones up to four axes."""
    return np.ascontiguousarray(x.numpy().reshape((1,) * (4 - x.ndim) + tuple(x.shape)))


def nhwc(x: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1))


def nchw(y: np.ndarray) -> np.ndarray:
    return y.transpose(0, 3, 1, 2)


def pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def _unary(make: Callable[..., Any]) -> Callable[[Any], Adapted]:
    def adapt(sample: Any) -> Adapted:
        if sample.input.numel() == 0 or sample.input.ndim > 4:
            return "no values, or too many axes"
        made = make(*sample.args, **sample.kwargs)
        if isinstance(made, str):
            return made
        return made, [front(sample.input)], lambda y: y.reshape(sample.input.shape)

    return adapt


def _softplus(sample: Any) -> Adapted:
    beta, threshold = sample.kwargs.get("beta", 1.0), sample.kwargs.get("threshold", 20.0)
    x = sample.input.numpy()
    if x.size == 0 or x.ndim > 4:
        return "no values, or too many axes"

    def with_line(y: np.ndarray) -> np.ndarray:
        """Replace values above the threshold by PyTorch's line, which the curve approaches for large thresholds."""
        return np.where(beta * x > threshold, x, y.reshape(x.shape))

    return mpscnn.NeuronSoftPlus(1 / beta, beta), [front(sample.input)], with_line


def _gelu(approximate: str = "none") -> Any:
    return mpscnn.Neuron("gelu") if approximate == "none" else "another approximation"


def _prelu(sample: Any) -> Adapted:
    x, slopes = sample.input, sample.args[0] if sample.args else sample.kwargs["weight"]
    if x.ndim < 2 or x.ndim > 4 or x.numel() == 0 or slopes.numel() not in (1, x.shape[1]):
        return "no image"
    image = x.reshape((*x.shape[:2], *((1,) * (4 - x.ndim)), *x.shape[2:]))
    kernel = mpscnn.NeuronPReLU(slopes.reshape(-1).expand(x.shape[1]).tolist())
    return kernel, [nhwc(image)], lambda y: nchw(y).reshape(x.shape)


def _binary(kernel: str) -> Callable[[Any], Adapted]:
    def adapt(sample: Any) -> Adapted:
        x, other = sample.input, sample.args[0]
        if sample.kwargs.get("rounding_mode") is not None:
            return "rounded quotients"
        other = other if isinstance(other, torch.Tensor) else torch.tensor(float(other))
        shape = torch.broadcast_shapes(x.shape, other.shape)
        if len(shape) > 4 or 0 in shape or x.is_complex():
            return "no values, or too many axes"
        made = getattr(mpscnn, kernel)(secondary_scale=float(sample.kwargs.get("alpha", 1.0)))
        return made, [front(x), front(other)], lambda y: y.reshape(shape)

    return adapt


def _convolution(sample: Any) -> Adapted:
    x, (weight, *rest), options = sample.input, sample.args, sample.kwargs
    bias, groups, padding = (rest or [None])[0], options.get("groups", 1), options.get("padding", 0)
    if x.ndim != 4:
        return "not an image"
    per_group = (x.shape[1] // groups, weight.shape[0] // groups)
    if groups > 1 and per_group != (1, 1) and (per_group[0] % 4 or per_group[1] % 4):
        return "groups of channels that are no multiples of 4"
    if isinstance(padding, str) and padding == "same":
        extent = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], pair(options.get("dilation", 1)), strict=True)]
        padding = tuple(((e - 1) // 2, e - 1 - (e - 1) // 2) for e in extent)
    elif isinstance(padding, str):
        padding = 0
    kernel = mpscnn.Convolution(
        weight.numpy(),
        None if bias is None else bias.numpy(),
        stride=options.get("stride", 1),
        padding=padding if isinstance(padding, int) else tuple(padding),
        dilation=options.get("dilation", 1),
        groups=groups,
    )
    return kernel, [nhwc(x)], nchw


def _transpose(sample: Any) -> Adapted:
    x, (weight, *rest), options = sample.input, sample.args, sample.kwargs
    bias, groups = (rest or [None])[0], options.get("groups", 1)
    if x.ndim != 4 or pair(options.get("dilation", 1)) != (1, 1):
        return "not an image, or dilated"
    if groups > 1 and (weight.shape[0] // groups % 4 or weight.shape[1] % 4):
        return "groups of channels that are no multiples of 4"
    extra, stride = pair(options.get("output_padding", 0)), pair(options.get("stride", 1))
    if extra[0] >= stride[0] or extra[1] >= stride[1]:
        return "output_padding that is not less than the stride"
    kernel = mpscnn.ConvolutionTranspose(
        weight.numpy(),
        None if bias is None else bias.numpy(),
        stride=stride,
        padding=pair(options.get("padding", 0)),
        output_padding=extra,
        groups=groups,
    )
    return kernel, [nhwc(x)], nchw


def _linear(sample: Any) -> Adapted:
    x, (weight, *rest) = sample.input, sample.args
    if x.ndim < 2 or x.numel() == 0 or weight.ndim != 2:
        return "no batch"
    bias = rest[0].numpy() if rest and rest[0] is not None else None
    shape = (*x.shape[:-1], len(weight))
    return (
        mpscnn.FullyConnected(weight.numpy(), bias),
        [x.reshape(-1, 1, 1, x.shape[-1]).numpy()],
        lambda y: y.reshape(shape),
    )


def _max_pool(sample: Any) -> Adapted:
    x, options = sample.input, sample.kwargs
    if x.ndim != 4 or options.get("return_indices") or 0 in x.shape:
        return "not an image, or indices wanted"
    dilation, padding = pair(options.get("dilation", 1)), pair(options.get("padding", 0))
    stride = options.get("stride") or options["kernel_size"]
    common = {"stride": pair(stride), "padding": padding, "ceil_mode": bool(options.get("ceil_mode", False))}
    if dilation == (1, 1):
        return mpscnn.PoolingMax(pair(options["kernel_size"]), **common), [nhwc(x)], nchw
    if padding != (0, 0) or common["ceil_mode"]:
        return "clamped taps of a dilated window read pixels that PyTorch leaves out"
    return mpscnn.DilatedPoolingMax(pair(options["kernel_size"]), dilation, **common), [nhwc(x)], nchw


def _avg_pool(
    x: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Adapted:
    if x.ndim != 4 or divisor_override is not None:
        return "not an image, or a divisor of its own"
    kernel = mpscnn.PoolingAverage(
        pair(kernel_size),
        pair(stride or kernel_size),
        pair(padding),
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )
    return kernel, [nhwc(x)], nchw


def _softmax(kernel: str) -> Callable[[Any], Adapted]:
    def adapt(sample: Any) -> Adapted:
        x, dim = sample.input, sample.args[0] if sample.args else sample.kwargs.get("dim")
        if sample.kwargs.get("dtype") not in (None, torch.float32) or x.ndim == 0 or x.ndim > 4 or x.numel() == 0:
            return "another type, no values, or too many axes"
        moved = x.movedim(dim, -1)
        back = tuple(moved.shape)
        return (
            getattr(mpscnn, kernel)(),
            [front(moved.contiguous())],
            lambda y: np.moveaxis(y.reshape(back), -1, dim),
        )

    return adapt


def _interpolate(sample: Any) -> Adapted:
    x, options = sample.input, dict(sample.kwargs)
    size = sample.args[0] if sample.args else options.get("size")
    if x.ndim != 4:
        return "not an image"
    if size is None:
        scale = options["scale_factor"]
        scale = scale if isinstance(scale, (tuple, list)) else (scale, scale)
        size = [int(extent * factor) for extent, factor in zip(x.shape[2:], scale, strict=True)]
    size = [size, size] if isinstance(size, int) else list(size)
    size = size * 2 if len(size) == 1 else size
    if options["mode"] == "bilinear" and options.get("align_corners"):
        return mpscnn.ResizeBilinear(tuple(size), align_corners=True), [nhwc(x)], nchw
    return "pixels half a pixel further"


def _batch_norm(
    x: torch.Tensor,
    mean: Any,
    variance: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Adapted:
    if x.ndim != 4 or mean is None or 0 in x.shape:
        return "not an image, or no statistics"
    if training:
        return "statistics of the batch"
    gamma = np.ones(x.shape[1], np.float32) if weight is None else weight.numpy()
    beta = None if bias is None else bias.numpy()
    return mpscnn.BatchNormalization(gamma, beta, mean.numpy(), variance.numpy(), epsilon=eps), [nhwc(x)], nchw


def _instance_norm(
    x: torch.Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Adapted:
    if x.ndim != 4 or not use_input_stats:
        return "not an image, or other statistics"
    gamma = np.ones(x.shape[1], np.float32) if weight is None else weight.numpy()
    return mpscnn.InstanceNormalization(gamma, None if bias is None else bias.numpy(), epsilon=eps), [nhwc(x)], nchw


def _group_norm(x: torch.Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Adapted:
    if x.ndim < 2 or x.ndim > 4 or x.numel() == 0 or eps < 0:
        return "no image, or an epsilon below 0"
    image = x.reshape((*x.shape[:2], *((1,) * (4 - x.ndim)), *x.shape[2:]))
    gamma = np.ones(x.shape[1], np.float32) if weight is None else weight.numpy()
    kernel = mpscnn.GroupNormalization(gamma, None if bias is None else bias.numpy(), groups=groups, epsilon=eps)
    return kernel, [nhwc(image)], lambda y: nchw(y).reshape(x.shape)


def _local_response(x: torch.Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Adapted:
    if x.ndim < 3 or x.ndim > 4 or 0 in x.shape:
        return "no image"
    image = x.reshape((*x.shape[:2], *((1,) * (4 - x.ndim)), *x.shape[2:]))
    kernel = mpscnn.CrossChannelNormalization(size, alpha=alpha, beta=beta, delta=k)
    return kernel, [nhwc(image)], lambda y: nchw(y).reshape(x.shape)


def _pad(x: torch.Tensor, amounts: Any, mode: str = "constant", value: Any = None) -> Adapted:
    if x.ndim != 4 or x.numel() == 0 or len(amounts) > 4 or min(amounts) < 0 or mode == "circular":
        return "not an image, fewer pixels, or a source that goes round"
    left, right, top, bottom = [*amounts, 0, 0, 0, 0][:4]
    edge = {"constant": "constant", "reflect": "mirror", "replicate": "clamp"}[mode]
    kernel = mpscnn.Pad(((top, bottom), (left, right)), edge_mode=edge, **({"value": value} if value else {}))
    return kernel, [nhwc(x)], nchw


def _reduction(kernels: dict[int, str]) -> Callable[[Any], Adapted]:
    """`kernels` by the axis of (N, H, W, C)."""

    def adapt(sample: Any) -> Adapted:
        x, options = sample.input, dict(sample.kwargs)
        dim = sample.args[0] if sample.args else options.get("dim")
        dims = [dim] if isinstance(dim, int) else list(dim or [])
        if x.ndim == 0 or x.ndim > 4 or x.numel() == 0 or len(dims) != 1 or options.get("dtype") is not None:
            return "not along one axis"
        axis = dims[0] % x.ndim + 4 - x.ndim
        if axis not in kernels:
            return "along the images"
        keep = options.get("keepdim", False) or (len(sample.args) > 1 and sample.args[1])
        shape = [1 if i == dims[0] % x.ndim else n for i, n in enumerate(x.shape) if keep or i != dims[0] % x.ndim]
        return getattr(mpscnn, kernels[axis])(), [front(x)], lambda y: y.reshape(shape)

    return adapt


def _folds(kind: str) -> Callable[[Any], Adapted]:
    return _reduction(
        {axis: f"Reduce{name}{kind}" for axis, name in ((1, "Column"), (2, "Row"), (3, "FeatureChannels"))}
    )


def _of(function: Callable[..., Adapted]) -> Callable[[Any], Adapted]:
    return lambda sample: function(sample.input, *sample.args, **sample.kwargs)


# Operator, variant: the adapter, and the min number of samples that it accepts.
OPERATORS: dict[tuple[str, str], tuple[Callable[[Any], Adapted], int]] = {
    ("abs", ""): (_unary(lambda: mpscnn.NeuronAbsolute()), 1),
    ("exp", ""): (_unary(lambda: mpscnn.NeuronExponential()), 1),
    ("log", ""): (_unary(lambda: mpscnn.NeuronLogarithm()), 1),
    ("sigmoid", ""): (_unary(lambda: mpscnn.NeuronSigmoid()), 1),
    ("tanh", ""): (_unary(lambda: mpscnn.NeuronTanH()), 1),
    ("nn.functional.elu", ""): (_unary(lambda alpha=1.0: mpscnn.NeuronELU(alpha)), 2),
    ("nn.functional.gelu", ""): (_unary(_gelu), 1),
    ("nn.functional.hardsigmoid", ""): (_unary(lambda: mpscnn.NeuronHardSigmoid(1 / 6, 0.5)), 1),
    ("nn.functional.leaky_relu", ""): (_unary(lambda negative_slope=0.01: mpscnn.NeuronReLU(negative_slope)), 2),
    ("nn.functional.prelu", ""): (_prelu, 1),
    ("nn.functional.relu", ""): (_unary(lambda: mpscnn.NeuronReLU()), 1),
    ("nn.functional.relu6", ""): (_unary(lambda: mpscnn.NeuronReLUN(0.0, 6.0)), 1),
    ("nn.functional.softplus", ""): (_softplus, 1),
    ("nn.functional.softsign", ""): (_unary(lambda: mpscnn.NeuronSoftSign()), 1),
    ("add", ""): (_binary("Add"), 5),
    ("sub", ""): (_binary("Subtract"), 5),
    ("mul", ""): (_binary("Multiply"), 5),
    ("div", "no_rounding_mode"): (_binary("Divide"), 5),
    ("nn.functional.conv2d", ""): (_convolution, 8),
    ("nn.functional.conv_transpose2d", ""): (_transpose, 2),
    ("nn.functional.linear", ""): (_linear, 2),
    ("nn.functional.max_pool2d", ""): (_max_pool, 50),
    ("nn.functional.avg_pool2d", ""): (_of(_avg_pool), 2),
    ("softmax", ""): (_softmax("SoftMax"), 3),
    ("log_softmax", ""): (_softmax("LogSoftMax"), 3),
    ("nn.functional.interpolate", "bilinear"): (_interpolate, 1),
    ("nn.functional.batch_norm", ""): (_of(_batch_norm), 1),
    ("nn.functional.instance_norm", ""): (_of(_instance_norm), 1),
    ("nn.functional.group_norm", ""): (_of(_group_norm), 2),
    ("nn.functional.local_response_norm", ""): (_of(_local_response), 3),
    ("nn.functional.pad", "constant"): (_of(_pad), 5),
    ("nn.functional.pad", "reflect"): (_of(_pad), 1),
    ("nn.functional.pad", "replicate"): (_of(_pad), 1),
    ("amax", ""): (_folds("Max"), 3),
    ("amin", ""): (_folds("Min"), 3),
    ("sum", ""): (_folds("Sum"), 3),
    ("mean", ""): (_folds("Mean"), 3),
    ("argmax", ""): (_reduction({3: "ReduceFeatureChannelsArgumentMax"}), 1),
    ("argmin", ""): (_reduction({3: "ReduceFeatureChannelsArgumentMin"}), 1),
}


@cache
def op_db() -> dict[tuple[str, str], Any]:
    pytest.importorskip("expecttest", reason="torch.testing's samples need it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db as rows

    return {(row.name, row.variant_test_name): row for row in rows}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS, ids="/".join)
def test_samples(name: tuple[str, str]) -> None:
    adapt, least = OPERATORS[name]
    torch.manual_seed(0)
    tried, left_out = 0, set()
    operator = op_db()[name]
    for sample in operator.sample_inputs("cpu", torch.float32):
        adapted = adapt(sample)
        if isinstance(adapted, str):
            left_out.add(adapted)
            continue
        kernel, sources, finish = adapted
        theirs = operator.op(sample.input, *sample.args, **sample.kwargs)
        found = torch.from_numpy(np.array(finish(kernel(*sources)), order="C"))
        torch.testing.assert_close(
            found, theirs.to(torch.float32), rtol=1e-4, atol=1e-4, equal_nan=True, msg=str(sample)
        )
        tried += 1
    assert tried >= least, f"{tried} samples; left out: {left_out}"
