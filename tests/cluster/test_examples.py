# SPDX-License-Identifier: Apache-2.0
"""The examples with a real Ray and a real Spark on this machine: make test-cluster.

The packages are not in the group "test" of pyproject.toml: with them, an environment has 1.2 GB more and takes 1 to 2.5
minutes more to install. Without them the tests are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "cluster"
PICTURES = 2000


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed: make test-cluster")


def run(program: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, str(EXAMPLES / program), *map(str, arguments), "--json"]
    package = str(Path(sys.modules["mpscnn"].__file__ or "").parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.slow
@needs("ray", "pandas", "pyarrow", "skimage", "safetensors")
@pytest.mark.parametrize("kill", [False, True], ids=["whole", "killed"])
def test_ray_data(kill: bool) -> None:
    """Also if an actor is killed by SIGKILL while it works: its batches are computed again."""
    report = run("ray_data.py", PICTURES, "--size", 24, "--batch", 32, *(["--kill"] if kill else []))
    assert (report["pictures"], report["killed"]) == (PICTURES, kill)
    assert report["missing"] == 0
    assert report["max_difference_from_one_process"] < 1e-6
    assert report["processes"] >= 1


RAY_WEIGHTS = r"""
import re
import numpy as np, ray, mpscnn
from mpscnn.adapters import Predictor

@ray.remote(num_cpus=1)
class Worker:
    def __init__(self, model):
        self.predictor = Predictor(model) if isinstance(model, mpscnn.Network) else model

    def compute(self, batch):
        # The result, and whether the weights are in the shared memory of the object store.
        result = self.predictor(batch)["y"]
        (node,) = [node for node in self.predictor.network.graph.nodes if "weight" in node.arguments]
        address = node.arguments["weight"].ctypes.data
        ranges = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*plasma", open("/proc/self/maps").read(), re.M)
        return result, any(int(first, 16) <= address < int(end, 16) for first, end in ranges)

graph = mpscnn.Graph()
x = graph.input("x", channels=1024, layout="NCHW")
weight = np.random.default_rng(0).normal(0, 0.01, (1024, 1024, 3, 3)).astype(np.float32)
graph.output(graph.add("Convolution", x, weight=weight, padding=1), "y", layout="NCHW")
net = mpscnn.Network(graph)
batch = {"x": np.random.default_rng(1).random((1, 1024, 4, 4), np.float32)}
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False)
for model in (Predictor(net), net):
    stored = ray.put(model)
    workers = [Worker.remote(stored) for _ in range(2)]
    for found, is_stored in ray.get([worker.compute.remote(batch) for worker in workers]):
        np.testing.assert_allclose(found, net(batch["x"]), rtol=1e-5, atol=1e-5)
        print("in the store" if is_stored else "copied")
    del workers
"""


@pytest.mark.slow
@needs("ray")
@pytest.mark.skipif(sys.platform == "darwin", reason="the test reads /proc")
def test_ray_has_weights_once() -> None:
    """Actors of a machine read the weights in the object store, which has them once."""
    package = str(Path(sys.modules["mpscnn"].__file__ or "").parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", RAY_WEIGHTS], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == 4 * ["in the store"] + [""]


@pytest.mark.slow
@needs("pyspark", "pandas", "pyarrow", "skimage", "safetensors")
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17: make test-cluster")
def test_spark() -> None:
    report = run("spark_udf.py", PICTURES, "--size", 16, "--batch", 32)
    assert report["pictures"] == PICTURES
    for way in ("predict_batch_udf", "mapInPandas", "mapInArrow"):
        assert report[way]["missing"] == 0
        assert report[way]["max_difference_from_one_process"] < 1e-6


@needs("dask")
def test_dask() -> None:
    """Blocks of a Dask array in processes of its own scheduler."""
    from dask import array, config

    import mpscnn
    from mpscnn.adapters import Predictor

    from .conftest import classifier

    net: mpscnn.Network = classifier()
    x = np.random.default_rng(0).random((12, 3, 8, 9), np.float32)
    predict = Predictor(net).make_predict_fn()
    blocks = array.from_array(x, chunks=(4, 3, 8, 9)).map_blocks(
        predict, dtype=np.float32, chunks=(4, 5), drop_axis=[2, 3], meta=np.empty((0, 0), np.float32)
    )
    with config.set(scheduler="threads"):
        np.testing.assert_allclose(blocks.compute(), net(x), rtol=1e-5)
