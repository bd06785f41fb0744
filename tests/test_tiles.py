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

# Inputs, outputs, kernel, batch, height, width; stride, 1 if there is none.
SHAPES = [
    *((i, 40, 3, 2, 5, 6) for i in (2, 30, 31, 32, 33, 64, 66)),
    *((34, o, 3, 1, 4, 7) for o in (1, 15, 16, 17, 31, 32, 33, 48, 49, 65)),
    *((32, 32, 3, n, h, w) for n, h, w in ((5, 1, 1), (3, 1, 40), (9, 3, 2), (2, 40, 1), (3, 13, 17))),
    *((32, 32, k, 2, 9, 8) for k in (1, 5, 7)),
    *((i, 40, 1, 2, 5, 7) for i in (2, 24, 31, 33, 63, 64, 100)),  # one pixel: in place, but for the last channels
    *((64, 40, 1, n, h, w) for n, h, w in ((1, 4, 8), (1, 31, 1), (1, 1, 33), (3, 1, 11), (40, 1, 1), (1, 61, 67))),
    *((i, 24, 1, 1, 150, 151) for i in (64, 80)),  # several strips
    *((34, 40, 3, 2, h, w, s) for h, w, s in ((9, 8, 2), (8, 9, 2), (7, 10, 3), (1, 2, 2), (2, 1, 4))),
    *((32, 32, k, 2, 11, 12, s) for k, s in ((1, 2), (1, 3), (5, 2), (7, 2), (2, 3))),
    *((i, 40, k, 2, 9, 11, s) for i in (1, 3, 4) for k, s in ((3, 1), (3, 2), (5, 1), (7, 2))),  # patches
    *((3, 64, k, 1, 150, 161, s) for k, s in ((3, 1), (7, 2), (9, 1))),
    (15, 33, 2, 3, 6, 7),
    (64, 32, 1, 3, 100, 90, 2),  # several strips of an image
    (64, 32, 3, 3, 130, 150, 2),
    (32, 32, 3, 2, 130, 150),  # several strips of an image
    (64, 64, 3, 7, 40, 40),  # of some images
    (512, 256, 3, 1, 28, 28),
    (512, 512, 3, 8, 14, 14),
    (512, 512, 3, 9, 7, 7),
    (1024, 512, 3, 1, 16, 16),
    (2048, 512, 1, 1, 7, 7),
    (1024, 256, 1, 2, 14, 14),
    (256, 512, 1, 1, 28, 28, 2),
    (256, 256, 3, 2, 28, 28, 2),
]

# A layer that copies.
SAME = """
import random, numpy, torch, mpscnn
torch.manual_seed(0)

def same(channels):
    layer = torch.nn.Conv2d(channels, channels, 1, bias=False)
    layer.weight.data = torch.eye(channels)[:, :, None, None]
    return layer
"""

PROGRAM = """
for inputs, outputs, kernel, n, h, w, *stride in {shapes}:
    for neuron in (torch.nn.Identity(), torch.nn.ReLU6()):
        layer = torch.nn.Conv2d(inputs, outputs, kernel, *stride, padding=kernel // 2)
        module = torch.nn.Sequential(same(inputs), layer, neuron, same(outputs)).eval()
        layer.weight.data = torch.randint(-1, 2, layer.weight.shape).float()
        layer.bias.data = torch.randint(1, 10, (outputs,)).float()
        x = torch.randint(-1, 2, (n, inputs, h, w)).float()
        if inputs > 100:  # bfloat16 has whole numbers up to 256
            x *= torch.rand(x.shape) < 0.5
        network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
        right, found = module(x).detach().numpy(), network(x.numpy())
        assert abs(right).max() <= 256 and right.any()
        assert numpy.array_equal(found, right), (inputs, outputs, kernel, n, h, w, stride)
"""


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_exact(threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAME + PROGRAM.format(shapes=SHAPES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "MPSCNN_IMPL": "tiles", "OMP_NUM_THREADS": str(threads)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # The layer and the one behind it. Those of images of one pixel are fully connected.
    assert done.stderr.count("mpscnn dispatch: convolve: tiles\n") >= 4 * len(SHAPES)


RANDOM = """
of = random.Random(0)

class Block(torch.nn.Module):
    def __init__(self, first, layer, neuron, last, adds):
        super().__init__()
        self.first, self.layer, self.neuron, self.last, self.adds = first, layer, neuron, last, adds

    def forward(self, x):
        x = self.first(x)
        y = self.neuron(self.layer(x))
        return self.last(torch.relu(x + y) if self.adds else y)

compared = 0
while compared < 60:
    inputs = of.choice((1, 3, 4, 15, 16, 17, 32, 33, 40, 64, 96, 130))
    outputs = inputs if of.random() < 0.3 else of.choice((1, 5, 16, 17, 32, 33, 48, 64, 70))
    kernel, stride, dilation = ([of.choice(s) for _ in "hw"] for s in ((1, 1, 2, 3, 3, 5), (1, 1, 2, 3), (1, 1, 2)))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    padding = [of.randrange(r) for r in reach]
    layer = torch.nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation)
    is_not_zero = torch.rand(layer.weight.shape) < 60 / layer.weight[0].numel()
    layer.weight.data = torch.randint(-1, 2, layer.weight.shape) * is_not_zero.float()
    layer.bias.data = torch.randint(-3, 4, (outputs,)).float()
    x = torch.randint(-1, 2, (of.choice((1, 2, 5)), inputs, of.randint(1, 40), of.randint(1, 40))).float()
    if any(e + 2 * p < r for e, p, r in zip(x.shape[2:], padding, reach)):
        continue
    adds = layer(x).shape == x.shape
    first = same(inputs) if adds or of.random() < 0.5 else torch.nn.Identity()
    module = Block(first, layer, of.choice((torch.nn.Identity(), torch.nn.ReLU6())), same(outputs), adds).eval()
    right = module(x).detach().numpy()
    if abs(right).max() > 256:
        continue
    network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
    assert numpy.array_equal(network(x.numpy()), right), (layer, tuple(x.shape), adds)
    compared += 1
"""


def test_random() -> None:
    """Windows, strides, dilations and padding of each axis at random, also with sums, exact for small integers."""
    environment = os.environ | {"MPSCNN_TRACE": "dispatch", "MPSCNN_IMPL": "tiles"}
    done = subprocess.run(
        [sys.executable, "-c", SAME + RANDOM], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("mpscnn dispatch: convolve: tiles\n") > 60


NOT_A_NUMBER = """
import numpy, torch, mpscnn
torch.manual_seed(0)
modules = (
    (torch.nn.Conv2d(2, 34, 1), torch.nn.Conv2d(34, 40, 3, padding=1)),  # a copy, with 30 channels of zeros
    (torch.nn.Conv2d(2, 34, 1), torch.nn.Conv2d(34, 40, 1)),  # in place, but for two channels
    (torch.nn.Conv2d(2, 40, 3, padding=1), torch.nn.Identity()),  # patches of 18 values
    (torch.nn.Conv2d(4, 40, 5, padding=2), torch.nn.Identity()),  # of 100
)
for layers in modules:
    inputs = layers[0].in_channels
    x = torch.rand(1, inputs, 9, 12)
    x[0, :, 3, 5] = float("nan")
    module = torch.nn.Sequential(*layers).eval()
    network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
    right, found = module(x).isnan().numpy(), numpy.isnan(network(x.numpy()))
    assert right.any() and numpy.array_equal(found, right), (layers, numpy.argwhere(found != right)[:5])
"""


def test_pixels_do_not_read_values_of_others() -> None:
    """Products of a number that is not one with weights of 0 would not be 0."""
    environment = os.environ | {"MPSCNN_TRACE": "dispatch", "MPSCNN_IMPL": "tiles"}
    done = subprocess.run(
        [sys.executable, "-c", NOT_A_NUMBER], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("mpscnn dispatch: convolve: tiles\n") == 6


# Inputs, outputs, kernel, stride, neuron, extent of the image; whether tiles are faster.
CHOICES = [
    ((64, 32, 3, 1, "Identity", 9), True),
    ((64, 15, 3, 1, "Identity", 9), False),  # tiles of 16 outputs
    ((128, 32, 3, 2, "Identity", 9), True),
    ((96, 32, 3, 2, "Identity", 9), False),  # a copy
    ((128, 256, 1, 1, "Identity", 9), True),
    ((96, 256, 1, 1, "Identity", 9), False),  # oneDNN's products are as fast
    ((96, 256, 1, 1, "SiLU", 9), True),  # but not its swish
    ((3, 64, 3, 1, "Identity", 9), True),  # patches
    ((3, 32, 3, 1, "Identity", 9), False),
    ((3, 32, 3, 1, "Identity", 150), True),
    ((3, 64, 7, 1, "Identity", 9), False),
]

CHOICE = """
import sys, numpy, torch, mpscnn
for inputs, outputs, kernel, stride, neuron, extent in {shapes}:
    layer = torch.nn.Conv2d(inputs, outputs, kernel, stride)
    before = torch.nn.Identity() if inputs == 3 else torch.nn.Conv2d(3, inputs, 7, padding=3)  # its rows are too long
    modules = before, layer, getattr(torch.nn, neuron)(), torch.nn.AdaptiveAvgPool2d(1)
    shape = (1, 3, extent, extent)
    network = mpscnn.load(torch.nn.Sequential(*modules).eval(), input_shapes=shape, allow_reduced_precision=True)
    print("shape", file=sys.stderr, flush=True)
    network(numpy.zeros(shape, numpy.float32))
"""


@pytest.mark.skipif("amx_bf16" not in PROCESSOR, reason="the processor has no tiles")
def test_choice() -> None:
    environment = os.environ | {"MPSCNN_TRACE": "dispatch"}
    shapes = [shape for shape, _ in CHOICES]
    done = subprocess.run(
        [sys.executable, "-c", CHOICE.format(shapes=shapes)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=environment,
    )
    lines = (
        re.findall(r"^mpscnn dispatch: convolve: (\w+)$", part, re.MULTILINE)
        for part in done.stderr.split("shape\n")[1:]
    )
    assert ["tiles" in line for line in lines] == [is_faster for _, is_faster in CHOICES]
