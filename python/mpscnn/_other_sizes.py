# SPDX-License-Identifier: Apache-2.0
"""Networks for sizes that a graph does not take: its source model is read again for each of them.

An axis that a model has for rows or columns may be that of the channels of its images.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from . import _inputs
from .errors import ImportError as ModelError
from .graph import Graph, Input

if TYPE_CHECKING:
    from .network import Network

# Sizes whose networks are kept, the last used ones.
MAXIMUM_KEPT = 16

Extents: TypeAlias = "tuple[int, int, int]"  # height, width and channels
Read: TypeAlias = "Callable[[Mapping[str, Extents], int | None], Graph]"


class UnreadableError(ValueError):
    """The source model cannot be read for this size."""


def takes(spec: Input, image: Sequence[int]) -> bool:
    """Return whether an input takes an image of this shape (N, H, W, C)."""
    wanted = (spec.height, spec.width, spec.channels)
    if any(extent not in (None, given) for extent, given in zip(wanted, image[1:], strict=True)):
        return False
    try:
        _inputs.check_sizes(spec, dict(zip("NHWC", image, strict=True)))
    except ValueError:
        return False
    return True


def is_limited(spec: Input) -> bool:
    """Return whether an input takes some heights and widths only."""
    extents = (("H", spec.height), ("W", spec.width))
    return bool(spec.sizes) or any(extent is not None for axis, extent in extents if axis in spec.layout)


class OtherSizes:
    """Networks for other sizes, made when they are first called for. All copies of a network share them.

    Parameters
    ----------
    read : callable
        Returns the graph for the extents of each input, by name, and for a number of images (None: that of the first
        import).
    make : callable
        Returns a network of such a graph.
    """

    def __init__(self, read: Read, make: Callable[[Graph], Network]) -> None:
        self._read, self._make = read, make
        self._lock = threading.Lock()
        self._found: collections.OrderedDict[tuple[tuple[Extents, ...], int | None], Network | str]
        self._found = collections.OrderedDict()

    def network(self, names: Sequence[str], images: Sequence[Sequence[int]]) -> Network:
        """Return the network for images (N, H, W, C), one for each input.

        UnreadableError if the model cannot be read for them. A network for the size may still not take the number of
        images, by a condition on it: then there is another.
        """
        sizes = tuple((image[1], image[2], image[3]) for image in images)
        with self._lock:  # also while a model is read: PyTorch's tracer serves one thread
            for batch in (None, images[0][0]):
                found = self._made(names, sizes, batch)
                if not isinstance(found, str) and all(map(takes, found._inputs.values(), images)):
                    return found
        if isinstance(found, str):
            raise UnreadableError(found)
        raise UnreadableError("it has conditions that do not hold for it.")

    def _made(self, names: Sequence[str], sizes: tuple[Extents, ...], batch: int | None) -> Network | str:
        key = sizes, batch
        found = self._found.get(key)
        if found is None:
            try:
                from . import _progress  # here, because it imports logging, a tenth of the time of load()

                with _progress.shown(_described(names, sizes, batch)):
                    found = self._make(self._read(dict(zip(names, sizes, strict=True)), batch))
            except (ModelError, ValueError) as error:
                found = str(error)
            self._found[key] = found
            if len(self._found) > MAXIMUM_KEPT:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        return found


def _described(names: Sequence[str], sizes: Sequence[Extents], batch: int | None) -> str:
    """Return what is shown while the model is read."""
    inputs = ", ".join(f"{name} of {' x '.join(map(str, size))}" for name, size in zip(names, sizes, strict=True))
    return f"mpscnn: reading the model for {inputs}" + ("" if batch is None else f", a batch of {batch}")
