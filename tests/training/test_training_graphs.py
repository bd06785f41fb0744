# SPDX-License-Identifier: Apache-2.0
"""Graphs in training: fused activations, reductions, layouts, and the graph's own names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_support import RATE, Theirs, arrays, assert_same_parameters, randomize, sgd

import mpscnn
from support import assert_close, random


class Convolutions(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        self.first, self.norm, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.activation(self.first(x))
        return self.activation(self.last(self.activation(self.norm(y)) + y))


def graph_of(module: Convolutions, activation: Any, **spec: Any) -> mpscnn.Graph:
    values = {name: value for name, value in arrays(module).items() if "tracked" not in name}
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3, **spec)
    first = graph.add(
        "Convolution",
        x,
        name="first",
        weight=values["first.weight"],
        bias=values["first.bias"],
        padding=1,
        activation=activation,
    )
    norm = graph.add(
        "BatchNormalization",
        first,
        name="norm",
        gamma=values["norm.weight"],
        beta=values["norm.bias"],
        mean=values["norm.running_mean"],
        variance=values["norm.running_var"],
        epsilon=1e-5,
        activation=activation,
    )
    both = graph.add("Add", norm, first)
    last = graph.add(
        "Convolution",
        both,
        name="last",
        weight=values["last.weight"],
        bias=values["last.bias"],
        padding=0,
        activation=activation,
    )
    graph.output(last, layout=spec["layout"])
    return graph


ACTIVATIONS: dict[str, Any] = {
    "name": ("relu", nn.ReLU()),
    "kernel": (lambda: mpscnn.NeuronReLU(a=0.1), nn.LeakyReLU(0.1)),
    "descriptor": (lambda: mpscnn.NeuronDescriptor("tanh", a=1.0, b=1.0), nn.Tanh()),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_inside(name: str) -> None:
    """MPS has no gradient for fused ones: training computes them separately, and the network fuses them again."""
    activation, theirs_of = ACTIVATIONS[name]
    module = randomize(Convolutions(theirs_of))
    assert isinstance(module, Convolutions)
    before, shape = arrays(module), (2, 3, 7, 5)
    graph = graph_of(module, activation() if callable(activation) else activation, height=7, width=5, layout="NCHW")
    trainer = mpscnn.Trainer(graph, loss="mean_squared_error", optimizer=sgd())
    theirs = Theirs(module, nn.functional.mse_loss)
    for seed in range(3):
        x, labels = random(shape, seed=seed), random((2, 2, 5, 3), seed=50 + seed)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) <= 1e-5 * expected
    assert_same_parameters(trainer.state_dict(), module, before)
    with torch.no_grad():
        assert_close(trainer.network()(x), module.eval()(theirs.tensor(x)).numpy(), 1e-4)


def test_layouts() -> None:
    """Images, labels and results have the graph's layouts."""
    module = randomize(Convolutions(nn.ReLU()))
    assert isinstance(module, Convolutions)
    losses, states = [], []
    for layout in ("NHWC", "NCHW"):
        graph = graph_of(module, "relu", height=7, width=5, layout=layout)
        trainer = mpscnn.Trainer(graph, loss="mean_squared_error", optimizer=sgd())
        x, labels = random((2, 7, 5, 3)), random((2, 5, 3, 2))
        if layout == "NCHW":
            x, labels = (np.ascontiguousarray(one.transpose(0, 3, 1, 2)) for one in (x, labels))
        losses.append([trainer.step(x, labels).loss for _ in range(3)])
        assert trainer.step(x, labels).output.shape == (2, 5, 3, 2)
        assert trainer.evaluate(x, labels)[1] is None
        states.append(trainer.state_dict())
    assert losses[0] == losses[1]
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name])


@pytest.mark.parametrize("kind", ["Mean", "Max"])
@pytest.mark.parametrize("order", [("Row", "Column"), ("Column", "Row"), ("Row",), ("Column",)], ids=str)
def test_reductions(kind: str, order: tuple[str, ...]) -> None:
    """Over rows, columns, or both: poolings with a window as large as the image."""
    weight, x = random((4, 3, 1, 1)), random((2, 5, 7, 3), seed=1)
    graph = mpscnn.Graph()
    value = graph.add("Convolution", graph.input("x", height=5, width=7, channels=3), weight=weight, name="conv")
    for axis in order:
        value = graph.add(f"Reduce{axis}{kind}", value)
    graph.output(value)
    trainer = mpscnn.Trainer(graph, loss="mean_squared_error", optimizer=sgd(momentum=0))
    weights = torch.tensor(weight, dtype=torch.float64, requires_grad=True)
    y = nn.functional.conv2d(torch.tensor(x, dtype=torch.float64).permute(0, 3, 1, 2), weights)
    axes = tuple({"Row": 3, "Column": 2}[axis] for axis in order)
    y = y.mean(axes, keepdim=True) if kind == "Mean" else y.amax(axes, keepdim=True)
    labels = random(tuple(y.permute(0, 2, 3, 1).shape), seed=2)
    loss = nn.functional.mse_loss(y.permute(0, 2, 3, 1), torch.tensor(labels, dtype=torch.float64))
    loss.backward()
    assert abs(trainer.step(x, labels).loss - loss.item()) <= 1e-6 * loss.item()
    assert weights.grad is not None
    assert_close(trainer.state_dict()["conv.weight"], (weights.detach() - RATE * weights.grad).numpy(), 1e-6)


def test_nodes_that_nothing_reads_are_left_out() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", height=5, width=7, channels=3)
    used = graph.add("Convolution", x, weight=random((4, 3, 1, 1)), name="used")
    graph.add("ReduceRowSum", used, name="unused")  # MPS has no gradient of it
    graph.output(used)
    trainer = mpscnn.Trainer(graph, loss="mean_squared_error")
    trainer.step(random((2, 5, 7, 3)), random((2, 5, 7, 4))).wait()
    assert list(trainer.state_dict()) == ["used.weight"]


def test_the_graph_is_not_changed() -> None:
    module = randomize(Convolutions(nn.ReLU()))
    assert isinstance(module, Convolutions)
    graph = graph_of(module, "relu", height=7, width=5, layout="NCHW")
    x = random((2, 3, 7, 5))
    before, names = mpscnn.Network(graph)(x), [node.name for node in graph]
    trainer = mpscnn.Trainer(graph, loss="mean_squared_error")
    for _ in range(2):
        trainer.step(x, random((2, 2, 5, 3)))
    trainer.wait()
    np.testing.assert_array_equal(mpscnn.Network(graph)(x), before)
    assert [node.name for node in graph] == names
    # Later changes of the graph or its arrays do not affect the trainer.
    expected = trainer.network()(x)
    for node in graph:
        for value in node.arguments.values():
            if isinstance(value, np.ndarray):
                value[...] = 0
    graph.nodes.clear()
    np.testing.assert_array_equal(trainer.network()(x), expected)
    trainer.step(x, random((2, 2, 5, 3))).wait()
