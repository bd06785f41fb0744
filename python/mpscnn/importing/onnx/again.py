# SPDX-License-Identifier: Apache-2.0
"""Import of an ONNX file with dynamic extents for other heights and widths than those of its first import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...graph import Graph


class Again:
    """Reader of a file for other heights and widths, as long as the file is not changed.

    Parameters
    ----------
    graph : Graph
        The first import's.
    path, input_shapes, options
        The path of the file, and the other arguments of `read`.
    """

    def __init__(self, graph: Graph, path: Path, input_shapes: Mapping[str, Any] | None, **options: Any) -> None:
        self._path, self._options = path.absolute(), options
        self._state = self._file_state()
        self._shapes = {
            name: {
                "N": 1,
                "C": spec.channels,
                **dict(zip(spec.layout, (input_shapes or {}).get(name, ()), strict=False)),
            }
            for name, spec in graph.inputs.items()
        }
        self._layouts = {name: spec.layout for name, spec in graph.inputs.items()}

    def _file_state(self) -> tuple[int, ...]:
        found = self._path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def __call__(self, sizes: Mapping[str, tuple[int, int, int]], batch: int | None = None) -> Graph:
        """Return the graph for these extents (H, W, C) of each input, and this number of images, if it is given."""
        from . import read

        try:
            is_same = self._file_state() == self._state
        except OSError:
            is_same = False
        if not is_same:
            raise ValueError(f'"{self._path}" was changed after its import: load it again.')
        shapes = {}
        for name, layout in self._layouts.items():
            extents = self._shapes[name] | dict(zip("HWC", sizes[name], strict=True))
            extents |= {} if batch is None else {"N": batch}
            shapes[name] = tuple(extents[axis] for axis in layout)
        return read(self._path, input_shapes=shapes, **self._options)
