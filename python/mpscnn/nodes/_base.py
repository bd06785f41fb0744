# SPDX-License-Identifier: Apache-2.0
"""Base classes of nodes, their properties and arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, SupportsIndex, TypeAlias, cast

from .. import _checks, _core
from ..padding_policy import PaddingPolicy, _placement

if TYPE_CHECKING:
    from ..image import Image

Size: TypeAlias = "SupportsIndex | Sequence[SupportsIndex]"
Padding: TypeAlias = "SupportsIndex | Sequence[Any] | str | PaddingPolicy"
Format = Literal["none", "uint8", "uint16", "float16", "float32"]
Allocator: TypeAlias = "Callable[[tuple[int, int, int, int], str], Image]"
Handler: TypeAlias = "Callable[[FilterNode, FilterNode, ImageNode, ImageNode], object]"

# MPSImageFeatureChannelFormat, in Apple's order.
FORMATS = ("none", "uint8", "uint16", "float16", "float32")
_CLASSES: dict[str, type[_Object]] = {}


class _Object:
    """An object of MPS. Two of them are equal if they are the same object of MPS."""

    __slots__ = ("_object",)
    _object: _core._GraphObject

    def __init_subclass__(cls, prefix: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if prefix:
            cls.apple_class = prefix + cls.__name__
            _CLASSES[cls.apple_class] = cls

    apple_class: ClassVar[str] = ""
    """Apple's name of the class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and self._object.identity == other._object.identity

    def __hash__(self) -> int:
        return hash(self._object.identity)

    def __repr__(self) -> str:
        label = getattr(self, "label", None)
        return f"<mpscnn.nodes.{type(self).__name__}{f' {label!r}' if label else ''}>"


def _wrapped(found: _core._GraphObject | None) -> Any:
    """Return the public object of one that MPS returned."""
    if found is None:
        return None
    made = object.__new__(_CLASSES[found.apple_class])
    made._object = found
    return made


def _property(name: str, convert: Callable[[Any, str], Any], text: str) -> property:
    """Return a property of Apple's; `name` is Apple's name."""
    python = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)

    def get(self: _Object) -> Any:
        return convert(self._object.get(name), python)

    def set(self: _Object, value: Any) -> None:
        self._object.set(name, convert(value, f"{type(self).__name__}: {python}"))

    return property(get, set, doc=text)


def _flag(name: str, text: str) -> property:
    def convert(value: Any, shown: str) -> bool:
        return bool(value) if isinstance(value, int) else _checks.boolean(value, shown)

    return _property(name, convert, text)


def _real(name: str, text: str) -> property:
    return _property(name, _checks.real, text)


def _integer(name: str, text: str) -> property:
    return _property(name, lambda value, shown: _checks.integer(value, shown, 0), text)


def _choice(name: str, choices: Sequence[str], text: str) -> property:
    """Return a property whose values are numbers in Apple's interface."""
    own = _integer(name, text)
    python = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)

    def get(self: _Object) -> str:
        return choices[own.fget(self)]  # type: ignore[misc]

    def set(self: _Object, value: str) -> None:
        own.fset(self, _index(value, f"{type(self).__name__}: {python}", choices))  # type: ignore[misc]

    return property(get, set, doc=text)


def _index(value: Any, name: str, choices: Sequence[str]) -> int:
    if _checks.text(value, name) not in choices:
        raise ValueError(f'{name} ("{value}") is not one of {", ".join(choices)}.')
    return choices.index(value)


class _Value(_Object):
    """An image or a state between filters."""

    __slots__ = ()

    @property
    def label(self) -> str | None:
        """Label of the handle, by which graphs name their inputs and results; None: no handle."""
        handle = self._object.get("handle")
        return None if handle is None else cast("str | None", handle.get("label"))

    @label.setter
    def label(self, label: str | None) -> None:
        handle = None if label is None else _core._graph_handle(_checks.text(label, "label"))
        self._object.set("handle", handle)


class ImageNode(_Value, prefix="MPSNN"):
    """MPSNNImageNode: an image of a graph; made by the program, an input.

    Parameters
    ----------
    label : str, optional
        Name of the input.

    Raises
    ------
    TypeError
        "label (int) is not a str."
    """

    __slots__ = ()

    def __init__(self, label: str | None = None) -> None:
        handle = None if label is None else _core._graph_handle(_checks.text(label, "label"))
        self._object = _core._GraphObject(self.apple_class, "initWithHandle:", handle)

    format = _choice("format", FORMATS, 'Element type of the image: "float32", ...; "none": the format of the graph.')
    stop_gradient = _flag("stopGradient", "Whether training_graph() computes no gradient beyond this image.")
    synchronize_resource = _flag("synchronizeResource", "Whether the CPU's copy of the image is updated.")

    @property
    def export_from_graph(self) -> bool:
        """Whether calls of the graph return the image, after the result."""
        return bool(self._object.get("exportFromGraph"))

    @export_from_graph.setter
    def export_from_graph(self, wanted: bool) -> None:
        self._object.set("exportFromGraph", _checks.boolean(wanted, "export_from_graph"))
        if wanted and self.image_allocator is None:
            self._object.set("imageAllocator", _core._graph_allocator())

    @property
    def image_allocator(self) -> Allocator | None:
        """Function that returns the image of each encode; None: a new one.

        It is called as ``image_allocator((N, H, W, C), dtype)``, with "float32", "float16", "uint16" or "uint8", and
        returns an `mpscnn.Image` of that shape and dtype. Results of a graph, which are not exported, come from its
        `mpscnn.MPSNNGraph.image_allocator`. The property is read when a graph is made.
        """
        return cast("Allocator | None", _allocator_of(self._object, "imageAllocator"))

    @image_allocator.setter
    def image_allocator(self, allocator: Allocator | None) -> None:
        name = "ImageNode: image_allocator"
        self._object.set("imageAllocator", _allocator(allocator, name, self.export_from_graph))


class StateNode(_Value, prefix="MPSNN"):
    """MPSNNStateNode: a state of a graph, such as that of a convolution for its gradient, or labels.

    Filters have states as ``result_state``; programs make none.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} cannot be made; it is the result_state of a filter.")

    export_from_graph = _flag("exportFromGraph", "Whether MPSNNGraph.encode() returns the state.")
    synchronize_resource = _flag("synchronizeResource", "Whether the CPU's copy of the state is updated.")


class GradientStateNode(StateNode, prefix="MPSNN"):
    """MPSNNGradientStateNode: what a gradient filter needs of its forward filter."""

    __slots__ = ()


class ConvolutionGradientStateNode(GradientStateNode, prefix="MPSCNN"):
    """MPSCNNConvolutionGradientStateNode: of a convolution; exported, it has the gradients of its weights."""

    __slots__ = ()


class ConvolutionTransposeGradientStateNode(ConvolutionGradientStateNode, prefix="MPSCNN"):
    """MPSCNNConvolutionTransposeGradientStateNode: of a transposed convolution."""

    __slots__ = ()


class BinaryGradientStateNode(StateNode, prefix="MPSNN"):
    """MPSNNBinaryGradientStateNode: of a filter of two images."""

    __slots__ = ()


class ArithmeticGradientStateNode(BinaryGradientStateNode, prefix="MPSNN"):
    """MPSNNArithmeticGradientStateNode: of a sum, difference or product."""

    __slots__ = ()


class MultiaryGradientStateNode(StateNode, prefix="MPSNN"):
    """MPSNNMultiaryGradientStateNode: of a filter of several images."""

    __slots__ = ()


class LabelsNode(StateNode, prefix="MPSNN"):
    """MPSNNLabelsNode: the labels of a loss, which calls of the graph take as `mpscnn.LossLabels`."""

    __slots__ = ()


Source: TypeAlias = "ImageNode | FilterNode"


def _allocator_of(found: _core._GraphObject, name: str) -> Any:
    """Return the program's function in a property."""
    allocator = found.get(name)
    return None if allocator is None else allocator.own_allocator()


def _allocator(function: Any, name: str, is_taken: bool) -> Any:
    """Return the object for a property; `is_taken`: the program gets the image."""
    if function is None:
        return _core._graph_allocator() if is_taken else None
    if not callable(function):
        _checks.refuse(function, name, "callable")
    return _core._graph_own_allocator(function, name.rpartition(" ")[2])


def _image(node: Any, name: str) -> Any:
    """Return the object of an image node, or of a filter's result."""
    if isinstance(node, FilterNode):
        return node._object.get("resultImage")
    return _checks.instance_of(node, name, ImageNode, last="filter node")._object


def _pair(value: Any, name: str, minimum: int = 1) -> tuple[int, int]:
    """Return (height, width) of an int or a pair."""
    if hasattr(type(value), "__index__"):
        number = _checks.integer(value, name, minimum)
        return number, number
    numbers = _checks.integers(value, name, minimum)
    if len(numbers) != 2:
        raise ValueError(f"{name} {numbers} is not an int or a pair (height, width).")
    return numbers[0], numbers[1]


def _policy(
    padding: Any,
    who: str,
    ceil_mode: bool = False,
    output_padding: Size = 0,
    count_include_pad: bool | None = None,
) -> Any:
    """Return the padding policy of a parameter `padding`."""
    name = f"{who}: padding"
    if isinstance(padding, str):
        return _core._graph_policy(padding)
    if hasattr(type(padding), "destination"):
        return _core._graph_own_padding(padding)
    if isinstance(padding, _core._GraphObject):  # of another node
        return padding
    if hasattr(type(padding), "__index__"):
        sides: tuple[int, ...] = (_checks.integer(padding, name, 0),) * 4
    else:
        pairs = [one if hasattr(type(one), "__index__") else tuple(one) for one in padding]
        nested = [one if isinstance(one, tuple) else (one, one) for one in pairs]
        if len(nested) != 2 or any(len(one) != 2 for one in nested):
            raise ValueError(f"{name} ({padding!r}) is not an int, a pair (height, width) or two pairs of sides.")
        sides = tuple(_checks.integer(side, name, 0) for one in nested for side in one)
    extra = _pair(output_padding, f"{who}: output_padding", 0)
    if count_include_pad and sides[0::2] != sides[1::2]:
        raise ValueError(f"{who}: count_include_pad (True) needs equal padding on opposite sides.")
    return _core._graph_pixel_padding(sides, ceil_mode, extra, count_include_pad)


def _given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that differ from their defaults (None and 1)."""
    return {name: value for name, value in arguments.items() if value is not None and not _is_one(value)}


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 1


class FilterNode(_Object, prefix="MPSNN"):
    """MPSNNFilterNode: base class of all nodes with a kernel; cannot be made.

    Parameters of several nodes
    ---------------------------
    source : ImageNode or FilterNode
        The image that the kernel reads.
    padding : int, pair, ((top, bottom), (left, right)), str or PaddingPolicy, optional
        Pixels around the source, as in PyTorch; "same", "valid", "full", "tensorflow_average_pooling",
        "tensorflow_average_pooling_valid": MPS's own policies; None: the node's own, which is "same" with the
        remainder at the top left for convolutions and poolings.

    Raises
    ------
    TypeError
        "PoolingMaxNode: source (int) is not an ImageNode or filter node."
    ValueError
        'padding ("all") is not one of "same", "valid", "full", ...', and for values that MPS refuses.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} cannot be made; make an object of a derived class.")

    def _make(self, selector: str, *arguments: Any) -> None:
        self._object = _core._GraphObject(self.apple_class, selector, *arguments)

    def _source(self, node: Any, name: str = "source") -> Any:
        return _image(node, f"{type(self).__name__}: {name}")

    def _set_padding(self, padding: Any, ceil_mode: bool = False, **options: Any) -> None:
        if padding is None and not ceil_mode:
            return
        own = 0 if padding is None else padding
        self._object.set("paddingPolicy", _policy(own, type(self).__name__, ceil_mode, **options))

    @property
    def result_image(self) -> ImageNode:
        """The image that the kernel writes."""
        return cast(ImageNode, _wrapped(self._object.get("resultImage")))

    @property
    def result_state(self) -> StateNode | None:
        """The state that the kernel leaves for its gradient; None if there is none."""
        return cast("StateNode | None", _wrapped(self._object.get("resultState")))

    @property
    def result_states(self) -> tuple[StateNode, ...]:
        """All states that the kernel leaves."""
        return tuple(_wrapped(one) for one in self._object.get("resultStates") or ())

    @property
    def label(self) -> str | None:
        """Name of the kernel, for debuggers and traces."""
        return cast("str | None", self._object.get("label"))

    @label.setter
    def label(self, label: str | None) -> None:
        self._object.set("label", None if label is None else _checks.text(label, "label"))

    def gradient_filters(self, *source_gradients: Source) -> tuple[GradientFilterNode, ...]:
        """Return the gradient nodes of this node: one for each of its sources that has a gradient.

        Parameters
        ----------
        *source_gradients : ImageNode or FilterNode
            Gradients of the results of this node.
        """
        images = [self._source(one, "source_gradients") for one in source_gradients]
        return tuple(_wrapped(one) for one in self._object.send("gradientFiltersWithSources:", images))

    def gradient_filter(self, source_gradient: Source) -> GradientFilterNode:
        """Return the gradient node with respect to the first source.

        Parameters
        ----------
        source_gradient : ImageNode or FilterNode
            Gradient of ``result_image``.
        """
        return self.gradient_filters(source_gradient)[0]

    def training_graph(
        self, source_gradient: Source | None = None, node_handler: Handler | None = None
    ) -> tuple[FilterNode, ...]:
        """Make the gradient nodes of this node and of all that lead to it.

        Parameters
        ----------
        source_gradient : ImageNode or FilterNode, optional
            Gradient of ``result_image``. None: this node is a `LossNode`, whose result is a gradient, or an
            `InitialGradientNode`.
        node_handler : callable(gradient, forward, source, source_gradient), optional
            Called for each gradient node that is made, with its forward node and the images that it reads.

        Returns
        -------
        tuple of FilterNode
            The last nodes: those whose gradients nothing reads. Graphs of their result images compute all gradients.
        """
        given = None if source_gradient is None else self._source(source_gradient, "source_gradient")
        handler = None
        if node_handler is not None:

            def handler(*found: _core._GraphObject) -> None:
                node_handler(*(_wrapped(one) for one in found))

        return tuple(_wrapped(one) for one in self._object.training_graph(given, handler))


class GradientFilterNode(FilterNode, prefix="MPSNN"):
    """MPSNNGradientFilterNode: base class of gradient nodes; cannot be made.

    Parameters of all gradient nodes
    --------------------------------
    source_gradient : ImageNode or FilterNode
        Gradient of the forward node's result.
    source_image : ImageNode or FilterNode
        The forward node's source.
    gradient_state : GradientStateNode
        The forward node's ``result_state``.

    `FilterNode.gradient_filter` makes them with the forward node's arguments.
    """

    __slots__ = ()

    def _gradient(self, source_gradient: Any, source_image: Any, gradient_state: Any) -> tuple[Any, Any, Any]:
        name = f"{type(self).__name__}: gradient_state"
        state = _checks.instance_of(gradient_state, name, StateNode)
        return (
            self._source(source_gradient, "source_gradient"),
            self._source(source_image, "source_image"),
            state._object,
        )


class _PlainNode(FilterNode):
    """A filter whose only argument is its source."""

    __slots__ = ()

    def __init__(self, source: Source) -> None:
        self._make("initWithSource:", self._source(source))


class _PlainGradientNode(GradientFilterNode):
    __slots__ = ()

    def __init__(self, source_gradient: Source, source_image: Source, gradient_state: StateNode) -> None:
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:",
            *self._gradient(source_gradient, source_image, gradient_state),
        )


@functools.cache
def classes() -> dict[str, type[FilterNode]]:
    """Return all filter nodes that can be made, by Apple's name.

    Returns
    -------
    dict of str to class
    """
    kinds = (kind for kind in _CLASSES.values() if issubclass(kind, FilterNode))
    return {kind.apple_class: kind for kind in kinds if kind.__init__ is not FilterNode.__init__}


def _destination(
    policy: Any,
    kernel: str,
    kernel_size: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    sources: list[Any],
    suggested: Any,
) -> tuple[int, ...]:
    """Return the answer of a program's padding policy. Called by the core."""
    window = _Window(kernel_size, stride, dilation)
    return _placement(f"{kernel}: padding policy {type(policy).__name__}", policy, window, sources, suggested)


class _Window:
    """The properties of a graph's kernel that a padding policy may read."""

    def __init__(self, kernel_size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> None:
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
