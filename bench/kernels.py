# SPDX-License-Identifier: Apache-2.0
"""Kernels with weights against PyTorch (CPU, channels_last, the same threads), with arrays as inputs and outputs.

``ours`` is ``kernel(x, out=out)``, including image, command buffer, queue and wait; ``make`` is the time to make the
kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mpscnn

from .timing import interleaved


class Row(NamedTuple):
    """A kernel with weights: source (N, H, W, C), weights in PyTorch's order, and other options."""

    name: str
    x: tuple[int, int, int, int]
    weight: tuple[int, ...]
    options: dict[str, Any]
    kernel: str = "Convolution"


TRANSPOSE = "ConvolutionTranspose"
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
    Row("transposed 4x4/2 64-32 at 64", (1, 64, 64, 64), (64, 32, 4, 4), {"stride": 2, "padding": 1}, TRANSPOSE),
    Row("transposed 2x2/2 256-128 at 28", (1, 28, 28, 256), (256, 128, 2, 2), {"stride": 2}, TRANSPOSE),
    Row("linear 2048-1000, batch 64", (64, 1, 1, 2048), (1000, 2048), {}, "FullyConnected"),
    Row("linear 25088-4096", (1, 7, 7, 512), (4096, 25088), {"feature_map": (512, 7, 7)}, "FullyConnected"),
    Row("xnor 3x3 256-256 at 56", (1, 56, 56, 256), (256, 256, 3, 3), {"padding": 1}, "BinaryConvolution"),
    Row("and 1x1 512-512 at 28", (1, 28, 28, 512), (512, 512, 1, 1), {"type": "and"}, "BinaryConvolution"),
    Row("signs 3x3 64-64 at 56", (1, 56, 56, 64), (64, 64, 3, 3), {"type": "binary_weights"}, "BinaryConvolution"),
    Row("xnor 4096-4096, batch 16", (16, 1, 1, 4096), (4096, 4096, 1, 1), {}, "BinaryFullyConnected"),
    Row("and 8192-1024, batch 64", (64, 1, 1, 8192), (1024, 8192, 1, 1), {"type": "and"}, "BinaryFullyConnected"),
]


def _torch_run(row: Row, x: np.ndarray, weight: np.ndarray) -> Callable[[], Any] | None:
    try:
        import torch
        import torch.nn.functional as F  # noqa: N812
    except ImportError:
        return None
    source = torch.from_numpy(x).permute(0, 3, 1, 2)  # channels_last without a copy
    kernel = torch.from_numpy(weight)
    if kernel.ndim == 4:
        kernel = kernel.contiguous(memory_format=torch.channels_last)
    stride, padding = row.options.get("stride", 1), row.options.get("padding", 0)
    groups = row.options.get("groups", 1)
    kind = row.options.get("type", "xnor")

    def bits() -> Any:
        """Return the source's bits as numbers; the conversion of the weights is not timed."""
        if kind == "binary_weights":
            return source
        ones = (source >= 0).to(torch.float32)
        # Padding has the value of the bit of 0, as in the kernel.
        ones = ones if kind == "and" else 2 * ones - 1
        return F.pad(ones, [padding] * 4, value=1.0) if padding else ones

    def call() -> Any:
        if row.kernel == "FullyConnected":
            flat = source.flatten(1)
            return F.linear(flat, kernel)[:, :, None, None]
        if row.kernel == TRANSPOSE:
            return F.conv_transpose2d(source, kernel, None, stride, padding)
        if row.kernel.startswith("Binary"):
            return F.conv2d(bits(), kernel, None, stride, padding if kind == "binary_weights" else 0)
        y = F.conv2d(source, kernel, None, stride, padding, 1, groups)
        return y.relu_() if row.options.get("activation") else y

    def run() -> Any:
        with torch.inference_mode():
            return call()

    return run


def _made(row: Row, rng: np.random.Generator) -> tuple[np.ndarray, Callable[[], Any]]:
    """Return the weights in PyTorch's order, and a function that makes the kernel."""
    kind = getattr(mpscnn, row.kernel)
    if row.kernel.startswith("Binary"):
        weight = rng.choice([-1.0, 1.0], row.weight).astype(np.float32)
        words = mpscnn.pack_bits(weight)
        made = lambda: kind(words, in_channels=row.weight[1], **row.options)  # noqa: E731
        return (weight > 0).astype(np.float32) if row.options.get("type") == "and" else weight, made
    weight = rng.standard_normal(row.weight).astype(np.float32)
    return weight, lambda: kind(weight, **row.options)


def run(seconds: float = 1.0, case: str = "") -> list[dict[str, Any]]:
    """Return rows with seconds per call and GFLOP/s; each row takes about `seconds`."""
    rng = np.random.default_rng(0)
    results = []
    for row in ROWS:
        if case not in row.name:
            continue
        x = mpscnn.empty(row.x, np.float32)
        x[...] = rng.standard_normal(row.x)
        weight, make = _made(row, rng)
        kernel = make()
        out = mpscnn.empty(kernel.result_shape(row.x), np.float32)
        contestants: dict[str, Callable[[], object]] = {
            "ours": lambda kernel=kernel, x=x, out=out: kernel(x, out=out),
            "make": make,
        }
        theirs = _torch_run(row, x, weight)
        if theirs is not None:
            contestants["torch"] = theirs
            difference = np.abs(kernel(x) - theirs().permute(0, 2, 3, 1).numpy()).max()
            assert difference <= 1e-4 * np.sqrt(np.prod(row.weight[1:])), f"{row.name} differs by {difference}"
        times = interleaved(contestants, seconds)
        pixels = x if row.kernel == TRANSPOSE else out  # every value is multiplied by each weight of its filter
        flops = 2 * float(np.prod(pixels.shape)) * float(np.prod(row.weight[1:]))
        results.append({"case": row.name, "seconds": times, "gflops": flops / times["ours"] / 1e9})
    return results
