# SPDX-License-Identifier: Apache-2.0
"""Kernels beside PyTorch (CPU, channels_last, the same threads), interleaved in one run, arrays in and out of both.

``ours`` is ``kernel(x, out=out)``: image, command buffer, queue and wait included; ``make`` is the time to build the
kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mpscnn

from .timing import interleaved


class Row(NamedTuple):
    """One convolution: source (N, H, W, C), weights (O, I, kH, kW), and what else the kernel is given."""

    name: str
    x: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    options: dict[str, Any]


ROWS = [
    Row("tiny 3x3 8-8 at 8x8", (1, 8, 8, 8), (8, 8, 3, 3), {"padding": 1}),
    Row("stem 7x7/2 3-64 at 224", (1, 224, 224, 3), (64, 3, 7, 7), {"stride": 2, "padding": 3, "activation": "relu"}),
    Row("3x3 64-64 at 56", (1, 56, 56, 64), (64, 64, 3, 3), {"padding": 1, "activation": "relu"}),
    Row("1x1 256-64 at 56", (1, 56, 56, 256), (64, 256, 1, 1), {"activation": "relu"}),
    Row("3x3 512-512 at 7", (1, 7, 7, 512), (512, 512, 3, 3), {"padding": 1}),
    Row("3x3 64-64 at 56, batch 8", (8, 56, 56, 64), (64, 64, 3, 3), {"padding": 1, "activation": "relu"}),
    Row("depth-wise 3x3 144 at 56", (1, 56, 56, 144), (144, 1, 3, 3), {"padding": 1, "groups": 144}),
    Row("ESPCN 5x5 3-64 at 150x225", (1, 150, 225, 3), (64, 3, 5, 5), {"padding": 2, "activation": "relu"}),
    Row("ESPCN 3x3 64-32 at 150x225", (1, 150, 225, 64), (32, 64, 3, 3), {"padding": 1, "activation": "relu"}),
]


def _torch_run(row: Row, x: np.ndarray, weight: np.ndarray) -> Callable[[], object] | None:
    try:
        import torch
    except ImportError:
        return None
    source = torch.from_numpy(x).permute(0, 3, 1, 2)  # channels_last without a copy
    kernel = torch.from_numpy(weight).contiguous(memory_format=torch.channels_last)
    stride, padding = row.options.get("stride", 1), row.options.get("padding", 0)
    groups = row.options.get("groups", 1)

    def run() -> object:
        with torch.inference_mode():
            y = torch.nn.functional.conv2d(source, kernel, None, stride, padding, 1, groups)
            return y.relu_() if row.options.get("activation") else y

    return run


def run(seconds: float = 1.0, case: str = "") -> list[dict[str, Any]]:
    """Rows with seconds per call and GFLOP/s; each row takes about `seconds`."""
    rng = np.random.default_rng(0)
    results = []
    for row in ROWS:
        if case not in row.name:
            continue
        x = mpscnn.empty(row.x, np.float32)
        x[...] = rng.standard_normal(row.x)
        weight = rng.standard_normal(row.weight).astype(np.float32)
        kernel = mpscnn.Convolution(weight, **row.options)
        out = mpscnn.empty(kernel.result_shape(row.x), np.float32)
        contestants: dict[str, Callable[[], object]] = {
            "ours": lambda kernel=kernel, x=x, out=out: kernel(x, out=out),
            "make": lambda row=row, weight=weight: mpscnn.Convolution(weight, **row.options),
        }
        theirs = _torch_run(row, x, weight)
        if theirs is not None:
            contestants["torch"] = theirs
            difference = np.abs(kernel(x) - theirs().permute(0, 2, 3, 1).numpy()).max()
            assert difference <= 1e-4 * np.sqrt(np.prod(row.weight[1:])), f"{row.name} differs by {difference}"
        times = interleaved(contestants, seconds)
        flops = 2 * float(np.prod(out.shape)) * float(np.prod(row.weight[1:]))
        results.append({"case": row.name, "seconds": times, "gflops": flops / times["ours"] / 1e9})
    return results
