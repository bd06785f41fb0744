# SPDX-License-Identifier: Apache-2.0
"""Depth-wise convolution of bfloat16 images: exact for small integers, at every edge of a vector."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support import ENGINE, PROCESSOR, only_openmps

pytestmark = [
    only_openmps("the implementation is the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu", "split"), reason="the implementation is the CPU engine's"),
    pytest.mark.skipif("avx512_bf16" not in PROCESSOR, reason="images are float32 on this processor"),
]

# Channels, height, width, kernel, stride, padding.
SHAPES = [
    *((c, 9, 15, 3, 1, 1) for c in (8, 24, 32, 33, 48, 63, 64, 72, 200)),
    *((40, h, w, 3, 1, 1) for h, w in ((1, 1), (2, 3), (3, 2), (5, 7), (8, 8), (14, 14), (20, 23))),
    *((40, h, w, 3, 2, 1) for h, w in ((1, 1), (2, 3), (3, 2), (5, 7), (8, 8), (15, 14), (28, 29))),
    *((40, h, w, 5, 1, 2) for h, w in ((1, 1), (2, 4), (3, 3), (5, 7), (7, 9), (16, 17))),
    *((40, h, w, 5, 2, 2) for h, w in ((1, 1), (2, 4), (3, 3), (5, 7), (8, 9), (29, 31))),
    *((40, 11, 12, k, s, p) for k in (3, 5) for s in (1, 2) for p in (0, 1, 2) if p < k),
    (96, 112, 112, 3, 2, 1),
    (672, 14, 14, 5, 1, 2),
    (960, 7, 7, 5, 1, 2),
]

PROGRAM = """
import sys, numpy, torch, mpscnn
torch.manual_seed(0)

def integers(low, high, *shape):
    return torch.randint(low, high + 1, shape).float()

for c, h, w, k, s, p in {shapes}:
    for neuron in (torch.nn.Identity(), torch.nn.ReLU6()):
        same = [torch.nn.Conv2d(c, c, 1, bias=False) for _ in range(2)]
        for layer in same:
            layer.weight.data = torch.eye(c)[:, :, None, None]
        module = torch.nn.Sequential(same[0], torch.nn.Conv2d(c, c, k, s, p, groups=c), neuron, same[1]).eval()
        module[1].weight.data = integers(-1, 2, c, 1, k, k)
        module[1].bias.data = integers(-9, 9, c)
        x = integers(-2, 2, 2, c, h, w)
        network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
        right, found = module(x).detach().numpy(), network(x.numpy())
        assert numpy.array_equal(found, right), (c, h, w, k, s, p, neuron, numpy.argwhere(found != right)[:5])
"""


def test_exact() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(shapes=SHAPES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    steps = [line for line in done.stderr.splitlines() if " ConvProblem " in line and " groups " in line]
    assert len(steps) == 2 * len(SHAPES)
    assert all(line.split(" weights=")[0].count("bfloat16") == 2 for line in steps)
    assert done.stderr.count("mpscnn dispatch: convolve: depthwise_vectors\n") == 2 * len(SHAPES)


SWISH = """
import sys, numpy, torch, mpscnn
x = numpy.concatenate([numpy.linspace(-40, 40, 30000), numpy.linspace(-4, 4, 20000), [-1e30, -90, -3e38, 3e38]])
x = torch.from_numpy(numpy.resize(x.astype(numpy.float32), (1, 32, 40, 40))).bfloat16().float()
same = [torch.nn.Conv2d(32, 32, 1, bias=False) for _ in range(2)]
for layer in same:
    layer.weight.data = torch.eye(32)[:, :, None, None]
module = torch.nn.Sequential(same[0], torch.nn.Conv2d(32, 32, 3, 1, 1, groups=32), torch.nn.SiLU(), same[1]).eval()
module[1].weight.data.zero_()[:, 0, 1, 1] = 1
module[1].bias.data.zero_()
network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
found, right = network(x.numpy()).astype(numpy.float64), torch.nn.functional.silu(x.double()).numpy()
print(numpy.max(numpy.abs(found - right) / (numpy.abs(right) + 1e-24)))
"""


def test_swish() -> None:
    """Within a rounding to bfloat16, 2^-8, and a tenth of it; 0 for large negative numbers."""
    done = subprocess.run([sys.executable, "-c", SWISH], capture_output=True, text=True, timeout=120, check=True)
    assert 2.0**-9 < float(done.stdout) < 1.1 * 2.0**-8


SPREAD = """
import sys, numpy, torch, mpscnn
for kernel, reach in ((3, 1), (5, 2)):
    module = torch.nn.Sequential(
        torch.nn.Conv2d(32, 32, 1), torch.nn.Conv2d(32, 32, kernel, 1, reach, groups=32), torch.nn.Conv2d(32, 32, 1)
    ).eval()
    network = mpscnn.load(module, input_shapes=(1, 32, 20, 20), allow_reduced_precision=True)
    for row in (8, 9):
        x = numpy.ones((1, 32, 20, 20), numpy.float32)
        x[0, :, row, 10] = numpy.nan
        is_nan = numpy.isnan(network(x)[0]).all(axis=0)
        assert is_nan[row - reach : row + reach + 1, 10 - reach : 11 + reach].all()
        is_nan[row - reach - 1 : row + reach + 2, 10 - reach : 11 + reach] = False
        assert not is_nan.any()
"""


def test_nan() -> None:
    """It stays within one row of the windows that have it: the other pixel of its pair is multiplied by 0."""
    subprocess.run([sys.executable, "-c", SPREAD], timeout=120, check=True)
