# SPDX-License-Identifier: Apache-2.0
"""From a case row to the expected result: combines the oracles, with the bound of the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases import Case, Inputs

from . import MPSCNNBinaryConvolution as binary  # noqa: N813
from . import MPSCNNConvolution as conv  # noqa: N813
from . import MPSCNNMath as arithmetic  # noqa: N813
from . import MPSCNNNeuron as neurons  # noqa: N813
from . import MPSCNNPooling as pooling  # noqa: N813
from . import compare, expected_others, normalized, padding

Array = NDArray[np.float64]
Pair = tuple[int, int]

# Type, a, b, c of activations given by name: PyTorch's defaults if PyTorch has the function.
SHORT_ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "none": ("none",),
    "identity": ("none",),
    "relu": ("relu", 0.0),
    "leaky_relu": ("relu", 0.01),
    "linear": ("linear", 1.0, 0.0),
    "sigmoid": ("sigmoid",),
    "hard_sigmoid": ("hard_sigmoid", 1 / 6, 0.5),
    "hardsigmoid": ("hard_sigmoid", 1 / 6, 0.5),
    "tanh": ("tanh", 1.0, 1.0),
    "absolute": ("absolute",),
    "abs": ("absolute",),
    "softplus": ("softplus", 1.0, 1.0),
    "softsign": ("softsign",),
    "elu": ("elu", 1.0),
    "relun": ("relun", 0.0, 6.0),
    "relu6": ("relun", 0.0, 6.0),
    "power": ("power", 1.0, 0.0, 1.0),
    "exponential": ("exponential", 1.0, 0.0, -1.0),
    "exp": ("exponential", 1.0, 0.0, -1.0),
    "logarithm": ("logarithm", 1.0, 0.0, -1.0),
    "log": ("logarithm", 1.0, 0.0, -1.0),
    "gelu": ("gelu",),
}

# Neuron kernels: type, and the defaults of a, b, c.
NEURON_KERNELS: dict[str, tuple[str, tuple[float, ...]]] = {
    "NeuronAbsolute": ("absolute", ()),
    "NeuronELU": ("elu", (1.0,)),
    "NeuronExponential": ("exponential", (1.0, 0.0, -1.0)),
    "NeuronHardSigmoid": ("hard_sigmoid", (0.2, 0.5)),
    "NeuronLinear": ("linear", (1.0, 0.0)),
    "NeuronLogarithm": ("logarithm", (1.0, 0.0, -1.0)),
    "NeuronPReLU": ("prelu", ()),
    "NeuronPower": ("power", (1.0, 0.0, 1.0)),
    "NeuronReLU": ("relu", (0.0,)),
    "NeuronReLUN": ("relun", (1.0, 6.0)),
    "NeuronSigmoid": ("sigmoid", ()),
    "NeuronSoftPlus": ("softplus", (1.0, 1.0)),
    "NeuronSoftSign": ("softsign", ()),
    "NeuronTanH": ("tanh", (1.0, 1.0)),
}


@dataclass
class Expected:
    """`value` is the written part, at `first` = (image, y, x, channel) of a destination of extents `shape`."""

    value: Array
    bound: Array
    shape: tuple[int, int, int, int]
    first: tuple[int, int, int, int]

    @property
    def region(self) -> tuple[slice, ...]:
        return tuple(slice(start, start + size) for start, size in zip(self.first, self.value.shape, strict=True))


def _weights(case: Case, inputs: Inputs) -> tuple[Array, Array | None]:
    """Return the kernel's factors (OHWI) and the bias."""
    assert inputs.weight is not None
    weight: Array
    if case.quantized == "ranges":
        outputs = inputs.weight if case.layout[0] == "O" else _ohwi(case, inputs.weight)
        assert inputs.ranges is not None
        weight = conv.from_ranges(outputs, inputs.ranges.astype(np.float64))
        weight = weight if case.layout[0] != "O" else _ohwi(case, weight)
    elif case.quantized == "lookup_table":
        assert inputs.lookup_table is not None
        weight = _ohwi(case, conv.from_table(inputs.weight, inputs.lookup_table.astype(np.float64)))
    else:
        weight = _ohwi(case, inputs.weight.astype(np.float64))
    bias = None if inputs.bias is None else inputs.bias.astype(np.float64)
    if inputs.norm is not None:
        norm = {name: np.asarray(value, np.float64) for name, value in inputs.norm.items()}
        weight, bias = conv.fold_batch_norm(weight, bias, **norm)
    if case.params.get("kernel_dtype") == "float16" or case.quantized or case.weight_dtype == "float16":
        weight = conv.to_half(weight)
    return weight, bias


def _ohwi(case: Case, weight: NDArray[Any]) -> NDArray[Any]:
    layout = case.layout
    if layout == "OI":
        channels, height, width = case.params.get("feature_map") or (weight.shape[1], 1, 1)
        return weight.reshape(len(weight), channels, height, width).transpose(0, 2, 3, 1)
    if layout == "IOHW":
        return conv.rotated(weight, case.groups)
    return weight.transpose([layout.replace("C1", "OI").index(letter) for letter in "OHWI"])


def _sides(value: Any) -> tuple[Pair, Pair]:
    """Return padding= as ((top, bottom), (left, right))."""
    if isinstance(value, int):
        return (value, value), (value, value)
    if isinstance(value[0], int):
        return (value[0], value[0]), (value[1], value[1])
    return tuple(value[0]), tuple(value[1])


def _window(case: Case, kernel: Pair, source: Pair, steps: Pair) -> tuple[Pair, Pair]:
    """Return the size of the result and the offset of a kernel with a window, from `padding`."""
    pad, ceil = case.params.get("padding", 0), case.params.get("ceil_mode", False)
    sizes, offsets = [], []
    for axis in (0, 1):
        if isinstance(pad, str):
            sizes.append(padding.forward_size(source[axis], kernel[axis], steps[axis], pad))
            offsets.append(padding.forward_offset(source[axis], kernel[axis], steps[axis], pad, remainder_first=False))
        else:
            before, after = _sides(pad)[axis]
            sizes.append(padding.framework_size(source[axis], kernel[axis], steps[axis], before, after, ceil=ceil))
            offsets.append(padding.framework_offset(kernel[axis], before))
    return (sizes[0], sizes[1]), (offsets[0], offsets[1])


def _transpose_window(case: Case, kernel: Pair, source: Pair) -> tuple[Pair, Pair]:
    """Return the size of the result and the kernelOffset of a transposed convolution."""
    pad, steps = case.params.get("padding", 0), case.pair("stride")
    extra = case.pair("output_padding") if "output_padding" in case.params else (0, 0)
    sizes, offsets = [], []
    for axis in (0, 1):
        k, s, n = kernel[axis], steps[axis], source[axis]
        if isinstance(pad, str):
            sizes.append(padding.reverse_size(n, k, s, pad))
            offsets.append(padding.reverse_offset(n, k, s, pad, remainder_first=False))
        else:
            before, after = _sides(pad)[axis]
            sizes.append(conv.transpose_size(n, k, s, before, after, extra[axis]))
            offsets.append(conv.transpose_kernel_offset(k, before))
    return (sizes[0], sizes[1]), (offsets[0], offsets[1])


def _convolve(case: Case, x: Array, weight: Array, bias: Array | None) -> Array:
    """Compute everything but the activation and the sub-pixel rearrangement."""
    source = (x.shape[1], x.shape[2])
    clip, offset = case.params.get("clip_rect"), case.params.get("offset")
    factor = case.params.get("sub_pixel_scale_factor", 1)
    if case.kernel == "FullyConnected":
        return conv.fully_connected(x, weight, bias)
    if case.kernel == "ConvolutionTranspose":
        size, kernel_offset = _transpose_window(case, weight.shape[1:3], source)
        return conv.transpose(
            x,
            weight,
            bias,
            size=clip[1][:2] if clip else size,
            stride=case.pair("stride"),
            offset=offset[:2] if offset else (0, 0),
            kernel_offset=kernel_offset,
            groups=case.groups,
        )
    dilation = case.pair("dilation")
    dilated = tuple((k - 1) * d + 1 for k, d in zip(weight.shape[1:3], dilation, strict=True))
    size, start = _window(case, dilated, source, case.pair("stride"))
    if clip:
        size = tuple(-(-extent // factor) for extent in clip[1][:2])
    window = {
        "size": size,
        "offset": offset[:2] if offset else start,
        "stride": case.pair("stride"),
        "dilation": dilation,
        "edge": case.params.get("edge_mode", "zero"),
    }
    if weight.shape[3] == 1 and len(weight) == x.shape[3] > 1:
        return conv.depthwise(x, weight[..., 0], bias, **window)
    return conv.convolution(x, weight, bias, groups=case.groups, **window)


def _binary_convolution(case: Case, x: Array, inputs: Inputs) -> tuple[Array, Array]:
    """Return result and bound of a convolution with 1-bit weights, before the activation."""
    assert inputs.bits is not None
    terms = {name: values.astype(np.float64) for name, values in inputs.given.items()}
    u = (x + terms.get("input_bias", 0.0)) * terms.get("input_scale", 1.0)
    kernel, dilation = inputs.bits.shape[1:3], case.pair("dilation")
    clip, offset = case.params.get("clip_rect"), case.params.get("offset")
    if case.kernel == "BinaryFullyConnected":
        size, start = (1, 1), (kernel[0] // 2, kernel[1] // 2)
    else:
        dilated = ((kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1)
        size, start = _window(case, dilated, (x.shape[1], x.shape[2]), case.pair("stride"))
    window: dict[str, Any] = {
        "size": clip[1][:2] if clip else size,
        "offset": offset[:2] if offset else start,
        "stride": case.pair("stride"),
        "dilation": dilation,
        "edge": case.params.get("edge_mode", "zero"),
    }
    kind = case.params.get("type", "xnor")
    sums, beta = binary.convolution(u, inputs.bits, kind, **window)
    sizes, _ = binary.convolution(u, inputs.bits, kind, **window, sizes=True)
    scale = terms.get("scale", 1.0) * (beta if case.params.get("beta_scaling") else 1.0)
    bias = 0.0 if inputs.bias is None else inputs.bias.astype(np.float64)
    # Sums of bits are exact; sums of real sources, beta, three products and the bias are rounded.
    terms_of_sum = inputs.bits[0].size if kind == "binary_weights" else 0
    bound = compare.sum_bound(np.abs(scale) * sizes + np.abs(bias), terms_of_sum + 1, case.tolerance.sums)
    return scale * sums + bias, bound


def _activation(case: Case, inputs: Inputs) -> tuple[str, list[Any]]:
    """Return type and a, b, c with the device's precision, float32."""
    if case.kernel in NEURON_KERNELS:
        name, defaults = NEURON_KERNELS[case.kernel]
        numbers = [case.params.get(letter, value) for letter, value in zip("abc", defaults, strict=False)]
    elif case.kernel == "Neuron":
        name, *defaults = SHORT_ACTIVATIONS.get(case.params["type"], (case.params["type"],))
        numbers = [case.params.get(letter, value) for letter, value in zip("abc", [*defaults, 0, 0, 0], strict=False)]
    elif case.activation is None:
        return "none", [0.0, 0.0, 0.0]
    else:
        short = case.activation if isinstance(case.activation, tuple) else SHORT_ACTIVATIONS[case.activation]
        name, numbers = short[0], list(short[1:])
    if name == "prelu":
        assert inputs.slopes is not None
        return name, [inputs.slopes.astype(np.float64), 0.0, 0.0]
    return name, [float(np.float32(number)) for number in [*numbers, 0.0, 0.0, 0.0][:3]]


def _apply(
    name: str, numbers: list[Any], x: Array, bound: Array, function: Callable[..., Array] = neurons.neuron
) -> tuple[Array, Array]:
    """Return f(x) and its error if x has the error `bound`."""

    def of(numbers: list[Any]) -> Callable[[Array], Array]:
        return lambda x: function(name, x, *numbers)

    value = of(numbers)(x)
    if name == "none":
        return value, bound
    total = compare.carried(of(numbers), x, bound + 2 * compare.U * np.abs(np.where(np.isfinite(x), x, 0.0)))
    for i, number in enumerate(numbers):
        if name in ("exponential", "logarithm", "power") and i == 2:
            continue  # a given exponent or base is exact; its logarithm is included in the next line
        with np.errstate(all="ignore"):
            for sign in (1, -1):
                other = [*numbers[:i], number * (1 + sign * 2 * compare.U), *numbers[i + 1 :]]
                change = np.abs(of(other)(x) - value)
                total = total + np.where(np.isfinite(change), change, 0.0)
    # Two roundings of the function's own, four for those with several operations after their exponential, and that of
    # the logarithm in a power.
    roundings = 4 if name in ("gelu", "softplus") else 2
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(value), np.abs(value), 0.0)
        inner = np.abs(np.log(np.fmax(size, 1e-300))) if name in ("exponential", "power") else 0.0
    return value, total + roundings * compare.U * size * (1 + inner)


PREFIXES = ("primary_", "secondary_")


def _read(params: dict[str, Any], prefix: str, x: Array) -> Array:
    """Return the images and channels of a source that the kernel reads."""
    x = x[..., params.get(f"{prefix}source_feature_channel_offset", 0) :]
    x = x[..., : params.get(f"{prefix}source_feature_channel_max_count") or x.shape[3]]
    offset = params.get(f"{prefix}offset")
    return x[offset[2] if offset and len(offset) == 3 else 0 :]


def _repeats(case: Case, source: int, own: tuple[int, ...], other: tuple[int, ...]) -> list[bool]:
    """Return whether a source repeats along images, rows, columns, channels: by its strides, or by the shapes."""
    repeats = [a == 1 and b != 1 for a, b in zip(own, other, strict=True)]
    pixels = case.params.get(f"{PREFIXES[source]}stride")
    channels = case.params.get(f"{PREFIXES[source]}stride_in_feature_channels")
    if pixels is not None:
        repeats[1:3] = [step == 0 for step in ((pixels, pixels) if isinstance(pixels, int) else pixels)]
    if channels is not None:
        repeats[3] = channels == 0
    return repeats


def _placed(case: Case, inputs: Inputs) -> list[Array]:
    """Return the values of both sources for the pixels that are written."""
    sources = [_read(case.params, p, compare.as_numbers(x)) for p, x in zip(PREFIXES, inputs.sources, strict=True)]
    shapes = [source.shape for source in sources]
    repeats = [_repeats(case, i, shapes[i], shapes[1 - i]) for i in (0, 1)]
    extents = [
        min((shape[axis] for shape, repeat in zip(shapes, repeats, strict=True) if not repeat[axis]), default=1)
        for axis in range(4)
    ]
    clip = case.params.get("clip_rect")
    if clip:
        extents[:3] = [clip[1][2], *clip[1][:2]]
    seen = []
    for source, repeat, prefix in zip(sources, repeats, PREFIXES, strict=True):
        dy, dx = (case.params.get(f"{prefix}offset") or (0, 0))[:2]
        rows = dy + (np.zeros(extents[1], int) if repeat[1] else np.arange(extents[1]))
        columns = dx + (np.zeros(extents[2], int) if repeat[2] else np.arange(extents[2]))
        pixels = conv.tap(source, rows, columns, case.params.get(f"{prefix}edge_mode", "zero"))
        pixels = pixels[: 1 if repeat[0] else extents[0], ..., : 1 if repeat[3] else extents[3]]
        seen.append(np.broadcast_to(pixels, extents))
    return seen


def _given_back(case: Case, inputs: Inputs, shape: tuple[int, ...]) -> Array:
    """Return the incoming gradient for a clamped source: the sum over all results that read each pixel."""
    gradient, source = (
        _read(case.params, p, compare.as_numbers(x)) for p, x in zip(PREFIXES, inputs.sources, strict=True)
    )
    summed = np.zeros((gradient.shape[0], *source.shape[1:3], gradient.shape[3]))
    starts = [(case.params.get(f"{prefix}offset") or (0, 0))[:2] for prefix in PREFIXES]
    # Pixel g of the gradient is pixel g - primary offset of the result, which reads the source at the source's offset.
    rows, columns = (
        np.clip(np.arange(gradient.shape[1 + axis]) - starts[0][axis] + starts[1][axis], 0, source.shape[1 + axis] - 1)
        for axis in (0, 1)
    )
    np.add.at(summed, (slice(None), rows[:, None], columns), gradient)
    within = conv.tap(summed, starts[1][0] + np.arange(shape[1]), starts[1][1] + np.arange(shape[2]), "zero")
    return within[: shape[0], ..., : shape[3]]


def _binary(case: Case, inputs: Inputs) -> tuple[Array, Array]:
    """Return result and bound of a kernel of two sources, before the store."""
    if case.kernel in expected_others.TWO_SOURCES:
        read = [_read(case.params, p, compare.as_numbers(x)) for p, x in zip(PREFIXES, inputs.sources, strict=True)]
        return expected_others.TWO_SOURCES[case.kernel](case, *read)
    a, b = _placed(case, inputs)
    if case.kernel == "Compare":
        threshold = float(np.float32(case.params.get("threshold", 0.0)))
        return arithmetic.compare(case.params["comparison"], a, b, threshold), np.zeros(a.shape)
    if case.kernel == "NeuronGradient":
        name, numbers = _activation(case, inputs)
        slope, bound = _apply(name, numbers, b, np.zeros_like(b), neurons.slope)
        # Near the minimum of gelu, the two terms of the slope cancel; each has an error relative to 1.
        bound = bound + 2 * compare.U * np.abs(slope) + (compare.U if name == "gelu" else 0.0)
        if case.params.get("secondary_edge_mode") == "clamp":
            a = _given_back(case, inputs, b.shape)
            bound = bound + compare.U * np.abs(slope)
        return a * slope, np.abs(a) * bound
    params = case.params
    numbers = [float(np.float32(params.get(key, default))) for key, default in ARITHMETIC_DEFAULTS.items()]
    scales, bias = (numbers[0], numbers[1]), numbers[2]
    limits = [params.get(f"{name}_value") for name in ("minimum", "maximum")]
    least, most = (None if limit is None else float(np.float32(limit)) for limit in limits)
    size = arithmetic.magnitude(case.kernel, a, b, scales, bias)
    # Each source is scaled once (8-bit ones twice), then two operations; all errors are relative to the terms.
    return (
        arithmetic.arithmetic(case.kernel, a, b, scales, bias, least, most),
        8 * compare.U * np.where(np.isfinite(size), size, 0.0),
    )


def _pool(case: Case, x: Array) -> tuple[Array, Array]:
    """Return result and bound of pooling, before the store."""
    clip, offset = case.params.get("clip_rect"), case.params.get("offset")
    kernel, dilation = case.pair("kernel_size"), case.pair("dilation")
    stride = case.pair("stride") if case.params.get("stride") is not None else kernel
    dilated = ((kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1)
    size, start = _window(case, dilated, (x.shape[1], x.shape[2]), stride)
    window: dict[str, Any] = {
        "size": clip[1][:2] if clip else size,
        "offset": offset[:2] if offset else start,
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "edge": case.params.get("edge_mode", "clamp" if case.kernel in ("PoolingMax", "DilatedPoolingMax") else "zero"),
    }
    if case.kernel in ("PoolingMax", "DilatedPoolingMax"):
        value = pooling.maximum(x, **window)
        return value, np.zeros_like(value)
    terms = kernel[0] * kernel[1]
    if case.kernel == "PoolingL2Norm":
        value = pooling.l2_norm(x, **window)
        return value, compare.sum_bound(value, terms, case.tolerance.sums)
    if "count_include_pad" in case.params:
        sides = _sides(case.params.get("padding", 0))
        window["edge"] = "clamp"
        window["zero_pad"] = (sides[0][0], sides[1][0]) if case.params["count_include_pad"] else (0, 0)
    elif "zero_pad_size" in case.params:
        window["zero_pad"] = case.pair("zero_pad_size")
    magnitude = pooling.average(np.abs(x), **window)
    return pooling.average(x, **window), compare.sum_bound(magnitude, terms, case.tolerance.sums)


# Kernels of one source without weights: result and bound, from the part of the source that is read.
OTHERS: dict[str, Callable[[Case, Array], tuple[Array, Array]]] = {
    "DilatedPoolingMax": _pool,
    "PoolingAverage": _pool,
    "PoolingL2Norm": _pool,
    "PoolingMax": _pool,
    **expected_others.ONE_SOURCE,
    **normalized.LOCAL,
}

ARITHMETIC_DEFAULTS = {"primary_scale": 1.0, "secondary_scale": 1.0, "bias": 0.0}


def expected(case: Case, inputs: Inputs, dtype: str) -> Expected:
    """Return the expected result of the row for the inputs, as an image of `dtype`."""
    clip, offset = case.params.get("clip_rect"), case.params.get("offset")
    x = _read(case.params, "", compare.as_numbers(inputs.x))
    if clip and case.kernel not in expected_others.OTHER_IMAGES:
        x = x[: clip[1][2]]

    if case.second:
        value, bound = _binary(case, inputs)
    elif case.is_binary:
        value, bound = _binary_convolution(case, x, inputs)
    elif case.weight:
        weight, bias = _weights(case, inputs)
        value = _convolve(case, x, weight, bias)
        magnitude = _convolve(case, np.abs(x), np.abs(weight), None if bias is None else np.abs(bias))
        bound = compare.sum_bound(magnitude, weight[0].size, case.tolerance.sums, case.tolerance.products)
    elif case.kernel in OTHERS:
        value, bound = OTHERS[case.kernel](case, x)
    elif case.kernel in normalized.BY_MOMENTS:
        value, bound = normalized.BY_MOMENTS[case.kernel](case, x, inputs)
    else:
        dy, dx = offset[:2] if offset else (0, 0)
        height, width = clip[1][:2] if clip else x.shape[1:3]
        rows, columns = dy + np.arange(height), dx + np.arange(width)
        value = conv.tap(x, rows, columns, case.params.get("edge_mode", "zero"))
        bound = np.zeros_like(value)
    if not case.second and case.kernel not in OTHERS:
        value, bound = _apply(*_activation(case, inputs), value, bound)

    factor = case.params.get("sub_pixel_scale_factor", 1)
    if factor > 1:
        value, bound = conv.sub_pixel(value, factor), conv.sub_pixel(bound, factor)
        if clip:
            value, bound = (array[:, : clip[1][0], : clip[1][1]] for array in (value, bound))
    if np.dtype(dtype).kind == "u":
        value = np.clip(value, 0.0, 1.0)
    else:
        with np.errstate(invalid="ignore"):
            value = np.where(np.abs(value) > float(np.finfo(dtype).max), np.copysign(np.inf, value), value)
    bound = bound + compare.store_bound(value, dtype, case.tolerance.store)

    channel = case.params.get("destination_feature_channel_offset", 0)
    shape = case.out or (*value.shape[:3], channel + value.shape[3])
    image = clip[0][2] if clip else 0
    return Expected(value, bound, shape, (image, *(clip[0][:2] if clip else (0, 0)), channel))
