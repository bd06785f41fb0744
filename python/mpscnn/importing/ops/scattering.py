# SPDX-License-Identifier: Apache-2.0
"""Values taken from, and put to, constant places of a tensor that indices give along several axes.

Places are counted along the axes that are indexed, which are the first ones behind the batch, as one axis of rows. A
scatter takes rows of the tensor and of the updates, side by side, by one table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from . import arithmetic, elementwise, general, shape

ROUNDS = 16  # max updates of one place that are combined

COMBINED: dict[str, Callable[..., Tensor]] = {
    "add": arithmetic.add,
    "mul": arithmetic.multiply,
    "max": elementwise.maximum,
    "min": elementwise.minimum,
}


def _rows(builder: Builder, x: Any, like: Tensor, count: int) -> Tensor:
    """Return a tensor, or constants without the batch, as `count` rows: an image with a pixel for each of them."""
    if not isinstance(x, Tensor):
        table = np.asarray(x, np.float32).reshape(1, count, -1)
        return replace(general.constant(builder, like, table), axes="NHWC", flat=None)
    builder.fix_unless_constant(x)
    image = (1, count, x.size // count)
    general.check_image(image)
    y = general.store(builder, general.reshape(general.store(builder, x), image), image)
    return replace(y, axes="NHWC", flat=None)


def _at(builder: Builder, rows: Tensor, places: NDArray[np.int64]) -> Tensor:
    return replace(general.gather(builder, rows, 1, places), axes="NHWC", flat=None)


def take(builder: Builder, x: Tensor, places: NDArray[np.int64], axes: int) -> Tensor:
    """Return the parts at `places`, an array of any shape, counted along the first `axes` axes behind the batch."""
    rest = x.shape[axes:]
    y = _at(builder, _rows(builder, x, x, math.prod(x.shape[:axes])), places.reshape(-1))
    return general.reshape(y, (*places.shape, *rest))


def put(
    builder: Builder, x: Any, places: NDArray[np.int64], updates: Any, extents: tuple[int, ...], axes: int, kind: str
) -> Tensor:
    """Return a tensor of shape `extents` with `updates` at `places`, counted along the first `axes` axes.

    `x` and `updates` are tensors or constants without the batch, not both constants. `kind`: "none", of updates of one
    place the last is kept, or one of `COMBINED`.
    """
    like = x if isinstance(x, Tensor) else updates
    count, flat = math.prod(extents[:axes]), places.reshape(-1)
    rows, new = _rows(builder, x, like, count), _rows(builder, updates, like, flat.size)
    if kind == "none":
        return general.reshape(_replaced(builder, rows, new, flat), extents)
    order = np.arange(flat.size)
    for _ in range(ROUNDS):
        _, first = np.unique(flat[order], return_index=True)
        now = order[np.sort(first)]
        combined = COMBINED[kind](builder, _at(builder, rows, flat[now]), _at(builder, new, now))
        rows = _replaced(builder, rows, combined, flat[now])
        order = np.setdiff1d(order, now)
        if not order.size:
            return general.reshape(rows, extents)
    raise UnmappedError(f"more than {ROUNDS} updates of one place, the maximum")


def _replaced(builder: Builder, rows: Tensor, new: Tensor, places: NDArray[np.int64]) -> Tensor:
    """Return the rows with `new` ones at `places`, the last of those of one place."""
    sources = np.arange(rows.width)
    sources[places] = rows.width + np.arange(places.size)
    if (sources == np.arange(rows.width, 2 * rows.width)).all():
        return new
    return _at(builder, shape.cat(builder, [rows, new], 2), sources)
