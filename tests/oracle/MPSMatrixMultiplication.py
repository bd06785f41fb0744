# SPDX-License-Identifier: Apache-2.0
"""MPSMatrixMultiplication: C = alpha * op(A) * op(B) + beta * C [MPSMatrixMultiplication.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def product(
    a: Array,
    b: Array,
    c: Array | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Array:
    """Matrices are (batch, rows, columns)."""
    a = a.transpose(0, 2, 1) if transpose_a else a
    b = b.transpose(0, 2, 1) if transpose_b else b
    result = alpha * np.einsum("nij,njk->nik", a, b, optimize=True)
    return result if c is None else result + beta * c
