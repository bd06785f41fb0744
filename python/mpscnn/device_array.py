# SPDX-License-Identifier: Apache-2.0
"""Arrays in the memory of a GPU, which the host cannot access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._public import ArrayLike, public

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CPU = (1, 0)  # DLPack's device type and number
_LEGACY_STREAM = 1


@public
class DeviceArray(_core._DeviceArray, ArrayLike):
    """Array in the memory of a GPU, which the host cannot access; calls with arrays of the GPU return it.

    ``torch.from_dlpack(y)``, ``cupy.from_dlpack(y)`` and libraries that read ``__cuda_array_interface__`` use the
    memory without a copy. ``y.numpy()`` and ``np.asarray(y)`` copy it to the host. The values are complete when the
    program gets the array.

    Raises
    ------
    TypeError
        "x (DeviceArray) lies on CUDA device 1, not on CUDA device 0 (NVIDIA H100).", from calls that take it.
    BufferError
        "DeviceArray: copy=False was asked for, and dl_device (1, 0) is not its (2, 0)."

    Source
    ------
    https://dmlc.github.io/dlpack, https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("DeviceArray: calls with arrays of a GPU make it; Image and Buffer are made by programs.")

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def numpy(self) -> NDArray[Any]:
        """Return a copy in the host's memory."""
        return self._numpy()

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"<mpscnn.DeviceArray {self.shape} {self.dtype}>"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Address, shape, strides and type: version 3. No stream: the values are complete."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._address, self._is_read_only),
            "strides": self.strides,
            "stream": None,
            "version": 3,
        }

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Return a DLPack capsule of the memory: of a copy with (1, 0), the CPU, as ``dl_device``.

        The arguments are those of the protocol: stream, max_version, dl_device, copy.
        """
        return self._export(**kwargs)

    def _export(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device is not None and tuple(dl_device) != self._dlpack_device:
            if tuple(dl_device) != _CPU or copy is False:
                reason = f"dl_device {tuple(dl_device)} is not its {self._dlpack_device}"
                raise BufferError(f"DeviceArray: {'copy=False was asked for, and ' if copy is False else ''}{reason}.")
            return self.numpy().__dlpack__(max_version=max_version)
        if copy:
            raise BufferError("DeviceArray: __dlpack__ copies only to the CPU: pass dl_device=(1, 0).")
        default = stream is None or stream == _LEGACY_STREAM
        return self._capsule(max_version is not None and max_version[0] >= 1, _LEGACY_STREAM if default else 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (2, n) for CUDA device n: DLPack's type and number of the device."""
        return self._dlpack_device
