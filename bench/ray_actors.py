# SPDX-License-Identifier: Apache-2.0
"""Actors of Ray, each with a `mpscnn.adapters.Predictor` on a GPU of its own: images/s of one actor and of all.

    pip install ray
    python -m bench.ray_actors [--gpus N] [--cpus N] [--batch N] [--rounds N] [--json]

Two rates: actors compute one batch of the object store again and again, and they get a task for each of several
batches. Without a GPU, two actors have one processor each. Sums of the results of all actors are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray

import mpscnn
from mpscnn.adapters import Predictor

from . import networks
from .arguments import within


class Actor:
    def __init__(self, model: str, threads: int) -> None:
        self.predictor = Predictor(model, threads=threads)

    def devices(self) -> str:
        """Return the name of the GPU that Ray has assigned, or "cpu"."""
        return mpscnn.Device("cuda:0").name if os.environ.get("CUDA_VISIBLE_DEVICES") else "cpu"

    def repeat(self, batch: dict[str, np.ndarray], rounds: int, start: float) -> tuple[float, float]:
        """Wait until the time `start`, and return images/s and the sum of the last results."""
        time.sleep(max(0.0, start - time.time()))
        begin = time.perf_counter()
        for _ in range(rounds):
            results = self.predictor(batch)
        seconds = time.perf_counter() - begin
        return rounds * len(batch["x"]) / seconds, float(
            sum(np.abs(y.astype(np.float64)).sum() for y in results.values())
        )

    def once(self, batch: dict[str, np.ndarray]) -> int:
        return len(next(iter(self.predictor(batch).values())))


def together(actors: Sequence[Any], batch: Any, rounds: int) -> tuple[float, set[float]]:
    """Return the images/s of all actors, which start at the same time, and their sums."""
    start = time.time() + 0.3
    found = ray.get([actor.repeat.remote(batch, rounds, start) for actor in actors])
    return sum(rate for rate, _ in found), {total for _, total in found}


def by_tasks(actors: Sequence[Any], batches: Sequence[Any], tasks: int) -> float:
    begin = time.perf_counter()
    count = sum(
        ray.get([actors[i % len(actors)].once.remote(batches[i % len(batches)]) for i in range(tasks * len(actors))])
    )
    return float(count / (time.perf_counter() - begin))


def measure(network: str, actors: int, cpus: int, gpus: int, batch: int, rounds: int, repeats: int) -> dict[str, Any]:
    dtype = "float16" if gpus else "float32"
    shape = (batch, *networks.SHAPE)
    images = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    each = {"num_cpus": cpus, "num_gpus": 1 if gpus else 0}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, f"{network}.mpscnn")
        mpscnn.load(networks._module(network), input_shapes=shape, dtype=dtype).save(model)
        ray.init(num_cpus=actors * cpus, num_gpus=gpus, include_dashboard=False, log_to_driver=False)
        try:
            kind = ray.remote(Actor)
            made = [kind.options(**each).remote(str(model), cpus) for _ in range(actors)]
            batches = [ray.put({"x": np.roll(images, i, 0)}) for i in range(8)]
            devices = ray.get([actor.devices.remote() for actor in made])
            together(made, batches[0], max(rounds // 8, 1))  # loads and warms up
            rows = []
            for i in range(repeats):
                print(f"measurement {i + 1} of {repeats}", file=sys.stderr)
                one, _ = together(made[:1], batches[0], rounds)
                every, sums = together(made, batches[0], rounds)
                rows.append((one, every, len(sums) == 1))
            tasks = [by_tasks(some, batches, max(rounds // 2, 1)) for some in (made[:1], made)]
        finally:
            ray.shutdown()
    return {
        "network": network,
        "dtype": dtype,
        "batch": batch,
        "devices": devices,
        "processors of one": cpus,
        "images/s of one": statistics.median(one for one, _, _ in rows),
        "images/s of all": statistics.median(every for _, every, _ in rows),
        "share of linear": [every / one / actors for one, every, _ in rows],
        "same results": all(same for _, _, same in rows),
        "images/s by tasks": tasks,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ray_actors", description=(__doc__ or "").partition("\n")[0])
    gpus = sum(device.name.startswith("NVIDIA") for device in mpscnn.Device.all())
    parser.add_argument("--gpus", type=within(0, gpus), default=gpus, help="0: two actors on the CPU (default: all)")
    parser.add_argument("--cpus", type=within(1), help="processors of an actor (default: 4 with a GPU, 1 without)")
    parser.add_argument("--network", default="resnet50", help="(default: %(default)s)")
    parser.add_argument("--batch", type=within(1), default=128, help="images in a batch (default: %(default)s)")
    parser.add_argument("--rounds", type=within(1), default=40, help="batches of a measurement (default: %(default)s)")
    parser.add_argument("--repeats", type=within(1), default=3, help="measurements (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args(arguments)
    actors = given.gpus or 2
    cpus = given.cpus or (4 if given.gpus else 1)
    report = measure(given.network, actors, cpus, given.gpus, given.batch, given.rounds, given.repeats)
    if given.json:
        print(json.dumps(report))
        return 0
    for name, value in report.items():
        print(f"{name}: {[round(each, 3) for each in value] if name == 'share of linear' else value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
