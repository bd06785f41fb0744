# SPDX-License-Identifier: Apache-2.0
"""Rows of normalizations and their gradients (engine/problem/normalize.hpp)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from oracle.MPSCNNConvolution import tap
from oracle.MPSCNNNormalization import around_channels
from oracle.MPSCNNPooling import windows

from .engine import (
    EDGES,
    Array,
    Operand,
    Pair,
    Random,
    Window,
    activate,
    chance,
    floats,
    image,
    operand,
    pick,
    random_neuron,
    real,
    region,
    row,
    values_of,
    whole,
)
from .finite_differences import gradient, over_images
from .row_file import Row

MANY = "float32 float32 float16 unorm8 unorm16"
FLOATS = "float32 float32 float32 float16"

# ----------------------------------------------------------------------------------------------------- by neighbours

LRN_TYPES = ("channels", "pixels", "contrast")


def random_lrn(rng: Random, kind: str, plain: bool) -> tuple[dict[str, Any], Window]:
    window, size = Window(), 1
    if kind == "channels":
        size = pick(rng, (1, 2, 3, 4, 5, 6, 7, 8, 11, 64, 2200, 100000))
    else:
        height = whole(rng, 1, 6)
        window = Window((height, whole(rng, 1, 20) if chance(rng, 3) else height))
    start = (-(window.kernel[0] // 2), -(window.kernel[1] // 2))
    edge = "zero"
    if not plain:
        wide = pick(rng, (-40, 40)) if chance(rng, 6) else whole(rng, -4, 4)
        start, edge = (start[0] + whole(rng, -4, 4), start[1] + wide), pick(rng, EDGES)
    window = Window(window.kernel, start=start, edge=edge)
    fields: dict[str, Any] = {
        "type": LRN_TYPES.index(kind),
        "size": size,
        "window": window.fields(),
        "alpha": 0.0 if chance(rng, 8) else real(rng, 0.2, 3),
        "beta": float(np.float32(pick(rng, (0.5, 0.75, 1, 5, -0.3, 0)))),
        "delta": real(rng, 0.1, 2),
    }
    if kind == "contrast":
        fields |= {"p0": real(rng, 0, 1.5), "pm": real(rng, -1, 1), "ps": real(rng, 0.5, 2)}
    return fields, window


def lrn(fields: dict[str, Any], window: Window, size: Pair, x: Array) -> tuple[Array, Array]:
    """Return the result and the magnitude that its roundings are relative to."""
    kind = LRN_TYPES[fields["type"]]
    offset = window.offset()
    rows, columns = offset[0] + np.arange(size[0]), offset[1] + np.arange(size[1])
    centre = tap(x, rows, columns, window.edge)
    mean: Array | float = 0.0
    if kind == "channels":
        spread = around_channels(centre**2, fields["size"]) / fields["size"]
    else:
        steps: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1), "edge": window.edge}
        taps = windows(x, size=size, offset=offset, kernel=window.kernel, **steps)
        if kind == "contrast":
            mean = taps.mean(axis=0)
        spread = ((taps - mean) ** 2).mean(axis=0)
    p0, pm, ps = (fields.get(key, default) for key, default in (("p0", 0.0), ("pm", 0.0), ("ps", 1.0)))
    power = (fields["delta"] + fields["alpha"] * spread) ** -fields["beta"]
    size_of = np.abs(ps * power) * (np.abs(centre) + np.abs(p0 * mean))
    return pm + ps * (centre - p0 * mean) * power, size_of


def lrn_row(seed: int) -> Row:
    rng = np.random.default_rng(500000 + seed)
    kind, plain, large = LRN_TYPES[seed % 3], seed % 4 == 0, seed % 40 == 0
    n, c = whole(rng, 1, 3), pick(rng, (1, 3, 4, 16, 21, 40, 600))
    size = (whole(rng, 1, 60 if large else 9), whole(rng, 1, 40 if large else 9))
    fields, window = random_lrn(rng, kind, plain)
    if seed % 16 == 5:
        fields |= {"delta": -30.0, "beta": 1.0}
    extents = size if plain else (whole(rng, 1, size[0] + 2), whole(rng, 1, size[1] + 2))
    src = image(rng, (n, *extents, c), formats=MANY)
    value, magnitude = lrn(fields, window, size, values_of(src))
    error = np.abs(value) * 2.0**-24 + 1e-8 * magnitude
    return row("LRN", f"{kind} {seed}", {"src": src, **fields}, {"dst": (value, error)}, pick(rng, ("", "float16")))


def lrn_gradient_row(seed: int) -> Row:
    rng = np.random.default_rng(900000 + seed)
    kind, plain = LRN_TYPES[seed % 3], seed % 4 == 0
    c = pick(rng, (1, 3, 4, 16, 21, 40) if kind == "channels" else (1, 3, 4, 16, 21, 40, 512))
    extents = (whole(rng, 1, 6), whole(rng, 1, 6))
    fields, window = random_lrn(rng, kind, plain)

    def around() -> Pair:
        return extents if plain else (whole(rng, 1, extents[0] + 2), whole(rng, 1, extents[1] + 2))

    size, wanted = around(), around()
    first = (0, 0) if plain else (whole(rng, -2, 2), whole(rng, -2, 2))
    n = whole(rng, 1, 2)
    src, diff = image(rng, (n, *extents, c), formats=FLOATS), image(rng, (n, *size, c), formats=FLOATS)
    if seed % 8 == 3:
        src = floats(rng, src.shape, 98, 102)
    value, magnitude = gradient(
        over_images(lambda x: lrn(fields, window, size, x)[0]),
        values_of(src),
        values_of(diff),
        apart=(0,) if kind == "channels" else (0, 3),
        step=2.0**-11,
    )
    # Terms that cancel in a derivative are as large as neighbouring ones.
    error = region(magnitude, first, wanted) * 2e-6 + np.abs(magnitude).max() * 2e-7 + 1e-9
    if seed % 8 == 3:
        error *= 20
    forward = {"src": src, "dst": diff, **fields}
    fields = {"forward": forward, "start_h": first[0], "start_w": first[1]}
    expected = {"diff_src": (region(value, first, wanted), error)}
    return row("LRNGradient", f"{kind} {seed}", fields, expected, pick(rng, ("", "float16")))


def many_lrn_gradients() -> Row:
    """Return a row of images that together take more memory than an engine uses at once; windows of one value.

    y = x * p with p = (delta + alpha * x^2)^-beta, so y' = p - 2 * alpha * beta * x^2 * p / (delta + alpha * x^2).
    """
    rng = np.random.default_rng(990000)
    src, diff = (rng.uniform(-2, 2, (3, 40, 50, 512)).astype(np.float16) for _ in range(2))
    alpha, beta, delta = 0.75, 0.5, 0.5
    squares = values_of(src) ** 2
    base = delta + alpha * squares
    value = values_of(diff) * base**-beta * (1 - 2 * alpha * beta * squares / base)
    forward = {"src": src, "dst": diff, "size": 1, "alpha": alpha, "beta": beta, "delta": delta}
    return row("LRNGradient", "many values", {"forward": forward}, {"diff_src": (value, 1e-6)})


# ------------------------------------------------------------------------------------------------------ by statistics


def moments(x: Array, groups: int) -> tuple[Array, Array]:
    """Return mean and variance of each channel (groups 0), or of each image and group: (N, groups)."""
    if groups == 0:
        return x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    split = x.reshape(*x.shape[:3], groups, -1)
    return split.mean(axis=(1, 2, 4)), split.var(axis=(1, 2, 4))


def over_channels(known: Array, c: int) -> Array:
    """Expand values per channel, or per image and group, for (N, H, W, C)."""
    return known if known.ndim == 1 else np.repeat(known, c // known.shape[1], axis=1)[:, None, None]


def normalized(
    seen: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float, f: dict[str, Any]
) -> Array:
    c = seen.shape[-1]
    z = (seen - over_channels(mean, c)) / np.sqrt(over_channels(variance, c) + epsilon)
    return activate(f, z * gamma + beta)


NO_NEURON = {"type": 0, "a": 0.0, "b": 0.0, "c": 0.0}


def pairs(mean: Array, variance: Array) -> Array:
    return np.stack([mean.ravel(), variance.ravel()], axis=1).ravel()


def groups_of(c: int, which: int) -> int:
    return (0, c, 1, c // 4 if c % 4 == 0 else 1)[which % 4]


def normalize_row(seed: int) -> Row:
    rng = np.random.default_rng(600000 + seed)
    plain, large = seed % 4 == 0, seed % 40 == 0
    n, c = 9 if chance(rng, 5) else whole(rng, 1, 3), pick(rng, (1, 3, 4, 8, 36, 64, 520, 1100))
    size = (whole(rng, 1, 40 if large else 9), whole(rng, 1, 40 if large else 9))
    groups = groups_of(c, seed // 4)
    extents = size if plain else (whole(rng, 1, size[0] + 2), whole(rng, 1, size[1] + 2))
    # A mean that is large relative to the spread must not reduce accuracy.
    centre = 1000 if chance(rng, 3) else 0
    src = image(rng, (n, *extents, c), centre - 2, centre + 2, "float32" if centre else MANY)
    at = Operand(src)
    if not plain:
        at = Operand(src, (whole(rng, -4, 4), whole(rng, -4, 4)), edge=pick(rng, EDGES))
    gamma, beta = floats(rng, c, -2, 2), floats(rng, c, -1, 1)
    epsilon = float(np.float32(pick(rng, (1e-5, 1e-3, 1.17549435e-38))))
    f = random_neuron(rng, ("none", "relu", "sigmoid", "prelu")[seed // 16 % 4], c)
    fields: dict[str, Any] = {
        "src": at,
        "gamma": gamma,
        "beta": beta,
        "groups": groups,
        "epsilon": epsilon,
        "neuron": f,
    }
    expected: dict[str, Any] = {}
    if groups == 0:
        mean = rng.uniform(centre - 1, centre + 1, c)
        variance = rng.uniform(0.1, 2, c)
        fields |= {"mean": mean.astype(np.float32), "variance": variance.astype(np.float32)}
        which = whole(rng, 0, 2)
        if which == 1:  # the same with more digits
            fields["exact"] = pairs(mean, variance)
        else:
            mean, variance = (fields[key].astype(np.float64) for key in ("mean", "variance"))
        if which == 2:  # of other values: mean and variance were written afterwards
            fields["exact"] = pairs(mean + 1, variance * 2)
    else:
        mean, variance = moments(values_of(src), groups)
        if chance(rng, 2):
            expected["mean"] = (mean.ravel(), (np.abs(mean) + np.sqrt(variance)).ravel() * 2.0**-23 + 1e-9)
            expected["variance"] = (variance.ravel(), variance.ravel() * 2.0**-21 + 1e-12)
            if chance(rng, 2):
                expected["exact"] = (pairs(mean, variance), 1e-6)
    seen = at.seen(*size, c)
    value = normalized(seen, mean, variance, gamma, beta, epsilon, f)
    m, v = over_channels(mean, c), over_channels(variance, c)
    scale = gamma / np.sqrt(v + epsilon)
    # Two products and two sums; adding eight distances in float costs a rounding relative to the spread.
    error = 4 * 2.0**-24 * (np.abs((seen - m) * scale) + np.abs(beta)) + 1e-12 * np.abs(scale)
    error = error + 2 * 2.0**-24 * np.abs(scale) * (np.abs(m) * 1e-3 + np.sqrt(v))
    expected["dst"] = (value, 1.6 * error + np.abs(value) * 2.0**-23)
    return row("Normalize", f"{groups} groups of {c}, {seed}", fields, expected, pick(rng, ("", "float16", "unorm8")))


def photographs() -> Iterator[Row]:
    """Yield rows of three bytes per pixel, as the inputs of networks are, four pixels at a time."""
    for index, (n, h, w, neuron) in enumerate([(2, 8, 6, "none"), (1, 31, 28, "relu"), (4, 5, 7, "none")]):
        rng = np.random.default_rng(610000 + index)
        src = image(rng, (n, h, w, 3), formats="unorm8")
        gamma, beta = floats(rng, 3, -2, 2), floats(rng, 3, -1, 1)
        mean, variance = floats(rng, 3, 0.2, 0.8), floats(rng, 3, 0.05, 0.3)
        f = random_neuron(rng, neuron, 3)
        fields = {"src": Operand(src), "gamma": gamma, "beta": beta, "groups": 0, "epsilon": 0.0, "neuron": f}
        fields |= {"mean": mean, "variance": variance}
        value = normalized(values_of(src), *(each.astype(np.float64) for each in (mean, variance)), gamma, beta, 0.0, f)
        yield row("Normalize", f"three bytes, {index}", fields, {"dst": (value, 4e-6)}, dst="float16")


def moments_row(seed: int) -> Row:
    rng = np.random.default_rng(700000 + seed)
    large = seed % 20 == 0
    n, c = whole(rng, 1, 6), pick(rng, (1, 3, 4, 16, 33, 64, 512, 1100))
    h, w = whole(rng, 1, 60 if large else 9), whole(rng, 1, 60 if large else 9)
    centre = -300 if chance(rng, 2) else 0
    src = image(rng, (n, h, w, c), centre - 2, centre + 2, "float32" if centre else MANY)
    x = values_of(src)
    fields: dict[str, Any] = {"src": src}
    if seed % 2:  # merged with the moments of other images
        before = values_of(floats(rng, (whole(rng, 1, 3), h, w, c), centre - 2, centre + 2))
        mean, variance = moments(before, 0)
        fields |= {"mean": mean.astype(np.float32), "variance": variance.astype(np.float32)}
        fields["count"] = before.size // c
        if chance(rng, 2):
            fields["exact"] = pairs(mean, variance)
        x = np.concatenate([before, x])
    mean, variance = moments(x, 0)
    # The moments of a part are rounded to float when stored.
    rounding = 2.0**-22 * (np.abs(mean) + np.sqrt(variance)) + 1e-12
    error = variance * 2.0**-22 + 2 * np.sqrt(variance) * rounding + 1e-12
    expected = {"mean": (mean, rounding), "variance": (variance, error)}
    if "exact" in fields or (not seed % 2 and chance(rng, 2)):
        expected["exact"] = (pairs(mean, variance), 1e-6)
    return row("BatchMoments", f"{c} channels, {seed}", fields, expected)


def many_pixels() -> Iterator[Row]:
    """Yield statistics of many float16 values with a mean that is large relative to the spread."""
    for n, c in ((4, 3), (4, 8), (4, 16), (1, 8), (2, 72), (4, 64)):
        rng = np.random.default_rng(790000 + c + (4 - n) * 100)
        src = rng.uniform(7, 9, (n, 90, 80, c)).astype(np.float16)
        mean, variance = moments(values_of(src), 0)
        expected = {"mean": (mean, 2e-6), "variance": (variance, 1e-6)}
        yield row("BatchMoments", f"many pixels, {n} images, {c} channels", {"src": src}, expected)
        for groups in sorted({1, c}):
            mean, variance = moments(values_of(src), groups)
            gamma, beta = floats(rng, c, 0.5, 2), floats(rng, c, -1, 1)
            value = normalized(values_of(src), mean, variance, gamma, beta, 1e-3, NO_NEURON)
            fields = {"src": Operand(src), "gamma": gamma, "beta": beta, "groups": groups, "epsilon": 1e-3}
            wanted = {"mean": (mean.ravel(), 2e-6), "variance": (variance.ravel(), 1e-6), "dst": (value, 2e-5)}
            yield row("Normalize", f"many pixels, {n} images, {groups} groups of {c}", fields, wanted, "float16")


def batches() -> Iterator[Row]:
    """Yield normalizations of batches with known statistics, and their gradients, of an odd number of many pixels."""
    for index, (c, neuron, dtype) in enumerate(
        [
            (8, "none", "float16"),
            (16, "relu", "float16"),
            (12, "relu", "float32"),
            (72, "none", "float32"),
            (72, "relu", "float16"),
        ]
    ):
        rng = np.random.default_rng(640000 + index)
        src, diff = (image(rng, (3, 29, 31, c), formats=dtype) for _ in range(2))
        gamma, beta, mean = floats(rng, c, 0.5, 2), floats(rng, c, -1, 1), floats(rng, c, -1, 1)
        f, variance, epsilon = random_neuron(rng, neuron, c), floats(rng, c, 0.5, 2), 1e-3
        fields = {"src": Operand(src), "gamma": gamma, "beta": beta, "epsilon": epsilon, "neuron": f}
        fields |= {"mean": mean, "variance": variance}
        name, stored = f"batch of {c} channels, {neuron}, {dtype}", dtype if dtype == "float16" else ""
        deviation = np.sqrt(variance.astype(np.float64) + epsilon)
        z = (values_of(src) - mean) / deviation
        y = z * gamma + beta
        yield row("Normalize", name, fields | {"groups": 0}, {"dst": (activate(f, y), 4e-6)}, stored)
        g = values_of(diff) * (np.where(y >= 0, 1, f["a"]) if neuron == "relu" else 1)
        sums = {"diff_gamma": g * z, "diff_beta": g}
        expected = {
            key: (each.sum(axis=(0, 1, 2)), 2e-6 * np.abs(each).sum(axis=(0, 1, 2))) for key, each in sums.items()
        }
        yield row("BatchMomentsGradient", name, {"diff_dst": diff, **fields}, expected)
        by_gamma, by_beta = floats(rng, c, -900, 900), floats(rng, c, -900, 900)
        value = gamma * (g - (by_beta + z * by_gamma) / (src.size // c)) / deviation
        fields |= {"diff_dst": Operand(diff), "groups": 0, "count": src.size // c}
        fields |= {"diff_gamma": by_gamma, "diff_beta": by_beta}
        yield row("NormalizeGradient", name, fields, {"diff_src": (value, 2e-5)}, stored)


def large_images() -> Iterator[Row]:
    """Yield gradients of normalizations of each image, of an odd number of many pixels."""
    for index, (c, groups, dtype) in enumerate([(72, 1, "float16"), (12, 3, "float32"), (10, 2, "float32")]):
        rng = np.random.default_rng(650000 + index)
        src, diff = (image(rng, (3, 43, 41, c), formats=dtype) for _ in range(2))
        gamma, beta, epsilon = floats(rng, c, 0.5, 2), floats(rng, c, -1, 1), 1e-3
        mean, variance = moments(values_of(src), groups)
        deviation = np.sqrt(over_channels(variance, c) + epsilon)
        g, z = values_of(diff), (values_of(src) - over_channels(mean, c)) / deviation

        def means(x: Array, groups: int = groups, c: int = c) -> Array:
            return over_channels(moments(x, groups)[0], c)

        value = (gamma * g - means(gamma * g) - z * means(gamma * g * z)) / deviation
        sums = {"diff_gamma": g * z, "diff_beta": g}
        expected: dict[str, Any] = {
            key: (each.sum(axis=(0, 1, 2)), 2e-6 * np.abs(each).sum(axis=(0, 1, 2))) for key, each in sums.items()
        }
        fields = {"diff_dst": Operand(diff), "src": Operand(src), "gamma": gamma, "beta": beta, "epsilon": epsilon}
        fields |= {"mean": mean.ravel().astype(np.float32), "variance": variance.ravel().astype(np.float32)}
        fields |= {"exact": pairs(mean, variance), "groups": groups}
        name = f"large images, {groups} groups of {c}, {dtype}"
        stored = dtype if dtype == "float16" else ""
        yield row("NormalizeGradient", name, fields, {"diff_src": (value, 2e-5), **expected}, stored)


class Normalization:
    """Inputs of one normalization and of its gradients."""

    def __init__(self, rng: Random, seed: int, groups: int | None, c: int, far: bool = False) -> None:
        plain = far or seed % 3 == 0
        self.n = whole(rng, 1, 3)
        extents = (whole(rng, 2, 5), whole(rng, 2, 5))
        if self.n * extents[0] * extents[1] * c > 12000:
            self.n, extents = 1, (2, 3)
        self.c, self.groups = c, groups_of(c, seed // 3 % 3 + 1) if groups is None else groups
        size = extents if plain else (whole(rng, 1, extents[0] + 2), whole(rng, 1, extents[1] + 2))
        self.wanted: Pair = extents if plain else (whole(rng, 1, extents[0] + 2), whole(rng, 1, extents[1] + 2))
        # Without the pairs of doubles, mean and variance have only a float's digits.
        self.has_pairs = far or seed % 5 != 3
        centre, width = pick(rng, (-300, 10, 0, 0)) if self.has_pairs else 0, 2.0
        if far:  # a mean 30,000 times the spread
            centre, width = 300, 0.01
        self.spread = width
        shape = (self.n, *extents, c)
        self.src = image(rng, shape, centre - width, centre + width, "float32" if centre else FLOATS)
        self.diff = image(rng, (self.n, *size, c), formats=FLOATS)
        self.gamma, self.beta = floats(rng, c, 0.25, 2), floats(rng, c, -1, 1)
        self.epsilon = float(np.float32(1e-9 if far else pick(rng, (1e-5, 1e-3))))
        self.f = random_neuron(rng, ("none", "relu", "sigmoid", "prelu")[seed // 2 % 4], c)
        if far:
            self.f = NO_NEURON
        self.start: Pair = (0, 0) if plain else (whole(rng, -3, 3), whole(rng, -3, 3))  # of the forward kernel
        self.first: Pair = (0, 0) if plain else (whole(rng, -2, 2), whole(rng, -2, 2))
        self.edge = "zero" if plain else pick(rng, EDGES)
        self.mean, self.variance = moments(values_of(self.src), self.groups)

    def seen(self, x: Array) -> Array:
        h, w = self.diff.shape[1:3]
        return tap(x, self.start[0] + np.arange(h), self.start[1] + np.arange(w), self.edge)

    def forward(self, x: Array) -> Array:
        """Normalize by the statistics of x."""
        return normalized(self.seen(x), *moments(x, self.groups), self.gamma, self.beta, self.epsilon, self.f)

    def constant(self, x: Array) -> Array:
        """Normalize by given statistics."""
        return normalized(self.seen(x), self.mean, self.variance, self.gamma, self.beta, self.epsilon, self.f)

    def has_kink(self) -> bool:
        """Return whether a value is so near 0 that either slope of a rectifier is right."""
        if self.f["type"] not in (1, 10):
            return False
        plain = normalized(
            self.seen(values_of(self.src)),
            self.mean,
            self.variance,
            self.gamma,
            self.beta,
            self.epsilon,
            {**self.f, "type": 0},
        )
        scale = (np.abs(self.mean) / np.sqrt(self.variance + self.epsilon)).max() + 1
        return bool(np.abs(plain).min() < 2e-5 * scale + 1e-4)

    def by_channel_values(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return the gradients of gamma and beta, and their errors."""
        seen, e = self.seen(values_of(self.src)), np.moveaxis(values_of(self.diff), 3, 0)

        def forward(batch: Array, vary: str) -> Array:
            results = []
            for each in batch:
                gamma, beta = (each, self.beta) if vary == "gamma" else (self.gamma, each)
                results.append(normalized(seen, self.mean, self.variance, gamma, beta, self.epsilon, self.f))
            return np.moveaxis(np.stack(results), 4, 1)

        step = 2.0**-18
        found = []
        for vary in ("gamma", "beta"):
            x = getattr(self, vary).astype(np.float64)
            value, size = gradient(partial(forward, vary=vary), x, e, apart=(0,), step=step)
            # The mean's error is a small part of the spread; the error of a sigmoid's slope is that of its argument.
            total = np.abs(e).sum(axis=(1, 2, 3))
            found.append((value, (size + total) * 2.0**-20 + 1e-6 * np.abs(value)))
        return found[0], found[1]

    def by_source(self, forward: Callable[[Array], Array]) -> tuple[Array, Array]:
        x, e = values_of(self.src), values_of(self.diff)
        step = 2.0**-16 * self.spread
        if self.groups == 0:
            batched = over_batches(forward)
            value, size = gradient(batched, x, e, apart=(3,), step=step)
        else:
            # Images are independent of each other, and so are groups.
            split = (*x.shape[:3], self.groups, self.c // self.groups)

            def grouped(batch: Array) -> Array:
                result = over_batches(forward)(batch.reshape(len(batch), *x.shape))
                return result.reshape(*result.shape[:4], *split[3:])

            parts = gradient(grouped, x.reshape(split), e.reshape(*e.shape[:3], *split[3:]), apart=(0, 3), step=step)
            value, size = (part.reshape(x.shape) for part in parts)
        error = size * 4e-6 + np.abs(size).max() * 1e-6 + 1e-9
        return tuple(region(part, self.first, self.wanted) for part in (value, error))  # type: ignore[return-value]

    def common(self) -> dict[str, Any]:
        return {
            "gamma": self.gamma,
            "beta": self.beta,
            "mean": self.mean.ravel().astype(np.float32),
            "variance": self.variance.ravel().astype(np.float32),
            "exact": pairs(self.mean, self.variance) if self.has_pairs else None,
            "epsilon": self.epsilon,
            "neuron": self.f,
        }

    def gradient_fields(self) -> dict[str, Any]:
        start = (self.first[0] - self.start[0], self.first[1] - self.start[1])
        src = Operand(self.src, self.first, edge=self.edge)
        return {"diff_dst": Operand(self.diff, start), "src": src, "groups": self.groups, **self.common()}


def over_batches(forward: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Compute one batch at a time, since the statistics are those of a batch."""
    return lambda x: np.stack([forward(each) for each in x])


def smooth(seed: int, groups: int | None, channels: tuple[int, ...], far: bool = False) -> Normalization:
    for attempt in range(50):
        rng = np.random.default_rng(920000 + seed * 1000 + attempt)
        found = Normalization(rng, seed, groups, channels[seed % len(channels)], far)
        if not found.has_kink():
            return found
    raise ValueError(f"seed {seed} always has a kink")


def batch_rows(seed: int, far: bool = False) -> Iterator[Row]:
    """Yield gradients of batch normalization: the sums, then the source's."""
    p = smooth(seed, 0, (3, 16, 64, 1, 72, 4, 300, 8, 33, 520), far)
    if is_frozen := seed % 10 == 7:
        rng = np.random.default_rng(seed)
        p.mean = p.mean + rng.uniform(-1, 1, p.c)
        p.variance = rng.uniform(0.1, 2, p.c)
        p.mean, p.variance = (part.astype(np.float32).astype(np.float64) for part in (p.mean, p.variance))
        if p.has_kink():
            return
    by_gamma, by_beta = p.by_channel_values()
    name = f"{p.c} channels, {'far ' if far else ''}{seed}"
    fields = {"diff_dst": p.diff, "src": Operand(p.src, p.start, edge=p.edge), **p.common()}
    expected = {"diff_gamma": by_gamma, "diff_beta": by_beta}
    if adds := seed % 3 == 1:
        rng = np.random.default_rng(seed)
        for key, (value, error) in list(expected.items()):
            fields[key] = floats(rng, p.c)
            expected[key] = (value + fields[key], error + np.abs(value) * 2.0**-22)
    yield row("BatchMomentsGradient", name, {**fields, "adds": adds}, expected)

    value, error = p.by_source(p.constant if is_frozen else p.forward)
    fields = p.gradient_fields()
    fields |= {"diff_gamma": by_gamma[0].astype(np.float32), "diff_beta": by_beta[0].astype(np.float32)}
    fields["count"] = 0 if is_frozen else p.src.size // p.c
    yield row("NormalizeGradient", name, fields, {"diff_src": (value, error)}, "float16" if seed % 4 == 0 else "")


def image_row(seed: int, far: bool = False) -> Row:
    """Return a gradient of a normalization per image."""
    p = smooth(seed, None, (3, 16, 64, 1, 36, 4, 300, 8, 520), far)
    by_gamma, by_beta = p.by_channel_values()
    value, error = p.by_source(p.forward)
    expected = {"diff_src": (value, error), "diff_gamma": by_gamma, "diff_beta": by_beta}
    name = f"{p.groups} groups of {p.c}, {'far ' if far else ''}{seed}"
    return row("NormalizeGradient", name, p.gradient_fields(), expected, "float16" if seed % 4 == 0 else "")


def normalize_add_row(seed: int) -> Row:
    """A normalization, another image added, and bounds."""
    rng = np.random.default_rng(780000 + seed)
    plain, dtype = seed % 3 < 2, pick(rng, ("float16", "float32"))
    c, n = pick(rng, (8, 16, 72, 256) if plain else (1, 3, 12, 40)), whole(rng, 1, 3)
    h, w = whole(rng, 1, 33), whole(rng, 1, 9)
    shape = (n, h, w, c) if plain else (n, whole(rng, 1, h + 3), whole(rng, 1, w + 3), c)
    src = operand(rng, image(rng, shape, formats=dtype), h, w, plain)
    stored = image(rng, shape, formats=dtype)
    gamma, beta, mean = floats(rng, c), floats(rng, c, -1, 1), floats(rng, c, -1, 1)
    variance, epsilon = floats(rng, c, 0.5, 2), 1e-3
    fields: dict[str, Any] = {"gamma": gamma, "beta": beta, "mean": mean, "variance": variance, "epsilon": epsilon}
    if chance(rng, 2):
        fields["exact"] = np.stack([mean, variance], axis=1).ravel().astype(np.float64)
    low, high = (bound if chance(rng, 2) else None for bound in (-0.5, 0.75))
    fields |= {key: bound for key, bound in (("min", low), ("max", high)) if bound is not None}
    place = operand(rng, stored, h, w, plain)
    scale = gamma / np.sqrt(variance.astype(np.float64) + epsilon)
    known = (src.seen(h, w, c) - mean) * scale + beta

    def total() -> Array:
        return known + Operand(stored, place.start, edge=place.edge).seen(h, w, c)

    has_mask = plain and chance(rng, 2)
    if has_mask:  # no sum within rounding of a bound
        for bound in (low, high):
            near = np.abs(total() - (np.inf if bound is None else bound)) < 0.02
            stored[near] += np.asarray(0.25, stored.dtype)
    value = total()
    error = 2.0**-20 * (np.abs(scale) * (np.abs(src.seen(h, w, c)) + np.abs(mean)) + np.abs(beta) + np.abs(value) + 2)
    expected: dict[str, Any] = {"dst": (np.clip(value, low, high), error)}
    formats = {"dst": dtype}
    if has_mask:
        expected["mask"] = (value > (-np.inf if low is None else low)) & (value < (np.inf if high is None else high))
        formats["mask"] = "unorm8"
    fields |= {"src": src, "addend": Operand(stored, place.start, edge=place.edge)}
    return row("NormalizeAdd", str(seed), fields, expected, **formats)


def masked_sum_moments_row(seed: int, shape: tuple[int, ...] = ()) -> Row:
    """A masked sum of two images, and the sums of its values for the gradient of a normalization."""
    rng = np.random.default_rng(787000 + seed)
    plain, dtype = bool(shape) or seed % 4 < 3, pick(rng, ("float16", "float32"))
    c, n = pick(rng, (8, 16, 72, 256) if plain else (1, 3, 12, 40)), whole(rng, 1, 3)
    shape = shape or (n, whole(rng, 1, 33), whole(rng, 1, 9), c)
    n, h, w, c = shape
    stored = shape if plain else (n, whole(rng, 1, h + 3), whole(rng, 1, w + 3), c)
    a, b = (operand(rng, image(rng, stored, formats=dtype), h, w, plain) for _ in range(2))
    src = image(rng, shape, formats=dtype)
    fields: dict[str, Any] = {"src0": a, "src1": b, "src": Operand(src), "scale": pick(rng, (1.0, 1.0, -0.5, 2.0))}
    kept: Any = 1
    if seed % 3:  # bytes, or a rectified image
        kept = rng.integers(0, 2, shape)
        mask = (kept * 255).astype(np.uint8) if seed % 3 == 1 else (kept * floats(rng, shape, 0.25, 2)).astype(dtype)
        fields["mask"] = {"view": mask}
    mean, variance, epsilon = floats(rng, c, -1, 1), floats(rng, c, 0.5, 2), 1e-3
    fields |= {"gamma": floats(rng, c), "beta": floats(rng, c, -1, 1), "mean": mean, "variance": variance}
    fields["epsilon"] = epsilon
    if chance(rng, 2):
        fields["exact"] = pairs(mean, variance).astype(np.float64)
    seen = [each.seen(h, w, c) for each in (a, b)]
    value = (fields["scale"] * (seen[0] + seen[1]) * kept).astype(dtype).astype(np.float64)
    size = np.abs(fields["scale"]) * (np.abs(seen[0]) + np.abs(seen[1]))
    z = (values_of(src) - mean) / np.sqrt(variance.astype(np.float64) + epsilon)
    expected = {"dst": (value, size * 2.0**-22)}
    for key, terms in (("diff_gamma", value * z), ("diff_beta", value)):
        total = terms.sum(axis=(0, 1, 2))
        expected[key] = (total, 2e-6 * np.abs(terms).sum(axis=(0, 1, 2)) + 1e-12)
        if seed % 2:
            fields[key] = floats(rng, c)
            expected[key] = (total + fields[key], expected[key][1] + (np.abs(total) + 1) * 2.0**-22)
    fields["adds"] = bool(seed % 2)
    return row("MaskedSumMoments", f"{c} channels, {seed}", fields, expected, dst=dtype)


def rows() -> Iterator[Row]:
    yield from map(lrn_row, range(200))
    yield from map(lrn_gradient_row, range(150))
    yield many_lrn_gradients()
    yield from map(normalize_row, range(200))
    yield from map(normalize_add_row, range(60))
    yield from map(masked_sum_moments_row, range(60))
    for seed, shape in enumerate([(4, 56, 56, 64), (2, 28, 28, 512), (3, 14, 14, 1024)]):
        yield masked_sum_moments_row(1000 + seed, shape)
    yield from photographs()
    yield from map(moments_row, range(80))
    yield from many_pixels()
    yield from batches()
    yield from large_images()
    for seed in range(90):
        yield from batch_rows(seed)
    yield from map(image_row, range(90))
    for seed in range(4):
        yield from batch_rows(seed, far=True)
        yield image_row(seed, far=True)
