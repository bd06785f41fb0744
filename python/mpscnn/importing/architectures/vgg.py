# SPDX-License-Identifier: Apache-2.0
"""VGG (Simonyan and Zisserman, 2014, arXiv:1409.1556), with and without batch normalization.

Names and numbers:

* pytorch/vision, torchvision/models/vgg.py: features is a chain of 3x3 convolutions with padding 1 (each followed by a
  ReLU, possibly after a BatchNorm2d) and 2x2 poolings, numbered in the names: a missing number besides the ReLU's is a
  pooling. Adaptive average pooling to 7x7, then classifier.0, .3 and .6.
* huggingface/pytorch-image-models, timm/models/vgg.py: the same features; pre_logits.fc1 and pre_logits.fc2 are 7x7 and
  1x1 convolutions, the means of whose results are the input of head.fc. Features of less than 7x7 pixels are first
  enlarged by adaptive average pooling.
"""

from __future__ import annotations

import re

from ...errors import InvalidModelError
from ..builder import Tensor
from ..ops import pooling
from .layers import Family, Layers, Naming, Pair

NAMES: dict[tuple[int, ...], str] = {
    (1, 1, 2, 2, 2): "vgg11",
    (2, 2, 2, 2, 2): "vgg13",
    (2, 2, 3, 3, 3): "vgg16",
    (2, 2, 4, 4, 4): "vgg19",
}


def _convolutions(layers: Layers) -> list[int]:
    """Return the convolutions' numbers in the chain."""
    pattern = re.compile(re.escape(layers.prefix) + r"features\.(\d{1,4})\.weight")
    matches = [(pattern.fullmatch(name), shape) for name, shape in layers.shapes.items()]
    return sorted(int(match[1]) for match, shape in matches if match and len(shape) == 4)


def _stages(layers: Layers) -> list[list[int]]:
    """Return the numbers of the convolutions between poolings."""
    numbers = _convolutions(layers)
    stages: list[list[int]] = [[]]
    for number, following in zip(numbers, [*numbers[1:], None], strict=True):
        stages[-1].append(number)
        behind = number + (3 if layers.has(f"features.{number + 1}") else 2)
        if following == behind + 1:
            stages.append([])
        elif following not in (behind, None):
            raise InvalidModelError(
                f'tensor "{layers.full(f"features.{number}")}" and the next one, features.{following}, are not as far'
                f" apart as in {layers.what}."
            )
    return stages


def fits(layers: Layers) -> bool:
    """Return whether all convolutions are 3x3 and start at number 0, unlike AlexNet, which has the same names."""
    numbers = _convolutions(layers)
    return bool(numbers) and numbers[0] == 0 and all(layers.shape(f"features.{n}")[2:] == (3, 3) for n in numbers)


def variant(layers: Layers) -> str:
    """Return torchvision's name of the network, if any."""
    name = NAMES.get(tuple(len(stage) for stage in _stages(layers)), "vgg")
    return f"{name}_bn" if layers.has("features.1") else name


def write(layers: Layers, size: Pair, *, epsilon: float = 1e-5) -> None:
    """Write the network: logits, or the last features, an image, without a classifier.

    With torchvision's classifier height and width are fixed.
    """
    builder = layers.builder
    x = builder.input("input", (layers.shape("features.0", rank=4)[1], *size))
    for stage in _stages(layers):
        for number in stage:
            x = layers.convolution(x, f"features.{number}")
            if layers.has(f"features.{number + 1}"):
                x = layers.batch_norm(x, f"features.{number + 1}", epsilon)
            x = layers.activation(x, "relu")
        with layers.node("features.pool", "MaxPool2d"):
            x = pooling.max_pool2d(builder, x, (2, 2))
    if layers.has("classifier.0"):
        with layers.node("avgpool", "AdaptiveAvgPool2d"):
            x = pooling.adaptive_avg_pool2d(builder, x, (7, 7))
        for number in (0, 3):
            x = layers.activation(layers.linear(x, f"classifier.{number}"), "relu")
        builder.output("logits", layers.linear(x, "classifier.6"))
    elif layers.has("pre_logits.fc1"):
        builder.output("logits", _timm_head(layers, x))
    else:
        builder.output("features", x)


def _timm_head(layers: Layers, x: Tensor) -> Tensor:
    kernel = layers.shape("pre_logits.fc1", rank=4)[2]
    if x.height < kernel or x.width < kernel:
        with layers.node("pre_logits", "AdaptiveAvgPool2d"):
            x = pooling.adaptive_avg_pool2d(layers.builder, x, (max(kernel, x.height), max(kernel, x.width)))
    for name in ("pre_logits.fc1", "pre_logits.fc2"):
        x = layers.activation(layers.convolution(x, name, padding=0), "relu")
    return layers.linear(layers.global_average(x), "head.fc")


FAMILY = Family(
    "vgg", (Naming("torchvision or timm", ("features.0.weight", "features.0.bias"), fits=fits),), write, variant
)
