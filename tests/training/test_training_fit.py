# SPDX-License-Identifier: Apache-2.0
"""fit() and evaluate(): the same steps as by hand, their reports, arguments, and interruptions."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from training_support import Layers, randomize, sgd

import mpscnn
from support import random

SHAPE = (3, 7, 6)
LAYERS: list[Any] = [
    ("conv", "Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": 1}),
    ("bn", "BatchNorm2d", {"num_features": 4}),
    ("relu", "ReLU"),
    ("drop", "Dropout", {"p": 0.2}),
    ("pool", "AdaptiveAvgPool2d", {"output_size": 1}),
    ("flat", "Flatten"),
    ("fc", "Linear", {"in_features": 4, "out_features": 3}),
]
X, LABELS = random((22, *SHAPE)), np.arange(22) % 3


def trainer_of(**options: Any) -> mpscnn.Trainer:
    weights = randomize(Layers(LAYERS)).state_dict()
    return mpscnn.Trainer(LAYERS, weights, **{"input_shapes": (1, *SHAPE), "optimizer": sgd(), **options})


def assert_equal_states(a: mpscnn.Trainer, b: mpscnn.Trainer) -> None:
    expected = b.state_dict()
    for name, value in a.state_dict().items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize("in_flight", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [1, 4, 11, 22, 100])
def test_the_same_steps_as_by_hand(batch_size: int, in_flight: int) -> None:
    """Without shuffling; means are over images, and the last batch is smaller."""
    if batch_size == 1:  # batch normalization needs more than one value; there are 42
        assert SHAPE[1] * SHAPE[2] > 1
    trainer, other = trainer_of(in_flight=in_flight), trainer_of()
    history = trainer.fit(X, LABELS, epochs=2, batch_size=batch_size, shuffle=False)
    assert history is trainer.history
    for epoch in history:
        steps = [
            other.step(X[start : start + batch_size], LABELS[start : start + batch_size])
            for start in range(0, 22, batch_size)
        ]
        images = [step.images for step in steps]
        assert epoch.steps == len(steps)
        np.testing.assert_allclose(epoch.loss, np.average([step.loss for step in steps], weights=images), rtol=1e-12)
        accuracies = [step.accuracy for step in steps]
        np.testing.assert_allclose(epoch.accuracy, np.average(accuracies, weights=images), rtol=1e-12)  # type: ignore[arg-type]
        assert (epoch.validation_loss, epoch.validation_accuracy) == (None, None)
        assert epoch.seconds > 0
    assert_equal_states(trainer, other)


def test_the_order_of_images() -> None:
    """Each image once per epoch, in a new order each time, determined by the seed."""
    seen: list[NDArray[Any]] = []

    def note(x: Any, labels: Any, rng: Any) -> Any:
        np.testing.assert_array_equal(x[:, 0, 0, 0].astype(int) % 3, labels)
        seen.append(x[:, 0, 0, 0].astype(int))
        return x, labels

    x = np.broadcast_to(np.arange(22, dtype=np.float32)[:, None, None, None], (22, *SHAPE))
    orders = []
    for seed in (0, 0, 1):
        seen.clear()
        trainer_of(seed=seed, optimizer=sgd(0.0)).fit(x, LABELS, epochs=2, batch_size=5, augment=note)
        found = np.concatenate(seen)
        for epoch in (found[:22], found[22:]):
            np.testing.assert_array_equal(np.sort(epoch), np.arange(22))
        assert (found[:22] != found[22:]).any()
        orders.append(found)
    np.testing.assert_array_equal(orders[0], orders[1])
    assert (orders[0] != orders[2]).any()


def test_validation() -> None:
    """Results of evaluate() after each epoch; it changes nothing."""
    trainer, other = trainer_of(), trainer_of()
    validation = random((9, *SHAPE), seed=7), np.arange(9) % 3
    history = trainer.fit(X, LABELS, epochs=2, batch_size=5, validation=validation)
    for epoch in history:
        other.fit(X, LABELS, batch_size=5)
        assert (epoch.validation_loss, epoch.validation_accuracy) == other.evaluate(*validation, batch_size=5)
        assert (epoch.loss, epoch.accuracy) == (other.history[-1].loss, other.history[-1].accuracy)
    assert_equal_states(trainer, other)
    assert trainer.fit(X, LABELS, validation=list(validation))[-1].validation_loss is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_size", [1, 4, 9, 50])
@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mean_squared_error"])
def test_evaluate_against_torch(loss: Any, batch_size: int) -> None:
    """For a network with running statistics and without dropout."""
    module = randomize(Layers(LAYERS)).eval()
    trainer = trainer_of(loss=loss)
    x, labels = random((9, *SHAPE), seed=7), np.arange(9) % 3
    with torch.no_grad():
        y = module(torch.from_numpy(x))
        if loss == "softmax_cross_entropy":
            expected = nn.functional.cross_entropy(y, torch.from_numpy(labels)).item()
            accuracy = (y.argmax(1).numpy() == labels).mean()
            found = trainer.evaluate(x, labels, batch_size=batch_size)
            assert found[1] == accuracy
        else:
            wanted = random((9, 3), seed=3)
            expected = nn.functional.mse_loss(y, torch.from_numpy(wanted)).item()
            found = trainer.evaluate(x, wanted, batch_size=batch_size)
            assert found[1] is None
    assert abs(found[0] - expected) <= 1e-5 * expected
    assert trainer.step(X, LABELS).number == 0


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "NC", "NWC"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
def test_evaluate_of_any_layout_and_type(dtype: str, layout: str) -> None:
    """Equal to the predictions of a step, whose loss is that before the update."""
    graph = mpscnn.Graph()
    extents = {"H": 5 if "H" in layout else 1, "W": 4 if "W" in layout else 1, "C": 3}
    x = graph.input("x", height=extents["H"], width=extents["W"], channels=3, layout=layout)
    value = graph.add("Convolution", x, weight=random((2, 3, 1, 1)), name="conv")
    value = graph.add("ReduceColumnMean", graph.add("ReduceRowMean", value))
    graph.output(value, layout="NC")
    trainer = mpscnn.Trainer(graph, loss="softmax_cross_entropy")
    images = random((6, *(extents[letter] for letter in layout[1:])), dtype)
    expected = trainer.evaluate(images, np.arange(6) % 2)
    step = trainer.step(images, np.arange(6) % 2)
    np.testing.assert_allclose(expected[0], step.loss, rtol=1e-6)
    assert expected[1] == step.accuracy
    per_batch = trainer.evaluate(images, np.arange(6) % 2, batch_size=4)
    np.testing.assert_allclose(per_batch[0], trainer.evaluate(images, np.arange(6) % 2)[0], rtol=1e-6)


def test_evaluate_of_pixels() -> None:
    layers = [("conv", "Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 1})]
    trainer = mpscnn.Trainer(layers, input_shapes=(1, *SHAPE))
    labels = np.random.default_rng(0).integers(0, 4, (22, 7, 6))
    found = trainer.evaluate(X, labels, batch_size=8)
    predicted = trainer.network()(X)
    loss = nn.functional.cross_entropy(torch.from_numpy(predicted), torch.from_numpy(labels)).item()
    assert abs(found[0] - loss) < 1e-5 * loss
    assert found[1] == (predicted.argmax(1) == labels).mean()


def test_progress() -> None:
    calls: list[tuple[int, int | None]] = []
    trainer_of().fit(X, LABELS, epochs=3, batch_size=8, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(i, 9) for i in range(1, 10)]
    trainer_of().fit(X, LABELS, progress=False)


def test_progress_as_a_bar(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    trainer_of().fit(X, LABELS, epochs=2, batch_size=8, progress=True)
    shown = capfd.readouterr().err
    assert "6/6" in shown
    assert "epoch 1: loss" in shown


def test_augment() -> None:
    """It gets a batch in order, and may return another number of images; its generator has the seed."""

    def twice(x: Any, labels: Any, rng: np.random.Generator) -> Any:
        noise = rng.normal(size=x.shape).astype(np.float32)
        return np.concatenate([x, x + noise]), np.concatenate([labels, labels])

    trainer, other = trainer_of(), trainer_of()
    for one in (trainer, other):
        one.fit(X, LABELS, epochs=2, batch_size=8, augment=twice)
    assert_equal_states(trainer, other)
    without = trainer_of()
    without.fit(X, LABELS, epochs=2, batch_size=8)
    assert np.abs(without.state_dict()["fc.weight"] - trainer.state_dict()["fc.weight"]).max() > 1e-3


def test_checkpoint_and_plot(tmp_path: Path) -> None:
    """After each epoch."""
    trainer = trainer_of()
    seen = []

    def look(done: int, total: int | None) -> None:
        seen.append(((tmp_path / "saved" / "model.safetensors").exists(), (tmp_path / "plot.svg").exists()))

    trainer.fit(X, LABELS, epochs=2, checkpoint=tmp_path / "saved", plot=tmp_path / "plot.svg", progress=look)
    assert seen == [(False, False), (True, True)]
    other = trainer_of()
    other.load(tmp_path / "saved")
    assert_equal_states(other, trainer)
    assert len(other.history) == 2


ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "epochs": ({"epochs": 0}, ValueError, r"^epochs \(0\) is less than the minimum \(1\)\.$"),
    "epochs, a float": ({"epochs": 2.0}, TypeError, r"^epochs \(float\) is not an int\.$"),
    "batch_size": ({"batch_size": 0}, ValueError, r"^batch_size \(0\) is less than the minimum \(1\)\.$"),
    "batch_size, text": ({"batch_size": "8"}, TypeError, r"^batch_size \(str\) is not an int\.$"),
    "no images": ({"x": X[:0], "labels": LABELS[:0]}, ValueError, r"^x\.shape \(0, 3, 7, 6\) has no images\.$"),
    "one number": ({"x": np.float32(1)}, ValueError, r"^x\.shape \(\) has no images\.$"),
    "labels": ({"labels": LABELS[:9]}, ValueError, r"^len\(labels\) \(9\) is not len\(x\) \(22\)\.$"),
    "one label": ({"labels": 3}, ValueError, r"^len\(labels\) \(0\) is not len\(x\) \(22\)\.$"),
    "validation": ({"validation": X}, TypeError, r"^validation \(ndarray\) is not a pair \(x, labels\)\.$"),
    "validation of three": ({"validation": (X, LABELS, X)}, TypeError, r"^validation \(tuple\) is not a pair"),
    "validation labels": (
        {"validation": (X, LABELS[:3])},
        ValueError,
        r"^len\(validation labels\) \(3\) is not len\(validation x\) \(22\)\.$",
    ),
    "validation shape": (
        {"validation": (X[:, :2], LABELS)},
        ValueError,
        r"^validation x\.shape \(22, 2, 7, 6\) is not \(N, 3, 7, 6\), of one image or more\.$",
    ),
    "validation labels' shape": (
        {"validation": (X, LABELS[:, None])},
        ValueError,
        r"^validation labels\.shape \(22, 1\) is not \(22,\), class numbers of 22 images\.$",
    ),
    "learning_rate": ({"learning_rate": 0.1}, TypeError, r"^learning_rate \(float\) is not a callable\.$"),
    "augment": ({"augment": True}, TypeError, r"^augment \(bool\) is not a callable\.$"),
    "progress": ({"progress": 3}, TypeError, r"^progress \(int\) is not a bool, a callable or None\.$"),
    "checkpoint": ({"checkpoint": 3}, TypeError, r"^checkpoint \(int\) is not a path\.$"),
    "plot": ({"plot": 3}, TypeError, r"^plot \(int\) is not a path\.$"),
    "plot's end": ({"plot": "loss.txt"}, ValueError, r'^plot \("loss\.txt"\) does not end in \.'),
    "shuffle": ({"shuffle": "yes"}, TypeError, r"^shuffle \(str\) is not True or False\.$"),
    "x": ({"x": X[:, :2]}, ValueError, r"^x\.shape .* is not \(N, 3, 7, 6\), of one image or more\.$"),
    "x, integers": ({"x": X.astype(int)}, TypeError, r"^x\.dtype \(int64\) is not a floating-point type or uint8\.$"),
    "a class": ({"labels": LABELS + 1}, ValueError, r"labels.* \(3\) is not less than the number of classes \(3\)"),
    "a rate": ({"learning_rate": lambda step: "fast"}, TypeError, "learning_rate"),
    "a rate that is none": ({"learning_rate": lambda step: np.nan}, ValueError, r"learning_rate \(nan\) is not"),
    "augmented": ({"augment": lambda x, y, rng: x}, TypeError, r"^what augment returns \(ndarray\) is not a pair"),
    "augmented to nothing": ({"augment": lambda x, y, rng: (x[:0], y[:0])}, ValueError, r"^x\.shape \(0, 3, 7, 6\)"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_wrong_arguments(name: str) -> None:
    """Raised before any training."""
    given, kind, match = ARGUMENTS[name]
    trainer, other = trainer_of(), trainer_of()
    with pytest.raises(kind, match=match) as caught:
        trainer.fit(**{"x": X, "labels": LABELS, "shuffle": False, **given})
    assert not isinstance(caught.value, NotImplementedError)
    assert len(trainer.history) == 0
    trainer.optimizer.learning_rate = other.optimizer.learning_rate
    assert_equal_states(trainer, other)
    trainer.fit(X, LABELS)
    other.fit(X, LABELS)
    assert_equal_states(trainer, other)


EVALUATE: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "batch_size": ({"batch_size": 0}, ValueError, r"^batch_size \(0\) is less"),
    "no images": ({"x": X[:0], "labels": LABELS[:0]}, ValueError, r"^x\.shape \(0, 3, 7, 6\) has no images\.$"),
    "x": ({"x": X[:, :2]}, ValueError, r"^x\.shape \(.*\) is not \(N, 3, 7, 6\)"),
    "labels": ({"labels": LABELS[:9]}, ValueError, r"^len\(labels\) \(9\) is not len\(x\) \(22\)\.$"),
    "labels' shape": ({"labels": X}, ValueError, r"^labels\.shape \(.*\) is not that of the output"),
    "labels' type": ({"labels": LABELS > 1}, TypeError, r"^labels\.dtype \(bool\) is neither"),
    "a class": ({"labels": LABELS - 1}, ValueError, r"\(-1\)"),
}


@pytest.mark.parametrize("name", EVALUATE)
def test_wrong_arguments_of_evaluate(name: str) -> None:
    given, kind, match = EVALUATE[name]
    with pytest.raises(kind, match=match):
        trainer_of().evaluate(**{"x": X, "labels": LABELS, **given})


@pytest.mark.parametrize("where", ["progress", "augment", "learning_rate"])
def test_interrupted(where: str, tmp_path: Path) -> None:
    """Ctrl-C: committed steps count, and training can continue or be saved."""
    trainer, other = trainer_of(in_flight=3), trainer_of()
    count = 0

    def stop(result: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            if count == 4:
                raise KeyboardInterrupt
            return result(*arguments)

        return call

    results: dict[str, Any] = {
        "progress": lambda done, total: None,
        "augment": lambda x, labels, rng: (x, labels),
        "learning_rate": lambda step: 0.05,
    }
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, LABELS, epochs=2, batch_size=4, shuffle=False, **{where: stop(results[where])})
    for start in range(0, 16 if where == "progress" else 12, 4):
        other.step(X[start : start + 4], LABELS[start : start + 4])
    assert len(trainer.history) == 0
    assert_equal_states(trainer, other)
    trainer.save(tmp_path)
    for one in (trainer, other):
        one.fit(X, LABELS)
    assert_equal_states(trainer, other)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Install Python's handler, which is missing in programs that a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("delay", [0.0002, 0.003, 0.006, 0.011, 0.02])
def test_interrupted_by_a_signal(delay: float, tmp_path: Path) -> None:
    """At any time: a step is encoded completely or not at all; statistics and parameters belong to the same step."""
    trainer, other = trainer_of(in_flight=2), trainer_of()
    timer = threading.Timer(delay, _thread.interrupt_main)

    def begin(done: int, total: int | None) -> None:
        if done == 1:
            timer.start()

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, LABELS, epochs=100000, batch_size=4, progress=begin, shuffle=False)
    assert signal.getsignal(signal.SIGINT) is before
    timer.join()
    while other._steps < trainer._steps:
        start = other._steps % 6 * 4
        other.step(X[start : start + 4], LABELS[start : start + 4])
    assert_equal_states(trainer, other)
    trainer.save(tmp_path)
    for one in (trainer, other):
        one.history.clear()
        one.fit(X, LABELS, batch_size=4)
    assert_equal_states(trainer, other)


def test_a_handler_of_ones_own() -> None:
    """It is called after a step has been encoded, and stays installed."""
    calls = []

    def note(number: int, frame: Any) -> None:
        calls.append((number, trainer._steps))

    trainer = trainer_of()
    loss = trainer._mean_loss

    def interrupting(images: int) -> Any:
        _thread.interrupt_main()
        return loss(images)

    before = signal.signal(signal.SIGINT, note)
    try:
        trainer._mean_loss = interrupting  # type: ignore[method-assign]
        trainer.step(X[:4], LABELS[:4])
        assert calls == [(signal.SIGINT, 1)]
        assert signal.getsignal(signal.SIGINT) is note
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_a_thread() -> None:
    """In a thread, no handler can be installed."""
    trainer, other = trainer_of(), trainer_of()
    thread = threading.Thread(target=trainer.fit, args=(X, LABELS))
    thread.start()
    thread.join()
    other.fit(X, LABELS)
    assert len(trainer.history) == 1
    assert_equal_states(trainer, other)


def test_a_last_batch_that_is_too_small() -> None:
    """Batch normalization needs more than one value; the earlier batches are trained."""
    layers = [
        ("fc1", "Linear", {"in_features": 3, "out_features": 4}),
        ("norm", "BatchNorm1d", {"num_features": 4}),
        ("fc2", "Linear", {"in_features": 4, "out_features": 2}),
    ]
    trainer = mpscnn.Trainer(layers, input_shapes=(1, 3))
    with pytest.raises(ValueError, match=r'node "norm": the batch has 1 value of each channel'):
        trainer.fit(random((9, 3)), np.arange(9) % 2, batch_size=4)
    assert trainer._steps == 2
    trainer.fit(random((8, 3)), np.arange(8) % 2, batch_size=4)
