# SPDX-License-Identifier: Apache-2.0
"""Cases of MPSCNNConvolution: regions of source and destination, arrays of every kind [MPSCNNConvolution.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from . import Case, Tolerance, row


def conv(**arguments: object) -> Case:
    return row("Convolution", **arguments)  # type: ignore[arg-type]


BFLOAT16 = Tolerance(
    products=3 * 2.0**-9,
    reason="the option permits bfloat16 factors and results, each off by 2**-9 of itself: two factors and a result",
)

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

CASES = [
    *REGIONS,
    *ARRAYS,
]
