# SPDX-License-Identifier: Apache-2.0
"""The command ``mpscnn``: see docs/command_line.md.

Exit status: 0, done; 1, the model, the file or the device is at fault, or results differ; 2, wrong use of the command;
130, Ctrl-C. It is ended by SIGPIPE (141 in a shell) when it writes to a pipe that is read no more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .. import _interrupts
from ..errors import MissingPackageError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``mpscnn`` and ``python -m mpscnn``; returns the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the command's own name; None: those of the process.
    """
    try:
        from .app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        missing = MissingPackageError("the command line", str(error.name), ("typer", "rich", "pillow"))
        print(f"mpscnn: {missing}", file=sys.stderr)
        return 1
    try:
        _interrupts.raise_again()
        return run(arguments)
    except KeyboardInterrupt:  # before or after the command's own
        return 130
