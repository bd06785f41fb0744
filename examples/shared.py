# SPDX-License-Identifier: Apache-2.0
"""Functions that several examples use: pictures, options, and errors that the user can fix."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

Picture = NDArray[np.uint8]
"""(H, W, 3) RGB, 8 bits."""

# Red, green and blue of classes, by number; from Okabe and Ito's palette for colour-blind readers.
COLOURS = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178),
    (213, 94, 0), (204, 121, 167), (190, 190, 190), (140, 86, 75), (148, 103, 189),
)  # fmt: skip


class UserError(Exception):
    """An error that the user can fix."""


Figures = dict[str, Any]
"""A program's results, written as JSON."""


def run(
    name: str,
    compute: Callable[[argparse.Namespace], Figures],
    lines: Callable[[Figures], list[str]],
    options: argparse.Namespace,
    problems: Callable[[Figures], list[str]] = lambda figures: [],
) -> int:
    """Compute the figures of a program, and print them as lines, or as JSON with --json; return the exit status.

    It is 1 after a UserError, and if there are `problems`: sentences about figures that are wrong.
    """
    try:
        figures = compute(options)
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(figures) if options.json else "\n".join(lines(figures)))
    found = problems(figures)
    for problem in found:
        print(f"{name}: {problem}.", file=sys.stderr)
    return 1 if found else 0


def natural(text: str) -> int:
    """Return the number of an option, 0 or more."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is less than the minimum (0)")
    return number


def count(text: str) -> int:
    """Return the number of an option, 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than the minimum (1)")
    return number


def fraction(text: str) -> float:
    """Return the number of an option, between 0 and 1."""
    number = float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return number


def read_picture(path: Path) -> Picture:
    """Return the picture of a file that Pillow reads.

    Raises
    ------
    UserError
        There is no such file, or it is no picture.
    """
    try:
        with Image.open(path) as opened:
            return np.array(opened.convert("RGB"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise UserError(f'the picture "{path}" cannot be read: {error}') from error


def shapes(path: Path, height: int, width: int) -> Any:
    """Return the input's shape, in the form that the kind of file needs: ONNX models have names for their inputs."""
    if path.suffix != ".onnx":
        return (1, 3, height, width)
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = {one.name for one in graph.initializer}
    return {one.name: (1, 3, height, width) for one in graph.input if one.name not in constants}


def side_by_side(panels: list[tuple[str, Picture]]) -> Image.Image:
    """Return pictures of equal size side by side, with a caption above each in proportion to the width of all."""
    gap = 6
    height, width, _ = panels[0][1].shape
    across = len(panels) * (width + gap) - gap
    points = max(16, across // 36)
    while points > 16 and max(ImageFont.load_default(points).getlength(title) for title, _ in panels) > width - 8:
        points -= 1
    font, caption = ImageFont.load_default(points), points * 7 // 4
    sheet = Image.new("RGB", (across, height + caption), "white")
    draw = ImageDraw.Draw(sheet)
    for index, (title, picture) in enumerate(panels):
        left = index * (width + gap)
        draw.text((left + 4, points // 3), title, fill="black", font=font)
        sheet.paste(Image.fromarray(picture), (left, caption))
    return sheet


def save(sheet: Image.Image, path: Path) -> None:
    """Write a picture, and the folders above it.

    Raises
    ------
    UserError
        The file cannot be written, or its name has no ending that Pillow knows.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sheet.save(path)
    except (OSError, ValueError) as error:
        raise UserError(f'the picture "{path}" cannot be written: {error}') from error
