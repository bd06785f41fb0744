# SPDX-License-Identifier: Apache-2.0
"""Import of a torch.nn.Module for other heights and widths than those of its first import."""

from __future__ import annotations

import collections
import copy
import copyreg
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..graph import Graph
from . import torch_export, torch_module


def reader(
    graph: Graph, module: torch.nn.Module, input_shapes: Any, example_inputs: Any
) -> Callable[[Mapping[str, tuple[int, int, int]], int | None], Graph]:
    """Return a function that reads the module for extents (H, W, C) of each input, and perhaps a number of images."""
    try:
        return Again(graph, module, input_shapes, example_inputs)
    except Exception as error:  # of the module's own code
        reason = f"{type(module).__name__} cannot be copied: {torch_export.first_line(error)}"

    def refuse(sizes: Mapping[str, tuple[int, int, int]], batch: int | None = None) -> Graph:
        raise ValueError(reason)

    return refuse


class Again:
    """Reader of a module for other heights and widths.

    It has a copy of the module, with the same parameters, whose mode and attributes are its own.

    Parameters
    ----------
    graph : Graph
        The first import's.
    module, input_shapes, example_inputs
        See `torch_module.read`.
    """

    def __init__(self, graph: Graph, module: torch.nn.Module, input_shapes: Any, example_inputs: Any) -> None:
        module = module.module if isinstance(module, torch.nn.DataParallel) else module
        tensors = {id(value): value for value in (*module.parameters(), *module.buffers())}
        for part in module.modules():
            tensors |= {id(value): value for value in vars(part).values() if isinstance(value, torch.Tensor)}
        aliases: dict[int, Any] = {key: _alias(value) for key, value in tensors.items()}
        self._versions = [(value, _version(value)) for value in aliases.values()]
        self._module = _copied(module, aliases)
        self._name = type(module).__name__
        self._layouts = {key: spec.layout for key, spec in graph.inputs.items()}
        self._attempt = max(torch_export.LAYOUTS[len(layout)].index(layout) for layout in self._layouts.values())
        self._has_shapes = input_shapes is not None
        if self._has_shapes:
            is_one = not isinstance(input_shapes, Mapping) and all(isinstance(extent, int) for extent in input_shapes)
            self._given: Any = [tuple(input_shapes)] if is_one else copy.copy(input_shapes)
        else:
            self._given = pytree.tree_map(
                lambda value: _like(value) if hasattr(value, "shape") else value, example_inputs
            )
        if isinstance(self._given, Mapping) and not set(self._given) >= set(self._layouts):
            raise ValueError(f"the inputs {', '.join(self._layouts)} are no arguments of the module.")

    def __call__(self, sizes: Mapping[str, tuple[int, int, int]], batch: int | None = None) -> Graph:
        """Return the graph for these extents (H, W, C) of each input, and this number of images, if it is given."""
        if any(_version(value) != before for value, before in self._versions):
            raise ValueError("the module's parameters were changed after its import: load it again.")

        def changed(shape: Sequence[int], name: str) -> tuple[int, ...]:
            extents = dict(zip("HWC", sizes[name], strict=True)) | ({} if batch is None else {"N": batch})
            return tuple(extents.get(axis, extent) for axis, extent in zip(self._layouts[name], shape, strict=True))

        names = iter(self._layouts)
        given: Any
        if isinstance(self._given, Mapping):
            given = dict(self._given)
            for name in self._layouts:
                one = given[name]
                given[name] = changed(one, name) if self._has_shapes else _like(one, changed(one.shape, name))
        elif self._has_shapes:
            given = [changed(shape, next(names)) for shape in self._given]
        else:
            given = pytree.tree_map(
                lambda one: _like(one, changed(one.shape, next(names))) if isinstance(one, torch.Tensor) else one,
                self._given,
            )
        argument = {"input_shapes" if self._has_shapes else "example_inputs": given}
        return torch_module.read(
            self._module,
            **argument,
            free_size=False,
            name=self._name,
            one_batch=batch is not None,
            attempt=self._attempt,
        )


def _copied(module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    """Return copy.deepcopy(module, memo), in less time: most attributes are constants or empty containers."""
    parts = [part for part in module.modules() if _has_plain_state(type(part))]
    memo |= {id(part): object.__new__(type(part)) for part in parts}
    for part in reversed(parts):
        of_part: Any = getattr(part, "__getstate__", None)
        state: dict[str, Any] = of_part() if of_part else dict(vars(part))
        for name, value in state.items():
            if type(value) in _CONTAINERS and not value and id(value) not in memo:
                memo[id(value)] = type(value)()
            state[name] = value if type(value) in _CONSTANTS else copy.deepcopy(value, memo)
        memo[id(part)].__setstate__(state)
    return copy.deepcopy(module, memo)


def _has_plain_state(kind: type[torch.nn.Module]) -> bool:
    """Return whether copy.deepcopy makes an object without calling __init__, and copies its attributes."""
    is_default = all(getattr(kind, name, None) is getattr(torch.nn.Module, name, None) for name in _STATE)
    return is_default and kind not in copyreg.dispatch_table


_STATE = (
    *("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__new__"),
    *("__getnewargs__", "__getnewargs_ex__", "__slots__"),
)
_CONTAINERS = (dict, collections.OrderedDict, list, set)
_CONSTANTS = (bool, int, float, str, type(None))


def _like(value: Any, shape: Sequence[int] | None = None) -> torch.Tensor:
    """Return zeros with the type of a tensor or array, and its shape or another."""
    one = torch.as_tensor(value)
    return torch_module.zeros_like(one, one.shape if shape is None else shape)


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same memory, which stays as it is if the other is moved or converted."""
    alias = tensor.detach()
    return torch.nn.Parameter(alias, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else alias


def _version(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place; 0 for those that do not count."""
    return 0 if tensor.is_inference() else tensor._version
