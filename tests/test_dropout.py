# SPDX-License-Identifier: Apache-2.0
"""Dropout beyond its first masks, which oracles test: randomness, reproducibility, and shared masks."""

from __future__ import annotations

import numpy as np
import pytest

import mpscnn
from oracle import MPSCNNDropout as oracle  # noqa: N813
from support import random, shares_images

X = (2, 6, 7, 5)


def ones(shape: tuple[int, int, int, int]) -> np.ndarray:
    return np.ones(shape, np.float32)


def kept(kernel: mpscnn.Kernel, shape: tuple[int, int, int, int] = X) -> np.ndarray:
    return kernel(ones(shape)) != 0


@pytest.mark.parametrize("keep", [0.05, 0.3, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("seed", [0, 1, 2**62 + 3])
def test_share_of_kept_values_is_the_probability(keep: float, seed: int) -> None:
    """Five standard deviations: exceeded once in two million runs, and the runs are always the same."""
    mask = kept(mpscnn.Dropout(keep, seed), (1, 300, 400, 8))
    deviation = np.sqrt(keep * (1 - keep) / mask.size)
    assert abs(mask.mean() - keep) < 5 * deviation
    # Along each axis as well: every row, column and channel is kept equally often.
    for axes in ((0, 2, 3), (0, 1, 3), (0, 1, 2)):
        means = mask.mean(axis=axes)
        assert np.abs(means - keep).max() < 6 * deviation * np.sqrt(len(means))


def test_neighbours_do_not_know_of_each_other() -> None:
    mask = kept(mpscnn.Dropout(0.5, 11), (2, 200, 300, 8)).astype(np.float64) - 0.5
    for axis in range(4):
        pairs = mask * np.roll(mask, 1, axis) * 4
        assert abs(pairs.mean()) < 5 / np.sqrt(pairs.size), f"axis {axis}"


def test_what_is_kept_is_enlarged() -> None:
    x = random(X)
    y = mpscnn.Dropout(0.3, 7)(x)
    mask = y != 0
    assert 0 < mask.mean() < 1
    np.testing.assert_array_equal(y[mask], x[mask] / np.float32(0.3))


def test_kernels_of_one_seed_repeat_each_other_and_none_repeats_itself() -> None:
    one, other = mpscnn.Dropout(0.5, 21), mpscnn.Dropout(0.5, 21)
    first = [kept(one) for _ in range(3)]
    second = [kept(other) for _ in range(3)]
    np.testing.assert_array_equal(first, second)
    masks = np.concatenate(first)
    assert len({mask.tobytes() for mask in masks}) == len(masks)
    assert not np.array_equal(first[0], kept(mpscnn.Dropout(0.5, 22)))
    assert not np.array_equal(first[0], kept(mpscnn.Dropout(0.5, 21 + 2**32)))


def test_masks_are_counted_by_images() -> None:
    """Two images in one call, or in two calls: mask 0 and mask 1."""
    together = kept(mpscnn.Dropout(0.5, 23))
    kernel = mpscnn.Dropout(0.5, 23)
    np.testing.assert_array_equal(np.concatenate([kept(kernel, (1, *X[1:])) for _ in range(2)]), together)
    for number, mask in enumerate(together):
        np.testing.assert_array_equal(mask, oracle.mask(X[1:], 23, number, 0.5))


def test_masks_of_more_images_than_one_image_object_holds() -> None:
    shape = (9, 1, 1, 2048)
    np.testing.assert_array_equal(
        kept(mpscnn.Dropout(0.5, 24), shape)[5, 0, 0], oracle.mask((1, 1, 2048), 24, 5, 0.5)[0, 0]
    )


@pytest.mark.parametrize("stride", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0)])
def test_masks_are_shared_along_axes_of_stride_0(stride: tuple[int, int, int]) -> None:
    kernel = mpscnn.Dropout(0.5, 25, mask_stride=stride[:2], mask_stride_in_feature_channels=stride[2])
    mask = kept(kernel, (8, 6, 7, 5))
    for axis, step in enumerate(stride, start=1):
        alike = (mask == np.take(mask, [0], axis)).all()
        assert alike == (step == 0), f"axis {axis}"
    assert not (mask == mask[:1]).all()  # each image has its own mask


@shares_images
def test_a_refused_call_draws_no_mask() -> None:
    kernel, x = mpscnn.Dropout(0.5, 26), mpscnn.empty(X, "float32")
    with pytest.raises(ValueError, match="share memory"):
        kernel(x, out=x)
    np.testing.assert_array_equal(kept(kernel), kept(mpscnn.Dropout(0.5, 26)))


def test_the_random_numbers_of_the_oracle() -> None:
    """Published vectors of Philox4x32-10: counter and key of zeros, and of ones (Random123, kat_vectors)."""
    for word, answer in (
        (0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ):
        words = oracle.philox([np.array([word], np.uint64)] * 4, (word, word))
        assert tuple(int(one[0]) for one in words) == answer
