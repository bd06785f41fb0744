# SPDX-License-Identifier: Apache-2.0
"""ESPCN (Shi et al., 2016, arXiv:1609.05158): a chain of convolutions that keep the size, and a pixel shuffle.

Names and numbers:

* pytorch/examples, super_resolution/model.py: conv1 to conv4, ReLU between them. Chains of other lengths and several
  channels are supported too.
* yjn870/ESPCN-pytorch, models.py: first_part.0, first_part.2, last_part.0, the hyperbolic tangent between them.
* Lornatang/ESPCN-PyTorch, model.py: feature_maps.0, feature_maps.2, sub_pixel.0, the hyperbolic tangent between them,
  and the result clamped to 0...1.
"""

from __future__ import annotations

import itertools
import math
import re

from ...errors import InvalidModelError
from ..ops import activation as activations
from ..ops import resize
from .layers import Family, Layers, Naming, Pair


def _yjn870(layer: str) -> str:
    return {"conv1": "first_part.0", "conv2": "first_part.2", "conv3": "last_part.0"}.get(layer, "none")


def _lornatang(layer: str) -> str:
    return {"conv1": "feature_maps.0", "conv2": "feature_maps.2", "conv3": "sub_pixel.0"}.get(layer, "none")


def _count(layers: Layers) -> int:
    count = 0
    while layers.has(f"conv{count + 1}"):
        count += 1
    return count


def fits(layers: Layers) -> bool:
    """Return whether the layers are a chain of convolutions with odd kernels, and nothing else."""
    pattern = re.compile(re.escape(layers.prefix) + r"conv\d+\.(weight|bias)")
    if not all(map(pattern.fullmatch, layers.shapes)):
        return False
    shapes = [layers.shape(f"conv{index + 1}") for index in range(_count(layers))]
    return all(len(shape) == 4 and shape[2] % 2 and shape[3] % 2 for shape in shapes) and all(
        before[0] == after[1] for before, after in itertools.pairwise(shapes)
    )


def _factor(layers: Layers) -> int:
    inputs, outputs = layers.shape("conv1", rank=4)[1], layers.shape(f"conv{_count(layers)}", rank=4)[0]
    factor = math.isqrt(outputs // inputs) if inputs else 0
    if factor < 1 or inputs * factor * factor != outputs:
        raise InvalidModelError(
            f'tensor "{layers.full(f"conv{_count(layers)}")}" makes {outputs} channels, not the {inputs} of the source'
            " times a square: say the factor."
        )
    return factor


def variant(layers: Layers) -> str:
    """Return the name with the factor."""
    return f"espcn_x{_factor(layers)}"


def write(
    layers: Layers, size: Pair, *, activation: str = "relu", bounded: bool = False, factor: int | None = None
) -> None:
    """Write the network; `bounded`: clamp to 0...1. `factor` is needed if it does not follow from the channels."""
    count = _count(layers)
    x = layers.builder.input("input", (layers.shape("conv1", rank=4)[1], *size))
    for index in range(1, count + 1):
        x = layers.convolution(x, f"conv{index}")
        if index < count:
            x = layers.activation(x, activation)
    with layers.node("pixel_shuffle", "PixelShuffle"):
        x = resize.pixel_shuffle(layers.builder, x, _factor(layers) if factor is None else factor)
    if bounded:
        with layers.node("clamp", "clamp"):
            x = activations.clamp(layers.builder, x, 0.0, 1.0)
    layers.builder.output("output", x)


FAMILY = Family(
    "espcn",
    (
        Naming("pytorch/examples", ("conv1.weight", "conv2.weight"), fits=fits),
        Naming("yjn870", ("first_part.0.weight", "last_part.0.weight"), _yjn870, {"activation": "tanh"}),
        Naming(
            "Lornatang",
            ("feature_maps.0.weight", "sub_pixel.0.weight"),
            _lornatang,
            {"activation": "tanh", "bounded": True},
        ),
    ),
    write,
    variant,
)
