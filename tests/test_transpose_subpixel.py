# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions whose windows do not overlap, in networks: results of bfloat16 and parts of other images."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import mpscnn
from support import ENGINE, PROCESSOR, only_openmps

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = only_openmps("the implementation is the CPU engine's")


class Decoder(nn.Module):  # type: ignore[misc,name-defined]
    """As U-Net's: the result is a part of an image with as many channels from elsewhere."""

    def __init__(self, inputs: int, outputs: int, r: int, last: object) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, inputs, r, r)
        self.up, self.skip = nn.ConvTranspose2d(inputs, outputs, r, r), nn.Conv2d(3, outputs, 1)
        self.last, self.end = last, nn.Conv2d(2 * outputs, 5, 3, padding=1)

    def forward(self, x: object) -> object:
        up = self.last(self.up(self.inner(x).relu()))
        return self.end(torch.cat([self.skip(x), up], 1))


# Inputs, outputs, extents of the source, images: of some rows of an image, some images, and all at once.
SHAPES = [(128, 64, 2, (96, 128), 1), (128, 64, 2, (96, 128), 3), (70, 40, 3, (15, 12), 9), (512, 33, 4, (4, 4), 2)]


@pytest.mark.parametrize("is_reduced", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_decoders(shape: tuple[int, int, int, tuple[int, int], int], is_reduced: bool) -> None:
    inputs, outputs, r, (height, width), images = shape
    torch.manual_seed(0)
    for last in (nn.Identity(), nn.ReLU(), nn.PReLU(outputs)):
        module = Decoder(inputs, outputs, r, last).eval()
        x = torch.randn(images, 3, height, width)
        net = mpscnn.load(module, input_shapes=(1, *x.shape[1:]), allow_reduced_precision=is_reduced)
        with torch.no_grad():
            wanted = module.double()(x.double()).numpy()
        difference = np.abs(net(x.numpy()) - wanted).max() / np.abs(wanted).max()
        assert difference < (2e-2 if is_reduced else 1e-5), difference


@pytest.mark.skipif(ENGINE not in ("", "cpu"), reason="the implementation is the CPU engine's")
def test_implementation() -> None:
    program = """
import numpy, torch, test_transpose_subpixel as t, mpscnn
for last in (torch.nn.ReLU(), torch.nn.PReLU(64)):
    net = mpscnn.load(t.Decoder(8, 64, 2, last).eval(), input_shapes=(1, 3, 16, 16), allow_reduced_precision=True)
    net(numpy.ones((1, 3, 16, 16), numpy.float32))
"""
    environment = os.environ | {"MPSCNN_TRACE": "dispatch", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    found = [line.partition("convolve_transpose: ")[2] for line in done.stderr.splitlines()]
    lines = list(filter(None, found))
    assert lines[0] == "subpixel"
    assert "subpixel declines: slopes per channel" in lines
    if "avx512_bf16" in PROCESSOR:  # nothing is converted behind the convolution
        of_transpose = done.stderr.partition("convolve_transpose: subpixel\n")[0].rpartition("TransposeProblem")[2]
        assert "neuron:" not in of_transpose
