# SPDX-License-Identifier: Apache-2.0
"""Reductions that cannot be made or called."""

from __future__ import annotations

import pytest

from . import Array, Error, X, check_row

UNARY = [
    *(f"Reduce{axis}{kind}" for axis in ("Row", "Column", "FeatureChannels") for kind in ("Max", "Min", "Mean", "Sum")),
    "ReduceFeatureChannelsArgumentMax",
    "ReduceFeatureChannelsArgumentMin",
]
WEIGHTED = ["ReduceFeatureChannelsAndWeightsMean", "ReduceFeatureChannelsAndWeightsSum"]

ROWS = [
    *[
        error
        for kernel in UNARY
        for error in (
            Error(
                kernel,
                clip_rect_source=((5, 0, 0), (1, 1, 1)),
                x=X,
                raises=ValueError,
                match=rf"{kernel}: clip_rect_source begins at 5 along the height of 5: nothing is left",
            ),
            Error(kernel, offset=(1, 0), raises=ValueError, match=r"offset \(1, 0\) is greater than the maximum \(0\)"),
            Error(
                kernel, edge_mode="clamp", raises=ValueError, match=r"edge_mode \(\"clamp\"\) is not one of \"zero\"\."
            ),
        )
    ],
    Error(
        "ReduceRowMax",
        clip_rect_source=((0, 4, 0), (1, 1, 1)),
        x=(1, 5, 4, 4),
        raises=ValueError,
        match=r"begins at 4 along the width of 4",
    ),
    Error(
        "ReduceRowMax",
        clip_rect_source=((0, 0, 0), (0, 1, 1)),
        raises=ValueError,
        match=r"clip_rect_source \(0, 0, 0, 0, 1, 1\) has an extent \(0\) less than the minimum \(1\)",
    ),
    Error(
        "ReduceRowMax",
        clip_rect_source=((0, -1, 0), (1, 1, 1)),
        raises=ValueError,
        match=r"clip_rect_source .* has an origin \(-1\) less than the minimum \(0\)",
    ),
    Error(
        "ReduceRowMax",
        clip_rect_source=(0, 1),
        raises=TypeError,
        match=r"clip_rect_source \(0, 1\) is not \(\(y, x, image\), \(height, width, images\)\)",
    ),
    Error("ReduceRowMax", x=X, out=X, raises=ValueError, match=r"out\.shape .* is not the result's \(1, 5, 1, 4\)"),
    Error("ReduceColumnSum", x=X, out=X, raises=ValueError, match=r"is not the result's \(1, 1, 7, 4\)"),
    Error("ReduceFeatureChannelsSum", weight="half", raises=TypeError, match=r"weight \('half'\) is not a number"),
    Error("ReduceFeatureChannelsMax", x=Array(X, "float64"), raises=TypeError, match=r"dtype \(float64\) is not"),
    *[
        error
        for kernel in WEIGHTED
        for error in (
            Error(
                kernel,
                x=X,
                second=(1, 5, 6, 4),
                raises=ValueError,
                match=rf"{kernel}: the width of x \(7\) is not that of weights \(6\)",
            ),
            Error(
                kernel,
                x=X,
                second=(1, 5, 7, 5),
                raises=ValueError,
                match=rf"{kernel}: the number of channels of x \(4\) is not that of weights \(5\)",
            ),
            Error(
                kernel,
                x=X,
                second=(2, 5, 7, 4),
                raises=ValueError,
                match=rf"{kernel}: the number of images of x \(1\) is not that of weights \(2\)",
            ),
            Error(kernel, x=X, raises=TypeError, match=r"the number of sources \(1\) is not 2 \(x, weights\)"),
            Error(kernel, secondary_offset=(0, 1), raises=ValueError, match=r"secondary_offset \(0, 1\) is greater"),
            Error(kernel, primary_edge_mode="clamp", raises=ValueError, match=r"primary_edge_mode .* is not one of"),
        )
    ],
    Error(
        "ReduceFeatureChannelsAndWeightsSum",
        primary_source_clip_rect=((5, 0, 0), (1, 2, 1)),
        secondary_source_clip_rect=((0, 0, 0), (1, 2, 1)),
        x=X,
        second=X,
        raises=ValueError,
        match=r"primary_source_clip_rect begins at 5 along the height of 5",
    ),
    Error(
        "ReduceFeatureChannelsAndWeightsSum",
        primary_source_clip_rect=((0, 0, 0), (1, 2, 1)),
        secondary_source_clip_rect=((5, 0, 0), (1, 2, 1)),
        x=X,
        second=X,
        raises=ValueError,
        match=r"secondary_source_clip_rect begins at 5 along the height of 5",
    ),
    Error(
        "ReduceFeatureChannelsAndWeightsSum",
        by_nonzero_weights=1,
        raises=TypeError,
        match=r"by_nonzero_weights \(1\) is not True or False",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
