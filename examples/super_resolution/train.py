# SPDX-License-Identifier: Apache-2.0
"""Train the super-resolution network on scikit-image's photographs and compare it with bicubic enlargement.

See README.md in this folder for the command and the results of the example's weights.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path

import numpy as np
import torch
from images import HELD_OUT, TRAINING, Picture, held_out_pair, psnr, to_picture, upsample_bicubic
from model import ESPCN
from network import FACTOR, WEIGHTS_PATH
from numpy.typing import NDArray
from patches import sample_patches, training_pairs
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm  # type: ignore[import-untyped]

AVERAGING = 0.001  # weight of the newest weights in their running average
BORDER = 4  # pixels left out at each edge for the second PSNR figure


def to_tensor(pictures: NDArray[np.uint8]) -> Tensor:
    """Convert (N, H, W, 3), 8 bits, to (N, 3, H, W) float32 in 0..1, channels last in memory."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float().div_(255)


def train(steps: int, seed: int, learning_rate: float) -> ESPCN:
    """Train a new network for a fixed number of steps, without the held-out photograph.

    Adam minimises the mean absolute error, with a learning rate that warms up and then follows a cosine to
    zero. Returns the running average of the weights.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    pairs = training_pairs()
    model = ESPCN().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        learning_rate,
        total_steps=steps,
        pct_start=0.05,
        cycle_momentum=False,
        final_div_factor=1000,
    )
    average: ESPCN = copy.deepcopy(model)
    running_loss = 0.0
    with tqdm(range(steps), desc="training", unit="step", mininterval=1) as progress:
        for step in progress:
            inputs, targets = map(to_tensor, sample_patches(pairs, rng))
            loss = functional.l1_loss(model(inputs), targets)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(parameter, AVERAGING if step else 1.0)
            running_loss += (loss.item() - running_loss) / min(step + 1, 200)
            if step % 50 == 0:
                progress.set_postfix(l1=f"{running_loss:.5f}")
    return average


@torch.no_grad()
def enlarge(model: ESPCN, picture: Picture) -> Picture:
    """Run the network on one picture: (H, W, 3) -> (FACTOR * H, FACTOR * W, 3), 8 bits."""
    output = model(to_tensor(picture[None]))[0]
    return to_picture(output.permute(1, 2, 0).numpy())


def compare(model: ESPCN, small: Picture, original: Picture) -> dict[str, float]:
    """Return the PSNR in dB of the network and of bicubic enlargement, with and without the border."""
    results = {"network": enlarge(model, small), "bicubic": upsample_bicubic(small)}
    return {
        f"{name}_{area}": round(psnr(picture, original, border), 3)
        for name, picture in results.items()
        for area, border in (("full", 0), ("cropped", BORDER))
    }


def save(model: ESPCN, path: Path, steps: int, seed: int) -> None:
    """Write the state dict, float32 in PyTorch's order, with the facts of the training as metadata."""
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in model.state_dict().items()}
    metadata = {
        "factor": str(FACTOR),
        "steps": str(steps),
        "seed": str(seed),
        "training_images": "; ".join(f"skimage.data.{source.name}: {source.licence}" for source in TRAINING),
        "held_out_image": f"skimage.data.{HELD_OUT.name}: {HELD_OUT.licence}",
    }
    save_file(tensors, path, metadata)


def main() -> None:
    """Parse the options, train, save and report."""
    formatter = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--steps", type=int, default=12_000, help="training steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and of the patches")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="max learning rate")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch")
    parser.add_argument("--output", type=Path, default=WEIGHTS_PATH, help="file of the weights")
    parser.add_argument("--json", type=Path, help="JSON file of the final figures")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps is {options.steps}; it must be at least 1")

    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    started = time.perf_counter()
    model = train(options.steps, options.seed, options.learning_rate)
    seconds = time.perf_counter() - started
    save(model, options.output, options.steps, options.seed)

    figures = compare(model, *held_out_pair())
    print(f"{options.output}: {options.output.stat().st_size / 1000:.0f} kB after {seconds:.0f} s")
    print(f"PSNR on {HELD_OUT.name}, in dB       network  bicubic     gain")
    for area, text in (("full", "whole picture"), ("cropped", f"without {BORDER}-pixel border")):
        network, bicubic = figures[f"network_{area}"], figures[f"bicubic_{area}"]
        print(f"  {text:28s} {network:8.2f} {bicubic:8.2f} {network - bicubic:+8.2f}")
    if options.json:
        facts = {
            "factor": FACTOR,
            "steps": options.steps,
            "seed": options.seed,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "held_out": HELD_OUT.name,
            "psnr_db": figures,
            "seconds": round(seconds, 1),
        }
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
