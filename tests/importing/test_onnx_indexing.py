# SPDX-License-Identifier: Apache-2.0
"""Operators with constant indices along several axes, against NumPy and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx_support import check, model

import mpscnn
from mpscnn.importing import onnx as importer

node = helper.make_node
RNG = np.random.default_rng(5)
SHAPE = (2, 3, 4, 5)


def values(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def with_images(indices: Any, batch: int = 2) -> NDArray[np.int64]:
    """Return indices of one image for a batch, with the image's number in front of each."""
    own = np.asarray(indices, np.int64)
    images = [np.concatenate([np.full((*own.shape[:-1], 1), image), own], -1) for image in range(batch)]
    return np.stack(images).astype(np.int64)


GATHERED = {
    "channels": [[2], [0], [2]],
    "rows": [[2, 1], [0, -1], [-3, 3]],
    "pixels of one channel": [[[1, 3, 4], [0, 0, -5]], [[2, 1, 1], [1, -4, 0]]],
}


@pytest.mark.parametrize("name", GATHERED)
def test_gather(name: str) -> None:
    proto = model([node("GatherND", ["x", "i"], ["y"])], {"x": SHAPE}, ["y"], i=with_images(GATHERED[name]))
    check(proto, {"x": SHAPE}, fixed=True)


@pytest.mark.parametrize("lead", [1, 2])
def test_gather_with_axes_of_the_batch(lead: int) -> None:
    indices = RNG.integers(-4, 4, (1, 6, 1) if lead == 1 else (1, 3, 2, 2))
    indices = np.repeat(indices % 3 if lead == 1 else indices, 2, 0)
    proto = model([node("GatherND", ["x", "i"], ["y"], batch_dims=lead)], {"x": SHAPE}, ["y"], i=indices)
    check(proto, {"x": SHAPE}, fixed=True)


SCATTERED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "channels": ([[2], [0]], (2, 2, 4, 5)),
    "rows": ([[2, 1], [0, -1], [1, 3]], (2, 3, 5)),
    "one row twice": ([[2, 1], [2, 1], [1, 3], [2, 1]], (2, 4, 5)),
    "values": ([[[1, 3, 4], [0, 0, -5]]], (2, 1, 2)),
    "all channels": ([[0], [1], [2]], (2, 3, 4, 5)),
}


@pytest.mark.parametrize("kind", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("name", SCATTERED)
def test_scatter(name: str, kind: str) -> None:
    indices, updates = SCATTERED[name]
    if kind == "none" and "twice" in name:
        pytest.skip("the order is not defined")
    proto = model(
        [node("ScatterND", ["x", "i", "u"], ["y"], reduction=kind)],
        {"x": SHAPE, "u": updates},
        ["y"],
        18,
        i=with_images(indices),
    )
    check(proto, {"x": SHAPE, "u": updates}, fixed=True)


@pytest.mark.parametrize("place", ["data", "updates"])
def test_scatter_of_constants(place: str) -> None:
    """An image of zeros of which a part is assigned, and constants that are assigned."""
    constant = np.repeat(values(1, *SHAPE[1:]) if place == "data" else values(1, 3, 5), 2, 0)
    given = {"u": (2, 3, 5)} if place == "data" else {"x": SHAPE}
    proto = model(
        [node("ScatterND", ["x", "i", "u"], ["y"])],
        given,
        ["y"],
        i=with_images([[2, 1], [0, -1], [1, 3]]),
        **{"x" if place == "data" else "u": constant},
    )
    check(proto, given, fixed=True)


@pytest.mark.parametrize("kind", ["none", "add", "max"])
@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("alike", [True, False])
def test_scatter_elements(axis: int, alike: bool, kind: str) -> None:
    """Indices that are the same along the last axes, whose values move together, and others."""
    shape = [2, 3, 4, 5]
    shape[axis] = 2
    extent = SHAPE[axis]
    picks = RNG.permuted(np.broadcast_to(np.arange(extent), (*np.delete(shape, axis)[1:], extent)), axis=-1)[..., :2]
    indices = np.moveaxis(picks[:1, :1] + 0 * picks if alike else picks, -1, (axis % 4) - 1)[None]
    proto = model(
        [node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=kind)],
        {"x": SHAPE, "u": tuple(shape)},
        ["y"],
        18,
        i=np.repeat(indices, 2, 0).astype(np.int64),
    )
    check(proto, {"x": SHAPE, "u": tuple(shape)}, fixed=True)


def test_constants_alone() -> None:
    """Masks as windowed attention makes them: parts of a constant are assigned, then picked."""
    nodes = [
        node("ScatterND", ["c", "i", "u"], ["a"]),
        node("ScatterElements", ["a", "j", "v"], ["b"], axis=1, reduction="add"),
        node("GatherND", ["b", "k"], ["d"]),
        node("Add", ["x", "d"], ["y"]),
    ]
    proto = model(
        nodes,
        {"x": (2, 4)},
        ["y"],
        18,
        c=values(3, 4),
        i=np.int64([[0, 1], [2, -1]]),
        u=values(2),
        j=np.int64([[0, 0], [-1, 2], [1, 1]]),
        v=values(3, 2),
        k=np.int64([[-1]]),
    )
    check(proto, {"x": (2, 4)})


# Modes, opsets, pads of a constant (1, 2, 3), their axes, and a value.
PADS = [
    ("constant", 18, [1, 1, 0, 1], [-2, -1], np.float32([2.5])),
    ("constant", 18, [0, 1, 1, 0, 0, 1], None, np.float32(-1)),
    ("constant", 18, [-1, 3, 2, -1], [1, -1], None),
    ("edge", 18, [0, 1, 1, 1], [1, 2], None),
    ("reflect", 18, [0, 1, 1, 1], [1, 2], None),
    ("wrap", 19, [0, 1, 1, 1], [1, 2], None),
]


@pytest.mark.parametrize(("mode", "opset", "pads", "axes", "value"), PADS)
def test_padded_constants(mode: str, opset: int, pads: list[int], axes: Any, value: Any) -> None:
    given = {"value": value, "axes": axes if axes is None else np.int64(axes)}
    names = [name if given[name] is not None else "" for name in given]
    arrays = {name: array for name, array in given.items() if array is not None}
    nodes = [node("Pad", ["c", "pads", *names], ["p"], mode=mode), node("Add", ["x", "p"], ["y"])]
    sides = dict(zip([a % 3 for a in axes or range(3)], zip(pads, pads[len(pads) // 2 :], strict=False), strict=True))
    shape = tuple(e + sum(sides.get(axis, ())) for axis, e in enumerate((1, 2, 3)))
    proto = model(nodes, {"x": ("n", *shape[1:])}, ["y"], opset, c=values(1, 2, 3), pads=np.int64(pads), **arrays)
    check(proto, {"x": shape}, fixed=True)


def test_padded_constants_of_old_opsets() -> None:
    nodes = [node("Pad", ["c"], ["p"], pads=[0, 1, 0, 1], value=2.0), node("Add", ["x", "p"], ["y"])]
    check(model(nodes, {"x": ("n", 5)}, ["y"], 10, c=values(1, 3)), {"x": (2, 5)})


PADS_REFUSED = [
    ([0, 3, 0, 0], "reflect", r"of shape \(1, 3\) with the pads \[0, 3, 0, 0\]"),
    ([0, -2, 0, -2], "constant", "a constant of shape"),
    ([0, 2**62, 0, 0], "constant", "a constant of shape"),
]


@pytest.mark.parametrize(("pads", "mode", "message"), PADS_REFUSED)
def test_pads_of_constants_are_checked(pads: list[int], mode: str, message: str) -> None:
    nodes = [node("Pad", ["c", "pads"], ["p"], mode=mode), node("Add", ["x", "p"], ["y"])]
    proto = model(nodes, {"x": ("n", 1)}, ["y"], 13, c=values(1, 3), pads=np.int64(pads))
    with pytest.raises(mpscnn.ImportError, match=message):
        importer.read(proto)


def test_padded_constants_of_each_image() -> None:
    """A constant that the model has once for each image is here that of one."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["zeros"]),
        node("Pad", ["zeros", "pads"], ["p"]),
        node("Concat", ["p", "p"], ["q"], axis=0),
        node("Reshape", ["q", "one"], ["r"]),
        node("Add", ["x", "r"], ["y"]),
    ]
    proto = model(nodes, {"x": ("n", 2)}, ["y"], 17, pads=np.int64([0, 0, 1, 0]), one=np.int64([-1, 2]))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="of the size of the batch"):
        mpscnn.load(proto)


def scatter(indices: NDArray[Any], updates: tuple[Any, ...], batch: Any = 2, **attributes: Any) -> Any:
    operator = attributes.pop("operator", "ScatterND")
    nodes = [node(operator, ["x", "i", "u"], ["y"], name="put", **attributes)]
    return model(nodes, {"x": (batch, *SHAPE[1:]), "u": updates}, ["y"], 18, i=indices)


REFUSED = [
    (scatter(with_images([[5]]), (2, 1, 4, 5)), r"put \(ScatterND\): the index 5 of an axis of 3"),
    (scatter(with_images([[0, -5]]), (2, 1, 5)), r"the index -5 of an axis of 4"),
    (scatter(with_images([[2**62]]), (2, 1, 4, 5)), r"the index \d+ of an axis of 3"),
    (scatter(with_images([[0]])[::-1], (2, 1, 4, 5)), "indices of other images of the batch"),
    (scatter(np.int64([[[0, 1]], [[1, 2]]]), (2, 1, 4, 5)), "indices of their own for each image of the batch"),
    (scatter(with_images([[0]], 1), ("n", 1, 4, 5), "n"), "with a batch of any size"),
    (scatter(with_images([[1]] * 17), (2, 17, 4, 5), reduction="add"), r"more than 16 updates of one place"),
    (scatter(np.zeros(SHAPE, np.int64), SHAPE, operator="ScatterElements"), "values of other images of the batch"),
    (scatter(np.full(SHAPE, 3), SHAPE, operator="ScatterElements", axis=1), "the index 3 of an axis of 3"),
]


@pytest.mark.parametrize(("proto", "message"), REFUSED)
def test_refused(proto: Any, message: str) -> None:
    with pytest.raises(mpscnn.ImportError, match=message):
        importer.read(proto)


def test_pooling_of_parts_of_axes() -> None:
    """A mean of windows of a tensor whose axes were taken apart and together, as in MaxViT."""
    nodes = [
        node("Reshape", ["x", "apart"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 5, 2, 4]),
        node("Reshape", ["b", "together"], ["c"]),
        node("AveragePool", ["c"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxPool", ["c"], ["z"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    proto = model(
        nodes, {"x": (2, 3, 8, 12)}, ["y", "z"], apart=np.int64([2, 3, 4, 2, 6, 2]), together=np.int64([2, 3, 8, 12])
    )
    check(proto, {"x": (2, 3, 8, 12)}, fixed=True)


@pytest.mark.parametrize(("training", "outputs"), [(0, ["n"]), (1, ["n", "m", "v"])])
def test_standardized_weights(training: int, outputs: list[str]) -> None:
    """BiT's convolutions normalize their constant weights as batch normalization in training does."""
    nodes = [
        node("Reshape", ["w", "flat"], ["f"]),
        node("BatchNormalization", ["f", *"abcd"], outputs, training_mode=training, epsilon=1e-6),
        node("Reshape", ["n", "to"], ["k"]),
        node("Conv", ["x", "k"], ["y"]),
    ]
    constants = {"w": values(6, 4, 3, 3), "flat": np.int64([1, 6, -1]), "to": np.int64([6, 4, 3, 3])}
    statistics = dict(zip("abcd", (values(6), values(6), values(6), np.arange(1, 7)), strict=True))
    statistics = {name: value.astype(np.float32) for name, value in statistics.items()}
    check(model(nodes, {"x": (2, 4, 5, 6)}, ["y"], 18, **constants, **statistics), {"x": (2, 4, 5, 6)})


def assigned(factor: int = 1) -> onnx.ModelProto:
    """Return a model of `x[:, [2, 0]] = -x[:, :2]`, with a free batch, as torch.onnx writes it with dynamo=False."""
    nodes = [
        node("Shape", ["x"], ["first"], end=1),
        node("Squeeze", ["first"], ["n"]),
        node("Range", ["zero", "n", "one"], ["numbers"]),
        node("Mul", ["numbers", "factor"], ["scaled"]),
        node("Reshape", ["scaled", "column"], ["columns"]),
        node("Add", ["columns", "none"], ["grid"]),
        node("Shape", ["grid"], ["shape"]),
        node("Expand", ["places", "shape"], ["expanded"]),
        node("Unsqueeze", ["grid", "last"], ["a"]),
        node("Unsqueeze", ["expanded", "last"], ["b"]),
        node("Concat", ["a", "b"], ["indices"], axis=-1),
        node("Slice", ["x", "zeros", "two", "ones"], ["part"]),
        node("Neg", ["part"], ["negative"]),
        node("Concat", ["shape", "four"], ["whole"], axis=0),
        node("Reshape", ["negative", "whole"], ["updates"]),
        node("ScatterND", ["x", "indices", "updates"], ["y"]),
    ]
    arrays = {"zero": np.int64(0), "one": np.int64(1), "factor": np.int64(factor), "column": np.int64([-1, 1])}
    arrays |= {"none": np.int64([0, 0]), "places": np.int64([2, 0]), "last": np.int64([-1]), "zeros": np.int64([0])}
    arrays |= {"two": np.int64([2]), "ones": np.int64([1]), "four": np.int64([4])}
    return model(nodes, {"x": ("n", 3, 4)}, ["y"], 17, **arrays)


def test_assigned_channels() -> None:
    check(assigned(), {"x": (1, 3, 4)}, {"x": (3, 3, 4)}, fixed=True)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="ScatterND"):
        mpscnn.load(assigned(2))


def test_shape_of_values_of_each_image() -> None:
    """The first extent of a constant that each image has is the batch times its own, not its own."""
    nodes = [
        node("Shape", ["x"], ["first"], end=1),
        node("ConstantOfShape", ["first"], ["zeros"]),
        node("Reshape", ["zeros", "column"], ["columns"]),
        node("Add", ["columns", "row"], ["grid"]),
        node("Shape", ["grid"], ["shape"]),
        node("Cast", ["shape"], ["floats"], to=1),
        node("Add", ["x", "floats"], ["y"]),
    ]
    proto = model(nodes, {"x": ("n", 2)}, ["y"], 17, column=np.int64([-1, 1]), row=np.float32([1, 2]))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="of the size of the batch"):
        mpscnn.load(proto)
