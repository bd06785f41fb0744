# SPDX-License-Identifier: Apache-2.0
"""Shared by several test files: seeded arrays, references in float64, a queue that is held, other processes."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import messages
import mpscnn

SANITIZED = "clang_rt" in os.environ.get("LD_PRELOAD", "")
"""Whether the extension runs under a sanitizer (tools/sanitized.sh)."""

APPLE = os.environ.get("MPSCNN_DEVICE") == "apple"
"""Whether openmps behaves like Apple's devices (make test-apple)."""


ENGINE = os.environ.get("MPSCNN_ENGINE", "cpu")
"""The engine of the default device on Linux."""

_CPUINFO = Path("/proc/cpuinfo")
# Features that oneDNN does not use if it is held to an instruction set, as the start of their names.
_BEYOND = {
    "SSE41": "avx|fma|amx",
    "AVX": "avx2|avx512|avx_|fma|amx",
    "AVX2": "avx512|avx_|amx",
    "AVX512_CORE": "avx512_(vnni|bf16|fp16)|avx_|amx",
}
_beyond = re.compile(_BEYOND.get(os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper(), "$"))
_words = frozenset(
    word for word in (_CPUINFO.read_text().split() if _CPUINFO.exists() else ()) if not _beyond.match(word)
)
# The engine multiplies float32 where products of bfloat16 take longer: has_slow_pairs() in compiled.cpp.
_has_slow_pairs = _words >= {"GenuineIntel", "avx512_fp16"} and "amx_bf16" not in _words
PROCESSOR = _words - {"avx512_bf16"} if _has_slow_pairs else _words
"""Names of the processor's features, among other words; without those that ONEDNN_MAX_CPU_ISA excludes, or that make
convolutions slower."""

shares_images = pytest.mark.skipif(
    APPLE or ENGINE in ("split", "cuda-host"), reason="images of this device have memory of their own"
)
"""For tests of images over arrays."""


def only_openmps(reason: str) -> pytest.MarkDecorator:
    """For tests of openmps's extensions of Apple's interface and of its differences from it."""
    return pytest.mark.skipif(APPLE, reason=f"MPSCNN_DEVICE=apple: {reason}")


limits_slices = pytest.mark.skipif(
    not APPLE, reason="images of this device have any number of slices; test_chunks.py runs it where they have 2048"
)
"""For tests of batches that one image cannot hold."""

counts_memory = pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps memory that was freed")


def random(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> NDArray[Any]:
    """Return normal numbers, or all codes of an integer type; the same for the same arguments."""
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind in "ui":
        return rng.integers(0, min(np.iinfo(dtype).max, 65535), shape, dtype=dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def conv2d(x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None = None, **options: Any) -> NDArray[Any]:
    """Return PyTorch's convolution in float64 of (N, H, W, C) with OIHW weights."""
    source = torch.from_numpy(np.ascontiguousarray(x, np.float64)).permute(0, 3, 1, 2)
    offsets = None if bias is None else torch.from_numpy(np.asarray(bias, np.float64))
    kernel = torch.from_numpy(np.ascontiguousarray(weight, np.float64))
    return torch.nn.functional.conv2d(source, kernel, offsets, **options).permute(0, 2, 3, 1).numpy()


def assert_close(actual: Any, expected: Any, relative: float = 1e-5) -> None:
    """Compare the largest difference with the largest expected value: sums in another order differ by rounding."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all(), f"{(~np.isfinite(actual)).sum()} of {actual.size} values are not finite"
    scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
    assert float(np.abs(actual - expected).max(initial=0)) <= relative * scale


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


class _GateOfEvent(threading.Event):
    """A gate that signals one of Metal's events when it is set."""

    def __init__(self, go: Callable[[], None]) -> None:
        super().__init__()
        self._go = go

    def set(self) -> None:
        super().set()
        self._go()


@contextlib.contextmanager
def held_queue(device: mpscnn.Device | None = None) -> Iterator[threading.Event]:
    """Hold the device's queue in a completion handler: work committed inside does not complete before the exit.

    Setting the yielded event releases the queue earlier. openmps calls handlers on the thread that does the work, here
    the queue's own; Apple's devices do not, so there a command buffer waits for an event.
    """
    blocker = mpscnn.CommandBuffer(device)
    if APPLE:
        gate = _GateOfEvent(messages.commit_behind_event(blocker.commit))
    else:
        gate, entered = threading.Event(), threading.Event()

        def hold() -> None:
            entered.set()
            gate.wait(60)

        blocker.add_completed_handler(hold)
        blocker.commit()
        assert entered.wait(60), "the completion handler was not called"
    try:
        yield gate
    finally:
        gate.set()
        blocker.wait()


def run_python(code: str, *arguments: str, timeout: float = 120, **environment: str) -> str:
    """Return the output of a program in a separate process, which must end with status 0."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=os.environ | environment)
    assert result.returncode == 0, f"status {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert result.stderr == "", result.stderr
    return result.stdout


def runtime_arguments(function: Any, name: str) -> ast.arguments:
    """Return the arguments from the signature line of pybind11's docstring, or from __text_signature__."""
    text = getattr(function, "__text_signature__", None)
    if inspect.isfunction(function):  # written in Python
        text = str(inspect.signature(function))
    if text:
        line = f"{name}{text.replace('$self, /', 'self')}"
    else:
        line = next(part for part in (function.__doc__ or "").splitlines() if part.startswith(f"{name}("))
    definition = ast.parse(f"def {line}: ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    return definition.args


class Source:
    """A data source with attributes, which counts accesses."""

    def __init__(
        self, descriptor: mpscnn.ConvolutionDescriptor, weights: Any, bias: Any = None, **members: Any
    ) -> None:
        self.descriptor, self.weights, self.bias = descriptor, weights, bias
        self.calls: list[str] = []
        for name, value in members.items():
            setattr(self, name, value)

    def load(self) -> bool:
        self.calls.append("load")
        return True

    def purge(self) -> None:
        self.calls.append("purge")


class Values:
    """A normalization data source with attributes, which counts accesses."""

    def __init__(self, gamma: Any = None, **members: Any) -> None:
        self.set_up(gamma=gamma, **members)

    def set_up(self, **members: Any) -> None:
        self.calls: list[str] = []
        defaults = {"channels": 4, "beta": None, "mean": None, "variance": None, "groups": None, "epsilon": None}
        for name, value in (defaults | members).items():
            if not isinstance(getattr(type(self), name, None), property):
                setattr(self, name, value)

    def load(self) -> bool:
        self.calls.append("load")
        return True

    def purge(self) -> None:
        self.calls.append("purge")
