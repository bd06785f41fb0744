# SPDX-License-Identifier: Apache-2.0
"""Find objects in a photograph with a YOLO network of your own: python examples/detect.py PICTURE --weights FILE."""

from __future__ import annotations

import argparse
import statistics
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from shared import COLOURS, Picture, UserError, read_picture, save, shapes

import mpscnn
from mpscnn.detection import Detections, yolo_detections

PADDING = 114  # grey, around the picture, as in ultralytics' training
HOW_TO_GET_WEIGHTS = """There are no weights. They are files of their own, made by training; nothing is downloaded here.
For example:

  ultralytics   yolo11n.pt of https://github.com/ultralytics/assets/releases (needs pip install ultralytics)
  ONNX          yolo export model=yolo11n.pt format=onnx

then: python examples/detect.py PICTURE --weights FILE"""


def read_checkpoint(path: Path) -> tuple[Any, dict[int, str]]:
    """Return the module of ultralytics' file, and the names of its classes.

    The file is a pickle. It is read by PyTorch's reader of weights, which runs no code of the file: it makes only
    objects of the layers of PyTorch and ultralytics.
    """
    import torch

    try:
        import_module("ultralytics.nn.tasks")
    except ImportError as error:
        raise UserError(f'"{path}" needs ultralytics: pip install ultralytics, or export the model to ONNX.') from error
    allowed = []
    try:
        for name in torch.serialization.get_unsafe_globals_in_checkpoint(path):
            module, _, kind = name.rpartition(".")
            found = None
            if module.startswith(("torch.nn.modules.", "ultralytics.nn.")):
                found = getattr(import_module(module), kind, None)
            if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
                raise UserError(f'"{path}" has an object of {name}, which is no layer.')
            allowed.append(found)
        with torch.serialization.safe_globals(allowed):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        module = checkpoint.get("ema") or checkpoint["model"]
        names = {int(number): str(name) for number, name in getattr(module, "names", {}).items()}
        return module.float().eval(), names
    except UserError:
        raise
    except Exception as error:  # a damaged file can fail anywhere
        raise UserError(f'"{path}" cannot be read: {error!s:.300}') from error


def load(path: Path, size: int) -> tuple[mpscnn.Network, dict[int, str], int]:
    """Return the network, the names of its classes as far as the file has them, and the side of its square input.

    The side is `size`, unless the file fixes another.
    """
    source, names = read_checkpoint(path) if path.suffix == ".pt" else (path, {})
    try:
        try:
            network = mpscnn.load(source, input_shapes=(1, 3, size, size) if path.suffix == ".pt" else None)
        except mpscnn.InvalidModelError:  # a file that leaves height and width open
            network = mpscnn.load(source, input_shapes=shapes(path, size, size))
    except (OSError, ValueError, TypeError, NotImplementedError, mpscnn.ImportError) as error:
        raise UserError(f'"{path}" cannot be loaded: {error}') from error
    (taken, *_) = network.inputs.values()
    if taken.height != taken.width:
        raise UserError(f'"{path}" takes {taken.height} x {taken.width} pixels, and not a square.')
    return network, names, taken.height or size


def letterbox(picture: Picture, size: int) -> tuple[NDArray[np.float32], float, tuple[int, int]]:
    """Return (1, 3, size, size) in [0, 1] with the picture in its centre; its scale; and its left and top there."""
    height, width, _ = picture.shape
    scale = size / max(height, width)
    wide, tall = max(1, round(width * scale)), max(1, round(height * scale))
    left, top = (size - wide) // 2, (size - tall) // 2
    square = np.full((size, size, 3), PADDING, np.uint8)
    square[top : top + tall, left : left + wide] = Image.fromarray(picture).resize(
        (wide, tall), Image.Resampling.BILINEAR
    )
    return np.ascontiguousarray(square.transpose(2, 0, 1)[None], np.float32) / 255, scale, (left, top)


def predictions_of(outputs: Any) -> tuple[NDArray[Any], str]:
    """Return the decoded predictions among the outputs, and their form."""
    arrays = [np.asarray(one) for one in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]
    found = next((array for array in arrays if array.ndim == 3), None)
    if found is None:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise UserError(f"the network has outputs of {shapes}, and none of shape (1, 4 + classes, boxes).")
    return found, "v8" if found.shape[1] < found.shape[2] else "v5"


def drawing(picture: Picture, rows: list[dict[str, Any]]) -> Image.Image:
    sheet = Image.fromarray(picture)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(max(12, max(sheet.size) // 40))
    for row in reversed(rows):  # the best one last, above the others
        colour, box = COLOURS[row["class"] % len(COLOURS)], row["box"]
        draw.rectangle(box, outline=colour, width=max(2, max(sheet.size) // 300))
        text = f"{row['name']} {row['score']:.0%}"
        place = (box[0] + 2, max(0, box[1] - font.size - 4))
        draw.rectangle(draw.textbbox(place, text, font=font), fill="black")
        draw.text(place, text, fill=colour, font=font)
    return sheet


def detect(options: argparse.Namespace) -> dict[str, Any]:
    if options.weights is None:
        raise UserError(HOW_TO_GET_WEIGHTS)
    picture = read_picture(options.picture)
    network, names, size = load(options.weights, options.size)
    if options.classes is not None:
        try:
            names = dict(enumerate(options.classes.read_text().split("\n")))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f'the names of the classes, "{options.classes}", cannot be read: {error}') from error
    x, scale, (left, top) = letterbox(picture, size)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        outputs = network(x)
        times.append(time.perf_counter() - start)
    predictions, form = predictions_of(outputs)
    try:
        (found,) = yolo_detections(predictions, form=form, score_threshold=options.threshold)
    except ValueError as error:
        raise UserError(f"the network's output is not that of a YOLO detector: {error}") from error
    rows = rows_of(found, names, scale, (left, top), (picture.shape[1], picture.shape[0]))
    save(drawing(picture, rows), options.output)
    return {
        "device": mpscnn.Device().name,
        "objects": rows,
        "milliseconds": round(statistics.median(times) * 1e3, 2),
        "picture": str(options.output),
    }


def rows_of(
    found: Detections, names: dict[int, str], scale: float, corner: tuple[int, int], extents: tuple[int, int]
) -> list[dict[str, Any]]:
    """Return class, name, score and box (left, top, right, bottom) of each object, in pixels of the picture."""
    boxes = np.clip((found.boxes - np.tile(corner, 2)) / scale, 0, np.tile(extents, 2))
    return [
        {
            "class": int(number),
            "name": names.get(int(number), f"class {number}"),
            "score": round(float(score), 4),
            "box": [round(float(side), 1) for side in box],
        }
        for box, score, number in zip(boxes, found.scores, found.classes, strict=True)
    ]


def lines(figures: dict[str, Any]) -> list[str]:
    objects = [f"{row['score']:>6.1%}  {row['name']:<20} {row['box']}" for row in figures["objects"]]
    return [
        *(objects or ["No objects: try a lower --threshold."]),
        f"Network {figures['milliseconds']:.2f} ms on {figures['device']}; picture: {figures['picture']}",
    ]
