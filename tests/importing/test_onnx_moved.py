# SPDX-License-Identifier: Apache-2.0
"""Tensors whose batch is taken together with other axes, or is not the first axis, against onnxruntime."""

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
from onnx_support import check, model, reference
from torch import nn

import mpscnn
from mpscnn.importing.onnx import patterns

node = helper.make_node
RNG = np.random.default_rng(8)


def values(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


class Windows(nn.Module):
    """Attention in windows of an image, as in Swin Transformer: the windows of all images are one batch."""

    def __init__(self, size: int = 4, heads: int = 2, channels: int = 8) -> None:
        super().__init__()
        self.size, self.heads = size, heads
        self.qkv, self.last = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.bias = nn.Parameter(torch.randn(1, heads, size * size, size * size))
        self.mask = nn.Parameter(torch.randn(6, size * size, size * size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        s, count = self.size, (h // self.size) * (w // self.size)
        x = torch.roll(x, (-1, -2), (1, 2)).view(b, h // s, s, w // s, s, c)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(b * count, s * s, c)
        qkv = self.qkv(x).reshape(x.size(0), s * s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = nn.functional.normalize(qkv[0], dim=-1), qkv[1], qkv[2]
        a = q.matmul(k.transpose(-2, -1)) + self.bias
        a = a.view(x.size(0) // count, count, self.heads, s * s, s * s) + self.mask.unsqueeze(1).unsqueeze(0)
        a = torch.softmax(a.view(-1, self.heads, s * s, s * s), -1)
        x = self.last(a.matmul(v).transpose(1, 2).reshape(x.size(0), s * s, c))
        x = x.view(b, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(x, (1, 2), (1, 2))


class Attention(nn.Module):
    """PyTorch's own attention, which has the batch as the second axis inside, of a sequence and a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1))
        return x + self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize(("kind", "shape"), [(Windows, (8, 12, 8)), (Attention, (5, 8))])
def test_module(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    file, before = io.BytesIO(), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                kind().eval(), (torch.rand(2, *shape),), file, input_names=["x"], opset_version=17, dynamo=False,
                dynamic_axes={"x": {0: "n"}},
            )  # fmt: skip
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    proto = onnx.load_model_from_string(file.getvalue())
    net = mpscnn.load(proto)
    for batch in (1, 3):
        x = values(batch, *shape)
        np.testing.assert_allclose(net(x), reference(proto, {"x": x})[0], atol=2e-6)


# Operators between a Reshape that takes the batch and the channels together, and one that takes them apart.
MERGED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "sum with a row": ([node("Add", ["m", "c"], ["r"])], {"c": values(5)}),
    "sum with one image": ([node("Add", ["c", "m"], ["r"])], {"c": values(1, 4, 5)}),
    "clamp": ([node("Clip", ["m", "low"], ["r"])], {"low": np.float32(-0.25)}),
    "product with itself": ([node("Mul", ["m", "m"], ["s"]), node("Sub", ["s", "m"], ["r"])], {}),
    "softmax": ([node("Softmax", ["m"], ["r"], axis=1)], {}),
    "normalization": ([node("LayerNormalization", ["m", "c"], ["r"])], {"c": values(5)}),
    "matrix": ([node("MatMul", ["m", "c"], ["r"])], {"c": values(5, 5)}),
    "computed matrices": (
        [node("Transpose", ["m"], ["t"], perm=[0, 2, 1]), node("MatMul", ["m", "t"], ["u"]),
         node("MatMul", ["u", "m"], ["r"])],
        {},
    ),
    "concatenation": (
        [node("Split", ["m", "halves"], ["a", "b"], axis=2), node("Concat", ["b", "a"], ["r"], axis=-1)],
        {"halves": np.int64([2, 3])},
    ),
    "reduction": (
        [node("ReduceMax", ["m"], ["a"], axes=[2]), node("Shape", ["m"], ["shape"]),
         node("Expand", ["a", "shape"], ["b"]), node("Sub", ["m", "b"], ["r"])],
        {},
    ),
    "GELU": (
        [node("Div", ["m", "root"], ["a"]), node("Erf", ["a"], ["b"]), node("Add", ["b", "one"], ["c"]),
         node("Mul", ["m", "c"], ["d"]), node("Mul", ["d", "half"], ["r"])],
        {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)},
    ),
    "batch normalization": (
        [node("BatchNormalization", ["m", "scale", "bias", "mean", "variance"], ["r"], epsilon=1e-3)],
        {"scale": values(4), "bias": values(4), "mean": values(4), "variance": np.float32([1, 2, 0.5, 3])},
    ),
    "padding": (
        [node("Pad", ["m", "pads"], ["p"]), node("Slice", ["p", "first", "last", "axes"], ["r"])],
        {"pads": np.int64([0, 1, 2, 0, 0, 1]), "first": np.int64([0, 1]), "last": np.int64([4, 6]),
         "axes": np.int64([1, 2])},
    ),
    "no padding": ([node("Pad", ["m", "pads"], ["p"]), node("Relu", ["p"], ["r"])], {"pads": np.zeros(6, np.int64)}),
    "sums of products": (
        [node("Einsum", ["m", "m"], ["e"], equation="b i d, b j d -> b i j"),
         node("Einsum", ["e", "m"], ["r"], equation="bij,bjd->bid")],
        {},
    ),
    "the batch in the middle": (
        [node("Transpose", ["m"], ["t"], perm=[1, 0, 2]), node("Add", ["t", "c"], ["u"]),
         node("Gather", ["u", "places"], ["g"], axis=0), node("Transpose", ["g"], ["r"], perm=[1, 0, 2])],
        {"c": values(4, 1, 5), "places": np.int64([3, 1, 0, 0])},
    ),
    "the batch last": (
        [node("Transpose", ["m"], ["t"], perm=[1, 2, 0]), node("Relu", ["t"], ["u"]),
         node("Transpose", ["u"], ["r"], perm=[2, 0, 1])],
        {},
    ),
}  # fmt: skip


def together(nodes: list[Any], arrays: dict[str, Any], batch: Any = 2) -> onnx.ModelProto:
    """Return a model of these nodes, from "m", (batch * 3, 4, 5), to "r"."""
    ends = [node("Reshape", ["x", "into"], ["m"]), *nodes, node("Reshape", ["r", "out"], ["y"])]
    return model(
        ends, {"x": (batch, 3, 4, 5)}, ["y"], 17, into=np.int64([-1, 4, 5]), out=np.int64([-1, 3, 4, 5]), **arrays
    )


def test_rows_of_all_images() -> None:
    """A Flatten that takes the batch together with tokens, as batch normalization of them does."""
    names = ["scale", "bias", "mean", "variance"]
    nodes = [
        node("Flatten", ["x"], ["rows"], axis=2),
        node("BatchNormalization", ["rows", *names], ["n"]),
        node("Reshape", ["n", "out"], ["y"]),
    ]
    arrays = {name: values(5) for name in names[:3]} | {"variance": np.float32([1, 2, 0.5, 3, 1])}
    check(
        model(nodes, {"x": ("n", 3, 5)}, ["y"], 17, out=np.int64([-1, 3, 5]), **arrays),
        {"x": (1, 3, 5)}, {"x": (4, 3, 5)}, fixed=True,
    )  # fmt: skip


def strided(batch: Any, places: NDArray[Any]) -> onnx.ModelProto:
    """Return a model that reads values of each image by their places in all images, as torch.as_strided is written."""
    nodes = [
        node("Shape", ["x"], ["shape"], end=1),
        node("Squeeze", ["shape"], ["n"]),
        node("Range", ["zero", "n", "one"], ["numbers"]),
        node("Mul", ["numbers", "size"], ["firsts"]),
        node("Unsqueeze", ["firsts", "axes"], ["columns"]),
        node("Add", ["columns", "places"], ["indices"]),
        node("Reshape", ["x", "into"], ["all"]),
        node("Gather", ["all", "indices"], ["y"], axis=0),
    ]
    return model(
        nodes, {"x": (batch, 2, 3)}, ["y"], 17, zero=np.int64(0), one=np.int64(1), size=np.int64(6),
        axes=np.int64([1, 2]), places=places, into=np.int64([-1]),
    )  # fmt: skip


@pytest.mark.parametrize("places", [np.arange(6).reshape(1, 3, 2), np.int64([[[5], [0], [0], [2]]])])
def test_strided(places: NDArray[Any]) -> None:
    check(strided("n", places), {"x": (1, 2, 3)}, {"x": (3, 2, 3)}, fixed=True)
    check(strided(3, places), {"x": (3, 2, 3)}, fixed=True)


@pytest.mark.parametrize("batch", ["n", 3])
def test_strided_into_other_images(batch: Any) -> None:
    for places in (np.int64([[[0], [6]]]), np.int64([[[0], [-1]]])):
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="values of other images of the batch"):
            mpscnn.load(strided(batch, places))
    other = strided(batch, np.int64([[[0], [1]]]))
    other.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(np.int64(2), "size"))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="values of other images of the batch"):
        mpscnn.load(other)


def test_windows_of_an_adaptive_pooling() -> None:
    """Places along two axes in front of the batch, as torch.onnx writes an adaptive pooling of windows that overlap."""
    rows, columns = np.int64([[0, 1], [1, 2], [2, 3]]), np.int64([[0, 1], [2, 4]])
    indices = np.stack(np.broadcast_arrays(rows[:, :, None, None], columns), -1)
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[2, 3, 0, 1]),
        node("GatherND", ["t", "indices"], ["g"]),
        node("Transpose", ["g"], ["w"], perm=[4, 5, 0, 1, 2, 3]),
        node("Where", ["mask", "zero", "w"], ["v"]),
        node("Gather", ["v", "one"], ["a"], axis=3),
        node("Gather", ["a", "one"], ["b"], axis=4),
        node("Div", ["b", "counts"], ["y"]),
    ]
    arrays = {"mask": np.array([[True, False], [False, False], [False, True]])[:, :, None, None]}
    arrays |= {"counts": np.float32([[1, 2], [2, 4], [1, 2]]), "zero": np.float32(0), "one": np.int64(1)}
    proto = model(nodes, {"x": ("n", 3, 4, 5)}, ["y"], 17, indices=indices, **arrays)
    check(proto, {"x": (1, 3, 4, 5)}, {"x": (2, 3, 4, 5)}, fixed=True)


def adaptive(extents: tuple[int, int], size: tuple[int, int], counted: int = 0) -> onnx.ModelProto:
    """Return a model with an adaptive pooling as torch.onnx writes it; `counted` is added to the numbers of values."""
    axes = []
    for extent, count in zip(extents, size, strict=True):
        bounds = [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]
        longest = max(end - start for start, end in bounds)
        places = np.int64([[min(start + i, extent - 1) for i in range(longest)] for start, _ in bounds])
        beyond = np.array([[start + i >= end for i in range(longest)] for start, end in bounds])
        axes.append((places, beyond, np.float32([end - start for start, end in bounds])))
    (rows, no_rows, heights), (columns, no_columns, widths) = axes
    arrays = {f"n{i}": np.int64(i) for i in range(max(rows.shape[1], columns.shape[1]))}
    arrays |= {"indices": np.stack(np.broadcast_arrays(rows[:, :, None, None], columns), -1), "zero": np.float32(0)}
    arrays |= {"no_rows": no_rows[:, :, None, None], "no_columns": no_columns}
    arrays |= {"counts": heights[:, None] * widths + np.float32(counted)}
    nodes = [
        node("Relu", ["x"], ["x0"]),
        node("Transpose", ["x0"], ["t"], perm=[2, 3, 0, 1]),
        node("GatherND", ["t", "indices"], ["g"]),
        node("Transpose", ["g"], ["w"], perm=[4, 5, 0, 1, 2, 3]),
        node("Where", ["no_columns", "zero", "w"], ["v0"]),
        node("Where", ["no_rows", "zero", "v0"], ["v"]),
    ]
    sums = []
    for column in range(columns.shape[1]):
        nodes.append(node("Gather", ["v", f"n{column}"], [f"c{column}"], axis=5))
        for row in range(rows.shape[1]):
            nodes.append(node("Gather", [f"c{column}", f"n{row}"], [f"r{row}_{column}"], axis=3))
            sums.append(f"r{row}_{column}")
    for place, name in enumerate(sums[1:]):
        nodes.append(node("Add", [sums[0] if place == 0 else f"s{place}", name], [f"s{place + 1}"]))
    nodes.append(node("Div", [f"s{len(sums) - 1}", "counts"], ["y"]))
    return model(nodes, {"x": ("n", 3, 6, 7)}, ["y"], 17, **arrays)


def test_adaptive_pooling() -> None:
    """It is a pooling by kernels, which can be saved, also of a part of the image, unless it is no mean."""
    for extents, size in (((6, 7), (4, 3)), ((6, 7), (8, 9)), ((4, 5), (3, 2))):
        for counted in (0, 1):
            proto = adaptive(extents, size, counted)
            graph = check(proto, {"x": (1, 3, 6, 7)}, {"x": (2, 3, 6, 7)}, fixed=True)
            kernels = {layer.kernel for layer in graph.nodes}
            assert ("MetalFunction" in kernels) == bool(counted), kernels


def test_an_adaptive_pooling_of_a_file_that_lies() -> None:
    """Places, sums and cycles that would take the memory, or never end, are no pattern."""
    proto = adaptive((6, 7), (4, 3))
    right = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}

    def pools(**constants: NDArray[Any]) -> dict[str, Any]:
        known = right | constants
        return patterns.Patterns(proto.graph.node, lambda name: None, lambda name: None, known.get).pools

    places = right["indices"]
    assert pools() == {"y": ((6, 7), (4, 3))}
    assert not pools(indices=places + (1 << 40))
    assert not pools(indices=places - 9)
    assert not pools(indices=places[:0])
    assert not pools(indices=places.astype(np.float32))
    assert not pools(n1=np.zeros(1 << 22, np.int64))
    assert not pools(counts=np.ones((1 << 20, 1, 1, 1, 1)))
    assert not pools(counts=right["counts"] * 0)
    next(one for one in proto.graph.node if one.output[0] == "s1").input[0] = "s2"
    assert not pools()


def masked(order: list[int] | None = None) -> onnx.ModelProto:
    """Return a model that adds a constant for each window, repeated for each image; `order`: of its axes, batch 0."""
    nodes = [
        node("Shape", ["x"], ["whole"], end=1),
        node("Concat", ["whole", "kept"], ["given"], axis=0),
        node("Unsqueeze", ["c", "first"], ["one"]),
        node("Expand", ["one", "given"], ["expanded"]),
        node("Reshape", ["expanded" if order is None else "turned", "into"], ["each"]),
        node("Add", ["each", "row"], ["mask"]),
        node("Reshape", ["x", "into"], ["m"]),
        node("Add", ["m", "mask"], ["r"]),
        node("Reshape", ["r", "out"], ["y"]),
    ]
    if order is not None:
        nodes.insert(4, node("Transpose", ["expanded"], ["turned"], perm=order))
    return model(
        nodes, {"x": ("n", 3, 4, 5)}, ["y"], 17, kept=np.int64([3, 4, 5]), first=np.int64([0]), c=values(3, 4, 5),
        into=np.int64([-1, 4, 5]), out=np.int64([-1, 3, 4, 5]), row=values(1, 4, 5),
    )  # fmt: skip


def test_constant_of_each_window() -> None:
    check(masked(), {"x": (1, 3, 4, 5)}, {"x": (3, 3, 4, 5)}, fixed=True)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="values of its own for each image of the batch"):
        mpscnn.load(masked([1, 0, 2, 3]))  # each window for all images, then the next


@pytest.mark.parametrize("name", MERGED)
def test_merged(name: str) -> None:
    check(together(*MERGED[name], batch="n"), {"x": (1, 3, 4, 5)}, {"x": (3, 3, 4, 5)}, fixed=True)


SECOND: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "axes apart": (
        [node("Reshape", ["t", "a"], ["u"]), node("Softmax", ["u"], ["v"], axis=2), node("Reshape", ["v", "b"], ["r"])],
        {"a": np.int64([3, -1, 4, 5]), "b": np.int64([3, -1, 20])},
    ),
    "an axis in front": (
        [node("Unsqueeze", ["t", "a"], ["u"]), node("Relu", ["u"], ["v"]), node("Squeeze", ["v", "a"], ["r"])],
        {"a": np.int64([0])},
    ),
    "rows of all images": (
        [node("Mul", ["batch", "three"], ["n"]), node("Concat", ["n", "twenty"], ["c"], axis=0),
         node("Reshape", ["t", "c"], ["u"]), node("Gemm", ["u", "w", "row"], ["v"]),
         node("Reshape", ["v", "b"], ["r"])],
        {"three": np.int64([3]), "twenty": np.int64([20]), "w": values(20, 20), "row": values(20),
         "b": np.int64([3, -1, 20])},
    ),
    "axes added and removed": (
        [node("Unsqueeze", ["t", "a"], ["u"]), node("Transpose", ["u"], ["v"], perm=[2, 1, 3, 0, 4]),
         node("Squeeze", ["v", "b"], ["w"]), node("Transpose", ["w"], ["r"], perm=[1, 0, 2])],
        {"a": np.int64([0, -2]), "b": np.int64([-2, 2])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SECOND)
def test_second(name: str) -> None:
    """Reshapes of a tensor with the batch as the second axis, whose size is that of the input."""
    nodes, arrays = SECOND[name]
    ends = [node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), *nodes, node("Transpose", ["r"], ["y"], perm=[1, 0, 2])]
    shapes = {key: arrays[key] for key in arrays if key in "ab" and arrays[key].size > 2}
    arrays = {key: array for key, array in arrays.items() if key not in shapes}
    for key, target in shapes.items():  # with the batch's size in the place of -1
        ends.insert(0, node("Concat", [f"{key} first", "batch", f"{key} last"], [key], axis=0))
        arrays = arrays | {f"{key} first": target[:1], f"{key} last": target[2:]}
    ends.insert(0, node("Shape", ["x"], ["batch"], end=1))
    check(
        model(ends, {"x": ("n", 3, 20)}, ["y"], 17, **arrays), {"x": (1, 3, 20)}, {"x": (4, 3, 20)}, fixed=bool(shapes)
    )


# Operators behind a Transpose that puts the batch to another place.
TURNED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "sum with a constant": ([node("Add", ["t", "c"], ["r"])], {"c": values(4, 1, 5, 1)}),
    "sum with a column": ([node("Mul", ["t", "c"], ["r"])], {"c": values(5, 1)}),
    "softmax": ([node("Softmax", ["t"], ["r"], axis=0)], {}),
    "matrix": ([node("MatMul", ["t", "c"], ["r"])], {"c": values(3, 3)}),
}


@pytest.mark.parametrize("name", TURNED)
def test_turned(name: str) -> None:
    nodes, arrays = TURNED[name]
    ends = [
        node("Transpose", ["x"], ["t"], perm=[2, 0, 3, 1]),
        *nodes,
        node("Transpose", ["r"], ["y"], perm=[1, 3, 0, 2]),
    ]
    proto = model(ends, {"x": ("n", 3, 4, 5)}, ["y"], 17, **arrays)
    check(proto, {"x": (1, 3, 4, 5)}, {"x": (2, 3, 4, 5)}, fixed=name.startswith("sum"))


REFUSED: list[tuple[list[Any], dict[str, Any], str]] = [
    ([node("Softmax", ["m"], ["r"], axis=0)], {}, "an operator along the batch"),
    ([node("Add", ["m", "c"], ["r"])], {"c": values(6, 4, 5)}, "values of its own for each image of the batch"),
    ([node("ReduceSum", ["m", "a"], ["r"])], {"a": np.int64([0])}, "an operator along the batch"),
    ([node("Pad", ["m", "p"], ["r"])], {"p": np.int64([1, 0, 0, 0, 0, 0])}, "an operator along the batch"),
    ([node("Add", ["m", "x"], ["r"])], {}, "tensors with the batch at different places"),
    ([node("LpNormalization", ["m"], ["r"])], {}, "a tensor whose batch is not the first axis, or taken together"),
    ([node("Transpose", ["m"], ["t"], perm=[1, 0, 2]), node("Add", ["m", "t"], ["r"])], {}, "at different places"),
    ([node("Transpose", ["m"], ["t"], perm=[1, 0, 2]), node("MatMul", ["t", "t"], ["r"])], {}, "whose batch is not"),
]


@pytest.mark.parametrize(("nodes", "arrays", "message"), REFUSED)
def test_refused(nodes: list[Any], arrays: dict[str, Any], message: str) -> None:
    ends = [node("Reshape", ["x", "into"], ["m"]), *nodes, node("Reshape", ["r", "out"], ["y"])]
    graph = model(
        ends[:1], {"x": (2, 3, 4, 5)}, ["m"], 17, into=np.int64([-1, 4, 5]), out=np.int64([-1, 3, 4, 5]), **arrays
    )
    graph.graph.node.extend(ends[1:])
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["a", 3, 4, 5]))
    with pytest.raises(mpscnn.ImportError, match=message):
        mpscnn.load(graph)


def test_outputs_have_the_batch_first() -> None:
    for last in (node("Reshape", ["x", "into"], ["y"]), node("Transpose", ["x"], ["y"], perm=[1, 0, 2, 3])):
        proto = model([last], {"x": (2, 3, 4, 5)}, ["y"], 17, into=np.int64([-1, 4, 5]))
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="the batch taken together with other axes, or not"):
            mpscnn.load(proto)


def test_class_token() -> None:
    """A constant that is repeated for each image, by the shape that torch.onnx writes for `expand(n, -1, -1)`."""
    nodes = [
        node("Shape", ["x"], ["whole"], end=1),
        node("Concat", ["whole", "kept"], ["given"], axis=0),
        node("Equal", ["given", "minus"], ["open"]),
        node("Where", ["open", "ones", "given"], ["shape"]),
        node("Expand", ["token", "shape"], ["tokens"]),
        node("Concat", ["tokens", "x"], ["y"], axis=1),
    ]
    proto = model(
        nodes, {"x": ("n", 4, 5)}, ["y"], 17,
        kept=np.int64([-1, -1]), minus=np.int64([-1, -1, -1]), ones=np.int64([1, 1, 1]), token=values(1, 1, 5),
    )  # fmt: skip
    check(proto, {"x": (1, 4, 5)}, {"x": (3, 4, 5)}, fixed=True)
    proto.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.int64([2, -1, -1]), "minus"))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="of the size of the batch"):
        mpscnn.load(proto)
