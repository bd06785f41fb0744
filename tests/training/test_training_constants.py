# SPDX-License-Identifier: Apache-2.0
"""Values of a model that no training kernel has: they are in the state_dict, so that PyTorch loads it unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from training_support import Theirs, arrays, assert_same_parameters, randomize, sgd

import mpscnn
from support import random

SHAPE = (2, 3, 7, 5)


class Network(nn.Module):
    """PReLU with one slope and with one per channel; a head that is not an output; buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)
        self.one, self.each, self.behind = nn.PReLU(), nn.PReLU(4), nn.PReLU(4)
        self.unused = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.register_buffer("shift", torch.full((4, 1, 1), 0.25, dtype=torch.float64))
        self.register_buffer("places", torch.arange(5))
        self.register_buffer("passing", torch.ones(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.behind(self.norm(self.each(self.first(x))))
        return self.last(self.one(x + self.get_buffer("shift").float()))


FROZEN = ["one", "each", "behind", "unused"]


def module_of(seed: int = 0) -> Network:
    module = randomize(Network(), seed)
    assert isinstance(module, Network)
    module.unused[1].num_batches_tracked.fill_(9)  # type: ignore[operator, union-attr]
    return module


def trainer_of(module: nn.Module, **options: Any) -> mpscnn.Trainer:
    given = {"input_shapes": SHAPE, "loss": "mean_squared_error", "optimizer": sgd(), "frozen": FROZEN, **options}
    return mpscnn.Trainer(module, **given)


@pytest.mark.parametrize("how", ["argument", "requires_grad"])
def test_pytorch_takes_the_state_dict(how: str, tmp_path: Path) -> None:
    module = module_of()
    for name in FROZEN:
        module.get_submodule(name).requires_grad_(False)
    before = arrays(module)
    trainer = trainer_of(module, frozen=FROZEN if how == "argument" else [])
    theirs = Theirs(module, nn.functional.mse_loss)
    for seed in range(3):
        x, labels = random(SHAPE, seed=seed), random((2, 2, 7, 5), seed=50 + seed)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) <= 1e-5 * abs(expected)
    found = trainer.state_dict()
    places = found.pop("places")
    np.testing.assert_array_equal(places, np.arange(5))
    assert found["unused.1.num_batches_tracked"] == 9
    del before["places"], module.places
    assert_same_parameters(found, module, before)
    trainer.save(tmp_path)
    other = module_of(1)
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"), strict=True)
    with torch.no_grad():
        np.testing.assert_allclose(trainer.network()(x), other.eval()(torch.from_numpy(x)), rtol=1e-4, atol=1e-5)
    trainer.load(tmp_path)
    trainer_of(other).load(tmp_path)


def test_they_are_copies() -> None:
    module = module_of()
    trainer = trainer_of(module)
    found = trainer.state_dict()
    for value in found.values():
        value[...] = 0
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.zero_()
    again = trainer.state_dict()
    assert again["one.weight"] != 0
    assert (again["places"] == np.arange(5)).all()
    assert (again["unused.0.weight"] != 0).all()


def test_other_values_are_refused() -> None:
    """A kernel's values are constant; missing values stay unchanged, as in older checkpoints."""
    module = module_of()
    trainer = trainer_of(module)
    expected = trainer.state_dict()
    given = trainer.state_dict()
    given["first.weight"] += 1
    given["one.weight"] += 0.5
    match = r'^state_dict: "one\.weight" is not what it was in the model, .*: make a new Trainer\.$'
    with pytest.raises(NotImplementedError, match=match):
        trainer.load_state_dict(given)
    given["one.weight"] = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match=r'^state_dict: "one\.weight" has shape \(4,\), the model has \(1,\)\.$'):
        trainer.load_state_dict(given)
    np.testing.assert_array_equal(trainer.state_dict()["first.weight"], expected["first.weight"])
    del given["one.weight"], given["places"]
    trainer.load_state_dict(given)
    found = trainer.state_dict()
    assert found["one.weight"] == expected["one.weight"]
    np.testing.assert_array_equal(found["first.weight"], expected["first.weight"] + 1)


def test_of_a_list_of_layers() -> None:
    layers: list[Any] = [("conv", "Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 1}), ("act", "PReLU")]
    for slopes in (np.full(1, 0.25, np.float32), np.arange(4, dtype=np.float32)):
        trainer = mpscnn.Trainer(
            layers, {"act.weight": slopes}, input_shapes=SHAPE, frozen=["act"], loss="mean_squared_error"
        )
        trainer.step(random(SHAPE), random((2, 4, 7, 5)))
        np.testing.assert_array_equal(trainer.state_dict()["act.weight"], slopes)
