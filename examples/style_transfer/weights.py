# SPDX-License-Identifier: Apache-2.0
"""Random weights of fast style transfer, with the names of PyTorch's example fast_neural_style. Needs no PyTorch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]


def random_weights(seed: int = 0, width: int = 32, blocks: int = 5) -> Weights:
    """Return random weights of the whole network, which give a recognizable picture in an arbitrary style.

    `width` is the number of channels of the first convolution; the network of the paper and of the example has 32, and
    5 residual blocks. Colours are 0...255 in input and output.
    """
    rng = np.random.default_rng(seed)
    weights: Weights = {}

    def convolution(name: str, inputs: int, outputs: int, kernel: int, scale: float = 1.0) -> None:
        # Mostly averages of neighbours, which keep the picture's shapes, plus some noise.
        weight = rng.standard_normal((outputs, inputs, 1, 1), np.float32) * np.float32(np.sqrt(kernel * kernel))
        weight = weight * np.outer(np.hanning(kernel + 2), np.hanning(kernel + 2))[1:-1, 1:-1].astype(np.float32)
        weight += np.float32(0.2) * rng.standard_normal((outputs, inputs, kernel, kernel), np.float32)
        weight *= np.float32(scale / np.sqrt(np.square(weight).sum() / outputs))
        weights[f"{name}.conv2d.weight"] = weight
        weights[f"{name}.conv2d.bias"] = np.float32(0.1) * rng.standard_normal(outputs, np.float32)

    def norm(name: str, channels: int) -> None:
        weights[f"{name}.weight"] = rng.uniform(0.5, 1.5, channels).astype(np.float32)
        weights[f"{name}.bias"] = np.float32(0.2) * rng.standard_normal(channels, np.float32)

    convolution("conv1", 3, width, 9)
    norm("in1", width)
    convolution("conv2", width, width * 2, 3)
    norm("in2", width * 2)
    convolution("conv3", width * 2, width * 4, 3)
    norm("in3", width * 4)
    for index in range(1, blocks + 1):
        for part in "12":
            convolution(f"res{index}.conv{part}", width * 4, width * 4, 3)
            norm(f"res{index}.in{part}", width * 4)
    convolution("deconv1", width * 4, width * 2, 3)
    norm("in4", width * 2)
    convolution("deconv2", width * 2, width, 3)
    norm("in5", width)
    convolution("deconv3", width, 3, 9, scale=15)
    weights["deconv3.conv2d.bias"] += 128
    return weights
