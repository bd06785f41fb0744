# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers by the formulas of MPSRNNLayer.h, for arrays of NumPy and, with gradients, tensors of PyTorch.

Weights, biases and activation functions are named as Apple's data sources; weights are (O, kH, kW, I).
"""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from . import MPSCNNNeuron as neurons  # noqa: N813
from .MPSCNNConvolution import convolution

Neuron = tuple[str, Any, float, float]
"""Name and parameters; of a PReLU the first one is an array."""
NONE: Neuron = ("none", 0, 0, 0)
GATES = {"lstm": ("inputGate", "forgetGate", "outputGate", "cellGate")}
GATES["gru"] = ("inputGate", "recurrentGate", "outputGate")

TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "none": lambda x, a, b, c: x,
    "relu": lambda x, a, b, c: torch.where(x >= 0, x, a * x),
    "linear": lambda x, a, b, c: a * x + b,
    "sigmoid": lambda x, a, b, c: torch.sigmoid(x),
    "hard_sigmoid": lambda x, a, b, c: torch.clamp(a * x + b, 0, 1),
    "tanh": lambda x, a, b, c: a * torch.tanh(b * x),
    "softsign": lambda x, a, b, c: x / (1 + torch.abs(x)),
    "prelu": lambda x, a, b, c: torch.where(x >= 0, x, torch.from_numpy(a.astype("f8")) * x),
}


@dataclass
class Layer:
    kind: str  # single, lstm, gru
    inputs: int
    outputs: int
    weights: dict[str, Any] = field(default_factory=dict)
    biases: dict[str, Any] = field(default_factory=dict)
    neurons: dict[str, Neuron] = field(default_factory=dict)
    properties: dict[str, float] = field(default_factory=dict)
    cell_neuron: Neuron = ("tanh", 1, 1, 1)

    def option(self, name: str, default: float = 0) -> float:
        return self.properties.get(name, default)


def activated(neuron: Neuron, x: Any) -> Any:
    name, *parameters = neuron
    return TORCH[name](x, *parameters) if isinstance(x, torch.Tensor) else neurons.neuron(name, x, *parameters)


def linear(x: Any, weight: Any) -> Any:
    """Multiply by a matrix, or convolve images."""
    if x.ndim == 4:
        return convolution(x, weight, None, size=x.shape[1:3], offset=(0, 0))
    return x @ weight.reshape(weight.shape[0], -1).T


def step(layer: Layer, x: Any, h0: Any, c0: Any) -> tuple[Any, Any]:
    """Return h1 and c1."""

    def term(name: str, factor: Any) -> Any:
        weight = layer.weights.get(name)
        if weight is None:
            return 0
        if name.endswith("MemoryWeights") and layer.option("memoryWeightsAreDiagonal"):
            return weight.reshape(-1) * factor
        return linear(factor, weight)

    def entry(name: str) -> Any:
        """The sum of what does not depend on the recurrent input."""
        product = x if layer.option("useLayerInputUnitTransformMode") else term(name, x)
        return h0 * 0 + product + layer.biases.get(name, 0)

    def gate(name: str, rest: Any) -> Any:
        return activated(layer.neurons.get(name, NONE), entry(name) + rest)

    if layer.kind == "single":
        return gate("inputWeights", term("recurrentWeights", h0)), c0
    if layer.kind == "lstm":

        def lstm_gate(name: str, memory: Any) -> Any:
            rest = term(f"{name}RecurrentWeights", h0) + term(f"{name}MemoryWeights", memory)
            return gate(f"{name}InputWeights", rest)

        i, f, c = (lstm_gate(name, c0) for name in ("inputGate", "forgetGate", "cellGate"))
        c1 = f * c0 + i * c
        return lstm_gate("outputGate", c1) * activated(layer.cell_neuron, c1), c1
    z, r = (gate(f"{name}InputWeights", term(f"{name}RecurrentWeights", h0)) for name in ("inputGate", "recurrentGate"))
    rest = term("outputGateRecurrentWeights", r * h0) + term("outputGateInputGateWeights", z * h0)
    h = gate("outputGateInputWeights", rest)
    p = layer.option("gatePnormValue", 1)
    keep = (1 - z**p) ** (1 / p)
    return (keep * h0 + z * h if layer.option("flipOutputGates") else keep * h + z * h0), c0


def joined(first: Any, rest: Any) -> Any:
    return torch.cat([first, rest]) if isinstance(first, torch.Tensor) else np.concatenate([first, rest])


State = list[tuple[Any, Any]]
"""h and c of each layer."""


def zeros(layers: Sequence[Layer], x: Any) -> State:
    def each(layer: Layer) -> Any:
        shape = (*x.shape[:-1], layer.outputs)
        return torch.zeros(shape, dtype=x.dtype) if isinstance(x, torch.Tensor) else np.zeros(shape)

    return [(each(layer), each(layer)) for layer in layers]


def sequence(
    layers: Sequence[Layer], xs: Sequence[Any], state: State | None = None, backward: bool = False
) -> tuple[list[Any], list[State]]:
    """Return the outputs and the states after each step. A sequence (row) that has ended keeps its state."""
    longest = xs[0]
    states: list[State] = []
    now = zeros(layers, longest) if state is None else state
    outputs = []
    for x in reversed(xs) if backward else xs:
        rows = x.shape[0]
        value, after = x, []
        for layer, (h, c) in zip(layers, now, strict=True):
            value, c1 = step(layer, value, h[:rows], c[:rows])
            after.append((joined(value, h[rows:]), joined(c1, c[rows:])))
        now = after
        outputs.append(value)
        states.append(now)
    return (outputs[::-1], states[::-1]) if backward else (outputs, states)
