# SPDX-License-Identifier: Apache-2.0
"""The table of layers: shapes, parameters and operations against counts by hand and published ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mpscnn
from mpscnn.graph import Graph, Value
from mpscnn.layers import layer_table, memory_plan


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def small() -> Graph:
    """Convolution, batch normalization, ReLU, pooling, a branch, addition, concatenation, linear."""
    graph = Graph()
    x = graph.input("x", height=8, width=6, channels=3, layout="NCHW")
    a = graph.add("Convolution", x, name="conv", origin="a.conv (Conv)", weight=ones(8, 3, 3, 3), padding=1)
    values = {name: ones(8) for name in ("gamma", "beta", "mean", "variance")}
    a = graph.add("BatchNormalization", a, name="bn", origin="a.bn (BatchNormalization)", **values)
    a = graph.add("NeuronReLU", a, name="relu")
    a = graph.add("PoolingMax", a, name="pool", kernel_size=2)
    b = graph.add("Convolution", a, name="branch", weight=ones(8, 1, 3, 3), bias=ones(8), groups=8, padding=1)
    a = graph.add("Add", a, b, name="add")
    a = graph.concatenate(a, b, name="cat")
    y = graph.add("FullyConnected", a, name="fc", weight=ones(10, 16 * 4 * 3), bias=ones(10), feature_map=(16, 4, 3))
    graph.output(y, "y", layout="NC")
    return graph


def one(kernel: str, *shapes: tuple[int, int, int, int], **arguments: object) -> mpscnn.layers.Layer:
    graph = Graph()
    sources: list[Value] = [
        graph.input(f"x{i}", height=h, width=w, channels=c) for i, (_, h, w, c) in enumerate(shapes)
    ]
    graph.output(graph.add(kernel, *sources, **arguments), "y")
    table = layer_table(graph, {f"x{i}": shape for i, shape in enumerate(shapes)})
    assert len(table) == 1
    return table[0]


def test_of_a_graph_each_node_is_a_layer() -> None:
    table = layer_table(small())
    assert [layer.name for layer in table] == ["conv", "bn", "relu", "pool", "branch", "add", "cat", "fc"]
    conv = table[0]
    assert (conv.origin, conv.kernel, conv.apple_class) == ("a.conv (Conv)", "Convolution", "MPSCNNConvolution")
    assert (conv.weight_layout, conv.sources) == ("OIHW -> OHWI", ("x",))
    assert (conv.input_shapes, conv.output_shape) == (((1, 8, 6, 3),), (1, 8, 6, 8))
    assert [layer.parameters for layer in table] == [216, 16, 0, 0, 80, 0, 0, 1930]
    assert [layer.multiply_adds for layer in table] == [216 * 48, 0, 0, 0, 72 * 12, 0, 0, 1920]
    assert [layer.flops for layer in table] == [432 * 48, 2 * 384, 384, 4 * 96, 144 * 12, 96, 0, 3840]
    assert [layer.result_bytes for layer in table] == [4 * n for n in (384, 384, 384, 96, 96, 96, 192, 10)]
    assert (table.parameters, table.multiply_adds) == (2242, 216 * 48 + 72 * 12 + 1920)


def test_of_a_network_each_kernel_is_one() -> None:
    table = mpscnn.Network(small()).layers()
    assert [layer.name for layer in table] == ["relu", "pool", "branch", "add", "cat", "fc"]
    assert table[0].activation == "relu"
    assert table[0].parameters == 216 + 8  # batch normalization is folded into a bias
    assert table[0].origin == "a.conv (Conv), a.bn (BatchNormalization)"


def test_totals_grow_with_the_batch_and_parameters_do_not() -> None:
    single, many = (layer_table(small(), (n, 3, 8, 6)) for n in (1, 5))
    assert many.parameters == single.parameters
    assert (many.flops, many.result_bytes) == (5 * single.flops, 5 * single.result_bytes)
    assert many[0].output_shape == (5, 8, 6, 8)


def test_half_floats_take_half_the_bytes() -> None:
    halves, floats = (mpscnn.Network(small(), dtype=dtype).layers() for dtype in ("float16", "float32"))
    assert 2 * halves.result_bytes == floats.result_bytes
    plans = [memory_plan(mpscnn.Network(small(), dtype=dtype)) for dtype in ("float16", "float32")]
    assert 2 * plans[0].output_bytes == plans[1].output_bytes
    assert 2 * plans[0].peak_temporary_bytes == plans[1].peak_temporary_bytes
    assert plans[0].input_bytes == plans[1].input_bytes  # arrays of float32


@pytest.mark.parametrize(
    ("kernel", "shapes", "arguments", "flops"),
    [
        ("ConvolutionTranspose", [(1, 5, 7, 4)], {"weight": ones(4, 6, 2, 2), "stride": 2}, 2 * 4 * 6 * 4 * 35),
        (
            "Convolution",
            [(1, 5, 7, 4)],
            {"weight": ones(36, 4, 3, 3), "padding": 1, "sub_pixel_scale_factor": 3},
            2 * 36 * 4 * 9 * 35,
        ),
        (
            "BinaryConvolution",
            [(1, 5, 7, 4)],
            {"weight": mpscnn.pack_bits(ones(6, 4, 1, 1)), "in_channels": 4},
            2 * 6 * 4 * 35,
        ),
        ("PoolingAverage", [(2, 6, 6, 4)], {"kernel_size": (3, 2)}, 6 * 2 * 2 * 3 * 4),
        ("InstanceNormalization", [(1, 5, 7, 4)], {"gamma": ones(4)}, 6 * 140),
        ("SpatialNormalization", [(1, 5, 7, 4)], {"kernel_size": 3}, 18 * 140),
        ("LocalContrastNormalization", [(1, 5, 7, 4)], {"kernel_size": 3}, 36 * 140),
        ("CrossChannelNormalization", [(1, 5, 7, 4)], {"kernel_size": 3}, 6 * 140),
        ("SoftMax", [(1, 5, 7, 4)], {}, 5 * 140),
        ("ReduceRowMean", [(1, 5, 7, 4)], {}, 140),
        ("ReduceFeatureChannelsSum", [(1, 5, 7, 4)], {"weight": 0.5}, 140),
        ("ReduceFeatureChannelsAndWeightsSum", [(1, 5, 7, 4), (1, 5, 7, 4)], {}, 280),
        ("UpsamplingNearest", [(1, 5, 7, 4)], {"scale_factor": 2}, 0),
        ("UpsamplingBilinear", [(1, 5, 7, 4)], {"scale_factor": 2}, 8 * 560),
        ("ResizeBilinear", [(1, 5, 7, 4)], {"size": (3, 2)}, 8 * 24),
        ("Multiply", [(1, 5, 7, 4), (1, 5, 7, 4)], {}, 140),
        ("NeuronTanH", [(1, 5, 7, 4)], {}, 140),
        ("Slice", [(1, 5, 7, 4)], {"size": (2, 2)}, 0),
        ("Pad", [(1, 5, 7, 4)], {"padding": 1}, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_operations(kernel: str, shapes: list, arguments: dict, flops: int) -> None:
    assert one(kernel, *shapes, **arguments).flops == flops


@pytest.mark.parametrize(
    ("kernel", "arguments", "parameters"),
    [
        ("BinaryConvolution", {"weight": mpscnn.pack_bits(ones(6, 4, 3, 3)), "in_channels": 4, "padding": 1}, 216),
        ("NeuronPReLU", {"a": ones(4)}, 4),
        ("GroupNormalization", {"gamma": ones(4), "beta": ones(4), "groups": 2}, 8),
        ("NeuronELU", {"a": 0.5}, 0),
        ("ReduceFeatureChannelsSum", {"weight": 0.5}, 0),
    ],
)
def test_parameters(kernel: str, arguments: dict, parameters: int) -> None:
    assert one(kernel, (1, 5, 7, 4), **arguments).parameters == parameters


def test_a_data_source_is_counted_by_its_descriptor() -> None:
    class Source(mpscnn.DataSource):
        descriptor = mpscnn.ConvolutionDescriptor(3, in_channels=4, out_channels=8)
        weights = ones(8, 3, 3, 4)
        bias = ones(8)

    layer = one("Convolution", (1, 5, 7, 4), weight=Source(), padding=1)
    assert (layer.parameters, layer.multiply_adds, layer.weight_layout) == (296, 288 * 35, "OHWI")


def test_as_text_and_as_json() -> None:
    table = layer_table(small())
    lines = str(table).splitlines()
    assert len({len(line) for line in lines}) == 1  # numbers are aligned
    assert "1x8x6x3" in lines[2]
    assert lines[-1].split()[:3] == ["total", "8", "kernels"]
    read = json.loads(json.dumps(table.to_dict()))
    assert read["totals"]["parameters"] == 2242
    assert read["layers"][7]["output_shape"] == [1, 1, 1, 10]


def test_memory() -> None:
    plan = memory_plan(mpscnn.Network(small()), (2, 3, 8, 6))
    assert (plan.input_bytes, plan.output_bytes) == (2 * 4 * 144, 2 * 4 * 10)
    temporary = [image for image in plan.images if image.role == "temporary"]
    assert plan.temporary_bytes == sum(image.nbytes for image in temporary)
    assert 0 < plan.peak_temporary_bytes <= plan.temporary_bytes
    alive = [image for image in temporary if image.first_step <= plan.peak_step <= image.last_step]
    assert sum(image.nbytes for image in alive) == plan.peak_temporary_bytes
    assert plan.weight_bytes == 4 * (216 + 8 + 80 + 1930)
    assert json.loads(json.dumps(plan.to_dict()))["steps"] == plan.steps


def test_of_a_chain_two_images_are_alive_at_once() -> None:
    graph = Graph()
    x = graph.input("x", height=4, width=4, channels=4)
    for number in range(5):
        x = graph.add("NeuronTanH", x, name=f"n{number}")
    graph.output(x, "y")
    plan = memory_plan(mpscnn.Network(graph))
    assert plan.temporary_bytes == 4 * 256
    assert plan.peak_temporary_bytes == 2 * 256


def test_summary() -> None:
    text = mpscnn.Network(small()).summary((1, 3, 8, 6))
    assert "MPSCNNConvolution" in text
    assert "temporary images, most at once" in text


def free() -> Graph:
    graph = Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=3, layout="NCHW")), "y")
    return graph


CONV = [("conv", "Conv2d")], {"conv.weight": ones(8, 3, 3, 3)}


def test_a_network_is_shown_for_the_shapes_that_it_was_loaded_with() -> None:
    layers, weights = CONV
    net = mpscnn.load(weights, layers=layers, input_shapes=(2, 3, 8, 6))
    assert net.summary() == net.summary((2, 3, 8, 6))
    assert net.layers()[0].input_shapes == ((2, 8, 6, 3),)
    assert memory_plan(net).input_bytes == 4 * 2 * 8 * 6 * 3
    assert net.layers((1, 3, 9, 5))[0].input_shapes == ((1, 9, 5, 3),), "others are taken"
    net.input_layout = "NHWC"
    assert net.summary() == net.summary((2, 8, 6, 3))


def test_loaded_with_shapes_by_name() -> None:
    weights = {"conv.weight": ones(8, 6, 3, 3)}
    layers = [("cat", "Concat", {"inputs": ["a", "b"]}), ("conv", "Conv2d")]
    shapes = {"a": (1, 4, 8, 6), "b": (1, 2, 8, 6)}
    net = mpscnn.load(weights, layers=layers, input_shapes=shapes)
    assert net.summary() == net.summary(shapes)
    changed = {"a": (3, 4, 8, 6), "b": (3, 2, 8, 6)}
    assert net.summary(changed) != net.summary()
    with pytest.raises(ValueError, match="images"):
        net.summary({"a": (3, 4, 8, 6)})  # the other input has the imported shape


def onnx_model(shape: tuple[int | str, ...]) -> bytes:
    onnx = pytest.importorskip("onnx")
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "small", [value("x", kind, shape)], [value("y", kind, shape)])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]).SerializeToString()


@pytest.mark.parametrize(("batch", "expected"), [(2, 2), ("n", 1)])
def test_an_onnx_model_is_shown_for_its_shapes(batch: int | str, expected: int) -> None:
    net = mpscnn.load(onnx_model((batch, 3, 8, 6)))
    assert net.inputs["x"].height is None, "others are taken"
    assert net.summary() == net.summary((expected, 3, 8, 6))
    net = mpscnn.load(onnx_model((batch, 3, 8, 6)), mean=0.5, std=2.0, input_shapes={"x": (4, 3, 8, 6)})
    assert net.summary() == net.summary((4, 3, 8, 6))


def test_an_onnx_model_of_open_extents_is_shown_for_those_that_were_given() -> None:
    net = mpscnn.load(onnx_model(("n", 3, "h", "w")), input_shapes={"x": (5, 3, 4, 6)})
    assert net.summary() == net.summary((5, 3, 4, 6))


def test_a_file_is_shown_for_the_shapes_of_the_network_that_was_saved(tmp_path: Path) -> None:
    layers, weights = CONV
    path = tmp_path / "net.mpscnn"
    saved = mpscnn.load(weights, layers=layers, input_shapes=(2, 3, 8, 6))
    saved.input_layout = "NHWC"
    saved.save(path)
    net = mpscnn.load(path)
    assert net.summary() == net.summary((2, 8, 6, 3))
    assert net.layers()[0].input_shapes == ((2, 8, 6, 3),)
    net.save(path)
    assert mpscnn.load(path).summary() == net.summary(), "and of a file that is written again"
    mpscnn.Network(free()).save(path)
    with pytest.raises(ValueError, match="height and width are free"):
        mpscnn.load(path).summary()


def test_a_fixed_program_is_shown_for_its_shapes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    program = torch.export.export(torch.nn.Conv2d(3, 8, 3), (torch.ones(1, 3, 8, 6),))
    torch.export.save(program, tmp_path / "net.pt2")
    for model in (program, tmp_path / "net.pt2"):
        net = mpscnn.load(model)
        assert net.summary() == net.summary((1, 3, 8, 6))


@pytest.mark.parametrize("name", ["input_shapes", "in a list", "by keyword", "example_inputs", "example by keyword"])
def test_a_module_is_shown_for_the_shapes_that_it_was_loaded_with(name: str) -> None:
    torch = pytest.importorskip("torch")
    shape = (2, 3, 8, 6)
    given = {
        "input_shapes": {"input_shapes": shape},
        "in a list": {"input_shapes": [shape]},
        "by keyword": {"input_shapes": {"input": shape}},
        "example_inputs": {"example_inputs": torch.ones(shape)},
        "example by keyword": {"example_inputs": {"input": torch.ones(shape)}},
    }[name]
    net = mpscnn.load(torch.nn.Conv2d(3, 8, 3), **given)
    assert net.summary() == net.summary(shape)


@pytest.mark.parametrize(
    ("shapes", "error", "match"),
    [
        (None, ValueError, r'input "x": height and width are free: give its shape \(NCHW\)\.'),
        ((1, 3, 4), ValueError, r'input "x": the shape \(1, 3, 4\) has not the 4 extents of NCHW\.'),
        ({"z": (1, 3, 4, 4)}, ValueError, 'there is no input "z"; there are x'),
        ((1, 4, 5, 5), ValueError, r"channels \(4\) is not 3"),
    ],
)
def test_refusals(shapes: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        layer_table(free(), shapes)  # type: ignore[arg-type]


def test_neither_graph_nor_network() -> None:
    with pytest.raises(TypeError, match=r"model \(int\) is not a Graph or a Network"):
        layer_table(3)  # type: ignore[arg-type]


# ---- networks that others have counted

# Parameters and multiply-adds for 224 x 224 pixels, as published with torchvision's weights ("num_params", "_ops").
PUBLISHED = {
    "resnet50": (25_557_032, 4.089),
    "mobilenet_v2": (3_504_872, 0.301),
    "mobilenet_v3_large": (5_483_032, 0.217),
    "mobilenet_v3_small": (2_542_856, 0.057),
    "efficientnet_b0": (5_288_548, 0.386),
    "squeezenet1_1": (1_235_496, 0.349),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_published(name: str) -> None:
    pytest.importorskip("torch")
    from architectures import ARCHITECTURES
    from mpscnn.importing import torch_module

    module = ARCHITECTURES[name].make().eval()
    graph = torch_module.read(module, input_shapes=(1, 3, 224, 224), free_size=False)
    table = layer_table(graph, (1, 3, 224, 224))
    parameters, multiply_adds = PUBLISHED[name]
    assert table.parameters == parameters
    assert table.multiply_adds / 1e9 == pytest.approx(multiply_adds, abs=6e-4)
    assert sum(tensor.numel() for tensor in module.parameters()) == parameters
