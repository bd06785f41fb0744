# SPDX-License-Identifier: Apache-2.0
"""Weights that a kernel reads through callbacks, and weights in raw files."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._core import ConvolutionDescriptor


class DataSource:
    """Weights of one kernel, read by MPS through its MPSCNNConvolutionDataSource protocol.

    Derive from it, or give any object with the same members. MPS calls ``load()`` before it reads anything and
    ``purge()`` when it is done, always in pairs and possibly several times, from any thread; what is raised in a
    callback reaches the code that makes the kernel. Members may be attributes, properties or methods without
    arguments.

    Attributes
    ----------
    descriptor : ConvolutionDescriptor
        Geometry of the kernel.
    weights : array, shape (O, kH, kW, I / groups), C-contiguous, float32, float16 or uint8
        Valid from ``load()`` to ``purge()``.
    bias : array, shape (O,), float32, optional
    ranges : array, shape (O, 2), float32, optional
        uint8 weights: the values of 0 and 255 for each output channel.
    lookup_table : array, shape (256,), float32, optional
        uint8 weights: the value of each code.
    kernel_dtype : "float32" or "float16", optional
        Precision in which the kernel keeps the weights.
    label : str, optional

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNConvolutionDataSource.
    """

    descriptor: ConvolutionDescriptor
    weights: Any
    bias: Any = None
    ranges: Any = None
    lookup_table: Any = None
    kernel_dtype: str | None = None
    label: str | None = None

    def load(self) -> bool:
        """Make the weights available; False when they cannot be had."""
        return True

    def purge(self) -> None:
        """The weights are not needed until the next ``load()``."""


def map_weights(path: str | os.PathLike[str], shape: tuple[int, ...], dtype: DTypeLike = "float32") -> NDArray[Any]:
    """Weights in a raw file, such as ``array.tofile()`` writes them, mapped into memory and not read until used.

    Parameters
    ----------
    path : path
        File of exactly ``prod(shape)`` elements and nothing else.
    shape : tuple of int, >= 1
    dtype : dtype, default float32
        In the machine's byte order.

    Returns
    -------
    array of that shape, read-only, over the file's pages

    Raises
    ------
    ValueError
        'weights file "conv1.bin" has 100 bytes; shape (8, 4, 3, 3) of float32 needs 1152.'
    """
    kind = np.dtype(dtype)
    extents = tuple(int(extent) for extent in shape)
    if any(extent < 1 for extent in extents):
        raise ValueError(f"shape {extents} has an extent less than the minimum (1).")
    needed = math.prod(extents) * kind.itemsize
    size = os.stat(path).st_size
    if size != needed:
        name = os.path.basename(os.fspath(path))
        raise ValueError(f'weights file "{name}" has {size} bytes; shape {extents} of {kind} needs {needed}.')
    return np.memmap(path, dtype=kind, mode="r", shape=extents)
