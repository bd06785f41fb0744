# SPDX-License-Identifier: Apache-2.0
"""Inputs of integers, booleans and bfloat16, of ONNX models and PyTorch modules: against onnxruntime and PyTorch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_support import assert_same, weights

import mpscnn
from mpscnn.serving.models import NetworkModel
from mpscnn.verify import verify

node = helper.make_node
SHAPE = ("batch", 3, 4, 5)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def element(dtype: str) -> int:
    return TensorProto.BFLOAT16 if dtype == "bfloat16" else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, str],
    output: str = "float32",
    opset: int = 17,
    shape: tuple[Any, ...] = SHAPE,
    **arrays: NDArray[Any],
) -> onnx.ModelProto:
    """Return a model of these nodes with the output y; `inputs` has types by name."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, element(dtype), shape) for name, dtype in inputs.items()],
        [helper.make_tensor_value_info("y", element(output), None)],
        weights(**arrays),
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(proto)
    del inferred.graph.value_info[:]
    return inferred


def cast(name: str, source: str, result: str, dtype: str = "float32") -> onnx.NodeProto:
    return node("Cast", [source], [result], name, to=element(dtype))


def drawn(dtype: str, shape: tuple[int, ...] = (2, 3, 4, 5), seed: int = 0) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -(2**24)), min(limits.max, 2**24)
    found: NDArray[Any] = rng.integers(low, high, shape, endpoint=True).astype(dtype)
    found.ravel()[:2] = low, high
    return found


def expected(proto: onnx.ModelProto, **feeds: NDArray[Any]) -> NDArray[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, feeds)[0])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:  # no kernel for this type
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(ReferenceEvaluator(proto).run(None, feeds)[0])


def agree(proto: onnx.ModelProto, relative: float = 1e-6, **feeds: NDArray[Any]) -> mpscnn.Network:
    """Assert that the network has the model's results, and return it."""
    net = mpscnn.load(proto)
    assert_same(net(**{name: feeds[name] for name in net.inputs}), expected(proto, **feeds), relative)
    return net


# ---- each type


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_values_of_a_type_become_floats(dtype):
    net = agree(model([cast("c", "x", "y")], {"x": dtype}), relative=0, x=drawn(dtype))
    assert net.inputs["x"].dtype == dtype


@pytest.mark.parametrize(("dtype", "largest"), [("uint8", 255), ("uint16", 65535)])
def test_all_pixels_are_exact(dtype, largest):
    x = np.arange(largest + 1, dtype=dtype).reshape(1, 1, 256, -1)
    net = mpscnn.load(model([cast("c", "x", "y")], {"x": dtype}, shape=(1, 1, *x.shape[2:])))
    assert np.array_equal(net(x), x.astype(np.float32))


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_results_of_a_type_are_floats(dtype):
    x = drawn(dtype)
    net = agree(model([node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])], {"x": dtype}, dtype), relative=0, x=x)
    assert net(x).dtype == np.float32


@pytest.mark.parametrize("dtype", INTEGERS)
def test_numbers_are_moved_before_they_are_converted(dtype):
    nodes = [
        node("Slice", ["x", "starts", "ends", "axes", "steps"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
        node("Reshape", ["b", "target"], ["c"]),
        cast("d", "c", "e"),
        node("Mul", ["e", "half"], ["y"]),
    ]
    arrays = {
        "starts": np.array([1, 4]),
        "ends": np.array([3, 0]),
        "axes": np.array([1, 3]),
        "steps": np.array([1, -2]),
        "target": np.array([0, 4, -1]),
        "half": np.float32(0.5),
    }
    agree(model(nodes, {"x": dtype}, **arrays), x=drawn(dtype))


def test_pixels_of_an_image_that_the_model_normalizes(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((6, 3, 3, 3)).astype(np.float32)
    nodes = [
        node("Transpose", ["image"], ["a"], perm=[0, 3, 1, 2]),
        cast("to float", "a", "b"),
        node("Div", ["b", "largest"], ["c"]),
        node("Sub", ["c", "mean"], ["d"]),
        node("Div", ["d", "std"], ["e"]),
        node("Conv", ["e", "weight"], ["y"], pads=[1, 1, 1, 1]),
    ]
    arrays = {
        "largest": np.float32(255),
        "mean": rng.random((3, 1, 1), np.float32),
        "std": rng.random((3, 1, 1), np.float32) + np.float32(0.2),
        "weight": weight,
    }
    proto = model(nodes, {"image": "uint8"}, shape=("batch", 9, 7, 3), **arrays)
    x = drawn("uint8", (2, 9, 7, 3))
    net = agree(proto, relative=1e-5, image=x)
    assert net.input_layout == "NHWC"
    assert [n.kernel for n in net.graph] == ["BatchNormalization", "Convolution"]
    net.save(tmp_path / "net.mpscnn")
    again = mpscnn.load(tmp_path / "net.mpscnn")
    assert again.inputs["image"].dtype == "uint8"
    assert np.array_equal(again(x), net(x))
    with pytest.raises(TypeError, match=r'"image": dtype \(float32\) is not uint8'):
        again(x.astype(np.float32))


def test_a_reader_that_moves_and_one_that_computes():
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[0, 1, 3, 2]),
        cast("c", "a", "b"),
        cast("d", "x", "e"),
        node("Transpose", ["e"], ["f"], perm=[0, 1, 3, 2]),
        node("Sub", ["b", "f"], ["y"]),
    ]
    net = mpscnn.load(model(nodes, {"x": "uint8"}))
    assert not net(drawn("uint8")).any()


def test_quantized_numbers_as_input():
    nodes = [node("DequantizeLinear", ["x", "scale", "zero"], ["a"]), node("Relu", ["a"], ["y"])]
    for dtype in ("uint8", "int8"):
        arrays = {"scale": np.float32(0.037), "zero": np.array(11, dtype)}
        agree(model(nodes, {"x": dtype}, **arrays), x=drawn(dtype))


# ---- operators on integers and truth values


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_arithmetic(operator, dtype):
    small = {"a": drawn("int8", seed=1).astype(dtype), "b": np.abs(drawn("int8", seed=2).astype(dtype)) + 1}
    agree(model([node(operator, ["a", "b"], ["y"])], {"a": dtype, "b": dtype}, dtype), relative=0, **small)


def test_division_of_integers_rounds_toward_zero():
    a = np.array([[-7, 7, -8, 8, 2**24 - 1, -(2**24) + 1]], np.int32)
    b = np.array([[2, -2, 3, 3, 3, 4097]], np.int32)
    nodes = [node("Div", ["a", "b"], ["y"])]
    agree(model(nodes, {"a": "int32", "b": "int32"}, "int32", shape=("n", 6)), relative=0, a=a, b=b)


def test_division_of_integers_whose_batch_is_moved():
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[1, 0, 2]),
        node("Div", ["a", "three"], ["b"]),
        node("Transpose", ["b"], ["y"], perm=[1, 0, 2]),
    ]
    proto = model(nodes, {"x": "int32"}, "int32", shape=("n", 4, 5), three=np.array(3, np.int32))
    agree(proto, relative=0, x=np.arange(-20, 20, dtype=np.int32).reshape(2, 4, 5))


def test_powers_of_integers():
    x = np.arange(-9, 10, dtype=np.int64).reshape(1, -1)
    proto = model([node("Pow", ["x", "three"], ["y"])], {"x": "int64"}, "int64", shape=(1, 19), three=np.int64(3))
    agree(proto, relative=0, x=x)


@pytest.mark.parametrize("operator", ["And", "Or", "Xor"])
def test_truth_values(operator):
    nodes = [node(operator, ["a", "b"], ["c"]), node("Not", ["c"], ["y"])]
    agree(model(nodes, {"a": "bool", "b": "bool"}, "bool"), a=drawn("bool", seed=1), b=drawn("bool", seed=2))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int8"])
def test_comparison_and_choice_of_numbers(dtype):
    nodes = [node("Equal", ["a", "b"], ["c"]), node("Where", ["c", "x", "zero"], ["y"])]
    a = drawn(dtype, seed=1)
    b = np.where(drawn("bool", seed=2), a, drawn(dtype, seed=3)).astype(dtype)
    proto = model(nodes, {"a": dtype, "b": dtype, "x": "float32"}, opset=19, zero=np.float32(0))
    agree(proto, a=a, b=b, x=drawn("int8", seed=4).astype(np.float32))


def test_cast_like_has_the_type_of_the_other():
    nodes = [node("CastLike", ["x", "like"], ["y"])]
    proto = model(nodes, {"x": "float32", "like": "int64"}, "int64", opset=19)
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32) * 9
    agree(proto, relative=0, x=x, like=drawn("int64"))


@pytest.mark.parametrize("like", ["float32", "int64", "bool"])
def test_constants_have_the_type_of_computed_values(like):
    """Functions of ONNX write their constants so."""
    nodes = [node("CastLike", ["c", "like"], ["a"]), cast("d", "a", "b"), node("Mul", ["x", "b"], ["y"])]
    c = np.array([1.75, -2.5, 0], np.float32).reshape(3, 1, 1)
    proto = model(nodes, {"x": "float32", "like": like}, opset=19, c=c)
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    others = {"like": x} if like == "float32" else {"like": drawn(like)}
    agree(proto, x=x, **others)


@pytest.mark.parametrize("like", [np.float32(0), np.int64(0), np.array([True])])
def test_constants_have_the_type_of_constants(like):
    nodes = [node("CastLike", ["c", "like"], ["a"]), cast("d", "a", "b"), node("Mul", ["x", "b"], ["y"])]
    proto = model(nodes, {"x": "float32"}, opset=19, c=np.float32([[[1.75]], [[-2.5]], [[0]]]), like=np.asarray(like))
    agree(proto, x=np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32))


def test_sizes_have_the_type_of_other_values():
    """The number of images stays one: a width as a float, and the shape of the images behind it."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("CastLike", ["s", "x"], ["f"]),
        node("CastLike", ["f", "s"], ["i"]),
        node("Gather", ["f", "three"], ["w"]),
        node("CastLike", ["c", "f"], ["g"]),
        node("Mul", ["x", "g"], ["p"]),
        node("Div", ["p", "w"], ["a"]),
        node("Flatten", ["a"], ["b"]),
        node("Reshape", ["b", "i"], ["y"]),
    ]
    proto = model(nodes, {"x": "float32"}, opset=19, three=np.int64(3), c=np.float32(1.75))
    for info in proto.graph.input:
        assert info.type.tensor_type.shape.dim[0].dim_param == "batch"
    agree(proto, x=np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32))


def test_cast_like_of_values_whose_batch_is_moved():
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[1, 0, 2]),
        node("CastLike", ["a", "whole"], ["b"]),
        node("CastLike", ["b", "x"], ["c"]),
        node("Sub", ["a", "c"], ["d"]),
        node("Transpose", ["d"], ["y"], perm=[1, 0, 2]),
    ]
    proto = model(nodes, {"x": "float32"}, opset=19, shape=("n", 4, 5), whole=np.int64(1))
    agree(proto, x=np.random.default_rng(0).standard_normal((2, 4, 5)).astype(np.float32) * 3)


def test_repeated_constants_stay_repeated_in_another_type():
    """A sum over a constant of each image is refused, and its size is that of the batch."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["n"]),
        node("Concat", ["n", "rest"], ["t"], axis=0),
        node("ConstantOfShape", ["t"], ["c"], value=numpy_helper.from_array(np.array([2], np.int64))),
        node("CastLike", ["c", "x"], ["b"]),
    ]
    constants = {"zero": np.int64([0]), "one": np.int64([1]), "rest": np.int64([3, 1, 1])}
    product = [*nodes, node("Mul", ["x", "b"], ["y"])]
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    agree(model(product, {"x": "float32"}, opset=19, **constants), x=x)
    shape = [node("Shape", ["b"], ["u"]), node("Expand", ["x", "u"], ["y"])]
    agree(model([*nodes, *shape], {"x": "float32"}, opset=19, **constants), x=x)
    total = [*nodes, node("ReduceSum", ["b"], ["t2"], keepdims=0), node("Mul", ["x", "t2"], ["y"])]
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="computed of the size of the batch"):
        mpscnn.load(model(total, {"x": "float32"}, opset=19, **constants))


# ---- refused


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint16"])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul"])
def test_sums_that_wrap_are_refused(operator, dtype):
    proto = model([node(operator, ["a", "b"], ["y"], "sum")], {"a": dtype, "b": dtype}, dtype)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=rf"sum: arithmetic of {dtype}, which wraps .* to int32"):
        mpscnn.load(proto)


def test_sums_behind_a_move_are_refused():
    nodes = [node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]), node("Neg", ["a"], ["y"], "n")]
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="n: arithmetic of int8"):
        mpscnn.load(model(nodes, {"x": "int8"}, "int8"))


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Mod"])
@pytest.mark.parametrize("number", [2**24 + 1, -(2**24) - 1, 2**63 - 1])
def test_constants_that_floats_round_are_refused(operator: str, number: int) -> None:
    nodes = [node(operator, ["x", "c"], ["n"], "sum"), cast("cast", "n", "y")]
    proto = model(nodes, {"x": "int64"}, c=np.array([1, number]).reshape(2, 1, 1)[1:])
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=rf"with the integer {number}, which float32 rounds"):
        mpscnn.load(proto)
    exact = model(nodes, {"x": "int64"}, c=np.array([2**25]).reshape(1, 1, 1))
    mpscnn.load(exact)


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_differences_below_zero_are_refused(dtype):
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=f"differences of {dtype}, which wrap below 0"):
        mpscnn.load(model([node("Sub", ["a", "b"], ["y"])], {"a": dtype, "b": dtype}, dtype))


@pytest.mark.parametrize(
    ("before", "after"), [("int64", "uint8"), ("uint16", "int16"), ("int32", "int8"), ("int32", "uint32")]
)
def test_conversions_that_wrap_are_refused(before, after):
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=f"values of {before} that are computed as {after}"):
        mpscnn.load(model([cast("c", "x", "y", after)], {"x": before}, after))


@pytest.mark.parametrize(
    ("before", "after"), [("uint8", "int16"), ("uint16", "int32"), ("int8", "int64"), ("bool", "uint8")]
)
def test_conversions_to_wider_types(before, after):
    agree(model([cast("c", "x", "y", after)], {"x": before}, after), relative=0, x=drawn(before))


def test_other_arithmetic_of_integers_is_refused():
    proto = model([node("MatMul", ["a", "b"], ["y"])], {"a": "int32", "b": "int32"}, "int32", shape=(1, 3, 4, 4))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="convert them to floats with a Cast before"):
        mpscnn.load(proto)


# ---- arrays


@pytest.fixture
def whole() -> mpscnn.Network:
    return mpscnn.load(model([cast("c", "x", "y")], {"x": "int64"}))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 3, 4, 5), np.float32), r'input "x": dtype \(float32\) is not int64, .* \.astype\("int64"\)'),
        (np.zeros((1, 3, 4, 5), np.uint8), r"dtype \(uint8\) is not int64"),
        (torch.zeros(1, 3, 4, 5), r"dtype \(float32\) is not int64, .* with \.to\(torch\.int64\)"),
    ],
)
def test_arrays_of_another_type_are_errors(whole, array, message):
    with pytest.raises(TypeError, match=message):
        whole(array)


def test_no_array_is_an_error(whole):
    with pytest.raises(TypeError):
        whole("text")


@pytest.mark.parametrize("value", [2**24 + 1, -(2**24) - 1])
def test_numbers_that_float32_does_not_hold_are_errors(whole, value):
    x = np.zeros((1, 3, 4, 5), np.int64)
    x[0, 1, 2, 3] = value
    with pytest.raises(ValueError, match=rf'input "x": a value \({value}\) is .* 2 \*\* 24'):
        whole(x)


def test_the_limits_are_accepted(whole):
    x = drawn("int64")
    assert np.array_equal(whole(x), x.astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.int16])
def test_tensors_of_pytorch(dtype):
    name = str(dtype).removeprefix("torch.")
    x = drawn(name)
    net = mpscnn.load(model([cast("c", "x", "y")], {"x": name}))
    assert np.array_equal(net(torch.from_numpy(x)), x.astype(np.float32))
    assert np.array_equal(net(memoryview(x)), x.astype(np.float32))


def test_streams_and_named_arrays():
    net = mpscnn.load(model([cast("c", "x", "y")], {"x": "int16"}))
    xs = [drawn("int16", seed=i) for i in range(3)]
    for x, y in zip(xs, net.stream(xs), strict=True):
        assert np.array_equal(y, x)
    assert np.array_equal(net(x=xs[0]), xs[0])


def test_mean_and_std_are_for_floats():
    proto = model([cast("c", "x", "y")], {"x": "uint8"})
    with pytest.raises(ValueError, match='mean was given for input "x", whose type in the model is uint8'):
        mpscnn.load(proto, mean=0.5)


def test_verify_rounds_inputs_of_integers():
    proto = model([cast("c", "x", "b"), node("Relu", ["b"], ["y"], "r")], {"x": "int32"})
    net = mpscnn.load(proto)
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype(np.float32) * 5
    for against in ("onnxruntime", "reference", "kernels"):
        found = verify(net, against, {"x": x}, model=proto)
        assert found.agrees, found
    pixels = model([cast("c", "x", "b"), node("Sqrt", ["b"], ["y"], "r")], {"x": "uint8"})
    assert verify(mpscnn.load(pixels), "reference", {"x": x * 90}, model=pixels).agrees
    assert verify(mpscnn.load(pixels), "kernels", {"x": x * 90}).agrees


# ---- bfloat16


def test_bfloat16_arrays_for_a_model_of_bfloat16():
    proto = model([node("Relu", ["x"], ["y"])], {"x": "bfloat16"}, "bfloat16")
    net = mpscnn.load(proto)
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(ml_dtypes.bfloat16)
    wanted = np.maximum(x.astype(np.float32), 0)
    assert np.array_equal(net(x), wanted)
    assert np.array_equal(net(torch.from_numpy(x.astype(np.float32)).bfloat16()), wanted)
    assert np.array_equal(net(x.astype(np.float32)), wanted)
    with pytest.raises(TypeError, match="float64"):
        net(x.astype(np.float64))


def test_bfloat16_module(tmp_path):
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).bfloat16()
    net = mpscnn.load(module, input_shapes=(1, 3, 8, 8))
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.no_grad():
        wanted = module.float()(x.float()).numpy()
    assert_same(net(x), wanted)
    assert net.inputs["input"].dtype == "bfloat16"
    net.save(tmp_path / "net.mpscnn")
    assert np.array_equal(mpscnn.load(tmp_path / "net.mpscnn")(x), net(x))


# ---- modules that take integers


class Pixels(torch.nn.Module):
    """A network of pixels with the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.permute(0, 3, 1, 2).float() / 255
        return self.conv((x - 0.45) / 0.225)  # type: ignore[no-any-return]


class Difference(torch.nn.Module):
    """Integers that a module computes with."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + x).float()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_module_that_converts_integers(dtype):
    module = Pixels().eval()
    x = torch.from_numpy(drawn("uint8", (2, 8, 9, 3))).to(dtype)
    net = mpscnn.load(module, example_inputs=(x,))
    with torch.no_grad():
        assert_same(net(x), module(x).numpy())
    with pytest.raises(TypeError, match="is not " + str(dtype).removeprefix("torch.")):
        net(x.float())


def test_module_that_computes_with_integers_is_refused():
    with pytest.raises(mpscnn.InvalidModelError, match=r"computes with these integers; convert them before"):
        mpscnn.load(Difference(), example_inputs=(torch.zeros(2, 3, 4, 5, dtype=torch.uint8),))


def test_graphs_of_a_type():
    graph = mpscnn.Graph()
    x = graph.input("x", channels=2, layout="NC", dtype="int32")
    graph.output(graph.add("NeuronReLU", x), "y", layout="NC")
    net = mpscnn.Network(graph)
    assert net(np.array([[-3, 4]], np.int32)).tolist() == [[0, 4]]
    with pytest.raises(ValueError, match=r'dtype \("float8"\) is not one of'):
        graph.input("z", dtype="float8")


@pytest.mark.parametrize(("dtype", "datatype"), [("uint8", "UINT8"), ("uint16", "UINT16"), ("bfloat16", "FP32")])
def test_types_of_a_server(dtype, datatype):
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=2, layout="NC", dtype=dtype)), "y", layout="NC")
    assert NetworkModel(mpscnn.Network(graph)).inputs["x"].datatype == datatype


def test_types_that_a_server_does_not_take(whole):
    with pytest.raises(
        ValueError, match=r'input "x" of the model is int64; the server takes FP32, FP16, UINT8, UINT16'
    ):
        NetworkModel(whole)


def test_damaged_types_in_files_are_refused(tmp_path: Path):
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=2, dtype="int32")), "y")
    path = tmp_path / "net.mpscnn"
    mpscnn.Network(graph).save(path)
    path.write_bytes(path.read_bytes().replace(b'\\"int32\\"', b'\\"int33\\"'))
    with pytest.raises(mpscnn.InvalidModelError, match="int33"):
        mpscnn.load(path)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bfloat16"])
def test_training_on_numbers(dtype):
    graph = mpscnn.Graph()
    x = graph.input("x", height=1, width=1, channels=2, layout="NC", dtype=dtype)
    y = graph.add("NeuronLinear", x, a=255.0 if dtype == "uint8" else 1.0, b=0.0)
    y = graph.add("FullyConnected", y, weight=np.array([[1.0, 2.0]], np.float32))
    graph.output(y, "y", layout="NC")
    trainer = mpscnn.Trainer(graph, loss="mean_squared_error")
    x = np.array([[3, 4]]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    labels = np.array([[11.0]], np.float32)
    assert trainer.evaluate(x, labels)[0] == 0
    assert trainer.evaluate(x, labels + 1)[0] > 0
    assert trainer.step(x, labels).loss == 0
    if dtype != "bfloat16":
        for call in (trainer.step, trainer.evaluate):
            with pytest.raises(TypeError, match=f"is not {dtype}"):
                call(x.astype(np.float32), labels)


def test_arrays_in_an_initializer_of_the_type():
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": "int32"}, "int32", w=np.array([5], np.int32))
    assert numpy_helper.to_array(proto.graph.initializer[0]).dtype == np.int32
    agree(proto, relative=0, x=drawn("int16").astype(np.int32))
