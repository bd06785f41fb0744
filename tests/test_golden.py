# SPDX-License-Identifier: Apache-2.0
"""Results of Apple's hardware, as measured and published by others; each test names its source.

charon: the pages of facts of github.com/kern0x1b/charon, measured on an M4 Pro. webml-polyfill: issues of
intel/webml-polyfill. BinopLayerTests: tests of praeclarum/MetalTensors that ran on devices.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import mpscnn


def image(values: Any) -> np.ndarray:
    """Return rows of one channel as (1, H, W, 1)."""
    return np.array(values, np.float32)[None, :, :, None]


def ramp(count: int) -> np.ndarray:
    """Return 1, 2, ... as a square image."""
    side = int(count**0.5)
    return image(np.arange(1, count + 1).reshape(side, side))


def test_average_with_offset_zero() -> None:
    """charon, page on CNN kernels: 2 x 2, stride 1, offset (0, 0), the default edge mode."""
    kernel = mpscnn.PoolingAverage(2, stride=1, padding=((1, 0), (1, 0)))  # for even windows this is offset (0, 0)
    wanted = [[0.25, 0.75, 1.25], [1.25, 3, 4], [2.75, 6, 7]]
    np.testing.assert_array_equal(kernel(ramp(9)), image(wanted))
    kernel.offset = (0, 0)
    np.testing.assert_array_equal(kernel(ramp(9)), image(wanted))


def test_average_into_a_smaller_destination() -> None:
    """charon, page on CNN kernels: the same into 2 x 2."""
    kernel = mpscnn.PoolingAverage(2, stride=1, offset=(0, 0), clip_rect=((0, 0, 0), (2, 2, 1)))
    out = np.empty((1, 2, 2, 1), np.float32)
    np.testing.assert_array_equal(kernel(ramp(9), out=out), image([[0.25, 0.75], [1.25, 3]]))


def test_sums_of_windows() -> None:
    """charon, page on CNN kernels: 2 x 2 over 1 ... 16, times 4."""
    kernel = mpscnn.PoolingAverage(2, stride=1, padding=((1, 0), (1, 0)))
    wanted = [[1, 3, 5, 7], [6, 14, 18, 22], [14, 30, 34, 38], [22, 46, 50, 54]]
    np.testing.assert_array_equal(kernel(ramp(16)) * 4, image(wanted))


@pytest.mark.parametrize("zero_pad_size", [0, 1])
def test_corner_of_an_average(zero_pad_size: int) -> None:
    """charon, page on CNN kernels: 3 x 3, edge mode Zero; zeroPadSize changes nothing."""
    kernel = mpscnn.PoolingAverage(3, stride=1, padding=1, edge_mode="zero", zero_pad_size=zero_pad_size)
    assert kernel(ramp(9))[0, 0, 0, 0] == pytest.approx(1.33333, abs=1e-5)


def test_spatial_normalization() -> None:
    """MPSCNNElements10.m of charon: kernel size 3, defaults."""
    # 2.48832e-05 is exact: the device's power was approximate.
    assert mpscnn.SpatialNormalization(3)(ramp(16))[0, 0, 0, 0] == pytest.approx(2.48832257e-05, rel=2e-6)


def test_windows_of_an_even_spatial_normalization() -> None:
    """charon, page on 10.x: sums of squares in the windows of the first four pixels."""
    x = ramp(16)
    y = mpscnn.SpatialNormalization(2, alpha=4.0, beta=1.0, delta=0.0)(x)
    np.testing.assert_allclose((x / y)[0, :2, :2, 0], [[1, 5], [26, 66]], rtol=1e-6)


def test_local_contrast_normalization() -> None:
    """charon, page on 10.x: kernel size 3, defaults."""
    assert mpscnn.LocalContrastNormalization(3)(ramp(16))[0, 0, 0, 0] == pytest.approx(-17.7777786, rel=1e-6)


def test_divisor_across_channels() -> None:
    """charon, page on 10.x: three at every channel, also where fewer exist."""
    y = mpscnn.CrossChannelNormalization(3, alpha=1.0, beta=1.0, delta=0.0)(np.ones((1, 1, 1, 5), np.float32))
    np.testing.assert_allclose(y[0, 0, 0], [3 / 2, 1, 1, 1, 3 / 2], rtol=1e-6)


def test_softmax() -> None:
    """charon, page on 10.x."""
    y = mpscnn.SoftMax()(np.array([1, 2], np.float32).reshape(1, 1, 1, 2))
    np.testing.assert_allclose(y.ravel(), [0.268941432, 0.731058598], rtol=1e-6)


def test_hyperbolic_tangent() -> None:
    """charon, page on 10.x: a = 3, b = 0.5."""
    x = np.linspace(-4, 4, 9, dtype=np.float32).reshape(1, 1, 9, 1)
    np.testing.assert_allclose(mpscnn.NeuronTanH(3.0, 0.5)(x), 3 * np.tanh(0.5 * x.astype(float)), rtol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "values"),
    [
        ("NeuronReLU", {"a": 0.0}),
        ("SpatialNormalization", {"alpha": 1.0, "beta": 5.0, "delta": 1.0}),
        ("CrossChannelNormalization", {"alpha": 1.0, "beta": 5.0, "delta": 1.0}),
        (
            "LocalContrastNormalization",
            {"alpha": 0.0, "beta": 0.5, "delta": 0.000976562, "p0": 1.0, "pm": 0.0, "ps": 1.0},
        ),
    ],
)
def test_fresh_properties(kernel: str, values: dict[str, float]) -> None:
    """charon, page on 10.x: properties of new kernels."""
    parameters = inspect.signature(getattr(mpscnn, kernel)).parameters
    assert {name: parameters[name].default for name in values} == pytest.approx(values, rel=1e-6)


def test_bilinear_upsampling() -> None:
    """webml-polyfill #537, macOS 10.14: beyond the last row and column the source is zero."""
    x = np.array([[[3, 4], [6, 10]], [[9, 10], [12, 16]]], np.float32)[None]
    rows = mpscnn.UpsamplingBilinear(2)(x)[0]
    np.testing.assert_array_equal(rows[0].ravel(), [3, 4, 4.5, 7, 6, 10, 3, 5])
    np.testing.assert_array_equal(rows[1].ravel()[:6], [6, 7, 7.5, 10, 9, 13])


def test_division_by_zero() -> None:
    """BinopLayerTests, float32."""
    a, b = (np.array(values, np.float32).reshape(1, 1, 1, 3) for values in ([1, -1, 0], [0, 0, 0]))
    np.testing.assert_array_equal(mpscnn.Divide()(a, b).ravel(), [np.inf, -np.inf, np.nan])
