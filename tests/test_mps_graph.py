# SPDX-License-Identifier: Apache-2.0
"""mpscnn.MPSNNGraph: inputs, results, exported images, training, and networks as graphs."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import mpscnn
from architectures import NAMES, build_small, example
from fuzzing import Fuzz
from mpscnn import nodes

FUZZ = Fuzz()


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def two_layers() -> tuple[nodes.ImageNode, nodes.FilterNode, nodes.FilterNode]:
    x = nodes.ImageNode("picture")
    first = nodes.ConvolutionNode(x, random(8, 3, 3, 3), padding=1)
    return x, first, nodes.PoolingMaxNode(nodes.NeuronReLUNode(first), 2, padding=0)


# ----------------------------------------------------------------------------------------------- inputs and results


def test_inputs_by_label() -> None:
    difference = nodes.SubtractionNode(nodes.ImageNode("a"), nodes.ImageNode("b"))
    graph = mpscnn.MPSNNGraph(difference, format="float32")
    a, b = random(2, 3, 4, 5), random(2, 3, 4, 5, seed=1)
    assert graph.source_image_handles == ("a", "b")
    np.testing.assert_array_equal(graph({"b": b, "a": a}), a - b)
    np.testing.assert_array_equal(graph(a, b), a - b)
    for given, text in (
        ({"a": a}, "MPSNNGraph: the input 'b' is missing."),
        ({"a": a, "b": b, "c": b}, "MPSNNGraph: there is no input 'c'; the inputs are 'a', 'b'."),
    ):
        with pytest.raises(ValueError, match=text):
            graph(given)
    with pytest.raises(ValueError, match=r"MPSNNGraph: 1 sources were given; the graph has 2\."):
        graph(a)
    with pytest.raises(ValueError, match="a source has 1 images, and the first one 2"):
        graph(a, b[:1])
    np.testing.assert_array_equal(graph(a, b), a - b)  # after the errors


def test_results_and_exported_images() -> None:
    _, first, last = two_layers()
    first.result_image.export_from_graph = True
    first.result_image.label = "features"
    sums = nodes.ReductionFeatureChannelsSumNode(last)
    graph = mpscnn.MPSNNGraph(last, sums, format="float32")
    pixels = random(3, 6, 8, 3)
    result, features, summed = graph(pixels)
    np.testing.assert_allclose(features, mpscnn.Convolution(random(8, 3, 3, 3), padding=1)(pixels), atol=1e-5)
    np.testing.assert_allclose(result, mpscnn.PoolingMax(2)(np.maximum(features, 0)), atol=1e-6)
    np.testing.assert_allclose(summed, result.sum(3, keepdims=True), atol=1e-5)
    assert graph.intermediate_image_handles[0] == "features"
    only = mpscnn.MPSNNGraph(last, sums, results_are_needed=[False, True], format="float32")
    exported, again = only(pixels)
    np.testing.assert_array_equal(again, summed)
    np.testing.assert_array_equal(exported, features)


def test_formats() -> None:
    _, _, last = two_layers()
    pixels = random(2, 6, 8, 3)
    graph = mpscnn.MPSNNGraph(last)
    assert graph.format == "float16"
    half = graph(pixels)
    graph.format = "float32"
    single = graph(pixels)
    assert (half.dtype, single.dtype) == (np.float16, np.float32)
    np.testing.assert_allclose(half.astype(np.float32), single, rtol=2e-3, atol=2e-3)
    last.result_image.format = "uint8"
    assert mpscnn.MPSNNGraph(last)(pixels).dtype == np.uint8
    assert graph.allow_reduced_precision is False
    graph.allow_reduced_precision = True
    assert graph.allow_reduced_precision is True
    np.testing.assert_allclose(graph(pixels), single, rtol=0.05, atol=0.05)
    with pytest.raises(ValueError, match='MPSNNGraph: format \\("none"\\) is not one of uint8'):
        graph.format = "none"


def test_encode_between_kernels() -> None:
    _, _, last = two_layers()
    graph = mpscnn.MPSNNGraph(last, format="float32")
    pixels = random(2, 6, 8, 3)
    scale, tanh = mpscnn.NeuronLinear(0.5), mpscnn.NeuronTanH()
    with mpscnn.CommandBuffer() as commands:
        x = scale.encode(commands, mpscnn.Image.from_array(pixels), temporary=True)
        result, more, states = graph.encode(commands, x)
        with pytest.raises(RuntimeError, match=r"not been committed|not completed|written|complete"):
            result.numpy()
        y = tanh.encode(commands, result)
    assert (more, states) == ((), ())
    np.testing.assert_allclose(y.numpy(), np.tanh(graph(pixels * 0.5)), atol=1e-6)
    with pytest.raises(RuntimeError, match="has been committed"):
        graph.encode(commands, mpscnn.Image.from_array(pixels))
    image = graph(mpscnn.Image.from_array(pixels))
    assert isinstance(image, mpscnn.Image)
    assert image.shape == (2, 3, 4, 8)


def test_input_that_is_read_twice() -> None:
    x = nodes.ImageNode("x")
    graph = mpscnn.MPSNNGraph(
        nodes.AdditionNode(nodes.NeuronReLUNode(x), nodes.NeuronAbsoluteNode(x)), format="float32"
    )
    assert graph.read_count(0) == 2
    with pytest.raises(ValueError, match="source \\(1\\) is greater than the maximum \\(0\\)"):
        graph.read_count(1)
    pixels = random(1, 4, 4, 4)
    with mpscnn.CommandBuffer() as commands:
        image = mpscnn.NeuronLinear(2.0).encode(commands, mpscnn.Image.from_array(pixels), temporary=True)
        image.read_count = graph.read_count(0)
        result, _, _ = graph.encode(commands, image)
    np.testing.assert_allclose(result.numpy(), np.maximum(2 * pixels, 0) + np.abs(2 * pixels))


def test_wrong_graphs() -> None:
    x, _, last = two_layers()
    for call, kind, text in (
        (lambda: mpscnn.MPSNNGraph(), ValueError, "MPSNNGraph: there is no result."),
        (lambda: mpscnn.MPSNNGraph(3), TypeError, "MPSNNGraph: results (int) is not an ImageNode or filter node."),
        (lambda: mpscnn.MPSNNGraph(x), ValueError, "A result image is the result of no filter node."),
        (lambda: mpscnn.MPSNNGraph(last, results_are_needed=[True, False]), ValueError,
         "MPSNNGraph: len(results_are_needed) (2) is not the number of results (1)."),
        (lambda: mpscnn.MPSNNGraph(last)(random(1, 6, 8, 4)), ValueError, "4 feature channels"),
        (lambda: mpscnn.MPSNNGraph(last)(random(1, 1, 8, 3)), ValueError, "less than the minimum (1 x 1)"),
        (lambda: mpscnn.MPSNNGraph(last)(random(6, 8, 3)), ValueError, "ndim (3) is not 4"),
        (lambda: mpscnn.MPSNNGraph(last).encode(mpscnn.CommandBuffer(), 3), TypeError,
         "MPSNNGraph: source (int) is not an Image."),
        (lambda: mpscnn.mps_graph.GraphState(), TypeError, "GraphState cannot be made"),
    ):  # fmt: skip
        with pytest.raises(kind) as raised:
            call()
        assert text in str(raised.value)


def test_nodes_outlive_nothing() -> None:
    """A graph keeps its weights when nodes and arrays are gone."""
    pixels = random(1, 6, 8, 3)
    weight = random(8, 3, 3, 3)
    graph = mpscnn.MPSNNGraph(nodes.ConvolutionNode(nodes.ImageNode(), weight, padding=0), format="float32")
    expected = mpscnn.Convolution(weight.copy())(pixels)
    del weight
    gc.collect()
    np.testing.assert_array_equal(graph(pixels), expected)


# --------------------------------------------------------------------------------------------------------- training


class Model:
    """Two layers and a loss, as nodes and in PyTorch with float64."""

    def __init__(self, optimizer: Any) -> None:
        self.arrays = [0.2 * random(8, 3, 3, 3), 0.1 * random(8), 0.1 * random(5, 128, seed=1), np.zeros(5, np.float32)]
        x = nodes.ImageNode("x")
        self.conv = nodes.ConvolutionNode(x, *self.arrays[:2], padding=1, optimizer=optimizer)
        pool = nodes.PoolingMaxNode(nodes.NeuronReLUNode(self.conv), 2, padding=0)
        self.linear = nodes.FullyConnectedNode(pool, *self.arrays[2:], feature_map=(8, 4, 4), optimizer=optimizer)
        self.loss = nodes.LossNode(self.linear, mpscnn.Loss("softmax_cross_entropy"))
        self.loss.input_labels.label = "classes"
        self.parameters = [torch.tensor(one.astype(np.float64), requires_grad=True) for one in self.arrays]

    def logits(self, pixels: np.ndarray) -> torch.Tensor:
        w, b, v, c = self.parameters
        x = torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float64))
        hidden = torch.max_pool2d(torch.relu(torch.conv2d(x, w, b, padding=1)), 2).flatten(1)
        return hidden @ v.T + c

    def expected_loss(self, pixels: np.ndarray, classes: np.ndarray) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.logits(pixels), torch.from_numpy(classes), reduction="sum")


def labels_of(classes: np.ndarray) -> mpscnn.LossLabels:
    one_hot = np.zeros((len(classes), 1, 1, 5), np.float32)
    one_hot[np.arange(len(classes)), 0, 0, classes] = 1
    return mpscnn.LossLabels(one_hot)


OPTIMIZERS = {
    "SGD": (lambda: mpscnn.OptimizerStochasticGradientDescent(0.05, momentum_scale=0.9),
            lambda values: torch.optim.SGD(values, lr=0.05, momentum=0.9)),
    "Adam": (lambda: mpscnn.OptimizerAdam(0.01), lambda values: torch.optim.Adam(values, lr=0.01)),
    "RMSProp": (lambda: mpscnn.OptimizerRMSProp(0.01, decay=0.9),
                lambda values: torch.optim.RMSprop(values, lr=0.01, alpha=0.9)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_against_torch(name: str) -> None:
    ours, theirs = OPTIMIZERS[name]
    model = Model(ours())
    other = theirs(model.parameters)
    seen = []

    def single(gradient: Any, forward: Any, source: Any, source_gradient: Any) -> None:
        gradient.result_image.format = "float32"
        seen.append((type(gradient).__name__, type(forward).__name__))
        assert isinstance(source, nodes.ImageNode)
        assert isinstance(source_gradient, nodes.ImageNode)

    last = model.loss.training_graph(node_handler=single)
    graph = mpscnn.MPSNNGraph(*last, results_are_needed=False, format="float32")
    assert seen[0] == ("FullyConnectedGradientNode", "FullyConnectedNode")
    assert seen[-1] == ("ConvolutionGradientNode", "ConvolutionNode")
    assert graph.source_state_handles == ("classes",)
    evaluation = mpscnn.MPSNNGraph(
        nodes.FullyConnectedNode(
            nodes.PoolingMaxNode(
                nodes.NeuronReLUNode(nodes.ConvolutionNode(nodes.ImageNode(), model.conv.weights, padding=1)),
                2, padding=0,
            ),
            model.linear.weights,
        ),
        format="float32",
    )  # fmt: skip
    for step in range(4):
        pixels = random(4, 8, 8, 3, seed=step)
        classes = np.random.default_rng(step).integers(0, 5, 4)
        labels = labels_of(classes)
        assert graph(pixels, labels=labels) is None
        other.zero_grad()
        loss = model.expected_loss(pixels, classes)
        loss.backward()
        other.step()
        np.testing.assert_allclose(labels.loss.sum(), loss.item(), rtol=1e-4)
    assert model.conv.weights.is_trained
    values = [model.conv.weights.weight.transpose(0, 3, 1, 2), model.conv.weights.bias,
              model.linear.weights.weight.transpose(0, 3, 1, 2).reshape(5, 128), model.linear.weights.bias]  # fmt: skip
    for value, parameter in zip(values, model.parameters, strict=True):
        np.testing.assert_allclose(value, parameter.detach().numpy(), rtol=1e-4, atol=1e-4)
    pixels = random(4, 8, 8, 3, seed=20)
    before = evaluation(pixels)
    evaluation.reload_from_data_sources()
    after = evaluation(pixels).reshape(4, 5)
    np.testing.assert_allclose(after, model.logits(pixels).detach().numpy(), rtol=1e-4, atol=1e-4)
    assert np.abs(after - before.reshape(4, 5)).max() > 1e-2


def test_gradients_by_hand() -> None:
    model = Model(None)
    gradient = model.linear.gradient_filter(model.loss)
    gradient.result_image.format = "float32"
    graph = mpscnn.MPSNNGraph(gradient, format="float32")
    pixels, classes = random(2, 8, 8, 3), np.array([1, 3])
    result = graph(pixels, labels=labels_of(classes))
    w, b, v, c = model.parameters
    x = torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float64))
    hidden = torch.max_pool2d(torch.relu(torch.conv2d(x, w, b, padding=1)), 2)
    hidden.retain_grad()
    torch.nn.functional.cross_entropy(
        hidden.flatten(1) @ v.T + c, torch.from_numpy(classes), reduction="sum"
    ).backward()
    np.testing.assert_allclose(result.transpose(0, 3, 1, 2), hidden.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_exported_states() -> None:
    """The gradients of weights without an optimizer; one of them is larger than a small network's."""
    weight = 0.05 * random(512, 64, 3, 3)
    conv = nodes.ConvolutionNode(nodes.ImageNode("x"), weight, 0.1 * random(512), padding=1)
    state = conv.result_state
    assert state is not None
    state.export_from_graph, state.label = True, "conv"
    loss = nodes.ForwardLossNode(conv, nodes.ImageNode("y"), mpscnn.Loss("mean_squared_error", reduction="sum"))
    last = nodes.InitialGradientNode(loss).training_graph()
    graph = mpscnn.MPSNNGraph(*last, format="float32")
    assert graph.result_state_handles == ("conv",)
    pixels, target = random(2, 6, 7, 64), random(2, 6, 7, 512, seed=1)
    with mpscnn.CommandBuffer() as commands:
        images = {"x": mpscnn.Image.from_array(pixels), "y": mpscnn.Image.from_array(target)}
        _, _, states = graph.encode(commands, images)
    w = torch.tensor(weight.astype(np.float64), requires_grad=True)
    b = torch.tensor((0.1 * random(512)).astype(np.float64), requires_grad=True)
    x, y = (torch.from_numpy(one.transpose(0, 3, 1, 2).astype(np.float64)) for one in (pixels, target))
    ((torch.conv2d(x, w, b, padding=1) - y) ** 2).sum().backward()
    found = states[0]["grad_weight"].numpy("float32", (512, 3, 3, 64)).transpose(0, 3, 1, 2)
    scale = float(w.grad.abs().max())
    np.testing.assert_allclose(found / scale, w.grad.numpy() / scale, atol=2e-5)
    scale = float(b.grad.abs().max())
    np.testing.assert_allclose(states[0]["grad_bias"].numpy("float32") / scale, b.grad.numpy() / scale, atol=2e-5)
    assert repr(states[0]) == "<mpscnn GraphState, MPSCNNConvolutionGradientState>"
    with pytest.raises(KeyError):
        states[0]["weight"]
    with pytest.raises(TypeError, match="has no gradientForGamma"):
        states[0]["grad_gamma"]


def test_against_trainer() -> None:
    """The same steps by a Trainer and by a graph."""
    model = Model(mpscnn.OptimizerStochasticGradientDescent(0.02))
    graph = mpscnn.MPSNNGraph(*model.loss.training_graph(), results_are_needed=False, format="float32")
    described = mpscnn.Graph()
    x = described.input("x", height=8, width=8, channels=3)
    y = described.add("Convolution", x, weight=model.arrays[0], bias=model.arrays[1], padding=1)
    y = described.add("PoolingMax", described.add("NeuronReLU", y), kernel_size=2)
    y = described.add("FullyConnected", y, weight=model.arrays[2], bias=model.arrays[3], feature_map=(8, 4, 4))
    described.output(y, "y")
    # A Trainer's gradients are means over the batch.
    trainer = mpscnn.Trainer(described, optimizer=mpscnn.OptimizerStochasticGradientDescent(0.02 * 4))
    for step in range(3):
        pixels, classes = random(4, 8, 8, 3, seed=step), np.random.default_rng(step).integers(0, 5, 4)
        labels = labels_of(classes)
        graph(pixels, labels=labels)
        step_of = trainer.step(pixels, classes)
        np.testing.assert_allclose(labels.loss.sum() / 4, step_of.loss, rtol=1e-4)


def test_labels_are_used_again() -> None:
    """LossLabels serve kernels and graphs."""
    model = Model(None)
    loss = mpscnn.Loss("softmax_cross_entropy")
    labels = labels_of(np.array([0, 4, 2]))
    pixels = random(3, 8, 8, 3)
    logits = mpscnn.MPSNNGraph(model.linear, format="float32")(pixels)
    expected, gradient = loss(logits, labels)
    result = mpscnn.MPSNNGraph(model.loss, format="float32")(pixels, labels=labels)
    np.testing.assert_allclose(result, gradient, atol=1e-5)
    np.testing.assert_allclose(labels.loss, expected, rtol=1e-5)
    np.testing.assert_allclose(loss(logits, labels)[1], gradient, atol=1e-6)
    with pytest.raises(ValueError, match="labels of 3 images were given for 2"):
        mpscnn.MPSNNGraph(model.loss)(pixels[:2], labels=labels)
    with pytest.raises(ValueError, match="0 labels were given; the graph has 1"):
        mpscnn.MPSNNGraph(model.loss)(pixels)


# --------------------------------------------------------------------------------------------- networks as graphs


def called_again(graph: mpscnn.MPSNNGraph, pixels: np.ndarray) -> np.ndarray:
    """Return the first result. Later calls, for which the sizes of all images are known, compute the same bits."""
    results = []
    for _ in range(3):
        result = graph(pixels)
        results.append(result[0] if isinstance(result, tuple) else result)
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])
    return results[0]


NOT_EXPORTED = {
    "inception_v3": "takes images of 75 pixels and more, whose small case has other tests",
    "yolo_tiny": "",
}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_EXPORTED])
def test_network(name: str) -> None:
    x = example(name, batch=2)
    module = build_small(name)
    network = mpscnn.load(module, input_shapes=tuple(x.shape))
    graph = network.to_mps_graph()
    expected = network(x.numpy())
    first = expected if isinstance(expected, np.ndarray) else next(iter(expected.values()))
    output = next(iter(network.outputs.values()))
    result = called_again(graph, np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1)))
    if output.layout == "NCHW":
        result = result.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(result.reshape(first.shape), first, rtol=1e-4, atol=1e-5)


def test_network_of_halves_and_reduced_precision() -> None:
    module = build_small("resnet18")
    x = example("resnet18", batch=2)
    network = mpscnn.load(module, input_shapes=tuple(x.shape), dtype="float16", allow_reduced_precision=True)
    graph = network.to_mps_graph()
    assert (graph.format, graph.allow_reduced_precision) == ("float16", True)
    result = graph(np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(result.reshape(2, -1), network(x.numpy()), rtol=0.05, atol=0.05)


class Branches(torch.nn.Module):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.relu(input) if input.shape[2] % 2 else input * 2


def test_conditions_of_a_network() -> None:
    graph = mpscnn.load(Branches(), input_shapes={"input": (2, 4, 6, 8)}).to_mps_graph()
    even, odd = np.ones((3, 8, 5, 4), np.float32), np.ones((3, 7, 5, 4), np.float32)
    assert (graph(even) == 2).all()
    for call in (
        lambda: graph(odd),
        lambda: graph({"input": odd}),
        lambda: graph.execute_async(odd),
        lambda: graph.encode(mpscnn.CommandBuffer(), mpscnn.Image.from_array(odd)),
    ):
        with pytest.raises(ValueError, match=r"7 x 5 is not a size .* height % 2 == 0"):
            call()


def graph_with(add: Any) -> mpscnn.Network:
    described = mpscnn.Graph()
    described.output(add(described, described.input("x", height=8, width=8, channels=6)), "y")
    return mpscnn.Network(described)


@pytest.mark.parametrize(
    ("add", "text"),
    [
        (lambda g, x: g.add("ResizeBilinear", x, size=(4, 4)), "MPSNNGraph has no node of the kernel ResizeBilinear."),
        (lambda g, x: g.concatenate(x, g.add("NeuronReLU", x)), "are no multiple of 4"),
        (lambda g, x: g.add("PoolingMax", x, kernel_size=2, clip_rect=((0, 0, 0), (1, 1, 1))), "has no clip_rect"),
    ],
    ids=["kernel", "channels", "argument"],
)
def test_networks_that_no_graph_has(add: Any, text: str) -> None:
    with pytest.raises(NotImplementedError, match="to_mps_graph: node ") as raised:
        graph_with(add).to_mps_graph()
    assert text in str(raised.value)


KERNELS: dict[str, dict[str, Any]] = {
    "NeuronReLU": {}, "NeuronSigmoid": {}, "NeuronTanH": {"a": 1.5}, "NeuronELU": {"a": 0.5}, "NeuronReLUN": {"b": 2.0},
    "SoftMax": {}, "PoolingMax": {"kernel_size": 3, "stride": 1, "padding": 1},
    "PoolingAverage": {"kernel_size": 3, "stride": 1, "padding": 1, "count_include_pad": False},
    "InstanceNormalization": {"gamma": random(8), "beta": random(8)},
    "CrossChannelNormalization": {"kernel_size": 3, "alpha": 0.5, "beta": 0.75, "delta": 1.0},
}  # fmt: skip
TWO = ("Add", "Subtract", "Multiply")


@FUZZ.given(40, data=st.data())
def test_random_graphs(data: Any) -> None:
    """Graphs of random kernels compute what the network does."""
    described = mpscnn.Graph()
    values = [described.input("x", channels=8)]
    seed = data.draw(st.integers(0, 1000))
    for index in range(data.draw(st.integers(1, 9))):
        kind = data.draw(st.sampled_from([*KERNELS, *TWO, "Convolution", "Concatenate", "Statistics", "Mask"]))
        sources = [values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2)]
        if kind in KERNELS:
            values.append(described.add(kind, sources[0], **KERNELS[kind]))
        elif kind in TWO:
            values.append(described.add(kind, *sources, bias=0.5))
        elif kind == "Convolution":
            size = data.draw(st.sampled_from([1, 3]))
            activation = data.draw(st.sampled_from([None, "relu"]))
            weight = 0.2 * random(8, 8, size, size, seed=seed + index)
            values.append(
                described.add("Convolution", sources[0], weight=weight, padding=size // 2, activation=activation)
            )
        elif kind == "Concatenate":
            both = described.concatenate(*sources) if sources[0] != sources[1] else None
            if both is not None:
                values.append(described.add("Convolution", both, weight=0.2 * random(8, 16, 1, 1, seed=seed + index)))
        elif kind == "Mask":
            mask = described.add("ReduceFeatureChannelsMean", sources[0])
            values.append(described.add("Multiply", mask, sources[1]))
        else:
            scale = described.add("ReduceColumnMean", described.add("ReduceRowMean", sources[0]))
            values.append(described.add("Multiply", sources[1], scale))
    if len(values) == 1:
        values.append(described.add("NeuronReLU", values[0]))
    described.output(values[-1], "y")
    network = mpscnn.Network(described, optimize=data.draw(st.booleans()))
    batch, height, width = (data.draw(st.integers(1, most)) for most in (3, 9, 9))
    pixels = random(batch, height, width, 8, seed=seed)
    shape = {"x": pixels.shape}
    expected = network(pixels)
    result = called_again(network.to_mps_graph(shape), pixels)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(expected).max())))


@FUZZ.given(40, data=st.data())
def test_random_concatenations(data: Any) -> None:
    """Concatenations of any images, also of other concatenations and of one image twice, with other readers."""
    x = nodes.ImageNode("x")
    channels = [data.draw(st.sampled_from([3, 4, 8]))]
    images: list[Any] = [x]
    export = None
    for index in range(data.draw(st.integers(1, 10))):
        if data.draw(st.booleans()):
            chosen = data.draw(st.lists(st.integers(0, len(images) - 1), min_size=1, max_size=4))
            if data.draw(st.booleans()):  # as in a dense block
                chosen = list(range(len(images) - min(3, len(images)), len(images)))
            images.append(nodes.ConcatenationNode([images[i] for i in chosen]))
            channels.append(sum(-(-channels[i] // 4) * 4 for i in chosen))
        else:
            i, more = data.draw(st.integers(0, len(images) - 1)), data.draw(st.sampled_from([2, 4, 8]))
            weight = random(more, channels[i], 1, 1, seed=index) / channels[i]
            images.append(nodes.ConvolutionNode(images[i], weight))
            channels.append(more)
        if data.draw(st.integers(0, 5)) == 0 and export is None:
            export = index + 1
            images[-1].result_image.export_from_graph, images[-1].result_image.label = True, "exported"
    kept = sorted(data.draw(st.sets(st.integers(1, len(images) - 1), min_size=1, max_size=3)))
    graph = mpscnn.MPSNNGraph(*[images[i] for i in kept], format=data.draw(st.sampled_from(["float16", "float32"])))
    sizes = data.draw(st.lists(st.tuples(*[st.integers(1, most) for most in (3, 6, 6)]), min_size=2, max_size=4))
    first: dict[tuple[int, ...], Any] = {}
    for size in [size for each in sizes for size in (each, each)]:
        results = graph(random(*size, channels[0]))
        results = results if isinstance(results, tuple) else (results,)
        for again, result in zip(first.setdefault(size, results), results, strict=True):
            np.testing.assert_array_equal(result, again)


def test_what_others_read_is_not_fused() -> None:
    x = nodes.ImageNode("x")
    weight, pixels = random(8, 8, 1, 1), random(1, 4, 5, 8)
    conv = nodes.ConvolutionNode(x, weight)
    both = nodes.AdditionNode(nodes.NeuronReLUNode(conv), conv)
    y = mpscnn.Convolution(weight)(pixels)
    result = called_again(mpscnn.MPSNNGraph(both, format="float32"), pixels)
    np.testing.assert_allclose(result, np.maximum(y, 0) + y, atol=1e-5)
    twice = nodes.NeuronTanHNode(nodes.NeuronReLUNode(nodes.ConvolutionNode(x, weight)))
    result = called_again(mpscnn.MPSNNGraph(twice, format="float32"), pixels)
    np.testing.assert_allclose(result, np.tanh(np.maximum(y, 0)), atol=1e-5)


def test_parts_of_two_channels() -> None:
    """MPS reads the third and fourth channel of such an image as 0 and 1."""
    x = nodes.ImageNode("x")
    weights = [random(count, 8, 1, 1, seed=count) for count in (2, 8)]
    joined = nodes.ConcatenationNode([nodes.ConvolutionNode(x, weight) for weight in weights])
    graph = mpscnn.MPSNNGraph(nodes.NeuronLinearNode(joined, 2.0, 0.0), format="float32")
    for count in (2, 3, 2):  # memory that other values were in
        pixels = random(count, 4, 5, 8)
        a, b = (mpscnn.Convolution(weight)(pixels) for weight in weights)
        constants = np.broadcast_to(np.asarray([0, 1], np.float32), a.shape)
        expected = 2 * np.concatenate([a, constants, b], 3)
        np.testing.assert_allclose(called_again(graph, pixels), expected, atol=1e-5)


COPIES = """
import numpy as np, mpscnn
from mpscnn import nodes
x, weight = nodes.ImageNode("x"), np.ones((8, 8, 1, 1), np.float32)
images = [nodes.ConvolutionNode(x, weight)]
for i in range(3):  # each of the earlier images
    joined = nodes.ConcatenationNode(images) if i else images[0]
    images.append(nodes.ConvolutionNode(joined, np.ones((8, 8 * (i + 1), 1, 1), np.float32)))
normal = nodes.BatchNormalizationNode(nodes.ConcatenationNode(images), *np.ones((4, 32), np.float32))
last = nodes.NeuronReLUNode(normal)
graph = mpscnn.MPSNNGraph(nodes.ReductionFeatureChannelsSumNode(last), format="float32")
graph(np.ones((2, 4, 4, 8), np.float32))
print("again", file=sys.stderr, flush=True)
graph(np.ones((2, 4, 4, 8), np.float32))
"""


def test_concatenations_without_copies() -> None:
    """From the second call on, images are written where concatenations want them; activations are part of kernels."""
    code = "import sys\n" + COPIES
    environment = os.environ | {"MPSCNN_TRACE": "dispatch", "MPSCNN_ENGINE": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    first, again = (re.findall(r"dispatch: (\w+Problem)", part) for part in done.stderr.split("again\n"))
    convolutions = ["ConvProblem"] * 4
    assert sorted(first) == [*convolutions, *["CopyProblem"] * 9, "NormalizeProblem", "ReduceProblem"]
    assert sorted(again) == [*convolutions, "NormalizeProblem", "ReduceProblem"]


def test_two_calls_at_once() -> None:
    """Calls of one graph by several threads."""
    from concurrent.futures import ThreadPoolExecutor

    _, _, last = two_layers()
    graph = mpscnn.MPSNNGraph(last, format="float32")
    pixels = [random(2, 6, 8, 3, seed=seed) for seed in range(8)]
    expected = [graph(one) for one in pixels]
    with ThreadPoolExecutor(4) as pool:
        for result, right in zip(pool.map(graph, pixels * 5), expected * 5, strict=True):
            np.testing.assert_array_equal(result, right)


def test_no_growth() -> None:
    """Calls leave nothing behind, nor do graphs."""
    _, _, last = two_layers()
    graph = mpscnn.MPSNNGraph(last, format="float32")
    pixels = random(2, 64, 64, 3)

    def many(count: int) -> int:
        for _ in range(count):
            graph(pixels)
            with contextlib.suppress(ValueError):
                graph(pixels[..., :2])
            mpscnn.MPSNNGraph(last)
        gc.collect()
        return mpscnn.memory.current()

    first = many(5)
    assert many(20) <= first + (1 << 16)


# ---------------------------------------------------------------------------------------------- gradient nodes by class

GAMMA = random(8) ** 2 + 0.5
# The forward node, and the arguments of its gradient's class after the image and the state.
GRADIENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Convolution": (lambda x: nodes.ConvolutionNode(x, random(8, 8, 3, 3), padding=1), {}),
    "ConvolutionTranspose": (lambda x: nodes.ConvolutionTransposeNode(x, random(8, 8, 2, 2), stride=2, padding=0), {}),
    "FullyConnected": (lambda x: nodes.FullyConnectedNode(x, random(8, 8 * 6 * 7), feature_map=(8, 6, 7)), {}),
    "PoolingMax": (lambda x: nodes.PoolingMaxNode(x, (3, 2), 2, padding=0), {"kernel_size": (3, 2), "stride": 2}),
    "PoolingAverage": (
        lambda x: nodes.PoolingAverageNode(x, (3, 2), 2, padding=0),
        {"kernel_size": (3, 2), "stride": 2},
    ),
    "PoolingL2Norm": (lambda x: nodes.PoolingL2NormNode(x, 2, padding=0), {"kernel_size": 2}),
    "DilatedPoolingMax": (
        lambda x: nodes.DilatedPoolingMaxNode(x, 2, 1, dilation=(1, 2), padding=0),
        {"kernel_size": 2, "stride": 1, "dilation": (1, 2)},
    ),
    "Neuron": (lambda x: nodes.NeuronTanHNode(x, 1.5, 0.5), {"activation": mpscnn.NeuronTanH(1.5, 0.5)}),
    "BatchNormalization": (lambda x: nodes.BatchNormalizationNode(x, GAMMA, GAMMA, GAMMA, GAMMA), {}),
    "InstanceNormalization": (lambda x: nodes.InstanceNormalizationNode(x, GAMMA), {}),
    "GroupNormalization": (lambda x: nodes.GroupNormalizationNode(x, GAMMA, groups=2), {}),
    "SpatialNormalization": (lambda x: nodes.SpatialNormalizationNode(x, 3), {"kernel_size": 3}),
    "CrossChannelNormalization": (lambda x: nodes.CrossChannelNormalizationNode(x, 3), {"kernel_size": 3}),
    "LocalContrastNormalization": (lambda x: nodes.LocalContrastNormalizationNode(x, 3), {"kernel_size": 3}),
    "SoftMax": (nodes.SoftMaxNode, {}),
    "LogSoftMax": (nodes.LogSoftMaxNode, {}),
    "UpsamplingNearest": (lambda x: nodes.UpsamplingNearestNode(x, (2, 3)), {"scale_factor": (2, 3)}),
    "UpsamplingBilinear": (lambda x: nodes.UpsamplingBilinearNode(x, (2, 3)), {"scale_factor": (2, 3)}),
    "Dropout": (lambda x: nodes.DropoutNode(x, 0.5, seed=2), {"keep_probability": 0.5, "seed": 2}),
    "Concatenation": (lambda x: nodes.ConcatenationNode([x, nodes.ImageNode("other")]), {}),
    "Addition": (lambda x: nodes.AdditionNode(x, nodes.ImageNode("other")), {}),
    "Subtraction": (lambda x: nodes.SubtractionNode(x, nodes.ImageNode("other")), {}),
    "Multiplication": (lambda x: nodes.MultiplicationNode(x, nodes.ImageNode("other")), {}),
    "Pad": (lambda x: nodes.PadNode(x, (1, 2, 0), (0, 1, 0)), {}),
    "Reshape": (lambda x: nodes.ReshapeNode(x, (7, 6, 8)), {}),
    "ReductionSpatialMean": (nodes.ReductionSpatialMeanNode, {}),
    "GramMatrixCalculation": (lambda x: nodes.GramMatrixCalculationNode(x, 0.5), {"alpha": 0.5}),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_class(name: str) -> None:
    """A node of the gradient's class computes what the forward node's own gradient filter does."""
    make, arguments = GRADIENTS[name]
    forward = make(nodes.ImageNode("x"))
    dy = nodes.ImageNode("dy")
    ours = forward.gradient_filters(dy)
    kind = type(ours[0])
    assert kind.__name__ == f"{name}GradientNode"
    own_image = nodes.ImageNode("x")
    again = make(own_image)
    second = nodes.ImageNode("other") if name == "Multiplication" else own_image
    made: Any = kind(dy, second, again.result_state, **arguments)
    for image in (ours[0].result_image, made.result_image):
        image.format = "float32"
    x, other = random(2, 6, 7, 8), random(2, 6, 7, 8, seed=1)
    first = mpscnn.MPSNNGraph(ours[0], format="float32")
    both = [first, mpscnn.MPSNNGraph(made, format="float32")]
    shape = mpscnn.MPSNNGraph(forward, format="float32")({"x": x, "other": other} if needs(forward) else {"x": x}).shape
    given = {"x": x, "other": other, "dy": random(*shape, seed=2)}
    values = [graph({label: given[label] for label in graph.source_image_handles}) for graph in both]
    assert np.abs(values[0]).max() > 0
    np.testing.assert_array_equal(values[0], values[1])


def needs(node: nodes.FilterNode) -> bool:
    return "other" in mpscnn.MPSNNGraph(node).source_image_handles


def test_each_gradient_class_is_tested() -> None:
    kinds = {kind.__name__ for kind in nodes.classes().values() if issubclass(kind, nodes.GradientFilterNode)}
    assert kinds == {f"{name}GradientNode" for name in GRADIENTS} | {"LossGradientNode"}


def test_loss_gradient_class() -> None:
    x, y = nodes.ImageNode("x"), nodes.ImageNode("y")
    loss = mpscnn.Loss("huber", delta=0.5)
    gradient = nodes.LossGradientNode(nodes.ImageNode("dy"), x, y, loss)
    graph = mpscnn.MPSNNGraph(gradient, format="float32")
    given = {"x": random(2, 3, 4, 4), "y": random(2, 3, 4, 4, seed=1), "dy": np.ones((2, 1, 1, 1), np.float32)}
    result = graph({label: given[label] for label in graph.source_image_handles})
    expected = mpscnn.LossGradient("huber", delta=0.5)(given["dy"], given["x"], given["y"])
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_yolo_loss() -> None:
    anchors = [(1.0, 2.0), (3.0, 1.5)]
    predictions, truth = random(2, 4, 4, 14), np.zeros((2, 4, 4, 14), np.float32)
    truth[:, 1, 2, :6] = (0.5, 0.25, 1, 2, 1, 1)
    loss = mpscnn.YOLOLoss(anchors)
    expected_labels, labels = mpscnn.LossLabels(truth), mpscnn.LossLabels(truth)
    expected_loss, expected = loss(predictions, expected_labels)
    result = mpscnn.MPSNNGraph(nodes.YOLOLossNode(nodes.ImageNode(), loss), format="float32")(
        predictions, labels=labels
    )
    np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_allclose(labels.loss, expected_loss, rtol=1e-5)
