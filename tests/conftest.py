# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests. Imports mpscnn only when a test needs it."""

from __future__ import annotations

import gc
import os
import pathlib
import random
import signal
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import mpscnn

# Device.name of the engine that checks arguments and computes nothing.
NULL_DEVICE = "null device"
QUICK_CASES = 3
SLOW = (pathlib.Path(__file__).parent / "slow.txt").read_text().splitlines()


def pytest_configure(config: pytest.Config) -> None:
    # With more threads than available cores, every small case becomes slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Choices that `mpscnn tune` has kept on this machine are not those that the tests expect.
    os.environ.setdefault("MPSCNN_TUNED", "0")
    if "clang_rt" in os.environ.get("LD_PRELOAD", ""):
        # Importing openvino opens a library with RTLD_DEEPBIND, which ends a sanitized process.
        sys.modules["openvino"] = None  # type: ignore[assignment]
    # Shells start background programs with Ctrl-C ignored, and programs started by tests would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable the garbage collector, which would scan a million permanent objects of the collection repeatedly."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of slow.txt; with MPSCNN_TIER=quick, keep QUICK_CASES evenly spread cases of each other test."""
    slow = set(SLOW)
    for item in items:
        if item.nodeid.partition("[")[0] in slow:
            item.add_marker(pytest.mark.slow)
    tier = os.environ.get("MPSCNN_TIER", "full")
    if tier not in ("quick", "full"):
        raise pytest.UsageError(f"MPSCNN_TIER ({tier}) is not quick or full.")
    if tier == "full":
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {id(of_test[i * len(of_test) // n]) for of_test in cases.values() for n in [min(QUICK_CASES, len(of_test))]
            for i in range(n)}  # fmt: skip
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


@pytest.fixture(scope="module", autouse=True)
def _young_objects() -> None:
    """Limit gc.collect() in a module's tests to objects made since the module began.

    PyTorch, ONNX and traces hold half a million objects, a second per collection. Garbage of earlier modules is
    collected first; frozen objects are still freed with their last reference. Cycles that include older objects, from
    imports or session fixtures, are no longer collected: leak tests make their own objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeds(request: pytest.FixtureRequest) -> None:
    """Seed each test with the same random numbers, regardless of the tests before it."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (for libraries that use it)


@pytest.fixture(autouse=True)
def _temporaries_were_read() -> Iterator[None]:
    """MPSCNN_DEVICE=apple: a temporary image freed unread fails the test, as under Metal's validation.

    The next command buffer raises the recorded breach.
    """
    yield
    if os.environ.get("MPSCNN_DEVICE") == "apple" and "mpscnn" in sys.modules:
        sys.modules["mpscnn"].CommandBuffer()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers seeded by the test's id."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def device() -> mpscnn.Device:
    """The default device, which computes."""
    import mpscnn

    return mpscnn.Device()


@pytest.fixture(scope="session")
def cuda_host() -> mpscnn.Device:
    """The CUDA engine on the host; builds without tests have none, nor has a device under Apple's rules."""
    import mpscnn

    try:
        return mpscnn.Device("cuda-host")
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def null_device() -> mpscnn.Device:
    """The device that checks arguments and computes nothing."""
    import mpscnn

    for candidate in mpscnn.Device.all():
        if candidate.name == NULL_DEVICE:
            return candidate
    pytest.skip(f"no device is called {NULL_DEVICE!r}; there are {[d.name for d in mpscnn.Device.all()]}")


@pytest.fixture(params=["default", "null"])
def engine(request: pytest.FixtureRequest) -> mpscnn.Device:
    """Each engine in turn, for tests that do not depend on values: shapes, errors, lifetimes."""
    name = {"default": "device", "null": "null_device"}[request.param]
    device: mpscnn.Device = request.getfixturevalue(name)
    return device


class NoLeak:
    """Device memory before and after a block. Devices free the memory of a completed command buffer a moment later."""

    def __init__(self, device: mpscnn.Device) -> None:
        self.device = device

    def bytes(self) -> int:
        gc.collect()
        return int(self.device.allocated_bytes)

    @contextmanager
    def __call__(self, allowance: int = 0) -> Iterator[None]:
        before = self.bytes()
        yield
        after = self.bytes()
        assert after <= before + allowance, f"{after - before} bytes more are in use than before ({before})"


@pytest.fixture
def no_leak(device: mpscnn.Device) -> NoLeak:
    """`with no_leak(): ...` fails if the block leaves device memory in use."""
    return NoLeak(device)


class Guarded:
    """An array for results, inside a larger block that must not change.

    The block is filled with a pattern: NaN, or 0xA5 bytes for unsigned integers. `view` as in cases.viewed().
    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: str, view: str = "dense") -> None:
        images, height, width, channels = shape
        band = 64
        if view == "dense":
            size = images * height * width * channels
            self._memory = np.empty(size + 2 * band, dtype)
            index: Any = lambda base: base[band : band + size].reshape(shape)  # noqa: E731
        elif view == "nchw":
            self._memory = np.empty((images + 2, channels, height, width), dtype)
            index = lambda base: base[1:-1].transpose(0, 2, 3, 1)  # noqa: E731
        elif view == "channels":
            self._memory = np.empty((images + 2, height + 2, width + 2, channels + 7), dtype)
            index = lambda base: base[1:-1, 1:-1, 1:-1, 3 : 3 + channels]  # noqa: E731
        elif view == "steps":
            self._memory = np.empty((images + 2, height * 2 + 2, width * 3 + 2, channels), dtype)
            index = lambda base: base[1:-1, 1:-1:2, 1:-1:3]  # noqa: E731
        elif view == "reversed":
            self._memory = np.empty((images + 2, height + 2, width + 2, channels), dtype)
            index = lambda base: base[1:-1, -2:0:-1, -2:0:-1]  # noqa: E731
        else:
            raise ValueError(view)
        if self._memory.dtype.kind == "u":
            self._memory.view(np.uint8)[...] = 0xA5
        else:
            self._memory[...] = np.nan
        self._before = self._memory.copy()
        self._inside = np.zeros(self._memory.shape, bool)
        index(self._inside)[...] = True
        self.array: np.ndarray[Any, Any] = index(self._memory)
        self._written = index(self._inside)
        assert self.array.shape == shape
        assert np.shares_memory(self.array, self._memory)

    def check(self, region: tuple[slice, ...] | None = None) -> None:
        """Check that only `region` of the array has changed."""
        if region is not None:
            self._written[...] = False
            self._written[region] = True
        unsigned = f"u{self._memory.dtype.itemsize}"
        changed = (self._memory.view(unsigned) != self._before.view(unsigned)) & ~self._inside
        assert not changed.any(), f"{int(changed.sum())} elements were written that are not part of the result"


@pytest.fixture
def guarded() -> type[Guarded]:
    """The class Guarded(shape, dtype, view="dense")."""
    return Guarded
