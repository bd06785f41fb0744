# SPDX-License-Identifier: Apache-2.0
"""Boxes of object detectors: the step behind a YOLO network, in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _checks

__all__ = ["FORMS", "Detections", "non_max_suppression", "yolo_detections"]

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
