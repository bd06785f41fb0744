# SPDX-License-Identifier: Apache-2.0
"""Expected results of the normalization kernels for a case row, and bounds of their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases import Case, Inputs

from . import MPSCNNBatchNormalization as by_moments  # noqa: N813
from . import MPSCNNNormalization as local  # noqa: N813
from . import compare
from .compare import U, carried
from .MPSCNNConvolution import tap

Array = NDArray[np.float64]

# Apple's defaults [MPSCNNNormalization.h]; kernel_size where it is optional.
DEFAULTS: dict[str, dict[str, float]] = {
    "CrossChannelNormalization": {"kernel_size": 5, "alpha": 1, "beta": 5, "delta": 1},
    "SpatialNormalization": {"alpha": 1, "beta": 5, "delta": 1},
    "LocalContrastNormalization": {"alpha": 0, "beta": 0.5, "delta": 2.0**-10, "p0": 1, "pm": 0, "ps": 1},
}
EPSILON = 1e-5


def sum_bound(magnitude: Array, terms: int) -> Array:
    return compare.sum_bound(magnitude, terms, sums=4.0)


def numbers(case: Case) -> dict[str, Any]:
    """Return the parameters of a local normalization with the device's precision, float32."""
    given = {name: case.params.get(name, value) for name, value in DEFAULTS[case.kernel].items()}
    if "kernel_size" in case.params:
        given["kernel_size"] = case.params["kernel_size"]
    return {name: value if name == "kernel_size" else float(np.float32(value)) for name, value in given.items()}


def placed(case: Case, x: Array) -> dict[str, Any]:
    """Return the source pixels that correspond to the pixels of the result."""
    clip, offset = case.params.get("clip_rect"), case.params.get("offset")
    return {
        "size": clip[1][:2] if clip else x.shape[1:3],
        "offset": offset[:2] if offset else (0, 0),
        "edge": case.params.get("edge_mode", "zero"),
    }


def _power(base: Array, exponent: float, bound: Array) -> tuple[Array, Array]:
    """Return base ** -exponent, and its bound for a base with error `bound`; the power itself has four roundings."""
    value = base**-exponent
    off = carried(lambda b: np.maximum(b, 1e-30) ** -exponent, base, bound + 2 * U * np.abs(base))
    return value, off + 4 * U * np.abs(value) * (1 + np.abs(exponent * np.log(np.maximum(base, 1e-30))))


def cross_channel(case: Case, x: Array) -> tuple[Array, Array]:
    given = numbers(case)
    size = given.pop("kernel_size")
    window = placed(case, x)
    seen = local.centres(x, **window)
    squares = given["alpha"] / size * local.around_channels(seen**2, size)
    _, off = _power(given["delta"] + squares, given["beta"], sum_bound(np.abs(squares), size))
    value = local.cross_channel(seen, size=size, **given)
    return value, np.abs(seen) * off + 2 * U * np.abs(value)


def spatial(case: Case, x: Array) -> tuple[Array, Array]:
    given = numbers(case)
    kernel = given.pop("kernel_size")
    window = placed(case, x)
    square = given["alpha"] * local.means(x**2, kernel=kernel, **window)
    _, off = _power(given["delta"] + square, given["beta"], sum_bound(np.abs(square), kernel**2))
    value = local.spatial(x, kernel=kernel, **window, **given)
    return value, np.abs(local.centres(x, **window)) * off + 2 * U * np.abs(value)


def local_contrast(case: Case, x: Array) -> tuple[Array, Array]:
    given = numbers(case)
    kernel = given.pop("kernel_size")
    window = placed(case, x)
    mean, square = (local.means(power, kernel=kernel, **window) for power in (x, x**2))
    off_mean = sum_bound(local.means(np.abs(x), kernel=kernel, **window), kernel**2)
    # The difference of two sums has the errors of both, however small it is.
    off_variance = sum_bound(square, kernel**2) + 2 * np.abs(mean) * off_mean + 2 * U * mean**2
    variance = np.maximum(square - mean**2, 0)
    scale, off = _power(given["delta"] + given["alpha"] * variance, given["beta"], abs(given["alpha"]) * off_variance)
    centre = local.centres(x, **window)
    value = local.local_contrast(x, kernel=kernel, **window, **given)
    distance = centre - given["p0"] * mean
    rounding = 2 * U * (np.abs(centre) + np.abs(given["p0"] * mean)) + abs(given["p0"]) * off_mean
    bound = abs(given["ps"]) * (np.abs(scale) * rounding + np.abs(distance) * off)
    return value, bound + 2 * U * (abs(given["pm"]) + np.abs(value))


LOCAL: dict[str, Callable[[Case, Array], tuple[Array, Array]]] = {
    "CrossChannelNormalization": cross_channel,
    "LocalContrastNormalization": local_contrast,
    "SpatialNormalization": spatial,
}


def epsilon(case: Case) -> float:
    return float(np.float32(case.params.get("epsilon", EPSILON)))


def values(inputs: Inputs, channels: int) -> tuple[Array, Array]:
    """Return gamma and beta."""
    ones = np.ones(channels, np.float32)
    gamma, beta = inputs.given.get("gamma", ones), inputs.given.get("beta", 0 * ones)
    return gamma.astype(np.float64), beta.astype(np.float64)


def moments_bound(x: Array, mean: Array, variance: Array, terms: int) -> tuple[Array, Array]:
    """Return bounds of mean and variance of `terms` values, summed as distances from some value among them."""
    spread = np.sqrt(variance)
    off_mean = sum_bound(spread, terms) + 2 * U * np.abs(mean)
    return off_mean, sum_bound(2 * variance, terms) + off_mean**2


def _normalized(
    case: Case, x: Array, inputs: Inputs, mean: Array, variance: Array, off_mean: Any = 0.0, off_variance: Any = 0.0
) -> tuple[Array, Array]:
    window = placed(case, x)
    rows, columns = (window["offset"][axis] + np.arange(window["size"][axis]) for axis in (0, 1))
    seen = tap(x, rows, columns, window["edge"])
    gamma, beta = values(inputs, x.shape[3])
    value = by_moments.normalize(seen, mean, variance, gamma, beta, epsilon(case))
    total = variance + epsilon(case)
    scale = np.abs(gamma) / np.sqrt(total)
    bound = scale * (off_mean + 2 * U * (np.abs(seen) + np.abs(mean)))
    bound = bound + scale * np.abs(seen - mean) * (off_variance / (2 * total) + 4 * U)
    return value, bound + 2 * U * (np.abs(beta) + np.abs(value))


def batch(case: Case, x: Array, inputs: Inputs) -> tuple[Array, Array]:
    mean, variance = (inputs.given[name].astype(np.float64) for name in ("mean", "variance"))
    return _normalized(case, x, inputs, mean, variance)


def by_batch(case: Case, x: Array, inputs: Inputs) -> tuple[Array, Array]:
    """Batch normalization by the statistics of x itself."""
    mean, variance = by_moments.statistics(x)
    terms = int(np.prod(x.shape[:3]))
    return _normalized(case, x, inputs, mean, variance, *moments_bound(x, mean, variance, terms))


def instance(case: Case, x: Array, inputs: Inputs) -> tuple[Array, Array]:
    mean, variance = by_moments.of_instances(x)
    off = moments_bound(x, mean, variance, x.shape[1] * x.shape[2])
    return _normalized(case, x, inputs, mean, variance, *off)


def group(case: Case, x: Array, inputs: Inputs) -> tuple[Array, Array]:
    mean, variance = by_moments.of_groups(x, case.groups)
    off = moments_bound(x, mean, variance, int(np.prod(x.shape[1:])) // case.groups)
    return _normalized(case, x, inputs, mean, variance, *off)


def statistics(case: Case, x: Array, inputs: Inputs) -> tuple[Array, Array]:
    """Return mean and variance as two pixels of an image, (1, 1, 2, C)."""
    mean, variance = by_moments.statistics(x)
    off = moments_bound(x, mean, variance, int(np.prod(x.shape[:3])))
    return np.stack([mean, variance])[None, None], np.stack(off)[None, None]


BY_MOMENTS: dict[str, Callable[[Case, Array, Inputs], tuple[Array, Array]]] = {
    "BatchNormalization": batch,
    "BatchNormalizationStatistics": statistics,
    "GroupNormalization": group,
    "InstanceNormalization": instance,
}
