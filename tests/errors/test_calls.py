# SPDX-License-Identifier: Apache-2.0
"""Sources and destinations that a kernel refuses."""

from __future__ import annotations

import pytest

from . import Array, Error, W, X, check_row

ROWS = [
    # the source
    Error("Convolution", weight=W, x=(5, 7, 4), raises=ValueError, match=r"x\.ndim \(3\) is not 4"),
    Error("Convolution", weight=W, x=(1, 1, 5, 7, 4), raises=ValueError, match=r"x\.ndim \(5\) is not 4"),
    Error(
        "Convolution",
        weight=W,
        x=Array(X, "float64"),
        raises=TypeError,
        match=r"dtype \(float64\) is not float32, float16",
    ),
    Error("Convolution", weight=W, x=Array(X, "int8"), raises=TypeError, match=r"x\.dtype \(int8\) is not"),
    Error(
        "Convolution", weight=W, x=Array(X, "int32"), raises=TypeError, match=r"dtype \(int32\) is not float32, float16"
    ),
    Error("Convolution", weight=W, x=Array(X, "complex64"), raises=TypeError, match=r"x\.dtype \(complex64\) is not"),
    Error("Convolution", weight=W, x=[1.0], raises=TypeError, match=r"x \(list\) is not an array"),
    Error("Convolution", weight=W, x=None, raises=TypeError, match=r"x \(NoneType\) is not an array"),
    Error(
        "Convolution",
        weight=W,
        x=(1, 5, 7, 3),
        raises=ValueError,
        match=r"x has 3 channels to read; .* in_channels \(4\)",
    ),
    Error(
        "Convolution",
        weight=W,
        x=(1, 5, 7, 8),
        raises=ValueError,
        match=r"x has 8 channels to read; .* in_channels \(4\)",
    ),
    Error(
        "Convolution",
        weight=W,
        x=(0, 5, 7, 4),
        raises=ValueError,
        match=r"shape \(0, 5, 7, 4\) has an extent \(0\) less than",
    ),
    Error(
        "Convolution",
        weight=W,
        x=(1, 0, 7, 4),
        raises=ValueError,
        match=r"shape \(1, 0, 7, 4\) has an extent \(0\) less than",
    ),
    Error(
        "Convolution",
        weight=W,
        x=(1, 5, 0, 4),
        raises=ValueError,
        match=r"shape \(1, 5, 0, 4\) has an extent \(0\) less than",
    ),
    Error(
        "Convolution",
        weight=W,
        x=(1, 5, 7, 0),
        raises=ValueError,
        match=r"shape \(1, 5, 7, 0\) has an extent \(0\) less than",
    ),
    Error(
        "Convolution",
        weight=W,
        x=(1, 2, 7, 4),
        raises=ValueError,
        match=r"result has 0 x 5 pixels, less than the minimum \(1 x 1\)",
    ),
    Error(
        "Convolution", weight=W, x=(1, 3, 16385, 4), raises=ValueError, match=r"extent \(16385\) .* maximum \(16384\)"
    ),
    Error(
        "Convolution", weight=W, dilation=3, x=X, raises=ValueError, match=r"dilation \(3, 3\) do not fit x \(5, 7\)"
    ),
    Error(
        "Convolution",
        weight=W,
        padding="valid",
        x=(1, 2, 7, 4),
        raises=ValueError,
        match=r'kernel_size \(3, 3\) dilated is greater than x \(2, 7\) with padding "valid"',
    ),
    Error(
        "Convolution",
        weight=W,
        source_feature_channel_offset=4,
        x=X,
        raises=ValueError,
        match=r"source_feature_channel_offset \(4\) is not less than the channels of x \(4\)",
    ),
    Error(
        "Convolution",
        weight=W,
        source_feature_channel_max_count=3,
        x=X,
        raises=ValueError,
        match=r"x has 3 channels to read",
    ),
    Error(
        "Convolution",
        weight=W,
        offset=(0, 0, 1),
        x=X,
        raises=ValueError,
        match=r"offset has image \(1\), not in \[0, 1\)",
    ),
    # the destination
    Error(
        "Convolution",
        weight=W,
        x=X,
        out=(1, 3, 4, 8),
        raises=ValueError,
        match=r"out\.shape \(1, 3, 4, 8\) is not the result's \(1, 3, 5, 8\)",
    ),
    Error(
        "Convolution",
        weight=W,
        x=X,
        out=(2, 3, 5, 8),
        raises=ValueError,
        match=r"out\.shape \(2, 3, 5, 8\) is not the result's",
    ),
    Error("Convolution", weight=W, x=X, out=(1, 3, 5, 7), raises=ValueError, match=r"out has 7 channels; .* need 8"),
    Error("Convolution", weight=W, x=X, out=(3, 5, 8), raises=ValueError, match=r"out\.ndim \(3\) is not 4"),
    Error(
        "Convolution",
        weight=W,
        x=X,
        out=Array((1, 3, 5, 8), "int32"),
        raises=TypeError,
        match=r"dtype \(int32\) is not float32",
    ),
    Error(
        "Convolution",
        weight=W,
        x=X,
        out=Array((1, 3, 5, 8), "float64"),
        raises=TypeError,
        match=r"dtype \(float64\) is not float32",
    ),
    Error(
        "Convolution",
        weight=W,
        x=X,
        out=Array((1, 3, 5, 8), read_only=True),
        raises=ValueError,
        match=r"out is read-only",
    ),
    Error("Convolution", weight=W, x=X, out=[0.0], raises=TypeError, match=r"out \(list\) is not an array"),
    Error(
        "Convolution",
        weight=W,
        x=X,
        out=(1, 3, 5, 8),
        dtype="float32",
        raises=ValueError,
        match=r"dtype was given together with out",
    ),
    Error("Convolution", weight=W, x=X, dtype="float64", raises=TypeError, match=r"dtype \(float64\) is not float32"),
    Error("Convolution", weight=W, x=X, dtype="int8", raises=TypeError, match=r"dtype \(int8\) is not"),
    Error(
        "Convolution",
        weight=W,
        destination_feature_channel_offset=4,
        x=X,
        out=(1, 3, 5, 8),
        raises=ValueError,
        match=r"destination_feature_channel_offset \(4\) and the result's channels \(8\) need 12",
    ),
    Error(
        "Convolution",
        weight=W,
        clip_rect=((0, 0, 0), (2, 2, 1)),
        x=X,
        raises=ValueError,
        match=r"clip_rect needs a destination",
    ),
    Error(
        "Convolution",
        weight=W,
        clip_rect=((2, 0, 0), (2, 2, 1)),
        x=X,
        out=(1, 3, 5, 8),
        raises=ValueError,
        match=r"clip_rect reaches 4 along the height of out \(3\)",
    ),
    Error(
        "Convolution",
        weight=W,
        clip_rect=((0, 4, 0), (1, 2, 1)),
        x=X,
        out=(1, 3, 5, 8),
        raises=ValueError,
        match=r"clip_rect reaches 6 along the width of out \(5\)",
    ),
    Error(
        "Convolution",
        weight=W,
        clip_rect=((0, 0, 1), (1, 1, 1)),
        x=X,
        out=(1, 3, 5, 8),
        raises=ValueError,
        match=r"clip_rect reaches 2 along the images of out \(1\)",
    ),
    Error(
        "Convolution",
        weight=W,
        clip_rect=((2**62, 0, 0), (2**62, 1, 1)),
        raises=ValueError,
        match=r"clip_rect \(4611686018427387904, .*\) is greater than the maximum \(1073741824\)",
    ),
    Error(
        "Convolution",
        weight=W,
        offset=(-(2**31), 0),
        raises=ValueError,
        match=r"offset \(-2147483648, 0\) is less than .* \(-1073741824\)",
    ),
    Error(
        "Convolution",
        weight=W,
        clip_rect=((0, 0, 0), (1, 1, 2)),
        x=X,
        out=(2, 3, 5, 8),
        raises=ValueError,
        match=r"clip_rect has 2 images; x provides 1",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
