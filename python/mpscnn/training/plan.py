# SPDX-License-Identifier: Apache-2.0
"""The layers of a network in training, and the recording of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _core
from ..device import Device
from ..graph import CONCATENATE, Graph
from ..optimizers import Optimizer
from .lowering import Operation, Shapes, lower
from .operations import (
    OUTPUT,
    BatchNormalization,
    Concatenation,
    Dropout,
    KernelLayer,
    Layer,
    Recording,
    Sum,
    make_kernel,
)
from .parameters import TRACKED, owner_of, parameters_of


class Plan:
    """Layers in execution order.

    Parameters
    ----------
    graph : Graph
        With one input and one output.
    shapes : mapping of str to (N, H, W, C)
        Shapes of its inputs and nodes.
    reference : mapping of str to shape, optional
        The parameters of the source model; all other arrays of the graph are constant.
    frozen : iterable of str
        Names of nodes, or prefixes of names before a dot, whose parameters are not trained.
    slots : int
        Steps in flight.
    momentum : float, optional
        Momentum of the running statistics of batch normalization; default: each layer's own.
    tracked : mapping of str to int
        Number of batches in the source model's running statistics, by keys of "num_batches_tracked".
    dtype : "float32" or "float16"
        Of all images.
    allow_reduced_precision : bool
        Of convolutions and their gradients.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Shapes,
        reference: Mapping[str, tuple[int, ...]] | None,
        *,
        frozen: Iterable[str],
        slots: int,
        momentum: float | None,
        tracked: Mapping[str, int],
        dtype: str,
        allow_reduced_precision: bool,
        device: Device | None,
    ) -> None:
        (self.input,) = graph.inputs
        self.output = next(iter(graph.outputs.values())).source
        names = list(frozen)
        owners = {node.name: owner_of(node.name, node.origin, reference) for node in graph.nodes}

        def is_frozen(node: str) -> bool:
            return any(_is_of(one, name) for one in (node, owners.get(node, node)) for name in names)

        target = Device() if device is None else device
        operations = lower(
            graph,
            shapes,
            lambda node: is_frozen(node.name),
            differentiates_bounds=target._differentiates_bounds,
        )
        known = [*(operation.name for operation in operations), *(reference or {})]
        unknown = [name for name in names if not any(_is_of(one, name) for one in known)]
        if unknown:
            raise ValueError(f'frozen: no node is named "{unknown[0]}" or starts with it.')
        needed: set[str] = set()
        refused: dict[str, bool] = {}
        self.layers: list[Layer] = []
        self.normalizations: dict[str, BatchNormalization] = {}  # those with running statistics, by their counters
        for operation in operations:
            owner = owners.get(operation.name) or owner_of(operation.name, "", reference)
            stays = is_frozen(operation.name)
            parameters = parameters_of(operation, owner, reference, stays)
            is_trained = any(one.is_trained for one in parameters) and not stays
            wants = [source in needed for source in operation.sources]
            if is_trained or any(wants):
                needed.add(operation.result)
            if operation.refusal and (operation.is_refused or is_trained or any(wants)):
                refused[f'"{owner}" ({operation.refusal})'] = operation.is_refused
            if refused:
                continue  # collect all errors
            layer = _layer(operation, wants, is_trained, device, shapes, slots)
            layer.parameters = parameters
            if allow_reduced_precision and isinstance(layer, KernelLayer):
                layer.allow_reduced_precision()
            if isinstance(layer, BatchNormalization):
                layer.running.momentum = _momentum(operation, reference) if momentum is None else momentum
                key = f"{owner}{TRACKED}"
                layer.running.tracked = tracked.get(key, 0)
                if any(not one.is_trained for one in parameters):
                    self.normalizations[key] = layer
            self.layers.append(layer)
        if refused:
            advice = ": do without, or freeze all layers in front of it (frozen)" * (not all(refused.values()))
            raise NotImplementedError(f"MPS has no gradient of {', '.join(refused)}{advice}.")
        _check_parameters(self.layers, reference or {}, names)
        self._add = make_kernel("Add", device, label="sum of gradients")
        names_of_values = {self.input, *(operation.result for operation in operations)}
        most = max(shapes[name][3] for name in names_of_values if name in shapes)
        self.core = _core._TrainingPlan(shapes[self.output][1:], most, slots, dtype, device)
        self._dropouts = [layer for layer in self.layers if isinstance(layer, Dropout)]
        # Normalizations of one value per channel and image.
        self._single = [
            layer.operation.name
            for layer in self.layers
            if isinstance(layer, BatchNormalization) and tuple(shapes[layer.operation.sources[0]][1:3]) == (1, 1)
        ]

    @property
    def trained(self) -> list[Any]:
        """The layers that the optimizer changes."""
        return [layer for layer in self.layers if layer.is_trained]

    def record(self, optimizer: Optimizer) -> None:
        """Record the forward pass, the loss, the backward pass, and each layer's update."""
        for layer in self.trained:
            layer.prepare(optimizer)
        recording = Recording(self.core, {self.input: 0})
        for layer in self.layers:
            result = layer.operation.result
            recording.values[result] = layer.forward(recording, OUTPUT if result == self.output else None)
        gradients = {self.output: self.core.loss()}
        left = self.trained
        for layer in reversed(self.layers):
            incoming = gradients.pop(layer.operation.result, None)
            if incoming is None or not layer.has_gradient:
                continue
            for name, made in zip(layer.operation.sources, layer.backward(recording, incoming), strict=True):
                if made is None:
                    continue
                gradients[name] = self.core.encode(self._add, [gradients[name], made]) if name in gradients else made
            if layer.in_place:  # at once: the memory of its gradients is then free for those of other layers
                layer.update(recording)
                left.remove(layer)
        for layer in left:  # one after the other: a device may compute adjacent updates together
            layer.update(recording)

    def before_step(self, step: int, images: int) -> None:
        """Set the kernels of a step for a number of images."""
        if images == 1 and self._single:
            raise ValueError(
                f'node "{self._single[0]}": the batch has 1 value of each channel, and batch normalization needs 2.'
            )
        for layer in self._dropouts:
            layer.before_step(self.core, step)


def _is_of(name: str, beginning: str) -> bool:
    return name == beginning or name.startswith(f"{beginning}.")


def _check_parameters(layers: list[Layer], reference: Mapping[str, tuple[int, ...]], frozen: list[str]) -> None:
    """Check that each parameter of the source model is either trained by exactly one layer or frozen."""
    keys = Counter(one.key for layer in layers for one in layer.parameters)
    for key, count in keys.items():
        if count > 1:
            raise NotImplementedError(f'"{key}" is read by {count} nodes: shared parameters cannot be trained.')
    left = [key for key in reference if key not in keys and not any(_is_of(key, name) for name in frozen)]
    if left:
        raise NotImplementedError(
            f"no kernel that MPS can train has {', '.join(map(_quoted, left))}: name what stays as it is in frozen."
        )


def _quoted(text: str) -> str:
    return f'"{text}"'


def _momentum(operation: Operation, reference: Mapping[str, tuple[int, ...]] | None) -> float | None:
    """Return the layer's momentum by PyTorch's convention."""
    momentum: float | None = operation.training.get("momentum", 0.1)
    if reference is None and momentum == 0:
        raise NotImplementedError(
            f'node "{operation.name}": a momentum of 0 in an exported graph, which may stand for the mean over all'
            " batches, momentum=None, too: give batch_norm_momentum, or the module itself."
        )
    if momentum is not None and not 0 <= momentum <= 1:
        raise ValueError(f'node "{operation.name}": momentum ({momentum}) is not between 0 and 1.')
    return momentum


def _layer(
    operation: Operation,
    wants: list[bool],
    is_trained: bool,
    device: Device | None,
    shapes: Shapes,
    slots: int,
) -> Layer:
    if operation.kernel == CONCATENATE:
        return Concatenation(operation, wants, device, [shapes[source][3] for source in operation.sources])
    if operation.kernel == "BatchNormalization":
        return BatchNormalization(operation, wants, is_trained, device, slots)
    kind = {"Dropout": Dropout, "Add": Sum}.get(operation.kernel, KernelLayer)
    if kind is Sum and not _is_plain_sum(operation, shapes):
        kind = KernelLayer
    return kind(operation, wants, is_trained, device)


def _is_plain_sum(operation: Operation, shapes: Shapes) -> bool:
    """Return whether both sources have the gradient of the result, except where it reached a bound."""
    first, second = (shapes.get(source) for source in operation.sources)
    return first is not None and first == second and operation.arguments.keys() <= {"minimum_value", "maximum_value"}
