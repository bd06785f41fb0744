# SPDX-License-Identifier: Apache-2.0
"""Devices, and the command buffers that they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from . import _core
from ._public import public

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from . import _typing as t


@public
class Device(_core._Device):
    """A Metal device with its own command queue.

    ``Device()`` is the system's default device; ``Device.all()`` lists all of them. Two objects of the same device
    compare equal.

    Parameters
    ----------
    name : str, optional
        Name of a device of ``Device.all()``; on Linux also "cuda:0", "cuda:1", ... for NVIDIA's GPUs.

    Raises
    ------
    ValueError
        'Device: name ("tpu") is not one of "AMD EPYC (oneDNN 3.2)", "null device".', "The device cuda:0 cannot be made:
        libcuda.so.1 cannot be opened: NVIDIA's driver is not installed."
    RuntimeError
        "Device: this machine has no Metal device."
    NotImplementedError
        "Device: ... has memory of its own, ...": the GPU must be able to access arrays and buffers in CPU memory.

    Source
    ------
    Metal/MTLDevice.h, MTLDevice. Linux: openmps.
    """

    __slots__ = ()

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)

    @staticmethod
    def all() -> list[Device]:
        """Return all devices that share the CPU's memory, the default one first."""
        return _core._Device._all()

    def reset_peak_bytes(self) -> None:
        """Set peak_bytes to allocated_bytes."""
        self._reset_peak_bytes()

    def free_cached_bytes(self) -> None:
        """Return cached memory to the system; raise NotImplementedError if the device does not report it."""
        self._free_cached_bytes()


@public
class CommandBuffer(_core._CommandBuffer):
    """A list of encoded kernels that the device runs in order.

    As a context manager it commits and waits on exit; if the block raises an exception, nothing is run.

    Parameters
    ----------
    device : Device, default Device()
    label : str, optional
        Name in errors and traces.

    Raises
    ------
    TypeError
        "label (int) is not a str.", "CommandBuffer: handler (int) is not callable."
    RuntimeError
        "CommandBuffer: 64 command buffers of the device are open, the maximum: ..." (neither committed nor
        freed), "CommandBuffer: commit() was called already; ...", "CommandBuffer: wait() was called before commit().",
        and from ``wait()`` the device's error message if the work has failed.

    Source
    ------
    Metal/MTLCommandBuffer.h, MTLCommandBuffer.
    """

    __slots__ = ()

    def __init__(self, device: Device | None = None, label: str | None = None) -> None:
        super().__init__(device, label)

    def commit(self) -> None:
        """Submit the work to the device, only once; the GIL is released meanwhile."""
        self._commit()

    def wait(self) -> None:
        """Wait until the work is done; raise RuntimeError if it failed."""
        self._wait()

    def add_completed_handler(self, handler: Callable[[], object]) -> None:
        """Register a function that is called when the work is done, on a device thread or a waiting one.

        Call this before commit(). Exceptions of the handler go to sys.unraisablehook.
        """
        self._add_completed_handler(handler)

    @property
    def status(self) -> t.CommandBufferStatus:
        """Progress of the work."""
        return cast("t.CommandBufferStatus", self._status)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if type is None:
            self._finish()
