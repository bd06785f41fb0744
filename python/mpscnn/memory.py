# SPDX-License-Identifier: Apache-2.0
"""Memory of a device: ``mpscnn.memory.current()``, ``peak()``, ``cached()``, in bytes.

Counted are images and buffers that the device allocates. Arrays that images share are not among them, nor are weights
that kernels keep in the process's own memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    from ._core import Device

__all__ = ["cached", "clear", "current", "peak", "reset"]


def _of(device: Device | None) -> Device:
    return _core.Device() if device is None else device


def current(device: Device | None = None) -> int:
    """Bytes in use. Source: Metal/MTLDevice.h, currentAllocatedSize."""
    return _of(device).allocated_bytes


def peak(device: Device | None = None) -> int:
    """Bytes: the most that have been in use at once since the last ``reset()``.

    Where the device does not count this itself (Apple's do not), as seen whenever work is committed.
    """
    return _of(device).peak_bytes


def cached(device: Device | None = None) -> int:
    """Bytes that are free and kept for the next images. NotImplementedError where the device does not tell."""
    return _of(device).cached_bytes


def reset(device: Device | None = None) -> None:
    """Let ``peak()`` begin again at ``current()``."""
    _of(device).reset_peak_bytes()


def clear(device: Device | None = None) -> None:
    """Give what is cached back to the system. NotImplementedError where the device does not tell."""
    _of(device).free_cached_bytes()
