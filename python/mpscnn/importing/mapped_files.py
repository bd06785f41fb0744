# SPDX-License-Identifier: Apache-2.0
"""Contents of regular files, mapped or read."""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import weakref
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from .. import _core
from ..errors import InvalidModelError

if TYPE_CHECKING:
    from pathlib import Path


def opened(path: str | Path) -> tuple[BinaryIO, int]:
    """Open a regular file and return it with its size in bytes."""
    try:
        # O_NONBLOCK: opening a pipe would wait for a writer.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise InvalidModelError(f'"{path}" cannot be opened: {getattr(error, "strerror", None) or error}.') from error
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        os.close(number)
        raise InvalidModelError(f'"{path}" is not a regular file.')
    return os.fdopen(number, "rb"), status.st_size


class Pages:
    """A memory-mapped file, which lives as long as any array over it.

    It is used instead of Python's mmap, which keeps a file descriptor open for each file before Python 3.13.

    `writable`: writes stay in memory (copy on write) and never reach the file.
    """

    def __init__(self, file: BinaryIO, size: int, *, writable: bool = False) -> None:
        access, flags = mmap.PROT_READ, mmap.MAP_SHARED
        if writable:
            access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE
        address = _C.mmap(None, size, access, flags, file.fileno(), 0)
        if address == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, not writable)}
        self.watches: list[_core._Watch] = []
        weakref.finalize(self, _unmap, self.watches, address, size).atexit = False


def _unmap(watches: list[_core._Watch], address: int, size: int) -> None:
    watches.clear()  # before other memory can get these addresses
    _C.munmap(address, size)


_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_int64)  # off_t
_C.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def content(path: str | Path, *, mapped: bool, writable: bool = False) -> memoryview:
    """Return the bytes of a file, mapped or read into memory. Writes to a `writable` result do not reach the file."""
    file, size = opened(path)
    with file:
        if size == 0:
            return memoryview(b"")
        if not mapped:
            data = file.read()
            return memoryview(bytearray(data) if writable else data)
        try:
            pages = Pages(file, size, writable=writable)
        except OSError as error:
            raise InvalidModelError(f'"{path}" cannot be mapped: {error.strerror}; see mapped=False.') from error
        array = np.asarray(pages)
        # Truncating the file does not crash the process, and pages that kernels have copied may leave memory.
        pages.watches.append(_core._Watch([array], are_mappings=not writable))
        return array.data


def read_file(path: str | Path, limit: int) -> bytes:
    """Return the bytes of a file of at most `limit` bytes."""
    file, size = opened(path)
    with file:
        if size > limit:
            raise InvalidModelError(f'"{path}" has {size} bytes, more than the limit ({limit}).')
        return file.read(size)
