# SPDX-License-Identifier: Apache-2.0
"""Operators of torchvision, against their definitions in PyTorch's operators, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch_support import randomize

import mpscnn
from mpscnn.importing import pt2_files

DEFORM_CONV = (
    "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w,"
    " SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups,"
    " bool use_mask) -> Tensor"
)  # torchvision/csrc/ops/deform_conv2d.cpp


def deformed(x, weight, offset, mask, bias, sh, sw, ph, pw, dh, dw, groups, offset_groups, use_mask):
    """Each tap samples an image of its own, by torch.nn.functional.grid_sample; `groups` of channels are products."""
    n, c, h, w = x.shape
    outputs, inside, kh, kw = weight.shape
    height, width = offset.shape[2:]
    rows = (torch.arange(height, dtype=x.dtype) * sh - ph).view(1, 1, height, 1)
    columns = (torch.arange(width, dtype=x.dtype) * sw - pw).view(1, 1, 1, width)
    offset = offset.reshape(n, offset_groups, kh * kw, 2, height, width)
    taps = []
    for tap in range(kh * kw):
        down = rows + tap // kw * dh + offset[:, :, tap, 0]
        across = columns + tap % kw * dw + offset[:, :, tap, 1]
        grid = torch.stack([across * 2 / (w - 1) - 1, down * 2 / (h - 1) - 1], -1).flatten(0, 1)
        images = x.reshape(n * offset_groups, c // offset_groups, h, w)
        y = F.grid_sample(images, grid, align_corners=True).reshape(n, offset_groups, -1, height, width)
        if use_mask:
            y = y * mask.reshape(n, offset_groups, kh * kw, 1, height, width)[:, :, tap]
        taps.append(y.reshape(n, c, height, width))
    samples = torch.stack(taps, 2).reshape(n, groups, inside, kh * kw, height, width)
    filters = weight.reshape(groups, outputs // groups, inside, kh * kw)
    return torch.einsum("ngctyx,gotc->ngoyx", samples, filters.transpose(2, 3)).reshape(
        n, outputs, height, width
    ) + bias.view(1, -1, 1, 1)


def deformed_shape(x, weight, offset, mask, bias, *numbers):
    return x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:])


@pytest.fixture(scope="module", autouse=True)
def operators() -> Any:
    """Define the operators, unless torchvision is imported, whose extension has them."""
    if hasattr(torch.ops.torchvision, "deform_conv2d"):
        yield
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define(f"deform_conv2d{DEFORM_CONV}")
    library.impl("deform_conv2d", deformed, "CPU")
    library.impl("deform_conv2d", deformed_shape, "Meta")
    yield
    library._destroy()


class Deformable(nn.Module):
    """torchvision.ops.DeformConv2d with the convolutions that compute its offsets and mask."""

    def __init__(self, channels, outputs, kernel, stride=1, pad=0, dilation=1, groups=1, offset_groups=1, mask=True):
        super().__init__()
        pairs = [value if isinstance(value, tuple) else (value, value) for value in (stride, pad, dilation)]
        self.numbers, self.mask = [*pairs[0], *pairs[1], *pairs[2], groups, offset_groups, mask], mask
        taps = kernel[0] * kernel[1] * offset_groups
        self.offsets = nn.Conv2d(channels, 2 * taps, kernel, *pairs)
        self.masks = nn.Conv2d(channels, taps, kernel, *pairs)
        self.own = nn.Conv2d(channels, outputs, kernel, groups=groups)

    def forward(self, x):
        mask = torch.sigmoid(self.masks(x)) if self.mask else torch.zeros((x.shape[0], 1), dtype=x.dtype)
        return torch.ops.torchvision.deform_conv2d(
            x, self.own.weight, 3 * self.offsets(x), mask, self.own.bias, *self.numbers
        )


def agree(module: nn.Module, net: Any, *shape: int, seed: int = 1) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        expected = module.double()(x.double()).numpy()
    module.float()
    found = net(x)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((6, 8, (3, 3)), {"pad": 1}),
        ((6, 8, (3, 3)), {"pad": 1, "mask": False}),
        ((8, 12, (3, 2)), {"stride": (2, 1), "pad": (1, 0), "groups": 4, "offset_groups": 2}),
        ((8, 4, (1, 3)), {"dilation": (1, 2), "pad": (0, 2), "groups": 2, "offset_groups": 4, "mask": False}),
        ((64, 64, (3, 3)), {"pad": 1, "stride": 2}),
    ],
)
def test_deform_conv2d(arguments, options):
    module = randomize(Deformable(*arguments, **options))
    channels = arguments[0]
    net = mpscnn.load(module, input_shapes=(1, channels, 13, 10))
    assert not any(spec.fixed_by for spec in net.inputs.values())
    agree(module, net, 1, channels, 13, 10)
    agree(module, net, 3, channels, 9, 21)
    if channels == 64:
        agree(module, net, 1, channels, 100, 75)


def test_saved_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = randomize(Deformable(6, 8, (3, 3), pad=1))
    dims = dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO)
    program = torch.export.export(module, (torch.zeros(2, 6, 13, 10),), dynamic_shapes=(dims,))
    torch.export.save(program, tmp_path / "net.pt2")
    net = mpscnn.load(tmp_path / "net.pt2")
    agree(module, net, 2, 6, 13, 10)
    agree(module, net, 3, 6, 9, 21)
    monkeypatch.setattr(pt2_files, "_packet", lambda domain, operator: None)  # as without torchvision
    with pytest.raises(
        mpscnn.UnsupportedOperatorError, match="the package torchvision, which defines it, cannot be imp"
    ):
        mpscnn.load(tmp_path / "net.pt2")


def test_constant_offsets():
    """Offsets that are parameters, repeated for each image."""

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.empty(5, 4, 3, 3)), nn.Parameter(torch.empty(5))
            self.offset, self.mask = nn.Parameter(torch.empty(1, 18, 6, 8)), nn.Parameter(torch.empty(1, 9, 6, 8))

        def forward(self, x):
            offset, mask = (y.expand(x.shape[0], -1, -1, -1) for y in (self.offset, self.mask))
            return torch.ops.torchvision.deform_conv2d(
                x, self.weight, offset, mask, self.bias, 1, 1, 1, 1, 1, 1, 1, 1, True
            )

    module = randomize(Constant())
    net = mpscnn.load(module, input_shapes=(1, 4, 6, 8))
    agree(module, net, 1, 4, 6, 8)
    agree(module, net, 2, 4, 6, 8)


def test_computed_weights_are_refused():
    class Computed(nn.Module):
        def forward(self, x):
            weight = x.mean((0, 2, 3)).view(1, 4, 1, 1).expand(2, -1, -1, -1)
            offset, mask = x[:, :2], x[:, :1]
            return torch.ops.torchvision.deform_conv2d(
                x, weight, offset, mask, torch.zeros(2), 1, 1, 0, 0, 1, 1, 1, 1, True
            )

    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"torchvision.deform_conv2d|mean"):
        mpscnn.load(Computed(), input_shapes=(1, 4, 6, 8))
