#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/shapes.txt: each distinct layer shape of networks in common use.

    python tools/gen_shapes.py > tests/shapes.txt

Needs torch, torchvision and timm. Networks run on the meta device with forward hooks, without downloads or computation.
Networks that are not in torchvision or timm (generators and decoders with transposed convolutions) are defined here.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from architectures.style_transfer import TransformerNet
from architectures.unet import UNet

TORCHVISION = [
    "alexnet",
    "vgg16",
    "vgg16_bn",
    "resnet18",
    "resnet50",
    "resnet101",
    "resnext50_32x4d",
    "wide_resnet50_2",
    "densenet121",
    "densenet161",
    "googlenet",
    "inception_v3",
    "squeezenet1_0",
    "squeezenet1_1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "shufflenet_v2_x1_0",
    "mnasnet1_0",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "regnet_y_400mf",
    "regnet_x_1_6gf",
    "convnext_tiny",
]
SEGMENTATION = ["fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]
TIMM = [
    "xception41",
    "inception_resnet_v2",
    "res2net50_26w_4s",
    "seresnet50",
    "skresnet18",
    "ghostnet_100",
    "hrnet_w18",
    "dla34",
    "cspdarknet53",
    "repvgg_a0",
    "nfnet_l0",
    "dpn68",
    "vovnet39a",
    "mixnet_s",
]


def upsampling(widths: list[int], first: tuple[int, int, int] = (4, 1, 0), *, bias: bool) -> nn.Module:
    """Return 4 x 4 transposed convolutions of stride 2, one per pair of widths; `first` is the first's geometry."""
    layers = [nn.ConvTranspose2d(widths[0], widths[1], *first, bias=bias)]
    layers += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=bias) for a, b in pairwise(widths[1:])]
    return nn.Sequential(*layers)


class Pix2Pix(nn.Module):
    """The generator of pix2pix (Isola et al., 2017, arXiv:1611.07004) for 256 x 256, batch normalization folded."""

    def __init__(self) -> None:
        super().__init__()
        down, up = [3, 64, 128, 256, 512, 512, 512, 512, 512], [512, 512, 512, 512, 256, 128, 64, 3]
        self.down = nn.ModuleList(nn.Conv2d(a, b, 4, 2, 1) for a, b in pairwise(down))
        inputs = [512, *(2 * c for c in up[:-1])]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in zip(inputs, up, strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        x = self.up[0](skips.pop())
        for layer in self.up[1:]:
            x = layer(torch.cat([x, skips.pop()], 1))
        return x


class SimpleBaseline(nn.Module):
    """Pose estimation by three transposed convolutions on a ResNet (Xiao et al., 2018, arXiv:1804.06208), 256 x 192."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*list(torchvision.models.resnet50().children())[:-2])
        self.head = nn.Sequential(upsampling([2048, 256, 256, 256], (4, 2, 1), bias=True), nn.Conv2d(256, 17, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def detection() -> nn.Module:
    """Return Mask R-CNN's mask head, for one region."""
    layers = [nn.Conv2d(256, 256, 3, padding=1) for _ in range(4)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(256, 256, 2, 2), nn.Conv2d(256, 91, 1))


def fcn8s() -> nn.Module:
    """Return the head of FCN-8s (Long et al., 2015, arXiv:1411.4038) for 21 classes."""
    head = [nn.Conv2d(512, 4096, 7), nn.Conv2d(4096, 4096, 1), nn.Conv2d(4096, 21, 1)]
    return nn.Sequential(
        *head,
        nn.ConvTranspose2d(21, 21, 4, 2, bias=False),
        nn.ConvTranspose2d(21, 21, 4, 2, bias=False),
        nn.ConvTranspose2d(21, 21, 16, 8, bias=False),
    )


def discriminator() -> nn.Module:
    """Return pix2pix's PatchGAN discriminator."""
    widths = [6, 64, 128, 256]
    layers = [nn.Conv2d(a, b, 4, 2, 1) for a, b in pairwise(widths)]
    return nn.Sequential(*layers, nn.Conv2d(256, 512, 4, 1, 1), nn.Conv2d(512, 1, 4, 1, 1))


def fsrcnn() -> nn.Module:
    """Return FSRCNN (Dong et al., 2016, arXiv:1608.00367) with a factor of 3."""
    middle = [nn.Conv2d(12, 12, 3, padding=1) for _ in range(4)]
    ends = nn.Conv2d(12, 56, 1), nn.ConvTranspose2d(56, 1, 9, 3, 4, output_padding=2)
    return nn.Sequential(nn.Conv2d(1, 56, 5, padding=2), nn.Conv2d(56, 12, 1), *middle, *ends)


OWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dcgan": (lambda: upsampling([100, 512, 256, 128, 64, 3], bias=True), (1, 100, 1, 1)),
    "dcgan_1024": (lambda: upsampling([100, 1024, 512, 256, 128, 3], bias=False), (1, 100, 1, 1)),
    "dcgan_discriminator": (
        lambda: nn.Sequential(
            *[nn.Conv2d(a, b, 4, 2, 1) for a, b in [(3, 64), (64, 128), (128, 256), (256, 512)]], nn.Conv2d(512, 1, 4)
        ),
        (1, 3, 64, 64),
    ),
    "pix2pix": (Pix2Pix, (1, 3, 256, 256)),
    "pix2pix_discriminator": (discriminator, (1, 6, 256, 256)),
    "unet": (UNet, (1, 3, 256, 256)),
    "simple_baseline": (SimpleBaseline, (1, 3, 256, 192)),
    "mask_head": (detection, (1, 256, 14, 14)),
    "fcn8s_head": (fcn8s, (1, 512, 13, 13)),
    "fsrcnn_x3": (fsrcnn, (1, 1, 64, 64)),
    "style_transfer": (TransformerNet, (1, 3, 256, 256)),
}


def pair(value: Any) -> tuple[int, int]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def row(layer: nn.Module, x: Any) -> tuple[object, ...] | None:
    if isinstance(layer, nn.Linear):
        # An image has at most 8192 channels: after a flatten, the window is the whole image.
        kind, inputs, size = {25088: ("conv", 512, (7, 7)), 9216: ("conv", 256, (6, 6))}.get(
            layer.in_features, ("linear", layer.in_features, (1, 1))
        )
        geometry = (*size, 1, 1, 0, 0, 1, 1, *size)
        return kind, inputs, layer.out_features, 1, *geometry, int(layer.bias is not None), 0
    if not isinstance(x, torch.Tensor) or x.ndim != 4:
        return None
    size = tuple(x.shape[2:])
    if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
        if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            return None
        # Subclasses that pad by themselves (TensorFlow's "same") are skipped.
        transposed = isinstance(layer, nn.ConvTranspose2d)
        extra = pair(layer.output_padding)[0] if transposed else 0
        return (
            "transpose" if transposed else "conv",
            layer.in_channels,
            layer.out_channels,
            layer.groups,
            *layer.kernel_size,
            *layer.stride,
            *layer.padding,
            *layer.dilation,
            *size,
            int(layer.bias is not None),
            extra,
        )
    if isinstance(layer, (nn.MaxPool2d, nn.AvgPool2d)):
        stride = layer.kernel_size if layer.stride is None else layer.stride
        dilation = pair(getattr(layer, "dilation", 1))
        counts_padding = bool(getattr(layer, "count_include_pad", False))
        kind = "max" if isinstance(layer, nn.MaxPool2d) else "average"
        return (
            kind,
            x.shape[1],
            x.shape[1],
            1,
            *pair(layer.kernel_size),
            *pair(stride),
            *pair(layer.padding),
            *dilation,
            *size,
            int(counts_padding),
            int(layer.ceil_mode),
        )
    return None


def main() -> None:
    warnings.simplefilter("ignore")
    networks: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {}
    for name in TORCHVISION:
        size = 299 if name == "inception_v3" else 224
        extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        networks[name] = (
            lambda n=name, e=extra: torchvision.models.get_model(n, weights=None, **e),
            (1, 3, size, size),
        )
    for name in SEGMENTATION:
        networks[name] = (
            lambda n=name: torchvision.models.get_model(n, weights=None, weights_backbone=None),
            (1, 3, 520, 520),
        )
    for name in TIMM:
        networks["timm." + name] = (lambda n=name: timm.create_model(n), (1, 3, 224, 224))
    networks |= OWN
    found: dict[tuple[object, ...], str] = {}
    counts: dict[str, int] = {}
    for name, (make, shape) in networks.items():
        try:
            with torch.device("meta"):
                network = make().eval()
        except (NotImplementedError, RuntimeError):  # the constructor reads values of tensors
            network = make().eval().to("meta")
        own: list[tuple[object, ...]] = []

        def hook(layer: nn.Module, inputs: Any, _result: Any, own: list[tuple[object, ...]] = own) -> None:
            if (values := row(layer, inputs[0])) is not None:
                own.append(values)

        for layer in network.modules():
            layer.register_forward_hook(hook)
        with torch.no_grad():
            network(torch.empty(shape, device="meta"))
        for values in own:
            found.setdefault(values, name)
        counts[name] = sum(network_name == name for network_name in found.values())
        print(f"{name}: {counts[name]} new of {len(own)}", file=sys.stderr)
    print(
        "# Layers of networks in common use, each shape once, written by tools/gen_shapes.py with torch "
        f"{torch.__version__.split('+')[0]}, torchvision {torchvision.__version__.split('+')[0]}, "
        f"timm {timm.__version__}."
    )
    print(
        "# Rows of each network that those before it do not have: "
        + ", ".join(f"{name} {count}" for name, count in counts.items())
        + "."
    )
    print(
        "# kind inputs outputs groups kernel_h kernel_w stride_h stride_w padding_h padding_w dilation_h dilation_w "
        "height width bias extra network"
    )
    print("# bias: of averages, whether padding counts. extra: output_padding of transposes, ceil_mode of pooling.")
    for values, name in found.items():
        print(*values, name)


if __name__ == "__main__":
    main()
