# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: reading by PyTorch, resumed trainings, and invalid files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import nn
from training_support import Layers, randomize

import mpscnn
from mpscnn.training import checkpoint
from support import random

SHAPE = (4, 3, 7, 6)
LABELS = np.array([0, 4, 2, 3])
LAYERS: list[Any] = [
    ("a.conv", "Conv2d", {"in_channels": 3, "out_channels": 8, "kernel_size": (3, 2), "bias": False}),
    ("a.bn", "BatchNorm2d", {"num_features": 8}),
    ("relu", "ReLU"),
    ("group", "Conv2d", {"in_channels": 8, "out_channels": 16, "kernel_size": 3, "groups": 2, "padding": 1}),
    ("norm", "GroupNorm", {"num_groups": 4, "num_channels": 16}),
    ("depth", "Conv2d", {"in_channels": 16, "out_channels": 16, "kernel_size": 2, "groups": 16}),
    ("up", "ConvTranspose2d", {"in_channels": 16, "out_channels": 8, "kernel_size": (2, 3), "groups": 2, "stride": 2}),
    ("instance", "InstanceNorm2d", {"num_features": 8, "affine": True}),
    ("drop", "Dropout", {"p": 0.3}),
    ("pool", "AdaptiveAvgPool2d", {"output_size": (2, 3)}),
    ("flat", "Flatten"),
    ("fc", "Linear", {"in_features": 48, "out_features": 5}),
]
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
OPTIMIZERS: dict[str, Callable[[], mpscnn.Optimizer]] = {
    "momentum": lambda: mpscnn.OptimizerStochasticGradientDescent(0.02, momentum_scale=0.9),
    "nesterov": lambda: mpscnn.OptimizerStochasticGradientDescent(0.02, momentum_scale=0.9, use_nesterov_momentum=True),
    "plain": lambda: mpscnn.OptimizerStochasticGradientDescent(0.02),
    "rmsprop": lambda: mpscnn.OptimizerRMSProp(0.01),
    "adam": lambda: mpscnn.OptimizerAdam(0.01),
    "amsgrad": lambda: mpscnn.OptimizerAdam(0.01, amsgrad=True),
}


def trainer_of(optimizer: str = "momentum", seed: int = 0, layers: list[Any] = LAYERS, **options: Any) -> Any:
    weights = randomize(Layers(layers), seed).state_dict()
    options = {"input_shapes": SHAPE, "optimizer": OPTIMIZERS[optimizer](), **options}
    return mpscnn.Trainer(layers, weights, **options)


def train(trainer: mpscnn.Trainer, first: int, last: int) -> list[float]:
    return [step.loss for step in [trainer.step(random(SHAPE, seed=seed), LABELS) for seed in range(first, last)]]


def assert_equal(a: dict[str, NDArray[Any]], b: dict[str, NDArray[Any]]) -> None:
    assert set(a) == set(b)
    for name, value in a.items():
        assert value.dtype == b[name].dtype
        np.testing.assert_array_equal(value, b[name], err_msg=name)


# ---- with PyTorch


def test_pytorch_reads_the_model(tmp_path: Path) -> None:
    trainer = trainer_of()
    train(trainer, 0, 3)
    trainer.save(tmp_path / "made")
    module = Layers(LAYERS)
    loaded = safetensors.torch.load_file(tmp_path / "made" / MODEL)
    module.load_state_dict(loaded, strict=True)
    assert set(loaded) == set(module.state_dict())
    assert module.get_submodule("a.bn").num_batches_tracked == 3
    x = random((3, *SHAPE[1:]), seed=9)
    with torch.no_grad():
        np.testing.assert_allclose(trainer.network()(x), module.eval()(torch.from_numpy(x)), atol=1e-5)
    assert_equal(safetensors.numpy.load_file(tmp_path / "made" / MODEL), trainer.state_dict())
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == [MODEL, OPTIMIZER]


@pytest.mark.parametrize("kind", ["tensors", "parameters", "float64", "bfloat16", "float16", "arrays"])
def test_parameters_from_pytorch(kind: str) -> None:
    module = randomize(Layers(LAYERS), seed=5)
    given: Any = module.state_dict()
    if kind == "parameters":
        given = {**given, **dict(module.named_parameters())}  # these require gradients
    elif kind == "arrays":
        given = {name: value.numpy() for name, value in given.items() if "tracked" not in name}
    elif kind != "tensors":
        given = {name: value.to(getattr(torch, kind)) for name, value in given.items()}
    trainer = trainer_of()
    train(trainer, 0, 2)
    trainer.load_state_dict(given)
    for name, value in trainer.state_dict().items():
        if "tracked" not in name:
            expected = given[name] if kind == "arrays" else given[name].detach().float().numpy()
            np.testing.assert_array_equal(value, expected, err_msg=name)
    # Kernels, of the forward pass and of the gradients, have them too.
    other = trainer_of("plain", 5)
    again = trainer_of("plain", 7)
    if kind in ("tensors", "arrays"):
        again.load_state_dict(given)
        assert train(again, 0, 3) == train(other, 0, 3)


def test_round_trip_of_the_state_dict() -> None:
    a, b = trainer_of("plain"), trainer_of("plain", 3)
    train(a, 0, 2)
    b.load_state_dict(a.state_dict())
    expected = a.state_dict()
    found = b.state_dict()
    for name in expected:
        if "tracked" not in name:
            np.testing.assert_array_equal(found[name], expected[name])
    before = a.state_dict()
    for value in before.values():
        value[...] = 0  # copies
    assert_equal(a.state_dict(), expected)


def test_a_module_as_model(tmp_path: Path) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(4), nn.ReLU()
            )
            self.head = nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x).mean((2, 3)))

    module, other = (randomize(Network(), seed).eval() for seed in (0, 1))
    trainer = mpscnn.Trainer(module, input_shapes=SHAPE)
    train(trainer, 0, 3)
    trainer.save(tmp_path)
    other.load_state_dict(safetensors.torch.load_file(tmp_path / MODEL), strict=True)
    x = random(SHAPE, seed=9)
    with torch.no_grad():
        np.testing.assert_allclose(trainer.network()(x), other.eval()(torch.from_numpy(x)), atol=1e-5)
    again = mpscnn.Trainer(other, input_shapes=SHAPE)
    again.load(tmp_path)
    assert train(again, 3, 5) == train(trainer, 3, 5)


# ---- resuming


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_going_on(optimizer: str, tmp_path: Path) -> None:
    """Bit for bit as without an interruption, with dropout and statistics; saving changes nothing."""
    whole = trainer_of(optimizer)
    expected = train(whole, 0, 6)
    first = trainer_of(optimizer)
    assert train(first, 0, 3) == expected[:3]
    first.optimizer.learning_rate = 0.01
    first.optimizer.learning_rate = OPTIMIZERS[optimizer]().learning_rate
    first.save(tmp_path)
    second = trainer_of(optimizer, 17, in_flight=3)
    train(second, 0, 2)
    second.optimizer.learning_rate = 0.3
    second.load(str(tmp_path))
    assert second.optimizer.learning_rate == whole.optimizer.learning_rate
    assert train(second, 3, 6) == expected[3:]
    assert train(first, 3, 6) == expected[3:]
    assert_equal(second.state_dict(), whole.state_dict())
    assert_equal(first.state_dict(), whole.state_dict())
    assert second.step(random(SHAPE), LABELS).number == 6


def test_going_on_with_fit(tmp_path: Path) -> None:
    """The order of images continues, and so does the history."""
    x, labels = random((22, *SHAPE[1:])), np.arange(22) % 5
    options: Any = {"batch_size": 4, "learning_rate": lambda step: 0.02 / (1 + step)}
    whole = trainer_of("momentum")
    whole.fit(x, labels, epochs=4, **options)
    first = trainer_of("momentum")
    first.fit(x, labels, epochs=2, checkpoint=tmp_path, **options)
    second = trainer_of("momentum", 17)
    second.load(tmp_path)
    assert second.history == first.history
    second.fit(x, labels, epochs=2, **options)
    assert_equal(second.state_dict(), whole.state_dict())
    assert [epoch.loss for epoch in second.history] == [epoch.loss for epoch in whole.history]
    assert [epoch.learning_rate for epoch in second.history] == [epoch.learning_rate for epoch in whole.history]


def test_frozen_layers(tmp_path: Path) -> None:
    """They are in the model file, not in the optimizer's."""
    trainer = trainer_of(frozen=["a", "fc"])
    expected = train(trainer, 0, 2)
    trainer.save(tmp_path)
    assert not [name for name in safetensors.numpy.load_file(tmp_path / OPTIMIZER) if name.startswith(("a.", "fc."))]
    again = trainer_of(seed=3, frozen=["fc", "a"])
    again.load(tmp_path)
    assert train(again, 2, 4) == train(trainer, 2, 4)
    assert len(expected) == 2
    with pytest.raises(ValueError, match=r"other layers were trained\.$"):
        trainer_of(frozen=["a"]).load(tmp_path)


def test_names_of_state_arrays(tmp_path: Path) -> None:
    """In the order of the parameter, as in torch.optim."""
    trainer = trainer_of("adam")
    train(trainer, 0, 2)
    trainer.save(tmp_path)
    shapes = {name: value.shape for name, value in safetensors.numpy.load_file(tmp_path / OPTIMIZER).items()}
    parameters = {name: tuple(value.shape) for name, value in Layers(LAYERS).named_parameters()}
    assert shapes == {
        f"{name}.{what}": shape for name, shape in parameters.items() for what in ("momentum", "velocity")
    }


def test_momentum_is_in_the_order_of_pytorch(tmp_path: Path) -> None:
    layers = [layer for layer in LAYERS if layer[1] != "Dropout"]
    module = randomize(Layers(layers))
    trainer = trainer_of(layers=layers)
    trainer.step(random(SHAPE), LABELS)
    trainer.save(tmp_path)
    found = safetensors.numpy.load_file(tmp_path / OPTIMIZER)
    nn.functional.cross_entropy(module.train()(torch.from_numpy(random(SHAPE))), torch.from_numpy(LABELS)).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        expected = 0.02 * parameter.grad.numpy()  # MPS's momentum includes the rate
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found[f"{name}.momentum"], expected, atol=1e-4 * scale + 1e-8, err_msg=name)


# ---- writing


def test_a_failing_write_keeps_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of()
    train(trainer, 0, 1)
    trainer.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    train(trainer, 1, 2)
    whole, count = os.fsync, 0

    def fail(number: int) -> None:
        nonlocal count
        count += 1
        whole(number)
        if count == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        trainer.save(tmp_path)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    train(trainer, 2, 3)
    trainer.save(tmp_path)
    again = trainer_of(seed=1)
    again.load(tmp_path)
    assert_equal(again.state_dict(), trainer.state_dict())


def test_between_the_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file is moved, the other one cannot be: the checkpoint is the new one, and complete."""
    trainer = trainer_of()
    train(trainer, 0, 1)
    trainer.save(tmp_path)
    train(trainer, 1, 2)
    replace, count = os.replace, 0

    def once(source: Any, target: Any) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", once)
    with pytest.raises(OSError, match="Input/output error"):
        trainer.save(tmp_path)
    monkeypatch.undo()
    again = trainer_of(seed=1)
    again.load(tmp_path)
    assert_equal(again.state_dict(), trainer.state_dict())
    assert again.step(random(SHAPE), LABELS).number == 2
    assert set(safetensors.numpy.load_file(tmp_path / MODEL)) == set(trainer.state_dict())  # that of the first
    again.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MODEL, OPTIMIZER]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    trainer = trainer_of()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        trainer.save(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        trainer.save(tmp_path / "file" / "below")
    trainer.save(tmp_path / "one" / "two")
    assert (tmp_path / "one" / "two" / MODEL).is_file()
    for method in (trainer.save, trainer.load):
        with pytest.raises(TypeError, match=r"^folder \(int\) is not a path\.$"):
            method(3)


# ---- invalid checkpoints


def header(path: Path) -> tuple[dict[str, Any], bytes]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write(path: Path, described: dict[str, Any], data: bytes) -> None:
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def without_identity(path: Path) -> None:
    described, data = header(path)
    del described["__metadata__"]["mpscnn.checkpoint"]
    write(path, described, data)


def edit(path: Path, **changes: Any) -> None:
    """Change entries of a file's metadata; None removes one."""
    described, data = header(path)
    facts = json.loads(described["__metadata__"]["mpscnn.training"])
    facts.update(changes)
    facts = {name: value for name, value in facts.items() if value is not None}
    described["__metadata__"]["mpscnn.training"] = json.dumps(facts)
    write(path, described, data)


def without_metadata(folder: Path, name: str) -> None:
    arrays = safetensors.numpy.load_file(folder / name)
    safetensors.numpy.save_file(arrays, folder / name)


def with_arrays(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    described, _ = header(folder / name)
    arrays = {key: value.copy() for key, value in safetensors.numpy.load_file(folder / name).items()}
    change(arrays)
    safetensors.numpy.save_file(arrays, folder / name, described["__metadata__"])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no folder": lambda folder: shutil.rmtree(folder),
    "no model": lambda folder: (folder / MODEL).unlink(),
    "no optimizer": lambda folder: (folder / OPTIMIZER).unlink(),
    "empty": lambda folder: (folder / MODEL).write_bytes(b""),
    "truncated model": lambda folder: os.truncate(folder / MODEL, (folder / MODEL).stat().st_size - 5),
    "truncated optimizer": lambda folder: os.truncate(folder / OPTIMIZER, 300),
    "text": lambda folder: (folder / OPTIMIZER).write_text("nothing of that kind"),
    "files exchanged": lambda folder: (
        os.replace(folder / MODEL, folder / "x"),
        os.replace(folder / OPTIMIZER, folder / MODEL),
        os.replace(folder / "x", folder / OPTIMIZER),
    ),
    "model of another program": lambda folder: without_metadata(folder, MODEL),
    "optimizer of another program": lambda folder: without_metadata(folder, OPTIMIZER),
    "another version": lambda folder: edit(folder / OPTIMIZER, version=2),
    "no version": lambda folder: edit(folder / OPTIMIZER, version=None),
    "no steps": lambda folder: edit(folder / OPTIMIZER, steps=None),
    "steps are no number": lambda folder: edit(folder / OPTIMIZER, steps="3"),
    "steps of another checkpoint": lambda folder: edit(folder / OPTIMIZER, steps=4),
    "steps below 0": lambda folder: edit(folder / OPTIMIZER, steps=-1),
    "true": lambda folder: edit(folder / OPTIMIZER, steps=True),
    "no learning rate": lambda folder: edit(folder / OPTIMIZER, learning_rate=None),
    "learning rate is text": lambda folder: edit(folder / OPTIMIZER, learning_rate="1"),
    "learning rate is nan": lambda folder: edit(folder / OPTIMIZER, learning_rate=float("nan")),
    "learning rate is too large": lambda folder: edit(folder / OPTIMIZER, learning_rate=1e300),
    "learning rate is far too large": lambda folder: edit(folder / OPTIMIZER, learning_rate=10**400),
    "time steps are no dict": lambda folder: edit(folder / OPTIMIZER, time_steps=[1]),
    "a time step below 0": lambda folder: edit(folder / OPTIMIZER, time_steps={"fc": -1}),
    "a time step that is too large": lambda folder: edit(folder / OPTIMIZER, time_steps={"fc": 2**60}),
    "optimizer is a number": lambda folder: edit(folder / OPTIMIZER, optimizer=3),
    "history is none": lambda folder: edit(folder / OPTIMIZER, history={"epochs": [3]}),
    "history is a list": lambda folder: edit(folder / OPTIMIZER, history=[]),
    "history with text": lambda folder: edit(
        folder / OPTIMIZER,
        history={
            "epochs": [
                {
                    "loss": "1",
                    "accuracy": None,
                    "validation_loss": None,
                    "validation_accuracy": None,
                    "learning_rate": 1,
                    "steps": 1,
                    "seconds": 1,
                }
            ]
        },
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    trainer = trainer_of()
    train(trainer, 0, 3)
    trainer.save(folder)
    return folder


def refused(folder: Path, kind: type[Exception], match: str, **options: Any) -> None:
    """Nothing has changed: the trainer continues as if nothing had been loaded."""
    trainer, other = trainer_of(**options), trainer_of(**options)
    train(trainer, 0, 2)
    train(other, 0, 2)
    with pytest.raises(kind, match=match) as caught:
        trainer.load(folder)
    assert not isinstance(caught.value, NotImplementedError)
    assert_equal(trainer.state_dict(), other.state_dict())
    assert trainer.optimizer.learning_rate == other.optimizer.learning_rate
    assert train(trainer, 2, 4) == train(other, 2, 4)
    assert trainer.step(random(SHAPE), LABELS).number == 4


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name: str, saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    DAMAGE[name](folder)
    refused(folder, mpscnn.InvalidModelError, "copy")


def test_every_byte_of_a_header(saved: Path, tmp_path: Path) -> None:
    """Damage some bytes at a time: a documented error, or a valid checkpoint."""
    rng = np.random.default_rng(0)
    trainer = trainer_of()
    for name in (MODEL, OPTIMIZER):
        whole = (saved / name).read_bytes()
        length = 8 + struct.unpack("<Q", whole[:8])[0]
        for other in (MODEL, OPTIMIZER):
            shutil.copy(saved / other, tmp_path / other)
        for _ in range(60):
            damaged = bytearray(whole)
            for place in rng.integers(0, length, 2):
                damaged[place] = rng.integers(0, 256)
            (tmp_path / name).write_bytes(damaged)
            with contextlib.suppress(ValueError):  # InvalidModelError is one
                trainer.load(tmp_path)
    trainer.load(saved)
    other_trainer = trainer_of(seed=1)
    other_trainer.load(saved)
    assert train(trainer, 3, 4) == train(other_trainer, 3, 4)


def test_an_array_of_an_unknown_type(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    described, data = header(tmp_path / OPTIMIZER)
    described["fc.bias.momentum"]["dtype"] = "F99"
    write(tmp_path / OPTIMIZER, described, data)
    refused(tmp_path, mpscnn.InvalidModelError, r"F99")


def test_files_of_different_steps(saved: Path, tmp_path: Path) -> None:
    trainer = trainer_of()
    train(trainer, 0, 4)
    trainer.save(tmp_path)
    shutil.copy(saved / MODEL, tmp_path / MODEL)
    refused(tmp_path, mpscnn.InvalidModelError, r"its two files are of different checkpoints: steps 3 and 4\.$")


def test_files_that_are_replaced_between_two_reads(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may replace a file by one of the same inode and time: reading it again detects that."""
    trainer = trainer_of()
    train(trainer, 0, 4)
    trainer.save(tmp_path)
    shutil.copy(saved / MODEL, tmp_path / MODEL)
    read = checkpoint._read

    def read_before_the_other_file_is_replaced(target: Path) -> Any:
        try:
            return read(target)
        finally:
            shutil.copy(saved / OPTIMIZER, target / OPTIMIZER)

    monkeypatch.setattr(checkpoint, "_state", lambda target: [])
    monkeypatch.setattr(checkpoint, "_read", read_before_the_other_file_is_replaced)
    assert checkpoint.read(tmp_path)[2]["steps"] == 3


def test_files_of_different_trainings(saved: Path, tmp_path: Path) -> None:
    """With the same number of steps; also if one of the files has no identity, as those of older versions."""
    trainer = trainer_of(seed=1)
    train(trainer, 0, 3)
    trainer.save(tmp_path / "other")
    for name in (MODEL, OPTIMIZER):
        mixed = tmp_path / f"with {name}"
        shutil.copytree(saved, mixed)
        shutil.copy(tmp_path / "other" / name, mixed / name)
        match = r": its two files are of different checkpoints, both of step 3\.$"
        refused(mixed, mpscnn.InvalidModelError, match)
        without_identity(mixed / name)  # one file of an older mpscnn
        refused(mixed, mpscnn.InvalidModelError, match)
    identities = [
        header(folder / MODEL)[0]["__metadata__"]["mpscnn.checkpoint"] for folder in (saved, tmp_path / "other")
    ]
    assert identities[0] != identities[1]


def test_checkpoints_without_an_identity(saved: Path, tmp_path: Path) -> None:
    """As written by older versions; the next one has an identity."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    for name in (MODEL, OPTIMIZER):
        without_identity(tmp_path / name)
    trainer, other = trainer_of(), trainer_of()
    trainer.load(tmp_path)
    other.load(saved)
    assert train(trainer, 3, 5) == train(other, 3, 5)
    trainer.save(tmp_path)
    assert len({header(tmp_path / name)[0]["__metadata__"]["mpscnn.checkpoint"] for name in (MODEL, OPTIMIZER)}) == 1


def test_another_optimizer(saved: Path, tmp_path: Path) -> None:
    refused(
        saved,
        ValueError,
        r"its optimizer is OptimizerStochasticGradientDescent, not OptimizerAdam\.$",
        optimizer="adam",
    )
    refused(saved, ValueError, r'\.momentum" is nothing that this optimizer remembers\.$', optimizer="plain")
    plain = trainer_of("plain")
    plain.save(tmp_path)
    refused(tmp_path, ValueError, r'has no "a\.conv\.weight\.momentum"\.$')


def changed(changed_name: str, **options: Any) -> list[Any]:
    """Return LAYERS with other options of one layer."""
    layers = []
    for name, kind, *rest in LAYERS:
        own = rest[0] if rest else {}
        layers.append((name, kind, {**own, **options} if name == changed_name else own))
    return layers


def test_another_model(saved: Path) -> None:
    fewer = changed("fc", out_features=6)
    refused(saved, ValueError, r'"fc\.(weight|bias).*" has shape .*, the parameter has \(6,.*\)\.$', layers=fewer)
    refused(saved, ValueError, "a.conv.weight", layers=changed("a.conv", kernel_size=(2, 3)))
    refused(saved, ValueError, "group.bias", layers=changed("group", bias=False))
    refused(saved, ValueError, "a.conv.bias", layers=changed("a.conv", bias=True))
    renamed = [("last" if name == "fc" else name, *rest) for name, *rest in LAYERS]
    refused(saved, ValueError, r"other layers were trained\.$", layers=renamed)


ARRAYS: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "no weight": (MODEL, lambda a: a.pop("fc.weight"), r'has no "fc\.weight"\.$'),
    "no statistics": (MODEL, lambda a: a.pop("a.bn.running_var"), r'has no "a\.bn\.running_var"\.$'),
    "one more": (MODEL, lambda a: a.update(more=a["fc.bias"]), r'"more" is the name of no parameter\.$'),
    "integers": (MODEL, lambda a: a.update({"fc.bias": np.zeros(5, np.int32)}), "int32, not of floating-point"),
    "shape": (MODEL, lambda a: a.update({"fc.bias": np.zeros((5, 1), np.float32)}), r"has shape \(5, 1\), the para"),
    "no momentum": (OPTIMIZER, lambda a: a.pop("fc.bias.momentum"), r'has no "fc\.bias\.momentum"\.$'),
    "momentum": (
        OPTIMIZER,
        lambda a: a.update({"fc.bias.momentum": np.zeros(4, np.float32)}),
        r'"fc\.bias\.momentum" has shape \(4,\), the parameter has \(5,\)\.$',
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_other_arrays(name: str, saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    file, change, match = ARRAYS[name]
    with_arrays(folder, file, change)
    refused(folder, ValueError, match)


STATES: dict[str, tuple[Callable[[dict[str, Any]], Any], type[Exception], str]] = {
    "no weight": (lambda a: a.pop("fc.weight"), ValueError, r'^state_dict has no "fc\.weight"\.$'),
    "one more": (
        lambda a: a.update(fc2=a["fc.bias"]),
        ValueError,
        r'^state_dict: "fc2" is the name of no parameter\.$',
    ),
    "shape": (
        lambda a: a.update({"fc.bias": np.zeros(6, np.float32)}),
        ValueError,
        r'^state_dict: "fc\.bias" has shape \(6,\), the parameter has \(5,\)\.$',
    ),
    "integers": (lambda a: a.update({"fc.bias": np.zeros(5, int)}), ValueError, r'"fc\.bias" is of int64, not of'),
    "none": (lambda a: a.update({"fc.bias": None}), TypeError, r'"fc\.bias"\] \(NoneType\) is not an array'),
    "text": (lambda a: a.update({"fc.bias": "zeros"}), TypeError, r'"fc\.bias"\] \(str\) is not an array'),
    "a number for a name": (lambda a: a.update({3: a["fc.bias"]}), ValueError, r'"3" is the name of no parameter'),
}


@pytest.mark.parametrize("name", STATES)
def test_wrong_state_dicts(name: str) -> None:
    trainer, other = trainer_of(), trainer_of()
    change, kind, match = STATES[name]
    given = {key: value + 1 for key, value in trainer.state_dict().items()}
    change(given)
    with pytest.raises(kind, match=match):
        trainer.load_state_dict(given)
    assert_equal(trainer.state_dict(), other.state_dict())
    assert train(trainer, 0, 2) == train(other, 0, 2)


def test_a_state_dict_that_is_none() -> None:
    with pytest.raises(TypeError, match=r"^state_dict \(list\) is not a mapping of arrays\.$"):
        trainer_of().load_state_dict([])


def test_after_a_loss_that_is_not_finite(saved: Path) -> None:
    """The error advises to load a checkpoint. Steps still in progress do not raise again."""
    trainer = trainer_of(seed=4, in_flight=3)
    for _ in range(3):
        trainer.step(np.full(SHAPE, np.nan, np.float32), LABELS)
    with pytest.raises(FloatingPointError):
        trainer.step(random(SHAPE), LABELS)
    trainer.load(saved)
    expected = trainer_of()
    expected.load(saved)
    assert train(trainer, 3, 5) == train(expected, 3, 5)
    assert all(np.isfinite(value).all() for value in trainer.state_dict().values())
