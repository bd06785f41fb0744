# SPDX-License-Identifier: Apache-2.0
"""Quantized ONNX models with wrong scales, zero points and axes: each is refused with an error that names the node, or
computes what the operators define.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper
from onnx_support import model

import mpscnn
from fuzzing import Fuzz
from mpscnn.importing import onnx as importer

fuzz = Fuzz()
node = helper.make_node

SHAPE = (1, 4, 3, 5)
OUTPUTS = 6
X = np.random.default_rng(1).uniform(-3, 3, SHAPE).astype(np.float32)
GOOD: dict[str, Any] = {
    "step": np.float32(0.03),
    "zero": np.uint8(120),
    "weight": np.random.default_rng(2).integers(-127, 128, (OUTPUTS, 4, 1, 1)).astype(np.int8),
    "steps": np.linspace(0.001, 0.003, OUTPUTS, dtype=np.float32),
    "zeros": np.zeros(OUTPUTS, np.int8),
    "out_step": np.float32(0.02),
    "out_zero": np.uint8(100),
    "bias": np.arange(OUTPUTS, dtype=np.int32),
    "axis": 0,
}
SCALES = (0.0, -0.02, float("nan"), float("inf"), float("-inf"), 1e-45, 1e-30, 3e38, 0.05)
ZEROS = (np.uint8(0), np.uint8(255), np.int8(-128), np.int8(127), np.uint16(300), np.int32(-7), np.int32(2**31 - 1))
ZEROS += (np.float32(3), np.float32("nan"), np.int64(2**62), np.bool_(True))
COUNTS = (0, 1, 2, OUTPUTS - 1, OUTPUTS + 1, 1000)


def proto_of(form: str, given: dict[str, Any]) -> onnx.ModelProto:
    """Return a convolution of 8-bit numbers, by separate conversions or by QLinearConv."""
    arrays = {name: value for name, value in given.items() if name != "axis"}
    begin = node("QuantizeLinear", ["x", "step", "zero"], ["q"], name="begin", axis=given["axis"] or 1)
    end = node("DequantizeLinear", ["r", "out_step", "out_zero"], ["y"], name="end")
    if form == "QLinearConv":
        sources = ["q", "step", "zero", "weight", "steps", "zeros", "out_step", "out_zero", "bias"]
        return model([begin, node(form, sources, ["r"], name="middle"), end], {"x": SHAPE}, ["y"], 13, **arrays)
    nodes = [
        begin,
        node("DequantizeLinear", ["q", "step", "zero"], ["d"], name="source", axis=given["axis"] or 1),
        node("DequantizeLinear", ["weight", "steps", "zeros"], ["w"], name="weights", axis=given["axis"]),
        node("Conv", ["d", "w"], ["c"], name="middle"),
        node("QuantizeLinear", ["c", "out_step", "out_zero"], ["r"], name="store"),
        end,
    ]
    del arrays["bias"]
    return model(nodes, {"x": SHAPE}, ["y"], 13, **arrays)


def along(values: Any, rank: int, axis: int) -> NDArray[np.float64]:
    numbers = np.asarray(values, np.float64)
    return numbers.reshape(()) if numbers.size == 1 else numbers.reshape([-1 if i == axis else 1 for i in range(rank)])


def stored(values: NDArray[np.float64], scale: Any, zero: Any, axis: int = 1) -> NDArray[np.float64]:
    """Return the values that the nearest numbers stand for."""
    limits = np.iinfo(np.asarray(zero).dtype)
    step, nought = along(scale, 4, axis), along(zero, 4, axis)
    return (np.clip(np.rint(values / step) + nought, limits.min, limits.max) - nought) * step


def defined(form: str, given: dict[str, Any]) -> NDArray[np.float64]:
    axis = 0 if form == "QLinearConv" else given["axis"] % 4
    x = stored(X.astype(np.float64), given["step"], given["zero"], given["axis"] % 4 or 1)
    weight = given["weight"] - along(given["zeros"], 4, axis)
    y = np.einsum("nchw,oc->nohw", x, (weight * along(given["steps"], 4, axis))[:, :, 0, 0])
    if form == "QLinearConv":
        y = y + (given["bias"] * np.float64(given["step"]) * given["steps"]).reshape(1, -1, 1, 1)
    return stored(y, given["out_step"], given["out_zero"])


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, Any]:
    """Return one or two wrong parameters."""
    given: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(["step", "out_step", "zero", "out_zero", "steps", "zeros", "axis", "bias"]))
        if name == "axis":
            given[name] = draw(st.sampled_from([-5, -4, -1, 1, 2, 3, 4, 2**31, -(2**63)]))
        elif name == "bias":
            given[name] = np.zeros(draw(st.sampled_from(COUNTS)), np.int32)
        elif draw(st.booleans()):
            value = draw(st.sampled_from(SCALES if "step" in name else ZEROS))
            given[name] = np.asarray(value, np.float32) if "step" in name else np.asarray(value)
            if name in ("steps", "zeros"):
                given[name] = np.full(OUTPUTS, given[name])
        else:
            kind = np.asarray(GOOD[name])
            given[name] = np.full(draw(st.sampled_from(COUNTS)), kind.flat[0], kind.dtype)
    return given


@fuzz.given(250, st.sampled_from(["Conv", "QLinearConv"]), mutations())
def test_mutated_parameters(form: str, changes: dict[str, Any]) -> None:
    given = GOOD | changes
    try:
        proto = proto_of(form, given)
    except onnx.shape_inference.InferenceError:
        return  # ONNX's own check
    try:
        net = mpscnn.Network(importer.read(proto))
    except mpscnn.ImportError:
        return  # test_refused has the messages
    with np.errstate(all="ignore"):
        expected = defined(form, given)
        size = np.abs(along(given["out_step"], 4, 1)) * 1.001 + 1e-5 * np.abs(expected)
    found = net(X)
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= size).all()


def test_good_parameters() -> None:
    for form in ("Conv", "QLinearConv"):
        found, expected = mpscnn.Network(importer.read(proto_of(form, GOOD)))(X), defined(form, GOOD)
        steps = np.abs(found - expected) / float(GOOD["out_step"])
        assert steps.max() < 1.001
        assert (steps > 0.5).mean() < 0.05
        assert len(np.unique(found)) > 20


REFUSED = [
    ("Conv", {"step": np.float32(0)}, r"begin \(QuantizeLinear\): the scale \(0\.0\) is not finite and greater than 0"),
    (
        "Conv",
        {"step": np.float32("nan")},
        r"begin \(QuantizeLinear\): the scale \(nan\) is not finite and greater than 0",
    ),
    (
        "Conv",
        {"out_step": np.float32("inf")},
        r"store \(QuantizeLinear\): the scale \(inf\) is not finite and greater than 0",
    ),
    ("Conv", {"steps": np.full(OUTPUTS, np.nan, np.float32)}, r"weights \(DequantizeLinear\): the scale \(nan\)"),
    ("Conv", {"axis": 4}, r"weights \(DequantizeLinear\): the axis \(4\)|begin \(QuantizeLinear\): the axis \(4\)"),
    ("Conv", {"axis": -5}, r"the axis \(-5\) is not one of 4"),
    ("Conv", {"steps": np.ones(5, np.float32)}, r"weights \(DequantizeLinear\): 5 scales"),
    ("Conv", {"zeros": np.zeros(5, np.int8)}, r"weights \(DequantizeLinear\): 5 zero points"),
    ("Conv", {"zero": np.full(3, 120, np.uint8)}, r"begin \(QuantizeLinear\): 3 zero points"),
    ("QLinearConv", {"steps": np.ones(5, np.float32)}, r"middle \(QLinearConv\): 5 scales"),
    ("QLinearConv", {"zeros": np.zeros(5, np.int8)}, r"middle \(QLinearConv\): 5 zero points"),
    ("QLinearConv", {"out_step": np.float32(-np.inf)}, r"middle \(QLinearConv\): the scale \(-inf\)"),
    ("QLinearConv", {"bias": np.zeros(5, np.int32)}, r"middle \(QLinearConv\): .*\b5\b"),
]


@pytest.mark.parametrize(("form", "values", "message"), REFUSED)
def test_refused(form: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(mpscnn.ImportError, match=message):
        importer.read(proto_of(form, GOOD | values))
