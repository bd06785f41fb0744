# SPDX-License-Identifier: Apache-2.0
"""Docstrings for the API reference of mkdocs.yml, as help() shows them.

Signatures come from the sources and stubs, without running anything. Docstrings of kernels are made of their rows, and
those of the compiled core stand in C++: both are there only when the package is imported.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

# What only stubs tell of without the package; everything else has its docstrings in its source.
IN_STUBS = ("mpscnn._core.", "mpscnn.kernels.")
MOST_OVERLOADS = 8  # signatures of one function that are shown: mpscnn.kernel has one for each kernel


class RuntimeDocstrings(griffe.Extension):
    """Puts the docstring of the object itself in the place of what the stub has."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Called by griffe once a package is known, its stubs included."""
        if pkg.name != "mpscnn":
            return
        self._parsing = {"parser": loader.docstring_parser, "parser_options": loader.docstring_options}
        for name in pkg["kernels"].members:
            # The classes that the package imports by "*" are only in the stub.
            if name in importlib.import_module("mpscnn").__all__ and name not in pkg.members:
                pkg.set_member(name, griffe.Alias(name, f"mpscnn.kernels.{name}"))
        self._visit(pkg)

    def _visit(self, parent: griffe.Module | griffe.Class) -> None:
        for name, overloads in parent.overloads.items():
            if name not in parent.members and overloads:  # a stub has nothing behind them
                function = overloads[0]
                function.overloads = overloads
                parent.set_member(name, function)
        for name, member in parent.members.items():
            if member.is_alias or (name.startswith("_") and name not in ("_core", "__call__")):
                continue
            if member.is_function and len(member.overloads or ()) > MOST_OVERLOADS:
                member.overloads = None
            text = member.docstring.value if member.docstring is not None else None
            if member.path.startswith(IN_STUBS) and not member.is_module:
                text = runtime_docstring(member.path) or text
            if text:
                member.docstring = griffe.Docstring(
                    as_markdown(text), parent=member, lineno=member.lineno, **self._parsing
                )
            if member.is_module or member.is_class:
                self._visit(member)


def runtime_docstring(path: str) -> str | None:
    """What help() shows of the object at a dotted path, without the signatures that pybind11 writes in front."""
    names = path.split(".")
    for count in range(len(names), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(names[:count]))
        except ImportError:
            continue
        for name in names[count:]:
            value = inspect.getattr_static(value, name, None) if inspect.isclass(value) else getattr(value, name, None)
            value = getattr(value, "__func__", value)
        if value is None or isinstance(value, (bool, int, float, str, tuple, list, dict, frozenset, set)):
            return None
        text = inspect.getdoc(value)
        return None if text is None else without_signatures(text, names[-1])
    return None


def without_signatures(text: str, name: str) -> str:
    """The docstring of a function of pybind11 without its own account of its arguments."""
    text = re.sub(r"\A(?:\w+\(.*?\) -> .*\n*)", "", text)
    text = re.sub(r"^Overloaded function\.\n+", "", text)
    found = re.findall(rf"^\d+\. {re.escape(name)}\(.*\) -> .*\n+((?:(?!\d+\. ).*\n?)*)", text, re.MULTILINE)
    return "\n".join(dict.fromkeys(part.strip() for part in found)) if found else text.strip()


def as_markdown(text: str) -> str:
    """What numpydoc takes and Markdown, or griffe, does not.

    Errors that stand with their sentence on one line get two lines, an empty section goes, and ``a[b][c]`` is no link.
    """
    text = re.sub(r"^(\w+Error) +(\S.*)$", r"\1\n    \2", text, flags=re.MULTILINE)
    text = re.sub(r"^Parameters\n-+\n\n+(?=[A-Z][\w ]*\n-+\n)", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<=\w)(?:\[[\w /]+\]){2,}", r"`\g<0>`", text)
