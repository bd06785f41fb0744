# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a model that somebody hands over: one family of exceptions, none of them a bug of ours."""

from __future__ import annotations

import builtins
from collections.abc import Iterable


class ImportError(Exception):
    """A model cannot be taken over. Not Python's own ImportError.

    See `InvalidModelError` for files that are broken, `UnsupportedOperatorError` for models that need a kernel that
    MPS has not, and `MissingPackageError` for formats whose reader is not installed.
    """


class InvalidModelError(ImportError, ValueError):
    """The file or the object is no valid model: damaged, inconsistent, or reaching outside of its own folder."""


class UnsupportedOperatorError(ImportError, NotImplementedError):
    """The model is valid, and has operators that no kernel computes.

    Attributes
    ----------
    nodes : list of (str, str, str)
        Of each node that cannot be mapped: its operator, its name in the model, and the reason.
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
    """A format is read by a package that is not installed; the sentence names it and the command that installs it.

    The command names packages, not extras of mpscnn, which is on no package index.

    Parameters
    ----------
    what : str
        The subject of the sentence: what cannot be done.
    package : str
        As pip calls it.
    install : tuple of str, optional
        All that `what` needs, in place of `package` alone.
    plural : bool
        Of the subject.
    """

    def __init__(self, what: str, package: str, install: Iterable[str] = (), *, plural: bool = False) -> None:
        need, packages = "need" if plural else "needs", " ".join(install) or package
        super().__init__(f"{what} {need} the package {package}, which is not installed: pip install {packages}.")
