# SPDX-License-Identifier: Apache-2.0
"""Train a network that reads handwritten digits, with MPS's gradient kernels, losses and optimizers.

Apple's training sample uses MNIST; this one uses scikit-learn's digits, 1,797 pictures of 8 x 8 pixels in the package.
A fifth of them is not used in training, and the accuracy on it is printed.
Needs additional packages: pip install scikit-learn matplotlib pillow.

    python examples/train.py [--epochs N] [--learning-rate X] [--output FOLDER] [--check-pytorch] [--json]
"""

from __future__ import annotations

import os
import time

STARTED = time.perf_counter()
# The layers are too small for a second thread to help, and on a shared machine threads wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when libraries are loaded

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

import mpscnn  # noqa: E402

Array = NDArray[Any]
SIZE, CLASSES = 8, 10
PREDICTION_BATCH = 256
# Files in the output folder, and their labels.
WRITTEN = {"checkpoint": "Checkpoint", "digits.mpscnn": "Network", "history.svg": "Plot", "mistakes.png": "Mistakes"}
PACKAGES = ("scikit-learn", "matplotlib", "pillow")
DIFFERENCE_ALLOWED = 1e-4  # from PyTorch's logits, which are about 10


class UserError(Exception):
    """An error that the user can fix."""


def convolution(number: int, inputs: int, outputs: int) -> list[Any]:
    """Return a 3 x 3 convolution with batch normalization and ReLU."""
    sizes = {"in_channels": inputs, "out_channels": outputs, "kernel_size": 3, "padding": 1, "bias": False}
    return [
        (f"conv{number}", "Conv2d", sizes),
        (f"norm{number}", "BatchNorm2d", {"num_features": outputs}),
        (f"relu{number}", "ReLU"),
    ]


# 25,978 parameters.
LAYERS: list[Any] = [
    *convolution(1, 1, 16),
    *convolution(2, 16, 32),
    ("pool2", "MaxPool2d", {"kernel_size": 2}),
    *convolution(3, 32, 64),
    ("pool3", "MaxPool2d", {"kernel_size": 2}),
    ("flat", "Flatten"),
    ("drop", "Dropout", {"p": 0.3}),
    ("fc", "Linear", {"in_features": 64 * (SIZE // 4) ** 2, "out_features": CLASSES}),
]


def digits(seed: int) -> tuple[Array, Array, Array, Array]:
    """Return pictures and labels for training, and held-out ones: (N, 1, 8, 8) float32 in 0...1, (N,) int."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise UserError(str(mpscnn.MissingPackageError("the digits", "scikit-learn", PACKAGES, plural=True))) from None
    found = load_digits()
    x = (found.images / 16).astype(np.float32)[:, None]
    order = np.random.default_rng(seed).permutation(len(x))
    held_out, trained = order[: len(x) // 5], order[len(x) // 5 :]
    return x[trained], found.target[trained], x[held_out], found.target[held_out]


def warp(x: Array, labels: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rotate each picture by up to 0.2 radians, scale it by up to a tenth and shift it by up to a pixel; bilinear."""
    count, border = len(x), 2
    angle, scale = rng.uniform(-0.2, 0.2, count), rng.uniform(0.9, 1.1, count)
    cos, sin = ((scale * f(angle))[:, None, None] for f in (np.cos, np.sin))
    middle = (SIZE - 1) / 2
    row, column = np.mgrid[:SIZE, :SIZE] - middle
    moved = rng.uniform(-1, 1, (2, count, 1, 1)) + middle + border
    limit = SIZE + 2 * border - 1 - 1e-3
    u = np.clip(cos * row - sin * column + moved[0], 0, limit)
    v = np.clip(sin * row + cos * column + moved[1], 0, limit)
    i, j = u.astype(int), v.astype(int)
    down, right = u - i, v - j
    source = np.pad(x[:, 0], ((0, 0), (border, border), (border, border)))
    picture = np.arange(count)[:, None, None]
    upper = source[picture, i, j] * (1 - right) + source[picture, i, j + 1] * right
    lower = source[picture, i + 1, j] * (1 - right) + source[picture, i + 1, j + 1] * right
    warped: Array = upper * (1 - down) + lower * down
    return warped[:, None].astype(np.float32), labels


def predict(network: mpscnn.Network, x: Array) -> Array:
    """Return logits, (N, 10)."""
    return np.concatenate([
        np.asarray(network(x[start : start + PREDICTION_BATCH])) for start in range(0, len(x), PREDICTION_BATCH)
    ])  # fmt: skip


def difference_from_pytorch(model: Path, x: Array, logits: Array) -> float | None:
    """Return the max difference from PyTorch with the same checkpoint; None if PyTorch is not installed."""
    try:
        import torch
        from safetensors.torch import load_file
    except ModuleNotFoundError:
        return None
    module = torch.nn.Sequential()
    for name, kind, *options in LAYERS:
        module.add_module(name, getattr(torch.nn, kind)(**(options[0] if options else {})))
    module.load_state_dict(load_file(model))
    module.eval()
    with torch.inference_mode():
        return float(np.abs(module(torch.from_numpy(x)).numpy() - logits).max())


def draw_mistakes(path: Path, x: Array, rows: list[dict[str, Any]]) -> None:
    """Draw the misread pictures, enlarged, with prediction and label."""
    from PIL import Image, ImageDraw, ImageFont

    side, caption, gap, columns = 112, 40, 12, min(8, len(rows))
    lines = -(-len(rows) // columns)
    size = (columns * (side + gap) + gap, lines * (side + caption + gap) + gap)
    sheet = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    for place, row in enumerate(rows):
        left = gap + place % columns * (side + gap)
        top = gap + place // columns * (side + caption + gap)
        ink = Image.fromarray(np.rint(255 * (1 - x[row["index"], 0])).astype(np.uint8))
        sheet.paste(ink.resize((side, side), Image.Resampling.NEAREST), (left, top))
        draw.rectangle((left - 1, top - 1, left + side, top + side), outline="grey")
        text = f"read as {row['predicted']} ({row['probability']:.0%})\nis {row['label']}"
        draw.text((left, top + side + 3), text, fill="black", font=font)
    sheet.save(path)


def train(options: argparse.Namespace) -> dict[str, Any]:
    x, labels, held_out, held_out_labels = digits(options.seed)
    say = (lambda text: None) if options.json else (lambda text: print(text, flush=True))
    say(f"{len(x)} pictures to train with, {len(held_out)} held out; {mpscnn.Device().name}")
    steps = options.epochs * math.ceil(len(x) / options.batch_size)

    def rate(step: int) -> float:
        """Return the learning rate: half a cosine, from the given rate to 0."""
        return float(options.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps)))

    trainer = mpscnn.Trainer(
        LAYERS,
        input_shapes=(1, 1, SIZE, SIZE),
        optimizer=mpscnn.OptimizerAdam(options.learning_rate),
        seed=options.seed,
    )
    try:
        for number in range(options.epochs):
            history = trainer.fit(
                x, labels, batch_size=options.batch_size, validation=(held_out, held_out_labels),
                augment=warp, learning_rate=rate,
            )  # fmt: skip
            say(f"epoch {number + 1:3}/{options.epochs}: {history[-1]}  ({history[-1].seconds:.2f} s)")
    except FloatingPointError as error:
        raise UserError(str(error)) from error

    network = trainer.network()
    logits = predict(network, held_out)
    probabilities = np.exp(logits - logits.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    mistakes = [
        {
            "index": int(index),
            "label": int(held_out_labels[index]),
            "predicted": int(logits[index].argmax()),
            "probability": round(float(probabilities[index].max()), 4),
        }
        for index in np.flatnonzero(logits.argmax(1) != held_out_labels)
    ]
    files = {name: options.output / name for name in WRITTEN}
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        trainer.save(files["checkpoint"])
        network.save(files["digits.mpscnn"])
        history.plot(files["history.svg"], title="Handwritten digits, 8 x 8 pixels")
        files["mistakes.png"].unlink(missing_ok=True)  # from an earlier run
        if mistakes:
            draw_mistakes(files["mistakes.png"], held_out, mistakes)
    except OSError as error:
        raise UserError(f"the results cannot be written: {error}") from error
    except mpscnn.MissingPackageError as error:
        raise UserError(str(error)) from error
    except ModuleNotFoundError as error:
        raise UserError(str(mpscnn.MissingPackageError("a picture", "pillow", PACKAGES))) from error
    report = {
        "device": mpscnn.Device().name,
        "trained": len(x),
        "held_out": len(held_out),
        "epochs": history.to_dict()["epochs"],
        "accuracy": 1 - len(mistakes) / len(held_out),
        "mistakes": mistakes,
        "seconds": round(time.perf_counter() - STARTED, 2),
        "processor_seconds": round(time.process_time(), 2),
        "files": [str(path) for path in files.values() if path.exists()],
    }
    if options.check_pytorch:
        model = files["checkpoint"] / "model.safetensors"
        report["difference_from_pytorch"] = difference_from_pytorch(model, held_out, logits)
    return report


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def count(minimum: int) -> Any:
        def number(text: str) -> int:
            value = int(text)
            if value < minimum:
                raise argparse.ArgumentTypeError(f"{value} is less than the minimum ({minimum})")
            return value

        return number

    def positive(text: str) -> float:
        value = float(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a finite number greater than 0")
        return value

    def add(name: str, default: Any, text: str, kind: Any) -> None:
        parser.add_argument(name, type=kind, default=default, metavar="N", help=f"{text} (%(default)s)")

    add("--epochs", 16, "passes over the pictures", count(1))
    add("--batch-size", 64, "pictures in a step", count(2))
    add("--learning-rate", 0.01, "Adam's initial rate, which decreases to 0", positive)
    add("--seed", 0, "seed of the held-out pictures, initial parameters, dropout and order", count(0))
    parser.add_argument(
        "--output", type=Path, default=Path("digits"), metavar="FOLDER", help="folder of the results (%(default)s)"
    )
    parser.add_argument("--check-pytorch", action="store_true", help="load the checkpoint into PyTorch, and compare")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        report = train(options)
    except UserError as problem:
        print(f"train: {problem}", file=sys.stderr)
        return 1
    difference = report.get("difference_from_pytorch")
    if options.json:
        print(json.dumps(report))
    else:
        right = report["held_out"] - len(report["mistakes"])
        print(f"\nAccuracy    {report['accuracy']:.2%}: {right} of {report['held_out']} that were held out")
        print(f"Time        {report['seconds']:.1f} s in all")
        for path in report["files"]:
            print(f"{WRITTEN[Path(path).name]:<11} {path}")
        print("Next        mpscnn.load() and mpscnn info take the network; Trainer.load() goes on from the checkpoint")
        if options.check_pytorch:
            absent = "PyTorch     not compared: torch is not installed"
            print(
                absent if difference is None else f"PyTorch     loads the checkpoint; logits differ by {difference:.1e}"
            )
    if difference is not None and not difference <= DIFFERENCE_ALLOWED:
        print(
            f"train: the difference from PyTorch ({difference:.1e}) is greater than {DIFFERENCE_ALLOWED:.0e}.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
