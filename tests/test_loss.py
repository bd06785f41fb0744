# SPDX-License-Identifier: Apache-2.0
"""Loss and LossLabels against PyTorch in float64: values, gradients, reductions, labels of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

import mpscnn
from mpscnn import _typing
from support import held_queue, random

TYPES = get_args(_typing.LossType)
REDUCTIONS = get_args(_typing.LossReduction)
SMOOTHED = ("softmax_cross_entropy", "sigmoid_cross_entropy")
X = (3, 5, 4, 7)


def predictions(kind: str, shape: tuple[int, ...], dtype: str = "float32") -> NDArray[Any]:
    """Return predictions in the domain of the function."""
    x = np.random.default_rng([1, *shape]).normal(size=shape)
    if kind in ("categorical_cross_entropy", "log"):
        x = 0.1 + 0.8 / (1 + np.exp(-x))
    if kind == "kullback_leibler_divergence":
        x = -np.abs(x)
    return x.astype(dtype)


def labels_of(kind: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    rng = np.random.default_rng([2, *shape])
    if kind in ("mean_absolute_error", "mean_squared_error", "huber", "cosine_distance"):
        return rng.normal(size=shape).astype(np.float32)
    if kind == "hinge":
        return rng.integers(0, 2, shape).astype(np.float32)
    t = rng.uniform(0.05, 0.95, shape)
    if kind in ("softmax_cross_entropy", "categorical_cross_entropy"):
        t /= t.sum(-1, keepdims=True)
    return t.astype(np.float32)


def weights_of(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return weights, a third of them 0."""
    rng = np.random.default_rng([3, *shape])
    return (rng.uniform(0.5, 2, shape) * (rng.uniform(size=shape) > 0.3)).astype(np.float32)


def elements(kind: str, y: torch.Tensor, t: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return the unweighted loss of each value; for the cosine distance, the negative product."""
    smoothing, epsilon, delta = (
        options.get(name, default) for name, default in (("label_smoothing", 0), ("epsilon", 1e-7), ("delta", 1))
    )
    if kind == "mean_absolute_error":
        return (y - t).abs()
    if kind == "mean_squared_error":
        return (y - t) ** 2
    if kind == "softmax_cross_entropy":
        return -(t * (1 - smoothing) + smoothing / options.get("number_of_classes", 1)) * F.log_softmax(y, -1)
    if kind == "sigmoid_cross_entropy":
        smooth = t * (1 - smoothing) + smoothing / 2
        return F.binary_cross_entropy_with_logits(y, smooth, reduction="none")
    if kind == "categorical_cross_entropy":
        return -t * y.log()
    if kind == "hinge":
        return torch.clamp(1 - (2 * t - 1) * y, min=0)
    if kind == "huber":
        return F.huber_loss(y, t, reduction="none", delta=delta)
    if kind == "cosine_distance":
        return -(y * t)
    if kind == "log":
        return -t * (y + epsilon).log() - (1 - t) * (1 - y + epsilon).log()
    assert kind == "kullback_leibler_divergence"
    return F.kl_div(y, t, reduction="none")


def oracle(
    kind: str, x: NDArray[Any], t: NDArray[Any], weights: NDArray[Any] | None = None, **options: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return loss and gradient, float64."""
    y = torch.tensor(x.astype("f8"), requires_grad=True)
    factor = options.get("weight", 1)
    w = torch.full(y.shape, factor, dtype=torch.float64) if weights is None else torch.tensor(weights.astype("f8"))
    weighted = w * elements(kind, y, torch.tensor(t.astype("f8")), **options)
    (grad,) = torch.autograd.grad(weighted.sum(), y)
    reduction, n = options.get("reduction", "sum"), len(x)
    values = weighted.detach().numpy()
    if reduction == "none":
        return values, grad.numpy()
    loss = values.reshape(n, -1).sum(1)
    if kind == "cosine_distance":
        loss += factor if weights is None else 1
    divisor = np.ones(n)
    if reduction == "mean":
        divisor[:] = x[0, ..., 0].size if kind == "softmax_cross_entropy" else x[0].size
    if reduction == "sum_by_nonzero_weights":
        divisor = (w.numpy() != 0).reshape(n, -1).sum(1)
    if options.get("reduce_across_batch"):
        whole = loss.sum() / (divisor.sum() if reduction != "sum" else 1)
        loss, divisor = np.array([whole, *np.zeros(n - 1)]), np.ones(n)
    return (loss / divisor).reshape(n, 1, 1, 1), grad.numpy()


def assert_near(found: Any, right: NDArray[Any], relative: float = 3e-6) -> None:
    assert found.shape == right.shape
    np.testing.assert_allclose(found, right, rtol=relative, atol=relative * max(1.0, float(np.abs(right).max())))


def check(kind: str, shape: tuple[int, ...] = X, *, weighted: bool = False, **options: Any) -> None:
    x, t = predictions(kind, shape), labels_of(kind, shape)
    weights = weights_of(shape) if weighted else None
    loss, grad = mpscnn.Loss(kind, **options)(x, t, weights)
    right_loss, right_grad = oracle(kind, x, t, weights, **options)
    assert loss.dtype == grad.dtype == np.float32
    assert_near(loss, right_loss)
    assert_near(grad, right_grad)


def reductions_of(kind: str) -> tuple[str, ...]:
    return ("sum",) if kind == "cosine_distance" else REDUCTIONS


EACH = [(kind, reduction) for kind in TYPES for reduction in reductions_of(kind)]

# ------------------------------------------------------------------------------------------------- against PyTorch


def test_all_types_and_reductions_are_tried() -> None:
    assert len(TYPES) == 10
    assert len(EACH) == 9 * 4 + 1


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("kind", "reduction"), EACH)
def test_against_autograd(kind: str, reduction: str, weighted: bool) -> None:
    check(kind, weighted=weighted, reduction=reduction)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("kind", "reduction"), EACH)
def test_across_the_batch(kind: str, reduction: str, weighted: bool) -> None:
    check(kind, weighted=weighted, reduction=reduction, reduce_across_batch=True)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (4, 1, 1, 10), (1, 9, 3, 5), (2, 3, 17, 4), (2, 2, 2, 37)])
@pytest.mark.parametrize("kind", TYPES)
def test_shapes(kind: str, shape: tuple[int, ...]) -> None:
    check(kind, shape)


@pytest.mark.parametrize(("kind", "reduction"), EACH)
def test_one_weight(kind: str, reduction: str) -> None:
    check(kind, reduction=reduction, weight=0.25)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("kind", SMOOTHED)
def test_label_smoothing(kind: str, reduction: str) -> None:
    check(kind, reduction=reduction, label_smoothing=0.2, number_of_classes=7)
    check(kind, weighted=True, reduction=reduction, label_smoothing=1.0, number_of_classes=3)


@pytest.mark.parametrize("kind", sorted(set(TYPES) - {*SMOOTHED}))
def test_label_smoothing_is_not_of_the_others(kind: str) -> None:
    x, t = predictions(kind, X), labels_of(kind, X)
    for found, right in zip(
        mpscnn.Loss(kind, label_smoothing=0.3, number_of_classes=7)(x, t), mpscnn.Loss(kind)(x, t), strict=True
    ):
        np.testing.assert_array_equal(found, right)


def test_delta_and_epsilon() -> None:
    for delta in (0.25, 2.0):
        check("huber", delta=delta)
    for epsilon in (0.0, 0.125):
        check("log", epsilon=epsilon)


@pytest.mark.parametrize("kind", TYPES)
def test_finite_differences(kind: str) -> None:
    """The gradient is the derivative of the same kernel's loss."""
    shape, step = (1, 2, 2, 3), 2.0**-7
    x, t = predictions(kind, shape), labels_of(kind, shape)
    if kind in ("mean_absolute_error", "hinge", "huber"):
        x = x + 4.0 * (-1) ** np.arange(3, dtype=np.float32)  # away from kinks
    if kind in ("categorical_cross_entropy", "log"):
        x = (0.35 + 0.3 * x).astype(np.float32)
    loss = mpscnn.Loss(kind)
    _, grad = loss(x, t)
    for index in np.ndindex(shape):
        there, back = x.copy(), x.copy()
        there[index] += step
        back[index] -= step
        slope = (loss(there, t)[0].item() - loss(back, t)[0].item()) / float(there[index] - back[index])
        assert slope == pytest.approx(grad[index], rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("kind", TYPES)
def test_float16(kind: str) -> None:
    """The result for float16 is that for the same numbers in float32, rounded."""
    x, t = predictions(kind, X, "float16"), labels_of(kind, X)
    loss, grad = mpscnn.Loss(kind)(x, t)
    right_loss, right_grad = oracle(kind, x, t)
    assert loss.dtype == np.float32
    assert grad.dtype == np.float16
    assert_near(loss, right_loss)
    assert_near(grad.astype(np.float32), right_grad, 2.0**-10)


@pytest.mark.parametrize(("kind", "reduction"), EACH)
def test_nan_is_told(kind: str, reduction: str) -> None:
    x, t = predictions(kind, X), labels_of(kind, X)
    x[1, 2, 3, 4] = np.nan
    loss, grad = mpscnn.Loss(kind, reduction=reduction)(x, t)
    assert np.isnan(loss[1]).any()
    assert not np.isnan(loss[[0, 2]]).any()
    is_linear = kind in ("cosine_distance", "kullback_leibler_divergence")  # the gradient does not depend on x
    assert np.isnan(grad[1, 2, 3, 4]) == (not is_linear)
    assert not np.isnan(grad[[0, 2]]).any()


def test_a_batch_of_more_images_than_one_image_holds() -> None:
    """2048 slices of four channels are 8 images of 1000 channels."""
    shape = (20, 1, 1, 1000)
    x = predictions("softmax_cross_entropy", shape)
    numbers = np.arange(20) * 49
    for across in (False, True):
        loss = mpscnn.Loss("softmax_cross_entropy", reduction="mean", reduce_across_batch=across)
        found, grad = loss(x, numbers)
        hot = np.eye(1000)[numbers].reshape(shape)
        right, right_grad = oracle("softmax_cross_entropy", x, hot, reduction="mean", reduce_across_batch=across)
        assert_near(found, right)
        assert_near(grad, right_grad)
    out = np.zeros((20, 2, 1, 1000), np.float32)[:, ::2]
    assert loss(x, numbers, out=out)[1] is out
    np.testing.assert_array_equal(out, grad)


# ------------------------------------------------------------------------------------------------------------ labels


def test_class_numbers() -> None:
    loss = mpscnn.Loss("softmax_cross_entropy", reduction="none")
    x = random((2, 3, 5, 6))
    numbers = np.random.default_rng(0).integers(0, 6, (2, 3, 5))
    hot = np.eye(6, dtype=np.float32)[numbers]
    right = loss(x, hot)
    for dtype in ("int64", "int32", "uint8", "uint32"):
        for found, expected in zip(loss(x, numbers.astype(dtype)), right, strict=True):
            np.testing.assert_array_equal(found, expected)
    weights = weights_of((2, 3, 5))
    repeated = np.repeat(weights[..., None], 6, -1)
    for found, expected in zip(loss(x, numbers, weights), loss(x, hot, repeated), strict=True):
        np.testing.assert_array_equal(found, expected)
    value, _ = mpscnn.Loss("softmax_cross_entropy")(x[:, :1, :1], [5, 0])
    right_value, _ = oracle("softmax_cross_entropy", x[:, :1, :1], np.eye(6)[[5, 0]].reshape(2, 1, 1, 6))
    assert_near(value, right_value)


@pytest.mark.parametrize("channels", [5, 64], ids=["few channels", "many channels"])
def test_cross_entropy_of_values_near_the_max(channels: int) -> None:
    """log(n) for equal values, where x - log(sum(exp(x))) loses it in float32 and in float64."""
    x = np.full((1, 1, 2, channels), 1e38, np.float32)
    loss, grad = mpscnn.Loss("softmax_cross_entropy", reduction="none")(x, np.zeros((1, 1, 2), int))
    assert_near(loss[..., 0], np.full((1, 1, 2), np.log(channels)))
    assert_near(grad[..., 1:], np.full((1, 1, 2, channels - 1), 1 / channels))


def test_against_the_names_of_pytorch() -> None:
    """Class numbers and a mean, as in PyTorch."""
    x = random((8, 1, 1, 10))
    numbers = np.arange(8)
    y = torch.tensor(x.reshape(8, 10).astype("f8"), requires_grad=True)
    right = F.cross_entropy(y, torch.tensor(numbers), label_smoothing=0.1)
    (right_grad,) = torch.autograd.grad(right, y)
    loss = mpscnn.Loss(
        "softmax_cross_entropy",
        reduction="sum",
        weight=1 / 8,
        label_smoothing=0.1,
        number_of_classes=10,
        reduce_across_batch=True,
    )
    value, grad = loss(x, numbers)
    assert value[0].item() == pytest.approx(right.item(), rel=1e-6)
    assert not value[1:].any()
    assert_near(grad.reshape(8, 10), right_grad.numpy())


def test_labels_that_are_written_again() -> None:
    loss = mpscnn.Loss("mean_squared_error")
    x = random(X)
    labels = mpscnn.LossLabels(random(X, seed=1), weights_of(X))
    first = loss(x, labels)[0]
    t, w = random(X, seed=2), weights_of(X)[:, ::-1]
    labels.write(t, w)
    np.testing.assert_array_equal(labels.loss, first)
    value, grad = loss(x, labels)
    right, right_grad = oracle("mean_squared_error", x, t, w)
    assert_near(value, right)
    assert_near(grad, right_grad)
    np.testing.assert_array_equal(labels.loss, value)
    value[...] = 0  # a copy
    assert labels.loss.any()


def test_labels_are_copied() -> None:
    t = random(X)
    labels = mpscnn.LossLabels(t)
    right = mpscnn.Loss("huber")(random(X, seed=1), t.copy())
    t[...] = 0
    for found, expected in zip(mpscnn.Loss("huber")(random(X, seed=1), labels), right, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_labels_in_images() -> None:
    """Kernels may write them on the same command buffer."""
    x, t, w = random(X), random(X, seed=1), weights_of(X)
    labels_image, weights_image = mpscnn.Image(X), mpscnn.Image.from_array(w)
    labels = mpscnn.LossLabels(labels_image, weights_image, loss_shape=X[1:])
    loss = mpscnn.Loss("mean_squared_error", reduction="none")
    with mpscnn.CommandBuffer() as commands:
        mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(t), out=labels_image)
        grad = loss.encode(commands, mpscnn.Image.from_array(x), labels)
    right, right_grad = oracle("mean_squared_error", x, np.maximum(t, 0), w, reduction="none")
    assert_near(labels.loss, right)
    assert_near(grad.numpy(), right_grad)
    half = mpscnn.LossLabels(mpscnn.Image.from_array(t.astype(np.float16)))
    assert_near(mpscnn.Loss("mean_squared_error")(x, half)[0], oracle("mean_squared_error", x, t.astype(np.float16))[0])


def test_many_ways_to_give_an_array() -> None:
    loss = mpscnn.Loss("mean_squared_error")
    x, t = random(X), random(X, seed=1)
    right = loss(x, t)
    for labels in (torch.from_numpy(t), t.astype("f8"), t.tolist(), np.asfortranarray(t)):
        for found, expected in zip(loss(x, labels), right, strict=True):
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(loss(np.asfortranarray(x), t)[1], right[1])


# -------------------------------------------------------------------------------------------------- command buffers


@pytest.mark.parametrize("n", [1, 3])
def test_one_command_buffer_with_temporaries(n: int) -> None:
    """The CPU never reads predictions and their gradient; all temporaries are consumed."""
    shape = (n, *X[1:])
    x, numbers = random(shape), np.random.default_rng(0).integers(0, X[3], shape[:3])
    labels = mpscnn.LossLabels(numbers, number_of_classes=X[3])
    loss, linear = mpscnn.Loss("softmax_cross_entropy"), mpscnn.NeuronLinear(a=2)
    source = mpscnn.Image.from_array(x)
    with mpscnn.CommandBuffer() as commands:
        logits = linear.encode(commands, source, temporary=True)
        grad = loss.encode(commands, logits, labels, temporary=True)
        assert grad.is_temporary
        assert (logits.read_count, grad.read_count) == (0, 1)
        result = linear.encode(commands, grad)
        assert grad.read_count == 0
    right, right_grad = oracle("softmax_cross_entropy", 2 * x, np.eye(X[3])[numbers])
    assert_near(labels.loss, right)
    assert_near(result.numpy(), 2 * right_grad)


def test_images_in_images_out() -> None:
    loss = mpscnn.Loss("huber", reduction="mean")
    x, t = random(X), random(X, seed=1)
    right, right_grad = oracle("huber", x, t, reduction="mean")
    value, grad = loss(mpscnn.Image.from_array(x), mpscnn.LossLabels(t))
    assert isinstance(grad, mpscnn.Image)
    assert_near(value, right)
    assert_near(grad.numpy(), right_grad)
    out = mpscnn.Image(X, "float16")
    value, given = loss(mpscnn.Image.from_array(x), t, out=out)
    assert given is out
    assert_near(value, right)
    assert_near(out.numpy().astype(np.float32), right_grad, 2.0**-10)
    array = np.empty(X, np.float16)
    assert loss(x, t, out=array)[1] is array
    np.testing.assert_array_equal(array, out.numpy())


def test_the_loss_before_it_is_there() -> None:
    loss, labels = mpscnn.Loss("huber"), mpscnn.LossLabels(random(X))
    with pytest.raises(RuntimeError, match="LossLabels: no loss has been encoded to it"):
        labels.loss  # noqa: B018
    commands = mpscnn.CommandBuffer()
    loss.encode(commands, mpscnn.Image.from_array(random(X)), labels)
    with held_queue():
        commands.commit()
        with pytest.raises(RuntimeError, match="LossLabels: the command buffer that writes it has not completed"):
            labels.loss  # noqa: B018
        with pytest.raises(RuntimeError, match=r"LossLabels\.write: the command buffer that writes it has not"):
            labels.write(random(X))
    commands.wait()
    assert not labels.loss.any()
    labels.write(random(X, seed=1))


# ------------------------------------------------------------------------------------------------------- attributes


def test_attributes() -> None:
    loss = mpscnn.Loss("log")
    assert (loss.type, loss.reduction, loss.weight, loss.label_smoothing) == ("log", "sum", 1, 0)
    assert (loss.number_of_classes, loss.epsilon, loss.delta, loss.reduce_across_batch) == (1, 1e-7, 1, False)
    assert loss.device == mpscnn.Device()
    assert repr(loss) == '<mpscnn.Loss "log", reduction "sum">'
    loss = mpscnn.Loss("huber", reduction="none", weight=2, delta=3, epsilon=4, reduce_across_batch=True)
    assert (loss.reduction, loss.weight, loss.delta, loss.epsilon, loss.reduce_across_batch) == ("none", 2, 3, 4, True)
    labels = mpscnn.LossLabels(random(X), weights_of(X), loss_shape=X[1:])
    assert (labels.shape, labels.loss_shape, labels.has_weights) == (X, X[1:], True)
    assert labels.device == mpscnn.Device()
    assert repr(labels) == "<mpscnn.LossLabels (3, 5, 4, 7) with weights>"
    assert not mpscnn.LossLabels([1], number_of_classes=2).has_weights


# ----------------------------------------------------------------------------------------------------------- errors


def image(shape: tuple[int, ...] = X, dtype: str = "float32") -> mpscnn.Image:
    return mpscnn.Image.from_array(random(shape, dtype))


def committed() -> mpscnn.CommandBuffer:
    commands = mpscnn.CommandBuffer()
    commands.commit()
    commands.wait()
    return commands


def mse(**options: Any) -> mpscnn.Loss:
    return mpscnn.Loss("mean_squared_error", **options)


NUMBERS = np.zeros((2, 3, 4), np.int64)
BAD = NUMBERS.copy()
BAD[1, 0, 3] = 12
LABELS = random(X)
ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, 'Loss: type ("l2") is not "mean_absolute_error", "mean_squared_error", ', lambda: mpscnn.Loss("l2")),  # type: ignore[arg-type]
    (
        ValueError,
        'Loss: reduction ("max") is not "none", "sum", "mean" or "sum_by_nonzero_weights".',
        lambda: mse(reduction="max"),
    ),
    (
        ValueError,
        'Loss: reduction ("mean") is not "sum", the only one of type "cosine_distance".',
        lambda: mpscnn.Loss("cosine_distance", reduction="mean"),
    ),
    (ValueError, "Loss: label_smoothing (1.5) is not between 0 and 1.", lambda: mse(label_smoothing=1.5)),
    (
        ValueError,
        "Loss: label_smoothing (nan) is not a finite number of float32.",
        lambda: mse(label_smoothing=float("nan")),
    ),
    (ValueError, "Loss: weight (inf) is not a finite number of float32.", lambda: mse(weight=float("inf"))),
    (ValueError, "Loss: weight (1e+39) is not a finite number of float32.", lambda: mse(weight=1e39)),
    (ValueError, "Loss: number_of_classes (0) is less than the minimum (1).", lambda: mse(number_of_classes=0)),
    (
        ValueError,
        "Loss: number_of_classes (8193) is greater than the maximum (8192).",
        lambda: mse(number_of_classes=8193),
    ),
    (ValueError, "Loss: epsilon (-1) is less than the minimum (0).", lambda: mse(epsilon=-1)),
    (ValueError, "Loss: delta (-0.5) is less than the minimum (0).", lambda: mse(delta=-0.5)),
    (
        ValueError,
        "LossLabels: labels[1, 0, 3] (12) is not less than the number of classes (10).",
        lambda: mpscnn.LossLabels(BAD, number_of_classes=10),
    ),
    (
        ValueError,
        "LossLabels: labels[1] (-1) is less than the minimum (0).",
        lambda: mpscnn.LossLabels([0, -1], number_of_classes=10),
    ),
    (
        ValueError,
        "Loss: labels[1] (4) is not less than the number of classes (4).",
        lambda: mse()(random((2, 1, 1, 4)), [0, 4]),
    ),
    (
        ValueError,
        "LossLabels: number_of_classes (0) is less than the minimum (1).",
        lambda: mpscnn.LossLabels([0], number_of_classes=0),
    ),
    (
        ValueError,
        "LossLabels: number_of_classes (5) is not that of labels (7).",
        lambda: mpscnn.LossLabels(LABELS, number_of_classes=5),
    ),
    (
        ValueError,
        "LossLabels: number_of_classes (5) is not that of labels (7).",
        lambda: mpscnn.LossLabels(image(), number_of_classes=5),
    ),
    (
        ValueError,
        "LossLabels: labels.ndim (2) is not 1 (N) or 3 (N, H, W), as class numbers have.",
        lambda: mpscnn.LossLabels(np.zeros((2, 3), int), number_of_classes=10),
    ),
    (ValueError, "LossLabels: labels.ndim (3) is not 4 (N, H, W, C).", lambda: mpscnn.LossLabels(LABELS[0])),
    (
        TypeError,
        "LossLabels: number_of_classes is missing: labels are class numbers (int64).",
        lambda: mpscnn.LossLabels(NUMBERS),
    ),
    (
        TypeError,
        "LossLabels: labels.dtype (bool) is neither a floating point nor an integer type.",
        lambda: mpscnn.LossLabels([[[[True]]]]),
    ),
    (
        TypeError,
        "LossLabels: weights.dtype (bool) is not a type of numbers.",
        lambda: mpscnn.LossLabels(LABELS, (LABELS > 0).tolist()),
    ),
    (
        ValueError,
        "LossLabels: weights.shape (3, 5, 4, 1) is not labels.shape (3, 5, 4, 7).",
        lambda: mpscnn.LossLabels(LABELS, LABELS[..., :1]),
    ),
    (
        ValueError,
        "LossLabels: weights.shape (2,) is not labels.shape (2, 3, 4).",
        lambda: mpscnn.LossLabels(NUMBERS, [1.0, 2.0], number_of_classes=3),
    ),
    (
        ValueError,
        "LossLabels: weights.shape (3, 5, 4, 3) is not labels.shape (3, 5, 4, 7).",
        lambda: mpscnn.LossLabels(image(), image((3, 5, 4, 3))),
    ),
    (
        TypeError,
        "LossLabels: labels is an Image; weights (ndarray) is not.",
        lambda: mpscnn.LossLabels(image(), LABELS),
    ),
    (
        ValueError,
        "LossLabels: labels is a temporary image, which its readers use up.",
        lambda: mpscnn.LossLabels(mpscnn.Image.temporary(mpscnn.CommandBuffer(), X)),
    ),
    (
        ValueError,
        "LossLabels: loss_shape (5, 4, 1) is neither (1, 1, 1) nor (5, 4, 7), that of labels (H, W, C).",
        lambda: mpscnn.LossLabels(LABELS, loss_shape=(5, 4, 1)),
    ),
    (
        ValueError,
        "LossLabels: len(loss_shape) (2) is not 3 (H, W, C).",
        lambda: mpscnn.LossLabels(LABELS, loss_shape=(1, 1)),
    ),
    (
        ValueError,
        "LossLabels: labels have more channels (8193) than the maximum (8192).",
        lambda: mpscnn.LossLabels([0], number_of_classes=8193),
    ),
    (
        ValueError,
        "LossLabels.write: labels.shape (2, 5, 4, 7) is not that of the object (3, 5, 4, 7).",
        lambda: mpscnn.LossLabels(LABELS).write(LABELS[:2]),
    ),
    (
        ValueError,
        "LossLabels.write: weights were given; the object was made without.",
        lambda: mpscnn.LossLabels(LABELS).write(LABELS, LABELS),
    ),
    (
        ValueError,
        "LossLabels.write: weights (None) are missing; the object has some.",
        lambda: mpscnn.LossLabels(LABELS, LABELS).write(LABELS),
    ),
    (
        ValueError,
        "LossLabels.write: labels is an Image; write to that.",
        lambda: mpscnn.LossLabels(image()).write(LABELS),
    ),
    (
        ValueError,
        "LossLabels.write: labels[0, 0, 0] (7) is not less than the number of classes (7).",
        lambda: mpscnn.LossLabels(LABELS).write(np.full(X[:3], 7)),
    ),
    (
        ValueError,
        "Loss: labels.shape (3, 5, 4, 7) is not x.shape (3, 5, 4, 6).",
        lambda: mse()(random((3, 5, 4, 6)), LABELS),
    ),
    (
        ValueError,
        "Loss: labels.shape (3, 5, 4, 7) is not x.shape (2, 5, 4, 7).",
        lambda: mse().encode(mpscnn.CommandBuffer(), image((2, 5, 4, 7)), mpscnn.LossLabels(LABELS)),
    ),
    (
        ValueError,
        'Loss: labels.loss_shape (1, 1, 1) is not (5, 4, 7), which reduction ("none") needs.',
        lambda: mse(reduction="none")(LABELS, mpscnn.LossLabels(LABELS)),
    ),
    (
        ValueError,
        'Loss: labels.loss_shape (5, 4, 7) is not (1, 1, 1), which reduction ("mean") needs.',
        lambda: mse(reduction="mean")(LABELS, mpscnn.LossLabels(LABELS, loss_shape=X[1:])),
    ),
    (
        ValueError,
        "Loss: weights were given together with LossLabels, which have their own.",
        lambda: mse()(LABELS, mpscnn.LossLabels(LABELS), LABELS),
    ),
    (TypeError, "Loss: labels is an Image; LossLabels(labels) takes it.", lambda: mse()(LABELS, image())),
    (
        TypeError,
        "Loss: labels.dtype (bool) is neither a floating point nor an integer type.",
        lambda: mse()(random((1, 1, 1, 2)), [[[[True, False]]]]),
    ),
    (ValueError, "Loss: x.ndim (3) is not 4 (N, H, W, C).", lambda: mse()(LABELS[0], LABELS)),
    (
        TypeError,
        "Loss: out.dtype (uint8) is not float32 or float16.",
        lambda: mse()(LABELS, LABELS, out=np.empty(X, np.uint8)),
    ),
    (
        TypeError,
        "Loss: out.dtype (uint8) is not float32 or float16.",
        lambda: mse()(image(), LABELS, out=image(X, "uint8")),
    ),
    (
        ValueError,
        "Loss: out.shape (3, 5, 4, 6) is not x.shape (3, 5, 4, 7).",
        lambda: mse()(LABELS, LABELS, out=np.empty((3, 5, 4, 6), np.float32)),
    ),
    (
        ValueError,
        "Loss: out.shape (3, 5, 4, 6) is not x.shape (3, 5, 4, 7).",
        lambda: mse()(image(), LABELS, out=mpscnn.Image((3, 5, 4, 6))),
    ),
    (
        TypeError,
        "Loss: x is an Image; out (ndarray) is not.",
        lambda: mse()(image(), LABELS, out=np.empty(X, np.float32)),  # type: ignore[call-overload]
    ),
    (
        ValueError,
        "Loss: temporary (True) was given together with out.",
        lambda: mse().encode(
            mpscnn.CommandBuffer(), image(), mpscnn.LossLabels(LABELS), mpscnn.Image(X), temporary=True
        ),
    ),
    (
        RuntimeError,
        "Loss: the command buffer has been committed already; its status is completed.",
        lambda: mse().encode(committed(), image(), mpscnn.LossLabels(LABELS)),
    ),
]


@pytest.mark.parametrize(("kind", "sentence", "wrong"), ERRORS, ids=[sentence for _, sentence, _ in ERRORS])
def test_errors(kind: type[Exception], sentence: str, wrong: Callable[[], Any]) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    assert type(caught.value) is kind
    if sentence.endswith("."):
        assert str(caught.value) == sentence
    else:
        assert str(caught.value).startswith(sentence)
