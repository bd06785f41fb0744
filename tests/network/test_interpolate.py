# SPDX-License-Identifier: Apache-2.0
"""Graph.interpolate: resizes to the height and width of another value, against PyTorch, at sizes that are free."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import mpscnn

WAYS = [("bilinear", False), ("bilinear", True), ("nearest", False)]
SIZES = [(7, 9), (13, 25), (25, 13), (28, 224), (1, 1), (64, 50), (14, 18)]


def network(mode: str, align_corners: bool, channels: int = 5) -> mpscnn.Network:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=channels, layout="NCHW")
    like = graph.input("like", channels=2, layout="NCHW")
    graph.output(graph.interpolate(x, like, mode=mode, align_corners=align_corners), "y", layout="NCHW")
    return mpscnn.Network(graph)


def expected(x: np.ndarray, size: tuple[int, int], mode: str, align_corners: bool) -> np.ndarray:
    aligned = align_corners if mode == "bilinear" else None
    y: np.ndarray = functional.interpolate(torch.from_numpy(x), size, mode=mode, align_corners=aligned).numpy()
    return y


@pytest.mark.parametrize(("mode", "align_corners"), WAYS)
def test_sizes(mode: str, align_corners: bool) -> None:
    """One network for all sizes; larger, smaller, equal, of one pixel."""
    net = network(mode, align_corners)
    rng = np.random.default_rng(0)
    for before, after in itertools.product(SIZES, SIZES):
        x = rng.standard_normal((2, 5, *before), np.float32)
        found = net(x=x, like=np.zeros((2, 2, *after), np.float32))
        np.testing.assert_allclose(found, expected(x, after, mode, align_corners), rtol=1e-4, atol=1e-4)


def test_values_of_the_other_are_not_read() -> None:
    net = network("bilinear", False)
    x = np.random.default_rng(0).standard_normal((1, 5, 6, 7), np.float32)
    found = net(x=x, like=np.full((1, 2, 9, 5), np.nan, np.float32))
    np.testing.assert_allclose(found, expected(x, (9, 5), "bilinear", False), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("mode", "align_corners"), WAYS)
def test_in_a_concatenation(mode: str, align_corners: bool) -> None:
    """Beside its own source, and behind channels that fill no slice."""
    graph = mpscnn.Graph()
    x, other = graph.input("x", channels=4, layout="NCHW"), graph.input("other", channels=3, layout="NCHW")
    large = graph.interpolate(x, other, mode=mode, align_corners=align_corners)
    again = graph.interpolate(large, other, mode=mode, align_corners=align_corners)  # of equal size
    graph.output(graph.concatenate(large, other, again), "y", layout="NCHW")
    net = mpscnn.Network(graph)
    rng = np.random.default_rng(0)
    x_values, others = rng.standard_normal((1, 4, 5, 6), np.float32), rng.standard_normal((1, 3, 8, 11), np.float32)
    one = expected(x_values, (8, 11), mode, align_corners)
    np.testing.assert_allclose(
        net(x=x_values, other=others), np.concatenate([one, others, one], 1), rtol=1e-4, atol=1e-4
    )


def test_saved(tmp_path: Path) -> None:
    net = network("nearest", False)
    net.save(tmp_path / "net.mpscnn")
    x, like = np.random.default_rng(0).random((1, 5, 4, 6), np.float32), np.zeros((1, 2, 8, 3), np.float32)
    np.testing.assert_array_equal(mpscnn.load(tmp_path / "net.mpscnn")(x=x, like=like), net(x=x, like=like))


def test_refusals() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    with pytest.raises(ValueError, match=r'mode \("cubic"\) is neither "bilinear" nor "nearest"'):
        graph.interpolate(x, x, mode="cubic")
    with pytest.raises(ValueError, match="align_corners"):
        graph.interpolate(x, x, mode="nearest", align_corners=True)
    with pytest.raises(TypeError, match=r"like \(int\) is not a Value"):
        graph.interpolate(x, 3)  # type: ignore[arg-type]
    net = network("nearest", False)
    with pytest.raises(ValueError, match=r"nearest from 211 to 503 pixels needs 106133 between"):
        net(x=np.zeros((1, 5, 3, 211), np.float32), like=np.zeros((1, 2, 3, 503), np.float32))


class Segmentation(nn.Module):
    """Upsamples to the size of the input, and of a feature map, as DeepLab and FPN do."""

    def __init__(self, mode: str, align_corners: bool | None) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.second = nn.Conv2d(8, 8, 3, 2, 1)
        self.last = nn.Conv2d(8, 4, 1)
        self.how = {"mode": mode, "align_corners": align_corners}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = torch.relu(self.first(x))
        lower = torch.relu(self.second(low))
        both = low + functional.interpolate(lower, size=low.shape[-2:], **self.how)
        return functional.interpolate(self.last(both), size=x.shape[-2:], **self.how)


@pytest.mark.parametrize(("mode", "align_corners"), [("bilinear", False), ("bilinear", True), ("nearest", None)])
def test_modules_keep_their_sizes_free(mode: str, align_corners: bool | None) -> None:
    torch.manual_seed(0)
    module = Segmentation(mode, align_corners).eval()
    net = mpscnn.load(module, input_shapes=(1, 3, 37, 50))
    (spec,) = net.inputs.values()
    assert (spec.height, spec.width, spec.fixed_by) == (None, None, "")
    assert "NeuronReLU" not in {node.kernel for node in net.graph.nodes}, "activations are fused"
    for size in ((37, 50), (64, 64), (33, 21)):
        x = np.random.default_rng(1).random((2, 3, *size), np.float32)
        with torch.no_grad():
            wanted = module(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(net(x), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(("mode", "align_corners"), [("bilinear", False), ("bilinear", True), ("nearest", None)])
def test_onnx_models_keep_their_sizes_free(mode: str, align_corners: bool | None, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    torch.manual_seed(0)
    module = Segmentation(mode, align_corners).eval()
    free = {"x": {0: "n", 2: "h", 3: "w"}, "y": {0: "n", 2: "h", 3: "w"}}
    torch.onnx.export(
        module,
        (torch.rand(1, 3, 37, 50),),
        tmp_path / "net.onnx",
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes=free,
    )
    net = mpscnn.load(tmp_path / "net.onnx", input_shapes={"x": (1, 3, 37, 50)})
    (spec,) = net.inputs.values()
    assert (spec.height, spec.width, spec.fixed_by) == (None, None, "")
    for size in ((37, 50), (64, 64), (33, 21)):
        x = np.random.default_rng(1).random((2, 3, *size), np.float32)
        with torch.no_grad():
            wanted = module(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(net(x), wanted, rtol=1e-4, atol=1e-4)
