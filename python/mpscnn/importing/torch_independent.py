# SPDX-License-Identifier: Apache-2.0
"""Modules whose trace for one size is that for all sizes, so that no second trace is needed.

A trace with numbers for heights and widths is valid for others if nothing that the module computes depends on them:

* Its Python code reads no size of a tensor (`Watch` sees all functions of tensors), or only the batch, for the first
  extent of a view. It does not handle errors of PyTorch's either.
* Each operator has the same arguments and meaning for all sizes. The axes of each tensor are known by their letters:
  convolutions read "NCHW", a part is one of channels, a flattened vector is "NF". "1" is an axis of extent 1 for all
  sizes, as behind a global pooling: "NC11" is flattened to "NC". Operators that are not listed, or meet other letters,
  are taken to depend on the size.

Most classifiers are so; the second trace, with symbols, takes two to seven times as long as this one.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from . import torch_numbers, torch_questions, torch_recording
from .torch_caches import Batch, SizeReadError
from .torch_guards import symbols
from .torch_patterns import operator_name

# Functions of a tensor that return no tensor, and no size.
_PLAIN = {
    *(torch.Tensor.dim, torch.Tensor.ndimension, torch.Tensor.is_floating_point, torch.Tensor.is_complex),
    *(
        getattr(torch.Tensor, name).__get__
        for name in ("ndim", "dtype", "device", "layout", "requires_grad", "is_cuda")
    ),
    *(torch.is_floating_point, torch.is_complex, torch._assert),
}
# PyTorch's functions in Python whose code reads no size, or only to raise an error.
_FUNCTIONS = {
    *("adaptive_avg_pool2d", "adaptive_max_pool2d", "alpha_dropout", "batch_norm", "celu", "dropout", "dropout1d"),
    *("dropout2d", "elu", "feature_alpha_dropout", "gelu", "group_norm", "hardsigmoid", "hardswish", "hardtanh"),
    *("instance_norm", "interpolate", "layer_norm", "leaky_relu", "log_softmax", "max_pool2d", "mish", "pad", "relu"),
    *("relu6", "selu", "sigmoid", "silu", "softmax", "softmin", "softplus", "softsign", "split", "tanh", "tanhshrink"),
    *("threshold", "upsample", "_assert", "__rsub__", "__rdiv__", "__rtruediv__", "__rpow__"),
}


# Functions whose results are constants of the size of a tensor.
_LIKE = {torch.zeros_like, torch.ones_like, torch.full_like}
_OF_SIZE = {
    *_LIKE,
    torch.empty_like,
    *(torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full, torch.Tensor.new_empty),
}

# Functions that may be given the batch.
_VIEWS = (torch.Tensor.view, torch.Tensor.reshape, torch.reshape)


class Watch(TorchFunctionMode):
    """Raises SizeReadError when code reads a size of a tensor, or does more with size(0) than a view.

    Parameters
    ----------
    numbers : torch_numbers.Numbers
        Notes of the traces.

    Attributes
    ----------
    is_read : bool
        Whether a size was read.
    left : set
        Functions for which LeftError is raised.
    """

    def __init__(self, numbers: torch_numbers.Numbers) -> None:
        super().__init__()
        self._numbers = numbers
        self._batches: list[Batch] = []
        self._views = 0  # that are given one of them
        self.is_read = False
        self.left: set[Any] = set()

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        frame = torch_questions.frame_of_module(sys._getframe(1))
        if frame is not None:
            self._numbers.reached(frame)
        if func in self.left:
            raise torch_recording.LeftError(str(func))
        if func in _PLAIN:
            return func(*args, **kwargs)
        is_vector = func in _LIKE and bool(args) and all(extent == 1 for extent in args[0].shape[2:])
        if func in _OF_SIZE and not is_vector:  # a trace for one size is not that for all
            self._stop(func)
        is_function = isinstance(func, types.FunctionType) and not _reads_none(func, args, kwargs)
        if is_function or torch_questions.is_handled(frame):  # an error, of some sizes only
            self._stop(func)
        if self._batches:
            args, kwargs = self._without_batch(func, args, kwargs)
        result = func(*args, **kwargs)
        if func is torch.Tensor.size and (*args[1:], *kwargs.values()) == (0,) and type(result) is int:
            self._batches.append(Batch(result))
            return self._batches[-1]
        if not _is_of_tensors(result):
            self._stop(func)
        return result

    def _without_batch(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the arguments with numbers for the batch."""
        found = [one for one in pytree.tree_leaves((args, kwargs)) if type(one) is Batch]
        if not found:
            return args, kwargs
        if func not in _VIEWS:
            self._stop(func)
        self._views += 1
        for one in found:
            one.is_used = True
        result: tuple[Any, Any] = pytree.tree_map(
            lambda one: int.__int__(one) if type(one) is Batch else one, (args, kwargs)
        )
        return result

    def set_batch(self, program: torch.export.ExportedProgram) -> bool:
        """Let the views of a program read the batch; return whether each has one that it can have from the module."""
        if not self._batches:
            return True
        nodes = [node for node in program.graph.nodes if operator_name(node) in ("view", "reshape")]
        number = int.__int__(self._batches[0])
        views = [node for node in nodes if number in node.args[1]]
        is_first = all(node.args[1][0] == number and number not in node.args[1][1:] for node in views)
        if not is_first or len(views) != self._views or not all(one.is_used for one in self._batches):
            return False
        inputs = set(program.graph_signature.user_inputs)
        source = next(node for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs)
        for node in views:
            with program.graph.inserting_before(node):
                size = program.graph.call_function(torch.ops.aten.sym_size.int, (source, 0))
            size.meta["val"] = number
            node.update_arg(1, [size, *node.args[1][1:]])
        program.graph_module.recompile()
        return True

    def _stop(self, func: Any) -> None:
        self.is_read = True
        raise SizeReadError(getattr(func, "__name__", str(func)))

    @contextlib.contextmanager
    def over(self, module: torch.nn.Module) -> Iterator[None]:
        """Watch the calls of a module inside of the block; its attributes are restored by the caller."""
        forward: Callable[..., Any] = module.forward

        @functools.wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return forward(*args, **kwargs)

        module.forward = watched
        yield


def can_watch(module: torch.nn.Module) -> bool:
    """Return whether all code of a module that sees its inputs is run by forward(), in Python."""
    is_called = type(module).__call__ is torch.nn.Module.__call__ or isinstance(module, torch.fx.GraphModule)
    has_hooks = any((module._forward_hooks, module._forward_pre_hooks, *map(vars(_MODULE).get, _GLOBAL_HOOKS)))
    return is_called and not has_hooks and not any(isinstance(one, torch.jit.ScriptModule) for one in module.modules())


_MODULE = torch.nn.modules.module
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")


def _reads_none(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a Python function of PyTorch computes with no size of its arguments."""
    name = func.__name__
    if not (func.__module__ or "").startswith("torch.") or name not in _FUNCTIONS:
        return False
    if name in ("interpolate", "upsample"):  # recompute_scale_factor is the sixth argument
        return not kwargs.get("recompute_scale_factor") and not any(args[5:6])
    # None in the result's size is the source's.
    return not any(None in value for value in (*args, *kwargs.values()) if isinstance(value, (tuple, list)))


def _is_of_tensors(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return not isinstance(value, torch.Size) and bool(value) and all(map(_is_of_tensors, value))
    return value is None or isinstance(value, torch.Tensor)


_POINTWISE = {
    *("relu", "relu6", "hardtanh", "elu", "selu", "celu", "leaky_relu", "silu", "mish", "gelu", "hardswish", "sigmoid"),
    *("hardsigmoid", "tanh", "softplus", "exp", "log", "abs", "neg", "sqrt", "rsqrt", "square", "reciprocal", "pow"),
    *("clamp", "clamp_min", "clamp_max", "add", "sub", "rsub", "mul", "div", "maximum", "minimum", "dropout"),
    *("feature_dropout", "alpha_dropout", "contiguous", "clone", "detach", "alias", "log_sigmoid", "erf"),
    *("sin", "cos", "threshold"),
}
# Of images, with images as results, and weights.
_OF_IMAGES = {
    *("conv2d", "conv_transpose2d", "group_norm", "instance_norm", "max_pool2d", "avg_pool2d", "prelu"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "adaptive_avg_pool2d", "adaptive_max_pool2d", "pad"),
}
_CONSTANTS = {"zeros_like", "ones_like", "full_like"}
_RESIZES = {
    *("upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d", "upsample_bicubic2d"),
}
_REDUCTIONS = {"mean", "sum", "amax", "amin"}
_SOFTMAX = {"softmax", "log_softmax"}
_ALL = (1 << 63) - 1  # the end of a slice without one

# Letters of a tensor's axes; of a list of tensors; "" for constants, and None for numbers.
_Letters = str | None


class _DependentError(Exception):
    """An operator may depend on the size."""


def is_independent(program: torch.export.ExportedProgram) -> bool:
    """Return whether a program for images of one size, whose module read none, is that for all sizes."""
    inputs = set(program.graph_signature.user_inputs)
    letters: dict[torch.fx.Node, _Letters] = {}
    try:
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in inputs:
                value = node.meta["val"]
                is_image = isinstance(value, torch.Tensor) and value.ndim == 4 and value.dtype.is_floating_point
                if not is_image or any(extent == 1 for extent in value.shape if not symbols(extent)):
                    return False
                letters[node] = "NCHW"
            elif node.op in ("placeholder", "get_attr"):
                letters[node] = ""
            elif node.op == "call_function":
                letters[node] = _of_result(node, letters)
            elif node.op != "output":
                return False
    except _DependentError:
        return False
    return True


def _of_result(node: torch.fx.Node, letters: dict[torch.fx.Node, _Letters]) -> _Letters:
    name = operator_name(node)
    sources = [letters[source] for source in node.all_input_nodes]
    if not any(sources):  # constants; numbers are of the batch
        if None in sources:
            raise _DependentError
        return ""
    if node.target is operator.getitem:
        return sources[0]
    if name == "sym_size" and node.args[1] == 0:
        return None
    first: Any = node.args[0]
    rule = _RULES.get(name)
    of = letters[first] if isinstance(first, torch.fx.Node) else ""
    if rule is None or (name in _TAKES_CONSTANTS and any(sources[1:])):
        raise _DependentError
    return rule(node, of or "", letters)


def _pointwise(node: torch.fx.Node, of: str, letters: dict[torch.fx.Node, _Letters]) -> str:
    result = ""
    for found in {letters[source] for source in node.all_input_nodes} - {""}:
        result = _broadcast(result or found or "", found)
    for source in node.all_input_nodes:
        if letters[source] == "":
            value = source.meta.get("val")
            shape = () if not isinstance(value, torch.Tensor) else tuple(value.shape)
            # A constant with extents fixes those that it meets.
            if len(shape) > len(result):
                raise _DependentError
            met = result[len(result) - len(shape) :]
            if any(letter in "NHW1" and extent != 1 for letter, extent in zip(met, shape, strict=True)):
                raise _DependentError
    return result


def _broadcast(first: str, second: _Letters) -> str:
    """Return the axes of a result of two tensors of the same rank, whose axes differ at most in a "1"."""
    if second is None or len(first) != len(second):
        raise _DependentError
    pairs = zip(first, second, strict=True)
    if any(one != other and "1" not in (one, other) for one, other in pairs):
        raise _DependentError
    return "".join(max(pair) for pair in zip(first, second, strict=True))  # letters are behind digits


def _image(node: torch.fx.Node, of: str, letters: Any) -> str:
    """Return the axes of an image that is computed from another: those of extent 1 stay so if the result's are."""
    if len(of) != 4 or of[:2] != "NC" or of[2] not in "H1" or of[3] not in "W1":
        raise _DependentError
    value: Any = node.meta["val"]
    shape = (value[0] if isinstance(value, (tuple, list)) else value).shape
    sides: Any = node.args[1] if operator_name(node).startswith("adaptive") else (0, 0)
    ones = [shape[place] == 1 and (of[place] == "1" or sides[place - 2] == 1) for place in (2, 3)]
    return "NC" + "".join("1" if is_one else letter for is_one, letter in zip(ones, "HW", strict=True))


def _channels_second(node: torch.fx.Node, of: str, letters: Any) -> str:
    if of[1:2] != "C":
        raise _DependentError
    return of


def _constant(node: torch.fx.Node, of: str, letters: Any) -> str:
    if set(of) - set("NC1"):
        raise _DependentError
    return of


def _resize(node: torch.fx.Node, of: str, letters: Any) -> str:
    given = dict(zip([one.name for one in node.target._schema.arguments], node.args, strict=False))  # type: ignore[union-attr]
    if given.get("output_size", 0) is not None or not given.get("scale_factors"):
        raise _DependentError
    return _image(node, of, letters)


def _linear(node: torch.fx.Node, of: str, letters: Any) -> str:
    return _with_last(node, of, letters)[:-1] + "C"


def _with_last(node: torch.fx.Node, of: str, letters: Any) -> str:
    if of[-1] not in "CF":
        raise _DependentError
    return of


def _softmax(node: torch.fx.Node, of: str, letters: Any) -> str:
    dim: Any = node.args[1]
    if not dim % len(of):
        raise _DependentError
    return of


def _layer_norm(node: torch.fx.Node, of: str, letters: Any) -> str:
    shape: Any = node.args[1]
    if len(shape) != 1:
        raise _DependentError
    return _with_last(node, of, letters)


def _permuted(node: torch.fx.Node, of: str, letters: Any) -> str:
    if operator_name(node) == "permute":
        dims: Any = node.args[1]
        order = [dim % len(of) for dim in dims]
    else:
        order = list(range(len(of)))
        one, other = (int(dim) % len(of) for dim in node.args[1:3])  # type: ignore[arg-type]
        order[one], order[other] = order[other], order[one]
    if order[0]:
        raise _DependentError
    return "".join(of[dim] for dim in order)


def _reduced(node: torch.fx.Node, of: str, letters: Any) -> str:
    dims: Any = node.args[1] if len(node.args) > 1 else None
    dims = [dims] if isinstance(dims, int) else dims
    if not dims or 0 in [dim % len(of) for dim in dims]:
        raise _DependentError
    keepdim = node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False)
    are_left = [place - len(of) not in dims and place not in dims for place in range(len(of))]
    if keepdim:
        return "".join(
            letter if is_left or letter == "C" else "1" for letter, is_left in zip(of, are_left, strict=True)
        )
    return "".join(letter for letter, is_left in zip(of, are_left, strict=True) if is_left)


def _flattened(node: torch.fx.Node, of: str, letters: Any) -> str:
    args = (*node.args, 0, -1)[1:3] if len(node.args) == 1 else (*node.args[1:], -1)[:2]
    if args[0] != 1 or args[1] not in (-1, len(of) - 1):
        raise _DependentError
    return _vector(of)


def _vector(of: str) -> str:
    """Return the axes of a tensor that is flattened behind the batch."""
    return of[:2] if len(of) == 2 or not of[2:].strip("1") else "NF"


def _viewed(node: torch.fx.Node, of: str, letters: dict[torch.fx.Node, _Letters]) -> str:
    """Return the axes of a view as vectors, or of vectors with axes of extent 1."""
    to: Any = node.args[1]
    is_batch = isinstance(to[0], torch.fx.Node) and letters[to[0]] is None
    if not is_batch or not all(type(extent) is int for extent in to[1:]):
        raise _DependentError
    vector, long = _vector(of), [place for place, extent in enumerate(to) if place and extent != 1]
    if len(to) == 2:
        return vector
    if vector != "NC" or len(long) != 1:
        raise _DependentError
    return "N" + "".join("C" if place == long[0] else "1" for place in range(1, len(to)))


def _with_one(node: torch.fx.Node, of: str, letters: Any) -> str:
    dim: Any = node.args[1]
    place = dim % (len(of) + 1)
    if not place:
        raise _DependentError
    return of[:place] + "1" + of[place:]


def _without_ones(node: torch.fx.Node, of: str, letters: Any) -> str:
    dims: Any = node.args[1] if len(node.args) > 1 else ()
    places = {dim % len(of) for dim in ([dims] if isinstance(dims, int) else dims)}
    if not places or any(of[place] != "1" for place in places):
        raise _DependentError
    return "".join(letter for place, letter in enumerate(of) if place not in places)


def _concatenated(node: torch.fx.Node, of: str, letters: dict[torch.fx.Node, _Letters]) -> str:
    found = {letters[source] for source in node.all_input_nodes}
    dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    result = next(iter(found)) or ""
    if len(found) > 1 or not result or result[dim] != "C":
        raise _DependentError
    return result


def _part(node: torch.fx.Node, of: str, letters: Any) -> str:
    place = 1 if operator_name(node) == "slice" else 2
    dim: Any = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
    is_whole = operator_name(node) == "slice" and node.args[2:] in ((), (0,), (0, _ALL), (0, _ALL, 1))
    if not is_whole and of[dim] != "C":
        raise _DependentError
    return of


_Rule = Callable[[torch.fx.Node, str, dict[torch.fx.Node, _Letters]], str]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(_OF_IMAGES, _image),
    **dict.fromkeys(_RESIZES, _resize),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    **dict.fromkeys(_SOFTMAX, _softmax),
    **dict.fromkeys(("permute", "transpose"), _permuted),
    **dict.fromkeys(("view", "reshape"), _viewed),
    **dict.fromkeys(_CONSTANTS, _constant),
    "unsqueeze": _with_one,
    "squeeze": _without_ones,
    **dict.fromkeys(("slice", "split", "split_with_sizes", "chunk"), _part),
    "batch_norm": _channels_second,
    "linear": _linear,
    "layer_norm": _layer_norm,
    "flatten": _flattened,
    "cat": _concatenated,
}
# Operators whose arguments after the first are constants.
_TAKES_CONSTANTS = {*_OF_IMAGES, *_RESIZES, "batch_norm", "linear", "layer_norm"}
