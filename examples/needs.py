# SPDX-License-Identifier: Apache-2.0
"""Names the package that a program of this folder lacks, instead of a traceback. Imported before other packages."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

PACKAGES = {"numpy": "numpy", "PIL": "pillow", "safetensors": "safetensors", "skimage": "scikit-image", "tqdm": "tqdm"}
PROGRAM = Path(sys.argv[0] or "-")


def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print one sentence for a package that is not installed; the exit status is 1."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name in PACKAGES:
        wanted = " ".join(PACKAGES.values())
        print(f"{PROGRAM.stem}: the package {PACKAGES[name]} is not installed: pip install {wanted}.", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


if PROGRAM.resolve().parent == Path(__file__).resolve().parent:
    sys.excepthook = hook
