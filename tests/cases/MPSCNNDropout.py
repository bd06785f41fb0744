# SPDX-License-Identifier: Apache-2.0
"""Cases of dropout [MPSCNNDropout.h]: the first masks of a kernel. test_dropout.py tests the later ones."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from . import row

D = (2, 5, 6, 7)

CASES = [
    row("Dropout", x=D, why="as many kept as dropped, a mask for each image"),
    row("Dropout", x=D, keep_probability=0.9, seed=2**40 + 5, why="most are kept; a seed of more than 32 bits"),
    row("Dropout", x=D, keep_probability=0.1, seed=1, why="few are kept"),
    row("Dropout", x=(1, 1, 1, 1), seed=3, why="one value"),
    row("Dropout", x=(2, 40, 50, 33), seed=4, why="dropped by several threads"),
    row("Dropout", x=(1, 2, 3, 1500), seed=5, why="more channels than bits are made at a time"),
    row("Dropout", x=D, mask_stride=0, seed=6, why="whole channels"),
    row("Dropout", x=D, mask_stride_in_feature_channels=0, seed=7, why="whole pixels"),
    row("Dropout", x=D, mask_stride=(0, 1), seed=8, why="all rows alike"),
    row("Dropout", x=D, mask_stride=(1, 0), seed=9, why="all columns alike"),
    row("Dropout", x=(6, 3, 4, 5), mask_stride=0, mask_stride_in_feature_channels=0, seed=10, why="whole images"),
    row("Dropout", x=D, seed=11, offset=(2, -1), why="the mask belongs to the result, zeros outside stay 0"),
    row(
        "Dropout",
        x=(3, 5, 6, 7),
        seed=12,
        offset=(-1, 1, 1),
        edge_mode="clamp",
        why="the nearest pixel has bits of its own",
    ),
    row(
        "Dropout",
        x=(2, 5, 6, 12),
        seed=13,
        source_feature_channel_offset=4,
        source_feature_channel_max_count=6,
        clip_rect=((1, 2, 1), (4, 3, 1)),
        destination_feature_channel_offset=4,
        out=(2, 6, 7, 12),
        why="some channels into a part of the destination, whose mask begins there",
    ),
    row("Dropout", x=D, seed=14, x_view="channels", out_view="channels", why="dropped from slices"),
    row("Dropout", x=D, seed=15, x_view="nchw", out_view="steps", why="dropped across strides"),
    row("Dropout", x=D, seed=16, dtypes=("uint8",), keep_probability=0.75, why="bytes, cut at 1"),
    row("Dropout", x=D, seed=17, dtypes=("uint8", "float16"), result_dtype="float32", why="dropped into floats"),
]
