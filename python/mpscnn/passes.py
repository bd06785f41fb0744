# SPDX-License-Identifier: Apache-2.0
"""Graph passes that run before kernels are made: fewer kernels, the same results up to rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _core
from .descriptors import NeuronDescriptor
from .graph import Graph, Node, signature_of
from .kernels import KERNELS, row_of

_WITH_WEIGHTS = ("Convolution", "ConvolutionTranspose", "FullyConnected")
_LINEAR, _SCALE = "NeuronLinear", "BatchNormalization"
_MAX_SHIFT = 1 << 16  # of a shift, in units of the scale
_WITH_BOUNDS = ("Add", "Subtract", "Multiply", "Divide")
# Arguments that restrict the part of the source or destination that a kernel uses: such nodes are not changed.
_PLACING = (
    "offset",
    "clip_rect",
    "source_feature_channel_offset",
    "source_feature_channel_max_count",
    "destination_feature_channel_offset",
)


def optimize(graph: Graph) -> Graph:
    """Return the graph after all passes."""
    for one in PASSES:
        graph = one(graph)
    return graph


def remove_dead(graph: Graph) -> Graph:
    """Remove nodes that no output depends on."""
    live = {output.source for output in graph.outputs.values()}
    for node in reversed(graph.nodes):
        if node.name in live:
            live.update(node.sources)
    return _with_nodes(graph, [node for node in graph.nodes if node.name in live])


def fold_padding(graph: Graph) -> Graph:
    """Fold a zero padding that only one convolution reads into that convolution."""

    def fold(pad: Node, node: Node) -> Node | None:
        if pad.kernel != "Pad" or node.kernel != "Convolution" or _is_placed(pad) or _is_placed(node):
            return None
        given = dict(pad.arguments)
        before = _pixels(given.pop("padding", 0))
        own = _pixels(node.arguments.get("padding", 0))
        if before is None or own is None or given.pop("edge_mode", "constant") not in ("zero", "constant"):
            return None
        if any(given.pop(name, None) not in (0, 0.0, None) for name in ("value", "channels_before", "channels_after")):
            return None
        given.pop("label", None)
        if given or node.arguments.get("edge_mode", "zero") != "zero":
            return None
        sums = tuple((a[0] + b[0], a[1] + b[1]) for a, b in zip(before, own, strict=True))
        return node.with_(arguments={**node.arguments, "padding": sums})

    return _fold_pairs(graph, fold, keep_first=False)


def fold_scales(graph: Graph) -> Graph:
    """Fold scales and shifts in a row into one, as x / 255, - mean, / std at the input of a model.

    These are NeuronLinear and batch normalizations that only scale and shift, which no trainer trains. Conversions to
    and from images of bytes are left to the engine, which multiplies the numbers themselves.
    """
    bytes_ = {node.name for node in graph.nodes if node.result_dtype}

    def fold(producer: Node, node: Node) -> Node | None:
        if node.result_dtype or bytes_ & {*producer.sources, *node.sources}:
            return None
        first, second = _line(producer), _line(node)
        if first is None or second is None or producer.arguments.get("activation") is not None:
            return None
        if min(first[0].size, second[0].size) > 1 and first[0].size != second[0].size:
            return None
        with np.errstate(all="ignore"):
            # A shift beyond the digits of the values rounds them, and another one back shows it.
            if (np.abs(first[1]) > _MAX_SHIFT * np.abs(first[0])).any():
                return None
            exact = first[0] * second[0], first[1] * second[0] + second[1]
            scale, shift = (values.astype(np.float32) for values in exact)
            tiny = np.finfo(np.float32).tiny
            if not all(np.isfinite(values).all() for values in (scale, shift)) or (np.abs(scale) < tiny).any():
                return None
        if node.kernel == producer.kernel == _LINEAR:
            return node.with_(arguments={**node.arguments, "a": float(scale[0]), "b": float(shift[0])})
        scale, shift = np.broadcast_arrays(scale, shift)
        of = node if node.kernel == _SCALE else producer
        return of.with_(
            arguments={
                **{name: value for name, value in of.arguments.items() if name in ("activation", "label")},
                "gamma": np.ascontiguousarray(scale),
                "beta": np.ascontiguousarray(shift),
                "mean": np.zeros(scale.size, np.float32),
                "variance": np.ones(scale.size, np.float32),
                "epsilon": 0.0,
            }
        )

    return _fold_pairs(graph, fold, keep_first=None)


def fold_batch_normalization(graph: Graph) -> Graph:
    """Fold batch normalization into the weights and bias of the convolution before it."""

    def fold(producer: Node, node: Node) -> Node | None:
        if node.kernel != "BatchNormalization" or producer.kernel not in _WITH_WEIGHTS:
            return None
        given = producer.arguments
        values = scale_and_shift(node)
        if values is None or _is_placed(node) or not _has_plain_weights(producer):
            return None
        scale, shift = values
        weight = np.asarray(given["weight"])
        scaled = _scale_outputs(weight, scale, _argument(producer, "layout"), int(given.get("groups", 1)))
        if scaled is None:
            return None
        bias = np.zeros(len(scale)) if given.get("bias") is None else np.asarray(given["bias"], np.float64)
        return producer.with_(
            arguments={
                **given,
                "weight": scaled,
                "bias": (bias * scale + shift).astype(np.float32),
                "activation": node.arguments.get("activation"),
            }
        )

    return _fold_pairs(graph, fold)


def fuse_neurons(graph: Graph) -> Graph:
    """Fuse an activation into the kernel before it, if that kernel supports it and has no other reader."""

    def fold(producer: Node, node: Node) -> Node | None:
        if node.kernel not in KERNELS or row_of(KERNELS[node.kernel])["family"] != "neuron" or _is_placed(node):
            return None
        given = producer.arguments
        if "activation" in _parameters(producer.kernel) and given.get("activation") is None:
            if int(given.get("sub_pixel_scale_factor", 1)) != 1 and node.kernel == "NeuronPReLU":
                return None  # slopes are per channel of the convolution, before the pixel shuffle
            return producer.with_(arguments={**given, "activation": neuron_descriptor(node.kernel, node.arguments)})
        if producer.kernel in _WITH_BOUNDS and not {"minimum_value", "maximum_value"} & {
            name for name, value in given.items() if value is not None
        }:
            neuron = neuron_descriptor(node.kernel, node.arguments)
            if neuron.type == "relu" and neuron.a == 0:
                return producer.with_(arguments={**given, "minimum_value": 0.0})
            if neuron.type == "relun" and neuron.a == 0 and neuron.b >= 0:
                return producer.with_(arguments={**given, "minimum_value": 0.0, "maximum_value": neuron.b})
        return None

    return _fold_pairs(graph, fold)


def fold_pixel_shuffle(graph: Graph) -> Graph:
    """Fold a pixel shuffle, a sub-pixel convolution that only orders channels, into the convolution before it."""

    def fold(producer: Node, node: Node) -> Node | None:
        order = _shuffled_channels(node)
        given = producer.arguments
        if order is None or producer.kernel != "Convolution" or int(given.get("groups", 1)) != 1:
            return None
        if not _has_plain_weights(producer.with_(arguments={**given, "activation": None})):
            return None
        neuron = given.get("activation")
        if neuron is not None and (not isinstance(neuron, NeuronDescriptor) or neuron.type == "prelu"):
            return None  # slopes are per channel
        layout, weight = _argument(producer, "layout"), np.asarray(given["weight"])
        if "O" not in layout or weight.shape[layout.index("O")] != len(order):
            return None
        bias = given.get("bias")
        return producer.with_(
            arguments={
                **given,
                "weight": np.ascontiguousarray(np.take(weight, order, layout.index("O"))),
                "bias": None if bias is None else np.ascontiguousarray(np.asarray(bias)[order]),
                "sub_pixel_scale_factor": node.arguments["sub_pixel_scale_factor"],
            }
        )

    return _fold_pairs(graph, fold)


PASSES: tuple[Callable[[Graph], Graph], ...] = (
    remove_dead,
    fold_padding,
    fold_scales,
    fold_batch_normalization,
    fuse_neurons,
    fold_pixel_shuffle,
)


def neuron_descriptor(kernel: str, arguments: dict[str, Any]) -> NeuronDescriptor:
    """Return the activation that a neuron kernel computes."""
    bound = signature_of(KERNELS[kernel]).bind(**arguments)
    bound.apply_defaults()
    given = bound.arguments
    if kernel == "Neuron":
        data = given.get("data")
        return NeuronDescriptor(given["type"], given["a"], given["b"], given["c"], () if data is None else list(data))
    name = _neuron_types()[_neuron_type(kernel)]
    if kernel == "NeuronPReLU":
        return NeuronDescriptor(name, data=[float(value) for value in np.asarray(given["a"]).reshape(-1)])
    a, b, c = (float(given[letter]) if letter in given else None for letter in "abc")
    return NeuronDescriptor(name, a, b, c)


def _neuron_type(kernel: str) -> Any:
    variant = row_of(KERNELS[kernel])["variant"]
    return list(_neuron_types())[variant]


@functools.cache
def _neuron_types() -> dict[Any, Any]:
    """Return the first name of each type of neuron, in order."""
    found: dict[Any, Any] = {}
    for row in _core.neuron_names():
        found.setdefault(row["type"], row["name"])
    return found


def _argument(node: Node, name: str) -> Any:
    return node.arguments.get(name, signature_of(KERNELS[node.kernel]).parameters[name].default)


def _parameters(kernel: str) -> frozenset[str]:
    return frozenset(signature_of(KERNELS[kernel]).parameters) if kernel in KERNELS else frozenset()


def _is_placed(node: Node) -> bool:
    return any(node.arguments.get(name) not in (None, 0) for name in _PLACING)


def _has_plain_weights(node: Node) -> bool:
    given = node.arguments
    return (
        not _is_placed(node)
        and given.get("activation") is None
        and all(given.get(name) is None for name in ("ranges", "lookup_table", "kernel_dtype"))
        and int(given.get("sub_pixel_scale_factor", 1)) == 1
        and not hasattr(given["weight"], "load")
    )


def _shuffled_channels(node: Node) -> NDArray[np.intp] | None:
    """Return the channel that each output of a sub-pixel convolution copies; None if it does anything else."""
    given = node.arguments
    if node.kernel != "Convolution" or int(given.get("sub_pixel_scale_factor", 1)) == 1:
        return None
    if set(given) - {"weight", "sub_pixel_scale_factor", "label"} or hasattr(given["weight"], "load"):
        return None
    weight = np.asarray(given["weight"])
    if weight.ndim != 4 or weight.shape != (weight.shape[0],) * 2 + (1, 1):
        return None
    ones = weight[:, :, 0, 0] == 1
    order = ones.argmax(1)
    is_permutation = ones.sum() == np.count_nonzero(weight) == len(weight) and len({*order.tolist()}) == len(weight)
    return order if is_permutation else None


def _pixels(padding: Any) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return ((top, bottom), (left, right)); None for a policy."""
    if isinstance(padding, int):
        return ((padding, padding), (padding, padding))
    if not isinstance(padding, (tuple, list)):
        return None
    h, w = padding
    return ((h, h), (w, w)) if isinstance(h, int) else ((h[0], h[1]), (w[0], w[1]))


def scale_and_shift(node: Node) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return scale and shift of each channel; None if they come from a data source or a state."""
    given = node.arguments
    if any(given.get(name) is None or hasattr(given[name], "load") for name in ("gamma", "mean", "variance")):
        return None
    gamma, mean, variance = (np.asarray(given[name], np.float64) for name in ("gamma", "mean", "variance"))
    epsilon = given.get("epsilon")
    scale = gamma / np.sqrt(variance + (1e-5 if epsilon is None else float(epsilon)))  # the kernel's default for arrays
    beta = 0.0 if given.get("beta") is None else np.asarray(given["beta"], np.float64)
    return scale, beta - mean * scale


def _line(node: Node) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return scale and shift of a node that computes nothing else, and that no trainer trains; otherwise None."""
    if _is_placed(node):
        return None
    if node.kernel == _LINEAR and set(node.arguments) <= {"a", "b", "label"}:
        a, b = (np.array([float(_argument(node, name))]) for name in "ab")
        return a, b
    known = {"gamma", "beta", "mean", "variance", "epsilon", "activation", "label"}
    if node.kernel != _SCALE or node.training != {"statistics": "none"} or not set(node.arguments) <= known:
        return None
    with np.errstate(all="ignore"):
        values = scale_and_shift(node)
    if values is None:
        return None
    return np.atleast_1d(values[0]), np.broadcast_to(values[1], np.shape(np.atleast_1d(values[0])))


def _scale_outputs(
    weight: NDArray[Any], scale: NDArray[np.float64], layout: str, groups: int
) -> NDArray[np.float32] | None:
    """Multiply weights by a factor per output channel; return None for a layout without that axis."""
    if weight.dtype not in (np.float32, np.float64):
        return None  # the product would be rounded once more than in the kernel
    if layout == "IOHW":
        grouped = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        product = grouped * scale.reshape(groups, 1, -1, 1, 1)
        return np.ascontiguousarray(product.reshape(weight.shape), np.float32)
    if layout not in ("OIHW", "OHWI", "HWIO", "C1HW", "OI"):
        return None
    axis = layout.index("O") if "O" in layout else 0  # C1HW: a filter for each output channel
    if axis >= weight.ndim or weight.shape[axis] != len(scale):
        return None
    shape = [1] * weight.ndim
    shape[axis] = -1
    return np.ascontiguousarray(weight * scale.reshape(shape), np.float32)


def _fold_pairs(graph: Graph, fold: Callable[[Node, Node], Node | None], *, keep_first: bool | None = True) -> Graph:
    """Replace a node and its only reader by one node, wherever `fold` returns one.

    The new node has the sources of the first and the name of the second, which others read. `keep_first`: it has the
    kernel of the first, or of the second; None: of the node that `fold` returns.
    """
    while True:
        consumers, outputs = graph.consumers(), {output.source for output in graph.outputs.values()}
        by_name = {node.name: node for node in graph.nodes}
        replaced: dict[str, Node | None] = {}
        for node in graph.nodes:
            if len(node.sources) != 1 or node.sources[0] not in by_name or node.sources[0] in replaced:
                continue
            producer = by_name[node.sources[0]]
            if len(consumers[producer.name]) != 1 or producer.name in outputs or producer.result_dtype:
                continue
            folded = fold(producer, node)
            if folded is None:
                continue
            kept = folded if keep_first is None else producer if keep_first else node
            origin = ", ".join(part for part in (producer.origin, node.origin) if part)
            replaced[producer.name] = None
            replaced[node.name] = folded.with_(
                name=node.name,
                kernel=kept.kernel,
                sources=producer.sources,
                origin=origin,
                result_dtype=node.result_dtype,
            )
        if not replaced:
            return graph
        nodes = [replaced.get(node.name, node) for node in graph.nodes]
        graph = _with_nodes(graph, [node for node in nodes if node is not None])


def _with_nodes(graph: Graph, nodes: list[Node]) -> Graph:
    other = graph.copy()
    other.nodes = nodes
    other._names = {*other.inputs, *(node.name for node in nodes)}
    return other
