# SPDX-License-Identifier: Apache-2.0
"""Modules whose code depends on values: those of the inputs are refused before any trace, those of constants not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_support import Function, check, inputs

import mpscnn
from mpscnn.importing import torch_module, torch_numbers, torch_values


def numpy_inside(x: torch.Tensor) -> torch.Tensor:
    best = np.argmax(x.detach().numpy()[:, :, 0, 0], axis=1)
    return x[:, int(best[0])]


def loop(x: torch.Tensor) -> torch.Tensor:
    for image in range(len(x)):
        if x[image].sum() > 0:
            x = x * 2
    return x


def number(x: torch.Tensor) -> torch.Tensor:
    row = int(x.mean())
    return x[:, :, row] if 0 < row < 3 else x[:, :, 0]


DEPENDENT: dict[str, tuple[Callable[..., Any], str]] = {
    "numpy": (numpy_inside, r"numpy_inside \(test_torch_values.py, line \d+: best = .* to NumPy"),
    "branch": (loop, r"loop \(test_torch_values.py, line \d+: if x\[image\].sum\(\) > 0:\) asks for values"),
    "number": (number, r"number \(test_torch_values.py, line \d+: .*\) asks for values"),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_values_of_inputs_are_refused_without_a_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, reason = DEPENDENT[name]
    monkeypatch.setattr(torch.export, "export", None)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=reason) as caught:
        torch_module.read(Function(body), input_shapes=(2, 4, 6, 8))
    assert "Load a module that returns the tensors" in str(caught.value)


class Steps(nn.Module):
    """Numbers and branches of constants; a number of the inputs that no result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor([1, 3]))
        self.seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.steps.sum() > 3:
            x = x * int(self.steps[1])
        self.seen = int(x.argmax().item())
        return x + self.steps.numpy()[0]


def test_values_of_constants_are_known() -> None:
    module, x = Steps(), torch.zeros(2, 4, 6, 8)
    assert torch_values.dependence(module, (x,), {}, torch_numbers.Numbers(module)) == ""
    assert "argmax" in torch_values.dependence(
        Function(lambda x: x * int(x.argmax())), (x,), {}, torch_numbers.Numbers(module)
    )


class Told(nn.Module):
    """Takes another way if it is told that it is traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting() or x.sum() > 100:
            return x * 2
        return x * 2


def test_a_module_that_asks_whether_it_is_traced() -> None:
    check(torch_module.read(Told(), input_shapes=(2, 4, 6, 8)), Told(), *inputs((4, 6, 8)))
