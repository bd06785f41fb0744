# SPDX-License-Identifier: Apache-2.0
"""Files of a module's code, and what a trace leaves in their global variables.

Code may keep tensors for a size: in a dictionary of its file or class, or by functools.lru_cache. Those of a trace have
no values, and the module would use them in its next call.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._subclasses.fake_tensor import FakeTensor


@functools.lru_cache(maxsize=16384)
def is_of_module(file: str) -> bool:
    """Return whether a file has code of a module: not PyTorch's, the standard library's, or that of this package."""
    is_standard = file.startswith(_STANDARD) and "site-packages" not in file
    return not (is_standard or file.startswith(_LIBRARIES))


_STANDARD = sysconfig.get_path("stdlib")
_LIBRARIES = (*(str(Path(str(library.__file__)).parent) for library in (torch, sympy)), str(Path(__file__).parent))


def files(module: torch.nn.Module) -> list[dict[str, Any]]:
    """Return the globals of all loaded files of the packages that the module's parts and functions are from."""
    packages = {type(part).__module__.partition(".")[0] for part in module.modules()} - {"torch"}
    loaded = [file for name, file in list(sys.modules.items()) if name.partition(".")[0] in packages]
    paths = [(file, getattr(file, "__file__", None)) for file in loaded]
    found = [vars(file) for file, path in paths if isinstance(path, str) and is_of_module(path)]
    functions = [value for part in module.modules() for value in vars(part).values() if type(value) is FunctionType]
    found += [value.__globals__ for value in functions if is_of_module(value.__code__.co_filename)]
    return list({id(scope): scope for scope in found}.values())


class Caches:
    """Global variables of a module's files and classes that may keep tensors.

    Parameters
    ----------
    module : torch.nn.Module
    scopes : list of dict
        Globals of its files.
    """

    def __init__(self, module: torch.nn.Module, scopes: list[dict[str, Any]]) -> None:
        kinds = {kind for part in module.modules() for kind in type(part).__mro__}
        own = [kind for kind in kinds if kind.__module__.partition(".")[0] not in ("torch", "builtins")]
        self._values: list[Any] = []  # containers, and functions with caches
        self._open: list[dict[int, tuple[Any, Any]]] = []  # for each block, values and what they had
        for scope in scopes:
            self.add(scope)
        for kind in own:
            self._values += filter(_is_cache, vars(kind).values())
            self._values += filter(_is_cache, getattr(vars(kind).get("forward"), "__defaults__", None) or ())

    def add(self, scope: dict[str, Any]) -> None:
        """Add a file, by its globals."""
        values = [scope, *filter(_is_cache, list(scope.values()))]
        self._values += values
        for before in self._open:
            before.update(_contents(values))

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Remove what a trace inside of the block leaves: tensors without values, and symbols."""
        before = _contents(self._values)
        self._open.append(before)
        try:
            yield
        finally:
            self._open.remove(before)
            for value, content in before.values():
                if isinstance(value, list):
                    if any(map(_is_of_trace, value)):
                        value[:] = content
                elif isinstance(value, dict):
                    for key in [key for key, one in list(value.items()) if _is_of_trace(one) or _is_of_trace(key)]:
                        if key in content:
                            value[key] = content[key]
                        else:
                            del value[key]
                elif value.cache_info().misses != content:
                    value.cache_clear()


def _is_cache(value: Any) -> bool:
    return type(value) in (dict, list) or isinstance(value, functools._lru_cache_wrapper)


def _contents(values: list[Any]) -> dict[int, tuple[Any, Any]]:
    """Return values by their identity, each with its content, or the number of calls that its cache did not have."""
    return {
        id(value): (value, value.copy() if isinstance(value, (dict, list)) else value.cache_info().misses)
        for value in values
    }


def _is_of_trace(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_is_of_trace, value))
    if isinstance(value, dict):
        return any(map(_is_of_trace, dict.values(value)))  # values() of a mapping that is lazy would import them
    return isinstance(value, (FakeTensor, *_SYMBOLS)) or (isinstance(value, torch.Tensor) and value.is_meta)


class Batch(int):
    """The batch in a trace without symbols, of which code may only make the first extent of a view.

    Each operation raises SizeReadError: what it returns would be that of one batch.
    """

    is_used = False  # by a view


class SizeReadError(BaseException):
    """The module read a size. No Exception, so that its own code does not handle it."""


def _raising(name: str) -> Any:
    def method(self: Batch, *args: Any) -> Any:
        raise SizeReadError(name)

    return method


_KEPT = {"__class__", "__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__", "__init_subclass__"}
for _name in set(dir(int)) - _KEPT - {"__subclasshook__", "__doc__", "__getnewargs__", "__reduce__", "__reduce_ex__"}:
    setattr(Batch, _name, _raising(_name))
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool, Batch)
