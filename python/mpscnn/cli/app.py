# SPDX-License-Identifier: Apache-2.0
"""The app of all commands, and error reporting."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from .._core import __version__
from ..benchmarking import ResultsDifferError
from ..errors import ImportError as ModelError
from . import bench, cache, convert, info, plot, quantize, run_command, serve, trace, tune, verify
from .console import end_by_sigpipe, say, write
from .options import State

app = typer.Typer(
    name="mpscnn",
    help="Networks on Apple's MPSCNN kernels, on Apple GPUs, and on Linux CPUs and NVIDIA GPUs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(info.info)
app.command()(convert.convert)
app.command()(quantize.quantize)
app.command("run")(run_command.run)
app.command()(bench.bench)
app.command()(verify.verify)
app.command()(trace.trace)
app.command()(plot.plot)
app.command()(tune.tune)
app.command()(serve.serve)
app.command()(cache.cache)


def _version(value: bool) -> None:
    if value:
        write(f"mpscnn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    State.traceback, State.is_process = False, arguments is None
    end_by_sigpipe()
    try:
        app(args=None if arguments is None else list(arguments), prog_name="mpscnn")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        if State.traceback:
            traceback.print_exc()
        else:
            say(f"mpscnn: {sentence(error)}")
        return 1
    return 0


_OURS = (
    ModelError,
    ResultsDifferError,
    ValueError,
    TypeError,
    NotImplementedError,
    OSError,
    RuntimeError,
    MemoryError,
    KeyError,
)


def sentence(error: Exception) -> str:
    """Return the message of an exception, preceded by its class if the exception is unexpected."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, _OURS) and text:
        return text
    return f"{type(error).__name__}: {text} (--traceback shows where)"
