# SPDX-License-Identifier: Apache-2.0
"""Cases of MPSCNNNeuron and its subclasses [MPSCNNNeuron.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import math

from . import row

# Negative and positive values, 0, fractions, and values whose exp() overflows or underflows.
WIDE = (
    0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    3.0,
    -3.0,
    6.0,
    7.5,
    -7.5,
    20.0,
    -20.0,
    88.0,
    -88.0,
    100.0,
    -100.0,
    1000.0,
    -1000.0,
    1e-3,
    -1e-3,
)
TINY = (1e-4, -1e-4, 3e-6, -3e-6, 1e-7, -1e-7, 0.0, 1e-30, -1e-30)
SPECIAL = (math.nan, math.inf, -math.inf, 1.0, -1.0, 0.0)

POSITIVE = (0.5, 1.0, 4.5, 49.5, 0.125, 7.0, 100.0)
# Values at which no function has a kink.
STEEP = (0.5, -0.5, 3.0, -3.0, 7.5, -7.5, 20.0, -20.0, 88.0, -88.0, 1000.0, -1000.0, 1e-3, -1e-3)

# Every function with parameters that distinguish them; also fused into a convolution.
ALL_TYPES: dict[str, tuple[float, ...]] = {
    "none": (),
    "relu": (0.25,),
    "linear": (-1.5, 0.75),
    "sigmoid": (),
    "hard_sigmoid": (0.3, 0.4),
    "tanh": (3.0, 0.5),
    "absolute": (),
    "softplus": (1.5, 2.0),
    "softsign": (),
    "elu": (0.7,),
    "prelu": (),
    "relun": (0.1, 1.25),
    "power": (0.5, 0.25, 2.0),
    "exponential": (0.5, -1.0, 3.0),
    "logarithm": (0.25, 4.0, 10.0),
    "gelu": (),
}

# Names of functions that NeuronGradient accepts as text.
SHORT = ("relu", "relu6", "leaky_relu", "sigmoid", "hardsigmoid", "tanh", "softplus", "softsign", "elu", "gelu")

CASES = [
    # The general class, by type.
    *[
        row(
            "Neuron",
            x=(2, 3, 5, 7),
            type=name,
            **dict(zip("abc", numbers, strict=False)),
            why=f"type {name} through its descriptor, channels no multiple of 4, batch",
        )
        for name, numbers in ALL_TYPES.items()
    ],
    *[
        row("Neuron", x=(1, 3, 5, 4), type=name, why=f"{name} with the parameters of its name")
        for name in ("identity", "leaky_relu", "hardsigmoid", "abs", "relu6", "tanh", "exp")
    ],
    row("Neuron", x=(1, 3, 5, 4), type="log", values=(0.5, 1.0, 7.0, 0.1, 100.0), why="natural by its name alone"),
    # The subclasses.
    row("NeuronAbsolute", x=(1, 5, 7, 6), why="subclass without parameters"),
    row("NeuronAbsolute", x=(1, 3, 3, 2), values=SPECIAL, why="NaN stays, -inf becomes inf"),
    row("NeuronAbsolute", x=(1, 2, 3, 4), values=(-1e-2, 1e-3, -1e-4, -3e-5, 2e-4), why="small numbers on both sides"),
    row("NeuronELU", x=(1, 4, 5, 4), values=WIDE, why="a defaults to 1; far below 0 the result is -a"),
    row(
        "NeuronELU", x=(1, 4, 5, 4), a=0.3, values=TINY, dtypes=("float32",), why="next to 0 exp(x) - 1 must not cancel"
    ),
    row("NeuronELU", x=(1, 3, 2, 3), a=-0.5, why="negative a"),
    row("NeuronELU", x=(1, 3, 3, 2), values=SPECIAL, why="ELU of NaN and infinities"),
    row("NeuronExponential", x=(1, 4, 5, 5), why="base e by default"),
    row("NeuronExponential", x=(1, 4, 5, 5), a=1.5, b=0.5, c=2.0, why="base 2 with both coefficients"),
    row("NeuronExponential", x=(1, 4, 5, 5), a=-1.0, c=0.5, why="base below 1: negative logarithm"),
    row("NeuronExponential", x=(1, 4, 5, 4), values=WIDE, dtypes=("float32",), why="too large gives inf, too small 0"),
    row("NeuronHardSigmoid", x=(1, 4, 5, 4), values=WIDE, why="defaults 0.2 and 0.5, saturated on both sides"),
    row("NeuronHardSigmoid", x=(1, 4, 5, 3), a=-0.75, b=0.1, why="falling line"),
    row("NeuronLinear", x=(1, 4, 5, 3), why="defaults 1 and 0: the source itself"),
    row("NeuronLinear", x=(2, 4, 5, 3), a=-2.0, b=0.125, why="negative slope and a constant"),
    row("NeuronLinear", x=(1, 2, 2, 4), a=0.0, b=3.0, why="slope 0: a constant"),
    row("NeuronLinear", x=(1, 3, 3, 2), a=2.0, b=-1.0, values=SPECIAL, why="a line through NaN and infinities"),
    row("NeuronLogarithm", x=(1, 3, 5, 4), b=4.0, values=(0.5, 1.0, 7.0, -3.5, 100.0), why="natural by default"),
    row("NeuronLogarithm", x=(1, 3, 5, 4), a=2.0, b=1.0, c=10.0, values=(0.5, 1.0, 4.5, 49.5, 0.0), why="base 10"),
    row("NeuronLogarithm", x=(1, 3, 5, 4), c=0.5, values=(0.5, 1.0, 7.0, 0.1, 100.0), why="base below 1"),
    row(
        "NeuronLogarithm",
        x=(1, 2, 4, 4),
        values=(0.0, -0.0, -1.0, 1.0, math.inf, math.nan, -math.inf, 2.0),
        why="logarithm of 0 is -inf, of less NaN",
    ),
    row("NeuronPReLU", x=(2, 4, 5, 4), why="a slope for each channel"),
    row("NeuronPReLU", x=(1, 4, 5, 7), why="number of slopes no multiple of 4"),
    row("NeuronPReLU", x=(1, 1, 1, 1), values=(-2.0,), why="a single slope"),
    row("NeuronPower", x=(1, 4, 5, 5), why="defaults 1, 0, 1: the source itself, negative values too"),
    row("NeuronPower", x=(1, 4, 5, 5), a=0.5, b=0.25, c=3.0, why="odd exponent keeps the sign"),
    row("NeuronPower", x=(1, 4, 5, 5), a=1.0, b=0.0, c=2.0, why="even exponent loses the sign"),
    row(
        "NeuronPower", x=(1, 4, 4, 4), c=-1.0, values=(1.0, -2.0, 0.25, 8.0, 0.0), why="negative exponent: 1 / 0 is inf"
    ),
    row("NeuronPower", x=(1, 4, 5, 4), c=0.0, values=WIDE, why="exponent 0 gives 1 everywhere, 0 ** 0 too"),
    row(
        "NeuronPower",
        x=(1, 4, 4, 4),
        c=0.5,
        values=(4.0, 0.0, 2.0, 100.0, -1.0, -0.25),
        why="root of a negative number is NaN",
    ),
    row("NeuronPower", x=(1, 3, 3, 2), c=2.0, values=SPECIAL, why="power of NaN and infinities"),
    row("NeuronPower", x=(1, 3, 3, 2), c=1.5, values=SPECIAL, why="-inf to a power that is not whole: inf"),
    row("NeuronPower", x=(1, 3, 3, 2), c=-1.5, values=SPECIAL, why="-inf to such a power below 0: 0"),
    row("NeuronReLU", x=(2, 5, 7, 6), why="a defaults to 0"),
    row("NeuronReLU", x=(1, 5, 7, 6), a=0.25, why="leaky"),
    row("NeuronReLU", x=(1, 5, 7, 6), a=-1.0, why="negative slope: the absolute value"),
    row("NeuronReLU", x=(1, 5, 7, 6), a=1.5, why="slope above 1: not a maximum of x and a * x"),
    row("NeuronReLU", x=(1, 3, 3, 2), values=SPECIAL, a=0.5, why="NaN is not replaced by 0"),
    row("NeuronReLU", x=(1, 3, 3, 2), values=SPECIAL, why="0 for -inf, not 0 * -inf"),
    row("NeuronReLUN", x=(1, 4, 5, 4), values=WIDE, why="defaults 1 and 6: not clamped below"),
    row("NeuronReLUN", x=(1, 4, 5, 4), a=0.0, b=6.0, values=WIDE, why="ReLU6"),
    row("NeuronReLUN", x=(1, 4, 5, 4), a=0.5, b=-1.0, values=WIDE, why="negative b: the smaller one also below 0"),
    row("NeuronReLUN", x=(1, 4, 5, 4), a=-1.0, b=2.0, values=WIDE, why="negative a: b also bounds the left side"),
    row("NeuronReLUN", x=(1, 3, 3, 2), a=0.0, b=6.0, values=SPECIAL, why="NaN is not replaced by b"),
    row("NeuronSigmoid", x=(1, 4, 5, 4), values=WIDE, why="+-100 and beyond: 0 and 1, nothing overflows"),
    row("NeuronSigmoid", x=(1, 5, 7, 3), why="the steep part"),
    row("NeuronSigmoid", x=(1, 3, 3, 2), values=SPECIAL, why="logistic function of NaN and infinities"),
    row("NeuronSoftPlus", x=(1, 4, 5, 4), values=WIDE, why="large x is the result itself: exp must not overflow"),
    row("NeuronSoftPlus", x=(1, 4, 5, 4), a=0.5, b=-3.0, values=WIDE, why="mirrored by a negative b"),
    row("NeuronSoftPlus", x=(1, 4, 5, 6), a=-1.5, b=0.25, why="both parameters, ordinary values"),
    row("NeuronSoftPlus", x=(1, 3, 3, 2), values=SPECIAL, why="soft plus of NaN and infinities"),
    row("NeuronSoftSign", x=(1, 4, 5, 4), values=WIDE, why="far out +-1"),
    row("NeuronTanH", x=(1, 4, 5, 4), values=WIDE, why="defaults 1 and 1, saturated on both sides"),
    row(
        "NeuronTanH",
        x=(1, 4, 5, 4),
        a=2.0,
        b=0.5,
        values=TINY,
        dtypes=("float32",),
        why="next to 0 a line, without loss of digits",
    ),
    row("NeuronTanH", x=(1, 4, 5, 3), a=3.0, b=0.5, why="a outside, b inside"),
    row("NeuronTanH", x=(1, 3, 3, 2), values=SPECIAL, a=2.0, b=-1.0, why="hyperbolic tangent of NaN and infinities"),
    row("Neuron", x=(1, 4, 5, 4), type="gelu", values=WIDE, why="GeLU far out: 0 and x"),
    row("Neuron", x=(1, 4, 5, 4), type="gelu", values=TINY, dtypes=("float32",), why="GeLU next to 0: half of x"),
    row("Neuron", x=(1, 3, 3, 2), type="softsign", values=(math.nan, 1.0, -1.0, 0.0), why="soft sign of NaN"),
    # Options of sources and destinations that every kernel has, on the simplest kernel.
    row("NeuronReLU", x=(3, 4, 5, 8), dtypes=("uint8", "uint16"), why="unsigned images are fractions, stored as such"),
    row(
        "NeuronLinear",
        x=(1, 4, 5, 6),
        a=2.0,
        b=-0.25,
        dtypes=("uint8", "uint16"),
        why="unsigned results are clamped to 0 and 1",
    ),
    row(
        "NeuronLinear",
        x=(1, 4, 5, 6),
        a=-3.0,
        b=0.5,
        dtypes=("uint8", "uint16"),
        result_dtype="float32",
        why="bytes in, floats out",
    ),
    row("NeuronSigmoid", x=(1, 4, 5, 6), dtypes=("float32",), result_dtype="float16", why="floats in, halves out"),
    row(
        "NeuronSigmoid",
        x=(1, 4, 5, 6),
        dtypes=("float16",),
        result_dtype="float32",
        why="halves in, floats out: not rounded to half",
    ),
    row(
        "NeuronSigmoid",
        x=(1, 4, 5, 6),
        dtypes=("float32",),
        result_dtype="uint8",
        why="floats in, bytes out: rounded to the nearest",
    ),
    row("NeuronAbsolute", x=(2, 5, 6, 4), offset=(2, 1), why="a shifted source: 0 where it ends"),
    row(
        "NeuronAbsolute",
        x=(2, 5, 6, 4),
        offset=(-1, -2),
        edge_mode="clamp",
        why="a shifted source: its last pixel where it ends",
    ),
    row("NeuronAbsolute", x=(3, 2, 3, 5), offset=(0, 0, 1), why="from the second image on"),
    row(
        "NeuronAbsolute",
        x=(3, 5, 6, 4),
        offset=(1, 2, 1),
        clip_rect=((2, 1, 3), (3, 4, 2)),
        out=(6, 7, 8, 4),
        why="images, rows and columns of source and destination all chosen",
    ),
    row("NeuronReLU", x=(2, 3, 4, 12), source_feature_channel_offset=4, why="not the first channels"),
    row(
        "NeuronReLU",
        x=(2, 3, 4, 12),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=3,
        why="a few channels of the middle",
    ),
    row("NeuronReLU", x=(2, 3, 4, 5), source_feature_channel_max_count=9, why="more channels allowed than there are"),
    row(
        "NeuronReLU",
        x=(2, 3, 4, 4),
        destination_feature_channel_offset=8,
        why="result behind 8 channels that are not written",
    ),
    row(
        "NeuronReLU",
        x=(2, 3, 4, 4),
        destination_feature_channel_offset=4,
        out=(2, 3, 4, 16),
        why="channels before and behind the result stay",
    ),
    row(
        "NeuronPReLU",
        x=(1, 3, 4, 12),
        source_feature_channel_offset=8,
        destination_feature_channel_offset=4,
        why="slopes follow the channels that are read",
        x_view="dense",
    ),
    row("NeuronTanH", x=(2, 5, 6, 7), x_view="nchw", why="source in planes: channels are not adjacent"),
    row("NeuronTanH", x=(2, 5, 6, 7), x_view="channels", why="source is a run of channels of a wider array"),
    row("NeuronTanH", x=(2, 5, 6, 7), x_view="steps", why="source has steps between its pixels"),
    row("NeuronTanH", x=(2, 5, 6, 7), x_view="reversed", why="source with negative strides"),
    row("NeuronTanH", x=(3, 5, 6, 7), x_view="broadcast", why="source repeats one image: stride 0"),
    row("NeuronTanH", x=(2, 5, 6, 7), x_view="read-only", why="source may not be written"),
    row("NeuronTanH", x=(2, 5, 6, 7), out_view="nchw", why="result in planes"),
    row("NeuronTanH", x=(2, 5, 6, 7), out_view="channels", why="result is a run of channels of a wider array"),
    row("NeuronTanH", x=(2, 5, 6, 7), out_view="steps", why="result has steps between its pixels"),
    row("NeuronTanH", x=(2, 5, 6, 7), out_view="reversed", why="result with negative strides"),
    row("NeuronSigmoid", x=(1, 1, 1, 1), why="a single element"),
    row("NeuronSigmoid", x=(1, 1, 1, 4099), why="one pixel of many channels, a prime number of them"),
    row("NeuronSigmoid", x=(2, 61, 67, 19), why="more than one thread's share, nothing divides it"),
    # Gradients: x is the gradient of the result, `second` the source.
    *[
        row(
            "NeuronGradient",
            x=(2, 3, 5, 7),
            second=(2, 3, 5, 7),
            activation=(name, *numbers),
            values=POSITIVE if name == "logarithm" else (),
            why=f"gradient of type {name}",
        )
        for name, numbers in ALL_TYPES.items()
    ],
    *[
        row(
            "NeuronGradient",
            x=(1, 3, 4, 4),
            second=(1, 3, 4, 4),
            activation=name,
            why=f"gradient of {name} by its name",
        )
        for name in (
            "relu",
            "relu6",
            "leaky_relu",
            "sigmoid",
            "hardsigmoid",
            "tanh",
            "softplus",
            "softsign",
            "elu",
            "gelu",
        )
    ],
    *[
        row("NeuronGradient", x=(1, 4, 5, 4), second=(1, 4, 5, 4), activation=activation, values=STEEP, why=why)
        for activation, why in (
            (("sigmoid",), "slope of the logistic function far out: nothing overflows"),
            (("softplus", 0.5, -3.0), "slope of soft plus far out, mirrored"),
            (("elu", 0.7), "slope of ELU far below 0"),
            (("gelu",), "slope of gelu far out"),
            (("softsign",), "slope of soft sign far out"),
        )
    ],
    row(
        "NeuronGradient",
        x=(1, 4, 5, 4),
        second=(1, 4, 5, 4),
        activation=("tanh", 3.0, 0.5),
        values=(0.5, -0.5, 3.0, -7.5, 16.0, -16.0, 20.0, -20.0, 1000.0, -1000.0, 1e-3),  # as far as PyTorch is accurate
        why="slope of tanh far out, where 1 - tanh ** 2 has none in float32",
    ),
    row(
        "NeuronGradient",
        x=(1, 3, 5, 4),
        second=(1, 3, 5, 4),
        activation=("exponential", 1.5, 0.5, -1.0),
        why="slope of exp: base e",
    ),
    row(
        "NeuronGradient",
        x=(1, 3, 5, 4),
        second=(1, 3, 5, 4),
        activation=("logarithm", 2.0, 1.0, -1.0),
        values=POSITIVE,
        why="slope of the natural logarithm",
    ),
    row(
        "NeuronGradient",
        x=(1, 3, 5, 4),
        second=(1, 3, 5, 4),
        activation=("power", 1.5, 0.5, 1.0),
        why="slope of the first power: constant",
    ),
    row(
        "NeuronGradient",
        x=(1, 3, 5, 4),
        second=(1, 3, 5, 4),
        activation=("power", 1.5, 0.5, 3.0),
        why="slope of an odd power",
    ),
    row(
        "NeuronGradient",
        x=(1, 40, 41, 16),
        second=(1, 40, 41, 16),
        activation="gelu",
        why="gradient on several threads",
    ),
    row(
        "NeuronGradient",
        x=(2, 4, 5, 6),
        second=(2, 4, 5, 6),
        activation="tanh",
        primary_offset=(-1, 2),
        why="gradient of a result that was moved, zeros around it",
    ),
    row(
        "NeuronGradient",
        x=(2, 4, 5, 6),
        second=(2, 4, 5, 6),
        activation="tanh",
        secondary_offset=(1, -2),
        secondary_edge_mode="clamp",
        primary_edge_mode="clamp",
        why="source of the gradient moved, clamped",
    ),
    row(
        "NeuronGradient",
        x=(2, 4, 5, 12),
        second=(2, 4, 5, 8),
        activation="sigmoid",
        primary_source_feature_channel_offset=8,
        primary_source_feature_channel_max_count=4,
        secondary_source_feature_channel_offset=4,
        secondary_source_feature_channel_max_count=8,
        why="gradient of a run of channels",
    ),
    row(
        "NeuronGradient",
        x=(2, 4, 5, 4),
        second=(2, 4, 5, 4),
        activation="elu",
        destination_feature_channel_offset=4,
        clip_rect=((1, 1, 0), (2, 3, 1)),
        out=(2, 4, 5, 9),
        why="gradient into a part of a destination",
    ),
    row(
        "NeuronGradient",
        x=(1, 4, 5, 6),
        second=(1, 4, 5, 6),
        activation="gelu",
        dtypes=("float16",),
        second_dtype="float32",
        result_dtype="float32",
        why="gradient of other types than the source",
    ),
    row(
        "NeuronGradient",
        x=(1, 4, 5, 6),
        second=(1, 4, 5, 6),
        activation="sigmoid",
        x_view="nchw",
        second_view="channels",
        why="gradient of arrays with strides",
    ),
]
