# SPDX-License-Identifier: Apache-2.0
"""Modules that need one trace: those that read no size. Others are traced again, with sizes as symbols."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch_support import Function, randomize

import mpscnn
from mpscnn.graph import ADAPTIVE_POOL
from mpscnn.importing import torch_export, torch_independent, torch_module, torch_recording


class Block(nn.Module):
    def __init__(self, last: Callable[[Any], Any] = lambda y: y.flatten(1)) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.layer_norm, self.mlp = nn.LayerNorm(8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.fc, self.last = nn.Linear(16, 5), last

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm(self.conv(x)))
        z = self.mlp(self.layer_norm(y.permute(0, 2, 3, 1))).permute(0, 3, 1, 2) * self.scale
        first, second = (y + z).chunk(2, 1)
        y = torch.cat([1 - first, second, F.max_pool2d(y, 3, 1, 1)], 1)
        y = F.interpolate(y, scale_factor=2, mode="bilinear")[:, :16] * y.mean((2, 3), keepdim=True)
        return self.fc(self.last(F.adaptive_avg_pool2d(y, 1)))


def _agree(module: nn.Module, *shapes: tuple[int, ...]) -> mpscnn.Network:
    net = mpscnn.load(module, input_shapes=(1, 4, 8, 8))
    exact = copy.deepcopy(module).double()
    for shape in shapes:
        x = torch.rand(shape) - 0.5
        np.testing.assert_allclose(net(x), exact(x.double()).detach().numpy(), rtol=1e-4, atol=1e-5)
    return net


class Traces(list[str]):
    """Kinds of traces, in order: "recorded", or torch.export's of numbers, or of symbols for "batch" or "sizes"."""


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    found, export, program = Traces(), torch.export.export, torch_recording.program

    def traced(*args: Any, dynamic_shapes: Any = None, **kwargs: Any) -> Any:
        shapes = [shape for shape in (dynamic_shapes or {}).values() for shape in ([shape] if shape else [])]
        found.append("numbers" if not shapes else "batch" if all(len(shape) == 1 for shape in shapes) else "sizes")
        return export(*args, dynamic_shapes=dynamic_shapes, **kwargs)

    def recorded(*args: Any) -> Any:
        result = program(*args)
        found.append("recorded")
        return result

    monkeypatch.setattr(torch.export, "export", traced)
    monkeypatch.setattr(torch_recording, "program", recorded)
    return found


SHAPES = [(2, 4, 8, 8), (1, 4, 11, 16), (3, 4, 24, 7)]


def test_one_trace(traces: Traces) -> None:
    net = _agree(randomize(Block()), *SHAPES)
    assert traces == ["recorded"]
    assert net.inputs["x"].height is None
    assert not net.inputs["x"].sizes


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda y: y.view(y.size(0), -1),
    "reshape": lambda y: y.reshape(y.size(0), -1),
    "function": lambda y: torch.reshape(y, (y.size(0), -1)),
    "twice": lambda y: y.view(y.size(0), -1).view(y.size(0), -1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_batch_read_for_a_view(name: str, traces: Traces) -> None:
    net = _agree(randomize(Block(VIEWS[name])), *SHAPES)
    assert traces == ["recorded"]
    assert net.inputs["x"].height is None
    assert not net.inputs["x"].sizes


_SIZES: list[Any] = []
_TAPS = nn.Parameter(torch.rand(3, 1))


def _kept(y: Any) -> Any:
    _SIZES.append(y.size(0))
    return y.view(y.size(0), -1)


def _counted(y: Any) -> Any:
    batch = y.size(0)
    return y.view(batch, -1) * len(range(batch))


# Modules that use the batch in more places than a view, or in others.
OTHER_USES: dict[str, Callable[[Any], Any]] = {
    "kept": _kept,
    "counted": _counted,
    "compared": lambda y: y.view(y.size(0), -1) * (2 if y.size(0) > 2 else 1),
    "printed": lambda y: y.view(y.size(0), -1) * len(f"{y.size(0)}"),
    "hashed": lambda y: y.view(y.size(0), -1) * {1: 2.0}.get(y.size(0), 1.0),
    "filled": lambda y: y.view(y.size(0), -1) * torch.ones(y.size(0), 1),
    "not_of_a_view": lambda y: y.view(y.size(0), -1) * len([0] * y.size(0)),
    "of_another_axis": lambda y: y.view(-1, y.size(0)).view(-1, 16),
    "of_a_weight": lambda y: y.view(_TAPS.size(0), -1) if len(y) == 3 else y.view(len(y), -1) * 2,
    "literal": lambda y: y.view(3, -1) if len(y) == 3 else y.view(y.size(0), -1) * 2,
}


@pytest.mark.parametrize("name", OTHER_USES)
def test_batch_read_for_more(name: str, traces: Traces) -> None:
    _SIZES.clear()
    module = randomize(Block(OTHER_USES[name]))
    net = mpscnn.load(module, input_shapes=(1, 4, 8, 8))
    assert len(traces) > 1 or name == "kept"
    assert all(type(one) is int for one in _SIZES)
    for shape in SHAPES:
        x = torch.rand(shape)
        try:
            found = net(x)
        except ValueError:  # the import is for another batch
            assert net.inputs["x"].sizes
            continue
        np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


class WithLinear(nn.Module):
    """A function of images and a linear layer."""

    def __init__(self, function: Callable[[Any, nn.Module], Any]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, x: Any) -> Any:
        return self.function(x, self.linear)


def test_modules_that_read_a_size_are_not_traced_for_one(traces: Traces) -> None:
    mpscnn.load(WithLinear(lambda x, linear: x * x.shape[2]), input_shapes=(1, 4, 8, 8))
    assert traces == ["batch", "sizes"]


def _pool(x: Any) -> Any:
    return F.adaptive_avg_pool2d(x, 1)


def _ones(x: Any) -> Any:
    return torch.ones_like(_pool(x).view(x.size(0), -1))


# Modules with axes that have one element for all sizes, and constants of their shapes.
AXES_OF_ONE: dict[str, Callable[[Any, nn.Module], Any]] = {
    "sum": lambda x, linear: _pool(x).flatten(1) + _ones(x),
    "linear": lambda x, linear: _pool(x).flatten(1) * linear(_ones(x)),
    "joined": lambda x, linear: torch.cat([_pool(x), torch.zeros_like(_pool(x))], 1),
    "image": lambda x, linear: x * torch.full_like(x.mean((2, 3), keepdim=True), 3.0),
    "part": lambda x, linear: _ones(x).chunk(2, 1)[0] * _pool(x).flatten(1)[:, :2],
    "unsqueezed": lambda x, linear: x * linear(_ones(x)).unsqueeze(-1).unsqueeze(-1),
    "squeezed": lambda x, linear: linear(_pool(x).squeeze(-1).squeeze(-1)),
    "viewed": lambda x, linear: x * linear(_pool(x).flatten(1)).view(x.size(0), 4, 1, 1),
    "convolved": lambda x, linear: x * torch.sigmoid(F.conv2d(_pool(x), torch.ones(4, 4, 1, 1, dtype=x.dtype))),
    "max": lambda x, linear: x - F.adaptive_max_pool2d(x, 1),
    "sum_of_both": lambda x, linear: F.conv2d(_pool(x), torch.ones(4, 4, 1, 1, dtype=x.dtype), padding=1).mean((2, 3)),
}


@pytest.mark.parametrize("name", AXES_OF_ONE)
def test_axes_of_one_element(name: str, traces: Traces) -> None:
    net = _agree(randomize(WithLinear(AXES_OF_ONE[name])), *SHAPES)
    assert traces == ["numbers" if name in ("convolved", "sum_of_both") else "recorded"]  # they make tensors
    assert next(iter(net.inputs.values())).height is None


GROUPED: dict[str, Callable[[Any], Any]] = {
    "groups": lambda x: _pool(x).view(x.size(0), 2, 2).sum(2),
    "vectors": lambda x: x.flatten(1).view(x.size(0), -1, 1, 1),
    "softmax": lambda x: torch.softmax(_pool(x).view(x.size(0), 2, 2), 1).flatten(1),
}


@pytest.mark.parametrize("name", GROUPED)
def test_other_views(name: str, traces: Traces) -> None:
    _agree(Function(GROUPED[name]), (2, 4, 8, 8), (1, 4, 8, 8))
    assert len(traces) > 1


def test_batch_read_by_the_module_itself(traces: Traces) -> None:
    class Flat(nn.Module):
        def forward(self, x: Any) -> Any:
            return F.adaptive_avg_pool2d(F.relu(x), 1).view(x.size(0), -1)

    net = _agree(Flat(), *SHAPES)
    assert traces == ["recorded"]
    assert net.inputs["x"].height is None


def test_fixed_by_a_layer(traces: Traces) -> None:
    net = _agree(randomize(nn.Sequential(nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(72, 3))), (3, 4, 8, 8))
    assert traces == ["recorded"]
    assert "linear" in net.inputs["input"].fixed_by


FIXED: dict[str, tuple[Any, str]] = {
    "linear": (lambda x, w: F.linear(x.flatten(1), w), "aten.linear"),
    "linear_of_a_view": (lambda x, w: F.linear(F.relu(x).view(x.size(0), -1), w), "aten.linear"),
    "flat": (lambda x, w: F.relu(x).flatten(1), "aten.flatten"),
    "flat_and_linear": (lambda x, w: torch.cat([x.flatten(1) * 2, F.linear(x.flatten(1), w)], 1), "aten.linear"),
    "pooled": (lambda x, w: F.linear(F.max_pool2d(x, 3, 1, 1).flatten(1), w).relu(), "aten.linear"),
}


@pytest.mark.parametrize("name", FIXED)
def test_fixed_graphs_are_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph for all sizes that a layer fixes is that for one size, which is only read if it may differ."""
    found: list[mpscnn.Graph] = []
    read = torch_export.read
    monkeypatch.setattr(torch_export, "read", lambda *given, **named: found.append(read(*given, **named)) or found[-1])
    function, reason = FIXED[name]
    module = Function(function, w=torch.rand(3, 256))
    net = _agree(module, (3, 4, 8, 8))
    assert reason in net.inputs["tensors_0"].fixed_by
    (graph,) = found
    static = torch_export.read(torch.export.export(module, (torch.rand(3, 4, 8, 8),)), name_dependence=True)
    assert [(node.kernel, node.sources) for node in graph.nodes] == [
        (node.kernel, node.sources) for node in static.nodes
    ]


def test_fixed_graphs_with_kernels_of_all_sizes_are_read_again() -> None:
    """A pooling to 3 x 3 pixels has windows of its own for one size, and computes them for all sizes."""

    def function(x: Any, v: Any, w: Any) -> Any:
        return F.linear(F.adaptive_avg_pool2d(x, 3).flatten(1), v) + F.linear(x.flatten(1), w)

    net = _agree(Function(function, v=torch.rand(3, 36), w=torch.rand(3, 256)), (3, 4, 8, 8))
    assert "aten.linear" in net.inputs["tensors_0"].fixed_by
    assert ADAPTIVE_POOL not in {node.kernel for node in net.graph.nodes}


def test_fixed_by_a_flat_output(traces: Traces) -> None:
    net = _agree(nn.Sequential(nn.ReLU(), nn.Flatten()), (3, 4, 8, 8))
    assert traces == ["recorded"]
    assert net.inputs["input"].fixed_by


READERS = {
    "shape": lambda x: x * x.shape[2],
    "size": lambda x: x / x.size(3),
    "negative": lambda x: x * x.size(-1),
    "numel": lambda x: x * (x.numel() // len(x)),
    "branch": lambda x: x * 2 if x.shape[2] > 10 else x,
    "batch": lambda x: x * len(x),
    "swallowed": lambda x: x * _swallowed(x),
    "recomputed": lambda x: F.interpolate(x, scale_factor=1.3, mode="nearest", recompute_scale_factor=True),
    "to_size": lambda x: F.interpolate(F.max_pool2d(x, 2), size=x.shape[2:]),
    "mean_of_all": lambda x: F.avg_pool2d(x, x.shape[2:]),
    "iterated": lambda x: torch.stack([row * (i + 1) for i, row in enumerate(x.unbind(2))], 2),
    "parts_of_rows": lambda x: torch.cat(x.chunk(2, 2)[::-1], 2),
    "adaptive_of_source": lambda x: F.adaptive_avg_pool2d(x, (None, 2)),
    "numpy": lambda x: x * float(np.prod(x.shape[2:])),
}


def _swallowed(x: Any) -> float:
    try:
        return float(x.shape[2])
    except BaseException:
        return 1.0


@pytest.mark.parametrize("name", READERS)
def test_sizes_that_are_read(name: str, traces: Traces) -> None:
    convolution = randomize(nn.Conv2d(4, 4, 1))
    module = nn.Sequential(convolution, Function(READERS[name])).eval()
    net = mpscnn.load(module, input_shapes=(1, 4, 8, 8))
    assert len(traces) > 1
    for shape in SHAPES:
        x = torch.rand(shape)
        np.testing.assert_allclose(net(x), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_function_with_a_script(traces: Traces) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * x.size(2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated
        scaled = torch.jit.script(scaled)
    module = Function(lambda x: scaled(x))
    _agree(module, (2, 4, 8, 8), (1, 4, 11, 8))
    assert len(traces) > 1


def test_a_constant_with_extents(traces: Traces) -> None:
    positions = torch.rand(4, 8, 8)
    net = _agree(Function(lambda x, p: F.relu(x) + p, p=positions), (2, 4, 8, 8))
    assert len(traces) > 1
    with pytest.raises(ValueError, match="16"):
        net(torch.zeros(1, 4, 16, 16))


def _program(function: Callable[[Any], Any], **constants: Any) -> Any:
    return torch.export.export(Function(function, **constants), (torch.zeros(3, 4, 8, 8),))


DEPENDENT = {
    "rows": lambda x: x[:, :, 1:],
    "row": lambda x: x[:, :, 3],
    "split_rows": lambda x: x.split([3, 5], 2)[0],
    "split_turned": lambda x: x.permute(0, 2, 3, 1).split([3, 5], 1)[0],
    "view": lambda x: x.view(3, 4, 64),
    "reshaped": lambda x: x.reshape(-1, 4, 8, 8),
    "flat_rows": lambda x: x.flatten(2),
    "flat_batch": lambda x: x.flatten(0, 1),
    "linear_of_rows": lambda x: F.linear(x, torch.ones(2, 8)),
    "norm_of_rows": lambda x: F.layer_norm(x, (8,)),
    "norm_of_images": lambda x: F.layer_norm(x, (4, 8, 8)),
    "convolution_of_turned": lambda x: F.conv2d(x.transpose(1, 2), torch.ones(2, 8, 1, 1)),
    "turned_sum": lambda x: x + x.transpose(2, 3),
    "sum_with_vector": lambda x: x.mean((2, 3)) + torch.ones(3, 4),
    "turned_batch": lambda x: x.transpose(0, 1),
    "mean_of_batch": lambda x: x.mean(0),
    "mean_of_all": lambda x: x.mean(),
    "joined_rows": lambda x: torch.cat([x, x], 2),
    "resized": lambda x: F.interpolate(x, (16, 16)),
    "like_rows": lambda x: torch.zeros_like(x) + x,
    "softmax_of_batch": lambda x: torch.softmax(torch.ones_like(x.mean((2, 3))), 0),
    "axis_in_front": lambda x: _pool(x).flatten(1).unsqueeze(0),
    "squeezed_rows": lambda x: x.squeeze(2),
    "squeezed_all": lambda x: _pool(x).squeeze(),
    "made_longer": lambda x: _pool(x) * torch.ones(4, 3, 3),
    "weights": lambda x: F.conv2d(x, x.mean((0, 2, 3), keepdim=True)),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_operators_that_may_depend(name: str) -> None:
    assert not torch_independent.is_independent(_program(DEPENDENT[name]))


def test_a_hook_that_reads(traces: Traces) -> None:
    module = Function(lambda x: F.relu(x))
    module.register_forward_pre_hook(lambda _, given: given[0] * given[0].shape[2])
    _agree(module, (2, 4, 8, 8), (1, 4, 11, 8))
    assert len(traces) > 1


def test_attributes_are_restored() -> None:
    module = randomize(Block())
    torch_module.read(module, input_shapes=(1, 4, 8, 8))
    assert "forward" not in vars(module)


class Recurrent(nn.Module):
    def __init__(self, *, is_called: bool = True) -> None:
        super().__init__()
        self.conv, self.rnn, self.is_called = nn.Conv2d(4, 8, 1), nn.LSTM(8, 8, batch_first=True), is_called

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        return self.rnn(y.flatten(2).transpose(1, 2))[0] if self.is_called else y


def test_recurrent_layers_are_refused_at_once(traces: Traces) -> None:
    module = Recurrent()
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"aten\.lstm \(1\):\n +rnn: no kernel"):
        mpscnn.load(module, input_shapes=(1, 4, 8, 8))
    assert not traces  # those with symbols would have the operators of every step
    assert "forward" not in vars(module.rnn)
    assert module(torch.rand(1, 4, 8, 8)).shape == (1, 64, 8)


def test_recurrent_layers_that_are_not_called() -> None:
    _agree(randomize(Recurrent(is_called=False)), *SHAPES)


def test_constants_of_a_size_end_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace with numbers would not be valid for other sizes: its rest is not waited for."""
    ran: list[str] = []

    def function(x: Any) -> Any:
        y = torch.zeros_like(x) + x
        ran.append("behind")
        return y * 2

    module, ends = Function(function), []
    monkeypatch.setattr(torch_module, "_refuse_values", lambda *args: ends.append(len(ran)))
    _agree(module, *SHAPES)
    assert ends == [0]
