# SPDX-License-Identifier: Apache-2.0
"""Reading of a Trainer's model as a graph with named parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from ..graph import Graph
from ..kernels import KERNELS
from .initial import complete
from .operations import drawn_seed
from .parameters import TRACKED, owner_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Model:
    """A graph, and the shapes of the source model's parameters and statistics; None if the graph is the source."""

    graph: Graph
    reference: dict[str, tuple[int, ...]] | None
    frozen: tuple[str, ...] = ()  # layers whose parameters require no gradient
    arrays: Mapping[str, Any] = field(default_factory=dict)  # the source model's state_dict


def read(model: Any, state_dict: Mapping[str, Any] | None, input_shapes: Any, seed: int) -> Model:
    """Read a list of layers, a torch.nn.Module or a Graph, and copy its arrays, except for weights of convolutions.

    Raises
    ------
    TypeError
        "model (int) is not a list of layers, a torch.nn.Module or a Graph.", a state_dict for a model with its own.
    mpscnn.ImportError
        Errors of the readers.
    """
    found = _read(model, state_dict, input_shapes, seed)
    # Copied, because kernels may read arrays in place, and the graph is used again: training the module would change
    # them. Kernels copy weights when they are made; Trainer does so for the graph where it needs them.
    graph = found.graph.copy()
    graph.nodes = [
        node.with_(arguments={name: _copied(name, value) for name, value in node.arguments.items()})
        for node in graph.nodes
    ]
    return replace(found, graph=graph)


def _copied(name: str, value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) and name != "weight" else value


def _read(model: Any, state_dict: Mapping[str, Any] | None, input_shapes: Any, seed: int) -> Model:
    from .. import loading

    if isinstance(model, Graph):
        _check_none(state_dict, "a Graph")
        return Model(model, None)
    if isinstance(model, Sequence) and not isinstance(model, (str, bytes)):
        from ..importing import layer_list

        if state_dict is not None and not isinstance(state_dict, Mapping):
            _checks.refuse(state_dict, "state_dict", "a mapping of arrays")
        layers, arrays = complete(model, state_dict or {}, seed)
        graph = layer_list.read_layers(layers, arrays, input_shapes=input_shapes, in_training=True)
        for i, node in enumerate(graph.nodes):
            if node.kernel == "Dropout":  # the importer gives each layer a different seed
                drawn = drawn_seed(seed, node.arguments["seed"])
                graph.nodes[i] = node.with_(arguments={**node.arguments, "seed": drawn})
        for name, kind, *_ in layers:
            if kind.startswith("InstanceNorm") and f"{name}.running_mean" in arrays:
                raise NotImplementedError(_INSTANCES.format(f'layer "{name}" ({kind})'))
        shapes = {key: tuple(np.shape(array)) for key, array in arrays.items() if not key.endswith(TRACKED)}
        return Model(graph, shapes, arrays=arrays)
    if any(kind.__module__ == "torch.nn.modules.module" for kind in type(model).__mro__):
        _check_none(state_dict, "a module")
        graph = loading.read(model, input_shapes=input_shapes, options={"free_size": False})
        reference = {key: tuple(value.shape) for key, value in model.named_parameters(remove_duplicate=False)}
        reference |= {key: tuple(value.shape) for key, value in model.named_buffers() if _is_statistic(key)}
        _check_module(model, graph, reference)
        _take_momentum(model, graph, reference)
        return Model(graph, reference, tuple(_frozen(model)), model.state_dict())
    raise TypeError(f"model ({type(model).__name__}) is not a list of layers, a torch.nn.Module or a Graph.")


_INSTANCES = "{} has running statistics, which MPS's instance normalization has not in training."


def _take_momentum(module: Any, graph: Graph, reference: Mapping[str, tuple[int, ...]]) -> None:
    """Set each layer's momentum from the module, because a traced graph has 0 for None."""
    own = {name: part.momentum for name, part in module.named_modules() if hasattr(part, "num_batches_tracked")}
    for i, node in enumerate(graph.nodes):
        owner = owner_of(node.name, node.origin, reference)
        if "momentum" in node.training and owner in own:
            graph.nodes[i] = node.with_(training={**node.training, "momentum": own[owner]})


def _is_statistic(key: str) -> bool:
    return key.endswith((".running_mean", ".running_var"))


def _check_none(state_dict: Any, what: str) -> None:
    if state_dict is not None:
        raise TypeError(f"state_dict was given; {what} has its own arrays.")


def _check_module(module: Any, graph: Graph, reference: Mapping[str, tuple[int, ...]]) -> None:
    """Reject modules that a trace in eval mode changes: with dropout, random slopes, or shared parameters."""
    for name, part in module.named_modules():
        if "Dropout" in type(part).__name__ and getattr(part, "p", None):
            raise NotImplementedError(
                f'the module "{name}" ({type(part).__name__}) is gone from a traced graph: give a list of layers.'
            )
        if type(part).__name__ == "RReLU" and part.lower != part.upper:
            raise NotImplementedError(
                f'the module "{name}" (RReLU) has random slopes in training, which MPS has not: give LeakyReLU.'
            )
        if "InstanceNorm" in type(part).__name__ and getattr(part, "running_mean", None) is not None:
            raise NotImplementedError(_INSTANCES.format(f'the module "{name}" ({type(part).__name__})'))
    owners = {value.data_ptr(): key for key, value in module.state_dict().items() if value.numel()}
    for node in graph.nodes:
        if node.kernel not in KERNELS:
            continue
        for argument in ("weight", "gamma"):
            value = node.arguments.get(argument)
            key = f"{owner_of(node.name, node.origin, reference)}.weight"
            owner = owners.get(value.__array_interface__["data"][0]) if isinstance(value, np.ndarray) else None
            if owner is not None and owner != key:
                raise NotImplementedError(
                    f'node "{node.name}" reads "{owner}", no weight of its own: shared parameters cannot be trained.'
                )


def _frozen(module: Any) -> Iterator[str]:
    for name, part in module.named_modules():
        wanted = [parameter.requires_grad for parameter in part.parameters(recurse=False)]
        if wanted and not any(wanted):
            yield name
        elif not all(wanted):
            raise NotImplementedError(
                f'"{name}": some of its parameters require gradients and some do not; a layer is trained, or is frozen.'
            )
