# SPDX-License-Identifier: Apache-2.0
"""Each kind of layer in training, against PyTorch: losses, parameters after three steps, and inference afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from training_support import check

Rows = list[Any]


def conv(name: str = "last", inputs: int = 4, outputs: int = 3, size: int = 3, **options: Any) -> Any:
    return (name, "Conv2d", {"in_channels": inputs, "out_channels": outputs, "kernel_size": size, **options})


def linear(name: str, inputs: int, outputs: int, **options: Any) -> Any:
    return (name, "Linear", {"in_features": inputs, "out_features": outputs, **options})


def with_inputs(layer: Any, *names: str) -> Any:
    return (*layer[:2], {**layer[2], "inputs": list(names)})


BEGIN = conv("begin", 3, 4, padding=1)
CONVOLUTIONS: dict[str, Any] = {
    "plain": {},
    "stride": {"stride": 2, "padding": 1},
    "stride of each axis": {"stride": (2, 3), "kernel_size": (3, 2), "padding": (0, 1)},
    "dilation": {"dilation": 2, "padding": 2},
    "same": {"padding": "same"},
    "groups": {"groups": 2, "out_channels": 16, "in_channels": 8},
    "depth-wise": {"groups": 8, "out_channels": 8, "in_channels": 8, "padding": 1},
    "reflect": {"padding": 1, "padding_mode": "reflect"},
    "replicate": {"padding": (1, 2), "padding_mode": "replicate"},
    "no bias": {"bias": False},
    "one tap": {"kernel_size": 1},
    "odd channels": {"in_channels": 5, "out_channels": 7},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d(name: str) -> None:
    """Between two other layers, so that the gradient of its source is tested too."""
    options = {"in_channels": 4, "out_channels": 6, "kernel_size": 3, **CONVOLUTIONS[name]}
    first = conv("first", 3, options["in_channels"])
    layers = [first, ("conv", "Conv2d", options), conv("last", options["out_channels"], 2, 1)]
    check(layers, (2, 3, 11, 9))


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"dilation": 3}, {"groups": 2, "bias": False}, {"padding": 2, "stride": 3}],
    ids=str,
)
def test_conv1d(options: dict[str, Any]) -> None:
    layers = [
        ("first", "Conv1d", {"in_channels": 3, "out_channels": 8, "kernel_size": 3}),
        ("conv", "Conv1d", {"in_channels": 8, "out_channels": 8, "kernel_size": 3, **options}),
        ("norm", "BatchNorm1d", {"num_features": 8}),
        ("relu", "ReLU"),
        ("last", "Conv1d", {"in_channels": 8, "out_channels": 2, "kernel_size": 1}),
    ]
    check(layers, (3, 3, 19))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": (3, 2), "kernel_size": (3, 4), "padding": (0, 1), "output_padding": (2, 0)},
        {"groups": 2, "in_channels": 8, "stride": 2},
        {"bias": False, "kernel_size": 2, "stride": 2},
    ],
    ids=str,
)
def test_conv_transpose2d(options: dict[str, Any]) -> None:
    options = {"in_channels": 4, "out_channels": 8, "kernel_size": 3, **options}
    first = conv("begin", 3, options["in_channels"], padding=1)
    layers = [first, ("up", "ConvTranspose2d", options), conv("last", options["out_channels"], 2, 1)]
    check(layers, (2, 3, 5, 7))


@pytest.mark.parametrize("bias", [True, False])
def test_linear_behind_flatten(bias: bool) -> None:
    """C x H x W in PyTorch's order, with different H, W and C."""
    layers = [
        BEGIN,
        ("relu", "ReLU"),
        ("flat", "Flatten"),
        linear("fc1", 4 * 6 * 5, 7, bias=bias),
        ("tanh", "Tanh"),
        linear("fc2", 7, 3),
    ]
    check(layers, (3, 3, 6, 5))


def test_linear_of_vectors() -> None:
    check([linear("fc1", 5, 9), ("relu", "ReLU"), linear("fc2", 9, 2)], (4, 5))


def test_flatten_is_the_first() -> None:
    check([("flat", "Flatten"), linear("fc1", 3 * 4 * 5, 6), ("relu", "ReLU"), linear("fc2", 6, 2)], (4, 3, 4, 5))


NORMALIZATIONS: dict[str, Any] = {
    "batch": ("BatchNorm2d", {"num_features": 4}),
    "batch, epsilon": ("BatchNorm2d", {"num_features": 4, "eps": 0.1}),
    "instance": ("InstanceNorm2d", {"num_features": 4, "affine": True}),
    "group": ("GroupNorm", {"num_groups": 2, "num_channels": 4}),
    "groups of all": ("GroupNorm", {"num_groups": 1, "num_channels": 4, "eps": 1e-3}),
}


@pytest.mark.parametrize("activation", [None, "ReLU", "LeakyReLU", "Tanh", "SiLU"])
@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_normalizations(name: str, activation: str | None) -> None:
    kind, options = NORMALIZATIONS[name]
    layers: Rows = [BEGIN, ("norm", kind, options), conv()]
    if activation is not None:
        layers.insert(2, ("activation", activation))
    check(layers, (3, 3, 7, 5))


def test_normalization_is_the_first() -> None:
    """The gradient of its source is not needed."""
    for kind, options in (
        ("BatchNorm2d", {"num_features": 3}),
        ("InstanceNorm2d", {"num_features": 3, "affine": True}),
    ):
        check([("norm", kind, options), ("relu", "ReLU"), conv("last", 3, 2)], (3, 3, 7, 5))


def test_normalization_is_the_last() -> None:
    for kind, options in NORMALIZATIONS.values():
        check([BEGIN, ("norm", kind, options)], (3, 3, 7, 5))


def test_batch_norm_of_vectors() -> None:
    layers = [linear("fc1", 5, 8), ("norm", "BatchNorm1d", {"num_features": 8}), ("relu", "ReLU"), linear("fc2", 8, 2)]
    check(layers, (6, 5))


def test_batch_norm_with_two_readers() -> None:
    """A batch normalization with two readers: the activation after it is computed separately."""
    layers = [
        BEGIN,
        ("norm", "BatchNorm2d", {"num_features": 4}),
        ("relu", "ReLU"),
        ("sum", "Add", {"inputs": ["norm", "relu"]}),
        conv(),
    ]
    check(layers, (3, 3, 7, 5))


def test_instance_norm_without_parameters() -> None:
    check([BEGIN, ("norm", "InstanceNorm2d", {"num_features": 4}), ("relu", "ReLU"), conv()], (2, 3, 7, 5))


ACTIVATIONS: dict[str, dict[str, Any]] = {
    "ReLU": {}, "ReLU6": {}, "SELU": {}, "Sigmoid": {}, "Hardsigmoid": {}, "LogSigmoid": {}, "Tanh": {}, "SiLU": {},
    "Hardswish": {}, "Mish": {}, "Softsign": {}, "Tanhshrink": {}, "LeakyReLU": {"negative_slope": 0.2},
    "ELU": {"alpha": 0.7}, "CELU": {"alpha": 0.7}, "GELU": {}, "Hardtanh": {"min_val": -0.5, "max_val": 0.7},
    "Softplus": {"beta": 2.0}, "Identity": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations(kind: str) -> None:
    check([BEGIN, ("activation", kind, ACTIVATIONS[kind]), conv()], (2, 3, 7, 5))


OTHERS: dict[str, Any] = {
    "max pooling": ("MaxPool2d", {"kernel_size": 2}),
    "max pooling that overlaps": ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    "max pooling, ceil_mode": ("MaxPool2d", {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    "max pooling, dilation": ("MaxPool2d", {"kernel_size": 2, "stride": 1, "dilation": 2}),
    "average pooling": ("AvgPool2d", {"kernel_size": (2, 3)}),
    "average pooling that overlaps": ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    "average of what is there": ("AvgPool2d", {"kernel_size": 3, "padding": 1, "count_include_pad": False}),
    "global average": ("AdaptiveAvgPool2d", {"output_size": 1}),
    "average of parts": ("AdaptiveAvgPool2d", {"output_size": (3, 4)}),
    "global maximum": ("AdaptiveMaxPool2d", {"output_size": 1}),
    "local response": ("LocalResponseNorm", {"size": 3, "alpha": 0.1, "k": 2.0}),
    "nearest": ("Upsample", {"scale_factor": 2}),
    "bilinear": ("Upsample", {"scale_factor": 2, "mode": "bilinear", "align_corners": False}),
    "bilinear, corners": ("Upsample", {"scale_factor": 3, "mode": "bilinear", "align_corners": True}),
    "zeros": ("ZeroPad2d", {"padding": (1, 2, 0, 3)}),
    "a constant": ("ConstantPad2d", {"padding": 1, "value": 0.5}),
    "reflection": ("ReflectionPad2d", {"padding": 2}),
    "replication": ("ReplicationPad2d", {"padding": (2, 1, 0, 1)}),
    "softmax": ("Softmax", {"dim": 1}),
    "log softmax": ("LogSoftmax", {"dim": 1}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    layers: Rows = [BEGIN, ("other", *OTHERS[name]), conv(size=1)]
    check(layers, (2, 3, 9, 12))


@pytest.mark.parametrize(
    "name", ["max pooling", "global average", "nearest", "softmax", "log softmax", "local response"]
)
def test_others_are_the_last(name: str) -> None:
    check([BEGIN, ("other", *OTHERS[name])], (2, 3, 9, 12))


def test_pooling_of_one_axis() -> None:
    for kind in ("MaxPool1d", "AvgPool1d"):
        layers = [
            ("first", "Conv1d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3}),
            ("pool", kind, {"kernel_size": 3, "stride": 2}),
            ("last", "Conv1d", {"in_channels": 4, "out_channels": 2, "kernel_size": 1}),
        ]
        check(layers, (3, 3, 19))


@pytest.mark.parametrize("r", [2, 3])
def test_pixel_shuffle(r: int) -> None:
    """Computed by a transposed convolution with constant weights, which are not in the state_dict."""
    layers = [conv("begin", 3, 4 * r * r), ("shuffle", "PixelShuffle", {"upscale_factor": r}), conv()]
    check(layers, (2, 3, 6, 5))
    check([conv("begin", 3, r * r), ("shuffle", "PixelShuffle", {"upscale_factor": r})], (2, 3, 6, 5))


def test_pixel_unshuffle() -> None:
    check([BEGIN, ("unshuffle", "PixelUnshuffle", {"downscale_factor": 2}), conv("last", 16, 2)], (2, 3, 6, 8))


def test_concatenation() -> None:
    layers = [
        conv("a", 3, 8, padding=1),
        with_inputs(conv("b", 3, 4, padding=1), "input"),
        ("relu", "ReLU"),
        ("both", "Concat", {"inputs": ["a", "relu", "b"]}),
        conv("last", 16, 2),
    ]
    check(layers, (2, 3, 7, 5))


def test_concatenation_of_three_with_one_twice() -> None:
    layers = [
        conv("a", 3, 4, padding=1),
        ("relu", "ReLU"),
        ("both", "Concat", {"inputs": ["relu", "a", "relu"]}),
        conv("last", 12, 5, 1),
        ("out", "Concat", {"inputs": ["a", "last"]}),
    ]
    check(layers, (2, 3, 7, 5))


@pytest.mark.parametrize("kind", ["Add", "Subtract", "Multiply"])
def test_arithmetic(kind: str) -> None:
    """Of two values, of a value with itself, and of a value with a repeated one."""
    a, b = conv("a", 3, 4, padding=1), with_inputs(conv("b", 3, 4, padding=1), "input")
    for inputs in (["a", "b"], ["a", "b", "a"]):
        check([a, b, ("both", kind, {"inputs": inputs}), conv()], (2, 3, 7, 5))
    check([a, ("both", kind, {"inputs": ["a", "a"]}), ("sum", "Add", {"inputs": ["a", "both"]}), conv()], (2, 3, 7, 5))
    gate: Rows = [a, ("pool", "AdaptiveAvgPool2d", {"output_size": 1}), conv("b", 4, 4, 1), ("sigmoid", "Sigmoid")]
    for inputs in (["a", "sigmoid"], ["sigmoid", "a"]):
        check([*gate, ("both", kind, {"inputs": inputs}), conv()], (2, 3, 7, 5))


def test_values_with_several_readers() -> None:
    """Gradients are summed: three readers, one of them without a gradient, and the input twice."""
    layers = [
        conv("stem", 3, 4, padding=1),
        ("norm", "BatchNorm2d", {"num_features": 4}),
        ("relu", "ReLU"),
        conv("a", 4, 4, padding=1),
        with_inputs(conv("b", 4, 4, padding=1), "relu"),
        ("sum", "Add", {"inputs": ["a", "b", "relu"]}),
        with_inputs(conv("c", 3, 4, padding=1), "input"),
        ("product", "Multiply", {"inputs": ["sum", "c"]}),
        ("tanh", "Tanh", {"inputs": ["sum"]}),
        ("all", "Concat", {"inputs": ["product", "tanh", "relu"]}),
        conv("last", 12, 2),
    ]
    check(layers, (3, 3, 7, 5))


def test_readers_of_what_is_not_trained() -> None:
    """Pooling and convolutions read the input, whose gradient is not needed."""
    layers = [
        ("pool", "MaxPool2d", {"kernel_size": 3, "stride": 1, "padding": 1}),
        ("sum", "Add", {"inputs": ["pool", "input"]}),
        conv("a", 3, 4),
        with_inputs(conv("b", 3, 4), "input"),
        ("both", "Subtract", {"inputs": ["a", "b"]}),
    ]
    check(layers, (2, 3, 7, 5))


def test_a_value_that_nothing_reads() -> None:
    """Layers that the output does not depend on are not run; here they have no parameters."""
    layers = [conv("a", 3, 4), ("unused", "ReLU"), with_inputs(conv("last", 4, 2), "a")]
    check(layers, (2, 3, 7, 5))
