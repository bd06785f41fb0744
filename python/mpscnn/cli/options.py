# SPDX-License-Identifier: Apache-2.0
"""Options shared by several commands, and their parsers."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer


class State:
    """Global state of the command."""

    traceback = False
    is_process = False  # False: called from a program


def _show_traceback(value: bool) -> bool:
    State.traceback = State.traceback or value
    return value


def within(minimum: float, maximum: float = math.inf) -> Callable[[float | None], float | None]:
    """Return a callback that refuses other numbers. typer's own bounds do not show the number that was given."""

    def check(value: float | None) -> float | None:
        if value is not None and not value >= minimum:
            raise typer.BadParameter(f"{value} is less than the minimum ({minimum}).")
        if value is not None and value > maximum:
            raise typer.BadParameter(f"{value} is greater than the maximum ({maximum}).")
        return value

    return check


class DType(str, enum.Enum):
    """Types of images between kernels."""

    float32 = "float32"
    float16 = "float16"


class Preset(str, enum.Enum):
    """Named sets of options."""

    imagenet = "imagenet"


Model = Annotated[
    Path,
    typer.Argument(
        exists=True,
        help="A model: .onnx, .pt2 (torch.export), .pt, .pth, .bin, .safetensors or .npz (weights), or .mpscnn.",
        show_default=False,
    ),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        metavar="[NAME=]1x3x224x224",
        help="Shape of an input, in the order of the model's axes, batch first. May be repeated for several inputs.",
        show_default=False,
    ),
]
Architecture = Annotated[
    str | None,
    typer.Option(help="Network of a file of weights: resnet50, mobilenet_v2, ...", show_default=False),
]
ReaderOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Property of an architecture that weights do not show: epsilon=0.001, tf_padding=true. May be repeated.",
        show_default=False,
    ),
]
Precision = Annotated[DType, typer.Option("--dtype", help="Type of the images between kernels, and of results.")]
ReducedPrecision = Annotated[
    bool, typer.Option("--reduced-precision", help="Permit bfloat16 products (allow_reduced_precision).")
]
Optimize = Annotated[
    bool, typer.Option("--optimize/--no-optimize", help="Fold batch normalization and activations into the kernels.")
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Device to run on: cuda:0, ...; default: the default device.",
        show_default=False,
    ),
]
PresetName = Annotated[
    Preset | None,
    typer.Option(
        "--preset", help="imagenet: --resize 256 --crop 224 with ImageNet's mean and std.", show_default=False
    ),
]
Size = Annotated[
    str | None, typer.Option("--size", metavar="HxW", help="Stretch images to this size.", show_default=False)
]
Resize = Annotated[
    int | None, typer.Option("--resize", callback=within(1), help="Length of the shorter side.", show_default=False)
]
Crop = Annotated[str | None, typer.Option("--crop", metavar="HxW", help="Centre crop of images.", show_default=False)]
Mean = Annotated[
    str | None,
    typer.Option("--mean", metavar="A,B,C", help="Subtracted from pixels, which are 0 to 1.", show_default=False),
]
Std = Annotated[str | None, typer.Option("--std", metavar="A,B,C", help="Divisor after that.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
Traceback = Annotated[
    bool, typer.Option("--traceback", help="Show where an error comes from.", callback=_show_traceback)
]


def shape(text: str, option: str) -> tuple[int, ...]:
    """Parse "1x3x224x224"; raise a usage error for anything else."""
    try:
        extents = tuple(int(part) for part in text.lower().replace(",", "x").split("x"))
    except ValueError:
        raise typer.BadParameter(
            f'"{text}" is not numbers with x between them: 1x3x224x224.', param_hint=option
        ) from None
    if min(extents) < 1:
        raise typer.BadParameter(f'"{text}": {min(extents)} is less than the minimum (1).', param_hint=option)
    return extents


def reader_options(texts: list[str] | None) -> dict[str, bool | int | float | str] | None:
    """Parse NAME=VALUE pairs; values are true, false, numbers or words."""
    found: dict[str, bool | int | float | str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f'"{text}" is not NAME=VALUE.', param_hint="--option")
        if name in found:
            raise typer.BadParameter(f'"{name}" is given twice.', param_hint="--option")
        found[name] = _value(value)
    return found or None


def _value(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def input_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Parse shapes by input name; "" is the only input."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts or []:
        name, _, extents = text.rpartition("=")
        if name in found:
            raise typer.BadParameter(f'the input "{name}" is given twice.', param_hint="--input-shape")
        found[name] = shape(extents, "--input-shape")
    if "" in found and len(found) > 1:
        raise typer.BadParameter(
            "with several inputs each shape needs a name: NAME=1x3x224x224.", param_hint="--input-shape"
        )
    return found


def pair(text: str | None, option: str) -> tuple[int, int] | None:
    """Parse "224" or "224x320" as (height, width)."""
    if text is None:
        return None
    extents = shape(text, option)
    if len(extents) > 2:
        raise typer.BadParameter(f'"{text}" is not one number, or height x width.', param_hint=option)
    return extents[0], extents[-1]


def numbers(text: str | None, option: str) -> list[float] | None:
    """Parse "0.485,0.456,0.406"."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f'"{text}" is not numbers with commas between them.', param_hint=option) from None
