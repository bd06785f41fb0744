# SPDX-License-Identifier: Apache-2.0
"""Fast style transfer (Johnson et al., 2016, arXiv:1603.08155), with instance normalization.

Names and numbers: pytorch/examples, fast_neural_style/neural_style/transformer_net.py: conv1.conv2d, in1 (affine,
epsilon 1e-5), conv2, conv3 (stride 2), res1 to res5 (conv1.conv2d, in1, conv2.conv2d, in2), deconv1 and deconv2
(after nearest upsampling by 2), deconv3; reflection padding of half a kernel before each convolution. Files of old
versions of PyTorch have in*.running_mean and running_var, which are not used; neural_style.py drops them. Colours are
0...255.
"""

from __future__ import annotations

from ..builder import Tensor
from ..ops import normalization, resize
from .layers import Family, Layers, Naming, Pair


def _blocks(layers: Layers) -> int:
    count = 0
    while layers.has(f"res{count + 1}.conv1.conv2d"):
        count += 1
    return count


def variant(layers: Layers) -> str:
    """Return the name of the only variant."""
    return "style_transfer"


def write(layers: Layers, size: Pair, *, epsilon: float = 1e-5) -> None:
    """Write the network, which returns a stylized picture with height and width rounded up to multiples of 4."""
    builder = layers.builder

    def convolution(x: Tensor, name: str, stride: int = 1) -> Tensor:
        height, width = layers.shape(f"{name}.conv2d", rank=4)[2:]
        with layers.node(f"{name}.reflection_pad", "ReflectionPad2d"):
            x = resize.pad(builder, x, (width // 2, width // 2, height // 2, height // 2), "reflect")
        return layers.convolution(x, f"{name}.conv2d", stride=stride, padding=0)

    def norm(x: Tensor, name: str) -> Tensor:
        with layers.node(name, "InstanceNorm2d"):
            weight, bias = (layers.take(name, parameter, (x.channels,)) for parameter in ("weight", "bias"))
            return normalization.instance_norm(builder, x, weight=weight, bias=bias, eps=epsilon)

    x = builder.input("input", (layers.shape("conv1.conv2d", rank=4)[1], *size))
    for index, stride in ((1, 1), (2, 2), (3, 2)):
        x = layers.activation(norm(convolution(x, f"conv{index}", stride), f"in{index}"), "relu")
    for index in range(1, _blocks(layers) + 1):
        name = f"res{index}"
        y = layers.activation(norm(convolution(x, f"{name}.conv1"), f"{name}.in1"), "relu")
        y = norm(convolution(y, f"{name}.conv2"), f"{name}.in2")
        x = layers.add(y, x, name)
    for index in (1, 2):
        with layers.node(f"deconv{index}.upsample", "interpolate"):
            x = resize.interpolate(builder, x, scale_factor=2, mode="nearest")
        x = layers.activation(norm(convolution(x, f"deconv{index}"), f"in{index + 3}"), "relu")
    builder.output("output", convolution(x, "deconv3"))


FAMILY = Family(
    "style_transfer",
    (Naming("pytorch/examples", ("conv1.conv2d.weight", "res1.conv1.conv2d.weight", "deconv3.conv2d.weight")),),
    write,
    variant,
    unused=r"(.*\.)?in\d+\.(running_mean|running_var|num_batches_tracked)",
)
