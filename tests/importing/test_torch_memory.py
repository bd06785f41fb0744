# SPDX-License-Identifier: Apache-2.0
"""Modules that free the memory of their tensors, as RevNet does."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import nn
from torch_support import check, inputs

from mpscnn.importing import torch_memory, torch_module


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, body: nn.Module) -> torch.Tensor:
        first, second = (part.contiguous() for part in torch.chunk(x, 2, dim=1))
        changed = first + body(second)
        y = torch.cat((changed, second), 1)
        changed.set_()
        first.untyped_storage().resize_(0)
        second.storage().resize_(0)
        return y


class Freeing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        y = Reversible.apply(x, self.body)
        x.data.set_()
        return y


def test_modules_that_free_memory() -> None:
    module = Freeing().eval()
    graph = torch_module.read(module, input_shapes=(2, 8, 6, 8))
    check(graph, module, *inputs((8, 6, 8)))
    check(graph, module, *inputs((8, 9, 7), batch=5))


def test_memory_is_freed_again_after_an_import_and_in_other_threads() -> None:
    def freed() -> list[int]:
        one, two = torch.ones(3), torch.ones(3)
        one.set_()
        two.untyped_storage().resize_(0)
        return [one.numel(), two.untyped_storage().nbytes()]

    found: list[list[int]] = []
    with torch_memory.kept():
        with torch_memory.kept():
            assert freed() == [3, 12]
        assert freed() == [3, 12]
        other = threading.Thread(target=lambda: found.append(freed()))
        other.start()
        other.join()
    assert [*found, freed()] == [[0, 0], [0, 0]]
    assert "set_" not in vars(torch.Tensor)
