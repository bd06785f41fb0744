# SPDX-License-Identifier: Apache-2.0
"""Cases of normalization by mean and variance [MPSCNNBatchNormalization.h, MPSCNNInstanceNormalization.h,
MPSCNNGroupNormalization.h].
"""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from typing import Any

from . import Case, row

BOTH = ("gamma", "beta")
CONSTANT = (7.0,)


def _of_every_kind(kind: str) -> list[Case]:
    values = (*BOTH, "mean", "variance") if kind == "BatchNormalization" else BOTH

    def of(channels: int, groups: int = 0, **given: Any) -> dict[str, Any]:
        """Additional parameters of a group normalization."""
        split = {"groups": groups or channels // 2} if kind == "GroupNormalization" else {}
        return {"given": values, **split, **given}

    return [
        row(kind, x=(2, 5, 7, 36), **of(36, 4), why=f"{kind}: odd extents, channels beyond one block"),
        row(kind, x=(1, 3, 4, 6), **of(6), epsilon=0.25, why=f"{kind}: an epsilon that is seen"),
        row(kind, x=(3, 1, 1, 10), **of(10), epsilon=0.5, why=f"{kind}: images of one pixel"),
        row(kind, x=(2, 9, 11, 4), **of(4), centre=300.0, why=f"{kind}: a mean far greater than the spread"),
        row(kind, x=(2, 40, 30, 34), **of(34, 17), why=f"{kind}: enough for several threads"),
        row(
            kind,
            x=(2, 6, 7, 8),
            **of(8, 2, given=tuple(name for name in values if name != "beta")),
            why=f"{kind}: without beta",
        ),
        row(
            kind,
            x=(3, 6, 7, 12),
            **of(12, 4),
            offset=(2, -1, 1),
            why=f"{kind}: an offset, from the second image, and zeros outside",
        ),
        row(
            kind,
            x=(1, 6, 7, 12),
            **of(12, 3),
            offset=(-2, 3),
            edge_mode="clamp",
            why=f"{kind}: the nearest pixel outside",
        ),
        row(
            kind,
            x=(2, 7, 8, 12),
            **of(12, 2),
            clip_rect=((1, 2, 1), (4, 3, 1)),
            out=(3, 8, 7, 12),
            why=f"{kind}: a part of the destination",
        ),
        row(
            kind,
            x=(1, 6, 5, 15),
            **of(6, 3),
            source_feature_channel_offset=4,
            source_feature_channel_max_count=6,
            destination_feature_channel_offset=8,
            out=(1, 6, 5, 16),
            why=f"{kind}: some channels of the source, others of the destination",
        ),
        row(kind, x=(2, 6, 8, 6), **of(6), x_view="channels", why=f"{kind}: a run of channels"),
        row(kind, x=(2, 6, 8, 6), **of(6), x_view="steps", why=f"{kind}: every other pixel"),
        row(kind, x=(2, 6, 8, 6), **of(6), out_view="channels", why=f"{kind}: into a run of channels"),
        row(
            kind,
            x=(2, 6, 8, 6),
            **of(6),
            dtypes=("uint8",),
            result_dtype="float32",
            why=f"{kind}: bytes to floats",
        ),
        row(
            kind,
            x=(2, 6, 8, 6),
            **of(6),
            dtypes=("float16",),
            result_dtype="float32",
            why=f"{kind}: halves to floats",
        ),
    ]


BATCH: dict[str, Any] = {"given": (*BOTH, "mean", "variance")}

CASES = [
    *[
        case
        for kind in ("BatchNormalization", "GroupNormalization", "InstanceNormalization")
        for case in _of_every_kind(kind)
    ],
    row("BatchNormalization", x=(2, 5, 6, 7), **BATCH, activation=("relu", 0.1), why="a fused leaky rectifier"),
    row("BatchNormalization", x=(2, 5, 6, 7), **BATCH, activation=("prelu",), why="fused slopes, one for each channel"),
    row("BatchNormalization", x=(1, 9, 9, 67), **BATCH, activation=("sigmoid",), why="a fused function of many values"),
    row("BatchNormalization", x=(1, 33, 35, 3), **BATCH, why="three channels"),
    row("BatchNormalization", x=(1, 33, 35, 1), **BATCH, why="a single channel"),
    row("BatchNormalization", x=(2, 3, 3, 1100), **BATCH, why="more channels than a buffer of pixels has"),
    row("InstanceNormalization", x=(1, 64, 64, 2), given=BOTH, centre=40.0, why="many pixels far from 0"),
    row("InstanceNormalization", x=(1, 5, 4, 3), given=BOTH, values=CONSTANT, why="no spread at all: beta"),
    row("GroupNormalization", x=(2, 5, 7, 12), given=BOTH, groups=1, why="one group: layer normalization"),
    row("GroupNormalization", x=(2, 5, 7, 12), given=BOTH, groups=12, why="a group for each channel"),
    row("GroupNormalization", x=(2, 8, 9, 6), given=BOTH, groups=2, values=(1.0, 100.0, -50.0), why="means far apart"),
    row("BatchNormalizationStatistics", x=(3, 5, 7, 13), why="mean and variance over images and pixels"),
    row("BatchNormalizationStatistics", x=(1, 1, 1, 5), why="one value each"),
    row("BatchNormalizationStatistics", x=(2, 40, 31, 35), why="statistics by several threads"),
    row("BatchNormalizationStatistics", x=(2, 9, 11, 4), centre=300.0, why="statistics far from 0"),
    row("BatchNormalizationStatistics", x=(2, 4, 5, 3), values=CONSTANT, why="statistics without spread"),
    row(
        "BatchNormalizationStatistics",
        x=(2, 6, 5, 15),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=6,
        why="statistics of some channels",
    ),
    row("BatchNormalizationStatistics", x=(2, 6, 8, 6), x_view="channels", why="statistics of a run of channels"),
    row("BatchNormalizationStatistics", x=(2, 6, 8, 6), x_view="steps", why="statistics of every other pixel"),
    row("BatchNormalizationStatistics", x=(2, 6, 8, 6), dtypes=("uint8",), why="statistics of bytes"),
]
