# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of the Trainer: a list of layers as a module of PyTorch, and both trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import mpscnn
from support import assert_close, random

Array = NDArray[Any]
LossOfTorch = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
RATE, MOMENTUM = 0.05, 0.9


class Layers(nn.Module):
    """A list of layers for `mpscnn.Trainer`, in PyTorch."""

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__()
        self.rows: list[tuple[str, str, list[str], dict[str, Any]]] = []
        last = "input"
        for name, kind, *rest in layers:
            options = dict(rest[0]) if rest else {}
            self.rows.append((name, kind, options.pop("inputs", [last]), options))
            if hasattr(nn, kind):
                *folders, last = name.split(".")
                parent: nn.Module = self
                for folder in folders:
                    if not hasattr(parent, folder):
                        parent.add_module(folder, nn.Module())
                    parent = parent.get_submodule(folder)
                parent.add_module(last, getattr(nn, kind)(**options))
            last = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {"input": x}
        for name, kind, names, options in self.rows:
            sources = [values[source] for source in names]
            if hasattr(nn, kind):
                x = self.get_submodule(name)(*sources)
            elif kind == "Concat":
                x = torch.cat(sources, **{"dim": 1, **options})
            else:
                x = sources[0]
                for other in sources[1:]:
                    x = {"Add": torch.add, "Subtract": torch.sub, "Multiply": torch.mul}[kind](x, other)
            values[name] = x
        return x


def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """Draw parameters and statistics at random: ones and zeros would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if value.dtype != torch.float32:
                continue
            drawn = torch.randn(value.shape, generator=generator)
            if name.endswith("running_var"):
                value.copy_(drawn.abs() + 0.5)
            elif value.ndim > 1:
                value.copy_(drawn / value[0].numel() ** 0.5)
            else:
                value.copy_(drawn / 4 + (1 if name.endswith("weight") else 0))
    return module


def arrays(module: nn.Module) -> dict[str, Array]:
    """Return copies of all of a module's parameters and buffers."""
    return {name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()}


def sgd(rate: float = RATE, momentum: float = MOMENTUM) -> mpscnn.Optimizer:
    return mpscnn.OptimizerStochasticGradientDescent(rate, momentum_scale=momentum)


def sgd_of_torch(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), RATE, momentum=MOMENTUM)


class Theirs:
    """A PyTorch module in training, in float64."""

    def __init__(
        self,
        module: nn.Module,
        loss: LossOfTorch = nn.functional.cross_entropy,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd_of_torch,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.module, self.loss, self.dtype = module.to(dtype).train(), loss, dtype
        self.optimizer = optimizer(self.module)

    def tensor(self, array: Array) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor.long()

    def step(self, x: Array, labels: Array) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(self.module(self.tensor(x)), self.tensor(labels))
        loss.backward()
        self.optimizer.step()
        return loss.item()


def assert_same_parameters(
    found: Mapping[str, Array], module: nn.Module, before: Mapping[str, Array], relative: float = 1e-4
) -> None:
    """Compare the changes of each parameter with PyTorch's, relative to the largest change of that parameter.

    Allows for rounding of the parameter itself, 6e-8 in each step.
    """
    expected = arrays(module)
    assert set(found) == set(expected)
    for name, theirs in expected.items():
        assert found[name].shape == theirs.shape, name
        if name.endswith("num_batches_tracked"):
            assert found[name].dtype == np.int64
            assert found[name] == theirs
            continue
        assert found[name].dtype == np.float32, name
        change = theirs.astype(np.float64) - before[name]
        error = np.abs(found[name] - theirs.astype(np.float64)).max(initial=0)
        bound = relative * np.abs(change).max(initial=0) + 1e-6 * np.abs(theirs).max(initial=0) + 1e-9
        assert error <= bound, f"{name}: {error} > {bound}"


def output_shape(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    with torch.no_grad():
        return tuple(module.eval()(torch.zeros(shape)).shape)


def check(
    layers: Sequence[Any],
    shape: tuple[int, ...],
    *,
    loss: Any = "mean_squared_error",
    loss_of_torch: LossOfTorch = nn.functional.mse_loss,
    labels: Array | None = None,
    steps: int = 3,
    relative: float = 1e-4,
    **options: Any,
) -> mpscnn.Trainer:
    """Compare losses, parameters and inference after steps of SGD with momentum with PyTorch's in float64.

    Default labels are random numbers.
    """
    module = randomize(Layers(layers))
    before, result = arrays(module), output_shape(module, shape)
    trainer = mpscnn.Trainer(layers, module.state_dict(), input_shapes=shape, loss=loss, optimizer=sgd(), **options)
    theirs = Theirs(module, loss_of_torch)
    for seed in range(steps):
        x = random(shape, seed=seed)
        wanted = random(result, seed=50 + seed) if labels is None else labels
        expected = theirs.step(x, wanted)
        assert abs(trainer.step(x, wanted).loss - expected) <= 1e-5 * abs(expected), seed
    found = trainer.state_dict()
    assert_same_parameters(found, module, before, relative)
    assert any(np.abs(found[name] - before[name]).max() > 1e-4 for name, _ in module.named_parameters())
    with torch.no_grad():
        expected_values = module.eval()(theirs.tensor(x)).numpy()
    assert_close(trainer.network()(x), expected_values, 1e-4)
    return trainer
