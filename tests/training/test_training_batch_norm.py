# SPDX-License-Identifier: Apache-2.0
"""Running statistics of batch normalization: each layer's momentum, counted batches, factors without statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_support import Layers, Theirs, arrays, assert_same_parameters, randomize, sgd

import mpscnn
from mpscnn.loading import read
from support import random

SHAPE, OUTPUT = (3, 3, 7, 6), (3, 2, 7, 6)
MOMENTA: list[float | None] = [0.3, None, 0.0, 1.0, 0.1]


def module_of(momenta: list[float | None] = MOMENTA) -> nn.Sequential:
    """Return a normalization for each momentum, some in a submodule, with and without gamma and beta."""
    parts: list[nn.Module] = [nn.Conv2d(3, 4, 3, padding=1)]
    for i, momentum in enumerate(momenta):
        norm: nn.Module = nn.BatchNorm2d(4, momentum=momentum, affine=i != 1 or len(momenta) < 5)
        norm = nn.Sequential(nn.Conv2d(4, 4, 1), norm) if i % 2 else norm
        parts += [norm, nn.ReLU() if i % 2 else nn.Tanh()]
    return nn.Sequential(*parts, nn.Conv2d(4, 2, 1))


def compare(trainer: mpscnn.Trainer, theirs: Theirs, before: dict[str, Any], seeds: Any = range(3)) -> None:
    for seed in seeds:
        x, labels = random(SHAPE, seed=seed), random(OUTPUT, seed=50 + seed)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) <= 1e-5 * abs(expected)
    assert_same_parameters(trainer.state_dict(), theirs.module, before)


def counted(module: nn.Module, count: int) -> nn.Module:
    """Return the module with `count` batches in its running statistics."""
    for name, value in module.named_buffers():
        if name.endswith("num_batches_tracked"):
            value.fill_(count)
    return module


@pytest.mark.parametrize("count", [0, 7])
def test_of_a_module(count: int) -> None:
    module = counted(randomize(module_of()), count)
    before = arrays(module)
    trainer = mpscnn.Trainer(module, input_shapes=SHAPE, loss="mean_squared_error", optimizer=sgd())
    assert trainer.state_dict()["1.num_batches_tracked"] == count
    compare(trainer, Theirs(module, nn.functional.mse_loss), before)
    assert trainer.state_dict()["1.num_batches_tracked"] == count + 3


@pytest.mark.parametrize("momentum", [0, 0.25])
def test_an_argument_overrides_them(momentum: float) -> None:
    module = randomize(module_of())
    before = arrays(module)
    options: dict[str, Any] = {"loss": "mean_squared_error", "optimizer": sgd(), "batch_norm_momentum": momentum}
    trainer = mpscnn.Trainer(module, input_shapes=SHAPE, **options)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = momentum
    compare(trainer, Theirs(module, nn.functional.mse_loss), before)


def test_of_a_functional_call() -> None:
    """A functional call with buffers: momentum is an argument of the call."""

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 1)
            self.norm = nn.Module()
            self.norm.register_buffer("running_mean", torch.zeros(2))
            self.norm.register_buffer("running_var", torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean, variance = self.norm.get_buffer("running_mean"), self.norm.get_buffer("running_var")
            return nn.functional.batch_norm(self.conv(x), mean, variance, training=self.training, momentum=0.7)

    module = randomize(Network())
    with pytest.raises(NotImplementedError, match=r'"norm\.running_mean", "norm\.running_var"'):
        mpscnn.Trainer(module, input_shapes=SHAPE, loss="mean_squared_error")
    graph = read(module, input_shapes=SHAPE)
    assert [node.training for node in graph if node.kernel == "BatchNormalization"] == [
        {"statistics": "batch", "momentum": 0.7}
    ]


LAYERS: list[Any] = [
    ("conv", "Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": 1}),
    ("a.norm", "BatchNorm2d", {"num_features": 4, "momentum": 0.6}),
    ("relu", "ReLU"),
    ("b.norm", "BatchNorm2d", {"num_features": 4, "momentum": None}),
    ("c.norm", "BatchNorm2d", {"num_features": 4}),
    ("last", "Conv2d", {"in_channels": 4, "out_channels": 2, "kernel_size": 1}),
]


def trainer_of(module: nn.Module, **options: Any) -> mpscnn.Trainer:
    given = {"input_shapes": SHAPE, "loss": "mean_squared_error", "optimizer": sgd(), **options}
    return mpscnn.Trainer(LAYERS, module.state_dict(), **given)


@pytest.mark.parametrize("frozen", [[], ["a", "b.norm"]], ids=str)
def test_of_a_list_of_layers(frozen: list[str]) -> None:
    module = counted(randomize(Layers(LAYERS)), 2)
    before, trainer = arrays(module), trainer_of(module, frozen=frozen)
    for name in frozen:
        module.get_submodule(name).requires_grad_(False)
    compare(trainer, Theirs(module, nn.functional.mse_loss), before)


@pytest.mark.parametrize(
    ("momentum", "kind", "match"),
    [
        (1.5, ValueError, r'^node "a\.norm": momentum \(1\.5\) is not between 0 and 1\.$'),
        (float("nan"), ValueError, r'^node "a\.norm": momentum \(nan\) is not between 0 and 1\.$'),
        ("1", mpscnn.InvalidModelError, r'layer "a\.norm", a BatchNorm2d: momentum \(\'1\'\) is not a number or None'),
    ],
)
def test_wrong_momenta(momentum: Any, kind: type[Exception], match: str) -> None:
    layers = [(name, of, {**rest[0], "momentum": momentum}) if name == "a.norm" else (name, of, *rest)
              for name, of, *rest in LAYERS]  # fmt: skip
    with pytest.raises(kind, match=match):
        mpscnn.Trainer(layers, input_shapes=SHAPE)
    if kind is ValueError:
        mpscnn.Trainer(layers, input_shapes=SHAPE, batch_norm_momentum=0.1)


# ---- graphs


def test_of_an_exported_program() -> None:
    module = randomize(module_of([0.3, 0.9]))
    graph = read(torch.export.export(module.eval(), (torch.zeros(SHAPE),)))
    before = arrays(module)
    trainer = mpscnn.Trainer(graph, loss="mean_squared_error", optimizer=sgd())
    theirs = Theirs(module, nn.functional.mse_loss)
    for seed in range(3):
        x, labels = random(SHAPE, seed=seed), random(OUTPUT, seed=50 + seed)
        theirs.step(x, labels)
        trainer.step(x, labels)
    found, expected = trainer.state_dict(), arrays(module)
    for name in ("1.running_mean", "1.running_var", "3.1.running_mean", "3.1.running_var"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)
        assert np.abs(found[name] - before[name]).max() > 0.01


@pytest.mark.parametrize("momentum", [None, 0.0])
def test_a_mean_over_all_batches_is_not_in_an_exported_program(momentum: float | None) -> None:
    module = randomize(module_of([momentum]))
    graph = read(torch.export.export(module.eval(), (torch.zeros(SHAPE),)))
    match = r'^node "1": a momentum of 0 .* momentum=None, too: give batch_norm_momentum, or the module itself\.$'
    with pytest.raises(NotImplementedError, match=match):
        mpscnn.Trainer(graph, loss="mean_squared_error")
    mpscnn.Trainer(graph, loss="mean_squared_error", batch_norm_momentum=0.1).step(random(SHAPE), random(OUTPUT)).wait()


@pytest.mark.parametrize("momentum", [None, 0.75])
def test_of_onnx(momentum: float | None) -> None:
    """ONNX's momentum weights the old value, not the new one."""
    import onnx
    from onnx import helper, numpy_helper

    names = ("scale", "bias", "mean", "variance")
    weights = [numpy_helper.from_array(np.full(3, i + 1, np.float32), name) for i, name in enumerate(names)]
    attributes = {} if momentum is None else {"momentum": momentum}
    node = helper.make_node("BatchNormalization", ["x", *names], ["y"], **attributes)
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", *SHAPE[1:]]) for name in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], weights))
    (made,) = read(model)
    assert made.training == {"statistics": "batch", "momentum": 0.1 if momentum is None else 0.25}


def test_of_a_file(tmp_path: Path) -> None:
    """A normalization that is not folded keeps its momentum; invalid values make the file invalid."""
    module = nn.Sequential(nn.BatchNorm2d(3, momentum=0.7), nn.Conv2d(3, 2, 1)).eval()
    mpscnn.load(module, input_shapes=SHAPE, mean=0.5).save(tmp_path / "net.mpscnn")
    found = {node.name: node.training for node in read(tmp_path / "net.mpscnn")}
    assert {"statistics": "none"} in found.values()
    assert {"statistics": "batch", "momentum": 0.7} in found.values()
    raw = (tmp_path / "net.mpscnn").read_bytes()
    for was, now in ((b'\\"none\\"', b'\\"nine\\"'), (b'\\"momentum\\"', b'\\"momentom\\"')):
        assert was in raw
        (tmp_path / "wrong.mpscnn").write_bytes(raw.replace(was, now))
        with pytest.raises(mpscnn.InvalidModelError, match=r": training \{"):
            read(tmp_path / "wrong.mpscnn")


def test_shapes_of_a_file(tmp_path: Path) -> None:
    """A file with the shape of its input needs no input_shapes."""
    mpscnn.load(nn.Conv2d(3, 2, 1).eval(), input_shapes=SHAPE).save(tmp_path / "net.mpscnn")
    trainer = mpscnn.Trainer(read(tmp_path / "net.mpscnn"), loss="mean_squared_error")
    trainer.step(random(SHAPE), random((SHAPE[0], 2, *SHAPE[2:]))).wait()


# ---- checkpoints


def test_a_training_that_goes_on(tmp_path: Path) -> None:
    """The mean over all batches is that of an uninterrupted training, and PyTorch's."""
    module = counted(randomize(Layers(LAYERS)), 4)
    before, first = arrays(module), trainer_of(module)
    theirs = Theirs(module, nn.functional.mse_loss)
    compare(first, theirs, before, range(2))
    first.save(tmp_path)
    again = trainer_of(randomize(Layers(LAYERS), 1))
    again.load(tmp_path)
    assert again.state_dict()["b.norm.num_batches_tracked"] == 6
    compare(again, theirs, before, range(2, 4))


def test_counts_in_a_state_dict() -> None:
    module = counted(randomize(Layers(LAYERS)), 5)
    trainer = trainer_of(module)
    given = dict(module.state_dict())
    given["a.norm.num_batches_tracked"] = torch.tensor(11)
    del given["c.norm.num_batches_tracked"]
    trainer.step(random(SHAPE), random(OUTPUT))
    trainer.load_state_dict(given)
    found = trainer.state_dict()
    assert [found[f"{name}.norm.num_batches_tracked"] for name in "abc"] == [11, 5, 6]
    for wrong in (np.array(-1), np.array(1.5), np.array([1, 2])):
        given["a.norm.num_batches_tracked"] = wrong
        match = r'^state_dict: "a\.norm\.num_batches_tracked" \(.*\) is not an integer from 0 on\.$'
        with pytest.raises(ValueError, match=match):
            trainer.load_state_dict(given)
    assert trainer.state_dict()["a.norm.num_batches_tracked"] == 11


# ---- factors alone


class Scaled(nn.Module):
    """Constant factors and summands of channels, e.g. to normalize images by a known mean and deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 1)
        self.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3])[:, None, None])
        self.register_buffer("deviation", torch.tensor([0.5, 0.7, 0.9])[:, None, None])
        self.register_buffer("factor", torch.tensor([1.5, -0.5, 0.0, 2.0])[:, None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x - self.get_buffer("mean")) / self.get_buffer("deviation")
        return self.last(torch.relu(self.conv(x) * self.get_buffer("factor")))


@pytest.mark.parametrize("of", ["module", "graph"])
def test_factors_of_channels_take_no_statistics(of: str) -> None:
    """They use the same kernel as batch normalization for inference."""
    module = Scaled()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(random(tuple(parameter.shape)) / 5))
    before = {name: value for name, value in arrays(module).items() if name in dict(module.named_parameters())}
    model: Any = module if of == "module" else read(module.eval(), input_shapes=SHAPE)
    trainer = mpscnn.Trainer(model, input_shapes=SHAPE, loss="mean_squared_error", optimizer=sgd())
    theirs = Theirs(module, nn.functional.mse_loss)
    for seed in range(3):
        x, labels = random(SHAPE, seed=seed), random(OUTPUT, seed=50 + seed)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) <= 1e-5 * abs(expected)
    found, expected_values = trainer.state_dict(), arrays(module)
    for name in before:
        value = found[name]
        np.testing.assert_allclose(value, expected_values[name], rtol=1e-4, atol=1e-6, err_msg=name)
        assert np.abs(value - before[name]).max() > 1e-4
    with torch.no_grad():
        inference = module.eval()(theirs.tensor(x)).numpy()
    np.testing.assert_allclose(trainer.network()(x), inference, rtol=1e-4, atol=1e-5)


def test_instance_normalization_with_statistics_of_a_graph() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.InstanceNorm2d(4, affine=True, track_running_stats=True)).eval()
    graph = read(torch.export.export(module, (torch.zeros(SHAPE),)))
    match = (
        r'^MPS has no gradient of "1" \(an instance normalization with running statistics, which .* in training\)\.$'
    )
    with pytest.raises(NotImplementedError, match=match):
        mpscnn.Trainer(graph, loss="mean_squared_error")
