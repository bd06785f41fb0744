# SPDX-License-Identifier: Apache-2.0
"""DenseNet (Huang et al., 2016, arXiv:1608.06993), with torchvision's parameter names."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = self.conv1(self.relu1(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu2(self.norm2(x)))


class DenseBlock(nn.Module):
    def __init__(self, layers: int, inputs: int, growth: int) -> None:
        super().__init__()
        for layer in range(layers):
            self.add_module(f"denselayer{layer + 1}", DenseLayer(inputs + layer * growth, growth))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.children():
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.pool = nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    """(N, 3, H, W) to (N, classes). Default: DenseNet-121."""

    def __init__(
        self, *, growth: int = 32, blocks: tuple[int, ...] = (6, 12, 24, 16), width: int = 64, classes: int = 1000
    ) -> None:
        super().__init__()
        self.features = nn.Sequential()
        self.features.add_module("conv0", nn.Conv2d(3, width, 7, 2, 3, bias=False))
        self.features.add_module("norm0", nn.BatchNorm2d(width))
        self.features.add_module("relu0", nn.ReLU(inplace=True))
        self.features.add_module("pool0", nn.MaxPool2d(3, 2, 1))
        channels = width
        for index, layers in enumerate(blocks):
            self.features.add_module(f"denseblock{index + 1}", DenseBlock(layers, channels, growth))
            channels += layers * growth
            if index + 1 < len(blocks):
                self.features.add_module(f"transition{index + 1}", Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module(f"norm{len(blocks) + 1}", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.features(x))
        return self.classifier(torch.flatten(nn.functional.adaptive_avg_pool2d(x, (1, 1)), 1))
