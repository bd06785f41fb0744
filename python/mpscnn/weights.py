# SPDX-License-Identifier: Apache-2.0
"""Reordering of weights, one-bit weights, and arrays that can always be shared with a device.

`reorder` and `empty` are the extension's functions: a Python wrapper would take longer than a small tensor does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._core import empty, reorder, reorder_linear

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["empty", "pack_bits", "reorder", "reorder_linear"]


def pack_bits(weight: Any, *, layout: str = "OIHW") -> NDArray[np.uint32]:
    """Pack the weights of a binary convolution into bits: 32 input channels in a word, lowest bit first.

    Parameters
    ----------
    weight : array, shape (O, I, H, W), or as `layout` says, or (O, I)
        A bit is 1 if the number is greater than 0: weights may be +1 and -1, or 1 and 0.
    layout : str, default "OIHW"
        "OIHW", "OHWI", or "OI" for a fully connected layer of a single pixel.

    Returns
    -------
    array, shape (O, kH, kW, ceil(I / 32)), uint32
        Bits beyond the last channel are 0.

    Raises
    ------
    TypeError
        "weight (str) is not an array of numbers."
    ValueError
        'layout ("HWIO") is not one of "OIHW", "OHWI", "OI".', "weight.ndim (3) is not 4 (OIHW)."

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNBinaryConvolution.

    Examples
    --------
    >>> import numpy as np, mpscnn
    >>> mpscnn.pack_bits(np.array([[1, -1, 1]]), layout="OI")
    array([[[[5]]]], dtype=uint32)
    """
    if not isinstance(layout, str):
        raise TypeError(f"layout ({type(layout).__name__}) is not a str.")
    if layout not in ("OIHW", "OHWI", "OI"):
        raise ValueError(f'layout ("{layout}") is not one of "OIHW", "OHWI", "OI".')
    numbers = np.asarray(weight)
    if numbers.dtype.kind not in "biuf":
        raise TypeError(f"weight ({type(weight).__name__}) is not an array of numbers.")
    bits = numbers > 0
    if bits.ndim != len(layout):
        raise ValueError(f"weight.ndim ({bits.ndim}) is not {len(layout)} ({layout}).")
    if layout == "OI":
        bits = bits[:, None, None, :]
    elif layout == "OIHW":
        bits = bits.transpose(0, 2, 3, 1)
    packed = np.packbits(bits, axis=-1, bitorder="little")
    words = np.zeros((*packed.shape[:3], -(-packed.shape[3] // 4) * 4), np.uint8)
    words[..., : packed.shape[3]] = packed
    return words.view("<u4").astype(np.uint32, copy=False)
