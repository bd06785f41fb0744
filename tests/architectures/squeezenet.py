# SPDX-License-Identifier: Apache-2.0
"""SqueezeNet (Iandola et al., 2016, arXiv:1602.07360), with torchvision's parameter names."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fire(nn.Module):
    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        return torch.cat(
            [self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))], 1
        )


class SqueezeNet(nn.Module):
    """(N, 3, H, W) to (N, classes), version "1_0" or "1_1"."""

    def __init__(self, version: str, *, classes: int = 1000) -> None:
        super().__init__()
        fires = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
        outputs, kernel, pooled = {"1_0": (96, 7, (3, 7)), "1_1": (64, 3, (2, 4))}[version]
        self.features = nn.Sequential(
            nn.Conv2d(3, outputs, kernel, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True)
        )
        for index, (squeeze, expand) in enumerate(fires):
            if index in pooled:
                self.features.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            self.features.append(Fire(outputs, squeeze, expand))
            outputs = 2 * expand
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Conv2d(outputs, classes, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(self.classifier(self.features(x)), 1)
