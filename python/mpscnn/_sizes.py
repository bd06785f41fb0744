# SPDX-License-Identifier: Apache-2.0
"""Conditions on the batch, height and width of an input, such as "height % 32 == 0 and height <= width".

They may come from a file: they are parsed, not run as Python.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import operator
from collections.abc import Callable
from typing import Any

LIMIT = 100_000  # characters: they are parsed in some hundredths of a second
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


def check(text: str) -> str:
    """Return the condition; ValueError unless it is one."""
    if text:
        tree = _parsed(text)
        if not isinstance(tree, (ast.Compare, ast.BoolOp)) and not _is_not(tree):
            raise ValueError(f"sizes ({text:.100}) is not a condition, such as height % 32 == 0.")
        for node in ast.walk(tree):
            if not _is_known(node):
                raise ValueError(
                    f"sizes ({text:.100}) has {type(node).__name__}; conditions have batch, height, width, integers,"
                    " +, -, *, //, %, comparisons, and, or, not, min and max."
                )
        try:
            holds(text, 1, 1)
        except RecursionError:
            raise ValueError(f"sizes ({text:.100}) is nested too deeply.") from None
    return text


@functools.lru_cache(maxsize=256)
def holds(text: str, height: int, width: int, batch: int = 1) -> bool:
    """Return whether a condition holds; those of several that divide by 0 do."""
    return not violated(text, height, width, batch)


def syntax_tree(text: str) -> ast.expr:
    """Return the syntax tree of an expression. Raise the exceptions of ast.parse.

    Python counts the depth of all threads together while it builds a tree, and raises SystemError if another thread
    parses meanwhile: https://github.com/python/cpython/issues/106905.
    """
    for _ in range(99):
        with contextlib.suppress(SystemError):
            return ast.parse(text, mode="eval").body
    return ast.parse(text, mode="eval").body


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    if len(text) > LIMIT:
        raise ValueError(f"sizes has {len(text)} characters, more than the maximum ({LIMIT}).")
    try:
        return syntax_tree(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"sizes ({text:.100}) is not a condition: {error}.") from None


def violated(text: str, height: int, width: int, batch: int = 1) -> str:
    """Return the first of several conditions that does not hold; "" if all do."""
    names = {"height": height, "width": width, "batch": batch}
    for part in _conjuncts(text):
        with contextlib.suppress(ZeroDivisionError):
            if not _value(part, names):
                return ast.unparse(part)
    return ""


def reads(text: str) -> set[str]:
    """Return what a condition is about: "batch", "height", "width"."""
    names = {node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)} if text else set()
    return names - _FUNCTIONS.keys()


def parts(text: str) -> list[str]:
    """Return conditions that all hold if the condition does."""
    return [f"({ast.unparse(part)})" for part in _conjuncts(text)]


def _conjuncts(text: str) -> list[ast.expr]:
    found, left = [], [_parsed(text)] if text else []
    while left:
        tree = left.pop()
        if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
            left += reversed(tree.values)
        else:
            found.append(tree)
    return found


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_known(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Name):
        return node.id in ("batch", "height", "width", *_FUNCTIONS)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords and bool(node.args)
    kinds = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.And, ast.Or, ast.Load)
    return isinstance(node, kinds) or type(node) in _OPERATORS


def _value(node: ast.expr, names: dict[str, int]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_value(node.operand, names))
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.BoolOp):
        found = (_value(part, names) for part in node.values)
        return all(found) if isinstance(node.op, ast.And) else any(found)
    if isinstance(node, ast.Compare):
        values = [_value(part, names) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, values, values[1:], strict=False)
        return all(_OPERATORS[type(op)](one, other) for op, one, other in pairs)
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return _FUNCTIONS[node.func.id](*(_value(part, names) for part in node.args))
