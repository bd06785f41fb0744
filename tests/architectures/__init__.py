# SPDX-License-Identifier: Apache-2.0
"""Networks for tests of importers, in plain PyTorch, with torchvision's parameter names where torchvision has them.

`build` draws seeded weights that keep the magnitude of activations about constant from layer to layer, so that
differences between two implementations can be told from rounding. Options that make a network smaller are arguments of
its class; `ARCHITECTURES` maps each name to the options used by tests and a suitable input shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import densenet, espcn, inception, mobile, mobilenet, resnet, squeezenet, style_transfer, unet, vgg, yolo_tiny


@dataclass(frozen=True)
class Architecture:
    """A network and its small case: `shape` is one image's (C, H, W), `small` the options."""

    make: Callable[..., nn.Module]
    shape: tuple[int, int, int]
    small: dict[str, Any] = field(default_factory=dict)


ARCHITECTURES: dict[str, Architecture] = {
    **{
        name: Architecture(partial(resnet.resnet, name), (3, 64, 64), {"width": 16, "classes": 10})
        for name in resnet.DEPTHS
    },
    "resnext50_32x4d": Architecture(
        partial(resnet.resnet, "resnet50", groups=32, group_width=4), (3, 64, 64), {"classes": 10}
    ),
    "wide_resnet50_2": Architecture(
        partial(resnet.resnet, "resnet50", group_width=128), (3, 64, 64), {"width": 16, "classes": 10}
    ),
    "mobilenet_v2": Architecture(mobilenet.MobileNetV2, (3, 64, 64), {"classes": 10}),
    "mobilenet_v3_large": Architecture(mobile.mobilenet_v3_large, (3, 64, 64), {"classes": 10}),
    "mobilenet_v3_small": Architecture(mobile.mobilenet_v3_small, (3, 64, 64), {"classes": 10}),
    "efficientnet_b0": Architecture(mobile.efficientnet_b0, (3, 64, 64), {"classes": 10}),
    **{
        f"{name}{suffix}": Architecture(
            partial(vgg.vgg, f"{name}{suffix}"), (3, 64, 64), {"width": 8, "hidden": 48, "classes": 10}
        )
        for name in vgg.COUNTS
        for suffix in ("", "_bn")
    },
    "squeezenet1_0": Architecture(partial(squeezenet.SqueezeNet, "1_0"), (3, 67, 64), {"classes": 10}),
    "squeezenet1_1": Architecture(partial(squeezenet.SqueezeNet, "1_1"), (3, 67, 64), {"classes": 10}),
    "densenet121": Architecture(densenet.DenseNet, (3, 64, 64), {"growth": 8, "width": 16, "classes": 10}),
    "inception_v3": Architecture(inception.Inception3, (3, 95, 95), {"classes": 10}),
    "unet": Architecture(unet.UNet, (3, 48, 64), {"width": 8}),
    "unet_bilinear": Architecture(partial(unet.UNet, bilinear=True), (3, 48, 64), {"width": 8}),
    "espcn": Architecture(espcn.ESPCN, (1, 23, 30)),
    "style_transfer": Architecture(style_transfer.TransformerNet, (3, 44, 52), {"width": 8}),
    "yolo_tiny": Architecture(yolo_tiny.YOLOTiny, (3, 64, 96), {"width": 8, "classes": 4}),
}

NAMES = list(ARCHITECTURES)


def build(name: str, seed: int = 0, **options: Any) -> nn.Module:
    """Return the network of that name with random weights, in eval mode; `options` are passed to its class.

    Raises KeyError for an unknown name.
    """
    architecture = ARCHITECTURES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = architecture.make(**options).eval()
        channels, height, width = architecture.shape
        draw(module, torch.randn(8, options.get("channels", channels), height, width))
    return module


def build_small(name: str, seed: int = 0, **options: Any) -> nn.Module:
    """Call `build` with the options of the small case, unless others are given."""
    return build(name, seed, **{**ARCHITECTURES[name].small, **options})


def example(name: str, seed: int = 0, *, batch: int = 1, size: tuple[int, int] | None = None) -> Tensor:
    """Return seeded normal numbers as an input of the small case, (batch, C, H, W), or of another height and width."""
    channels, height, width = ARCHITECTURES[name].shape
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, channels, *(size or (height, width)), generator=generator)


# ---- weights


@torch.no_grad()
def draw(module: nn.Module, x: Tensor) -> None:
    """Draw parameters and statistics, layer by layer in the order in which they run on the batch `x`.

    Results of convolutions, linear layers and batch normalizations get about unit magnitude. The factors for this are
    rounded coarsely, so that the weights do not depend on the machine's rounding.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            layer.weight.normal_()
            if layer.bias is not None:
                layer.bias.normal_(std=0.1)
        elif isinstance(layer, (nn.BatchNorm2d, nn.InstanceNorm2d)):
            layer.weight.uniform_(0.6, 1.4)
            layer.bias.normal_(std=0.2)
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(std=0.1)
            layer.running_var.uniform_(0.5, 1.5)
    with hooks(module):
        module(x)
    for parameter in module.parameters():
        parameter.requires_grad_(False)


def statistics(x: Tensor) -> tuple[Tensor, float]:
    """Return a part of each channel's mean, and the magnitude of the rest rounded to a power of two.

    Without subtracting the mean, the result of a deep network with random weights hardly depends on its input; if all
    of it is subtracted, float32's rounding grows to 1e-3 in fifty blocks, with a third of it to 2e-5 at most.
    """
    part = x.mean([axis for axis in range(x.dim()) if axis != 1], keepdim=True) / 3
    size = 2.0 ** round(math.log2(max(float((x - part).square().mean().sqrt()), 1e-30)))
    return (part / size * 16).round() * (size / 16), size


@contextmanager
def hooks(module: nn.Module) -> Iterator[None]:
    def scale_weight(layer: nn.Module, _: Any, y: Tensor) -> Tensor:
        if layer.bias is None:
            _, size = statistics(y)
            layer.weight.div_(size)
            return y / size
        drawn = layer.bias.clone().view((-1,) + (1,) * (y.dim() - 2))
        mean, size = statistics(y - drawn)
        layer.weight.div_(size)
        layer.bias.sub_(mean.flatten() / size)
        return (y - drawn - mean) / size + drawn

    def scale_statistics(layer: nn.Module, sources: tuple[Tensor]) -> None:
        mean, size = statistics(sources[0])
        layer.running_mean.mul_(size).add_(mean.flatten())
        layer.running_var.mul_(size * size)

    handles = []
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            handles.append(layer.register_forward_hook(scale_weight))
        elif isinstance(layer, nn.BatchNorm2d):
            handles.append(layer.register_forward_pre_hook(scale_statistics))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
