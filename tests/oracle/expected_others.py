# SPDX-License-Identifier: Apache-2.0
"""From a case row to its result and the bound of its error: kernels with neither weights nor windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases import Case

from . import MPSCNNDropout as dropouts  # noqa: N813
from . import MPSCNNSoftMax as softmaxes  # noqa: N813
from . import MPSCNNUpsampling as upsampling  # noqa: N813
from . import MPSNNReduce as reductions  # noqa: N813
from . import MPSNNReshape as reshaping  # noqa: N813
from . import MPSNNResize as resizing  # noqa: N813
from . import MPSNNSlice as slices  # noqa: N813
from . import compare
from .MPSCNNConvolution import tap

Array = NDArray[np.float64]
Result = tuple[Array, Array]


def _place(case: Case, natural: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the size of the written part, and the source pixel of its first pixel."""
    clip, offset = case.params.get("clip_rect"), case.params.get("offset")
    height, width = clip[1][:2] if clip else natural
    y, x = offset[:2] if offset else (0, 0)
    return (height, width), (y, x)


def _moved(case: Case, x: Array) -> Array:
    """Return the source pixels under the pixels of the result."""
    (height, width), (y, left) = _place(case, (x.shape[1], x.shape[2]))
    return tap(x, y + np.arange(height), left + np.arange(width), case.params.get("edge_mode", "zero"))


def _exact(value: Array) -> Result:
    return value, np.zeros_like(value)


def softmax(case: Case, x: Array) -> Result:
    """exp(x - max) has the rounding of its argument; the sum has that of sums; a logarithm makes the error absolute."""
    x = _moved(case, x)
    of_sum = (4 + 4 * np.sqrt(x.shape[3])) * compare.U
    if case.kernel == "LogSoftMax":
        value = softmaxes.log_softmax(x)
        return value, of_sum + 2 * compare.U * np.abs(np.where(np.isfinite(value), value, 0.0))
    value = softmaxes.softmax(x)
    with np.errstate(all="ignore"):
        far = x.max(axis=-1, keepdims=True) - x
        bound = value * (of_sum + compare.U * far)
    return value, np.where(np.isfinite(bound), bound, 0.0)


def upsample(case: Case, x: Array) -> Result:
    """Upsampling, and resizing, which has a size instead of a factor."""
    source = (x.shape[1], x.shape[2])
    if "size" in case.params:
        full = case.pair("size")
    else:
        factor = case.pair("scale_factor")
        full = (source[0] * factor[0], source[1] * factor[1])
    size, start = _place(case, full)
    align = bool(case.params.get("align_corners", False))
    rows, columns = (upsampling.positions(size[i], source[i], full[i], start[i], align_corners=align) for i in (0, 1))
    if case.kernel == "UpsamplingNearest":
        return _exact(upsampling.nearest(x, rows, columns, case.params.get("edge_mode", "zero")))
    edge = case.params.get("edge_mode", "zero" if case.kernel == "UpsamplingBilinear" else "clamp")
    return upsampling.bilinear(x, rows, columns, edge), 8 * compare.U * upsampling.greatest(x, rows, columns, edge)


def crop(case: Case, x: Array) -> Result:
    """Crop and resize; of a clip rectangle's size, the first rows, columns and images of the result."""
    regions = np.array(case.params["regions"], np.float32).astype(np.float64)
    clip = case.params.get("clip_rect")
    height, width, images = clip[1] if clip else (None, None, None)

    def cropped(sample: Callable[..., Array]) -> Array:
        return resizing.crop_and_resize(x, case.pair("size"), regions, sample)[:images, :height, :width]

    return cropped(upsampling.bilinear), 8 * compare.U * cropped(upsampling.greatest)


def reduction(case: Case, x: Array) -> Result:
    """Sums and means have the bound of sums; other results are values of the source, or indices."""
    axis, function = reductions.KERNELS[case.kernel]
    x = reductions.part(x, case.params.get("clip_rect_source"))
    clip = case.params.get("clip_rect")
    height, width, images = clip[1] if clip else (None, None, None)
    value = reductions.reduce(axis, function, x)[:images, :height, :width]
    if function not in ("Sum", "Mean"):
        return _exact(value)
    weight = float(np.float32(case.params.get("weight", 1.0)))
    magnitude = abs(weight) * reductions.reduce(axis, function, np.abs(x))[:images, :height, :width]
    terms = x.shape[reductions.AXES[axis]]
    magnitude = np.where(np.isfinite(magnitude), magnitude, 0.0)
    return weight * value, compare.sum_bound(magnitude, terms, case.tolerance.sums)


def weighted(case: Case, x: Array, weights: Array) -> Result:
    """Both sources have their own rectangles; `x` and `weights` have the channels that are read."""
    x = reductions.part(x, case.params.get("primary_source_clip_rect"))
    weights = reductions.part(weights, case.params.get("secondary_source_clip_rect"))
    clip = case.params.get("clip_rect")
    height, width, images = clip[1] if clip else (None, None, None)

    def summed(x: Array, weights: Array) -> Array:
        if case.kernel.endswith("Mean"):
            return reductions.weighted_mean(x, weights)[:images, :height, :width]
        by_nonzero = bool(case.params.get("by_nonzero_weights", False))
        return reductions.weighted_sum(x, weights, by_nonzero_weights=by_nonzero)[:images, :height, :width]

    magnitude = summed(np.abs(x), np.abs(weights))
    return summed(x, weights), compare.sum_bound(magnitude, x.shape[3], case.tolerance.sums)


def cut(case: Case, x: Array) -> Result:
    natural = case.pair("size") if case.params.get("size") is not None else (x.shape[1], x.shape[2])
    size, offset = _place(case, natural)
    return _exact(slices.cut(x, size, offset, case.params.get("edge_mode", "zero")))


def reshape(case: Case, x: Array) -> Result:
    return _exact(reshaping.reshape(x, case.params["shape"]))


def sides(padding: Any) -> tuple[int, int, int, int]:
    """Return padding= as top, bottom, left, right."""
    if isinstance(padding, int):
        return padding, padding, padding, padding
    if isinstance(padding[0], int):
        return padding[0], padding[0], padding[1], padding[1]
    return (*padding[0], *padding[1])


def pad(case: Case, x: Array) -> Result:
    top, bottom, left, right = sides(case.params.get("padding", 0))
    before, after = case.params.get("channels_before", 0), case.params.get("channels_after", 0)
    natural = (x.shape[1] + top + bottom, x.shape[2] + left + right)
    (height, width), start = _place(case, natural)
    if "offset" not in case.params:
        start = (-top, -left)
    fill = np.float32(case.params.get("channel_values", case.params.get("value", 0.0))).astype(np.float64)
    size = (height, width, before + x.shape[3] + after)
    edge = case.params.get("edge_mode", "constant")
    return _exact(reshaping.pad(x, (*start, -before), size, edge, fill))


def dropout(case: Case, x: Array) -> Result:
    pixels = case.pair("mask_stride")
    value = dropouts.dropout(
        _moved(case, x),
        keep=case.params.get("keep_probability", 0.5),
        seed=case.params.get("seed", 0),
        stride=(*pixels, case.params.get("mask_stride_in_feature_channels", 1)),
    )
    return value, 2 * compare.U * np.abs(value)


ONE_SOURCE: dict[str, Callable[[Case, Array], Result]] = {
    "CropAndResizeBilinear": crop,
    "Dropout": dropout,
    "LogSoftMax": softmax,
    "Pad": pad,
    "Reshape": reshape,
    "ResizeBilinear": upsample,
    "Slice": cut,
    "SoftMax": softmax,
    "UpsamplingBilinear": upsample,
    "UpsamplingNearest": upsample,
    **dict.fromkeys(reductions.KERNELS, reduction),
}

TWO_SOURCES: dict[str, Callable[[Case, Array, Array], Result]] = {
    "ReduceFeatureChannelsAndWeightsMean": weighted,
    "ReduceFeatureChannelsAndWeightsSum": weighted,
}

OTHER_IMAGES = {"CropAndResizeBilinear", *reductions.KERNELS}
"""Kernels whose result may have other images than their source: a clip rectangle counts images of the result."""
