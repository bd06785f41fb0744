# SPDX-License-Identifier: Apache-2.0
"""YOLOLoss against a float64 reference written box by box, and its gradient against finite differences of that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from support import held_queue

ANCHORS = np.float32([[1, 1.5], [3, 2], [2.5, 2.2]])
CLASSES = 4
EACH = 5 + CLASSES
SHAPE = (3, 4, 5, len(ANCHORS) * EACH)
Doubles = NDArray[np.float64]

Term = Callable[[Doubles, Doubles], Doubles]
TERMS: dict[str, Term] = {
    "mean_squared_error": lambda y, t: (y - t) ** 2,
    "mean_absolute_error": lambda y, t: np.abs(y - t),
    "huber": lambda y, t: np.where(np.abs(y - t) <= 1, (y - t) ** 2 / 2, np.abs(y - t) - 0.5),
    "sigmoid_cross_entropy": lambda y, t: np.maximum(y, 0) - y * t + np.log1p(np.exp(-np.abs(y))),
    "softmax_cross_entropy": lambda y, t: -t * (y - y.max() - np.log(np.exp(y - y.max()).sum())),
}


def overlap(one: Doubles, other: Doubles) -> float:
    """Return the intersection over union of boxes x, y, w, h around their centres."""
    corners = [(box[:2] - box[2:] / 2, box[:2] + box[2:] / 2) for box in (one, other)]
    inner = np.minimum(corners[0][1], corners[1][1]) - np.maximum(corners[0][0], corners[1][0])
    both = float(np.prod(np.maximum(inner, 0)))
    return both / (float(np.prod(one[2:]) + np.prod(other[2:])) - both)


def sigmoid(v: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-v))


DEFAULTS: dict[str, Any] = {
    "xy_loss": "mean_squared_error",
    "wh_loss": "huber",
    "confidence_loss": "sigmoid_cross_entropy",
    "classes_loss": "softmax_cross_entropy",
    "rescore": True,
    "scale_xy": 10,
    "scale_wh": 10,
    "scale_no_object": 5,
    "scale_object": 100,
    "scale_class": 2,
    "min_iou_for_object_presence": 0.7,
    "max_iou_for_object_absence": 0.3,
}


class Cell:
    """The anchor boxes of one cell: predictions and labels of shape (A, 5 + classes)."""

    def __init__(self, labels: Doubles, anchors: Doubles, options: dict[str, Any]) -> None:
        self.labels, self.anchors, self.options = labels, anchors, {**DEFAULTS, **options}
        centred = [np.array([0, 0, *size], np.float64) for size in anchors]
        truths = [np.array([0, 0, *label[2:4]], np.float64) for label in labels]
        # Fit of each anchor box with its own label, and of the others with this label.
        fits = np.array([[overlap(box, truth) for box in centred] for truth in truths])
        own = np.diag(fits)
        best = own >= fits.max(1) if len(anchors) > 1 else np.array([True])
        self.object = (labels[:, 4] > 0) & (best | (own > self.options["min_iou_for_object_presence"]))
        self.absent = ~self.object & (own < self.options["max_iou_for_object_absence"])

    def confidences(self, y: Doubles) -> Doubles:
        """Return the labels of the confidences, constants for the gradient."""
        if not self.options["rescore"]:
            return self.object.astype(np.float64)
        boxes = np.concatenate([sigmoid(y[:, :2]), np.exp(y[:, 2:4]) * self.anchors], 1)
        return np.array(
            [
                overlap(box, label[:4]) if there else 0.0
                for box, label, there in zip(boxes, self.labels, self.object, strict=True)
            ]
        )

    def losses(self, y: Doubles, confidences: Doubles, weights: Doubles) -> Doubles:
        o = self.options
        found = np.zeros_like(y)
        for k, (box, label, anchor) in enumerate(zip(y, self.labels, self.anchors, strict=True)):
            if self.object[k]:
                found[k, :2] = o["scale_xy"] * TERMS[o["xy_loss"]](sigmoid(box[:2]), label[:2])
                found[k, 2:4] = o["scale_wh"] * TERMS[o["wh_loss"]](box[2:4], np.log(label[2:4] / anchor + 1e-5))
                if len(box) > 5:
                    found[k, 5:] = o["scale_class"] * TERMS[o["classes_loss"]](box[5:], label[5:])
            scale = o["scale_object"] if self.object[k] else o["scale_no_object"] if self.absent[k] else 0
            found[k, 4] = scale * TERMS[o["confidence_loss"]](box[4:5], confidences[k : k + 1])[0]
        return found * weights


def reference(
    x: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None = None, **options: Any
) -> tuple[Doubles, Doubles]:
    """Return the losses of all values, and the gradient of their sum by finite differences."""
    y, t = x.astype(np.float64), labels.astype(np.float64)
    w = np.ones(y.shape) if weights is None else weights.astype(np.float64)
    losses, gradient = np.zeros(y.shape), np.zeros(y.shape)
    anchors = ANCHORS.astype(np.float64)
    for place in np.ndindex(*x.shape[:3]):
        cell = Cell(t[place].reshape(len(anchors), -1), anchors, options)
        values, factors = y[place].reshape(cell.labels.shape), w[place].reshape(cell.labels.shape)
        confidences = cell.confidences(values)
        losses[place] = cell.losses(values, confidences, factors).ravel()
        for i in range(values.size):
            moved = np.repeat(values.reshape(1, -1), 2, 0)
            moved[:, i] += 1e-5, -1e-5
            up, down = (cell.losses(m.reshape(values.shape), confidences, factors).sum() for m in moved)
            gradient[place][i] = (up - down) / 2e-5
    return losses, gradient


def made(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return predictions, labels and weights: a third of the cells have a box, some of which fit two anchors."""
    rng = np.random.default_rng([seed, *shape])
    n, h, w, _ = shape
    x = rng.normal(size=shape).astype(np.float32)
    labels = np.zeros((n, h, w, len(ANCHORS), EACH), np.float32)
    there = rng.uniform(size=(n, h, w)) < 0.4
    labels[..., :2] = rng.uniform(size=(n, h, w, 1, 2))
    sizes = ANCHORS[rng.integers(0, len(ANCHORS), (n, h, w))] * rng.uniform(0.7, 1.4, (n, h, w, 2))
    labels[..., 2:4] = sizes[..., None, :]
    labels[..., 4] = 1
    labels[..., 5:] = np.eye(CLASSES)[rng.integers(0, CLASSES, (n, h, w))][..., None, :]
    labels[~there] = 0
    labels[~there, :, 5:] = 1 / CLASSES
    weights = (rng.uniform(0.5, 2, shape) * (rng.uniform(size=shape) > 0.2)).astype(np.float32)
    return x, labels.reshape(shape), weights


def near(found: NDArray[Any], right: NDArray[Any], relative: float = 5e-6) -> None:
    assert found.shape == right.shape
    np.testing.assert_allclose(found, right, rtol=0, atol=relative * float(np.abs(right).max()))


def test_the_cases_have_all_kinds_of_boxes() -> None:
    _, labels, _ = made()
    cells = [Cell(cell.reshape(3, -1).astype("f8"), ANCHORS.astype("f8"), {}) for cell in labels.reshape(-1, 3 * EACH)]
    kinds = [(c.object[k], c.absent[k]) for c in cells for k in range(3)]
    assert kinds.count((True, False)) > 10
    assert kinds.count((False, True)) > 10
    assert kinds.count((False, False)) > 3  # neither: an anchor that fits, but is not the best
    assert sum(c.object.sum() > 1 for c in cells) > 2  # two anchors for one box


OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "not rescored": {"rescore": False},
    "scales": {
        "scale_xy": 1.5,
        "scale_wh": 0.25,
        "scale_no_object": 0.75,
        "scale_object": 3,
        "scale_class": 4,
    },
    "limits": {"min_iou_for_object_presence": 0.4, "max_iou_for_object_absence": 0.6},
    "other terms": {
        "xy_loss": "mean_absolute_error",
        "wh_loss": "mean_squared_error",
        "confidence_loss": "mean_squared_error",
        "classes_loss": "sigmoid_cross_entropy",
    },
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", OPTIONS)
def test_against_the_reference(name: str, weighted: bool) -> None:
    x, labels, weights = made()
    factors = weights if weighted else None
    losses, gradient = reference(x, labels, factors, **OPTIONS[name])
    loss, found = mpscnn.YOLOLoss(ANCHORS, **OPTIONS[name])(x, labels, factors)
    near(loss, losses.sum((1, 2, 3), keepdims=True))
    near(found, gradient, 2e-5)
    assert found.dtype == loss.dtype == np.float32


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "sum_by_nonzero_weights"])
def test_reductions(reduction: str, across: bool) -> None:
    x, labels, weights = made()
    losses, gradient = reference(x, labels, weights)
    kernel = mpscnn.YOLOLoss(ANCHORS, reduction=reduction, reduce_across_batch=across)  # type: ignore[arg-type]
    loss, found = kernel(x, labels, weights)
    near(found, gradient, 2e-5)  # of the sum, for any reduction
    if reduction == "none":
        return near(loss, losses)
    sums = losses.sum((1, 2, 3))
    counts = np.full(len(x), float(x[0].size) if reduction == "mean" else 1)
    if reduction == "sum_by_nonzero_weights":
        counts = (weights != 0).sum((1, 2, 3)).astype(np.float64)
    right = sums / counts
    if across:
        right = np.array([sums.sum() / (counts.sum() if reduction != "sum" else 1), 0, 0])
    return near(loss, right.reshape(-1, 1, 1, 1))


def test_terms_with_options_of_their_own() -> None:
    """All options of each Loss but the reduction apply; the scale multiplies its weight."""
    x, labels, _ = made()
    plain, grad = mpscnn.YOLOLoss(ANCHORS, reduction="none", scale_xy=5)(x, labels)
    kernel = mpscnn.YOLOLoss(
        ANCHORS, reduction="none", xy_loss=mpscnn.Loss("mean_squared_error", weight=0.5, reduction="mean")
    )
    loss, found = kernel(x, labels)
    np.testing.assert_allclose(loss, plain, rtol=1e-6)
    np.testing.assert_allclose(found, grad, rtol=1e-6)
    steep = mpscnn.YOLOLoss(ANCHORS, reduction="none", wh_loss=mpscnn.Loss("huber", delta=1e6))(x, labels)[0]
    square = mpscnn.YOLOLoss(ANCHORS, reduction="none", wh_loss="mean_squared_error", scale_wh=5)(x, labels)[0]
    np.testing.assert_allclose(steep, square, rtol=1e-6)
    assert (kernel.xy_loss.weight, kernel.xy_loss.reduction, kernel.wh_loss.type) == (0.5, "mean", "huber")


def test_boxes_without_classes() -> None:
    x, labels, _ = made()
    few, of_few = (a.reshape(*SHAPE[:3], 3, EACH)[..., :5].reshape(*SHAPE[:3], 15) for a in (x, labels))
    losses, gradient = reference(few, of_few)
    loss, found = mpscnn.YOLOLoss(ANCHORS)(few, of_few)
    near(loss, losses.sum((1, 2, 3), keepdims=True))
    near(found, gradient, 2e-5)


def test_half_precision() -> None:
    x, labels, _ = made()
    x = x.astype(np.float16)
    losses, gradient = reference(x, labels, scale_object=1, scale_no_object=1)
    loss, found = mpscnn.YOLOLoss(ANCHORS, scale_object=1, scale_no_object=1)(x, labels)
    assert found.dtype == np.float16
    near(loss, losses.sum((1, 2, 3), keepdims=True))
    near(found.astype(np.float64), gradient, 1e-3)


def test_more_images_than_an_image_holds() -> None:
    """512 channels and 20 images: the batch needs two Images."""
    anchors = np.float32([[1, 1]] * 32)
    x, labels = (np.random.default_rng(seed).uniform(0.1, 1, (20, 1, 1, 512)).astype("f4") for seed in (1, 2))
    kernel = mpscnn.YOLOLoss(anchors)
    loss, grad = kernel(x, labels)
    parts = [kernel(x[part], labels[part]) for part in (slice(0, 16), slice(16, 20))]
    np.testing.assert_array_equal(loss, np.concatenate([part[0] for part in parts]))
    np.testing.assert_array_equal(grad, np.concatenate([part[1] for part in parts]))


@pytest.mark.parametrize("temporary", [False, True])
def test_on_a_command_buffer(temporary: bool) -> None:
    x, labels, weights = made()
    kernel = mpscnn.YOLOLoss(ANCHORS)
    wanted, gradient = kernel(x, labels, weights)
    compared = mpscnn.LossLabels(labels, weights)
    with mpscnn.CommandBuffer() as commands:
        found = kernel.encode(commands, mpscnn.Image.from_array(x), compared, temporary=temporary)
        twice = mpscnn.NeuronLinear(2, 0).encode(commands, found)
        with pytest.raises(RuntimeError, match="LossLabels: the command buffer that writes it has not completed"):
            compared.loss  # noqa: B018
    np.testing.assert_array_equal(compared.loss, wanted)
    np.testing.assert_array_equal(twice.numpy(), 2 * gradient)


def test_images_and_destinations() -> None:
    x, labels, _ = made()
    kernel = mpscnn.YOLOLoss(ANCHORS)
    wanted, gradient = kernel(x, labels)
    out = np.full(SHAPE, np.nan, np.float32)
    loss, result = kernel(x, labels, out=out)
    assert result is out
    np.testing.assert_array_equal(out, gradient)
    loss, image = kernel(mpscnn.Image.from_array(x), labels)
    np.testing.assert_array_equal(loss, wanted)
    np.testing.assert_array_equal(image.numpy(), gradient)
    compared = mpscnn.LossLabels(mpscnn.Image.from_array(labels))
    loss, image = kernel(mpscnn.Image.from_array(x), compared, out=mpscnn.Image(SHAPE, "float16"))
    np.testing.assert_array_equal(loss, wanted)
    np.testing.assert_array_equal(image.numpy(), gradient.astype(np.float16))


def test_attributes() -> None:
    kernel = mpscnn.YOLOLoss([(1, 2), (3, 4)], rescore=False, scale_object=1, reduction="mean")
    assert kernel.anchor_boxes.tolist() == [[1, 2], [3, 4]]
    assert kernel.anchor_boxes.dtype == np.float32
    assert (kernel.number_of_anchor_boxes, kernel.rescore, kernel.reduce_across_batch) == (2, False, False)
    assert (kernel.scale_xy, kernel.scale_wh, kernel.scale_no_object) == (10, 10, 5)
    assert (kernel.scale_object, kernel.scale_class, kernel.reduction) == (1, 2, "mean")
    assert (kernel.min_iou_for_object_presence, kernel.max_iou_for_object_absence) == (0.7, 0.3)
    assert kernel.confidence_loss.type == "sigmoid_cross_entropy"
    assert kernel.classes_loss.type == "softmax_cross_entropy"
    assert repr(kernel) == '<mpscnn.YOLOLoss of 2 anchor boxes, reduction "mean">'
    assert kernel.device == mpscnn.Device()


def test_it_learns() -> None:
    """Gradient descent finds a box."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 1, 1, 2 * 7)).astype(np.float32)
    labels = np.tile(np.float32([0.3, 0.6, 2.8, 2.3, 1, 0, 1]), 2).reshape(x.shape)
    kernel = mpscnn.YOLOLoss([(1, 1), (3, 2)], scale_object=5)
    for _ in range(400):
        _, grad = kernel(x, labels)
        x -= 0.05 * grad
    box = x[0, 0, 0, 7:]
    np.testing.assert_allclose(1 / (1 + np.exp(-box[:2])), [0.3, 0.6], atol=0.01)
    np.testing.assert_allclose(np.exp(box[2:4]) * (3, 2), [2.8, 2.3], atol=0.01)
    assert box[4] > 2 > -2 > x[0, 0, 0, 4]
    assert box[6] - box[5] > 3


# --------------------------------------------------------------------------------------------------------- errors

BOX = (1, 2, 3, 14)

ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (
        ValueError,
        r"YOLOLoss: anchor_boxes\.shape \(3,\) is not \(number of boxes, 2\), width and height of each",
        lambda: mpscnn.YOLOLoss([1, 2, 3]),
    ),
    (ValueError, r"anchor_boxes\.shape \(2, 3\) is not", lambda: mpscnn.YOLOLoss(np.ones((2, 3), np.float32))),
    (
        ValueError,
        r"len\(anchor_boxes\) \(0\) is less than the minimum \(1\)",
        lambda: mpscnn.YOLOLoss(np.ones((0, 2), np.float32)),
    ),
    (
        ValueError,
        r"len\(anchor_boxes\) \(1025\) is greater than the maximum \(1024\)",
        lambda: mpscnn.YOLOLoss(np.ones((1025, 2))),
    ),
    (
        ValueError,
        r"anchor_boxes\[1, 0\] \(0\) is not a finite number greater than 0",
        lambda: mpscnn.YOLOLoss([(1, 1), (0, 1)]),
    ),
    (ValueError, r"anchor_boxes\[0, 1\] \(-?nan\) is not", lambda: mpscnn.YOLOLoss([(1, math.nan)])),
    (ValueError, r"anchor_boxes\[0, 1\] \(inf\) is not", lambda: mpscnn.YOLOLoss([(1, 1e300)])),
    (TypeError, r"anchor_boxes \(int\) is not an array", lambda: mpscnn.YOLOLoss(3)),  # type: ignore[arg-type]
    (
        TypeError,
        r"anchor_boxes \(list\) is not an array of numbers",
        lambda: mpscnn.YOLOLoss([("a", "b")]),
    ),
    (
        TypeError,
        r"YOLOLoss: wh_loss \(int\) is not a Loss or its type, a str",
        lambda: mpscnn.YOLOLoss([(1, 1)], wh_loss=3),  # type: ignore[arg-type]
    ),
    (
        ValueError,
        r'YOLOLoss: xy_loss: Loss: type \("square"\) is not "mean_absolute_error", ',
        lambda: mpscnn.YOLOLoss([(1, 1)], xy_loss="square"),  # type: ignore[arg-type]
    ),
    *[
        (
            ValueError,
            rf'YOLOLoss: {name} has type "cosine_distance", which is a loss of whole images',
            lambda name=name, given=given: mpscnn.YOLOLoss([(1, 1)], **{name: given()}),  # type: ignore[misc]
        )
        for name in ("xy_loss", "wh_loss", "confidence_loss", "classes_loss")
        for given in (lambda: "cosine_distance", lambda: mpscnn.Loss("cosine_distance"))
    ],
    *[
        (
            ValueError,
            rf"YOLOLoss: {name} \(inf\) is not a finite number of float32",
            lambda name=name: mpscnn.YOLOLoss([(1, 1)], **{name: math.inf}),  # type: ignore[misc]
        )
        for name in ("scale_xy", "scale_wh", "scale_no_object", "scale_object", "scale_class")
    ],
    *[
        (
            ValueError,
            rf"YOLOLoss: {name} \(1\.5\) is not between 0 and 1",
            lambda name=name: mpscnn.YOLOLoss([(1, 1)], **{name: 1.5}),  # type: ignore[misc]
        )
        for name in ("min_iou_for_object_presence", "max_iou_for_object_absence")
    ],
    (
        ValueError,
        r'reduction \("total"\) is not "none", ',
        lambda: mpscnn.YOLOLoss([(1, 1)], reduction="total"),  # type: ignore[arg-type]
    ),
    *[
        (
            ValueError,
            rf"YOLOLoss: x has {channels} channels, which are not 5 or more for each of 2 anchor boxes",
            lambda channels=channels: mpscnn.YOLOLoss([(1, 1)] * 2)(  # type: ignore[misc]
                np.zeros((1, 1, 1, channels), np.float32), np.zeros((1, 1, 1, channels), np.float32)
            ),
        )
        for channels in (8, 13)
    ],
    (
        ValueError,
        r"YOLOLoss: labels\.shape \(1, 2, 3, 12\) is not x\.shape \(1, 2, 3, 14\)",
        lambda: mpscnn.YOLOLoss([(1, 1)] * 2)(np.zeros(BOX, np.float32), np.zeros((1, 2, 3, 12), np.float32)),
    ),
    (
        TypeError,
        r"YOLOLoss: labels\.dtype \(int64\) is not a floating point type",
        lambda: mpscnn.YOLOLoss([(1, 1)] * 2)(np.zeros(BOX, np.float32), np.zeros(BOX, np.int64)),
    ),
    (
        ValueError,
        r'YOLOLoss: labels\.loss_shape \(1, 1, 1\) is not \(2, 3, 14\), which reduction \("none"\) needs',
        lambda: mpscnn.YOLOLoss([(1, 1)] * 2, reduction="none")(
            np.zeros(BOX, np.float32), mpscnn.LossLabels(np.zeros(BOX, np.float32))
        ),
    ),
    (
        ValueError,
        r"YOLOLoss: weights were given together with LossLabels",
        lambda: mpscnn.YOLOLoss([(1, 1)] * 2)(
            np.zeros(BOX, np.float32), mpscnn.LossLabels(np.zeros(BOX, np.float32)), np.ones(BOX, np.float32)
        ),
    ),
    (
        TypeError,
        r"YOLOLoss: out\.dtype \(uint8\) is not float32 or float16",
        lambda: mpscnn.YOLOLoss([(1, 1)] * 2)(
            np.zeros(BOX, np.float32), np.zeros(BOX, np.float32), out=np.zeros(BOX, np.uint8)
        ),
    ),
]


@pytest.mark.parametrize(("kind", "message", "call"), ERRORS, ids=[row[1][:60] for row in ERRORS])
def test_errors(kind: type[Exception], message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_errors_of_encodes() -> None:
    kernel = mpscnn.YOLOLoss([(1, 1)] * 2)
    image, labels = mpscnn.Image(BOX), mpscnn.LossLabels(np.zeros(BOX, np.float32))
    with mpscnn.CommandBuffer() as commands:
        with pytest.raises(ValueError, match=r"YOLOLoss: temporary \(True\) was given together with out"):
            kernel.encode(commands, image, labels, image, True)
        with pytest.raises(ValueError, match=r"YOLOLoss: x has 13 channels"):
            kernel.encode(commands, mpscnn.Image((1, 2, 3, 13)), labels)
        with pytest.raises(ValueError, match=r"YOLOLoss: out\.shape \(1, 2, 3, 15\) is not x\.shape"):
            kernel.encode(commands, image, labels, mpscnn.Image((1, 2, 3, 15)))
    with pytest.raises(RuntimeError, match="YOLOLoss: the command buffer has been committed already"):
        kernel.encode(commands, image, labels)
    with held_queue():
        running = mpscnn.CommandBuffer()
        kernel.encode(running, mpscnn.Image.from_array(np.zeros(BOX, np.float32)), labels)
        running.commit()
        with pytest.raises(RuntimeError, match="has not completed"):
            labels.write(np.ones(BOX, np.float32))
    running.wait()
