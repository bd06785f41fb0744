# SPDX-License-Identifier: Apache-2.0
"""Branches of If: their nodes and initializers, with names that no other branch has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InvalidModelError
from ..builder import UnmappedError
from .node import Call, Value
from .table import operator

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto


@operator("If")
def _if(call: Call) -> Value:
    raise UnmappedError(
        "a condition that is computed of values, while a network has the same kernels for all of them: replace the node"
        " by its branch if your inputs always take that one"
    )


@dataclass(frozen=True)
class Branch:
    """A branch, renamed."""

    nodes: list[NodeProto]
    outputs: list[str]
    initializers: dict[str, TensorProto]


def graphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the subgraphs of a node."""
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def names_read(node: NodeProto) -> set[str]:
    """Return the names that subgraphs of a node, and theirs, read; those that they make themselves are included."""
    found: set[str] = set()
    for graph in graphs(node):
        found.update(info.name for info in graph.output)
        for inner in graph.node:
            found.update(inner.input)
            found |= names_read(inner)
    return found


def renamed(node: NodeProto, attribute: str, model: str) -> Branch:
    """Return a branch of an If: names that it makes begin with that of the node's first result and the branch's."""
    graph = next((one.g for one in node.attribute if one.name == attribute and one.HasField("g")), None)
    if graph is None or len(graph.output) != len(node.output):
        raise InvalidModelError(
            f"{model}: {node.name or node.op_type} (If): no {attribute} of {len(node.output)} results."
        )
    prefix = f"{node.output[0]}/{attribute}/"
    names = {name: prefix + name for name in _made(graph)}
    nodes = []
    for inner in graph.node:
        copied = type(inner)()
        copied.CopyFrom(inner)
        _rename(copied, names)
        nodes.append(copied)
    initializers = {names[tensor.name]: tensor for tensor in graph.initializer}
    return Branch(nodes, [names.get(info.name, info.name) for info in graph.output], initializers)


def _made(graph: GraphProto) -> Iterator[str]:
    yield from (info.name for info in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _each(names: Iterable[str], known: dict[str, str]) -> list[str]:
    return [known.get(name, name) for name in names]


def _rename(node: NodeProto, names: dict[str, str]) -> None:
    """Rename the values of a node; in its subgraphs those that they do not make themselves."""
    for field in (node.input, node.output):
        field[:] = _each(field, names)
    for graph in graphs(node):
        own = set(_made(graph))
        outer = {name: new for name, new in names.items() if name not in own}
        for inner in graph.node:
            _rename(inner, outer)
        info: Any
        for info in graph.output:
            info.name = outer.get(info.name, info.name)
