# SPDX-License-Identifier: Apache-2.0
"""A small ResNet: PyTorch's loss curve, parameters and statistics, and inference with the trained network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_support import Layers, Theirs, arrays, assert_same_parameters, randomize, sgd

import mpscnn
from support import assert_close, random

SHAPE = (7, 3, 19, 15)
CLASSES = 5
STEPS = 10


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = Block(8, 8, 1)
        self.layer2 = nn.Sequential(Block(8, 12, 2), Block(12, 12, 1))
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def conv(name: str, source: str, inputs: int, outputs: int, size: int, stride: int) -> list[Any]:
    """Return a convolution and its batch normalization."""
    options = {"in_channels": inputs, "out_channels": outputs, "kernel_size": size, "stride": stride, "bias": False}
    return [
        (name, "Conv2d", {**options, "padding": size // 2, "inputs": [source]}),
        (f"{name}_bn", "BatchNorm2d", {"num_features": outputs}),
    ]


def block(name: str, source: str, inputs: int, outputs: int, stride: int) -> list[Any]:
    layers = [
        *conv(f"{name}_a", source, inputs, outputs, 3, stride),
        (f"{name}_relu", "ReLU"),
        *conv(f"{name}_b", f"{name}_relu", outputs, outputs, 3, 1),
    ]
    if stride != 1 or inputs != outputs:
        layers += conv(f"{name}_c", source, inputs, outputs, 1, stride)
        source = f"{name}_c_bn"
    return [*layers, (f"{name}_sum", "Add", {"inputs": [f"{name}_b_bn", source]}), (name, "ReLU")]


LAYERS = [
    *conv("conv1", "input", 3, 8, 3, 1),
    ("relu", "ReLU"),
    ("maxpool", "MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    *block("block1", "maxpool", 8, 8, 1),
    *block("block2", "block1", 8, 12, 2),
    *block("block3", "block2", 12, 12, 1),
    ("avgpool", "AdaptiveAvgPool2d", {"output_size": 1}),
    ("flatten", "Flatten"),
    ("fc", "Linear", {"in_features": 12, "out_features": CLASSES}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["module", "layers"])
def test_loss_curve(kind: str, dtype: torch.dtype) -> None:
    """In float32 the module is trained in the memory given to the trainer, which copies it."""
    module = randomize(ResNet() if kind == "module" else Layers(LAYERS)).eval()
    before = arrays(module)
    if kind == "module":
        trainer = mpscnn.Trainer(module, input_shapes=SHAPE, optimizer=sgd())
    else:
        trainer = mpscnn.Trainer(LAYERS, module.state_dict(), input_shapes=SHAPE, optimizer=sgd())
    theirs = Theirs(module, dtype=dtype)
    labels = np.arange(SHAPE[0]) % CLASSES
    expected, found = [], []
    for step in range(STEPS):
        x = random(SHAPE, seed=step % 3)
        expected.append(theirs.step(x, labels))
        found.append(trainer.step(x, labels).loss)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found[-1] < found[0] / 2
    assert_same_parameters(trainer.state_dict(), module, before, 1e-3)
    x = random((3, *SHAPE[1:]), seed=9)
    with torch.no_grad():
        values = module.eval()(theirs.tensor(x)).numpy()
    assert_close(trainer.network()(x), values, 1e-4)


def test_the_model_is_not_changed() -> None:
    module = randomize(ResNet()).eval()
    before = arrays(module)
    trainer = mpscnn.Trainer(module, input_shapes=SHAPE, optimizer=sgd())
    trainer.step(random(SHAPE), np.zeros(SHAPE[0], int)).wait()
    for name, value in arrays(module).items():
        np.testing.assert_array_equal(value, before[name])
    given = {name: value.copy() for name, value in arrays(randomize(Layers(LAYERS))).items()}
    kept = {name: value.copy() for name, value in given.items()}
    trainer = mpscnn.Trainer(LAYERS, given, input_shapes=SHAPE, optimizer=sgd())
    trainer.step(random(SHAPE), np.zeros(SHAPE[0], int)).wait()
    for name, value in given.items():
        np.testing.assert_array_equal(value, kept[name])
