# SPDX-License-Identifier: Apache-2.0
"""Pooling kernels that cannot be made or called."""

from __future__ import annotations

import pytest

from . import Array, Error, check_row

ROWS = [
    *[
        error
        for kernel in ("PoolingAverage", "PoolingL2Norm", "PoolingMax", "DilatedPoolingMax")
        for error in (
            Error(kernel, raises=TypeError, match=rf"{kernel}: missing a required argument: 'kernel_size'"),
            Error(kernel, kernel_size=0, raises=ValueError, match=r"kernel_size \(0\) is less than .* \(1\)"),
            Error(kernel, kernel_size=2.5, raises=TypeError, match=r"kernel_size \(2\.5\) is not an integer or a pair"),
            Error(kernel, kernel_size=2, stride=(1, 0), raises=ValueError, match=r"stride \(1, 0\) is less"),
            Error(kernel, kernel_size=2, ceil_mode=1, raises=TypeError, match=r"ceil_mode \(1\) is not True or False"),
            Error(
                kernel,
                kernel_size=5,
                x=Array((1, 4, 7, 4)),
                raises=ValueError,
                match=r"the result has 0 x 1 pixels, .* kernel_size \(5, 5\), .* do not fit x \(4, 7\)",
            ),
            Error(
                kernel,
                kernel_size=5,
                padding="valid",
                x=Array((1, 4, 7, 4)),
                raises=ValueError,
                match=r"kernel_size \(5, 5\) dilated is greater than x \(4, 7\) with padding \"valid\"",
            ),
        )
    ],
    Error("DilatedPoolingMax", kernel_size=2, dilation=0, raises=ValueError, match=r"dilation \(0\) is less than"),
    Error("PoolingAverage", kernel_size=2, zero_pad_size=-1, raises=ValueError, match=r"zero_pad_size \(-1\) is less"),
    Error(
        "PoolingAverage",
        kernel_size=2,
        count_include_pad=True,
        edge_mode="zero",
        raises=ValueError,
        match=r"count_include_pad excludes edge_mode and zero_pad_size",
    ),
    Error(
        "PoolingAverage",
        kernel_size=2,
        count_include_pad=True,
        padding=((0, 1), (0, 0)),
        raises=ValueError,
        match=r"count_include_pad \(True\) needs padding in pixels, the same on opposite sides",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
