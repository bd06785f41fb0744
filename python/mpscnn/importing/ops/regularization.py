# SPDX-License-Identifier: Apache-2.0
"""Dropout, which is the identity in inference."""

from __future__ import annotations

from typing import Any

from ..builder import Builder, Tensor, UnmappedError


def dropout(builder: Builder, x: Tensor, p: float = 0.5, *, whole_channels: bool = False) -> Tensor:
    """Same as torch.nn.functional.dropout, or with `whole_channels` dropout2d, in training; otherwise return `x`."""
    if not builder.in_training or p == 0:
        return x
    if not 0 < p < 1:
        raise UnmappedError(f"dropout with p = {p}, which is not at least 0 and less than 1")
    # Two layers must not have the same masks.
    arguments: dict[str, Any] = {"keep_probability": 1 - p, "seed": len(builder.graph)}
    if whole_channels:
        arguments["mask_stride"] = 0
    return builder.add("Dropout", x, **arguments)


def alpha_dropout(builder: Builder, x: Tensor, p: float = 0.5) -> Tensor:
    """Same as torch.nn.functional.alpha_dropout in inference."""
    if builder.in_training and p:
        raise UnmappedError("alpha dropout in training")
    return x
