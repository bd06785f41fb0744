# SPDX-License-Identifier: Apache-2.0
"""mpscnn cache: files of the engines for later processes: compiled kernels, and choices between implementations."""

from __future__ import annotations

from typing import Annotated

import typer

from ..layers import bytes_text
from . import options
from .console import pairs, say, stdout, write_json
from .cuda import ENGINES, cache_folder, cached_files


def cache(
    clear: Annotated[
        bool,
        typer.Option(
            "--clear",
            help="Remove the files. Those of GPUs are made again when needed, those of the CPU by mpscnn tune.",
        ),
    ] = False,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Show the files that the engines keep for later processes, or remove them."""
    folders = [folder for engine in ENGINES if (folder := cache_folder(engine)) is not None]
    found = {path: size for folder in folders for path, size in cached_files(folder).items()}
    removed = dict(found) if clear else {}
    for path in removed:
        path.unlink(missing_ok=True)
        del found[path]
    described = {
        "folders": folders,
        "files": len(found),
        "bytes": sum(found.values()),
        "removed_files": len(removed),
        "removed_bytes": sum(removed.values()),
    }
    if json:
        write_json(described)
        return
    rows = [
        ("folders", "\n".join(map(str, folders)) or "none"),
        ("files", str(described["files"])),
        ("size", bytes_text(sum(found.values()))),
    ]
    stdout().print(pairs(rows))
    if clear:
        say(f"{len(removed)} files removed, {bytes_text(sum(removed.values()))}")
