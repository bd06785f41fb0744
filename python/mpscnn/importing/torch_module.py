# SPDX-License-Identifier: Apache-2.0
"""Import of a torch.nn.Module, by torch.export."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..errors import InvalidModelError, UnsupportedOperatorError
from ..graph import Graph
from . import torch_export

Shapes = Sequence[int] | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]


def read(
    module: torch.nn.Module,
    *,
    example_inputs: Any = None,
    input_shapes: Shapes | None = None,
    free_size: bool = True,
    name: str | None = None,
) -> Graph:
    """Read the module in eval mode as a Graph.

    torch.export traces the module in eval mode; its own mode is restored afterwards. Parameters are not copied. Heights
    and widths are free if the trace is valid for all of them; conditions in Python code are evaluated for the example
    only.

    Parameters
    ----------
    module : torch.nn.Module
        Its inputs and outputs are tensors whose first axis is the batch.
    example_inputs : Tensor, tuple or dict, optional
        Arguments of the module: one tensor, positional arguments, or keyword arguments. Values do not matter.
    input_shapes : tuple of int, list of them, or dict, optional
        Instead of `example_inputs`: the shape of the input, (N, C, H, W), shapes of several, or shapes by keyword.
    free_size : bool
        False: fix heights and widths to those of the example; the export takes a third of the time.
    name : str, optional
        Name in errors; default: its class.

    Raises
    ------
    UnsupportedOperatorError
        No kernel computes some operators (all are listed), or torch.export cannot trace the module.
    InvalidModelError
        The module does not run with these inputs, or an input or parameter does not fit into an image.
    TypeError, ValueError
        `module` is not a module, not exactly one of `example_inputs` and `input_shapes` is given, or a shape is wrong.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module ({type(module).__name__}) is not a torch.nn.Module.")
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("module is a torch.jit.ScriptModule, which torch.export does not take; give the module itself.")
    if (example_inputs is None) == (input_shapes is None):
        both = "neither" if example_inputs is None else "both"
        raise ValueError(f"example_inputs and input_shapes: {both} given, not one of them.")
    if isinstance(module, torch.nn.DataParallel):
        module = module.module
    name = type(module).__name__ if name is None else name
    args, kwargs = _inputs(example_inputs) if input_shapes is None else _examples(module, input_shapes)
    with _in_eval_mode(module), torch_export.quiet():
        program = _export(module, args, kwargs, free_size, name)
        return torch_export.read(program, name=name)


@contextlib.contextmanager
def _in_eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Set eval mode inside of the block, and restore the mode of each submodule, which may differ."""
    modes = [(part, part.training) for part in module.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _first_parameter(module: torch.nn.Module) -> torch.Tensor:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor
    return torch.zeros(())


def _inputs(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    kwargs = dict(example) if isinstance(example, Mapping) else {}
    args = () if kwargs else tuple(example) if isinstance(example, (tuple, list)) else (example,)
    found: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(
        lambda value: torch.from_numpy(value) if isinstance(value, np.ndarray) else value, (args, kwargs)
    )
    return found


def _examples(module: torch.nn.Module, shapes: Shapes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    like = _first_parameter(module)

    def example(shape: Any) -> torch.Tensor:
        if not isinstance(shape, (tuple, list)) or not all(isinstance(extent, int) for extent in shape):
            raise TypeError(f"input_shapes: {shape!r} is not a tuple of ints.")
        if any(extent < 1 for extent in shape):
            raise ValueError(f"input_shapes: {tuple(shape)} has an extent that is less than the minimum (1).")
        return torch.zeros(1, dtype=like.dtype, device=like.device).expand(tuple(shape))

    if isinstance(shapes, Mapping):
        return (), {name: example(shape) for name, shape in shapes.items()}
    if all(isinstance(extent, int) for extent in shapes):
        return (example(shapes),), {}
    return tuple(example(shape) for shape in shapes), {}


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], free_size: bool, name: str
) -> torch.export.ExportedProgram:
    if free_size:
        # If the module cannot be traced for free sizes, trace it for the given one.
        with contextlib.suppress(Exception):
            return torch.export.export(module, args, kwargs, dynamic_shapes=_dynamic_shapes(module, args, kwargs))
    try:
        return torch.export.export(module, args, kwargs)
    except Exception as error:
        reason = error
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    except Exception as error:
        raise InvalidModelError(
            f"{name} does not run with inputs of shapes {_described(args, kwargs)}: {torch_export.first_line(error)}"
        ) from error
    raise UnsupportedOperatorError(
        name,
        [
            (
                "torch.export",
                type(reason).__name__,
                f"{torch_export.first_line(reason)} The module runs, but torch.export cannot trace it: control flow"
                " must not depend on values of tensors. Import the part that can be traced, or a module without that"
                " control flow.",
            )
        ],
    ) from reason


def _described(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    leaves = pytree.tree_leaves((args, kwargs))
    return [tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _dynamic_shapes(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return dynamic shapes that let torch.export decide for every extent whether it is free."""

    def free(value: Any) -> Any:
        return dict.fromkeys(range(value.ndim), torch.export.Dim.AUTO) if isinstance(value, torch.Tensor) else None

    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    return {name: pytree.tree_map(free, value) for name, value in bound.arguments.items()}
