# SPDX-License-Identifier: Apache-2.0
"""Memory of a device in bytes: ``mpscnn.memory.current()``, ``peak()``, ``cached()``.

The numbers include images and buffers that the device allocates: images between the kernels of networks, temporary
images, scratch. They do not include memory that images share with arrays (on Linux all images that Python makes or
receives), nor weights in the process's own memory.
"""

from __future__ import annotations

from . import _checks
from .device import Device

__all__ = ["cached", "clear", "current", "peak", "reset"]


def _of(device: Device | None) -> Device:
    return Device() if device is None else _checks.instance(device, "device", Device)


def current(device: Device | None = None) -> int:
    """Return the memory in use.

    Parameters
    ----------
    device : Device, optional
        Default: the system's default device.

    Returns
    -------
    int, bytes

    Raises
    ------
    TypeError
        'device (str) is not a Device: give Device("gpu").'
    RuntimeError
        "Device: this machine has no Metal device."

    Source
    ------
    Metal/MTLDevice.h, currentAllocatedSize.

    Examples
    --------
    >>> import mpscnn
    >>> before = mpscnn.memory.current()
    >>> buffer = mpscnn.Buffer(4096)
    >>> mpscnn.memory.current() - before
    4096
    """
    return _of(device).allocated_bytes


def peak(device: Device | None = None) -> int:
    """Return the max memory in use since the last ``reset()``.

    Devices that do not track this (Apple's) are sampled whenever work is committed.

    Parameters
    ----------
    device : Device, optional
        Default: the system's default device.

    Returns
    -------
    int, bytes

    Raises
    ------
    TypeError, RuntimeError
        As in ``current()``.

    Source
    ------
    csrc/core/device/device.mm; currentAllocatedSize on Apple's devices.
    """
    return _of(device).peak_bytes


def cached(device: Device | None = None) -> int:
    """Return the memory that is free but kept for later images.

    Parameters
    ----------
    device : Device, optional
        Default: the system's default device.

    Returns
    -------
    int, bytes

    Raises
    ------
    NotImplementedError
        The device does not report it.
    TypeError, RuntimeError
        As in ``current()``.

    Source
    ------
    csrc/core/device/device.mm; Metal has no such property.
    """
    return _of(device).cached_bytes


def reset(device: Device | None = None) -> None:
    """Reset ``peak()`` to ``current()``.

    Parameters
    ----------
    device : Device, optional
        Default: the system's default device.

    Raises
    ------
    TypeError, RuntimeError
        As in ``current()``.

    Source
    ------
    csrc/core/device/device.mm; Metal has no such method.
    """
    _of(device).reset_peak_bytes()


def clear(device: Device | None = None) -> None:
    """Return cached memory to the system.

    Parameters
    ----------
    device : Device, optional
        Default: the system's default device.

    Raises
    ------
    NotImplementedError
        The device does not report cached memory.
    TypeError, RuntimeError
        As in ``current()``.

    Source
    ------
    csrc/core/device/device.mm; Metal has no such method.
    """
    _of(device).free_cached_bytes()
