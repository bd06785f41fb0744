# SPDX-License-Identifier: Apache-2.0
"""Memory that is shared or copied, and refused requests, observed by addresses and by writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from support import Source, address, assert_close, conv2d, counts_memory, random, run_python

SHAPE = (2, 5, 7, 6)
DTYPES = ["float32", "float16", "uint8", "uint16"]

needs_sharing = pytest.mark.skipif(
    not mpscnn.Device().shares_images, reason="this device's images have memory of their own"
)


def changed(array: np.ndarray) -> np.ndarray:
    """Return another array of the same shape, different everywhere."""
    return random(array.shape, array.dtype.name, seed=99) + array.dtype.type(1)


# ------------------------------------------------------------------------------------------- arrays -> images


@needs_sharing
@pytest.mark.parametrize("copy", [None, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_image_shares_an_array(dtype: str, copy: bool | None) -> None:
    x = random(SHAPE, dtype)
    image = mpscnn.Image.from_array(x, copy=copy)
    assert address(image.numpy()) == address(x)
    x[...] = changed(x)
    np.testing.assert_array_equal(image.numpy(copy=True), x)
    image.write(random(SHAPE, dtype, seed=2))
    np.testing.assert_array_equal(x, random(SHAPE, dtype, seed=2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_copy_is_a_copy(dtype: str) -> None:
    x = random(SHAPE, dtype)
    image = mpscnn.Image.from_array(x, copy=True)
    assert address(image.numpy()) != address(x)
    before = x.copy()
    x[...] = changed(x)
    np.testing.assert_array_equal(image.numpy(), before)
    kept = x.copy()
    image.write(before[::-1])
    np.testing.assert_array_equal(x, kept)


@needs_sharing
@pytest.mark.parametrize(
    ("view", "why"),
    [
        (lambda s: s[:, 1:6, 2:9, :6], "a window, and some of the channels"),
        (lambda s: s[:, ::2], "every second row"),
        (lambda s: s[:, :, ::3], "every third pixel"),
        (lambda s: s[::2], "every second image"),
        (lambda s: s[:, :, :, 8:9], "one channel"),
        (lambda s: s[:1, :1, :1], "one pixel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_strided_views_are_shared(view: Any, why: str, dtype: str) -> None:
    store = random((3, 8, 11, 16), dtype)
    x = view(store)
    image = mpscnn.Image.from_array(x, copy=False)
    shown = image.numpy()
    assert address(shown) == address(x), why
    np.testing.assert_array_equal(shown, x)
    np.testing.assert_array_equal(image.numpy(copy=True), x)
    values, outside = changed(x.copy()), store.copy()
    image.write(values)
    np.testing.assert_array_equal(x, values)
    view(outside)[...] = values
    np.testing.assert_array_equal(store, outside, err_msg="something beside the pixels was written")


@needs_sharing
def test_a_kernel_writes_into_out() -> None:
    x, weight = random((1, 9, 8, 4)), random((6, 4, 3, 3))
    store = np.full((1, 9, 8, 16), np.nan, np.float32)
    out = store[..., 4:10]
    result = mpscnn.Convolution(weight, padding=1)(x, out=out)
    assert result is out
    assert_close(store[..., 4:10], conv2d(x, weight, padding=1))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda x: x[:, ::-1], r"its stride -\d+ along axis 1 is not positive"),
        (lambda x: x[:, :, ::-1], r"its stride -\d+ along axis 2 is not positive"),
        (lambda x: x[::-1], r"its stride -\d+ along axis 0 is not positive"),
        (lambda x: x[..., ::-1], r"its channels are not adjacent \(stride -4 bytes\)"),
        (lambda x: x[..., ::2], r"its channels are not adjacent \(stride 8 bytes\)"),
        (lambda x: x.transpose(0, 3, 1, 2), r"its channels are not adjacent"),
        (lambda x: np.broadcast_to(x[:, :1], x.shape), r"its stride 0 along axis 1 is not positive"),
        (lambda x: np.lib.stride_tricks.as_strided(x, x.shape, (840, 168, 4, 4)), r"its pixels overlap"),
    ],
)
def test_refusals_name_the_cause(make: Any, match: str) -> None:
    x = make(random(SHAPE))
    if not mpscnn.Device().shares_images:
        match = "this device's images have memory of their own"
    with pytest.raises(BufferError, match=rf"Image: the array cannot be shared: {match}"):
        mpscnn.Image.from_array(x, copy=False)
    image = mpscnn.Image.from_array(x)
    np.testing.assert_array_equal(image.numpy(), x, err_msg="what cannot be shared is copied when nothing else is said")


@needs_sharing
def test_refusals_of_addresses_and_odd_strides() -> None:
    memory = np.zeros(4096, np.uint8)
    odd = memory[1 : 1 + 4 * 24].view(np.float32).reshape(1, 2, 3, 4)
    with pytest.raises(BufferError, match=r"its address is not a multiple of 4 bytes"):
        mpscnn.Image.from_array(odd, copy=False)
    records = np.zeros((1, 1, 5), np.dtype([("pixel", np.float32, 4), ("tag", np.uint8)]))
    pixels = records["pixel"]
    with pytest.raises(BufferError, match=r"its stride 17 along axis 2 is not a multiple of 4 bytes"):
        mpscnn.Image.from_array(pixels, copy=False)
    pixels[...] = random(pixels.shape)
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(pixels), np.maximum(pixels, 0))
    with pytest.raises(BufferError, match=r"its layout is not NHWC"):
        mpscnn.Image.from_array(random(SHAPE), "NCHW", copy=False)


@needs_sharing
def test_read_only_arrays_are_shared_and_stay_as_they_are() -> None:
    x = random(SHAPE)
    x.flags.writeable = False
    image = mpscnn.Image.from_array(x, copy=False)
    assert address(image.numpy()) == address(x)
    assert not image.numpy().flags.writeable
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(image).numpy(), np.maximum(x, 0))


# ------------------------------------------------------------------------------------------- images -> arrays


@needs_sharing
def test_results_are_views() -> None:
    image = mpscnn.NeuronReLU()(mpscnn.Image.from_array(random(SHAPE)))
    first, second = image.numpy(), image.numpy(copy=False)
    assert address(first) == address(second)
    first[...] = 5
    assert (second == 5).all()
    third = image.numpy(copy=True)
    third[...] = 6
    assert (second == 5).all()
    with pytest.raises(BufferError, match=r"Image\.numpy: the image cannot be shared: its layout is not NHWC"):
        image.numpy("NCHW", copy=False)


@needs_sharing
def test_channels_are_views() -> None:
    x = random((1, 3, 4, 12))
    image = mpscnn.Image.from_array(x)
    part = image.channels(4, 4)
    assert part.shape == (1, 3, 4, 4)
    assert address(part.numpy()) == address(x) + 16
    np.testing.assert_array_equal(part.numpy(), x[..., 4:8])
    part.write(random((1, 3, 4, 4), seed=3))
    np.testing.assert_array_equal(x[..., 4:8], random((1, 3, 4, 4), seed=3))


@needs_sharing
def test_array_protocols_of_an_image_do_not_copy() -> None:
    image = mpscnn.Image.from_array(random(SHAPE))
    here = address(image.numpy())
    assert address(np.asarray(image)) == here
    assert address(np.from_dlpack(image)) == here
    assert torch.from_dlpack(image).data_ptr() == here
    assert torch.from_numpy(image.numpy()).data_ptr() == here
    assert address(np.array(image, copy=True)) != here
    assert np.asarray(image, np.float64).dtype == np.float64


@needs_sharing
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_torch_tensors_come_in_without_a_copy(memory_format: torch.memory_format, requires_grad: bool) -> None:
    """A permuted channels_last tensor is a dense NHWC array; a contiguous one has to be copied."""
    nchw = torch.from_numpy(random((2, 6, 5, 7))).contiguous(memory_format=memory_format).requires_grad_(requires_grad)
    x = nchw.permute(0, 2, 3, 1)
    expected = np.maximum(x.detach().numpy(), 0)
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(x), expected)
    if memory_format is torch.channels_last:
        image = mpscnn.Image.from_array(x, copy=False)
        assert address(image.numpy()) == nchw.data_ptr()
        with torch.no_grad():
            nchw.mul_(2)
        np.testing.assert_array_equal(image.numpy(), x.detach().numpy())
    else:
        with pytest.raises(BufferError, match=r"its channels are not adjacent \(stride 140 bytes\)"):
            mpscnn.Image.from_array(x, copy=False)


@needs_sharing
def test_torch_tensors_as_out() -> None:
    x, out = torch.from_numpy(random(SHAPE)), torch.full(SHAPE, torch.nan)
    result = mpscnn.NeuronReLU()(x, out=out)
    assert result is out
    torch.testing.assert_close(out, x.relu(), rtol=0, atol=0)


@needs_sharing
def test_other_protocols_come_in_without_a_copy() -> None:
    memory = bytearray(random((1, 2, 3, 4)).tobytes())
    view = memoryview(memory).cast("f", (1, 2, 3, 4))
    image = mpscnn.Image.from_array(view, copy=False)
    memory[0:4] = np.float32(7).tobytes()
    assert image.numpy()[0, 0, 0, 0] == 7

    x = random((1, 2, 3, 4))

    class Holder:
        __array_interface__ = x.__array_interface__

    assert address(mpscnn.Image.from_array(Holder(), copy=False).numpy()) == address(x)


# ------------------------------------------------------------------------------------------- empty, Buffer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (1, 17, 19, 3), (2, 64, 64, 16)], ids=str)
def test_empty_can_always_be_shared(shape: tuple[int, ...], dtype: str) -> None:
    array = mpscnn.empty(shape, dtype)
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address(array) % 4096 == 0
    if len(shape) == 4 and mpscnn.Device().shares_images:
        assert address(mpscnn.Image.from_array(array, copy=False).numpy()) == address(array)


def test_buffer_shares_an_array() -> None:
    array = mpscnn.empty((1024, 4), "float32")
    array[...] = 1
    buffer = mpscnn.Buffer(array)
    assert len(buffer) == buffer.nbytes == array.nbytes
    view = buffer.numpy("float32", (1024, 4))
    assert address(view) == address(array)
    array[3, 2] = 8
    assert view[3, 2] == 8
    view[5] = -1
    assert (array[5] == -1).all()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda a: a[1:], r"its length \(49152 bytes\)|its address \(0x[0-9a-f]+\) is not a multiple of the page size"),
        (lambda a: a[:, ::2], r"strides \(16384, 8\) of shape \(4, 2048\) are not C-contiguous"),
        (lambda a: a[::-1], r"strides \(-16384, 4\) of shape \(4, 4096\) are not C-contiguous"),
        (
            lambda a: a.reshape(-1)[:1000],
            r"its length \(4000 bytes\) is not a positive multiple of the page size \(\d+\)",
        ),
        (lambda a: a.reshape(-1)[1:4097], r"its address \(0x[0-9a-f]+\) is not a multiple of the page size \(\d+\)"),
        (lambda a: np.broadcast_to(a[:1, :1], (64, 64)), r"not C-contiguous|read-only"),
    ],
)
def test_buffer_refusals_name_the_cause(make: Any, match: str) -> None:
    array = make(mpscnn.empty((4, 4096)))  # each row fills a page of Apple silicon
    if array.shape == (3, 4096):
        mpscnn.Buffer(array)  # three whole pages of four
        return
    with pytest.raises(BufferError, match=rf"Buffer: the array cannot be shared: .*({match})"):
        mpscnn.Buffer(array)


def test_buffer_refuses_read_only_arrays() -> None:
    array = mpscnn.empty((1024,))
    array.flags.writeable = False
    with pytest.raises(BufferError, match=r"it is read-only"):
        mpscnn.Buffer(array)


# ------------------------------------------------------------------------------------------- weights


def in_place(kernel: mpscnn.Kernel, array: np.ndarray) -> bool:
    """Return whether the kernel's data source passes the array's own memory to MPS."""
    source = kernel.data_source
    source.load()
    try:
        return address(source.weights) == address(array)
    finally:
        source.purge()


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_ohwi_weights_are_read_in_place(dtype: str) -> None:
    weight = random((8, 3, 5, 4), dtype)
    options = {"ranges": random((8, 2))} if dtype == "uint8" else {}
    assert in_place(mpscnn.Convolution(weight, layout="OHWI", **options), weight)
    weight.flags.writeable = False
    assert in_place(mpscnn.Convolution(weight, layout="OHWI", **options), weight), "read-only makes no difference"
    assert in_place(mpscnn.FullyConnected(weight, layout="OHWI", **options), weight)


def test_transposed_weights_of_mps_own_order_are_read_in_place() -> None:
    weight = random((8, 3, 5, 4))
    assert in_place(mpscnn.ConvolutionTranspose(weight, layout="OHWI"), weight)
    assert not in_place(mpscnn.ConvolutionTranspose(random((4, 8, 3, 5))), weight)


def test_other_weights_are_reordered_once_between_load_and_purge() -> None:
    weight = random((8, 4, 3, 5))
    kernel = mpscnn.Convolution(weight)
    source = kernel.data_source
    source.load()
    np.testing.assert_array_equal(source.weights, weight.transpose(0, 2, 3, 1))
    assert address(source.weights) != address(weight)
    assert address(source.weights) == address(source.weights)
    source.purge()
    with pytest.raises(RuntimeError, match=r"weights were asked for outside of load\(\) and purge\(\)"):
        _ = source.weights
    assert not in_place(mpscnn.Convolution(random((8, 3, 5, 8))[..., ::2], layout="OHWI"), weight)


def test_a_mapped_file_is_read_in_place(tmp_path: Path) -> None:
    weight = random((8, 3, 5, 4))
    weight.tofile(tmp_path / "ohwi.bin")
    mapped = mpscnn.map_weights(tmp_path / "ohwi.bin", weight.shape)
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    kernel = mpscnn.Convolution(mapped, layout="OHWI")
    assert in_place(kernel, mapped)
    if sys.platform == "linux":
        ranges = [
            tuple(int(part, 16) for part in line.split()[0].split("-"))
            for line in Path("/proc/self/maps").read_text().splitlines()
            if line.endswith("ohwi.bin")
        ]
        assert any(low <= address(mapped) < high for low, high in ranges), "the address lies in the file's own pages"
    x = random((1, 6, 7, 4))
    assert_close(kernel(x), conv2d(x, weight.transpose(0, 3, 1, 2)))


def test_bias_and_tables_are_read_in_place() -> None:
    weight, bias, table = random((8, 3, 3, 4), "uint8"), random((8,)), random((256,))
    source = mpscnn.Convolution(weight, bias, layout="OHWI", lookup_table=table).data_source
    assert address(source.bias) == address(bias)
    assert address(source.lookup_table) == address(table)


def test_weights_of_torch_are_read_in_place() -> None:
    weight = torch.nn.Parameter(torch.from_numpy(random((8, 3, 3, 4))))
    kernel = mpscnn.Convolution(weight, layout="OHWI")
    source = kernel.data_source
    source.load()
    assert address(source.weights) == weight.data_ptr()
    source.purge()


def test_weights_of_a_python_source_are_handed_on_in_place() -> None:
    weight = random((8, 3, 3, 4))
    source = Source(mpscnn.ConvolutionDescriptor(3, 4, 8), weight)
    assert in_place(mpscnn.Convolution(source), weight)


# ------------------------------------------------------------------------------------------- nothing between


PEAK = """
    import resource, sys
    from pathlib import Path
    import numpy as np, mpscnn
    mode = sys.argv[1]
    side = 1024                                 # 64 MB: 1 x 1024 x 1024 x 16 of float32
    x = np.ones((1, side, side, 16), np.float32)
    kernel = mpscnn.NeuronReLU()
    kernel(x[:, :64])                           # whatever is made once is made
    out = np.zeros_like(x)
    out[...] = 2                                # its pages are there
    def peak():
        if sys.platform == "linux":     # ru_maxrss counts what the parent process had, too
            return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The peak so far must be what is in use now, or growth would hide below it.
    before = peak()
    if mode == "out":
        kernel(x, out=out)
    elif mode == "result":
        y = kernel(x)
    elif mode == "image":
        mpscnn.Image.from_array(x, copy=False).numpy()[0, 0, 0, 0]
    elif mode == "copy":
        kernel(np.ascontiguousarray(x[:, ::-1]), out=out)
    print((peak() - before) / x.nbytes)
"""


@needs_sharing
@pytest.mark.parametrize(
    ("mode", "low", "high"),
    [
        ("image", 0, 0.1),
        ("out", 0, 0.25),
        ("result", 0.9, 1.3),  # the result itself
        ("copy", 0.9, 1.3),  # an explicit copy, to check the measurement
    ],
)
def test_no_array_stands_between(mode: str, low: float, high: float) -> None:
    growth = float(run_python(PEAK, mode))
    assert low <= growth <= high, f"the peak grew by {growth:.2f} arrays"


WEIGHTS_PEAK = """
    import resource, sys
    from pathlib import Path
    import numpy as np, mpscnn
    weight = np.ones((64, 128, 128, 16), np.float32)   # 64 MB
    def peak():
        if sys.platform == "linux":     # ru_maxrss counts what the parent process had, too
            return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    class Declines:
        descriptor = mpscnn.ConvolutionDescriptor(128, 16, 64)
        weights = weight
        loads = 0
        def load(self):
            self.loads += 1
            return self.loads < 2       # checked by the core, declined when MPS itself asks
        def purge(self):
            pass
    before = peak()
    try:
        mpscnn.Convolution(Declines())
    except RuntimeError:
        pass
    else:
        raise SystemExit("MPS never loaded")
    print((peak() - before) / weight.nbytes)
"""


@counts_memory
def test_no_copy_of_weights_stands_before_mps() -> None:
    """All of the core's work on weights in OHWI; copies made by MPS are not included."""
    assert float(run_python(WEIGHTS_PEAK)) < 0.1
