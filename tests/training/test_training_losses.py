# SPDX-License-Identifier: Apache-2.0
"""Losses in training: means over the batch like torch.nn's with reduction="mean", and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_support import Layers, LossOfTorch, Theirs, arrays, assert_same_parameters, check, randomize, sgd

import mpscnn
from support import random

F = nn.functional
CONV = ("conv", "Conv2d", {"in_channels": 3, "out_channels": 6, "kernel_size": 3})
VECTOR = [
    CONV,
    ("tanh", "Tanh"),
    ("pool", "AdaptiveAvgPool2d", {"output_size": 1}),
    ("flat", "Flatten"),
    ("fc", "Linear", {"in_features": 6, "out_features": 5}),
]
IMAGE = [CONV, ("tanh", "Tanh"), ("last", "Conv2d", {"in_channels": 6, "out_channels": 5, "kernel_size": 1})]
SHAPE = (4, 3, 7, 6)
VALUES: dict[str, LossOfTorch] = {
    "mean_squared_error": F.mse_loss,
    "mean_absolute_error": F.l1_loss,
    "huber": F.huber_loss,
    "sigmoid_cross_entropy": F.binary_cross_entropy_with_logits,
}


def labels_for(loss: str, shape: tuple[int, ...]) -> Any:
    values = random(shape, seed=5)
    return (values > 0).astype(np.float32) if loss == "sigmoid_cross_entropy" else 2 * values


@pytest.mark.parametrize("layers", [VECTOR, IMAGE], ids=["vector", "image"])
@pytest.mark.parametrize("loss", VALUES)
def test_of_values(loss: str, layers: list[Any]) -> None:
    shape = (4, 5) if layers is VECTOR else (4, 5, 5, 4)
    trainer = check(layers, SHAPE, loss=loss, loss_of_torch=VALUES[loss], labels=labels_for(loss, shape))
    assert trainer.step(random(SHAPE), labels_for(loss, shape)).accuracy is None


def test_huber_with_delta() -> None:
    loss = mpscnn.Loss("huber", delta=0.3)
    check(
        VECTOR,
        SHAPE,
        loss=loss,
        loss_of_torch=lambda y, t: F.huber_loss(y, t, delta=0.3),
        labels=labels_for("huber", (4, 5)),
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("layers", [VECTOR, IMAGE], ids=["vector", "image"])
def test_cross_entropy(layers: list[Any], smoothing: float) -> None:
    """label_smoothing divides by the number of channels."""
    labels = np.random.default_rng(0).integers(0, 5, (4,) if layers is VECTOR else (4, 5, 4))
    check(
        layers,
        SHAPE,
        loss=mpscnn.Loss("softmax_cross_entropy", label_smoothing=smoothing),
        loss_of_torch=lambda y, t: F.cross_entropy(y, t, label_smoothing=smoothing),
        labels=labels,
    )


def test_number_of_classes_is_said() -> None:
    labels = np.array([0, 4, 2, 2])
    check(
        VECTOR,
        SHAPE,
        loss=mpscnn.Loss("softmax_cross_entropy", label_smoothing=0.2, number_of_classes=5),
        loss_of_torch=lambda y, t: F.cross_entropy(y, t, label_smoothing=0.2),
        labels=labels,
    )


def test_probabilities_as_labels() -> None:
    labels = np.abs(random((4, 5), seed=8))
    labels /= labels.sum(1, keepdims=True)
    check(VECTOR, SHAPE, loss="softmax_cross_entropy", loss_of_torch=F.cross_entropy, labels=labels)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_types_of_class_numbers(dtype: str) -> None:
    trainer = mpscnn.Trainer(VECTOR, input_shapes=SHAPE)
    reference = mpscnn.Trainer(VECTOR, input_shapes=SHAPE)
    labels = np.array([0, 4, 2, 3])
    assert trainer.step(random(SHAPE), labels.astype(dtype)).loss == reference.step(random(SHAPE), labels).loss


def test_accuracy() -> None:
    trainer = mpscnn.Trainer(VECTOR, input_shapes=SHAPE)
    x = random(SHAPE)
    step = trainer.step(x, np.zeros(4, int))
    best = step.output.reshape(4, 5).argmax(1)
    assert step.accuracy == (best == 0).mean()
    labels = best.copy()
    labels[1] = (labels[1] + 1) % 5
    other = mpscnn.Trainer(VECTOR, input_shapes=SHAPE).step(x, labels)
    assert other.accuracy == 0.75
    image = mpscnn.Trainer(IMAGE, input_shapes=SHAPE)
    wanted = np.ones((4, 5, 4), int)
    step = image.step(x, wanted)
    assert step.output.shape == (4, 5, 4, 5)
    assert step.accuracy == (step.output.argmax(-1) == 1).mean()


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mean_squared_error"])
def test_batches_of_different_sizes(loss: str) -> None:
    """Each is the mean over its own images."""
    module = randomize(Layers(VECTOR))
    before = arrays(module)
    trainer = mpscnn.Trainer(VECTOR, module.state_dict(), input_shapes=SHAPE, loss=loss, optimizer=sgd(), in_flight=3)
    theirs = Theirs(module, VALUES.get(loss, F.cross_entropy))
    steps, expected = [], []
    for seed, images in enumerate([4, 1, 7, 4, 2, 7, 1, 3, 5, 6, 4]):
        x = random((images, *SHAPE[1:]), seed=seed)
        labels = random((images, 5), seed=seed) if loss == "mean_squared_error" else np.arange(images) % 5
        expected.append(theirs.step(x, labels))
        steps.append(trainer.step(x, labels))
        assert steps[-1].images == images
    np.testing.assert_allclose([step.loss for step in steps], expected, rtol=1e-5)
    assert_same_parameters(trainer.state_dict(), module, before)


def test_weight() -> None:
    """The weight of a Loss multiplies losses and gradients."""
    states = []
    for weight, rate in ((1.0, 0.25), (4.0, 0.0625)):
        loss = mpscnn.Loss("softmax_cross_entropy", weight=weight)
        trainer = mpscnn.Trainer(VECTOR, input_shapes=SHAPE, loss=loss, optimizer=sgd(rate))
        states.append(([trainer.step(random(SHAPE), np.arange(4)).loss / weight for _ in range(3)], trainer))
    assert states[0][0] == states[1][0]
    for name, value in states[0][1].state_dict().items():
        np.testing.assert_array_equal(value, states[1][1].state_dict()[name])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_reductions_are_not_looked_at(reduction: Any) -> None:
    x, labels = random(SHAPE), np.arange(4)
    loss = mpscnn.Loss("softmax_cross_entropy", reduction=reduction)
    found = mpscnn.Trainer(VECTOR, input_shapes=SHAPE, loss=loss).step(x, labels).loss
    assert found == mpscnn.Trainer(VECTOR, input_shapes=SHAPE).step(x, labels).loss


OTHERS: dict[str, Any] = {
    "hinge": (lambda y, t: F.relu(1 - (2 * t - 1) * y).mean(), []),
    "categorical_cross_entropy": (lambda y, t: -(t * y.log()).mean(), [("softmax", "Softmax", {"dim": 1})]),
    "log": (
        lambda y, t: (-t * (y + 1e-7).log() - (1 - t) * (1 - y + 1e-7).log()).mean(),
        [("sigmoid", "Sigmoid")],
    ),
    "kullback_leibler_divergence": (
        lambda y, t: (t * (t.log() - y)).mean(),
        [("softmax", "LogSoftmax", {"dim": 1})],
    ),
    "cosine_distance": (lambda y, t: (1 - (y * t).sum(1)).mean(), []),
}


@pytest.mark.parametrize("loss", OTHERS)
def test_others(loss: str) -> None:
    loss_of_torch, end = OTHERS[loss]
    labels = np.abs(random((4, 5), seed=8))
    if loss == "hinge":
        labels = (labels > 0.5).astype(np.float32)
    else:
        labels /= labels.sum(1, keepdims=True)
    given = mpscnn.Loss(loss, reduction="sum") if loss == "cosine_distance" else loss
    check([*VECTOR, *end], SHAPE, loss=given, loss_of_torch=loss_of_torch, labels=labels)


def test_step_answers_later() -> None:
    """A step's loss, accuracy and output are its own, also when read later."""
    trainer = mpscnn.Trainer(VECTOR, input_shapes=SHAPE, in_flight=2)
    again = mpscnn.Trainer(VECTOR, input_shapes=SHAPE, in_flight=1)
    labels = [np.roll(np.arange(4), i) for i in range(6)]
    steps = [trainer.step(random(SHAPE, seed=i), labels[i]) for i in range(6)]
    for i in reversed(range(6)):
        assert steps[i].number == i
        assert repr(steps[i]) == f"<mpscnn.training.Step {i}>"
    expected = []
    for i in range(6):
        step = again.step(random(SHAPE, seed=i), labels[i])
        expected.append((step.loss, step.accuracy, step.output))
    for i in (3, 5, 0, 4, 1, 2):
        assert (steps[i].loss, steps[i].accuracy) == expected[i][:2]
        np.testing.assert_array_equal(steps[i].output, expected[i][2])
    assert steps[2].wait() is steps[2]


def test_torch_labels_and_images() -> None:
    x, labels = random(SHAPE), np.arange(4)
    found = mpscnn.Trainer(VECTOR, input_shapes=SHAPE).step(torch.from_numpy(x), torch.from_numpy(labels)).loss
    assert found == mpscnn.Trainer(VECTOR, input_shapes=SHAPE).step(x, labels).loss
