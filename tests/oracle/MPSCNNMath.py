# SPDX-License-Identifier: Apache-2.0
"""MPSCNNArithmetic: r = clamp((ps * a) op (ss * b) + bias, minimum, maximum); MPSNNCompare [MPSCNNMath.h]."""
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


COMPARISONS = ("equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal")
"""In the order of MPSNNComparisonType."""


def compare(comparison: str, a: Array, b: Array, threshold: float = 0.0) -> Array:
    """Return 1 or 0. Numbers are equal if their difference is at most the threshold; NaN is not equal to anything."""
    with np.errstate(all="ignore"):
        if comparison in ("equal", "not_equal"):
            is_equal = np.abs(a - b) <= threshold
            return (is_equal if comparison == "equal" else ~is_equal).astype(np.float64)
        return np.asarray(getattr(np, COMPARISON_FUNCTIONS[comparison])(a, b), np.float64)


COMPARISON_FUNCTIONS = {
    "less": "less",
    "less_or_equal": "less_equal",
    "greater": "greater",
    "greater_or_equal": "greater_equal",
}
