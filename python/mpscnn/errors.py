# SPDX-License-Identifier: Apache-2.0
"""Exceptions for models that cannot be imported, with one base class."""

from __future__ import annotations

import builtins
from collections.abc import Iterable


class ImportError(Exception):
    """The model cannot be imported. Not Python's own ImportError.

    See `InvalidModelError` for broken files, `UnsupportedOperatorError` for models that need a kernel that MPS lacks,
    and `MissingPackageError` for formats whose reader is not installed.
    """


class InvalidModelError(ImportError, ValueError):
    """The file or object is not a valid model: damaged, inconsistent, or with paths outside of its own folder."""


class UnsupportedOperatorError(ImportError, NotImplementedError):
    """The model is valid but has operators that no kernel computes.

    Attributes
    ----------
    nodes : list of (str, str, str)
        Operator, name in the model and reason for each node that cannot be mapped.
    """

    def __init__(self, model: str, nodes: Iterable[tuple[str, str, str]]) -> None:
        self.nodes = list(nodes)
        by_operator: dict[str, list[tuple[str, str]]] = {}
        for operator, name, reason in self.nodes:
            by_operator.setdefault(operator, []).append((name, reason))
        lines = [f"{model}: {len(self.nodes)} of its nodes have no kernel."]
        for operator, cases in sorted(by_operator.items()):
            lines.append(f"  {operator} ({len(cases)}):")
            lines += [f"    {name}: {reason}" for name, reason in cases[:8]]
            if len(cases) > 8:
                lines.append(f"    and {len(cases) - 8} more")
        super().__init__("\n".join(lines))


class MissingPackageError(ImportError, builtins.ImportError):
    """A required package is not installed; the message names it and the command that installs it.

    The command names packages, not extras of mpscnn, because mpscnn is on no package index.

    Parameters
    ----------
    what : str
        Subject of the message: the feature that needs the package.
    package : str
        Its name for pip.
    install : tuple of str, optional
        All packages that `what` needs, instead of `package` alone.
    plural : bool
        Whether `what` is a plural.
    """

    def __init__(self, what: str, package: str, install: Iterable[str] = (), *, plural: bool = False) -> None:
        need, packages = "need" if plural else "needs", " ".join(install) or package
        super().__init__(f"{what} {need} the package {package}, which is not installed: pip install {packages}.")
