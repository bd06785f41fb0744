# SPDX-License-Identifier: Apache-2.0
"""Builder of graphs for importers. A Tensor has the axes of the source model, mapped to those of an image.

An importer walks its model and calls the functions of `mpscnn.importing.ops`, which take a Builder and Tensors and add
kernels to the graph, with the semantics of PyTorch's operators of the same name.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedOperatorError
from ..graph import ADAPTIVE_POOL, CHANNEL_LIMIT, EXTENT_LIMIT, INTERPOLATE, Graph, Node, Value

if TYPE_CHECKING:
    from ..metal import MetalFunction

# Kernels whose results have constant extents along these axes: 1, or (`_SIZED`) those of an argument.
_LEAVES_ONE = {"ReduceRow": "W", "ReduceColumn": "H", "FullyConnected": "HW"}
_EXTENTS = {"H": "height", "W": "width"}
_SIZED = ("Slice", "ResizeBilinear", "CropAndResizeBilinear")
# Kernels in graphs for all heights and widths, in the place of which those for one size may have others.
FREE_KERNELS = ("MetalFunction", ADAPTIVE_POOL, INTERPOLATE)

# Kernels whose results are no higher or wider than the largest of their sources.
_KEEPS = (
    *("Add", "BatchNormalization", "Compare", "Concatenate", "CrossChannel", "Divide", "Dropout", "FullyConnected"),
    *("GroupNormalization", "InstanceNormalization", "LogSoftMax", "Multiply", "Neuron", "Reduce", "SoftMax"),
    "Subtract",
)
_HAS_WINDOWS = ("Convolution", "DilatedPoolingMax", "PoolingAverage", "PoolingL2Norm", "PoolingMax")


class UnmappedError(Exception):
    """No kernel computes an operator, or this use of it. Importers collect these errors and report all of them."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the source model: an image, and the mapping of its axes.

    Attributes
    ----------
    value : Value
        Value in the graph.
    height, width, channels : int
        Extents of the image, for the input shapes at import.
    axes : str
        The image's axis for each axis of the tensor: "NCHW" for PyTorch's images, "NC" for vectors. The batch is first.
        Missing axes of the image have extent 1.
    flat : tuple of int or None
        Shape without the batch, if axes have been merged or split: the values are in the order of `axes`. None: one
        extent for each of `axes`.
    is_sized : bool
        Height and width are those of an adaptive pooling, the same for all inputs, although the graph may compute them
        for one size of the inputs only.
    """

    value: Value
    height: int
    width: int
    channels: int
    axes: str = "NCHW"
    flat: tuple[int, ...] | None = None
    is_sized: bool = False

    def extent(self, axis: str) -> int:
        """Return the extent of the image's axis "H", "W" or "C"."""
        return {"H": self.height, "W": self.width, "C": self.channels}[axis]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the source model, without the batch."""
        if self.flat is not None:
            return self.flat
        return tuple(self.extent(axis) for axis in self.axes[1:])

    @property
    def rank(self) -> int:
        """Number of axes, including the batch."""
        return 1 + len(self.shape)

    @property
    def size(self) -> int:
        """Number of values of each image."""
        return self.height * self.width * self.channels

    def axis(self, dim: int) -> str:
        """Return the image's axis for axis `dim` of the tensor (negative: from the last), or raise UnmappedError."""
        if not -self.rank <= dim < self.rank:
            raise UnmappedError(f"axis {dim} is not one of the {self.rank} axes")
        if self.flat is not None:
            raise UnmappedError(f"axis {dim} of a tensor whose axes were taken together or apart: {self.shape}")
        return self.axes[dim]


class Builder:
    """Writer of a Graph, node by node.

    Attributes
    ----------
    graph : Graph
    origin : str
        Origin of the nodes that are added next: name and operator in the source model.
    in_training : bool
        Whether the graph includes dropout.
    would_fix : str
        Origin of the first node that would have fixed the heights and widths of the inputs if these were free. Empty if
        none is known: some operators are read differently then.
    """

    def __init__(self, *, in_training: bool = False) -> None:
        self.graph = Graph()
        self.in_training = in_training
        self.origin = ""
        self._name = ""
        self._extents: dict[str, dict[str, int]] = {}  # of each input, at import
        self.would_fix = ""
        self._varying: dict[
            str, frozenset[str]
        ] = {}  # axes "H" and "W" that vary if the inputs' do; for nodes in order
        self._reshaped: dict[str, frozenset[str]] = {}  # of these, those of a Reshape
        self._constant: dict[str, dict[str, bool]] = {"H": {}, "W": {}}  # is_constant's cache, for inputs and nodes

    @contextlib.contextmanager
    def node(self, name: str, operator: str) -> Iterator[None]:
        """Set the origin of all nodes added in the block to a node of the source model."""
        before = self.origin, self._name
        self.origin, self._name = f"{name} ({operator})", name
        try:
            yield
        finally:
            self.origin, self._name = before

    def input(self, name: str, shape: tuple[int, ...], axes: str = "NCHW", dtype: str = "") -> Tensor:
        """Add an input of the model. `shape` is that of one image, without the batch, in the order of `axes`.

        Height and width of a graph are free until `fix` fixes them for a node that was imported for these only.

        Raise UnsupportedOperatorError if no image can have this shape.
        """
        self._forget()
        extents = dict(zip(axes[1:], shape, strict=True))
        for axis, limit in (("H", EXTENT_LIMIT), ("W", EXTENT_LIMIT), ("C", CHANNEL_LIMIT)):
            if extents.get(axis, 1) > limit:
                reason = f"shape {shape}: {extents[axis]} along {axis} is more than the maximum ({limit})"
                if axis != "C":
                    reason += "; read the model for a smaller input, and compute parts that overlap"
                raise UnsupportedOperatorError("the model", [("input", name, reason)])
        value = self.graph.input(
            name,
            height=None if "H" in axes else 1,
            width=None if "W" in axes else 1,
            channels=extents.get("C", 1),
            layout=axes,
            dtype=dtype,
        )
        self._extents[name] = extents
        return Tensor(value, extents.get("H", 1), extents.get("W", 1), extents.get("C", 1), axes)

    def fix(self) -> None:
        """Fix heights and widths of all inputs to those at import: the current node depends on them."""
        for name, extents in self._extents.items():
            spec = self.graph.inputs[name]
            if spec.fixed_by and spec.height is not None and spec.width is not None:
                continue
            self._forget()
            self.graph.inputs[name] = replace(
                spec, height=extents.get("H", 1), width=extents.get("W", 1), fixed_by=self.origin or "the importer"
            )

    def drop(self, count: int) -> None:
        """Remove the nodes behind the first `count`, of an operator that is imported in another way."""
        if len(self.graph.nodes) > count:
            self.graph._names -= {node.name for node in self.graph.nodes[count:]}
            del self.graph.nodes[count:]
            self._forget()
            self._varying.clear()

    def _forget(self) -> None:
        for known in self._constant.values():
            known.clear()

    def is_constant(self, tensor: Tensor, axis: str) -> bool:
        """Return whether the extent along "H", "W" or "C" is the same for all heights and widths of the inputs."""
        if axis == "C":
            return True
        known = self._constant[axis]
        if not known:
            known.update({name: getattr(spec, _EXTENTS[axis]) is not None for name, spec in self.graph.inputs.items()})
        for node in self.graph.nodes[len(known) - len(self.graph.inputs) :]:  # nodes added since the last call
            if node.kernel == "Reshape":
                known[node.name] = node.arguments["shape"]["HW".index(axis)] > 0
            elif node.kernel == INTERPOLATE:
                known[node.name] = known[node.sources[1]]
            elif node.kernel == ADAPTIVE_POOL:
                known[node.name] = True
            else:
                known[node.name] = (
                    any(node.kernel.startswith(name) and axis in axes for name, axes in _LEAVES_ONE.items())
                    or (node.kernel in _SIZED and node.arguments.get("size") is not None)
                    or all(known[source] for source in node.sources)
                )
        return known[tensor.value.name]

    def varying(self, tensor: Tensor) -> frozenset[str]:
        """Return the axes "H" and "W" that differ if those of the inputs do, also where the inputs are fixed."""
        if tensor.is_sized:
            return frozenset()
        known = self._varying
        for node in self.graph.nodes[len(known) :]:
            found = frozenset().union(*(self._varies(source) for source in node.sources))
            if node.kernel == INTERPOLATE:
                found = self._varies(node.sources[1])
            elif node.kernel == ADAPTIVE_POOL:
                found = frozenset()
            elif node.kernel == "Reshape":
                found &= self._reshaped.get(node.name, frozenset())
            elif node.kernel in _SIZED and node.arguments.get("size") is not None:
                found = frozenset()
            for name, axes in _LEAVES_ONE.items():
                found -= frozenset(axes if node.kernel.startswith(name) else "")
            known[node.name] = found
        return self._varies(tensor.value.name)

    def _varies(self, name: str) -> frozenset[str]:
        if name in self._extents:
            return frozenset("HW") & frozenset(self._extents[name])
        return self._varying[name]

    def never_exceeds(self, tensor: Tensor, like: Tensor) -> bool:
        """Return whether height and width are known not to exceed those of `like`, for all heights and widths."""
        nodes = {node.name: node for node in self.graph.nodes}
        wanted, seen = [tensor.value.name], {like.value.name}
        while wanted:
            name = wanted.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in nodes or not _is_no_larger(nodes[name]):
                return False
            wanted += nodes[name].sources[1:] if nodes[name].kernel == INTERPOLATE else nodes[name].sources
        return True

    def note_reshaped(self, tensor: Tensor, axes: Iterable[str]) -> None:
        """Say which axes of a Reshape vary, for `varying`."""
        self._reshaped[tensor.value.name] = frozenset(axes)

    def note_fixed(self) -> None:
        """Note in `would_fix` that the current node depends on heights and widths, unless another does."""
        self.would_fix = self.would_fix or self.origin or "the importer"

    def fix_unless_constant(self, tensor: Tensor, axes: str = "HW") -> None:
        """Call `fix` unless the extents of `tensor` along `axes` are constant."""
        if not all(self.is_constant(tensor, axis) for axis in axes):
            self.fix()

    def depend(self, tensor: Tensor) -> None:
        """Call `fix_unless_constant` for a node that is read in the same way if the extents of the inputs are free."""
        if self.varying(tensor):
            self.note_fixed()
        self.fix_unless_constant(tensor)

    def add(
        self,
        kernel: str | MetalFunction,
        *sources: Tensor,
        height: int | None = None,
        width: int | None = None,
        channels: int | None = None,
        **arguments: Any,
    ) -> Tensor:
        """Add a kernel or a Metal function. The result has the first source's axes, and its extents unless given.

        Raise UnmappedError if no image has the result's channels.
        """
        first = sources[0]
        if channels is not None and channels > CHANNEL_LIMIT:
            raise UnmappedError(
                f"its result has {channels} channels, an image at most {CHANNEL_LIMIT}; load a model without this"
                " layer, or with several layers that have parts of its outputs"
            )
        default = kernel.lower() if isinstance(kernel, str) else kernel.name
        value = self.graph.add(
            kernel,
            *(source.value for source in sources),
            name=self.graph.unique(self._name or default),
            origin=self.origin,
            **arguments,
        )
        return replace(
            first,
            value=value,
            height=first.height if height is None else height,
            width=first.width if width is None else width,
            channels=first.channels if channels is None else channels,
        )

    def interpolate(self, tensor: Tensor, like: Tensor, mode: str, align_corners: bool) -> Tensor:
        """Add a resize to the height and width of another tensor, which may be free."""
        value = self.graph.interpolate(
            tensor.value,
            like.value,
            mode=mode,
            align_corners=align_corners,
            name=self.graph.unique(self._name or "interpolate"),
            origin=self.origin,
        )
        return replace(tensor, value=value, height=like.height, width=like.width)

    def adaptive_pool(self, tensor: Tensor, size: tuple[int, int], mode: str) -> Tensor:
        """Add a pooling of h x w areas of a tensor whose height or width is free."""
        value = self.graph.adaptive_pool(
            tensor.value,
            size,
            mode=mode,
            name=self.graph.unique(self._name or "adaptive_pool"),
            origin=self.origin,
        )
        return replace(tensor, value=value, height=size[0], width=size[1])

    def in_trainer(self, tensor: Tensor, **training: Any) -> Tensor:
        """Set `training` of the node that was added last, and return its `tensor`."""
        self.graph.nodes[-1] = self.graph.nodes[-1].with_(training=training)
        return tensor

    def output(self, name: str, tensor: Tensor) -> None:
        """Add an output of the model, with the tensor's shape. A flat output fixes heights and widths."""
        if tensor.flat is not None:
            self.fix_unless_constant(tensor)
        self.graph.output(tensor.value, name, layout=tensor.axes, shape=tensor.flat)


def _is_no_larger(node: Node) -> bool:
    """Return whether a node's result is never higher or wider than the largest of its sources."""
    if node.kernel == INTERPOLATE or (node.kernel.startswith(_KEEPS) and "Gradient" not in node.kernel):
        return True
    of = node.arguments
    if node.kernel not in _HAS_WINDOWS or of.get("sub_pixel_scale_factor", 1) != 1 or of.get("clip_rect") is not None:
        return False
    kernel = of["weight"].shape[2:] if "weight" in of else _two(of["kernel_size"])
    stride = _two(of.get("stride") or (1 if "weight" in of else kernel))
    if of.get("padding", 0) == "same":
        return True
    for k, s, d, p in zip(kernel, stride, _two(of.get("dilation", 1)), _two(of.get("padding", 0)), strict=True):
        total = (2 * p if isinstance(p, int) else sum(p)) - d * (k - 1) - 1
        # The result grows by at most a pixel for each of the source: the smallest sources decide.
        more = s - 1 if of.get("ceil_mode") else 0
        if any((n + total + more) // s + 1 > n for n in range(1, 2 * s + 2)):
            return False
    return True


def _two(value: Any) -> Any:
    return (value, value) if isinstance(value, int) else value


def functions(graph: Graph) -> int:
    """Return how many layers are Metal functions: a layout that needs fewer of them has fewer axes to turn."""
    return sum(node.kernel == "MetalFunction" for node in graph.nodes)


def as_image(tensor: Tensor) -> Tensor:
    """Return a vector (N, C) with axes instead of a flat shape; raise UnmappedError for other flat tensors."""
    if tensor.flat is None:
        return tensor
    if tensor.height == tensor.width == 1 and math.prod(tensor.flat) == tensor.channels and len(tensor.flat) == 1:
        return replace(tensor, axes="NC", flat=None)
    raise UnmappedError(f"a tensor whose axes were taken together or apart: {tensor.shape}")
