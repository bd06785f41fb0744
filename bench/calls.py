# SPDX-License-Identifier: Apache-2.0
"""The overhead of calls: ``python -m bench calls``.

A neuron on 8 x 8 x 4 numbers, a network of one layer, and encoding ResNet-50 again, in microseconds. "encode again"
appends the recorded commands of the same images; with a new image as its result, each kernel is encoded. Neither
computes anything. PyTorch's row is the same function of the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mpscnn

from . import networks
from .timing import Prepared, interleaved, interleaved_prepared

SHAPE = (1, 8, 8, 4)
NETWORK = "resnet50"


def _small(seconds: float) -> dict[str, float]:
    x = mpscnn.empty(SHAPE, np.float32)
    x[...] = np.random.default_rng(0).normal(size=SHAPE)
    out = mpscnn.empty(SHAPE, np.float32)
    neuron = mpscnn.NeuronReLU()
    graph = mpscnn.Graph()
    value = graph.add("NeuronReLU", graph.input("x", height=8, width=8, channels=4, layout="NHWC"))
    graph.output(value, "y", layout="NHWC")
    network = mpscnn.Network(graph)
    image = mpscnn.Image.from_array(x)

    def empty() -> None:
        commands = mpscnn.CommandBuffer()
        commands.commit()
        commands.wait()

    contestants: dict[str, Callable[[], object]] = {
        "neuron(x)": lambda: neuron(x),
        "neuron(x, out=y)": lambda: neuron(x, out=out),
        "network of one layer (x)": lambda: network(x),
        "network of one layer (x, out=y)": lambda: network(x, out=out),
        "image of an array": lambda: mpscnn.Image.from_array(x),
        "array of an image": lambda: np.asarray(image),
        "empty command buffer: make, commit, wait": empty,
    }
    try:
        import torch
    except ModuleNotFoundError:
        pass
    else:
        tensor = torch.from_numpy(np.ascontiguousarray(x))
        contestants["torch, relu(x)"] = lambda: torch.relu(tensor)
    return interleaved(contestants, seconds)


def _large(seconds: float) -> dict[str, float]:
    x = np.random.default_rng(0).standard_normal((1, *networks.SHAPE), np.float32)
    network = mpscnn.load(networks._module(NETWORK), input_shapes=x.shape)
    network.input_layout = "NHWC"
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    network(x)
    image = mpscnn.Image.from_array(x)
    commands = mpscnn.CommandBuffer()
    result = network.encode(commands, image)
    commands.commit()
    commands.wait()
    stages: dict[str, Prepared] = {
        "encode again, to a new image": (mpscnn.CommandBuffer, lambda commands: network.encode(commands, image)),
        "encode again": (mpscnn.CommandBuffer, lambda commands: network.encode(commands, image, out=result)),
    }
    found = interleaved_prepared(stages, seconds)
    found["call"] = interleaved({"call": lambda: network(x)}, seconds)["call"]
    return {f"{NETWORK}: {name}": value for name, value in found.items()}


def run(seconds: float = 1.0, case: str = "") -> list[dict[str, Any]]:
    """Return rows with seconds: median per call."""
    rows: dict[str, float] = {}
    for names, measure in (("neuron network image array command torch", _small), (NETWORK, _large)):
        if any(case in name or name in case for name in names.split()):
            rows.update(measure(seconds))
    return [{"case": name, "seconds": value} for name, value in rows.items()]
