# SPDX-License-Identifier: Apache-2.0
"""Fine-tune the super-resolution network for noisy photographs, with MPS's gradient kernels. Needs no PyTorch.

The network of the example was trained on clean pictures, and amplifies noise. Here training continues on the same
patches, with noise added to the small ones. The gain is measured on the photograph that was held out from both
trainings.

    python examples/super_resolution/fine_tune.py [--noise N] [--epochs N] [--from-scratch] [--output FILE] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from images import HELD_OUT, Picture, add_noise, held_out_pair, psnr, to_picture, upsample_bicubic
from network import FACTOR, LAYERS, WEIGHTS_PATH, load_layers
from numpy.typing import NDArray
from patches import BATCH, PATCH, sample_patches, training_pairs
from safetensors.numpy import save_file

import mpscnn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from shared import UserError, save, side_by_side

Array = NDArray[Any]


def layers() -> list[Any]:
    """Return `network.LAYERS` in the form that a Trainer takes."""
    found: list[Any] = []
    for layer in LAYERS:
        sizes = {name: layer[name] for name in ("in_channels", "out_channels", "kernel_size")}  # type: ignore[literal-required]
        found.append((layer["name"], "Conv2d", {**sizes, "padding": layer["kernel_size"] // 2}))
        if layer["activation"] == "relu":
            found.append((f"relu of {layer['name']}", "ReLU"))
    return [*found, ("shuffle", "PixelShuffle", {"upscale_factor": FACTOR})]


def as_values(pictures: NDArray[np.uint8]) -> Array:
    """Return (N, H, W, 3) bytes as (N, 3, H, W) float32 in 0..1."""
    return np.divide(pictures, np.float32(255), dtype=np.float32).transpose(0, 3, 1, 2)


def tiles(picture: Picture, size: int) -> NDArray[np.uint8]:
    """Cut the picture into squares, (N, size, size, 3), without the remainder on the right and at the bottom."""
    rows, columns = picture.shape[0] // size, picture.shape[1] // size
    cut = picture[: rows * size, : columns * size].reshape(rows, size, columns, size, 3)
    return np.ascontiguousarray(cut.transpose(0, 2, 1, 3, 4)).reshape(-1, size, size, 3)


def enlarge(network: mpscnn.Network, picture: Picture) -> Picture:
    (result,) = np.asarray(network(as_values(picture[None])))
    return to_picture(result.transpose(1, 2, 0))


def fine_tune(options: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    say = (lambda text: None) if options.json else (lambda text: print(text, flush=True))
    say(f"cutting patches from photographs of scikit-image; {mpscnn.Device().name}")
    pairs = training_pairs()
    clean, original = held_out_pair()
    noisy = add_noise(clean, options.noise, np.random.default_rng(0))
    try:
        weights = {} if options.from_scratch else {
            f"{layer['name']}.{kind}": array
            for weight, bias, layer in load_layers(options.weights)
            for kind, array in (("weight", weight), ("bias", bias))
        }  # fmt: skip
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f'the weights "{options.weights}" cannot be used: {error}') from error
    total = options.epochs * options.steps
    trainer = mpscnn.Trainer(
        layers(),
        weights,
        input_shapes=(BATCH, 3, PATCH, PATCH),
        loss=options.loss,
        optimizer=mpscnn.OptimizerAdam(options.learning_rate),
        seed=options.seed,
    )

    def rate(step: int) -> float:
        """Return the learning rate: half a cosine, from the given rate to 0."""
        return float(options.learning_rate * 0.5 * (1 + math.cos(math.pi * step / total)))

    def batch(small: Array, large: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        return as_values(add_noise(small, options.noise, rng)), as_values(large)

    before = enlarge(trainer.network(), noisy)
    clean_before = psnr(enlarge(trainer.network(), clean), original)
    say(f"PSNR on {HELD_OUT.name} with noise: bicubic {psnr(upsample_bicubic(noisy), original):.2f} dB, "
        f"network {psnr(before, original):.2f} dB")  # fmt: skip
    validation = as_values(tiles(noisy, PATCH)), as_values(tiles(original, FACTOR * PATCH))
    rng = np.random.default_rng(options.seed)
    after = before
    try:
        for number in range(options.epochs):
            small, large = sample_patches(pairs, rng, BATCH * options.steps)
            history = trainer.fit(
                small, large, batch_size=BATCH, augment=batch, learning_rate=rate, validation=validation
            )
            after = enlarge(trainer.network(), noisy)
            say(f"epoch {number + 1:3}/{options.epochs}: {history[-1]}; PSNR {psnr(after, original):.2f} dB  "
                f"({history[-1].seconds:.1f} s)")  # fmt: skip
    except FloatingPointError as error:
        raise UserError(str(error)) from error

    plot, picture = options.output.with_suffix(".svg"), options.output.with_suffix(".png")
    bicubic = upsample_bicubic(noisy)
    try:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        save_file(trainer.state_dict(), options.output, {"factor": str(FACTOR), "noise": str(options.noise)})
        panels = [(name, shown) for name, shown in (("bicubic", bicubic), ("before", before), ("after", after))]
        sheet = [(f"{name}, {psnr(shown, original):.2f} dB", shown) for name, shown in panels]
        save(side_by_side([*sheet, ("original", original)]), picture)
        history.plot(plot, title=f"Fine-tuning for noise of {options.noise:g} of 255")
    except OSError as error:
        raise UserError(f"the results cannot be written: {error}") from error
    except mpscnn.MissingPackageError as error:
        raise UserError(str(error)) from error
    return {
        "device": mpscnn.Device().name,
        "held_out": HELD_OUT.name,
        "noise": options.noise,
        "steps": total,
        "psnr_db": {name: round(psnr(shown, original), 3) for name, shown in panels},
        "psnr_clean_db": {
            "before": round(clean_before, 3),
            "after": round(psnr(enlarge(trainer.network(), clean), original), 3),
        },
        "epochs": history.to_dict()["epochs"],
        "seconds": round(time.perf_counter() - started, 1),
        "weights": str(options.output),
        "plot": str(plot),
        "picture": str(picture),
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def count(text: str) -> int:
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"{value} is less than the minimum (1)")
        return value

    def positive(text: str) -> float:
        value = float(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a finite number greater than 0")
        return value

    def add(name: str, default: Any, text: str, kind: Any, metavar: str = "N") -> None:
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=f"{text} (%(default)s)")

    parser.add_argument("--weights", type=Path, default=WEIGHTS_PATH, metavar="FILE", help="initial (the example's)")
    parser.add_argument("--from-scratch", action="store_true", help="start from random weights")
    add("--noise", 10.0, "standard deviation, of 0...255", positive)
    add("--epochs", 8, "rounds, each with new patches", count)
    add("--steps", 50, f"steps of {BATCH} patches per round", count)
    add("--learning-rate", 1e-3, "Adam's initial rate, which decreases to 0", positive, "X")
    parser.add_argument(
        "--loss", choices=["mean_squared_error", "mean_absolute_error"], default="mean_squared_error",
        help="(%(default)s)",
    )  # fmt: skip
    add("--seed", 0, "seed of patches and noise", int)
    add("--output", Path("espcn_x2_noisy.safetensors"), "weights; picture and plot are beside them", Path, "FILE")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.seed < 0:
        parser.error(f"--seed ({options.seed}) is less than the minimum (0).")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        figures = fine_tune(options)
    except UserError as problem:
        print(f"fine_tune: {problem}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(figures))
        return 0
    found, clean = figures["psnr_db"], figures["psnr_clean_db"]
    gain = found["after"] - found["before"]
    print(f"\nPSNR          {found['before']:.2f} dB before, {found['after']:.2f} dB after ({gain:+.2f} dB); "
          f"bicubic {found['bicubic']:.2f} dB")  # fmt: skip
    print(f"Without noise {clean['before']:.2f} dB before, {clean['after']:.2f} dB after: what it costs clean pictures")
    print(f"Time          {figures['steps']} steps, {figures['seconds']:.0f} s in all")
    print(f"Weights       {figures['weights']}: python {Path(__file__).parents[1] / 'upscale.py'} --weights takes them")
    print(f"Side by side  {figures['picture']}")
    print(f"Plot          {figures['plot']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
