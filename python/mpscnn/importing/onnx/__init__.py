# SPDX-License-Identifier: Apache-2.0
"""Import of ONNX models.

`read` visits the nodes of a model. Values that are known without running it (weights, computations on shapes) are
evaluated by `static`; the functions in `table.OPERATORS` add kernels for the other nodes.
"""

from __future__ import annotations

from .reading import PathLike, open_model  # first: it reports a missing package

# isort: split
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InvalidModelError, UnsupportedOperatorError
from ...graph import Graph
from ..builder import functions
from . import attention, dynamic, elementwise, indexing, layers, normalization, quantization, resizing, shaping  # noqa: F401  (they fill the table)
from .reading import Source, checked_outputs, with_inputs
from .table import OPERATORS
from .walk import Walk

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["OPERATORS", "read"]

# Layouts of inputs, by number of axes; tried in this order.
LAYOUTS = ({1: "N", 2: "NC", 3: "NCW", 4: "NCHW"}, {1: "N", 2: "NC", 3: "NWC", 4: "NHWC"})
PROBE = {"H": 2, "W": 3}  # multiples of the extents at which a graph with free extents is verified


def read(
    model: PathLike | bytes | ModelProto,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    mapped: bool = True,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """Read an ONNX model.

    Parameters
    ----------
    model : path, bytes or onnx.ModelProto
        External data must be in the model's folder; it is mapped into memory.
    input_shapes : mapping of str to tuple of int, optional
        Shapes of inputs, batch first, for models with dynamic extents. The graph runs with any batch, and with any
        height and width for which the model has the same kernels.
    mapped : bool, default True
        False: external data is read into memory.
    inputs : sequence of str, optional
        Names of values that become inputs: the part of the model behind them is read. Those without a shape in the
        model need one in `input_shapes`.
    outputs : sequence of str, optional
        Names of values, in place of the model's outputs: the part of the model that computes them is read.

    Returns
    -------
    Graph
        Names are those of the model's inputs, outputs and nodes. Unused inputs are left out. Results are floats even if
        the model has integers (ArgMax). Casts between floating-point types are ignored: kernels compute in float32.

    Raises
    ------
    InvalidModelError
        The file is missing, damaged, inconsistent, or refers to files outside of its folder; an extent is neither in
        the model nor in `input_shapes`.
    ValueError
        `inputs` or `outputs` has a name that the model does not have.
    UnsupportedOperatorError
        No kernel computes some nodes; all are listed, with reasons.
    MissingPackageError
        The package onnx is not installed.

    Source
    ------
    https://onnx.ai/onnx/operators/, versions 6 to the newest of the package onnx.

    Examples
    --------
    >>> from mpscnn.importing import onnx
    >>> net = mpscnn.Network(onnx.read("model.onnx"))  # doctest: +SKIP
    """
    source = open_model(model, mapped=mapped)
    if outputs is not None:
        source.outputs = checked_outputs(source, outputs)
    shapes = _checked_shapes(input_shapes)
    if inputs is not None:
        source = with_inputs(source, inputs, shapes, is_own=source.proto is not model)
    refused: UnsupportedOperatorError | None = None
    reached = -1
    arrays: dict[str, Any] = {}
    ranks = {len(info.type.tensor_type.shape.dim) for info in source.graph.input}
    graphs: list[Graph] = []
    for layouts in LAYOUTS if ranks & {3, 4} else LAYOUTS[:1]:
        walk = Walk(source, shapes, layouts, arrays)
        try:
            graph = walk.run()
        except UnsupportedOperatorError as error:
            # The layout that leads further is the model's own: errors of the other are about its axes.
            if len(walk.values) > reached:
                refused, reached = error, len(walk.values)
            continue
        except InvalidModelError:
            if refused is None and not graphs:
                raise
            continue
        if walk.has_free_extents() and not _same_at_other_extents(graph, source, shapes, layouts, arrays):
            walk.builder.origin = "the model, which means other kernels at other heights and widths"
            walk.builder.fix()
        graphs.append(walk.builder.graph)
        if functions(graphs[-1]) == 0:
            break
    if not graphs:
        assert refused is not None
        raise refused
    return min(graphs, key=functions)


def _checked_shapes(shapes: Mapping[str, Any] | None) -> dict[str, tuple[int, ...]]:
    if shapes is None:
        return {}
    if not hasattr(shapes, "items"):
        raise TypeError(f"input_shapes ({type(shapes).__name__}) is not a mapping of names to shapes.")
    found = {}
    for name, shape in shapes.items():
        if not isinstance(shape, (tuple, list)) or any(not isinstance(e, (int, np.integer)) for e in shape):
            raise TypeError(f'input_shapes["{name}"] ({shape!r}) is not a tuple of int.')
        if any(e < 1 for e in shape):
            raise ValueError(f'input_shapes["{name}"] ({tuple(shape)}) has an extent less than the minimum (1).')
        found[name] = tuple(int(e) for e in shape)
    return found


def _same_at_other_extents(
    graph: Graph, source: Source, shapes: dict[str, tuple[int, ...]], layouts: dict[int, str], arrays: dict[str, Any]
) -> bool:
    """Return whether the model gives the same graph at other heights and widths."""
    try:
        other = Walk(source, shapes, layouts, arrays, PROBE).run()
    except (InvalidModelError, UnsupportedOperatorError):
        return False
    if len(other.nodes) != len(graph.nodes) or any(spec.fixed_by for spec in other.inputs.values()):
        return False
    if any(other.outputs[name] != output for name, output in graph.outputs.items()):
        return False
    return all(
        (a.name, a.kernel, a.sources) == (b.name, b.kernel, b.sources) and _equal(a.arguments, b.arguments)
        for a, b in zip(graph.nodes, other.nodes, strict=True)
    )


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        # Only small arrays may have been computed from extents.
        return a.shape == b.shape and (a is b or a.size > 4096 or np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    return bool(type(a) is type(b) and a == b)
