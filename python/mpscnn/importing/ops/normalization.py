# SPDX-License-Identifier: Apache-2.0
"""Normalization by given statistics, by statistics of each image, and by neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, as_image
from . import arithmetic, elementwise, general, reduction


def batch_norm(
    builder: Builder,
    x: Tensor,
    running_mean: NDArray[Any],
    running_var: NDArray[Any],
    weight: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
    eps: float = 1e-5,
    momentum: float | None = 0.1,
) -> Tensor:
    """Same as torch.nn.functional.batch_norm in inference, with running statistics.

    `momentum` is for training the graph; None: running statistics are means over all batches.
    """
    return _by_statistics(
        builder, x, running_mean, running_var, weight, bias, eps, {"statistics": "batch", "momentum": momentum}
    )


def _by_statistics(
    builder: Builder,
    x: Tensor,
    running_mean: NDArray[Any],
    running_var: NDArray[Any],
    weight: NDArray[Any] | None,
    bias: NDArray[Any] | None,
    eps: float,
    training: dict[str, Any],
) -> Tensor:
    x = _channels_second(builder, x)
    values = _values(x, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    y = builder.add(
        "BatchNormalization",
        x,
        gamma=_or_ones(values["weight"], x.channels),
        beta=values["bias"],
        mean=values["running_mean"],
        variance=values["running_var"],
        epsilon=_epsilon(eps),
    )
    return builder.in_trainer(y, **training)


def instance_norm(
    builder: Builder,
    x: Tensor,
    running_mean: NDArray[Any] | None = None,
    running_var: NDArray[Any] | None = None,
    weight: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
    use_input_stats: bool = True,
    eps: float = 1e-5,
) -> Tensor:
    """Same as torch.nn.functional.instance_norm: with statistics of each image, or with running statistics."""
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise InvalidModelError("instance_norm without statistics of the source has none of training either.")
        return _by_statistics(builder, x, running_mean, running_var, weight, bias, eps, {"statistics": "image"})
    x = _channels_second(builder, x)
    values = _values(x, weight=weight, bias=bias)
    return builder.add(
        "InstanceNormalization",
        x,
        gamma=_or_ones(values["weight"], x.channels),
        beta=values["bias"],
        epsilon=_epsilon(eps),
    )


def group_norm(
    builder: Builder,
    x: Tensor,
    num_groups: int,
    weight: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Same as torch.nn.functional.group_norm."""
    x = _channels_second(builder, x)
    if num_groups < 1 or x.channels % num_groups:
        raise InvalidModelError(f"num_groups ({num_groups}) does not divide the {x.channels} channels.")
    values = _values(x, weight=weight, bias=bias)
    return builder.add(
        "GroupNormalization",
        x,
        gamma=_or_ones(values["weight"], x.channels),
        beta=values["bias"],
        groups=num_groups,
        epsilon=_epsilon(eps),
    )


def rms_norm(builder: Builder, x: Tensor, count: int, weight: NDArray[Any] | None, eps: float) -> Tensor:
    """Same as torch.nn.functional.rms_norm over the last `count` axes."""
    dims = range(x.rank - count, x.rank)
    square = reduction.mean(builder, arithmetic.square(builder, x), dims, True)
    factor = builder.add("NeuronPower", square, a=1.0, b=eps, c=-0.5)
    y = elementwise.of_several(builder, arithmetic.multiply, x, factor)
    return y if weight is None else elementwise.of_several(builder, arithmetic.multiply, y, weight)


def layer_norm(
    builder: Builder,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Same as torch.nn.functional.layer_norm, over the channels of each pixel or over whole images.

    Over the channels, separate kernels compute the variance as the mean of squared deviations.
    """
    shape = tuple(normalized_shape)
    if x.flat is not None and (x.rank > 2 or x.channels != math.prod(x.flat)):
        return _layer_norm_of_stored(builder, x, shape, weight, bias, eps)
    x = as_image(x)
    if not shape or x.shape[-len(shape) :] != shape:
        raise InvalidModelError(f"normalized_shape {shape} is not the end of the source's shape {x.shape}.")
    for name, values in (("weight", weight), ("bias", bias)):
        if values is not None and values.shape != shape:
            raise InvalidModelError(f"{name} has shape {values.shape}, not that of normalized_shape, {shape}.")
    over = x.axes[-len(shape) :]
    if all(x.extent(axis) == 1 for axis in "HW" if axis not in over) and "C" in over:
        builder.fix_unless_constant(x)
        channels = {name: _per_channel(values, over) for name, values in (("weight", weight), ("bias", bias))}
        by_channel = all(values is not None for values in channels.values())
        y = builder.add(
            "GroupNormalization",
            x,
            gamma=channels["weight"] if by_channel and weight is not None else np.ones(x.channels, np.float32),
            beta=channels["bias"] if by_channel and bias is not None else None,
            groups=1,
            epsilon=_epsilon(eps),
        )
        if by_channel:
            return y
        if weight is not None:
            y = arithmetic.multiply(builder, y, weight)
        return y if bias is None else arithmetic.add(builder, y, bias)
    if over != "C":
        return _layer_norm_of_stored(builder, x, shape, weight, bias, eps)
    centred = builder.add("Subtract", x, builder.add("ReduceFeatureChannelsMean", x, channels=1))
    squares = builder.add("Multiply", centred, centred)
    variance = builder.add("ReduceFeatureChannelsMean", squares, channels=1)
    factor = builder.add("NeuronPower", variance, a=1.0, b=_epsilon(eps), c=-0.5)
    y = builder.add("Multiply", centred, factor)
    if weight is None and bias is None:
        return y
    y = builder.add(
        "BatchNormalization",
        y,
        gamma=_or_ones(weight, x.channels),
        beta=bias,
        mean=np.zeros(x.channels, np.float32),
        variance=np.ones(x.channels, np.float32),
        epsilon=0.0,
    )
    return builder.in_trainer(y, statistics="none")


def _layer_norm_of_stored(
    builder: Builder,
    x: Tensor,
    shape: tuple[int, ...],
    weight: NDArray[Any] | None,
    bias: NDArray[Any] | None,
    eps: float,
) -> Tensor:
    """Normalize over the last axes as channels of an image that stores the tensor in the order of its axes."""
    if not shape or x.shape[-len(shape) :] != shape:
        raise InvalidModelError(f"normalized_shape {shape} is not the end of the source's shape {x.shape}.")
    before, count = x.shape[: -len(shape)], math.prod(shape)
    y = general.store(builder, general.reshape(x, (*before, count)))
    scale, shift = (None if values is None else values.reshape(-1) for values in (weight, bias))
    y = layer_norm(builder, replace(y, axes="NHWC", flat=None), (count,), scale, shift, eps)
    return general.reshape(y, x.shape)


def local_response_norm(
    builder: Builder, x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Same as torch.nn.functional.local_response_norm; MPS has the same window of channels."""
    x = _channels_second(builder, x)
    if size < 1:
        raise InvalidModelError(f"size ({size}) is less than the minimum (1).")
    return builder.add(
        "CrossChannelNormalization", x, kernel_size=size, alpha=float(alpha), beta=float(beta), delta=float(k)
    )


def _channels_second(builder: Builder, x: Tensor) -> Tensor:
    """Return `x` as an image whose axis 1 is its channels."""
    if x.flat is not None and 2 < x.rank <= 4:
        return general.channels_second(builder, x)
    x = as_image(x)
    if x.rank < 2 or x.axes[1] == "C":
        return x
    if x.channels == 1 and x.extent(x.axes[1]) == 1:
        # Both have extent 1, so they can be swapped.
        names = str.maketrans({x.axes[1]: "C", "C": x.axes[1]})
        return replace(x, axes=x.axes.translate(names))
    return general.channels_second(builder, x)


def _values(x: Tensor, **arrays: NDArray[Any] | None) -> dict[str, NDArray[Any] | None]:
    for name, values in arrays.items():
        if values is not None and values.shape != (x.channels,):
            raise InvalidModelError(f"{name} has shape {values.shape}, the source has {x.channels} channels.")
    return arrays


def _epsilon(eps: float) -> float:
    if not eps >= 0:
        raise InvalidModelError(f"eps ({eps}) is less than the minimum (0).")
    return float(eps)


def _or_ones(values: NDArray[Any] | None, channels: int) -> NDArray[Any]:
    return np.ones(channels, np.float32) if values is None else values


def _per_channel(values: NDArray[Any] | None, axes: str) -> NDArray[Any] | None:
    """Return one value per channel of an array along `axes`; None if the values differ between pixels."""
    if values is None:
        return np.empty(0, np.float32)
    columns = np.moveaxis(values, axes.index("C"), 0).reshape(values.shape[axes.index("C")], -1)
    return None if (columns != columns[:, :1]).any() else np.ascontiguousarray(columns[:, 0])
