# SPDX-License-Identifier: Apache-2.0
"""Winograd's convolution on shapes of real networks: errors beside those of the direct one, choice, and switch. Small
shapes are in rows/engine_convolution.py.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from bench import winograd

import mpscnn
from support import ENGINE, PROCESSOR, only_openmps

pytestmark = [
    only_openmps("the implementation is the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu", "split"), reason="the implementation is the CPU engine's"),
    pytest.mark.skipif("avx2" not in PROCESSOR, reason="the processor has no AVX2"),
]

MAX_RATIO = 4.0  # of an error to the direct convolution's


def test_errors() -> None:
    """At most MAX_RATIO times those of the direct convolution, and not equal, as of one implementation."""
    shapes = [(1, 56, 56, 64, 64), (2, 28, 28, 128, 96), (4, 14, 14, 256, 256), (4, 14, 14, 512, 512)]
    rows = winograd.run(seconds=0.001, shapes=shapes)
    assert len(rows) == len(winograd.KINDS) * len(shapes)
    for row in rows:
        for key in ("max_error", "rms_error"):
            direct, own = row[key]["primitive"], row[key]["winograd"]
            assert 0 < own <= MAX_RATIO * direct, row
            assert own != direct, row


PROGRAM = """
import sys, numpy, mpscnn
for n, h, w, inputs, outputs in {shapes}:
    weights = numpy.zeros((outputs, inputs, 3, 3), numpy.float32)
    layer = mpscnn.Convolution(weights, padding=1)
    print("shape", inputs, h, file=sys.stderr, flush=True)
    layer(numpy.zeros((n, h, w, inputs), numpy.float32))
"""


def chosen(shapes: list[tuple[int, ...]], **environment: str) -> list[str]:
    """Return the implementation of each convolution."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(shapes=shapes)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "OMP_NUM_THREADS": "2"} | environment,
    )
    parts = done.stderr.split("shape ")[1:]
    return [
        next(
            line.rsplit(": ", 1)[1]
            for line in part.splitlines()
            if line.startswith("mpscnn dispatch: convolve: ") and "declines" not in line
        )
        for part in parts
    ]


def test_choice() -> None:
    """Where it saves time: not few pixels of many channels, and not few channels."""
    wins = [(1, 56, 56, 64, 64), (1, 28, 28, 128, 128), (1, 28, 28, 512, 512), (8, 7, 7, 512, 512)]
    loses = [(1, 7, 7, 512, 512), (1, 224, 224, 3, 64), (1, 112, 112, 16, 16)]
    assert chosen(wins + loses) == ["winograd"] * len(wins) + ["primitive"] * len(loses)
    assert chosen(wins, MPSCNN_WINOGRAD="0") == ["primitive"] * len(wins)


def test_infinity_and_nan() -> None:
    """They stay within the tile of 4 x 4 results that reads them, and do not vanish."""
    weights = np.ones((64, 64, 3, 3), np.float32)
    layer = mpscnn.Convolution(weights, padding=1)
    for value in (np.inf, np.nan):
        x = np.ones((1, 56, 56, 64), np.float32)
        x[0, 9, 10, 5] = value
        y = layer(x)[0]
        assert not np.isfinite(y[8:11, 9:12]).any()
        y[8:12, 8:12] = 0
        assert np.isfinite(y).all()
