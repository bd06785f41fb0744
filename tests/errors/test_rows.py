# SPDX-License-Identifier: Apache-2.0
"""Checks on the rows of all files."""

from __future__ import annotations

import importlib
import pkgutil

import mpscnn

from . import __path__

MODULES = [
    importlib.import_module(f"{__package__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
    if f"{__package__}.{module.name}" != __name__
]
ROWS = [row for module in MODULES for row in getattr(module, "ROWS", ())]


def test_every_kernel_has_an_error_row() -> None:
    assert {row.kernel for row in ROWS} == set(mpscnn.kernels.KERNELS)


def test_rows_differ() -> None:
    texts = [repr(row) for row in ROWS]
    assert sorted(set(texts)) == sorted(texts)
