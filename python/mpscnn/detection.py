# SPDX-License-Identifier: Apache-2.0
"""Boxes of object detectors, in NumPy: the step behind a YOLO network, and regions between two networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks

__all__ = ["FORMS", "Detections", "non_max_suppression", "roi_align", "roi_pool", "yolo_detections"]

FORMS = ("v8", "v5")
# Boxes of an image that are compared with each other, as in ultralytics (max_nms): time grows with their square.
_MAX_COMPARED = 30_000


@dataclass(frozen=True, eq=False)
class Detections:
    """Boxes of one image, in the order of falling scores.

    Attributes
    ----------
    boxes : numpy.ndarray
        (n, 4) float32: left, top, right and bottom, in pixels of the network's input.
    scores : numpy.ndarray
        (n,) float32, in [0, 1].
    classes : numpy.ndarray
        (n,) int64.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)


def non_max_suppression(
    boxes: ArrayLike,
    scores: ArrayLike,
    classes: ArrayLike | None = None,
    *,
    iou_threshold: float = 0.5,
    limit: int = 300,
) -> NDArray[np.int64]:
    """Return the boxes that no better box overlaps, as torchvision.ops.nms and batched_nms.

    Parameters
    ----------
    boxes : array_like
        (n, 4): left, top, right and bottom, in any unit.
    scores : array_like
        (n,). Of equal scores, the first is better.
    classes : array_like, optional
        (n,). Boxes of different classes do not suppress each other. Default: all boxes are of one class.
    iou_threshold : float, default 0.5
        A box is suppressed if its intersection with a better one, divided by their union, is larger.
    limit : int, default 300
        Max number of boxes.

    Returns
    -------
    numpy.ndarray
        (k,) int64: indices of `boxes`, in the order of falling scores.

    Raises
    ------
    ValueError
        Wrong shapes; NaN; a threshold outside of [0, 1].

    Examples
    --------
    >>> from mpscnn.detection import non_max_suppression
    >>> boxes = [[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10]]
    >>> non_max_suppression(boxes, [0.8, 0.9, 0.7])
    array([1, 2])
    """
    corners = np.asarray(boxes, np.float32)
    if corners.ndim != 2 or corners.shape[1] != 4:
        raise ValueError(f"boxes has shape {corners.shape}, not (n, 4).")
    values, kinds = np.asarray(scores, np.float32), np.asarray(np.zeros(len(corners)) if classes is None else classes)
    for name, array in (("scores", values), ("classes", kinds)):
        if array.shape != (len(corners),):
            raise ValueError(f"{name} has shape {array.shape}; boxes needs ({len(corners)},).")
    if np.isnan(corners).any() or np.isnan(values).any():
        raise ValueError("boxes or scores has NaN.")
    threshold = _fraction(iou_threshold, "iou_threshold")
    limit = _checks.integer(limit, "limit", 0)
    left, top, right, bottom = corners.T
    areas = (right - left) * (bottom - top)
    waiting = np.argsort(-values, kind="stable")
    kept: list[np.int64] = []
    while waiting.size and len(kept) < limit:
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        width = np.minimum(right[best], right[waiting]) - np.maximum(left[best], left[waiting])
        height = np.minimum(bottom[best], bottom[waiting]) - np.maximum(top[best], top[waiting])
        common = np.maximum(width, 0) * np.maximum(height, 0)
        union = areas[best] + areas[waiting] - common
        waiting = waiting[(common <= threshold * union) | (kinds[waiting] != kinds[best])]
    return np.array(kept, np.int64)


def yolo_detections(
    predictions: ArrayLike,
    *,
    form: str = "v8",
    score_threshold: float = 0.25,
    iou_threshold: float = 0.45,
    limit: int = 300,
) -> list[Detections]:
    """Return the boxes of each image from the decoded predictions of a YOLO network.

    Each prediction has the class of its largest score. Those below the threshold are dropped, then those of the same
    class that a better one overlaps.

    Parameters
    ----------
    predictions : array_like
        Centre x, centre y, width and height in pixels, and scores in [0, 1], of n images and a anchors:

        - "v8" (YOLOv8 to YOLO11 and later): (n, 4 + classes, a), scores of the classes;
        - "v5" (YOLOv3, YOLOv5, YOLOv7): (n, a, 5 + classes), the score of an object, by which those of the classes are
          multiplied.
    form : str, default "v8"
        "v8" or "v5".
    score_threshold : float, default 0.25
    iou_threshold : float, default 0.45
        As in `non_max_suppression`.
    limit : int, default 300
        Max boxes per image.

    Returns
    -------
    list of Detections
        One for each image.

    Raises
    ------
    ValueError
        Wrong shapes, an unknown form, NaN, or a threshold outside of [0, 1].
    """
    if _checks.text(form, "form") not in FORMS:
        raise ValueError(f'form ("{form:.100}") is neither "v8" nor "v5".')
    array = np.asarray(predictions, np.float32)
    threshold, least = _fraction(score_threshold, "score_threshold"), 5 if form == "v8" else 6
    axis = 1 if form == "v8" else 2
    if array.ndim != 3 or array.shape[axis] < least:
        wanted = "(n, 4 + classes, a)" if form == "v8" else "(n, a, 5 + classes)"
        raise ValueError(f'predictions has shape {array.shape}; form "{form}" needs {wanted}.')
    if form == "v8":
        array = array.transpose(0, 2, 1)
        scores = array[..., 4:]
    else:
        scores = array[..., 5:] * array[..., 4:5]
    return [_detected(one[:, :4], of, threshold, iou_threshold, limit) for one, of in zip(array, scores, strict=True)]


def _detected(
    centred: NDArray[Any], scores: NDArray[Any], threshold: float, iou_threshold: float, limit: int
) -> Detections:
    """Return the boxes of one image, from centres and extents (a, 4) and scores (a, classes)."""
    if np.isnan(scores).any():
        raise ValueError("predictions has NaN.")
    classes = scores.argmax(1)
    best = scores[np.arange(len(scores)), classes] if len(scores) else np.zeros(0, np.float32)
    found = np.flatnonzero(best > threshold)
    found = found[np.argsort(-best[found], kind="stable")][:_MAX_COMPARED]
    centre, half = centred[found, :2], centred[found, 2:] / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1)
    kept = non_max_suppression(boxes, best[found], classes[found], iou_threshold=iou_threshold, limit=limit)
    return Detections(boxes[kept], best[found][kept], classes[found][kept].astype(np.int64))


def _fraction(value: Any, name: str) -> float:
    number = _checks.real(value, name)
    if not (math.isfinite(number) and 0 <= number <= 1):
        raise ValueError(f"{name} ({number:g}) is not in [0, 1].")
    return number


# ---- regions


def roi_align(
    features: ArrayLike,
    boxes: ArrayLike | Sequence[ArrayLike],
    output_size: int | Sequence[int],
    *,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    mode: str = "avg",
) -> NDArray[np.float32]:
    """Return the features of each box, resized to one size, as torchvision.ops.roi_align and ONNX's RoiAlign.

    A network has one number of images. A detector that computes with each region is two networks with this function
    between them: one of images, and one whose batch is the regions.

    Parameters
    ----------
    features : array_like
        (N, C, H, W).
    boxes : array_like or sequence of them
        (K, 5): index of the image, left, top, right and bottom; or for each image (L, 4). ONNX's `rois` and
        `batch_indices` are ``np.column_stack([batch_indices, rois])``.
    output_size : int or (int, int)
        Height and width of the result.
    spatial_scale : float, default 1.0
        Pixels of the features for each unit of the boxes.
    sampling_ratio : int, default -1
        Rows, and columns, of samples in each pixel of the result; up to 0: as many as features that it covers.
    aligned : bool, default False
        Boxes are moved by -0.5 pixels: ONNX's "half_pixel". False: "output_half_pixel", and boxes have at least one
        pixel.
    mode : str, default "avg"
        "avg", or ONNX's "max": the largest of the samples, each of which is the largest of its four weighted pixels.

    Returns
    -------
    numpy.ndarray
        (K, C, height, width) float32, in the order of the boxes.

    Raises
    ------
    ValueError
        Wrong shapes; an index that is not that of an image; NaN or infinities in the boxes; an unknown mode.

    Examples
    --------
    >>> import numpy as np
    >>> from mpscnn.detection import roi_align
    >>> features = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    >>> roi_align(features, [[0, 0, 0, 4, 4]], 2, aligned=True)[0, 0]
    array([[ 2.5,  4.5],
           [10.5, 12.5]], dtype=float32)
    """
    maps, images, corners = _regions(features, boxes)
    height, width = _output_size(output_size)
    scale, ratio = _checks.real(spatial_scale, "spatial_scale"), _checks.integer(sampling_ratio, "sampling_ratio")
    if _checks.text(mode, "mode") not in ("avg", "max"):
        raise ValueError(f'mode ("{mode:.100}") is neither "avg" nor "max".')
    pool = _mean_of_samples if mode == "avg" else _max_of_samples
    result = np.empty((len(corners), maps.shape[1], height, width), np.float32)
    offset = 0.5 if _checks.boolean(aligned, "aligned") else 0.0
    for place, (image, corner) in enumerate(zip(images, corners.astype(np.float64) * scale - offset, strict=True)):
        axes = []
        for first, count, extent in ((1, height, maps.shape[2]), (0, width, maps.shape[3])):
            length = corner[first + 2] - corner[first]
            axes.append(_Samples.of(corner[first], length if aligned else max(length, 1.0), count, ratio, extent))
        result[place] = pool(maps[image], *axes)
    return result


def roi_pool(
    features: ArrayLike,
    boxes: ArrayLike | Sequence[ArrayLike],
    output_size: int | Sequence[int],
    *,
    spatial_scale: float = 1.0,
) -> NDArray[np.float32]:
    """Return the max of the features in each part of each box, as torchvision.ops.roi_pool and ONNX's MaxRoiPool.

    Parameters
    ----------
    features, boxes, output_size, spatial_scale
        As in `roi_align`. Edges are rounded to whole pixels, and belong to the box.

    Returns
    -------
    numpy.ndarray
        (K, C, height, width) float32; parts outside of the image are 0.

    Raises
    ------
    ValueError
        As in `roi_align`.
    """
    maps, images, corners = _regions(features, boxes)
    height, width = _output_size(output_size)
    scale = _checks.real(spatial_scale, "spatial_scale")
    result = np.zeros((len(corners), maps.shape[1], height, width), np.float32)
    # Halves are rounded away from 0, in float32 as in PyTorch.
    scaled = corners.astype(np.float32) * np.float32(scale)
    edges = (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))).astype(np.int64)
    for place, (image, (left, top, right, bottom)) in enumerate(zip(images, edges, strict=True)):
        rows = _parts(top, bottom, height, maps.shape[2])
        columns = _parts(left, right, width, maps.shape[3])
        for y, (above, below) in enumerate(rows):
            for x, (before, behind) in enumerate(columns):
                if above < below and before < behind:
                    result[place, :, y, x] = maps[image, :, above:below, before:behind].max((1, 2))
    return result


def _regions(
    features: ArrayLike, boxes: ArrayLike | Sequence[ArrayLike]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """Return the features, and for each box the index of its image and its corners."""
    maps = np.asarray(features, np.float32)
    if maps.ndim != 4 or 0 in maps.shape[1:]:
        raise ValueError(f"features has shape {maps.shape}, not (N, C, H, W).")
    several = isinstance(boxes, (list, tuple)) and len(boxes) > 0 and np.ndim(boxes[0]) == 2
    if several:
        parts = [np.asarray(part, np.float32).reshape(-1, np.shape(part)[-1]) for part in boxes]  # type: ignore[union-attr]
        if len(parts) != len(maps) or any(part.shape[1] != 4 for part in parts):
            shapes = [part.shape for part in parts]
            raise ValueError(f"boxes has shapes {shapes}; {len(maps)} images need as many arrays (L, 4).")
        images = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        corners = np.concatenate(parts)
    else:
        table = np.asarray(boxes, np.float32)
        if table.ndim != 2 or table.shape[1] != 5:
            raise ValueError(
                f"boxes has shape {table.shape}; it must be (K, 5), or a list of one array (L, 4) per image."
            )
        if not np.isin(table[:, 0], np.arange(len(maps))).all():
            wrong = table[~np.isin(table[:, 0], np.arange(len(maps))), 0][0]
            raise ValueError(
                f"boxes has the index {wrong:g} in its first column; there are {len(maps)} images, from 0."
            )
        images, corners = table[:, 0].astype(np.int64), table[:, 1:]
    if not np.isfinite(corners).all():
        raise ValueError("boxes has NaN or infinities.")
    return maps, images, corners


def _output_size(value: int | Sequence[int]) -> tuple[int, int]:
    sizes = _checks.integers([value] * 2 if isinstance(value, int) else value, "output_size", 1)
    if len(sizes) != 2:
        raise ValueError(f"output_size {tuple(sizes)} is not one int or two, height and width.")
    return sizes[0], sizes[1]


@dataclass(frozen=True, eq=False)
class _Samples:
    """Samples along one axis of a box: for each, the two pixels around it and their weights."""

    low: NDArray[np.int64]
    weights: NDArray[np.float64]  # (count, samples, 2): of `low`, and of the pixel behind it
    extent: int

    @classmethod
    def of(cls, first: float, length: float, count: int, ratio: int, extent: int) -> _Samples:
        step = length / count
        samples = ratio if ratio > 0 else max(math.ceil(step), 0)
        at = first + step * (np.arange(count)[:, None] + (np.arange(samples) + 0.5) / max(samples, 1))
        inside = (at >= -1) & (at <= extent)
        at = np.clip(at, 0, extent - 1)
        low = np.minimum(at.astype(np.int64), max(extent - 2, 0))
        behind = at - low
        return cls(low, np.stack([1 - behind, behind], -1) * inside[..., None], extent)

    def matrix(self) -> tuple[int, NDArray[np.float32]]:
        """Return the first pixel that is read, and the weights of the pixels from there on in the mean of samples."""
        count, samples = self.low.shape
        if samples == 0:
            return 0, np.zeros((count, 1), np.float32)
        first = int(self.low.min())
        dense = np.zeros((count, int(self.low.max()) + 2 - first))
        rows = np.arange(count)[:, None]
        for i in range(2):
            np.add.at(dense, (rows, self.low - first + i), self.weights[..., i] / samples)
        return first, dense[:, : self.extent - first].astype(np.float32)


def _mean_of_samples(image: NDArray[np.float32], rows: _Samples, columns: _Samples) -> NDArray[np.float32]:
    """Interpolation and mean are sums along rows, and then along columns."""
    (top, down), (left, across) = rows.matrix(), columns.matrix()
    part = image[:, top : top + down.shape[1], left : left + across.shape[1]]
    return np.asarray(down @ (part @ across.T), np.float32)


def _max_of_samples(image: NDArray[np.float32], rows: _Samples, columns: _Samples) -> NDArray[np.float32]:
    height, width = len(rows.low), len(columns.low)
    result = np.full((len(image), height, width), -np.inf, np.float32)
    if rows.low.size == 0 or columns.low.size == 0:
        return np.zeros_like(result)
    for i in range(2):
        for j in range(2):
            below, right = (np.minimum(s.low + k, s.extent - 1) for s, k in ((rows, i), (columns, j)))
            taken = image[:, below[:, None, :, None], right[None, :, None, :]]
            weighted = taken * (rows.weights[:, None, :, None, i] * columns.weights[None, :, None, :, j])
            result = np.maximum(result, weighted.max((-2, -1)))
    return np.asarray(result, np.float32)


def _parts(first: int, last: int, count: int, extent: int) -> list[tuple[int, int]]:
    """Return the ranges of pixels of a box's parts along one axis, inside of the image."""
    step = np.float32(max(last - first + 1, 1)) / np.float32(count)
    numbers = np.arange(count, dtype=np.float32)
    starts = np.clip(np.floor(numbers * step).astype(np.int64) + first, 0, extent)
    ends = np.clip(np.ceil((numbers + 1) * step).astype(np.int64) + first, 0, extent)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
