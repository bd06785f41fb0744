# SPDX-License-Identifier: Apache-2.0
"""Less work for torch.export: what it writes for other readers of a program than this package is left out.

PyTorch's functions are replaced while one thread traces; they do for other threads what they always do.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx.experimental import proxy_tensor
from torch.utils import _pytree as pytree
from torch.utils._sympy.symbol import SymT, symbol_is_type

from . import torch_results

_LOCK = threading.RLock()  # PyTorch's functions are those of all threads
_KNOWN = "2.13."  # PyTorch whose proxy_call does what `_Calls` does; with others, imports take longer


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Let torch.export leave out of the programs that it makes inside of the block what is not read.

    * Their Python code, which it would write and compile seven times: it is when a program is first called.
    * "tensor_meta" of nodes, which have the same in "val", and "eager_input_vals", copies of those of their arguments.
    * "unbacked_bindings" of nodes, where all are empty: no symbol is computed from values.

    It asks for shapes of tensors without the modes that trace functions of tensors, which have no answer of their own.
    The shape of a result is computed once for all calls with arguments of the same shapes, see `_Calls`.
    """
    from torch.export import _trace  # torch.export imports it late as well: it takes a second

    patches: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch.fx.GraphModule, "recompile", _compiling_later),
        (proxy_tensor, "_extract_tensor_metadata", _nothing),
        (proxy_tensor, "_should_save_eager_input_vals", _nothing),
        (proxy_tensor, "track_tensor_tree", _without_modes),
        (_trace, "_replace_unbacked_bindings", _where_some_are),
    ]
    if torch.__version__.startswith(_KNOWN):
        patches.append((proxy_tensor, "proxy_call", _Calls))
    thread = threading.get_ident()
    with _LOCK, contextlib.ExitStack() as undo:
        for owner, name, patch in patches:
            before = getattr(owner, name, None)
            if before is None:  # another PyTorch
                continue
            undo.callback(setattr, owner, name, before)
            setattr(owner, name, _of_thread(thread, patch(before), before))
        yield


def _of_thread(thread: int, own: Callable[..., Any], others: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return (own if threading.get_ident() == thread else others)(*args, **kwargs)

    return function


def _compiling_later(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return GraphModule.recompile for modules without code, which have it from their first call on."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self)
        return self.forward(*args, **kwargs)

    def recompile(self: Any) -> Any:
        if "_code" in vars(self):
            return before(self)
        type(self).forward = forward
        return None

    return recompile


def _nothing(before: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: None


def _without_modes(before: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return before(*args, **kwargs)

    return function


def _where_some_are(before: Callable[..., Any]) -> Callable[..., Any]:
    def replace(module: torch.fx.GraphModule) -> None:
        values = (node.meta.get("val") for node in module.graph.nodes)
        env = next((value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor)), None)
        symbols = getattr(env, "var_to_range", None)
        if symbols is None or any(symbol_is_type(one, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)) for one in symbols):
            before(module)
            return
        for node in module.graph.nodes:
            node.meta.pop("unbacked_bindings", None)

    return replace


class _Calls:
    """proxy_tensor.proxy_call, which appends the nodes of a call of an operator to the graph.

    PyTorch takes 0.6 ms for a call, most of them for the shapes of its results. It does so for the first call with
    arguments of some shapes only; the same nodes are appended for others, in a tenth of that time. Calls with symbols
    or constants are all left to PyTorch.
    """

    def __init__(self, before: Callable[..., Any]) -> None:
        self._before = before
        self._results = torch_results.Results(_is_without_values)

    def __call__(self, mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            given = self._as_nodes(mode, func, pre_dispatch, args, kwargs)
            key = None if given is None else self._results.key(func, args, kwargs)
            known = None if key is None else self._results.get(key)
            if given is not None and known is not None:
                return _called(mode.tracer, func, args, given, known)
        nodes = mode.tracer.graph.nodes
        count = len(nodes)
        result = self._before(mode, func, pre_dispatch, args, kwargs)
        added = 1 + len(result) if isinstance(result, (tuple, list)) else 1
        if key is not None and len(nodes) == count + added:
            with torch._C.DisableTorchFunction():
                self._results.note(key, result, args, kwargs)
        return result

    @staticmethod
    def _as_nodes(mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Return the arguments with nodes in the places of tensors; None if PyTorch makes no node of the call."""
        if not pre_dispatch or mode.emulate_precision_casts or func in mode.decomposition_table:
            return None
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):  # other results
            return None
        try:
            found = _with_nodes(args, mode.tracer), _with_nodes(kwargs, mode.tracer)
        except _UntrackedError:
            return None
        return found if any(isinstance(one, torch.fx.Node) for one in pytree.tree_leaves(found)) else None


class _UntrackedError(Exception):
    """An argument is a tensor without a node."""


def _with_nodes(value: Any, tracer: Any) -> Any:
    if isinstance(value, torch.Tensor):
        known = tracer.tensor_tracker.get(value)
        if known is None:
            raise _UntrackedError
        return known.proxy.node
    if isinstance(value, (list, tuple)):
        return type(value)(_with_nodes(one, tracer) for one in value)
    if isinstance(value, dict):
        return {name: _with_nodes(one, tracer) for name, one in value.items()}
    return value


def _is_without_values(tensor: torch.Tensor) -> bool:
    if not isinstance(tensor, FakeTensor) or tensor.constant is not None or tensor.layout is not torch.strided:
        return False
    return not tensor.is_complex() and all(type(extent) is int for extent in tensor.shape)


def _called(tracer: Any, func: Any, args: Any, nodes: tuple[Any, Any], known: torch_results.Known) -> Any:
    """Append the nodes of a call with known results; return these."""
    source = next(one for one in pytree.tree_leaves(args) if isinstance(one, FakeTensor))
    node = tracer.create_node("call_function", func, *nodes, tracer.graph._target_to_str(func.overloadpacket.__name__))
    if known.memory is torch_results.Memory.IN_PLACE:
        return _tracked(tracer, source, node, proxy_tensor.snapshot_fake(source))
    made = []
    for size, stride, offset, dtype, device in known.tensors:
        with in_kernel_invocation_manager(source.fake_mode):
            if known.memory is torch_results.Memory.NEW:
                one = torch.empty_strided(size, stride, dtype=dtype, device="meta")
            else:
                one = torch.empty(0, dtype=dtype, device="meta")
                one.set_(source.untyped_storage(), offset, size, stride)
        made.append([FakeTensor(source.fake_mode, one, device) for _ in range(2)])  # the result, and that of the node
    if known.kind is None:
        return _tracked(tracer, made[0][0], node, made[0][1])
    node.meta["val"] = known.kind(value for _, value in made)
    return known.kind(
        _tracked(tracer, one, tracer.create_node("call_function", operator.getitem, (node, place), {}), value)
        for place, (one, value) in enumerate(made)
    )


def _tracked(tracer: Any, tensor: torch.Tensor, node: torch.fx.Node, value: torch.Tensor | None) -> torch.Tensor:
    """Return a tensor that is a node's result from now on; `value` is the same, which no operator changes."""
    node.meta["val"] = value
    tracer.tensor_tracker[tensor] = proxy_tensor._ProxyTensor(tracer.proxy(node), None)
    return tensor
