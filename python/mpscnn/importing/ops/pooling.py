# SPDX-License-Identifier: Apache-2.0
"""Max, average and norm pooling, and adaptive pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ...graph import CHANNEL_LIMIT, EXTENT_LIMIT
from ..builder import Builder, Tensor, UnmappedError
from . import arithmetic, reduction, sampling

Pair: TypeAlias = "int | Sequence[int]"
Padding: TypeAlias = "int | Sequence[int] | Sequence[Sequence[int]]"
Sides: TypeAlias = "tuple[tuple[int, int], tuple[int, int]]"

CELL_LIMIT = 400  # max areas of an adaptive pooling that are pooled one by one, by MPS's kernels


def window_axes(tensor: Tensor, what: str) -> str:
    """Return the image's axes that windows move along, in the order of the tensor: "HW", "WH", "H" or "W"."""
    if tensor.flat is not None:
        raise UnmappedError(f"{what} of a tensor whose axes were taken together or apart: {tensor.shape}")
    axes = tensor.axes
    if axes[1:2] == "C" and set(axes[2:]) in ({"H", "W"}, {"H"}, {"W"}):
        return axes[2:]
    raise UnmappedError(f"{what} of a tensor with axes {axes} {tensor.shape}: only height and width have windows")


def by_axis(axes: str, value: Pair, default: int) -> tuple[int, int]:
    """Return a number, or one for each of `axes`, as (height, width)."""
    values = [value] * len(axes) if isinstance(value, int) else [int(v) for v in value]
    if len(values) == 1:
        values *= len(axes)
    if len(values) != len(axes):
        raise UnmappedError(f"{len(values)} extents {tuple(values)} for {len(axes)} axes of windows")
    found = dict(zip(axes, values, strict=True))
    return found.get("H", default), found.get("W", default)


def sides(axes: str, padding: Padding) -> Sides:
    """Return a number, or one or (before, after) for each of `axes`, as ((top, bottom), (left, right))."""
    if isinstance(padding, int):
        padding = [padding] * len(axes)
    pairs: list[tuple[int, int]] = [
        (int(p), int(p)) if isinstance(p, (int, np.integer)) else (int(p[0]), int(p[1])) for p in padding
    ]
    if len(pairs) == 1:
        pairs *= len(axes)
    if len(pairs) != len(axes):
        raise UnmappedError(f"padding {padding} for {len(axes)} axes of windows")
    found = dict(zip(axes, pairs, strict=True))
    return found.get("H", (0, 0)), found.get("W", (0, 0))


def pooled_extent(
    extent: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int = 1, ceil_mode: bool = False
) -> int:
    """Return the number of windows along an axis. UnmappedError if it is 0."""
    room = extent + sum(padding) - (kernel - 1) * dilation - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    if count < 1:
        raise UnmappedError(
            f"a window of {(kernel - 1) * dilation + 1} pixels on {extent} with padding {padding}: there is no result"
        )
    if ceil_mode and (count - 1) * stride >= extent + padding[0]:
        count -= 1
    return count


class _Window:
    """Arguments of a pooling as (height, width), and the extents of the result."""

    def __init__(
        self,
        tensor: Tensor,
        what: str,
        kernel_size: Pair,
        stride: Pair | None,
        padding: Padding,
        dilation: Pair,
        ceil_mode: bool,
    ) -> None:
        axes = window_axes(tensor, what)
        self.kernel = by_axis(axes, kernel_size, 1)
        self.stride = by_axis(axes, kernel_size if stride is None or stride == [] else stride, 1)
        self.dilation = by_axis(axes, dilation, 1)
        self.padding = sides(axes, padding)
        self.ceil_mode = bool(ceil_mode)
        self.reach = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        if min(*self.kernel, *self.stride, *self.dilation) < 1:
            raise UnmappedError(f"{what} with kernel {self.kernel}, stride {self.stride}, dilation {self.dilation}")
        if min(min(p) for p in self.padding) < 0:
            raise UnmappedError(f"{what} with negative padding {self.padding}")
        self.extents = tuple(
            pooled_extent(e, k, s, p, d, self.ceil_mode)
            for e, k, s, p, d in zip(
                (tensor.height, tensor.width), self.kernel, self.stride, self.padding, self.dilation, strict=True
            )
        )

    def overlaps(self, what: str) -> None:
        """Raise UnmappedError if a window may lie entirely in the padding."""
        for pads, reach in zip(self.padding, self.reach, strict=True):
            if max(pads) >= reach:
                raise UnmappedError(f"{what} with padding {pads} around windows of {reach}: some would be empty")

    def arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kernel_size": self.kernel, "stride": self.stride, "padding": self.padding}
        if self.ceil_mode:
            found["ceil_mode"] = True
        found["height"], found["width"] = self.extents
        return found


def max_pool2d(
    builder: Builder,
    tensor: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the max of each window, ignoring padding. The tensor may have only a height or a width.

    `padding` may be ((top, bottom), (left, right)).
    """
    what = "max pooling"
    w = _Window(tensor, what, kernel_size, stride, padding, dilation, ceil_mode)
    w.overlaps(what)
    if w.dilation == (1, 1):
        return builder.add("PoolingMax", tensor, **w.arguments())
    # Clamping would be wrong, because the nearest pixel may be in a gap of the window: pad with -inf.
    pads = [list(p) for p in w.padding]
    if w.ceil_mode:
        for axis in range(2):
            extent = (tensor.height, tensor.width)[axis]
            if pads[axis][1] + w.stride[axis] - 1 < w.reach[axis]:
                pads[axis][1] += w.stride[axis] - 1
            else:  # the last window may start beyond the source, depending on the extent
                builder.fix_unless_constant(tensor)
                needed = (w.extents[axis] - 1) * w.stride[axis] + w.reach[axis]
                pads[axis][1] = max(needed - extent - pads[axis][0], 0)
    source = tensor
    if any(map(any, pads)):
        source = builder.add(
            "Pad",
            tensor,
            padding=tuple(map(tuple, pads)),
            value=float("-inf"),
            height=tensor.height + sum(pads[0]),
            width=tensor.width + sum(pads[1]),
        )
    height, width = w.extents
    return builder.add(
        "DilatedPoolingMax",
        source,
        kernel_size=w.kernel,
        dilation=w.dilation,
        stride=w.stride,
        height=height,
        width=width,
    )


def avg_pool2d(
    builder: Builder,
    tensor: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dilation: Pair = 1,
) -> Tensor:
    """Return the mean of each window, along height and width or one of them.

    `padding` may be ((top, bottom), (left, right)); a `dilation` is supported if every tap of a window counts.
    """
    what = "average pooling"
    if divisor_override == 0:
        raise UnmappedError("average pooling divided by 0")
    w = _Window(tensor, what, kernel_size, stride, padding, dilation, ceil_mode)
    padded = any(map(any, w.padding))
    if not count_include_pad and divisor_override is None:
        w.overlaps(what)
    if w.dilation != (1, 1):
        if w.ceil_mode or (padded and not count_include_pad and divisor_override is None):
            raise UnmappedError("average pooling with gaps whose windows have different numbers of pixels")
        weight = 1 / (divisor_override or w.kernel[0] * w.kernel[1])
        if tensor.channels * w.kernel[0] * w.kernel[1] > arithmetic.WEIGHTS_LIMIT:
            raise UnmappedError(f"average pooling with gaps of {w.kernel} pixels, more than the limit")
        height, width = w.extents
        return builder.add(
            "Convolution",
            tensor,
            weight=np.full((tensor.channels, 1, *w.kernel), weight, np.float32),
            groups=tensor.channels,
            stride=w.stride,
            padding=w.padding,
            dilation=w.dilation,
            height=height,
            width=width,
        )
    if divisor_override is not None:
        sums = builder.add("PoolingAverage", tensor, **w.arguments())  # every tap counts, padding included
        return arithmetic.multiply(builder, sums, w.kernel[0] * w.kernel[1] / divisor_override)
    if not w.ceil_mode and (count_include_pad or not padded):
        return builder.add("PoolingAverage", tensor, **w.arguments())  # every tap counts
    if count_include_pad and any(before != behind for before, behind in w.padding):
        return _avg_pool_of_padded(builder, tensor, w)
    return builder.add("PoolingAverage", tensor, count_include_pad=bool(count_include_pad), **w.arguments())


def _avg_pool_of_padded(builder: Builder, tensor: Tensor, w: _Window) -> Tensor:
    """Pool averages with ceil_mode and asymmetric padding that counts: pad explicitly first."""
    extents = tensor.height, tensor.width
    for extent, count, kernel, stride, pads in zip(extents, w.extents, w.kernel, w.stride, w.padding, strict=True):
        if pads[1] + stride - 1 >= kernel:  # a window may start in the padding after the source, at some extents
            builder.fix_unless_constant(tensor)
            if pooled_extent(extent + sum(pads), kernel, stride, (0, 0), 1, True) != count:
                raise UnmappedError("average pooling with a window that begins in the padding behind the source")
    height, width = (extent + sum(pads) for extent, pads in zip(extents, w.padding, strict=True))
    tensor = builder.add("Pad", tensor, padding=w.padding, height=height, width=width)
    arguments = w.arguments() | {"padding": 0, "count_include_pad": False}
    return builder.add("PoolingAverage", tensor, **arguments)


def lp_pool2d(
    builder: Builder,
    tensor: Tensor,
    norm_type: float,
    kernel_size: Pair,
    stride: Pair | None = None,
    ceil_mode: bool = False,
    padding: Padding = 0,
    absolute: bool = False,
) -> Tensor:
    """Return the norm of each window, sum(x ** norm_type) ** (1 / norm_type).

    `absolute`: return the norm of |x|, as in ONNX. For windows that ceil_mode adds, PyTorch also differs from ONNX: it
    scales the mean of the pixels inside of the source.
    """
    what = "norm pooling"
    w = _Window(tensor, what, kernel_size, stride, padding, 1, ceil_mode)
    p = float(norm_type)
    if not 0 < p < float("inf"):
        raise UnmappedError(f"norm pooling with exponent {norm_type}")
    if p == 2 and (absolute or not w.ceil_mode):
        return builder.add("PoolingL2Norm", tensor, **w.arguments())
    if not absolute and p % 2 and p != 1:
        raise UnmappedError(f"norm pooling with exponent {norm_type} of values that may be negative")
    if absolute:
        tensor = arithmetic.abs(builder, tensor)
    powers = arithmetic.pow(builder, tensor, p)
    of_all = {} if absolute or not w.ceil_mode else {"count_include_pad": True}
    means = builder.add("PoolingAverage", powers, **of_all, **w.arguments())
    sums = arithmetic.multiply(builder, means, float(w.kernel[0] * w.kernel[1]))
    return arithmetic.pow(builder, sums, 1 / p)


def _areas(extent: int, count: int) -> list[tuple[int, int]]:
    """Return start and end of each of `count` areas of an axis, as in PyTorch."""
    return [(i * extent // count, -((-(i + 1) * extent) // count)) for i in range(count)]


def _regular(areas: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return (kernel, stride) if the areas are windows of a pooling without padding, otherwise None."""
    kernel = areas[0][1] - areas[0][0]
    stride = areas[1][0] - areas[0][0] if len(areas) > 1 else kernel
    fits = all(area == (i * stride, i * stride + kernel) for i, area in enumerate(areas))
    return (kernel, stride) if fits and stride else None


def _adaptive(builder: Builder, tensor: Tensor, output_size: Any, kind: str) -> Tensor:
    what = f"adaptive {kind} pooling"
    axes = window_axes(tensor, what)
    asked: list[Any] = (
        [output_size] * len(axes) if output_size is None or isinstance(output_size, int) else list(output_size)
    )
    if len(asked) != len(axes):
        raise UnmappedError(f"{what} to {tuple(asked)} for {len(axes)} axes")
    sizes: dict[str, int | None] = {"H": None, "W": None}
    sizes.update(zip(axes, asked, strict=True))
    if any(size is not None and size < 1 for size in sizes.values()):
        raise UnmappedError(f"{what} to {tuple(asked)} pixels")
    for axis in "WH":
        if axis in axes and sizes[axis] == 1:
            tensor = reduction.reduce_axis(builder, tensor, axis, kind)
            sizes[axis] = None
    counts = sizes["H"] or tensor.height, sizes["W"] or tensor.width
    if sizes["H"] is None and sizes["W"] is None:
        return tensor
    if _may_be_free(builder, tensor, sizes, counts):
        return builder.adaptive_pool(tensor, counts, "max" if kind == "Max" else "average")
    builder.fix_unless_constant(tensor)
    is_sized = all(size or tensor.extent(axis) == 1 for axis, size in sizes.items())
    may_be_free = is_sized and not builder.in_training and _may_have_any_extents(tensor, counts)
    return replace(_areas_of_extents(builder, tensor, counts, kind), is_sized=may_be_free)


def _areas_of_extents(builder: Builder, tensor: Tensor, counts: tuple[int, int], kind: str) -> Tensor:
    """Pool areas for the extents that the tensor has."""
    if counts == (tensor.height, tensor.width):
        return tensor
    if max(counts) > EXTENT_LIMIT:
        raise UnmappedError(f"adaptive {kind} pooling to {counts} pixels, more than the maximum ({EXTENT_LIMIT})")
    rows, columns = _areas(tensor.height, counts[0]), _areas(tensor.width, counts[1])
    by_row, by_column = _regular(rows), _regular(columns)
    if by_row and by_column:
        name = "PoolingMax" if kind == "Max" else "PoolingAverage"
        return builder.add(
            name,
            tensor,
            kernel_size=(by_row[0], by_column[0]),
            stride=(by_row[1], by_column[1]),
            height=counts[0],
            width=counts[1],
        )
    if counts[0] % tensor.height == 0 and counts[1] % tensor.width == 0:
        factors = counts[0] // tensor.height, counts[1] // tensor.width
        return builder.add("UpsamplingNearest", tensor, scale_factor=factors, height=counts[0], width=counts[1])
    if counts[0] * counts[1] > CELL_LIMIT or counts[0] * counts[1] * tensor.channels > CHANNEL_LIMIT:
        mean = kind == "Mean"
        tables = {"H": sampling.Table.of_areas(rows, mean=mean), "W": sampling.Table.of_areas(columns, mean=mean)}
        return sampling.windows(builder, tensor, tables)
    return _by_cells(builder, tensor, kind, rows, columns)


def _may_be_free(builder: Builder, tensor: Tensor, sizes: dict[str, int | None], counts: tuple[int, int]) -> bool:
    """Return whether the network pools these areas at any extents of the source, which differ."""
    if builder.in_training or all(builder.is_constant(tensor, axis) for axis in "HW"):
        return False
    if any(size is None and not builder.is_constant(tensor, axis) for axis, size in sizes.items()):
        return False
    return _may_have_any_extents(tensor, counts)


def _may_have_any_extents(tensor: Tensor, counts: tuple[int, int]) -> bool:
    """Return whether Graph.adaptive_pool takes sources of any height and width."""
    slices = -(-tensor.channels // 4)
    return max(counts) <= EXTENT_LIMIT and max(counts) * 4 * slices <= CHANNEL_LIMIT


def _by_cells(
    builder: Builder, tensor: Tensor, kind: str, rows: list[tuple[int, int]], columns: list[tuple[int, int]]
) -> Tensor:
    """Pool areas of different extents: reduce each, concatenate them as channels, and reshape channels to pixels."""
    images = 1 << 30  # the whole batch
    cells = []
    for top, bottom in rows:
        part = ((top, 0, 0), (bottom - top, tensor.width, images))
        row = builder.add(f"ReduceColumn{kind}", tensor, clip_rect_source=part, height=1)
        for left, right in columns:
            part = ((0, left, 0), (1, right - left, images))
            cells.append(builder.add(f"ReduceRow{kind}", row, clip_rect_source=part, width=1).value)
    value = builder.graph.concatenate(
        *cells, name=builder.graph.unique(builder._name or "concatenate"), origin=builder.origin
    )
    both = replace(tensor, value=value, height=1, width=1, channels=len(cells) * tensor.channels)
    shape = (len(rows), len(columns), tensor.channels)
    return builder.add("Reshape", both, shape=shape, height=shape[0], width=shape[1], channels=shape[2])


def adaptive_avg_pool2d(builder: Builder, tensor: Tensor, output_size: Any) -> Tensor:
    """Return the means of `output_size` areas; None: one per pixel. A single area along an axis allows any extent."""
    return _adaptive(builder, tensor, output_size, "Mean")


def adaptive_max_pool2d(builder: Builder, tensor: Tensor, output_size: Any) -> Tensor:
    """Return the max of `output_size` areas; None: one per pixel. A single area along an axis allows any extent."""
    return _adaptive(builder, tensor, output_size, "Max")


def global_avg_pool2d(builder: Builder, tensor: Tensor) -> Tensor:
    """Return the mean of each channel; height and width become 1."""
    return _adaptive(builder, tensor, 1, "Mean")


def global_max_pool2d(builder: Builder, tensor: Tensor) -> Tensor:
    """Return the max of each channel; height and width become 1."""
    return _adaptive(builder, tensor, 1, "Max")
