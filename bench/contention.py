# SPDX-License-Identifier: Apache-2.0
"""Networks beside other threads: ``python -m bench contention``.

Batch 1, on a quiet machine and with as many busy loops as processors. Each contestant runs in a separate process, see
contestants.py.

"after torch" runs a small PyTorch convolution, not timed, before each call, so that PyTorch's threads are spinning;
"after numpy" a product of matrices of NumPy, for the threads of its BLAS.
"""

from __future__ import annotations

from typing import Any

from mpscnn import benchmarking

from . import networks

NETWORKS = ("resnet18", "mobilenet_v2")
CONTESTANTS = (
    "mpscnn",
    "mpscnn, torch imported",
    "mpscnn, after torch",
    "mpscnn, after numpy",
    "onnxruntime",
    "onnxruntime, no spinning",
    "onnxruntime, after torch",
    "onnxruntime, after numpy",
    "openvino",
    "torch",
)


def run(seconds: float = 1.0, case: str = "", *, quiet: bool = True) -> list[dict[str, Any]]:
    """Return a comparison, as a dict, for each network and load. Each takes about `seconds`, at least nine rounds."""
    return [
        networks.compare(name, 1, CONTESTANTS, seconds, loops=loops, quiet=quiet)
        for name in NETWORKS
        for loops in (0, benchmarking.processors())
        if case in f"{name}, {loops} busy loops"
    ]
