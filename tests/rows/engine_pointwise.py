# SPDX-License-Identifier: Apache-2.0
"""Rows of element-wise problems: activations, arithmetic, dropout, gradients (engine/problem/pointwise.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle.MPSCNNConvolution import tap
from oracle.MPSCNNDropout import mask as dropout_mask
from oracle.MPSCNNMath import COMPARISONS, OPERATIONS, arithmetic, compare, magnitude
from oracle.MPSCNNNeuron import NUMBERS, TYPES

from .engine import (
    EDGES,
    Alias,
    Array,
    Operand,
    Random,
    activate,
    chance,
    floats,
    image,
    neuron_slope,
    operand,
    pick,
    random_neuron,
    real,
    row,
    values_of,
    whole,
)
from .finite_differences import gradient, over_images
from .row_file import Row

MANY = "float32 float32 float16 unorm8 unorm16"
RESULTS = ("", "float16", "unorm8", "unorm16")
INF, NAN = float("inf"), float("nan")

# ------------------------------------------------------------------------------------------------------- activations


def neuron_row(seed: int) -> Row:
    rng = np.random.default_rng(200000 + seed)
    name = TYPES[seed % 16][0]
    c = pick(rng, (1, 3, 4, 16, 37, 512, 1500))
    f = random_neuron(rng, name, c)
    low, high = (0.0, 6.0) if name == "logarithm" else (-6.0, 6.0)
    if seed // 16 == 3:
        low, high = low * 20, high * 20
        if name == "exponential":
            f["a"] = 0.5
    in_place = seed // 16 == 5
    formats = "float32" if seed < 128 else "float16 unorm8 unorm16"
    src = image(rng, (whole(rng, 1, 2), whole(rng, 1, 20), whole(rng, 1, 9), c), low, high, formats)
    x = values_of(src)
    value = activate(f, x)
    # Two units in the last place; four for functions with several roundings after their exponential.
    error = np.abs(value) * (2.0**-21 if name in ("gelu", "softplus") else 2.0**-22)
    if name in ("linear", "hard_sigmoid"):  # without multiply-add, the product is rounded separately
        error = error + np.abs(f["a"] * x) * 2.0**-24
    fields = {"src": src, "neuron": f, "dst": Alias("src") if in_place else None}
    return row("Neuron", f"{name} {seed}", fields, {"dst": (value, error)}, "" if in_place else pick(rng, RESULTS))


# Type, a, b, c, x, result.
ENDS = [
    ("sigmoid", 0, 0, 0, (-1000, 1000), (0, 1)),
    ("softplus", 1, 1, 0, (1e10, -1e10, -50), (1e10, 0, np.float32(1.9287498479639178e-22))),
    ("tanh", 1, 1, 0, (INF, -INF, 1e-30), (1, -1, np.float32(1e-30))),
    ("elu", 2, 0, 0, (-INF,), (-2,)),
    ("elu", 1, 0, 0, (-1e-30,), (np.float32(-1e-30),)),
    ("exponential", 1, 0, -1, (INF, -INF), (INF, 0)),
    ("exponential", 1, 0, 0, (2,), (0,)),
    ("exponential", 1, 0, -2, (3,), (-8,)),
    ("logarithm", 1, 0, -1, (0, INF, -1), (-INF, INF, NAN)),
    ("power", 1, 0, 3, (-2,), (-8,)),
    ("power", 1, 0, 2, (-3, 0), (9, 0)),
    ("power", 1, 0, 0.5, (-2,), (NAN,)),
    ("power", 1, 0, -1, (0,), (INF,)),
    ("power", 1, 0, 0, (0,), (1,)),
    ("gelu", 0, 0, 0, (1e4, -1e4), (1e4, 0)),
]
SLOPES = [
    ("relu", 0, 0, 0, (0,), (1,)),
    ("relu", 0.5, 0, 0, (-1,), (0.5,)),
    ("elu", 2, 0, 0, (0, -INF), (1, 0)),
    ("absolute", 0, 0, 0, (0,), (0,)),
    ("hard_sigmoid", 0.25, 0.5, 0, (-2, 2, 2.001, INF), (0.25, 0.25, 0, 0)),  # both ends belong to the linear part
    ("relun", 0, 6, 0, (6, 5.999), (0, 1)),
    ("relun", -1, 2, 0, (-3,), (0,)),
    ("relun", 1, -1, 0, (-3,), (1,)),
    ("sigmoid", 0, 0, 0, (1000, -1000), (0, 0)),
    ("tanh", 1, 1, 0, (INF, -INF), (0, 0)),
    ("softplus", 1, 1, 0, (1e10, -1e10), (1, 0)),
    ("gelu", 0, 0, 0, (INF, -INF, 0), (1, 0, 0.5)),
    ("power", 2, 0, 1, (0,), (2,)),
    ("power", 2, 0, 0, (0,), (0,)),
    ("logarithm", 1, 0, -1, (0,), (INF,)),
]


def ends() -> Iterator[Row]:
    """Large arguments, kinks, infinities and NaN, at every position of a vector."""
    every = [(name, 1, 0.5, 2, (NAN,), (NAN,)) for name, _ in TYPES if name != "hard_sigmoid"]
    for kind, table in (("Neuron", ENDS + every), ("NeuronGradient", SLOPES)):
        for name, a, b, c, xs, results in table:
            src = np.repeat(np.array(xs, np.float32).reshape(1, 1, -1, 1), 19, axis=3)
            f = {"type": NUMBERS[name], "a": float(a), "b": float(b), "c": float(c)}
            wanted = np.broadcast_to(np.array(results, np.float64).reshape(1, 1, -1, 1), src.shape)
            fields: dict[str, Any] = {"src": src, "neuron": f}
            path = "dst"
            if kind == "NeuronGradient":
                fields, path = {"diff_dst.view": np.ones_like(src), "src.view": src, "neuron": f}, "diff_src"
            yield row(kind, f"{name} {a} {b} {c} of {xs}", fields, {path: wanted})


def neuron_gradient_row(seed: int) -> Row:
    rng = np.random.default_rng(400000 + seed)
    name = TYPES[seed % 16][0]
    c, n = pick(rng, (1, 3, 4, 16, 37, 512, 1500)), whole(rng, 1, 2)
    h, w = whole(rng, 1, 12), whole(rng, 1, 9)
    plain, formats = seed // 16 % 2 == 0, "float32" if seed < 128 else MANY
    f = random_neuron(rng, name, c)
    if name == "power":
        f["c"] = pick(rng, (0.0, 1.0, 2.0, 3.0))
    low, high = (0.5, 6.0) if name == "logarithm" else (-6.0, 6.0)
    shape = (n, h, w, c) if plain else (n, whole(rng, 1, h + 3), whole(rng, 1, w + 3), c)
    diff = operand(rng, image(rng, shape, formats=formats), h, w, plain, repeats=True)
    src = operand(rng, image(rng, shape, low, high, formats), h, w, plain, repeats=True)
    src = Operand(src.view, src.start, src.repeat)  # clamped ones: see clamped_row()
    x, e = src.seen(h, w, c), diff.seen(h, w, c)
    step = 2.0**-18
    value, _ = gradient(lambda v: activate(f, v), x, e, apart=(0, 1, 2, 3), step=step)
    # At a kink, the slope is that of the formula.
    kinks = np.abs(neuron_slope(f, x + 3 * step) - neuron_slope(f, x - 3 * step)) > 1e-4
    if name == "softsign":
        kinks = np.abs(x) < 3 * step
    if name in ("relu", "absolute", "hard_sigmoid", "elu", "prelu", "relun", "softsign"):
        value = np.where(kinks, e * neuron_slope(f, x), value)
    composed = name in ("gelu", "softplus", "sigmoid")
    # The two terms of gelu's slope cancel.
    error = np.abs(value) * (2.0**-20 if composed else 2.0**-21) + np.abs(e) * 2.0 ** (-22 if name == "gelu" else -24)
    fields = {"diff_dst": diff, "src": src, "neuron": f}
    return row("NeuronGradient", f"{name} {seed}", fields, {"diff_src": (value, error)}, pick(rng, RESULTS))


# -------------------------------------------------------------------------------------------------------- arithmetic


def bounds(rng: Random) -> tuple[float | None, float | None]:
    return -0.5 if chance(rng, 2) else None, 0.75 if chance(rng, 2) else None


def binary_row(seed: int) -> Row:
    rng = np.random.default_rng(300000 + seed)
    name = list(OPERATIONS)[seed % 4]
    plain, large = seed // 4 % 4 == 0, seed // 4 % 30 == 0
    c, n = pick(rng, (1, 3, 4, 16, 37, 512, 1500)), whole(rng, 1, 3)
    h, w = whole(rng, 1, 30 if large else 9), whole(rng, 1, 20 if large else 9)
    formats = "float16" if seed // 4 % 5 == 0 else MANY  # halves have their own implementation

    def source() -> Operand:
        shape = (n, h, w, c) if plain else (n, whole(rng, 1, h + 3), whole(rng, 1, w + 3), c)
        return operand(rng, image(rng, shape, formats=formats), h, w, plain, repeats=True)

    a, b = source(), source()
    scales, bias = (1.0, 1.0), 0.0
    if not chance(rng, 3):
        scales, bias = (real(rng, -2, 2), real(rng, -2, 2)), real(rng, -1, 1)
    low, high = bounds(rng)
    x, y = a.seen(h, w, c), b.seen(h, w, c)
    value = arithmetic(name, x, y, scales, bias, low, high)
    error = 5 * 2.0**-24 * magnitude(name, x, y, scales, bias)  # each of five operations rounds once
    function: dict[str, Any] = {"operation": seed % 4, "scale0": scales[0], "scale1": scales[1], "bias": bias}
    function |= {key: bound for key, bound in (("min", low), ("max", high)) if bound is not None}
    fields = {"src0": a, "src1": b, "function": function}
    return row("Binary", f"{name} {seed}", fields, {"dst": (value, error)}, pick(rng, RESULTS))


def gates() -> Iterator[Row]:
    """Yield products of images and one pixel of each, in either order."""
    for seed, c in enumerate((1, 8, 16, 24, 37, 144, 672, 1152)):
        rng = np.random.default_rng(770000 + seed)
        n, h, w = whole(rng, 1, 3), whole(rng, 1, 15), whole(rng, 1, 15)
        place = (whole(rng, 0, 1), whole(rng, 0, 2))
        image_of = Operand(floats(rng, (n, h + 2, w + 1, c)), start=(2, 1))
        gate = Operand(floats(rng, (n, 2, 3, c)), start=place, repeat=(True, True, False))
        a, b = (gate, image_of) if seed % 2 else (image_of, gate)
        function: dict[str, Any] = {"operation": 2}
        scales, bias, low, high = (1.0, 1.0), 0.0, None, None
        if seed >= 4:
            scales, bias, low, high = (0.5, -1.5), 0.25, -0.5, 0.75
            function |= {"scale0": scales[0], "scale1": scales[1], "bias": bias, "min": low, "max": high}
        x, y = a.seen(h, w, c), b.seen(h, w, c)
        value = arithmetic("Multiply", x, y, scales, bias, low, high)
        error = 5 * 2.0**-24 * magnitude("Multiply", x, y, scales, bias)
        yield row(
            "Binary", f"gates {c}", {"src0": a, "src1": b, "function": function}, {"dst": (value, error)}, "float16"
        )


def masks() -> Iterator[Row]:
    """Masks are 1 where the value is within the bounds."""
    for seed in range(20):
        rng = np.random.default_rng(740000 + seed)
        shape = (2, whole(rng, 1, 6), whole(rng, 1, 6), pick(rng, (1, 3, 37, 1500)))
        a, b = floats(rng, shape), floats(rng, shape)
        a[0, 0, 0, 0] = b[0, 0, 0, 0] = 1  # equal to a bound: masked
        product = (a * b).astype(np.float64)
        wanted = {"dst": np.clip(product, -0.5, 1), "mask": (product > -0.5) & (product < 1)}
        fields = {"src0.view": a, "src1.view": b, "function": {"operation": 2, "min": -0.5, "max": 1.0}}
        yield row("Binary", f"mask {seed}", fields, wanted, "float16", mask="unorm8")


def in_place_row(seed: int) -> Row:
    """The result replaces one source, or both."""
    rng = np.random.default_rng(760000 + seed)
    name = list(OPERATIONS)[seed % 3]
    shape = (whole(rng, 1, 3), whole(rng, 1, 30), whole(rng, 1, 20), pick(rng, (1, 3, 4, 37, 512)))
    kind = np.float16 if chance(rng, 3) else np.float32
    a, b = floats(rng, shape).astype(kind), floats(rng, shape).astype(kind)
    which = seed // 3 % 3
    fields: dict[str, Any] = {"src0.view": a, "src1.view": Alias("src0.view") if which == 2 else b}
    fields |= {"dst": Alias(("src0.view", "src1.view", "src0.view")[which])}
    fields["function"] = {"operation": seed % 3, "scale0": 0.5, "bias": 0.25}
    x, y = a.astype(np.float64), (a if which == 2 else b).astype(np.float64)
    value = arithmetic(name, x, y, (0.5, 1.0), 0.25)
    error = 5 * 2.0**-24 * magnitude(name, x, y, (0.5, 1.0), 0.25)
    return row("Binary", f"{name} in place {seed}", fields, {"dst": (value, error)})


def comparison_row(seed: int) -> Row:
    rng = np.random.default_rng(750000 + seed)
    name = COMPARISONS[seed % 6]
    plain = seed // 6 % 2 == 0
    c, n, h, w = pick(rng, (1, 3, 4, 16, 37, 512)), whole(rng, 1, 3), whole(rng, 1, 9), whole(rng, 1, 9)
    threshold = 0.0 if chance(rng, 2) else pick(rng, (0.25, 0.5))

    def source() -> Operand:  # few different values: many are equal
        shape = (n, h, w, c) if plain else (n, whole(rng, 1, h + 3), whole(rng, 1, w + 3), c)
        values = (rng.integers(-4, 5, shape) / 4).astype(pick(rng, (np.float32, np.float32, np.float16)))
        values.flat[rng.integers(values.size)] = pick(rng, (NAN, INF, -INF, 0))
        return operand(rng, values, h, w, plain, repeats=True)

    a, b = source(), source()
    value = compare(name, a.seen(h, w, c), b.seen(h, w, c), threshold)
    function = {"operation": len(OPERATIONS) + seed % 6, "threshold": threshold}
    fields = {"src0": a, "src1": b, "function": function}
    return row("Binary", f"{name} {threshold} {seed}", fields, {"dst": value}, pick(rng, RESULTS))


def quotients() -> Iterator[Row]:
    a = np.array([1, 0, NAN, -1, 5], np.float32).reshape(1, 1, 5, 1)
    b = np.array([0, 0, 1, 0, 1], np.float32).reshape(1, 1, 5, 1)
    for function, wanted in (({}, (INF, NAN, NAN, -INF, 5)), ({"min": 0.0, "max": 4.0}, (4, NAN, NAN, 0, 4))):
        fields = {"src0.view": a, "src1.view": b, "function": {"operation": 3, **function}}
        yield row("Binary", f"quotients {function}", fields, {"dst": np.array(wanted, np.float64).reshape(a.shape)})


def binary_gradient_row(seed: int) -> Row:
    rng = np.random.default_rng(730000 + seed)
    plain = seed % 3 == 0
    c, n = pick(rng, (1, 3, 4, 16, 37, 150, 512)), whole(rng, 1, 3)
    h, w = whole(rng, 1, 7), whole(rng, 1, 7)
    has_other, has_mask = chance(rng, 2), chance(rng, 3)
    sums = [bool(seed % 2 and chance(rng, odds)) for odds in (2, 2, 3)]
    formats = "float32" if seed < 100 else MANY
    shape = (n, h, w, c) if plain else (n, whole(rng, 1, h + 3), whole(rng, 1, w + 3), c)
    diff = operand(rng, image(rng, shape, formats=formats), h, w, plain)
    other = operand(rng, image(rng, shape, formats=formats), h, w, plain, repeats=True) if has_other else None
    mask = rng.integers(0, 2, (n, h, w, c)).astype(np.uint8) * np.uint8(255) if has_mask else None
    scale = real(rng, -2, 2) if chance(rng, 2) else 1.0
    factor = scale * (other.seen(h, w, c) if other else np.ones((n, h, w, c)))
    factor = factor * (1 if mask is None else mask > 0)
    source = tuple(1 if summed else size for summed, size in zip(sums, (h, w, c), strict=True))
    # The forward kernel repeats its source along the axes that are summed here.
    value, size = gradient(
        lambda x: np.broadcast_to(x, (len(x), n, h, w, c)) * factor,
        np.zeros((n, *source)),
        diff.seen(h, w, c),
        apart=tuple(axis for axis in range(4) if axis == 0 or not sums[axis - 1]),
        linear=True,
    )
    fields = {
        "diff_dst": diff,
        "other": other,
        "mask": None if mask is None else {"view": mask},
        **{f"sum_{axis}": size for axis, size, summed in zip("hwc", (h, w, c), sums, strict=True) if summed},
        "scale": scale,
    }
    return row("BinaryGradient", str(seed), fields, {"diff_src": (value, size * 1e-6)}, pick(rng, RESULTS))


def masked_infinity() -> Iterator[Row]:
    """A masked gradient is 0 even if the other source is infinite."""
    for sums in (False, True):
        fields = {
            "diff_dst.view": np.ones((1, 1, 2, 1), np.float32),
            "other.view": np.array([INF, 3], np.float32).reshape(1, 1, 2, 1),
            "mask.view": np.array([0, 255], np.uint8).reshape(1, 1, 2, 1),
            "sum_w": 2 if sums else 1,
        }
        wanted = np.array([3.0] if sums else [0.0, 3.0]).reshape(1, 1, -1, 1)
        yield row("BinaryGradient", f"masked infinity {sums}", fields, {"diff_src": wanted})


# ----------------------------------------------------------------------------------------------------------- dropout


def kept(fields: dict[str, Any], n: int) -> Array:
    """Return the masks of n images, for all extents of the mask."""
    shape = (fields["h"], fields["w"], fields["c"])
    images = [dropout_mask(shape, fields["seed"], fields["image"] + i, fields["keep"]) for i in range(n)]
    return np.stack(images).astype(np.float64)


def dropout_row(seed: int) -> Row:
    rng = np.random.default_rng(950000 + seed)
    plain, large = seed % 3 == 0, seed % 15 == 0
    c, n = pick(rng, (1, 3, 4, 37, 64, 512, 1500)), whole(rng, 1, 3)
    h, w = whole(rng, 1, 50 if large else 7), whole(rng, 1, 30 if large else 9)
    shape = (n, h, w, c) if plain else (n, whole(rng, 1, h + 2), whole(rng, 1, w + 2), c)
    src = operand(rng, image(rng, shape, formats=MANY), h, w, plain)
    mask = {
        "seed": int(rng.integers(1 << 40)),
        "image": int(rng.integers(1 << 40)),
        "h": 1 if chance(rng, 3) else h,
        "w": 1 if chance(rng, 3) else w,
        "c": 1 if chance(rng, 3) else c,
        "keep": real(rng, 0.1, 0.9),
    }
    start = [0, 0]
    if not plain and chance(rng, 2):  # a part of the mask; 0 beyond it
        start = [0 if mask[axis] == 1 else whole(rng, -3, 3) for axis in "hw"]
    rows = np.zeros(h, int) if mask["h"] == 1 else start[0] + np.arange(h)
    columns = np.zeros(w, int) if mask["w"] == 1 else start[1] + np.arange(w)
    value = src.seen(h, w, c) * tap(kept(mask, n), rows, columns, "zero") / mask["keep"]
    fields = {"src": src, "mask": mask, "start_h": start[0], "start_w": start[1]}
    expected = {"dst": (value, np.abs(value) * 2.0**-22)}
    return row("Dropout", f"{h} x {w} x {c}, {seed}", fields, expected, pick(rng, RESULTS))


# --------------------------------------------------------------------------------------------------- clamped sources


class Axis:
    """A forward kernel along one axis: result v reads the source pixel v + offset, clamped to the source. Pixel 0 of
    the gradient is the source's pixel `start`.
    """

    def __init__(self, rng: Random, may_repeat: bool) -> None:
        self.size, self.results = whole(rng, 1, 7), whole(rng, 1, 9)
        self.offset = 0 if chance(rng, 5) else whole(rng, -12, 12)
        self.start = 0 if chance(rng, 2) else whole(rng, -3, 3)
        self.written = self.size if chance(rng, 2) else whole(rng, 1, 9)
        self.repeats = may_repeat and chance(rng, 4)
        if self.repeats:  # all results read one pixel
            self.size = self.written = 1
            self.start, self.results = 0, self.results + 1

    def shift(self) -> int:
        """Return the offset from the gradient's pixels to the results."""
        return 0 if self.repeats else self.start - self.offset

    def seen(self) -> Any:
        return np.clip(np.arange(self.results) + self.offset, 0, self.size - 1)


def clamped_row(seed: int) -> Row:
    """Gradients of results that read clamped out-of-bounds pixels."""
    kind = ("NeuronGradient", "BinaryGradient", "Dropout")[seed % 3]
    rng = np.random.default_rng(770000 + seed)
    axes = [Axis(rng, kind == "BinaryGradient") for _ in "hw"]
    n, c = whole(rng, 1, 2), pick(rng, (1, 3, 37, 150, 512))
    formats = "float32" if seed < 120 else MANY
    size = (axes[0].size, axes[1].size)
    results = (axes[0].results, axes[1].results)
    diff = image(rng, (n, *results, c), formats=formats)
    shifts = (axes[0].shift(), axes[1].shift())
    fields: dict[str, Any] = {"diff_dst": Operand(diff, shifts)}
    source = {"h": size[0], "w": size[1], "start_h": axes[0].start, "start_w": axes[1].start}
    x, path, sums_c = np.zeros((n, *size, c)), "diff_src", False

    def nearest(v: Array) -> Array:
        return v[:, axes[0].seen()][:, :, axes[1].seen()]

    if kind == "NeuronGradient":
        src = image(rng, (n, *size, c), formats=formats)
        x = values_of(src)
        x = np.where(np.abs(x) < 0.01, 0.5, x).astype(src.dtype if src.dtype.kind == "f" else np.float32)
        src, x = (x, x.astype(np.float64)) if src.dtype.kind == "f" else (src, values_of(src) + 1e-3)
        f = {"type": NUMBERS["relu"], "a": 0.25, "b": 0.0, "c": 0.0}
        fields |= {"src": Operand(src, (axes[0].start, axes[1].start), edge="clamp"), "neuron": f}
        value, magnitudes = gradient(
            over_images(lambda v: activate(f, nearest(v))), x, values_of(diff), apart=(0, 3), step=2.0**-12
        )
    elif kind == "BinaryGradient":
        sums_c = chance(rng, 4)
        factor: Array | float = -1.5
        if chance(rng, 2):
            other = image(rng, (n, *results, c), formats=formats)
            at = Operand(
                other,
                (whole(rng, -2, 2), whole(rng, -2, 2)),
                (chance(rng, 4), chance(rng, 4), chance(rng, 4)),
                pick(rng, EDGES),
            )
            factor = factor * at.seen(*results, c)
            start = tuple(at.start[i] + (0 if at.repeat[i] else shifts[i]) for i in (0, 1))
            fields["other"] = Operand(other, start, at.repeat, at.edge)  # type: ignore[arg-type]
        if chance(rng, 3):
            mask = rng.integers(0, 2, (n, *results, c)).astype(np.uint8) * np.uint8(255)
            factor = factor * (mask > 0)
            fields["mask"] = Operand(mask, shifts)
        sums = {f"sum_{name}": axis.results for name, axis in zip("hw", axes, strict=True) if axis.repeats}
        fields |= {"scale": -1.5, "source": source, **sums}
        if sums_c:
            fields["sum_c"] = c
            x = x[..., :1]

        def repeated(v: Array) -> Array:
            wide = nearest(v.reshape(-1, *v.shape[2:])).reshape(len(v), n, *results, -1)
            return np.broadcast_to(wide, (len(v), n, *results, c)) * factor

        apart = (0,) if sums_c else (0, 3)
        value, magnitudes = gradient(repeated, x, values_of(diff), apart=apart, linear=True)
    else:
        fields["src"] = fields.pop("diff_dst")
        mask_fields = {
            "seed": 9,
            "image": seed,
            "h": 1 if chance(rng, 4) else results[0],
            "w": 1 if chance(rng, 4) else results[1],
            "c": 1 if chance(rng, 4) else c,
            "keep": 0.75,
        }
        fields |= {"mask": mask_fields, "source": source}
        fields |= {f"start_{axis}": shifts[i] for i, axis in enumerate("hw") if mask_fields[axis] != 1}
        masks_of = np.broadcast_to(kept(mask_fields, n), (n, *results, c)) / 0.75
        path = "dst"

        def dropped(v: Array) -> Array:
            return nearest(v.reshape(-1, *v.shape[2:])).reshape(len(v), n, *results, c) * masks_of

        value, magnitudes = gradient(dropped, x, values_of(diff), apart=(0, 3), linear=True)
    # The written source pixels, and 0 beyond the source.
    rows, columns = (axis.start + np.arange(axis.written) for axis in axes)
    value, magnitudes = (tap(part, rows, columns, "zero") for part in (value, magnitudes))
    name = f"clamped {results} of {size}, {seed}"
    return row(kind, name, fields, {path: (value, magnitudes * 3e-6)}, pick(rng, RESULTS))


def masked_sum_row(seed: int) -> Row:
    rng = np.random.default_rng(785000 + seed)
    plain, formats = seed % 3 < 2, MANY if seed % 4 == 0 else pick(rng, ("float16", "float32"))
    c, n = pick(rng, (1, 3, 8, 37, 512)), whole(rng, 1, 3)
    h, w = whole(rng, 1, 30), whole(rng, 1, 9)
    shape = (n, h, w, c) if plain else (n, whole(rng, 1, h + 3), whole(rng, 1, w + 3), c)
    a, b = (operand(rng, image(rng, shape, formats=formats), h, w, plain) for _ in range(2))
    mask = None if chance(rng, 4) else rng.integers(0, 2, (n, h, w, c)).astype(np.uint8) * np.uint8(255)
    if mask is not None and chance(rng, 2):  # a rectified image
        mask = mask * floats(rng, mask.shape, 0.25, 2)
    scale = real(rng, -2, 2) if chance(rng, 2) else 1.0
    kept = 1 if mask is None else mask > 0
    value = scale * (a.seen(h, w, c) + b.seen(h, w, c)) * kept
    size = abs(scale) * (np.abs(a.seen(h, w, c)) + np.abs(b.seen(h, w, c)))
    fields = {"src0": a, "src1": b, "mask": None if mask is None else {"view": mask}, "scale": scale}
    return row("MaskedSum", str(seed), fields, {"dst": (value, size * 2.0**-22)}, pick(rng, RESULTS))


def rows() -> Iterator[Row]:
    yield from map(neuron_row, range(256))
    yield from ends()
    yield from map(neuron_gradient_row, range(256))
    yield from map(binary_row, range(240))
    yield from map(comparison_row, range(120))
    yield from map(in_place_row, range(36))
    for part in (gates, masks, quotients, masked_infinity):
        yield from part()
    yield from map(binary_gradient_row, range(240))
    yield from map(masked_sum_row, range(60))
    yield from map(dropout_row, range(90))
    yield from map(clamped_row, range(300))
