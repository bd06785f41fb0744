# SPDX-License-Identifier: Apache-2.0
"""mpscnn convert: conversion of models to a file that is mapped into memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..layers import bytes_text, layer_table
from . import options
from .console import pairs, progress, stdout, table, write_json
from .info import LESS_IMPORTANT
from .models import load


def convert(
    model: options.Model,
    out: Annotated[Path, typer.Argument(help="The file to write, .mpscnn.", show_default=False)],
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    dtype: options.Precision = options.DType.float32,
    optimize: options.Optimize = True,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Write a model as .mpscnn: kernels with weights in their own order, batch normalization folded."""
    if out.suffix.lower() != ".mpscnn":
        raise typer.BadParameter(f'"{out}" does not end in .mpscnn.', param_hint="OUT")
    start = time.perf_counter()
    loaded = load(model, input_shape, architecture=architecture, option=option, dtype=dtype.value, optimize=optimize)
    with progress(f"writing {out.name}"):
        loaded.network.save(out)
    seconds = time.perf_counter() - start
    sizes = {"model_bytes": _size(model), "out_bytes": _size(out)}
    try:
        layers = layer_table(loaded.network, loaded.input_shapes())
    except ValueError:  # free sizes, which the file does not need
        layers = None
    if json:
        described = layers.to_dict() if layers is not None else {"layers": None, "totals": None}
        write_json({"model": model, "out": out, "dtype": dtype.value, "seconds": seconds, **sizes, **described})
        return
    show = stdout()
    if layers is not None:
        header, rows, totals = layers.rows()
        show.print(table(header, rows, totals, right=3, less_important=LESS_IMPORTANT))
    show.print(
        pairs(
            [
                (str(model), bytes_text(sizes["model_bytes"])),
                (str(out), bytes_text(sizes["out_bytes"])),
                ("kernels", str(len(loaded.network.graph.nodes))),
                ("seconds", f"{seconds:.2f}"),
            ]
        )
    )


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size
