# SPDX-License-Identifier: Apache-2.0
"""Subnormal numbers are zeros in sums of products of the CPU engine, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

import mpscnn
from support import ENGINE

pytestmark = pytest.mark.skipif(ENGINE != "cpu", reason="GPUs compute with subnormal numbers at no cost")

SUBNORMAL = np.float32(1e-40)
# Small images have one thread, larger ones all.
SHAPES = [(1, 3, 3, 16), (1, 128, 128, 32), (2, 7, 7, 1152)]


def _kernels(channels: int) -> dict[str, Any]:
    """Kernels whose result is 1e-10 for images of 1e-40, if that is not taken as zero."""
    scale = np.full((channels, channels, 1, 1), 1e30 / channels, np.float32)
    return {
        "pointwise": mpscnn.Convolution(scale),
        "depthwise": mpscnn.Convolution(np.full((channels, 1, 1, 1), 1e30, np.float32), groups=channels),
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["pointwise", "depthwise"])
def test_operands_and_results(name: str, shape: tuple[int, ...]) -> None:
    kernel = _kernels(shape[-1])[name]
    np.testing.assert_array_equal(kernel(np.full(shape, SUBNORMAL)), 0)
    # A sum of 1152 equal terms may differ by 1152 * 2**-24.
    np.testing.assert_allclose(kernel(np.full(shape, np.float32(1e-37))), 1e-7, rtol=7e-5)
    # The threads that took them as zeros do not in the next kernel.
    np.testing.assert_allclose(mpscnn.NeuronLinear(1e30, 0.0)(np.full(shape, SUBNORMAL)), 1e-10, rtol=1e-4)


@pytest.mark.parametrize("size", [7, 64])
def test_chains(size: int) -> None:
    """Expansion, depth-wise convolution and projection, which are computed together."""
    depthwise = nn.Conv2d(96, 96, 3, padding=1, groups=96, bias=False)
    layers = [nn.Conv2d(16, 96, 1, bias=False), depthwise, nn.Conv2d(96, 16, 1, bias=False)]
    for layer, weight in zip(layers, (1e30, 1.0, 1.0), strict=True):
        nn.init.constant_(layer.weight, weight)
    network = mpscnn.load(nn.Sequential(*layers), input_shapes=(1, 16, size, size))
    np.testing.assert_array_equal(network(np.full((1, 16, size, size), SUBNORMAL)), 0)


def test_the_thread_of_the_caller() -> None:
    _kernels(32)["pointwise"](np.full((1, 64, 64, 32), SUBNORMAL))
    assert SUBNORMAL * np.float32(0.5) != 0
    assert np.sum(np.full(1000, SUBNORMAL)) > SUBNORMAL


def test_subnormal_halves() -> None:
    """They are normal numbers of float32."""
    x = np.full((1, 64, 64, 32), 3e-7, np.float16)
    found = mpscnn.Convolution(2 * np.eye(32, dtype=np.float32).reshape(32, 32, 1, 1))(x)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, x * np.float16(2))


def test_images_keep_them() -> None:
    x = np.full((1, 8, 8, 4), SUBNORMAL)
    np.testing.assert_array_equal(mpscnn.Image.from_array(x).numpy(), x)
