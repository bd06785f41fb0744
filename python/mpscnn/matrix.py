# SPDX-License-Identifier: Apache-2.0
"""Matrices: rows of numbers that the device and NumPy share, and copies between matrices and images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from . import _checks, _core
from ._public import ArrayLike, public

if TYPE_CHECKING:
    from typing import SupportsIndex

    from numpy.typing import DTypeLike, NDArray

    from . import _typing as t
    from .device import CommandBuffer, Device
    from .image import Image


@public
class Matrix(_core._Matrix, ArrayLike):
    """Rows of numbers that the device and NumPy share.

    ``Matrix(rows, columns)`` is zero-filled, ``Matrix.from_array(x)`` has the numbers of an array.

    Parameters
    ----------
    rows, columns : int, >= 1
    dtype : dtype, default float32
        float32, float16, uint8, uint16, int32 or uint32.
    device : Device, default Device()

    Sharing
    -------
    ``matrix.numpy()``, ``np.asarray(matrix)``, ``memoryview(matrix)`` and ``torch.from_dlpack(matrix)`` return writable
    views of the matrix's memory, shape (rows, columns), which keep the matrix alive.

    Raises
    ------
    ValueError
        "Matrix: rows (0) is less than the minimum (1)."
    TypeError
        "Matrix: dtype (float64) is not float32, float16, uint8, uint16, int32 or uint32."
    MemoryError
        "Matrix: ... rows of ... float32 need ... bytes, more than the device's max_buffer_bytes (...)."
    RuntimeError
        "Matrix: the command buffer that writes it has not completed ..."

    Source
    ------
    MPSCore/MPSMatrix.h, MPSMatrix and MPSTemporaryMatrix.
    """

    __slots__ = ()

    def __init__(
        self,
        rows: SupportsIndex,
        columns: SupportsIndex,
        dtype: DTypeLike | None = "float32",
        *,
        device: Device | None = None,
    ) -> None:
        super().__init__(rows, columns, dtype, device)

    @staticmethod
    def from_array(x: t.Array, *, copy: bool | None = None, device: Device | None = None) -> Matrix:
        """Return a matrix with the numbers of an array.

        Parameters
        ----------
        x : array, shape (rows, columns)
        copy : bool, optional
            None shares the memory if possible, True copies, False shares or raises BufferError with the reason. As for
            Buffer, the array must be C-contiguous, writable and occupy whole pages to be shared.
        device : Device, default Device()
        """
        copy = None if copy is None else _checks.boolean(copy, "copy")
        if not copy:
            try:
                return _core._Matrix._share(x, device)
            except BufferError:
                if copy is False:
                    raise
        given = _core._view(x, "x")
        if given.ndim != 2:
            raise ValueError(f"Matrix: x.ndim ({given.ndim}) is not 2.")
        rows, columns = given.shape
        matrix = Matrix(rows, columns, given.dtype, device=device)
        matrix.numpy()[...] = given
        return matrix

    @staticmethod
    def temporary(
        command_buffer: CommandBuffer, rows: SupportsIndex, columns: SupportsIndex, dtype: DTypeLike | None = "float32"
    ) -> Matrix:
        """Return a matrix that is valid on one command buffer, until its read_count is 0 (MPSTemporaryMatrix).

        The CPU cannot read it.
        """
        return _core._Matrix._temporary(command_buffer, rows, columns, dtype)

    def numpy(self) -> NDArray[Any]:
        """Return a view of the matrix's memory, shape (rows, columns); not a copy."""
        return self._numpy()


@public
class ImageCopyToMatrix(_core._ImageCopyToMatrix):
    """Copy of images to rows of a matrix: image i to row origin[0] + i.

    Parameters
    ----------
    layout : "CHW" or "HWC", default "CHW"
        Order of the values in a row.
    origin : (int, int), default (0, 0)
        Row and column of the first value of the first image.
    device : Device, default Device()

    Raises
    ------
    ValueError
        "ImageCopyToMatrix: 2 rows of 140 values from origin (0, 0) on end beyond out.shape (1, 140)."
    TypeError
        "ImageCopyToMatrix: out.dtype (float16) is not that of x (float32)."

    Source
    ------
    MPSImage/MPSImageCopy.h, MPSImageCopyToMatrix.
    """

    __slots__ = ()

    def __init__(self, layout: t.RowLayout = "CHW", *, origin: t.Shape = (0, 0), device: Device | None = None) -> None:
        super().__init__(layout, origin, device)

    @property
    def layout(self) -> t.RowLayout:
        """Order of the values in a row."""
        return cast("t.RowLayout", self._layout)

    def __call__(self, x: Image, out: Matrix | None = None) -> Matrix:
        """Copy and wait for the result.

        Parameters
        ----------
        x : Image
        out : Matrix, optional
            Matrix of x's dtype, written in place and returned. None: a new matrix that ends with the last copied value
            and is zero elsewhere.
        """
        return self._call(x, out)

    def encode(
        self, command_buffer: CommandBuffer, x: Image, out: Matrix | None = None, temporary: bool = False
    ) -> Matrix:
        """Append the copy to a command buffer.

        The result may be read when the command buffer has completed; a temporary one on that command buffer only, as
        many times as its read_count (1).
        """
        return self._encode(command_buffer, x, out, temporary)


@public
class MatrixCopyToImage(_core._MatrixCopyToImage):
    """Copy of rows of a matrix to images: row origin[0] + i to image i.

    Parameters
    ----------
    layout : "CHW" or "HWC", default "CHW"
        Order of the values in a row.
    origin : (int, int), default (0, 0)
        Row and column of the first value of the first image.
    device : Device, default Device()

    Raises
    ------
    ValueError
        "MatrixCopyToImage: 2 rows of 140 values from origin (0, 0) on end beyond x.shape (1, 140)."
    TypeError
        "MatrixCopyToImage: x.dtype (float16) is not that of out (float32)."

    Source
    ------
    MPSImage/MPSImageCopy.h, MPSMatrixCopyToImage.
    """

    __slots__ = ()

    def __init__(self, layout: t.RowLayout = "CHW", *, origin: t.Shape = (0, 0), device: Device | None = None) -> None:
        super().__init__(layout, origin, device)

    @property
    def layout(self) -> t.RowLayout:
        """Order of the values in a row."""
        return cast("t.RowLayout", self._layout)

    def __call__(self, x: Matrix, out: Image) -> Image:
        """Copy and wait for the result.

        Parameters
        ----------
        x : Matrix
        out : Image
            Image of x's dtype, written and returned. Its shape determines how the rows are read.
        """
        self._call(x, out)
        return out

    def encode(self, command_buffer: CommandBuffer, x: Matrix, out: Image) -> Image:
        """Append the copy to a command buffer; ``out`` may be read when that has completed."""
        self._encode(command_buffer, x, out)
        return out
