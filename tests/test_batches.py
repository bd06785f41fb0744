# SPDX-License-Identifier: Apache-2.0
"""Arrays of more images than one MPSImage can hold (2048 slices of four channels)."""

from __future__ import annotations

import numpy as np
import pytest

import mpscnn
from support import APPLE


@pytest.mark.parametrize("padding", [0, "same"])
@pytest.mark.parametrize("images", [1, 4, 5, 9])  # an MPSImage holds four images of 2048 channels
def test_every_image_is_computed(images: int, padding: int | str, rng: np.random.Generator) -> None:
    x = rng.random((images, 3, 2, 2048), np.float32)
    weight = rng.standard_normal((8, 2048, 1, 1)).astype(np.float32)
    kernel = mpscnn.Convolution(weight, padding=padding)
    expected = np.einsum("nhwc,oc->nhwo", x.astype(np.float64), weight[:, :, 0, 0].astype(np.float64))
    np.testing.assert_allclose(kernel(x), expected, atol=2e-3)
    out = np.full((images, 3, 2, 16), np.nan, np.float32)
    assert kernel(x, out=out[..., ::2]).base is out
    np.testing.assert_allclose(out[..., ::2], expected, atol=2e-3)
    assert np.isnan(out[..., 1::2]).all()


def test_wide_results_count_too(rng: np.random.Generator) -> None:
    x = rng.random((5, 1, 1, 4), np.float32)
    weight = rng.standard_normal((2048, 4, 1, 1)).astype(np.float32)
    np.testing.assert_allclose(
        mpscnn.Convolution(weight)(x)[:, 0, 0], x[:, 0, 0] @ weight[:, :, 0, 0].T, rtol=1e-4, atol=1e-5
    )


def test_sentences() -> None:
    x = np.zeros((9, 1, 1, 2048), np.float32)
    kernel = mpscnn.NeuronReLU()
    if APPLE:
        with pytest.raises(ValueError, match=r"more images \(9\) than the maximum \(4\) for 2048 channels"):
            mpscnn.Image.from_array(x)
    else:
        assert mpscnn.Image.from_array(x).shape == x.shape
    with pytest.raises(ValueError, match=r"out\.shape \(8, 1, 1, 2048\) is not the result's \(9, 1, 1, 2048\)"):
        kernel(x, out=np.zeros((8, 1, 1, 2048), np.float32))
    with pytest.raises(ValueError, match=r"more channels \(8196\) than the maximum \(8192\)"):
        kernel(np.zeros((1, 1, 1, 8196), np.float32))
