# SPDX-License-Identifier: Apache-2.0
"""Resizing, padding and pixel shuffles."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import INTERPOLATION_MODES
from ..builder import Builder, Tensor, UnmappedError
from ..ops import arithmetic, convolution, elementwise, general, resize, sampling, shape
from ..torch_arguments import Arguments, Computed, Sized
from .registry import operator


def _resize(mode: str, *names: str, antialias: bool = False) -> None:
    @operator(*names)
    def resample(b: Builder, a: Arguments) -> Tensor:
        x = general.with_channels_second(b, a.source)
        count = x.rank - 2
        aligned = bool(a["align_corners"]) if "align_corners" in a else None
        scales: list[Any] | None
        if "scale_factors" in a:
            scales = a["scale_factors"]
        else:
            scales = [a[name] for name in ("scales_h", "scales_w", "scales") if name in a]
        if not scales or any(scale is None for scale in scales):
            scales = _whole_factors(a)
        if scales and not any(isinstance(scale, Computed) for scale in scales):
            factors = [float(scale) for scale in scales]
            by = factors if count > 1 else factors[0]
            return resize.interpolate(b, x, None, by, mode, aligned, antialias=antialias)
        if a["output_size"] is None:
            raise UnmappedError("a scale that is computed from the source's size")
        repeated = _repeated_pixel(b, a, x)
        if repeated is not None:
            return repeated
        like = None if antialias or b.in_training else _sized_like(a, x, mode)
        if like is not None and mode == "bicubic":
            return sampling.resampled(b, x, like, "align_corners" if aligned else "half_pixel")
        if like is not None:
            return b.interpolate(x, like, mode, bool(aligned))
        size = a.integers("output_size")
        return resize.interpolate(b, x, size if count > 1 else size[0], None, mode, aligned, antialias=antialias)


def _sized_like(a: Arguments, x: Tensor, mode: str) -> Tensor | None:
    """Return an image of the result's height and width, which are free, or None."""
    extents = a.shape[2:]
    if x.axes != "NCHW" or x.flat is not None or mode not in (*INTERPOLATION_MODES, "bicubic"):
        return None
    if not any(isinstance(extent, Sized) and extent.of_extents for extent in extents):
        return None
    return a.image_of_extents(extents)


def _repeated_pixel(b: Builder, a: Arguments, x: Tensor) -> Tensor | None:
    """Return one pixel as an image of another tensor's height and width, which are free: added to zeros.

    Global features of segmentation networks are resized so, in front of a concatenation.
    """
    extents = a.shape[2:]
    if x.rank != 4 or not any(isinstance(extent, Sized) and extent.of_extents for extent in extents):
        return None
    if x.height > 1 or x.width > 1 or not (b.is_constant(x, "H") and b.is_constant(x, "W")):
        return None
    like = a.image_of_extents(extents)
    if like is None:
        return None
    zeros = b.add("NeuronSigmoid", shape.narrow(b, like, 1, 0, 1))  # finite even if the image is infinite
    return arithmetic.add(b, b.add("NeuronLinear", zeros, a=0.0, b=0.0), x)


def _whole_factors(a: Arguments) -> list[int] | None:
    """Return integer factors from source to result that hold for all inputs, or None if there are none."""
    before = a.shape_of("self" if "self" in a else "input")[2:]
    factors = []
    for one, other in zip(before, a.shape[2:], strict=True):
        if not (isinstance(one, Sized) and isinstance(other, Sized)) or other % one:
            return None
        if other.expression != one.expression * (other // one):
            return None
        factors.append(other // one)
    return factors


_resize("nearest", "upsample_nearest2d", "upsample_nearest1d")
_resize("nearest-exact", "_upsample_nearest_exact2d", "_upsample_nearest_exact1d")
_resize("bilinear", "upsample_bilinear2d")
_resize("linear", "upsample_linear1d")
_resize("bicubic", "upsample_bicubic2d")
_resize("bilinear", "_upsample_bilinear2d_aa", antialias=True)
_resize("bicubic", "_upsample_bicubic2d_aa", antialias=True)


@operator("grid_sampler", "grid_sampler_2d")
def _grid_sampler(b: Builder, a: Arguments) -> Tensor:
    grid = a.operand("grid")
    if not isinstance(grid, Tensor):
        grid = elementwise.of_image(grid, 4)
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    mode, padding = modes[a.integer("interpolation_mode")], paddings[a.integer("padding_mode")]
    return sampling.grid_sample(b, a.tensor("input"), grid, mode, padding, bool(a["align_corners"]))


@operator("affine_grid_generator")
def _affine_grid(b: Builder, a: Arguments) -> Tensor:
    """Return `theta` times the positions of each pixel: (x, y, 1), -1 to 1."""
    size = a.integers("size") if not isinstance(a["size"], (list, tuple)) else tuple(map(int, a["size"]))
    if len(size) != 4:
        raise UnmappedError(f"a grid of {len(size) - 2} dimensions")
    if any(isinstance(extent, Computed) and extent.of_extents for extent in a["size"]):
        b.fix()
    ends = []
    for extent in size[2:]:
        end = 1.0 if a["align_corners"] else 1 - 1 / extent
        ends.append(np.linspace(-end, end, extent, dtype=np.float32) if extent > 1 else np.zeros(1, np.float32))
    rows, columns = np.meshgrid(*ends, indexing="ij")
    base = np.stack([columns, rows, np.ones_like(rows)], -1).reshape(-1, 3)
    y = convolution.linear(b, a.tensor("theta"), base)
    return shape.reshape(b, shape.transpose(b, y, 1, 2), (*size[2:], 2))


@operator("pad")
def _pad(b: Builder, a: Arguments) -> Tensor:
    x = a.source
    if x.flat is not None and x.rank <= 4 and a["mode"] != "circular":
        x = general.store(b, x)
    return resize.pad(b, x, a.integers("pad"), a["mode"], a.optional_number("value"))


@operator("constant_pad_nd")
def _constant_pad(b: Builder, a: Arguments) -> Tensor:
    return resize.pad(b, a.source, a.integers("pad"), "constant", a.number("value"))


@operator("reflection_pad2d", "reflection_pad1d")
def _reflection_pad(b: Builder, a: Arguments) -> Tensor:
    return resize.pad(b, a.source, a.integers("padding"), "reflect")


@operator("replication_pad2d", "replication_pad1d")
def _replication_pad(b: Builder, a: Arguments) -> Tensor:
    return resize.pad(b, a.source, a.integers("padding"), "replicate")


@operator("pixel_shuffle")
def _pixel_shuffle(b: Builder, a: Arguments) -> Tensor:
    return resize.pixel_shuffle(b, general.with_channels_second(b, a.source), a.integer("upscale_factor"))


@operator("pixel_unshuffle")
def _pixel_unshuffle(b: Builder, a: Arguments) -> Tensor:
    return resize.pixel_unshuffle(b, general.with_channels_second(b, a.source), a.integer("downscale_factor"))
