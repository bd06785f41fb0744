# SPDX-License-Identifier: Apache-2.0
"""Train a detector of handwritten digits with MPS's YOLO loss, and draw the boxes; or find objects in a photograph.

The scenes are made of scikit-learn's digits: two to five of them in different sizes, on a noisy background. A fifth of
the digits is not used in training; the scenes that are measured and drawn have only those. The network is a graph of
MPS's nodes: convolutions, batch normalization and ReLU, then MPSCNNYOLOLossNode.
Needs additional packages: pip install scikit-learn pillow tqdm.

    python examples/detect.py [--steps N] [--threshold X] [--output PNG] [--json]

With a picture, the objects in it are found by a YOLO network of your own (examples/yolo.py): an ONNX model, or a file
of ultralytics.

    python examples/detect.py PICTURE --weights yolo11n.onnx [--classes coco.txt] [--size 640] [--output PNG] [--json]
"""

from __future__ import annotations

import os

# The layers are too small for a second thread to help, and on a shared machine threads wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when libraries are loaded

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import needs  # noqa: F401
import numpy as np
import yolo
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from shared import COLOURS, UserError, count, fraction, natural, run, save
from tqdm import tqdm

import mpscnn
from mpscnn import nodes

Array = NDArray[Any]
SIDE, CELL, CLASSES = 64, 8, 10  # pixels of a scene and of a cell; classes
CELLS = SIDE // CELL
BATCH = 16
ANCHOR = 2.0  # width and height of the only anchor box, in cells
# Channels and strides of the 3 x 3 convolutions; a 1 x 1 convolution follows.
LAYERS = ((16, 2), (32, 2), (64, 2), (64, 1), (64, 1))


class Box(NamedTuple):
    """A digit in a scene: left, top, right and bottom in pixels, class, and score."""

    left: float
    top: float
    right: float
    bottom: float
    digit: int
    score: float = 1.0


def overlap(a: Box, b: Box) -> float:
    """Return the intersection over union of two boxes."""
    width = min(a.right, b.right) - max(a.left, b.left)
    height = min(a.bottom, b.bottom) - max(a.top, b.top)
    common = max(width, 0) * max(height, 0)
    return common / ((a.right - a.left) * (a.bottom - a.top) + (b.right - b.left) * (b.bottom - b.top) - common)


class Scenes:
    """Scenes of digits: pictures in 0...1, and the boxes in them."""

    def __init__(self, held_out: bool, seed: int) -> None:
        try:
            from sklearn.datasets import load_digits
        except ModuleNotFoundError:
            missing = mpscnn.MissingPackageError("training", "scikit-learn", ("scikit-learn", "pillow", "tqdm"))
            raise UserError(str(missing)) from None
        found = load_digits()
        order = np.random.default_rng(0).permutation(len(found.images))
        chosen = order[: len(order) // 5] if held_out else order[len(order) // 5 :]
        self._digits, self._labels = found.images[chosen] * (255 / 16), found.target[chosen]
        self._rng = np.random.default_rng(seed)

    def one(self) -> tuple[Array, list[Box]]:
        """Return a scene, (SIDE, SIDE, 1) float32, and its boxes; no two of them share more than a twentieth."""
        rng = self._rng
        scene = rng.normal(0.15, 0.05, (SIDE, SIDE))
        boxes: list[Box] = []
        wanted = rng.integers(2, 6)
        for _ in range(50):
            if len(boxes) == wanted:
                break
            size = int(rng.integers(12, 25))
            left, top = (int(start) for start in rng.integers(0, SIDE - size, 2))
            index = int(rng.integers(len(self._digits)))
            drawn = Image.fromarray(self._digits[index].astype(np.uint8))
            ink = np.asarray(drawn.resize((size, size), Image.Resampling.BICUBIC)) / 255
            rows, columns = np.flatnonzero(ink.max(1) > 0.25), np.flatnonzero(ink.max(0) > 0.25)
            box = Box(
                float(left + columns[0]), float(top + rows[0]), float(left + columns[-1] + 1),
                float(top + rows[-1] + 1), int(self._labels[index]),
            )  # fmt: skip
            if any(overlap(box, other) > 0.05 or cell_of(box) == cell_of(other) for other in boxes):
                continue
            part = scene[top : top + size, left : left + size]
            np.maximum(part, ink * rng.uniform(0.7, 1), out=part)
            boxes.append(box)
        return scene.clip(0, 1).astype(np.float32)[..., None], boxes

    def batch(self, count: int) -> tuple[Array, list[list[Box]]]:
        scenes, boxes = zip(*(self.one() for _ in range(count)), strict=True)
        return np.stack(scenes), list(boxes)


def cell_of(box: Box) -> tuple[int, int]:
    """Return row and column of the cell with the box's centre."""
    return int((box.top + box.bottom) / 2 / CELL), int((box.left + box.right) / 2 / CELL)


def labels_of(boxes: list[list[Box]]) -> Array:
    """Return what MPSCNNYOLOLoss compares with: x, y, w, h, confidence and classes of each cell."""
    labels = np.zeros((len(boxes), CELLS, CELLS, 5 + CLASSES), np.float32)
    for image, found in enumerate(boxes):
        for box in found:
            row, column = cell_of(box)
            x, y = (box.left + box.right) / 2 / CELL - column, (box.top + box.bottom) / 2 / CELL - row
            labels[image, row, column, :5] = x, y, (box.right - box.left) / CELL, (box.bottom - box.top) / CELL, 1
            labels[image, row, column, 5 + box.digit] = 1
    return labels


def boxes_of(values: Array, threshold: float) -> list[Box]:
    """Return the boxes that the network predicts for one scene, without those that better ones overlap by half."""
    confidence = 1 / (1 + np.exp(-values[..., 4]))
    classes = np.exp(values[..., 5:] - values[..., 5:].max(2, keepdims=True))
    classes /= classes.sum(2, keepdims=True)
    scores = confidence * classes.max(2)
    kept: list[Box] = []
    for place in np.argsort(-scores, axis=None):
        row, column = divmod(int(place), CELLS)
        if scores[row, column] < threshold:
            break
        x, y = (1 / (1 + np.exp(-values[row, column, :2]))) * CELL + (column * CELL, row * CELL)
        width, height = np.exp(values[row, column, 2:4]) * ANCHOR * CELL
        box = Box(
            float(x - width / 2), float(y - height / 2), float(x + width / 2), float(y + height / 2),
            int(classes[row, column].argmax()), float(scores[row, column]),
        )  # fmt: skip
        if all(overlap(box, better) < 0.5 for better in kept):
            kept.append(box)
    return kept


def measure(found: list[list[Box]], wanted: list[list[Box]]) -> dict[str, float]:
    """Return precision and recall: a box is right if its digit is, and it overlaps that digit's box by half."""
    right = 0
    for predicted, labelled in zip(found, wanted, strict=True):
        left = list(labelled)
        for box in predicted:
            match = next((one for one in left if one.digit == box.digit and overlap(one, box) >= 0.5), None)
            if match is not None:
                left.remove(match)
                right += 1
    return {
        "precision": right / max(1, sum(map(len, found))),
        "recall": right / max(1, sum(map(len, wanted))),
    }


def network(adam: mpscnn.Optimizer, rng: np.random.Generator) -> nodes.FilterNode:
    """Return the last node of the network, from (N, SIDE, SIDE, 1) to (N, CELLS, CELLS, 5 + CLASSES)."""
    image: nodes.ImageNode | nodes.FilterNode = nodes.ImageNode("scene")
    inputs = 1
    for channels, stride in LAYERS:
        weight = rng.normal(0, math.sqrt(2 / (9 * inputs)), (channels, 3, 3, inputs)).astype(np.float32)  # He et al.
        image = nodes.ConvolutionNode(image, weight, layout="OHWI", stride=stride, padding=1, optimizer=adam)
        zeros, ones = np.zeros(channels, np.float32), np.ones(channels, np.float32)
        image = nodes.BatchNormalizationNode(image, ones, zeros, zeros, ones, optimizer=adam, momentum=0.05)
        image, inputs = nodes.NeuronReLUNode(image), channels
    weight = rng.normal(0, 0.01, (5 + CLASSES, 1, 1, inputs)).astype(np.float32)
    bias = np.zeros(5 + CLASSES, np.float32)
    bias[4] = -2  # most cells are empty
    return nodes.ConvolutionNode(image, weight, bias, layout="OHWI", optimizer=adam)


def drawing(scenes: Array, found: list[list[Box]], scale: int = 3, columns: int = 3) -> Image.Image:
    """Return the scenes, enlarged, with boxes, digits and scores."""
    gap, side = 6, SIDE * scale
    rows = -(-len(scenes) // columns)
    sheet = Image.new("RGB", (columns * (side + gap) - gap, rows * (side + gap) - gap), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    for index, (scene, boxes) in enumerate(zip(scenes, found, strict=True)):
        left, top = index % columns * (side + gap), index // columns * (side + gap)
        grey = Image.fromarray(np.rint(scene[..., 0] * 255).astype(np.uint8)).convert("RGB")
        sheet.paste(grey.resize((side, side), Image.Resampling.NEAREST), (left, top))
        for box in boxes:
            x, y = left + max(0, box.left * scale), top + max(0, box.top * scale)
            corner = left + min(side - 1, box.right * scale), top + min(side - 1, box.bottom * scale)
            draw.rectangle(((x, y), corner), outline=COLOURS[box.digit], width=2)
        taken: list[tuple[float, float]] = []
        for box in boxes:
            text = f"{box.digit} {box.score:.0%}"
            _, _, width, height = draw.textbbox((0, 0), text, font=font)
            x, y = label_place(box, scale, (width + 2, height + 2), side, taken)
            taken.append((x, y))
            draw.rectangle((left + x, top + y, left + x + width + 2, top + y + height + 2), fill="black")
            draw.text((left + x + 1, top + y), text, fill=COLOURS[box.digit], font=font)
    return sheet


def label_place(
    box: Box, scale: int, size: tuple[float, float], side: int, taken: list[tuple[float, float]]
) -> tuple[float, float]:
    """Return left and top of a label: above the box, below it or at its side, the first that covers no other label."""
    width, height = size
    left, top, right, bottom = (edge * scale for edge in box[:4])
    places = [(left, top - height), (left, bottom), (right, top), (left - width, top), (right, bottom), (left, top)]
    inside = [(x, y) for x, y in places if 0 <= y <= side - height and -width < x < side]
    inside = [(min(max(0, x), side - width), y) for x, y in inside] or [(0, 0)]
    free = (p for p in inside if all(abs(p[0] - x) >= width or abs(p[1] - y) >= height for x, y in taken))
    return next(free, inside[0])


def detect(options: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    adam = mpscnn.OptimizerAdam(options.learning_rate)
    last = network(adam, np.random.default_rng(options.seed))
    loss = nodes.YOLOLossNode(
        last,
        mpscnn.YOLOLoss(
            [[ANCHOR, ANCHOR]], xy_loss="mean_squared_error", wh_loss="mean_squared_error",
            confidence_loss="sigmoid_cross_entropy", classes_loss="softmax_cross_entropy", rescore=False,
            scale_xy=2, scale_wh=2, scale_object=2, scale_no_object=1, scale_class=2,
            min_iou_for_object_presence=1, max_iou_for_object_absence=1,
        ),
    )  # fmt: skip
    training = mpscnn.MPSNNGraph(*loss.training_graph(), results_are_needed=False, format="float32")
    scenes = Scenes(held_out=False, seed=options.seed)
    losses: list[float] = []
    with tqdm(total=options.steps, unit="step", desc="training", disable=options.json) as progress:
        for step in range(options.steps):
            adam.learning_rate = options.learning_rate * 0.5 * (1 + math.cos(math.pi * step / options.steps))
            x, boxes = scenes.batch(BATCH)
            labels = mpscnn.LossLabels(labels_of(boxes))
            training(x, labels=labels)
            losses.append(float(labels.loss.sum()) / BATCH)
            if not math.isfinite(losses[-1]):
                raise UserError(f"step {step}: the loss is {losses[-1]}; try a --learning-rate less than "
                                f"{options.learning_rate:g}.")  # fmt: skip
            progress.update()
            progress.set_postfix(loss=f"{np.mean(losses[-20:]):.2f}", refresh=False)

    inference = mpscnn.MPSNNGraph(last, format="float32")
    inference.reload_from_data_sources()
    x, wanted = Scenes(held_out=True, seed=options.seed).batch(options.scenes)
    start = time.perf_counter()
    values = inference(x)
    milliseconds = (time.perf_counter() - start) * 1e3 / len(x)
    found = [boxes_of(one, options.threshold) for one in values]
    save(drawing(x[:6], found[:6]), options.output)
    return {
        "device": mpscnn.Device().name,
        "steps": options.steps,
        "loss": [round(float(np.mean(part)), 3) for part in (losses[:20], losses[-20:])],
        "scenes": len(x),
        "digits": sum(map(len, wanted)),
        **{name: round(value, 4) for name, value in measure(found, wanted).items()},
        "milliseconds_per_scene": round(milliseconds, 3),
        "seconds": round(time.perf_counter() - started, 1),
        "picture": str(options.output),
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    parser.add_argument("picture", type=Path, nargs="?", help="find the objects in it, with --weights")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="a YOLO network: .onnx, or ultralytics' .pt")
    parser.add_argument("--classes", type=Path, metavar="TXT", help="names of its classes, a line each")
    parser.add_argument(
        "--size", type=count, default=640, metavar="N", help="of its square input, if it takes any (%(default)s)"
    )
    parser.add_argument("--steps", type=count, default=600, metavar="N", help="steps of 16 scenes (%(default)s)")
    parser.add_argument("--learning-rate", type=fraction, default=0.01, metavar="X", help="Adam's (%(default)s)")
    parser.add_argument("--threshold", type=fraction, default=0.5, metavar="X", help="min score (%(default)s)")
    parser.add_argument("--scenes", type=count, default=200, metavar="N", help="scenes to measure (%(default)s)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of weights and scenes (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("detect.png"), metavar="PNG", help="(%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(arguments)


def lines(figures: dict[str, Any]) -> list[str]:
    return [
        f"Precision  {figures['precision']:.1%} of the boxes are right, of digits that training did not use",
        f"Recall     {figures['recall']:.1%} of {figures['digits']} digits in {figures['scenes']} scenes are found",
        f"Time       {figures['seconds']:.1f} s in all, {figures['milliseconds_per_scene']:.2f} ms per scene",
        f"Picture    {figures['picture']}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.picture is not None:
        return run("detect", yolo.detect, yolo.lines, options)
    return run("detect", detect, lines, options)


if __name__ == "__main__":
    sys.exit(main())
