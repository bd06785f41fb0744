# SPDX-License-Identifier: Apache-2.0
"""ResNet, wide ResNet and ResNeXt (He et al., 2015, arXiv:1512.03385).

Names and numbers:

* pytorch/vision, torchvision/models/resnet.py: conv1, bn1, layer1.0.conv1, layer1.0.downsample.0, fc; 7x7 with stride
  2 and padding 3, 3x3 pooling with stride 2 and padding 1, stride 2 in conv2 of the first block of stages 2 to 4
  (conv1 of a block without bottleneck); BatchNorm2d's epsilon, 1e-5.
* huggingface/pytorch-image-models, timm/models/resnet.py: the same names. "Deep" stems are conv1.0, conv1.1 (norm),
  conv1.3, conv1.4 (norm), conv1.6 of 3x3, the first with stride 2. If the shortcut averages first (resnet50d), it is
  downsample.1 and downsample.2 after a 2x2 average with ceil_mode and without counting padding. A 3x3 shortcut is
  padded by timm/layers/padding.py: (stride - 1 + kernel - 1) // 2.
* huggingface/transformers, models/resnet/modeling_resnet.py and configuration_resnet.py: resnet.embedder.embedder,
  resnet.encoder.stages.0.layers.0.layer.0, .shortcut, each with .convolution and .normalization, classifier.1;
  hidden_act (of the stem and after the sums; ReLU inside of the blocks), downsample_in_first_stage,
  downsample_in_bottleneck.

Networks with blurred strides (timm's resnetaa, resnetblur) or with dilation instead of strides have the same names and
shapes, so the tensors do not distinguish them. They are rejected if timm's config.json names them.
"""

from __future__ import annotations

import re

from ...errors import InvalidModelError
from ..builder import Tensor
from ..ops import pooling
from .layers import Family, Layers, Naming, Pair

DEPTHS: dict[tuple[bool, tuple[int, ...]], str] = {
    (False, (1, 1, 1, 1)): "resnet10",
    (False, (2, 2, 2, 2)): "resnet18",
    (False, (3, 4, 6, 3)): "resnet34",
    (True, (1, 1, 1, 1)): "resnet14",
    (True, (2, 2, 2, 2)): "resnet26",
    (True, (3, 4, 6, 3)): "resnet50",
    (True, (3, 4, 23, 3)): "resnet101",
    (True, (3, 8, 36, 3)): "resnet152",
}


def _transformers(layer: str, root: str = "resnet.") -> str:
    stem = {"conv1": "embedder.embedder.convolution", "bn1": "embedder.embedder.normalization"}
    if layer == "fc":
        return "classifier.1"
    if layer in stem:
        return root + stem[layer]
    match = re.fullmatch(r"layer(\d+)\.(\d+)(?:\.(conv|bn|downsample\.)(\d+))?", layer)
    if match is None:
        return root + layer
    stage, block, kind, index = match.groups()
    place = f"{root}encoder.stages.{int(stage) - 1}.layers.{block}"
    if kind is None:
        return place
    if kind == "downsample.":
        return f"{place}.shortcut.{('convolution', 'normalization')[int(index)]}" if int(index) < 2 else f"{place}.none"
    return f"{place}.layer.{int(index) - 1}.{'convolution' if kind == 'conv' else 'normalization'}"


def _backbone(layer: str) -> str:
    return _transformers(layer, "")


def depths(layers: Layers) -> tuple[bool, tuple[int, ...]]:
    """Return whether the blocks have bottlenecks, and the number of blocks of each stage."""
    counts: list[int] = []
    while layers.has(f"layer{len(counts) + 1}.0.conv1"):
        stage, count = len(counts) + 1, 1
        while layers.has(f"layer{stage}.{count}.conv1"):
            count += 1
        counts.append(count)
    return layers.has("layer1.0.conv3"), tuple(counts)


def _groups(layers: Layers, block: str) -> int:
    inner, per_group = layers.shape(f"{block}.conv1", rank=4)[0], layers.shape(f"{block}.conv2", rank=4)[1]
    if per_group < 1 or inner % per_group:
        raise InvalidModelError(
            f'tensor "{layers.full(block + ".conv2")}" takes {per_group} channels, no divisor of the {inner} before it.'
        )
    return inner // per_group


def _suffix(layers: Layers) -> str:
    """Return timm's letter for a deep stem [docstring of timm's ResNet]."""
    if not layers.has("conv1.0"):
        return ""
    first, second = layers.shape("conv1.0", rank=4)[0], layers.shape("conv1.3", rank=4)[0]
    averaged = layers.has("layer2.0.downsample.2")
    if first != second:
        return "t" if averaged else "_deep"
    return {(32, False): "c", (32, True): "d", (64, True): "e", (64, False): "s"}.get((first, averaged), "_deep")


def variant(layers: Layers) -> str:
    """Return torchvision's or timm's name of the network, if any."""
    kind = depths(layers)
    if kind not in DEPTHS:
        return "resnet"
    name = DEPTHS[kind] + _suffix(layers)
    if not kind[0]:
        return name
    groups = _groups(layers, "layer1.0")
    inner, outputs = layers.shape("layer1.0.conv1")[0], layers.shape("layer1.0.conv3")[0]
    if groups > 1:
        return f"resnext{name.removeprefix('resnet')}_{groups}x{inner // groups}d"
    return name if inner * 4 == outputs else f"wide_{name}_{inner * 4 // outputs}"


def write(
    layers: Layers,
    size: Pair,
    *,
    epsilon: float = 1e-5,
    activation: str = "relu",
    inner_activation: str = "",
    downsample_in_first_stage: bool = False,
    downsample_in_bottleneck: bool = False,
) -> None:
    """Write the network: logits, or pooled features without a classifier.

    `inner_activation` is used inside of the blocks; "": the same as `activation`.
    """
    builder = layers.builder
    deep = layers.has("conv1.0")
    first = "conv1.0" if deep else "conv1"
    _, channels, height, width = layers.shape(first, rank=4)
    if (height, width) != ((3, 3) if deep else (7, 7)):
        raise InvalidModelError(
            f'tensor "{layers.full(first)}" is a convolution of {height} x {width} pixels: its stride is not known.'
        )
    x = builder.input("input", (channels, *size))
    x = layers.convolution(x, first, stride=2)
    if deep:
        for norm, conv in (("conv1.1", "conv1.3"), ("conv1.4", "conv1.6")):
            x = layers.activation(layers.batch_norm(x, norm, epsilon), activation)
            x = layers.convolution(x, conv)
    x = layers.activation(layers.batch_norm(x, "bn1", epsilon), activation)
    with layers.node("maxpool", "MaxPool2d"):
        x = pooling.max_pool2d(builder, x, (3, 3), (2, 2), (1, 1))

    bottleneck, counts = depths(layers)
    for stage, count in enumerate(counts, 1):
        for block in range(count):
            stride = 2 if block == 0 and (stage > 1 or downsample_in_first_stage) else 1
            name = f"layer{stage}.{block}"
            strides = [1, stride, 1] if bottleneck else [stride, 1]
            if bottleneck and downsample_in_bottleneck:
                strides = [stride, 1, 1]
            x = _block(layers, x, name, strides, epsilon, activation, inner_activation or activation)
    x = layers.global_average(x)
    if layers.has("fc"):
        builder.output("logits", layers.linear(x, "fc"))
    else:
        builder.output("features", x)


def _block(
    layers: Layers, x: Tensor, name: str, strides: list[int], epsilon: float, activation: str, inner: str
) -> Tensor:
    y = x
    kernels = (1, 3, 1) if len(strides) == 3 else (3, 3)
    for index, stride in enumerate(strides, 1):
        kernel = layers.shape(f"{name}.conv{index}", rank=4)[2:]
        if kernel != (kernels[index - 1],) * 2:
            raise InvalidModelError(
                f'tensor "{layers.full(f"{name}.conv{index}")}" is a convolution of {kernel[0]} x {kernel[1]} pixels;'
                f" {layers.what} has it with {kernels[index - 1]} x {kernels[index - 1]}."
            )
        groups = _groups(layers, name) if index == 2 else 1
        y = layers.convolution(y, f"{name}.conv{index}", stride=stride, groups=groups)
        y = layers.batch_norm(y, f"{name}.bn{index}", epsilon)
        if index < len(strides):
            y = layers.activation(y, inner)
    stride = max(strides)
    averaged = not layers.has(f"{name}.downsample.0")
    conv, norm = (f"{name}.downsample.{index + averaged}" for index in (0, 1))
    if layers.has(conv):
        if averaged and stride > 1:
            with layers.node(f"{name}.downsample.0", "AvgPool2d"):
                x = pooling.avg_pool2d(
                    layers.builder, x, (2, 2), (stride, stride), ceil_mode=True, count_include_pad=False
                )
            stride = 1
        extent = layers.shape(conv, rank=4)[2]
        x = layers.convolution(x, conv, stride=stride, padding=(stride - 1 + extent - 1) // 2)
        x = layers.batch_norm(x, norm, epsilon)
    elif stride > 1:
        raise InvalidModelError(f'tensor "{layers.full(name + ".downsample.0")}" is missing: {layers.what} has it.')
    return layers.activation(layers.add(y, x, name), activation)


HUGGING_FACE = {"inner_activation": "relu"}

FAMILY = Family(
    "resnet",
    (
        Naming("torchvision or timm", ("layer1.0.conv1.weight", "layer1.0.bn1.weight", "bn1.weight")),
        Naming(
            "transformers",
            ("resnet.encoder.stages.0.layers.0.layer.0.convolution.weight",),
            _transformers,
            HUGGING_FACE,
        ),
        Naming(
            "transformers",
            ("encoder.stages.0.layers.0.layer.0.convolution.weight", "embedder.embedder.convolution.weight"),
            _backbone,
            HUGGING_FACE,
        ),
    ),
    write,
    variant,
    config={
        "hidden_act": "activation",
        "downsample_in_first_stage": "downsample_in_first_stage",
        "downsample_in_bottleneck": "downsample_in_bottleneck",
    },
    refused=r".*(aa|blur)\d.*",
)
