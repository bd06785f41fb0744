# SPDX-License-Identifier: Apache-2.0
"""Convolutions of bfloat16 images by tiles, exact for small integers: for inputs, outputs and pixels that fill tiles in
part, in one strip and several, and for layers as large as networks have them. Processors without tiles compute the same
products in loops. Windows, sums and parts of images are in rows/engine_convolution.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from support import ENGINE, PROCESSOR, only_openmps

pytestmark = [
    only_openmps("the implementation is the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu", "split"), reason="the implementation is the CPU engine's"),
    pytest.mark.skipif("avx512_bf16" not in PROCESSOR, reason="images are float32 on this processor"),
]

# Inputs, outputs, kernel, batch, height, width.
SHAPES = [
    *((i, 40, 3, 2, 5, 6) for i in (2, 30, 31, 32, 33, 64, 66)),
    *((34, o, 3, 1, 4, 7) for o in (1, 15, 16, 17, 31, 32, 33, 48, 49, 65)),
    *((32, 32, 3, n, h, w) for n, h, w in ((5, 1, 1), (3, 1, 40), (9, 3, 2), (2, 40, 1), (3, 13, 17))),
    *((32, 32, k, 2, 9, 8) for k in (1, 5, 7)),
    (32, 32, 3, 2, 130, 150),  # several strips of an image
    (64, 64, 3, 7, 40, 40),  # of some images
    (512, 256, 3, 1, 28, 28),
    (512, 512, 3, 8, 14, 14),
    (512, 512, 3, 9, 7, 7),
    (1024, 512, 3, 1, 16, 16),
]

PROGRAM = """
import numpy, torch, mpscnn
torch.manual_seed(0)

def same(channels):
    layer = torch.nn.Conv2d(channels, channels, 1, bias=False)
    layer.weight.data = torch.eye(channels)[:, :, None, None]
    return layer

for inputs, outputs, kernel, n, h, w in {shapes}:
    for neuron in (torch.nn.Identity(), torch.nn.ReLU6()):
        layer = torch.nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
        module = torch.nn.Sequential(same(inputs), layer, neuron, same(outputs)).eval()
        layer.weight.data = torch.randint(-1, 2, layer.weight.shape).float()
        layer.bias.data = torch.randint(1, 10, (outputs,)).float()
        x = torch.randint(-1, 2, (n, inputs, h, w)).float()
        if inputs > 100:  # bfloat16 has whole numbers up to 256
            x *= torch.rand(x.shape) < 0.5
        network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
        right, found = module(x).detach().numpy(), network(x.numpy())
        assert abs(right).max() <= 256 and right.any()
        assert numpy.array_equal(found, right), (inputs, outputs, kernel, n, h, w, numpy.argwhere(found != right)[:5])
"""


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_exact(threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(shapes=SHAPES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "MPSCNN_IMPL": "tiles", "OMP_NUM_THREADS": str(threads)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("mpscnn dispatch: convolve: tiles\n") >= 2 * len(SHAPES)


NOT_A_NUMBER = """
import numpy, torch, mpscnn
torch.manual_seed(0)
first, second = torch.nn.Conv2d(2, 34, 1), torch.nn.Conv2d(34, 40, 1)
x = torch.rand(1, 2, 5, 6)
x[0, :, 2, 3] = float("nan")
module = torch.nn.Sequential(first, second).eval()
network = mpscnn.load(module, input_shapes=(1, 2, 5, 6), allow_reduced_precision=True)
found = numpy.isnan(network(x.numpy())).all(1)[0]
assert numpy.argwhere(found).tolist() == [[2, 3]], found
assert numpy.isnan(network(x.numpy())).sum() == 40
"""


def test_pixels_do_not_read_channels_of_others() -> None:
    """Products of a number that is not one with weights of 0 would not be 0."""
    environment = os.environ | {"MPSCNN_TRACE": "dispatch", "MPSCNN_IMPL": "tiles"}
    done = subprocess.run(
        [sys.executable, "-c", NOT_A_NUMBER], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "mpscnn dispatch: convolve: tiles\n" in done.stderr


CHOICE = """
import sys, numpy, torch, mpscnn
for inputs, outputs, kernel in ((512, 256, 3), (512, 224, 3), (480, 256, 3), (512, 256, 1)):
    layers = torch.nn.Conv2d(8, inputs, 1), torch.nn.Conv2d(inputs, outputs, kernel), torch.nn.Conv2d(outputs, 8, 1)
    network = mpscnn.load(torch.nn.Sequential(*layers).eval(), input_shapes=(1, 8, 9, 9), allow_reduced_precision=True)
    print("shape", file=sys.stderr, flush=True)
    network(numpy.zeros((1, 8, 9, 9), numpy.float32))
"""


@pytest.mark.skipif("amx_bf16" not in PROCESSOR, reason="the processor has no tiles")
def test_choice() -> None:
    environment = os.environ | {"MPSCNN_TRACE": "dispatch"}
    done = subprocess.run(
        [sys.executable, "-c", CHOICE], capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    lines = (
        re.findall(r"^mpscnn dispatch: convolve: (\w+)$", part, re.MULTILINE)
        for part in done.stderr.split("shape\n")[1:]
    )
    assert ["tiles" in line for line in lines] == [True, False, False, False]
