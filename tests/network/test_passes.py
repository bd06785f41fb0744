# SPDX-License-Identifier: Apache-2.0
"""Passes: nodes that are folded and fused, nodes that are not, and unchanged results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from interpreter import interpret
from mpscnn import NeuronDescriptor, passes
from mpscnn.graph import Value
from network.graphs import Draw, batch_norm

X = np.random.default_rng(0).standard_normal((2, 9, 8, 8)).astype(np.float32)


def start() -> tuple[mpscnn.Graph, Value, Draw]:
    graph = mpscnn.Graph()
    return graph, graph.input("x", channels=8), Draw(0)


def optimized(graph: mpscnn.Graph, relative: float = 2e-6) -> list[str]:
    """Return the kernels after all passes; check that results change by rounding only."""
    after = passes.optimize(graph)
    for name, expected in interpret(graph, x=X).items():
        actual = interpret(after, x=X)[name]
        assert float(np.abs(actual - expected).max()) <= relative * float(np.abs(expected).max())
        assert actual.shape == expected.shape
    return [node.kernel for node in after]


CONVOLUTIONS: dict[str, tuple[str, Any]] = {
    "OIHW": ("Convolution", lambda d: {"weight": d.weight(12, 8, 3, 2)}),
    "OHWI": ("Convolution", lambda d: {"weight": d.weight(12, 3, 2, 8), "layout": "OHWI"}),
    "HWIO": ("Convolution", lambda d: {"weight": d.weight(3, 2, 8, 12), "layout": "HWIO", "bias": d.values(12)}),
    "groups": ("Convolution", lambda d: {"weight": d.weight(16, 4, 3, 3), "groups": 2}),
    "depth-wise": ("Convolution", lambda d: {"weight": d.weight(8, 1, 3, 3), "groups": 8}),
    "C1HW": ("Convolution", lambda d: {"weight": d.weight(8, 1, 3, 3), "layout": "C1HW"}),
    "transposed": ("ConvolutionTranspose", lambda d: {"weight": d.weight(8, 12, 3, 2), "stride": 2}),
    "transposed groups": ("ConvolutionTranspose", lambda d: {"weight": d.weight(8, 4, 3, 3), "groups": 2}),
    "linear": (
        "FullyConnected",
        lambda d: {"weight": d.weight(12, 8 * 9 * 8), "feature_map": (8, 9, 8), "bias": d.values(12)},
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_batch_normalization_goes_into_the_weights(name: str) -> None:
    graph, x, draw = start()
    kernel, arguments = CONVOLUTIONS[name]
    y = graph.add(kernel, x, **arguments(draw))
    channels = {"groups": 16, "depth-wise": 8, "C1HW": 8, "transposed groups": 8}.get(name, 12)
    graph.output(graph.add("NeuronReLU", batch_norm(graph, y, channels, draw)))
    assert optimized(graph, 1e-5) == [kernel]


def test_the_epsilon_of_arrays_is_the_kernels() -> None:
    graph, x, draw = start()
    conv = graph.add("Convolution", x, weight=draw.weight(12, 8, 1, 1))
    given = {"gamma": draw.positive(12), "mean": draw.values(12), "variance": np.full(12, 1e-3, np.float32)}
    graph.output(graph.add("BatchNormalization", conv, **given))
    assert optimized(graph) == ["Convolution"]


def test_names_and_origins_stay() -> None:
    graph, x, draw = start()
    y = graph.add("Convolution", x, weight=draw.weight(8, 8, 1, 1), name="conv", origin="conv (Conv2d)")
    y = graph.add("NeuronReLU", y, name="relu", origin="relu (ReLU)")
    graph.output(y, "y")
    (node,) = passes.optimize(graph)
    assert (node.name, node.origin) == ("relu", "conv (Conv2d), relu (ReLU)")


def keep_convolution_output(graph: mpscnn.Graph, conv: Value, _: Draw) -> None:
    graph.output(conv, "conv")


def keep_second_reader(graph: mpscnn.Graph, conv: Value, _: Draw) -> None:
    graph.output(graph.add("NeuronTanH", conv), "other")


@pytest.mark.parametrize("keep", [keep_convolution_output, keep_second_reader])
def test_what_others_see_is_left(keep: Any) -> None:
    graph, x, draw = start()
    conv = graph.add("Convolution", x, weight=draw.weight(12, 8, 1, 1))
    graph.output(batch_norm(graph, conv, 12, draw), "y")
    keep(graph, conv, draw)
    assert "BatchNormalization" in optimized(graph)


@pytest.mark.parametrize(
    "arguments",
    [
        {"activation": "relu"},
        {"kernel_dtype": "float16"},
        {"sub_pixel_scale_factor": 2},
        {"source_feature_channel_max_count": 8, "offset": (1, 1)},
    ],
)
def test_kernels_whose_weights_cannot_be_scaled_are_left(arguments: dict[str, Any]) -> None:
    graph, x, draw = start()
    conv = graph.add("Convolution", x, weight=draw.weight(12, 8, 1, 1), **arguments)
    graph.output(batch_norm(graph, conv, 3 if "sub_pixel_scale_factor" in arguments else 12, draw))
    assert optimized(graph) == ["Convolution", "BatchNormalization"]


def test_half_weights_are_left() -> None:
    """Folding would round them a second time."""
    graph, x, draw = start()
    conv = graph.add("Convolution", x, weight=draw.weight(12, 8, 1, 1).astype(np.float16))
    graph.output(batch_norm(graph, conv, 12, draw))
    assert optimized(graph) == ["Convolution", "BatchNormalization"]


NEURONS: list[tuple[str, dict[str, Any]]] = [
    (name, {"a": np.linspace(0.1, 0.8, 8, dtype=np.float32)} if name == "NeuronPReLU" else {})
    for name in mpscnn.KERNELS
    if name.startswith("Neuron") and name not in ("Neuron", "NeuronGradient", "NeuronLogarithm", "NeuronPower")
]
NEURONS += [
    ("NeuronReLU", {"a": 0.2}),
    ("NeuronLinear", {"a": 2.0, "b": 0.5}),
    ("NeuronReLUN", {"a": 0.1, "b": 0.5}),
    ("NeuronPower", {"a": 0.5, "b": 1.0, "c": 2.0}),
    ("Neuron", {"type": "gelu"}),
    ("Neuron", {"type": "elu", "a": 0.5}),
    ("Neuron", {"type": "prelu", "data": np.linspace(0.1, 0.8, 8, dtype=np.float32)}),
]


@pytest.mark.parametrize(("name", "arguments"), NEURONS)
def test_activations_go_into_the_kernel_before(name: str, arguments: dict[str, Any]) -> None:
    graph, x, draw = start()
    y = graph.add("Convolution", x, weight=draw.weight(8, 8, 1, 1) / 4)
    graph.output(graph.add(name, y, **arguments))
    assert optimized(graph, 4e-6) == ["Convolution"]
    graph, x, draw = start()
    graph.output(graph.add(name, batch_norm(graph, x, 8, draw), **arguments))
    assert optimized(graph, 4e-6) == ["BatchNormalization"]


def test_slopes_before_pixels_are_spread_are_left() -> None:
    graph, x, draw = start()
    y = graph.add("Convolution", x, weight=draw.weight(8, 8, 1, 1), sub_pixel_scale_factor=2)
    graph.output(graph.add("NeuronPReLU", y, a=np.asarray([0.1, 0.7], np.float32)))
    assert optimized(graph) == ["Convolution", "NeuronPReLU"]


def test_only_one_activation_goes_in() -> None:
    graph, x, draw = start()
    y = graph.add("Convolution", x, weight=draw.weight(8, 8, 1, 1))
    graph.output(graph.add("NeuronTanH", graph.add("NeuronReLU", y)))
    assert optimized(graph) == ["Convolution", "NeuronTanH"]


@pytest.mark.parametrize("kernel", ["Add", "Subtract", "Multiply"])
@pytest.mark.parametrize(
    ("neuron", "arguments", "fused"),
    [
        ("NeuronReLU", {}, True),
        ("NeuronReLU", {"a": 0.1}, False),
        ("NeuronReLUN", {"a": 0.0, "b": 0.5}, True),
        ("NeuronReLUN", {"a": 0.5, "b": 0.5}, False),
        ("NeuronTanH", {}, False),
    ],
)
def test_bounds_of_arithmetic(kernel: str, neuron: str, arguments: dict[str, Any], fused: bool) -> None:
    graph, x, _ = start()
    total = graph.add(kernel, x, graph.add("NeuronSigmoid", x))
    graph.output(graph.add(neuron, total, **arguments))
    assert optimized(graph) == ["NeuronSigmoid", kernel] + ([] if fused else [neuron])


def test_bounds_that_are_there_are_kept() -> None:
    graph, x, _ = start()
    total = graph.add("Add", x, x, maximum_value=0.5)
    graph.output(graph.add("NeuronReLU", total))
    assert optimized(graph) == ["Add", "NeuronReLU"]


@pytest.mark.parametrize(
    ("pad", "conv", "folded"),
    [
        ({"padding": ((1, 2), (0, 3))}, {}, True),
        ({"padding": 1}, {"padding": (1, 0), "stride": 2}, True),
        ({"padding": 1}, {"padding": ((1, 0), (0, 2))}, True),
        ({"padding": 1, "edge_mode": "zero"}, {}, True),
        ({"padding": 1, "edge_mode": "mirror"}, {}, False),
        ({"padding": 1, "value": 0.5}, {}, False),
        ({"padding": 1, "channels_after": 4}, {}, False),
        ({"padding": 1}, {"padding": "same"}, False),
    ],
)
def test_zeros_around_a_convolution(pad: dict[str, Any], conv: dict[str, Any], folded: bool) -> None:
    graph, x, draw = start()
    channels = 8 + pad.get("channels_after", 0)
    graph.output(graph.add("Convolution", graph.add("Pad", x, **pad), weight=draw.weight(4, channels, 3, 2), **conv))
    assert optimized(graph) == (["Convolution"] if folded else ["Pad", "Convolution"])


def test_zeros_around_a_maximum_are_left() -> None:
    graph, x, _ = start()
    graph.output(graph.add("PoolingMax", graph.add("Pad", x, padding=1), kernel_size=3))
    assert optimized(graph) == ["Pad", "PoolingMax"]


def shuffle(channels: int, order: list[int] | None = None) -> NDArray[np.float32]:
    """Return weights that only order channels."""
    return np.eye(channels, dtype=np.float32)[order or range(channels)][:, :, None, None]


@pytest.mark.parametrize(
    ("conv", "after", "folded"),
    [
        ({}, {}, True),
        ({"bias": np.linspace(-1, 1, 8, dtype=np.float32)}, {}, True),
        ({"activation": NeuronDescriptor("relu", 0.1)}, {}, True),
        ({"activation": NeuronDescriptor("prelu", data=[0.1 * i for i in range(8)])}, {}, False),
        ({"sub_pixel_scale_factor": 1, "stride": 2, "padding": 1}, {}, True),
        ({"layout": "HWIO"}, {}, True),
        ({"layout": "OHWI"}, {}, True),
        ({"groups": 2}, {}, False),
        ({}, {"bias": np.ones(8, np.float32)}, False),
        ({}, {"weight": 2 * shuffle(8)}, False),
        ({}, {"weight": shuffle(8, [0, 0, 1, 2, 3, 4, 5, 6])}, False),
        ({}, {"stride": 2}, False),
    ],
)
def test_pixel_shuffles_go_into_the_convolution_before(
    conv: dict[str, Any], after: dict[str, Any], folded: bool
) -> None:
    graph, x, draw = start()
    shape = {"OIHW": (8, 8 // conv.get("groups", 1), 3, 2), "OHWI": (8, 3, 2, 8), "HWIO": (3, 2, 8, 8)}
    y = graph.add("Convolution", x, weight=draw.weight(*shape[conv.get("layout", "OIHW")]), **conv)
    order = {"weight": shuffle(8, [3, 1, 0, 2, 7, 5, 6, 4]), "sub_pixel_scale_factor": 2}
    graph.output(graph.add("Convolution", y, **order | after))
    assert optimized(graph) == ["Convolution"] * (1 if folded else 2)


# ---- scales and shifts


def linear(graph: mpscnn.Graph, x: Value, a: float, b: float, **options: Any) -> Value:
    return graph.add("NeuronLinear", x, a=a, b=b, **options)


def scaled(graph: mpscnn.Graph, x: Value, draw: Draw, statistics: str | None = "none", **arguments: Any) -> Value:
    """Add a batch normalization that only scales and shifts, unless other statistics are given."""
    given = {"gamma": draw.positive(8), "beta": draw.values(8), "mean": draw.values(8), "variance": draw.positive(8)}
    y = graph.add("BatchNormalization", x, **given | {"epsilon": 1e-3} | arguments)
    if statistics is not None:
        graph.nodes[-1] = graph.nodes[-1].with_(training={"statistics": statistics})
    return y


@pytest.mark.parametrize(
    ("kinds", "kernels"),
    [
        ("ll", ["NeuronLinear"]),
        ("lll", ["NeuronLinear"]),
        ("ls", ["BatchNormalization"]),
        ("sl", ["BatchNormalization"]),
        ("lssl", ["BatchNormalization"]),
        ("ltl", ["NeuronLinear", "BatchNormalization"]),  # a last linear function is the activation
    ],
)
def test_scales_in_a_row_become_one(kinds: str, kernels: list[str]) -> None:
    graph, x, draw = start()
    y = graph.add("PoolingMax", x, kernel_size=3)
    for number, kind in enumerate(kinds):
        if kind == "l":
            y = linear(graph, y, 0.5 + number, 0.3 - number)
        else:
            y = scaled(graph, y, draw, None if kind == "t" else "none")
    graph.output(graph.add("PoolingAverage", y, kernel_size=2))
    assert optimized(graph) == ["PoolingMax", *kernels, "PoolingAverage"]


@pytest.mark.parametrize("statistics", [None, "batch", "image"])
def test_normalizations_that_train_are_left(statistics: str | None) -> None:
    graph, x, draw = start()
    y = scaled(graph, scaled(graph, x, draw, statistics), draw)
    graph.output(graph.add("PoolingMax", y, kernel_size=2))
    before = [node.arguments["gamma"] for node in graph if node.kernel == "BatchNormalization"]
    after = passes.optimize(graph)
    found = [node for node in after if node.kernel == "BatchNormalization"]
    assert [node.training for node in found] == [
        {} if statistics is None else {"statistics": statistics},
        {"statistics": "none"},
    ]
    assert all(node.arguments["gamma"] is gamma for node, gamma in zip(found, before, strict=True))


def test_activations_stay_behind_the_scale() -> None:
    graph, x, draw = start()
    y = scaled(graph, linear(graph, x, 0.5, 0.25), draw, activation=NeuronDescriptor("relu"))
    graph.output(scaled(graph, y, draw))
    assert optimized(graph) == ["BatchNormalization", "BatchNormalization"]
    (first, _) = passes.optimize(graph)
    assert first.arguments["activation"].type == "relu"


def test_scales_behind_a_convolution_go_into_it() -> None:
    graph, x, draw = start()
    y = graph.add("Convolution", x, weight=draw.weight(8, 8, 3, 3))
    graph.output(scaled(graph, linear(graph, y, 2.0, -0.5), draw))
    assert optimized(graph, 1e-5) == ["Convolution"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1e30, 0.0), (1e30, 1.0)),
        ((1e-30, 0.0), (1e-30, 1.0)),
        ((1.0, 12582912.0), (1.0, -12582912.0)),  # rounds to whole numbers
        ((1.0, 1e38), (10.0, 0.0)),
        ((float("inf"), 0.0), (1.0, 0.0)),
    ],
)
def test_scales_beyond_float32_are_left(first: tuple[float, float], second: tuple[float, float]) -> None:
    graph, x, _ = start()
    y = linear(graph, linear(graph, x, *first), *second)
    graph.output(graph.add("PoolingMax", y, kernel_size=2))
    assert [node.kernel for node in passes.fold_scales(graph)] == ["NeuronLinear", "NeuronLinear", "PoolingMax"]


@pytest.mark.parametrize("last", [False, True])
def test_conversions_of_bytes_are_left(last: bool) -> None:
    graph, x, _ = start()
    y = linear(graph, x, 0.5, 0.25)
    y = linear(graph, y, 1 / 255, 0.5, result_dtype="uint8")
    y = linear(graph, y, 255.0, -127.5)
    if last:
        y = linear(graph, y, 2.0, 1.0)
    graph.output(graph.add("PoolingMax", y, kernel_size=2))
    assert [node.kernel for node in passes.fold_scales(graph)] == [node.kernel for node in graph]


def test_what_others_read_of_a_scale_is_left() -> None:
    graph, x, _ = start()
    y = linear(graph, x, 0.5, 0.25)
    graph.output(y, "first")
    graph.output(linear(graph, y, 2.0, 1.0), "second")
    assert optimized(graph) == ["NeuronLinear", "NeuronLinear"]


@pytest.mark.parametrize("kinds", ["ls", "ssl", "lll"])
def test_saved_networks_with_scales_agree(kinds: str, tmp_path: Path) -> None:
    graph, x, draw = start()
    y = x
    for kind in kinds:
        y = linear(graph, y, 0.5, 0.25) if kind == "l" else scaled(graph, y, draw)
    graph.output(graph.add("Convolution", y, weight=draw.weight(4, 8, 3, 3), padding=1), "y")
    net = mpscnn.Network(graph)
    assert len(net.graph.nodes) == 2
    net.save(tmp_path / "net.mpscnn")
    again = mpscnn.load(tmp_path / "net.mpscnn")
    assert np.array_equal(net(X), again(X))
    assert [node.training for node in again.graph] == [node.training for node in net.graph]
    expected = mpscnn.Network(graph, optimize=False)(X)
    assert float(np.abs(net(X) - expected).max()) <= 2e-6 * float(np.abs(expected).max())


def test_mean_and_std_of_the_caller_join_those_of_the_model() -> None:
    graph, x, draw = start()
    y = linear(graph, x, 1 / 0.229, -0.485 / 0.229)
    graph.output(graph.add("Convolution", y, weight=draw.weight(4, 8, 3, 3), padding=1), "y")
    net = mpscnn.Network(graph, mean=[0.1] * 8, std=[0.3] * 8)
    assert [node.kernel for node in net.graph] == ["BatchNormalization", "Convolution"]
    expected = mpscnn.Network(graph, mean=[0.1] * 8, std=[0.3] * 8, optimize=False)(X)
    assert float(np.abs(net(X) - expected).max()) <= 4e-6 * float(np.abs(expected).max())


def test_the_graph_that_is_given_stays() -> None:
    graph, x, draw = start()
    weight: NDArray[np.float32] = draw.weight(8, 8, 1, 1)
    conv = graph.add("Convolution", x, weight=weight)
    graph.output(batch_norm(graph, conv, 8, draw))
    before, values = [node.kernel for node in graph], weight.copy()
    mpscnn.Network(graph)
    assert [node.kernel for node in graph] == before
    assert np.array_equal(graph.nodes[0].arguments["weight"], values)
