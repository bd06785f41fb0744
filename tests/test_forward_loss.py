# SPDX-License-Identifier: Apache-2.0
"""ForwardLoss, LossGradient and InitialGradient: against Loss, and against PyTorch where Loss has no counterpart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from support import random
from test_loss import EACH, TYPES, X, assert_near, elements, image, labels_of, oracle, predictions, weights_of

OPTIONS: list[dict[str, Any]] = [
    {},
    {"weight": 0.25, "delta": 0.5, "epsilon": 0.125},
    {"label_smoothing": 0.25, "number_of_classes": 7},
]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("across", [False, True], ids=["each", "across"])
@pytest.mark.parametrize(("kind", "reduction"), EACH)
def test_the_loss_is_that_of_loss(kind: str, reduction: str, across: bool, weighted: bool) -> None:
    x, t, w = predictions(kind, X), labels_of(kind, X), weights_of(X) if weighted else None
    for options in OPTIONS:
        given = {"reduction": reduction, "reduce_across_batch": across, **options}
        found = mpscnn.ForwardLoss(kind, **given)(x, t, w)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, mpscnn.Loss(kind, **given)(x, t, w)[0])
        assert_near(found, oracle(kind, x, t, w, **given)[0])


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", TYPES)
def test_gradients_against_autograd(kind: str, weighted: bool) -> None:
    """With an incoming gradient for each value, and with one per image."""
    x, t, w = predictions(kind, X), labels_of(kind, X), weights_of(X) if weighted else None
    for options in OPTIONS:
        for shape in (X, (X[0], 1, 1, 1)):
            grad = random(shape, seed=4)
            y, labels = (torch.tensor(value.astype("f8"), requires_grad=True) for value in (x, t))
            factor = options.get("weight", 1.0) if w is None else torch.tensor(w.astype("f8"))
            losses = factor * elements(kind, y, labels, **options) * torch.tensor(grad.astype("f8"))
            right, right_labels = torch.autograd.grad(losses.sum(), (y, labels))
            assert_near(mpscnn.LossGradient(kind, **options)(grad, x, t, w), right.numpy())
            of_labels = mpscnn.LossGradient(kind, compute_label_gradients=True, **options)
            assert_near(of_labels(grad, x, t, w), right_labels.numpy(), 1e-5)


def test_a_backward_pass_on_one_command_buffer() -> None:
    """All images but the first and last are temporaries with several images, which are consumed."""
    x, t, w = random(X), random(X, seed=1), weights_of(X)
    loss, gradient = mpscnn.ForwardLoss("huber"), mpscnn.LossGradient("huber")
    double = mpscnn.NeuronLinear(a=2)
    with mpscnn.CommandBuffer() as commands:
        y = double.encode(commands, mpscnn.Image.from_array(x), temporary=True)
        labels = double.encode(commands, mpscnn.Image.from_array(t), temporary=True)
        weights = double.encode(commands, mpscnn.Image.from_array(w), temporary=True)
        for one in (y, labels, weights):
            one.read_count = 2
        value = loss.encode(commands, y, labels, weights, temporary=True)
        assert (y.read_count, labels.read_count, weights.read_count, value.read_count) == (1, 1, 1, 1)
        value.read_count = 2
        kept = double.encode(commands, value)
        grad = mpscnn.InitialGradient().encode(commands, value, temporary=True)
        result = gradient.encode(commands, grad, y, labels, weights)
        assert {one.read_count for one in (y, labels, weights, value, grad)} == {0}
    right, right_grad = oracle("huber", 2 * x, 2 * t, 2 * w)
    assert_near(kept.numpy(), 2 * right)
    assert_near(result.numpy(), right_grad)


def test_float16_and_destinations() -> None:
    x, t = random(X, "float16"), random(X, "float16", seed=1)
    loss, gradient = mpscnn.ForwardLoss("mean_squared_error"), mpscnn.LossGradient("mean_squared_error")
    right, right_grad = oracle("mean_squared_error", x, t)
    value = loss(x, t)
    assert_near(value, right)
    ones = mpscnn.InitialGradient()(value)
    assert (ones.dtype, ones.tolist()) == (np.float32, np.ones((3, 1, 1, 1)).tolist())
    assert mpscnn.InitialGradient()(x).dtype == np.float16
    grad = gradient(ones, x, t)
    assert grad.dtype == np.float16
    assert_near(grad.astype(np.float32), right_grad, 2.0**-10)
    out = np.zeros((*X[:3], 2 * X[3]), np.float32)[..., ::2]
    assert gradient(ones, x, t, out=out) is out
    assert_near(out, right_grad)
    sources = [mpscnn.Image.from_array(array) for array in (ones, x, t)]
    for destination in (None, mpscnn.Image(X, "float16")):
        found = gradient(*sources, out=destination)
        assert destination is None or found is destination
        np.testing.assert_array_equal(found.numpy(), grad)
    assert loss(sources[1], sources[2]).numpy().tolist() == value.tolist()


def test_attributes() -> None:
    loss = mpscnn.ForwardLoss("log", reduction="mean", weight=2, epsilon=4, reduce_across_batch=True)
    assert (loss.type, loss.reduction, loss.weight, loss.epsilon, loss.reduce_across_batch) == (
        "log",
        "mean",
        2,
        4,
        True,
    )
    assert repr(loss) == '<mpscnn.ForwardLoss "log", reduction "mean">'
    gradient = mpscnn.LossGradient("huber", delta=3, label_smoothing=0.5, number_of_classes=5)
    assert (gradient.type, gradient.delta, gradient.label_smoothing, gradient.number_of_classes) == ("huber", 3, 0.5, 5)
    assert not gradient.compute_label_gradients
    assert repr(gradient) == '<mpscnn.LossGradient "huber">'
    assert repr(mpscnn.InitialGradient()) == "<mpscnn.InitialGradient>"
    for kernel in (loss, gradient, mpscnn.InitialGradient()):
        assert kernel.device == mpscnn.Device()


ARRAY = random(X)
loss, gradient = mpscnn.ForwardLoss("huber"), mpscnn.LossGradient("huber")


def used_up() -> tuple[mpscnn.CommandBuffer, mpscnn.Image]:
    commands = mpscnn.CommandBuffer()
    made = mpscnn.Image.temporary(commands, X)
    made.read_count = 0
    return commands, made


def encode_used_up() -> Any:
    commands, labels = used_up()
    return loss.encode(commands, image(), labels)


ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (
        ValueError,
        "ForwardLoss: labels.shape (2, 5, 4, 7) is not x.shape (3, 5, 4, 7).",
        lambda: loss(ARRAY, ARRAY[:2]),
    ),
    (
        ValueError,
        "ForwardLoss: weights.shape (3, 5, 4, 3) is not x.shape (3, 5, 4, 7).",
        lambda: loss(ARRAY, ARRAY, ARRAY[..., :3]),
    ),
    (
        ValueError,
        "LossGradient: grad.shape (3, 5, 1, 1) is neither (3, 1, 1, 1) nor x.shape (3, 5, 4, 7).",
        lambda: gradient(random((3, 5, 1, 1)), ARRAY, ARRAY),
    ),
    (TypeError, "ForwardLoss: x is an Image; labels (ndarray) is not.", lambda: loss(image(), ARRAY)),  # type: ignore[call-overload]
    (TypeError, "LossGradient: grad is an array; x (Image) is not.", lambda: gradient(ARRAY, image(), ARRAY)),
    (
        TypeError,
        "InitialGradient: x is an Image; out (ndarray) is not.",
        lambda: mpscnn.InitialGradient()(image(), out=ARRAY),  # type: ignore[call-overload]
    ),
    (
        ValueError,
        "InitialGradient: out.shape (1, 1, 1, 2) is not the result's (3, 5, 4, 7).",
        lambda: mpscnn.InitialGradient()(image(), out=mpscnn.Image((1, 1, 1, 2))),
    ),
    (
        TypeError,
        "ForwardLoss: out.dtype (uint8) is not float32 or float16.",
        lambda: loss(ARRAY, ARRAY, out=np.empty((3, 1, 1, 1), np.uint8)),
    ),
    (ValueError, "LossGradient: x.ndim (3) is not 4 (N, H, W, C).", lambda: gradient(ARRAY, ARRAY[0], ARRAY)),
    (
        ValueError,
        "LossGradient: delta (-1) is less than the minimum (0).",
        lambda: mpscnn.LossGradient("huber", delta=-1),
    ),
    (
        ValueError,
        'ForwardLoss: reduction ("none") is not "sum", the only one of type "cosine_distance".',
        lambda: mpscnn.ForwardLoss("cosine_distance", reduction="none"),
    ),
    (
        ValueError,
        "ForwardLoss: temporary (True) was given together with out.",
        lambda: loss.encode(mpscnn.CommandBuffer(), image(), image(), out=image((3, 1, 1, 1)), temporary=True),
    ),
    (
        RuntimeError,
        "ForwardLoss: labels is a temporary image whose read_count is 0: its last read has been encoded.",
        encode_used_up,
    ),
]


@pytest.mark.parametrize(("kind", "sentence", "wrong"), ERRORS, ids=[sentence for _, sentence, _ in ERRORS])
def test_errors(kind: type[Exception], sentence: str, wrong: Callable[[], Any]) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    assert type(caught.value) is kind
    assert str(caught.value) == sentence
