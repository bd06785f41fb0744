# SPDX-License-Identifier: Apache-2.0
"""DeformConv, AffineGrid, CenterCropPad, Hardmax, the last of equal values: against onnxruntime or ONNX's evaluator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator
from onnx_support import assert_same, check, model, reference, run

import mpscnn
from mpscnn.importing import onnx as importer

node = helper.make_node


def values(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(proto: onnx.ModelProto, relative: float = 2e-5, **feeds: NDArray[Any]) -> None:
    """Compare the graph and the network with ONNX's reference evaluator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (expected,) = ReferenceEvaluator(proto).run(None, feeds)
    graph = importer.read(proto)
    assert_same(run(graph, feeds)["y"], expected, relative)
    assert_same(mpscnn.Network(graph)(**feeds), expected, relative)


# ---- DeformConv


@pytest.mark.parametrize(
    ("channels", "given", "offset_group", "mask"),
    [
        (3, {}, 1, False),
        (3, {"pads": [1, 1, 1, 1]}, 1, True),
        (8, {"group": 2, "strides": [2, 1], "pads": [0, 1, 2, 1]}, 1, True),
        (8, {"group": 4, "dilations": [2, 1], "pads": [2, 1, 2, 1]}, 2, True),
        (6, {"dilations": [1, 2], "strides": [1, 2]}, 3, False),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_deform_conv(channels, given, offset_group, mask, bias):
    height, width, kernel = 9, 7, (3, 2)
    weight = values(8, channels // given.get("group", 1), *kernel, seed=1)
    pads, strides, dilations = given.get("pads", [0] * 4), given.get("strides", [1, 1]), given.get("dilations", [1, 1])
    extents = [
        (extent + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i, extent in enumerate((height, width))
    ]
    shapes = {"x": (channels, height, width), "o": (2 * 6 * offset_group, *extents)}
    if mask:
        shapes["m"] = (6 * offset_group, *extents)
    names = ["x", "w", "o", "b" if bias else "", "m" if mask else ""]
    arrays = {"w": weight} | ({"b": values(8, seed=2)} if bias else {})
    proto = model(
        [node("DeformConv", names, ["y"], offset_group=offset_group, **given)],
        {name: (2, *shape) for name, shape in shapes.items()}, ["y"], 19, **arrays,
    )  # fmt: skip
    feeds = {name: values(2, *shape, seed=3 + i) for i, (name, shape) in enumerate(shapes.items())}
    feeds["o"] *= 2  # beyond the edges too
    agree(proto, **feeds)


def test_offsets_that_do_not_fit():
    nodes = [node("DeformConv", ["x", "w", "o"], ["y"], "deform")]
    shapes = {"x": (1, 3, 9, 7), "o": (1, 18, 5, 5)}
    with pytest.raises(mpscnn.InvalidModelError, match=r"deform .*offsets \(18, 5, 5\)"):
        importer.read(model(nodes, shapes, ["y"], 19, w=values(4, 3, 3, 3)))


# ---- AffineGrid


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 7, 2)])
def test_affine_grid(size, align_corners):
    nodes = [
        node("AffineGrid", ["theta", "size"], ["grid"], align_corners=align_corners),
        node("GridSample", ["x", "grid"], ["y"], align_corners=align_corners),
    ]
    proto = model(nodes, {"x": (2, 3, 6, 5), "theta": (2, 2, 3)}, ["y"], 20, size=np.array(size))
    agree(proto, 1e-4, x=values(2, 3, 6, 5), theta=values(2, 2, 3, seed=1))


def test_affine_grid_of_the_shape_of_another():
    nodes = [node("Shape", ["x"], ["size"]), node("AffineGrid", ["theta", "size"], ["y"])]
    proto = model(nodes, {"x": ("n", 3, 4, 5), "theta": ("n", 2, 3)}, ["y"], 20)
    agree(proto, x=values(2, 3, 4, 5), theta=values(2, 2, 3, seed=1))


# ---- CenterCropPad


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 3, 4, 5), None), ((7, 2), [2, 3]), ((4, 9), [-2, -1]), ((5, 6, 7), [1, 2, 3]), ((3, 3), [1, 2]), ((8,), [3])],
)
def test_center_crop_pad(shape, axes):
    attributes = {} if axes is None else {"axes": axes}
    proto = model(
        [node("CenterCropPad", ["x", "s"], ["y"], **attributes)], {"x": (2, 4, 6, 5)}, ["y"], 18, s=np.array(shape)
    )
    agree(proto, 0, x=values(2, 4, 6, 5))


def test_cropped_batches_are_refused():
    proto = model([node("CenterCropPad", ["x", "s"], ["y"])], {"x": (2, 4, 6)}, ["y"], 18, s=np.array([1, 4, 6]))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="a part of the batch"):
        importer.read(proto)


# ---- Hardmax, ArgMax


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_hardmax(axis, opset):
    if opset == 12 and axis not in (3, -1):
        pytest.skip("several axes in version 12")
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 4, 5)).astype(np.float32)  # with equal values
    agree(model([node("Hardmax", ["x"], ["y"], axis=axis)], {"x": ("n", 3, 4, 5)}, ["y"], opset), 0, x=x)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [1, 2, 3, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_last_of_equal_values(operator, axis, keepdims):
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 4, 5)).astype(np.float32)
    attributes = {"axis": axis, "keepdims": keepdims, "select_last_index": 1}
    nodes = [node(operator, ["x"], ["a"], **attributes), node("Cast", ["a"], ["y"], to=1)]
    agree(model(nodes, {"x": ("n", 3, 4, 5)}, ["y"], 13), 0, x=x)


# ---- RoiAlign, and constants


def test_regions_are_refused_with_advice():
    nodes = [node("Relu", ["x"], ["features"]), node("RoiAlign", ["features", "boxes", "numbers"], ["y"], "regions")]
    proto = model(nodes, {"x": (1, 3, 9, 9)}, ["y"], 16, boxes=values(2, 4), numbers=np.zeros(2, np.int64))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r'options={"outputs": \["features"\]}'):
        importer.read(proto)


@pytest.mark.parametrize(
    "operator",
    ["Acosh", "Celu", "Elu", "HardSigmoid", "HardSwish", "Hardmax", "LogSoftmax", "Mish", "Selu", "Softplus"],
)
def test_functions_of_constants(operator):
    nodes = [node(operator, ["c"], ["d"]), node("Add", ["x", "d"], ["y"])]
    check(
        model(nodes, {"x": ("n", 3, 4, 5)}, ["y"], 18, c=np.abs(values(1, 3, 1, 5)) + 1),
        {"x": (2, 3, 4, 5)},
        fixed=True,
    )


def test_diagonals_of_constants():
    nodes = [node("EyeLike", ["c"], ["d"], k=1, dtype=1), node("MatMul", ["x", "d"], ["y"])]
    check(model(nodes, {"x": ("n", 4, 5)}, ["y"], c=np.zeros((5, 5), np.float32)), {"x": (2, 4, 5)})


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ('y = Resize <mode = "linear"> (x, , , s)', "1, 3, 8, 6"),
        ("c = Cast <to = 1> (s) y = Resize (x, , c)", "1, 1, 2, 2"),
        ("y = Reshape (x, s)", "1, 3, 6, 4"),
        ("y = CenterCropPad (x, s)", "1, 3, 2, 6"),
    ],
)
def test_extents_that_are_values_of_an_input(line: str, numbers: str) -> None:
    def of(inputs: str, more: str) -> Any:
        text = f'<ir_version: 8, opset_import: ["": 18]> sized ({inputs}) => (float[n, a, b, c] y) {more} {{ {line} }}'
        return parser.parse_model(text)

    with pytest.raises(
        mpscnn.UnsupportedOperatorError, match=r"values of an input, .*: make it a constant of the model"
    ):
        mpscnn.load(of("float[n, 3, 4, 6] x, int64[4] s", ""))
    net = mpscnn.load(of("float[1, 3, 4, 6] x", f"<int64[4] s = {{{numbers}}}>"))
    assert net(np.ones((1, 3, 4, 6), np.float32)).shape[0] == 1


def test_sums_of_constants_that_are_as_large_as_the_batch() -> None:
    node, one = onnx.helper.make_node, onnx.numpy_helper.from_array(np.ones(1, np.float32))

    def summed(axes: list[int]) -> Any:
        nodes = [
            node("Shape", ["x"], ["shape"]),
            node("ConstantOfShape", ["shape"], ["ones"], value=one),
            node("Add", ["ones", "ones"], ["twos"]),
            node("ReduceSum", ["twos", "axes"], ["sum"], keepdims=1),
            node("Div", ["x", "sum"], ["y"]),
        ]
        return model(nodes, {"x": ("n", 4, 6, 8)}, ["y"], axes=np.array(axes))

    net = mpscnn.load(summed([2, 3]))
    for images in (1, 3):
        x = np.random.default_rng(0).standard_normal((images, 4, 6, 8)).astype(np.float32)
        np.testing.assert_allclose(net(x), reference(summed([2, 3]), {"x": x})[0], rtol=1e-6)
    for axes in ([0, 2], [-4], [0, 1, 2, 3]):
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="computed of the size of the batch"):
            mpscnn.load(summed(axes))


# ---- axes taken together or apart


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_padding_of_axes_taken_apart(mode: str) -> None:
    nodes = [node("Reshape", ["x", "apart"], ["a"]), node("Pad", ["a", "pads", "value"], ["y"], mode=mode)]
    arrays: dict[str, Any] = {"apart": np.int64([-1, 2, 3, 4, 5]), "pads": np.int64([0, 0, 1, 0, 2, 0, 1, 0, 3, 0])}
    proto = model(nodes, {"x": ("n", 6, 4, 5)}, ["y"], 17, value=np.float32(0.5 if mode == "constant" else 0), **arrays)
    check(proto, {"x": (1, 6, 4, 5)}, {"x": (3, 6, 4, 5)}, fixed=True)


def test_group_normalization_of_tokens() -> None:
    """As torch.onnx writes it, of a sum with an image that was tokens: its channels are not the last stored axis."""
    nodes = [
        node("Reshape", ["x", "tokens"], ["i"]),
        node("Transpose", ["i"], ["t"], perm=[0, 2, 1]),
        node("Softmax", ["t"], ["a"], axis=1),
        node("MatMul", ["a", "i"], ["p"]),
        node("MatMul", ["p", "a"], ["q"]),
        node("Transpose", ["q"], ["u"], perm=[0, 2, 1]),
        node("Reshape", ["u", "image"], ["j"]),
        node("Add", ["j", "x"], ["r"]),
        node("Reshape", ["r", "groups"], ["g"]),
        node("InstanceNormalization", ["g", "ones", "zeros"], ["n"], epsilon=1e-3),
        node("Shape", ["r"], ["shape"]),
        node("Reshape", ["n", "shape"], ["y"]),
    ]
    arrays: dict[str, Any] = {"tokens": np.int64([-1, 6, 20]), "image": np.int64([-1, 6, 4, 5])}
    arrays |= {"groups": np.int64([0, 3, -1]), "ones": np.float32([1, 2, 0.5]), "zeros": np.float32([0, 1, -1])}
    proto = model(nodes, {"x": ("n", 6, 4, 5)}, ["y"], 17, **arrays)
    check(proto, {"x": (1, 6, 4, 5)}, {"x": (2, 6, 4, 5)}, fixed=True)


WINDOWS: list[tuple[str, dict[str, Any]]] = [
    ("DepthToSpace", {"blocksize": 2}),
    ("SpaceToDepth", {"blocksize": 2}),
    ("AveragePool", {"kernel_shape": [2, 3], "strides": [1, 2]}),
    ("MaxPool", {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}),
    ("LpPool", {"kernel_shape": [2, 2]}),
]


@pytest.mark.parametrize(("kind", "given"), WINDOWS)
@pytest.mark.parametrize("channels", [8, 12])
@pytest.mark.parametrize("is_product", [False, True])
def test_windows_of_tokens(kind: str, given: dict[str, Any], channels: int, is_product: bool) -> None:
    """Of an image that was tokens, whose channels are not the last axis that is stored."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("Softmax", ["x"], ["a"], axis=2),
        node("MatMul", ["t", "a"], ["p"]),
        node("MatMul", ["p", "t"], ["q"]),
        node("Reshape", ["q", "image"], ["i"]),
        node("Mul", ["i", "rows"], ["j"]),
        node(kind, ["j" if is_product else "i"], ["d"], **given),
        node("Relu", ["d"], ["y"]),
    ]
    arrays: dict[str, Any] = {"image": np.int64([-1, channels, 4, 6]), "rows": values(4, 1)}
    proto = model(nodes, {"x": ("n", 24, channels)}, ["y"], 17, **arrays)
    check(proto, {"x": (1, 24, channels)}, {"x": (3, 24, channels)}, fixed=True)


def test_convolutions_of_constants() -> None:
    """Positions that a network convolves (XCiT)."""
    nodes = [
        node("Conv", ["c", "w", "b"], ["p"], pads=[1, 0, 1, 2], strides=[1, 2], group=2),
        node("Add", ["x", "p"], ["y"]),
    ]
    arrays: dict[str, Any] = {"c": values(1, 4, 5, 6), "w": values(6, 2, 3, 3), "b": values(6)}
    proto = model(nodes, {"x": ("n", 6, 5, 3)}, ["y"], 17, **arrays)
    check(proto, {"x": (1, 6, 5, 3)}, {"x": (2, 6, 5, 3)}, fixed=True)
    pads = next(attribute for attribute in nodes[0].attribute if attribute.name == "pads")
    pads.ints[0] = 1 << 40
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="a constant convolved with pads"):
        importer.read(model(nodes, {"x": ("n", 6, "h", 3)}, ["y"], 17, **arrays), input_shapes={"x": (1, 6, 5, 3)})
    pads.ints[0] = 1
    arrays |= {"c": values(1, 4, 400, 400), "w": values(600, 2, 3, 3), "b": values(600)}
    proto = model(nodes, {"x": ("n", 600, "h", "w")}, ["y"], 17, **arrays)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="convolved with weights"):
        importer.read(proto, input_shapes={"x": (1, 600, 400, 200)})


def test_products_of_constants() -> None:
    """Positions that a network multiplies by its weights."""
    nodes = [
        node("Gemm", ["a", "b", "c"], ["p"], alpha=0.5, beta=2.0, transA=1, transB=1),
        node("Gemm", ["p", "d"], ["q"]),
        node("Add", ["x", "q"], ["y"]),
    ]
    arrays = {"a": values(3, 4), "b": values(5, 3), "c": values(5), "d": values(5, 2)}
    proto = model(nodes, {"x": ("n", 4, 2)}, ["y"], 17, **arrays)
    check(proto, {"x": (1, 4, 2)}, {"x": (2, 4, 2)}, fixed=True)
    for name, array in (("c", values(2, 4, 5)), ("c", values(7)), ("a", values(4))):
        wrong = model(nodes, {"x": ("n", 4, 2)}, ["y"], 17, **arrays)
        (place,) = [i for i, tensor in enumerate(wrong.graph.initializer) if tensor.name == name]
        wrong.graph.initializer[place].CopyFrom(onnx.numpy_helper.from_array(array, name))
        with pytest.raises(mpscnn.InvalidModelError):
            importer.read(wrong)


def test_many_values_of_sizes() -> None:
    """Values computed of sizes are objects, so that there is a limit for them."""
    nodes = [
        node("Shape", ["x"], ["shape"], end=1),
        node("Range", ["zero", "n", "one"], ["numbers"]),
        node("Squeeze", ["shape"], ["n"]),
        node("Add", ["numbers", "many"], ["places"]),
        node("Gather", ["rows", "places"], ["y"], axis=0),
        node("Reshape", ["x", "minus"], ["rows"]),
    ]
    nodes = [nodes[i] for i in (0, 2, 1, 3, 5, 4)]
    arrays: dict[str, Any] = {"zero": np.int64(0), "one": np.int64(1), "minus": np.int64([-1])}
    proto = model(nodes, {"x": ("n", 4, 2)}, ["y"], 17, many=np.zeros((1 << 20, 2), np.int64), **arrays)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="2097152 values computed of sizes, more than the max"):
        importer.read(proto)


RESIZED: list[dict[str, Any]] = [
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "cubic", "coordinate_transformation_mode": "asymmetric", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
]


@pytest.mark.parametrize("given", RESIZED)
@pytest.mark.parametrize("size", [(9, 4), (3, 6), (5, 6)])
def test_resized_constants(given: dict[str, Any], size: tuple[int, int]) -> None:
    """Positions of another size than that for which a network was trained."""
    arrays: dict[str, Any] = {"c": values(1, 2, 5, 6), "sizes": np.int64([1, 2, *size])}
    nodes = [node("Resize", ["c", "", "", "sizes"], ["r"], **given), node("Add", ["x", "r"], ["y"])]
    check(
        model(nodes, {"x": ("n", 2, *size)}, ["y"], 17, **arrays),
        {"x": (1, 2, *size)},
        {"x": (2, 2, *size)},
        fixed=True,
    )


def test_resized_constants_by_scales() -> None:
    arrays: dict[str, Any] = {"c": values(1, 2, 5, 6), "scales": np.float32([1, 1, 2, 0.5])}
    nodes = [node("Resize", ["c", "", "scales"], ["r"], mode="linear"), node("Add", ["x", "r"], ["y"])]
    check(model(nodes, {"x": ("n", 2, 10, 3)}, ["y"], 17, **arrays), {"x": (2, 2, 10, 3)}, fixed=True)
    for wrong, message in (([1, 1, 1e9, 1], "more than the limit"), ([1, 1, 1e5, 1e5], "a constant of shape")):
        arrays["scales"] = np.float32(wrong)
        with pytest.raises(mpscnn.UnsupportedOperatorError, match=message):
            importer.read(
                model(nodes, {"x": ("n", 2, "h", "w")}, ["y"], 17, **arrays), input_shapes={"x": (1, 2, 3, 3)}
            )


def test_an_output_that_is_listed_twice() -> None:
    """A module that returns a tensor twice has an output twice; the second one has a name of its own."""
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["y"], ["y_1"])]
    proto = model(nodes, {"x": ("n", 2, 3, 4)}, ["y", "y_1"], 17)
    first, second = proto.graph.output
    del proto.graph.output[1:]
    proto.graph.output.extend([first, second])
    x = values(2, 2, 3, 4)
    net = mpscnn.load(proto)
    assert list(net.outputs) == ["y", "y_2", "y_1"]
    for found, expected in zip(net(x), (x.clip(0), x.clip(0), -x.clip(0)), strict=True):
        assert_same(found, expected)
