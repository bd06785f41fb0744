# SPDX-License-Identifier: Apache-2.0
"""Modules that read or set weight.data when they are called, as SPAN's reparameterized convolutions do."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch_support import check, inputs

import mpscnn
from mpscnn.importing import torch_data, torch_module


class Reparameterized(nn.Module):
    """A convolution whose weights are the sum of two others'."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 1)
        self.both = nn.Conv2d(3, 4, 3, padding=1)
        self.shift = torch.ones(1, 4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.one.weight.data.clone() + nn.functional.pad(self.other.weight.data, [1, 1, 1, 1])
        self.both.weight.data = weight.contiguous()
        for bias in (self.both.bias, self.one.bias):
            assert bias is not None
            bias.data = bias.data.clone()
        self.shift.data = self.shift.type_as(x).data
        return self.both(x) + self.shift


def test_weights_that_are_computed_from_weights() -> None:
    module = nn.Sequential(Reparameterized(), nn.ReLU()).eval()
    graph = torch_module.read(module, input_shapes=(1, 3, 8, 8))
    check(graph, module, *inputs((3, 8, 8)))
    check(graph, module, *inputs((3, 11, 6), batch=3))
    assert isinstance(module[0].both.weight, nn.Parameter)
    with torch.no_grad():
        module[0].one.weight.mul_(2)
    check(torch_module.read(module, input_shapes=(1, 3, 8, 8)), module, *inputs((3, 8, 8)))


class Counting(nn.Module):
    """A module with other results in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale.data.mul_(2)
        return x * self.scale


def test_weights_that_change_in_each_call() -> None:
    with pytest.raises(mpscnn.ImportError, match="scale: the model changes it"):
        torch_module.read(Counting().eval(), input_shapes=(1, 3, 8, 8))


class Clipped(nn.Module):
    """A module that sets the data of what it computes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        y.data = torch.sigmoid(x).data
        return y + x.data


def test_data_of_computed_tensors() -> None:
    with pytest.raises(mpscnn.ImportError, match="it computes something else than the module"):
        torch_module.read(Clipped().eval(), input_shapes=(1, 3, 8, 8))


def test_other_threads_set_data_during_a_trace() -> None:
    module = nn.Conv2d(1, 1, 1)

    def change() -> None:
        module.weight.data = torch.zeros(1, 1, 1, 1)

    own = torch.Tensor.data
    with torch_data.traced(module):
        with torch_data.traced(module):
            pass
        other = threading.Thread(target=change)
        other.start()
        other.join()
        assert torch.Tensor.data is not own
    assert torch.Tensor.data is own
    assert not module.weight.any()
    assert isinstance(module.weight, nn.Parameter)
