# SPDX-License-Identifier: Apache-2.0
"""The convolutions of ResNet-50 and MobileNetV2 beside oneDNN: ``python -m bench convolutions``.

Each different convolution of the two networks for one image of 224 x 224, float32, with a bias and a ReLU, as a call of
the kernel with arrays. "oneDNN" is the same call with its implementation alone (MPSCNN_IMPL). The peak is the speed of
a product of square matrices by NumPy's BLAS in a third process, measured in the same rounds: the processor's frequency
changes. A share above 1 means that a transform needs fewer products than the formula.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mpscnn

from .timing import ServedProcess

NETWORKS = ("resnet50", "mobilenet_v2")
ROUNDS = 5
MATRIX = 1536  # rows and columns of the product that measures the peak


class Shape(NamedTuple):
    """A convolution of one image: height, width, channels of source and result, window, stride and groups."""

    height: int
    width: int
    inputs: int
    outputs: int
    window: int
    stride: int
    groups: int

    def __str__(self) -> str:
        kind = "depth-wise " if self.groups > 1 else ""
        step = f", stride {self.stride}" if self.stride > 1 else ""
        window = f"{self.window} x {self.window}{step}"
        return f"{kind}{window}, {self.height} x {self.width} x {self.inputs} to {self.outputs}"

    @property
    def flops(self) -> float:
        pixels = -(-self.height // self.stride) * -(-self.width // self.stride)
        return 2.0 * pixels * self.outputs * self.inputs / self.groups * self.window**2


def shapes(network: str) -> list[Shape]:
    """Return the different convolutions of a network of the tests."""
    import torch

    from . import networks

    found: dict[Shape, None] = {}

    def note(module: Any, arguments: Any, result: Any) -> None:
        _, inputs, height, width = arguments[0].shape
        window, stride = module.kernel_size[0], module.stride[0]
        found[Shape(height, width, inputs, result.shape[1], window, stride, module.groups)] = None

    model = networks._module(network).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(note)
    with torch.inference_mode():
        model(torch.zeros(1, *networks.SHAPE))
    return list(found)


def _convolution(shape: Shape) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.1, (shape.outputs, shape.inputs // shape.groups, shape.window, shape.window))
    kernel = mpscnn.Convolution(
        weights.astype(np.float32),
        np.zeros(shape.outputs, np.float32),
        stride=shape.stride,
        padding=shape.window // 2,
        groups=shape.groups,
        activation="relu",
    )
    x = mpscnn.empty((1, shape.height, shape.width, shape.inputs), np.float32)
    x[...] = np.maximum(rng.normal(size=x.shape), 0)  # as after a ReLU
    out = mpscnn.empty(kernel.result_shape(x.shape), np.float32)
    return lambda: kernel(x, out=out)


def _product() -> Callable[[], object]:
    a = np.random.default_rng(0).standard_normal((MATRIX, MATRIX), dtype=np.float32)
    out = np.empty_like(a)
    return lambda: np.matmul(a, a, out=out)


def serve() -> None:
    """For each line of stdin, a shape (null: the product of matrices) and seconds, print the least time."""
    known: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        shape, seconds = json.loads(line)
        key = json.dumps(shape)
        if key not in known:
            known.clear()
            known[key] = _convolution(Shape(*shape)) if shape else _product()
        call = known[key]
        call()
        times = []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        print(json.dumps(min(times)), flush=True)


def run(seconds: float = 1.0, case: str = "", *, quiet: bool = True) -> list[dict[str, Any]]:
    """Return a dict per convolution: `seconds` by implementation and `gflops` of ours, oneDNN's and the peak."""
    wanted = [(network, shape) for network in NETWORKS for shape in shapes(network) if case in f"{network}: {shape}"]
    rows = []
    processes = {
        "mpscnn": ServedProcess(__name__),
        "oneDNN": ServedProcess(__name__, MPSCNN_IMPL="primitive"),
        "peak": ServedProcess(__name__),
    }
    try:
        for number, (network, shape) in enumerate(wanted):
            if not quiet:
                print(f"\r\x1b[K{number + 1} of {len(wanted)}: {shape}", end="", file=sys.stderr, flush=True)
            best = dict.fromkeys(processes, float("inf"))
            for _ in range(ROUNDS):
                for name, process in processes.items():
                    asked = None if name == "peak" else shape
                    best[name] = min(best[name], process.ask(asked, seconds / ROUNDS / len(processes)))
            work = {name: 2.0 * MATRIX**3 if name == "peak" else shape.flops for name in processes}
            gflops = {name: work[name] / best[name] / 1e9 for name in processes}
            rows.append({"case": f"{network}: {shape}", "seconds": best, "gflops": gflops})
    finally:
        for process in processes.values():
            process.close()
        if not quiet:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return rows
