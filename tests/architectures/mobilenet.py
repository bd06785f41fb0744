# SPDX-License-Identifier: Apache-2.0
"""MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381), with torchvision's parameter names."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

# expansion, channels, blocks, stride of the first block: table 2 of the paper
SETTING = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def multiple_of_8(channels: float) -> int:
    """Return the nearest multiple of 8, at least 8 and at most a tenth less than `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's padding "SAME": ceil(extent / stride) results, an odd pixel at the bottom right."""

    def forward(self, x: Tensor) -> Tensor:
        pads: list[int] = []
        for extent, kernel, stride, dilation in zip(
            x.shape[2:], self.kernel_size, self.stride, self.dilation, strict=True
        ):
            total = max(((extent + stride - 1) // stride - 1) * stride + (kernel - 1) * dilation + 1 - extent, 0)
            pads = [total // 2, total - total // 2, *pads]
        return nn.functional.conv2d(
            nn.functional.pad(x, pads), self.weight, None, self.stride, 0, self.dilation, self.groups
        )


@dataclass(frozen=True)
class Kind:
    """Variants of other libraries."""

    epsilon: float = 1e-5
    same: bool = False

    def convolution(self, inputs: int, outputs: int, kernel: int, **geometry: int) -> nn.Conv2d:
        if self.same:
            return SameConv2d(inputs, outputs, kernel, bias=False, **geometry)
        padding = kernel // 2 * geometry.get("dilation", 1)
        return nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False, **geometry)


def convolution(kind: Kind, inputs: int, outputs: int, kernel: int, **geometry: int) -> nn.Sequential:
    return nn.Sequential(
        kind.convolution(inputs, outputs, kernel, **geometry),
        nn.BatchNorm2d(outputs, eps=kind.epsilon),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    def __init__(
        self, kind: Kind, inputs: int, outputs: int, expansion: int, *, stride: int = 1, dilation: int = 1
    ) -> None:
        super().__init__()
        inner = inputs * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [convolution(kind, inputs, inner, 1)]
        layers += [
            convolution(kind, inner, inner, 3, stride=stride, dilation=dilation, groups=inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs, eps=kind.epsilon),
        ]
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    """(N, 3, H, W) to (N, classes). `multiplier` scales the channels of every layer.

    Once the image is reduced to one `output_stride`th, later strides are replaced by dilation.
    """

    def __init__(
        self,
        *,
        multiplier: float = 1.0,
        classes: int = 1000,
        epsilon: float = 1e-5,
        same: bool = False,
        output_stride: int = 32,
    ) -> None:
        super().__init__()
        kind = Kind(epsilon, same)
        inputs, last = multiple_of_8(32 * multiplier), multiple_of_8(1280 * max(1.0, multiplier))
        self.features = nn.Sequential(convolution(kind, 3, inputs, 3, stride=2))
        reduced, dilation = 2, 1
        for expansion, channels, count, stride in SETTING:
            outputs = multiple_of_8(channels * multiplier)
            for block in range(count):
                step, geometry = stride if block == 0 else 1, {}
                if reduced == output_stride:
                    geometry["dilation"], dilation = dilation, dilation * step
                else:
                    geometry["stride"], reduced = step, reduced * step
                self.features.append(InvertedResidual(kind, inputs, outputs, expansion, **geometry))
                inputs = outputs
        self.features.append(convolution(kind, inputs, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(x.flatten(1))
