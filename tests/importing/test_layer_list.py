# SPDX-License-Identifier: Apache-2.0
"""Networks from a list of layers and a state_dict, against the module of these arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_support import check, inputs, is_free, randomize

import mpscnn
from mpscnn.importing.layer_list import LAYERS, read_layers


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-3)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.fc = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        y = torch.cat([x + self.conv2(x), x], 1)
        return self.fc(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1)).softmax(1)


RESIDUAL: list[Any] = [
    ("conv1", "Conv2d", {"stride": 2, "padding": 1}),
    ("bn1", "BatchNorm2d", {"eps": 1e-3}),
    ("relu", "ReLU"),
    ("conv2", "Conv2d", {"padding": 1, "groups": 8}),
    ("sum", "Add", {"inputs": ["relu", "conv2"]}),
    ("both", "Concat", {"inputs": ["sum", "relu"]}),
    ("pool", "AdaptiveAvgPool2d", {"output_size": 1}),
    ("flat", "Flatten"),
    ("drop", "Dropout", {"p": 0.2}),
    ("fc", "Linear"),
    ("softmax", "Softmax", {"dim": 1}),
]


@pytest.mark.parametrize("kind", ["tensors", "arrays", "halves"])
def test_against_the_module(kind: str) -> None:
    module = randomize(Residual())
    weights: Any = module.state_dict()
    if kind == "arrays":
        weights = {name: value.numpy() for name, value in weights.items() if "tracked" not in name}
    elif kind == "halves":
        module = module.to(torch.bfloat16)
        weights = module.state_dict()
        module = module.float()
    graph = read_layers(RESIDUAL, weights, input_shapes=(1, 3, 12, 10))
    assert is_free(graph)
    check(graph, module, *inputs((3, 12, 10)))
    check(graph, module, *inputs((3, 15, 17), batch=5))
    assert "conv1 (Conv2d)" in [node.origin for node in graph]


def test_weights_are_not_copied() -> None:
    module = randomize(Residual())
    graph = read_layers(RESIDUAL, module.state_dict(), input_shapes=(1, 3, 12, 10))
    assert np.shares_memory(graph.node("conv1").arguments["weight"], module.conv1.weight.detach().numpy())


# A module for each kind, and its options in the list.
KINDS: dict[str, tuple[nn.Module, dict[str, Any], tuple[int, ...]]] = {
    "Conv1d": (
        nn.Conv1d(4, 6, 3, padding=2, padding_mode="reflect"),
        {"padding": 2, "padding_mode": "reflect"},
        (4, 9),
    ),
    "Conv2d": (
        nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="replicate"),
        {"padding": (1, 2), "padding_mode": "replicate"},
        (4, 6, 7),
    ),
    "ConvTranspose2d": (
        nn.ConvTranspose2d(4, 6, 3, 2, 1, 1),
        {"stride": 2, "padding": 1, "output_padding": 1},
        (4, 6, 7),
    ),
    "Linear": (nn.Linear(4, 3, bias=False), {}, (4,)),
    "BatchNorm1d": (nn.BatchNorm1d(4), {}, (4,)),
    "BatchNorm2d": (nn.BatchNorm2d(4, affine=False), {}, (4, 6, 7)),
    "InstanceNorm1d": (nn.InstanceNorm1d(4), {}, (4, 9)),
    "InstanceNorm2d": (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), {}, (4, 6, 7)),
    "GroupNorm": (nn.GroupNorm(2, 4), {"num_groups": 2}, (4, 6, 7)),
    "LayerNorm": (nn.LayerNorm(4), {"normalized_shape": 4}, (4,)),
    "LocalResponseNorm": (nn.LocalResponseNorm(3, 0.3), {"size": 3, "alpha": 0.3}, (4, 6, 7)),
    "PReLU": (nn.PReLU(4), {}, (4, 6, 7)),
    "LeakyReLU": (nn.LeakyReLU(0.3), {"negative_slope": 0.3}, (4, 6, 7)),
    "ELU": (nn.ELU(0.6), {"alpha": 0.6}, (4, 6, 7)),
    "CELU": (nn.CELU(0.6), {"alpha": 0.6}, (4, 6, 7)),
    "GELU": (nn.GELU("tanh"), {"approximate": "tanh"}, (4, 6, 7)),
    "Hardtanh": (nn.Hardtanh(-0.2, 0.4), {"min_val": -0.2, "max_val": 0.4}, (4, 6, 7)),
    "Softplus": (nn.Softplus(2), {"beta": 2}, (4, 6, 7)),
    "Softmax": (nn.Softmax(1), {"dim": 1}, (4, 6, 7)),
    "LogSoftmax": (nn.LogSoftmax(1), {"dim": 1}, (4,)),
    "MaxPool1d": (nn.MaxPool1d(3, 2), {"kernel_size": 3, "stride": 2}, (4, 9)),
    "MaxPool2d": (
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
        (4, 6, 7),
    ),
    "AvgPool1d": (nn.AvgPool1d(2), {"kernel_size": 2}, (4, 9)),
    "AvgPool2d": (
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
        (4, 6, 7),
    ),
    "AdaptiveAvgPool1d": (nn.AdaptiveAvgPool1d(1), {"output_size": 1}, (4, 9)),
    "AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d((2, 3)), {"output_size": (2, 3)}, (4, 6, 7)),
    "AdaptiveMaxPool2d": (nn.AdaptiveMaxPool2d(1), {"output_size": 1}, (4, 6, 7)),
    "AdaptiveMaxPool1d": (nn.AdaptiveMaxPool1d(1), {"output_size": 1}, (4, 9)),
    "Upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), {"scale_factor": 2, "mode": "bilinear"}, (4, 6, 7)),
    "ZeroPad1d": (nn.ZeroPad1d((1, 2)), {"padding": (1, 2)}, (4, 9)),
    "ZeroPad2d": (nn.ZeroPad2d((1, 2, 3, 0)), {"padding": (1, 2, 3, 0)}, (4, 6, 7)),
    "ConstantPad1d": (nn.ConstantPad1d(2, 3.0), {"padding": 2, "value": 3.0}, (4, 9)),
    "ConstantPad2d": (nn.ConstantPad2d(2, 3.0), {"padding": 2, "value": 3.0}, (4, 6, 7)),
    "ReflectionPad1d": (nn.ReflectionPad1d(2), {"padding": 2}, (4, 9)),
    "ReflectionPad2d": (nn.ReflectionPad2d(2), {"padding": 2}, (4, 6, 7)),
    "ReplicationPad1d": (nn.ReplicationPad1d(2), {"padding": 2}, (4, 9)),
    "ReplicationPad2d": (nn.ReplicationPad2d(2), {"padding": 2}, (4, 6, 7)),
    "PixelShuffle": (nn.PixelShuffle(2), {"upscale_factor": 2}, (4, 6, 7)),
    "PixelUnshuffle": (nn.PixelUnshuffle(2), {"downscale_factor": 2}, (4, 6, 8)),
    "Dropout1d": (nn.Dropout1d(), {}, (4, 9)),
    "Flatten": (nn.Flatten(2), {"start_dim": 2}, (4, 6, 7)),
    **{
        kind: (getattr(nn, kind)(), {}, (4, 6, 7))
        for kind in (
            "ReLU",
            "ReLU6",
            "SELU",
            "Sigmoid",
            "Hardsigmoid",
            "LogSigmoid",
            "Tanh",
            "SiLU",
            "Hardswish",
            "Mish",
            "Softsign",
            "Tanhshrink",
            "Identity",
            "Dropout",
            "Dropout2d",
            "AlphaDropout",
        )
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_layer(kind: str) -> None:
    module, options, extents = KINDS[kind]
    module = randomize(nn.Sequential(module))
    graph = read_layers([("0", kind, options)], module.state_dict(), input_shapes=(1, *extents))
    check(graph, module, *inputs(extents))


def test_every_layer_is_tried() -> None:
    assert set(LAYERS) - set(KINDS) == {"Add", "Subtract", "Multiply", "Concat"}


def test_layers_of_several() -> None:
    layers = [
        ("double", "Add", {"inputs": ["input", "input", "input"]}),
        ("product", "Multiply", {"inputs": ["double", "input"]}),
        ("rest", "Subtract", {"inputs": ["product", "double"]}),
    ]
    graph = read_layers(layers, {}, input_shapes=(1, 3, 4, 5), outputs=["rest", "double"])
    assert list(graph.outputs) == ["rest", "double"]
    module = nn.Identity()
    module.forward = lambda x: (3 * x * x - 3 * x, 3 * x)  # type: ignore[assignment]
    check(graph, module, *inputs((3, 4, 5)))


ONES = np.ones((4, 3, 1, 1), np.float32)
WRONG: dict[str, tuple[Any, dict[str, Any], Any, str]] = {
    "kind": ([("a", "Conv2D")], {}, (1, 3, 4, 4), r'layer "a" is a "Conv2D", which is none. Nearest: Conv2d'),
    "option": ([("a", "Conv2d", {"strides": 2})], {}, (1, 3, 4, 4), r'no option "strides".*Nearest: stride'),
    "missing_option": ([("a", "MaxPool2d")], {}, (1, 3, 4, 4), "kernel_size"),
    "array": (
        [("conv", "Conv2d")],
        {"conv1.weight": ONES},
        (1, 3, 4, 4),
        r'no array "conv.weight". Nearest: conv1.weight',
    ),
    "left": (
        [("conv", "Conv2d")],
        {"conv.weight": ONES, "cnov.bias": ONES[:, 0, 0, 0]},
        (1, 3, 4, 4),
        r'reads 1 of the arrays: "cnov.bias". Nearest: conv',
    ),
    "source": ([("a", "ReLU", {"inputs": ["inptu"]})], {}, (1, 3, 4, 4), r'reads "inptu".*Nearest: input'),
    "sources": ([("a", "Add")], {}, (1, 3, 4, 4), "of 1 inputs"),
    "twice": ([("a", "ReLU"), ("a", "ReLU")], {}, (1, 3, 4, 4), "two layers"),
    "entry": (["relu"], {}, (1, 3, 4, 4), r"is not \(name, kind\)"),
    "shape": ([], {}, (3, 0, 4), "is not"),
    "dtype": ([("conv", "Conv2d")], {"conv.weight": ONES.astype(np.int32)}, (1, 3, 4, 4), "int32"),
    "channels": ([("conv", "Conv2d")], {"conv.weight": ONES}, (1, 5, 4, 4), "do not fit a source of 5 channels"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    layers, weights, extents, reason = WRONG[name]
    with pytest.raises(mpscnn.InvalidModelError, match=reason):
        read_layers(layers, weights, input_shapes=extents)


def test_inputs_with_names() -> None:
    layers = [("double", "Add", {"inputs": ["b", "b"]}), ("sum", "Add", {"inputs": ["a", "double"]})]
    graph = read_layers(layers, {}, input_shapes={"a": (1, 3, 4, 5), "b": (1, 3, 4, 5)})
    module = nn.Identity()
    module.forward = lambda a, b: a + 2 * b  # type: ignore[assignment]
    check(graph, module, *inputs((3, 4, 5), (3, 4, 5)))


def test_without_a_shape() -> None:
    with pytest.raises(TypeError, match="input_shapes is missing"):
        read_layers([("relu", "ReLU")], {}, input_shapes=None)


def test_layers_of_an_architecture() -> None:
    with pytest.raises(TypeError, match="architecture was given together with layers"):
        mpscnn.load({}, layers=[("relu", "ReLU")], architecture="resnet18", input_shapes=(1, 3))


def test_wrong_outputs() -> None:
    with pytest.raises(mpscnn.InvalidModelError, match=r'no layer "rleu".*Nearest: relu'):
        read_layers([("relu", "ReLU")], {}, input_shapes=(1, 3), outputs=["rleu"])


def test_all_unsupported_layers_are_listed() -> None:
    layers = [
        ("up", "Upsample", {"scale_factor": 2, "mode": "trilinear"}),
        ("conv", "Conv2d"),
        ("plus", "Softplus", {"threshold": 1.0, "inputs": ["input"]}),
    ]
    with pytest.raises(mpscnn.UnsupportedOperatorError) as caught:
        read_layers(layers, {"conv.weight": ONES}, input_shapes=(1, 3, 4, 4))
    assert [(kind, layer) for kind, layer, _ in caught.value.nodes] == [("Upsample", "up"), ("Softplus", "plus")]
