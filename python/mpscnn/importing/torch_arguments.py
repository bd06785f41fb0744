# SPDX-License-Identifier: Apache-2.0
"""Arguments of ATen operators, for a node of a torch.export program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InvalidModelError
from .builder import Builder, Tensor, UnmappedError
from .ops import shape, unpooling

# Why a number or constant is refused: the module may be read for one number of images.
OF_BATCH = "depends on the number of images"


class Computed:
    """A number that the program computes from extents of its inputs."""

    expression: Any  # sympy's
    of_batch: bool
    of_extents: bool  # heights and widths

    @classmethod
    def of(cls, hint: Any, expression: Any, of_batch: bool, of_extents: bool) -> Any:
        """Return a number whose value is `hint` for the shapes that the program was exported with."""
        number = cls(hint)  # type: ignore[call-arg]
        number.expression, number.of_batch, number.of_extents = expression, of_batch, of_extents
        return number


class Sized(Computed, int):
    """A computed integer; its value is that for the shapes that the program was exported with."""


class Number(Computed, float):
    """A computed float."""


@dataclass(frozen=True)
class Merged:
    """A tensor in a shape whose batch is merged with other axes, until it is split again.

    The values have the order of the tensor's axes; the first of `shape` is the batch times the first extents.
    `is_inner`: the batch is behind these extents, as in a view of (3, N, C) as (3 * N, C), not in front of them.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    is_inner: bool = False

    def apart(self, builder: Builder) -> Tensor:
        """Return the tensor with the batch as its first axis, and what is merged with it as its second."""
        rest = self.shape[1:]
        count, left = divmod(self.tensor.size, math.prod(rest))
        if left:
            raise UnmappedError(f"{self.shape}, parts of several images taken together")
        return shape.reshape(builder, self.tensor, (count, *rest))

    def with_(self, result: Tensor) -> Merged:
        """Return the result of an operator on `apart`, with the batch merged again."""
        return replace(self, tensor=result, shape=(self.shape[0], *result.shape[1:]))


@dataclass(frozen=True)
class Turned:
    """A tensor whose first axis, the batch or axes merged with it, is at `place`; the others have their order."""

    tensor: Tensor | Merged
    place: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape with 0 for the axis of the batch."""
        rest = self.rest
        return (*rest[: self.place], 0, *rest[self.place :])

    @property
    def rest(self) -> tuple[int, ...]:
        """Shape without the axis of the batch."""
        return self.tensor.shape[1:] if isinstance(self.tensor, Merged) else self.tensor.shape


@dataclass(frozen=True)
class Rows:
    """A tensor whose batch is not the first axis, with all axes but the last taken together."""

    turned: Turned
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Missing:
    """A value that is not in the graph; `why` is the reason."""

    why: str


@dataclass(frozen=True)
class Places(Missing):
    """Indices of the maxima that max_pool2d returns: no image, but an unpooling finds them in the source."""

    source: Tensor
    extents: tuple[Any, ...]  # height and width of the source, `Sized` if they depend on the inputs
    result: Tensor
    windows: unpooling.Windows


Operand: TypeAlias = "Tensor | float | NDArray[Any]"


class Arguments:
    """Arguments of one node by their names in the operator's schema, converted to the types that operators need."""

    def __init__(
        self,
        builder: Builder,
        node: torch.fx.Node,
        values: dict[str, Any],
        batch: Any,
        number: Callable[[Any], Any],
        constant: Callable[[torch.Tensor, str], torch.Tensor],
        computed: Mapping[torch.fx.Node, Any],
    ) -> None:
        self.builder, self.node, self.values = builder, node, values
        self._computed = computed
        self._batch, self._number, self._constant = batch, number, constant

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    @property
    def source(self) -> Tensor:
        """The first argument, a tensor."""
        return self.tensor("self" if "self" in self.values else "input")

    def tensor(self, name: str) -> Tensor:
        """Return a tensor; UnmappedError unless the graph computes it."""
        value = self.values[name]
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Merged):
            raise UnmappedError(f"{name}: the batch taken together with other axes, {value.shape}")
        if isinstance(value, Rows):
            raise UnmappedError(f"{name}: the batch taken together with axes before it, {value.shape}")
        if isinstance(value, Turned):
            raise UnmappedError(f"{name}: the axis of the batch at place {value.place}")
        if isinstance(value, Missing):
            raise UnmappedError(f"{name}: {value.why}")
        raise UnmappedError(f"{name} is a constant")

    def array(self, name: str) -> NDArray[Any]:
        """Return an array; UnmappedError unless it is a constant tensor."""
        value = self.values[name]
        if isinstance(value, torch.Tensor):
            return self._as_array(value, name)
        raise UnmappedError(f"{name} is computed by the network, not a constant")

    def _as_array(self, value: torch.Tensor, name: str) -> NDArray[Any]:
        value = self._constant(value, f"{self.builder.origin}: {name}")
        if value.dtype == torch.bfloat16:
            value = value.float()  # NumPy has no bfloat16
        array: NDArray[Any] = value.numpy()
        return array.astype(np.float32) if array.dtype == np.float64 else array

    def optional_array(self, name: str) -> NDArray[Any] | None:
        """Return an array, or None."""
        return None if self.values[name] is None else self.array(name)

    def operand(self, name: str) -> Operand:
        """Return a tensor, a number or an array."""
        value = self.values[name]
        if isinstance(value, torch.Tensor):
            return self._without_batch(self._as_array(value, name))
        if isinstance(value, (bool, int, float)):
            return self.number(name)
        return self.tensor(name)

    def _without_batch(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the part of a constant for one image, if it is repeated for each image."""
        rank = len(self.node.meta["val"].shape) if isinstance(self.node.meta.get("val"), torch.Tensor) else 0
        if array.ndim == rank and array.ndim and len(array) > 1 and (array == array[:1]).all():
            return array[:1]
        return array

    def number(self, name: str) -> float:
        """Return a number; fix heights and widths if it was computed from them."""
        return float(self._fixed(self.values[name], name))

    def optional_number(self, name: str) -> float | None:
        """Return a number, or None."""
        return None if self.values[name] is None else self.number(name)

    def integer(self, name: str) -> int:
        """Return an integer; see `number`."""
        return int(self._fixed(self.values[name], name))

    def optional_integer(self, name: str) -> int | None:
        """Return an integer, or None."""
        return None if self.values[name] is None else self.integer(name)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return the integers of a list, or a single one; see `number`."""
        values = self.values[name]
        values = values if isinstance(values, (list, tuple)) else [values]
        return tuple(int(self._fixed(value, name)) for value in values)

    def _fixed(self, value: Any, name: str) -> Any:
        if isinstance(value, (Sized, Number)):
            if value.of_batch:
                raise UnmappedError(f"{name} {OF_BATCH}")
            if value.of_extents:
                self.builder.fix()
        elif not isinstance(value, (bool, int, float)):
            raise UnmappedError(f"{name} ({type(value).__name__}) is no number")
        return value

    def one(self, name: str) -> int:
        """Return an integer that is given as a number or as a list of one."""
        values = self.integers(name)
        if len(values) != 1:
            raise InvalidModelError(f"{self.builder.origin}: {name} {values} is not one integer.")
        return values[0]

    def pair(self, name: str) -> tuple[int, int]:
        """Return two integers; a single one is used for both."""
        values = self.integers(name)
        if len(values) not in (1, 2):
            raise InvalidModelError(f"{self.builder.origin}: {name} {values} is not one integer or two.")
        return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])

    def triple(self, name: str) -> tuple[int, int, int]:
        """Return three integers; a single one is used for all."""
        values = self.integers(name)
        if len(values) not in (1, 3):
            raise InvalidModelError(f"{self.builder.origin}: {name} {values} is not one integer or three.")
        return (values[0],) * 3 if len(values) == 1 else (values[0], values[1], values[2])

    def refuse(self, **expected: Any) -> None:
        """Raise UnmappedError unless these arguments have the expected values."""
        for name, usual in expected.items():
            if name in self.values and self.values[name] != usual:
                raise UnmappedError(f"{name} is {self.values[name]}")

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents of the (first) result with the batch, `Sized` if they depend on the inputs."""
        value = self.node.meta["val"]
        value = value[0] if isinstance(value, (list, tuple)) else value
        return tuple(self._number(extent) for extent in value.shape)

    def shape_of(self, name: str) -> tuple[Any, ...]:
        """Return the extents of an argument, like `shape`."""
        for place, argument in enumerate(self.node.target._schema.arguments):  # type: ignore[union-attr]
            if argument.name == name:
                node = self.node.args[place]
                return tuple(self._number(extent) for extent in node.meta["val"].shape)  # type: ignore[union-attr]
        raise KeyError(name)

    def image_of_extents(self, extents: Sequence[Any]) -> Tensor | None:
        """Return an image that the program has before this node, of this height and width for all inputs.

        Inputs come first, then the last one computed: an earlier one may be followed by an activation, which is fused
        only if nothing else reads the image.
        """
        known = list(self._computed.items())
        inputs = [(node, value) for node, value in known if node.op == "placeholder"]
        for node, value in inputs + known[::-1]:
            fake = node.meta.get("val")
            if not isinstance(value, Tensor) or value.flat is not None or value.axes != "NCHW":
                continue
            if isinstance(fake, torch.Tensor) and all(map(same_extent, map(self._number, fake.shape[2:]), extents)):
                return value
        return None

    @property
    def batch(self) -> Any:
        """The number of images that the program was exported with."""
        return self._number(self._batch)

    def is_batch(self, extent: Any) -> bool:
        """Return whether an extent is the number of images."""
        return same_extent(extent, self.batch)


def same_extent(a: Any, b: Any) -> bool:
    """Return whether two extents are the same for all inputs."""
    if isinstance(a, Computed) or isinstance(b, Computed):
        return bool(getattr(a, "expression", a) == getattr(b, "expression", b))
    return bool(a == b)
