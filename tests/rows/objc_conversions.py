# SPDX-License-Identifier: Apache-2.0
"""Rows of MPSImageConversion for tests/objc/rows_test.mm; settings as in objc_places.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .objc_places import UNARY, called, properties, random, within
from .row_file import Row

PLAIN, ONE, PREMULTIPLIED = range(3)  # MPSAlphaType
INIT = "initWithDevice:srcAlpha:destAlpha:backgroundColor:conversionInfo: "
# Two texels, the second one transparent.
TEXELS = (0.5, 1, 0.25, 0.5, 0.75, 0, 1, 0)
ALPHA = {
    (PLAIN, PLAIN): TEXELS,
    (PLAIN, PREMULTIPLIED): (0.25, 0.5, 0.125, 0.5, 0, 0, 0, 0),
    (PLAIN, ONE): (0.75, 0.75, 0.125, 1, 1, 0.5, 0, 1),
    (PREMULTIPLIED, PREMULTIPLIED): TEXELS,
    (PREMULTIPLIED, PLAIN): (1, 2, 0.5, 0.5, 0, 0, 0, 0),
    (PREMULTIPLIED, ONE): (1, 1.25, 0.25, 1, 1.75, 0.5, 1, 1),
    (ONE, ONE): (0.5, 1, 0.25, 1, 0.75, 0, 1, 1),
    (ONE, PLAIN): (0.5, 1, 0.25, 1, 0.75, 0, 1, 1),
    (ONE, PREMULTIPLIED): (0.5, 1, 0.25, 1, 0.75, 0, 1, 1),
}


def converted(name: str, types: tuple[int, int], x: Any, y: Any, background: str = "none", **settings: Any) -> Row:
    images = {"x": np.asarray(x, np.float32), "background": np.array((1, 0.5, 0))}
    init, after = f"{INIT}{types[0]} {types[1]} {background} none", {"empty:result": np.asarray(y, np.float64)}
    made = called(name, "MPSImageConversion", init, UNARY, "image:x empty:result", images, after, **settings)
    made.settings["tolerance"] = 1e-7
    return made


def regions() -> Iterator[Row]:
    x = random(1, 4, 5, 4).astype(np.float64)
    beyond: list[dict[str, Any]] = [{"constant_values": 0.0}, {"mode": "edge"}]
    for edge, mode in enumerate(beyond):
        seen: NDArray[np.float64] = np.pad(x, ((0, 0), (1, 0), (0, 1), (0, 0)), **mode)[:, :3, 2:]
        for to in (PLAIN, PREMULTIPLIED):
            value = seen.copy()
            if to == PREMULTIPLIED:
                value[..., :3] *= value[..., 3:]
            place = properties(offset="2,-1,0", clipRect="1,1,0,4,3,1", edgeMode=edge)
            whole = within((1, 5, 6, 4), (0, 1, 1, 0), value)
            yield converted(f"offset, clipRect and edge mode {edge} to {to}", (PLAIN, to), x, whole, **place)


def rows() -> Iterator[Row]:
    texels = np.reshape(TEXELS, (1, 1, 2, 4))
    for types, value in ALPHA.items():
        yield converted(f"alpha {types}", types, texels, np.reshape(value, texels.shape), "background")
    black = np.reshape((0.25, 0.5, 0.125, 1, 0, 0, 0, 1), texels.shape)
    yield converted("no background is black", (PLAIN, ONE), texels, black)
    three = random(2, 2, 3, 3)
    four = np.concatenate([three, np.ones((2, 2, 3, 1))], axis=3)
    for kind in (PLAIN, ONE, PREMULTIPLIED):
        yield converted("images without alpha are opaque", (kind, kind), three, four)
        yield converted("four channels to three", (kind, kind), four, three)
    many = random(3, 2, 3, 9)
    for kind in (PLAIN, PREMULTIPLIED):
        yield converted("channels that are no colours", (kind, kind), many, many)
    yield converted("two images of three", (PLAIN, PLAIN), many, many[1:], **properties(offset="0,0,1"))
    for channels in (1, 2, 3):
        yield converted("no alpha", (PLAIN, ONE), many[..., :channels], many[..., :channels])
    yield from regions()
