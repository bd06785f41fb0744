# SPDX-License-Identifier: Apache-2.0
"""Import of a torch.export.ExportedProgram, by its ATen operators.

Dynamic heights and widths of the program are free in the graph, static ones are fixed. Numbers that the program
computed from them fix them too. The batch is always free.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import operator
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from .. import _sizes
from ..errors import InvalidModelError, UnsupportedOperatorError
from ..graph import FRACTIONS, INPUT_DTYPES, Graph
from . import torch_batch, torch_checks, torch_functional, torch_guards, torch_positions
from .aten import OPERATORS
from .builder import Builder, Tensor, UnmappedError, functions
from .ops import arithmetic
from .torch_arguments import OF_BATCH, Arguments, Merged, Missing, Number, Rows, Sized, Turned
from .torch_guards import symbols
from .torch_patterns import Pattern, operator_name, patterns

# Layouts to try, by number of axes of an input: the first is that of PyTorch's images, sequences and vectors; models
# that first permute their input have another.
LAYOUTS = {1: ("N",), 2: ("NC",), 3: ("NCW", "NHW", "NWC"), 4: ("NCHW", "NHWC")}

# Why the heights and widths of a graph are fixed if they were in the trace.
FIXED_BY_TRACE = "torch.export, without dynamic shapes"

# Max values of a constant that the program computes.
MAXIMUM_CONSTANT = 1 << 28

# Operators for which the extents of a constant do not matter: repeated weights, and noise that is not added.
_ANY_EXTENT = {"bmm", "rrelu_with_noise_functional"}

# Operators whose number of results depends on values, and is at most that of these.
_COUNTING = {"index", "masked_select", "nonzero", "_unique2", "unique_consecutive", "unique_dim"}

# Operators whose results are not repeated if all readers broadcast them.
_REPEATED = {"expand", "expand_as"}

# Constants with the type of a tensor.
_FILLED = {"new_full", "new_zeros", "new_ones"}

# Operators whose constants repeat for each image, if those they are given do, and shapes alone depend on the batch.
_SHAPING = {
    *("empty", "full", "full_like", "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like"),
    *("zeros", "zeros_like", "alias", "cat", "clone", "contiguous", "detach", "expand", "expand_as", "flatten"),
    *("lift_fresh_copy", "permute", "repeat", "reshape", "select", "slice", "split", "to", "_to_copy", "transpose"),
    *("type_as", "unflatten", "unsqueeze", "view", "view_as", "affine_grid_generator"),
}

# Operators with constants that compute each row of their first argument alone.
_OF_ROWS = {"linear"}

# Operators that compute with positions of pixels as with any tensor.
_WITH_POSITIONS = {"add", "div", "mul", "rsub", "sub", "cat", "stack", "maximum", "minimum", "addcmul"}

# Advice for operators whose results are not images of the batch.
_REGIONS = (
    "its regions, of any number, are no images of the batch: load the module in front of the regions and the one behind"
    " them, whose batch are the regions, and compute mpscnn.detection.{} between them; or use torch.compile with"
    " mpscnn's backend, which leaves this operator to PyTorch"
)
ADVICE = {
    "torchvision.roi_align": _REGIONS.format("roi_align"),
    "torchvision.roi_pool": _REGIONS.format("roi_pool"),
    "torchvision.nms": "the number of its results depends on values: return its arguments from the module instead, and"
    " compute mpscnn.detection.non_max_suppression",
}
_UNKNOWN = "no kernel computes this"

_FAILED = Missing("an operator in front of it has no kernel")


def read(
    program: torch.export.ExportedProgram,
    *,
    name: str = "the exported program",
    name_dependence: bool = False,
    attempt: int | None = None,
    of_module: bool = False,
    is_free: bool = False,
    guards: Sequence[str] | None = None,
) -> Graph:
    """Read the program as a Graph.

    Inputs are named like the program's arguments, outputs "output", "output_0", ... or like the keys of the dictionary
    that the program returns. Parameters are not copied: a network reads their values when it is made.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Exported from a module in eval mode, before or after run_decompositions().
    name : str
        Name in errors.
    name_dependence : bool
        If the program has static heights and widths, and a node is known that would also fix dynamic ones, the graph
        says that this node fixes them, not that the trace does.
    attempt : int, optional
        Place in `LAYOUTS` of the inputs' layouts. Default: those for which sizes are free, or with fewer functions.
    of_module : bool
        The program is a trace of a module, for which it stands: of its conditions on extents, only those count by which
        the module chose a branch. Otherwise, all count.
    is_free : bool
        The program has static heights and widths, but is that for all sizes: see `torch_independent`.
    guards : sequence of str, optional
        Text of the program's guards; default: its own. See `torch_guards`.

    Raises
    ------
    UnsupportedOperatorError
        No kernel computes some operators; all are listed.
    InvalidModelError
        An input or parameter does not fit into an image.
    TypeError
        `program` is not an ExportedProgram.
    """
    if not isinstance(program, torch.export.ExportedProgram):
        raise TypeError(f"program ({type(program).__name__}) is not a torch.export.ExportedProgram.")
    with quiet():
        return _read(program, name, name_dependence, attempt, of_module, is_free, guards)


def _read(
    program: torch.export.ExportedProgram,
    name: str,
    name_dependence: bool,
    attempt: int | None,
    of_module: bool,
    is_free: bool,
    guards: Sequence[str] | None,
) -> Graph:
    torch_checks.check(program, name)
    form: torch.fx.Graph | None = None
    if _needs_functional_form(program.graph):
        form = torch_functional.functional(program, of_module=of_module)
        if form is None:
            try:
                program = program.run_decompositions({})
            except Exception as error:
                raise InvalidModelError(f"{name}: PyTorch cannot run it: {first_line(error)}") from error
    first: UnsupportedOperatorError | None = None
    graphs: list[Graph] = []
    folded: _Folded = {}
    for place in range(max(map(len, LAYOUTS.values()))) if attempt is None else (attempt,):
        reader = _Reader(program, name, place, form, of_module=of_module, is_free=is_free, guards=guards)
        reader.folded = folded
        if place and not reader.has_another_layout:
            break
        try:
            graphs.append(reader.graph())
            if name_dependence or is_free:
                reader.name_dependence()
            if functions(graphs[-1]) == 0:
                break
        except UnsupportedOperatorError as error:
            first = first or error
        except InvalidModelError:
            if first is None and not graphs:
                raise
    if not graphs:
        assert first is not None
        raise first
    graph = min(graphs, key=_cost)
    for name, spec in graph.inputs.items():
        if not name_dependence and not spec.fixed_by and "C" in spec.layout[2:]:
            graph.inputs[name] = replace(spec, fixed_by=f"a layer for which axis {spec.layout.index('C')} are channels")
    return graph


def _cost(graph: Graph) -> tuple[bool, int]:
    """Return the order of graphs in different layouts: free sizes first, then fewer functions."""
    return any(spec.fixed_by not in ("", FIXED_BY_TRACE) for spec in graph.inputs.values()), functions(graph)


def refused(program: torch.export.ExportedProgram) -> set[str]:
    """Return the names of the nodes of a program in functional form that have no kernel, in the best layout."""
    found: list[set[str]] = []
    for attempt in range(max(map(len, LAYOUTS.values()))):
        reader = _Reader(program, "the program", attempt)
        if attempt and not reader.has_another_layout:
            break
        try:
            reader.graph()
        except UnsupportedOperatorError:
            found.append(reader.failed)
        except InvalidModelError:
            continue
        else:
            return set()
    return min(found, key=len, default=set())


def has_free_batch(program: torch.export.ExportedProgram) -> bool:
    """Return whether the program takes any number of images."""
    inputs = set(program.graph_signature.user_inputs)  # a property that goes through all parameters
    found = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    return all(bool(symbols(value.shape[0])) for value in found if isinstance(value, torch.Tensor) and value.ndim)


def first_line(error: BaseException) -> str:
    """Return the first line of PyTorch's error, which may be pages long."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings and logs of torch.export; relevant problems are exceptions."""
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    children = [logging.getLogger(name) for name in ("torch.fx.experimental.symbolic_shapes", "torch.export")]
    levels = [child.level for child in children]
    for child in children:
        child.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
        for child, level in zip(children, levels, strict=True):
            child.setLevel(level)


def _needs_functional_form(graph: torch.fx.Graph) -> bool:
    """Return whether a value is read after an operator has changed it through an alias of its memory.

    Also true for regions, such as torch.no_grad(), which the functional form inlines.
    """
    memory: dict[torch.fx.Node, torch.fx.Node] = {}  # for each node, the owner of the memory that it views
    same: dict[torch.fx.Node, torch.fx.Node] = {}  # for each node, the first that has the same values
    order = {node: place for place, node in enumerate(graph.nodes)}
    members: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    changes: list[tuple[torch.fx.Node, torch.fx.Node]] = []
    for node in graph.nodes:
        if node.op == "call_function" and node.target is operator.getitem:
            source, is_change, is_same = node.args[0], False, False
        else:
            source, is_change, is_same = _aliased(node)
        if is_change and (source is None or not node.users):
            return True
        if isinstance(node.target, torch._ops.HigherOrderOperator) and str(node.target).startswith("wrap_with"):
            return True
        if isinstance(source, torch.fx.Node):
            memory[node] = memory[source]
            same[node] = same[source] if is_change or is_same else node
            if is_change:
                changes.append((node, source))
        else:
            memory[node] = same[node] = node
        members.setdefault(memory[node], []).append(node)
    for change, source in changes:
        for other in members[memory[source]]:
            if same[other] is same[source] or order[other] > order[change]:  # later views have the new values
                continue
            if any(order[user] > order[change] for user in other.users):
                return True
    return False


# Operators that return their source itself in eval mode, although their schema has no alias.
_IDENTITIES = {"dropout", "feature_dropout", "alpha_dropout", "dropout_", "feature_dropout_", "alpha_dropout_"}


def _aliased(node: torch.fx.Node) -> tuple[torch.fx.Node | None, bool, bool]:
    """Return the node whose memory this one shares, whether this one changes it, and whether it is the same tensor."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None, False, False
    for place, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if alias is not None and isinstance(value, torch.fx.Node):
            return value, bool(alias.is_write), operator_name(node) in ("detach", "alias")
        if alias is not None and alias.is_write:
            return None, True, False
    if operator_name(node) in _IDENTITIES and isinstance(node.args[0], torch.fx.Node):
        return node.args[0], False, True
    return None, False, False


def _operator_text(node: torch.fx.Node) -> str:
    """Return the operator's name for tables and errors: "aten.conv2d"."""
    if isinstance(node.target, torch._ops.OpOverload):
        return f"{node.target.namespace}.{node.target._opname}"
    return str(getattr(node.target, "__name__", node.target))


def _hint(value: Any) -> Any:
    """Return a number of the program, for the shapes that it was exported with."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        hint = value.node.hint
        if hint is None:
            raise UnmappedError("a number that depends on values of the inputs")
        return hint
    return value


def _input_dtype(value: torch.Tensor) -> str:
    """Return the `Input.dtype` of an input."""
    name = str(value.dtype).removeprefix("torch.")
    return "" if name in ("float32", "float16") else name


# Operators that move values, and those that convert integers to floats beside a number, if their result is of floats.
_MOVES = {
    *("alias", "clone", "contiguous", "detach", "flatten", "permute", "reshape", "slice", "squeeze", "transpose"),
    *("unsqueeze", "view"),
}
_CONVERTS = {"to", "_to_copy", "type_as", "div", "mul", "add", "sub", "rsub"}


def _reader_of_integers(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return a node that reads integers, or values that were moved, as such; None if all convert them to floats."""
    for user in node.users:
        value, name = user.meta.get("val"), operator_name(user)
        if not user.users and "_assert" in name:
            continue
        if user.op == "output" or not isinstance(value, torch.Tensor):
            return user
        is_alone = user.all_input_nodes == [node] or name == "type_as"
        if value.dtype.is_floating_point and name in _CONVERTS and is_alone:
            continue
        if name not in _MOVES:
            return user
        found = _reader_of_integers(user)
        if found is not None:
            return found
    return None


def _constant(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return the tensor as one that NumPy can read: strided, on the CPU, with values."""
    tensor = tensor.detach()
    if tensor.is_meta or isinstance(tensor, torch._subclasses.FakeTensor):
        raise InvalidModelError(f"{name} has no values: it is on the device {tensor.device}.")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise InvalidModelError(f"{name} is no dense tensor of numbers: {tensor.layout}, {tensor.dtype}.")
    return tensor.cpu()


class _Values(dict[torch.fx.Node, Any]):
    """Values by node, and the nodes that have a value."""

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[int, tuple[Any, list[torch.fx.Node]]] = {}  # by the identity of a value, which is kept

    def __setitem__(self, node: torch.fx.Node, value: Any) -> None:
        super().__setitem__(node, value)
        self._nodes.setdefault(id(value), (value, []))[1].append(node)

    def __ior__(self, others: Any) -> _Values:  # type: ignore[override,misc]
        for node, value in others.items():
            self[node] = value
        return self

    def that_have(self, value: Any) -> list[torch.fx.Node]:
        """Return the nodes with this object as their value."""
        found = self._nodes.get(id(value), (value, []))[1]
        return list(dict.fromkeys(node for node in found if self[node] is value))


# Results of operators of constants, which are the same in each layout, with the arguments, which are kept.
_Folded: TypeAlias = "dict[Any, tuple[Any, Any]]"


class _Reader:
    """Reader of the graph of one program."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        name: str,
        attempt: int,
        form: torch.fx.Graph | None = None,
        *,
        of_module: bool = False,
        is_free: bool = False,
        guards: Sequence[str] | None = None,
    ) -> None:
        self.program, self.of_module, self.is_free, self.guards = program, of_module, is_free, guards
        self.name = name
        self.attempt = attempt
        self.builder = Builder()
        self.values = _Values()
        self.failed: set[str] = set()
        self.nodes = list((form or program.graph).nodes)  # `form`: the graph in functional form
        self.batch: Any = None  # first extent of the inputs: an int or an expression
        self.sized: set[torch.fx.Node] = set()  # constants whose extents or values depend on those of the inputs
        self.counted: dict[Any, Sized] = {}  # extents of constants that depend on values, by PyTorch's symbols for them
        self.batched: dict[torch.fx.Node, bool] = {}  # constants of the batch's extent; whether values depend on it
        self.positions: dict[torch.fx.Node, Any] = {}  # of these, what is known for all sizes, as torch_positions says
        self.placed: dict[
            tuple[torch.fx.Node, int], Tensor
        ] = {}  # images of positions, by the axes they broadcast with
        self.extents: set[Any] = set()  # symbols in the heights and widths of the inputs
        self.failures: list[tuple[str, str, str]] = []
        self.has_another_layout = False
        self.user_inputs: list[tuple[torch.fx.Node, str]] = []
        self.patterns = {node: found for node in self.nodes for found in patterns(node)}
        self.folded: _Folded = {}
        self.fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self._read_placeholders()

    # ---- inputs and constants

    def _read_placeholders(self) -> None:
        placeholders = {node.name: node for node in self.nodes if node.op == "placeholder"}
        for spec in self.program.graph_signature.input_specs:
            node = placeholders[spec.arg.name]
            if spec.kind == InputKind.USER_INPUT:
                if isinstance(spec.arg, ConstantArgument):
                    self.values[node] = spec.arg.value
                elif isinstance(spec.arg, TensorArgument):
                    self.user_inputs.append((node, spec.arg.name))
                else:
                    raise InvalidModelError(f'{self.name}: the input "{spec.arg.name}" is not a tensor.')
                continue
            target = str(spec.target)
            if target in self.program.state_dict:
                value = self.program.state_dict[target]
            else:
                value = self.program.constants.get(target)
            self.values[node] = value if value is not None else Missing(f'"{target}", which has no value')
        if not self.user_inputs:
            raise InvalidModelError(f"{self.name} has no inputs.")
        for node, name in self.user_inputs:
            layouts = self._layouts(node, name)
            self.has_another_layout = self.has_another_layout or len(layouts) > self.attempt

    def _layouts(self, node: torch.fx.Node, name: str) -> tuple[str, ...]:
        fake = node.meta["val"]
        if fake.dtype not in (torch.float32, torch.float16) and _input_dtype(fake) not in INPUT_DTYPES:
            raise InvalidModelError(
                f'{self.name}: the input "{name}" is {fake.dtype}; images are torch.float32, torch.float16 or'
                " torch.bfloat16, or integers that the module converts."
            )
        reader = None if fake.dtype.is_floating_point else _reader_of_integers(node)
        if reader is not None:
            raise InvalidModelError(
                f'{self.name}: the input "{name}" is {fake.dtype}, and {self._label(reader)} ({_operator_text(reader)})'
                " computes with these integers; convert them before, with x.float()."
            )
        if fake.ndim not in LAYOUTS:
            volumes = ""
            if fake.ndim == 5:
                first, second = (_hint(extent) for extent in fake.shape[1:3])
                volumes = (
                    f" Load torch.nn.Sequential(torch.nn.Unflatten(1, ({first}, {second})), module), whose input has"
                    f" axes 1 and 2 as one, of {first * second}."
                )
            raise InvalidModelError(
                f'{self.name}: the input "{name}" has {fake.ndim} axes; images have 1 to 4, the batch first.{volumes}'
            )
        return LAYOUTS[fake.ndim]

    def _read_inputs(self) -> None:
        for node, name in self.user_inputs:
            layouts = self._layouts(node, name)
            axes = layouts[min(self.attempt, len(layouts) - 1)]
            shape = node.meta["val"].shape
            if self.batch is None:
                self.batch = shape[0]
            dtype = _input_dtype(node.meta["val"])
            x = self.builder.input(name, tuple(int(_hint(extent)) for extent in shape[1:]), axes, dtype)
            for axis, extent in zip(axes[1:], shape[1:], strict=True):
                if axis != "C":
                    self.extents |= symbols(extent)
            static = {
                axis: int(extent)
                for axis, extent in zip(axes[1:], shape[1:], strict=True)
                if axis != "C" and not symbols(extent)
            }
            if static and not self.is_free:
                inputs = self.builder.graph.inputs
                spec = replace(inputs[name], height=static.get("H", inputs[name].height))
                spec = replace(spec, width=static.get("W", spec.width))
                inputs[name] = replace(spec, fixed_by=FIXED_BY_TRACE)
            if dtype in FRACTIONS:
                with self.builder.node(name, "input"):
                    x = arithmetic.multiply(self.builder, x, FRACTIONS[dtype])
            self.values[node] = x
        self._read_conditions()

    def _read_conditions(self) -> None:
        """Set the conditions on batch, heights and widths under which the program is right."""
        inputs = self.builder.graph.inputs
        given = [(name, inputs[name].layout, node.meta["val"].shape) for node, name in self.user_inputs]
        conditions = torch_guards.Conditions(self.program, given)
        conditions.read_branches()
        conditions.read_shapes()
        if not self.of_module:
            conditions.read_stated(self.guards)
        for place, on_extents, on_batch in conditions.unknown:
            if on_extents:
                with self.builder.node(place, "a branch that depends on sizes"):
                    self.builder.fix()
            if on_batch and symbols(self.batch):
                conditions.found[given[0][0]].append(f"batch == {int(_hint(self.batch))}")
        for name, texts in conditions.found.items():
            sizes = " and ".join(dict.fromkeys(texts))
            if len(sizes) > _sizes.LIMIT:
                with self.builder.node(f"{len(texts)} conditions", f"{len(sizes)} characters"):
                    self.builder.fix()
                sizes = f"(batch == {int(_hint(self.batch))})" if symbols(self.batch) else ""
            inputs[name] = replace(inputs[name], sizes=sizes)

    # ---- the walk

    def graph(self) -> Graph:
        self._read_inputs()
        needed = self._needed()
        for node in self.nodes:
            if node.op in ("placeholder", "output") or node not in needed:
                continue
            self.values[node] = self._value(node)
        self._write_outputs()
        if self.failures:
            raise UnsupportedOperatorError(self.name, self.failures)
        return self.builder.graph

    def name_dependence(self) -> None:
        """Say in the graph which node fixes heights and widths in any trace, if it is known.

        It says that the trace does, or the first of several nodes, of which the others may have no free form.
        """
        inputs = self.builder.graph.inputs
        for name, spec in inputs.items():
            if self.builder.would_fix and spec.fixed_by and (self.is_free or spec.fixed_by == FIXED_BY_TRACE):
                inputs[name] = replace(spec, fixed_by=self.builder.would_fix)

    def _needed(self) -> set[torch.fx.Node]:
        output = next(node for node in self.nodes if node.op == "output")
        found: set[torch.fx.Node] = set()
        wanted = list(output.all_input_nodes)
        while wanted:
            node = wanted.pop()
            if node in found:
                continue
            found.add(node)
            if node in self.patterns:
                wanted += self.patterns[node].sources
            else:
                wanted += node.all_input_nodes
        return found

    def _label(self, node: torch.fx.Node) -> str:
        """Return a node's name: the path of its module, and its own name if the module has several operators."""
        stack = node.meta.get("nn_module_stack") or {}
        path, kind = "", ""
        for path, kind in stack.values():  # noqa: B007  (the innermost)
            pass
        path = re.sub(r"@\d+", "", path).removeprefix("L['self'].").removeprefix("L__self__").lstrip(".")
        if path and str(kind).startswith("torch.nn.modules.") and ".container." not in str(kind):
            return path
        return f"{path}.{node.name}" if path else node.name

    def _value(self, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(self.program.graph_module)
            return value if isinstance(value, torch.Tensor) else Missing(f'"{node.target}", which is no tensor')
        known = operator_name(node) in OPERATORS or node.target is operator.getitem or self._is_number(node)
        try:
            if operator_name(node) in ("item", "_local_scalar_dense") and isinstance(
                value := self._argument(node.args[0]), torch.Tensor
            ):
                self.sized |= {node} if self.sized & set(node.all_input_nodes) else set()
                self.batched |= {node: True} if self.batched.keys() & set(node.all_input_nodes) else {}
                return _constant(value, f"{self.name}: {node.name}").item()
            if self._is_number(node):
                return self._number(node.meta["val"])
            if node in self.patterns:
                return self._matched(node, self.patterns[node])
            args = [self._argument(argument) for argument in node.args]
            kwargs = {key: self._argument(argument) for key, argument in node.kwargs.items()}
            flat = list(_flattened([*args, *kwargs.values()]))
            if any(value is _FAILED for value in flat):
                if not known and not self._is_check(node):
                    raise UnmappedError(ADVICE.get(operator_name(node), _UNKNOWN))
                return _FAILED
            if node.target is operator.getitem:
                self._note_part(node)
                return args[0][args[1]] if isinstance(args[0], (list, tuple)) else args[0]
            if not any(isinstance(value, (Tensor, Merged, Turned, Rows, Missing)) for value in flat):
                return self._folded(node, args, kwargs)
            if self._is_check(node):
                return None
            if not known:
                raise UnmappedError(ADVICE.get(operator_name(node), _UNKNOWN))
            return self._mapped(node, args, kwargs)
        except UnmappedError as reason:
            self.failed.add(node.name)
            self.failures.append((_operator_text(node), self._label(node), str(reason)))
            return _FAILED

    @staticmethod
    def _is_number(node: torch.fx.Node) -> bool:
        return (
            isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float))
            and node.op == "call_function"
        )

    @staticmethod
    def _is_check(node: torch.fx.Node) -> bool:
        """Return whether the node only asserts something."""
        return not node.users and _operator_text(node).rpartition(".")[2].startswith(("_assert", "sym_constrain"))

    def _number(self, value: Any) -> Any:
        """Return a number of the program, as a `Sized` or `Number` if it was computed from extents of the inputs."""
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value
        free = symbols(value)
        counts = [self.counted[symbol] for symbol in free if symbol in self.counted]
        if len(counts) == len(free):
            hint = value.node.pytype(value.node.expr.subs({symbol: int(self.counted[symbol]) for symbol in free}))
        else:
            hint = _hint(value)
        of_batch = bool(free & symbols(self.batch)) or any(count.of_batch for count in counts)
        of_extents = bool(free & self.extents) or any(count.of_extents for count in counts)
        if not free or (counts and not (of_batch or of_extents)):
            return hint
        kind = Sized if isinstance(hint, int) else Number
        return kind.of(hint, value.node.expr, of_batch, of_extents)

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._argument(part) for part in argument]
        if isinstance(argument, slice):
            return slice(*(self._argument(part) for part in (argument.start, argument.stop, argument.step)))
        return argument

    def _arguments(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Arguments:
        schema = node.target._schema  # type: ignore[union-attr]
        values: dict[str, Any] = {}
        for place, argument in enumerate(schema.arguments):
            if place < len(args) and not argument.kwarg_only:
                values[argument.name] = args[place]
            elif argument.name in kwargs:
                values[argument.name] = kwargs[argument.name]
            elif argument.has_default_value():
                values[argument.name] = argument.default_value
            else:
                values[argument.name] = None
        return Arguments(self.builder, node, values, self.batch, self._number, _constant, self.values)

    def _mapped(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        name, label = operator_name(node), self._label(node)
        if any(self.batched.get(source) for source in node.all_input_nodes):
            raise UnmappedError(f"a constant that {OF_BATCH}")
        constant = self._sized_constant(node, name)
        if constant is not None:
            return constant
        with self.builder.node(label, _operator_text(node)):
            result = self._with_positions(node, name)
            if result is None:
                if self.sized & set(node.all_input_nodes) and name not in _ANY_EXTENT:
                    self.builder.fix()
                arguments = self._arguments(node, args, kwargs)
                result = torch_batch.apply(OPERATORS[name], name, arguments)
        if isinstance(result, torch.Tensor) and any(symbols(e) & symbols(self.batch) for e in node.meta["val"].shape):
            self.batched[node] = False  # one value everywhere
        if name not in _REPEATED:
            self._check_shapes(node, result)
        if isinstance(result, Tensor) and _aliased(node)[0] is None:
            result = replace(result)  # a distinct object, even if its values are those of its source
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            source = node.args[0]
            assert isinstance(source, torch.fx.Node)
            if not isinstance(self.values[source], (Tensor, Merged, Turned, Rows)):
                raise UnmappedError("a constant that is changed")
            for other in self.values.that_have(self.values[source]):
                self.values[other] = result
        return result

    # ---- constants whose extents or values depend on those of the inputs

    def _sized_constant(self, node: torch.fx.Node, name: str) -> torch.Tensor | None:
        """Return a constant that only its type, or that of a tensor, connects with the network; None for others."""
        first = node.args[0]
        if name == "type_as" and first in self.sized and isinstance(value := self._argument(first), torch.Tensor):
            result = value.to(node.meta["val"].dtype)
        elif name in _FILLED and isinstance(self._argument(first), Tensor):
            fake = node.meta["val"]
            extents = [self._number(extent) for extent in fake.shape]
            computed = [extent for extent in extents if isinstance(extent, Sized)]
            value = self._argument(node.args[2]) if len(node.args) > 2 else float(name == "new_ones")
            is_number = isinstance(value, (bool, int, float)) and not isinstance(value, (Sized, Number))
            if not any(extent.of_extents for extent in computed) or any(extent.of_batch for extent in computed):
                return None
            if not is_number or math.prod(extents) > MAXIMUM_CONSTANT:
                return None
            result = torch.full([int(extent) for extent in extents], value, dtype=fake.dtype)
        else:
            return None
        self.sized.add(node)
        self._note_positions(node)
        return result

    def _note_part(self, node: torch.fx.Node) -> None:
        """Note that a part of a result depends on extents if that does."""
        source: Any = node.args[0]
        place: Any = node.args[1]
        if source in self.batched:
            self.batched[node] = self.batched[source]
        if source not in self.sized:
            return
        self.sized.add(node)
        known = self.positions.get(source)
        if isinstance(known, list) and known[place] is not None:
            self.positions[node] = known[place]

    def _note_batch(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Note that a constant depends on the number of images, and whether its values do, which repeat otherwise."""
        known = [self.batched[source] for source in node.all_input_nodes if source in self.batched]
        values = [value for value in (*args, *kwargs.values()) if not isinstance(value, (list, tuple))]  # not shapes
        computed = [value for value in _flattened([*args, *kwargs.values()]) if isinstance(value, (Sized, Number))]
        if not known and not any(number.of_batch for number in computed):
            return
        name = operator_name(node)
        repeats = name in _SHAPING or torch.Tag.pointwise in node.target.tags  # type: ignore[union-attr]
        repeats |= name in _OF_ROWS and not any(source in self.batched for source in node.all_input_nodes[1:])
        if name in _OF_ROWS and node.meta["val"].ndim > 1:
            repeats &= bool(symbols(node.meta["val"].shape[0]))
        fakes = [node.meta["val"]] if isinstance(node.meta["val"], torch.Tensor) else node.meta["val"]
        has_axis = all(any(symbols(extent) & symbols(self.batch) for extent in fake.shape) for fake in fakes)
        is_value = any(isinstance(value, (Sized, Number)) and value.of_batch for value in values)
        self.batched[node] = any(known) or is_value or not repeats or not has_axis

    def _note_positions(self, node: torch.fx.Node) -> None:
        """Note what is known for all sizes about a constant, a result of PyTorch's operators."""
        fakes = node.meta["val"] if isinstance(node.meta["val"], (list, tuple)) else [node.meta["val"]]
        sources = [n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
        exact = (torch.float32, torch.float64, torch.int32, torch.int64)
        if not all(isinstance(fake, torch.Tensor) and fake.dtype in exact for fake in fakes):
            return
        if any(not fake.is_floating_point() and source.is_floating_point() for fake in fakes for source in sources):
            return

        def known(argument: Any) -> Any:
            if isinstance(argument, (list, tuple)):
                return [known(part) for part in argument]
            if isinstance(argument, torch.fx.Node) and argument in self.sized:
                return self.positions.get(argument)
            return self._argument(argument)

        schema = node.target._schema  # type: ignore[union-attr]
        given = {one.name: known(value) for one, value in zip(schema.arguments, node.args, strict=False)}
        given |= {name: known(value) for name, value in node.kwargs.items()}
        given["operator"] = operator_name(node)
        shapes = [[self._number(extent) for extent in fake.shape] for fake in fakes]
        several = isinstance(node.meta["val"], (list, tuple))
        found = torch_positions.of_program(operator_name(node), given, shapes if several else shapes[0])
        if found is not None:
            self.positions[node] = found

    def _with_positions(self, node: torch.fx.Node, name: str) -> Any:
        """Return the result of an operator on positions of pixels that the network computes, or None."""
        sources = self.sized & set(node.all_input_nodes)
        is_known = all(isinstance(self.positions.get(source), torch_positions.Positions) for source in sources)
        fixed = all(spec.fixed_by for spec in self.builder.graph.inputs.values())
        if not sources or not is_known or fixed or name not in _WITH_POSITIONS:
            return None
        before = {source: self.values[source] for source in sources}
        rank = node.meta["val"].ndim
        try:
            for source in sources:
                if (source, rank) not in self.placed:
                    self.placed[source, rank] = torch_positions.images(
                        self.builder, self.positions[source], rank, self._image_of_sides
                    )
                self.values[source] = self.placed[source, rank]
            args = [self._argument(argument) for argument in node.args]
            kwargs = {key: self._argument(argument) for key, argument in node.kwargs.items()}
            return torch_batch.apply(OPERATORS[name], name, self._arguments(node, args, kwargs))
        except UnmappedError:
            return None
        finally:
            self.values |= before

    def _image_of_sides(self, sides: Sequence[Any]) -> Tensor | None:
        """Return an image of this height and width for all inputs, or of as many pixels if one extent is given."""
        for node, value in reversed(self.values.items()):
            fake = node.meta.get("val")
            if not isinstance(value, Tensor) or value.flat is not None or value.axes != "NCHW":
                continue
            if not isinstance(fake, torch.Tensor) or fake.ndim != 4:
                continue
            height, width = (self._number(extent) for extent in fake.shape[2:])
            if len(sides) == 1:
                if int(height) * int(width) != int(sides[0]):
                    continue
                one, other = (getattr(side, "expression", side) for side in (height, width))
                if torch_positions.same(Sized.of(0, one * other, False, True), sides[0]):
                    return value
            elif (int(height), int(width)) == tuple(map(int, sides)) and all(
                map(torch_positions.same, (height, width), sides)
            ):
                return value
        return None

    def _check_shapes(self, node: torch.fx.Node, result: Any) -> None:
        """Raise InvalidModelError unless the result has the shape that the program states."""
        results, fakes = (
            [value] if not isinstance(value, (list, tuple)) else value for value in (result, node.meta["val"])
        )
        for value, fake in zip(results, fakes, strict=False):
            if not isinstance(value, (Tensor, Merged, Turned)) or not isinstance(fake, torch.Tensor):
                continue
            if isinstance(value, Tensor) and fake.ndim == value.rank:
                self._count(node, fake.shape[1:], value.shape)
            shape = tuple(int(self._number(extent)) for extent in fake.shape)
            if isinstance(value, Turned):
                place, value = value.place, value.tensor
                shape = (shape[place], *shape[:place], *shape[place + 1 :])
            stated = shape if isinstance(value, Merged) else shape[1:]
            if stated != value.shape:
                raise InvalidModelError(
                    f'{self.name}: "{node.name}" ({_operator_text(node)}) is said to be {shape}; its arguments make it'
                    f" {(*shape[: len(shape) - len(stated)], *value.shape)}."
                )

    def _folded(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the value of a node that depends only on constants."""
        if not isinstance(node.target, torch._ops.OpOverload):
            raise UnmappedError(_UNKNOWN)
        if node.target.namespace == "torchvision":
            raise UnmappedError("an operator of constants alone")
        changed = None
        if node.target._schema.is_mutable and operator_name(node) != "detach":
            changed = args[0] if self._is_own_constant(node) else None
            if changed is None:
                raise UnmappedError("a constant that is changed")
        is_training = True in (*node.args[2:3], node.kwargs.get("train"))  # dropout
        is_identity = operator_name(node) in _IDENTITIES and not is_training
        if torch.Tag.nondeterministic_seeded in node.target.tags and not is_identity:
            raise UnmappedError("random numbers")
        if any(
            isinstance(value, (Sized, Number)) and value.of_extents for value in _flattened([*args, *kwargs.values()])
        ):
            self.sized.add(node)
        self.sized |= {node} if self.sized & set(node.all_input_nodes) else set()
        self._note_batch(node, args, kwargs)
        args, kwargs = _plain(args), _plain(kwargs)
        flat = list(_flattened([*args, *kwargs.values()]))
        key = (node, *(id(value) if isinstance(value, torch.Tensor) else (type(value), value) for value in flat))
        try:
            with torch.no_grad():
                result = self.folded[key][0] if changed is None and key in self.folded else None
                if result is None:
                    # The shapes that a program states may be wrong: infer them with PyTorch before anything is
                    # allocated. That may compute with the values as well, so operators that change them get a copy
                    # each time.
                    first, rest = (args[:1], args[1:]) if changed is not None else ([], args)
                    with self.fakes:
                        fakes = _flattened([node.target(*(value.clone() for value in first), *rest, **kwargs)])
                    for fake in fakes:
                        if isinstance(fake, torch.Tensor) and fake.numel() > MAXIMUM_CONSTANT:
                            raise UnmappedError(f"a constant of {fake.numel()} values")
                    result = node.target(*(value.clone() for value in first), *rest, **kwargs)
                    if operator_name(node) in _OF_ROWS and self.batched.get(node) is False:
                        result = result[:1].expand(result.shape)  # products of the same rows may be rounded otherwise
                    if changed is None:
                        self.folded[key] = result, flat
        except UnmappedError:
            raise
        except DynamicOutputShapeException:
            result = self._counted(node, args, kwargs)
        except Exception as error:
            raise InvalidModelError(f'{self.name}: "{node.name}", of constants: {first_line(error)}') from error
        if node in self.sized and changed is None:
            self._note_positions(node)
        if changed is not None:
            same = self.values.that_have(changed)
            self.values |= dict.fromkeys(same, result)
            self.sized |= set(same) if node in self.sized else set()
        return result

    def _counted(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the value of an operator of constants whose number of results depends on values."""
        tensors = [value for value in _flattened([*args, *kwargs.values()]) if isinstance(value, torch.Tensor)]
        name = operator_name(node)
        masks = args[1] if name == "index" else []
        if name not in _COUNTING or any(one is not None and one.dtype != torch.bool for one in masks):
            raise UnmappedError("a constant whose extents depend on values")
        counts = [one.numel() * max(one.ndim, 1) for one in tensors]
        if name == "masked_select":
            counts.append(math.prod(np.broadcast_shapes(*(tuple(one.shape) for one in tensors))))
        if max(counts) > MAXIMUM_CONSTANT:
            raise UnmappedError(f"a constant of more than {MAXIMUM_CONSTANT} values")
        try:
            result = node.target(*args, **kwargs)  # type: ignore[operator]
            fakes, results = ([x] if isinstance(x, torch.Tensor) else x for x in (node.meta["val"], result))
            for fake, one in zip(fakes, results, strict=True):
                self._count(node, fake.shape, one.shape)
        except Exception as error:
            raise InvalidModelError(f'{self.name}: "{node.name}", of constants: {first_line(error)}') from error
        return result

    def _count(self, node: torch.fx.Node, stated: Sequence[Any], shape: Sequence[int]) -> None:
        """Note the extents of a result that PyTorch does not know, because they depend on values of constants."""
        for extent, found in zip(stated, shape, strict=True):
            if not isinstance(extent, torch.SymInt) or extent.node.hint is not None or not extent.node.expr.is_Symbol:
                continue
            symbol, is_sized = extent.node.expr, node in self.sized
            self.counted.setdefault(symbol, Sized.of(int(found), symbol, self.batched.get(node, False), is_sized))

    @staticmethod
    def _is_own_constant(node: torch.fx.Node) -> bool:
        """Return whether a node changes its first argument only, which is a result of the program, not a parameter."""
        schema = node.target._schema  # type: ignore[union-attr]
        written = [argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments]
        owner = node.args[0] if node.args else None
        while isinstance(owner, torch.fx.Node) and owner.op == "call_function":
            view = owner.args[0] if owner.target is operator.getitem else _aliased(owner)[0]
            if view is None:
                return written[0] and not any(written[1:])
            owner = view
        return False

    def _matched(self, node: torch.fx.Node, pattern: Pattern) -> Any:
        values = {name: self._argument(value) for name, value in pattern.arguments.items()}
        if any(value is _FAILED for value in values.values()):
            return _FAILED
        arguments = Arguments(self.builder, node, values, self.batch, self._number, _constant, self.values)
        with self.builder.node(self._label(node), pattern.operator):
            return pattern.compute(self.builder, arguments)

    # ---- outputs

    def _write_outputs(self) -> None:
        signature = self.program.graph_signature
        output = next(node for node in self.nodes if node.op == "output")
        returned = list(output.args[0])
        leaves: list[Any] = []
        for spec, value in zip(signature.output_specs, returned, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                leaves.append(value)
            elif spec.kind not in (OutputKind.USER_INPUT_MUTATION,):
                target = str(spec.target)
                if isinstance(value, torch.fx.Node) and self.values.get(value) is not _FAILED:
                    self.failures.append(("buffer mutation", target, "the model changes it; call module.eval() first"))
        for name, leaf in zip(self._output_names(len(leaves)), leaves, strict=True):
            if leaf is None:
                continue
            value = self.values[leaf] if isinstance(leaf, torch.fx.Node) else leaf
            if value is _FAILED:
                continue
            if isinstance(value, Tensor):
                self.builder.output(name, value)
            else:
                what = value.why if isinstance(value, Missing) else "a constant"
                if isinstance(value, (Merged, Rows)):
                    what = "the batch taken together with other axes"
                if isinstance(value, Turned):
                    what = f"the axis of the batch at place {value.place}"
                self.failures.append(("output", name, what))
        if not self.failures and not self.builder.graph.outputs:
            raise InvalidModelError(f"{self.name} has no outputs.")

    def _output_names(self, count: int) -> list[str]:
        spec = self.program.call_spec.out_spec
        if spec is None or spec.num_leaves != count:
            return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
        paths = [path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(count)), spec))[0]]
        names = []
        for path in paths:
            parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
            text = ".".join(parts)
            names.append("output" if not text else f"output_{text}" if text[0].isdigit() else text)
        taken = collections.Counter(names)
        return [name if taken[name] == 1 else f"{name}_{place}" for place, name in enumerate(names)]


def _flattened(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flattened(value)
        elif isinstance(value, slice):
            yield from (value.start, value.stop, value.step)
        else:
            yield value


def _plain(value: Any) -> Any:
    """Return arguments with Python's own numbers, for PyTorch."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, Sized):
        return int(value)
    if isinstance(value, Number):
        return float(value)
    return value
