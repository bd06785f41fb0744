# SPDX-License-Identifier: Apache-2.0
"""The limit for the time of an import, and the trace that is used instead."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mpscnn
from mpscnn.importing import time_limit, torch_module
from support import run_python


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))


def test_a_block_that_takes_too_long() -> None:
    began = time.thread_time()
    with pytest.raises(time_limit.OverdueError), time_limit.limited(0.2):
        compute(20)
    assert time.thread_time() - began < 5


def test_a_block_that_ends_in_time() -> None:
    before = threading.active_count()
    for _ in range(20):
        with time_limit.limited(30):
            compute(0.001)
    compute(0.3)  # nothing is raised later
    end = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_other_threads_are_not_counted() -> None:
    other = threading.Thread(target=compute, args=(0.6,))
    other.start()
    with time_limit.limited(0.3):
        other.join()


TRACED = """
import contextlib, sys, time
from mpscnn.importing import time_limit

with contextlib.suppress(time_limit.OverdueError), time_limit.limited(float(sys.argv[1])):
    end = time.thread_time() + 1
    while time.thread_time() < end:
        pass
sys.settrace(lambda frame, event, argument: None)
print((lambda: "called")())
"""


@pytest.mark.parametrize("seconds", ["30", "0.2"])
def test_a_trace_function_after_a_limit(seconds: str) -> None:
    """The interpreter does not go on looking for an exception, which would hang calls under a trace function."""
    assert run_python(TRACED, seconds, timeout=30).split() == ["called"]


def slow(forward: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if isinstance(x.shape[2], torch.SymInt):
                compute(20)
            return forward(x)

    return Slow()


def test_the_trace_for_all_sizes_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "FREE_SECONDS", 0.2)
    monkeypatch.setattr(torch_module, "FREE_RATIO", 0.01)
    began = time.thread_time()
    net = mpscnn.load(slow(lambda x: torch.relu(x) * 2), input_shapes=(1, 3, 6, 8))
    assert time.thread_time() - began < 15
    assert net.inputs["x"].height == 6
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 8)).astype(np.float32)
    assert np.array_equal(net(x), np.maximum(x, 0) * 2)
    limit = r"a limit of time: .* takes over \d+ s; {\"free_size\": True} has none"
    assert re.search(limit, net.inputs["x"].fixed_by), net.inputs["x"].fixed_by
    assert np.array_equal(net(x[:, :, 1:]), np.maximum(x[:, :, 1:], 0) * 2)  # reads the module again


def test_a_trace_that_is_late_is_given_up_early() -> None:
    """With symbols, each of 20 steps takes 1.5 seconds: after a quarter of the limit, it is known to be too short."""

    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20):
                compute(1.5 if isinstance(x.shape[2], torch.SymInt) else 0)
                x = torch.relu(x) * 2
            return x

    began = time.thread_time()
    net = mpscnn.load(Slow(), input_shapes=(1, 3, 6, 8))
    assert time.thread_time() - began < 7  # of 10
    assert "a limit of time" in net.inputs["x"].fixed_by


def test_an_import_with_both_traces_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "TOTAL_SECONDS", 1)
    began = time.thread_time()
    net = mpscnn.load(slow(lambda x: torch.relu(x) * 2), input_shapes=(1, 3, 6, 8))
    assert time.thread_time() - began < 8
    assert "a limit of time" in net.inputs["x"].fixed_by
    monkeypatch.setattr(torch_module, "TOTAL_SECONDS", 16)
    assert torch_module._free_seconds(5, 6) == 10
    assert torch_module._free_seconds(9, 10) == 0


def test_errors_of_code_that_was_stopped() -> None:
    def half_cleaned_up(seconds: float) -> None:
        with time_limit.limited(seconds):
            try:
                compute(1)
            finally:
                raise AssertionError("half of the cleaning up")

    with pytest.raises(time_limit.OverdueError):
        half_cleaned_up(0.1)
    with pytest.raises(AssertionError):
        half_cleaned_up(30)


def test_the_limit_follows_the_trace_for_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine imports like a fast one."""

    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            compute(1.5)
            return torch.relu(x)

    monkeypatch.setattr(torch_module, "FREE_SECONDS", 0.2)
    net = mpscnn.load(Slow(), input_shapes=(1, 3, 6, 8))
    assert net.inputs["x"].height is None


def test_an_operator_that_is_refused_for_all_sizes_only() -> None:
    """Only the trace for all sizes has it."""

    class Free(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.logcumsumexp(2) if isinstance(x.shape[2], torch.SymInt) else torch.relu(x)

    net = mpscnn.load(Free(), input_shapes=(1, 3, 6, 8))
    assert net.inputs["x"].fixed_by
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 8)).astype(np.float32)
    assert np.array_equal(net(x), np.maximum(x, 0))


def traces(monkeypatch: pytest.MonkeyPatch, module: nn.Module) -> tuple[int, str]:
    """Return how often the module was traced with symbols, and which node fixed its sizes."""
    count = 0
    export = torch.export.export

    def counted(*args: Any, **options: Any) -> torch.export.ExportedProgram:
        nonlocal count
        count += "dynamic_shapes" in options
        return export(*args, **options)

    monkeypatch.setattr(torch.export, "export", counted)
    net = mpscnn.load(module.eval(), input_shapes=(1, 4, 6, 8))
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 8)).astype(np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(net(x), module(torch.from_numpy(x)).numpy(), atol=1e-5)
    return count, net.inputs["x"].fixed_by


class Products(nn.Module):
    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.pooled = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x if self.pooled is None else nn.functional.adaptive_avg_pool2d(x, self.pooled)).flatten(2)
        return y @ y.transpose(1, 2)


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, 3, 3, stride=2), nn.Flatten(), nn.Linear(18, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_one_trace_if_a_layer_fixes_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that is imported for one size fixes the sizes of a trace for all sizes, too."""
    count, fixed_by = traces(monkeypatch, Products(None))
    assert (count, fixed_by) == (1, "matmul (aten.matmul)")
    count, fixed_by = traces(monkeypatch, Flat())
    assert (count, fixed_by) == (0, "layers.2 (aten.linear)")  # it reads no size


class Strips(nn.Module):
    """Strips of the image side by side as channels, as i-RevNet's downscaling takes them."""

    def __init__(self, by_unbind: bool) -> None:
        super().__init__()
        self.by_unbind = by_unbind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.interpolate(x, scale_factor=5.0)
        parts = x.unbind(3) if self.by_unbind else x.split(2, dim=3)
        return sum((part.flatten(2).mean(2) * (place % 3 / 40) for place, part in enumerate(parts)), x.mean((2, 3)))


@pytest.mark.parametrize(("by_unbind", "name"), [(False, "split"), (True, "unbind")])
def test_one_trace_if_the_number_of_parts_fixes_the_sizes(
    by_unbind: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, fixed_by = traces(monkeypatch, Strips(by_unbind))
    assert (count, fixed_by) == (1, f"{name} (aten.{name})")


def test_one_trace_if_an_operator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.logcumsumexp(torch.relu(x), 2)

    calls = []
    export = torch.export.export
    counted = lambda *args, **options: calls.append(options) or export(*args, **options)  # noqa: E731
    monkeypatch.setattr(torch.export, "export", counted)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="logcumsumexp"):
        mpscnn.load(Refused(), input_shapes=(1, 4, 6, 8))
    assert sum("dynamic_shapes" in options for options in calls) == 1


def test_two_traces_if_such_a_layer_has_one_size_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a global pooling all sizes are the same."""
    assert traces(monkeypatch, Products(1)) == (2, "")


def test_the_static_trace_has_tensors_of_its_own() -> None:
    """torch.export marks the extents of the tensors that it is given, also where it then fails."""

    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if isinstance(x.shape[2], torch.SymInt):
                torch._check(x.shape[2] == 6)
                raise RuntimeError("not for all sizes")
            return torch.relu(x)

    x = torch.randn(2, 3, 6, 8)
    for _ in range(2):
        net = mpscnn.load(Failing(), example_inputs=(x,))
        assert np.array_equal(net(x), torch.relu(x).numpy())
    assert not [name for name in vars(x) if "dynamo" in name]


def test_the_number_of_images_is_not_taken_from_the_example() -> None:
    for shape in ((1, 3, 6, 8), (2, 3, 6, 8)):
        net = mpscnn.load(nn.Sequential(Scaled()), input_shapes=shape)
        for batch in (1, 2, 5):  # another one is read again
            x = np.random.default_rng(batch).normal(size=(batch, *shape[1:])).astype(np.float32)
            np.testing.assert_array_equal(net(x), batch * x)
        fixed = mpscnn.load(nn.Sequential(Scaled()), input_shapes=shape, options={"free_size": False})
        with pytest.raises(ValueError, match=f"a batch of 3, .* unless batch == {shape[0]}"):
            fixed(np.zeros((3, *shape[1:]), np.float32))


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0]
