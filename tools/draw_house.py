#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/assets/house.svg, the parts of mpscnn from Python down to the engines: docs/how_it_works.md.

    python tools/draw_house.py

The drawing is narrow, so that its words are readable on a phone, and has a background, for light and dark pages.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "assets" / "house.svg"

WIDTH, HEIGHT = 520, 654
INK, GREY, LINE = "#1d2329", "#5a636d", "#8a939c"
BLUE, GREEN, SAND, WHITE = "#dce8f7", "#dff0e3", "#f6ecd6", "#ffffff"


class Box(NamedTuple):
    """A part: its place, name, and lines about it. `dashed`: its frame, for what has not run yet."""

    x: int
    y: int
    width: int
    height: int
    fill: str
    name: str
    lines: tuple[str, ...] = ()
    dashed: bool = False


BOXES = (
    Box(16, 16, 152, 54, WHITE, "models", ("PyTorch, ONNX, files",)),
    Box(180, 16, 152, 54, WHITE, "arrays", ("NumPy, DLPack",)),
    Box(344, 16, 160, 54, WHITE, "programs", ("Objective-C, for a Mac",)),
    Box(
        16, 94, 316, 72, BLUE, "python/mpscnn",
        ("importers, graphs, passes, Network,", "Trainer, a class for each kernel"),
    ),
    Box(16, 190, 316, 54, BLUE, "csrc/bindings", ("arguments, arrays, errors: _core",)),
    Box(
        16, 268, 316, 72, BLUE, "csrc/table, csrc/core",
        ("a row for each kernel; weights, images,", "plans of networks, command buffers"),
    ),
    Box(16, 364, 488, 42, SAND, "Apple's interface: Metal, MPSCNN, MPSNN"),
    Box(16, 430, 316, 54, GREEN, "csrc/openmps", ("the same classes, on Linux",)),
    Box(344, 430, 160, 54, WHITE, "Apple's MPS", ("macOS: not run yet",), dashed=True),
    Box(16, 508, 316, 54, GREEN, "csrc/openmps/engine", ("problems, plans, fusion, memory",)),
    Box(16, 586, 152, 54, GREEN, "cpu", ("own kernels, oneDNN",)),
    Box(180, 586, 152, 54, GREEN, "cuda", ("own kernels, cuDNN",)),
)  # fmt: skip

# From (x, top) down to bottom.
ARROWS = (
    (92, 70, 94), (256, 70, 94), (424, 70, 364),
    (174, 166, 190), (174, 244, 268), (174, 340, 364),
    (174, 406, 430), (424, 406, 430),
    (174, 484, 508), (92, 562, 586), (256, 562, 586),
)  # fmt: skip


def text(x: float, y: float, words: str, size: int, colour: str, weight: str = "normal") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="middle">{escape(words)}</text>'
    )


def picture() -> str:
    """Return the drawing."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" role="img">',
        "<title>The parts of mpscnn, from Python down to the engines</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#fafbfc"/>',
    ]
    for x, top, bottom in ARROWS:
        parts.append(f'<path d="M{x} {top}V{bottom - 5}" stroke="{LINE}" stroke-width="1.5"/>')
        parts.append(f'<path d="M{x - 4} {bottom - 7}h8l-4 7z" fill="{LINE}"/>')
    for box in BOXES:
        dashes = ' stroke-dasharray="5 4"' if box.dashed else ""
        parts.append(
            f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" fill="{box.fill}" '
            f'stroke="{LINE}"{dashes}/>'
        )
        middle = box.x + box.width / 2
        y = box.y + (box.height - 17 * len(box.lines)) / 2 + 5
        parts.append(text(middle, y, box.name, 15, INK, "600"))
        parts += [text(middle, y + 17 * (row + 1), line, 13, GREY) for row, line in enumerate(box.lines)]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
