# SPDX-License-Identifier: Apache-2.0
"""Whole models in ONNX, exported by PyTorch or written by hand, against onnxruntime at several sizes."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx_support import assert_same, check, floats, model, reference, run, weights
from torch import nn
from torch.nn import functional

import mpscnn
from mpscnn.importing import onnx as importer

node = helper.make_node


def array(*shape: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return (rng.standard_normal(shape) / max(np.prod(shape[1:]), 1) ** 0.5).astype(np.float32)


# ---- PyTorch


class Residual(nn.Module):
    """Batch normalization, groups, strides, a gate of channels, global pooling, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.deep = nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.Hardswish(), nn.Conv2d(8, 8, 1)
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.SiLU(), nn.Conv2d(4, 8, 1), nn.Hardsigmoid()
        )
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        x = self.first(x)
        y = self.deep(x)
        x = functional.gelu(x + y * self.gate(y))
        x = functional.max_pool2d(x, 3, 2, 1)
        x = x.mean([2, 3])
        return functional.softmax(self.last(x), 1)


class Flattened(nn.Module):
    """Heights and widths fixed by a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 5), nn.Tanh(), nn.AvgPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(6 * 4 * 7, 9), nn.Dropout(), nn.LeakyReLU(0.2), nn.Linear(9, 4))

    def forward(self, x):
        x = self.features(x)
        return functional.log_softmax(self.classifier(x.view(x.size(0), -1)), dim=1)


class Unet(nn.Module):
    """Concatenations, transposed convolutions and resizing, at any multiple of 4."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, padding=1)
        self.middle = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 4, 2, 1)
        self.last = nn.Conv2d(8, 3, 3, padding=1, padding_mode="reflect")

    def forward(self, x):
        a = functional.elu(self.down(x))
        b = functional.softplus(self.middle(a))
        y = torch.cat([a, self.up(b)], 1)
        y = functional.interpolate(self.last(y), scale_factor=2, mode="nearest")
        z = functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        return functional.pad(torch.sigmoid(z), (1, 2, 0, 1))


class Shuffled(nn.Module):
    """Axes that are split and permuted, parts of channels, pixels made of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 1)
        self.second = nn.Conv2d(4, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        x = functional.hardswish(self.first(x))
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        a, b = x.chunk(2, 1)
        x = functional.pixel_shuffle(self.norm(self.second(a - 2 * b)), 2)
        return x.clamp(-0.3, 0.7) ** 2, (x * 3 + 1).flatten(2).mean(2)


TORCH = {
    "residual": (Residual, [(3, 16, 24), (3, 33, 17)], False),
    "flattened": (Flattened, [(3, 12, 18)], True),
    "unet": (Unet, [(3, 8, 12), (3, 20, 16)], False),
    "shuffled": (Shuffled, [(3, 6, 5), (3, 9, 4)], False),
}


def exported(module: nn.Module, shape: tuple[int, ...], opset: int, dynamo: bool, free: bool) -> onnx.ModelProto:
    torch.manual_seed(7)
    made = module().eval()
    for buffer in made.buffers():
        if buffer.dtype.is_floating_point:
            buffer.uniform_(0.3, 1.5)
    file = io.BytesIO()
    x = torch.zeros(2, *shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            batch = torch.export.Dim("batch", min=1, max=64)
            axes = {0: batch}
            if free:
                axes |= {2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
            program = torch.onnx.export(
                made, (x,), input_names=["x"], opset_version=opset, dynamo=True, dynamic_shapes=(axes,), verbose=False
            )
            return program.model_proto
        named = {0: "n", 2: "h", 3: "w"} if free else {0: "n"}
        torch.onnx.export(
            made,
            (x,),
            file,
            input_names=["x"],
            opset_version=opset,
            dynamo=False,
            dynamic_axes={"x": named},
            do_constant_folding=not free,
        )
    return onnx.load_model_from_string(file.getvalue())


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("opset", [9, 11, 13, 17])
@pytest.mark.parametrize("name", sorted(TORCH))
def test_exported_by_tracing(name, opset, free):
    module, shapes, fixed = TORCH[name]
    if opset == 9 and name == "unet":
        pytest.skip("bilinear resizing of version 9 is another function: see test_opset_9_has_no_half_pixels")
    proto = exported(module, shapes[0], opset, False, free)
    inputs = {"x": (1, *shapes[0])} if free else None
    fixed = fixed or (
        opset == 9 and name == "shuffled"
    )  # version 9 writes pixel shuffles as reshapes with constant shapes
    others = shapes if free and not fixed else shapes[:1]
    check(proto, *({"x": (n, *s)} for s in others for n in (1, 3)), input_shapes=inputs, fixed=fixed, relative=1e-4)


@pytest.mark.parametrize("name", sorted(TORCH))
def test_exported_by_export(name):
    module, shapes, fixed = TORCH[name]
    proto = exported(module, shapes[0], 18, True, not fixed)
    inputs = None if fixed else {"x": (1, *shapes[0])}
    others = shapes[:1] if fixed else shapes
    check(proto, *({"x": (n, *s)} for s in others for n in (1, 3)), input_shapes=inputs, fixed=fixed, relative=1e-4)


@pytest.mark.parametrize("major", [False, True])
def test_blocks_by_transposition(major):
    """Pixel shuffles as exporters write them for versions without the operator, and their inverse."""
    c, r, h, w = 3, 2, 4, 6
    apart = [0, r, r, c, h, w] if major else [0, c, r, r, h, w]
    proto = model(
        [
            node("Reshape", ["x", "apart"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=[0, 3, 4, 1, 5, 2] if major else [0, 1, 4, 2, 5, 3]),
            node("Reshape", ["b", "shape"], ["y"]),
            node("Reshape", ["y", "blocks"], ["d"]),
            node("Transpose", ["d"], ["e"], perm=[0, 3, 5, 1, 2, 4] if major else [0, 1, 3, 5, 2, 4]),
            node("Reshape", ["e", "back"], ["z"]),
        ],
        {"x": ("n", c * r * r, h, w)},
        ["y", "z"],
        apart=np.int64(apart),
        shape=np.int64([0, c, h * r, w * r]),
        blocks=np.int64([0, c, h, r, w, r]),
        back=np.int64([0, c * r * r, h, w]),
    )
    graph = check(proto, {"x": (2, c * r * r, h, w)}, fixed=True)
    assert [n.kernel for n in graph] == ["Convolution", "Convolution"]


def test_names_are_kept():
    nodes = [node("Conv", ["x", "w"], ["y"], "stem/conv"), node("Relu", ["y"], ["z"])]
    proto = model(nodes, {"x": (1, 3, 4, 4)}, ["z"], w=array(4, 3, 1, 1))
    graph = importer.read(proto)
    assert [(n.name, n.origin) for n in graph] == [("stem/conv", "stem/conv (Conv)"), ("Relu_1", "Relu_1 (Relu)")]
    assert list(graph.inputs) == ["x"]
    assert list(graph.outputs) == ["z"]


# ---- Keras and TensorFlow


def test_channels_last_with_transposes():
    """As tf2onnx writes it: channels last, a Transpose before and after the convolution."""
    proto = model(
        [
            node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
            node("Conv", ["t", "w", "b"], ["c"], auto_pad="SAME_UPPER", strides=[2, 2]),
            node("Relu", ["c"], ["r"]),
            node("MaxPool", ["r"], ["m"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
            node("Transpose", ["m"], ["l"], perm=[0, 2, 3, 1]),
            node("Mul", ["l", "scale"], ["s"]),
            node("ReduceMean", ["s"], ["v"], axes=[1, 2], keepdims=0),
            node("Gemm", ["v", "fc", "fb"], ["y"]),
            node("Softmax", ["y"], ["p"], axis=-1),
        ],
        {"x": ("n", "h", "w", 3)},
        ["p", "s"],
        13,
        w=array(6, 3, 3, 3),
        b=array(6),
        scale=array(6, seed=2),
        fc=array(6, 5),
        fb=array(5),
    )
    graph = check(
        proto,
        *({"x": (n, h, w, 3)} for n, h, w in [(1, 9, 12), (2, 8, 8), (3, 13, 6), (1, 5, 7)]),
        input_shapes={"x": (1, 9, 12, 3)},
    )
    assert graph.inputs["x"].layout == "NHWC"


def test_flattened_channels_last():
    """The order of weights is that of the flattened tensor, not that of the image."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w"], ["c"], auto_pad="VALID"),
        node("Transpose", ["c"], ["l"], perm=[0, 2, 3, 1]),
        node("Reshape", ["l", "shape"], ["f"]),
        node("MatMul", ["f", "fc"], ["y"]),
    ]
    proto = model(
        nodes,
        {"x": ("n", 6, 7, 3)},
        ["y"],
        w=array(4, 3, 3, 3),
        shape=np.int64([-1, 4 * 5 * 4]),
        fc=array(80, 5),
    )
    check(proto, {"x": (1, 6, 7, 3)}, {"x": (4, 6, 7, 3)}, fixed=True)


def test_a_sequence():
    """Three axes, channels last: a dense layer along the last one, and a one-dimensional convolution."""
    proto = model(
        [
            node("MatMul", ["x", "a"], ["y"]),
            node("Add", ["y", "bias"], ["z"]),
            node("Transpose", ["z"], ["t"], perm=[0, 2, 1]),
            node("Conv", ["t", "w"], ["c"], pads=[1, 1]),
            node("MaxPool", ["c"], ["p"], kernel_shape=[2], strides=[2]),
        ],
        {"x": ("n", "t", 3)},
        ["p"],
        a=array(3, 8),
        bias=array(8),
        w=array(4, 8, 3),
    )
    check(proto, {"x": (2, 9, 3)}, {"x": (1, 4, 3)}, input_shapes={"x": (1, 9, 3)})


# ---- padding


def with_explicit_padding(proto: onnx.ModelProto, height: int, width: int) -> onnx.ModelProto:
    """The same for one size, with explicit numbers: onnxruntime's automatic padding has no dilation or long strides."""
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    for made in changed.graph.node:
        options = {a.name: helper.get_attribute_value(a) for a in made.attribute}
        mode = options.pop("auto_pad").decode()
        sides = []
        for axis, extent in enumerate((height, width)):
            stride, kernel = options["strides"][axis], options["kernel_shape"][axis]
            reach = (kernel - 1) * options.get("dilations", [1, 1])[axis] + 1
            results = (extent + stride - 1) // stride
            total = 0 if mode == "VALID" else max(0, (results - 1) * stride + reach - extent)
            sides.append((total // 2, total - total // 2) if mode == "SAME_UPPER" else (total - total // 2, total // 2))
        del made.attribute[:]
        pads = [sides[0][0], sides[1][0], sides[0][1], sides[1][1]]
        made.attribute.extend(helper.make_attribute(k, v) for k, v in (options | {"pads": pads}).items())
    return changed


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(3, 2, 1), (2, 2, 1), (3, 1, 2), (3, 2, 3), (5, 3, 1), (1, 2, 1), (2, 3, 1)]
)
def test_automatic_padding(mode, kernel, stride, dilation):
    options = {"auto_pad": mode, "kernel_shape": [kernel, kernel], "strides": [stride, stride]}
    proto = model(
        [
            node("Conv", ["x", "w"], ["c"], dilations=[dilation, dilation], **options),
            node("MaxPool", ["x"], ["m"], **options),
            node("AveragePool", ["x"], ["a"], **options),
            node("AveragePool", ["x"], ["i"], count_include_pad=1, **options),
        ],
        {"x": ("n", 3, "h", "w")},
        ["c", "m", "a", "i"],
        w=array(4, 3, kernel, kernel),
    )
    # The number of cropped pixels depends on the size, and MPS has no policy for it.
    fixed = stride > 1 and kernel > 1 and (mode == "SAME_LOWER" or (mode == "SAME_UPPER" and stride > kernel))
    graph = importer.read(proto, input_shapes={"x": (1, 3, 9, 12)})
    assert bool(graph.inputs["x"].fixed_by) == fixed
    sizes = [(9, 12), (10, 11), (8, 13), (7, 7), (14, 8)][: 1 if fixed else 5]
    for height, width in sizes:
        feeds = {"x": array(2, 3, height, width)}
        expected = reference(with_explicit_padding(proto, height, width), feeds)
        for info, value in zip(proto.graph.output, expected, strict=True):
            assert_same(run(graph, feeds)[info.name], value)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_automatic_padding_of_a_transposed_convolution(mode):
    proto = model(
        [node("ConvTranspose", ["x", "w"], ["y"], auto_pad=mode, strides=[2, 3], kernel_shape=[3, 4])],
        {"x": ("n", 3, "h", "w")},
        ["y"],
        w=array(3, 4, 3, 4),
    )
    check(proto, {"x": (1, 3, 5, 4)}, {"x": (2, 3, 3, 7)}, input_shapes={"x": (1, 3, 5, 4)})


# ---- old versions


def test_opset_7():
    """Attributes that are inputs today, initializers among the inputs, an old version of the file format."""
    arrays = {
        "w": array(4, 3, 3, 3),
        "scale": np.abs(array(4)) + 0.5,
        "bias": array(4, seed=2),
        "mean": array(4, seed=3),
        "variance": np.abs(array(4, seed=4)) + 0.5,
        "two": np.float32([2]),
    }
    graph = helper.make_graph(
        [
            node("Conv", ["x", "w"], ["c"], pads=[1, 1, 0, 1], strides=[1, 2]),
            node("BatchNormalization", ["c", "scale", "bias", "mean", "variance"], ["b"], epsilon=1e-3),
            node("Clip", ["b"], ["r"], min=-0.5, max=0.75),
            node("Dropout", ["r"], ["d"], ratio=0.4),
            node("Upsample", ["d"], ["u"], mode="nearest", scales=[1.0, 1.0, 2.0, 3.0]),
            node("Pad", ["u"], ["p"], mode="reflect", pads=[0, 0, 1, 0, 0, 0, 2, 1]),
            node("Mul", ["p", "two"], ["m"]),
            node("Slice", ["m"], ["s"], starts=[1, 0], ends=[2147483647, -1], axes=[2, 3]),
            node("GlobalAveragePool", ["s"], ["g"]),
            node("Squeeze", ["g"], ["q"], axes=[2, 3]),
            node("Unsqueeze", ["q"], ["y"], axes=[2]),
            node("Softmax", ["s"], ["t"], axis=1),
        ],
        "old",
        [floats("x", ("n", 3, 6, 8)), *(floats(name, a.shape) for name, a in arrays.items())],
        [floats("y", ("n", 4, 1)), floats("t", ("n", 4, None, None))],
        weights(**arrays),
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=3)
    check(proto, {"x": (1, 3, 6, 8)}, {"x": (3, 3, 6, 8)})


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 15, 18, 21, 22, 23])
def test_softmax_of_every_version(opset):
    """Until version 12, softmax flattens all axes from the given one on."""
    proto = model([node("Softmax", ["x"], ["y"], axis=2)], {"x": ("n", 3, 4, 5)}, ["y"], opset)
    check(proto, {"x": (2, 3, 4, 5)})
    proto = model([node("LogSoftmax", ["x"], ["y"])], {"x": ("n", 3, 4, 5)}, ["y"], opset)
    check(proto, {"x": (2, 3, 4, 5)})


def test_opset_9_has_no_half_pixels():
    """Upsample of version 9 samples at integer multiples of the scale."""
    scales = np.float32([1, 1, 2, 3])
    for mode in ("nearest", "linear"):
        proto = model([node("Upsample", ["x", "scales"], ["y"], mode=mode)], {"x": ("n", 3, "h", "w")}, ["y"], 9,
                      scales=scales)  # fmt: skip
        check(proto, {"x": (2, 3, 4, 5)}, {"x": (1, 3, 7, 2)}, input_shapes={"x": (1, 3, 4, 5)})


# ---- shapes that are computed


def shapes_of_the_batch() -> dict[str, list]:
    """Return ways to keep the batch when (N, 3, 4, 5) becomes (N, 60)."""
    return {
        "zero": [node("Reshape", ["x", "zero"], ["y"])],
        "minus": [node("Reshape", ["x", "minus"], ["y"])],
        "gathered": [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "first"], ["n"], axis=0),
            node("Unsqueeze", ["n", "axes"], ["u"]),
            node("Concat", ["u", "rest"], ["c"], axis=0),
            node("Reshape", ["x", "c"], ["y"]),
        ],
        "sliced": [
            node("Shape", ["x"], ["s"], start=0, end=1),
            node("Concat", ["s", "sixty"], ["c"], axis=0),
            node("Cast", ["c"], ["f"], to=TensorProto.FLOAT),
            node("Cast", ["f"], ["i"], to=TensorProto.INT64),
            node("Reshape", ["x", "i"], ["y"]),
        ],
        "product": [
            node("Shape", ["x"], ["s"]),
            node("Split", ["s", "ones"], ["n", "c", "h", "w"], axis=0),
            node("Mul", ["c", "h"], ["ch"]),
            node("Mul", ["ch", "w"], ["chw"]),
            node("Concat", ["n", "chw"], ["t"], axis=0),
            node("Reshape", ["x", "t"], ["y"]),
        ],
        "size": [
            node("Size", ["x"], ["all"]),
            node("Shape", ["x"], ["s"], start=0, end=1),
            node("Div", ["all", "s"], ["each"]),
            node("Concat", ["s", "each"], ["t"], axis=0),
            node("Reshape", ["x", "minus"], ["y"]),
            node("Reshape", ["x", "t"], ["unused"]),
        ],
        "flatten": [node("Flatten", ["x"], ["y"])],
    }


CONSTANTS = {
    "zero": np.int64([0, -1]),
    "minus": np.int64([-1, 60]),
    "first": np.int64(0),
    "axes": np.int64([0]),
    "rest": np.int64([-1]),
    "sixty": np.int64([60]),
    "ones": np.int64([1, 1, 1, 1]),
}


@pytest.mark.parametrize("way", sorted(shapes_of_the_batch()))
@pytest.mark.parametrize("batch", ["n", 2])
def test_the_batch_is_kept(way, batch):
    nodes = shapes_of_the_batch()[way]
    used = {name for n in nodes for name in n.input}
    arrays = {name: a for name, a in CONSTANTS.items() if name in used}
    proto = model([*nodes, node("Gemm", ["y", "fc"], ["z"])], {"x": (batch, 3, 4, 5)}, ["z"], fc=array(60, 7), **arrays)
    graph = check(proto, {"x": (2, 3, 4, 5)}, fixed=True)
    if batch == "n":
        check(proto, {"x": (1, 3, 4, 5)}, {"x": (5, 3, 4, 5)}, fixed=True)
    assert "FullyConnected" in [n.kernel for n in graph]


def test_a_batch_that_is_written_out():
    """Traced with a batch of 2, the shape is (2, 60): the first axis is still the batch."""
    proto = model([node("Reshape", ["x", "shape"], ["y"])], {"x": (2, 3, 4, 5)}, ["y"], shape=np.int64([2, 60]))
    graph = check(proto, {"x": (2, 3, 4, 5)}, fixed=True)
    assert mpscnn.Network(graph)(np.ones((3, 3, 4, 5), np.float32)).shape == (3, 60)


def test_numbers_that_are_computed_of_heights_fix_them():
    """A sum divided by height times width is a mean only at one size if the graph has the numbers."""
    proto = model(
        [
            node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
            node("Shape", ["x"], ["shape"], start=2),
            node("ReduceProd", ["shape"], ["n"], keepdims=0),
            node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
            node("Div", ["s", "f"], ["y"]),
        ],
        {"x": ("n", 3, "h", "w")},
        ["y"],
        axes=np.int64([2, 3]),
    )
    graph = check(proto, {"x": (2, 3, 4, 5)}, input_shapes={"x": (1, 3, 4, 5)}, fixed=True)
    assert graph.inputs["x"].fixed_by == "Div_4 (Div)"


@pytest.mark.parametrize(
    ("operators", "sources"),
    [
        (["Div"], ["a", "b"]),
        (["Reciprocal"], ["a"]),
        (["Sigmoid"], ["a"]),
        (["Sin", "Cos"], ["a"]),
        (["Tanh"], ["a"]),
        (["Clip", "Sin"], ["a", "low", "high"]),
        (["Mean"], ["a", "b"]),
    ],
)
def test_sizes_that_are_cast_to_floats_are_divided_as_such(operators, sources):
    """The quotient of 4 and 5 is 0.8, that of integers 0."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        *(node("Gather", ["shape", place], [name]) for place, name in (("two", "h"), ("three", "w"))),
        *(node("Cast", [name], [to], to=TensorProto.FLOAT) for name, to in (("h", "a"), ("w", "b"))),
    ]
    for operator in operators:
        nodes.append(node(operator, sources, [operator]))
        sources = [operator]
    nodes.append(node("Mul", ["x", *sources], ["y"]))
    constants = {"two": np.int64(2), "three": np.int64(3), "low": np.float32(1), "high": np.float32(3)}
    used = {name: np.asarray(value) for name, value in constants.items() if any(name in each.input for each in nodes)}
    proto = model(nodes, {"x": ("n", 3, "h", "w")}, ["y"], **used)
    check(proto, {"x": (2, 3, 4, 5)}, input_shapes={"x": (1, 3, 4, 5)}, fixed=True)


def test_a_shape_that_is_right_for_one_size_only():
    """(N, 3, 4, 4) reshaped to (N, 3, 4, 4) is the same tensor only for 4 x 4 pixels."""
    proto = model([node("Reshape", ["x", "shape"], ["y"])], {"x": ("n", 3, "h", "w")}, ["y"],
                  shape=np.int64([0, 3, 4, 4]))  # fmt: skip
    check(proto, {"x": (2, 3, 4, 4)}, input_shapes={"x": (1, 3, 4, 4)}, fixed=True)
    swapped = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "order"], ["t"]),
            node("Reshape", ["x", "t"], ["y"]),
        ],
        {"x": ("n", 3, "h", "w")},
        ["y"],
        order=np.int64([0, 1, 3, 2]),
    )
    check(swapped, {"x": (2, 3, 4, 4)}, input_shapes={"x": (1, 3, 4, 4)}, fixed=True)


def test_a_resize_to_a_multiple_of_the_source_takes_any_size():
    proto = model(
        [
            node("Relu", ["x"], ["r"]),
            node("Shape", ["r"], ["s"]),
            node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
            node("Mul", ["f", "factors"], ["g"]),
            node("Floor", ["g"], ["h"]),
            node("Cast", ["h"], ["i"], to=TensorProto.INT64),
            node("Slice", ["i", "two", "four"], ["hw"]),
            node("Slice", ["s", "zero", "two"], ["nc"]),
            node("Concat", ["nc", "hw"], ["sizes"], axis=0),
            node("Resize", ["r", "", "", "sizes"], ["y"], mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric"),
        ],
        {"x": ("n", 3, "h", "w")},
        ["y"],
        factors=np.float32([1, 1, 2, 3]),
        zero=np.int64([0]),
        two=np.int64([2]),
        four=np.int64([4]),
    )  # fmt: skip
    check(proto, {"x": (2, 3, 4, 5)}, {"x": (1, 3, 7, 3)}, input_shapes={"x": (1, 3, 4, 5)})


def test_a_resize_to_the_size_of_another_value_is_fixed():
    proto = model(
        [
            node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Shape", ["x"], ["s"]),
            node("Resize", ["p", "", "", "s"], ["u"], mode="nearest"),
            node("Add", ["x", "u"], ["y"]),
        ],
        {"x": ("n", 3, "h", "w")},
        ["y"],
    )
    check(proto, {"x": (2, 3, 6, 8)}, input_shapes={"x": (1, 3, 6, 8)}, fixed=True)


def test_expanded_constants():
    """A mask of ones with the batch's size is the same for each image."""
    proto = model(
        [
            node("Shape", ["x"], ["s"], start=0, end=1),
            node("Concat", ["s", "rest"], ["t"], axis=0),
            node("ConstantOfShape", ["t"], ["o"], value=numpy_helper.from_array(np.float32([0.5]))),
            node("Add", ["x", "o"], ["y"]),
            node("Expand", ["row", "t"], ["e"]),
            node("Mul", ["y", "e"], ["z"]),
        ],
        {"x": ("n", 3, 4, 5)},
        ["z"],
        rest=np.int64([3, 1, 1]),
        row=array(3, 1, 1),
    )
    check(proto, {"x": (2, 3, 4, 5)}, {"x": (1, 3, 4, 5)})


def test_integers_are_divided_towards_zero():
    nodes = [node("Div", ["a", "b"], ["s"]), node("Slice", ["x", "s", "end", "axis"], ["y"])]
    proto = model(
        nodes, {"x": ("n", 8)}, ["y"], a=np.int64([-7]), b=np.int64([2]), end=np.int64([8]), axis=np.int64([1])
    )
    graph = check(proto, {"x": (2, 8)})
    assert mpscnn.Network(graph)(np.ones((1, 8), np.float32)).shape == (1, 3)


# ---- parts of models


def test_gelu_in_every_order():
    root, half, two, one = (np.float32(v) for v in (2**0.5, 0.5, 2, 1))
    erf = [node("Div", ["x", "root"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["p"])]
    orders = [
        [node("Mul", ["x", "p"], ["m"]), node("Mul", ["m", "half"], ["y"])],
        [node("Mul", ["x", "half"], ["h"]), node("Mul", ["h", "p"], ["y"])],
        [node("Mul", ["p", "half"], ["h"]), node("Mul", ["x", "h"], ["y"])],
        [node("Mul", ["p", "x"], ["m"]), node("Div", ["m", "two"], ["y"])],
    ]
    for order in orders:
        used = {name for n in (*erf, *order) for name in n.input}
        arrays = {"root": root, "half": half, "two": two, "one": one}
        arrays = {name: np.asarray(a) for name, a in arrays.items() if name in used}
        graph = check(model([*erf, *order], {"x": ("n", 3, 4, 5)}, ["y"], **arrays), {"x": (2, 3, 4, 5)})
        assert [(n.kernel, n.arguments) for n in graph] == [("Neuron", {"type": "gelu"})]
        for name in arrays:  # with any other number it is not a GELU
            other = arrays | {name: arrays[name] * np.float32(1.25)}
            graph = check(model([*erf, *order], {"x": ("n", 3, 4, 5)}, ["y"], **other), {"x": (2, 3, 4, 5)})
            assert "MetalFunction" in [n.kernel for n in graph]
    graph = check(model([*erf, *orders[0]], {"x": ("n", 3, 4, 5)}, ["y", "e"], root=root.reshape(1),
                        half=half.reshape(1), one=one.reshape(1)), {"x": (2, 3, 4, 5)})  # fmt: skip
    assert "MetalFunction" in [n.kernel for n in graph]


def test_several_inputs_and_outputs():
    proto = model(
        [
            node("Add", ["a", "b"], ["s"]),
            node("Relu", ["s"], ["r"]),
            node("Sigmoid", ["unused"], ["dead"]),
            node("Identity", ["a"], ["copy"]),
        ],
        {"a": ("n", 3, 4, 5), "b": ("n", 3, 1, 1), "unused": ("n", 2)},
        ["r", "s", "copy"],
    )
    shapes = {"a": (2, 3, 4, 5), "b": (2, 3, 1, 1), "unused": (2, 2)}
    graph = check(proto, shapes)
    assert list(graph.inputs) == ["a", "b"]
    assert [n.kernel for n in graph] == ["Add", "NeuronReLU"]


def test_weights_that_are_computed():
    """Constants pass through transpositions, casts and arithmetic before they are used as weights."""
    proto = model(
        [
            node("Cast", ["half"], ["f"], to=TensorProto.FLOAT),
            node("Transpose", ["f"], ["w"], perm=[3, 2, 0, 1]),
            node("Mul", ["w", "scale"], ["v"]),
            node("Reshape", ["long", "shape"], ["b"]),
            node("Conv", ["x", "v", "b"], ["y"]),
            node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=0),
            node("Conv", ["y", "d"], ["o"]),
        ],
        {"x": ("n", 3, 6, 6)},
        ["o"],
        half=array(3, 3, 3, 4).astype(np.float16),
        scale=np.float32([2]),
        long=array(1, 4),
        shape=np.int64([-1]),
        q=np.random.default_rng(1).integers(-100, 100, (5, 4, 1, 1), np.int8),
        s=np.float32([0.01, 0.02, 0.03, 0.04, 0.05]),
        z=np.int8([0, 1, 2, 3, -4]),
    )
    check(proto, {"x": (2, 3, 6, 6)}, relative=1e-4)


def test_half_precision():
    half = helper.make_graph(
        [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])],
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ("n", 3, 5, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ("n", 4, None, None))],
        weights(w=array(4, 3, 3, 3).astype(np.float16)),
    )
    proto = helper.make_model(half, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = importer.read(proto)
    assert graph.nodes[0].arguments["weight"].dtype == np.float16
    x = array(2, 3, 5, 6)
    w = torch.from_numpy(array(4, 3, 3, 3).astype(np.float16).astype(np.float32))
    expected = functional.relu(functional.conv2d(torch.from_numpy(x), w)).numpy()
    np.testing.assert_allclose(mpscnn.Network(graph)(x), expected, rtol=1e-3, atol=1e-3)


def test_functions_of_a_model():
    """Calls of the model's own functions are replaced by their bodies."""
    body = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["c"]), node("Relu", ["c"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    graph = helper.make_graph(
        [node("Twice", ["x"], ["y"], domain="own"), node("Twice", ["y"], ["z"], domain="own")],
        "functions",
        [floats("x", ("n", 3, 4, 4))],
        [floats("z", ("n", 3, 4, 4))],
    )
    proto = helper.make_model(
        graph,
        functions=[body],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        ir_version=8,
    )
    check(proto, {"x": (2, 3, 4, 4)})


STACKED = {
    "sum": lambda x: torch.stack([x, functional.relu(x), x * 2]).sum(0),
    "sum_of_stack_of_one": lambda x: torch.stack([x]).sum(0) + x,
    "mean": lambda x: torch.stack([x, x * 2]).mean(0),
    "max": lambda x: torch.stack([x, 1 - x]).amax(0),
    "min": lambda x: torch.stack([x, 1 - x]).amin(dim=0),
}


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("name", STACKED)
def test_reductions_of_stacks(name, opset):
    """Their axis is in front of that of the batch: the pyramids of segmentation-models-pytorch."""

    class Stacked(nn.Module):
        def forward(self, x):
            return STACKED[name](x)

    proto = exported(Stacked, (3, 4, 5), opset, dynamo=False, free=True)
    net = mpscnn.load(proto, input_shapes={proto.graph.input[0].name: (2, 3, 4, 5)})
    shapes = ((2, 3, 4, 5), (1, 3, 4, 5), (1, 3, 6, 4))
    for shape in shapes[: 2 if name in ("max", "min") else 3]:  # extrema fix the size
        x = array(*shape)
        assert_same(net(x), STACKED[name](torch.from_numpy(x)).numpy())


def test_other_reductions_of_stacks_are_refused():
    nodes = [
        helper.make_node("Unsqueeze", ["x", "first"], ["u"]),
        helper.make_node("Concat", ["u", "u"], ["stack"], axis=1),
        helper.make_node("ReduceSum", ["stack", "first"], ["y"], keepdims=0),
    ]
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="in front of the batch"):
        mpscnn.load(model(nodes, {"x": ("n", 3, 4, 5)}, ["y"], first=np.array([0])))


def test_a_resize_of_channels_that_were_summed():
    """The sum over an axis of a view has its channels elsewhere, as in FishNet."""

    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 2, 3, padding=1)

        def forward(self, x):
            y = x.view(-1, 2, 2, 4, 6).sum(2)
            return functional.interpolate(y + self.conv(x), scale_factor=2), functional.interpolate(y, (8, 9))

    module = Squeezed().eval()
    proto = exported(lambda: module, (4, 4, 6), 17, dynamo=False, free=False)
    net, x = mpscnn.load(proto), array(2, 4, 4, 6)
    for found, expected in zip(net(x), module(torch.from_numpy(x)), strict=True):
        assert_same(found, expected.detach().numpy())
