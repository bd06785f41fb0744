# SPDX-License-Identifier: Apache-2.0
"""Convolutions and linear layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ...graph import EXTENT_LIMIT
from ..builder import Builder, Tensor, UnmappedError
from . import general
from .shape import arrange

Pair: TypeAlias = tuple[int, int]
Padding: TypeAlias = "int | Pair | tuple[Pair, Pair] | str"

# MPS requires groups of a multiple of 4 channels, or of one channel each (depth-wise).
GROUP_MULTIPLE = 4
# Groups are merged to meet that, which adds zeros to the weights; larger merged weights are rejected.
MAXIMUM_MERGED_BYTES = 1 << 30


def conv2d(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None = None,
    stride: int | Pair = 1,
    padding: Padding = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Same as torch.nn.functional.conv2d: `weight` is (O, I / groups, kH, kW).

    `padding` may also be ((top, bottom), (left, right)); "same" needs a stride of 1 and puts the odd pixel last. MPS
    requires groups of a multiple of 4 channels. Others are merged: their weights form a block-diagonal matrix, whose
    zeros do not change the sums of finite values.
    """
    return _convolve(builder, x, weight, bias, _two(stride), _pads(padding, 2), _two(dilation), groups, "HW")


def conv1d(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None = None,
    stride: int = 1,
    padding: int | Pair | str = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Same as torch.nn.functional.conv1d: `weight` is (O, I / groups, kW). `padding` may also be (left, right)."""
    pads: Padding = padding
    if isinstance(padding, int):
        pads = ((0, 0), (padding, padding))
    elif not isinstance(padding, str):
        pads = ((0, 0), (int(padding[0]), int(padding[1])))
    _check_rank(weight, 3)
    return _convolve(builder, x, weight[:, :, None], bias, (1, stride), _pads(pads, 2), (1, dilation), groups, "W")


def conv_transpose2d(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | tuple[Pair, Pair] = 0,
    output_padding: int | Pair = 0,
    groups: int = 1,
    dilation: int | Pair = 1,
) -> Tensor:
    """Same as torch.nn.functional.conv_transpose2d: `weight` is (I, O / groups, kH, kW).

    `padding` may also be ((top, bottom), (left, right)). MPS has no dilation for it: zeros are inserted between taps.
    """
    return _spread(
        builder, x, weight, bias, _two(stride), _pads(padding, 2), _two(output_padding), groups, _two(dilation), "HW"
    )


def conv_transpose1d(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None = None,
    stride: int = 1,
    padding: int | Pair = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: int = 1,
) -> Tensor:
    """Same as torch.nn.functional.conv_transpose1d: `weight` is (I, O / groups, kW). `padding` may be (left, right)."""
    left, right = (padding, padding) if isinstance(padding, int) else padding
    _check_rank(weight, 3)
    pads = ((0, 0), (left, right))
    return _spread(
        builder, x, weight[:, :, None], bias, (1, stride), pads, (0, output_padding), groups, (1, dilation), "W"
    )


def linear(builder: Builder, x: Tensor, weight: NDArray[Any], bias: NDArray[Any] | None = None) -> Tensor:
    """Same as torch.nn.functional.linear: `weight` is (O, I), and the last axis of `x` is summed over.

    A flattened image is read in place, which fixes heights and widths.
    """
    _check_rank(weight, 2)
    outputs, inputs = weight.shape
    _check_bias(bias, outputs)
    if not x.shape or x.shape[-1] != inputs:
        raise InvalidModelError(
            f"{builder.origin}: the weights {weight.shape} take {inputs} values, the source has shape {x.shape}."
        )
    if x.flat is not None and len(x.flat) > 1:
        try:
            if len(x.flat) > 3:
                raise UnmappedError(f"a linear layer on a tensor of shape {x.flat}")
            x = arrange(builder, x, "N" + "HWC"[-len(x.flat) :])
        except UnmappedError:
            y = replace(general.store(builder, x), axes="NHWC", flat=None)
            return general.reshape(linear(builder, y, weight, bias), (*x.shape[:-1], outputs))
    if x.flat is not None or x.axes == "NC":
        return _fully_connected(builder, x, weight, bias)
    last = x.axes[-1]
    if last == "C":
        return builder.add("Convolution", x, channels=outputs, weight=weight[:, :, None, None], bias=bias)
    if x.channels > 1:
        y = replace(general.store(builder, x), axes="NHWC", flat=None)
        return general.reshape(linear(builder, y, weight, bias), (*x.shape[:-1], outputs))
    builder.fix_unless_constant(x, last)
    filters = weight[:, None, :, None] if last == "H" else weight[:, None, None, :]
    extent: dict[str, int] = {"height" if last == "H" else "width": 1}
    y = builder.add("Convolution", x, channels=outputs, weight=filters, bias=bias, **extent)
    return replace(y, axes=x.axes.replace("C", last)[:-1] + "C")


def _fully_connected(builder: Builder, x: Tensor, weight: NDArray[Any], bias: NDArray[Any] | None) -> Tensor:
    """Add a linear layer over all values of each image, in the order of `x.axes`."""
    builder.depend(x)
    arguments: dict[str, Any] = {"weight": weight, "bias": bias}
    order = [letter for letter in x.axes[1:] if x.extent(letter) > 1]
    if order not in ([], ["C"]):
        if order == [letter for letter in "CHW" if letter in order]:
            arguments["feature_map"] = (x.channels, x.height, x.width)
        else:
            extents = [x.extent(letter) for letter in x.axes[1:]]
            missing = [letter for letter in "CHW" if letter not in x.axes]
            image = weight.reshape(len(weight), *extents, *(1 for _ in missing))
            letters = [*x.axes[1:], *missing]
            arguments["weight"] = image.transpose(0, *(1 + letters.index(letter) for letter in "HWC"))
            arguments["layout"] = "OHWI"
    y = builder.add("FullyConnected", x, height=1, width=1, channels=len(weight), **arguments)
    return replace(y, axes="NC", flat=None)


def _two(value: int | Pair) -> Pair:
    if isinstance(value, int):
        return value, value
    values = tuple(int(v) for v in value)
    if len(values) not in (1, 2):
        raise InvalidModelError(f"{values} is not one number or two, of a convolution.")
    return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])


def _pads(padding: Padding, rank: int) -> tuple[Pair, Pair] | str:
    if isinstance(padding, str):
        return padding
    if not isinstance(padding, int) and len(padding) not in (1, 2):
        raise InvalidModelError(f"padding {padding} is not one number or two.")
    first, second = _two(padding) if isinstance(padding, int) or len(padding) == 1 else padding
    return (
        (first, first) if isinstance(first, int) else (int(first[0]), int(first[1])),
        (second, second) if isinstance(second, int) else (int(second[0]), int(second[1])),
    )


def pads_of(padding: Padding, weight: NDArray[Any], stride: Pair, dilation: Pair) -> tuple[Pair, Pair]:
    """Return the padding of a convolution as ((top, bottom), (left, right))."""
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding == "same":
        if stride != (1, 1):
            raise UnmappedError(f'padding "same" with a stride of {stride}')
        reach = [step * (taps - 1) for step, taps in zip(dilation, weight.shape[2:], strict=True)]
        return (reach[0] // 2, reach[0] - reach[0] // 2), (reach[1] // 2, reach[1] - reach[1] // 2)
    found = _pads(padding, 2)
    if isinstance(found, str):
        raise UnmappedError(f'padding "{found}"')
    return found


def _check_rank(weight: NDArray[Any], rank: int) -> None:
    if weight.ndim != rank:
        raise InvalidModelError(f"the weights have {weight.ndim} axes {weight.shape}, not {rank}.")


def _check_bias(bias: NDArray[Any] | None, outputs: int) -> None:
    if bias is not None and bias.shape != (outputs,):
        raise InvalidModelError(f"the bias has shape {bias.shape}, not ({outputs},).")


def _check_steps(builder: Builder, **pairs: Pair) -> None:
    for name, pair in pairs.items():
        if min(pair) < 1:
            raise InvalidModelError(f"{builder.origin}: {name} {pair} is less than the minimum (1).")


def _as_image(builder: Builder, x: Tensor, spatial: str) -> Tensor:
    """Return `x` with axes "NC" followed by those of `spatial` in any order."""
    if x.rank != 2 + len(spatial):
        raise UnmappedError(f"a convolution of a tensor with {x.rank} axes, {x.shape} behind the batch")
    if x.flat is None and x.axes[1] == "C":
        return x
    axes = "NC" + spatial
    try:
        return arrange(builder, x, axes)
    except UnmappedError:
        return general.channels_second(builder, x)


def _merge(weight: NDArray[Any], groups: int, inputs: int, outputs: int) -> tuple[NDArray[Any], int]:
    """Return weights (channels, channels / groups, kH, kW) and a number of groups that MPS supports.

    `inputs` and `outputs` are the channels of one group; the first axis of `weight` covers all groups.
    """
    if groups == 1 or (inputs % GROUP_MULTIPLE == 0 and outputs % GROUP_MULTIPLE == 0):
        return weight, groups
    together = next(
        n
        for n in range(1, groups + 1)
        if groups % n == 0 and (n == groups or (n * inputs % GROUP_MULTIPLE == 0 and n * outputs % GROUP_MULTIPLE == 0))
    )
    if weight.nbytes * together > MAXIMUM_MERGED_BYTES:
        raise UnmappedError(
            f"{groups} groups of {inputs} input and {outputs} output channels, where MPS needs multiples of"
            f" {GROUP_MULTIPLE}, and their weights with zeros in between have {weight.nbytes * together} bytes"
        )
    first, second = len(weight) // groups, weight.shape[1]
    apart = weight.reshape(groups // together, together, first, second, *weight.shape[2:])
    merged = np.zeros((groups // together, together, first, together, second, *weight.shape[2:]), weight.dtype)
    for group in range(together):
        merged[:, group, :, group] = apart[:, group]
    return merged.reshape(len(weight), together * second, *weight.shape[2:]), groups // together


def _convolve(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None,
    stride: Pair,
    padding: tuple[Pair, Pair] | str,
    dilation: Pair,
    groups: int,
    spatial: str,
) -> Tensor:
    _check_rank(weight, 4)
    outputs, inputs = weight.shape[:2]
    _check_bias(bias, outputs)
    is_of_pixels = weight.shape[2:] == stride == dilation == (1, 1) and padding in (((0, 0), (0, 0)), "same", "valid")
    if x.rank == 4 and is_of_pixels and x.shape[0] == inputs and max(x.shape[1:]) > EXTENT_LIMIT:
        # Boxes of a detector, more than an image has columns: each is a pixel of an image with more rows.
        y, order = general.with_last(builder, x, [1])
        y = replace(y, axes="NHWC", flat=None)
        y = builder.add("Convolution", y, channels=outputs, weight=weight, bias=bias)
        return general.restored(builder, y, (outputs, *x.shape[1:]), order)
    x = _as_image(builder, x, spatial)
    if groups < 1 or outputs % groups or inputs * groups != x.channels:
        raise InvalidModelError(
            f"{builder.origin}: weights {weight.shape} in {groups} groups do not fit a source of {x.channels} channels."
        )
    _check_steps(builder, stride=stride, dilation=dilation)
    padding = pads_of(padding, weight, stride, dilation)
    if _lies_on_its_side(x):
        weight, stride, padding = weight.swapaxes(2, 3), stride[::-1], padding[::-1]
        dilation = dilation[::-1]
    if not groups == x.channels == outputs:
        weight, groups = _merge(weight, groups, inputs, outputs // groups)
    height, width = (
        (extent + sum(pads) - step * (taps - 1) - 1) // by + 1
        for extent, pads, step, taps, by in zip(
            (x.height, x.width), padding, dilation, weight.shape[2:], stride, strict=True
        )
    )
    _check_extents(builder, x, height, width)
    return builder.add(
        "Convolution",
        x,
        height=height,
        width=width,
        channels=outputs,
        weight=weight,
        bias=bias,
        **_unless_default(stride=stride, padding=padding, dilation=dilation, groups=groups),
    )


def _spread(
    builder: Builder,
    x: Tensor,
    weight: NDArray[Any],
    bias: NDArray[Any] | None,
    stride: Pair,
    padding: tuple[Pair, Pair] | str,
    output_padding: Pair,
    groups: int,
    dilation: Pair,
    spatial: str,
) -> Tensor:
    _check_rank(weight, 4)
    if isinstance(padding, str):
        raise UnmappedError(f'padding "{padding}" of a transposed convolution')
    x = _as_image(builder, x, spatial)
    inputs, outputs = weight.shape[0], weight.shape[1] * groups
    _check_bias(bias, outputs)
    if groups < 1 or inputs % groups or inputs != x.channels:
        raise InvalidModelError(
            f"{builder.origin}: weights {weight.shape} in {groups} groups do not fit a source of {x.channels} channels."
        )
    _check_steps(builder, stride=stride, dilation=dilation)
    if _lies_on_its_side(x):
        weight, stride, padding = weight.swapaxes(2, 3), stride[::-1], padding[::-1]
        output_padding, dilation = output_padding[::-1], dilation[::-1]
    if any(more >= by for more, by in zip(output_padding, stride, strict=True)):
        raise UnmappedError(f"output_padding {output_padding} is not less than the stride {stride}")
    if dilation != (1, 1):
        taps = [(n - 1) * step + 1 for n, step in zip(weight.shape[2:], dilation, strict=True)]
        if weight.itemsize * inputs * weight.shape[1] * taps[0] * taps[1] > MAXIMUM_MERGED_BYTES:
            raise UnmappedError(f"weights {weight.shape} with a dilation of {dilation}, which MPS has not")
        apart = np.zeros((*weight.shape[:2], *taps), weight.dtype)
        apart[:, :, :: dilation[0], :: dilation[1]] = weight
        weight = apart
    weight, groups = _merge(weight, groups, inputs // groups, outputs // groups)
    height, width = (
        (extent - 1) * by - sum(pads) + taps + more
        for extent, by, pads, taps, more in zip(
            (x.height, x.width), stride, padding, weight.shape[2:], output_padding, strict=True
        )
    )
    _check_extents(builder, x, height, width)
    return builder.add(
        "ConvolutionTranspose",
        x,
        height=height,
        width=width,
        channels=outputs,
        weight=weight,
        bias=bias,
        **_unless_default(stride=stride, padding=padding, output_padding=output_padding, groups=groups),
    )


def _lies_on_its_side(x: Tensor) -> bool:
    """Return whether height and width are swapped: spatial axes (width, height), or a 1-d tensor along the height."""
    return x.axes[2:] in ("WH", "H")


def _check_extents(builder: Builder, x: Tensor, height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise InvalidModelError(
            f"{builder.origin}: a source of {x.height} x {x.width} pixels leaves {height} x {width} of the result."
        )


_DEFAULTS = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "output_padding": (0, 0), "groups": 1}


def _unless_default(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value != _DEFAULTS[name]}
