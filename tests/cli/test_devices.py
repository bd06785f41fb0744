# SPDX-License-Identifier: Apache-2.0
"""--device, what info shows of CUDA, and mpscnn cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn.cli import cuda
from support import only_openmps

on_linux = pytest.mark.skipif(sys.platform == "darwin", reason="openmps is Linux only")
HASH = "0123456789abcdef" * 2


def commands(model: Path, pictures: Path) -> dict[str, list[object]]:
    return {
        "run": ["run", model, pictures],
        "bench": ["bench", model, "--seconds", 0, "--reduced-precision"],
        "verify": ["verify", model, "--against", "kernels"],
        "trace": ["trace", model, "-o", model.parent / "trace.json"],
    }


@pytest.mark.parametrize("command", ["run", "bench", "verify", "trace"])
def test_commands_run_on_the_device(
    run, classifier: Path, pictures: Path, cuda_host: mpscnn.Device, command: str
) -> None:
    cuda_host.reset_peak_bytes()
    before = cuda_host.peak_bytes
    ran = run(*commands(classifier, pictures)[command], "--device", "cuda-host", "--json")
    assert ran.status == 0, ran.err
    assert cuda_host.peak_bytes > before
    if command == "bench":
        assert ran.json["machine"]["device"] == cuda_host.name


def test_results_are_those_of_the_default_device(
    run, classifier: Path, pictures: Path, cuda_host: mpscnn.Device
) -> None:
    del cuda_host
    one, other = (
        run("run", classifier, pictures, "--json", *options).json["results"]
        for options in ([], ["--device", "cuda-host"])
    )
    for a, b in zip(one, other, strict=True):
        assert [c["index"] for c in a["classes"]] == [c["index"] for c in b["classes"]]
        np.testing.assert_allclose(*([c["score"] for c in r["classes"]] for r in (a, b)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("command", ["run", "bench", "verify", "trace"])
def test_a_device_that_does_not_exist_is_one_sentence(run, classifier: Path, pictures: Path, command: str) -> None:
    ran = run(*commands(classifier, pictures)[command], "--device", "tpu")
    assert (ran.status, ran.out) == (1, "")
    assert ran.message.startswith('mpscnn: Device: name ("tpu") is not one of "')


# ---- info


def test_info_lists_devices(run) -> None:
    found = run("info", "--json").json
    assert [one["name"] for one in found["devices"]] == [one.name for one in mpscnn.Device.all()]
    assert found["device"]["engine"] == found["devices"][0]["engine"]
    assert found["device"]["others"] == [one["name"] for one in found["devices"][1:]]


@on_linux
def test_info_shows_what_cuda_finds(run) -> None:
    found = run("info", "--json").json["cuda"]
    assert (found["driver"] is None) == bool(found["missing"])
    assert list(found["libraries"]) == ["NVRTC", "cuBLASLt", "cuDNN"]
    for library in found["libraries"].values():
        assert bool(library["file"]) != bool(library["missing"])
    text = run("info").out
    assert (found["missing"] or f"the driver supports {found['driver']}") in text


@on_linux
@only_openmps("devices have no engines there")
def test_info_of_a_gpu(run, cuda_host: mpscnn.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report with cuda-host in place of a GPU."""
    libraries = {"NVRTC": {"file": "libnvrtc.so.13", "missing": None}, "cuDNN": {"file": None, "missing": "None here."}}
    report = {
        "driver": "13.0",
        "missing": None,
        "compute_capabilities": {"cuda-host": "9.0"},
        "libraries": libraries,
    }
    monkeypatch.setattr(cuda, "report", lambda: report)
    monkeypatch.setattr(mpscnn.Device, "all", staticmethod(lambda: [mpscnn.Device(), cuda_host]))
    found = run("info", "--json").json["devices"][-1]
    assert found == {"name": cuda_host.name, "engine": "cuda-host", "compute_capability": "9.0"}
    text = run("info").out
    for part in ("(cuda-host, compute capability 9.0)", "the driver supports 13.0", "libnvrtc.so.13", "None here."):
        assert part in text


# ---- cache


def cache(home: Path, *options: str) -> Any:
    """Run the command in a process of its own: the folder is found once per process."""
    command = [sys.executable, "-m", "mpscnn", "cache", "--json", *options]
    environment = os.environ | {"XDG_CACHE_HOME": str(home)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    return json.loads(ran.stdout)


@on_linux
def test_cache(tmp_path: Path) -> None:
    folder = tmp_path / "mpscnn" / "cuda"
    empty = {"folder": str(folder), "files": 0, "bytes": 0, "removed_files": 0, "removed_bytes": 0}
    assert cache(tmp_path) == cache(tmp_path, "--clear") == empty
    assert not folder.exists()
    folder.mkdir(parents=True)
    for name, size in ((f"kernel-{HASH}", 5), (f"plan-{HASH}", 7), (f"plan-{HASH}.123", 1), ("notes", 100)):
        (folder / name).write_bytes(bytes(size))
    assert cache(tmp_path) == empty | {"files": 3, "bytes": 13}
    assert cache(tmp_path, "--clear") == empty | {"removed_files": 3, "removed_bytes": 13}
    assert [path.name for path in folder.iterdir()] == ["notes"]


def test_cache_as_text(run) -> None:
    ran = run("cache")
    assert ran.status == 0
    assert "folder" in ran.out
    assert str(cuda.cache_folder() or "none") in ran.out
    ran = run("cache", "--help")
    assert "--clear" in ran.out
    assert "--json" in ran.out


def test_a_folder_that_cannot_be_read_is_one_sentence(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(folder: Path) -> dict[Path, int]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("mpscnn.cli.cache.cached_files", refuse)
    monkeypatch.setattr("mpscnn.cli.cache.cache_folder", lambda: tmp_path)
    ran = run("cache")
    assert (ran.status, ran.out) == (1, "")
    assert "Permission denied" in ran.message
