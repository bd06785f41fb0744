# SPDX-License-Identifier: Apache-2.0
"""Upsampling, resizing and soft max: published results of Apple's kernels, and results of many images."""

from __future__ import annotations

import numpy as np
import pytest

import mpscnn
from support import APPLE, random


def test_what_the_far_edge_ends_with() -> None:
    """A single colour is kept, except with the zeros that Apple's bilinear upsampling has by default."""
    x = np.full((1, 3, 4, 2), 5.0, np.float32)
    clamped = mpscnn.UpsamplingBilinear(3, edge_mode="clamp")
    for kernel in (clamped, mpscnn.ResizeBilinear((7, 9)), mpscnn.UpsamplingNearest(2)):
        assert np.unique(kernel(x)).tolist() == [5.0]
    assert mpscnn.UpsamplingBilinear(3)(x).min() < 5


def test_probabilities_have_the_sum_1() -> None:
    y = mpscnn.SoftMax()(random((2, 9, 8, 777)) * 20)
    np.testing.assert_allclose(y.sum(axis=3, dtype=np.float64), 1, rtol=1e-6)


def test_a_network_of_segmentation_ends_like_this() -> None:
    """Upsampled scores and the best class of each pixel, in one command buffer through temporaries."""
    scores = random((1, 6, 7, 21))
    enlarge, best = mpscnn.UpsamplingBilinear(4), mpscnn.ReduceFeatureChannelsArgumentMax()
    with mpscnn.CommandBuffer() as buffer:
        large = enlarge.encode(buffer, mpscnn.Image.from_array(scores), temporary=True)
        classes = best.encode(buffer, large)
    assert classes.shape == (1, 24, 28, 1)
    np.testing.assert_array_equal(classes.numpy()[..., 0], enlarge(scores).argmax(axis=3))


@pytest.mark.parametrize("images", [1, 4, 9])  # an MPSImage holds four images of 2048 channels
def test_more_images_than_fit(images: int) -> None:
    x = random((images, 2, 3, 2048))
    np.testing.assert_array_equal(mpscnn.ReduceRowMax()(x), x.max(axis=2, keepdims=True))
    np.testing.assert_array_equal(mpscnn.UpsamplingNearest(2)(x), x.repeat(2, axis=1).repeat(2, axis=2))
    np.testing.assert_array_equal(mpscnn.Pad(1)(x), np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))


def test_kernels_that_mix_images_take_them_together() -> None:
    """Image indices of rectangles refer to the whole source, which must fit then. Each crop reads one image."""
    x = random((3, 4, 5, 2048))
    last = mpscnn.ReduceRowMax(clip_rect_source=((0, 0, 2), (4, 5, 1)))
    np.testing.assert_array_equal(last(x), x[2:].max(2, keepdims=True))
    if APPLE:
        with pytest.raises(ValueError, match=r"more images \(9\) than the maximum \(4\) for 2048 channels"):
            last(random((9, 4, 5, 2048)))
    crop = mpscnn.CropAndResizeBilinear((4, 5), [[0, 0, 1, 1]])
    for images in (3, 9):
        x = random((images, 4, 5, 2048))
        np.testing.assert_array_equal(crop(x), x)


def test_shapes_of_results() -> None:
    crop = mpscnn.CropAndResizeBilinear((3, 2), [[0, 0, 1, 1], [0, 0, 0.5, 0.5]])
    assert crop.result_shape((5, 9, 8, 4)) == (10, 3, 2, 4)
    assert mpscnn.Reshape((-1, 2, 3)).result_shape((5, 9, 8, 4)) == (5, 48, 2, 3)
    assert mpscnn.ReduceColumnSum(clip_rect_source=((0, 1, 2), (3, 4, 9))).result_shape((5, 9, 8, 4)) == (3, 1, 4, 4)
    with pytest.raises(MemoryError, match=r"an image of x, .*, has too many values"):
        mpscnn.Reshape((1, 1, -1)).result_shape((1, 2**31, 2**31, 2**31))
