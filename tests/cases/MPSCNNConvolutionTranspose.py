# SPDX-License-Identifier: Apache-2.0
"""Cases of MPSCNNConvolutionTranspose [MPSCNNConvolution.h]."""
# ruff: noqa: N999  (named after Apple's class)

from __future__ import annotations

from . import Case, row


def up(**arguments: object) -> Case:
    return row("ConvolutionTranspose", **arguments)  # type: ignore[arg-type]


CASES = [
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
