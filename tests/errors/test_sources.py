# SPDX-License-Identifier: Apache-2.0
"""Kernels of two sources that cannot be made or called."""

from __future__ import annotations

import pytest

import mpscnn

from . import Array, Error, X, check_row

ROWS = [
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
    Error("Compare", raises=TypeError, match=r"Compare: missing a required argument: 'comparison'"),
    Error(
        "Compare",
        comparison="same",
        raises=ValueError,
        match=r'Compare: comparison \("same"\) is not one of "equal", "not_equal", "less", "less_or_equal"',
    ),
    Error(
        "Compare",
        comparison="equal",
        threshold=-0.5,
        raises=ValueError,
        match=r"Compare: threshold \(-0.5\) is less than the minimum \(0\)",
    ),
    Error("Compare", comparison="less", bias=1.0, raises=TypeError, match=r"unexpected keyword argument 'bias'"),
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


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)
