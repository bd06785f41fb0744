# SPDX-License-Identifier: Apache-2.0
"""`mpscnn serve` in a process of its own, for the tests of HTTP and gRPC."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HEADER = "Inference-Header-Content-Length"


@dataclass
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int
    grpc_port: int = 0

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def infer(self, document: Any, binary: bytes = b"", name: str = "net", **headers: str) -> Answer:
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        if binary:
            headers.setdefault(HEADER.replace("-", "_"), str(len(text)))
        return self.request("POST", f"/v2/models/{name}/infer", text + binary, **headers)

    def raw(self, data: bytes) -> bytes:
        """Send bytes, end the sending, and return all that comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    received += part
            return received

    def metric(self, name: str) -> float:
        text = self.request("GET", "/metrics").body.decode()
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}(\{{| )", line))

    @property
    def resident(self) -> int:
        """Resident memory in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")


@contextlib.contextmanager
def serving(path: Path, *options: object, program: str = "", **environment: str) -> Iterator[Server]:
    """Run the command; `program` runs before it, in its process."""
    arguments = ["mpscnn", "serve", str(path), "--port", "0", *map(str, options)]
    code = f"import sys; sys.argv = {arguments!r}\n{program}\nfrom mpscnn.cli import main\nsys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = r"127\.0\.0\.1:(\d+)"
        found = re.fullmatch(rf"serving \S+ on http://{address}(?: and grpc://{address})?\n", line)
        assert found, line + process.stderr.read()
        yield Server(process, int(found[1]), int(found[2] or 0))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def image(rows: int = 1, height: int = 5, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((rows, 3, height, width), np.float32)


def as_binary(x: np.ndarray, datatype: str = "FP32") -> dict[str, Any]:
    entry = {"name": "x", "shape": list(x.shape), "datatype": datatype, "parameters": {"binary_data_size": x.nbytes}}
    return {"inputs": [entry], "parameters": {"binary_data_output": True}}


# Computes each batch for at least 0.1 s, on the device's own time.
SLOW = """
import asyncio, mpscnn.serving as serving
compute = serving.NetworkModel.compute
async def slow(self, arrays):
    await asyncio.sleep(0.1)
    return await compute(self, arrays)
serving.NetworkModel.compute = slow
"""


@dataclass
class Soak:
    seconds: float
    answers: Counter[str]
    resident: list[int]  # bytes, at equal intervals

    def check(self) -> None:
        """Print the figures; fail if an answer was wrong or memory has grown."""
        memory = ", ".join(f"{one / 1e6:.1f}" for one in self.resident)
        print(f"{self.answers.total()} in {self.seconds:g} s: {dict(self.answers)}; MB: {memory}")
        wrong = [answer for answer in self.answers if answer.startswith("wrong")]
        assert not wrong, wrong[:5]
        assert self.answers["right"] > 10
        assert self.answers["refused"] > 10
        assert self.resident[-1] - self.resident[0] < 20e6
        assert threading.active_count() < 50


HEIGHTS = range(3, 40)  # of random_image()


def random_image(rng: np.random.Generator) -> np.ndarray:
    return image(int(rng.integers(1, 5)), int(rng.choice(HEIGHTS)), 32, seed=int(rng.integers(100)))


def soak(server: Server, ask: Callable[[np.random.Generator], str]) -> Soak:
    """Ask from 8 threads for MPSCNN_SOAK_SECONDS, 3 by default, after a shorter time without measurements.

    `ask` sends a request and returns the kind of the answer: "right", "refused", "busy", or what is wrong with it.
    """
    seconds = float(os.environ.get("MPSCNN_SOAK_SECONDS", "3"))
    answers = Counter[str]()

    def work(thread: int) -> None:
        rng = np.random.default_rng([thread, int(end)])
        while time.monotonic() < end:
            answer = ask(rng)
            with lock:
                answers[answer] += 1

    lock = threading.Lock()
    resident = []
    # oneDNN keeps the code of up to 1,024 primitives. Batches of all shapes make those that this soak needs.
    for rows in range(1, 9):
        for height in HEIGHTS:
            x = image(rows, height, 32)
            assert server.infer(as_binary(x), x.tobytes()).status == 200
    with ThreadPoolExecutor(8) as pool:
        # Pools and kept memory are made.
        end = time.monotonic() + max(min(seconds, 3), seconds / 10)
        list(pool.map(work, range(8)))
        answers.clear()
        resident.append(server.resident)
        for _ in range(10):
            end = time.monotonic() + seconds / 10
            list(pool.map(work, range(8)))
            resident.append(server.resident)
    return Soak(seconds, answers, resident)
