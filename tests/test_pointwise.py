# SPDX-License-Identifier: Apache-2.0
"""Convolutions of one pixel with bfloat16 images: exact for small integers, within a rounding with swish, at every
number of pixels, inputs and outputs that fill vectors in part; and where they are chosen. Images of float32 are in
rows/engine_convolution.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ENGINE, PROCESSOR, only_openmps

pytestmark = [
    only_openmps("the implementation is the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu", "split"), reason="the implementation is the CPU engine's"),
]

# Inputs, outputs, batch, height, width.
SHAPES = [
    *((i, 48, 1, 4, 5) for i in (2, 4, 6, 30, 32, 34, 200)),
    *((20, o, 1, 3, 7) for o in (1, 15, 16, 17, 32, 33, 47, 49, 64, 95, 96, 200)),
    *((20, 50, n, h, w) for n, h, w in ((5, 1, 1), (3, 1, 3), (1, 2, 4), (1, 3, 3), (7, 1, 5), (3, 13, 17))),
    (96, 576, 1, 14, 14),
    (16, 96, 1, 112, 112),
    (192, 1152, 2, 7, 7),
]

PROGRAM = """
import sys, numpy, torch, mpscnn
torch.manual_seed(0)

def same(channels):
    layer = torch.nn.Conv2d(channels, channels, 1, bias=False)
    layer.weight.data = torch.eye(channels)[:, :, None, None]
    return layer

for inputs, outputs, n, h, w in {shapes}:
    for neuron in (torch.nn.Identity(), torch.nn.ReLU6(), torch.nn.SiLU()):
        module = torch.nn.Sequential(same(inputs), torch.nn.Conv2d(inputs, outputs, 1), neuron, same(outputs)).eval()
        module[1].weight.data = torch.randint(-1, 2, module[1].weight.shape).float()
        module[1].bias.data = torch.randint(1, 10, (outputs,)).float()
        x = torch.randint(-1, 2, (n, inputs, h, w)).float()
        network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
        right, found = module(x).detach().numpy(), network(x.numpy())
        assert abs(right).max() <= 256 and right.any()
        if isinstance(neuron, torch.nn.SiLU):  # within a rounding to bfloat16
            found = numpy.where(abs(found - right) < 1.1 * 2.0 ** -8 * abs(right) + 1e-9, right, found)
        assert numpy.array_equal(found, right), (inputs, outputs, n, h, w, neuron, numpy.argwhere(found != right)[:5])
"""


@pytest.mark.skipif("avx512_bf16" not in PROCESSOR, reason="images are float32 on this processor")
def test_exact() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(shapes=SHAPES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "MPSCNN_IMPL": "pointwise", "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("mpscnn dispatch: convolve: pointwise\n") >= 3 * len(SHAPES)


CHOICE = """
import sys, numpy, torch, mpscnn
for outputs, neuron, size in ((96, torch.nn.SiLU(), 40), (112, torch.nn.SiLU(), 40), (64, torch.nn.SiLU(), 40),
                              (16, torch.nn.SiLU(), 40), (96, torch.nn.ReLU(), 40), (256, torch.nn.ReLU(), 40),
                              (256, torch.nn.ReLU(), 20), (16, torch.nn.ReLU(), 20)):
    module = torch.nn.Sequential(torch.nn.Conv2d(64, outputs, 1), neuron, torch.nn.Conv2d(outputs, 3, 1)).eval()
    network = mpscnn.load(module, input_shapes=(1, 64, size, size))
    print("shape", file=sys.stderr, flush=True)
    network(numpy.zeros((1, 64, size, size), numpy.float32))
"""


@pytest.mark.skipif("avx512dq" not in PROCESSOR, reason="the processor has no AVX-512")
def test_choice() -> None:
    """With swish unless a third of the last panel of 48 outputs is wasted; other activations on Zen 4, there also those
    of few pixels.
    """
    environment = os.environ | {"MPSCNN_TRACE": "dispatch"}
    done = subprocess.run(
        [sys.executable, "-c", CHOICE], capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    parts = done.stderr.split("shape\n")[1:]
    lines = (re.findall(r"^mpscnn dispatch: convolve: (\w+)$", part, re.MULTILINE) for part in parts)
    found = [line[0] == "pointwise" for line in lines]
    assert found[:4] == [True, True, False, False]
    assert found[5] is False
    cpuinfo = Path("/proc/cpuinfo").read_text()
    is_zen4 = re.search(r"^vendor_id\s*: AuthenticAMD\ncpu family\s*: 25$", cpuinfo, re.MULTILINE) is not None
    assert found[6:] == [is_zen4, False]
