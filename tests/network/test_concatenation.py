# SPDX-License-Identifier: Apache-2.0
"""Concatenation: in place where the channels allow it, correct in any case, and the kernels encoded for it."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from interpreter import interpret
from mpscnn.graph import Value
from network.graphs import Draw


def kernels(net: mpscnn.Network, channels: int = 4) -> list[str]:
    return [step["kernel"] for step in net._core.steps([(1, 5, 6, channels)])]


def branches(graph: mpscnn.Graph, x: Value, channels: list[int], of: int = 4) -> list[Value]:
    draw = Draw(0)
    return [graph.add("Convolution", x, weight=draw.weight(count, of, 1, 1)) for count in channels]


def check(graph: mpscnn.Graph, x: NDArray[Any], **options: Any) -> mpscnn.Network:
    net = mpscnn.Network(graph, **options)
    results = net(x)
    expected = interpret(graph, x=x)
    for result, (name, wanted) in zip(
        results if isinstance(results, tuple) else (results,), expected.items(), strict=True
    ):
        assert np.array_equal(result, wanted), name
    return net


X = np.random.default_rng(0).standard_normal((3, 5, 6, 4)).astype(np.float32)


def test_aligned_parts_are_written_where_they_belong() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    graph.output(graph.concatenate(*branches(graph, x, [8, 4, 6])), "y")  # the last part may have any size
    net = check(graph, X)
    assert kernels(net) == ["Convolution"] * 3
    steps = net._core.steps([(1, 5, 6, 4)])
    assert [step["destination_channel"] for step in steps] == [0, 8, 12]
    assert len({step["destination"] for step in steps}) == 1


def test_parts_that_share_slices_are_added_up() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    graph.output(graph.concatenate(*branches(graph, x, [8, 3, 5, 4, 7, 2])), "y")
    net = check(graph, X)
    steps = net._core.steps([(1, 5, 6, 4)])
    # 8 in place; 3 + 5 fill two slices; 4 in place; 7 + 2 to the end.
    assert [step["kernel"] for step in steps] == ["Convolution"] * 6 + ["Pad", "Pad", "Add"] * 2
    assert [step["destination_channel"] for step in steps[6:]] == [0, 0, 8, 0, 0, 20]
    graph = mpscnn.Graph()
    graph.output(graph.concatenate(*branches(graph, graph.input("x", channels=4), [6, 6])), "y")
    # The second part begins inside of a slice, although it ends with the image.
    assert kernels(check(graph, X)) == ["Convolution"] * 2 + ["Pad", "Pad", "Add"]


def test_what_has_its_place_elsewhere_is_copied() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    a, b = branches(graph, x, [4, 8])
    graph.output(graph.concatenate(x, a, a, b), "y")  # an input, and one value twice
    graph.output(b, "b")  # an output has its own image
    net = check(graph, X)
    assert kernels(net) == ["Convolution", "Convolution", "Slice", "Slice", "Slice", "Slice"]


def test_a_dense_block_has_one_image() -> None:
    """Each layer reads all earlier ones; every concatenation is a prefix of the last one."""
    graph, draw = mpscnn.Graph(), Draw(0)
    x = graph.input("x", channels=4)
    features = [graph.add("Convolution", x, weight=draw.weight(8, 4, 1, 1))]
    for index in range(3):
        joined = graph.concatenate(*features) if len(features) > 1 else features[0]
        y = graph.add("NeuronReLU", joined)
        features.append(graph.add("Convolution", y, weight=draw.weight(4, 8 + 4 * index, 3, 3), padding=1))
    graph.output(graph.concatenate(*features), "y")
    net = check(graph, X)
    steps = net._core.steps([(1, 5, 6, 4)])
    assert [step["kernel"] for step in steps] == ["Convolution"] + ["NeuronReLU", "Convolution"] * 3
    output = next(number for number, image in enumerate(net._core.images([(1, 5, 6, 4)])) if image["output"] == 0)
    assert [step["destination"] == output for step in steps] == [True] + [False, True] * 3
    assert [step["source_channels"] for step in steps[1::2]] == [[(0, 8)], [(0, 12)], [(0, 16)]]


def test_no_kernel_writes_into_an_image_that_it_reads() -> None:
    graph, draw = mpscnn.Graph(), Draw(0)
    x = graph.input("x", channels=4)
    features = [graph.add("Convolution", x, weight=draw.weight(8, 4, 1, 1))]
    for index in range(3):  # no activation between
        joined = graph.concatenate(*features) if len(features) > 1 else features[0]
        features.append(graph.add("Convolution", joined, weight=draw.weight(4, 8 + 4 * index, 3, 3), padding=1))
    graph.output(graph.concatenate(*features), "y")
    net = check(graph, X)
    for step in net._core.steps([(1, 5, 6, 4)]):
        assert step["destination"] not in step["sources"]


def test_a_kernel_that_reads_one_image_twice() -> None:
    """As both sources of a kernel, and as two parts of one concatenation."""
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    a, b = branches(graph, x, [8, 8])
    square = graph.add("Multiply", a, a)
    joined = graph.concatenate(square, b)
    y = graph.add("Add", square, b)
    graph.output(graph.add("Subtract", graph.concatenate(y, y), joined))
    net, shapes = check(graph, X), [(1, 5, 6, 4)]
    sources = [set(step["sources"]) for step in net._core.steps(shapes)]
    for number, image in enumerate(net._core.images(shapes)):
        assert image["reads"] == sum(number in images for images in sources)


def test_a_concatenation_of_itself_and_of_concatenations() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    a, b, c = branches(graph, x, [4, 8, 3])
    ab = graph.concatenate(a, b)
    abab = graph.concatenate(ab, ab)
    graph.output(graph.concatenate(abab, c, ab), "y")
    graph.output(ab, "ab")
    net = check(graph, X)
    for step in net._core.steps([(1, 5, 6, 4)]):
        assert step["destination"] not in step["sources"]


def test_sizes_that_differ_are_refused_by_name() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    y = graph.add("PoolingMax", x, kernel_size=2)
    graph.output(graph.concatenate(x, y, name="joined"))
    with pytest.raises(ValueError, match='concatenation "joined": source 1 has 2 x 3 pixels; source 0 has 5 x 6'):
        mpscnn.Network(graph)(X)


def test_another_first_source_is_no_prefix() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    a, b, c, d = branches(graph, x, [4, 4, 4, 4])
    graph.output(graph.concatenate(a, b), "first")
    graph.output(graph.concatenate(c, b, d), "second")
    graph.output(graph.concatenate(a, c, b), "third")
    check(graph, X)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.data())
def test_any_graph_of_concatenations(data: st.DataObject) -> None:
    """Random convolutions, activations and sums, concatenated at random; all values are outputs."""
    graph, draw = mpscnn.Graph(), Draw(1)
    values = [(graph.input("x", channels=4), 4)]
    for _ in range(data.draw(st.integers(2, 9))):
        kind = data.draw(st.sampled_from(["conv", "conv", "relu", "cat", "cat", "pool", "slice", "sum"]))
        value, channels = data.draw(st.sampled_from(values))
        if kind == "conv":
            count = data.draw(st.sampled_from([1, 3, 4, 5, 8]))
            values.append((graph.add("Convolution", value, weight=draw.weight(count, channels, 1, 1)), count))
        elif kind == "relu":
            values.append((graph.add("NeuronReLU", value), channels))
        elif kind == "sum":
            other = data.draw(st.sampled_from([other for other, count in values if count == channels]))
            values.append((graph.add("Add", value, other), channels))
        elif kind == "pool":
            values.append((graph.add("PoolingMax", value, kernel_size=3, stride=1, padding=1), channels))
        elif kind == "slice" and channels > 4:
            values.append((graph.add("Slice", value, source_feature_channel_offset=4), channels - 4))
        elif kind == "cat":
            parts = data.draw(st.lists(st.sampled_from(values), min_size=2, max_size=4))
            total = sum(count for _, count in parts)
            if total <= 64:
                values.append((graph.concatenate(*(part for part, _ in parts)), total))
    for number, (value, _) in enumerate(data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))):
        graph.output(value, f"y{number}")
    net = check(graph, X, optimize=False)
    steps, images = net._core.steps([(1, 5, 6, 4)]), net._core.images([(1, 5, 6, 4)])
    for number, image in enumerate(images):
        assert image["reads"] == sum(number in step["sources"] for step in steps)
    for step in steps:
        assert step["destination"] not in step["sources"]
