# SPDX-License-Identifier: Apache-2.0
"""mpscnn quantize: weights and values of 8 bits, with ranges from a folder of pictures."""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import quantization
from . import options
from .console import pairs, progress, stdout, write_json
from .models import load
from .run_command import _IMAGENET, Prepare, _arrays, _files


class Method(str, enum.Enum):
    """Range of a value."""

    minmax = "minmax"
    percentile = "percentile"


def quantize(
    model: options.Model,
    pictures: Annotated[
        Path, typer.Argument(exists=True, help="Folder of pictures or .npy arrays, or one of them.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write, .mpscnn.", show_default=False)],
    method: Annotated[
        Method, typer.Option(help="Range of a value: all that were seen, or without the rarest ones.")
    ] = Method.minmax,
    percentile: Annotated[
        float,
        typer.Option(callback=options.within(50, 100), help="Share of the values that each end of a range keeps."),
    ] = 99.99,
    most: Annotated[
        int | None,
        typer.Option("--images", callback=options.within(1), help="Number of pictures to use.", show_default=False),
    ] = None,
    preset: options.PresetName = None,
    size: options.Size = None,
    resize: options.Resize = None,
    crop: options.Crop = None,
    mean: options.Mean = None,
    std: options.Std = None,
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Write a model with weights and values of 8 bits, and show how its results differ on the pictures."""
    if output.suffix.lower() != ".mpscnn":
        raise typer.BadParameter(f'"{output}" does not end in .mpscnn.', param_hint="--output")
    chosen: dict[str, Any] = dict(_IMAGENET) if preset is options.Preset.imagenet else {}
    files = list(_files([pictures]))[:most]
    network = load(
        model,
        input_shape,
        architecture=architecture,
        option=option,
        mean=options.numbers(mean, "--mean") or chosen.get("mean"),
        std=options.numbers(std, "--std") or chosen.get("std"),
    ).network
    if len(network.inputs) != 1:
        names = ", ".join(network.inputs)
        raise ValueError(f"quantize takes models of one input; this one has {len(network.inputs)} ({names}).")
    stretched = options.pair(size, "--size")
    prepare = Prepare(
        stretched,
        resize or (chosen["resize"][0] if chosen and stretched is None else None),
        options.pair(crop, "--crop") or (chosen.get("crop") if stretched is None else None),
        next(iter(network.inputs.values())).channels or 3,
    )
    start = time.perf_counter()
    samples = [array for _, array in _arrays(network, files, prepare)]
    rounds = 1 if method is Method.minmax else 2
    with progress("finding ranges", total=rounds * len(samples)) as done:
        small = quantization.quantize(
            network,
            samples,
            method=method.value,
            percentile=percentile,
            progress=lambda number, _: done(number),
        )
    with progress("comparing results"):
        found = quantization.difference(network, small, samples)
    small.save(output)
    seconds = time.perf_counter() - start
    if json:
        write_json({"model": model, "out": output, "method": method.value, "seconds": seconds, **found.to_dict()})
        return
    top1 = [] if found.same_top1 is None else [("same first class", f"{100 * found.same_top1:.1f} %")]
    stdout().print(
        pairs(
            [
                (str(output), f"{sum(bool(node.result_dtype) for node in small.graph.nodes)} values of 8 bits"),
                ("pictures", str(found.images)),
                ("max difference", f"{found.max_difference:.4g} of {found.max_result:.4g}"),
                ("mean difference", f"{found.mean_difference:.4g}"),
                *top1,
                ("seconds", f"{seconds:.2f}"),
            ]
        )
    )
