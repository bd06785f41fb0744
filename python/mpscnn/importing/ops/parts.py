# SPDX-License-Identifier: Apache-2.0
"""Parts of an image, such as the windows of an attention, as images of their own: (parts, C, H, W) behind the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from ...graph import CHANNEL_LIMIT
from ..builder import Builder, Tensor, UnmappedError
from . import convolution, general, resize, shape
from .convolution import Padding, Pair


def pool(
    builder: Builder, x: Tensor, function: Callable[[Tensor], Tensor], reach: int, stride: int, padding: int
) -> Tensor:
    """Return a pooling of each part. The numbers are those along the height; `reach`: the extent of its windows.

    The parts are channels of one image. If these are too many, the parts are stacked along the height, provided that
    no window of the pooling is in two of them.
    """
    parts, channels, height, width = x.shape
    if parts * channels <= CHANNEL_LIMIT:
        images = shape.reshape(builder, x, (parts * channels, height, width))
        y = function(general.with_channels_second(builder, images))
        return shape.reshape(builder, y, (parts, channels, *y.shape[1:]))
    if padding or height % stride or reach > stride:
        raise UnmappedError(f"pooling of {parts} parts with {channels} channels, of windows that overlap")
    return _apart(builder, function(_stacked(builder, _with_channels_last(builder, x))), parts)


def conv2d(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
) -> Tensor:
    """Return a convolution of each part. The parts are stacked along the height, with zeros in between."""
    (top, bottom), columns = convolution.pads_of(padding, weight, stride, dilation)
    parts, _, height, _ = x.shape
    reach = (weight.shape[2] - 1) * dilation[0] + 1
    rows = (height + top + bottom - reach) // stride[0] + 1
    period = -(-(height + top + bottom) // stride[0]) * stride[0]
    y = _with_channels_last(builder, x)
    y = _stacked(builder, resize.pad(builder, y, (0, 0, 0, 0, top, period - height - top)))
    behind = max(reach - stride[0], 0)  # so that there are as many rows for each part
    y = convolution.conv2d(builder, y, weight, bias, stride, ((0, behind), columns), dilation, groups)
    y = _apart(builder, y, parts)
    return y if y.shape[2] == rows else shape.narrow(builder, y, 3, 0, rows)


def _with_channels_last(builder: Builder, x: Tensor) -> Tensor:
    return shape.permute(builder, x, [0, 1, 3, 4, 2])


def _stacked(builder: Builder, x: Tensor) -> Tensor:
    """Return parts (parts, H, W, C) as one image (C, parts * H, W)."""
    parts, height, width, channels = x.shape
    general.check_image((parts * height, width, channels))
    rows = shape.reshape(builder, x, (parts * height, width, channels))
    try:
        image = shape.arrange(builder, rows, "NHWC")
    except UnmappedError:  # in another order
        image = replace(general.store(builder, rows, (parts * height, width, channels)), axes="NHWC", flat=None)
    return shape.permute(builder, image, [0, 3, 1, 2])


def _apart(builder: Builder, image: Tensor, parts: int) -> Tensor:
    """Return an image of parts that are stacked along its height as parts (parts, C, H, W)."""
    channels, rows, width = image.shape
    y = shape.permute(builder, image, [0, 2, 3, 1])
    y = shape.reshape(builder, y, (parts, rows // parts, width, channels))
    return shape.permute(builder, y, [0, 1, 4, 2, 3])
