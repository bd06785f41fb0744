# SPDX-License-Identifier: Apache-2.0
"""Lowering of a graph for training: kernels without a gradient in MPS are replaced by kernels that have one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..descriptors import NeuronDescriptor
from ..graph import ADAPTIVE_POOL, CONCATENATE, INTERPOLATE, METAL_FUNCTION, Graph, Node
from ..kernels import KERNELS, row_of
from ..passes import neuron_descriptor, scale_and_shift

Shapes = Mapping[str, "tuple[int, int, int, int]"]


@dataclass(frozen=True)
class Operation:
    """One kernel of a network in training.

    Attributes
    ----------
    name : str
        Name of the node; its parameters are named after it.
    kernel : str
    sources : tuple of str
    result : str
        Name of its value.
    arguments : dict
        Arguments of the kernel's class.
    is_constant : bool
        Whether its weights are constants, not parameters.
    training : dict
        Attribute of its `Node`.
    refusal : str
        Reason why it cannot be differentiated; empty if it can.
    is_refused : bool
        Whether it cannot run in training at all, even if no gradient is needed.
    """

    name: str
    kernel: str
    sources: tuple[str, ...]
    result: str
    arguments: dict[str, Any]
    is_constant: bool = False
    training: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""
    is_refused: bool = False


def lower(
    graph: Graph, shapes: Shapes, is_frozen: Callable[[Node], bool], *, differentiates_bounds: bool
) -> list[Operation]:
    """Return equivalent operations in execution order; `refusal` marks those without a gradient in MPS.

    Parameters
    ----------
    graph : Graph
        Not changed.
    shapes : mapping of str to (N, H, W, C)
        Shapes of its inputs and nodes.
    is_frozen : callable
        Takes a node and returns whether its parameters are not trained.
    differentiates_bounds : bool
        Whether gradients of sums are 0 where the sum reached a bound.
    """
    operations: list[Operation] = []
    for node in _live(graph):
        same = Operation(node.name, node.kernel, node.sources, node.name, node.arguments, training=node.training)
        try:
            operations += _lower(same, node, shapes, is_frozen(node))
        except NotImplementedError as reason:
            operations.append(replace(same, refusal=str(reason), is_refused=isinstance(reason, _RefusedError)))
    outputs = {output.source for output in graph.outputs.values()}
    joined = _join(_join(operations, outputs, _reductions), outputs, _activations)
    return _join(joined, outputs, _bounds) if differentiates_bounds else joined


def _live(graph: Graph) -> list[Node]:
    """Return the nodes that an output depends on."""
    wanted = {output.source for output in graph.outputs.values()}
    live: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in wanted:
            wanted.update(node.sources)
            live.append(node)
    return live[::-1]


class _RefusedError(NotImplementedError):
    """The node cannot run in a network in training."""


def _lower(same: Operation, node: Node, shapes: Shapes, is_frozen: bool) -> list[Operation]:
    if node.kernel == CONCATENATE:
        for source in node.sources[:-1]:
            if shapes[source][3] % 4:
                raise _RefusedError(f"Concatenate behind {shapes[source][3]} channels, no multiple of 4")
        return [same]
    if node.result_dtype:
        raise _RefusedError(f"{node.kernel} with a result of {node.result_dtype}, which is rounded to 256 steps")
    if node.kernel in (INTERPOLATE, ADAPTIVE_POOL):
        raise _RefusedError(
            f"{node.kernel}, whose kernels depend on its sizes: give the module or the layers, or load the model with"
            ' options={"free_size": False}'
        )
    if node.kernel == METAL_FUNCTION:
        raise _RefusedError(f"the Metal function {node.arguments['function'].name}, which has no gradient")
    if node.kernel in _REDUCTIONS and not node.arguments:
        pooling, axis = _REDUCTIONS[node.kernel]
        size = (shapes[node.sources[0]][1], 1) if axis == "H" else (1, shapes[node.sources[0]][2])
        return [replace(same, kernel=pooling, arguments={"kernel_size": size, "stride": size})]
    if node.arguments.get("sub_pixel_scale_factor", 1) != 1:
        return [_as_transposed(same)]
    if node.training.get("statistics") == "none":
        same = _as_convolution(same, node)
    if node.training.get("statistics") == "image":
        raise _RefusedError(_INSTANCES)
    if node.kernel == "NeuronPReLU" and not is_frozen:
        raise _RefusedError("NeuronPReLU, with respect to its slopes; in frozen they stay as they are")
    if not row_of(KERNELS[node.kernel])["gradient"]:
        raise NotImplementedError(node.kernel)
    activation = same.arguments.get("activation")
    if activation is None or same.kernel == "BatchNormalization":
        return [same]
    # MPS does not differentiate an activation inside of a convolution.
    inner = f"{node.name}: before the activation"
    arguments = {name: value for name, value in same.arguments.items() if name != "activation"}
    return [
        replace(same, result=inner, arguments=arguments),
        Operation(f"{node.name}: activation", "Neuron", (inner,), node.name, _neuron(activation)),
    ]


def _neuron(activation: Any) -> dict[str, Any]:
    """Return the arguments of `Neuron` for another kernel's activation."""
    if isinstance(activation, str):
        return {"type": activation}
    given = activation if isinstance(activation, NeuronDescriptor) else activation.neuron_descriptor
    if given.data:
        raise NotImplementedError("an activation with slopes for each channel, with respect to these")
    return {"type": given.type, "a": given.a, "b": given.b, "c": given.c}


_INSTANCES = "an instance normalization with running statistics, which MPS's has not in training"

# Reductions over a whole axis become poolings with a window of that size.
_REDUCTIONS = {
    "ReduceRowMean": ("PoolingAverage", "W"),
    "ReduceRowMax": ("PoolingMax", "W"),
    "ReduceColumnMean": ("PoolingAverage", "H"),
    "ReduceColumnMax": ("PoolingMax", "H"),
}


def _as_convolution(operation: Operation, node: Node) -> Operation:
    """Return scale and shift per channel as a depth-wise convolution, because batch normalization uses statistics."""
    values = scale_and_shift(node)
    if values is None:
        raise NotImplementedError("BatchNormalization without arrays")
    scale, shift = values
    arguments = {
        "weight": scale.astype(np.float32).reshape(-1, 1, 1, 1),
        "bias": shift.astype(np.float32),
        "groups": len(scale),
        "activation": node.arguments.get("activation"),
    }
    return replace(operation, kernel="Convolution", arguments=arguments, is_constant=True)


def _as_transposed(operation: Operation) -> Operation:
    """Return a 1 x 1 sub-pixel convolution as a transposed one, which has a gradient.

    Channels of the former are position-major: channel (i * r + j) * C + c becomes pixel (i, j) of channel c.
    """
    arguments = dict(operation.arguments)
    r = arguments.pop("sub_pixel_scale_factor")
    weight = np.asarray(arguments.pop("weight"))
    if arguments or weight.shape[2:] != (1, 1):
        raise NotImplementedError("Convolution with a sub_pixel_scale_factor and more than one tap, or a bias")
    outputs, inputs = weight.shape[:2]
    tiles = weight.reshape(r, r, outputs // (r * r), inputs).transpose(3, 2, 0, 1)
    arguments = {"weight": np.ascontiguousarray(tiles), "stride": r}
    return replace(operation, kernel="ConvolutionTranspose", arguments=arguments, is_constant=True)


def _join(
    operations: list[Operation],
    outputs: set[str],
    arguments_of: Callable[[Operation, Operation], dict[str, Any] | None],
) -> list[Operation]:
    """Merge an operation and its only reader into one, if `arguments_of` returns arguments for it."""
    readers: dict[str, int] = {}
    for operation in operations:
        for source in operation.sources:
            readers[source] = readers.get(source, 0) + 1
    joined: dict[str, Operation] = {}  # by their results
    for operation in operations:
        first = joined.get(operation.sources[0])
        is_alone = first is not None and first.result not in outputs and readers[first.result] == 1
        if first is not None and is_alone and not (first.refusal or operation.refusal):
            arguments = arguments_of(first, operation)
            if arguments is not None:
                del joined[first.result]
                joined[operation.result] = replace(first, result=operation.result, arguments=arguments)
                continue
        joined[operation.result] = operation
    return list(joined.values())


def _reductions(first: Operation, second: Operation) -> dict[str, Any] | None:
    """Merge a pooling over rows and one over columns, in either order."""
    if {first.kernel, second.kernel} not in ({"PoolingAverage"}, {"PoolingMax"}):
        return None
    if any(set(operation.arguments) != {"kernel_size", "stride"} for operation in (first, second)):
        return None
    a, b = first.arguments["kernel_size"], second.arguments["kernel_size"]
    if (
        not (isinstance(a, tuple) and isinstance(b, tuple))
        or a != first.arguments["stride"]
        or b != second.arguments["stride"]
    ):
        return None
    is_crossed = (a[0] == 1 and b[1] == 1) or (a[1] == 1 and b[0] == 1)
    size = (a[0] * b[0], a[1] * b[1])
    return {"kernel_size": size, "stride": size} if is_crossed else None


def _activations(first: Operation, second: Operation) -> dict[str, Any] | None:
    """Merge an activation into the batch normalization before it, whose gradient kernel includes it."""
    if first.kernel != "BatchNormalization" or first.arguments.get("activation") is not None:
        return None
    if not second.kernel.startswith("Neuron"):
        return None
    return {**first.arguments, "activation": neuron_descriptor(second.kernel, second.arguments)}


def _bounds(first: Operation, second: Operation) -> dict[str, Any] | None:
    """Merge a rectifier into the sum before it: it becomes the sum's lower bound."""
    if first.kernel != "Add" or first.arguments or not second.kernel.startswith("Neuron"):
        return None
    neuron = neuron_descriptor(second.kernel, second.arguments)
    return {"minimum_value": 0.0} if neuron.type == "relu" and neuron.a == 0 else None
