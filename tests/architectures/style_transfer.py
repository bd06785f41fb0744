# SPDX-License-Identifier: Apache-2.0
"""Fast style transfer (Johnson et al., 2016, arXiv:1603.08155), with instance normalization and upsampling.

The parameter names are those of PyTorch's example fast_neural_style.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvLayer(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, upsample: int | None = None) -> None:
        super().__init__()
        self.upsample = upsample
        self.reflection_pad = nn.ReflectionPad2d(kernel // 2)
        self.conv2d = nn.Conv2d(inputs, outputs, kernel, stride)

    def forward(self, x: Tensor) -> Tensor:
        if self.upsample is not None:
            x = nn.functional.interpolate(x, mode="nearest", scale_factor=self.upsample)
        return self.conv2d(self.reflection_pad(x))


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = ConvLayer(channels, channels, 3)
        self.in1 = nn.InstanceNorm2d(channels, affine=True)
        self.conv2 = ConvLayer(channels, channels, 3)
        self.in2 = nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.in2(self.conv2(torch.relu(self.in1(self.conv1(x))))) + x


class TransformerNet(nn.Module):
    """(N, 3, H, W) to the same shape when H and W are multiples of 4. `width` is 32 in the example."""

    def __init__(self, *, width: int = 32, blocks: int = 5) -> None:
        super().__init__()
        self.conv1 = ConvLayer(3, width, 9)
        self.in1 = nn.InstanceNorm2d(width, affine=True)
        self.conv2 = ConvLayer(width, width * 2, 3, 2)
        self.in2 = nn.InstanceNorm2d(width * 2, affine=True)
        self.conv3 = ConvLayer(width * 2, width * 4, 3, 2)
        self.in3 = nn.InstanceNorm2d(width * 4, affine=True)
        self.residuals = [f"res{index + 1}" for index in range(blocks)]
        for name in self.residuals:
            self.add_module(name, ResidualBlock(width * 4))
        self.deconv1 = ConvLayer(width * 4, width * 2, 3, upsample=2)
        self.in4 = nn.InstanceNorm2d(width * 2, affine=True)
        self.deconv2 = ConvLayer(width * 2, width, 3, upsample=2)
        self.in5 = nn.InstanceNorm2d(width, affine=True)
        self.deconv3 = ConvLayer(width, 3, 9)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.in1(self.conv1(x)))
        y = torch.relu(self.in2(self.conv2(y)))
        y = torch.relu(self.in3(self.conv3(y)))
        for name in self.residuals:
            y = self.get_submodule(name)(y)
        y = torch.relu(self.in4(self.deconv1(y)))
        y = torch.relu(self.in5(self.deconv2(y)))
        return self.deconv3(y)
