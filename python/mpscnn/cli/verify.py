# SPDX-License-Identifier: Apache-2.0
"""mpscnn verify: comparison of a model with another program, layer by layer."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ..verify import verify as compare
from . import options
from .console import progress, say, stdout, table, write_json
from .models import load, torch_module


class Against(str, enum.Enum):
    """Other programs."""

    onnxruntime = "onnxruntime"
    reference = "reference"
    torch = "torch"
    kernels = "kernels"


def verify(
    model: options.Model,
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    against: Annotated[
        Against | None,
        typer.Option(
            help="onnxruntime, or reference (the package onnx, in NumPy), for .onnx files; torch, with --torch;"
            " kernels, one by one. Default: onnxruntime for .onnx, torch with --torch, otherwise kernels.",
            show_default=False,
        ),
    ] = None,
    torch: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE:CALLABLE",
            help="Makes the module for --against torch, which takes MODEL's weights if MODEL is a file of weights.",
            show_default=False,
        ),
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input", exists=True, dir_okay=False, help="A .npy array for the only input.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs, standard normal numbers.")] = 0,
    batch: Annotated[
        int | None,
        typer.Option(callback=options.within(1), help="Batch size; default: that of the shape.", show_default=False),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            callback=options.within(0),
            help="Max difference over the max magnitude of a layer's result; default 1e-4, for float16 2e-2, with"
            " --reduced-precision 1e-1.",
            show_default=False,
        ),
    ] = None,
    dtype: options.Precision = options.DType.float32,
    reduced_precision: options.ReducedPrecision = False,
    device: options.Device = None,
    optimize: Annotated[
        bool,
        typer.Option(
            "--optimize/--no-optimize", help="Optimized kernels, or one per node, so that all nodes can be compared."
        ),
    ] = True,
    every: Annotated[bool, typer.Option("--all", help="Show all layers, not only the first that differ.")] = False,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Compare the results of a model's layers with another program; exit status 1 if they differ."""
    is_onnx = model.suffix.lower() == ".onnx"
    chosen = against or (Against.torch if torch else Against.onnxruntime if is_onnx else Against.kernels)
    if chosen in (Against.onnxruntime, Against.reference) and not is_onnx:
        raise typer.BadParameter(f"{chosen.value} reads .onnx, not {model.suffix}.", param_hint="--against")
    if chosen is Against.torch and torch is None:
        raise typer.BadParameter("torch needs a module: --torch torchvision.models:resnet50.", param_hint="--against")
    loaded = load(
        model,
        input_shape,
        architecture=architecture,
        option=option,
        dtype=dtype.value,
        reduced_precision=reduced_precision,
        optimize=optimize,
        device=device,
    )
    if input_ is None:
        arrays = loaded.random_arrays(seed, batch)
    elif len(loaded.network.inputs) == 1:
        arrays = {next(iter(loaded.network.inputs)): np.load(input_, allow_pickle=False).astype(np.float32)}
    else:
        raise typer.BadParameter(
            f"there are {len(loaded.network.inputs)} inputs ({', '.join(loaded.network.inputs)}).", param_hint="--input"
        )
    other = torch_module(torch, model) if chosen is Against.torch and torch else str(model)
    with progress(f"comparing with {chosen.value}"):
        found = compare(loaded.network, chosen.value, arrays, model=other, tolerance=tolerance)
    if json:
        write_json({"model": model, **found.to_dict()})
    else:
        first = found.first
        shown = found.rows
        if not every and first is not None:
            place = found.rows.index(first)
            shown = found.rows[max(0, place - 2) : place + 6]
        elif not every:
            worst = sorted(found.rows, key=lambda row: -row.relative)[:5]
            shown = [row for row in found.rows if row in worst or not row.kernel]
        rows = [
            (
                "differs" if row.differs else "",
                row.name,
                row.kernel or "output",
                row.reference,
                "x".join(map(str, row.shape)),
                f"{row.difference:.1e}",
                f"{row.magnitude:.1e}",
                f"{row.relative:.1e}",
            )
            for row in shown
        ]
        header = ("", "layer", "kernel", found.against, "shape", "difference", "magnitude", "relative")
        stdout().print(table(header, rows, right=3, less_important=(found.against, "magnitude", "shape")))
        if first is not None:
            origin = f", from {first.origin}" if first.origin else ""
            say(
                f'The first that differs is "{first.name}" ({first.kernel or "output"}{origin}):'
                f" by {first.relative:.1e}, tolerance {found.tolerance:.0e}."
            )
        elif found.rows:
            rest = f"; without a counterpart: {len(found.unmatched)}" if found.unmatched else ""
            say(f"{len(found.rows)} results agree within {found.tolerance:.0e}{rest}.")
        else:
            say("Nothing could be compared: no layer has a counterpart.")
    if not found.agrees:
        raise typer.Exit(1)
