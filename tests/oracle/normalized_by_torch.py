# SPDX-License-Identifier: Apache-2.0
"""Normalization by PyTorch's own operators in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from cases import Case, Inputs

from .normalized import DEFAULTS, epsilon, numbers

KERNELS = {
    *DEFAULTS,
    "BatchNormalization",
    "BatchNormalizationStatistics",
    "GroupNormalization",
    "InstanceNormalization",
}


def _of(array: NDArray[Any], name: str) -> torch.Tensor:
    del name
    return torch.from_numpy(array.astype(np.float64))


def normalized(
    case: Case, x: torch.Tensor, inputs: Inputs, tensor: Callable[[NDArray[Any], str], torch.Tensor] = _of
) -> torch.Tensor:
    """Return the result before its activation, (N, C, H, W), like x. `tensor` converts named arrays."""
    if case.kernel in DEFAULTS:
        return _locally(case, x)
    gamma, beta, mean, variance = (
        tensor(inputs.given[name], name) if name in inputs.given else None
        for name in ("gamma", "beta", "mean", "variance")
    )
    if case.kernel == "BatchNormalizationStatistics":
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        return torch.stack([mean, variance], dim=1)[None, :, None]
    if case.kernel == "InstanceNormalization":
        if x.shape[2:] == (1, 1):  # PyTorch refuses training with one value
            return F.group_norm(x, x.shape[1], gamma, beta, epsilon(case))
        return F.instance_norm(x, weight=gamma, bias=beta, eps=epsilon(case))
    if case.kernel == "GroupNormalization":
        return F.group_norm(x, case.groups, gamma, beta, epsilon(case))
    return F.batch_norm(x, mean, variance, gamma, beta, eps=epsilon(case))


def _locally(case: Case, x: torch.Tensor) -> torch.Tensor:
    given = numbers(case)
    size, alpha, beta, delta = (given[name] for name in ("kernel_size", "alpha", "beta", "delta"))
    if case.kernel == "CrossChannelNormalization":
        return F.local_response_norm(x, size, alpha, beta, delta)
    mode = "replicate" if case.params.get("edge_mode") == "clamp" else "constant"

    def mean(values: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(F.pad(values, (size // 2, (size - 1) // 2) * 2, mode=mode), size, 1)

    if case.kernel == "SpatialNormalization":
        return x / (delta + alpha * mean(x**2)) ** beta
    middle = mean(x)
    variance = torch.clamp(mean(x**2) - middle**2, min=0)
    return given["pm"] + given["ps"] * (x - given["p0"] * middle) / (delta + alpha * variance) ** beta
