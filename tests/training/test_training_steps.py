# SPDX-License-Identifier: Apache-2.0
"""Steps: frozen layers, running statistics, steps in flight, types of inputs, and non-finite losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from training_support import Layers, Theirs, arrays, assert_same_parameters, randomize, sgd

import mpscnn
from support import held_queue, random

Array = NDArray[Any]
SHAPE = (4, 3, 7, 6)
LABELS = np.array([0, 4, 2, 3])
LAYERS: list[Any] = [
    ("a.conv", "Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": 1}),
    ("a.bn", "BatchNorm2d", {"num_features": 4}),
    ("a.relu", "ReLU"),
    ("b.conv", "Conv2d", {"in_channels": 4, "out_channels": 8, "kernel_size": 3, "padding": 1}),
    ("b.bn", "BatchNorm2d", {"num_features": 8}),
    ("b.tanh", "Tanh"),
    ("pool", "AdaptiveAvgPool2d", {"output_size": 1}),
    ("flat", "Flatten"),
    ("fc", "Linear", {"in_features": 8, "out_features": 5}),
]


def trainer_of(**options: Any) -> mpscnn.Trainer:
    weights = randomize(Layers(LAYERS)).state_dict()
    return mpscnn.Trainer(LAYERS, weights, **{"input_shapes": SHAPE, "optimizer": sgd(), **options})


def assert_equal_states(a: mpscnn.Trainer, b: mpscnn.Trainer) -> None:
    found, expected = a.state_dict(), b.state_dict()
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# ---- frozen


@pytest.mark.parametrize(
    "frozen", [["a.conv"], ["b.conv"], ["a"], ["b.conv", "fc"], ["a.bn"], ["b"], ["a", "b"], ["fc"]], ids=str
)
def test_frozen(frozen: list[str]) -> None:
    """Its parameters are unchanged; layers before it are trained as usual."""
    module = randomize(Layers(LAYERS))
    before = arrays(module)
    trainer = trainer_of(frozen=frozen)
    names = [
        name for name, _ in module.named_parameters() if any(name.startswith(f"{beginning}.") for beginning in frozen)
    ]
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in names)
    theirs = Theirs(
        module,
        optimizer=lambda m: torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.05, momentum=0.9),
    )
    for seed in range(3):
        x = random(SHAPE, seed=seed)
        expected = theirs.step(x, LABELS)
        assert abs(trainer.step(x, LABELS).loss - expected) <= 1e-5 * expected
    found = trainer.state_dict()
    assert names
    for name in names:
        np.testing.assert_array_equal(found[name], before[name])
    assert_same_parameters(found, module, before)


def test_frozen_accepts_any_sequence() -> None:
    a, b = trainer_of(frozen=("a",)), trainer_of(frozen=iter({"a": 1}))
    for trainer in (a, b):
        trainer.step(random(SHAPE), LABELS)
    assert_equal_states(a, b)


# ---- running statistics


@pytest.mark.parametrize("momentum", [0, 0.1, 0.75, 1])
def test_batch_norm_momentum(momentum: float) -> None:
    module = randomize(Layers(LAYERS))
    before = arrays(module)
    trainer = trainer_of(batch_norm_momentum=momentum)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = momentum
    theirs = Theirs(module)
    for seed in range(3):
        theirs.step(random(SHAPE, seed=seed), LABELS)
        trainer.step(random(SHAPE, seed=seed), LABELS)
    found = trainer.state_dict()
    assert_same_parameters(found, module, before)
    if momentum == 0:
        np.testing.assert_array_equal(found["a.bn.running_var"], before["a.bn.running_var"])
    assert found["b.bn.num_batches_tracked"] == 3


def test_a_batch_of_one_value() -> None:
    layers = [
        ("fc1", "Linear", {"in_features": 3, "out_features": 4}),
        ("norm", "BatchNorm1d", {"num_features": 4}),
        ("relu", "ReLU"),
        ("norm2", "BatchNorm1d", {"num_features": 4}),
        ("fc2", "Linear", {"in_features": 4, "out_features": 2}),
    ]
    trainer, other = (mpscnn.Trainer(layers, input_shapes=(1, 3), optimizer=sgd()) for _ in range(2))
    for seed in range(3):
        x, labels = random((4, 3), seed=seed), np.array([0, 1, 1, 0])
        with pytest.raises(ValueError, match=r'node "norm": the batch has 1 value of each channel, .* needs 2\.'):
            trainer.step(x[:1], labels[:1])
        trainer.step(x, labels)
        other.step(x, labels)
    assert_equal_states(trainer, other)


# ---- steps in flight


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_steps_in_flight_change_nothing(optimizer: str) -> None:
    """Bit for bit, with batches of different sizes."""
    trainers = [
        trainer_of(in_flight=count, optimizer=mpscnn.OptimizerAdam(0.01) if optimizer == "adam" else sgd())
        for count in (1, 2, 3, 7)
    ]
    steps = []
    for trainer in trainers:
        made = []
        for seed in range(9):
            images = (4, 4, 2, 5)[seed % 4]
            made.append(trainer.step(random((images, *SHAPE[1:]), seed=seed), np.arange(images) % 5))
        steps.append([step.loss for step in made])
        assert_equal_states(trainer, trainers[0])
        assert steps[-1] == steps[0]


def test_a_step_does_not_wait() -> None:
    """Two are in flight while the device is held; the third waits for the first."""
    trainer, other = trainer_of(in_flight=2), trainer_of(in_flight=1)
    x = [random(SHAPE, seed=seed) for seed in range(2)]
    with held_queue():
        steps = [trainer.step(x[i], LABELS) for i in range(2)]
        assert [step._core.status for step in steps] == ["scheduled", "scheduled"] or all(
            step._core.status != "completed" for step in steps
        )
    assert [step.loss for step in steps] == [other.step(x[i], LABELS).loss for i in range(2)]


def test_calls_that_wait() -> None:
    """state_dict(), network(), wait(): all steps have completed, running statistics included."""
    for wait in (
        lambda trainer: trainer.wait(),
        lambda trainer: trainer.state_dict(),
        lambda trainer: trainer.network(),
    ):
        trainer = trainer_of(in_flight=3)
        steps = [trainer.step(random(SHAPE, seed=seed), LABELS) for seed in range(3)]
        wait(trainer)
        assert all(step._core.status == "completed" for step in steps)
    trainer.wait()


def test_networks_are_of_their_time() -> None:
    trainer = trainer_of()
    x = random(SHAPE)
    first = trainer.network()
    expected = first(x)
    for _ in range(3):
        trainer.step(x, LABELS)
    second = trainer.network()
    np.testing.assert_array_equal(first(x), expected)
    assert np.abs(second(x) - expected).max() > 1e-2
    module = Layers(LAYERS)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in trainer.state_dict().items()})
    with torch.no_grad():
        np.testing.assert_allclose(second(x), module.eval()(torch.from_numpy(x)), atol=1e-5)
    np.testing.assert_allclose(trainer.network(optimize=False)(x), second(x), atol=1e-5)
    assert trainer.network(dtype="float16")(x).shape == (4, 5)


# ---- inputs


def transformed(x: Array, how: str) -> Array:
    if how == "transposed":
        return np.ascontiguousarray(x.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    if how == "every other one":
        return np.repeat(x, 2, axis=0)[::2]
    if how == "turned round":
        return np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1]
    if how == "read-only":
        x = x.copy()
        x.flags.writeable = False
        return x
    if how == "channels last":
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    if how == "not aligned":
        raw = np.zeros(x.nbytes + 1, np.uint8)
        view = raw[1:].view(np.float32).reshape(x.shape)
        view[...] = x
        return view
    return x.astype(how)


@pytest.mark.parametrize(
    "how",
    ["transposed", "every other one", "turned round", "read-only", "channels last", "not aligned", "float64", ">f4"],
)
def test_arrays_of_any_order(how: str) -> None:
    trainer, other = trainer_of(), trainer_of()
    for seed in range(3):
        x = random(SHAPE, seed=seed)
        assert trainer.step(transformed(x, how), LABELS).loss == other.step(x, LABELS).loss


def test_float16() -> None:
    trainer, other = trainer_of(), trainer_of()
    x = random(SHAPE).astype(np.float16)
    assert trainer.step(x, LABELS).loss == other.step(x.astype(np.float32), LABELS).loss


def test_uint8() -> None:
    """0...255 represent 0...1, in steps and in evaluate(); a network needs mean and std for this."""
    trainer, other = trainer_of(), trainer_of()
    x = random(SHAPE, "uint8")
    for _ in range(2):
        assert trainer.step(x, LABELS).loss == other.step(x * np.float32(1 / 255), LABELS).loss
    assert trainer.evaluate(x, LABELS) == other.evaluate(x * np.float32(1 / 255), LABELS)


def test_labels_of_any_order() -> None:
    layers = [("conv", "Conv2d", {"in_channels": 3, "out_channels": 2, "kernel_size": 1})]
    trainer, other = (mpscnn.Trainer(layers, input_shapes=SHAPE, loss="mean_squared_error") for _ in range(2))
    labels = random((4, 2, 7, 6), seed=5)
    for how in ("transposed", "turned round", "read-only", "float64", "channels last"):
        a, b = trainer.step(random(SHAPE), transformed(labels, how)), other.step(random(SHAPE), labels)
        assert a.loss == b.loss
    classes, per_pixel = np.arange(4 * 42).reshape(4, 7, 6) % 2, mpscnn.Trainer(layers, input_shapes=SHAPE)
    other = mpscnn.Trainer(layers, input_shapes=SHAPE)
    turned = np.asfortranarray(classes)
    assert per_pixel.step(random(SHAPE), turned).loss == other.step(random(SHAPE), classes).loss
    assert per_pixel.step(random(SHAPE), turned).accuracy == other.step(random(SHAPE), classes).accuracy


def test_labels_may_change_afterwards() -> None:
    """They are copied when the step is encoded; x is not copied, but kept until then."""
    trainer, other = trainer_of(in_flight=3), trainer_of(in_flight=1)
    labels = LABELS.copy()
    with held_queue():
        steps = []
        for seed in range(3):
            labels[:] = (LABELS + seed) % 5
            steps.append(trainer.step(random(SHAPE, seed=seed), labels))
        labels[:] = 1
    for seed, step in enumerate(steps):
        assert step.loss == other.step(random(SHAPE, seed=seed), (LABELS + seed) % 5).loss


# ---- not finite


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_not_a_number(in_flight: int) -> None:
    """The error names the step and the rate, and is raised once, in the first call that waits; later steps are lost."""
    trainer = trainer_of(in_flight=in_flight, optimizer=sgd(0.125))
    x = random(SHAPE)
    for _ in range(2):
        trainer.step(x, LABELS)
    trainer.wait()
    bad = x.copy()
    bad[1, 2, 3, 4] = np.nan
    trainer.step(bad, LABELS)
    with pytest.raises(
        FloatingPointError, match=r"^step 2: the loss is nan; .*checkpoint.*learning rate \(0\.125\).*images\.$"
    ):
        trainer.wait()
    trainer.wait()  # not a second time


def test_not_a_number_of_an_earlier_step() -> None:
    """The third call waits for the first step, and raises before it encodes anything."""
    trainer = trainer_of(in_flight=2)
    bad = np.full(SHAPE, np.nan, np.float32)
    first = trainer.step(bad, LABELS)
    second = trainer.step(random(SHAPE), LABELS)
    with pytest.raises(FloatingPointError, match=r"^step 0: the loss is nan"):
        trainer.step(random(SHAPE), LABELS)
    assert np.isnan(first.loss)
    with pytest.raises(FloatingPointError, match=r"^step 1: the loss is nan"):
        assert second.loss
    assert np.isnan(second.loss)
    assert second.output.shape == (4, 1, 1, 5)


@pytest.mark.parametrize("ask", ["loss", "accuracy", "output"])
def test_a_later_step_is_read_first(ask: str) -> None:
    trainer = trainer_of(in_flight=3)
    trainer.step(random(SHAPE), LABELS)
    trainer.step(np.full(SHAPE, np.nan, np.float32), LABELS)
    last = trainer.step(random(SHAPE), LABELS)
    with pytest.raises(FloatingPointError, match=r"^step 1: the loss is nan"):
        getattr(last, ask)


@pytest.mark.parametrize("ask", ["state_dict", "network", "wait"])
def test_who_waits_is_told(ask: str) -> None:
    trainer = trainer_of(in_flight=3)
    trainer.step(np.full(SHAPE, np.inf, np.float32), LABELS)
    with pytest.raises(FloatingPointError, match=r"^step 0: the loss is nan"):
        getattr(trainer, ask)()


def test_too_fast() -> None:
    trainer = trainer_of(optimizer=mpscnn.OptimizerStochasticGradientDescent(1e30))
    with pytest.raises(FloatingPointError, match=r"^step \d: the loss is (nan|inf); .*\(1e\+30\)"):  # noqa: PT012
        for _ in range(8):
            trainer.step(random(SHAPE), LABELS)
    trainer = trainer_of(optimizer=mpscnn.OptimizerStochasticGradientDescent(1e30))
    good = trainer.state_dict()
    with pytest.raises(FloatingPointError):
        trainer.fit(random((40, *SHAPE[1:])), np.tile(LABELS, 10), batch_size=4)
    assert len(trainer.history) == 0
    # Following the advice works, although steps in flight are not finite either.
    trainer.load_state_dict(good)
    trainer.optimizer.learning_rate = 0.05
    assert np.isfinite(trainer.step(random(SHAPE), LABELS).loss)
