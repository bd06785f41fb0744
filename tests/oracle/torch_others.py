# SPDX-License-Identifier: Apache-2.0
"""Kernels with neither weights nor windows through PyTorch's operators in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from cases import Case

from .expected_others import ONE_SOURCE, TWO_SOURCES, sides

KERNELS = {*ONE_SOURCE, *TWO_SOURCES}

FOLDS: dict[str, Any] = {
    "Max": torch.amax,
    "Min": torch.amin,
    "Mean": torch.mean,
    "Sum": torch.sum,
    "ArgumentMax": torch.argmax,
    "ArgumentMin": torch.argmin,
}


def without_counterpart(case: Case) -> bool:
    """Return whether PyTorch has no counterpart: other random masks, explicit positions."""
    moved = "offset" in case.params and case.kernel not in ("Slice", "SoftMax", "LogSoftMax")
    return case.kernel == "Dropout" or "clip_rect" in case.params or moved


def seen(case: Case, x: torch.Tensor, prefix: str = "") -> torch.Tensor:
    """Return the source pixels of a result as large as x, from the offset on; out of bounds zeros, or clamped."""
    clamps = case.params.get(f"{prefix}edge_mode") == "clamp"
    for axis, start in zip((2, 3), case.params.get(f"{prefix}offset", (0, 0))[:2], strict=True):
        positions = torch.arange(x.shape[axis]) + start
        nearest = positions.clamp(0, x.shape[axis] - 1)
        x = x.index_select(axis, nearest)
        if not clamps:
            x = x.masked_fill((positions != nearest).reshape(-1, *[1] * (3 - axis)), 0.0)
    return x


def _amounts(case: Case) -> list[int]:
    """Return the padding in the order of F.pad() for (N, 1, C, H, W)."""
    top, bottom, left, right = sides(case.params.get("padding", 0))
    return [left, right, top, bottom, case.params.get("channels_before", 0), case.params.get("channels_after", 0)]


def _mirrored(x: torch.Tensor, dim: int, before: int, after: int, mode: str) -> torch.Tensor:
    """Alternate the source and its mirror image as often as needed; F.pad() cannot repeat edges or mirror twice."""
    size, back = x.shape[dim], x.flip(dim)
    if mode == "mirror":
        back = back.narrow(dim, 1, max(size - 2, 0)) if size > 1 else back.narrow(dim, 0, 0)
    period = torch.cat([x, back], dim)
    first = -before % period.shape[dim]
    turns = -(-(first + before + size + after) // period.shape[dim])
    return torch.cat([period] * turns, dim).narrow(dim, first, before + size + after)


def _sampled(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, edge: str) -> torch.Tensor | None:
    """Sample at pixel positions with F.grid_sample(), which needs more than one pixel along each axis."""
    height, width = x.shape[2:]
    if height == 1 or width == 1:
        return None
    grid = torch.stack(
        [
            (2 * columns / (width - 1) - 1)[None, :].expand(len(rows), -1),
            (2 * rows / (height - 1) - 1)[:, None].expand(-1, len(columns)),
        ],
        dim=-1,
    )
    mode = "border" if edge == "clamp" else "zeros"
    return F.grid_sample(x, grid[None].expand(x.shape[0], -1, -1, -1), padding_mode=mode, align_corners=True)


def _resized(case: Case, x: torch.Tensor) -> torch.Tensor | None:
    source = tuple(x.shape[2:])
    if "size" in case.params:
        size = case.pair("size")
    else:
        factor = case.pair("scale_factor")
        size = (source[0] * factor[0], source[1] * factor[1])
    if case.kernel == "UpsamplingNearest":
        return F.interpolate(x, size)
    if case.params.get("align_corners"):
        return F.interpolate(x, size, mode="bilinear", align_corners=True)
    rows, columns = (torch.arange(n, dtype=torch.float64) * m / n for n, m in zip(size, source, strict=True))
    return _sampled(
        x, rows, columns, case.params.get("edge_mode", "zero" if case.kernel == "UpsamplingBilinear" else "clamp")
    )


def _cropped(case: Case, x: torch.Tensor) -> torch.Tensor | None:
    """Sample one region after the other; samples beyond the source are 0."""
    size, last = case.pair("size"), [extent - 1 for extent in x.shape[2:]]
    results = []
    for region in np.array(case.params["regions"], np.float32).astype(np.float64):
        places, inside = [], []
        for axis in (0, 1):
            begin, extent, count = region[axis], region[axis + 2], size[axis]
            share = torch.linspace(0, 1, count, dtype=torch.float64) if count > 1 else torch.tensor([0.5]).double()
            places.append((begin + share * extent) * last[axis])
            inside.append((places[-1] >= -1e-9) & (places[-1] <= last[axis] + 1e-9))
        sampled = _sampled(x, places[0], places[1], "clamp")
        if sampled is None:
            return None
        results.append(sampled * (inside[0][:, None] & inside[1]))
    return torch.stack(results, dim=1).flatten(0, 1)


def _reduced(case: Case, x: torch.Tensor) -> torch.Tensor:
    dims = {"ReduceRow": 3, "ReduceColumn": 2, "ReduceFeatureChannels": 1}
    axis = next(prefix for prefix in dims if case.kernel.startswith(prefix))
    fold = FOLDS[case.kernel.removeprefix(axis)]
    y = fold(_part(x, case.params.get("clip_rect_source")), dim=dims[axis], keepdim=True)
    return y.double() * float(np.float32(case.params.get("weight", 1.0)))


def _part(x: torch.Tensor, rect: Any) -> torch.Tensor:
    if rect is None:
        return x
    (y, left, image), (height, width, images) = rect
    return x[image : image + images, :, y : y + height, left : left + width]


def _weighted(case: Case, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    x = _part(x, case.params.get("primary_source_clip_rect"))
    weights = _part(weights, case.params.get("secondary_source_clip_rect"))
    products = torch.einsum("nchw,nchw->nhw", x, weights)[:, None]
    if case.kernel.endswith("Mean"):
        return products / x.shape[1]
    if case.params.get("by_nonzero_weights"):
        return products / torch.count_nonzero(weights, dim=1)[:, None].clamp(min=1)
    return products


def _padded(case: Case, x: torch.Tensor) -> torch.Tensor:
    mode, amounts = case.params.get("edge_mode", "constant"), _amounts(case)
    deep = x[:, None]
    if mode == "clamp":
        return F.pad(deep, amounts, mode="replicate")[:, 0]
    if mode.startswith("mirror"):
        for dim, side in ((3, 0), (2, 2), (1, 4)):
            x = _mirrored(x, dim, amounts[side], amounts[side + 1], mode)
        return x
    if "channel_values" not in case.params:
        return F.pad(deep, amounts, value=float(np.float32(case.params.get("value", 0.0))))[:, 0]
    outside = F.pad(torch.zeros_like(deep), amounts, value=1.0)[:, 0]
    values = torch.tensor(case.params["channel_values"], dtype=torch.float32).double()
    return F.pad(deep, amounts)[:, 0] + outside * values[:, None, None]


def _cut(case: Case, x: torch.Tensor) -> torch.Tensor | None:
    """Return only the part within the source."""
    height, width = case.pair("size") if case.params.get("size") is not None else x.shape[2:]
    y, left = case.params.get("offset", (0, 0))[:2]
    result = x[:, :, y : y + height, left : left + width]
    inside = y >= 0 and left >= 0 and tuple(result.shape[2:]) == (height, width)
    return result if inside else None


def reference(case: Case, sources: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the result (N, C, H, W) for the images and channels that are read; None without a counterpart."""
    if without_counterpart(case):
        return None
    x = sources[0]
    if case.kernel in TWO_SOURCES:
        return _weighted(case, *sources)
    if case.kernel in ("SoftMax", "LogSoftMax"):
        x = seen(case, x)
        return F.softmax(x, dim=1) if case.kernel == "SoftMax" else F.log_softmax(x, dim=1)
    if case.kernel.startswith("Reduce"):
        return _reduced(case, x)
    if case.kernel == "Reshape":
        height, width, channels = case.params["shape"]
        return x.permute(0, 2, 3, 1).reshape(-1, height, width, channels).permute(0, 3, 1, 2)
    others = {"Pad": _padded, "Slice": _cut, "CropAndResizeBilinear": _cropped}
    return others.get(case.kernel, _resized)(case, x)
