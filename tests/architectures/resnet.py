# SPDX-License-Identifier: Apache-2.0
"""ResNet (He et al., 2015, arXiv:1512.03385), ResNeXt and wide ResNet, with torchvision's names of parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

DEPTHS = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}
"""Of each name whether the blocks have bottlenecks, and the number of blocks of each stage."""


def downsampling(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, groups: int, group_width: int) -> None:
        super().__init__()
        assert groups == 1
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsampling(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return torch.relu(y)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, groups: int, group_width: int) -> None:
        super().__init__()
        inner = width * group_width // 64 * groups
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsampling(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """(N, 3, H, W) to (N, classes). `width` channels in the first stage; 64 in the published networks."""

    def __init__(
        self,
        blocks: tuple[int, ...],
        *,
        bottleneck: bool,
        width: int = 64,
        groups: int = 1,
        group_width: int = 64,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        kind = Bottleneck if bottleneck else Basic
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = width
        for index, count in enumerate(blocks):
            stage = nn.Sequential()
            for block in range(count):
                stride = 2 if index > 0 and block == 0 else 1
                stage.append(kind(inputs, width << index, stride, groups, group_width))
                inputs = (width << index) * kind.expansion
            self.add_module(f"layer{index + 1}", stage)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet(name: str, **options: int) -> ResNet:
    bottleneck, blocks = DEPTHS[name]
    return ResNet(blocks, bottleneck=bottleneck, **options)
