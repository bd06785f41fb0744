# SPDX-License-Identifier: Apache-2.0
"""Activations that importers build from several kernels: accuracy of a single operator of PyTorch, and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)

import mpscnn
from interpreter import interpret
from mpscnn.importing.builder import Builder, Tensor, UnmappedError
from mpscnn.importing.ops import activation

CASES: dict[str, tuple[Callable[[Builder, Tensor], Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "gelu_tanh": (lambda b, x: activation.gelu(b, x, "tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "gelu": (activation.gelu, F.gelu),
    "silu": (activation.silu, F.silu),
    "mish": (activation.mish, F.mish),
    "hardswish": (activation.hardswish, F.hardswish),
    "hardtanh": (activation.hardtanh, F.hardtanh),
    "clamp": (lambda b, x: activation.clamp(b, x, -0.3, 2.0), lambda x: x.clamp(-0.3, 2.0)),
    "selu": (activation.selu, F.selu),
    "celu": (lambda b, x: activation.celu(b, x, 0.7), lambda x: F.celu(x, 0.7)),
    "softplus": (lambda b, x: activation.softplus(b, x, 0.5), lambda x: F.softplus(x, 0.5)),
    "logsigmoid": (activation.logsigmoid, F.logsigmoid),
    "softshrink": (activation.softshrink, F.softshrink),
    "tanhshrink": (activation.tanhshrink, F.tanhshrink),
}


@pytest.mark.parametrize("name", CASES)
def test_as_exact_as_float32(name: str) -> None:
    ours, theirs = CASES[name]
    x = np.linspace(-8, 8, 16 * 31 * 4, dtype=np.float32).reshape(2, 8, 4, 31)
    builder = Builder()
    builder.output("y", ours(builder, builder.input("x", x.shape[1:])))
    expected = theirs(torch.tensor(x, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(interpret(builder.graph, x=x)["y"], expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (None, -0.5), (0.25, None)])
def test_bounds_of_infinities(bounds: tuple[float | None, float | None]) -> None:
    x = np.array([-math.inf, -1.5, 0.0, 0.3, 7.0, math.inf], np.float32).reshape(1, 6)
    builder = Builder()
    builder.output("y", activation.clamp(builder, builder.input("x", (6,), "NC"), *bounds))
    np.testing.assert_array_equal(interpret(builder.graph, x=x)["y"], torch.tensor(x).clamp(*bounds).numpy())


REFUSED: dict[str, tuple[type[Exception], Any, str]] = {
    "threshold": (UnmappedError, lambda b, x: activation.threshold(b, x, 0.5, 0.0), "a jump from 0.0 to 0.5"),
    "softplus": (UnmappedError, lambda b, x: activation.softplus(b, x, 1.0, 5.0), "not linear yet"),
    "nan": (UnmappedError, lambda b, x: activation.clamp(b, x, math.nan), "bounds nan"),
    "prelu": (mpscnn.InvalidModelError, lambda b, x: activation.prelu(b, x, np.ones(3, np.float32)), r"\(3,\)"),
    "gelu": (mpscnn.InvalidModelError, lambda b, x: activation.gelu(b, x, "fast"), "fast"),
    "celu": (mpscnn.InvalidModelError, lambda b, x: activation.celu(b, x, 0.0), "alpha is 0"),
    "softshrink": (mpscnn.InvalidModelError, lambda b, x: activation.softshrink(b, x, -1.0), "less than the minimum"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    kind, body, reason = REFUSED[name]
    builder = Builder()
    with pytest.raises(kind, match=reason):
        body(builder, builder.input("x", (4, 5, 6)))
