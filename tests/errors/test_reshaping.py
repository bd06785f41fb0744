# SPDX-License-Identifier: Apache-2.0
"""Slices, reshaping and padding that cannot be made or called."""

from __future__ import annotations

import pytest

from . import Array, Error, X, check_row

ROWS = [
    Error("Slice", size=0, raises=ValueError, match=r"Slice: size \(0\) is less than the minimum \(1\)"),
    Error("Slice", size="all", raises=TypeError, match=r"Slice: size \('all'\) is not an integer or a pair"),
    Error(
        "Slice",
        source_feature_channel_offset=2,
        raises=ValueError,
        match=r"source_feature_channel_offset \(2\) is not a multiple of 4",
    ),
    Error(
        "Slice",
        x=X,
        source_feature_channel_offset=4,
        raises=ValueError,
        match=r"source_feature_channel_offset \(4\) is not less than the channels of x \(4\)",
    ),
    Error("Slice", size=2, x=X, out=X, raises=ValueError, match=r"is not the result's \(1, 2, 2, 4\)"),
    Error("Reshape", raises=TypeError, match=r"Reshape: missing a required argument: 'shape'"),
    Error("Reshape", shape=12, raises=TypeError, match=r"shape \(12\) is not \(height, width, channels\)"),
    Error("Reshape", shape=(3, 4), raises=TypeError, match=r"shape \(3, 4\) is not \(height, width, channels\)"),
    Error("Reshape", shape=(3, -2, 4), raises=ValueError, match=r"shape \(3, -2, 4\) is less than the minimum \(-1\)"),
    Error("Reshape", shape=(0, 1, 1), raises=ValueError, match=r"has an extent \(0\) that is neither -1 nor 1 or more"),
    Error("Reshape", shape=(-1, 1, -1), raises=ValueError, match=r"has more than one extent \(-1\) to be found"),
    Error(
        "Reshape",
        shape=(1, 1, 120),
        x=X,
        raises=ValueError,
        match=r"shape \(1, 1, 120\) does not hold the 140 values of an image of x, \(5, 7, 4\)",
    ),
    Error("Reshape", shape=(30, -1, 1), x=X, raises=ValueError, match=r"shape \(30, -1, 1\) does not hold the 140"),
    Error("Reshape", shape=(1, 1, -1), offset=(0, 1), raises=ValueError, match=r"offset \(0, 1\) is greater"),
    Error("Reshape", shape=(1, 1, -1), edge_mode="clamp", raises=ValueError, match=r"edge_mode .* is not one of"),
    Error("Pad", padding=-1, raises=ValueError, match=r"Pad: padding \(-1\) is less than the minimum \(0\)"),
    Error("Pad", padding="same", raises=ValueError, match=r"Pad: padding is a number of pixels here, not a policy"),
    Error("Pad", channels_before=-1, raises=ValueError, match=r"channels_before \(-1\) is less than"),
    Error("Pad", channels_after=2.5, raises=TypeError, match=r"channels_after \(2\.5\) is not an integer"),
    Error("Pad", edge_mode="reflect", raises=ValueError, match=r"edge_mode \(\"reflect\"\) is not one of .*\"mirror\""),
    Error("Pad", value="zero", raises=TypeError, match=r"value \('zero'\) is not a number"),
    Error(
        "Pad",
        value=1,
        edge_mode="clamp",
        raises=ValueError,
        match=r"value and channel_values need edge_mode \"constant\"; it is \"clamp\"",
    ),
    Error(
        "Pad", value=1, channel_values=[1.0], raises=ValueError, match=r"value and channel_values exclude each other"
    ),
    Error("Pad", channel_values=[], raises=ValueError, match=r"the number of channel_values \(0\) is less"),
    Error("Pad", channel_values=Array((2, 2)), raises=ValueError, match=r"channel_values\.ndim \(2\) is not 1"),
    Error(
        "Pad",
        channel_values=[1.0] * 4,
        x=(1, 5, 7, 5),
        raises=ValueError,
        match=r"the result has 5 channels; there are 4 channel_values",
    ),
    Error("Pad", padding=1, x=X, out=X, raises=ValueError, match=r"is not the result's \(1, 7, 9, 4\)"),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
