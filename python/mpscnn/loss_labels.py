# SPDX-License-Identifier: Apache-2.0
"""Labels of losses: arrays, class numbers and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from . import _checks, _core
from . import _typing as t
from ._public import public
from .image import Image

if TYPE_CHECKING:
    from .device import Device


@public
class LossLabels(_core._LossLabels):
    """Targets of a loss: labels and weights, and storage for the result.

    Arrays are copied into images of the device; ``write()`` copies the next batch into the same images. Images are used
    in place, so kernels may compute them.

    Parameters
    ----------
    labels : array or sequence, or Image, shape (N, H, W, C)
        Floating point numbers in the shape of the predictions, copied as float32. Integers are class numbers,
        0...number_of_classes - 1, of shape (N,) for images of one pixel or (N, H, W); they are encoded as 1 for the
        class and 0 for the others.
    weights : as labels, optional
        Factor of each value's loss and gradient, in place of the loss's ``weight``. If labels are class numbers,
        weights may have their shape: one weight for all channels of a pixel.
    number_of_classes : int, >= 1, channels, optional
        Required if labels are class numbers.
    loss_shape : (int, int, int), optional
        H, W, C of the loss of an image: (1, 1, 1), the default, for losses that are reduced; H, W, C of the labels for
        reduction "none".
    device : Device, default Device()

    Raises
    ------
    ValueError
        "LossLabels: labels[1, 0, 3] (12) is not less than the number of classes (10)."
        "LossLabels: weights.shape (2, 3, 3, 1) is not labels.shape (2, 3, 3, 4)."
        "LossLabels: loss_shape (3, 3, 1) is neither (1, 1, 1) nor (3, 3, 4), that of labels (H, W, C)."
    TypeError
        "LossLabels: number_of_classes is missing: labels are class numbers (int64)."
    RuntimeError
        "LossLabels: no loss has been encoded to it.", and before the command buffer that computes the loss has
        completed.

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSCNNLossLabels; one of Apple's objects for each image.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> labels = mpscnn.LossLabels([2, 0], number_of_classes=3)
    >>> labels.shape, labels.loss_shape
    ((2, 1, 1, 3), (1, 1, 1))
    >>> loss = mpscnn.Loss("softmax_cross_entropy")
    >>> with mpscnn.CommandBuffer() as commands:
    ...     grad = loss.encode(commands, mpscnn.Image.from_array(np.zeros((2, 1, 1, 3), np.float32)), labels)
    >>> labels.loss.shape, bool(np.allclose(labels.loss, np.log(3)))
    ((2, 1, 1, 1), True)
    >>> labels.write([1, 1])
    """

    __slots__ = ()

    def __init__(
        self,
        labels: Image | t.Array | t.Nested,
        weights: Image | t.Array | t.Nested | None = None,
        *,
        number_of_classes: SupportsIndex | None = None,
        loss_shape: Sequence[SupportsIndex] | None = None,
        device: Device | None = None,
    ) -> None:
        classes = None if number_of_classes is None else _checks.integer(number_of_classes, "number_of_classes")
        if not isinstance(labels, Image):
            labels, weights = label_arrays("LossLabels", labels, weights, classes)
        elif weights is not None and not isinstance(weights, Image):
            raise TypeError(f"LossLabels: labels is an Image; weights ({type(weights).__name__}) is not.")
        elif classes is not None and classes != labels.shape[3]:
            raise ValueError(f"LossLabels: number_of_classes ({classes}) is not that of labels ({labels.shape[3]}).")
        super().__init__(labels, weights, loss_shape, device)

    def write(self, labels: t.Array | t.Nested, weights: t.Array | t.Nested | None = None) -> None:
        """Replace labels and weights by those of another batch of the same shape.

        Raise RuntimeError while a command buffer that uses them has not completed, ValueError for labels in Images.

        Parameters
        ----------
        labels, weights : arrays or sequences
            As in the constructor; weights if and only if the object has weights.
        """
        self._write(*label_arrays("LossLabels.write", labels, weights, self.shape[3]))


def numbers_of(values: Any, name: str) -> NDArray[Any]:
    """Return an array, PyTorch tensor or sequence as a NumPy array."""
    if isinstance(values, (np.ndarray, list, tuple)):
        return np.asarray(values)
    return _core._view(values, name)


def label_arrays(
    who: str, labels: Any, weights: Any, classes: int | None
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return labels and weights as arrays of shape (N, H, W, C)."""
    given = numbers_of(labels, "labels")
    if given.dtype.kind in "iu":
        if classes is None:
            raise TypeError(f"{who}: number_of_classes is missing: labels are class numbers ({given.dtype}).")
        whole = _one_hot(who, given, classes)
    elif given.dtype.kind != "f":
        raise TypeError(f"{who}: labels.dtype ({given.dtype}) is neither a floating point nor an integer type.")
    elif given.ndim != 4:
        raise ValueError(f"{who}: labels.ndim ({given.ndim}) is not 4 (N, H, W, C).")
    elif classes is not None and classes != given.shape[3]:
        raise ValueError(f"{who}: number_of_classes ({classes}) is not that of labels ({given.shape[3]}).")
    else:
        whole = np.ascontiguousarray(given, np.float32)
    if weights is None:
        return whole, None
    factors = numbers_of(weights, "weights")
    if factors.dtype.kind not in "fiu":
        raise TypeError(f"{who}: weights.dtype ({factors.dtype}) is not a type of numbers.")
    if factors.shape not in (given.shape, whole.shape):
        raise ValueError(f"{who}: weights.shape {factors.shape} is not labels.shape {given.shape}.")
    if factors.shape != whole.shape:  # one weight per pixel, for all classes
        factors = np.broadcast_to(factors.reshape(*whole.shape[:3], 1), whole.shape)
    return whole, np.ascontiguousarray(factors, np.float32)


def _one_hot(who: str, numbers: NDArray[Any], classes: int) -> NDArray[np.float32]:
    """Encode class numbers of shape (N,) or (N, H, W) as (N, H, W, C)."""
    if numbers.ndim not in (1, 3):
        raise ValueError(f"{who}: labels.ndim ({numbers.ndim}) is not 1 (N) or 3 (N, H, W), as class numbers have.")
    if classes < 1:
        raise ValueError(f"{who}: number_of_classes ({classes}) is less than the minimum (1).")
    shape = numbers.shape if numbers.ndim == 3 else (len(numbers), 1, 1)
    wrong = (numbers < 0) | (numbers >= classes)
    if wrong.any():
        place = tuple(int(axis) for axis in np.argwhere(wrong)[0])
        limit = (
            "less than the minimum (0)" if numbers[place] < 0 else f"not less than the number of classes ({classes})"
        )
        raise ValueError(f"{who}: labels[{', '.join(map(str, place))}] ({numbers[place]}) is {limit}.")
    hot = np.zeros((*shape, classes), np.float32)
    hot.reshape(-1, classes)[np.arange(numbers.size), numbers.ravel()] = 1
    return hot
