# SPDX-License-Identifier: Apache-2.0
"""Calls of an mpscnn.MPSNNGraph that repeat an earlier encode: its commands are recorded, and encoded again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn import nodes
from support import only_openmps


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


WEIGHT, BIAS = random(8, 3, 3, 3), random(8, seed=1)


def layers(**properties: Any) -> mpscnn.MPSNNGraph:
    layer = nodes.ConvolutionNode(nodes.ImageNode(), WEIGHT, bias=BIAS, padding=1)
    return mpscnn.MPSNNGraph(nodes.PoolingMaxNode(nodes.NeuronReLUNode(layer), 2, padding=0), **properties)


def expected(x: np.ndarray) -> np.ndarray:
    return mpscnn.PoolingMax(2)(np.maximum(mpscnn.Convolution(WEIGHT, bias=BIAS, padding=1)(x), 0))


def test_arrays_of_several_shapes() -> None:
    graph = layers(format="float32")
    for step in range(12):
        x = random(1 + step % 2, 6 + 2 * (step % 3), 8, 3, seed=step)
        np.testing.assert_allclose(graph(x), expected(x), atol=1e-5)


def test_results_that_are_kept() -> None:
    """A result keeps its values while later calls run."""
    graph = layers(format="float32")
    source = mpscnn.Image((2, 6, 8, 3))
    arrays, results = [random(2, 6, 8, 3, seed=step) for step in range(6)], []
    for x in arrays:
        source.write(x)
        results.append(graph(source))
    for x, result in zip(arrays, results, strict=True):
        np.testing.assert_allclose(result.numpy(), expected(x), atol=1e-5)
    del result
    results.clear()
    for x in arrays:  # the images of the results are free
        source.write(x)
        np.testing.assert_allclose(graph(source).numpy(), expected(x), atol=1e-5)


def test_properties_that_change() -> None:
    graph = layers(format="float32")
    x = random(1, 6, 8, 3)
    single = graph(x)
    for _ in range(3):
        np.testing.assert_array_equal(graph(x), single)
    graph.format = "float16"
    for _ in range(4):
        result = graph(x)
        assert result.dtype == np.float16
        np.testing.assert_allclose(result, single, atol=0.02)
    graph.format = "float32"
    taken: list[mpscnn.Image] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype) -> mpscnn.Image:
        taken.append(mpscnn.Image(shape, dtype))
        return taken[-1]

    graph.image_allocator = allocate
    for count in range(1, 5):
        np.testing.assert_array_equal(graph(x), single)
        assert len(taken) == count
    graph.image_allocator = None
    np.testing.assert_array_equal(graph(x), single)
    assert len(taken) == 4


def test_exported_result() -> None:
    """The result, and the same image once more."""
    pool = nodes.PoolingMaxNode(nodes.ImageNode(), 2, padding=0)
    pool.result_image.export_from_graph = True
    graph = mpscnn.MPSNNGraph(pool, format="float32")
    x = random(1, 6, 8, 3)
    for _ in range(4):
        result, exported = graph(x)
        np.testing.assert_array_equal(result, exported)
        np.testing.assert_array_equal(result, mpscnn.PoolingMax(2)(x))


def test_reload() -> None:
    """Weights that another graph has trained."""
    weight = random(5, 4, 1, 1)
    layer = nodes.ConvolutionNode(
        nodes.ImageNode(), weight, optimizer=mpscnn.OptimizerStochasticGradientDescent(0.1), padding=0
    )
    inference = mpscnn.MPSNNGraph(layer, format="float32")
    loss = nodes.LossNode(
        nodes.ConvolutionNode(nodes.ImageNode(), layer.weights, padding=0), mpscnn.Loss("softmax_cross_entropy")
    )
    training = mpscnn.MPSNNGraph(*loss.training_graph(), format="float32", results_are_needed=False)
    x = random(2, 1, 1, 4)
    labels = mpscnn.LossLabels(np.eye(5, dtype=np.float32)[[1, 3]].reshape(2, 1, 1, 5))
    for _ in range(4):
        before = inference(x)
    training(x, labels=labels)
    np.testing.assert_array_equal(inference(x), before)
    inference.reload_from_data_sources()
    after = mpscnn.Convolution(layer.weights.weight.transpose(0, 3, 1, 2))(x)
    assert np.abs(after - before).max() > 1e-3
    for _ in range(4):
        np.testing.assert_allclose(inference(x), after, atol=1e-5)


def test_policies_are_asked_each_time() -> None:
    asked = []

    class Policy(mpscnn.PaddingPolicy):
        def destination(self, kernel, sources, suggested):  # type: ignore[no-untyped-def]
            asked.append(suggested)
            return suggested

    pool = nodes.PoolingMaxNode(nodes.ImageNode(), 2, padding=Policy())
    graph = mpscnn.MPSNNGraph(pool, format="float32")
    x = random(1, 6, 8, 3)
    counts = []
    for _ in range(5):
        graph(x)
        counts.append(len(asked))
    assert counts == sorted(set(counts))


def test_threads() -> None:
    graph = layers(format="float32")
    failures = []

    def call(seed: int) -> None:
        for step in range(20):
            x = random(1, 6, 8, 3, seed=seed * 100 + step)
            if not np.allclose(graph(x), wanted[seed][step], atol=1e-5):
                failures.append((seed, step))

    wanted = [[expected(random(1, 6, 8, 3, seed=seed * 100 + step)) for step in range(20)] for seed in range(3)]
    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@only_openmps("the trace is openmps's")
@pytest.mark.skipif(os.environ.get("MPSCNN_DEVICE") == "apple", reason="Apple's rules exclude recorded commands")
@pytest.mark.parametrize(("engine", "count"), [("cpu", 5), ("cuda-host", 4)])
def test_commands_are_recorded(engine: str, count: int, request: pytest.FixtureRequest) -> None:
    """An engine that needs the same images gets them from the second call on."""
    if engine == "cuda-host":
        request.getfixturevalue("cuda_host")  # skips if the package has no such engine
    code = (
        "import mpscnn, numpy as np\n"
        "from mpscnn import nodes\n"
        "graph = mpscnn.MPSNNGraph(nodes.PoolingMaxNode(nodes.ImageNode(), 2, padding=0), format='float32')\n"
        "for _ in range(6): graph(np.zeros((1, 4, 4, 4), np.float32))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"MPSCNN_TRACE": "steps", "MPSCNN_ENGINE": engine},
        check=True,
    )
    assert done.stderr.count("mpscnn steps: 1 recorded commands") == count
