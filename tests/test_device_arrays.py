# SPDX-License-Identifier: Apache-2.0
"""Arrays in a GPU's memory, on the CUDA engine's second address space: the host faults on its addresses."""

from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import mpscnn
from network.graphs import residual
from support import ENGINE, assert_close, only_openmps, random

pytestmark = [
    only_openmps("openmps has the engine"),
    pytest.mark.skipif(ENGINE != "cpu", reason="the tests choose the engine"),
]

SHAPE = (2, 56, 40, 12)


class Exporter:
    """Array of another library: `shape` and `strides` (bytes) from `first` bytes on in an image's memory."""

    def __init__(self, image: mpscnn.Image, shape: Any = None, strides: Any = None, first: int = 0, **fields: Any):
        self.image, self.reads = image, 0
        self.fields = dict(image.__cuda_array_interface__) | fields
        if shape is not None:
            self.fields |= {"shape": shape, "strides": strides}
        address, read_only = self.fields["data"]
        self.fields["data"] = (address + first, read_only)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.reads += 1
        return self.fields


def on_gpu(gpu: mpscnn.Device, x: np.ndarray[Any, Any]) -> mpscnn.Image:
    return mpscnn.Image.from_array(x, device=gpu)


def address(array: Any) -> int:
    where: int = array.__cuda_array_interface__["data"][0]
    return where


def permuted(image: mpscnn.Image, axes: tuple[int, ...]) -> Exporter:
    fields = image.__cuda_array_interface__
    return Exporter(image, *(tuple(fields[name][axis] for axis in axes) for name in ("shape", "strides")))


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "uint16"])
def test_an_image_over_the_memory_of_another_library(cuda_host: mpscnn.Device, dtype: str) -> None:
    x = (random(SHAPE) * 50).astype(dtype)
    exporter = Exporter(on_gpu(cuda_host, x))
    image = mpscnn.Image.from_array(exporter, copy=False, device=cuda_host)
    assert address(image) == address(exporter)
    np.testing.assert_array_equal(image.numpy(), x)
    image.write(x + 1)
    np.testing.assert_array_equal(exporter.image.numpy(), x + 1)


def test_an_array_that_refuses_dlpack(cuda_host: mpscnn.Device) -> None:
    """PyTorch's tensors do, if their GPU is not the current one."""

    class Refusing(Exporter):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (12, 0)

        def __dlpack__(self, **kwargs: Any) -> Any:
            raise BufferError("another device")

    x = random(SHAPE)
    exporter = Refusing(on_gpu(cuda_host, x))
    np.testing.assert_array_equal(mpscnn.Image.from_array(exporter, copy=False, device=cuda_host).numpy(), x)

    class WithoutAddress(Refusing):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise AttributeError

    exporter.__class__ = WithoutAddress
    with pytest.raises(BufferError, match="another device"):
        mpscnn.Image.from_array(exporter, device=cuda_host)


def test_copies_are_asked_for(cuda_host: mpscnn.Device) -> None:
    x = random(SHAPE)
    exporter = Exporter(on_gpu(cuda_host, x))
    image = mpscnn.Image.from_array(exporter, copy=True, device=cuda_host)
    assert address(image) != address(exporter)
    exporter.image.write(x + 1)
    np.testing.assert_array_equal(image.numpy(), x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("shape", [SHAPE, (1, 33, 17, 8), (3, 5, 7, 1), (5, 1, 1, 40)])
def test_channels_first(cuda_host: mpscnn.Device, shape: tuple[int, ...], dtype: str) -> None:
    """PyTorch's default order of axes: contiguous N, C, H, W is copied on the GPU, channels_last is a view."""
    n, h, w, c = shape
    x = (random((n, c, h, w)) * 50).astype(dtype)
    flat = on_gpu(cuda_host, x.reshape(-1, 1, 1, 1))
    strides = x.strides
    contiguous = Exporter(flat, (n, c, h, w), strides)
    image = mpscnn.Image.from_array(contiguous, "NCHW", device=cuda_host)
    np.testing.assert_array_equal(image.numpy(), x.transpose(0, 2, 3, 1))
    as_nhwc = Exporter(flat, (n, h, w, c), (strides[0], strides[2], strides[3], strides[1]))
    np.testing.assert_array_equal(mpscnn.Image.from_array(as_nhwc, device=cuda_host).numpy(), x.transpose(0, 2, 3, 1))
    # And back, into the other library's memory.
    other = on_gpu(cuda_host, np.zeros((x.size, 1, 1, 1), dtype))
    image.numpy("NCHW", out=Exporter(other, (n, c, h, w), strides))
    np.testing.assert_array_equal(other.numpy().ravel(), x.ravel())


def test_views_with_gaps(cuda_host: mpscnn.Device) -> None:
    x = random(SHAPE)
    whole = on_gpu(cuda_host, x)
    n, h, w, c = whole.__cuda_array_interface__["strides"]
    view = Exporter(whole, (2, 28, 20, 8), (n, 2 * h, 2 * w, c), first=h + 3 * w + 4 * c)
    image = mpscnn.Image.from_array(view, copy=False, device=cuda_host)
    part = x[:, 1:57:2, 3:43:2, 4:12][:, :28, :20]
    np.testing.assert_array_equal(image.numpy()[:, :, :18], part[:, :, :18])
    y = mpscnn.Convolution(random((16, 8, 3, 3)), padding=1, device=cuda_host)(view)
    assert y.shape == (2, 28, 20, 16)
    backwards = Exporter(whole, SHAPE, (n, -h, w, c), first=55 * h)
    with pytest.raises(ValueError, match=r"stride -\d+ of the array along axis 1 \(N, H, W, C\) is not a positive"):
        mpscnn.Image.from_array(backwards, device=cuda_host)
    with pytest.raises(BufferError, match="stride -1920 along axis 1 is not positive"):
        mpscnn.Image.from_array(backwards, copy=False, device=cuda_host)


def test_dlpack_of_images(cuda_host: mpscnn.Device) -> None:
    x = random(SHAPE)
    image = on_gpu(cuda_host, x)
    again = mpscnn.Image.from_array(image, copy=False, device=cuda_host)
    assert address(again) == address(image)
    assert image.__dlpack_device__() == (12, 0)  # kDLExtDev: not a GPU that other libraries know
    np.testing.assert_array_equal(np.asarray(image), x)
    np.testing.assert_array_equal(np.from_dlpack(OnCpu(image)), x)
    with pytest.raises(BufferError, match=r"^DeviceArray: dl_device \(2, 1\) is not its \(12, 0\)\.$"):
        image.__dlpack__(dl_device=(2, 1))
    with pytest.raises(BufferError, match=r"copy=False was asked for, and dl_device \(1, 0\) is not its \(12, 0\)"):
        image.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="copies only to the CPU"):
        image.__dlpack__(copy=True)
    assert not hasattr(mpscnn.Image.from_array(x), "__cuda_array_interface__")


class OnCpu:
    """Asks an array for a copy on the CPU, as np.from_dlpack(x, device="cpu") does."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options | {"dl_device": (1, 0)})


def test_devices_are_not_mixed(cuda_host: mpscnn.Device) -> None:
    image = on_gpu(cuda_host, random(SHAPE))
    relu = mpscnn.NeuronReLU()
    for array, type_number in ((image, 12), (Exporter(image), 2)):
        name = type(array).__name__
        sentence = rf"^x \({name}\) lies on DLPack device {type_number}, not in the memory of the CPU \(1\)\.$"
        with pytest.raises(TypeError, match=sentence):
            mpscnn.Image.from_array(array)
        if array is not image:
            with pytest.raises(TypeError, match=sentence):
                relu(array)
    on_the_host = random(SHAPE)
    fields = {"data": (on_the_host.ctypes.data, False)}
    with pytest.raises(TypeError, match=r"^x \(Exporter\) lies in no memory of DLPack device 12 \(CUDA on the host\)"):
        mpscnn.Image.from_array(Exporter(image, **fields), device=cuda_host)
    exporter = type("Other", (OnCpu,), {"__dlpack_device__": lambda self: (2, 3)})(image)
    sentence = r"^x \(Other\) lies on CUDA device 3, not on DLPack device 12 \(CUDA on the host\)\.$"
    with pytest.raises(TypeError, match=sentence):
        mpscnn.Image.from_array(exporter, device=cuda_host)


@pytest.mark.parametrize("missing", ["data", "shape", "typestr"])
def test_wrong_interfaces(cuda_host: mpscnn.Device, missing: str) -> None:
    exporter = Exporter(on_gpu(cuda_host, random(SHAPE)))
    del exporter.fields[missing]
    with pytest.raises(TypeError, match="__cuda_array_interface__"):
        mpscnn.Image.from_array(exporter, device=cuda_host)


def test_read_only_memory(cuda_host: mpscnn.Device) -> None:
    image = on_gpu(cuda_host, random(SHAPE))
    exporter = Exporter(image, data=(address(image), True))
    shared = mpscnn.Image.from_array(exporter, device=cuda_host)
    assert shared.__cuda_array_interface__["data"][1] is True
    with pytest.raises(ValueError, match="the image is read-only"):
        shared.write(random(SHAPE))
    with pytest.raises(ValueError, match="out is read-only"):
        image.numpy(out=exporter)
    with pytest.raises(BufferError, match="pass max_version"):
        shared.__dlpack__()


def test_lifetimes(cuda_host: mpscnn.Device) -> None:
    """The image keeps the other library's array, a capsule keeps the image, work in progress keeps both."""
    x = random(SHAPE)
    exporter = Exporter(on_gpu(cuda_host, x))
    gone = weakref.ref(exporter)
    image = mpscnn.Image.from_array(exporter, device=cuda_host)
    capsule = image.__dlpack__(max_version=(1, 0))
    del image, exporter
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is None
    before = cuda_host.allocated_bytes
    capsule = on_gpu(cuda_host, x).__dlpack__()
    assert cuda_host.allocated_bytes > before
    del capsule
    assert cuda_host.allocated_bytes == before
    exporter = Exporter(on_gpu(cuda_host, x))
    gone = weakref.ref(exporter)
    commands = mpscnn.CommandBuffer(cuda_host)
    y = mpscnn.NeuronReLU(device=cuda_host).encode(commands, mpscnn.Image.from_array(exporter, device=cuda_host))
    del exporter
    gc.collect()
    assert gone() is not None
    commands.commit()
    commands.wait()
    del commands
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))
    gc.collect()
    assert gone() is None


def test_an_image_that_is_being_written_is_not_exported(cuda_host: mpscnn.Device) -> None:
    commands = mpscnn.CommandBuffer(cuda_host)
    y = mpscnn.NeuronReLU(device=cuda_host).encode(commands, on_gpu(cuda_host, random(SHAPE)))
    with pytest.raises(RuntimeError, match="the command buffer that writes it has not completed"):
        y.__dlpack__()


@pytest.mark.parametrize("version", [2, 3])
def test_streams(cuda_host: mpscnn.Device, version: int) -> None:
    """Each form of the interface's stream is accepted; the order of streams is seen on GPUs only."""
    image = on_gpu(cuda_host, random(SHAPE))
    for stream in (None, 1, 2) if version == 3 else ({},):
        exporter = Exporter(image, version=version, **({"stream": stream} if stream != {} else {}))
        if version == 2:
            del exporter.fields["stream"]
        np.testing.assert_array_equal(mpscnn.Image.from_array(exporter, device=cuda_host).numpy(), image.numpy())


def test_kernels(cuda_host: mpscnn.Device) -> None:
    x, weight = random(SHAPE), random((24, 12, 3, 3))
    kernel = mpscnn.Convolution(weight, padding=1, device=cuda_host)
    expected = mpscnn.Convolution(weight, padding=1)(x)
    exporter = Exporter(on_gpu(cuda_host, x))
    y = kernel(exporter)
    assert isinstance(y, mpscnn.DeviceArray)
    assert (y.shape, y.dtype, y.ndim, len(y), y.device) == (expected.shape, expected.dtype, 4, 2, cuda_host)
    assert repr(y) == "<mpscnn.DeviceArray (2, 56, 40, 24) float32>"
    assert_close(y.numpy(), expected)
    assert_close(np.asarray(y), expected)
    assert_close(mpscnn.NeuronReLU(device=cuda_host)(y).numpy(), np.maximum(expected, 0))
    out = on_gpu(cuda_host, np.zeros(expected.shape, np.float32))
    given = Exporter(out)
    assert kernel(exporter, out=given) is given
    assert_close(out.numpy(), expected)
    on_host = np.empty(expected.shape, np.float32)
    assert_close(kernel(exporter, out=on_host), expected)
    converted = mpscnn.ImageConversion("float16", device=cuda_host)(exporter)
    np.testing.assert_array_equal(converted.numpy(), x.astype(np.float16))
    with pytest.raises(TypeError, match="DeviceArray: calls with arrays of a GPU make it"):
        mpscnn.DeviceArray()


def given_and_expected(gpu: mpscnn.Device, layout: str) -> tuple[mpscnn.Network, Any, Any, list[Any]]:
    """Return a network on the GPU, its input in the layout on the host and on the GPU, and the results on the CPU."""
    x = random((3, 30, 22, 3))
    nets = [mpscnn.Network(residual(), device=device) for device in (gpu, mpscnn.Device())]
    for net in nets:
        net.input_layout = net.output_layout = layout
    x = np.ascontiguousarray(x.transpose(tuple("NHWC".index(letter) for letter in layout)))
    flat = on_gpu(gpu, x.reshape(-1, 1, 1, 1))
    return nets[0], x, Exporter(flat, x.shape, x.strides), list(nets[1](x))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_networks(cuda_host: mpscnn.Device, layout: str) -> None:
    net, x, exporter, expected = given_and_expected(cuda_host, layout)
    for _ in range(3):
        results = net(exporter)
        assert all(isinstance(result, mpscnn.DeviceArray) for result in results)
        for result, wanted in zip(results, expected, strict=True):
            assert result.shape == wanted.shape
            assert_close(result.numpy(), wanted)
    for results in [*net.stream([exporter] * 4), asyncio.run(net.apredict(exporter))]:
        for result, wanted in zip(results, expected, strict=True):
            assert_close(result.numpy(), wanted)
    memory = [on_gpu(cuda_host, np.zeros((wanted.size, 1, 1, 1), np.float32)) for wanted in expected]
    outs = [Exporter(each, wanted.shape, wanted.strides) for each, wanted in zip(memory, expected, strict=True)]
    net(exporter, out=outs)
    for each, wanted in zip(memory, expected, strict=True):
        assert_close(each.numpy().reshape(wanted.shape), wanted)
    empty = np.empty((0, *x.shape[1:]), np.float32)
    assert [result.shape[0] for result in net(empty)] == [0, 0]


def test_results_share_no_memory(cuda_host: mpscnn.Device) -> None:
    net, _, exporter, expected = given_and_expected(cuda_host, "NHWC")
    first, second = net(exporter), net(exporter)
    assert len({address(result) for result in (*first, *second)}) == 4
    held = cuda_host.allocated_bytes
    del first
    gc.collect()
    assert held - cuda_host.allocated_bytes >= sum(wanted.nbytes for wanted in expected)
    with pytest.raises(ValueError, match="may share memory"):
        net(exporter, out=[Exporter(exporter.image, expected[0].shape, expected[0].strides), None])


def test_buffers(cuda_host: mpscnn.Device) -> None:
    x = random((5, 700))  # not a number of whole pages
    exporter = Exporter(on_gpu(cuda_host, x.reshape(-1, 1, 1, 1)), x.shape, x.strides)
    gone = weakref.ref(exporter)
    buffer = mpscnn.Buffer(exporter, device=cuda_host)
    assert (buffer.nbytes, buffer.device) == (x.nbytes, cuda_host)
    assert address(buffer) == address(exporter)
    assert buffer.__dlpack_device__() == (12, 0)
    del exporter
    gc.collect()
    assert gone() is not None
    with pytest.raises(BufferError, match=r"Buffer: it is in the memory of the device \(CUDA on the host\)"):
        buffer.numpy()
    capsule = buffer.__dlpack__(stream=1, max_version=(1, 0))
    again = mpscnn.Image.from_array(
        Exporter(buffer, (1, 5, 700, 1), (x.nbytes, 2800, 4, 4), typestr="<f4"), device=cuda_host
    )
    np.testing.assert_array_equal(again.numpy().reshape(x.shape), x)
    del buffer, again, capsule
    gc.collect()
    assert gone() is None
    shared = mpscnn.Buffer(4096, device=cuda_host)
    shared.numpy()[:] = 7
    assert shared.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(shared).sum() == 7 * 4096
    assert shared.__cuda_array_interface__["shape"] == (4096,)
    assert not hasattr(mpscnn.Buffer(64), "__cuda_array_interface__")


@pytest.mark.parametrize("shape", [(2, 224, 218, 3), (1, 35, 3, 3), (2, 40, 40, 1)])
def test_mean_and_standard_deviation_of_bytes(cuda_host: mpscnn.Device, shape: tuple[int, ...]) -> None:
    """Four pixels per thread if they are a multiple of four; the input of a network in photographs."""
    channels = shape[3]
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=channels, layout="NHWC")), "y", layout="NHWC")
    mean, std = [0.485, 0.456, 0.406][:channels], [0.229, 0.224, 0.225][:channels]
    net = mpscnn.Network(graph, dtype="float16", mean=mean, std=std, device=cuda_host)
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = np.maximum((x / 255 - np.array(mean)) / np.array(std), 0)
    assert_close(net(x).astype(np.float32), expected.astype(np.float32), 2e-3)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("shape", [(4, 224, 224, 3), (3, 600, 500, 8)])
def test_transfers_in_several_blocks(cuda_host: mpscnn.Device, shape: tuple[int, ...], layout: Any) -> None:
    """Transfers are divided into blocks of 8 MB; the second shape has 29 MB."""
    x = random(shape)
    ordered = x if layout == "NHWC" else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    image = mpscnn.Image.from_array(ordered, layout, device=cuda_host)
    np.testing.assert_array_equal(image.numpy(), x)
    np.testing.assert_array_equal(image.numpy(layout), ordered)
    with_gaps = np.zeros((*shape[:3], shape[3] + 1), np.float32)[..., :-1]
    image.numpy(out=with_gaps)
    np.testing.assert_array_equal(with_gaps, x)
    image.write(with_gaps + 1)
    with_gaps += 1
    image.write(with_gaps)
    np.testing.assert_array_equal(image.numpy(), x + 1)


def test_threads_share_the_blocks_of_transfers(cuda_host: mpscnn.Device) -> None:
    arrays = [np.full((3, 300, 300, 8), i, np.float32) for i in range(8)]

    def there_and_back(x: np.ndarray[Any, Any]) -> bool:
        return all(bool((on_gpu(cuda_host, x).numpy() == x).all()) for _ in range(3))

    with ThreadPoolExecutor(len(arrays)) as pool:
        assert all(pool.map(there_and_back, arrays))
