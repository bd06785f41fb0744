# SPDX-License-Identifier: Apache-2.0
"""MPSCNNNeuronType and its sixteen functions [MPSCNNNeuronType.h, MPSCNNNeuron.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_erfc = np.frompyfunc(math.erfc, 1, 1)


def relu(x: Array, a: ArrayLike) -> Array:
    """With a slope of 0, -inf gives 0."""
    return np.where(x >= 0, x, a * np.where((x < 0) & (np.asarray(a) == 0), 0.0, x))


def logistic(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


def power(x: Array, a: float, b: float, c: float) -> Array:
    return (a * x + b) ** c


def exponential(x: Array, a: float, b: float, c: float) -> Array:
    return np.exp(a * x + b) if c == -1 else c ** (a * x + b)


def logarithm(x: Array, a: float, b: float, c: float) -> Array:
    return np.log(a * x + b) / (1.0 if c == -1 else math.log(c))


def gelu(x: Array) -> Array:
    """Return 0.5 * x * (1 + erf(x / sqrt(2))), by erfc, which keeps all digits where erf is nearly -1."""
    return 0.5 * x * _erfc(-x * math.sqrt(0.5)).astype(np.float64)


# Name and f(x, a, b, c) by MPSCNNNeuronType's number.
TYPES: list[tuple[str, Callable[[Array, ArrayLike, float, float], Array]]] = [
    ("none", lambda x, a, b, c: x + 0.0),
    ("relu", lambda x, a, b, c: relu(x, a)),
    ("linear", lambda x, a, b, c: a * x + b),
    ("sigmoid", lambda x, a, b, c: logistic(x)),
    ("hard_sigmoid", lambda x, a, b, c: np.minimum(np.maximum(a * x + b, 0.0), 1.0)),
    ("tanh", lambda x, a, b, c: a * np.tanh(b * x)),
    ("absolute", lambda x, a, b, c: np.abs(x)),
    ("softplus", lambda x, a, b, c: a * np.logaddexp(0.0, b * x)),
    ("softsign", lambda x, a, b, c: x / (1.0 + np.abs(x))),
    ("elu", lambda x, a, b, c: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0.0)))),
    ("prelu", lambda x, a, b, c: relu(x, a)),
    ("relun", lambda x, a, b, c: np.minimum(relu(x, a), b)),
    ("power", power),
    ("exponential", exponential),
    ("logarithm", logarithm),
    ("gelu", lambda x, a, b, c: gelu(x)),
]


def logistic_slope(x: Array) -> Array:
    return logistic(x) * logistic(-x)


def sech(x: Array) -> Array:
    return 2.0 / (np.exp(x) + np.exp(-x))


def gelu_slope(x: Array) -> Array:
    """The header's bracket belongs around both terms: 0.5 * (1 + erf) + x * density."""
    near = np.clip(x, -40.0, 40.0)
    density = np.exp(-0.5 * near**2) / math.sqrt(2.0 * math.pi)
    return 0.5 * _erfc(-x * math.sqrt(0.5)).astype(np.float64) + near * density


# df/dx by the header's table [MPSCNNNeuron.h]; where that is ambiguous, see docs/differences_from_apple.md.
SLOPES: dict[str, Callable[[Array, ArrayLike, float, float], Array]] = {
    "none": lambda x, a, b, c: np.ones_like(x),
    "relu": lambda x, a, b, c: np.where(x >= 0, 1.0, a),
    "linear": lambda x, a, b, c: np.full_like(x, a),
    "sigmoid": lambda x, a, b, c: logistic_slope(x),
    "hard_sigmoid": lambda x, a, b, c: np.where((a * x + b >= 0) & (a * x + b <= 1), a, 0.0),
    "tanh": lambda x, a, b, c: a * b * sech(b * x) ** 2,
    "absolute": lambda x, a, b, c: np.sign(x),
    "softplus": lambda x, a, b, c: a * b * logistic(b * x),
    "softsign": lambda x, a, b, c: (1.0 + np.abs(x)) ** -2.0,
    "elu": lambda x, a, b, c: np.where(x >= 0, 1.0, a * np.exp(np.minimum(x, 0.0))),
    "prelu": lambda x, a, b, c: np.where(x >= 0, 1.0, a),
    "relun": lambda x, a, b, c: np.where(relu(x, a) >= b, 0.0, np.where(x >= 0, 1.0, a)),
    "power": lambda x, a, b, c: a * c * (a * x + b) ** (c - 1.0) if c != 0 else np.zeros_like(x),
    "exponential": lambda x, a, b, c: a * (1.0 if c == -1 else math.log(c)) * exponential(x, a, b, c),
    "logarithm": lambda x, a, b, c: a / ((a * x + b) * (1.0 if c == -1 else math.log(c))),
    "gelu": lambda x, a, b, c: gelu_slope(x),
}
NUMBERS = {name: number for number, (name, _) in enumerate(TYPES)}
FUNCTIONS = dict(TYPES)


def neuron(name: str, x: Array, a: ArrayLike = 0.0, b: float = 0.0, c: float = 0.0) -> Array:
    """Apply the function `name` to every element; prelu: one slope `a` per channel. NaN and infinities as in NumPy."""
    with np.errstate(all="ignore"):
        return FUNCTIONS[name](np.asarray(x, np.float64), a, b, c)


def slope(name: str, x: Array, a: ArrayLike = 0.0, b: float = 0.0, c: float = 0.0) -> Array:
    """Return the derivative of the function `name` at every element."""
    with np.errstate(all="ignore"):
        return SLOPES[name](np.asarray(x, np.float64), a, b, c)
