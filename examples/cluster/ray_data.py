# SPDX-License-Identifier: Apache-2.0
"""Enlarge pictures with actors of Ray Data, each with its own network and cores.

The pictures are pieces of scikit-image's photographs, the network is that of examples/super_resolution. Everything runs
on this machine, in a Ray of its own; on a cluster, connect with ray.init("auto") and put the network on a file system
that all machines have. With --kill, the first actor is killed by SIGKILL while it works: Ray starts another one, which
computes its batches again. The results are compared with those of one process.

    pip install "ray[data]" scikit-image safetensors
    python examples/cluster/ray_data.py [COUNT] [--actors N] [--threads N] [--kill] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
from pictures import pictures, super_resolution
from ray.data import ActorPoolStrategy

import mpscnn
from mpscnn.adapters import Predictor


class Worker(Predictor):
    """Predictor that also returns the process that computed each row, to count the actors."""

    def __init__(self, model: str, kill_once: str | None, **options: Any) -> None:
        super().__init__(model, **options)
        self.kill_once = kill_once

    def __call__(self, batch: Any) -> Any:
        result = super().__call__(batch)
        if self.kill_once is not None:
            try:
                os.close(os.open(self.kill_once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)  # the result of this batch is lost
        result["process"] = np.full(len(batch["id"]), os.getpid())
        return result


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("count", nargs="?", type=int, default=512, help="number of pictures (default: %(default)s)")
    parser.add_argument("--size", type=int, default=64, help="their height and width (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="pictures in a batch (default: %(default)s)")
    parser.add_argument("--actors", type=int, default=2, help="number of actors (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="cores of each actor (default: %(default)s)")
    parser.add_argument("--kill", action="store_true", help="kill the first actor while it works")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args(arguments)


def enlarge(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    model = folder / "enlarge.mpscnn"
    super_resolution().save(model)
    data = pictures(options.count, options.size)

    dataset = ray.data.from_items([{"id": i, "picture": picture} for i, picture in enumerate(data)])
    start = time.perf_counter()
    results = dataset.map_batches(
        Worker,
        fn_constructor_args=(str(model), str(folder / "killed") if options.kill else None),
        fn_constructor_kwargs={"keep": ["id"], "threads": options.threads},
        batch_size=options.batch,
        num_cpus=options.threads,
        compute=ActorPoolStrategy(size=options.actors),
    )
    rows = {int(row["id"]): row for row in results.iter_rows()}
    seconds = time.perf_counter() - start

    expected = np.asarray(mpscnn.load(model)(data))
    (output,) = mpscnn.load(model).outputs
    difference = max(
        (float(np.abs(rows[i][output] - expected[i]).max()) for i in range(options.count) if i in rows), default=0.0
    )
    return {
        "pictures": options.count,
        "missing": options.count - len(rows),
        "processes": len({int(row["process"]) for row in rows.values()}),
        "killed": (folder / "killed").exists(),
        "max_difference_from_one_process": difference,
        "seconds": seconds,
        "pictures_per_second": options.count / seconds,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    here = str(Path(__file__).resolve().parent)
    # Two more cores than the actors have, for Ray's own tasks.
    ray.init(
        num_cpus=options.actors * options.threads + 2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}},
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        with tempfile.TemporaryDirectory() as folder:
            report = enlarge(options, Path(folder))
    finally:
        ray.shutdown()
    if options.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name.replace('_', ' '):<34}{value}")
    return 0 if report["missing"] == 0 and report["max_difference_from_one_process"] < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
