# SPDX-License-Identifier: Apache-2.0
"""Graph.adaptive_pool: means and maxima of h x w areas, against PyTorch, at sizes that are free."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import mpscnn

MODES = ["average", "max"]
# Windows without gaps, with overlap, areas of different extents, enlarged by whole factors, a single pixel, equal.
SIZES = [(14, 14), (13, 13), (8, 10), (5, 23), (7, 7), (1, 1), (3, 9), (224, 20)]


def network(mode: str, size: tuple[int, int], channels: int = 5) -> mpscnn.Network:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=channels, layout="NCHW")
    graph.output(graph.adaptive_pool(x, size, mode=mode), "y", layout="NCHW")
    return mpscnn.Network(graph)


def expected(x: np.ndarray, size: tuple[int, int], mode: str) -> np.ndarray:
    pool = functional.adaptive_max_pool2d if mode == "max" else functional.adaptive_avg_pool2d
    y: np.ndarray = pool(torch.from_numpy(x), size).numpy()
    return y


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(7, 7), (6, 6), (3, 5), (1, 4)])
def test_sizes(mode: str, size: tuple[int, int]) -> None:
    """One network for all sizes."""
    rng = np.random.default_rng(0)
    for channels in (5, 8):
        net = network(mode, size, channels)
        for before in SIZES:
            x = rng.standard_normal((2, channels, *before), np.float32) - 3  # no mean or max is 0, as padding is
            np.testing.assert_allclose(net(x), expected(x, size, mode), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_as_many_channels_as_real_networks(mode: str) -> None:
    """VGG has 512; 7 areas of 1170 channels are more than an image holds."""
    x = np.random.default_rng(0).standard_normal((1, 512, 10, 12), np.float32)
    np.testing.assert_allclose(network(mode, (7, 7), 512)(x), expected(x, (7, 7), mode), rtol=1e-5, atol=1e-5)
    net = network(mode, (7, 7), 1171)
    x = np.zeros((1, 1171, 10, 12), np.float32)
    with pytest.raises(ValueError, match=r"10 x 12 pixels to 7 x 7: 7 areas of 1172 channels are more than the max"):
        net(x)
    assert net(x[:, :, :7, :7]).shape == (1, 1171, 7, 7)


@pytest.mark.parametrize(("mode", "before"), list(itertools.product(MODES, [(7, 7), (13, 13), (10, 12)])))
def test_in_a_concatenation(mode: str, before: tuple[int, int]) -> None:
    """Beside its own source, and behind channels that fill no slice."""
    graph = mpscnn.Graph()
    x, other = graph.input("x", channels=4, layout="NCHW"), graph.input("other", channels=3, layout="NCHW")
    pooled = graph.adaptive_pool(x, 7, mode=mode)
    again = graph.adaptive_pool(pooled, 7, mode=mode)  # of equal size
    graph.output(graph.concatenate(pooled, other, again), "y", layout="NCHW")
    rng = np.random.default_rng(0)
    values, others = rng.standard_normal((1, 4, *before), np.float32), rng.standard_normal((1, 3, 7, 7), np.float32)
    one = expected(values, (7, 7), mode)
    found = mpscnn.Network(graph)(x=values, other=others)
    np.testing.assert_allclose(found, np.concatenate([one, others, one], 1), rtol=1e-5, atol=1e-5)


def test_saved(tmp_path: Path) -> None:
    net = network("max", (6, 7))
    net.save(tmp_path / "net.mpscnn")
    x = np.random.default_rng(0).random((1, 5, 9, 16), np.float32)
    np.testing.assert_array_equal(mpscnn.load(tmp_path / "net.mpscnn")(x), net(x))


def test_refusals() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    with pytest.raises(ValueError, match=r'mode \("sum"\) is neither "average" nor "max"'):
        graph.adaptive_pool(x, 7, mode="sum")
    for size in (0, (7, 16385), (7, 7, 7)):
        with pytest.raises(ValueError, match=r"output_size .* is not in \[1, 16384\]"):
            graph.adaptive_pool(x, size)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="output_size"):
        graph.adaptive_pool(x, "7")  # type: ignore[arg-type]


class Classifier(nn.Module):
    """As AlexNet and VGG: areas of a fixed number in front of fully connected layers."""

    def __init__(self, pool: nn.Module, areas: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2))
        self.pool = pool
        self.classifier = nn.Linear(8 * areas, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.classifier(torch.flatten(self.pool(self.features(x)), 1))
        return y


POOLS = [
    (nn.AdaptiveAvgPool2d(7), 49),
    (nn.AdaptiveMaxPool2d((6, 3)), 18),
    (nn.AdaptiveAvgPool2d((1, 5)), 5),
]


@pytest.mark.parametrize(("pool", "areas"), POOLS)
def test_modules_keep_their_sizes_free(pool: nn.Module, areas: int) -> None:
    torch.manual_seed(0)
    module = Classifier(pool, areas).eval()
    net = mpscnn.load(module, input_shapes=(1, 3, 56, 64))
    (spec,) = net.inputs.values()
    assert (spec.height, spec.width, spec.fixed_by) == (None, None, "")
    for size in ((56, 64), (64, 64), (33, 41), (28, 28)):
        x = np.random.default_rng(1).random((3, 3, *size), np.float32)
        with torch.no_grad():
            wanted = module(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(net(x), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("pool", "areas"), POOLS)
def test_as_a_graph_of_nodes(pool: nn.Module, areas: int) -> None:
    """The nodes are those for the sizes of the import, or for given ones."""
    torch.manual_seed(0)
    module = Classifier(pool, areas).eval()
    net = mpscnn.load(module, input_shapes=(1, 3, 56, 64))
    for given, size in ((None, (56, 64)), ((1, 3, 40, 72), (40, 72))):
        x = np.random.default_rng(1).random((1, 3, *size), np.float32)
        found = net.to_mps_graph(given)(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
        np.testing.assert_allclose(np.ravel(found), np.ravel(net(x)), rtol=1e-4, atol=1e-5)


def test_training() -> None:
    """A trainer fixes the sizes of a module, and refuses the graph of a network whose sizes are free."""
    torch.manual_seed(0)
    module = Classifier(*POOLS[0])
    x, labels = np.random.default_rng(1).random((4, 3, 56, 56), np.float32), np.arange(4)
    trainer = mpscnn.Trainer(module.train(), input_shapes=(4, 3, 56, 56))
    expected = functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(labels)).item()
    assert trainer.step(x, labels).loss == pytest.approx(expected, rel=1e-4)
    graph = mpscnn.load(module.eval(), input_shapes=(1, 3, 56, 56)).graph
    with pytest.raises(NotImplementedError, match=r'AdaptivePool.*options=\{"free_size": False\}'):
        mpscnn.Trainer(graph, input_shapes=(4, 3, 56, 56))
    graph = mpscnn.load(module, input_shapes=(1, 3, 56, 56), options={"free_size": False}).graph
    assert mpscnn.Trainer(graph, input_shapes=(4, 3, 56, 56)).step(x, labels).loss == pytest.approx(expected, rel=1e-4)


def test_a_graph_of_nodes_needs_sizes() -> None:
    with pytest.raises(NotImplementedError, match="the kernels of AdaptivePool depend on its sizes: give input_shapes"):
        network("max", (7, 7), 4).to_mps_graph()
    x = np.random.default_rng(0).random((1, 4, 14, 21), np.float32)
    found = network("max", (7, 7), 4).to_mps_graph((1, 4, 14, 21))(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
    np.testing.assert_array_equal(np.moveaxis(found, 3, 1), expected(x, (7, 7), "max"))
