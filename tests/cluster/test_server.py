# SPDX-License-Identifier: Apache-2.0
"""mpscnn serve: a real server on a free port, with right, hostile and too many requests."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn

from .conftest import classifier, of_two_inputs
from .servers import HEADER, SLOW, Answer, Server, as_binary, image, random_image, serving, soak

for package in ("uvicorn", "httptools", "starlette", "prometheus_client", "typer", "rich"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("served") / "net.mpscnn"
    classifier().save(path)
    with serving(path, "--max-body", 2, "--max-pixels", 10000) as running:
        yield running
        assert running.process.poll() is None
        assert running.request("GET", "/v2/health/live").status == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0


@pytest.fixture(scope="module")
def net() -> mpscnn.Network:
    return classifier()


def as_json(x: np.ndarray, datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": list(x.shape), "datatype": datatype, "data": x.ravel().tolist(), **more}]}


def arrays_of(answer: Answer) -> dict[str, np.ndarray]:
    length = answer.headers.get(HEADER)
    document = json.loads(answer.body[: int(length)] if length else answer.body)
    offset, found = int(length or 0), {}
    for output in document["outputs"]:
        dtype = {"FP32": "<f4", "FP16": "<f2"}[output["datatype"]]
        if "data" in output:
            found[output["name"]] = np.array(output["data"], dtype).reshape(output["shape"])
        else:
            size = output["parameters"]["binary_data_size"]
            found[output["name"]] = np.frombuffer(answer.body[offset : offset + size], dtype).reshape(output["shape"])
            offset += size
    assert not length or offset == len(answer.body)
    return found


# ---- right requests


def test_health_and_metadata(server: Server) -> None:
    for path in ("health/live", "health/ready", "models/net/ready", "models/net/versions/1/ready"):
        assert server.request("GET", f"/v2/{path}").status == 200
    about = server.request("GET", "/v2").json
    assert (about["name"], about["version"]) == ("mpscnn", mpscnn.__version__)
    assert "binary_tensor_data" in about["extensions"]
    for path in ("net", "net/versions/1"):
        metadata = server.request("GET", f"/v2/models/{path}").json
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]
        assert metadata["outputs"] == [{"name": "scores", "datatype": "FP32", "shape": [-1, -1]}]
        assert metadata["versions"] == ["1"]


def test_json(server: Server, net: mpscnn.Network) -> None:
    answer = server.infer({**as_json(image(2)), "id": "a1"})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert {key: answer.json[key] for key in ("model_name", "model_version", "id")} == {
        "model_name": "net", "model_version": "1", "id": "a1"}  # fmt: skip
    np.testing.assert_allclose(arrays_of(answer)["scores"], net(image(2)), rtol=1e-5)
    nested = as_json(image())
    nested["inputs"][0]["data"] = image().tolist()
    np.testing.assert_allclose(arrays_of(server.infer(nested))["scores"], net(image()), rtol=1e-5)


@pytest.mark.parametrize("datatype", ["FP32", "FP16", "UINT8", "UINT16"])
def test_binary(server: Server, net: mpscnn.Network, datatype: str) -> None:
    dtype = {"FP32": "f4", "FP16": "f2", "UINT8": "u1", "UINT16": "u2"}[datatype]
    x = image(3) if datatype.startswith("FP") else image(3) * np.iinfo(dtype).max
    x = x.astype(dtype)
    answer = server.infer(as_binary(x, datatype), x.tobytes())
    assert answer.status == 200, answer.body
    np.testing.assert_allclose(arrays_of(answer)["scores"], net(x), rtol=1e-5)
    # One output as JSON, of a binary input; integers as JSON.
    document = {**as_binary(x, datatype), "outputs": [{"name": "scores", "parameters": {"binary_data": False}}]}
    answer = server.infer(document, x.tobytes())
    assert answer.headers.get(HEADER) is None
    np.testing.assert_allclose(arrays_of(answer)["scores"], net(x), rtol=1e-5)
    np.testing.assert_allclose(arrays_of(server.infer(as_json(x, datatype)))["scores"], net(x), rtol=1e-5)


def test_a_chunked_body(server: Server, net: mpscnn.Network) -> None:
    text = json.dumps(as_json(image())).encode()
    answer = server.request("POST", "/v2/models/net/infer", iter([text[:100], text[100:]]))
    np.testing.assert_allclose(arrays_of(answer)["scores"], net(image()), rtol=1e-5)


def test_mixed_requests_at_once(server: Server, net: mpscnn.Network) -> None:
    """Of different sizes, rows, types and forms; each gets its own answer, and some were computed together."""
    batches, rows = server.metric("mpscnn_batch_rows_count"), server.metric("mpscnn_rows_total")
    inputs = [image(1 + i % 3, 5 + i % 2, 6, seed=i) for i in range(48)]

    def ask(i: int) -> np.ndarray:
        x = inputs[i]
        answer = server.infer(as_json(x)) if i % 4 == 0 else server.infer(as_binary(x), x.tobytes())
        assert answer.status == 200, answer.body
        return arrays_of(answer)["scores"]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(48)))
    for x, found in zip(inputs, answers, strict=True):
        np.testing.assert_allclose(found, net(x), rtol=1e-4, atol=1e-6)
    assert server.metric("mpscnn_rows_total") - rows == sum(map(len, inputs))
    assert server.metric("mpscnn_batch_rows_count") - batches < 48


def test_two_inputs_and_outputs(tmp_path: Path) -> None:
    of_two_inputs().save(tmp_path / "two.mpscnn")
    a, b = np.random.default_rng(0).random((2, 2, 2, 3, 4), np.float32)
    with serving(tmp_path / "two.mpscnn", "--name", "sums") as server:
        size = {"shape": [2, 2, 3, 4], "datatype": "FP32"}
        inputs = [
            {"name": "b", **size, "parameters": {"binary_data_size": b.nbytes}},
            {"name": "a", **size, "data": a.tolist()},
        ]
        outputs = [{"name": "difference", "parameters": {"binary_data": True}}, {"name": "sum"}]
        answer = server.infer({"inputs": inputs, "outputs": outputs}, b.tobytes(), name="sums")
        assert answer.status == 200, answer.body
        found = arrays_of(answer)
        assert list(found) == ["difference", "sum"]
        np.testing.assert_allclose(found["sum"], a + b, rtol=1e-6)
        np.testing.assert_allclose(found["difference"], a - b, rtol=1e-6, atol=1e-7)
        b[0] = np.inf  # which JSON lacks
        answer = server.infer({"inputs": inputs, "outputs": outputs}, b.tobytes(), name="sums")
        assert (answer.status, "request binary_data" in answer.json["error"]) == (406, True)
        answer = server.infer({"inputs": inputs, "outputs": outputs[:1]}, b.tobytes(), name="sums")
        np.testing.assert_array_equal(arrays_of(answer)["difference"], a - b)
        refused = server.infer({"inputs": inputs[1:]}, name="sums")
        assert (refused.status, refused.json["error"]) == (400, "no data is given for b.")


# ---- hostile requests

X = image()
GOOD = as_json(X)["inputs"][0]


def entry(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{key: value for key, value in {**GOOD, **changes}.items() if value is not ...}]}


BAD: list[tuple[Any, str]] = [
    (b"", "JSON"),
    (b"[]", "the request (list) is not an object"),
    (b"{", "not JSON"),
    (b"\xff\xfe{}", "not JSON"),
    (b"[" * 100000, "nested too deeply"),
    (b'{"inputs":' * 50000, "nested too deeply"),
    ({}, "inputs (missing) is not a list"),
    ({"inputs": {}}, "inputs (object) is not a list"),
    ({"inputs": [3]}, "inputs[0] (int) is not an object"),
    (entry(name="y"), 'there is no input "y"; there are x.'),
    (entry(name=7), "name (int) is not a string"),
    (entry(name="y" * 100000), "there is no input"),
    ({"inputs": [GOOD, GOOD]}, 'input "x" is given twice'),
    (entry(datatype="FP64"), 'datatype ("FP64") is not one of FP32, FP16, UINT8, UINT16'),
    (entry(datatype="BYTES"), "is not one of"),
    (entry(datatype=...), "datatype (missing) is not a string"),
    (entry(shape=...), "is not a list of 4 extents, [-1, 3, -1, -1]"),
    (entry(shape=[1, 3, 30]), "is not a list of 4 extents"),
    (entry(shape=[1, 4, 5, 6]), "is not [-1, 3, -1, -1], where -1 is any extent"),
    (entry(shape=[1, 3, -5, -6]), "where -1 is any extent"),
    (entry(shape=[0, 3, 5, 6]), "where -1 is any extent"),
    (entry(shape=[1, 3, 5.0, 6]), "where -1 is any extent"),
    (entry(shape=[True, 3, 5, 6]), "where -1 is any extent"),
    (entry(shape=[1, 3, 5, 7]), "data has the shape (90,), not (1, 3, 5, 7)"),
    (entry(data=...), "data (missing) is not a list"),
    (entry(data="NaN"), "data (string) is not a list"),
    (entry(data=[["a"] * 90]), "data is not a list of numbers"),
    (entry(data=[None] * 90), "data is not a list of numbers"),
    (entry(data=[[1], [2, 3]]), "data is not a list of numbers, or has rows of different lengths"),
    (entry(data=[1e300] * 90), "outside of the range of its datatype"),
    (entry(data=[10**400] * 90), "data is not a list of numbers"),
    (entry(datatype="UINT8", data=[256] * 90), "not integers from 0 to 255"),
    (entry(datatype="UINT8", data=[0.5] * 90), "not integers from 0 to 255"),
    (entry(datatype="UINT8", data=[-1] * 90), "not integers from 0 to 255"),
    (json.dumps(entry(data=[0.0] * 90)).replace("0.0", "NaN").encode(), "has NaN, which is not JSON"),
    (json.dumps(entry(data=[0.0] * 90)).replace("0.0", "-Infinity").encode(), "has -Infinity, which is not JSON"),
    (json.dumps(entry(data=[0] * 90)).replace("0,", "1" * 5000 + ",", 1).encode(), "not JSON"),
    (entry(parameters={"binary_data_size": 360}), "has both data and binary_data_size"),
    (entry(data=..., parameters={"binary_data_size": 360}), "the body ends before its data, 0 of 360 bytes"),
    (entry(data=..., parameters={"binary_data_size": 2**63}), "is not 360, of its shape"),
    (entry(data=..., parameters={"binary_data_size": -360}), "is not 360, of its shape"),
    (entry(data=..., parameters={"binary_data_size": "360"}), "is not 360, of its shape"),
    (entry(parameters=[1]), "parameters (list) is not an object"),
    ({**entry(), "id": 3}, "id (int) is not a string"),
    ({**entry(), "outputs": [{"name": "z"}]}, 'there is no output "z"; there are scores.'),
    ({**entry(), "parameters": {"binary_data_output": 1}}, "binary_data_output (int) is not true or false"),
]


@pytest.mark.parametrize(("document", "message"), BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_bad_requests(server: Server, document: Any, message: str) -> None:
    answer = server.infer(document)
    assert answer.status == 400, answer.body
    assert message in answer.json["error"]
    assert len(answer.body) < 1000
    assert server.infer(as_json(X)).status == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "99999999999999999999999999", "1000000", "abc", ""])
def test_header_lengths(server: Server, length: str) -> None:
    answer = server.infer(as_binary(X), X.tobytes(), **{HEADER.replace("-", "_"): length})
    assert answer.status == 400
    assert "Inference-Header-Content-Length" in answer.json["error"]


def test_binary_data_of_another_size(server: Server) -> None:
    for data, message in ((X.tobytes()[:-1], "the body ends before its data"), (X.tobytes() + b"0", "1 bytes follow")):
        answer = server.infer(as_binary(X), data)
        assert (answer.status, message in answer.json["error"]) == (400, True)


def test_paths_and_methods(server: Server) -> None:
    assert server.infer(as_json(X), name="other").status == 404
    assert 'there is no model "other"; there is "net".' in server.infer(as_json(X), name="other").json["error"]
    assert server.infer(as_json(X), name="net/versions/2").status == 404
    assert server.request("GET", "/v2/models/net/infer").status == 405
    assert server.request("GET", "/../etc/passwd").status == 404
    assert server.infer(as_json(X), Content_Encoding="gzip").status == 415


def test_too_large(server: Server) -> None:
    big = as_json(image(1, 101, 100))
    assert server.infer(big).status == 413  # pixels
    assert "10100 pixels, more than the maximum (10000)" in server.infer(big).json["error"]
    start = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\n"
    for length in (b"2000001", b"99999999999999", b"9" * 30):  # refused before the body is sent
        answer = server.raw(start + b"Content-Length: " + length + b"\r\n\r\n{")
        assert answer.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400")), answer
    endless = start + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 40
    assert server.raw(endless).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))


def test_broken_http(server: Server) -> None:
    """What is no request closes its connection and nothing else."""
    start = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\n"
    for data in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\n\r\n",
        start + b"Content-Length: abc\r\n\r\n",
        start + b"Content-Length: -5\r\n\r\n",
        start + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        start + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        start + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        start + b'Content-Length: 500\r\n\r\n{"inputs"',  # truncated
        start + (b"X: " + b"a" * 1000 + b"\r\n") * 200,
    ):
        answer = server.raw(data)
        assert not answer or re.match(rb"HTTP/1\.1 4\d\d", answer), (data[:80], answer[:80])
    assert server.infer(as_json(X)).status == 200
    assert server.metric("mpscnn_pending_bytes") == 0


def test_random_changes_of_a_request(server: Server) -> None:
    """Bytes changed, removed and repeated: an answer below 500, always."""
    rng = np.random.default_rng(0)
    text = json.dumps(as_binary(X)).encode()
    for _ in range(150):
        data = bytearray(text)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            data[at : at + int(rng.integers(3))] = rng.bytes(int(rng.integers(3)))
        answer = server.infer(bytes(data), X.tobytes(), Inference_Header_Content_Length=str(len(data)))
        assert answer.status in (200, 400, 413), answer.body


# ---- load


def ask_at_once(server: Server, count: int) -> list[Answer]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda i: server.infer(as_binary(image(seed=i)), image(seed=i).tobytes()), range(count)))


def test_overload(model: Path, net: mpscnn.Network) -> None:
    """Some are answered, with right results; all others get 503 and the time after which to ask again."""
    with serving(model, "--max-batch", 2, "--max-queue", 4, program=SLOW) as server:
        answers = ask_at_once(server, 40)
        statuses = [answer.status for answer in answers]
        assert set(statuses) == {200, 503}
        assert 4 <= statuses.count(200) <= 24
        for i, answer in enumerate(answers):
            if answer.status == 200:
                np.testing.assert_allclose(arrays_of(answer)["scores"], net(image(seed=i)), rtol=1e-4)
            else:
                assert 1 <= int(answer.headers["Retry-After"]) <= 60
                assert "requests wait, the maximum" in answer.json["error"]
        assert server.infer(as_json(X)).status == 200
        assert server.metric("mpscnn_requests_total") >= 41
        of_two = server.metric(re.escape('mpscnn_batch_rows_bucket{le="2.0"}'))
        assert server.metric("mpscnn_batch_rows_count") == of_two < server.metric("mpscnn_rows_total")


def test_pending_bytes(model: Path) -> None:
    """Bodies that are being received count: 503 before memory grows."""
    with serving(model, "--max-pending", 0.1, "--max-body", 0.09) as server:
        start = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 80000\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(start)
            while server.metric("mpscnn_pending_bytes") < 80000:
                time.sleep(0.01)
            refused = server.infer(as_json(image(1, 30, 30)))
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        while server.metric("mpscnn_pending_bytes") > 0:
            time.sleep(0.01)
        assert server.infer(as_json(image(1, 30, 30))).status == 200


def test_a_failing_device(model: Path) -> None:
    program = """
import mpscnn.serving as serving
async def fail(self, arrays):
    raise RuntimeError("the device failed.")
serving.NetworkModel.compute = fail
"""
    with serving(model, program=program) as server:
        for answer in ask_at_once(server, 4):
            assert (answer.status, answer.json["error"]) == (500, "RuntimeError: the device failed.")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_graceful_stop(model: Path, net: mpscnn.Network, sent: signal.Signals) -> None:
    """What was accepted is answered; new connections are refused; the process ends by itself."""
    with serving(model, "--max-batch", 1, program=SLOW) as server:
        with ThreadPoolExecutor(8) as pool:
            x = [image(seed=i) for i in range(8)]
            asked = [pool.submit(server.infer, as_binary(one), one.tobytes()) for one in x]
            while server.metric("mpscnn_queue_requests") < 4:
                time.sleep(0.005)
            server.process.send_signal(sent)
            answers = [one.result() for one in asked]
        assert [answer.status for answer in answers] == [200] * 8
        for one, answer in zip(x, answers, strict=True):
            np.testing.assert_allclose(arrays_of(answer)["scores"], net(one), rtol=1e-4)
        assert server.process.wait(10) == (0 if sent == signal.SIGTERM else 130)
        with pytest.raises(ConnectionRefusedError):
            server.infer(as_json(X))


def test_soak(server: Server, net: mpscnn.Network) -> None:
    """MPSCNN_SOAK_SECONDS=1800 runs it for half an hour."""

    def ask(rng: np.random.Generator) -> str:
        if rng.random() < 0.5:
            document, message = BAD[int(rng.integers(len(BAD)))]
            answer = server.infer(document)
            is_right = answer.status == 503 or (answer.status == 400 and message in answer.json["error"])
            return "refused" if is_right else f"wrong: {answer.body[:200]!r} for {message}"
        x = random_image(rng)
        answer = server.infer(as_binary(x), x.tobytes())
        if answer.status == 503:
            return "busy"
        if answer.status == 200 and np.allclose(arrays_of(answer)["scores"], net(x), rtol=1e-4, atol=1e-5):
            return "right"
        return f"wrong: {answer.status}, {answer.body[:200]!r}"

    soak(server, ask).check()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_batches_at_once(model: Path, net: mpscnn.Network, tmp_path: Path) -> None:
    """Two batches are in the model at a time, where one waits for the other without --batches; answers are right."""
    program = """
import asyncio, sys, mpscnn.serving as serving
compute, now, most = serving.NetworkModel.compute, 0, 0
async def counted(self, arrays):
    global now, most
    now += 1
    most = max(most, now)
    await asyncio.sleep(0.05)
    result = await compute(self, arrays)
    now -= 1
    return result | {"scores": result["scores"] * 0 + most} if arrays["x"].shape[2] == 3 else result
serving.NetworkModel.compute = counted
"""
    found = {}
    for count in (1, 2):
        with serving(model, "--threads", 2, "--batches", count, "--max-batch", 1, program=program) as server:
            x = image(1)

            def ask(_: int, server: Server = server, x: np.ndarray = x) -> np.ndarray:
                return arrays_of(server.infer(as_json(x)))["scores"]

            with ThreadPoolExecutor(8) as pool:
                for scores in pool.map(ask, range(24)):
                    np.testing.assert_allclose(scores, net(x), rtol=1e-4, atol=1e-5)
            found[count] = float(arrays_of(server.infer(as_json(image(1, 3, 3))))["scores"].max())
    assert found == {1: 2, 2: 3}  # one more is put together meanwhile


@pytest.mark.parametrize("name", ["port", "grpc_port"])
def test_ports_are_checked(net: mpscnn.Network, name: str) -> None:
    from mpscnn.serving import NetworkModel, serve

    with pytest.raises(ValueError, match=rf"^{name} \(65536\) is greater than the maximum \(65535\)\.$"):
        serve(NetworkModel(net), **{name: 65536})  # type: ignore[arg-type]


def test_options_are_checked(model: Path) -> None:
    command = [sys.executable, "-m", "mpscnn", "serve", str(model), "--port", "0"]
    for options, status, message in (
        (["--max-batch", "0"], 2, "'--max-batch': 0 is less than the minimum (1)."),
        (["--max-delay", "nan"], 2, "'--max-delay': nan is less than the minimum (0)."),
        (["--port", "70000"], 2, "'--port': 70000 is greater than the maximum (65535)."),
        (["--grpc-port", "70000"], 2, "'--grpc-port': 70000 is greater than the maximum (65535)."),
        (["--grpc-port", "-1"], 2, "'--grpc-port': -1 is less than the minimum (0)."),
        (["--threads", "1", "--batches", "2"], 2, "--batches: 2 is greater than the number of threads (1)."),
        (["--device", "abacus"], 1, "abacus"),
        (["--host", "no.such.host.invalid"], 1, ""),
    ):
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done.stderr
        assert len(done.stderr.splitlines()) < 12
        assert message in " ".join(done.stderr.replace("│", " ").split())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command[-1] = str(taken.getsockname()[1])
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, "Address already in use" in done.stderr) == (1, True)
