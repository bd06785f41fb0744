# SPDX-License-Identifier: Apache-2.0
"""Upscale a photograph by two with MPS's kernels, using a network trained in PyTorch.

Weights (OIHW, safetensors) -> reordering to OHWI -> data source -> MPSCNNConvolution -> command buffer -> image ->
array: the source image shares the picture's memory, intermediate results are temporary images, and the result is a
view of the last image.

    python examples/upscale.py [PHOTOGRAPH] [--weights FILE] [--output PNG] [--images N] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import needs  # noqa: F401
import numpy as np
from numpy.typing import NDArray
from shared import count, read_picture, run, save, side_by_side
from tqdm import tqdm

import mpscnn

sys.path.insert(0, str(Path(__file__).resolve().parent / "super_resolution"))

from images import Picture, crop_to_factor, downsample, held_out_pair, psnr, to_picture, upsample_bicubic

from network import FACTOR, WEIGHTS_PATH, load_layers

Pixels = NDArray[np.float32]
GAIN_WANTED = 0.5  # dB over bicubic
DIFFERENCE_ALLOWED = 1e-4  # from PyTorch, for values in 0..1


class SuperResolution:
    """The chain of `network.LAYERS` as MPS kernels, from (N, H, W, 3) float32 in 0..1 to (N, 2 H, 2 W, 3)."""

    def __init__(self, weights: Path = WEIGHTS_PATH) -> None:
        self.kernels = []
        layers = load_layers(weights)
        for weight, bias, layer in layers:
            is_last = layer is layers[-1].layer
            if is_last:
                # The colour varies slowest in a pixel shuffle, fastest in MPS's sub-pixel convolution.
                order = np.arange(len(bias)).reshape(-1, FACTOR**2).T.ravel()
                weight, bias = weight[order], bias[order]
            self.kernels.append(
                mpscnn.Convolution(
                    weight,
                    bias,
                    padding=layer["kernel_size"] // 2,
                    activation=layer["activation"],
                    sub_pixel_scale_factor=FACTOR if is_last else 1,
                    label=layer["name"],
                )
            )

    def submit(self, x: Pixels) -> tuple[mpscnn.CommandBuffer, mpscnn.Image]:
        """Encode and commit; the image may be read when the command buffer has completed."""
        buffer = mpscnn.CommandBuffer(label="super resolution")
        image = mpscnn.Image.from_array(x)
        for kernel in self.kernels:
            image = kernel.encode(buffer, image, temporary=kernel is not self.kernels[-1])
        buffer.commit()
        return buffer, image

    def __call__(self, x: Pixels) -> Pixels:
        buffer, image = self.submit(x)
        buffer.wait()
        return image.numpy()

    def stream(self, pictures: Iterable[Pixels], in_flight: int = 3) -> Iterator[Pixels]:
        """Yield results in order, with up to `in_flight` command buffers at a time."""
        pending: deque[tuple[mpscnn.CommandBuffer, mpscnn.Image]] = deque()
        for picture in pictures:
            pending.append(self.submit(picture))
            if len(pending) == in_flight:
                buffer, image = pending.popleft()
                buffer.wait()
                yield image.numpy()
        for buffer, image in pending:
            buffer.wait()
            yield image.numpy()


def as_pixels(picture: Picture) -> Pixels:
    """Return (H, W, 3) bytes as (1, H, W, 3) float32 in 0..1, in memory that an image can share."""
    pixels = mpscnn.empty((1, *picture.shape), np.float32)
    np.divide(picture, np.float32(255), out=pixels[0])
    return pixels


def difference_from_pytorch(weights: Path, x: Pixels, ours: Pixels) -> float | None:
    """Return the max difference from the same network in PyTorch; None if PyTorch is not installed."""
    try:
        import torch
        from model import ESPCN
    except ImportError:
        return None
    from safetensors.torch import load_file

    network = ESPCN()
    network.load_state_dict(load_file(weights))
    with torch.inference_mode():
        theirs = network(torch.from_numpy(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).numpy()
    return float(np.abs(ours - theirs).max())


def time_one(network: SuperResolution, x: Pixels, rounds: int = 15) -> float:
    """Return the median milliseconds from array to array for one picture at a time."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        network(x)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "photograph", nargs="?", type=Path, help="picture file; downsampled first and then upscaled again"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("super_resolution.png"), help="PNG to write (default: %(default)s)"
    )
    parser.add_argument(
        "--weights",
        type=Path,
        default=WEIGHTS_PATH,
        help="safetensors file, such as fine_tune.py writes (default: the example's)",
    )
    parser.add_argument(
        "--images", type=count, default=100, help="pictures to stream for the throughput (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.photograph is not None and not options.photograph.is_file():
        parser.error(f"photograph ({options.photograph}) is not a file.")
    if not options.weights.is_file():
        parser.error(f"--weights ({options.weights}) is not a file.")
    return options


def upscale(options: argparse.Namespace) -> dict[str, Any]:
    if options.photograph is None:
        small, original = held_out_pair()
    else:
        original = crop_to_factor(read_picture(options.photograph))
        small = downsample(original)

    network = SuperResolution(options.weights)
    x = as_pixels(small)
    result = network(x)
    ours, bicubic = to_picture(result[0]), upsample_bicubic(small)
    psnr_ours, psnr_bicubic = psnr(ours, original), psnr(bicubic, original)
    difference = difference_from_pytorch(options.weights, x, result)

    milliseconds = time_one(network, x)
    progress = tqdm(total=options.images, unit="image", desc="upscaling", disable=options.json)
    start = time.perf_counter()
    for _ in network.stream(x for _ in range(options.images)):
        progress.update()
    per_second = options.images / (time.perf_counter() - start)
    progress.close()

    sheet = side_by_side([
        (f"bicubic, {psnr_bicubic:.2f} dB", bicubic),
        (f"mpscnn, {psnr_ours:.2f} dB", ours),
        ("original", original),
    ])  # fmt: skip
    save(sheet, options.output)

    height, width, _ = small.shape
    return {
        "device": mpscnn.Device().name,
        "source": [height, width],
        "result": [height * FACTOR, width * FACTOR],
        "psnr_bicubic_db": round(psnr_bicubic, 3),
        "psnr_mpscnn_db": round(psnr_ours, 3),
        "difference_from_pytorch": difference,
        "milliseconds_per_image": round(milliseconds, 3),
        "images_per_second": round(per_second, 1),
        "picture": str(options.output),
    }


def gain(figures: dict[str, Any]) -> float:
    return float(figures["psnr_mpscnn_db"] - figures["psnr_bicubic_db"])


def lines(figures: dict[str, Any]) -> list[str]:
    bicubic, ours = figures["psnr_bicubic_db"], figures["psnr_mpscnn_db"]
    (height, width), (rows, columns) = figures["source"], figures["result"]
    difference = figures["difference_from_pytorch"]
    compared = "not measured: torch is not installed" if difference is None else f"{difference:.1e} at most"
    milliseconds, rate = figures["milliseconds_per_image"], figures["images_per_second"]
    return [
        f"\nDevice                 {figures['device']}",
        f"Picture                {width} x {height} -> {columns} x {rows}",
        f"PSNR                   bicubic {bicubic:.2f} dB, mpscnn {ours:.2f} dB ({gain(figures):+.2f} dB)",
        f"Difference to PyTorch  {compared}",
        f"Speed                  {milliseconds:.2f} ms per image, {rate:.1f} images per second",
        f"Side by side           {figures['picture']}",
    ]


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)

    def problems(figures: dict[str, Any]) -> list[str]:
        found, difference = [], figures["difference_from_pytorch"]
        if options.photograph is None and options.weights == WEIGHTS_PATH and gain(figures) < GAIN_WANTED:
            found.append(f"the gain over bicubic ({gain(figures):.2f} dB) is less than {GAIN_WANTED} dB")
        if difference is not None and not difference <= DIFFERENCE_ALLOWED:
            found.append(f"the difference from PyTorch ({difference:.1e}) is greater than {DIFFERENCE_ALLOWED:.0e}")
        return found

    return run("upscale", upscale, lines, options, problems)


if __name__ == "__main__":
    sys.exit(main())
