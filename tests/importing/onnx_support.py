# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the ONNX importer: models, references, ONNX's own test cases and their outcomes."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mpscnn
from interpreter import interpret
from mpscnn.graph import Graph
from mpscnn.importing import onnx as importer

NEWEST_RUNTIME = 22
"""Last opset compared with onnxruntime; later ones use the reference evaluator."""


def floats(name: str, shape: tuple[int | str | None, ...] | list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def weights(**arrays: NDArray[Any]) -> list[TensorProto]:
    return [numpy_helper.from_array(np.asarray(array, order="C"), name) for name, array in arrays.items()]


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int | str | None, ...]],
    outputs: list[str],
    opset: int = 17,
    **arrays: NDArray[Any],
) -> ModelProto:
    """Return a model of these nodes; `outputs` are names."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [floats(name, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        weights(**arrays),
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(proto)  # the checker requires ranks
    del inferred.graph.value_info[:]
    return inferred


def opset_of(proto: ModelProto) -> int:
    return next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)


def reference(proto: ModelProto, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the results of onnxruntime, or of ONNX's reference evaluator for versions that onnxruntime lacks."""
    if opset_of(proto) <= NEWEST_RUNTIME:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        # Its optimizer merges a padding with zeros into a max pooling, which is wrong where all values are negative.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, feeds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(ReferenceEvaluator(proto).run(None, feeds))


def run(graph: Graph, feeds: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return interpret(graph, **{name: feeds[name] for name in graph.inputs})


def assert_same(actual: NDArray[Any], expected: NDArray[Any], relative: float = 2e-5) -> None:
    """Assert equal shapes, NaN and infinities, and otherwise equality within rounding of the largest value."""
    expected = np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, not {expected.shape}"
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    scale = np.abs(expected[finite]).max(initial=1e-30)
    np.testing.assert_allclose(actual[finite], expected[finite], rtol=relative, atol=relative * scale)


def check(
    proto: ModelProto,
    *shapes: dict[str, tuple[int, ...]],
    input_shapes: dict[str, tuple[int, ...]] | None = None,
    fixed: bool = False,
    relative: float = 2e-5,
) -> Graph:
    """Import the model once and compare it with onnxruntime for inputs of these shapes."""
    graph = importer.read(proto, input_shapes=input_shapes)
    assert any(spec.fixed_by for spec in graph.inputs.values()) == fixed
    # A node of a network cannot read one value twice: network_plan.cpp counts two reads of an image that has one.
    network = all(len(set(n.sources)) == len(n.sources) for n in graph)
    net = mpscnn.Network(graph) if network else None
    for given in shapes:
        rng = np.random.default_rng([len(given), *next(iter(given.values()))])
        feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in given.items()}
        expected = reference(proto, feeds)
        for result, info in zip(expected, proto.graph.output, strict=True):
            assert_same(run(graph, feeds)[info.name], result, relative)
        if net is not None:
            found = net(**{name: feeds[name] for name in graph.inputs})
            results = [found] if isinstance(found, np.ndarray) else list(found)
            for one, result in zip(results, expected, strict=True):
                assert_same(one, result, max(relative, 1e-4))
    return graph


# ---- ONNX's own cases


@dataclass(frozen=True)
class Case:
    """One of ONNX's cases, as published or with some inputs made constants."""

    name: str
    variant: str
    proto: ModelProto
    feeds: dict[str, NDArray[Any]]
    expected: dict[str, NDArray[Any]]
    relative: float

    @property
    def operator(self) -> str:
        nodes = self.proto.graph.node
        return nodes[0].op_type if len(nodes) == 1 else "expanded"


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def with_constants(proto: ModelProto, feeds: dict[str, NDArray[Any]], names: list[str]) -> ModelProto:
    """Return the model with these inputs as initializers."""
    changed = ModelProto()
    changed.CopyFrom(proto)
    old = changed.ir_version < 4  # initializers are also inputs
    kept = [info for info in changed.graph.input if old or info.name not in names]
    types = {info.name: info.type.tensor_type.elem_type for info in changed.graph.input}
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    for name in names:
        array = feeds[name]
        if types[name] == TensorProto.BFLOAT16:
            array = array.astype(ml_dtypes.bfloat16)
        changed.graph.initializer.append(numpy_helper.from_array(array, name))
    return changed


def with_first_output(proto: ModelProto) -> ModelProto:
    """Return the model with the first result only."""
    changed = ModelProto()
    changed.CopyFrom(proto)
    del changed.graph.output[1:]
    return changed


@functools.cache
def cases() -> list[Case]:
    """Return all of ONNX's node cases whose values are arrays, each in up to five variants."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    found = []
    for case in collected:
        proto = case.model
        for inputs, outputs in case.data_sets:
            arrays = [_array(value) for value in inputs]
            results = [_array(value) for value in outputs]
            if not all(isinstance(a, (np.ndarray, np.generic)) for a in (*arrays, *results)):
                continue
            feeds = {i.name: np.asarray(a) for i, a in zip(proto.graph.input, arrays, strict=False)}
            expected = {o.name: np.asarray(a) for o, a in zip(proto.graph.output, results, strict=False)}
            low = [a.dtype.itemsize < 4 for a in (*feeds.values(), *expected.values()) if a.dtype.kind in "fV"]
            relative = 2e-2 if any(low) else max(case.rtol, 1e-3)
            names = list(feeds)
            variants = [("shipped", proto)]
            numeric = all(a.dtype.kind in "fiub" for a in feeds.values())
            if len(names) > 1 and numeric:
                variants.append(("constants", with_constants(proto, feeds, names[1:])))
                variants.append(("first constant", with_constants(proto, feeds, names[:1])))
            if len(expected) > 1 and len(proto.graph.node) == 1:
                variants += [(f"{name}, first output", with_first_output(changed)) for name, changed in variants[:2]]
            for variant, changed in variants:
                found.append(Case(case.name, variant, changed, feeds, expected, relative))
    return found


def outcome(case: Case) -> str:
    """Return "", or why the case is refused. Raise AssertionError if it is wrong, InvalidModelError if it is broken."""
    try:
        graph = importer.read(case.proto)
    except mpscnn.UnsupportedOperatorError as error:
        return "; ".join(sorted({reason for _, _, reason in error.nodes}))
    feeds = {
        name: a.astype(np.float32) if a.dtype.kind == "V" or a.dtype.name == "bfloat16" else a
        for name, a in case.feeds.items()
    }
    results = run(graph, feeds)
    for name in graph.outputs:
        expected = case.expected[name]
        assert_same(results[name], expected.astype(np.float64), case.relative)
    return ""
