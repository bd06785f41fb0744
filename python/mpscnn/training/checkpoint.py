# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: a folder of two safetensors files, with PyTorch's parameters and with the state of the optimizer.

model.safetensors      a state_dict for torch.nn.Module.load_state_dict()
optimizer.safetensors  <parameter>.<name in the optimizer>, in the layout of the parameter; in the metadata the number
                       of steps, the optimizer and its learning rate, and the history

Both have the same random identity in their metadata, different for each checkpoint.

Files in the subfolder NEXT supersede those beside it. It exists while a checkpoint is being replaced, and after the
process was killed during that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _files, errors
from .._interrupts import defer_interrupts
from ..errors import InvalidModelError
from ..importing.weights_files import safetensors, write_safetensors
from .history import History
from .operations import Layer
from .parameters import Parameter, to_mps, to_torch

Array = NDArray[Any]
MODEL, OPTIMIZER, NEXT = "model.safetensors", "optimizer.safetensors", ".mpscnn-next"
FORMAT, IDENTITY = "mpscnn.training", "mpscnn.checkpoint"
VERSION = 1
# Arguments of kernels, by their names in an OptimizerState.
_VALUES = {"weights": "weight", "biases": "bias", "gamma": "gamma", "beta": "beta"}


def remembered(layer: Any) -> tuple[dict[str, Array], int]:
    """Return the arrays of an optimizer's state as a checkpoint stores them, and the time step."""
    saved = layer.optimized.state_dict()
    step = saved.pop("time_step")
    arrays = {}
    for name, values in saved.items():
        parameter, what = _parameter(layer, name)
        arrays[f"{parameter.key}.{what}"] = to_torch(layer.operation, parameter, values)
    return arrays, step


def restore(layer: Any, arrays: Mapping[str, Array], step: int) -> None:
    """Restore an optimizer's state from the arrays of a checkpoint."""
    saved = layer.optimized.state_dict()
    for name in saved:
        if name == "time_step":
            saved[name] = step
            continue
        parameter, what = _parameter(layer, name)
        saved[name] = to_mps(layer.operation, parameter, arrays[f"{parameter.key}.{what}"], saved[name].shape)
    layer.optimized.load_state_dict(saved)


def check(layer: Any, arrays: Mapping[str, Array], where: str) -> list[str]:
    """Check that all arrays that restore() reads exist and have the right shapes; return their names."""
    keys = []
    for name in layer.optimized.state_dict():
        if name == "time_step":
            continue
        parameter, what = _parameter(layer, name)
        keys.append(f"{parameter.key}.{what}")
        check_array(arrays, keys[-1], parameter.shape, where)
    return keys


def check_array(arrays: Mapping[str, Array], key: str, shape: tuple[int, ...], where: str) -> None:
    """Raise ValueError unless there is such an array of floating-point numbers."""
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
    """Write both files into a new folder, and make them current atomically by renaming it to NEXT."""
    target = Path(folder)
    of_both = {IDENTITY: uuid.uuid4().hex}
    metadata = {FORMAT: json.dumps({"version": VERSION, **facts}, separators=(",", ":")), **of_both}
    with _files.named(folder):
        target.mkdir(parents=True, exist_ok=True)
        with _files.staging(target) as place:
            with _files.created(place / OPTIMIZER, target / OPTIMIZER) as file:
                write_safetensors(file, optimizer, metadata)
            with _files.created(place / MODEL, target / MODEL) as file:
                # Hugging Face's readers need "format".
                write_safetensors(file, model, {"format": "pt", FORMAT: str(facts["steps"]), **of_both})
            _files.synchronize(place)
            with defer_interrupts():
                _make_next(place, target)
                _files.synchronize(target)
                _settle(target)


def _make_next(place: Path, target: Path) -> None:
    """Rename the folder to NEXT. An existing NEXT belongs to a process that was killed or is about to empty it."""
    for last in (False,) * 100 + (True,):
        try:
            os.rename(place, target / NEXT)
        except OSError as error:
            if last or error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            break
        _settle(target)


def _settle(target: Path) -> None:
    """Move the files out of NEXT. Several processes may do this at once."""
    for name in (OPTIMIZER, MODEL):
        with contextlib.suppress(FileNotFoundError):
            os.replace(target / NEXT / name, target / name)
    with contextlib.suppress(OSError):  # already removed, or just recreated by another process
        os.rmdir(target / NEXT)


def _path(target: Path, name: str) -> Path:
    """Return the path of a file of the current checkpoint."""
    path = target / NEXT / name
    return path if path.exists() else target / name


def _state(target: Path) -> list[tuple[int, ...] | None]:
    """Return a fingerprint of the files, which changes with each step of writing."""
    found: list[tuple[int, ...] | None] = []
    for folder in (target, target / NEXT):
        for name in (OPTIMIZER, MODEL):
            try:
                status = os.stat(folder / name)
                found.append((status.st_dev, status.st_ino, status.st_mtime_ns))
            except OSError:
                found.append(None)
    return found


def read(folder: str | os.PathLike[str]) -> tuple[Mapping[str, Array], Mapping[str, Array], dict[str, Any]]:
    """Return parameters, optimizer state and facts; raise InvalidModelError if there is no valid checkpoint."""
    target, before = Path(folder), ""
    while True:
        state = _state(target)
        try:
            return _read(target)
        except InvalidModelError as error:
            # Nothing was written during the read. Compare twice: inode numbers and times may be reused at once.
            if _state(target) == state and str(error) == before:
                raise
            before = str(error)


def _read(target: Path) -> tuple[Mapping[str, Array], Mapping[str, Array], dict[str, Any]]:
    try:
        model, optimizer = safetensors(_path(target, MODEL)), safetensors(_path(target, OPTIMIZER))
    except errors.ImportError as error:
        if type(error) is not errors.ImportError:
            raise
        raise InvalidModelError(str(error)) from None  # an unsupported dtype: here only in a damaged file
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
    if model.metadata.get(IDENTITY) != optimizer.metadata.get(IDENTITY):  # both None in files of early versions
        raise InvalidModelError(f'"{target}": its two files are of different checkpoints, both of step {steps}.')
    return model, optimizer, facts


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**53  # OptimizerState's maximum
