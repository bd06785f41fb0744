# SPDX-License-Identifier: Apache-2.0
"""The command ``mpscnn``: see docs/command_line.md.

Exit status: 0, done; 1, the model, the file or the device is at fault, or results differ; 2, wrong use of the command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

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
        print(f"mpscnn: {MissingPackageError('the command line', str(error.name), 'cli')}", file=sys.stderr)
        return 1
    return run(arguments)
