# SPDX-License-Identifier: Apache-2.0
"""ESPCN (Shi et al., 2016, arXiv:1609.05158): convolutions at the low resolution, then a pixel shuffle."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ESPCN(nn.Module):
    """(N, C, H, W) to (N, C, factor * H, factor * W). Layers conv1, conv2, ... of `widths` channels, and a last one."""

    def __init__(
        self,
        *,
        factor: int = 3,
        channels: int = 1,
        widths: tuple[int, ...] = (64, 64, 32),
        kernels: tuple[int, ...] = (5, 3, 3, 3),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        outputs = (*widths, channels * factor * factor)
        for index, (before, after, kernel) in enumerate(zip((channels, *widths), outputs, kernels, strict=True)):
            self.add_module(f"conv{index + 1}", nn.Conv2d(before, after, kernel, padding=kernel // 2))
        self.activation = {"relu": torch.relu, "tanh": torch.tanh}[activation]
        self.pixel_shuffle = nn.PixelShuffle(factor)

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = [layer for layer in self.children() if isinstance(layer, nn.Conv2d)]
        for layer in hidden:
            x = self.activation(layer(x))
        return self.pixel_shuffle(last(x))
