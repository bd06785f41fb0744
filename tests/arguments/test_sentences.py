# SPDX-License-Identifier: Apache-2.0
"""Messages for wrong arguments, and values that no number or text can represent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from argument_objects import W, X, commands, graph, image, temporary

import mpscnn
from mpscnn.graph import Value
from support import Source, random

NO_ARRAY = "is not an array: it has neither DLPack, __array_interface__ nor the buffer protocol."
SENTENCES: list[tuple[Callable[[], Any], str]] = [
    (lambda: mpscnn.CommandBuffer(label=3), "label (int) is not a str."),
    (lambda: mpscnn.CommandBuffer(label=b"one"), "label (bytes) is not a str."),
    (lambda: setattr(commands(), "label", 3), "label (int) is not a str."),
    (lambda: setattr(image(), "label", 3), "label (int) is not a str."),
    (mpscnn.GradientState, "GradientState: a forward encode makes it (with_state=True)."),
    (
        lambda: mpscnn.NeuronReLU()(random(X), with_state=1),
        "NeuronReLU: with_state (int) is not True, False or a GradientState.",
    ),
    (lambda: mpscnn.CommandBuffer("gpu"), 'device (str) is not a Device: give Device("gpu").'),
    (lambda: mpscnn.Convolution(random(W), device="gpu"), 'device (str) is not a Device: give Device("gpu").'),
    (lambda: image().channels(0.5, 4), "first (float) is not an int."),
    (lambda: image().channels(True, 4), "first (bool) is not an int."),
    (lambda: image().numpy(None), "layout (NoneType) is not a str."),
    (lambda: image().numpy(copy="yes"), "copy (str) is not True or False."),
    (lambda: image().numpy(copy=1), "copy (int) is not True or False."),
    (lambda: mpscnn.NeuronReLU().encode(None, image()), "command_buffer (NoneType) is not a CommandBuffer."),
    (lambda: mpscnn.NeuronReLU().encode(commands(), random(X)), "x (ndarray) is not an Image."),
    (lambda: mpscnn.NeuronReLU().encode(commands(), None), "x (NoneType) is not an Image."),
    (lambda: mpscnn.NeuronReLU().encode(commands(), image(), temporary=1), "temporary (int) is not True or False."),
    (lambda: mpscnn.ConvolutionDescriptor(3, "4", 8), "in_channels (str) is not an int."),
    (lambda: mpscnn.ConvolutionDescriptor(3, 4, 8, depthwise=1), "depthwise (int) is not True or False."),
    (lambda: mpscnn.ConvolutionDescriptor(3, 4, 8, batch_norm=1), "batch_norm (int) is not a BatchNorm."),
    (lambda: mpscnn.BatchNorm(0, [1], [1], [0]), "mean (int) is not a sequence of numbers."),
    (lambda: mpscnn.BatchNorm([0], ["1"], [1], [0]), "variance (list) is not a sequence of numbers."),
    (lambda: mpscnn.BatchNorm([0], [1], "1", [0]), "gamma (str) is not a sequence of numbers."),
    (lambda: mpscnn.BatchNorm([0], [1], [1], np.array(["1"])), "beta (ndarray) is not a sequence of numbers."),
    (lambda: mpscnn.BatchNorm([0], [1], [1], [0], "small"), "epsilon (str) is not a number."),
    (lambda: mpscnn.Image(X, "float"[:4]), "dtype ('floa') is not a dtype."),
    (lambda: mpscnn.empty(3, "float4"), "dtype ('float4') is not a dtype."),
    (lambda: mpscnn.reorder(random(W), threads="all"), "threads (str) is not an int."),
    (lambda: mpscnn.reorder(random(W), threads=1.5), "threads (float) is not an int."),
    (lambda: mpscnn.reorder(random(W), 3), "source (int) is not a str."),
    (lambda: mpscnn.kernel(3), "name (int) is not a str."),
    (lambda: mpscnn.map_weights(3, (4,)), "path (int) is not a path."),
    (lambda: mpscnn.map_weights("w.bin", 4), "shape (4) is not a tuple of int."),
    (lambda: mpscnn.map_weights("w.bin", (4.5,)), "shape ((4.5,)) is not a tuple of int."),
    (lambda: mpscnn.map_weights("w.bin", (4,), "f32"), "dtype ('f32') is not a dtype."),
    (lambda: mpscnn.NeuronDescriptor(1), "type (int) is not a str."),
    (lambda: mpscnn.NeuronDescriptor("relu", "steep"), "a (str) is not a number."),
    (lambda: mpscnn.NeuronDescriptor("prelu", data=0.5), "data (float) is not a sequence of numbers."),
    (lambda: mpscnn.Matrix(1.5, 2), "rows (float) is not an int."),
    (lambda: mpscnn.ImageCopyToMatrix()(random(X)), "x (ndarray) is not an Image."),
    (lambda: mpscnn.MatrixCopyToImage()(image(), image()), "x (Image) is not a Matrix."),
    (lambda: mpscnn.MatrixCopyToImage()(mpscnn.Matrix(1, 140), None), "out (NoneType) is not an Image."),
    (lambda: mpscnn.ImageConversion(source_alpha=1), "source_alpha (int) is not a str."),
    (lambda: mpscnn.ImageConversion(background_color="red"), "background_color ('red') is not a sequence of numbers."),
    (
        lambda: mpscnn.ImageConversion(background_color=(1, 2, "3")),
        "background_color ((1, 2, '3')) is not a sequence of numbers.",
    ),
    (lambda: mpscnn.ImageConversion()(image(), random(X)), "ImageConversion: x is an Image; out is not."),
    (lambda: graph().input("z", height=True), "height (bool) is not an int."),
    (lambda: graph().input("z", channels=4.0), "channels (float) is not an int."),
    (lambda: graph().add(3), "kernel (int) is not a kernel's name or its class in mpscnn, or a MetalFunction."),
    (
        lambda: graph().add(mpscnn.Kernel),
        "kernel (pybind11_type) is not a kernel's name or its class in mpscnn, or a MetalFunction.",
    ),
    (lambda: graph().add("NeuronReLU", "x"), "NeuronReLU: source (str) is not a Value of the graph."),
    (lambda: graph().add("Add", Value("x")), "Add: the number of sources (1) is not 2 (a, b)."),
    (
        lambda: graph().add("NeuronReLU", Value("x"), slope=2),
        "NeuronReLU: got an unexpected keyword argument 'slope'.",
    ),
    (lambda: graph().concatenate(3), "Concatenate: source (int) is not a Value of the graph."),
    (lambda: graph().concatenate(Value("x"), 3), "Concatenate: source (int) is not a Value of the graph."),
    (lambda: graph().output("x"), "output: value (str) is not a Value of the graph."),
    (lambda: graph().output(Value("x"), shape="140"), "shape (str) is not a tuple of int."),
    (lambda: graph().output(Value("x"), shape=(140.0,)), "shape[0] (float) is not an int."),
    (lambda: mpscnn.Network("model.onnx"), "graph (str) is not a Graph."),
    (lambda: mpscnn.Network(graph(), dtype="double"), "dtype (float64) is not float32 or float16."),
    (lambda: mpscnn.Network(graph(), dtype="floa"), "dtype ('floa') is not float32 or float16."),
    (lambda: mpscnn.Network(graph(), dtype=16), "dtype (int) is not float32 or float16."),
    (lambda: mpscnn.Network(graph(), optimize=1), "optimize (int) is not True or False."),
    (
        lambda: mpscnn.Network(graph(), mean="0.5f"),
        "mean (str) is not a number, a sequence of numbers or a dict of them.",
    ),
    (lambda: mpscnn.Network(graph())(3), f"x (int) {NO_ARRAY}"),
    (lambda: mpscnn.Network(graph())(None), f"x (NoneType) {NO_ARRAY}"),
    (lambda: mpscnn.Network(graph())(random(X), out=3), f"out (int) {NO_ARRAY}"),
    (lambda: mpscnn.Network(graph())(random(X), out=[3]), f"out (int) {NO_ARRAY}"),
    (lambda: mpscnn.Network(graph()).encode(commands(), random(X)), "x (ndarray) is not an Image."),
    (lambda: mpscnn.Network(graph()).encode(commands(), image(), out=random(X)), "out (ndarray) is not an Image."),
    (lambda: mpscnn.Network(graph()).encode(commands(), image(), out=[3]), "out[0] (int) is not an Image."),
    (
        lambda: mpscnn.Network(graph()).encode(commands(), image(), out=[None] * 2),
        "the number of images in out (2) is not 1.",
    ),
    (lambda: mpscnn.Network(graph()).encode(None, image()), "command_buffer (NoneType) is not a CommandBuffer."),
    (lambda: mpscnn.Network(graph()).stream(3), "batches (int) is not iterable."),
    (lambda: mpscnn.Network(graph()).stream([], in_flight=1.5), "in_flight (float) is not an int."),
    (lambda: mpscnn.Network(graph()).stream([], progress=1), "progress (int) is not a bool, a callable or None."),
    (
        lambda: mpscnn.load(3),
        "model (int) is no path, module, exported program, ONNX model, mapping of arrays or Graph.",
    ),
    (lambda: mpscnn.load(graph(), options={"epsilon": 1e-3}), "options was given; graphs take none."),
    (lambda: mpscnn.load(graph(), options=3), "options (int) is not a dict."),
    (lambda: mpscnn.load(graph(), architecture="resnet18"), "architecture was given; graphs take none."),
    (lambda: mpscnn.load(graph(), input_shapes="x"), "input_shapes (str) is not a tuple of int or a dict of them."),
    (lambda: mpscnn.load(graph(), input_shapes={"x": 3}), 'input_shapes["x"] (int) is not a tuple of int.'),
    (lambda: mpscnn.load(graph(), input_shapes=(1, 3.0)), "input_shapes[1] (float) is not an int."),
    (lambda: mpscnn.memory.peak("gpu"), 'device (str) is not a Device: give Device("gpu").'),
    (lambda: mpscnn.profile(per_kernel=1), "per_kernel (int) is not True or False."),
]


@pytest.mark.parametrize(("wrong", "sentence"), SENTENCES, ids=[sentence for _, sentence in SENTENCES])
def test_sentence(wrong: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(TypeError) as caught:
        wrong()
    assert str(caught.value) == sentence


VALUES: list[tuple[Callable[[], Any], str]] = [
    (lambda: image().channels(2**70, 4), r"first \(1180591620717411303424\) is beyond 64 bits"),
    (lambda: setattr(temporary(), "read_count", 2**70), r"read_count \(1180591620717411303424\) is beyond 64 bits"),
    (lambda: mpscnn.ConvolutionDescriptor(2**70, 4, 8), r"kernel_size.* 1180591620717411303424 is beyond 64 bits"),
    (lambda: mpscnn.ConvolutionDescriptor(3, 2**70, 8), r"in_channels \(1180591620717411303424\) is beyond 64 bits"),
    (lambda: mpscnn.CommandBuffer(label="\ud800"), r"label \('\\ud800'\) is not valid Unicode"),
    (lambda: mpscnn.NeuronReLU(label="\ud800"), r"NeuronReLU: label \('\\ud800'\) is not valid Unicode"),
    (lambda: mpscnn.BatchNorm([0], [1], [1], [0], 10**400), r"epsilon \(10+\) is no float"),
    (lambda: mpscnn.BatchNorm(random((2, 3)), [1], [1], [0]), r"mean\.ndim \(2\) is not 1"),
    (
        lambda: mpscnn.reorder(random(W), threads=2**70),
        r"threads \(1180591620717411303424\) is not between 0 and 65536",
    ),
    (lambda: graph().input("z", width=0), r"width \(0\) is less than the minimum \(1\)"),
    (lambda: graph().input("x"), r'name \("x"\) is taken by another input or node of the graph'),
    (lambda: graph().input("z", layout="CHW"), r'layout \("CHW"\) is not "N" followed by letters of "HWC"'),
    (lambda: graph().add("NeuronReLU", Value("z")), 'NeuronReLU: the source "z" is not of this graph'),
    (lambda: graph().concatenate(Value("z")), 'Concatenate: the source "z" is not of this graph'),
    (lambda: graph().concatenate(), "concatenate: there are no sources"),
    (lambda: graph().output(Value("z")), 'output: the value "z" is not of this graph'),
    (lambda: graph().output(Value("x"), "y"), r'name \("y"\) is taken by another output of the graph'),
    (lambda: graph().output(Value("x"), ""), "name is empty"),
    (lambda: graph().output(Value("x"), shape=(0,)), r"shape\[0\] \(0\) is less than the minimum \(1\)"),
    (lambda: mpscnn.Network(mpscnn.Graph()), "graph has no outputs"),
    (lambda: mpscnn.Network(graph()).stream([], in_flight=0), r"in_flight \(0\) is less than the minimum \(1\)"),
    (lambda: mpscnn.load(graph(), input_shapes=(1, 0)), r"input_shapes\[1\] \(0\) is less than the minimum \(1\)"),
    (lambda: mpscnn.reorder(random(W), "\ud800"), r"source \('\\ud800'\) is not valid Unicode"),
]


@pytest.mark.parametrize(("wrong", "match"), VALUES, ids=[match for _, match in VALUES])
def test_a_value_that_no_number_or_text_can_hold(wrong: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        wrong()


def test_none_where_it_means_none() -> None:
    assert mpscnn.CommandBuffer(None, None).label is None
    assert mpscnn.CommandBuffer(device=None, label=None).device == mpscnn.Device()
    for labelled in (commands(), image(), mpscnn.NeuronReLU(label="one")):
        labelled.label = "two"
        labelled.label = None
        assert labelled.label is None
    assert mpscnn.Image(X, None, device=None).dtype == np.float32
    assert mpscnn.Image.temporary(commands(), X, None).dtype == np.float32
    assert mpscnn.Buffer(8, device=None).numpy(None, None).dtype == np.uint8
    assert mpscnn.empty(3, None).dtype == np.float32
    assert mpscnn.ConvolutionDescriptor(3, 4, 8, activation=None, batch_norm=None).groups == 1
    assert mpscnn.reorder(random(W), out=None, feature_map=None, threads=None).shape == (8, 3, 3, 4)
    assert image().numpy(out=None, copy=None).shape == X


def test_scalars_of_numpy_are_arguments() -> None:
    assert mpscnn.Image((1, 2, 3, 8)).channels(np.int64(4), np.uint8(4)).shape == (1, 2, 3, 4)
    assert image().numpy(copy=np.True_).base is not image()
    assert mpscnn.ConvolutionDescriptor(np.int32(3), np.int64(4), np.int16(4), depthwise=np.bool_(True)).depthwise
    mpscnn.BatchNorm([np.float32(0)], np.ones(1, np.int8), (value for value in (1,)), range(1), np.float64(1e-3))


def test_errors_of_callbacks_are_unchanged() -> None:
    """A TypeError in pybind11's words from a callback is not about an argument of the caller."""
    words = "reload(): incompatible function arguments. The following argument types are supported:"

    class Foreign(Source):
        def load(self) -> bool:
            raise TypeError(words)

    with pytest.raises(TypeError) as caught:
        mpscnn.Convolution(Foreign(mpscnn.ConvolutionDescriptor(3, 4, 8), random((8, 3, 3, 4))))
    assert str(caught.value) == words
    source = Source(mpscnn.ConvolutionDescriptor(3, 4, 8), random((8, 3, 3, 4)))
    kernel = mpscnn.Convolution(source)
    source.load = Foreign.load.__get__(source)  # type: ignore[method-assign]
    with pytest.raises(TypeError) as caught:
        kernel.reload()
    assert str(caught.value) == words


@pytest.mark.parametrize(
    "interface",
    [
        {"shape": "12", "typestr": "<f4", "data": (0, False), "version": 3},
        {"shape": (1,), "typestr": "<f4", "data": ("address", False), "version": 3},
        {"shape": (1,), "data": (0, False), "version": 3},
    ],
    ids=["shape", "data", "typestr"],
)
def test_an_array_interface_that_is_none(interface: dict[str, Any]) -> None:
    class Malformed:
        __array_interface__ = interface

    with pytest.raises(TypeError, match=r"x\.__array_interface__ of Malformed is not version 3 of NumPy's"):
        mpscnn.NeuronReLU()(Malformed())
