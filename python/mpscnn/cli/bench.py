# SPDX-License-Identifier: Apache-2.0
"""mpscnn bench: times of a model compared with PyTorch, ONNX Runtime and OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import mpscnn

from .. import benchmarking
from ..benchmarking import Comparison, Contestant, Rates
from . import options
from .console import progress, say, stdout, table, write_json
from .models import Loaded, load, torch_module


def bench(
    model: options.Model,
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    batch: Annotated[str, typer.Option(help="Batch size, or several sizes separated by commas.")] = "1",
    seconds: Annotated[
        float, typer.Option(callback=options.within(0), help="For each batch size, all contestants together.")
    ] = 5.0,
    against: Annotated[
        str, typer.Option(help="torch, onnxruntime, openvino, separated by commas.", show_default=False)
    ] = "",
    torch: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE:CALLABLE",
            help="Makes the module for --against torch, which takes MODEL's weights if MODEL is a file of weights.",
            show_default=False,
        ),
    ] = None,
    dtype: options.Precision = options.DType.float32,
    reduced_precision: Annotated[
        bool, typer.Option("--reduced-precision", help="Also time bfloat16 products, here and in OpenVINO.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAMES",
            help="Device: cuda:0, ...; several, separated by commas, are also timed at once; all: every GPU.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot the times: .png, .svg, .pdf.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Time a model and other programs, interleaved in one run, and show medians; results are compared first."""
    sizes = batches(batch)
    names = [name.strip() for name in against.split(",") if name.strip()]
    for name in names:
        if name not in benchmarking.PEERS:
            raise typer.BadParameter(f'"{name}" is not one of {", ".join(benchmarking.PEERS)}.', param_hint="--against")
    if "torch" in names and torch is None:
        raise typer.BadParameter("torch needs a module: --torch torchvision.models:resnet50.", param_hint="--against")
    devices = device_names(device)
    if len(devices) > 1:
        if names or reduced_precision or plot is not None:
            raise typer.BadParameter(
                "several devices are timed without --against, --reduced-precision and --plot.", param_hint="--device"
            )
        copies = {
            name: load(model, input_shape, architecture=architecture, option=option, dtype=dtype.value, device=name)
            for name in devices
        }
        _bench_devices(model, copies, sizes, seconds, seed, json=json)
        return
    device = devices[0]
    loaded = load(model, input_shape, architecture=architecture, option=option, dtype=dtype.value, device=device)
    reduced = None
    if reduced_precision:
        reduced = load(
            model,
            input_shape,
            architecture=architecture,
            option=option,
            dtype=dtype.value,
            reduced_precision=True,
            device=device,
        )
    module: Any = None
    if "torch" in names and torch is not None:
        module = torch_module(torch, model)
    comparisons = []
    for size in sizes:
        arrays = loaded.random_arrays(seed, size)
        contestants, absent = _contestants(loaded, reduced, names, module, arrays)
        with progress(f"batch {size}: {', '.join(one.name for one in contestants)}", total=1.0) as done:
            comparisons.append(
                benchmarking.compare(model.name, size, contestants, seconds, absent=absent, progress=done)
            )
    for name, reason in {key: value for one in comparisons for key, value in one.absent.items()}.items():
        say(f"without {name}: {reason}")
    machine = benchmarking.machine(loaded.network.device)
    if plot is not None:
        benchmarking.plot(comparisons, plot, title=f"{model.name} on {machine['device']}")
    if json:
        write_json({"model": model, "machine": machine, "comparisons": [one.to_dict() for one in comparisons]})
        return
    say(f"{machine['device']}, {machine['cpus']} processors, load average {machine['load_average']:.1f}")
    show(comparisons)


def show(comparisons: list[Comparison]) -> None:
    """Print the times as a table."""
    rows = [
        (
            str(one.batch),
            measured.name,
            measured.version,
            measured.precision,
            f"{measured.seconds * 1e3:.2f}",
            f"{measured.lower_quartile * 1e3:.2f}-{measured.upper_quartile * 1e3:.2f}",
            f"{measured.least * 1e3:.2f}",
            f"{measured.images_per_second:.1f}",
            f"{measured.ratio:.2f}",
            f"{measured.difference:.0e}",
        )
        for one in comparisons
        for measured in one.measured
    ]
    header = (
        "batch",
        "",
        "version",
        "products",
        "median ms",
        "quartiles",
        "least",
        "images/s",
        "time/ours",
        "difference",
    )
    stdout().print(table(header, rows, right=6))


def device_names(text: str | None) -> list[str | None]:
    """Parse "cuda:0,cuda:1"; "all" is every GPU. Raise ValueError if there is none."""
    if text is None:
        return [None]
    if text == "all":
        return _gpus()
    names: list[str | None] = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names):
        raise typer.BadParameter(f'"{text}" names a device twice.', param_hint="--device")
    return names


def _gpus() -> list[str | None]:
    """Return "cuda:0", ... for the GPUs of NVIDIA's driver. Raise ValueError with the reason if there is none."""
    names: list[str | None] = []
    while True:
        try:
            mpscnn.Device(f"cuda:{len(names)}")
        except ValueError:
            if not names:
                raise
            return names
        names.append(f"cuda:{len(names)}")


def _bench_devices(
    model: Path, copies: dict[str | None, Loaded], sizes: list[int], seconds: float, seed: int, *, json: bool
) -> None:
    """Time the copies of a network on their devices, each alone and all at once."""
    found: dict[int, list[Rates]] = {}
    for size in sizes:
        contestants = []
        for name, loaded in copies.items():
            arrays = channels_innermost(loaded, loaded.random_arrays(seed, size))
            contestants.append(benchmarking.ours(loaded.network, arrays, name=str(name)))
        with progress(f"batch {size}: {', '.join(one.name for one in contestants)}", total=1.0) as done:
            found[size] = benchmarking.compare_together(model.name, size, contestants, seconds / 2, progress=done)
    machines = {str(name): benchmarking.machine(loaded.network.device) for name, loaded in copies.items()}
    if json:
        together = [{"batch": size, "devices": [asdict(one) for one in rates]} for size, rates in found.items()]
        write_json({"model": model, "machines": machines, "together": together})
        return
    for name, machine in machines.items():
        say(f"{name}: {machine['device']}")
    rows = []
    for size, rates in found.items():
        total = Rates("all", sum(one.alone for one in rates), sum(one.together for one in rates))
        for one in [*rates, total]:
            numbers = (f"{one.alone:.1f}", f"{one.together:.1f}", f"{one.together / one.alone:.2f}")
            rows.append((str(size), one.name, *numbers))
    header = ("batch", "device", "images/s", "at once", "ratio")
    stdout().print(table(header, rows, right=3))


def batches(text: str) -> list[int]:
    """Parse "1,8"; raise a usage error for anything else."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f'"{text}" is not whole numbers with commas between them.', param_hint="--batch"
        ) from None
    if min(sizes) < 1:
        raise typer.BadParameter(f"{min(sizes)} is less than the minimum (1).", param_hint="--batch")
    return sizes


def _contestants(
    loaded: Loaded,
    reduced: Loaded | None,
    names: list[str],
    module: Any,
    arrays: dict[str, NDArray[np.float32]],
) -> tuple[list[Contestant], dict[str, str]]:
    makers: dict[str, Callable[[], Contestant]] = {}
    path = loaded.path
    if "torch" in names:
        makers["torch"] = lambda: benchmarking.torch_contestant(module, arrays)
    if "onnxruntime" in names:
        makers["onnxruntime"] = lambda: benchmarking.onnxruntime_contestant(_onnx(path), arrays)
    if "openvino" in names:
        makers["openvino"] = lambda: benchmarking.openvino_contestant(_onnx(path), arrays)
        if reduced is not None:
            makers["openvino, reduced"] = lambda: benchmarking.openvino_contestant(
                _onnx(path), arrays, reduced_precision=True
            )
    found, absent = benchmarking.peers(makers)
    own = [benchmarking.ours(loaded.network, channels_innermost(loaded, arrays))]
    if reduced is not None:
        own.append(benchmarking.ours(reduced.network, channels_innermost(reduced, arrays), name="mpscnn, reduced"))
    return [*own, *found], absent


def channels_innermost(loaded: Loaded, arrays: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return the same arrays with channels innermost in memory, like PyTorch's channels_last."""
    placed = {}
    for name, array in arrays.items():
        layout = loaded.network.inputs[name].layout
        order = [layout.index(letter) for letter in "NHWC" if letter in layout]
        back = np.argsort(order)
        placed[name] = np.ascontiguousarray(array.transpose(order)).transpose(back)
    return placed


def _onnx(path: Path) -> str:
    if path.suffix.lower() != ".onnx":
        raise ValueError(f"it reads .onnx, not {path.suffix}.")
    return str(path)
