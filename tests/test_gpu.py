# SPDX-License-Identifier: Apache-2.0
"""The CUDA engine on a GPU, for ``make test-cuda``: rows, networks, training, replays, failures, compute-sanitizer."""

from __future__ import annotations

import copy
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from architectures import ARCHITECTURES, build_small
from rows import ONLY_CPU, engine_convolution, row_file
from support import ENGINE, run_python
from test_cuda_engine import STEPS

TESTS = Path(__file__).parent
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
FAMILIES = sorted({path.stem for path in (TESTS / "rows").glob("engine_*.py")} - ONLY_CPU)
ON_GPU = {"MPSCNN_ENGINE": "cuda", "MPSCNN_CUDA_FALLBACK": "0"}


def _reason() -> str:
    if ENGINE != "cpu":
        return "the tests choose the engine"
    try:
        mpscnn.Device("cuda:0")
    except ValueError as error:
        return str(error)
    return ""


REASON = _reason()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)
CASES = [("OptimizerStochasticGradientDescent", "float16"), ("OptimizerAdam", "float32")]
needs_programs = pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test-cuda")


@pytest.fixture(scope="module")
def gpu() -> mpscnn.Device:
    return mpscnn.Device("cuda:0")


def run(command: list[Any], **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1800, env=os.environ | ON_GPU | environment, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


# -------------------------------------------------------------------------------------------------------------- rows


def rows_program(family: str, path: Path, count: int | None = None) -> list[Any]:
    """Return the command that computes the rows of a family, or `count` of them from all parts of the file."""
    assert FOLDER is not None
    rows = list(importlib.import_module(f"rows.{family}").rows())
    if family == "engine_convolution" and count is None:
        rows = engine_convolution.for_libraries(rows)
    row_file.write(path, rows if count is None else rows[:: max(1, len(rows) // count)])
    program = TESTS.parent / FOLDER / "cpp_engine_rows"
    return [program, path] if count is None else [program, path, "--part"]


@needs_programs
@pytest.mark.parametrize("family", FAMILIES)
def test_rows(family: str, tmp_path: Path) -> None:
    """All of them, with the tolerances of their formats, and without the CPU engine."""
    assert re.search(r"^\d+ passed, 0 failed$", run(rows_program(family, tmp_path / "rows")), re.MULTILINE)


@needs_programs
@pytest.mark.skipif(bool(REASON) or torch.cuda.get_device_capability() != (9, 0), reason="not compute capability 9.0")
def test_weights_of_3x3_use_wgmma(tmp_path: Path) -> None:
    """Without strides and with strides of 2, except for few pixels, and small images with strides."""
    assert FOLDER is not None
    rows = [row for row in engine_convolution.weights_3x3() if not row.name.endswith((" 0", " 3", " 10"))]
    assert len(rows) == len(engine_convolution.WEIGHTS_3X3) - 3
    row_file.write(tmp_path / "rows", rows)
    done = subprocess.run(
        [TESTS.parent / FOLDER / "cpp_engine_rows", tmp_path / "rows", "--part"],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | ON_GPU | {"MPSCNN_TRACE": "dispatch"},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    taken = re.findall(r"^mpscnn dispatch: convolve_gradient, weights: (\w+)$", done.stderr, re.MULTILINE)
    # Each row is computed a second time, with pixels that are not aligned.
    assert taken.count("cuda_conv_weights_3x3_wgmma") == len(rows)


@needs_programs
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
@pytest.mark.parametrize("family", FAMILIES)
def test_sanitizer(family: str, tool: str, tmp_path: Path) -> None:
    """Our own kernels. The dynamic linker may find cuDNN, whose convertTensor_kernel reads words that nothing wrote
    [initcheck, cuDNN 9.14]. Racecheck checks the kernels that an earlier process has chosen: to time all of them under
    it takes more than eight minutes [seen on an H200].
    """
    program = rows_program(family, tmp_path / "rows", count=40)
    if tool == "racecheck":
        run(program, MPSCNN_CUDA_PATH=str(tmp_path))
    others = ["--kernel-name-exclude", "kernel_substring=cudnn"] if tool == "initcheck" else []
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *others, *program]
    run(command, MPSCNN_CUDA_PATH=str(tmp_path))


# ---------------------------------------------------------------------------------------------------------- networks


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_networks(name: str, dtype: str, gpu: mpscnn.Device) -> None:
    """Against float64, with four times the error of PyTorch in that dtype; and the same bits from a graph."""
    module, shape = build_small(name), ARCHITECTURES[name].shape
    x = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    with torch.inference_mode():
        single = _arrays(module(torch.from_numpy(x)))
        if dtype == "float16":
            single = _arrays(copy.deepcopy(module).half().cuda()(torch.from_numpy(x).half().cuda()))
        exact = _arrays(copy.deepcopy(module).double()(torch.from_numpy(x).double()))
    network = mpscnn.load(module, input_shapes=(1, *shape), dtype=dtype, device=gpu)
    results = [_arrays(network(x)) for _ in range(4)]
    for i, one in enumerate(exact):
        limit = max(1e-5 if dtype == "float32" else 1e-2, 4 * _difference(single[i], one))
        assert _difference(results[0][i], one) <= limit
        for later in results[1:]:
            np.testing.assert_array_equal(later[i], results[0][i])


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _arrays(values: Any) -> list[np.ndarray]:
    values = values if isinstance(values, (tuple, list)) else [values]
    values = [value.cpu() if isinstance(value, torch.Tensor) else value for value in values]
    return [np.asarray(value, np.float64) for value in values]


# ---------------------------------------------------------------------------------------------------------- training


def test_training(gpu: mpscnn.Device) -> None:
    """The steps of PyTorch on the GPU: losses of a small residual network."""
    module = build_small("resnet18").train().requires_grad_()
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((8, 3, 64, 64)).astype(np.float32), rng.integers(0, 10, 8)
    trainer = mpscnn.Trainer(
        module,
        input_shapes=(1, 3, 64, 64),
        optimizer=mpscnn.OptimizerStochasticGradientDescent(0.01, momentum_scale=0.9, device=gpu),
        device=gpu,
    )
    losses = [trainer.step(x, labels).loss for _ in range(5)]
    theirs = module.cuda()
    optimizer = torch.optim.SGD(theirs.parameters(), 0.01, momentum=0.9)
    images, targets = torch.from_numpy(x).cuda(), torch.from_numpy(labels).cuda()
    expected = []
    torch.backends.cudnn.allow_tf32 = False
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(theirs(images), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=2e-3)


@pytest.mark.parametrize(("optimizer", "dtype"), CASES)
def test_steps_become_graphs(tmp_path: Path, optimizer: str, dtype: str) -> None:
    """Steps that graphs launch are those of single launches, within the roundings of plans that are chosen by time."""
    found, convolutions = [], []
    for graphs in "01":
        path = tmp_path / f"{graphs}.npz"
        command = [sys.executable, "-c", f"import sys\n{STEPS}", str(path), dtype, optimizer, "{}"]
        trace = {"MPSCNN_CUDA_GRAPH": graphs, "MPSCNN_TRACE": "dispatch"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, env=os.environ | ON_GPU | trace, check=True
        )
        last = done.stderr.split("step 40\n")[1].split("step end")[0]
        convolutions.append(last.count("dispatch: convolve"))
        with np.load(path) as arrays:
            found.append([arrays[f"arr_{i}"] for i in range(len(arrays.files))])
    assert convolutions[1] < convolutions[0] / 2, convolutions
    for plain, with_graphs in zip(*found, strict=True):
        np.testing.assert_allclose(with_graphs, plain, rtol=0.02, atol=0.02)


# ----------------------------------------------------------------------------------------------------------- replays


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_replays_keep_memory(gpu: mpscnn.Device) -> None:
    """A hundred thousand runs of a network, 4,000 in the quick tier: the GPU's memory stays that of the first thousand.
    The driver takes blocks of the host's at times (8 MB once): the last quarter takes 20 bytes per run at most.
    """
    module, shape = build_small("resnet18"), ARCHITECTURES["resnet18"].shape
    network = mpscnn.load(module, input_shapes=(1, *shape), device=gpu)
    x = np.random.default_rng(0).standard_normal((1, *shape)).astype(np.float32)
    image = mpscnn.Image.from_array(x, layout="NCHW", device=gpu)
    out: mpscnn.Image | None = None

    def replay(count: int) -> tuple[int, int]:
        nonlocal out
        for _ in range(count):
            commands = mpscnn.CommandBuffer(gpu)
            out = network.encode(commands, image, out=out)
            commands.commit()
        commands.wait()
        return gpu.allocated_bytes, _resident_bytes()

    allocated, _ = replay(1000)
    assert out is not None
    first = out.numpy(copy=True)
    quarter = 1000 if os.environ.get("MPSCNN_TIER") == "quick" else 25_000
    later = [replay(quarter) for _ in range(4)]
    assert [each[0] for each in later] == 4 * [allocated]
    assert later[3][1] - later[2][1] < 20 * 25_000
    np.testing.assert_array_equal(out.numpy(), first)


def test_small_kernels_wait_for_each_other(gpu: mpscnn.Device) -> None:
    """Blocks of a small kernel start while those of the kernel before end: results of two inputs in turn stay the same,
    also with a list in flight behind each.
    """
    module, shape = build_small("mobilenet_v2"), ARCHITECTURES["mobilenet_v2"].shape
    network = mpscnn.load(module, input_shapes=(1, *shape), device=gpu)
    rng = np.random.default_rng(0)
    images = [mpscnn.Image.from_array(rng.random((1, *shape), np.float32), layout="NCHW", device=gpu) for _ in range(2)]
    outs: list[mpscnn.Image | None] = [None, None]

    def run(which: int) -> mpscnn.CommandBuffer:
        commands = mpscnn.CommandBuffer(gpu)
        outs[which] = network.encode(commands, images[which], out=outs[which])
        commands.commit()
        return commands

    def results() -> list[np.ndarray]:
        return [out.numpy(copy=True) for out in outs if out is not None]

    for each in (0, 1):
        run(each).wait()  # plain, not a graph
    first = results()
    assert not np.array_equal(*first)
    for _ in range(1000):
        for _ in range(4):
            run(0), run(1)
        run(0).wait()
        run(1).wait()
        for found, expected in zip(results(), first, strict=True):
            np.testing.assert_array_equal(found, expected)


# ---------------------------------------------------------------------------------------------------------- failures

FAILING_KERNEL = """
import ctypes, numpy as np, mpscnn
gpu = mpscnn.Device("cuda:0")
relu, x = mpscnn.NeuronReLU(device=gpu), np.ones((1, 2, 2, 4), np.float32)
assert (relu(x) == 1).all()
ptx = b".version 7.0 .target sm_70 .address_size 64 .visible .entry fail() { trap; ret; }"
cuda = ctypes.CDLL("libcuda.so.1")
device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), ptx) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fail") == 0
assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
assert cuda.cuCtxSynchronize() != 0
for _ in range(3):
    try:
        relu(x)
    except RuntimeError as error:
        print(error)
"""


def test_a_kernel_that_fails() -> None:
    """The context is lost: every later command buffer fails, with the driver's reason."""
    sentences = run_python(FAILING_KERNEL).splitlines()
    assert len(sentences) == 3
    assert all("CUDA_ERROR_LAUNCH_FAILED" in sentence for sentence in sentences)


def test_memory_that_runs_out(gpu: mpscnn.Device) -> None:
    """The error has the size, and the device works afterwards."""
    before = gpu.allocated_bytes
    most = gpu.recommended_max_working_set_bytes
    held: list[mpscnn.Image] = []

    def fill() -> None:
        for _ in range(2 + most // (1 << 32)):
            held.append(mpscnn.Image((1, 1 << 14, 1 << 14, 4), device=gpu))
            held[-1].write(np.zeros((1, 1 << 14, 1 << 14, 4), np.float32))

    with pytest.raises(MemoryError):
        fill()
    held.clear()
    gpu.free_cached_bytes()
    assert gpu.allocated_bytes <= before
    x = np.ones((1, 4, 4, 4), np.float32)
    np.testing.assert_array_equal(mpscnn.NeuronReLU(device=gpu)(x), x)


def test_streams_compute_the_same(gpu: mpscnn.Device) -> None:
    network = mpscnn.load(build_small("squeezenet1_1"), input_shapes=(1, 3, 67, 64), device=gpu)
    batches = [np.full((2, 3, 67, 64), i, np.float32) for i in range(6)]
    for x, y in zip(batches, network.stream(batches), strict=True):
        np.testing.assert_array_equal(y, network(x))
