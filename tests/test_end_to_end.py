# SPDX-License-Identifier: Apache-2.0
"""Whole networks with random weights, from PyTorch directly and through ONNX, against PyTorch and ONNX Runtime."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import mpscnn
from architectures import ARCHITECTURES, build

NAMES = [
    "resnet18",
    "resnet50",
    "resnext50_32x4d",
    "mobilenet_v2",
    "vgg16",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "squeezenet1_1",
    "densenet121",
    "inception_v3",
    "unet",
    "unet_bilinear",
    "espcn",
    "style_transfer",
    "yolo_tiny",
]
# Rows and columns added to the imported size; some networks support multiples only.
OTHER_SIZES = {"unet": (16, -16), "unet_bilinear": (16, -16), "yolo_tiny": (32, -32), "inception_v3": (13, 6)}

# VGG's adaptive pooling is exported to ONNX only for whole windows.
SHAPES = {name: (3, 224, 224) if name == "vgg16" else ARCHITECTURES[name].shape for name in NAMES}

Arrays = list[NDArray[Any]]


@cache
def module(name: str) -> torch.nn.Module:
    return build(name, **ARCHITECTURES[name].small)


@cache
def onnx_bytes(name: str) -> bytes:
    pytest.importorskip("onnx")
    file = io.BytesIO()
    example = torch.zeros(1, *SHAPES[name])
    # PyTorch exports an adaptive pooling only for a fixed size of images.
    axes = {0: "n"} if name == "vgg16" else {0: "n", 2: "h", 3: "w"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecation, and its warnings about traced sizes
        torch.onnx.export(
            module(name), (example,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": axes}, opset_version=17
        )
    return file.getvalue()


@cache
def network(name: str, source: str, dtype: str = "float32") -> mpscnn.Network:
    shape = (1, *SHAPES[name])
    if dtype != "float32":
        return mpscnn.load(network(name, source).graph, dtype=dtype)  # tracing takes most of the time
    if source == "torch":
        return mpscnn.load(module(name), input_shapes=shape)
    return mpscnn.load(onnx_bytes(name), input_shapes={"x": shape})


@pytest.fixture(scope="module", autouse=True)
def forget() -> Iterator[None]:
    """Networks and their exports are many objects, which every garbage collection would scan."""
    yield
    for cached in (module, onnx_bytes, network):
        cached.cache_clear()


def images(name: str, n: int, rows: int = 0, columns: int = 0) -> NDArray[np.float32]:
    c, h, w = SHAPES[name]
    return np.random.default_rng(n).standard_normal((n, c, h + rows, w + columns)).astype(np.float32)


def flat(results: Any) -> Arrays:
    if isinstance(results, (tuple, list)):
        return [np.asarray(one) for one in results]
    return [np.asarray(results)]


def by_torch(name: str, x: NDArray[np.float32]) -> Arrays:
    with torch.inference_mode():
        return flat(module(name)(torch.from_numpy(x)))


def difference(actual: Arrays, expected: Arrays) -> float:
    """Return the largest difference relative to the largest value, over all outputs."""
    assert [one.shape for one in actual] == [one.shape for one in expected]
    assert all(np.isfinite(one).all() for one in actual)
    return max(
        float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max()) for a, b in zip(actual, expected, strict=True)
    )


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("source", ["torch", "onnx"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_pytorch(name: str, source: str, n: int) -> None:
    x = images(name, n)
    assert difference(flat(network(name, source)(x)), by_torch(name, x)) < 1e-4


@pytest.mark.parametrize("source", ["torch", "onnx"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_pytorch_at_another_size(name: str, source: str) -> None:
    x = images(name, 2, *OTHER_SIZES.get(name, (13, -7)))
    if (name, source) == ("vgg16", "onnx"):  # its adaptive pooling was exported as windows of one size
        with pytest.raises(ValueError, match="the one that the model was imported for"):
            network(name, source)(x)
        return
    results = network(name, source)(x)
    assert difference(flat(results), by_torch(name, x)) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_equals_onnx_runtime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    # It merges zeros before a max pooling into its padding, which never is the max: yolo_tiny is wrong in 1.31.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(onnx_bytes(name), options, providers=["CPUExecutionProvider"])
    x = images(name, 2)
    assert difference(flat(network(name, "onnx")(x)), flat(session.run(None, {"x": x}))) < 1e-4


def rounded_by_torch(name: str, x: NDArray[np.float32]) -> Arrays:
    """Return PyTorch's float32 results with each layer's result rounded to half, like float16 images."""

    def to_half(_: Any, __: Any, result: Any) -> Any:
        return result.half().float() if isinstance(result, torch.Tensor) else result

    hooks = [layer.register_forward_hook(to_half) for layer in module(name).modules()]
    try:
        return by_torch(name, x)
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("name", NAMES)
def test_float16_has_the_error_of_its_rounding(name: str) -> None:
    x = images(name, 2).astype(np.float16).astype(np.float32)
    expected = by_torch(name, x)
    results = flat(network(name, "torch", "float16")(x))
    assert all(one.dtype == np.float16 for one in results)
    of_rounding = difference(rounded_by_torch(name, x), expected)
    ours = difference(results, expected)
    assert 2**-14 < ours < 3 * of_rounding + 2**-10
