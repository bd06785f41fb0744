# SPDX-License-Identifier: Apache-2.0
"""Cases of soft max and its logarithm [MPSCNNSoftMax.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import math

from . import Case, row

# Outside of exp()'s range in float32, whose max argument is 88.7, on both sides.
FAR = (100.0, -100.0, 0.0, 99.0, 1000.0, -1000.0, 999.5)


def _of_both(kernel: str) -> list[Case]:
    return [
        row(kernel, x=(2, 3, 5, 7), why=f"{kernel}: few channels, batch, odd sizes"),
        row(kernel, x=(1, 7, 9, 1), why=f"{kernel}: one channel"),
        row(kernel, x=(1, 1, 1, 1000), why=f"{kernel}: a classifier's logits"),
        row(kernel, x=(3, 5, 4, 33), why=f"{kernel}: one channel more than a block of few"),
        row(kernel, x=(1, 2, 3, 1111), why=f"{kernel}: sums of several blocks"),
        row(kernel, x=(2, 37, 41, 21), why=f"{kernel}: large enough for several threads, a rest of pixels"),
        row(kernel, x=(1, 3, 4, 7), values=FAR, why=f"{kernel}: exponentials that overflow without the maximum"),
        row(kernel, x=(1, 2, 3, 35), values=FAR, why=f"{kernel}: the same in many channels"),
        row(
            kernel,
            x=(1, 3, 5, 4),
            values=(1.0, -math.inf, 2.0, 0.5, -math.inf, -math.inf, 3.0),
            why=f"{kernel}: masked channels, -inf",
        ),
        row(kernel, x=(1, 3, 4, 7), values=(1e38,), dtypes=("float32",), why=f"{kernel}: equal values near the max"),
        row(
            kernel,
            x=(1, 1, 3, 40),
            values=(-3e38,),
            dtypes=("float32",),
            why=f"{kernel}: equal values near the min, many channels",
        ),
        row(kernel, x=(1, 2, 3, 3), values=(1.0, math.nan, 2.0, 0.5, 1.5, 3.0, 4.0), why=f"{kernel}: NaN"),
        row(
            kernel, x=(1, 2, 2, 40), values=(*(float(i % 9) for i in range(70)), math.nan), why=f"{kernel}: NaN of many"
        ),
        row(kernel, x=(1, 5, 6, 8), offset=(2, -1), why=f"{kernel}: pixels outside have equal channels"),
        row(kernel, x=(3, 5, 6, 8), offset=(-1, 3, 1), edge_mode="clamp", why=f"{kernel}: moved, the nearest pixel"),
        row(
            kernel,
            x=(1, 4, 5, 12),
            source_feature_channel_offset=4,
            source_feature_channel_max_count=6,
            why=f"{kernel}: the sum is over the channels that are read",
        ),
        row(
            kernel,
            x=(2, 6, 7, 5),
            clip_rect=((1, 2, 1), (3, 4, 1)),
            destination_feature_channel_offset=4,
            out=(3, 5, 7, 11),
            why=f"{kernel}: a part of the destination",
        ),
        row(kernel, x=(1, 4, 5, 6), x_view="channels", why=f"{kernel}: a run of channels"),
        row(kernel, x=(1, 4, 5, 6), x_view="nchw", out_view="steps", why=f"{kernel}: strides on both sides"),
        row(
            kernel,
            x=(1, 4, 5, 6),
            dtypes=("uint8", "float16"),
            result_dtype="float32",
            why=f"{kernel}: other types to floats",
        ),
    ]


CASES = [
    *_of_both("SoftMax"),
    *_of_both("LogSoftMax"),
    row("SoftMax", x=(1, 4, 5, 6), dtypes=("uint8",), why="probabilities in bytes"),
    row("SoftMax", x=(1, 2, 3, 2), values=(1.0, 2.0), why="two channels, numbers that Apple's gives"),
]
