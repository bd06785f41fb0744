# SPDX-License-Identifier: Apache-2.0
"""Cases of the arithmetic kernels [MPSCNNMath.h]: sources a and b are `x` and `second`."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import math

from . import row

A = (2, 3, 5, 7)

# Divisors: none is near 0, where the quotient's error would hide errors of the kernel.
DIVISORS = (0.5, -2.0, 3.0, -0.75, 8.0, 1.0, -16.0, 0.125, 7.0, -1.5, 2.5)

# Few different values, some of which are far from those of random numbers.
QUARTERS = tuple(k / 4 for k in range(-7, 6))

CASES = [
    # The four operations, with all parameters at their defaults and with none.
    row("Add", x=A, second=A, why="sum, channels no multiple of 4, batch"),
    row("Subtract", x=A, second=A, why="difference: the order of the sources"),
    row("Multiply", x=A, second=A, why="product"),
    row("Divide", x=A, second=A, values=DIVISORS, why="quotient: the order of the sources"),
    *[
        row(
            kernel,
            x=(2, 4, 3, 5),
            second=(2, 4, 3, 5),
            values=DIVISORS,
            primary_scale=1.5,
            secondary_scale=-0.75,
            bias=0.25,
            minimum_value=-1.0,
            maximum_value=0.8,
            why=f"{kernel}: scales inside, bias outside of the operation, bounds last",
        )
        for kernel in ("Add", "Subtract", "Multiply", "Divide")
    ],
    row("Add", x=A, second=A, minimum_value=0.0, why="a fused rectifier: only one bound"),
    row("Add", x=A, second=A, maximum_value=-0.25, why="the other bound alone"),
    row(
        "Multiply", x=(1, 4, 4, 8), second=(1, 4, 4, 8), secondary_scale=0.0, bias=2.0, why="scale 0, the bias is left"
    ),
    row(
        "Divide",
        x=(1, 2, 3, 2),
        second=(1, 2, 3, 2),
        values=(0.0, math.inf, -math.inf, 1.0, -4.0, 2.0),
        why="1 / 0 is infinite, also behind the default bounds; 1 / inf is 0",
    ),
    row(
        "Add",
        x=(1, 3, 3, 2),
        second=(1, 3, 3, 2),
        values=(math.nan, math.inf, -math.inf, 1.0),
        minimum_value=-2.0,
        maximum_value=2.0,
        why="bounds cut infinities and leave NaN",
    ),
    # Broadcasting by the shapes.
    row("Add", x=A, second=(1, 1, 1, 7), why="a bias: one pixel for all pixels and images"),
    row("Add", x=(1, 1, 1, 7), second=A, why="the first source repeats"),
    row("Multiply", x=A, second=(2, 1, 1, 1), why="one value for each image"),
    row("Multiply", x=A, second=(2, 3, 5, 1), why="a mask: one channel for all channels"),
    row("Subtract", x=A, second=(2, 3, 1, 7), why="one column for all columns"),
    row("Subtract", x=A, second=(2, 1, 5, 7), why="one row for all rows"),
    row("Subtract", x=(2, 3, 1, 1), second=(1, 1, 5, 7), why="each source repeats along other axes"),
    row("Divide", x=(1, 1, 1, 1), second=A, values=DIVISORS, why="a reciprocal: a single value is the first source"),
    row("Add", x=(1, 1, 1, 1), second=(1, 1, 1, 1), why="the smallest sum there is"),
    row("Add", x=(3, 40, 30, 5), second=(1, 1, 1, 5), why="repeated pixel over several runs of a buffer"),
    row("Multiply", x=(1, 30, 40, 33), second=(1, 30, 40, 1), why="repeated channel over several runs of a buffer"),
    row("Add", x=(1, 2, 3, 1500), second=(1, 1, 1, 1500), why="more channels than a buffer has values"),
    row("Add", x=(2, 60, 61, 16), second=(2, 60, 61, 16), why="large enough for several threads"),
    # Comparisons.
    *[
        row(
            "Compare",
            x=(1, 5, 7, 6),
            second=(1, 5, 7, 6),
            values=QUARTERS,
            comparison=comparison,
            why=f"{comparison} of two images",
        )
        for comparison in ("less", "less_or_equal", "greater", "greater_or_equal")
    ],
    row("Compare", x=A, second=A, comparison="equal", threshold=0.5, why="equal up to a threshold"),
    row("Compare", x=A, second=A, comparison="not_equal", threshold=0.25, why="different by more than a threshold"),
    row("Compare", x=A, second=A, dtypes=("uint8",), comparison="equal", why="equal bytes"),
    row("Compare", x=A, second=A, dtypes=("uint8",), comparison="not_equal", why="different bytes"),
    row("Compare", x=A, second=(2, 1, 1, 7), comparison="less", why="one pixel of b for all"),
    row("Compare", x=(2, 1, 4, 1), second=(2, 3, 4, 6), comparison="greater", why="rows and channels of a repeat"),
    row(
        "Compare",
        x=(2, 5, 6, 8),
        second=(2, 5, 6, 8),
        comparison="greater",
        primary_stride=(0, 1),
        secondary_stride=(1, 0),
        primary_stride_in_feature_channels=0,
        secondary_stride_in_feature_channels=1,
        why="the first row and channel of a, the first column of b",
    ),
    row(
        "Compare",
        x=(1, 50, 60, 30),
        second=(1, 50, 60, 30),
        comparison="greater_or_equal",
        result_dtype="uint8",
        why="a mask of bytes, by several threads",
    ),
    row(
        "Compare",
        x=(2, 5, 6, 8),
        second=(2, 5, 6, 8),
        comparison="less_or_equal",
        secondary_offset=(1, -1),
        secondary_edge_mode="clamp",
        primary_source_feature_channel_offset=4,
        secondary_source_feature_channel_max_count=4,
        destination_feature_channel_offset=4,
        out=(2, 5, 6, 12),
        why="b moved and clamped, some channels of both, in a part of the result",
    ),
    # Explicit strides of 0, as in Apple's properties.
    row("Subtract", x=A, second=(2, 4, 6, 7), secondary_stride=0, why="the first pixel of several is repeated"),
    row(
        "Subtract",
        x=(2, 9, 6, 7),
        second=A,
        primary_stride=(0, 1),
        clip_rect=((0, 0, 0), (3, 5, 2)),
        out=A,
        why="the first row of several is repeated, clipped to the other source",
    ),
    row(
        "Add", x=(2, 3, 5, 6), second=A, primary_stride_in_feature_channels=0, why="the first channel of several, in a"
    ),
    row(
        "Add",
        x=A,
        second=(2, 3, 5, 3),
        secondary_stride_in_feature_channels=0,
        why="the first channel of several, in b",
    ),
    row(
        "Divide",
        x=A,
        second=(2, 1, 1, 7),
        values=DIVISORS,
        secondary_stride=0,
        secondary_stride_in_feature_channels=1,
        why="strides by hand say what the shapes say",
    ),
    *[
        row(
            kernel,
            x=(1, 4, 3, 2),
            second=(1, 4, 3, 2),
            values=DIVISORS,
            primary_stride=0,
            secondary_stride=0,
            primary_stride_in_feature_channels=0,
            secondary_stride_in_feature_channels=0,
            why=f"{kernel}: both repeat along all axes, a single value is left",
        )
        for kernel in ("Add", "Subtract", "Multiply", "Divide")
    ],
    # Placement: offsets, edges, channels, clip.
    row("Subtract", x=A, second=A, primary_offset=(1, -2), why="a moved, zeros around it"),
    row("Subtract", x=A, second=A, secondary_offset=(-1, 2), why="b moved, zeros around it"),
    row(
        "Subtract",
        x=A,
        second=A,
        primary_offset=(2, 3),
        secondary_offset=(-2, -9),
        primary_edge_mode="clamp",
        secondary_edge_mode="clamp",
        why="both moved, the nearest pixel around them",
    ),
    row(
        "Multiply",
        x=A,
        second=A,
        primary_offset=(-2, 1),
        secondary_offset=(1, -3),
        primary_edge_mode="clamp",
        secondary_edge_mode="clamp",
        why="nearest pixels of both multiplied",
    ),
    row(
        "Add",
        x=(3, 3, 4, 8),
        second=(4, 3, 4, 8),
        primary_offset=(0, 0, 1),
        secondary_offset=(0, 1, 2),
        why="the first images of both are left out",
    ),
    row(
        "Multiply",
        x=A,
        second=(2, 1, 1, 7),
        secondary_offset=(5, 5),
        secondary_edge_mode="clamp",
        why="a repeated pixel beyond its source, clamped",
    ),
    row(
        "Multiply",
        x=A,
        second=(2, 1, 1, 7),
        secondary_offset=(5, 5),
        bias=1.0,
        why="a repeated pixel beyond its source is 0",
    ),
    row(
        "Add",
        x=(2, 3, 4, 12),
        second=(2, 3, 4, 8),
        primary_source_feature_channel_offset=4,
        primary_source_feature_channel_max_count=6,
        secondary_source_feature_channel_max_count=6,
        why="a run of channels of each source",
    ),
    row(
        "Add",
        x=(2, 3, 4, 5),
        second=(2, 3, 4, 9),
        secondary_source_feature_channel_offset=8,
        why="the last channel of b for all of a's",
    ),
    row(
        "Add",
        x=(2, 3, 4, 6),
        second=(2, 3, 4, 6),
        destination_feature_channel_offset=8,
        out=(2, 3, 4, 17),
        why="channels of the destination on both sides stay",
    ),
    row(
        "Multiply",
        x=(3, 6, 7, 4),
        second=(3, 6, 7, 4),
        clip_rect=((1, 2, 1), (3, 4, 2)),
        out=(4, 6, 7, 4),
        why="a rectangle of some images: the sources do not move with it",
    ),
    row(
        "Subtract",
        x=(3, 3, 9, 4),
        second=(1, 4, 5, 4),
        clip_rect=((1, 0, 1), (3, 5, 2)),
        secondary_offset=(1, 0),
        out=(4, 5, 6, 4),
        why="clip with one image for several, sources of different sizes",
    ),
    # Types and memory layouts.
    row(
        "Add",
        x=A,
        second=A,
        dtypes=("uint8", "uint16"),
        primary_scale=0.5,
        secondary_scale=0.5,
        why="unsigned sources and result",
    ),
    row(
        "Subtract", x=A, second=A, dtypes=("uint8",), second_dtype="float32", why="8-bit minus float32, cut at 0 and 1"
    ),
    row(
        "Multiply",
        x=A,
        second=(2, 1, 5, 7),
        dtypes=("float16",),
        second_dtype="float32",
        result_dtype="float32",
        why="three types, rounded once",
    ),
    row("Add", x=(1, 4, 5, 6), second=(1, 4, 5, 6), dtypes=("float16",), second_dtype="uint8", why="half plus 8-bit"),
    row(
        "Add",
        x=A,
        second=A,
        x_view="channels",
        second_view="nchw",
        why="a shared slice of channels and strides of NCHW",
    ),
    row(
        "Add",
        x=A,
        second=A,
        x_view="reversed",
        second_view="channels",
        out_view="channels",
        why="result in a slice of channels",
    ),
    row("Multiply", x=A, second=A, second_view="steps", out_view="steps", why="every other pixel on both sides"),
]
