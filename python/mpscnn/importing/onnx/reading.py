# SPDX-License-Identifier: Apache-2.0
"""Reading and validation of ONNX files, their arrays and external data.

Files are not trusted: sizes are checked before any allocation, and external data must be in the model's folder.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError, MissingPackageError, UnsupportedOperatorError
from ..builder import UnmappedError
from ..mapped_files import content, read_file

try:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("onnx", "google"):
        raise
    raise MissingPackageError("ONNX models", "onnx", plural=True) from None

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

PathLike: TypeAlias = "str | os.PathLike[str]"

OLDEST_OPSET = 6  # earlier versions have shapes and types as attributes
FILE_LIMIT = 2**31 - 1  # bytes of a protobuf message
NODE_LIMIT = 1_000_000  # after inlining of functions
LINES = 6  # max lines reported of the checker's error

# By TensorProto.DataType. Types that NumPy lacks (floats of 8 bits and fewer, strings) are left out.
DTYPES: dict[int, Any] = {
    1: np.dtype("<f4"),
    2: np.dtype("u1"),
    3: np.dtype("i1"),
    4: np.dtype("<u2"),
    5: np.dtype("<i2"),
    6: np.dtype("<i4"),
    7: np.dtype("<i8"),
    9: np.dtype("?"),
    10: np.dtype("<f2"),
    11: np.dtype("<f8"),
    12: np.dtype("<u4"),
    13: np.dtype("<u8"),
    16: np.dtype("<u2"),  # bfloat16, the upper half of a float32
}
BFLOAT16 = 16
FIELDS = {
    "float_data": (1,),
    "int32_data": (2, 3, 4, 5, 6, 9, 10, 16),
    "int64_data": (7,),
    "double_data": (11,),
    "uint64_data": (12, 13),
}


@dataclass
class Source:
    """A parsed model, its name in errors, and the folder of its external data."""

    proto: ModelProto
    name: str
    folder: str | None
    opset: int
    mapped: bool = True
    outputs: tuple[str, ...] = ()  # names of the values that are read
    _files: dict[str, memoryview] = field_of(default_factory=dict)

    def bytes_of(self, path: str) -> memoryview:
        """Return the bytes of a file of external data, which is opened once."""
        if path not in self._files:
            self._files[path] = content(path, mapped=self.mapped)
        return self._files[path]

    @property
    def graph(self) -> GraphProto:
        """The main graph."""
        return self.proto.graph


def dtype_name(number: int) -> str:
    """Return the name of a TensorProto.DataType: "FLOAT"."""
    try:
        return str(onnx.TensorProto.DataType.Name(number))
    except ValueError:
        return str(number)


def open_model(model: PathLike | bytes | ModelProto, *, mapped: bool = True) -> Source:
    """Read and check a model. Raise InvalidModelError, or UnsupportedOperatorError for its opset."""
    folder: str | None = None
    checked: Any
    if isinstance(model, onnx.ModelProto):
        proto, name, checked = model, model.graph.name or "the model", model
    elif isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        proto, name, checked = _parse(data, "the model"), "the model", data
    elif isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if not isinstance(path, str):
            raise TypeError(f"model ({type(path).__name__}) is not a path as str.")
        proto = _parse(read_file(path, FILE_LIMIT), path)
        name, checked, folder = path, path, os.path.dirname(os.path.abspath(path))
    else:
        raise TypeError(f"model ({type(model).__name__}) is not a path, bytes or an onnx.ModelProto.")
    opset = _opset(proto, name)
    for tensor in _tensors(proto.graph, name):
        check_tensor(tensor, name, folder)
    if folder is None and any(_is_external(tensor) for tensor in _tensors(proto.graph, name)):
        raise InvalidModelError(f"{name}: its weights lie in other files; a model that has such is given by its path.")
    try:
        onnx.checker.check_model(checked)
    except (onnx.checker.ValidationError, ValueError, RuntimeError, TypeError, MemoryError) as error:
        raise InvalidModelError(f"{name}: {_first_lines(error)}") from None
    if proto.functions:
        proto = _inlined(proto, name)
    return Source(proto, name, folder, opset, mapped, tuple(info.name for info in proto.graph.output))


def checked_outputs(source: Source, names: Sequence[str]) -> tuple[str, ...]:
    """Return names of values of the model that are read instead of its outputs."""
    _check_names(source, names, "outputs")
    return tuple(names)


def _check_names(source: Source, names: Sequence[str], what: str) -> None:
    known = {name for node in source.graph.node for name in node.output if name}
    known.update(info.name for info in source.graph.input)
    for name in names:
        if name not in known:
            similar = difflib.get_close_matches(name, known, 3) or [info.name for info in source.graph.output]
            raise ValueError(
                f'{what}: {source.name} has no value "{name}"; similar names, or its outputs, are'
                f" {', '.join(similar)}. onnx.load shows all: the outputs of its nodes."
            )
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{what} ({list(names)}) is not one name or more, each once.")


def with_inputs(source: Source, names: Sequence[str], shapes: Mapping[str, tuple[int, ...]], *, is_own: bool) -> Source:
    """Return the model behind values that become its inputs, beside its own inputs; nodes that make them are removed.

    `is_own`: the model may be changed. Values without a shape in the model get that of `shapes`, for any batch.
    """
    _check_names(source, names, "inputs")
    proto = source.proto
    if not is_own:
        proto = onnx.ModelProto()
        proto.CopyFrom(source.proto)
    graph = proto.graph
    stated = {info.name: info for info in graph.value_info}
    own = {info.name for info in graph.input}
    for name in names:
        if name in own:
            continue
        info = stated.get(name) or onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        if name in shapes:
            extents: list[Any] = ["N", *shapes[name][1:]]
            info = onnx.helper.make_tensor_value_info(name, info.type.tensor_type.elem_type, extents)
        graph.input.append(info)
    removed = set(names) - own
    for place in reversed(range(len(graph.node))):
        node = graph.node[place]
        if not removed & set(node.output):
            continue
        kept = ["" if name in removed else name for name in node.output]
        if any(kept):
            node.output[:] = kept
        else:
            del graph.node[place]
    return replace(source, proto=proto)


def _first_lines(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return re.sub(r"\s+", " ", " ".join(lines[:LINES]))[:600] or type(error).__name__


def _parse(data: bytes, name: str) -> ModelProto:
    if len(data) > FILE_LIMIT:
        raise InvalidModelError(f"{name}: {len(data)} bytes are more than a protobuf message has ({FILE_LIMIT}).")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise InvalidModelError(f"{name}: no ONNX model, or a damaged one: {_first_lines(error)}") from None
    if not proto.ir_version or not proto.HasField("graph"):
        raise InvalidModelError(f"{name}: no ONNX model: it has no version or no graph.")
    return proto


def _opset(proto: ModelProto, name: str) -> int:
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    newest = onnx.defs.onnx_opset_version()
    if not versions:
        return int(newest)  # the model has no ONNX operators
    if len(versions) != 1:
        raise InvalidModelError(
            f"{name}: it imports {len(versions)} versions of ONNX's operators, not one: {versions}."
        )
    if not OLDEST_OPSET <= versions[0] <= newest:
        reason = f"version {versions[0]} is not one of {OLDEST_OPSET} to {newest}"
        raise UnsupportedOperatorError(name, [("opset_import", "ai.onnx", reason)])
    return int(versions[0])


# ---- functions


def _nodes(nodes: Any) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _nodes(graph.node)


def _inlined(proto: ModelProto, name: str) -> ModelProto:
    """Inline the functions of a model, unless the result has too many nodes."""
    bodies = {(f.domain, f.name, getattr(f, "overload", "")): f for f in proto.functions}
    sizes: dict[Any, int] = {}

    def size(nodes: Any, within: tuple[Any, ...]) -> int:
        total = 0
        for node in _nodes(nodes):
            key = (node.domain, node.op_type, getattr(node, "overload", ""))
            if key not in bodies:
                total += 1
                continue
            if key in within:
                raise InvalidModelError(f"{name}: the function {node.op_type} calls itself.")
            if key not in sizes:
                sizes[key] = size(bodies[key].node, (*within, key))
            total += sizes[key]
        return total

    try:
        total = size(proto.graph.node, ())
    except RecursionError:
        raise InvalidModelError(f"{name}: its functions call each other too deeply.") from None
    if total > NODE_LIMIT:
        raise InvalidModelError(f"{name}: with its functions it has {total} nodes, more than the limit ({NODE_LIMIT}).")
    import onnx.inliner

    try:
        return onnx.inliner.inline_local_functions(proto)
    except (ValueError, RuntimeError, DecodeError) as error:
        raise InvalidModelError(f"{name}: {_first_lines(error)}") from None


# ---- tensors


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse = [*attribute.sparse_tensors, *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else [])]
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def _tensors(graph: GraphProto, name: str) -> Iterator[TensorProto]:
    """Yield all tensors of a graph, including those in attributes and in subgraphs of control flow."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from _attribute_tensors(attribute)
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _tensors(inner, name)


def _is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _count(tensor: TensorProto, name: str) -> int:
    dims = [int(d) for d in tensor.dims]
    if any(d < 0 for d in dims):
        raise InvalidModelError(f'{name}: the tensor "{tensor.name}" has a negative extent: {dims}.')
    count = math.prod(dims)
    if count > 2**40:
        raise InvalidModelError(f'{name}: the tensor "{tensor.name}" of shape {dims} has {count} values.')
    return count


def check_tensor(tensor: TensorProto, name: str, folder: str | None) -> None:
    """Raise InvalidModelError unless the number of bytes matches the shape. Nothing is allocated."""
    count = _count(tensor, name)
    dtype = DTYPES.get(tensor.data_type)
    if _is_external(tensor):
        if dtype is not None and folder is not None:
            _external_place(tensor, name, folder, count * dtype.itemsize)
        return
    if dtype is None:
        return  # raises when the tensor is read
    if tensor.HasField("raw_data"):
        # len() copies the data, but protobuf has no other way to get the size.
        size, expected, what = len(tensor.raw_data), count * dtype.itemsize, "bytes"
    else:
        field = next(f for f, numbers in FIELDS.items() if tensor.data_type in numbers)
        size, expected, what = len(getattr(tensor, field)), count, f"values in {field}"
    if size != expected:
        raise InvalidModelError(
            f'{name}: the tensor "{tensor.name}" of type {dtype_name(tensor.data_type)} and shape {list(tensor.dims)}'
            f" has {size} {what}, not {expected}."
        )


def array_of(tensor: TensorProto, source: Source) -> NDArray[Any]:
    """Return the values; external data is mapped into memory, not read. UnmappedError for types that NumPy lacks."""
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None:
        raise UnmappedError(f"a constant of type {dtype_name(tensor.data_type)}")
    data: bytes | memoryview = b""
    if tensor.HasField("raw_data") and not _is_external(tensor):
        data = tensor.raw_data  # a copy, so read it only once
    if len(data) != _count(tensor, source.name) * dtype.itemsize:
        check_tensor(tensor, source.name, source.folder)
    shape = tuple(int(d) for d in tensor.dims)
    if _is_external(tensor):
        if source.folder is None:
            raise InvalidModelError(f'{source.name}: the tensor "{tensor.name}" lies in another file.')
        size = math.prod(shape) * dtype.itemsize
        path, offset = _external_place(tensor, source.name, source.folder, size)
        data = source.bytes_of(path)[offset : offset + size]
        if len(data) != size:
            raise InvalidModelError(f'{source.name}: the file of the tensor "{tensor.name}" has become shorter.')
        values: NDArray[Any] = np.frombuffer(data, dtype) if size else np.empty(0, dtype)
        values = (values if values.flags.aligned else values.copy()).reshape(shape)
    elif tensor.HasField("raw_data"):
        values = np.frombuffer(data, dtype).reshape(shape)
    else:
        field = next(f for f, numbers in FIELDS.items() if tensor.data_type in numbers)
        given = np.array(getattr(tensor, field))
        if tensor.data_type in (10, BFLOAT16):  # 16 bits each
            values = given.astype(np.uint16).view(dtype).reshape(shape)
        else:
            values = given.astype(dtype).reshape(shape)
    if tensor.data_type == BFLOAT16:
        return np.asarray((values.astype(np.uint32) << 16).view(np.float32))
    return values


# ---- external data


def _number(tensor: TensorProto, name: str, key: str, text: str | None, default: int | None) -> int | None:
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InvalidModelError(f'{name}: the tensor "{tensor.name}" has {key} "{text[:40]}", no number of bytes.')
    return int(text)


def _external_place(tensor: TensorProto, name: str, folder: str, size: int) -> tuple[str, int]:
    """Return path and offset of a tensor of `size` bytes, after checking that they are inside of the model's folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    what = f'{name}: the tensor "{tensor.name}"'
    if not all(isinstance(text, str) for entry in entries.items() for text in entry):  # protobuf gives bytes
        raise InvalidModelError(f"{what} lies at a place that is not UTF-8: {entries!r:.200}.")
    location = entries.get("location", "")
    parts = re.split(r"[/\\]", location)
    absolute = os.path.isabs(location) or location[:1] in "/\\~" or re.match(r"[A-Za-z]:", location)
    if not location or absolute or ".." in parts or "\0" in location:
        raise InvalidModelError(f'{what} lies at "{location[:200]}", which is no place inside of the model\'s folder.')
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if os.path.commonpath([root, path]) != root or path == root:
        raise InvalidModelError(f'{what} lies at "{location[:200]}", a link that leaves the model\'s folder.')
    try:
        status = os.stat(path)
    except OSError as error:
        raise InvalidModelError(f'{what} lies at "{location[:200]}": {error.strerror}.') from None
    if not stat.S_ISREG(status.st_mode):
        raise InvalidModelError(f'{what} lies at "{location[:200]}", which is no regular file.')
    offset = _number(tensor, name, "offset", entries.get("offset"), 0) or 0
    length = _number(tensor, name, "length", entries.get("length"), None)
    if length is None:
        length = status.st_size - offset
    if length != size:
        raise InvalidModelError(f"{what} of shape {list(tensor.dims)} has {length} bytes, not {size}.")
    if offset + length > status.st_size:
        raise InvalidModelError(
            f'{what} ends at byte {offset + length} of "{location[:200]}", which has {status.st_size}.'
        )
    return path, offset
