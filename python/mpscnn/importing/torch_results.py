# SPDX-License-Identifier: Apache-2.0
"""Shapes of the results of operators on the device "meta", computed once for arguments of the same shapes.

PyTorch computes shapes in Python, in up to 0.5 ms for an operator; a network has a few distinct ones for each operator.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


class Memory(enum.Enum):
    """Where an operator writes its results."""

    NEW = enum.auto()  # in memory of their own
    VIEW = enum.auto()  # nowhere: they are views of the first argument
    SAME = enum.auto()  # the result is the first argument, perhaps with other values


@dataclass(frozen=True)
class Known:
    """The results of an operator.

    Attributes
    ----------
    memory : Memory
    kind : type, optional
        Type of the list of results; None: the result is one tensor.
    tensors : list of tuple
        Size, stride, offset in memory and type of each result; none if it is the first argument.
    """

    memory: Memory
    kind: type | None = None
    tensors: tuple[tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype], ...] = ()

    def results(self, first: Any) -> list[torch.Tensor]:
        """Return new tensors for the results, which may be views of the first argument."""
        made = []
        for size, stride, offset, dtype in self.tensors:
            if self.memory is Memory.NEW:
                one = torch.empty_strided(size, stride, dtype=dtype, device="meta")
            else:
                one = torch.empty(0, dtype=dtype, device="meta")
                one.set_(first.untyped_storage(), offset, size, stride)
            made.append(one)
        return made


class Results:
    """Known results, by operators and the shapes of their arguments."""

    def __init__(self) -> None:
        self._operators: dict[Any, bool] = {}  # whether their results are known from the shapes of their arguments
        self._found: dict[Any, Known | None] = {}

    def key(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the same for calls of an operator that have the same results; None for those that must be made."""
        if func not in self._operators:
            self._operators[func] = _is_known(func)
        if not self._operators[func]:
            return None
        try:
            return func, self._form(args), self._form(tuple(kwargs.items()))
        except _OtherError:
            return None

    def get(self, key: Any) -> Known | None:
        """Return the results of a call; None if they are not known."""
        return self._found.get(key)

    def note(self, key: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the results of a call, which may have changed its first argument."""
        if key in self._found:
            return
        if args and result is args[0]:
            self._found[key] = Known(Memory.SAME) if self.key(key[0], args, kwargs) == key else None
        elif key[0]._schema.is_mutable:
            self._found[key] = None
        else:
            is_view = bool(key[0]._schema.arguments) and key[0]._schema.arguments[0].alias_info is not None
            self._found[key] = self._described(result, args, kwargs, is_view=is_view)

    def _described(
        self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_view: bool = False
    ) -> Known | None:
        """Return what is known of a result. `is_view`: it can only be one of the first argument."""
        kind = None if isinstance(result, torch.Tensor) else type(result)
        tensors = [result] if kind is None else result
        if kind not in (None, tuple, list):
            return None
        if not all(isinstance(one, torch.Tensor) and _takes(one) for one in tensors):
            return None
        sources = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if any(one is source for one in tensors for source in sources):
            return None
        memory = [one.untyped_storage()._cdata for one in (*tensors, *sources)]
        own, first = memory[: len(tensors)], memory[len(tensors)] if sources else None
        if not any(one.storage_offset() for one in tensors) and all(memory.count(one) == 1 for one in own):
            where = Memory.NEW
        elif args and args[0] is sources[0] and {*own} == {first} and (is_view or memory.count(first) == len(own) + 1):
            where = Memory.VIEW
        else:
            return None
        found = [(tuple(one.shape), one.stride(), one.storage_offset(), one.dtype) for one in tensors]
        return Known(where, kind, tuple(found))

    def _form(self, value: Any) -> Any:
        """Return what a result without values depends on: of tensors, all but their values; a key of a dictionary."""
        if isinstance(value, torch.Tensor):
            if not _takes(value):
                raise _OtherError
            return tuple(value.shape), value.stride(), value.storage_offset(), value.dtype
        if isinstance(value, (list, tuple)):
            return (type(value), *map(self._form, value))
        if type(value) not in _PLAIN:
            raise _OtherError
        return type(value), value


def _takes(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has no values, which results could depend on, and no rules of its own."""
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_meta
    return is_plain and tensor.layout is torch.strided and not tensor.dtype.is_complex


_PLAIN = {bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}


class _OtherError(Exception):
    """An argument is a tensor with values, or no number, string or type."""


def _is_known(func: Any) -> bool:
    """Return whether an operator's results, or its first argument if it is changed in place, follow from shapes."""
    schema = getattr(func, "_schema", None)
    if schema is None or func.namespace != "aten" or torch.Tag.data_dependent_output in getattr(func, "tags", ()):
        return False
    if any(one.alias_info is not None for one in schema.arguments[1:]):
        return False
    return not schema.is_mutable or len(schema.returns) == 1
