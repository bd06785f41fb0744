# SPDX-License-Identifier: Apache-2.0
"""Bounds of errors relative to the oracle, and the comparison.

The error of a float32 sum of K products is at most `sums` * sqrt(K) * u * sum |w| |x|, u = 2**-24, for any order of the
sum: rounding errors are a random walk (the strict bound has K in place of sqrt(K), and is seldom approached).
`products` is for devices that may round the factors. An activation f maps this error to the largest change of f within
it, plus two roundings of its own arguments and parameters. The store rounds to the result's type once: half a unit in
the last place, or one on devices that truncate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
U = 2.0**-24


def sum_bound(magnitude: Array, terms: int, sums: float, products: float = 0.0) -> Array:
    """`magnitude` is the sum with the absolute values of all factors."""
    return (sums * np.sqrt(terms + 1.0) * U + products) * magnitude


def carried(f: Callable[[Array], Array], x: Array, bound: Array) -> Array:
    """Return the largest change of f(x) for an error `bound` of x; f has at most one extremum in that range."""
    with np.errstate(all="ignore"):
        middle = f(x)
        change = np.fmax(np.abs(f(x + bound) - middle), np.abs(f(x - bound) - middle))
    return np.where(np.isfinite(change), change, 0.0)


def store_bound(value: Array, dtype: str, store: float) -> Array:
    kind = np.dtype(dtype)
    if kind.kind == "u":
        return np.full(value.shape, (0.5 + 2.0**-10) * store / np.iinfo(kind).max)
    info = np.finfo(kind)
    # Devices may flush subnormal numbers to zero.
    return store * float(info.eps) * np.abs(np.where(np.isfinite(value), value, 0.0)) + float(info.tiny)


def as_numbers(result: NDArray[Any]) -> Array:
    """Return the values of the elements: unsigned ones are fractions of their type's max."""
    if result.dtype.kind == "u":
        return result / float(np.iinfo(result.dtype).max)
    return result.astype(np.float64)


def wrong(result: Array, expected: Array, bound: Array) -> NDArray[np.bool_]:
    """Return the elements outside of the bound. NaN and infinities must match exactly."""
    with np.errstate(invalid="ignore"):
        near = np.abs(result - expected) <= bound
    return ~np.where(np.isfinite(expected), near, (result == expected) | (np.isnan(result) & np.isnan(expected)))


def assert_close(result: Array, expected: Array, bound: Array, what: str = "result") -> None:
    assert result.shape == expected.shape, f"{what}: shape {result.shape} is not {expected.shape}"
    bad = wrong(result, expected, bound)
    if bad.any():
        with np.errstate(all="ignore"):
            excess = np.where(bad, np.nan_to_num(np.abs(result - expected) / bound, nan=np.inf), -1.0)
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), bad.shape))
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.size} elements are wrong; at {at} it is {result[at]!r}, the oracle has "
            f"{expected[at]!r} +- {bound[at]:.3g} ({excess[at]:.3g} bounds off)"
        )


def mutants(result: Array, expected: Array, bound: Array) -> dict[str, Array]:
    """Return results that assert_close() must refuse, to show that it detects such errors."""
    finite = np.argwhere(np.isfinite(expected))
    found: dict[str, Array] = {"shape": result[..., :-1]}
    if len(finite):
        at = tuple(finite[len(finite) // 2])
        for name, value in (("off by two bounds", expected[at] + 2 * bound[at]), ("NaN", np.nan), ("infinite", np.inf)):
            found[name] = result.copy()
            found[name][at] = value
    else:
        found["finite"] = np.zeros_like(result)
    moved = [(f"axis {axis} rolled", np.roll(result, 1, axis)) for axis in range(result.ndim) if result.shape[axis] > 1]
    moved += [("all zero", np.zeros_like(result)), ("sign", -result), ("1 % more", result * 1.01)]
    for name, mutant in moved:
        # Rolling a constant changes nothing, and 1 % of an 8-bit result is less than its step.
        with np.errstate(invalid="ignore"):
            if (np.abs(mutant - result) > 2.5 * bound).any():
                found[name] = mutant
    return found
