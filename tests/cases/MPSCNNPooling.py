# SPDX-License-Identifier: Apache-2.0
"""Cases of the pooling kernels [MPSCNNPooling.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import math

from . import Case, row

# Cases that apply to all of them. PyTorch has no clamped padding for L2; the oracle has.
KINDS = ("PoolingAverage", "PoolingL2Norm", "PoolingMax")
NEGATIVE = (-1.0, -2.5, -0.5, -7.0, -3.0, -0.25, -11.0)
RAMP = tuple(float(value) for value in range(1, 10))


def _of_every_kind(kind: str) -> list[Case]:
    return [
        row(kind, x=(2, 8, 12, 8), kernel_size=2, why=f"{kind}: the stride is the kernel's size, even window"),
        row(kind, x=(1, 9, 11, 5), kernel_size=3, stride=2, padding=1, why=f"{kind}: odd sizes, padding"),
        row(
            kind,
            x=(1, 9, 11, 5),
            kernel_size=3,
            stride=2,
            padding=1,
            edge_mode="clamp",
            why=f"{kind}: what clamp means outside",
        ),
        row(
            kind,
            x=(1, 9, 11, 5),
            kernel_size=3,
            stride=2,
            padding=1,
            edge_mode="zero",
            why=f"{kind}: what zero means outside",
        ),
        row(
            kind,
            x=(1, 7, 10, 3),
            kernel_size=(2, 5),
            stride=(3, 1),
            padding=((0, 1), (2, 1)),
            why=f"{kind}: height and width differ everywhere, four different sides",
        ),
        row(kind, x=(2, 7, 5, 37), kernel_size=(7, 5), why=f"{kind}: the whole image, channels beyond one block"),
        row(kind, x=(1, 10, 9, 4), kernel_size=3, stride=2, padding="same", why=f"{kind}: MPS's policy, same"),
        row(kind, x=(1, 10, 9, 4), kernel_size=4, stride=3, padding="valid", why=f"{kind}: MPS's policy, valid"),
        row(kind, x=(1, 6, 7, 4), kernel_size=3, stride=2, ceil_mode=True, why=f"{kind}: a last window over the edge"),
        row(
            kind,
            x=(1, 6, 6, 4),
            kernel_size=2,
            stride=3,
            padding=1,
            ceil_mode=True,
            why=f"{kind}: no window that begins in the padding behind the source",
        ),
        row(kind, x=(1, 5, 5, 4), kernel_size=1, stride=2, why=f"{kind}: windows of one pixel"),
        row(kind, x=(3, 9, 8, 12), kernel_size=3, offset=(2, -1, 1), why=f"{kind}: an offset, from the second image"),
        row(
            kind,
            x=(2, 9, 8, 12),
            kernel_size=3,
            stride=1,
            clip_rect=((1, 2, 1), (4, 3, 1)),
            out=(3, 8, 7, 12),
            why=f"{kind}: a part of the destination",
        ),
        row(
            kind,
            x=(1, 6, 6, 12),
            kernel_size=2,
            source_feature_channel_offset=4,
            source_feature_channel_max_count=6,
            destination_feature_channel_offset=8,
            out=(1, 3, 3, 16),
            why=f"{kind}: some channels of the source, others of the destination",
        ),
        row(kind, x=(1, 6, 8, 6), kernel_size=2, x_view="channels", why=f"{kind}: a run of channels"),
        row(kind, x=(1, 6, 8, 6), kernel_size=2, x_view="steps", why=f"{kind}: every other pixel"),
        row(
            kind,
            x=(1, 6, 8, 6),
            kernel_size=2,
            dtypes=("uint8",),
            result_dtype="float32",
            why=f"{kind}: bytes to floats",
        ),
    ]


CASES = [
    *[case for kind in KINDS for case in _of_every_kind(kind)],
    row("PoolingMax", x=(1, 5, 6, 7), kernel_size=3, stride=2, padding=1, values=NEGATIVE, why="nothing is above 0"),
    row(
        "PoolingMax",
        x=(1, 5, 6, 7),
        kernel_size=3,
        stride=2,
        padding=1,
        edge_mode="zero",
        values=NEGATIVE,
        why="zeros outside are greater than what is inside",
    ),
    row("PoolingMax", x=(1, 4, 6, 3), kernel_size=2, values=(math.nan, 1.0, -math.inf, math.inf, 2.0), why="NaN wins"),
    row("PoolingAverage", x=(1, 3, 3, 1), kernel_size=2, stride=1, padding=((1, 0), (1, 0)), values=RAMP, why="a ramp"),
    row(
        "PoolingAverage",
        x=(1, 6, 7, 5),
        kernel_size=3,
        stride=2,
        padding=1,
        count_include_pad=False,
        why="only pixels of the source count",
    ),
    row(
        "PoolingAverage",
        x=(1, 6, 7, 5),
        kernel_size=3,
        stride=2,
        padding=1,
        edge_mode="clamp",
        zero_pad_size=(1, 0),
        why="the source grown by zeros along one axis",
    ),
    row(
        "PoolingAverage",
        x=(1, 6, 7, 5),
        kernel_size=3,
        stride=2,
        padding=1,
        ceil_mode=True,
        count_include_pad=True,
        why="Caffe: padding counts, what lies beyond it does not",
    ),
    row("PoolingAverage", x=(1, 3, 3, 4), kernel_size=2, offset=(-5, 9), edge_mode="clamp", why="no pixel at all: 0"),
    row("PoolingAverage", x=(1, 60, 70, 3), kernel_size=(60, 70), centre=2.0, why="a sum of thousands"),
    row("PoolingL2Norm", x=(1, 4, 4, 3), kernel_size=2, values=(-3.0, 4.0, 0.0), why="the sign is lost"),
    row(
        "PoolingL2Norm",
        x=(2, 6, 5, 7),
        kernel_size=(5, 4),
        stride=1,
        padding=((4, 3), (2, 3)),
        edge_mode="clamp",
        why="rows and columns outside of the source count as often as they are seen",
    ),
    row("DilatedPoolingMax", x=(2, 9, 11, 6), kernel_size=3, dilation=2, stride=1, why="every other pixel of 5 x 5"),
    row(
        "DilatedPoolingMax",
        x=(1, 12, 9, 5),
        kernel_size=(2, 3),
        dilation=(3, 2),
        stride=(2, 1),
        padding=1,
        edge_mode="zero",
        why="even window, dilation and stride by axis, zeros outside",
    ),
    row(
        "DilatedPoolingMax",
        x=(1, 8, 9, 4),
        kernel_size=3,
        dilation=3,
        stride=1,
        padding="same",
        values=NEGATIVE,
        why="a clamped tap reads a pixel that no other tap reads",
    ),
    row(
        "DilatedPoolingMax",
        x=(1, 8, 10, 4),
        kernel_size=2,
        dilation=2,
        stride=2,
        ceil_mode=True,
        why="a last window with gaps over the edge",
    ),
    row("DilatedPoolingMax", x=(1, 8, 9, 4), kernel_size=2, dilation=3, why="the stride is the kernel's size here too"),
    row(
        "DilatedPoolingMax",
        x=(1, 8, 9, 12),
        kernel_size=2,
        dilation=2,
        offset=(1, 2),
        clip_rect=((0, 1, 0), (3, 2, 1)),
        source_feature_channel_offset=4,
        destination_feature_channel_offset=4,
        out=(1, 4, 4, 12),
        why="placed by hand",
    ),
]
