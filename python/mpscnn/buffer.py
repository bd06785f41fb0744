# SPDX-License-Identifier: Apache-2.0
"""Buffers: memory that the device and NumPy share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._public import OnDevice, public

if TYPE_CHECKING:
    from typing import SupportsIndex

    from numpy.typing import DTypeLike, NDArray

    from . import _typing as t
    from .device import Device


@public
class Buffer(_core._Buffer, OnDevice):
    """Memory that the device and NumPy share.

    Parameters
    ----------
    source : int or array
        Length in bytes, >= 1, of a zero-filled buffer; or an array whose memory is used in place: C-contiguous,
        writable and occupying whole pages, such as one of ``mpscnn.empty()``; or an array of any length in the GPU's
        memory.
    device : Device, default Device()

    Sharing
    -------
    ``np.asarray(buffer)``, ``memoryview(buffer)``, ``torch.from_dlpack(buffer)`` and other functions that accept the
    buffer protocol or DLPack return writable views, shape (nbytes,), uint8, which keep the buffer alive.
    ``buffer.numpy()`` returns a view with another dtype and shape. ``np.asarray(buffer, dtype)`` copies: it converts
    each byte to a number of that dtype. The memory of a GPU's buffer is page-locked memory of the host, which the GPU
    accesses: ``__cuda_array_interface__`` is that of the GPU. A buffer over an array in the GPU's memory is not visible
    to the host: ``numpy()`` raises BufferError, and ``torch.from_dlpack(buffer)`` is a CUDA tensor.

    Raises
    ------
    ValueError
        "Buffer: length (0) is less than the minimum (1)."
    BufferError
        "Buffer: the array cannot be shared: its address (...) is not a multiple of the page size (4096); ..."
    MemoryError
        "Buffer: length (...) is greater than the device's max_buffer_bytes (...)."

    Source
    ------
    Metal/MTLBuffer.h, MTLBuffer.
    """

    __slots__ = ()

    def __init__(self, source: SupportsIndex | t.Array, *, device: Device | None = None) -> None:
        super().__init__(source, device)

    def numpy(self, dtype: DTypeLike | None = "uint8", shape: t.Shape | None = None) -> NDArray[Any]:
        """Return a view of the buffer's memory, not a copy, with the given dtype and shape."""
        return self._numpy(dtype, shape)

    def _copied(self, dtype: DTypeLike, shape: t.Shape | None = None) -> NDArray[Any]:
        """Return a copy of the memory, which stays where it is: numpy() would move it to the host."""
        array = np.empty(self.nbytes // np.dtype(dtype).itemsize, dtype)
        self._read(array)
        return array if shape is None else array.reshape(shape)

    def _fill(self, values: NDArray[Any]) -> None:
        """Copy an array of the buffer's length into the memory, likewise."""
        self._write(np.ascontiguousarray(values))

    def __len__(self) -> int:
        return self.nbytes
