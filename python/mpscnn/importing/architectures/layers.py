# SPDX-License-Identifier: Apache-2.0
"""Classes that the architectures share: tensors by name, layers of a graph, namings and families."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import activation, arithmetic, convolution, normalization, pooling, shape
from ..weights_files import bfloat16_of

Shape: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[int, int]


def shapes_of(weights: Mapping[str, Any]) -> dict[str, Shape]:
    """Return the shapes of arrays, tensors or shapes by name, without reading arrays of a file."""
    known = getattr(weights, "shapes", None)
    if known is not None:
        return dict(known)
    found = {}
    for name, value in weights.items():
        try:
            found[str(name)] = tuple(int(extent) for extent in getattr(value, "shape", value))
        except (TypeError, ValueError):
            raise InvalidModelError(f'"{name!s:.200}" ({type(value).__name__}) is not a tensor.') from None
    return found


def as_array(name: str, value: Any) -> NDArray[Any]:
    """Return a weight as float32, float16 or bfloat16, without a copy; float64 is rounded."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            import torch

            return bfloat16_of(tensor.contiguous().view(torch.int16).numpy().view(np.uint16))
        value = tensor.numpy()
    array = np.asarray(value)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype.name not in ("float32", "float16", "bfloat16"):
        raise InvalidModelError(
            f'tensor "{name}" has the dtype {array.dtype}, not float32, float16, bfloat16 or float64.'
        )
    return array


class Layers:
    """Builder of PyTorch's layers by the names of their parameters.

    Names are those of the family's module; `rename` maps them to those of the file. Every layer is a node of the source
    model. The tensors used are recorded, to find unused ones in the end.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        shapes: Mapping[str, Shape],
        prefix: str,
        rename: Callable[[str], str],
        what: str,
    ) -> None:
        self.builder = Builder()
        self.shapes = shapes
        self.prefix = prefix
        self.taken: set[str] = set()
        self.current = ("", "")  # operator and name of the layer that is added
        self.what = what
        self._weights = weights
        self._rename = rename

    # ---- tensors

    def full(self, layer: str, parameter: str = "weight") -> str:
        """Return the file's name of a layer's parameter."""
        return f"{self.prefix}{self._rename(layer)}.{parameter}"

    def has(self, layer: str, parameter: str = "weight") -> bool:
        """Return whether the file has a layer's parameter."""
        return self.full(layer, parameter) in self.shapes

    def shape(self, layer: str, parameter: str = "weight", rank: int | None = None) -> Shape:
        """Return the shape of a parameter. InvalidModelError if it is missing or has the wrong number of axes."""
        name = self.full(layer, parameter)
        if name not in self.shapes:
            raise InvalidModelError(f'tensor "{name}" is missing: {self.what} has it.')
        found = self.shapes[name]
        if 0 in found:
            raise InvalidModelError(f'tensor "{name}" of shape {found} has an extent less than the minimum (1).')
        if rank is not None and len(found) != rank:
            raise InvalidModelError(
                f'tensor "{name}" of shape {found} has {len(found)} axes; {self.what} has it with {rank}.'
            )
        return found

    def take(self, layer: str, parameter: str, expected: Shape) -> NDArray[Any]:
        """Return a parameter, after checking its shape, and mark it as used."""
        found = self.shape(layer, parameter, len(expected))
        name = self.full(layer, parameter)
        if found != expected:
            raise InvalidModelError(f'tensor "{name}" has the shape {found}; the layers before it ask for {expected}.')
        array = as_array(name, self._weights[name])
        if array.shape != expected:
            raise InvalidModelError(f'tensor "{name}" has the shape {array.shape}, not {expected} as was said.')
        self.taken.add(name)
        return array

    # ---- layers

    @contextlib.contextmanager
    def node(self, name: str, operator: str) -> Iterator[None]:
        """Set the origin of everything added inside of the block to that layer, by the family's name."""
        full = f"{self.prefix}{self._rename(name)}" if name else ""
        self.current = operator, full
        with self.builder.node(full, operator):
            yield

    def convolution(
        self,
        x: Tensor,
        layer: str,
        *,
        stride: int = 1,
        padding: int | str | None = None,
        dilation: int = 1,
        groups: int = 1,
    ) -> Tensor:
        """Add Conv2d, with a bias if there is one.

        `padding` is in pixels; None: half of the kernel, which keeps the size at a stride of 1. "same": TensorFlow's
        padding, which depends on the size and puts the odd pixel last, like MPS's policy.
        """
        outputs, _, height, width = self.shape(layer, rank=4)
        with self.node(layer, "Conv2d"):
            weight = self.take(layer, "weight", (outputs, x.channels // groups, height, width))
            bias = self.take(layer, "bias", (outputs,)) if self.has(layer, "bias") else None
            if padding == "same" and stride > 1 and dilation == 1:
                return self.builder.add(
                    "Convolution",
                    x,
                    height=-(-x.height // stride),
                    width=-(-x.width // stride),
                    channels=outputs,
                    weight=weight,
                    bias=bias,
                    stride=stride,
                    padding="same",
                    groups=groups,
                )
            sides: Any = ((height - 1) // 2 * dilation, (width - 1) // 2 * dilation) if padding is None else padding
            return convolution.conv2d(self.builder, x, weight, bias, stride, sides, dilation, groups)

    def batch_norm(self, x: Tensor, layer: str, epsilon: float) -> Tensor:
        """Add BatchNorm2d with running statistics; weight and bias may be missing (affine=False)."""
        with self.node(layer, "BatchNorm2d"):
            values: dict[str, Any] = {
                parameter: self.take(layer, parameter, (x.channels,))
                for parameter in ("running_mean", "running_var", "weight", "bias")
                if parameter.startswith("running") or self.has(layer, parameter)
            }
            self.taken.add(self.full(layer, "num_batches_tracked"))
            return normalization.batch_norm(self.builder, x, eps=epsilon, **values)

    def linear(self, x: Tensor, layer: str) -> Tensor:
        """Add Linear on all values of each image, in PyTorch's order."""
        outputs = self.shape(layer, rank=2)[0]
        with self.node(layer, "Linear"):
            if len(x.shape) > 1:
                x = shape.flatten(self.builder, x)
            weight = self.take(layer, "weight", (outputs, x.size))
            bias = self.take(layer, "bias", (outputs,)) if self.has(layer, "bias") else None
            return convolution.linear(self.builder, x, weight, bias)

    def activation(self, x: Tensor, name: str) -> Tensor:
        """Add an activation by its name in Hugging Face's configurations."""
        functions = {
            "relu": activation.relu,
            "relu6": activation.relu6,
            "gelu": activation.gelu,
            "silu": activation.silu,
            "swish": activation.silu,
            "selu": activation.selu,
            "tanh": activation.tanh,
            "sigmoid": activation.sigmoid,
        }
        with self.node("", name):
            if name not in functions:
                raise UnmappedError(f"it is not one of {', '.join(functions)}")
            return functions[name](self.builder, x)

    def add(self, a: Tensor, b: Tensor, layer: str) -> Tensor:
        """Add the sum of a residual block."""
        if (a.height, a.width, a.channels) != (b.height, b.width, b.channels):
            raise InvalidModelError(f'"{self.prefix}{self._rename(layer)}": {a.shape} cannot be added to {b.shape}.')
        with self.node(layer, "add"):
            return arithmetic.add(self.builder, a, b)

    def global_average(self, x: Tensor) -> Tensor:
        """Add the means over pixels, (N, C), for any height and width."""
        with self.node("", "AdaptiveAvgPool2d"):
            return shape.flatten(self.builder, pooling.adaptive_avg_pool2d(self.builder, x, 1))


@dataclass(frozen=True)
class Naming:
    """A library's names of the tensors of a family.

    Attributes
    ----------
    name : str
    markers : tuple of str
        Tensors that must be present, after a prefix common to all names.
    rename : callable
        Maps the family's name of a layer to the library's.
    defaults : mapping
        Options whose values in this library's models differ from the family's defaults.
    fits : callable, optional
        Takes the layers and returns whether they belong to this family, if names are ambiguous.
    """

    name: str
    markers: tuple[str, ...]
    rename: Callable[[str], str] = str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fits: Callable[[Layers], bool] | None = None


@dataclass(frozen=True)
class Family:
    """A family of networks.

    Attributes
    ----------
    name : str
    namings : tuple of Naming
        The first that fits is used.
    write : callable
        (layers, size, **options): adds the network to layers.builder.
    variant : callable
        Takes the layers and returns the name of the network, "resnet50".
    config : mapping
        Keys of a config.json, and the corresponding options.
    refused : str
        Regular expression of "architecture" in config.json for different networks with the same tensors.
    unused : str
        Regular expression of names, without the prefix, that may be left over.
    size : (height, width)
        Size of the images that the network was trained on.
    """

    name: str
    namings: tuple[Naming, ...]
    write: Callable[..., None]
    variant: Callable[[Layers], str]
    config: Mapping[str, str] = field(default_factory=dict)
    refused: str = r"$^"
    unused: str = r"$^"
    size: Pair = (224, 224)
