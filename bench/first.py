# SPDX-License-Identifier: Apache-2.0
"""The first result of a fresh process: ``python -m bench first``.

A process imports NumPy and a program, loads a network from its file (warm in the system's cache), and computes one
image. Processes run one after the other, in random order; times are medians. Memory is that of the process after the
result, and its max until then, from Linux's /proc. The files are ours, and ONNX for the others.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import contestants, networks

NETWORKS = ("resnet50", "mobilenet_v2")
# Each loads the file "{path}" and computes x.
PROGRAMS = {
    "mpscnn": ("import mpscnn", "network = mpscnn.load('{path}.mpscnn')", "network(x)"),
    "onnxruntime": (
        "import onnxruntime",
        "session = onnxruntime.InferenceSession('{path}.onnx', providers=['CPUExecutionProvider'])",
        "session.run(None, {{'x': x}})",
    ),
    "openvino": ("import openvino", "model = openvino.Core().compile_model('{path}.onnx', 'CPU')", "model(x)"),
}
CHILD = """
import json, time
import numpy as np
x = np.ones((1, *{shape}), np.float32)
start = time.perf_counter()
{imports}
imported = time.perf_counter()
{load}
loaded = time.perf_counter()
{call}
done = time.perf_counter()
memory = dict(line.split(":") for line in open("/proc/self/status"))
print(json.dumps({{
    "import": imported - start,
    "load": loaded - imported,
    "first": done - loaded,
    "resident": int(memory["VmRSS"].split()[0]) * 1024,
    "peak": int(memory["VmHWM"].split()[0]) * 1024,  # getrusage() includes the parent's
}}))
"""


def _measure(program: str, files: contestants.Files) -> dict[str, float] | str:
    """Return the figures of one process, or the reason why there are none."""
    imports, load, call = (line.format(path=files.path("")) for line in PROGRAMS[program])
    code = CHILD.format(shape=files.shape, imports=imports, load=load, call=call)
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(seconds: float = 1.0, case: str = "", *, quiet: bool = True) -> list[dict[str, Any]]:
    """Return a dict for each network: medians of at least five processes of each program; why others are absent."""
    rows = []
    for name in NETWORKS:
        if case not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            files = contestants.Files(folder, name, networks.NETWORKS[name].shape)
            contestants.write(files, networks._module(name))
            found: dict[str, list[dict[str, float]]] = {program: [] for program in PROGRAMS}
            absent: dict[str, str] = {}
            for program in PROGRAMS:  # files are warm afterwards
                measured = _measure(program, files)
                if isinstance(measured, str):
                    absent[program] = measured
            rounds = max(5, int(seconds * 5))
            for number in range(rounds):
                if not quiet:
                    print(f"\r\x1b[K{name}: {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
                for program in random.sample(list(PROGRAMS), len(PROGRAMS)):
                    measured = absent.get(program) or _measure(program, files)
                    if not isinstance(measured, str):
                        found[program].append(measured)
        if not quiet:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        measured_rows = {
            program: {key: statistics.median(one[key] for one in many) for key in many[0]}
            for program, many in found.items()
            if many
        }
        rows.append({"case": name, "measured": measured_rows, "absent": absent})
    return rows
