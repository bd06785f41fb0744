# SPDX-License-Identifier: Apache-2.0
"""SVG diagrams of networks: layers from top to bottom, laid out without other programs.

A small Sugiyama layout: a chain of layers shares a box; boxes get ranks by their longest path from an input, an order
within a rank by barycentres, and positions by least squares (isotonic regression), which keeps long edges straight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape

from .graph import CONCATENATE, Graph
from .layers import InputShapes, Layer, image_shapes, layer_table, network_of, shape_text
from .network import Network

__all__ = ["svg"]

# Pixels. Characters of any monospaced font are 0.6 of its size wide.
_FONT, _LINE, _PAD, _CHARACTER = 12, 18, 8, 7.23
_RANK_GAP, _BOX_GAP, _EDGE_GAP, _MARGIN = 34, 36, 22, 24
_LONGEST_NAME = 34
_SWEEPS = 12

# Fill and stroke colours of each group of families; the legend shows the groups that occur.
_COLOURS = {
    "convolution": ("#dbe9fb", "#3b73b9"),
    "fully connected": ("#e4dcf7", "#7350b8"),
    "pooling, reduction": ("#d9f2e3", "#2f8f5b"),
    "normalization": ("#fdf1cf", "#b48a17"),
    "activation": ("#fde0d9", "#c2553a"),
    "arithmetic": ("#fbdcea", "#b93f7c"),
    "resizing": ("#d5f1f3", "#258a94"),
    "function": ("#eef3c8", "#7d8c1e"),
    "placing": ("#e9eaec", "#6c737c"),
    "input, output": ("#ffffff", "#30353b"),
}
_GROUPS = {
    "convolution": "convolution",
    "convolution_transpose": "convolution",
    "binary_convolution": "convolution",
    "fully_connected": "fully connected",
    "pooling": "pooling, reduction",
    "reduction": "pooling, reduction",
    "normalization": "normalization",
    "local_normalization": "normalization",
    "batch_statistics": "normalization",
    "neuron": "activation",
    "neuron_gradient": "activation",
    "softmax": "activation",
    "dropout": "activation",
    "arithmetic": "arithmetic",
    "resize": "resizing",
    "upsampling": "resizing",
    "function": "function",
}


@dataclass
class _Row:
    """A line in a box: a layer, an input or an output."""

    name: str
    text: str
    shape: str
    group: str
    title: str


@dataclass
class _Box:
    """A chain of rows, or without rows a dummy node where an edge passes a rank."""

    rows: list[_Row]
    rank: int = 0
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0  # centre
    y: float = 0.0  # top
    order: int = 0
    above: list[_Box] = field(default_factory=list)  # neighbours in the adjacent ranks, dummy nodes included
    below: list[_Box] = field(default_factory=list)

    @property
    def passes(self) -> bool:
        return not self.rows


def svg(model: Graph | Network, input_shapes: InputShapes = None, *, title: str = "") -> str:
    """Return a diagram of a network.

    Parameters
    ----------
    model : Graph or Network
        For a graph every node is shown, for a network the kernels that run.
    input_shapes
        See `mpscnn.layers.layer_table`.
    title : str, optional
        Heading.

    Returns
    -------
    str
        An SVG document.

    Raises
    ------
    The errors of `mpscnn.layers.layer_table`.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> from mpscnn.plotting import svg
    >>> graph = mpscnn.Graph()
    >>> x = graph.input("x", height=8, width=8, channels=4)
    >>> graph.output(graph.add("NeuronReLU", x), "y")
    >>> svg(graph).startswith("<svg")
    True
    """
    network = network_of(model)
    table = layer_table(network, input_shapes)
    boxes, edges = _boxes(network, table, input_shapes)
    _rank(boxes, edges)
    ranks, paths = _with_passages(boxes, edges)
    _order(ranks)
    _place(ranks)
    heading = title or f"{len(table)} kernels"
    totals = f"{table.parameters:,} parameters, {table.flops / 1e9:.2f} GFLOP, inputs " + ", ".join(
        shape_text(shape) for shape in image_shapes(network, input_shapes)
    )
    return _document(ranks, paths, heading, totals)


# ---- boxes


def _boxes(network: Network, table: Iterable[Layer], input_shapes: InputShapes) -> tuple[list[_Box], list[_Edge]]:
    layers = {layer.name: layer for layer in table}
    sources = _shorter_concatenations({name: list(layer.sources) for name, layer in layers.items()}, layers)
    rows: dict[str, _Row] = {}
    for (name, spec), shape in zip(network.inputs.items(), image_shapes(network, input_shapes), strict=True):
        rows[name] = _Row(_short(name), f"input, {spec.layout}", _pixels(shape), "input, output", name)
    rows.update((name, _layer_row(layer)) for name, layer in layers.items())
    for name, output in network.outputs.items():
        key = f"output {name}"
        while key in rows:
            key += "'"
        sources[key] = [output.source]
        rows[key] = _Row(_short(name), f"output, {output.layout}", "", "input, output", name)

    readers: dict[str, list[str]] = {name: [] for name in rows}
    for name, read in sources.items():
        for source in read:
            readers[source].append(name)
    box_of: dict[str, _Box] = {}
    for name in rows:
        read = sources.get(name, [])
        chained = (
            len(read) == 1
            and len(readers[read[0]]) == 1
            and rows[name].group != "input, output"
            and rows[read[0]].group != "input, output"
        )
        if chained:
            box_of[name] = box_of[read[0]]
            box_of[name].rows.append(rows[name])
        else:
            box_of[name] = _Box([rows[name]])
    boxes = list({id(box): box for box in box_of.values()}.values())
    edges = {
        (id(box_of[source]), id(box_of[name])): (box_of[source], box_of[name])
        for name, read in sources.items()
        for source in read
        if box_of[source] is not box_of[name]
    }
    for box in boxes:
        columns = [max(len(getattr(row, part)) for row in box.rows) for part in ("name", "text", "shape")]
        box.width = (sum(columns) + 2 * (len(columns) - 1)) * _CHARACTER + 2 * _PAD
        box.height = len(box.rows) * _LINE + 6
    return boxes, list(edges.values())


_Edge = tuple[_Box, _Box]


def _shorter_concatenations(sources: dict[str, list[str]], layers: dict[str, Layer]) -> dict[str, list[str]]:
    """Replace the first sources of a concatenation by an earlier concatenation of the same ones, as in dense blocks."""
    earlier: dict[tuple[str, ...], str] = {}
    for name, layer in layers.items():
        if layer.kernel != CONCATENATE:
            continue
        read = layer.sources
        for count in range(len(read) - 1, 1, -1):
            if read[:count] in earlier:
                sources[name] = [earlier[read[:count]], *read[count:]]
                break
        earlier[read] = name
    return sources


def _layer_row(layer: Layer) -> _Row:
    parts = [layer.kernel, layer.detail] if layer.detail else [layer.kernel]
    text = " ".join(parts) + (f" + {layer.activation}" if layer.activation else "")
    lines = [
        layer.name,
        f"from {layer.origin}" if layer.origin else "",
        layer.apple_class,
        f"{', '.join(map(shape_text, layer.input_shapes))} to {shape_text(layer.output_shape)}",
        f"{layer.parameters:,} parameters, {layer.flops / 1e6:,.2f} MFLOP",
    ]
    return _Row(
        _short(layer.name),
        text,
        _pixels(layer.output_shape),
        _GROUPS.get(layer.family, "placing"),
        "\n".join(line for line in lines if line),
    )


def _short(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def _pixels(shape: tuple[int, ...]) -> str:
    return shape_text(shape[1:])


# ---- layout


def _rank(boxes: list[_Box], edges: list[_Edge]) -> None:
    """Rank boxes by their longest path from a box without sources; then move inputs and branches next to readers."""
    # Boxes are in the order of their first rows. A chain's sources are those of its first row, so they come before it.
    for box in boxes:
        box.rank = max((a.rank + 1 for a, b in edges if b is box), default=0)
    for box in reversed(boxes):
        if not any(b is box for _, b in edges):
            box.rank = max(box.rank, min((b.rank for a, b in edges if a is box), default=1) - 1)


def _with_passages(boxes: list[_Box], edges: list[_Edge]) -> tuple[list[list[_Box]], list[list[_Box]]]:
    """Return the boxes of each rank, with dummy nodes for longer edges, and the boxes along each edge."""
    ranks: list[list[_Box]] = [[] for _ in range(1 + max(box.rank for box in boxes))]
    for box in boxes:
        ranks[box.rank].append(box)
    paths = []
    for a, b in edges:
        path = [a]
        for rank in range(a.rank + 1, b.rank):
            passage = _Box([], rank=rank, width=2)
            ranks[rank].append(passage)
            path.append(passage)
        path.append(b)
        for upper, lower in pairwise(path):
            upper.below.append(lower)
            lower.above.append(upper)
        paths.append(path)
    return ranks, paths


def _order(ranks: list[list[_Box]]) -> None:
    """Reduce crossings: sort boxes by the mean position of their neighbours, downwards and upwards in turn."""
    best, best_crossings = [list(rank) for rank in ranks], -1
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for rank in ranks if down else reversed(ranks):
            _number(rank)
            for box in rank:
                joined = box.above if down else box.below
                box.x = sum(other.order for other in joined) / len(joined) if joined else box.order
            rank.sort(key=lambda box: box.x)
            _number(rank)
        crossings = sum(map(_crossings, ranks))
        if best_crossings < 0 or crossings < best_crossings:
            best, best_crossings = [list(rank) for rank in ranks], crossings
        if crossings == 0:
            break
    for rank, ordered in zip(ranks, best, strict=True):
        rank[:] = ordered
        _number(rank)


def _number(rank: list[_Box]) -> None:
    for order, box in enumerate(rank):
        box.order = order


def _crossings(rank: list[_Box]) -> int:
    """Count the crossings of edges to the rank below."""
    ends = [(box.order, other.order) for box in rank for other in box.below]
    return sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for number, a in enumerate(ends) for b in ends[number + 1 :])


def _place(ranks: list[list[_Box]]) -> None:
    for rank in ranks:
        rank[0].x = 0.0
        for left, box in pairwise(rank):
            box.x = left.x + _distance(left, box)
    for sweep in range(4 * _SWEEPS):
        for rank in ranks if sweep % 2 == 0 else reversed(ranks):
            wanted, weights = [], []
            for box in rank:
                joined = [(other, _stiffness(box, other)) for other in box.above + box.below]
                total = sum(weight for _, weight in joined)
                wanted.append(sum(other.x * weight for other, weight in joined) / total if total else box.x)
                weights.append(total or 1.0)
            for box, x in zip(rank, _apart(rank, wanted, weights), strict=True):
                box.x = x
    y = 0.0
    for rank in ranks:
        height = max(box.height for box in rank)
        for box in rank:
            box.y = y
            if box.passes:
                box.height = height
        y += height + _RANK_GAP
    first = min(box.x - box.width / 2 for rank in ranks for box in rank)
    for rank in ranks:
        for box in rank:
            box.x -= first


def _stiffness(a: _Box, b: _Box) -> float:
    """Return the weight with which an edge between these boxes is kept vertical."""
    return (1.0, 2.0, 8.0)[a.passes + b.passes]


def _distance(left: _Box, right: _Box) -> float:
    gap = _EDGE_GAP if left.passes or right.passes else _BOX_GAP
    return (left.width + right.width) / 2 + gap


def _apart(rank: list[_Box], wanted: list[float], weights: list[float]) -> list[float]:
    """Return the positions closest to the wanted ones, by weighted least squares, that keep order and distances.

    With the distances subtracted this is isotonic regression: overlapping neighbours become one block at their mean.
    """
    offsets = [0.0]
    for left, right in pairwise(rank):
        offsets.append(offsets[-1] + _distance(left, right))
    blocks: list[tuple[float, float, int]] = []  # mean, weight, count
    for place, weight, offset in zip(wanted, weights, offsets, strict=True):
        block = (place - offset, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, other, count = blocks.pop()
            total = other + block[1]
            block = ((mean * other + block[0] * block[1]) / total, total, count + block[2])
        blocks.append(block)
    means = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


# ---- drawing


def _document(ranks: list[list[_Box]], paths: list[list[_Box]], heading: str, totals: str) -> str:
    boxes = [box for rank in ranks for box in rank if not box.passes]
    groups = list(dict.fromkeys(row.group for box in boxes for row in box.rows))
    legend = [(group, 18 + len(group) * _CHARACTER + 16) for group in _COLOURS if group in groups]
    width = max(
        max(box.x + box.width / 2 for rank in ranks for box in rank),
        len(heading) * _CHARACTER * 16 / _FONT,
        len(totals) * _CHARACTER,
        min(sum(extent for _, extent in legend), 520.0),
    )
    marks: list[str] = []
    x, y = 0.0, 58.0
    for group, extent in legend:
        if x and x + extent - 16 > width:
            x, y = 0.0, y + 22
        fill, line = _COLOURS[group]
        marks.append(
            f'<rect x="{x:.0f}" y="{y - 11:.0f}" width="13" height="13" rx="3" fill="{fill}" stroke="{line}"/>'
        )
        marks.append(_text(x + 18, y, group))
        x += extent
    top = y + 24
    shift = (width - max(box.x + box.width / 2 for box in boxes)) / 2
    height = top + max(box.y + box.height for box in boxes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * _MARGIN:.0f}" height="{height + 2 * _MARGIN:.0f}"'
        f' viewBox="{-_MARGIN} {-_MARGIN} {width + 2 * _MARGIN:.0f} {height + 2 * _MARGIN:.0f}"'
        ' font-family="DejaVu Sans Mono, Menlo, Consolas, monospace"'
        f' font-size="{_FONT}" fill="#1d2126">',
        f"<title>{_escaped(heading)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0.6 L7.4,4 L0,7.4 z" fill="#7b828b"/></marker></defs>',
        f'<rect x="{-_MARGIN}" y="{-_MARGIN}" width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="0" y="12" font-size="16" font-weight="bold">{_escaped(heading)}</text>',
        _text(0, 34, totals, fill="#5a616a"),
        *marks,
        f'<g transform="translate({max(shift, 0):.1f} {top:.1f})">',
        '<g fill="none" stroke="#7b828b" stroke-width="1.3">',
        *map(_edge, paths),
        "</g>",
        *map(_box, boxes),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _edge(path: list[_Box]) -> str:
    a, b = path[0], path[-1]
    x, y = _port(a, path[1], a.below), a.y + a.height
    commands = [f"M{x:.1f},{y:.1f}"]
    for box in path[1:]:
        to = _port(b, path[-2], b.above) if box is b else box.x
        middle = (y + box.y) / 2
        commands.append(
            f"V{box.y:.1f}"
            if abs(to - x) < 0.5
            else f"C{x:.1f},{middle:.1f} {to:.1f},{middle:.1f} {to:.1f},{box.y:.1f}"
        )
        x, y = to, box.y
        if box.passes:
            y += box.height
            commands.append(f"V{y:.1f}")
    return f'<path d="{" ".join(commands)}" marker-end="url(#head)"/>'


def _port(box: _Box, other: _Box, joined: list[_Box]) -> float:
    """Return the x of an edge at a box: ports are spread over the box's middle, in the order of the neighbours."""
    ordered = sorted(joined, key=lambda joined: joined.x)
    step = min(18.0, box.width * 0.6 / len(ordered))
    return box.x + (ordered.index(other) - (len(ordered) - 1) / 2) * step


def _box(box: _Box) -> str:
    left = box.x - box.width / 2
    names = max(len(row.name) for row in box.rows)
    is_end = box.rows[0].group == "input, output"
    parts = []
    for number, row in enumerate(box.rows):
        fill, line = _COLOURS[row.group]
        y = box.y + 3 + number * _LINE
        parts.append(
            f"<g><title>{_escaped(row.title)}</title>"
            f'<rect x="{left + 1.5:.1f}" y="{y:.1f}" width="{box.width - 3:.1f}" height="{_LINE}" fill="{fill}"/>'
            + ("" if is_end else f'<rect x="{left + 1.5:.1f}" y="{y:.1f}" width="3.5" height="{_LINE}" fill="{line}"/>')
            + _text(left + _PAD, y + 13, row.name, weight="bold")
            + _text(left + _PAD + (names + 2) * _CHARACTER, y + 13, row.text)
            + _text(left + box.width - _PAD, y + 13, row.shape, fill="#4c535b", anchor="end")
            + "</g>"
        )
    radius = 9 if is_end else 4
    parts.append(
        f'<rect x="{left:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius}"'
        ' fill="none" stroke="#474d55" stroke-width="1.2"/>'
    )
    background = (
        f'<rect x="{left:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius}"'
        ' fill="#ffffff"/>'
    )
    return background + "".join(parts)


def _text(x: float, y: float, text: str, *, fill: str = "", anchor: str = "", weight: str = "") -> str:
    more = "".join(
        f' {name}="{value}"'
        for name, value in (("fill", fill), ("text-anchor", anchor), ("font-weight", weight))
        if value
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    """Escape text for XML, which allows no control characters except tab and line ends."""
    return escape("".join(c if c.isprintable() or c in "\t\n" else "�" for c in text), {'"': "&quot;"})
