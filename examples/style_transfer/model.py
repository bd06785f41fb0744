# SPDX-License-Identifier: Apache-2.0
"""Fast style transfer in PyTorch, the reference for the results of MPS's kernels."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional


def style_transfer(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Run the network of Johnson et al. (arXiv:1603.08155) with instance normalization on (N, 3, H, W) in 0...255."""

    def convolution(x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight = weights[f"{name}.conv2d.weight"]
        x = functional.pad(x, [weight.shape[3] // 2] * 4, mode="reflect")
        return functional.conv2d(x, weight, weights[f"{name}.conv2d.bias"], stride)

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.instance_norm(x, weight=weights[f"{name}.weight"], bias=weights[f"{name}.bias"])

    for index, stride in ((1, 1), (2, 2), (3, 2)):
        x = torch.relu(norm(convolution(x, f"conv{index}", stride), f"in{index}"))
    for index in range(1, 1 + sum(name.endswith("conv1.conv2d.bias") and name.startswith("res") for name in weights)):
        y = torch.relu(norm(convolution(x, f"res{index}.conv1"), f"res{index}.in1"))
        x = norm(convolution(y, f"res{index}.conv2"), f"res{index}.in2") + x
    for index in (1, 2):
        x = functional.interpolate(x, scale_factor=2, mode="nearest")
        x = torch.relu(norm(convolution(x, f"deconv{index}"), f"in{index + 3}"))
    return convolution(x, "deconv3")
