# SPDX-License-Identifier: Apache-2.0
"""Paths of models: paths that are not regular files, mapped and read files, descriptors."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx_support import model

import mpscnn
from mpscnn.importing import weights_files
from network.graphs import residual
from support import run_python

SUFFIXES = (".mpscnn", ".onnx", ".safetensors", ".npz", ".pt", ".pth", ".bin")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


PLACES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": listening,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "nothing": lambda path: None,
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file(place: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are never read: the device would fill the memory, the pipe would block."""
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    path = Path(f"x{suffix}")
    PLACES[place](path)
    with pytest.raises(mpscnn.InvalidModelError, match=rf'"x\{suffix}"'):
        mpscnn.load(path)


@pytest.mark.parametrize("command", ["info", "verify"])
def test_a_pipe_on_the_command_line(command: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.onnx")
    ran = subprocess.run(
        [sys.executable, "-m", "mpscnn", command, tmp_path / "x.onnx"], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.replace("\n", " ").endswith("is not a regular file. ")


# ---- mapped or read

WEIGHTS = {"conv.weight": np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)}
LAYERS = [("conv", "Conv2d")]


def as_onnx(folder: Path) -> Path:
    proto = model(
        [onnx.helper.make_node("Conv", ["x", "w"], ["y"], "conv")],
        {"x": ("n", 3, 4, 4)},
        ["y"],
        w=WEIGHTS["conv.weight"],
    )
    onnx.save(proto, folder / "x.onnx", save_as_external_data=True, location="x.data", size_threshold=0)
    return folder / "x.data"


def as_safetensors(folder: Path) -> Path:
    with (folder / "x.safetensors").open("wb") as file:
        weights_files.write_safetensors(file, WEIGHTS, {})
    return folder / "x.safetensors"


def as_torch(folder: Path) -> Path:
    torch.save({name: torch.from_numpy(array) for name, array in WEIGHTS.items()}, folder / "x.pt")
    return folder / "x.pt"


def as_network(folder: Path) -> Path:
    mpscnn.load(WEIGHTS, layers=LAYERS, input_shapes=(1, 3, 4, 4)).save(folder / "x.mpscnn")
    return folder / "x.mpscnn"


def as_folder(folder: Path) -> Path:
    return as_safetensors(folder)


FORMATS = {
    "x.onnx": as_onnx,
    "x.safetensors": as_safetensors,
    "x.pt": as_torch,
    "x.mpscnn": as_network,
    ".": as_folder,
}


def loaded(path: Path, **options: Any) -> mpscnn.Network:
    if path.suffix not in (".onnx", ".mpscnn"):
        options = {"layers": LAYERS, "input_shapes": (1, 3, 4, 4), **options}
    return mpscnn.load(path, **options)


@pytest.mark.parametrize("name", FORMATS)
def test_files_that_are_read_may_change(name: str, tmp_path: Path) -> None:
    """Overwritten before the first run, and truncated: with a mapping, other numbers or SIGBUS."""
    file = FORMATS[name](tmp_path)
    net = loaded(tmp_path / name, mapped=False)
    assert str(file) not in Path("/proc/self/maps").read_text()
    expected = mpscnn.load(WEIGHTS, layers=LAYERS, input_shapes=(1, 3, 4, 4))
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 4)).astype(np.float32)
    file.write_bytes(b"")
    np.testing.assert_array_equal(net(x), expected(x))
    net.save(tmp_path / "again.mpscnn")
    np.testing.assert_array_equal(mpscnn.load(tmp_path / "again.mpscnn")(x), expected(x))


@pytest.mark.parametrize("name", FORMATS)
def test_files_are_mapped_by_default(name: str, tmp_path: Path) -> None:
    file = FORMATS[name](tmp_path)
    net = loaded(tmp_path / name)
    assert str(file) in Path("/proc/self/maps").read_text()
    del net
    gc.collect()
    assert str(file) not in Path("/proc/self/maps").read_text()


def test_mapped_is_true_or_false(tmp_path: Path) -> None:
    mpscnn.Network(residual()).save(tmp_path / "x.mpscnn")
    for path in (tmp_path / "x.mpscnn", tmp_path / "x.onnx"):
        with pytest.raises(TypeError, match=r"^mapped \(int\) is not True or False\.$"):
            mpscnn.load(path, mapped=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["x.onnx", "x.safetensors", "x.mpscnn", "."])
def test_files_are_not_kept_open(name: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    nets = [loaded(tmp_path / name) for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(nets) == 5


def test_a_process_may_end_with_files_mapped(tmp_path: Path) -> None:
    """Files are not unmapped while the queue still reads them."""
    as_network(tmp_path)
    run_python(
        """
        import sys, threading, time
        import numpy as np
        import mpscnn

        net = mpscnn.load(sys.argv[1])
        x = np.ones((64, 3, 64, 64), np.float32)
        def loop():
            while True:
                net(x)
        threading.Thread(target=loop, daemon=True).start()
        time.sleep(0.1)
        """,
        str(tmp_path / "x.mpscnn"),
    )
