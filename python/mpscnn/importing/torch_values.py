# SPDX-License-Identifier: Apache-2.0
"""Modules whose Python code depends on values that the network computes: int(y.max()), ``if y.sum() > 0``, y.numpy().

No graph computes these, and torch.export finds out after seconds, several times. The same code runs in a fraction of
that with tensors without values: constants have theirs, and all that is computed from the inputs has none.
"""

from __future__ import annotations

import linecache
import traceback
import types
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from .torch_caches import is_of_module
from .torch_numbers import Numbers

_ADVICE = (
    " Load a module that returns the tensors computed before that line, and compute the rest from its results in"
    " Python, or use torch.compile with mpscnn's backend, which leaves such code to Python."
)
_NUMPY = ".numpy() is not supported"


class _Constants(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes constants with their values."""

    def __torch_dispatch__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(value, FakeTensor) for value in pytree.tree_leaves((args, kwargs))):
            return func(*args, **kwargs)
        with no_dispatch():
            return func(*args, **kwargs)


def dependence(module: torch.nn.Module, args: Any, kwargs: Any, numbers: Numbers) -> str:
    """Return why no trace of a module can succeed: code that depends on computed values. Empty if none is known."""
    found = _dependence(module, args, kwargs, numbers)
    if found and numbers.found:  # int() may only be applied to them
        numbers.kept = True
        try:
            found = _dependence(module, args, kwargs, numbers)
        finally:
            numbers.kept = False
    return "" if numbers.asked else found


def _dependence(module: torch.nn.Module, args: Any, kwargs: Any, numbers: Numbers) -> str:
    try:
        fakes = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        given, named = pytree.tree_map(
            lambda value: fakes.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value,
            (args, kwargs),
        )
        with numbers.noted(), torch.no_grad(), fakes, _Constants():  # type: ignore[no-untyped-call]
            module(*given, **named)
    except GuardOnDataDependentSymNode as error:
        return _text(error, "asks for values that the network computes")
    except RuntimeError as error:
        return _text(error, "converts values that the network computes to NumPy") if _NUMPY in str(error) else ""
    except Exception:
        return ""
    return ""


def _text(error: BaseException, does: str) -> str:
    frame, line = next(
        (one for one in reversed(list(traceback.walk_tb(error.__traceback__))) if _is_named(one[0])), (None, 0)
    )
    if frame is None:
        return ""
    path = frame.f_code.co_filename
    code = linecache.getline(path, line).strip()
    owner = frame.f_locals.get("self")
    name = f"{type(owner).__name__}.{frame.f_code.co_name}" if owner is not None else frame.f_code.co_name
    what = f"{name} ({Path(path).name}, line {line}{f': {code}' if code else ''}) {does}"
    return f"{what}, which no graph has.{_ADVICE}"


def _is_named(frame: types.FrameType) -> bool:
    return is_of_module(frame.f_code.co_filename)
