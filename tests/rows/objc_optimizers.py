# SPDX-License-Identifier: Apache-2.0
"""Rows of optimizers for tests/objc/rows_test.mm: three steps of every class in every encode form, from its formula in
float64. Settings as in objc_losses.py; `times` counts the steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .row_file import Row

Array = NDArray[np.float64]
STEPS = 3
START_TIME = 2


@dataclass(frozen=True)
class Kind:
    """An optimizer, its arrays besides the values, and their names in its selectors."""

    name: str
    init: str
    arguments: str
    kept: tuple[str, ...]

    @property
    def class_name(self) -> str:
        family = {"sgd": "StochasticGradientDescent", "rmsprop": "RMSProp", "adam": "Adam"}
        return "MPSNNOptimizer" + family[self.name.split()[0]]


SGD = "initWithDevice:momentumScale:useNesterovMomentum:optimizerDescriptor:"
ADAM = "initWithDevice:beta1:beta2:epsilon:timeStep:optimizerDescriptor:"
ADAM_ARGUMENTS = f"device 0.8 0.95 0.001 {START_TIME} optimizer"
KINDS = [
    Kind("sgd", SGD, "device 0.5 0 optimizer", ()),
    Kind("sgd momentum", SGD, "device 0.5 0 optimizer", ("inputMomentum",)),
    Kind("sgd nesterov", SGD, "device 0.5 1 optimizer", ("inputMomentum",)),
    Kind("rmsprop", "initWithDevice:decay:epsilon:optimizerDescriptor:", "device 0.7 0.01 optimizer",
         ("inputSumOfSquares",)),
    Kind("adam", ADAM, ADAM_ARGUMENTS, ("inputMomentum", "inputVelocity")),
    Kind("adam amsgrad", ADAM, ADAM_ARGUMENTS, ("inputMomentum", "inputVelocity", "maximumVelocity")),
]  # fmt: skip
CHANGES: dict[str, dict[str, float]] = {
    "plain": {},
    "clipped, rescaled, l2": {"low": -0.25, "high": 0.5, "rescale": 2, "l2": 0.25},
    "l1": {"l1": 0.125},
}
RATE = 0.125


def step(kind: Kind, change: dict[str, float], time: int, g: Array, v: Array, kept: list[Array]) -> Array:
    """Return the values after one step; update `kept` in place."""
    d = g.clip(change.get("low"), change.get("high")) * change.get("rescale", 1.0)
    d = d + change.get("l1", 0.0) * np.sign(v) + change.get("l2", 0.0) * v
    if kind.name == "sgd":
        return v - RATE * d
    if kind.name == "sgd momentum":
        kept[0][:] = 0.5 * kept[0] + RATE * d
        return v - kept[0]
    if kind.name == "sgd nesterov":
        kept[0][:] = 0.5 * kept[0] + d
        return v - RATE * (d + 0.5 * kept[0])
    if kind.name == "rmsprop":
        kept[0][:] = 0.7 * kept[0] + 0.3 * d**2
        return v - RATE * d / (np.sqrt(kept[0]) + 0.01)
    kept[0][:] = 0.8 * kept[0] + 0.2 * d
    kept[1][:] = 0.95 * kept[1] + 0.05 * d**2
    if len(kept) == 3:
        kept[2][:] = np.maximum(kept[2], kept[1])
    rate = RATE * np.sqrt(1 - 0.95**time) / (1 - 0.8**time)
    return v - rate * kept[0] / (np.sqrt(kept[-1] if len(kept) == 3 else kept[1]) + 1e-3)


class Values:
    """A trained array, with its values after all steps."""

    def __init__(
        self, kind: Kind, change: dict[str, float], name: str, shape: tuple[int, ...], steps: int = STEPS
    ) -> None:
        rng = np.random.default_rng([len(name), *shape])
        self.arrays = {f"{part}_{name}": rng.normal(size=shape).astype(np.float32) for part in ("gradient", "values")}
        self.arrays[f"values_{name}"].flat[0] = 0  # the sign of 0 is 0
        for part in kind.kept:  # squares and their maxima are not negative
            start = rng.normal(size=shape).astype(np.float32)
            self.arrays[f"{part}_{name}"] = start if part == "inputMomentum" else np.abs(start)
        kept = [self.arrays[f"{part}_{name}"].astype(np.float64) for part in kind.kept]
        gradient, values = (self.arrays[f"{part}_{name}"].astype(np.float64) for part in ("gradient", "values"))
        for time in range(START_TIME + 1, START_TIME + 1 + steps):
            values = step(kind, change, time, gradient, values, kept)
        self.values = values
        self.kept = dict(zip(kind.kept, kept, strict=True))


def _settings(kind: Kind, change: dict[str, float]) -> dict[str, Any]:
    clips = "low" in change
    regularization = 1 if "l1" in change else 2 if "l2" in change else 0
    numbers = [RATE, change.get("rescale", 1), int(clips), change.get("high", 0), change.get("low", 0), regularization]
    return {
        "class": kind.class_name,
        "init": kind.init,
        "arguments": kind.arguments,
        "times": STEPS,
        "tolerance": 2e-6,
        "optimizer.class": "MPSNNOptimizerDescriptor",
        "optimizer.init": "initWithLearningRate:gradientRescale:applyGradientClipping:gradientClipMax:"
        "gradientClipMin:regularizationType:regularizationScale:",
        "optimizer.arguments": " ".join(map(str, [*numbers, change.get("l1", change.get("l2", 0))])),
    }


def _alone(kind: Kind, change: dict[str, float]) -> Iterator[tuple[dict[str, Any], dict[str, NDArray[Any]]]]:
    """Vectors and matrices, in place."""
    for suffix in ("Vector", "Matrix"):
        one = Values(kind, change, "v", (3, 5) if suffix == "Matrix" else (13,))
        parts = ["inputGradient", "inputValues", *(kind.kept or ("inputMomentum",)), "resultValues"]
        names = {"inputGradient": "gradient", "inputValues": "values", "resultValues": "values"}
        words = [f"{suffix.lower()}:{names.get(part, part)}_v" for part in parts]
        if not kind.kept:
            words[2] = "none"
        call = "encodeToCommandBuffer:" + "".join(f"{part}{suffix}:" for part in parts)
        object_of = "matrix" if suffix == "Matrix" else "buffer"
        after = {f"after.{object_of}:values_v": one.values}
        after |= {f"after.{object_of}:{part}_v": values for part, values in one.kept.items()}
        yield {"call": call, "call_arguments": " ".join(["commands", *words])}, one.arrays | after


def _states(kind: Kind, change: dict[str, float]) -> Iterator[tuple[dict[str, Any], dict[str, NDArray[Any]]]]:
    """Weights and biases of a convolution, in place; gamma and beta of batch normalization, one step."""
    vectors = "".join(f"{part}Vectors:" for part in kind.kept or ("inputMomentum",))
    lists = " ".join(f"vectors:{part}_w,{part}_b" for part in kind.kept) or "none"

    def of_both(steps: int, sizes: tuple[int, int]) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        arrays: dict[str, NDArray[Any]] = {}
        after: dict[str, NDArray[Any]] = {}
        for name, size in zip("wb", sizes, strict=True):
            one = Values(kind, change, f"{name}", (size,), steps)
            arrays |= one.arrays
            after |= {f"values_{name}": one.values} | {f"{part}_{name}": kept for part, kept in one.kept.items()}
        return arrays, {f"after.buffer:{name}": values for name, values in after.items()}

    arrays, after = of_both(STEPS, (24, 6))
    layer: dict[str, Any] = {"layer.class": "MPSCNNConvolution", "layer.init": "initWithDevice:weights:"}
    layer |= {"layer.arguments": "device weights", "descriptor": "MPSCNNConvolutionDescriptor", "weights": "6 1 1 4"}
    layer |= {"weights.type": 0x10000020, "weights.half": False}
    layer["call"] = f"encodeToCommandBuffer:convolutionGradientState:convolutionSourceState:{vectors}resultState:"
    state = "weights_state:values_w,values_b"
    layer["call_arguments"] = f"commands gradient_state:gradient_w,gradient_b {state} {lists} {state}"
    arrays["weights"] = np.zeros((6, 1, 1, 4), np.float32)
    yield layer, arrays | after
    if kind.kept:  # vectors for the weights only: the result's biases are those of the source
        arrays, after = of_both(1, (24, 6))
        state = "weights_state:values_w,values_b " + " ".join(f"vectors:{part}_w" for part in kind.kept)
        layer = layer | {"times": 1, "call_arguments": f"commands gradient_state:gradient_w,gradient_b {state} "}
        layer["call_arguments"] += "weights_state:result_w,result_b"
        arrays |= {"result_w": np.zeros(24, np.float32), "result_b": np.zeros(6, np.float32)}
        arrays |= {"weights": np.zeros((6, 1, 1, 4), np.float32), "after.buffer:result_b": arrays["values_b"]}
        arrays["after.buffer:result_w"] = after["after.buffer:values_w"]
        yield layer, arrays

    arrays, after = of_both(1, (4, 4))
    for other in ("", "other_"):
        arrays |= {other + name: np.full(4, len(other) + 1, np.float32) for name in ("mean", "variance")}
        arrays |= {other + name: np.full(4, 9, np.float32) for name in ("gamma", "beta")}
    arrays |= {"gamma": arrays["values_w"], "beta": arrays["values_b"]}
    for name in "wb":  # the values stay unchanged, the result has the new ones
        after[f"after.buffer:result_{name}"] = after.pop(f"after.buffer:values_{name}")
        arrays[f"result_{name}"] = np.zeros(4, np.float32)
    names = {
        "batchNormalizationState:": "batch_state:gradient_w,gradient_b",
        "batchNormalizationGradientState:batchNormalizationSourceState:": "other_state:gradient_w,gradient_b "
        "values_state:values_w,values_b",
    }
    for call, words in names.items():
        layer = {"times": 1, "epsilon": 0.125}
        for which in ("layer", "other"):
            layer |= {f"{which}.class": "MPSCNNBatchNormalization", f"{which}.init": "initWithDevice:dataSource:"}
            layer[f"{which}.arguments"] = f"device {'other_' * (which == 'other')}normalization"
        layer["call"] = f"encodeToCommandBuffer:{call}{vectors}resultState:"
        layer["call_arguments"] = f"commands {words} {lists} gamma_and_beta:result_w,result_b"
        yield layer, arrays | after


def rows() -> list[Row]:
    found = []
    for kind in KINDS:
        for changed, change in CHANGES.items():
            for settings, arrays in (*_alone(kind, change), *_states(kind, change)):
                name = f"{kind.name}, {changed}, {settings['call']}"
                found.append(Row(name, _settings(kind, change) | settings, arrays))
    return found
