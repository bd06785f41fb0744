# SPDX-License-Identifier: Apache-2.0
"""Cases of resizing [MPSNNResize.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from . import row

WHOLE = (0.0, 0.0, 1.0, 1.0)
QUARTER = (0.5, 0.25, 0.25, 0.5)
MIRRORED = (1.0, 0.0, -1.0, 1.0)
BEYOND = (-0.25, 0.5, 1.5, 1.0)

CASES = [
    row("ResizeBilinear", x=(2, 5, 7, 3), size=(9, 11), why="enlarged, batch, odd sizes"),
    row("ResizeBilinear", x=(1, 13, 11, 4), size=(5, 4), why="reduced: pixels are left out"),
    row("ResizeBilinear", x=(1, 13, 5, 37), size=(4, 9), why="reduced along one axis, many channels"),
    row("ResizeBilinear", x=(1, 4, 90, 18), size=(7, 11), why="a source wider than twice the result"),
    row("ResizeBilinear", x=(1, 6, 5, 4), size=(6, 5), why="resized to the size it has"),
    row("ResizeBilinear", x=(1, 6, 5, 4), size=1, why="a result of one pixel looks at the first"),
    row("ResizeBilinear", x=(1, 6, 5, 4), size=1, align_corners=True, why="one pixel, corners on corners"),
    row("ResizeBilinear", x=(2, 5, 7, 3), size=(9, 11), align_corners=True, why="enlarged, corners on corners"),
    row("ResizeBilinear", x=(1, 13, 11, 20), size=(5, 4), align_corners=True, why="reduced, corners on corners"),
    row("ResizeBilinear", x=(1, 3, 4, 5), size=(7, 8), edge_mode="zero", why="enlarged, blended with zeros at the end"),
    row("ResizeBilinear", x=(2, 60, 50, 9), size=(90, 91), why="resized by several threads"),
    row("ResizeBilinear", x=(3, 5, 6, 4), size=(8, 9), offset=(2, -1, 1), why="resized, begun elsewhere"),
    row(
        "ResizeBilinear",
        x=(2, 5, 6, 12),
        size=(8, 9),
        clip_rect=((2, 1, 0), (4, 5, 2)),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=7,
        destination_feature_channel_offset=4,
        out=(3, 8, 9, 12),
        why="a part of a resized image, some channels",
    ),
    row(
        "ResizeBilinear", x=(1, 5, 6, 4), size=(8, 9), x_view="nchw", out_view="channels", why="resized across strides"
    ),
    row("ResizeBilinear", x=(1, 5, 6, 4), size=(8, 9), dtypes=("uint8",), why="a picture of bytes"),
    row(
        "ResizeBilinear",
        x=(1, 5, 6, 3),
        size=(3, 4),
        dtypes=("uint8",),
        result_dtype="float16",
        why="bytes to halves, as in front of a network",
    ),
    row("CropAndResizeBilinear", x=(1, 5, 7, 3), size=(9, 11), regions=(WHOLE,), why="one region: all of it"),
    row(
        "CropAndResizeBilinear",
        x=(2, 9, 8, 5),
        size=(3, 4),
        regions=(WHOLE, QUARTER, MIRRORED),
        why="several regions of several images: which result is whose",
    ),
    row(
        "CropAndResizeBilinear", x=(1, 9, 8, 20), size=(6, 5), regions=(BEYOND,), why="samples beyond the source are 0"
    ),
    row("CropAndResizeBilinear", x=(1, 9, 8, 5), size=1, regions=(WHOLE, QUARTER), why="one sample in the middle"),
    row("CropAndResizeBilinear", x=(1, 9, 8, 5), size=(1, 4), regions=(QUARTER,), why="one row of samples"),
    row(
        "CropAndResizeBilinear",
        x=(1, 30, 41, 17),
        size=(7, 7),
        regions=tuple((0.01 * i, 0.02 * i, 0.3 + 0.02 * i, 0.4 - 0.01 * i) for i in range(12)),
        why="as many regions as a detector has",
    ),
    row(
        "CropAndResizeBilinear",
        x=(2, 9, 8, 12),
        size=(4, 5),
        regions=(QUARTER, WHOLE),
        clip_rect=((1, 2, 2), (3, 4, 2)),
        source_feature_channel_offset=4,
        destination_feature_channel_offset=4,
        out=(4, 6, 7, 16),
        why="regions of one image in a part of the destination",
    ),
    row("CropAndResizeBilinear", x=(1, 9, 8, 5), size=3, regions=(BEYOND,), dtypes=("uint8",), why="a region of bytes"),
    row(
        "CropAndResizeBilinear",
        x=(2, 9, 8, 5),
        size=3,
        regions=(QUARTER,),
        x_view="channels",
        why="a region of a slice",
    ),
]
