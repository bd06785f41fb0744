# SPDX-License-Identifier: Apache-2.0
"""mpscnn trace: encode and execution times of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..profiling import profile
from . import options
from .console import progress, say, stdout, table, write_json
from .models import load


def trace(
    model: options.Model,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The trace to write, .json, for https://ui.perfetto.dev.", show_default=False
        ),
    ],
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    batch: Annotated[
        int | None,
        typer.Option(callback=options.within(1), help="Batch size; default: that of the shape.", show_default=False),
    ] = None,
    runs: Annotated[int, typer.Option(callback=options.within(1), help="Number of runs.")] = 1,
    per_kernel: Annotated[
        bool,
        typer.Option("--per-kernel/--whole", help="One command buffer per kernel, or one for all, at the usual speed."),
    ] = True,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    dtype: options.Precision = options.DType.float32,
    reduced_precision: options.ReducedPrecision = False,
    device: options.Device = None,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Write when each kernel was encoded and when it ran, in Chrome's trace format."""
    loaded = load(
        model,
        input_shape,
        architecture=architecture,
        option=option,
        dtype=dtype.value,
        reduced_precision=reduced_precision,
        device=device,
    )
    arrays = loaded.random_arrays(seed, batch)
    loaded.network(**arrays)  # warm-up: plans, threads and caches
    with progress("running", total=runs) as done, profile(per_kernel=per_kernel) as collected:
        for number in range(runs):
            loaded.network(**arrays)
            done(number + 1)
    collected.save(output)
    kernels = by_kernel(collected)
    total = sum(row["seconds"] for row in kernels)
    if json:
        write_json({"model": model, "output": output, "runs": runs, "seconds": total / runs, "kernels": kernels})
        return
    rows = [
        (
            row["name"],
            row["kernel"],
            f"{row['seconds'] / runs * 1e3:.3f}",
            f"{row['encode_seconds'] / runs * 1e3:.3f}",
            f"{row['seconds'] / total if total else 0:.1%}",
        )
        for row in kernels
    ]
    totals = ("total", f"{len(rows)} kernels", f"{total / runs * 1e3:.3f}", "", "")
    stdout().print(table(("node", "kernel", "ms", "ms to encode", "share"), rows, totals, right=3))
    say(f"{output}: {len(collected.events)} events; open it at https://ui.perfetto.dev")


def by_kernel(collected: profile) -> list[dict[str, Any]]:
    """Return the seconds of each node on the device and in encoding, longest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for event in collected.events:
        row = found.setdefault(
            (event.name, event.kernel),
            {"name": event.name, "kernel": event.kernel, "calls": 0, "seconds": 0.0, "encode_seconds": 0.0},
        )
        if event.kind == "execute":
            row["calls"] += 1
            row["seconds"] += event.duration
        else:
            row["encode_seconds"] += event.duration
    return sorted(found.values(), key=lambda row: -row["seconds"])
