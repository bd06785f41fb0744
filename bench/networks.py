# SPDX-License-Identifier: Apache-2.0
"""Whole networks against other programs: ``python -m bench networks [--busy] [--markdown]``.

The networks are those of the tests, with seeded weights. Each program runs alone in a process of its own; see
contestants.py. PyTorch runs the module, channels_last; ONNX Runtime and OpenVINO run an ONNX file that PyTorch
exported; ncnn and LiteRT run files of their converters. All use as many threads as there are processors. See
mpscnn.benchmarking for timing and comparison. Programs that are not installed are listed, with the reason.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mpscnn
from mpscnn import benchmarking

from . import contestants

SHAPE = (3, 224, 224)


class Case(NamedTuple):
    """A network of the tests, the shape of an image (channels, height, width), and its batches."""

    title: str
    shape: tuple[int, int, int] = SHAPE
    batches: tuple[int, ...] = (1, 8, 32)
    module: str = ""  # its name in the tests, if that is not the case's


LARGE = (1,)  # of networks whose results are images
NETWORKS = {
    "resnet50": Case("ResNet-50"),
    "resnet18": Case("ResNet-18"),
    "mobilenet_v2": Case("MobileNetV2"),
    "mobilenet_v3_large": Case("MobileNetV3"),
    "efficientnet_b0": Case("EfficientNet-B0"),
    "vgg16": Case("VGG-16"),
    "densenet121": Case("DenseNet-121"),
    "squeezenet1_1": Case("SqueezeNet 1.1"),
    "inception_v3": Case("Inception v3, 299", (3, 299, 299)),
    "unet": Case("U-Net 256", (3, 256, 256), LARGE),
    "espcn": Case("ESPCN, 540 x 960, x 3", (1, 540, 960), LARGE),
    "espcn_1080": Case("ESPCN, 1080 x 1920, x 3", (1, 1080, 1920), LARGE, "espcn"),
    "style_transfer": Case("style transfer 512", (3, 512, 512), LARGE),
    "yolo_tiny": Case("YOLO tiny, 416", (3, 416, 416), LARGE),
}
OURS = ("mpscnn", "mpscnn, reduced")
PEERS = ("torch", "torch.compile", "onnxruntime", "openvino", "openvino, reduced", "ncnn", "ncnn, reduced", "litert")
THROUGHPUT = (
    "mpscnn, throughput",
    "mpscnn, reduced, throughput",
    "openvino, throughput",
    "openvino, reduced, throughput",
)
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


def shape_of(name: str) -> tuple[int, int, int]:
    """Return the shape of an image of a network of the tests."""
    return NETWORKS[name].shape if name in NETWORKS else SHAPE


def run(
    seconds: float = 1.0,
    case: str = "",
    plot: str = "",
    *,
    peers: Sequence[str] = PEERS,
    busy: bool = False,
    quiet: bool = True,
) -> list[dict[str, Any]]:
    """Return comparisons as dicts. Each takes about `seconds`, at least nine rounds. `case` is a part of a name.

    `busy` adds as many busy loops as processors.
    """
    rows: list[dict[str, Any]] = []
    loops = benchmarking.processors() if busy else 0
    for name, one in NETWORKS.items():
        for batch in one.batches:
            if case in f"{name}, batch {batch}":
                rows.append(compare(name, batch, [*OURS, *peers], seconds, loops=loops, quiet=quiet))
    if plot:
        benchmarking.plot([_comparison(row) for row in rows], plot, title=mpscnn.Device().name)
    return rows


def _comparison(row: dict[str, Any]) -> benchmarking.Comparison:
    """Return a row of contestants.compare() without what that adds."""
    known = [field.name for field in dataclasses.fields(benchmarking.Measured)]
    measured = [benchmarking.Measured(**{key: one[key] for key in known}) for one in row["measured"]]
    return benchmarking.Comparison(row["case"], row["batch"], measured, row["absent"])


def compare(
    name: str, batch: int, names: Sequence[str], seconds: float, *, loops: int = 0, quiet: bool = True
) -> dict[str, Any]:
    """Return a network's comparison, see contestants.compare()."""
    one = NETWORKS[name]
    return contestants.compare(
        _module(one.module or name),
        name,
        one.shape,
        batch,
        list(names),
        seconds,
        loops=loops,
        tolerance=TOLERANCE,
        reduced_tolerance=REDUCED_TOLERANCE,
        quiet=quiet,
    )


# ---- tables

COLUMNS = {
    "mpscnn": "mpscnn",
    "torch": "torch",
    "torch.compile": "torch.compile",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "ncnn": "ncnn",
    "litert": "LiteRT",
}
REDUCED_COLUMNS = {"mpscnn, reduced": "mpscnn, bfloat16", "openvino, reduced": "OpenVINO", "ncnn, reduced": "ncnn"}


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}" if seconds < 0.00995 else f"{seconds * 1e3:.1f}"


def ratio(measured: dict[str, Any], ours: str, theirs: Sequence[str]) -> float:
    """Return the time of the fastest of `theirs` divided by that of `ours`; medians of the ratios within a round."""
    return float(min(measured[name]["ratio"] for name in theirs) / measured[ours]["ratio"])


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of a table in milliseconds, the header first: float32, then bfloat16."""
    present = {one["name"] for row in rows for one in row["measured"]}
    exact = [name for name in COLUMNS if name in present]
    reduced = [name for name in REDUCED_COLUMNS if name in present]
    header = ["network"]
    for names, columns in ((exact, COLUMNS), (reduced, REDUCED_COLUMNS)):
        if len(names) > 1:
            header += [*(columns[name] for name in names), "best peer / mpscnn"]
    lines = [header]
    for row in rows:
        measured = {one["name"]: one for one in row["measured"]}
        cells = [NETWORKS[row["case"]].title]
        for names in (exact, reduced):
            ours, *theirs = names
            if not theirs:
                continue
            cells += [milliseconds(measured[name]["seconds"]) if name in measured else "--" for name in names]
            theirs = [name for name in theirs if name in measured]
            cells.append(f"{ratio(measured, ours, theirs):.2f}" if theirs else "--")
        lines.append(cells)
    return lines


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table for each batch, with the geometric means of the ratios."""
    text = []
    for batch in sorted({row["batch"] for row in rows}):
        header, *lines = table([row for row in rows if row["batch"] == batch])
        text += [f"Batch {batch}:", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        text += [f"| {' | '.join(line)} |" for line in lines]
        has_means = False
        for place in [at for at, name in enumerate(header) if "/" in name]:
            products = "bfloat16" if REDUCED_COLUMNS["mpscnn, reduced"] in header[:place] else "float32"
            found = [float(line[place]) for line in lines if line[place] != "--"]
            if found:
                text += [] if has_means else [""]
                has_means = True
                text.append(f"{products}: geometric mean {statistics.geometric_mean(found):.2f}, min {min(found):.2f}.")
        text.append("")
    return "\n".join(text)
