# SPDX-License-Identifier: Apache-2.0
"""mpscnn.memory with networks: current, peak and cached memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from mpscnn import memory
from network.graphs import residual
from support import counts_memory, only_openmps

pytestmark = only_openmps("the device counts its memory")

Make = Callable[..., NDArray[np.float32]]
IMAGE = 1 * 128 * 128 * 16 * 4
"""Bytes of each image between the kernels of chain()."""


@pytest.fixture(autouse=True)
def _from_a_clean_beginning() -> None:
    gc.collect()
    memory.clear()
    memory.reset()


def chain(length: int, fan: int = 1) -> mpscnn.Network:
    """A chain of kernels; each reads the previous result and the one `fan` places before."""
    graph = mpscnn.Graph()
    made = [graph.input("x", channels=16)]
    for i in range(length):
        # Kernels that a device cannot compute in place or fuse with the previous one.
        if fan > 1 and i >= fan:
            made.append(graph.add("Add", made[-1], made[-fan]))
        else:
            made.append(graph.add("PoolingMax", made[-1], kernel_size=3, stride=1, padding=1))
    graph.output(made[-1], "y")
    return mpscnn.Network(graph)


def x() -> NDArray[np.float32]:
    return np.ones((1, 128, 128, 16), np.float32)


def test_numbers_of_buffers() -> None:
    before = memory.current()
    buffer = mpscnn.Buffer(1 << 20)
    assert memory.current() == before + (1 << 20)
    assert memory.peak() == memory.current()
    del buffer
    assert memory.current() == before
    assert memory.peak() == before + (1 << 20), "the most stays"
    assert memory.cached() == 1 << 20, "it is kept for the next"
    memory.reset()
    assert memory.peak() == before
    buffer = mpscnn.Buffer(1 << 20)
    assert memory.cached() == 0
    assert memory.peak() == before + (1 << 20)
    del buffer
    memory.clear()
    assert memory.cached() == 0


def test_of_a_device() -> None:
    device = mpscnn.Device()
    for name in ("current", "peak", "cached"):
        assert getattr(memory, name)() == getattr(memory, name)(device)
    buffer = mpscnn.Buffer(1 << 16, device=device)
    assert memory.current(device) == device.allocated_bytes >= 1 << 16
    assert memory.peak(device) == device.peak_bytes
    assert memory.cached(device) == device.cached_bytes
    del buffer


def test_another_device_has_its_own(null_device: mpscnn.Device) -> None:
    memory.reset(null_device)
    before, peak = memory.current(null_device), memory.peak(null_device)
    buffer = mpscnn.Buffer(1 << 20)
    assert memory.current(null_device) == before
    assert memory.peak(null_device) == peak
    del buffer
    other = mpscnn.Buffer(1 << 18, device=null_device)
    assert memory.current(null_device) >= before + (1 << 18)
    del other


def test_a_call_leaves_nothing_in_use(net: mpscnn.Network, make_x: Make) -> None:
    array = make_x(2, 64, 64)
    net(array)  # weights are reordered on first use
    memory.reset()
    before = memory.current()
    results = net(array)
    assert memory.peak() > before, "images between kernels are the device's"
    assert memory.current() == before, "results are arrays"
    del results
    assert memory.current() == before


@pytest.mark.parametrize("length", [12, 40])
def test_a_chain_of_temporaries_needs_two(length: int) -> None:
    """One that is read and one that is written, for any length."""
    net, before = chain(length), memory.current()
    net(x())
    used = memory.peak() - before
    assert used >= IMAGE
    boundary = 0 if mpscnn.Device().shares_images else 2 * IMAGE  # copies of the arrays
    assert used - boundary <= 2.6 * IMAGE, f"{used / IMAGE:.1f} images at once, of {length - 1}"


def test_images_read_later_are_kept_until_then() -> None:
    """Each sum reads the result of five places before, so that many images are live at once, and no more."""
    net, before = chain(40, fan=5), memory.current()
    net(x())
    used = memory.peak() - before
    assert 4 * IMAGE <= used <= 9 * IMAGE, f"{used / IMAGE:.1f} images at once"


def test_images_read_at_the_end_are_kept() -> None:
    """Twelve maxima in a chain, one image each, all read by the last kernel."""
    graph = mpscnn.Graph()
    made = [graph.input("x", channels=16)]
    for _ in range(12):
        made.append(graph.add("PoolingMax", made[-1], kernel_size=3, stride=1, padding=1))
    graph.output(graph.add("ReduceFeatureChannelsMax", graph.concatenate(*made[1:])), "y")
    net, before = mpscnn.Network(graph), memory.current()
    net(x())
    assert memory.peak() - before >= 12 * IMAGE


def test_peak_goes_with_the_batch_in_parts() -> None:
    net = chain(6)
    peaks = []
    for n in (1, 4):
        memory.reset()
        before = memory.current()
        net(np.ones((n, 128, 128, 16), np.float32))
        peaks.append(memory.peak() - before)
    assert peaks[0] < peaks[1] <= 4.2 * peaks[0]


def test_peak_begins_again() -> None:
    net = chain(6)
    net(np.ones((4, 128, 128, 16), np.float32))
    high = memory.peak()
    memory.reset()
    assert memory.peak() == memory.current() < high
    net(x())
    assert memory.current() < memory.peak() < high


def test_the_second_call_takes_what_the_first_left() -> None:
    net, array = chain(6), x()
    net(array)
    cached, peak = memory.cached(), memory.peak()
    assert cached > 0
    for _ in range(5):
        net(array)
    assert memory.cached() == cached
    assert memory.peak() == peak


def test_clear_gives_back_and_harms_nothing() -> None:
    net, array = chain(6), x()
    expected = net(array).copy()
    assert memory.cached() > 0
    memory.clear()
    assert memory.cached() == 0
    assert np.array_equal(net(array), expected)
    pending = net._submit(array)
    memory.clear()
    assert np.array_equal(pending.wait()[0], expected)


@counts_memory
def test_results_outlive_clear(net: mpscnn.Network, make_x: Make) -> None:
    array = make_x(1, 64, 64)
    results = net(array)
    copies = [one.copy() for one in results]
    memory.clear()
    net(make_x(1, 64, 64, seed=5))
    assert all(np.array_equal(a, b) for a, b in zip(results, copies, strict=True))


def test_a_network_that_is_dropped_gives_back_its_weights() -> None:
    before = memory.current()
    net = mpscnn.Network(residual())
    net(np.ones((1, 3, 9, 7), np.float32))
    del net
    gc.collect()
    assert memory.current() <= before
