# SPDX-License-Identifier: Apache-2.0
"""U-Net (Ronneberger et al., 2015, arXiv:1505.04597) with padded convolutions, which keep the size.

Upsampling is a transposed convolution, or bilinear.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DoubleConv(nn.Module):
    def __init__(self, inputs: int, outputs: int, inner: int) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(inputs, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inputs, outputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, bilinear: bool, align_corners: bool) -> None:
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=align_corners)
            self.conv = DoubleConv(inputs, outputs, inputs // 2)
        else:
            self.up = nn.ConvTranspose2d(inputs, inputs // 2, 2, stride=2)
            self.conv = DoubleConv(inputs, outputs, outputs)

    def forward(self, x: Tensor, skipped: Tensor) -> Tensor:
        return self.conv(torch.cat([skipped, self.up(x)], dim=1))


class UNet(nn.Module):
    """(N, channels, H, W) to (N, classes, H, W); H and W are multiples of 16."""

    def __init__(
        self,
        *,
        bilinear: bool = False,
        align_corners: bool = True,
        width: int = 64,
        channels: int = 3,
        classes: int = 2,
    ) -> None:
        super().__init__()
        half = 2 if bilinear else 1
        self.inc = DoubleConv(channels, width, width)
        self.down1 = Down(width, width * 2)
        self.down2 = Down(width * 2, width * 4)
        self.down3 = Down(width * 4, width * 8)
        self.down4 = Down(width * 8, width * 16 // half)
        how = {"bilinear": bilinear, "align_corners": align_corners}
        self.up1 = Up(width * 16, width * 8 // half, **how)
        self.up2 = Up(width * 8, width * 4 // half, **how)
        self.up3 = Up(width * 4, width * 2 // half, **how)
        self.up4 = Up(width * 2, width, **how)
        self.outc = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        x = self.up1(self.down4(x4), x4)
        return self.outc(self.up4(self.up3(self.up2(x, x3), x2), x1))
