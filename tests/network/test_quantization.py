# SPDX-License-Identifier: Apache-2.0
"""Networks on 8-bit numbers: plans that compute with them, files, and mpscnn.quantize."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn.graph import Value
from mpscnn.quantization import QuantizationError, difference
from support import ENGINE, PROCESSOR

HAS_VNNI = "avx512_vnni" in PROCESSOR
STEP, ZERO = 0.05, 100


def stored(graph: mpscnn.Graph, x: Any, step: float = STEP, zero: int = ZERO) -> Any:
    numbers = graph.add("NeuronLinear", x, a=1 / (255 * step), b=zero / 255, result_dtype="uint8")
    return graph.add("NeuronLinear", numbers, a=255 * step, b=-zero * step)


def weights(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).integers(-127, 128, shape) / 512).astype(np.float32)


def residual() -> mpscnn.Graph:
    """Two convolutions, their sum and its max pooling, all on numbers; the last value is read by a mean."""
    graph = mpscnn.Graph()
    x = stored(graph, graph.input("x", channels=8))
    a = graph.add("Convolution", x, weight=weights(1, 8, 8, 3, 3), padding=1, activation="relu")
    b = graph.add("Convolution", x, weight=weights(2, 8, 8, 1, 1), bias=np.ones(8, np.float32))
    total = graph.add("Add", stored(graph, a), stored(graph, b), minimum_value=0.0)
    small = graph.add("PoolingMax", stored(graph, total), kernel_size=2)
    graph.output(graph.add("ReduceRowMean", stored(graph, small)), "y")
    graph.output(total, "total")
    return graph


def x_of(seed: int = 0, shape: tuple[int, ...] = (2, 8, 8, 8)) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def trace(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"MPSCNN_TRACE": "dispatch"} | environment,
        check=True,
    )
    return done.stderr


PROGRAM = """
import sys; sys.path[:0] = {path!r}
from network import test_quantization as t
import mpscnn
graph = t.residual()
del graph.outputs["total"]
mpscnn.Network(graph)(t.x_of())
"""


@pytest.mark.skipif(not HAS_VNNI or ENGINE != "cpu", reason="the processor does not multiply bytes")
def test_kernels_compute_with_numbers() -> None:
    text = trace(PROGRAM.format(path=sys.path))
    kinds = re.findall(r"^mpscnn dispatch: (\w+Problem)", text, re.MULTILINE)
    # Only the source is converted, and what the mean reads.
    assert kinds == [
        "NeuronProblem",
        "QuantizedConvProblem",
        "QuantizedConvProblem",
        "QuantizedSumProblem",
        "PoolProblem",
        "NeuronProblem",
        "ReduceProblem",
    ]
    assert "mpscnn dispatch: pool: pool_bytes" in text


def excited() -> mpscnn.Graph:
    """A depth-wise convolution, swish and squeeze-and-excitation, rounded after each operation."""
    graph = mpscnn.Graph()
    x = stored(graph, graph.input("x", channels=8))
    a = stored(graph, graph.add("Convolution", x, weight=weights(3, 8, 1, 3, 3), groups=8, padding=1))
    gate = stored(graph, graph.add("NeuronSigmoid", a), 1 / 255, 0)
    swish = stored(graph, graph.add("Multiply", a, gate), 0.03, 10)
    mean = stored(graph, graph.add("ReduceRowMean", graph.add("ReduceColumnMean", swish)), 0.01, 30)
    hard = stored(graph, graph.add("NeuronHardSigmoid", mean, a=1 / 6, b=0.5), 1 / 255, 0)
    y = stored(graph, graph.add("Multiply", swish, hard), 0.02, 10)
    graph.output(graph.add("ReduceRowMax", y), "y")
    return graph


EXCITED = PROGRAM.replace("t.residual()", "t.excited()").replace('del graph.outputs["total"]', "")


@pytest.mark.skipif(not HAS_VNNI or ENGINE != "cpu", reason="the processor does not multiply bytes")
def test_functions_of_numbers() -> None:
    """A chain of functions of one image is one table; only the source is converted, and what the max reads."""
    text = trace(EXCITED.format(path=sys.path))
    kinds = re.findall(r"^mpscnn dispatch: (\w+Problem)", text, re.MULTILINE)
    assert kinds == [
        "NeuronProblem",
        "QuantizedConvProblem",
        "QuantizedMapProblem",
        "QuantizedPixelSumProblem",
        "QuantizedMapProblem",
        "QuantizedProductProblem",
        "NeuronProblem",
        "ReduceProblem",
    ]
    assert "mpscnn dispatch: quantized_convolve: quantized_depthwise" in text


def test_gates_that_others_read() -> None:
    """The gate of a swish is stored if another operation reads its numbers or values."""
    graph = mpscnn.Graph()
    x = stored(graph, graph.input("x", channels=8))
    x = stored(graph, graph.add("Convolution", x, weight=weights(4, 8, 8, 1, 1)))  # so that the map could begin here
    gate = stored(graph, graph.add("NeuronSigmoid", x), 1 / 255, 0)
    swish = stored(graph, graph.add("Multiply", x, gate), 0.03, 10)
    graph.output(swish, "swish")
    graph.output(graph.add("Convolution", gate, weight=weights(1, 8, 8, 1, 1)), "conv")
    graph.output(graph.add("ReduceRowMax", gate), "max")
    check(graph, 0.03)


def test_functions_of_sums() -> None:
    """A function of a sum's numbers is a table, and the sum of two images is none."""
    graph = mpscnn.Graph()
    x = stored(graph, graph.input("x", channels=8))
    a = stored(graph, graph.add("Convolution", x, weight=weights(1, 8, 8, 1, 1)))
    total = stored(graph, graph.add("Add", x, a), 0.07, 128)  # no sum is in the middle of two steps
    graph.output(stored(graph, graph.add("NeuronTanH", total, a=1.0, b=1.0), 1 / 127, 128), "y")
    check(graph, 1 / 127)


def check(graph: mpscnn.Graph, step: float = STEP) -> None:
    """Compare with the same kernels without a plan, up to single steps where rounding falls on the other side."""
    ours = mpscnn.Network(graph)(x_of())
    values: dict[str, np.ndarray] = {"x": x_of()}
    for node in graph.nodes:
        kernel = mpscnn.KERNELS[node.kernel](**node.arguments)
        values[node.name] = kernel(*(values[s] for s in node.sources), dtype=node.result_dtype or "float32")
    for name, found in zip(graph.outputs, ours if len(graph.outputs) > 1 else [ours], strict=True):
        off = np.abs(found - values[graph.outputs[name].source])
        assert off.max() < 2 * step + 1e-5
        assert (off > 1e-4).mean() < 0.02


@pytest.mark.skipif(sys.platform != "linux", reason="the variable is one of openmps")
def test_processors_without_vnni_compute_with_values() -> None:
    text = trace(PROGRAM.format(path=sys.path), ONEDNN_MAX_CPU_ISA="AVX2")
    assert "Quantized" not in text
    assert "ConvProblem" in text


@pytest.mark.parametrize("make", [residual, excited])
def test_same_as_kernels_one_by_one(make: Callable[[], mpscnn.Graph]) -> None:
    check(make())


def test_results_are_numbers() -> None:
    graph = mpscnn.Graph()
    graph.output(stored(graph, graph.input("x", channels=3)), "y")
    x = np.linspace(-8, 10, 48, dtype=np.float32).reshape(1, 4, 4, 3)
    expected = STEP * (np.clip(np.rint(x / np.float32(STEP)) + ZERO, 0, 255) - ZERO)
    np.testing.assert_allclose(mpscnn.Network(graph)(x), expected, atol=1e-5)


def test_numbers_as_an_output_are_values() -> None:
    """A value of 8 bits that is an output is 0...1 in the network's type."""
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    graph.output(graph.add("NeuronLinear", x, a=0.5, result_dtype="uint8"), "y")
    y = mpscnn.Network(graph)(np.full((1, 2, 2, 4), 0.5, np.float32))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, 64 / 255, atol=1e-6)


@pytest.mark.parametrize("channels", [4, 3])
def test_concatenated(channels: int) -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=channels)
    numbers = graph.add("NeuronLinear", x, a=1.0, result_dtype="uint8")
    graph.output(graph.concatenate(numbers, x), "y")
    given = np.random.default_rng(0).random((1, 3, 3, channels)).astype(np.float32)
    expected = np.concatenate([np.rint(given * 255) / 255, given], 3)
    np.testing.assert_allclose(mpscnn.Network(graph)(given), expected, atol=1e-6)


def test_saved(tmp_path: Path) -> None:
    network = mpscnn.Network(residual())
    network.save(tmp_path / "net.mpscnn")
    again = mpscnn.load(tmp_path / "net.mpscnn")
    assert sum(node.result_dtype == "uint8" for node in again.graph.nodes) == 5
    for a, b in zip(network(x_of()), again(x_of()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_smaller_images() -> None:
    """The images of numbers have a quarter of the bytes."""
    graph = mpscnn.Graph()
    graph.output(stored(graph, graph.input("x", channels=8)), "y")
    table = mpscnn.Network(graph).layers((1, 4, 4, 8))
    assert [layer.result_bytes for layer in table] == [128, 512]


def test_pooling_with_another_zero() -> None:
    """Numbers of other steps are not the maxima of the source's."""
    graph = mpscnn.Graph()
    x = stored(graph, graph.input("x", channels=4))
    graph.output(stored(graph, graph.add("PoolingMax", x, kernel_size=2), zero=ZERO + 20), "y")
    x = x_of(3, (1, 4, 4, 4))
    rounded = STEP * np.rint(x / STEP)
    expected = rounded.reshape(1, 2, 2, 2, 2, 4).max((2, 4))
    np.testing.assert_allclose(mpscnn.Network(graph)(x), expected, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("other", [0.0, 1 / 512])
def test_weights_that_are_not_finite(value: float, other: float) -> None:
    """They are no multiples of a step: the convolution computes with values."""
    graph = mpscnn.Graph()
    weight = weights(1, 8, 8, 1, 1)
    weight[2] = other
    weight[2, 5] = value
    y = graph.add("Convolution", stored(graph, graph.input("x", channels=8)), weight=weight)
    graph.output(y, "y")
    result = mpscnn.Network(graph)(np.abs(x_of()) + 1)
    assert np.isfinite(np.delete(result, 2, 3)).all()
    assert not np.isfinite(result[..., 2]).any()


def test_a_stored_result_is_not_fused() -> None:
    """The neuron behind it reads rounded values."""
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    one = np.eye(4, dtype=np.float32)[:, :, None, None]
    numbers = graph.add("Convolution", x, weight=one, result_dtype="uint8")
    graph.output(graph.add("NeuronLinear", numbers, a=2.0), "y")
    given = np.random.default_rng(0).random((1, 3, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(mpscnn.Network(graph)(given), 2 * np.rint(given * 255) / 255, atol=1e-6)


def test_wrong_type() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x")
    with pytest.raises(ValueError, match=r'result_dtype \("int8"\) is neither "uint8" nor ""'):
        graph.add("NeuronReLU", x, result_dtype="int8")


# ---- mpscnn.quantize


def classifier() -> mpscnn.Network:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3)
    rng = np.random.default_rng(5)

    def conv(source: Any, inputs: int, outputs: int) -> Any:
        weight = (rng.normal(size=(outputs, inputs, 3, 3)) / np.sqrt(4.5 * inputs)).astype(np.float32)
        return graph.add("Convolution", source, weight=weight, padding=1, activation="relu")

    a = graph.add("PoolingMax", conv(x, 3, 16), kernel_size=2)
    b = graph.add("Add", conv(conv(a, 16, 16), 16, 16), a)
    mean = graph.add("ReduceRowMean", graph.add("ReduceColumnMean", b))
    weight = rng.normal(size=(10, 16)).astype(np.float32)
    graph.output(graph.add("FullyConnected", mean, weight=weight), "y", layout="NC")
    return mpscnn.Network(graph)


def batches(count: int = 3) -> list[np.ndarray]:
    return [x_of(seed, (4, 16, 16, 3)) for seed in range(count)]


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_quantized_is_near(method: str) -> None:
    network, samples, seen = classifier(), batches(), []
    small = mpscnn.quantize(network, samples, method=method, progress=lambda *done: seen.append(done))
    assert seen[-1] == (len(seen), len(seen))
    found = difference(network, small, batches(5))
    assert found.images == 20
    assert 0 < found.max_difference < 0.05 * found.max_result
    assert found.mean_difference < 0.01 * found.max_result
    assert found.same_top1 is not None
    assert found.same_top1 >= 0.9
    # Weights are multiples of a step for each output.
    for node in small.graph.nodes:
        if node.kernel == "Convolution":
            each = np.asarray(node.arguments["weight"]).reshape(16, -1)
            count = 127 * each / np.abs(each).max(1, keepdims=True)
            np.testing.assert_allclose(count, np.rint(count), atol=1e-3)


def test_percentile_cuts_outliers() -> None:
    samples = batches(1)
    samples[0][0, 0, 0, 0] = 1000

    def step(**options: Any) -> float:
        small = mpscnn.quantize(classifier(), samples, **options)
        return next(1 / (255 * n.arguments["a"]) for n in small.graph.nodes if n.result_dtype)

    assert step() > 3.9
    assert step(method="percentile", percentile=99.9) < 0.4


@pytest.mark.skipif(not HAS_VNNI or ENGINE != "cpu", reason="the processor does not multiply bytes")
def test_quantized_network_uses_numbers() -> None:
    program = f"""
import sys; sys.path[:0] = {sys.path!r}
from network import test_quantization as t
import mpscnn
mpscnn.quantize(t.classifier(), t.batches())(t.batches()[0])
"""
    text = trace(program)
    assert text.count("QuantizedConvProblem") == 4
    assert text.count("QuantizedSumProblem") == 1
    assert "quantized_convolve: quantized_floats" not in text


def gated(activation: str = "") -> mpscnn.Network:
    """An expansion, a depth-wise convolution and squeeze-and-excitation, with swish and hard swish; then a projection.

    With `activation`, the convolutions have that instead.
    """
    graph = mpscnn.Graph()
    rng = np.random.default_rng(7)

    def conv(source: Any, inputs: int, outputs: int, size: int, neuron: str = activation, **options: Any) -> Any:
        weight = (rng.normal(size=(outputs, inputs, size, size)) * 1.4 / np.sqrt(inputs) / size).astype(np.float32)
        own = {"activation": neuron} if neuron else {}
        bias = rng.normal(size=outputs).astype(np.float32) / 4
        return graph.add("Convolution", source, weight=weight, bias=bias, padding=size // 2, **own, **options)

    def times(x: Any, gate: str) -> Any:
        return x if activation else graph.add("Multiply", x, graph.add(gate, x))

    x = times(conv(graph.input("x", channels=3), 3, 16, 3), "NeuronSigmoid")
    x = times(conv(x, 1, 16, 3, groups=16), "NeuronHardSigmoid")
    mean = graph.add("ReduceColumnMean", graph.add("ReduceRowMean", x))
    gate = conv(conv(mean, 16, 4, 1, "relu"), 4, 16, 1, "sigmoid")
    x = conv(graph.add("Multiply", x, gate), 16, 8, 1, "")
    graph.output(graph.add("ReduceRowMax", x), "y")
    return mpscnn.Network(graph)


GATED = f"""
import sys; sys.path[:0] = {sys.path!r}
from network import test_quantization as t
import mpscnn
mpscnn.quantize(t.gated(ACTIVATION), t.batches())(t.batches()[0])
"""


@pytest.mark.skipif(not HAS_VNNI or ENGINE != "cpu", reason="the processor does not multiply bytes")
@pytest.mark.parametrize("activation", ["", "leaky_relu", "tanh"])
def test_functions_behind_convolutions_are_tables(activation: str) -> None:
    """The convolution, the function, the mean and the product compute with bytes, the gate with floats."""
    text = trace(GATED.replace("ACTIVATION", repr(activation)))
    kinds = re.findall(r"^mpscnn dispatch: (\w+Problem)", text, re.MULTILINE)
    expected = [
        "NeuronProblem",
        *["QuantizedConvProblem", "QuantizedMapProblem"] * 2,
        *["QuantizedPixelSumProblem", "ConvProblem", "ConvProblem", "QuantizedProductProblem"],
        *["QuantizedConvProblem", "ReduceProblem"],
    ]
    assert kinds[-len(expected) :] == expected
    assert "quantized_convolve: quantized_floats" not in text


@pytest.mark.parametrize("activation", ["", "leaky_relu", "tanh", "gelu", "sigmoid"])
def test_functions_are_near(activation: str) -> None:
    """Numbers in front of a function add less than a rounding of its result."""
    network = gated(activation)
    small = mpscnn.quantize(network, batches())
    found = difference(network, small, batches(5))
    assert 0 < found.max_difference < 0.08 * found.max_result
    assert found.mean_difference < 0.015 * found.max_result


def test_functions_have_narrow_steps() -> None:
    """Values where the function is constant have no numbers: hard swish is 0 up to -3."""

    def low(network: mpscnn.Network) -> float:
        """Return the value of the number 0 that the hard sigmoid reads."""
        nodes = {node.name: node for node in mpscnn.quantize(network, [40 * b for b in batches()]).graph.nodes}
        gate = next(node for node in nodes.values() if node.kernel == "NeuronHardSigmoid")
        return float(nodes[gate.sources[0]].arguments["b"])

    assert -4 < low(gated()) < -2  # zero is a number
    # Others read the source of the swish, too, if it is an output.
    graph = gated().graph.copy()
    gate = next(node for node in graph.nodes if node.kernel == "NeuronHardSigmoid")
    graph.output(Value(gate.sources[0]), "sums")
    assert low(mpscnn.Network(graph)) < -20


def test_gates_keep_their_weights() -> None:
    before = gated()
    after = mpscnn.quantize(before, batches())
    weights_of = [
        [node.arguments["weight"] for node in network.graph.nodes if node.kernel == "Convolution"]
        for network in (before, after)
    ]
    same = [np.array_equal(a, b) for a, b in zip(*weights_of, strict=True)]
    assert same == [False, False, True, True, False]


def test_coarse_functions_read_floats() -> None:
    """A function that is steep where its source has coarse steps reads no numbers."""

    def stored_values(factor: float) -> int:
        graph = mpscnn.Graph()
        x = graph.input("x", channels=8)
        x = graph.add("Convolution", x, weight=factor * weights(1, 8, 8, 1, 1), bias=np.zeros(8, np.float32))
        x = graph.add("NeuronExponential", x, a=1.0, b=0.0, c=-1.0)
        graph.output(graph.add("Convolution", x, weight=weights(2, 8, 8, 1, 1)), "y")
        small = mpscnn.quantize(mpscnn.Network(graph), [x_of()])
        return sum(node.result_dtype == "uint8" for node in small.graph.nodes)

    assert stored_values(0.1) == 3
    assert stored_values(8) == 2


def test_wrong_arguments() -> None:
    network = classifier()
    with pytest.raises(ValueError, match=r'method \("mean"\) is neither "minmax" nor "percentile"'):
        mpscnn.quantize(network, batches(), method="mean")
    with pytest.raises(ValueError, match=r"percentile \(20\) is not from 50 to 100"):
        mpscnn.quantize(network, batches(), percentile=20)
    with pytest.raises(ValueError, match="samples is empty"):
        mpscnn.quantize(network, [])
    with pytest.raises(TypeError, match=r"network \(int\) is not a Network"):
        mpscnn.quantize(1, [])
    with pytest.raises(QuantizationError, match="quantized already"):
        mpscnn.quantize(mpscnn.quantize(network, batches()), batches())
    with pytest.raises(QuantizationError, match=r"samples\[0\]: value .* is not finite"):
        mpscnn.quantize(network, [np.full((1, 8, 8, 3), np.nan, np.float32)])
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=3)), "y")
    with pytest.raises(QuantizationError, match="no convolution or linear layer"):
        mpscnn.quantize(mpscnn.Network(graph), batches())
