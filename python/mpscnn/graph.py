# SPDX-License-Identifier: Apache-2.0
"""Graph: a description of kernels, their arguments and the images between them. Nothing is computed here."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _checks, _core, _sizes
from .kernels import KERNELS, Kernel, row_of

if TYPE_CHECKING:
    from .metal import MetalFunction

CONCATENATE = "Concatenate"
METAL_FUNCTION = "MetalFunction"
INTERPOLATE = "Interpolate"
INTERPOLATION_MODES = ("bilinear", "nearest")
ADAPTIVE_POOL = "AdaptivePool"
ADAPTIVE_POOL_MODES = ("average", "max")
# Types of a model's inputs whose arrays are converted, and "": arrays have a type of images.
INPUT_DTYPES = ("", "bfloat16", "bool", *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)))
FRACTIONS = {"uint8": 255, "uint16": 65535}  # images hold numbers of these types as fractions of the largest one
STATISTICS = ("batch", "image", "none")  # of batch normalization in training
# Max pixels along an axis of an image, and max channels: 2048 slices of four [Metal feature set tables].
EXTENT_LIMIT, CHANNEL_LIMIT = 16384, 8192


@dataclass(frozen=True)
class Value:
    """Result of a node, or an input of a graph: one image for each image of the batch."""

    name: str


@dataclass(frozen=True)
class Input:
    """An input of the graph.

    Attributes
    ----------
    name : str
    height, width : int or None
        Pixels; None: any.
    channels : int or None
        None: any number that the kernels accept.
    layout : str
        Order of the axes of its array: letters of "NHWC", each at most once, with N. Missing axes have extent 1, so
        "NC" is a batch of vectors and "NCW" one of sequences.
    fixed_by : str
        Node of the source model that was imported for this height and width only, if that is why they are fixed
        although the kernels accept others; otherwise empty.
    dtype : str
        Type of the model's input, if arrays of that type are converted: "bfloat16"; or "bool", "int8", ..., "uint64",
        and then arrays of other types are errors. Numbers of uint8 and uint16 are fractions of 255 and 65535, as in
        all images; others have their own values. "": arrays are float32, float16, uint8 or uint16.
    sizes : str
        Condition on the number of images, height and width, if the source model takes other branches for others:
        "height % 32 == 0". Of Python, with integers, "batch", "height", "width", + - * // %, comparisons, and, or, not,
        min and max. "": none.
    """

    name: str
    height: int | None = None
    width: int | None = None
    channels: int | None = None
    layout: str = "NHWC"
    fixed_by: str = ""
    dtype: str = ""
    sizes: str = ""


@dataclass(frozen=True)
class Output:
    """An output of the graph.

    Attributes
    ----------
    name : str
    source : str
        Name of the value.
    layout : str
        Order of the axes of its array, as in `Input`.
    shape : tuple of int or None
        Shape of the array without its first axis (N), if the axes of `layout` are merged or split, as in a flattened
        result. None: the axes of `layout`.
    """

    name: str
    source: str
    layout: str = "NHWC"
    shape: tuple[int, ...] | None = None


def _shown(value: Any) -> str:
    """Return a short text of an argument: an array's type and shape."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and hasattr(value, "dtype") and len(shape):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_shown(part)}" for key, part in value.items()) + "}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, repr=False)
class Node:
    """One kernel in a graph.

    Attributes
    ----------
    name : str
        Name of the node and of its value; unique.
    kernel : str
        Python name of the kernel; or "Concatenate", which joins the channels of its sources; "Interpolate", which
        resizes its first source to the height and width of the second; "AdaptivePool"; or "MetalFunction".
    sources : tuple of str
        Names of values.
    arguments : dict
        Arguments of the kernel's class, by name. Of a Metal function: "function", the `MetalFunction`; "values", a dict
        of its arguments that are not textures; "out_shape", "grid" and "threadgroup" if they were given.
    origin : str
        Node of the source model that it comes from, for tables and errors: "layer1.0.conv1 (Conv)".
    training : dict
        Properties of batch normalization that only a `Trainer` uses. "momentum": that of the running statistics, as in
        torch.nn. "statistics": mean and variance are computed over the "batch" (default) or each "image" in training;
        "none" keeps the given ones, for a kernel that only scales and shifts.
    result_dtype : str
        Type of the result's image: "uint8", which holds 0...1 in steps of 1/255, or "" for the network's.
    """

    name: str
    kernel: str
    sources: tuple[str, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    origin: str = ""
    training: dict[str, Any] = field(default_factory=dict)
    result_dtype: str = ""

    def __repr__(self) -> str:
        parts = [repr(self.name), repr(self.kernel), repr(self.sources), _shown(self.arguments)]
        others = ("origin", "training", "result_dtype")
        parts += [f"{name}={value!r}" for name in others if (value := getattr(self, name))]
        return f"Node({', '.join(parts)})"

    def with_(self, **changes: Any) -> Node:
        """Return a copy with some attributes changed."""
        return replace(self, **changes)


def check_layout(layout: str, name: str) -> None:
    """Raise ValueError unless `layout` is "N" followed by letters of "HWC", each at most once."""
    _checks.text(layout, name)
    if not layout or set(layout) - set("NHWC") or len(set(layout)) != len(layout) or layout[0] != "N":
        raise ValueError(f'{name} ("{layout}") is not "N" followed by letters of "HWC", each at most once.')


def signature_of(kind: type[Kernel]) -> inspect.Signature:
    """Return the signature of a kernel's class, inspected once, which takes 20 us."""
    found = _SIGNATURES.get(kind)
    if found is None:
        found = _SIGNATURES[kind] = inspect.signature(kind)
    return found


_SIGNATURES: dict[type, inspect.Signature] = {}


def _binder_of(kind: type[Kernel]) -> _checks.Binder:
    found = _BINDERS.get(kind)
    if found is None:
        found = _BINDERS[kind] = _checks.Binder(signature_of(kind))
    return found


_BINDERS: dict[type, _checks.Binder] = {}


def _is_kernel(kind: object) -> bool:
    """Return whether `kind` is a class of the table; a graph stores names, so derived classes would be lost."""
    return isinstance(kind, type) and KERNELS.get(kind.__name__) is kind


class Graph(_checks.Made):
    """A description of kernels and the images between them, from which a `Network` is made.

    Arguments are stored as given (arrays are not copied), and kernels are made only with the network.

    Attributes
    ----------
    inputs, outputs : dict of Input, dict of Output
        By name, in order.
    nodes : list of Node
        In execution order.

    Source
    ------
    python/mpscnn/graph.py; Apple's closest class is MPSNNGraph, which is not used.

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
        self._shapes: dict[str, tuple[int, int, int, int]] = {}  # (N, H, W, C) of inputs, if the source has them
        self._read: Any = None  # an importer's function for other sizes, not of copies: their nodes may be others

    # ---- building

    def unique(self, name: str) -> str:
        """Return `name`, with a number appended if it is taken.

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
        dtype: str = "",
        sizes: str = "",
    ) -> Value:
        """Add an input of the graph.

        Parameters
        ----------
        name : str, default "x"
        height, width : int, pixels, 1 to 16384, optional
            None: any.
        channels : int, 1 to 8192, optional
            None: any number that the kernels accept.
        layout : str, default "NHWC"
            Order of the axes of its array; see `Input`.
        fixed_by : str
            Node that fixes height and width; see `Input`.
        dtype : str
            Type of the arrays if it is none of an image: "bfloat16", "bool", "int8", ..., "uint64"; see `Input`.
        sizes : str
            Condition on batch, height and width; see `Input`.

        Returns
        -------
        Value

        Raises
        ------
        TypeError
            "height (str) is not an int."
        ValueError
            "height (0) is less than the minimum (1).", 'name ("x") is taken by another input or node of the graph.',
            'dtype ("int4") is not one of "bfloat16", "bool", ...', "sizes (height) is not a condition, ..."
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
        if _checks.text(dtype, "dtype") not in INPUT_DTYPES:
            known = ", ".join(f'"{one}"' for one in INPUT_DTYPES)
            raise ValueError(f'dtype ("{dtype}") is not one of {known}.')
        _sizes.check(_checks.text(sizes, "sizes"))
        self._take(name)
        self.inputs[name] = Input(name, height, width, channels, layout, fixed_by, dtype, sizes)
        return Value(name)

    def add(
        self,
        kernel: str | type[Kernel] | MetalFunction,
        *sources: Value,
        name: str | None = None,
        origin: str = "",
        result_dtype: str = "",
        **arguments: Any,
    ) -> Value:
        """Add a kernel by its Python name or class, or a Metal function.

        A function has one ``access::write`` texture, the result. It is called for each image of a batch, with textures
        that have the slices of that image alone: element s has channels 4 s to 4 s + 3.

        Parameters
        ----------
        kernel : str, class or MetalFunction
            "Convolution" or mpscnn.Convolution.
        *sources : Value
            The kernel's sources; of a function the textures that it reads, by index.
        name : str, optional
            Name of the node and of its value; default: the kernel's name in lower case, with a number.
        origin : str
            Node of the source model that it comes from, for tables and errors.
        result_dtype : str
            "uint8" stores the result as numbers of 8 bits, 0...1 in steps of 1/255, rounded and clamped; default: in
            the network's type.
        **arguments
            Arguments of the kernel's class; values are checked when the network is made. For a function, its arguments
            that are not textures, by name, which are constants of the network, and up to three others.
            ``out_shape`` is a function that takes the shape (N, H, W, C) of each source and returns the result's;
            default: the first source's. ``grid`` is a function that takes the shape (1, H, W, C) of one image of the
            result and returns the number of threads (x, y, z) for it; default: the width, height and slices.
            ``threadgroup`` is as in `MetalFunction`.

        Returns
        -------
        Value

        Raises
        ------
        KeyError
            There is no such kernel.
        TypeError
            The number of sources is wrong; the kernel has no such argument; its result is not an image; an argument of
            a function is missing.
        ValueError
            A source does not belong to this graph; the name is taken.
        """
        if _checks.text(result_dtype, "result_dtype") not in ("", "uint8"):
            raise ValueError(f'result_dtype ("{result_dtype}") is neither "uint8" nor "", the network\'s.')
        if isinstance(kernel, _core._MetalFunction):
            given = kernel._node_arguments(arguments, len(sources))
            default = self.unique(kernel.name) if name is None else name
            return self._append(METAL_FUNCTION, sources, default, origin, given, result_dtype)
        kind = KERNELS[kernel] if isinstance(kernel, str) and kernel in KERNELS else kernel
        if isinstance(kind, str):
            raise KeyError(f'there is no kernel "{kind}".')
        if not _is_kernel(kind):
            _checks.refuse(kernel, "kernel", "a kernel's name or its class in mpscnn, or a MetalFunction")
        row = row_of(kind)
        if len(sources) != len(row["sources"]):
            raise TypeError(
                f"{row['name']}: the number of sources ({len(sources)}) is not {len(row['sources'])}"
                f" ({', '.join(row['sources'])})."
            )
        if row["result"] == "state":
            raise TypeError(f"{row['name']}: the result is a state, which a graph has no place for.")
        try:
            _binder_of(kind).bind(**arguments)
        except TypeError as error:
            raise TypeError(f"{row['name']}: {error}.") from None
        return self._append(row["name"], sources, name, origin, arguments, result_dtype)

    def concatenate(self, *sources: Value, name: str | None = None, origin: str = "") -> Value:
        """Add a concatenation of the channels of two or more values of equal height and width.

        Parameters
        ----------
        *sources : Value
            A single source is returned as it is.
        name, origin : str, optional
            As in `add`.

        Returns
        -------
        Value

        Raises
        ------
        TypeError
            "Concatenate: source (int) is not a Value of the graph."
        ValueError
            There are no sources; one does not belong to this graph; the name is taken.
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

    def interpolate(
        self,
        value: Value,
        like: Value,
        *,
        mode: str = "bilinear",
        align_corners: bool = False,
        name: str | None = None,
        origin: str = "",
    ) -> Value:
        """Add a resize to the height and width of another value, at any extents of both.

        The kernels depend on the extents: Pad and CropAndResizeBilinear; ResizeBilinear with `align_corners`;
        UpsamplingNearest and PoolingAverage for "nearest"; a copy if the extents are equal.

        Parameters
        ----------
        value, like : Value
            Only the height and width of `like` are used.
        mode : str, default "bilinear"
            "bilinear" or "nearest", as PyTorch's interpolate: nearest takes pixel floor(i * H / h).
        align_corners : bool, default False
            Of "bilinear": the outer pixels of source and result have the same centres, instead of the same edges.
        name, origin : str, optional
            As in `add`.

        Returns
        -------
        Value

        Raises
        ------
        TypeError
            "Interpolate: like (int) is not a Value of the graph."
        ValueError
            'Interpolate: mode ("cubic") is neither "bilinear" nor "nearest".', align_corners with "nearest"; a value
            does not belong to this graph; the name is taken.
        """
        if _checks.text(mode, "mode") not in INTERPOLATION_MODES:
            raise ValueError(f'{INTERPOLATE}: mode ("{mode:.100}") is neither "bilinear" nor "nearest".')
        if _checks.boolean(align_corners, "align_corners") and mode == "nearest":
            raise ValueError(f'{INTERPOLATE}: align_corners (True) is an option of "bilinear", and mode is "nearest".')
        self._check(value, INTERPOLATE, "value")
        self._check(like, INTERPOLATE, "like")
        arguments = {"mode": mode, "align_corners": align_corners}
        return self._append(INTERPOLATE, (value, like), name, origin, arguments)

    def adaptive_pool(
        self,
        value: Value,
        output_size: int | tuple[int, int],
        *,
        mode: str = "average",
        name: str | None = None,
        origin: str = "",
    ) -> Value:
        """Add the mean or max of each of h x w areas, at any extents of the source.

        The kernels depend on the extents: PoolingAverage or PoolingMax where the areas are windows, reductions for
        areas of different extents, a copy if the extents are equal.

        Parameters
        ----------
        value : Value
        output_size : int or (int, int)
            Height and width of the result, in pixels, as PyTorch's adaptive_avg_pool2d.
        mode : str, default "average"
            "average" or "max".
        name, origin : str, optional
            As in `add`.

        Returns
        -------
        Value

        Raises
        ------
        ValueError
            'AdaptivePool: mode ("sum") is neither "average" nor "max".', "AdaptivePool: output_size (0, 7) is not in
            [1, 16384]."; the value does not belong to this graph; the name is taken. When a network is called, if areas
            have different extents and a row or column of them has more than 8192 channels together.
        """
        if _checks.text(mode, "mode") not in ADAPTIVE_POOL_MODES:
            raise ValueError(f'{ADAPTIVE_POOL}: mode ("{mode:.100}") is neither "average" nor "max".')
        size = 2 * (output_size,) if isinstance(output_size, int) else _checks.integers(output_size, "output_size")
        if len(size) != 2 or not all(1 <= extent <= EXTENT_LIMIT for extent in size):
            raise ValueError(f"{ADAPTIVE_POOL}: output_size {size} is not in [1, {EXTENT_LIMIT}].")
        self._check(value, ADAPTIVE_POOL, "value")
        return self._append(ADAPTIVE_POOL, (value,), name, origin, {"output_size": size, "mode": mode})

    def _append(
        self,
        kernel: str,
        sources: tuple[Value, ...],
        name: str | None,
        origin: str,
        arguments: dict[str, Any],
        result_dtype: str = "",
    ) -> Value:
        for source in sources:
            self._check(source, kernel, "source")
        _checks.text(origin, "origin")
        taken = self._take(name if name is not None else self.unique(kernel.lower()))
        names = tuple(source.name for source in sources)
        self.nodes.append(Node(taken, kernel, names, arguments, origin, result_dtype=result_dtype))
        return Value(taken)

    def _check(self, value: Value, where: str, what: str) -> None:
        if not isinstance(value, Value):
            _checks.refuse(value, f"{where}: {what}", "a Value of the graph")
        if value.name not in self._names:
            raise ValueError(f'{where}: the {what} "{value.name}" is not of this graph.')

    def output(
        self, value: Value, name: str | None = None, *, layout: str = "NHWC", shape: Iterable[int] | None = None
    ) -> None:
        """Add an output of the graph.

        Parameters
        ----------
        value : Value
        name : str, optional
            Default: the value's name.
        layout : str, default "NHWC"
            Order of the axes of its array; see `Input`.
        shape : tuple of int, optional
            Shape of the array without its first axis; see `Output`.

        Raises
        ------
        TypeError
            "output: value (int) is not a Value of the graph.", "shape (int) is not a tuple of int."
        ValueError
            The value does not belong to this graph; the name is empty, or taken by another output.
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

    # ---- lookup

    def node(self, name: str) -> Node:
        """Return the node with this name.

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
        """Return a dict from each value's name to the nodes that read it, once for each read."""
        found: dict[str, list[Node]] = {name: [] for name in [*self.inputs, *(node.name for node in self.nodes)]}
        for node in self.nodes:
            for source in node.sources:
                found[source].append(node)
        return found

    def copy(self) -> Graph:
        """Return a new graph with the same nodes; arrays are shared."""
        other = Graph()
        other.inputs, other.outputs = dict(self.inputs), dict(self.outputs)
        other.nodes, other._names, other._shapes = list(self.nodes), set(self._names), dict(self._shapes)
        return other

    def _watch(self) -> _core._Watch:
        """Return a guard: while it is alive, truncating a mapped file of the arrays is an error, not a crash."""
        values = [
            value
            for node in self.nodes
            for value in (*node.arguments.values(), *node.arguments.get("values", {}).values())
        ]
        return _core._Watch([value for value in values if isinstance(value, np.ndarray)])

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.Graph, not made>"
        return f"Graph({', '.join(self.inputs)} -> {len(self.nodes)} nodes -> {', '.join(self.outputs)})"
