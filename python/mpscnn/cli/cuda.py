# SPDX-License-Identifier: Apache-2.0
"""CUDA's driver, GPUs and libraries as openmps finds them, and the folders of its disk caches.

The functions are in csrc/openmps/engine/cuda/report.cpp.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from ..config import lib_dir

# Names that openmps gives to files: kinds, hashes, and the process that is writing.
_FILE = re.compile(r"(kernel|plan|choices)-[0-9a-f]{32}(\.\d+)?")


# Engines that keep files for later processes.
ENGINES = ("cpu", "cuda")


def _call(function: str, *arguments: bytes) -> str | None:
    """Return the text that a function of libopenmps returns; None on macOS, which has no openmps."""
    folder = lib_dir()
    if folder is None:
        return None
    called = getattr(ctypes.CDLL(str(folder / "libopenmps.so")), function)
    called.restype = ctypes.c_char_p
    return bytes(called(*arguments)).decode("utf-8", "surrogateescape")


def report() -> dict[str, Any] | None:
    """Return driver, compute capabilities by device name, and libraries; None on macOS.

    Opens the driver and the libraries. "driver" is the newest version of CUDA that the driver supports, and None if
    there is no driver; then "missing" has the reason. Each library has "file", or None and the reason as "missing".
    """
    text = _call("openmps_cuda_report")
    if text is None:
        return None
    found: dict[str, Any] = {"driver": None, "missing": None, "compute_capabilities": {}, "libraries": {}}
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        kind, _, library = name.rpartition(" ")
        if name == "driver":
            found["driver"] = value
        elif name == "no driver":
            found["missing"] = value
        elif kind:
            is_open = kind == "library"
            found["libraries"][library] = {"file": value if is_open else None, "missing": None if is_open else value}
        else:
            found["compute_capabilities"][name] = value
    return found


def cache_folder(engine: str) -> Path | None:
    """Return the folder of an engine's files, which need not exist; None if there is none."""
    text = _call("openmps_cache_folder", engine.encode())
    return Path(text) if text else None


def cached_files(folder: Path) -> dict[Path, int]:
    """Return the files of openmps in the folder, with their sizes in bytes.

    Raise OSError if the folder exists and cannot be read.
    """
    found: dict[Path, int] = {}
    if not folder.is_dir():
        return found
    for path in sorted(folder.iterdir()):
        try:
            if _FILE.fullmatch(path.name) and path.is_file():
                found[path] = path.stat().st_size
        except FileNotFoundError:  # removed by another process
            continue
    return found
