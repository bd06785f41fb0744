# SPDX-License-Identifier: Apache-2.0
"""Images and buffers that cannot be created: shapes, dtypes, sizes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import random

from . import W, X, canary


@pytest.mark.parametrize(
    ("shape", "raises", "match"),
    [
        ((1, 0, 2, 3), ValueError, r"shape \(1, 0, 2, 3\) has an extent \(0\) less than the minimum \(1\)"),
        ((1, 2, -2, 3), ValueError, r"shape \(1, 2, -2, 3\) has an extent \(-2\) less than the minimum \(1\)"),
        ((2, 3, 4), ValueError, r"len\(shape\) \(3\) is not 4"),
        ((1.0, 2, 3, 4), TypeError, r"shape.*float"),
        ((True, 2, 3, 4), TypeError, r"shape.*bool"),
        (("1", 2, 3, 4), TypeError, r"shape.*str"),
        (4, ValueError, r"len\(shape\) \(1\) is not 4"),
        ((1, 2**80, 3, 4), (ValueError, MemoryError, OverflowError), r"1208925819614629174706176|64 bits"),
        ((2**20,) * 4, MemoryError, r"shape \(1048576, .*needs more bytes than can be counted"),
        ((2**31, 2**31, 2, 1), MemoryError, r"needs more bytes than can be counted|needs \d+ bytes, more than"),
        (
            (1, 16385, 1, 4),
            ValueError,
            r"extent \(16385\) along its height or width greater than the maximum \(16384\)",
        ),
        (
            (1, 1, 16385, 4),
            ValueError,
            r"extent \(16385\) along its height or width greater than the maximum \(16384\)",
        ),
        ((1, 2**20, 2**20, 4), MemoryError, r"needs 17592186044416 bytes, more than the device's .* \(\d+\)"),
    ],
)
def test_image_shapes(shape: Any, raises: Any, match: str) -> None:
    with pytest.raises(raises, match=match):
        mpscnn.Image(shape)
    with pytest.raises(raises, match=match):
        mpscnn.Image.temporary(mpscnn.CommandBuffer(), shape)
    canary()


@pytest.mark.parametrize("dtype", ["int32", "float64", "int64"])
def test_image_dtypes(dtype: str) -> None:
    with pytest.raises(TypeError, match=rf"Image: dtype \({dtype}\) is not float32, float16, uint8 or uint16"):
        mpscnn.Image((1, 2, 3, 4), dtype)
    with pytest.raises(TypeError, match=rf"dtype \({dtype}\) is not float32, float16, uint8 or uint16"):
        mpscnn.Image.from_array(np.zeros((1, 2, 3, 4), dtype))


# Arrays of element types that images lack, and the conversion to float32.
OTHER_TYPES: dict[str, tuple[Callable[[], Any], str]] = {
    "float64": (lambda: np.ones(X), 'array.astype("float32")'),
    "int64": (lambda: np.ones(X, np.int64), 'array.astype("float32")'),
    "bfloat16": (lambda: np.ones(X, pytest.importorskip("ml_dtypes").bfloat16), 'array.astype("float32")'),
    "float64 of PyTorch": (lambda: torch().ones(X, dtype=torch().float64), "array.float()"),
    "bfloat16 of PyTorch": (lambda: torch().ones(X, dtype=torch().bfloat16), "array.float()"),
    "float64 of a buffer": (lambda: memoryview(np.ones(X)), 'numpy.asarray(array, "float32")'),
}


def torch() -> Any:
    return pytest.importorskip("torch")


def network() -> mpscnn.Network:
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=4)), "y")
    return mpscnn.Network(graph)


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_what_converts_an_array_of_another_type(kind: str) -> None:
    make, conversion = OTHER_TYPES[kind]
    array, floats, net = make(), np.ones(X, np.float32), network()
    converted = eval(conversion, {"array": array, "numpy": np})
    calls: list[tuple[str, Callable[[Any], Any]]] = [
        ("x", mpscnn.NeuronReLU()),
        ("x", mpscnn.Convolution(random(W))),
        ("b", lambda b: mpscnn.Add()(floats, b)),
        ("x", mpscnn.BatchNormalizationStatistics()),
        ("x", mpscnn.Image.from_array),
        ("x", mpscnn.ImageConversion("float32")),
        ("x", lambda x: mpscnn.Loss("mean_squared_error")(x, floats)),
        ("x", lambda x: mpscnn.ForwardLoss("mean_squared_error")(x, floats)),
        ("x", net),
        ("x", lambda x: asyncio.run(net.apredict(x))),
        ("x", lambda x: next(net.stream([x]))),
    ]
    sentence = (
        f"{{}}.dtype ({kind.partition(' ')[0]}) is not float32, float16, uint8 or uint16: convert the array with"
        f" {conversion.removeprefix('array')}."
    )
    for name, call in calls:
        with pytest.raises(TypeError, match=f"^{re.escape(sentence.format(name))}$"):
            call(array)
        call(converted)


def test_results_of_another_type() -> None:
    """Converting does not help: the result would be written to the copy."""
    x = np.ones(X, np.float32)
    for out in (np.ones(X), torch().ones(X, dtype=torch().bfloat16)):
        for call in (mpscnn.NeuronReLU(), network()):
            name = str(out.dtype).removeprefix("torch.")
            sentence = rf"^out\.dtype \({name}\) is not float32, float16, uint8 or uint16\.$"
            with pytest.raises(TypeError, match=sentence):
                call(x, out=out)


def test_an_array_larger_than_memory_is_refused_before_it_is_touched() -> None:
    """A broadcast array can have any size without memory."""
    huge = np.broadcast_to(np.float32(1), (1, 2**20, 2**20, 4))
    for call in (mpscnn.NeuronReLU(), mpscnn.Image.from_array, mpscnn.Convolution(random(W))):
        with pytest.raises(MemoryError, match=r"\(1, 1048576, 1048576, 4\) of float32 needs 17592186044416 bytes"):
            call(huge)
    beyond = np.broadcast_to(np.float32(1), (2**15, 2**15, 2**15, 2**15))
    with pytest.raises(MemoryError, match=r"more|counted"):
        mpscnn.Image.from_array(beyond)
    canary()


def test_a_result_larger_than_memory() -> None:
    """The source fits, the kernel's result does not."""
    kernel = mpscnn.ConvolutionTranspose(random((4, 4, 1, 1)), stride=60000)
    with pytest.raises(MemoryError, match=r"needs \d+ bytes, more than"):
        kernel(random((1, 40, 40, 4)))
    wide = mpscnn.Convolution(random((4, 4, 1, 1)), padding=2**20)
    with pytest.raises(MemoryError, match=r"needs \d+ bytes, more than"):
        wide(random((1, 4, 4, 4)))
    assert kernel.result_shape((1, 1, 1, 4)) == (1, 1, 1, 4)
    canary()


@pytest.mark.parametrize("extent", [2**40, 2**62])
def test_extents_of_results_are_checked_arithmetic(extent: int) -> None:
    kernels = [
        mpscnn.ConvolutionTranspose(random((4, 4, 3, 3)), stride=65535),
        mpscnn.Convolution(random((16, 4, 3, 3)), sub_pixel_scale_factor=4, padding=1),
        mpscnn.Convolution(random((16, 4, 3, 3)), sub_pixel_scale_factor=4, padding="same"),
        mpscnn.NeuronReLU(),
    ]
    for kernel in kernels:
        with pytest.raises((MemoryError, ValueError), match=r"\d"):
            kernel.result_shape((extent, extent, extent, 4))
    canary()


def test_buffers_larger_than_memory() -> None:
    limit = mpscnn.Device().max_buffer_bytes
    with pytest.raises(MemoryError, match=rf"length \({limit + 1}\) is greater than .* \({limit}\)"):
        mpscnn.Buffer(limit + 1)
    with pytest.raises(MemoryError, match=r"1180591620717411303424"):
        mpscnn.Buffer(2**70)
    with pytest.raises(MemoryError, match=r"shape \(1099511627776, 1048576\)"):
        mpscnn.empty((2**40, 2**20))
    with pytest.raises(MemoryError, match=r"more than 2\^63 bytes"):
        mpscnn.empty((2**40, 2**40))
    canary()


@pytest.mark.parametrize(
    ("source", "raises", "match"),
    [
        (0, ValueError, r"length \(0\) is less than the minimum \(1\)"),
        (-5, ValueError, r"length \(-5\) is less than the minimum \(1\)"),
        (True, TypeError, r"source \(True\) is not"),
        (1.5, TypeError, r"source \(float\) is not an array"),
        ("16", TypeError, r"source \(str\) is not an array"),
        (
            np.zeros(1001, np.uint8),
            BufferError,
            r"length \(1001 bytes\) is not a positive multiple of the page size \(\d+\)",
        ),
        (np.zeros(0, np.uint8), BufferError, r"length \(0 bytes\)"),
    ],
    ids=repr,
)
def test_buffer_sources(source: Any, raises: type[Exception], match: str) -> None:
    with pytest.raises(raises, match=match):
        mpscnn.Buffer(source)
