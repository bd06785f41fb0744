# SPDX-License-Identifier: Apache-2.0
"""MPSCNNArithmetic: r = clamp((ps * a) op (ss * b) + bias, minimum, maximum) [MPSCNNMath.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Subtract": np.subtract,
    "Multiply": np.multiply,
    "Divide": np.divide,
}


def arithmetic(
    operation: str,
    a: Array,
    b: Array,
    scales: tuple[float, float] = (1.0, 1.0),
    bias: float = 0.0,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Array:
    """Sources broadcast as in NumPy. Infinities stay unless a bound is given; NaN always stays."""
    with np.errstate(all="ignore"):
        result = OPERATIONS[operation](scales[0] * a, scales[1] * b) + bias
    result = result if minimum is None else np.where(result < minimum, minimum, result)
    return result if maximum is None else np.where(result > maximum, maximum, result)


def magnitude(operation: str, a: Array, b: Array, scales: tuple[float, float], bias: float) -> Array:
    """Return the magnitude that roundings are relative to: the sum of the terms' absolute values."""
    size = (abs(scales[0]), abs(scales[1]))
    plus = "Add" if operation == "Subtract" else operation
    return arithmetic(plus, np.abs(a), np.abs(b), size, abs(bias))
