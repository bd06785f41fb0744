# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: a folder of two files of safetensors, parameters as PyTorch has them and what an optimizer remembers.

model.safetensors      what torch.nn.Module.load_state_dict() takes
optimizer.safetensors  <parameter>.<what the optimizer calls it>, in the order of the parameter; and in the metadata
                       steps, the optimizer and its learning rate, and the history

Both have the same random identity in their metadata, another one in each checkpoint.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import errors
from ..errors import InvalidModelError
from .history import History
from .operations import Layer
from .parameters import Parameter, to_mps, to_torch

Array = NDArray[Any]
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
FORMAT, IDENTITY = "mpscnn.training", "mpscnn.checkpoint"
VERSION = 1
# How an OptimizerState calls the arguments of a kernel.
_VALUES = {"weights": "weight", "biases": "bias", "gamma": "gamma", "beta": "beta"}


def remembered(layer: Any) -> tuple[dict[str, Array], int]:
    """Of an optimizer's state the arrays as a checkpoint has them, and the time step."""
    saved = layer.optimized.state_dict()
    step = saved.pop("time_step")
    arrays = {}
    for name, values in saved.items():
        parameter, what = _parameter(layer, name)
        arrays[f"{parameter.key}.{what}"] = to_torch(layer.operation, parameter, values)
    return arrays, step


def restore(layer: Any, arrays: Mapping[str, Array], step: int) -> None:
    """The other way round."""
    saved = layer.optimized.state_dict()
    for name in saved:
        if name == "time_step":
            saved[name] = step
            continue
        parameter, what = _parameter(layer, name)
        saved[name] = to_mps(layer.operation, parameter, arrays[f"{parameter.key}.{what}"], saved[name].shape)
    layer.optimized.load_state_dict(saved)


def check(layer: Any, arrays: Mapping[str, Array], where: str) -> list[str]:
    """The names of what restore() reads: all is there, with the right shape."""
    keys = []
    for name in layer.optimized.state_dict():
        if name == "time_step":
            continue
        parameter, what = _parameter(layer, name)
        keys.append(f"{parameter.key}.{what}")
        check_array(arrays, keys[-1], parameter.shape, where)
    return keys


def check_array(arrays: Mapping[str, Array], key: str, shape: tuple[int, ...], where: str) -> None:
    """ValueError unless there is such an array of floating-point numbers."""
    if key not in arrays:
        raise ValueError(f'{where} has no "{key}".')
    array = arrays[key]
    if tuple(array.shape) != shape:
        raise ValueError(f'{where}: "{key}" has shape {tuple(array.shape)}, the parameter has {shape}.')
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f'{where}: "{key}" is of {array.dtype}, not of floating-point numbers.')


def _parameter(layer: Layer, name: str) -> tuple[Parameter, str]:
    values, _, what = name.partition(".")
    return next(one for one in layer.parameters if one.argument == _VALUES[values]), what


def write(folder: str | os.PathLike[str], model: dict[str, Array], optimizer: dict[str, Array], facts: Any) -> None:
    """Both files, each written beside its place and moved there when it is whole; model.safetensors last."""
    from safetensors.numpy import save_file

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    of_both = {IDENTITY: uuid.uuid4().hex}
    metadata = {FORMAT: json.dumps({"version": VERSION, **facts}, separators=(",", ":")), **of_both}
    partial = {name: target / f"{name}.{os.getpid()}.partial" for name in (OPTIMIZER, MODEL)}
    try:
        save_file(optimizer, str(partial[OPTIMIZER]), metadata)
        # "format": Hugging Face's readers ask for it.
        save_file(model, str(partial[MODEL]), {"format": "pt", FORMAT: str(facts["steps"]), **of_both})
        for name, path in partial.items():
            os.replace(path, target / name)
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)


def read(folder: str | os.PathLike[str]) -> tuple[Mapping[str, Array], Mapping[str, Array], dict[str, Any]]:
    """Parameters, what the optimizer remembers, and the facts; InvalidModelError for what is no checkpoint."""
    from ..importing.weights_files import safetensors

    target = Path(folder)
    try:
        model, optimizer = safetensors(target / MODEL), safetensors(target / OPTIMIZER)
    except errors.ImportError as error:
        if type(error) is not errors.ImportError:
            raise
        raise InvalidModelError(str(error)) from None  # a type that only a damaged file has here
    try:
        facts = json.loads(optimizer.metadata[FORMAT])
        if not isinstance(facts, dict) or facts["version"] != VERSION:
            raise InvalidModelError(f'"{target / OPTIMIZER}" is of another version; this one reads {VERSION}.')
        steps, times = facts["steps"], facts["time_steps"]
        if not isinstance(times, dict) or not all(_is_count(one) for one in (steps, *times.values())):
            raise ValueError
        rate = facts["learning_rate"]
        if not isinstance(facts["optimizer"], str) or isinstance(rate, bool) or not isinstance(rate, (int, float)):
            raise ValueError
        if not abs(rate) <= float(np.finfo(np.float32).max):
            raise ValueError
        facts["history"] = History.from_dict(facts["history"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidModelError):
            raise
        raise InvalidModelError(f'"{target / OPTIMIZER}" is none of a checkpoint of mpscnn.') from None
    if model.metadata.get(FORMAT) != str(steps):
        raise InvalidModelError(
            f'"{target}": its two files are of different checkpoints: steps {model.metadata.get(FORMAT)} and {steps}.'
        )
    if model.metadata.get(IDENTITY) != optimizer.metadata.get(IDENTITY):  # neither has one before there were any
        raise InvalidModelError(f'"{target}": its two files are of different checkpoints, both of step {steps}.')
    return model, optimizer, facts


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**53  # an OptimizerState's maximum
