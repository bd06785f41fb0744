# SPDX-License-Identifier: Apache-2.0
"""Thousands of errors in one process."""

from __future__ import annotations

from support import counts_memory, run_python


@counts_memory
def test_a_storm_of_errors_leaks_nothing_and_ends_nothing() -> None:
    """Every row many times, in a process that still computes afterwards and exits normally."""
    run_python(
        """
        import gc, sys
        from pathlib import Path
        import numpy as np, mpscnn
        weight = np.ones((8, 4, 3, 3), np.float32)
        x = np.ones((1, 5, 7, 4), np.float32)
        conv = mpscnn.Convolution(weight)
        def rss():
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 if sys.platform == "linux" else 0
        def storm(times):
            for _ in range(times):
                for wrong in (lambda: mpscnn.Convolution(weight, stride=0),
                              lambda: mpscnn.Convolution(weight, groups=3),
                              lambda: conv(x[..., :3]), lambda: conv(x[:, :2]), lambda: conv(x, out=x),
                              lambda: mpscnn.Image((2**20,) * 4), lambda: mpscnn.CommandBuffer().wait()):
                    try:
                        wrong()
                    except (ValueError, MemoryError, RuntimeError):
                        continue
                    raise SystemExit("no error")
        storm(300)
        gc.collect()
        before = rss()
        storm(3000)
        gc.collect()
        assert rss() - before < 4 << 20, rss() - before
        assert conv(x).sum() == 3 * 5 * 8 * 36
        """
    )
