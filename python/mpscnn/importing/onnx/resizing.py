# SPDX-License-Identifier: Apache-2.0
"""ONNX operators of padding, resizing and pixel shuffles."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ...graph import Value as GraphValue
from ..builder import Tensor, UnmappedError
from ..ops import elementwise, general, resize, sampling, shape
from .extent import Extent, extents, settled
from .node import OF_VALUES, Call, Value
from .table import operator


@operator("Pad")
def _pad(call: Call) -> Value:
    x = call.tensor()
    pads = call.numbers(1, "pads", "pads")
    if pads is None:
        raise InvalidModelError(f"{call.name}: pads are missing.")
    value = call.real("value", 0.0)
    constant = call.array(2, "a value", None) if call.opset >= 11 else None
    if constant is not None:
        value = float(constant.ravel()[0]) if constant.size else 0.0
    axes = call.numbers(3, None, "axes") if call.opset >= 18 else None
    axes = list(range(x.rank)) if axes is None else [a % x.rank if -x.rank <= a < x.rank else -1 for a in axes]
    if len(pads) != 2 * len(axes) or -1 in axes:
        raise InvalidModelError(f"{call.name}: pads {pads} for axes {axes} of {x.rank}.")
    sides = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    if any(sides.get(0, (0, 0))):
        raise UnmappedError("padding of the batch")
    mode = call.text("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise UnmappedError(f'padding "{mode}"')
    flat = [p for axis in range(x.rank - 1, 0, -1) for p in sides.get(axis, (0, 0))]
    return resize.pad(call.builder, x, flat, mode, value)


def _sizes(call: Call, x: Tensor, array: NDArray[Any]) -> tuple[list[int | None], list[float | None]]:
    """Return extents of the result, or scales for extents that are a multiple of the source's at any size."""
    sizes: list[int | None] = []
    scales: list[float | None] = []
    for item, mine in zip(array.ravel(), call.shape_of(x), strict=True):
        multiple = item.is_multiple_of(mine) if isinstance(item, Extent) and isinstance(mine, Extent) else None
        if multiple is not None:
            scales.append(float(multiple))
            sizes.append(None)
        else:
            sizes.append(int(settled(extents([item]), call.builder.fix)[0]))
            scales.append(None)
    return sizes, scales


# Mode and align_corners of Graph.interpolate, by mode, coordinates and rounding.
_INTERPOLATIONS = {
    **{("linear", "half_pixel", rounding): ("bilinear", False) for rounding in resize.ROUNDING},
    **{("linear", "align_corners", rounding): ("bilinear", True) for rounding in resize.ROUNDING},
    ("nearest", "asymmetric", "floor"): ("nearest", False),
}


def _resized_like(
    call: Call, x: Tensor, axes: list[int], sizes: NDArray[Any], how: tuple[str, str, str]
) -> Tensor | None:
    """Return a resize to the height and width of another image, if these are free and no multiple of its own."""
    mode, coordinates, rounding = how
    like = _sized_like(call, x, axes, sizes)
    if like is None:
        return None
    if mode == "linear" and coordinates == "pytorch_half_pixel" and call.builder.never_exceeds(x, like):
        coordinates = "half_pixel"  # they differ where several pixels become one
    if (mode, coordinates, rounding) in _INTERPOLATIONS:
        return call.builder.interpolate(x, like, *_INTERPOLATIONS[mode, coordinates, rounding])
    if mode != "cubic" or coordinates not in sampling.POSITIONS:
        return None
    coefficient, inner = call.real("cubic_coeff_a", -0.75), bool(call.integer("exclude_outside", 0))
    return sampling.resampled(call.builder, x, like, coordinates, coefficient=coefficient, inner=inner)


def _sized_like(call: Call, x: Tensor, axes: list[int], sizes: NDArray[Any]) -> Tensor | None:
    """Return the image of the height and width to which a resize goes."""
    if x.flat is not None or x.axes != "NCHW" or axes != list(range(4)):
        return None
    if call.text("keep_aspect_ratio_policy", "stretch") != "stretch" or call.integer("antialias", 0):
        return None
    before, after = call.shape_of(x), sizes.ravel()
    if not all(_is_same(a, b) for a, b in zip(before[:2], after[:2], strict=True)):
        return None
    height, width = after[2:]
    if not (isinstance(height, Extent) and isinstance(width, Extent)) or height.ratio != 1 or width.ratio != 1:
        return None
    if height.of is None or width.of is None or height.of[0] != width.of[0]:
        return None
    if (height.of[1], width.of[1]) != ("H", "W") or _is_multiple(height, before[2]):
        return None
    assert height.value is not None
    assert width.value is not None
    return Tensor(GraphValue(height.of[0]), int(height.value), int(width.value), x.channels, "NCHW")


def _is_multiple(extent: Extent, other: Any) -> bool:
    return isinstance(other, Extent) and extent.is_multiple_of(other) is not None


def _is_same(before: Any, after: Any) -> bool:
    if isinstance(before, Extent) and isinstance(after, Extent):
        return before.is_multiple_of(after) == 1
    return not isinstance(before, Extent) and not isinstance(after, Extent) and int(before) == int(after)


def _window_axes(call: Call, x: Tensor, axes: list[int]) -> None:
    if any(a not in range(x.rank) for a in axes) or len(set(axes)) != len(axes):
        raise InvalidModelError(f"{call.name}: axes {axes} of {x.rank}.")


@operator("Resize", "Upsample")
def _resize(call: Call) -> Value:
    x = call.tensor()
    mode = call.text("mode", "nearest")
    old = call.operator == "Upsample" or call.opset < 11
    if mode not in ("nearest", "linear", "cubic"):
        raise UnmappedError(f'a resize "{mode}"')
    if old:
        coordinates, rounding = "asymmetric", "floor"
    else:
        coordinates = call.text("coordinate_transformation_mode", "half_pixel")
        rounding = call.text("nearest_mode", "round_prefer_floor")
    if coordinates not in resize.COORDINATES:
        raise UnmappedError(f'coordinates "{coordinates}"')
    axes = call.integers("axes", list(range(x.rank)))
    axes = [a + x.rank if a < 0 else a for a in axes]
    _window_axes(call, x, axes)
    place = 1 if old else 2
    scale_values = np.array(call.reals("scales"), np.float32) if call.has("scales") else call.value(place)
    size_values = None if old else call.value(3)
    if isinstance(scale_values, Tensor) or isinstance(size_values, Tensor):
        raise UnmappedError(f"a size {OF_VALUES}")
    sizes: list[int | None] = [None] * x.rank
    scales: list[float | None] = [None] * x.rank
    if size_values is not None and size_values.size:
        if size_values.size != len(axes):
            raise InvalidModelError(f"{call.name}: {size_values.size} sizes for {len(axes)} axes.")
        found = _resized_like(call, x, axes, size_values, (mode, coordinates, rounding))
        if found is not None:
            return found
        if len(axes) == x.rank:
            sizes, scales = _sizes(call, x, size_values)
        else:
            for axis, size in zip(axes, settled(size_values, call.builder.fix).ravel().tolist(), strict=True):
                sizes[axis] = int(size)
        sizes, scales = _with_policy(call, x, axes, sizes, scales)
    elif scale_values is not None and scale_values.size:
        values = settled(scale_values, call.builder.fix).ravel().tolist()
        if len(values) != len(axes):
            raise InvalidModelError(f"{call.name}: {len(values)} scales for {len(axes)} axes.")
        for axis, scale in zip(axes, values, strict=True):
            scales[axis] = _exact(float(scale))
    else:
        raise InvalidModelError(f"{call.name}: neither scales nor sizes.")
    return _resized(call, x, sizes, scales, mode, coordinates, rounding, old)


def _exact(scale: float) -> float:
    """Return the simple fraction that a float32 scale approximates, such as 1 / 3, or the scale itself."""
    fraction = Fraction(scale).limit_denominator(64)
    return float(fraction) if np.float32(float(fraction)) == np.float32(scale) else scale


def _with_policy(
    call: Call, x: Tensor, axes: list[int], sizes: list[int | None], scales: list[float | None]
) -> tuple[list[int | None], list[float | None]]:
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes, scales
    if policy not in ("not_larger", "not_smaller") or any(sizes[a] is None for a in axes) or 0 in axes:
        raise UnmappedError(f'a resize with the policy "{policy}"')
    of = [(sizes[a] or 0) / x.shape[a - 1] for a in axes]
    scale = min(of) if policy == "not_larger" else max(of)
    call.builder.fix_unless_constant(x)
    for a in axes:
        sizes[a], scales[a] = math.floor(x.shape[a - 1] * scale + 0.5), scale
    return sizes, scales


def _resized(
    call: Call,
    x: Tensor,
    sizes: list[int | None],
    scales: list[float | None],
    mode: str,
    coordinates: str,
    rounding: str,
    old: bool,
) -> Value:
    if scales[0] not in (None, 1.0) or (sizes[0] is not None and sizes[0] != call.batch):
        raise UnmappedError("the batch resized")
    changed = []
    for axis in range(1, x.rank):
        same = scales[axis] in (None, 1.0) and sizes[axis] in (None, x.shape[axis - 1])
        if not same:
            changed.append(axis)
        elif sizes[axis] is not None and x.flat is None and x.axes[axis] != "C":
            call.builder.fix_unless_constant(x, x.axes[axis])  # the given extent equals the source's only at this size
    if not changed:
        return x
    if 1 not in changed and (x.flat is not None or any(x.axes[axis] == "C" for axis in changed)):
        x = general.with_channels_second(call.builder, x)  # values of a view, or summed over one of its axes
    if x.flat is not None or any(x.axes[axis] == "C" for axis in changed):
        raise UnmappedError(f"a resize of a tensor with axes {x.axes} {x.shape}")
    smaller = any((scales[a] or (sizes[a] or 0) / x.shape[a - 1]) < 1 for a in changed)
    if smaller and call.integer("antialias", 0):
        raise UnmappedError("antialias")
    if old and mode == "nearest" and smaller and any((1 / (scales[a] or 1)) % 1 for a in changed):
        raise UnmappedError("a reduction by no whole number, whose rounding ONNX left open before version 11")
    if coordinates == "align_corners" and any(
        sizes[a] is None and (x.shape[a - 1] * (scales[a] or 1)) % 1 for a in changed
    ):
        raise UnmappedError("aligned corners of a result whose extent was rounded: ONNX takes the one that was not")
    if coordinates == "align_corners" and any((scales[a] or 1) % 1 for a in changed):
        call.builder.fix_unless_constant(x)  # it would be rounded at other sizes
    spatial = [axis for axis in range(1, x.rank) if x.axes[axis] != "C"]
    place = x.axes.find("C")
    axes = x.axes if place < 0 else "NC" + x.axes[1:place] + x.axes[place + 1 :]
    moved = Tensor(x.value, x.height, x.width, x.channels, axes if place >= 0 else "NC" + x.axes[1:])
    y = resize.resize(
        call.builder,
        moved,
        size=[sizes[a] for a in spatial],
        scale=[scales[a] for a in spatial],
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
        cubic_coefficient=call.real("cubic_coeff_a", -0.75),
        exclude_outside=mode == "cubic" and bool(call.integer("exclude_outside", 0)),
    )
    return Tensor(y.value, y.height, y.width, y.channels, x.axes)


def _is_position_major(call: Call) -> bool:
    mode = call.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise InvalidModelError(f'{call.name}: mode "{mode}".')
    return mode == "DCR"


@operator("DepthToSpace")
def _depth_to_space(call: Call) -> Value:
    major = _is_position_major(call)
    x = general.with_channels_second(call.builder, call.tensor())
    return resize.pixel_shuffle(call.builder, x, call.integer("blocksize"), position_major=major)


@operator("SpaceToDepth")
def _space_to_depth(call: Call) -> Value:
    major = _is_position_major(call)
    x = general.with_channels_second(call.builder, call.tensor())
    return resize.pixel_unshuffle(call.builder, x, call.integer("blocksize"), position_major=major)


@operator("AffineGrid")
def _affine_grid(call: Call) -> Value:
    """Return the positions of pixels for GridSample: a product of an affine matrix and those of the result."""
    b, theta = call.builder, call.tensor()
    size = call.value(1)
    if isinstance(size, Tensor) or size is None:
        raise UnmappedError(f"a size {OF_VALUES}")
    if theta.shape != (2, 3) or size.size != 4:
        raise UnmappedError(f"a grid of {size.size - 2} axes by matrices {theta.shape}, not of images")
    height, width = (int(e) for e in settled(extents(list(size.ravel())[2:]), b.fix))
    if min(height, width) < 1:
        raise InvalidModelError(f"{call.name}: a grid of {height} x {width} positions.")
    aligned = bool(call.integer("align_corners", 0))
    if aligned and min(height, width) == 1:
        raise UnmappedError("aligned corners of one row or column")
    rows, columns = (_centres(extent, aligned) for extent in (height, width))
    places = np.stack([*np.broadcast_arrays(columns, rows[:, None]), np.ones((height, width))], -1)
    whole = general.constant(b, theta, places.reshape(-1, 3))
    grid = general.matmul(b, whole, general.permute(b, theta, (1, 0)))
    return shape.reshape(b, grid, (height, width, 2))


def _centres(extent: int, aligned: bool) -> NDArray[np.float64]:
    """Return the positions of pixels from -1 to 1, those of the outer edges or, if aligned, of the outer centres."""
    if aligned:
        return np.linspace(-1, 1, extent)
    return (2 * np.arange(extent) + 1) / extent - 1


@operator("CenterCropPad")
def _center_crop_pad(call: Call) -> Value:
    """Return the middle of an image, or the image in the middle of zeros."""
    x, b = call.tensor(), call.builder
    size = call.value(1)
    if isinstance(size, Tensor) or size is None:
        raise UnmappedError(f"a size {OF_VALUES}")
    items = list(size.ravel())
    axes = [a + x.rank if a < 0 else a for a in call.integers("axes", list(range(x.rank)))]
    _window_axes(call, x, axes)
    if len(items) != len(axes):
        raise InvalidModelError(f"{call.name}: {len(items)} extents for {len(axes)} axes.")
    b.fix_unless_constant(x)
    pads = [(0, 0)] * x.rank
    for axis, item in zip(axes, items, strict=True):
        if axis == 0:
            if not (isinstance(item, Extent) and item.is_batch) and item != call.batch:
                raise UnmappedError("a part of the batch")
            continue
        extent, wanted = x.shape[axis - 1], int(settled(extents([item]), b.fix)[0])
        if wanted < 1:
            raise UnmappedError(f"a part without values: {wanted} of {extent}")
        if wanted < extent:
            x = shape.narrow(b, x, axis, (extent - wanted) // 2, wanted)
        else:
            before = (wanted - extent) // 2
            pads[axis] = before, wanted - extent - before
    flat = [pixels for pair in reversed(pads[1:]) for pixels in pair]
    return resize.pad(b, x, flat, "constant", 0.0) if any(flat) else x


@operator("GridSample")
def _grid_sample(call: Call) -> Value:
    x, grid = call.tensor(), call.operand(1)
    if x.rank != 4:
        raise UnmappedError(f"samples of a tensor with {x.rank} axes")
    if not isinstance(grid, Tensor):
        grid = elementwise.of_image(grid, 4)
    mode, padding = call.text("mode", "linear"), call.text("padding_mode", "zeros")
    return sampling.grid_sample(call.builder, x, grid, mode, padding, bool(call.integer("align_corners", 0)))
