# SPDX-License-Identifier: Apache-2.0
"""MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381) of any width.

Names and numbers:

* pytorch/vision, torchvision/models/mobilenetv2.py: features.0.0 and .1 (norm); features.1.conv.0.0 (depth-wise),
  .0.1, .1, .2; others .conv.0.0, .0.1, .1.0 (depth-wise), .1.1, .2, .3; features.18.0, .1; classifier.1. BatchNorm2d's
  epsilon, 1e-5; padding 1.
* huggingface/pytorch-image-models, timm/models/efficientnet.py (_gen_mobilenet_v2), _efficientnet_blocks.py: conv_stem,
  bn1, blocks.stage.block.conv_pw, bn1, conv_dw, bn2, conv_pwl, bn3, and in the first stage conv_dw, bn1, conv_pw, bn2;
  conv_head, bn2, classifier. BatchNorm2d's epsilon, 1e-5: these models set no bn_eps.
* huggingface/transformers, models/mobilenet_v2: mobilenet_v2.conv_stem.first_conv, .conv_3x3, .reduce_1x1,
  layer.0.expand_1x1, .conv_3x3, .reduce_1x1, conv_1x1, each with .convolution and .normalization; classifier. The
  first block, conv_stem, has no residual. layer_norm_eps 0.001, tf_padding (TensorFlow's "same"), output_stride (the
  max stride; further convolutions are dilated).
* Blocks of each stage and strides: table 2 of the paper, the same in all three.
"""

from __future__ import annotations

import re

from ...errors import InvalidModelError
from ..builder import Tensor
from .layers import Family, Layers, Naming, Pair

COUNTS = (1, 2, 3, 4, 3, 3, 1)
CHANNELS = (16, 24, 32, 64, 96, 160, 320)
STRIDES = (1, 2, 2, 2, 1, 2, 1)

# Our names: stem.conv, stem.norm; stage.block.expand.conv, .depthwise, .project; head.conv, head.norm; classifier.
_BLOCK = re.compile(r"(\d+)\.(\d+)\.(expand|depthwise|project)\.(conv|norm)")


def _index(stage: int, block: int) -> int:
    return sum(COUNTS[:stage]) + block


def _torchvision(layer: str) -> str:
    match = _BLOCK.fullmatch(layer)
    if match is None:
        last = sum(COUNTS) + 1
        names = {"stem": "features.0.", "head": f"features.{last}."}
        part, _, kind = layer.partition(".")
        return names[part] + ("0" if kind == "conv" else "1") if part in names else "classifier.1"
    stage, block, part, kind = int(match[1]), int(match[2]), match[3], match[4]
    place = f"features.{_index(stage, block) + 1}.conv."
    order = ("depthwise", "project") if stage == 0 else ("expand", "depthwise", "project")
    if part not in order:
        return place + "none"
    number = order.index(part)
    if part == "project":
        return f"{place}{number if kind == 'conv' else number + 1}"
    return f"{place}{number}.{0 if kind == 'conv' else 1}"


def _timm(layer: str) -> str:
    names = {"stem.conv": "conv_stem", "stem.norm": "bn1", "head.conv": "conv_head", "head.norm": "bn2"}
    match = _BLOCK.fullmatch(layer)
    if match is None:
        return names.get(layer, layer)
    stage, block, part, kind = match.groups()
    if stage == "0":
        parts = {"depthwise": ("conv_dw", "bn1"), "project": ("conv_pw", "bn2"), "expand": ("none", "none")}
    else:
        parts = {"expand": ("conv_pw", "bn1"), "depthwise": ("conv_dw", "bn2"), "project": ("conv_pwl", "bn3")}
    return f"blocks.{stage}.{block}.{parts[part][kind == 'norm']}"


def _transformers(layer: str, root: str = "mobilenet_v2.") -> str:
    if layer == "classifier":
        return layer
    match = _BLOCK.fullmatch(layer)
    if match is None:
        part, _, kind = layer.partition(".")
        name = {"stem": "conv_stem.first_conv", "head": "conv_1x1"}[part]
    else:
        stage, block, part, kind = int(match[1]), int(match[2]), match[3], match[4]
        parts = {"expand": "expand_1x1", "depthwise": "conv_3x3", "project": "reduce_1x1"}
        place = "conv_stem" if stage == 0 else f"layer.{_index(stage, block) - 1}"
        name = f"{place}.{parts[part]}"
    return f"{root}{name}.{'convolution' if kind == 'conv' else 'normalization'}"


def _backbone(layer: str) -> str:
    return _transformers(layer, "")


def _blocks(layers: Layers, stage: int) -> int:
    """Count the blocks of a stage. Only timm has networks of other depths, and stages in its names."""
    count = 0
    while layers.has(f"{stage}.{count}.depthwise.conv") and (
        count < COUNTS[stage] or layers.full("stem.conv").endswith("conv_stem.weight")
    ):
        count += 1
    return count


def fits(layers: Layers) -> bool:
    """Return whether kernels are 3x3, blocks expand channels six times, and widths are a multiple of the table's.

    timm's MNASNet, FBNet and others have the same names, but other activations.
    """
    if not layers.has("6.0.project.conv"):
        return True  # a tensor is missing, which raises an error later
    multiplier = layers.shape("6.0.project.conv", rank=4)[0] / CHANNELS[-1]
    channels = 0
    for stage, expected in enumerate(CHANNELS):
        for block in range(_blocks(layers, stage)):
            name = f"{stage}.{block}"
            inner, _, height, width = layers.shape(f"{name}.depthwise.conv", rank=4)
            if (height, width) != (3, 3) or (stage > 0 and inner != 6 * channels):
                return False
            channels = layers.shape(f"{name}.project.conv", rank=4)[0]
            if abs(channels - expected * multiplier) > max(8, 0.15 * channels):  # multiples of 8
                return False
    return True


def variant(layers: Layers) -> str:
    """Return the name with the width multiplier: channels of the last stage over 320, those of the paper's table."""
    channels = layers.shape("6.0.project.conv", rank=4)[0]
    return "mobilenet_v2" if channels == 320 else f"mobilenet_v2_{channels / 320:.2f}"


def write(
    layers: Layers,
    size: Pair,
    *,
    epsilon: float = 1e-5,
    activation: str = "relu6",
    tf_padding: bool = False,
    output_stride: int = 32,
    first_residual: bool = True,
) -> None:
    """Write the network: logits, or pooled features without a classifier.

    `first_residual`: the first block also has a residual if its numbers of channels are equal, in narrow networks.
    """
    if output_stride not in (8, 16, 32):
        raise InvalidModelError(f"output_stride ({output_stride}) is not one of 8, 16, 32.")
    builder = layers.builder
    padding = "same" if tf_padding else None

    def layer(
        x: Tensor, name: str, *, stride: int = 1, dilation: int = 1, groups: int = 1, active: bool = True
    ) -> Tensor:
        x = layers.convolution(x, f"{name}.conv", stride=stride, padding=padding, dilation=dilation, groups=groups)
        x = layers.batch_norm(x, f"{name}.norm", epsilon)
        return layers.activation(x, activation) if active else x

    channels = layers.shape("stem.conv", rank=4)[1]
    x = layer(builder.input("input", (channels, *size)), "stem", stride=2)
    reduced, dilation = 2, 1
    for stage, step in enumerate(STRIDES):
        count = _blocks(layers, stage)
        if count == 0:
            raise InvalidModelError(
                f'tensor "{layers.full(f"{stage}.0.depthwise.conv")}" is missing: {layers.what} has it.'
            )
        for block in range(count):
            name, source = f"{stage}.{block}", x
            wanted = step if block == 0 else 1
            stride, spread = wanted, 1
            if reduced == output_stride:
                stride, spread = 1, dilation
                dilation *= wanted
            reduced *= stride
            if stage > 0 or layers.has(f"{name}.expand.conv"):
                x = layer(x, f"{name}.expand")
            x = layer(x, f"{name}.depthwise", stride=stride, dilation=spread, groups=x.channels)
            x = layer(x, f"{name}.project", active=False)
            if (stage > 0 or first_residual) and stride == 1 and source.channels == x.channels:
                x = layers.add(source, x, f"{name}.project.conv")
    x = layers.global_average(layer(x, "head"))
    if layers.has("classifier"):
        builder.output("logits", layers.linear(x, "classifier"))
    else:
        builder.output("features", x)


HUGGING_FACE = {"epsilon": 1e-3, "tf_padding": True, "first_residual": False}

FAMILY = Family(
    "mobilenet_v2",
    (
        Naming(
            "torchvision",
            ("features.0.0.weight", "features.1.conv.1.weight", "features.18.0.weight"),
            _torchvision,
            fits=fits,
        ),
        Naming(
            "timm", ("conv_stem.weight", "blocks.0.0.conv_dw.weight", "blocks.1.0.conv_pwl.weight"), _timm, fits=fits
        ),
        Naming("transformers", ("mobilenet_v2.conv_stem.first_conv.convolution.weight",), _transformers, HUGGING_FACE),
        Naming("transformers", ("conv_stem.first_conv.convolution.weight",), _backbone, HUGGING_FACE),
    ),
    write,
    variant,
    config={
        "hidden_act": "activation",
        "layer_norm_eps": "epsilon",
        "tf_padding": "tf_padding",
        "output_stride": "output_stride",
    },
)
