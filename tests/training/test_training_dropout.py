# SPDX-License-Identifier: Apache-2.0
"""Dropout in training: the share of dropped values, new masks in every step, the seed, no dropout in inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from support import random

SHAPE = (16, 4, 12, 10)


def trainer_of(kind: str, p: float, **options: Any) -> mpscnn.Trainer:
    """Return a trainer with dropout after an identity convolution: a step's predictions show the mask."""
    layers = [("conv", "Conv2d"), ("drop", kind, {"p": p})]
    weights = {"conv.weight": np.eye(4, dtype=np.float32)[:, :, None, None]}
    options = {"loss": "mean_squared_error", "optimizer": mpscnn.OptimizerAdam(0.0), **options}
    return mpscnn.Trainer(layers, weights, input_shapes=SHAPE, **options)


def step(trainer: mpscnn.Trainer) -> NDArray[Any]:
    """Return the result of dropout for ones, (N, H, W, C)."""
    return trainer.step(np.ones(SHAPE, np.float32), np.zeros(SHAPE, np.float32)).output


@pytest.mark.parametrize("p", [0.2, 0.5, 0.7])
def test_of_values(p: float) -> None:
    trainer = trainer_of("Dropout", p)
    masks = [step(trainer) for _ in range(4)]
    for y in masks:
        np.testing.assert_allclose(np.unique(y), [0, 1 / (1 - p)], rtol=1e-6)
    dropped = np.stack(masks) == 0
    # Of 30720 values, the share is within five standard deviations; also for each image and channel.
    assert abs(dropped.mean() - p) < 5 * np.sqrt(p * (1 - p) / dropped.size)
    for axes in ((0, 2, 3, 4), (0, 1, 2, 3)):
        shares = dropped.mean(axes)
        assert np.abs(shares - p).max() < 5 * np.sqrt(p * (1 - p) / (dropped.size / shares.size))
    # Two steps, and two images, have independent masks.
    for a, b in ((dropped[0], dropped[1]), (dropped[0, :8], dropped[0, 8:])):
        assert abs((a & b).mean() - p * p) < 5 * np.sqrt(p * p / a.size)


def test_of_channels() -> None:
    y = step(trainer_of("Dropout2d", 0.5))
    assert ((y == y[:, :1, :1]).all((1, 2, 3))).all()
    assert 10 < (y[:, 0, 0] == 0).sum() < 54


def test_two_layers_have_masks_of_their_own() -> None:
    layers = [
        ("conv", "Conv2d"),
        ("a", "Dropout", {"p": 0.5}),
        ("b", "Dropout", {"p": 0.5, "inputs": ["conv"]}),
        ("both", "Multiply", {"inputs": ["a", "b"]}),
    ]
    weights = {"conv.weight": np.eye(4, dtype=np.float32)[:, :, None, None]}
    trainer = mpscnn.Trainer(layers, weights, input_shapes=SHAPE, loss="mean_squared_error")
    assert abs((step(trainer) > 0).mean() - 0.25) < 0.03


@pytest.mark.parametrize("in_flight", [1, 3])
def test_the_seed_tells_the_masks(in_flight: int) -> None:
    trainer = trainer_of("Dropout", 0.5, seed=2**70, in_flight=in_flight)
    again, other = trainer_of("Dropout", 0.5, seed=2**70), trainer_of("Dropout", 0.5, seed=8)
    for _ in range(4):
        mask = step(trainer)
        np.testing.assert_array_equal(step(again), mask)
        assert (step(other) != mask).mean() > 0.3


def test_gradients_are_those_of_the_mask() -> None:
    """For a linear layer after it: d loss / d weight is the product with the kept values."""
    layers = [("drop", "Dropout", {"p": 0.5}), ("fc", "Linear")]
    weights = {"fc.weight": np.ones((1, 40), np.float32)}
    trainer = mpscnn.Trainer(
        layers,
        weights,
        input_shapes=(1, 40),
        loss="mean_squared_error",
        optimizer=mpscnn.OptimizerStochasticGradientDescent(1.0),
    )
    x = random((1, 40)) + 3
    kept = trainer.step(x, np.zeros((1, 1), np.float32)).output.item()  # the sum of the kept values, doubled
    change = (1 - trainer.state_dict()["fc.weight"][0]) / (2 * kept)
    mask = change != 0
    assert 5 < mask.sum() < 35
    np.testing.assert_allclose(change, 2 * x[0] * mask, rtol=1e-5)
    np.testing.assert_allclose(kept, 2 * x[0][mask].sum(), rtol=1e-5)


def test_gradients_of_a_layer_before_dropout() -> None:
    """For a convolution before it: the mask of this step, not that of another one."""
    layers = [("conv", "Conv2d", {"in_channels": 1, "out_channels": 1, "kernel_size": 1, "bias": False})]
    layers.append(("drop", "Dropout", {"p": 0.5}))
    trainer = mpscnn.Trainer(
        layers,
        {"conv.weight": np.ones((1, 1, 1, 1), np.float32)},
        input_shapes=(1, 1, 9, 9),
        loss="mean_absolute_error",
        optimizer=mpscnn.OptimizerStochasticGradientDescent(1.0),
    )
    x, weight = np.ones((1, 1, 9, 9), np.float32), 1.0
    for _ in range(4):
        y = trainer.step(x, np.full((1, 1, 9, 9), 1e3, np.float32)).output
        weight += y.sum() / weight / 81  # for |y - t| with y < t: each kept value adds 2 / 81
        np.testing.assert_allclose(trainer.state_dict()["conv.weight"].item(), weight, rtol=1e-5)


def test_inference_has_none() -> None:
    trainer = trainer_of("Dropout", 0.5)
    x = random(SHAPE)
    np.testing.assert_array_equal(trainer.network()(x), x)
    np.testing.assert_array_equal(trainer.network(optimize=False)(x), x)
    loss, _ = trainer.evaluate(x, x)
    assert loss == 0


def test_none_is_dropped() -> None:
    trainer = trainer_of("Dropout", 0.0)
    np.testing.assert_array_equal(step(trainer), np.ones((16, 12, 10, 4), np.float32))
