# SPDX-License-Identifier: Apache-2.0
"""Gradient kernels that cannot be made or called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpscnn

from . import BY_NAME, Array, Error, X, check_row

ONES = np.ones(4, np.float32)
# Parameters of each forward kernel, and the shape of its result for X.
MADE: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "Add": ({}, X),
    "Convolution": ({"weight": (8, 4, 3, 3)}, (1, 3, 5, 8)),
    "ConvolutionTranspose": ({"weight": (4, 8, 3, 3)}, (1, 7, 9, 8)),
    "CrossChannelNormalization": ({}, X),
    "DilatedPoolingMax": ({"kernel_size": 3, "stride": 1, "dilation": 2}, (1, 1, 3, 4)),
    "Dropout": ({}, X),
    "FullyConnected": ({"weight": (8, 140), "feature_map": (4, 5, 7)}, (1, 1, 1, 8)),
    "GroupNormalization": ({"gamma": ONES, "groups": 2}, X),
    "InstanceNormalization": ({"gamma": ONES}, X),
    "LocalContrastNormalization": ({"kernel_size": 3}, X),
    "LogSoftMax": ({}, X),
    "Multiply": ({}, X),
    "Pad": ({"padding": 1}, (1, 7, 9, 4)),
    "PoolingAverage": ({"kernel_size": 3, "stride": 1}, (1, 3, 5, 4)),
    "PoolingL2Norm": ({"kernel_size": 3, "stride": 1}, (1, 3, 5, 4)),
    "PoolingMax": ({"kernel_size": 3, "stride": 1}, (1, 3, 5, 4)),
    "Reshape": ({"shape": (2, -1, 1)}, (1, 2, 70, 1)),
    "SoftMax": ({}, X),
    "SpatialNormalization": ({"kernel_size": 3}, X),
    "Subtract": ({}, X),
    "UpsamplingBilinear": ({"scale_factor": 2}, (1, 10, 14, 4)),
    "UpsamplingNearest": ({"scale_factor": 2}, (1, 10, 14, 4)),
}
NEED_STATE = ("Add", "Subtract", "Multiply", "Dropout", "InstanceNormalization", "GroupNormalization")
NEED_NOTHING = ("Add", "CrossChannelNormalization", "Dropout", "LogSoftMax", "Multiply", "Pad", "SoftMax", "Subtract")


def _of_forward(forward: str) -> list[Error]:
    """Return the errors that all forward kernels have in common."""
    made, y = MADE[forward]
    name = f"{forward}Gradient"
    second = BY_NAME[name]["sources"][1]
    seen = y if second == "y" else X
    n, h, w, c = y
    less, shorter = (n, h - 1, w, c) if h > 1 else (n + 1, h, w, c), (*seen[:2], seen[2] - 1, seen[3])
    rows = [
        Error(
            name,
            **made,
            encoded=X,
            x=less,
            second=seen,
            raises=ValueError,
            match=rf"{name}: grad_y\.shape \({less[0]}, {less[1]}, .*\) is not that of the result of the forward enc",
        ),
        Error(
            name,
            **made,
            encoded=X,
            x=y,
            second=shorter,
            raises=ValueError,
            match=rf"{name}: {second}\.shape .* is not what the forward encode had \({seen[0]}, {seen[1]}, ",
        ),
        Error(name, **made, x=y, raises=TypeError, match=rf"{name}: the number of sources \(1\) is not 2 \(grad_y, "),
        Error(
            name, **made, encoded=X, x=Array(y, "int32"), second=seen, raises=TypeError, match=r"dtype \(int32\) is not"
        ),
        Error(
            name, **made, encoded=X, x=y, second=Array(seen, "float64"), raises=TypeError, match=r"dtype \(float64\) is"
        ),
        Error(
            name, **made, encoded=X, x=y[1:], second=seen, raises=ValueError, match=rf"{name}: grad_y\.ndim \(3\) is"
        ),
        Error(
            name,
            **made,
            encoded=X,
            x=y,
            second=seen,
            out=(1, 5, 7, 2),
            raises=ValueError,
            match=rf"{name}: out has 2 channels; .* need 4",
        ),
        Error(
            name,
            **made,
            encoded=X,
            x=y,
            second=seen,
            out=(1, 4, 7, 4),
            raises=ValueError,
            match=rf"{name}: out\.shape \(1, 4, 7, 4\) is not the result's \(1, 5, 7, 4\)",
        ),
        Error(
            name, **made, nonsense=1, raises=TypeError, match=rf"{name}: got an unexpected keyword argument 'nonsense'"
        ),
        Error(
            name,
            **made,
            clip_rect=((0, 0, 0), (6, 7, 1)),
            encoded=X,
            x=y,
            second=seen,
            out=X,
            raises=ValueError,
            match=rf"{name}: clip_rect reaches 6 along the height of out \(5\)",
        ),
    ]
    if forward in NEED_STATE:
        rows.append(
            Error(name, **made, x=y, second=seen, raises=TypeError, match=rf"{name}: state is missing: the forwa")
        )
    else:
        rows.append(
            Error(
                name,
                **made,
                x=less if forward != "FullyConnected" else (1, 1, 1, 7),
                second=seen,
                raises=ValueError,
                match=rf"{name}: grad_y\.shape .* is not that of the forward kernel's result",
            )
        )
    if forward not in NEED_NOTHING:
        required = next(iter(made))
        rows.append(Error(name, raises=TypeError, match=rf"{name}: missing a required argument: '{required}'"))
    return rows


ROWS = [
    *[error for forward in MADE for error in _of_forward(forward)],
    # The same errors as for forward kernels.
    *[
        Error(
            f"{forward}Gradient", kernel_size=0, raises=ValueError, match=r"kernel_size \(0.*\) is less than the minim"
        )
        for forward in ("DilatedPoolingMax", "PoolingAverage", "PoolingL2Norm", "PoolingMax", "SpatialNormalization")
    ],
    *[
        Error(
            f"Upsampling{kind}Gradient", scale_factor=0, raises=ValueError, match=r"scale_factor \(0.*\) is less than"
        )
        for kind in ("Bilinear", "Nearest")
    ],
    Error(
        "DropoutGradient", keep_probability=1.5, raises=ValueError, match=r"\(1\.5\) is greater than the maximum \(1\)"
    ),
    Error("GroupNormalizationGradient", gamma=(4,), groups=3, raises=ValueError, match=r"groups \(3\) does not divide"),
    Error("InstanceNormalizationGradient", gamma=(2, 2), raises=ValueError, match=r"gamma.ndim \(2\) is not 1"),
    Error(
        "ConvolutionGradient",
        weight=Array((8, 4, 3, 3), "complex64"),
        raises=TypeError,
        match=r"weight.dtype \(complex64\) is not",
    ),
    Error("ConvolutionGradient", weight=(8, 4, 3, 3), groups=3, raises=ValueError, match=r"groups \(3\)"),
    Error(
        "ConvolutionGradient",
        weight=(8, 4, 3, 3),
        gradient_option="some",
        raises=ValueError,
        match=r'gradient_option \("some"\) is not one of',
    ),
    Error(
        "ConvolutionGradient", weight=(8, 4, 3, 3), activation="relu", raises=NotImplementedError, match=r"activation"
    ),
    Error(
        "ConvolutionGradient",
        weight=(8, 4, 3, 3),
        sub_pixel_scale_factor=2,
        raises=NotImplementedError,
        match=r"sub_pixel_scale_factor \(2\) is not 1",
    ),
    *[
        Error(
            f"{forward}Gradient",
            **MADE[forward][0],
            gradient_option="weights_and_bias",
            x=MADE[forward][1],
            second=X,
            raises=TypeError,
            match=r"state is missing: gradients with respect to parameters are put there",
        )
        for forward in ("Convolution", "ConvolutionTranspose", "FullyConnected")
    ],
    *[
        Error(f"{forward}Gradient", of="c", raises=ValueError, match=r'of \("c"\) is not one of "a", "b"')
        for forward in ("Add", "Multiply", "Subtract")
    ],
    *[
        Error(
            f"{forward}Gradient",
            of="b",
            encoded=X,
            x=X,
            second=(1, 5, 7, 3),
            raises=ValueError,
            match=rf"{forward}Gradient: (x|other)\.shape \(1, 5, 7, 3\) is not what the forward encode had",
        )
        for forward in ("Add", "Multiply", "Subtract")
    ],
    *[
        Error(
            f"{forward}Gradient",
            source_feature_channel_max_count=3,
            x=(1, 5, 7, 3),
            second=(1, 5, 7, 3),
            raises=TypeError,
            match=r"state is missing: the forward kernel reads a part of its source",
        )
        for forward in ("SoftMax", "LogSoftMax")
    ],
    # States of batch normalization.
    *[
        row
        for name in ("BatchNormalizationGradient", "BatchNormalizationStatisticsGradient")
        for row in (
            Error(name, x=X, second=X, raises=TypeError, match=rf"{name}: state is missing"),
            Error(
                name, statistics="new", x=X, second=X, raises=RuntimeError, match=r"no statistics have been encoded to"
            ),
            Error(
                name,
                statistics="gradients",
                x=(1, 5, 7, 3),
                second=(1, 5, 7, 3),
                raises=ValueError,
                match=rf"{name}: x has 3 channels; state has 4",
            ),
            Error(
                name,
                statistics="gradients",
                x=(1, 5, 6, 4),
                second=X,
                raises=ValueError,
                match=rf"{name}: (grad_y\.shape \(1, 5, 6, 4\) is not that of x|the width of grad_y \(6\) is not)",
            ),
            Error(name, activation="reluu", raises=ValueError, match=r"\"reluu\"\) is not one of"),
        )
    ],
    Error(
        "BatchNormalizationGradient",
        statistics="forward",
        x=X,
        second=X,
        raises=RuntimeError,
        match=r"no gradients of the statistics have been encoded to state",
    ),
    Error(
        "BatchNormalizationStatisticsGradient",
        statistics="forward",
        x=X,
        second=X,
        out=X,
        raises=TypeError,
        match=r"out was given; the result is a Batch",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)


def test_states_of_the_other_kind() -> None:
    x = np.ones(X, np.float32)
    _, state = mpscnn.SoftMax()(x, with_state=True)
    with pytest.raises(TypeError, match=r"SoftMaxGradient: state is not a GradientState"):
        mpscnn.SoftMax().gradient(x, x, mpscnn.BatchNormalizationState(4))
    with pytest.raises(
        TypeError, match=r"BatchNormalizationStatisticsGradient: state is not a BatchNormalizationState"
    ):
        mpscnn.BatchNormalizationStatisticsGradient()(x, x, state)
