# SPDX-License-Identifier: Apache-2.0
"""Load test of ``mpscnn serve`` over loopback: ``python -m bench.serving [--rates 5,10,20] [--json FILE]``.

Requests of one picture are sent at fixed rates, whether or not earlier ones were answered (an open loop), so that a
slow server is not asked less. Latency counts from the time when a request was due. The other server is the same one
with ONNX Runtime in place of the network, both with the same number of threads. The client is a process of its own on
the same machine, and takes part of its processors.

``--scaling`` measures images per second of T threads in each of P processes instead, without a server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
NETWORK = "mobilenet_v2"


# ---- servers


class OnnxModel:
    """ONNX Runtime for the server: a session on its own threads."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        from mpscnn.serving import Tensor

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        def tensors(of: Any) -> dict[str, Tensor]:
            shapes = {one.name: tuple(extent if isinstance(extent, int) else -1 for extent in one.shape) for one in of}
            return {name: Tensor(name, "FP32", shape) for name, shape in shapes.items()}

        self.inputs, self.outputs = tensors(self.session.get_inputs()), tensors(self.session.get_outputs())

    def check(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: the server checks shapes, and the session the rest."""

    async def compute(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        results = await asyncio.get_running_loop().run_in_executor(None, self.session.run, None, dict(arrays))
        return dict(zip(self.outputs, results, strict=True))


def serve_onnx(path: Path, threads: int, max_batch: int) -> None:
    from mpscnn.serving import serve

    serve(
        OnnxModel(path, threads), name="net", port=0, max_batch=max_batch,
        started=lambda url: print(f"serving net on {url}", file=sys.stderr, flush=True),
    )  # fmt: skip


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r":(\d+)$", line.strip())
        if found is None:
            raise RuntimeError(line + process.stderr.read())
        yield int(found[1]), process
    finally:
        process.terminate()
        process.communicate()


# ---- client


@dataclass
class Connections:
    """Kept connections to the server; each carries one request at a time."""

    port: int
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def post(self, head: bytes, body: bytes) -> int:
        """Return the status."""
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)", answer.lower())
        await reader.readexactly(int(length[1]) if length else 0)
        if b"connection: close" in answer.lower():
            writer.close()
        else:
            self.idle.append((reader, writer))
        return int(answer.split(b" ", 2)[1])


def request(x: NDArray[np.float32], name: str) -> tuple[bytes, bytes]:
    """Return head and body of a request with one binary tensor and a binary answer."""
    entry = {"name": name, "shape": list(x.shape), "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    body = text + x.tobytes()
    head = (
        f"POST /v2/models/net/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {len(text)}\r\n\r\n"
    )
    return head.encode(), body


async def at_rate(port: int, head: bytes, body: bytes, rate: float, seconds: float) -> dict[str, Any]:
    connections, statuses, latencies = Connections(port), Counter[int](), []
    for _ in range(5):
        await connections.post(head, body)
    start = time.perf_counter()

    async def one(due: float) -> None:
        status = await connections.post(head, body)
        statuses[status] += 1
        if status == 200:
            latencies.append(time.perf_counter() - due)

    tasks = []
    for i in range(int(rate * seconds)):
        due = start + i / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    elapsed = time.perf_counter() - start
    found = np.sort(latencies) * 1000 if latencies else np.array([np.nan])
    p50, p99 = np.percentile(found, [50, 99])
    return {
        "rate": rate,
        "answered_per_second": round(statuses[200] / elapsed, 1),
        "refused": statuses[503],
        "failed": sum(count for status, count in statuses.items() if status not in (200, 503)),
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
    }


# ---- threads and processes


def scaling(path: Path, processes: int, threads: int, batch: int, seconds: float) -> tuple[float, float]:
    """Return images per second of all processes together, and processor time per image in milliseconds.

    The second number hardly depends on what else the machine does.
    """
    program = (
        "import sys, time, numpy as np, mpscnn\n"
        "path, threads, batch, seconds = sys.argv[1], *map(float, sys.argv[2:])\n"
        "mpscnn.set_num_threads(int(threads))\n"
        "net = mpscnn.load(path)\n"
        "x = np.random.default_rng(0).random((int(batch), 3, 224, 224), np.float32)\n"
        "net(x), net(x)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "start, used, count = time.perf_counter(), time.process_time(), 0\n"
        "while time.perf_counter() - start < seconds: net(x); count += 1\n"
        "seconds = time.perf_counter() - start\n"
        "print(count * batch / seconds, (time.process_time() - used) / (count * batch))"
    )
    command = [sys.executable, "-c", program, str(path), str(threads), str(batch), str(seconds)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = [tuple(map(float, process.communicate()[0].split())) for process in started]
    return sum(rate for rate, _ in found), 1000 * sum(used for _, used in found) / processes


# ---- the command


def machine() -> str:
    model = ""
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = found[1] if found else ""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return f"{model or platform.machine()}, {os.cpu_count()} cores, load {load}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rates", default="5,10,20,40", help="requests per second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each server (default: %(default)s)")
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--scaling", action="store_true", help="threads and processes without a server")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--serve-onnx", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve_onnx:
        serve_onnx(options.serve_onnx, options.threads, options.max_batch)
        return 0

    import mpscnn

    from .networks import SHAPE, _module, _onnx

    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "network": f"{NETWORK}, 224 x 224",
        "threads": options.threads,
    }
    for name, value in report.items():
        print(f"{name:<10}{value}")
    with tempfile.TemporaryDirectory() as folder:
        onnx, saved = Path(folder) / "net.onnx", Path(folder) / "net.mpscnn"
        onnx.write_bytes(_onnx(_module(NETWORK)))
        mpscnn.load(onnx, input_shapes={"x": (1, *SHAPE)}).save(saved)
        if options.scaling:
            report["scaling"] = []
            print(f"{'processes':>9} {'threads':>8} {'batch':>6} {'images/s':>9} {'CPU ms/image':>13}")
            for processes, threads in ((1, 1), (1, 2), (2, 1), (2, 2)):
                for batch in (1, 8):
                    rate, used = scaling(saved, processes, threads, batch, options.seconds)
                    report["scaling"].append([processes, threads, batch, round(rate, 1), round(used, 1)])
                    print(f"{processes:>9} {threads:>8} {batch:>6} {rate:>9.1f} {used:>13.1f}", flush=True)
        else:
            x = np.random.default_rng(0).random((1, *SHAPE), np.float32)
            common = ["--threads", str(options.threads), "--max-batch", str(options.max_batch)]
            servers = {
                "mpscnn": ["-m", "mpscnn", "serve", str(saved), "--port", "0", *common],
                "onnxruntime": ["-m", "bench.serving", "--serve-onnx", str(onnx), *common],
            }
            columns = ("rate", "answered_per_second", "refused", "failed", "p50_ms", "p99_ms")
            print(
                f"{'server':<12}"
                + "".join(f"{column.replace('answered_per_second', 'answered/s'):>12}" for column in columns)
            )
            for name, command in servers.items():
                report[name] = []
                with running(command) as (port, _):
                    for rate in map(float, options.rates.split(",")):
                        row = asyncio.run(at_rate(port, *request(x, "x"), rate, options.seconds))
                        report[name].append(row)
                        print(f"{name:<12}" + "".join(f"{row[column]:>12}" for column in columns), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
