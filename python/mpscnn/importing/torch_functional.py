# SPDX-License-Identifier: Apache-2.0
"""The functional form of an exported program's graph, as run_decompositions({}) has it, without a second trace.

Operators that change a view of a tensor become ones with a new result, which is written back to the tensor that is
viewed; whatever reads that tensor later, or another view of it, reads the new one. Regions are inlined.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch

_ATEN = torch.ops.aten
# Views, and what writes a changed view back: the operator with the values of both in front of the view's arguments.
_SCATTERS: dict[Any, Any] = {
    _ATEN.slice.Tensor: _ATEN.slice_scatter.default,
    _ATEN.select.int: _ATEN.select_scatter.default,
}
# Operators whose result is their source's memory with the same shape; dropout, in eval mode.
_SAME = {_ATEN.detach.default, _ATEN.alias.default, _ATEN.dropout.default, _ATEN.feature_dropout.default}
# Operators that never copy; others, such as reshape, may.
_VIEWS = {
    *("slice", "select", "view", "unsqueeze", "squeeze", "permute", "transpose", "t", "expand", "split", "chunk"),
    *("split_with_sizes", "unbind", "detach", "alias", "dropout", "feature_dropout"),
}
# Operators whose result has the type of their first argument, whatever those of the others: values, masks, places.
_OF_FIRST_TYPE = {
    *("copy_", "fill_", "masked_fill_", "masked_scatter_", "index_put_", "index_fill_", "index_copy_", "index_add_"),
    *("scatter_", "scatter_add_"),
}
# Regions: how many arguments they have in front of the module.
_REGIONS = {"wrap_with_autocast": 4, "wrap_with_set_grad_enabled": 1}


class _OtherError(Exception):
    """The graph has something that this module does not bring to a functional form."""


def functional(program: torch.export.ExportedProgram, *, of_module: bool) -> torch.fx.Graph | None:
    """Return the graph in functional form; None if that needs PyTorch's own functionalization.

    `of_module`: the program is a trace, not from a file. Regions in files are not inlined: they were not checked.
    """
    try:
        return _Writer(program, of_module).graph
    except (_OtherError, LookupError, TypeError, ValueError, AttributeError):  # the last ones: of files
        return None


@dataclass
class _Alias:
    """A value of the new graph that shares memory.

    Attributes
    ----------
    view : torch.fx.Node or None
        Node of the old graph that makes this view of `base`; None for the owner of the memory.
    base : _Alias or None
    node : torch.fx.Node
        Its newest node in the new graph.
    version : int
        Version of the owner that `node` has.
    """

    view: torch.fx.Node | None
    base: _Alias | None
    node: torch.fx.Node
    version: int = 0

    @property
    def owner(self) -> _Alias:
        return self if self.base is None else self.base.owner


class _Writer:
    def __init__(self, program: torch.export.ExportedProgram, of_module: bool) -> None:
        self.graph, self.of_module = torch.fx.Graph(), of_module
        self.aliases: dict[torch.fx.Node, _Alias] = {}  # by nodes of the program
        self._write(program.graph, program.graph_module, "")

    def _write(self, graph: torch.fx.Graph, module: torch.nn.Module, prefix: str) -> Any:
        """Write the nodes of a graph; return its output's arguments if it is a region's, which has a prefix."""
        for node in graph.nodes:
            if prefix and node.op == "placeholder":
                continue  # the region's arguments
            if node.op == "output":
                if prefix:
                    return node.args[0]
                self._copy(node)
            elif node.op == "get_attr":
                if not isinstance(operator.attrgetter(str(node.target))(module), torch.nn.Module):
                    self._own(node, self._copy(node, target=prefix + str(node.target)))
            elif isinstance(node.target, torch._ops.HigherOrderOperator):
                self._inline(node, module, prefix)
            elif node.op == "call_function":
                self._call(node)
            else:
                self._own(node, self._copy(node))
        return None

    def _inline(self, node: torch.fx.Node, module: torch.nn.Module, prefix: str) -> None:
        kind = node.target.name()  # type: ignore[union-attr]
        count = _REGIONS.get(kind)
        if not self.of_module or count is None or node.kwargs or (kind == "wrap_with_autocast" and node.args[2]):
            raise _OtherError
        region: Any = node.args[count]
        name = str(region.target)
        part = operator.attrgetter(name)(module)
        inputs = [one for one in part.graph.nodes if one.op == "placeholder"]
        for one, given in zip(inputs, node.args[count + 1 :], strict=True):
            if not isinstance(given, torch.fx.Node):
                raise _OtherError
            self.aliases[one] = self.aliases[given]
        returned = self._write(part.graph, part, f"{prefix}{name}.")
        for user in node.users:
            if user.target is not operator.getitem:
                raise _OtherError
            value = returned[user.args[1]]
            if not isinstance(value, torch.fx.Node):
                raise _OtherError
            self.aliases[user] = self.aliases[value]

    def _call(self, node: torch.fx.Node) -> None:
        if node in self.aliases:  # a region's result
            return
        if node.target is _ATEN.detach_.default:  # changes no values
            self.aliases[node] = self.aliases[node.args[0]]  # type: ignore[index]
            return
        written, viewed = _memory(node)
        if written:
            self._change(node, written)
        elif viewed is None or not node.users:
            self._own(node, self._copy(node))
        else:
            base = self.aliases[viewed]
            self.aliases[node] = _Alias(node, base, self._copy(node), base.owner.version)

    def _change(self, node: torch.fx.Node, written: list[torch.fx.Node | None]) -> None:
        target = written[0]
        if len(written) > 1 or target is None or target is not node.args[0]:
            raise _OtherError
        alias = self.aliases[target]
        if alias.owner.node.op != "call_function":
            raise _OtherError
        self._write_back(alias, self._copy(node, target=_without_change(node)))
        self.aliases[node] = alias

    def _write_back(self, alias: _Alias, new: torch.fx.Node) -> None:
        """Set a new node of an alias, and of all that it is a view of."""
        owner = alias.owner
        version = owner.version + 1
        while alias.view is not None:
            assert alias.base is not None
            alias.node, alias.version = new, version
            view, alias = alias.view, alias.base
            if view.target in _SAME:
                continue
            scatter = _SCATTERS.get(view.target)
            if scatter is None:
                raise _OtherError
            before = self._at(alias, owner.version)
            args = (before, new, *self._mapped(view.args[1:]))
            new = self._node(view, scatter, args, self._mapped(view.kwargs))
            new.meta["val"] = before.meta["val"]
        owner.node, owner.version = new, version

    def _at(self, alias: _Alias, version: int) -> torch.fx.Node:
        """Return the node of an alias at this version, which is made if it has another one."""
        if alias.version != version:
            assert alias.base is not None
            assert alias.view is not None
            view = alias.view
            if view.target is not operator.getitem and view.target._opname not in _VIEWS:  # type: ignore[union-attr]
                raise _OtherError
            args = (self._at(alias.base, version), *self._mapped(view.args[1:]))
            alias.node = self._node(view, view.target, args, self._mapped(view.kwargs))
            alias.version = version
        return alias.node

    def _current(self, alias: _Alias) -> torch.fx.Node:
        """Return the newest node of an alias, which is made again if its memory was changed since."""
        return self._at(alias, alias.owner.version)

    def _own(self, node: torch.fx.Node, new: torch.fx.Node) -> None:
        self.aliases[node] = _Alias(None, None, new)

    def _mapped(self, value: Any) -> Any:
        return torch.fx.map_arg(value, lambda node: self._current(self.aliases[node]))

    def _copy(self, node: torch.fx.Node, target: Any = None) -> torch.fx.Node:
        if node.op == "call_function":
            return self._node(node, target or node.target, self._mapped(node.args), self._mapped(node.kwargs))
        args = self._mapped(node.args) if node.op == "output" else node.args
        new = self.graph.create_node(node.op, target or node.target, args, node.kwargs, node.name, node.type)
        new.meta = dict(node.meta)
        return new

    def _node(self, like: torch.fx.Node, target: Any, args: Any, kwargs: Any) -> torch.fx.Node:
        new = self.graph.create_node("call_function", target, args, dict(kwargs), like.name)
        new.meta = dict(like.meta)
        return new


def _memory(node: torch.fx.Node) -> tuple[list[torch.fx.Node | None], torch.fx.Node | None]:
    """Return the arguments that a node changes, and the one whose memory its result may share."""
    if node.target in _SAME or node.target is operator.getitem:
        source: Any = node.args[0]
        return [], source if isinstance(source, torch.fx.Node) else None
    schema = getattr(node.target, "_schema", None)
    written: list[torch.fx.Node | None] = []
    viewed = None
    for place, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.alias_info is None:
            continue
        value: Any = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if argument.alias_info.is_write:
            written.append(value if isinstance(value, torch.fx.Node) else None)
        elif isinstance(value, torch.fx.Node):
            viewed = value
    return written, viewed


def _without_change(node: torch.fx.Node) -> Any:
    """Return the operator that computes what this one writes into its first argument."""
    target: Any = node.target
    packet = getattr(getattr(torch.ops, target.namespace), target._opname.removesuffix("_"), None)
    new = getattr(packet, target._overloadname, None)
    if new is None or new is target or new._schema.is_mutable:
        raise _OtherError
    names = [[argument.name for argument in one._schema.arguments] for one in (new, target)]
    types = {value.meta["val"].dtype for value in node.all_input_nodes if isinstance(value.meta["val"], torch.Tensor)}
    if names[0] != names[1] or (len(types) > 1 and target._opname not in _OF_FIRST_TYPE):  # it may promote types
        raise _OtherError
    return new
