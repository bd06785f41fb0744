# SPDX-License-Identifier: Apache-2.0
"""Candidates for the convolutions of networks on a GPU: ``python -m bench candidates [--case resnet50]``.

For each shape, the CUDA engine times plans of cuDNN, algorithms of cuBLASLt and its own kernels, and keeps the fastest.
A process of its own does that here, without the choices of earlier ones, and prints all times
(MPSCNN_TRACE=dispatch). The table has the best time of each kind, of each of our kernels, and the share of the
roofline that the fastest one reaches. Times of candidates that are much slower than the best are upper bounds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import mpscnn
from mpscnn.layers import aligned

from .networks import _module

# Network, shape of an image, batches.
CASES: list[tuple[str, tuple[int, int, int], tuple[int, ...]]] = [
    ("resnet50", (3, 224, 224), (1, 32, 256)),
    ("mobilenet_v2", (3, 224, 224), (1, 32, 256)),
    ("style_transfer", (3, 512, 512), (1,)),
]
LIMITS = {"bytes_per_second": 4.0e12, "float16": 700e12}  # an H200, if PyTorch cannot measure them
SHAPE = re.compile(r"^mpscnn dispatch: candidates for (.*): (\d+) operations, (\d+) bytes$")
CANDIDATE = re.compile(r"^mpscnn dispatch: candidate (\S+): (\S+) ms( at most)?$")
CASE = re.compile(r"^case (.*)$")


@dataclass
class Shape:
    case: str
    name: str
    operations: float
    moved: float
    milliseconds: dict[str, float] = field(default_factory=dict)  # the least by candidate
    bounds: set[str] = field(default_factory=set)  # candidates without a better time than an upper bound

    def add(self, candidate: str, milliseconds: float, is_bound: bool) -> None:
        known = self.milliseconds.get(candidate)
        if known is None or milliseconds < known:
            self.milliseconds[candidate] = milliseconds
            (self.bounds.add if is_bound else self.bounds.discard)(candidate)

    def floor(self, limits: dict[str, float]) -> float:
        """Return the milliseconds of the roofline."""
        return 1e3 * max(self.moved / limits["bytes_per_second"], self.operations / limits["float16"])


def parse(trace: str) -> list[Shape]:
    shapes: list[Shape] = []
    case = ""
    for line in trace.splitlines():
        if found := CASE.match(line):
            case = found[1]
        elif found := SHAPE.match(line):
            shapes.append(Shape(case, found[1], float(found[2]), float(found[3])))
        elif (found := CANDIDATE.match(line)) and shapes and np.isfinite(float(found[2])):
            shapes[-1].add(found[1], float(found[2]), found[3] is not None)
    return shapes


def compute(device_name: str, case: str) -> None:
    """Run the networks once: in the process whose trace is read."""
    device = mpscnn.Device(device_name)
    for name, shape, batches in CASES:
        if case not in name:
            continue
        network = mpscnn.load(_module(name), input_shapes=(1, *shape), dtype="float16", device=device)
        for batch in batches:
            print(f"case {name}, batch {batch}", file=sys.stderr, flush=True)
            network(np.zeros((batch, *shape), np.float16))


def trace_of(device: str, case: str) -> str:
    """Return the trace of a process that knows our compiled kernels, but no choices."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpscnn" / "cuda"
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "mpscnn" / "cuda"
        cache.mkdir(parents=True)
        for file in home.glob("kernel-*"):
            shutil.copy(file, cache)
        done = subprocess.run(
            [sys.executable, "-c", f"from bench import candidates; candidates.compute({device!r}, {case!r})"],
            env=os.environ | {"XDG_CACHE_HOME": folder, "MPSCNN_TRACE": "dispatch"},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the process that times candidates failed:\n{done.stderr[-2000:]}")
        home.mkdir(parents=True, exist_ok=True)
        for file in cache.glob("kernel-*"):
            shutil.copy(file, home)
    return done.stderr


def _limits() -> dict[str, float]:
    try:
        import torch

        if torch.cuda.is_available():
            from .gpu import ceilings

            return ceilings()
    except ModuleNotFoundError:
        pass
    return LIMITS


def _row(shape: Shape, limits: dict[str, float]) -> tuple[str, ...]:
    times = shape.milliseconds
    best = min(times, key=lambda name: times[name])

    def cell(name: str) -> str:
        mark = "<" if name in shape.bounds else ""
        return f"{mark}{times[name] * 1e3:.1f}" if name in times else "-"

    own = sorted((name for name in times if "/" in name), key=lambda name: times[name])
    floor = shape.floor(limits)
    others = ", ".join(f"{name.removeprefix('cuda_conv_')} {cell(name)}" for name in own)
    return (
        shape.name,
        cell("cuDNN"),
        cell("cuBLASLt"),
        best,
        f"{floor * 1e3:.1f}",
        f"{floor / times[best]:.0%}",
        others,
    )


def run(case: str = "", device: str = "cuda:0", *, quiet: bool = False) -> list[dict[str, Any]]:
    """Return the times as dicts. `case` is a part of a network's name."""
    shapes = [shape for shape in parse(trace_of(device, case)) if shape.milliseconds]
    limits = _limits()
    if not quiet:
        for name in dict.fromkeys(shape.case for shape in shapes):
            of_case = [shape for shape in shapes if shape.case == name]
            best = sum(min(shape.milliseconds.values()) for shape in of_case)
            print(f"\n{name}: {len(of_case)} new shapes, {best:.3f} ms once each; microseconds")
            header = ("convolution", "cuDNN", "cuBLASLt", "fastest", "roofline", "share", "our kernels")
            print(aligned(header, [_row(shape, limits) for shape in of_case]))
    return [
        {
            "case": shape.case,
            "shape": shape.name,
            "floor": shape.floor(limits) / 1e3,
            "milliseconds": shape.milliseconds,
        }
        for shape in shapes
    ]
