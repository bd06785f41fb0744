# SPDX-License-Identifier: Apache-2.0
"""Kernels without weights against PyTorch (CPU, channels_last, the same threads), interleaved in one run.

``ours`` is ``kernel(x, out=out)``, including image, command buffer, queue and wait, about 10 us in total.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mpscnn

from . import pointwise
from .rows import Row, Shape
from .timing import interleaved


def _interpolate(**options: Any) -> Callable[..., Any]:
    return lambda torch, x: torch.nn.functional.interpolate(x, **options)


def _crop(boxes: int, size: int) -> Callable[..., Any]:
    """Return grid_sample() over the same regions; making the grid is not timed."""
    grids: dict[int, Any] = {}

    def run(torch: Any, x: Any) -> Any:
        if not grids:
            steps = torch.linspace(0, 1, size)
            parts = [
                torch.stack([begin + steps * extent for begin, extent in _regions(boxes)[:, [i, i + 2]].tolist()])
                for i in (0, 1)
            ]
            rows, columns = (2 * part - 1 for part in parts)
            grids[0] = torch.stack(
                [columns[:, None, :].expand(-1, size, -1), rows[:, :, None].expand(-1, -1, size)], dim=-1
            )
        return torch.nn.functional.grid_sample(x.expand(boxes, -1, -1, -1), grids[0], align_corners=True)

    return run


def _regions(boxes: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    begin = rng.uniform(0, 0.5, (boxes, 2))
    return np.concatenate([begin, rng.uniform(0.1, 0.5, (boxes, 2))], axis=1).astype(np.float32)


def _pad(*amounts: int, **options: Any) -> Callable[..., Any]:
    return lambda torch, x: torch.nn.functional.pad(x, amounts, **options)


def _fold(name: str, dim: int) -> Callable[..., Any]:
    return lambda torch, x: getattr(torch, name)(x, dim=dim, keepdim=True)


SEGMENTATION: Shape = (1, 256, 256, 21)
FEATURES: Shape = (8, 56, 56, 64)
FOLDS = {"Max": "amax", "Min": "amin", "Mean": "mean", "Sum": "sum"}
AXES = {"Row": 3, "Column": 2, "FeatureChannels": 1}


def rows() -> list[Row]:
    found = [
        Row("SoftMax 21 at 256", mpscnn.SoftMax, (SEGMENTATION,), lambda torch, x: torch.softmax(x, 1)),
        Row("SoftMax 1000, batch 256", mpscnn.SoftMax, ((256, 1, 1, 1000),), lambda torch, x: torch.softmax(x, 1)),
        Row("LogSoftMax 21 at 256", mpscnn.LogSoftMax, (SEGMENTATION,), lambda torch, x: torch.log_softmax(x, 1)),
        Row(
            "LogSoftMax 1000, batch 256",
            mpscnn.LogSoftMax,
            ((256, 1, 1, 1000),),
            lambda torch, x: torch.log_softmax(x, 1),
        ),
        Row(
            "UpsamplingNearest 2 64 at 56, batch 8",
            lambda: mpscnn.UpsamplingNearest(2),
            (FEATURES,),
            _interpolate(scale_factor=2),
        ),
        Row(
            "UpsamplingNearest 2 3 at 512",
            lambda: mpscnn.UpsamplingNearest(2),
            ((1, 512, 512, 3),),
            _interpolate(scale_factor=2),
        ),
        Row(
            "UpsamplingBilinear 2 64 at 56, batch 8",
            lambda: mpscnn.UpsamplingBilinear(2, align_corners=True),
            (FEATURES,),
            _interpolate(scale_factor=2, mode="bilinear", align_corners=True),
        ),
        Row(
            "UpsamplingBilinear 8 21 at 64",
            lambda: mpscnn.UpsamplingBilinear(8, align_corners=True),
            ((1, 64, 64, 21),),
            _interpolate(scale_factor=8, mode="bilinear", align_corners=True),
        ),
        Row(
            "ResizeBilinear 1080x1920 to 224, 3",
            lambda: mpscnn.ResizeBilinear(224, align_corners=True),
            ((1, 1080, 1920, 3),),
            _interpolate(size=224, mode="bilinear", align_corners=True),
        ),
        Row(
            "ResizeBilinear 56 to 128, 64, batch 8",
            lambda: mpscnn.ResizeBilinear(128, align_corners=True),
            (FEATURES,),
            _interpolate(size=128, mode="bilinear", align_corners=True),
        ),
        *[
            Row(
                f"CropAndResizeBilinear {boxes} to 14, {shape[3]} at {shape[1]}",
                lambda boxes=boxes: mpscnn.CropAndResizeBilinear(14, _regions(boxes)),
                (shape,),
                _crop(boxes, 14),
            )
            for boxes, shape in ((32, (1, 50, 68, 256)), (100, (1, 100, 136, 64)))
        ],
        *[
            Row(
                f"Reduce{axis}{kind} {shape[3]} at {shape[1]}, batch {shape[0]}",
                getattr(mpscnn, f"Reduce{axis}{kind}"),
                (shape,),
                _fold(FOLDS[kind], dim),
            )
            for axis, dim in AXES.items()
            for kind in FOLDS
            for shape in (FEATURES, (1, 512, 512, 8))
        ],
        *[
            Row(
                f"ReduceFeatureChannelsArgument{kind} {shape[3]} at {shape[1]}",
                getattr(mpscnn, f"ReduceFeatureChannelsArgument{kind}"),
                (shape,),
                _fold(f"arg{kind.lower()}", 1),
            )
            for kind in ("Max", "Min")
            for shape in (SEGMENTATION, (1, 128, 128, 150))
        ],
        *[
            Row(
                f"ReduceFeatureChannelsAndWeights{kind} {shape[3]} at {shape[1]}",
                getattr(mpscnn, f"ReduceFeatureChannelsAndWeights{kind}"),
                (shape, shape),
                lambda torch, x, w, kind=kind: getattr(torch, kind.lower())(x * w, dim=1, keepdim=True),
            )
            for kind in ("Mean", "Sum")
            for shape in (FEATURES, (1, 256, 256, 16))
        ],
        *[
            Row(
                f"Reshape {shape[3]} at {shape[1]}, batch {shape[0]}",
                lambda to=to: mpscnn.Reshape(to),
                (shape,),
                lambda torch, x: x.clone(),  # PyTorch's own reshape is a view and takes no time
                exact=False,
            )
            # The last one flattens: one image object per image, because none can hold two with so many channels.
            for shape, to in ((FEATURES, (-1, 7, 32)), ((1, 256, 256, 32), (-1, 64, 8)), ((64, 14, 14, 32), (1, 1, -1)))
        ],
        *[
            Row(
                f"Slice half of {shape[3]} at {shape[1]}, batch {shape[0]}",
                lambda shape=shape: mpscnn.Slice(
                    (shape[1] - 8, shape[2] - 8), offset=(4, 4), source_feature_channel_max_count=shape[3] // 2
                ),
                (shape,),
                lambda torch, x: x[:, : x.shape[1] // 2, 4:-4, 4:-4].contiguous(memory_format=torch.channels_last),
            )
            for shape in ((8, 112, 112, 64), (1, 512, 512, 16))
        ],
        *[
            Row(
                f"Pad {mode} 3 64 at 56, batch 8",
                lambda mode=mode: mpscnn.Pad(3, edge_mode=mode),
                (FEATURES,),
                _pad(3, 3, 3, 3, mode=theirs),
            )
            for mode, theirs in (("constant", "constant"), ("clamp", "replicate"), ("mirror", "reflect"))
        ],
        Row(
            "Pad mirror 8 3 at 720x1280",
            lambda: mpscnn.Pad(8, edge_mode="mirror"),
            ((1, 720, 1280, 3),),
            _pad(8, 8, 8, 8, mode="reflect"),
        ),
        *[
            Row(
                f"Dropout {shape[3]} at {shape[1]}, batch {shape[0]}",
                lambda: mpscnn.Dropout(0.5),
                (shape,),
                lambda torch, x: torch.nn.functional.dropout(x, 0.5, training=True),
                exact=False,
            )
            for shape in (FEATURES, (256, 1, 1, 4096))
        ],
    ]
    return [*found, *pointwise.rows()]


def _contestants(row: Row) -> tuple[dict[str, Callable[[], object]], int]:
    """Return the contestants, and the number of bytes read and written."""
    rng = np.random.default_rng(0)
    sources = [mpscnn.empty(shape, np.float32) for shape in row.shapes]
    for source in sources:
        source[...] = rng.standard_normal(source.shape)
    kernel = row.kernel()
    out = mpscnn.empty(kernel.result_shape(*row.shapes), np.float32)
    found: dict[str, Callable[[], object]] = {"ours": lambda: kernel(*sources, out=out)}
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        tensors = [torch.from_numpy(source).permute(0, 3, 1, 2) for source in sources]  # channels_last without a copy

        def theirs() -> Any:
            with torch.inference_mode():
                return row.theirs(torch, *tensors)

        found["torch"] = theirs
        if row.exact:
            difference = np.abs(kernel(*sources) - theirs().permute(0, 2, 3, 1).numpy()).max()
            assert difference <= 1e-3, f"{row.name} differs by {difference}"
    return found, sum(source.nbytes for source in sources) + out.nbytes


def run(seconds: float = 1.0, case: str = "", best: bool = False) -> list[dict[str, Any]]:
    """Return rows with seconds per call and GB/s; each row takes about `seconds`."""
    results = []
    for row in rows():
        if case not in row.name:
            continue
        contestants, moved = _contestants(row)
        times = interleaved(contestants, seconds, best=best)
        results.append({"case": row.name, "seconds": times, "gigabytes": moved / times["ours"] / 1e9})
    return results
