# SPDX-License-Identifier: Apache-2.0
"""Whole networks against PyTorch, ONNX Runtime and OpenVINO: ``python -m bench networks [--plot FILE]``.

The networks are those of the tests, with seeded weights. PyTorch runs the module in inference mode, channels_last; the
others run an ONNX file that PyTorch exported. All use their default number of threads. See mpscnn.benchmarking for
timing and comparison. Programs that are not installed are listed.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import mpscnn
from mpscnn import benchmarking
from mpscnn.benchmarking import Comparison, Contestant

NETWORKS = (
    "resnet50",
    "resnet18",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "vgg16",
    "densenet121",
    "squeezenet1_1",
    "inception_v3",
    "unet",
    "espcn",
    "style_transfer",
    "yolo_tiny",
)
BATCHES = (1, 8)
LARGE_BATCHES = (1,)  # of networks whose results are images
SHAPE = (3, 224, 224)
SHAPES = {
    "inception_v3": (3, 299, 299),
    "unet": (3, 256, 256),
    "espcn": (1, 540, 960),
    "style_transfer": (3, 512, 512),
    "yolo_tiny": (3, 416, 416),
}
LARGE = ("unet", "espcn", "style_transfer", "yolo_tiny")
# Seeded weights amplify rounding: in EfficientNet-B0, PyTorch's float32 differs from float64 by up to 0.003 of the
# largest result, and its autocast by up to 0.5. Wrong kernels differ by more than 1.
TOLERANCE = 0.01
REDUCED_TOLERANCE = 0.7


def _module(name: str) -> Any:
    """Return a network of the tests, in plain PyTorch."""
    tests = str(Path(__file__).resolve().parent.parent / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    from architectures import build

    return build(name, seed=0)


def _shape(name: str) -> tuple[int, int, int]:
    return SHAPES.get(name, SHAPE)


def _onnx(module: Any, shape: tuple[int, int, int] = SHAPE) -> bytes:
    """Return the module as an ONNX file, for any batch."""
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the newer exporter needs another package
        torch.onnx.export(
            module,
            (torch.zeros(1, *shape),),
            file,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )
    return file.getvalue()


def _contestants(
    networks: dict[str, mpscnn.Network], module: Any, shape: tuple[int, int, int], batch: int
) -> tuple[list[Contestant], dict[str, str]]:
    rng = np.random.default_rng(0)
    channels, height, width = shape
    # Channels innermost in memory: channels_last in PyTorch, no copy here. The others copy the values to NCHW.
    x = rng.standard_normal((batch, height, width, channels), dtype=np.float32).transpose(0, 3, 1, 2)
    own = [benchmarking.ours(network, {next(iter(network.inputs)): x}, name=name) for name, network in networks.items()]
    arrays = {"x": x}
    file: list[bytes] = []

    def onnx() -> bytes:
        if not file:
            file.append(_onnx(module, shape))
        return file[0]

    makers: dict[str, Callable[[], Contestant]] = {
        "torch": lambda: benchmarking.torch_contestant(module, arrays),
        "onnxruntime": lambda: benchmarking.onnxruntime_contestant(onnx(), arrays),
        "openvino": lambda: benchmarking.openvino_contestant(onnx(), arrays),
        "openvino, reduced": lambda: benchmarking.openvino_contestant(onnx(), arrays, reduced_precision=True),
    }
    peers, absent = benchmarking.peers(makers)
    return [*own, *peers], absent


def run(seconds: float = 1.0, case: str = "", plot: str = "") -> list[dict[str, Any]]:
    """Return comparisons as dicts. Each takes about `seconds`, at least nine rounds. `case` is a part of a name."""
    comparisons: list[Comparison] = []
    for name in NETWORKS:
        batches = LARGE_BATCHES if name in LARGE else BATCHES
        wanted = [batch for batch in batches if case in f"{name}, batch {batch}"]
        if not wanted:
            continue
        module, shape = _module(name), _shape(name)
        networks = {
            label: mpscnn.load(module, input_shapes=(1, *shape), allow_reduced_precision=reduced)
            for label, reduced in (("mpscnn", False), ("mpscnn, reduced", True))
        }
        for batch in wanted:
            contestants, absent = _contestants(networks, module, shape, batch)
            comparisons.append(
                benchmarking.compare(
                    name,
                    batch,
                    contestants,
                    seconds,
                    absent=absent,
                    tolerance=TOLERANCE,
                    reduced_tolerance=REDUCED_TOLERANCE,
                )
            )
    if plot:
        benchmarking.plot(comparisons, plot, title=mpscnn.Device().name)
    return [comparison.to_dict() for comparison in comparisons]
