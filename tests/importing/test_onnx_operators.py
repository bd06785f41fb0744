# SPDX-License-Identifier: Apache-2.0
"""Uses of ONNX's operators that ONNX's own cases lack, against onnxruntime, at several sizes."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_support import check, model

import mpscnn
from mpscnn.importing import onnx as importer

node = helper.make_node
RNG = np.random.default_rng(11)


def values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def numbers(*items: int) -> np.ndarray:
    return np.int64(items)


def test_the_documentation_has_all_operators():
    page = pathlib.Path(__file__).parents[2] / "docs" / "onnx.md"
    assert re.findall(r"^\| `([\w.]+)` \|", page.read_text(), re.MULTILINE) == sorted(importer.OPERATORS)


# Operator, attributes, constant inputs after the first, version.
ROWS = [
    ("GlobalLpPool", {"p": 1}, [], 17),
    ("GlobalLpPool", {}, [], 17),
    ("ReduceLogSumExp", {"axes": [1]}, [], 17),
    ("ReduceLogSumExp", {}, [numbers(2, 3)], 18),
    ("ReduceL1", {"axes": [1, -1], "keepdims": 0}, [], 13),
    ("ReduceL2", {"keepdims": 0}, [numbers(1, 2, 3)], 18),
    ("ReduceSum", {"noop_with_empty_axes": 1}, [], 13),
    ("ReduceMax", {"keepdims": 1}, [numbers(-3)], 18),
    ("ReduceMin", {"axes": [2]}, [], 11),
    ("ReduceMean", {"axes": [3, 2], "keepdims": 0}, [], 9),
    ("MeanVarianceNormalization", {"axes": [2, 3]}, [], 13),
    ("LpNormalization", {"axis": 1, "p": 1}, [], 17),
    ("LpNormalization", {"axis": 2}, [], 17),
    ("LRN", {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 1.5}, [], 13),
    ("InstanceNormalization", {"epsilon": 0.01}, [values(4), values(4)], 17),
    ("LayerNormalization", {"axis": -1}, [values(6)], 17),
    ("LayerNormalization", {"axis": 1}, [values(4, 5, 6), values(4, 5, 6)], 17),
    ("LayerNormalization", {"axis": 2}, [values(5, 6), values(1, 6)], 17),
    ("PRelu", {}, [values(4, 1, 1)], 16),
    ("PRelu", {}, [values(1)], 16),
    ("PRelu", {}, [values(4, 5, 6)], 16),
    ("Tile", {}, [numbers(1, 2, 1, 1)], 13),
    ("Tile", {}, [numbers(1, 1, 3, 2)], 13),
    ("Expand", {}, [numbers(1, 1, 4, 1, 1)[1:]], 13),
    ("Expand", {}, [numbers(4, 5, 6)], 13),
    ("Gather", {"axis": 1}, [numbers(2, 0, 3)], 13),
    ("Gather", {"axis": 1}, [numbers(1, 2)], 13),
    ("Gather", {"axis": -1}, [np.array(-1, np.int64)], 13),
    ("Slice", {}, [numbers(1, -3), numbers(2**40, -1), numbers(1, 2)], 13),
    ("Slice", {}, [numbers(0, 1), numbers(2**31 - 1, 2**63 - 1), numbers(2, -1), numbers(2, 3)], 13),
    ("Slice", {"starts": [1], "ends": [3], "axes": [1]}, [], 9),
    ("Pad", {"mode": "edge", "pads": [0, 0, 1, 2, 0, 0, 0, 3]}, [], 10),
    ("Pad", {}, [numbers(0, 1, 0, 0, 0, 2, 1, 1), np.float32(1.5)], 13),
    ("Pad", {"mode": "reflect"}, [numbers(2, 1, 0, 1), np.float32(0), numbers(2, -1)], 18),
    ("Pad", {}, [numbers(0, 0, -1, 0, 0, 0, 0, -2)], 13),
    ("Softmax", {"axis": -2}, [], 13),
    ("Softmax", {"axis": -1}, [], 11),
    ("LogSoftmax", {"axis": 3}, [], 13),
    ("Pow", {}, [np.float32(2)], 13),
    ("Pow", {}, [np.float32(3)], 13),
    ("Pow", {}, [numbers(2)[0]], 13),
    ("Add", {}, [values(4, 1, 1)], 13),
    ("Sub", {}, [values(4, 5, 1)], 13),
    ("Div", {}, [np.float32(3)], 13),
    ("Mul", {}, [values(1, 1, 1, 6)], 13),
    ("Max", {}, [np.float32(0.25), values(1, 4, 1, 1)], 13),
    ("Min", {}, [np.float32(0.25)], 13),
    ("Sum", {}, [values(4, 1, 1), np.float32(2)], 13),
    ("Mean", {}, [values(4, 1, 1), np.float32(2)], 13),
    ("Clip", {}, [np.float32(-0.5)], 13),
    ("Clip", {"min": -0.25}, [], 9),
    ("Concat", {"axis": 1}, [values(1, 2, 5, 6)], 13),
    ("Squeeze", {"axes": [1]}, [], 11),
    ("Unsqueeze", {"axes": [-1]}, [], 11),
    ("Flatten", {"axis": -3}, [], 13),
    ("AveragePool", {"kernel_shape": [3, 2], "dilations": [1, 2], "strides": [2, 1]}, [], 19),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 0, 0, 2], "count_include_pad": 1}, [], 11),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 0, 0, 2], "strides": [2, 2]}, [], 11),
    ("MaxPool", {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 1, 0, 1]}, [], 12),
    ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}, [], 12),
    ("LpPool", {"kernel_shape": [2, 3], "p": 3, "pads": [1, 0, 0, 1]}, [], 18),
    ("LpPool", {"kernel_shape": [2, 3], "p": 1, "strides": [2, 2]}, [], 11),
    ("ConvTranspose", {"strides": [2, 2], "output_shape": [9, 12], "group": 2}, [values(4, 3, 3, 3)], 13),
    ("ConvTranspose", {"strides": [3, 2], "output_padding": [2, 1], "dilations": [2, 1]}, [values(4, 3, 2, 3)], 13),
    ("Conv", {"group": 4, "pads": [1, 0, 2, 1], "dilations": [1, 2]}, [values(4, 1, 3, 3), values(4)], 13),
    ("Conv", {"group": 2, "strides": [2, 1]}, [values(6, 2, 3, 3)], 13),
    ("MatMul", {}, [values(6, 3)], 13),
    ("MatMul", {}, [values(6)], 13),
    ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, [], 13),
    ("SpaceToDepth", {"blocksize": 1}, [], 13),
    ("Transpose", {"perm": [0, 3, 1, 2]}, [], 13),
    ("HardSigmoid", {}, [], 13),
    ("LeakyRelu", {}, [], 13),
    ("Elu", {}, [], 13),
    ("Selu", {}, [], 13),
    ("Celu", {}, [], 13),
    ("Celu", {"alpha": 0.5}, [], 13),
    ("Gelu", {"approximate": "tanh"}, [], 20),
    ("Gelu", {}, [], 20),
    ("Mish", {}, [], 18),
    ("HardSwish", {}, [], 14),
    ("Shrink", {"lambd": 0.3, "bias": 0.3}, [], 13),
    ("ThresholdedRelu", {"alpha": 0.0}, [], 13),
    ("Bernoulli", {}, [], 15),
]
REFUSED = {"Bernoulli"}
FIXED = {"Expand", "Flatten", "Gather", "MatMul", "Slice", "Tile", "Unsqueeze"}


def row_id(row) -> str:
    operator, attributes, constants, opset = row
    options = [f"{k}={v}" for k, v in attributes.items()] + [str(list(c.shape)) for c in constants]
    return f"{operator}-{opset}-{','.join(options)}".replace(" ", "")


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_operators(row):
    operator, attributes, constants, opset = row
    names = [f"c{i}" for i in range(len(constants))]
    shape = (
        (1, 1, 5, 6) if operator in ("Squeeze",) or (operator == "Expand" and constants[0].size == 4) else (1, 4, 5, 6)
    )
    proto = model(
        [node(operator, ["x", *names], ["y"], **attributes)],
        {"x": ("n", shape[1], "h", "w")},
        ["y"],
        opset,
        **dict(zip(names, constants, strict=True)),
    )
    if operator in REFUSED:
        with pytest.raises(mpscnn.UnsupportedOperatorError):
            importer.read(proto, input_shapes={"x": shape})
        return
    graph = importer.read(proto, input_shapes={"x": shape})
    fixed = bool(graph.inputs["x"].fixed_by)
    if operator == "Concat":  # with a constant of one image
        sizes = [(1, *shape[1:])]
    elif fixed or operator in ("MatMul", "LayerNormalization"):  # a constant has the number of columns
        sizes = [(2, *shape[1:])]
    else:
        sizes = [(2, *shape[1:]), (1, shape[1], 8, 7), (3, shape[1], 6, 9)]
    check(proto, *({"x": size} for size in sizes), input_shapes={"x": shape}, fixed=fixed, relative=1e-4)
    spatial = any(c.ndim and max(c.shape[-2:]) > 4 and operator not in ("Conv", "ConvTranspose") for c in constants)
    # Nodes without constants that depend on rows and columns do not fix these.
    if (
        not spatial
        and operator not in FIXED
        and "output_shape" not in attributes
        and operator not in ("Concat", "Max", "Pad")
    ):
        assert not fixed


@pytest.mark.parametrize("inputs", [2, 3])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Sum", "Mean", "Max", "Min", "Concat"])
def test_several_tensors(operator, inputs):
    if inputs == 3 and operator in ("Add", "Sub", "Mul", "Div"):
        pytest.skip("of two")
    names = [f"x{i}" for i in range(inputs)]
    attributes = {"axis": 1} if operator == "Concat" else {}
    proto = model([node(operator, names, ["y"], **attributes)], dict.fromkeys(names, ("n", 3, 4, 5)), ["y"])
    check(proto, dict.fromkeys(names, (2, 3, 4, 5)), fixed=operator in ("Max", "Min"), relative=1e-4)


@pytest.mark.parametrize("opset", [9, 11, 13, 18, 21])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2, 2), (3, 1), (1.5, 2.0), (0.5, 0.5)])
def test_resizes(opset, mode, scales):
    array = np.float32([1, 1, *scales])
    if opset == 9:
        made, arrays = node("Upsample", ["x", "s"], ["y"], mode=mode), {"s": array}
        if min(scales) < 1:
            pytest.skip("a reduction is none of Upsample's")
    else:
        made, arrays = node("Resize", ["x", "", "s"], ["y"], mode=mode), {"s": array}
        if opset == 11:
            made, arrays = node("Resize", ["x", "roi", "s"], ["y"], mode=mode), {"s": array, "roi": np.float32([])}
    proto = model([made], {"x": ("n", 3, "h", "w")}, ["y"], opset, **arrays)
    fixed = 1.5 in scales or (mode == "linear" and 0.5 in scales)
    sizes = [(2, 3, 4, 6)] if fixed else [(2, 3, 4, 6), (1, 3, 7, 5), (1, 3, 8, 2)]
    check(proto, *({"x": size} for size in sizes), input_shapes={"x": (1, 3, 4, 6)}, fixed=fixed, relative=1e-4)


@pytest.mark.parametrize(
    ("nodes", "arrays", "opset", "reason"),
    [
        ([node("Conv", ["x", "x"], ["y"])], {}, 17, "weights that are computed"),
        ([node("MatMul", ["x", "x"], ["y"])], {}, 17, "a product of"),
        ([node("Concat", ["x", "x"], ["y"], axis=0)], {}, 17, "along the batch"),
        ([node("ReduceMean", ["x"], ["y"])], {}, 17, "over the batch"),
        ([node("Transpose", ["x"], ["y"], perm=[1, 0, 2, 3])], {}, 17, "batch"),
        ([node("Reshape", ["x", "s"], ["y"])], {"s": numbers(-1, 5)}, 17, "the batch taken together"),
        ([node("Reshape", ["x", "s"], ["y"])], {"s": numbers(7, -1)}, 17, "7 in the place of the batch"),
        ([node("Flatten", ["x"], ["y"], axis=2)], {}, 17, "the batch taken together"),
        ([node("Resize", ["x", "", "s"], ["y"], mode="cubic", antialias=1)],
         {"s": np.float32([1, 1, 0.5, 0.5])}, 18, "antialias"),
        ([node("Resize", ["x", "", "s"], ["y"])], {"s": np.float32([2, 1, 1, 1])}, 17, "the batch resized"),
        ([node("Resize", ["x", "", "s"], ["y"])], {"s": np.float32([1, 2, 2, 2])}, 17, "with axes NCHW"),
        ([node("Pad", ["x", "s"], ["y"], mode="wrap")], {"s": numbers(0, 0, 0, 0, 0, 0, 1, 9)}, 19, "circular padding"),
        ([node("Slice", ["x", "a", "b", "a"], ["y"])], {"a": numbers(0), "b": numbers(1)}, 17, "the batch"),
        ([node("Slice", ["x", "a", "b", "c", "d"], ["y"])],
         dict(zip("abcd", map(numbers, (0, -1, 2, -1)), strict=True)), 17, "without values"),
        ([node("Cast", ["x"], ["y"], to=3)], {}, 17, "computed as int8"),
        ([node("Dropout", ["x", "r", "t"], ["y"])], {"r": np.float32(0.5), "t": np.bool_(True)}, 17, "training"),
        ([node("BatchNormalization", ["x", *"abcd"], ["y"], training_mode=1)],
         dict.fromkeys("abcd", np.ones(3, np.float32)), 17, "training"),
        ([node("Celu", ["x"], ["y"], alpha=-1.0)], {}, 17, "input_scale"),
        ([node("Gather", ["x", "s"], ["y"], axis=0)], {"s": numbers(0)}, 17, "a part of the batch"),
    ],
    ids=lambda value: value[-1].op_type if isinstance(value, list) else None,
)  # fmt: skip
def test_what_has_no_kernel(nodes, arrays, opset, reason):
    from onnx import TensorProto
    from onnx_support import floats, weights

    graph = helper.make_graph(
        nodes, "graph", [floats("x", ("n", 3, 4, 5))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)], weights(**arrays),
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=reason):
        importer.read(proto)


@pytest.mark.parametrize("shape", [(4, 6, 8), (4, 4, 4)])
def test_errors_are_those_of_the_models_own_layout(shape):
    """The other layout of the input, which is tried next, fails for reasons that are not the model's."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["z"], kernel_shape=[1, 1]),
        helper.make_node("Bernoulli", ["z"], ["s"]),
        helper.make_node("Bernoulli", ["z"], ["t"]),
        helper.make_node("Add", ["s", "t"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, *shape)) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="2 of its nodes") as caught:
        mpscnn.load(model)
    assert [operator for operator, _, _ in caught.value.nodes] == ["Bernoulli", "Bernoulli"]
