# SPDX-License-Identifier: Apache-2.0
"""Cases of reshaping and padding [MPSNNReshape.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import math

from . import Case, row

P = (2, 4, 5, 3)


def _of_each_edge(edge: str) -> list[Case]:
    return [
        row("Pad", x=P, padding=((1, 2), (3, 0)), edge_mode=edge, why=f"{edge}: four different sides"),
        row("Pad", x=P, padding=1, channels_before=2, channels_after=1, edge_mode=edge, why=f"{edge}: channels too"),
        row("Pad", x=(1, 3, 2, 1), padding=(4, 7), edge_mode=edge, why=f"{edge}: wider than the source, one channel"),
        row("Pad", x=(1, 3, 1, 2), padding=2, channels_after=5, edge_mode=edge, why=f"{edge}: a source one pixel wide"),
        row(
            "Pad",
            x=(2, 5, 6, 4),
            padding=2,
            offset=(1, -3, 1),
            edge_mode=edge,
            why=f"{edge}: an offset in place of the padding's",
        ),
    ]


CASES = [
    row("Reshape", x=(2, 3, 4, 5), shape=(5, 4, 3), why="all extents change, batch"),
    row("Reshape", x=(2, 3, 4, 5), shape=(1, 1, 60), why="flattened, as in front of a linear layer"),
    row("Reshape", x=(1, 1, 1, 60), shape=(3, 4, 5), why="and back"),
    row("Reshape", x=(1, 3, 4, 5), shape=(3, 4, 5), why="the shape it has"),
    row("Reshape", x=(2, 40, 50, 9), shape=(90, 40, 5), why="reshaped by several threads"),
    row("Reshape", x=(2, 3, 4, 5), shape=(2, 3, 10), x_view="channels", out_view="channels", why="reshaped slices"),
    row("Reshape", x=(2, 3, 4, 5), shape=(4, 15, 1), x_view="steps", out_view="nchw", why="reshaped across strides"),
    row(
        "Reshape",
        x=(2, 3, 4, 16),
        shape=(6, 2, 6),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=6,
        why="some channels, reshaped",
    ),
    row(
        "Reshape",
        x=(2, 3, 4, 5),
        shape=(6, 5, 2),
        clip_rect=((1, 2, 1), (6, 5, 2)),
        destination_feature_channel_offset=8,
        out=(3, 8, 8, 10),
        why="reshaped into a part of the destination",
    ),
    row("Reshape", x=(1, 3, 4, 5), shape=(5, 3, 4), dtypes=("uint8", "uint16"), why="reshaped codes"),
    row(
        "Reshape",
        x=(1, 3, 4, 5),
        shape=(5, 3, 4),
        dtypes=("float16", "uint8"),
        result_dtype="float32",
        why="reshaped into another type",
    ),
    *[case for edge in ("zero", "clamp", "mirror", "mirror_with_edge", "constant") for case in _of_each_edge(edge)],
    row("Pad", x=P, why="nothing is put around"),
    row("Pad", x=P, padding=2, why="zeros without saying so"),
    row("Pad", x=P, padding=(1, 2), value=-1.5, why="a constant, rows and columns alike on both sides"),
    row("Pad", x=P, padding=1, value=-math.inf, why="an infinite constant"),
    row(
        "Pad",
        x=P,
        padding=((2, 0), (0, 1)),
        channels_before=1,
        channels_after=2,
        channel_values=(0.5, -1.0, 2.0, 3.5, -4.0, 8.0),
        why="a constant for each channel, those of the source too",
    ),
    row("Pad", x=(1, 4, 5, 8), channels_before=3, channels_after=9, why="only channels"),
    row(
        "Pad",
        x=(1, 4, 5, 11),
        padding=1,
        source_feature_channel_offset=3,
        source_feature_channel_max_count=5,
        channels_after=1,
        edge_mode="mirror",
        why="channels of the source from an odd one on, mirrored among themselves",
    ),
    row("Pad", x=(2, 40, 45, 19), padding=3, edge_mode="mirror", why="padded by several threads"),
    row(
        "Pad",
        x=(2, 4, 5, 6),
        padding=2,
        clip_rect=((1, 2, 0), (4, 5, 2)),
        destination_feature_channel_offset=4,
        out=(2, 8, 9, 12),
        edge_mode="clamp",
        why="padded into a part of the destination",
    ),
    row("Pad", x=P, padding=1, value=0.5, dtypes=("uint8",), why="a constant in bytes"),
    row(
        "Pad",
        x=P,
        padding=1,
        value=0.25,
        dtypes=("uint8", "float16"),
        result_dtype="float32",
        x_view="channels",
        why="padded into another type",
    ),
]
