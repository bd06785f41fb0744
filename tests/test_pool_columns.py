# SPDX-License-Identifier: Apache-2.0
"""Maxima and averages of bfloat16 images, at every edge of a vector and of the source; NaN and infinities."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support import ENGINE, PROCESSOR, only_openmps

pytest.importorskip("torch")
pytestmark = [
    only_openmps("the implementation is the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu", "split"), reason="the implementation is the CPU engine's"),
    pytest.mark.skipif("avx512_bf16" not in PROCESSOR, reason="images are float32 on this processor"),
]

# Channels, height, width, kernel's height and width, stride, padding.
SHAPES = [
    *((c, 9, 11, 3, 3, 2, 1) for c in (32, 33, 48, 63, 64, 96, 127, 200)),
    *((40, h, w, 3, 3, 1, 1) for h, w in ((1, 1), (1, 4), (2, 3), (3, 2), (8, 8))),
    *(
        (40, 10, 12, kh, kw, s, p)
        for kh in (1, 2, 3, 5)
        for kw in (2, 3)
        for s in (1, 2)
        for p in (0, 1)
        if 2 * p <= kh
    ),
    (64, 112, 112, 3, 3, 2, 1),
    (192, 71, 71, 3, 3, 2, 0),
    (768, 17, 17, 3, 3, 1, 1),
]

PROGRAM = """
import numpy, torch, mpscnn
torch.manual_seed(0)

def network(pool, x):
    c = x.shape[1]
    same = [torch.nn.Conv2d(c, c, 1, groups=c, bias=False) for _ in range(2)]
    for layer in same:
        layer.weight.data = torch.ones(c, 1, 1, 1)
    module = torch.nn.Sequential(same[0], pool, same[1]).eval()
    found = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
    return module(x).detach().numpy(), found(x.numpy())

for c, h, w, kh, kw, s, p in {shapes}:
    if h + 2 * p < kh or w + 2 * p < kw:
        continue
    x = torch.randn(2, c, h, w).bfloat16().float()
    special = torch.tensor([float("nan"), -float("nan"), float("inf"), -float("inf"), -0.0])
    x.view(-1)[torch.randperm(x.numel())[: x.numel() // 20]] = special[torch.randint(5, (x.numel() // 20,))]
    x[1, 5] = -float("inf")
    right, found = network(torch.nn.MaxPool2d((kh, kw), s, p), x)
    assert numpy.array_equal(found, right, equal_nan=True), ("max", c, h, w, kh, kw, s, p)
    x = torch.randn(2, c, h, w).bfloat16().float()
    for padded in (False, True):
        right, found = network(torch.nn.AvgPool2d((kh, kw), s, p, count_include_pad=padded), x)
        error = numpy.abs(found - right).max() / numpy.abs(right).max()
        assert error <= 2.0**-8, ("mean", c, h, w, kh, kw, s, p, padded)
        assert numpy.median((numpy.abs(found - right) / numpy.abs(right))[right != 0]) < 2.0**-9
    print("compared")
"""


def test_bfloat16() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(shapes=SHAPES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    calls = done.stdout.count("compared")
    assert calls >= len(SHAPES) - 2
    steps = [line for line in done.stderr.splitlines() if " PoolProblem " in line]
    assert len(steps) == 3 * calls
    assert all(line.count("bfloat16") == 2 for line in steps)
    assert done.stderr.count("mpscnn dispatch: pool: pool_columns\n") == 3 * calls
