# SPDX-License-Identifier: Apache-2.0
"""Rows of products of matrices and of random matrices (engine/problem/product.hpp, random.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle.MPSMatrixMultiplication import product
from oracle.MPSMatrixRandom import BITS, DISTRIBUTIONS, random_values

from .engine import Alias, Array, Random, chance, image, pick, real, row, values_of, whole
from .row_file import Row

FORMATS = "float32 float32 float16"

# ---------------------------------------------------------------------------------------------------------- products


def rows_of(x: Array) -> Array:
    """Return images as matrices: a row for each pixel."""
    return x.reshape(len(x), -1, x.shape[3])


def split(rng: Random, count: int) -> tuple[int, int]:
    """Return a height and a width of so many pixels."""
    height = pick(rng, [size for size in range(1, count + 1) if count % size == 0])
    return height, count // height


def product_row(seed: int) -> Row:
    rng = np.random.default_rng(860000 + seed)
    n, large = whole(rng, 1, 3), seed % 15 == 0
    m, k, columns = (whole(rng, 1, 70 if large else 12) for _ in range(3))
    if seed % 20 == 7:
        k, m, columns = whole(rng, 1024, 2500), whole(rng, 1, 6), whole(rng, 1, 6)
    transposes = chance(rng, 2), chance(rng, 2)
    symmetric = seed % 6 == 5
    if symmetric:
        columns, transposes = k, (transposes[0], False)
        if k > 300:
            columns = k = 40
    a_size, b_size = ((k, m) if transposes[0] else (m, k)), ((columns, k) if transposes[1] else (k, columns))
    a = image(rng, (n, *split(rng, a_size[0]), a_size[1]), formats=FORMATS)
    b = image(rng, (n, *split(rng, b_size[0]), b_size[1]), formats=FORMATS)
    alpha, beta = (real(rng, -2, 2), real(rng, -2, 2)) if chance(rng, 2) else (1.0, 1.0)
    shape = (n, *split(rng, m), columns)
    c = image(rng, shape, formats=FORMATS) if chance(rng, 2) else None
    fields: dict[str, Any] = {
        "a": a,
        "b": b,
        "c": c,
        "transpose_a": transposes[0],
        "transpose_b": transposes[1],
        "symmetric_b": symmetric,
        "alpha": alpha,
        "beta": beta,
    }
    in_place = c is not None and chance(rng, 2)
    if in_place:
        fields["dst"] = Alias("c")
    addend = None if c is None else rows_of(values_of(c))
    right = rows_of(values_of(b))
    if symmetric:
        right = right + right.transpose(0, 2, 1)
    left = rows_of(values_of(a))
    value = product(left, right, addend, *transposes, alpha, beta)
    size = product(
        np.abs(left), np.abs(right), None if addend is None else np.abs(addend), *transposes, abs(alpha), abs(beta)
    )
    error = size * 2.0**-22 * max(1.0, np.sqrt(k) / 4)
    name = f"{m} x {columns} of {k}, {seed}"
    expected = {"dst": (value.reshape(shape), error.reshape(shape))}
    return row("Product", name, fields, expected, "" if in_place else pick(rng, ("", "float16")))


# ------------------------------------------------------------------------------------------------------------ random


def random_row(seed: int) -> Row:
    rng = np.random.default_rng(870000 + seed)
    kind = DISTRIBUTIONS[seed % 3]
    shape = (whole(rng, 1, 3), whole(rng, 1, 9), whole(rng, 1, 40))
    if seed in (3, 4):
        shape = (1, 1, 40000) if seed == 3 else (1, 300, 200)
    low, high = (0.0, 1.0) if chance(rng, 2) or kind != "normal" else (real(rng, 0, 0.4), real(rng, 0.6, 1))
    values = {
        "distribution": DISTRIBUTIONS.index(kind),
        "seed": int(rng.integers(1 << 62)),
        "first": 0 if chance(rng, 2) else int(rng.integers(1 << 40)),
        "stream": whole(rng, 0, 1),
        "mean": real(rng, -3, 3),
        "deviation": real(rng, 0.1, 4),
        "low": low,
        "high": high,
    }
    values |= {"min": real(rng, -3, 0), "max": real(rng, 0.1, 5)} if kind == "uniform" else {"min": -1e3, "max": 1e3}
    if kind == "normal" and chance(rng, 3):
        values |= {"min": -0.25, "max": 0.5}
    value = random_values(int(np.prod(shape)), **values).reshape(shape)
    error = np.abs(value) * 2.0**-22 + 1e-7 if kind == "normal" else 0.0
    fields = {"matrices": shape[0], "rows": shape[1], "columns": shape[2], "values": values}
    if kind == BITS:
        with np.errstate(invalid="ignore"):  # some words are signaling NaN
            value = value.astype(np.uint32).view(np.float32).astype(np.float64)
    return row("Random", f"{kind} {shape} {seed}", fields, {"dst": (value, error)})


def rows() -> Iterator[Row]:
    yield from map(product_row, range(240))
    yield from map(random_row, range(90))
