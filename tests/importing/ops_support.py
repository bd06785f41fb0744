# SPDX-License-Identifier: Apache-2.0
"""Compares a function of mpscnn.importing.ops with a function of PyTorch, at the imported size and at others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from interpreter import interpret
from mpscnn.graph import Graph
from mpscnn.importing.builder import Builder, Tensor

Op = Callable[..., Tensor]


def build(op: Op, *arrays: NDArray[Any], axes: str | tuple[str, ...] = "NCHW") -> tuple[Graph, Tensor]:
    """Return a graph of the op on inputs x0, x1, ... with the arrays' shapes."""
    builder = Builder()
    layouts = (axes,) * len(arrays) if isinstance(axes, str) else axes
    inputs = [
        builder.input(f"x{i}", array.shape[1:], layout)
        for i, (array, layout) in enumerate(zip(arrays, layouts, strict=True))
    ]
    with builder.node("node", "Op"):
        result = op(builder, *inputs)
    builder.output("y", result)
    return builder.graph, result


def run(graph: Graph, *arrays: NDArray[Any]) -> NDArray[Any]:
    return interpret(graph, **{f"x{i}": array for i, array in enumerate(arrays)})["y"]


def is_fixed(graph: Graph) -> bool:
    return any(spec.fixed_by for spec in graph.inputs.values())


def assert_near(actual: NDArray[Any], expected: NDArray[Any], relative: float = 1e-5) -> None:
    """Assert equal shapes, infinities and NaN, and otherwise equality within rounding of the largest value."""
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    scale = np.abs(expected[finite]).max(initial=1e-30)
    np.testing.assert_allclose(actual[finite], expected[finite], rtol=relative, atol=relative * scale)


def check(
    op: Op,
    reference: Callable[..., Any],
    *shapes: tuple[int, ...],
    axes: str | tuple[str, ...] = "NCHW",
    others: tuple[tuple[int, ...], ...] | tuple[tuple[tuple[int, ...], ...], ...] = (),
    fixed: bool | None = None,
    positive: bool = False,
    relative: float = 1e-5,
) -> Graph:
    """Compare `op` with `reference`, applied to torch tensors in float64.

    `others`: shapes for which the graph of the first must be right too, unless it is `fixed`.
    """

    def arrays(of: tuple[tuple[int, ...], ...]) -> list[NDArray[Any]]:
        rng = np.random.default_rng([7, *(extent for shape in of for extent in shape)])
        found = [rng.standard_normal(shape).astype(np.float32) for shape in of]
        return [np.abs(array) + np.float32(0.1) for array in found] if positive else found

    first = arrays(shapes)
    graph, result = build(op, *first, axes=axes)
    expected = reference(*(torch.from_numpy(array).double() for array in first)).numpy()
    assert (len(expected), *result.shape) == expected.shape
    assert_near(run(graph, *first), expected, relative)
    if fixed is not None:
        assert is_fixed(graph) == fixed
    for other in others:
        several = (other,) if isinstance(other[0], int) else other
        assert not is_fixed(graph)
        given = arrays(several)  # type: ignore[arg-type]
        expected = reference(*(torch.from_numpy(array).double() for array in given)).numpy()
        assert_near(run(graph, *given), expected, relative)
    return graph
