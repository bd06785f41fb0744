# SPDX-License-Identifier: Apache-2.0
"""Errors of a Trainer for models, options, images and labels: messages with name, value and limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_support import Layers, randomize

import mpscnn
from support import random

SHAPE = (4, 3, 8, 8)
CONV = ("conv", "Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": 1})
POOL = ("pool", "AdaptiveAvgPool2d", {"output_size": 1})
FLAT = ("flat", "Flatten")
SIX = ("c", "Conv2d", {"in_channels": 3, "out_channels": 6, "kernel_size": 1})
FC = ("fc", "Linear", {"in_features": 4, "out_features": 3})
LAYERS: list[Any] = [CONV, ("relu", "ReLU"), POOL, FLAT, FC]


def refused(kind: type[Exception], match: str, model: Any, *arguments: Any, **options: Any) -> None:
    options = {"input_shapes": SHAPE, **options}
    with pytest.raises(kind, match=match) as caught:
        mpscnn.Trainer(model, *arguments, **options)
    if kind is NotImplementedError:
        assert not isinstance(caught.value, (ValueError, TypeError))
    else:
        assert not isinstance(caught.value, NotImplementedError)


# ---- options

OPTIONS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "in_flight": ({"in_flight": 0}, ValueError, r"^in_flight \(0\) is less than the minimum \(1\)\.$"),
    "in_flight, a float": ({"in_flight": 1.0}, TypeError, r"^in_flight \(float\) is not an int\.$"),
    "seed": ({"seed": -1}, ValueError, r"^seed \(-1\) is less than the minimum \(0\)\.$"),
    "seed, text": ({"seed": "1"}, TypeError, r"^seed \(str\) is not an int\.$"),
    "frozen, text": ({"frozen": "conv"}, TypeError, r"^frozen \(str\) is not a sequence of names\.$"),
    "frozen, a number": ({"frozen": 3}, TypeError, r"^frozen \(int\) is not a sequence of names\.$"),
    "frozen, numbers": ({"frozen": ["conv", 3]}, TypeError, r"^frozen\[1\] \(int\) is not a str\.$"),
    "frozen, no name": (
        {"frozen": ["fc", "conv9"]},
        ValueError,
        r'^frozen: no node is named "conv9" or starts with it\.$',
    ),
    "frozen, half a name": ({"frozen": ["con"]}, ValueError, r'^frozen: no node is named "con" or starts'),
    "frozen, all": (
        {"frozen": ["conv", "fc"]},
        ValueError,
        r"^model: there is nothing to train: no layer has parameters that are not frozen\.$",
    ),
    "momentum": (
        {"batch_norm_momentum": 1.5},
        ValueError,
        r"^batch_norm_momentum \(1\.5\) is not between 0 and 1\.$",
    ),
    "momentum below 0": ({"batch_norm_momentum": -0.1}, ValueError, r"^batch_norm_momentum \(-0\.1\) is not between"),
    "momentum, nan": ({"batch_norm_momentum": np.nan}, ValueError, r"^batch_norm_momentum \(nan\) is not between"),
    "momentum, text": ({"batch_norm_momentum": "0.1"}, TypeError, r"^batch_norm_momentum \(str\) is not a number\.$"),
    "momentum, bool": ({"batch_norm_momentum": True}, TypeError, r"^batch_norm_momentum \(bool\) is not a number\.$"),
    "loss": ({"loss": "cross_entropy"}, ValueError, r'"cross_entropy"'),
    "loss, a number": ({"loss": 3}, TypeError, r"^loss \(int\) is not a Loss\.$"),
    "loss, a class": ({"loss": mpscnn.Loss}, TypeError, r"^loss \(.*\) is not a Loss\.$"),
    "optimizer": ({"optimizer": 0.1}, TypeError, r"^optimizer \(float\) is not an Optimizer\.$"),
    "optimizer, a class": ({"optimizer": mpscnn.OptimizerAdam}, TypeError, r"^optimizer \(.*\) is not an Optimizer\.$"),
    "device": ({"device": "gpu"}, TypeError, "device|Device"),
    "dtype": ({"dtype": "double"}, TypeError, r"^dtype \(float64\) is not float32 or float16\.$"),
    "reduced precision": ({"allow_reduced_precision": 1}, TypeError, r"^allow_reduced_precision \(int\) is not"),
    "no input_shapes": ({"input_shapes": None}, TypeError, r"^input_shapes is missing"),
    "input_shapes": ({"input_shapes": (4, 3, 8)}, ValueError, "conv"),
    "input_shapes, a number": ({"input_shapes": 3}, TypeError, r"^input_shapes \(int\) is not a tuple of int\.$"),
    "input_shapes, channels": ({"input_shapes": (4, 2, 8, 8)}, ValueError, "channels"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str) -> None:
    given, kind, match = OPTIONS[name]
    refused(kind, match, LAYERS, **given)


def test_numbers_of_numpy() -> None:
    trainer = mpscnn.Trainer(
        LAYERS, input_shapes=SHAPE, in_flight=np.int64(2), seed=np.uint8(3), batch_norm_momentum=np.float32(0.5)
    )
    assert np.isfinite(trainer.step(random(SHAPE), np.arange(4) % 3).loss)


# ---- models


@pytest.mark.parametrize(
    "model",
    [3, None, "resnet18", b"", object(), nn.Module, LAYERS.__iter__()],
    ids=lambda model: type(model).__name__,
)
def test_models_that_are_none(model: Any) -> None:
    refused(TypeError, r"^model \(\w+\) is not a list of layers, a torch\.nn\.Module or a Graph\.$", model)


LISTS: dict[str, tuple[list[Any], dict[str, Any] | None, type[Exception], str]] = {
    "out_channels": (
        [("conv", "Conv2d", {"in_channels": 3, "kernel_size": 3})],
        None,
        TypeError,
        r'^layer "conv" \(Conv2d\): out_channels is missing, and state_dict has no "conv\.weight"\.$',
    ),
    "kernel_size": (
        [("c", "Conv2d", {"in_channels": 3, "out_channels": 3})],
        None,
        TypeError,
        "kernel_size is missing",
    ),
    "nothing": ([("conv", "Conv2d")], None, TypeError, r'^layer "conv" \(Conv2d\): in_channels is missing'),
    "num_features": (
        [CONV, ("bn", "BatchNorm2d")],
        None,
        TypeError,
        r'^layer "bn" \(BatchNorm2d\): num_features is mis',
    ),
    "zero": ([("fc", "Linear", {"in_features": 0, "out_features": 1})], None, ValueError, r"in_features \(0\) is less"),
    "text": (
        [("c", "Conv2d", {"in_channels": 3, "out_channels": "8", "kernel_size": 3})],
        None,
        TypeError,
        r'^layer "c" \(Conv2d\): out_channels \(str\) is not an int\.$',
    ),
    "window": (
        [("c", "Conv2d", {"in_channels": 3, "out_channels": 8, "kernel_size": (3, 3, 3)})],
        None,
        ValueError,
        r'^layer "c" \(Conv2d\): kernel_size \(\(3, 3, 3\)\) is not an int, or 2 of them, from 1 on\.$',
    ),
    "groups": (
        [("c", "Conv2d", {"in_channels": 3, "out_channels": 8, "kernel_size": 3, "groups": 2})],
        None,
        ValueError,
        r'^layer "c" \(Conv2d\): groups \(2\) does not divide 3 and 8 channels\.$',
    ),
    "given and said": (
        [CONV],
        {"conv.weight": np.zeros((5, 3, 3, 3), np.float32), "conv.bias": np.zeros(5, np.float32)},
        ValueError,
        r'^layer "conv" \(Conv2d\): its options make "weight" \(4, 3, 3, 3\); state_dict has \(5, 3, 3, 3\)\.$',
    ),
    "bias is not given": (
        [CONV],
        {"conv.weight": np.zeros((4, 3, 3, 3), np.float32)},
        ValueError,
        r'^layer "conv" \(Conv2d\): its options make "bias" \(4,\); state_dict has None\.$',
    ),
    "nothing to train": ([("relu", "ReLU")], None, ValueError, r"^model: there is nothing to train"),
    "no such layer": ([("c", "Conv4d")], None, ValueError, r'layer "c" is a "Conv4d", which is none'),
    "no such option": ([(*CONV[:2], {**CONV[2], "strides": 2})], None, ValueError, 'no option "strides"'),
    "an array too many": ([CONV], {"last.weight": np.zeros(3, np.float32)}, ValueError, r"no layer reads 1 of the arr"),
    "no layers": ([], None, ValueError, "there is nothing to train"),
    "no layer": ([3], None, ValueError, r"3 is not \(name, kind\)"),
    "options are a list": ([("conv", "Conv2d", [3])], None, ValueError, r"is not \(name, kind\)"),
    "kind is a number": ([("conv", 3)], None, ValueError, r"is not \(name, kind\)"),
    "two of a name": ([CONV, CONV], None, ValueError, r'there are two layers "conv"'),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists(name: str) -> None:
    layers, weights, kind, match = LISTS[name]
    refused(kind, match, layers, weights)


def test_state_dicts() -> None:
    refused(TypeError, r"^state_dict was given; a Graph has its own arrays\.$", mpscnn.Graph(), {})
    refused(TypeError, r"^state_dict was given; a module has its own arrays\.$", Layers(LAYERS), {})
    refused(TypeError, r"^state_dict \(list\) is not a mapping of arrays\.$", LAYERS, [3])


UNTRAINED: dict[str, tuple[list[Any], str]] = {
    "one": ([CONV, ("act", "PReLU")], r'^MPS has no gradient of "act" \(NeuronPReLU, .*; in frozen they stay .*\)\.$'),
    "concatenation": (
        [SIX, ("both", "Concat", {"inputs": ["c", "c"]})],
        r'^MPS has no gradient of "both" \(Concatenate behind 6 channels, no multiple of 4\)\.$',
    ),
    "merged groups": (
        [("c", "Conv2d", {"in_channels": 3, "out_channels": 6, "kernel_size": 3, "groups": 3})],
        r'^"c\.weight" has shape \(6, 1, 3, 3\), and the kernel has \(6, 3, 3, 3\): MPS has groups .* "c" in frozen\.$',
    ),
    "merged groups, transposed": (
        [("c", "ConvTranspose2d", {"in_channels": 3, "out_channels": 3, "kernel_size": 2, "groups": 3})],
        r'^"c\.weight" has shape \(3, 1, 2, 2\), and the kernel has .*: MPS has groups .*, or name "c" in frozen\.$',
    ),
    "alpha dropout": ([CONV, ("drop", "AlphaDropout")], "alpha dropout in training"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTRAINED)
def test_without_gradients(name: str) -> None:
    layers, match = UNTRAINED[name]
    weights = {"act.weight": np.full(4, 0.25, np.float32)} if name == "one" else None
    if name == "alpha dropout":
        with pytest.raises(mpscnn.UnsupportedOperatorError, match=match):
            mpscnn.Trainer(layers, input_shapes=SHAPE)
        return
    refused(NotImplementedError, match, layers, weights)


def test_without_gradients_all_are_named() -> None:
    layers = [
        ("c", "Conv2d", {"in_channels": 3, "out_channels": 6, "kernel_size": 1}),
        ("act", "PReLU"),
        ("both", "Concat", {"inputs": ["act", "c"]}),
        ("other", "PReLU"),
    ]
    weights = {"act.weight": np.full(6, 0.25, np.float32), "other.weight": np.full(12, 0.25, np.float32)}
    match = r'^MPS has no gradient of "act" \(.*\), "both" \(.*6 channels.*\), "other" \(.*\)\.$'
    refused(NotImplementedError, match, layers, weights)


def test_parameters_that_no_kernel_has() -> None:
    """No trainable kernel has one slope for all channels: an error, unless it is frozen."""
    weights = {"act.weight": np.full(1, 0.25, np.float32)}
    layers = [CONV, ("act", "PReLU"), POOL]
    match = r'^no kernel that MPS can train has "act\.weight": name what stays as it is in frozen\.$'
    refused(NotImplementedError, match, layers, weights)
    trainer = mpscnn.Trainer(layers, weights, input_shapes=SHAPE, frozen=["act"], loss="mean_squared_error")
    module = Layers([CONV, ("act", "PReLU"), POOL])
    module.load_state_dict({name: torch.from_numpy(value) for name, value in trainer.state_dict().items()})
    x = random(SHAPE)
    with torch.no_grad():
        np.testing.assert_allclose(trainer.network()(x), module(torch.from_numpy(x)).numpy(), atol=1e-6)
    assert trainer.step(x, np.zeros((4, 4, 1, 1), np.float32)).loss > 0


def test_instance_norm_with_statistics() -> None:
    """It would normalize by running statistics, which training does not do."""
    layers = [CONV, ("norm", "InstanceNorm2d")]
    weights = {"norm.running_mean": np.zeros(4, np.float32), "norm.running_var": np.ones(4, np.float32)}
    match = r'"norm" \(InstanceNorm2d\) has running statistics, which .* has not in training\.$'
    refused(NotImplementedError, rf"^layer {match}", layers, weights)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, track_running_stats=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.conv(x))

    refused(NotImplementedError, rf"^the module {match}", Network().eval())


# ---- modules


class Shared(nn.Module):
    """A layer used twice, layers that share a weight, a function of a weight."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.a, self.b = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        if how == "weight":
            self.b.weight = self.a.weight
        if how == "own":
            self.own = nn.Parameter(torch.ones(3, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.a(x))
        if self.how == "layer":
            return self.b(self.a(x))
        if self.how == "function":
            return nn.functional.conv2d(self.b(x), self.a.weight)
        if self.how == "own":
            return nn.functional.conv2d(self.b(x), self.own)
        return self.a(x) if self.how == "unused" else self.b(x)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("layer", r'"a\.weight".*shared parameters cannot be trained\.$'),
        ("weight", r'"[ab]\.weight".*shared parameters cannot be trained\.$'),
        ("function", r'"a\.weight".*shared parameters cannot be trained\.$'),
        ("own", r'reads "own", no weight of its own: shared parameters cannot be trained\.$'),
    ],
)
def test_shared_parameters(how: str, match: str) -> None:
    refused(NotImplementedError, match, randomize(Shared(how)).eval())


def test_modules_with_dropout() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.Dropout(0.5)), nn.Dropout2d(0.1)).eval()
    match = r'^the module "1\.0" \(Dropout\) is gone from a traced graph: give a list of layers\.$'
    refused(NotImplementedError, match, module)
    mpscnn.Trainer(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.0)).eval(), input_shapes=SHAPE)


def test_modules_with_frozen_parameters() -> None:
    """With requires_grad False for all its parameters, a layer is frozen."""
    module = randomize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))).eval()
    module[0].requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trainer = mpscnn.Trainer(module, input_shapes=SHAPE, loss="mean_squared_error")
    trainer.step(random(SHAPE), random((4, 2, 6, 6)))
    found = trainer.state_dict()
    for name in ("0.weight", "0.bias"):
        np.testing.assert_array_equal(found[name], before[name].numpy())
    assert np.abs(found["3.weight"] - before["3.weight"].numpy()).max() > 0
    module[3].bias.requires_grad_(False)
    match = r'^"3": some of its parameters require gradients and some do not; a layer is trained, or is frozen\.$'
    refused(NotImplementedError, match, module)
    module.requires_grad_(False)
    refused(ValueError, r"^model: there is nothing to train", module)


# ---- graphs


def graph_of(inputs: int = 1, outputs: int = 1) -> mpscnn.Graph:
    graph = mpscnn.Graph()
    values = [graph.input(f"x{i}", height=8, width=8, channels=3) for i in range(inputs)]
    total = values[0]
    for value in values[1:]:
        total = graph.add("Add", total, value)
    y = graph.add("Convolution", total, weight=random((4, 3, 1, 1)), name="conv")
    for i in range(outputs):
        graph.output(y, f"y{i}")
    return graph


def test_graphs() -> None:
    refused(ValueError, r"^model: the number of inputs \(2\) is not 1 \(x0, x1\)\.$", graph_of(2))
    refused(ValueError, r"^model: the number of outputs \(2\) is not 1 \(y0, y1\)\.$", graph_of(outputs=2))
    refused(ValueError, r"^model: the number of outputs \(0\) is not 1 \(\)\.$", graph_of(outputs=0))
    refused(ValueError, r"^model: the number of inputs \(0\) is not 1 \(\)\.$", mpscnn.Graph())


def test_graphs_with_free_extents() -> None:
    graph = mpscnn.Graph()
    value = graph.input("x", channels=3)
    graph.output(graph.add("Convolution", value, weight=random((4, 3, 1, 1)), name="conv"))
    with pytest.raises(ValueError, match=r'^input "x": height and width are free'):
        mpscnn.Trainer(graph)
    trainer = mpscnn.Trainer(graph, input_shapes=(2, 5, 6, 3), loss="mean_squared_error")
    assert trainer.step(random((3, 5, 6, 3)), random((3, 5, 6, 4))).loss > 0


def test_graphs_of_which_beta_is_none() -> None:
    graph = mpscnn.Graph()
    value = graph.add("Convolution", graph.input("x", height=8, width=8, channels=3), weight=random((4, 3, 1, 1)))
    graph.output(graph.add("InstanceNormalization", value, gamma=np.ones(4, np.float32), name="norm"))
    with pytest.raises(ValueError, match=r'^node "norm": beta is None; give zeros .* or name the node in frozen\.$'):
        mpscnn.Trainer(graph, loss="mean_squared_error")
    trainer = mpscnn.Trainer(graph, loss="mean_squared_error", frozen=["norm"])
    trainer.step(random((2, 8, 8, 3)), random((2, 8, 8, 4))).wait()


# ---- images and labels

CLASSES = np.array([0, 2, 1, 2])
STEPS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "axes": (random((3, 8, 8)), CLASSES, ValueError, r"^x\.shape \(3, 8, 8\) is not \(N, 3, 8, 8\), of one"),
    "channels": (random((4, 1, 8, 8)), CLASSES, ValueError, r"^x\.shape \(4, 1, 8, 8\) is not \(N, 3, 8, 8\)"),
    "height": (random((4, 3, 9, 8)), CLASSES, ValueError, r"^x\.shape \(4, 3, 9, 8\) is not \(N, 3, 8, 8\)"),
    "no images": (random(SHAPE)[:0], CLASSES[:0], ValueError, r"^x\.shape \(0, 3, 8, 8\) is not .* one image or more"),
    "integers": (np.zeros(SHAPE, int), CLASSES, TypeError, r"^x\.dtype \(int64\) is not a floating"),
    "complex": (np.zeros(SHAPE, complex), CLASSES, TypeError, r"^x\.dtype \(complex128\) is not"),
    "bool": (np.zeros(SHAPE, bool), CLASSES, TypeError, r"^x\.dtype \(bool\) is not"),
    "none": (None, CLASSES, TypeError, r"^x \(NoneType\) is not an array of numbers\.$"),
    "text": ("x", CLASSES, TypeError, r"^x \(str\) is not an array of numbers\.$"),
    "number of labels": (random(SHAPE), CLASSES[:3], ValueError, r"^labels\.shape \(3,\) is not \(4,\), class num"),
    "axes of labels": (random(SHAPE), CLASSES[:, None], ValueError, r"^labels\.shape \(4, 1\) is not \(4,\), class"),
    "a class": (random(SHAPE), np.array([0, 1, 3, 0]), ValueError, r"labels\[2\] \(3\) is not less than .* \(3\)"),
    "a class below 0": (random(SHAPE), np.array([0, 1, -1, 0]), ValueError, r"labels\[2\] \(-1\)"),
    "a class of int8": (random(SHAPE), np.array([0, 1, -1, 0], np.int8), ValueError, r"labels\[2\] \(-1\)"),
    "a class of uint64": (random(SHAPE), np.array([0, 1, 2**63, 0], np.uint64), ValueError, r"labels\[2\] \("),
    "probabilities": (random(SHAPE), random((4, 4)), ValueError, r"^labels\.shape \(4, 4\) is not that of .* \(4, 3\)"),
    "one number for each": (random(SHAPE), random((4,)), ValueError, r"^labels\.shape \(4,\) is not that of"),
    "labels of bool": (random(SHAPE), CLASSES > 1, TypeError, r"^labels\.dtype \(bool\) is neither a floating"),
    "labels of text": (random(SHAPE), ["a"] * 4, TypeError, r"^labels \(list\) is not an array of numbers\.$"),
    "no labels": (random(SHAPE), None, TypeError, r"^labels \(NoneType\) is not an array"),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    """The next step works as usual."""
    x, labels, kind, match = STEPS[name]
    trainer, other = (mpscnn.Trainer(LAYERS, input_shapes=SHAPE) for _ in range(2))
    for seed in range(3):
        with pytest.raises(kind, match=match) as caught:
            trainer.step(x, labels)
        assert not isinstance(caught.value, NotImplementedError)
        a, b = (one.step(random(SHAPE, seed=seed), CLASSES) for one in (trainer, other))
        assert (a.loss, a.number) == (b.loss, b.number)


def test_labels_of_pixels() -> None:
    trainer = mpscnn.Trainer([CONV], input_shapes=SHAPE)
    with pytest.raises(ValueError, match=r"^labels\.shape \(4,\) is not \(4, 8, 8\), class numbers of 4 images\.$"):
        trainer.step(random(SHAPE), CLASSES)
    wrong = np.zeros((4, 8, 8), int)
    wrong[1, 2, 3] = 4
    with pytest.raises(ValueError, match=r"\(4\) is not less than the number of classes \(4\)"):
        trainer.step(random(SHAPE), wrong)


def test_types_of_labels_may_change() -> None:
    trainer, other = (mpscnn.Trainer(LAYERS, input_shapes=SHAPE, in_flight=1) for _ in range(2))
    hot = np.eye(3)[CLASSES]
    for labels in (CLASSES, CLASSES.astype(np.int32), CLASSES.astype(np.uint8), hot, hot.astype(np.float16), CLASSES):
        found, expected = trainer.step(random(SHAPE), labels).loss, other.step(random(SHAPE), CLASSES).loss
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_not_made() -> None:
    for kind in (mpscnn.Trainer, mpscnn.training.Step):
        made = kind.__new__(kind)
        assert repr(made).endswith("not made>")
        with pytest.raises(TypeError, match="was not made"):
            made.wait()


def test_repr() -> None:
    trainer = mpscnn.Trainer(LAYERS, input_shapes=SHAPE)
    assert repr(trainer) == "<mpscnn.Trainer of 4 layers, 0 steps>"
    trainer.step(random(SHAPE), CLASSES)
    assert repr(trainer) == "<mpscnn.Trainer of 4 layers, 1 steps>"


# ---- parameters that are drawn


def test_drawn_parameters() -> None:
    """As torch.nn's: uniform, up to 1 / sqrt(fan in); normalizations begin with ones and zeros; the seed fixes them."""
    layers: list[Any] = [
        ("conv", "Conv2d", {"in_channels": 16, "out_channels": 32, "kernel_size": (3, 5), "groups": 2}),
        ("bn", "BatchNorm2d", {"num_features": 32}),
        ("up", "ConvTranspose2d", {"in_channels": 32, "out_channels": 16, "kernel_size": 3, "bias": False}),
        ("in", "InstanceNorm2d", {"num_features": 16, "affine": True}),
        ("gn", "GroupNorm", {"num_groups": 2, "num_channels": 16}),
        POOL,
        FLAT,
        ("fc", "Linear", {"in_features": 16, "out_features": 300}),
    ]
    found, again, other = (
        mpscnn.Trainer(layers, input_shapes=(1, 16, 6, 6), seed=seed).state_dict() for seed in (3, 3, 4)
    )
    theirs = Layers(layers).state_dict()
    assert {name: value.shape for name, value in found.items()} == {k: tuple(v.shape) for k, v in theirs.items()}
    for name, value in found.items():
        np.testing.assert_array_equal(value, again[name])
        if name.split(".")[0] in ("conv", "up", "fc"):
            assert (value != other[name]).any()
        else:
            np.testing.assert_array_equal(value, theirs[name].numpy())
    for name, fan in (("conv.weight", 8 * 15), ("up.weight", 16 * 9), ("fc.weight", 16), ("fc.bias", 16)):
        bound = 1 / np.sqrt(fan)
        assert 0.97 * bound < np.abs(found[name]).max() <= bound
        assert abs(found[name].mean()) < 0.1 * bound
        assert abs(found[name].std() - bound / np.sqrt(3)) < 0.1 * bound


def test_some_are_drawn_and_some_are_given() -> None:
    given = {"fc.weight": random((3, 4)), "fc.bias": random((3,))}
    found = mpscnn.Trainer(LAYERS, given, input_shapes=SHAPE).state_dict()
    drawn = mpscnn.Trainer(LAYERS, input_shapes=SHAPE).state_dict()
    np.testing.assert_array_equal(found["fc.weight"], given["fc.weight"])
    np.testing.assert_array_equal(found["conv.weight"], drawn["conv.weight"])
