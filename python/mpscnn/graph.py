# SPDX-License-Identifier: Apache-2.0
"""Graph: kernels by name, with their arguments and how images flow between them. Nothing is computed here."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import _checks, _core
from .kernels import KERNELS, Kernel, row_of

CONCATENATE = "Concatenate"
STATISTICS = ("batch", "image", "none")  # of batch normalization in training
# Of an image: pixels along an axis, and channels in 2048 slices of four [Metal feature set tables].
EXTENT_LIMIT, CHANNEL_LIMIT = 16384, 8192


@dataclass(frozen=True)
class Value:
    """What a node or an input of a graph makes: one image per image of the batch."""

    name: str


@dataclass(frozen=True)
class Input:
    """A source of the whole graph.

    Attributes
    ----------
    name : str
    height, width : int or None
        Pixels; None: any.
    channels : int or None
        None: as the kernels that read it take.
    layout : str
        Order of the axes of its array: letters of "NHWC", each at most once, with N. What is missing has extent 1, so
        "NC" is a batch of vectors and "NCW" one of sequences.
    fixed_by : str
        Where height and width are fixed although the kernels would take others: the node of the source model that was
        imported for exactly these.
    """

    name: str
    height: int | None = None
    width: int | None = None
    channels: int | None = None
    layout: str = "NHWC"
    fixed_by: str = ""


@dataclass(frozen=True)
class Output:
    """A result of the whole graph.

    Attributes
    ----------
    name : str
    source : str
        Name of the value.
    layout : str
        Order of the axes of its array, as of an `Input`.
    shape : tuple of int or None
        Shape of the array behind its first axis (N), when the axes of `layout` are taken together or apart: a flattened
        result. None: the axes of `layout` as they are.
    """

    name: str
    source: str
    layout: str = "NHWC"
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Node:
    """One kernel in a graph.

    Attributes
    ----------
    name : str
        Of the node and of what it makes; unique.
    kernel : str
        Python name of the kernel, or "Concatenate": the channels of its sources side by side.
    sources : tuple of str
        Names of values.
    arguments : dict
        What the kernel's class is called with, by name.
    origin : str
        The node of the source model that it comes from, for tables and errors: "layer1.0.conv1 (Conv)".
    training : dict
        What the source model says of batch normalization that kernels do not take, for a `Trainer`. "momentum": of the
        running statistics, as in torch.nn. "statistics": whose mean and variance are taken in training instead of the
        given ones, "batch", which is the default, "image", or "none" of a kernel that is there for its factors.
    """

    name: str
    kernel: str
    sources: tuple[str, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    origin: str = ""
    training: dict[str, Any] = field(default_factory=dict)

    def with_(self, **changes: Any) -> Node:
        """A copy with other attributes."""
        return replace(self, **changes)


def check_layout(layout: str, name: str) -> None:
    """ValueError unless `layout` is letters of "NHWC", N among them, each at most once."""
    _checks.text(layout, name)
    if not layout or set(layout) - set("NHWC") or len(set(layout)) != len(layout) or layout[0] != "N":
        raise ValueError(f'{name} ("{layout}") is not "N" followed by letters of "HWC", each at most once.')


def _is_kernel(kind: object) -> bool:
    """Of the table: a graph holds names, so what a derived class adds would be lost."""
    return isinstance(kind, type) and KERNELS.get(kind.__name__) is kind


class Graph(_checks.Made):
    """Kernels and how images flow between them, to be made a `Network` of.

    Nodes stand in an order in which they can run. A graph is a plain description: arguments are kept as they are given
    (arrays are not copied), and no kernel is made before the network is.

    Attributes
    ----------
    inputs, outputs : dict of Input, dict of Output
        By name, in order.
    nodes : list of Node
        In an order in which they can run.

    Source
    ------
    python/mpscnn/graph.py; of Apple's classes the nearest is MPSNNGraph, which is not used.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> graph = mpscnn.Graph()
    >>> x = graph.input("x", channels=3, layout="NCHW")
    >>> y = graph.add("Convolution", x, weight=np.ones((8, 3, 3, 3), np.float32), padding=1, activation="relu")
    >>> graph.output(graph.add("PoolingMax", y, kernel_size=2), "y", layout="NCHW")
    >>> net = mpscnn.Network(graph)
    >>> net(np.ones((1, 3, 8, 6), np.float32)).shape
    (1, 8, 4, 3)
    """

    def __init__(self) -> None:
        self.inputs: dict[str, Input] = {}
        self.outputs: dict[str, Output] = {}
        self.nodes: list[Node] = []
        self._names: set[str] = set()
        self._shapes: dict[str, tuple[int, int, int, int]] = {}  # (N, H, W, C) of inputs, where the source has them

    # ---- building

    def unique(self, name: str) -> str:
        """`name`, with a number behind it if it is taken.

        Parameters
        ----------
        name : str

        Returns
        -------
        str

        Raises
        ------
        TypeError
            "name (int) is not a str."
        """
        _checks.text(name, "name")
        if name not in self._names:
            return name
        number = 2
        while f"{name}_{number}" in self._names:
            number += 1
        return f"{name}_{number}"

    def _take(self, name: str) -> str:
        if not _checks.text(name, "name"):
            raise ValueError("name is empty.")
        if name in self._names:
            raise ValueError(f'name ("{name}") is taken by another input or node of the graph.')
        self._names.add(name)
        return name

    def input(
        self,
        name: str = "x",
        *,
        height: int | None = None,
        width: int | None = None,
        channels: int | None = None,
        layout: str = "NHWC",
        fixed_by: str = "",
    ) -> Value:
        """Add a source of the whole graph.

        Parameters
        ----------
        name : str
        height, width : int, pixels, 1 to 16384, optional
            None: any.
        channels : int, 1 to 8192, optional
            None: as the kernels that read it take.
        layout : str
            Order of the axes of its array; see `Input`.
        fixed_by : str
            What height and width are fixed by; see `Input`.

        Returns
        -------
        Value

        Raises
        ------
        TypeError
            "height (str) is not an int."
        ValueError
            "height (0) is less than the minimum (1).", 'name ("x") is taken by another input or node of the graph.'
        """
        check_layout(layout, "layout")
        height, width, channels = (
            None if value is None else _checks.integer(value, extent, minimum=1, maximum=maximum)
            for extent, value, maximum in (
                ("height", height, EXTENT_LIMIT),
                ("width", width, EXTENT_LIMIT),
                ("channels", channels, CHANNEL_LIMIT),
            )
        )
        _checks.text(fixed_by, "fixed_by")
        self._take(name)
        self.inputs[name] = Input(name, height, width, channels, layout, fixed_by)
        return Value(name)

    def add(
        self, kernel: str | type[Kernel], *sources: Value, name: str | None = None, origin: str = "", **arguments: Any
    ) -> Value:
        """Add a kernel by its Python name or class, with what its class is called with.

        Parameters
        ----------
        kernel : str or class
            "Convolution" or mpscnn.Convolution.
        *sources : Value
            As many as the kernel has sources.
        name : str, optional
            Of the node and of what it makes; default: the kernel's, in small letters, numbered.
        origin : str
            The node of a source model that it comes from, for tables and errors.
        **arguments
            Of the kernel's class; looked at when the network is made.

        Returns
        -------
        Value

        Raises
        ------
        KeyError
            There is no such kernel.
        TypeError
            Another number of sources than the kernel has; an argument that it has not; its result is no image.
        ValueError
            A source is not of this graph; the name is taken.
        """
        kind = KERNELS[kernel] if isinstance(kernel, str) and kernel in KERNELS else kernel
        if isinstance(kind, str):
            raise KeyError(f'there is no kernel "{kind}".')
        if not _is_kernel(kind):
            _checks.refuse(kernel, "kernel", "a kernel's name or its class in mpscnn")
        row = row_of(kind)
        if len(sources) != len(row["sources"]):
            raise TypeError(
                f"{row['name']}: the number of sources ({len(sources)}) is not {len(row['sources'])}"
                f" ({', '.join(row['sources'])})."
            )
        if row["result"] == "state":
            raise TypeError(f"{row['name']}: the result is a state, which a graph has no place for.")
        try:
            inspect.signature(kind).bind(**arguments)
        except TypeError as error:
            raise TypeError(f"{row['name']}: {error}.") from None
        return self._append(row["name"], sources, name, origin, arguments)

    def concatenate(self, *sources: Value, name: str | None = None, origin: str = "") -> Value:
        """Add the channels of two or more values of equal height and width, side by side.

        Parameters
        ----------
        *sources : Value
            One is given back as it is.
        name, origin : str, optional
            As of `add`.

        Returns
        -------
        Value

        Raises
        ------
        TypeError
            "Concatenate: source (int) is not a Value of the graph."
        ValueError
            There are no sources; one is not of this graph; the name is taken.
        """
        if name is not None:
            _checks.text(name, "name")
        _checks.text(origin, "origin")
        if not sources:
            raise ValueError("concatenate: there are no sources.")
        if len(sources) == 1:
            self._check(sources[0], CONCATENATE, "source")
            return sources[0]
        return self._append(CONCATENATE, sources, name, origin, {})

    def _append(
        self, kernel: str, sources: tuple[Value, ...], name: str | None, origin: str, arguments: dict[str, Any]
    ) -> Value:
        for source in sources:
            self._check(source, kernel, "source")
        _checks.text(origin, "origin")
        taken = self._take(name if name is not None else self.unique(kernel.lower()))
        self.nodes.append(Node(taken, kernel, tuple(source.name for source in sources), arguments, origin))
        return Value(taken)

    def _check(self, value: Value, where: str, what: str) -> None:
        if not isinstance(value, Value):
            _checks.refuse(value, f"{where}: {what}", "a Value of the graph")
        if value.name not in self._names:
            raise ValueError(f'{where}: the {what} "{value.name}" is not of this graph.')

    def output(
        self, value: Value, name: str | None = None, *, layout: str = "NHWC", shape: Iterable[int] | None = None
    ) -> None:
        """Add a result of the whole graph.

        Parameters
        ----------
        value : Value
        name : str, optional
            Default: the value's.
        layout : str
            Order of the axes of its array; see `Input`.
        shape : tuple of int, optional
            Shape of the array behind its first axis; see `Output`.

        Raises
        ------
        TypeError
            "output: value (int) is not a Value of the graph.", "shape (int) is not a tuple of int."
        ValueError
            The value is not of this graph; the name is empty, or taken by another output.
        """
        self._check(value, "output", "value")
        check_layout(layout, "layout")
        name = value.name if name is None else _checks.text(name, "name")
        extents = None if shape is None else _checks.integers(shape, "shape", minimum=1)
        if not name:
            raise ValueError("name is empty.")
        if name in self.outputs:
            raise ValueError(f'name ("{name}") is taken by another output of the graph.')
        self.outputs[name] = Output(name, value.name, layout, extents)

    # ---- looking

    def node(self, name: str) -> Node:
        """The node of that name.

        Parameters
        ----------
        name : str

        Returns
        -------
        Node

        Raises
        ------
        KeyError
            'the graph has no node "conv".'
        TypeError
            "name (int) is not a str."
        """
        _checks.text(name, "name")
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f'the graph has no node "{name}".')

    def consumers(self) -> dict[str, list[Node]]:
        """Of each value the nodes that read it, once for each time they do."""
        found: dict[str, list[Node]] = {name: [] for name in [*self.inputs, *(node.name for node in self.nodes)]}
        for node in self.nodes:
            for source in node.sources:
                found[source].append(node)
        return found

    def copy(self) -> Graph:
        """A graph of its own with the same nodes; arrays are shared."""
        other = Graph()
        other.inputs, other.outputs = dict(self.inputs), dict(self.outputs)
        other.nodes, other._names = list(self.nodes), set(self._names)
        return other

    def _watch(self) -> _core._Watch:
        """While it is held, a file of the arrays that becomes shorter is an error, not the end of the process."""
        values = [value for node in self.nodes for value in node.arguments.values()]
        return _core._Watch([value for value in values if isinstance(value, np.ndarray)])

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.Graph, not made>"
        return f"Graph({', '.join(self.inputs)} -> {len(self.nodes)} nodes -> {', '.join(self.outputs)})"
