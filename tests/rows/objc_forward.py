# SPDX-License-Identifier: Apache-2.0
"""Rows for tests/objc/rows_test.mm from the cases of tests/cases: classes, initializers, properties, expected values.

class, init, arguments      how the kernel is made; words that are no numbers name objects of the row
property.<name>             set by key-value coding; numbers with commas between are a structure
destination, first, dtype   extents of the destination, and where in it the expected values are
batches, returned           whether the row has those encode forms
own_size                    the kernel finds the size of its result by itself
stateless                   the class refuses the forms with a state
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases import Case, Inputs, make, row
from oracle import expected as oracle
from oracle import normalized
from oracle.expected_others import sides
from oracle.MPSCNNMath import COMPARISONS

from .row_file import Row

Settings = dict[str, Any]

LARGEST = 40_000
"""Max number of values of a source; larger cases test threads and blocks, not encode forms."""

NEURONS = ["none", "relu", "linear", "sigmoid", "hard_sigmoid", "tanh", "absolute", "softplus", "softsign", "elu"]
NEURONS += ["prelu", "relun", "power", "exponential", "logarithm", "gelu"]
EDGES = ["zero", "clamp", "mirror", "mirror_with_edge", "constant"]
DATA_TYPES = {"uint8": 8, "uint32": 32, "float16": 0x10000010, "float32": 0x10000020}
WINDOWS = ("Convolution", "BinaryConvolution", "ConvolutionTranspose", "FullyConnected", "BinaryFullyConnected")
POOLS = ("PoolingMax", "PoolingAverage", "PoolingL2Norm", "DilatedPoolingMax")

# In addition to the cases of tests/cases.
MORE: dict[str, list[Case]] = {
    "MPSCNNNeuron": [
        row("NeuronLinear", x=(1, 5, 6, 3), a=2.0, b=1.0, edge_mode=edge, offset=offset, why="f(0) outside")
        for edge in ("zero", "clamp")
        for offset in ((1, 2), (30, -1))
    ],
}

# Parameters that are numeric properties of the object, with the same name in camel case.
NUMBERS = {
    "threshold",
    "primary_scale",
    "secondary_scale",
    "bias",
    "minimum_value",
    "maximum_value",
    "alpha",
    "beta",
    "delta",
}
NUMBERS |= {"p0", "pm", "ps", "weight", "destination_feature_channel_offset"}
NUMBERS |= {
    f"{prefix}source_feature_channel_{name}" for prefix in ("", *oracle.PREFIXES) for name in ("offset", "max_count")
}


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def offset(value: Any) -> str:
    y, x, image = (*value, 0)[:3]
    return f"{x},{y},{image}"


def region(value: Any) -> str:
    (y, x, image), (height, width, images) = value
    return f"{x},{y},{image},{width},{height},{images}"


def apple_class(kernel: str) -> str:
    begins = ("Compare", "Reduce", "Reshape", "Pad", "Resize", "CropAndResize", "Slice")
    return ("MPSNN" if kernel.startswith(begins) else "MPSCNN") + kernel


def neuron(case: Case, inputs: Inputs) -> Settings:
    name, numbers = oracle._activation(case, inputs)
    if name == "none" and not case.kernel.startswith("Neuron"):
        return {}
    numbers = [0.0, 0.0, 0.0] if name == "prelu" else numbers
    return {"neuron": " ".join(str(number) for number in [NEURONS.index(name), *numbers])}


# ------------------------------------------------------------------------------------------------------ initializers


def _weights(case: Case, inputs: Inputs, arrays: dict[str, NDArray[Any]]) -> Settings:
    """Return settings of the data source and its descriptor."""
    assert inputs.weight is not None
    if case.is_binary:
        assert inputs.bits is not None
        extents, weight = inputs.bits.shape, inputs.weight.astype(np.uint32).view(np.int32)
        kind = "uint32"
    else:
        weight = oracle._ohwi(case, inputs.weight)
        kind = "float32" if case.weight_dtype == "bfloat16" else weight.dtype.name
        weight = weight.astype(kind)
        extents = weight.shape
    arrays["weights"] = weight
    arrays |= {} if inputs.bias is None else {"bias": inputs.bias}
    if case.quantized:
        key = {"ranges": "ranges", "lookup_table": "table"}[case.quantized]
        arrays[key] = getattr(inputs, case.quantized)
    if inputs.norm is not None:
        arrays |= {name: value for name, value in inputs.norm.items() if name != "epsilon"}
    depthwise = extents[3] == 1 and (case.layout == "C1HW" or 1 < case.groups == extents[0])
    factor = case.params.get("sub_pixel_scale_factor", 1)
    begin = "DepthWise" if depthwise else "SubPixel" if factor > 1 else ""
    channels = extents[3] * (extents[0] if depthwise else case.groups)
    settings = {
        "descriptor": f"MPSCNN{begin}ConvolutionDescriptor",
        "weights": f"{extents[0]} {extents[1]} {extents[2]} {channels}",
        "weights.type": DATA_TYPES[kind],
        "weights.half": case.params.get("kernel_dtype") == "float16"
        or bool(case.quantized)
        or case.weight_dtype == "float16",
        "epsilon": 0.125,
        **neuron(case, inputs),
    }
    (sy, sx), (dy, dx) = case.pair("stride"), case.pair("dilation")
    settings |= {"descriptor.strideInPixelsX": sx, "descriptor.strideInPixelsY": sy}
    settings |= {"descriptor.dilationRateX": dx, "descriptor.dilationRateY": dy} if (dy, dx) != (1, 1) else {}
    settings |= {"descriptor.groups": case.groups} if case.groups > 1 and not depthwise else {}
    settings |= {"descriptor.subPixelScaleFactor": factor} if factor > 1 else {}
    return settings


def _convolution(case: Case, inputs: Inputs, arrays: dict[str, NDArray[Any]]) -> Settings:
    settings = _weights(case, inputs, arrays)
    source = (inputs.x.shape[1], inputs.x.shape[2])
    ohwi = (inputs.bits if case.is_binary else arrays["weights"]).shape  # type: ignore[union-attr]
    dilation = case.pair("dilation")
    dilated = ((ohwi[1] - 1) * dilation[0] + 1, (ohwi[2] - 1) * dilation[1] + 1)
    if case.kernel == "ConvolutionTranspose":
        y, x = oracle._transpose_window(case, ohwi[1:3], source)[1]
        settings |= {"property.kernelOffsetX": x, "property.kernelOffsetY": y}
    elif "FullyConnected" in case.kernel:
        settings["property.offset"] = offset((ohwi[1] // 2, ohwi[2] // 2))
    else:
        settings["property.offset"] = offset(oracle._window(case, dilated, source, case.pair("stride"))[1])
    if not case.is_binary:
        settings["property.accumulatorPrecisionOption"] = 1
        return settings | {"init": "initWithDevice:weights:", "arguments": "device weights"}
    arrays |= inputs.given
    kind = ("binary_weights", "xnor", "and").index(case.params.get("type", "xnor"))
    return settings | {
        "init": "initWithDevice:convolutionData:outputBiasTerms:outputScaleTerms:inputBiasTerms:inputScaleTerms:"
        "type:flags:",
        "arguments": f"device weights bias scale input_bias input_scale {kind} "
        f"{int(case.params.get('beta_scaling', False))}",
    }


def _pooling(case: Case, inputs: Inputs) -> Settings:
    kernel, dilation = case.pair("kernel_size"), case.pair("dilation")
    stride = case.pair("stride") if case.params.get("stride") is not None else kernel
    dilated = ((kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1)
    start = oracle._window(case, dilated, (inputs.x.shape[1], inputs.x.shape[2]), stride)[1]
    settings: Settings = {"property.offset": offset(start), "property.edgeMode": int("Max" in case.kernel)}
    if "count_include_pad" in case.params:
        around = sides(case.params.get("padding", 0)) if case.params["count_include_pad"] else (0, 0, 0, 0)
        settings |= {"property.edgeMode": 1, "property.zeroPadSizeX": around[2], "property.zeroPadSizeY": around[0]}
    elif "zero_pad_size" in case.params:
        y, x = case.pair("zero_pad_size")
        settings |= {"property.zeroPadSizeX": x, "property.zeroPadSizeY": y}
    begin, numbers = "initWithDevice:kernelWidth:kernelHeight:", [kernel[1], kernel[0]]
    if case.kernel == "DilatedPoolingMax":
        begin += "dilationRateX:dilationRateY:"
        numbers += [dilation[1], dilation[0]]
    numbers += [stride[1], stride[0]]
    return settings | {
        "init": begin + "strideInPixelsX:strideInPixelsY:",
        "arguments": " ".join(["device", *map(str, numbers)]),
    }


def _pad(case: Case, inputs: Inputs, arrays: dict[str, NDArray[Any]]) -> Settings:
    top, bottom, left, right = sides(case.params.get("padding", 0))
    before, after = case.params.get("channels_before", 0), case.params.get("channels_after", 0)
    settings: Settings = {
        "init": "initWithDevice:paddingSizeBefore:paddingSizeAfter:",
        "arguments": f"device {left},{top},{before} {right},{bottom},{after}",
        "property.offset": offset((-top, -left)),
        "property.edgeMode": EDGES.index(case.params.get("edge_mode", "constant")),
    }
    if "value" in case.params:
        settings["property.fillValue"] = case.params["value"]
    if "channel_values" in case.params:
        arrays["fill"] = np.array(case.params["channel_values"], np.float32)
        settings["init"] += "fillValueArray:"
        settings["arguments"] += " fill"
    return settings


def _arithmetic(case: Case, inputs: Inputs) -> Settings:
    settings: Settings = {}
    if case.kernel == "Compare":
        settings["property.comparisonType"] = COMPARISONS.index(case.params["comparison"])
    shapes = [
        oracle._read(case.params, prefix, x).shape for prefix, x in zip(oracle.PREFIXES, inputs.sources, strict=True)
    ]
    for i, prefix in enumerate(oracle.PREFIXES):
        repeats = oracle._repeats(case, i, shapes[i], shapes[1 - i])
        for repeat, name in zip(repeats[1:], ("InPixelsY", "InPixelsX", "InFeatureChannels"), strict=True):
            if repeat:
                settings[f"property.{prefix[:-1]}Stride{name}"] = 0
    return settings


def _initializer(case: Case, inputs: Inputs, arrays: dict[str, NDArray[Any]]) -> Settings:
    params = case.params
    if case.weight:
        return _convolution(case, inputs, arrays)
    if case.kernel in POOLS:
        return _pooling(case, inputs)
    if case.kernel.startswith("Neuron"):
        return {"init": "initWithDevice:neuronDescriptor:", "arguments": "device neuron"} | neuron(case, inputs)
    if case.kernel in ("Add", "Subtract", "Multiply", "Divide", "Compare"):
        return {"init": "initWithDevice:", "arguments": "device"} | _arithmetic(case, inputs)
    if case.kernel == "Pad":
        return _pad(case, inputs, arrays)
    if case.kernel == "Dropout":
        y, x = case.pair("mask_stride")
        mask = f"{x},{y},{params.get('mask_stride_in_feature_channels', 1)}"
        return {
            "init": "initWithDevice:keepProbability:seed:maskStrideInPixels:",
            "arguments": f"device {params.get('keep_probability', 0.5)} {params.get('seed', 0)} {mask}",
        }
    if case.kernel in normalized.BY_MOMENTS:
        channels = oracle._read(params, "", inputs.x).shape[3]
        arrays |= {"gamma": np.ones(channels, np.float32)} | inputs.given
        settings = {"init": "initWithDevice:dataSource:", "arguments": "device normalization"}
        settings |= {"groups": case.groups, "epsilon": params.get("epsilon", normalized.EPSILON)} | neuron(case, inputs)
        if "neuron" in settings:
            settings |= {"init": "initWithDevice:dataSource:fusedNeuronDescriptor:"}
            settings["arguments"] += " neuron"
        return settings
    if case.kernel in normalized.LOCAL:
        size = normalized.numbers(case)["kernel_size"]
        if case.kernel == "CrossChannelNormalization":
            return {"init": "initWithDevice:kernelSize:", "arguments": f"device {size}"}
        return {"init": "initWithDevice:kernelWidth:kernelHeight:", "arguments": f"device {size} {size}"}
    if case.kernel.startswith("Upsampling"):
        y, x = case.pair("scale_factor")
        settings = {"init": "initWithDevice:integerScaleFactorX:integerScaleFactorY:", "arguments": f"device {x} {y}"}
        if "align_corners" in params:
            settings = {"init": settings["init"] + "alignCorners:", "arguments": f"device {x} {y} "}
            settings["arguments"] += str(int(params["align_corners"]))
        return settings
    if case.kernel == "ResizeBilinear":
        y, x = case.pair("size")
        return {
            "init": "initWithDevice:resizeWidth:resizeHeight:alignCorners:",
            "arguments": f"device {x} {y} {int(params.get('align_corners', False))}",
            "property.edgeMode": 1,
        }
    if case.kernel == "CropAndResizeBilinear":
        (y, x), regions = case.pair("size"), np.array(params["regions"], np.float32).astype(np.float64)
        zeros, ones = np.zeros(len(regions)), np.ones(len(regions))
        arrays["regions"] = np.stack([regions[:, 1], regions[:, 0], zeros, regions[:, 3], regions[:, 2], ones], axis=1)
        return {
            "init": "initWithDevice:resizeWidth:resizeHeight:numberOfRegions:regions:",
            "arguments": f"device {x} {y} {len(regions)} regions",
        }
    if case.kernel == "ReduceFeatureChannelsAndWeightsSum":
        flag = int(params.get("by_nonzero_weights", False))
        return {"init": "initWithDevice:doWeightedSumByNonZeroWeights:", "arguments": f"device {flag}"}
    return {"init": "initWithDevice:", "arguments": "device"}


# -------------------------------------------------------------------------------------------------------------- rows


def kernel(case: Case, inputs: Inputs) -> Row:
    """Return a row with the kernel and its sources, without values."""
    arrays: dict[str, NDArray[Any]] = {}
    settings = {"class": apple_class(case.kernel)} | _initializer(case, inputs, arrays)
    if inputs.slopes is not None and "neuron" in settings:
        arrays["slopes"] = inputs.slopes
    for name, value in case.params.items():
        key = "property." + camel(name)
        if name in NUMBERS:
            settings[key] = value
        elif name.endswith("edge_mode"):
            settings[key] = EDGES.index(value)
        elif name.endswith("offset"):
            settings[key] = offset(value)
        elif "clip_rect" in name:
            settings[key] = region(value)
        elif name == "allow_reduced_precision":
            settings["property.options"] = 2 * int(value)
    if not case.second:
        settings.setdefault("property.offset", "0,0,0")  # a padding policy may have set another one
    arrays["source"] = np.ascontiguousarray(inputs.x)
    if inputs.second is not None:
        arrays["second"] = np.ascontiguousarray(inputs.second)
    return Row(case.kernel, settings, arrays)


def forms(case: Case, inputs: Inputs, right: oracle.Expected) -> Settings:
    """Return which encode forms compute the row's values."""
    offsets = [value for name, value in case.params.items() if name.endswith("offset") and isinstance(value, tuple)]
    regions = [value for name, value in case.params.items() if "clip_rect" in name]
    images = {len(source) for source in inputs.sources} | {right.shape[0], right.value.shape[0]}
    alone = all(len(value) < 3 or value[2] == 0 for value in offsets) and not any(r[0][2] for r in regions)
    whole = right.first == (0, 0, 0, 0) and right.value.shape == right.shape
    sized = case.kernel in (*WINDOWS, *POOLS, "Reshape", "Slice")
    return {
        "batches": len(images) == 1 and alone,
        "returned": whole and alone and "clip_rect" not in case.params and not case.out,
        "own_size": not sized and not offsets and not case.result_dtype,
        "stateless": case.kernel == "BatchNormalization",
    }


def rows(cases: list[Case]) -> list[Row]:
    """Return rows of forward kernels for every element type of the cases."""
    found = []
    for case in cases:
        if int(np.prod(case.x)) > LARGEST or case.kernel == "BatchNormalizationStatistics":
            continue
        for dtype in case.dtypes:
            inputs = make(case, dtype)
            if case.second and case.x[0] != case.second[0]:
                continue  # Python repeats sources over images
            result = case.result_dtype or dtype
            right = oracle.expected(case, inputs, result)
            one = kernel(case, inputs)
            one.name = f"{case}-{dtype}"
            one.settings |= {
                "dtype": result,
                "destination": " ".join(map(str, right.shape)),
                "first": " ".join(map(str, right.first)),
                **forms(case, inputs, right),
            }
            one.arrays |= {"expected": right.value, "bound": right.bound}
            found.append(one)
    return found
