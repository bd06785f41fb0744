# SPDX-License-Identifier: Apache-2.0
"""Parts of ONNX models up to chosen values, branches of If, Attention, slices of values whose batch has moved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx_support import assert_same, check, floats, model, reference, weights

import mpscnn
from mpscnn.importing import onnx as importer
from mpscnn.verify import verify

node = helper.make_node


def values(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ranked(nodes: list[onnx.NodeProto], shape: tuple[Any, ...], rank: int, **arrays: NDArray[Any]) -> onnx.ModelProto:
    """Return a model of x and y whose result has no shape but its rank."""
    result = floats("y", [None] * rank)
    graph = helper.make_graph(nodes, "graph", [floats("x", shape)], [result], weights(**arrays))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# ---- outputs that are chosen


def detector() -> onnx.ModelProto:
    """Return a model with non-max suppression behind boxes and scores."""
    nodes = [
        node("Relu", ["x"], ["features"], "relu"),
        node("ReduceMean", ["features"], ["rows"], "rows", axes=[3], keepdims=0),
        node("Transpose", ["rows"], ["boxes"], "boxes", perm=[0, 2, 1]),
        node("ReduceMax", ["rows"], ["best"], "best", axes=[1], keepdims=1),
        node("Sigmoid", ["best"], ["scores"], "scores"),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"], "nms"),
        node("Sqrt", ["features"], ["other"], "sqrt"),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [floats("x", ("n", 4, 6, 5))],
        [helper.make_tensor_value_info("kept", TensorProto.INT64, ("m", 3)), floats("other", ("n", 4, 6, 5))],
        weights(most=np.array([10]), overlap=np.array([0.5], np.float32), least=np.array([0.1], np.float32)),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def values_of(proto: onnx.ModelProto, names: list[str], **feeds: NDArray[Any]) -> list[NDArray[Any]]:
    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    del cut.graph.output[:]
    cut.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    return reference(cut, feeds)


@pytest.mark.parametrize("names", [["boxes", "scores"], ["scores", "features"], ["other"], ["rows"]])
def test_values_that_are_chosen(names, tmp_path):
    proto, x = detector(), values(2, 4, 6, 5)
    net = mpscnn.load(proto, options={"outputs": names})
    assert list(net.outputs) == names
    results = net(x) if len(names) > 1 else (net(x),)
    for result, expected in zip(results, values_of(proto, names, x=x), strict=True):
        assert_same(result, expected)
    net.save(tmp_path / "part.mpscnn")
    assert list(mpscnn.load(tmp_path / "part.mpscnn").outputs) == names


@pytest.mark.parametrize("against", ["onnxruntime", "reference", "kernels"])
def test_parts_are_verified(against):
    proto = detector()
    net = mpscnn.load(proto, options={"outputs": ["scores", "boxes"]})
    found = verify(net, against, {"x": values(1, 4, 6, 5)}, model=proto)
    assert found.agrees
    assert {"scores", "boxes"} <= {row.name for row in found.rows if not row.kernel}


def test_what_a_part_does_not_need_is_not_read():
    proto = detector()
    proto.graph.node.append(node("Det", ["features"], ["unsupported"], "det"))
    mpscnn.load(proto, options={"outputs": ["features"]})


@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        (["score"], ValueError, r'detector has no value "score"; similar .* scores'),
        ([], ValueError, "one name or more"),
        (["scores", "scores"], ValueError, "each once"),
        (3, TypeError, r'options\["outputs"\] \(int\) is not a list of names'),
        ([3], TypeError, r'options\["outputs"\]\[0\] \(int\) is not a str'),
    ],
)
def test_wrong_outputs(outputs, error, message):
    with pytest.raises(error, match=message):
        mpscnn.load(detector(), options={"outputs": outputs})


def test_other_options_are_refused():
    with pytest.raises(
        TypeError, match=r'^options: "free_size" is not an option for ONNX models: they have "inputs" and "outputs"\.$'
    ):
        mpscnn.load(detector(), options={"free_size": False})


def test_parts_on_the_command_line(tmp_path: Path):
    onnx.save(detector(), tmp_path / "detector.onnx")
    command = [sys.executable, "-m", "mpscnn", "info", str(tmp_path / "detector.onnx"), "--json", "--option"]
    ran = subprocess.run([*command, "outputs=boxes,scores"], capture_output=True, text=True, check=True, timeout=120)
    assert [output["name"] for output in json.loads(ran.stdout)["outputs"]] == ["boxes", "scores"]


# ---- operators whose number of results depends on values


@pytest.mark.parametrize(
    ("last", "rank", "arrays"),
    [
        (node("NonZero", ["a"], ["y"], "last"), 2, {}),
        (node("Unique", ["a"], ["y"], "last"), 1, {}),
        (node("Compress", ["a", "which"], ["y"], "last", axis=1), 4, {"which": np.array([True, False])}),
    ],
)
def test_advice_for_operators_that_select(last, rank, arrays):
    proto = ranked([node("Relu", ["x"], ["a"]), last], ("n", 3, 4, 5), rank, **arrays)
    with pytest.raises(mpscnn.UnsupportedOperatorError) as caught:
        mpscnn.load(proto)
    text = str(caught.value)
    assert 'mpscnn.load(..., options={"outputs": ["a"]})' in text
    assert "the number of its results depends on values" in text


def test_advice_for_non_max_suppression():
    with pytest.raises(mpscnn.UnsupportedOperatorError) as caught:
        mpscnn.load(detector())
    ((operator, name, reason),) = caught.value.nodes
    assert (operator, name) == ("NonMaxSuppression", "nms")
    assert 'options={"outputs": ["boxes", "scores"]}' in reason
    mpscnn.load(detector(), options={"outputs": ["boxes", "scores"]})


def test_places_of_constants_are_known():
    nodes = [
        node("NonZero", ["mask"], ["places"]),
        node("Transpose", ["places"], ["columns"], perm=[1, 0]),
        node("Squeeze", ["columns", "one"], ["indices"]),
        node("Gather", ["x", "indices"], ["y"], axis=1),
    ]
    check(
        model(nodes, {"x": ("n", 5, 2, 3)}, ["y"], mask=np.array([True, False, False, True, True]), one=np.array([1])),
        {"x": (2, 5, 2, 3)},
    )


# ---- branches


def branch(name: str, nodes: list[onnx.NodeProto], output: str, **arrays: NDArray[Any]) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(output)], weights(**arrays))


def choice(condition: str, output: str, name: str = "choice", scale: float = 2) -> onnx.NodeProto:
    """Return an If of a convolution with weights of its own, and of a sum."""
    weight = values(3, 3, 1, 1, seed=int(scale)) * np.float32(scale)
    yes = branch("yes", [node("Conv", ["a", "w"], ["b"], "conv"), node("Relu", ["b"], ["r"], "relu")], "r", w=weight)
    no = branch("no", [node("Add", ["a", "w"], ["r"], "add")], "r", w=np.float32(scale))
    return node("If", [condition], [output], name, then_branch=yes, else_branch=no)


def checked(nodes: list[onnx.NodeProto], **arrays: NDArray[Any]) -> mpscnn.graph.Graph:
    proto = model([node("Abs", ["x"], ["a"]), *nodes], {"x": ("n", 3, 4, 5)}, ["y"], **arrays)
    return check(proto, {"x": (2, 3, 4, 5)})


@pytest.mark.parametrize("holds", [True, False])
def test_branch_of_a_constant(holds):
    graph = checked([choice("c", "y")], c=np.array(holds))
    assert ("Convolution" in {n.kernel for n in graph}) == holds
    assert any(n.origin.startswith("choice.") for n in graph)


@pytest.mark.parametrize("channels", [3, 4])
def test_branch_of_a_computed_condition(channels):
    nodes = [
        node("Shape", ["a"], ["s"]),
        node("Gather", ["s", "one"], ["e"]),
        node("Equal", ["e", "channels"], ["c"]),
        choice("c", "y"),
    ]
    graph = checked(nodes, one=np.array(1), channels=np.array(channels))
    assert ("Convolution" in {n.kernel for n in graph}) == (channels == 3)


def test_branch_of_a_height_fixes_it():
    nodes = [
        node("Shape", ["a"], ["s"]),
        node("Gather", ["s", "two"], ["e"]),
        node("Equal", ["e", "four"], ["c"]),
        choice("c", "y"),
    ]
    proto = model(
        [node("Abs", ["x"], ["a"]), *nodes], {"x": ("n", 3, "h", "w")}, ["y"], two=np.array(2), four=np.array(4)
    )
    graph = check(proto, {"x": (2, 3, 4, 5)}, input_shapes={"x": (1, 3, 4, 5)}, fixed=True)
    assert graph.inputs["x"].fixed_by == "Equal_3 (Equal)"


def test_branches_with_the_same_names_inside():
    nodes = [choice("c", "b1", "first", 2), node("Mul", ["b1", "a"], ["d"]), choice("c", "e", "second", 3)]
    checked([*nodes, node("Add", ["d", "e"], ["y"])], c=np.array(True))


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_nested_branches(outer, inner):
    deep = [node("Mul", ["a", "k"], ["m"]), choice("d", "r", "inner"), node("Sub", ["r", "m"], ["t"])]
    inside = branch("inside", deep, "t", k=np.float32(3))
    other = branch("other", [node("Neg", ["a"], ["t"])], "t")
    nodes = [node("If", ["c"], ["y"], "outer", then_branch=inside, else_branch=other)]
    graph = checked(nodes, c=np.array(outer), d=np.array(inner))
    origins = " ".join(n.origin for n in graph)
    assert ("outer.inner." in origins) == outer


def test_branches_of_shapes():
    """A squeeze as exporters write it: the branch depends on an extent, and both have other ranks."""
    yes = branch("yes", [node("Squeeze", ["a", "axis"], ["r"])], "r", axis=np.array([2]))
    no = branch("no", [node("Identity", ["a"], ["r"])], "r")
    nodes = [
        node("Shape", ["a"], ["s"]),
        node("Slice", ["s", "two", "three"], ["e"]),
        node("Equal", ["e", "one"], ["c"]),
        node("If", ["c"], ["f"], then_branch=yes, else_branch=no),
        node("ReduceMax", ["f"], ["y"], axes=[2], keepdims=1),
    ]
    arrays = {"two": np.array([2]), "three": np.array([3]), "one": np.array([1])}
    proto = ranked([node("Abs", ["x"], ["a"]), *nodes], ("n", 3, 1, 5), 3, **arrays)
    check(proto, {"x": (2, 3, 1, 5)}, fixed=True)


def test_nodes_of_a_branch_without_kernel():
    yes = branch("yes", [node("Det", ["a"], ["r"], "det"), node("Hardmax", ["a"], ["q"], "unused")], "r")
    no = branch("no", [node("Identity", ["a"], ["r"])], "r")
    nodes = [node("Abs", ["x"], ["a"]), node("If", ["c"], ["b"], "if", then_branch=yes, else_branch=no)]
    proto = ranked([*nodes, node("Relu", ["b"], ["y"])], ("n", 3, 4, 5), 4, c=np.array(True))
    with pytest.raises(mpscnn.UnsupportedOperatorError) as caught:
        importer.read(proto)
    assert caught.value.nodes == [("Det", "if.det", "no kernel computes it")]


def test_invalid_nodes_of_a_branch_are_named_once():
    yes = branch("yes", [node("Conv", ["a", "w"], ["r"], "conv")], "r", w=values(2, 7, 1, 1))
    no = branch("no", [node("Identity", ["a"], ["r"])], "r")
    nodes = [node("Abs", ["x"], ["a"]), node("If", ["c"], ["y"], "if", then_branch=yes, else_branch=no)]
    graph = helper.make_graph(
        nodes, "g", [floats("x", ("n", 3, 4, 5))], [floats("y", ("n", 2, 4, 5))], weights(c=np.array(True))
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(mpscnn.InvalidModelError) as caught:
        importer.read(proto)
    assert "if.conv" in str(caught.value)
    assert str(caught.value).count("g: ") == 1


def test_conditions_of_values_are_refused():
    nodes = [node("ReduceMax", ["a"], ["m"], keepdims=0), node("Greater", ["m", "zero"], ["c"]), choice("c", "y")]
    proto = model([node("Abs", ["x"], ["a"]), *nodes], {"x": (1, 3, 4, 5)}, ["y"], zero=np.float32(0))
    with pytest.raises(mpscnn.UnsupportedOperatorError):
        importer.read(proto)
    proto = model(
        [node("Abs", ["x"], ["a"]), node("Cast", ["x"], ["c"], to=TensorProto.BOOL), choice("c", "y")],
        {"x": (1, 3, 4, 5)}, ["y"],
    )  # fmt: skip
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="replace the node by its branch"):
        importer.read(proto)


# ---- attention


def attention(
    shapes: tuple[tuple[int, ...], ...], opset: int = 23, outputs: int = 1, feeds: int = 3, **given: Any
) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """Return a model of Attention; `shapes` of query, key, value and past; arrays in `given` are constant inputs."""
    arrays = {name: array for name, array in given.items() if isinstance(array, np.ndarray)}
    attributes = {name: value for name, value in given.items() if name not in arrays}
    names = ["q", "k", "v", "mask" if "mask" in arrays else "", *(["pk", "pv"] if len(shapes) > 3 else [])]
    inputs = dict(zip([name for name in names if name and name != "mask"], shapes, strict=True))
    results = ["y", "present_k", "present_v", "qk"][:outputs]
    proto = model(
        [node("Attention", names, results, "attention", **attributes)],
        {name: ("n", *shape) for name, shape in inputs.items()},
        ["y"] if outputs < 4 else ["y", "qk"],
        opset,
        **arrays,
    )
    data = {name: values(2, *shape, seed=i) for i, (name, shape) in enumerate(inputs.items())}
    return proto, data


FOUR = ((6, 5, 8), (6, 7, 8), (6, 7, 4))
GROUPED = ((6, 5, 8), (2, 7, 8), (2, 7, 4))
THREE = ((5, 48), (7, 48), (7, 24))
HEADS = {"q_num_heads": 6, "kv_num_heads": 6}


def bools(*shape: int) -> NDArray[np.bool_]:
    found = np.random.default_rng(5).random(shape) < 0.6
    found[..., 0] = True
    return found


@pytest.mark.parametrize(
    ("shapes", "given"),
    [
        (FOUR, {}),
        (FOUR, {"scale": 0.3}),
        (FOUR, {"is_causal": 1}),
        (FOUR, {"softcap": 1.5}),
        (FOUR, {"mask": values(5, 7)}),
        (FOUR, {"mask": values(6, 5, 7)}),
        (FOUR, {"mask": values(1, 6, 5, 7)}),
        (FOUR, {"mask": bools(5, 7)}),
        (FOUR, {"mask": bools(1, 1, 5, 7), "is_causal": 1, "softcap": 3.0}),
        (GROUPED, {}),
        (GROUPED, {"is_causal": 1, "mask": values(6, 5, 7)}),
        (THREE, HEADS),
        (THREE, {**HEADS, "is_causal": 1, "scale": 0.1}),
        (((5, 48), (7, 16), (7, 8)), {"q_num_heads": 6, "kv_num_heads": 2}),
        ((*FOUR, (6, 3, 8), (6, 3, 4)), {"is_causal": 1}),
        ((*GROUPED, (2, 3, 8), (2, 3, 4)), {"mask": values(5, 10)}),
    ],
)
def test_attention(shapes, given):
    proto, feeds = attention(shapes, outputs=3 if len(shapes) > 3 else 1, **given)
    (expected,) = reference(proto, feeds)
    net = mpscnn.load(proto)
    assert_same(net(**feeds), expected, 1e-5)


@pytest.mark.parametrize("mode", range(4))
def test_scores_of_attention(mode):
    # The reference evaluator has the capped products in mode 0, unlike the specification.
    proto, feeds = attention(FOUR, 24, 4, qk_matmul_output_mode=mode, softcap=2.0 if mode else 0.0, mask=values(5, 7))
    found = mpscnn.load(proto)(**feeds)
    for result, expected in zip(found, reference(proto, feeds), strict=True):
        assert_same(result, expected, 1e-5)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 25, reason="version 25 of Attention")
@pytest.mark.parametrize(
    "given", [{"left_window_size": 1}, {"right_window_size": 0}, {"left_window_size": 2, "right_window_size": 2}]
)
def test_windows_of_attention(given):
    proto, feeds = attention(((6, 7, 8), (6, 7, 8), (6, 7, 4)), onnx.defs.onnx_opset_version(), **given)
    (expected,) = reference(proto, feeds)
    assert_same(mpscnn.load(proto)(**feeds), expected, 1e-5)


def test_mask_that_is_computed():
    shapes = {"q": (6, 5, 8), "k": (6, 7, 8), "v": (6, 7, 4), "m": (6, 5, 7)}
    nodes = [node("Neg", ["m"], ["mask"]), node("Attention", ["q", "k", "v", "mask"], ["y"])]
    proto = model(nodes, {name: ("n", *shape) for name, shape in shapes.items()}, ["y"], 23)
    feeds = {name: values(2, *shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    assert_same(mpscnn.load(proto)(**feeds), reference(proto, feeds)[0], 1e-5)


@pytest.mark.parametrize(
    ("shapes", "given", "reason"),
    [
        (FOUR, {"mask": np.zeros((5, 7), bool)}, "a mask that leaves no key to a row"),
        (FOUR, {"mask": values(2, 1, 5, 7)}, "of its own for each image"),
    ],
)
def test_attention_that_is_refused(shapes, given, reason):
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=reason):
        importer.read(attention(shapes, **given)[0])


def test_lengths_that_are_computed_are_refused():
    lengths = helper.make_tensor_value_info("lengths", TensorProto.INT64, ("n",))
    graph = helper.make_graph(
        [node("Attention", ["q", "k", "v", "", "", "", "lengths"], ["y"])],
        "g",
        [*(floats(name, ("n", 6, 5, 8)) for name in "qkv"), lengths],
        [floats("y", ("n", 6, 5, 8))],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="nonpad_kv_seqlen"):
        importer.read(proto)


def test_heads_that_do_not_divide_are_invalid():
    with pytest.raises(mpscnn.InvalidModelError, match=r"q_num_heads \(5\) does not divide 48"):
        importer.read(attention(THREE, q_num_heads=5, kv_num_heads=6)[0])


# ---- slices of values whose batch is not the first axis


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize(
    ("axis", "start", "stop", "step"),
    [
        (0, 1, 3, 1),
        (2, 0, 2, 1),
        (2, 1, 100, 2),
        (0, -2, 100, 1),
        (3, -1, -100, -1),
        (2, 3, 0, -2),
        (1, 0, 2**31 - 1, 1),
    ],
)
def test_slices_behind_a_transpose(axis, start, stop, step, opset):
    if opset == 9 and step != 1:
        pytest.skip("version 9 has no steps")
    arrays = (
        {}
        if opset == 9
        else {"s": np.array([start]), "e": np.array([stop]), "a": np.array([axis]), "t": np.array([step])}
    )
    part = (
        node("Slice", ["m"], ["p"], starts=[start], ends=[stop], axes=[axis])
        if opset == 9
        else node("Slice", ["m", "s", "e", "a", "t"], ["p"])
    )
    nodes = [
        node("Transpose", ["x"], ["m"], perm=[1, 0, 2, 3]),
        part,
        node("Transpose", ["p"], ["y"], perm=[1, 0, 2, 3]),
    ]
    check(
        model(nodes, {"x": ("n", 3, 4, 5)}, ["y"], opset, **arrays),
        {"x": (2, 3, 4, 5)},
        {"x": (4, 3, 4, 5)},
        fixed=axis > 1 and (axis, step) != (3, -1),
    )


def test_slices_of_windows():
    """Windows of images, whose batch is taken together with them."""
    nodes = [
        node("Reshape", ["x", "apart"], ["w"]),
        node("Slice", ["w", "s", "e", "a"], ["p"]),
        node("Reshape", ["p", "together"], ["y"]),
    ]
    arrays = {
        "apart": np.array([-1, 4, 5]),
        "s": np.array([1, 0]),
        "e": np.array([3, 4]),
        "a": np.array([1, 2]),
        "together": np.array([-1, 3, 2, 4]),
    }
    check(model(nodes, {"x": ("n", 3, 4, 5)}, ["y"], **arrays), {"x": (2, 3, 4, 5)}, {"x": (1, 3, 4, 5)}, fixed=True)


def test_slices_of_the_batch_are_refused():
    nodes = [
        node("Transpose", ["x"], ["m"], perm=[1, 0, 2]),
        node("Slice", ["m", "s", "e", "a"], ["p"]),
        node("Transpose", ["p"], ["y"], perm=[1, 0, 2]),
    ]
    proto = model(nodes, {"x": ("n", 3, 4)}, ["y"], s=np.array([0]), e=np.array([1]), a=np.array([1]))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="along the batch"):
        importer.read(proto)
