# SPDX-License-Identifier: Apache-2.0
"""Fast style transfer on a photograph: reflection padding, instance normalization, residual blocks, upsampling.

Takes weights of PyTorch's example fast_neural_style, or random ones, which give an arbitrary style. The network is
detected from the names of its weights; PyTorch is not needed. If it is installed, the result is compared with
PyTorch's.

    python examples/style.py [PHOTOGRAPH] [--weights FILE] [--output PNG] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import needs  # noqa: F401
import numpy as np
import skimage.data
from numpy.typing import NDArray
from shared import UserError, count, natural, read_picture, run, save, side_by_side
from tqdm import trange

import mpscnn
from mpscnn.importing import architectures, weights_files

sys.path.insert(0, str(Path(__file__).resolve().parent / "style_transfer"))

from weights import random_weights

DIFFERENCE_ALLOWED = 1e-2  # from PyTorch, for colours in 0...255


def photograph(path: Path | None) -> NDArray[np.uint8]:
    """Return (H, W, 3), cropped to multiples of 4: the network's result then has the same size."""
    picture = np.asarray(skimage.data.chelsea()) if path is None else read_picture(path)
    height, width = (side - side % 4 for side in picture.shape[:2])
    return picture[:height, :width]


def difference_from_pytorch(
    weights: Mapping[str, NDArray[Any]], x: NDArray[np.float32], ours: NDArray[np.float32]
) -> float | None:
    """Return the max difference from the same network in PyTorch; None if PyTorch is not installed."""
    try:
        import torch
        from model import style_transfer
    except ImportError:
        return None
    with torch.inference_mode():
        prefix = architectures.detect(weights).prefix  # "module.", for example
        tensors = {name.removeprefix(prefix): torch.from_numpy(np.array(weights[name], np.float32)) for name in weights}
        theirs = style_transfer(tensors, torch.from_numpy(x)).numpy()
    return float(np.abs(ours - theirs).max())


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photograph", nargs="?", type=Path, help="picture file (default: a cat, of scikit-image)")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="of a style: .pth, .safetensors (default: random)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of random weights (%(default)s)")
    parser.add_argument("--width", type=count, default=32, metavar="N", help="channels of random weights (%(default)s)")
    parser.add_argument("--repeat", type=count, default=5, metavar="N", help="timed runs (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("style_transfer.png"), help="PNG to write (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.photograph is not None and not options.photograph.is_file():
        parser.error(f"photograph ({options.photograph}) is not a file.")
    return options


def paint(options: argparse.Namespace) -> dict[str, Any]:
    picture = photograph(options.photograph)
    x = np.ascontiguousarray(picture.transpose(2, 0, 1), np.float32)[None]
    try:
        weights = (
            weights_files.load(options.weights) if options.weights else random_weights(options.seed, options.width)
        )
        network = mpscnn.Network(architectures.read(weights, "style_transfer"))
    except mpscnn.ImportError as error:
        raise UserError(str(error)) from error

    result = network(x)
    times = []
    for _ in trange(options.repeat, desc="painting", unit="picture", disable=options.json):
        start = time.perf_counter()
        network(x)
        times.append((time.perf_counter() - start) * 1e3)
    difference = difference_from_pytorch(weights, x, result)

    painted = result[0].transpose(1, 2, 0).round().clip(0, 255).astype(np.uint8)
    save(side_by_side([("photograph", picture), ("painted", painted)]), options.output)

    height, width, _ = picture.shape
    return {
        "device": mpscnn.Device().name,
        "weights": str(options.weights) if options.weights else f"random, seed {options.seed}",
        "size": [height, width],
        "difference_from_pytorch": difference,
        "milliseconds_per_image": round(statistics.median(times), 2),
        "picture": str(options.output),
    }


def lines(figures: dict[str, Any]) -> list[str]:
    (height, width), difference = figures["size"], figures["difference_from_pytorch"]
    compared = "not measured: torch is not installed" if difference is None else f"{difference:.1e} at most, of 0...255"
    return [
        f"Device                 {figures['device']}",
        f"Weights                {figures['weights']}",
        f"Picture                {width} x {height}",
        f"Difference to PyTorch  {compared}",
        f"Time                   {figures['milliseconds_per_image']:.2f} ms per image",
        f"Before and after       {figures['picture']}",
    ]


def problems(figures: dict[str, Any]) -> list[str]:
    difference = figures["difference_from_pytorch"]
    if difference is None or difference <= DIFFERENCE_ALLOWED:
        return []
    return [f"the difference from PyTorch ({difference:.1e}) is greater than {DIFFERENCE_ALLOWED:.0e}"]


def main(arguments: list[str] | None = None) -> int:
    return run("style", paint, lines, parse(arguments), problems)


if __name__ == "__main__":
    sys.exit(main())
