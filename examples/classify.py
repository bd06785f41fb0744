# SPDX-License-Identifier: Apache-2.0
"""Classify a picture with your own weights, print the five most likely classes, and draw them beside the picture.

The weights are those of ResNet, MobileNetV2, VGG or SqueezeNet from torchvision, timm or Hugging Face: .safetensors,
.pt, .pth, .npz, or a Hugging Face folder, whose config.json also has the names of the classes. An ONNX model works,
too. The picture is resized, centre-cropped and normalized as in training. The default numbers are torchvision's; the
folder and the options may have others.

    python examples/classify.py PICTURE --weights resnet50.safetensors [--classes imagenet_classes.txt]
        [--output PNG] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import needs  # noqa: F401
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from shared import COLOURS, UserError, count, read_picture, run, save
from tqdm import trange

import mpscnn

HOW_TO_GET_WEIGHTS = """There are no weights. They are files of their own, made by training; nothing is downloaded here.
For example:

  torchvision   python -c "import torch, torchvision as tv
                torch.save(tv.models.resnet50(weights='DEFAULT').state_dict(), 'resnet50.pth')"
  timm          model.safetensors of https://huggingface.co/timm/resnet50.a1_in1k
  transformers  the folder of https://huggingface.co/microsoft/resnet-50 or google/mobilenet_v2_1.0_224

then: python examples/classify.py PICTURE --weights FILE_OR_FOLDER"""

# torchvision's presets for ImageNet: torchvision/transforms/_presets.py, ImageClassification.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise UserError(f'"{path}" is not JSON: {error}') from error
    return value if isinstance(value, dict) else {}


def preparation(options: argparse.Namespace) -> dict[str, Any]:
    """Return sizes, mean and std from the options, else from the model's folder, else torchvision's presets."""
    folder = options.weights if options.weights.is_dir() else None
    # Hugging Face's processors have image_mean, image_std, crop_size or size; timm's configurations pretrained_cfg.
    processor = read_json(folder / "preprocessor_config.json") if folder else {}
    trained = (read_json(folder / "config.json").get("pretrained_cfg") or {}) if folder else {}
    crop = processor.get("crop_size") or trained.get("input_size", [3, 224])[-1]
    crop = options.size or (crop.get("height", 224) if isinstance(crop, dict) else crop)
    shorter = processor.get("size")
    shorter = shorter.get("shortest_edge") if isinstance(shorter, dict) else shorter
    if options.resize or options.size or not shorter:
        shorter = options.resize or round(crop / trained.get("crop_pct", 224 / 256))
    prepared = {
        "crop": crop,
        "shorter": max(shorter, crop),
        "mean": options.mean or processor.get("image_mean") or trained.get("mean") or MEAN,
        "std": options.std or processor.get("image_std") or trained.get("std") or STD,
    }
    if not all(isinstance(prepared[key], int) and prepared[key] > 0 for key in ("crop", "shorter")):
        raise UserError(f'"{folder}": the sizes in its preprocessor_config.json or config.json are not understood.')
    return prepared


def pixels(path: Path, shorter: int, crop: int) -> NDArray[np.uint8]:
    """Return (1, 3, crop, crop): the picture resized to `shorter` pixels on its shorter side, then centre-cropped."""
    picture = Image.fromarray(read_picture(path))
    scale = shorter / min(picture.size)
    size = [max(crop, int(side * scale + 1e-6)) for side in picture.size]  # torchvision's Resize rounds down
    picture = picture.resize((size[0], size[1]), Image.Resampling.BILINEAR)
    left, top = (round((side - crop) / 2) for side in size)
    array = np.asarray(picture.crop((left, top, left + crop, top + crop)))
    return np.ascontiguousarray(array.transpose(2, 0, 1))[None]


def class_names(options: argparse.Namespace, classes: int) -> list[str]:
    """Return the names of the classes, from the text file or the folder's config.json, or numbers."""
    if options.classes is not None:
        try:
            names = [line.strip() for line in options.classes.read_text().splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f'the names of the classes, "{options.classes}", cannot be read: {error}') from error
        if len(names) != classes:
            raise UserError(f'"{options.classes}" has {len(names)} names; the network has {classes} classes.')
        return names
    labels = read_json(options.weights / "config.json").get("id2label") if options.weights.is_dir() else None
    if isinstance(labels, dict) and len(labels) == classes:
        return [str(labels.get(str(index), index)) for index in range(classes)]
    return [f"class {index}" for index in range(classes)]


def drawing(x: NDArray[np.uint8], rows: list[dict[str, Any]]) -> Image.Image:
    """Return the centre crop that the network has seen, and a bar for each class."""
    side, line, gap, width = 320, 56, 16, 400
    sheet = Image.new("RGB", (side + gap + width, max(side, line * len(rows))), "white")
    crop = Image.fromarray(x[0].transpose(1, 2, 0))
    sheet.paste(crop.resize((side, side), Image.Resampling.BICUBIC), (0, 0))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(16)
    for number, row in enumerate(rows):
        left, top = side + gap, line * number + 4
        label = f"{row['probability']:.1%}  {row['name']}"
        draw.text((left, top), label if len(label) <= 48 else label[:47] + "…", fill="black", font=font)
        draw.rectangle((left, top + 24, left + width - gap, top + 38), fill=(232, 232, 232))
        draw.rectangle((left, top + 24, left + (width - gap) * row["probability"], top + 38), fill=COLOURS[4])
    return sheet


def classify(options: argparse.Namespace) -> dict[str, Any]:
    prepared = preparation(options)
    crop = prepared["crop"]
    try:
        network = mpscnn.load(
            options.weights, architecture=options.architecture, mean=prepared["mean"], std=prepared["std"],
            input_shapes=None if options.weights.suffix == ".onnx" else (1, 3, crop, crop),
        )  # fmt: skip
    except mpscnn.ImportError as error:
        raise UserError(str(error)) from error
    x = pixels(options.picture, prepared["shorter"], crop)
    try:
        logits = network(x)
    except ValueError as error:  # a network for another size, or of several inputs
        raise UserError(f"the network does not take the picture: {error}") from error
    if not isinstance(logits, np.ndarray) or logits.ndim != 2:
        raise UserError(f'"{options.weights}" is no classifier: it has no result of shape (images, classes).')
    numbers = logits[0].astype(np.float64)
    probabilities = np.exp(numbers - numbers.max())
    probabilities /= probabilities.sum()
    names = class_names(options, len(numbers))
    best = np.argsort(-probabilities, kind="stable")[: options.top]
    rows = [{"index": int(index), "name": names[index], "probability": float(probabilities[index])} for index in best]
    save(drawing(x, rows), options.output)
    times = []
    for _ in trange(10, desc="classifying", unit="picture", disable=options.json):
        start = time.perf_counter()
        network(x)
        times.append((time.perf_counter() - start) * 1e3)
    return {
        "picture": str(options.picture),
        "weights": str(options.weights),
        "device": mpscnn.Device().name,
        "milliseconds": round(statistics.median(times), 2),
        "classes": rows,
        "output": str(options.output),
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    parser.add_argument("picture", type=Path, help="file that Pillow reads")
    parser.add_argument("--weights", type=Path, metavar="PATH", help="file or folder of weights, or ONNX model")
    parser.add_argument("--architecture", metavar="NAME", help="expected architecture of the weights: resnet50, ...")
    parser.add_argument("--classes", type=Path, metavar="TXT", help="names of the classes, one per line")
    parser.add_argument("--top", type=count, default=5, metavar="N", help="classes to print (5)")
    parser.add_argument("--size", type=count, metavar="N", help="height and width of the centre crop, pixels (224)")
    parser.add_argument("--resize", type=count, metavar="N", help="shorter side before that, pixels (256)")
    for name in ("mean", "std"):
        parser.add_argument(
            f"--{name}", type=float, nargs=3, metavar="X", help=f"{name} of red, green and blue in 0...1"
        )
    parser.add_argument(
        "--output", type=Path, default=Path("classify.png"), metavar="PNG", help="picture of the result (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser.parse_args(arguments)


def lines(figures: dict[str, Any]) -> list[str]:
    shown = [f"{row['probability']:7.2%}  {row['name']}" for row in figures["classes"]]
    return [*shown, f"Time     {figures['milliseconds']:.2f} ms", f"Picture  {figures['output']}"]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.weights is None:
        print(HOW_TO_GET_WEIGHTS, file=sys.stderr)
        return 2
    return run("classify", classify, lines, options)


if __name__ == "__main__":
    sys.exit(main())
