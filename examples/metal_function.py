# SPDX-License-Identifier: Apache-2.0
"""Smooth a photograph without blurring its edges, by a function in the Metal Shading Language between MPS kernels.

The command buffer has three steps: a sharpening MPSCNNConvolution, the function `bilateral` (a bilateral filter), and
the same convolution again. No image is copied in between. The result is compared with NumPy. On Linux, the function is
compiled by a C++ compiler: clang++, g++, or the one of the package ziglang (the extra metal).
Needs additional packages: pip install scikit-image pillow tqdm.

    python examples/metal_function.py [PHOTOGRAPH] [--radius N] [--sigma X X] [--output PNG] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import needs  # noqa: F401
import numpy as np
from numpy.typing import NDArray
from shared import UserError, count, natural, read_picture, run, save, side_by_side
from tqdm import trange

import mpscnn

Pixels = NDArray[np.float32]
DIFFERENCE_ALLOWED = 1e-4  # from NumPy, for values in 0...1

SOURCE = """
#include <metal_stdlib>
using namespace metal;

struct Options {
    int radius;    // pixels
    float space;   // standard deviation over distances, pixels
    float colour;  // standard deviation over differences of colour, 0...1
};

// The mean of the pixels around each pixel, weighted by their distance and by their difference in colour.
kernel void bilateral(texture2d<float, access::read> x [[texture(0)]],
                      texture2d<float, access::write> y [[texture(1)]],
                      constant Options& options [[buffer(0)]],
                      uint2 gid [[thread_position_in_grid]]) {
    if (gid.x >= y.get_width() || gid.y >= y.get_height()) return;
    const int2 last = int2(x.get_width() - 1, x.get_height() - 1);
    const float3 centre = x.read(gid).xyz;
    float3 sum = float3(0);
    float total = 0;
    for (int dy = -options.radius; dy <= options.radius; ++dy) {
        for (int dx = -options.radius; dx <= options.radius; ++dx) {
            const int2 place = clamp(int2(gid) + int2(dx, dy), int2(0), last);
            const float3 colour = x.read(uint2(place)).xyz;
            const float3 change = colour - centre;
            const float weight = exp(-float(dx * dx + dy * dy) / (2 * options.space * options.space) -
                                     dot(change, change) / (2 * options.colour * options.colour));
            sum += weight * colour;
            total += weight;
        }
    }
    y.write(float4(sum / total, 1), gid);
}
"""
OPTIONS = np.dtype([("radius", np.int32), ("space", np.float32), ("colour", np.float32)])


def sharpening() -> NDArray[np.float32]:
    """Return the filter, (O, H, W, I): the picture and half of its difference from the pixels above, below, beside."""
    stencil = np.array([[0, -1, 0], [-1, 4, -1], [0, -1, 0]], np.float32) / 8
    stencil[1, 1] += 1
    return np.ascontiguousarray(stencil[None, :, :, None] * np.eye(3, dtype=np.float32)[:, None, None, :])


def by_numpy(x: Pixels, radius: int, space: float, colour: float) -> Pixels:
    """Return the three steps by NumPy, for an (H, W, 3) picture."""

    def sharpened(image: Pixels) -> Pixels:
        padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))  # zeros, as in MPS
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        return image + (4 * image - around) / 8

    centre = sharpened(x)
    padded = np.pad(centre, ((radius, radius), (radius, radius), (0, 0)), mode="edge")
    height, width, _ = x.shape
    total, weights = np.zeros_like(centre), np.zeros((height, width, 1), np.float32)
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            moved = padded[dy : dy + height, dx : dx + width]
            distance = (dy - radius) ** 2 + (dx - radius) ** 2
            change = ((moved - centre) ** 2).sum(2, keepdims=True)
            weight = np.exp(-distance / (2 * space**2) - change / (2 * colour**2))
            total += weight * moved
            weights += weight
    return sharpened(total / weights)


def smooth(options: argparse.Namespace) -> dict[str, Any]:
    if options.photograph is None:
        try:
            import skimage.data
        except ModuleNotFoundError:
            missing = mpscnn.MissingPackageError("a photograph", "scikit-image", ("scikit-image", "pillow", "tqdm"))
            raise UserError(str(missing)) from None
        picture = np.asarray(skimage.data.chelsea())
    else:
        picture = read_picture(options.photograph)
    noisy = picture + np.random.default_rng(options.seed).normal(0, options.noise, picture.shape)
    x = (noisy.clip(0, 255) / 255).astype(np.float32)
    space, colour = options.sigma
    try:
        bilateral = mpscnn.metal_function(SOURCE, "bilateral")
    except (RuntimeError, ValueError) as error:  # no compiler, for example
        raise UserError(str(error)) from error
    sharpen = mpscnn.Convolution(sharpening(), layout="OHWI", padding=1)
    given = np.array((options.radius, space, colour), OPTIONS)

    def steps() -> Pixels:
        with mpscnn.CommandBuffer() as commands:
            image = sharpen.encode(commands, mpscnn.Image.from_array(x[None]))
            image = sharpen.encode(commands, bilateral.encode(commands, image, given))
        result: Pixels = image.numpy()[0]
        return result

    result = steps()
    times = []
    for _ in trange(options.repeat, desc="smoothing", unit="picture", disable=options.json):
        start = time.perf_counter()
        steps()
        times.append((time.perf_counter() - start) * 1e3)
    difference = float(np.abs(result - by_numpy(x, options.radius, space, colour)).max())
    after = np.rint(result.clip(0, 1) * 255).astype(np.uint8)
    before = np.rint(x * 255).astype(np.uint8)
    save(side_by_side([(f"noise of {options.noise:g}", before), ("after the filter", after)]), options.output)
    return {
        "device": mpscnn.Device().name,
        "size": list(picture.shape[:2]),
        "difference_from_numpy": difference,
        "milliseconds_per_picture": round(statistics.median(times), 2),
        "picture": str(options.output),
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def positive(text: str) -> float:
        number = float(text)
        if not 0 < number < 1e6:
            raise argparse.ArgumentTypeError(f"{text} is not a number greater than 0")
        return number

    parser.add_argument("photograph", nargs="?", type=Path, help="picture file (default: a cat, of scikit-image)")
    parser.add_argument("--radius", type=count, default=3, metavar="N", help="of the window, pixels (%(default)s)")
    parser.add_argument(
        "--sigma", type=positive, nargs=2, default=(2.0, 0.15), metavar="X",
        help="standard deviations over distances in pixels, and over colours in 0...1 (2 0.15)",
    )  # fmt: skip
    parser.add_argument("--noise", type=positive, default=12, metavar="X", help="that is added, of 255 (%(default)s)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the noise (%(default)s)")
    parser.add_argument("--repeat", type=count, default=10, metavar="N", help="timed runs (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("metal_function.png"), metavar="PNG", help="(%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(arguments)


def lines(figures: dict[str, Any]) -> list[str]:
    height, width = figures["size"]
    return [
        f"Device               {figures['device']}",
        f"Photograph           {width} x {height}",
        f"Difference to NumPy  {figures['difference_from_numpy']:.1e} at most",
        f"Time                 {figures['milliseconds_per_picture']:.2f} ms: convolution, function, convolution",
        f"Before and after     {figures['picture']}",
    ]


def problems(figures: dict[str, Any]) -> list[str]:
    difference = figures["difference_from_numpy"]
    if difference <= DIFFERENCE_ALLOWED:
        return []
    return [f"the difference from NumPy ({difference:.1e}) is greater than {DIFFERENCE_ALLOWED:.0e}"]


def main(arguments: Sequence[str] | None = None) -> int:
    return run("metal_function", smooth, lines, parse(arguments), problems)


if __name__ == "__main__":
    sys.exit(main())
