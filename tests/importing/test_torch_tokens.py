# SPDX-License-Identifier: Apache-2.0
"""Tokens, attention, and tensors of any number of axes: modules against PyTorch in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch_support import Function, randomize

import mpscnn
from mpscnn.importing import torch_export

X = (4, 6, 8)  # channels, height, width: all differ


def check(module: nn.Module, *shapes: tuple[int, ...], relative: float = 1e-5, **options: Any) -> mpscnn.Network:
    """Compare the network with PyTorch in float64, for the batch of the import and for others."""
    module = module.eval()
    net = mpscnn.load(module, input_shapes=[(1, *shape) for shape in shapes], options=options or None)
    exact = copy.deepcopy(module).double()
    generator = torch.Generator().manual_seed(1)
    for batch in (1, 2, 5):
        sources = [torch.randn(batch, *shape, generator=generator) for shape in shapes]
        with torch.no_grad():
            expected = exact(*(source.double() for source in sources))
        several = expected if isinstance(expected, (tuple, list)) else [expected]
        found = net(*sources)
        for ours, theirs in zip(found if isinstance(found, tuple) else [found], several, strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=relative * float(theirs.abs().max()))
    return net


def constant(*shape: int) -> torch.Tensor:
    """Values between -1 and 1 that are the same in float32 and float64."""
    count = int(np.prod(shape))
    return ((torch.arange(float(count)) * 37 + 11) % 64 / 32 - 1).view(shape)


def windows(x: torch.Tensor) -> torch.Tensor:
    """Windows of 3 x 4 pixels as images of their own, and back."""
    n, c, h, w = x.shape
    y = x.view(n, c, h // 3, 3, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 12, c)
    y = torch.softmax(y, 1) + F.layer_norm(y, (c,))
    return y.view(n, h // 3, w // 4, 3, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w)


def of_windows(x: torch.Tensor, height: int, width: int, function: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Apply a function of images to windows, and put its results side by side."""
    n, c, h, w = x.shape
    rows, columns = h // height, w // width
    y = x.permute(0, 2, 3, 1).view(n, rows, height, columns, width, c).permute(0, 1, 3, 2, 4, 5)
    y = function(y.reshape(-1, height, width, c).permute(0, 3, 1, 2))
    h, w = y.shape[2:]
    return y.reshape(n, rows, columns, c, h, w).permute(0, 3, 1, 4, 2, 5).reshape(n, c, rows * h, columns * w)


def pooled_windows(x: torch.Tensor) -> torch.Tensor:
    """As in the hierarchical transformer of SAM 2."""
    y = of_windows(x, 3, 4, lambda y: F.max_pool2d(y, 2, 1, 1) * 2)
    z = of_windows(x, 3, 4, lambda y: F.avg_pool2d(F.max_pool2d(y, 2, 1, 1, 2, True), 2, 1, 1))
    return y + z.mean((2, 3), keepdim=True)


def convolved_windows(x: torch.Tensor) -> torch.Tensor:
    """As in DITN, whose attention has channels as its tokens."""

    def attention(y: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(y, constant(4, 4, 1, 1).to(x), constant(4).to(x))
        tokens = y.flatten(2)
        z = (torch.softmax(tokens @ tokens.mT, -1) @ tokens).view(y.shape)
        return F.conv2d(z, constant(4, 4, 1, 1).to(x)) + F.conv2d(z, constant(4, 1, 3, 3).to(x), None, 1, 1, 1, 4)

    y = of_windows(x, 3, 4, attention)
    y = y + of_windows(x, 3, 4, lambda y: F.conv2d(y, constant(4, 4, 3, 3).to(x), None, 1, "same"))
    z = of_windows(y, 3, 4, lambda y: F.conv2d(y, constant(4, 2, 2, 3).to(x), constant(4).to(x), 2, (1, 2), (1, 2), 2))
    z = z + of_windows(y, 3, 4, lambda y: F.conv2d(y, constant(4, 4, 2, 2).to(x))).mean((2, 3), keepdim=True)
    return z + of_windows(y, 3, 4, lambda y: F.conv2d(y, constant(4, 4, 1, 1).to(x), None, 2))


def heads(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    y = x.flatten(2).transpose(1, 2)
    qkv = torch.cat([y, y * 2, y - 1], 2).reshape(n, h * w, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    return (torch.softmax(q @ k.transpose(-2, -1), -1) @ v).transpose(1, 2).reshape(n, h * w, -1)


def padded_queries(x: torch.Tensor) -> torch.Tensor:
    """Queries, keys and values of all images as images of their own, (3 * N, C, H, W), as in DAT."""
    n, c, h, w = x.shape
    qkv = torch.cat([x, x * 2, x - 1], 1).flatten(2).transpose(1, 2).reshape(n, h * w, 3, c).permute(2, 0, 1, 3)
    y = qkv.reshape(3 * n, h, w, c).permute(0, 3, 1, 2)
    y = F.pad(y, (0, 1, 0, 2)) + constant(c, 1, 1).to(x)
    y = F.linear(y.permute(0, 2, 3, 1), constant(c, c).to(x)).permute(0, 3, 1, 2)
    y = y * constant(3, 1, 1, 1, 1).to(x).expand(3, n, c, 1, 1).reshape(3 * n, c, 1, 1)
    q, k, v = y.reshape(3, n, c, -1).transpose(-2, -1).unbind(0)
    return torch.softmax(q @ k.transpose(1, 2), -1) @ v


def shifted_windows(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    y = torch.roll(x.permute(0, 2, 3, 1), (-1, -2), (1, 2))
    y = y.view(n, h // 3, 3, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 12, c)
    qkv = torch.cat([y, y * 2, y - 1], 2).reshape(len(y), 12, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    scores = (q @ k.transpose(-2, -1)).view(n, 4, 2, 12, 12) + torch.arange(576.0, dtype=x.dtype).view(
        1, 4, 1, 12, 12
    ) / 576
    z = torch.softmax(scores.view(-1, 2, 12, 12), -1) @ v
    z = z.transpose(1, 2).reshape(n, h // 3, w // 4, 3, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
    return torch.roll(z, (1, 2), (1, 2)).permute(0, 3, 1, 2)


def anchors(x: torch.Tensor) -> torch.Tensor:
    """The grid of a detector, from the extents of its source."""
    h, w = x.shape[2:]
    rows, columns = torch.arange(h, dtype=x.dtype) + 0.5, torch.arange(w, dtype=x.dtype) + 0.5
    rows, columns = torch.meshgrid(rows, columns, indexing="ij")
    strides = x.new_full((1, h * w), torch.tensor([8.0, 16.0])[1].item())
    return (x[:, :2].flatten(2) + torch.stack([columns, rows]).view(1, 2, -1)) * strides


def ones(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(3, 4, 3, 3, dtype=x.dtype)


def image_of_tokens(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(2).transpose(1, 2).transpose(1, 2).unflatten(2, (6, 8))


def first_token(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([constant(1, 1, 4).to(x).expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], 1)


def repeated_tokens(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(2).transpose(1, 2).unsqueeze(1).expand(-1, 60, -1, -1) + constant(60, 48, 4).to(x)


def masked(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x * 2, x - 1, torch.ones(6, 6, dtype=torch.bool).tril(1))


def merged_behind_an_axis(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(2).permute(2, 0, 1).reshape(48, -1, 2).transpose(0, 1).reshape(len(x), 2, 48, 2)


def replaced_by_numbers(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:3] = x[:, :2] * 2
    y[:, :, 1:-1:2] = 0.5
    y[..., 0] = 0
    y[:, -1, 2] = x[:, 0, 2]
    return y


def copied(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x).copy_(x)
    y[:, 0].copy_(x[:, 1])
    y.select(1, 2).fill_(3.0)
    z = x.new_empty(len(x), 2, 6, 8)
    z[:, :1] = x[:, 3:]
    z[:, 1:] = -1.5
    return torch.cat([y, z], 1)


def heads_of_windows(x: torch.Tensor) -> torch.Tensor:
    """Windows, taken together with the batch, taken together with heads behind an axis in front; whole slices."""
    n, c, h, w = x.shape
    y = x.view(n, c, h // 3, 3, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 12, c)[:, :12]
    count = len(y)
    qkv = torch.cat([y, y * 2, y - 1], 2).reshape(count, 12, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.reshape(3, count * 2, 12, -1).unbind(0)
    z = torch.softmax(q @ k.transpose(-2, -1), -1) @ v
    z = z.view(count, 2, 12, -1).transpose(1, 2).reshape(count, 12, -1)[:count, :12, :]
    return z.view(n, h // 3, w // 4, 3, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w)


def normalized_tokens_of_all_images(x: torch.Tensor) -> torch.Tensor:
    y = x.flatten(2).transpose(1, 2)
    mean, variance, weight = (constant(4).to(x) + 0.5 * i for i in range(3))
    return F.batch_norm(y.flatten(0, 1), mean, variance.abs() + 0.5, weight, mean * 2).reshape_as(y)


def indexed_blocks(x: torch.Tensor) -> torch.Tensor:
    """Values in another order, of blocks that are taken together with the batch, and behind an axis in front."""
    n, c, h, w = x.shape
    y = x.reshape(-1, h, w)[:, :, torch.tensor([3, 0, 7, 1, 1])].reshape(n, c, h, 5)
    return y.permute(1, 0, 2, 3)[:, :, torch.tensor([5, 2, 0])].permute(1, 0, 2, 3)


def constants_around_the_batch(x: torch.Tensor) -> torch.Tensor:
    """Constants that broadcast with axes in front of the batch."""
    y = x.view(len(x), 2, 2, 6, 8).permute(1, 2, 0, 3, 4)  # two axes of equal extent, the batch, rows, columns
    y = y + constant(2, 1, 1, 6, 8).to(x) + constant(2, 1, 1, 1).to(x) * 3 + constant(8).to(x)
    y = torch.where(constant(2, 1, 1, 1, 8).to(x) > 0, y, constant(2, 1, 6, 1).to(x))
    return y.permute(2, 0, 1, 3, 4).reshape(x.shape)


def state_in_place(x: torch.Tensor) -> torch.Tensor:
    """Operators that change constants of the forward pass in place, as the first step of an LSTM cell."""
    state = x.new_zeros(len(x), 4, 6, 8).add_(0.25)
    gates = F.relu(F.conv2d(state, constant(4, 4, 1, 1).to(x)).sub_(0.1), inplace=True)
    return x * gates.mul_(2) + state


def masked_windows(x: torch.Tensor) -> torch.Tensor:
    """A mask for each window, repeated for each image."""
    y = x.reshape(-1, 6, 2, 4).transpose(1, 2)
    mask = constant(4, 1, 6, 6).to(x).expand(-1, 2, -1, -1).repeat(len(x), 1, 1, 1)
    y = F.scaled_dot_product_attention(y, y * 2, y - 1, mask)
    return y.transpose(1, 2).reshape(x.shape)


def rounded(x: torch.Tensor) -> torch.Tensor:
    return torch.floor(x * 3) + torch.ceil(x * 5) + torch.round(x * 7) + torch.trunc(x * 2) + torch.sign(x)


CASES: dict[str, Callable[..., Any]] = {
    "tokens": lambda x: x.flatten(2).transpose(1, 2),
    "tokens_and_back": lambda x: (x.flatten(2).transpose(1, 2) * 2).transpose(1, 2).reshape(x.shape) + x,
    "convolution_of_tokens": lambda x: F.conv2d(image_of_tokens(x), ones(x)),
    "convolution_across_rows": lambda x: F.conv2d(x.transpose(1, 2), torch.ones(3, 6, 3, 3, dtype=x.dtype)),
    "sequence_of_tokens": lambda x: F.conv1d(x.permute(0, 2, 3, 1).flatten(1, 2), torch.ones(3, 48, 2, dtype=x.dtype)),
    "channels_of_rows": lambda x: F.batch_norm(x.permute(0, 2, 3, 1), constant(6).to(x), constant(6).abs().to(x) + 1),
    "channels_first_again": lambda x: F.group_norm(image_of_tokens(x), 2),
    "pooling_of_rows": lambda x: F.max_pool2d(x.permute(0, 2, 3, 1), 2),
    "resized_tokens": lambda x: F.interpolate(image_of_tokens(x), scale_factor=2),
    "windows": windows,
    "pooled_windows": pooled_windows,
    "convolved_windows": convolved_windows,
    "shifted_windows": shifted_windows,
    "padded_queries": padded_queries,
    "heads": heads,
    "heads_of_windows": heads_of_windows,
    "normalized_tokens_of_all_images": normalized_tokens_of_all_images,
    "indexed_blocks": indexed_blocks,
    "constants_around_the_batch": constants_around_the_batch,
    "state_in_place": state_in_place,
    "five_axes": lambda x: x.view(len(x), 2, 2, 6, 8).permute(0, 4, 1, 3, 2).contiguous(),
    "sum_of_groups": lambda x: x.view(len(x), 2, 2, 6, 8).sum(2),
    "mean_of_a_part": lambda x: x.view(len(x), 4, 2, 3, 8).mean((2, 4)),
    "max_of_a_part": lambda x: x.view(len(x), 4, 2, 3, 8).amax(2, keepdim=True),
    "softmax_of_groups": lambda x: torch.softmax(x.view(len(x), 2, 2, 6, 8), 2),
    "softmax_of_tokens": lambda x: torch.softmax(x.flatten(2), 2) + x.flatten(2).mean(2, keepdim=True),
    "variance_of_tokens": lambda x: x.flatten(2).var(2),
    "normalized_images": lambda x: F.layer_norm(x.flatten(2), (48,), constant(48).to(x), constant(48).to(x)),
    "normalized_rows": lambda x: F.layer_norm(x, (8,), constant(8).to(x), constant(8).to(x)),
    "normalized_rows_and_columns": lambda x: F.layer_norm(x, (6, 8), constant(6, 8).to(x)),
    "linear_of_rows": lambda x: F.linear(x, constant(5, 8).to(x), constant(5).to(x)),
    "linear_of_five_axes": lambda x: F.linear(x.view(len(x), 2, 2, 6, 8), constant(5, 8).to(x)),
    "linear_of_merged": lambda x: F.linear(x.view(-1, 12), constant(5, 12).to(x)).view(len(x), 16, 5),
    "cat_of_tokens": lambda x: torch.cat([x.flatten(2).transpose(1, 2), x.flatten(2).transpose(1, 2) * 2], 1),
    "cat_of_five_axes": lambda x: torch.cat([x.view(len(x), 2, 2, 6, 8)] * 2, 2),
    "cat_of_last_axis": lambda x: torch.cat([x.view(len(x), 2, 2, 6, 8) + i for i in range(2)], 4),
    "cat_with_constant": first_token,
    "cat_with_nothing": lambda x: torch.cat([x.flatten(2)[:, :0], x.flatten(2)[:, 1:], x[:, :0].flatten(2)], 1) * 2,
    "split_of_tokens": lambda x: x.flatten(2).transpose(1, 2).split([8, 40], 1)[1],
    "part_with_step": lambda x: x.view(len(x), 2, 2, 6, 8)[:, :, :, 1::2],
    "repeated": lambda x: x.view(len(x), 2, 2, 48).repeat(1, 1, 3, 2),
    "expanded": lambda x: x.view(len(x), 2, 1, 2, 48).expand(-1, -1, 3, -1, -1) * 2,
    "large_constant": repeated_tokens,
    "broadcast_of_computed": lambda x: x.view(len(x), 2, 2, 48) * x.view(len(x), 2, 2, 48).mean(2, keepdim=True),
    "flip": lambda x: x.flip(2, 3) + x.flip(1),
    "roll": lambda x: torch.roll(x, (2, -3, 1), (1, 2, 3)),
    "roll_by_an_extent": lambda x: torch.roll(x, (6, -8, 1), (2, 3, 1)),
    "replaced_by_numbers": replaced_by_numbers,
    "copied": copied,
    "values_by_index": lambda x: x[:, [0, 3, -1], [5, 1, 0], [7, 0, -8]],
    "blocks_by_index": lambda x: x[:, torch.tensor([[0], [-2], [1]]), torch.tensor([2, 0])],
    "root_mean_square": lambda x: F.rms_norm(x, (6, 8), constant(6, 8).to(x), 0.1) + F.rms_norm(x, (8,), eps=1e-5),
    "rows_by_index": lambda x: x[:, :, torch.tensor([5, 0, 0, 3])],
    "products": lambda x: x @ x.transpose(2, 3),
    "products_with_constants": lambda x: constant(7, 6).to(x) @ x + constant(4, 7, 6).to(x) @ x,
    "products_that_broadcast": lambda x: x.mean(1, keepdim=True).mT @ x,
    "bmm": lambda x: torch.bmm(x.view(-1, 6, 8), x.view(-1, 6, 8).transpose(1, 2)).view(len(x), 4, 6, 6),
    "baddbmm": lambda x: torch.baddbmm(x.flatten(2) @ x.flatten(2).mT, x.flatten(2), x.flatten(2).mT, beta=0.5),
    "einsum": lambda x: torch.einsum("nchw,ncvw->nhcv", x, x * 2),
    "einsum_of_merged": lambda x: torch.einsum("nij,nkj->nik", *[x.view(-1, 6, 8)] * 2).view(len(x), 4, 6, 6),
    "einsum_with_constant": lambda x: torch.einsum("nchw,cwk->nhck", x, constant(4, 8, 5).to(x)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x * 2, x - 1),
    "attention_scaled": lambda x: F.scaled_dot_product_attention(x, x * 2, x - 1, scale=0.3),
    "attention_of_grouped_heads": lambda x: F.scaled_dot_product_attention(
        x.repeat(1, 2, 1, 1), x * 2, x - 1, enable_gqa=True
    ),
    "attention_causal": lambda x: F.scaled_dot_product_attention(x, x * 2, x - 1, is_causal=True),
    "attention_masked": masked,
    "attention_of_masked_windows": masked_windows,
    "attention_with_bias": lambda x: F.scaled_dot_product_attention(x, x * 2, x - 1, constant(4, 6, 6).to(x)),
    "attention_with_constant_queries": lambda x: F.scaled_dot_product_attention(
        constant(1, 4, 3, 8).to(x).expand(len(x), -1, -1, -1), x * 2, x - 1
    ),
    "attention_to_constants": lambda x: F.scaled_dot_product_attention(
        x, constant(1, 4, 5, 8).to(x).expand(len(x), -1, -1, -1), constant(4, 5, 8).to(x)
    ),
    "attention_of_grouped_constant_heads": lambda x: F.scaled_dot_product_attention(
        x, constant(1, 2, 5, 8).to(x), x.repeat(1, 1, 1, 1)[:, :, :5], enable_gqa=True
    ),
    "batch_second": lambda x: (x.flatten(2).permute(2, 0, 1) @ constant(4, 3).to(x)).permute(1, 2, 0),
    "merged_behind_an_axis": merged_behind_an_axis,
    "anchors": anchors,
    "patches": lambda x: F.unfold(x, (3, 2), stride=(3, 2)) * 2,
    "patches_and_back": lambda x: F.fold(F.unfold(x, (3, 2), stride=(3, 2)) * 2, (6, 8), (3, 2), stride=(3, 2)),
    "convolution_of_patches": lambda x: F.conv2d(F.unfold(x, 2, stride=2).view(len(x), 4, 4, 12), ones(x)),
    "repeated_in_place": lambda x: x.repeat_interleave(3, 1) + x.repeat_interleave(3, -3),
    "sine": lambda x: torch.sin(x) + torch.cos(x),
    "rounding": rounded,
}  # fmt: skip


@pytest.mark.parametrize("weights", ["none", "mean", "of_heads"])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_with_weights(weights: str, masked: bool) -> None:
    attention = randomize(nn.MultiheadAttention(12, 3, batch_first=True))
    mask = torch.ones(5, 5).triu(1).bool() if masked else None

    class Attended(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: torch.Tensor) -> Any:
            y = x.flatten(2).transpose(1, 2)
            results = self.attention(y, y, y, attn_mask=mask, average_attn_weights=weights == "mean")
            return results[0] if weights == "none" else results

    check(Attended(), (12, 5, 1))


@pytest.mark.parametrize("aligned", [False, True])
def test_affine_grid(aligned: bool) -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        theta = (x.mean((2, 3)) @ constant(4, 6).to(x)).view(-1, 2, 3)
        grid = F.affine_grid(theta, [len(x), 1, 5, 2], align_corners=aligned)
        return (
            F.grid_sample(x, F.affine_grid(theta, list(x.shape), aligned), align_corners=aligned)[:, :, :5, :2]
            + (grid.permute(0, 3, 1, 2)[:, :1])
        )

    check(Function(turned), X)


@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
    check(Function(CASES[name]), X)


def test_pooling_of_many_windows() -> None:
    """An image does not have as many channels as all windows have together."""
    for pool in (nn.MaxPool2d(2), nn.AvgPool2d((1, 2), (2, 1))):
        check(Function(lambda x, pool=pool: of_windows(x, 2, 2, pool) * 2), (16, 48, 48))
    overlapping = Function(lambda x: of_windows(x, 2, 2, nn.MaxPool2d(2, 1)))
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="576 parts with 16 channels, of windows that overlap"):
        mpscnn.load(overlapping, input_shapes=(1, 16, 48, 48))


@pytest.mark.parametrize("batch_first", [False, True])
def test_multi_head_attention(batch_first: bool) -> None:
    attention = randomize(nn.MultiheadAttention(12, 3, batch_first=batch_first))

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.flatten(2).transpose(1, 2) if batch_first else x.flatten(2).permute(2, 0, 1)
            y = self.attention(y, y, y, need_weights=False)[0]
            return y if batch_first else y.transpose(0, 1)

    check(Tokens(), (12, 3, 5))


def test_core_aten() -> None:
    """The functions are also right as decomposed by PyTorch."""
    module = Function(lambda x: torch.softmax(x.flatten(2) @ x.flatten(2).transpose(1, 2), -1))
    x = torch.randn(2, *X)
    with torch_export.quiet():
        program = torch.export.export(module, (x,)).run_decompositions()
    np.testing.assert_allclose(mpscnn.load(program)(x), module(x).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x: x.transpose(0, 1).sum(1), "along the batch"),
        (lambda x: x.view(-1, 6, 8)[1:], "along the batch"),
        (lambda x: x.permute(1, 2, 3, 0), "the axis of the batch at place 3"),
        (lambda x: x.view(-1, 6, 8) + constant(8, 1, 8), "do not broadcast$"),
        (lambda x: x.repeat_interleave(2, 0), "the batch repeated"),
        (lambda x: torch.einsum("nchw,nkhw->ck", x, x), "einsum"),
        (lambda x: F.scaled_dot_product_attention(x, x, x, constant(2, 4, 6, 6)), "for each image|of its own"),
    ],
)
def test_refused(body: Callable[..., Any], reason: str) -> None:
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=reason):
        mpscnn.load(Function(body), input_shapes=(2, *X))


def test_more_rows_than_an_image_has() -> None:
    """Patches as an axis in front: 2 x 8,450 rows of 4 values would be an image of 16,900 rows."""

    def body(x: torch.Tensor) -> torch.Tensor:
        y = x.view(len(x), 2, 130, 2, 130, 2).permute(0, 1, 2, 4, 3, 5)  # N, C, rows, columns, 2, 2
        return torch.softmax(y * 2, -1) + y

    check(Function(body), (2, 260, 260))


def test_a_stack_of_images_with_more_values_than_channels() -> None:
    """Selective kernels stack their branches: 2 x 48 x 100 values behind the new axis are no channels of a pixel."""

    def body(x: torch.Tensor) -> torch.Tensor:
        y = torch.stack([x, x * 2], 1)
        weights = torch.cat([y.sum(1).mean((2, 3))] * 2, 1).view(-1, 2, 2, 1, 1)
        return (y * torch.softmax(weights * 3, 1)).sum(1)

    check(Function(body), (2, 48, 100))


class Boxes(nn.Module):
    """The head of a detector whose boxes, of three sizes of cells, are more than an image has channels."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        count = sum(size * size for size in sizes)
        self.sizes = sizes
        self.heads = nn.ModuleList(nn.Conv2d(8, 4 * 4 + 6, 1) for _ in sizes)
        self.bins = nn.Conv2d(4, 1, 1, bias=False)
        self.register_buffer("anchors", torch.rand(2, count))
        self.register_buffer("strides", torch.rand(1, count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cells = [head(F.adaptive_avg_pool2d(x, n)) for head, n in zip(self.heads, self.sizes, strict=True)]
        boxes, classes = torch.cat([cell.view(len(x), 22, -1) for cell in cells], 2).split((16, 6), 1)
        count = boxes.shape[2]
        distances = self.bins(boxes.view(len(x), 4, 4, count).transpose(2, 1).softmax(1)).view(len(x), 4, count)
        before, behind = distances.chunk(2, 1)
        first, last = self.anchors - before, self.anchors + behind
        corners = torch.cat(((first + last) / 2, last - first), 1) * self.strides
        return torch.cat((corners, classes.sigmoid()), 1)


@pytest.mark.parametrize("sizes", [(80, 40, 20), (91, 28), (8, 4)])
def test_more_boxes_than_channels(sizes: tuple[int, ...]) -> None:
    """8,400 boxes, an odd number of 9,065, and 80."""
    module = Boxes(sizes).eval()
    x = torch.randn(2, 8, sizes[0], sizes[0])
    with torch.no_grad():
        expected = module(x).numpy()
    net = mpscnn.load(module, input_shapes=x.shape)
    found = np.asarray(net(x.numpy()))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_table_that_no_image_holds() -> None:
    body = lambda x: x.flatten(1).unsqueeze(2) * x.flatten(1).unsqueeze(1)  # noqa: E731
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="more than the maximum"):
        mpscnn.load(Function(body), input_shapes=(1, 4, 96, 96))
