# SPDX-License-Identifier: Apache-2.0
"""Programs that change tensors through views: their functional form, without PyTorch's second trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_support import Function

import mpscnn
from mpscnn.importing import torch_functional


def _mask(x: Any) -> Any:  # Swin Transformer's windows
    mask = x.new_zeros((8, 8))
    before = mask + 1
    mask[0:4, 2:] = 1
    mask[:, 3] = torch.arange(8.0)
    return x + mask * before


def _sum(x: Any) -> Any:  # MViT's positions
    y = x * 2
    y[:, :, 2:5] += y[:, :, 5:]
    return y


def _earlier_view(x: Any) -> Any:
    y = x * 2
    row, other = y[:, :, 1], y[:, :, :3].transpose(2, 3)
    row += 1
    return y.sum(2, keepdim=True) * other.sum(3, keepdim=True) + row.unsqueeze(2)


def _view_of_a_view(x: Any) -> Any:
    y = x * 2
    part = y[:, 1:]
    part[:, :, 3, 2:4].mul_(5)
    y.add_(1)
    return torch.cat([part, y[:, :1]], 1)


def _parts(x: Any) -> Any:
    y = x * 2
    first, second = y.split(2, 1)
    y[:, :, 0] = 7
    return first - second


def _old_value(x: Any) -> Any:
    y = x * 2
    before = y + 0
    y[:, :, :, 5] = 3
    return y * before


def _dropout(x: Any) -> Any:
    y = x * 2
    z = torch.nn.functional.dropout(y, 0.5, False)
    z[:, 0] = 1
    return y + z


def _region(x: Any) -> Any:
    with torch.autocast("cpu", enabled=False):
        y = x * 2
        y[:, 0] -= 1
    with torch.no_grad():
        z = y + x
    return z * y


def _masked(x: Any) -> Any:  # SCUNet's windows, and a tensor of a list, which PyTorch detaches
    mask = torch.zeros(8, 8, dtype=torch.bool)
    mask[:3, 5:] = True
    y = (x + torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8])).masked_fill_(mask, -2)
    y[:, :, 0] = 7
    return y * 2


FUNCTIONS = [_mask, _sum, _earlier_view, _view_of_a_view, _parts, _old_value, _dropout, _region, _masked]


@pytest.fixture
def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("PyTorch's functional form")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", refuse)


def _compare(module: nn.Module, batch: int = 2) -> None:
    net = mpscnn.load(module, input_shapes=(1, 4, 8, 8))
    x = torch.rand(batch, 4, 8, 8) - 0.5
    np.testing.assert_allclose(net(x), module(x.clone()).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("only_ours")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_without_a_second_trace(function: Callable[[Any], Any]) -> None:
    _compare(Function(function))


def _maybe_a_copy(x: Any) -> Any:
    y = x * 2
    flat = y.transpose(2, 3).reshape(-1, 4, 64)
    y[:, :, 0] = 0
    return flat.sum(2) + y.sum((2, 3))


def _changed_after_a_reshape(x: Any) -> Any:
    y = x * 2
    y.reshape(-1, 4, 64)[:, :, 3:9] = 1
    return y


def _changed_part(x: Any) -> Any:
    y = x * 2
    first, _ = y.split(2, 1)
    first += 1
    return y


@pytest.mark.parametrize("function", [_maybe_a_copy, _changed_after_a_reshape, _changed_part])
def test_left_to_pytorch(function: Callable[[Any], Any]) -> None:
    program = torch.export.export(Function(function), (torch.zeros(2, 4, 8, 8),))
    assert torch_functional.functional(program, of_module=True) is None
    _compare(Function(function))


def test_promotion_is_left_to_pytorch() -> None:
    def function(x: Any) -> Any:
        y = torch.zeros(8, dtype=torch.float16)
        y[2:] += torch.full((6,), 1 + 2.0**-12)
        return x + y

    program = torch.export.export(Function(function), (torch.zeros(2, 4, 8, 8),))
    assert torch_functional.functional(program, of_module=True) is None


def test_changed_parameters_are_left_to_pytorch() -> None:
    def function(x: Any, weight: Any) -> Any:
        weight[2:] = 0
        return x + weight

    program = torch.export.export(Function(function, weight=torch.ones(8)), (torch.zeros(2, 4, 8, 8),))
    assert torch_functional.functional(program, of_module=True) is None


def test_regions_of_files_are_left_to_pytorch() -> None:
    program = torch.export.export(Function(_region), (torch.zeros(2, 4, 8, 8),))
    assert torch_functional.functional(program, of_module=True) is not None
    assert torch_functional.functional(program, of_module=False) is None


@pytest.mark.parametrize("function", FUNCTIONS)
def test_same_values_as_the_program(function: Callable[[Any], Any]) -> None:
    program = torch.export.export(Function(function), (torch.zeros(2, 4, 8, 8),))
    graph = torch_functional.functional(program, of_module=True)
    assert graph is not None
    graph.lint()
    assert not any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in graph.nodes)
    x = torch.rand(2, 4, 8, 8)
    found = torch.fx.Interpreter(torch.fx.GraphModule(program.graph_module, graph)).run(
        *[program.constants[spec.target] for spec in program.graph_signature.input_specs if spec.target], x
    )
    torch.testing.assert_close(found[0], program.module()(x))
