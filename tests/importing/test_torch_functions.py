# SPDX-License-Identifier: Apache-2.0
"""Operators that are Metal functions: choices, comparisons, rounding, orders, samples, replaced parts; in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_torch_tokens import X, check, constant
from torch import nn
from torch_support import Function

import mpscnn


def unary(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    inside, beyond = torch.tanh(x) * 0.99, x.abs() + 1.5
    return (
        *(f(x) for f in (torch.sin, torch.cos, torch.atan, torch.sinh, torch.cosh, torch.asinh, torch.sgn)),
        *(f(inside) for f in (torch.tan, torch.asin, torch.acos, torch.atanh)),
        *(f(beyond) for f in (torch.acosh, torch.log2, torch.log10, torch.log1p)),
        *(f(x) for f in (torch.erf, torch.erfc, torch.expm1, torch.exp2, torch.frac)),
        torch.erf(x * 1e-3) * 1e3,
        torch.expm1(x * 1e-4) * 1e4,
        torch.log1p(x.abs() * 1e-4) * 1e4,
    )


def comparisons(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.round(x)
    z = y.flip(3)
    found = [y > z, y >= z, y < z, y <= z, y == z, y != z, y > 0, y > 0, y == y.amax(1, keepdim=True)]
    found += [(y > 0) & (z > 0), (y > 0) | (z > 0), (y > 0) ^ (z > 0), ~(y > 0), torch.logical_not(y)]
    found += [(y > 1).any(1), (y > -1).all(3), (y > 1).any(1, keepdim=True) & (y > 0)]
    return tuple(one.to(x.dtype) for one in found)


def choices(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.where(x > 0.1, x, x * 0.5 - 1),
        torch.where(x > x.mean(1, keepdim=True), x.exp(), torch.zeros((), dtype=x.dtype)),
        torch.where(constant(6, 8) > 0, x, x.flip(1)),
        torch.where(x > 0, constant(4, 1, 1).to(x), constant(8).to(x)),
        x.masked_fill(x > 0.5, -1.0),
        (x @ x.mT).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e9),
        torch.where(x.mean((2, 3), keepdim=True) > 0, x, -x),
        F.threshold(x, 0.2, -1.0) + F.hardshrink(x),
        torch.tril(x) + torch.triu(x, 2),
        torch.clamp(x, x - 1, x.flip(1) + 1),
        torch.maximum(x, x.mean(1, keepdim=True)) + torch.minimum(x, constant(8).to(x)),
        torch.maximum(x.view(len(x), 2, 2, 6, 8), x.view(len(x), 2, 2, 6, 8).flip(4)),
    )


def arithmetic(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 5
    return (
        torch.atan2(x, x.flip(2) + 3),
        *(f(y, 1.5) for f in (torch.fmod, torch.remainder)),
        torch.remainder(y, torch.where(x > 0, 2.0, -2.0)),
        *(torch.div(y, 2, rounding_mode=mode) for mode in ("floor", "trunc")),
        y // (x.flip(1).sign() * 1.5),
        (x.abs() + 0.1) ** x.flip(1),
        (x.abs() + 0.1) ** torch.tensor([1.0, 2.0, 0.5, 3.0]).view(1, 4, 1, 1).to(x),
        torch.copysign(x.exp(), x),
        (x * 3).long().to(x.dtype),
        ((x * 3).int() * 2 + 1).to(x.dtype) + (x > 0).long().to(x.dtype),
        (x.argmax(1) // 2 + x.argmax(1) % 3).to(x.dtype),
        torch.heaviside(x, torch.tensor(0.5, dtype=x.dtype)),
    )


def orders(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, places = torch.topk(x.flatten(2), 5, -1)
    tokens = x.flatten(2)
    best = torch.topk(tokens[:, :1], 5, -1)[1]
    return (
        values,
        places.to(x.dtype),
        torch.topk(x, 3, 2, largest=False)[0],
        torch.sort(x, 3)[0],
        torch.sort(x, 1, descending=True)[1].to(x.dtype),
        torch.argsort(x, 3).to(x.dtype),
        torch.gather(tokens, 2, best.expand(-1, 4, -1)),
        torch.gather(x, 3, x.argmax(1, keepdim=True)[..., :5].expand(-1, 4, -1, -1)),
        torch.cumsum(x, 2) + torch.cumsum(x, 1),
        torch.cumprod(x, 3),
        x.prod(1) + x.prod(1, keepdim=True).squeeze(1),
        x.argmax(2).to(x.dtype) + x.argmin(2).to(x.dtype),
        x.flatten(1).argmax(1).to(x.dtype),
        F.one_hot(x.argmax(1), 4).to(x.dtype),
        x.view(len(x), 2, 2, 6, 8).max(2)[0],
        x.view(len(x), 2, 2, 6, 8).log_softmax(2),
        x.view(len(x), 2, 2, 6, 8).logsumexp(2),
    )


def chosen(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    tokens = x.flatten(2)
    index = torch.tensor([[2, 0, 3, 3], [1, 1, 0, 2]])
    several = torch.arange(2 * 6 * 8).view(1, 2, 6, 8) * 7 % 4
    values, places = x[:, :3].median(1)
    return (
        values,
        places.to(x.dtype),
        x.median(3, keepdim=True)[0],
        tokens.kthvalue(5)[0],
        x.kthvalue(2, 2, keepdim=True)[1].to(x.dtype),
        *x.aminmax(dim=2),
        torch.gather(x, 1, several.expand(len(x), 2, 6, 8)),
        torch.gather(tokens, 2, index[:, None].expand(2, 3, 4)[:1].expand(len(x), 3, 4)),
        torch.take_along_dim(x, index[:1, :, None, None], 1),
        torch.take_along_dim(x, several[:, :1, :3], 2),
        torch.take_along_dim(x, x.argmax(1, keepdim=True), 1),
    )


def distances(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    tokens = x.flatten(2).transpose(1, 2)
    places = constant(5, 4).to(x)
    return (
        F.cosine_similarity(x, x.flip(2)),
        F.cosine_similarity(x, x.mean((2, 3), keepdim=True), 1),
        F.cosine_similarity(x, constant(4, 1, 1).to(x)),
        F.cosine_similarity(tokens.unsqueeze(2), places[None, None], dim=-1),
        F.cosine_similarity(tokens * 0, tokens, dim=2),
        torch.cdist(tokens, tokens[:, :7]),
        torch.cdist(tokens, tokens.flip(1) * 2, p=1.0),
        torch.cdist(tokens, places.expand(len(x), 5, 4), p=math.inf),
    )


def sampled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, columns = torch.linspace(-1, 1, 5, dtype=x.dtype), torch.linspace(-0.9, 1.1, 7, dtype=x.dtype)
    same = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).expand(len(x), 5, 7, 2)
    moved = torch.tanh(x[:, :2] * 1.5).permute(0, 2, 3, 1) * 1.7
    found = [F.grid_sample(x, same, align_corners=False)]
    for mode, padding in itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")):
        found.append(F.grid_sample(x, moved, mode, padding, align_corners=(mode == "bicubic") == (padding == "border")))
    return tuple(found)


def resized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        F.interpolate(x, scale_factor=2, mode="bicubic"),
        F.interpolate(x, scale_factor=1.7, mode="bicubic"),
        F.interpolate(x, size=(9, 5), mode="bicubic", align_corners=True),
        F.interpolate(x, size=(3, 5), mode="bicubic", antialias=True),
        F.interpolate(x, size=(3, 5), mode="bilinear", antialias=True),
        F.interpolate(x, size=(9, 5), mode="bilinear", antialias=True),
        F.pad(x, (1, 2, 2, 1), mode="circular"),
        F.avg_pool2d(x, 2, 3, 0, ceil_mode=True),
        F.avg_pool2d(x, (3, 5), (2, 3), (1, 2), ceil_mode=True, divisor_override=3),
        F.local_response_norm(x, 2, 1e-2, 0.5, 2.0),
    )


def replaced(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.clone()
    y[:, 1:3] = x[:, 1:3] * 2 + 1
    y[..., ::2] = y[..., ::2].sigmoid()
    larger = torch.zeros(len(x), 8, 6, 8, dtype=x.dtype)
    larger[:, 2:6] = x
    filled, masked = x.clone(), x.clone()
    filled[:, :, torch.tensor([1, 3])] = 0.5
    masked[:, torch.tensor([True, False, True, False])] = 0.5
    return (
        y,
        larger,
        filled,
        masked,
        torch.select_scatter(x, x[:, 0] * 2, 1, 2),
        torch.diagonal(x, 1, 2, 3),
        torch.rot90(x, 1, (2, 3)),
        torch.rot90(x, 3, (1, 3)),
    )


def replaced_by_masks(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, rows, images, tokens, pixels, part = (x.clone() for _ in range(6))
    values[x > 0.25] = -2.0
    rows[x.mean((1, 3))[:, None, :].expand(-1, 4, -1) > 0] = 0.5
    images[x.mean((2, 3)) > 0] = torch.tensor([3.0])
    tokens = tokens.flatten(2).transpose(1, 2)
    tokens[tokens[..., 1] > tokens[..., 2]] = 0
    pixels[:, :, torch.arange(48).view(6, 8) % 3 == 0] = 0.5
    part[:, 0][x[:, 1] > 0] = 0.25
    return values, rows, images, tokens, pixels, part


def counted(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Parts whose number depends on values of constants."""
    upper = torch.ones(4, 4).triu().view(-1).nonzero()
    odd = torch.arange(8) % 2 > 0
    several = torch.arange(48).view(6, 8) % 5 > 1
    steps = torch.unique(torch.tensor([3, 1, 3, 1, 2]))
    count = torch.arange(9)[torch.arange(9) > 3].sum() + (torch.arange(5) > 2).nonzero().shape[0]
    scattered = x.masked_scatter(several, x.flatten(2)[:, :, :28] * 2)
    return (
        (x.flatten(2) @ x.flatten(2).mT).flatten(1)[:, upper],
        x[:, torch.tensor([True, False, True, True])],
        x[..., odd] * torch.tensor([1.0, 2.0, 0.5, -1.0, 3.0]).to(x)[torch.tensor([0, 1, 1, 1, 1]) > 0],
        x[:, :, several].softmax(2),
        x[:, :, steps] + x[:, :, steps.view(3, 1)].squeeze(3),
        x * torch.masked_select(torch.arange(9), torch.arange(9) > 0).to(x) + count,
        scattered,
    )


def patches(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        F.unfold(x, 3, padding=1),
        F.unfold(x, (3, 2), dilation=(2, 1), stride=(1, 2)),
        F.fold(F.unfold(x, 3, padding=1, stride=2), (6, 8), 3, padding=1, stride=2),
        x.unfold(2, 3, 2).unfold(3, 4, 2).mean((4, 5)),
    )


def einsums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.einsum("bchw->bhwc", x),
        torch.einsum("bchw->bc", x),
        torch.einsum("bchw,bdhw->bcd", x, x * 2),
        torch.einsum("bchw,bcvw,bchv->bcw", x, x * 0.5, x @ x.mT),
        torch.einsum("bchw,bd->bcd", x, x.mean((2, 3))),
    )


GROUPS: list[Callable[[torch.Tensor], Any]] = [
    *(unary, comparisons, choices, arithmetic, orders, chosen, distances, sampled, resized, replaced),
    *(replaced_by_masks, counted, patches, einsums),
]  # fmt: skip


@pytest.mark.parametrize("function", GROUPS)
def test_function(function: Callable[[torch.Tensor], Any]) -> None:
    # take_along_dim makes numbers of the extents: it is read again for another number of images.
    options = {} if function is chosen else {"free_size": False}
    check(Function(function), X, **options)


@pytest.mark.parametrize(
    ("shape", "dim", "k"),
    [
        ((4, 60, 80), 1, 300),  # parts of equal length
        ((1, 8209, 1), 1, 17),  # a prime number
        ((8, 84, 105), 1, 300),  # parts of parts
        ((2, 9000, 3), 2, 10),
        ((1, 120, 100), 1, 4000),
    ],
)
@pytest.mark.parametrize("largest", [True, False])
def test_best_of_more_values_than_channels(shape: tuple[int, ...], dim: int, k: int, largest: bool) -> None:
    """Values are equal in many places: the first of these are wanted."""

    def body(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.floor(x * 8).flatten(1) if dim == 1 else torch.floor(x * 8)
        values, places = y.topk(k, dim, largest)
        one = y.argmax(dim) if largest else y.argmin(dim)
        return values, places.float(), one.float()

    net = mpscnn.load(Function(body), input_shapes=(1, *shape))
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(k))
    values, places, one = net(x)
    y = torch.floor(x * 8).flatten(1) if dim == 1 else torch.floor(x * 8)
    order = torch.argsort(y, dim=dim, descending=largest, stable=True)
    np.testing.assert_array_equal(places, order.narrow(dim, 0, k).numpy())
    np.testing.assert_array_equal(values, y.gather(dim, order.narrow(dim, 0, k)).numpy())
    np.testing.assert_array_equal(one, order.select(dim, 0).numpy())


@pytest.mark.parametrize(
    ("shape", "first", "dim"),
    [
        ((2, 90, 100), 2, 2),
        ((3, 60, 50), 1, 1),
        ((3, 200, 100), 2, -1),  # more than an image has columns
        ((2, 9000, 3), 3, 2),
    ],
)
def test_picks_of_more_values_than_channels(shape: tuple[int, ...], first: int, dim: int) -> None:
    """The boxes of a detector's best pixels, as CenterNet takes them."""

    def body(x: torch.Tensor) -> torch.Tensor:
        places = torch.topk(x.flatten(first) * -1.5, 5, dim)[1]
        return torch.gather(torch.tanh(x).flatten(first), dim, places)

    check(Function(body), shape)


def test_too_many_of_more_values_than_channels() -> None:
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="the 5000 largest of 12000 values: at most 4096 of more"):
        mpscnn.load(Function(lambda x: x.flatten(1).topk(5000, 1)[0]), input_shapes=(1, 1, 120, 100))


def test_more_columns_than_an_image_has() -> None:
    """A detector's boxes at four scales, with the softmax over distances of each."""

    class Boxes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scales = [x, *(F.avg_pool2d(x, n) for n in (2, 4))]
            y = torch.cat([one.flatten(2) for one in scales], 2)
            z = y.view(len(x), 2, 4, -1).transpose(2, 1).softmax(1)
            return F.conv2d(z, constant(1, 4, 1, 1).to(x), constant(1).to(x)).squeeze(1) + y[:, :2]

    check(Boxes(), (8, 120, 128))


def test_sums_of_stacked_tensors_leave_sizes_free() -> None:
    """Feature pyramids add their levels so, and the branches of a block are added behind the batch."""

    def body(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x)
        return (
            torch.stack([x, y, y * 3]).sum(dim=0),
            torch.stack([x, y * 2, y]).mean(0),
            torch.stack([x, y * 3], dim=1).sum(1),
            torch.stack([x, y * 5], dim=-1).mean(dim=4),
        )

    net = check(Function(body), X)
    assert not net.inputs["tensors_0"].fixed_by
    x = torch.randn(2, 4, 9, 5)
    for ours, theirs in zip(net(x), body(x), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-6)


class Unpooled(nn.Module):
    """Maxima and minima of windows, at the places of the maxima; `like`: the size is the source's."""

    def __init__(
        self, kernel: Any, stride: Any = None, padding: int = 0, ceil: bool = False, like: bool = True
    ) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel, stride, padding, return_indices=True, ceil_mode=ceil)
        self.unpool = nn.MaxUnpool2d(kernel, stride, padding)
        self.like = like

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, places = self.pool(x)
        size = x.shape[-2:] if self.like else None
        return self.unpool(y, places, size), self.unpool(self.pool(-x)[0], places, size)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads of PyTorch's max_unpool2d that write to one place do so in any order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("module", "size"),
    [
        (Unpooled(2), (9, 7)),
        (Unpooled(2, ceil=True), (9, 7)),
        (Unpooled(2, like=False), (10, 14)),
        (Unpooled((3, 2)), (12, 5)),
        (Unpooled(3, 2, 1), (8, 11)),  # a max of several windows: the last one's value
        (Unpooled(2, 3), (9, 8)),
        (Unpooled(4, 1, 2), (7, 6)),
    ],
)
def test_unpooling(module: Unpooled, size: tuple[int, int], one_thread: None) -> None:
    """SegNet's and ENet's decoders, at all sizes."""
    net = check(module, (5, 6, 8))
    assert not net.inputs["x"].fixed_by
    x = torch.randn(3, 5, *size)
    x[:, 1] = x[:, 1].round()  # equal maxima
    x[:, 2, :3] = -np.inf
    x[0, 3, 2, 2:4] = np.nan
    for ours, theirs in zip(net(x), module(x), strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())


def test_unpooling_to_other_places() -> None:
    """Places count rows of the source, also in a result of other rows; beyond it, PyTorch raises an error for some."""

    def body(x: torch.Tensor, size: Any = None) -> torch.Tensor:
        y, places = F.max_pool2d(x, 2, 2, return_indices=True)
        return F.max_unpool2d(y, places, 2, 2, output_size=size)

    net = mpscnn.load(Function(lambda x: body(x, (7, 9))), input_shapes=(1, 5, 6, 8), options={"free_size": False})
    x = torch.randn(2, 5, 6, 8)
    np.testing.assert_array_equal(net(x), body(x, (7, 9)).numpy())
    net = mpscnn.load(Function(body), input_shapes=(1, 5, 6, 8))
    np.testing.assert_array_equal(net(x[:, :, :4, :6]), body(x[:, :, :4, :6]).numpy())
    with pytest.raises(ValueError, match=r"9 x 7 pixels may be beyond the 8 x 6"):
        net(torch.randn(1, 5, 9, 7))


def test_elementwise_functions_leave_sizes_free() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        y = torch.where(x > x.mean(1, keepdim=True), torch.erf(x), constant(4, 1, 1).to(x))
        return torch.maximum(y, y.mean((2, 3), keepdim=True)) + torch.floor(x)

    net = check(Function(body), X)
    assert next(iter(net.inputs.values())).fixed_by == ""
    x = torch.randn(2, 4, 9, 5)
    np.testing.assert_allclose(net(x), body(x).numpy(), atol=1e-6)


SPECIAL = torch.tensor([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e30, -1e-30, 0.5, 1.5, 2.5])


def special(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *(f(x) for f in (torch.erf, torch.erfc, torch.expm1, torch.floor, torch.round, torch.trunc, torch.exp2)),
        torch.log1p(x.abs()),
        *((one).to(x.dtype) for one in (x > y, x <= y, x == y, x != y, torch.isnan(x), torch.isinf(x), x.bool())),
        torch.where(x > 0, x, y),
        torch.maximum(x, y[:, :1]),
        torch.minimum(x[:, 6:7], y),
        torch.nan_to_num(x, 2.0),
        torch.sort(x, 1)[0],
        torch.sort(x, 1, descending=True)[0],
    )


def test_special_values() -> None:
    """NaN, infinities and signed zeros are as in PyTorch's float32."""
    module = Function(special).eval()
    x = torch.stack([SPECIAL, SPECIAL.flip(0)])
    y = x.roll(1, 1)
    net = mpscnn.load(module, input_shapes=[(1, 12), (1, 12)])
    for ours, theirs in zip(net(x, y), module(x, y), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=3e-7, atol=1.5e-7)


@pytest.mark.parametrize(("kind", "size"), [("avg", (13, 9)), ("max", (13, 9)), ("avg", (50, 30))])
def test_adaptive_pooling_to_many_areas(kind: str, size: tuple[int, int]) -> None:
    """Areas that differ, more than are pooled one by one."""
    pool = nn.AdaptiveAvgPool2d(size) if kind == "avg" else nn.AdaptiveMaxPool2d(size)
    check(nn.Sequential(nn.Conv2d(3, 600, 1), pool), (3, 61, 47))


def test_nearest_to_a_size_that_repeats_unevenly() -> None:
    check(nn.Upsample(size=(75, 101)), (64, 32, 47))


def test_sampled_at_what_a_layer_computes() -> None:
    """A spatial transformer."""

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = nn.Conv2d(3, 2, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, columns = (torch.linspace(-1, 1, n, dtype=x.dtype) for n in x.shape[2:])
            grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij")[::-1], -1)
            return F.grid_sample(x, grid + self.flow(x).permute(0, 2, 3, 1) * 0.1, align_corners=True)

    torch.manual_seed(0)
    check(Transformer(), (3, 24, 32))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x: torch.topk(x, 1, 0)[0], "images of the batch"),
        (lambda x: x[:, :, x[0, 0, :, 0].argsort()], "batch|computed|indices"),
        (
            lambda x: torch.sort(F.conv2d(F.interpolate(x, scale_factor=4.0), torch.ones(4096, 4, 1, 1)), 1)[0],
            "comparisons are more than the maximum",
        ),
        (lambda x: x.median(0)[0], "an order of the images of the batch"),
        (lambda x: F.max_unpool2d(x, torch.zeros(1, 4, 6, 8).long().expand(len(x), -1, -1, -1), 2), "no result of"),
        (lambda x: F.max_unpool2d(*F.max_pool2d(x, 3, 2, 1, return_indices=True), 3, 2, 1), "6 x 8 pixels in 5 x 7"),
        (lambda x: torch.cdist(x, x), r"distances of other tensors than \(N, P, M\)"),
    ],
)
def test_refused(body: Callable[[torch.Tensor], torch.Tensor], reason: str) -> None:
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=reason):
        mpscnn.load(Function(body), input_shapes=(1, *X), options={"free_size": False})


def test_rows_at_indices_keep_their_order() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:, torch.tensor([2, 0])] = x[:, 1:3] * 3
        return y

    x = torch.arange(2 * 192.0).view(2, *X)
    ours = mpscnn.load(Function(body), input_shapes=(1, *X))(x)
    np.testing.assert_array_equal(ours, body(x).numpy())
