# SPDX-License-Identifier: Apache-2.0
"""mpscnn serve: answer requests of the Open Inference Protocol over HTTP and gRPC."""

from __future__ import annotations

import ctypes
import os
from typing import Annotated

import typer

from . import options
from .console import say
from .models import load

_M_ARENA_MAX, _ARENAS = -8, 2  # malloc.h of glibc


def _limit_arenas() -> None:
    """Let glibc's malloc have two arenas: memory that gRPC frees would stay in as many as it has threads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, _ARENAS)


def serve(
    model: options.Model,
    name: Annotated[
        str | None, typer.Option(help="Name in paths; default: the file's, without its suffix.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(callback=options.within(0, 65535), help="Port; 0 is a free one.")] = 8080,
    grpc_port: Annotated[
        int | None,
        typer.Option(callback=options.within(0, 65535), help="Port of gRPC; default: no gRPC.", show_default=False),
    ] = None,
    max_batch: Annotated[int, typer.Option(callback=options.within(1), help="Rows that are computed together.")] = 8,
    max_delay: Annotated[
        float,
        typer.Option(
            callback=options.within(0), metavar="MS", help="Time that a request waits for others, in milliseconds."
        ),
    ] = 2.0,
    max_queue: Annotated[
        int, typer.Option(callback=options.within(1), help="Requests that wait; further ones get 503.")
    ] = 64,
    max_body: Annotated[
        float, typer.Option(callback=options.within(0.001), metavar="MB", help="Size of a request.")
    ] = 64,
    max_pending: Annotated[
        float,
        typer.Option(
            callback=options.within(0.001), metavar="MB", help="Size of all requests in memory; further ones get 503."
        ),
    ] = 256,
    max_pixels: Annotated[int, typer.Option(callback=options.within(1), help="Rows x height x width of an input.")] = 1
    << 24,
    threads: Annotated[
        int | None,
        typer.Option(
            callback=options.within(1), help="Threads that compute; default: OMP_NUM_THREADS.", show_default=False
        ),
    ] = None,
    batches: Annotated[
        int,
        typer.Option(
            callback=options.within(1),
            help="Batches that are computed at once on the CPU, with equal shares of the threads.",
        ),
    ] = 1,
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    dtype: Annotated[
        options.DType | None,
        typer.Option(
            help="Type of the images between kernels, and of results; default: the file's.", show_default=False
        ),
    ] = None,
    reduced_precision: options.ReducedPrecision = False,
    device: options.Device = None,
    traceback: options.Traceback = False,
) -> None:
    """Serve a model over HTTP and gRPC with the Open Inference Protocol, until SIGTERM or Ctrl-C."""
    from ..serving import Limits, NetworkModel, serve
    from ..threads import get_num_threads, set_num_threads

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else a line on stderr for each refused call
    if grpc_port is not None:
        _limit_arenas()
    if threads is not None:
        set_num_threads(threads)
    if batches > 1 and batches > get_num_threads():
        raise typer.BadParameter(
            f"{batches} is greater than the number of threads ({get_num_threads()}).", param_hint="--batches"
        )
    loaded = load(
        model,
        input_shape,
        architecture=architecture,
        option=option,
        dtype=None if dtype is None else dtype.value,
        reduced_precision=reduced_precision,
        device=device,
        num_threads=get_num_threads() // batches if batches > 1 else None,
    )
    chosen = name or model.name.partition(".")[0] or "model"
    serve(
        NetworkModel(loaded.network),
        name=chosen,
        host=host,
        port=port,
        grpc_port=grpc_port,
        max_batch=max_batch,
        max_delay=max_delay / 1000,
        batches=batches,
        max_queue=max_queue,
        limits=Limits(body=int(max_body * 1e6), pending=int(max_pending * 1e6), pixels=max_pixels),
        started=lambda *urls: say(f"serving {chosen} on {' and '.join(urls)}"),
    )
