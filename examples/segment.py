# SPDX-License-Identifier: Apache-2.0
"""Find the objects in a photograph pixel by pixel, and draw them over it.

Without options, a small network is trained with MPS's gradient kernels: it learns to find the coins in the left half
of scikit-image's photograph, and is measured on the right half. The labels are those of scikit-image's example of
watershed segmentation. With --weights, your own network, whose result is (N, classes, H, W), labels your photograph.
Needs additional packages: pip install scikit-image pillow tqdm.

    python examples/segment.py [--epochs N] [--output PNG] [--json]
    python examples/segment.py PHOTOGRAPH --weights model.onnx [--size N] [--mean X X X --std X X X]
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
from typing import Any

import needs  # noqa: F401
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from shared import COLOURS, Picture, UserError, count, fraction, natural, read_picture, run, save, shapes, side_by_side
from tqdm import tqdm

import mpscnn

Array = NDArray[Any]
PATCH, PATCHES, BATCH = 64, 64, 8  # pixels of a patch; patches of an epoch; patches of a step
SPLIT = 192  # the columns of the photograph before this one are trained on


def convolution(name: str, inputs: int, outputs: int, dilation: int = 1) -> list[Any]:
    """Return a 3 x 3 convolution with batch normalization and ReLU, which keeps height and width."""
    sizes = {"in_channels": inputs, "out_channels": outputs, "kernel_size": 3, "bias": False}
    return [
        (name, "Conv2d", {**sizes, "padding": dilation, "dilation": dilation}),
        (f"norm of {name}", "BatchNorm2d", {"num_features": outputs}),
        (f"relu of {name}", "ReLU"),
    ]


# Each value of the result sees 63 x 63 pixels, more than a coin.
LAYERS: list[Any] = [
    *convolution("conv1", 1, 12),
    *convolution("conv2", 12, 12, 2),
    *convolution("conv3", 12, 12, 4),
    *convolution("conv4", 12, 12, 8),
    *convolution("conv5", 12, 12, 16),
    ("score", "Conv2d", {"in_channels": 12, "out_channels": 1, "kernel_size": 1}),
]


def coins() -> tuple[Picture, NDArray[np.bool_]]:
    """Return the photograph, (H, W) bytes, and where coins are, by watersheds of its gradient."""
    try:
        import skimage.data
        from skimage.filters import sobel
        from skimage.segmentation import watershed
    except ModuleNotFoundError:
        missing = mpscnn.MissingPackageError("the photograph", "scikit-image", ("scikit-image", "pillow", "tqdm"))
        raise UserError(str(missing)) from None
    photograph = skimage.data.coins()
    markers = np.zeros(photograph.shape, np.int32)
    markers[photograph < 30], markers[photograph > 150] = 1, 2
    return photograph, watershed(sobel(photograph), markers) == 2


def patches(photograph: Array, labels: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return random parts, flipped and turned: (N, 1, PATCH, PATCH) float32 in 0...1, and labels of the same shape."""
    x, y = (np.empty((PATCHES, 1, PATCH, PATCH), np.float32) for _ in range(2))
    for index in range(PATCHES):
        row, column = (int(rng.integers(size - PATCH + 1)) for size in photograph.shape)
        part = (slice(row, row + PATCH), slice(column, column + PATCH))
        turns, flipped = int(rng.integers(4)), int(rng.choice((-1, 1)))
        brightness = rng.uniform(0.8, 1.2)
        x[index, 0] = np.rot90(photograph[part], turns)[:, ::flipped] * brightness / 255
        y[index, 0] = np.rot90(labels[part], turns)[:, ::flipped]
    return x, y


def train(options: argparse.Namespace, photograph: Array, labels: Array) -> mpscnn.Network:
    """Return a network from (N, 1, H, W) to the logit of a coin for each pixel."""
    steps = options.epochs * (PATCHES // BATCH)
    trainer = mpscnn.Trainer(
        LAYERS,
        input_shapes=(BATCH, 1, PATCH, PATCH),
        loss="sigmoid_cross_entropy",
        optimizer=mpscnn.OptimizerAdam(options.learning_rate),
        seed=options.seed,
    )

    def rate(step: int) -> float:
        """Return the learning rate: half a cosine, from the given rate to 0."""
        return float(options.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps)))

    rng = np.random.default_rng(options.seed)
    with tqdm(total=options.epochs, unit="epoch", desc="training", disable=options.json) as progress:
        for _ in range(options.epochs):
            try:
                history = trainer.fit(*patches(photograph, labels, rng), batch_size=BATCH, learning_rate=rate)
            except FloatingPointError as error:
                raise UserError(str(error)) from error
            progress.update()
            progress.set_postfix(loss=f"{history[-1].loss:.3f}", refresh=False)
    return trainer.network()


def overlay(photograph: Picture, classes: Array) -> Picture:
    """Return the photograph with the pixels of each class but 0 in its colour, and white outlines."""
    tint = np.array([(0, 0, 0), *COLOURS])[(classes > 0) * (1 + (classes - 1) % len(COLOURS))]
    shown = np.where(classes[..., None] > 0, 0.45 * photograph + 0.55 * tint, photograph)
    edge = np.zeros(classes.shape, bool)
    edge[1:] |= classes[1:] != classes[:-1]
    edge[:, 1:] |= classes[:, 1:] != classes[:, :-1]
    shown[edge] = 255
    return np.rint(shown).astype(np.uint8)


def coins_of_the_photograph(options: argparse.Namespace) -> dict[str, Any]:
    photograph, labels = coins()
    network = train(options, photograph[:, :SPLIT], labels[:, :SPLIT])
    held_out, wanted = np.ascontiguousarray(photograph[:, SPLIT:]), labels[:, SPLIT:]
    x = (held_out / np.float32(255))[None, None]
    start = time.perf_counter()
    found = np.asarray(network(x))[0, 0] > 0
    milliseconds = (time.perf_counter() - start) * 1e3
    iou = float((found & wanted).sum() / (found | wanted).sum())
    shown = np.repeat(held_out[:, :, None], 3, axis=2)
    panels = [
        ("held out", shown),
        (f"mpscnn, overlap {iou:.1%}", overlay(shown, found.astype(int))),
        ("labels", overlay(shown, wanted.astype(int))),
    ]
    save(side_by_side(panels), options.output)
    return {"iou": round(iou, 4), "classes": 2, "milliseconds": round(milliseconds, 2)}


def own_network(options: argparse.Namespace) -> dict[str, Any]:
    photograph = read_picture(options.photograph)
    scale = options.size / min(photograph.shape[:2])
    height, width = (max(32, round(side * scale / 32) * 32) for side in photograph.shape[:2])
    normalization = {"mean": options.mean, "std": options.std}
    try:
        try:
            network = mpscnn.load(options.weights, **normalization)
        except mpscnn.InvalidModelError:  # a file that leaves height and width open
            network = mpscnn.load(options.weights, input_shapes=shapes(options.weights, height, width), **normalization)
    except mpscnn.ImportError as error:
        raise UserError(str(error)) from error
    (taken, *_) = network.inputs.values()
    size = taken.width or width, taken.height or height
    resized = np.asarray(Image.fromarray(photograph).resize(size, Image.Resampling.BILINEAR))
    x = np.ascontiguousarray(resized.transpose(2, 0, 1))[None]
    try:
        start = time.perf_counter()
        scores = network(x)
        milliseconds = (time.perf_counter() - start) * 1e3
    except ValueError as error:
        raise UserError(f"the network does not take the photograph: {error}") from error
    if not isinstance(scores, np.ndarray) or scores.ndim != 4:
        raise UserError(
            f'"{options.weights}" does not label pixels: it has no result of shape (images, classes, H, W).'
        )
    classes = scores[0].argmax(0) if scores.shape[1] > 1 else (scores[0, 0] > 0).astype(int)
    pixels = Image.fromarray(classes.astype(np.int32)).resize(size, Image.Resampling.NEAREST)
    panels = [("photograph", resized), (options.weights.name, overlay(resized, np.asarray(pixels)))]
    save(side_by_side(panels), options.output)
    present, counts = np.unique(classes, return_counts=True)
    share = {int(number): round(float(count / classes.size), 4) for number, count in zip(present, counts, strict=True)}
    return {"classes": max(2, scores.shape[1]), "share": share, "milliseconds": round(milliseconds, 2)}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    parser.add_argument("photograph", nargs="?", type=Path, help="file that Pillow reads, with --weights")
    parser.add_argument("--weights", type=Path, metavar="PATH", help="network: .onnx, .pt2, .mpscnn")
    parser.add_argument(
        "--size", type=count, default=512, metavar="N", help="shorter side for it, pixels (%(default)s)"
    )
    for name, values in (("mean", (0.485, 0.456, 0.406)), ("std", (0.229, 0.224, 0.225))):  # torchvision's
        parser.add_argument(
            f"--{name}", type=float, nargs=3, metavar="X", default=values,
            help=f"{name} of red, green and blue in 0...1 for it (torchvision's)",
        )  # fmt: skip
    parser.add_argument("--epochs", type=count, default=20, metavar="N", help="of 64 patches (%(default)s)")
    parser.add_argument("--learning-rate", type=fraction, default=0.01, metavar="X", help="Adam's (%(default)s)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of weights and patches (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("segment.png"), metavar="PNG", help="(%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if (options.photograph is None) != (options.weights is None):
        parser.error("a photograph and --weights go together: without both, the program trains a network of its own.")
    return options


def segment(options: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    figures = own_network(options) if options.weights else coins_of_the_photograph(options)
    return figures | {
        "device": mpscnn.Device().name,
        "seconds": round(time.perf_counter() - started, 1),
        "picture": str(options.output),
    }


def lines(figures: dict[str, Any]) -> list[str]:
    shown = []
    if "iou" in figures:
        shown.append(f"Overlap  {figures['iou']:.1%} (intersection over union) on the part that training did not use")
    shown += [f"Class {number:<3}{share:7.1%} of the pixels" for number, share in figures.get("share", {}).items()]
    shown.append(f"Time     {figures['seconds']:.1f} s in all, {figures['milliseconds']:.1f} ms for the picture")
    return [*shown, f"Picture  {figures['picture']}"]


def main(arguments: Sequence[str] | None = None) -> int:
    return run("segment", segment, lines, parse(arguments))


if __name__ == "__main__":
    sys.exit(main())
