# SPDX-License-Identifier: Apache-2.0
"""Extents as values: the batch is a symbol, and values computed from heights and widths are marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..builder import UnmappedError


@dataclass(frozen=True, eq=False)
class Extent:
    """An extent that may differ when the graph runs, or a number computed from such extents.

    Attributes
    ----------
    value : int, float or None
        Value for the input shapes at import; None: it depends on the batch, which is unknown.
    of : (str, str) or None
        Value of the graph and axis, if this is the axis's extent times `ratio`; ("", "N") is the batch. None: another
        expression.
    ratio : Fraction
    """

    value: int | float | None
    of: tuple[str, str] | None = None
    ratio: Fraction = Fraction(1)

    def _opaque(self, other: Any, f: Callable[[Any, Any], Any]) -> Extent:
        values = self.value, other.value if isinstance(other, Extent) else other
        return Extent(None if None in values else f(*values))

    def __add__(self, other: Any) -> Extent:
        return self if _is_number(other, 0) else self._opaque(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Extent:
        return self if _is_number(other, 0) else self._opaque(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Extent:
        return self._opaque(other, lambda a, b: b - a)

    def __neg__(self) -> Extent:
        return self * -1

    def _of_batch(self, other: Any) -> int | None:
        """Return the value of an extent beside which this one is a multiple of the batch, otherwise None."""
        if self.of != ("", "N") or not isinstance(other, Extent) or not isinstance(other.value, (int, np.integer)):
            return None
        return int(other.value) or None

    def __mul__(self, other: Any) -> Extent:
        # Windows of images: the batch times their number. The graph is read again at another size (`read`).
        if (number := self._of_batch(other)) is not None:
            return self * number
        if isinstance(other, Extent) and (number := other._of_batch(self)) is not None:
            return other * number
        if isinstance(other, Extent) or self.of is None or not math.isfinite(other) or other == 0:
            return self._opaque(other, lambda a, b: a * b)
        value = None if self.value is None else self.value * other
        return Extent(value, self.of, self.ratio * Fraction(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Extent:
        return self._opaque(other, lambda a, b: a / b if b else math.nan)

    def __rtruediv__(self, other: Any) -> Extent:
        return self._opaque(other, lambda a, b: b / a if a else math.nan)

    def __floordiv__(self, other: Any) -> Extent:
        if (number := self._of_batch(other)) is not None:
            return self // number
        if not isinstance(other, Extent) and self.of is not None and other and not self.ratio % Fraction(other):
            value = None if self.value is None else self.value // other
            return Extent(value, self.of, self.ratio / Fraction(other))
        return self._opaque(other, lambda a, b: a // b if b else 0)

    def __rfloordiv__(self, other: Any) -> Extent:
        return self._opaque(other, lambda a, b: b // a if a else 0)

    def __mod__(self, other: Any) -> Extent:
        return self._opaque(other, lambda a, b: a % b if b else 0)

    def __rmod__(self, other: Any) -> Extent:
        return self._opaque(other, lambda a, b: b % a if a else 0)

    def real(self) -> Extent:
        """Return the extent as a float, for divisions."""
        return replace(self, value=None if self.value is None else float(self.value))

    def rounded(self, f: Callable[[float], int]) -> Extent:
        """Return the extent rounded to an integer by `f`."""
        if self.of is not None and self.ratio.denominator == 1:
            return Extent(None if self.value is None else int(self.value), self.of, self.ratio)
        return Extent(None if self.value is None or not math.isfinite(self.value) else int(f(self.value)))

    def is_multiple_of(self, other: Extent) -> Fraction | None:
        """Return the ratio to the other extent if the ratio is the same at any size, otherwise None."""
        return self.ratio / other.ratio if self.of is not None and self.of == other.of else None

    @property
    def is_batch(self) -> bool:
        """Whether this is the size of the batch itself."""
        return self.of == ("", "N") and self.ratio == 1


@dataclass(frozen=True, eq=False)
class ImageNumber(Extent):
    """The number of an image in its batch, from 0, times `factor`, plus `offset`.

    One of them is that of all images: an array of them has extent 1 along the axis of the images.
    """

    factor: int = 1
    offset: int = 0

    def __add__(self, other: Any) -> Extent:
        if not isinstance(other, (int, np.integer)):
            return super().__add__(other)
        return replace(self, offset=self.offset + int(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Extent:
        return self + -int(other) if isinstance(other, (int, np.integer)) else super().__sub__(other)

    def __mul__(self, other: Any) -> Extent:
        if not isinstance(other, (int, np.integer)):
            return super().__mul__(other)
        return replace(self, factor=self.factor * int(other), offset=self.offset * int(other))

    __rmul__ = __mul__

    def rounded(self, f: Callable[[float], int]) -> Extent:
        """Return the number, which is whole."""
        return self


BATCH = Extent(None, ("", "N"))


def _is_number(value: Any, number: int) -> bool:
    return not isinstance(value, Extent) and value == number


def extents(items: Iterable[Any]) -> NDArray[Any]:
    """Return an array of one axis, of integers if no item is an Extent."""
    found = list(items)
    if not any(isinstance(item, Extent) for item in found):
        return np.array(found, np.int64)
    array = np.empty(len(found), object)
    array[:] = found
    return array


def is_symbolic(array: NDArray[Any]) -> bool:
    """Return whether some of the values are extents that may change."""
    return array.dtype == object and any(isinstance(item, Extent) for item in array.ravel())


def settled(array: NDArray[Any], fix: Callable[[], None]) -> NDArray[Any]:
    """Return plain numbers; fix heights and widths that they depend on. UnmappedError if they depend on the batch."""
    if array.dtype != object:
        return array
    values = []
    for item in array.ravel():
        if isinstance(item, Extent):
            if item.value is None:
                raise UnmappedError("a value that is computed of the size of the batch")
            fix()
            values.append(item.value)
        else:
            values.append(item)
    whole = all(isinstance(v, (int, np.integer)) for v in values)
    return np.array(values, np.int64 if whole else np.float32).reshape(array.shape)
