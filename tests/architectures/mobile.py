# SPDX-License-Identifier: Apache-2.0
"""MobileNetV3 (Howard et al., 2019, arXiv:1905.02244) and EfficientNet-B0 (Tan and Le, 2019, arXiv:1905.11946),
with torchvision's parameter names.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .mobilenet import multiple_of_8

# kernel, expanded channels, channels, squeeze-and-excitation, hard swish, stride: tables 1 and 2 of the first paper
LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
SMALL = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)
# expansion, kernel, channels, blocks, stride of the first block: table 1 of the second paper
B0 = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)
Activation = Callable[[], nn.Module]


class SqueezeExcitation(nn.Module):
    """Scale each channel by a function of the means of all of them."""

    def __init__(self, channels: int, squeezed: int, activation: Activation, gate: Activation) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = activation()
        self.scale_activation = gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


def convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    activation: Activation | None,
    epsilon: float,
    *,
    stride: int = 1,
    groups: int = 1,
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=epsilon),
    ]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class Block(nn.Module):
    """Expansion, depth-wise convolution, squeeze-and-excitation, projection, and the sum with the source if it fits."""

    def __init__(
        self,
        inputs: int,
        inner: int,
        outputs: int,
        kernel: int,
        *,
        stride: int,
        activation: Activation,
        epsilon: float,
        squeeze: SqueezeExcitation | None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [convolution(inputs, inner, 1, activation, epsilon)] if inner != inputs else []
        layers.append(convolution(inner, inner, kernel, activation, epsilon, stride=stride, groups=inner))
        if squeeze:
            layers.append(squeeze)
        layers.append(convolution(inner, outputs, 1, None, epsilon))
        self.block = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.residual else self.block(x)


class Classifier(nn.Module):
    """(N, 3, H, W) to (N, classes): features, their means, and fully connected layers."""

    def __init__(self, features: nn.Sequential, *layers: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def mobilenet_v3_large(*, classes: int = 1000) -> Classifier:
    return _mobilenet_v3(LARGE, 960, 1280, classes)


def mobilenet_v3_small(*, classes: int = 1000) -> Classifier:
    return _mobilenet_v3(SMALL, 576, 1024, classes)


def _mobilenet_v3(
    blocks: tuple[tuple[int, int, int, bool, bool, int], ...], last: int, hidden: int, classes: int
) -> Classifier:
    epsilon = 1e-3
    features = nn.Sequential(convolution(3, 16, 3, nn.Hardswish, epsilon, stride=2))
    inputs = 16
    for kernel, inner, outputs, squeezes, swishes, stride in blocks:
        squeeze = SqueezeExcitation(inner, multiple_of_8(inner / 4), nn.ReLU, nn.Hardsigmoid) if squeezes else None
        activation = nn.Hardswish if swishes else nn.ReLU
        features.append(
            Block(
                inputs, inner, outputs, kernel, stride=stride, activation=activation, epsilon=epsilon, squeeze=squeeze
            )
        )
        inputs = outputs
    features.append(convolution(inputs, last, 1, nn.Hardswish, epsilon))
    return Classifier(features, nn.Linear(last, hidden), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(hidden, classes))


def efficientnet_b0(*, classes: int = 1000) -> Classifier:
    epsilon = 1e-5
    features = nn.Sequential(convolution(3, 32, 3, nn.SiLU, epsilon, stride=2))
    inputs = 32
    for expansion, kernel, outputs, count, first in B0:
        stage = nn.Sequential()
        for i in range(count):
            inner = inputs * expansion
            stage.append(
                Block(
                    inputs,
                    inner,
                    outputs,
                    kernel,
                    stride=1 if i else first,
                    activation=nn.SiLU,
                    epsilon=epsilon,
                    squeeze=SqueezeExcitation(inner, inputs // 4, nn.SiLU, nn.Sigmoid),
                )
            )
            inputs = outputs
        features.append(stage)
    features.append(convolution(inputs, 1280, 1, nn.SiLU, epsilon))
    return Classifier(features, nn.Dropout(0.2), nn.Linear(1280, classes))
