# SPDX-License-Identifier: Apache-2.0
"""The graph of a trained network, for inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph
from .parameters import placeholder
from .plan import Plan


def without_values(graph: Graph, plan: Plan) -> Graph:
    """Return the graph with placeholders for weights that kernels read in place, and copies of the other weights."""
    in_place = {layer.operation.name for layer in plan.layers if layer.in_place}
    copy = graph.copy()
    copy.nodes = []
    for node in graph.nodes:
        weight = node.arguments.get("weight")
        if isinstance(weight, np.ndarray):
            weight = placeholder(weight) if node.name in in_place else weight.copy()
            node = node.with_(arguments={**node.arguments, "weight": weight})
        copy.nodes.append(node)
    return copy


def with_values(graph: Graph, plan: Plan, values: Mapping[str, NDArray[Any]]) -> Graph:
    """Return the graph with these parameters, by their keys, and without dropout."""
    parameters = {layer.operation.name: layer.parameters for layer in plan.layers}
    copy = graph.copy()
    renamed: dict[str, str] = {}
    copy.nodes = []
    for node in graph.nodes:
        node = node.with_(sources=tuple(renamed.get(source, source) for source in node.sources))
        if node.kernel == "Dropout":
            renamed[node.name] = node.sources[0]
            continue
        changed = {
            one.argument: values[one.key].reshape(np.shape(node.arguments[one.argument]))
            for one in parameters.get(node.name, ())
        }
        copy.nodes.append(node.with_(arguments={**node.arguments, **changed}) if changed else node)
    copy.outputs = {
        name: replace(output, source=renamed.get(output.source, output.source))
        for name, output in graph.outputs.items()
    }
    return copy
