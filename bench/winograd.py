# SPDX-License-Identifier: Apache-2.0
"""Winograd's convolution beside oneDNN's direct one: ``python -m bench winograd``.

Convolutions of 3 x 3 as networks have them, with a ReLU, and their gradients by source and weights. Two processes, one
for each implementation (MPSCNN_IMPL), alternate; a time is the least of all rounds. Errors are the max and the root of
the mean square of the differences from PyTorch's float64, relative to the largest result.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mpscnn

from .timing import implementation_process

ROUNDS = 5
# Images, height, width, inputs, outputs
SHAPES = [
    (1, 224, 224, 64, 64),
    (1, 112, 112, 64, 128),
    (1, 112, 112, 128, 128),
    (1, 56, 56, 64, 64),
    (1, 56, 56, 128, 32),
    (1, 56, 56, 256, 256),
    (1, 28, 28, 128, 128),
    (1, 28, 28, 512, 512),
    (1, 14, 14, 256, 256),
    (1, 14, 14, 512, 512),
    (8, 7, 7, 512, 512),
    (16, 16, 16, 256, 256),
    (1, 540, 960, 64, 32),
]

KINDS = ("convolution", "source's gradient", "weights' gradient")

Array = NDArray[np.float32]


class _Layer:
    """A convolution with a ReLU of seeded values, or a gradient of one without."""

    def __init__(self, shape: tuple[int, ...], kind: str) -> None:
        n, h, w, inputs, outputs = shape
        rng = np.random.default_rng(0)
        self.kind = kind
        self.weights = rng.normal(0, (2 / (9 * inputs)) ** 0.5, (outputs, inputs, 3, 3)).astype(np.float32)
        self.bias = rng.normal(size=outputs).astype(np.float32)
        self.x = np.maximum(rng.normal(size=(n, h, w, inputs)), 0).astype(np.float32)  # as after a ReLU
        self.grad = rng.normal(size=(n, h, w, outputs)).astype(np.float32)
        activation = "relu" if kind == KINDS[0] else None
        self.kernel = mpscnn.Convolution(self.weights, self.bias, padding=1, activation=activation)
        if kind != KINDS[0]:
            self.kernel.gradient.gradient_option = "data" if kind == KINDS[1] else "weights_and_bias"

    def call(self) -> tuple[Array, float]:
        """Return the result, and the seconds that it took."""
        if self.kind == KINDS[0]:
            begin = time.perf_counter()
            return self.kernel(self.x), time.perf_counter() - begin
        state = self.kernel(self.x, with_state=True)[1]  # a gradient uses a state only once
        begin = time.perf_counter()
        result = self.kernel.gradient(self.grad, self.x, state)
        seconds = time.perf_counter() - begin
        return (result if self.kind == KINDS[1] else state.grad_weight), seconds

    def expected(self) -> NDArray[Any]:
        import torch

        x, weights, bias, grad = (
            torch.from_numpy(a).double()
            for a in (self.x.transpose(0, 3, 1, 2), self.weights, self.bias, self.grad.transpose(0, 3, 1, 2))
        )
        if self.kind == KINDS[0]:
            return np.asarray(torch.conv2d(x, weights, bias, padding=1).relu().permute(0, 2, 3, 1).numpy())
        if self.kind == KINDS[1]:
            source = torch.nn.grad.conv2d_input(x.shape, weights, grad, padding=1)
            return np.asarray(source.permute(0, 2, 3, 1).numpy())
        return np.asarray(torch.nn.grad.conv2d_weight(x, weights.shape, grad, padding=1).permute(0, 2, 3, 1).numpy())


def serve() -> None:
    """For each line of stdin, a shape, a kind and seconds, print the least time and errors."""
    known: dict[str, tuple[_Layer, list[float]]] = {}
    for line in sys.stdin:
        shape, kind, seconds = json.loads(line)
        key = json.dumps([shape, kind])
        if key not in known:
            known.clear()
            layer = _Layer(tuple(shape), kind)
            right = layer.expected()
            errors = np.abs(layer.call()[0] - right) / np.abs(right).max()
            known[key] = layer, [float(errors.max()), float(np.sqrt((errors**2).mean()))]
        layer, found = known[key]
        times = []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            times.append(layer.call()[1])
        print(json.dumps([min(times), *found]), flush=True)


def run(seconds: float = 1.0, case: str = "", shapes: list[tuple[int, ...]] | None = None) -> list[dict[str, Any]]:
    """Return a dict per shape: `seconds`, `max_error` and `rms_error` by implementation."""
    rows = []
    processes = {name: implementation_process(__name__, name) for name in ("primitive", "winograd")}
    try:
        for shape in shapes or SHAPES:
            for kind in KINDS:
                name = f"{kind}, {' x '.join(map(str, shape))}"
                if case not in name:
                    continue
                print(name, file=sys.stderr, flush=True)
                answers: dict[str, list[list[float]]] = {key: [] for key in processes}
                for _ in range(ROUNDS):
                    for key, process in processes.items():
                        answers[key].append(process.ask(shape, kind, seconds / ROUNDS / 2))
                rows.append(
                    {
                        "case": name,
                        "seconds": {key: min(a[0] for a in given) for key, given in answers.items()},
                        "max_error": {key: given[0][1] for key, given in answers.items()},
                        "rms_error": {key: given[0][2] for key, given in answers.items()},
                    }
                )
    finally:
        for process in processes.values():
            process.close()
    return rows
