# SPDX-License-Identifier: Apache-2.0
"""Load test of ``mpscnn serve`` over loopback: ``python -m bench.serving [--rates 5,10,20] [--json FILE]``.

Requests of one picture are sent at fixed rates, whether or not earlier ones were answered (an open loop), so that a
slow server is not asked less. Latency counts from the time when a request was due. The other server is the same one
with ONNX Runtime in place of the network, both with the same number of threads. The client is a process of its own on
the same machine, and takes part of its processors. The servers take turns at each rate for several rounds; figures are
medians, so that other programs disturb all servers equally. ``mpscnn, N batches`` computes N batches at once, each with
an equal share of the threads (``mpscnn serve --batches N``).

``--scaling`` measures images per second of processes, callers and threads instead, without a server. "of_processes" is
the median ratio of several callers in one process to as many processes, in the same round.
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
import statistics
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

from .arguments import within

ROOT = Path(__file__).resolve().parent.parent
NETWORK = "mobilenet_v2"


# ---- servers


class OnnxModel:
    """ONNX Runtime for the server: a session on its own threads."""

    is_joined = True

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


@dataclass(frozen=True)
class Split:
    """Processes, callers in each of them (threads of Python), and threads that compute a call."""

    processes: int
    callers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.processes:>9} {self.callers:>8} {self.threads:>8}"


SPLITS = (
    Split(1, 1, 1),
    Split(1, 1, 2),
    Split(2, 1, 1),
    Split(1, 2, 1),
    Split(4, 1, 1),
    Split(1, 4, 1),
    Split(1, 4, 2),
)

# Callers of a process with fewer threads than processors compute side by side.
CALLERS = """
import os, sys, threading, time, numpy as np, mpscnn
path, (callers, threads, batch), seconds = sys.argv[1], map(int, sys.argv[2:5]), float(sys.argv[5])
net = mpscnn.load(path, num_threads=threads if threads < mpscnn.get_num_threads() else None)
images = [np.random.default_rng(i).random((batch, 3, 224, 224), np.float32) for i in range(callers)]
counts = [0] * callers
def call(i, end):
    while time.perf_counter() < end:
        net(images[i])
        counts[i] += batch
def run(seconds):
    counts[:] = [0] * callers
    start = time.perf_counter()
    all = [threading.Thread(target=call, args=(i, start + seconds)) for i in range(callers)]
    for one in all: one.start()
    for one in all: one.join()
    return time.perf_counter() - start
run(0.5)
print('ready', flush=True); sys.stdin.readline()
used = time.process_time()
seconds = run(seconds)
print(sum(counts) / seconds, (time.process_time() - used) / sum(counts))
"""


def scaling(path: Path, split: Split, batch: int, seconds: float) -> tuple[float, float]:
    """Return images per second of all processes together, and processor time per image in milliseconds.

    The second number hardly depends on what else the machine does.
    """
    numbers = map(str, (split.callers, split.threads, batch, seconds))
    command = [sys.executable, "-c", CALLERS, str(path), *numbers]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(split.processes)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = [tuple(map(float, process.communicate()[0].split())) for process in started]
    return sum(rate for rate, _ in found), 1000 * sum(used for _, used in found) / split.processes


def scalings(path: Path, batch: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return medians of all splits, whose runs alternate, so that other programs disturb them equally."""
    runs: dict[Split, list[tuple[float, float]]] = {split: [] for split in SPLITS}
    for _ in range(rounds):
        for split, found in runs.items():
            found.append(scaling(path, split, batch, seconds))
    rows = []
    for split, found in runs.items():
        as_processes = runs.get(Split(split.callers, 1, split.threads)) if split.processes == 1 else None
        ratios = [rate / of[0] for (rate, _), of in zip(found, as_processes or [], strict=False) if split.callers > 1]
        rows.append(
            {
                **vars(split),
                "batch": batch,
                "images_per_second": round(statistics.median(rate for rate, _ in found), 1),
                "cpu_ms_per_image": round(statistics.median(used for _, used in found), 1),
                "of_processes": round(statistics.median(ratios), 2) if ratios else None,
            }
        )
    return rows


# ---- memory of processes

LOADED = """
import sys, numpy as np, mpscnn
net = mpscnn.load(sys.argv[1], mapped=sys.argv[2] == "True")
net(np.zeros((1, 3, 224, 224), np.float32))
print('ready', flush=True); sys.stdin.readline()
"""


def memory(path: Path, mapped: bool, processes: int) -> dict[str, Any]:
    """Return the memory in MB of one of so many processes that have loaded a file and called it, and of all.

    In proportional set sizes, a page that several processes share counts in equal parts in each of them.
    """
    started = [
        subprocess.Popen(
            [sys.executable, "-c", LOADED, str(path), str(mapped)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(processes)
    ]
    sizes = []
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        for process in started:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            sizes.append([int(re.findall(rf"^{name}: *([0-9]+) kB", text, re.M)[0]) / 1000 for name in ("Rss", "Pss")])
    finally:
        for process in started:
            process.communicate(b"\n")
    return {
        "mapped": mapped,
        "processes": processes,
        "resident_mb": round(statistics.mean(resident for resident, _ in sizes)),
        "proportional_mb": round(statistics.mean(proportional for _, proportional in sizes)),
        "all_mb": round(sum(proportional for _, proportional in sizes)),
    }


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
    parser.add_argument("--rounds", type=within(1), default=3, help="of all measurements (default: %(default)s)")
    parser.add_argument(
        "--threads", type=within(1), default=os.cpu_count(), help="of each server (default: %(default)s)"
    )
    parser.add_argument("--max-batch", type=within(1), default=8)
    parser.add_argument("--scaling", action="store_true", help="threads and processes without a server")
    parser.add_argument("--memory", action="store_true", help="memory of processes that load one file")
    parser.add_argument("--network", default=NETWORK, help="one of bench.networks (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--serve-onnx", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve_onnx:
        serve_onnx(options.serve_onnx, options.threads, options.max_batch)
        return 0

    import mpscnn

    from . import contestants
    from .networks import NETWORKS, SHAPE, _module

    names = [name for name, one in NETWORKS.items() if one.shape == SHAPE]
    if options.network not in names:
        parser.error(f"argument --network: {options.network} is not one of {', '.join(names)}.")
    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "network": f"{options.network}, 224 x 224",
        "threads": options.threads,
    }
    for name, value in report.items():
        print(f"{name:<10}{value}")
    with tempfile.TemporaryDirectory() as folder:
        onnx, saved = Path(folder) / "net.onnx", Path(folder) / "net.mpscnn"
        onnx.write_bytes(contestants.onnx(_module(options.network), SHAPE))
        mpscnn.load(onnx, input_shapes={"x": (1, *SHAPE)}).save(saved)
        if options.memory:
            report["file_mb"] = round(saved.stat().st_size / 1e6)
            print(f"file      {report['file_mb']} MB")
            print("mapped  processes  resident MB, each  proportional MB, each  all MB")
            report["memory"] = []
            for mapped in (True, False):
                for processes in (1, 2, 4):
                    row = memory(saved, mapped, processes)
                    report["memory"].append(row)
                    print(
                        f"{'yes' if mapped else 'no':<8}{processes:>9}{row['resident_mb']:>19}"
                        f"{row['proportional_mb']:>23}{row['all_mb']:>8}",
                        flush=True,
                    )
        elif options.scaling:
            report["scaling"] = []
            print("processes  callers  threads  batch  images/s  CPU ms/image  ratio")
            for batch in (1, 8):
                for row in scalings(saved, batch, options.rounds, options.seconds):
                    report["scaling"].append(row)
                    split = Split(row["processes"], row["callers"], row["threads"])
                    print(
                        f"{split} {batch:>6} {row['images_per_second']:>9.1f} {row['cpu_ms_per_image']:>13.1f}"
                        f" {row['of_processes'] or '':>6}",
                        flush=True,
                    )
        else:
            x = np.random.default_rng(0).random((1, *SHAPE), np.float32)
            common = ["--threads", str(options.threads), "--max-batch", str(options.max_batch)]
            ours = ["-m", "mpscnn", "serve", str(saved), "--port", "0", *common]
            servers = {"mpscnn": ours, "onnxruntime": ["-m", "bench.serving", "--serve-onnx", str(onnx), *common]}
            if options.threads > 1:
                servers[f"mpscnn, {options.threads} batches"] = [*ours, "--batches", str(options.threads)]
            columns = ("rate", "answered_per_second", "refused", "failed", "p50_ms", "p99_ms")
            print(
                f"{'server':<20}"
                + "".join(f"{column.replace('answered_per_second', 'answered/s'):>12}" for column in columns)
            )
            with contextlib.ExitStack() as stack:
                ports = {name: stack.enter_context(running(command))[0] for name, command in servers.items()}
                report |= {name: [] for name in servers}
                for rate in map(float, options.rates.split(",")):
                    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}
                    for _ in range(options.rounds):
                        for name, port in ports.items():
                            rows[name].append(asyncio.run(at_rate(port, *request(x, "x"), rate, options.seconds)))
                    for name, found in rows.items():
                        row = {column: statistics.median(one[column] for one in found) for column in columns}
                        report[name].append({**row, "rounds": found})
                        print(f"{name:<20}" + "".join(f"{row[column]:>12.1f}" for column in columns), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
