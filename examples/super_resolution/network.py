# SPDX-License-Identifier: Apache-2.0
"""The super-resolution network as plain data: its layers, and its weights as arrays. Needs no PyTorch.

The network is a chain of stride-1 convolutions, each with zero padding of ``kernel_size // 2`` on all sides
(which keeps height and width), a bias, and an activation. The last layer computes ``FACTOR ** 2`` values per
colour, which a pixel shuffle distributes over the enlarged picture::

    (N, 3, H, W)  ->  chain  ->  (N, 12, H, W)  ->  pixel shuffle  ->  (N, 3, 2 H, 2 W)

Input and output are RGB in 0..1; the output may slightly exceed that range and is clipped when it becomes a
picture.

The weights are in PyTorch's order. For the last layer this means that output channel
``(c * FACTOR + dy) * FACTOR + dx`` is colour ``c`` at offset ``(dy, dx)`` inside the enlarged pixel: the
colour varies slowest. A sub-pixel convolution in which the colour varies fastest, as in MPS, needs the output
channels of that layer (weights and biases) permuted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

FACTOR = 2
"""Ratio of output to input in height and width."""

WEIGHTS_PATH = Path(__file__).resolve().parent / "espcn_x2.safetensors"
"""The example's trained weights."""


class Layer(TypedDict):
    """One convolution of the chain; ``activation`` is applied to its output."""

    name: str
    kernel_size: int
    in_channels: int
    out_channels: int
    activation: Literal["relu"] | None


class LayerWeights(NamedTuple):
    """One convolution: weight (O, I, KH, KW) float32, bias (O,) float32, and the layer's description."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    layer: Layer


LAYERS: list[Layer] = [
    {"name": "conv1", "kernel_size": 5, "in_channels": 3, "out_channels": 64, "activation": "relu"},
    {"name": "conv2", "kernel_size": 3, "in_channels": 64, "out_channels": 32, "activation": "relu"},
    {"name": "conv3", "kernel_size": 3, "in_channels": 32, "out_channels": 32, "activation": "relu"},
    {"name": "conv4", "kernel_size": 3, "in_channels": 32, "out_channels": 32, "activation": "relu"},
    {"name": "conv5", "kernel_size": 3, "in_channels": 32, "out_channels": 3 * FACTOR**2, "activation": None},
]
"""The chain, first layer first. A pixel shuffle by `FACTOR` follows the last one."""


def load_layers(path: str | Path = WEIGHTS_PATH) -> list[LayerWeights]:
    """Read the weights of every layer in `LAYERS`, in that order.

    Parameters
    ----------
    path
        A safetensors file with ``<name>.weight`` (O, I, KH, KW) and ``<name>.bias`` (O,), float32.

    Returns
    -------
    list of LayerWeights
        One ``(weight, bias, layer)`` per layer.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    KeyError
        A layer's weight or bias is not in the file.
    ValueError
        An array's shape or dtype does not fit the layer.
    """
    tensors = load_file(path)
    result = []
    for layer in LAYERS:
        kernel = layer["kernel_size"]
        weight, bias = tensors[f"{layer['name']}.weight"], tensors[f"{layer['name']}.bias"]
        shapes = {
            "weight": (layer["out_channels"], layer["in_channels"], kernel, kernel),
            "bias": (layer["out_channels"],),
        }
        for key, array in (("weight", weight), ("bias", bias)):
            if array.shape != shapes[key] or array.dtype != np.float32:
                raise ValueError(
                    f"{layer['name']}.{key} is {array.dtype} of shape {array.shape}; "
                    f"the network needs float32 of shape {shapes[key]}"
                )
        result.append(LayerWeights(weight, bias, layer))
    return result
