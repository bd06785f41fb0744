# SPDX-License-Identifier: Apache-2.0
"""Networks of the tests of predictors and the server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpscnn


def classifier(height: int | None = None, width: int | None = None) -> mpscnn.Network:
    """Return (N, 3, H, W) -> (N, 5), a convolution and a mean over all pixels."""
    rng = np.random.default_rng(0)
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3, height=height, width=width, layout="NCHW")
    weight = rng.normal(0, 0.3, (5, 3, 3, 3)).astype(np.float32)
    y = graph.add("Convolution", x, weight=weight, padding=1, activation="relu")
    y = graph.add("ReduceRowMean", graph.add("ReduceColumnMean", y))
    graph.output(y, "scores", layout="NC")
    return mpscnn.Network(graph)


def of_two_inputs() -> mpscnn.Network:
    """Return the sum and the difference of two images of 2 channels."""
    graph = mpscnn.Graph()
    a, b = (graph.input(name, channels=2, layout="NCHW") for name in ("a", "b"))
    graph.output(graph.add("Add", a, b), "sum", layout="NCHW")
    graph.output(graph.add("Subtract", a, b), "difference", layout="NCHW")
    return mpscnn.Network(graph)


@pytest.fixture
def net() -> mpscnn.Network:
    return classifier()


@pytest.fixture
def model(net: mpscnn.Network, tmp_path: Path) -> Path:
    path = tmp_path / "net.mpscnn"
    net.save(path)
    return path
