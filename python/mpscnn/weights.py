# SPDX-License-Identifier: Apache-2.0
"""Reordering of weights, one-bit weights, and arrays that can always be shared with a device.

`reorder` and `empty` are functions in C, because a Python wrapper would take longer than reordering a small tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from . import _core
from ._public import in_c

if TYPE_CHECKING:
    from typing import TypeVar

    from numpy.typing import DTypeLike, NDArray

    from . import _typing as t

    _Out = TypeVar("_Out", bound=t.Array)

__all__ = ["empty", "pack_bits", "reorder", "reorder_linear"]


@overload
def reorder(
    array: t.Array,
    source: t.WeightLayout = "OIHW",
    target: t.WeightLayout = "OHWI",
    out: None = None,
    *,
    feature_map: t.Shape | None = None,
    copy: bool | None = None,
    threads: int | None = None,
) -> NDArray[Any]: ...
@overload
def reorder(
    array: t.Array,
    source: t.WeightLayout = "OIHW",
    target: t.WeightLayout = "OHWI",
    *,
    out: _Out,
    feature_map: t.Shape | None = None,
    copy: None = None,
    threads: int | None = None,
) -> _Out: ...
@overload
def reorder(
    array: t.Array,
    source: t.WeightLayout,
    target: t.WeightLayout,
    out: _Out,
    *,
    feature_map: t.Shape | None = None,
    copy: None = None,
    threads: int | None = None,
) -> _Out: ...
@in_c(_core.reorder)
def reorder(
    array: Any,
    source: Any = "OIHW",
    target: Any = "OHWI",
    out: Any = None,
    *,
    feature_map: Any = None,
    copy: Any = None,
    threads: Any = None,
) -> Any:
    """Reorder the axes of convolution weights.

    Elements are copied at memory speed and bit by bit (NaN payloads are kept), directly from the array into the result.
    By default, nothing is copied if they are in the right order already (1 x 1 windows, depth-wise weights). I counts
    the input channels of one group.

    Parameters
    ----------
    array : array, 4 axes in `source` order; float32, float16, bfloat16, float64, uint8, uint16, int32, uint32 or int64
        NumPy, DLPack (PyTorch, also with requires_grad), ``__array_interface__`` or the buffer protocol. Read in place
        with any strides, including those of flipped and broadcast views.
    source, target : str, default "OIHW" and "OHWI"
        ``OIHW``: PyTorch. ``OHWI``: MPS. ``HWIO``: TensorFlow, Keras, Flax. ``IOHW``: PyTorch's transposed convolution
        (in, out, h, w); only axes move, kernels are not rotated. ``C1HW``: depth-wise, (C, 1, H, W).
    out : array of the reordered shape and of the dtype of `array`, optional
        Written in place (any strides) and returned. Its memory must not overlap that of `array`.
    feature_map : (C, H, W), elements, optional
        `array` has the weights of a linear layer after a flattened feature map of that shape, with two axes:
        (O, C*H*W) for ``OIHW``, (O, H*W*C) for ``OHWI``, (H*W*C, O) for ``HWIO``.
    copy : bool, optional
        None: a view of `array` if its elements are in the right order without gaps, else a new array. True: always a
        new array. False: a view, or BufferError. Cannot be combined with `out`.
    threads : int >= 0, optional
        Max number of threads; default: as many as OpenMP has. The calling thread alone copies less than 512 KB, and
        less than 8 MB if the last such call is more than a millisecond ago, because sleeping threads wake too slowly.

    Returns
    -------
    array, shape of `array` in `target` order, dtype of `array`
        `out`, a view (read-only if `array` is), or a new NumPy array, allocated as by `empty` from 64 KB on.

    Raises
    ------
    ValueError
        "reorder: array.ndim (3) is not 4.", "source ('OIWH') is not one of OIHW, OHWI, HWIO, IOHW, C1HW.",
        "reorder: out.shape (2, 3) is not ...", "out is read-only.", "reorder: copy (True) and out exclude each other.",
        "reorder: the memory of out overlaps that of array."
    BufferError
        "reorder: array (64, 3, 7, 7) has to be copied from OIHW to OHWI order, which copy=False rules out."
    TypeError
        "array (list) is not an array: ..."  "array.dtype (int8) is not uint8, ..."
        "reorder: out.dtype (float16) is not array.dtype (float32)."
    MemoryError
        There is not enough memory for the result.

    See Also
    --------
    empty

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h: weights[outputChannels][kernelHeight][kernelWidth][inputChannels / groups].

    Examples
    --------
    >>> import numpy as np, mpscnn
    >>> weight = np.zeros((64, 3, 7, 5), np.float32)
    >>> mpscnn.reorder(weight).shape
    (64, 7, 5, 3)
    >>> mpscnn.reorder(np.zeros((10, 512 * 7 * 7), np.float32), feature_map=(512, 7, 7)).shape
    (10, 7, 7, 512)
    """


@overload
def reorder_linear(
    array: t.Array, feature_map: t.Shape, out: None = None, *, copy: bool | None = None, threads: int | None = None
) -> NDArray[Any]: ...
@overload
def reorder_linear(
    array: t.Array, feature_map: t.Shape, out: _Out, *, copy: None = None, threads: int | None = None
) -> _Out: ...
@in_c(_core.reorder_linear)
def reorder_linear(array: Any, feature_map: Any, out: Any = None, *, copy: Any = None, threads: Any = None) -> Any:
    """Reorder the weights of a linear layer after a flattened feature map, for a fully connected kernel.

    The same as ``reorder(array, "OIHW", "OHWI", out, feature_map=feature_map, copy=copy, threads=threads)``.

    Parameters
    ----------
    array : array, shape (O, C*H*W), any dtype of `reorder`
        Weights of ``torch.nn.Linear`` after ``flatten`` of a (C, H, W) feature map. Read in place.
    feature_map : (C, H, W), elements
    out : array, shape (O, H, W, C), dtype of `array`, optional
        Written in place and returned.
    copy : bool, optional
    threads : int >= 0, optional

    Returns
    -------
    array, shape (O, H, W, C), dtype of `array`

    Raises
    ------
    ValueError
        "reorder: array.shape[1] (24) is not the size of feature_map (2, 3, 5), 30."

    See Also
    --------
    reorder

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNFullyConnected.
    """


@in_c(_core.empty)
def empty(shape: t.Shape, dtype: DTypeLike | None = "float32") -> NDArray[Any]:
    """Return an uninitialized array whose memory can always be shared with a device.

    The array occupies whole pages that contain nothing else, and huge pages if it is large. Up to 64 MB of freed arrays
    are kept and reused for new ones.

    Parameters
    ----------
    shape : int or sequence of int, elements
    dtype : dtype or str, default "float32"
        uint8, uint16, int32, uint32, int64, float16, bfloat16 (needs ml_dtypes), float32 or float64.

    Returns
    -------
    numpy.ndarray, C-contiguous, page-aligned

    Raises
    ------
    ValueError
        "empty: shape (-1,) has a negative extent."
    TypeError
        "dtype (complex64) is not uint8, ..."
    MemoryError
        "4398046511104 bytes for an array of shape (1099511627776,) are not available."

    Source
    ------
    Metal/MTLDevice.h, newBufferWithBytesNoCopy:length:options:deallocator: takes page-aligned memory of whole pages.
    """
    raise NotImplementedError  # the function in C replaces it


def pack_bits(weight: Any, *, layout: str = "OIHW") -> NDArray[np.uint32]:
    """Pack the weights of a binary convolution into bits: 32 input channels in a word, lowest bit first.

    Parameters
    ----------
    weight : array with the axes of `layout`: shape (O, I, H, W), (O, H, W, I) or (O, I)
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
