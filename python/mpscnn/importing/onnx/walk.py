# SPDX-License-Identifier: Apache-2.0
"""Walk: a pass over the nodes of an ONNX model that writes a graph."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from ..._inputs import EXACT, is_integer
from ...errors import InvalidModelError, UnsupportedOperatorError
from ...graph import FRACTIONS, Graph
from ..builder import Builder, Tensor, UnmappedError
from ..ops import activation, arithmetic, general, normalization, pooling
from ..ops import shape as shapes
from . import alone, branches, dynamic, moved, quantization, static
from .extent import BATCH, Extent, extents, settled
from .layers import EXTENT_LIMIT
from .node import Alone, Call, Moved, Value
from .patterns import Patterns, without_stacks
from .reading import BFLOAT16, DTYPES, Source, array_of, dtype_name
from .table import OPERATORS

if TYPE_CHECKING:
    from onnx import NodeProto, ValueInfoProto

# `Input.dtype` by the element type: floating-point types whose values float32 can represent, integers, booleans.
INPUT_TYPES = {1: "", 10: "", BFLOAT16: "bfloat16", 9: "bool"} | {i: DTYPES[i].name for i in (2, 3, 4, 5, 6, 7, 12, 13)}
# Operators whose results are truth values: 1 and 0.
TRUTHS = frozenset(
    {"And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"}
)
# Operators that accept integers (which are floats here, exact up to 2 ** 24): those that move, compare or choose
# values, and arithmetic that is the same for floats.
WHOLE = TRUTHS | {
    *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape", "Size", "Slice", "Split"),
    *("Squeeze", "Transpose", "Unsqueeze", "Where", "GatherElements", "OneHot", "Tile", "Max", "Min", "Trilu"),
    *("ConvInteger", "MatMulInteger"),
    *("Attention", "GatherND", "ScatterND", "ScatterElements", "Scatter"),
    *("Clip", "Div", "Dropout", "Pow", "Relu", "Sign", "CastLike", "ArgMax", "ArgMin"),
    *("Abs", "Add", "CumSum", "Mul", "Neg", "ReduceMax", "ReduceMin", "ReduceSum", "Sub", "TopK", "MaxPool", "Mod"),
    *quantization.READS,
}
# Operators whose integers, behind the first input, are extents.
SIZED = frozenset({"AffineGrid", "CenterCropPad", "Resize"})
# Operators whose integers may leave their type.
SUMS = frozenset({"Abs", "Add", "CumSum", "Mul", "Neg", "Pow", "ReduceSum", "Sub"})
# Operators that move values of their first input, which may be fractions of the largest number of uint8 or uint16.
MOVES = frozenset(
    {*("Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze"), "Tile"}
    | {"Transpose", "Unsqueeze"}
)
# Operators whose number of results depends on values of their inputs.
SELECTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
# Operators whose results are regions of images, of any number.
REGIONS = frozenset({"MaxRoiPool", "RoiAlign"})
STATIC = frozenset(static.OPERATORS)


class BranchError(Exception):
    """Nodes of a branch have no kernel; they are noted already."""


def operator_name(node: NodeProto) -> str:
    """Return the name in the tables of operators, with the domain if it is not ONNX's."""
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


class Walk:
    """One pass over a model, for one layout of the inputs."""

    def __init__(
        self,
        source: Source,
        shapes: dict[str, tuple[int, ...]],
        layouts: dict[int, str],
        arrays: dict[str, Any],
        probe: dict[str, int] | None = None,
    ) -> None:
        self.source, self.shapes, self.layouts, self.probe = source, shapes, layouts, probe
        self.builder = Builder()
        self.values: dict[str, Value] = {}
        self.integers: set[str] = set()
        self.truths: set[str] = set()
        self.types: dict[str, str] = {}  # of computed integers, where the model says it
        self.fractions: dict[str, int] = {}  # of values that hold fractions of this number
        self.of_each_image: set[str] = set()  # constants as large as the batch: here, those of one image
        self.repeated: set[str] = set()  # of these, constants whose first axis the model has once for each image
        self.failed: set[str] = set()
        self.refused: list[tuple[str, str, str]] = []
        self.batch: int | None = None
        self.is_for_one_image = True  # whether each input declares a batch of 1
        self._initializers = {tensor.name: tensor for tensor in source.graph.initializer}
        self._constant_nodes: dict[str, NodeProto] | None = None
        self._makers: dict[str, NodeProto] | None = None
        self._arrays = arrays  # of initializers, shared by all walks of the model

    def has_free_extents(self) -> bool:
        """Return whether an input accepts any height or width."""
        return any(s.height is None or s.width is None for s in self.builder.graph.inputs.values())

    def run(self) -> Graph:
        """Return the graph, or raise UnsupportedOperatorError with all nodes that have no kernel."""
        graph = self.source.graph
        nodes = without_stacks(graph.node, self._known_integers)
        self._patterns = Patterns(nodes, self._known_constant, self._known_integers, self._array_of_file)
        needed = self._needed(nodes, self.source.outputs)
        unknown = set(self.shapes) - {info.name for info in graph.input}
        if unknown:
            known = ", ".join(info.name for info in graph.input if info.name not in self._initializers)
            raise ValueError(f'input_shapes names "{sorted(unknown)[0]}"; the inputs are {known}.')
        for kind, names in (("inputs", [info.name for info in graph.input]), ("outputs", self.source.outputs)):
            twice = sorted({name for name in names if kind == "inputs" and names.count(name) > 1})
            if twice or "" in names:
                raise InvalidModelError(f'{self.source.name}: two of its {kind} are called "{(twice or [""])[0]}".')
        for info in graph.input:
            if info.name in needed and info.name not in self._initializers:
                self._input(info)
        self._nodes(nodes, needed, "")
        for name in self.source.outputs:
            self._output(name, self._name_of_output(name))
        if self.refused:
            raise UnsupportedOperatorError(self.source.name, self.refused)
        return self.builder.graph

    def _nodes(self, nodes: Any, needed: set[str], prefix: str) -> None:
        for index, node in enumerate(nodes):
            if any(name in needed for name in node.output):
                self._node(node, prefix + (node.name or f"{node.op_type}_{index}"), needed)

    # ---- values

    def _needed(self, nodes: Any, outputs: Iterable[str]) -> set[str]:
        """Return the names of values that an output depends on."""
        needed = set(outputs)
        for node in reversed(nodes):
            if not any(name in needed for name in node.output):
                continue
            known = self._patterns.sources.get(node.output[0])
            needed.update(node.input if known is None else known[1:])
            needed.update(branches.names_read(node))  # subgraphs of control flow read values of the outer graph
        return needed - {""}

    def _initializer(self, name: str) -> Any:
        if name not in self._arrays:
            self._arrays[name] = array_of(self._initializers[name], self.source)
        return self._arrays[name]

    def _known_integers(self, name: str) -> list[int] | None:
        """Return a short list of constant integers by its name, before the walk."""
        values = self._known_array(name, 32)
        if values is None or values.dtype.kind not in "iu" or values.ndim != 1 or values.size > 16:
            return None
        return [int(value) for value in values]

    def _array_of_file(self, name: str) -> NDArray[Any] | None:
        """Return an initializer or the value of a Constant, of any size; None if there is none of numbers."""
        node = self._constants().get(name)
        try:
            if name in self._initializers:
                initializer: NDArray[Any] = np.asanyarray(self._initializer(name))
                return initializer
            if node is not None and node.attribute and node.attribute[0].HasField("t"):
                found: NDArray[Any] = array_of(node.attribute[0].t, self.source)
                return found
        except (InvalidModelError, UnmappedError):
            return None  # the walk says what is wrong with it
        return None

    def _known_array(self, name: str, depth: int) -> NDArray[Any] | None:
        """Return a small array that depends only on constants, or None; at most `depth` nodes make it."""
        tensor, node = self._initializers.get(name), self._makers_of_values().get(name)
        if node is not None and node.op_type == "Constant":
            tensor = node.attribute[0].t if node.attribute and node.attribute[0].HasField("t") else None
        try:
            if tensor is not None:
                return array_of(tensor, self.source) if math.prod(tensor.dims) <= 64 else None
            if node is None or depth == 0 or node.domain or node.op_type not in static.OPERATORS:
                return None
            arrays = [self._known_array(i, depth - 1) if i else None for i in node.input]
            if any(array is None for array, i in zip(arrays, node.input, strict=True) if i):
                return None
            call = Call(node, name, self.source, self.builder, list(arrays), None, [True] * len(node.output), ())
            found = static.OPERATORS[node.op_type](call, arrays)[list(node.output).index(name)]
        except (ArithmeticError, InvalidModelError, LookupError, TypeError, UnmappedError, ValueError):
            return None  # the walk says what is wrong with it
        return np.asarray(found)

    def _makers_of_values(self) -> dict[str, NodeProto]:
        if self._makers is None:
            self._makers = {name: node for node in self.source.graph.node for name in node.output if name}
        return self._makers

    def _known_constant(self, name: str) -> Any:
        """Return a scalar constant by its name, before anything is evaluated."""
        tensor = self._initializers.get(name)
        if tensor is None:
            node = self._constants().get(name)
            if node is not None:
                tensor = node.attribute[0].t if node.attribute and node.attribute[0].HasField("t") else None
                if node.attribute and node.attribute[0].name == "value_float":
                    return np.float32(node.attribute[0].f).reshape(1)
        if tensor is None or any(d != 1 for d in tensor.dims):
            return None
        try:
            return array_of(tensor, self.source)
        except UnmappedError:
            return None

    def _constants(self) -> dict[str, NodeProto]:
        if self._constant_nodes is None:
            nodes = [node for node in self.source.graph.node if node.op_type == "Constant" and node.output]
            self._constant_nodes = {node.output[0]: node for node in nodes}
        return self._constant_nodes

    def _input(self, info: ValueInfoProto) -> None:
        try:
            shape, batch, axes = self._input_shape(info)
        except UnmappedError as error:
            self.refused.append(("input", info.name, str(error)))
            self.failed.add(info.name)
            return
        self.is_for_one_image &= batch == 1
        if batch is not None:
            if self.batch is not None and batch != self.batch:
                reason = f"its first extent ({batch}) is not that of another input ({self.batch}): which is the batch?"
                self.refused.append(("input", info.name, reason))
            self.batch = batch
        dtype = INPUT_TYPES[info.type.tensor_type.elem_type]
        x = self.builder.input(info.name, shape, axes, dtype)
        self.values[info.name] = x
        if dtype == "bool":
            self.truths.add(info.name)
        elif is_integer(dtype):
            self.integers.add(info.name)
            self.types[info.name] = dtype
            if dtype in FRACTIONS:
                self.fractions[info.name] = FRACTIONS[dtype]
        first = self.shapes[info.name][0] if info.name in self.shapes else batch or 1
        self.builder.graph._shapes[info.name] = first, x.height, x.width, x.channels

    def _input_shape(self, info: ValueInfoProto) -> tuple[tuple[int, ...], int | None, str]:
        """Return the extents without the batch, the batch if it is known, and the layout."""
        name = info.name
        if info.type.WhichOneof("value") != "tensor_type":
            raise UnmappedError("it is no tensor")
        spec = info.type.tensor_type
        if spec.elem_type not in INPUT_TYPES:
            raise UnmappedError(
                f"values of type {dtype_name(spec.elem_type)}: inputs are float32, float16, bfloat16, integers of 8"
                " to 64 bits or booleans; convert the model's input"
            )
        given = self.shapes.get(name)
        if not spec.HasField("shape") and given is None:
            raise InvalidModelError(f'{self.source.name}: the input "{name}" has no shape; give it in input_shapes.')
        declared: list[int | str] = [
            int(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in spec.shape.dim
        ]
        if given is not None:
            if spec.HasField("shape") and len(given) != len(declared):
                raise ValueError(f'input_shapes["{name}"] ({given}) has not the {len(declared)} axes of {declared}.')
            for mine, theirs in zip(given[1:], declared[1:], strict=False):
                if isinstance(theirs, int) and mine != theirs:
                    raise ValueError(f'input_shapes["{name}"] ({given}) is not what the model has: {declared}.')
        axes = self.layouts.get(len(given if given is not None else declared))
        if axes is None:
            raise UnmappedError(f"{len(declared)} axes: images have 1 to 4")
        shape = list(given) if given is not None else declared
        first = declared[0] if declared and isinstance(declared[0], int) else None
        if any(isinstance(e, str) for e in shape[1:]):
            example = (first or 1, *(e if isinstance(e, int) else 224 for e in shape[1:]))
            raise InvalidModelError(
                f'{self.source.name}: the input "{name}" leaves extents open, {declared};'
                f' say for which it is read: input_shapes={{"{name}": {example}}}.'
            )
        extents = [int(e) for e in shape[1:]]
        if min([*extents, 1 if first is None else first]) < 0:
            raise InvalidModelError(f'{self.source.name}: the input "{name}" has the shape {declared}.')
        if 0 in (*extents, first):
            raise UnmappedError(f"it has no values, {declared}")
        if max([*extents, first or 1]) > EXTENT_LIMIT:
            raise UnmappedError(f"an extent of {declared} is more than the limit ({EXTENT_LIMIT})")
        if self.probe is not None:
            # Extents of 1 are kept: they are often broadcast.
            extents = [e * self.probe.get(a, 1) if e > 1 else 1 for e, a in zip(extents, axes[1:], strict=True)]
        return tuple(extents), first, axes

    def _name_of_output(self, name: str) -> str:
        """Return the name of an output, with a number if it is a value that is an output already."""
        taken = self.builder.graph.outputs
        if name not in taken:
            return name
        numbered = (f"{name}_{i}" for i in range(1, len(self.source.outputs) + len(taken) + 1))
        return next(other for other in numbered if other not in taken and other not in self.source.outputs)

    def _output(self, name: str, called: str) -> None:
        if name in self.failed:
            return
        if name in self.fractions:
            with self.builder.node(name, "output"):
                self._make_whole(name)
        value: Any = self.values.get(name)
        if value is None and name in self._initializers:
            value = np.empty(0)
        if value is None:
            raise InvalidModelError(f'{self.source.name}: the output "{name}" is not made by any node.')
        if isinstance(value, Alone):
            self.refused.append(("output", name, "it has no axis for the images of a batch"))
            return
        if isinstance(value, Moved):
            self.refused.append(("output", name, "the batch taken together with other axes, or not the first axis"))
            return
        if not isinstance(value, Tensor):
            self.refused.append(("output", name, "it is the same whatever the inputs are"))
            return
        self.builder.output(called, value)

    # ---- nodes

    def _node(self, node: NodeProto, name: str, needed: set[str]) -> None:
        known = self._patterns.sources.get(node.output[0])
        inputs = list(node.input) if known is None else [known[1]]
        if any(i in self.failed for i in inputs):
            self.failed.update(node.output)
            return
        if node.op_type in REGIONS and not node.domain:
            self.refused.append((node.op_type, name, self._regions(node)))
            self.failed.update(node.output)
            return
        if node.op_type in SELECTING and not node.domain and (self._are_computed(inputs) or node.op_type not in STATIC):
            reason = "the number of its results depends on values"
            self.refused.append((node.op_type, name, f"{reason}: {self._advice(inputs)}"))
            self.failed.update(node.output)
            return
        operator = operator_name(node)
        try:
            with self.builder.node(name, node.op_type):
                results = self._results(node, name, operator, inputs, known[0] if known else None, needed)
        except BranchError:
            self.failed.update(node.output)
            return
        except UnmappedError as error:
            self.refused.append((operator, name, str(error)))
            self.failed.update(node.output)
            return
        except InvalidModelError as error:
            text = str(error)
            if text.startswith(f"{self.source.name}: "):  # of a node in a branch
                raise
            where = f"{name} ({operator})"
            raise InvalidModelError(f"{self.source.name}: {text if name in text else f'{where}: {text}'}") from None
        except (
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            MemoryError,
            TypeError,
            ValueError,
        ) as error:
            # Inconsistent extents, axes or types that no function above checks.
            raise InvalidModelError(f"{self.source.name}: {name} ({operator}): {error}") from error
        for output, value in zip(node.output, results, strict=False):
            if isinstance(value, Tensor) and max(value.height, value.width, value.channels) > EXTENT_LIMIT:
                reason = f"a result of {value.height} x {value.width} pixels, {value.channels} channels:"
                self.refused.append((operator, name, f"{reason} the limit is {EXTENT_LIMIT} each"))
                self.failed.update(node.output)
                return
            if output:
                self.values[output] = value
                if inputs and inputs[0] in self.fractions and isinstance(value, (Tensor, Moved)):
                    self.fractions[output] = self.fractions[inputs[0]]
        if not all(isinstance(value, np.ndarray) for value in results):
            self._note_types(node, inputs)

    def _note_types(self, node: NodeProto, inputs: list[str]) -> None:
        """Note which results are integers or truth values."""
        kind = operator_name(node)
        if kind in TRUTHS:
            self.truths.update(node.output)
        elif kind == "Cast":
            number = next((a.i for a in node.attribute if a.name == "to"), 0)
            dtype = DTYPES.get(number)
            if dtype is not None and number != BFLOAT16 and dtype.kind in "iub":
                (self.truths if dtype.kind == "b" else self.integers).update(node.output)
                if dtype.kind != "b":
                    self.types[node.output[0]] = dtype.name
        elif kind == "CastLike":
            if inputs[1] in self.truths:
                self.truths.update(node.output)
            elif inputs[1] in self.integers:
                self.integers.update(node.output)
                self.types |= {output: self.types[inputs[1]] for output in node.output if inputs[1] in self.types}
        elif kind == "DynamicQuantizeLinear":
            self.integers.update(node.output[::2])
            self.types |= dict.fromkeys(node.output[::2], "uint8")
        elif kind == "TopK":
            self.integers.update(node.output[0 if inputs[0] in self.integers else 1 :])
            if inputs[0] in self.types:
                self.types[node.output[0]] = self.types[inputs[0]]
        else:
            of = {"Where": inputs[1:], "GatherElements": inputs[:1], "Gather": inputs[:1], "OneHot": inputs[2:]}
            of |= dict.fromkeys(("Pow", "CumSum", "Clip", "Trilu"), inputs[:1])
            of |= {"GatherND": inputs[:1], **dict.fromkeys(("ScatterND", "ScatterElements", "Scatter"), inputs[::2])}
            keeps = kind not in quantization.READS and any(i in self.integers for i in of.get(kind, inputs))
            found = [self.types[i] for i in of.get(kind, inputs) if i in self.types] if keeps else []
            if found and kind not in ("ArgMax", "ArgMin", "ConvInteger", "MatMulInteger"):
                self.types |= dict.fromkeys(node.output, found[0])
            if keeps or kind in ("ArgMax", "ArgMin") or quantization.stores(kind, inputs):
                self.integers.update(node.output)
            if quantization.stores(kind, inputs):
                place = quantization.zero_place(kind)
                zero: Any = self._value(inputs[place]) if place < len(inputs) and inputs[place] else None
                self.types |= dict.fromkeys(node.output, zero.dtype.name if isinstance(zero, np.ndarray) else "uint8")

    def _results(
        self, node: NodeProto, name: str, operator: str, inputs: list[str], known: str | None, needed: set[str]
    ) -> list[Value]:
        if operator != node.op_type and operator not in OPERATORS:
            raise UnmappedError(f'an operator of the domain "{node.domain}"')
        if self.fractions and operator not in MOVES:
            for i in inputs:
                if i in self.fractions:
                    self._make_whole(i)
        values: list[Any] = [self._value(i) if i else None for i in inputs]
        if known is not None:
            source = values[0]
            if known == "pool":
                return [self._pooled(source, *self._patterns.pools[node.output[0]])]
            if isinstance(source, (Alone, Moved)) and known != "lrn":
                tensor = activation.gelu(self.builder, source.tensor) if known == "gelu" else source.tensor
                same: Any = replace(source, tensor=tensor)
                return [same]
            if not isinstance(source, Tensor):
                raise UnmappedError("an activation function of constants")
            if known == "lrn":
                return [
                    normalization.local_response_norm(self.builder, source, *self._patterns.windows[node.output[0]])
                ]
            return [activation.gelu(self.builder, source) if known == "gelu" else source]
        wanted = [bool(output) and output in needed for output in node.output]
        readers = self._patterns.readers(node.output[0]) + ("",) * (node.output[0] in self.source.outputs)
        is_whole = bool(inputs) and (inputs[0] in self.integers or inputs[0] in self.truths)
        types = [
            self.types.get(i, "bool" if i in self.truths else "int64" if i in self.integers else "") for i in inputs
        ]
        repeated = [i in self.repeated for i in inputs]
        call = Call(
            node, name, self.source, self.builder, values, self.batch, wanted, readers, is_whole, types, repeated
        )
        if node.op_type == "Constant":
            return [_constant(call)]
        if operator == "If" and isinstance(call.any_value(0), np.ndarray):
            return self._branch(node, name, call)
        if operator == "CastLike" and isinstance(values[0], np.ndarray) and self._are_computed(inputs[1:]):
            values = [values[0], np.empty(0, call.type_of(1) or np.float32)]
        if not any(isinstance(v, (Tensor, Alone, Moved)) for v in values):
            evaluate = static.OPERATORS.get(operator)
            if evaluate is None:
                raise UnmappedError("constants alone" if operator in OPERATORS else "no kernel computes it")
            if operator == "Shape" and inputs[0] in self.of_each_image and values[0].ndim:
                # Here it has one image; unless all of the first axis is repeated, it is not known how many values.
                first = BATCH * values[0].shape[0] if inputs[0] in self.repeated else Extent(None)
                return [call.shape_slice(extents([first, *values[0].shape[1:]]))]
            self._note_batch(operator, node, values)
            return [np.asanyarray(array) for array in evaluate(call, values)]
        handler = OPERATORS.get(operator)
        if handler is None:
            raise UnmappedError("no kernel computes it")
        of_numbers = inputs[:1] if operator in SIZED else inputs
        if any(i in self.integers for i in of_numbers) and operator not in WHOLE and not quantization.moves(node):
            raise UnmappedError("arithmetic of integers: convert them to floats with a Cast before")
        if operator in SUMS:
            self._refuse_wraps(operator, inputs)
        if operator in ("Add", "Div", "Mod", "Mul", "Sub"):
            _refuse_rounding(values)
        with np.errstate(all="ignore"):  # weights may be infinite
            before = len(self.builder.graph.nodes)
            try:
                if operator == "CastLike":  # reads the type of the second value alone, whatever its axes are
                    result = handler(call)
                elif any(isinstance(v, Alone) for v in values):
                    result = dynamic.apply(call)
                else:
                    result = moved.apply(call) if any(isinstance(v, Moved) for v in values) else handler(call)
            except UnmappedError as error:
                if not self.is_for_one_image:
                    raise
                self.builder.drop(before)
                try:
                    result = alone.apply(call)
                except UnmappedError as other:
                    is_whole = any(isinstance(v, Alone) and v.rank > 1 for v in values)
                    raise (other if is_whole else error) from None
        return result if isinstance(result, list) else [result]

    def _pooled(self, x: Value, extents: tuple[int, int], size: tuple[int, int]) -> Tensor:
        """Return the adaptive pooling of an image whose places in the file are those of these extents."""
        if not isinstance(x, Tensor) or x.rank != 4:
            raise UnmappedError("an adaptive pooling of values that are no images of the batch")
        self.builder.fix_unless_constant(x)
        for dim, extent in zip((2, 3), extents, strict=True):
            if x.shape[dim - 1] < extent:
                raise InvalidModelError(f"a place is not in an image of {x.shape}")
            x = shapes.narrow(self.builder, x, dim, 0, extent)
        return pooling.adaptive_avg_pool2d(self.builder, general.with_channels_second(self.builder, x), size)

    def _note_batch(self, operator: str, node: NodeProto, values: list[Any]) -> None:
        """Note a constant that stands for one of each image; UnmappedError for a sum over these."""
        known = [i for i in node.input if i in self.of_each_image]
        if known and operator == "Pad":
            raise UnmappedError("a value that is computed of the size of the batch")
        if known and operator in ("CumSum", "NonZero", "ReduceProd", "ReduceSum", "Size"):
            axes = next((attribute.ints for attribute in node.attribute if attribute.name == "axes"), None)
            if axes is None and len(values) > 1 and isinstance(values[1], np.ndarray):
                axes = values[1].ravel().tolist()
            if operator in ("NonZero", "Size") or not axes or {0, -values[0].ndim} & set(axes):
                raise UnmappedError("a value that is computed of the size of the batch")
        shape = {"ConstantOfShape": values[:1], "Expand": values[1:2], "Range": values[1:2]}.get(operator, [])
        is_new = any(getattr(extent, "is_batch", False) for array in shape for extent in array.ravel()[:1])
        if known or is_new:
            self.of_each_image.update(node.output)
        if is_new or self._keeps_images_first(operator, node, values):
            self.repeated.update(node.output)

    def _keeps_images_first(self, operator: str, node: NodeProto, values: list[Any]) -> bool:
        """Return whether the first axis of a constant result is one of the repeated constants among the inputs."""
        found = [i in self.repeated for i in node.input]
        if operator in ("CastLike", "Reshape"):
            return found[0]
        if operator not in moved.POINTWISE or not any(found):
            return False
        given = [(one, np.shape(value)) for one, value in zip(found, values, strict=True) if value is not None]
        rank = max(len(shape) for _, shape in given)
        return all(len(shape) == rank if one else len(shape) < rank or shape[0] == 1 for one, shape in given)

    def _branch(self, node: NodeProto, name: str, call: Call) -> list[Value]:
        """Return the results of the branch of an If whose condition is known."""
        holds = bool(settled(call.any_value(0), self.builder.fix).reshape(()))
        branch = branches.renamed(node, "then_branch" if holds else "else_branch", self.source.name)
        self._initializers |= branch.initializers
        self._makers_of_values().update({output: inner for inner in branch.nodes for output in inner.output if output})
        self._constants().update({n.output[0]: n for n in branch.nodes if n.op_type == "Constant" and n.output})
        outer, refused = self._patterns, len(self.refused)
        self._patterns = Patterns(branch.nodes, self._known_constant, self._known_integers, self._array_of_file)
        try:
            self._nodes(branch.nodes, self._needed(branch.nodes, branch.outputs), f"{name}.")
        finally:
            self._patterns = outer
        if len(self.refused) > refused or self.failed & set(branch.outputs):
            raise BranchError
        for inner, result in zip(branch.outputs, node.output, strict=False):
            for kinds in (self.integers, self.truths):
                if inner in kinds:
                    kinds.add(result)
            for known in (self.types, self.fractions):
                if inner in known:
                    known[result] = known[inner]  # type: ignore[assignment]
        return [self._value(inner) for inner in branch.outputs]

    def _are_computed(self, inputs: list[str]) -> bool:
        return any(isinstance(self.values.get(i), (Tensor, Alone, Moved)) for i in inputs)

    def _advice(self, inputs: list[str]) -> str:
        """Return which part of the model can be read instead of a node."""
        names = [name for name in inputs if isinstance(self.values.get(name), Tensor)]
        advice = ", ".join(f'"{name}"' for name in names) or "..., values in front of it"
        return (
            "read the model up to its inputs,"
            f' mpscnn.load(..., options={{"outputs": [{advice}]}}), and compute the rest from these results'
        )

    def _regions(self, node: NodeProto) -> str:
        """Return how a model is computed in two parts, in front of its regions and behind them."""
        of = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        scale = f"spatial_scale={of.get('spatial_scale', 1.0):.9g}"
        given, first = {info.name for info in self.source.graph.input}, node.input[0]
        names = [n for n in node.input if isinstance(self.values.get(n), Tensor) and n not in given]
        if node.op_type == "MaxRoiPool":
            height, width = of.get("pooled_shape", (1, 1))
            function = f"roi_pool({first}, regions, ({height}, {width}), {scale}), with regions = {node.input[1]}"
        else:
            height, width = of.get("output_height", 1), of.get("output_width", 1)
            default = b"half_pixel" if self.source.opset >= 16 else b"output_half_pixel"
            aligned = of.get("coordinate_transformation_mode", default) == b"half_pixel"
            mode = "" if of.get("mode", b"avg") == b"avg" else f', mode="{of["mode"].decode("utf-8", "replace")}"'
            ratio = f"sampling_ratio={of.get('sampling_ratio', 0)}, aligned={aligned}{mode}"
            regions = f"np.column_stack([{node.input[2]}, {node.input[1]}])"
            function = f"roi_align({first}, regions, ({height}, {width}), {scale}, {ratio}), with regions = {regions}"
        wanted = ", ".join(f'"{name}"' for name in names) or f'"{first}"'
        return (
            "its regions, of any number, are no images of a batch: load the model in two parts,"
            f' mpscnn.load(..., options={{"outputs": [{wanted}]}}) and mpscnn.load(...,'
            f' options={{"inputs": ["{node.output[0]}"]}},'
            f' input_shapes={{"{node.output[0]}": (1, C, {height}, {width})}}), with the channels C of "{first}";'
            f" between them compute mpscnn.detection.{function}"
        )

    def _make_whole(self, name: str) -> None:
        """Replace fractions of the largest number by the numbers, which are exact."""
        factor = self.fractions.pop(name)
        value: Any = self.values[name]
        whole = arithmetic.multiply(self.builder, value.tensor if isinstance(value, Moved) else value, factor)
        changed: Any = replace(value, tensor=whole) if isinstance(value, Moved) else whole
        self.values[name] = changed

    def _refuse_wraps(self, operator: str, inputs: list[str]) -> None:
        """Raise UnmappedError for sums and products of integers that leave their type: ONNX's wrap, floats do not."""
        of = inputs[:1] if operator in ("Pow", "CumSum") else inputs
        found = next((self.types[i] for i in of if i in self.types), None)
        if found is None:
            return
        limits = np.iinfo(found)
        if limits.bits <= 16:
            raise UnmappedError(
                f"arithmetic of {found}, which wraps beyond {limits.min} and {limits.max}: convert the values to int32"
                " or floats with a Cast before"
            )
        if limits.min == 0 and operator == "Sub":
            raise UnmappedError(
                f"differences of {found}, which wrap below 0: convert the values to int64 or floats with a Cast before"
            )

    def _value(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in self._initializers:
            array: NDArray[Any] = np.asanyarray(self._initializer(name))
            return array
        sparse = any(tensor.values.name == name for tensor in self.source.graph.sparse_initializer)
        if sparse:
            raise UnmappedError(f'"{name}" is sparse')
        raise InvalidModelError(f'"{name}" is not made by any node before.')


def _refuse_rounding(values: list[Any]) -> None:
    """Raise UnmappedError for constant integers that float32, in which integers are computed, does not hold."""
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
            large = value[(value > EXACT) | (value < -EXACT)].tolist()
            wrong = next((number for number in large if int(np.float32(number)) != number), None)
            if wrong is not None:
                raise UnmappedError(
                    f"arithmetic with the integer {wrong}, which float32 rounds: whole numbers are exact up to"
                    " 2 ** 24 here; convert the values to floats with a Cast before"
                )


def _constant(call: Call) -> Value:
    value = call.tensor_attribute("value")
    if value is not None:
        return value
    if call.has("value_float"):
        return np.array(call.real("value_float"), np.float32)
    if call.has("value_floats"):
        return np.array(call.reals("value_floats"), np.float32)
    if call.has("value_int"):
        return np.array(call.integer("value_int"), np.int64)
    if call.has("value_ints"):
        return np.array(call.integers("value_ints"), np.int64)
    raise UnmappedError("a constant that is sparse or a string")
