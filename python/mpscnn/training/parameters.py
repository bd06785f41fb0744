# SPDX-License-Identifier: Apache-2.0
"""Parameters of operations: their names in a state_dict, and their layouts in a state_dict and in MPS."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from .lowering import Operation

Array = NDArray[Any]
# PyTorch's names of parameters, by the kernel's argument.
_WEIGHTS = {"weight": "weight", "bias": "bias"}
_NORMALIZATION = {"gamma": "weight", "beta": "bias"}
SUFFIXES: dict[str, dict[str, str]] = {
    "Convolution": _WEIGHTS,
    "ConvolutionTranspose": _WEIGHTS,
    "FullyConnected": _WEIGHTS,
    "InstanceNormalization": _NORMALIZATION,
    "GroupNormalization": _NORMALIZATION,
    "BatchNormalization": {**_NORMALIZATION, "mean": "running_mean", "variance": "running_var"},
}
STATISTICS = ("mean", "variance")
TRACKED = ".num_batches_tracked"


@dataclass(frozen=True)
class Parameter:
    """One array of an operation.

    Attributes
    ----------
    key : str
        Key in a state_dict: "layer1.0.conv1.weight".
    argument : str
        Argument of the kernel's class.
    shape : tuple of int
        Shape in a state_dict.
    """

    key: str
    argument: str
    shape: tuple[int, ...]

    @property
    def is_trained(self) -> bool:
        """Whether the optimizer changes it; False for statistics of batch normalization."""
        return self.argument not in STATISTICS


def tracked_batches(state_dict: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return every "num_batches_tracked": the number of batches that running statistics include.

    Raises
    ------
    TypeError, ValueError
        'state_dict: "norm1.num_batches_tracked" (-1) is not an integer from 0 on.'
    """
    found = {}
    for key, value in state_dict.items():
        if not str(key).endswith(TRACKED) or value is None:
            continue
        name = f'{where}: "{key}"'
        array = _checks.array(value, name)
        if array.size != 1 or not 0 <= array.item() <= 2**53 or array.item() % 1:  # module.to(dtype) makes them floats
            shown = array.item() if array.size == 1 else f"of shape {array.shape}"
            raise ValueError(f"{name} ({shown}) is not an integer from 0 on.")
        found[key] = int(array.item())
    return found


def constants(arrays: Mapping[str, Any], known: Container[str]) -> dict[str, Array]:
    """Return copies of the arrays of a model that no trained layer has, floating-point numbers as float32."""
    found = {}
    for key, value in arrays.items():
        if key not in known and (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
            array = _checks.array(value, f'"{key}"')
            is_real = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
            found[key] = np.array(array, np.float32 if is_real else array.dtype)
    return found


def placeholder(array: Array) -> Array:
    """Return an array of the same shape and type without memory for its values."""
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def owner_of(name: str, origin: str, shapes: Mapping[str, tuple[int, ...]] | None) -> str:
    """Return the name under which a node's parameters are stored: its own, or that of its layer.

    Importers give the first node of a layer, which may be padding, the layer's name, and number the others.
    """
    if shapes is None or f"{name}.weight" in shapes:
        return name
    return origin.rpartition(" (")[0] or name


def parameters_of(
    operation: Operation, owner: str, shapes: Mapping[str, tuple[int, ...]] | None, is_frozen: bool
) -> list[Parameter]:
    """Return the operation's parameters, with their shapes in a state_dict or, without one, those of its arguments.

    Raises
    ------
    NotImplementedError
        A parameter of the kernel differs from the layer's in form, and the layer is not frozen.
    """
    found = []
    for argument, suffix in SUFFIXES.get(operation.kernel, {}).items():
        value = operation.arguments.get(argument)
        key = f"{owner}.{suffix}"
        if value is None or operation.is_constant or (shapes is not None and key not in shapes):
            continue
        given = np.shape(value)
        shape = given if shapes is None else shapes[key]
        if np.prod(shape) != np.prod(given):
            if is_frozen:
                continue
            reason, remedy = _another_form(operation.kernel, tuple(shape), given)
            raise NotImplementedError(
                f'"{key}" has shape {tuple(shape)}, and the kernel has {given}: {reason}. Give {remedy}, or name'
                f' "{owner}" in frozen.'
            )
        found.append(Parameter(key, argument, tuple(shape)))
    return found


def _another_form(kernel: str, shape: tuple[int, ...], given: tuple[int, ...]) -> tuple[str, str]:
    """Return the reason why a kernel's values differ from the layer's, and a remedy."""
    if "Normalization" in kernel:
        one_each = "MPS normalizes with one weight for each channel, not with one for each value"
        return one_each, "elementwise_affine=False, or GroupNorm with one group"
    if kernel == "ConvolutionTranspose" and given[2:] != shape[2:]:
        return (
            "MPS has no transposed convolution with a dilation, and zeros between the taps would be trained",
            "no dilation",
        )
    groups = "MPS has groups of multiples of 4 channels, or depth-wise, and zeros between others would be trained"
    return groups, "other groups"


def to_torch(operation: Operation, parameter: Parameter, values: Array) -> Array:
    """Return a copy of MPS's values, weights (O, kH, kW, I / groups), in the order of a state_dict."""
    if parameter.argument == "weight":
        if operation.kernel == "ConvolutionTranspose" and "layout" not in operation.arguments:
            values = _grouped(values[:, ::-1, ::-1], operation.arguments.get("groups", 1))
        else:
            values = values.transpose(_order(operation))
    return np.array(values, np.float32, order="C").reshape(parameter.shape)


def to_mps(operation: Operation, parameter: Parameter, values: Array, shape: tuple[int, ...]) -> Array:
    """Return values of a state_dict in MPS's order; `shape` is MPS's."""
    if parameter.argument != "weight":
        return values.reshape(shape)
    if operation.kernel == "ConvolutionTranspose" and "layout" not in operation.arguments:
        outputs, height, width, inputs = shape
        groups = operation.arguments.get("groups", 1)
        taps = values.reshape(groups, inputs, outputs // groups, height, width)
        rotated: Array = taps.transpose(0, 2, 3, 4, 1).reshape(shape)[:, ::-1, ::-1]
        return rotated
    order = _order(operation)
    turned: Array = values.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
    return turned


def _order(operation: Operation) -> list[int]:
    """Return, for each axis of the layout, its index in OHWI."""
    layout = operation.arguments.get("layout") or "OIHW"
    return ["OHWI".index(axis) for axis in layout.replace("C", "O").replace("1", "I")]


def _grouped(values: Array, groups: int) -> Array:
    """Return weights of a transposed convolution, (O, kH, kW, I / groups), as (I, O / groups, kH, kW)."""
    outputs, height, width, inputs = values.shape
    taps = values.reshape(groups, outputs // groups, height, width, inputs)
    turned: Array = taps.transpose(0, 4, 1, 2, 3).reshape(groups * inputs, outputs // groups, height, width)
    return turned
