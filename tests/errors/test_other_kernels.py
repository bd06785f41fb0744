# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions, fully connected kernels and neurons that cannot be made or called."""

from __future__ import annotations

import pytest

from . import Array, Error, X, check_row

ROWS = [
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
    Error("NeuronLinear", a=float("nan"), raises=ValueError, match=r"NeuronLinear: a \(nan\) is not a number; give"),
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
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
