# SPDX-License-Identifier: Apache-2.0
"""SqueezeNet (Iandola et al., 2016, arXiv:1602.07360), 1.0 and 1.1.

Names and numbers: pytorch/vision, torchvision/models/squeezenet.py: features is a chain of a convolution with stride 2
and no padding, a ReLU, then Fire modules (squeeze, expand1x1, expand3x3) and poolings of 3x3 with stride 2 and
ceil_mode, numbered in the names: missing numbers after the ReLU are poolings. classifier.1 is a 1x1 convolution,
followed by a ReLU and a mean per channel.
"""

from __future__ import annotations

import re

from ..ops import pooling, shape
from .layers import Family, Layers, Naming, Pair


def _fires(layers: Layers) -> list[int]:
    pattern = re.compile(re.escape(layers.prefix) + r"features\.(\d{1,4})\.squeeze\.weight")
    matches = map(pattern.fullmatch, layers.shapes)
    return sorted(int(match[1]) for match in matches if match)


def variant(layers: Layers) -> str:
    """Return torchvision's name of the network, if any."""
    pooled = [number for number in range(2, _fires(layers)[-1]) if number not in _fires(layers)]
    names: dict[tuple[int, tuple[int, ...]], str] = {(7, (2, 6, 11)): "squeezenet1_0", (3, (2, 5, 8)): "squeezenet1_1"}
    return names.get((layers.shape("features.0", rank=4)[2], tuple(pooled)), "squeezenet")


def write(layers: Layers, size: Pair) -> None:
    """Write the network: logits, or the last features, an image, without a classifier."""
    builder = layers.builder
    x = builder.input("input", (layers.shape("features.0", rank=4)[1], *size))
    x = layers.activation(layers.convolution(x, "features.0", stride=2, padding=0), "relu")
    fires = _fires(layers)
    for number in range(2, fires[-1] + 1):
        name = f"features.{number}"
        if number not in fires:
            with layers.node(name, "MaxPool2d"):
                x = pooling.max_pool2d(builder, x, (3, 3), (2, 2), ceil_mode=True)
            continue
        x = layers.activation(layers.convolution(x, f"{name}.squeeze"), "relu")
        expanded = [
            layers.activation(layers.convolution(x, f"{name}.{part}"), "relu") for part in ("expand1x1", "expand3x3")
        ]
        with layers.node(name, "cat"):
            x = shape.cat(builder, expanded, 1)
    if layers.has("classifier.1"):
        x = layers.activation(layers.convolution(x, "classifier.1"), "relu")
        builder.output("logits", layers.global_average(x))
    else:
        builder.output("features", x)


FAMILY = Family(
    "squeezenet",
    (Naming("torchvision", ("features.0.weight", "features.3.squeeze.weight", "features.3.expand3x3.weight")),),
    write,
    variant,
)
