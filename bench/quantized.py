# SPDX-License-Identifier: Apache-2.0
"""Networks of 8-bit numbers beside float32 and ONNX Runtime: ``python -m bench quantized``.

The networks are those of the tests, with seeded weights. ONNX Runtime's `quantize_static` writes a file in QDQ form,
with steps for each output, which both programs run; `mpscnn.quantize` takes the same two images of normal noise. All
run one image with as many threads, in turn. Also measured: the ratio of the results to their difference from ONNX
Runtime's float32, in decibels, the mean of some images. Seeded weights amplify rounding: those of trained networks do
so less.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mpscnn
from mpscnn import benchmarking
from mpscnn.benchmarking import Contestant

from . import contestants, networks

NETWORKS = (
    "efficientnet_b0",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "squeezenet1_1",
    "densenet121",
    "inception_v3",
    "vgg16",
)
IMAGES = 8  # whose results are compared
CALIBRATION = 2  # images; those of quantized_support
FLOAT32 = "mpscnn float32"

Array = NDArray[np.float32]


def _images(shape: tuple[int, int, int], count: int, seed: int = 0) -> list[Array]:
    return [np.random.default_rng(seed + i).standard_normal((1, *shape)).astype(np.float32) for i in range(count)]


def _runtime(path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _programs(name: str, folder: Path) -> dict[str, Any]:
    """Return functions of an image by name; the last one is the reference."""
    shape = networks.shape_of(name)
    module = networks._module(name)
    import torch
    from onnxruntime.quantization import QuantFormat

    from importing.quantized_support import quantized

    quantized(module, torch.zeros(1, *shape), folder, QuantFormat.QDQ)
    exact = folder / "float32.onnx"
    exact.write_bytes(contestants.onnx(module, shape))
    threads = mpscnn.get_num_threads()
    plain = mpscnn.load(exact, input_shapes={"x": (1, *shape)})
    sessions = {path: _runtime(path, threads) for path in (folder / "small.onnx", exact)}

    def runtime(path: Path) -> Any:
        return lambda x: sessions[path].run(None, {"x": x})[0]

    return {
        "mpscnn, quantize_static": mpscnn.load(folder / "small.onnx", input_shapes={"x": (1, *shape)}),
        "mpscnn.quantize": mpscnn.quantize(plain, _images(shape, CALIBRATION)),
        FLOAT32: plain,
        "onnxruntime, quantize_static": runtime(folder / "small.onnx"),
        "onnxruntime float32": runtime(exact),
    }


def _contestant(name: str, program: Callable[[Array], Any], x: Array) -> Contestant:
    return Contestant(name, "", "float32", lambda: [program(x)])


def _decibels(exact: list[Array], results: list[Array]) -> float:
    ratios = [np.square(a).sum() / np.square(a - b).sum() for a, b in zip(exact, results, strict=True)]
    return float(np.mean(10 * np.log10(ratios)))


def run(seconds: float = 1.0, case: str = "") -> list[dict[str, Any]]:
    """Return a dict per network: `seconds`, `least`, `speedup` over float32 and `decibels` by program."""
    rows = []
    for name in NETWORKS:
        if case not in name:
            continue
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            programs = _programs(name, Path(folder))
            images = _images(networks.shape_of(name), IMAGES, seed=100)
            results = {key: [np.asarray(program(x), np.float64) for x in images] for key, program in programs.items()}
            exact = results["onnxruntime float32"]
            players = [_contestant(key, program, images[0]) for key, program in programs.items()]
            # Results were compared already; a max difference says little about noise.
            compared = benchmarking.compare(name, 1, players, seconds, tolerance=np.inf)
        own = {one.name: one for one in compared.measured}
        rows.append(
            {
                "case": name,
                "measured": {
                    key: {
                        "seconds": one.seconds,
                        "least": one.least,
                        "speedup": own[FLOAT32].seconds / one.seconds,
                        "least_speedup": own[FLOAT32].least / one.least,
                        "decibels": None if key.endswith("float32") else _decibels(exact, results[key]),
                    }
                    for key, one in own.items()
                },
            }
        )
    return rows
