# SPDX-License-Identifier: Apache-2.0
"""Kernels of a Trainer read the weights that the optimizer changes: no copy of them outlives a call."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import ENGINE, counts_memory, only_openmps, random

in_place = pytest.mark.skipif(ENGINE != "cpu", reason="engines with memory of their own keep copies there")
has_kernels = only_openmps("MPS's kernels keep copies")

CHANNELS, LAYERS = 256, 8
SHAPE = (2, CHANNELS, 4, 4)
WEIGHTS = CHANNELS * CHANNELS * 9 * 4  # bytes of a layer


def deep(layers: int = LAYERS, channels: int = CHANNELS) -> list[Any]:
    """Return convolutions whose weights are much larger than their images."""
    options = {"in_channels": channels, "out_channels": channels, "kernel_size": 3, "padding": 1}
    return [
        *((f"conv{i}", "Conv2d", options) for i in range(layers)),
        ("average", "AdaptiveAvgPool2d", {"output_size": 1}),
        ("flat", "Flatten"),
    ]


def trainer_of(layers: list[Any], **options: Any) -> mpscnn.Trainer:
    optimizer = mpscnn.OptimizerStochasticGradientDescent(1e-3, momentum_scale=0.9)
    return mpscnn.Trainer(layers, input_shapes=SHAPE, optimizer=optimizer, **options)


@counts_memory
@has_kernels
@in_place
def test_memory_of_a_step() -> None:
    """A step needs the gradient and packed copies of a few layers at a time, not those of all of them."""
    trainer = trainer_of(deep())
    trainer.step(random(SHAPE), np.arange(2)).wait()
    gc.collect()
    mpscnn.memory.clear()
    mpscnn.memory.reset()
    before = mpscnn.memory.current()
    trainer.step(random(SHAPE), np.arange(2)).wait()
    # A gradient, its packed form, and oneDNN's sums of each thread; the gradients of all layers alone were 8.
    assert mpscnn.memory.peak() - before < 5 * WEIGHTS
    # Scratch memory of one call serves the next one, also if it is of another size.
    assert mpscnn.memory.cached() < 6 * WEIGHTS


GROWTH = """
import json, sys
from pathlib import Path
import numpy as np
import mpscnn
sys.path[:0] = json.loads(sys.argv[1])
from test_training_in_place import SHAPE, deep, trainer_of
from support import random

def status(name):
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024

def train(layers, arrays):
    trainer = trainer_of(layers, state_dict=arrays)
    for _ in range(3):
        trainer.step(random(SHAPE), np.arange(2)).wait()

rng = np.random.default_rng(0)
arrays = {f"conv{i}.{name}": (0.01 * rng.standard_normal(shape)).astype(np.float32)
          for i in range(8) for name, shape in (("weight", (256, 256, 3, 3)), ("bias", (256,)))}
train(deep(1), {name: value for name, value in arrays.items() if name.startswith("conv0.")})  # loads libraries
mpscnn.memory.clear()
Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
before = status("VmRSS")
train(deep(), arrays)
print(status("VmHWM") - before)
"""


@counts_memory
@has_kernels
@in_place
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc")
def test_memory_of_the_process() -> None:
    """The process has the given weights, those of the trainer, and their momentum."""
    folders = json.dumps([str(Path(__file__).parent), str(Path(__file__).parent.parent)])
    done = subprocess.run([sys.executable, "-c", GROWTH, folders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Two of all layers, and what a step needs of some. Copies of kernels, gradient kernels and Python made it 9.
    assert int(done.stdout) < (2 * LAYERS + 12) * WEIGHTS


@pytest.mark.parametrize("frozen", [(), ("conv0",)], ids=["trained", "frozen"])
def test_given_arrays_may_change(frozen: tuple[str, ...]) -> None:
    layers = deep(2, 8)
    shape = (2, 8, 4, 4)
    rng = np.random.default_rng(0)
    arrays = {
        f"conv{i}.{name}": rng.standard_normal(shape, dtype=np.float32)
        for i in range(2)
        for name, shape in (("weight", (8, 8, 3, 3)), ("bias", (8,)))
    }
    given = {name: value.copy() for name, value in arrays.items()}

    def trainer(state_dict: dict[str, Any]) -> mpscnn.Trainer:
        return mpscnn.Trainer(layers, state_dict, input_shapes=shape, frozen=frozen)

    first, second = trainer(arrays), trainer(given)
    for value in given.values():
        value[...] = 1e3
    for seed in range(3):
        x = random(shape, seed=seed)
        assert first.step(x, np.arange(2)).loss == second.step(x, np.arange(2)).loss
        np.testing.assert_array_equal(first.network()(x), second.network()(x))
    state = first.state_dict()
    for name, value in second.state_dict().items():
        np.testing.assert_array_equal(state[name], value)


def test_parameters_between_steps() -> None:
    """Results of state_dict(), and networks, are those of their time; loaded parameters take effect."""
    layers, shape = deep(2, 8), (2, 8, 4, 4)
    x, labels = random(shape), np.arange(2)
    trainer = mpscnn.Trainer(layers, input_shapes=shape, in_flight=2)
    start, net = trainer.state_dict(), trainer.network()
    copies, result = {name: value.copy() for name, value in start.items()}, net(x)
    losses = [trainer.step(x, labels) for _ in range(4)]
    assert all(np.array_equal(start[name], value) for name, value in copies.items())
    np.testing.assert_array_equal(net(x), result)
    again = mpscnn.Trainer(layers, input_shapes=shape, in_flight=1, seed=1)
    again.load_state_dict(start)
    assert [again.step(x, labels).loss for _ in range(4)] == [step.loss for step in losses]
    state = trainer.state_dict()
    assert all(np.array_equal(value, state[name]) for name, value in again.state_dict().items())
    assert not np.array_equal(state["conv0.weight"], start["conv0.weight"])
