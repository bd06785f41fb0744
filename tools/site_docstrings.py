# SPDX-License-Identifier: Apache-2.0
"""Add docstrings to the API reference of mkdocs.yml, as help() shows them.

Signatures and most docstrings are read from sources and stubs. Docstrings of kernels are generated from their rows, and
those of some members are in C++ (`_core`): both are read from the imported package.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

# Modules whose docstrings are read from the imported package; all others have them in their sources.
IN_STUBS = ("mpscnn._core.", "mpscnn.kernels.")
MAX_OVERLOADS = 8  # more are not shown: mpscnn.kernel has one per kernel


class RuntimeDocstrings(griffe.Extension):
    """Replace docstrings of stubs by those of the objects at run time."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Update the docstrings; griffe calls this when a package and its stubs are loaded."""
        if pkg.name != "mpscnn":
            return
        self._parsing = {"parser": loader.docstring_parser, "parser_options": loader.docstring_options}
        for name in pkg["kernels"].members:
            # The stub alone lists the classes that the package imports by "*".
            if name in importlib.import_module("mpscnn").__all__ and name not in pkg.members:
                pkg.set_member(name, griffe.Alias(name, f"mpscnn.kernels.{name}"))
        self._visit(pkg)

    def _visit(self, parent: griffe.Module | griffe.Class) -> None:
        for name, overloads in parent.overloads.items():
            if name not in parent.members and overloads:  # a stub has no implementation after them
                function = overloads[0]
                function.overloads = overloads
                parent.set_member(name, function)
        for name, member in parent.members.items():
            if member.is_alias or (name.startswith("_") and name not in ("_core", "__call__")):
                continue
            if member.is_function and len(member.overloads or ()) > MAX_OVERLOADS:
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
    """Return help()'s docstring of the object at a dotted path, without pybind11's signatures."""
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
    """Return the docstring of a pybind11 function without the signatures that pybind11 adds."""
    text = re.sub(r"\A(?:\w+\(.*?\) -> .*\n*)", "", text)
    text = re.sub(r"^Overloaded function\.\n+", "", text)
    found = re.findall(rf"^\d+\. {re.escape(name)}\(.*\) -> .*\n+((?:(?!\d+\. ).*\n?)*)", text, re.MULTILINE)
    return "\n".join(dict.fromkeys(part.strip() for part in found)) if found else text.strip()


def as_markdown(text: str) -> str:
    """Convert numpydoc to a form that Markdown and griffe accept.

    Errors with their sentence on the same line get two lines, empty sections are removed, and ``a[b][c]`` is quoted so
    that it is not a link.
    """
    text = re.sub(r"^(\w+Error) +(\S.*)$", r"\1\n    \2", text, flags=re.MULTILINE)
    text = re.sub(r"^Parameters\n-+\n\n+(?=[A-Z][\w ]*\n-+\n)", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<=\w)(?:\[[\w /]+\]){2,}", r"`\g<0>`", text)
