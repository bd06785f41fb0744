# SPDX-License-Identifier: Apache-2.0
"""The CUDA engine's kernels are compiled by NVRTC for the architectures that mpscnn supports; no GPU is needed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

from support import ENGINE, SANITIZED, only_openmps

ROOT = Path(__file__).resolve().parent.parent
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
KERNELS = ROOT / "csrc" / "openmps" / "engine" / "cuda" / "kernels"
FORMATS = {"any format": "generic", "float16": "2", "float32": "3"}
# All formats for one architecture; kernels for any format contain the code of the others.
CASES = [(90, name) for name in FORMATS] + [(each, "any format") for each in (75, 80, 86, 89, 100, 120)]
if SANITIZED:  # the compiler is NVIDIA's, not sanitized, and takes most of a minute for each
    CASES = [(90, "float32")]

pytestmark = [
    only_openmps("openmps has the engine"),
    pytest.mark.skipif(ENGINE != "cpu", reason="the compiler is the same for all engines"),
    pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan"),
]


def site_packages() -> Path:
    """Return the folder with NVIDIA's packages; skip if NVRTC is not installed."""
    found = importlib.util.find_spec("nvidia")
    for place in (found and found.submodule_search_locations) or ():
        if list(Path(place).glob("cu13/lib/libnvrtc.so.13")):
            return Path(place).parent
    pytest.skip("the package nvidia-cuda-nvrtc is not installed")


def test_each_kernel_waits_for_those_before() -> None:
    """Blocks start before the kernels whose results they read have ended [kernels/device.hpp]."""
    begins = [
        found
        for path in KERNELS.glob("*.hpp")
        for found in re.findall(r"__global__[^{]*\{[\s\\]*(?:extern __shared__[^;]*;[\s\\]*)?(\S+)", path.read_text())
    ]
    assert len(begins) == 5
    assert set(begins) == {"wait_for_kernels_before();"}


@pytest.mark.parametrize(("architecture", "format_name"), CASES, ids=[f"sm_{each}-{name}" for each, name in CASES])
def test_kernels_compile(architecture: int, format_name: str) -> None:
    assert FOLDER is not None
    program = ROOT / FOLDER / "cpp_engine_compile"
    assert program.exists(), f"{program} was not built"
    done = subprocess.run(
        [program, str(architecture), FORMATS[format_name]],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"MPSCNN_CUDA_PATH": str(site_packages())},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    files = set(re.findall(r"(\w+)\.hpp", done.stdout))
    with_kernels = r"^MPSCNN(_\w+)?_KERNEL\("
    assert files == {path.stem for path in KERNELS.glob("*.hpp") if re.search(with_kernels, path.read_text(), re.M)}
    assert f"{len(files)} passed, 0 failed" in done.stdout


@pytest.mark.parametrize("architecture", [75, 120])
def test_functions_compile(architecture: int) -> None:
    """The functions that test_metal_functions.py runs on the processor."""
    files = sorted((ROOT / "tests" / "functions").glob("*.metal"))
    done = subprocess.run(
        [ROOT / str(FOLDER) / "cpp_engine_compile", str(architecture), *files],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"MPSCNN_CUDA_PATH": str(site_packages())},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    passed = int(done.stdout.split()[-4])
    assert passed >= len(files) + 2 * 45, done.stdout[-400:]
