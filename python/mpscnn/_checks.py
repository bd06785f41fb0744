# SPDX-License-Identifier: Apache-2.0
"""Argument checks of Python functions, with the messages of the extension (csrc/bindings/arguments.cpp)."""

from __future__ import annotations

import inspect
import operator
import os
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from . import _core

_Kind = TypeVar("_Kind")


def refuse(value: object, name: str, wanted: str) -> NoReturn:
    """Raise TypeError "<name> (<type>) is not <wanted>."."""
    raise TypeError(f"{name} ({type(value).__name__}) is not {wanted}.")


def integer(value: Any, name: str, minimum: int | None = None, maximum: int | None = None) -> int:
    """Return an int from an int or an integer scalar; reject bool."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "__index__"):
        refuse(value, name, "an int")
    try:
        number = operator.index(value)
    except TypeError:  # an array of several values
        refuse(value, name, "an int")
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} ({number}) is less than the minimum ({minimum}).")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} ({number!s:.30}) is greater than the maximum ({maximum}).")
    return number


def integers(value: Any, name: str, minimum: int | None = None) -> tuple[int, ...]:
    """Return a tuple of int from any iterable."""
    if isinstance(value, (str, bytes)) or not hasattr(type(value), "__iter__"):
        refuse(value, name, "a tuple of int")
    return tuple(integer(one, f"{name}[{i}]", minimum) for i, one in enumerate(value))


def real(value: Any, name: str) -> float:
    """Return a float from a float, an int or a scalar that is a number; reject bool and complex."""
    if not _is_real(value):
        refuse(value, name, "a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} ({value!r}) is no float.") from None


def _is_real(value: Any) -> bool:
    if isinstance(value, float):
        return True
    if isinstance(value, (bool, np.bool_, complex, np.complexfloating)) or getattr(value, "ndim", 0) != 0:
        return False
    return hasattr(type(value), "__float__") or hasattr(type(value), "__index__")


def reals(value: Any, name: str) -> tuple[float, ...]:
    """Return a tuple of float from a sequence of numbers."""
    if isinstance(value, str) or not hasattr(type(value), "__getitem__") or not all(_is_real(one) for one in value):
        raise TypeError(f"{name} ({value!r}) is not a sequence of numbers.")
    return tuple(float(one) for one in value)


def floats(values: Any, name: str) -> NDArray[np.float32]:
    """Return the elements of an array of one axis, or of a sequence of numbers, in single precision."""
    if hasattr(values, "__dlpack__") or hasattr(values, "__array_interface__"):
        # Not np.asarray(): it rejects tensors with requires_grad, although their memory can be read.
        found = values if isinstance(values, np.ndarray) else _core._view(values, name)
        if found.ndim != 1:
            raise ValueError(f"{name}.ndim ({found.ndim}) is not 1.")
        if found.dtype.kind in "cmMOSTU":
            refuse(values, name, "a sequence of numbers")
        return np.ascontiguousarray(found, np.float32)
    if isinstance(values, str) or not hasattr(type(values), "__iter__"):
        refuse(values, name, "a sequence of numbers")
    numbers = list(values)
    if not all(_is_real(one) for one in numbers):
        refuse(values, name, "a sequence of numbers")
    return np.array([real(one, name) for one in numbers], np.float32)


def boolean(value: Any, name: str) -> bool:
    """Return a bool from a bool of Python or NumPy."""
    if not isinstance(value, (bool, np.bool_)):
        refuse(value, name, "True or False")
    return bool(value)


def text(value: Any, name: str) -> str:
    """Return the value if it is a str."""
    if not isinstance(value, str):
        refuse(value, name, "a str")
    return value


def path(value: Any, name: str) -> str | os.PathLike[str]:
    """Return the value if it is a str or a path object."""
    if not isinstance(value, (str, os.PathLike)):
        refuse(value, name, "a path")
    return value


def array(value: Any, name: str) -> NDArray[Any]:
    """Return an array from an array, a PyTorch tensor or a sequence of numbers; PyTorch is not imported."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    try:
        found = np.asarray(value)
    except (TypeError, ValueError):  # rows of different lengths
        refuse(value, name, "an array of numbers")
    if found.dtype.kind in "OSU":
        refuse(value, name, "an array of numbers")
    return found


def dtype(value: Any, name: str) -> np.dtype[Any]:
    """Return numpy.dtype(value)."""
    try:
        found: np.dtype[Any] = np.dtype(value)
    except TypeError:
        raise TypeError(f"{name} ({value!r}) is not a dtype.") from None
    return found


def instance(value: Any, name: str, kind: type[_Kind]) -> _Kind:
    """Return the value if it is an instance of `kind`."""
    return cast(_Kind, instance_of(value, name, kind))


def instance_of(value: Any, name: str, *kinds: type, last: str = "") -> Any:
    """Return the value if it is an initialized instance of one of the classes; `last` ends the list in errors."""
    if not isinstance(value, kinds):
        nouns = [kind.__name__ for kind in kinds] + [last] * bool(last)
        listed = " or ".join(filter(None, [", ".join(nouns[:-1]), nouns[-1]]))
        # A name, as PyTorch takes in place of a device.
        advice = f': give Device("{value}")' if listed == "Device" and isinstance(value, str) else ""
        refuse(value, name, f"{'an' if listed[0] in 'AEIOU' else 'a'} {listed}{advice}")
    if not _core._is_made(value):
        raise TypeError(f"{name} ({type(value).__name__}) was not made: its __init__ has not run.")
    return value


def instance_or_none(value: Any, name: str, kind: type[_Kind]) -> _Kind | None:
    """Return the value if it is an instance of `kind` or None."""
    return None if value is None else instance(value, name, kind)


def made(value: _Kind, name: str) -> _Kind:
    """Return an object of a Python class if its __init__ has run."""
    if not vars(value):
        raise TypeError(f"{name} ({type(value).__name__}) was not made: its __init__ has not run.")
    return value


class Made:
    """Base class whose attributes raise before __init__ has run, as those of the extension's classes do."""

    if not TYPE_CHECKING:  # type checkers see the attributes of each class

        def __getattr__(self, name: str) -> Any:
            # copy, pickle and inspect look up special names and expect AttributeError.
            if not name.startswith("__"):
                made(self, "self")
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class Binder:
    """Binds arguments to a signature, faster than `inspect` if all are given by name and fit it."""

    def __init__(self, signature: inspect.Signature) -> None:
        self._signature = signature
        self._names = tuple(signature.parameters)
        self._known = frozenset(self._names)
        empty = inspect.Parameter.empty
        self._required = frozenset(name for name, one in signature.parameters.items() if one.default is empty)

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the given arguments in the order of the signature; raise TypeError as `inspect.Signature.bind`."""
        given = kwargs.keys()
        if not args and self._required <= given <= self._known:
            return {name: kwargs[name] for name in self._names if name in given}
        return self._signature.bind(*args, **kwargs).arguments
