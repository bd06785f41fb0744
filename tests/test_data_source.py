# SPDX-License-Identifier: Apache-2.0
"""Sources of weights: data sources in Python, quantized weights, files, descriptors, and their life cycle."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from support import Source, address, assert_close, conv2d, random

W = (8, 4, 3, 3)
X = (2, 9, 7, 4)
HALF = 2e-3
"""Error of weights rounded to half precision, 11 bits each, part of which averages out."""


def ohwi(weight: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(weight.transpose(0, 2, 3, 1))


def plain_descriptor() -> mpscnn.ConvolutionDescriptor:
    return mpscnn.ConvolutionDescriptor(3, 4, 8)


# --------------------------------------------------------------------------------------- classes in Python


class WithAttributes(mpscnn.DataSource):
    descriptor = plain_descriptor()

    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        self.weights, self.bias = ohwi(weight), bias


class WithProperties(mpscnn.DataSource):
    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        self._weight, self._bias = weight, bias
        self._loaded: np.ndarray | None = None

    def load(self) -> bool:
        self._loaded = ohwi(self._weight)
        return True

    def purge(self) -> None:
        self._loaded = None

    @property
    def descriptor(self) -> mpscnn.ConvolutionDescriptor:  # type: ignore[override]
        return plain_descriptor()

    @property
    def weights(self) -> Any:  # type: ignore[override]
        assert self._loaded is not None, "weights are asked for between load and purge only"
        return self._loaded

    @property
    def bias(self) -> Any:  # type: ignore[override]
        assert self._loaded is not None
        return self._bias


class WithMethods:
    """An object with the members of a data source, not derived from it."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        self._weight, self._bias = weight, bias

    def load(self) -> bool:
        return True

    def purge(self) -> None:
        pass

    def descriptor(self) -> mpscnn.ConvolutionDescriptor:
        return plain_descriptor()

    def weights(self) -> np.ndarray:
        return ohwi(self._weight)  # a new array in every call: the core holds it

    def bias(self) -> np.ndarray:
        return self._bias

    def label(self) -> str:
        return "conv1"


@pytest.mark.parametrize("kind", [WithAttributes, WithProperties, WithMethods])
def test_classes_in_python(kind: Any) -> None:
    weight, bias, x = random(W), random((8,)), random(X)
    source = kind(weight, bias)
    kernel = mpscnn.Convolution(source, padding=1)
    assert_close(kernel(x), conv2d(x, weight, bias, padding=1))
    assert kernel.data_source is source, "the kernel gives back what it was given"


def test_transposed_and_fully_connected_take_data_sources() -> None:
    x, weight = random((1, 4, 5, 4)), random((4, 8, 3, 2))
    # MPS's own order: the kernel rotated by 180 degrees
    turned = np.ascontiguousarray(weight[:, :, ::-1, ::-1].transpose(1, 2, 3, 0))
    source = Source(mpscnn.ConvolutionDescriptor((3, 2), 4, 8, stride=2), turned)
    expected = torch.nn.functional.conv_transpose2d(
        torch.from_numpy(x).permute(0, 3, 1, 2).double(), torch.from_numpy(weight).double(), stride=2
    )
    assert_close(mpscnn.ConvolutionTranspose(source)(x), expected.permute(0, 2, 3, 1))

    full = random((10, 4, 4, 5))
    source = Source(mpscnn.ConvolutionDescriptor((4, 5), 4, 10), ohwi(full))
    assert_close(mpscnn.FullyConnected(source)(x), conv2d(x, full))


def test_weights_from_torch_in_a_data_source() -> None:
    weight, x = torch.nn.Parameter(torch.from_numpy(random(W))), random(X)
    source = Source(plain_descriptor(), weight.permute(0, 2, 3, 1).contiguous())
    assert_close(mpscnn.Convolution(source)(x), conv2d(x, weight.detach().numpy()))


def test_no_bias_and_a_label() -> None:
    x, weight = random(X), random(W)
    source = Source(plain_descriptor(), ohwi(weight), None, label="first layer")
    kernel = mpscnn.Convolution(source)
    assert_close(kernel(x), conv2d(x, weight))
    assert kernel.data_source.label == "first layer"
    assert mpscnn.Convolution(weight, label="second").label == "second"


# --------------------------------------------------------------------------------------- load and purge


def balanced(calls: list[str]) -> bool:
    """Return whether each load has its purge, and nothing is purged before it is loaded."""
    depth = 0
    for call in calls:
        depth += 1 if call == "load" else -1
        if depth < 0:
            return False
    return depth == 0


def test_load_comes_first_and_purge_last() -> None:
    """[MPSCNNConvolution.h]: load comes before all other calls, purge after the kernel has read everything."""
    asked: list[str] = []
    weight = ohwi(random(W))

    class Watched:
        def __getattribute__(self, name: str) -> Any:
            if name in ("descriptor", "weights", "bias"):
                asked.append(name)
            return super().__getattribute__(name)

        descriptor, weights, bias = plain_descriptor(), weight, None

        def load(self) -> bool:
            asked.append("load")
            return True

        def purge(self) -> None:
            asked.append("purge")

    kernel = mpscnn.Convolution(Watched())
    first_load = asked.index("load")
    # Before that, only the presence of the members is checked.
    assert not {"bias"} & set(asked[:first_load])
    assert asked[-1] == "purge"
    depth = 0
    for name in asked[first_load:]:
        depth += {"load": 1, "purge": -1}.get(name, 0)
        assert depth > 0 or name == "purge", f"{name} was asked for outside of load and purge"
    assert balanced([name for name in asked if name in ("load", "purge")])

    del asked[:]
    kernel(random(X))
    kernel(random(X))
    assert asked == [], "running a kernel asks its data source nothing"


def test_reload_reads_again() -> None:
    x, first, second = random(X), random(W), random(W, seed=1)
    bias = random((8,))
    source = Source(plain_descriptor(), ohwi(first), bias)
    kernel = mpscnn.Convolution(source)
    assert balanced(source.calls)
    assert_close(kernel(x), conv2d(x, first, bias))

    source.weights = ohwi(second)
    assert_close(kernel(x), conv2d(x, first, bias))
    del source.calls[:]
    kernel.reload()
    assert source.calls
    assert balanced(source.calls)
    assert_close(kernel(x), conv2d(x, second, bias))

    source.weights[...] = ohwi(first)
    bias[...] = 1
    kernel.reload()
    assert_close(kernel(x), conv2d(x, first, bias))


def test_reload_reads_the_current_array() -> None:
    x, weight = random(X), random(W)
    for layout, array in (("OIHW", weight), ("OHWI", ohwi(weight))):
        array = array.copy()
        kernel = mpscnn.Convolution(array, layout=layout)
        array *= 2
        assert_close(kernel(x), conv2d(x, weight))
        kernel.reload()
        assert_close(kernel(x), conv2d(x, 2 * weight))


def test_reload_does_not_change_work_that_is_recorded() -> None:
    x, first, second = random(X), random(W), random(W, seed=1)
    source = Source(plain_descriptor(), ohwi(first))
    kernel = mpscnn.Convolution(source)
    commands = mpscnn.CommandBuffer()
    before = kernel.encode(commands, mpscnn.Image.from_array(x))
    source.weights = ohwi(second)
    kernel.reload()
    after = kernel.encode(commands, mpscnn.Image.from_array(x))
    commands.commit()
    commands.wait()
    assert_close(before.numpy(), conv2d(x, first))
    assert_close(after.numpy(), conv2d(x, second))


def test_purged_weights_are_not_read_any_more() -> None:
    """Null or garbage after purge: MPS has its own copy."""
    x, weight = random(X), random(W)

    class Purging(Source):
        def purge(self) -> None:
            super().purge()
            self.weights[...] = np.nan
            self.weights = np.zeros(0, np.float32)

        def load(self) -> bool:
            self.weights = ohwi(weight)
            return super().load()

    kernel = mpscnn.Convolution(Purging(plain_descriptor(), None))
    assert_close(kernel(x), conv2d(x, weight))


def test_the_built_in_source_counts_loads() -> None:
    """load, load, purge: loaded; purge: freed; load: loaded again."""
    weight = random(W)
    source = mpscnn.Convolution(weight).data_source
    for _ in range(2):
        assert source.load()
        assert source.load()
        first = address(source.weights)
        source.purge()
        assert address(source.weights) == first
        source.purge()
        with pytest.raises(RuntimeError, match=r"outside of load\(\) and purge\(\)"):
            _ = source.weights
    source.purge()
    assert source.load()
    np.testing.assert_array_equal(source.weights, ohwi(weight))
    source.purge()


def test_one_source_for_many_kernels_and_threads() -> None:
    """Kernels made from one object at the same time, as MPS may do on any thread."""
    x, weight = random(X), random(W)
    expected = conv2d(x, weight)
    lock, open_loads, most = threading.Lock(), [0], [0]

    class Counting:
        descriptor = plain_descriptor()
        weights = ohwi(weight)

        def load(self) -> bool:
            with lock:
                open_loads[0] += 1
                most[0] = max(most[0], open_loads[0])
            return True

        def purge(self) -> None:
            with lock:
                open_loads[0] -= 1

    source, results = Counting(), []

    def make() -> None:
        for _ in range(10):
            kernel = mpscnn.Convolution(source)
            kernel.reload()
            results.append(kernel(x))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 40
    for result in results:
        assert_close(result, expected)
    assert open_loads == [0]
    assert most[0] >= 1


def test_a_source_of_one_kernel_serves_another() -> None:
    x, weight, bias = random(X), random(W), random((8,))
    first = mpscnn.Convolution(weight, bias)
    second = mpscnn.Convolution(first.data_source)
    np.testing.assert_array_equal(first(x), second(x))


class HandsOn(mpscnn.DataSource):
    """Forwards to any other data source."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattribute__(name)
        return getattr(self._source, name)


def built_in() -> dict[str, mpscnn.Kernel]:
    """Return kernels with built-in data sources, one for each kind of weights."""
    weight, codes = random(W), random(W, "uint8")
    return {
        "float32": mpscnn.Convolution(weight, random((8,)), label="conv1", activation="relu"),
        "float32 in place": mpscnn.Convolution(ohwi(weight), layout="OHWI"),
        "float32 kept as float16": mpscnn.Convolution(weight, kernel_dtype="float16"),
        "float16": mpscnn.Convolution(weight.astype(np.float16)),
        "ranges": mpscnn.Convolution(codes, ranges=np.tile(np.float32([-1, 1]), (8, 1))),
        "lookup_table": mpscnn.Convolution(codes, lookup_table=random((256,))),
    }


def test_the_built_in_source_has_the_members_of_one_in_python() -> None:
    kind = type(built_in()["float32"].data_source)
    wanted = {*mpscnn.DataSource.__annotations__, "load", "purge"}
    assert {name for name in vars(kind) if not name.startswith("_")} == wanted


@pytest.mark.parametrize("kind", built_in())
def test_a_source_in_python_may_hand_on_the_built_in_one(kind: str) -> None:
    x, first = random(X), built_in()[kind]
    second = mpscnn.Convolution(HandsOn(first.data_source))
    np.testing.assert_array_equal(second(x), first(x))
    for kernel in (first, second):
        source = kernel.data_source
        assert source.load() is True
        assert source.kernel_dtype == ("float32" if kind in ("float32", "float32 in place") else "float16")
        assert source.label == ("conv1" if kind == "float32" else None)
        assert source.weights.shape == (8, 3, 3, 4)
        source.purge()


def test_bfloat16_is_kept_as_float32() -> None:
    weight = torch.from_numpy(random(W)).bfloat16()
    assert mpscnn.Convolution(weight).data_source.kernel_dtype == "float32"
    assert mpscnn.Convolution(weight, kernel_dtype="float16").data_source.kernel_dtype == "float16"


def test_the_built_in_source_prints_what_it_describes() -> None:
    source = built_in()["float16"].data_source
    assert repr(source) == "<mpscnn.DataSource, built in, of mpscnn.ConvolutionDescriptor((3, 3), 4, 8)>"
    with pytest.raises(AttributeError):
        source.kernel_dtype = "float32"


# --------------------------------------------------------------------------------------- kinds of weights


def test_float16_weights() -> None:
    x, weight, bias = random(X), random(W, "float16"), random((8,), "float16")
    for layout, array in (("OIHW", weight), ("OHWI", ohwi(weight))):
        assert_close(mpscnn.Convolution(array, bias, layout=layout)(x), conv2d(x, weight, bias))
    assert_close(mpscnn.Convolution(Source(plain_descriptor(), ohwi(weight)))(x), conv2d(x, weight))


def test_bfloat16_weights_are_widened() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, weight = random(X), random(W).astype(ml_dtypes.bfloat16)
    assert_close(mpscnn.Convolution(weight)(x), conv2d(x, weight.astype(np.float32)))
    assert_close(mpscnn.Convolution(torch.from_numpy(random(W)).bfloat16())(x), conv2d(x, weight.astype(np.float32)))


def test_kernel_dtype_is_the_type_of_stored_weights() -> None:
    x, weight = random(X), random(W)
    halves = weight.astype(np.float16)
    assert_close(mpscnn.Convolution(weight, kernel_dtype="float16")(x), conv2d(x, halves))
    source = Source(plain_descriptor(), ohwi(weight), kernel_dtype="float16")
    assert_close(mpscnn.Convolution(source)(x), conv2d(x, halves))
    assert_close(mpscnn.Convolution(weight)(x), conv2d(x, weight))
    assert np.abs(conv2d(x, halves) - conv2d(x, weight)).max() > 1e-4, "the difference is large enough to be seen"


@pytest.mark.parametrize("as_source", [False, True])
@pytest.mark.parametrize("kind", ["ranges", "lookup_table"])
def test_uint8_weights(kind: str, as_source: bool) -> None:
    """Against the weights decoded in float64: w = low + code / 255 * (high - low), or w = table[code]."""
    codes, bias, x = random(W, "uint8"), random((8,)), random(X)
    if kind == "ranges":
        low = np.linspace(-1.0, 0.25, 8, dtype=np.float32)
        given = np.ascontiguousarray(np.stack([low, low + np.linspace(0.5, 2, 8, dtype=np.float32)], axis=1))
        span = given.astype(np.float64)[:, :, None, None, None]
        weight = span[:, 0] + codes / 255 * (span[:, 1] - span[:, 0])
    else:
        given = random((256,))
        weight = given.astype(np.float64)[codes]
    if as_source:
        kernel = mpscnn.Convolution(Source(plain_descriptor(), ohwi(codes), bias, **{kind: given}))
    else:
        kernel = mpscnn.Convolution(codes, bias, **{kind: given})
    # Half precision is the only difference.
    assert_close(kernel(x), conv2d(x, weight, bias), HALF)
    assert_close(kernel(x), conv2d(x, weight.astype(np.float16), bias), 2e-4)


def test_uint8_weights_of_other_kernels() -> None:
    x, table = random((2, 3, 5, 4)), random((256,))
    codes = random((10, 60), "uint8")
    kernel = mpscnn.FullyConnected(codes, feature_map=(4, 3, 5), lookup_table=table)
    weight = table[codes].reshape(10, 4, 3, 5)
    assert_close(kernel(x), conv2d(x, weight.astype(np.float16)), 2e-4)

    codes = random((4, 1, 3, 3), "uint8")
    ranges = np.tile(np.float32([-1, 1]), (4, 1))
    kernel = mpscnn.Convolution(codes, groups=4, ranges=ranges)
    weight = -1 + codes / 255 * 2
    assert_close(kernel(x), conv2d(x, weight.astype(np.float16), groups=4), 2e-4)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mapped_files(tmp_path: Path, dtype: str) -> None:
    weight, x = random(W, dtype), random(X)
    path = tmp_path / "weights.bin"
    weight.tofile(path)
    mapped = mpscnn.map_weights(path, W, dtype)
    kernel = mpscnn.Convolution(mapped)
    expected = conv2d(x, weight)
    assert_close(kernel(x), expected)
    path.unlink()
    kernel.reload()
    assert_close(kernel(x), expected)


# --------------------------------------------------------------------------------------- descriptors


def batch_norm(channels: int) -> dict[str, np.ndarray]:
    return {
        "mean": random((channels,), seed=1),
        "variance": np.abs(random((channels,), seed=2)) + np.float32(0.1),
        "gamma": random((channels,), seed=3),
        "beta": random((channels,), seed=4),
    }


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_batch_norm(with_bias: bool, epsilon: float, activation: str | None) -> None:
    weight, bias, x = random(W), random((8,)) if with_bias else None, random(X)
    norm = batch_norm(8)
    descriptor = mpscnn.ConvolutionDescriptor(
        3, 4, 8, batch_norm=mpscnn.BatchNorm(**norm, epsilon=epsilon), activation=activation
    )
    y = mpscnn.Convolution(Source(descriptor, ohwi(weight), bias))(x)
    mean, variance, gamma, beta = (
        torch.from_numpy(norm[name]).double() for name in ("mean", "variance", "gamma", "beta")
    )
    plain = torch.from_numpy(conv2d(x, weight, bias)).permute(0, 3, 1, 2)
    expected = torch.nn.functional.batch_norm(plain, mean, variance, gamma, beta, eps=epsilon)
    expected = expected.relu() if activation else expected
    assert_close(y, expected.permute(0, 2, 3, 1))


def test_batch_norm_takes_torch_and_lists() -> None:
    weight, x, norm = random(W), random(X), batch_norm(8)
    expected = None
    for convert in (np.asarray, torch.from_numpy, np.ndarray.tolist, lambda v: torch.nn.Parameter(torch.from_numpy(v))):
        made = mpscnn.BatchNorm(*(convert(norm[name]) for name in ("mean", "variance", "gamma", "beta")))
        y = mpscnn.Convolution(Source(mpscnn.ConvolutionDescriptor(3, 4, 8, batch_norm=made), ohwi(weight)))(x)
        expected = y if expected is None else expected
        np.testing.assert_array_equal(y, expected)


def test_depthwise_descriptor() -> None:
    weight, x = random((6, 1, 3, 5)), random((1, 9, 8, 6))
    descriptor = mpscnn.ConvolutionDescriptor((3, 5), 6, 6, depthwise=True, stride=(2, 1))
    kernel = mpscnn.Convolution(Source(descriptor, ohwi(weight)), padding=(1, 2))
    expected = conv2d(x, weight, groups=6, padding=(1, 2), stride=(2, 1))
    assert_close(kernel(x), expected)
    assert_close(mpscnn.Convolution(weight, groups=6, padding=(1, 2), stride=(2, 1))(x), expected)
    assert_close(mpscnn.Convolution(weight, layout="C1HW", padding=(1, 2), stride=(2, 1))(x), expected)


def test_grouped_descriptor() -> None:
    weight, x = random((8, 4, 3, 3)), random((1, 6, 7, 8))
    descriptor = mpscnn.ConvolutionDescriptor(3, 8, 8, groups=2, dilation=(1, 2))
    expected = conv2d(x, weight, groups=2, dilation=(1, 2))
    assert_close(mpscnn.Convolution(Source(descriptor, ohwi(weight)))(x), expected)


def test_sub_pixel_descriptor() -> None:
    """Channels are grouped by position, so PyTorch's channel order is permuted: o = (dy * r + dx) * C + c."""
    r, channels = 2, 3
    weight, bias, x = random((r * r * channels, 4, 3, 3)), random((r * r * channels,)), random(X)
    descriptor = mpscnn.ConvolutionDescriptor(3, 4, r * r * channels, sub_pixel_scale_factor=r, activation="tanh")
    y = mpscnn.Convolution(Source(descriptor, ohwi(weight), bias), padding=1)(x)
    planes = conv2d(x, weight, bias, padding=1).reshape(2, 9, 7, r, r, channels)
    expected = np.tanh(planes.transpose(0, 1, 3, 2, 4, 5).reshape(2, 9 * r, 7 * r, channels))
    assert_close(y, expected)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("relu", torch.relu),
        (mpscnn.NeuronDescriptor("relu", a=0.25), lambda v: torch.nn.functional.leaky_relu(v, 0.25)),
        (mpscnn.NeuronDescriptor("prelu", data=[0.1 * i for i in range(8)]), None),
        (mpscnn.NeuronSigmoid(), torch.sigmoid),
    ],
    ids=["name", "descriptor", "prelu", "kernel"],
)
def test_activation_in_a_descriptor(activation: Any, function: Any) -> None:
    weight, x = random(W), random(X)
    source = Source(mpscnn.ConvolutionDescriptor(3, 4, 8, activation=activation), ohwi(weight))
    plain = torch.from_numpy(conv2d(x, weight))
    if function is None:
        slopes = torch.arange(8, dtype=torch.float64) * 0.1
        expected = torch.where(plain >= 0, plain, plain * slopes)
    else:
        expected = function(plain)
    assert_close(mpscnn.Convolution(source)(x), expected)


def test_descriptors_can_be_read() -> None:
    descriptor = mpscnn.ConvolutionDescriptor((3, 5), 8, 16, stride=(2, 1), dilation=2, groups=2)
    read = [
        getattr(descriptor, name)
        for name in ("kernel_size", "in_channels", "out_channels", "stride", "dilation", "groups", "depthwise")
    ]
    assert read == [(3, 5), 8, 16, (2, 1), (2, 2), 2, False]
    assert mpscnn.Convolution(random((16, 4, 3, 5)), groups=2).data_source.descriptor.groups == 2


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("shape", [(8, 4, 1, 1), (8, 4, 3, 2), (8, 1, 3, 2)])
def test_built_in_source_serves_ohwi(shape: tuple[int, ...], constant: bool) -> None:
    """Used in place if possible: with windows of one pixel or groups of one channel, PyTorch's order is MPS's."""
    weight = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    weight.flags.writeable = not constant
    source = mpscnn.Convolution(weight, groups=shape[0] if shape[1] == 1 else 1).data_source
    assert source.load()
    assert np.array_equal(np.asarray(source.weights), weight.transpose(0, 2, 3, 1))
    source.purge()
