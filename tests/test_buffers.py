# SPDX-License-Identifier: Apache-2.0
"""Buffer, empty() and Device."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from support import address, random


@pytest.mark.parametrize("length", [1, 3, 4096, 4097, 1 << 20])
def test_a_new_buffer_is_zero(length: int) -> None:
    buffer = mpscnn.Buffer(length)
    assert len(buffer) == buffer.nbytes == length
    assert repr(buffer) == f"<mpscnn.Buffer of {length} bytes>"
    view = buffer.numpy()
    assert view.shape == (length,)
    assert view.dtype == np.uint8
    assert not view.any()
    view[...] = 200
    assert (buffer.numpy() == 200).all()


def test_lengths_of_numpy() -> None:
    assert len(mpscnn.Buffer(np.int64(5))) == 5
    assert len(mpscnn.Buffer(np.uint8(5))) == 5


def test_views_of_any_shape_and_dtype() -> None:
    buffer = mpscnn.Buffer(96)
    buffer.numpy("float32")[...] = np.arange(24)
    np.testing.assert_array_equal(buffer.numpy(np.float32, (2, 3, 4)), np.arange(24).reshape(2, 3, 4))
    np.testing.assert_array_equal(buffer.numpy("float32", shape=(5,)), np.arange(5))
    assert buffer.numpy("float64").shape == (12,)
    assert buffer.numpy("uint16", ()).shape == ()
    assert buffer.numpy("float32", (0, 7)).shape == (0, 7)
    assert len({address(buffer.numpy(dtype)) for dtype in ("uint8", "float16", "int64")}) == 1


@pytest.mark.parametrize(
    ("arguments", "raises", "match"),
    [
        (("float64",), ValueError, r"length \(100 bytes\) is not a multiple of dtype's 8 bytes"),
        (("float32", (26,)), ValueError, r"shape \(26,\) of float32 needs 104 bytes; the buffer has 100"),
        (("float32", (-1,)), ValueError, r"shape \(-1,?\).* is negative or too large"),
        (("uint8", (2**40, 2**40)), ValueError, r"is negative or too large"),
        (("complex64",), TypeError, r"dtype \(complex64\) is not uint8"),
        (("nothing",), TypeError, r"nothing"),
        (("uint8", (1.5,)), TypeError, r"shape"),
        (("uint8", 4.0), TypeError, r"shape"),
    ],
    ids=str,
)
def test_views_that_do_not_fit(arguments: tuple, raises: type[Exception], match: str) -> None:
    with pytest.raises(raises, match=match):
        mpscnn.Buffer(100).numpy(*arguments)


def test_a_view_holds_the_buffer() -> None:
    views = [mpscnn.Buffer(1 << 16).numpy("float32") for _ in range(8)]
    for index, view in enumerate(views):
        view[...] = index
    gc.collect()
    noise = [mpscnn.Buffer(1 << 16).numpy("float32") for _ in range(8)]
    for index, view in enumerate(views):
        assert (view == index).all()
    assert not any(view.any() for view in noise)


# Views of a buffer's bytes through its protocols.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray,
    "array": lambda buffer: np.array(buffer, copy=False),
    "from_dlpack": np.from_dlpack,
    "__array__": lambda buffer: buffer.__array__(),
    "__array__ by dtype": lambda buffer: buffer.__array__("uint8", copy=False),
    "memoryview": lambda buffer: np.frombuffer(memoryview(buffer), np.uint8),
    "torch.from_dlpack": lambda buffer: torch.from_dlpack(buffer).numpy(),
    "torch.frombuffer": lambda buffer: torch.frombuffer(buffer, dtype=torch.uint8).numpy(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_other_libraries_see_the_memory(view: Callable[[Any], Any]) -> None:
    buffer = mpscnn.Buffer(4096)
    seen = view(buffer)
    assert (seen.dtype, seen.shape, address(seen)) == (np.uint8, (4096,), address(buffer.numpy()))
    seen[5] = 77
    assert buffer.numpy()[5] == 77


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_of_other_libraries_hold_the_buffer(view: Callable[[Any], Any], no_leak: Any) -> None:
    with no_leak():
        views = [view(mpscnn.Buffer(1 << 16)) for _ in range(4)]
        for index, seen in enumerate(views):
            seen[...] = index
        gc.collect()
        noise = [view(mpscnn.Buffer(1 << 16)) for _ in range(4)]
        assert [set(seen.tolist()) for seen in views] == [{0}, {1}, {2}, {3}]
        assert not any(seen.any() for seen in noise)
        del views, noise, seen


def test_copies_of_a_buffer() -> None:
    """Another dtype converts the bytes to numbers, which copies; numpy() reinterprets them."""
    buffer = mpscnn.Buffer(8)
    buffer.numpy()[...] = range(8)
    for made in (np.asarray(buffer, "float32"), buffer.__array__("float32"), buffer.__array__("float32", copy=True)):
        assert made.dtype == np.float32
        np.testing.assert_array_equal(made, np.arange(8))
    for made in (np.array(buffer), buffer.__array__(copy=True), buffer.__array__("uint8", True)):
        assert made.dtype == np.uint8
        assert not np.shares_memory(made, buffer.numpy())
        np.testing.assert_array_equal(made, np.arange(8))
    with pytest.raises(ValueError, match=r"Buffer: dtype \(float32\) is not the buffer's \(uint8\), which copy"):
        buffer.__array__("float32", copy=False)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(buffer, "float32", copy=False)
    assert buffer.__dlpack_device__() == (1, 0)


def test_bytes_in_and_out_of_a_buffer() -> None:
    buffer = mpscnn.Buffer(6)
    view = memoryview(buffer)
    assert (view.format, view.shape, view.readonly, view.c_contiguous) == ("B", (6,), False, True)
    view[:3] = b"abc"
    assert bytes(buffer) == b"abc\0\0\0"
    with pytest.raises(ValueError, match="different structures"):
        view[:3] = b"abcd"


def test_buffers_serve_where_arrays_do() -> None:
    x = random((1, 5, 7, 4))
    buffer = mpscnn.Buffer(x.nbytes)
    np.asarray(buffer)[...] = x.reshape(-1).view(np.uint8)
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(buffer.numpy("float32", x.shape)), np.maximum(x, 0))
    table = mpscnn.Buffer(256 * 4)
    table.numpy("float32")[...] = np.arange(256)
    codes = mpscnn.Buffer(16)
    with pytest.raises(ValueError, match=r"weight\.ndim \(1\) is not 4"):
        mpscnn.Convolution(codes, lookup_table=table.numpy("float32"))


def test_allocated_bytes_follow_buffers_and_images() -> None:
    device = mpscnn.Device()
    gc.collect()
    before = device.allocated_bytes
    buffer = mpscnn.Buffer(1 << 20)
    buffer.numpy()  # engines with memory of their own allocate at the first use
    assert device.allocated_bytes - before >= 1 << 20
    del buffer
    gc.collect()
    assert device.allocated_bytes <= before


def test_freed_buffers_come_back_as_zeros() -> None:
    for _ in range(10):
        view = mpscnn.Buffer(1 << 16).numpy()
        assert not view.any()
        view[...] = 255
        del view
        gc.collect()


@pytest.mark.parametrize(
    ("arguments", "raises", "match"),
    [
        (((-1,),), ValueError, r"shape \(-1,\) has a negative extent"),
        (((2, 2), "complex64"), TypeError, r"dtype \(complex64\) is not"),
        ((2.5,), TypeError, r"shape \(float\)"),
        (("3",), TypeError, r"shape \(str\)"),
        (((1,) * 40,), ValueError, r"ndim \(40\) is greater than the maximum 32"),
    ],
    ids=str,
)
def test_empty_refuses(arguments: tuple, raises: type[Exception], match: str) -> None:
    with pytest.raises(raises, match=match):
        mpscnn.empty(*arguments)


def test_devices() -> None:
    device = mpscnn.Device()
    assert mpscnn.Device() == device
    assert mpscnn.Device() in {device}
    assert mpscnn.Device.all() == mpscnn.Device.all()
    assert device != device.name
    devices = mpscnn.Device.all()
    assert devices[0] == device
    assert all(other != device for other in devices[1:])
    assert len(set(devices)) == len(devices)
    assert device.name in repr(device)
    assert device.is_supported
    assert device.max_buffer_bytes > 0
    assert device.recommended_max_working_set_bytes > 1 << 28
    assert isinstance(device.shares_images, bool)


def test_a_second_device_has_a_queue_of_its_own() -> None:
    devices = mpscnn.Device.all()
    if len(devices) < 2:
        pytest.skip("there is only one device")
    commands = mpscnn.CommandBuffer(devices[1])
    assert commands.device == devices[1]
    commands.commit()
    commands.wait()
    assert commands.status == "completed"
    assert mpscnn.NeuronReLU(device=devices[1]).device == devices[1]
