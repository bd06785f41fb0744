# SPDX-License-Identifier: Apache-2.0
"""Initial parameters of a list of layers, drawn as in torch.nn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Draw = Callable[[dict[str, Any], np.random.Generator], dict[str, Array]]

# Arguments of layers in torch.nn that determine the shapes of their arrays, or follow from given arrays.
_SHAPES: dict[str, tuple[str, ...]] = {
    "Conv": ("in_channels", "out_channels", "kernel_size", "bias"),
    "ConvTranspose": ("in_channels", "out_channels", "kernel_size", "bias"),
    "Linear": ("in_features", "out_features", "bias"),
    "BatchNorm": ("num_features", "affine"),
    "InstanceNorm": ("num_features", "affine"),
    "GroupNorm": ("num_channels", "affine"),
}


def complete(layers: Sequence[Any], state_dict: Mapping[str, Any], seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Return the layers without the options that follow from their arrays, and all arrays, given or initialized.

    Raises
    ------
    TypeError
        'layer "conv1" (Conv2d): out_channels is missing, and state_dict has no "conv1.weight".'
    ValueError
        'layer "conv1" (Conv2d): its options make "weight" (8, 3, 3, 3); state_dict has (16, 3, 3, 3).'
    """
    arrays, stripped = dict(state_dict), []
    for number, entry in enumerate(layers):
        if (
            not isinstance(entry, (tuple, list))
            or not 2 <= len(entry) <= 3
            or not all(isinstance(text, str) for text in entry[:2])
            or not all(isinstance(options, Mapping) for options in entry[2:])
        ):
            stripped.append(entry)  # the reader raises the error
            continue
        name, kind = entry[:2]
        options = dict(entry[2]) if len(entry) == 3 else {}
        base = kind.rstrip("12d")
        told = {key: options.pop(key) for key in _SHAPES.get(base, ()) if key in options}
        if base in _SHAPES:
            where = f'layer "{name}" ({kind})'
            rng = np.random.default_rng([seed, number])
            is_given = any(key.startswith(f"{name}.") for key in arrays)
            if not is_given or told:
                made = _Made(where, kind, told, options, name).arrays(rng, is_given)
                if is_given:
                    _check(where, name, made, arrays)
                else:
                    arrays.update({f"{name}.{key}": value for key, value in made.items()})
        stripped.append((name, kind, options))
    return stripped, arrays


def _check(where: str, name: str, made: dict[str, Array], arrays: Mapping[str, Any]) -> None:
    for key, value in made.items():
        given = arrays.get(f"{name}.{key}")
        shape = None if given is None else tuple(np.shape(given))
        if shape != value.shape:
            raise ValueError(f'{where}: its options make "{key}" {value.shape}; state_dict has {shape}.')


class _Made:
    def __init__(self, where: str, kind: str, told: dict[str, Any], options: dict[str, Any], name: str) -> None:
        self.where, self.kind, self.told, self.options, self.name = where, kind, told, options, name

    def number(self, key: str) -> int:
        value = self.told.get(key)
        if value is None:
            raise TypeError(f'{self.where}: {key} is missing, and state_dict has no "{self.name}.weight".')
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{self.where}: {key} ({type(value).__name__}) is not an int.")
        if value < 1:
            raise ValueError(f"{self.where}: {key} ({value}) is less than the minimum (1).")
        return value

    def window(self) -> tuple[int, ...]:
        size, axes = self.told.get("kernel_size"), int(self.kind[-2])
        sizes = (size,) * axes if isinstance(size, int) else size
        if size is None:
            self.number("kernel_size")
        if (
            not isinstance(sizes, (tuple, list))
            or len(sizes) != axes
            or any(not isinstance(one, int) or one < 1 for one in sizes)
        ):
            raise ValueError(f"{self.where}: kernel_size ({size!r}) is not an int, or {axes} of them, from 1 on.")
        return tuple(sizes)

    def arrays(self, rng: np.random.Generator, is_given: bool) -> dict[str, Array]:
        base = self.kind.rstrip("12d")
        if base in ("BatchNorm", "InstanceNorm", "GroupNorm"):
            channels = self.number("num_channels" if base == "GroupNorm" else "num_features")
            made: dict[str, Array] = {}
            if self.told.get("affine", base != "InstanceNorm"):
                made = {"weight": np.ones(channels, np.float32), "bias": np.zeros(channels, np.float32)}
            if base == "BatchNorm":
                made["running_mean"] = np.zeros(channels, np.float32)
                made["running_var"] = np.ones(channels, np.float32)
            return made
        if base == "Linear":
            outputs, inputs = self.number("out_features"), self.number("in_features")
            shape: tuple[int, ...] = (outputs, inputs)
            fan_in = inputs
        else:
            inputs, outputs, window = self.number("in_channels"), self.number("out_channels"), self.window()
            groups = self.options.get("groups", 1)
            if not isinstance(groups, int) or groups < 1 or inputs % groups or outputs % groups:
                raise ValueError(f"{self.where}: groups ({groups!r}) does not divide {inputs} and {outputs} channels.")
            is_transposed = base == "ConvTranspose"
            shape = (inputs, outputs // groups, *window) if is_transposed else (outputs, inputs // groups, *window)
            fan_in = math.prod(shape[1:])  # as in torch.nn, also for transposed convolutions
        # kaiming_uniform_ with a = sqrt(5), torch.nn's default, has this bound.
        bound = 1 / math.sqrt(fan_in)
        made = {"weight": rng.uniform(-bound, bound, shape).astype(np.float32)}
        if self.told.get("bias", True):
            made["bias"] = rng.uniform(-bound, bound, outputs).astype(np.float32)
        return made
