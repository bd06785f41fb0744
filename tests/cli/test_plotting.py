# SPDX-License-Identifier: Apache-2.0
"""Plot of a network: boxes do not overlap, edges run downwards, chains share a box."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from mpscnn.graph import Graph, Value
from mpscnn.plotting import svg

SVG = "{http://www.w3.org/2000/svg}"


def graph_of(edges: dict[str, str]) -> Graph:
    """Return a graph of nodes by name, with their sources: "a b" adds two, more are concatenated; "x": input."""
    graph = Graph()
    graph.input("x", height=4, width=4, channels=4)
    read = set()
    for name, text in edges.items():
        sources = [Value(source) for source in text.split()]
        read.update(text.split())
        if len(sources) == 1:
            graph.add("NeuronReLU", *sources, name=name)
        elif len(sources) == 2 and not name.startswith("cat"):
            graph.add("Add", *sources, name=name)
        else:
            graph.concatenate(*sources, name=name)
    for name in edges:
        if name not in read:
            graph.output(Value(name), f"out {name}")
    return graph


GRAPHS = {
    "chain": {"a": "x", "b": "a", "c": "b"},
    "residual": {"a": "x", "b": "a", "c": "b", "d": "c a", "e": "d", "f": "e d"},
    "branches": {"a": "x", "b": "a", "c": "a", "d": "a", "e": "b", "cat": "c d e", "f": "cat"},
    "crossing": {"a": "x", "b": "x", "c": "a", "d": "b", "e": "c b", "f": "d a", "g": "e f"},
    "long": {"a": "x", **{f"n{i}": (f"n{i - 1}" if i else "a") for i in range(3)}, "b": "a", "c": "n2 b", "d": "c x"},
    "two outputs": {"a": "x", "b": "a", "c": "a"},
    "square": {"a": "x", "b": "a a", "c": "b"},
    "dense": {"a": "x", "cat1": "x a", "b": "cat1", "cat2": "x a b", "c": "cat2", "cat3": "x a b c"},
}


class Picture:
    """Boxes (left, top, width, height) by the names in them, and edges as points."""

    def __init__(self, text: str) -> None:
        root = ElementTree.fromstring(text)
        self.size = (float(root.get("width")), float(root.get("height")))
        self.boxes: dict[tuple[str, ...], tuple[float, float, float, float]] = {}
        everything = list(root.iter())
        outlines = [one for one in everything if one.tag == f"{SVG}rect" and one.get("stroke") == "#474d55"]
        names = [
            (float(one.get("x")), float(one.get("y")), one.text)
            for one in everything
            if one.tag == f"{SVG}text" and one.get("font-weight") == "bold" and not one.get("font-size")
        ]
        for outline in outlines:
            x, y, w, h = (float(outline.get(name)) for name in ("x", "y", "width", "height"))
            inside = tuple(name for a, b, name in names if x < a < x + w and y < b < y + h)
            self.boxes[inside] = (x, y, w, h)
        self.edges = [
            [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", one.get("d"))]
            for one in everything
            if one.tag == f"{SVG}path" and one.get("marker-end")
        ]
        self.paths = [one.get("d") for one in everything if one.tag == f"{SVG}path" and one.get("marker-end")]


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


@pytest.mark.parametrize("name", GRAPHS)
def test_boxes_stand_apart_and_edges_run_down(name: str) -> None:
    picture = Picture(svg(graph_of(GRAPHS[name])))
    drawn = [one for names in picture.boxes for one in names]
    assert {"x", *GRAPHS[name]} <= set(drawn)
    assert len(drawn) == len(set(drawn))
    for a, b in combinations(picture.boxes.values(), 2):
        assert not overlap(a, b)
    width, height = picture.size
    for x, y, w, h in picture.boxes.values():
        assert x >= 0
        assert y >= 0
        assert x + w < width
        assert y + h < height
    tops = {round(y, 1) for _, y, _, _ in picture.boxes.values()}
    bottoms = {round(y + h, 1) for _, y, _, h in picture.boxes.values()}
    for path in picture.paths:
        begin = float(re.match(r"M[-\d.]+,([-\d.]+)", path)[1])
        end = float(re.search(r"[V,]([-\d.]+)$", path)[1])
        assert begin in bottoms
        assert end in tops
        assert begin < end


def test_chains_share_a_box() -> None:
    boxes = Picture(svg(graph_of(GRAPHS["residual"]))).boxes
    assert ("b", "c") in boxes
    assert ("a",) in boxes  # read twice
    assert ("d",) in boxes
    assert Picture(svg(graph_of(GRAPHS["chain"]))).boxes.keys() == {("x",), ("a", "b", "c"), ("out c",)}


def test_a_concatenation_reads_the_one_before_it() -> None:
    assert len(Picture(svg(graph_of(GRAPHS["dense"]))).edges) == len(
        [
            ("x", "a"),
            ("x", "cat1"),
            ("a", "cat1"),
            ("cat1", "b"),
            ("cat1", "cat2"),
            ("b", "cat2"),
            ("cat2", "c"),
            ("cat2", "cat3"),
            ("c", "cat3"),
            ("cat3", "out"),
        ]
    )


def test_branches_do_not_cross_where_they_need_not() -> None:
    edges = {"a": "x"}
    for i in range(5):
        edges[f"b{i}"] = "a"
    for i in (3, 1, 4, 0, 2):
        edges[f"c{i}"] = f"b{i} a"
    boxes = Picture(svg(graph_of(edges))).boxes
    places: dict[str, Any] = {names[0]: box[0] + box[2] / 2 for names, box in boxes.items()}
    above = sorted(range(5), key=lambda i: places[f"b{i}"])
    below = sorted(range(5), key=lambda i: places[f"c{i}"])
    assert above == below


def test_the_same_every_time() -> None:
    assert svg(graph_of(GRAPHS["crossing"])) == svg(graph_of(GRAPHS["crossing"]))


def test_sizes_that_are_free_are_asked_for() -> None:
    graph = Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=3)), "y")
    with pytest.raises(ValueError, match='input "x": height and width are free'):
        svg(graph)
    assert "5x6x3" in svg(graph, (1, 5, 6, 3))


def test_long_names_are_shortened_and_whole_in_the_title() -> None:
    graph = Graph()
    x = graph.input("x", height=4, width=4, channels=4)
    name = "a/very/long/name/" * 5 + "end"
    graph.output(graph.add("Convolution", x, name=name, weight=np.ones((4, 4, 1, 1), np.float32)), "y")
    root = ElementTree.fromstring(svg(graph))
    assert any(title.text.startswith(name) for title in root.iter(f"{SVG}title"))
    assert all(len(text.text or "") < 50 for text in root.iter(f"{SVG}text"))
