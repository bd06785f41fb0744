# SPDX-License-Identifier: Apache-2.0
"""Whole networks on a GPU against torch.compile: ``python -m bench gpu [--device cuda:0] [--layers]``.

The networks are those of the tests, with seeded weights. Images and results stay on the GPU. Our time is that of
Python's calls: make a command buffer, encode, commit, wait. PyTorch's is that of the compiled module
(``mode="reduce-overhead"``, freezing, channels_last) and ``torch.cuda.synchronize()``. Both are timed in alternation,
after the results have been compared. A network is loaded from the same module, before it is compiled.

Shares of the roofline: the time that a kernel would take if it were limited by nothing but the bandwidth of a large
copy and the rate of a large product, both measured in the same run, divided by its time. For command buffers of one
kernel each, so without fusion.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mpscnn
from mpscnn.benchmarking import NETWORK_ROUND_SECONDS, rounds

from .networks import _module

TOLERANCES = {"float16": 2e-2, "float32": 1e-3, "tf32": 1e-2}  # relative, of the norm of the difference


@dataclass(frozen=True)
class Case:
    """`products`: float16 and float32 are the format of images too; tf32: float32 images, reduced precision."""

    network: str
    shape: tuple[int, int, int]
    batch: int
    products: str = "float16"

    @property
    def name(self) -> str:
        return f"{self.network} {self.products}, batch {self.batch}"

    @property
    def dtype(self) -> str:
        return "float16" if self.products == "float16" else "float32"


PIXELS = (3, 224, 224)
CASES = [
    *(Case("resnet50", PIXELS, batch) for batch in (1, 32, 256)),
    Case("resnet50", PIXELS, 32, "tf32"),
    *(Case("mobilenet_v2", PIXELS, batch) for batch in (1, 32, 256)),
    Case("densenet121", PIXELS, 32),
    Case("vgg16", PIXELS, 32),
    Case("squeezenet1_1", PIXELS, 32),
    Case("unet", (3, 256, 256), 8),
    Case("espcn", (1, 540, 960), 1),
    Case("style_transfer", (3, 512, 512), 1),
]


def _result(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


class Ours:
    """A network with an image and a result on the device."""

    def __init__(self, case: Case, module: Any, x: np.ndarray, device: mpscnn.Device) -> None:
        start = time.perf_counter()
        self.device = device
        self.network = mpscnn.load(
            module,
            input_shapes=(1, *case.shape),
            dtype=case.dtype,
            device=device,
            allow_reduced_precision=case.products == "tf32",
        )
        self.image = mpscnn.Image.from_array(x.astype(case.dtype), layout="NCHW", device=device)
        commands = mpscnn.CommandBuffer(device)
        result = self.network.encode(commands, self.image)
        self.results = list(result) if isinstance(result, tuple) else [result]
        commands.commit()
        commands.wait()
        self.first_seconds = time.perf_counter() - start  # with plans that are not on disk yet
        for _ in range(4):
            self()

    def __call__(self) -> None:
        self.start().wait()

    def start(self) -> mpscnn.CommandBuffer:
        commands = mpscnn.CommandBuffer(self.device)
        self.network.encode(commands, self.image, out=self.results)
        commands.commit()
        return commands

    def array(self) -> np.ndarray:
        return np.asarray(self.results[0].numpy(layout="NCHW"), np.float32)

    def pipelined(self, count: int = 30) -> float:
        """Return the seconds of a call when many are in flight: the GPU's time."""
        least = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(count):
                last = self.start()
            last.wait()
            least = min(least, time.perf_counter() - start)
        return least / count


def _theirs(case: Case, module: Any, x: np.ndarray) -> tuple[Callable[[], Any], np.ndarray]:
    """Return a call of the compiled module, and its result."""
    import torch
    import torch._inductor.config as inductor

    inductor.freezing = True
    torch.backends.cudnn.benchmark = True
    is_reduced = case.products != "float32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_reduced
    torch._dynamo.reset()
    dtype = getattr(torch, case.dtype)
    module = module.cuda().to(dtype).to(memory_format=torch.channels_last)
    image = torch.from_numpy(x).cuda().to(dtype).to(memory_format=torch.channels_last)
    compiled = torch.compile(module, mode="reduce-overhead")

    def call() -> Any:
        result = compiled(image)
        torch.cuda.synchronize()
        return result

    for _ in range(4):
        result = call()
    return call, _result(result).float().cpu().numpy()


def ceilings() -> dict[str, float]:
    """Return the bytes per second of a large copy, and the operations per second of large products."""
    import torch

    def seconds(call: Callable[[], Any]) -> float:
        times = []
        for _ in range(20):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
        return statistics.median(times)

    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    found = {"bytes_per_second": 2 * a.numel() / seconds(lambda: b.copy_(a))}
    size = 8192
    for name, dtype in (("float16", torch.float16), ("tf32", torch.float32)):
        torch.backends.cuda.matmul.allow_tf32 = True
        c = torch.randn(size, size, dtype=dtype, device="cuda")
        found[name] = 2 * size**3 / seconds(lambda c=c: c @ c)
    return found


def layers(case: Case, ours: Ours, limits: dict[str, float]) -> list[dict[str, Any]]:
    """Return the time of each kernel, and its share of the roofline."""
    best: dict[str, float] = {}
    for _ in range(5):
        with mpscnn.profile() as profile:
            ours.network(np.zeros((case.batch, *case.shape), case.dtype))
        for event in profile.events:
            if event.kind == "execute":
                best[event.name] = min(event.duration, best.get(event.name, float("inf")))
    item = 2 if case.dtype == "float16" else 4
    rows = []
    for layer in ours.network.layers((case.batch, *case.shape)):
        if layer.name not in best:
            continue
        moved = sum(int(np.prod(shape)) for shape in (*layer.input_shapes, layer.output_shape)) + layer.parameters
        floor = max(item * moved / limits["bytes_per_second"], layer.flops / limits.get(case.products, np.inf))
        rows.append(
            {
                "layer": layer.name,
                "kernel": layer.kernel,
                "seconds": best[layer.name],
                "roofline": floor,
                "share": floor / best[layer.name],
            }
        )
    return rows


def measure(case: Case, device: mpscnn.Device, seconds: float) -> tuple[dict[str, Any], Ours]:
    """Compare the results, then time both in alternation."""
    module = _module(case.network)
    x = np.random.default_rng(0).standard_normal((case.batch, *case.shape), dtype=np.float32)
    ours = Ours(case, module, x, device)
    call, expected = _theirs(case, module, x)
    difference = float(np.linalg.norm(ours.array().reshape(expected.shape) - expected) / np.linalg.norm(expected))
    if not difference <= TOLERANCES[case.products]:
        raise AssertionError(f"{case.name}: the results differ by {difference:.1e} of their norm")
    samples = rounds({"ours": ours, "torch.compile": call}, seconds, round_seconds=NETWORK_ROUND_SECONDS)
    return {
        "case": case.name,
        "seconds": {name: statistics.median(values) for name, values in samples.items()},
        "ratio": statistics.median(b / a for a, b in zip(samples["ours"], samples["torch.compile"], strict=True)),
        "pipelined": ours.pipelined(),
        "first": ours.first_seconds,
        "difference": difference,
        "images_per_second": case.batch / statistics.median(samples["ours"]),
    }, ours


def run(
    seconds: float = 1.0, case: str = "", device: str = "cuda:0", *, by_layer: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Return measurements as dicts. `case` is a part of a name."""
    gpu = mpscnn.Device(device)
    limits = ceilings()
    results: dict[str, Any] = {"gpu": gpu.name, "ceilings": limits, "networks": []}
    if not quiet:
        print(
            f"{gpu.name}, {time.strftime('%Y-%m-%d')}: copy {limits['bytes_per_second'] / 1e12:.2f} TB/s, products of"
            f" float16 {limits['float16'] / 1e12:.0f}, tf32 {limits['tf32'] / 1e12:.0f} TFLOP/s"
        )
        print(
            f"{'network':<32} {'ours ms':>9} {'torch ms':>9} {'torch/ours':>10} {'pipelined':>9} {'images/s':>9}"
            f" {'first s':>8} {'difference':>10}"
        )
    for one in CASES:
        if case not in one.name:
            continue
        row, ours = measure(one, gpu, seconds)
        if by_layer:
            row["layers"] = layers(one, ours, limits)
        results["networks"].append(row)
        if not quiet:
            times = row["seconds"]
            print(
                f"{one.name:<32} {times['ours'] * 1e3:>9.3f} {times['torch.compile'] * 1e3:>9.3f} {row['ratio']:>10.2f}"
                f" {row['pipelined'] * 1e3:>9.3f} {row['images_per_second']:>9.0f} {row['first']:>8.1f}"
                f" {row['difference']:>10.0e}"
            )
            for layer in row.get("layers", []):
                print(
                    f"    {layer['layer']:<40} {layer['kernel']:<24} {layer['seconds'] * 1e6:>9.1f} us"
                    f" {layer['share']:>6.0%} of the roofline"
                )
            sys.stdout.flush()
    return results
