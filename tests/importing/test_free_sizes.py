# SPDX-License-Identifier: Apache-2.0
"""Networks at other heights and widths than those of the import: right, or refused with the layer that fixed them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from onnx import helper
from onnx_support import assert_same, model, reference
from torch import nn
from torch_support import Function, randomize

import mpscnn

node = helper.make_node


def agree(module: nn.Module, net: mpscnn.Network, *shapes: tuple[int, ...]) -> None:
    """Compare with PyTorch in float64."""
    exact = copy.deepcopy(module).double()
    for shape in shapes:
        x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
        with torch.no_grad():
            expected = exact(x.double())
        several, found = (y if isinstance(y, tuple) else (y,) for y in (expected, net(x)))
        for ours, theirs in zip(found, several, strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-5 * float(theirs.abs().max()))


def free(module: nn.Module, *shape: int) -> mpscnn.Network:
    net = mpscnn.load(module.eval(), input_shapes=(1, *shape))
    assert [spec.fixed_by for spec in net.inputs.values()] == [""]
    return net


# ---- detectors, and other tensors whose axes are taken together and apart


class Detector(nn.Module):
    """Boxes of two levels from distributions of distances, decoded with the positions of their pixels."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.head, self.mean = nn.Conv2d(8, 4 * 6 + 5, 1), nn.Conv2d(6, 1, 1, bias=False)

    def forward(self, x):
        levels = [torch.relu(self.first(x))]
        levels.append(torch.relu(self.second(levels[0])))
        y = torch.cat([self.head(level).view(level.shape[0], 29, -1) for level in levels], 2)
        places, strides = [], []
        for level, stride in zip(levels, (2.0, 4.0), strict=True):
            height, width = level.shape[2:]
            across = torch.arange(width, dtype=level.dtype) + 0.5
            down = torch.arange(height).type_as(level) + 0.5
            down, across = torch.meshgrid(down, across, indexing="ij")
            places.append(torch.stack((across, down), -1).view(-1, 2))
            strides.append(level.new_full((height * width, 1), stride))
        places, strides = torch.cat(places).transpose(0, 1).unsqueeze(0), torch.cat(strides).transpose(0, 1)
        box, classes = y.split((24, 5), 1)
        distances = box.view(x.shape[0], 4, 6, box.shape[2]).transpose(2, 1).softmax(1)
        before, behind = self.mean(distances).view(x.shape[0], 4, box.shape[2]).chunk(2, 1)
        first, last = places - before, places + behind
        return torch.cat([torch.cat([(first + last) / 2, last - first], 1) * strides, classes.sigmoid()], 1), y


def test_boxes_of_a_detector():
    module = randomize(Detector())
    net = free(module, 3, 32, 48)
    agree(module, net, (1, 3, 32, 48), (2, 3, 64, 40), (3, 3, 17, 50), (1, 3, 5, 300))
    assert sum(n.kernel == "MetalFunction" for n in net.graph.nodes) == 1 + 2 * 3  # joined; places and strides


def test_positions_beside_images():
    def body(x):
        height, width = x.shape[2:]
        down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        sideways, low = (y.t() for y in torch.meshgrid(torch.arange(height), torch.arange(width), indexing="xy"))
        grid = torch.stack([right, down]).to(x.dtype).unsqueeze(0)
        both = torch.stack([sideways, low], 0).to(x.dtype)
        placed = torch.cat([x, grid.expand(x.shape[0], 2, height, width)], 1)
        return placed, x[:, :2] * grid, both - x[:, 1:], x + right * 0.5

    module = Function(body)
    agree(module, free(module, 3, 8, 12), (1, 3, 8, 12), (2, 3, 11, 7), (1, 3, 1, 30))


def columns(x: torch.Tensor, start: int = 0) -> torch.Tensor:
    down, across = torch.arange(x.shape[2]), torch.arange(start, x.shape[3] + start)
    return torch.meshgrid(down, across, indexing="ij")[1]


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x * torch.meshgrid(*map(torch.arange, x.shape[2:]), indexing="ij")[0].sum(),
        lambda x: x + torch.arange(x.shape[3]).flip(0),
        lambda x: x * (torch.arange(x.shape[3], dtype=x.dtype) * 0.25 - 1).view(1, 1, 1, x.shape[3]),
        lambda x: x + torch.arange(2, x.shape[3] + 2),
        lambda x: x + columns(x, 2),
        lambda x: x * (columns(x) * 0.3).to(torch.int64),
        lambda x: x + columns(x).remainder(3),
        lambda x: x + (columns(x) / 7).to(torch.float16).float(),
        lambda x: x * x.new_full((1, x.shape[3]), 0.5 * x.shape[2]),
    ],
)
def test_other_constants_of_extents_fix_them(body: Callable[..., Any]):
    module = Function(body)
    net = mpscnn.load(module.eval(), input_shapes=(1, 3, 8, 12))
    agree(module, net, (2, 3, 8, 12))
    assert net.inputs["x" if "x" in net.inputs else next(iter(net.inputs))].fixed_by
    agree(module, net, (1, 3, 9, 13))
    with pytest.raises(ValueError, match="is not"):
        copy.deepcopy(net)(torch.zeros(1, 3, 9, 13))  # without the module


class Branches(nn.Module):
    """Sums of branches, weighted by what their sum tells (selective kernels, split attention)."""

    def __init__(self, count: int):
        super().__init__()
        self.count = count
        self.several, self.weights = nn.Conv2d(3, 8 * count, 3, padding=1), nn.Conv2d(8, 8 * count, 1)

    def forward(self, x):
        y = self.several(x).view(x.shape[0], self.count, 8, *x.shape[2:])
        weights = self.weights(y.sum(1).mean((2, 3), keepdim=True)).view(x.shape[0], self.count, 8, 1, 1).softmax(1)
        return (y * weights).sum(dim=1), y.mean(1), (weights + y).sum(1, keepdim=True).squeeze(1)


@pytest.mark.parametrize("count", [2, 3])
def test_sums_of_branches(count: int):
    module = randomize(Branches(count))
    agree(module, free(module, 3, 8, 12), (1, 3, 8, 12), (2, 3, 11, 7))


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("name", ["softmax", "amax", "sum"])
def test_parts_of_the_channels_of_a_row(name: str, place: int):
    def body(x):
        return getattr(x.flatten(2).view(x.shape[0], 4, 3, x.shape[2] * x.shape[3]), name)(place)

    module = Function(body)
    agree(module, free(module, 12, 8, 6), (1, 12, 8, 6), (2, 12, 5, 31))


@pytest.mark.parametrize("dim", [2, 3, -1])
def test_rows_and_columns_side_by_side(dim: int, tmp_path: Path):
    module = Function(lambda x: torch.cat([x, F.avg_pool2d(x, 3, 1, 1), x[:, :, ::1, ::1] * 2], dim))
    net = free(module, 3, 8, 12)
    agree(module, net, (1, 3, 8, 12), (2, 3, 11, 7))
    with pytest.raises(TypeError, match=r'joined is a Metal function, .* by options={"free_size": False}'):
        net.save(tmp_path / "net.mpscnn")
    mpscnn.load(module, input_shapes=(1, 3, 8, 12), options={"free_size": False}).save(tmp_path / "net.mpscnn")


def test_constants_like_an_image():
    """Shortcuts of binary networks have zeros as their other channels."""
    module = Function(
        lambda x: torch.cat([x.relu(), torch.zeros_like(x), torch.full_like(x, 3.5)], 1) + torch.ones_like(x[:, :1])
    )
    agree(module, free(module, 3, 8, 12), (1, 3, 8, 12), (2, 3, 11, 7))


def test_tokens_without_attention():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(6), nn.Linear(6, 4)

        def forward(self, x):
            return F.gelu(self.linear(self.norm(x.flatten(2).transpose(1, 2)))).transpose(1, 2)

    module = randomize(Tokens())
    agree(module, free(module, 6, 8, 12), (1, 6, 8, 12), (2, 6, 11, 7))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_repeat_interleave(dim: int):
    module = Function(lambda x: torch.relu(x).repeat_interleave(3, dim))
    agree(module, free(module, 3, 8, 12), (1, 3, 8, 12), (2, 3, 11, 7))


# ---- padding that follows from the size


class Same(nn.Module):
    """A convolution with TensorFlow's padding, in the way of timm."""

    def __init__(self, kernel: int, stride: int, dilation: int = 1, wrong: int = 0, value: float = 0.0):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.conv = nn.Conv2d(4, 4, kernel, stride, dilation=dilation)
        self.wrong, self.value = wrong, value

    def forward(self, x):
        x, k, s, d = self.first(x), self.conv.kernel_size[0], self.conv.stride[0], self.conv.dilation[0]
        down, across = (max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n in x.shape[2:])
        around = [across // 2, across - across // 2, down // 2, down - down // 2 + self.wrong]
        return self.conv(F.pad(x, around, value=self.value))


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 2, 1), (5, 2, 1), (4, 3, 1), (3, 2, 2)])
def test_padding_by_the_size(kernel: int, stride: int, dilation: int):
    module = randomize(Same(kernel, stride, dilation))
    agree(module, free(module, 3, 32, 46), (1, 3, 32, 46), (2, 3, 33, 47), (1, 3, 31, 65), (1, 3, 40, 50))


@pytest.mark.parametrize("options", [{"wrong": 1}, {"value": 1.0}])
def test_other_padding_by_the_size_fixes_it(options: dict[str, Any]):
    module = randomize(Same(3, 2, **options))
    net = mpscnn.load(module, input_shapes=(1, 3, 32, 46))
    agree(module, net, (2, 3, 32, 46))
    assert net.inputs["x"].fixed_by


# ---- resizes


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "nearest-exact", "bicubic"])
def test_a_constant_size_that_equals_the_source_is_not_that_of_other_sources(mode):
    module = Function(lambda x: F.interpolate(torch.relu(x), size=(6, 8), mode=mode))
    net = mpscnn.load(module.eval(), input_shapes=(1, 3, 6, 8))
    agree(module, net, (2, 3, 6, 8), (2, 3, 12, 8))
    with pytest.raises(ValueError, match=r"its height \(12\) is not 6, .* fixed by _?upsample_"):
        copy.deepcopy(net)(torch.zeros(1, 3, 12, 8))  # without the module


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("factor", [2, 1.7, 0.5, (3, 1), (1, 0.3)])
def test_bicubic_by_factors(factor, aligned):
    module = Function(lambda x: F.interpolate(x, scale_factor=factor, mode="bicubic", align_corners=aligned))
    agree(module, free(module, 5, 12, 10), (1, 5, 12, 10), (2, 5, 7, 31), (1, 5, 300, 211))


@pytest.mark.parametrize("aligned", [False, True])
def test_bicubic_to_the_size_of_another_image(aligned):
    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 6, 3, stride=2), nn.Conv2d(6, 6, 3, stride=2, padding=1)

        def forward(self, x):
            low = self.first(x)
            up = F.interpolate(self.second(low), size=low.shape[-2:], mode="bicubic", align_corners=aligned)
            return F.interpolate(low * up, size=x.shape[2:], mode="bicubic", align_corners=aligned)

    module = randomize(Pyramid())
    agree(module, free(module, 3, 16, 21), (1, 3, 16, 21), (2, 3, 37, 9), (1, 3, 224, 301))


def check_onnx(proto: onnx.ModelProto, fixed: bool, *shapes: tuple[int, ...]) -> mpscnn.Network:
    net = mpscnn.load(proto, input_shapes={"x": (1, *shapes[0][1:])})
    assert bool(net.inputs["x"].fixed_by) == fixed
    for shape in shapes:
        x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        if fixed and shape[2:] != shapes[0][2:]:
            with pytest.raises(ValueError, match="fixed by"):
                net(x)
            continue
        found = net(x)
        for ours, theirs in zip(
            found if isinstance(found, tuple) else [found], reference(proto, {"x": x}), strict=True
        ):
            assert_same(ours, theirs, 1e-4)  # onnxruntime computes positions in float32
    return net


SHAPES = ((1, 4, 12, 10), (2, 4, 7, 30), (1, 4, 120, 61), (1, 4, 2, 10))
CUBIC: list[dict[str, Any]] = [
    {"coordinate_transformation_mode": "half_pixel"},
    {"coordinate_transformation_mode": "align_corners", "cubic_coeff_a": -0.5},
    {"coordinate_transformation_mode": "asymmetric", "exclude_outside": 1},
    {"coordinate_transformation_mode": "pytorch_half_pixel"},
]


@pytest.mark.parametrize("attributes", CUBIC)
@pytest.mark.parametrize("scales", [(2.0, 2.0), (0.5, 1.75)])
def test_cubic_onnx(attributes, scales):
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="cubic", **attributes)]
    proto = model(nodes, {"x": ("n", 4, "h", "w")}, ["y"], scales=np.array([1, 1, *scales], np.float32))
    shapes = SHAPES
    if attributes["coordinate_transformation_mode"] == "align_corners" and scales[1] == 1.75:
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="aligned corners"):
            mpscnn.load(proto, input_shapes={"x": (1, 4, 12, 10)})
        shapes = ((1, 4, 12, 12),)
    check_onnx(proto, len(shapes) == 1, *shapes)


def sized_like(mode: str, coordinates: str, *, upsampled: bool = False) -> onnx.ModelProto:
    """Return features at half the size, resized to the size of the input, as torch.onnx.export writes it."""
    nodes = [
        node("Upsample" if upsampled else "Relu", ["x", "up"] if upsampled else ["x"], ["r"]),
        node("Conv", ["r", "w"], ["low"], strides=[2, 2], pads=[1] * 4),
        node("Shape", ["x"], ["whole"]),
        node("Slice", ["whole", "two", "four", "zero"], ["size"]),
        node("Shape", ["low"], ["own"]),
        node("Slice", ["own", "zero", "two", "zero"], ["front"]),
        node("Concat", ["front", "size"], ["sizes"], axis=0),
        node("Resize", ["low", "", "", "sizes"], ["y"], mode=mode, coordinate_transformation_mode=coordinates),
    ]
    if upsampled:
        nodes[0] = node("Resize", ["x", "", "up"], ["r"], coordinate_transformation_mode="asymmetric",
                        nearest_mode="floor")  # fmt: skip
    return model(
        nodes, {"x": ("n", 4, "h", "w")}, ["y"], zero=np.array([0]), two=np.array([2]), four=np.array([4]),
        w=np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32),
        up=np.array([1, 1, 3, 3], np.float32),
    )  # fmt: skip


@pytest.mark.parametrize("attributes", CUBIC)
def test_cubic_onnx_to_the_size_of_another(attributes):
    coordinates = attributes["coordinate_transformation_mode"]
    check_onnx(sized_like("cubic", coordinates), False, *SHAPES, (1, 4, 1, 9))


def test_linear_onnx_with_pytorchs_half_pixels(tmp_path):
    """Free where several pixels never become one: the source is no larger than the image whose size it gets."""
    net = check_onnx(sized_like("linear", "pytorch_half_pixel"), False, *SHAPES, (1, 4, 1, 9), (1, 4, 2, 1))
    net.save(tmp_path / "net.mpscnn")
    check_onnx(sized_like("linear", "pytorch_half_pixel", upsampled=True), True, *SHAPES)
    check_onnx(sized_like("linear", "half_pixel", upsampled=True), False, *SHAPES)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (lambda c: [("Conv", {"pads": [1] * 4})], True),
        (lambda c: [("Conv", {"pads": [2] * 4})], False),
        (lambda c: [("Conv", {"pads": [2] * 4, "dilations": [2, 2]}), ("Relu", {})], True),
        (lambda c: [("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1})], True),
        (lambda c: [("MaxPool", {"kernel_shape": [3, 3], "pads": [1, 1, 2, 1]})], False),
    ],
)
def test_growth(layers: Callable[..., Any], expected: bool):
    """Which layers make an image larger at some size."""
    nodes, last = [], "x"
    for i, (name, attributes) in enumerate(layers(4)):
        nodes.append(node(name, [last, "w"] if name == "Conv" else [last], [f"t{i}"], **attributes))
        last = f"t{i}"
    tail = sized_like("linear", "pytorch_half_pixel").graph.node[2:]
    for one in tail:
        copied = onnx.NodeProto()
        copied.CopyFrom(one)
        copied.input[:] = [last if name == "low" else name for name in one.input]
        nodes.append(copied)
    proto = model(
        nodes, {"x": ("n", 4, "h", "w")}, ["y"], zero=np.array([0]), two=np.array([2]), four=np.array([4]),
        w=np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32),
    )  # fmt: skip
    net = mpscnn.load(proto, input_shapes={"x": (1, 4, 9, 12)})
    assert (not net.inputs["x"].fixed_by) == expected
