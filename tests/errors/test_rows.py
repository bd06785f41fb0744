# SPDX-License-Identifier: Apache-2.0
"""The rows of all files together."""

from __future__ import annotations

import mpscnn

from . import (
    test_binary_convolutions,
    test_calls,
    test_convolutions,
    test_normalizations,
    test_other_kernels,
    test_pooling,
    test_reductions,
    test_resampling,
    test_reshaping,
    test_softmax_dropout,
    test_sources,
)

FILES = (
    test_binary_convolutions,
    test_calls,
    test_convolutions,
    test_normalizations,
    test_other_kernels,
    test_pooling,
    test_reductions,
    test_resampling,
    test_reshaping,
    test_softmax_dropout,
    test_sources,
)
ROWS = [row for file in FILES for row in file.ROWS]


def test_every_kernel_has_an_error_row() -> None:
    assert {row.kernel for row in ROWS} == set(mpscnn.kernels.KERNELS)


def test_rows_differ() -> None:
    texts = [repr(row) for row in ROWS]
    assert sorted(set(texts)) == sorted(texts)
