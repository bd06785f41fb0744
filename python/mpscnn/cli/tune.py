# SPDX-License-Identifier: Apache-2.0
"""mpscnn tune: times the implementations of a model's convolutions and keeps the fastest."""

from __future__ import annotations

from typing import Annotated

import typer

from ..tuning import Tuning
from . import options
from .bench import batches
from .console import progress, say, stdout, table, write_json
from .models import load

# Columns of the table that narrow terminals drop, in this order.
LESS_IMPORTANT = ("others, ms",)


def tune(
    model: options.Model,
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    batch: Annotated[str, typer.Option(metavar="N,N,...", help="Batch sizes.")] = "1",
    rounds: Annotated[int, typer.Option(callback=options.within(1, 10_000), help="Times of each implementation.")] = 20,
    num_threads: Annotated[
        int | None,
        typer.Option(
            "--num-threads",
            callback=options.within(1),
            help="Threads of a call, as of the networks that will use the choices; default: all.",
            show_default=False,
        ),
    ] = None,
    dtype: options.Precision = options.DType.float32,
    reduced_precision: options.ReducedPrecision = False,
    optimize: options.Optimize = True,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Time the implementations of each convolution, and keep the fastest for all processes on this machine."""
    sizes = batches(batch)
    loaded = load(
        model,
        input_shape,
        architecture=architecture,
        option=option,
        dtype=dtype.value,
        reduced_precision=reduced_precision,
        optimize=optimize,
        num_threads=num_threads,
    )
    found: dict[int, Tuning] = {}
    for size in sizes:
        with progress(f"batch {size}", total=rounds) as done:
            found[size] = loaded.network.tune(
                loaded.input_shapes(size), rounds=rounds, progress=lambda count, total, done=done: done(count)
            )
    if json:
        write_json({"model": model, "tunings": [{"batch": size, **one.to_dict()} for size, one in found.items()]})
        return
    for size, tuning in found.items():
        header, rows = tuning.rows()
        if len(sizes) > 1:
            say(f"batch {size}")
        stdout().print(table(header, rows, right=3, less_important=LESS_IMPORTANT))
        changed = tuning.changed
        say(f"{len(changed)} of {len(tuning)} calls have another implementation than the model's")
        if changed and tuning.file is None:
            say("the choices are not kept: the cache's folder cannot be written to")
