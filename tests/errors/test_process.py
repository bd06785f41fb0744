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


@counts_memory
def test_a_device_out_of_memory_says_how_much_was_requested() -> None:
    """A command buffer fails with MemoryError, and the device works afterwards."""
    run_python(
        """
        import re, resource
        from pathlib import Path
        import numpy as np, mpscnn
        graph = mpscnn.Graph()
        wide = graph.add("Convolution", graph.input("x", channels=4), weight=np.ones((64, 4, 1, 1), np.float32))
        wide = graph.add("SoftMax", wide)  # two convolutions would not store the whole image between them
        graph.output(graph.add("Convolution", wide, weight=np.ones((1, 64, 3, 3), np.float32), padding=1), "y")
        network = mpscnn.Network(graph)
        small, large = np.ones((1, 8, 8, 4), np.float32), np.ones((1, 1024, 1024, 4), np.float32)
        expected = network(small)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (128 << 20), resource.RLIM_INFINITY))
        try:
            network(large)
        except MemoryError as error:
            sentence = str(error)
        else:
            raise SystemExit("no error")
        found = re.search(r"the device is out of memory: (\\d+) bytes were requested, \\d+ bytes are in use", sentence)
        assert found and int(found[1]) >= 64 << 22, sentence
        np.testing.assert_array_equal(network(small), expected)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert network(large).shape == (1, 1024, 1024, 1)
        """
    )
