# SPDX-License-Identifier: Apache-2.0
"""ONNX operators of normalization, and PRelu."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..builder import Tensor, UnmappedError
from ..ops import activation, arithmetic, elementwise, general, normalization, reduction, shape
from .node import Call, Value
from .table import operator


@operator("BatchNormalization")
def _batch_normalization(call: Call) -> Value:
    if call.integer("training_mode", 0) or not call.integer("spatial", 1):
        raise UnmappedError("batch normalization in training, or of each pixel on its own")
    if call.opset < 7 and not call.integer("is_test", 0):
        raise UnmappedError("batch normalization in training")
    call.only_first_output()
    weight, bias, mean, variance = (
        call.weights(i, what) for i, what in enumerate(("scales", "a bias", "means", "variances"), 1)
    )
    epsilon, momentum = call.real("epsilon", 1e-5), call.real("momentum", 0.9)
    momentum = round(1 - momentum, 7)  # ONNX's momentum is the weight of the old statistics, in float32
    return normalization.batch_norm(call.builder, call.tensor(), mean, variance, weight, bias, epsilon, momentum)


@operator("InstanceNormalization")
def _instance_normalization(call: Call) -> Value:
    x, weight, bias = call.tensor(), call.weights(1, "scales"), call.weights(2, "a bias")
    epsilon = call.real("epsilon", 1e-5)
    if x.flat is None:
        return normalization.instance_norm(call.builder, x, None, None, weight, bias, True, epsilon)
    groups = x.flat[0]
    if len(x.flat) != 2 or x.axes[1] != "C" or x.channels % groups or not weight.shape == bias.shape == (groups,):
        raise UnmappedError(f"a tensor whose axes were taken together or apart: {x.shape}")
    repeats = x.channels // groups
    image = replace(x, flat=None)
    y = normalization.group_norm(
        call.builder, image, groups, np.repeat(weight, repeats), np.repeat(bias, repeats), epsilon
    )
    return replace(y, flat=x.flat)


@operator("GroupNormalization")
def _group_normalization(call: Call) -> Value:
    x, groups = call.tensor(), call.integer("num_groups")
    weight, bias = call.weights(1, "scales"), call.weights(2, "a bias")
    if call.opset < 21 and x.rank > 1 and groups > 0 and weight.shape == bias.shape == (groups,):
        channels = x.shape[0] // groups  # one scale per group; from version 21 on, one per channel
        weight, bias = np.repeat(weight, channels), np.repeat(bias, channels)
    return normalization.group_norm(call.builder, x, groups, weight, bias, call.real("epsilon", 1e-5))


def _last_axes(call: Call, x: Tensor) -> tuple[int, ...]:
    axis = call.integer("axis", -1)
    axis = axis + x.rank if axis < 0 else axis
    if not 0 < axis < x.rank:
        raise UnmappedError(f"normalization from axis {axis} on, of {x.rank}")
    return tuple(x.shape[axis - 1 :])


@operator("LayerNormalization")
def _layer_normalization(call: Call) -> Value:
    call.only_first_output()
    builder, x = call.builder, call.tensor()
    over = _last_axes(call, x)
    weight, bias = call.weights(1, "scales"), call.weights_or_none(2, "a bias")
    epsilon = call.real("epsilon", 1e-5)
    weight = np.ascontiguousarray(np.broadcast_to(weight, over))
    bias = None if bias is None else np.ascontiguousarray(np.broadcast_to(bias, over))
    return normalization.layer_norm(builder, x, over, weight, bias, epsilon)


@operator("RMSNormalization")
def _rms_normalization(call: Call) -> Value:
    x = call.tensor()
    count, eps = len(_last_axes(call, x)), call.real("epsilon", 1e-5)
    return normalization.rms_norm(call.builder, x, count, call.weights(1, "scales"), eps)


@operator("MeanVarianceNormalization")
def _mean_variance_normalization(call: Call) -> Value:
    builder, x = call.builder, call.tensor()
    axes = call.integers("axes", [0, 2, 3])
    mean = reduction.mean(builder, x, axes, True)
    centred = elementwise.of_several(builder, arithmetic.subtract, x, mean)
    variance = reduction.mean(builder, arithmetic.square(builder, centred), axes, True)
    deviation = arithmetic.add(builder, arithmetic.sqrt(builder, variance), 1e-9)
    return elementwise.of_several(builder, arithmetic.divide, centred, deviation)


@operator("LRN")
def _lrn(call: Call) -> Value:
    b, x, size = call.builder, call.tensor(), call.integer("size")
    alpha, beta, bias = call.real("alpha", 1e-4), call.real("beta", 0.75), call.real("bias", 1.0)
    if size % 2:
        return normalization.local_response_norm(b, x, size, alpha, beta, bias)
    # MPS's window of an even number of channels reaches further to the other side: channels in reverse order.
    x = general.with_channels_second(b, x)
    turned = shape.pick_channels(b, x, range(x.channels)[::-1])
    y = normalization.local_response_norm(b, turned, size, alpha, beta, bias)
    return shape.pick_channels(b, y, range(x.channels)[::-1])


@operator("LpNormalization")
def _lp_normalization(call: Call) -> Value:
    builder, x = call.builder, call.tensor()
    norm = reduction.norm(builder, x, call.integer("p", 2), call.integer("axis", -1), True)
    # If all values are 0 the result is 0, not 0 / 0.
    return elementwise.of_several(
        builder, arithmetic.divide, x, arithmetic.clamp(builder, norm, float(np.finfo(np.float32).tiny))
    )


@operator("PRelu")
def _prelu(call: Call) -> Value:
    builder, x = call.builder, call.tensor()
    slope = call.operand(1)
    if not isinstance(slope, Tensor):
        slope = arithmetic.as_float32(slope)
        channels = x.axes[1:2] == "C" and x.flat is None and slope.size == x.channels
        if slope.size == 1 or (channels and slope.ndim >= x.rank - 1 and slope.shape[1 - x.rank] == slope.size):
            return activation.prelu(builder, x, slope.reshape(-1))
    positive = activation.relu(builder, x)
    negative = arithmetic.subtract(builder, x, positive)
    return arithmetic.add(builder, positive, arithmetic.multiply(builder, negative, slope))
