# SPDX-License-Identifier: Apache-2.0
"""ONNX's own cases of its operators: each passes or is refused with a reason; a table counts those that pass.

onnx_node_cases.txt has the counts for one version of the package onnx. MPSCNN_REWRITE_TABLES=1 rewrites it.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections import Counter

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx_support import Case, assert_same, cases, outcome, reference, run

import mpscnn
from mpscnn.graph import Graph
from mpscnn.importing import onnx as importer

TABLE = pathlib.Path(__file__).with_name("onnx_node_cases.txt")


def by_operator() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases():
        found.setdefault(case.operator, []).append(case)
    return found


def shortened(reason: str) -> str:
    """Return the kind of a reason, without the numbers and names of a case."""
    reason = re.sub(r"\d+(\.\d+)?(, )?", "_", reason.split("; ")[0])
    return re.sub(r'"[^"]*"|values of type \w+|as [A-Z0-9_]+\b', "...", reason)[:90]


def tried(name: str) -> tuple[int, Counter[str]]:
    """Return how many cases of the operator pass, and why the others are refused. Fail if one is wrong."""
    passed: set[str] = set()
    reasons: dict[str, str] = {}
    for case in by_operator()[name]:
        try:
            reason = outcome(case)
        except Exception as error:
            pytest.fail(f"{case.name}, {case.variant}: {type(error).__name__}: {error}")
        if reason and (case.name not in reasons or case.variant.startswith("constants")):
            reasons[case.name] = shortened(reason)
        if reason:
            continue
        passed.add(case.name)
    return len(passed), Counter(reason for case, reason in reasons.items() if case not in passed)


def lines(name: str, passed: int, refused: Counter[str]) -> list[str]:
    return [
        f"{name}: {passed} pass, {refused.total()} refused",
        *(f"    {count} x {reason}" for reason, count in sorted(refused.items())),
    ]


def table() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in TABLE.read_text().splitlines()[1:]:
        if not line.startswith(" "):
            name = line.partition(":")[0]
            found[name] = []
        found[name].append(line)
    return found


NAMES = [*sorted(name for name in importer.OPERATORS if "." not in name), "Constant", "expanded"]


@pytest.mark.parametrize("name", NAMES)
def test_cases_pass_or_are_refused(name):
    if name not in by_operator():
        pytest.skip(f"onnx {onnx.__version__} has no cases of {name}")
    found = lines(name, *tried(name))
    if os.environ.get("MPSCNN_REWRITE_TABLES"):
        before = table() if TABLE.exists() else {}
        before[name] = found
        text = [f"onnx {onnx.__version__}", *(line for key in sorted(before) for line in before[key])]
        TABLE.write_text("\n".join(text) + "\n")
    expected = table()[name]
    if TABLE.read_text().splitlines()[0] == f"onnx {onnx.__version__}":
        assert found[0] == expected[0], "MPSCNN_REWRITE_TABLES=1 writes the table anew"
    elif not expected[0].startswith(f"{name}: 0 pass"):
        assert not found[0].startswith(f"{name}: 0 pass")


def test_the_table_does_not_shrink():
    passed = [int(line.split(": ")[1].split()[0]) for rows in table().values() for line in rows[:1]]
    assert sum(passed) >= 400
    assert sum(count > 0 for count in passed) >= 75


def test_other_operators_are_refused():
    """Operators that are not in the table are refused, all of them in one message."""
    seen = set()
    for name, several in by_operator().items():
        if name in NAMES:
            continue
        for case in several:
            with pytest.raises(mpscnn.UnsupportedOperatorError):
                importer.read(case.proto)
            seen.add(name)
    assert {"Loop", "Scan", "LSTM", "GRU", "NonMaxSuppression"} <= seen


# ---- the same operators with other values and extents

# Operators whose first input may have another height and width while the others stay the same.
SPATIAL = {
    *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"),
    *("GlobalLpPool", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN", "Resize"),
    *("LpNormalization", "Softmax", "LogSoftmax", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Selu", "Celu"),
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"),
    *("ReduceLogSumExp", "Pad", "Transpose", "Clip", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Swish", "Exp", "Abs"),
    *("Neg", "Softplus", "Softsign", "Log", "Sqrt", "Reciprocal", "ArgMax", "ArgMin", "Upsample", "PRelu"),
}
POSITIVE = {"BatchNormalization", "Log", "Reciprocal", "ReduceLogSum", "Sqrt"}


def drawn(name: str, shape: list[int], rng: np.random.Generator) -> NDArray:
    values = np.asarray(rng.standard_normal(shape), np.float32)
    return np.abs(values) + np.float32(0.2) if name in POSITIVE else values


def with_more_pixels(proto: onnx.ModelProto, height: int, width: int) -> onnx.ModelProto:
    """Return the model with more rows and columns in the first input, and without shapes of results."""
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    dims = changed.graph.input[0].type.tensor_type.shape.dim
    if len(dims) == 4:
        dims[2].dim_value += height
        dims[3].dim_value += width
    for info in changed.graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    return changed


def redrawn(case: Case, rng: np.random.Generator) -> onnx.ModelProto:
    """Return the case with random weights."""
    proto = with_more_pixels(case.proto, 2, 5)
    if case.operator not in ("Resize", "Upsample", "Clip"):
        for tensor in proto.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                values = drawn(case.operator, list(tensor.dims), rng)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return proto


def drawn_feeds(case: Case, proto: onnx.ModelProto, rng: np.random.Generator) -> dict[str, NDArray]:
    feeds = {}
    for info in proto.graph.input:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        float32 = info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        feeds[info.name] = drawn(case.operator, shape, rng) if float32 else case.feeds[info.name]
    return feeds


def compare(case: Case, graph: Graph, proto: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Return whether the reference supports the case; fail if its results differ."""
    feeds = drawn_feeds(case, proto, rng)
    try:
        expected = reference(proto, feeds)
    except Exception:
        return False  # onnxruntime does not support all cases
    results = run(graph, feeds)
    for info, value in zip(proto.graph.output, expected, strict=True):
        try:
            assert_same(results[info.name], value, 1e-4)
        except AssertionError as error:
            pytest.fail(f"{case.name}, {case.variant}: {error}")
    return True


@pytest.mark.parametrize("name", sorted(SPATIAL))
def test_redrawn(name, rng):
    """Cases with random values and height != width; also at another size with the same graph if extents are free."""
    compared = several = 0
    for case in by_operator().get(name, []):
        float32 = case.proto.graph.input and case.proto.graph.input[0].type.tensor_type.elem_type == 1
        if case.variant == "first constant" or not float32:
            continue
        proto = redrawn(case, rng)
        try:
            graph = importer.read(proto)
        except (mpscnn.UnsupportedOperatorError, mpscnn.InvalidModelError):
            continue  # refused cases are counted above; others are invalid with these extents
        several += 1
        compared += compare(case, graph, proto, rng)
        if not any(spec.fixed_by for spec in graph.inputs.values()):
            compared += compare(case, graph, with_more_pixels(proto, 7, -1), rng)
    if not several:
        pytest.skip(f"onnx {onnx.__version__} has no cases of {name} with float32 that have a kernel")
    assert compared


def test_a_wrong_result_is_detected(monkeypatch):
    """The comparison detects a wrong operator."""
    case = next(c for c in cases() if c.operator == "LeakyRelu")
    monkeypatch.setitem(importer.OPERATORS, "LeakyRelu", importer.OPERATORS["Relu"])
    with pytest.raises(AssertionError):
        outcome(case)
