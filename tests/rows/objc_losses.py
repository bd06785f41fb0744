# SPDX-License-Identifier: Apache-2.0
"""Rows of losses for tests/objc/rows_test.mm, from the formulas of MPSCNNLoss.h in float64.

class, init, arguments     how the kernel is made; `loss` is the descriptor: loss_type, reduction, loss.<property>
call, call_arguments       the selector and its arguments, kind:names of arrays and images
after.<object>             values of an object afterwards, within `tolerance`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .finite_differences import gradients
from .objc_places import UNTOUCHED
from .row_file import Row

Array = NDArray[np.float64]

TYPES = ["mean_absolute_error", "mean_squared_error", "softmax_cross_entropy", "sigmoid_cross_entropy"]
TYPES += ["categorical_cross_entropy", "hinge", "huber", "cosine_distance", "log", "kullback_leibler_divergence"]
NONE, SUM, MEAN, SUM_BY_NONZERO_WEIGHTS = range(4)
SHAPE = (3, 2, 3, 5)
NUMBERS = {"weight": 0.5, "labelSmoothing": 0.25, "numberOfClasses": 5, "epsilon": 0.0078125, "delta": 0.75}


def elements(kind: str, y: Array, t: Array, w: Array) -> Array:
    """Return the weighted loss of each value."""
    smoothing, delta, epsilon = NUMBERS["labelSmoothing"], NUMBERS["delta"], NUMBERS["epsilon"]
    far = np.abs(y - t)
    if kind == "mean_absolute_error":
        return w * far
    if kind == "mean_squared_error":
        return w * far**2
    if kind == "softmax_cross_entropy":
        smooth = t * (1 - smoothing) + smoothing / NUMBERS["numberOfClasses"]
        return -w * smooth * (y - np.log(np.exp(y).sum(-1, keepdims=True)))
    if kind == "sigmoid_cross_entropy":
        smooth = t * (1 - smoothing) + smoothing / 2
        return w * (smooth * np.log1p(np.exp(-y)) + (1 - smooth) * np.log1p(np.exp(y)))
    if kind == "categorical_cross_entropy":
        return -w * t * np.log(y)
    if kind == "hinge":
        return w * np.maximum(1 - (2 * t - 1) * y, 0)
    if kind == "huber":
        return w * np.where(far <= delta, far**2 / 2, delta * far - delta**2 / 2)
    if kind == "cosine_distance":
        return -w * y * t
    if kind == "log":
        return w * (-t * np.log(y + epsilon) - (1 - t) * np.log(1 - y + epsilon))
    return w * t * (np.log(t) - y)


def sources(kind: str, weighted: bool) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng([TYPES.index(kind), weighted])
    low, high = (0.06, 0.93) if kind in ("categorical_cross_entropy", "log") else (-2.0, 2.0)
    arrays = {
        "x": rng.uniform(low, high, SHAPE).astype(np.float32),
        "labels": rng.uniform(0.1, 0.9, SHAPE).astype(np.float32),
        "up": rng.normal(size=SHAPE).astype(np.float32),
    }
    if weighted:
        weights = rng.uniform(0.5, 2, SHAPE).astype(np.float32)
        weights[0, 0, 1, 2] = weights[1, 1, 0, 0] = weights[1, 1, 0, 1] = 0
        weights[2] = 0
        arrays["weights"] = weights
    return arrays


def reduced(kind: str, losses: Array, w: Array, constant: float, reduction: int, across: bool) -> Array:
    """Return one loss for each image; across the batch, the first image has the loss of all."""
    if reduction == NONE:
        return losses
    sums = losses.reshape(len(losses), -1).sum(1) + constant
    each = losses[0, ..., 0].size if kind == "softmax_cross_entropy" else losses[0].size
    divisors = np.full(len(losses), each if reduction == MEAN else 1.0)
    if reduction == SUM_BY_NONZERO_WEIGHTS:
        divisors = (w != 0).reshape(len(w), -1).sum(1).astype(np.float64)
    if across:
        divisor = 1.0 if reduction == SUM else divisors.sum()
        sums, divisors = np.array([sums.sum(), *np.zeros(len(sums) - 1)]), np.full(len(sums), divisor)
    return sums / np.where(divisors > 0, divisors, 1.0)  # all weights are 0


def _settings(class_name: str, kind: str, reduction: int) -> dict[str, Any]:
    return {
        "class": class_name,
        "init": "initWithDevice:lossDescriptor:",
        "arguments": "device loss",
        "loss_type": TYPES.index(kind),
        "reduction": reduction,
        "tolerance": 1e-5,
        "extents": " ".join(map(str, SHAPE)),
        **{f"loss.{name}": value for name, value in NUMBERS.items()},
    }


def _one_kernel(kind: str, weighted: bool, reduction: int, across: bool) -> Iterator[Row]:
    """MPSCNNLoss: labels are one object per image, the result is the gradient."""
    arrays = sources(kind, weighted)
    y, t = (arrays[name].astype(np.float64) for name in ("x", "labels"))
    w = arrays["weights"].astype(np.float64) if weighted else np.full(SHAPE, NUMBERS["weight"])
    constant = 0.0 if kind != "cosine_distance" else 1.0 if weighted else NUMBERS["weight"]
    gradient = gradients(lambda *given: elements(kind, *given), [y, t, w], np.ones(SHAPE), by_image=True)[0]
    for batch in (False, True):
        count = 3 if batch else 1
        loss = reduced(kind, elements(kind, y, t, w)[:count], w[:count], constant, reduction, across)
        for given in (False, True):
            words = ["commands", "batch:x" if batch else "image:x", "label_batch:0,1,2" if batch else "labels:0"]
            words += [("empties:" if batch else "empty:") + "extents"] if given else []
            one = {name: values[:count] for name, values in arrays.items()}
            call = "encodeBatchToCommandBuffer:sourceImages:" if batch else "encodeToCommandBuffer:sourceImage:"
            call += "labels:" + (("destinationImages:" if batch else "destinationImage:") if given else "")
            settings = _settings("MPSCNNLoss", kind, reduction) | {"all_losses": reduction == NONE}
            settings |= {"loss.reduceAcrossBatch": across, "call": call, "call_arguments": " ".join(words)}
            settings["extents"] = " ".join(map(str, (count, *SHAPE[1:])))
            name = f"{kind}, reduction {reduction}{', weights' * weighted}{', across' * across}{', batch' * batch}"
            after = {f"after.{words[3] if given else 'returned'}": gradient[:count], f"after.{words[2]}": loss}
            yield Row(name + ", given" * given, settings, one | after)


def _two_kernels(kind: str, weighted: bool, reduction: int) -> Iterator[Row]:
    """MPSNNForwardLoss and MPSNNLossGradient: labels and weights are images."""
    arrays = sources(kind, weighted)
    y, t, up = (arrays[name].astype(np.float64) for name in ("x", "labels", "up"))
    w = arrays["weights"].astype(np.float64) if weighted else np.full(SHAPE, NUMBERS["weight"])
    constant = 0.0 if kind != "cosine_distance" else 1.0 if weighted else NUMBERS["weight"]
    images = f"batch:x batch:labels {'batch:weights' if weighted else 'none'}"
    loss = reduced(kind, elements(kind, y, t, w), w, constant, reduction, across=False)
    forms = {
        "destinationStates:destinationStateIsTemporary:": "none 0",
        "destinationStates:destinationImages:": "none empties:result",
    }
    for call, words in forms.items():
        settings = _settings("MPSNNForwardLoss", kind, reduction)
        settings["call"] = "encodeBatchToCommandBuffer:sourceImages:labels:weights:" + call
        settings |= {"call_arguments": f"commands {images} {words}"}
        settings["result"] = " ".join(map(str, SHAPE if reduction == NONE else (3, 1, 1, 1)))
        after = {f"after.{'empties:result' if 'empties' in words else 'returned'}": loss}
        yield Row(f"forward {kind}, reduction {reduction}, {call}", settings, arrays | after)
    if reduction == MEAN:
        yield from _of_one_value(arrays, images, kind, lambda *given: elements(kind, *given), [y, t, w])
    if reduction != NONE and kind != "cosine_distance":
        return
    derivatives = gradients(lambda *given: elements(kind, *given), [y, t, w], up, by_image=True)
    for of_labels in (False, True):
        for given in (False, True):
            settings = _settings("MPSNNLossGradient", kind, reduction)
            settings["call"] = "encodeBatchToCommandBuffer:sourceGradients:sourceImages:labels:weights:sourceStates:"
            settings["call"] += "destinationGradients:" * given
            settings |= {"call_arguments": f"commands batch:up {images} none" + " empties:extents" * given}
            settings["property.computeLabelGradients"] = of_labels
            after = {f"after.{'empties:extents' if given else 'returned'}": derivatives[int(of_labels)]}
            yield Row(f"gradient of {kind}{', labels' * of_labels}{', given' * given}", settings, arrays | after)


def _of_one_value(
    arrays: dict[str, Any], images: str, kind: str, loss: Callable[..., Array], given: list[Array]
) -> Iterator[Row]:
    """The incoming gradient of a reduced loss applies to all values of its image."""
    up = arrays["up"][:, :1, :1, :1]
    derivative = gradients(loss, given, np.broadcast_to(up.astype(np.float64), SHAPE), by_image=True)[0]
    for across in (False, True):
        settings = _settings("MPSNNLossGradient", kind, MEAN) | {"loss.reduceAcrossBatch": across}
        settings["call"] = "encodeBatchToCommandBuffer:sourceGradients:sourceImages:labels:weights:sourceStates:"
        settings["call_arguments"] = f"commands batch:up {images} none"
        name = "one value for each image"
        yield Row(f"{name}, {kind}{', across' * across}", settings, arrays | {"up": up, "after.returned": derivative})


def _places() -> Iterator[Row]:
    """Squared errors of a part of an image, in half precision, and of labels that hold several images."""
    rng = np.random.default_rng(0)
    y, t = (rng.integers(-64, 64, (2, 5, 6, 12)).astype(np.float32) / 64 for _ in range(2))
    base = _settings("MPSCNNLoss", "mean_squared_error", SUM) | {"loss.weight": 1}
    difference = y.astype(np.float64) - t
    part, losses = np.full((1, 5, 6, 12), UNTOUCHED), np.zeros((1, 5, 6, 4))
    seen = y[:1, 1:5, 2:5, 4:8].astype(np.float64) - t[:1, 1:5, 2:5, :4]
    part[:, :4, 1:4, 8:], losses[:, :4, 1:4] = 2 * seen, seen**2
    call = "encodeToCommandBuffer:sourceImage:labels:"
    settings = base | {"reduction": NONE, "all_losses": True, "extents": "1 5 6 12"}
    settings |= {"call": call + "destinationImage:", "call_arguments": "commands image:x labels:0 empty:extents"}
    settings |= {"property.sourceFeatureChannelOffset": 4, "property.sourceFeatureChannelMaxCount": 4}
    settings |= {"property.destinationFeatureChannelOffset": 8}
    settings |= {"property.offset": "2,1,0", "property.clipRect": "1,0,0,3,4,1"}
    arrays = {"x": y[:1], "labels": t[:1, ..., :4], "after.empty:extents": part, "after.labels:0": losses}
    yield Row("a part of an image", settings, arrays)
    settings = base | {"call": call, "call_arguments": "commands image:x labels:0"}
    arrays = {"x": y[:1].astype(np.float16), "labels": t[:1], "after.returned": 2 * difference[:1]}
    yield Row("the gradient has the source's format", settings | {"tolerance": 1e-3}, arrays)
    settings = base | {"call": call, "call_arguments": "commands image:x several"}
    settings |= {"several.class": "MPSCNNLossLabels", "several.arguments": "device 1,1,1 image:labels image:weights"}
    settings["several.init"] = "initWithDevice:lossImageSize:labelsImage:weightsImage:"
    weights = rng.uniform(-1, 1, t.shape).astype(np.float32)
    arrays = {"x": y, "labels": t, "weights": weights, "after.returned": 2 * weights * difference}
    arrays["after.several"] = (weights * difference**2).sum((1, 2, 3))
    yield Row("labels of several images", settings, arrays)


def rows() -> list[Row]:
    found: list[Row] = []
    for kind in TYPES:
        for weighted in (False, True):
            for reduction in (SUM,) if kind == "cosine_distance" else (NONE, SUM, MEAN, SUM_BY_NONZERO_WEIGHTS):
                found += _one_kernel(kind, weighted, reduction, across=False)
                found += _two_kernels(kind, weighted, reduction)
                if reduction not in (NONE,):
                    found += _one_kernel(kind, weighted, reduction, across=True)
    return [*found, *_places()]
