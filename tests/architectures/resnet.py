# SPDX-License-Identifier: Apache-2.0
"""ResNet (He et al., 2015, arXiv:1512.03385), ResNeXt and wide ResNet, with torchvision's parameter names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

DEPTHS = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}
"""By name: whether the blocks have bottlenecks, and the number of blocks of each stage."""


@dataclass(frozen=True)
class Kind:
    """Variants of other libraries: average pooling in timm's resnet50d, options of Hugging Face's."""

    average_shortcut: bool = False
    stride_in_first: bool = False
    activation: str = "relu"


def downsampling(inputs: int, outputs: int, stride: int, kind: Kind) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    if kind.average_shortcut:
        average = nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False) if stride > 1 else nn.Identity()
        return nn.Sequential(average, nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, groups: int, group_width: int, kind: Kind) -> None:
        super().__init__()
        assert groups == 1
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsampling(inputs, width, stride, kind)
        self.activation = getattr(nn.functional, kind.activation)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.activation(y)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, groups: int, group_width: int, kind: Kind) -> None:
        super().__init__()
        inner = width * group_width // 64 * groups
        outputs = width * self.expansion
        first, second = (stride, 1) if kind.stride_in_first else (1, stride)
        self.conv1 = nn.Conv2d(inputs, inner, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, second, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsampling(inputs, outputs, stride, kind)
        self.activation = getattr(nn.functional, kind.activation)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.activation(y)


def deep_stem(widths: tuple[int, ...], outputs: int) -> nn.Sequential:
    first, second = widths
    return nn.Sequential(
        nn.Conv2d(3, first, 3, 2, 1, bias=False),
        nn.BatchNorm2d(first),
        nn.ReLU(inplace=True),
        nn.Conv2d(first, second, 3, 1, 1, bias=False),
        nn.BatchNorm2d(second),
        nn.ReLU(inplace=True),
        nn.Conv2d(second, outputs, 3, 1, 1, bias=False),
    )


class ResNet(nn.Module):
    """(N, 3, H, W) to (N, classes). `width`: channels of the first stage, 64 in the published networks.

    `stem`: channels of timm's stem of three convolutions. The other options are those of `Kind`.
    """

    def __init__(
        self,
        blocks: tuple[int, ...],
        *,
        bottleneck: bool,
        width: int = 64,
        groups: int = 1,
        group_width: int = 64,
        classes: int = 1000,
        stem: tuple[int, ...] = (),
        first_stride: int = 1,
        average_shortcut: bool = False,
        stride_in_first: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        block_type = Bottleneck if bottleneck else Basic
        kind = Kind(average_shortcut, stride_in_first, activation)
        self.conv1 = deep_stem(stem, width) if stem else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.activation = getattr(nn.functional, activation)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = width
        for index, count in enumerate(blocks):
            stage = nn.Sequential()
            for block in range(count):
                stride = (2 if index > 0 else first_stride) if block == 0 else 1
                stage.append(block_type(inputs, width << index, stride, groups, group_width, kind))
                inputs = (width << index) * block_type.expansion
            self.add_module(f"layer{index + 1}", stage)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.activation(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet(name: str, **options: Any) -> ResNet:
    bottleneck, blocks = DEPTHS[name]
    return ResNet(blocks, bottleneck=bottleneck, **options)
