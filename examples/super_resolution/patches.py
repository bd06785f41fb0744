# SPDX-License-Identifier: Apache-2.0
"""Training patches of photographs. Needs no PyTorch."""

from __future__ import annotations

import numpy as np
from images import TRAINING, Picture, crop_to_factor, downsample, photograph, resize
from network import FACTOR
from numpy.typing import NDArray

PATCH = 32  # height and width of a training patch before enlargement, in pixels
BATCH = 16

Pair = tuple[Picture, Picture]
"""(H, W, 3) and (FACTOR * H, FACTOR * W, 3)."""


def training_pairs() -> list[Pair]:
    """Return every training photograph at each of its scales."""
    pairs = []
    for source in TRAINING:
        full = photograph(source.name)
        for scale in source.scales:
            height, width = (round(size * scale) for size in full.shape[:2])
            original = crop_to_factor(resize(full, height, width) if scale != 1 else full)
            pairs.append((downsample(original), original))
    return pairs


def augment(small: Picture, large: Picture, rng: np.random.Generator) -> Pair:
    """Flip, rotate by multiples of 90 degrees and permute the colours at random, in the same way for both."""
    turns, flip, colours = int(rng.integers(4)), bool(rng.integers(2)), rng.permutation(3)
    small, large = np.rot90(small, turns), np.rot90(large, turns)
    if flip:
        small, large = small[:, ::-1], large[:, ::-1]
    return small[..., colours], large[..., colours]


def sample_patches(
    pairs: list[Pair], rng: np.random.Generator, count: int = BATCH
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return random patches; a pair is drawn in proportion to its area.

    Returns
    -------
    tuple of arrays
        (count, PATCH, PATCH, 3) and (count, FACTOR * PATCH, FACTOR * PATCH, 3), 8 bits.
    """
    areas = np.array([small.shape[0] * small.shape[1] for small, _ in pairs], dtype=np.float64)
    inputs, targets = [], []
    for index in rng.choice(len(pairs), count, p=areas / areas.sum()):
        small, large = pairs[index]
        top, left = (int(rng.integers(size - PATCH + 1)) for size in small.shape[:2])
        bottom, right = top + PATCH, left + PATCH
        patch = small[top:bottom, left:right]
        target = large[top * FACTOR : bottom * FACTOR, left * FACTOR : right * FACTOR]
        patch, target = augment(patch, target, rng)
        inputs.append(patch)
        targets.append(target)
    return np.stack(inputs), np.stack(targets)
