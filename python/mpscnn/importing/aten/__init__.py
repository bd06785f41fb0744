# SPDX-License-Identifier: Apache-2.0
"""The supported ATen operators: OPERATORS, by name, as functions of a Builder and Arguments.

These include the operators that torch.export writes and those of the core ATen set, after run_decompositions(). There
is one file per family, as in mpscnn.importing.ops, which defines the semantics.
"""

from __future__ import annotations

from collections.abc import Collection

from . import activation, arithmetic, convolution, normalization, pooling, quantization, reduction, resize, shape
from .registry import OPERATORS

__all__ = [
    "NAMES",
    "OPERATORS",
    "activation",
    "arithmetic",
    "convolution",
    "normalization",
    "pooling",
    "quantization",
    "reduction",
    "resize",
    "shape",
]

# Names of the supported operators.
NAMES: Collection[str] = OPERATORS.keys()
