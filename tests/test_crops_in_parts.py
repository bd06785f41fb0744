# SPDX-License-Identifier: Apache-2.0
"""Crops of arrays whose images or crops exceed one Image, which holds 32 of 256 channels."""

from __future__ import annotations

import numpy as np
import pytest

import mpscnn
from support import limits_slices, random

MOST = 32
SIZE = (5, 4)


def regions(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    return np.concatenate([rng.uniform(0, 0.5, (count, 2)), rng.uniform(0.1, 0.5, (count, 2))], axis=1)


@pytest.mark.parametrize(
    ("crops", "images"), [(1, MOST + 38), (3, MOST + 8), (20, 5), (MOST, 3), (MOST + 1, 2), (3 * MOST + 4, 1)]
)
def test_every_crop_is_that_of_its_image(crops: int, images: int) -> None:
    x, where = random((images, 12, 11, 256)), regions(crops)
    y = mpscnn.CropAndResizeBilinear(SIZE, where)(x)
    assert y.shape == (images * crops, *SIZE, 256)
    for crop in (0, crops // 2, crops - 1):
        one = mpscnn.CropAndResizeBilinear(SIZE, where[crop : crop + 1])
        for image in (0, images // 2, images - 1):
            np.testing.assert_array_equal(y[image * crops + crop], one(x[image : image + 1])[0])


def test_into_an_array_and_with_attributes() -> None:
    x, where = random((2, 12, 11, 264)), regions(MOST + 1)
    out = np.full((2 * (MOST + 1), *SIZE, 256), np.nan, np.float32)
    kernel = mpscnn.CropAndResizeBilinear(SIZE, where)
    kernel.source_feature_channel_offset = 8
    assert kernel(x, out=out) is out
    np.testing.assert_array_equal(out, mpscnn.CropAndResizeBilinear(SIZE, where)(x[..., 8:]))


def test_a_destination_of_the_wrong_size() -> None:
    kernel = mpscnn.CropAndResizeBilinear(SIZE, regions(MOST + 1))
    with pytest.raises(ValueError, match=r"out.shape \(33, 5, 4, 256\) is not the result's \(66, 5, 4, 256\)"):
        kernel(random((2, 12, 11, 256)), out=np.empty((33, *SIZE, 256), np.float32))


@limits_slices
def test_images_are_refused() -> None:
    """One Image cannot hold the result."""
    with pytest.raises(ValueError, match=r"has more images \(33\) than the maximum \(32\) for 256 channels"):
        mpscnn.CropAndResizeBilinear(SIZE, regions(MOST + 1))(mpscnn.Image.from_array(random((1, 12, 11, 256))))
