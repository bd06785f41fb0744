# SPDX-License-Identifier: Apache-2.0
"""Row: a benchmark of a kernel without weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Shape = tuple[int, int, int, int]


class Row(NamedTuple):
    """A kernel with its source or sources (N, H, W, C), and PyTorch's function of (N, C, H, W)."""

    name: str
    kernel: Callable[[], Any]
    shapes: tuple[Shape, ...]
    theirs: Callable[..., Any]  # takes the module torch, then the sources
    exact: bool = True  # False: the results are random
