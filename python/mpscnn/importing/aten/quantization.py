# SPDX-License-Identifier: Apache-2.0
"""Conversions between values and whole numbers, as PyTorch's quantization of exported programs (pt2e) writes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from ..ops import quantization
from ..torch_arguments import Arguments
from .registry import operator

DOMAIN = "quantized_decomposed."


def _number(a: Arguments, name: str) -> NDArray[np.float32]:
    """Return a number, or the number in a constant tensor."""
    value = a.operand(name)
    if isinstance(value, Tensor):
        raise UnmappedError(f"{name} is computed by the network, not a constant")
    array = np.asarray(value, np.float32)
    if array.size != 1:
        raise UnmappedError(f"{name} has {array.size} values for a computed tensor, not one")
    return array.reshape(())


@operator(f"{DOMAIN}quantize_per_tensor")
def _quantize(b: Builder, a: Arguments) -> Tensor:
    limits = a.integer("quant_min"), a.integer("quant_max")
    return quantization.quantize(b, a.source, _number(a, "scale"), _number(a, "zero_point"), limits)


@operator(f"{DOMAIN}dequantize_per_tensor")
def _dequantize(b: Builder, a: Arguments) -> Tensor:
    return quantization.dequantize(b, a.source, _number(a, "scale"), _number(a, "zero_point"))
