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
        Length in bytes, >= 1 (zero-filled), or an array whose own memory becomes the buffer: C-contiguous, writable, on
        whole pages, as ``mpscnn.empty()`` makes them.
    device : Device, optional

    Sharing
    -------
    ``np.asarray(buffer)``, ``memoryview(buffer)``, ``torch.from_dlpack(buffer)`` and whatever else takes the buffer
    protocol or DLPack see the same bytes, shape (nbytes,), uint8, writable, and hold the buffer. ``buffer.numpy()``
    reads them as another dtype and shape; ``np.asarray(buffer, dtype)`` converts each byte to a number of that dtype,
    which is a copy.

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
        """Return a view of the buffer's memory, not a copy, as another dtype and shape if given."""
        return self._numpy(dtype, shape)

    def __len__(self) -> int:
        return self.nbytes
