# SPDX-License-Identifier: Apache-2.0
"""Cases of the reductions [MPSNNReduce.h]; the weights of those with two sources are `second`."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import math

from . import Case, row

# Adjacent values differ; several values occur repeatedly.
TIES = (1.0, 3.0, -2.0, 3.0, 0.0, -2.0, 1.0)
SPECIAL = (math.inf, 1.0, -math.inf, 2.0, -3.0, 0.5, 7.0, -1.0, 2.5, 4.0, -6.0)
BAD = (1.0, 5.0, math.nan, -2.0, 0.5, math.nan, 7.0, -1.0, 2.5, 4.0, -6.0, 3.0, 8.0)


def _of_each(kernel: str) -> list[Case]:
    cases = [
        row(kernel, x=(2, 5, 7, 3), why=f"{kernel}: batch, odd sizes, few channels"),
        row(kernel, x=(1, 6, 9, 37), why=f"{kernel}: many channels, no multiple of 4"),
        row(kernel, x=(1, 1, 1, 1), why=f"{kernel}: a single value"),
        row(kernel, x=(1, 9, 150, 5), why=f"{kernel}: rows longer than a run"),
        row(kernel, x=(1, 150, 9, 5), why=f"{kernel}: columns longer than a run"),
        row(kernel, x=(1, 2, 3, 700), why=f"{kernel}: more channels than a block"),
        row(kernel, x=(2, 70, 60, 17), why=f"{kernel}: large enough for several threads"),
        row(
            kernel,
            x=(2, 5, 7, 6),
            clip_rect_source=((1, 2, 1), (3, 4, 1)),
            why=f"{kernel}: a rectangle of the second image",
        ),
        row(
            kernel,
            x=(3, 5, 7, 6),
            clip_rect_source=((2, 3, 1), (900, 900, 900)),
            why=f"{kernel}: a rectangle that reaches beyond the source",
        ),
        row(
            kernel,
            x=(1, 4, 5, 16),
            source_feature_channel_offset=8,
            source_feature_channel_max_count=5,
            why=f"{kernel}: some channels",
        ),
        row(kernel, x=(1, 4, 5, 6), x_view="channels", why=f"{kernel}: a run of channels"),
        row(kernel, x=(1, 5, 6, 35), x_view="steps", why=f"{kernel}: every other pixel"),
        row(kernel, x=(1, 4, 5, 6), x_view="nchw", out_view="channels", why=f"{kernel}: strides on both sides"),
        row(
            kernel,
            x=(2, 4, 5, 9),
            dtypes=("uint8", "float16"),
            result_dtype="float32",
            why=f"{kernel}: other types to floats",
        ),
    ]
    name = kernel.removeprefix("Reduce")
    height, width, channels = 4, 6, 8
    shape = {"Ro": (height, 1, channels), "Co": (1, width, channels), "Fe": (height, width, 1)}[name[:2]]
    cases.append(
        row(
            kernel,
            x=(2, height, width, channels),
            clip_rect=((1, 2, 1), (*shape[:2], 2)),
            destination_feature_channel_offset=4,
            out=(4, shape[0] + 2, shape[1] + 3, shape[2] + 5),
            why=f"{kernel}: placed in a larger destination",
        )
    )
    if not kernel.endswith(("Mean", "Sum")):
        cases += [
            row(kernel, x=(1, 5, 6, 9), values=TIES, why=f"{kernel}: ties"),
            row(kernel, x=(1, 5, 6, 40), values=TIES, why=f"{kernel}: ties in many channels"),
            row(kernel, x=(1, 4, 5, 3), values=SPECIAL, why=f"{kernel}: infinities"),
            row(kernel, x=(1, 4, 5, 40), values=SPECIAL, why=f"{kernel}: infinities among many channels"),
            row(
                kernel,
                x=(1, 3, 6, 34),
                values=(1.5e38, -1e38, 1.4e38, 1.6e38, -1.5e38, 1.25e38, 0.0),
                dtypes=("float32",),
                why=f"{kernel}: values whose sum overflows",
            ),
            row(kernel, x=(1, 4, 5, 3), values=BAD, why=f"{kernel}: NaN here and there"),
            row(kernel, x=(1, 4, 5, 50), values=BAD, why=f"{kernel}: NaN among many channels"),
        ]
    else:
        cases.append(row(kernel, x=(1, 4, 5, 6), values=(math.nan, 1.0, 2.0, 3.0, 4.0), why=f"{kernel}: NaN stays"))
    if "Argument" not in kernel and not kernel.endswith("Sum"):
        cases.append(row(kernel, x=(1, 4, 5, 9), dtypes=("uint8",), why=f"{kernel}: bytes"))
    return cases


UNARY = [
    *(f"Reduce{axis}{kind}" for axis in ("Row", "Column", "FeatureChannels") for kind in ("Max", "Min", "Mean", "Sum")),
    "ReduceFeatureChannelsArgumentMax",
    "ReduceFeatureChannelsArgumentMin",
]

A = (2, 5, 7, 6)
# With zeros, whose products do not count for by_nonzero_weights; the last pixels of 3 channels have only zeros.
WEIGHTS = (0.5, 0.0, -1.5, 2.0, 0.0, 0.0, 1.0, 3.0, -0.25, 0.0, 0.0, 0.0)


def _weighted(kernel: str) -> list[Case]:
    return [
        row(kernel, x=A, second=A, why=f"{kernel}: batch, odd sizes"),
        row(kernel, x=(1, 3, 4, 1000), second=(1, 3, 4, 1000), why=f"{kernel}: many channels"),
        row(kernel, x=(2, 40, 50, 33), second=(2, 40, 50, 33), why=f"{kernel}: large enough for several threads"),
        row(kernel, x=(1, 4, 5, 3), second=(1, 4, 5, 3), values=WEIGHTS, why=f"{kernel}: weights of 0"),
        row(
            kernel,
            x=(3, 6, 8, 5),
            second=(2, 4, 5, 5),
            primary_source_clip_rect=((1, 2, 1), (3, 4, 2)),
            secondary_source_clip_rect=((1, 1, 0), (900, 900, 900)),
            why=f"{kernel}: a rectangle for each source",
        ),
        row(
            kernel,
            x=(1, 4, 5, 12),
            second=(1, 4, 5, 8),
            primary_source_feature_channel_offset=4,
            primary_source_feature_channel_max_count=4,
            secondary_source_feature_channel_offset=4,
            secondary_source_feature_channel_max_count=4,
            why=f"{kernel}: some channels of each",
        ),
        row(
            kernel,
            x=A,
            second=A,
            clip_rect=((1, 2, 1), (5, 7, 2)),
            destination_feature_channel_offset=8,
            out=(3, 6, 10, 10),
            why=f"{kernel}: placed in a larger destination",
        ),
        row(kernel, x=A, second=A, second_dtype="uint8", why=f"{kernel}: weights of another type"),
        row(kernel, x=A, second=A, x_view="channels", second_view="nchw", why=f"{kernel}: strides of both"),
    ]


CASES = [
    *[case for kernel in UNARY for case in _of_each(kernel)],
    # `weight` of a Case is the shape of an array.
    Case("ReduceFeatureChannelsSum", x=(2, 3, 4, 9), params={"weight": -0.75}, why="a factor of each channel"),
    Case("ReduceFeatureChannelsSum", x=(1, 3, 4, 50), params={"weight": 0.1}, why="a factor of many channels"),
    *_weighted("ReduceFeatureChannelsAndWeightsMean"),
    *_weighted("ReduceFeatureChannelsAndWeightsSum"),
    row(
        "ReduceFeatureChannelsAndWeightsSum",
        x=(1, 4, 5, 3),
        second=(1, 4, 5, 3),
        values=WEIGHTS,
        by_nonzero_weights=True,
        why="divided by weights that are not 0, of which some pixels have none",
    ),
    row(
        "ReduceFeatureChannelsAndWeightsSum",
        x=(2, 4, 5, 40),
        second=(2, 4, 5, 40),
        values=WEIGHTS,
        by_nonzero_weights=True,
        why="divided by weights that are not 0, many channels",
    ),
]
