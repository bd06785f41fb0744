# SPDX-License-Identifier: Apache-2.0
"""Upsampling and resizing that cannot be made or called."""

from __future__ import annotations

import math

import pytest

from . import Array, Error, X, check_row

WHOLE = [0.0, 0.0, 1.0, 1.0]

ROWS = [
    *[
        error
        for kernel in ("UpsamplingNearest", "UpsamplingBilinear")
        for error in (
            Error(kernel, raises=TypeError, match=rf"{kernel}: missing a required argument: 'scale_factor'"),
            Error(kernel, scale_factor=(2, 0), raises=ValueError, match=r"scale_factor \(2, 0\) is less than .* \(1\)"),
            Error(
                kernel, scale_factor=65537, raises=ValueError, match=r"scale_factor \(65537\) is greater .* \(65536\)"
            ),
            Error(
                kernel, scale_factor=1.5, raises=TypeError, match=r"scale_factor \(1\.5\) is not an integer or a pair"
            ),
            Error(
                kernel,
                scale_factor=2,
                x=X,
                out=X,
                raises=ValueError,
                match=r"out\.shape \(1, 5, 7, 4\) is not the result's \(1, 10, 14, 4\)",
            ),
            Error(kernel, scale_factor=2, edge_mode="mirror", raises=ValueError, match=r"edge_mode .* is not one of"),
        )
    ],
    Error("UpsamplingNearest", scale_factor=2, align_corners=True, raises=TypeError, match=r"align_corners"),
    Error(
        "UpsamplingBilinear",
        scale_factor=2,
        align_corners=1,
        raises=TypeError,
        match=r"align_corners \(1\) is not True or False",
    ),
    *[
        error
        for kernel, others in (("ResizeBilinear", {}), ("CropAndResizeBilinear", {"regions": [WHOLE]}))
        for error in (
            Error(kernel, **others, raises=TypeError, match=rf"{kernel}: missing a required argument: 'size'"),
            Error(kernel, size=0, **others, raises=ValueError, match=r"size \(0\) is less than the minimum \(1\)"),
            Error(kernel, size=(3, 4, 5), **others, raises=TypeError, match=r"size \(3, 4, 5\) is not an integer"),
            Error(kernel, size=3, **others, x=X, out=X, raises=ValueError, match=r"is not the result's \(1, 3, 3, 4\)"),
        )
    ],
    Error("CropAndResizeBilinear", size=3, raises=TypeError, match=r"missing a required argument: 'regions'"),
    Error(
        "CropAndResizeBilinear",
        size=3,
        regions=WHOLE,
        raises=ValueError,
        match=r"regions\.shape \(4,\) is not \(R, 4\)",
    ),
    Error(
        "CropAndResizeBilinear",
        size=3,
        regions=Array((2, 5)),
        raises=ValueError,
        match=r"regions\.shape \(2, 5\) is not \(R, 4\): y, x, height, width",
    ),
    Error("CropAndResizeBilinear", size=3, regions=Array((0, 4)), raises=ValueError, match=r"number of regions \(0\)"),
    Error(
        "CropAndResizeBilinear",
        size=3,
        regions=[WHOLE, [0.0, math.nan, 1.0, 1.0]],
        raises=ValueError,
        match=r"regions\[1\] has a number \(nan\) that is not between -1e\+06 and 1e\+06",
    ),
    Error("CropAndResizeBilinear", size=3, regions=Array((1, 4), "int32"), raises=TypeError, match=r"dtype \(int32\)"),
    Error(
        "CropAndResizeBilinear",
        size=3,
        regions=[WHOLE],
        offset=(0, 0, 1),
        raises=ValueError,
        match=r"offset \(0, 0, 1\) is greater than the maximum \(0\)",
    ),
    Error("CropAndResizeBilinear", size=3, regions=[WHOLE], edge_mode="clamp", raises=ValueError, match=r"edge_mode"),
    Error(
        "CropAndResizeBilinear",
        size=3,
        regions=[WHOLE, WHOLE],
        clip_rect=((0, 0, 1), (3, 3, 1)),
        x=X,
        out=(2, 3, 3, 4),
        raises=ValueError,
        match=r"clipRect selects 1 images of the destination, which is no multiple of numberOfRegions \(2\)",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
