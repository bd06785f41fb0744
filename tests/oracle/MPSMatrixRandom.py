# SPDX-License-Identifier: Apache-2.0
"""Random matrices: the Philox generator in NumPy, and the distributions [MPSMatrixRandom.h]."""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BITS, UNIFORM, NORMAL = DISTRIBUTIONS = ("bits", "uniform", "normal")
LOW = np.uint64(0xFFFFFFFF)


def philox_words(seed: int, first: int, count: int, stream: int) -> NDArray[np.uint32]:
    """Return words [first, first + count) of Philox4x32-10: four for each value of the counter
    [Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3].
    """
    blocks = np.arange(first // 4, (first + count - 1) // 4 + 1, dtype=np.uint64)
    zeros = np.zeros_like(blocks)
    counter = [blocks & LOW, blocks >> np.uint64(32), zeros + np.uint64(stream), zeros]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        even, odd = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        counter = [
            (odd >> np.uint64(32)) ^ counter[1] ^ np.uint64(keys[0]),
            odd & LOW,
            (even >> np.uint64(32)) ^ counter[3] ^ np.uint64(keys[1]),
            even & LOW,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    words = np.stack(counter, axis=1).reshape(-1).astype(np.uint32)
    return words[first % 4 : first % 4 + count]


def random_values(
    count: int,
    distribution: int,
    seed: int,
    first: int = 0,
    stream: int = 0,
    min: float = 0.0,
    max: float = 1.0,
    mean: float = 0.0,
    deviation: float = 1.0,
    low: float = 0.0,
    high: float = 1.0,
) -> NDArray[Any]:
    words = philox_words(seed, first, count, stream)
    if DISTRIBUTIONS[distribution] == BITS:
        return words.astype(np.float64)
    if DISTRIBUTIONS[distribution] == UNIFORM:
        values = (min + (max - min) * ((words >> 8) * 2.0**-24)).astype(np.float32)
        return np.where(values < np.float32(max), values, np.float32(min)).astype(np.float64)
    shares = low + (high - low) * ((words.astype(np.float64) + 0.5) * 2.0**-32)
    quantile = np.vectorize(statistics.NormalDist().inv_cdf)
    return np.clip(mean + deviation * quantile(shares), min, max)
