# SPDX-License-Identifier: Apache-2.0
"""The package's public callables, their parameters, and calls with the arguments of RIGHT."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from argument_objects import BASES, CANNOT_BE_MADE, CLASSES, EXCEPTIONS, KERNELS, MODULES, OWNERS
from right_arguments import BY_POSITION, RIGHT, TEMPORARIES

import mpscnn
from mpscnn import _core
from mpscnn._public import ArrayLike
from support import runtime_arguments

SOURCES = {"DataSource", "NormalizationDataSource", "PaddingPolicy"}
# Words of pybind11's own messages about C++, signatures or casts.
RAW = re.compile(r"incompatible|pybind|C\+\+|argument types are|Invoked with|mpscnn\._core|std::|[Uu]nable to cast")
DEFAULT_MEMBERS = {"__doc__", "__eq__", "__hash__", "__init__", "__module__", "__repr__"}
DEFAULT_MEMBERS |= {"__copy__", "__getstate__", "__reduce__", "__setstate__"}  # called by copy and pickle


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a class, including those of private base classes in Python."""
    bases = [base for base in kind.__bases__ if inspect.getmodule(base) not in (_core, mpscnn)]
    bases += [ArrayLike] * issubclass(kind, ArrayLike)
    spaces = [
        vars(kind),
        *(vars(base) for base in bases if base.__name__.startswith("_") or issubclass(base, ArrayLike)),
    ]
    for space in spaces:
        for name, value in space.items():
            is_dunder = name.startswith("__")
            if name in DEFAULT_MEMBERS or (name.startswith("_") and not is_dunder) or name == "__weakref__":
                continue
            yield name, value


def public_callables() -> set[str]:
    """Return the names of functions, classes, methods and settable properties."""
    names = set(mpscnn.__all__) - {
        *SOURCES,
        *BASES,
        *KERNELS,
        *EXCEPTIONS,
        *CANNOT_BE_MADE,
    }  # a data source has no arguments
    found = {name for name in names if callable(getattr(mpscnn, name))}
    found |= {f"{name}.{member}" for name, module in MODULES.items() for member in module.__all__}
    of_kernels = {f"Kernel.{spec['name']}" for spec in _core.common_params()}
    for name in set(CLASSES) - set(KERNELS) - BASES - EXCEPTIONS:
        for member, value in own_members(CLASSES[name]):
            if getattr(value, "__isabstractmethod__", False):
                continue
            if inspect.isfunction(value) or is_bound_by_pybind11(value) or is_settable(value):
                found.add(f"{name}.{member}")
    return found - of_kernels


def is_bound_by_pybind11(value: Any) -> bool:
    return isinstance(value, staticmethod) or type(value).__name__ in ("instancemethod", "method_descriptor")


def is_settable(value: Any) -> bool:
    return isinstance(value, property) and value.fset is not None


def attribute_of(name: str) -> Any:
    owner, _, member = name.partition(".")
    return getattr((CLASSES | MODULES)[owner] if member else mpscnn, member or owner)


def is_pythons(value: Any) -> bool:
    """Return whether it is written in Python, which checks the number of its arguments itself."""
    return inspect.isfunction(value.__init__ if inspect.isclass(value) else value)


PYTHONS_OWN = {name for name in RIGHT if is_pythons(attribute_of(name))}


def call(name: str, arguments: dict[str, Any], *more: Any, made: Any = None) -> Any:
    """Call by keywords, on `made` or on a new object; `more` follows the positional-only arguments."""
    owner, _, member = name.partition(".")
    if name in BY_POSITION:
        first, sources = BY_POSITION[name]
        more = (*(arguments[one] for one in first), *sources(), *more)
        arguments = {one: value for one, value in arguments.items() if one not in first}
    if not member:
        return getattr(mpscnn, owner)(*more, **arguments)
    if owner in MODULES:
        return getattr(MODULES[owner], member)(*more, **arguments)
    kind = CLASSES[owner]
    attribute = inspect.getattr_static(kind, member)
    if isinstance(attribute, staticmethod):
        return getattr(kind, member)(*more, **arguments)
    made = TEMPORARIES.get(name, OWNERS.get(owner))() if made is None else made
    if isinstance(attribute, property):
        (value,) = arguments.values()
        return setattr(made, member, value)
    if member == "__exit__":
        made.__enter__()
    result = getattr(made, member)(*more, **arguments)
    if member == "__enter__":
        made.__exit__(None, None, None)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def refused(name: str, arguments: dict[str, Any], *more: Any) -> str:
    """Return the message of the TypeError."""
    with pytest.raises(TypeError) as caught:
        call(name, arguments, *more)
    text = str(caught.value)
    assert not RAW.search(text), text
    assert re.fullmatch(r"\S.*\.", text, re.DOTALL), f"{text!r} is no sentence"
    return text


def signature_of(name: str) -> tuple[list[str], set[str]]:
    """Return the names of the arguments, and those that are optional."""
    owner, _, member = name.partition(".")
    value = attribute_of(name)
    if isinstance(value, property):
        return [member], set()
    if is_pythons(value):
        # Arguments in *arrays and **named are listed in the table; those in *sources in BY_POSITION and SENTENCES.
        open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        signature = inspect.signature(value).parameters.values()
        parameters = [one for one in signature if one.name != "self" and one.kind not in open_ended]
        return [one.name for one in parameters], {one.name for one in parameters if one.default is not one.empty}
    is_class = inspect.isclass(value)
    parsed = runtime_arguments(value.__init__ if is_class else value, "__init__" if is_class else member or owner)
    by_position = [one.arg for one in [*parsed.posonlyargs, *parsed.args]]
    by_keyword = [one.arg for one in parsed.kwonlyargs]
    optional = {*by_position[len(by_position) - len(parsed.defaults) :], *by_keyword}
    return [one for one in [*by_position, *by_keyword] if one != "self"], optional
