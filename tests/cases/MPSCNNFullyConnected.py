# SPDX-License-Identifier: Apache-2.0
"""Cases of MPSCNNFullyConnected [MPSCNNConvolution.h]."""
# ruff: noqa: N999  (named after Apple's class)

from __future__ import annotations

from . import Case, row


def full(**arguments: object) -> Case:
    return row("FullyConnected", **arguments)  # type: ignore[arg-type]


CASES = [
    full(x=(1, 1, 1, 7), weight=(5, 7), why="a matrix product"),
    full(x=(3, 1, 1, 64), weight=(10, 64), why="batch of vectors"),
    full(
        x=(2, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        why="wider than high: the order of rows and columns matters",
    ),
    full(x=(2, 5, 3, 3), weight=(7, 45), feature_map=(3, 5, 3), why="higher than wide, channels no multiple of 4"),
    full(x=(1, 2, 3, 1), weight=(4, 6), feature_map=(1, 2, 3), why="one channel, all of its pixels"),
    full(x=(2, 3, 5, 4), weight=(6, 4, 3, 5), layout="OIHW", why="weights as of a convolution, PyTorch's order"),
    full(x=(2, 3, 5, 4), weight=(6, 3, 5, 4), layout="OHWI", why="weights as of a convolution, MPS's order"),
    full(x=(2, 4, 2, 3), weight=(6, 24), feature_map=(3, 4, 2), bias=False, why="no bias, even extents"),
    full(x=(2, 4, 2, 3), weight=(6, 24), feature_map=(3, 4, 2), activation=("prelu",), why="slopes of outputs"),
    full(x=(2, 4, 2, 3), weight=(6, 24), feature_map=(3, 4, 2), activation="gelu", why="GeLU of a linear layer"),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        weight_dtype="float16",
        why="half weights of a linear layer",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        weight_dtype="bfloat16",
        why="bfloat16 weights of a linear layer",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        quantized="ranges",
        why="bytes with ranges, a linear layer",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        quantized="lookup_table",
        why="bytes by a table, a linear layer",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        kernel_dtype="float16",
        why="linear layer rounded to half",
    ),
    full(
        x=(1, 3, 5, 4),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        kernel_dtype="float32",
        why="linear layer kept as float",
    ),
    full(
        x=(2, 3, 5, 12),
        weight=(6, 60),
        feature_map=(4, 3, 5),
        source_feature_channel_offset=8,
        why="a part of the channels",
    ),
    full(
        x=(2, 1, 1, 8),
        weight=(4, 8),
        destination_feature_channel_offset=4,
        out=(2, 1, 1, 12),
        why="outputs between other channels",
    ),
    full(
        x=(3, 2, 3, 4),
        weight=(4, 24),
        feature_map=(4, 2, 3),
        clip_rect=((1, 2, 0), (1, 1, 3)),
        out=(3, 2, 4, 4),
        why="the one pixel at some place of a larger destination",
    ),
    full(x=(2, 3, 5, 4), weight=(6, 60), feature_map=(4, 3, 5), x_view="nchw", why="linear layer on planes"),
    full(
        x=(5, 2, 2, 4),
        weight=(3, 16),
        feature_map=(4, 2, 2),
        dtypes=("uint8",),
        result_dtype="float32",
        why="linear layer on bytes",
    ),
    full(
        x=(1, 7, 7, 64),
        weight=(100, 3136),
        feature_map=(64, 7, 7),
        why="behind the last feature map",
        tags=("ci", "bench"),
    ),
]
