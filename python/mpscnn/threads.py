# SPDX-License-Identifier: Apache-2.0
"""The number of threads that compute: ``mpscnn.set_num_threads(n)``."""

from __future__ import annotations

from . import _checks
from .device import Device


def set_num_threads(num_threads: int) -> None:
    """Set the max number of threads that compute at once in this process, for calls that start later.

    It applies to all networks and kernels of the CPU engine. Each number has its own compiled kernels, so the first
    call after a change is slower. Results are the same up to rounding.

    Parameters
    ----------
    num_threads : int, >= 1
        At most the processors that the process may use, by its affinity and its control groups' CPU quota; greater
        numbers have the effect of that one. It replaces OMP_NUM_THREADS, the default.

    Raises
    ------
    TypeError
        "num_threads (float) is not an int."
    ValueError
        "num_threads (0) is less than the minimum (1)."
    NotImplementedError
        "Device: ... has no number of threads to read or set.": on Macs, where the GPU computes.

    Source
    ------
    csrc/openmps/engine/shared/team.cpp, csrc/common/available_threads.cpp; Metal has no such setting.
    """
    Device()._set_threads(_checks.integer(num_threads, "num_threads", minimum=1, maximum=2**31 - 1))


def get_num_threads() -> int:
    """Return the max number of threads that compute at once in this process.

    Returns
    -------
    int
        The number of `set_num_threads`, by default OMP_NUM_THREADS; at most the processors that the process may use.

    Raises
    ------
    NotImplementedError
        As in `set_num_threads`.

    Source
    ------
    csrc/common/available_threads.cpp.
    """
    return Device()._threads
