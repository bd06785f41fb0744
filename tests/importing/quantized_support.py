# SPDX-License-Identifier: Apache-2.0
"""Networks quantized by ONNX Runtime, and all their layers side by side in one model."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from mpscnn.importing.onnx.quantization import MOVES
from support import PROCESSOR


class _Samples(CalibrationDataReader):
    def __init__(self, samples: list[NDArray[np.float32]]) -> None:
        self._left = iter(samples)

    def get_next(self) -> dict[str, Any] | None:
        sample = next(self._left, None)
        return None if sample is None else {"x": sample}


HAS_VNNI = not PROCESSOR.isdisjoint({"avx512_vnni", "avx_vnni"})


def quantized(
    module: torch.nn.Module, x: torch.Tensor, folder: Path, form: QuantFormat, activation: QuantType = QuantType.QUInt8
) -> ModelProto:
    """Return the module as an ONNX model in 8 bits; weights have a scale for each output."""
    path, small = folder / "model.onnx", folder / "small.onnx"
    before = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (x,), path, input_names=["x"], opset_version=17, dynamo=False)
            quant_pre_process(str(path), str(path), skip_symbolic_shape=True)
            samples = [np.random.default_rng(i).standard_normal(x.shape).astype(np.float32) for i in range(2)]
            quantize_static(
                path,
                small,
                _Samples(samples),
                quant_format=form,
                per_channel=True,
                activation_type=activation,
                weight_type=QuantType.QInt8,
                # Without VNNI, ONNX Runtime adds two products of a byte and a weight in 16 bits, which saturate.
                reduce_range=not HAS_VNNI,
            )
    finally:
        logging.getLogger().setLevel(before)
    return onnx.load(small)


@dataclass(frozen=True)
class Numbers:
    """Names of the scale and zero point of a tensor of numbers, with their values."""

    scale: str
    zero: str
    step: float
    nought: int


def numbers_of(proto: ModelProto) -> dict[str, Numbers]:
    """Return the computed tensors of numbers by name."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    found: dict[str, Numbers] = {}
    for node in proto.graph.node:
        if node.op_type in MOVES and node.input[0] in found:
            found.update(dict.fromkeys(node.output, found[node.input[0]]))
        place = _place_of_scale(node)
        if place is not None and place < len(node.input) and node.input[0] not in constants:
            scale, zero = node.input[place : place + 2]
            found[node.output[0]] = Numbers(
                scale, zero, float(constants[scale].ravel()[0]), int(constants[zero].ravel()[0])
            )
    return found


def _place_of_scale(node: NodeProto) -> int | None:
    if node.op_type == "QuantizeLinear":
        return 1
    if node.op_type == "QLinearConcat":
        return 0
    if node.op_type == "QGemm":
        return 7
    if node.op_type.startswith("QLinear"):
        return 6 if len(node.input) > 5 else 3
    return None


def session(proto: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def numbers_by_runtime(proto: ModelProto, names: list[str], x: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Return tensors of numbers by ONNX Runtime, by name."""
    probe = ModelProto()
    probe.CopyFrom(proto)
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, session(probe).run(names, {"x": x}), strict=True))


@dataclass(frozen=True)
class SideBySide:
    """A model of which each layer reads numbers that are inputs, as the values of these numbers.

    The input of the tensor t is "given t" and its result "made t".
    """

    proto: ModelProto
    feeds: dict[str, NDArray[np.float32]]
    numbers: dict[str, Numbers]
    values: dict[str, str]  # of tensors of numbers, those that QuantizeLinear takes
    operators: dict[str, str]  # which made the values or numbers; behind an activation, that in front of it


def side_by_side(proto: ModelProto, x: NDArray[np.float32]) -> SideBySide:
    """Return the model for the numbers that ONNX Runtime computes from x."""
    numbers = numbers_of(proto)
    given = numbers_by_runtime(proto, list(numbers), x)
    numbers = {name: own for name, own in numbers.items() if given[name].ndim in (2, 4)}
    model = ModelProto()
    model.CopyFrom(proto)
    graph = model.graph
    del graph.node[:], graph.output[:], graph.value_info[:]
    for name, own in numbers.items():
        shape = given[name].shape
        graph.input.append(helper.make_tensor_value_info(f"given {name}", TensorProto.FLOAT, shape))
        graph.output.append(helper.make_tensor_value_info(f"made {name}", TensorProto.FLOAT, shape))
        graph.node.append(helper.make_node("QuantizeLinear", [f"given {name}", own.scale, own.zero], [f"read {name}"]))
    for node in proto.graph.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [f"read {name}" if name in numbers else name for name in node.input]
    for name, own in numbers.items():
        graph.node.append(helper.make_node("DequantizeLinear", [name, own.scale, own.zero], [f"made {name}"]))
    feeds = {
        f"given {name}": ((given[name].astype(np.float64) - own.nought) * own.step).astype(np.float32)
        for name, own in numbers.items()
    }
    makers = {name: node for node in proto.graph.node for name in node.output}
    values = {name: makers[name].input[0] for name in numbers if makers[name].op_type == "QuantizeLinear"}
    operators = {}
    for name in numbers:
        maker = makers.get(values.get(name, name))
        while maker is not None and maker.op_type in ("Relu", "Clip"):
            maker = makers.get(maker.input[0])
        operators[name] = maker.op_type if maker is not None else "input"
    return SideBySide(model, feeds | {"x": x}, numbers, values, operators)
