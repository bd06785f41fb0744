# SPDX-License-Identifier: Apache-2.0
"""Arrays of any strides, and memory that must not be written."""

from __future__ import annotations

import numpy as np
import pytest

import mpscnn
from support import assert_close, conv2d, random, shares_images

from . import W, X


def test_padding_lanes_of_nan_stay_outside() -> None:
    """Between the pixels, after the rows and in the unread channels, everything is NaN."""
    store = np.full((2, 9, 13, 16), np.nan, np.float32)
    x = store[:, 1:8, 2:11, 4:10]
    x[...] = random(x.shape)
    weight, bias = random((5, 6, 3, 3), seed=1), random((5,))
    expected = conv2d(x, weight, bias, padding=1)
    for copy in (None, True, *[False] * mpscnn.Device().shares_images):
        image = mpscnn.Image.from_array(x, copy=copy)
        assert_close(mpscnn.Convolution(weight, bias, padding=1)(image).numpy(), expected)
    assert_close(mpscnn.Convolution(weight, bias, padding=1)(x), expected)
    assert np.isnan(store).sum() == store.size - x.size


def test_padding_lanes_of_the_result_are_not_written() -> None:
    store = np.full((2, 9, 13, 16), np.nan, np.float32)
    out = store[:, 1:8, 2:11, 4:9]
    x, weight = random((2, 7, 9, 6)), random((5, 6, 3, 3), seed=1)
    assert mpscnn.Convolution(weight, padding=1)(x, out=out) is out
    assert_close(out, conv2d(x, weight, padding=1))
    assert np.isnan(store).sum() == store.size - out.size


def test_channel_offsets_read_no_nan() -> None:
    x = np.full((1, 5, 7, 12), np.nan, np.float32)
    x[..., 4:8] = random((1, 5, 7, 4))
    weight = random(W)
    kernel = mpscnn.Convolution(weight, source_feature_channel_offset=4, source_feature_channel_max_count=4)
    assert_close(kernel(x), conv2d(x[..., 4:8], weight))
    out = np.full((1, 3, 5, 20), np.nan, np.float32)
    kernel.destination_feature_channel_offset = 8
    kernel(x, out=out)
    assert_close(out[..., 8:16], conv2d(x[..., 4:8], weight))
    assert np.isnan(out[..., :8]).all()
    assert np.isnan(out[..., 16:]).all()


def test_channels_of_out_that_are_kept_where_it_is_copied() -> None:
    """The array cannot be shared with an image."""
    store = np.full((1, 20, 3, 5), np.nan, np.float32)
    out = store.transpose(0, 2, 3, 1)
    x, weight = random((1, 5, 7, 4)), random(W)
    mpscnn.Convolution(weight, destination_feature_channel_offset=8)(x, out=out)
    assert_close(out[..., 8:16], conv2d(x, weight))
    assert np.isnan(out[..., :8]).all()
    assert np.isnan(out[..., 16:]).all()


@pytest.mark.parametrize("step", [(-1, 1, 1), (1, -1, 1), (1, 1, -1), (-1, -2, -1), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_strides_that_no_image_has_are_copied(step: tuple[int, int, int], dtype: str) -> None:
    base = random((2, 9, 11, 8), dtype)
    x = base[:, :: step[0], :: step[1], :: step[2]]
    expected = mpscnn.NeuronReLU()(np.ascontiguousarray(x))
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(x), expected)
    if min(step) < 0 and mpscnn.Device().shares_images:
        with pytest.raises(BufferError, match=r"cannot be shared: its (stride -\d+ along|channels are not adjacent)"):
            mpscnn.Image.from_array(x, copy=False)


def test_results_into_strides_that_no_image_has() -> None:
    x, store = random((2, 5, 7, 4)), np.full((2, 10, 7, 8), np.nan, np.float32)
    out = store[::-1, ::-2, ::-1, ::2]
    mpscnn.NeuronReLU()(x, out=out)
    np.testing.assert_array_equal(out, np.maximum(x, 0))
    assert np.isnan(store).sum() == store.size - out.size


@shares_images
def test_read_only_out() -> None:
    x = random(X)
    kernel = mpscnn.NeuronReLU()
    out = np.zeros(X, np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match=r"out is read-only"):
        kernel(x, out=out)
    with pytest.raises(ValueError, match=r"out is read-only"):
        kernel(x, out=np.broadcast_to(np.float32(0), X))
    image = mpscnn.Image.from_array(out, copy=False)
    with pytest.raises(ValueError, match=r"out is read-only"):
        kernel(mpscnn.Image.from_array(x), out=image)
    with pytest.raises(ValueError, match=r"read-only"):
        mpscnn.Image.from_array(x).numpy(out=out)
    with pytest.raises(ValueError, match=r"read-only"):
        image.write(x)
    assert not out.any()


def overlapping() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    whole = random((3, 6, 7, 16))
    return {
        "same": (whole[:1, :5, :, :4], whole[:1, :5, :, :4]),
        "rows": (whole[:1, :5, :, :4], whole[:1, 1:, :, :4]),
        "images": (whole[:2, :, :, :4], whole[1:, :, :, :4]),
        "channels": (whole[..., :8], whole[..., 4:12]),
    }


@pytest.mark.parametrize("name", overlapping())
@shares_images
def test_out_that_aliases_x(name: str) -> None:
    x, out = overlapping()[name]
    before = x.copy()
    with pytest.raises(ValueError, match=r"share memory"):
        mpscnn.NeuronReLU()(x, out=out)
    np.testing.assert_array_equal(x, before)


def test_out_beside_x_in_the_same_array_is_no_alias() -> None:
    whole = random((1, 6, 7, 16))
    expected = np.maximum(whole[..., :4], 0)
    mpscnn.NeuronReLU()(whole[..., :4], out=whole[..., 8:12])
    np.testing.assert_array_equal(whole[..., 8:12], expected)


def test_out_is_the_source_image() -> None:
    image = mpscnn.Image.from_array(random(X))
    with pytest.raises(ValueError, match=r"share memory"):
        mpscnn.NeuronReLU()(image, out=image)
