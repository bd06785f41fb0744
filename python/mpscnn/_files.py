# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of files: a file is written in a folder beside its target, then renamed.

If the process is killed, either the old or the new file exists; the next write removes the leftovers.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ._interrupts import defer_interrupts

_PREFIX, _SUFFIX = ".mpscnn-", ".partial"


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that replaces the one at `path` at the end of the block. Links are followed.

    Every OSError names `path`, even if a temporary file caused it.
    """
    with named(path):
        target = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(target).st_mode  # ELOOP for a link to itself
            if not stat.S_ISREG(mode):
                raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "not a regular file")
        with staging(target.parent) as place:
            with created(place / "file", target) as file:
                yield file
            with defer_interrupts():
                os.replace(place / "file", target)
        synchronize(target.parent)


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Make a folder in `folder` for unfinished files; it is removed with its contents at the end of the block.

    Until then a file beside it is locked. The lock ends with the process, even after a crash, and is visible in other
    containers, where process ids are meaningless.
    """
    lock: BinaryIO | None = None
    try:
        with defer_interrupts():
            _remove_abandoned(folder)
            while lock is None:
                lock = _locked(folder / f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")
            place = _content(lock.name)
            place.mkdir()
        yield place
    finally:
        if lock is not None:
            with defer_interrupts(), lock:
                _remove(lock.name)


def _locked(path: Path) -> BinaryIO | None:
    """Create and lock a file; return None if another process has removed it before it was locked."""
    lock = open(path, "xb")  # noqa: SIM115  (open while the folder beside it is in use)
    with contextlib.suppress(OSError):  # on a file system without locks nothing is removed
        fcntl.flock(lock, fcntl.LOCK_EX)
    if path.exists():
        return lock
    lock.close()
    return None


def _content(lock: str) -> Path:
    return Path(lock.removesuffix(_SUFFIX))


def _remove(lock: str) -> None:
    """Remove the folder, then its lock file, so that every folder has a lock file."""
    import shutil  # it imports the decompressors of archives

    shutil.rmtree(_content(lock), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(lock)


def _remove_abandoned(folder: Path) -> None:
    """Remove the leftovers of processes that ended while writing."""
    with contextlib.suppress(OSError):  # the folder cannot be listed
        for name in os.listdir(folder):
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                # OSError: another user's file, removed, or locked.
                with contextlib.suppress(OSError), open(folder / name, "r+b") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(lock.name)


@contextlib.contextmanager
def created(path: Path, replaces: Path) -> Iterator[BinaryIO]:
    """Create a file with the mode of `replaces`, or umask's, and flush it to disk at the end of the block."""
    with open(path, "xb") as file:
        with contextlib.suppress(OSError):  # no such file, or a file system without modes
            os.fchmod(file.fileno(), stat.S_IMODE(os.stat(replaces).st_mode))
        yield file
        file.flush()
        os.fsync(file.fileno())


def synchronize(folder: Path) -> None:
    """Flush the directory entries of a folder to disk, if the file system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextlib.contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Re-raise OSErrors with the caller's path, in place of a partial file's path or of none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
