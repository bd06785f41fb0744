# SPDX-License-Identifier: Apache-2.0
"""Convolutions with weights of one bit."""
# ruff: noqa: N999  (named after Apple's class)

from __future__ import annotations

from . import Case, row

C, F = "BinaryConvolution", "BinaryFullyConnected"
TERMS = ("scale", "input_bias", "input_scale")

CASES: list[Case] = [
    # bits of source and weights
    row(C, x=(1, 5, 7, 32), weight=(16, 3, 3, 32), padding=1, why="one word a pixel, one block of outputs"),
    row(C, x=(2, 5, 7, 70), weight=(17, 3, 3, 70), padding=1, why="a last word of six bits, a second block"),
    row(C, x=(1, 4, 6, 5), weight=(3, 1, 1, 5), why="fewer channels than a word, one tap"),
    row(C, x=(1, 9, 3, 33), weight=(20, 2, 3, 33), stride=(2, 1), why="an even kernel, strides, a word of one bit"),
    row(C, x=(1, 9, 11, 40), weight=(5, 3, 2, 40), dilation=(2, 3), padding=2, why="gaps between the taps"),
    row(C, x=(1, 6, 5, 300), weight=(34, 3, 3, 300), padding="same", why="more words than a byte can count bits of"),
    row(C, x=(1, 8, 8, 8), weight=(4, 3, 3, 8), padding="valid", stride=2, why="a policy that leaves pixels over"),
    row(C, x=(2, 6, 7, 24), weight=(8, 3, 3, 24), padding=1, type="and", why="and, zeros outside have a bit of 1"),
    row(C, x=(1, 6, 7, 65), weight=(33, 2, 2, 65), padding=(1, 0), type="and", why="and, masked words"),
    row(C, x=(1, 5, 6, 40), weight=(9, 3, 3, 40), padding=1, edge_mode="clamp", why="the nearest pixel outside"),
    row(C, x=(1, 5, 6, 40), weight=(9, 3, 3, 40), padding=1, type="and", edge_mode="clamp", why="the same for and"),
    row(C, x=(1, 5, 6, 40), weight=(9, 3, 3, 40), padding=1, given=TERMS, why="terms that move the bits"),
    row(
        C,
        x=(1, 5, 6, 40),
        weight=(9, 3, 3, 40),
        padding=1,
        type="and",
        given=TERMS,
        bias=False,
        why="terms and no bias",
    ),
    row(C, x=(2, 5, 6, 40), weight=(9, 3, 3, 40), padding=1, beta_scaling=True, why="the mean size of each window"),
    row(
        C,
        x=(2, 7, 6, 24),
        weight=(9, 3, 2, 24),
        padding=1,
        stride=2,
        type="and",
        beta_scaling=True,
        given=TERMS,
        edge_mode="clamp",
        why="sizes of the nearest pixels, after the terms",
    ),
    # real sources
    row(C, x=(1, 5, 7, 32), weight=(16, 3, 3, 32), padding=1, type="binary_weights", why="an ordinary convolution"),
    row(C, x=(2, 6, 5, 7), weight=(5, 3, 2, 7), type="binary_weights", given=("scale",), why="scaled weights"),
    row(
        C,
        x=(2, 6, 5, 7),
        weight=(5, 3, 2, 7),
        padding=1,
        type="binary_weights",
        given=TERMS,
        why="the source is scaled first, zeros outside are not",
    ),
    row(
        C,
        x=(1, 6, 5, 12),
        weight=(8, 3, 3, 12),
        padding=1,
        type="binary_weights",
        beta_scaling=True,
        given=("scale",),
        why="beta between sum and bias",
    ),
    row(
        C,
        x=(1, 6, 5, 12),
        weight=(8, 3, 3, 12),
        padding=1,
        type="binary_weights",
        beta_scaling=True,
        given=TERMS,
        activation=("relu", 0.25),
        why="everything at once",
    ),
    # the result
    row(C, x=(1, 5, 6, 40), weight=(9, 3, 3, 40), padding=1, activation="sigmoid", given=("scale",), why="a neuron"),
    row(
        C,
        x=(1, 5, 6, 40),
        weight=(9, 3, 3, 40),
        padding=1,
        activation=("prelu",),
        why="slopes for each output, of sums that are often below 0",
    ),
    row(C, x=(1, 4, 6, 16), weight=(6, 1, 1, 16), dtypes=("uint8",), given=TERMS, why="unsigned bytes"),
    row(
        C,
        x=(1, 4, 6, 16),
        weight=(6, 1, 1, 16),
        given=("scale",),
        result_dtype="float16",
        dtypes=("float32",),
        why="a result of another type",
    ),
    row(C, x=(2, 5, 7, 24), weight=(8, 3, 3, 24), padding=1, x_view="channels", why="a source between other channels"),
    row(C, x=(2, 5, 7, 24), weight=(8, 3, 3, 24), padding=1, x_view="nchw", why="a source that is copied"),
    row(
        C,
        x=(1, 5, 7, 24),
        weight=(8, 3, 3, 24),
        padding=1,
        out=(1, 5, 7, 16),
        destination_feature_channel_offset=4,
        why="beside other channels",
    ),
    row(
        C,
        x=(3, 6, 7, 24),
        weight=(8, 3, 3, 24),
        offset=(2, -1, 1),
        clip_rect=((1, 2, 0), (3, 4, 2)),
        out=(2, 6, 7, 8),
        why="a rectangle, and windows that begin outside",
    ),
    row(
        C,
        x=(1, 5, 7, 48),
        weight=(8, 3, 3, 24),
        padding=1,
        source_feature_channel_offset=8,
        source_feature_channel_max_count=24,
        why="some of the channels",
    ),
    # fully connected
    row(F, x=(1, 3, 5, 40), weight=(21, 3, 5, 40), why="the whole source, W != H"),
    row(F, x=(5, 1, 1, 64), weight=(40, 1, 1, 64), type="and", why="one pixel, several images"),
    row(F, x=(2, 3, 2, 20), weight=(8, 3, 2, 20), type="binary_weights", given=TERMS, why="real sources"),
    row(
        F,
        x=(2, 3, 2, 20),
        weight=(8, 3, 2, 20),
        beta_scaling=True,
        given=TERMS,
        activation="tanh",
        why="terms, beta and a neuron",
    ),
]
