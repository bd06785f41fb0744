# SPDX-License-Identifier: Apache-2.0
"""Weights of one bit: packing, data sources written in Python, and weights that the built-in one uses in place."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import mpscnn
from support import random


@pytest.mark.parametrize("channels", [1, 8, 31, 32, 33, 70])
@pytest.mark.parametrize("layout", ["OIHW", "OHWI"])
def test_packing(channels: int, layout: str) -> None:
    weight = np.random.default_rng(channels).choice([-1.0, 0.0, 0.5, 1.0], (3, 2, 4, channels))
    given = weight.transpose(0, 3, 1, 2) if layout == "OIHW" else weight
    words = mpscnn.pack_bits(given, layout=layout)
    assert words.dtype == np.uint32
    assert words.shape == (3, 2, 4, -(-channels // 32))
    assert words.flags.c_contiguous
    bits = (words[..., np.arange(channels) // 32] >> (np.arange(channels) % 32).astype(np.uint32)) & 1
    np.testing.assert_array_equal(bits == 1, weight > 0)
    if channels % 32:
        assert not (words[..., -1] >> np.uint32(channels % 32)).any()


def test_a_linear_layer() -> None:
    weight, x = np.sign(random((5, 40))), random((2, 1, 1, 40))
    kernel = mpscnn.BinaryFullyConnected(mpscnn.pack_bits(weight, layout="OI"), in_channels=40)
    wanted = np.where(x[:, 0, 0] < 0, -1, 1) @ np.where(weight > 0, 1, -1).T
    np.testing.assert_array_equal(kernel(x)[:, 0, 0], wanted)


def test_bits_beyond_the_last_channel_count_for_nothing() -> None:
    words = mpscnn.pack_bits(random((4, 5, 3, 3)))
    x = random((1, 6, 7, 5))
    for kind in ("xnor", "and", "binary_weights"):
        clean = mpscnn.BinaryConvolution(words, type=kind, in_channels=5)(x)
        dirty = mpscnn.BinaryConvolution(words | np.uint32(0xFFFFFFE0), type=kind, in_channels=5)(x)
        np.testing.assert_array_equal(clean, dirty)


def test_outside_of_the_source() -> None:
    """Out of bounds, u is 0 for any bias of the input: its bit is 1, its magnitude 0."""
    x, terms = np.full((1, 1, 1, 8), -1, np.float32), {"input_bias": [0.5], "in_channels": 8, "padding": 1}
    words = mpscnn.pack_bits(np.ones((1, 8, 3, 3)))
    assert mpscnn.BinaryConvolution(words, **terms)(x).item() == 8 * 8 - 8
    assert mpscnn.BinaryConvolution(words, type="and", **terms)(x).item() == 8 * 8
    assert mpscnn.BinaryConvolution(words, type="binary_weights", **terms)(x).item() == -4
    beta = mpscnn.BinaryConvolution(words, beta_scaling=True, **terms)(x).item()
    assert beta == pytest.approx((8 * 8 - 8) * 0.5 / 9)


def test_not_a_number_is_not_less_than_zero() -> None:
    x = np.full((1, 1, 1, 3), np.nan, np.float32)
    words = np.array([[[[0b101]]]], np.uint32)
    assert mpscnn.BinaryConvolution(words, in_channels=3)(x).item() == 1
    assert mpscnn.BinaryConvolution(words, in_channels=3, type="and")(x).item() == 2


def test_a_data_source() -> None:
    words, bias, x = mpscnn.pack_bits(random((8, 40, 3, 3))), random((8,)), random((1, 5, 6, 40))
    calls = []
    source = SimpleNamespace(
        load=lambda: calls.append("load"),
        purge=lambda: calls.append("purge"),
        descriptor=mpscnn.ConvolutionDescriptor((3, 3), 40, 8, activation="relu"),
        weights=words,
        bias=bias,
        label="first",
    )
    kernel = mpscnn.BinaryConvolution(source, padding=1, type="and")
    assert calls.count("load") == calls.count("purge") >= 1
    assert kernel.data_source is source
    assert kernel.label == "first" or kernel.label is None
    wanted = mpscnn.BinaryConvolution(words, bias, in_channels=40, padding=1, type="and", activation="relu")(x)
    np.testing.assert_array_equal(kernel(x), wanted)


def test_words_are_served_in_place() -> None:
    words = mpscnn.pack_bits(random((4, 8, 1, 1)))
    source = mpscnn.BinaryConvolution(words, in_channels=8).data_source
    source.load()
    assert np.shares_memory(source.weights, words)
    source.purge()


def test_weights_of_one_bit_are_not_reloaded() -> None:
    kernel = mpscnn.BinaryConvolution(mpscnn.pack_bits(random((4, 8, 1, 1))), in_channels=8)
    with pytest.raises(NotImplementedError, match=r"MPSCNNBinaryConvolution cannot reload its weights"):
        kernel.reload()
