# SPDX-License-Identifier: Apache-2.0
"""Batches in parts: an MPSImage holds 2048 slices of four channels, 16 images of 512."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_support import Layers, Theirs, arrays, assert_same_parameters, check, randomize, sgd

import mpscnn
from support import APPLE, limits_slices, random

CHANNELS = 512
LAYERS: list[Any] = [
    ("conv", "Conv2d", {"in_channels": 3, "out_channels": CHANNELS, "kernel_size": 3}),
    ("bn", "BatchNorm2d", {"num_features": CHANNELS}),
    ("relu", "ReLU"),
    ("last", "Conv2d", {"in_channels": CHANNELS, "out_channels": 4, "kernel_size": 1}),
    ("pool", "AdaptiveAvgPool2d", {"output_size": 1}),
    ("flat", "Flatten"),
    ("fc", "Linear", {"in_features": 4, "out_features": 3}),
]
SHAPE = (3, 5, 4)


def trainer_of(layers: list[Any] = LAYERS, **options: Any) -> mpscnn.Trainer:
    weights = randomize(Layers(layers)).state_dict()
    return mpscnn.Trainer(layers, weights, **{"input_shapes": (1, *SHAPE), "optimizer": sgd(), **options})


@limits_slices
@pytest.mark.parametrize(
    ("images", "parts"),
    [(1, [1]), (16, [16]), (17, [8, 9]), (32, [16, 16]), (33, [11, 11, 11]), (40, [13, 13, 14])],
)
def test_sizes(images: int, parts: list[int]) -> None:
    assert trainer_of()._plan.core.chunks(images) == parts


@pytest.mark.parametrize("images", [17, 20, 33])
def test_against_torch(images: int) -> None:
    """Statistics, losses and gradients are those of the whole batch."""
    labels = np.arange(images) % 3
    check(
        LAYERS,
        (images, *SHAPE),
        loss="softmax_cross_entropy",
        loss_of_torch=nn.functional.cross_entropy,
        labels=labels,
        relative=5e-4,
    )


def test_batches_of_one_part_and_of_several_in_a_row() -> None:
    module = randomize(Layers(LAYERS))
    before = arrays(module)
    trainer, theirs = trainer_of(in_flight=2), Theirs(module)
    steps, expected = [], []
    for seed, images in enumerate([20, 4, 33, 17, 16]):
        x, labels = random((images, *SHAPE), seed=seed), np.arange(images) % 3
        expected.append(theirs.step(x, labels))
        steps.append(trainer.step(x, labels))
    np.testing.assert_allclose([step.loss for step in steps], expected, rtol=1e-5)
    for step, images in zip(steps, [20, 4, 33, 17, 16], strict=True):
        assert step.images == images
        assert step.output.shape == (images, 1, 1, 3)
        assert step.accuracy == (step.output.reshape(images, 3).argmax(1) == np.arange(images) % 3).mean()
    assert_same_parameters(trainer.state_dict(), module, before, 5e-4)


def test_one_more_image_is_the_same_training() -> None:
    """17 images in two parts: the weighted results of 16 images and of one."""
    a, b = trainer_of(in_flight=1), trainer_of(in_flight=3)
    x, labels = random((17, *SHAPE)), np.arange(17) % 3
    for _ in range(3):
        assert a.step(x, labels).loss == b.step(x, labels).loss
    found, expected = a.state_dict(), b.state_dict()
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize(
    "layers",
    [
        [("conv", "Conv2d", {"in_channels": 3, "out_channels": CHANNELS, "kernel_size": 1}), ("act", "Tanh")],
        [
            ("conv", "Conv2d", {"in_channels": 3, "out_channels": CHANNELS, "kernel_size": 1}),
            (
                "group",
                "Conv2d",
                {"in_channels": CHANNELS, "out_channels": CHANNELS, "kernel_size": 3, "groups": CHANNELS},
            ),
        ],
        [
            ("conv", "Conv2d", {"in_channels": 3, "out_channels": CHANNELS, "kernel_size": 1}),
            ("pool", "MaxPool2d", {"kernel_size": 2}),
            ("relu", "ReLU"),
            ("both", "Add", {"inputs": ["pool", "relu"]}),
            ("up", "ConvTranspose2d", {"in_channels": CHANNELS, "out_channels": 4, "kernel_size": 2, "stride": 2}),
        ],
        [
            ("conv", "Conv2d", {"in_channels": 3, "out_channels": 256, "kernel_size": 1}),
            ("both", "Concat", {"inputs": ["conv", "conv"]}),
        ],
        [
            ("conv", "Conv2d", {"in_channels": 3, "out_channels": CHANNELS, "kernel_size": 1}),
            ("norm", "GroupNorm", {"num_groups": 4, "num_channels": CHANNELS}),
            ("relu", "ReLU"),
        ],
        [
            ("conv", "Conv2d", {"in_channels": 3, "out_channels": CHANNELS, "kernel_size": 1}),
            ("norm", "InstanceNorm2d", {"num_features": CHANNELS, "affine": True}),
            ("relu", "ReLU"),
        ],
    ],
    ids=["activation", "depth-wise", "transposed", "concatenation", "group", "instance"],
)
def test_layers(layers: list[Any]) -> None:
    check(layers, (18, *SHAPE), relative=5e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", ["GroupNorm", "InstanceNorm2d"])
def test_normalizations(kind: str, optimizer: str) -> None:
    """Gradients of gamma and beta are sums over three parts, one part, and two."""
    options: Any = {"num_groups": 4, "num_channels": CHANNELS}
    if kind == "InstanceNorm2d":
        options = {"num_features": CHANNELS, "affine": True}
    layers: list[Any] = [("norm", kind, options)]
    module = randomize(Layers(layers))
    before = arrays(module)
    # The gradients are 1e-4: Adam's step is as large as usual, unless the sign of a sum is wrong.
    rate = 1e3 if optimizer == "sgd" else 0.01
    of_ours = sgd(rate, 0.9) if optimizer == "sgd" else mpscnn.OptimizerAdam(rate, epsilon=0)
    trainer = mpscnn.Trainer(
        layers, module.state_dict(), input_shapes=(1, CHANNELS, 3, 2), loss="mean_squared_error", optimizer=of_ours
    )
    theirs = Theirs(
        module,
        nn.functional.mse_loss,
        lambda made: (
            torch.optim.SGD(made.parameters(), rate, momentum=0.9)
            if optimizer == "sgd"
            else torch.optim.Adam(made.parameters(), rate, eps=0)
        ),
    )
    for seed, images in enumerate((40, 3, 18)):
        x, labels = random((images, CHANNELS, 3, 2), seed=seed), random((images, CHANNELS, 3, 2), seed=50 + seed)
        assert len(trainer._plan.core.chunks(images)) == ({40: 3, 3: 1, 18: 2}[images] if APPLE else 1)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) <= 1e-5 * expected
    assert_same_parameters(trainer.state_dict(), module, before, 1e-3)


def test_frozen_layers_need_no_state() -> None:
    """Kernels without a shared state work in parts: a frozen convolution, batch normalization, and pooling."""
    layers = [
        ("conv", "Conv2d", {"in_channels": 3, "out_channels": CHANNELS, "kernel_size": 1}),
        ("bn", "BatchNorm2d", {"num_features": CHANNELS}),
        ("relu", "ReLU"),
        ("pool", "MaxPool2d", {"kernel_size": 2}),
    ]
    module = randomize(Layers(layers))
    before = arrays(module)
    trainer = trainer_of(layers, frozen=["conv"], loss="mean_squared_error")
    for parameter in module.get_submodule("conv").parameters():
        parameter.requires_grad_(False)
    theirs = Theirs(module, nn.functional.mse_loss)
    for seed in range(3):
        x, labels = random((18, *SHAPE), seed=seed), random((18, CHANNELS, 2, 2), seed=seed)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) < 1e-5 * expected
    assert_same_parameters(trainer.state_dict(), module, before)


def test_more_channels_than_an_image_has() -> None:
    layers = [("conv", "Conv2d", {"in_channels": 3, "out_channels": 8196, "kernel_size": 1})]
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="8196 channels, an image at most 8192"):
        mpscnn.Trainer(layers, input_shapes=(1, *SHAPE))
