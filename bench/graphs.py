# SPDX-License-Identifier: Apache-2.0
"""Networks as graphs of MPS's nodes (MPSNNGraph) beside the same mpscnn.Network, interleaved in one run.

Whole calls from array to array, and the encode alone: of an image, without the commit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import mpscnn

from . import networks
from .timing import Prepared, interleaved, interleaved_prepared

SHAPE = networks.SHAPE
NETWORKS = ("resnet50", "mobilenet_v2", "densenet121")


def _row(name: str, seconds: float, best: bool) -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal((1, *SHAPE), np.float32)
    network = mpscnn.load(networks._module(name), input_shapes=x.shape)
    network.input_layout = "NHWC"
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    graph = network.to_mps_graph()
    expected = np.ravel(network(x))
    difference = float(np.abs(graph(x).ravel() - expected).max() / np.abs(expected).max())
    assert difference < 1e-4, f"{name} differs by {difference}"
    image = mpscnn.Image.from_array(x)
    encodes: dict[str, Prepared] = {
        "graph": (mpscnn.CommandBuffer, lambda commands: graph.encode(commands, image)),
        "network": (mpscnn.CommandBuffer, lambda commands: network.encode(commands, image)),
    }
    return {
        "case": name,
        "kernels": len(network.graph.nodes),
        "seconds": interleaved({"graph": lambda: graph(x), "network": lambda: network(x)}, seconds, best=best),
        "encode": interleaved_prepared(encodes, seconds, best=best),
        "difference": difference,
    }


def run(seconds: float = 1.0, case: str = "", best: bool = False) -> list[dict[str, Any]]:
    """Return rows with seconds per call and per encode; each row takes about twice `seconds`."""
    return [_row(name, seconds, best) for name in NETWORKS if case in name]
