# SPDX-License-Identifier: Apache-2.0
"""Cases of slices [MPSNNSlice.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from . import row

S = (2, 6, 7, 12)

CASES = [
    row("Slice", x=S, why="all of it"),
    row(
        "Slice",
        x=S,
        size=(3, 4),
        offset=(2, 1),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=5,
        why="rows, columns and channels at once",
    ),
    row("Slice", x=S, source_feature_channel_max_count=3, why="the first three channels"),
    row("Slice", x=S, source_feature_channel_offset=8, why="the last channels"),
    row("Slice", x=(3, 6, 7, 5), size=2, offset=(4, 5, 1), why="the last pixels, from the second image on"),
    row("Slice", x=S, size=(4, 4), offset=(4, -2), why="beyond the source, zeros"),
    row("Slice", x=S, size=(9, 4), offset=(-2, 5), edge_mode="clamp", why="beyond the source, the nearest pixel"),
    row("Slice", x=S, offset=(3, 3), why="as large as the source, from an offset on"),
    row(
        "Slice",
        x=S,
        offset=(1, 2),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=4,
        clip_rect=((2, 1, 1), (3, 4, 1)),
        destination_feature_channel_offset=8,
        out=(3, 7, 6, 16),
        why="one part into another",
    ),
    row("Slice", x=(2, 50, 60, 12), size=(48, 57), offset=(1, 2), why="sliced by several threads"),
    *[
        row(
            "Slice",
            x=(2, 5, 6, 40),
            source_feature_channel_offset=4,
            source_feature_channel_max_count=count,
            why=f"a run of {count} channels, which has a copy of its own",
        )
        for count in (4, 8, 16, 32)
    ],
    row("Slice", x=S, size=3, offset=(1, 1), x_view="nchw", out_view="steps", why="sliced across strides"),
    row("Slice", x=S, size=3, offset=(2, 2), dtypes=("uint8", "uint16"), why="sliced codes"),
    row(
        "Slice", x=S, size=3, offset=(2, 3), dtypes=("uint8", "float16"), result_dtype="float32", why="sliced to floats"
    ),
]
