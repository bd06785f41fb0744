# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the PyTorch importers: modules with random values, and the comparison with PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from interpreter import interpret
from mpscnn.graph import Graph

# Relative to the max of a result: sums of thousands of products in another order than PyTorch's.
RELATIVE = 1e-4


class Function(nn.Module):
    """A function of tensors as a module; constants are named buffers."""

    def __init__(self, function: Callable[..., Any], **constants: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.names = list(constants)
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors, *(getattr(self, name) for name in self.names))


def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """Set eval mode, and draw parameters and statistics: defaults of 0 and 1 would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / max(1, parameter[0].numel()) ** 0.5)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) / 4)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return module.eval()


@cache
def _core_aten_table() -> dict[Any, Callable[..., Any]]:
    """PyTorch rebuilds it in every call of run_decompositions(), which takes longer than the rest of the call."""
    return torch.export.default_decompositions().materialize()


def core_aten(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return program.run_decompositions()."""
    return program.run_decompositions(_core_aten_table())


def leaves(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]


def check(graph: Graph, module: nn.Module, *inputs: torch.Tensor) -> None:
    """Compare the graph with the module, output by output, in order."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = leaves(module(*inputs))
    arrays = {name: x.float().numpy() for name, x in zip(graph.inputs, inputs, strict=True)}
    found = list(interpret(graph, **arrays).values())
    assert len(found) == len(expected)
    for y, reference in zip(found, expected, strict=True):
        assert y.shape == tuple(reference.shape)
        values = reference.float().numpy()
        scale = float(np.abs(values).max(initial=1e-6))
        np.testing.assert_allclose(y, values, rtol=RELATIVE, atol=RELATIVE * scale)


def inputs(*shapes: tuple[int, ...], batch: int = 2, seed: int = 1) -> tuple[torch.Tensor, ...]:
    """Return random tensors of these shapes, given without the batch."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn((batch, *shape), generator=generator) for shape in shapes)


def is_free(graph: Graph) -> bool:
    """Return whether all heights and widths of the inputs are free."""
    return all(
        (spec.height is None or "H" not in spec.layout) and (spec.width is None or "W" not in spec.layout)
        for spec in graph.inputs.values()
    )
