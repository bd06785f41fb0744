# SPDX-License-Identifier: Apache-2.0
"""Convolutions that cannot be made."""

from __future__ import annotations

import pytest

import mpscnn

from . import Array, Error, W, check_row

ROWS = [
    # weights
    Error("Convolution", weight=(8, 4, 3), raises=ValueError, match=r"weight\.ndim \(3\) is not 4"),
    Error("Convolution", weight=(8,), raises=ValueError, match=r"weight\.ndim \(1\) is not 4"),
    Error("Convolution", weight=(1, 8, 4, 3, 3), raises=ValueError, match=r"weight\.ndim \(5\) is not 4"),
    Error("Convolution", weight=Array(W, "int32"), raises=TypeError, match=r"weight\.dtype \(int32\) is not float32"),
    Error(
        "Convolution", weight=Array(W, "float64"), raises=TypeError, match=r"weight\.dtype \(float64\) is not float32"
    ),
    Error("Convolution", weight=Array(W, "complex64"), raises=TypeError, match=r"weight\.dtype \(complex64\) is not"),
    Error(
        "Convolution",
        weight=Array(W, ">f4"),
        raises=TypeError,
        match=r"weight\.dtype \(>f4\) is not .* native byte order",
    ),
    Error("Convolution", weight=None, raises=TypeError, match=r"weight \(None\) is not an array or a data source"),
    Error("Convolution", weight="conv1.bin", raises=TypeError, match=r"weight \(str\) is not an array"),
    Error("Convolution", weight=[[[[1.0]]]], raises=TypeError, match=r"weight \(list\) is not an array"),
    Error("Convolution", raises=TypeError, match=r"Convolution: missing a required argument: 'weight'"),
    Error(
        "Convolution",
        weight=(0, 4, 3, 3),
        raises=ValueError,
        match=r"weight\.shape \(0, 4, 3, 3\) has an extent \(0\) less",
    ),
    Error(
        "Convolution",
        weight=(8, 4, 0, 3),
        raises=ValueError,
        match=r"weight\.shape \(8, 4, 0, 3\) has an extent \(0\) less",
    ),
    Error(
        "Convolution",
        weight=(8, 4, 3, 0),
        layout="OHWI",
        raises=ValueError,
        match=r"extent \(0\) less than the minimum \(1\)",
    ),
    Error("Convolution", weight=W, bias=(7,), raises=ValueError, match=r"bias\.shape \(7,\) is not \(8,\)"),
    Error("Convolution", weight=W, bias=(8, 1), raises=ValueError, match=r"bias\.shape \(8, 1\) is not \(8,\)"),
    Error(
        "Convolution",
        weight=W,
        bias=Array((8,), "int64"),
        raises=TypeError,
        match=r"bias\.dtype \(int64\) is not float16",
    ),
    Error("Convolution", weight=W, bias=0.5, raises=TypeError, match=r"bias \(float\) is not an array"),
    Error(
        "Convolution",
        weight=W,
        layout="OIWH",
        raises=ValueError,
        match=r'layout \("OIWH"\) is not one of "OIHW", "OHWI"',
    ),
    Error("Convolution", weight=W, layout="IOHW", raises=ValueError, match=r'layout \("IOHW"\) is not one of "OIHW"'),
    Error("Convolution", weight=W, layout=3, raises=TypeError, match=r"layout \(3\) is not a string"),
    Error(
        "Convolution",
        weight=W,
        layout="C1HW",
        raises=ValueError,
        match=r"weight\.shape \(8, 4, 3, 3\) has 4 channels along the second axis of C1HW",
    ),
    # groups
    Error("Convolution", weight=W, groups=0, raises=ValueError, match=r"groups \(0\) is less than the minimum \(1\)"),
    Error("Convolution", weight=W, groups=-2, raises=ValueError, match=r"groups \(-2\) is less than the minimum \(1\)"),
    Error(
        "Convolution",
        weight=W,
        groups=3,
        raises=ValueError,
        match=r"groups \(3\) does not divide .* out_channels \(8\)",
    ),
    Error(
        "Convolution",
        weight=(8, 2, 3, 3),
        groups=2,
        raises=ValueError,
        match=r"groups \(2\) leaves 2 input and 4 output channels for each group; MPS needs multiples of 4",
    ),
    Error(
        "Convolution",
        weight=(8, 1, 3, 3),
        groups=4,
        raises=ValueError,
        match=r"groups \(4\) leaves 1 input and 2 output",
    ),
    Error("Convolution", weight=W, groups=2.0, raises=TypeError, match=r"groups \(2\.0\) is not an integer"),
    Error("Convolution", weight=W, groups=True, raises=TypeError, match=r"groups \(True\) is not an integer"),
    Error("Convolution", weight=W, groups=None, raises=TypeError, match=r"groups \(None\) is not an integer"),
    # geometry
    Error("Convolution", weight=W, stride=0, raises=ValueError, match=r"stride \(0\) is less than the minimum \(1\)"),
    Error(
        "Convolution",
        weight=W,
        stride=(0, 1),
        raises=ValueError,
        match=r"stride \(0, 1\) is less than the minimum \(1\)",
    ),
    Error(
        "Convolution",
        weight=W,
        stride=(1, -3),
        raises=ValueError,
        match=r"stride \(1, -3\) is less than the minimum \(1\)",
    ),
    Error(
        "Convolution",
        weight=W,
        stride=70000,
        raises=ValueError,
        match=r"stride \(70000\) is greater than the maximum \(65535\)",
    ),
    Error(
        "Convolution",
        weight=W,
        stride=2**70,
        raises=ValueError,
        match=r"stride \(1180591620717411303424\) is beyond 64 bits",
    ),
    Error(
        "Convolution",
        weight=W,
        stride=(1, 2, 3),
        raises=TypeError,
        match=r"stride \(1, 2, 3\) is not an integer or a pair",
    ),
    Error("Convolution", weight=W, stride=(), raises=TypeError, match=r"stride \(\) is not an integer or a pair"),
    Error("Convolution", weight=W, stride=1.5, raises=TypeError, match=r"stride \(1\.5\) is not an integer or a pair"),
    Error("Convolution", weight=W, stride=True, raises=TypeError, match=r"stride \(True\) is not an integer or a pair"),
    Error(
        "Convolution", weight=W, stride=(True, 1), raises=TypeError, match=r"stride \(\(True, 1\)\) is not an integer"
    ),
    Error("Convolution", weight=W, stride="2", raises=TypeError, match=r"stride \('2'\) is not an integer or a pair"),
    Error(
        "Convolution", weight=W, dilation=0, raises=ValueError, match=r"dilation \(0\) is less than the minimum \(1\)"
    ),
    Error("Convolution", weight=W, dilation=1e3, raises=TypeError, match=r"dilation \(1000\.0\) is not an integer"),
    Error(
        "Convolution", weight=W, padding=-1, raises=ValueError, match=r"padding \(-1\) is less than the minimum \(0\)"
    ),
    Error(
        "Convolution",
        weight=W,
        padding=2**21,
        raises=ValueError,
        match=r"padding \(2097152\) is greater than the maximum \(1048576\)",
    ),
    Error("Convolution", weight=W, padding=(1, 2, 3), raises=TypeError, match=r"padding \(1, 2, 3\) is not .*\"same\""),
    Error(
        "Convolution", weight=W, padding="full", raises=ValueError, match=r'padding \("full"\) is not "same" or "valid"'
    ),
    Error("Convolution", weight=W, padding=False, raises=TypeError, match=r"padding \(False\) is not an integer"),
    Error(
        "Convolution",
        weight=W,
        sub_pixel_scale_factor=3,
        raises=ValueError,
        match=r"out_channels \(8\) is not a multiple of sub_pixel_scale_factor squared \(9\)",
    ),
    Error(
        "Convolution",
        weight=W,
        sub_pixel_scale_factor=0,
        raises=ValueError,
        match=r"sub_pixel_scale_factor \(0\) is less",
    ),
    Error(
        "Convolution",
        weight=(8, 1, 3, 3),
        groups=8,
        sub_pixel_scale_factor=2,
        raises=ValueError,
        match=r"sub_pixel_scale_factor \(2\) of a depth-wise convolution is not 1",
    ),
    # activation, quantization, dtype of the weights
    Error(
        "Convolution",
        weight=W,
        activation="swish",
        raises=ValueError,
        match=r'activation \("swish"\) is not one of "none", "identity", "relu"',
    ),
    Error(
        "Convolution",
        weight=W,
        activation="prelu",
        raises=ValueError,
        match=r'activation \("prelu"\) needs slopes: NeuronDescriptor\("prelu", data=\.\.\.\) has them',
    ),
    Error("Convolution", weight=W, activation=3, raises=TypeError, match=r"activation \(3\) is not a name"),
    Error(
        "Convolution",
        weight=W,
        activation=mpscnn.NeuronDescriptor("prelu", data=[0.1, 0.2]),
        raises=ValueError,
        match=r"activation has 2 PReLU slopes for 8 output channels",
    ),
    Error(
        "Convolution",
        weight=Array(W, "uint8"),
        raises=ValueError,
        match=r"weight\.dtype \(uint8\) needs ranges or lookup_table",
    ),
    Error("Convolution", weight=W, ranges=(8, 2), raises=ValueError, match=r"for weight\.dtype \(uint8\) only"),
    Error(
        "Convolution",
        weight=Array(W, "uint8"),
        ranges=(8, 2),
        lookup_table=(256,),
        raises=ValueError,
        match=r"both given",
    ),
    Error(
        "Convolution",
        weight=Array(W, "uint8"),
        ranges=(8, 3),
        raises=ValueError,
        match=r"ranges\.shape \(8, 3\) is not \(8, 2\)",
    ),
    Error(
        "Convolution",
        weight=Array(W, "uint8"),
        lookup_table=(255,),
        raises=ValueError,
        match=r"lookup_table\.shape \(255,\) is not \(256,\)",
    ),
    Error(
        "Convolution",
        weight=W,
        kernel_dtype="float64",
        raises=ValueError,
        match=r'kernel_dtype \("float64"\) is not one of',
    ),
    Error(
        "Convolution",
        weight=Array(W, "float16"),
        kernel_dtype="float32",
        raises=ValueError,
        match=r'kernel_dtype \("float32"\) needs .*weight\.dtype is float16',
    ),
    # names
    Error(
        "Convolution",
        weight=W,
        strides=2,
        raises=TypeError,
        match=r"Convolution: got an unexpected keyword argument 'strides'",
    ),
    Error("Convolution", weight=W, label=3, raises=TypeError, match=r"label \(3\) is not a string"),
    Error("Convolution", weight=W, device="gpu", raises=TypeError, match=r"device"),
    # Apple's properties
    Error(
        "Convolution",
        weight=W,
        edge_mode="mirror",
        raises=ValueError,
        match=r'edge_mode \("mirror"\) is not one of "zero", "clamp"',
    ),
    Error("Convolution", weight=W, offset=(1,), raises=TypeError, match=r"offset \(?1\)? is not \(y, x\)"),
    Error("Convolution", weight=W, offset=1.0, raises=TypeError, match=r"offset \(1\.0\) is not \(y, x\)"),
    Error(
        "Convolution",
        weight=W,
        clip_rect=(0, 0, 2, 2),
        raises=TypeError,
        match=r"clip_rect \(0, 0, 2, 2\) is not \(\(y, x, image\)",
    ),
    Error(
        "Convolution",
        weight=W,
        clip_rect=((0, -1, 0), (2, 2, 1)),
        raises=ValueError,
        match=r"origin \(-1\) less than .* \(0\)",
    ),
    Error(
        "Convolution",
        weight=W,
        clip_rect=((0, 0, 0), (2, 0, 1)),
        raises=ValueError,
        match=r"extent \(0\) less than .* \(1\)",
    ),
    Error(
        "Convolution",
        weight=W,
        source_feature_channel_offset=2,
        raises=ValueError,
        match=r"source_feature_channel_offset \(2\) is not a multiple of 4",
    ),
    Error(
        "Convolution",
        weight=W,
        source_feature_channel_offset=-4,
        raises=ValueError,
        match=r"\(-4\) is less than the minimum \(0\)",
    ),
    Error(
        "Convolution",
        weight=W,
        destination_feature_channel_offset=6,
        raises=ValueError,
        match=r"destination_feature_channel_offset \(6\) is not a multiple of 4",
    ),
    Error(
        "Convolution",
        weight=W,
        source_feature_channel_max_count=0,
        raises=ValueError,
        match=r"\(0\) is less than the minimum \(1\)",
    ),
    Error(
        "Convolution",
        weight=W,
        allow_reduced_precision=1,
        raises=TypeError,
        match=r"allow_reduced_precision \(1\) is not True or False",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
