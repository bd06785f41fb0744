# SPDX-License-Identifier: Apache-2.0
"""Extents that a module's code turns into numbers of Python during a trace.

int(x.shape[0]) and len(x) are numbers of Python, for which torch.export fixes the extent: a later condition on the
number leaves no guard. Where a module has such code, the names int and len are replaced in its file for another trace,
by functions that keep symbols. What remains (range(x.shape[0]), list(x), a key of a dictionary) fixes the extent.

Code of a module is traced as if it was not: in its files, symbols are numbers for isinstance() and type(), and
torch.compiler.is_exporting() is false. If there is no such trace, there is another one in which it is true.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import math
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.sym_node import SymNode

from . import torch_caches
from .torch_caches import is_of_module

NOTES = "_mpscnn_numbers"  # attribute of a shape environment: expressions, the numbers made of them, and where
_LOCK = threading.RLock()  # the methods are those of all threads


class _Kind(type):
    """Type of `_Int`, which is int but for symbols."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (torch.SymInt, torch.SymFloat)):
            return args[0] if isinstance(args[0], torch.SymInt) else _truncated(args[0])
        return int(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, int)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, int)

    def __eq__(cls, other: object) -> bool:
        return other is int or other is _Int

    def __hash__(cls) -> int:
        return hash(int)


class _Int(int, metaclass=_Kind):
    pass


def _length(value: Any) -> Any:
    return value.shape[0] if isinstance(value, torch.Tensor) and value.ndim else len(value)


def _truncated(value: torch.SymFloat) -> Any:
    """Return int(value): without the divisions that cancel, as those of windows, n * h * w / size / (h * w / size)."""
    whole = sympy.expand(sympy.cancel(_rational(value.node.expr)))
    symbols = sorted(whole.free_symbols, key=str)
    env, hint = value.node.shape_env, value.node.hint
    if hint is None or not symbols or not whole.is_polynomial(*symbols):
        return math.trunc(value)
    if not all(factor.is_Integer for factor in sympy.Poly(whole, *symbols).coeffs()):
        return math.trunc(value)
    return env.create_symintnode(whole, hint=int(hint))


def _rational(expression: Any) -> Any:
    """Return an expression of float divisions as exact ones. Floats have all whole numbers that extents are."""
    name = type(expression).__name__
    args = [_rational(part) for part in expression.args]
    if expression.is_Float and float(expression).is_integer():
        return sympy.Integer(int(expression))
    if name == "ToFloat":
        return args[0]
    if name in ("IntTrueDiv", "FloatTrueDiv"):
        return args[0] / args[1]
    return expression.func(*args) if args else expression


def _isinstance(value: Any, kinds: Any) -> bool:
    if isinstance(value, _SYMBOLS):
        return isinstance(value, kinds) or isinstance(_plain(value), kinds)
    return isinstance(value, kinds)


class _KindOfKinds(type):
    """Type of `_Type`, which is type but for symbols."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            return type(*args, **kwargs)
        kind = type(_plain(args[0]))
        return sys._getframe(1).f_globals.get("int", int) if kind is int else kind

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, type)

    def __eq__(cls, other: object) -> bool:
        return other is type or other is _Type

    def __hash__(cls) -> int:
        return hash(type)


class _Type(type, metaclass=_KindOfKinds):
    pass


def _plain(value: Any) -> Any:
    """Return a number or tensor of the type that a value has outside of traces."""
    for kind, number in zip(_SYMBOLS, (0, 0.0, False), strict=True):
        if isinstance(value, kind):
            return number
    if isinstance(value, FakeTensor):
        return _PARAMETER if isinstance(value, torch.nn.Parameter) else _TENSOR
    return value


_TENSOR = torch.empty(0)
_PARAMETER = torch.nn.Parameter(torch.empty(0), requires_grad=False)


_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class NumberMadeError(BaseException):
    """Ends a trace in which a file makes the first number of a symbol: the names in it are replaced in the next one."""


class Numbers:
    """Notes, for the traces of one module, which of its files turn symbols into numbers.

    Parameters
    ----------
    module : torch.nn.Module
    is_traced : bool
        Whether the module's code is told that it is traced.
    """

    def __init__(self, module: torch.nn.Module, *, is_traced: bool = False) -> None:
        self._scopes: list[dict[str, Any]] = []  # globals of these files
        self.kept = False  # the module can be traced with other functions for int and len
        self.ends = False  # a trace ends with NumberMadeError where it finds another such file
        self.is_traced = is_traced
        self.late = False  # code of a file may have run before the names in it were replaced
        self.asked = False  # whether the module's code asked whether it is traced
        self.calls = 0  # of functions of tensors, in all traces with symbols
        self.calls_of_trace = 0  # and in the last one that ended
        self._files = {id(scope): scope for scope in torch_caches.files(module)}
        self.caches = torch_caches.Caches(module, list(self._files.values()))

    def reached(self, frame: types.FrameType) -> None:
        """Note the file of a module's code that is running in a trace and may read sizes."""
        if self.note_file(frame):
            _set_kinds(frame.f_globals)
            self.late = True

    def note_file(self, frame: types.FrameType) -> bool:
        """Note the file of a module's code that is running; return whether it was not known."""
        scope = frame.f_globals
        if id(scope) in self._files:
            return False
        self._files[id(scope)] = scope
        self.caches.add(scope)
        return True

    @property
    def found(self) -> bool:
        """Whether there are such files."""
        return bool(self._scopes)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the files inside of the block; int and len keep symbols in those noted before if `self.kept`.

        The text of a symbol, "s0", is that of its number in the module's code, for which the trace fixes the extent,
        except in arguments of torch._assert: its message is made even if the condition holds.
        """
        names: dict[str, Any] = {"int": _Int, "len": _length} if self.kept else {}
        thread = threading.get_ident()

        def watched(before: Callable[..., Any], symbol: Any) -> Any:
            frame = sys._getframe(2)
            if threading.get_ident() != thread or not is_of_module(frame.f_code.co_filename):
                return before(symbol)
            if before in _TEXTS:
                if any(start < frame.f_lasti < end for start, end in _asserted(frame.f_code)):
                    return before(symbol)
                return repr(int(symbol) if isinstance(symbol, torch.SymInt) else float(symbol))
            if not any(scope is frame.f_globals for scope in self._scopes):
                self._scopes.append(frame.f_globals)
                if self.ends:
                    raise NumberMadeError
            return before(symbol)

        with _LOCK, contextlib.ExitStack() as undo:
            undo.enter_context(self.caches.restored())
            undo.enter_context(_asking(self))
            undo.callback(self._restore)
            for scope in self._files.values():
                _set_kinds(scope)
            for scope in list(self._scopes):
                for name in names.keys() - scope.keys():
                    undo.callback(scope.pop, name, None)
                    scope[name] = names[name]
            for kind, name in _WATCHED:
                before = getattr(kind, name)
                undo.callback(setattr, kind, name, before)
                setattr(kind, name, _method(watched, before))
            undo.callback(setattr, SymNode, "guard_int", SymNode.guard_int)
            setattr(SymNode, "guard_int", _noting(SymNode.guard_int))  # noqa: B010  (mypy)
            yield

    def _restore(self) -> None:
        for scope in self._files.values():
            for name, value in _KINDS.items():
                if scope.get(name) is value:
                    del scope[name]


@functools.lru_cache(maxsize=4096)
def _asserted(code: types.CodeType) -> tuple[tuple[int, int], ...]:
    """Return the parts of a function's code that compute the arguments of torch._assert."""
    found = []
    instructions = list(dis.get_instructions(code))
    for place, one in enumerate(instructions):
        if one.argval != "_assert" or not one.opname.startswith("LOAD"):
            continue
        depth, of_result = _effect(one), int("GLOBAL" in one.opname)
        for other in instructions[place + 1 :]:
            depth += _effect(other)
            if other.opname.startswith("CALL") and depth <= of_result:
                found.append((one.offset, other.offset))
                break
    return tuple(found)


def _effect(one: dis.Instruction) -> int:
    """Return by how much an instruction changes the height of the stack."""
    return dis.stack_effect(one.opcode, one.arg, jump=False)


_KINDS = {"isinstance": _isinstance, "type": _Type}


def _set_kinds(scope: dict[str, Any]) -> None:
    for name, value in _KINDS.items():
        scope.setdefault(name, value)


@contextlib.contextmanager
def _asking(numbers: Numbers) -> Iterator[None]:
    """Let functions that tell whether code is traced return False in code of modules, unless `numbers.is_traced`.

    Their code is replaced, because files may have imported the functions by name.
    """
    with contextlib.ExitStack() as undo:
        for name, asks in _ASKS.items():
            function: Any = getattr(torch.compiler, name, None)
            if hasattr(function, "__code__") and not function.__code__.co_freevars:
                own = type(function)(function.__code__, function.__globals__, name)
                undo.callback(setattr, function, "__code__", own.__code__)
                undo.callback(_ANSWERS.pop, name, None)
                _ANSWERS[name] = own, numbers
                function.__globals__["_mpscnn_answer"] = answer
                function.__code__ = asks.__code__
        yield


# PyTorch's functions by name, with the trace that asks.
_ANSWERS: dict[str, tuple[Callable[[], bool], Numbers]] = {}


def _is_compiling() -> bool:
    return _mpscnn_answer("is_compiling")  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _is_exporting() -> bool:
    return _mpscnn_answer("is_exporting")  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _is_dynamo_compiling() -> bool:
    return _mpscnn_answer("is_dynamo_compiling")  # type: ignore[name-defined,no-any-return]  # noqa: F821


# Code in the place of PyTorch's functions, whose globals it has: there, `answer` has another name.
_ASKS: dict[str, Any] = {
    "is_compiling": _is_compiling,
    "is_exporting": _is_exporting,
    "is_dynamo_compiling": _is_dynamo_compiling,
}


def answer(name: str) -> bool:
    """Return what PyTorch's function of this name does; False if code of a module calls it that is told so."""
    own, numbers = _ANSWERS[name]
    frame: Any = sys._getframe(2)
    if frame.f_code.co_name == "is_compiling":  # of torch._utils or torch._dynamo, which call this one
        frame = frame.f_back
    if not is_of_module(frame.f_code.co_filename):
        return own()
    numbers.asked = True
    return numbers.is_traced and own()


def _noting(before: Callable[..., int]) -> Callable[..., int]:
    """Return SymNode.guard_int, with a note in the environment: expression, number, and place in the module's code."""

    def guard_int(node: Any, file: str, line: int) -> int:
        expression, number = node.expr, before(node, file, line)
        if expression.free_symbols:
            frame: Any = sys._getframe(1)
            while frame.f_back and not is_of_module(frame.f_code.co_filename):
                frame = frame.f_back
            place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            vars(node.shape_env).setdefault(NOTES, []).append((expression, number, place))
        return number

    return guard_int


def _method(watched: Callable[..., Any], before: Callable[..., Any]) -> Callable[..., Any]:
    return lambda symbol: watched(before, symbol)


_TEXTS = (torch.SymInt.__repr__, torch.SymFloat.__repr__)
_WATCHED = [(kind, name) for kind in (torch.SymInt, torch.SymFloat) for name in ("__int__", "__repr__")]
_WATCHED.append((torch.SymInt, "__index__"))
