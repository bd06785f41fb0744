# SPDX-License-Identifier: Apache-2.0
"""Objects for tests of arguments: those whose methods are called, and one that is wrong for every parameter."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpscnn
from support import random

KERNELS = mpscnn.kernels.KERNELS
CLASSES = {name: value for name in mpscnn.__all__ if inspect.isclass(value := getattr(mpscnn, name))}
MODULES = {name: value for name in mpscnn.__all__ if inspect.ismodule(value := getattr(mpscnn, name))}

EXCEPTIONS = {name for name, kind in CLASSES.items() if issubclass(kind, BaseException)}
"""Raised by the package, not made by users; Python completes them in __new__."""


BASES = {"BinaryKernel", "GradientKernel", "UnaryKernel"}
"""Between Kernel and the kernels: they have only parameters of the table, and the window of one source."""

CANNOT_BE_MADE = {"DeviceArray", "Optimizer", "OptimizerState"}
"""Abstract: other objects make them."""


class Stranger:
    """An object that no parameter accepts."""

    def __repr__(self) -> str:
        return "<a stranger>"


X = (1, 5, 7, 4)
W = (8, 4, 3, 3)
BOXES = (1, 2, 3, 7)


def commands() -> mpscnn.CommandBuffer:
    return mpscnn.CommandBuffer()


def image() -> mpscnn.Image:
    return mpscnn.Image.from_array(random(X))


def temporary() -> mpscnn.Image:
    return mpscnn.Image.temporary(commands(), X)


def labels() -> mpscnn.LossLabels:
    return mpscnn.LossLabels(random(X))


def graph() -> mpscnn.Graph:
    made = mpscnn.Graph()
    x = made.input("x", channels=4)
    made.output(made.add("NeuronReLU", x, name="relu"), "y")
    return made


def node() -> mpscnn.nodes.FilterNode:
    return mpscnn.nodes.NeuronReLUNode(mpscnn.nodes.ImageNode("x"))


METAL_SOURCE = """
#include <metal_stdlib>
using namespace metal;
constant float value [[function_constant(0)]];
kernel void fill(texture2d_array<float, access::write> y [[texture(0)]], uint3 gid [[thread_position_in_grid]]) {
    y.write(float4(value), gid.xy, gid.z);
}
"""


def metal_function() -> mpscnn.MetalFunction:
    return mpscnn.metal_function(METAL_SOURCE, "fill", constants={"value": 1.0})


LAYERS = [("conv", "Conv2d", {"in_channels": 4, "out_channels": 3, "kernel_size": (5, 7)})]
CHECKPOINT = "checkpoint"


def trainer() -> mpscnn.Trainer:
    return mpscnn.Trainer(LAYERS, input_shapes=(2, 4, 5, 7))


def batch() -> dict[str, Any]:
    return {"x": random((2, 4, 5, 7)), "labels": [0, 2]}


def saved() -> Path:
    folder = Path(SCRATCH.name) / CHECKPOINT
    trainer().save(folder)
    return folder


ADAM = mpscnn.OptimizerAdam()
"""A state belongs to one optimizer."""

SCRATCH = tempfile.TemporaryDirectory()
"""Folder for written files."""

# Objects whose methods are called, by class.
OWNERS: dict[str, Callable[[], Any]] = {
    "BatchNormalizationState": lambda: mpscnn.BatchNormalizationState(4),
    "Buffer": lambda: mpscnn.Buffer(4096),
    "CommandBuffer": commands,
    "DataSource": mpscnn.DataSource,
    "Device": mpscnn.Device,
    "DeviceArray": lambda: mpscnn.Image((1, 2, 2, 4), device=mpscnn.Device("cuda-host"))._device_array(),
    "ForwardLoss": lambda: mpscnn.ForwardLoss("huber"),
    "Graph": graph,
    "Image": image,
    "ImageConversion": mpscnn.ImageConversion,
    "ImageCopyToMatrix": mpscnn.ImageCopyToMatrix,
    "Kernel": mpscnn.NeuronReLU,
    "InitialGradient": mpscnn.InitialGradient,
    "Loss": lambda: mpscnn.Loss("huber"),
    "LossGradient": lambda: mpscnn.LossGradient("huber"),
    "LossLabels": labels,
    "MPSNNGraph": lambda: mpscnn.MPSNNGraph(node()),
    "Matrix": lambda: mpscnn.Matrix(3, 5),
    "MatrixCopyToImage": mpscnn.MatrixCopyToImage,
    "MetalFunction": metal_function,
    "Network": lambda: mpscnn.Network(graph()),
    "NormalizationDataSource": mpscnn.NormalizationDataSource,
    "Optimizer": lambda: ADAM,
    "OptimizerState": lambda: mpscnn.OptimizerAdam().state_for(mpscnn.Buffer(8)),
    "Trainer": trainer,
    "YOLOLoss": lambda: mpscnn.YOLOLoss([[1, 2]]),
    "profile": mpscnn.profile,
}
