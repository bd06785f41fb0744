# SPDX-License-Identifier: Apache-2.0
"""Options of optimizers and losses: read-only attributes of the public classes."""

from __future__ import annotations

from typing import Any

from . import _checks


def attributes(kind: type[Any]) -> type[Any]:
    """Add a read-only property for each annotated name of a class, with the value passed to `__init__`."""
    for name in vars(kind).get("__annotations__", {}):
        setattr(kind, name, _attribute(name, kind.__doc__ or ""))
    return kind


def _attribute(name: str, documentation: str) -> property:
    def get(self: Any) -> Any:
        return _checks.made(self, "self")._given[name]

    lines = (line.strip().partition(" : ") for line in documentation.splitlines())
    return property(get, doc=next((text for names, _, text in lines if name in names.split(", ")), None))


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options among the arguments of an `__init__`."""
    own = {name: value for name, value in arguments.items() if name not in ("self", "device", "__class__")}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
