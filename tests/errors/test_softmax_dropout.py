# SPDX-License-Identifier: Apache-2.0
"""Soft max and dropout that cannot be made or called."""

from __future__ import annotations

import math

import pytest

from . import Array, Error, X, check_row

ROWS = [
    *[
        error
        for kernel in ("SoftMax", "LogSoftMax")
        for error in (
            Error(kernel, dim=1, raises=TypeError, match=rf"{kernel}: got an unexpected keyword argument 'dim'"),
            Error(kernel, x=(5, 7, 4), raises=ValueError, match=rf"{kernel}: x\.ndim \(3\) is not 4"),
            Error(kernel, x=Array(X, "int8"), raises=TypeError, match=r"dtype \(int8\) is not"),
            Error(
                kernel,
                x=X,
                source_feature_channel_offset=8,
                raises=ValueError,
                match=r"source_feature_channel_offset \(8\) is not less than the channels of x \(4\)",
            ),
        )
    ],
    *[
        Error(
            "Dropout",
            keep_probability=given,
            raises=ValueError,
            match=rf"keep_probability \({given}\) is not between 0 and 1, both excluded",
        )
        for given in (0, 1)
    ],
    Error("Dropout", keep_probability=math.nan, raises=ValueError, match=r"\(nan\) is not a number; give a finite one"),
    Error("Dropout", keep_probability=1.5, raises=ValueError, match=r"\(1\.5\) is greater than the maximum \(1\)"),
    Error("Dropout", keep_probability=-0.5, raises=ValueError, match=r"\(-0\.5\) is less than the minimum \(0\)"),
    Error("Dropout", p=0.5, raises=TypeError, match=r"Dropout: got an unexpected keyword argument 'p'"),
    Error("Dropout", seed=-1, raises=ValueError, match=r"seed \(-1\) is less than the minimum \(0\)"),
    Error("Dropout", seed=2**63, raises=ValueError, match=r"seed \(9223372036854775808\) is beyond 64 bits"),
    Error("Dropout", seed=0.5, raises=TypeError, match=r"seed \(0\.5\) is not an integer"),
    Error("Dropout", mask_stride=(1, 2), raises=ValueError, match=r"mask_stride \(1, 2\) is greater than .* \(1\)"),
    Error(
        "Dropout",
        mask_stride_in_feature_channels=2,
        raises=ValueError,
        match=r"mask_stride_in_feature_channels \(2\) is greater than the maximum \(1\)",
    ),
    Error("Dropout", x=(5, 7, 4), raises=ValueError, match=r"Dropout: x\.ndim \(3\) is not 4"),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
