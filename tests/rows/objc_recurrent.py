# SPDX-License-Identifier: Apache-2.0
"""Rows of recurrent layers for tests/objc/rows_test.mm (row_recurrent.hh).

recurrent              matrix, image: inference; training
layerN                 class, inputs and outputs of a descriptor; layerN.property.NAME
layerN.SOURCE          weights of a data source (O, kH, kW, I); .bias; setting .neuron, or .slopes of a PReLU
x0, y0, back0, ...     sources and results of the steps; back: of the backward layers
stateN.hL, stateN.cL   recurrent outputs of layer L
splits                 steps at which a new encode begins
dy0, dx0, ...          training: gradients of results and sources; gradient.SOURCE: of weights
carriedN.h0, .c0       gradients of the recurrent input of step N
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from oracle.MPSCNNNeuron import NUMBERS
from oracle.MPSRNNLayer import GATES, Layer, Neuron, sequence, zeros

from .row_file import Row

CLASSES = {"single": "MPSRNNSingleGateDescriptor", "lstm": "MPSLSTMDescriptor", "gru": "MPSGRUDescriptor"}
SIGMOID: Neuron = ("sigmoid", 0, 0, 0)
TANH: Neuron = ("tanh", 1, 1, 0)
NEURONS = {"single": [TANH], "lstm": [SIGMOID, SIGMOID, SIGMOID, TANH], "gru": [SIGMOID, SIGMOID, TANH]}
ADD, CONCATENATE = 1, 2
ACCUMULATE = {"property.accumulateWeightGradients": 1}


def random(*shape: int, seed: int = 0, size: float = 1.0) -> Any:
    """Multiples of 1/256: exact in half precision."""
    values = np.random.default_rng([seed, *shape]).integers(-256, 257, shape) / 256 * size
    return (np.round(values * 256) / 256).astype(np.float32)


def names(kind: str, memory: bool) -> Iterator[tuple[str, str]]:
    """Yield each data source and its role."""
    if kind == "single":
        yield from (("inputWeights", "input"), ("recurrentWeights", "recurrent"))
        return
    for gate in GATES[kind]:
        yield f"{gate}InputWeights", "input"
        yield f"{gate}RecurrentWeights", "recurrent"
        if memory and kind == "lstm":
            yield f"{gate}MemoryWeights", "memory"
    if memory and kind == "gru":
        yield "outputGateInputGateWeights", "memory"


def make_layer(
    kind: str,
    inputs: int,
    outputs: int,
    *,
    memory: bool = False,
    seed: int = 0,
    kernel: tuple[int, int] = (1, 1),
    **properties: float,
) -> Layer:
    """Make a layer with all data sources and the usual activation functions."""
    layer = Layer(kind, inputs, outputs, properties=properties)
    diagonal = bool(properties.get("memoryWeightsAreDiagonal"))
    activations = iter(NEURONS[kind])
    for number, (name, role) in enumerate(names(kind, memory)):
        factors = {"input": inputs, "recurrent": outputs, "memory": 1 if diagonal else outputs}[role]
        extent = (1, 1) if role == "memory" and diagonal else kernel
        size = 2 / np.sqrt(factors * extent[0] * extent[1])
        layer.weights[name] = random(outputs, *extent, factors, seed=100 * seed + number, size=min(size, 1))
        if role == "input":
            layer.biases[name] = random(outputs, seed=100 * seed + number + 50, size=0.5)
            layer.neurons[name] = next(activations)
    return layer


def without(layer: Layer, *missing: str) -> Layer:
    for name in missing:
        del layer.weights[name]
        layer.biases.pop(name, None)
        layer.neurons.pop(name, None)
    return layer


def described(row: Row, layers: Sequence[Layer], backward: Sequence[bool] = (), half: bool = False) -> Row:
    for number, layer in enumerate(layers):
        prefix = f"layer{number}"
        row.settings[prefix] = f"{CLASSES[layer.kind]} {layer.inputs} {layer.outputs}"
        row.settings[f"{prefix}.property.useFloat32Weights"] = not half
        if backward and backward[number]:
            row.settings[f"{prefix}.property.layerSequenceDirection"] = 1
        for name, value in layer.properties.items():
            row.settings[f"{prefix}.property.{name}"] = value
        if layer.kind == "lstm":
            kind, *parameters = layer.cell_neuron
            row.settings[f"{prefix}.property.cellToOutputNeuronType"] = NUMBERS[kind]
            for letter, value in zip("ABC", parameters, strict=True):
                row.settings[f"{prefix}.property.cellToOutputNeuronParam{letter}"] = value
        for name, weight in layer.weights.items():
            row.arrays[f"{prefix}.{name}"] = weight.astype(np.float32)
            if not name.lower().endswith("inputweights"):  # these are ignored
                row.arrays[f"{prefix}.{name}.bias"] = np.full(layer.outputs, 9, np.float32)
                row.settings[f"{prefix}.{name}.neuron"] = f"{NUMBERS['linear']} 3 1 0"
        for name, bias in layer.biases.items():
            row.arrays[f"{prefix}.{name}.bias"] = bias.astype(np.float32)
        for name, (kind, *parameters) in layer.neurons.items():
            if kind == "prelu":
                row.arrays[f"{prefix}.{name}.slopes"] = parameters[0]
            else:
                row.settings[f"{prefix}.{name}.neuron"] = " ".join(map(str, (NUMBERS[kind], *parameters)))
    return row


def wide(layer: Layer) -> Layer:
    """Return the layer in float64."""
    weights, biases = (
        {name: value.astype(np.float64) for name, value in values.items()} for values in (layer.weights, layer.biases)
    )
    return Layer(
        layer.kind, layer.inputs, layer.outputs, weights, biases, layer.neurons, layer.properties, layer.cell_neuron
    )


def put(row: Row, name: str, values: Sequence[Any]) -> None:
    row.arrays |= {f"{name}{step}": value for step, value in enumerate(values)}


def put_state(row: Row, name: str, layers: Sequence[Layer], state: Any) -> None:
    for number, (layer, (h, c)) in enumerate(zip(layers, state, strict=True)):
        row.arrays[f"{name}.h{number}"] = h
        if layer.kind == "lstm":
            row.arrays[f"{name}.c{number}"] = c


def inferred(
    name: str, layers: Sequence[Layer], xs: Sequence[Any], *, splits: str = "", half: bool = False, **settings: Any
) -> Row:
    """One row of encodeSequence: results, and the states that it returns."""
    row = Row(name, {"recurrent": "matrix", "tolerance": 2e-5, "splits": splits} | settings)
    described(row, layers, half=half)
    put(row, "x", xs)
    ys, states = sequence([wide(layer) for layer in layers], [x.astype(np.float64) for x in xs])
    put(row, "y", ys)
    if settings.get("property.storeAllIntermediateStates"):
        stored = list(range(len(xs)))
    else:
        stored = [int(end) - 1 for end in splits.split()] + [len(xs) - 1]
    for number, step in enumerate(stored):
        put_state(row, f"state{number}", layers, states[step])
    return row


CELLS: list[tuple[str, dict[str, Any]]] = [
    ("single", {}),
    ("lstm", {}),
    ("lstm", {"memory": True}),
    ("lstm", {"memory": True, "memoryWeightsAreDiagonal": 1}),
    ("gru", {}),
    ("gru", {"memory": True}),
    ("gru", {"flipOutputGates": 1}),
    ("gru", {"memory": True, "flipOutputGates": 1, "gatePnormValue": 1.5}),
    ("gru", {"gatePnormValue": 2.5}),
]


def inference() -> Iterator[Row]:
    for kind, options in CELLS:
        layer = make_layer(kind, 5, 7, **options)
        name = f"{kind} {options}"
        xs = [random(3, 5, seed=10 + step) for step in range(4)]
        yield inferred(name, [layer], xs)
        yield inferred(f"{name}, two encodes", [layer], xs, splits="3")
        fewer = [random(rows, 5, seed=20 + rows) for rows in (4, 4, 2, 1)]
        yield inferred(f"{name}, sequences end", [layer], fewer, **{"property.storeAllIntermediateStates": 1})
        yield inferred(f"{name}, sequences end between encodes", [layer], fewer, splits="2")
    layers = [
        make_layer("gru", 4, 6),
        make_layer("lstm", 6, 3, memory=True, seed=1),
        make_layer("single", 3, 9, seed=2),
    ]
    xs = [random(2, 4, seed=30 + step) for step in range(3)]
    yield inferred("a stack", layers, xs, splits="1", **{"property.storeAllIntermediateStates": 1})
    yield inferred("temporary states", layers, xs, splits="1", **{"property.recurrentOutputIsTemporary": 1})
    yield inferred("no states", layers, xs, discards=1)
    yield inferred("byte offsets", layers, xs, offsets=1, splits="2")
    yield inferred("one step of one sequence", [make_layer("lstm", 1, 1)], [random(1, 1)])


def missing() -> Iterator[Row]:
    """Data sources that are nil, inputs without weights."""
    xs = [random(3, 6, seed=step) for step in range(3)]
    lstm = make_layer("lstm", 6, 6, memory=True)
    gone = ("inputGateInputWeights", "forgetGateMemoryWeights", "cellGateRecurrentWeights", "outputGateMemoryWeights")
    yield inferred("an LSTM with gaps", [without(lstm, *gone)], xs)
    gru = make_layer("gru", 6, 6, memory=True)
    yield inferred(
        "a minimal gated unit", [without(gru, "outputGateRecurrentWeights", "recurrentGateInputWeights")], xs
    )
    yield inferred("nothing but biases", [without(make_layer("single", 6, 6), "recurrentWeights")], xs)
    yield inferred("no data source", [Layer("lstm", 6, 4)], xs)
    for kind in CLASSES:
        layer = make_layer(kind, 6, 6, useLayerInputUnitTransformMode=1)
        yield inferred(f"{kind}, the input without weights", [layer], xs)
    nothing = Layer("gru", 6, 6, properties={"useLayerInputUnitTransformMode": 1})
    yield inferred("gates of the input alone", [nothing], [x / 4 for x in xs])


def precision() -> Iterator[Row]:
    layer = make_layer("lstm", 6, 5)
    fine = {name: weight + np.float32(1 / 3000) for name, weight in layer.weights.items()}
    xs = [random(3, 6, seed=step) for step in range(2)]
    layer.weights = fine
    yield inferred("float weights", [layer], xs)
    rounded = make_layer("lstm", 6, 5)
    rounded.weights = {name: weight.astype(np.float16).astype(np.float32) for name, weight in fine.items()}
    row = inferred("half weights", [rounded], xs, half=True)
    row.arrays |= {f"layer0.{name}": weight for name, weight in fine.items()}
    yield row
    halves = [x.astype(np.float16) for x in xs]
    yield inferred("half sources and results", [rounded], halves, tolerance=1e-3, **{"result.dtype": "float16"})
    neurons: dict[str, Neuron] = {"inputGateInputWeights": ("hard_sigmoid", 0.25, 0.5, 0)}
    neurons |= {"forgetGateInputWeights": ("softsign", 0, 0, 0), "outputGateInputWeights": ("relu", 0.25, 0, 0)}
    other = make_layer("lstm", 6, 5)
    other.neurons = neurons | {"cellGateInputWeights": ("tanh", 1.5, 0.5, 0)}
    other.cell_neuron = ("linear", 0.5, 0.25, 0)
    yield inferred("other activation functions", [other], xs)


def bidirectional() -> Iterator[Row]:
    layers = [make_layer("lstm", 4, 6), make_layer("gru", 4, 5, seed=1), make_layer("gru", 6, 3, seed=2)]
    layers.append(make_layer("single", 5, 3, seed=3))
    backward = [False, True, False, True]
    for name, rows in (("", (3, 3, 3, 3)), (", sequences end", (4, 3, 3, 1))):
        xs = [random(count, 4, seed=step) for step, count in enumerate(rows)]
        far = [x.astype(np.float64) for x in xs]
        ahead = sequence([wide(layers[0]), wide(layers[2])], far)[0]
        # A sequence that has ended begins later in the backward direction, from zeros.
        back = [np.zeros((count, 3)) for count in rows]
        for line in range(rows[0]):
            own = [x[line : line + 1] for x in far if x.shape[0] > line]
            for step, y in enumerate(sequence([wide(layers[1]), wide(layers[3])], own, backward=True)[0]):
                back[step][line] = y
        for mode, combined in (
            (0, ahead),
            (ADD, [a + b for a, b in zip(ahead, back, strict=True)]),
            (CONCATENATE, [np.concatenate([a, b], 1) for a, b in zip(ahead, back, strict=True)]),
        ):
            row = Row(f"bidirectional, mode {mode}{name}", {"recurrent": "matrix", "tolerance": 2e-5})
            row.settings |= {"bidirectional": 1, "property.bidirectionalCombineMode": mode}
            described(row, layers, backward)
            put(row, "x", xs)
            put(row, "y", combined)
            if mode == 0:
                put(row, "back", back)
            yield row


def images() -> Iterator[Row]:
    """Convolutions, the peepholes too; weights are halves."""
    for kind, options in CELLS:
        for kernel in ((1, 1), (3, 2)):
            layer = make_layer(kind, 5, 7, kernel=kernel, **options)
            xs = [random(1, 4, 6, 5, seed=10 + step) for step in range(3)]
            name = f"images, {kind} {options}, {kernel}"
            yield inferred(name, [layer], xs, splits="2", recurrent="image")
    layers = [make_layer("gru", 3, 6, kernel=(2, 3)), make_layer("lstm", 6, 5, seed=1, memory=True)]
    layers[1].weights["forgetGateInputWeights"] = random(5, 5, 4, 6, seed=90, size=0.25)
    xs = [random(2, 3, 5, 3, seed=20 + step) for step in range(3)]
    options = {"recurrent": "image", "property.storeAllIntermediateStates": 1}
    yield inferred("images, a stack with kernels of several sizes", layers, xs, **options)
    halves = [x.astype(np.float16) for x in xs]
    yield inferred("images of halves", layers, halves, tolerance=1e-3, **options, **{"result.dtype": "float16"})

    both = [make_layer("lstm", 3, 4, kernel=(3, 3)), make_layer("gru", 3, 4, seed=1)]
    far = [x.astype(np.float64) for x in xs]
    ahead, back = sequence([wide(both[0])], far)[0], sequence([wide(both[1])], far, backward=True)[0]
    for mode, combined in (
        (0, ahead),
        (ADD, [a + b for a, b in zip(ahead, back, strict=True)]),
        (CONCATENATE, [np.concatenate([a, b], -1) for a, b in zip(ahead, back, strict=True)]),
    ):
        row = Row(f"images, bidirectional, mode {mode}", {"recurrent": "image", "tolerance": 2e-5, "bidirectional": 1})
        row.settings["property.bidirectionalCombineMode"] = mode
        described(row, both, [False, True])
        put(row, "x", xs)
        put(row, "y", combined)
        if mode == 0:
            put(row, "back", back)
        yield row


# ------------------------------------------------------------------------------------------------------ training


def trained(
    name: str,
    layer: Layer,
    xs: Sequence[Any],
    *,
    splits: str = "",
    half: bool = False,
    passes: int = 1,
    **settings: Any,
) -> Row:
    """Gradients by PyTorch, in float64."""
    row = Row(name, {"recurrent": "training", "tolerance": 5e-5, "splits": splits, "passes": passes} | settings)
    described(row, [layer], half=half)
    far = wide(layer)
    leaves = {name: torch.from_numpy(value).requires_grad_() for name, value in far.weights.items()}
    biases = {name: torch.from_numpy(value).requires_grad_() for name, value in far.biases.items()}
    far.weights, far.biases = leaves, biases
    inputs = [torch.from_numpy(x.astype(np.float64)).requires_grad_() for x in xs]
    first = [tuple(part.requires_grad_() for part in zeros([far], inputs[0])[0])]
    ys, after = sequence([far], inputs, first)
    states = [first, *after]
    for state in states:
        for part in state[0]:
            part.retain_grad()
    dys = [random(*y.shape, seed=77 + step) for step, y in enumerate(ys)]
    loss = sum((y * torch.from_numpy(dy.astype(np.float64))).sum() for y, dy in zip(ys, dys, strict=True))
    loss.backward()
    put(row, "x", xs)
    put(row, "dy", dys)
    put(row, "y", [y.detach().numpy() for y in ys])
    put(row, "dx", [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in inputs])
    if not settings.get("short_forms"):
        carried = range(len(xs)) if settings.get("property.storeAllIntermediateStates") else range(1)
        for step in carried:
            parts = [torch.zeros_like(part) if part.grad is None else part.grad for part in states[step][0]]
            put_state(row, f"carried{step}", [layer], [[part.numpy() for part in parts]])
    accumulated = passes if settings.get("property.accumulateWeightGradients") else 1
    for name, leaf in leaves.items():
        if layer.option("useLayerInputUnitTransformMode") and name.endswith("nputWeights"):
            continue
        diagonal = name.endswith("MemoryWeights") and layer.option("memoryWeightsAreDiagonal")
        gradient = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        row.arrays[f"gradient.{name}"] = accumulated * gradient.reshape(layer.outputs, 1 if diagonal else -1)
    for name, leaf in biases.items():
        row.arrays[f"gradient.{name}.bias"] = accumulated * leaf.grad.numpy().reshape(-1, 1)
    return row


def training() -> Iterator[Row]:
    for kind, options in CELLS:
        layer = make_layer(kind, 5, 7, **options)
        name = f"{kind} {options}, gradients"
        xs = [random(3, 5, seed=10 + step) for step in range(4)]
        yield trained(name, layer, xs)
        yield trained(f"{name}, short forms", layer, xs, short_forms=1)
        fewer = [random(rows, 5, seed=20 + rows) for rows in (4, 4, 2, 1)]
        yield trained(f"{name}, sequences end", layer, fewer, **{"property.storeAllIntermediateStates": 1})
        yield trained(f"{name}, two encodes", layer, fewer, splits="2", **ACCUMULATE)
        yield trained(f"{name}, two passes", layer, xs, passes=2, **ACCUMULATE)


def training_options() -> Iterator[Row]:
    xs = [random(4, 6, seed=step) for step in range(3)]
    lstm = make_layer("lstm", 6, 6, memory=True)
    gone = ("inputGateInputWeights", "forgetGateMemoryWeights", "cellGateRecurrentWeights", "outputGateMemoryWeights")
    yield trained("gradients of an LSTM with gaps", without(lstm, *gone), xs)
    gru = without(make_layer("gru", 6, 6, memory=True), "outputGateRecurrentWeights", "recurrentGateInputWeights")
    yield trained("gradients of a minimal gated unit", gru, xs)
    gru = make_layer("gru", 6, 6, flipOutputGates=1)
    gone = ("inputGateRecurrentWeights", "recurrentGateRecurrentWeights")
    yield trained("gradients of gates without recurrent weights", without(gru, *gone), xs)
    yield trained("gradients without recurrent weights", without(make_layer("single", 6, 4), "recurrentWeights"), xs)
    yield trained("gradients without input weights", without(make_layer("single", 6, 4), "inputWeights"), xs)
    for kind in CLASSES:
        layer = make_layer(kind, 6, 6, useLayerInputUnitTransformMode=1)
        yield trained(f"gradients of {kind}, the input without weights", layer, xs)
    temporary = {"property.trainingStateIsTemporary": 1, "property.recurrentOutputIsTemporary": 1}
    for kind in CLASSES:
        layer = make_layer(kind, 6, 4, memory=kind != "single")
        yield trained(f"gradients of {kind}, temporary states", layer, xs, splits="1", **temporary, **ACCUMULATE)
    yield trained("gradients at byte offsets", make_layer("gru", 6, 4), xs, offsets=1, splits="2", **ACCUMULATE)
    other = make_layer("lstm", 6, 5)
    other.neurons = {"inputGateInputWeights": ("hard_sigmoid", 0.25, 0.5, 0)}
    other.neurons |= {"forgetGateInputWeights": ("softsign", 0, 0, 0), "outputGateInputWeights": ("relu", 0.25, 0, 0)}
    other.neurons["cellGateInputWeights"] = ("tanh", 1.5, 0.5, 0)
    other.cell_neuron = ("linear", 0.5, 0.25, 0)
    yield trained("gradients of other activation functions", other, xs)

    for kind in ("single", "lstm"):
        layer = make_layer(kind, 6, 5)
        for number, name in enumerate(layer.neurons):
            layer.neurons[name] = ("prelu", random(5, seed=number), 0, 0)
        yield trained(f"gradients of {kind}, one slope per channel", layer, xs)

    halves = make_layer("lstm", 6, 5, memory=True)  # its values are exact in half precision
    yield trained("gradients with half weights", halves, xs, half=True)
    settings = ACCUMULATE | {"gradient.dtype": "float16", "result.dtype": "float16"}
    narrow = [x.astype(np.float16) for x in xs]
    yield trained("half gradients", halves, narrow, passes=2, tolerance=3e-3, **settings)


def large() -> Iterator[Row]:
    """Sizes of real networks: 512 units, 64 steps; sequences of different lengths."""
    rows = [8] * 40 + [5] * 23 + [1]
    for kind, options in (("lstm", {}), ("gru", {}), ("lstm", {"memory": True, "memoryWeightsAreDiagonal": 1})):
        layer = make_layer(kind, 260, 512, **options)
        for weights in (layer.weights, layer.biases):
            for name in weights:
                weights[name] /= 2
        xs = [random(count, 260, seed=step) for step, count in enumerate(rows)]
        yield inferred(f"large, {kind} {options}", [layer], xs, splits="30")
        if not options:
            yield trained(f"large, {kind}, gradients", layer, xs, splits="30", tolerance=2e-4, **ACCUMULATE)


PARTS = (inference, missing, precision, bidirectional, images, training, training_options, large)
