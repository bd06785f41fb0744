# SPDX-License-Identifier: Apache-2.0
"""A detector similar to YOLOv3-tiny (Redmon and Farhadi, 2018, arXiv:1804.02767): two maps, not decoded."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def convolution(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1, inplace=True),
    )


class YOLOTiny(nn.Module):
    """(N, 3, H, W), multiples of 32, to (N, anchors * (5 + classes), H / 32, W / 32) and the same at H / 16.

    The pooling of stride 1 keeps the size by padding a row and a column at the bottom right: with zeros as ultralytics'
    version does (`border="zero"`), or without changing any maximum as darknet does ("replicate").
    """

    def __init__(self, *, width: int = 16, classes: int = 80, anchors: int = 3, border: str = "zero") -> None:
        super().__init__()
        outputs = anchors * (5 + classes)
        self.stem = nn.Sequential(convolution(3, width, 3))
        for index in range(4):
            self.stem.append(nn.MaxPool2d(2, 2))
            self.stem.append(convolution(width << index, width << (index + 1), 3))
        last = width << 5
        self.pool = nn.MaxPool2d(2, 2)
        self.conv6 = convolution(width << 4, last, 3)
        self.pad = nn.ZeroPad2d((0, 1, 0, 1)) if border == "zero" else nn.ReplicationPad2d((0, 1, 0, 1))
        self.pool_same = nn.MaxPool2d(2, 1)
        self.conv7 = convolution(last, last * 2, 3)
        self.conv8 = convolution(last * 2, last // 2, 1)
        self.conv9 = convolution(last // 2, last, 3)
        self.large = nn.Conv2d(last, outputs, 1)
        self.reduce = convolution(last // 2, last // 4, 1)
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.conv10 = convolution(last // 4 + (width << 4), last // 2, 3)
        self.small = nn.Conv2d(last // 2, outputs, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        route = self.stem(x)
        x = self.conv6(self.pool(route))
        x = self.conv8(self.conv7(self.pool_same(self.pad(x))))
        large = self.large(self.conv9(x))
        y = torch.cat([self.upsample(self.reduce(x)), route], 1)
        return large, self.small(self.conv10(y))
