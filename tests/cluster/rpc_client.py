# SPDX-License-Identifier: Apache-2.0
"""A gRPC client of the Open Inference Protocol, and raw HTTP/2 frames for clients that misbehave."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np

from mpscnn.serving.rpc_messages import MESSAGES

SERVICE = "inference.GRPCInferenceService"
NUMPY = {"FP32": "<f4", "FP16": "<f2", "UINT8": "u1", "UINT16": "<u2"}


class Client:
    def __init__(self, port: int) -> None:
        # Without the options, channels of one process share a connection.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)

    def method(self, name: str) -> Any:
        return self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda one: one if isinstance(one, bytes) else one.SerializeToString(),
            response_deserializer=MESSAGES[f"{name}Response"].FromString,
        )

    def ask(self, method: str, /, **fields: Any) -> Any:
        return self.method(method)(MESSAGES[f"{method}Request"](**fields), timeout=60)

    def infer(self, message: Any, timeout: float = 60, **more: Any) -> Any:
        return self.method("ModelInfer")(message, timeout=timeout, **more)

    def error(self, message: Any, name: str = "ModelInfer", timeout: float = 60) -> tuple[str, str]:
        """Return status and details of a call that fails."""
        try:
            self.method(name)(message, timeout=timeout)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        raise AssertionError("the call did not fail")


@contextlib.contextmanager
def connected(port: int) -> Iterator[Client]:
    client = Client(port)
    with contextlib.closing(client.channel):
        yield client


def tensor(x: np.ndarray, datatype: str = "FP32", name: str = "x", **more: Any) -> Any:
    return MESSAGES["ModelInferRequest.InferInputTensor"](name=name, datatype=datatype, shape=x.shape, **more)


def as_raw(x: np.ndarray, datatype: str = "FP32", **more: Any) -> Any:
    fields = {"model_name": "net", "inputs": [tensor(x, datatype)], "raw_input_contents": [x.tobytes()], **more}
    return MESSAGES["ModelInferRequest"](**fields)


def as_typed(x: np.ndarray, datatype: str = "FP32", **more: Any) -> Any:
    field = "fp32_contents" if datatype.startswith("FP") else "uint_contents"
    contents = MESSAGES["InferTensorContents"](**{field: x.ravel().tolist()})
    return MESSAGES["ModelInferRequest"](model_name="net", inputs=[tensor(x, datatype, contents=contents)], **more)


def arrays_of(answer: Any) -> dict[str, np.ndarray]:
    found = {}
    assert len(answer.raw_output_contents) in (0, len(answer.outputs))
    for i, output in enumerate(answer.outputs):
        if answer.raw_output_contents:
            assert not output.HasField("contents")
            array = np.frombuffer(answer.raw_output_contents[i], NUMPY[output.datatype])
        else:
            array = np.array(output.contents.fp32_contents, "f4")
        found[output.name] = array.reshape(list(output.shape))
    return found


# ---- raw HTTP/2 [RFC 9113]

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _WINDOW_UPDATE = 0, 1, 3, 4, 8
_END_STREAM, _END_HEADERS = 1, 4


def _frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def start_call(port: int, data: bytes, *, length: int | None = None, reads: bool = True) -> socket.socket:
    """Begin a ModelInfer with a message of `length` bytes of which `data` is sent; `reads`: accept the answer."""
    fields = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/ModelInfer", ":authority": "x",
              "te": "trailers", "content-type": "application/grpc"}  # fmt: skip
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    message = struct.pack(">BI", 0, len(data) if length is None else length) + data
    flags = _END_STREAM if length is None else 0
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, struct.pack(">HI", 4, 65535 if reads else 0), 0)
        + _frame(_HEADERS, _END_HEADERS, block)
        + b"".join(_frame(_DATA, 0, message[at : at + 16000]) for at in range(0, len(message), 16000))
        + _frame(_DATA, flags, b"")
    )
    return connection


def frames_of(received: bytes) -> list[tuple[int, bytes]]:
    """Return kind and payload of the frames."""
    frames = []
    while len(received) >= 9:
        length = int.from_bytes(received[:3], "big")
        frames.append((received[3], received[9 : 9 + length]))
        received = received[9 + length :]
    return frames


def is_reset(connection: socket.socket) -> bool:
    """Read until the server ends the stream without an answer, or closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
            if any(kind == _RST_STREAM for kind, _ in frames_of(received)):
                return True
    return True
