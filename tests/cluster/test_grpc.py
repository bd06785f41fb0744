# SPDX-License-Identifier: Apache-2.0
"""mpscnn serve --grpc-port: a real gRPC client over loopback, with right, hostile and too many requests."""

from __future__ import annotations

import contextlib
import ctypes
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn

from . import test_server as http
from .conftest import classifier, of_two_inputs
from .servers import SLOW, Server, image, random_image, serving, soak

for package in ("uvicorn", "httptools", "starlette", "prometheus_client", "typer", "rich", "google.protobuf"):
    pytest.importorskip(package)
grpc = pytest.importorskip("grpc")

from mpscnn.serving.rpc_messages import MESSAGES  # noqa: E402

from .rpc_client import (  # noqa: E402
    NUMPY,
    SERVICE,
    Client,
    arrays_of,
    as_raw,
    as_typed,
    connected,
    is_reset,
    start_call,
    tensor,
)

BOTH = ("--grpc-port", 0)
# Messages may take 1 s to be received, and pings to be answered.
HASTY = """
import mpscnn.serving, functools
mpscnn.serving.Limits = functools.partial(mpscnn.serving.Limits, seconds=1.0)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("served") / "net.mpscnn"
    classifier().save(path)
    with serving(path, *BOTH, "--max-body", 2, "--max-pixels", 10000) as running:
        yield running
        assert running.process.poll() is None
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0
        assert running.process.stderr is not None
        assert running.process.stderr.read() == ""


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with connected(server.grpc_port) as one:
        yield one


@pytest.fixture(scope="module")
def net() -> mpscnn.Network:
    return classifier()


# ---- right requests


def test_health_and_metadata(client: Client) -> None:
    assert client.ask("ServerLive").live
    assert client.ask("ServerReady").ready
    assert client.ask("ModelReady", name="net").ready
    assert client.ask("ModelReady", name="net", version="1").ready
    about = client.ask("ServerMetadata")
    assert (about.name, about.version) == ("mpscnn", mpscnn.__version__)
    metadata = client.ask("ModelMetadata", name="net")
    assert (metadata.name, metadata.platform, list(metadata.versions)) == ("net", "mpscnn", ["1"])
    tensors = [(one.name, one.datatype, list(one.shape)) for one in [*metadata.inputs, *metadata.outputs]]
    assert tensors == [("x", "FP32", [-1, 3, -1, -1]), ("scores", "FP32", [-1, -1])]


@pytest.mark.parametrize("datatype", ["FP32", "FP16", "UINT8", "UINT16"])
def test_raw_and_typed_contents(server: Server, client: Client, net: mpscnn.Network, datatype: str) -> None:
    """Results are those of HTTP, to the bit, and those of the network."""
    x = image(3) if datatype.startswith("FP") else image(3) * np.iinfo(NUMPY[datatype]).max
    x = x.astype(NUMPY[datatype])
    over_http = http.arrays_of(server.infer(http.as_binary(x, datatype), x.tobytes()))["scores"]
    answer = client.infer(as_raw(x, datatype, id="a1", model_version="1"))
    assert (answer.model_name, answer.model_version, answer.id) == ("net", "1", "a1")
    assert len(answer.raw_output_contents) == 1
    np.testing.assert_array_equal(arrays_of(answer)["scores"], over_http)
    np.testing.assert_allclose(over_http, net(x), rtol=1e-5)
    if datatype == "FP16":
        status, details = client.error(as_typed(x, datatype))
        assert status == "INVALID_ARGUMENT"
        assert "FP16 has no typed contents in the protocol: send raw_input_contents" in details
    else:
        answer = client.infer(as_typed(x, datatype))
        assert len(answer.raw_output_contents) == 0
        np.testing.assert_array_equal(arrays_of(answer)["scores"], over_http)


def test_bytes_on_the_wire(client: Client) -> None:
    """A request and its answer as the protocol defines them, not as our description does."""

    def field(number: int, content: bytes) -> bytes:
        assert len(content) < 128
        return bytes([number << 3 | 2, len(content)]) + content

    x = image(1, 2, 2)
    parameter = field(1, b"p") + field(2, b"\x08\x01")
    about = field(1, b"x") + field(2, b"FP32") + field(3, bytes([1, 3, 2, 2])) + field(4, parameter)
    request = field(1, b"net") + field(2, b"1") + field(3, b"id") + field(4, parameter)
    raw = request + field(5, about) + field(6, field(1, b"scores")) + field(7, x.tobytes())
    typed = request + field(5, about + field(5, field(6, x.tobytes()))) + field(6, field(1, b"scores"))
    expected = arrays_of(client.infer(as_raw(x)))["scores"].tobytes()
    output = field(1, b"scores") + field(2, b"FP32") + field(3, bytes([1, 5]))
    method = client.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    head = field(1, b"net") + field(2, b"1") + field(3, b"id")
    assert method(raw, timeout=60) == head + field(5, output) + field(6, expected)
    assert method(typed, timeout=60) == head + field(5, output + field(5, field(6, expected)))
    # Integers, and a request without a version, an id and outputs.
    pixels = bytes(range(12))
    about_8 = field(1, b"x") + field(2, b"UINT8") + field(3, bytes([1, 3, 2, 2]))
    integers = field(1, b"net") + field(5, about_8 + field(5, field(4, pixels)))
    expected_8 = method(field(1, b"net") + field(5, about_8) + field(7, pixels), timeout=60)[-20:]
    assert method(integers, timeout=60).endswith(field(5, output + field(5, field(6, expected_8))))
    # Fields in any order, raw contents between others, unknown fields, and one float for each field.
    one_by_one = b"".join(b"\x35" + one.tobytes() for one in x.ravel())
    unknown = bytes([15 << 3]) + b"\x85\x01" + field(14, b"?") + bytes([13 << 3 | 5]) + b"\0" * 4
    assert method(field(7, x.tobytes()) + unknown + field(5, about) + request, timeout=60).endswith(expected)
    shape = b"".join(bytes([3 << 3, one]) for one in (1, 3, 2, 2))
    about = field(1, b"x") + field(2, b"FP32") + shape
    contents = bytes([5 << 3 | 2, len(one_by_one)]) + one_by_one
    assert method(request + field(5, about + contents), timeout=60).endswith(expected)


def test_large_tensors(tmp_path: Path) -> None:
    """Lengths of several bytes; the answer is larger than the limit of a request."""
    of_two_inputs().save(tmp_path / "net.mpscnn")
    a, b = np.random.default_rng(0).random((2, 1, 2, 300, 310), np.float32)
    with serving(tmp_path / "net.mpscnn", *BOTH, "--max-body", 1.5) as server, connected(server.grpc_port) as client:
        request = MESSAGES["ModelInferRequest"](
            model_name="net", inputs=[tensor(b, name="b"), tensor(a, name="a")],
            raw_input_contents=[b.tobytes(), a.tobytes()],
        )  # fmt: skip
        found = arrays_of(client.infer(request))
        assert list(found) == ["sum", "difference"]
        np.testing.assert_array_equal(found["sum"], a + b)
        np.testing.assert_array_equal(found["difference"], a - b)
        for requested in (["difference"], ["difference", "sum"]):
            request.ClearField("outputs")
            for name in requested:
                request.outputs.add(name=name)
            assert list(arrays_of(client.infer(request))) == requested


def test_two_inputs(tmp_path: Path) -> None:
    of_two_inputs().save(tmp_path / "net.mpscnn")
    a, b = np.random.default_rng(0).random((2, 2, 2, 3, 4), np.float32)
    with serving(tmp_path / "net.mpscnn", *BOTH) as server, connected(server.grpc_port) as client:
        request = MESSAGES["ModelInferRequest"](model_name="net", inputs=[tensor(a, name="a"), tensor(b, name="b")])
        bad: list[tuple[list[np.ndarray], str]] = [
            ([a], "raw_input_contents has 1 tensors, not 2, those of inputs."),
            ([a, b, b], "raw_input_contents has 3 tensors, not 2"),
            ([a, b[:1]], 'input "b": raw_input_contents has 96 bytes, not 192, of its shape and datatype.'),
            ([], 'input "a" has neither contents nor raw_input_contents.'),
        ]
        for contents, message in bad:
            request.ClearField("raw_input_contents")
            request.raw_input_contents.extend(one.tobytes() for one in contents)
            status, details = client.error(request)
            assert (status, message in details) == ("INVALID_ARGUMENT", True), details
        b[0] = np.inf
        for i, one in enumerate((a, b)):
            request.ClearField("raw_input_contents")
            request.inputs[i].contents.fp32_contents.extend(one.ravel().tolist())
        np.testing.assert_array_equal(arrays_of(client.infer(request))["difference"], a - b)
        del request.inputs[1]
        assert client.error(request) == ("INVALID_ARGUMENT", "no data is given for b.")


@pytest.mark.parametrize("is_raw", [True, False])
def test_float16_results_are_raw(tmp_path: Path, net: mpscnn.Network, is_raw: bool) -> None:
    net.save(tmp_path / "net.mpscnn")
    options = (*BOTH, "--dtype", "float16")
    with serving(tmp_path / "net.mpscnn", *options) as server, connected(server.grpc_port) as client:
        answer = client.infer(as_raw(image()) if is_raw else as_typed(image()))
        assert answer.outputs[0].datatype == "FP16"
        assert len(answer.raw_output_contents[0]) == 10
        np.testing.assert_allclose(arrays_of(answer)["scores"], net(image()), rtol=1e-2)


def test_batches_of_both_protocols(server: Server, client: Client, net: mpscnn.Network) -> None:
    batches, rows = server.metric("mpscnn_batch_rows_count"), server.metric("mpscnn_rows_total")
    inputs = [image(1 + i % 3, 5 + i % 2, 6, seed=i) for i in range(48)]

    def ask(i: int) -> np.ndarray:
        x = inputs[i]
        if i % 3 == 0:
            return http.arrays_of(server.infer(http.as_binary(x), x.tobytes()))["scores"]
        return arrays_of(client.infer(as_raw(x) if i % 3 == 1 else as_typed(x)))["scores"]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(48)))
    for x, found in zip(inputs, answers, strict=True):
        np.testing.assert_allclose(found, net(x), rtol=1e-4, atol=1e-6)
    assert server.metric("mpscnn_rows_total") - rows == sum(map(len, inputs))
    assert server.metric("mpscnn_batch_rows_count") - batches < 48


def test_metrics(server: Server, client: Client) -> None:
    names = {
        of: re.escape(f'mpscnn_requests_total{{protocol="grpc",status="{of}"}}') for of in ("OK", "INVALID_ARGUMENT")
    }
    client.error(as_raw(image(), "FP64"))
    before = {of: server.metric(name) for of, name in names.items()}
    times = server.metric("mpscnn_request_seconds_count")
    client.infer(as_raw(image()))
    client.error(as_raw(image(), "FP64"))
    client.error(as_raw(image(), "FP64"))
    assert {of: server.metric(name) - before[of] for of, name in names.items()} == {"OK": 1, "INVALID_ARGUMENT": 2}
    assert server.metric("mpscnn_request_seconds_count") - times == 1


# ---- hostile requests

X = image()


def changed(x: np.ndarray = X, *, typed: bool = False, name: str = "x", datatype: str = "FP32", **more: Any) -> Any:
    request = (as_typed if typed else as_raw)(x, **more)
    request.inputs[0].name, request.inputs[0].datatype = name, datatype
    return request


def shaped(*shape: int, typed: bool = False) -> Any:
    request = changed(typed=typed)
    request.inputs[0].shape[:] = shape
    return request


def with_contents(datatype: str, **contents: Any) -> Any:
    about = tensor(X, datatype, contents=MESSAGES["InferTensorContents"](**contents))
    return MESSAGES["ModelInferRequest"](model_name="net", inputs=[about])


BAD: list[tuple[Any, str]] = [
    (b"\xff\xff\xff", "the message is not a ModelInferRequest."),
    (b"\x3a\x7f", "the message is not a ModelInferRequest."),  # ends in raw_input_contents
    (b"\x0b\x0c", "the message is not a ModelInferRequest."),  # groups
    (b"\x80" * 20, "the message is not a ModelInferRequest."),
    (b"\x0a\x03net\x2a\x02\xff\xff", "the message is not a ModelInferRequest."),
    (b"\x0a\x03net\x1a\x01\xff", "the message is not a ModelInferRequest."),  # not UTF-8
    (b"\x0a\x03net" + b"\x2a\x00" * 10000, "more than 10000 fields, the maximum"),
    (b"\x0a\x03net" + b"\x3a\x00" * 10000, "more than 10000 fields, the maximum"),
    (b"\x0a\x03net" + b"\x3a\x00" * 9000, "raw_input_contents has 9000 tensors, not 0"),
    (MESSAGES["ModelInferRequest"](model_name="net"), "inputs is empty."),
    (changed(name="y"), 'inputs[0]: there is no input "y"; there are x.'),
    (changed(name=""), 'there is no input ""'),
    (changed(name="y" * 100000), "there is no input"),
    (as_raw(X, inputs=[tensor(X)] * 2, raw_input_contents=[X.tobytes()] * 2), 'input "x" is given twice.'),
    (changed(datatype="FP64"), 'datatype ("FP64") is not one of FP32, FP16, UINT8, UINT16.'),
    (changed(datatype="BYTES"), "is not one of"),
    (changed(datatype=""), 'datatype ("") is not one of'),
    (shaped(), "shape ([]) is not a list of 4 extents, [-1, 3, -1, -1]"),
    (shaped(1, 3, 30), "shape ([1, 3, 30]) is not a list of 4 extents"),
    (shaped(*range(100000)), "is not a list of 4 extents"),
    (shaped(1, 4, 5, 6), "shape ([1, 4, 5, 6]) is not [-1, 3, -1, -1], where -1 is any extent."),
    (shaped(1, 3, -5, -6), "where -1 is any extent"),
    (shaped(0, 3, 5, 6), "where -1 is any extent"),
    (shaped(1, 3, 5, 7), 'input "x": raw_input_contents has 360 bytes, not 420, of its shape and datatype.'),
    (shaped(1, 3, 5, 7, typed=True), 'input "x": fp32_contents has 90 elements, not 105, of its shape.'),
    (shaped(1, 3, 101, 100), "10100 pixels, more than the maximum (10000)"),
    (shaped(2**62, 3, 2**62, 1), "pixels, more than the maximum (10000)"),
    (changed(typed=True, raw_input_contents=[X.tobytes()]), 'input "x" has both contents and raw_input_contents.'),
    (as_raw(X, raw_input_contents=[]), 'input "x" has neither contents nor raw_input_contents.'),
    (changed(typed=True, datatype="UINT8"), "contents has fp32_contents, but UINT8 is in uint_contents."),
    (with_contents("FP32", fp64_contents=[0.0] * 90), "contents has fp64_contents, but FP32 is in fp32_contents."),
    (with_contents("FP32", fp32_contents=[0.0] * 90, int_contents=[1]), "contents has int_contents, but FP32"),
    (with_contents("FP32"), "fp32_contents has 0 elements, not 90"),
    (with_contents("UINT8", uint_contents=[256] * 90), "not integers from 0 to 255."),
    (with_contents("UINT16", uint_contents=[2**32 - 1] * 90), "not integers from 0 to 65535."),
    (as_raw(X, outputs=[{"name": "z"}]), 'there is no output "z"; there are scores.'),
]


@pytest.mark.parametrize(("message", "details"), BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_bad_requests(server: Server, client: Client, message: Any, details: str) -> None:
    status, found = client.error(message)
    assert (status, details in found) == ("INVALID_ARGUMENT", True), (status, found)
    assert len(found) < 1000
    assert client.infer(as_raw(X)).outputs[0].name == "scores"


def test_names_and_versions(client: Client) -> None:
    status, details = client.error(as_raw(X, model_name="other"))
    assert (status, details) == ("NOT_FOUND", 'there is no model "other"; there is "net".')
    assert client.error(as_raw(X, model_version="2")) == (
        "NOT_FOUND", 'there is no version "2" of "net"; there is "1".')  # fmt: skip
    for name in ("ModelReady", "ModelMetadata"):
        assert client.error(MESSAGES[f"{name}Request"](name="other"), name)[0] == "NOT_FOUND"
        assert client.error(b"\xff", name) == ("INVALID_ARGUMENT", f"the message is not a {name}Request.")
    other = client.channel.unary_unary(f"/{SERVICE}/RepositoryIndex")
    with pytest.raises(grpc.RpcError) as raised:
        other(b"", timeout=60)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_too_large(server: Server, client: Client) -> None:
    """A message above --max-body is refused by its length, and a compressed one, which may hide any size."""
    big = image(2, 300, 300)
    status, details = client.error(as_raw(big))
    assert (status, "larger than max" in details) == ("RESOURCE_EXHAUSTED", True)
    with pytest.raises(grpc.RpcError) as raised:
        client.infer(as_raw(np.zeros_like(big)), compression=grpc.Compression.Gzip)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert client.infer(as_raw(X)).outputs[0].name == "scores"
    wait_for_metric(server, "mpscnn_pending_bytes", 0)


def test_typed_contents_are_limited(tmp_path: Path, net: mpscnn.Network) -> None:
    """Like JSON: they are parsed without a pause of the event loop."""
    net.save(tmp_path / "net.mpscnn")
    program = HASTY.replace("seconds=1.0", "json=10000")
    with serving(tmp_path / "net.mpscnn", *BOTH, program=program) as server, connected(server.grpc_port) as client:
        x = image(1, 30, 30)
        assert client.error(as_typed(x)) == (
            "INVALID_ARGUMENT",
            "the message has more than 10000 bytes, the maximum, beside raw_input_contents: send raw tensors.",
        )
        np.testing.assert_allclose(arrays_of(client.infer(as_raw(x)))["scores"], net(x), rtol=1e-5)


def test_random_changes_of_a_request(client: Client) -> None:
    """Bytes changed, removed and repeated: an answer, and never an internal error."""
    rng = np.random.default_rng(0)
    texts = [as_raw(image(1, 2, 2)).SerializeToString(), as_typed(image(1, 2, 2)).SerializeToString()]
    statuses = Counter[str]()
    for i in range(300):
        data = bytearray(texts[i % 2])
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            data[at : at + int(rng.integers(3))] = rng.bytes(int(rng.integers(3)))
        try:
            client.infer(bytes(data))
            statuses["OK"] += 1
        except grpc.RpcError as error:
            statuses[error.code().name] += 1
    assert set(statuses) == {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}


def test_broken_http2(server: Server, client: Client) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for data in (b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", preface + b"\xff" * 1000, preface[:10], b"a" * 200000):
        with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=20) as connection:
            connection.sendall(data)
    for stop_at in (0, 10, 400):
        start_call(server.grpc_port, as_raw(X).SerializeToString()[:stop_at], length=500).close()
    np.testing.assert_array_equal(arrays_of(client.infer(as_raw(X)))["scores"].shape, (1, 5))
    wait_for_metric(server, "mpscnn_pending_bytes", 0)


def wait_for_metric(server: Server, name: str, value: float, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while server.metric(name) != value:
        assert time.monotonic() < end, (name, server.metric(name), value)
        time.sleep(0.01)


# ---- load


def ask_at_once(client: Client, count: int, timeout: float = 60) -> list[Any]:
    """Return answers, or errors."""
    calls = [client.method("ModelInfer").future(as_raw(image(seed=i)), timeout=timeout) for i in range(count)]
    return [call.exception() or call.result() for call in calls]


def test_overload(model: Path, net: mpscnn.Network) -> None:
    """Some are answered, with right results; all others get RESOURCE_EXHAUSTED and the time to ask again."""
    options = (*BOTH, "--max-batch", 2, "--max-queue", 4)
    with serving(model, *options, program=SLOW) as server, connected(server.grpc_port) as client:
        answers = ask_at_once(client, 40)
        refused = [one for one in answers if isinstance(one, grpc.RpcError)]
        assert 16 <= len(refused) <= 36
        for error in refused:
            assert (error.code(), "requests wait, the maximum." in error.details()) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED, True)  # fmt: skip
            assert 1000 <= int(dict(error.trailing_metadata())["grpc-retry-pushback-ms"]) <= 60000
        for i, answer in enumerate(answers):
            if answer not in refused:
                np.testing.assert_allclose(arrays_of(answer)["scores"], net(image(seed=i)), rtol=1e-4)
        assert client.infer(as_raw(X)).outputs[0].name == "scores"
        # The queue is that of HTTP.
        calls = [client.method("ModelInfer").future(as_raw(X), timeout=60) for _ in range(12)]
        wait_for_metric(server, "mpscnn_queue_requests", 4)
        assert server.infer(http.as_json(X)).status == 503
        for call in calls:
            call.exception()


def test_pending_bytes(model: Path) -> None:
    """Messages of calls that wait count; a message is received when there is memory for it."""
    options = (*BOTH, "--max-pending", 0.1, "--max-body", 0.09)
    with serving(model, *options, program=SLOW) as server, connected(server.grpc_port) as client:
        big = image(1, 80, 80)  # 77 kB
        first = client.method("ModelInfer").future(as_raw(big), timeout=60)
        wait_for_metric(server, "mpscnn_pending_bytes", len(as_raw(big).SerializeToString()))
        status, details = client.error(as_raw(big))
        assert (status, details.startswith("the bodies of requests take 76")) == ("RESOURCE_EXHAUSTED", True)
        assert first.result().outputs[0].name == "scores"
        wait_for_metric(server, "mpscnn_pending_bytes", 0)
        # One message at a time here: while one is not complete, others wait for a second.
        with start_call(server.grpc_port, b"\x0a", length=80000):
            time.sleep(0.3)
            assert client.error(as_raw(X)) == (
                "RESOURCE_EXHAUSTED", "other messages are received, near the maximum of bytes.")  # fmt: skip
            assert client.ask("ServerLive").live
            assert client.ask("ServerReady").ready
        assert client.infer(as_raw(X)).outputs[0].name == "scores"


def test_slow_clients(model: Path) -> None:
    """Those that do not send, and those that neither read nor answer pings, lose their calls."""
    with serving(model, *BOTH, program=HASTY) as server, connected(server.grpc_port) as client:
        stream = client.channel.stream_unary(f"/{SERVICE}/ModelInfer")

        def late() -> Iterator[bytes]:
            time.sleep(3)
            yield b""

        with pytest.raises(grpc.RpcError) as raised:
            stream(late(), timeout=60)
        assert (raised.value.code(), raised.value.details()) == (
            grpc.StatusCode.DEADLINE_EXCEEDED, "the message was not received within 1 s.")  # fmt: skip
        with pytest.raises(grpc.RpcError) as raised:
            stream(iter([]), timeout=60)
        assert raised.value.details() == "the call has no message."
    of_two = model.with_name("two.mpscnn")
    of_two_inputs().save(of_two)
    with serving(of_two, *BOTH, program=HASTY) as server, connected(server.grpc_port) as client:
        a = np.zeros((1, 2, 50, 60), np.float32)
        request = MESSAGES["ModelInferRequest"](
            model_name="two", inputs=[tensor(a, name=name) for name in "ab"], raw_input_contents=[a.tobytes()] * 2
        )
        start = time.monotonic()
        with start_call(server.grpc_port, request.SerializeToString(), reads=False) as connection:
            while server.metric("mpscnn_request_seconds_count") == 0:  # the answer is made
                time.sleep(0.01)
            assert server.metric("mpscnn_pending_bytes") > a.nbytes * 2
            assert is_reset(connection)
            assert 0.8 < time.monotonic() - start < 10
            wait_for_metric(server, "mpscnn_pending_bytes", 0)
        assert len(client.infer(request).outputs) == 2


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_calls_that_end_leave_the_queue(model: Path, how: str) -> None:
    """They are not computed, and their places are free at once."""
    slow = SLOW.replace("0.1", "1.0")
    options = (*BOTH, "--max-batch", 1, "--max-queue", 8)
    with serving(model, *options, program=slow) as server, connected(server.grpc_port) as client:
        method = client.method("ModelInfer")
        running = [method.future(as_raw(X), timeout=60) for _ in range(2)]
        while server.metric("mpscnn_pending_bytes") == 0 or server.metric("mpscnn_queue_requests") > 0:
            time.sleep(0.005)
        time.sleep(0.05)
        waiting = [method.future(as_raw(X), timeout=0.4 if how == "deadline" else 60) for _ in range(8)]
        wait_for_metric(server, "mpscnn_queue_requests", 8)
        if how == "cancel":
            for call in waiting:
                call.cancel()
        wait_for_metric(server, "mpscnn_queue_requests", 0)
        assert not any(one.done() for one in running)
        if how == "deadline":
            assert {call.exception().code() for call in waiting} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        last = method.future(as_raw(X), timeout=60)
        assert [len(one.result().outputs) for one in (*running, last)] == [1, 1, 1]
        assert server.metric("mpscnn_rows_total") == 3
        cancelled = re.escape('mpscnn_requests_total{protocol="grpc",status="CANCELLED"}')
        assert server.metric(cancelled) == 8
        wait_for_metric(server, "mpscnn_pending_bytes", 0)


# Writes malloc's bytes in use to stderr after a signal. Without garbage collections, cycles of objects keep them.
LIVE_BYTES = """
import ctypes, gc, signal, sys
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
signal.signal(signal.SIGUSR1, lambda *_: print(mallinfo().uordblks + mallinfo().hblkhd, file=sys.stderr, flush=True))
gc.disable()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc 2.33 or later")
@pytest.mark.parametrize("kind", ["answered", "refused", "left", "not read"])
def test_memory_of_calls(model: Path, kind: str) -> None:
    """It is freed when they end, all of it: also if clients leave before the message is sent, or the answer read."""
    # Freed blocks that threads keep count as live. And with one arena, threads that start make no other.
    malloc = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "MALLOC_ARENA_MAX": "1"}
    data = as_raw(image(1, 20, 20)).SerializeToString()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(model, *BOTH, "--max-batch", 1, program=LIVE_BYTES, **malloc))
        client, pool = stack.enter_context(connected(server.grpc_port)), stack.enter_context(ThreadPoolExecutor(32))

        def call(i: int) -> None:
            if kind == "answered":
                client.infer(data)
            elif kind == "refused":
                client.error(data[:100])
            elif kind == "left":
                start_call(server.grpc_port, data[: i % 1000], length=len(data)).close()
            else:
                with start_call(server.grpc_port, data, reads=False):
                    time.sleep(0.05)

        def live(count: int, expected: float = 0) -> int:
            """Return the least bytes after so many calls, when they have been expected, or not less for 2 s."""
            list(pool.map(call, range(count)))
            least = 1 << 60
            since = time.monotonic()
            while least > expected and time.monotonic() - since < 2:
                time.sleep(0.1)
                server.process.send_signal(signal.SIGUSR1)
                assert server.process.stderr is not None
                if (now := int(server.process.stderr.readline())) < least:
                    least, since = now, time.monotonic()
            return least

        found = [live(2000)]
        for _ in range(3):
            found.append(live(2000, found[-1] + 2000 * 100))
            if found[-1] <= found[-2] + 2000 * 100:
                break  # Threads that start late take memory once; calls that are not freed take it in each round.
    # It was 700 bytes of each that waited for a garbage collection; 200 of those that were left, and 400 of those not
    # read, for ever.
    assert found[-1] <= found[-2] + 2000 * 100, found


def test_a_failing_device(model: Path) -> None:
    program = """
import mpscnn.serving as serving
async def fail(self, arrays):
    raise RuntimeError("the device failed." + "?" * 20000)
serving.NetworkModel.compute = fail
"""
    with serving(model, *BOTH, program=program) as server, connected(server.grpc_port) as client:
        for error in ask_at_once(client, 4):
            assert error.code() == grpc.StatusCode.INTERNAL
            assert error.details().startswith("RuntimeError: the device failed.?")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_graceful_stop(model: Path, net: mpscnn.Network, sent: signal.Signals) -> None:
    """Calls that were accepted are answered; new ones get UNAVAILABLE; the process ends by itself."""
    with serving(model, *BOTH, "--max-batch", 1, program=SLOW) as server, connected(server.grpc_port) as client:
        x = [image(seed=i) for i in range(16)]
        calls = [client.method("ModelInfer").future(as_raw(one), timeout=60) for one in x]
        while server.metric("mpscnn_queue_requests") < 12:
            time.sleep(0.005)
        server.process.send_signal(sent)
        time.sleep(0.05)
        refused = client.error(as_raw(X), timeout=10)
        with connected(server.grpc_port) as other:
            assert other.error(as_raw(X), timeout=10)[0] == "UNAVAILABLE"
        assert refused[0] == "UNAVAILABLE"
        answered = 0
        for one, call in zip(x, calls, strict=True):
            if call.code() is grpc.StatusCode.UNAVAILABLE:  # it arrived after the signal
                continue
            np.testing.assert_allclose(arrays_of(call.result())["scores"], net(one), rtol=1e-4)
            answered += 1
        assert answered >= 12
        assert server.process.wait(10) == (0 if sent == signal.SIGTERM else 130)


def test_no_call_is_cancelled_by_the_stop(model: Path) -> None:
    """Clients repeat calls that got UNAVAILABLE. gRPC cancels those that arrive while its server stops."""
    with serving(model, *BOTH, "--max-batch", 1, program=SLOW) as server, connected(server.grpc_port) as client:
        infer = client.method("ModelInfer")
        calls = [infer.future(as_raw(X), timeout=60) for _ in range(8)]
        while server.metric("mpscnn_queue_requests") < 4:
            time.sleep(0.005)
        server.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 0.4  # the server begins to stop within 0.1 s, and computes for 0.8 s
        while time.monotonic() < end:
            calls.append(infer.future(as_raw(X), timeout=60))
            time.sleep(0.0005)
        codes = Counter(call.code() for call in calls)
        assert codes.keys() <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, codes
        assert codes[grpc.StatusCode.OK] >= 4
        assert codes[grpc.StatusCode.UNAVAILABLE] >= 10
        assert server.process.wait(10) == 0


def test_stop_while_connected(model: Path) -> None:
    """Idle connections of both protocols do not delay the end."""
    with serving(model, *BOTH) as server, connected(server.grpc_port) as client:
        client.infer(as_raw(X))
        with socket.create_connection(("127.0.0.1", server.port)):
            start = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(20) == 0
            assert time.monotonic() - start < 10


def test_a_second_signal_ends_at_once(model: Path) -> None:
    slow = SLOW.replace("0.1", "5")
    with serving(model, *BOTH, program=slow) as server, connected(server.grpc_port) as client:
        call = client.method("ModelInfer").future(as_raw(X), timeout=60)
        wait_for_metric(server, "mpscnn_pending_bytes", len(as_raw(X).SerializeToString()))
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(4) == 130
        assert call.exception() is not None


def test_soak(server: Server, net: mpscnn.Network) -> None:
    """Both protocols at once, with right, bad, cancelled and broken requests; MPSCNN_SOAK_SECONDS as for HTTP."""
    busy = ("RESOURCE_EXHAUSTED",)

    def right(client: Client, rng: np.random.Generator) -> str:
        x = random_image(rng)
        message = as_raw(x) if rng.random() < 0.5 else as_typed(x)
        found = arrays_of(client.infer(message))["scores"]
        return "right" if np.allclose(found, net(x), rtol=1e-4, atol=1e-5) else "wrong: values"

    def over_http(client: Client, rng: np.random.Generator) -> str:
        x = random_image(rng)
        answer = server.infer(http.as_binary(x), x.tobytes())
        if answer.status == 503:
            return "busy"
        found = http.arrays_of(answer)["scores"]
        return "right over HTTP" if np.allclose(found, net(x), rtol=1e-4, atol=1e-5) else "wrong: values over HTTP"

    def bad(client: Client, rng: np.random.Generator) -> str:
        message, details = BAD[int(rng.integers(len(BAD)))]
        status, found = client.error(message)
        if status in busy:
            return "busy"
        return "refused" if status == "INVALID_ARGUMENT" and details in found else f"wrong: {status}, {found}"

    def too_large(client: Client, rng: np.random.Generator) -> str:
        status, found = client.error(b"\x3a" + b"\0" * 2100000)
        return "refused, too large" if status == "RESOURCE_EXHAUSTED" else f"wrong: {status}, {found}"

    def ended(client: Client, rng: np.random.Generator) -> str:
        call = client.method("ModelInfer").future(as_raw(random_image(rng)), timeout=float(rng.random()) / 100)
        if rng.random() < 0.5:
            call.cancel()
        try:
            error = call.exception()
        except grpc.FutureCancelledError:
            return "cancelled"
        if error is None or error.code().name in busy:
            return "right before its deadline" if error is None else "busy"
        return "deadline" if error.code().name == "DEADLINE_EXCEEDED" else f"wrong: {error}"

    def broken(client: Client, rng: np.random.Generator) -> str:
        data = as_raw(random_image(rng)).SerializeToString()
        if rng.random() < 0.5:
            start_call(server.grpc_port, data[: int(rng.integers(1000))], length=len(data)).close()
        else:
            with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=20) as connection:
                connection.sendall(rng.bytes(500))
        return "broken"

    kinds = [right, right, right, over_http, bad, bad, too_large, ended, broken]
    clients = [Client(server.grpc_port) for _ in range(4)]

    def ask(rng: np.random.Generator) -> str:
        kind = kinds[int(rng.integers(len(kinds)))]
        try:
            return kind(clients[int(rng.integers(len(clients)))], rng)
        except grpc.RpcError as error:
            return "busy" if error.code().name in busy else f"wrong: {kind.__name__}, {error}"
        except Exception as error:
            return f"wrong: {kind.__name__}, {error!r}"

    try:
        found = soak(server, ask)
    finally:
        for client in clients:
            client.channel.close()
    found.check()
    assert len(found.answers) > 5
    wait_for_metric(server, "mpscnn_pending_bytes", 0)
    wait_for_metric(server, "mpscnn_queue_requests", 0)


# ---- the command


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="the C library is not glibc")
@pytest.mark.parametrize("limit", [None, "64"])
def test_arenas_of_malloc(model: Path, limit: str | None) -> None:
    """The command limits them, unless the environment does; many would keep memory that gRPC has freed."""
    program = "import atexit, ctypes; atexit.register(ctypes.CDLL(None).malloc_stats)"
    environment = {} if limit is None else {"MALLOC_ARENA_MAX": limit}
    with serving(model, *BOTH, program=program, **environment) as server:
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(8) as pool:
            clients = [stack.enter_context(connected(server.grpc_port)) for _ in range(8)]
            list(pool.map(lambda i: clients[i % 8].infer(as_raw(image(4, 30, 30))), range(80)))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert server.process.stderr is not None
        arenas = len(re.findall(r"^Arena \d+:", server.process.stderr.read(), re.MULTILINE))
    assert arenas <= 2 if limit is None else arenas > 2


def test_addresses_are_checked(model: Path) -> None:
    command = [sys.executable, "-m", "mpscnn", "serve", str(model), "--port", "0", "--grpc-port"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            [*command, str(taken.getsockname()[1])], capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, "Address already in use" in done.stderr) == (1, True), done.stderr
    assert len(done.stderr.splitlines()) < 5
    done = subprocess.run([*command, "70000"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize("package", ["grpc", "google.protobuf"])
def test_without_the_packages(model: Path, package: str) -> None:
    """HTTP works; --grpc-port says which packages to install."""
    program = f"sys.modules[{package!r}] = None"
    with serving(model, program=program) as server:
        assert server.infer(http.as_json(X)).status == 200
    code = f"import sys; sys.argv = ['mpscnn', 'serve', {str(model)!r}, '--port', '0', '--grpc-port', '0']; {program}"
    code += "; from mpscnn.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "gRPC needs the package" in done.stderr
    assert "pip install grpcio protobuf" in " ".join(done.stderr.split())
