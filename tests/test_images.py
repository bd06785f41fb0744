# SPDX-License-Identifier: Apache-2.0
"""Image: layouts both ways, dtypes, views on channels, the array protocols."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mpscnn
from support import ENGINE, address, random

DTYPES = ["float32", "float16", "uint8", "uint16"]
SHAPES = [(1, 1, 1, 1), (2, 5, 7, 3), (1, 4, 4, 4), (3, 2, 9, 17), (1, 6, 1, 8), (2, 1, 6, 5)]


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nhwc_there_and_back(shape: tuple[int, ...], dtype: str, copy: bool | None) -> None:
    x = random(shape, dtype)
    image = mpscnn.Image.from_array(x, copy=copy)
    assert image.shape == shape
    assert image.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(image.numpy(), x)
    np.testing.assert_array_equal(image.numpy("NCHW"), x.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nchw_there_and_back(shape: tuple[int, ...], dtype: str) -> None:
    n, h, w, c = shape
    x = random((n, c, h, w), dtype)
    image = mpscnn.Image.from_array(x, "NCHW")
    assert image.shape == shape
    np.testing.assert_array_equal(image.numpy("NCHW"), x)
    np.testing.assert_array_equal(image.numpy(), x.transpose(0, 2, 3, 1))
    other = random((n, c, h, w), dtype, seed=1)
    image.write(other, "NCHW")
    np.testing.assert_array_equal(image.numpy("NCHW"), other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("c", range(1, 20))
def test_planes_of_any_extents(c: int, dtype: str) -> None:
    """Vectors of pixels and of channels, and what is left of both, in each image and in parts of wider ones."""
    for n, h, w in ((2, 1, 1), (1, 3, 3), (1, 2, 5), (2, 3, 7), (1, 2, 64), (1, 1, 67), (2, 2, 131)):
        x = random((n, c, h, w), dtype, seed=w)
        wide = np.full((n, c, h + 1, w + 3), 7, dtype)
        wide[:, :, 1:, 2:-1] = x
        for source in (x, wide[:, :, 1:, 2:-1]):
            image = mpscnn.Image.from_array(source, "NCHW")
            np.testing.assert_array_equal(image.numpy(), x.transpose(0, 2, 3, 1))
            np.testing.assert_array_equal(image.numpy("NCHW"), x)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_into_and_out_of_any_strides(layout: str, dtype: str) -> None:
    """Dense, gapped and reversed arrays on both sides, with guards around written ones."""
    shape = (2, 5, 7, 3)
    axes = (0, 1, 2, 3) if layout == "NHWC" else (0, 3, 1, 2)
    x = random(shape, dtype)
    laid = x.transpose(axes)
    image = mpscnn.Image(shape, dtype)
    for source in (
        laid,
        np.ascontiguousarray(laid),
        np.repeat(laid, 2, axis=2)[:, :, ::2],
        laid[::-1, ::-1].copy()[::-1, ::-1],
    ):
        image.write(np.zeros(shape, dtype))
        image.write(source, layout)
        np.testing.assert_array_equal(image.numpy(), x)
        np.testing.assert_array_equal(mpscnn.Image.from_array(source, layout).numpy(), x)
    n, a, b, c = laid.shape
    store = np.full((n + 1, 2 * a, b + 2, c + 3), 77, dtype)
    for out in (
        store[1:, ::-2, 1:-1, 2:-1],
        store[:-1, ::2, 1:-1, -2 - c : -2][..., ::-1],
        np.zeros(laid.shape, dtype),
    ):
        store[...] = 77
        assert image.numpy(layout, out=out) is out
        np.testing.assert_array_equal(out, laid)
        if out.base is not None:
            out[...] = 77
            assert (store == 77).all(), "something beside the pixels was written"


def test_new_images_take_every_dtype_spelling() -> None:
    for dtype in ("float16", np.float16, np.dtype("<f2"), np.float16(0).dtype):
        assert mpscnn.Image((1, 2, 3, 4), dtype).dtype == np.float16
    assert mpscnn.Image((1, 2, 3, 4)).dtype == np.float32
    assert mpscnn.Image([1, np.int64(2), 3, 4]).shape == (1, 2, 3, 4)


def test_uint8_and_uint16_are_fractions_for_the_device() -> None:
    """All codes: 0...255 represent 0...1 in steps of 1/255, and are unchanged after a round trip."""
    codes = np.arange(256, dtype=np.uint8).reshape(1, 8, 8, 4)
    kernel = mpscnn.NeuronLinear(1.0)
    np.testing.assert_array_equal(kernel(codes), codes)
    np.testing.assert_allclose(kernel(codes, dtype="float32"), codes / 255, rtol=1e-6)
    words = np.arange(65536, dtype=np.uint16).reshape(1, 64, 64, 16)
    np.testing.assert_array_equal(kernel(words), words)
    np.testing.assert_allclose(kernel(words, dtype="float32"), words / 65535, rtol=1e-6)
    back = kernel(np.float32([[[[-1, 0.5, 2, 1]]]]), dtype="uint8")
    np.testing.assert_array_equal(back, np.uint8([[[[0, 128, 255, 255]]]]))


def test_special_values_pass_through_transfers() -> None:
    for dtype in ("float32", "float16"):
        x = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).tiny / 4, np.finfo(dtype).max, 1, 0], dtype)
        x = x.reshape(1, 1, 2, 4)
        bits = x.view("u4" if dtype == "float32" else "u2")
        for layout in ("NHWC", "NCHW"):
            image = mpscnn.Image.from_array(
                np.ascontiguousarray(x if layout == "NHWC" else x.transpose(0, 3, 1, 2)), layout
            )
            np.testing.assert_array_equal(image.numpy(copy=True).view(bits.dtype), bits)


# ------------------------------------------------------------------------------------------ channels


@pytest.mark.parametrize("copy", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize(("first", "count"), [(0, 4), (4, 8), (8, 6), (12, 2), (0, 14)])
def test_channels(first: int, count: int, copy: bool) -> None:
    if not copy and not mpscnn.Device().shares_images:
        pytest.skip("this device's images have memory of their own")
    x = random((2, 3, 5, 14))
    whole = mpscnn.Image.from_array(x, copy=copy)
    part = whole.channels(first, count)
    assert part.shape == (2, 3, 5, count)
    np.testing.assert_array_equal(part.numpy(copy=True), x[..., first : first + count])
    np.testing.assert_array_equal(part.numpy("NCHW"), x[..., first : first + count].transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(part).numpy(), np.maximum(x[..., first : first + count], 0))


def test_kernels_write_into_channels() -> None:
    x, whole = random((1, 3, 5, 4)), mpscnn.Image((1, 3, 5, 12))
    whole.write(np.full((1, 3, 5, 12), 7, np.float32))
    mpscnn.NeuronReLU()(mpscnn.Image.from_array(x), out=whole.channels(4, 4))
    np.testing.assert_array_equal(whole.numpy()[..., 4:8], np.maximum(x, 0))
    assert (whole.numpy()[..., :4] == 7).all()
    assert (whole.numpy()[..., 8:] == 7).all()


def test_channels_of_channels() -> None:
    x = random((1, 2, 3, 16))
    part = mpscnn.Image.from_array(x).channels(4, 12).channels(4, 4)
    np.testing.assert_array_equal(part.numpy(), x[..., 8:12])


# ------------------------------------------------------------------------------------------ protocols


def test_array_protocol() -> None:
    x = random((1, 2, 3, 4))
    image = mpscnn.Image.from_array(x)
    np.testing.assert_array_equal(np.asarray(image), x)
    assert np.asarray(image, dtype=np.float16).dtype == np.float16
    copied = np.array(image)
    copied[...] = 0
    np.testing.assert_array_equal(np.asarray(image), x)
    np.testing.assert_array_equal(np.add(image, 1), x + 1)
    if mpscnn.Device().shares_images and int(np.__version__.split(".")[0]) >= 2:
        assert address(np.asarray(image, copy=False)) == address(x)
        with pytest.raises(ValueError, match=r"copy"):
            np.asarray(image, dtype=np.float64, copy=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_memoryview(dtype: str) -> None:
    x = random((2, 3, 4, 5), dtype)
    image = mpscnn.Image.from_array(x)
    if not mpscnn.Device().shares_images:
        with pytest.raises(BufferError, match=r"Image\.numpy: the image cannot be shared: its memory is not an"):
            memoryview(image)
        return
    view = memoryview(image)
    assert (view.shape, view.itemsize, view.readonly) == (x.shape, x.itemsize, False)
    np.testing.assert_array_equal(view, x)
    np.asarray(view)[1, 2, 3, 4] = 1
    del image
    assert x[1, 2, 3, 4] == 1
    x.flags.writeable = False
    assert memoryview(mpscnn.Image.from_array(x)).readonly
    with pytest.raises(RuntimeError, match=r"Image: a temporary image cannot be read by the CPU\."):
        memoryview(mpscnn.Image.temporary(mpscnn.CommandBuffer(), (1, 2, 3, 4)))


@pytest.mark.skipif(ENGINE == "cuda-host", reason="test_device_arrays.py has the memory of a GPU")
def test_dlpack() -> None:
    x = random((1, 2, 3, 4))
    image = mpscnn.Image.from_array(x)
    assert image.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(image), x)
    torch.testing.assert_close(torch.from_dlpack(image), torch.from_numpy(x), rtol=0, atol=0)
    tensor = torch.from_dlpack(mpscnn.NeuronReLU()(image))
    torch.testing.assert_close(tensor, torch.from_numpy(x).relu(), rtol=0, atol=0)


def test_images_of_images() -> None:
    """An image is an array like any other: another image can be made from it through DLPack."""
    image = mpscnn.Image.from_array(random((1, 2, 3, 4)))
    again = mpscnn.Image.from_array(image)
    np.testing.assert_array_equal(again.numpy(), image.numpy())


def test_labels_devices_and_text() -> None:
    image = mpscnn.Image((1, 2, 3, 4), "float16")
    assert image.label is None
    image.label = "features"
    assert image.label == "features"
    image.label = None
    assert image.label is None
    assert image.device == mpscnn.Device()
    assert not image.is_temporary
    assert image.read_count == 0
    assert repr(image) == "<mpscnn.Image (1, 2, 3, 4) float16>"
    commands = mpscnn.CommandBuffer()
    temporary = mpscnn.Image.temporary(commands, (1, 2, 3, 4))
    assert temporary.is_temporary
    assert temporary.read_count == 1
    assert repr(temporary) == "<mpscnn.temporary Image (1, 2, 3, 4) float32>"
    temporary.read_count = 0


def test_images_of_the_same_memory_are_ordered_by_the_queue() -> None:
    """Two images over one array: a device write through one is visible through the other."""
    if not mpscnn.Device().shares_images:
        pytest.skip("this device's images have memory of their own")
    x, store = random((1, 5, 7, 4)), mpscnn.empty((1, 5, 7, 4))
    with mpscnn.CommandBuffer() as commands:
        mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x), out=mpscnn.Image.from_array(store, copy=False))
        y = mpscnn.NeuronLinear(2.0).encode(commands, mpscnn.Image.from_array(store, copy=False))
    np.testing.assert_array_equal(y.numpy(), 2 * np.maximum(x, 0))


def test_large_images() -> None:
    """Metal's max height and width, many channels, many images."""
    for shape in ((1, 1, 16384, 3), (1, 16384, 1, 3), (300, 3, 2, 5), (1, 2, 2, 5000)):
        x = random(shape)
        np.testing.assert_array_equal(mpscnn.NeuronReLU()(x), np.maximum(x, 0))
