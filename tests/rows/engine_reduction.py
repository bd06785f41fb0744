# SPDX-License-Identifier: Apache-2.0
"""Rows of soft max, its gradient, reductions and local correlations (engine/problem/normalize.hpp, reduce.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle.MPSCNNConvolution import tap
from oracle.MPSCNNSoftMax import log_softmax, softmax
from oracle.MPSNNReduce import local_correlation, reduce

from .engine import EDGES, Array, Operand, Stored, chance, floats, image, operand, pick, row, values_of, whole
from .finite_differences import gradient, over_images
from .row_file import Row

MANY = "float32 float32 float16 unorm8 unorm16"
RESULTS = ("", "float16", "unorm8", "unorm16")
INF, NAN = float("inf"), float("nan")


def softmax_row(seed: int) -> Row:
    rng = np.random.default_rng(500000 + seed)
    plain, log, large = seed % 3 == 0, seed % 2 == 1, seed % 20 == 0
    c, n = pick(rng, (1, 2, 3, 4, 16, 21, 31, 32, 37, 64, 513, 1500)), whole(rng, 1, 2)
    h, w = whole(rng, 1, 20 if large else 7), whole(rng, 1, 20 if large or c > 100 else 60)
    span = pick(rng, (1, 10, 80, 1000))
    shape = (n, h, w, c) if plain else (n, whole(rng, 1, h + 2), whole(rng, 1, w + 2), c)
    src = operand(rng, image(rng, shape, -span, span, MANY), h, w, plain)
    seen = src.seen(h, w, c)
    value = log_softmax(seen) if log else softmax(seen)
    # A few units in the last place; for log, also of the sum's logarithm.
    error = 6e-7 * np.abs(value) + (3e-7 if log else 2e-45)
    name = f"{'log ' if log else ''}{c} channels, {seed}"
    return row("Softmax", name, {"src": src, "log": log}, {"dst": (value, error)}, pick(rng, RESULTS))


def softmax_ends() -> Iterator[Row]:
    for c in (3, 40):
        few: dict[str, Array] = {"infinities": np.full(c, -INF), "no value at all": np.full(c, -INF)}
        few["infinities"][1] = 5
        few["ends of float"] = np.full(c, 3e38)
        few["ends of float"][2] = -3e38
        few["nearly nothing"] = np.full(c, -100.0)
        few["nearly nothing"][0] = 0
        few["NaN"] = np.where(np.arange(c) == 1, NAN, few["nearly nothing"])
        for why, values in few.items():
            src = values.astype(np.float32).reshape(1, 1, 1, c)
            for log, function in ((False, softmax), (True, log_softmax)):
                value = function(values_of(src))
                with np.errstate(invalid="ignore"):
                    value = np.where(value < -3.4e38, -INF, value)
                error = np.where(np.isfinite(value), 6e-7 * np.abs(value) + (3e-7 if log else 2e-45), 0.0)
                yield row("Softmax", f"{why}, {c}, {log}", {"src.view": src, "log": log}, {"dst": (value, error)})


def softmax_gradient_row(seed: int) -> Row:
    rng = np.random.default_rng(710000 + seed)
    log, clamps = bool(seed % 2), seed % 4 > 1
    c, n = pick(rng, (1, 2, 3, 10, 31, 32, 33, 150) if clamps else (1, 3, 33, 150, 520)), whole(rng, 1, 2)
    forward, most = log_softmax if log else softmax, 2 if c > 100 else 4
    n = 1 if c > 100 else n
    fields: dict[str, Any] = {"log": log}
    if clamps:  # results that read clamped out-of-bounds pixels
        size, results = (whole(rng, 1, most), whole(rng, 1, most)), (whole(rng, 1, 6), whole(rng, 1, 6))
        offset, start = (whole(rng, -6, 6), whole(rng, -6, 6)), (whole(rng, -2, 2), whole(rng, -2, 2))
        wanted = (whole(rng, 1, 6), whole(rng, 1, 6))
        fields["source"] = {"h": size[0], "w": size[1], "start_h": start[0], "start_w": start[1]}
        shift = (start[0] - offset[0], start[1] - offset[1])
    else:
        size = results = (whole(rng, 1, most), whole(rng, 1, most))
        offset = (0, 0)
        wanted = size if chance(rng, 2) else (whole(rng, 1, 6), whole(rng, 1, 6))
        shift = start = (0, 0) if wanted == size else (whole(rng, -2, 2), whole(rng, -2, 2))
    places = [np.clip(np.arange(results[i]) + offset[i], 0, size[i] - 1) for i in (0, 1)]
    x = floats(rng, (n, *size, c), -3, 3).astype(np.float64)
    diff = image(rng, (n, *results, c), formats="float32 float32 float16")

    def placed(v: Array) -> Array:
        return forward(v)[:, places[0]][:, :, places[1]]

    value, magnitude = gradient(over_images(placed), x, values_of(diff), apart=(0,), step=2.0**-10)
    fields |= {"diff_dst": Operand(diff, shift), "dst": Operand(placed(x).astype(np.float32), shift)}
    rows, columns = start[0] + np.arange(wanted[0]), start[1] + np.arange(wanted[1])
    # The error of sums over the channels is relative to their terms.
    size_of = magnitude + np.abs(magnitude).mean(axis=3, keepdims=True) if not log else magnitude
    value, error = (tap(part, rows, columns, "zero") for part in (value, size_of * 3e-6 + 1e-9))
    name = f"{'log ' if log else ''}{c} channels, {seed}"
    return row("SoftmaxGradient", name, fields, {"diff_src": (value, error)}, pick(rng, ("", "float16")))


AXES = ("Row", "Column", "FeatureChannels")
TYPES = ("Max", "Min", "Sum", "ArgumentMax", "ArgumentMin")


def sums_of_pixels() -> Iterator[Row]:
    """Yield sums along rows and columns: aligned channels, others, and images of many pixels."""
    for index, (n, h, w, c) in enumerate([(2, 7, 7, 64), (1, 5, 9, 13), (3, 1, 1, 8), (1, 40, 31, 16)]):
        for dtype in ("float32", "float16"):
            rng = np.random.default_rng(605000 + index)
            src = floats(rng, (n, h, w, c), -2, 2).astype(dtype)
            scale = 1 / (h * w)
            value = values_of(src).sum(axis=(1, 2), keepdims=True) * scale
            error = np.abs(values_of(src)).sum(axis=(1, 2), keepdims=True) * scale * 2e-7
            fields = {"src": src, "axis": len(AXES), "type": TYPES.index("Sum"), "scale": scale}
            yield row("Reduce", f"pixels {n} x {h} x {w} x {c}, {dtype}", fields, {"dst": (value, error)}, dst=dtype)


def reduce_row(seed: int) -> Row:
    rng = np.random.default_rng(600000 + seed)
    axis, large = seed % 3, seed % 10 == 0
    weighted = axis == 2 and chance(rng, 4)
    kind = "Sum" if weighted else TYPES[whole(rng, 0, 4 if axis == 2 else 2)]
    c = pick(rng, (1, 2, 3, 4, 16, 31, 32, 37, 130, 300, 520))
    n, h, w = whole(rng, 1, 2), whole(rng, 1, 40 if large else 9), whole(rng, 1, 90 if large and c < 100 else 9)
    src = image(rng, (n, h, w, c), formats=MANY)
    if src.dtype.kind == "f" and chance(rng, 2):
        src[whole(rng, 0, n - 1), 0, 0, whole(rng, 0, c - 1)] = NAN
    weights = image(rng, (n, h, w, c), formats=MANY) if weighted else None
    if chance(rng, 2):  # ties
        src[0, 0, 0, c - 1] = src[0, 0, 0, 0]
        if weights is not None:
            weights[0, 0, 0, c // 2] = 0
    return reduce_values(rng, seed, axis, kind, src, weights)


def reduce_values(
    rng: np.random.Generator, seed: int, axis: int, kind: str, src: Stored, weights: Stored | None
) -> Row:
    x = values_of(src)
    fields: dict[str, Any] = {"src": src, "axis": axis, "type": TYPES.index(kind)}
    if weights is not None:
        x = x * values_of(weights)
    value, error = reduce(AXES[axis], kind, x), np.zeros(1)
    if kind == "Sum":
        scale = float(rng.uniform(-1, 1)) if chance(rng, 2) else 1.0
        factor: Any = np.full(1, scale)
        fields["scale"] = scale
        if weights is not None:
            fields |= {"weights": weights, "by_nonzero_weights": chance(rng, 2)}
            if fields["by_nonzero_weights"]:
                factor = scale / np.maximum((values_of(weights) != 0).sum(axis=3, keepdims=True), 1)
        value, error = value * factor, 4e-6 * np.abs(scale) * reduce(AXES[axis], "Sum", np.abs(x))
    # The result may be cropped.
    size = [whole(rng, 1, extent) for extent in value.shape[1:3]] if chance(rng, 2) else value.shape[1:3]
    value = value[:, : size[0], : size[1]]
    error = np.broadcast_to(error, (len(value), *x.shape[1:])) if error.size == 1 else error
    error = error[:, : size[0], : size[1], : value.shape[3]]
    expected = {"dst": (value, np.where(np.isnan(error), 0, error))}
    return row("Reduce", f"{AXES[axis]} {kind} {seed}", fields, expected, pick(rng, RESULTS))


def long_sums() -> Iterator[Row]:
    """The error of a sum of many equal values that floats cannot represent grows at most with the square root."""
    many = 20000
    for axis in (0, 1, 2):
        shape = [1, 1, 1, 1]
        shape[(2, 1, 3)[axis]] = many
        src = np.full(shape, 0.1, np.float32)
        fields = {"src": src, "axis": axis, "type": TYPES.index("Sum"), "scale": 1 / many}
        expected = {"dst": (np.full((1, 1, 1, 1), float(np.float32(0.1))), 1e-7)}
        yield row("Reduce", f"the mean of {many} values along axis {axis}", fields, expected)


def correlation_row(seed: int) -> Row:
    rng = np.random.default_rng(880000 + seed)
    n, c, large = whole(rng, 1, 2), pick(rng, (1, 3, 4, 16, 37, 130)), seed % 12 == 0
    h, w = whole(rng, 1, 20 if large else 6), whole(rng, 1, 20 if large else 6)
    reach, step = (whole(rng, 0, 3), whole(rng, 0, 2)), (whole(rng, 1, 3), whole(rng, 1, 2))
    edge = pick(rng, EDGES)
    a = image(rng, (n, h, w, c), formats=MANY)
    b = image(rng, (n, h, w, c) if chance(rng, 2) else (n, whole(rng, 1, 7), whole(rng, 1, 7), c), formats=MANY)
    x, y = values_of(a), values_of(b)
    value = local_correlation(x, y, reach, step, edge)
    error = 2e-6 * local_correlation(np.abs(x), np.abs(y), reach, step, edge)
    if chance(rng, 3):  # the result is cropped
        size = (whole(rng, 1, h), whole(rng, 1, w))
        value, error = (part[:, : size[0], : size[1]] for part in (value, error))
    fields = {"a": a, "b": b, "edge": EDGES.index(edge)}
    fields |= {f"reach_{axis}": reach[i] for i, axis in enumerate("hw")}
    fields |= {f"step_{axis}": step[i] for i, axis in enumerate("hw")}
    return row("Correlation", f"{reach} {step} {edge} {seed}", fields, {"dst": (value, error)}, pick(rng, RESULTS))


def rows() -> Iterator[Row]:
    yield from map(softmax_row, range(160))
    yield from softmax_ends()
    yield from map(softmax_gradient_row, range(160))
    yield from map(reduce_row, range(400))
    yield from sums_of_pixels()
    yield from long_sums()
    yield from map(correlation_row, range(120))
