# SPDX-License-Identifier: Apache-2.0
"""mpscnn.MPSNNGraph: data sources that update their own weights, on the command buffer and on the CPU."""

from __future__ import annotations

import gc
import re
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import mpscnn
from mpscnn import nodes
from support import Source

RATE = 0.125


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LOSS = mpscnn.Loss("mean_squared_error", reduction="sum", weight=0.01)
X, Y = normal(3, 7, 6, 4, seed=3), normal(3, 3, 4, 6, seed=4)


def descriptor(**members: Any) -> mpscnn.ConvolutionDescriptor:
    return mpscnn.ConvolutionDescriptor(3, in_channels=4, out_channels=6, stride=(2, 1), **members)


class Learner(Source):
    """Base class: six filters of 3 x 3 x 4, with a list of the arguments of each update."""

    def __init__(self, **members: Any) -> None:
        super().__init__(descriptor(), 0.3 * normal(6, 3, 3, 4, seed=1), normal(6, seed=2), **members)
        self.given: list[tuple[Any, ...]] = []


class OnDevice(Learner):
    """Steps of an optimizer on the device."""

    def __init__(self, optimizer: Any = None) -> None:
        super().__init__()
        self.optimizer = optimizer or mpscnn.OptimizerStochasticGradientDescent(RATE)
        self.values: Any = None

    def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
        self.given.append((command_buffer, gradient_state, source_state))
        if self.values is None:
            self.values = self.optimizer.state_for(source_state)
        self.optimizer.encode(command_buffer, gradient_state, self.values)
        return self.values.values


class OnCpu(Learner):
    """Gradient descent in NumPy."""

    def update_on_cpu(self, gradient_state: Any, source_state: Any) -> Any:
        self.given.append((gradient_state, source_state))
        self.weights = source_state.weights - RATE * gradient_state.grad_weight
        self.bias = source_state.biases - RATE * gradient_state.grad_bias
        return None


class Twin:
    """PyTorch's convolution with the same weights in float64."""

    def __init__(self, source: Source) -> None:
        self.weight = torch.tensor(np.array(source.weights, "f8").transpose(0, 3, 1, 2), requires_grad=True)
        self.bias = torch.tensor(np.array(source.bias, "f8"), requires_grad=True)
        self.optimizer: Any = torch.optim.SGD([self.weight, self.bias], lr=RATE)

    def step(self) -> None:
        self.optimizer.zero_grad()
        x, y = (torch.tensor(one.transpose(0, 3, 1, 2).astype("f8")) for one in (X, Y))
        (((F.conv2d(x, self.weight, self.bias, (2, 1)) - y) ** 2).sum() / 100).backward()
        self.optimizer.step()

    def near(self, weight: np.ndarray, bias: np.ndarray) -> None:
        np.testing.assert_allclose(weight, self.weight.detach().numpy().transpose(0, 2, 3, 1), atol=2e-5)
        np.testing.assert_allclose(bias, self.bias.detach().numpy(), atol=2e-5)


class Model:
    """A convolution with the source, and a sum of squares as the loss."""

    def __init__(self, source: Source, style: str = "gpu", export: bool = False) -> None:
        self.source, self.twin = source, Twin(source)
        self.conv = nodes.ConvolutionNode(nodes.ImageNode("x"), source, padding=0)
        self.conv.training_style = style
        if export:
            state = self.conv.result_state
            assert state is not None
            state.export_from_graph = True
        loss = nodes.ForwardLossNode(self.conv, nodes.ImageNode("y"), LOSS)
        last = nodes.InitialGradientNode(loss).training_graph()
        self.graph = mpscnn.MPSNNGraph(*last, results_are_needed=False, format="float32")
        self.inference = mpscnn.MPSNNGraph(self.conv, format="float32")

    def step(self) -> None:
        assert self.graph({"x": X, "y": Y}) is None
        self.twin.step()


@pytest.mark.parametrize("name", ["SGD", "momentum", "Adam"])
def test_on_the_device(name: str) -> None:
    """Each step reads the weights that the last one computed."""
    ours, theirs = {
        "SGD": (mpscnn.OptimizerStochasticGradientDescent(RATE), lambda p: torch.optim.SGD(p, lr=RATE)),
        "momentum": (mpscnn.OptimizerStochasticGradientDescent(0.05, momentum_scale=0.9),
                     lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
        "Adam": (mpscnn.OptimizerAdam(0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
    }[name]  # fmt: skip
    source = OnDevice(ours)
    model = Model(source)
    model.twin.optimizer = theirs([model.twin.weight, model.twin.bias])
    for step in range(4):
        model.step()
        assert len(source.given) == step + 1
        model.twin.near(source.values.values.weights, source.values.values.biases)
    commands, gradient, current = source.given[-1]
    assert commands.status == "completed"
    assert repr(gradient) == "<mpscnn.GradientState of Convolution>"
    assert gradient.encodes == 1
    assert current.weights.shape == (6, 3, 3, 4)
    # Other graphs read the source.
    assert model.conv.weights.is_trained is False
    source.weights, source.bias = source.values.values.weights.copy(), source.values.values.biases.copy()
    model.inference.reload_from_data_sources()
    np.testing.assert_allclose(model.inference(X), mpscnn.Convolution(source, padding=0)(X), atol=1e-5)


def test_on_the_cpu() -> None:
    source = OnCpu()
    model = Model(source, "cpu")
    for step in range(3):
        model.step()
        assert len(source.given) == step + 1
        model.twin.near(source.weights, source.bias)
    model.inference.reload_from_data_sources()
    np.testing.assert_allclose(model.inference(X), mpscnn.Convolution(source, padding=0)(X), atol=1e-5)
    assert source.calls.count("load") == source.calls.count("purge")


@pytest.mark.parametrize(("kind", "style"), [(OnDevice, "cpu"), (OnCpu, "gpu"), (OnDevice, "none"), (OnCpu, "none")])
def test_style_without_its_method(kind: Any, style: str) -> None:
    source = kind()
    model = Model(source, style, export=True)
    model.graph({"x": X, "y": Y})
    assert source.given == []


def test_temporary_and_exported_states() -> None:
    """The CPU reads the gradients of an exported state; others end with the update."""
    for export in (False, True):
        source = OnDevice()
        model = Model(source, export=export)
        before = source.weights.copy()
        with mpscnn.CommandBuffer() as commands:
            given = {"x": mpscnn.Image.from_array(X), "y": mpscnn.Image.from_array(Y)}
            _, _, states = model.graph.encode(commands, given)
            state = source.given[0][1]
            text = "has not completed" if export else "is in temporary memory of a graph; export_from_graph"
            with pytest.raises(RuntimeError, match=text):
                _ = state.grad_weight
            if not export:
                with pytest.raises(RuntimeError, match="gradient is temporary, of an update\\(\\) that has returned"):
                    source.optimizer.encode(commands, state, source.values)
            with pytest.raises(AttributeError, match="the state of Convolution has no grad_gamma"):
                _ = state.grad_gamma
            kernel = mpscnn.Convolution(descriptor_source())
            x = mpscnn.Image.from_array(X)
            y = kernel.encode(commands, x)
            with pytest.raises(ValueError, match="state is that of another Convolution"):
                kernel.gradient.encode(commands, y, x, state)
            with pytest.raises(ValueError, match="with_state is the state of another Convolution"):
                kernel.encode(commands, x, with_state=state)
        assert len(states) == export
        if export:
            np.testing.assert_allclose(source.values.values.weights, before - RATE * state.grad_weight, atol=1e-6)
            np.testing.assert_array_equal(state.grad_bias, states[0]["grad_bias"].numpy("float32"))


def descriptor_source() -> Source:
    return Source(descriptor(), normal(6, 3, 3, 4))


# ------------------------------------------------------------------------------------------------------------- errors


class Two:
    """A layer with an optimizer before one with a data source."""

    def __init__(self, source: Any, style: str = "gpu") -> None:
        self.source = source
        self.first = nodes.ConvolutionNode(
            nodes.ImageNode("x"),
            normal(4, 4, 1, 1, seed=8),
            optimizer=mpscnn.OptimizerStochasticGradientDescent(0.01),
        )
        self.last = nodes.ConvolutionNode(self.first, source, padding=0)
        self.last.training_style = style
        loss = nodes.ForwardLossNode(self.last, nodes.ImageNode("y"), LOSS)
        self.graph = mpscnn.MPSNNGraph(
            *nodes.InitialGradientNode(loss).training_graph(), results_are_needed=False, format="float32"
        )
        self.inference = mpscnn.MPSNNGraph(self.last, format="float32")

    def step(self) -> Any:
        return self.graph({"x": X, "y": Y})


def returned(value: Any) -> Any:
    class Wrong(Learner):
        def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
            return value() if callable(value) else value

    return Wrong()


def raised(error: BaseException) -> Any:
    class Failing(Learner):
        def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
            raise error

    return Failing()


State = mpscnn.ConvolutionWeightsAndBiasesState
ROWS: list[tuple[Any, type[BaseException], str]] = [
    (lambda: raised(KeyError("mine")), KeyError, "mine"),
    (lambda: raised(KeyboardInterrupt()), KeyboardInterrupt, ""),
    (lambda: returned(3), TypeError, "data source: update() returned 3, which is not a ConvolutionWeightsAndBiases"),
    (lambda: returned(lambda: State([1.0] * 215, [0.0] * 6)), ValueError,
     "data source: weights of the state has 860 bytes; the kernel needs 864 (OHWI (6, 3, 3, 4), float32)."),
    (lambda: returned(lambda: State([1.0] * 216, [0.0] * 5)), ValueError, "biases of the state has 20 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "kind", "text"), ROWS, ids=[f"{kind.__name__}-{i}" for i, (_, kind, _) in enumerate(ROWS)]
)
def test_errors_of_update(make: Any, kind: type[BaseException], text: str) -> None:
    """The call raises them; the other layer has its step."""
    model = Two(make())
    with pytest.raises(kind) as caught:
        model.step()
    assert text in str(caught.value)
    assert model.first.weights.is_trained
    assert np.abs(model.first.weights.weight).max() > 0.1
    with mpscnn.CommandBuffer() as commands:
        images = [mpscnn.Image.from_array(one) for one in (X, Y)]
        with pytest.raises(kind):
            model.graph.encode(commands, *images)
    assert np.abs(model.first.weights.weight).max() > 0.1


def test_errors_on_the_cpu() -> None:
    class Failing(Learner):
        def update_on_cpu(self, gradient_state: Any, source_state: Any) -> Any:
            if len(self.given) == 1:
                self.descriptor = mpscnn.ConvolutionDescriptor(3, in_channels=4, out_channels=8)
                self.weights, self.bias = normal(8, 3, 3, 4), None
            if len(self.given) == 2:
                self.__init__()  # type: ignore[misc]
                return 7
            self.given.append((gradient_state, source_state))
            if len(self.given) == 1:
                raise OSError("disk")
            return True

    model = Two(Failing(), "cpu")
    with pytest.raises(OSError, match="disk"):
        model.step()
    with mpscnn.CommandBuffer() as commands:
        model.graph.encode(commands, *(mpscnn.Image.from_array(one) for one in (X, Y)))
    with pytest.raises(ValueError, match=r"asks for weights of shape \(8, 3, 3, 4\); those of the kernel have \(6, 3"):
        model.step()
    with pytest.raises(TypeError, match=r"update_on_cpu\(\) returned 7, which is not True, False or None"):
        model.step()


def test_optimizer_and_update() -> None:
    optimizer = mpscnn.OptimizerAdam()
    for kind, name in ((OnDevice, "update"), (OnCpu, "update_on_cpu")):
        text = f"ConvolutionNode: optimizer was given with a data source that has {name}(), which updates the weights."
        with pytest.raises(ValueError, match=re.escape(text)):
            nodes.ConvolutionNode(nodes.ImageNode(), kind(), optimizer=optimizer)


def test_keeps_weights() -> None:
    """update() returns None."""
    source = returned(None)
    model = Two(source)
    before = model.inference(X)
    for _ in range(2):
        model.step()
    np.testing.assert_allclose(model.first.weights.weight.shape, (4, 1, 1, 4))
    model.first.weights.weight[:] = 0
    model.inference.reload_from_data_sources()
    assert np.abs(model.inference(X) - before).max() > 1e-3  # the first layer's


def test_other_layers() -> None:
    """Transposed convolutions and fully connected layers."""

    class Counts(Source):
        def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
            self.calls.append("update")
            assert source_state.weights.shape == self.weights.shape
            assert not np.shares_memory(source_state.weights, self.weights)
            return State(2 * self.weights, 2 * self.bias)

    for kind, kernel, options in (
        (nodes.FullyConnectedNode, (7, 6), {}),
        (nodes.ConvolutionTransposeNode, (2, 2), {"padding": 0}),
    ):
        shape = mpscnn.ConvolutionDescriptor(kernel, in_channels=4, out_channels=6)
        source = Counts(shape, normal(6, *kernel, 4), normal(6))
        node: Any = kind(nodes.ImageNode("x"), source, **options)
        loss = nodes.ForwardLossNode(node, nodes.ImageNode("y"), LOSS)
        last = nodes.InitialGradientNode(loss).training_graph()
        y = mpscnn.MPSNNGraph(node, format="float32")(X)
        node.result_image.export_from_graph = True
        graph = mpscnn.MPSNNGraph(*last, results_are_needed=False, format="float32")
        first = graph({"x": X, "y": y})
        np.testing.assert_allclose(first, y, atol=1e-4)
        np.testing.assert_allclose(graph({"x": X, "y": y}), 2 * y, atol=1e-4)
        assert source.calls.count("update") == 2


@pytest.mark.parametrize(("kind", "style"), [(OnDevice, "gpu"), (OnCpu, "cpu")])
def test_several_threads(kind: Any, style: str) -> None:
    """Steps of one graph, and inference, by several threads: none waits for itself."""
    source = kind()
    model = Model(source, style)

    def step(i: int) -> None:
        if i % 2:
            model.graph.execute_async({"x": X, "y": Y}).result(60)
        else:
            model.graph({"x": X, "y": Y})
            model.inference(X)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(step, range(120)))
    assert len(source.given) == 120


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_graphs_that_share_weights(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two graphs train the same weights on two threads: each step counts, also if the first one commits late."""
    make = mpscnn.OptimizerStochasticGradientDescent if optimizer == "SGD" else mpscnn.OptimizerAdam
    first = nodes.ConvolutionNode(nodes.ImageNode("x"), np.zeros((1, 1, 1, 1), np.float32), optimizer=make(1.0))
    graphs = []
    for node in (first, nodes.ConvolutionNode(nodes.ImageNode("x"), first.weights)):
        loss = nodes.LossNode(node, mpscnn.Loss("mean_absolute_error", reduction="sum"))
        graphs.append(mpscnn.MPSNNGraph(*loss.training_graph(), results_are_needed=False, format="float32"))
    commit, is_encoded, commits = mpscnn.CommandBuffer.commit, threading.Event(), []

    def late(commands: mpscnn.CommandBuffer) -> None:
        if not is_encoded.is_set():
            is_encoded.set()
            time.sleep(0.3)
        commits.append(commands)
        commit(commands)

    monkeypatch.setattr(mpscnn.CommandBuffer, "commit", late)

    def train(graph: mpscnn.MPSNNGraph) -> None:
        if graph is not graphs[0]:
            is_encoded.wait(60)
        for step in range(3):
            x = np.ones((1, 1, 1, 1), np.float32)
            labels = mpscnn.LossLabels(np.full((1, 1, 1, 1), 1000, np.float32))  # far away: all gradients are -1
            if step == 1:
                graph.execute_async(x, labels=labels).result(60)
            else:
                graph(x, labels=labels)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, graphs))
    assert len(commits) == 6
    np.testing.assert_allclose(first.weights.weight, 6, rtol=1e-5)


def test_freed() -> None:
    """A graph frees its data sources and their states."""
    source = OnDevice()
    model = Model(source)
    model.step()
    gone = weakref.ref(source)
    source.given.clear()
    del source, model
    gc.collect()
    assert gone() is None
