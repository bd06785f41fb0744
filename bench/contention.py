# SPDX-License-Identifier: Apache-2.0
"""Networks on a shared machine: ``python -m bench contention``.

Batch 1, on a quiet machine and with as many busy loops as processors. Each contestant runs in a separate process, so
that its threads do not disturb the others. The order is shuffled in each round. Times are medians over the calls of all
rounds. Processor time is that of the whole process per call. It includes threads that spin while other threads of their
parallel loop wait for a processor.

"after torch" runs a small PyTorch convolution, not timed, before each call, so that PyTorch's threads are spinning;
"after numpy" a product of matrices of NumPy, for the threads of its BLAS.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS = ("resnet18", "mobilenet_v2")
SHAPE = (3, 224, 224)
ROUNDS = 3
OURS = ("mpscnn", "mpscnn, torch imported", "mpscnn, after torch", "mpscnn, after numpy")
PEERS = (
    "onnxruntime",
    "onnxruntime, no spinning",
    "onnxruntime, after torch",
    "onnxruntime, after numpy",
    "openvino",
    "torch",
)
# A busy loop that ends with its parent process, even if that is killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6):\n        pass"


# ---- in a contestant's process


def _runner(contestant: str, folder: Path, name: str) -> Callable[[], object]:
    x = np.random.default_rng(0).standard_normal((1, *SHAPE[1:], SHAPE[0]), dtype=np.float32).transpose(0, 3, 1, 2)
    if contestant.startswith("mpscnn"):
        if "torch" in contestant:
            import torch  # noqa: F401

        import mpscnn

        net = mpscnn.load(folder / f"{name}.mpscnn")
        out = np.empty_like(np.asarray(net(x)))
        return lambda: net(x, out=out)
    from mpscnn import benchmarking

    arrays = {"x": x}
    model = str(folder / f"{name}.onnx")
    if contestant == "torch":
        from . import networks

        return benchmarking.torch_contestant(networks._module(name), arrays).run
    if contestant == "openvino":
        return benchmarking.openvino_contestant(model, arrays).run
    if contestant.startswith("onnxruntime"):
        return benchmarking.onnxruntime_contestant(model, arrays, spins="no spinning" not in contestant).run
    raise ValueError(f"{contestant} is none of {', '.join((*OURS, *PEERS))}")


def _before(contestant: str) -> Callable[[], object]:
    """Return the function to run before each call, not timed."""
    if "after numpy" in contestant:
        a = np.ones((512, 512), np.float32)
        return lambda: a @ a
    if "after torch" not in contestant:
        return lambda: None
    import torch

    convolution, x = torch.nn.Conv2d(32, 32, 3, padding=1).eval().requires_grad_(False), torch.zeros(1, 32, 56, 56)
    return lambda: convolution(x)


def _measure(contestant: str, folder: Path, name: str, seconds: float) -> dict[str, Any]:
    run, before = _runner(contestant, folder, name), _before(contestant)
    for _ in range(3):
        before(), run()
    times, busy = [], 0.0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 3:
        before()
        cpu, begin = time.process_time(), time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
        busy += time.process_time() - cpu
    return {"times": times, "processor": busy / len(times)}


# ---- all contestants


@contextlib.contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(count)]
    try:
        if loops:
            time.sleep(0.5)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _process(contestant: str, folder: Path, name: str, seconds: float) -> dict[str, Any] | str:
    """Run a contestant in a process; return its times, or the reason why there are none."""
    command = [sys.executable, "-m", "bench.contention", contestant, str(folder), name, str(seconds)]
    done = subprocess.run(command, cwd=Path(__file__).resolve().parent.parent, capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _write(folder: Path, name: str) -> None:
    """Write the network to files, so that a contestant's process need not import PyTorch."""
    import mpscnn

    from . import networks

    module = networks._module(name)
    mpscnn.load(module, input_shapes=(1, *SHAPE)).save(folder / f"{name}.mpscnn")
    (folder / f"{name}.onnx").write_bytes(networks._onnx(module))


def run(seconds: float = 1.0, case: str = "", *, quiet: bool = True) -> list[dict[str, Any]]:
    """Return a dict for each network and load. Each contestant takes about `ROUNDS * seconds`, plus process starts."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    results = []
    contestants = [*OURS, *PEERS]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in NETWORKS:
            loads = [loops for loops in (0, processors) if case in f"{name}, {loops} busy loops"]
            if loads:
                _write(folder, name)
            for loops in loads:
                samples: dict[str, list[dict[str, Any]]] = {one: [] for one in contestants}
                absent: dict[str, str] = {}
                for number in range(ROUNDS):
                    for one in random.sample(contestants, len(contestants)):
                        if not quiet:
                            print(f"\r\x1b[K{name}, {loops} busy loops, {number + 1} of {ROUNDS}: {one}", end="",
                                  file=sys.stderr, flush=True)  # fmt: skip
                        with _busy_loops(loops):
                            found = _process(one, folder, name, seconds)
                        if isinstance(found, str):
                            absent[one] = found
                        else:
                            samples[one].append(found)
                if not quiet:
                    print("\r\x1b[K", end="", file=sys.stderr, flush=True)
                measured = {}
                for one, rounds in samples.items():
                    if rounds:
                        times = [value for each in rounds for value in each["times"]]
                        measured[one] = {
                            "seconds": statistics.median(times),
                            "p90": float(np.quantile(times, 0.9)),
                            "processor": statistics.median(each["processor"] for each in rounds),
                            "rounds": [statistics.median(each["times"]) for each in rounds],
                        }
                results.append({"case": name, "busy_loops": loops, "measured": measured, "absent": absent})
    return results


if __name__ == "__main__":
    chosen, where, network, duration = sys.argv[1:]
    print(json.dumps(_measure(chosen, Path(where), network, float(duration))))
