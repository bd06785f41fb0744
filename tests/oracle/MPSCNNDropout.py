# SPDX-License-Identifier: Apache-2.0
"""MPSCNNDropout [MPSCNNDropout.h], with the masks of openmps: Apple's are not documented.

The random bits are Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011).
"""
# ruff: noqa: N999  (named after Apple's header)

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Words = NDArray[np.uint64]
LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def philox(counter: list[Words], key: tuple[int, int]) -> list[Words]:
    """Return four words of 32 bits for each counter of four."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (second >> SHIFT) ^ c[1] ^ np.uint64(k0),
            second & LOW,
            (first >> SHIFT) ^ c[3] ^ np.uint64(k1),
            first & LOW,
        ]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


def mask(shape: tuple[int, int, int], seed: int, image: int, keep: float) -> NDArray[np.bool_]:
    """Return the mask, (H, W, C): True where a value is kept.

    Value number 64 * b + 16 * w + l, in the order channels, columns, rows, is kept if word w of the block with counter
    (16 * b + l, image) and the seed as key is less than keep * 2**32.
    """
    number = np.arange(np.prod(shape), dtype=np.uint64)
    block = number // np.uint64(64) * np.uint64(16) + number % np.uint64(16)
    word = number // np.uint64(16) % np.uint64(4)
    images = np.full_like(block, image)
    words = philox([block & LOW, block >> SHIFT, images & LOW, images >> SHIFT], (seed % 2**32, seed >> 32))
    chosen = np.choose(word.astype(int), words)
    return (chosen < np.uint64(round(float(np.float32(keep)) * 2**32))).reshape(shape)


def dropout(x: Array, *, keep: float, seed: int, stride: tuple[int, int, int], first: int = 0) -> Array:
    """Return x / keep where the mask keeps the value, else 0. The mask has one value along axes (H, W, C) whose stride
    is 0; image n has mask number first + n.
    """
    shape = tuple(size if step else 1 for size, step in zip(x.shape[1:], stride, strict=True))
    kept = np.stack([mask(shape, seed, first + n, keep) for n in range(x.shape[0])])  # type: ignore[arg-type]
    return np.where(kept, x / float(np.float32(keep)), 0.0)
