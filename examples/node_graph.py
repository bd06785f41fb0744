# SPDX-License-Identifier: Apache-2.0
"""Upscale a photograph by two with MPS's own graph: nodes, data sources and MPSNNGraph.

Each layer is an MPSCNNConvolutionNode whose weights come from a data source, as in programs for Apple's platforms: MPS
calls load(), reads the descriptor, the weights and the bias, and calls purge(). The same network as a mpscnn.Network is
beside it: results are compared, and both are timed.

    python examples/node_graph.py [PHOTOGRAPH] [--output PNG] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import needs  # noqa: F401
import numpy as np
from numpy.typing import NDArray
from shared import count, read_picture, run, save, side_by_side
from tqdm import trange
from upscale import as_pixels

import mpscnn
from mpscnn import nodes

sys.path.insert(0, str(Path(__file__).resolve().parent / "super_resolution"))

from images import crop_to_factor, downsample, held_out_pair, psnr, to_picture, upsample_bicubic

from network import FACTOR, LayerWeights, load_layers

Pixels = NDArray[np.float32]


class LayerSource(mpscnn.DataSource):
    """The weights of one layer, in the order that MPS reads (OHWI) between load() and purge()."""

    def __init__(self, layer: LayerWeights, enlarges: bool) -> None:
        self._layer = layer
        # The colour varies slowest in a pixel shuffle, fastest in MPS's sub-pixel convolution.
        order = np.arange(len(layer.bias))
        self._order = order.reshape(-1, FACTOR**2).T.ravel() if enlarges else order
        described = layer.layer
        self.descriptor = mpscnn.ConvolutionDescriptor(
            described["kernel_size"],
            in_channels=described["in_channels"],
            out_channels=described["out_channels"],
            activation=described["activation"],
            sub_pixel_scale_factor=FACTOR if enlarges else 1,
        )
        self.label = described["name"]
        self.bias = np.ascontiguousarray(layer.bias[self._order])

    def load(self) -> bool:
        self.weights = mpscnn.reorder(self._layer.weight[self._order])
        return True

    def purge(self) -> None:
        self.weights = None


def node_graph(layers: list[LayerWeights]) -> mpscnn.MPSNNGraph:
    """Return the network as a graph of nodes, from (N, H, W, 3) to (N, 2 H, 2 W, 3)."""
    image: nodes.ImageNode | nodes.FilterNode = nodes.ImageNode("photograph")
    for layer in layers:
        source = LayerSource(layer, enlarges=layer is layers[-1])
        image = nodes.ConvolutionNode(image, source, padding=layer.layer["kernel_size"] // 2)
        image.label = layer.layer["name"]
    return mpscnn.MPSNNGraph(image, format="float32")


def same_network(layers: list[LayerWeights]) -> mpscnn.Network:
    """Return the network as a mpscnn.Network."""
    graph = mpscnn.Graph()
    value = graph.input("photograph", channels=3)
    for layer in layers:
        source = LayerSource(layer, enlarges=layer is layers[-1])
        value = graph.add("Convolution", value, weight=source, padding=layer.layer["kernel_size"] // 2)
    graph.output(value, "enlarged")
    return mpscnn.Network(graph)


def milliseconds(call: Callable[[Pixels], Pixels], x: Pixels, rounds: int, progress: str = "") -> float:
    """Return the median time of a call; a progress bar is shown if it has a name."""
    times = []
    for _ in trange(rounds, desc=progress, unit="call", disable=not progress):
        start = time.perf_counter()
        call(x)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("photograph", nargs="?", type=Path, help="picture file (default: a cat, of scikit-image)")
    parser.add_argument("--output", type=Path, default=Path("node_graph.png"), metavar="PNG", help="(node_graph.png)")
    parser.add_argument("--rounds", type=count, default=15, metavar="N", help="timed calls (15)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(arguments)


def compare(options: argparse.Namespace) -> dict[str, Any]:
    if options.photograph is None:
        small, original = held_out_pair()
    else:
        original = crop_to_factor(read_picture(options.photograph))
        small = downsample(original)
    layers = load_layers()
    graph, network = node_graph(layers), same_network(layers)
    x = as_pixels(small)
    ours = graph(x)
    picture = to_picture(ours[0])
    bicubic = upsample_bicubic(small)
    panels = [("bicubic", bicubic), ("MPSNNGraph", picture), ("original", original)]
    save(side_by_side(panels), options.output)
    return {
        "nodes": len(layers),
        "psnr_bicubic": psnr(bicubic, original),
        "psnr": psnr(picture, original),
        "difference": float(np.abs(ours - network(x)).max()),
        "size": original.shape[:2],
        "graph_ms": milliseconds(graph, x, options.rounds, "" if options.json else "MPSNNGraph"),
        "network_ms": milliseconds(network, x, options.rounds, "" if options.json else "Network"),
        "output": str(options.output),
    }


def lines(figures: dict[str, Any]) -> list[str]:
    height, width = figures["size"]
    return [
        f"Graph                  {figures['nodes']} MPSCNNConvolutionNodes, each with a data source",
        f"Picture                {width // FACTOR} x {height // FACTOR} -> {width} x {height}",
        f"PSNR                   bicubic {figures['psnr_bicubic']:.2f} dB, graph {figures['psnr']:.2f} dB",
        f"Difference to Network  {figures['difference']:.1e} at most",
        f"Time                   graph {figures['graph_ms']:.2f} ms, Network {figures['network_ms']:.2f} ms",
        f"Side by side           {figures['output']}",
    ]


def main(arguments: list[str] | None = None) -> int:
    return run("node_graph", compare, lines, parse(arguments))


if __name__ == "__main__":
    sys.exit(main())
