# SPDX-License-Identifier: Apache-2.0
"""mpscnn.detection.roi_align and roi_pool, against onnxruntime; detectors as two networks with regions between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import mpscnn
from mpscnn.detection import roi_align, roi_pool

FLOAT = TensorProto.FLOAT


def run(node: onnx.NodeProto, opset: int, **feeds: np.ndarray) -> np.ndarray:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def boxes_of(rng: np.random.Generator, count: int, images: int, side: float) -> np.ndarray:
    """Return boxes of all sizes, some of them partly or wholly outside of the image."""
    corner, extent = rng.uniform(-8, side + 8, (count, 2)), rng.uniform(0.1, side / 2, (count, 2))
    return np.concatenate([rng.integers(0, images, (count, 1)), corner, corner + extent], 1).astype(np.float32)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("form", ["", "half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 2, 3])
@pytest.mark.parametrize("extents", [(13, 9), (50, 68), (1, 5)])
def test_roi_align(mode, form, ratio, extents):
    rng = np.random.default_rng([ratio, *extents])
    x = rng.standard_normal((2, 5, *extents)).astype(np.float32)
    boxes = boxes_of(rng, 40, 2, 4 * max(extents))
    attributes: dict[str, Any] = {"coordinate_transformation_mode": form} if form else {}
    node = helper.make_node(
        "RoiAlign", ["x", "rois", "numbers"], ["y"], mode=mode, output_height=7, output_width=3, spatial_scale=0.25,
        sampling_ratio=ratio, **attributes,
    )  # fmt: skip
    expected = run(node, 16 if form else 10, x=x, rois=boxes[:, 1:].copy(), numbers=boxes[:, 0].astype(np.int64))
    found = roi_align(
        x, boxes, (7, 3), spatial_scale=0.25, sampling_ratio=ratio, aligned=form == "half_pixel", mode=mode
    )
    assert found.dtype == np.float32
    # float32's positions, of several thousand features for the largest maps.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [0.25, 1.0, 0.3])
@pytest.mark.parametrize("extents", [(13, 9), (50, 68)])
def test_roi_pool(scale, extents):
    rng = np.random.default_rng(list(extents))
    x = rng.standard_normal((2, 5, *extents)).astype(np.float32)
    boxes = boxes_of(rng, 40, 2, max(extents) / scale)
    boxes[:10] = np.round(boxes[:10] * 2) / 2  # halves, which are rounded away from 0
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[4, 3], spatial_scale=scale)
    expected = run(node, 11, x=x, rois=boxes)
    np.testing.assert_array_equal(roi_pool(x, boxes, (4, 3), spatial_scale=scale), expected)


def test_lists_of_boxes_and_none():
    rng = np.random.default_rng(0)
    x, boxes = rng.standard_normal((3, 4, 9, 8)).astype(np.float32), boxes_of(rng, 7, 3, 9)
    order = np.argsort(boxes[:, 0], kind="stable")
    lists = [torch.from_numpy(boxes[boxes[:, 0] == image, 1:]) for image in range(3)]
    for function in (roi_align, roi_pool):
        np.testing.assert_array_equal(function(x, lists, 2), function(x, boxes[order], 2))
        assert function(torch.from_numpy(x), np.zeros((0, 5)), (2, 3)).shape == (0, 4, 2, 3)
    # With aligned, boxes without an area have no samples.
    assert (roi_align(x, [[0, 3, 3, 3, 3]], 2, aligned=True) == 0).all()


@pytest.mark.parametrize("function", [roi_align, roi_pool])
@pytest.mark.parametrize(
    ("features", "boxes", "size", "message"),
    [
        ((2, 4, 9), [[0, 0, 0, 1, 1]], 2, r"features has shape \(2, 4, 9\), not \(N, C, H, W\)"),
        ((2, 4, 9, 8), [0, 0, 0, 1, 1], 2, r"boxes has shape \(5,\); it must be \(K, 5\)"),
        ((2, 4, 9, 8), [[0, 0, 1, 1]], 2, r"boxes has shape \(1, 4\); it must be \(K, 5\), or a list of one array"),
        ((2, 4, 9, 8), [[2, 0, 0, 1, 1]], 2, "index 2 in its first column; there are 2 images"),
        ((2, 4, 9, 8), [[0.5, 0, 0, 1, 1]], 2, r"index 0\.5"),
        ((2, 4, 9, 8), [[0, 0, 0, 1, np.inf]], 2, "boxes has NaN or infinities"),
        ((2, 4, 9, 8), [np.zeros((1, 4))], 2, r"boxes has shapes \[\(1, 4\)\]; 2 images need as many"),
        ((2, 4, 9, 8), [[0, 0, 0, 1, 1]], (2, 0), "output_size"),
        ((2, 4, 9, 8), [[0, 0, 0, 1, 1]], (2, 2, 2), r"output_size \(2, 2, 2\) is not one int or two"),
    ],
)
def test_refusals(function, features, boxes, size, message):
    with pytest.raises(ValueError, match=message):
        function(np.zeros(features), boxes, size)


def test_refused_mode():
    with pytest.raises(ValueError, match=r'mode \("sum"\) is neither "avg" nor "max"'):
        roi_align(np.zeros((1, 1, 4, 4)), [[0, 0, 0, 1, 1]], 2, mode="sum")


# ---- detectors in two parts


def detector(operator: str = "RoiAlign", **attributes: Any) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((6, 3, 3, 3)), "v": rng.standard_normal((4, 6, 2, 2))}
    inputs = ["features", "rois", *(["numbers"] if operator == "RoiAlign" else [])]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["features"], "stem", pads=[1] * 4, strides=[2, 2]),
        helper.make_node(operator, inputs, ["regions"], "pooled", **attributes),
        helper.make_node("Conv", ["regions", "v"], ["head"], "head"),
        helper.make_node("Relu", ["head"], ["y"], "relu"),
    ]
    rois = [None, 4] if operator == "RoiAlign" else [None, 5]
    graph = helper.make_graph(
        nodes,
        "detector",
        [
            helper.make_tensor_value_info("x", FLOAT, ["n", 3, 20, 24]),
            helper.make_tensor_value_info("rois", FLOAT, rois),
            helper.make_tensor_value_info("numbers", TensorProto.INT64, [None]),
        ][: len(inputs)],
        [helper.make_tensor_value_info("y", FLOAT, [None] * 4)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


@pytest.mark.parametrize(
    ("operator", "attributes", "advice"),
    [
        (
            "RoiAlign",
            {"output_height": 4, "output_width": 3, "spatial_scale": 0.5, "sampling_ratio": 2},
            "roi_align(features, regions, (4, 3), spatial_scale=0.5, sampling_ratio=2, aligned=True)",
        ),
        (
            "RoiAlign",
            {
                "output_height": 2,
                "output_width": 2,
                "mode": "max",
                "coordinate_transformation_mode": "output_half_pixel",
            },
            'roi_align(features, regions, (2, 2), spatial_scale=1, sampling_ratio=0, aligned=False, mode="max")',
        ),
        ("MaxRoiPool", {"pooled_shape": [4, 3]}, "roi_pool(features, regions, (4, 3), spatial_scale=1)"),
    ],
)
def test_models_in_two_parts(operator, attributes, advice):
    """The error has the program that computes the model."""
    proto = detector(operator, **attributes)
    with pytest.raises(mpscnn.UnsupportedOperatorError) as refused:
        mpscnn.load(proto)
    text = " ".join(str(refused.value).split())
    assert f"mpscnn.detection.{advice}" in text
    size = eval(advice.partition("regions, ")[2].partition(")")[0] + ")")
    shapes = {"regions": (1, 6, *size)}
    assert 'options={"outputs": ["features"]}' in text
    assert f'options={{"inputs": ["regions"]}}, input_shapes={{"regions": (1, C, {size[0]}, {size[1]})}}' in text

    rng = np.random.default_rng(1)
    feeds = {"x": rng.standard_normal((2, 3, 20, 24)).astype(np.float32), "rois": boxes_of(rng, 9, 2, 20)}
    stem = mpscnn.load(proto, options={"outputs": ["features"]})
    head = mpscnn.load(proto, options={"inputs": ["regions"]}, input_shapes=shapes)
    assert list(head.inputs) == ["regions"]
    names = {"roi_align": roi_align, "roi_pool": roi_pool, "features": stem(feeds["x"]), "regions": feeds["rois"]}
    found = head(eval(advice, names))
    if operator == "RoiAlign":
        feeds |= {"numbers": feeds["rois"][:, 0].astype(np.int64), "rois": feeds["rois"][:, 1:].copy()}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    expected = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("options", "shapes", "error", "message"),
    [
        ({"inputs": ["region"]}, None, ValueError, r'inputs: detector has no value "region"; similar .*regions'),
        ({"inputs": []}, None, ValueError, r"inputs \(\[\]\) is not one name or more"),
        (
            {"inputs": ["regions"]},
            None,
            mpscnn.InvalidModelError,
            'the input "regions" has no shape; give it in input_',
        ),
        ({"inputs": ["regions"]}, {"regions": (1, 5, 4, 3)}, mpscnn.InvalidModelError, "head"),
        ({"inputs": ["features"]}, {"features": (1, 6, 4, 3)}, mpscnn.UnsupportedOperatorError, "RoiAlign"),
    ],
)
def test_wrong_inputs(options, shapes, error, message):
    with pytest.raises(error, match=message):
        mpscnn.load(detector(output_height=2), options=options, input_shapes=shapes)


def test_parts_in_the_middle():
    proto = detector(output_height=4, output_width=3)
    before = proto.SerializeToString()
    net = mpscnn.load(proto, options={"inputs": "regions", "outputs": "head"}, input_shapes={"regions": (1, 6, 9, 8)})
    assert proto.SerializeToString() == before
    assert (list(net.inputs), list(net.outputs)) == (["regions"], ["head"])
    assert net(np.ones((5, 6, 9, 8), np.float32)).shape == (5, 4, 8, 7)
    assert net(np.ones((5, 6, 7, 3), np.float32)).shape == (5, 4, 6, 2)


class Head(nn.Module):
    def __init__(self, operator, *numbers):
        super().__init__()
        self.operator, self.numbers = operator, numbers

    def forward(self, x, boxes):
        return torch.relu(getattr(torch.ops.torchvision, self.operator)(x, boxes, *self.numbers))


def test_modules_with_regions_are_refused_with_advice():
    library = None
    if not hasattr(torch.ops.torchvision, "roi_align"):
        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define(
            "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
            " int sampling_ratio, bool aligned) -> Tensor"
        )  # torchvision/csrc/ops/roi_align.cpp
        shape = lambda x, boxes, scale, h, w, ratio, aligned: x.new_empty(boxes.shape[0], x.shape[1], h, w)  # noqa: E731
        library.impl("roi_align", shape, "Meta")
        library.impl("roi_align", shape, "CPU")
    try:
        with pytest.raises(mpscnn.UnsupportedOperatorError) as refused:
            mpscnn.load(Head("roi_align", 0.5, 7, 7, 2, True), input_shapes=[(1, 3, 20, 24), (9, 5)])
    finally:
        if library is not None:
            library._destroy()
    text = " ".join(str(refused.value).split())
    assert "the module in front of the regions and the one behind them" in text
    assert "mpscnn.detection.roi_align" in text
