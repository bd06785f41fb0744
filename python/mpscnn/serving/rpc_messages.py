# SPDX-License-Identifier: Apache-2.0
"""Messages of the Open Inference Protocol over gRPC, and their translation from and to arrays.

The message classes are made from the table below, so there is no generated code, which would need the version of
protobuf that generated it. Tensors are neither parsed nor serialized by protobuf: they are views of the received
bytes, and parts of the answer.

[github.com/kserve/open-inference-protocol, specification/protocol/open_inference_grpc.proto]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingPackageError
from .models import DTYPES, NAMES, Tensor
from .protocol import RequestError, check_integers, read_inputs, read_outputs

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise MissingPackageError("gRPC", "protobuf", ("grpcio", "protobuf")) from error

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

# Fields by message, in the order of their numbers, from 1: "[]" is repeated, "{}" is a map from string.
_MESSAGES = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": "bool"},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": "bool"},
    "ModelReadyRequest": {"name": "string", "version": "string"},
    "ModelReadyResponse": {"ready": "bool"},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {"name": "string", "version": "string", "extensions": "string[]"},
    "ModelMetadataRequest": {"name": "string", "version": "string"},
    "ModelMetadataResponse": {
        "name": "string",
        "versions": "string[]",
        "platform": "string",
        "inputs": "ModelMetadataResponse.TensorMetadata[]",
        "outputs": "ModelMetadataResponse.TensorMetadata[]",
    },
    "ModelMetadataResponse.TensorMetadata": {"name": "string", "datatype": "string", "shape": "int64[]"},
    "InferParameter": {
        "bool_param": "bool",
        "int64_param": "int64",
        "string_param": "string",
        "double_param": "double",
        "uint64_param": "uint64",
    },
    "InferTensorContents": {
        "bool_contents": "bool[]",
        "int_contents": "int32[]",
        "int64_contents": "int64[]",
        "uint_contents": "uint32[]",
        "uint64_contents": "uint64[]",
        "fp32_contents": "float[]",
        "fp64_contents": "double[]",
        "bytes_contents": "bytes[]",
    },
    "ModelInferRequest": {
        "model_name": "string",
        "model_version": "string",
        "id": "string",
        "parameters": "InferParameter{}",
        "inputs": "ModelInferRequest.InferInputTensor[]",
        "outputs": "ModelInferRequest.InferRequestedOutputTensor[]",
        "raw_input_contents": "bytes[]",
    },
    "ModelInferRequest.InferInputTensor": {
        "name": "string",
        "datatype": "string",
        "shape": "int64[]",
        "parameters": "InferParameter{}",
        "contents": "InferTensorContents",
    },
    "ModelInferRequest.InferRequestedOutputTensor": {"name": "string", "parameters": "InferParameter{}"},
    "ModelInferResponse": {
        "model_name": "string",
        "model_version": "string",
        "id": "string",
        "parameters": "InferParameter{}",
        "outputs": "ModelInferResponse.InferOutputTensor[]",
        "raw_output_contents": "bytes[]",
    },
    "ModelInferResponse.InferOutputTensor": {
        "name": "string",
        "datatype": "string",
        "shape": "int64[]",
        "parameters": "InferParameter{}",
        "contents": "InferTensorContents",
    },
}
_ONEOFS = {"InferParameter": "parameter_choice"}  # of all fields

# Fields that are read and written without protobuf.
_RAW_INPUT_CONTENTS = 7
_OUTPUTS, _RAW_OUTPUT_CONTENTS = 5, 6
_OUTPUT_CONTENTS, _FP32_CONTENTS = 5, 6

# Typed contents by datatype. The protocol has none for FP16.
_CONTENTS = {"FP32": "fp32_contents", "UINT8": "uint_contents", "UINT16": "uint_contents"}

# Fields of a request outside of other messages. Each takes memory, also if it is empty.
_MAX_FIELDS = 10000


def _describe() -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of the table."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="open_inference_grpc.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}

    def add(message: Any, name: str, number: int, of: str) -> Any:
        field = message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL)
        if of.endswith("[]"):
            field.label = kinds.LABEL_REPEATED
        of = of.removesuffix("[]")
        if of[0].isupper():
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{of}"
        else:
            field.type = kinds.Type.Value(f"TYPE_{of.upper()}")
        return field

    for full_name, fields in _MESSAGES.items():
        outer, _, name = full_name.rpartition(".")
        message = made[full_name] = (
            made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        )
        if full_name in _ONEOFS:
            message.oneof_decl.add(name=_ONEOFS[full_name])
        for number, (field_name, of) in enumerate(fields.items(), 1):
            if of.endswith("{}"):
                entry = message.nested_type.add(name=f"{field_name.capitalize()}Entry")
                entry.options.map_entry = True
                add(entry, "key", 1, "string")
                add(entry, "value", 2, of.removesuffix("{}"))
                of = f"{full_name}.{entry.name}[]"
            field = add(message, field_name, number, of)
            if full_name in _ONEOFS:
                field.oneof_index = 0
    return file


def _make_messages() -> dict[str, Any]:
    # A pool of its own: the default one may have the same names, of a client in the same process.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_describe())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _MESSAGES
    }


MESSAGES: dict[str, Any] = _make_messages()  # classes by name


def parse(name: str, data: bytes) -> Any:
    """Return a message of a class, or raise RequestError."""
    try:
        return MESSAGES[name].FromString(data)
    except DecodeError:
        raise RequestError(f"the message is not a {name}.") from None


# ---- requests


@dataclass(frozen=True)
class InferRequest:
    """A parsed request: arrays by input, the names of the requested outputs, and whether these are raw."""

    id: str
    arrays: dict[str, NDArray[Any]]
    outputs: list[str]
    is_raw: bool


@dataclass(frozen=True)
class SplitRequest:
    """A request as protobuf parses it, and its raw tensors, which are views of the received bytes."""

    message: Any
    raw: list[memoryview]


def split_request(data: bytes, max_typed: int) -> SplitRequest:
    """Parse a message without its raw tensors.

    Raises
    ------
    RequestError
        It is not a message, or has more than `max_typed` bytes beside its raw tensors.
    """
    view = memoryview(data)
    others, raw, size = [], [], 0
    fields = _fields(view)
    try:
        for number, is_bytes, start, content, end in itertools.islice(fields, _MAX_FIELDS):
            if number == _RAW_INPUT_CONTENTS and is_bytes:
                raw.append(view[content:end])
                continue
            others.append(view[start:end])
            size += end - start
            if size > max_typed:
                raise RequestError(
                    f"the message has more than {max_typed} bytes, the maximum, beside raw_input_contents: send raw "
                    "tensors."
                )
        if next(fields, None) is not None:
            raise RequestError(f"the message has more than {_MAX_FIELDS} fields, the maximum.")
    except ValueError:
        raise RequestError("the message is not a ModelInferRequest.") from None
    return SplitRequest(parse("ModelInferRequest", b"".join(others)), raw)


def read_infer(
    request: SplitRequest, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], *, max_pixels: int
) -> InferRequest:
    """Return the arrays of a request. Raw tensors are not copied.

    Raises
    ------
    RequestError
        It is not a request for these tensors.
    """
    message, raw = request.message, request.raw
    if raw and len(raw) != len(message.inputs):
        raise RequestError(f"raw_input_contents has {len(raw)} tensors, not {len(message.inputs)}, those of inputs.")
    remaining = iter(raw)

    def data(entry: dict[str, Any], where: str, datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        has_contents = entry["tensor"].HasField("contents")
        if not raw:
            if not has_contents:
                raise RequestError(f"{where} has neither contents nor raw_input_contents.")
            return _typed(entry["tensor"].contents, where, datatype, shape)
        if has_contents:
            raise RequestError(f"{where} has both contents and raw_input_contents.")
        content = next(remaining)
        expected = math.prod(shape) * DTYPES[datatype].itemsize
        if len(content) != expected:
            raise RequestError(
                f"{where}: raw_input_contents has {len(content)} bytes, not {expected}, of its shape and datatype."
            )
        return np.frombuffer(content, DTYPES[datatype]).reshape(shape)

    # A wrong shape is shown by its first extents: it may have millions.
    entries = [
        {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape[:32]), "tensor": tensor}
        for tensor in message.inputs
    ]
    arrays = read_inputs({"inputs": entries}, inputs, data, max_pixels)
    requested = [{"name": output.name} for output in message.outputs] or None
    return InferRequest(message.id, arrays, list(read_outputs({"outputs": requested}, outputs)), bool(raw))


def _typed(contents: Any, where: str, datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    wanted = _CONTENTS.get(datatype)
    if wanted is None:
        raise RequestError(f"{where}: {datatype} has no typed contents in the protocol: send raw_input_contents.")
    others = [field.name for field, _ in contents.ListFields() if field.name != wanted]
    if others:
        raise RequestError(f"{where}: contents has {', '.join(others)}, but {datatype} is in {wanted}.")
    values, count = getattr(contents, wanted), math.prod(shape)
    if len(values) != count:
        raise RequestError(f"{where}: {wanted} has {len(values)} elements, not {count}, of its shape.")
    dtype = DTYPES[datatype]
    if dtype.kind == "f":
        return np.fromiter(values, dtype, count).reshape(shape)
    array = np.fromiter(values, np.uint32, count)
    check_integers(array, where, dtype)
    return array.astype(dtype).reshape(shape)


# ---- answers


def write_infer(model: str, version: str, request: InferRequest, results: Mapping[str, NDArray[Any]]) -> list[Any]:
    """Return the parts of a ModelInferResponse: raw tensors if those of the request are, or if one is not FP32."""
    response = MESSAGES["ModelInferResponse"](model_name=model, model_version=version, id=request.id)
    parts, tensors = [], []
    arrays = {name: np.ascontiguousarray(results[name]) for name in request.outputs}
    is_raw = request.is_raw or any(NAMES[array.dtype] != "FP32" for array in arrays.values())
    for name, array in arrays.items():
        about = MESSAGES["ModelInferResponse.InferOutputTensor"](
            name=name, datatype=NAMES[array.dtype], shape=array.shape
        ).SerializeToString()
        data = array.reshape(-1).view(np.uint8).data
        if is_raw:
            parts += [_key(_OUTPUTS, len(about)), about]
            tensors += [_key(_RAW_OUTPUT_CONTENTS, len(data)), data]
        else:
            # Repeated floats have the bytes of the array.
            inner = _key(_FP32_CONTENTS, len(data))
            contents = _key(_OUTPUT_CONTENTS, len(inner) + len(data)) + inner
            parts += [_key(_OUTPUTS, len(about) + len(contents) + len(data)), about, contents, data]
    return [response.SerializeToString(), *parts, *tensors]


# ---- the wire format of protobuf [protobuf.dev/programming-guides/encoding]


def _key(number: int, length: int) -> bytes:
    """Return what comes before a field of so many bytes."""
    encoded = bytearray([number << 3 | 2])
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


def _fields(view: memoryview) -> Iterator[tuple[int, bool, int, int, int]]:
    """Iterate over the fields of a message: number, whether it is bytes, start, start of its content, and end.

    Raises ValueError if the bytes are not a message, or have groups, which proto3 lacks.
    """
    at = 0
    while at < len(view):
        start = at
        key, at = _varint(view, at)
        kind = key & 7
        content = at
        if kind == 0:
            _, at = _varint(view, at)
        elif kind == 1:
            at += 8
        elif kind == 2:
            length, content = _varint(view, at)
            at = content + length
        elif kind == 5:
            at += 4
        else:
            raise ValueError("not a field")
        if at > len(view):
            raise ValueError("a field ends after the message")
        yield key >> 3, kind == 2, start, content, at


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at == len(view):
            break
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("not a number")
