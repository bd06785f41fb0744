# SPDX-License-Identifier: Apache-2.0
"""Modules that take other branches for other sizes: a graph has those of its import, and the module is read again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch_support import Function

import mpscnn
from mpscnn import _sizes


class Skipped(nn.Module):
    """A U-Net's decoder, which pads what is smaller than the encoder's result."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 3, 3, 2, 1)

    def forward(self, x: Any) -> Any:
        y = F.interpolate(self.down(x), scale_factor=2.0)
        if y.shape != x.shape:
            y = F.pad(y, (0, x.shape[3] - y.shape[3], 0, x.shape[2] - y.shape[2]))
        return x + y


MODULES = {
    "above": (lambda: Function(lambda x: x * 2 if x.shape[2] > 6 else x), [(12, 9), (7, 3)], [(6, 8), (4, 12)]),
    "even": (
        lambda: Function(lambda x: F.max_pool2d(F.pad(x, (0, 0, 0, 1)) if x.shape[2] % 2 else x, 2)),
        [(10, 7), (4, 4)],
        [(9, 8)],
    ),
    "square": (lambda: Function(lambda x: x if x.shape[2] == x.shape[3] else x * 2), [(5, 5)], [(5, 6), (8, 7)]),
    "tall": (lambda: Function(lambda x: x * 3 if x.shape[2] < x.shape[3] else x), [(9, 8), (8, 8)], [(7, 8)]),
    "of_a_layer": (
        lambda: Function(lambda x: F.avg_pool2d(x, 2) * (3 if F.max_pool2d(x, 3).shape[3] < 4 else 1)),
        [(20, 11)],
        [(20, 12)],
    ),
    "skipped": (Skipped, [(10, 6)], [(9, 8), (8, 9)]),
}


@pytest.mark.parametrize("name", MODULES)
def test_sizes_of_another_branch(name: str) -> None:
    make, same, others = MODULES[name]
    module = make().eval()
    net = mpscnn.load(module, input_shapes=(1, 3, 8, 8))
    exact = copy.deepcopy(module).double()
    for height, width in ((8, 8), *same, *others):
        x = torch.rand(2, 3, height, width)
        with torch.no_grad():
            assert np.abs(net(x) - exact(x.double()).numpy()).max() < 1e-5, (height, width)
    (spec,) = net.inputs.values()
    assert spec.sizes
    assert not spec.fixed_by
    net = copy.deepcopy(net)  # without the module
    for height, width in others:
        x = np.zeros((1, 3, height, width), np.float32)
        with pytest.raises(ValueError, match=f"{height} x {width} is not a size that the model was imported for"):
            net(x)
        with pytest.raises(ValueError, match="takes other branches or fails unless"):
            next(net.stream([x]))
        with pytest.raises(ValueError, match="takes other branches or fails unless"):
            net.layers((1, 3, height, width))


def test_conditions_of_two_inputs_fix_the_sizes() -> None:
    module = Function(lambda x, y: (x if x.shape[2] > y.shape[2] else x * 2, y + 1))
    net = mpscnn.load(module, input_shapes=[(1, 3, 8, 8), (1, 3, 6, 6)])
    assert all(spec.height for spec in net.inputs.values())
    assert all("a branch that depends on sizes" in spec.fixed_by for spec in net.inputs.values())


def test_what_pytorch_itself_checks_is_no_branch() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.AvgPool2d(2), nn.Upsample(scale_factor=2.0), nn.MaxPool2d(3, 1, 1))
    (spec,) = mpscnn.load(module.eval(), input_shapes=(1, 3, 16, 16)).inputs.values()
    assert (spec.height, spec.width, spec.fixed_by, spec.sizes) == (None, None, "", "")


def test_files_keep_conditions(tmp_path: Path) -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=3, sizes="height % 2 == 0 and width <= max(height, 4)")
    graph.output(graph.add("NeuronReLU", x), "y")
    mpscnn.Network(graph).save(tmp_path / "net.mpscnn")
    net = mpscnn.load(tmp_path / "net.mpscnn")
    assert net.inputs["x"].sizes == "height % 2 == 0 and width <= max(height, 4)"
    assert net(np.ones((1, 2, 4, 3), np.float32)).shape == (1, 2, 4, 3)
    for height, width in ((3, 3), (4, 5)):
        with pytest.raises(ValueError, match=f"{height} x {width} is not a size"):
            net(np.ones((1, height, width, 3), np.float32))
        image = mpscnn.Image((1, height, width, 3))
        with pytest.raises(ValueError, match=f"{height} x {width} is not a size"):
            net.encode(mpscnn.CommandBuffer(), image)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("height", "is not a condition"),
        ("height >", "is not a condition"),
        ("__import__('os') == 1", "has Call"),
        ("height.real == 1", "has Attribute"),
        ("height ** 9 == 1", "has Pow"),
        ("depth == 1", "has Name"),
        ("height == 1.5", "has Constant"),
        ("max() == 1", "has Call"),
        ("height == " + "(" * 300 + "1" + ")" * 300, "is not a condition"),
        ("height == 1" + " " * 100_000, "more than the maximum"),
        ("height > " + "+".join(["1"] * 1500), "nested too deeply|recursion"),
    ],
)
def test_wrong_conditions(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        mpscnn.Graph().input("x", sizes=text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("height == 6", True),
        ("height // 4 != 1", False),
        ("not height - width > 2", True),
        ("1 < height < width + 2 or -height == 3", True),
        ("min(height, width) > 5 and height + 0 >= 6", False),
        ("height * width % 30 == 0", True),
        ("height // (width - 5) == 1", True),  # there is no such size
        ("height // (width - 5) == 1 and height == 7", False),
    ],
)
def test_values_of_conditions(text: str, expected: bool) -> None:
    assert _sizes.holds(_sizes.check(text), 6, 5) == expected
