# SPDX-License-Identifier: Apache-2.0
"""Convolutions with weights of one bit that cannot be made or called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mpscnn

from . import Array, Error, X, check_row

WORDS = Array((8, 3, 3, 1), "uint32")

ROWS = [
    *[
        error
        for kernel in ("BinaryConvolution", "BinaryFullyConnected")
        for error in (
            Error(
                kernel, weight=(8, 4, 3, 3), raises=TypeError, match=r"weight\.dtype \(float32\) is not uint32, words"
            ),
            Error(kernel, weight=Array((8, 3, 1), "uint32"), raises=ValueError, match=r"weight\.ndim \(3\) is not 4"),
            Error(
                kernel, weight=WORDS, in_channels=33, raises=ValueError, match=r"in_channels \(33\) is not in \[1, 32\]"
            ),
            Error(kernel, weight=WORDS, in_channels=0, raises=ValueError, match=r"in_channels \(0\) is less than"),
            Error(
                kernel,
                weight=WORDS,
                type="or",
                raises=ValueError,
                match=r'type \("or"\) is not one of "binary_weights"',
            ),
            Error(kernel, weight=WORDS, bias=(7,), raises=ValueError, match=r"bias\.shape \(7,\) is not \(8,\)"),
            Error(
                kernel, weight=WORDS, scale=np.ones(7), raises=ValueError, match=r"scale\.shape \(7,\) is not \(8,\)"
            ),
            Error(kernel, weight=WORDS, scale=np.ones((8, 1)), raises=ValueError, match=r"scale\.ndim \(2\) is not 1"),
            Error(
                kernel,
                weight=WORDS,
                in_channels=4,
                input_bias=np.ones(8),
                raises=ValueError,
                match=r"input_bias\.shape \(8,\) is not \(4,\)",
            ),
            Error(
                kernel,
                weight=WORDS,
                input_scale=np.ones(4, np.int32),
                raises=TypeError,
                match=r"input_scale\.dtype \(int32\) is not float16",
            ),
            Error(
                kernel, weight=WORDS, beta_scaling=1, raises=TypeError, match=r"beta_scaling \(1\) is not True or False"
            ),
            Error(
                kernel, weight=WORDS, x=X, raises=ValueError, match=r"x has 4 channels to read; .* in_channels \(32\)"
            ),
        )
    ],
    Error(
        "BinaryConvolution",
        weight=WORDS,
        in_channels=4,
        x=(1, 2, 7, 4),
        raises=ValueError,
        match=r"the result has 0 x 5 pixels",
    ),
    Error(
        "BinaryFullyConnected",
        weight=WORDS,
        in_channels=4,
        x=X,
        raises=ValueError,
        match=r"x has 5 x 7 pixels; the weights cover kernel_size \(3, 3\)",
    ),
    Error("Convolution", weight=WORDS, raises=TypeError, match=r"weight\.dtype \(uint32\) is not float32, float16"),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)


def source(words: Any, **options: Any) -> SimpleNamespace:
    described = {"groups": 1} | options
    descriptor = mpscnn.ConvolutionDescriptor((3, 3), 40, 8, **described)
    return SimpleNamespace(load=lambda: True, purge=lambda: None, descriptor=descriptor, weights=words)


def test_a_data_source_of_numbers() -> None:
    with pytest.raises(TypeError, match=r"weights\.dtype \(float32\) is not uint32, words of 32 weights"):
        mpscnn.BinaryConvolution(source(np.ones((8, 3, 3, 40), np.float32)))


def test_a_data_source_of_bits_for_a_kernel_that_takes_numbers() -> None:
    with pytest.raises(TypeError, match=r"weights\.dtype \(uint32\) is not float32, float16 or uint8"):
        mpscnn.Convolution(source(np.ones((8, 3, 3, 2), np.uint32)))


def test_a_data_source_with_too_few_words() -> None:
    with pytest.raises(ValueError, match=r"have 72 elements; the descriptor asks for 144 \(OHWI \(8, 3, 3, 2\)\)"):
        mpscnn.BinaryConvolution(source(np.ones((8, 3, 3, 1), np.uint32)))


def test_a_descriptor_that_weights_of_one_bit_cannot_have() -> None:
    with pytest.raises(ValueError, match=r"groups, sub_pixel_scale_factor or batch_norm, which weights of one bit"):
        mpscnn.BinaryConvolution(source(np.ones((8, 3, 3, 2), np.uint32), sub_pixel_scale_factor=2))


def test_what_a_data_source_provides_is_not_given_twice() -> None:
    with pytest.raises(ValueError, match=r"in_channels was given together with a data source"):
        mpscnn.BinaryConvolution(source(np.ones((8, 3, 3, 2), np.uint32)), in_channels=40)


@pytest.mark.parametrize(("layout", "ndim"), [("OIHW", 3), ("OHWI", 5), ("OI", 4)])
def test_packing_the_wrong_number_of_axes(layout: str, ndim: int) -> None:
    with pytest.raises(ValueError, match=rf"weight\.ndim \({ndim}\) is not {len(layout)} \({layout}\)"):
        mpscnn.pack_bits(np.ones((2,) * ndim), layout=layout)


def test_packing_an_unknown_layout() -> None:
    with pytest.raises(ValueError, match=r'layout \("HWIO"\) is not one of "OIHW"'):
        mpscnn.pack_bits(np.ones((2, 2, 2, 2)), layout="HWIO")
