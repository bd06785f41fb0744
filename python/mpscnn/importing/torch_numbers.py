# SPDX-License-Identifier: Apache-2.0
"""Extents that a module's code turns into numbers of Python during a trace.

int(x.shape[0]) and len(x) are numbers of Python, for which torch.export fixes the extent: a later condition on the
number leaves no guard. Where a module has such code, the names int and len are replaced in its file for another trace,
by functions that keep symbols. What remains (range(x.shape[0]), list(x), a key of a dictionary) fixes the extent.
"""

from __future__ import annotations

import contextlib
import math
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental.sym_node import SymNode

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


class Numbers:
    """Notes, for the traces of one module, which of its files turn symbols into numbers."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, Any]] = []  # globals of these files
        self.kept = False  # the module can be traced with other functions for int and len

    @property
    def found(self) -> bool:
        """Whether there are such files."""
        return bool(self._scopes)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the files inside of the block; int and len keep symbols in those noted before if `self.kept`.

        The text of a symbol, "s0", is that of its number in the module's code, for which the trace fixes the extent.
        """
        names: dict[str, Any] = {"int": _Int, "len": _length} if self.kept else {}
        thread = threading.get_ident()

        def watched(before: Callable[..., Any], symbol: Any) -> Any:
            frame = sys._getframe(2)
            if threading.get_ident() != thread or not _is_of_module(frame.f_code.co_filename):
                return before(symbol)
            if before in _TEXTS:
                return repr(int(symbol) if isinstance(symbol, torch.SymInt) else float(symbol))
            if not any(scope is frame.f_globals for scope in self._scopes):
                self._scopes.append(frame.f_globals)
            return before(symbol)

        with _LOCK, contextlib.ExitStack() as undo:
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


def _noting(before: Callable[..., int]) -> Callable[..., int]:
    """Return SymNode.guard_int, with a note in the environment: expression, number, and place in the module's code."""

    def guard_int(node: Any, file: str, line: int) -> int:
        expression, number = node.expr, before(node, file, line)
        if expression.free_symbols:
            frame: Any = sys._getframe(1)
            while frame.f_back and not _is_of_module(frame.f_code.co_filename):
                frame = frame.f_back
            place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            vars(node.shape_env).setdefault(NOTES, []).append((expression, number, place))
        return number

    return guard_int


def _method(watched: Callable[..., Any], before: Callable[..., Any]) -> Callable[..., Any]:
    return lambda symbol: watched(before, symbol)


def _is_of_module(file: str) -> bool:
    """Return whether a file has code of a module: not PyTorch's, the standard library's, or this one."""
    is_standard = file.startswith(_STANDARD) and "site-packages" not in file
    return not (is_standard or file.startswith(_LIBRARIES) or file == __file__)


_STANDARD = sysconfig.get_path("stdlib")
_LIBRARIES = tuple(str(Path(str(library.__file__)).parent) for library in (torch, sympy))
_TEXTS = (torch.SymInt.__repr__, torch.SymFloat.__repr__)
_WATCHED = [(kind, name) for kind in (torch.SymInt, torch.SymFloat) for name in ("__int__", "__repr__")]
_WATCHED.append((torch.SymInt, "__index__"))
