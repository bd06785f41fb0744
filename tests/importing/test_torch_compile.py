# SPDX-License-Identifier: Apache-2.0
"""mpscnn as a backend of torch.compile."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import mpscnn
from mpscnn.importing import torch_compile

ROOT = Path(__file__).resolve().parents[2]


class Net(nn.Module):
    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.last = nn.Linear(channels, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = F.relu(self.norm(self.first(x)))
        return {"features": y, "scores": self.last(y.mean((2, 3)))}


class Broken(nn.Module):
    """Convolutions around an operator that has no kernel, and another behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.fft.rfft2(F.relu(self.first(x))).abs()
        y = self.last(y) * 2
        return torch.relu(torch.logcumsumexp(y, 2)) + 1


@pytest.fixture(autouse=True)
def networks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of kernels of each network that is made, so that a silent fallback fails."""
    torch._dynamo.reset()
    made: list[int] = []
    read = torch_compile.torch_module.read

    def counted(*args: Any, **options: Any) -> Any:
        graph = read(*args, **options)
        made.append(len(graph.nodes))
        return graph

    monkeypatch.setattr(torch_compile.torch_module, "read", counted)
    return made


def compiled(module: nn.Module, **options: Any) -> Any:
    return torch.compile(module.eval(), backend=torch_compile.backend, options=options or None)


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_the_entry_point_is_the_backend() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("tomllib is part of Python from 3.11 on")
    tomllib = importlib.import_module("tomllib")
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, name = entry["mpscnn"].partition(":")
    assert getattr(importlib.import_module(module), name) is torch_compile.backend


def test_a_whole_module(networks: list[int]) -> None:
    torch.manual_seed(0)
    module = Net()
    net = compiled(module, fallback=False)
    with torch.no_grad():
        for batch in (2, 5):
            x = torch.randn(batch, 3, 16, 12)
            found, expected = net(x), module(x)
            assert list(found) == ["features", "scores"]
            for name, value in found.items():
                assert_same(value, expected[name])
    assert networks
    assert min(networks) >= 3


def test_changed_weights_are_read_again() -> None:
    torch.manual_seed(0)
    module, x = Net(), torch.randn(1, 3, 8, 8)
    net = compiled(module, fallback=False)
    with torch.no_grad():
        before = net(x)["scores"]
        module.last.weight.mul_(2)
        module.norm.running_mean.add_(0.5)
        assert_same(net(x)["scores"], module(x)["scores"])
        assert not torch.equal(net(x)["scores"], before)


def test_what_has_no_kernel_stays_with_pytorch(networks: list[int]) -> None:
    torch.manual_seed(0)
    module, x = Broken().eval(), torch.randn(2, 3, 8, 8)
    net = compiled(module)
    with torch.no_grad():
        with pytest.warns(RuntimeWarning, match=r"PyTorch computes the nodes without a kernel.*\n.*fft_rfft2|_fft_r2c"):
            found = net(x)
        assert_same(found, module(x))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same(net(x + 1), module(x + 1))
    assert len(networks) >= 2


def test_raises_instead() -> None:
    net = compiled(Broken(), fallback=False)
    with torch.no_grad(), pytest.raises(mpscnn.UnsupportedOperatorError, match="fft"):
        net(torch.randn(2, 3, 8, 8))


def test_breaks_of_the_graph(networks: list[int]) -> None:
    """Python code that TorchDynamo cannot trace is between two graphs."""

    class Printing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.relu(self.first(x))
            torch._dynamo.graph_break()
            return self.last(y).sigmoid()

    torch.manual_seed(0)
    module, x = Printing().eval(), torch.randn(1, 3, 9, 9)
    with torch.no_grad():
        assert_same(compiled(module, fallback=False)(x), module(x))
    assert len(networks) == 2


def test_gradients_stay_with_pytorch() -> None:
    module, x = Net().eval(), torch.randn(1, 3, 8, 8)
    net = compiled(module)
    with pytest.warns(RuntimeWarning, match="gradients are needed"):
        net(x)["scores"].sum().backward()
    assert module.last.weight.grad is not None
    with pytest.raises(RuntimeError, match="gradients are needed"):
        compiled(module, fallback=False)(x)


@pytest.mark.parametrize(("options", "message"), [({"size": 1}, "size is none of"), ({"fallback": 1}, "is not a bool")])
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message), torch.no_grad():
        compiled(Net(), **options)(torch.randn(1, 3, 8, 8))
