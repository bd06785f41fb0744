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
