# SPDX-License-Identifier: Apache-2.0
"""Modules whose code asks for what a trace does not have: kinds of numbers, orders in memory, errors, traces."""

from __future__ import annotations

import contextlib
import functools
import numbers
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import _assert, nn
from torch_support import Function

import mpscnn
from mpscnn.importing import torch_caches, torch_module, torch_questions, torch_replay

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # "is" with a literal
    IS_SIX = eval("lambda x: x.shape[0] is 6")


def _match(x: Any) -> bool:
    match x.shape[0]:
        case int():
            return True
    return False


# Questions of modules that compute x * 2 or x + 1.
ASKED: dict[str, Callable[[Any], Any]] = {
    "type": lambda x: type(x.shape[0]) is int,
    "type_of_rows": lambda x: type(x.shape[2]) is int and x.shape[2] > 7,
    "type_equals": lambda x: type(x.shape[2]) == int and x.shape[2] % 2,  # noqa: E721
    "type_name": lambda x: type(x.shape[0]).__name__ == "int",
    "type_of_float": lambda x: type(x.shape[2] / 2) is float and x.shape[2] > 7,
    "type_of_truth": lambda x: type(x.shape[2] > 3) is bool,
    "type_of_tensor": lambda x: type(x) is torch.Tensor and x.shape[2] > 7,
    "class": lambda x: x.shape[0].__class__ is int,
    "isinstance": lambda x: isinstance(x.shape[0], int),
    "isinstance_of_rows": lambda x: isinstance(x.shape[2], (str, int)) and x.shape[2] > 7,
    "integral": lambda x: isinstance(x.shape[2], numbers.Integral) and x.shape[2] > 7,
    "isinstance_of_int": lambda x: isinstance(int(x.shape[0]), int) and x.shape[0] > 2,
    "match": _match,
    "identity": IS_SIX,
    "exporting": lambda x: torch.compiler.is_exporting() and x.shape[2] > 7,
    "compiling": lambda x: torch.compiler.is_compiling(),
    "dynamo": lambda x: torch._dynamo.is_compiling(),
    "gradients": lambda x: torch.is_grad_enabled(),
    "order": lambda x: x.is_contiguous(memory_format=torch.channels_last),
    "order_of_turned": lambda x: x.permute(0, 2, 3, 1).is_contiguous(),
    "order_of_rows": lambda x: x.transpose(2, 3).is_contiguous(),
    "order_of_part": lambda x: x[:, :, :1].is_contiguous(),
    "order_of_pixel": lambda x: x.mean((2, 3), keepdim=True).is_contiguous(memory_format=torch.channels_last),
}


def _viewed(x: Any) -> Any:
    try:
        return x.view(x.shape[0], 3, 3, -1, x.shape[3]).sum(2)
    except RuntimeError:
        return x * 3


def _with_rows(x: Any) -> Any:
    try:
        return x + torch.ones(1, 1, 6, 1)
    except Exception:
        return x * 3


def _suppressed(x: Any) -> Any:
    with contextlib.suppress(RuntimeError):
        x = x.view(2, -1, 6, 5).view(x.shape) * 2
    return x


def _narrowed(x: Any) -> Any:
    try:
        return x.narrow(2, 0, 7)
    except:  # noqa: E722
        return x


def _finally(x: Any) -> Any:
    try:
        x = x.view(x.shape) * 2
    finally:
        x = x + 1
    return x


def _halves(x: Any) -> Any:
    try:
        return x[:, :, ::2] + x[:, :, 1::2]
    except RuntimeError:
        return x * 3


HANDLED = {
    "halves": _halves,
    "viewed": _viewed,
    "rows": _with_rows,
    "suppressed": _suppressed,
    "narrowed": _narrowed,
    "finally": _finally,
}
_MADE: dict[Any, torch.Tensor] = {}


@functools.lru_cache
def _positions(height: int, width: int) -> torch.Tensor:
    return torch.arange(height * width).reshape(height, width).float()


def _kept(x: Any) -> Any:
    size = tuple(x.shape[2:])
    if size not in _MADE:
        _MADE[size] = torch.arange(size[1]).float() + size[0]
    return x + _MADE[size]


# Others, also of operators that clamp or broadcast without an error.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "kept": _kept,
    "cached": lambda x: x + _positions(*x.shape[2:]),
    "cached_of_ints": lambda x: x + _positions(*map(int, x.shape[2:])),
    "range": lambda x: x * 2 if x.shape[0] in range(2, 5) else x,
    "gcd": lambda x: x * int(np.gcd(int(x.shape[0]), 4)),
    "sorted": lambda x: x * sorted(x.shape)[-1],
    "sum": lambda x: x * 2 if sum(x.shape) > 18 else x,
    "bits": lambda x: x * 2 if x.shape[0] & 1 else x,
    "bits_of_rows": lambda x: x * 2 if x.shape[2] & 2 else x,
    "long_slice": lambda x: x[:, :, :8] * 2,
    "last_rows": lambda x: x[:, :, -4:] * 2,
    "rows_of_constant": lambda x: x + torch.arange(6.0).view(1, 1, 6, 1),
    "expanded": lambda x: x.mean(2, keepdim=True).expand(-1, -1, 7, -1),
    "ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "roll": lambda x: x.roll(2, 2),
    "truth": lambda x: x ** (1 + (x.shape[0] > 2)),
    "while": lambda x: functools.reduce(lambda y, i: y * 2 + i, range(x.shape[2] // 4), x),
    "squeezed_order": lambda x: (x.mean((2, 3), keepdim=True).squeeze() * 2).softmax(-1),
}
SHAPES = [
    *((n, 3, 6, 5) for n in (1, 2, 3, 4, 6)),
    *(
        (1, 3, 9, 5),
        (2, 3, 7, 8),
        (6, 3, 9, 10),
        (2, 3, 12, 12),
        (2, 3, 1, 1),
        (1, 3, 1, 1),
        (1, 3, 1, 5),
        (2, 3, 6, 1),
    ),
]


def _agree(module: nn.Module, batch: int, *, refuses: bool = False) -> mpscnn.Network:
    """Compare the network with the module at all shapes; `refuses`: it may take less than the module."""
    module.eval()
    net = mpscnn.load(module, input_shapes=(batch, 3, 6, 5))
    for shape in SHAPES:
        x = torch.rand(shape)
        try:
            with torch.no_grad():
                expected = module(x).numpy()
        except (RuntimeError, IndexError):
            expected = None
        try:
            found = net(x)
        except ValueError:
            assert refuses or expected is None or not expected.size, shape
            assert shape != (batch, 3, 6, 5)
        else:
            assert expected is not None, shape
            np.testing.assert_allclose(
                found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5, err_msg=str(shape)
            )
    return net


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", ASKED)
def test_questions(name: str, batch: int) -> None:
    asked = ASKED[name]
    _agree(Function(lambda x: x * 2 if asked(x) else x + 1), batch)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", HANDLED)
def test_errors_that_are_handled(name: str, batch: int) -> None:
    _agree(Function(HANDLED[name]), batch, refuses=name == "suppressed")


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str, batch: int) -> None:
    _agree(Function(OTHERS[name]), batch)
    assert all(type(value) is torch.Tensor for value in _MADE.values())


class _Lazy(dict[str, Any]):
    """A mapping that imports what it has when it is asked, as those of transformers."""

    def values(self) -> Any:
        raise ValueError("a module that cannot be imported")


_LAZY = [_Lazy(), _Lazy(one=1)]


def test_messages_of_assertions_are_no_conditions() -> None:
    """As those of torchvision's ViT: without a free batch, its attention is refused."""

    class Attention(nn.Module):
        def __init__(self, function: Callable[[Any], Any]) -> None:
            super().__init__()
            self.function, self.attention = function, nn.MultiheadAttention(3, 1, batch_first=True)

        def forward(self, x: Any) -> Any:
            self.function(x)
            x = x.flatten(2).transpose(1, 2)
            return self.attention(x, x, x, need_weights=False)[0]

    def asserted(x: Any) -> None:
        torch._assert(
            min(x.shape[1], 3) == 3,
            f"{x.shape[0]} images of {x.shape}",
        )
        _assert(x.ndim == 4, f"{x.shape}")

    module = Attention(asserted).eval()
    net = mpscnn.load(module, input_shapes=(1, 3, 6, 5))
    assert not net.inputs["x"].sizes
    x = torch.rand(4, 3, 6, 5)
    np.testing.assert_allclose(net(x), module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    _agree(Function(lambda x: (torch._assert(x.ndim == 4, "axes"), x * len(f"{x.shape[0]:3}"), f"{x.shape}")[1]), 1)
    _agree(Function(lambda x: x * 2 if str(x.shape[0]) == "1" else x), 1)


def test_lazy_mappings_of_a_file_are_not_asked() -> None:
    assert not torch_caches._is_of_trace(_LAZY)
    _agree(Function(lambda x: x * len(_LAZY)), 1)


def test_a_number_of_axes_without_that_of_the_batch() -> None:
    def ends(x: Any) -> Any:
        y = x.mean((2, 3)).squeeze()
        return y * 2 if y.ndim == 1 else y + 1

    for function in (ends, lambda x: x.squeeze().sum(1), lambda x: x.squeeze().flatten(1) + 1):
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="the batch of one image among them"):
            mpscnn.load(Function(function), input_shapes=(1, 3, 6, 5))
        _agree(Function(function), 4, refuses=True)


def test_a_trace_that_is_not_the_module() -> None:
    module = Function(lambda x: x * 2 if x.__class__ is torch.Tensor else x + 1)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="it computes something else than the module"):
        mpscnn.load(module, input_shapes=(1, 3, 6, 5))
    other = Function(lambda x: x * 2 if x.__class__ is torch.Tensor else x + x)  # the same numbers
    _agree(other, 1)


def test_code_that_can_be_traced_only_if_it_is_told() -> None:
    def scaled(x: Any) -> Any:
        return x * 2 if torch.compiler.is_exporting() else x * float((x * 0 + 2).max())

    _agree(Function(scaled), 1)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="it computes something else than the module"):
        mpscnn.load(
            Function(lambda x: x * 3 if torch.compiler.is_exporting() else x * float((x * 0 + 2).max())),
            input_shapes=(1, 3, 6, 5),
        )


def test_functions_of_pytorch_and_files_are_restored() -> None:
    functions = (torch.compiler.is_exporting, torch.compiler.is_compiling)
    before, scope = [function.__code__ for function in functions], dict(globals())
    torch_module.read(Function(lambda x: x * 2 if ASKED["type"](x) else x), input_shapes=(1, 3, 6, 5))
    assert [function.__code__ for function in functions] == before
    assert globals().keys() == scope.keys()
    assert torch.backends.mha.get_fastpath_enabled()


def test_what_a_module_computes_is_compared() -> None:
    """Each difference in operators, arguments, constants, order of changes, or views."""
    constant = torch.rand(3, 1, 1)

    class Made(nn.Module):
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__()
            self.function, self.conv = function, nn.Conv2d(3, 3, 1)
            self.register_buffer("constant", constant)

        def forward(self, x: Any) -> Any:
            return self.function(self, x)

    def changed(place: int) -> Callable[..., Any]:
        def function(self: Any, x: Any) -> Any:
            y = x * 1
            y[:, :, place].add_(1)
            return y + self.constant

        return function

    functions: list[Callable[..., Any]] = [
        lambda self, x: self.conv(x) + self.constant,
        lambda self, x: self.conv(x) - self.constant,
        lambda self, x: self.conv(x) + self.constant * 1.5,
        lambda self, x: self.conv(x) + torch.tensor([[[0.5]]]),
        lambda self, x: self.conv(x) + torch.tensor([[[0.25]]]),
        lambda self, x: (self.conv(x), x),
        lambda self, x: self.conv(x).transpose(2, 3),
        lambda self, x: self.conv(x).detach().clone() + self.constant,
        changed(0),
        changed(1),
        lambda self, x: F.conv2d(x, self.conv.weight.transpose(0, 1)) + self.constant,
    ]
    modules = [Made(function).eval() for function in functions]
    for module in modules[1:]:
        module.conv.load_state_dict(modules[0].conv.state_dict())
    given = ((torch.empty(2, 3, 6, 6),), {})
    for place, module in enumerate(modules):
        program = torch.export.export(module, given[0])
        for other, one in enumerate(modules):
            compared = torch_replay.Module(one, torch_module._in_eval_mode)
            for is_meta in (True, False):
                with contextlib.suppress(RuntimeError):  # a constant of the CPU
                    found, wanted = compared._of_program(program, given, is_meta), compared._of_module(given, is_meta)
                    assert (found == wanted) == (place == other and one is module), (place, other, is_meta)
            assert compared.agrees(program, given) == (place == other or {place, other} == {0, 7}), (place, other)


def test_numbers_of_tensors_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are known without computing anything, as the strides of YOLO's detectors, unless the module changes them."""

    class Strided(nn.Module):
        def __init__(self, function: Callable[..., Any], *strides: float) -> None:
            super().__init__()
            self.function, self.strides = function, torch.tensor([1.0, *strides, 5.0])[1:]  # a part of its memory

        def forward(self, x: Any) -> Any:
            return self.function(self.strides, x)

    functions: list[tuple[Callable[..., Any], tuple[float, float]]] = [
        (lambda strides, x: x * strides[1].item(), (8.0, 12.0)),
        (lambda strides, x: x + strides[1:2].item(), (8.0, 12.0)),
        (lambda strides, x: x - strides[::2][0].item() * x, (4.0, 16.0)),
    ]
    given = ((torch.empty(2, 3, 6, 6),), {})
    near: list[bool] = []
    monkeypatch.setattr(torch_replay.Module, "_is_near", lambda *_: near.append(False) or False)
    for function, others in functions:
        module = Strided(function, 8.0, 16.0)
        program = torch.export.export(module, given[0])
        for one, agrees in ((module, True), (Strided(function, *others), False)):
            compared = torch_replay.Module(one, torch_module._in_eval_mode)
            near.clear()
            assert compared.agrees(program, given) == agrees
            assert len(near) == (not agrees)
    of_number = torch.export.export(Strided(lambda strides, x: x * 16.0, 8.0, 16.0), given[0])
    assert torch_replay.Module(Strided(functions[0][0], 8.0, 16.0), torch_module._in_eval_mode).agrees(of_number, given)
    for changed in (
        lambda strides, x: x * strides.mul_(2)[1].item(),
        lambda strides, x: x * (strides + 1)[1].item(),
        lambda strides, x: x * strides.view(torch.int32)[1].item(),
    ):
        compared = torch_replay.Module(Strided(changed, 8.0, 16.0), torch_module._in_eval_mode)
        with pytest.raises(RuntimeError, match="meta tensors"):
            compared._of_module(given, True)


def test_orders_of_extents() -> None:
    """The conditions of `is_contiguous` against all small extents."""
    for function in (
        lambda x: x.is_contiguous(),
        lambda x: x.is_contiguous(memory_format=torch.channels_last),
        lambda x: x.transpose(1, 2).is_contiguous(),
        lambda x: x.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last),
        lambda x: x[:, :, 1:].is_contiguous(),
    ):
        module = Function(lambda x, function=function: x * 2 if function(x) else x + 1)
        for height, width in ((4, 5), (1, 4), (4, 1)):
            graph = torch_module.read(module, input_shapes=(2, 2, height, width), free_size=True)
            (spec,) = graph.inputs.values()
            for other in ((1, 1), (1, 3), (3, 1), (4, 4)):
                x = torch.zeros(2, 2, *other)
                takes = (spec.height or other[0], spec.width or other[1]) == other
                if takes and mpscnn._sizes.holds(spec.sizes, *other, 2):
                    at_import = function(torch.zeros(2, 2, height, width))
                    assert function(x) == at_import, (height, width, other)


def test_parts_of_code_that_handle_errors() -> None:
    def nothing(x: Any) -> Any:
        with torch.no_grad():
            x = x.view(3)
        try:
            return x.view(3)
        finally:
            x = 1

    def several(x: Any) -> Any:
        x.view(3)
        try:
            x.view(4)
        except (RuntimeError, ValueError) as error:
            raise ValueError from error
        return x

    def chained(x: Any) -> Any:
        try:
            return x.view(3)
        except _OwnError:
            return x
        except (KeyError, AttributeError) as error:
            raise ValueError from error

    def with_rest(x: Any) -> Any:
        try:
            return x.view(3)
        except _OwnError:
            return x
        except:  # noqa: E722
            return x

    def of_argument(x: Any, kind: Any) -> Any:
        try:
            return x.view(3)
        except kind:
            return x

    def classes(function: Callable[..., Any]) -> list[tuple[str, ...] | None]:
        return [kinds for *_, kinds in torch_questions._handled(function.__code__)]

    assert classes(nothing) == []
    assert classes(several) == [("RuntimeError", "ValueError")]
    assert classes(chained) == [("_OwnError", "KeyError", "AttributeError")]
    assert classes(with_rest) == classes(of_argument) == [None]
    assert classes(_narrowed) == [None]
    assert classes(_suppressed) == [None]


class _OwnError(RuntimeError):
    """An error that PyTorch does not raise."""


def test_errors_of_the_module_alone_that_are_handled() -> None:
    """As einops handles its own: the views of an image have no condition on the batch."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        try:
            x = x[:, :2].reshape(x.shape[0], 2, 1, *x.shape[2:]).permute(0, 2, 1, 4, 3)
            return x.reshape(x.shape[0], 2, *x.shape[3:])
        except _OwnError as error:
            raise _OwnError("a view") from error

    for batch in (1, 4):
        net = _agree(Function(turned), batch)
        assert [spec.sizes for spec in net.inputs.values()] == [""]


def test_files_that_the_module_calls_are_known_before_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """As einops, whose functions modules of other packages call: a file that a trace finds takes another trace."""
    scope: dict[str, Any] = {"torch": torch}
    path = Path(torch.__file__).parents[1] / "elsewhere" / "doubled.py"
    exec(compile("def doubled(x):\n  return torch.relu(x) * 2 if x.shape[2] % 2 else x", str(path), "exec"), scope)
    traces: list[Any] = []
    export = torch.export.export

    def counted(*args: Any, **kwargs: Any) -> Any:
        traces.append(kwargs.get("dynamic_shapes"))
        return export(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", counted)

    def here(x: Any) -> Any:
        return x if x.shape[2] % 2 == 0 else torch.relu(x) * 2

    def elsewhere(x: Any) -> Any:
        return x if x.shape[2] % 2 == 0 and x.shape[1] == 4 else scope["doubled"](x)

    for function in (here, elsewhere):
        traces.clear()
        graph = torch_module.read(Function(function), input_shapes=(2, 3, 6, 5))
        assert len(traces) == 3, traces  # without symbols, with the batch's, and with those of all extents
        assert "height % 2" in next(iter(graph.inputs.values())).sizes
    assert "isinstance" not in scope
