# SPDX-License-Identifier: Apache-2.0
"""Requests and responses of the Open Inference Protocol over HTTP, with its extension for binary tensors.

`read_inputs` and `read_outputs` also check those of gRPC.

[github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md; the extension is described in
NVIDIA's Triton Inference Server, docs/protocol/extension_binary_data.md]
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .models import DTYPES, NAMES, Tensor

_MAX_NAME = 200  # characters of a name that an error repeats


class RequestError(Exception):
    """A request that the client must change; `status` is the HTTP status of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Request:
    """A parsed request: arrays by input, and for each requested output whether it is binary."""

    id: str | None
    arrays: dict[str, NDArray[Any]]
    outputs: dict[str, bool]


def read_request(
    body: bytes | memoryview,
    header_length: str | None,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    *,
    max_json: int,
    max_pixels: int,
) -> Request:
    """Parse a request. Binary tensors are views of the body.

    Raises
    ------
    RequestError
        It is not a request of the protocol, or not one for these tensors.
    """
    view = memoryview(body)
    length = _header_length(header_length, len(view))
    if length > max_json:
        raise RequestError(
            f"the JSON part has {length} bytes, more than the maximum ({max_json}): send binary tensors.", 413
        )
    document = _json(bytes(view[:length]))
    binary = view[length:]
    offset = 0

    def data(entry: dict[str, Any], where: str, datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        nonlocal offset
        size = _parameter(entry, "binary_data_size", where)
        if size is None:
            return _numbers(entry.get("data"), where, DTYPES[datatype], shape)
        if "data" in entry:
            raise RequestError(f"{where} has both data and binary_data_size.")
        expected = math.prod(shape) * DTYPES[datatype].itemsize
        if isinstance(size, bool) or not isinstance(size, int) or size != expected:
            raise RequestError(
                f"{where}: binary_data_size ({_shown(size)}) is not {expected}, of its shape and datatype."
            )
        if offset + size > len(binary):
            raise RequestError(f"{where}: the body ends before its data, {len(binary) - offset} of {size} bytes.")
        array = np.frombuffer(binary[offset : offset + size], DTYPES[datatype]).reshape(shape)
        offset += size
        return array

    arrays = read_inputs(document, inputs, data, max_pixels)
    if offset != len(binary):
        raise RequestError(f"{len(binary) - offset} bytes follow the last tensor.")
    given = document.get("id")
    if given is not None and not isinstance(given, str):
        raise RequestError(f"id ({type(given).__name__}) is not a string.")
    return Request(given, arrays, read_outputs(document, outputs))


def read_inputs(
    document: dict[str, Any],
    inputs: Mapping[str, Tensor],
    data: Callable[[dict[str, Any], str, str, tuple[int, ...]], NDArray[Any]],
    max_pixels: int,
) -> dict[str, NDArray[Any]]:
    """Return an array for each input, in their order.

    ``data(entry, where, datatype, shape)`` returns the array of an entry, or raises RequestError with a sentence that
    starts with ``where``.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for i, entry in enumerate(_list(document, "inputs")):
        where = f"inputs[{i}]"
        name = _text(_object(entry, where), "name", where)
        if name not in inputs:
            raise RequestError(f'{where}: there is no input "{name:.{_MAX_NAME}}"; there are {", ".join(inputs)}.')
        where = f'input "{name}"'
        if name in arrays:
            raise RequestError(f"{where} is given twice.")
        datatype = _text(entry, "datatype", where)
        if datatype not in DTYPES:
            raise RequestError(f'{where}: datatype ("{datatype:.{_MAX_NAME}}") is not one of {", ".join(DTYPES)}.')
        arrays[name] = data(entry, where, datatype, _shape(entry, where, inputs[name], max_pixels))
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise RequestError(f"no data is given for {', '.join(missing)}.")
    rows = {len(array) for array in arrays.values()}
    if len(rows) != 1:
        raise RequestError(f"the inputs have different numbers of rows ({', '.join(map(str, sorted(rows)))}).")
    return {name: arrays[name] for name in inputs}


def write_response(
    model: str, version: str, request: Request, results: Mapping[str, NDArray[Any]]
) -> tuple[list[Any], dict[str, str]]:
    """Return the parts of the body and the headers.

    Raises
    ------
    RequestError
        An output is to be JSON, which has no NaN and no infinity, but has such values.
    """
    entries, parts = [], []
    for name, binary in request.outputs.items():
        array = np.ascontiguousarray(results[name])
        entry: dict[str, Any] = {"name": name, "datatype": NAMES[array.dtype], "shape": list(array.shape)}
        if binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            parts.append(array.reshape(-1).view(np.uint8).data)
        else:
            if not np.isfinite(array).all():
                raise RequestError(
                    f'output "{name}" has values that are NaN or infinite, which JSON lacks: request binary_data.', 406
                )
            entry["data"] = array.reshape(-1).tolist()
        entries.append(entry)
    document: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    if request.id is not None:
        document["id"] = request.id
    text = json.dumps(document, separators=(",", ":")).encode()
    if not parts:
        return [text], {"content-type": "application/json"}
    return [text, *parts], {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(text)),
    }


def _header_length(text: str | None, body: int) -> int:
    if text is None:
        return body
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > body:
        raise RequestError(
            f'Inference-Header-Content-Length ("{text:.40}") is not a length within the body ({body} bytes).'
        )
    return int(text)


def _json(text: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise RequestError(f"the JSON part has {constant}, which is not JSON.")

    try:
        document = json.loads(text.decode("utf-8"), parse_constant=refuse)
    except RecursionError:
        raise RequestError("the JSON part is nested too deeply.") from None
    except ValueError as error:  # and UnicodeDecodeError, and integers of too many digits
        raise RequestError(f"the JSON part is not JSON: {error!s:.200}.") from None
    return _object(document, "the request")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{where} ({_kind(value)}) is not an object.")
    return value


def _list(document: dict[str, Any], key: str) -> list[Any]:
    value = document.get(key)
    if not isinstance(value, list):
        raise RequestError(f"{key} ({_kind(value)}) is not a list of tensors.")
    if not value:
        raise RequestError(f"{key} is empty.")
    return value


def _text(entry: dict[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise RequestError(f"{where}: {key} ({_kind(value)}) is not a string.")
    return value


def _parameter(entry: dict[str, Any], key: str, where: str) -> Any:
    parameters = entry.get("parameters")
    return None if parameters is None else _object(parameters, f"{where}: parameters").get(key)


def _flag(value: Any, what: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{what} ({_kind(value)}) is not true or false.")
    return value


def _shape(entry: dict[str, Any], where: str, tensor: Tensor, max_pixels: int) -> tuple[int, ...]:
    value = entry.get("shape")
    if not isinstance(value, list) or len(value) != len(tensor.shape):
        raise RequestError(
            f"{where}: shape ({_shown(value)}) is not a list of {len(tensor.shape)} extents, {_of(tensor)}."
        )
    for extent, wanted in zip(value, tensor.shape, strict=True):
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1 or wanted not in (-1, extent):
            raise RequestError(f"{where}: shape ({_shown(value)}) is not {_of(tensor)}, where -1 is any extent.")
    # Channels are the model's, so that this limits the memory of the images between its layers.
    pixels = math.prod(value) // math.prod(extent for extent in tensor.shape if extent > 0)
    if pixels > max_pixels:
        raise RequestError(
            f"{where}: shape ({_shown(value)}) has {_shown(pixels)} pixels, more than the maximum ({max_pixels}).", 413
        )
    return tuple(value)


def _numbers(data: Any, where: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of numbers in JSON, flat or nested."""
    if not isinstance(data, list):
        raise RequestError(f"{where}: data ({_kind(data)}) is not a list.")
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError, RecursionError):
        raise RequestError(f"{where}: data is not a list of numbers, or has rows of different lengths.") from None
    if array.dtype.kind not in "iuf":
        raise RequestError(f"{where}: data is not a list of numbers.")
    if array.size != math.prod(shape) or array.shape not in ((array.size,), shape):
        raise RequestError(f"{where}: data has the shape {array.shape}, not {shape}.")
    if dtype.kind == "u":
        check_integers(array, where, dtype)
    with np.errstate(over="ignore"):
        converted = array.astype(dtype).reshape(shape)
    if dtype.kind == "f" and not np.isfinite(converted).all():
        raise RequestError(f"{where}: data has values outside of the range of its datatype.")
    return converted


def check_integers(array: NDArray[Any], where: str, dtype: np.dtype[Any]) -> None:
    """Raise RequestError unless all values are integers that the unsigned type can represent."""
    most = np.iinfo(dtype).max
    if array.dtype.kind == "f" or (array.size and (array.min() < 0 or array.max() > most)):
        raise RequestError(f"{where}: data has values that are not integers from 0 to {most}.")


def read_outputs(document: dict[str, Any], outputs: Mapping[str, Tensor]) -> dict[str, bool]:
    """Return whether each requested output is binary, in order."""
    by_default = bool(_flag(_parameter(document, "binary_data_output", "the request"), "binary_data_output"))
    if document.get("outputs") is None:
        return dict.fromkeys(outputs, by_default)
    requested: dict[str, bool] = {}
    for i, entry in enumerate(_list(document, "outputs")):
        name = _text(_object(entry, f"outputs[{i}]"), "name", f"outputs[{i}]")
        if name not in outputs:
            raise RequestError(f'there is no output "{name:.{_MAX_NAME}}"; there are {", ".join(outputs)}.')
        flag = _flag(_parameter(entry, "binary_data", f'output "{name}"'), "binary_data")
        requested[name] = by_default if flag is None else flag
    return requested


def _of(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def _kind(value: Any) -> str:
    names = {"NoneType": "missing", "dict": "object", "str": "string"}
    return names.get(type(value).__name__, type(value).__name__)


def _shown(value: Any) -> str:
    return f"{reprlib.repr(value):.80}"
