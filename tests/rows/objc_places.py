# SPDX-License-Identifier: Apache-2.0
"""Rows of calls with properties set by hand, for tests/objc/rows_test.mm: parts of images, options, states that are
used twice. Settings as in objc_losses.py, and

layer.class, ...        the forward kernel, whose state `state:SOURCE,RESULT` is
before.1, ...           calls before `call`: object, selector, arguments
no_twin                 an archive of the kernel cannot do it
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases import make, row
from oracle import MPSCNNConvolution as conv  # noqa: N813
from oracle import MPSCNNNormalization as local  # noqa: N813
from oracle import MPSCNNPooling as pooling  # noqa: N813
from oracle import expected as oracle

from . import objc_forward
from .finite_differences import gradients
from .row_file import Row

Array = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

UNARY = "encodeToCommandBuffer:sourceImage:destinationImage:"
BINARY = "encodeToCommandBuffer:primaryImage:secondaryImage:destinationImage:"
GRADIENT = "encodeToCommandBuffer:sourceGradient:sourceImage:gradientState:destinationGradient:"
UNTOUCHED = float(np.frombuffer(b"\x7f" * 4, "<f4")[0])
"""Initial values of images and states in rows_test.mm."""


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Multiples of 1/64: exact in half precision."""
    return np.random.default_rng([seed, *shape]).integers(-64, 64, shape).astype(np.float32) / 64


def within(extents: tuple[int, ...], first: tuple[int, ...], value: Any, around: float = UNTOUCHED) -> Array:
    """Return a larger array with the value at `first`."""
    whole = np.full(extents, around, np.float64)
    whole[tuple(slice(at, at + size) for at, size in zip(first, value.shape, strict=True))] = value
    return whole


def called(
    name: str, kernel: str, init: str, call: str, words: str, arrays: Arrays, after: Arrays, **settings: Any
) -> Row:
    """`init`: selector and arguments. `result` has the extents of its array in `after`."""
    begin, _, arguments = init.partition(" ")
    made = {"class": kernel, "init": begin, "arguments": f"device {arguments}".strip(), "tolerance": 1e-5}
    made |= {"call": call, "call_arguments": f"commands {words}"}
    for word, value in after.items():
        if word.startswith("empt"):
            made[word.partition(":")[2]] = " ".join(map(str, value.shape))
    named = {key.replace("__", "."): value for key, value in settings.items()}
    return Row(name, made | named, arrays | {f"after.{word}": value for word, value in after.items()})


def properties(**values: Any) -> dict[str, Any]:
    return {f"property.{name}": value for name, value in values.items()}


# ------------------------------------------------------------------------------------------ gradients of convolution

CONVOLVE = partial(conv.convolution, size=(5, 4), offset=(0, 0), stride=(1, 2))


def convolutions() -> Iterator[Row]:
    """A kernel of 3 x 2 pixels at every other column; its gradient is shifted by a column."""
    x, e, w, b = random(1, 5, 7, 5), random(1, 5, 4, 6), random(6, 3, 2, 5), random(6)

    def derivatives(weight: NDArray[np.float32]) -> tuple[Array, Array]:
        given = [each.astype(np.float64) for each in (x, weight, b)]
        found = gradients(CONVOLVE, given, e.astype("f8"), by_image=False, step=0.5)
        return found[0], np.concatenate([found[1].ravel(), found[2]])

    g, state = derivatives(w)
    kernel: dict[str, Any] = {"descriptor": "MPSCNNConvolutionDescriptor", "weights": "6 3 2 5"}
    kernel |= {"descriptor.strideInPixelsX": 2, "weights.type": 0x10000020, "weights.half": False}
    kernel |= {"layer.class": "MPSCNNConvolution", "layer.init": "initWithDevice:weights:"}
    kernel |= {"layer.arguments": "device weights", "property.kernelOffsetX": 1}

    def one(name: str, after: Any, states: Any, images: Arrays, call: str = GRADIENT, **settings: Any) -> Row:
        words = "image:e image:x " + "state:x,y " * (call == GRADIENT) + "empty:result"
        results = {"empty:result": after} | ({"state:x,y": states} if call == GRADIENT else {})
        made = called(
            name, "MPSCNNConvolutionGradient", "initWithDevice:weights: weights", call, words, images, results
        )
        made.settings |= kernel | settings
        return made

    plain: Arrays = {"x": x, "e": e, "y": e, "weights": w, "bias": b}
    nothing, no_state = np.full(g.shape, UNTOUCHED), np.full(state.shape, UNTOUCHED)
    data, weights = properties(gradientOption=1), properties(gradientOption=2)
    yield one("the first encode overwrites the state", g, state, plain)
    yield one("the second one adds", g, 2 * state, plain, times=2)
    yield one("data alone", g, no_state, plain, **data)
    yield one("weights alone", nothing, state, plain, **weights)
    yield one("data without a state", g, None, plain, BINARY, no_twin=True, **data)
    larger = within((1, 8, 9, 6), (0, 2, 3, 0), e, 0).astype(np.float32)
    yield one("from primaryOffset on", g, state, plain | {"e": larger}, **properties(primaryOffset="3,2,0"))
    moved = properties(kernelOffsetX=3, kernelOffsetY=1)
    yield one("kernelOffset moves the result", g[:, 1:, 2:6], no_state, plain, **data | moved)

    places = properties(
        primaryOffset="0,0,1",
        primarySourceFeatureChannelOffset=4,
        secondaryOffset="0,0,2",
        secondarySourceFeatureChannelOffset=4,
        secondarySourceFeatureChannelMaxCount=5,
        destinationFeatureChannelOffset=8,
        clipRect="2,1,0,3,4,1",
    )
    wide = {"x": random(3, 5, 7, 12), "e": random(3, 5, 4, 10)}
    wide["x"][2:, ..., 4:9], wide["e"][1:2, ..., 4:] = x, e
    halves = plain | {name: values.astype(np.float16) for name, values in wide.items()}
    part = within((1, 6, 6, 14), (0, 1, 2, 8), g[:, :4, :3], np.nan)
    layer = {"layer.property.sourceFeatureChannelOffset": 4, "layer.property.sourceFeatureChannelMaxCount": 5}
    name = "channels, images, a clip and halves"
    yield one(name, part, state, halves, tolerance=1e-3, **{"result.dtype": "float16"}, **layer, **places)

    fused = plain | {"mean": np.zeros(6, np.float32), "variance": np.ones(6, np.float32)}
    fused |= {"gamma": np.full(6, 2, np.float32), "beta": np.zeros(6, np.float32)}
    name = "a fused neuron is ignored, a fused normalization is part of the weights"
    yield one(name, *derivatives(2 * w), fused, neuron="1 0 0 0", epsilon=0)


def normalized_convolutions() -> Iterator[Row]:
    """Each single array of the normalization may be NULL, which has no effect."""
    x, w, b = random(1, 2, 3, 3), random(2, 1, 1, 3), random(2)
    neutral = {"mean": 0, "variance": 1, "gamma": 1, "beta": 0}
    given = {name: random(2, seed=i) / 2 + np.float32(1) for i, name in enumerate(neutral)}
    for missing, value in neutral.items():
        numbers = {name: values.astype("f8") for name, values in given.items()} | {missing: np.full(2, value, "f8")}
        weight, bias = conv.fold_batch_norm(w.astype("f8"), b.astype("f8"), epsilon=0.125, **numbers)
        after = {"empty:result": conv.convolution(x.astype("f8"), weight, bias, size=(2, 3), offset=(0, 0))}
        arrays = {"x": x, "weights": w, "bias": b} | {name: each for name, each in given.items() if name != missing}
        init, words = "initWithDevice:weights: weights", "image:x empty:result"
        made = called(f"{missing} is NULL", "MPSCNNConvolution", init, UNARY, words, arrays, after, epsilon=0.125)
        made.settings |= {"descriptor": "MPSCNNConvolutionDescriptor", "weights": "2 1 1 3"}
        made.settings |= {"weights.type": 0x10000020, "weights.half": False}
        yield made


def transposes() -> Iterator[Row]:
    """The kernel is centred on its dilated size: 5 x 4 pixels."""
    x, w = random(1, 6, 7, 3), random(2, 3, 2, 3)
    value = conv.convolution(x.astype("f8"), w.astype("f8"), None, size=(6, 7), offset=(0, 0), dilation=(2, 3))
    yield called(
        "a dilated transpose",
        "MPSCNNConvolutionTranspose",
        "initWithDevice:weights: weights",
        UNARY,
        "image:x empty:result",
        {"x": x, "weights": w},
        {"empty:result": value},
        descriptor="MPSCNNConvolutionDescriptor",
        weights="2 3 2 3",
        weights__type=0x10000020,
        weights__half=False,
        descriptor__dilationRateX=3,
        descriptor__dilationRateY=2,
    )


def bits() -> Iterator[Row]:
    """One scale for all outputs, and the bias of the data source."""
    case = row("BinaryConvolution", x=(2, 6, 7, 40), weight=(9, 2, 3, 40), type="binary_weights", why="one scale")
    inputs = make(case, "float32")
    right = oracle.expected(case, inputs, "float32")
    one = objc_forward.kernel(case, inputs)
    assert inputs.bias is not None
    one.name = "one scale, the source's bias"
    one.settings["init"] = "initWithDevice:convolutionData:scaleValue:type:flags:"
    one.settings["arguments"] = "device weights 0.5 0 0"
    one.settings |= {"call": UNARY, "call_arguments": "commands image:source empty:result", "tolerance": 1e-4}
    one.settings["result"] = " ".join(map(str, right.value.shape))
    one.arrays["after.empty:result"] = (right.value + inputs.bias) / 2
    yield one


# ---------------------------------------------------------------------------------------------- gradients of windows


def pools() -> Iterator[Row]:
    """Windows of 3 x 2 pixels at every other column, shifted by (-1, 1); the gradient is a part of a larger image."""
    x = np.random.default_rng(3).permutation(168).reshape(1, 6, 7, 4).astype(np.float32) / 64 - 1.01
    e = random(1, 8, 9, 4)

    def derivative(upstream: Array) -> Array:
        window: dict[str, Any] = {"kernel": (3, 2), "stride": (1, 2), "dilation": (1, 1), "edge": "zero"}
        window |= {"size": upstream.shape[1:3], "offset": (-1, 1)}
        return gradients(lambda x: pooling.maximum(x, **window), [x.astype("f8")], upstream, by_image=True)[0]

    place = properties(secondaryOffset="1,-1,0", primaryOffset="1,2,0", sourceSize="3,2,1")
    g = derivative(e[:, 2:4, 1:4].astype("f8"))
    clip = within(x.shape, (0, 1, 2, 0), g[:, 1:5, 2:5])
    moved = properties(secondaryOffset="1,-1,0", primaryOffset="-1,-1,0")
    shifted = derivative(within((1, 9, 10, 4), (0, 1, 1, 0), e, 0))
    names = {"a part of the gradient": (g, place), "an offset before the gradient": (shifted, moved)}
    names["clipRect says which pixels of the source are written"] = (clip, place | properties(clipRect="2,1,0,3,4,1"))
    init = "initWithDevice:kernelWidth:kernelHeight:strideInPixelsX:strideInPixelsY: 2 3 2 1"
    for name, (value, settings) in names.items():
        images, words = {"x": x, "e": e}, "image:e image:x empty:result"
        made = called(name, "MPSCNNPoolingMaxGradient", init, BINARY, words, images, {"empty:result": value})
        made.settings |= settings
        yield made


def upsamplings() -> Iterator[Row]:
    """Rows 2 and 3 of the six belong to row 1 of the source."""
    e = within((1, 7, 14, 5), (0, 1, 2, 0), random(1, 6, 12, 5), 100).astype(np.float32)
    sums = e[:, 1:, 2:].astype("f8").reshape(1, 3, 2, 4, 3, 5).sum((2, 4))
    yield called(
        "a part of an upsampling's gradient",
        "MPSCNNUpsamplingNearestGradient",
        "initWithDevice:integerScaleFactorX:integerScaleFactorY: 3 2",
        BINARY,
        "image:e image:x empty:result",
        {"e": e, "x": random(1, 3, 4, 5)},
        {"empty:result": within((1, 3, 4, 5), (0, 1, 1, 0), sums[:, 1:2, 1:3])},
        **properties(primaryOffset="2,1,0", clipRect="1,1,0,2,1,1"),
    )


def neurons() -> Iterator[Row]:
    """The state passes on the forward kernel's offset and channels: pixel y of the source became pixel y - offset."""
    x, e = random(1, 6, 7, 12), random(1, 4, 5, 4)
    value = within((1, 6, 7, 4), (0, 2, 1, 0), e * np.where(x[:, 2:, 1:6, 4:8] >= 0, 1, 0.25), 0)
    settings = {"layer.class": "MPSCNNNeuron", "layer.init": "initWithDevice:neuronDescriptor:", "neuron": "1 0.25 0 0"}
    settings |= {"layer.arguments": "device neuron", "layer.property.offset": "1,2,0"}
    settings |= {f"layer.property.sourceFeatureChannel{name}": 4 for name in ("Offset", "MaxCount")}
    name, kernel = "a neuron's gradient through an offset", "MPSCNNNeuronGradient"
    call, words = GRADIENT.removesuffix("destinationGradient:"), "image:e image:x state:x,e"
    init, arrays = "initWithDevice:neuronDescriptor: neuron", {"x": x, "e": e}
    yield called(name, kernel, init, call, words, arrays, {"returned": value}, **settings)


def local_normalizations() -> Iterator[Row]:
    """The result's first pixel is pixel (2, 1) of the source; its last row is out of bounds."""
    x, e = random(3, 6, 5, 12), random(2, 6, 5, 9)
    numbers: dict[str, Any] = {"kernel": 3, "edge": "zero", "alpha": 1, "beta": 5, "delta": 1}
    numbers |= {"size": (6, 5), "offset": (0, 0)}
    seen, upstream = x[1:, ..., 4:9].astype("f8"), e[..., 4:].astype("f8")
    g = gradients(lambda x: local.spatial(x, **numbers), [seen], upstream, by_image=True)[0]
    part = np.zeros((2, 5, 3, 5))
    part[:, :4] = g[:, 2:, 1:4]
    settings = {"SourceFeatureChannelOffset": 4, "SourceFeatureChannelMaxCount": 5}
    places = properties(**{side + name: value for side in ("primary", "secondary") for name, value in settings.items()})
    places |= properties(primaryOffset="1,2,0", secondaryOffset="1,2,1", clipRect="2,1,0,3,5,2")
    yield called(
        "places of a local normalization's gradient",
        "MPSCNNSpatialNormalizationGradient",
        "initWithDevice:kernelWidth:kernelHeight: 3 3",
        BINARY,
        "image:e image:x empty:result",
        {"x": x, "e": e},
        {"empty:result": within((2, 7, 6, 10), (0, 1, 2, 4), part)},
        **places | properties(destinationFeatureChannelOffset=4),
    )


# -------------------------------------------------------------------------------------------------------- arithmetic


def arithmetic() -> Iterator[Row]:
    """The properties of a gradient without a state, set by hand."""
    e, y = random(1, 3, 4, 5), random(1, 3, 4, 5, seed=1)
    product = e.astype("f8") * y / 2
    scales: dict[str, Any] = {"primaryScale": 3, "secondaryScale": -2, "bias": 100}
    once = {"secondaryStrideInPixelsX": 0, "secondaryStrideInPixelsY": 0}
    part: dict[str, Any] = {"clipRect": "0,1,0,4,1,1", "primaryOffset": "0,1,0", "secondaryOffset": "0,1,0"}
    half = {"primaryScale": 0.5}
    rows: list[tuple[str, str, int, dict[str, Any], Array]] = [
        ("a sum's second source", "Add", 1, scales, -2.0 * e),
        ("strides of 0 sum", "Add", 1, scales | once, -2.0 * e.sum((1, 2), keepdims=True)),
        ("a difference's second source", "Subtract", 1, {"primaryScale": -1}, -e),
        ("a product", "Multiply", 0, half, product),
        ("a product for one channel", "Multiply", 0, half, product.sum(3, keepdims=True)),
        ("a product for one value", "Multiply", 0, half, product.sum((1, 2, 3), keepdims=True)),
        (
            "clipRect of one row sums nothing",
            "Multiply",
            0,
            half | part,
            within(e.shape, (0, 1, 0, 0), product[:, 1:2]),
        ),
    ]
    for name, kind, source, settings, value in rows:
        init = f"initWithDevice:isSecondarySourceFilter: {source}"
        words, images = "image:e image:y empty:result", {"e": e, "y": y}
        made = called(name, f"MPSCNN{kind}Gradient", init, BINARY, words, images, {"empty:result": value})
        made.settings |= properties(**settings)
        yield made
    larger = random(1, 5, 6, 5)
    sums = np.zeros(e.shape)
    places = np.minimum(np.arange(5) + 1, 2)[:, None], np.clip(np.arange(6) - 2, 0, 3)
    np.add.at(sums, (slice(None), *places), larger)
    yield called(
        "a sum's clamped source without a state",
        "MPSCNNAddGradient",
        "initWithDevice:isSecondarySourceFilter: 0",
        BINARY,
        "image:e image:y empty:result",
        {"e": larger, "y": y},
        {"empty:result": sums},
        **properties(kernelOffsetX=2, kernelOffsetY=-1, secondaryEdgeMode=1),  # the forward offset is (-2, 1)
    )
    x = np.array((1, -1, 0, 6), np.float32).reshape(1, 1, 1, 4)
    divisor = np.array((0, 0, 0, 2), np.float32).reshape(x.shape)
    quotients = np.array((np.inf, -np.inf, np.nan, 3)).reshape(x.shape)
    words, images = "image:e image:y empty:result", {"e": x, "y": divisor}
    name = "infinities pass the bounds of the start"
    yield called(name, "MPSCNNDivide", "initWithDevice:", BINARY, words, images, {"empty:result": quotients})


PLACES = {
    "both outside": ("5,5,0", 0, False),
    "rows outside": ("0,1,0", 0, False),
    "columns before": ("-1,0,0", 0, False),
    "inside": ("0,0,0", 0, True),
    "clamped": ("5,-5,0", 1, True),
}


def arithmetic_with_states() -> Iterator[Row]:
    """A repeated source that is read out of bounds has a gradient of 0 for any incoming one; a value at a bound."""
    a, b, e = random(1, 3, 4, 5), random(1, 1, 1, 5), random(1, 3, 4, 5, seed=1)
    terms = {"Add": e.astype("f8"), "Subtract": -e.astype("f8"), "Multiply": e.astype("f8") * a}
    for kind, products in terms.items():
        layer = {"layer.class": f"MPSCNN{kind}", "layer.init": "initWithDevice:", "layer.arguments": "device"}
        init = "initWithDevice:isSecondarySourceFilter: "
        for name, (offset, edge, is_read) in PLACES.items():
            incoming = e.copy()
            if not is_read:
                incoming[0, 1, 2, 3] = np.inf
            value = products.sum((1, 2), keepdims=True) * is_read
            seen = "a" if kind == "Multiply" else "b"
            settings = layer | {"layer.property.secondaryStrideInPixelsX": 0}
            settings |= {"layer.property.secondaryStrideInPixelsY": 0, "layer.property.secondaryOffset": offset}
            settings["layer.property.secondaryEdgeMode"] = edge
            images, words = {"a": a, "b": b, "e": incoming}, f"image:e image:{seen} state:a,b,e"
            call, kernel = GRADIENT.removesuffix("destinationGradient:"), f"MPSCNN{kind}Gradient"
            after = {"returned": value}
            yield called(f"{kind}, {name}", kernel, init + "1", call, words, images, after, **settings)
    layer = {"layer.class": "MPSCNNAdd", "layer.init": "initWithDevice:", "layer.arguments": "device"}
    first = "encodeToCommandBuffer:primaryImage:secondaryImage:destinationState:destinationImage:"
    layer |= {"layer.property.maximumValue": "1", "sum": "1 1 1 4"}
    layer["before.1"] = f"layer {first} commands image:half image:half state:half,half,half empty:sum"
    words, images = "image:half image:half state:half,half,half", {"half": np.full((1, 1, 1, 4), 0.5, np.float32)}
    call, after = GRADIENT.removesuffix("destinationGradient:"), {"returned": np.zeros((1, 1, 1, 4))}
    yield called("a value at the bound", "MPSCNNAddGradient", f"{init}0", call, words, images, after, **layer)


def reductions() -> Iterator[Row]:
    x = random(1, 4, 5, 6)
    name, after = "a narrow destination has the first pixels", {"empty:result": x.max(1, keepdims=True)[:, :, :3]}
    yield called(name, "MPSNNReduceColumnMax", "initWithDevice:", UNARY, "image:x empty:result", {"x": x}, after)


def rows() -> Iterator[Row]:
    for part in (convolutions, normalized_convolutions, transposes, bits):
        yield from part()
    for part in (pools, upsamplings, neurons, local_normalizations):
        yield from part()
    for part in (arithmetic, arithmetic_with_states, reductions):
        yield from part()
