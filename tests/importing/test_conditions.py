# SPDX-License-Identifier: Apache-2.0
"""Modules that take other branches for other batches, and programs with guards: what a network accepts is right."""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import contextlib
import copy
import gc
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch_support import Function, core_aten, randomize

import mpscnn
from fuzzing import Fuzz
from mpscnn import _sizes
from mpscnn.importing import torch_export, torch_guards, torch_numbers
from mpscnn.importing.torch_caches import SizeReadError
from mpscnn.serving.batching import Batcher
from mpscnn.serving.models import NetworkModel
from mpscnn.verify import verify

fuzz = Fuzz()
Dim = torch.export.Dim


def twice(condition: Callable[[Any], Any]) -> Callable[[], nn.Module]:
    return lambda: Function(lambda x: x * 2 if condition(x) else x + 1)


# By name: the module, and for the batch of the import (1 and 4) the batches up to 6 that the network takes.
BATCHES: dict[str, tuple[Callable[[], nn.Module], set[int], set[int]]] = {
    "above_1": (twice(lambda x: x.shape[0] > 1), {1}, {2, 3, 4, 5, 6}),
    "above_2": (twice(lambda x: x.shape[0] > 2), {1, 2}, {3, 4, 5, 6}),
    "is_1": (twice(lambda x: x.shape[0] == 1), {1}, {2, 3, 4, 5, 6}),
    "is_3": (twice(lambda x: x.shape[0] == 3), {1, 2, 4, 5, 6}, {1, 2, 4, 5, 6}),
    "is_4": (twice(lambda x: x.shape[0] == 4), {1, 2, 3, 5, 6}, {4}),
    "odd": (twice(lambda x: x.shape[0] % 2), {1, 3, 5}, {2, 4, 6}),
    "with_height": (twice(lambda x: x.shape[0] * 2 > x.shape[2]), {1, 2, 3}, {4, 5, 6}),
    "times_number": (lambda: Function(lambda x: x * int(x.shape[0])), {1}, {4}),
    # Ordinary networks, and code that does not depend on the numbers it evaluates.
    "view": (lambda: Function(lambda x: x.view(int(x.shape[0]), -1)), {*range(1, 7)}, {*range(1, 7)}),
    "windows": (
        lambda: Function(lambda x: x.view(int(x.shape[0] * x.shape[2] / 6), 3, -1) * 2),
        {*range(1, 7)},
        {*range(1, 7)},
    ),
    "normalized": (
        lambda: randomize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))),
        {*range(1, 7)},
        {*range(1, 7)},
    ),
}


@pytest.mark.parametrize("given", ["input_shapes", "example_inputs", "one size"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", BATCHES)
def test_batches_are_right_or_refused(name: str, batch: int, given: str) -> None:
    make, *accepted = BATCHES[name]
    module = make().eval()
    shape = (batch, 3, 6, 5)
    if given == "example_inputs":
        net = mpscnn.load(module, example_inputs=torch.rand(shape))
    else:
        net = mpscnn.load(module, input_shapes=shape, options={"free_size": False} if given == "one size" else None)
    exact, taken = copy.deepcopy(module).double(), set()
    for images in range(1, 7):
        x = torch.rand(images, *shape[1:])
        try:
            found = net(x)
        except ValueError as error:
            assert f"a batch of {images}, of 6 x 5, is not one that the model was imported for" in str(error)  # noqa: PT017
            assert "unless" in str(error)  # noqa: PT017
            continue
        taken.add(images)
        with torch.no_grad():
            assert np.abs(found - exact(x.double()).numpy()).max() < 1e-5, images
    assert batch in taken
    if given != "one size":
        assert taken == {*range(1, 7)}  # the module is read again
    else:
        assert taken == accepted[batch > 1]


def _halved(x: Any) -> Any:
    left = len(x)
    while left > 1:
        x, left = x + 1, left // 2
    return x


def _times_log(x: Any) -> Any:
    for i in range(int(math.log2(x.shape[2]))):
        x = x + i
    return x


def _padded(x: Any) -> Any:
    return F.pad(x, (0, 0, 0, math.ceil(x.shape[2] / 4) * 4 - x.shape[2]))


# Ways to ask for an extent. Most make a number of Python or a text of it.
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda x, asked=asked: x * 2 if asked(x) else x + 1  # type: ignore[misc]
        for name, asked in {
            "len": lambda x: len(x) > 5,
            "len_is": lambda x: x.__len__() == 6,
            "list": lambda x: len(list(x)) > 5,
            "unbind": lambda x: len(x.unbind(0)) > 5,
            "split": lambda x: len(x.split(1)) > 5,
            "chunk": lambda x: len(x.chunk(4)) > 3,
            "chunk_of_rows": lambda x: len(x.chunk(4, 2)) > 3,
            "int": lambda x: int(x.shape[0]) > 5,
            "float": lambda x: float(x.shape[0]) > 5.0,
            "numel": lambda x: x.numel() > 600,
            "nbytes": lambda x: x.nbytes > 2400,
            "product": lambda x: x.shape.numel() > 600,
            "range": lambda x: sum(1 for _ in range(x.shape[0])) > 5,
            "set": lambda x: x.shape[0] in {6, 7},
            "text": lambda x: f"{x.shape[0]}" == "6",
            "text_of_shape": lambda x: "(6, 3" in str(tuple(x.shape)),
            "text_of_size": lambda x: "6" in repr(x.shape),
            "index": lambda x: "abcdefghijklmnopqr"[x.shape[0]] > "f",
            "size": lambda x: x.size() == torch.Size((6, 3, 6, 5)),
            "tensor": lambda x: bool(torch.tensor(x.shape[0]) > 5),
            "empty": lambda x: bool(x[5:].numel()),
            "stride": lambda x: x.stride(0) == 90,
            "contiguous": lambda x: x.is_contiguous(),
            "channels_last": lambda x: x.is_contiguous(memory_format=torch.channels_last) and x.shape[2] > 1,
            "storage": lambda x: x.untyped_storage().nbytes() > 2400,
            "multiple": lambda x: x.shape[2] % 4,
            "ceil": lambda x: math.ceil(x.shape[2] / 4) > 2,
            "root": lambda x: x.shape[2] ** 0.5 > 3,
            "len_of_rows": lambda x: len(x[0, 0]) > 8,
            "squeezed": lambda x: x[:, :, :1].squeeze(2).squeeze(2).ndim > 2,
        }.items()
    },
    "lookup": lambda x: x * {1: 1, 2: 1, 3: 1, 4: 1, 6: 5}.get(x.shape[0], 1),
    "lookup_of_int": lambda x: x * {6: 5}.get(int(x.shape[0]), 1),
    "nested": lambda x: x if len(x) > 2 else x * 2 if len(x) == 2 else x,
    "loop": _halved,
    "loop_of_rows": _times_log,
    "padded": _padded,
    "zip": lambda x: x + sum(weight for weight, _ in zip(range(1, 6), x, strict=False)),
    "times": lambda x: x * x.shape[0] + len(x),
    "times_tensor": lambda x: x * torch.tensor(x.shape[0]) + x.new_tensor([len(x)]),
    "sum": lambda x: x + torch.arange(x.shape[0]).sum() + torch.ones(x.shape[0]).sum(),
    "where": lambda x: torch.where(torch.tensor(x.shape[0]) > 5, x * 2, x + 1),
    "min": lambda x: x * min(len(x), 5) * min(x.shape[2], 8),
    "windows": lambda x: x.view(int(x.numel() / (3 * 6 * 5)), 3, -1) * 2,
    "truth": lambda x: x * (x.shape[2] > 7) + (x.shape[0] > 2),
    "argument": lambda x: F.adaptive_max_pool2d(x, (max(x.shape[2] // 2, 1), x.shape[3])),
    "mean": lambda x: x.flatten(1).sum(1) / x[0].numel() + x.sum((1, 2, 3)) / int(x.shape[2] * x.shape[3]),
}


@pytest.mark.parametrize(("batch", "fixed"), [(1, False), (4, True)])
@pytest.mark.parametrize("name", QUESTIONS)
def test_extents_in_code_of_python(name: str, batch: int, fixed: bool) -> None:
    module, shape = Function(QUESTIONS[name]), (batch, 3, 6, 5)
    net = mpscnn.load(module, input_shapes=shape, options={"free_size": False} if fixed else None)
    others = [(n, 3, 6, 5) for n in (1, 2, 3, 4, 6, 8, 17)] + [(1, 3, 9, 5), (2, 3, 12, 7), (6, 3, 3, 5), (8, 3, 1, 1)]
    for other in [shape, *others]:
        x = torch.rand(other)
        try:
            found = net(x)
        except ValueError:
            assert fixed or name == "windows" or other[2:] == (1, 1), other
            assert other != shape
        else:
            expected = module(x).numpy()
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=str(other))


def test_code_that_only_divides_extents_leaves_the_batch_free() -> None:
    """Windows, as in the restoration networks that follow Swin Transformer."""

    def windows(x: Any) -> Any:
        x = x.view(-1, 3, 3, 5) * 2
        return x.view(int(x.shape[0] / (6 * 5 / 3 / 5)), 2, -1)

    module = Function(windows)
    (spec,) = mpscnn.load(module, input_shapes=(4, 3, 6, 5), options={"free_size": False}).inputs.values()
    assert spec.sizes == ""


def _code(name: str, text: str) -> Callable[[Any], Any]:
    """Return the function f of a file of another package."""
    scope: dict[str, Any] = {"torch": torch}
    path = Path(torch.__file__).parents[1] / "elsewhere" / f"{name}.py"
    exec(compile(text, str(path), "exec"), scope)
    function: Callable[[Any], Any] = scope["f"]
    return function


def test_a_trace_ends_where_a_file_makes_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one replaces the names in this file, or none if there is no such trace."""
    rows = _code("rows", "def f(x):\n  return x.view(int(x.shape[0]), -1) * 2")
    halves = _code("halves", "def f(x):\n  return x.view(len(x), -1, 3).sum(1)")
    kinds = _code("kinds", "def f(x):\n  return x.view(int(x.shape[0]), -1) * torch.ones(1, dtype=int)")
    ends: list[type[BaseException] | None] = []
    export = torch.export.export

    def noted(*args: Any, **kwargs: Any) -> Any:
        ends.append(None)
        try:
            return export(*args, **kwargs)
        except BaseException as error:
            ends[-1] = type(error)
            raise

    monkeypatch.setattr(torch.export, "export", noted)
    early = torch_numbers.NumberMadeError
    for function, expected, sizes in (
        (lambda x: torch.relu(rows(x)), [early, None], ""),
        (lambda x: torch.relu(halves(rows(x))), [early, early, None], ""),
        (lambda x: torch.relu(kinds(x)), [early, TypeError, None], None),
    ):
        ends.clear()
        module = Function(function)
        net = mpscnn.load(module, input_shapes=(4, 3, 6, 5), options={"free_size": False})
        assert [end for end in ends if end is not SizeReadError][: len(expected)] == expected
        assert sizes is None or net.inputs["tensors_0"].sizes == sizes
        x = torch.rand(4, 3, 6, 5)
        np.testing.assert_allclose(net(x), module(x).numpy(), rtol=1e-6)


def test_names_are_restored_after_a_trace() -> None:
    before = {name: vars(torch.SymInt).get(name) for name in ("__int__", "__index__", "__repr__")}
    scope: dict[str, Any] = {"nn": nn}
    exec(
        "class One(nn.Module):\n  def forward(self, x):\n"
        "    assert type(1) == int and isinstance(1, int) and issubclass(bool, int) and {int: 1}[int] == 1\n"
        "    return x.view(int(x.shape[0]), int('-1')) * (2 if len(x) > 3 else len([1]))",
        scope,
    )
    net = mpscnn.load(scope["One"]().eval(), input_shapes=(1, 3, 6, 5))
    assert net.inputs["x"].sizes == "(batch <= 3)"
    assert "int" not in scope
    assert "len" not in scope
    assert {name: vars(torch.SymInt).get(name) for name in before} == before


def test_constants_of_the_batch() -> None:
    """Programs, which cannot be read again."""

    def program(function: Callable[[Any], Any]) -> Any:
        return torch.export.export(
            Function(function), (torch.rand(3, 3, 6, 5),), dynamic_shapes=(({0: torch.export.Dim.AUTO},),)
        )

    for function in (
        lambda x: x * torch.tensor(x.shape[0]),
        lambda x: x + torch.ones(x.shape[0], 2).sum(0).mean(),
        lambda x: x + torch.cat([torch.zeros(x.shape[0]), torch.ones(1)]).sum(),
        lambda x: x / torch.ones_like(x).sum(),
    ):
        with pytest.raises(mpscnn.UnsupportedOperatorError, match="a constant that depends on the number of images"):
            mpscnn.load(program(function))
    token = torch.rand(1, 1, 5)
    kept = program(lambda x: torch.cat([x.flatten(1, 2), (token.expand(len(x.flatten(0, 0)), -1, -1) + 1) * 2], 1))
    for images in (1, 2, 5):
        x = torch.rand(images, 3, 6, 5)
        expected = torch.cat([x.flatten(1, 2), (token.expand(images, -1, -1) + 1) * 2], 1)
        np.testing.assert_allclose(mpscnn.load(kept)(x), expected.numpy(), rtol=1e-6, atol=1e-6)


def test_rows_of_constants_of_the_batch() -> None:
    """An LSTM cell of linear layers, as DIA-ResNet's, that begins with zeros for each image."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.of_x, self.of_h = nn.Linear(3, 33), nn.Sequential(nn.Linear(33, 8), nn.ReLU(), nn.Linear(8, 33))

        def forward(self, x: Any) -> Any:
            y = self.of_x(x.mean((2, 3)))
            return torch.sigmoid(y + self.of_h(torch.zeros_like(y) + 0.3))

    module = randomize(Cell())
    net = mpscnn.load(module, input_shapes=(1, 3, 6, 5))
    assert net.inputs["x"].sizes == ""
    for images in (1, 2, 7):
        x = torch.rand(images, 3, 6, 5)
        np.testing.assert_allclose(net(x), module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    others: list[Callable[[Any], Any]] = [
        lambda x: x * F.linear(torch.ones(2, x.shape[0]), torch.ones(x.shape[0], x.shape[0])).mean(),
        lambda x: x * F.linear(torch.ones(3), torch.ones(x.shape[0], 3)).mean(),
        lambda x: x * F.linear(torch.ones(2, x.shape[0], 3), torch.ones(4, 3)).sum(),
    ]
    for function in others:
        net = mpscnn.load(Function(function), input_shapes=(2, 3, 6, 5))
        (spec,) = net.inputs.values()
        assert spec.sizes == "(batch == 2)"


def test_the_axis_of_the_batch_is_not_squeezed() -> None:
    module = Function(lambda x: x.mean((2, 3), keepdim=True).squeeze() * 2)
    net = mpscnn.load(module, input_shapes=(1, 3, 6, 5))
    for images in (1, 2, 3):
        x = torch.rand(images, 3, 6, 5)
        assert net(x).shape == (images, 3)
        assert np.abs(net(x) - module(x).reshape(images, 3).numpy()).max() < 1e-6
    (spec,) = net.inputs.values()
    assert spec.sizes == ""


def test_heights_of_one_pixel_are_a_branch() -> None:
    module = twice(lambda x: x.shape[2] > 1)()
    net = mpscnn.load(module, input_shapes=(1, 3, 6, 5))
    assert net.inputs["tensors_0"].sizes == "(height > 1)"
    assert np.abs(net(np.zeros((1, 3, 1, 5), np.float32)) - 1).max() == 0  # read again
    fixed = mpscnn.load(module, input_shapes=(1, 3, 6, 5), options={"free_size": False})
    with pytest.raises(ValueError, match=r"its height \(1\) is not 6"):
        fixed(np.zeros((1, 3, 1, 5), np.float32))
    one = mpscnn.load(module, input_shapes=(1, 3, 1, 5))
    assert np.abs(one(np.zeros((1, 3, 1, 5), np.float32)) - 1).max() == 0


def test_two_inputs_share_the_batch() -> None:
    module = Function(lambda x, y: (x * 2 if x.shape[0] > 1 else x, y * 3 if y.shape[0] < y.shape[2] else y))
    net = mpscnn.load(module, input_shapes=[(1, 3, 6, 5), (1, 2, 4, 4)])
    sizes = {name: spec.sizes for name, spec in net.inputs.items()}
    assert sizes == {"tensors_0": "(batch <= 1)", "tensors_1": "(batch < height)"}


def test_code_without_a_file_has_branches() -> None:
    scope: dict[str, Any] = {"nn": nn}
    exec("class Odd(nn.Module):\n  def forward(self, x):\n    return x * 2 if x.shape[2] % 2 else x", scope)
    net = mpscnn.load(scope["Odd"]().eval(), input_shapes=(1, 3, 6, 5))
    assert net.inputs["x"].sizes == "((height % 2) == 0)"


def test_networks_for_torch_compile_follow_its_guards() -> None:
    module = twice(lambda x: x.shape[0] > 1 and x.shape[2] % 2)()
    compiled = torch.compile(module, backend="mpscnn")
    with torch.no_grad():
        for shape in ((1, 3, 7, 5), (2, 3, 7, 5), (3, 3, 6, 5), (1, 3, 7, 5)):
            x = torch.rand(shape)
            assert torch.equal(compiled(x), module(x)), shape


# ---- entries


def odd_graph() -> mpscnn.Graph:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=2, sizes="height % 2 == 1 and batch != 3")
    weight = np.ones((2, 2, 1, 1), np.float32)
    graph.output(graph.add("Convolution", x, weight=weight, name="conv"), "y")
    return graph


SHAPES = [((1, 4, 5, 2), "4 x 5, is not one"), ((3, 5, 5, 2), "a batch of 3, of 5 x 5")]


@pytest.mark.parametrize(("shape", "match"), SHAPES)
def test_each_entry_asks_the_conditions(shape: tuple[int, ...], match: str) -> None:
    net = mpscnn.Network(odd_graph())
    x, right = np.ones(shape, np.float32), np.ones((2, 5, 5, 2), np.float32)
    assert net(right).shape == (2, 5, 5, 2)
    with pytest.raises(ValueError, match=match):
        net(x)
    with pytest.raises(ValueError, match=match):
        asyncio.run(net.apredict(x))
    stream = net.stream([right, x, right])
    next(stream)
    with pytest.raises(ValueError, match=match):
        next(stream)
    assert next(stream).shape == right.shape
    with pytest.raises(ValueError, match=match):
        net.encode(mpscnn.CommandBuffer(), mpscnn.Image(shape))
    with pytest.raises(ValueError, match=match):
        mpscnn.quantize(net, [x])
    with pytest.raises(ValueError, match=match):
        net.layers(shape)
    with pytest.raises(ValueError, match=match):
        verify(net, "kernels", {"x": x})
    with pytest.raises(ValueError, match=match):
        NetworkModel(net).check({"x": x})
    NetworkModel(net).check({"x": right})


def test_training_asks_the_conditions() -> None:
    with pytest.raises(ValueError, match="4 x 5, is not one"):
        mpscnn.Trainer(odd_graph(), input_shapes=(2, 4, 5, 2), loss="mean_squared_error")
    trainer = mpscnn.Trainer(odd_graph(), input_shapes=(2, 5, 5, 2), loss="mean_squared_error")
    x = np.ones((3, 5, 5, 2), np.float32)
    trainer.step(x[:2], x[:2]).loss  # noqa: B018
    with pytest.raises(ValueError, match="a batch of 3, of 5 x 5"):
        trainer.step(x, x)
    with pytest.raises(ValueError, match="a batch of 3, of 5 x 5"):
        trainer.evaluate(x, x)
    with pytest.raises(ValueError, match="a batch of 3, of 5 x 5"):
        trainer.fit(x, x, batch_size=3)
    trainer.fit(x, x, batch_size=1, validation=(np.ones((1, 5, 5, 2), np.float32),) * 2)
    module = nn.Sequential(nn.Conv2d(2, 2, 1), twice(lambda x: x.shape[0] > 1)())
    trainer = mpscnn.Trainer(module, input_shapes=(4, 2, 5, 5), loss="mean_squared_error")
    with pytest.raises(ValueError, match="a batch of 1"):
        trainer.step(np.ones((1, 2, 5, 5), np.float32), np.ones((1, 2, 5, 5), np.float32))


def test_the_server_does_not_join_requests_if_the_batch_matters() -> None:
    class Counted(NetworkModel):
        rows: list[int]

        async def compute(self, arrays: Any) -> Any:
            self.rows.append(len(arrays["x"]))
            return await super().compute(arrays)

    async def rows(sizes: str) -> list[int]:
        graph = mpscnn.Graph()
        graph.output(graph.add("NeuronReLU", graph.input("x", channels=2, sizes=sizes)), "y")
        model = Counted(mpscnn.Network(graph))
        model.rows = []
        batcher = Batcher(model, max_batch=4, max_delay=0.2)
        x = np.ones((1, 5, 5, 2), np.float32)
        await asyncio.gather(*(batcher({"x": x}) for _ in range(4)))
        await batcher.close()
        return model.rows

    assert asyncio.run(rows("batch == 1")) == [1, 1, 1, 1]
    assert asyncio.run(rows("height > 2")) == [4]


# ---- programs


PROGRAMS: dict[str, tuple[Callable[[Any], Any], dict[int, Any], list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    "above": (
        lambda x: x * 2 if x.shape[2] > 6 else x,
        {2: Dim.AUTO},
        [(2, 3, 7, 9), (2, 3, 20, 9)],
        [(2, 3, 6, 9)],
    ),
    "remainder": (
        lambda x: x * 2 if x.shape[2] % 7 > 2 else x,
        {2: Dim.AUTO},
        [(2, 3, 10, 9)],
        [(2, 3, 15, 9), (2, 3, 9, 9)],
    ),
    "odd_batch": (lambda x: x * 2 if x.shape[0] % 2 else x, {0: Dim.AUTO}, [(4, 3, 12, 9)], [(3, 3, 12, 9)]),
    "square": (
        lambda x: x * 2 if x.shape[2] == x.shape[3] + 3 else x,
        {2: Dim.AUTO, 3: Dim.AUTO},
        [(2, 3, 8, 5)],
        [(2, 3, 8, 8)],
    ),
    "range": (
        lambda x: x * 2,
        {0: Dim("n", max=4), 2: Dim("h", min=8, max=16)},
        [(1, 3, 8, 9), (4, 3, 16, 9)],
        [(5, 3, 12, 9), (2, 3, 7, 9), (2, 3, 17, 9)],
    ),
    "multiple": (
        lambda x: F.avg_pool2d(x, 2),
        {2: 4 * Dim("q", min=3, max=5), 3: Dim.AUTO},
        [(2, 3, 20, 7)],
        [(2, 3, 10, 9), (2, 3, 24, 9), (2, 3, 8, 9)],
    ),
    "checked": (lambda x: (torch._check(x.shape[2] < 20), x * 2)[1], {2: Dim.AUTO}, [(2, 3, 19, 9)], [(2, 3, 20, 9)]),
    "of_a_layer": (
        lambda x: F.max_pool2d(x, 3) * (2 if F.max_pool2d(x, 3).shape[2] < 6 else 1),
        {2: Dim.AUTO, 3: Dim.AUTO},
        [(2, 3, 17, 8)],
        [(2, 3, 18, 9)],
    ),
}


@pytest.mark.parametrize("kind", ["program", "loaded", "file"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_keep_their_conditions(name: str, kind: str, tmp_path: Path) -> None:
    function, dynamic, accepted, refused = PROGRAMS[name]
    module = Function(function)
    program: Any = torch.export.export(module, (torch.rand(2, 3, 12, 9),), dynamic_shapes=((dynamic,),))
    path = tmp_path / "a.pt2"
    torch.export.save(program, path)
    source = {"program": program, "loaded": torch.export.load(path), "file": path}[kind]
    net = mpscnn.load(source)
    for shape in [(2, 3, 12, 9), *accepted]:
        x = torch.rand(shape)
        assert np.abs(net(x) - module(x).numpy()).max() < 1e-6, shape
    for shape in refused:
        with pytest.raises(ValueError, match=r"that the model was imported for.* unless "):
            net(np.zeros(shape, np.float32))


def test_guards_that_divide_extents_by_each_other(tmp_path: Path) -> None:
    """As those of pixel_unshuffle in core ATen, also with a free number of channels."""
    module = nn.PixelUnshuffle(2)
    with torch_export.quiet():
        program = core_aten(
            torch.export.export(module, (torch.rand(2, 3, 6, 8),), dynamic_shapes=(dict.fromkeys(range(4), Dim.AUTO),))
        )
        torch.export.save(program, tmp_path / "a.pt2")
    for source in (program, tmp_path / "a.pt2"):
        net = mpscnn.load(source)
        for shape in ((2, 3, 6, 8), (1, 3, 10, 4), (5, 3, 12, 14)):
            x = torch.rand(shape)
            assert np.abs(net(x) - module(x).numpy()).max() == 0
        for shape in ((2, 3, 7, 8), (2, 3, 6, 9), (2, 4, 6, 8)):
            with pytest.raises(ValueError, match="is not"):
                net(np.zeros(shape, np.float32))


def test_unknown_guards_of_files_fix_sizes(tmp_path: Path) -> None:
    module = Function(lambda x: x * 2 if x.shape[2] / 2 >= 2.5 else x)
    program = torch.export.export(module, (torch.rand(2, 3, 8, 8),), dynamic_shapes=(({2: Dim.AUTO, 3: Dim.AUTO},),))
    torch.export.save(program, tmp_path / "a.pt2")
    (spec,) = mpscnn.load(tmp_path / "a.pt2").inputs.values()
    assert (spec.height, spec.width, spec.fixed_by) == (8, 8, "guard 0 (a branch that depends on sizes)")


def test_longer_conditions_than_the_limit_fix_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def branches(x: Any) -> Any:
        for k in range(300):
            x = x + 1 if (x.shape[2] * 3 + k + x.shape[0]) % 1009 == 5 else x
        return x

    module = Function(branches)
    dynamic = {0: Dim.AUTO, 2: Dim.AUTO}
    program = torch.export.export(module, (torch.rand(2, 3, 8, 5),), dynamic_shapes=((dynamic,),))
    torch.export.save(program, tmp_path / "a.pt2")
    for source in (program, tmp_path / "a.pt2"):
        net = mpscnn.load(source)
        (spec,) = net.inputs.values()
        assert len(spec.sizes) > 10_000
        x = torch.rand(2, 3, 11, 5)
        assert np.abs(net(x) - module(x).numpy()).max() < 1e-5
        with pytest.raises(ValueError, match="that the model was imported for"):
            net(np.zeros((2, 3, 333, 5), np.float32))
    monkeypatch.setattr(_sizes, "LIMIT", 10_000)
    for source in (program, tmp_path / "a.pt2"):
        net = mpscnn.load(source)
        (spec,) = net.inputs.values()
        assert (spec.height, spec.sizes) == (8, "(batch == 2)")
        assert spec.fixed_by.startswith("300 conditions (")
        with pytest.raises(ValueError, match=r"its height \(11\) is not 8"):
            net(x)


def test_asserted_conditions_are_read() -> None:
    program = torch.export.export(
        Function(lambda x: x * 2), (torch.rand(2, 3, 8, 8),), dynamic_shapes=(({2: Dim.AUTO, 3: Dim.AUTO},),)
    )
    graph = program.graph
    (x,) = (node for node in graph.nodes if node.op == "placeholder")
    height = x.meta["val"].shape[2]
    with graph.inserting_after(x):
        size = graph.call_function(torch.ops.aten.sym_size.int, (x, 2))
    size.meta["val"] = height
    with graph.inserting_after(size):
        limit = graph.call_function(torch.ops.aten.sym_constrain_range.default, (size,), {"min": 5, "max": 30})
    limit.meta["val"] = None
    with graph.inserting_after(limit):
        test = graph.call_function(torch.sym_not, (size,))
    test.meta["val"] = torch.SymBool(height.node.ne(height.node.wrap_int(9)))
    with graph.inserting_after(test):
        graph.call_function(torch.ops.aten._assert_scalar.default, (test, "not 9"))
    (spec,) = mpscnn.load(program).inputs.values()
    assert [_sizes.holds(spec.sizes, height, 8) for height in (4, 5, 8, 9, 30, 31)] == [0, 1, 1, 0, 1, 0]


# ---- the text of guards


def named(name: str, axis: int) -> str | int | None:
    return {("x", 0): "batch", ("x", 1): 3, ("x", 2): "height", ("x", 3): "width", ("ys_1", 2): 7}.get((name, axis))


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        ("L['x'].size()[2] % 2 == 0", "height % 2 == 0"),
        ("(1 + (((-3) + L['x'].size()[3]) // 2)) != 1", "1 + (-3 + width) // 2 != 1"),
        ("max(L['x'].size()[3], L['x'].size()[0]) <= 40", "max(width, batch) <= 40"),
        ("L['x'].size()[1] == 3 and L['ys'][1].size()[2] > 1", "3 == 3 and 7 > 1"),
        ("max(L['x'].size()[2]" + ", 1" * 30000 + ") == 5", "max(height" + ", 1" * 30000 + ") == 5"),
        *(
            (guard, "")
            for guard in (
                *("", "L", "L['x']", "L['x'].size()[2]", "L['x'].size()[4] == 1", "L['z'].size()[2] == 1"),
                *("L['x'].size(2)[2] == 1", "L['x'].stride()[2] == 1", "G['x'].size()[2] == 1", "height == 1 == x"),
                *("L['x'].size()[2] / 2 >= 2.5", "__import__('os').mkdir('a') == 1", "L[__import__('os')] == 1"),
                *("L['x'].size()[True] == 1", "L['x'].size()[L['x'].size()[0]] == 1", "(lambda: 1)() == 1"),
                *("L['x'].size()[2] == " + "9" * 5000, "(" * 3000 + "1" + ")" * 3000, "1 == 1\0", "\ud800 == 1"),
                *("L['x'].size()[2] == 1" + " and 1 == 1" * 10000, "not " * 2000 + "L['x'].size()[2] == 1"),
                "L" + "[0]" * 3000 + ".size()[2] == 1",
            )
        ),
    ],
)
def test_text_of_guards(guard: str, expected: str) -> None:
    assert torch_guards.condition_of(guard, named) == expected


_TEXT = """
    L['x'].size()[2] L['x'].size()[3] L['x'].size()[0] L['x'] .size() [2] [-1] L['ys'][1].size()[2] height width batch x
    1 0 -7 99999999999999999999999999 0x10 1.5 1e999 'a' True None + - * // % ** / << == != < <= > >= and or not in is
    if else min( max( ( ) , : [ ] { } lambda await yield := . ; \n # \\ f"" __import__('os') math.trunc( Mod( é \0
"""
_PIECES = _TEXT.split(" ")


@fuzz.seeds(3000)
def test_any_text_is_a_condition_or_none(seed: int) -> None:
    rng = random.Random(seed)
    if rng.random() < 0.3:
        text = " ".join(rng.choices(_PIECES, k=rng.randrange(1, 25)))
    else:
        text = _expression(rng, rng.choice((1, 2, 3, 6)))
        if rng.random() < 0.5:
            place = rng.randrange(len(text))
            text = text[:place] + rng.choice(_PIECES) + text[place + rng.randrange(4) :]
    found = torch_guards.condition_of(text, named)
    if found:
        assert _sizes.check(found) == found
        assert _sizes.reads(found) <= {"batch", "height", "width"}
        sizes = [rng.randrange(1, 9) for _ in range(3)]
        held = _sizes.holds(found, *sizes)
        assert held == all(_sizes.holds(part, *sizes) for part in _sizes.parts(found))
        words = dict(zip(("height", "width", "batch"), sizes, strict=True))
        with contextlib.suppress(ZeroDivisionError):
            assert held == bool(eval(found, {"min": min, "max": max, **words}))  # of the checked grammar


def _expression(rng: random.Random, depth: int) -> str:
    """Return a condition with operators at random."""

    def term(depth: int) -> str:
        if depth <= 0 or rng.random() < 0.2:
            word = rng.choice(("L['x'].size()[2]", "L['x'].size()[3]", "L['x'].size()[0]", "L['x'].size()[1]"))
            return rng.choice((word, word, str(rng.randrange(-3, 40)), str(rng.randrange(1 << 70))))
        if rng.random() < 0.2:
            return f"{rng.choice(('min', 'max'))}({term(depth - 1)}, {term(depth - 1)})"
        return f"({term(depth - 1)} {rng.choice(('+', '-', '*', '//', '%'))} {term(depth - 1)})"

    def condition(depth: int) -> str:
        if depth <= 1 or rng.random() < 0.3:
            return f"({term(depth)} {rng.choice(('==', '!=', '<', '<=', '>', '>='))} {term(depth)})"
        if rng.random() < 0.2:
            return f"(not {condition(depth - 1)})"
        return f"({condition(depth - 1)} {rng.choice(('and', 'or'))} {condition(depth - 1)})"

    return condition(depth)


def test_trees_in_threads() -> None:
    """Python 3.11 raises SystemError when a thread parses while a garbage collection interrupts another that does."""

    def collected(*_: Any) -> None:
        for _i in range(30):  # other threads run within a loop
            pass

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(5, 1 << 20)
    sys.setswitchinterval(1e-6)
    gc.callbacks.append(collected)
    try:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            found = list(pool.map(_sizes.syntax_tree, ["min(height, width) % 32 == 0 and batch + 1 > 2"] * 1000))
    finally:
        gc.callbacks.remove(collected)
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
    assert len({ast.dump(tree) for tree in found}) == 1
