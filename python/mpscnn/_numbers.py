# SPDX-License-Identifier: Apache-2.0
"""Which values of a network `mpscnn.quantize` stores as 8-bit numbers, so that the CPU engine computes with bytes.

The sources of convolutions and linear layers are; and what sums, products, max pooling and functions of a pixel read if
their results are. A function of numbers is a table, so values get numbers in front of a swish, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .descriptors import NeuronDescriptor
from .graph import Graph, Node
from .kernels import KERNELS, Kernel, row_of

_WITH_WEIGHTS = ("Convolution", "FullyConnected")
LAYOUTS = {"Convolution": ("OIHW", "OHWI", "HWIO"), "FullyConnected": ("OI", "OHWI")}
# Arguments of arithmetic that the engine computes with 8-bit numbers.
_SUM_ARGUMENTS = {"minimum_value", "maximum_value", "label"}
_PRODUCT_ARGUMENTS = {"primary_scale", "secondary_scale", "label"}
_ARITHMETIC = ("Add", "Subtract", "Multiply", "Divide")
_ARITHMETIC_ARGUMENTS = _SUM_ARGUMENTS | _PRODUCT_ARGUMENTS | {"bias"}
_NEURON_ARGUMENTS = {"type", "a", "b", "c", "label"}
_GATES = ("sigmoid", "hard_sigmoid")  # which the engine applies to sums of bytes
_MAX_FUNCTION = 8  # nodes
# Weights of a convolution of one pixel: reading this many as floats takes as long as the conversions to bytes.
_MAX_PIXEL_WEIGHTS = 1 << 16


def _neuron_of(node: Node) -> NeuronDescriptor | Kernel | None:
    """Return the activation of a convolution or linear layer."""
    neuron: Any = node.arguments.get("activation")
    return NeuronDescriptor(cast(Any, neuron)) if isinstance(neuron, str) else neuron


def _is_exact(neuron: NeuronDescriptor | Kernel | None) -> bool:
    """Return whether the engine computes the activation on sums of bytes."""
    is_relu = isinstance(neuron, NeuronDescriptor) and neuron.type in ("relu", "relun") and not neuron.a
    return neuron is None or is_relu


def with_activations_apart(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Return the graph in which activations other than ReLU and ReLU6 are nodes of their own behind convolutions.

    Also return the names of these nodes, by convolution.
    """
    result, apart = graph.copy(), {}
    result.nodes = []
    for node in graph.nodes:
        neuron = _neuron_of(node) if node.kernel in _WITH_WEIGHTS else None
        if not isinstance(neuron, NeuronDescriptor) or _is_exact(neuron) or neuron.type == "prelu":
            result.nodes.append(node)
            continue
        given = {name: value for name, value in node.arguments.items() if name != "activation"}
        name = result._take(result.unique(f"{node.name}: sums"))
        sums = node.with_(name=name, arguments=given, result_dtype="")
        parameters = {letter: getattr(neuron, letter) for letter in "abc"}
        result.nodes.append(sums)
        result.nodes.append(
            node.with_(kernel="Neuron", sources=(sums.name,), arguments={"type": neuron.type, **parameters})
        )
        apart[sums.name] = node.name
    return result, apart


def _has_bytes(node: Node) -> bool:
    """Return whether the weights can be multiples of a step for each output, and the engine computes the rest."""
    given = node.arguments
    if node.kernel not in _WITH_WEIGHTS or hasattr(given["weight"], "load"):
        return False
    layout = given.get("layout", LAYOUTS[node.kernel][0])
    plain = all(given.get(name) is None for name in ("ranges", "lookup_table"))
    is_known = layout in LAYOUTS[node.kernel] and given.get("sub_pixel_scale_factor", 1) == 1
    return plain and is_known and _is_exact(_neuron_of(node))


def _is_neuron(node: Node) -> bool:
    if node.kernel not in KERNELS or row_of(KERNELS[node.kernel])["family"] != "neuron":
        return False
    return set(node.arguments) <= _NEURON_ARGUMENTS and node.kernel != "NeuronPReLU" and not node.result_dtype


def _is_sum(node: Node) -> bool:
    return node.kernel == "Add" and set(node.arguments) <= _SUM_ARGUMENTS and len(set(node.sources)) == 2


def _is_product(node: Node) -> bool:
    return node.kernel == "Multiply" and set(node.arguments) <= _PRODUCT_ARGUMENTS and len(set(node.sources)) == 2


@dataclass
class Function:
    """Nodes that compute a value from another one, each pixel by itself."""

    source: str
    nodes: list[Node]

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the results for some values."""
        found = {self.source: np.ascontiguousarray(values, np.float32).reshape(1, 1, -1, 1)}
        for node in self.nodes:
            found[node.name] = KERNELS[node.kernel](**node.arguments)(*(found[source] for source in node.sources))
        return found[self.nodes[-1].name].reshape(-1)


@dataclass
class Places:
    """The values to store in 8 bits.

    Attributes
    ----------
    chosen : set of str
    direct : set of str
        Those that others than functions read.
    pooled : dict
        Results of max pooling, with the value whose steps they have.
    functions : dict
        Values that are functions of another chosen one, by name.
    convolved : set of str
        Convolutions and linear layers whose weights become multiples of a step.
    """

    chosen: set[str] = field(default_factory=set)
    direct: set[str] = field(default_factory=set)
    pooled: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    convolved: set[str] = field(default_factory=set)


class _Search:
    def __init__(self, graph: Graph, apart: Mapping[str, str], is_pixel: Callable[[str], bool]) -> None:
        self.graph = graph
        self.apart = apart
        self.is_pixel = is_pixel
        self.nodes = {node.name: node for node in graph.nodes}
        self.roots = self._find_roots()
        self.gates = self._find_gates()
        self.places = Places()

    def _find_roots(self) -> dict[str, str]:
        """Return the values of which others are functions."""
        roots: dict[str, str] = {}
        for node in self.graph.nodes:
            plain = (
                node.kernel in _ARITHMETIC and set(node.arguments) <= _ARITHMETIC_ARGUMENTS and not node.result_dtype
            )
            if not _is_neuron(node) and not plain:
                continue
            of = {roots.get(source, source) for source in node.sources}
            if len(of) == 1:
                roots[node.name] = of.pop()
        return roots

    def _find_gates(self) -> set[str]:
        """Return small convolutions of pixels that all pixels of an image are multiplied with.

        Their values and weights stay floats: conversions would take longer, and a step of a gate changes a channel.
        """
        found: set[str] = set()
        left = [s for node in self.graph.nodes if _is_product(node) for s in node.sources if self.is_pixel(s)]
        while left:
            node = self.nodes.get(left.pop())
            if node is None or not all(self.is_pixel(source) for source in node.sources):
                continue
            if _has_bytes(node):
                if np.size(node.arguments["weight"]) > _MAX_PIXEL_WEIGHTS or node.name in found:
                    continue
                found.add(node.name)
            elif node.name not in self.roots:
                continue
            left += node.sources
        return found

    def run(self) -> Places:
        places = self.places
        size = -1
        while size != len(places.chosen) + len(places.convolved):
            size = len(places.chosen) + len(places.convolved)
            for node in self.graph.nodes:
                self._visit(node)
        for name in places.chosen & set(self.roots):
            root = self.roots[name]
            if root in places.chosen and (function := self._function(root, name)):
                places.functions[name] = function
        return places

    def _is_stored(self, name: str) -> bool:
        """Return whether the engine computes the value's numbers without values between, if it has numbers."""
        root = self.roots.get(name, name)
        is_convolved = root in self.nodes and root not in self.gates and _has_bytes(self.nodes[root])
        return is_convolved or name in self.places.chosen or root in self.places.chosen

    def _visit(self, node: Node) -> None:
        places = self.places
        chosen, name = places.chosen, node.name
        if _has_bytes(node) and name not in self.gates and self._is_fast_behind(node):
            places.convolved.add(name)
            self._choose(node.sources[0])
        if _is_sum(node) and (name in chosen or any(source in places.convolved for source in node.sources)):
            self._choose(name, *node.sources)
        if name not in chosen:
            return
        if name in self.roots:
            root = self.roots[name]
            if root in places.convolved or (root in self.nodes and _is_sum(self.nodes[root]) and self._is_stored(root)):
                chosen.add(root)
        elif _is_product(node):
            images = [source for source in node.sources if not self.is_pixel(source)]
            if images and all(self._is_stored(source) for source in images):
                self._choose(*images)
        elif node.kernel == "PoolingMax":
            places.pooled[name] = node.sources[0]
            self._choose(node.sources[0])

    def _choose(self, *names: str) -> None:
        self.places.chosen.update(names)
        self.places.direct.update(names)

    def _is_fast_behind(self, node: Node) -> bool:
        """Return whether an activation that is apart is a table, or one that the engine applies to sums of bytes."""
        if node.name not in self.apart:
            return True
        after = self.nodes[self.apart[node.name]]
        return after.name in self.places.chosen or after.arguments["type"] in _GATES

    def _function(self, root: str, name: str) -> Function | None:
        needed = {name}
        for node in reversed(self.graph.nodes):
            if node.name in needed:
                needed |= {source for source in node.sources if source != root}
        nodes = [node for node in self.graph.nodes if node.name in needed]
        return Function(root, nodes) if len(nodes) <= _MAX_FUNCTION else None


def find_places(graph: Graph, apart: Mapping[str, str], is_pixel: Callable[[str], bool]) -> Places:
    """Return the values of the graph to store in 8 bits.

    `apart`: activations behind convolutions, by the latter. `is_pixel` tells of values whether they are images of one
    pixel.
    """
    return _Search(graph, apart, is_pixel).run()
