# SPDX-License-Identifier: Apache-2.0
"""Files of test rows for programs in C++ and Objective-C; row_file.hpp reads them and describes the format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

DTYPES = ("float32", "float16", "uint16", "uint8", "int32", "int64", "float64")


@dataclass
class Row:
    """One test: `settings` are written with str(), booleans as 0 and 1."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def _word(value: Any) -> str:
    text = str(int(value)) if isinstance(value, (bool, np.bool_)) else str(value)
    if "\n" in text:
        raise ValueError(f"a setting has more than one line: {text!r}")
    return text


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows to a file."""
    with path.open("wb") as file:
        for row in rows:
            file.write(f"row {_word(row.name)}\n".encode())
            for key, value in row.settings.items():
                file.write(f"set {key} {_word(value)}\n".encode())
            for key, array in row.arrays.items():
                if array.dtype.name not in DTYPES:
                    raise TypeError(f"{row.name}: {key} has dtype {array.dtype}")
                extents = " ".join(str(extent) for extent in array.shape)
                file.write(f"array {key} {array.dtype.name} {extents}\n".encode())
                file.write(np.ascontiguousarray(array).tobytes() + b"\n")
            file.write(b"end\n")
