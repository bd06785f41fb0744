# SPDX-License-Identifier: Apache-2.0
"""The ATen operators that kernels compute: OPERATORS, by name, as functions of a Builder and Arguments.

Both the operators that torch.export writes and those of the core ATen set, after run_decompositions(). A file for each
family, as in mpscnn.importing.ops, which says what they mean.
"""

from __future__ import annotations

from collections.abc import Collection

from . import activation, arithmetic, convolution, normalization, pooling, reduction, resize, shape
from .registry import OPERATORS

__all__ = [
    "NAMES",
    "OPERATORS",
    "activation",
    "arithmetic",
    "convolution",
    "normalization",
    "pooling",
    "reduction",
    "resize",
    "shape",
]

# What is known, for those who ask whether a model can be imported.
NAMES: Collection[str] = OPERATORS.keys()
