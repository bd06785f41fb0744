# SPDX-License-Identifier: Apache-2.0
"""VGG (Simonyan and Zisserman, 2014, arXiv:1409.1556), with torchvision's parameter names."""

from __future__ import annotations

from torch import Tensor, nn

COUNTS = {"vgg11": (1, 1, 2, 2, 2), "vgg13": (2, 2, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
"""Convolutions between one pooling and the next: columns A, B, D and E of the paper's table 1."""


class VGG(nn.Module):
    """(N, 3, H, W) to (N, classes). Published: `width` (channels of the first stage) 64, `hidden` 4096."""

    def __init__(
        self,
        counts: tuple[int, ...],
        *,
        batch_norm: bool = False,
        width: int = 64,
        hidden: int = 4096,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential()
        inputs = 3
        for stage, count in enumerate(counts):
            outputs = width * min(2**stage, 8)
            for _ in range(count):
                self.features.append(nn.Conv2d(inputs, outputs, 3, padding=1))
                if batch_norm:
                    self.features.append(nn.BatchNorm2d(outputs))
                self.features.append(nn.ReLU(inplace=True))
                inputs = outputs
            self.features.append(nn.MaxPool2d(2, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(inputs * 7 * 7, hidden),
            nn.ReLU(True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(True),
            nn.Dropout(0.5),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def vgg(name: str, **options: int) -> VGG:
    """`name` as in torchvision: "vgg16", "vgg16_bn"."""
    return VGG(COUNTS[name.removesuffix("_bn")], batch_norm=name.endswith("_bn"), **options)
