# SPDX-License-Identifier: Apache-2.0
"""Small graphs with seeded weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import mpscnn
from mpscnn.graph import Value


class Draw:
    """Random weights with a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def weight(self, *shape: int) -> NDArray[np.float32]:
        fan_in = max(1, int(np.prod(shape[1:])))
        return (self.rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)

    def values(self, count: int) -> NDArray[np.float32]:
        return self.rng.standard_normal(count).astype(np.float32)

    def positive(self, count: int) -> NDArray[np.float32]:
        return self.rng.uniform(0.5, 2, count).astype(np.float32)


def batch_norm(graph: mpscnn.Graph, x: Value, channels: int, draw: Draw) -> Value:
    return graph.add(
        "BatchNormalization",
        x,
        gamma=draw.positive(channels),
        beta=draw.values(channels),
        mean=draw.values(channels),
        variance=draw.positive(channels),
        epsilon=1e-3,
    )


def residual(seed: int = 0) -> mpscnn.Graph:
    """Convolutions with batch normalization, a sum, a concatenation, two outputs."""
    draw = Draw(seed)
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3, layout="NCHW")
    a = graph.add("Convolution", x, weight=draw.weight(16, 3, 3, 3), bias=draw.values(16), padding=1, name="stem")
    a = graph.add("NeuronReLU", batch_norm(graph, a, 16, draw))
    b = graph.add("Convolution", a, weight=draw.weight(16, 16, 1, 1), name="branch")
    total = graph.add("NeuronReLU", graph.add("Add", a, b, name="sum"))
    pooled = graph.add("PoolingMax", total, kernel_size=3, stride=1, padding=1)
    joined = graph.concatenate(total, pooled, b, name="joined")
    y = graph.add("Convolution", joined, weight=draw.weight(10, 48, 1, 1), name="head")
    graph.output(y, "y", layout="NCHW")
    graph.output(total, "features")
    return graph
