# SPDX-License-Identifier: Apache-2.0
"""Replaces methods of Objective-C classes, so that openmps answers as Apple's frameworks may and it does not.

For programs in a process of their own: nothing is put back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpscnn  # noqa: F401  (loads the runtime and the classes)

_KEPT: list[Any] = []
"""Functions that the runtime calls from now on."""


def _runtime() -> ctypes.CDLL:
    """The library that is loaded already, wherever it is from."""
    maps = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    paths = {fields[5] for fields in maps if len(fields) == 6}
    library = ctypes.CDLL(next(path for path in paths if Path(path).name.startswith("libobjc")))
    for name, result, arguments in (
        ("objc_getClass", ctypes.c_void_p, [ctypes.c_char_p]),
        ("objc_getMetaClass", ctypes.c_void_p, [ctypes.c_char_p]),
        ("sel_registerName", ctypes.c_void_p, [ctypes.c_char_p]),
        ("sel_getName", ctypes.c_char_p, [ctypes.c_void_p]),
        ("class_getMethodImplementation", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]),
        ("class_replaceMethod", ctypes.c_void_p, [ctypes.c_void_p] * 3 + [ctypes.c_char_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def replace(
    method: str, result: Any, arguments: list[Any], make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """`-[Class name:]` or `+[Class name:]` becomes make(original); both take self, the selector and the arguments.

    The class has the method itself: GCC's runtime does not replace inherited ones.
    """
    kind, name = method[2:-1].split()
    library = _runtime()
    owner = (library.objc_getMetaClass if method.startswith("+") else library.objc_getClass)(kind.encode())
    assert owner, kind
    selector = library.sel_registerName(name.encode())
    prototype = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p, *arguments)
    original = prototype(library.class_getMethodImplementation(owner, selector))
    replaced = prototype(make(original))
    _KEPT.append(replaced)
    library.class_replaceMethod(owner, selector, ctypes.cast(replaced, ctypes.c_void_p), b"")


def name_of(selector: int) -> str:
    """Of a SEL among the arguments."""
    return _runtime().sel_getName(selector).decode()
