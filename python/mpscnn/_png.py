# SPDX-License-Identifier: Apache-2.0
"""Images as PNG files, for notebooks [W3C, Portable Network Graphics, 2003]."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .image import Image

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # by number of channels: gray, RGB, RGBA
_MAX_IMAGES = 16  # images of a batch that are shown
_MAX_PIXELS = 1 << 24


def image_png(image: Image) -> bytes | None:
    """Return the images side by side as a PNG file; 0 is black, 1 (for integers, the max) is full color.

    Return None for temporary images, for other than 1, 3 or 4 channels, and for more than 16 million pixels.
    """
    n, height, width, channels = image.shape
    n = min(n, _MAX_IMAGES)
    if image.is_temporary or channels not in _COLOR_TYPES or n * height * width > _MAX_PIXELS:
        return None
    return encode(np.concatenate(to_bytes(image.numpy()[:n]), axis=1))


def to_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert values to uint8: floats from [0, 1], with NaN as 0, and integers from the range of their type."""
    if values.dtype.kind == "f":
        scaled = np.clip(np.nan_to_num(values.astype(np.float32), nan=0.0), 0, 1) * 255
    else:
        scaled = values.astype(np.float32) * np.float32(255 / np.iinfo(values.dtype).max)
    return np.rint(scaled).astype(np.uint8)


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """Return a PNG file of pixels (height, width, channels)."""
    height, width, channels = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    # Each row begins with its filter type; 0: none.
    rows = np.pad(pixels.reshape(height, width * channels), ((0, 0), (1, 0)))
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
