# SPDX-License-Identifier: Apache-2.0
"""Cases of upsampling [MPSCNNUpsampling.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from . import Case, row


def _of_both(kernel: str) -> list[Case]:
    return [
        row(kernel, x=(2, 3, 5, 7), scale_factor=2, why=f"{kernel}: twice, batch, odd sizes"),
        row(kernel, x=(1, 5, 3, 4), scale_factor=(3, 1), why=f"{kernel}: rows only"),
        row(kernel, x=(1, 3, 4, 5), scale_factor=(1, 4), why=f"{kernel}: columns only"),
        row(kernel, x=(1, 4, 5, 6), scale_factor=1, why=f"{kernel}: a copy"),
        row(kernel, x=(1, 2, 3, 37), scale_factor=(5, 3), why=f"{kernel}: many channels, other factors per axis"),
        row(kernel, x=(1, 3, 4, 1), scale_factor=7, why=f"{kernel}: one channel, a large factor"),
        row(kernel, x=(2, 40, 37, 20), scale_factor=2, why=f"{kernel}: large enough for several threads"),
        row(
            kernel, x=(2, 4, 5, 6), scale_factor=2, offset=(1, 2, 1), why=f"{kernel}: beginning inside, beyond the end"
        ),
        row(
            kernel,
            x=(1, 4, 5, 6),
            scale_factor=3,
            offset=(-2, -1),
            edge_mode="zero",
            why=f"{kernel}: beginning before the source, zeros",
        ),
        row(
            kernel,
            x=(1, 4, 5, 3),
            scale_factor=2,
            offset=(-1, 3),
            edge_mode="clamp",
            why=f"{kernel}: beyond the source, the nearest pixel",
        ),
        row(
            kernel,
            x=(2, 4, 5, 6),
            scale_factor=2,
            clip_rect=((1, 2, 1), (5, 6, 1)),
            out=(2, 8, 10, 6),
            why=f"{kernel}: the spacing of the whole result in a part of it",
        ),
        row(
            kernel,
            x=(1, 3, 4, 16),
            scale_factor=2,
            source_feature_channel_offset=8,
            source_feature_channel_max_count=5,
            destination_feature_channel_offset=4,
            out=(1, 6, 8, 12),
            why=f"{kernel}: some channels, others of the destination",
        ),
        row(kernel, x=(1, 3, 4, 6), scale_factor=2, x_view="channels", out_view="channels", why=f"{kernel}: slices"),
        row(kernel, x=(1, 3, 4, 18), scale_factor=2, x_view="steps", why=f"{kernel}: every other pixel"),
        row(kernel, x=(1, 3, 4, 6), scale_factor=2, dtypes=("uint8",), why=f"{kernel}: bytes"),
        row(
            kernel,
            x=(1, 3, 4, 6),
            scale_factor=2,
            dtypes=("uint8",),
            result_dtype="float32",
            why=f"{kernel}: bytes to floats",
        ),
    ]


CASES = [
    *_of_both("UpsamplingNearest"),
    *_of_both("UpsamplingBilinear"),
    row("UpsamplingBilinear", x=(2, 4, 5, 7), scale_factor=2, align_corners=True, why="corners on corners"),
    row(
        "UpsamplingBilinear",
        x=(1, 3, 4, 35),
        scale_factor=(3, 2),
        align_corners=True,
        why="corners on corners, many channels",
    ),
    row("UpsamplingBilinear", x=(1, 1, 3, 4), scale_factor=3, align_corners=True, why="one row: nothing to step over"),
    row(
        "UpsamplingBilinear",
        x=(1, 3, 4, 5),
        scale_factor=(1, 3),
        align_corners=True,
        edge_mode="clamp",
        why="corners on corners never leave the source",
    ),
    row(
        "UpsamplingBilinear",
        x=(1, 2, 2, 1),
        scale_factor=2,
        values=(3.0, 6.0, 9.0, 12.0),
        why="the last row and column are blended with zeros, numbers that Apple's gave",
    ),
    row("UpsamplingBilinear", x=(1, 3, 4, 20), scale_factor=2, edge_mode="clamp", why="no zeros, many channels"),
]
