# SPDX-License-Identifier: Apache-2.0
"""Pooling."""

from __future__ import annotations

from typing import Any

from ..builder import Builder, Tensor, UnmappedError
from ..ops import general, parts, pooling, reduction, unpooling, volumes
from ..torch_arguments import Arguments, Missing, Places, Sized, same_extent
from .registry import operator


def _window(a: Arguments, name: str, one: bool) -> Any:
    return a.one(name) if one else a.pair(name)


def _max_pool(b: Builder, a: Arguments, one: bool) -> Tensor:
    kernel_size, padding, dilation = (_window(a, name, one) for name in ("kernel_size", "padding", "dilation"))
    stride = _window(a, "stride", one) if a["stride"] else kernel_size

    def pool(x: Tensor) -> Tensor:
        return pooling.max_pool2d(b, x, kernel_size, stride, padding, dilation, bool(a["ceil_mode"]))

    if a.source.rank == 5 and not one:
        return parts.pool(b, a.source, pool, (kernel_size[0] - 1) * dilation[0] + 1, stride[0], padding[0])
    return pool(_pooled(b, a, one))


def _pooled(b: Builder, a: Arguments, one: bool) -> Tensor:
    x = general.with_channels_second(b, a.source)
    if x.rank != (3 if one else 4):
        raise UnmappedError(f"pooling of a tensor with {x.rank} axes, without a batch")
    return x


@operator("max_pool2d")
def _max_pool2d(b: Builder, a: Arguments) -> Tensor:
    return _max_pool(b, a, False)


@operator("max_pool1d")
def _max_pool1d(b: Builder, a: Arguments) -> Tensor:
    return _max_pool(b, a, True)


@operator("max_pool2d_with_indices")
def _max_pool2d_with_indices(b: Builder, a: Arguments) -> list[Any]:
    y = _max_pool(b, a, False)
    stride = a.pair("stride") if a["stride"] else a.pair("kernel_size")
    windows = unpooling.Windows(a.pair("kernel_size"), stride, a.pair("padding"), a.pair("dilation"))
    return [y, Places("indices of a pooling", _pooled(b, a, False), a.shape_of("self")[-2:], y, windows)]


@operator("max_unpool2d")
def _max_unpool2d(b: Builder, a: Arguments) -> Tensor:
    places, x = a["indices"], general.with_channels_second(b, a.source)
    if not isinstance(places, Places):
        raise UnmappedError("indices that are no result of max_pool2d")
    if x.shape != places.result.shape:
        raise UnmappedError(f"{x.shape}, indices of a pooling whose result is {places.result.shape}")
    wanted, pooled = a["output_size"], a.shape_of("self")[-2:]
    min_extents = places.windows.source_extents(tuple(getattr(extent, "expression", extent) for extent in pooled))
    is_like = all(map(same_extent, wanted, places.extents))
    is_min = all(map(same_extent, wanted, min_extents))
    extents = (int(wanted[0]), int(wanted[1])) if is_like or is_min else a.pair("output_size")
    return unpooling.max_unpool2d(
        b, x, places.source, places.windows, extents, is_free=is_like or is_min, is_min=not is_like
    )


@operator("max_pool1d_with_indices")
def _max_pool1d_with_indices(b: Builder, a: Arguments) -> list[Any]:
    return [_max_pool(b, a, True), Missing("indices of a pooling")]


def _avg_pool(b: Builder, a: Arguments, one: bool) -> Tensor:
    x = a.source if a.source.rank == 5 and not one else _pooled(b, a, one)
    window = a["kernel_size"]
    extents = a.shape_of("self")[-len(window) :]
    if all(isinstance(size, Sized) for size in window) and all(map(same_extent, window, extents)):
        a.refuse(padding=[0] * len(window))
        # A window as large as the source is a mean over the whole source, at any size.
        return reduction.mean(b, x, tuple(range(-len(window), 0)), True)
    kernel_size, padding = _window(a, "kernel_size", one), _window(a, "padding", one)
    stride = _window(a, "stride", one) if a["stride"] else kernel_size
    divisor = a.optional_integer("divisor_override") if "divisor_override" in a else None

    def pool(x: Tensor) -> Tensor:
        options = bool(a["ceil_mode"]), bool(a["count_include_pad"]), divisor
        return pooling.avg_pool2d(b, x, kernel_size, stride, padding, *options)

    if x.rank == 5:
        return parts.pool(b, x, pool, kernel_size[0], stride[0], padding[0])
    return pool(x)


@operator("avg_pool2d")
def _avg_pool2d(b: Builder, a: Arguments) -> Tensor:
    return _avg_pool(b, a, False)


@operator("avg_pool1d")
def _avg_pool1d(b: Builder, a: Arguments) -> Tensor:
    return _avg_pool(b, a, True)


@operator("adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def _adaptive_avg_pool2d(b: Builder, a: Arguments) -> Tensor:
    return pooling.adaptive_avg_pool2d(b, _pooled(b, a, False), a.pair("output_size"))


@operator("adaptive_avg_pool1d")
def _adaptive_avg_pool1d(b: Builder, a: Arguments) -> Tensor:
    return pooling.adaptive_avg_pool2d(b, _pooled(b, a, True), a.one("output_size"))


@operator("adaptive_max_pool2d")
def _adaptive_max_pool2d(b: Builder, a: Arguments) -> list[Any]:
    return [
        pooling.adaptive_max_pool2d(b, _pooled(b, a, False), a.pair("output_size")),
        Missing("indices of a pooling"),
    ]


@operator("adaptive_max_pool1d")
def _adaptive_max_pool1d(b: Builder, a: Arguments) -> list[Any]:
    x = _pooled(b, a, True)
    return [pooling.adaptive_max_pool2d(b, x, a.one("output_size")), Missing("indices of a pooling")]


@operator("max_pool3d")
def _max_pool3d(b: Builder, a: Arguments) -> Tensor:
    kernel_size = a.triple("kernel_size")
    stride = a.triple("stride") if a["stride"] else kernel_size
    window = kernel_size, stride, a.triple("padding"), a.triple("dilation")
    return volumes.max_pool3d(b, a.source, *window, bool(a["ceil_mode"]))


@operator("max_pool3d_with_indices")
def _max_pool3d_with_indices(b: Builder, a: Arguments) -> list[Any]:
    return [_max_pool3d(b, a), Missing("indices of a pooling")]


@operator("avg_pool3d")
def _avg_pool3d(b: Builder, a: Arguments) -> Tensor:
    kernel_size = a.triple("kernel_size")
    stride = a.triple("stride") if a["stride"] else kernel_size
    options = bool(a["ceil_mode"]), bool(a["count_include_pad"]), a.optional_integer("divisor_override")
    return volumes.avg_pool3d(b, a.source, kernel_size, stride, a.triple("padding"), *options)


@operator("adaptive_avg_pool3d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool3d(b: Builder, a: Arguments) -> Tensor:
    return volumes.adaptive_pool3d(b, a.source, a.triple("output_size"), False)


@operator("adaptive_max_pool3d")
def _adaptive_max_pool3d(b: Builder, a: Arguments) -> list[Any]:
    return [volumes.adaptive_pool3d(b, a.source, a.triple("output_size"), True), Missing("indices of a pooling")]
