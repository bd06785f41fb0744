# SPDX-License-Identifier: Apache-2.0
"""Validation of a torch.export.ExportedProgram: arguments have the schema's types, values are defined before use.

A program may come from an untrusted file, which PyTorch loads without these checks.
"""

from __future__ import annotations

import operator
import re
from typing import Any

import torch

from ..errors import InvalidModelError

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float)
_TYPES: dict[str, tuple[type, ...]] = {
    "Tensor": (int, float, torch.SymInt, torch.SymFloat),  # a number is a tensor without axes
    "int": (int, torch.SymInt),
    "float": (int, float, torch.SymInt, torch.SymFloat),
    "number": (int, float, complex, *_NUMBERS[:3]),
    "bool": (bool, torch.SymBool),
    "str": (str,),
    "ScalarType": (torch.dtype,),
    "Layout": (torch.layout,),
    "MemoryFormat": (torch.memory_format,),
    "Device": (torch.device, str),
}
_LIMIT = 1 << 63  # of PyTorch's integers


def check(program: torch.export.ExportedProgram, name: str) -> None:
    """Raise InvalidModelError, with the name of the node, unless the program is valid."""
    seen: set[torch.fx.Node] = set()
    outputs = [node for node in program.graph.nodes if node.op == "output"]
    if len(outputs) != 1 or len(outputs[0].args) != 1 or not isinstance(outputs[0].args[0], (list, tuple)):
        raise InvalidModelError(f"{name} does not return a list of values.")
    if len(outputs[0].args[0]) != len(program.graph_signature.output_specs):
        raise InvalidModelError(f"{name} returns {len(outputs[0].args[0])} values, its signature has another number.")
    placeholders = {node.name for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if getattr(spec.arg, "name", None) not in placeholders:
            raise InvalidModelError(f'{name}: the input "{getattr(spec.arg, "name", "")}" is not in the graph.')
    for node in program.graph.nodes:
        for source in node.all_input_nodes:
            if source not in seen:
                raise InvalidModelError(f'{name}: "{node.name}" reads "{source.name}", which comes later or never.')
        seen.add(node)
        if node.op == "call_function":
            _check_call(node, f'{name}: "{node.name}"')
        elif node.op not in ("placeholder", "get_attr", "output"):
            raise InvalidModelError(f'{name}: "{node.name}" is a {node.op}, which no exported program has.')


def _check_call(node: torch.fx.Node, what: str) -> None:
    if node.target is operator.getitem:
        if len(node.args) != 2 or not isinstance(node.args[0], torch.fx.Node) or not isinstance(node.args[1], int):
            raise InvalidModelError(f"{what} picks {node.args[1:]!r} of {node.args[:1]!r}, not a part by its number.")
        parts = node.args[0].meta.get("val")
        if not isinstance(parts, (list, tuple)) or not -len(parts) <= node.args[1] < len(parts):
            raise InvalidModelError(f'{what} picks {node.args[1]} of "{node.args[0].name}", which has no such part.')
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        return  # arithmetic of extents, or a region, which is rejected later
    schema = node.target._schema
    text = f"{what} ({schema.name.removeprefix('aten::')})"
    known = {argument.name: argument for argument in schema.arguments}
    by_place = [argument for argument in schema.arguments if not argument.kwarg_only]
    if len(node.args) > len(by_place):
        raise InvalidModelError(f"{text} has {len(node.args)} arguments; the operator takes {len(by_place)}.")
    given = {argument.name: value for argument, value in zip(by_place, node.args, strict=False)}
    for key, value in node.kwargs.items():
        if key not in known or key in given:
            raise InvalidModelError(f'{text} has an argument "{key}" that the operator has not, or twice.')
        given[key] = value
    for argument in schema.arguments:
        if argument.name not in given:
            if not argument.has_default_value():
                raise InvalidModelError(f'{text} has no argument "{argument.name}".')
            continue
        kind = str(getattr(argument, "real_type", argument.type))
        is_list_of_one = getattr(argument, "N", None) is not None
        if not _is_of(given[argument.name], kind, is_list_of_one):
            raise InvalidModelError(f"{text}: {argument.name} ({_shown(given[argument.name])}) is not of type {kind}.")
    results = [str(result.type) for result in schema.returns]
    if results and not _is_result(node.meta.get("val"), results):
        raise InvalidModelError(f"{text}: the shape of its result is missing or of another kind.")


def _is_of(value: Any, kind: str, is_list_of_one: bool) -> bool:
    """Return whether an argument has a schema's type, such as "Optional[List[int]]"."""
    match = re.fullmatch(r"(Optional|List)\[(.*)\]", kind)
    if match and match[1] == "Optional":
        return value is None or _is_of(value, match[2], is_list_of_one)
    if match:
        if isinstance(value, (list, tuple)):
            return all(_is_of(part, match[2], False) for part in value)
        return is_list_of_one and _is_of(value, match[2], False)
    if isinstance(value, torch.fx.Node):
        if value.op == "get_attr" and "val" not in value.meta:
            return True
        made = value.meta.get("val")
        return isinstance(made, (torch.Tensor, *_NUMBERS) if kind == "Tensor" else _TYPES.get(kind, _NUMBERS))
    if isinstance(value, int) and not -_LIMIT <= value < _LIMIT:
        return False
    return isinstance(value, _TYPES[kind]) if kind in _TYPES else True


def _is_result(value: Any, kinds: list[str]) -> bool:
    if len(kinds) > 1:
        return isinstance(value, (list, tuple)) and len(value) == len(kinds)
    if kinds[0] == "Tensor":
        return isinstance(value, torch.Tensor)
    if kinds[0].startswith("List"):
        return isinstance(value, (list, tuple))
    return True


def _shown(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, (str, torch.fx.Node)) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
