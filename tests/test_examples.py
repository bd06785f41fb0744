# SPDX-License-Identifier: Apache-2.0
"""The examples run as documented, and detect errors."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "pytorch_weights.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_pytorch_weights() -> None:
    result = run("--json")
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert report["ok"]
    assert report["result_shape"] == [2, 56, 56, 64]
    in_place = {row["weights"]: row["read_in_place"] for row in report["results"]}
    assert in_place == {
        "raw file, reordered": True,
        "raw file in MPS's order": True,
        "state_dict": False,
        "safetensors": False,
    }
    assert all(0 <= row["difference"] <= 1e-5 for row in report["results"])


@pytest.mark.parametrize(
    "geometry",
    ["--out 5 --in 6 --kernel 3 --size 17 --stride 1", "--out 1 --in 1 --kernel 1 --size 1 --stride 3 --batch 1"],
)
def test_pytorch_weights_of_other_shapes(geometry: str) -> None:
    result = run(*geometry.split())
    assert result.returncode == 0, result.stdout + result.stderr
    assert "all equal" in result.stdout
    assert result.stdout.count("largest difference") == 4


def test_weights_in_the_wrong_order_are_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A common mistake: weights (O, I, H, W) interpreted as (O, H, W, I)."""
    specification = importlib.util.spec_from_file_location("pytorch_weights", EXAMPLES / "pytorch_weights.py")
    assert specification is not None
    assert specification.loader is not None
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    assert example.main(["--size", "32"]) == 0

    def only_reshaped(weight: NDArray[Any], *_: str) -> NDArray[Any]:
        o, i, h, w = weight.shape
        return np.array(weight).reshape(o, h, w, i)

    monkeypatch.setattr(mpscnn, "reorder", only_reshaped)
    assert example.main(["--size", "32"]) == 1
    assert "DIFFERENT: more than 1e-05" in capsys.readouterr().out


@pytest.mark.parametrize(
    "program", ["classify", "detect", "segment", "upscale", "style", "node_graph", "metal_function"]
)
def test_a_missing_package_is_named(program: str, tmp_path: Path) -> None:
    (tmp_path / "tqdm.py").write_text("raise ModuleNotFoundError(\"No module named 'tqdm'\", name='tqdm')")
    folders = os.pathsep.join([str(tmp_path), str(Path(mpscnn.__file__).parents[1])])
    command = [sys.executable, str(EXAMPLES / f"{program}.py")]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": folders}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    pip = "pip install numpy pillow safetensors scikit-image tqdm"
    assert done.stderr == f"{program}: the package tqdm is not installed: {pip}.\n"


def test_folders_hide_no_packages() -> None:
    """A tutorial adds the folder to sys.path, and PyTorch tries to import triton: torch.export failed with ours."""
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert "super_resolution" in folders
    assert folders & {"onnx", "tensorrt", "torchvision", "triton"} == set()


def test_arguments_are_checked() -> None:
    result = run("--kernel", "0")
    assert result.returncode == 2
    assert "argument --kernel: 0 is less than the minimum (1)" in result.stderr
