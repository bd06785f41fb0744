# SPDX-License-Identifier: Apache-2.0
"""Models in 8 bits against ONNX Runtime, in both of its forms.

Networks are compared layer by layer, each given the same numbers: a difference of one step in a first layer becomes
dozens of steps in the last one, also between two settings of ONNX Runtime.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx_support import model
from onnxruntime.quantization import QuantFormat, QuantType
from quantized_support import SideBySide, quantized, session, side_by_side

import mpscnn
from architectures import build, build_small, example

NAMES = [
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "squeezenet1_1",
    "unet",
    "yolo_tiny",
    "espcn",
    pytest.param("resnext50_32x4d", marks=pytest.mark.slow),
    pytest.param("densenet121", marks=pytest.mark.slow),
    pytest.param("inception_v3", marks=pytest.mark.slow),
]
# With all channels and pixels.
REAL = (
    "resnet18",
    "resnet50",
    "resnext50_32x4d",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "squeezenet1_1",
    "densenet121",
    "inception_v3",
)
PRODUCTS = {"Conv", "Gemm", "MatMul", "QLinearConv", "QGemm", "QLinearMatMul"}
OFF = 1e-3
"""Max share of a product's numbers that are one step off: sums in the middle of two steps up to float32's rounding."""
OFF_OF_FEW = 0.2
"""That of functions of one or two numbers, and of means of four: the same values, also those in the middle, recur."""
MIDDLE = 1e-3  # steps


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", NAMES)
def test_layers(name: str, form: str, tmp_path: Path) -> None:
    compare(build_small(name), example(name)[:1], tmp_path, QuantFormat[form])


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_layers_of_real_shapes(name: str, tmp_path: Path) -> None:
    size = 299 if name == "inception_v3" else 224
    compare(build(name), torch.zeros(1, 3, size, size), tmp_path, QuantFormat.QDQ)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_signed(form: str, tmp_path: Path) -> None:
    module, x = build_small("mobilenet_v2"), example("mobilenet_v2")[:1]
    compare(module, x, tmp_path, QuantFormat[form], QuantType.QInt8)


def compare(
    module: torch.nn.Module,
    x: torch.Tensor,
    folder: Path,
    form: QuantFormat,
    activation: QuantType = QuantType.QUInt8,
) -> None:
    proto = quantized(module, x, folder, form, activation)
    layers = side_by_side(proto, np.random.default_rng(9).standard_normal(x.shape).astype(np.float32))
    net = mpscnn.load(layers.proto)
    ours = dict(zip(net.outputs, net(**{given: layers.feeds[given] for given in net.inputs}), strict=True))
    theirs, values = results(layers)
    assert len(ours) == len(layers.numbers) >= 5
    shares = []
    for number, own in layers.numbers.items():
        steps = np.abs(ours[f"made {number}"].astype(np.float64) - theirs[number]) / own.step
        off = steps > 0.5
        assert steps.max() < 1.01, f"{number}: {steps.max()} steps"
        is_product = layers.operators[number] in PRODUCTS
        shares += [off.mean()] if is_product else []
        # Of a sigmoid, 0.5 lies in the middle, and 0 may be every third number that it reads: see the distances below.
        if is_product or number not in values:
            limit = max(1, (OFF if is_product else OFF_OF_FEW) * off.size)
            assert off.sum() <= limit, f"{number}: {off.mean()} are off"
        if number in values:
            exact = values[number].astype(np.float64) / own.step
            distance = np.abs(exact - np.floor(exact) - 0.5)[off]
            assert (distance < MIDDLE).all(), f"{number}: {distance.max()} steps from the middle"
    assert np.mean(shares) < OFF / 10


def results(layers: SideBySide) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ONNX Runtime's numbers, as values, and the values that it converts to numbers."""
    probe = ModelProto()
    probe.CopyFrom(layers.proto)
    names = [f"made {number}" for number in layers.numbers]
    sources = {number: value for number, value in layers.values.items() if layers.operators[number] != "input"}
    probe.graph.output.extend(ValueInfoProto(name=value) for value in dict.fromkeys(sources.values()))
    found = session(probe).run([*names, *sources.values()], layers.feeds)
    values = dict(zip(sources, found[len(names) :], strict=True))
    return dict(zip(layers.numbers, found, strict=False)), values


# ---- single operators

STEP, ZERO = np.float32(0.03), np.uint8(120)
RUNTIME = "com.microsoft"


def node(operator: str, inputs: list[str], **attributes: Any) -> onnx.NodeProto:
    domain = "" if operator in ("QLinearConv", "QLinearMatMul", "MaxPool", "Resize") else RUNTIME
    return helper.make_node(operator, inputs, ["result"], domain=domain, **attributes)


Q, R = ["q", "step", "zero"], ["r", "small", "other"]  # of the operands
Y = ["out", "nought"]  # of the result
W = ["weight", "steps", "zeros"]
OPERATORS = {
    "add": (node("QLinearAdd", [*Q, *R, *Y]), (2, 4, 6, 6)),
    "add of a constant": (node("QLinearAdd", [*Q, "column", "small", "other", *Y]), (2, 4, 6, 6)),
    "multiply": (node("QLinearMul", [*Q, *R, *Y]), (2, 4, 6, 6)),
    "where": (node("QLinearWhere", ["mask", *Q, *R, *Y]), (2, 4, 6, 6)),
    "concatenate": (node("QLinearConcat", [*Y, *Q, *R], axis=1), (2, 4, 6, 6)),
    "mean of windows": (node("QLinearAveragePool", [*Q, *Y], kernel_shape=[3, 2], strides=[2, 2]), (2, 4, 6, 6)),
    "mean of all": (node("QLinearGlobalAveragePool", [*Q, *Y]), (2, 4, 6, 6)),
    "leaky relu": (node("QLinearLeakyRelu", [*Q, *Y], alpha=0.2), (2, 4, 6, 6)),
    "sigmoid": (node("QLinearSigmoid", [*Q, *Y]), (2, 4, 6, 6)),
    "softmax": (node("QLinearSoftmax", [*Q, *Y], axis=1, opset=13), (2, 4, 6, 6)),
    "softmax before version 13": (node("QLinearSoftmax", [*Q, *Y], axis=1, opset=11), (2, 4, 6, 6)),
    "linear": (node("QGemm", [*Q, *W, "bias", *Y], transB=1, alpha=0.5), (3, 4)),
    "linear, transposed": (node("QGemm", [*Q, "across", "steps", "zeros", "bias", *Y]), (3, 4)),
    "linear to floats": (node("QGemm", [*Q, *W, "bias"], transB=1), (3, 4)),
    "product": (node("QLinearMatMul", [*Q, "across", "steps", "zeros", *Y]), (2, 5, 4)),
    "max": (node("MaxPool", ["q"], kernel_shape=[2, 2], strides=[2, 2]), (2, 4, 6, 6)),
    "nearest": (
        node("Resize", ["q", "", "factors"], mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        (2, 4, 6, 6),
    ),
}  # fmt: skip


def model_of(operator: onnx.NodeProto, shape: tuple[int, ...]) -> tuple[onnx.ModelProto, NDArray[np.float32], Any]:
    """Return a model of numbers that the operator takes, and of its result as values; inputs; the expected result."""
    generator = np.random.default_rng(4)
    weight = generator.integers(-64, 64, (6, 4)).astype(np.int8)
    arrays = {
        "step": STEP,
        "zero": ZERO,
        "small": np.float32(0.02),
        "other": np.uint8(7),
        "out": np.float32(0.004 if operator.op_type in ("QLinearSigmoid", "QLinearSoftmax") else 0.05),
        "nought": np.uint8(0 if operator.op_type in ("QLinearSigmoid", "QLinearSoftmax") else 100),
        "weight": weight,
        "across": np.ascontiguousarray(weight.T),
        "steps": np.linspace(0.01, 0.03, 6, dtype=np.float32),
        "zeros": np.zeros(6, np.int8),
        "bias": generator.integers(-500, 500, 6).astype(np.int32),
        "column": generator.integers(0, 255, (4, 1, 1)).astype(np.uint8),
        "mask": np.arange(6) % 2 == 0,
        "factors": np.array([1, 1, 2, 2], np.float32),
    }
    of_source, is_float = operator.op_type in ("MaxPool", "Resize"), "out" not in operator.input
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"], domain=RUNTIME),
        helper.make_node("QuantizeLinear", ["x", "small", "other"], ["r"]),
        operator,
    ]
    if is_float and not of_source:
        nodes.append(helper.make_node("Identity", ["result"], ["y"]))
    else:
        scale = ["step", "zero"] if of_source else [name for name in operator.input if name in Y]
        nodes.append(helper.make_node("DequantizeLinear", ["result", *scale], ["y"]))
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(RUNTIME, 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    x = generator.standard_normal(shape).astype(np.float32)
    (expected,) = session(proto).run(None, {"x": x})
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, expected.shape))
    return proto, x, expected


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str) -> None:
    operator, shape = OPERATORS[name]
    proto, x, expected = model_of(operator, shape)
    ours = mpscnn.load(proto)(x)
    assert ours.shape == expected.shape
    if name == "linear to floats":
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
        return
    step = (
        0.004
        if operator.op_type in ("QLinearSigmoid", "QLinearSoftmax")
        else 0.03
        if "out" not in operator.input
        else 0.05
    )
    steps = np.abs(ours - expected) / step
    assert len(np.unique(expected)) > 5
    assert steps.max() < 1.01
    # ONNX Runtime takes exponentials from a table; means of six pixels are often in the middle.
    assert (steps > 0.5).mean() < (0.3 if name == "softmax" else 0.1 if name == "mean of windows" else 0.01)


def test_refused() -> None:
    proto, _, _ = model_of(*OPERATORS["mean of windows"])
    pool = next(each for each in proto.graph.node if each.op_type == "QLinearAveragePool")
    pool.attribute.append(helper.make_attribute("channels_last", 1))
    with pytest.raises(
        mpscnn.UnsupportedOperatorError, match=r"com.microsoft.QLinearAveragePool[^:]*:\n.*channels_last"
    ):
        mpscnn.load(proto)
    pool.op_type = "QLinearOther"
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r'an operator of the domain "com.microsoft"'):
        mpscnn.load(proto)
    proto, _, _ = model_of(*OPERATORS["nearest"])
    resize = next(each for each in proto.graph.node if each.op_type == "Resize")
    next(each for each in resize.attribute if each.name == "mode").s = b"linear"
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="arithmetic of integers"):
        mpscnn.load(proto)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_numbers_stay_bytes(form: str, tmp_path: Path) -> None:
    """No kernel rounds floats: all numbers are images of uint8, also those of a max pooling of numbers."""
    proto = quantized(build_small("squeezenet1_1"), example("squeezenet1_1")[:1], tmp_path, QuantFormat[form])
    kinds = {layer.kernel for layer in mpscnn.load(proto).layers()}
    assert "PoolingMax" in kinds
    assert "MetalFunction" not in kinds


@pytest.mark.parametrize("scale", [0.25, 0.03, 0.0171])
@pytest.mark.parametrize("zero", [np.uint8(120), np.uint8(121), np.int8(-3), np.uint16(40001)])
def test_middle_between_numbers(scale: float, zero: Any) -> None:
    """Numbers that an operator reads are those of the definition, also where values are in the middle of two."""
    x = ((np.arange(-60, 60) + 0.5) * np.float32(scale)).astype(np.float32).reshape(1, 120)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    for each, zeros in ((np.float32(scale), zero), (np.full(120, scale, np.float32), np.full(120, zero))):
        proto = model(nodes, {"x": x.shape}, ["y"], 21, scale=each, zero=zeros)
        np.testing.assert_array_equal(mpscnn.load(proto)(x), session(proto).run(None, {"x": x})[0])


# ---- constants


def of_constant(values: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], **attributes: int) -> onnx.ModelProto:
    """Return a model of x plus the values of the numbers of a constant."""
    nodes = [
        helper.make_node("QuantizeLinear", ["c", "scale", "zero"], ["q"], name="constant", **attributes),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], **attributes),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    return model(nodes, {"x": values.shape}, ["y"], 21, c=values, scale=scale, zero=zero)


TIES = np.array([[-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 1e30, -1e30, 0.49999997, -127.5]], np.float32)


@pytest.mark.parametrize("zero", [np.uint8(7), np.uint8(120), np.int8(-3), np.uint16(40001), np.int16(0)])
def test_constant(zero: Any) -> None:
    """Numbers of a constant are those of the definition: half to even before the zero point is added, and clamped."""
    scale, limits = np.float32(0.25), np.iinfo(zero.dtype)
    values = np.concatenate([TIES * scale, np.linspace(-20, 20, 12, dtype=np.float32)[None]])
    for each in (scale, np.full(12, scale)):
        zeros = zero if each.ndim == 0 else np.full(12, zero)
        net = mpscnn.load(of_constant(values[:1], each, zeros))
        numbers = np.rint(TIES).astype(np.float64) + float(zero)
        expected = (np.clip(numbers, limits.min, limits.max) - float(zero)) * 0.25
        np.testing.assert_array_equal(net(np.zeros((1, 12), np.float32)), expected)
    proto = of_constant(values[1:], scale, np.asarray(zero))
    x = np.zeros((1, 12), np.float32)
    np.testing.assert_array_equal(mpscnn.load(proto)(x), session(proto).run(None, {"x": x})[0])


BAD_CONSTANTS: list[tuple[dict[str, Any], str]] = [
    ({"scale": np.float32(0)}, r"constant \(QuantizeLinear\): the scale \(0\.0\) is not finite and greater than 0"),
    ({"scale": np.float32(-0.5)}, r"the scale \(-0\.5\) is not finite and greater than 0"),
    ({"scale": np.float32("nan")}, r"the scale \(nan\)"),
    ({"scale": np.float32("inf")}, r"the scale \(inf\)"),
    ({"scale": np.ones(5, np.float32)}, r"5 scales for 12"),
    ({"zero": np.zeros(5, np.uint8)}, r"5 zero points for 12"),
    ({"scale": np.ones(12, np.float32), "axis": 2}, r"the axis \(2\) is not one of 2"),
    ({"scale": np.ones((1, 12), np.float32), "axis": 1, "block_size": 1}, "blocks of quantized values"),
    ({"values": np.full((1, 12), np.nan, np.float32)}, r"a value \(nan\) has no number"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_CONSTANTS)
def test_bad_constant(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"values": TIES, "scale": np.float32(0.5), "zero": np.uint8(3)} | changes
    try:
        proto = of_constant(**given)
    except onnx.shape_inference.InferenceError:
        pytest.skip("ONNX's own check refuses the model")
    with pytest.raises(mpscnn.ImportError, match=message):
        mpscnn.load(proto)
