# SPDX-License-Identifier: Apache-2.0
"""Less work for torch.export: what it writes for other readers of a program than this package is left out.

PyTorch's functions are replaced while one thread traces; they do for other threads what they always do.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental import proxy_tensor
from torch.utils._sympy.symbol import SymT, symbol_is_type

_LOCK = threading.RLock()  # PyTorch's functions are those of all threads


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Let torch.export leave out of the programs that it makes inside of the block what is not read.

    * Their Python code, which it would write and compile seven times: it is when a program is first called.
    * "tensor_meta" of nodes, which have the same in "val", and "eager_input_vals", copies of those of their arguments.
    * "unbacked_bindings" of nodes, where all are empty: no symbol is computed from values.

    It asks for shapes of tensors without the modes that trace functions of tensors, which have no answer of their own.
    """
    from torch.export import _trace  # torch.export imports it late as well: it takes a second

    patches: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch.fx.GraphModule, "recompile", _compiling_later),
        (proxy_tensor, "_extract_tensor_metadata", _nothing),
        (proxy_tensor, "_should_save_eager_input_vals", _nothing),
        (proxy_tensor, "track_tensor_tree", _without_modes),
        (_trace, "_replace_unbacked_bindings", _where_some_are),
    ]
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
