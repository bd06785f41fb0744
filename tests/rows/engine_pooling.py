# SPDX-License-Identifier: Apache-2.0
"""Rows of pooling and its gradient (engine/problem/pool.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle import MPSCNNPooling as pooling  # noqa: N813

from .engine import (
    EDGES,
    Array,
    Extents,
    Pair,
    Random,
    Stored,
    Window,
    chance,
    floats,
    image,
    pick,
    region,
    row,
    values_of,
    whole,
)
from .finite_differences import gradient, over_images
from .row_file import Row

TYPES = ("max", "average", "l2_norm")
FORMATS = "float32 float32 float16 unorm8"


def pooled(kind: str, x: Array, window: Window, size: Pair, zero_pad: Pair) -> Array:
    at: dict[str, Any] = {"size": size, "offset": window.offset()}
    at |= {"kernel": window.kernel, "stride": window.stride, "dilation": window.dilation, "edge": window.edge}
    if kind == "average":
        return pooling.average(x, zero_pad=zero_pad, **at)
    return (pooling.maximum if kind == "max" else pooling.l2_norm)(x, **at)


def random_window(rng: Random, h: int, w: int) -> tuple[Window, Pair]:
    """Return a random window with the extents of its result."""
    if chance(rng, 6):  # global
        window = Window((h, w), (whole(rng, 1, 4), whole(rng, 1, 4)), edge=pick(rng, EDGES))
        return window, (1, 1)
    kernel = (whole(rng, 1, 5), whole(rng, 1, 5))
    dilation = (whole(rng, 1, 3), whole(rng, 1, 3)) if chance(rng, 2) else (1, 1)
    start: Any = tuple(whole(rng, -14, 8) if chance(rng, 5) else -whole(rng, 0, k - 1) for k in kernel)
    if chance(rng, 20):  # far beyond the source on both sides
        kernel, start = (200, kernel[1]), (-100, start[1])
    window = Window(kernel, (whole(rng, 1, 4), whole(rng, 1, 4)), dilation, start, pick(rng, EDGES))
    return window, (whole(rng, 1, 9), whole(rng, 1, 9))


def forward() -> Iterator[Row]:
    for seed in range(200):
        rng = np.random.default_rng(250000 + seed)
        kind, c = pick(rng, TYPES), pick(rng, (1, 3, 4, 31, 32, 33, 64, 77, 200, 512))
        h, w = whole(rng, 1, 12), whole(rng, 1, 12)
        window, size = random_window(rng, h, w)
        pad = (whole(rng, 0, 3), whole(rng, 0, 3)) if chance(rng, 2) else (0, 0)
        src = image(rng, (whole(rng, 1, 2), h, w, c), -3, -1 if chance(rng, 3) else 3, FORMATS)
        x = values_of(src)
        error = 0.0 if kind == "max" else 3e-6 * pooled(kind, np.abs(x), window, size, pad)
        yield forward_row(f"{kind} {seed}", kind, src, window, size, pad, error, pick(rng, ("", "float16 unorm8")))
    # The result is NaN if a window contains one.
    for c in (5, 64):
        src = floats(np.random.default_rng(c), (1, 3, 3, c))
        src[0, 1, 1, 2] = np.nan
        yield forward_row(f"NaN of {c}", "max", src, Window((3, 3)), (1, 1), (0, 0), 0.0)
        # Parts of a large window are pooled by themselves first.
        large = floats(np.random.default_rng(c), (2, 9, 8, c))
        large[0, 8, 7, 2] = large[1, 0, 0, 4] = large[1, 4, 3, 1] = np.nan
        yield forward_row(f"NaN in a large window of {c}", "max", large, Window((9, 8)), (1, 1), (0, 0), 0.0)
        # A kernel of any size takes no more time than the source's extents.
        huge, small = Window((1 << 31,) * 2, start=(-(1 << 30),) * 2), Window((5, 5), start=(-1, -1))
        wanted = pooled("max", values_of(src), small, (1, 1), (0, 0))
        yield row("Pool", f"immense, {c}", {"src": src, "window": huge.fields()}, {"dst": wanted})


def narrow() -> Iterator[Row]:
    """Narrow windows, which have kernels of their own; negative sources show zeros beyond the edges."""
    cases = (
        ((2, 2), (2, 2), (0, 0)),
        ((3, 3), (2, 2), (-1, -1)),
        ((3, 3), (1, 2), (-2, 0)),
        ((4, 3), (3, 1), (-1, -2)),
    )
    for number, (kernel, stride, start) in enumerate(cases):
        for edge in EDGES:
            for c in (8, 72):
                rng = np.random.default_rng(number)
                src = floats(rng, (2, 7, 9, c), -3, -1).astype(np.float16)
                src[0, 3, 4, 1], src[1, 0, 0, 6], src[1, 6, 8] = np.nan, -np.inf, np.inf
                size = (-(-7 // stride[0]), -(-9 // stride[1]))
                window = Window(kernel, stride, start=start, edge=edge)
                yield forward_row(f"halves {kernel} {edge} {c}", "max", src, window, size, (0, 0), 0.0, "float16")
                wide = src.astype(np.float32)
                yield forward_row(f"max {kernel} {edge} {c}", "max", wide, window, size, (0, 0), 0.0)
                wide = floats(rng, src.shape, -3, -1)
                for pad in ((0, 0), (1, 2)):
                    yield forward_row(f"mean {kernel} {edge} {c} {pad}", "average", wide, window, size, pad, 3e-6)


def forward_row(
    name: str, kind: str, src: Stored, window: Window, size: Pair, pad: Pair, error: Any, formats: str = ""
) -> Row:
    fields = {"src": src, "type": TYPES.index(kind), "window": window.fields()}
    fields |= {"zero_pad_h": pad[0], "zero_pad_w": pad[1]}
    return row("Pool", name, fields, {"dst": (pooled(kind, values_of(src), window, size, pad), error)}, formats)


def apart(rng: Random, shape: tuple[int, ...], below: bool) -> Stored:
    """Return values that differ from each other and from 0 by more than the step of finite differences."""
    count = int(np.prod(shape))
    ranks = rng.permutation(count) + 0.5
    return (ranks / count * 6 - (7 if below else 3)).reshape(shape).astype(np.float32)


def gradient_row(seed: int) -> Row:
    rng = np.random.default_rng(610000 + seed)
    kind, c, n = TYPES[seed % 3], pick(rng, (1, 3, 4, 15, 16, 17, 31, 64, 77, 200)), whole(rng, 1, 2)
    h, w = whole(rng, 1, 9), whole(rng, 1, 9)
    window, size = random_window(rng, h, w)
    pad = (whole(rng, 0, 3), whole(rng, 0, 3)) if chance(rng, 2) else (0, 0)
    if kind == "max":
        src = apart(rng, (n, h, w, c), chance(rng, 3))
    else:
        src = image(rng, (n, h, w, c), 0.25, 3, FORMATS)
    diff_dst = image(rng, (n, *size, c), formats=FORMATS)
    is_part = chance(rng, 2)
    first = (whole(rng, 0, h - 1), whole(rng, 0, w - 1)) if is_part else (0, 0)
    cut = (whole(rng, 1, h - first[0]), whole(rng, 1, w - first[1])) if is_part else (h, w)
    value, magnitude = gradient(
        over_images(lambda x: pooled(kind, x, window, size, pad)),
        values_of(src),
        values_of(diff_dst),
        apart=(0, 3),
        linear=kind == "average",
        step=2.0**-20 if kind == "max" else 2.0**-12,
    )
    # Differences of a max are 0 or 1 up to roundings; a pixel that no window selects has exactly 0.
    error = region(magnitude, first, cut) * 3e-6 + 1e-7
    fields = {
        "diff_dst": diff_dst,
        "src": Extents(src.shape) if kind == "average" else src,
        "first_h": first[0],
        "first_w": first[1],
        "type": TYPES.index(kind),
        "window": window.fields(),
        "zero_pad_h": pad[0],
        "zero_pad_w": pad[1],
    }
    formats = pick(rng, ("", "float16", "unorm8"))
    return row("PoolGradient", f"{kind} {seed}", fields, {"diff_src": (region(value, first, cut), error)}, formats)


NAN, INF = float("nan"), float("inf")
# Two rows of three pixels under one window of 4 x 4; the index of the pixel with the gradient, None: no pixel.
CHOICES = [
    ((1, 5, 5, 5, 2, 5), "clamp", 0, 1, "the first of equal pixels"),
    ((1, 2, 3, 4, 4, 3), "clamp", -1, 3, "the first of equal pixels, below"),
    ((-1, -2, 0, 0, -3, -3), "zero", -1, 2, "a pixel goes before the outside"),
    ((-1, -2, -3, -4, -5, -6), "zero", -1, None, "the outside is greater"),
    ((-1, -2, -3, -4, -5, -6), "clamp", -1, 0, "clamped: once, not twice"),
    ((3, NAN, INF, NAN, 2, 1), "zero", -1, 1, "the first NaN"),
    ((NAN, 5, 3, 1, 2, 1), "clamp", 0, 0, "NaN comes first"),
    ((-INF,) * 6, "clamp", 0, 0, "all infinite"),
]


def choices() -> Iterator[Row]:
    """Several pixels are the max, or only out-of-bounds zeros are: not differentiable."""
    for values, edge, start, chosen, why in CHOICES:
        for c in (1, 16, 37):
            src = np.repeat(np.array(values, np.float32).reshape(1, 2, 3, 1), c, axis=3)
            window = Window((4, 4), start=(start, start), edge=edge)
            fields = {"diff_dst": np.ones((1, 1, 1, c), np.float32), "src": src, "window": window.fields()}
            wanted = np.zeros((1, 6, c))
            if chosen is not None:
                wanted[:, chosen] = 1
            yield row("PoolGradient", f"{why}, {c}", fields, {"diff_src": wanted.reshape(src.shape)})
    name, zeros = "a norm of 0 has no gradient", np.zeros((1, 3, 3, 4), np.float32)
    fields = {"diff_dst": np.ones((1, 1, 1, 4), np.float32), "src": zeros, "type": 2, "window": Window((3, 3)).fields()}
    yield row("PoolGradient", name, fields, {"diff_src": zeros})


def first_maximum(src: Array, diff: Array, window: Window) -> tuple[Array, Array]:
    """Give each window's gradient to its first max; NaN is greater than any number. Also return magnitudes."""
    result, sizes = np.zeros_like(src), np.zeros_like(src)
    for n, y, x, c in np.ndindex(diff.shape):
        best = None
        for p, q in np.ndindex(window.kernel):
            i = window.start[0] + y * window.stride[0] + p * window.dilation[0]
            j = window.start[1] + x * window.stride[1] + q * window.dilation[1]
            if not (0 <= i < src.shape[1] and 0 <= j < src.shape[2]):
                value, place = 0.0, None
            else:
                value, place = src[n, i, j, c], (n, i, j, c)
            is_greater = best is None or np.isnan(value) > np.isnan(best[0]) or value > best[0]
            if is_greater or (best[1] is None and value == best[0]):  # pixels take precedence over out-of-bounds zeros
                best = (value, place)
        if best and best[1]:
            result[best[1]] += diff[n, y, x, c]
            sizes[best[1]] += abs(diff[n, y, x, c])
    return result, sizes


def overlapping() -> Iterator[Row]:
    """Overlapping windows, the second of which begins above the first in-bounds tap of the first; with NaN."""
    window = Window((5, 5), dilation=(3, 3), start=(-4, -4))
    for c in (5, 16, 37):
        rng = np.random.default_rng(650000 + c)
        src, diff = floats(rng, (1, 9, 9, c)), floats(rng, (1, 12, 12, c))
        holes = np.where(rng.random(src.shape) < 0.05, np.float32(np.nan), src)
        for with_nan, given in ((False, src), (True, holes)):
            value, size = first_maximum(given.astype(np.float64), diff.astype(np.float64), window)
            fields = {"diff_dst": diff, "src": given, "window": window.fields()}
            name = f"overlapping windows{' with NaN' if with_nan else ''}, {c}"
            yield row("PoolGradient", name, fields, {"diff_src": (value, size * 1e-6)}, "float16")


def first_of_taps(src: Array, diff: Array, window: Window) -> Array:
    """As first_maximum() for windows without dilation at either edge, tap by tap."""
    (kernel_h, kernel_w), (_, h, w, _), (_, rows, columns, _) = window.kernel, src.shape, diff.shape
    best, chosen = np.full(diff.shape, -np.inf), np.full(diff.shape, -1)
    taps, places = [], []
    for p, q in np.ndindex(kernel_h, kernel_w):
        y = np.arange(rows) * window.stride[0] + window.start[0] + p
        x = np.arange(columns) * window.stride[1] + window.start[1] + q
        inside = ((y >= 0) & (y < h))[:, None] & ((x >= 0) & (x < w))
        y, x = np.clip(y, 0, h - 1), np.clip(x, 0, w - 1)
        taps.append((src[:, y][:, :, x], inside[None, :, :, None]))
        places.append((y, x))
    for number, (values, inside) in enumerate(taps):
        is_better = (chosen < 0) | (values > best) | (np.isnan(values) & ~np.isnan(best))
        best = np.where(inside & is_better, values, best)
        chosen = np.where(inside & is_better, number, chosen)
    if window.edge == "zero":
        sees_zeros = ~np.logical_and.reduce([inside for _, inside in taps])
        chosen = np.where(sees_zeros & (best < 0), -1, chosen)
    result = np.zeros_like(src)
    for number, (y, x) in enumerate(places):
        np.add.at(result, (slice(None), y[:, None], x), np.where(chosen == number, diff, 0))
    return result


# Kernel, stride, start and channels of max pooling in networks, and others near the limits of a tile.
TILED: tuple[tuple[Pair, Pair, Pair, int], ...] = (
    ((3, 3), (2, 2), (-1, -1), 64),  # ResNet
    ((3, 3), (2, 2), (-1, -1), 72),
    ((3, 3), (2, 2), (0, 0), 24),  # SqueezeNet
    ((2, 2), (2, 2), (0, 0), 64),  # VGG
    ((2, 2), (2, 2), (-1, -1), 16),
    ((3, 3), (1, 1), (-1, -1), 32),  # Inception
    ((5, 5), (1, 1), (-2, -2), 64),  # spatial pyramids of YOLO
    ((2, 3), (1, 4), (1, 2), 8),
    ((6, 4), (1, 2), (-5, -1), 40),
)


def tiled() -> Iterator[Row]:
    """Images of several tiles, with equal values, NaN and infinities; windows of the whole source and of a part."""
    h, w = 49, 54
    for number, (kernel, stride, start, c) in enumerate(TILED):
        size = ((h - 1 - start[0]) // stride[0] + 1, (w - 1 - start[1]) // stride[1] + 1)
        for edge in EDGES:
            window = Window(kernel, stride, start=start, edge=edge)
            for stored in (np.float16, np.float32):
                rng = np.random.default_rng(660000 + number)
                src = np.round(floats(rng, (2, h, w, c), -4, 1)).astype(stored)  # also -0
                odd = rng.random(src.shape)
                src[odd < 0.02], src[odd < 0.01], src[:, :4, :9] = np.nan, np.inf, -np.inf
                src[odd < 0.005] = -np.nan
                diff = np.round(floats(rng, (2, *size, c)) * 8).astype(stored)  # sums are exact
                value = first_of_taps(src.astype(np.float64), diff.astype(np.float64), window)
                first, cut = ((0, 0), (h, w)) if edge == "zero" else ((7, 2), (30, 51))
                fields = {"diff_dst": diff, "src": src, "window": window.fields()}
                fields |= {"first_h": first[0], "first_w": first[1]}
                name = f"tiles of {kernel}, stride {stride}, {c}, {edge} {np.dtype(stored).name}"
                yield row("PoolGradient", name, fields, {"diff_src": region(value, first, cut)}, "float16")


def immense() -> Iterator[Row]:
    """A kernel of any size takes no more time than the source's extents: most clamped taps read a corner."""
    rng = np.random.default_rng(2)
    src, diff = floats(rng, (1, 3, 3, 5), 0.5, 1), floats(rng, (1, 1, 1, 5))
    window = Window((1 << 31,) * 2, start=(-(1 << 30),) * 2, edge="clamp")
    x, e = src.astype(np.float64), diff.astype(np.float64)
    shares = np.full((1, 3, 3, 1), 0.0)
    half = 2.0**30  # taps beyond each corner that clamp to one pixel
    counts = np.array([half + 1, 1, half - 2])
    shares[0, :, :, 0] = counts[:, None] * counts
    norm = np.sqrt((shares * x**2).sum((1, 2), keepdims=True))
    wanted = {
        "max": np.where(x == x.max((1, 2), keepdims=True), e, 0.0),
        "average": np.broadcast_to(e / 9, x.shape),  # of the in-bounds taps
        "l2_norm": e * shares * x / norm,
    }
    for kind, value in wanted.items():
        fields = {"diff_dst": diff, "src": src, "type": TYPES.index(kind), "window": window.fields()}
        yield row("PoolGradient", f"immense {kind}", fields, {"diff_src": (value, np.abs(value) * 1e-5)})


def rows() -> Iterator[Row]:
    yield from forward()
    yield from narrow()
    yield from map(gradient_row, range(240))
    for part in (choices, overlapping, tiled, immense):
        yield from part()
