# SPDX-License-Identifier: Apache-2.0
"""Cases of normalization over neighbouring values [MPSCNNNormalization.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from . import Case, row

RAMP = tuple(float(value) for value in range(1, 17))


def _of_every_kind(kind: str) -> list[Case]:
    size = {} if kind == "CrossChannelNormalization" else {"kernel_size": 3}
    return [
        row(kind, x=(1, 4, 4, 1), **size, values=RAMP, why=f"{kind}: a ramp, of one channel"),
        row(kind, x=(2, 5, 7, 37), kernel_size=5, beta=0.75, alpha=0.5, delta=2.0, why=f"{kind}: AlexNet's exponent"),
        row(kind, x=(1, 6, 9, 19), kernel_size=4, beta=0.5, why=f"{kind}: an even window leans to the front"),
        row(kind, x=(1, 5, 6, 3), kernel_size=9, beta=0.25, why=f"{kind}: a window larger than the source"),
        row(kind, x=(1, 3, 4, 7), kernel_size=1, beta=1.5, alpha=3.0, why=f"{kind}: a window of the value alone"),
        row(kind, x=(1, 4, 5, 6), kernel_size=2, beta=-1.0, alpha=0.125, why=f"{kind}: multiplies instead of divides"),
        row(kind, x=(1, 4, 5, 6), kernel_size=3, beta=0.0, delta=7.0, why=f"{kind}: an exponent of 0"),
        row(kind, x=(1, 5, 7, 21), kernel_size=3, alpha=1.0, beta=0.5, centre=30.0, why=f"{kind}: far from 0"),
        row(
            kind,
            x=(3, 7, 8, 12),
            kernel_size=3,
            beta=0.75,
            offset=(2, -1, 1),
            edge_mode="clamp",
            why=f"{kind}: an offset, from the second image, and the nearest pixel outside",
        ),
        row(
            kind,
            x=(1, 6, 5, 20),
            kernel_size=5,
            beta=0.75,
            edge_mode="clamp",
            why=f"{kind}: what clamp means outside",
        ),
        row(
            kind,
            x=(2, 7, 8, 12),
            kernel_size=3,
            beta=1.0,
            clip_rect=((1, 2, 1), (4, 3, 1)),
            out=(3, 8, 7, 12),
            why=f"{kind}: a part of the destination",
        ),
        row(
            kind,
            x=(1, 6, 6, 14),
            kernel_size=3,
            beta=0.5,
            source_feature_channel_offset=4,
            source_feature_channel_max_count=7,
            destination_feature_channel_offset=8,
            out=(1, 6, 6, 17),
            why=f"{kind}: some channels of the source, others of the destination",
        ),
        row(kind, x=(2, 6, 8, 6), kernel_size=3, beta=0.75, x_view="channels", why=f"{kind}: a run of channels"),
        row(kind, x=(2, 6, 8, 6), kernel_size=3, beta=0.75, x_view="steps", why=f"{kind}: every other pixel"),
        row(
            kind,
            x=(1, 6, 8, 6),
            kernel_size=3,
            beta=0.75,
            dtypes=("uint8",),
            result_dtype="float32",
            why=f"{kind}: bytes to floats",
        ),
    ]


CASES = [
    *[
        case
        for kind in ("CrossChannelNormalization", "SpatialNormalization", "LocalContrastNormalization")
        for case in _of_every_kind(kind)
    ],
    row("CrossChannelNormalization", x=(1, 13, 13, 96), alpha=1e-4, beta=0.75, why="AlexNet's, wide"),
    row("CrossChannelNormalization", x=(2, 9, 11, 300), kernel_size=33, beta=0.5, why="many neighbours, many channels"),
    row("SpatialNormalization", x=(1, 21, 23, 3), kernel_size=11, beta=0.75, why="a large window"),
    row(
        "LocalContrastNormalization",
        x=(2, 9, 8, 5),
        kernel_size=3,
        alpha=1.0,
        p0=0.5,
        pm=-0.25,
        ps=3.0,
        why="all parameters",
    ),
    row("LocalContrastNormalization", x=(1, 17, 19, 18), kernel_size=7, alpha=1.0, why="two blocks of channels"),
    row(
        "LocalContrastNormalization",
        x=(1, 6, 7, 4),
        kernel_size=3,
        alpha=1.0,
        p0=0.0,
        pm=1.0,
        why="the mean is left in",
    ),
]
