# SPDX-License-Identifier: Apache-2.0
"""Conditions on the batch, heights and widths for which an exported program is right.

A trace has one branch of a condition such as ``if x.shape[2] % 2``. torch.export notes these as guards: of symbols in
the shape environment of a program that was traced, and as text of Python in one that comes from a file, which is
parsed, not run. A program also has ranges of its symbols, and operators that assert something.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.utils._sympy.printers import PythonPrinter

from .. import _sizes
from . import torch_numbers

_TORCH = Path(torch.__file__).parent
# Calls forward(): the place of conditions in code that comes from exec(), which PyTorch's search for the place skips.
_CALLER = str(_TORCH / "nn" / "modules" / "module.py")

# Parts of the names of PyTorch's functions with several results.
_SEVERAL = ("split", "chunk")

# Operators whose result is the same, without an axis of one image, if the source has none.
_WITHOUT_BATCH = {
    *("abs", "add", "alias", "celu", "clamp", "clamp_max", "clamp_min", "clone", "contiguous", "cos", "detach", "div"),
    *("dropout", "elu", "erf", "exp", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "linear", "log"),
    *("log_sigmoid", "maximum", "minimum", "mish", "mul", "neg", "pow", "reciprocal", "relu", "relu6", "reshape"),
    *("rsqrt", "rsub", "selu", "sigmoid", "silu", "sin", "softplus", "sqrt", "square", "squeeze", "sub", "tanh", "to"),
    *("_to_copy", "type_as", "view"),
}
# The same, if their axes are counted from the last.
_OF_LAST_AXES = {
    *("softmax", "log_softmax", "_softmax", "_log_softmax", "mean", "sum", "amax", "amin", "argmax", "argmin"),
}

# Operators whose results have a shape that follows from that of their source for some sizes only.
_SHAPED = {"squeeze", "view", "reshape", "_unsafe_view", "pixel_unshuffle", "unflatten"}

# Names of an input's extents in conditions, by the axes of its layout.
_WORDS = {"N": "batch", "H": "height", "W": "width"}

# A range without this minimum or more has none: torch.export assumes that free extents are 2 or more, and does not
# check it.
_MINIMUM = 3
# A range with this maximum or more has none.
_MAXIMUM = 1 << 31


def symbols(value: Any) -> set[Any]:
    """Return the free symbols of a number of the program: none if it is constant, even if PyTorch wraps it."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return set(value.node.expr.free_symbols)
    return set()


def _branches(program: torch.export.ExportedProgram) -> list[tuple[Any, str]]:
    """Return the conditions on symbols by which the module's own code chose a branch, with the place in the code.

    Not those of PyTorch's code, which raises an error if they do not hold, or has the same result. But operators may
    have as many results as an extent says, or make a number of one.
    """
    env = _environment(program)
    found = []
    for guard in getattr(env, "guards", ()):
        frame: Any = getattr(getattr(guard, "sloc", None), "framework_loc", None)
        file = getattr(frame, "filename", "")
        is_of_module = not Path(file).is_relative_to(_TORCH) or file == _CALLER
        if file in ("", torch_numbers.__file__):  # that has notes
            continue
        if is_of_module or _is_number(guard.expr) or any(word in frame.name for word in _SEVERAL):
            found.append((env.replace(guard.expr), f"{Path(file).name}:{frame.lineno}"))
    for expression, number, place in getattr(env, torch_numbers.NOTES, ()):
        found.append((env.replace(expression if number is True else sympy.Eq(expression, number)), place))
    return found


def has_branches(program: torch.export.ExportedProgram) -> bool:
    """Return whether the module's own code evaluated conditions on extents that were free at first."""
    return bool(_branches(program))


def _is_number(condition: Any) -> bool:
    """Return whether a number was made of a symbol or, probably, of an expression with another value than 0 and 1."""
    if not isinstance(condition, sympy.Eq) or not condition.rhs.is_Integer:
        return False
    return condition.lhs.is_Symbol or (condition.rhs > 1 and type(condition.lhs).__name__ != "Mod")


def _environment(program: torch.export.ExportedProgram) -> Any:
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    mode = next((value.fake_mode for value in values if hasattr(value, "fake_mode")), None)
    return getattr(mode, "shape_env", None)


def _stated(program: torch.export.ExportedProgram) -> Iterator[tuple[Any, str]]:
    """Yield the ranges of a program's symbols, and what its operators assert about symbols."""
    for symbol, values in program.range_constraints.items():
        for limit, relation in ((values.lower, sympy.Ge), (values.upper, sympy.Le)):
            is_limit = limit.is_Integer and (limit >= _MINIMUM if relation is sympy.Ge else limit < _MAXIMUM)
            if is_limit and symbol.is_Symbol:
                yield relation(symbol, limit), "the range of an extent"
    for node in program.graph.nodes:
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        value = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if name == "_assert_scalar" and isinstance(value, torch.SymBool):
            yield value.node.expr, node.name
        elif name.startswith("sym_constrain_range") and isinstance(value, torch.SymInt):
            for key, relation in (("min", sympy.Ge), ("max", sympy.Le)):
                limit = node.kwargs.get(key)
                if isinstance(limit, int) and (limit >= _MINIMUM if key == "min" else limit < _MAXIMUM):
                    yield relation(value.node.expr, limit), node.name


class Conditions:
    """Reader of the conditions of one program.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    inputs : list of (name, layout, shape)
        The shapes are those of the program, with symbols.
    """

    def __init__(self, program: torch.export.ExportedProgram, inputs: Sequence[tuple[str, str, Sequence[Any]]]) -> None:
        self.program, self.inputs = program, inputs
        self.found: dict[str, list[str]] = collections.defaultdict(list)
        self.unknown: list[tuple[str, bool, bool]] = []  # a place; whether its condition is on extents, on the batch
        self.first = inputs[0][0]  # has the conditions on the batch, which all inputs share
        self.names: dict[Any, tuple[str, str]] = {}  # for each symbol the input that has it, and its text in conditions
        self.channels: dict[Any, int] = {}  # symbols of channels, of which a network takes this number alone
        self.batches: set[Any] = set()
        self.extents: set[Any] = set()
        for name, layout, shape in inputs:
            for axis, extent in zip(layout, shape, strict=True):
                if axis not in _WORDS and symbols(extent) and extent.node.expr.is_Symbol:
                    self.channels[extent.node.expr] = extent.node.hint
                if axis in _WORDS and symbols(extent):
                    self._name(name, _WORDS[axis], extent.node.expr)
                    (self.batches if axis == "N" else self.extents).update(symbols(extent))

    def _name(self, name: str, word: str, expression: Any) -> None:
        owner = self.first if word == "batch" else name
        if expression.free_symbols <= self.names.keys():
            known = {self.names[symbol][0] for symbol in expression.free_symbols}
            text = self._text(expression) if known == {owner} else ""
            if text and text != word:
                self.found[owner].append(f"({text} == {word})")
            return
        if expression.is_Symbol:
            self.names[expression] = owner, word
            return
        (symbol, *others) = expression.free_symbols
        factor, rest = expression.coeff(symbol), expression.subs(symbol, 0)
        if not others and factor.is_Integer and factor > 0 and rest.is_Integer and expression == factor * symbol + rest:
            before = f"({word} - {rest})" if rest else word
            self.names[symbol] = owner, f"({before} // {factor})" if factor > 1 else before
            if factor > 1:
                self.found[owner].append(f"({before} % {factor} == 0)")

    def _text(self, expression: Any) -> str:
        """Return an expression with the names of extents; "" if it has others."""
        if not expression.free_symbols <= self.names.keys():
            return ""
        known = {
            symbol: type(symbol)(self.names[symbol][1], integer=True, positive=True)
            for symbol in expression.free_symbols
        }
        return str(PythonPrinter().doprint(expression.xreplace(known)))

    def read_branches(self) -> None:
        """Read the conditions by which the module's own code chose a branch."""
        for condition, place in _branches(self.program):
            self._read(condition, place)

    def read_shapes(self) -> None:
        """Read the shapes for which operators have the results of the trace.

        An axis of one element is removed by squeeze, but for that of the batch, which is kept; so it must not be one
        image, unless all that reads the result is the same without this axis. A view has as many elements as its
        source: otherwise, PyTorch raises an error.
        """
        for node in self.program.graph.nodes:
            name = str(node.target).removeprefix("aten.").partition(".")[0]
            if name not in _SHAPED or not isinstance(node.args[0], torch.fx.Node):
                continue
            shape = node.args[0].meta["val"].shape
            if name == "squeeze":
                dims = node.args[1] if len(node.args) > 1 else range(len(shape))
                for dim in dims if isinstance(dims, (list, tuple, range)) else [dims]:
                    is_kept = symbols(shape[dim]) & self.batches and _takes_no_batch(node)
                    if symbols(shape[dim]) and not is_kept:
                        self._read(sympy.Ne(shape[dim].node.expr, 1), node.name)
                continue
            before, after = (
                collections.Counter(extent.node.expr if symbols(extent) else int(extent) for extent in each)
                for each in (shape, node.meta["val"].shape)
            )
            one, other = (sympy.Mul(*counted.elements()) for counted in (before - after, after - before))
            condition = sympy.Eq(sympy.expand(one), sympy.expand(other)).xreplace(self.channels)
            if condition not in (sympy.true, sympy.false) and self._text(condition):
                self._read(condition, node.name)

    def read_stated(self, guards: Sequence[str] | None) -> None:
        """Read what the program itself says: ranges, assertions, and its guards as text unless it was traced."""
        for condition, place in _stated(self.program):
            self._read(condition, place)
        if guards is None and not getattr(_environment(self.program), "guards", ()):
            guards = getattr(self.program, "_guards_code", None)
        extents = {}
        for name, layout, shape in self.inputs:
            for axis, (letter, extent) in enumerate(zip(layout, shape, strict=True)):
                is_free = letter in _WORDS and symbols(extent)
                number = self.channels.get(extent.node.expr) if symbols(extent) else extent
                owner = self.names.get(extent.node.expr, (name, _WORDS[letter])) if is_free else (name, number)
                extents[name, axis] = owner
        for number, text in enumerate(guards or ()):
            self._read_text(text, extents, f"guard {number}")

    def _read_text(self, text: str, extents: Mapping[tuple[str, int], Any], place: str) -> None:
        owners: set[str] = set()

        def named(name: str, axis: int) -> Any:
            owner, word = extents.get((name, axis), ("", None))
            if isinstance(word, str) and word != "batch":
                owners.add(owner)
            return word if isinstance(word, (int, str)) else None

        condition = condition_of(text, named)
        if not condition or len(owners) > 1:
            self.unknown.append((place, True, "[0]" in text))
        elif _sizes.reads(condition) and not _is_same(condition):
            self.found[next(iter(owners), self.first)].append(f"({condition})")

    def _read(self, condition: Any, place: str) -> None:
        condition = condition.xreplace(self.channels)
        on_extents = bool(condition.free_symbols & self.extents)
        on_batch = bool(condition.free_symbols & self.batches)
        if not on_extents and not on_batch:
            return
        owners = {self.names.get(symbol, ("", ""))[0] for symbol in condition.free_symbols - self.batches}
        text = "" if len(owners) > 1 else self._text(condition)
        try:
            text = text and _sizes.check(f"({text})")
        except ValueError:
            text = ""
        if text:
            self.found[next(iter(owners), self.first)].append(text)
        else:
            self.unknown.append((place, on_extents, on_batch))


def _takes_no_batch(squeezed: torch.fx.Node) -> bool:
    """Return whether what reads a result of squeeze is the same if that has no axis for one image."""
    seen, left = {squeezed}, list(squeezed.users)
    while left:
        node = left.pop()
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        if node in seen or node.op == "output" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        if name in _OF_LAST_AXES:
            axes = node.args[1] if len(node.args) > 1 else None
            several = axes if isinstance(axes, (list, tuple)) else [axes]
            if not all(isinstance(axis, int) and axis < 0 for axis in several):
                return False
        elif name.removesuffix("_") not in _WITHOUT_BATCH:
            return False
        seen.add(node)
        left += node.users
    return True


def condition_of(guard: str, named: Callable[[str, int], str | int | None]) -> str:
    """Return the condition that a guard's text is, such as "L['x'].size()[2] % 2 == 0"; "" if it is none.

    `named` returns the word of an input's extent in conditions, or its value; None if there is no such extent.
    """
    if len(guard) > _sizes.LIMIT:
        return ""
    try:
        tree = _Named(named).visit(_sizes.syntax_tree(guard))
        return _sizes.check(ast.unparse(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _is_same(condition: str) -> bool:
    """Return whether the condition is that something equals itself, as extents of several inputs do in their words."""
    tree: Any = _sizes.syntax_tree(condition)
    is_equal = isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq)
    return is_equal and ast.dump(tree.left) == ast.dump(tree.comparators[0])


class _Named(ast.NodeTransformer):
    """Replaces extents of inputs, L['x'].size()[2] or L['xs'][0].size()[2], by their words."""

    def __init__(self, named: Callable[[str, int], str | int | None]) -> None:
        self._named = named

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        path, axis = node.value, _constant(node.slice)
        is_size = isinstance(path, ast.Call) and isinstance(path.func, ast.Attribute) and path.func.attr == "size"
        if not is_size or path.args or path.keywords or type(axis) is not int:  # type: ignore[attr-defined]
            raise ValueError
        keys, owner = [], path.func.value  # type: ignore[attr-defined]
        while isinstance(owner, ast.Subscript):
            keys.append(str(_constant(owner.slice)))
            owner = owner.value
        if not isinstance(owner, ast.Name) or owner.id != "L":
            raise ValueError
        word = self._named("_".join(reversed(keys)), axis)
        if word is None:
            raise ValueError
        return ast.Name(word, ast.Load()) if isinstance(word, str) else ast.Constant(word)


def _constant(node: ast.expr) -> Any:
    if not isinstance(node, ast.Constant) or type(node.value) not in (int, str):
        raise ValueError
    return node.value
