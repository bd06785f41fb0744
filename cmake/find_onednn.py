# SPDX-License-Identifier: Apache-2.0
"""Print "<folder of dnnl.hpp>;<path of libdnnl.so.N>", read from the installed packages' records."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

PACKAGES = ("onednn-devel-cpu-gomp", "onednn-cpu-gomp")


def locate(pattern: str) -> Iterator[Path]:
    """Existing files of the packages whose path matches, in the order of the records."""
    for package in PACKAGES:
        try:
            recorded = files(package) or []
        except PackageNotFoundError:
            continue
        for entry in recorded:
            if re.search(pattern, entry.as_posix()):
                path = Path(str(entry.locate())).resolve()
                if path.exists():
                    yield path


def main() -> int:
    header = next(locate(r"/include/dnnl\.hpp$"), None)
    library = next(locate(r"/libdnnl\.so\.\d+$"), None)
    if header is None or library is None:
        missing = "dnnl.hpp" if header is None else "libdnnl.so"
        print(
            f"{missing} is in none of the packages {', '.join(PACKAGES)} (pip install {PACKAGES[0]})", file=sys.stderr
        )
        return 1
    print(f"{header.parent};{library}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
