# SPDX-License-Identifier: Apache-2.0
"""Photographs of the example, and functions that downsample, enlarge and compare them. Needs no PyTorch.

Both resizings are Pillow's ``Image.resize`` with ``Resampling.BICUBIC`` on 8-bit RGB. Pillow widens the
filter for downsampling, which prevents aliasing; the result is rounded to 8 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import skimage.data
from network import FACTOR
from numpy.typing import NDArray
from PIL import Image

Picture = NDArray[np.uint8]
"""(H, W, 3) RGB, 8 bits."""


class Source(NamedTuple):
    """A photograph of scikit-image: its function, the scales at which it is used, and its stated licence."""

    name: str
    scales: tuple[float, ...]
    licence: str


HELD_OUT = Source("chelsea", (1.0,), "CC0, by Stefan van der Walt")
"""The photograph held out from training."""

# Photographs from JPEG files, or blurred at full size, are only used downsampled.
TRAINING = [
    Source("astronaut", (1.0, 0.85, 0.7, 0.6, 0.5), "public domain, NASA"),
    Source("coffee", (1.0, 0.85, 0.7, 0.6, 0.5), "CC0, by Rachel Michetti"),
    Source("rocket", (0.8, 0.65, 0.5), "public domain, SpaceX"),
    Source("camera", (1.0, 0.85, 0.7, 0.6, 0.5), "CC0, by Lav Varshney"),
    Source("coins", (1.0, 0.8, 0.6), "no known copyright restrictions, Brooklyn Museum"),
    Source("brick", (1.0, 0.7), "CC0, CC0Textures"),
    Source("grass", (1.0, 0.7), "CC0, by linolafett"),
    Source("gravel", (1.0, 0.7), "CC0, CC0Textures"),
    Source("immunohistochemistry", (0.7, 0.5), "no known copyright restrictions, CMMI"),
    Source("retina", (0.5, 0.35), "CC0, by Mikael Häggström"),
    Source("hubble_deep_field", (0.5,), "public domain, NASA"),
]
"""The photographs that training uses. All are in scikit-image's wheel; nothing is downloaded."""


def photograph(name: str) -> Picture:
    """Return a photograph of ``skimage.data`` as RGB; grey ones get three equal channels."""
    array = np.asarray(getattr(skimage.data, name)())
    return array if array.ndim == 3 else np.repeat(array[:, :, None], 3, axis=2)


def crop_to_factor(picture: Picture) -> Picture:
    """Crop the last rows and columns so that `FACTOR` divides both sides."""
    height, width = (size - size % FACTOR for size in picture.shape[:2])
    return picture[:height, :width]


def resize(picture: Picture, height: int, width: int) -> Picture:
    """Resize (H, W, 3) to (height, width, 3) with Pillow's bicubic filter."""
    return np.array(Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC))


def downsample(picture: Picture) -> Picture:
    """Return the network's input: (H, W, 3) -> (H / FACTOR, W / FACTOR, 3). `FACTOR` must divide both."""
    return resize(picture, picture.shape[0] // FACTOR, picture.shape[1] // FACTOR)


def add_noise(pictures: NDArray[np.uint8], deviation: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Add normal noise of a standard deviation in 0..255 to each colour of each pixel, as in poor light."""
    noisy = pictures + rng.normal(0, deviation, pictures.shape)
    return np.rint(np.clip(noisy, 0, 255)).astype(np.uint8)


def upsample_bicubic(picture: Picture) -> Picture:
    """Return the baseline: (H, W, 3) -> (FACTOR * H, FACTOR * W, 3)."""
    return resize(picture, picture.shape[0] * FACTOR, picture.shape[1] * FACTOR)


def held_out_pair() -> tuple[Picture, Picture]:
    """Return the held-out photograph: (small, original), 150 x 225 and 300 x 450 pixels."""
    original = crop_to_factor(photograph(HELD_OUT.name))
    return downsample(original), original


def to_picture(values: NDArray[np.float32]) -> Picture:
    """Convert values in 0..1 to 8 bits, clipped and rounded to nearest; the shape is kept."""
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)


def psnr(picture: Picture, reference: Picture, border: int = 0) -> float:
    """Return the peak signal-to-noise ratio in dB over all three colours, without `border` pixels at each edge.

    Raises
    ------
    ValueError
        The shapes differ.
    """
    if picture.shape != reference.shape:
        raise ValueError(f"picture has shape {picture.shape}; reference has shape {reference.shape}")
    inner = (slice(border, -border or None), slice(border, -border or None))
    error = picture[inner].astype(np.float64) - reference[inner].astype(np.float64)
    mean_square = float(np.mean(error**2))
    return float("inf") if mean_square == 0 else 10 * float(np.log10(255**2 / mean_square))
