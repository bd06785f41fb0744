# SPDX-License-Identifier: Apache-2.0
"""mpscnn run: run a model on images or arrays; results are classes, images or arrays."""

from __future__ import annotations

import enum
import json as json_
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from ..errors import MissingPackageError
from ..network import Network
from . import options
from .console import progress, say, stdout, table, write_json
from .models import load


class Kind(str, enum.Enum):
    """Interpretation of results."""

    auto = "auto"
    classes = "classes"
    image = "image"
    array = "array"


# Preprocessing of torchvision's classification networks.
_IMAGENET = {"resize": (256, 256), "crop": (224, 224), "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
# PIL's modes, by number of channels.
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Prepare:
    """Preprocessing of images; pixels stay 0...255, as uint8.

    Attributes
    ----------
    size : (height, width) or None
        Size to stretch to.
    resize : int or None
        Length of the shorter side; the aspect ratio is kept.
    crop : (height, width) or None
        Size of the centre crop that follows.
    channels : int
        1, 3 or 4.
    """

    size: tuple[int, int] | None
    resize: int | None
    crop: tuple[int, int] | None
    channels: int

    def __call__(self, path: Path) -> NDArray[np.uint8]:
        """Return the image of a file, (height, width, channels)."""
        from PIL import Image

        with Image.open(path) as opened:
            picture: Any = opened.convert(_MODES[self.channels])
        if self.size is not None:
            picture = picture.resize(self.size[::-1], Image.Resampling.BILINEAR)
        elif self.resize is not None:
            scale = self.resize / min(picture.size)
            extents = [max(self.resize, int(extent * scale)) for extent in picture.size]
            picture = picture.resize(extents, Image.Resampling.BILINEAR)
        if self.crop is not None:
            h, w = self.crop
            if picture.height < h or picture.width < w:
                raise ValueError(
                    f"{path}: {picture.height} x {picture.width} pixels are less than --crop asks for ({h} x {w})."
                )
            top, left = round((picture.height - h) / 2), round((picture.width - w) / 2)
            picture = picture.crop((left, top, left + w, top + h))
        return np.asarray(picture).reshape(picture.height, picture.width, self.channels)


def run(
    model: options.Model,
    paths: Annotated[
        list[Path], typer.Argument(exists=True, help="Images, folders of images, or .npy arrays.", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for images and arrays.", show_default=False)
    ] = None,
    as_: Annotated[Kind, typer.Option("--as", help="Interpretation of results; auto: by shape.")] = Kind.auto,
    top: Annotated[int, typer.Option(callback=options.within(1), help="Classes to show for each image.")] = 5,
    labels: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Names of the classes: one per line, or JSON.", show_default=False
        ),
    ] = None,
    softmax: Annotated[bool, typer.Option("--softmax", help="Turn scores into probabilities.")] = False,
    preset: options.PresetName = None,
    size: options.Size = None,
    resize: options.Resize = None,
    crop: options.Crop = None,
    mean: options.Mean = None,
    std: options.Std = None,
    value_range: Annotated[
        str, typer.Option("--range", metavar="LOW,HIGH", help="Values of black and white in image results.")
    ] = "0,1",
    batch: Annotated[int, typer.Option(callback=options.within(1), help="Batch size, for images of equal size.")] = 8,
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    dtype: options.Precision = options.DType.float32,
    reduced_precision: options.ReducedPrecision = False,
    device: options.Device = None,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Run a model on images, folders of images or .npy arrays."""
    chosen: dict[str, Any] = dict(_IMAGENET) if preset is options.Preset.imagenet else {}
    means = options.numbers(mean, "--mean") or chosen.get("mean")
    stds = options.numbers(std, "--std") or chosen.get("std")
    black, white = _range(value_range)
    files = list(_files(paths))
    loaded = load(
        model,
        input_shape,
        architecture=architecture,
        option=option,
        dtype=dtype.value,
        reduced_precision=reduced_precision,
        mean=means,
        std=stds,
        device=device,
    )
    network = loaded.network
    if len(network.inputs) != 1:
        raise ValueError(
            f"run takes models of one input; this one has {len(network.inputs)} ({', '.join(network.inputs)})."
        )
    spec = next(iter(network.inputs.values()))
    stretched = options.pair(size, "--size")
    prepare = Prepare(
        stretched,
        resize or (chosen["resize"][0] if chosen and stretched is None else None),
        options.pair(crop, "--crop") or (chosen.get("crop") if stretched is None else None),
        spec.channels or 3,
    )
    names = _labels(labels) if labels else None
    results: list[dict[str, Any]] = []
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with progress("running", total=len(files)) as done:
        for path, result in _results(network, files, prepare, batch):
            kind = _kind(network, result) if as_ is Kind.auto else as_
            if kind is Kind.classes:
                results.append({"path": path, "classes": _classes(result, top, names, softmax)})
            else:
                if output is None:
                    raise typer.BadParameter(
                        f"results are of shape {tuple(result[0].shape)}, no classes: where are they to be written?",
                        param_hint="--output",
                    )
                layouts = [one.layout for one in network.outputs.values()]
                results.append({"path": path, "output": _write(output, path, result, layouts, kind, black, white)})
            done(len(results))
    seconds = time.perf_counter() - start
    if json:
        write_json(
            {"model": model, "results": results, "seconds": seconds, "images_per_second": len(results) / seconds}
        )
        return
    _show(results)
    say(f"{len(results)} in {seconds:.2f} s, {len(results) / seconds:.1f} per second")


def _show(results: list[dict[str, Any]]) -> None:
    if all("classes" in result for result in results):
        rows = [
            (
                str(result["path"]) if not place else "",
                str(one["index"]),
                str(one["label"] or ""),
                f"{one['score']:.4f}",
            )
            for result in results
            for place, one in enumerate(result["classes"])
        ]
        stdout().print(table(("image", "class", "label", "score"), rows, right=1))
        return
    written = [(str(result["path"]), str(result.get("output", ""))) for result in results]
    stdout().print(table(("from", "to"), written))


# ---- input


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files, with folders replaced by their images in the order of their names."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        suffixes = {*_image_suffixes(), ".npy"}
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in suffixes)
        if not found:
            raise ValueError(f'the folder "{path}" has no images and no .npy arrays.')
        yield from found


def _image_suffixes() -> frozenset[str]:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingPackageError("reading images", "pillow") from None
    return frozenset(Image.registered_extensions())


def _arrays(network: Network, files: list[Path], prepare: Prepare) -> Iterator[tuple[Path, NDArray[Any]]]:
    """Yield each file with its array, batch first, in the layout of the network's input."""
    layout = next(iter(network.inputs.values())).layout
    for path in files:
        if path.suffix.lower() == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            yield path, array if array.ndim == len(layout) else array[None]
            continue
        if set(layout) != set("NHWC"):
            raise ValueError(f"{path} is an image; the model takes {layout}.")
        _image_suffixes()
        if prepare.channels not in _MODES:
            raise ValueError(f"{path}: images have 1, 3 or 4 channels; the model takes {prepare.channels}.")
        yield path, prepare(path)[None].transpose(["NHWC".index(letter) for letter in layout])


def _results(
    network: Network, files: list[Path], prepare: Prepare, batch: int
) -> Iterator[tuple[Path, list[NDArray[Any]]]]:
    """Yield each file with its results."""
    taken: list[list[tuple[Path, int]]] = []  # for each batch, its files and their numbers of images

    def batches() -> Iterator[NDArray[Any]]:
        arrays = _arrays(network, files, prepare)
        for _, group in groupby(arrays, key=lambda one: (one[1].shape[1:], one[1].dtype)):
            rows: list[tuple[Path, NDArray[Any]]] = []
            for one in group:
                if rows and sum(len(array) for _, array in rows) + len(one[1]) > batch:
                    taken.append([(path, len(array)) for path, array in rows])
                    yield _together([array for _, array in rows])
                    rows = []
                rows.append(one)
            taken.append([(path, len(array)) for path, array in rows])
            yield _together([array for _, array in rows])

    with network.stream(batches()) as stream:
        for number, result in enumerate(stream):
            outputs = list(result) if isinstance(result, tuple) else [result]
            first = 0
            for path, count in taken[number]:
                yield path, [output[first : first + count] for output in outputs]
                first += count


def _together(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


# ---- output


def _kind(network: Network, results: list[NDArray[Any]]) -> Kind:
    """Return the kind of a result: vectors are scores of classes, images have 1, 3 or 4 channels."""
    layout, array = next(iter(network.outputs.values())).layout, results[0]
    if len(results) == 1 and array.ndim >= 2 and array[0].size == max(array.shape[1:]) and len(array) == 1:
        return Kind.classes
    if len(results) == 1 and array.ndim == 4 == len(layout) and array.shape[layout.index("C")] in _MODES:
        return Kind.image
    return Kind.array


def _classes(
    results: list[NDArray[Any]], top: int, labels: dict[int, str] | None, softmax: bool
) -> list[dict[str, Any]]:
    array = np.asarray(results[0], np.float64)
    if len(array) != 1:
        raise typer.BadParameter(
            f"there are {len(array)} results in one file; classes are shown of one.", param_hint="--as"
        )
    scores = array.reshape(-1)
    if softmax:
        scores = np.exp(scores - scores.max())
        scores /= scores.sum()
    best = np.argsort(-scores, kind="stable")[:top]
    return [
        {"index": int(index), "label": labels.get(int(index)) if labels else None, "score": float(scores[index])}
        for index in best
    ]


def _write(
    folder: Path,
    path: Path,
    results: list[NDArray[Any]],
    layouts: list[str],
    kind: Kind,
    black: float,
    white: float,
) -> Any:
    written = []
    for number, (array, layout) in enumerate(zip(results, layouts, strict=True)):
        name = path.stem if len(results) == 1 else f"{path.stem}_{number}"
        if kind is Kind.image:
            if array.ndim != 4 or set(layout) != set("NHWC") or array.shape[layout.index("C")] not in _MODES:
                raise ValueError(f"{path}: a result of shape {array.shape} is no image of 1, 3 or 4 channels.")
            for image, one in enumerate(array.transpose([layout.index(letter) for letter in "NHWC"])):
                file = folder / f"{name}{f'_{image}' if len(array) > 1 else ''}.png"
                _save_image(file, one, black, white)
                written.append(file)
        else:
            file = folder / f"{name}.npy"
            np.save(file, array)
            written.append(file)
    return written[0] if len(written) == 1 else written


def _save_image(file: Path, image: NDArray[Any], black: float, white: float) -> None:
    """Write an image (height, width, channels)."""
    _image_suffixes()
    from PIL import Image

    pixels = np.clip((np.asarray(image, np.float32) - black) * (255 / (white - black)), 0, 255)
    pixels = np.rint(pixels).astype(np.uint8)
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file)


def _range(text: str) -> tuple[float, float]:
    ends = options.numbers(text, "--range") or []
    if len(ends) != 2 or ends[0] == ends[1]:
        raise typer.BadParameter(f'"{text}" is not two different numbers: 0,255.', param_hint="--range")
    return ends[0], ends[1]


def _labels(path: Path) -> dict[int, str]:
    """Read names of classes: one per line, or a JSON list or dict by number, of names or of lists that end in one."""
    text = path.read_text(encoding="utf-8")
    if path.suffix.lower() != ".json":
        return dict(enumerate(line.strip() for line in text.splitlines()))
    try:
        read = json_.loads(text)
        pairs = read.items() if isinstance(read, dict) else enumerate(read)
        return {int(index): str(name[-1] if isinstance(name, list) else name) for index, name in pairs}
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path}: no list of names, and no dict of names by number ({error}).") from None
