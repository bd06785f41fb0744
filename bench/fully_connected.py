# SPDX-License-Identifier: Apache-2.0
"""Fully connected layers of one image beside oneDNN's inner product: ``python -m bench fully_connected``.

Layers with a ReLU, called from Python. Two processes, one for each implementation (MPSCNN_IMPL), alternate. Each calls
layers of one size in turn, which together exceed the caches of the cores, as those of a network do. A time is the min
of all rounds.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

import numpy as np

import mpscnn

from .timing import implementation_process

ROUNDS = 5
CACHES = 8 << 20  # bytes of the weights of all layers, at least
SIZES = [(96, 4), (480, 20), (28, 672), (1152, 48), (960, 240), (240, 960), (1280, 1000), (2048, 1000)]
IMPLEMENTATIONS = ("inner_product", "matrix_vector")


class _Layers:
    def __init__(self, inputs: int, outputs: int) -> None:
        rng = np.random.default_rng(0)
        count = -(-CACHES // (4 * inputs * outputs)) if inputs * outputs > 1 << 16 else 32
        weights = rng.normal(size=(outputs, inputs)).astype(np.float32)
        self.layers = itertools.cycle([mpscnn.FullyConnected(weights, activation="relu") for _ in range(count)])
        self.x = rng.normal(size=(1, 1, 1, inputs)).astype(np.float32)
        for _ in range(2 * count):
            self.call()

    def call(self) -> float:
        layer = next(self.layers)
        begin = time.perf_counter()
        layer(self.x)
        return time.perf_counter() - begin


def serve() -> None:
    """For each line of stdin, a size and seconds, print the least time."""
    known: dict[tuple[int, int], _Layers] = {}
    for line in sys.stdin:
        (inputs, outputs), seconds = json.loads(line)
        if (inputs, outputs) not in known:
            known.clear()
            known[inputs, outputs] = _Layers(inputs, outputs)
        times = []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            times.append(known[inputs, outputs].call())
        print(json.dumps(min(times)), flush=True)


def run(seconds: float = 1.0, case: str = "") -> list[dict[str, Any]]:
    """Return a dict per size: `case`, and `seconds` by implementation."""
    rows = []
    processes = {name: implementation_process(__name__, name) for name in IMPLEMENTATIONS}
    try:
        for size in SIZES:
            name = f"{size[0]} x {size[1]}"
            if case not in name:
                continue
            best = dict.fromkeys(processes, float("inf"))
            for _ in range(ROUNDS):
                for key, process in processes.items():
                    best[key] = min(best[key], process.ask(size, seconds / ROUNDS / 2))
            rows.append({"case": name, "seconds": best})
    finally:
        for process in processes.values():
            process.close()
    return rows
