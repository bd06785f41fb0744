# SPDX-License-Identifier: Apache-2.0
"""The command ``mpscnn``; see docs/command_line.md.

Exit status: 0, success; 1, an error in the model, file or device, or results differ; 2, wrong usage; 130, Ctrl-C.
Writing to a closed pipe ends the process by SIGPIPE (141 in a shell).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .. import _interrupts
from ..errors import MissingPackageError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mpscnn`` or ``python -m mpscnn`` and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments after the command's name; None: those of the process.
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
    except KeyboardInterrupt:  # not handled by the command
        return 130
