# SPDX-License-Identifier: Apache-2.0
"""The ATen operators that kernels compute: OPERATORS, by name, as functions of a Builder and Arguments.

Both the operators that torch.export writes and those of the core ATen set, after run_decompositions().
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InvalidModelError
from .builder import Builder, Tensor, UnmappedError
from .ops import activation, arithmetic, convolution, normalization, pooling, reduction, resize, shape
from .torch_arguments import Arguments, Computed, Merged, Missing, Operand, Sized, same_extent

Operator: TypeAlias = "Callable[[Builder, Arguments], Any]"

OPERATORS: dict[str, Operator] = {}
Function = TypeVar("Function", bound=Callable[..., Any])


def operator(*names: str) -> Callable[[Function], Function]:
    """The function computes operators of these names, whatever overload."""

    def enter(function: Function) -> Function:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = function
        return function

    return enter


# ---- convolutions and linear layers


@operator("conv2d", "conv1d")
def _conv(b: Builder, a: Arguments) -> Tensor:
    weight = a.array("weight")
    padding: Any = a["padding"] if isinstance(a["padding"], str) else a.integers("padding")
    return _convolution(b, a, weight, padding, a.integer("groups"))


def _convolution(b: Builder, a: Arguments, weight: NDArray[Any], padding: Any, groups: int) -> Tensor:
    x, bias = a.source, a.optional_array("bias")
    if x.rank == weight.ndim - 1:
        raise UnmappedError(f"an input without a batch, {x.rank} axes")
    if weight.ndim == 4:
        return convolution.conv2d(b, x, weight, bias, a.pair("stride"), padding, a.pair("dilation"), groups)
    if weight.ndim == 3:
        pads = padding if isinstance(padding, str) else a.one("padding")
        return convolution.conv1d(b, x, weight, bias, a.one("stride"), pads, a.one("dilation"), groups)
    raise UnmappedError(f"a convolution along {weight.ndim - 2} axes")


@operator("conv_transpose2d", "conv_transpose1d")
def _conv_transpose(b: Builder, a: Arguments) -> Tensor:
    x, weight, bias = a.source, a.array("weight"), a.optional_array("bias")
    if x.rank == weight.ndim - 1:
        raise UnmappedError(f"an input without a batch, {x.rank} axes")
    if weight.ndim == 4:
        return convolution.conv_transpose2d(
            b,
            x,
            weight,
            bias,
            a.pair("stride"),
            a.pair("padding"),
            a.pair("output_padding"),
            a.integer("groups"),
            a.pair("dilation"),
        )
    if weight.ndim == 3:
        return convolution.conv_transpose1d(
            b,
            x,
            weight,
            bias,
            a.one("stride"),
            a.one("padding"),
            a.one("output_padding"),
            a.integer("groups"),
            a.one("dilation"),
        )
    raise UnmappedError(f"a transposed convolution along {weight.ndim - 2} axes")


@operator("convolution", "_convolution")
def _core_convolution(b: Builder, a: Arguments) -> Tensor:
    if a["transposed"]:
        return _conv_transpose(b, a)
    return _convolution(b, a, a.array("weight"), a.integers("padding"), a.integer("groups"))


def _linear(b: Builder, value: Any, weight: NDArray[Any], bias: NDArray[Any] | None, a: Arguments) -> Any:
    """A linear layer, also of pixels that were taken together with the batch."""
    if isinstance(value, Merged):
        if value.tensor.shape[-1:] != value.shape[-1:]:
            raise UnmappedError(f"a linear layer on {value.shape}, the batch taken together with other axes")
        return Merged(convolution.linear(b, value.tensor, weight, bias), (*value.shape[:-1], len(weight)))
    return convolution.linear(b, a.tensor("input") if value is None else value, weight, bias)


def _first(a: Arguments, name: str) -> Any:
    return a[name] if isinstance(a[name], Merged) else a.tensor(name)


@operator("linear")
def _linear_layer(b: Builder, a: Arguments) -> Any:
    return _linear(b, _first(a, "input"), a.array("weight"), a.optional_array("bias"), a)


@operator("addmm")
def _addmm(b: Builder, a: Arguments) -> Any:
    source, weight, bias = _first(a, "mat1"), a.array("mat2").T, a.array("self")
    alpha, beta = a.number("alpha"), a.number("beta")
    if bias.ndim > 1 and bias.shape[0] == 1:
        bias = bias[0]
    if bias.ndim == 0 or bias.shape == (1,):
        bias = np.full(len(weight), bias.reshape(()), np.float32)
    return _linear(b, source, weight if alpha == 1 else weight * alpha, bias if beta == 1 else bias * beta, a)


@operator("mm", "matmul", "bmm")
def _matmul(b: Builder, a: Arguments) -> Any:
    name, other = ("mat2", a["mat2"]) if "mat2" in a else ("other", a["other"])
    if not isinstance(other, torch.Tensor):
        raise UnmappedError("a product of two matrices that the network computes")
    weight = a.array(name)
    if weight.ndim == 3 and (weight == weight[:1]).all():
        weight = weight[0]  # the same for each row of pixels, as core ATen repeats it
    if weight.ndim != 2:
        raise UnmappedError(f"a product with a constant of shape {weight.shape}")
    return _linear(b, _first(a, "self"), weight.T, None, a)


# ---- normalization


@operator("batch_norm", "_native_batch_norm_legit", "native_batch_norm")
def _batch_norm(b: Builder, a: Arguments) -> Any:
    several = a.node.target._schema.name != "aten::batch_norm"  # type: ignore[union-attr]
    if a["training"]:
        if several and "running_mean" not in a:
            return [_instance_norm_of_batch(b, a), *[Missing("statistics of a normalization")] * 2]
        raise UnmappedError("normalization by the statistics of the batch: call module.eval() before the export")
    names, eps = ("running_mean", "running_var", "weight", "bias"), a.number("eps")
    y: Tensor | Merged
    if isinstance(a["input"], Merged):
        x = _images_as_channels(a["input"])
        mean, variance, weight, bias = (_one_of_many(a.optional_array(name), x.channels, name) for name in names)
        assert mean is not None
        assert variance is not None
        y = Merged(normalization.batch_norm(b, x, mean, variance, weight, bias, eps), a["input"].shape)
    else:
        mean, variance = a.array("running_mean"), a.array("running_var")
        weight, bias = a.optional_array("weight"), a.optional_array("bias")
        y = normalization.batch_norm(b, a.source, mean, variance, weight, bias, eps)
    return [y, *[Missing("statistics of a normalization")] * 3] if several else y


@operator("_native_batch_norm_legit_no_training")
def _batch_norm_in_inference(b: Builder, a: Arguments) -> Any:
    a.values["training"] = False
    return _batch_norm(b, a)


def _instance_norm_of_batch(b: Builder, a: Arguments) -> Merged | Tensor:
    """Core ATen's instance normalization: batch normalization of one image with the channels of all."""
    source = a["input"]
    eps = a.number("eps")
    if isinstance(source, Merged):
        x = _images_as_channels(source)
        weight, bias = (_one_of_many(a.optional_array(name), x.channels, name) for name in ("weight", "bias"))
        return Merged(normalization.instance_norm(b, x, None, None, weight, bias, True, eps), source.shape)
    # Of a batch of one image the two are the same: what it is, is seen by the view in front of it.
    before = a.node.args[0]
    if isinstance(before, torch.fx.Node) and "view" in str(before.target) and a.batch == 1:
        return normalization.instance_norm(
            b, a.tensor("input"), None, None, a.optional_array("weight"), a.optional_array("bias"), True, eps
        )
    raise UnmappedError("normalization by the statistics of the batch: call module.eval() before the export")


def _images_as_channels(source: Merged) -> Tensor:
    """The tensor in one image with the channels of all."""
    x = source.tensor
    if source.shape[0] != 1 or source.shape[2:] != x.shape[1:] or x.axes[1:2] != "C":
        raise UnmappedError(f"normalization of {source.shape}, the batch taken together with other axes")
    return x


def _one_of_many(values: NDArray[Any] | None, channels: int, name: str) -> NDArray[Any] | None:
    """Values that are repeated for each image, once."""
    if values is None:
        return None
    rows = values.reshape(-1, channels)
    if (rows != rows[0]).any():
        raise UnmappedError(f"{name}: values of their own for each image")
    first: NDArray[Any] = rows[0]
    return first


@operator("instance_norm")
def _instance_norm(b: Builder, a: Arguments) -> Tensor:
    return normalization.instance_norm(
        b,
        a.source,
        a.optional_array("running_mean"),
        a.optional_array("running_var"),
        a.optional_array("weight"),
        a.optional_array("bias"),
        a["use_input_stats"],
        a.number("eps"),
    )


@operator("group_norm")
def _group_norm(b: Builder, a: Arguments) -> Tensor:
    return normalization.group_norm(
        b, a.source, a.integer("num_groups"), a.optional_array("weight"), a.optional_array("bias"), a.number("eps")
    )


@operator("native_group_norm")
def _native_group_norm(b: Builder, a: Arguments) -> list[Any]:
    y = normalization.group_norm(
        b, a.source, a.integer("group"), a.optional_array("weight"), a.optional_array("bias"), a.number("eps")
    )
    return [y, *[Missing("statistics of a normalization")] * 2]


@operator("layer_norm")
def _layer_norm(b: Builder, a: Arguments) -> Tensor:
    return normalization.layer_norm(
        b,
        a.source,
        a.integers("normalized_shape"),
        a.optional_array("weight"),
        a.optional_array("bias"),
        a.number("eps"),
    )


@operator("native_layer_norm")
def _native_layer_norm(b: Builder, a: Arguments) -> list[Any]:
    return [_layer_norm(b, a), *[Missing("statistics of a normalization")] * 2]


# ---- activations


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
            if name == "min" and a.values.get("max") is None:
                return arithmetic.maximum(b, a.source, value)
            if name == "max" and a.values.get("min") is None:
                return arithmetic.minimum(b, a.source, value)
            raise UnmappedError("bounds that are not numbers")
        bounds.append(None if value is None else float(value))
    return activation.clamp(b, a.source, *bounds)


@operator("threshold")
def _threshold(b: Builder, a: Arguments) -> Tensor:
    return activation.threshold(b, a.source, a.number("threshold"), a.number("value"))


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
    values, gates = shape.split(b, a.source, a.source.shape[_dim(a, "dim") - 1] // 2, _dim(a, "dim"))
    return arithmetic.multiply(b, values, activation.sigmoid(b, gates))


# ---- arithmetic


def _of_two(b: Builder, function: Callable[..., Tensor], first: Operand, second: Operand, **options: Any) -> Tensor:
    """A function of two operands. One that cannot be broadcast where it lies is arranged like the larger one."""
    try:
        return function(b, first, second, **options)
    except UnmappedError:
        if not (isinstance(first, Tensor) and isinstance(second, Tensor)) or first.rank != second.rank:
            raise
        like = first if first.size >= second.size else second
        if like.flat is not None:
            raise
        first, second = (x if x is like else shape.arrange(b, x, like.axes) for x in (first, second))
        return function(b, first, second, **options)


@operator("add")
def _add(b: Builder, a: Arguments) -> Tensor:
    return _of_two(b, arithmetic.add, a.operand("self"), a.operand("other"), alpha=a.number("alpha"))


@operator("sub", "subtract")
def _sub(b: Builder, a: Arguments) -> Tensor:
    return _of_two(b, arithmetic.subtract, a.operand("self"), a.operand("other"), alpha=a.number("alpha"))


@operator("rsub")
def _rsub(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.subtract(b, a.operand("other"), a.operand("self"), alpha=a.number("alpha"))


@operator("mul", "multiply")
def _mul(b: Builder, a: Arguments) -> Tensor:
    return _of_two(b, arithmetic.multiply, a.operand("self"), a.operand("other"))


@operator("div", "divide", "true_divide")
def _div(b: Builder, a: Arguments) -> Tensor:
    a.refuse(rounding_mode=None)
    return _of_two(b, arithmetic.divide, a.operand("self"), a.operand("other"))


@operator("pow")
def _pow(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.pow(b, a.operand("self"), a.operand("exponent"))


@operator("maximum")
def _maximum(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.maximum(b, a.operand("self"), a.operand("other"))


@operator("minimum")
def _minimum(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.minimum(b, a.operand("self"), a.operand("other"))


@operator("addcmul")
def _addcmul(b: Builder, a: Arguments) -> Tensor:
    product = _product(b, a.operand("tensor1"), a.operand("tensor2"))
    return arithmetic.add(b, a.operand("self"), product, alpha=a.number("value"))


def _product(b: Builder, first: Operand, second: Operand) -> Operand:
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        return arithmetic.multiply(b, first, second)
    product: NDArray[Any] = np.asarray(first) * np.asarray(second)
    return product


@operator("addcdiv")
def _addcdiv(b: Builder, a: Arguments) -> Tensor:
    first, second = a.operand("tensor1"), a.operand("tensor2")
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        quotient: Operand = arithmetic.divide(b, first, second)
    else:
        quotient = np.asarray(first) / np.asarray(second)
    return arithmetic.add(b, a.operand("self"), quotient, alpha=a.number("value"))


@operator("lerp")
def _lerp(b: Builder, a: Arguments) -> Tensor:
    start, end, weight = (a.operand(name) for name in ("self", "end", "weight"))
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        distance: Operand = arithmetic.subtract(b, end, start)
    else:
        distance = np.asarray(end) - np.asarray(start)
    return arithmetic.add(b, start, _product(b, distance, weight))


# ---- reductions


def _dims(a: Arguments, name: str = "dim") -> tuple[int, ...]:
    """Axes; UnmappedError where none stand for all, the batch included."""
    if name not in a or a[name] is None or a[name] == []:
        raise UnmappedError("a reduction over all axes, the batch included")
    return a.integers(name)


def _dim(a: Arguments, name: str) -> int:
    """One axis, not negative."""
    dim, rank = a.integer(name), a.source.rank
    if not -rank <= dim < rank:
        raise InvalidModelError(f"{a.builder.origin}: {name} ({dim}) is not one of the {rank} axes.")
    return dim + rank if dim < 0 else dim


def _reduction(names: str, function: Callable[..., Tensor]) -> None:
    @operator(*names.split())
    def reduce(b: Builder, a: Arguments) -> Tensor:
        _refuse_dtype(a)
        return function(b, a.source, _dims(a), bool(a["keepdim"]))


def _refuse_dtype(a: Arguments) -> None:
    if a.values.get("dtype") not in (None, torch.float32, a.node.meta["val"].dtype):
        raise UnmappedError(f"a result of {a['dtype']}")


_reduction("mean", reduction.mean)
_reduction("sum", reduction.sum)
_reduction("amax", reduction.amax)
_reduction("amin", reduction.amin)
_reduction("logsumexp", reduction.logsumexp)


def _extremum(name: str, function: Callable[..., Tensor], index: Callable[..., Tensor], pair: Operator) -> None:
    @operator(name)
    def reduce(b: Builder, a: Arguments) -> Any:
        if "other" in a:
            return pair(b, a)
        dims, keepdim = _dims(a), bool(a["keepdim"])
        users = {user.args[1] for user in a.node.users}
        values: Any = function(b, a.source, dims, keepdim) if 0 in users else Missing("values that nothing reads")
        indices: Any = index(b, a.source, dims[0], keepdim) if 1 in users else Missing("indices that nothing reads")
        return [values, indices]


_extremum("max", reduction.amax, reduction.argmax, _maximum)
_extremum("min", reduction.amin, reduction.argmin, _minimum)


@operator("argmax")
def _argmax(b: Builder, a: Arguments) -> Tensor:
    return reduction.argmax(b, a.source, _dims(a)[0], bool(a["keepdim"]))


@operator("argmin")
def _argmin(b: Builder, a: Arguments) -> Tensor:
    return reduction.argmin(b, a.source, _dims(a)[0], bool(a["keepdim"]))


@operator("softmax", "_softmax", "special_softmax")
def _softmax(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    return reduction.softmax(b, a.source, a.integer("dim"))


@operator("log_softmax", "_log_softmax", "special_log_softmax")
def _log_softmax(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    return reduction.log_softmax(b, a.source, a.integer("dim"))


@operator("linalg_vector_norm", "norm", "frobenius_norm")
def _norm(b: Builder, a: Arguments) -> Tensor:
    _refuse_dtype(a)
    ord_ = next((a.optional_number(name) for name in ("ord", "p") if name in a), 2.0)
    return reduction.norm(b, a.source, 2.0 if ord_ is None else ord_, _dims(a), bool(a["keepdim"]))


def _variance(b: Builder, a: Arguments) -> Tensor:
    x, dims = a.source, _dims(a)
    if "correction" in a:
        correction = 1.0 if a["correction"] is None else a.number("correction")
    else:
        correction = 1.0 if a["unbiased"] else 0.0
    distance = arithmetic.subtract(b, x, reduction.mean(b, x, dims, True))
    mean = reduction.mean(b, arithmetic.square(b, distance), dims, bool(a["keepdim"]))
    if correction == 0:
        return mean
    if x.flat is not None:
        raise UnmappedError(f"a variance of {x.shape}, whose axes were taken together or apart")
    axes = "".join(x.axis(dim) for dim in dims)
    b.fix_unless_constant(x, axes)
    count = math.prod(x.extent(axis) for axis in axes)
    if count <= correction:
        raise UnmappedError(f"a variance of {count} values with a correction of {correction}")
    return arithmetic.multiply(b, mean, count / (count - correction))


@operator("var")
def _var(b: Builder, a: Arguments) -> Tensor:
    return _variance(b, a)


@operator("std")
def _std(b: Builder, a: Arguments) -> Tensor:
    return arithmetic.sqrt(b, _variance(b, a))


@operator("var_mean")
def _var_mean(b: Builder, a: Arguments) -> list[Tensor]:
    return [_variance(b, a), reduction.mean(b, a.source, _dims(a), bool(a["keepdim"]))]


# ---- pooling


def _window(a: Arguments, name: str, one: bool) -> Any:
    return a.one(name) if one else a.pair(name)


def _max_pool(b: Builder, a: Arguments, one: bool) -> Tensor:
    stride = _window(a, "stride", one) if a["stride"] else None
    return pooling.max_pool2d(
        b,
        _pooled(a, one),
        _window(a, "kernel_size", one),
        stride,
        _window(a, "padding", one),
        _window(a, "dilation", one),
        bool(a["ceil_mode"]),
    )


def _pooled(a: Arguments, one: bool) -> Tensor:
    x = a.source
    if x.rank != (3 if one else 4):
        raise UnmappedError(f"pooling of a tensor with {x.rank} axes, without a batch")
    return x


@operator("max_pool2d")
def _max_pool2d(b: Builder, a: Arguments) -> Tensor:
    return _max_pool(b, a, False)


@operator("max_pool1d")
def _max_pool1d(b: Builder, a: Arguments) -> Tensor:
    return _max_pool(b, a, True)


@operator("max_pool2d_with_indices")
def _max_pool2d_with_indices(b: Builder, a: Arguments) -> list[Any]:
    return [_max_pool(b, a, False), Missing("indices of a pooling")]


@operator("max_pool1d_with_indices")
def _max_pool1d_with_indices(b: Builder, a: Arguments) -> list[Any]:
    return [_max_pool(b, a, True), Missing("indices of a pooling")]


def _avg_pool(b: Builder, a: Arguments, one: bool) -> Tensor:
    x = _pooled(a, one)
    window = a["kernel_size"]
    extents = a.shape_of("self")[-len(window) :]
    if all(isinstance(size, Sized) for size in window) and all(map(same_extent, window, extents)):
        a.refuse(padding=[0] * len(window))
        # A window that is computed from the source's extents covers all of it: a mean over any size.
        return reduction.mean(b, x, tuple(range(-len(window), 0)), True)
    return pooling.avg_pool2d(
        b,
        x,
        _window(a, "kernel_size", one),
        _window(a, "stride", one) if a["stride"] else None,
        _window(a, "padding", one),
        bool(a["ceil_mode"]),
        bool(a["count_include_pad"]),
        a.optional_integer("divisor_override") if "divisor_override" in a else None,
    )


@operator("avg_pool2d")
def _avg_pool2d(b: Builder, a: Arguments) -> Tensor:
    return _avg_pool(b, a, False)


@operator("avg_pool1d")
def _avg_pool1d(b: Builder, a: Arguments) -> Tensor:
    return _avg_pool(b, a, True)


@operator("adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def _adaptive_avg_pool2d(b: Builder, a: Arguments) -> Tensor:
    return pooling.adaptive_avg_pool2d(b, _pooled(a, False), a.pair("output_size"))


@operator("adaptive_avg_pool1d")
def _adaptive_avg_pool1d(b: Builder, a: Arguments) -> Tensor:
    return pooling.adaptive_avg_pool2d(b, _pooled(a, True), a.one("output_size"))


@operator("adaptive_max_pool2d")
def _adaptive_max_pool2d(b: Builder, a: Arguments) -> list[Any]:
    return [pooling.adaptive_max_pool2d(b, _pooled(a, False), a.pair("output_size")), Missing("indices of a pooling")]


@operator("adaptive_max_pool1d")
def _adaptive_max_pool1d(b: Builder, a: Arguments) -> list[Any]:
    x = _pooled(a, True)
    return [pooling.adaptive_max_pool2d(b, x, a.one("output_size")), Missing("indices of a pooling")]


# ---- resizing and padding


def _resize(mode: str, *names: str) -> None:
    @operator(*names)
    def resample(b: Builder, a: Arguments) -> Tensor:
        x = a.source
        count = x.rank - 2
        aligned = bool(a["align_corners"]) if "align_corners" in a else None
        scales: list[Any] | None
        if "scale_factors" in a:
            scales = a["scale_factors"]
        else:
            scales = [a[name] for name in ("scales_h", "scales_w", "scales") if name in a]
        if not scales or any(scale is None for scale in scales):
            scales = _whole_factors(a)
        if scales and not any(isinstance(scale, Computed) for scale in scales):
            factors = [float(scale) for scale in scales]
            return resize.interpolate(b, x, None, factors if count > 1 else factors[0], mode, aligned)
        if a["output_size"] is None:
            raise UnmappedError("a scale that is computed from the source's size")
        size = a.integers("output_size")
        return resize.interpolate(b, x, size if count > 1 else size[0], None, mode, aligned)


def _whole_factors(a: Arguments) -> list[int] | None:
    """How many times larger the result is where both are computed from the inputs: the same whole factor for all."""
    before = a.shape_of("self" if "self" in a else "input")[2:]
    factors = []
    for one, other in zip(before, a.shape[2:], strict=True):
        if not (isinstance(one, Sized) and isinstance(other, Sized)) or other % one:
            return None
        if other.expression != one.expression * (other // one):
            return None
        factors.append(other // one)
    return factors


_resize("nearest", "upsample_nearest2d", "upsample_nearest1d")
_resize("nearest-exact", "_upsample_nearest_exact2d", "_upsample_nearest_exact1d")
_resize("bilinear", "upsample_bilinear2d")
_resize("linear", "upsample_linear1d")


@operator("pad")
def _pad(b: Builder, a: Arguments) -> Tensor:
    return resize.pad(b, a.source, a.integers("pad"), a["mode"], a.optional_number("value"))


@operator("constant_pad_nd")
def _constant_pad(b: Builder, a: Arguments) -> Tensor:
    return resize.pad(b, a.source, a.integers("pad"), "constant", a.number("value"))


@operator("reflection_pad2d", "reflection_pad1d")
def _reflection_pad(b: Builder, a: Arguments) -> Tensor:
    return resize.pad(b, a.source, a.integers("padding"), "reflect")


@operator("replication_pad2d", "replication_pad1d")
def _replication_pad(b: Builder, a: Arguments) -> Tensor:
    return resize.pad(b, a.source, a.integers("padding"), "replicate")


@operator("pixel_shuffle")
def _pixel_shuffle(b: Builder, a: Arguments) -> Tensor:
    return resize.pixel_shuffle(b, a.source, a.integer("upscale_factor"))


@operator("pixel_unshuffle")
def _pixel_unshuffle(b: Builder, a: Arguments) -> Tensor:
    return resize.pixel_unshuffle(b, a.source, a.integer("downscale_factor"))


# ---- shapes


@operator("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as", "squeeze", "unsqueeze")
def _reshape(b: Builder, a: Arguments) -> Any:
    name = a.node.target._schema.name.removeprefix("aten::").rstrip("_")  # type: ignore[union-attr]
    if "dtype" in a:
        raise UnmappedError(f"values seen as {a['dtype']}")
    to = a.shape
    source = a["self"]
    if isinstance(source, Merged):
        if to and a.is_batch(to[0]) and tuple(map(int, to[1:])) == source.tensor.shape:
            return source.tensor
        raise UnmappedError(f"{source.shape}, the batch taken together with other axes, as {tuple(map(int, to))}")
    x = a.source
    if name == "squeeze" and "dim" in a:
        dims = [dim for dim in a.integers("dim") if dim % x.rank or int(a.batch) == 1]
        return shape.squeeze(b, x, dims)
    if name == "unsqueeze":
        return shape.unsqueeze(b, x, a.integer("dim"))
    if not to or not a.is_batch(to[0]):
        return Merged(x, tuple(map(int, to)))
    if name == "squeeze" and int(to[0]) == 1:
        raise UnmappedError("all axes of extent 1 squeezed, the batch of one image among them")
    computed = [place for place, extent in enumerate(to[1:]) if isinstance(extent, Sized) and extent.of_extents]
    return shape.reshape(b, x, [int(extent) for extent in to[1:]], computed)


@operator("permute")
def _permute(b: Builder, a: Arguments) -> Tensor:
    return shape.permute(b, a.source, a.integers("dims"))


@operator("transpose", "swapaxes", "swapdims")
def _transpose(b: Builder, a: Arguments) -> Tensor:
    first, second = ("axis0", "axis1") if "axis0" in a else ("dim0", "dim1")
    return shape.transpose(b, a.source, a.integer(first), a.integer(second))


@operator("mT")
def _matrix_transpose(b: Builder, a: Arguments) -> Tensor:
    return shape.transpose(b, a.source, -2, -1)


@operator("movedim", "moveaxis")
def _movedim(b: Builder, a: Arguments) -> Tensor:
    rank = a.source.rank
    sources, targets = ([dim % rank for dim in a.integers(name)] for name in ("source", "destination"))
    order = [dim for dim in range(rank) if dim not in sources]
    for target, source in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source)
    return shape.permute(b, a.source, order)


@operator("contiguous", "clone", "detach", "alias", "lift_fresh_copy", "positive")
def _same_values(b: Builder, a: Arguments) -> Any:
    return a["self"] if isinstance(a["self"], Merged) else a.source


@operator("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout")
def _dropout(b: Builder, a: Arguments) -> Any:
    if a["train"] and a.number("p") > 0:
        raise UnmappedError("dropout in training: call module.eval() before the export")
    return [a.source, Missing("the mask of a dropout")] if isinstance(a.node.meta["val"], (list, tuple)) else a.source


@operator("to", "_to_copy", "type_as")
def _to(b: Builder, a: Arguments) -> Any:
    before, after = a.node.args[0].meta["val"].dtype, a.node.meta["val"].dtype  # type: ignore[union-attr]
    if after not in (before, torch.float32):
        raise UnmappedError(f"a conversion from {before} to {after}")
    return a["self"] if isinstance(a["self"], Merged) else a.source


@operator("where")
def _where(b: Builder, a: Arguments) -> Any:
    condition = a["condition"]
    if not isinstance(condition, torch.Tensor):
        raise UnmappedError("a choice by values that the network computes")
    if condition.numel() != 1:
        raise UnmappedError(f"a choice by a mask of shape {tuple(condition.shape)}")
    return a.tensor("self" if bool(condition) else "other")


@operator("cat", "concat", "concatenate", "stack")
def _cat(b: Builder, a: Arguments) -> Tensor:
    values = list(a["tensors"])
    like = next((value for value in values if isinstance(value, Tensor)), None)
    if like is None:
        raise UnmappedError("a concatenation of " + next(v.why for v in values if isinstance(v, Missing)))
    tensors = []
    for place, value in enumerate(values):
        a.values["part"] = value
        if not isinstance(value, torch.Tensor):
            tensors.append(a.tensor("part"))
        elif value.numel() > 0:
            tensors.append(_constant_tensor(b, a, like, place))
    join = shape.stack if a.node.target._schema.name == "aten::stack" else shape.cat  # type: ignore[union-attr]
    return join(b, tensors, a.integer("dim"))


def _constant_tensor(b: Builder, a: Arguments, like: Tensor, place: int) -> Tensor:
    """A constant among tensors that are concatenated, with axes as `like` has them."""
    array = np.asarray(a.operand("part"), np.float32)
    if like.flat is not None or array.ndim != like.rank or len(array) != 1:
        raise UnmappedError(f"a concatenation with a constant of shape {array.shape}")
    missing = [axis for axis in "HWC" if axis not in like.axes]
    letters = [*like.axes[1:], *missing]
    image = array[0].reshape(array.shape[1:] + (1,) * len(missing))
    image = image.transpose([letters.index(axis) for axis in "HWC"])
    return replace(arithmetic.constant_image(b, like, image), axes=like.axes)


@operator("split", "split_with_sizes")
def _split(b: Builder, a: Arguments) -> list[Any]:
    sizes = next(a[name] for name in ("split_size", "split_sizes") if name in a)
    if isinstance(sizes, (list, tuple)):
        sizes = list(a.integers("split_sizes" if "split_sizes" in a else "split_size"))
    else:
        sizes = a.integer("split_size")
    return list(shape.split(b, a.source, sizes, a.integer("dim")))


@operator("chunk")
def _chunk(b: Builder, a: Arguments) -> list[Tensor]:
    return shape.chunk(b, a.source, a.integer("chunks"), a.integer("dim"))


@operator("tensor_split")
def _tensor_split(b: Builder, a: Arguments) -> list[Tensor]:
    x, dim = a.source, _dim(a, "dim")
    if dim == 0:
        raise UnmappedError("a part of the batch")
    extent = x.shape[dim - 1]
    if "sections" in a:
        count = a.integer("sections")
        sizes = [extent // count + (part < extent % count) for part in range(count)]
    elif "indices" in a:
        bounds = [0, *a.integers("indices"), extent]
        sizes = [after - before for before, after in itertools.pairwise(bounds)]
    else:
        raise UnmappedError("places that a tensor holds")
    return shape.split(b, x, sizes, dim)


@operator("unbind")
def _unbind(b: Builder, a: Arguments) -> list[Tensor]:
    dim = _dim(a, "dim")
    if dim == 0:
        raise UnmappedError("the images of the batch taken apart")
    return [shape.select(b, a.source, dim, index) for index in range(a.source.shape[dim - 1])]


@operator("slice")
def _slice(b: Builder, a: Arguments) -> Tensor:
    dim = _dim(a, "dim")
    before, after = a.shape_of("self")[dim], a.shape[dim]
    if a["step"] == 1 and same_extent(before, after):
        return a.source
    return shape.strided_slice(
        b, a.source, dim, a.optional_integer("start"), a.optional_integer("end"), a.integer("step")
    )


@operator("narrow")
def _narrow(b: Builder, a: Arguments) -> Tensor:
    return shape.narrow(b, a.source, a.integer("dim"), a.integer("start"), a.integer("length"))


@operator("select")
def _select(b: Builder, a: Arguments) -> Tensor:
    return shape.select(b, a.source, a.integer("dim"), a.integer("index"))


@operator("index_select")
def _index_select(b: Builder, a: Arguments) -> Tensor:
    return _picked(b, a.source, _dim(a, "dim"), a.array("index"))


@operator("index")
def _index(b: Builder, a: Arguments) -> Tensor:
    places = [place for place, index in enumerate(a["indices"]) if index is not None]
    if len(places) != 1:
        raise UnmappedError(f"indices along {len(places)} axes")
    a.values["index"] = a["indices"][places[0]]
    indices = a.array("index")
    if indices.dtype == np.bool_ or indices.ndim != 1:
        raise UnmappedError(f"indices of {indices.dtype} and shape {indices.shape}")
    return _picked(b, a.source, places[0], indices)


def _picked(b: Builder, x: Tensor, dim: int, indices: NDArray[Any]) -> Tensor:
    if x.axis(dim) != "C":
        return _padded(b, x, dim, indices)
    count = x.channels
    wanted = [int(index) for index in indices.reshape(-1)]
    if any(not -count <= index < count for index in wanted):
        raise InvalidModelError(f"{b.origin}: an index of {wanted} is not one of the {count} channels.")
    return shape.pick_channels(b, x, [index % count for index in wanted])


def _padded(b: Builder, x: Tensor, dim: int, indices: NDArray[Any]) -> Tensor:
    """Rows or columns by number, as core ATen writes paddings."""
    extent = x.shape[dim - 1]
    for before in range(len(indices) - extent + 1):
        pads = (before, len(indices) - extent - before)
        if np.array_equal(np.pad(np.arange(extent), pads, "edge"), indices):
            mode = "replicate"
        elif max(pads) < extent and np.array_equal(np.pad(np.arange(extent), pads, "reflect"), indices):
            mode = "reflect"
        else:
            continue
        b.fix_unless_constant(x, x.axis(dim))
        return resize.pad(b, x, [*[0, 0] * (x.rank - 1 - dim), *pads], mode)
    raise UnmappedError("indices along another axis than the channels")


@operator("flip")
def _flip(b: Builder, a: Arguments) -> Tensor:
    dims = a.integers("dims")
    if len(dims) != 1:
        raise UnmappedError(f"a flip along {len(dims)} axes")
    return _picked(b, a.source, dims[0] % a.source.rank, np.arange(a.source.channels)[::-1])


@operator("channel_shuffle")
def _channel_shuffle(b: Builder, a: Arguments) -> Tensor:
    x, groups = a.source, a.integer("groups")
    if x.axis(1) != "C" or x.channels % groups:
        raise UnmappedError(f"{groups} groups of {x.axes}, {x.shape}")
    return shape.pick_channels(b, x, np.arange(x.channels).reshape(groups, -1).T.ravel())


# Operators that repeat an extent of 1 by themselves.
_BROADCASTING = {"add", "sub", "mul", "div", "rsub", "multiply", "subtract", "divide", "true_divide"}


@operator("expand", "expand_as")
def _expand(b: Builder, a: Arguments) -> Tensor:
    x, to = a.source, a.shape
    if not a.is_batch(to[0]):
        raise UnmappedError("the batch repeated")
    while len(x.shape) < len(to) - 1:
        x = shape.unsqueeze(b, x, 1)
    if all(_broadcasts(user, a.node) for user in a.node.users):
        return x
    return shape.expand(b, x, [int(extent) for extent in to[1:]])


def _broadcasts(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether the user's result is the same without the repetition: its other source has all the extents."""
    name = getattr(user.target, "_opname", "").rstrip("_")
    others = [argument for argument in user.args[:2] if argument is not node]
    if name not in _BROADCASTING or len(others) != 1 or not isinstance(others[0], torch.fx.Node):
        return False
    other, result = others[0].meta.get("val"), user.meta.get("val")
    if "expand" in str(others[0].target) or not isinstance(other, torch.Tensor) or not isinstance(result, torch.Tensor):
        return False
    return [str(extent) for extent in other.shape] == [str(extent) for extent in result.shape]


@operator("repeat", "tile")
def _repeat(b: Builder, a: Arguments) -> Tensor:
    x = a.source
    counts = a["repeats" if "repeats" in a else "dims"]
    counts = [1] * (x.rank - len(counts)) + list(counts)
    if counts[0] != 1 or len(counts) != x.rank:
        raise UnmappedError("the batch repeated")
    for dim, count in enumerate(counts):
        if isinstance(count, Computed) and count.of_extents:
            b.fix()
        if count != 1:
            x = shape.cat(b, [x] * int(count), dim)
    return x


# What is known, for those who ask whether a model can be imported.
NAMES: Collection[str] = OPERATORS.keys()
