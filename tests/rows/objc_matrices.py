# SPDX-License-Identifier: Apache-2.0
"""Rows of kernels on matrices, for tests/objc/rows_test.mm; settings as in objc_places.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle.MPSMatrixMultiplication import product

from .objc_places import called, properties, random
from .row_file import Row

PRODUCT = "encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:"
ON_VECTOR = "encodeToCommandBuffer:inputMatrix:inputVector:resultVector:"
INIT = "initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:interiorColumns:alpha:beta: "
KERNEL = "MPSMatrixMultiplication"


def multiplied(name: str, init: str, a: Any, b: Any, c: Any, value: Any, **settings: Any) -> Row:
    words = "matrix:a matrix:b matrix:c"
    made = called(name, KERNEL, init, PRODUCT, words, {"a": a, "b": b, "c": c}, {"matrix:c": value}, **settings)
    made.settings["no_twin"] = True  # a second call would read its own result
    return made


def products() -> Iterator[Row]:
    for count, rows, columns, terms in ((1, 5, 7, 6), (3, 4, 4, 9), (1, 1, 1, 1), (1, 130, 70, 260)):
        for transposes in ((0, 0), (0, 1), (1, 0), (1, 1)):
            a = random(count, *((terms, rows) if transposes[0] else (rows, terms)))
            b = random(count, *((columns, terms) if transposes[1] else (terms, columns)), seed=1)
            c = random(count, rows, columns, seed=2)
            given = [each.astype(np.float64) for each in (a, b, c)]
            for alpha, beta in ((1, 0), (0.5, -2)):
                init = f"{INIT}{transposes[0]} {transposes[1]} {rows} {columns} {terms} {alpha} {beta}"
                flags = (bool(transposes[0]), bool(transposes[1]))
                value = product(*given, *flags, alpha, beta)
                yield multiplied(f"{count} x {init}", init, a, b, c if beta else np.full_like(c, np.nan), value)
    halves = [each.astype(np.float16) for each in (random(9, 8), random(8, 5, seed=1), random(9, 5, seed=2))]
    value = product(*(each.astype("f8")[None] for each in halves), alpha=1, beta=1)[0]
    yield multiplied("halves", f"{INIT}0 0 9 5 8 1 1", *halves, value, tolerance=1e-3)
    mixed = [halves[0], halves[1], halves[2].astype(np.float32)]
    yield multiplied("halves to floats", f"{INIT}0 0 9 5 8 1 1", *mixed, value)


def parts() -> Iterator[Row]:
    """Origins, batchStart and batchSize."""
    a, b, c = random(4, 9, 8), random(3, 10, 7, seed=1), random(5, 12, 9, seed=2)
    value = c.astype(np.float64)
    value[1:3, 5:9, 2:8] += product(a[1:3, 2:6, 3:8].astype("f8"), b[1:3, 4:9, 1:7].astype("f8"))
    origins = properties(leftMatrixOrigin="2,3,0", rightMatrixOrigin="4,1,0", resultMatrixOrigin="5,2,0", batchStart=1)
    yield multiplied("as many matrices as all have", f"{INIT}0 0 4 6 5 1 1", a, b, c, value, **origins)
    fewer = c.astype(np.float64)
    fewer[1] = value[1]
    yield multiplied("one matrix", f"{INIT}0 0 4 6 5 1 1", a, b, c, fewer, **origins, **properties(batchSize=1))


def vectors() -> Iterator[Row]:
    init = "initWithDevice:transpose:rows:columns:alpha:beta: "
    a, x, y = random(6, 9), random(14, seed=1), random(12, seed=2)
    origins = properties(primarySourceMatrixOrigin="1,2,0", secondarySourceMatrixOrigin="3,0,0")
    origins |= properties(resultMatrixOrigin="4,0,0")
    for transposed in (0, 1):
        part = a[1:6, 2:7].astype("f8")
        value = y.astype(np.float64)
        value[4:9] = 0.5 * (part.T if transposed else part) @ x[3:8] + 2 * value[4:9]
        made = called(
            f"vector {transposed}",
            "MPSMatrixVectorMultiplication",
            f"{init}{transposed} 5 5 0.5 2",
            ON_VECTOR,
            "matrix:a vector:x vector:y",
            {"a": a, "x": x, "y": y},
            {"buffer:y": value},
            **origins,
        )
        made.settings["no_twin"] = True
        yield made


def rows() -> Iterator[Row]:
    for part in (products, parts, vectors):
        yield from part()
