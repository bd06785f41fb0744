# SPDX-License-Identifier: Apache-2.0
"""Every command that reads a model, with a file written by torch.export.save."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import mpscnn

from .conftest import normal

torch = pytest.importorskip("torch")

TORCH = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU())
"""


def saved(path: Path, dynamic: bool) -> Path:
    scope: dict = {}
    exec(TORCH, scope)
    auto = torch.export.Dim.AUTO
    shapes = ({0: auto, 2: auto, 3: auto},) if dynamic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(scope["make"]().eval(), (torch.rand(2, 3, 16, 12),), dynamic_shapes=shapes)
        torch.export.save(program, path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """(N, 3, 16, 12) to (N, 4, 16, 12)."""
    return saved(tmp_path / "model.pt2", dynamic=False)


def test_help_offers_it(run) -> None:
    for command in ("convert", "run", "bench", "verify", "trace", "plot"):
        assert ".pt2 (torch.export" in run(command, "--help").out


def test_info(run, model: Path, tmp_path: Path) -> None:
    found = run("info", model, "--json").json
    assert found["inputs"][0]["shape"] == [1, 3, 16, 12]
    assert found["totals"]["parameters"] == 4 * 27 + 4
    free = saved(tmp_path / "free.pt2", dynamic=True)
    ran = run("info", free)
    assert (ran.status, ran.out) == (1, "")
    assert "takes any size (NCHW: 1x3x?x?): say which with --input-shape" in ran.message
    assert run("info", free, "--input-shape", "2x3x8x9", "--json").json["inputs"][0]["shape"] == [2, 3, 8, 9]


def test_convert_and_run(run, model: Path, tmp_path: Path) -> None:
    assert run("convert", model, tmp_path / "net.mpscnn").status == 0
    x = normal(1, 2, 3, 16, 12)
    expected = mpscnn.load(model)(x)
    np.testing.assert_array_equal(mpscnn.load(tmp_path / "net.mpscnn")(x), expected)
    np.save(tmp_path / "x.npy", x)
    ran = run("run", model, tmp_path / "x.npy", "-o", tmp_path / "results", "--as", "array")
    assert ran.status == 0, ran.err
    found = [np.load(file) for file in sorted((tmp_path / "results").rglob("*.npy"))]
    np.testing.assert_array_equal(np.concatenate([y.reshape(-1, *expected.shape[1:]) for y in found]), expected)


@pytest.mark.parametrize("command", ["bench", "verify", "trace", "plot"])
def test_other_commands(command: str, run, model: Path, tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "net.svg"
    options = {
        "bench": ["--batch", 1, "--seconds", 0.01, "--json"],
        "verify": ["--json"],
        "trace": ["-o", trace],
        "plot": ["-o", picture],
    }[command]
    ran = run(command, model, *options)
    assert ran.status == 0, ran.err
    if command == "verify":
        assert ran.json["agrees"]
    elif command == "trace":
        assert json.loads(trace.read_text())["traceEvents"]
    elif command == "plot":
        assert "<svg" in picture.read_text()
    else:
        assert ran.json["comparisons"]


def test_with_its_module(run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_pt2.py").write_text(TORCH)
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = run("verify", model, "--torch", "module_of_pt2:make", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["agrees"]


def test_a_file_that_would_run_code(run, tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
    ran = run("info", path)
    assert (ran.status, ran.out) == (1, "")
    assert "mpscnn.load(torch.export.load(" in ran.message
