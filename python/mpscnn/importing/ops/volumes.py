# SPDX-License-Identifier: Apache-2.0
"""Tensors of channels, depth, height and width behind the batch: convolutions, pooling, normalization.

MPS has images of two dimensions. Here their channels are channels and depths, (C * D, H, W), so windows along the depth
are 1 x 1 convolutions, with zeros for all depths outside of a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from . import convolution, elementwise, general, normalization, pooling, shape

Triple: TypeAlias = tuple[int, int, int]


def _image(builder: Builder, x: Tensor, what: str) -> tuple[Tensor, int, int]:
    """Return a tensor (C, D, H, W) as an image of C * D channels, with C and D."""
    if x.rank != 5:
        raise UnmappedError(f"{what} of a tensor with {x.rank} axes, {x.shape} behind the batch")
    channels, depth, height, width = x.shape
    general.check_image((height, width, channels * depth))
    return shape.reshape(builder, x, (channels * depth, height, width)), channels, depth


def _volume(builder: Builder, image: Tensor, channels: int, depth: int) -> Tensor:
    return shape.reshape(builder, image, (channels, depth, *image.shape[1:]))


def conv3d(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None = None,
    stride: Triple = (1, 1, 1),
    padding: Triple | str = (0, 0, 0),
    dilation: Triple = (1, 1, 1),
    groups: int = 1,
) -> Tensor:
    """Same as torch.nn.functional.conv3d: `weight` is (O, I / groups, kD, kH, kW)."""
    image, _, depth = _image(builder, x, "a convolution along 3 axes")
    _check(builder, weight, bias, len(weight), stride, dilation)
    before, behind = _pads(padding, stride, dilation, weight.shape[2])
    planes = (depth + before + behind - dilation[0] * (weight.shape[2] - 1) - 1) // stride[0] + 1
    _check_depth(builder, depth, planes)
    y = convolution.conv2d(
        builder,
        image,
        _spread(weight, depth, planes, stride[0], before, dilation[0]),
        None if bias is None else bias.repeat(planes),
        stride[1:],
        padding if isinstance(padding, str) else padding[1:],
        dilation[1:],
        groups,
    )
    return _volume(builder, y, len(weight), planes)


def conv_transpose3d(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None = None,
    stride: Triple = (1, 1, 1),
    padding: Triple = (0, 0, 0),
    output_padding: Triple = (0, 0, 0),
    groups: int = 1,
    dilation: Triple = (1, 1, 1),
) -> Tensor:
    """Same as torch.nn.functional.conv_transpose3d: `weight` is (I, O / groups, kD, kH, kW)."""
    image, _, depth = _image(builder, x, "a transposed convolution along 3 axes")
    outputs = weight.shape[1] * groups
    _check(builder, weight, bias, outputs, stride, dilation)
    if output_padding[0] >= stride[0]:
        raise UnmappedError(f"output_padding {output_padding} is not less than the stride {stride}")
    planes = (depth - 1) * stride[0] - 2 * padding[0] + dilation[0] * (weight.shape[2] - 1) + output_padding[0] + 1
    _check_depth(builder, depth, planes)
    y = convolution.conv_transpose2d(
        builder,
        image,
        _spread(weight, planes, depth, stride[0], padding[0], dilation[0]),  # a window of the result for each depth
        None if bias is None else bias.repeat(planes),
        stride[1:],
        padding[1:],
        output_padding[1:],
        groups,
        dilation[1:],
    )
    return _volume(builder, y, outputs, planes)


def _check(
    builder: Builder, weight: NDArray[Any], bias: NDArray[Any] | None, outputs: int, stride: Triple, dilation: Triple
) -> None:
    if weight.ndim != 5:
        raise InvalidModelError(f"the weights have {weight.ndim} axes {weight.shape}, not 5.")
    if bias is not None and bias.shape != (outputs,):
        raise InvalidModelError(f"the bias has shape {bias.shape}, not ({outputs},).")
    for name, values in (("stride", stride), ("dilation", dilation)):
        if min(values) < 1:
            raise InvalidModelError(f"{builder.origin}: {name} {values} is less than the minimum (1).")


def _pads(padding: Triple | str, stride: Triple, dilation: Triple, taps: int) -> tuple[int, int]:
    """Return the padding before and behind the depths."""
    if padding == "valid":
        return 0, 0
    if padding == "same":
        if stride[0] != 1:
            raise UnmappedError(f'padding "same" with a stride of {stride}')
        reach = dilation[0] * (taps - 1)
        return reach // 2, reach - reach // 2
    if isinstance(padding, str):
        raise UnmappedError(f'padding "{padding}"')
    return padding[0], padding[0]


def _check_depth(builder: Builder, depth: int, planes: int) -> None:
    if planes < 1:
        raise InvalidModelError(f"{builder.origin}: a source of depth {depth} leaves {planes} of the result.")


def _spread(weight: NDArray[Any], depth: int, windows: int, stride: int, before: int, dilation: int) -> NDArray[Any]:
    """Return weights (O * windows, I * depth, kH, kW): for each window, its taps at their depths, zeros elsewhere."""
    outputs, inputs, taps, height, width = weight.shape
    size = weight.itemsize * outputs * windows * inputs * depth * height * width
    if size > convolution.MAXIMUM_MERGED_BYTES:
        raise UnmappedError(
            f"a convolution along 3 axes, from a depth of {depth} to {windows}, whose weights with zeros for all other"
            f" depths have {size} bytes, more than the maximum ({convolution.MAXIMUM_MERGED_BYTES})"
        )
    spread = np.zeros((outputs, windows, inputs, depth, height, width), weight.dtype)
    for window in range(windows):
        for tap in range(taps):
            place = window * stride - before + tap * dilation
            if 0 <= place < depth:
                spread[:, window, :, place] = weight[:, :, tap]
    return spread.reshape(outputs * windows, inputs * depth, height, width)


def batch_norm(builder: Builder, x: Tensor, *statistics: NDArray[Any] | None, **options: Any) -> Tensor:
    """Same as `normalization.batch_norm`, with statistics of each channel for all depths."""
    image, channels, depth = _image(builder, x, "a normalization")
    several = (None if values is None else values.repeat(depth) for values in statistics)
    return _volume(builder, normalization.batch_norm(builder, image, *several, **options), channels, depth)  # type: ignore[arg-type]


def _of_depths(builder: Builder, image: Tensor, matrix: NDArray[Any]) -> Tensor:
    """Return the product of a matrix (D', D) and the depths of each channel, as an image of C * D' channels."""
    planes, depth = matrix.shape
    if planes == depth and (matrix == np.eye(depth)).all():
        return image
    channels = image.shape[0] // depth
    weight = np.tile(matrix.astype(np.float32), (channels, 1))[:, :, None, None]
    return convolution.conv2d(builder, image, weight, groups=channels)


def _windows(depth: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> list[list[int]]:
    """Return the depths of each window; those of the padding are not 0 to `depth` - 1."""
    count = pooling.pooled_extent(depth, kernel, stride, (padding, padding), dilation, ceil_mode)
    return [[window * stride - padding + tap * dilation for tap in range(kernel)] for window in range(count)]


def max_pool3d(
    builder: Builder,
    x: Tensor,
    kernel_size: Triple,
    stride: Triple,
    padding: Triple,
    dilation: Triple,
    ceil_mode: bool,
) -> Tensor:
    """Return the max of each window, ignoring padding: along height and width, and then along the depth."""
    image, channels, depth = _image(builder, x, "pooling")
    if (kernel_size[1:], stride[1:]) != ((1, 1), (1, 1)):
        image = pooling.max_pool2d(builder, image, kernel_size[1:], stride[1:], padding[1:], dilation[1:], ceil_mode)
    windows = _windows(depth, kernel_size[0], stride[0], padding[0], dilation[0], ceil_mode)
    inside = [[place for place in places if 0 <= place < depth] for places in windows]
    return _volume(builder, _max_of_depths(builder, image, inside, depth), channels, len(windows))


def _max_of_depths(builder: Builder, image: Tensor, windows: Sequence[Sequence[int]], depth: int) -> Tensor:
    found: Tensor | None = None
    for tap in range(max(map(len, windows))):
        places = [places[min(tap, len(places) - 1)] for places in windows]
        one = _of_depths(builder, image, np.eye(depth)[places])
        found = one if found is None else elementwise.maximum(builder, found, one)
    assert found is not None
    return found


def avg_pool3d(
    builder: Builder,
    x: Tensor,
    kernel_size: Triple,
    stride: Triple,
    padding: Triple,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """Return the mean of each window: along height and width, and then along the depth."""
    image, channels, depth = _image(builder, x, "pooling")
    if divisor is not None and ceil_mode:
        raise UnmappedError("average pooling along 3 axes with ceil_mode and a divisor")
    if (kernel_size[1:], stride[1:]) != ((1, 1), (1, 1)):
        image = pooling.avg_pool2d(
            builder,
            image,
            kernel_size[1:],
            stride[1:],
            padding[1:],
            ceil_mode,
            count_include_pad or divisor is not None,
        )
    windows = _windows(depth, kernel_size[0], stride[0], padding[0], 1, ceil_mode)
    matrix = np.zeros((len(windows), depth))
    for row, places in zip(matrix, windows, strict=True):
        counted = [place for place in places if -padding[0] <= place < depth + padding[0]]  # not those of ceil_mode
        inside = [place for place in places if 0 <= place < depth]
        row[inside] = 1 / len(counted if count_include_pad or divisor is not None else inside)
    matrix *= 1 if divisor is None else math.prod(kernel_size) / divisor
    return _volume(builder, _of_depths(builder, image, matrix), channels, len(windows))


def adaptive_pool3d(builder: Builder, x: Tensor, output_size: Sequence[int | None], is_max: bool) -> Tensor:
    """Same as torch.nn.functional.adaptive_avg_pool3d or adaptive_max_pool3d."""
    image, channels, depth = _image(builder, x, "adaptive pooling")
    along: Callable[..., Tensor] = pooling.adaptive_max_pool2d if is_max else pooling.adaptive_avg_pool2d
    image = along(builder, image, tuple(output_size[1:]))
    planes = depth if output_size[0] is None else output_size[0]
    areas = [range(i * depth // planes, -(-(i + 1) * depth // planes)) for i in range(planes)]
    if is_max:
        return _volume(builder, _max_of_depths(builder, image, areas, depth), channels, planes)
    matrix = np.zeros((planes, depth))
    for row, area in zip(matrix, areas, strict=True):
        row[area] = 1 / len(area)
    return _volume(builder, _of_depths(builder, image, matrix), channels, planes)
