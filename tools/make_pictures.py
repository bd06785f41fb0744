#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of README.md and docs/, in docs/assets, by the examples.

    python tools/make_pictures.py [--output FOLDER] [NAME...]

Takes a minute or two: a detector and two networks are trained. `make docs` makes them for the site; README.md shows
those of docs/assets. tools/gen_speed.py draws the plots of speed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "docs" / "assets"  # main changes it
EXAMPLES = ROOT / "examples"
WIDTH = 660  # pixels, at most
LIMIT = 360_000  # bytes of all pictures together

PICTURES = {
    "super_resolution.jpg": "upscale.py",
    "segment.jpg": "segment.py",
    "detect.jpg": "detect.py",
    "style_transfer.jpg": "style.py",
    "metal_function.jpg": "metal_function.py",
    "edges.jpg": "docs/tutorials/objective_c.md",
    "training.svg": "train.py",
    "network.svg": "mpscnn plot",
    "trace.svg": "mpscnn trace",
    "house.svg": "tools/draw_house.py",
}
"""Each picture, and the program that makes it."""


def run(program: str, output: Path, *arguments: str) -> dict[str, object]:
    """Run an example; return its figures."""
    command = [sys.executable, str(EXAMPLES / program), "--output", str(output), "--json", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, object] = json.loads(done.stdout)
    return figures


def write(name: str, picture: Image.Image, width: int = WIDTH) -> None:
    """Write a JPEG of at most `width` pixels."""
    if picture.width > width:
        height = round(picture.height * width / picture.width)
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    picture.save(ASSETS / name, quality=75, optimize=True, progressive=True)


def super_resolution(name: str, folder: Path) -> None:
    """Cut the eyes of the cat out of the three panels, and enlarge them by two without smoothing."""
    sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "super_resolution")]
    from images import held_out_pair, psnr, to_picture, upsample_bicubic
    from shared import side_by_side
    from upscale import SuperResolution, as_pixels

    small, original = held_out_pair()
    bicubic, ours = upsample_bicubic(small), to_picture(SuperResolution()(as_pixels(small))[0])
    panels = [
        (f"bicubic, {psnr(bicubic, original):.1f} dB", bicubic),
        (f"mpscnn, {psnr(ours, original):.1f} dB", ours),
        ("original", original),
    ]
    part = (slice(85, 205), slice(128, 258))
    sheet = side_by_side([(title, np.kron(shown[part], np.ones((2, 2, 1), np.uint8))) for title, shown in panels])
    write(name, sheet, sheet.width)


def edges(name: str, folder: Path) -> None:
    """Compile the program of the tutorial, and draw what it draws."""
    from skimage.data import coins

    text = (ROOT / PICTURES[name]).read_text(encoding="utf-8")
    (source,) = re.findall(r"^```objc\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (folder / "edges.mm").write_text(source, encoding="utf-8")
    Image.fromarray(coins()).save(folder / "coins.pgm")
    for command in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        subprocess.run(["bash", "-ec", command.replace(".venv/bin/python", sys.executable)], check=True, cwd=folder)
    with Image.open(folder / "edges.pgm") as found:
        write(name, Image.fromarray(np.concatenate([coins(), np.asarray(found)], axis=1)))


def training(name: str, folder: Path) -> None:
    """Take the plot of the example, with its words as text: that is a third of the size."""
    (folder / "matplotlibrc").write_text("svg.fonttype: none\nsvg.hashsalt: mpscnn\n", encoding="utf-8")
    os.environ |= {"MATPLOTLIBRC": str(folder), "SOURCE_DATE_EPOCH": "0"}
    run("train.py", folder / "digits")
    (ASSETS / name).write_bytes((folder / "digits" / "history.svg").read_bytes())


def residual_network(folder: Path) -> Path:
    """Write a network of a residual block, pooling and a classifier; return its file."""
    import mpscnn

    layers = [
        ("stem", "Conv2d", {"in_channels": 3, "out_channels": 16, "kernel_size": 3, "stride": 2, "padding": 1}),
        ("relu", "ReLU"),
        ("conv1", "Conv2d", {"in_channels": 16, "out_channels": 16, "kernel_size": 3, "padding": 1}),
        ("relu1", "ReLU"),
        ("conv2", "Conv2d", {"in_channels": 16, "out_channels": 16, "kernel_size": 3, "padding": 1}),
        ("sum", "Add", {"inputs": ["relu", "conv2"]}),
        ("relu2", "ReLU"),
        ("pool", "AdaptiveAvgPool2d", {"output_size": 1}),
        ("flat", "Flatten"),
        ("fc", "Linear", {"in_features": 16, "out_features": 10}),
    ]
    net = mpscnn.Trainer(layers, input_shapes=(1, 3, 64, 64)).network()
    net.save(folder / "net.mpscnn")
    return folder / "net.mpscnn"


def network(name: str, folder: Path) -> None:
    command = [sys.executable, "-m", "mpscnn", "plot", str(residual_network(folder)), "-o", str(ASSETS / name)]
    subprocess.run([*command, "--input-shape", "1x3x64x64"], check=True)


def trace(name: str, folder: Path) -> None:
    """Record a trace of that network; draw its fastest run, with tracks for thread and device as in Perfetto."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    import mpscnn

    file = folder / "trace.json"
    command = [sys.executable, "-m", "mpscnn", "trace", str(residual_network(folder)), "-o", str(file), "--runs", "30"]
    subprocess.run([*command, "--input-shape", "1x3x128x128"], check=True, stdout=subprocess.DEVNULL)
    events = json.loads(file.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    spans = [event for event in events if event["ph"] == "X"]
    size = len(spans) // 30
    runs = [spans[first : first + size] for first in range(0, len(spans), size)]
    run = min(runs[1:], key=lambda run: run[-1]["ts"] + run[-1]["dur"] - run[0]["ts"])  # the first one plans
    start = run[0]["ts"]
    colours = ["#86b0e0", "#9fd0ab", "#e9c46a", "#d99a9a", "#b9a3e3", "#8fcbd0"]
    kernels = list(dict.fromkeys(event["args"]["kernel"] for event in run))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "mpscnn", "font.family": "sans-serif"}):
        figure = Figure(figsize=(5.4, 3), layout="constrained")
        axes = figure.subplots()
        for event in run:
            colour = colours[kernels.index(event["args"]["kernel"]) % len(colours)]
            left, width = (event["ts"] - start) / 1e3, event["dur"] / 1e3
            axes.barh(event["tid"], width, left=left, height=0.6, color=colour, edgecolor="white", linewidth=0.5)
            if event["cat"] == "execute" and width > 0.09 * (run[-1]["ts"] + run[-1]["dur"] - start) / 1e3:
                axes.text(left + width / 2, event["tid"], event["name"], ha="center", va="center", fontsize=9)
        axes.set_yticks(list(names), list(names.values()))
        axes.invert_yaxis()
        axes.set_xlabel(f"ms; {mpscnn.Device().name}, {time.strftime('%Y-%m-%d')}")
        patches = [Patch(color=colours[number % len(colours)], label=kernel) for number, kernel in enumerate(kernels)]
        figure.legend(handles=patches, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
        axes.spines[["top", "right", "left"]].set_visible(False)
        figure.savefig(ASSETS / name, facecolor="white", metadata={"Date": None, "Creator": None})


def house(name: str, folder: Path) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import draw_house

    (ASSETS / name).write_text(draw_house.picture(), encoding="utf-8")


def example(name: str, folder: Path) -> None:
    output = folder / "picture.png"
    run(PICTURES[name], output)
    with Image.open(output) as picture:
        write(name, picture.convert("RGB"))


MAKERS = {
    "super_resolution.jpg": super_resolution,
    "edges.jpg": edges,
    "training.svg": training,
    "network.svg": network,
    "trace.svg": trace,
    "house.svg": house,
}


def main() -> int:
    global ASSETS
    parser = argparse.ArgumentParser(description="Make the pictures of README.md and docs/.")
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--output", type=Path, default=ASSETS, metavar="FOLDER", help="default: docs/assets")
    options = parser.parse_args()
    names = options.names or list(PICTURES)
    ASSETS = options.output.resolve()
    ASSETS.mkdir(parents=True, exist_ok=True)
    os.environ["MPLBACKEND"] = "svg"
    for name in names:
        print(f"{name}: {PICTURES[name]}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            MAKERS.get(name, example)(name, Path(folder))
    total = sum(path.stat().st_size for path in ASSETS.iterdir() if path.suffix in (".jpg", ".png", ".svg"))
    print(f"{total:,} bytes in all")
    if total > LIMIT:
        print(f"make_pictures.py: the pictures have {total:,} bytes; the limit is {LIMIT:,}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
