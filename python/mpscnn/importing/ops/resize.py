# SPDX-License-Identifier: Apache-2.0
"""Nearest, bilinear and bicubic resizing, padding, and pixel shuffles."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from . import general, sampling, shape
from .arithmetic import WEIGHTS_LIMIT
from .pooling import window_axes

EXTENT = {"H": "height", "W": "width", "C": "channels"}
RESULT_LIMIT = 1 << 20  # max pixels along an axis
PARTS_LIMIT = 4096  # max channels of the image in which rows or columns are gathered by MPS's kernels

_Positions: TypeAlias = "Callable[[NDArray[Any], float, int, int], NDArray[Any]]"

# Source position of pixel i of the result, from (i, scale, source extent, result extent), by ONNX's names.
COORDINATES: dict[str, _Positions] = {
    "half_pixel": lambda i, s, n, m: (i + 0.5) / s - 0.5,
    "half_pixel_symmetric": lambda i, s, n, m: n / 2 * (1 - m / (s * n)) + (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, s, n, m: (i + 0.5) / s - 0.5 if m > 1 else i * 0.0,
    "align_corners": lambda i, s, n, m: i * ((n - 1) / (m - 1)) if m > 1 else i * 0.0,
    "asymmetric": lambda i, s, n, m: i / s,
    "tf_half_pixel_for_nn": lambda i, s, n, m: (i + 0.5) / s,
}

ROUNDING: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True)
class Axis:
    """One axis of a resize: extents of source and result, and the scale for positions."""

    source: int
    result: int
    scale: float
    free: bool
    """Whether the scale is given, so that the result's extent depends on the source's; a given size may equal it."""

    @property
    def factor(self) -> int | None:
        """The scale if it is an integer, otherwise None."""
        whole = round(self.scale)
        return whole if whole >= 1 and whole == self.scale and self.source * whole == self.result else None

    @property
    def divisor(self) -> int | None:
        """One over the scale if that is an integer, otherwise None."""
        whole = round(1 / self.scale)
        exact = whole >= 1 and abs(whole * self.scale - 1) < 1e-7
        return whole if exact and self.source // whole == self.result else None


def _axis(source: int, size: int | None, scale: float | None) -> Axis:
    asked = size if size is not None else source * (scale or 0)
    if asked > RESULT_LIMIT:
        raise UnmappedError(f"a resize to {asked} pixels, more than the limit ({RESULT_LIMIT})")
    if size is not None:
        if size < 1:
            raise UnmappedError(f"a resize to {size} pixels")
        return Axis(source, size, size / source if scale is None else scale, free=False)
    assert scale is not None
    if not 0 < scale < math.inf:
        raise UnmappedError(f"a resize by {scale}")
    result = math.floor(source * scale)
    if result < 1:
        raise UnmappedError(f"a resize of {source} pixels by {scale}")
    return Axis(source, result, scale, free=True)


def resize(
    builder: Builder,
    tensor: Tensor,
    *,
    size: Sequence[int | None] | None = None,
    scale: Sequence[float | None] | None = None,
    mode: str = "nearest",
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    cubic_coefficient: float = -0.75,
    antialias: bool = False,
    exclude_outside: bool = False,
) -> Tensor:
    """Resize height and width, or one of them, to `size` or by `scale`, given in the order of the tensor's axes.

    Parameters
    ----------
    mode : str
        "nearest", "linear" or "cubic".
    coordinates : str
        One of `COORDINATES`.
    rounding : str
        One of `ROUNDING`; for "nearest" only.
    cubic_coefficient : float
        That of Keys's kernel.
    antialias : bool
        Along axes that become shorter, the kernel is as wide as a pixel of the result.
    exclude_outside : bool
        Pixels outside of the source have no weight; otherwise they are those of the edge.
    """
    axes = window_axes(tensor, "a resize")
    if coordinates not in COORDINATES or rounding not in ROUNDING or mode not in ("nearest", "linear", "cubic"):
        raise UnmappedError(f"a resize with {mode}, {coordinates}, {rounding}")
    found = {"H": Axis(tensor.height, tensor.height, 1.0, True), "W": Axis(tensor.width, tensor.width, 1.0, True)}
    for i, axis in enumerate(axes):
        asked_size = None if size is None else size[i]
        asked_scale = None if scale is None else scale[i]
        if asked_size is not None or asked_scale is not None:
            found[axis] = _axis(tensor.extent(axis), asked_size, asked_scale)
    rows, columns = found["H"], found["W"]
    if not (rows.free and columns.free):
        builder.fix_unless_constant(tensor)
    if rows.scale == columns.scale == 1 and (rows.result, columns.result) == (tensor.height, tensor.width):
        return tensor
    if mode == "nearest":
        return _nearest(builder, tensor, rows, columns, coordinates, rounding)
    smaller = any(axis.scale < 1 for axis in (rows, columns))
    if mode == "cubic" or exclude_outside or (antialias and smaller):
        return _weighted(builder, tensor, found, mode, coordinates, cubic_coefficient, antialias, exclude_outside)
    return _linear(builder, tensor, rows, columns, coordinates)


def _weighted(
    builder: Builder,
    tensor: Tensor,
    axes: dict[str, Axis],
    mode: str,
    coordinates: str,
    coefficient: float,
    antialias: bool,
    exclude_outside: bool,
) -> Tensor:
    """Resize by weighted sums of columns, and then of rows."""
    if antialias and coordinates != "half_pixel":
        raise UnmappedError(f"antialias with coordinates {coordinates}")
    scales = (axes["H"].scale, axes["W"].scale)
    free = all(axis.free for axis in axes.values()) and not all(builder.is_constant(tensor, axis) for axis in "HW")
    if free and not antialias and coordinates in sampling.POSITIONS and all(map(sampling.fraction, scales)):
        return sampling.resampled(
            builder,
            tensor,
            scales,
            coordinates,
            cubic=mode == "cubic",
            coefficient=coefficient,
            inner=exclude_outside,
        )
    reach = 2 if mode == "cubic" else 1
    kernel: Callable[..., NDArray[np.float64]] = sampling.triangle
    if mode == "cubic":
        kernel = functools.partial(sampling.cubic, a=coefficient)
    tables = {}
    for name, axis in axes.items():
        if axis.scale == 1 and axis.source == axis.result:
            continue
        if antialias and axis.scale < 1:
            tables[name] = sampling.antialias_table(axis.source, axis.result, 1 / axis.scale, kernel, reach)
            continue
        positions = COORDINATES[coordinates](
            np.arange(axis.result, dtype=np.float64), axis.scale, axis.source, axis.result
        )
        tables[name] = sampling.interpolation_table(positions, axis.source, kernel, reach, exclude_outside)
    return sampling.windows(builder, tensor, tables)


def of_constant(
    array: NDArray[Any],
    sizes: dict[int, int],
    scales: dict[int, float],
    mode: str,
    coordinates: str,
    rounding: str,
    coefficient: float,
    exclude_outside: bool,
) -> NDArray[Any]:
    """Return a constant resized along the axes that have a size or a scale, as positions of a network are."""
    if mode == "linear" and coordinates == "tf_half_pixel_for_nn":
        raise UnmappedError(f"a linear resize with {coordinates}")
    for place in sorted({*sizes, *scales}):
        axis = _axis(array.shape[place], sizes.get(place), scales.get(place))
        if axis.scale == 1 and axis.source == axis.result:
            continue
        if coordinates == "align_corners" and (axis.source * axis.scale) % 1 and place in scales:
            raise UnmappedError("aligned corners of a result whose extent was rounded: ONNX takes the one that was not")
        if array.size // axis.source * axis.result > WEIGHTS_LIMIT:
            raise UnmappedError(f"a constant of shape {array.shape} resized to {axis.result} along axis {place}")
        if mode == "nearest":
            array = array.take(_sources(axis, coordinates, rounding, axis.source, axis.result), place)
            continue
        kernel = sampling.triangle if mode == "linear" else functools.partial(sampling.cubic, a=coefficient)
        positions = COORDINATES[coordinates](
            np.arange(axis.result, dtype=np.float64), axis.scale, axis.source, axis.result
        )
        reach = 1 if mode == "linear" else 2
        table = sampling.interpolation_table(positions, axis.source, kernel, reach, exclude_outside)
        assert table.weights is not None
        total = np.zeros((*array.shape[:place], axis.result, *array.shape[place + 1 :]))
        for tap, weights in enumerate(table.weights.T):
            taken = array.take(np.minimum(table.first + tap, axis.source - 1), place)
            total += taken * weights.reshape(-1, *(1,) * (array.ndim - place - 1))
        array = total.astype(array.dtype)
    return array


# ---- nearest


def _sources(axis: Axis, coordinates: str, rounding: str, source: int, result: int) -> NDArray[np.int64]:
    """Return the source pixel of each pixel of the result."""
    i = np.arange(result, dtype=np.float64)
    positions = COORDINATES[coordinates](i, axis.scale, source, result)
    return np.asarray(np.clip(ROUNDING[rounding](positions), 0, source - 1), np.int64)


def _always(axis: Axis, coordinates: str, rounding: str, rule: Callable[[NDArray[Any], int], NDArray[Any]]) -> bool:
    """Return whether the source pixels follow the rule, for free extents at all extents (a sample is tested)."""
    extents = {axis.source} if not axis.free else {axis.source, *range(1, 24), 63, 64, 65, 200, 1000}
    for source in sorted(extents):
        result = axis.result if source == axis.source else math.floor(source * axis.scale)
        if not 1 <= result <= RESULT_LIMIT:
            continue
        expected = np.clip(rule(np.arange(result), source), 0, source - 1)
        if not np.array_equal(_sources(axis, coordinates, rounding, source, result), expected):
            return False
    return True


def _nearest(builder: Builder, tensor: Tensor, rows: Axis, columns: Axis, coordinates: str, rounding: str) -> Tensor:
    axes = (rows, columns)
    factors = [axis.factor for axis in axes]
    if all(factors) and all(
        _always(a, coordinates, rounding, lambda i, n, f=f: i // f)  # type: ignore[misc]
        for a, f in zip(axes, factors, strict=True)
    ):
        return builder.add(
            "UpsamplingNearest",
            tensor,
            scale_factor=tuple(factors),
            height=rows.result,
            width=columns.result,
        )
    phases: list[tuple[int, int]] = []
    for axis in axes:
        k = axis.divisor
        first = None if k is None else int(_sources(axis, coordinates, rounding, axis.source, axis.result)[0])
        if k is None or first is None or first >= k:
            break
        if not _always(axis, coordinates, rounding, lambda i, n, k=k, p=first: i * k + p):  # type: ignore[misc]
            break
        phases.append((k, first))
    if len(phases) == 2:
        (kh, ph), (kw, pw) = phases
        _check_weights(tensor.channels, kh, kw)
        weight = np.zeros((tensor.channels, 1, kh, kw), np.float32)
        weight[:, 0, ph, pw] = 1
        return _depthwise(builder, tensor, weight, (kh, kw), rows.result, columns.result)
    return _gathered(
        builder,
        tensor,
        _sources(rows, coordinates, rounding, rows.source, rows.result),
        _sources(columns, coordinates, rounding, columns.source, columns.result),
    )


def _check_weights(*extents: int) -> None:
    if math.prod(extents) > WEIGHTS_LIMIT:
        raise UnmappedError(f"weights of shape {extents}, more than the limit ({WEIGHTS_LIMIT} values)")


def _depthwise(
    builder: Builder, tensor: Tensor, weight: NDArray[np.float32], stride: tuple[int, int], height: int, width: int
) -> Tensor:
    return builder.add(
        "Convolution", tensor, weight=weight, groups=tensor.channels, stride=stride, height=height, width=width
    )


def _gathered(builder: Builder, tensor: Tensor, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Tensor:
    """Gather rows and columns by index: slice each, concatenate them as channels, and reshape channels to pixels."""
    for axis, wanted in (("W", columns), ("H", rows)):
        if np.array_equal(wanted, np.arange(tensor.extent(axis))):
            continue
        # Columns become channels of each row; rows become channels of a single pixel.
        each = tensor.channels if axis == "W" else tensor.width * tensor.channels
        builder.fix_unless_constant(tensor)
        if each * len(wanted) > PARTS_LIMIT:
            areas = [(int(index), int(index) + 1) for index in wanted]
            tensor = sampling.windows(builder, tensor, {axis: sampling.Table.of_areas(areas, mean=True)})
            continue
        parts: dict[int, Tensor] = {}
        for index in sorted(set(wanted.tolist())):
            if axis == "W":
                parts[index] = builder.add("Slice", tensor, size=(tensor.height, 1), offset=(0, index), width=1)
            else:
                row = builder.add("Slice", tensor, size=(1, tensor.width), offset=(index, 0), height=1)
                if tensor.width > 1:
                    row = builder.add("Reshape", row, shape=(1, 1, each), width=1, channels=each)
                parts[index] = row
        values = [parts[index].value for index in wanted.tolist()]
        joined = builder.graph.concatenate(
            *values, name=builder.graph.unique(builder._name or "concatenate"), origin=builder.origin
        )
        height = tensor.height if axis == "W" else len(wanted)
        width = len(wanted) if axis == "W" else tensor.width
        both = Tensor(joined, height if axis == "W" else 1, 1, each * len(wanted), tensor.axes)
        tensor = builder.add(
            "Reshape",
            both,
            shape=(height, width, tensor.channels),
            height=height,
            width=width,
            channels=tensor.channels,
        )
    return tensor


# ---- linear


def _linear(builder: Builder, tensor: Tensor, rows: Axis, columns: Axis, coordinates: str) -> Tensor:
    axes = (rows, columns)
    factors = [axis.factor for axis in axes]
    size = {"height": rows.result, "width": columns.result}
    whole = all(factors)
    if coordinates == "align_corners":
        if whole:
            return builder.add("UpsamplingBilinear", tensor, scale_factor=tuple(factors), align_corners=True, **size)
        builder.fix_unless_constant(tensor)
        return builder.add("ResizeBilinear", tensor, size=tuple(size.values()), align_corners=True, **size)
    if coordinates == "asymmetric":
        if whole:
            return builder.add("UpsamplingBilinear", tensor, scale_factor=tuple(factors), edge_mode="clamp", **size)
        builder.fix_unless_constant(tensor)
        if all(abs(axis.source / axis.result * axis.scale - 1) < 1e-7 for axis in axes):
            return builder.add("ResizeBilinear", tensor, size=tuple(size.values()), **size)
        return _sampled(builder, tensor, rows, columns, coordinates)
    if coordinates == "tf_half_pixel_for_nn":
        raise UnmappedError(f"a linear resize with {coordinates}")
    if whole and not (coordinates == "pytorch_half_pixel" and 1 in (rows.result, columns.result)):
        return _half_pixel(builder, tensor, factors[0] or 1, factors[1] or 1, size)
    builder.fix_unless_constant(tensor)
    return _sampled(builder, tensor, rows, columns, coordinates)


def _half_pixel(builder: Builder, tensor: Tensor, sh: int, sw: int, size: dict[str, int]) -> Tensor:
    """Resize by whole factors with half-pixel centres, at any extent: repeat each pixel s times, then average s pixels.

    Pixel i samples (i + 1/2) / s - 1/2; the mean of s repeated pixels around i is its interpolation. An even s has no
    centre, so s + 1 pixels are averaged, the outer two with half the weight. No weight is 0, so infinities are kept.
    """
    tensor = builder.add("UpsamplingNearest", tensor, scale_factor=(sh, sw), **size)
    down, across = (np.ones(s + 1 - s % 2, np.float32) / s for s in (sh, sw))
    for taps, s in ((down, sh), (across, sw)):
        if s % 2 == 0:
            taps[[0, -1]] /= 2
    filters = [np.outer(down, across)] if max(sh, sw) <= 2 else [down[:, None], across[None, :]]
    for taps in filters:
        if taps.size > 1:
            _check_weights(tensor.channels, *taps.shape)
            tensor = builder.add(
                "Convolution",
                tensor,
                weight=np.broadcast_to(taps, (tensor.channels, 1, *taps.shape)).copy(),
                groups=tensor.channels,
                padding=(taps.shape[0] // 2, taps.shape[1] // 2),
                edge_mode="clamp",
                **size,
            )
    return tensor


def _sampled(builder: Builder, tensor: Tensor, rows: Axis, columns: Axis, coordinates: str) -> Tensor:
    """Sample equidistant positions: crop and resize the source, padded by a pixel on each side."""
    region = []
    for axis in (rows, columns):
        i = np.arange(axis.result, dtype=np.float64)
        positions = COORDINATES[coordinates](i, axis.scale, axis.source, axis.result)
        if positions[0] < -1 or positions[-1] > axis.source:
            raise UnmappedError("a linear resize that looks at more than one pixel beyond the source")
        last = axis.source + 1  # of the enlarged source
        begin, length = (positions[0] + 1) / last, (positions[-1] - positions[0]) / last
        if axis.result == 1:
            length = 0.0
        region.append((begin, length))
    tensor = builder.add("Pad", tensor, padding=1, edge_mode="clamp", height=tensor.height + 2, width=tensor.width + 2)
    (top, tall), (left, wide) = region
    return builder.add(
        "CropAndResizeBilinear",
        tensor,
        size=(rows.result, columns.result),
        regions=[[top, left, tall, wide]],
        height=rows.result,
        width=columns.result,
    )


def interpolate(
    builder: Builder,
    tensor: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Same as torch.nn.functional.interpolate: "nearest", "nearest-exact", "linear", "bilinear", "bicubic"."""
    axes = window_axes(tensor, "an interpolation")
    if mode not in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic"):
        raise UnmappedError(f'interpolation "{mode}"')
    if (size is None) == (scale_factor is None):
        raise UnmappedError(f"an interpolation with size {size} and scale_factor {scale_factor}")
    sizes: list[int] | None = None
    scales: list[float] | None = None
    if size is not None:
        sizes = [size] * len(axes) if isinstance(size, int) else [int(v) for v in size]
    elif scale_factor is not None:
        one = isinstance(scale_factor, (int, float))
        scales = [float(scale_factor)] * len(axes) if one else [float(v) for v in scale_factor]  # type: ignore[arg-type, union-attr]
        if recompute_scale_factor and any(s != round(s) for s in scales):
            sizes = [math.floor(tensor.extent(a) * s) for a, s in zip(axes, scales, strict=True)]
            scales = None
    if len(sizes or scales or ()) != len(axes):
        raise UnmappedError(f"an interpolation to {size or scale_factor} of {len(axes)} axes")
    if mode.startswith("nearest"):
        exact = mode == "nearest-exact"
        coordinates, rounding = ("tf_half_pixel_for_nn" if exact else "asymmetric"), "floor"
        return resize(
            builder, tensor, size=sizes, scale=scales, mode="nearest", coordinates=coordinates, rounding=rounding
        )
    coordinates = "align_corners" if align_corners else "half_pixel"
    return resize(
        builder,
        tensor,
        size=sizes,
        scale=scales,
        mode="cubic" if mode == "bicubic" else "linear",
        coordinates=coordinates,
        cubic_coefficient=-0.5 if antialias else -0.75,
        antialias=antialias,
    )


# ---- padding


def pad(
    builder: Builder, tensor: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Same as torch.nn.functional.pad: (before, after) of the last axis first.

    `mode`: "constant", "reflect", "replicate" or "circular".

    Negative numbers crop.
    """
    if len(pad) % 2 or len(pad) // 2 > tensor.rank:
        raise UnmappedError(f"padding {tuple(pad)} of a tensor of {tensor.rank} axes")
    if not any(pad):
        return tensor
    if mode in ("circular", "wrap"):
        return _circular(builder, tensor, pad)
    if tensor.flat is not None:
        return _padded_one_by_one(builder, tensor, pad, mode, value)
    pads = {"H": (0, 0), "W": (0, 0), "C": (0, 0)}
    for i in range(len(pad) // 2):
        pair = int(pad[2 * i]), int(pad[2 * i + 1])
        if not any(pair):
            continue
        axis = tensor.axis(-1 - i)
        if axis == "N":
            raise UnmappedError("padding of the batch")
        pads[axis] = pair
    edge = {"constant": "constant", "reflect": "mirror", "replicate": "clamp", "edge": "clamp"}.get(mode)
    if edge is None:
        raise UnmappedError(f'padding "{mode}"')
    for axis, pair in pads.items():
        left = tensor.extent(axis) + sum(min(p, 0) for p in pair)
        if left < 1:
            raise UnmappedError(f"padding {pair} of an axis of {tensor.extent(axis)} leaves nothing")
        if mode == "reflect" and max(pair) >= left:
            raise UnmappedError(f"reflection of {max(pair)} pixels of {left}")
    tensor = _cropped(builder, tensor, {axis: (min(p[0], 0), min(p[1], 0)) for axis, p in pads.items()})
    more = {axis: (max(p[0], 0), max(p[1], 0)) for axis, p in pads.items()}
    if not any(map(any, more.values())):
        return tensor
    arguments: dict[str, Any] = {"padding": (more["H"], more["W"])}
    if any(more["C"]):
        arguments |= {"channels_before": more["C"][0], "channels_after": more["C"][1]}
    if edge != "constant":
        arguments["edge_mode"] = edge
    elif value:
        arguments["value"] = float(value)
    extents = {EXTENT[axis]: tensor.extent(axis) + sum(more[axis]) for axis in "HWC"}
    return builder.add("Pad", tensor, **extents, **arguments)


def _padded_one_by_one(builder: Builder, x: Tensor, pad_: Sequence[int], mode: str, value: float | None) -> Tensor:
    """Return a padded tensor whose axes were taken together or apart, axis by axis."""
    if len(pad_) // 2 == x.rank and any(pad_[-2:]):
        raise UnmappedError("padding of the batch")
    for i in range(min(len(pad_) // 2, len(x.shape))):
        pair = pad_[2 * i : 2 * i + 2]
        if any(pair):
            shape, place = list(x.shape), len(x.shape) - 1 - i
            builder.fix_unless_constant(x)
            y = pad(builder, general.around(builder, x, place), (0, 0, *pair), mode, value)
            shape[place] = y.width
            x = general.reshape(y, shape)
    return x


def _circular(builder: Builder, tensor: Tensor, pad: Sequence[int]) -> Tensor:
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        if before == after == 0:
            continue
        dim = tensor.rank - 1 - i
        extent = tensor.shape[dim - 1] if dim else 0
        if not 0 <= min(before, after) <= max(before, after) <= extent:
            raise UnmappedError(f"circular padding {before, after} of {extent}")
        parts = [shape.narrow(builder, tensor, dim, extent - before, before)] if before else []
        parts += [tensor, *([shape.narrow(builder, tensor, dim, 0, after)] if after else [])]
        tensor = shape.cat(builder, parts, dim)
    return tensor


def _cropped(builder: Builder, tensor: Tensor, cuts: dict[str, tuple[int, int]]) -> Tensor:
    """Crop the first and last pixels and channels, by negative numbers."""
    if any(cuts["H"]) or any(cuts["W"]):
        builder.fix_unless_constant(tensor)
        size = tensor.height + sum(cuts["H"]), tensor.width + sum(cuts["W"])
        offset = -cuts["H"][0], -cuts["W"][0]
        tensor = builder.add("Slice", tensor, size=size, offset=offset, height=size[0], width=size[1])
    if any(cuts["C"]):
        count = tensor.channels + sum(cuts["C"])
        tensor = builder.add(
            "Pad",  # unlike Slice, it can start at any channel
            tensor,
            source_feature_channel_offset=-cuts["C"][0],
            source_feature_channel_max_count=count,
            channels=count,
        )
    return tensor


# ---- pixel shuffles


def pixel_shuffle(builder: Builder, tensor: Tensor, upscale_factor: int, *, position_major: bool = False) -> Tensor:
    """Turn r * r channels into r x r pixels: channel c * r * r + i * r + j becomes pixel (i, j) of channel c.

    `position_major`: channel (i * r + j) * C + c instead, ONNX's DCR.
    """
    if window_axes(tensor, "a pixel shuffle") != "HW":
        raise UnmappedError(f"a pixel shuffle of a tensor with axes {tensor.axes}")
    r = upscale_factor
    if r < 1 or tensor.channels % (r * r):
        raise UnmappedError(f"a pixel shuffle by {r} of {tensor.channels} channels")
    if r == 1:
        return tensor
    channels = tensor.channels // (r * r)
    order = np.arange(tensor.channels)
    if not position_major:
        order = order.reshape(channels, r * r).T.ravel()  # Metal's sub-pixel convolution is position-major
    _check_weights(tensor.channels, tensor.channels)
    weight = np.zeros((tensor.channels, tensor.channels, 1, 1), np.float32)
    weight[np.arange(tensor.channels), order] = 1
    return builder.add(
        "Convolution",
        tensor,
        weight=weight,
        sub_pixel_scale_factor=r,
        height=tensor.height * r,
        width=tensor.width * r,
        channels=channels,
    )


def pixel_unshuffle(builder: Builder, tensor: Tensor, downscale_factor: int, *, position_major: bool = False) -> Tensor:
    """Turn r x r pixels into channels: pixel (i, j) of channel c becomes channel c * r * r + i * r + j.

    `position_major`: channel (i * r + j) * C + c instead, ONNX's SpaceToDepth.
    """
    if window_axes(tensor, "a pixel unshuffle") != "HW":
        raise UnmappedError(f"a pixel unshuffle of a tensor with axes {tensor.axes}")
    r = downscale_factor
    if r < 1 or tensor.height % r or tensor.width % r:
        raise UnmappedError(f"a pixel unshuffle by {r} of {tensor.height} x {tensor.width} pixels")
    if r == 1:
        return tensor
    _check_weights(tensor.channels * r * r, tensor.channels, r, r)
    c, i, j = (grid.ravel() for grid in np.indices((tensor.channels, r, r)))
    target = (i * r + j) * tensor.channels + c if position_major else (c * r + i) * r + j
    weight = np.zeros((tensor.channels * r * r, tensor.channels, r, r), np.float32)
    weight[target, c, i, j] = 1
    return builder.add(
        "Convolution",
        tensor,
        weight=weight,
        stride=r,
        height=tensor.height // r,
        width=tensor.width // r,
        channels=tensor.channels * r * r,
    )
