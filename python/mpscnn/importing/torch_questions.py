# SPDX-License-Identifier: Apache-2.0
"""Questions of a module's code during a trace whose answers depend on extents, without a guard of torch.export.

* ``x.is_contiguous(memory_format=...)`` depends on which extents are 1.
* ``x.shape[0] is 6`` is true for small numbers, and never for symbols.
* PyTorch raises errors for some extents only. Conditions for these are no guards of the module's code, unless it
  handles the errors.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.overrides import TorchFunctionMode

from .torch_caches import is_of_module
from .torch_guards import symbols
from .torch_numbers import NOTES, Numbers

# The axes in memory, from the outermost.
_ORDERS: dict[torch.memory_format, dict[int, tuple[int, ...]]] = {
    torch.contiguous_format: {rank: tuple(range(rank)) for rank in range(9)},
    torch.channels_last: {4: (0, 2, 3, 1)},
    torch.channels_last_3d: {5: (0, 2, 3, 4, 1)},
}


class Questions(TorchFunctionMode):
    """Makes conditions of the questions of a module's code."""

    def __init__(self, numbers: Numbers) -> None:
        super().__init__()
        self._numbers = numbers

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._numbers.calls += 1
        tensor = next((value for value in args if isinstance(value, torch.Tensor)), None)
        env = getattr(getattr(tensor, "fake_mode", None), "shape_env", None)
        if tensor is None or env is None:
            return func(*args, **kwargs)
        frame = frame_of_module(sys._getframe(1))
        if frame is not None:
            self._numbers.reached(frame)
            if _has_identities(frame.f_code):
                _note_extents(env, tensor, "a number's identity")
        if func is torch.Tensor.is_contiguous:
            result = func(*args, **kwargs)
            ask_order(env, *args, **kwargs)
            return result
        if not is_handled(frame):
            return func(*args, **kwargs)
        before = len(env.guards)
        try:
            return func(*args, **kwargs)
        except Exception:
            for value in args:
                if isinstance(value, torch.Tensor):
                    _note_extents(env, value, _HANDLED)
            raise
        finally:
            for guard in env.guards[before:]:
                _note(env, guard.expr, True, _HANDLED)

    @contextlib.contextmanager
    def over(self, module: torch.nn.Module) -> Iterator[None]:
        """Make conditions of the questions in calls of a module; its attributes are restored by the caller."""
        forward: Callable[..., Any] = module.forward

        @functools.wraps(forward)
        def asked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return forward(*args, **kwargs)

        module.forward = asked
        yield


class Files(TorchFunctionMode):
    """Notes the files of a module's code that runs inside of the block, so that a trace need not begin again."""

    def __init__(self, numbers: Numbers) -> None:
        super().__init__()
        self._numbers = numbers

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = frame_of_module(sys._getframe(1))
        if frame is not None:
            self._numbers.note_file(frame)
        return func(*args, **(kwargs or {}))


_HANDLED = "an error that the module handles"


def _note(env: Any, expression: Any, value: Any, place: str) -> None:
    vars(env).setdefault(NOTES, []).append((expression, value, place))


def _note_extents(env: Any, tensor: torch.Tensor, place: str) -> None:
    extents: tuple[Any, ...] = tuple(tensor.shape)
    for extent in extents:
        if symbols(extent):
            _note(env, extent.node.expr, int(extent.node.hint), place)


def ask_order(env: Any, tensor: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> None:
    """Make conditions of the extents that are 1 and decide whether a tensor has this order in memory.

    An axis of extent 1 has any stride.
    """
    order = _ORDERS.get(memory_format, {}).get(tensor.ndim)
    if order is None:
        return
    sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
    expected: Any = 1
    conditions = []
    for axis in reversed(order):
        size, stride = sizes[axis], strides[axis]
        if _hint(size) != 1 and _hint(stride) != _hint(expected):
            conditions = [sympy.Ne(_expression(size), 1), sympy.Ne(_expression(stride), _expression(expected))]
            conditions += [sympy.Ne(_expression(one), 0) for one in sizes if not _expression(one).is_Symbol]
            break
        one, other = (size, 1) if _hint(stride) != _hint(expected) else (stride, expected)
        conditions.append(sympy.Eq(_expression(one), _expression(other)))
        expected = expected * size
    for condition in conditions:
        if condition not in (sympy.true, sympy.false):
            _note(env, condition, True, _ORDER)


def _expression(value: Any) -> Any:
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


_ORDER = "the order in memory"


def _hint(value: Any) -> int:
    return int(value.node.hint) if isinstance(value, torch.SymInt) else int(value)


def is_handled(frame: types.FrameType | None) -> bool:
    """Return whether the code of a module that is running in a frame handles errors, or that of its callers."""
    while frame is not None and not frame.f_code.co_filename.startswith(_HERE):
        for start, end, kinds in _handled(frame.f_code):
            if start <= frame.f_lasti < end and (kinds is None or any(_may_raise(frame, kind) for kind in kinds)):
                return True
        frame = frame.f_back
    return False


_Parts = tuple[tuple[int, int, tuple[str, ...] | None], ...]
_PARTS: dict[int, tuple[types.CodeType, _Parts]] = {}  # of functions, by identity: their hash reads all their code
_MOST_PARTS = 4096


def _handled(code: types.CodeType) -> _Parts:
    """Return the parts of a module's function whose errors it handles: those of "except", and of "with suppress".

    With the names of the classes of these errors; None: of any class, or of one that is not known.
    """
    known = _PARTS.get(id(code))
    if known is None:
        if len(_PARTS) >= _MOST_PARTS:
            _PARTS.clear()
        known = _PARTS[id(code)] = code, _parts_of(code)
    return known[1]


def _parts_of(code: types.CodeType) -> _Parts:
    if not is_of_module(code.co_filename):
        return ()
    found = []
    instructions = list(dis.get_instructions(code))
    for start, end, target in _guarded(code, instructions):
        names = [one.opname for one in instructions if target <= one.offset < target + _HANDLER_BYTES]
        is_with = any("WITH_EXCEPT_START" in name for name in names[:4])
        is_bare = "POP_TOP" in names[:2]
        if "suppress" in code.co_names if is_with else is_bare or any("EXC_MATCH" in name for name in names):
            found.append((start, end, None if is_with else _kinds(instructions, target)))
    return tuple(found)


def _kinds(instructions: list[dis.Instruction], target: int) -> tuple[str, ...] | None:
    """Return the names of the classes in the clauses of a handler, from the first; None: there are others as well."""
    places = {one.offset: place for place, one in enumerate(instructions)}
    names: list[str] = []
    while True:
        clause = instructions[places[target] :]
        place = next((place for place, one in enumerate(clause) if one.opname not in _OF_CLAUSE), len(clause) - 1)
        if clause[place].opname == "RERAISE":
            return tuple(names)
        if "EXC_MATCH" not in clause[place].opname:
            return None
        names += [one.argval for one in clause[:place] if one.opname == "LOAD_GLOBAL"]
        jump = next((one for one in clause[place : place + 2] if "JUMP" in one.opname), None)
        if jump is None or jump.argval not in places:
            return None
        target = jump.argval


# Instructions in front of the comparison of an error with classes that are global variables.
_OF_CLAUSE = ("PUSH_EXC_INFO", "DUP_TOP", "LOAD_GLOBAL", "BUILD_TUPLE", "EXTENDED_ARG", "NOP", "NOT_TAKEN")


def _may_raise(frame: types.FrameType, name: str) -> bool:
    """Return whether PyTorch may raise errors of a class with this name in a frame: Python's, or PyTorch's own."""
    kind = frame.f_globals.get(name, getattr(builtins, name, None))
    return not isinstance(kind, type) or kind.__module__.partition(".")[0] in ("builtins", "torch")


# The begin of a handler, with the exceptions that it is for.
_HANDLER_BYTES = 60
_HERE = str(Path(__file__).parent)


def _guarded(code: types.CodeType, instructions: list[dis.Instruction]) -> list[tuple[int, int, int]]:
    """Return the parts of a function's code that have a handler, and where this begins."""
    if not hasattr(code, "co_exceptiontable"):  # before CPython 3.11
        kinds = ("SETUP_FINALLY", "SETUP_WITH")
        return [(one.offset, int(one.argval), int(one.argval)) for one in instructions if one.opname in kinds]
    bytecode: Any = dis.Bytecode(code)
    begins = {one.offset for one in instructions if one.opname == "PUSH_EXC_INFO"}
    return [(entry.start, entry.end, entry.target) for entry in bytecode.exception_entries if entry.target in begins]


@functools.lru_cache(maxsize=4096)
def _has_identities(code: types.CodeType) -> bool:
    """Return whether a function asks whether something is a literal number itself."""
    instructions = list(dis.get_instructions(code))
    for number, one in enumerate(instructions):
        if one.opname == "IS_OP":
            before = [other.argval for other in instructions[max(number - 4, 0) : number] if "CONST" in other.opname]
            if any(type(value) is int for value in before):
                return True
    return False


def frame_of_module(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the frame of the innermost caller that is code of a module, inside of its forward()."""
    while frame is not None and not is_of_module(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(_HERE):
            return None
        frame = frame.f_back
    return frame
