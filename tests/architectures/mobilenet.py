# SPDX-License-Identifier: Apache-2.0
"""MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381), with torchvision's names of parameters."""

from __future__ import annotations

from torch import Tensor, nn

# expansion, channels, blocks, stride of the first block: table 2 of the paper
SETTING = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, at least 8 and never more than a tenth below."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [convolution(inputs, inner, 1)]
        layers += [
            convolution(inner, inner, 3, stride, groups=inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    """(N, 3, H, W) to (N, classes). `multiplier` scales the channels of every layer."""

    def __init__(self, *, multiplier: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        inputs, last = multiple_of_8(32 * multiplier), multiple_of_8(1280 * max(1.0, multiplier))
        self.features = nn.Sequential(convolution(3, inputs, 3, 2))
        for expansion, channels, count, stride in SETTING:
            outputs = multiple_of_8(channels * multiplier)
            for block in range(count):
                self.features.append(InvertedResidual(inputs, outputs, stride if block == 0 else 1, expansion))
                inputs = outputs
        self.features.append(convolution(inputs, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(x.flatten(1))
