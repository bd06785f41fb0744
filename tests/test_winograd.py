# SPDX-License-Identifier: Apache-2.0
"""Winograd's convolution on shapes of real networks: errors beside those of the direct one, choice, and switch. Small
shapes are in rows/engine_convolution.py.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from bench import winograd

import mpscnn
from support import ENGINE, PROCESSOR, only_openmps

pytestmark = [
    only_openmps("the implementation is the CPU engine's"),
    pytest.mark.skipif(ENGINE not in ("", "cpu", "split"), reason="the implementation is the CPU engine's"),
    pytest.mark.skipif("avx2" not in PROCESSOR, reason="the processor has no AVX2"),
]

MAX_RATIO = 4.0  # of an error to the direct convolution's


def test_errors() -> None:
    """At most MAX_RATIO times those of the direct convolution, and not equal, as of one implementation."""
    shapes = [(1, 56, 56, 64, 64), (2, 28, 28, 128, 96), (4, 14, 14, 256, 256), (4, 14, 14, 512, 512)]
    rows = winograd.run(seconds=0.001, shapes=shapes)
    assert len(rows) == len(winograd.KINDS) * len(shapes)
    for row in rows:
        for key in ("max_error", "rms_error"):
            direct, own = row[key]["primitive"], row[key]["winograd"]
            assert 0 < own <= MAX_RATIO * direct, row
            assert own != direct, row


PROGRAM = """
import sys, numpy, mpscnn
for n, h, w, inputs, outputs in {shapes}:
    weights = numpy.zeros((outputs, inputs, 3, 3), numpy.float32)
    layer = mpscnn.Convolution(weights, padding=1, allow_reduced_precision={reduced})
    print("shape", inputs, h, file=sys.stderr, flush=True)
    layer(numpy.zeros((n, h, w, inputs), numpy.float32))
"""


def first_choices(trace: str) -> list[str]:
    """Return the implementation of the first convolution after each line "shape"."""
    return [
        next(
            line.rsplit(": ", 1)[1]
            for line in part.splitlines()
            if line.startswith("mpscnn dispatch: convolve: ") and "declines" not in line
        )
        for part in trace.split("shape ")[1:]
    ]


def chosen(shapes: list[tuple[int, ...]], reduced: bool = False, **environment: str) -> list[str]:
    """Return the implementation of each convolution."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(shapes=shapes, reduced=reduced)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "OMP_NUM_THREADS": "2"} | environment,
    )
    return first_choices(done.stderr)


def test_choice() -> None:
    """Where it saves time: not few pixels of many channels, and not few channels."""
    wins = [(1, 56, 56, 64, 64), (1, 28, 28, 128, 128), (1, 28, 28, 512, 512), (8, 7, 7, 512, 512)]
    loses = [(1, 7, 7, 512, 512), (1, 224, 224, 3, 64), (1, 112, 112, 4, 8)]
    assert chosen(wins + loses) == ["winograd"] * len(wins) + ["primitive"] * len(loses)
    assert chosen(wins, MPSCNN_WINOGRAD="0") == ["primitive"] * len(wins)


@pytest.mark.skipif("avx512_bf16" not in PROCESSOR, reason="the processor has no products of bfloat16")
def test_choice_of_reduced_precision() -> None:
    """Where it is faster than direct products of bfloat16, which run at twice the speed, or at 8 times with AMX."""
    wins, loses = [(1, 112, 112, 128, 128), (1, 56, 56, 256, 256)], [(1, 14, 14, 512, 512), (1, 28, 28, 4, 8)]
    wanted = "primitive" if "amx_bf16" in PROCESSOR else "winograd"
    assert chosen(wins + loses, reduced=True) == [wanted] * len(wins) + ["primitive"] * len(loses)


CHAIN = """
import sys, numpy, torch, mpscnn

class Chain(torch.nn.Module):
    def __init__(self, inputs, middle):
        super().__init__()
        self.first = torch.nn.Conv2d(inputs, middle, 3, padding=1)
        self.second = torch.nn.Conv2d(middle, middle, 3, padding=1)
        self.last = torch.nn.Conv2d(middle, inputs, 3)

    def forward(self, x):
        y = self.first(x).relu()
        return self.last((self.second(y) + y).relu())

torch.manual_seed(0)
for inputs, middle, h, w in {shapes}:
    module = Chain(inputs, middle).eval()
    x = torch.randn(2, inputs, h, w)
    right = module.double()(x.double()).detach().numpy()
    for reduced in (False, True):
        network = mpscnn.load(module.float(), input_shapes=tuple(x.shape), allow_reduced_precision=reduced)
        error = numpy.abs(network(x.numpy()) - right)
        print(error.max() / abs(right).max(), numpy.sqrt((error ** 2).mean()) / right.std())
"""


@pytest.mark.skipif("avx512_bf16" not in PROCESSOR, reason="images are float32 on this processor")
def test_images_of_bfloat16() -> None:
    """Sources, results and addends are read and stored as bfloat16: errors are those of one rounding each."""
    shapes = [(17, 40, 23, 30), (64, 64, 56, 56), (256, 96, 14, 13)]
    done = subprocess.run(
        [sys.executable, "-c", CHAIN.format(shapes=shapes)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "MPSCNN_IMPL": "winograd"},
    )
    assert done.stderr.count("mpscnn dispatch: convolve: winograd\n") == 2 * 3 * len(shapes)
    errors = np.array(done.stdout.split(), np.float64).reshape(len(shapes), 2, 2)
    assert (errors[:, 0] < 3e-6).all()
    assert (errors[:, 1] < (0.016, 0.006)).all()
    assert (errors[:, 1] > 1e-4).all()  # of float32, they would test nothing


def test_infinity_and_nan() -> None:
    """They stay within the tile of 4 x 4 results that reads them, and do not vanish."""
    weights = np.ones((64, 64, 3, 3), np.float32)
    layer = mpscnn.Convolution(weights, padding=1)
    for value in (np.inf, np.nan):
        x = np.ones((1, 56, 56, 64), np.float32)
        x[0, 9, 10, 5] = value
        y = layer(x)[0]
        assert not np.isfinite(y[8:11, 9:12]).any()
        y[8:12, 8:12] = 0
        assert np.isfinite(y).all()


@pytest.mark.parametrize("batch", [4, 9])
def test_weights_of_a_training_step(batch: int) -> None:
    """Weights in place are transformed at each step: by panels for 64 tiles, all at once for 144."""
    torch = pytest.importorskip("torch")
    shape = (batch, 192, 16, 16)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(192, 200, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(200, 256, 3, padding=1),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(256, 4),
    )
    optimizer = mpscnn.OptimizerStochasticGradientDescent(0.5)
    trainer = mpscnn.Trainer(module, input_shapes=shape, optimizer=optimizer)
    x, labels = np.random.default_rng(0).standard_normal(shape, dtype=np.float32), np.arange(batch) % 4
    losses = [trainer.step(x, labels).loss for _ in range(2)]
    exact = module.double()
    descent = torch.optim.SGD(exact.parameters(), lr=0.5)
    for loss in losses:
        descent.zero_grad()
        expected = torch.nn.functional.cross_entropy(exact(torch.from_numpy(x).double()), torch.from_numpy(labels))
        expected.backward()
        descent.step()
        assert abs(loss - expected.item()) < 1e-5
    found = trainer.state_dict()
    for name, parameter in exact.state_dict().items():
        difference = np.abs(found[name] - parameter.numpy()).max() / np.abs(parameter.numpy()).max()
        assert difference < 2e-5, (name, difference)


STEP = """
import sys, numpy, torch, mpscnn
for batch, h, w, channels in {shapes}:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(channels * h * w, 4))
    optimizer = mpscnn.OptimizerStochasticGradientDescent(0.1)
    trainer = mpscnn.Trainer(module, input_shapes=(batch, channels, h, w), optimizer=optimizer)
    print("shape", channels, h, file=sys.stderr, flush=True)
    trainer.step(numpy.zeros((batch, channels, h, w), numpy.float32), numpy.arange(batch) % 4)
"""


def test_choice_for_weights_of_a_training_step() -> None:
    """Transforming weights at each step takes as long as 36 tiles: more than 8 tiles save."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", STEP.format(shapes=[(8, 4, 4, 512), (16, 16, 16, 256)])],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | {"MPSCNN_TRACE": "dispatch", "OMP_NUM_THREADS": "2"},
    )
    assert first_choices(done.stderr) == ["primitive", "winograd"]
    assert chosen([(8, 4, 4, 512, 512)]) == ["winograd"]  # transformed once
