# SPDX-License-Identifier: Apache-2.0
"""Wrong input: a Python exception of the right type, whose message has the name, the value and the limit.

One file per subject. Lists named ROWS have rows of wrong calls of kernels; check_row() tests one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn import _core
from support import random

W = (8, 4, 3, 3)
X = (1, 5, 7, 4)


VALUES = ("gamma", "beta", "mean", "variance")
"""Of normalization, one per channel."""


class Array:
    """An array to be made for a row."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "float32", read_only: bool = False) -> None:
        self.shape, self.dtype, self.read_only = shape, dtype, read_only

    def __repr__(self) -> str:
        return f"Array({self.shape}, {self.dtype}{', read-only' if self.read_only else ''})"

    def make(self) -> Any:
        array = np.zeros(self.shape, self.dtype) if self.dtype == "complex64" else random(self.shape, self.dtype)
        array.flags.writeable = not self.read_only
        return array


class Error:
    """One wrong call. `x`, `second`, `out`, `dtype` are arguments of the call, all others parameters of the kernel.
    Without `x`, making the kernel fails.

    For gradient kernels, `x` and `second` are the sources in order; `encoded` is the shape of all sources of the
    forward encode that creates the state, and `statistics` names the history of a batch normalization's state.

    A tuple for `weight`, `bias`, `x`, `second`, `out`, `ranges`, `lookup_table`, `data` and VALUES is the shape of a
    float32 array.
    """

    ARRAYS = ("weight", "bias", "x", "second", "out", "ranges", "lookup_table", "data", *VALUES)
    OF_CALLS = ("x", "second", "out", "dtype", "encoded", "statistics")

    def __init__(self, kernel: str, *, raises: type[Exception], match: str, **given: Any) -> None:
        self.kernel, self.raises, self.match, self.given = kernel, raises, match, given

    def __repr__(self) -> str:
        return f"Error({', '.join([self.kernel, *(f'{name}={value!r}' for name, value in self.given.items())])})"

    def values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (parameters of the kernel, arguments of the call)."""
        made = dict(self.given)
        for name, value in made.items():
            if isinstance(value, tuple) and name in self.ARRAYS:
                value = Array(value)
            made[name] = value.make() if isinstance(value, Array) else value
        return made, {name: made.pop(name) for name in self.OF_CALLS if name in made}


def good_source(kernel: mpscnn.Kernel) -> np.ndarray:
    """Return a source that the kernel accepts, unless its properties require a larger one."""
    source = kernel.data_source
    if source is None:
        neuron = kernel.neuron_descriptor
        return random((1, 6, 5, len(neuron.data) if neuron and len(neuron.data) else 4))
    if not hasattr(source, "descriptor"):  # normalization
        return random((2, 9, 11, source.channels))
    d = source.descriptor
    covers = isinstance(kernel, (mpscnn.BinaryFullyConnected, mpscnn.FullyConnected))
    height, width = d.kernel_size if covers else (9, 11)
    return random((2, height, width, d.in_channels))


def canary() -> None:
    """Check a kernel unrelated to the error."""
    x = random((1, 6, 5, 4))
    np.testing.assert_array_equal(mpscnn.NeuronReLU()(x), np.maximum(x, 0))


BY_NAME = {row["name"]: row for row in _core.kernel_table()}
OF_GRADIENTS = ("clip_rect", "destination_feature_channel_offset", "gradient_option", "label")
"""Parameters that a gradient has itself; the others are its forward kernel's."""


def batch_state(history: str) -> mpscnn.BatchNormalizationState:
    """Return a state of X with this history of encodes."""
    x, state = random(X), mpscnn.BatchNormalizationState(X[3])
    if history != "new":
        mpscnn.BatchNormalizationStatistics()(x, state)
        mpscnn.BatchNormalization(np.ones(X[3], np.float32))(x, state)
    if history == "gradients":
        mpscnn.BatchNormalizationStatisticsGradient()(x, x, state)
    return state


def gradients_of(name: str, parameters: dict[str, Any], source: int) -> tuple[Any, mpscnn.Kernel]:
    """Return (forward kernel, gradient by a source); batch normalization's gradients have no forward kernel."""
    forward_name = BY_NAME[name]["forward"]
    if not forward_name:
        return None, getattr(mpscnn, name)(**parameters)
    forward = getattr(mpscnn, forward_name)(**{k: v for k, v in parameters.items() if k not in OF_GRADIENTS})
    return forward, forward.gradients[source]


def good_gradient(name: str, forward: Any, kernel: Any) -> np.ndarray:
    """Return the gradient of a valid call."""
    if forward is None:
        x = random(X)
        found = kernel(x, x, batch_state("gradients"))
        return found if isinstance(found, np.ndarray) else np.stack([found.grad_gamma, found.grad_beta])
    x = good_source(forward)
    y, state = forward(*[x] * len(BY_NAME[BY_NAME[name]["forward"]]["sources"]), with_state=True)
    found = kernel(np.ones_like(y), y if "y" in BY_NAME[name]["sources"] else x, state)
    return (found != 0) == (y != 0) if name == "DropoutGradient" else found  # each encode has its own mask


def check_gradient(row: Error, parameters: dict[str, Any], call: dict[str, Any]) -> None:
    """Check a wrong call of a gradient kernel."""
    source = int(parameters.pop("of", None) == "b")
    forward, kernel = gradients_of(row.kernel, parameters, source)
    own = {name: value for name, value in parameters.items() if forward is not None and name in OF_GRADIENTS}
    defaults = {name: getattr(kernel, name) for name in own}
    for name, value in own.items():
        setattr(kernel, name, value)
    sources = [call.pop(name) for name in ("x", "second") if name in call]
    if "encoded" in call:
        count = len(BY_NAME[BY_NAME[row.kernel]["forward"]]["sources"])
        _, call["state"] = forward(*[random(call.pop("encoded"))] * count, with_state=True)
    if "statistics" in call:
        call["state"] = batch_state(call.pop("statistics"))
    with pytest.raises(row.raises, match=row.match):
        kernel(*sources, **call)
    for name, value in defaults.items():
        setattr(kernel, name, value)
    fresh = gradients_of(row.kernel, {name: value for name, value in parameters.items() if name not in own}, source)
    results = [good_gradient(row.kernel, *kernels) for kernels in ((forward, kernel), fresh)]
    np.testing.assert_array_equal(*results)


def check_row(row: Error) -> None:
    """Check that the kernel or its call raises as the row expects, and that the kernel still works."""
    parameters, call = row.values()
    cls = getattr(mpscnn, row.kernel)
    if not call:
        with pytest.raises(row.raises, match=row.match):
            cls(**parameters)
    elif BY_NAME[row.kernel]["sources"][0] == "grad_y" and row.kernel != "NeuronGradient":
        check_gradient(row, parameters, call)
    else:
        kernel = cls(**parameters)
        sources = [call.pop(name) for name in ("x", "second") if name in call]
        with pytest.raises(row.raises, match=row.match):
            kernel(*sources, **call)
        # The kernel is unchanged: without its properties, which may be the error, it computes the result of a new one.
        common = {spec["name"] for specs in mpscnn.kernels._COMMON.values() for spec in specs}
        for name in common & parameters.keys():
            setattr(kernel, name, getattr(cls(**{k: v for k, v in parameters.items() if k not in common}), name))
        fresh = cls(**{name: value for name, value in parameters.items() if name not in common})
        good = good_source(kernel)
        if parameters.get("padding") == 6:  # leaves no pixels of the usual size
            good = random((1, 20, 20, good.shape[3]))
        many = [good] * (2 if isinstance(kernel, mpscnn.BinaryKernel) else 1)
        results = [one(*many) for one in (kernel, fresh)]
        if isinstance(results[0], mpscnn.BatchNormalizationState):
            results = [np.stack([state.mean, state.variance]) for state in results]
        np.testing.assert_array_equal(*results)
    canary()
