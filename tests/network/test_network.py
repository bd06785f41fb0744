# SPDX-License-Identifier: Apache-2.0
"""A network computes the results of its kernels one by one, for any batch, size, layout and type of arrays."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from interpreter import interpret
from mpscnn import _core
from network.graphs import residual
from support import APPLE, ENGINE, limits_slices, random

Make = Callable[..., NDArray[np.float32]]


def close(actual: NDArray[Any], expected: NDArray[Any], bound: float = 2e-6) -> None:
    assert actual.shape == expected.shape
    scale = max(float(np.abs(expected).max()), 1e-30)
    assert float(np.abs(actual.astype(np.float64) - expected).max()) <= bound * scale


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_equals_its_kernels_one_by_one(optimize: bool, n: int, make_x: Make) -> None:
    x = make_x(n)
    expected = interpret(residual(), x=x)
    results = mpscnn.Network(residual(), optimize=optimize)(x)
    for name, result in zip(("y", "features"), results, strict=True):
        close(result, expected[name])
    if not optimize:  # the same kernels on the same numbers
        assert all(np.array_equal(a, b) for a, b in zip(results, expected.values(), strict=True))


def test_batches_and_sizes_need_no_new_network(net: mpscnn.Network, make_x: Make) -> None:
    for n, h, w in [(1, 9, 7), (7, 9, 7), (3, 16, 5), (1, 1, 1), (2, 9, 7)]:
        x = make_x(n, h, w)
        for result, expected in zip(net(x), interpret(residual(), x=x).values(), strict=True):
            close(result, expected)
    c = x.shape[1]
    for n in (1, 4, 9):
        with mpscnn.CommandBuffer() as commands:
            net.encode(commands, mpscnn.Image((n, 9, 7, c)))
    assert net._core.plans == 3  # for any number of images


def test_shapes_that_are_kept_are_bounded(net: mpscnn.Network, make_x: Make) -> None:
    for size in range(1, 41):
        net(make_x(1, size, 3))
    assert net._core.plans == 16


class Counting(mpscnn.PaddingPolicy):
    """Returns every suggestion, and counts them."""

    asked = 0

    def destination(self, kernel: Any, sources: Any, suggested: tuple[int, ...]) -> Any:
        self.asked += 1
        return suggested


def test_shapes_used_last_are_kept(make_x: Make) -> None:
    graph, policy = mpscnn.Graph(), Counting()
    graph.output(graph.add("PoolingMax", graph.input("x", channels=3, layout="NCHW"), kernel_size=2, padding=policy))
    net = mpscnn.Network(graph)

    def asked(height: int) -> int:
        before = policy.asked
        net(make_x(1, height, 4))
        return policy.asked - before

    new = asked(4)
    known = asked(4)
    assert known < new
    assert [asked(height) for height in range(5, 20)] == [new] * 15  # sixteen with the first one
    assert asked(4) == known
    assert asked(20) == new
    assert asked(4) == known
    assert asked(5) == new  # the least recently used


def test_a_batch_of_more_images_than_an_image_holds(make_x: Make) -> None:
    graph = mpscnn.Graph()
    rng = np.random.default_rng(0)
    x = graph.input("x", channels=3, layout="NCHW")
    wide = graph.add("Convolution", x, weight=rng.standard_normal((2048, 3, 1, 1)).astype(np.float32))  # 4 images
    graph.output(graph.add("ReduceFeatureChannelsMax", wide), "y", layout="NCHW")
    net, batch = mpscnn.Network(graph), make_x(11, 3, 2)
    if APPLE:
        assert net._core.chunk_images([(1, 3, 2, 3)]) == 4
    assert np.array_equal(net(batch), interpret(graph, x=batch)["y"])
    out = np.full((11, 1, 3, 2), np.nan, np.float32)
    assert net(batch, out=out) is out
    assert np.array_equal(out, interpret(graph, x=batch)["y"])


def test_large_batches_are_computed_in_chunks() -> None:
    """Intermediate results of a call take at most 32 MB, 2 GB on a GPU, unless a single image needs more."""
    graph = mpscnn.Graph()
    wide = graph.add("Convolution", graph.input("x", channels=3), weight=np.ones((16, 3, 1, 1), np.float32))
    graph.output(graph.add("ReduceFeatureChannelsMax", wide), "y")
    net = mpscnn.Network(graph)
    assert [net._core.chunk_images([(1, side, side, 3)]) for side in (256, 512, 1024)] == (
        [481, 120, 30] if ENGINE == "cuda-host" else [7, 1, 1]
    )
    x = random((17, 256, 256, 3))
    np.testing.assert_allclose(net(x)[..., 0], x.sum(3), atol=1e-4)


@pytest.mark.skipif(ENGINE == "cuda-host", reason="chunks on a GPU have 2 GB, whatever the weights")
def test_chunks_grow_with_the_weights() -> None:
    """Each chunk reads the weights again, so it may take as many bytes as these: at least 32 MB, at most 128 MB.

    With reduced precision at most 256 MB, counted as float32, of which bfloat16 takes half.
    """
    for outputs, images, reduced in ((4, 7, 7), (16, 15, 15), (80, 31, 63)):  # 16 MB, 64 MB, 320 MB of weights
        graph = mpscnn.Graph()
        wide = graph.add("Convolution", graph.input("x", channels=3), weight=np.ones((16, 3, 1, 1), np.float32))
        weight = np.zeros((outputs, 16, 256, 256), np.float32)
        graph.output(graph.add("Convolution", wide, weight=weight), "y")
        for is_reduced, expected in ((False, images), (True, reduced)):
            net = mpscnn.Network(graph, allow_reduced_precision=is_reduced)
            assert net._core.chunk_images([(1, 256, 256, 3)]) == expected


@limits_slices
def test_more_images_than_one_encode_takes() -> None:
    graph = mpscnn.Graph()
    wide = graph.add("Convolution", graph.input("x", channels=3), weight=np.ones((2048, 3, 1, 1), np.float32))
    graph.output(graph.add("ReduceFeatureChannelsMax", wide), "y")
    net = mpscnn.Network(graph)
    with pytest.raises(ValueError, match=r"the number of images \(5\) is greater than the maximum \(4\) of one encode"):
        net.encode(mpscnn.CommandBuffer(), mpscnn.Image((5, 2, 2, 3)))


def test_a_batch_that_must_stay_whole() -> None:
    """The image indices of a rectangle count from the start of the whole batch."""
    for images, most in ((1, 0), (2**30, 4 if APPLE else 65504 if ENGINE == "cuda-host" else 1023)):
        graph = mpscnn.Graph()
        wide = graph.add("Convolution", graph.input("x", channels=3), weight=np.ones((2048, 3, 1, 1), np.float32))
        rectangle = ((0, 0, 0), (2, 2, images))
        graph.output(graph.add("ReduceFeatureChannelsMax", wide, clip_rect_source=rectangle), "y")
        assert mpscnn.Network(graph)._core.chunk_images([(1, 2, 2, 3)]) == most


def test_a_batch_of_none(net: mpscnn.Network, make_x: Make) -> None:
    y, features = net(make_x(0))
    assert y.shape == (0, 10, 9, 7)
    assert features.shape == (0, 9, 7, 16)


def test_layouts_are_the_models_until_they_are_set(net: mpscnn.Network, make_x: Make) -> None:
    x = make_x()
    y, features = net(x)
    assert net.input_layout == "NCHW"
    assert net.output_layout == {"y": "NCHW", "features": "NHWC"}
    net.input_layout = "NHWC"
    net.output_layout = {"y": "NHWC", "features": "NCHW"}
    assert np.array_equal(net(x.transpose(0, 2, 3, 1))[0], y.transpose(0, 2, 3, 1))
    assert np.array_equal(net(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))[1], features.transpose(0, 3, 1, 2))
    net.input_layout = "NWCH"
    assert np.array_equal(net(x.transpose(0, 3, 1, 2))[0], y.transpose(0, 2, 3, 1))
    with pytest.raises(ValueError, match=r'input_layout \("NCXW"\) is not "N" followed by'):
        net.input_layout = "NCXW"
    with pytest.raises(KeyError, match='there is no "z"; there are y, features'):
        net.output_layout = {"z": "NHWC"}


def test_strided_and_foreign_arrays(net: mpscnn.Network, make_x: Make) -> None:
    torch = pytest.importorskip("torch")
    x = make_x(2, 9, 7)
    expected = net(x)[0]
    wide = np.zeros((4, 3, 18, 21), np.float32)
    wide[::2, :, ::2, ::3] = x
    assert np.array_equal(net(wide[::2, :, ::2, ::3])[0], expected)
    assert np.array_equal(net(np.ascontiguousarray(x[:, :, :, ::-1])[:, :, :, ::-1])[0], expected)
    assert np.array_equal(net(torch.from_numpy(x))[0], expected)
    assert np.array_equal(net(torch.from_numpy(x).contiguous(memory_format=torch.channels_last))[0], expected)
    read_only = x.copy()
    read_only.flags.writeable = False
    assert np.array_equal(net(read_only)[0], expected)


def test_out(net: mpscnn.Network, make_x: Make) -> None:
    x = make_x()
    y, features = net(x)
    guarded = np.full((2 + 1, 10, 9, 7), np.nan, np.float32)
    given = [guarded[:2], None]
    results = net(x, out=given)
    assert results[0] is given[0]
    assert np.array_equal(results[0], y)
    assert np.isnan(guarded[2]).all()
    assert np.array_equal(results[1], features)
    half = np.empty((2, 9, 7, 16), np.float16)
    net(x, out=(None, half))
    assert np.array_equal(half, features.astype(np.float16))
    strided = np.zeros((2, 10, 9, 14), np.float32)
    net(x, out=(strided[..., ::2], None))
    assert np.array_equal(strided[..., ::2], y)
    assert not strided[..., 1::2].any()


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.zeros((2, 10, 9, 7), np.float32), TypeError, r"out is one array; there are 2 outputs \(y, features\)"),
        ([None], TypeError, r"the number of arrays in out \(1\) is not 2"),
        (
            [np.zeros((2, 10, 9, 8), np.float32), None],
            ValueError,
            r"out\[0\].shape \(2, 10, 9, 8\) is not the result's",
        ),
        ([np.zeros((2, 10, 9, 7), np.int32), None], TypeError, r"out\[0\].dtype \(int32\) is not float32"),
        ([None, np.zeros((2, 9, 7, 16), np.float64)], TypeError, r"out\[1\].dtype \(float64\) is not float32"),
    ],
)
def test_out_that_does_not_fit(out: Any, error: type[Exception], message: str, net: Any, make_x: Make) -> None:
    with pytest.raises(error, match=message):
        net(make_x(), out=out)


def test_out_that_is_the_input_or_read_only(net: mpscnn.Network, make_x: Make) -> None:
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", layout="NCHW")), "y", layout="NCHW")
    small, x = mpscnn.Network(graph), make_x()
    with pytest.raises(ValueError, match='out may share memory with "x"'):
        small(x, out=x)
    out = np.zeros_like(x)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        small(x, out=out)


def test_out_that_is_a_part_of_an_input() -> None:
    graph = mpscnn.Graph()
    graph.output(graph.add("Add", graph.input("a", channels=4), graph.input("b", channels=4)), "y")
    net = mpscnn.Network(graph)
    memory, apart = np.zeros((4, 5, 6, 4), np.float32), np.ones((2, 5, 6, 4), np.float32)
    for name, a, b in (("b", apart, memory[:2]), ("a", memory[1:3], apart), ("b", apart, memory[2:0:-1])):
        with pytest.raises(ValueError, match=f'out may share memory with "{name}"'):
            net(a, b, out=memory[1:3])
    # A reversed view ends at its base address.
    assert (net(apart, memory[1::-1], out=memory[2:]) == 1).all()
    with pytest.raises(ValueError, match='out may share memory with "b"'):
        net(apart, memory[2:0:-1], out=memory[:2])


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ((np.zeros((1, 4, 5, 5), np.float32),), ValueError, r'input "x": its number of channels \(4\) is not 3'),
        ((np.zeros((3, 5, 5), np.float32),), ValueError, r'x.ndim \(3\) is not 4 \(layout "NCHW"\)'),
        ((np.zeros((1, 3, 0, 5), np.float32),), ValueError, r'input "x": an extent \(0\) is less than the minimum'),
        ((np.zeros((1, 3, 5, 5), np.float64),), TypeError, "float64"),
        (("abc",), TypeError, r"x \(str\)"),
        ((), TypeError, r"the number of arrays \(0\) is not 1 \(x\)"),
        ((np.zeros((1, 3, 5, 5), np.float32),) * 2, TypeError, r"the number of arrays \(2\) is not 1 \(x\)"),
    ],
)
def test_wrong_arrays(net: mpscnn.Network, arrays: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        net(*arrays)


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (
            {"layout": "NCHW", "channels": 3},
            (2, 8, 6, 3),
            'input "x": its number of channels (8) is not 3. The shape (2, 8, 6, 3) does not fit the layout "NCHW",'
            ' (N, 3, H, W), but "NHWC": set net.input_layout = "NHWC", or permute the axes of the array: (0, 3, 1, 2).',
        ),
        (
            {"layout": "NHWC", "channels": 3},
            (2, 3, 8, 6),
            'input "x": its number of channels (6) is not 3. The shape (2, 3, 8, 6) does not fit the layout "NHWC",'
            ' (N, H, W, 3), but "NCHW": set net.input_layout = "NCHW", or permute the axes of the array: (0, 2, 3, 1).',
        ),
        (
            {"layout": "NCHW", "channels": 3, "height": 3, "width": 6, "fixed_by": "pool"},
            (1, 3, 6, 3),
            'input "x": its height (6) is not 3, the one that the model was imported for, fixed by pool. The shape'
            ' (1, 3, 6, 3) does not fit the layout "NCHW", (N, 3, 3, 6), but "NHWC": set net.input_layout = "NHWC", or'
            " permute the axes of the array: (0, 3, 1, 2).",
        ),
        (
            {"layout": "NCHW"},  # the number of channels follows from the kernel
            (1, 8, 6, 3),
            'node "convolution": Convolution: x has 8 channels to read; the weights have in_channels (3). The shape'
            ' (1, 8, 6, 3) does not fit the layout "NCHW", (N, C, H, W), but "NHWC": set net.input_layout = "NHWC", or'
            " permute the axes of the array: (0, 3, 1, 2).",
        ),
    ],
)
def test_an_array_in_the_other_layout(spec: dict[str, Any], given: tuple[int, ...], message: str) -> None:
    graph = mpscnn.Graph()
    kernel = graph.add("Convolution", graph.input("x", **spec), weight=np.ones((4, 3, 3, 3), np.float32), padding=1)
    graph.output(kernel, "y")
    net, x = mpscnn.Network(graph), np.ones(given, np.float32)
    for call in (lambda: net(x), lambda: asyncio.run(net.apredict(x)), lambda: next(net.stream([x]))):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call()
    expected = net(x.transpose(ast.literal_eval(message[message.rindex("(") : -1])))
    net.input_layout = {"NCHW": "NHWC", "NHWC": "NCHW"}[spec["layout"]]
    assert np.array_equal(net(x), expected)


def test_arrays_in_the_other_layout() -> None:
    graph = mpscnn.Graph()
    a, b = (graph.input(name, channels=3, layout="NCHW") for name in "ab")
    graph.output(graph.add("Add", a, b), "y")
    net = mpscnn.Network(graph)
    first, last = np.ones((1, 3, 8, 6), np.float32), np.ones((1, 8, 6, 3), np.float32)
    with pytest.raises(ValueError, match=r'set net\.input_layout = \{"b": "NHWC"\}, or permute'):
        net(first, last)
    with pytest.raises(ValueError, match=r'of "a" does.* of "b" does.*set net\.input_layout = "NHWC", or permute'):
        net(last, last)
    with pytest.raises(ValueError, match=r"is not 3\.$"):
        net(first, np.ones((1, 4, 8, 6), np.float32))
    net.input_layout = {"b": "NHWC"}
    assert (net(first, last) == 2).all()


@pytest.mark.parametrize("shape", [(1, 4, 5, 5), (3, 5, 5), (1, 5, 0, 3), (1, 5, 5, 5, 3)])
def test_an_array_that_fits_no_layout(net: mpscnn.Network, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^(?!.*layout = )"):
        net(np.ones(shape, np.float32))


def test_inputs_by_name() -> None:
    graph = mpscnn.Graph()
    a, b = graph.input("a", channels=4), graph.input("b", channels=4)
    graph.output(graph.add("Subtract", a, b), "difference")
    net = mpscnn.Network(graph)
    x, y = np.ones((2, 3, 5, 4), np.float32), np.full((2, 3, 5, 4), 5, np.float32)
    for result in (net(x, y), net(b=y, a=x), net(x, b=y)):
        assert np.array_equal(result, x - y)
    with pytest.raises(TypeError, match='there is no input "c"; there are a, b'):
        net(x, c=y)
    with pytest.raises(TypeError, match='input "a" is given twice'):
        net(x, a=y)
    with pytest.raises(TypeError, match="no array is given for b"):
        net(a=x)
    with pytest.raises(ValueError, match=r'input "b" has 1 images; "a" has 2'):
        net(x, y[:1])


def test_errors_name_the_node(make_x: Make) -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", layout="NCHW")
    a = graph.add("Convolution", x, weight=np.ones((4, 3, 5, 5), np.float32), name="first")
    graph.output(a, "y")
    net = mpscnn.Network(graph)
    with pytest.raises(ValueError, match=r'node "first": Convolution: the result has'):
        net(make_x(1, 4, 4))
    with pytest.raises(ValueError, match=r'node "first": Convolution: x has 2 channels'):
        net(np.zeros((1, 2, 8, 8), np.float32))
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3)
    graph.output(graph.add("PoolingMax", x, kernel_size=0, name="pool", origin="features.3 (MaxPool2d)"))
    with pytest.raises(ValueError, match=r'node "pool", from features.3 \(MaxPool2d\): PoolingMax: kernel_size'):
        mpscnn.Network(graph)


def test_fixed_sizes_name_their_reason(make_x: Make) -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", height=9, width=7, channels=3, layout="NCHW", fixed_by="avgpool (AdaptiveAvgPool2d)")
    graph.output(graph.add("NeuronReLU", x), "y")
    net = mpscnn.Network(graph)
    net(make_x(1, 9, 7))
    with pytest.raises(
        ValueError,
        match=r"height \(8\) is not 9, the one that the model was imported for, fixed by avgpool \(AdaptiveAvgPool2d\)",
    ):
        net(make_x(1, 8, 7))


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.uint16])
def test_types_of_inputs(dtype: Any, net: mpscnn.Network) -> None:
    rng = np.random.default_rng(3)
    if dtype is np.float16:
        x = rng.standard_normal((2, 3, 9, 7)).astype(dtype)
        seen = x.astype(np.float32)
    else:
        x = rng.integers(0, np.iinfo(dtype).max, (2, 3, 9, 7), dtype, endpoint=True)
        seen = (x.astype(np.float64) / np.iinfo(dtype).max).astype(np.float32)
    for result, expected in zip(net(x), interpret(residual(), x=seen).values(), strict=True):
        assert result.dtype == np.float32
        close(result, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_mean_and_std_on_the_device(dtype: Any) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    net = mpscnn.Network(residual(), mean=mean, std=std)
    x = np.random.default_rng(0).integers(0, 255, (2, 3, 9, 7), np.uint8)
    pixels = x / np.float32(255)
    normalized = (pixels - np.float32(mean)[:, None, None]) / np.float32(std)[:, None, None]
    given = x if dtype is np.uint8 else pixels
    for result, expected in zip(net(given), interpret(residual(), x=normalized).values(), strict=True):
        close(result, expected, 4e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mean": (0.5, 0.5)}, ValueError, r'mean has 2 values; input "x" has 3 channels'),
        ({"std": 0}, ValueError, r"std \(0\) is not finite and greater than 0"),
        ({"mean": float("nan")}, ValueError, r"mean \(nan\) is not finite"),
        ({"mean": {"z": 0.5}}, KeyError, 'mean: there is no input "z"; there are x'),
        ({"dtype": "int8"}, TypeError, "int8"),
        ({"dtype": "uint8"}, TypeError, r"dtype \(uint8\) is not float32 or float16"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mpscnn.Network(residual(), **options)


def test_float16_between_kernels(make_x: Make) -> None:
    x = make_x()
    net = mpscnn.Network(residual(), dtype="float16")
    for result, expected in zip(net(x), interpret(residual(), x=x).values(), strict=True):
        assert result.dtype == np.float16
        close(result, expected, 4e-3)


def test_reduced_precision_reaches_the_kernels(make_x: Make) -> None:
    x = make_x()
    exact, reduced = mpscnn.Network(residual()), mpscnn.Network(residual(), allow_reduced_precision=True)
    close(reduced(x)[0], exact(x)[0], 3e-2)
    for net, wanted in ((exact, False), (reduced, True)):  # results are the same if the device has no bfloat16
        made = [net._kernel(node, None) for node in net.graph.nodes]
        assert {kernel.allow_reduced_precision for kernel in made if kernel is not None} == {wanted}


def test_dead_nodes_are_not_made_and_inputs_can_be_outputs(make_x: Make) -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3, layout="NCHW")
    graph.add("Convolution", x, weight=np.ones((4, 99, 1, 1), np.float32), name="unused")
    y = graph.add("NeuronAbsolute", x)
    for name, value in (("copy", x), ("y", y), ("again", y), ("copy2", x)):
        graph.output(value, name, layout="NCHW")
    net, a = mpscnn.Network(graph), make_x()
    assert [node.name for node in net.graph] == ["neuronabsolute"]
    for result, expected in zip(net(a), (a, abs(a), abs(a), a), strict=True):
        assert np.array_equal(result, expected)
        assert not np.shares_memory(result, a)


def test_a_flattened_output() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3, layout="NCHW")
    graph.output(graph.add("NeuronAbsolute", x), "y", layout="NCHW", shape=(3 * 4 * 5,))
    net, a = mpscnn.Network(graph), -np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    assert np.array_equal(net(a), abs(a).reshape(2, 60))
    out = np.zeros((2, 60), np.float32)
    assert np.array_equal(net(a, out=out), abs(a).reshape(2, 60))
    with pytest.raises(BufferError, match="out is not C-contiguous"):
        net(a, out=np.zeros((2, 120), np.float32)[:, ::2])
    with pytest.raises(ValueError, match=r'output "y" is flattened \(\(60,\)\)'):
        net.output_layout = "NHWC"


def test_images_in_and_out(net: mpscnn.Network, make_x: Make) -> None:
    x = make_x()
    expected = net(x)
    with mpscnn.CommandBuffer() as commands:
        image = mpscnn.Image.from_array(x, layout="NCHW")
        y, features = net.encode(commands, image)
    assert np.array_equal(y.numpy(layout="NCHW"), expected[0])
    assert np.array_equal(features.numpy(), expected[1])
    with mpscnn.CommandBuffer() as commands:
        given = mpscnn.Image((2, 9, 7, 10))
        assert net.encode(commands, image, out=[given, None])[0] is given
    assert np.array_equal(given.numpy(layout="NCHW"), expected[0])
    with pytest.raises(TypeError, match=r"the number of images \(0\) is not 1"):
        net.encode(mpscnn.CommandBuffer())


def test_two_networks_on_one_command_buffer(net: mpscnn.Network, make_x: Make) -> None:
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronTanH", graph.input("x")), "y")
    second, x = mpscnn.Network(graph), make_x()
    with mpscnn.CommandBuffer() as commands:
        middle = net.encode(commands, mpscnn.Image.from_array(x, layout="NCHW"))[1]
        result = second.encode(commands, middle)
    assert np.allclose(result.numpy(), np.tanh(net(x)[1]), atol=1e-6)


def test_kernels_shared_by_nodes(make_x: Make) -> None:
    """The same arrays twice in one graph: each node has its own destination."""
    graph = mpscnn.Graph()
    weight = np.random.default_rng(0).standard_normal((3, 3, 3, 3)).astype(np.float32)
    x = graph.input("x", channels=3, layout="NCHW")
    a = graph.add("Convolution", x, weight=weight, padding=1)
    b = graph.add("Convolution", a, weight=weight, padding=1)
    graph.output(graph.add("Add", a, b), "y", layout="NCHW")
    x_ = make_x()
    close(mpscnn.Network(graph)(x_), interpret(graph, x=x_)["y"])


def test_a_kernel_that_changes_between_calls() -> None:
    """The cached geometry of a shape is updated."""
    kernel = mpscnn.PoolingMax(2, stride=1)
    net = _core._Network([("x", None, None, None, "")], [("pool", kernel, [0], "")], [1], "float32", None, 0)

    def result() -> NDArray[np.float32]:
        with mpscnn.CommandBuffer() as commands:
            (image,) = net.encode(commands, [mpscnn.Image.from_array(x)], [None])
        return image.numpy()

    x = random((1, 5, 6, 4))
    for offset in (None, (1, 1), (0, 2), None):
        kernel.offset = offset
        np.testing.assert_array_equal(result(), kernel(x))
