# SPDX-License-Identifier: Apache-2.0
"""Call: a node of an ONNX graph with its attributes and inputs, passed to the operators' functions."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import shape
from .extent import BATCH, Extent, extents, settled
from .reading import Source, array_of

if TYPE_CHECKING:
    from onnx import NodeProto

Value: TypeAlias = "Tensor | NDArray[Any]"

_REQUIRED: Any = object()

# Why extents that a model takes from values of its inputs are refused, and what to do.
OF_VALUES = (
    "that depends on values of an input, while the extents of a network follow from those of its images: make it a"
    " constant of the model, an initializer in place of the input, or compute it by Shape from another image"
)


@dataclass(frozen=True)
class Alone:
    """A computed value that has no axis of the batch in the model, whose batch is 1: here each image has its own."""

    tensor: Tensor

    @property
    def rank(self) -> int:
        """Number of axes in the model."""
        return self.tensor.rank - 1

    def as_operand(self, builder: Builder, rank: int) -> Tensor:
        """Return the value as a tensor of `rank` axes that broadcasts as the value does."""
        if self.rank >= rank:
            raise UnmappedError(f"a value of {self.rank} axes that is computed of all images, beside one of {rank}")
        missing = rank - self.tensor.rank
        return shape.reshape(builder, self.tensor, [1] * missing + list(self.tensor.shape)) if missing else self.tensor


@dataclass(frozen=True)
class Moved:
    """A tensor whose batch is at another place, or taken together with other axes, in the model.

    Attributes
    ----------
    tensor : Tensor
        The batch first; if `merged`, followed by the axis that the model takes together with it.
    place : int
        Axis of the batch in the model.
    behind : bool
        Whether the axis that is taken together with the batch is in front of it: the batch varies faster.
    """

    tensor: Tensor
    place: int
    merged: bool
    behind: bool = False

    @property
    def rank(self) -> int:
        """Number of axes in the model."""
        return self.tensor.rank - self.merged

    @property
    def images(self) -> int:
        """Number of parts of each image that the model's batch has."""
        return self.tensor.shape[0] if self.merged else 1

    @property
    def inner(self) -> tuple[int, ...]:
        """Extents of the other axes."""
        return self.tensor.shape[1:] if self.merged else self.tensor.shape


class Call:
    """A node with its inputs.

    Attributes
    ----------
    operator, name : str
    opset : int
        Version of ONNX's operators that the model imports.
    values : list of Tensor, array or None
        Inputs in order; None: omitted.
    batch : int or None
        Batch size that the model declares; None: any.
    wanted : list of bool
        For each output, whether it is read.
    readers : tuple of str
        Operators of the nodes that read the first output; "" for a Cast to integers or truth values, and for an output
        of the model.
    is_whole : bool
        Whether the first input has integers or truth values.
    types : tuple of str
        For each input, "int64", ... or "bool" if it is computed and has these; "": floats, or a constant.
    repeated : tuple of bool
        For each input, whether it is a constant whose first axis the model has once for each image of the batch.
    """

    def __init__(
        self,
        node: NodeProto,
        name: str,
        source: Source,
        builder: Builder,
        values: list[Value | None],
        batch: int | None,
        wanted: list[bool],
        readers: tuple[str, ...],
        is_whole: bool = False,
        types: Sequence[str] = (),
        repeated: Sequence[bool] = (),
    ) -> None:
        self.operator, self.name, self.opset = node.op_type, name, source.opset
        self.source, self.builder, self.values = source, builder, values
        self.batch, self.wanted, self.readers, self.is_whole = batch, wanted, readers, is_whole
        self.types, self.repeated = tuple(types), tuple(repeated)
        self._node = node
        self._attributes = {attribute.name: attribute for attribute in node.attribute}

    def of_floats(self, operator: str, values: list[Value | None]) -> Call:
        """Return the call of an operator of floats with these inputs, in place of one of numbers."""
        other = copy.copy(self)
        other.operator, other.values, other.is_whole, other.types = operator, values, False, ()
        other.opset = self.integer("opset", self.opset)  # that of the operator that was quantized
        return other

    def with_values(self, values: list[Value | None]) -> Call:
        """Return the same call of inputs with other axes."""
        other = copy.copy(self)
        other.values = values
        return other

    def with_attribute(self, name: str, value: int | list[int]) -> Call:
        """Return the call with another value of an attribute."""
        from onnx import helper

        other = copy.copy(self)
        other._attributes = self._attributes | {name: helper.make_attribute(name, value)}
        return other

    # ---- attributes

    def has(self, name: str) -> bool:
        """Return whether the node has this attribute."""
        return name in self._attributes

    def _attribute(self, name: str, kind: int, default: Any) -> Any:
        attribute = self._attributes.get(name)
        if attribute is None:
            if default is _REQUIRED:
                raise InvalidModelError(f"{self.name} ({self.operator}): the attribute {name} is missing.")
            return None
        if attribute.type != kind:
            raise InvalidModelError(f"{self.name} ({self.operator}): the attribute {name} has another type.")
        return attribute

    def integer(self, name: str, default: int = _REQUIRED) -> int:
        """Return an integer attribute."""
        attribute = self._attribute(name, 2, default)
        return default if attribute is None else int(attribute.i)

    def real(self, name: str, default: float = _REQUIRED) -> float:
        """Return a float attribute."""
        attribute = self._attribute(name, 1, default)
        return default if attribute is None else float(attribute.f)

    def text(self, name: str, default: str = _REQUIRED) -> str:
        """Return a string attribute."""
        attribute = self._attribute(name, 3, default)
        return default if attribute is None else bytes(attribute.s).decode("utf-8", "replace")

    @overload
    def integers(self, name: str) -> list[int]: ...
    @overload
    def integers(self, name: str, default: list[int]) -> list[int]: ...
    @overload
    def integers(self, name: str, default: None) -> list[int] | None: ...
    def integers(self, name: str, default: list[int] | None = _REQUIRED) -> list[int] | None:
        """Return an attribute that is a list of integers."""
        attribute = self._attribute(name, 7, default)
        return default if attribute is None else [int(v) for v in attribute.ints]

    def reals(self, name: str) -> list[float] | None:
        """Return an attribute that is a list of floats; None: omitted."""
        attribute = self._attribute(name, 6, None)
        return None if attribute is None else [float(v) for v in attribute.floats]

    def tensor_attribute(self, name: str) -> NDArray[Any] | None:
        """Return a tensor attribute; None: omitted."""
        attribute = self._attribute(name, 4, None)
        return None if attribute is None else array_of(attribute.t, self.source)

    # ---- inputs

    def any_value(self, index: int) -> Any:
        """Return an input, also one that is Alone or Moved; None: omitted."""
        return self.value(index)

    def value(self, index: int) -> Value | None:
        """Return an input; None: omitted."""
        return self.values[index] if index < len(self.values) else None

    def tensor(self, index: int = 0) -> Tensor:
        """Return a computed input; raise UnmappedError for constants."""
        value = self.value(index)
        if isinstance(value, Tensor):
            return value
        if value is None:
            raise InvalidModelError(f"{self.name} ({self.operator}): input {index} is missing.")
        raise UnmappedError(f"input {index} is a constant")

    @overload
    def array(self, index: int, what: str) -> NDArray[Any]: ...
    @overload
    def array(self, index: int, what: str, default: None) -> NDArray[Any] | None: ...
    def array(self, index: int, what: str, default: None = _REQUIRED) -> NDArray[Any] | None:
        """Return a constant input; raise UnmappedError for computed ones."""
        value = self.value(index)
        if value is None:
            if default is _REQUIRED:
                raise InvalidModelError(f"{self.name} ({self.operator}): the input {what} is missing.")
            return default
        if isinstance(value, Tensor):
            raise UnmappedError(f"{what} that are computed")
        return settled(value, self.builder.fix)

    def weights(self, index: int, what: str) -> NDArray[Any]:
        """Return a constant input of a floating-point type."""
        return self._floats(self.array(index, what), what)

    def weights_or_none(self, index: int, what: str) -> NDArray[Any] | None:
        """Return a constant input of a floating-point type; None: omitted."""
        array = self.array(index, what, None)
        return None if array is None else self._floats(array, what)

    @staticmethod
    def _floats(array: NDArray[Any], what: str) -> NDArray[Any]:
        if array.dtype.kind != "f":
            raise UnmappedError(f"{what} of type {array.dtype}")
        return array.astype(np.float32) if array.dtype == np.float64 else array

    def operand(self, index: int) -> Tensor | NDArray[Any]:
        """Return an operand of arithmetic: a Tensor, or a constant, with extent 1 along the batch if it is repeated."""
        value = self.value(index)
        if value is None:
            raise InvalidModelError(f"{self.name} ({self.operator}): input {index} is missing.")
        if isinstance(value, Tensor):
            if self._old_axis(index) is not None:
                raise UnmappedError("a computed operand that broadcasts from an axis on, as before version 7")
            return value
        array = settled(value, self.builder.fix)
        axis = self._old_axis(index)
        if axis is not None:
            array = array.reshape(array.shape + (1,) * (self.tensor().rank - axis % self.tensor().rank - array.ndim))
        rank = max((v.rank for v in self.values if isinstance(v, Tensor)), default=0)
        same = array.ndim == rank > 0 and self.batch is not None and array.shape[0] == self.batch > 1
        if same and (array == array[:1]).all():
            return array[:1]
        return array

    def _old_axis(self, index: int) -> int | None:
        """Return the axis from which on the second operand broadcasts, in versions before 7; None: the last axes."""
        is_old = self.opset < 7 and index == 1 and self.has("axis") and self.integer("broadcast", 0)
        return self.integer("axis") if is_old else None

    def numbers(self, index: int, attribute: str | None, what: str) -> list[int] | None:
        """Return integers of an attribute or, in newer versions, of an input; None: omitted."""
        if attribute is not None and self.has(attribute):
            return self.integers(attribute)
        array = self.array(index, what, None)
        if array is None:
            return None
        if array.dtype.kind not in "iu":
            raise InvalidModelError(f"{self.name} ({self.operator}): {what} of type {array.dtype}.")
        return [int(v) for v in array.ravel()]

    def type_of(self, index: int) -> str:
        """Return the type of an input, constant or computed: "int64", ... or "bool"; "" for floats."""
        value = self.value(index)
        if isinstance(value, np.ndarray):
            return value.dtype.name if value.dtype.kind in "iub" else ""
        return self.types[index] if index < len(self.types) else ""

    def only_first_output(self) -> None:
        """Raise UnmappedError if outputs other than the first are read."""
        if any(self.wanted[1:]):
            raise UnmappedError("more than its first output is used")

    def evaluated(self, arrays: list[NDArray[Any] | None]) -> list[NDArray[Any]]:
        """Return the results of the node for constants, by ONNX's reference implementation."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        names = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
        results = [f"y{i}" for i in range(len(self.wanted))]
        node = helper.make_node(self.operator, names, results)
        node.attribute.extend(self._node.attribute)
        opset = [helper.make_opsetid("", self.opset)]
        feeds = {name: array for name, array in zip(names, arrays, strict=True) if name}
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
            if array is not None
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in results]
        graph = helper.make_graph([node], "node", inputs, outputs)
        model = helper.make_model(graph, opset_imports=opset)
        return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]

    # ---- shared by several operators

    def shape_of(self, tensor: Tensor) -> NDArray[Any]:
        """Return the shape in the model: the batch as a symbol, heights and widths as extents."""
        items: list[Any] = [BATCH]
        builder = self.builder
        if tensor.flat is not None:
            constant = builder.is_constant(tensor, "H") and builder.is_constant(tensor, "W")
            items += [e if constant else Extent(e) for e in tensor.flat]
        else:
            for axis in tensor.axes[1:]:
                extent = tensor.extent(axis)
                constant = builder.is_constant(tensor, axis)
                items.append(extent if constant else Extent(extent, (tensor.value.name, axis)))
        return extents(items)

    def shape_slice(self, shape: Any) -> NDArray[Any]:
        """Return the part of a shape that the operator Shape selects, from `start` to `end`."""
        start, end = self.integer("start", 0), self.integer("end", 2**31)
        return extents(list(shape)[slice(start, end)])

    def split_sizes(self, extent: int, given: Any) -> list[int]:
        """Return the lengths of the parts of the operator Split."""
        sizes: list[int] | None
        if given is not None and not isinstance(given, Tensor):
            sizes = [int(v) for v in settled(given, self.builder.fix).ravel()]
        else:
            sizes = self.integers("split", None)
        if sizes is None:
            parts = self.integer("num_outputs", len(self.wanted))
            if parts < 1 or parts != len(self.wanted) or (extent % parts and not self.has("num_outputs")):
                raise InvalidModelError(
                    f"{self.name} (Split): {extent} in {parts} parts for {len(self.wanted)} outputs."
                )
            length = -(-extent // parts)
            sizes = [max(min(length, extent - i * length), 0) for i in range(parts)]
        if sum(sizes) != extent or min(sizes) < 0 or len(sizes) != len(self.wanted):
            raise InvalidModelError(
                f"{self.name} (Split): {extent} in parts of {sizes}, for {len(self.wanted)} outputs."
            )
        return sizes

    def slices(self, rank: int, given: list[Any]) -> tuple[list[Any], list[Any], list[int], list[int]]:
        """Return starts, stops, axes and steps of the operator Slice."""
        if self.opset < 10:
            starts: list[Any] = list(self.integers("starts"))
            stops: list[Any] = list(self.integers("ends"))
            axes = self.integers("axes", None)
            steps = None
        else:
            arrays = [*given, None, None, None, None]
            if arrays[0] is None or arrays[1] is None:
                raise InvalidModelError(f"{self.name} (Slice): starts or ends are missing.")
            starts, stops = (self._numbers(a) for a in arrays[:2])
            axes, steps = (None if a is None else self._numbers(a) for a in arrays[2:4])
        axes = list(range(len(starts))) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        if not len(starts) == len(stops) == len(axes) == len(steps):
            raise InvalidModelError(f"{self.name} (Slice): {len(starts)} starts, {len(stops)} ends, {len(axes)} axes.")
        if any(not -rank <= a < rank for a in axes) or 0 in steps:
            raise InvalidModelError(f"{self.name} (Slice): axes {axes} of {rank}, steps {steps}.")
        return starts, stops, [a % rank for a in axes], steps

    def _numbers(self, array: Any) -> list[int]:
        if isinstance(array, Tensor):
            raise UnmappedError("a part whose ends are computed")
        return [int(v) for v in settled(array, self.builder.fix).ravel()]


def whole_shape(call: Call, tensor: Tensor, target: NDArray[Any]) -> list[int]:
    """Return the shape without the batch for a Reshape to `target`, with -1 for an extent that is not known.

    Raise UnmappedError if the batch does not stay the first axis.
    """
    items: list[Any] = list(target.ravel())
    if not items:
        raise UnmappedError("a tensor with a batch as a single number")
    own: list[Any] = [BATCH, *call.shape_of(tensor)[1:]]
    if not (call.integer("allowzero", 0) and call.opset >= 14):
        zeros = [i for i, item in enumerate(items) if not isinstance(item, Extent) and item == 0]
        if any(i >= len(own) for i in zeros):
            raise InvalidModelError(f"{call.name} (Reshape): 0 at an axis that {tensor.shape} has not.")
        items = [own[i] if i in zeros else item for i, item in enumerate(items)]
    first, rest = items[0], items[1:]
    minus = [i for i, item in enumerate(rest) if not isinstance(item, Extent) and item == -1]
    free = [i for i, item in enumerate(rest) if isinstance(item, Extent)]
    for i in free:
        if rest[i].value is None:
            raise UnmappedError("the batch taken together with other axes")
    numbers = [int((item.value or 0) if isinstance(item, Extent) else item) for item in rest]
    known = math.prod(n for n in numbers if n != -1)
    fits = known > 0 and (tensor.size % known == 0 if minus else tensor.size == known)
    if isinstance(first, Extent):
        if not first.is_batch:
            raise UnmappedError("the batch taken together with other axes")
    elif first == -1:
        if minus or tensor.size != known:
            raise UnmappedError("the batch taken together with other axes, or apart")
    elif not (call.batch is not None and first == call.batch and fits):
        raise UnmappedError(f"a shape with {first} in the place of the batch")
    if not fits:
        raise InvalidModelError(f"{call.name} (Reshape): {tensor.shape} has {tensor.size} values, not {numbers}.")
    if not minus and len(free) == 1 and not _is_axis(tensor, rest[free[0]]):
        numbers[free[0]] = -1  # inferred from the others, at any size
    return numbers


def _is_axis(tensor: Tensor, item: Extent) -> bool:
    """Return whether the number is an extent of the tensor."""
    return item.ratio == 1 and item.of is not None and item.of[0] == tensor.value.name
