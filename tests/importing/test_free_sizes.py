# SPDX-License-Identifier: Apache-2.0
"""Networks at other heights and widths than those of the import: right, or refused with the layer that fixed them."""

from __future__ import annotations

import copy
from collections.abc import Callable
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


# ---- resizes


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "nearest-exact", "bicubic"])
def test_a_constant_size_that_equals_the_source_is_not_that_of_other_sources(mode):
    module = Function(lambda x: F.interpolate(torch.relu(x), size=(6, 8), mode=mode))
    net = mpscnn.load(module.eval(), input_shapes=(1, 3, 6, 8))
    agree(module, net, (2, 3, 6, 8))
    with pytest.raises(ValueError, match=r"its height \(12\) is not 6, .* fixed by _?upsample_"):
        net(torch.zeros(1, 3, 12, 8))


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
