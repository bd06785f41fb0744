# SPDX-License-Identifier: Apache-2.0
"""Programs that are recorded without torch.export: the same as its own, or left to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils import _pytree as pytree
from torch_support import Function, randomize

import mpscnn
from mpscnn.importing import torch_export, torch_module, torch_numbers, torch_recording, torch_replay, torch_results

X = (torch.rand(2, 4, 6, 6),)


def _recorded(module: nn.Module, *args: Any, **kwargs: Any) -> torch.export.ExportedProgram:
    numbers = torch_numbers.Numbers(module)
    checked = torch_replay.Module(module, lambda one: torch_module._untouched(one, numbers))
    with torch_module._as_called():
        return torch_recording.program(checked, args, kwargs, torch_module._in_eval_mode)


def _traced(module: nn.Module, *args: Any, **kwargs: Any) -> torch.export.ExportedProgram:
    with torch_module._as_called(), torch_module._in_eval_mode(module):
        return torch.export.export(module, args, kwargs)


def _nodes(program: torch.export.ExportedProgram) -> Iterator[Any]:
    places: dict[int, int] = {}  # of memory, in the order of the nodes

    def described(value: Any) -> Any:
        if value is None:
            return None
        place = places.setdefault(value.untyped_storage()._cdata, len(places))
        return tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, place

    inputs = [node for node in program.graph.nodes if node.op == "placeholder" and node.users]  # those that are used
    others = [node for node in program.graph.nodes if node.op != "placeholder"]
    for node in (*sorted(inputs, key=lambda node: node.name), *others):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            continue
        values = list(map(described, pytree.tree_leaves(node.meta.get("val"))))
        args = node.args[:-1] if node.target is torch.ops.aten.batch_norm.default else node.args  # cudnn_enabled
        yield node.op, node.name, str(node.target), str(args), str(node.kwargs), values


class Holder(nn.Module):
    """A module that is the first argument of a function, with parameters, buffers and other tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.unused = nn.Linear(2, 3)
        self.same = self.conv
        self.scale = nn.Parameter(torch.rand(4, 1, 1))
        self.register_buffer("shift", torch.rand(4, 1, 1))
        self.register_buffer("gain", torch.rand(4, 1, 1), persistent=False)
        self.constant, self.function = torch.rand(4, 1, 1), function
        self.listed: list[Any] = [nn.Conv2d(4, 4, 1), torch.empty(4, 1, 1, device="meta")]

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def _all(self: Any, x: Any) -> Any:
    """Call operators whose results are new, views, or their first argument, some of several tensors."""
    kept = x
    x = F.relu_(x * 2)
    first, second = x.chunk(2, 1)
    parts = [part.unsqueeze(1).squeeze(1).relu() for part in x.split([1, 3], 1)]
    largest, places = F.max_pool2d(torch.cat(parts, 1), 1, return_indices=True)
    x = torch.cat([first + second, second], 1).add_(x).add_(kept, alpha=2)
    x = F.dropout(x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), 0.5, training=False)
    x = x + torch.zeros_like(x).add_(1) + torch.full_like(x, 2).mean() + largest.to(torch.float64).float()
    return x[:, 1:].expand_as(x[:, 1:]).reshape(x.shape[0], -1).view(x.shape[0], 3, *x.shape[2:]).detach(), places


def _twice(self: Any, x: Any) -> Any:
    """Call the same operators with arguments of other types, strides, offsets and values."""
    found = [x.sum(1), x.sum(1, True), x.sum([1, 2]), x.sum(1, dtype=torch.float64), x + 1, x + 1.0, x + True]
    for one in (
        x,
        x.to(torch.int32),
        x.to(torch.float16),
        x.contiguous(memory_format=torch.channels_last),
        x[:, :2],
        x[:, 2:],
    ):
        found += [one + 1, one * 1.5, one.relu(), one.transpose(1, 2), one.transpose(1, 2).contiguous()]
        same = one.contiguous(), one.to(one.dtype), one.expand(one.shape), one.detach(), F.dropout(one, 0.5, False)
        found += [*same, sum(same) + one]
    return found


def _changed(self: Any, x: Any) -> Any:
    """Change images through views of them."""
    x = x * 1
    for place in range(3):
        x[:, place].mul_(2).add_(place)
        x[:, place : place + 2] += 1
    return x


def _of_module(self: Any, x: Any) -> Any:
    """Compute with each kind of a module's tensors, some twice, and some that two parts share."""
    x = self.norm(self.conv(x)) * self.scale + self.shift
    return {"first": self.same(x) * self.gain, "others": [x + self.constant, x * self.scale]}


PROGRAMS = [_all, _twice, _changed, _of_module, lambda self, x: [x, x.relu(), x]]


@pytest.mark.parametrize("function", PROGRAMS)
def test_programs_are_those_of_torch_export(function: Any) -> None:
    """Also of calls that have arguments of the same shapes as earlier ones."""

    def repeated(self: Any, x: Any) -> Any:
        return [function(self, y) for y in (x, x + 1, x + 2)]

    for module in (Holder(function), Holder(repeated)):
        found, wanted = _recorded(module, *X), _traced(module, *X)
        assert list(_nodes(found)) == list(_nodes(wanted))
        assert found.graph_signature.output_specs == wanted.graph_signature.output_specs
        used = {node.name for node in found.graph.nodes if node.op == "placeholder"}
        specs = {spec.arg.name: spec for spec in wanted.graph_signature.input_specs}
        assert [specs[spec.arg.name] for spec in found.graph_signature.input_specs] == found.graph_signature.input_specs
        assert used >= {node.name for node in wanted.graph.nodes if node.op == "placeholder" and node.users}
        assert found.call_spec.out_spec == wanted.call_spec.out_spec
        for name, value in (*found.state_dict.items(), *found.constants.items()):
            given = wanted.state_dict[name] if name in wanted.state_dict else wanted.constants[name]
            assert value.data_ptr() == given.data_ptr()
        checked = torch_replay.Module(module.eval(), torch_module._in_eval_mode)
        assert checked.agrees(found, (X, {})) is True


def test_operators_with_known_results_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Any] = []
    note = torch_results.Results.note
    monkeypatch.setattr(
        torch_results.Results, "note", lambda self, key, *rest: noted.append(key) or note(self, key, *rest)
    )
    program = _recorded(Holder(lambda self, x: [_all(self, y) for y in (x, x + 1, x + 2)]), *X)
    calls = [node for node in program.graph.nodes if "getitem" not in str(node.target) and node.op == "call_function"]
    assert len(noted) == len(set(noted)) < len(calls) / 2


class Inputs(nn.Module):
    def forward(self, X: Any, input: Any, *, mul: Any = None) -> Any:
        return X.relu() * input + (0 if mul is None else mul)


def test_names_of_inputs() -> None:
    given = torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4)
    for kwargs in ({}, {"mul": torch.rand(2, 3, 4, 4)}):
        found, wanted = _recorded(Inputs(), *given, **kwargs), _traced(Inputs(), *given, **kwargs)
        assert list(_nodes(found)) == list(_nodes(wanted))
        assert found.graph_signature == wanted.graph_signature
        assert found.graph_signature.user_inputs[:2] == ("x", "input")


def test_arguments_by_name_in_any_order() -> None:
    one, other = torch.rand(2, 3, 4, 4) - 0.5, torch.rand(2, 3, 4, 4) - 0.5
    for kwargs in ({"X": one, "input": other}, {"input": other, "X": one}, {"mul": other, "input": other, "X": one}):
        net = mpscnn.load(Inputs(), example_inputs=kwargs)
        found = net(**{name.lower(): value.numpy() for name, value in kwargs.items()})
        np.testing.assert_allclose(found, Inputs()(**kwargs).numpy(), rtol=1e-6)


class Unit(nn.Module):
    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()))
        self.gate = nn.ModuleList([shared, nn.Identity()])
        self.last = nn.ModuleDict({"one": nn.Conv2d(4, 4, 1)})

    def forward(self, x: Any) -> Any:
        return self.last["one"](self.gate[1](self.body(x) * self.gate[0](x) + x))


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.sigmoid(self.fc(x.mean((2, 3)))).unsqueeze(-1).unsqueeze(-1)


def test_names_of_nodes() -> None:
    """Nodes are named by the path that their module was called by, also if parts share it."""
    gate = Gate()
    module = randomize(nn.Sequential(Unit(gate), nn.Sequential(Unit(gate), gate), nn.Hardswish()))
    found, wanted = (
        torch_export.read(trace(module, *X), of_module=True, attempt=0, is_free=True) for trace in (_recorded, _traced)
    )
    assert [(node.name, node.kernel) for node in found.nodes] == [(node.name, node.kernel) for node in wanted.nodes]
    assert {"0.gate.0.fc", "1.0.gate.0.fc", "1.0.body.0", "1.0.last.one"} <= {node.name for node in found.nodes}


# ---- what is left to torch.export


def _region(self: Any, x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = self.conv(x)
    return y.float()


def _graded(self: Any, x: Any) -> Any:
    with torch.enable_grad():
        return self.conv(x)


def _of_input(self: Any, x: Any) -> Any:
    return x.mul_(2) + 1


def _of_buffer(self: Any, x: Any) -> Any:
    self.shift[:2].add_(1)
    return x + self.shift


LEFT: dict[str, tuple[Callable[..., Any], str]] = {
    "a region": (_region, "region"),
    "gradients": (_graded, "region"),
    "a changed input": (_of_input, "changed"),
    "a changed buffer": (_of_buffer, "changed"),
    "a tensor of its own": (lambda self, x: x + torch.ones(4, 1, 1), "a device"),
    "a number as a tensor": (lambda self, x: x * torch.tensor(2.0), "lift_fresh"),
    "a part that is no submodule": (lambda self, x: self.listed[0](x), "aten.conv2d"),
    "a device": (lambda self, x: self.constant.to(memory_format=torch.contiguous_format) + x, "device"),
    "a tensor in a list": (lambda self, x: x + self.listed[1], "neither"),
    "a tensor with another shape": (lambda self, x: x.relu().unsqueeze_(1).squeeze(1), "unsqueeze_"),
    "an operator of a library": (lambda self, x: torch.ops.prims.add(x, x), "prims"),
    "a number": (lambda self, x: (x.relu(), 3), "no tensor"),
}


@pytest.mark.parametrize("name", LEFT)
def test_modules_that_are_left(name: str) -> None:
    function, reason = LEFT[name]
    with pytest.raises(torch_recording.LeftError, match=reason):
        _recorded(Holder(function), *X)


class Several(nn.Module):
    def forward(self, x: Any, *more: Any, **named: Any) -> Any:
        return sum(more, x) + sum(named.values())


class OfList(nn.Module):
    def forward(self, x: Any, X: Any = None) -> Any:
        return x[0] + x[1] if isinstance(x, list) else x + X


@pytest.mark.parametrize(
    ("module", "args", "kwargs", "reason"),
    [
        (Several(), (*X, *X), {}, "any number"),
        (Several(), X, {"y": X[0]}, "any number"),
        (OfList(), ([*X, *X],), {}, "containers"),
        (OfList(), (*X, *X), {}, "case"),
    ],
)
def test_arguments_that_are_left(module: Any, args: Any, kwargs: Any, reason: str) -> None:
    with pytest.raises(torch_recording.LeftError, match=reason):
        _recorded(module, *args, **kwargs)


class Asking(nn.Module):
    """Computes what its tensors are asked for."""

    def __init__(self, question: Callable[[Any, Any], bool]) -> None:
        super().__init__()
        self.conv, self.question = nn.Conv2d(4, 4, 1), question

    def forward(self, x: Any) -> Any:
        return self.conv(x * 2 if self.question(x, self.conv.weight) else x)


QUESTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "device": lambda x, weight: x.device.type == "cpu",
    "device of a weight": lambda x, weight: weight.device == torch.device("meta"),
    "CUDA": lambda x, weight: weight.is_cuda,
    "gradient": lambda x, weight: weight.requires_grad,
    "parameter": lambda x, weight: isinstance(weight, nn.Parameter),
    "type": lambda x, weight: type(x) is torch.Tensor,
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("is_trained", [False, True])
def test_questions_of_tensors(name: str, is_trained: bool) -> None:
    module = randomize(Asking(QUESTIONS[name])).requires_grad_(is_trained)
    x = torch.rand(1, 4, 5, 5)
    net = mpscnn.load(module, input_shapes=(1, 4, 5, 5))
    np.testing.assert_allclose(net(x), module(x).detach().numpy(), rtol=1e-5, atol=1e-5)
    assert net.inputs["x"].height is None


class Kept(nn.Module):
    """Keeps results, in attributes and in a list, and computes something else in its second call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last, self.all, self.count = nn.Conv2d(4, 4, 1), None, [], 0

    def forward(self, x: Any) -> Any:
        self.last = self.conv(x)
        self.all.append(self.last)
        self.count += 1
        return self.last + self.all[0] if self.count == 1 else x


def test_modules_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.export, "export")
    monkeypatch.setattr(torch_replay.Module, "_is_near", lambda *given: False)  # they are the same without values
    module = randomize(Kept())
    net = mpscnn.load(module, input_shapes=(1, 4, 5, 5))
    assert (module.last, module.all, module.count) == (None, [], 0)
    x = torch.rand(1, 4, 5, 5)
    np.testing.assert_allclose(net(x), module(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_several_threads_load() -> None:
    modules = [randomize(nn.Sequential(Unit(Gate()), nn.Conv2d(4, 4 + place, 3))) for place in range(6)]
    found: dict[int, Any] = {}

    def load(place: int) -> None:
        found[place] = mpscnn.load(modules[place], input_shapes=(1, 4, 6, 6))(X[0])

    threads = [threading.Thread(target=load, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):  # operators of other threads are not recorded
        torch.testing.assert_close(torch.relu(X[0] - 1), torch.zeros_like(X[0]))
    for place, module in enumerate(modules):
        np.testing.assert_allclose(found[place], module(X[0]).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_modules_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.export, "export")
    net = mpscnn.load(randomize(Unit(Gate())), input_shapes=(1, 4, 6, 6))
    assert net.inputs["x"].height is None
    with pytest.raises(Exception, match="export"):
        mpscnn.load(Function(lambda x: x * torch.ones(4, 1, 1)), input_shapes=(1, 4, 6, 6))
