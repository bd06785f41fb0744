# SPDX-License-Identifier: Apache-2.0
"""Work that the import of a module leaves out, with the same results."""

from __future__ import annotations

import collections
import copy
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.fx.experimental import proxy_tensor
from torch.utils import _pytree as pytree
from torch_support import Function, randomize

import mpscnn
from mpscnn.importing import (
    torch_again,
    torch_export,
    torch_module,
    torch_patterns,
    torch_replay,
    torch_results,
    torch_tracing,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = F.relu_(self.norm(self.conv(x)))
        first, second = y.chunk(2, 1)
        y = torch.cat([first + second, second], 1)
        return self.fc(y.mean((2, 3)))


class Calls(collections.Counter[str]):
    """Numbers of calls of functions."""

    def watch(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        before = getattr(owner, name)

        def function(*args: Any, **kwargs: Any) -> Any:
            self[name] += 1
            return before(*args, **kwargs)

        monkeypatch.setattr(owner, name, function)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def _nodes(program: torch.export.ExportedProgram) -> Iterator[Any]:
    places: dict[int, int] = {}  # of memory, in the order of the nodes

    def described(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        place = places.setdefault(value.untyped_storage()._cdata, len(places))
        return tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device, place

    for node in program.graph.nodes:
        values = list(map(described, pytree.tree_leaves(node.meta.get("val"))))
        yield node.op, node.name, str(node.target), str(node.args), str(node.kwargs), values, node.meta.get(STACK)


STACK = "nn_module_stack"


def test_programs_are_the_same() -> None:
    module, x = randomize(Net()), torch.rand(2, 3, 8, 8)
    sizes = {"x": dict.fromkeys(range(4), torch.export.Dim.AUTO)}
    for shapes in (None, sizes):
        wanted = torch.export.export(module, (x,), dynamic_shapes=shapes)
        found = torch_module._traced(module, (x,), {}, shapes)
        assert list(_nodes(found)) == list(_nodes(wanted))
        assert found.graph_signature == wanted.graph_signature
        assert {str(one): limits for one, limits in found.range_constraints.items()} == {
            str(one): limits for one, limits in wanted.range_constraints.items()
        }
        torch.testing.assert_close(found.module()(x), module(x))
        torch.testing.assert_close(found.graph_module(*_values(found, x))[0], module(x))
        assert "conv2d" in found.graph_module.code  # from its first call on


def _values(program: torch.export.ExportedProgram, x: torch.Tensor) -> list[Any]:
    return torch_replay.Module._values(program, (x,), {})


def test_symbols_of_values_are_the_same() -> None:
    class Counted(nn.Module):
        def forward(self, x: Any, mask: Any) -> Any:
            return x[mask].sum(0) + torch.nonzero(mask).shape[0]

    given = (torch.rand(4, 3), torch.tensor([True, False, True, True]))
    wanted = torch.export.export(Counted(), given)
    with torch_tracing.quick():
        found = torch.export.export(Counted(), given)

    def bindings(program: torch.export.ExportedProgram) -> list[str]:
        return [str(node.meta.get("unbacked_bindings")) for node in program.graph.nodes]

    assert bindings(found) == bindings(wanted)
    assert any(text != "None" for text in bindings(found))


def test_code_is_compiled_once(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> None:
    calls.watch(monkeypatch, torch.fx.Graph, "python_code")
    calls.watch(monkeypatch, proxy_tensor, "_extract_tensor_metadata")
    mpscnn.load(randomize(Net()), input_shapes=(1, 3, 8, 8))
    assert calls == {"python_code": 1}


def test_other_threads_trace_as_always(calls: Calls) -> None:
    before = (torch.fx.GraphModule.recompile, proxy_tensor._extract_tensor_metadata, proxy_tensor.track_tensor_tree)
    found: list[Any] = []
    with torch_tracing.quick():
        thread = threading.Thread(
            target=lambda: found.append(torch.export.export(Net().eval(), (torch.rand(1, 3, 8, 8),)))
        )
        thread.start()
        thread.join()
    (program,) = found
    assert "_code" in vars(program.graph_module)
    assert any("tensor_meta" in node.meta and node.meta["tensor_meta"] for node in program.graph.nodes)
    assert before == (
        torch.fx.GraphModule.recompile,
        proxy_tensor._extract_tensor_metadata,
        proxy_tensor.track_tensor_tree,
    )


# ---- operators without values


def _meta(*shape: int, **options: Any) -> torch.Tensor:
    return torch.empty(shape, device="meta", **options)


aten = torch.ops.aten
OPERATORS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.relu.default, (_meta(2, 3, 4, 4),), {}),
    (aten.relu.default, (_meta(2, 3, 4, 4).transpose(1, 2),), {}),
    (aten.relu.default, (_meta(2, 3, 4, 4, dtype=torch.float16),), {}),
    (aten.relu.default, (_meta(2, 3, 4, 4, memory_format=torch.channels_last),), {}),
    (aten.add.Tensor, (_meta(2, 1), _meta(3)), {}),
    (aten.add.Tensor, (_meta(3), _meta(2, 1)), {}),
    (aten.add.Tensor, (_meta(3, dtype=torch.int64), 1), {}),
    (aten.add.Tensor, (_meta(3, dtype=torch.int64), 1.0), {}),
    (aten.add.Tensor, (_meta(3, dtype=torch.int64), True), {}),
    (aten.sum.dim_IntList, (_meta(2, 3), [1]), {}),
    (aten.sum.dim_IntList, (_meta(2, 3), [1], True), {}),
    (aten.sum.dim_IntList, (_meta(2, 3), [1]), {"dtype": torch.float64}),
    (
        aten.native_batch_norm.default,
        (_meta(2, 3, 4, 4), *[_meta(3) for _ in range(4)], False, 0.1, 1e-5),
        {},
    ),
    (aten.convolution.default, (_meta(2, 3, 4, 4), _meta(5, 3, 1, 1), None, [1, 1], [0, 0], [1, 1], False, [0], 1), {}),
    (aten.cat.default, ([_meta(2, 3), _meta(2, 1)], 1), {}),
    (aten.zeros.default, ([2, 3],), {"device": torch.device("meta")}),
    (aten.unbind.int, (_meta(2, 3),), {}),
    (aten.view.default, (_meta(2, 3), [6]), {}),
    (aten.contiguous.default, (_meta(2, 3),), {}),
    (aten.relu_.default, (_meta(2, 3),), {}),
]


def test_operators_without_values() -> None:
    """Known results are those that PyTorch computes, for each operator and arguments that differ a little."""

    def described(result: Any) -> Any:
        kind = type(result).__name__
        tensors = [result] if isinstance(result, torch.Tensor) else result
        return kind, [(tuple(one.shape), one.stride(), one.storage_offset(), one.dtype, one.device) for one in tensors]

    metas = torch_replay._Metas()
    for _ in range(2):
        for function, args, kwargs in OPERATORS:
            found, wanted = metas.result(function, args, kwargs), function(*args, **kwargs)
            assert described(found) == described(wanted), function
            memory = [one.untyped_storage()._cdata for one in pytree.tree_leaves(found)]
            source = next((x.untyped_storage()._cdata for x in pytree.tree_leaves(args) if hasattr(x, "shape")), None)
            of_source = pytree.tree_leaves(wanted)[0].untyped_storage()._cdata == source
            assert (source in memory) == of_source, function


def test_operators_without_values_run_once() -> None:
    calls: collections.Counter[Any] = collections.Counter()

    def counted(function: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            calls[function] += 1
            return function(*args, **kwargs)

        other: Any = types.FunctionType(called.__code__, called.__globals__, "called", None, called.__closure__)
        other._schema, other.namespace = function._schema, function.namespace
        return other

    metas = torch_replay._Metas()
    functions = {function: counted(function) for function, *_ in OPERATORS}
    for _ in range(3):
        for function, args, kwargs in OPERATORS:
            metas.result(functions[function], args, kwargs)
    assert calls[aten.relu.default] == 4  # of four kinds of memory
    assert calls[aten.add.Tensor] == 5
    assert calls[aten.native_batch_norm.default] == 1
    assert calls[aten.view.default] == calls[aten.relu_.default] == calls[aten.unbind.int] == 3


def test_views_of_new_memory_are_not_known() -> None:
    results = torch_results.Results()
    assert results._described(_meta(4), (), {}) is not None
    assert results._described(_meta(4)[1:], (), {}) is None
    assert results._described(torch.empty(4), (), {}) is None


def test_results_of_complex_numbers_are_not_known() -> None:
    """The result of conj() is a view whose values are conjugated when they are read."""
    results = torch_results.Results()
    assert results.key(aten.neg.default, (_meta(4),), {}) is not None
    assert results.key(aten.neg.default, (_meta(4, dtype=torch.complex64),), {}) is None


def test_constants_are_compared_as_bytes() -> None:
    recorder = torch_replay._Recorder({})
    one = torch.arange(1 << 20, dtype=torch.int32)
    assert recorder._of_values(one[5:]) == one.numpy().tobytes()
    assert recorder._of_values(torch.empty(0)) == b""


# ---- runs and traces


def test_a_module_that_reads_no_size_is_not_run_for_its_own(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> None:
    calls.watch(monkeypatch, torch_replay.Module, "_of_module")
    mpscnn.load(randomize(Net()), input_shapes=(1, 3, 8, 8))
    assert calls == {"_of_module": 1}  # the comparison, for another batch and size


def test_files_of_functions_are_known_before_the_trace(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> None:
    """A module of one package that calls functions of another, as einops', is traced once for each kind of trace."""
    other = types.ModuleType("other_package")
    code = "def halved(x):\n    return x.reshape(x.shape[0], 2, x.shape[1] // 2, *x.shape[2:])[:, 0]"
    exec(compile(code, "/other.py", "exec"), vars(other))
    monkeypatch.setitem(sys.modules, "other_package", other)
    function: Callable[..., Any] = vars(other)["halved"]

    class Halved(nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x[: x.shape[0]]) + 1

    calls.watch(monkeypatch, torch.export, "export")
    net = mpscnn.load(Halved(), input_shapes=(1, 4, 6, 6))
    assert calls == {"export": 2}  # for all batches; for all sizes
    assert not {"isinstance", "type", "int", "len"} & vars(other).keys()
    x = np.random.default_rng(0).random((2, 4, 6, 6), np.float32)
    np.testing.assert_array_equal(net(x), x[:, :2] + 1)


# ---- copies of modules


class OwnCopy(nn.Module):
    def __deepcopy__(self, memo: Any) -> Any:
        made = OwnCopy()
        made.copied = True
        return made


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.own = nn.Conv2d(2, 2, 1), OwnCopy()
        self.again = self.conv
        self.parts, self.table = [self.conv, 1.5], {"first": self.conv.weight}
        self.same = self.parts
        self.empty: dict[str, Any] = {}
        self.same_empty = self.empty
        self.function, self.kind, self.numbers = F.relu, nn.Conv2d, np.arange(3)
        self.register_buffer("constant", torch.arange(4.0))
        self.register_forward_hook(len, prepend=True)  # type: ignore[arg-type]


def test_copies_are_those_of_deepcopy() -> None:
    module = nn.Sequential(Shared(), nn.ReLU()).eval()
    wanted, found = copy.deepcopy(module), torch_again._copied(module, {})
    assert [type(part) for part in found.modules()] == [type(part) for part in wanted.modules()]
    for part, other, own in zip(found.modules(), wanted.modules(), module.modules(), strict=True):
        assert part is not own
        assert list(vars(part)) == list(vars(other))
        for name, value in vars(own).items():
            is_same = vars(other)[name] is value
            assert (vars(part)[name] is value) == is_same, name
    made: Any = found[0]
    assert made.again is made.conv
    assert made.parts[0] is made.conv
    assert made.same is made.parts
    assert made.same_empty is made.empty
    assert made.table["first"] is made.conv.weight
    assert made.own.copied
    assert torch.equal(made.constant, module[0].constant)
    assert made._forward_hooks == module[0]._forward_hooks
    made.training = True
    made.empty["x"] = 1
    assert not module[0].training
    assert not module[0].empty


def test_copies_of_attributes() -> None:
    """Modules are not copied by copy.deepcopy's own loop, unless their class says how."""
    for kind in (nn.Conv2d, nn.BatchNorm2d, nn.Sequential, nn.MultiheadAttention, Shared):
        assert torch_again._has_plain_state(kind)
    assert not any(map(torch_again._has_plain_state, (OwnCopy, nn.LSTM, torch.fx.GraphModule)))


def test_copies_have_the_tensors_that_are_given() -> None:
    module = Shared()
    alias = module.conv.weight.detach()
    assert torch_again._copied(module, {id(module.conv.weight): alias}).conv.weight is alias


# ---- patterns and constants


def test_patterns_are_found_by_their_last_operator() -> None:
    of_operators = [entry for entries in torch_patterns._BY_OPERATOR.values() for entry in entries]
    assert sorted(map(id, of_operators)) == sorted(map(id, torch_patterns.TEMPLATES))


def test_constants_are_computed_once_for_all_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.rand(5, 6)
    module = Function(lambda x, table: F.conv2d(x.transpose(1, 2), (table * 2 + 1).reshape(5, 6, 1, 1)), table=table)
    program = torch.export.export(module, (torch.rand(2, 3, 6, 5),))
    computed, places = collections.Counter[str](), []
    fold, reads = torch_export._Reader._folded, torch_export._Reader.graph

    def folded(self: Any, node: Any, args: Any, kwargs: Any) -> Any:
        before = len(self.folded)
        result = fold(self, node, args, kwargs)
        computed[node.name] += len(self.folded) - before
        return result

    def graph(self: Any) -> Any:
        places.append(self.attempt)
        return reads(self)

    monkeypatch.setattr(torch_export._Reader, "_folded", folded)
    monkeypatch.setattr(torch_export._Reader, "graph", graph)
    torch_export.read(program)
    assert places == [0, 1]
    assert computed
    assert set(computed.values()) == {1}
