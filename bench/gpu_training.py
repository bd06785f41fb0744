# SPDX-License-Identifier: Apache-2.0
"""Training steps on a GPU against torch.compile: ``python -m bench gpu_training [--case tf32] [--device cuda:0]``.

A step is forward, softmax cross entropy, backward and stochastic gradient descent with momentum. Ours reads images from
the host's memory; PyTorch's images are on the GPU. Both start from the same parameters, and the losses of the first
steps are compared. Then several steps at a time are timed in alternation, until the last one has completed: ours has
two in flight, as in Trainer.fit(). float16 is ``dtype="float16"``, and autocast with a GradScaler in PyTorch; "reduced"
is float16 with ``allow_reduced_precision``.

Memory is the max in use during the timed steps, as each program's allocator counts it.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mpscnn
from mpscnn.benchmarking import NETWORK_ROUND_SECONDS, rounds

from .networks import _module

RATE, MOMENTUM, LOSS_SCALE = 1e-3, 0.9, 1024.0
COMPARED, TOGETHER = 3, 24  # steps
TOLERANCES = {"float16": 2e-2, "tf32": 5e-3, "float32": 1e-3}  # relative, of losses


@dataclass(frozen=True)
class Case:
    network: str
    shape: tuple[int, int, int]
    batch: int
    products: str  # as in bench/gpu.py
    is_reduced: bool = False  # float16 with allow_reduced_precision

    @property
    def name(self) -> str:
        return f"{self.network} {self.products}, batch {self.batch}{', reduced' if self.is_reduced else ''}"


CASES = [
    Case("resnet50", (3, 224, 224), 64, "float16"),
    Case("resnet50", (3, 224, 224), 256, "float16"),
    Case("resnet50", (3, 224, 224), 256, "float16", True),
    Case("resnet50", (3, 224, 224), 64, "tf32"),
    Case("resnet50", (3, 224, 224), 64, "float32"),
]


def _ours(
    case: Case, module: Any, x: np.ndarray, labels: np.ndarray, device: mpscnn.Device
) -> Callable[[int], list[float]]:
    """Return a function that trains some steps and returns their losses."""
    is_half = case.products == "float16"
    scale = LOSS_SCALE if is_half else 1.0
    trainer = mpscnn.Trainer(
        copy.deepcopy(module).train().requires_grad_(),
        input_shapes=(case.batch, *case.shape),
        loss=mpscnn.Loss("softmax_cross_entropy", weight=scale, device=device),
        optimizer=mpscnn.OptimizerStochasticGradientDescent(
            RATE, momentum_scale=MOMENTUM, gradient_rescale=1 / scale, device=device
        ),
        dtype="float16" if is_half else "float32",
        allow_reduced_precision=case.products == "tf32" or case.is_reduced,
        device=device,
    )
    x = x.astype(np.float16 if is_half else np.float32)
    return lambda count: [step.loss / scale for step in [trainer.step(x, labels) for _ in range(count)]]


def _theirs(case: Case, module: Any, x: np.ndarray, labels: np.ndarray) -> Callable[[int], list[float]]:
    import torch

    is_half, is_exact = case.products == "float16", case.products == "float32"
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not is_exact
    torch._dynamo.reset()
    model = copy.deepcopy(module).train().requires_grad_().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    scaler = torch.amp.GradScaler("cuda", init_scale=LOSS_SCALE, enabled=is_half)
    images = torch.from_numpy(x).cuda().to(memory_format=torch.channels_last)
    targets = torch.from_numpy(labels).cuda()
    compiled: Any = torch.compile(model)

    def steps(count: int) -> list[float]:
        losses = []
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.float16, enabled=is_half):
                loss = torch.nn.functional.cross_entropy(compiled(images), targets)
            scaled: Any = scaler.scale(loss)
            scaled.backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return [one.item() for one in losses]

    return steps


def measure(case: Case, device: mpscnn.Device, seconds: float) -> dict[str, Any]:
    import torch

    rng = np.random.default_rng(0)
    x = rng.standard_normal((case.batch, *case.shape), dtype=np.float32)
    labels = rng.integers(1000, size=case.batch)
    module = _module(case.network)
    ours, theirs = _ours(case, module, x, labels, device), _theirs(case, module, x, labels)
    found, expected = ours(COMPARED), theirs(COMPARED)
    difference = max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
    if not difference <= TOLERANCES[case.products]:
        raise AssertionError(f"{case.name}: the losses {found} differ from PyTorch's, {expected}.")
    for run in (ours, theirs):
        run(TOGETHER)
    device.reset_peak_bytes()
    torch.cuda.reset_peak_memory_stats()
    samples = rounds(
        {"ours": lambda: ours(TOGETHER), "torch.compile": lambda: theirs(TOGETHER)},
        seconds,
        round_seconds=NETWORK_ROUND_SECONDS,
    )
    return {
        "case": case.name,
        "seconds": {name: statistics.median(values) / TOGETHER for name, values in samples.items()},
        "ratio": statistics.median(b / a for a, b in zip(samples["ours"], samples["torch.compile"], strict=True)),
        "bytes": {"ours": device.peak_bytes, "torch.compile": torch.cuda.max_memory_allocated()},
        "difference": difference,
    }


def run(seconds: float = 1.0, case: str = "", device: str = "cuda:0", *, quiet: bool = False) -> list[dict[str, Any]]:
    """Return measurements as dicts. `case` is a part of a name."""
    import torch

    gpu = mpscnn.Device(device)
    results = []
    if not quiet:
        print(f"{gpu.name}, {time.strftime('%Y-%m-%d')}")
        print(
            f"{'training step':<38} {'ours ms':>9} {'torch ms':>9} {'torch/ours':>10} {'ours GB':>8} {'torch GB':>8}"
            f" {'difference':>10}",
            flush=True,
        )
    for one in CASES:
        if case not in one.name:
            continue
        row = measure(one, gpu, seconds)
        results.append(row)
        gpu.free_cached_bytes()
        torch.cuda.empty_cache()
        if not quiet:
            times, memory = row["seconds"], row["bytes"]
            print(
                f"{one.name:<38} {times['ours'] * 1e3:>9.2f} {times['torch.compile'] * 1e3:>9.2f} {row['ratio']:>10.2f}"
                f" {memory['ours'] / 1e9:>8.2f} {memory['torch.compile'] / 1e9:>8.2f} {row['difference']:>10.0e}",
                flush=True,
            )
    return results
