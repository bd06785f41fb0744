# SPDX-License-Identifier: Apache-2.0
"""Optimizers in training: every parameter of a network against torch.optim, and changing learning rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_support import Layers, Theirs, arrays, assert_same_parameters, randomize

import mpscnn
from support import random

SGD, RMSProp, Adam = mpscnn.OptimizerStochasticGradientDescent, mpscnn.OptimizerRMSProp, mpscnn.OptimizerAdam
SHAPE = (5, 3, 7, 6)
LAYERS: list[Any] = [
    ("conv", "Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": 1}),
    ("bn", "BatchNorm2d", {"num_features": 4}),
    ("tanh", "Tanh"),
    ("up", "ConvTranspose2d", {"in_channels": 4, "out_channels": 8, "kernel_size": 2, "stride": 2}),
    ("norm", "GroupNorm", {"num_groups": 2, "num_channels": 8}),
    ("relu", "LeakyReLU", {"negative_slope": 0.3}),
    ("pool", "AvgPool2d", {"kernel_size": 4}),
    ("flat", "Flatten"),
    ("fc", "Linear", {"in_features": 72, "out_features": 5}),
]
LABELS = np.arange(5)
STEPS = 6
# Permitted error of changes: dividing by a small root amplifies rounding.
DIVIDED = 2e-3


class AdamOfMPS(torch.optim.Adam):
    """PyTorch's Adam with MPS's epsilon, which is added before the correction."""

    def __init__(self, parameters: Any, rate: float, betas: tuple[float, float], epsilon: float, amsgrad: bool) -> None:
        super().__init__(parameters, rate, betas, amsgrad=amsgrad)
        self.time, self.epsilon = 0, epsilon

    def step(self, closure: Any = None) -> Any:
        self.time += 1
        for group in self.param_groups:
            group["eps"] = self.epsilon / np.sqrt(1 - group["betas"][1] ** self.time)
        return super().step(closure)


Pair = tuple[Callable[[], mpscnn.Optimizer], Callable[[nn.Module], torch.optim.Optimizer], float]
PAIRS: dict[str, Pair] = {
    "sgd": (lambda: SGD(0.05), lambda m: torch.optim.SGD(m.parameters(), 0.05), 1e-4),
    "momentum": (
        lambda: SGD(0.05, momentum_scale=0.9),
        lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9),
        1e-4,
    ),
    "nesterov": (
        lambda: SGD(0.05, momentum_scale=0.9, use_nesterov_momentum=True),
        lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, nesterov=True),
        1e-4,
    ),
    "l2": (
        lambda: SGD(0.05, momentum_scale=0.5, regularization="l2", regularization_scale=0.1),
        lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.5, weight_decay=0.1),
        1e-4,
    ),
    "rmsprop": (
        lambda: RMSProp(0.01, decay=0.9, epsilon=1e-3),
        lambda m: torch.optim.RMSprop(m.parameters(), 0.01, alpha=0.9, eps=1e-3),
        DIVIDED,
    ),
    "adam": (
        lambda: Adam(0.01, beta2=0.9, epsilon=1e-2),
        lambda m: AdamOfMPS(m.parameters(), 0.01, (0.9, 0.9), 1e-2, False),
        DIVIDED,
    ),
    "amsgrad": (
        lambda: Adam(0.01, beta2=0.9, epsilon=1e-2, amsgrad=True),
        lambda m: AdamOfMPS(m.parameters(), 0.01, (0.9, 0.9), 1e-2, True),
        DIVIDED,
    ),
}


def trainer_of(module: nn.Module, optimizer: mpscnn.Optimizer, **options: Any) -> mpscnn.Trainer:
    return mpscnn.Trainer(LAYERS, module.state_dict(), input_shapes=SHAPE, optimizer=optimizer, **options)


@pytest.mark.parametrize("name", PAIRS)
def test_against_torch(name: str) -> None:
    ours_of, theirs_of, relative = PAIRS[name]
    module = randomize(Layers(LAYERS))
    before = arrays(module)
    trainer = trainer_of(module, ours_of())
    theirs = Theirs(module, optimizer=theirs_of)
    for seed in range(STEPS):
        x = random(SHAPE, seed=seed)
        expected = theirs.step(x, LABELS)
        assert abs(trainer.step(x, LABELS).loss - expected) <= 1e-5 * expected
    assert_same_parameters(trainer.state_dict(), module, before, relative)


@pytest.mark.parametrize("name", ["clip", "rescale", "l1"])
def test_options_that_torch_optim_lacks(name: str) -> None:
    """Gradients changed by hand; the bounds clip a fifth of them."""
    options: Any = {
        "clip": {"gradient_clip": (-0.01, 0.02)},
        "rescale": {"gradient_rescale": 0.25},
        "l1": {"regularization": "l1", "regularization_scale": 0.03},
    }[name]
    module = randomize(Layers(LAYERS))
    before = arrays(module)
    trainer = trainer_of(module, SGD(0.05, momentum_scale=0.9, **options))
    theirs = Theirs(module)
    cut = 0
    for parameter in module.parameters():

        def change(gradient: torch.Tensor, parameter: torch.Tensor = parameter) -> torch.Tensor:
            nonlocal cut
            if name == "clip":
                cut += int(((gradient < -0.01) | (gradient > 0.02)).sum())
                return gradient.clamp(-0.01, 0.02)
            return gradient * 0.25 if name == "rescale" else gradient + 0.03 * parameter.detach().sign()

        parameter.register_hook(change)
    for seed in range(STEPS):
        x = random(SHAPE, seed=seed)
        expected = theirs.step(x, LABELS)
        assert abs(trainer.step(x, LABELS).loss - expected) <= 1e-5 * expected
    assert (cut > 100) == (name == "clip")
    assert_same_parameters(trainer.state_dict(), module, before)


def test_learning_rate_between_steps() -> None:
    """A step uses the rate set when it is encoded, whatever is set while it runs."""
    rates = [0.1, 0.02, 0.02, 0.3, 0.0, 0.05]
    module = randomize(Layers(LAYERS))
    before = arrays(module)
    trainer = trainer_of(module, SGD(1.0), in_flight=3)
    theirs = Theirs(module, optimizer=lambda m: torch.optim.SGD(m.parameters(), 1.0))
    for seed, rate in enumerate(rates):
        trainer.optimizer.learning_rate = theirs.optimizer.param_groups[0]["lr"] = rate
        theirs.step(random(SHAPE, seed=seed), LABELS)
        trainer.step(random(SHAPE, seed=seed), LABELS)
    assert_same_parameters(trainer.state_dict(), module, before)


def test_learning_rate_of_fit() -> None:
    """A function of the number of the step, over all calls."""
    module = randomize(Layers(LAYERS))
    before = arrays(module)
    trainer = trainer_of(module, SGD(1.0))
    theirs = Theirs(module, optimizer=lambda m: torch.optim.SGD(m.parameters(), 1.0))
    x = np.concatenate([random(SHAPE, seed=seed) for seed in range(3)])
    labels = np.tile(LABELS, 3)
    asked = []

    def rate(step: int) -> float:
        asked.append(step)
        return 0.1 / (1 + step)

    for _ in range(2):
        trainer.fit(x, labels, batch_size=5, shuffle=False, learning_rate=rate)
    for step in range(6):
        theirs.optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        theirs.step(random(SHAPE, seed=step % 3), LABELS)
    assert asked == list(range(6))
    np.testing.assert_allclose([epoch.learning_rate for epoch in trainer.history], [0.1 / 3, 0.1 / 6], rtol=1e-6)
    assert_same_parameters(trainer.state_dict(), module, before)


def test_default() -> None:
    """SGD(0.01, momentum_scale=0.9)."""
    module = randomize(Layers(LAYERS))
    trainer, other = (
        mpscnn.Trainer(LAYERS, module.state_dict(), input_shapes=SHAPE, **options)
        for options in ({}, {"optimizer": SGD(0.01, momentum_scale=0.9)})
    )
    for _ in range(3):
        assert trainer.step(random(SHAPE), LABELS).loss == other.step(random(SHAPE), LABELS).loss


def test_one_optimizer_of_two_trainers() -> None:
    """It has no state itself: each layer of each trainer has its own."""
    module, optimizer = randomize(Layers(LAYERS)), Adam(0.01)
    a, b, alone = trainer_of(module, optimizer), trainer_of(module, optimizer), trainer_of(module, Adam(0.01))
    for seed in range(3):
        b.step(random(SHAPE, seed=seed + 10), LABELS)
        assert a.step(random(SHAPE, seed=seed), LABELS).loss == alone.step(random(SHAPE, seed=seed), LABELS).loss


def test_another_device(null_device: mpscnn.Device) -> None:
    optimizer = SGD(0.1, device=null_device)
    with pytest.raises(ValueError, match=r'^optimizer.device is ".*", and the trainer\'s is ".*": give Optimizer'):
        mpscnn.Trainer(LAYERS, input_shapes=SHAPE, optimizer=optimizer)


@pytest.mark.parametrize("reduced", [False, True])
def test_images_of_float16(reduced: bool) -> None:
    """Losses differ from those of float32 images by roundings, and parameters stay float32."""
    x, losses = random(SHAPE, seed=5), {}
    for dtype in ("float32", "float16"):
        trainer = mpscnn.Trainer(
            LAYERS, input_shapes=SHAPE, optimizer=SGD(0.05), dtype=dtype, allow_reduced_precision=reduced, seed=3
        )
        losses[dtype] = [trainer.step(x, LABELS).loss for _ in range(STEPS)]
        assert all(value.dtype == np.float32 for value in trainer.state_dict().values() if value.ndim)
        assert trainer.step(x, LABELS).output.dtype == np.float32
    difference = np.abs(np.subtract(losses["float16"], losses["float32"])).max()
    assert 0 < difference < 0.02
    assert losses["float16"][-1] < losses["float16"][0] - 0.1
