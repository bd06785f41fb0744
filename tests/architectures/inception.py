# SPDX-License-Identifier: Apache-2.0
"""Inception-v3 (Szegedy et al., 2015, arXiv:1512.00567), with torchvision's parameter names.

Without the auxiliary classifier, which inference does not use.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the usual name)


class Conv(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int | tuple[int, int], **geometry: object) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, bias=False, **geometry)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class A(nn.Module):
    """Branches 1x1, 5x5, two 3x3, and pooling, at full size."""

    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(inputs, 64, 1)
        self.branch5x5_1 = Conv(inputs, 48, 1)
        self.branch5x5_2 = Conv(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = Conv(inputs, 64, 1)
        self.branch3x3dbl_2 = Conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = Conv(96, 96, 3, padding=1)
        self.branch_pool = Conv(inputs, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch5x5_2(self.branch5x5_1(x)),
                self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x))),
                self.branch_pool(F.avg_pool2d(x, 3, 1, 1)),
            ],
            1,
        )


class B(nn.Module):
    """Reduction to half the size."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = Conv(inputs, 384, 3, stride=2)
        self.branch3x3dbl_1 = Conv(inputs, 64, 1)
        self.branch3x3dbl_2 = Conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = Conv(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, 2)], 1)


class C(nn.Module):
    """7x7 factored into 1x7 and 7x1."""

    def __init__(self, inputs: int, inner: int) -> None:
        super().__init__()
        wide, high = {"kernel": (1, 7), "padding": (0, 3)}, {"kernel": (7, 1), "padding": (3, 0)}
        self.branch1x1 = Conv(inputs, 192, 1)
        self.branch7x7_1 = Conv(inputs, inner, 1)
        self.branch7x7_2 = Conv(inner, inner, **wide)
        self.branch7x7_3 = Conv(inner, 192, **high)
        self.branch7x7dbl_1 = Conv(inputs, inner, 1)
        self.branch7x7dbl_2 = Conv(inner, inner, **high)
        self.branch7x7dbl_3 = Conv(inner, inner, **wide)
        self.branch7x7dbl_4 = Conv(inner, inner, **high)
        self.branch7x7dbl_5 = Conv(inner, 192, **wide)
        self.branch_pool = Conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x))),
                self.branch7x7dbl_5(self.branch7x7dbl_4(double)),
                self.branch_pool(F.avg_pool2d(x, 3, 1, 1)),
            ],
            1,
        )


class D(nn.Module):
    """Second reduction to half the size."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1 = Conv(inputs, 192, 1)
        self.branch3x3_2 = Conv(192, 320, 3, stride=2)
        self.branch7x7x3_1 = Conv(inputs, 192, 1)
        self.branch7x7x3_2 = Conv(192, 192, (1, 7), padding=(0, 3))
        self.branch7x7x3_3 = Conv(192, 192, (7, 1), padding=(3, 0))
        self.branch7x7x3_4 = Conv(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        deep = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([self.branch3x3_2(self.branch3x3_1(x)), deep, F.max_pool2d(x, 3, 2)], 1)


class E(nn.Module):
    """3x3 split into parallel 1x3 and 3x1."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        wide, high = {"kernel": (1, 3), "padding": (0, 1)}, {"kernel": (3, 1), "padding": (1, 0)}
        self.branch1x1 = Conv(inputs, 320, 1)
        self.branch3x3_1 = Conv(inputs, 384, 1)
        self.branch3x3_2a = Conv(384, 384, **wide)
        self.branch3x3_2b = Conv(384, 384, **high)
        self.branch3x3dbl_1 = Conv(inputs, 448, 1)
        self.branch3x3dbl_2 = Conv(448, 384, 3, padding=1)
        self.branch3x3dbl_3a = Conv(384, 384, **wide)
        self.branch3x3dbl_3b = Conv(384, 384, **high)
        self.branch_pool = Conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        single = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        return torch.cat(
            [
                self.branch1x1(x),
                torch.cat([self.branch3x3_2a(single), self.branch3x3_2b(single)], 1),
                torch.cat([self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)], 1),
                self.branch_pool(F.avg_pool2d(x, 3, 1, 1)),
            ],
            1,
        )


class Inception3(nn.Module):
    """(N, 3, H, W), at least 75 pixels each, to (N, classes)."""

    def __init__(self, *, classes: int = 1000) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = Conv(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = Conv(32, 32, 3)
        self.Conv2d_2b_3x3 = Conv(32, 64, 3, padding=1)
        self.maxpool1 = nn.MaxPool2d(3, 2)
        self.Conv2d_3b_1x1 = Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = Conv(80, 192, 3)
        self.maxpool2 = nn.MaxPool2d(3, 2)
        self.Mixed_5b = A(192, 32)
        self.Mixed_5c = A(256, 64)
        self.Mixed_5d = A(288, 64)
        self.Mixed_6a = B(288)
        self.Mixed_6b = C(768, 128)
        self.Mixed_6c = C(768, 160)
        self.Mixed_6d = C(768, 160)
        self.Mixed_6e = C(768, 192)
        self.Mixed_7a = D(768)
        self.Mixed_7b = E(1280)
        self.Mixed_7c = E(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout()
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        for layer in list(self.children())[:-1]:  # in the order in which they run
            x = layer(x)
        return self.fc(torch.flatten(x, 1))
