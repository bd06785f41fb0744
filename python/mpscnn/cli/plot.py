# SPDX-License-Identifier: Apache-2.0
"""mpscnn plot: diagram of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..plotting import svg
from . import options
from .console import say, write_json
from .models import load


def plot(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The SVG file to write.", show_default=False)],
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    optimize: options.Optimize = True,
    title: Annotated[str | None, typer.Option(help="Heading; default: the file's name.", show_default=False)] = None,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Draw a model: chains of kernels, coloured by family, with names, windows and shapes."""
    if output.suffix.lower() != ".svg":
        raise typer.BadParameter(f'"{output}" does not end in .svg.', param_hint="--output")
    loaded = load(model, input_shape, architecture=architecture, option=option, optimize=optimize)
    picture = svg(loaded.network, loaded.input_shapes(), title=model.name if title is None else title)
    output.write_text(picture, encoding="utf-8")
    if json:
        write_json({"model": model, "output": output, "kernels": len(loaded.network.graph.nodes)})
    else:
        say(f"{output}: {len(loaded.network.graph.nodes)} kernels")
