# SPDX-License-Identifier: Apache-2.0
"""The network of the cluster examples, and pictures made from the photographs of scikit-image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage.data
from numpy.typing import NDArray
from safetensors.numpy import load_file

import mpscnn

WEIGHTS = Path(__file__).resolve().parent.parent / "super_resolution" / "espcn_x2.safetensors"
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")


def super_resolution() -> mpscnn.Network:
    """Return the network of examples/super_resolution, (N, 3, H, W) -> (N, 3, 2 H, 2 W)."""
    layers: list[object] = []
    weights = load_file(WEIGHTS)
    names = [name.removesuffix(".weight") for name in sorted(weights) if name.endswith(".weight")]
    for name in names:
        kernel_size = weights[f"{name}.weight"].shape[-1]
        layers.append((name, "Conv2d", {"padding": kernel_size // 2}))
        if name != names[-1]:
            layers.append((f"relu of {name}", "ReLU"))
    layers.append(("shuffle", "PixelShuffle", {"upscale_factor": 2}))
    return mpscnn.load(weights, layers=layers, input_shapes=(1, 3, 64, 64))  # and any other size


def pictures(count: int, size: int) -> NDArray[np.uint8]:
    """Return (count, 3, size, size) random pieces of photographs, the same in each run."""
    rng = np.random.default_rng(0)
    photographs = [np.asarray(getattr(skimage.data, name)()) for name in PHOTOGRAPHS]
    found = np.empty((count, 3, size, size), np.uint8)
    for piece in found:
        photograph = photographs[rng.integers(len(photographs))]
        top, left = (int(rng.integers(extent - size + 1)) for extent in photograph.shape[:2])
        piece[:] = photograph[top : top + size, left : left + size].transpose(2, 0, 1)
    return found
