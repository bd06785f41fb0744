# SPDX-License-Identifier: Apache-2.0
"""Normalization against PyTorch (CPU, channels_last, the same threads), interleaved in one run.

``ours`` is ``kernel(x, out=out)``, including image, command buffer, queue and wait, or the call that computes
statistics. ``GB/s`` counts the source and the result once each, the min traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mpscnn

from .timing import interleaved


class Row(NamedTuple):
    """A kernel: source (N, H, W, C), options, and the names of its per-channel values."""

    kernel: str
    x: tuple[int, int, int, int]
    options: dict[str, Any] = {}  # noqa: RUF012  (never written)
    given: tuple[str, ...] = ()

    def name(self, dtype: str) -> str:
        images, height, width, channels = self.x
        return f"{self.kernel} {images}x{height}x{width}x{channels} {dtype}"


GAMMA = ("gamma", "beta")
ALL = (*GAMMA, "mean", "variance")
ALEXNET = {"kernel_size": 5, "alpha": 1e-4, "beta": 0.75}

ROWS = [
    Row("BatchNormalization", (1, 56, 56, 256), given=ALL),
    Row("BatchNormalization", (1, 112, 112, 64), {"activation": "relu"}, ALL),
    Row("BatchNormalization", (8, 112, 112, 64), given=ALL),
    Row("BatchNormalizationStatistics", (8, 56, 56, 64)),
    Row("BatchNormalizationStatistics", (1, 112, 112, 64)),
    Row("InstanceNormalization", (1, 112, 112, 64), given=GAMMA),
    Row("InstanceNormalization", (4, 64, 64, 128), given=GAMMA),
    Row("GroupNormalization", (1, 64, 64, 320), {"groups": 32}, GAMMA),
    Row("GroupNormalization", (4, 32, 32, 640), {"groups": 32}, GAMMA),
    Row("CrossChannelNormalization", (1, 55, 55, 96), ALEXNET),
    Row("CrossChannelNormalization", (1, 27, 27, 256), ALEXNET),
    Row("SpatialNormalization", (1, 55, 55, 96), ALEXNET),
    Row("SpatialNormalization", (1, 112, 112, 64), ALEXNET | {"kernel_size": 3}),
    Row("LocalContrastNormalization", (1, 55, 55, 96), {"kernel_size": 5, "alpha": 1.0}),
    Row("LocalContrastNormalization", (1, 112, 112, 64), {"kernel_size": 3, "alpha": 1.0}),
]
DTYPES = ("float32", "float16")


def _torch_run(row: Row, x: np.ndarray, values: dict[str, np.ndarray]) -> Callable[[], Any] | None:
    """Return PyTorch's function; None if PyTorch is missing, or has no such operator for the dtype."""
    try:
        import torch
        import torch.nn.functional as F  # noqa: N812
    except ImportError:
        return None
    source = torch.from_numpy(x).permute(0, 3, 1, 2)  # channels_last without a copy
    # In the dtype of the source, as in a model of that dtype.
    gamma, beta, mean, variance = (
        torch.from_numpy(values[name]).to(source.dtype) if name in values else None for name in ALL
    )
    options = row.options
    size, alpha, beta_of = options.get("kernel_size", 0), options.get("alpha", 0.0), options.get("beta", 0.5)

    def average(y: Any) -> Any:
        return F.avg_pool2d(y, size, 1, size // 2)

    def contrast() -> Any:
        middle = average(source)
        return (source - middle) / (1 / 1024 + alpha * (average(source * source) - middle * middle)) ** beta_of

    def batch() -> Any:
        y = F.batch_norm(source, mean, variance, gamma, beta)
        return y.relu_() if "activation" in options else y

    runs: dict[str, Callable[[], Any]] = {
        "BatchNormalization": batch,
        "BatchNormalizationStatistics": lambda: torch.var_mean(source, (0, 2, 3), correction=0),
        "InstanceNormalization": lambda: F.instance_norm(source, weight=gamma, bias=beta),
        "GroupNormalization": lambda: F.group_norm(source, options["groups"], gamma, beta),
        "CrossChannelNormalization": lambda: F.local_response_norm(source, size, alpha, beta_of),
        "SpatialNormalization": lambda: source / (1 + alpha * average(source * source)) ** beta_of,
        "LocalContrastNormalization": contrast,
    }

    def run() -> Any:
        with torch.inference_mode():
            return runs[row.kernel]()

    try:
        run()
    except (RuntimeError, NotImplementedError):
        return None
    return run


def _result(y: Any) -> np.ndarray:
    """Return a result of either program as float64 (N, H, W, C), or variance and mean."""
    if isinstance(y, mpscnn.BatchNormalizationState):
        return np.stack([y.variance, y.mean]).astype(np.float64)
    if isinstance(y, tuple):
        return np.stack([part.double().numpy() for part in y])
    return y.permute(0, 2, 3, 1).double().numpy() if hasattr(y, "permute") else y.astype(np.float64)


def run(seconds: float = 1.0, case: str = "", best: bool = False) -> list[dict[str, Any]]:
    """Return rows with seconds per call and GB/s; each row takes about `seconds`."""
    rng = np.random.default_rng(0)
    results = []
    for row in ROWS:
        for dtype in DTYPES:
            if case not in row.name(dtype):
                continue
            x = mpscnn.empty(row.x, dtype)
            x[...] = rng.standard_normal(row.x)
            values = {name: rng.uniform(0.5, 2, row.x[3]).astype(np.float32) for name in row.given}
            kernel = getattr(mpscnn, row.kernel)(**values, **row.options)
            out = None if row.kernel.endswith("Statistics") else mpscnn.empty(row.x, dtype)
            contestants: dict[str, Callable[[], object]] = {
                "ours": (lambda kernel=kernel, x=x: kernel(x))
                if out is None
                else (lambda kernel=kernel, x=x, out=out: kernel(x, out=out))
            }
            theirs = _torch_run(row, x, values)
            if theirs is not None:
                contestants["torch"] = theirs
                right = _result(theirs())
                difference = np.abs(_result(kernel(x)) - right).max() / np.abs(right).max()
                limit = 2e-2 if dtype == "float16" else 1e-4
                assert difference <= limit, f"{row.name(dtype)} differs by {difference}"
            times = interleaved(contestants, seconds, best=best)
            moved = x.nbytes + (0 if out is None else out.nbytes)
            results.append({"case": row.name(dtype), "seconds": times, "gigabytes": moved / times["ours"] / 1e9})
    return results
