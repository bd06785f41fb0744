# SPDX-License-Identifier: Apache-2.0
"""Models that ONNX Runtime quantized dynamically, and their operators, against ONNX's reference evaluator.

ONNX Runtime clamps sums of pairs of products with signed weights to 16 bits on processors without VNNI.
"""

from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_support import reference
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn

import mpscnn

node = helper.make_node


class Small(nn.Module):
    """Convolutions, attention with computed matrices, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2, groups=2)
        self.query, self.key, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8 * 49, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x)))).flatten(2).transpose(1, 2)
        x = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2), -1) @ x
        return self.last(x.transpose(1, 2).flatten(1))  # type: ignore[no-any-return]


def quantized(folder: Path, weights: QuantType, each: bool, axes: Any = None) -> onnx.ModelProto:
    torch.manual_seed(0)
    file, path, small = io.BytesIO(), folder / "model.onnx", folder / "small.onnx"
    before = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Small().eval(), (torch.rand(1, 3, 16, 16),), file, input_names=["x"], opset_version=17, dynamo=False,
                dynamic_axes=axes,
            )  # fmt: skip
            path.write_bytes(file.getvalue())
            quantize_dynamic(path, small, per_channel=each, weight_type=weights)
    finally:
        logging.getLogger().setLevel(before)
    return onnx.load(small)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8])
def test_network(weights: QuantType, each: bool, tmp_path: Path) -> None:
    proto = quantized(tmp_path, weights, each)
    assert {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"} <= {n.op_type for n in proto.graph.node}
    net = mpscnn.load(proto)
    x = np.random.default_rng(2).standard_normal((3, 3, 16, 16)).astype(np.float32)
    expected = np.concatenate([defined(proto, image[None]) for image in x])
    assert np.abs(net(x) - expected).max() < 0.01 * np.abs(expected).max()  # a number that is one step off


def defined(proto: onnx.ModelProto, x: NDArray[np.float32]) -> NDArray[Any]:
    return np.asarray(ReferenceEvaluator(proto).run(None, {"x": x})[0])


def of_nodes(nodes: list[Any], shape: tuple[Any, ...], output: str = "y", **arrays: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(output)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(proto)


DYNAMIC = node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"], name="begin")
CAST = node("Cast", ["n"], ["y"], to=TensorProto.FLOAT)
SOURCES: dict[str, NDArray[Any]] = {
    "both signs": np.random.default_rng(1).uniform(-3, 5, (1, 4, 6, 5)),
    "positive": np.random.default_rng(1).uniform(1, 5, (1, 4, 6, 5)),
    "negative": np.random.default_rng(1).uniform(-5, -1, (1, 4, 6, 5)),
    "zeros": np.zeros((1, 4, 6, 5)),
    "ties, odd zero point": np.append(np.arange(119) / 2 - 3, 252).reshape(1, 4, 6, 5),  # the scale is 1
    "tiny": np.random.default_rng(1).uniform(-3e-30, 5e-30, (1, 4, 6, 5)),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_numbers(name: str, rank: int) -> None:
    """The numbers are those of ONNX Runtime, and so are values made of them with the scale and the zero point."""
    x = SOURCES[name].astype(np.float32)
    x = x.reshape((1, *x.shape[1 : rank - 1], -1)) if rank < 4 else x
    proto = of_nodes([DYNAMIC, node("Cast", ["q"], ["y"], to=1)], x.shape)
    np.testing.assert_array_equal(mpscnn.load(proto)(x), reference(proto, {"x": x})[0])
    proto = of_nodes([DYNAMIC, node("DequantizeLinear", ["q", "scale", "zero"], ["y"])], x.shape)
    np.testing.assert_array_equal(mpscnn.load(proto)(x), reference(proto, {"x": x})[0])


W = np.random.default_rng(3).integers(-128, 128, (6, 4, 3, 3)).astype(np.int8)
M = np.random.default_rng(3).integers(0, 256, (5, 7)).astype(np.uint8)
PRODUCTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "convolution": (node("ConvInteger", ["q", "w", "zero"], ["n"], pads=[1, 1, 1, 1]), {"w": W}),
    "convolution, zero point of weights": (
        node("ConvInteger", ["q", "w", "zero", "z"], ["n"], strides=[2, 1], auto_pad="SAME_UPPER"),
        {"w": M[:4, :6].T.reshape(6, 4, 1, 1).copy(), "z": np.uint8(128)},
    ),
    "convolution, other zero point": (
        node("ConvInteger", ["q", "w", "own"], ["n"], pads=[1, 1, 1, 1]), {"w": W, "own": np.uint8(9)},
    ),
    "convolution without zero points": (node("ConvInteger", ["q", "w"], ["n"]), {"w": W}),
    "product": (node("MatMulInteger", ["q", "m", "zero", "z"], ["n"]), {"m": M, "z": np.uint8(100)}),
    "product, zero point of each column": (
        node("MatMulInteger", ["q", "m", "zero", "z"], ["n"]), {"m": M, "z": np.arange(90, 97).astype(np.uint8)},
    ),
    "product without zero points": (node("MatMulInteger", ["q", "m"], ["n"]), {"m": M}),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_are_exact(name: str) -> None:
    operator, arrays = PRODUCTS[name]
    x = SOURCES["both signs"].astype(np.float32)
    proto = of_nodes([DYNAMIC, operator, CAST], x.shape, **arrays)
    np.testing.assert_array_equal(mpscnn.load(proto)(x), defined(proto, x))


def test_product_of_computed_numbers() -> None:
    nodes = [
        DYNAMIC,
        node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
        node("DynamicQuantizeLinear", ["t"], ["r", "scale of r", "zero of r"]),
        node("MatMulInteger", ["q", "r", "zero", "zero of r"], ["n"]),
        CAST,
    ]
    x = SOURCES["both signs"].astype(np.float32)
    proto = of_nodes(nodes, x.shape)
    np.testing.assert_array_equal(mpscnn.load(proto)(x), defined(proto, x))


def test_whole_sums_are_read_as_such() -> None:
    """Sums that are no floats in the model are whole numbers, also by Winograd's transform, which rounds."""
    weight = np.random.default_rng(3).integers(-128, 128, (8, 32, 3, 3)).astype(np.int8)
    x = np.random.default_rng(4).uniform(-3, 5, (1, 32, 24, 24)).astype(np.float32)
    nodes = [DYNAMIC, node("ConvInteger", ["q", "w", "zero"], ["n"], pads=[1, 1, 1, 1])]
    nodes += [node("Mul", ["n", "two"], ["m"]), node("Cast", ["m"], ["y"], to=1)]
    proto = of_nodes(nodes, x.shape, w=weight // 32, two=np.int32(2))
    np.testing.assert_array_equal(mpscnn.load(proto)(x), defined(proto, x))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"sums of up to \d+, which are exact up to 262144"):
        mpscnn.load(of_nodes(nodes, x.shape, w=np.full((1, 32, 9, 9), 127, np.int8), two=np.int32(2)))


def test_sums_that_are_an_output_are_whole() -> None:
    """Also if a Cast to floats, which rounds, reads them."""
    weight = np.random.default_rng(3).integers(-2, 3, (8, 32, 3, 3)).astype(np.int8)
    x = np.random.default_rng(4).uniform(-3, 5, (1, 32, 24, 24)).astype(np.float32)
    nodes = [DYNAMIC, node("ConvInteger", ["q", "w", "zero"], ["n"], pads=[1, 1, 1, 1]), CAST]
    proto = of_nodes(nodes, x.shape, "n", w=weight)
    np.testing.assert_array_equal(mpscnn.load(proto)(x), defined(proto, x))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"sums of up to \d+, which are exact up to 262144"):
        mpscnn.load(of_nodes(nodes, x.shape, "n", w=np.full((1, 32, 9, 9), 127, np.int8)))


@pytest.mark.parametrize("to", [7, 9])
def test_sums_that_are_cast_to_whole_numbers(to: int) -> None:
    """A Cast to int64, or to truth values, does not round sums as one to floats."""
    weight = np.random.default_rng(3).integers(-2, 3, (8, 32, 3, 3)).astype(np.int8)
    x = np.random.default_rng(4).uniform(-3, 5, (1, 32, 24, 24)).astype(np.float32)
    nodes = [DYNAMIC, node("ConvInteger", ["q", "w", "zero"], ["n"], pads=[1, 1, 1, 1])]
    nodes += [node("Cast", ["n"], ["m"], to=to), node("Cast", ["m"], ["y"], to=1)]
    proto = of_nodes(nodes, x.shape, w=weight)
    np.testing.assert_array_equal(mpscnn.load(proto)(x), defined(proto, x))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"sums of up to \d+, which are exact up to 262144"):
        mpscnn.load(of_nodes(nodes, x.shape, w=np.full((1, 32, 9, 9), 127, np.int8)))


REFUSED: list[tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = [
    ([DYNAMIC, node("Cast", ["q"], ["y"], to=1)], (2, 4), {}, r"begin: one scale of all images of a batch of 2"),
    ([DYNAMIC, node("Cast", ["q"], ["y"], to=1)], ("n", 4), {}, "a batch of any size; declare a batch of 1"),
    ([DYNAMIC, node("Add", ["scale", "scale"], ["y"])], (1, 4), {}, "y: it has no axis for the images of a batch"),
    ([DYNAMIC, node("Celu", ["scale"], ["s"]), node("Mul", ["x", "s"], ["y"])], (1, 4), {}, "of all values of a"),
    ([DYNAMIC, node("ConvInteger", ["q", "w", "zero"], ["n"]), CAST], (1, 64, 40, 40),
     {"w": np.full((1, 64, 40, 40), 127, np.int8)}, "sums of up to 3316224000, which wrap beyond 2147483647"),
    ([DYNAMIC, node("ConvInteger", ["q", "w", "zero", "z"], ["n"]), CAST], (1, 4, 6, 5),
     {"w": W, "z": np.zeros(5, np.int8)}, r"zero points of shape \(5,\) for numbers of shape \(6, 4, 3, 3\)"),
    ([DYNAMIC, node("ConvInteger", ["w", "q"], ["n"]), CAST], (1, 4, 6, 5), {"w": W.view(np.uint8)}, "weights that"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "shape", "arrays", "message"), REFUSED)
def test_refused(nodes: list[Any], shape: tuple[Any, ...], arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(mpscnn.ImportError, match=message):
        mpscnn.load(of_nodes(nodes, shape, **arrays))
