# SPDX-License-Identifier: Apache-2.0
"""Wrong input: a Python exception of the right type, whose sentence has the name, the value given and the limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import Source, assert_close, conv2d, counts_memory, held_queue, random, run_python


class Array:
    """An array that a row asks for."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "float32", read_only: bool = False) -> None:
        self.shape, self.dtype, self.read_only = shape, dtype, read_only

    def __repr__(self) -> str:
        return f"Array({self.shape}, {self.dtype}{', read-only' if self.read_only else ''})"

    def make(self) -> Any:
        array = np.zeros(self.shape, self.dtype) if self.dtype == "complex64" else random(self.shape, self.dtype)
        array.flags.writeable = not self.read_only
        return array


class Error:
    """One wrong call: parameters of the kernel; `x`, `second`, `out`, `dtype` are the call's. Without `x` the kernel is
    refused.

    A tuple for `weight`, `bias`, `x`, `second`, `out`, `ranges`, `lookup_table` and `data` is the shape of a float32
    array.
    """

    ARRAYS = ("weight", "bias", "x", "second", "out", "ranges", "lookup_table", "data")

    def __init__(self, kernel: str, *, raises: type[Exception], match: str, **given: Any) -> None:
        self.kernel, self.raises, self.match, self.given = kernel, raises, match, given

    def __repr__(self) -> str:
        return f"Error({', '.join([self.kernel, *(f'{name}={value!r}' for name, value in self.given.items())])})"

    def values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(parameters of the kernel, arguments of the call)."""
        made = dict(self.given)
        for name, value in made.items():
            if isinstance(value, tuple) and name in self.ARRAYS:
                value = Array(value)
            made[name] = value.make() if isinstance(value, Array) else value
        return made, {name: made.pop(name) for name in ("x", "second", "out", "dtype") if name in made}


W = (8, 4, 3, 3)
X = (1, 5, 7, 4)

ERRORS = [
    # pooling
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
    # transposed convolution
    Error("ConvolutionTranspose", weight=(4, 8, 3), raises=ValueError, match=r"weight\.ndim \(3\) is not 4"),
    Error(
        "ConvolutionTranspose",
        weight=Array((4, 8, 3, 3), "float16"),
        raises=ValueError,
        match=r"weight\.dtype \(float16\) is not float32, the only type MPS takes here",
    ),
    Error(
        "ConvolutionTranspose",
        weight=(4, 8, 3, 3),
        layout="OIHW",
        raises=ValueError,
        match=r'layout \("OIHW"\) is not one of "IOHW"',
    ),
    Error(
        "ConvolutionTranspose", weight=(4, 8, 3, 3), groups=3, raises=ValueError, match=r"groups \(3\) does not divide"
    ),
    Error(
        "ConvolutionTranspose",
        weight=(8, 2, 3, 3),
        groups=2,
        raises=ValueError,
        match=r"groups \(2\) leaves 4 input and 2 output",
    ),
    Error(
        "ConvolutionTranspose",
        weight=(4, 8, 3, 3),
        stride=2,
        output_padding=2,
        raises=ValueError,
        match=r"output_padding \(2, 2\) is not less than stride \(2, 2\)",
    ),
    Error(
        "ConvolutionTranspose", weight=(4, 8, 3, 3), padding=-1, raises=ValueError, match=r"padding \(-1\) is less than"
    ),
    Error(
        "ConvolutionTranspose",
        weight=(4, 8, 3, 3),
        dilation=2,
        raises=TypeError,
        match=r"unexpected keyword argument 'dilation'",
    ),
    Error(
        "ConvolutionTranspose",
        weight=(4, 8, 3, 3),
        x=(1, 5, 7, 3),
        raises=ValueError,
        match=r"x has 3 channels to read",
    ),
    Error(
        "ConvolutionTranspose",
        weight=(4, 8, 3, 3),
        padding=6,
        x=X,
        raises=ValueError,
        match=r"the result has -5 x -3 pixels",
    ),
    # fully connected
    Error("FullyConnected", weight=(10, 4, 5, 7), raises=ValueError, match=r"weight\.ndim \(4\) is not 2"),
    Error(
        "FullyConnected",
        weight=(10, 140),
        feature_map=(4, 5, 6),
        raises=ValueError,
        match=r"has 140 inputs, feature_map \(4, 5, 6\) has 120",
    ),
    Error(
        "FullyConnected",
        weight=(10, 140),
        feature_map=(4, 5),
        raises=TypeError,
        match=r"feature_map \(4, 5\) is not \(channels,",
    ),
    Error(
        "FullyConnected",
        weight=(10, 140),
        feature_map=(0, 5, 7),
        raises=ValueError,
        match=r"\(0, 5, 7\) is less than the minimum \(1\)",
    ),
    Error(
        "FullyConnected",
        weight=(10, 140),
        feature_map=(2**40,) * 3,
        raises=ValueError,
        match=r"more elements than can be counted",
    ),
    Error(
        "FullyConnected",
        weight=(10, 4, 5, 7),
        layout="OIHW",
        feature_map=(4, 5, 7),
        raises=ValueError,
        match=r'feature_map is for layout "OI" only; layout is "OIHW"',
    ),
    Error(
        "FullyConnected",
        weight=(10, 140),
        feature_map=(4, 5, 7),
        x=(1, 5, 6, 4),
        raises=ValueError,
        match=r"x has 5 x 6 pixels; the weights cover kernel_size \(5, 7\)",
    ),
    Error(
        "FullyConnected",
        weight=(10, 140),
        x=(1, 1, 1, 139),
        raises=ValueError,
        match=r"x has 139 channels .* in_channels \(140\)",
    ),
    # neurons
    Error("Neuron", type="selu", raises=ValueError, match=r'type \("selu"\) is not one of "none", "identity", "relu"'),
    Error("Neuron", type=1, raises=TypeError, match=r"type \(1\) is not a string"),
    Error("Neuron", type="prelu", raises=ValueError, match=r'data \(None\) is missing for type "prelu"'),
    Error("Neuron", type="relu", data=(4,), raises=ValueError, match=r'data was given for a type other than "prelu"'),
    Error("Neuron", type="relu", a="steep", raises=TypeError, match=r"a \('steep'\) is not a number"),
    Error("NeuronAbsolute", x=(5, 7, 4), raises=ValueError, match=r"NeuronAbsolute: x\.ndim \(3\) is not 4"),
    Error("NeuronELU", a=True, raises=TypeError, match=r"NeuronELU: a \(True\) is not a number"),
    Error("NeuronExponential", c=None, raises=TypeError, match=r"NeuronExponential: c \(None\) is not a number"),
    Error("NeuronHardSigmoid", b=1j, raises=TypeError, match=r"NeuronHardSigmoid: b \(1j\) is not a number"),
    Error("NeuronLinear", c=1.0, raises=TypeError, match=r"NeuronLinear: got an unexpected keyword argument 'c'"),
    Error("NeuronLogarithm", a=[1.0], raises=TypeError, match=r"NeuronLogarithm: a \(\[1\.0\]\) is not a number"),
    Error("NeuronPReLU", raises=TypeError, match=r"NeuronPReLU: missing a required argument: 'a'"),
    Error(
        "NeuronPReLU", a=Array((0,)), raises=ValueError, match=r"number of slopes \(0\) is less than the minimum \(1\)"
    ),
    Error("NeuronPReLU", a=Array((2, 2)), raises=ValueError, match=r"slopes\.ndim \(2\) is not 1"),
    Error("NeuronPReLU", a=Array((4,), "int32"), raises=TypeError, match=r"slopes\.dtype \(int32\) is not float16"),
    Error(
        "NeuronPReLU",
        a=Array((4,)),
        x=(1, 5, 7, 3),
        raises=ValueError,
        match=r"x has 3 channels to read; there are 4 slopes",
    ),
    Error("NeuronPower", c="2", raises=TypeError, match=r"NeuronPower: c \('2'\) is not a number"),
    Error("NeuronReLU", a=Array((4,)), raises=TypeError, match=r"NeuronReLU: a \(array\(.*\) is not a number"),
    Error("NeuronReLU", x=(0, 5, 7, 4), raises=ValueError, match=r"shape \(0, 5, 7, 4\) has an extent \(0\)"),
    Error("NeuronReLUN", b="6", raises=TypeError, match=r"NeuronReLUN: b \('6'\) is not a number"),
    Error("NeuronSigmoid", a=1.0, raises=TypeError, match=r"NeuronSigmoid: got an unexpected keyword argument 'a'"),
    Error("NeuronSoftPlus", x=Array(X, "float64"), raises=TypeError, match=r"dtype \(float64\) is not float32"),
    Error(
        "NeuronSoftSign",
        x=X,
        out=(1, 5, 7, 3),
        raises=ValueError,
        match=r"NeuronSoftSign: out has 3 channels; .* need 4",
    ),
    Error("NeuronTanH", b=False, raises=TypeError, match=r"NeuronTanH: b \(False\) is not a number"),
    # two sources
    Error("Add", x=X, raises=TypeError, match=r"Add: the number of sources \(1\) is not 2 \(a, b\)"),
    Error(
        "NeuronReLU", x=X, second=X, raises=TypeError, match=r"NeuronReLU: the number of sources \(2\) is not 1 \(x\)"
    ),
    Error("Add", x=X, second=(5, 7, 4), raises=ValueError, match=r"Add: b\.ndim \(3\) is not 4"),
    Error("Add", x=(5, 7, 4), second=X, raises=ValueError, match=r"Add: a\.ndim \(3\) is not 4"),
    Error("Add", x=X, second="one", raises=TypeError, match=r"b \(str\) is not an array"),
    Error("Add", x=X, second=Array(X, "float64"), raises=TypeError, match=r"dtype \(float64\) is not float32"),
    Error(
        "Add",
        x=X,
        second=(1, 3, 7, 4),
        raises=ValueError,
        match=r"Add: the height of a \(5\) is not that of b \(3\)",
    ),
    Error(
        "Subtract",
        x=X,
        second=(1, 5, 6, 4),
        raises=ValueError,
        match=r"Subtract: the width of a \(7\) is not that of b \(6\)",
    ),
    Error(
        "Multiply",
        x=X,
        second=(1, 5, 7, 8),
        raises=ValueError,
        match=r"Multiply: the number of channels of a \(4\) is not that of b \(8\)",
    ),
    Error(
        "Divide",
        x=(3, 5, 7, 4),
        second=(2, 5, 7, 4),
        raises=ValueError,
        match=r"Divide: the number of images of a \(3\) is not that of b \(2\)",
    ),
    Error(
        "Add",
        secondary_stride=(1, 1),
        x=X,
        second=(1, 1, 7, 4),
        raises=ValueError,
        match=r"the height of a \(5\) is not that of b \(1\)",
    ),
    Error("Add", primary_stride=2, raises=ValueError, match=r"primary_stride \(2\) is greater than the maximum \(1\)"),
    Error("Add", primary_stride=-1, raises=ValueError, match=r"primary_stride \(-1\) is less than the minimum \(0\)"),
    Error(
        "Add",
        secondary_stride_in_feature_channels=4,
        raises=ValueError,
        match=r"secondary_stride_in_feature_channels \(4\) is greater than the maximum \(1\)",
    ),
    Error("Add", primary_scale="2", raises=TypeError, match=r"Add: primary_scale \('2'\) is not a number"),
    Error(
        "Subtract",
        minimum_value=1.0,
        maximum_value=-1.0,
        raises=ValueError,
        match=r"minimum_value \(1\) is greater than maximum_value \(-1\)",
    ),
    Error("Multiply", offset=(0, 0), raises=TypeError, match=r"Multiply: got an unexpected keyword argument 'offset'"),
    Error(
        "Divide",
        secondary_source_feature_channel_offset=2,
        raises=ValueError,
        match=r"secondary_source_feature_channel_offset \(2\) is not a multiple of 4",
    ),
    Error(
        "Divide",
        secondary_source_feature_channel_offset=4,
        x=X,
        second=X,
        raises=ValueError,
        match=r"secondary_source_feature_channel_offset \(4\) is not less than the channels of b \(4\)",
    ),
    Error(
        "Add",
        primary_offset=(0, 0, 2),
        x=(2, 5, 7, 4),
        second=X,
        raises=ValueError,
        match=r"primary_offset has image \(2\), not in \[0, 2\)",
    ),
    Error("Add", x=X, second=X, out=(1, 5, 7, 3), raises=ValueError, match=r"Add: out has 3 channels; .* need 4"),
    Error(
        "Add",
        x=X,
        second=(2, 1, 1, 4),
        out=X,
        raises=ValueError,
        match=r"out\.shape \(1, 5, 7, 4\) is not the result's \(2, 5, 7, 4\)",
    ),
    Error(
        "Add",
        clip_rect=((0, 0, 0), (5, 7, 2)),
        x=(3, 5, 7, 4),
        second=(2, 5, 7, 4),
        raises=ValueError,
        match=r"clip_rect needs a destination",
    ),
    Error(
        "Add",
        clip_rect=((0, 0, 0), (5, 7, 3)),
        x=(3, 5, 7, 4),
        second=(2, 5, 7, 4),
        out=(3, 5, 7, 4),
        raises=ValueError,
        match=r"clip_rect has 3 images; the sources provide 2",
    ),
    Error("NeuronGradient", raises=TypeError, match=r"NeuronGradient: missing a required argument: 'activation'"),
    Error("NeuronGradient", activation=None, raises=TypeError, match=r"activation \(None\) is not a name, a Neuron"),
    Error("NeuronGradient", activation="selu", raises=ValueError, match=r'activation \("selu"\) is not one of "none"'),
    Error(
        "NeuronGradient", activation=3, raises=TypeError, match=r"activation \(3\) is not a name, a NeuronDescriptor"
    ),
    Error(
        "NeuronGradient",
        activation=mpscnn.Add(),
        raises=TypeError,
        match=r"activation \(Add\) is not a neuron kernel",
    ),
    Error(
        "NeuronGradient",
        activation="relu",
        x=X,
        second=(1, 1, 1, 4),
        raises=ValueError,
        match=r"the height of grad_y \(5\) is not that of x \(1\)",
    ),
    Error(
        "NeuronGradient",
        activation=mpscnn.NeuronDescriptor("prelu", data=[0.5, 0.25]),
        x=X,
        second=X,
        raises=ValueError,
        match=r"NeuronGradient: x has 4 channels to read; there are 2 slopes",
    ),
]


def good_source(kernel: mpscnn.Kernel) -> np.ndarray:
    """A source that this kernel takes, unless its properties ask for more."""
    source = kernel.data_source
    if source is None:
        neuron = kernel.neuron_descriptor
        return random((1, 6, 5, len(neuron.data) if neuron and len(neuron.data) else 4))
    d = source.descriptor
    height, width = d.kernel_size if isinstance(kernel, mpscnn.FullyConnected) else (9, 11)
    return random((2, height, width, d.in_channels))


def canary() -> None:
    """A kernel that has nothing to do with the error."""
    x = random((1, 6, 5, 4))
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(x), np.maximum(x, 0))


@pytest.mark.parametrize("row", ERRORS, ids=repr)
def test_row(row: Error) -> None:
    parameters, call = row.values()
    cls = getattr(mpscnn, row.kernel)
    if not call:
        with pytest.raises(row.raises, match=row.match):
            cls(**parameters)
    else:
        kernel = cls(**parameters)
        sources = [call.pop(name) for name in ("x", "second") if name in call]
        with pytest.raises(row.raises, match=row.match):
            kernel(*sources, **call)
        # The kernel is as it was: without its properties, which may be what is wrong, it computes what a new one does.
        common = {spec["name"] for specs in mpscnn.kernels._COMMON.values() for spec in specs}
        for name in common & parameters.keys():
            setattr(kernel, name, getattr(cls(**{k: v for k, v in parameters.items() if k not in common}), name))
        fresh = cls(**{name: value for name, value in parameters.items() if name not in common})
        good = good_source(kernel)
        if parameters.get("padding") == 6:  # leaves nothing of the usual size
            good = random((1, 20, 20, good.shape[3]))
        many = [good] * (2 if isinstance(kernel, mpscnn.BinaryKernel) else 1)
        np.testing.assert_array_equal(kernel(*many), fresh(*many))
    canary()


def test_every_kernel_has_an_error_row() -> None:
    assert {row.kernel for row in ERRORS} == set(mpscnn.kernels.KERNELS)


def test_rows_differ() -> None:
    texts = [repr(row) for row in ERRORS]
    assert sorted(set(texts)) == sorted(texts)


# ------------------------------------------------------------------------------------------------- names


def test_unknown_kernels() -> None:
    with pytest.raises(KeyError, match=r"there is no kernel \"PoolingMin\""):
        mpscnn.kernel("PoolingMin")
    with pytest.raises(KeyError, match="MTLDevice"):
        mpscnn.kernel("MTLDevice")
    with pytest.raises(NotImplementedError, match=r"MPSCNNYOLOLoss is not implemented yet"):
        mpscnn.kernel("MPSCNNYOLOLoss")
    assert mpscnn.kernel("MPSCNNConvolution") is mpscnn.Convolution


def test_unknown_attributes_are_refused_in_both_directions() -> None:
    kernel = mpscnn.NeuronReLU()
    with pytest.raises(AttributeError, match=r"edgemode"):
        kernel.edgemode = "clamp"
    with pytest.raises(AttributeError, match=r"edgemode"):
        _ = kernel.edgemode
    with pytest.raises(KeyError, match=r'NeuronReLU has no attribute "stride"'):
        kernel._set("stride", 2)


def test_a_wrong_attribute_leaves_the_old_one() -> None:
    kernel = mpscnn.Convolution(random(W), edge_mode="clamp", destination_feature_channel_offset=4)
    with pytest.raises(ValueError, match=r'edge_mode \("wrap"\)'):
        kernel.edge_mode = "wrap"
    with pytest.raises(ValueError, match=r"destination_feature_channel_offset \(5\) is not a multiple of 4"):
        kernel.destination_feature_channel_offset = 5
    with pytest.raises(TypeError, match=r"offset \(\(1, 2\.5\)\) is not \(y, x\)"):
        kernel.offset = (1, 2.5)
    assert (kernel.edge_mode, kernel.destination_feature_channel_offset, kernel.offset) == ("clamp", 4, None)


def test_numbers_of_numpy_are_numbers() -> None:
    x = random(X)
    np.testing.assert_array_equal(mpscnn.NeuronReLU(np.float32(0.5))(x), mpscnn.NeuronReLU(0.5)(x))
    np.testing.assert_array_equal(mpscnn.NeuronReLU(np.float64(2))(x), mpscnn.NeuronReLU(2)(x))
    strided = mpscnn.Convolution(random(W), stride=np.int64(2), padding=(np.int32(1), np.uint8(1)))
    assert strided(x).shape == (1, 3, 4, 8)


def test_neuron_descriptor() -> None:
    with pytest.raises(ValueError, match=r'NeuronDescriptor: type \("selu"\) is not one of "none", "identity"'):
        mpscnn.NeuronDescriptor("selu")
    with pytest.raises(ValueError, match=r'data has 0 values; type is "prelu"'):
        mpscnn.NeuronDescriptor("prelu")
    with pytest.raises(ValueError, match=r'data has 1 values; type is "relu"'):
        mpscnn.NeuronDescriptor("relu", data=[0.5])


def test_a_kernel_that_is_no_neuron_is_no_activation() -> None:
    with pytest.raises(TypeError, match=r"activation \(Convolution\) is not a neuron kernel"):
        mpscnn.Convolution(random(W), activation=mpscnn.Convolution(random(W)))


# ------------------------------------------------------------------------------------------------- arrays


def test_padding_lanes_of_nan_stay_outside() -> None:
    """Between the pixels, beside the rows and in the channels that are not read, there are NaN only."""
    store = np.full((2, 9, 13, 16), np.nan, np.float32)
    x = store[:, 1:8, 2:11, 4:10]
    x[...] = random(x.shape)
    weight, bias = random((5, 6, 3, 3), seed=1), random((5,))
    expected = conv2d(x, weight, bias, padding=1)
    for copy in (None, True, False):
        image = mpscnn.Image.from_array(x, copy=copy)
        assert_close(mpscnn.Convolution(weight, bias, padding=1)(image).numpy(), expected)
    assert_close(mpscnn.Convolution(weight, bias, padding=1)(x), expected)
    assert np.isnan(store).sum() == store.size - x.size


def test_padding_lanes_of_the_result_are_not_written() -> None:
    store = np.full((2, 9, 13, 16), np.nan, np.float32)
    out = store[:, 1:8, 2:11, 4:9]
    x, weight = random((2, 7, 9, 6)), random((5, 6, 3, 3), seed=1)
    assert mpscnn.Convolution(weight, padding=1)(x, out=out) is out
    assert_close(out, conv2d(x, weight, padding=1))
    assert np.isnan(store).sum() == store.size - out.size


def test_channel_offsets_read_no_nan() -> None:
    x = np.full((1, 5, 7, 12), np.nan, np.float32)
    x[..., 4:8] = random((1, 5, 7, 4))
    weight = random(W)
    kernel = mpscnn.Convolution(weight, source_feature_channel_offset=4, source_feature_channel_max_count=4)
    assert_close(kernel(x), conv2d(x[..., 4:8], weight))
    out = np.full((1, 3, 5, 20), np.nan, np.float32)
    kernel.destination_feature_channel_offset = 8
    kernel(x, out=out)
    assert_close(out[..., 8:16], conv2d(x[..., 4:8], weight))
    assert np.isnan(out[..., :8]).all()
    assert np.isnan(out[..., 16:]).all()


@pytest.mark.parametrize("step", [(-1, 1, 1), (1, -1, 1), (1, 1, -1), (-1, -2, -1), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_strides_that_no_image_has_are_copied(step: tuple[int, int, int], dtype: str) -> None:
    base = random((2, 9, 11, 8), dtype)
    x = base[:, :: step[0], :: step[1], :: step[2]]
    expected = mpscnn.NeuronReLU()(np.ascontiguousarray(x))
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(x), expected)
    if min(step) < 0:
        with pytest.raises(BufferError, match=r"cannot be shared: its (stride -\d+ along|channels are not adjacent)"):
            mpscnn.Image.from_array(x, copy=False)


def test_results_into_strides_that_no_image_has() -> None:
    x, store = random((2, 5, 7, 4)), np.full((2, 10, 7, 8), np.nan, np.float32)
    out = store[::-1, ::-2, ::-1, ::2]
    mpscnn.NeuronReLU()(x, out=out)
    np.testing.assert_array_equal(out, np.maximum(x, 0))
    assert np.isnan(store).sum() == store.size - out.size


def test_read_only_out() -> None:
    x = random(X)
    kernel = mpscnn.NeuronReLU()
    out = np.zeros(X, np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match=r"out is read-only"):
        kernel(x, out=out)
    with pytest.raises(ValueError, match=r"out is read-only"):
        kernel(x, out=np.broadcast_to(np.float32(0), X))
    image = mpscnn.Image.from_array(out, copy=False)
    with pytest.raises(ValueError, match=r"out is read-only"):
        kernel(mpscnn.Image.from_array(x), out=image)
    with pytest.raises(ValueError, match=r"read-only"):
        mpscnn.Image.from_array(x).numpy(out=out)
    with pytest.raises(ValueError, match=r"read-only"):
        image.write(x)
    assert not out.any()


def overlapping() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    whole = random((3, 6, 7, 16))
    return {
        "same": (whole[:1, :5, :, :4], whole[:1, :5, :, :4]),
        "rows": (whole[:1, :5, :, :4], whole[:1, 1:, :, :4]),
        "images": (whole[:2, :, :, :4], whole[1:, :, :, :4]),
        "channels": (whole[..., :8], whole[..., 4:12]),
    }


@pytest.mark.parametrize("name", overlapping())
def test_out_that_aliases_x(name: str) -> None:
    x, out = overlapping()[name]
    before = x.copy()
    with pytest.raises(ValueError, match=r"share memory"):
        mpscnn.NeuronReLU()(x, out=out)
    np.testing.assert_array_equal(x, before)


def test_out_beside_x_in_the_same_array_is_no_alias() -> None:
    whole = random((1, 6, 7, 16))
    expected = np.maximum(whole[..., :4], 0)
    mpscnn.NeuronReLU()(whole[..., :4], out=whole[..., 8:12])
    np.testing.assert_array_equal(whole[..., 8:12], expected)


def test_out_is_the_source_image() -> None:
    image = mpscnn.Image.from_array(random(X))
    with pytest.raises(ValueError, match=r"share memory"):
        mpscnn.NeuronReLU()(image, out=image)


# ------------------------------------------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("shape", "raises", "match"),
    [
        ((1, 0, 2, 3), ValueError, r"shape \(1, 0, 2, 3\) has an extent \(0\) less than the minimum \(1\)"),
        ((1, 2, -2, 3), ValueError, r"shape \(1, 2, -2, 3\) has an extent \(-2\) less than the minimum \(1\)"),
        ((2, 3, 4), ValueError, r"len\(shape\) \(3\) is not 4"),
        ((1.0, 2, 3, 4), TypeError, r"shape.*float"),
        ((True, 2, 3, 4), TypeError, r"shape.*bool"),
        (("1", 2, 3, 4), TypeError, r"shape.*str"),
        (4, ValueError, r"len\(shape\) \(1\) is not 4"),
        ((1, 2**80, 3, 4), (ValueError, MemoryError, OverflowError), r"1208925819614629174706176|64 bits"),
        ((2**20,) * 4, MemoryError, r"shape \(1048576, .*needs more bytes than can be counted"),
        ((2**31, 2**31, 2, 1), MemoryError, r"needs more bytes than can be counted|needs \d+ bytes, more than"),
        (
            (1, 16385, 1, 4),
            ValueError,
            r"extent \(16385\) along its height or width greater than the maximum \(16384\)",
        ),
        (
            (1, 1, 16385, 4),
            ValueError,
            r"extent \(16385\) along its height or width greater than the maximum \(16384\)",
        ),
        ((1, 2**20, 2**20, 4), MemoryError, r"needs 17592186044416 bytes, more than the device's .* \(\d+\)"),
    ],
)
def test_image_shapes(shape: Any, raises: Any, match: str) -> None:
    with pytest.raises(raises, match=match):
        mpscnn.Image(shape)
    with pytest.raises(raises, match=match):
        mpscnn.Image.temporary(mpscnn.CommandBuffer(), shape)
    canary()


@pytest.mark.parametrize("dtype", ["int32", "float64", "int64"])
def test_image_dtypes(dtype: str) -> None:
    with pytest.raises(TypeError, match=rf"Image: dtype \({dtype}\) is not float32, float16, uint8 or uint16"):
        mpscnn.Image((1, 2, 3, 4), dtype)
    with pytest.raises(TypeError, match=rf"dtype \({dtype}\) is not float32, float16, uint8 or uint16"):
        mpscnn.Image.from_array(np.zeros((1, 2, 3, 4), dtype))


def test_an_array_larger_than_memory_is_refused_before_it_is_touched() -> None:
    """A broadcast array claims any size without having it."""
    huge = np.broadcast_to(np.float32(1), (1, 2**20, 2**20, 4))
    for call in (mpscnn.NeuronReLU(), mpscnn.Image.from_array, mpscnn.Convolution(random(W))):
        with pytest.raises(MemoryError, match=r"\(1, 1048576, 1048576, 4\) of float32 needs 17592186044416 bytes"):
            call(huge)
    beyond = np.broadcast_to(np.float32(1), (2**15, 2**15, 2**15, 2**15))
    with pytest.raises(MemoryError, match=r"more|counted"):
        mpscnn.Image.from_array(beyond)
    canary()


def test_a_result_larger_than_memory() -> None:
    """The source fits; what the kernel makes of it does not."""
    kernel = mpscnn.ConvolutionTranspose(random((4, 4, 1, 1)), stride=60000)
    with pytest.raises(MemoryError, match=r"needs \d+ bytes, more than"):
        kernel(random((1, 40, 40, 4)))
    wide = mpscnn.Convolution(random((4, 4, 1, 1)), padding=2**20)
    with pytest.raises(MemoryError, match=r"needs \d+ bytes, more than"):
        wide(random((1, 4, 4, 4)))
    assert kernel.result_shape((1, 1, 1, 4)) == (1, 1, 1, 4)
    canary()


@pytest.mark.parametrize("extent", [2**40, 2**62])
def test_extents_of_results_are_checked_arithmetic(extent: int) -> None:
    kernels = [
        mpscnn.ConvolutionTranspose(random((4, 4, 3, 3)), stride=65535),
        mpscnn.Convolution(random((16, 4, 3, 3)), sub_pixel_scale_factor=4, padding=1),
        mpscnn.Convolution(random((16, 4, 3, 3)), sub_pixel_scale_factor=4, padding="same"),
        mpscnn.NeuronReLU(),
    ]
    for kernel in kernels:
        with pytest.raises((MemoryError, ValueError), match=r"\d"):
            kernel.result_shape((extent, extent, extent, 4))
    canary()


def test_buffers_larger_than_memory() -> None:
    limit = mpscnn.Device().max_buffer_bytes
    with pytest.raises(MemoryError, match=rf"length \({limit + 1}\) is greater than .* \({limit}\)"):
        mpscnn.Buffer(limit + 1)
    with pytest.raises(MemoryError, match=r"1180591620717411303424"):
        mpscnn.Buffer(2**70)
    with pytest.raises(MemoryError, match=r"shape \(1099511627776, 1048576\)"):
        mpscnn.empty((2**40, 2**20))
    with pytest.raises(MemoryError, match=r"more than 2\^63 bytes"):
        mpscnn.empty((2**40, 2**40))
    canary()


@pytest.mark.parametrize(
    ("source", "raises", "match"),
    [
        (0, ValueError, r"length \(0\) is less than the minimum \(1\)"),
        (-5, ValueError, r"length \(-5\) is less than the minimum \(1\)"),
        (True, TypeError, r"source \(True\) is not"),
        (1.5, TypeError, r"source \(float\) is not an array"),
        ("16", TypeError, r"source \(str\) is not an array"),
        (
            np.zeros(1001, np.uint8),
            BufferError,
            r"length \(1001 bytes\) is not a positive multiple of the page size \(\d+\)",
        ),
        (np.zeros(0, np.uint8), BufferError, r"length \(0 bytes\)"),
    ],
    ids=repr,
)
def test_buffer_sources(source: Any, raises: type[Exception], match: str) -> None:
    with pytest.raises(raises, match=match):
        mpscnn.Buffer(source)


def test_reading_before_the_command_buffer_has_completed() -> None:
    x = random(X)
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x))
    readers: list[Callable[[], Any]] = [
        y.numpy,
        lambda: np.asarray(y),
        lambda: np.from_dlpack(y),
        lambda: y.numpy(out=np.empty(X, np.float32)),
        lambda: y.numpy(copy=True),
        lambda: y.write(x),
    ]
    for read in readers:
        with pytest.raises(
            RuntimeError, match=r"has not completed \(status not_enqueued\); commit\(\) and wait\(\) come first"
        ):
            read()
    with held_queue():
        commands.commit()
        for read in readers:
            with pytest.raises(RuntimeError, match=r"has not completed \(status (committed|scheduled|enqueued)\)"):
                read()
    commands.wait()
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))


def test_reading_around_a_channel_view_before_completion() -> None:
    """Views of one image know of each other's writers."""
    whole = mpscnn.Image((1, 5, 7, 8))
    whole.write(random((1, 5, 7, 8)))
    part, x = whole.channels(4, 4), random(X)
    commands = mpscnn.CommandBuffer()
    mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x), out=part)
    for image in (part, whole):
        with pytest.raises(RuntimeError, match=r"has not completed"):
            image.numpy()
    commands.commit()
    commands.wait()
    np.testing.assert_array_equal(whole.numpy()[..., 4:], np.maximum(x, 0))


def test_reading_what_a_dropped_command_buffer_would_have_written() -> None:
    x = random(X)
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x))
    del commands
    with pytest.raises(RuntimeError, match=r"command buffer that writes it"):
        y.numpy()


def test_temporary_image_after_its_last_read() -> None:
    commands = mpscnn.CommandBuffer()
    relu = mpscnn.NeuronReLU()
    x = random(X)
    middle = relu.encode(commands, mpscnn.Image.from_array(x), temporary=True)
    assert middle.read_count == 1
    y = relu.encode(commands, middle)
    assert middle.read_count == 0
    with pytest.raises(RuntimeError, match=r"temporary image whose read_count is 0"):
        relu.encode(commands, middle)
    with pytest.raises(RuntimeError, match=r"out is a temporary image whose read_count is 0"):
        relu.encode(commands, mpscnn.Image.from_array(x), out=middle)
    with pytest.raises(RuntimeError, match=r"read_count is 0"):
        middle.read_count = 3
    with pytest.raises(RuntimeError, match=r"temporary image cannot be read by the CPU"):
        middle.numpy()
    commands.commit()
    commands.wait()
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))


def test_temporary_image_that_nobody_reads() -> None:
    commands = mpscnn.CommandBuffer()
    middle = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(random(X)), temporary=True)
    with pytest.raises(RuntimeError, match=r"MPSTemporaryImage.* readCount 1 when .* must be 0"):
        commands.commit()
    middle.read_count = 0
    commands.commit()
    commands.wait()


def test_read_counts() -> None:
    image = mpscnn.Image(X)
    with pytest.raises(RuntimeError, match=r"only a temporary image has a read_count"):
        image.read_count = 1
    commands = mpscnn.CommandBuffer()
    temporary = mpscnn.Image.temporary(commands, X)
    with pytest.raises(ValueError, match=r"read_count \(-1\) is less than the minimum \(0\)"):
        temporary.read_count = -1
    temporary.read_count = 0
    commands.commit()
    commands.wait()


def test_temporary_image_of_another_command_buffer() -> None:
    first, second = mpscnn.CommandBuffer(), mpscnn.CommandBuffer()
    x = random(X)
    middle = mpscnn.NeuronReLU().encode(first, mpscnn.Image.from_array(x), temporary=True)
    with pytest.raises(RuntimeError, match=r"command buffer"):
        mpscnn.NeuronReLU().encode(second, middle)
    y = mpscnn.NeuronReLU().encode(first, middle)
    for commands in (first, second):
        commands.commit()
        commands.wait()
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))


# ------------------------------------------------------------------------------------------ command buffers


def test_committing_twice() -> None:
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(random(X)))
    commands.commit()
    with pytest.raises(RuntimeError, match=r"commit\(\) was called already; its status is \w+"):
        commands.commit()
    commands.wait()
    commands.wait()
    with pytest.raises(RuntimeError, match=r"commit\(\) was called already; its status is completed"):
        commands.commit()
    assert (y.numpy() >= 0).all()


def test_waiting_before_commit() -> None:
    commands = mpscnn.CommandBuffer()
    with pytest.raises(RuntimeError, match=r"wait\(\) was called before commit\(\)"):
        commands.wait()
    commands.commit()
    commands.wait()


def test_encoding_to_a_committed_command_buffer() -> None:
    commands = mpscnn.CommandBuffer()
    commands.commit()
    x = mpscnn.Image.from_array(random(X))
    match = r"committed already; its status is \w+"
    with pytest.raises(RuntimeError, match=match):
        mpscnn.NeuronReLU().encode(commands, x)
    with pytest.raises(RuntimeError, match=r"committed already"):
        mpscnn.NeuronReLU().encode(commands, x, temporary=True)
    with pytest.raises(RuntimeError, match=r"committed already"):
        mpscnn.Image.temporary(commands, X)
    with pytest.raises(RuntimeError, match=r"handler was added after commit\(\)"):
        commands.add_completed_handler(lambda: None)
    commands.wait()


def test_two_threads_committing_one_command_buffer() -> None:
    """One of them commits; the others are told."""
    for _ in range(20):
        commands = mpscnn.CommandBuffer()
        outcomes: list[str] = []
        start = threading.Barrier(4)

        def commit(commands: Any = commands, outcomes: Any = outcomes, start: Any = start) -> None:
            start.wait()
            try:
                commands.commit()
                outcomes.append("committed")
            except RuntimeError as error:
                outcomes.append(str(error))

        threads = [threading.Thread(target=commit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        commands.wait()
        assert outcomes.count("committed") == 1
        assert len(outcomes) == 4


def test_handlers_that_cannot_be_called() -> None:
    with pytest.raises(TypeError, match=r"handler \(int\) is not callable"):
        mpscnn.CommandBuffer().add_completed_handler(3)


def test_arguments_of_the_wrong_class() -> None:
    kernel, commands, x = mpscnn.NeuronReLU(), mpscnn.CommandBuffer(), random(X)
    image = mpscnn.Image.from_array(x)
    for arguments in ((None, image), (commands, x), (commands, None), (image, commands)):
        with pytest.raises(TypeError):
            kernel.encode(*arguments)
    with pytest.raises(ValueError, match=r"temporary \(True\) was given together with out"):
        kernel.encode(commands, image, out=mpscnn.Image(X), temporary=True)
    with pytest.raises(ValueError, match=r"dtype was given together with out"):
        kernel.encode(commands, image, out=mpscnn.Image(X), dtype="float16")
    with pytest.raises(TypeError, match=r"x is an Image; out is not"):
        kernel(image, out=np.zeros(X, np.float32))
    for layout in ("HWC", "nhwc"):
        with pytest.raises(ValueError, match=rf'layout \("{layout}"\) is not "NHWC" or "NCHW"'):
            image.numpy(layout)


def test_writing_what_does_not_fit() -> None:
    image = mpscnn.Image(X)
    with pytest.raises(ValueError, match=r"Image\.write: shape \(1, 5, 7, 3\) is not the image's \(1, 5, 7, 4\)"):
        image.write(random((1, 5, 7, 3)))
    with pytest.raises(TypeError, match=r"Image\.write: dtype \(float16\) is not the image's \(float32\)"):
        image.write(random(X, "float16"))
    with pytest.raises(ValueError, match=r"Image\.numpy: shape \(1, 5, 7, 3\) is not the image's"):
        image.numpy(out=np.zeros((1, 5, 7, 3), np.float32))
    with pytest.raises(TypeError, match=r"Image\.numpy: dtype \(float16\) is not the image's"):
        image.numpy(out=np.zeros(X, np.float16))
    with pytest.raises(ValueError, match=r"ndim \(3\) is not 4"):
        image.numpy(out=np.zeros(X[1:], np.float32))


@pytest.mark.parametrize(
    ("first", "count", "match"),
    [
        (2, 4, r"first \(2\) is not a multiple of 4 in \[0, 12\)"),
        (-4, 4, r"first \(-4\) is not a multiple of 4"),
        (12, 4, r"first \(12\) is not a multiple of 4 in \[0, 12\)"),
        (4, 0, r"count \(0\) is not a multiple of 4 in \[1, 8\]"),
        (4, 3, r"count \(3\) is not a multiple of 4 in \[1, 8\]"),
        (4, 12, r"count \(12\) is not a multiple of 4 in \[1, 8\]"),
        (4, 2**63 - 4, r"count \(9223372036854775804\) is not a multiple of 4"),
    ],
)
def test_channel_ranges(first: int, count: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        mpscnn.Image((1, 2, 3, 12)).channels(first, count)


def test_devices_must_agree() -> None:
    devices = mpscnn.Device.all()
    if len(devices) < 2:
        pytest.skip("there is only one device")
    default, other = devices[0], devices[1]
    x = random(X)
    with pytest.raises(
        ValueError, match=r"NeuronReLU: the device \(.+\) is not the device of the command buffer \(.+\)"
    ):
        mpscnn.NeuronReLU(device=other).encode(mpscnn.CommandBuffer(default), mpscnn.Image.from_array(x))
    with pytest.raises(ValueError, match=r"x: the device \(.+\) is not the device of the command buffer"):
        mpscnn.NeuronReLU(device=other).encode(mpscnn.CommandBuffer(other), mpscnn.Image.from_array(x))
    with pytest.raises(ValueError, match=r"out: the device \(.+\) is not the device of the command buffer"):
        mpscnn.NeuronReLU().encode(
            mpscnn.CommandBuffer(), mpscnn.Image.from_array(x), out=mpscnn.Image(X, device=other)
        )
    with pytest.raises(ValueError, match=r"the device \(.+\) is not the device"):
        mpscnn.NeuronReLU()(mpscnn.Image.from_array(x, device=other))
    mpscnn.NeuronReLU(device=other)(x)
    canary()


# ------------------------------------------------------------------------------------------ data sources


def descriptor(**options: Any) -> mpscnn.ConvolutionDescriptor:
    return mpscnn.ConvolutionDescriptor(3, 4, 8, **options)


OHWI = (8, 3, 3, 4)


class UnlikelyError(Exception):
    """Nothing else raises this."""


@pytest.mark.parametrize("method", ["load", "purge"])
@pytest.mark.parametrize(
    "error", [UnlikelyError("the disk is gone"), KeyboardInterrupt(), FileNotFoundError(2, "No such file")], ids=repr
)
def test_a_data_source_whose_method_raises(method: str, error: BaseException) -> None:
    class Broken(Source):
        pass

    def fail(self: Any) -> None:
        raise error

    setattr(Broken, method, fail)
    with pytest.raises(type(error)) as caught:
        mpscnn.Convolution(Broken(descriptor(), random(OHWI)))
    assert caught.value is error, "the exception itself comes through"
    assert any(entry.name == "fail" for entry in caught.traceback), "and so does where it was raised"
    canary()


MEMBERS = ("descriptor", "weights", "bias", "ranges", "lookup_table", "label", "kernel_dtype")


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("kind", ["method", "property"])
def test_a_data_source_whose_member_raises(member: str, kind: str) -> None:
    error = UnlikelyError(member)

    def fail(self: Any) -> None:
        raise error

    class Broken:
        load_calls = purge_calls = 0

        def load(self) -> bool:
            self.load_calls += 1
            return True

        def purge(self) -> None:
            self.purge_calls += 1

    for name, value in (("descriptor", descriptor()), ("weights", random(OHWI))):
        setattr(Broken, name, value)
    setattr(Broken, member, fail if kind == "method" else property(fail))
    source = Broken()
    with pytest.raises(UnlikelyError) as caught:
        mpscnn.Convolution(source)
    assert caught.value is error
    assert source.load_calls == source.purge_calls, "loads and purges are balanced"
    canary()


def test_a_data_source_whose_load_declines() -> None:
    class Declines(Source):
        def load(self) -> bool:
            super().load()
            return False

    source = Declines(descriptor(), random(OHWI))
    with pytest.raises(RuntimeError, match=r"data source: load\(\) returned False"):
        mpscnn.Convolution(source)
    assert source.calls == ["load"], "what has not been loaded is not purged"


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_data_source_that_fails_later(fails_at: int) -> None:
    """However often MPS loads: the failure of any load is the caller's to see, and no load stays without its purge."""

    class Fails(Source):
        def load(self) -> bool:
            super().load()
            if self.calls.count("load") == fails_at:
                raise UnlikelyError(f"load {fails_at}")
            return True

    source = Fails(descriptor(), random(OHWI))
    try:
        mpscnn.Convolution(source)
        raised = False
    except UnlikelyError:
        raised = True
    loads = source.calls.count("load")
    assert raised == (loads >= fails_at)
    assert source.calls.count("purge") == loads - raised


def test_a_data_source_whose_load_returns_something_else() -> None:
    class Strange(Source):
        def load(self) -> Any:
            return "yes"

    with pytest.raises(TypeError, match=r"load\(\) returned 'yes', which is not True, False or None"):
        mpscnn.Convolution(Strange(descriptor(), random(OHWI)))


def test_load_that_returns_none_has_loaded() -> None:
    class Quiet(Source):
        def load(self) -> None:  # type: ignore[override]
            super().load()

    x, weight = random(X), random(W)
    y = mpscnn.Convolution(Quiet(descriptor(), mpscnn.reorder(weight)))(x)
    assert_close(y, conv2d(x, weight))


@pytest.mark.parametrize(
    ("members", "raises", "match"),
    [
        ({"weights": None}, ValueError, r"data source: weights is None"),
        ({"weights": "conv1.bin"}, TypeError, r"weights \(str\) is not an array"),
        (
            {"weights": Array((8, 3, 3, 3))},
            ValueError,
            r"weights of shape \(8, 3, 3, 3\) have 216 elements; .* asks for 288 \(OHWI",
        ),
        (
            {"weights": Array((9, 3, 3, 4))},
            ValueError,
            r"weights of shape \(9, 3, 3, 4\) have 324 elements; .* asks for 288",
        ),
        (
            {"weights": Array(OHWI, "float64")},
            TypeError,
            r"weights\.dtype \(float64\) is not float32, float16 or uint8",
        ),
        ({"weights": Array(OHWI, "uint8")}, ValueError, r"uint8 weights need either ranges or lookup_table"),
        (
            {"weights": Array(OHWI, "uint8"), "ranges": Array((4, 2))},
            ValueError,
            r"ranges\.shape \(4, 2\) is not a contiguous \(8, 2\)",
        ),
        (
            {"weights": Array(OHWI, "uint8"), "lookup_table": Array((16,))},
            ValueError,
            r"lookup_table\.shape \(16,\) is not .*\(256,\)",
        ),
        ({"bias": Array((4,))}, ValueError, r"data source: bias\.shape \(4,\) is not a contiguous \(8,\)"),
        ({"bias": Array((8,), "float16")}, TypeError, r"data source: bias\.dtype \(float16\) is not float32"),
        ({"bias": 0.0}, TypeError, r"bias \(float\) is not an array"),
        ({"descriptor": None}, TypeError, r"descriptor \(NoneType\) is not a ConvolutionDescriptor"),
        ({"descriptor": (3, 4, 8)}, TypeError, r"descriptor \(tuple\) is not a ConvolutionDescriptor"),
        ({"kernel_dtype": "int32"}, (TypeError, ValueError), r"kernel_dtype \(int32\) is not"),
        ({"kernel_dtype": "half"}, None, ""),
    ],
    ids=str,
)
def test_what_a_data_source_returns(members: dict[str, Any], raises: Any, match: str) -> None:
    made = {name: value.make() if isinstance(value, Array) else value for name, value in members.items()}
    source = Source(descriptor(), random(OHWI))
    for name, value in made.items():
        setattr(source, name, value)
    if raises is None:
        mpscnn.Convolution(source)
    else:
        with pytest.raises(raises, match=match):
            mpscnn.Convolution(source)
    assert source.calls.count("load") == source.calls.count("purge")
    canary()


def test_weights_of_a_data_source_that_are_not_contiguous() -> None:
    with pytest.raises(ValueError, match=r"weights are not C-contiguous \(strides \("):
        mpscnn.Convolution(Source(descriptor(), random((8, 3, 3, 8))[..., ::2]))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"groups": 3}, r"groups \(3\) does not divide"),
        ({"groups": 0}, r"groups \(0\) is less than the minimum \(1\)"),
        ({"stride": 0}, r"stride height \(0\) is less than the minimum \(1\)"),
        ({"dilation": (1, 0)}, r"dilation width \(0\) is less than the minimum \(1\)"),
        ({"depthwise": True}, r"depth-wise convolution has as many output channels \(8\) as input channels \(4\)"),
        (
            {"sub_pixel_scale_factor": 3},
            r"out_channels \(8\) is not a multiple of sub_pixel_scale_factor squared \(9\)",
        ),
        ({"sub_pixel_scale_factor": -2}, r"sub_pixel_scale_factor \(-2\) is less than the minimum \(1\)"),
        ({"sub_pixel_scale_factor": 2**32}, r"sub_pixel_scale_factor \(4294967296\)"),
    ],
    ids=str,
)
def test_descriptors(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        mpscnn.Convolution(Source(descriptor(**options), random(OHWI)))
    canary()


@pytest.mark.parametrize("channels", [(0, 8), (4, 0), (-4, 8), (2**62, 2**62)], ids=str)
def test_descriptors_with_impossible_channels(channels: tuple[int, int]) -> None:
    made = mpscnn.ConvolutionDescriptor(3, *channels)
    with pytest.raises((ValueError, MemoryError), match=r"channels \(|shape \("):
        mpscnn.Convolution(Source(made, random(OHWI)))


def test_descriptor_arguments() -> None:
    for kernel_size in ((3,), "3", 1.5, (1.5, 2), True):
        with pytest.raises(TypeError, match=r"kernel_size"):
            mpscnn.ConvolutionDescriptor(kernel_size, 4, 8)
    with pytest.raises(ValueError, match=r"mean, variance, gamma and beta have 8, 8, 7 and 8 values"):
        mpscnn.BatchNorm([0] * 8, [1] * 8, [1] * 7, [0] * 8)
    with pytest.raises(ValueError, match=r"batch_norm has 7 values; out_channels is 8"):
        descriptor(batch_norm=mpscnn.BatchNorm(*[[1] * 7] * 4))


@pytest.mark.parametrize(
    "parameter",
    [
        {"bias": np.zeros(8, np.float32)},
        {"stride": 2},
        {"dilation": 2},
        {"groups": 2},
        {"activation": "relu"},
        {"sub_pixel_scale_factor": 2},
        {"kernel_dtype": "float16"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_a_data_source_provides_is_not_given_twice(parameter: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(parameter))}.* was given together with a data source"):
        mpscnn.Convolution(Source(descriptor(), random(OHWI)), **parameter)


def test_a_failed_reload_leaves_the_old_weights() -> None:
    weight, x = random(W), random(X)
    source = Source(descriptor(), mpscnn.reorder(weight))
    kernel = mpscnn.Convolution(source)
    source.weights = random((8, 3, 3, 5))
    with pytest.raises(ValueError, match=r"weights of shape \(8, 3, 3, 5\) have 360 elements"):
        kernel.reload()
    source.weights = None
    with pytest.raises(ValueError, match=r"weights is None"):
        kernel.reload()
    source.weights, source.descriptor = random((4, 3, 3, 4)), mpscnn.ConvolutionDescriptor(3, 4, 4)
    with pytest.raises((ValueError, RuntimeError), match=r"4 x 3 x 3 x 4|out_channels"):
        kernel.reload()
    assert source.calls.count("load") == source.calls.count("purge")
    assert_close(kernel(x), conv2d(x, weight))
    with pytest.raises(RuntimeError, match=r"no data source to reload"):
        mpscnn.NeuronReLU().reload()


# ------------------------------------------------------------------------------------------ raw files


@pytest.mark.parametrize("extra", [-4, -1, 1, 3, 4, 1152], ids=lambda extra: f"{extra:+d} bytes")
def test_raw_files_of_the_wrong_length(tmp_path: Path, extra: int) -> None:
    path = tmp_path / "conv1.bin"
    path.write_bytes((bytes(4 * 8 * 4 * 3 * 3) * 2)[: 1152 + extra])
    with pytest.raises(
        ValueError,
        match=rf'weights file "conv1\.bin" has {1152 + extra} bytes; shape \(8, 4, 3, 3\) of float32 needs 1152',
    ):
        mpscnn.map_weights(path, W)


def test_raw_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.bin"):
        mpscnn.map_weights(tmp_path / "missing.bin", W)
    (tmp_path / "empty.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has 0 bytes; .* needs 1152"):
        mpscnn.map_weights(tmp_path / "empty.bin", W)
    with pytest.raises(ValueError, match=r"shape \(8, 0, 3, 3\) has an extent less than the minimum \(1\)"):
        mpscnn.map_weights(tmp_path / "empty.bin", (8, 0, 3, 3))


# ------------------------------------------------------------------------------------------ the process


@counts_memory
def test_a_storm_of_errors_leaks_nothing_and_ends_nothing() -> None:
    """Every row in turn, many times, in a process that then still computes and ends by itself."""
    run_python(
        """
        import gc, sys
        from pathlib import Path
        import numpy as np, mpscnn
        weight = np.ones((8, 4, 3, 3), np.float32)
        x = np.ones((1, 5, 7, 4), np.float32)
        conv = mpscnn.Convolution(weight)
        def rss():
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 if sys.platform == "linux" else 0
        def storm(times):
            for _ in range(times):
                for wrong in (lambda: mpscnn.Convolution(weight, stride=0),
                              lambda: mpscnn.Convolution(weight, groups=3),
                              lambda: conv(x[..., :3]), lambda: conv(x[:, :2]), lambda: conv(x, out=x),
                              lambda: mpscnn.Image((2**20,) * 4), lambda: mpscnn.CommandBuffer().wait()):
                    try:
                        wrong()
                    except (ValueError, MemoryError, RuntimeError):
                        continue
                    raise SystemExit("no error")
        storm(300)
        gc.collect()
        before = rss()
        storm(3000)
        gc.collect()
        assert rss() - before < 4 << 20, rss() - before
        assert conv(x).sum() == 3 * 5 * 8 * 36
        """
    )
