# SPDX-License-Identifier: Apache-2.0
"""Buffers: memory that the device and NumPy share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._public import ArrayLike, public

if TYPE_CHECKING:
    from typing import SupportsIndex

    from numpy.typing import DTypeLike, NDArray

    from . import _typing as t
    from .device import Device


@public
class Buffer(_core._Buffer, ArrayLike):
    """Memory that the device and NumPy share.

    Parameters
    ----------
    source : int or array
        Length in bytes, >= 1, of a zero-filled buffer; or an array whose memory is used in place: C-contiguous,
        writable and occupying whole pages, such as one of ``mpscnn.empty()``.
    device : Device, default Device()

    Sharing
    -------
    ``np.asarray(buffer)``, ``memoryview(buffer)``, ``torch.from_dlpack(buffer)`` and other functions that accept the
    buffer protocol or DLPack return writable views, shape (nbytes,), uint8, which keep the buffer alive.
    ``buffer.numpy()`` returns a view with another dtype and shape. ``np.asarray(buffer, dtype)`` copies: it converts
    each byte to a number of that dtype.

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

    def __len__(self) -> int:
        return self.nbytes
