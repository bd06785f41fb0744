# SPDX-License-Identifier: Apache-2.0
"""Truncation of mapped files: an exception in the call that reads them, and the process continues.

Each program runs in a separate process, which SIGBUS would end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support import only_openmps, run_python, shares_images

SENTENCE = "became shorter while it was mapped: replace files by rename, or load with mapped=False."

PROLOGUE = """
import os, signal, sys
import numpy as np, mpscnn
folder = sys.argv[1]
x = np.ones((1, 9, 9, 64), np.float32)

def graph(weight, **arguments):
    graph = mpscnn.Graph()
    value = graph.add("Convolution", graph.input("x", channels=64), weight=weight, **arguments)
    graph.output(value, "y")
    return graph

def weights():
    return np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32)

def save(name):
    mpscnn.Network(graph(weights(), padding=1)).save(folder + name)
    return folder + name

def raw(name, array):
    array.tofile(folder + name)
    return folder + name

def fails(action, *names):
    for _ in range(2):
        try:
            action()
        except RuntimeError as error:
            assert SENTENCE in str(error), error
            for name in names:
                assert name in str(error), error
        else:
            raise AssertionError("no exception")
"""

PROGRAMS: dict[str, str] = {
    "weights before the first run": """
        net = mpscnn.load(save("/net.mpscnn"))
        os.truncate(folder + "/net.mpscnn", 0)
        fails(lambda: net(x), "net.mpscnn")
    """,
    "weights before the first run, in a stream": """
        net = mpscnn.load(save("/net.mpscnn"))
        os.truncate(folder + "/net.mpscnn", 0)
        fails(lambda: list(net.stream([x, x])), "net.mpscnn")
    """,
    "weights that a run has packed, then save()": """
        net = mpscnn.load(save("/net.mpscnn"))
        y = net(x)
        os.truncate(folder + "/net.mpscnn", 4096)
        np.testing.assert_array_equal(net(x), y)
        fails(lambda: net.save(folder + "/again.mpscnn"), "net.mpscnn")
        assert not os.path.exists(folder + "/again.mpscnn")
        fails(lambda: net(x), "net.mpscnn")
    """,
    "weights of safetensors, then save()": """
        from safetensors.numpy import save_file
        save_file({"conv.weight": weights()}, folder + "/w.safetensors")
        from mpscnn.importing import weights_files
        arrays = weights_files.load(folder + "/w.safetensors")
        weight = arrays["conv.weight"]
        net = mpscnn.Network(graph(weight, padding=1))
        y = net(x)
        os.truncate(folder + "/w.safetensors", 0)
        np.testing.assert_array_equal(net(x), y)
        fails(lambda: net.save(folder + "/again.mpscnn"), "w.safetensors")
        fails(lambda: mpscnn.Network(graph(weight, padding=1)), "w.safetensors")
    """,
    "a memmap as weights of a kernel": """
        weight = np.memmap(raw("/w.bin", weights()), np.float32, "r", shape=(64, 64, 3, 3))
        os.truncate(folder + "/w.bin", 0)
        fails(lambda: mpscnn.Convolution(weight, padding=1), "w.bin")
    """,
    "a memmap when no descriptor is left": """
        import resource
        weight = np.memmap(raw("/w.bin", weights()), np.float32, "r", shape=(64, 64, 3, 3))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        os.truncate(folder + "/w.bin", 0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        fails(lambda: mpscnn.Convolution(weight, padding=1))
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        fails(lambda: mpscnn.Convolution(weight, padding=1))
    """,
    "a memmap as weights that a kernel reads when it runs": """
        weight = mpscnn.map_weights(raw("/w.bin", weights()), (64, 3, 3, 64))
        kernel = mpscnn.Convolution(weight, layout="OHWI", padding=1)
        os.truncate(folder + "/w.bin", 0)
        fails(lambda: kernel(x), "w.bin")
        commands = mpscnn.CommandBuffer()
        y = kernel.encode(commands, mpscnn.Image.from_array(x))
        commands.commit()
        try:
            commands.wait()
        except RuntimeError as error:
            assert SENTENCE in str(error)
        assert commands.status == "error", commands.status
        try:
            y.numpy()
        except RuntimeError as error:
            assert "has failed" in str(error), error
        else:
            raise AssertionError("the image was read")
    """,
    "a memmap as statistics": """
        mean = np.memmap(raw("/mean.bin", np.ones(4096, np.float32)), np.float32, "r")
        os.truncate(folder + "/mean.bin", 0)
        make = lambda: mpscnn.BatchNormalization(np.ones(4096, np.float32), np.ones(4096, np.float32), mean, mean)
        fails(make, "mean.bin")
    """,
    "a memmap as input": """
        images = np.memmap(raw("/x.bin", x), np.float32, "r", shape=x.shape)
        net = mpscnn.Network(graph(weights(), padding=1))
        kernel = mpscnn.NeuronReLU()
        y = net(images)
        os.truncate(folder + "/x.bin", 0)
        fails(lambda: net(images), "x.bin")
        fails(lambda: kernel(images), "x.bin")
        fails(lambda: net(np.asarray(images)[:, ::-1]), "x.bin")
        fails(lambda: mpscnn.Image.from_array(images, copy=True), "x.bin")
        fails(lambda: mpscnn.reorder(np.asarray(images), "OIHW", "OHWI"), "x.bin")
        np.testing.assert_array_equal(net(x), y)
    """,
    "a memmap as input and result of recorded commands": """
        net = mpscnn.Network(graph(weights(), padding=1))
        y = net(x)
        for _ in range(3):
            np.testing.assert_array_equal(net(x), y)
        images = np.memmap(raw("/x.bin", x), np.float32, "r", shape=x.shape)
        out = np.memmap(raw("/y.bin", x), np.float32, "r+", shape=x.shape)
        np.testing.assert_array_equal(net(images), y)
        np.testing.assert_array_equal(net(x, out=out), y)
        os.truncate(folder + "/x.bin", 0)
        fails(lambda: net(images), "x.bin")
        os.truncate(folder + "/y.bin", 0)
        fails(lambda: net(x, out=out), "y.bin")
        np.testing.assert_array_equal(net(x), y)
    """,
    "a memmap as input, through PyTorch": """
        import torch, warnings
        warnings.simplefilter("ignore")
        images = torch.from_numpy(np.memmap(raw("/x.bin", x), np.float32, "r+", shape=x.shape))
        os.truncate(folder + "/x.bin", 0)
        fails(lambda: mpscnn.NeuronReLU()(images), "x.bin")
    """,
    "memmaps that only the command buffer has": """
        raw("/w.bin", weights())
        raw("/x.bin", x)
        def encoded():
            weight = mpscnn.map_weights(folder + "/w.bin", (64, 3, 3, 64))
            images = np.memmap(folder + "/x.bin", np.float32, "r", shape=x.shape)
            commands = mpscnn.CommandBuffer()
            mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(images))
            others = mpscnn.CommandBuffer()
            mpscnn.Convolution(weight, layout="OHWI").encode(others, mpscnn.Image.from_array(x))
            return commands, others
        for commands, name in zip(encoded(), ("x.bin", "w.bin")):
            os.truncate(folder + "/" + name, 0)
            commands.commit()
            fails(commands.wait, name)
    """,
    "a memmap as result": """
        out = np.memmap(raw("/y.bin", x), np.float32, "r+", shape=x.shape)
        os.truncate(folder + "/y.bin", 0)
        fails(lambda: mpscnn.NeuronReLU()(x, out=out), "y.bin")
    """,
    "other memory at the addresses of pages that were lost": """
        import mmap
        images = np.memmap(raw("/x.bin", x), np.float32, "r", shape=x.shape)
        address = images.ctypes.data
        os.truncate(folder + "/x.bin", 0)
        fails(lambda: mpscnn.NeuronReLU()(images), "x.bin")
        del images
        raw("/x2.bin", x)
        again = np.memmap(folder + "/x2.bin", np.float32, "r", shape=x.shape)
        assert again.ctypes.data == address
        np.testing.assert_array_equal(mpscnn.NeuronReLU()(again), x)
    """,
    "faulthandler enabled before and after": """
        import faulthandler
        faulthandler.enable()
        images = np.memmap(raw("/x.bin", x), np.float32, "r", shape=x.shape)
        mpscnn.NeuronReLU()(images)
        faulthandler.disable()
        faulthandler.enable()
        os.truncate(folder + "/x.bin", 0)
        fails(lambda: mpscnn.NeuronReLU()(images), "x.bin")
    """,
}


def program(body: str) -> str:
    lines = body.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return f"SENTENCE = {SENTENCE!r}\n{PROLOGUE}\n" + "\n".join(line[indent:] for line in lines)


BORROWED = (
    "weights before the first run",
    "weights before the first run, in a stream",
    "weights that a run has packed, then save()",
    "a memmap as weights that a kernel reads when it runs",
)
"""Programs whose kernels read weights from the mapping."""
SHARED = ("memmaps that only the command buffer has",)
"""Programs whose images are the mapping."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=only_openmps("borrowed weights") if name in BORROWED else shares_images if name in SHARED else (),
        )
        for name in PROGRAMS
    ],
)
def test_a_file_that_becomes_shorter(name: str, tmp_path: Path) -> None:
    run_python(program(PROGRAMS[name]), str(tmp_path), timeout=60)


@only_openmps("borrowed weights")
@pytest.mark.parametrize("runs", [1, 4])
def test_weights_of_recorded_commands(runs: int, tmp_path: Path) -> None:
    """Read in each run, by an implementation that does not pack them."""
    code = f"""
    net = mpscnn.load(save("/net.mpscnn"))
    for _ in range({runs}):
        net(x)
    os.truncate(folder + "/net.mpscnn", 4096)
    fails(lambda: net(x), "net.mpscnn")
    """
    run_python(program(code), str(tmp_path), MPSCNN_IMPL="loop", MPSCNN_ENGINE="cpu")


def ended(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("handler", ["none", "faulthandler"])
@pytest.mark.parametrize("order", ["before", "after"])
def test_other_faults_go_to_the_handler_before(handler: str, order: str, tmp_path: Path) -> None:
    """A user's program that reads beyond the end of its file ends as it does without mpscnn."""
    enable = "import faulthandler; faulthandler.enable()" if handler == "faulthandler" else "pass"
    np.ones(4096, np.float32).tofile(tmp_path / "x.bin")
    result = ended(
        f"""
        {enable if order == "before" else "pass"}
        other = np.memmap(raw("/y.bin", x), np.float32, "r", shape=x.shape)
        mpscnn.NeuronReLU()(np.memmap(folder + "/x.bin", np.float32, "r", shape=(1, 8, 8, 64)))
        {enable if order == "after" else "pass"}
        os.truncate(folder + "/y.bin", 0)
        other.sum()
        """,
        str(tmp_path),
    )
    assert result.returncode == -signal.SIGBUS, result
    assert ("Fatal Python error: Bus error" in result.stderr) == (handler == "faulthandler"), result.stderr
    assert result.stderr.count("Fatal Python error") <= 1, result.stderr


def test_a_signal_that_is_sent(tmp_path: Path) -> None:
    np.ones(4096, np.float32).tofile(tmp_path / "x.bin")
    result = ended(
        """
        mpscnn.NeuronReLU()(np.memmap(folder + "/x.bin", np.float32, "r", shape=(1, 8, 8, 64)))
        os.kill(os.getpid(), signal.SIGBUS)
        """,
        str(tmp_path),
    )
    assert result.returncode == -signal.SIGBUS, result
    assert not os.path.exists(tmp_path / "core")
