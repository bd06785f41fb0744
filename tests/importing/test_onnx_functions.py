# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that are Metal functions, quantized operators, and old versions, against ONNX Runtime."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx_support import assert_same, floats, model, reference, run
from torch import nn

import mpscnn
from mpscnn.importing import onnx as importer

X = (2, 4, 6, 8)
node = helper.make_node


def values(shape: tuple[int, ...] = X, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(
    nodes: list[onnx.NodeProto],
    outputs: list[str],
    shape: tuple[int, ...] = X,
    opset: int = 18,
    relative: float = 2e-5,
    **arrays: NDArray[Any],
) -> mpscnn.graph.Graph:
    """Compare all outputs with ONNX Runtime; the input is called x."""
    proto = model(nodes, {"x": shape}, outputs, opset, **arrays)
    x = values(shape)
    graph = importer.read(proto)
    results = run(graph, {"x": x})
    for name, expected in zip(outputs, reference(proto, {"x": x}), strict=True):
        assert_same(results[name], expected, relative)
    return graph


UNARY = ("Sin", "Cos", "Atan", "Sinh", "Cosh", "Asinh", "Erf", "Floor", "Ceil", "Round", "Sign", "IsNaN")


def test_functions_of_one_tensor() -> None:
    nodes = []
    for name in UNARY:
        nodes.append(node(name, ["x"], [f"y_{name}"]))
    nodes[-1] = node("Erf", ["y_Sin"], ["y_IsNaN"])
    nodes += [node(name, ["y_Sin"], [f"y_{name}"]) for name in ("Asin", "Acos", "Tan")]
    check(nodes, [f"y_{name}" for name in (*UNARY, "Asin", "Acos", "Tan")])


def test_comparisons_and_choices() -> None:
    half = np.array(0.5, np.float32)
    nodes = [
        node("Round", ["x"], ["r"]),
        node("Slice", ["r", "first", "last", "axis", "step"], ["s"]),
    ]
    names = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
    nodes += [node(name, ["r", "s"], [f"b_{name}"]) for name in names]
    nodes += [node(name, ["b_Less", "b_Equal"], [f"b_{name}"]) for name in ("And", "Or", "Xor")]
    nodes += [node("Not", ["b_Less"], ["b_Not"]), node("Greater", ["x", "half"], ["b_half"])]
    found = [*names, "And", "Or", "Xor", "Not", "half"]
    nodes += [node("Cast", [f"b_{name}"], [f"y_{name}"], to=1) for name in found]
    nodes += [
        node("Where", ["b_half", "x", "s"], ["y_where"]),
        node("Where", ["mask", "x", "half"], ["y_mask"]),
        node("Max", ["x", "columns"], ["y_max"]),
        node("Mod", ["x", "half"], ["y_mod"], fmod=1),
        node("Cast", ["x"], ["whole"], to=7),
        node("Cast", ["whole"], ["y_whole"], to=1),
        node("Trilu", ["x"], ["y_upper"]),
        node("ThresholdedRelu", ["x"], ["y_threshold"], alpha=0.3),
        node("Shrink", ["x"], ["y_shrink"], bias=0.1, lambd=0.4),
        node("Pow", ["columns", "x"], ["y_pow"]),
    ]
    outputs = [f"y_{name}" for name in (*found, "where", "mask", "max", "mod", "whole", "upper", "threshold", "shrink")]
    check(
        nodes,
        [*outputs, "y_pow"],
        half=half,
        mask=np.arange(48).reshape(6, 8) % 3 == 0,
        columns=np.linspace(0.5, 2, 8, dtype=np.float32),
        first=np.array([-1]),
        last=np.array([-100]),
        axis=np.array([3]),
        step=np.array([-1]),
    )


def test_matrices() -> None:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["x", "t"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "x"], ["attention"]),
        node("MatMul", ["x", "weights"], ["by_weights"]),
        node("MatMul", ["left", "x"], ["from_left"]),
        node("Einsum", ["x", "x"], ["sums"], equation="nchw,ncvw->nhcv"),
        node("Einsum", ["x", "weights"], ["mixed"], equation="nchw,cwk->nhck"),
        node("Softmax", ["x"], ["rows"], axis=2),
        node("LayerNormalization", ["x", "scale", "shift"], ["normalized"], axis=-1),
        node("LayerNormalization", ["x", "plane"], ["planes"], axis=2, epsilon=1e-3),
        node("Reshape", ["x", "tokens"], ["five"]),
        node("Softmax", ["five"], ["parts"], axis=2),
        node("ReduceSum", ["five", "axis"], ["total"], keepdims=0),
        node("ReduceMean", ["five", "axis"], ["mean"]),
        node("Sub", ["five", "mean"], ["centred"]),
    ]
    outputs = ["scores", "attention", "by_weights", "from_left", "sums", "mixed", "rows", "normalized", "planes"]
    check(
        nodes,
        [*outputs, "parts", "total", "centred"],
        weights=values((4, 8, 5), 1),
        left=values((4, 7, 6), 2),
        scale=values((8,), 3),
        shift=values((8,), 4),
        plane=values((6, 8), 5),
        tokens=np.array([0, 2, 2, 6, 8]),
        axis=np.array([2]),
    )


def test_orders() -> None:
    nodes = [
        node("TopK", ["x", "k"], ["top", "places"], axis=3),
        node("TopK", ["x", "k"], ["least", "unused"], axis=1, largest=0),
        node("Cast", ["places"], ["y_places"], to=1),
        node("GatherElements", ["x", "places"], ["again"], axis=3),
        node("CumSum", ["x", "axis"], ["sums"], exclusive=1),
        node("CumSum", ["x", "axis"], ["from_last"], reverse=1),
        node("ReduceProd", ["x", "axes"], ["product"]),
        node("ArgMax", ["x"], ["greatest"], axis=2),
        node("Cast", ["greatest"], ["y_greatest"], to=1),
        node("Gather", ["x", "rows"], ["picked"], axis=2),
        node("OneHot", ["greatest", "depth", "pair"], ["classes"]),
        node("Cast", ["classes"], ["y_classes"], to=1),
        node("Tile", ["x", "repeats"], ["tiled"]),
    ]
    outputs = ["top", "least", "y_places", "again", "sums", "from_last", "product", "y_greatest", "picked", "y_classes"]
    check(
        nodes,
        [*outputs, "tiled"],
        k=np.array([3]),
        axis=np.array(2),
        axes=np.array([1, 3]),
        rows=np.array([[5, 0], [0, 3]]),
        depth=np.array(6),
        pair=np.array([-1.0, 2.0], np.float32),
        repeats=np.array([1, 2, 1, 3]),
    )


@pytest.mark.parametrize("opset", [16, 20])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(opset: int, padding: str) -> None:
    names = ("bilinear", "nearest", "bicubic") if opset < 20 else ("linear", "nearest", "cubic")
    nodes = [
        node("Slice", ["x", "zero", "two", "one"], ["part"]),
        node("Tanh", ["part"], ["bounded"]),
        node("Transpose", ["bounded"], ["grid"], perm=[0, 2, 3, 1]),
    ]
    for i, name in enumerate(names):
        nodes.append(node("GridSample", ["x", "grid"], [f"y{i}"], mode=name, padding_mode=padding, align_corners=i % 2))
    # In the mode cubic with border, ONNX Runtime clamps the taps as PyTorch does.
    check(nodes, ["y0", "y1", "y2"], opset=opset, zero=np.array([0]), two=np.array([2]), one=np.array([1]))


@pytest.mark.parametrize(
    "attributes",
    [
        {"coordinate_transformation_mode": "half_pixel"},
        {"coordinate_transformation_mode": "align_corners", "cubic_coeff_a": -0.5},
        {"coordinate_transformation_mode": "asymmetric", "exclude_outside": 1},
        {"coordinate_transformation_mode": "pytorch_half_pixel"},
    ],
)
@pytest.mark.parametrize("scales", [(1.0, 1.0, 2.0, 2.0), (1.0, 1.0, 0.5, 1.75)])
def test_cubic_resize(attributes: dict[str, Any], scales: tuple[float, ...]) -> None:
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="cubic", **attributes)]
    check(nodes, ["y"], scales=np.array(scales, np.float32))


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_local_response_normalization(size: int) -> None:
    x = values()
    proto = model([node("LRN", ["x"], ["y"], size=size, alpha=0.1, beta=0.6, bias=1.5)], {"x": X}, ["y"])
    before, after = (size - 1) // 2, size // 2  # ONNX Runtime has no even sizes
    squares = np.pad(x**2, ((0, 0), (before, after), (0, 0), (0, 0)))
    total = sum(squares[:, i : i + X[1]] for i in range(size))
    assert_same(run(importer.read(proto), {"x": x})["y"], x / (1.5 + 0.1 / size * total) ** 0.6)


@pytest.mark.parametrize(("dynamo", "size"), [(False, 3), (False, 4), (True, 4)])
def test_exported_local_response_normalization(tmp_path: Any, dynamo: bool, size: int) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LocalResponseNorm(size, 0.5, 0.7, 2.0)).eval()
    _exported(module, torch.randn(2, 3, 9, 7), tmp_path, dynamo)


class Block(nn.Module):
    """ConvNeXt's, with the layer scale."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class Attention(nn.Module):
    """Attention of a vision transformer, with a token in front."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.rand(1, 1, channels))
        self.positions = nn.Parameter(torch.rand(1, 13, channels))
        self.norm, self.qkv = nn.LayerNorm(channels), nn.Linear(channels, 3 * channels)
        self.last = nn.Linear(channels, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(len(x), -1, -1), y], 1) + self.positions
        n, tokens, channels = y.shape
        qkv = self.qkv(self.norm(y)).reshape(n, tokens, 3, 2, channels // 2).permute(0, 3, 2, 1, 4)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, channels)
        return self.last(y[:, 0])


@pytest.mark.parametrize(("kind", "dynamo"), [(Block, False), (Block, True), (Attention, False)])
def test_exported_blocks(tmp_path: Any, kind: type[nn.Module], dynamo: bool) -> None:
    torch.manual_seed(0)
    _exported(kind(8).eval(), torch.randn(1, 8, 3, 4), tmp_path, dynamo)


def _exported(module: nn.Module, x: torch.Tensor, folder: Any, dynamo: bool) -> None:
    path = folder / "model.onnx"
    options = {} if dynamo else {"opset_version": 17}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, verbose=False, dynamo=dynamo, input_names=["x"], **options)
    net = mpscnn.load(path)
    with torch.no_grad():
        assert_same(net(x), module(x).numpy())


@pytest.mark.parametrize("signed", [False, True])
def test_quantized_and_dequantized(signed: bool) -> None:
    """A convolution as quantizers write it: the source, the weights and the result by QuantizeLinear and back."""
    dtype, zero = (np.int8, 3) if signed else (np.uint8, 120)
    weight = np.random.default_rng(1).integers(-127, 128, (6, 4, 3, 3)).astype(np.int8)
    nodes = [
        node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "step", "zero"], ["d"]),
        node("DequantizeLinear", ["weight", "steps", "zeros"], ["w"], axis=0),
        node("Conv", ["d", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "step", "zero"], ["rq"]),
        node("MaxPool", ["rq"], ["mq"], kernel_shape=[2, 2], strides=[2, 2]),
        node("DequantizeLinear", ["mq", "step", "zero"], ["y"]),
    ]
    arrays = {
        "step": np.float32(0.03),
        "zero": dtype(zero),
        "weight": weight,
        "steps": np.linspace(0.001, 0.003, 6, dtype=np.float32),
        "zeros": np.zeros(6, np.int8),
    }
    _near_steps(nodes, 0.03, **arrays)


def test_quantized_convolution() -> None:
    generator = np.random.default_rng(2)
    nodes = [
        node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        node(
            "QLinearConv",
            ["q", "step", "zero", "weight", "steps", "zeros", "out", "zero", "bias"],
            ["c"],
            strides=[2, 2],
        ),
        node("DequantizeLinear", ["c", "out", "zero"], ["y"]),
    ]
    _near_steps(
        nodes,
        0.05,
        step=np.float32(0.03),
        out=np.float32(0.05),
        zero=np.uint8(120),
        weight=generator.integers(-64, 64, (6, 4, 3, 3)).astype(np.int8),  # larger ones saturate in ONNX Runtime
        steps=np.linspace(0.001, 0.003, 6, dtype=np.float32),
        zeros=np.zeros(6, np.int8),
        bias=generator.integers(-5000, 5000, 6).astype(np.int32),
    )


def _near_steps(nodes: list[onnx.NodeProto], unit: float, **arrays: NDArray[Any]) -> None:
    """Compare with ONNX Runtime: equal, but for few values on the other side of the middle between two steps."""
    proto = model(nodes, {"x": (2, 4, 8, 8)}, ["y"], 13, **arrays)
    x = values((2, 4, 8, 8))
    ours, theirs = run(importer.read(proto), {"x": x})["y"], reference(proto, {"x": x})[0]
    assert ours.shape == theirs.shape
    assert len(np.unique(ours)) > 20
    steps = np.abs(ours - theirs) / unit
    assert steps.max() < 1.001
    assert (steps > 0.5).mean() < 0.01


def test_old_version() -> None:
    """Version 6, whose arithmetic broadcasts by attributes."""
    arrays = {"w": values((5, 4, 3, 3), 1), "b": values((5,), 2), "v": np.abs(values((5,), 3)) + 0.5}
    graph = helper.make_graph(
        [
            node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            node("Add", ["c", "b"], ["s"], broadcast=1, axis=1),
            node("BatchNormalization", ["s", "b", "b", "b", "v"], ["n"], is_test=1),
            node("Relu", ["n"], ["y"]),
        ],
        "graph",
        [floats("x", X), *(floats(name, shape) for name, shape in (("w", (5, 4, 3, 3)), ("b", (5,)), ("v", (5,))))],
        [floats("y", (2, 5, 6, 8))],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)
    x, (weight, bias, variance) = torch.from_numpy(values()), map(torch.from_numpy, arrays.values())
    expected = F.conv2d(x, weight, padding=1) + bias.view(5, 1, 1)  # ONNX Runtime has versions from 7 on
    expected = F.relu(F.batch_norm(expected, bias, variance, bias, bias))
    assert_same(run(importer.read(proto), {"x": x.numpy()})["y"], expected.numpy())


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("Gemm", ["x", "x"], ["y"], transB=1)], "images would be mixed"),
        ([node("TopK", ["x", "k"], ["y", "i"], axis=0)], "images of the batch"),
        ([node("Cast", ["x"], ["i"], to=3), node("Cast", ["i"], ["y"], to=1)], "int8, which may wrap"),
    ],
)
def test_refused(nodes: list[onnx.NodeProto], reason: str) -> None:
    shape = (3, 4)
    graph = helper.make_graph(
        nodes,
        "graph",
        [floats("x", shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([2]), "k")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto = onnx.shape_inference.infer_shapes(proto)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=reason):
        importer.read(proto)
