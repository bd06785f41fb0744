# SPDX-License-Identifier: Apache-2.0
"""Chains of convolutions of one pixel, depth-wise, and of one pixel, and gates in front of convolutions of one pixel,
which the engine computes in one pass: exact for small integers, at every edge of a strip, a vector and a thread's part.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from support import ENGINE, PROCESSOR, only_openmps

pytestmark = [
    only_openmps("the implementation is the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu"), reason="the implementation is the CPU engine's"),
    pytest.mark.skipif("avx2" not in PROCESSOR, reason="the implementation is for AVX-512 and AVX2"),
]

ISAS = ["DEFAULT", "AVX2"] if "avx512dq" in PROCESSOR else ["DEFAULT"]  # of the copies for this processor
# Expands (inputs, 0: no expansion), hidden channels, projects (outputs, 0: none), batch, height, width, kernel, stride,
# padding, adds the source.
SHAPES = [
    # Whole vectors, networks' sizes: by rows, by channels.
    (16, 96, 24, 1, 112, 112, 3, 2, 1, False),
    (24, 144, 24, 1, 56, 56, 3, 1, 1, True),
    (64, 384, 64, 1, 14, 14, 3, 1, 1, True),
    (160, 960, 160, 1, 7, 7, 3, 1, 1, True),
    (112, 672, 192, 1, 14, 14, 5, 2, 2, False),
    (40, 240, 40, 1, 28, 28, 5, 1, 2, True),
    (0, 32, 16, 1, 112, 112, 3, 1, 1, False),
    (16, 96, 0, 1, 112, 112, 3, 2, 1, False),
    (160, 960, 0, 1, 7, 7, 5, 1, 2, False),
    # Batches: threads have whole images, or parts of several.
    *((24, 72, 24, n, 14, 14, 3, 1, 1, True) for n in (2, 3, 5, 8)),
    *((16, 64, 24, n, 28, 20, 5, 2, 2, False) for n in (2, 3)),
    *((0, 48, 20, n, 30, 20, 3, 2, 1, False) for n in (2, 3)),
    # Channels that fill vectors and panels in part.
    *((i, h, o, 1, 40, 30, 3, 1, 1, False) for i, h, o in ((1, 2, 1), (3, 17, 15), (5, 33, 31), (7, 47, 50))),
    *((i, h, o, 1, 10, 12, 3, 1, 1, False) for i, h, o in ((9, 65, 17), (20, 100, 64), (8, 200, 33), (31, 130, 97))),
    *((0, h, o, 1, 40, 41, 3, 1, 1, False) for h, o in ((17, 3), (40, 18), (100, 70))),
    *((i, h, 0, 1, 33, 34, 3, 2, 1, False) for i, h in ((3, 18), (8, 100))),
    # Heights and widths around the ends of strips and blocks of pixels.
    *((8, 48, 8, 1, h, w, 3, 1, 1, True) for h in (33, 34, 37) for w in (1, 2, 7, 8, 9, 55, 113, 225)),
    *((8, 48, 8, 1, h, w, 3, 2, 1, False) for h in (33, 34, 64) for w in (2, 15, 31, 113)),
    *((8, 48, 8, 2, h, w, 5, 1, 2, True) for h, w in ((1, 40), (2, 33), (3, 30), (4, 60), (31, 9))),
    # Windows that begin inside, and outside, of the source.
    *((8, 32, 8, 2, 40, 24, k, s, p, False) for k in (3, 5) for s in (1, 2) for p in range(k)),
    # Strips of one row: rows of 400 kilobytes.
    (8, 512, 8, 1, 20, 224, 3, 1, 1, True),
]

MODULES = """
import sys, numpy, torch, mpscnn
torch.manual_seed(0)

def integers(low, high, *shape):
    return torch.randint(low, high + 1, shape).float()

def convolution(*arguments, **options):
    layer = torch.nn.Conv2d(*arguments, **options)
    layer.weight.data = integers(-1, 2, *layer.weight.shape)
    layer.bias.data = integers(-9, 9, *layer.bias.shape)
    return layer

class Add(torch.nn.Module):
    def __init__(self, inner, last):
        super().__init__()
        self.inner, self.last = inner, last

    def forward(self, x):
        return self.last(x + self.inner(x))

def check(module, x, case, tolerance=0):
    module = module.eval()
    network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=tolerance > 0)
    right, found = module(x).detach().numpy(), network(x.numpy())
    if tolerance:
        assert numpy.abs(found - right).max() <= tolerance * numpy.abs(right).max(), case
        return
    again = network(x.numpy())  # recorded commands
    assert numpy.array_equal(found, right), (case, numpy.argwhere(found != right)[:5])
    assert numpy.array_equal(again, right), (case, "again")
"""

CHAINS = """
for number, (i, h, o, n, height, width, k, s, p, adds) in enumerate({shapes}):
    neuron = (torch.nn.ReLU6(), torch.nn.LeakyReLU(2))[number % 2]
    layers = [convolution(i, h, 1), neuron] if i else []
    layers += [convolution(h, h, k, s, p, groups=h), neuron]
    layers += [convolution(h, o, 1)] if o else []
    module = torch.nn.Sequential(*layers)
    module = Add(module, torch.nn.ReLU()) if adds else module
    check(module, integers(-2, 2, n, i or h, height, width), (i, h, o, n, height, width, k, s, p, adds))
"""

# Images of bfloat16 hold the source, what is projected, and the result; expanded rows are of float32.
REDUCED = """
def same(channels):
    layer = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    layer.weight.data.zero_()
    layer.weight.data[range(channels), range(channels), 1, 1] = 1
    return layer

class Block(torch.nn.Module):
    def __init__(self, i, h, o, k, s, p, adds, neuron):
        super().__init__()
        self.first, self.last = same(i or h), same(o or h)
        self.expand = convolution(i, h, 1) if i else None
        self.depthwise, self.neuron, self.adds = convolution(h, h, k, s, p, groups=h), neuron, adds
        self.project = convolution(h, o, 1) if o else None

    def forward(self, x):
        source = y = self.first(x)
        if self.expand:
            y = self.neuron(self.expand(y))
        y = self.rounded(self.neuron(self.depthwise(y)))
        if self.project:
            y = self.project(y)
        return self.last(self.rounded(torch.relu(y + source) if self.adds else y))

    def rounded(self, y):
        return y.bfloat16().float() if self.rounds else y

for number, (i, h, o, n, height, width, k, s, p, adds) in enumerate({shapes}):
    neuron = (torch.nn.ReLU6(), torch.nn.LeakyReLU(2))[number % 2]
    module = Block(i, h, o, k, s, p, adds, neuron).eval()
    x = integers(-2, 2, n, i or h, height, width)
    module.rounds = False
    network = mpscnn.load(module, input_shapes=tuple(x.shape), allow_reduced_precision=True)
    module.rounds = True
    right = module(x).detach().numpy()
    for _ in range(2):
        found = network(x.numpy())
        assert numpy.array_equal(found, right), ((i, h, o, n, height, width, k, s, p, adds), found, right)
"""

# Channels, outputs, batch, height, width.
GATED = [
    *((c, 24, 2, 9, 10) for c in (2, 15, 16, 17, 33, 100)),
    *((40, o, 1, 14, 14) for o in (1, 16, 50, 100)),
    *((72, 40, n, h, w) for n, h, w in ((1, 1, 2), (3, 2, 1), (1, 28, 28), (2, 56, 56), (5, 7, 9))),
    (1152, 192, 1, 7, 7),
    (32, 16, 1, 112, 112),
]

GATES = """
class Gate(torch.nn.Module):
    def __init__(self, c, o):
        super().__init__()
        self.gate, self.last = convolution(c, c, 1), convolution(c, o, 1)
        self.first, self.end = (convolution(n, n, 3, padding=1) if {reduced} else torch.nn.Identity() for n in (c, o))

    def forward(self, x):
        x = self.first(x)
        return self.end(self.gated(x))

    def gated(self, x):
        gate = torch.relu(self.gate(x.amax((2, 3), keepdim=True)))
        if x.shape[1] != self.last.out_channels:
            return self.last(x * gate)
        return torch.relu(x + self.last(gate * x))

for c, o, n, height, width in {shapes}:
    for outputs in (o, c):
        case = (c, outputs, n, height, width)
        check(Gate(c, outputs), integers(-2, 2, n, c, height, width), case, tolerance=0.03 if {reduced} else 0)
"""

READERS = """
class Reader(torch.nn.Module):
    def __init__(self, which):
        super().__init__()
        self.which = which
        self.expand, self.depthwise = convolution(16, 48, 1), convolution(48, 48, 3, 1, 1, groups=48)
        self.project = convolution(48, 48, 1)

    def forward(self, x):
        expanded = self.expand(x)
        convolved = self.depthwise(expanded)
        if self.which == "result":
            return self.project(convolved), expanded
        if self.which == "addend":
            return self.project(convolved) + expanded
        if self.which == "own":
            return self.project(convolved) + convolved
        if self.which == "later":
            return self.project(convolved) * convolved
        return self.project(convolved + expanded)

x = integers(-2, 2, 2, 16, 30, 20)
for which in ("result", "addend", "own", "later", "sum"):
    module = Reader(which).eval()
    network = mpscnn.load(module, input_shapes=tuple(x.shape))
    for _ in range(2):
        right, found = module(x), network(x.numpy())
        for a, b in zip(right, found) if which == "result" else ((right, found),):
            assert numpy.array_equal(b, a.detach().numpy()), which
"""

IN_PLACE = """
def kernel(inputs, outputs, size, groups=1):
    weight = integers(-1, 2, outputs, size, size, inputs // groups).numpy()
    return mpscnn.Convolution(weight, layout="OHWI", padding=size // 2, groups=groups)

expand, depthwise, project = kernel(8, 48, 1), kernel(48, 48, 3, 48), kernel(48, 8, 1)
x = integers(-2, 2, 2, 40, 30, 8).numpy()
right = project(depthwise(expand(x)))
image = mpscnn.Image.from_array(x)
with mpscnn.CommandBuffer() as commands:
    a = expand.encode(commands, image, temporary=True)
    b = depthwise.encode(commands, a, temporary=True)
    project.encode(commands, b, out=image)
assert numpy.array_equal(image.numpy(), right)
"""


def traced(program: str, **environment: str) -> Counter[str]:
    """Return how often each implementation ran."""
    done = subprocess.run(
        [sys.executable, "-c", MODULES + program],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"MPSCNN_TRACE": "dispatch"} | environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Counter(re.findall(r"^mpscnn dispatch: (?:\S+: )+(\w+)$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_exact(threads: str, isa: str) -> None:
    ran = traced(CHAINS.format(shapes=SHAPES), OMP_NUM_THREADS=threads, ONEDNN_MAX_CPU_ISA=isa)
    assert ran["separable"] == 2 * len(SHAPES)
    assert ran["one_by_one"] == 0


@pytest.mark.skipif("avx512_bf16" not in PROCESSOR, reason="images are float32 on this processor")
@pytest.mark.skipif("amx_bf16" in PROCESSOR, reason="products of tiles are faster than those of pairs")
def test_reduced_precision() -> None:
    shapes = [shape for shape in SHAPES if all(channels % 2 == 0 for channels in shape[:2])]
    ran = traced(REDUCED.format(shapes=shapes), MPSCNN_WINOGRAD="0")  # whose results are rounded
    assert ran["separable"] == 2 * len(shapes)
    assert ran["one_by_one"] == 0


@pytest.mark.parametrize("isa", ISAS)
def test_gates(isa: str) -> None:
    ran = traced(GATES.format(shapes=GATED, reduced=False), ONEDNN_MAX_CPU_ISA=isa)
    assert ran["gated_pointwise"] == 4 * len(GATED)
    assert ran["product_then_convolution"] == 0


@pytest.mark.skipif("avx512_bf16" not in PROCESSOR, reason="images are float32 on this processor")
@pytest.mark.skipif("amx_bf16" in PROCESSOR, reason="products of tiles are faster than those of pairs")
def test_gates_with_reduced_precision() -> None:
    shapes = [shape for shape in GATED if shape[0] % 2 == 0]
    ran = traced(GATES.format(shapes=shapes, reduced=True), MPSCNN_WINOGRAD="0")
    assert ran["gated_pointwise"] == 2 * len(shapes)
    assert ran["product_then_convolution"] == 0


def test_results_with_other_readers() -> None:
    """A chain ends in front of an image that something else reads."""
    ran = traced(READERS)
    # In each of two calls: depth-wise and projection of "result" and "addend", expansion and depth-wise of "own" and
    # "later".
    assert ran["separable"] == 8
    assert ran["one_by_one"] == 0


def test_expanded_rows_beyond_the_caches() -> None:
    """Three rows of 1,200 pixels and 384 channels have 5.5 MB: the convolutions run one by one."""
    ran = traced(CHAINS.format(shapes=[(8, 384, 8, 1, 12, 1200, 3, 1, 1, False)]))
    assert ran["separable"] == 0
    assert ran["one_by_one"] == 2


def test_result_over_the_source() -> None:
    ran = traced(IN_PLACE, OMP_NUM_THREADS="2")
    assert ran["separable"] == 0
    assert ran["one_by_one"] == 1
