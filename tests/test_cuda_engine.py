# SPDX-License-Identifier: Apache-2.0
"""The CUDA engine on a driver that allocates host memory, and its errors without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mpscnn
from support import ENGINE, assert_close, only_openmps, random, run_python

pytestmark = [
    only_openmps("openmps has the engine"),
    pytest.mark.skipif(ENGINE != "cpu", reason="the tests choose the engine"),
]

TESTS = Path(__file__).parent
PROGRAMS = ("plans", "threads", "values", "dropout", "convolution")
FILES = ("test_images.py", "test_loss.py", "test_optimizer.py", "network/test_network.py")


def test_two_devices_in_one_process(cuda_host: mpscnn.Device) -> None:
    """The same numbers but for rounding, in memory that images of the other device do not use."""
    gpu, x = cuda_host, random((2, 9, 7, 4))
    assert gpu == mpscnn.Device("cuda-host") != mpscnn.Device()
    assert (gpu.name, gpu.shares_images) == ("CUDA on the host", False)
    weight = random((8, 4, 3, 3))
    y = mpscnn.Convolution(weight, padding=1, device=gpu)(x)
    assert_close(y, mpscnn.Convolution(weight, padding=1)(x))  # sums in another order
    image = mpscnn.Image.from_array(x, device=gpu)
    assert gpu.allocated_bytes >= x.nbytes
    with pytest.raises(ValueError, match="device"):
        mpscnn.NeuronReLU()(image)
    del image
    assert gpu.allocated_bytes == 0 < gpu.cached_bytes
    gpu.free_cached_bytes()
    assert gpu.cached_bytes == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda:x", 'The device cuda:x cannot be made: cuda:x is not "cuda:" and the number of a GPU.'),
        ("tpu", 'Device: name ("tpu") is not one of ".+", "null device".'),
    ],
)
def test_devices_that_do_not_exist(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}$".replace("(", r"\(").replace(")", r"\)")):
        mpscnn.Device(name)


def test_without_a_driver() -> None:
    """The message has the reason, and other devices still work."""
    program = """
import ctypes, mpscnn
try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    try:
        mpscnn.Device("cuda:0")
    except ValueError as error:
        print(error)
else:
    print(mpscnn.Device("cuda:0").name != "")
print(mpscnn.NeuronReLU()(mpscnn.empty((1, 1, 1, 1))).shape)
"""
    assert run_python(program).splitlines() in (
        [
            "The device cuda:0 cannot be made: libcuda.so.1 cannot be opened: NVIDIA's driver is not installed.",
            "(1, 1, 1, 1)",
        ],
        ["True", "(1, 1, 1, 1)"],
    )


def test_a_build_without_kernels_for_the_host() -> None:
    """Tests of cuda-host are then skipped with this reason; wheels are built so."""
    message = ""
    try:
        mpscnn.Device("cuda-host")
    except ValueError as error:
        message = str(error)
    assert message in (
        "",
        "The device cuda-host cannot be made: this build has no kernels for it. It is for tests: set"
        " MPSCNN_CUDA_HOST=ON in CMake.",
    )


def test_wheels_have_no_kernels_for_the_host() -> None:
    """The option's default is that of the tests, which are off unless a build asks for them."""
    cmake, project = ((TESTS.parent / name).read_text() for name in ("CMakeLists.txt", "pyproject.toml"))
    assert re.search(r"option\(MPSCNN_CUDA_HOST .* \$\{MPSCNN_BUILD_TESTS\}\)", cmake)
    assert re.search(r"option\(MPSCNN_BUILD_TESTS .* OFF\)", cmake)
    assert "MPSCNN_BUILD_TESTS" not in project
    assert "MPSCNN_CUDA_HOST" not in project


def test_devices_have_no_engine_under_apples_rules() -> None:
    program = """
import mpscnn
try:
    mpscnn.Device("cuda-host")
except ValueError as error:
    print(error)
"""
    sentence = r'Device: name \("cuda-host"\) is not one of ".+"\.'
    assert re.fullmatch(sentence, run_python(program, MPSCNN_DEVICE="apple").strip())


def test_the_driver_is_not_opened_before_it_is_needed() -> None:
    def is_opened(call: str) -> bool:
        """Whether the dynamic linker looks for libcuda [ld.so(8), LD_DEBUG]."""
        program = f"import contextlib, mpscnn\nwith contextlib.suppress(ValueError): {call}"
        environment = os.environ | {"LD_DEBUG": "libs"}
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
        return b"libcuda" in result.stderr

    assert not is_opened("mpscnn.NeuronReLU()(mpscnn.empty((1, 1, 1, 1)))")
    assert not is_opened("mpscnn.Device('null')")
    assert is_opened("mpscnn.Device('cuda:0')")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("cuda_host")
def test_programs_of_the_engine(name: str) -> None:
    folder = os.environ.get("MPSCNN_CPP_TESTS")
    if folder is None:
        pytest.skip("MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan")
    environment = os.environ | {"MPSCNN_ENGINE": "cuda-host"}
    program = TESTS.parent / folder / f"cpp_engine_{name}"
    result = subprocess.run([program], capture_output=True, text=True, env=environment, check=False)
    assert re.search(r"^\d+ passed, 0 failed$", result.stdout, re.MULTILINE), result.stdout + result.stderr


@pytest.mark.parametrize("name", FILES)
@pytest.mark.usefixtures("cuda_host")
def test_cases(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / name)]
    environment = os.environ | {"MPSCNN_ENGINE": "cuda-host", "MPSCNN_TIER": "quick"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed", result.stdout, re.MULTILINE)
