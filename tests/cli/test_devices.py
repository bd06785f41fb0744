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
from mpscnn.cli import bench, cuda
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
    folder, of_cpu = tmp_path / "mpscnn" / "cuda", tmp_path / "mpscnn" / "cpu"
    empty = {"folders": [str(of_cpu), str(folder)], "files": 0, "bytes": 0, "removed_files": 0, "removed_bytes": 0}
    assert cache(tmp_path) == cache(tmp_path, "--clear") == empty
    assert not folder.exists()
    folder.mkdir(parents=True)
    for name, size in ((f"kernel-{HASH}", 5), (f"plan-{HASH}", 7), (f"plan-{HASH}.123", 1), ("notes", 100)):
        (folder / name).write_bytes(bytes(size))
    of_cpu.mkdir()
    (of_cpu / f"choices-{HASH}").write_bytes(bytes(20))
    assert cache(tmp_path) == empty | {"files": 4, "bytes": 33}
    assert cache(tmp_path, "--clear") == empty | {"removed_files": 4, "removed_bytes": 33}
    assert [path.name for path in (*folder.iterdir(), *of_cpu.iterdir())] == ["notes"]


def test_cache_as_text(run) -> None:
    ran = run("cache")
    assert ran.status == 0
    assert "folder" in ran.out
    assert str(cuda.cache_folder("cpu") or "none") in ran.out
    ran = run("cache", "--help")
    assert "--clear" in ran.out
    assert "--json" in ran.out


def test_a_folder_that_cannot_be_read_is_one_sentence(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(folder: Path) -> dict[Path, int]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("mpscnn.cli.cache.cached_files", refuse)
    monkeypatch.setattr("mpscnn.cli.cache.cache_folder", lambda engine: tmp_path)
    ran = run("cache")
    assert (ran.status, ran.out) == (1, "")
    assert "Permission denied" in ran.message


def test_bench_on_several_devices(run, classifier: Path, cuda_host: mpscnn.Device) -> None:
    """Each alone and all at once; the device of each copy computes."""
    cuda_host.reset_peak_bytes()
    before = cuda_host.peak_bytes
    ran = run("bench", classifier, "--seconds", 0, "--batch", "1,2", "--device", "cpu,cuda-host", "--json")
    assert ran.status == 0, ran.err
    assert cuda_host.peak_bytes > before
    assert ran.json["machines"]["cuda-host"]["device"] == cuda_host.name
    assert [one["batch"] for one in ran.json["together"]] == [1, 2]
    for one in ran.json["together"]:
        assert [rates["name"] for rates in one["devices"]] == ["cpu", "cuda-host"]
        assert all(rates["alone"] > 0 and rates["together"] > 0 for rates in one["devices"])
    ran = run("bench", classifier, "--seconds", 0, "--device", "cpu,cuda-host")
    assert ran.status == 0
    lines = [line.split() for line in ran.out.splitlines() if line.strip()]
    assert lines[0] == ["batch", "device", "images/s", "at", "once", "ratio"]
    assert [line[1] for line in lines[2:]] == ["cpu", "cuda-host", "all"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cpu,cpu"], '"cpu,cpu" names a device twice'),
        (["--device", "cpu,split", "--reduced-precision"], "several devices are timed without --against"),
    ],
)
def test_wrong_use_of_several_devices(run, classifier: Path, options: list[str], message: str) -> None:
    ran = run("bench", classifier, *options)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.message


def test_all_devices_are_the_gpus(run, classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, the driver's reason is the error."""
    made: list[str] = []

    def device(name: str) -> None:
        if name == "cuda:2":
            raise ValueError("cuda:2 is not one of the 2 devices of NVIDIA's driver.")
        made.append(name)

    with monkeypatch.context() as patch:
        patch.setattr(mpscnn, "Device", device)
        assert bench._gpus() == made == ["cuda:0", "cuda:1"]
    monkeypatch.setattr(bench, "_gpus", lambda: ["cpu", "split"])
    ran = run("bench", classifier, "--seconds", 0, "--device", "all", "--json")
    assert list(ran.json["machines"]) == ["cpu", "split"]
    monkeypatch.undo()

    def refuse(name: str) -> None:
        raise ValueError(f"The device {name} cannot be made: no driver.")

    monkeypatch.setattr(mpscnn, "Device", refuse)
    ran = run("bench", classifier, "--device", "all")
    assert (ran.status, ran.out, ran.message) == (1, "", "mpscnn: The device cuda:0 cannot be made: no driver.")
