# SPDX-License-Identifier: Apache-2.0
"""Each node of mpscnn.nodes against the kernel that it makes, and wrong arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn import nodes
from mpscnn.nodes._base import _CLASSES

Result = Callable[..., Any]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def of_two(kind: type, name: str, **properties: Any) -> tuple[str, Callable[[Any, Any], Any], Result]:
    def node(x: Any, y: Any) -> Any:
        made = kind(x, y)
        for key, value in properties.items():
            setattr(made, key, value)
        return made

    return kind.__name__, node, getattr(mpscnn, name)(**properties)


X = (2, 9, 11, 5)
OIHW = random(8, 5, 3, 3, seed=1)
GAMMA, BETA = random(5, seed=2), random(5, seed=3)
MEAN, VARIANCE = random(5, seed=4), random(5, seed=5) ** 2 + 0.5
BITS = mpscnn.pack_bits(random(8, 40, 3, 3, seed=6))


def with_properties(node: Any, **properties: Any) -> Any:
    for name, value in properties.items():
        setattr(node, name, value)
    return node


# Name, source's shape, node, kernel.
ONE: list[tuple[str, tuple[int, ...], Callable[[Any], Any], Result]] = [
    ("Convolution", X, lambda x: nodes.ConvolutionNode(x, OIHW, BETA[[0] * 8], padding=1),
     mpscnn.Convolution(OIHW, BETA[[0] * 8], padding=1)),
    ("Convolution, strides and sides", X,
     lambda x: nodes.ConvolutionNode(x, OIHW, stride=(2, 3), padding=((2, 0), (1, 3)), activation="relu"),
     mpscnn.Convolution(OIHW, stride=(2, 3), padding=((2, 0), (1, 3)), activation="relu")),
    ("Convolution, dilated", X, lambda x: nodes.ConvolutionNode(x, OIHW, dilation=(1, 2), padding=(1, 2)),
     mpscnn.Convolution(OIHW, dilation=(1, 2), padding=(1, 2))),
    ("Convolution, valid", X, lambda x: nodes.ConvolutionNode(x, OIHW, padding="valid"), mpscnn.Convolution(OIHW)),
    ("Convolution, same", X, lambda x: nodes.ConvolutionNode(x, OIHW, stride=2, padding="same"),
     mpscnn.Convolution(OIHW, stride=2, padding="same")),
    ("Convolution, depth-wise", X,
     lambda x: nodes.ConvolutionNode(x, OIHW[:5, :1], groups=5, padding=1),
     mpscnn.Convolution(OIHW[:5, :1], groups=5, padding=1)),
    ("Convolution, sub-pixel", X,
     lambda x: nodes.ConvolutionNode(x, OIHW, sub_pixel_scale_factor=2, padding=1),
     mpscnn.Convolution(OIHW, sub_pixel_scale_factor=2, padding=1)),
    ("ConvolutionTranspose", X,
     lambda x: nodes.ConvolutionTransposeNode(x, random(5, 8, 3, 4), stride=2, padding=1, output_padding=1),
     mpscnn.ConvolutionTranspose(random(5, 8, 3, 4), stride=2, padding=1, output_padding=1)),
    ("FullyConnected", X, lambda x: nodes.FullyConnectedNode(x, random(7, 495), feature_map=(5, 9, 11)),
     mpscnn.FullyConnected(random(7, 495), feature_map=(5, 9, 11))),
    ("BinaryConvolution", (2, 9, 11, 40),
     lambda x: nodes.BinaryConvolutionNode(x, BITS, in_channels=40, type="binary_weights", padding=1),
     mpscnn.BinaryConvolution(BITS, in_channels=40, type="binary_weights", padding=1)),
    ("BinaryFullyConnected", (2, 3, 3, 40),
     lambda x: nodes.BinaryFullyConnectedNode(x, BITS, in_channels=40, type="binary_weights"),
     mpscnn.BinaryFullyConnected(BITS, in_channels=40, type="binary_weights")),
    ("PoolingMax", X, lambda x: nodes.PoolingMaxNode(x, (3, 2), stride=2, padding=(1, 0), ceil_mode=True),
     mpscnn.PoolingMax((3, 2), stride=2, padding=(1, 0), ceil_mode=True)),
    ("PoolingAverage", X, lambda x: nodes.PoolingAverageNode(x, 3, stride=2, padding=1, count_include_pad=False),
     mpscnn.PoolingAverage(3, stride=2, padding=1, count_include_pad=False)),
    ("PoolingAverage, with its padding", X,
     lambda x: nodes.PoolingAverageNode(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=True),
     mpscnn.PoolingAverage(3, stride=2, padding=1, ceil_mode=True, count_include_pad=True)),
    ("PoolingL2Norm", X, lambda x: nodes.PoolingL2NormNode(x, 3, stride=2, padding=1),
     mpscnn.PoolingL2Norm(3, stride=2, padding=1)),
    ("DilatedPoolingMax", X, lambda x: nodes.DilatedPoolingMaxNode(x, 3, stride=1, dilation=2, padding=2),
     mpscnn.DilatedPoolingMax(3, stride=1, dilation=2, padding=2)),
    ("Neuron", X, lambda x: nodes.NeuronNode(x, mpscnn.NeuronTanH(2, 0.5)), mpscnn.NeuronTanH(2, 0.5)),
    ("NeuronAbsolute", X, nodes.NeuronAbsoluteNode, mpscnn.NeuronAbsolute()),
    ("NeuronELU", X, lambda x: nodes.NeuronELUNode(x, 0.5), mpscnn.NeuronELU(0.5)),
    ("NeuronExponential", X, lambda x: nodes.NeuronExponentialNode(x, 0.5, 1, -1),
     mpscnn.NeuronExponential(0.5, 1, -1)),
    ("NeuronGeLU", X, nodes.NeuronGeLUNode, mpscnn.Neuron("gelu")),
    ("NeuronHardSigmoid", X, lambda x: nodes.NeuronHardSigmoidNode(x, 0.3, 0.4), mpscnn.NeuronHardSigmoid(0.3, 0.4)),
    ("NeuronLinear", X, lambda x: nodes.NeuronLinearNode(x, 3, -1), mpscnn.NeuronLinear(3, -1)),
    ("NeuronLogarithm", X, lambda x: nodes.NeuronLogarithmNode(nodes.NeuronAbsoluteNode(x), 2, 1, -1),
     lambda x: mpscnn.NeuronLogarithm(2, 1, -1)(np.abs(x))),
    ("NeuronPower", X, lambda x: nodes.NeuronPowerNode(nodes.NeuronAbsoluteNode(x), 2, 1, 0.5),
     lambda x: mpscnn.NeuronPower(2, 1, 0.5)(np.abs(x))),
    ("NeuronReLU", X, lambda x: nodes.NeuronReLUNode(x, 0.1), mpscnn.NeuronReLU(0.1)),
    ("NeuronReLUN", X, lambda x: nodes.NeuronReLUNNode(x, 0.1, 0.7), mpscnn.NeuronReLUN(0.1, 0.7)),
    ("NeuronSigmoid", X, nodes.NeuronSigmoidNode, mpscnn.NeuronSigmoid()),
    ("NeuronSoftPlus", X, lambda x: nodes.NeuronSoftPlusNode(x, 2, 0.5), mpscnn.NeuronSoftPlus(2, 0.5)),
    ("NeuronSoftSign", X, nodes.NeuronSoftSignNode, mpscnn.NeuronSoftSign()),
    ("NeuronTanH", X, lambda x: nodes.NeuronTanHNode(x, 2, 0.5), mpscnn.NeuronTanH(2, 0.5)),
    ("NeuronPReLU", X, lambda x: nodes.NeuronPReLUNode(x, GAMMA), mpscnn.NeuronPReLU(GAMMA)),
    ("BatchNormalization", X,
     lambda x: with_properties(
         nodes.BatchNormalizationNode(x, GAMMA, BETA, MEAN, VARIANCE, epsilon=0.1), flags="never"),
     mpscnn.BatchNormalization(GAMMA, BETA, MEAN, VARIANCE, epsilon=0.1)),
    ("InstanceNormalization", X, lambda x: nodes.InstanceNormalizationNode(x, GAMMA, BETA),
     mpscnn.InstanceNormalization(GAMMA, BETA)),
    ("GroupNormalization", (2, 9, 11, 8), lambda x: nodes.GroupNormalizationNode(x, OIHW[:, 0, 0, 0], groups=2),
     mpscnn.GroupNormalization(OIHW[:, 0, 0, 0], groups=2)),
    ("SpatialNormalization", X,
     lambda x: with_properties(nodes.SpatialNormalizationNode(x, 3), alpha=0.5, beta=0.75, delta=2.0),
     mpscnn.SpatialNormalization(3, alpha=0.5, beta=0.75, delta=2.0)),
    ("LocalContrastNormalization", X,
     lambda x: with_properties(
         nodes.LocalContrastNormalizationNode(x, 3), alpha=0.5, beta=0.75, delta=2.0, p0=1.0, pm=0.3, ps=0.2),
     mpscnn.LocalContrastNormalization(3, alpha=0.5, beta=0.75, delta=2.0, p0=1.0, pm=0.3, ps=0.2)),
    ("CrossChannelNormalization", X,
     lambda x: with_properties(nodes.CrossChannelNormalizationNode(x, 3), alpha=0.5, beta=0.75, delta=2.0),
     mpscnn.CrossChannelNormalization(3, alpha=0.5, beta=0.75, delta=2.0)),
    ("SoftMax", X, nodes.SoftMaxNode, mpscnn.SoftMax()),
    ("LogSoftMax", X, nodes.LogSoftMaxNode, mpscnn.LogSoftMax()),
    ("UpsamplingNearest", X, lambda x: nodes.UpsamplingNearestNode(x, (2, 3)), mpscnn.UpsamplingNearest((2, 3))),
    ("UpsamplingBilinear", X, lambda x: nodes.UpsamplingBilinearNode(x, (2, 3), align_corners=True),
     mpscnn.UpsamplingBilinear((2, 3), align_corners=True)),
    ("Pad", X, lambda x: nodes.PadNode(x, (1, 2, 4), (3, 0, 4), edge_mode="constant", fill_value=0.5),
     mpscnn.Pad(((1, 3), (2, 0)), channels_before=4, channels_after=4, value=0.5)),
    ("Reshape", X, lambda x: nodes.ReshapeNode(x, (11, 3, 15)), mpscnn.Reshape((11, 3, 15))),
    ("Dropout", X, lambda x: nodes.DropoutNode(x, 0.5, seed=3), mpscnn.Dropout(0.5, seed=3)),
    ("GramMatrixCalculation", X, lambda x: nodes.GramMatrixCalculationNode(x, 0.5),
     lambda x: 0.5 * np.einsum("nhwc,nhwd->ncd", x, x)[:, None]),
    ("ReductionSpatialMean", X, nodes.ReductionSpatialMeanNode, lambda x: x.mean((1, 2), keepdims=True)),
    *[
        (f"Reduction{axis}{what}", X, getattr(nodes, f"Reduction{axis}{what}Node"),
         getattr(mpscnn, f"Reduce{axis}{what}")())
        for axis in ("Row", "Column", "FeatureChannels") for what in ("Min", "Max", "Mean", "Sum")
    ],
    *[
        (f"ReductionFeatureChannels{what}", X, getattr(nodes, f"ReductionFeatureChannels{what}Node"),
         getattr(mpscnn, f"ReduceFeatureChannels{what}")())
        for what in ("ArgumentMin", "ArgumentMax")
    ],
    ("ReductionRowSum, a part", X,
     lambda x: with_properties(nodes.ReductionRowSumNode(x), clip_rect_source=((1, 2, 0), (3, 4, 1))),
     mpscnn.ReduceRowSum(clip_rect_source=((1, 2, 0), (3, 4, 2)))),
]  # fmt: skip
TWO = [
    of_two(nodes.AdditionNode, "Add", primary_scale=0.5, bias=1.0),
    of_two(nodes.SubtractionNode, "Subtract", secondary_scale=2.0),
    of_two(nodes.MultiplicationNode, "Multiply", minimum_value=-0.5, maximum_value=0.5),
    of_two(nodes.DivisionNode, "Divide", bias=0.5),
]


def check(graph: mpscnn.MPSNNGraph, expected: np.ndarray, *sources: np.ndarray) -> None:
    result = graph(*sources)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("shape", "node", "kernel"), [row[1:] for row in ONE], ids=[row[0] for row in ONE])
def test_one_source(shape: tuple[int, ...], node: Callable[[Any], Any], kernel: Result) -> None:
    x = random(*shape, seed=9)
    check(mpscnn.MPSNNGraph(node(nodes.ImageNode()), format="float32"), kernel(x), x)


@pytest.mark.parametrize(("node", "kernel"), [row[1:] for row in TWO], ids=[row[0] for row in TWO])
def test_two_sources(node: Callable[[Any, Any], Any], kernel: Result) -> None:
    x, y = random(*X, seed=9), np.sign(random(*X, seed=10)) * (1 + random(*X, seed=11) ** 2)
    check(mpscnn.MPSNNGraph(node(nodes.ImageNode("x"), nodes.ImageNode("y")), format="float32"), kernel(x, y), x, y)


def test_comparison_and_broadcast() -> None:
    node = nodes.ComparisonNode(nodes.ImageNode(), nodes.ImageNode())
    node.comparison_type = "less"
    node.secondary_stride_in_pixels_x = node.secondary_stride_in_pixels_y = 0
    x, y = random(*X, seed=9), random(2, 1, 1, 5, seed=10)
    check(mpscnn.MPSNNGraph(node, format="float32"), (x < y).astype(np.float32), x, y)
    assert (node.comparison_type, node.secondary_stride_in_pixels_x, node.primary_stride_in_pixels_x) == ("less", 0, 1)


def test_concatenation() -> None:
    x, y = random(2, 4, 5, 8), random(2, 4, 5, 3, seed=1)
    node = nodes.ConcatenationNode([nodes.ImageNode("x"), nodes.ImageNode("y")])
    result = mpscnn.MPSNNGraph(node, format="float32")(x, y)
    assert result.shape == (2, 4, 5, 12)
    np.testing.assert_array_equal(result[..., :11], np.concatenate([x, y], 3))


def test_scaled_pictures() -> None:
    """A constant picture stays constant; the arithmetic is compared in the tests of Objective-C classes."""
    x = np.full((2, 6, 8, 3), 0.25, np.float32)
    for kind in (nodes.LanczosScaleNode, nodes.BilinearScaleNode):
        check(mpscnn.MPSNNGraph(kind(nodes.ImageNode(), (9, 5)), format="float32"), np.full((2, 9, 5, 3), 0.25), x)


FORWARD_ONLY = {"ForwardLossNode", "InitialGradientNode", "LossNode", "YOLOLossNode"}  # in test_mps_graph.py


def test_each_class_is_tested() -> None:
    kinds = {kind.__name__ for kind in nodes.classes().values() if not issubclass(kind, nodes.GradientFilterNode)}
    seen = {row[0].partition(",")[0] + "Node" for row in ONE} | {row[0] for row in TWO}
    seen |= {"ComparisonNode", "ConcatenationNode", "LanczosScaleNode", "BilinearScaleNode"}
    assert kinds - seen == FORWARD_ONLY


def test_each_class_of_apples() -> None:
    """All node classes of the headers have a Python class, and the reverse."""
    headers = inspect.getfile(mpscnn).replace("__init__.py", "openmps/include/MPSNeuralNetwork/MPSNNGraphNodes.h")
    try:
        with open(headers, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        pytest.skip("the package has no headers of openmps")
    named = {line.split()[1] for line in text.splitlines() if line.startswith("@interface MPS")}
    named = {name for name in named if name.endswith("Node")}
    abstract = {
        "MPSCNNPoolingNode", "MPSCNNPoolingGradientNode", "MPSCNNNormalizationNode", "MPSNNUnaryReductionNode",
        "MPSNNBinaryArithmeticNode", "MPSNNArithmeticGradientNode",
    }  # fmt: skip
    assert {kind.apple_class for kind in _CLASSES.values()} == named - abstract


@pytest.mark.parametrize("kind", nodes.classes().values(), ids=lambda kind: kind.__name__)
def test_wrong_source(kind: type) -> None:
    """Every node refuses a source that is no node, by its class and the parameter's name."""
    count = sum(
        parameter.default is inspect.Parameter.empty
        for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]  # type: ignore[misc]
    )
    right = {"weight": OIHW, "kernel_size": 3, "scale_factor": 2, "size": 4, "shape": (1, 1, 4), "gamma": GAMMA,
             "a": GAMMA, "activation": "relu", "before": (0, 0, 0), "after": (0, 0, 0), "loss": mpscnn.Loss("hinge"),
             "sources": [1]}  # fmt: skip
    if kind is nodes.YOLOLossNode:
        pytest.skip("the loss is checked first")
    names = list(inspect.signature(kind.__init__).parameters)[1:][:count]  # type: ignore[misc]
    if "gradient_state" in names:
        with pytest.raises(TypeError, match=f"{kind.__name__}: gradient_state \\(int\\) is not a StateNode"):
            kind(*[right.get(name, 1) for name in names])
        return
    with pytest.raises(TypeError, match=rf"{kind.__name__}: \w+ \(int\) is not an ImageNode or filter node\."):
        kind(*[right.get(name, 1) for name in names])


x = nodes.ImageNode("x")
WRONG = [
    (lambda: nodes.PoolingMaxNode(x, 0), ValueError, "PoolingMaxNode: kernel_size (0) is less than the minimum (1)."),
    (lambda: nodes.PoolingMaxNode(x, (1, 2, 3)), ValueError,
     "PoolingMaxNode: kernel_size (1, 2, 3) is not an int or a pair (height, width)."),
    (lambda: nodes.PoolingMaxNode(x, 2, padding="all"), ValueError, 'padding ("all") is not one of "same"'),
    (lambda: nodes.PoolingMaxNode(x, 2, padding=(1, 2, 3)), ValueError, "PoolingMaxNode: padding ((1, 2, 3)) is not"),
    (lambda: nodes.PoolingMaxNode(x, 2, padding=-1), ValueError, "PoolingMaxNode: padding (-1) is less than"),
    (lambda: nodes.PoolingAverageNode(x, 2, count_include_pad=True), ValueError, "needs padding in pixels"),
    (lambda: nodes.PoolingAverageNode(x, 2, padding=((1, 0), (0, 0)), count_include_pad=True), ValueError,
     "PoolingAverageNode: count_include_pad (True) needs equal padding on opposite sides."),
    (lambda: nodes.ConvolutionNode(x, np.ones((8, 4, 3))), TypeError, "Convolution: weight.dtype (float64) is not"),
    (lambda: nodes.ConvolutionNode(x, OIHW, stride=0), ValueError, "stride"),
    (lambda: nodes.ConvolutionNode(x, OIHW, optimizer=3), TypeError, "ConvolutionNode: optimizer (int) is not"),
    (lambda: nodes.ConvolutionNode(x, OIHW, activation="relu", optimizer=mpscnn.OptimizerAdam()), NotImplementedError,
     "Convolution: the weights have an activation, which MPS does not differentiate: use a neuron node instead."),
    (lambda: nodes.ConvolutionNode(x, nodes.ConvolutionNode(x, OIHW).weights, stride=2), ValueError,
     "ConvolutionNode: stride was given together with Weights, which have it."),
    (lambda: nodes.ConvolutionNode(x, OIHW).weights.weight, RuntimeError, "no optimizer has changed them yet"),
    (lambda: setattr(nodes.ConvolutionNode(x, OIHW), "training_style", "tpu"), ValueError,
     'ConvolutionNode: training_style ("tpu") is not one of none, cpu, gpu.'),
    (lambda: nodes.FilterNode(), TypeError, "FilterNode cannot be made; make an object of a derived class."),
    (lambda: nodes.StateNode(), TypeError, "StateNode cannot be made; it is the result_state of a filter."),
    (lambda: nodes.ImageNode(3), TypeError, "label (int) is not a str."),
    (lambda: setattr(nodes.ImageNode(), "format", "float64"), ValueError, 'ImageNode: format ("float64") is not one'),
    (lambda: nodes.PadNode(x, (1, 1), (0, 0, 0)), ValueError,
     "PadNode: before (1, 1) is not (height, width, channels)."),
    (lambda: nodes.ReshapeNode(x, (4, 4)), ValueError, "ReshapeNode: shape (4, 4) is not (height, width, channels)."),
    (lambda: nodes.LossNode(x, "hinge"), TypeError, "LossNode: loss (str) is not a Loss."),
    (lambda: nodes.ConcatenationNode(3), TypeError, "ConcatenationNode: sources (int) is not an iterable of nodes."),
    (lambda: setattr(nodes.ReductionRowMinNode(x), "clip_rect_source", ((1, 2), (3, 4))), ValueError,
     "ReductionRowMinNode: clip_rect_source (1, 2, 3, 4) is not ((y, x, image), (height, width, images))."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), WRONG, ids=[row[2][:40] for row in WRONG])
def test_wrong_arguments(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert text in str(raised.value)


def test_properties() -> None:
    node = nodes.ConvolutionNode(nodes.ImageNode("in"), OIHW)
    assert node.accumulator_precision == "float32"
    node.accumulator_precision = "float16"
    node.label = "first"
    assert (node.accumulator_precision, node.label, repr(node)) == (
        "float16", "first", "<mpscnn.nodes.ConvolutionNode 'first'>",
    )  # fmt: skip
    assert node.training_style == "gpu"
    image = node.result_image
    assert image == node.result_image
    assert image in {node.result_image}
    assert image != nodes.ConvolutionNode(nodes.ImageNode(), OIHW).result_image
    image.format, image.stop_gradient, image.label = "float32", True, "out"
    assert (node.result_image.format, node.result_image.stop_gradient, node.result_image.label) == (
        "float32",
        True,
        "out",
    )
    assert isinstance(node.result_state, nodes.ConvolutionGradientStateNode)
    assert node.result_states == (node.result_state,)
    assert node.weights.descriptor.kernel_size == (3, 3)
    region = nodes.ReductionRowMinNode(image)
    region.clip_rect_source = ((1, 2, 0), (3, 4, 1))
    assert region.clip_rect_source == ((1, 2, 0), (3, 4, 1))


class Shifted(mpscnn.PaddingPolicy):
    """The first window begins at the second row and column."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def destination(self, kernel: Any, sources: Any, suggested: Any) -> Any:
        self.asked.append((kernel.kernel_size, kernel.stride, kernel.dilation, sources, suggested))
        n, h, w, c = suggested
        return (n, h - 1, w - 1, c), (2, 2)


def test_own_padding_policy() -> None:
    policy = Shifted()
    graph = mpscnn.MPSNNGraph(nodes.ConvolutionNode(nodes.ImageNode(), OIHW, padding=policy), format="float32")
    pixels = random(*X, seed=9)
    check(graph, mpscnn.Convolution(OIHW)(pixels)[:, 1:, 1:], pixels)
    assert policy.asked[0] == ((3, 3), (1, 1), (1, 1), [(1, 9, 11, 5)], (1, 7, 9, 8))


def test_exception_of_a_padding_policy() -> None:
    class Broken(mpscnn.PaddingPolicy):
        def destination(self, kernel: Any, sources: Any, suggested: Any) -> Any:
            raise ZeroDivisionError("of the policy")

    graph = mpscnn.MPSNNGraph(nodes.PoolingMaxNode(nodes.ImageNode(), 2, padding=Broken()), format="float32")
    with pytest.raises(ZeroDivisionError, match="of the policy"):
        graph(random(1, 4, 4, 4))


def test_data_source() -> None:
    """Weights of a Python object; its exceptions are those of the node."""

    class Ones(mpscnn.DataSource):
        descriptor = mpscnn.ConvolutionDescriptor(3, in_channels=5, out_channels=8)
        loads = 0

        def load(self) -> bool:
            type(self).loads += 1
            self.weights = np.ones((8, 3, 3, 5), np.float32)
            return True

        def purge(self) -> None:
            self.weights = None

    pixels = random(*X)
    node = nodes.ConvolutionNode(nodes.ImageNode(), Ones(), padding=1)
    check(mpscnn.MPSNNGraph(node, format="float32"), mpscnn.Convolution(Ones(), padding=1)(pixels), pixels)
    assert Ones.loads >= 2

    class Fails(Ones):
        def load(self) -> bool:
            if type(self).loads > 0:
                raise OSError("no such file")
            return super().load()

    Fails.loads = 0
    node = nodes.ConvolutionNode(nodes.ImageNode(), Fails())
    with pytest.raises(OSError, match="no such file"):
        mpscnn.MPSNNGraph(node)
    with pytest.raises(OSError, match="no such file"):
        nodes.ConvolutionNode(nodes.ImageNode(), Fails())
