# SPDX-License-Identifier: Apache-2.0
"""Convolutions and poolings of large images in bands of rows, exact for small integers: windows of each kind at every
end of a band, and images as large as those that the engine computes so by itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from support import ENGINE, only_openmps

pytestmark = [
    only_openmps("the implementation is the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu"), reason="the implementation is the CPU engine's"),
]


def run(program: str, **settings: str) -> tuple[str, Counter[str]]:
    """Run a program; return what it prints, and how often each implementation ran."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"MPSCNN_TRACE": "dispatch"} | settings,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, Counter(re.findall(r"^mpscnn dispatch: [\w, ]+: (\w+)$", done.stderr, re.MULTILINE))


RANDOM = """
import random, numpy, torch, mpscnn
torch.manual_seed(0)
of = random.Random(0)

def pair(*choices):
    return of.choice(choices), of.choice(choices)

def convolution(inputs, outputs):
    kernel, stride, dilation = pair(1, 2, 3, 3, 5), pair(1, 1, 1, 2, 3), pair(1, 1, 2)
    padding = [of.randrange((k - 1) * d + 1) for k, d in zip(kernel, dilation)]
    layer = torch.nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation)
    return whole(layer)

def whole(layer):
    layer.weight.data = torch.randint(-1, 2, layer.weight.shape).float()
    layer.bias.data = torch.randint(-3, 4, layer.bias.shape).float()
    return layer

def pooling():
    kernel = of.choice((2, 3))
    return torch.nn.MaxPool2d(kernel, of.choice((1, 2)), of.randrange(2), ceil_mode=of.random() < 0.5)

class Residual(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        kernels = of.choice((1, 3, 5)), of.choice((1, 3, 5))
        self.first, self.second = (whole(torch.nn.Conv2d(channels, channels, k, padding=k // 2)) for k in kernels)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.first(x))))

compared = 0
while compared < 40:
    layers, channels = [], of.choice((1, 3, 16, 17))
    first = channels
    for _ in range(of.randint(2, 4)):
        kind = of.random()
        if kind < 0.2 and layers:
            layers.append(pooling())
        elif kind < 0.4:
            layers.append(Residual(channels))
        else:
            outputs = of.choice((1, 4, 5, 16, 24))
            layers += [convolution(channels, outputs), of.choice((torch.nn.Identity(), torch.nn.ReLU()))]
            channels = outputs
    if of.random() < 0.3:
        layers += [whole(torch.nn.Conv2d(channels, 2 * 9, 3, padding=1)), torch.nn.PixelShuffle(3)]
        layers += [whole(torch.nn.Conv2d(2, 3, 3, padding=1))] if of.random() < 0.5 else []
    module = torch.nn.Sequential(*layers).eval()
    x = torch.randint(-2, 3, (of.choice((1, 1, 2, 3)), first, of.randint(1, 40), of.randint(1, 12))).float()
    try:
        right = module(x).detach().numpy()
    except RuntimeError:  # an image smaller than a window
        continue
    if abs(right).max() > 2**24 or not right.size:
        continue
    network = mpscnn.load(module, input_shapes=tuple(x.shape))
    assert numpy.array_equal(network(x.numpy()), right), (module, tuple(x.shape))
    compared += 1
"""


@pytest.mark.parametrize("threads", ["1", "3"])
def test_random(threads: str) -> None:
    _, ran = run(RANDOM, MPSCNN_IMPL="bands", OMP_NUM_THREADS=threads)
    assert ran["bands"] >= 40


LARGE = """
import numpy, torch, mpscnn
torch.manual_seed(0)

class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))

same = dict(kernel_size=3, padding=1)
relu, pool = torch.nn.ReLU(), torch.nn.MaxPool2d(2)
modules = {{
    "super resolution": [
        torch.nn.Conv2d(1, 64, 5, padding=2), relu, torch.nn.Conv2d(64, 64, **same), relu,
        torch.nn.Conv2d(64, 32, **same), relu, torch.nn.Conv2d(32, 9, **same), torch.nn.PixelShuffle(3),
    ],
    "encoder": [torch.nn.Conv2d(1, 64, **same), relu, torch.nn.Conv2d(64, 48, **same), relu, pool],
    "residual": [torch.nn.Conv2d(1, 32, **same), Residual(), Residual(), torch.nn.Conv2d(32, 1, **same)],
    "strides": [torch.nn.Conv2d(1, 64, 3, padding=1), relu, torch.nn.Conv2d(64, 40, 3, 2, 1), relu],
}}
for name, layers in modules.items():
    module = torch.nn.Sequential(*layers).eval()
    network = mpscnn.load(module, input_shapes=(2, 1, 551, 700), allow_reduced_precision={reduced})
    x = torch.rand(2, 1, 551, 700)
    with torch.no_grad():
        right = module(x).numpy()
    found = network(x.numpy())
    before = mpscnn.memory.current()
    mpscnn.memory.reset()
    network(x.numpy(), out=found)
    print(name, abs(found - right).max() / abs(right).max(), mpscnn.memory.peak() - before)
"""


@pytest.mark.parametrize("reduced", [False, True])
def test_large(reduced: bool) -> None:
    """Of images with 50 to 100 MB, whose rows between two layers are never whole in memory."""
    out, ran = run(LARGE.format(reduced=reduced))
    assert ran["bands"] >= 2 * 4
    for line in out.splitlines():
        name, difference, peak = line.rsplit(" ", 2)
        assert float(difference) < (0.02 if reduced else 1e-5), name
        assert float(peak) < 50e6 or name == "residual", line
