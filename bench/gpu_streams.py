# SPDX-License-Identifier: Apache-2.0
"""Streams of uint8 images on GPUs: ``python -m bench gpu_streams [--device cuda:0 | all]``.

ResNet-50 in float16 with the images' normalization, batches of 32. The rate of `Network.stream()` from arrays of the
host, in two layouts and with several batches in flight, beside the rate of images that stay on the GPU; in turn, after
one run of each. With ``--device all``, also the streams of all GPUs at the same time, from one thread each.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import mpscnn
from mpscnn.cli.bench import device_names
from mpscnn.layers import aligned

from .networks import _module

BATCH = 32
BATCHES = 100  # of a run; half as many different ones, which exceed the host's caches
ROUNDS = 4
IN_FLIGHT = (3, 4, 5)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class _Resident:
    """Batches that stay on the GPU, with results in turn."""

    def __init__(self, network: mpscnn.Network, device: mpscnn.Device, batches: list[np.ndarray]) -> None:
        self.network, self.device = network, device
        self.images = [mpscnn.Image.from_array(batch, layout="NCHW", device=device) for batch in batches]
        self.results: list[Any] = [None] * len(batches)

    def __call__(self) -> None:
        for number in range(BATCHES):
            commands = mpscnn.CommandBuffer(self.device)
            at = number % len(self.images)
            self.results[at] = self.network.encode(commands, self.images[at], out=self.results[at])
            commands.commit()
        commands.wait()


def _consume(network: mpscnn.Network, batches: list[np.ndarray], in_flight: int) -> None:
    for _ in network.stream((batches[number % len(batches)] for number in range(BATCHES)), in_flight=in_flight):
        pass


def _rate(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return BATCH * BATCHES / (time.perf_counter() - start)


def _together(runs: list[Callable[[], None]]) -> list[float]:
    """Return the rates of runs that begin at the same time."""
    rates = [0.0] * len(runs)
    begin = threading.Barrier(len(runs))

    def measure(index: int) -> None:
        begin.wait()
        rates[index] = _rate(runs[index])

    threads = [threading.Thread(target=measure, args=(index,)) for index in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rates


def run(device: str = "cuda:0", *, quiet: bool = False) -> dict[str, Any]:
    """Return `gpus`, and `rows`: dicts of `case` and `images_per_second`, medians of `ROUNDS`, a number per GPU."""
    gpus = [mpscnn.Device(name or "") for name in device_names(device)]
    module = _module("resnet50")
    networks = [
        mpscnn.load(module, input_shapes=(1, 3, 224, 224), dtype="float16", mean=MEAN, std=STD, device=gpu)
        for gpu in gpus
    ]
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (BATCHES // 2, BATCH, 224, 224, 3), dtype=np.uint8)
    adjacent = [row.transpose(0, 3, 1, 2) for row in rows]
    planes = [np.ascontiguousarray(batch) for batch in adjacent]
    cases: dict[str, list[Callable[[], None]]] = {
        "images stay on the GPU": [
            _Resident(network, gpu, adjacent[:8]) for network, gpu in zip(networks, gpus, strict=True)
        ]
    }
    for title, batches in (("channels are adjacent", adjacent), ("N, C, H, W", planes)):
        for in_flight in IN_FLIGHT:
            cases[f"stream, {title}, {in_flight} in flight"] = [
                lambda network=network, batches=batches, in_flight=in_flight: _consume(network, batches, in_flight)  # type: ignore[misc]
                for network in networks
            ]
    samples: dict[str, list[list[float]]] = {}
    for number in range(ROUNDS + 1):
        for case, runs in cases.items():
            rates = [_rate(one) for one in runs]
            if number:
                samples.setdefault(case, []).append(rates)
            if len(runs) > 1:
                rates = _together(runs)
                if number:
                    samples.setdefault(f"{case}, together", []).append(rates)
    result: dict[str, Any] = {
        "gpus": [gpu.name for gpu in gpus],
        "rows": [
            {"case": case, "images_per_second": [statistics.median(rates) for rates in zip(*rounds, strict=True)]}
            for case, rounds in samples.items()
        ],
    }
    if not quiet:
        print(f"{', '.join(result['gpus'])}, {time.strftime('%Y-%m-%d')}: images/s of each")
        lines = [(row["case"], *(f"{rate:.0f}" for rate in row["images_per_second"])) for row in result["rows"]]
        print(aligned(("ResNet-50 float16, batch 32", *result["gpus"]), lines, right=len(gpus)))
        sys.stdout.flush()
    return result
