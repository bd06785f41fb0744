# SPDX-License-Identifier: Apache-2.0
"""Buffer, empty() and Device."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import mpscnn
from support import address


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


def test_allocated_bytes_follow_buffers_and_images() -> None:
    device = mpscnn.Device()
    gc.collect()
    before = device.allocated_bytes
    buffer = mpscnn.Buffer(1 << 20)
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
    assert len({d.name for d in devices}) == len(devices)
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
