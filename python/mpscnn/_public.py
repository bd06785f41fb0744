# SPDX-License-Identifier: Apache-2.0
"""Decorators for public classes and functions of the compiled core, and NumPy's and DLPack's protocols."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import DTypeLike, NDArray

from . import _checks, _core

_Kind = TypeVar("_Kind")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def public(kind: type[_Kind]) -> type[_Kind]:
    """Decorate a class that is derived from a class of the core: the core then returns objects of the public class.

    Public members of the base class are copied to it. The base class has simple properties and methods, with their
    docstrings; the public class has the constructor and the members whose types pybind11 cannot express.
    """
    base = kind.__mro__[1]
    for name, member in vars(base).items():
        if not name.startswith("_") or name == "__call__":
            setattr(kind, name, member)
    kind.__repr__ = _repr_of_any(kind.__name__, kind.__repr__)  # type: ignore[method-assign]
    kind.__init__.__doc__ = ""  # not pybind11's: the docstring of the class has the parameters
    kind.__module__ = "mpscnn"
    _core._set_public_class(kind)
    return kind


def _repr_of_any(name: str, show: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a __repr__ that also works before __init__ has run, because tracebacks may show such objects."""

    def __repr__(self: Any) -> str:
        return show(self) if _core._is_made(self) else f"<mpscnn.{name}, not made>"

    return __repr__


def in_c(function: Any) -> Callable[[_Function], _Function]:
    """Replace a Python declaration by a faster C function with the signature and docstring of the declaration."""

    def replace(declaration: _Function) -> _Function:
        parameters = inspect.signature(declaration).parameters.values()
        signature = str(inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in parameters]))
        signature = signature.replace("(self", "($self, /")
        text = f"{declaration.__name__}{signature}\n--\n\n{inspect.cleandoc(declaration.__doc__ or '')}"
        _core._document(function, text)
        replaced: _Function = function
        return replaced

    return replace


class ArrayLike:
    """Mixin with NumPy's and DLPack's protocols, for classes with a method numpy()."""

    __slots__ = ()

    if TYPE_CHECKING:

        def numpy(self) -> NDArray[Any]: ...
        def __buffer__(self, flags: int, /) -> memoryview: ...

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return a view, or a copy if ``copy`` is True or if ``dtype`` or the memory requires one."""
        copy = None if copy is None else _checks.boolean(copy, "copy")
        array = self._memory(copy)
        wanted = array.dtype if dtype is None else _checks.dtype(dtype, "dtype")
        if copy is False and wanted != array.dtype:
            kind = type(self).__name__
            raise ValueError(
                f"{kind}: dtype ({wanted}) is not the {kind.lower()}'s ({array.dtype}), which copy=False asks for."
            )
        return array.astype(wanted, copy=bool(copy))

    def _memory(self, copy: bool | None) -> NDArray[Any]:
        return self.numpy()

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Return a DLPack capsule of the memory; the arguments are those of NumPy's arrays."""
        return self.numpy().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (1, 0), DLPack's device type and id of CPU memory."""
        return (1, 0)


class OnDevice(ArrayLike):
    """ArrayLike whose memory may be a GPU's: then other libraries on the GPU share it."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _device_array(self) -> Any: ...
        @property
        def _is_visible(self) -> bool: ...

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Return a DLPack capsule of the memory; the arguments are those of NumPy's or PyTorch's arrays."""
        if self._is_visible and tuple(kwargs.get("dl_device") or (1, 0)) == (1, 0):
            kwargs.pop("stream", None)
            return self.numpy().__dlpack__(**kwargs)
        return self._device_array().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's type and number of the device: (1, 0) for CPU memory, (2, n) for that of CUDA device n."""
        device: tuple[int, int] = (1, 0) if self._is_visible else self._device_array().__dlpack_device__()
        return device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Address, shape, strides and type in a GPU's memory; AttributeError for those of other devices."""
        try:
            interface: dict[str, Any] = self._device_array().__cuda_array_interface__
        except BufferError as error:
            raise AttributeError(str(error)) from None
        return interface
