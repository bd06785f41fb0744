# SPDX-License-Identifier: Apache-2.0
"""Rows of losses, of values and of boxes (engine/problem/loss.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .engine import Array, Operand, Random, Stored, chance, floats, image, pick, row, values_of, whole
from .finite_differences import gradient
from .row_file import Row

TYPES = (
    "absolute",
    "square",
    "softmax",
    "sigmoid",
    "categorical",
    "hinge",
    "huber",
    "cosine",
    "log",
    "kullback_leibler",
)
REDUCTIONS = ("none", "sum", "mean", "mean_of_nonzero_weights")
Function = dict[str, Any]
DEFAULTS = {"weight": 1.0, "smoothing": 0.0, "classes": 1, "epsilon": float(np.float32(1e-7)), "delta": 1.0}


def times(x: Array, y: Array) -> Array:
    """0 * log(0) is 0."""
    with np.errstate(invalid="ignore"):
        return np.where((x == 0) & np.isinf(y), 0.0, x * y)


def losses(f: Function, y: Array, t: Array) -> Array:
    """Return the loss of each value, channels last, without weights."""
    f = DEFAULTS | f
    kind, epsilon, delta, smoothing = TYPES[f["type"]], f["epsilon"], f["delta"], f["smoothing"]
    if smoothing > 0 and kind in ("softmax", "sigmoid"):
        t = t * (1 - smoothing) + smoothing / (f["classes"] if kind == "softmax" else 2)
    d = y - t
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == "absolute":
            return np.abs(d)
        if kind == "square":
            return d * d
        if kind == "softmax":
            most = y.max(axis=-1, keepdims=True)
            return -times(t, y - most - np.log(np.exp(y - most).sum(axis=-1, keepdims=True)))
        if kind == "sigmoid":
            return np.maximum(y, 0) - y * t + np.log1p(np.exp(-np.abs(y)))
        if kind == "categorical":
            return -times(t, np.log(y))
        if kind == "hinge":
            return np.maximum(1 - (2 * t - 1) * y, 0)
        if kind == "huber":
            return np.where(np.abs(d) <= delta, d * d / 2, delta * (np.abs(d) - delta / 2))
        if kind == "cosine":
            return -y * t
        if kind == "log":
            return -times(t, np.log(y + epsilon)) - times(1 - t, np.log(1 - y + epsilon))
        return times(t, np.log(t) - y)


def away_from_kinks(f: Function, y: Stored, t: Stored) -> Stored:
    """Return predictions far enough from kinks that neither a finite difference nor a rounding crosses one."""
    kind, labels = TYPES[f["type"]], t.astype(np.float64)
    near: Any = np.zeros(y.shape, bool)
    if kind == "absolute":
        near = np.abs(y - labels) < 1e-3
    elif kind == "hinge":
        near = np.abs(1 - (2 * labels - 1) * y) < 1e-3
    elif kind == "huber":
        near = np.abs(np.abs(y - labels) - f["delta"]) < 1e-3
    elif kind == "sigmoid":
        near = np.abs(y) < 1e-3
    return np.where(near, y + y.dtype.type(0.01), y).astype(y.dtype)


def reduced(p: dict[str, Any], f: Function, parts: list[tuple[Array, Array, Array, bool]]) -> list[tuple[Array, Array]]:
    """Return the reduced losses of the images of each part, and their errors."""
    kind, reduction = TYPES[f["type"]], REDUCTIONS[p["reduction"]]
    sums, sizes, counts = [], [], []
    for each, weights, terms, has_weights in parts:
        sum_of = terms.sum(axis=(1, 2, 3))
        size = np.abs(terms).sum(axis=(1, 2, 3))
        if kind == "cosine":
            sum_of = sum_of + (1.0 if has_weights else f["weight"])
        values = each.shape[1] * each.shape[2] * (1 if kind == "softmax" else each.shape[3])
        nonzero = (weights != 0).sum(axis=(1, 2, 3))
        count = {"sum": np.ones(len(each)), "mean": np.full(len(each), float(values))}.get(reduction, nonzero)
        sums.append(sum_of), sizes.append(size), counts.append(count)
    if p["across_images"]:
        total, size = sum(part.sum() for part in sums), sum(part.sum() for part in sizes)
        count = 1 if reduction == "sum" else sum(part.sum() for part in counts)
        first = (total / count if count > 0 else total, size / max(count, 1))
        results = [(np.zeros(len(part)), np.zeros(len(part))) for part in sums]
        results[0][0][0], results[0][1][0] = first
        return results
    return [
        (np.where(count > 0, part / np.maximum(count, 1), part), size / np.maximum(count, 1))
        for part, size, count in zip(sums, sizes, counts, strict=True)
    ]


def slope(f: Function, y: Array, t: Array, weight: Array, by_labels: bool) -> tuple[Array, Array]:
    """Return the gradient of the weighted losses and its error."""

    def forward(x: Array) -> Array:
        return losses(f, y, x) if by_labels else losses(f, x, t)

    together = TYPES[f["type"]] == "softmax"
    x = t if by_labels else y
    apart = (0, 1, 2) if together else (0, 1, 2, 3)
    value, size = gradient(forward, x, weight, apart=apart, step=2.0**-16)
    mass = np.abs(weight).sum(axis=3, keepdims=True) if together else np.abs(weight)
    return value, 3e-6 * (size + 0.1 * mass) + 1e-8


def placed(rng: Random, seed: int, stored: Stored, plain: bool, start: tuple[int, int]) -> Operand:
    return Operand(stored) if plain else Operand(stored, start, edge="zero" if seed % 4 == 1 else "clamp")


def function_row(seed: int, channels: int | None = None) -> Row:
    rng = np.random.default_rng(800000 + seed)
    kind, round_ = TYPES[seed % 10], seed // 10
    f: Function = {
        "type": seed % 10,
        "weight": pick(rng, (1.0, 0.25, -2.0)),
        "smoothing": float(np.float32(0.2)) if chance(rng, 3) else 0.0,
        "classes": whole(rng, 1, 12),
        "epsilon": float(np.float32(pick(rng, (1e-7, 0.05)))),
        "delta": pick(rng, (0.5, 1.0, 2.0)),
    }
    reduction = "sum" if kind == "cosine" else pick(rng, REDUCTIONS)
    none, plain, large = reduction == "none", round_ % 2 == 0, round_ % 12 == 0
    p: dict[str, Any] = {
        "reduction": REDUCTIONS.index(reduction),
        "across_images": not none and chance(rng, 3),
        "by_labels": chance(rng, 4),
    }
    has_weights, has_incoming, wants_gradient = chance(rng, 2), chance(rng, 3), not chance(rng, 5)
    # With an incoming gradient, the losses need not be computed.
    wants_loss = not wants_gradient or not chance(rng, 4)
    if has_incoming:
        wants_gradient, wants_loss = True, False
    c = pick(rng, (1, 3, 4, 10, 37, 100) if kind != "softmax" else (1, 3, 4, 10, 37, 520 if large else 30))
    c = channels or c
    h, w = (30, 20) if large and c < 20 else (whole(rng, 1, 4), whole(rng, 1, 5))
    formats = "float32" if round_ % 3 else "float32 float16"
    probabilities = kind in ("categorical", "log")
    p["parts"], expected, kept = [], {}, []
    for index in range(whole(rng, 1, 3)):
        n = whole(rng, 1, 3)
        shape, start = (n, h, w, c), (whole(rng, -2, 2), whole(rng, -2, 2))
        at_rest = plain or probabilities
        low, high = (0.05, 0.95) if probabilities else (-3, 3)
        labels = image(rng, shape, 0.05 if kind == "kullback_leibler" else 0, 1, formats)
        if kind == "kullback_leibler":
            at_rest = True
        y = placed(rng, seed, away_from_kinks(f, image(rng, shape, low, high, formats), labels), at_rest, start)
        t = placed(rng, seed, labels, at_rest, start)
        stored = image(rng, shape, -1, 2, formats)
        if chance(rng, 3):
            stored[..., 1::2] = 0
        own = placed(rng, seed, stored, at_rest, start)
        incoming = Operand(image(rng, shape, formats=formats))
        if chance(rng, 2):
            incoming = Operand(incoming.view, repeat=(True, True, True))
        part: dict[str, Any] = {"n": n, "h": h, "w": w, "c": c, "src": y, "labels": t}
        weights = own.seen(h, w, c) if has_weights else np.full(shape, f["weight"])
        if has_weights:
            part["weights"] = own
        factor = weights
        if has_incoming:
            part["incoming"] = incoming
            factor = weights * incoming.seen(h, w, c)
        p["parts"].append(part)
        seen, given = y.seen(h, w, c), t.seen(h, w, c)
        # Out of bounds both are 0, a kink of |y - t| and of sigmoid: there the slope is that of 0.
        terms = weights * losses(f, seen, given)
        kept.append((seen, weights, terms, has_weights))
        if wants_gradient:
            value, error = slope(f, seen, given, factor, p["by_labels"])
            if kind == "sigmoid":
                error = np.where((seen == 0) & (not p["by_labels"]), error + 1e-5 * np.abs(factor), error)
            expected[f"parts.{index}.gradient"] = (value, error)
        if wants_loss and none:
            expected[f"parts.{index}.loss"] = (terms, 4e-6 * (1 + np.abs(terms)))
    if wants_loss and not none:
        for index, (value, size) in enumerate(reduced(p, f, kept)):
            error = 2e-5 * (size + 0.1) * 0.1
            expected[f"parts.{index}.loss"] = (value.reshape(-1, 1, 1, 1), error.reshape(-1, 1, 1, 1))
    name = f"{kind} {reduction} {seed}"
    return row("Loss", name, {**p, "function": f}, expected, "float16" if round_ % 3 == 0 else "")


def one_pixel(kind: str, y: Any, t: Any, loss: float, slopes: dict[int, float] | None, name: str, error: float) -> Row:
    """`slopes`: gradients of single channels."""
    y, t = (np.array(each, np.float32).reshape(1, 1, 1, -1) for each in (y, t))
    part: dict[str, Any] = {"n": 1, "h": 1, "w": 1, "c": y.size, "src.view": y, "labels.view": t}
    expected: dict[str, Any] = {"parts.0.loss": (np.full((1, 1, 1, 1), loss), error)}
    if slopes is not None:
        wanted = np.zeros(y.shape)
        unknown = np.full(y.shape, np.inf)
        for channel, value in slopes.items():
            wanted[..., channel], unknown[..., channel] = value, 0.0
        expected["parts.0.gradient"] = (wanted, unknown)
    return row("Loss", name, {"parts": [part], "function.type": TYPES.index(kind), "reduction": 1}, expected)


def ends() -> Iterator[Row]:
    """Every function returns NaN for NaN at any position; an infinite value without a label adds nothing."""
    for kind in TYPES:
        for c in (5, 40):
            for place in (0, c - 1):
                for in_labels in (False, True):
                    y, t = np.full(c, 0.5), np.full(c, 0.25)
                    (t if in_labels else y)[place] = np.nan
                    name = f"{kind} of NaN in {'labels' if in_labels else 'src'} {place} of {c}"
                    yield one_pixel(kind, y, t, np.nan, None, name, 0.0)
    for c in (4, 40):
        y, t = np.zeros(c), np.zeros(c)
        y[:3], t[0] = (300, -np.inf, -300), 1
        yield one_pixel("softmax", y, t, 0, {0: 0, 1: 0}, f"a sure prediction, {c}", 0.0)
        t[0], t[2] = 0, 1
        yield one_pixel("softmax", y, t, 600, {0: 1, 2: -1}, f"a wrong prediction, {c}", 0.0)
    ln2 = np.log(2)
    yield one_pixel("categorical", (0, 0.5), (0, 1), ln2, {0: 0}, "no label, no probability", 1e-6)
    yield one_pixel("kullback_leibler", (-np.inf, -ln2), (0, 1), ln2, {0: 0}, "nothing there, nothing seen", 1e-6)
    yield one_pixel("absolute", (2,), (2,), 0, {0: 0}, "no difference, no slope", 0.0)
    yield one_pixel("hinge", (1,), (1,), 0, {0: 0}, "the end of the hinge has no slope", 0.0)
    yield one_pixel("sigmoid", (1000, -1000), (0, 1), 2000, {0: 1, 1: -1}, "sigmoid far out", 0.0)


# ------------------------------------------------------------------------------------------------------------- boxes


def overlap(a: Array, b: Array) -> Array:
    """Return the IoU of boxes (..., 4): centre and size."""
    low = np.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
    high = np.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
    both = np.where((high > low).all(axis=-1), np.prod(high - low, axis=-1), 0.0)
    return both / (np.prod(a[..., 2:], axis=-1) + np.prod(b[..., 2:], axis=-1) - both)


def box_losses(f: dict[str, Any], y: Array, t: Array, w: Array, fixed: Array | None) -> tuple[Array, Array]:
    """Return the loss of each cell, and the IoUs, which are `fixed` if that is given."""
    anchors = f["anchors"].astype(np.float64).reshape(-1, 2)
    y, t, w = (np.moveaxis(np.stack(np.split(part, len(anchors), axis=-1)), 0, -2) for part in (y, t, w))
    centred = np.zeros((len(anchors), 4))
    centred[:, 2:] = anchors
    fits = overlap(centred, np.concatenate([np.zeros_like(t[..., :2]), t[..., 2:4]], axis=-1))
    centre = 1 / (1 + np.exp(-y[..., :2]))
    ious = overlap(np.concatenate([centre, np.exp(y[..., 2:4]) * anchors], axis=-1), t[..., :4])
    ious = ious if fixed is None else fixed
    is_best = fits == fits.max(axis=-1, keepdims=True)
    is_object = (t[..., 4] > 0) & (is_best | (fits > f["min_iou"]))
    is_absent = ~is_object & (fits < f["max_iou"])

    def term(name: str, channels: slice, a: Array, b: Array) -> Array:
        return (f[name]["weight"] * losses(f[name], a, b) * w[..., channels]).sum(axis=-1)

    sizes = np.log(t[..., 2:4] / anchors + 1e-5)
    found = term("xy", slice(0, 2), centre, t[..., :2]) + term("wh", slice(2, 4), y[..., 2:4], sizes)
    found = found + term("classes", slice(5, None), y[..., 5:], t[..., 5:])
    wanted = np.where(is_object, ious if f["rescore"] else 1.0, 0.0)
    scale = np.where(is_object, f["scale_object"], np.where(is_absent, f["scale_no_object"], 0.0))
    confidence = term("confidence", slice(4, 5), y[..., 4:5], wanted[..., None])
    return (np.where(is_object, found, 0.0) + scale * confidence).sum(axis=-1), ious


def box_row(seed: int) -> Row:
    rng = np.random.default_rng(910000 + seed)
    anchors, classes = whole(rng, 1, 4), whole(rng, 1, 6)
    c = anchors * (5 + classes)
    n, h, w = whole(rng, 1, 2), whole(rng, 1, 4), whole(rng, 1, 4)
    boxes: dict[str, Any] = {
        "xy": {"type": TYPES.index("square"), "weight": 10.0},
        "wh": {"type": TYPES.index("huber"), "weight": 4.0},
        "confidence": {"type": TYPES.index("sigmoid"), "weight": 0.5},
        "classes": {"type": TYPES.index("softmax" if seed % 2 else "sigmoid"), "weight": 2.0},
        "scale_object": 3.0,
        "scale_no_object": float(np.float32(0.7)),
        "min_iou": float(np.float32(0.35 if seed % 4 < 2 else 0.7)),
        "max_iou": float(np.float32(0.3)),
        "rescore": seed % 3 != 0,
        "anchors": floats(rng, 2 * anchors, 0.5, 3),
    }
    shape = (n, h, w, c)
    reduction = ("sum", "sum", "mean", "mean_of_nonzero_weights")[seed // 2 % 4]
    src, labels = floats(rng, shape, -1.5, 1.5), floats(rng, shape, 0.1, 1)
    src = np.where(np.abs(src) < 1e-3, np.float32(0.01), src)
    # One box per cell, the same for all anchors; none in some cells.
    there = rng.random((n, h, w)) > 1 / 3
    size = floats(rng, (n, h, w, 2), 0.4, 3.5) * there[..., None]
    for k in range(anchors):
        labels[..., k * (5 + classes) + 2 : k * (5 + classes) + 4] = size
        labels[..., k * (5 + classes) + 4] = there
    stored = floats(rng, shape, 0, 2)
    if chance(rng, 2):
        stored[..., ::3] = 0
    weights = values_of(stored) if chance(rng, 2) else np.ones(shape)
    y, t = values_of(src), values_of(labels)
    value, ious = box_losses(boxes, y, t, weights, None)
    # The gradient treats the IoU as a constant.
    slopes, magnitude = gradient(
        lambda x: np.stack([box_losses(boxes, each, t, weights, ious)[0] for each in x]),
        y,
        np.ones((n, h, w)),
        apart=(0, 1, 2),
        step=2.0**-14,
    )
    part: dict[str, Any] = {"n": n, "h": h, "w": w, "c": c, "src.view": src, "labels.view": labels}
    if (weights != 1).any():
        part["weights.view"] = stored
    total = value.sum(axis=(1, 2)).reshape(-1, 1, 1, 1)
    if reduction != "sum":
        counted = weights != 0 if reduction == "mean_of_nonzero_weights" else np.ones(shape)
        total = total / counted.sum(axis=(1, 2, 3), keepdims=True)
    expected = {
        "parts.0.gradient": (slopes, 2e-5 * (1 + magnitude)),
        "parts.0.loss": (total, 2e-6 * (1 + np.abs(total))),
    }
    return row(
        "Loss", f"boxes {seed}", {"parts": [part], "boxes": boxes, "reduction": REDUCTIONS.index(reduction)}, expected
    )


def rows() -> Iterator[Row]:
    yield from map(function_row, range(480))
    softmax = TYPES.index("softmax")
    for round_ in range(60):
        yield function_row(len(TYPES) * (48 + round_) + softmax, (64, 100, 300)[round_ % 3])
    yield from ends()
    yield from map(box_row, range(40))
