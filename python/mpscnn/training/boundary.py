# SPDX-License-Identifier: Apache-2.0
"""Conversion of input arrays and labels of a network in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks, _inputs
from ..graph import Input, Output

if TYPE_CHECKING:
    from .._typing import ImageLayout

Array = NDArray[Any]


class Boundary:
    """Input and output of a network in training, which has one of each.

    Attributes
    ----------
    input : Input
    output : Output
    extents, result : (H, W, C)
        Shapes of an input image and of an output image.
    """

    def __init__(
        self, source: Input, output: Output, extents: tuple[int, int, int], result: tuple[int, int, int]
    ) -> None:
        self.input, self.output, self.extents, self.result = source, output, extents, result

    def check_images(self, array: Array, name: str) -> None:
        """Raise ValueError or TypeError unless the array is a batch of inputs."""
        layout = self.input.layout
        wanted = tuple(self.extents["HWC".index(letter)] for letter in layout[1:])
        if array.ndim != len(layout) or array.shape[1:] != wanted or array.shape[0] < 1:
            raise ValueError(f"{name}.shape {array.shape} is not {_shown(('N', *wanted))}, of one image or more.")
        if _inputs.is_integer(self.input.dtype):
            _inputs.converted(array, self.input)
        elif array.dtype != np.uint8 and array.dtype.kind != "f" and array.dtype.name != (self.input.dtype or None):
            raise TypeError(f"{name}.dtype ({array.dtype}) is not a floating-point type or uint8.")

    def images(self, x: Any, dtype: str = "float32") -> Array:
        """Return the batch in the input's layout."""
        array = _checks.array(x, "x")
        self.check_images(array, "x")
        _inputs.check_sizes(self.input, dict(zip(self.input.layout, array.shape, strict=True)))
        if _inputs.is_integer(self.input.dtype):
            array = _inputs.as_floats(array, self.input)
        elif array.dtype == np.uint8:
            array = array * np.float32(1 / 255)
        return array.astype(dtype, copy=False)

    def sources(self, x: Any, dtype: str) -> tuple[Array, ImageLayout]:
        """Return the batch with four axes, and their order."""
        array, layout = self.images(x, dtype), self.input.layout
        if layout == "NCHW" and self.extents[2] > 1:
            return array, "NCHW"  # the device converts the layout
        return _as_nhwc(array, layout), "NHWC"

    def check_labels(self, array: Array, images: int, name: str) -> None:
        """Raise ValueError or TypeError unless these are labels of `images` images."""
        height, width, _ = self.result
        if array.dtype.kind in "iu":
            wanted = [(images,), (images, height, width)][height * width > 1 :]
            if array.shape not in wanted:
                raise ValueError(f"{name}.shape {array.shape} is not {wanted[0]}, class numbers of {images} images.")
            return
        if array.dtype.kind != "f":
            raise TypeError(f"{name}.dtype ({array.dtype}) is neither a floating-point nor an integer type.")
        shape = (images, *self._result_shape)
        if array.shape != shape:
            raise ValueError(f"{name}.shape {array.shape} is not that of the output {shape}.")

    def targets(self, labels: Any, images: int) -> tuple[Array, Array | None]:
        """Return labels for a loss, and the class numbers if the labels are class numbers."""
        array = _checks.array(labels, "labels")
        self.check_labels(array, images, "labels")
        if array.dtype.kind in "iu":
            if array.dtype.name not in ("uint8", "uint16", "int32", "uint32", "int64"):
                array = array.astype(np.int64)  # LossLabels accepts it; too large numbers become negative
            return array, array
        return self.result_as_nhwc(array.astype(np.float32, copy=False)), None

    def result_as_nhwc(self, array: Array) -> Array:
        """Return predictions, or labels like them, as (N, H, W, C)."""
        layout = self.output.layout
        extents = [self.result["HWC".index(letter)] for letter in layout[1:]]
        return _as_nhwc(array.reshape(len(array), *extents), layout)

    @property
    def _result_shape(self) -> tuple[int, ...]:
        """Shape of the graph's output without the batch."""
        if self.output.shape is not None:
            return self.output.shape
        return tuple(self.result["HWC".index(letter)] for letter in self.output.layout[1:])


def pair(value: Any, name: str) -> tuple[Array, Array]:
    """Check a pair (images, labels) and return it as arrays."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        _checks.refuse(value, name, "a pair (x, labels)")
    return _checks.array(value[0], f"x of {name}"), _checks.array(value[1], f"labels of {name}")


def check_lengths(x: Array, labels: Array, x_name: str, labels_name: str) -> None:
    """Raise ValueError unless there are images, and a label for each."""
    if not x.ndim or not len(x):
        raise ValueError(f"{x_name}.shape {x.shape} has no images.")
    if not labels.ndim or len(labels) != len(x):
        count = len(labels) if labels.ndim else 0
        raise ValueError(f"len({labels_name}) ({count}) is not len({x_name}) ({len(x)}).")


def _shown(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _as_nhwc(array: Array, layout: str) -> Array:
    """Return the array as (N, H, W, C); axes that the layout lacks have extent 1."""
    missing = [letter for letter in "NHWC" if letter not in layout]
    letters = layout + "".join(missing)
    whole = array.reshape(*array.shape, *(1 for _ in missing))
    return np.ascontiguousarray(whole.transpose([letters.index(letter) for letter in "NHWC"]))
