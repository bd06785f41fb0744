# SPDX-License-Identifier: Apache-2.0
"""Every imported ATen operator, as written by torch.export and as core ATen, against PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)
from torch import nn
from torch_support import Function, check, core_aten, inputs, is_free, randomize

from mpscnn.importing import torch_export, torch_module
from mpscnn.importing.aten import OPERATORS
from mpscnn.importing.torch_patterns import operator_name


@dataclass(frozen=True)
class Row:
    """A module, the shapes of its inputs without the batch, and whether the graph accepts other heights and widths."""

    name: str
    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...] = ((8, 9, 11),)
    free: bool = True


def row(name: str, make: Any, *shapes: tuple[int, ...], free: bool = True, **constants: torch.Tensor) -> Row:
    """`make` is a module class without arguments, a lambda that makes a module, or a function of tensors."""
    return Row(name, make, shapes or ((8, 9, 11),), free)


def function(name: str, body: Callable[..., Any], *shapes: tuple[int, ...], free: bool = True, **constants: Any) -> Row:
    return Row(name, lambda: Function(body, **constants), shapes or ((8, 9, 11),), free)


def values(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


aten = torch.ops.aten
IMAGE, SEQUENCE, VECTOR = (8, 9, 11), (8, 13), (10,)

W3 = values(6, 2, 3, 3, 2)


def volumes(x: torch.Tensor, *arguments: Any) -> torch.Tensor:
    """Convolve two channels of four depths, and take channels and depths together again."""
    return F.conv3d(x.unflatten(1, (2, 4)), *arguments).flatten(1, 2)


def volume(name: str, body: Callable[[torch.Tensor], torch.Tensor], free: bool = True) -> Row:
    """A function of two channels of four depths, whose result has channels and depths together again."""
    return function(name, lambda x: body(x.unflatten(1, (2, 4))).flatten(1, 2), free=free)


def along_channels() -> nn.Module:
    """Windows of 12 channels, as ChannelNet has them."""
    conv = nn.Conv3d(1, 3, (12, 1, 1), (3, 1, 1), (5, 0, 0), bias=False)
    return nn.Sequential(nn.Unflatten(1, (1, 12)), conv, nn.Flatten(1, 2))


ROWS = [
    # convolutions
    row("conv2d", lambda: nn.Conv2d(8, 6, (3, 2), (2, 1), (1, 2))),
    row("conv2d_dilated", lambda: nn.Conv2d(8, 6, 3, padding=2, dilation=2, bias=False)),
    row("conv2d_same", lambda: nn.Conv2d(8, 6, (4, 3), padding="same", dilation=(1, 2))),
    row("conv2d_valid", lambda: nn.Conv2d(8, 6, 3, padding="valid")),
    row("conv2d_reflect", lambda: nn.Conv2d(8, 6, 3, padding=1, padding_mode="reflect")),
    row("conv2d_groups_of_4", lambda: nn.Conv2d(8, 12, 3, groups=2, padding=1)),
    row("conv2d_depthwise", lambda: nn.Conv2d(8, 8, 3, groups=8, padding=1)),
    row("conv2d_depthwise_multiplier", lambda: nn.Conv2d(8, 24, 3, groups=8, padding=1)),
    row("conv2d_groups_of_2", lambda: nn.Conv2d(8, 16, 3, groups=4, padding=1)),
    row("conv2d_groups_of_3", lambda: nn.Conv2d(9, 6, 3, groups=3, padding=1), (9, 7, 6)),
    row("conv1d", lambda: nn.Conv1d(8, 6, 3, 2, 1, 2), SEQUENCE),
    row("conv1d_same_in_groups", lambda: nn.Conv1d(8, 16, 4, padding="same", groups=4), SEQUENCE),
    row("conv_transpose2d", lambda: nn.ConvTranspose2d(8, 6, (3, 4), (2, 3), (1, 0), (1, 2))),
    row("conv_transpose2d_groups", lambda: nn.ConvTranspose2d(8, 8, 4, 2, 1, groups=2, bias=False)),
    row("conv_transpose2d_depthwise", lambda: nn.ConvTranspose2d(8, 8, 3, 2, groups=8)),
    row("conv_transpose2d_dilated", lambda: nn.ConvTranspose2d(8, 5, 3, 2, dilation=(2, 3))),
    row("conv_transpose1d", lambda: nn.ConvTranspose1d(8, 6, 4, 2, 1), SEQUENCE),
    # of three dimensions; channels of the image are channels and depths
    row("conv3d_along_channels", along_channels, (12, 5, 6)),
    function("conv3d", lambda x, w, b: volumes(x, w, b, (2, 1, 2), (1, 2, 0), (1, 2, 1)), w=W3, b=values(6)),
    function("conv3d_in_groups", lambda x, w: volumes(x, w, None, 1, 1, 1, 2), w=values(6, 1, 3, 2, 3)),
    function("conv3d_same", lambda x, w: volumes(x, w, None, 1, "same", (2, 1, 1)), w=values(6, 2, 2, 4, 3)),
    function("conv3d_valid", lambda x, w: volumes(x, w, None, 1, "valid", 1), w=W3),
    function(
        "conv_transpose3d",
        lambda x, w, b: F.conv_transpose3d(x.unflatten(1, (2, 4)), w, b, (2, 1, 3), 1, (1, 0, 2), 1, (1, 2, 1)).flatten(
            1, 2
        ),
        w=values(2, 5, 3, 3, 4),
        b=values(5),
    ),
    function(
        "conv_transpose3d_in_groups",
        lambda x, w: F.conv_transpose3d(x.unflatten(1, (2, 4)), w, None, 2, groups=2).flatten(1, 2),
        w=values(2, 3, 3, 2, 2),
    ),
    row("batch_norm3d", lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.BatchNorm3d(2), nn.Flatten(1, 2))),
    volume("max_pool3d", lambda x: F.max_pool3d(x, (2, 2, 3), (2, 2, 1), (1, 0, 1), (2, 1, 1)), free=False),
    volume("max_pool3d_of_planes", lambda x: F.max_pool3d(x, (1, 2, 3), (2, 2, 1), (0, 0, 1))),
    volume("max_pool3d_ceil", lambda x: F.max_pool3d(x, (3, 1, 1), (2, 1, 1), ceil_mode=True), free=False),
    volume("avg_pool3d", lambda x: F.avg_pool3d(x, (3, 2, 3), (1, 2, 1), (1, 0, 1))),
    volume("avg_pool3d_without_pad", lambda x: F.avg_pool3d(x, 3, (2, 1, 2), 1, count_include_pad=False)),
    volume("avg_pool3d_ceil", lambda x: F.avg_pool3d(x, (3, 1, 1), (3, 1, 1), (1, 0, 0), ceil_mode=True)),
    volume("avg_pool3d_divisor", lambda x: F.avg_pool3d(x, (2, 3, 3), 1, (1, 1, 1), divisor_override=7)),
    volume("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (3, 1, 1))),
    volume("adaptive_avg_pool3d_to_one", lambda x: F.adaptive_avg_pool3d(x, 1)),
    volume("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, (3, 1, 1))),
    # linear layers
    row("linear", lambda: nn.Linear(10, 7), VECTOR),
    row("linear_without_bias", lambda: nn.Linear(10, 7, bias=False), VECTOR),
    row("linear_of_image", lambda: nn.Sequential(nn.Flatten(), nn.Linear(8 * 99, 7)), free=False),
    function(
        "linear_of_permuted_image",
        lambda x, w: F.linear(x.permute(0, 2, 3, 1).flatten(1), w),
        w=values(5, 8 * 99),
        free=False,
    ),
    function("linear_of_pixels", lambda x, w: F.linear(x.permute(0, 2, 3, 1), w), w=values(5, 8)),
    function("linear_along_width", lambda x, w: F.linear(x, w), (1, 5, 10), w=values(4, 10), free=False),
    function("addmm", lambda x, w, b: torch.addmm(b, x, w, beta=2, alpha=0.5), VECTOR, w=values(10, 4), b=values(4)),
    function("matmul", lambda x, w: x @ w, VECTOR, w=values(10, 4)),
    # normalization
    row("batch_norm2d", lambda: nn.BatchNorm2d(8, eps=1e-3)),
    row("batch_norm2d_without_affine", lambda: nn.BatchNorm2d(8, affine=False)),
    row("batch_norm1d_of_vectors", lambda: nn.BatchNorm1d(10), VECTOR),
    row("batch_norm1d_of_sequences", lambda: nn.BatchNorm1d(8), SEQUENCE),
    row("instance_norm", lambda: nn.InstanceNorm2d(8, affine=True, eps=1e-3)),
    row("instance_norm_without_affine", lambda: nn.InstanceNorm2d(8)),
    row("instance_norm_with_statistics", lambda: nn.InstanceNorm2d(8, affine=True, track_running_stats=True)),
    row("instance_norm1d", lambda: nn.InstanceNorm1d(8, affine=True), SEQUENCE),
    row("group_norm", lambda: nn.GroupNorm(4, 8, eps=1e-3)),
    row("group_norm_of_one", lambda: nn.GroupNorm(1, 8, affine=False)),
    row("layer_norm_of_vectors", lambda: nn.LayerNorm(10), VECTOR),
    row("layer_norm_of_images", lambda: nn.LayerNorm((8, 9, 11)), free=False),
    row("layer_norm_without_affine", lambda: nn.LayerNorm((8, 9, 11), elementwise_affine=False), free=False),
    function(
        "layer_norm_of_pixels",
        lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (8,), w, b, 1e-3).permute(0, 3, 1, 2),
        w=values(8),
        b=values(8, seed=4),
    ),
    row("local_response_norm", lambda: nn.LocalResponseNorm(5, alpha=0.3, beta=0.6, k=1.5)),
    row("local_response_norm_even", lambda: nn.LocalResponseNorm(4, alpha=0.3)),
    row("local_response_norm_of_sequences", lambda: nn.LocalResponseNorm(3, alpha=0.3), SEQUENCE),
    # activations
    *(
        row(kind.__name__, kind)
        for kind in (
            nn.ReLU,
            nn.ReLU6,
            nn.LeakyReLU,
            nn.ELU,
            nn.SELU,
            nn.CELU,
            nn.GELU,
            nn.Sigmoid,
            nn.Hardsigmoid,
            nn.LogSigmoid,
            nn.Tanh,
            nn.Hardtanh,
            nn.SiLU,
            nn.Hardswish,
            nn.Mish,
            nn.Softplus,
            nn.Softsign,
            nn.Tanhshrink,
            nn.Softshrink,
            nn.RReLU,
            nn.PReLU,
            nn.Softmax2d,
            nn.Identity,
        )
    ),
    row("relu_in_place", lambda: nn.ReLU(inplace=True)),
    row("leaky_relu_slope", lambda: nn.LeakyReLU(0.3)),
    row("elu_alpha", lambda: nn.ELU(0.7)),
    row("celu_alpha", lambda: nn.CELU(0.6)),
    row("gelu_tanh", lambda: nn.GELU("tanh")),
    row("prelu_by_channel", lambda: nn.PReLU(8)),
    row("softplus_beta", lambda: nn.Softplus(2.5)),
    row("hardtanh_bounds", lambda: nn.Hardtanh(-0.4, 0.9)),
    row("threshold", lambda: nn.Threshold(0.2, 0.2)),
    row("glu", lambda: nn.GLU(1)),
    function("clamp_min", lambda x: x.clamp(min=0.1)),
    function("clamp_max", lambda x: x.clamp(max=-0.1)),
    function("clamp_max_of_0", lambda x: x.clamp_max(0)),
    function("clamp_from_0", lambda x: x.clamp(0, 0.5)),
    function("clamp_upside_down", lambda x: x.clamp(0.5, -0.5)),
    row("dropout", lambda: nn.Sequential(nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout())),
    # arithmetic
    function("add", lambda x, y: torch.add(x, y, alpha=0.5), IMAGE, IMAGE),
    function("sub", lambda x, y: torch.sub(x, y, alpha=3), IMAGE, IMAGE),
    function("mul", lambda x, y: x * y, IMAGE, IMAGE),
    function("div", lambda x, y: x / (y.abs() + 1), IMAGE, IMAGE),
    function("add_number", lambda x: 2 + x - 0.5),
    function("rsub", lambda x: 1 - x),
    function("mul_div_numbers", lambda x: x * 3 / 7),
    function("reciprocal", lambda x: 2 / (x.abs() + 1)),
    function("add_by_channel", lambda x, c: x + c, c=values(8, 1, 1)),
    function("mul_by_channel", lambda x, c: c * x, c=values(1, 8, 1, 1)),
    function("preprocessing", lambda x, m, s: (x - m) / s, m=values(1, 8, 1, 1), s=values(1, 8, 1, 1).abs() + 0.1),
    function("add_image", lambda x, c: x + c, c=values(8, 9, 11), free=False),
    function("mul_by_gate", lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True))),
    function("mul_by_expanded_gate", lambda x: x * x.mean((2, 3), keepdim=True).expand_as(x)),
    function("powers", lambda x: (x**2 + (x.abs() + 1) ** 0.5 + torch.rsqrt(x * x + 1)).sqrt()),
    function("exp_log", lambda x: torch.log(torch.exp(x) + 1)),
    function("neg_abs", lambda x: -x.abs()),
    function("maximum", torch.maximum, IMAGE, IMAGE, free=False),
    function("addcmul", lambda x, y: torch.addcmul(x, x, y, value=0.3), IMAGE, IMAGE),
    function("addcdiv", lambda x, y: torch.addcdiv(x, x, y.abs() + 1, value=0.3), IMAGE, IMAGE),
    function("lerp", lambda x, y: torch.lerp(x, y, 0.3), IMAGE, IMAGE),
    function("in_place", lambda x: (x * 2).add_(1).mul_(x).sub_(0.5).div_(2)),
    # reductions
    function("mean", lambda x: x.mean((2, 3))),
    function("mean_of_flattened", lambda x: x.flatten(2).mean(-1)),
    function("mean_by_hand", lambda x: x.sum((2, 3)) / (x.shape[2] * x.shape[3]), free=False),
    function("mean_of_channels", lambda x: x.mean(1, keepdim=True)),
    function("sum", lambda x: x.sum(1)),
    function("amax_amin", lambda x: (x.amax((2, 3)), x.amin(1, keepdim=True))),
    function("max_of_channels", lambda x: x.max(1, keepdim=True).values),
    function("max_with_indices", lambda x: tuple(x.max(1))),
    function("argmax", lambda x: x.argmax(1)),
    function("var_std", lambda x: (x.var(1, keepdim=True), x.std(1, unbiased=False))),
    function("var_of_images", lambda x: x.var((2, 3)), free=False),
    function("biased_var_of_images", lambda x: torch.var_mean(x, (2, 3), correction=0)),
    function("norm", lambda x: F.normalize(x, dim=1)),
    function("logsumexp", lambda x: torch.logsumexp(x, 1)),
    row("softmax", lambda: nn.Softmax(1)),
    row("log_softmax_of_vectors", lambda: nn.LogSoftmax(-1), VECTOR),
    # pooling
    row("max_pool2d", lambda: nn.MaxPool2d(3, 2, 1)),
    row("max_pool2d_ceil", lambda: nn.MaxPool2d((2, 3), ceil_mode=True)),
    row("max_pool2d_dilated", lambda: nn.MaxPool2d(2, 1, dilation=2)),
    row("max_pool1d", lambda: nn.MaxPool1d(3, 2, 1), SEQUENCE, free=False),  # as written by torch.export
    row("avg_pool2d", lambda: nn.AvgPool2d(3, 2, 1)),
    row("avg_pool2d_without_padding", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False)),
    row("avg_pool2d_divisor", lambda: nn.AvgPool2d(3, 2, divisor_override=5)),
    row("avg_pool1d", lambda: nn.AvgPool1d(3, 2), SEQUENCE),
    function("avg_pool2d_of_all", lambda x: F.avg_pool2d(x, x.shape[2:]), free=False),
    row("global_avg_pool2d", lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))),
    row("global_max_pool2d", lambda: nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 3))),
    row("adaptive_avg_pool2d", lambda: nn.AdaptiveAvgPool2d((4, 3))),
    row("adaptive_max_pool2d", lambda: nn.AdaptiveMaxPool2d((3, 4))),
    row("adaptive_avg_pool1d", lambda: nn.AdaptiveAvgPool1d(1), SEQUENCE),
    row("lp_pool2d", lambda: nn.LPPool2d(2, 3, 2)),
    # resizing, padding
    row("upsample_nearest", lambda: nn.Upsample(scale_factor=2)),
    row("upsample_nearest_to_size", lambda: nn.Upsample(size=(18, 22)), free=False),
    row("upsample_bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear")),
    row("upsample_bilinear_aligned", lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)),
    function("upsample_to_computed_size", lambda x: F.interpolate(x, size=(2 * x.shape[2], 2 * x.shape[3]))),
    function(
        "upsample_of_one_pixel",
        lambda x: [
            torch.cat([x, F.interpolate(x.mean((2, 3), keepdim=True), x.shape[2:], mode=mode)], 1)
            for mode in ("nearest", "bilinear")
        ],
    ),
    row("upsample_bilinear_to_size", lambda: nn.Upsample(size=(13, 20), mode="bilinear"), free=False),
    row("zero_pad", lambda: nn.ZeroPad2d((1, 2, 3, 0))),
    row("constant_pad", lambda: nn.ConstantPad2d((1, 2, 3, 0), 1.5)),
    row("reflection_pad", lambda: nn.ReflectionPad2d((1, 2, 3, 0))),
    row("replication_pad", lambda: nn.ReplicationPad2d((1, 2, 3, 0))),
    row("reflection_pad1d", lambda: nn.ReflectionPad1d(2), SEQUENCE),
    function("pad_to_multiple", lambda x: F.pad(x, (0, -x.shape[3] % 4, 0, -x.shape[2] % 4)), free=False),
    row("pixel_shuffle", lambda: nn.PixelShuffle(2)),
    row("pixel_unshuffle", lambda: nn.PixelUnshuffle(2), (2, 6, 8)),
    # shapes
    function("cat_channels", lambda x, y: torch.cat([x, y, x], 1), IMAGE, (5, 9, 11)),
    function("cat_rows", lambda x, y: torch.cat([x, y], 2), IMAGE, (8, 4, 11)),
    function("cat_vectors", lambda x, y: torch.cat([x, y], -1), (10,), (3,)),
    function(
        "cat_with_constant",
        lambda x, c: torch.cat([x, c.expand(len(x), 2, 9, 11)], 1),
        c=values(1, 2, 9, 11),
        free=False,
    ),
    function("stack_of_vectors", lambda x: torch.stack([x[:, :5], x[:, 5:]], 1) * 2, VECTOR),
    function("split", lambda x: x.split([3, 4, 1], 1)),
    function("chunk", lambda x: x.chunk(3, 1)[::-1]),
    function("tensor_split", lambda x: x.tensor_split(3, 1)),
    function("unbind", lambda x: x.unbind(1)[2:4]),
    function("slice_channels", lambda x: (x[:, 4:], x[:, 1:7], x[:, ::3], x[:, -2])),
    function("slice_from_ends", lambda x: x[:, :, 1:-2, 2:]),
    function("slice_every_second", lambda x: torch.cat([x[..., ::2, ::2], x[..., ::2, ::2] * 2], 1)),
    function("focus", lambda x: torch.cat([x[..., ::2, ::2], x[..., 1::2, 1::2]], 1), (3, 8, 10)),
    function("slice_odd_rows", lambda x: x[:, :, 1::2, ::3]),
    function("slice_absolute", lambda x: x[:, :, 2:6, 1:5], free=False),
    function("slice_own_extent", lambda x, y: x[:, :, : x.shape[2], : x.shape[3]] + y, IMAGE, IMAGE),
    function("select_row", lambda x: x[:, :, 0], free=False),
    function("index_channels", lambda x: x[:, [2, 1, 0]]),
    function("index_select", lambda x, i: torch.index_select(x, 1, i), i=torch.tensor([5, 0, 5])),
    function("flip_channels", lambda x: x.flip(1)),
    function("flatten_for_output", lambda x: x.flatten(1), free=False),
    function("flatten_pixels", lambda x: x.flatten(2), free=False),
    function("permute_for_output", lambda x: x.permute(0, 2, 3, 1).contiguous() * 2),
    function("transpose", lambda x: x.transpose(1, 3).transpose(1, 3).contiguous()),
    function("movedim", lambda x: x.movedim(1, -1)),
    function("squeeze", lambda x: x.mean((2, 3), keepdim=True).squeeze(-1).squeeze(2)),
    function("squeeze_all", lambda x: x.mean((2, 3), keepdim=True).squeeze()),
    function("unsqueeze", lambda x: torch.relu(x[:, :, None, None]), VECTOR),
    function("view", lambda x: x.mean((2, 3)).view(-1, 8, 1, 1) * x),
    function(
        "channel_shuffle_by_hand",
        lambda x: x.view(len(x), 2, 4, x.shape[2], x.shape[3]).transpose(1, 2).reshape(x.shape),
    ),
    row("channel_shuffle", lambda: nn.ChannelShuffle(4)),
    function("view_of_vector", lambda x: F.relu(x.view(-1, 2, 5)).flatten(1), VECTOR),
    function("vector_as_image", lambda x, w: F.conv2d(x.view(-1, 1, 3, 4), w), (12,), w=values(5, 1, 2, 2)),
    function(
        "eca",
        lambda x, w: x * F.conv1d(x.mean((2, 3)).unsqueeze(1), w, padding=1).sigmoid()[:, 0, :, None, None],
        w=values(1, 1, 3),
    ),
    function("expand", lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 3, 2), free=False),
    function("repeat", lambda x: x.repeat(1, 2, 1, 1)),
    function("coordinates", lambda x: x + torch.arange(x.shape[3]) / 10, free=False),
    function(
        "nhwc_input", lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w, padding=1), (9, 11, 8), w=values(4, 8, 3, 3)
    ),
    function(
        "images_without_channels", lambda x, w: F.conv2d(x.unsqueeze(1), w, padding=1), (9, 11), w=values(4, 1, 3, 3)
    ),
    function(
        "folded_constants",
        lambda x, w: F.conv2d(x, w * w.abs().sum((1, 2, 3), keepdim=True).rsqrt()),
        w=values(4, 8, 3, 3),
    ),
    row("weight_norm", lambda: torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 4, 3))),
    row("spectral_norm", lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Conv2d(8, 4, 3))),
    function("float_of_float", lambda x: x.float().to(torch.float32).type_as(x) * 2),
    function("computed_constant", lambda x: x * torch.ones(x.shape[3]).sum(), free=False),
    function(
        "depth_to_space_by_hand",
        lambda x: x.view(len(x), 2, 2, 2, 9, 11).permute(0, 3, 4, 1, 5, 2).reshape(len(x), 2, 18, 22),
        free=False,
    ),
    function(
        "pixel_shuffle_by_hand",
        lambda x: x.view(len(x), 2, 2, 2, 9, 11).permute(0, 1, 4, 2, 5, 3).reshape(len(x), 2, 18, 22),
        free=False,
    ),
    # operators by names that torch.export writes for other spellings, or that other builds write
    function("absolute_negative_positive", lambda x: torch.absolute(x) + torch.negative(x) * torch.positive(x)),
    function("long_names", lambda x: torch.subtract(torch.multiply(x, 2), 1).divide(3).true_divide(2)),
    function("square", lambda x: torch.square(x) + 1),
    function("special", lambda x: torch.special.expit(torch.special.softmax(x, 1)) + torch.special.log_softmax(x, 1)),
    function("clip", lambda x: torch.clip(x, -0.5, 0.5)),
    function("min_argmin", lambda x: (x.min(1).values, x.min(1).indices, x.argmin(1, keepdim=True))),
    function(
        "norms", lambda x: (torch.norm(x, 2, 1), aten.norm.ScalarOpt_dim(x, 1, [1]), aten.frobenius_norm.dim(x, [1]))
    ),
    function("prelu_kernel", lambda x, w: aten._prelu_kernel(x, w), w=values(1, 8, 1, 1)),
    function("relu6_as_one", lambda x: aten.relu6(x * 9)),
    function("log_sigmoid_forward", lambda x: aten.log_sigmoid_forward(x)[0]),
    function(
        "native_batch_norm",
        lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-3)[0],
        w=values(8),
        b=values(8, seed=4),
        m=values(8, seed=5),
        v=values(8, seed=6).abs() + 0.5,
    ),
    function(
        "native_dropout", lambda x: aten.native_dropout(x, 0.5, False)[0] + F.feature_alpha_dropout(x, 0.5, False)
    ),
    function(
        "convolution_as_one",
        lambda x, w: aten._convolution(
            x, w, None, [1, 2], [1, 0], [1, 1], False, [0, 0], 1, False, False, False, False
        ),
        w=values(4, 8, 3, 3),
    ),
    function("paddings", lambda x: aten.reflection_pad2d(x, [1, 2, 3, 0]) + aten.replication_pad2d(x, [1, 2, 3, 0])),
    function(
        "paddings_of_sequences",
        lambda x: aten.reflection_pad1d(x, [1, 2]) + aten.replication_pad1d(x, [1, 2]),
        SEQUENCE,
    ),
    function("nearest_exact", lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact")),
    function(
        "resized_sequences",
        lambda x: [F.interpolate(x, scale_factor=2, mode=m) for m in ("nearest", "linear", "nearest-exact")],
        SEQUENCE,
    ),
    function("max_pools_with_indices", lambda x: aten.max_pool1d_with_indices(x, [3], [2])[0], SEQUENCE),
    function("adaptive_max_pool1d", lambda x: aten.adaptive_max_pool1d(x, [1])[0], SEQUENCE),
    function("joined", lambda x: torch.concat([torch.concatenate([x, x], 1), x], 1)),
    function("parts", lambda x: x.narrow(1, 2, 5) * aten.split.Tensor(x, 5, 1)[0]),
    function("moved", lambda x: x.swapaxes(2, 3).swapdims(2, 3).moveaxis(1, 3).mT),
    function("copies", lambda x: aten._to_copy(x.contiguous().detach() * 2)),
    function("unsafe_view", lambda x: aten._unsafe_view(x, list(x.shape)) + x.view_as(x) + x.reshape_as(x)),
    function("unflatten", lambda x: x.unflatten(1, (2, 4)).flatten(1, 2)),
    function("tile", lambda x: torch.tile(x, (2, 1, 1))),
    function("unused_operators", lambda x: (x.cumsum(1), x + 1)[1]),
]


def exported(module: nn.Module, args: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    """Return the program with free sizes, or with those of the arguments if the module cannot be traced so."""
    with contextlib.suppress(Exception):
        return torch.export.export(module, args, dynamic_shapes=torch_module._dynamic_shapes(module, args, {}))
    return torch.export.export(module, torch_module._fresh(args, {})[0])


@pytest.mark.parametrize("case", ROWS, ids=[case.name for case in ROWS])
def test_operator(case: Row) -> None:
    module = randomize(case.make())
    examples = inputs(*case.shapes)
    with torch_export.quiet():
        program = exported(module, examples)
        graph = torch_export.read(program)
    reached(program, [case])
    check(graph, module, *examples)
    check(graph, module, *inputs(*case.shapes, batch=5, seed=2))
    assert is_free(graph) == case.free, graph.inputs
    if case.free and any(len(shape) > 1 for shape in case.shapes):
        check(graph, module, *inputs(*(larger(graph, i, shape) for i, shape in enumerate(case.shapes)), seed=3))


class Several(nn.Module):
    """Rows with the same inputs: decomposing one program takes most of a second, whatever its size."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(randomize(case.make()) for case in rows)

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        return [part(*(tensor * 1 for tensor in tensors)) for part in self.parts]


def bundles() -> list[list[Row]]:
    """Return the rows imported as core ATen, grouped by shapes and whether they are free, at most 12 together."""
    groups: dict[Any, list[Row]] = {}
    for case in ROWS:
        if case.name not in NOT_AS_CORE_ATEN:
            groups.setdefault((case.shapes, case.free and case.name not in FIXED_AS_CORE_ATEN), []).append(case)
    return [list(part) for group in groups.values() for part in batched(group, 12)]


def batched(items: list[Row], count: int) -> list[list[Row]]:
    return [items[start : start + count] for start in range(0, len(items), count)]


# Rows not imported as core ATen: their decompositions contain numbers, or operators that no kernel computes.
NOT_AS_CORE_ATEN = {
    "logsumexp": "infinities are replaced",
    "nearest_exact": "rows and columns by number",
    "resized_sequences": "columns by number",
    "nhwc_input": "the layout is that of the other rows",
}
# Rows whose decomposition contains rows and columns as numbers.
FIXED_AS_CORE_ATEN = {
    "adaptive_avg_pool3d_to_one",
    "conv2d_reflect",
    "conv3d_same",
    "paddings",
    "paddings_of_sequences",
    "reflection_pad",
    "reflection_pad1d",
    "replication_pad",
}


@pytest.mark.parametrize("rows", bundles(), ids=lambda rows: f"{rows[0].name}-{len(rows)}")
def test_core_aten(rows: list[Row]) -> None:
    module = Several(rows).eval()
    shapes = rows[0].shapes
    with torch_export.quiet():
        program = core_aten(exported(module, inputs(*shapes)))
        graph = torch_export.read(program)
    reached(program, rows)
    check(graph, module, *inputs(*shapes, batch=5, seed=2))
    free = rows[0].free and rows[0].name not in FIXED_AS_CORE_ATEN
    assert is_free(graph) == free, graph.inputs
    if free and any(len(shape) > 1 for shape in shapes):
        check(graph, module, *inputs(*(larger(graph, i, shape) for i, shape in enumerate(shapes)), seed=3))


def larger(graph: Any, index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with larger heights and widths, which stay even if the given ones are."""
    layout = list(graph.inputs.values())[index].layout
    more = {"H": 4, "W": 6, "C": 0}
    return tuple(extent + more[axis] for axis, extent in zip(layout[1:], shape, strict=True))


OPERATORS_OF_ROWS: set[str] = set()
ROWS_RUN: list[str] = []


def reached(program: torch.export.ExportedProgram, rows: list[Row]) -> None:
    OPERATORS_OF_ROWS.update(operator_name(node) for node in program.graph.nodes if node.op == "call_function")
    ROWS_RUN.extend(case.name for case in rows)


# Other spellings of operators with a row, which torch.export writes as those; or of other builds of PyTorch.
# Those that become functions in the Metal Shading Language, or constants, which test_torch_tokens.py and
# test_torch_functions.py have; those of test_torch_quantized.py.
UNREACHED = {
    "__and__",
    "__or__",
    "__xor__",
    "_upsample_bicubic2d_aa",
    "_upsample_bilinear2d_aa",
    "acos",
    "acosh",
    "affine_grid_generator",
    "all",
    "aminmax",
    "any",
    "arctan2",
    "argsort",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "baddbmm",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cdist",
    "ceil",
    "col2im",
    "copy",
    "copysign",
    "cos",
    "cosh",
    "cosine_similarity",
    "cumprod",
    "diagonal",
    "einsum",
    "empty_like",
    "eq",
    "erf",
    "erfc",
    "exp2",
    "fill",
    "floor",
    "floor_divide",
    "fmod",
    "frac",
    "full_like",
    "gather",
    "greater",
    "greater_equal",
    "grid_sampler",
    "grid_sampler_2d",
    "hardshrink",
    "heaviside",
    "im2col",
    "index_put",
    "isfinite",
    "isinf",
    "isnan",
    "kthvalue",
    "less",
    "less_equal",
    "log10",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "masked_fill",
    "masked_scatter",
    "max_unpool2d",
    "median",
    "nan_to_num",
    "ne",
    "new_empty",
    "new_full",
    "new_ones",
    "new_zeros",
    "not_equal",
    "one_hot",
    "ones_like",
    "prod",
    "quantized_decomposed.dequantize_per_tensor",
    "quantized_decomposed.quantize_per_tensor",
    "remainder",
    "repeat_interleave",
    "rms_norm",
    "roll",
    "rot90",
    "round",
    "scaled_dot_product_attention",
    "select_scatter",
    "sgn",
    "sin",
    "sinh",
    "slice_scatter",
    "sort",
    "take_along_dim",
    "tan",
    "topk",
    "torchvision.deform_conv2d",
    "tril",
    "triu",
    "trunc",
    "unfold",
    "upsample_bicubic2d",
    "zeros_like",
}


def test_every_operator_has_a_row() -> None:
    """An operator without a row is untested."""
    if len(ROWS_RUN) < 2 * len(ROWS) - len(NOT_AS_CORE_ATEN):
        pytest.skip("not all rows were run")
    assert set(OPERATORS) - OPERATORS_OF_ROWS == UNREACHED
