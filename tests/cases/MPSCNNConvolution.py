# SPDX-License-Identifier: Apache-2.0
"""Cases of MPSCNNConvolution: windows, groups, weights, activations, sub-pixel rearrangement [MPSCNNConvolution.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from . import Case, row
from .MPSCNNNeuron import ALL_TYPES


def conv(**arguments: object) -> Case:
    return row("Convolution", **arguments)  # type: ignore[arg-type]


WINDOWS = [
    conv(x=(1, 5, 7, 4), weight=(8, 4, 3, 3), why="plain: square kernel, no padding"),
    conv(x=(1, 5, 7, 4), weight=(8, 4, 1, 1), why="1 x 1: a matrix product per pixel"),
    conv(x=(1, 1, 1, 1), weight=(1, 1, 1, 1), why="the smallest there is"),
    conv(x=(1, 6, 9, 4), weight=(8, 4, 2, 5), why="kernel neither square nor odd in height"),
    conv(x=(1, 9, 6, 4), weight=(8, 4, 5, 2), why="kernel taller than wide, even in width"),
    conv(
        x=(1, 7, 9, 4), weight=(4, 4, 4, 2), padding=(2, 1), why="even kernel: which of the middle taps is its centre"
    ),
    conv(x=(1, 7, 5, 3), weight=(5, 3, 3, 2), padding=1, why="channels no multiple of 4 on either side"),
    conv(x=(1, 6, 5, 1), weight=(1, 1, 3, 3), padding=1, why="one channel"),
    conv(x=(2, 6, 5, 2), weight=(6, 2, 3, 3), padding=1, why="two channels, batch"),
    conv(x=(4, 5, 6, 5), weight=(7, 5, 2, 3), padding=(1, 0), why="batch of images that are no multiple of anything"),
    conv(x=(1, 8, 9, 4), weight=(4, 4, 3, 2), padding=((2, 0), (1, 3)), why="padding different on all four sides"),
    conv(
        x=(1, 4, 5, 4),
        weight=(4, 4, 3, 3),
        padding=((3, 4), (5, 2)),
        why="padding wider than the kernel: only bias there",
    ),
    conv(x=(1, 3, 4, 4), weight=(4, 4, 7, 5), padding=(3, 2), why="kernel larger than the source"),
    conv(x=(1, 3, 7, 4), weight=(4, 4, 3, 7), why="kernel as large as the source: one pixel"),
    conv(x=(1, 1, 16, 4), weight=(4, 4, 1, 5), padding=(0, 2), why="one row"),
    conv(x=(1, 16, 1, 4), weight=(4, 4, 5, 1), padding=(2, 0), why="one column"),
    conv(x=(1, 9, 9, 4), weight=(8, 4, 3, 3), stride=2, padding=1, why="stride 2, sizes that fit"),
    conv(
        x=(1, 8, 11, 4),
        weight=(8, 4, 3, 3),
        stride=(3, 2),
        padding=1,
        why="strides that leave a remainder, one per axis",
    ),
    conv(
        x=(1, 10, 9, 4),
        weight=(8, 4, 2, 2),
        stride=(3, 4),
        why="stride larger than the kernel: pixels that nobody reads",
    ),
    conv(x=(1, 10, 9, 8), weight=(4, 8, 1, 1), stride=2, why="1 x 1 with a stride"),
    conv(x=(1, 7, 6, 8), weight=(4, 8, 1, 1), padding=((1, 0), (0, 2)), why="1 x 1 with padding"),
    conv(x=(1, 11, 9, 4), weight=(8, 4, 3, 3), dilation=2, padding=2, why="equal dilations other than 1"),
    conv(x=(1, 13, 14, 4), weight=(8, 4, 3, 2), dilation=3, why="equal dilations, kernel not square"),
    conv(x=(1, 11, 12, 4), weight=(8, 4, 3, 2), dilation=(2, 3), padding=(1, 2), why="dilations that differ"),
    conv(
        x=(1, 12, 13, 4),
        weight=(8, 4, 2, 4),
        dilation=(3, 2),
        stride=(2, 3),
        padding=(2, 3),
        why="dilation and stride, even",
    ),
    conv(x=(1, 9, 8, 4), weight=(4, 4, 1, 3), dilation=(5, 2), why="dilation of a kernel with one row"),
    conv(x=(1, 5, 7, 4), weight=(8, 4, 3, 3), padding=1, bias=False, why="no bias"),
    conv(x=(1, 40, 3, 4), weight=(4, 4, 31, 3), padding=(15, 1), why="very tall kernel"),
    conv(x=(1, 5, 5, 513), weight=(3, 513, 3, 3), why="many channels in, few out"),
    conv(x=(1, 3, 3, 3), weight=(515, 3, 3, 3), why="few channels in, many out"),
    conv(x=(2, 23, 29, 13), weight=(17, 13, 5, 3), stride=(2, 1), padding=(2, 1), why="nothing divides anything"),
    conv(x=(1, 56, 56, 64), weight=(64, 64, 3, 3), padding=1, why="a layer of ResNet", tags=("ci", "bench", "resnet")),
    conv(x=(1, 56, 56, 64), weight=(256, 64, 1, 1), why="a bottleneck of ResNet", tags=("ci", "bench", "resnet")),
    conv(
        x=(1, 61, 59, 3),
        weight=(64, 3, 7, 7),
        stride=2,
        padding=3,
        why="the stem of ResNet",
        tags=("ci", "bench", "resnet"),
    ),
]

POLICIES = [
    conv(x=(1, 7, 6, 4), weight=(8, 4, 3, 3), padding="same", why="same with an odd kernel"),
    conv(
        x=(1, 7, 6, 4),
        weight=(8, 4, 4, 2),
        padding="same",
        why="same with an even kernel: remainder at the bottom right",
    ),
    conv(
        x=(1, 8, 7, 4), weight=(8, 4, 3, 3), stride=2, padding="same", why="same, stride 2 on an even size: odd padding"
    ),
    conv(
        x=(1, 10, 11, 4),
        weight=(8, 4, 2, 5),
        stride=(3, 2),
        padding="same",
        why="same with strides that leave a remainder",
    ),
    conv(x=(1, 11, 8, 4), weight=(8, 4, 1, 1), stride=3, padding="same", why="same, windows that do not reach the end"),
    conv(x=(1, 9, 10, 4), weight=(8, 4, 3, 2), dilation=(2, 3), padding="same", why="same counts the dilated kernel"),
    conv(x=(1, 7, 6, 4), weight=(8, 4, 3, 2), padding="valid", why="valid, every pixel used"),
    conv(
        x=(1, 13, 14, 4),
        weight=(8, 4, 2, 2),
        stride=4,
        padding="valid",
        why="valid with pixels left over: the area is centred",
    ),
    conv(
        x=(2, 12, 11, 4),
        weight=(8, 4, 3, 3),
        dilation=2,
        stride=3,
        padding="valid",
        why="valid, dilated, strided, batch",
    ),
    conv(
        x=(1, 6, 7, 4),
        weight=(4, 4, 3, 3),
        padding="same",
        destination_feature_channel_offset=4,
        why="a policy sizes a destination with an offset of channels",
    ),
    conv(
        x=(1, 6, 5, 4),
        weight=(16, 4, 3, 3),
        padding="same",
        sub_pixel_scale_factor=2,
        why="a policy sizes a sub-pixel result",
    ),
    conv(
        x=(3, 6, 7, 12),
        weight=(8, 4, 3, 3),
        padding="same",
        stride=2,
        source_feature_channel_offset=8,
        why="a policy with a part of the channels",
    ),
]

GROUPS = [
    conv(x=(1, 6, 7, 8), weight=(8, 4, 3, 3), groups=2, padding=1, why="two groups"),
    conv(x=(2, 6, 7, 12), weight=(24, 4, 3, 2), groups=3, padding=1, why="three groups, twice as many channels out"),
    conv(x=(1, 6, 7, 16), weight=(8, 8, 2, 3), groups=2, stride=2, why="groups with fewer channels out, strided"),
    conv(x=(1, 9, 8, 16), weight=(16, 4, 3, 3), groups=4, dilation=2, padding=2, why="groups and dilation"),
    conv(x=(1, 5, 6, 24), weight=(8, 12, 1, 1), groups=2, why="groups of a 1 x 1 kernel"),
    conv(x=(1, 7, 6, 4), weight=(4, 1, 3, 3), groups=4, padding=1, why="depth-wise"),
    conv(x=(2, 7, 6, 6), weight=(6, 1, 3, 2), groups=6, padding=1, why="depth-wise, channels no multiple of 4"),
    conv(x=(1, 9, 8, 32), weight=(32, 1, 3, 3), groups=32, stride=2, padding=1, why="depth-wise with stride"),
    conv(x=(1, 11, 12, 19), weight=(19, 1, 3, 5), groups=19, dilation=2, padding=(2, 4), why="depth-wise, dilated"),
    conv(
        x=(1, 8, 9, 8),
        weight=(8, 1, 4, 2),
        groups=8,
        padding=((1, 2), (0, 1)),
        why="depth-wise, even kernel, all sides differ",
    ),
    conv(x=(1, 5, 6, 8), weight=(8, 1, 1, 1), groups=8, why="depth-wise 1 x 1: a factor per channel"),
    conv(x=(1, 7, 6, 5), weight=(5, 1, 3, 3), layout="C1HW", padding=1, why="depth-wise by its layout"),
    conv(x=(1, 5, 6, 1), weight=(1, 1, 3, 3), layout="C1HW", padding=1, why="depth-wise with a single channel"),
    conv(
        x=(1, 28, 28, 96),
        weight=(96, 1, 3, 3),
        groups=96,
        padding=1,
        why="a layer of MobileNet",
        tags=("ci", "bench", "mobilenet"),
    ),
]

WEIGHTS = [
    conv(
        x=(1, 5, 6, 3),
        weight=(5, 2, 4, 3),
        layout="OHWI",
        padding=1,
        why="weights in MPS's own order: nothing to reorder",
    ),
    conv(x=(1, 5, 6, 3), weight=(2, 4, 3, 5), layout="HWIO", padding=1, why="weights in TensorFlow's order"),
    conv(x=(1, 6, 7, 8), weight=(8, 3, 2, 4), layout="OHWI", groups=2, why="groups in MPS's own order"),
    conv(x=(1, 6, 7, 8), weight=(3, 2, 4, 8), layout="HWIO", groups=2, why="groups in TensorFlow's order"),
    conv(x=(1, 6, 7, 8), weight=(8, 3, 3, 1), layout="OHWI", groups=8, padding=1, why="depth-wise in MPS's own order"),
    conv(
        x=(1, 6, 7, 8), weight=(3, 3, 1, 8), layout="HWIO", groups=8, padding=1, why="depth-wise in TensorFlow's order"
    ),
    conv(x=(1, 6, 7, 5), weight=(6, 5, 3, 3), weight_dtype="float16", padding=1, why="half weights"),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 5, 3, 3),
        weight_dtype="bfloat16",
        padding=1,
        why="bfloat16 weights are widened exactly",
    ),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 5, 3, 3),
        kernel_dtype="float16",
        padding=1,
        why="the kernel rounds its weights to half",
    ),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 5, 3, 3),
        kernel_dtype="float32",
        padding=1,
        why="the kernel keeps its weights as float",
    ),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 3, 2, 5),
        layout="OHWI",
        quantized="ranges",
        padding=1,
        why="bytes with a range per channel",
    ),
    conv(x=(1, 6, 7, 5), weight=(6, 5, 3, 2), quantized="ranges", padding=1, why="bytes with ranges, reordered"),
    conv(x=(1, 6, 7, 5), weight=(6, 5, 3, 2), quantized="lookup_table", padding=1, why="bytes by a table"),
    conv(x=(1, 6, 7, 8), weight=(8, 4, 3, 2), quantized="ranges", groups=2, why="bytes with ranges, in groups"),
    conv(x=(1, 6, 7, 8), weight=(8, 1, 3, 2), quantized="lookup_table", groups=8, why="bytes by a table, depth-wise"),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 3, 2, 5),
        layout="OHWI",
        batch_norm=True,
        padding=1,
        why="batch normalization is folded",
    ),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 3, 2, 5),
        layout="OHWI",
        batch_norm=True,
        bias=False,
        why="batch normalization without bias",
    ),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 3, 2, 5),
        layout="OHWI",
        batch_norm=True,
        kernel_dtype="float16",
        why="batch normalization is folded before the weights are rounded",
    ),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 3, 2, 5),
        layout="OHWI",
        batch_norm=True,
        activation=("relu", 0.1),
        padding=1,
        why="batch normalization comes before the activation",
    ),
    conv(
        x=(1, 6, 7, 6),
        weight=(6, 3, 3, 1),
        layout="OHWI",
        groups=6,
        batch_norm=True,
        why="batch normalization, depth-wise",
    ),
]

ACTIVATIONS = [
    *[
        conv(
            x=(1, 5, 6, 4),
            weight=(6, 4, 3, 3),
            padding=1,
            activation=(name, *numbers),
            why=f"{name} fused",
        )
        for name, numbers in ALL_TYPES.items()
        if name != "none"
    ],
    *[
        conv(x=(1, 4, 5, 4), weight=(5, 4, 2, 2), activation=name, why=f"{name} by its name alone")
        for name in (
            "none",
            "identity",
            "relu",
            "leaky_relu",
            "linear",
            "sigmoid",
            "hard_sigmoid",
            "hardsigmoid",
            "tanh",
            "absolute",
            "abs",
            "softplus",
            "softsign",
            "elu",
            "relun",
            "relu6",
            "power",
            "exponential",
            "exp",
            "logarithm",
            "log",
            "gelu",
        )
    ],
    conv(x=(1, 5, 6, 8), weight=(8, 4, 3, 3), groups=2, activation=("prelu",), why="a slope per channel of all groups"),
    conv(
        x=(1, 5, 6, 6),
        weight=(6, 1, 3, 3),
        groups=6,
        activation=("relun", 0.0, 6.0),
        why="depth-wise with an activation",
    ),
    conv(x=(1, 5, 6, 4), weight=(6, 4, 3, 3), activation=("relun", 0.5, -0.25), why="fused with a bound below 0"),
    conv(
        x=(1, 5, 6, 4), weight=(6, 4, 1, 1), bias=False, activation=("linear", 2.0, 1.0), why="activation without bias"
    ),
]

SUB_PIXEL = [
    conv(
        x=(1, 4, 5, 4), weight=(16, 4, 3, 3), padding=1, sub_pixel_scale_factor=2, why="2 x 2 positions of 4 channels"
    ),
    conv(
        x=(2, 4, 5, 4), weight=(12, 4, 3, 3), padding=1, sub_pixel_scale_factor=2, why="positions of 3 channels, batch"
    ),
    conv(x=(1, 4, 5, 4), weight=(9, 4, 2, 3), sub_pixel_scale_factor=3, why="3 x 3 positions of one channel"),
    conv(
        x=(1, 5, 7, 5),
        weight=(18, 5, 3, 3),
        stride=2,
        padding=1,
        sub_pixel_scale_factor=3,
        why="strided, then enlarged",
    ),
    conv(
        x=(1, 4, 5, 8), weight=(32, 4, 3, 3), padding=1, groups=2, sub_pixel_scale_factor=2, why="groups, then enlarged"
    ),
    conv(
        x=(1, 4, 5, 4),
        weight=(8, 4, 1, 1),
        sub_pixel_scale_factor=2,
        activation="relu",
        why="activation, then enlarged",
    ),
    conv(
        x=(1, 4, 5, 4),
        weight=(12, 4, 1, 1),
        sub_pixel_scale_factor=2,
        activation=("prelu",),
        why="slopes of the channels before enlarging",
    ),
    conv(
        x=(1, 4, 5, 4),
        weight=(16, 4, 3, 3),
        padding=1,
        sub_pixel_scale_factor=2,
        clip_rect=((1, 2, 0), (5, 7, 1)),
        out=(1, 9, 11, 4),
        why="a part of an enlarged result, not a multiple of the factor",
    ),
    conv(
        x=(2, 4, 5, 4),
        weight=(16, 4, 3, 3),
        sub_pixel_scale_factor=2,
        destination_feature_channel_offset=4,
        out=(2, 4, 6, 12),
        why="enlarged between other channels: pixels of the result are not adjacent",
    ),
    conv(
        x=(1, 5, 4, 4),
        weight=(27, 4, 2, 2),
        sub_pixel_scale_factor=3,
        clip_rect=((2, 1, 0), (7, 5, 1)),
        out=(1, 12, 9, 3),
        out_view="channels",
        why="a part of an enlarged result in wider pixels, not a multiple of the factor",
    ),
]

CASES = [
    *WINDOWS,
    *POLICIES,
    *GROUPS,
    *WEIGHTS,
    *ACTIVATIONS,
    *SUB_PIXEL,
]
