# SPDX-License-Identifier: Apache-2.0
"""Models for one image, whose axis of the batch is taken together with others, image by image against onnxruntime."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import helper
from onnx_support import assert_same, model, reference
from test_onnx_moved import MERGED, Attention, Windows

import mpscnn
from mpscnn.importing import onnx as importer

node = helper.make_node


def values(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(proto: onnx.ModelProto, *shape: int) -> None:
    """Compare a batch of three with the results of the model for each of its images."""
    net = mpscnn.load(proto)
    x = values(3, *shape, seed=1)
    found = net(x)
    expected = np.concatenate([reference(proto, {"x": x[i : i + 1]})[0] for i in range(3)])
    assert_same(found, expected, 1e-5)
    # An operator that is imported in a second way has left no nodes of the first.
    graph = importer.read(proto)
    read = {source for each in graph.nodes for source in each.sources}
    assert {each.name for each in graph.nodes} <= read | {output.source for output in graph.outputs.values()}


def one(nodes: list[Any], arrays: dict[str, Any], opset: int = 17, first: int = 3) -> onnx.ModelProto:
    """Return a model for one image of these nodes, from "m", (3, 4, 5), whose values are those of the image, to "r".

    `first`: 3, or -1: the axis is taken together with that of the batch.
    """
    ends = [node("Reshape", ["x", "into"], ["m"]), *nodes, node("Reshape", ["r", "out"], ["y"])]
    shapes = {"into": np.int64([first, 4, 5]), "out": np.int64([1, 3, 4, 5])}
    return model(ends, {"x": (1, 3, 4, 5)}, ["y"], opset, **shapes, **arrays)


# Operators along the axis that takes the place of the batch's, of values of other ranks, and of constants.
ROWS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "softmax": ([node("Softmax", ["m"], ["r"], axis=0)], {}),
    "softmax of turned windows": (
        [node("Transpose", ["m"], ["t"], perm=[1, 0, 2]), node("Softmax", ["t"], ["s"], axis=1),
         node("Transpose", ["s"], ["r"], perm=[1, 0, 2])],
        {},
    ),
    "sums": (
        [node("ReduceSum", ["m", "axes"], ["s"]), node("Expand", ["s", "to"], ["e"]), node("Sub", ["m", "e"], ["r"])],
        {"axes": np.int64([0, -1]), "to": np.int64([3, 1, 5])},
    ),
    "means without axes": (
        [node("ReduceMean", ["m"], ["s"], axes=[0, 2], keepdims=0), node("Unsqueeze", ["s", "axes"], ["u"]),
         node("Mul", ["m", "u"], ["r"])],
        {"axes": np.int64([0, -1])},
    ),
    "a mean of all values": ([node("ReduceMean", ["m"], ["s"]), node("Sub", ["m", "s"], ["r"])], {}),
    "constants": (
        [node("Add", ["m", "c"], ["a"]), node("Mul", ["c", "a"], ["b"]), node("Less", ["b", "m"], ["l"]),
         node("Where", ["l", "zero", "b"], ["r"])],
        {"c": values(3, 1, 5), "zero": np.float32(0)},
    ),
    "a constant of more axes": (
        [node("Add", ["m", "c"], ["a"]), node("Squeeze", ["a", "axis"], ["r"])],
        {"c": values(1, 3, 4, 1), "axis": np.int64([0])},
    ),
    "fewer axes": (
        [node("Gather", ["m", "one"], ["g"], axis=0), node("Relu", ["g"], ["h"]), node("Add", ["m", "h"], ["r"])],
        {"one": np.int64(1)},
    ),
    "products": (
        [node("Transpose", ["m"], ["t"], perm=[2, 0, 1]), node("Reshape", ["t", "rows"], ["u"]),
         node("MatMul", ["m", "u"], ["v"]), node("MatMul", ["v", "w"], ["r"])],
        {"rows": np.int64([0, -1]), "w": values(12, 5)},
    ),
    "matrices": (
        [node("Flatten", ["m"], ["f"], axis=2), node("Gemm", ["f", "w", "c"], ["g"], transB=1, alpha=0.5, beta=2.0),
         node("Reshape", ["g", "back"], ["r"])],
        {"w": values(5, 5), "c": values(5), "back": np.int64([3, 4, 5])},
    ),
    "transposed matrices": (
        [node("Reshape", ["m", "tall"], ["f"]), node("Gemm", ["f", "w"], ["g"], transA=1),
         node("Gemm", ["w", "f"], ["h"], transA=1, transB=0), node("Transpose", ["h"], ["i"]),
         node("Add", ["g", "i"], ["j"]), node("Reshape", ["j", "back"], ["r"])],
        {"tall": np.int64([12, 5]), "w": values(12, 12), "back": np.int64([3, 4, 5])},
    ),
    "parts": (
        [node("Split", ["m", "lengths"], ["a", "b"], axis=0), node("Slice", ["b", "start", "end", "axes"], ["c"]),
         node("Concat", ["c", "k", "a"], ["d"], axis=0), node("Gather", ["d", "places"], ["r"], axis=-3)],
        {"lengths": np.int64([1, 2]), "start": np.int64([1]), "end": np.int64([2]), "axes": np.int64([-3]),
         "k": values(2, 4, 5), "places": np.int64([3, 0, 1])},
    ),
    "padding": (
        [node("Pad", ["m", "pads"], ["p"]), node("Slice", ["p", "start", "end"], ["r"])],
        {"pads": np.int64([1, 0, 2, 1, 0, 1]), "start": np.int64([1, 0, 1]), "end": np.int64([4, 4, 6])},
    ),
    "the largest": (
        [node("ArgMax", ["m"], ["a"], axis=0), node("Cast", ["a"], ["b"], to=1), node("Mul", ["m", "b"], ["r"])], {},
    ),
    "a shape": (
        [node("Shape", ["m"], ["s"]), node("Transpose", ["m"], ["t"], perm=[2, 1, 0]),
         node("Reshape", ["t", "s"], ["r"])],
        {},
    ),
    "normalization": ([node("LayerNormalization", ["m", "c"], ["r"], axis=0)], {"c": values(3, 4, 5)}),
}  # fmt: skip


@pytest.mark.parametrize("first", [3, -1])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, first: int) -> None:
    check(one(*ROWS[name], first=first), 3, 4, 5)


@pytest.mark.parametrize("first", [3, -1])
@pytest.mark.parametrize("name", MERGED)
def test_merged(name: str, first: int) -> None:
    check(one(*MERGED[name], first=first), 3, 4, 5)


def test_softmax_of_old_versions() -> None:
    """Before version 13 it is over all axes from one on, by default 1."""
    check(one([node("Softmax", ["m"], ["r"])], {}, 11), 3, 4, 5)


@pytest.mark.parametrize(("kind", "shape"), [(Windows, (8, 12, 8)), (Attention, (5, 8))], ids=["windows", "attention"])
def test_module(kind: type[torch.nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    file, before = io.BytesIO(), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            example = (torch.rand(1, *shape),)
            torch.onnx.export(kind().eval(), example, file, input_names=["x"], opset_version=17, dynamo=False)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    check(onnx.load_model_from_string(file.getvalue()), *shape)


@pytest.mark.parametrize(
    ("nodes", "arrays", "message"),
    [
        ([node("LpNormalization", ["m"], ["r"], axis=0)], {}, "whose first axis is not that of the batch"),
        (
            [node("Transpose", ["m"], ["t"], perm=[1, 0, 2]), node("LpNormalization", ["t"], ["r"])],
            {},
            "whose first axis",
        ),
    ],
)
def test_refused(nodes: list[Any], arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=message):
        mpscnn.load(one(nodes, arrays))


def test_outputs_have_an_axis_of_images() -> None:
    proto = model([node("Reshape", ["x", "into"], ["y"])], {"x": (1, 3, 4)}, ["y"], 17, into=np.int64([3, 4]))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"no axis for the images|the batch taken together"):
        mpscnn.load(proto)


def test_another_input_of_any_batch() -> None:
    """Images of that input are not those of a model for one."""
    nodes = [node("ReduceSum", ["z", "axes"], ["s"]), node("Add", ["x", "s"], ["y"])]
    for batch in ("n", 2):
        proto = model(nodes, {"x": (1, 4), "z": (batch, 4)}, ["y"], 17, axes=np.int64([0]))
        with pytest.raises(mpscnn.UnsupportedOperatorError):
            mpscnn.load(proto)
    assert mpscnn.load(model(nodes, {"x": (1, 4), "z": (1, 4)}, ["y"], 17, axes=np.int64([0])))
