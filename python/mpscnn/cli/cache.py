# SPDX-License-Identifier: Apache-2.0
"""mpscnn cache: compiled kernels and chosen plans of the CUDA engine, on disk."""

from __future__ import annotations

from typing import Annotated

import typer

from ..layers import bytes_text
from . import options
from .console import pairs, say, stdout, write_json
from .cuda import cache_folder, cached_files


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove the files; they are made again when needed.")] = False,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Show the files that the CUDA engine keeps for later processes, or remove them."""
    folder = cache_folder()
    found = {} if folder is None else cached_files(folder)
    removed = dict(found) if clear else {}
    for path in removed:
        path.unlink(missing_ok=True)
        del found[path]
    described = {
        "folder": folder,
        "files": len(found),
        "bytes": sum(found.values()),
        "removed_files": len(removed),
        "removed_bytes": sum(removed.values()),
    }
    if json:
        write_json(described)
        return
    rows = [
        ("folder", "none" if folder is None else str(folder)),
        ("files", str(described["files"])),
        ("size", bytes_text(sum(found.values()))),
    ]
    stdout().print(pairs(rows))
    if clear:
        say(f"{len(removed)} files removed, {bytes_text(sum(removed.values()))}")
