# SPDX-License-Identifier: Apache-2.0
"""Cases of MPSCNNConvolution, MPSCNNFullyConnected and MPSCNNConvolutionTranspose [MPSCNNConvolution.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from . import Case, Tolerance, row
from .MPSCNNNeuron import ALL_TYPES


def conv(**arguments: object) -> Case:
    return row("Convolution", **arguments)  # type: ignore[arg-type]


def up(**arguments: object) -> Case:
    return row("ConvolutionTranspose", **arguments)  # type: ignore[arg-type]


def full(**arguments: object) -> Case:
    return row("FullyConnected", **arguments)  # type: ignore[arg-type]


BFLOAT16 = Tolerance(
    products=2.0**-8,
    reason="the option permits bfloat16 factors; each is off by 2**-9 of itself, a product by twice that",
)

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
        conv(x=(1, 4, 5, 4), weight=(5, 4, 2, 2), activation=name, why=f"{name} by its PyTorch name")
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
]

REGIONS = [
    conv(x=(1, 6, 7, 4), weight=(8, 4, 3, 3), offset=(1, 1), why="Apple's offset: no padding of a 3 x 3 kernel"),
    conv(
        x=(1, 6, 7, 4),
        weight=(8, 4, 3, 3),
        padding=1,
        offset=(2, -1),
        why="offset wins over the padding, which still sizes",
    ),
    conv(x=(1, 6, 7, 4), weight=(8, 4, 4, 2), offset=(-1, 3), why="offset partly outside of the source, even kernel"),
    conv(
        x=(1, 6, 7, 4), weight=(8, 4, 3, 3), padding=1, offset=(20, -30), why="offset far beyond the source: only bias"
    ),
    conv(x=(1, 9, 8, 4), weight=(8, 4, 3, 2), dilation=(2, 3), offset=(0, 0), why="offset 0 with a dilated kernel"),
    conv(x=(3, 6, 7, 4), weight=(8, 4, 3, 3), padding=1, offset=(0, 0, 1), why="images from the second on"),
    conv(
        x=(1, 6, 7, 4),
        weight=(8, 4, 3, 3),
        padding=1,
        clip_rect=((1, 2, 0), (3, 4, 1)),
        out=(1, 6, 8, 8),
        why="a part of the destination; its origin does not move the source",
    ),
    conv(
        x=(1, 9, 10, 4),
        weight=(8, 4, 3, 2),
        stride=(2, 3),
        offset=(1, 2),
        clip_rect=((2, 0, 0), (4, 3, 1)),
        out=(1, 7, 5, 8),
        why="clip, stride and offset together",
    ),
    conv(
        x=(1, 4, 5, 4),
        weight=(8, 4, 3, 3),
        clip_rect=((0, 1, 0), (7, 8, 1)),
        out=(1, 8, 9, 8),
        why="clip larger than the useful result: filled by the edge mode",
    ),
    conv(
        x=(4, 4, 5, 4),
        weight=(8, 4, 3, 3),
        padding=1,
        offset=(0, 0, 1),
        clip_rect=((1, 1, 2), (2, 3, 2)),
        out=(5, 4, 6, 8),
        why="some of the images of source and destination",
    ),
    conv(
        x=(1, 6, 7, 4),
        weight=(8, 4, 3, 3),
        padding=1,
        clip_rect=((0, 0, 0), (6, 7, 1)),
        out=(1, 6, 7, 8),
        why="clip that is the whole destination",
    ),
    conv(
        x=(2, 6, 7, 4),
        weight=(4, 4, 3, 3),
        padding=1,
        clip_rect=((3, 2, 0), (2, 3, 1)),
        destination_feature_channel_offset=4,
        out=(2, 6, 7, 12),
        why="clip and channel offset: a block in the middle",
    ),
    conv(x=(1, 6, 7, 4), weight=(8, 4, 3, 3), padding=1, edge_mode="clamp", why="border repeats the nearest pixel"),
    conv(
        x=(1, 6, 7, 5),
        weight=(6, 5, 4, 3),
        padding=((3, 5), (4, 1)),
        edge_mode="clamp",
        why="clamp far out, even kernel",
    ),
    conv(
        x=(2, 7, 6, 4),
        weight=(8, 4, 3, 3),
        stride=2,
        dilation=2,
        padding=2,
        edge_mode="clamp",
        why="clamp, stride, dilation",
    ),
    conv(x=(1, 7, 6, 8), weight=(8, 1, 3, 3), groups=8, padding=1, edge_mode="clamp", why="clamp, depth-wise"),
    conv(x=(1, 6, 7, 8), weight=(8, 4, 3, 3), groups=2, padding=2, edge_mode="clamp", why="clamp, groups"),
    conv(
        x=(1, 6, 7, 4),
        weight=(8, 4, 3, 3),
        offset=(-7, 40),
        edge_mode="clamp",
        why="clamp with everything outside: one corner",
    ),
    conv(x=(1, 6, 7, 4), weight=(8, 4, 3, 3), edge_mode="clamp", why="clamp where nothing is outside"),
    conv(
        x=(2, 5, 6, 12),
        weight=(8, 4, 3, 3),
        padding=1,
        source_feature_channel_offset=8,
        why="the last channels of the source",
    ),
    conv(
        x=(2, 5, 6, 14),
        weight=(8, 5, 3, 3),
        padding=1,
        source_feature_channel_offset=4,
        source_feature_channel_max_count=5,
        why="channels of the middle, their number no multiple of 4",
    ),
    conv(x=(2, 5, 6, 9), weight=(8, 3, 3, 3), padding=1, source_feature_channel_max_count=3, why="the first channels"),
    conv(
        x=(1, 5, 6, 12),
        weight=(8, 4, 3, 3),
        groups=2,
        padding=1,
        source_feature_channel_offset=4,
        why="groups of a part of the channels",
    ),
    conv(
        x=(1, 5, 6, 10),
        weight=(6, 1, 3, 3),
        groups=6,
        source_feature_channel_offset=4,
        why="depth-wise on a part of the channels",
    ),
    conv(
        x=(2, 5, 6, 4),
        weight=(8, 4, 3, 3),
        padding=1,
        destination_feature_channel_offset=12,
        why="result behind 12 channels",
    ),
    conv(
        x=(2, 5, 6, 4),
        weight=(8, 4, 3, 3),
        padding=1,
        destination_feature_channel_offset=4,
        out=(2, 5, 6, 16),
        why="channels on both sides of the result stay",
    ),
    conv(
        x=(1, 5, 6, 4),
        weight=(5, 4, 3, 3),
        padding=1,
        destination_feature_channel_offset=8,
        activation="relu",
        why="result of 5 channels at the end, with an activation",
    ),
    conv(
        x=(2, 5, 6, 4),
        weight=(4, 1, 3, 3),
        groups=4,
        padding=1,
        destination_feature_channel_offset=4,
        out=(2, 5, 6, 12),
        why="depth-wise between other channels",
    ),
]

ARRAYS = [
    conv(x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, x_view="nchw", why="source in planes"),
    conv(x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, x_view="channels", why="source is a part of wider pixels"),
    conv(
        x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, x_view="steps", why="source with gaps between pixels and rows"
    ),
    conv(x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, x_view="reversed", why="source upside down"),
    conv(x=(3, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, x_view="broadcast", why="one image as a batch"),
    conv(x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, x_view="read-only", why="source is read-only"),
    conv(x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, out_view="nchw", why="result goes into planes"),
    conv(x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, out_view="channels", why="result goes into wider pixels"),
    conv(x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, out_view="steps", why="result goes into every other pixel"),
    conv(x=(2, 6, 7, 5), weight=(6, 5, 3, 3), padding=1, out_view="reversed", why="result goes upside down"),
    conv(
        x=(2, 6, 7, 4),
        weight=(4, 4, 3, 3),
        padding=1,
        clip_rect=((1, 1, 0), (4, 5, 2)),
        out=(2, 6, 7, 4),
        out_view="nchw",
        why="a part of a destination in planes: the rest is kept",
    ),
    conv(
        x=(1, 6, 7, 8),
        weight=(4, 1, 3, 3),
        groups=4,
        padding=1,
        source_feature_channel_max_count=4,
        x_view="steps",
        why="depth-wise with gaps",
    ),
    conv(
        x=(2, 6, 7, 5),
        weight=(6, 5, 3, 3),
        padding=1,
        dtypes=("uint8", "uint16"),
        why="bytes in and out: fractions of 1",
    ),
    conv(
        x=(2, 6, 7, 5),
        weight=(6, 5, 3, 3),
        padding=1,
        dtypes=("uint8", "uint16"),
        result_dtype="float32",
        why="bytes in, floats out: sums above 1 and below 0",
    ),
    conv(
        x=(2, 6, 7, 4),
        weight=(4, 1, 3, 3),
        groups=4,
        dtypes=("uint8",),
        result_dtype="float16",
        why="bytes in, halves out, depth-wise",
    ),
    conv(
        x=(2, 6, 7, 5),
        weight=(6, 5, 3, 3),
        padding=1,
        dtypes=("float16",),
        result_dtype="float32",
        why="sums of halves are not rounded to half",
    ),
    conv(
        x=(2, 6, 7, 5),
        weight=(6, 5, 3, 3),
        padding=1,
        dtypes=("float32",),
        result_dtype="float16",
        why="sums of floats are rounded to half",
    ),
    conv(
        x=(1, 8, 9, 32),
        weight=(24, 32, 3, 3),
        padding=1,
        allow_reduced_precision=True,
        tolerance=BFLOAT16,
        why="permitted bfloat16",
    ),
    conv(
        x=(1, 8, 9, 32),
        weight=(32, 1, 3, 3),
        groups=32,
        padding=1,
        allow_reduced_precision=True,
        tolerance=BFLOAT16,
        why="permitted bfloat16, depth-wise",
    ),
]

FULLY_CONNECTED = [
    full(x=(1, 1, 1, 7), weight=(5, 7), why="a matrix product"),
    full(x=(3, 1, 1, 64), weight=(10, 64), why="batch of vectors"),
    full(
        x=(2, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        why="wider than high: the order of rows and columns matters",
    ),
    full(x=(2, 5, 3, 3), weight=(7, 45), feature_map=(3, 5, 3), why="higher than wide, channels no multiple of 4"),
    full(x=(1, 2, 3, 1), weight=(4, 6), feature_map=(1, 2, 3), why="one channel, all of its pixels"),
    full(x=(2, 3, 5, 4), weight=(6, 4, 3, 5), layout="OIHW", why="weights as of a convolution, PyTorch's order"),
    full(x=(2, 3, 5, 4), weight=(6, 3, 5, 4), layout="OHWI", why="weights as of a convolution, MPS's order"),
    full(x=(2, 4, 2, 3), weight=(6, 24), feature_map=(3, 4, 2), bias=False, why="no bias, even extents"),
    full(x=(2, 4, 2, 3), weight=(6, 24), feature_map=(3, 4, 2), activation=("prelu",), why="slopes of outputs"),
    full(x=(2, 4, 2, 3), weight=(6, 24), feature_map=(3, 4, 2), activation="gelu", why="GeLU of a linear layer"),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        weight_dtype="float16",
        why="half weights of a linear layer",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        weight_dtype="bfloat16",
        why="bfloat16 weights of a linear layer",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        quantized="ranges",
        why="bytes with ranges, a linear layer",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        quantized="lookup_table",
        why="bytes by a table, a linear layer",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        kernel_dtype="float16",
        why="linear layer rounded to half",
    ),
    full(
        x=(2, 3, 5, 12),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        source_feature_channel_offset=8,
        why="a part of the channels",
    ),
    full(
        x=(2, 1, 1, 8),
        weight=(4, 8),
        destination_feature_channel_offset=4,
        out=(2, 1, 1, 12),
        why="outputs between other channels",
    ),
    full(
        x=(3, 2, 3, 4),
        weight=(4, 24),
        feature_map=(4, 2, 3),
        clip_rect=((1, 2, 0), (1, 1, 3)),
        out=(3, 2, 4, 4),
        why="the one pixel at some place of a larger destination",
    ),
    full(x=(2, 3, 5, 4), weight=(6, 60), feature_map=(4, 3, 5), x_view="nchw", why="linear layer on planes"),
    full(
        x=(5, 2, 2, 4),
        weight=(3, 16),
        feature_map=(4, 2, 2),
        dtypes=("uint8",),
        result_dtype="float32",
        why="linear layer on bytes",
    ),
    full(
        x=(1, 7, 7, 64),
        weight=(100, 3136),
        feature_map=(64, 7, 7),
        why="behind the last feature map",
        tags=("ci", "bench"),
    ),
]

TRANSPOSE = [
    up(x=(1, 4, 5, 4), weight=(4, 8, 3, 3), why="stride 1: a full correlation"),
    up(
        x=(1, 4, 5, 4),
        weight=(4, 8, 3, 3),
        stride=2,
        padding=1,
        output_padding=1,
        why="twice the size, PyTorch's usual form",
    ),
    up(x=(1, 4, 5, 4), weight=(4, 8, 4, 4), stride=2, padding=1, why="even kernel that tiles"),
    up(
        x=(2, 4, 5, 3),
        weight=(3, 5, 4, 2),
        stride=(2, 3),
        padding=(1, 0),
        output_padding=(0, 1),
        why="nothing square, batch",
    ),
    up(x=(1, 4, 5, 4), weight=(4, 8, 2, 2), stride=2, why="kernel as large as the stride: no overlap"),
    up(x=(1, 4, 5, 4), weight=(4, 8, 2, 1), stride=(3, 2), why="kernel smaller than the stride: pixels with only bias"),
    up(x=(1, 4, 5, 4), weight=(4, 8, 1, 1), stride=1, why="1 x 1, nothing to transpose"),
    up(x=(1, 4, 5, 4), weight=(4, 8, 1, 1), stride=3, output_padding=2, why="1 x 1, result at every third pixel"),
    up(x=(1, 4, 5, 4), weight=(4, 8, 5, 4), stride=(1, 2), padding=(2, 1), why="odd and even, one stride"),
    up(
        x=(1, 4, 5, 4), weight=(4, 8, 3, 3), stride=2, padding=((0, 1), (2, 1)), why="cut differently on all four sides"
    ),
    up(x=(1, 4, 5, 4), weight=(4, 8, 3, 3), stride=2, padding=3, why="more cut off than a window sees"),
    up(x=(1, 1, 1, 4), weight=(4, 8, 4, 5), why="one pixel: the kernel itself"),
    up(x=(1, 4, 5, 8), weight=(8, 4, 3, 3), stride=2, groups=2, padding=1, why="two groups, transposed"),
    up(
        x=(1, 4, 5, 12),
        weight=(12, 8, 3, 2),
        stride=(2, 1),
        groups=3,
        output_padding=(1, 0),
        why="three groups, more channels out",
    ),
    up(x=(1, 4, 5, 4), weight=(4, 8, 3, 3), stride=2, padding=1, bias=False, why="no bias, transposed"),
    up(x=(1, 4, 5, 4), weight=(6, 3, 2, 4), layout="OHWI", stride=2, why="weights in MPS's order: not rotated"),
    up(x=(1, 4, 5, 8), weight=(8, 3, 2, 4), layout="OHWI", stride=2, groups=2, why="groups in MPS's order"),
    up(x=(1, 4, 5, 4), weight=(4, 8, 3, 3), stride=2, activation=("relu", 0.2), why="leaky behind it"),
    up(x=(1, 4, 5, 4), weight=(4, 6, 3, 3), stride=2, activation=("prelu",), why="slopes behind it"),
    up(x=(1, 4, 5, 4), weight=(4, 8, 3, 3), stride=2, activation=("tanh", 1.5, 0.5), why="tanh behind it"),
    up(x=(1, 4, 5, 4), weight=(4, 8, 3, 3), stride=2, padding=1, offset=(1, 2), why="from another source pixel on"),
    up(
        x=(2, 4, 5, 4),
        weight=(4, 8, 3, 2),
        stride=(2, 3),
        offset=(-1, 0, 1),
        why="from before the source on, second image",
    ),
    up(
        x=(1, 4, 5, 4),
        weight=(4, 8, 3, 3),
        stride=2,
        padding=1,
        clip_rect=((2, 1, 0), (4, 6, 1)),
        out=(1, 7, 9, 8),
        why="a part of the destination",
    ),
    up(
        x=(2, 4, 5, 12),
        weight=(4, 4, 3, 3),
        stride=2,
        source_feature_channel_offset=4,
        source_feature_channel_max_count=4,
        destination_feature_channel_offset=8,
        why="channels of the middle to the end of the destination",
    ),
    up(x=(1, 4, 5, 4), weight=(4, 8, 3, 2), stride=(2, 3), padding="same", why="same: the size of the stuffed source"),
    up(
        x=(1, 4, 5, 4),
        weight=(4, 8, 3, 2),
        stride=(2, 3),
        padding="valid",
        why="valid: windows inside of the stuffed source",
    ),
    up(x=(1, 4, 5, 4), weight=(4, 8, 3, 3), stride=2, padding=1, x_view="nchw", why="source in planes, transposed"),
    up(
        x=(1, 4, 5, 4),
        weight=(4, 8, 3, 3),
        stride=2,
        padding=1,
        out_view="channels",
        why="result in wider pixels, transposed",
    ),
    up(
        x=(1, 4, 5, 4),
        weight=(4, 8, 3, 3),
        stride=2,
        dtypes=("uint8",),
        result_dtype="float32",
        why="bytes in, transposed",
    ),
    up(
        x=(2, 11, 13, 17),
        weight=(17, 19, 5, 3),
        stride=(3, 2),
        padding=(2, 1),
        output_padding=(1, 0),
        why="primes, transposed",
    ),
    up(x=(1, 28, 28, 64), weight=(64, 32, 4, 4), stride=2, padding=1, why="a layer of a decoder", tags=("ci", "bench")),
]

CASES = [
    *WINDOWS,
    *POLICIES,
    *GROUPS,
    *WEIGHTS,
    *ACTIVATIONS,
    *SUB_PIXEL,
    *REGIONS,
    *ARRAYS,
    *FULLY_CONNECTED,
    *TRANSPOSE,
]
