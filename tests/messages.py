# SPDX-License-Identifier: Apache-2.0
"""Sends messages to Objective-C objects, and replaces methods of their classes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mpscnn  # noqa: F401  (loads the runtime and the classes)

_KEPT: list[Any] = []
"""Functions that the runtime may call at any time."""


@cache
def _runtime() -> ctypes.CDLL:
    """Return the library that is already loaded, from any path."""
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
        ("objc_msg_lookup", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _method(name: str) -> tuple[int, int]:
    """Return class and selector."""
    kind, selector = name[2:-1].split()
    library = _runtime()
    owner = (library.objc_getMetaClass if name.startswith("+") else library.objc_getClass)(kind.encode())
    assert owner, kind
    return owner, library.sel_registerName(selector.encode())


def replace(
    method: str, result: Any, arguments: list[Any], make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> int:
    """Replace `-[Class name:]` or `+[Class name:]` by make(original); both take self, the selector and the arguments.

    Returns the argument of put_back(). The class must define the method: GCC's runtime cannot replace inherited ones.
    """
    owner, selector = _method(method)
    prototype = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p, *arguments)
    before = int(_runtime().class_getMethodImplementation(owner, selector))
    replaced = prototype(make(prototype(before)))
    _KEPT.append(replaced)
    put_back(method, ctypes.cast(replaced, ctypes.c_void_p).value or 0)
    return before


def put_back(method: str, implementation: int) -> None:
    owner, selector = _method(method)
    _runtime().class_replaceMethod(owner, selector, implementation, b"")


def name_of(selector: int) -> str:
    """Return the name of a SEL argument."""
    return _runtime().sel_getName(selector).decode()


def send(receiver: int, selector: str, result: Any, *arguments: tuple[Any, Any]) -> Any:
    """Send [receiver selector], with type and value of each argument."""
    library = _runtime()
    name = library.sel_registerName(selector.encode())
    prototype = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p, *(kind for kind, _ in arguments))
    method = prototype(library.objc_msg_lookup(receiver, name))
    return method(receiver, name, *(value for _, value in arguments))


def commit_behind_event(commit: Callable[[], None]) -> Callable[[], None]:
    """Make committed work, and the work after it, wait for an event. Return a function that signals the event."""
    pointer, value, method = ctypes.c_void_p, ctypes.c_ulonglong, "-[MTLCommandBufferOnEngine commit]"
    events: list[int] = []
    thread = threading.get_ident()

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def waiting(buffer: int, selector: int) -> None:
            if threading.get_ident() == thread:
                events.append(send(send(buffer, "device", pointer), "newSharedEvent", pointer))
                send(buffer, "encodeWaitForEvent:value:", None, (pointer, events[0]), (value, 1))
            original(buffer, selector)

        return waiting

    before = replace(method, None, [], make)
    try:
        commit()
    finally:
        put_back(method, before)

    def go() -> None:
        try:
            event = events.pop()  # once, by the first thread
        except IndexError:
            return
        send(event, "setSignaledValue:", None, (value, 1))
        send(event, "release", None)

    return go
