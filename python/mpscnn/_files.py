# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced in one step: written in a folder of their own beside their place, and renamed.

Whatever ends the process, there is the old file or the new one, and the next write removes the rest.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ._interrupts import held_back

_PREFIX, _SUFFIX = ".mpscnn-", ".partial"


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes the place of the one at `path` at the end of the block. Links are followed.

    OSError names `path`, whichever file it is about.
    """
    with named(path):
        target = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(target).st_mode  # also of a link that leads to itself: ELOOP
            if not stat.S_ISREG(mode):
                raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "not a regular file")
        with staging(target.parent) as place:
            with created(place / "file", target) as file:
                yield file
            with held_back():
                os.replace(place / "file", target)
        synchronize(target.parent)


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Make a folder in `folder` for files that are not whole yet; it is removed at the end, with what is left in it.

    A file beside it is locked for as long. A lock ends with its process, whatever ends that, also for processes in
    other containers, where a process id says nothing.
    """
    lock: BinaryIO | None = None
    try:
        with held_back():
            _remove_abandoned(folder)
            while lock is None:
                lock = _locked(folder / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
            place = _content(lock.name)
            place.mkdir()
        yield place
    finally:
        if lock is not None:
            with held_back(), lock:
                _remove(lock.name)


def _locked(path: Path) -> BinaryIO | None:
    """A new file with a lock; None if another process has removed it before it was locked."""
    lock = open(path, "xb")  # noqa: SIM115  (open as long as the folder beside it is in use)
    with contextlib.suppress(OSError):  # a file system without locks: nothing is removed there
        fcntl.flock(lock, fcntl.LOCK_EX)
    if path.exists():
        return lock
    lock.close()
    return None


def _content(lock: str) -> Path:
    return Path(lock.removesuffix(_SUFFIX))


def _remove(lock: str) -> None:
    """The folder first: none is without its lock."""
    shutil.rmtree(_content(lock), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(lock)


def _remove_abandoned(folder: Path) -> None:
    """Remove what is left of processes that have ended while they wrote."""
    with contextlib.suppress(OSError):  # a folder that cannot be listed
        for name in os.listdir(folder):
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                # Another user's, or gone, or locked.
                with contextlib.suppress(OSError), open(folder / name, "r+b") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(lock.name)


@contextlib.contextmanager
def created(path: Path, replaces: Path) -> Iterator[BinaryIO]:
    """Create a file, which is on the disk at the end. It has the mode of the file that it replaces, or umask's."""
    with open(path, "xb") as file:
        with contextlib.suppress(OSError):  # there is none, or the file system has no modes
            os.fchmod(file.fileno(), stat.S_IMODE(os.stat(replaces).st_mode))
        yield file
        file.flush()
        os.fsync(file.fileno())


def synchronize(folder: Path) -> None:
    """Write the names in a folder to the disk, where the file system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextlib.contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """OSErrors with the name that the caller knows, instead of that of a partial file or of none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
