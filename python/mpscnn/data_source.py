# SPDX-License-Identifier: Apache-2.0
"""Data sources, from which kernels read weights through callbacks, and weights mapped from raw files."""

from __future__ import annotations

import math
import operator
import os
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _checks


class DataSource:
    """Weights of one kernel, read by MPS through its MPSCNNConvolutionDataSource protocol.

    Derive from it, or pass any object with the same members. MPS calls ``load()`` before reading and ``purge()``
    afterwards, always in pairs and possibly several times, from any thread. Exceptions of a callback are raised by the
    code that makes the kernel. Members may be attributes, properties or methods without arguments.

    A data source can train its weights if it has one or both of the following methods. This class does not define them,
    because their presence is checked when the kernel is made.

    ``update(command_buffer, gradient_state, source_state)``
        Called by ``kernel.gradient.update(command_buffer, state)``, and in each encode of an `MPSNNGraph` that computes
        the gradients. Encodes the update and returns the new weights, a ConvolutionWeightsAndBiasesState, or None to
        keep the weights. ``source_state`` has the current weights.
    ``update_on_cpu(gradient_state, source_state)``
        Called by ``kernel.gradient.update_on_cpu(state)``, and when an encode of an `MPSNNGraph` has completed, if the
        node's ``training_style`` is "cpu". Changes ``weights`` and ``bias``, which are read again unless it returns
        False.

    In a graph, ``gradient_state`` ends with ``update()``, unless the ``result_state`` of the node is exported.

    A data source that keeps a GradientState is never freed: the state refers to the kernel, and the kernel to the data
    source.

    Attributes
    ----------
    descriptor : ConvolutionDescriptor
        Geometry of the kernel.
    weights : array, shape (O, kH, kW, I / groups), C-contiguous, float32, float16 or uint8
        Valid from ``load()`` to ``purge()``.
    bias : array, shape (O,), float32, optional
    ranges : array, shape (O, 2), float32, optional
        For uint8 weights: the values of 0 and 255, for each output channel.
    lookup_table : array, shape (256,), float32, optional
        For uint8 weights: the value of each code.
    kernel_dtype : "float32" or "float16", optional
        Precision in which the kernel stores the weights; None: float32 for float32 weights, float16 for any other.
    label : str, optional

    Raises
    ------
    Any exception of a member, where the kernel is made, reloaded or updated, and
    TypeError
        "data source: load() returned 1, which is not True, False or None.", "data source: descriptor (int) is not a
        ConvolutionDescriptor."
    ValueError
        "data source: weights is None.", shapes that do not fit the descriptor.

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNConvolutionDataSource.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> class Ones(mpscnn.DataSource):
    ...     descriptor = mpscnn.ConvolutionDescriptor(3, in_channels=4, out_channels=8)
    ...
    ...     def load(self):
    ...         self.weights = np.ones((8, 3, 3, 4), np.float32)
    ...         return True
    ...
    ...     def purge(self):
    ...         self.weights = None
    >>> mpscnn.Convolution(Ones(), padding=1)(np.ones((1, 2, 2, 4), np.float32)).tolist()[0][0][0][:2]
    [16.0, 16.0]
    """

    # Any: derived classes may use attributes, properties or methods.
    descriptor: Any
    weights: Any = None
    bias: Any = None
    ranges: Any = None
    lookup_table: Any = None
    kernel_dtype: Any = None
    label: Any = None

    def load(self) -> bool:
        """Make the weights available; return False on failure."""
        return True

    def purge(self) -> None:
        """Release the weights until the next ``load()``."""


class NormalizationDataSource:
    """Values of batch, instance or group normalization, read by MPS through its data source protocols.

    Derive from it, or pass any object with the same members as ``gamma``. MPS calls ``load()`` before reading and
    ``purge()`` afterwards, always in pairs and possibly several times, from any thread. Exceptions of a callback are
    raised by the code that makes the kernel. Members may be attributes, properties or methods without arguments.

    In an `MPSNNGraph` that computes the gradients, a data source can train its values if it has some of the following
    methods. This class does not define them, because their presence is checked when the node is made.

    ``update(command_buffer, gradient_state, source_state)``
        Called in each encode. Encodes the update and returns the new values, a NormalizationGammaAndBetaState, or None
        to keep them. ``gradient_state`` has the gradients: a BatchNormalizationState for batch normalization, a
        GradientState for the others. ``source_state`` has the current values.
    ``update_mean_and_variance(command_buffer, state)``
        For batch normalization: called in each encode with the statistics of the batch, a BatchNormalizationState.
        Returns the new moving ones, a NormalizationMeanAndVarianceState, or None.
    ``update_on_cpu(gradient_state, source_state)``
        Called when an encode has completed, if the node's ``training_style`` is "cpu". Changes ``gamma`` and ``beta``,
        which are read again unless it returns False.

    States of the graph end with the call, unless the ``result_state`` of the node is exported.

    Attributes
    ----------
    channels : int, >= 1
        Channels of the source image.
    gamma : array, shape (channels,), C-contiguous, float32, optional
        Factors; None: 1. Valid from ``load()`` to ``purge()``, like the others.
    beta : array like gamma, optional
        Offsets; None: 0.
    mean, variance : arrays like gamma, optional
        For batch normalization: both, or neither if the kernel is only called with a state. variance >= 0.
    groups : int, >= 1, a divisor of channels
        For group normalization.
    epsilon : float, >= 0, optional
        Added to the variance; None: Apple's default, the min normal float32, 1.2e-38. PyTorch's default is 1e-5.
    label : str, optional

    Raises
    ------
    Any exception of a member, where the kernel is made or reloaded, and
    TypeError
        "data source: gamma.dtype (float64) is not float32.", "data source: channels (str) is not an int."
    ValueError
        "data source: beta.shape (3,) is not a contiguous (4,).", "data source: groups (3) does not divide channels
        (4)."

    Source
    ------
    MPSNeuralNetwork/MPSCNNBatchNormalization.h, MPSCNNBatchNormalizationDataSource;
    MPSNeuralNetwork/MPSCNNInstanceNormalization.h, MPSCNNInstanceNormalizationDataSource;
    MPSNeuralNetwork/MPSCNNGroupNormalization.h, MPSCNNGroupNormalizationDataSource.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> class Twice(mpscnn.NormalizationDataSource):
    ...     channels = 2
    ...     gamma = np.full(2, 2, np.float32)
    ...     mean, variance = np.float32([1, 5]), np.float32([4, 1])
    >>> mpscnn.BatchNormalization(Twice())(np.float32([[[[3, 3]]]])).tolist()
    [[[[2.0, -4.0]]]]
    """

    # Any: derived classes may use attributes, properties or methods.
    channels: Any
    gamma: Any = None
    beta: Any = None
    mean: Any = None
    variance: Any = None
    groups: Any = None
    epsilon: Any = None
    label: Any = None

    def load(self) -> bool:
        """Make the values available; return False on failure."""
        return True

    def purge(self) -> None:
        """Release the values until the next ``load()``."""


def _extents(shape: Any) -> tuple[int, ...]:
    try:
        extents = tuple(shape)
        if not any(isinstance(extent, bool) for extent in extents):
            return tuple(operator.index(extent) for extent in extents)
    except TypeError:
        pass
    raise TypeError(f"shape ({shape!r}) is not a tuple of int.")


def _path(path: Any) -> str | os.PathLike[str]:
    if isinstance(path, str | os.PathLike):
        return path
    raise TypeError(f"path ({type(path).__name__}) is not a path.")


def map_weights(
    path: str | os.PathLike[str], shape: tuple[int, ...], dtype: DTypeLike | None = "float32"
) -> NDArray[Any]:
    """Map weights in a raw file, as written by ``array.tofile()``, into memory; they are not read until used.

    Parameters
    ----------
    path : path
        A file of exactly ``prod(shape)`` elements.
    shape : tuple of int, elements, >= 1
    dtype : dtype, default float32
        In the machine's byte order.

    Returns
    -------
    array of that shape, read-only, a view of the file's pages

    Raises
    ------
    ValueError
        'weights file "conv1.bin" has 100 bytes; shape (8, 4, 3, 3) of float32 needs 1152.'
        "shape (8, 0, 3, 3) has an extent less than the minimum (1)."
    TypeError
        "path (int) is not a path.", "shape (6) is not a tuple of int.", "dtype ('f32') is not a dtype."
    OSError
        The file cannot be opened.

    Source
    ------
    numpy.memmap: the pages are the file's, read on access.

    Examples
    --------
    >>> import tempfile, mpscnn, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.arange(6, dtype=np.float32).tofile(folder + "/bias.bin")
    ...     mpscnn.map_weights(folder + "/bias.bin", (6,)).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    path, extents, kind = _path(path), _extents(shape), _checks.dtype("float32" if dtype is None else dtype, "dtype")
    if any(extent < 1 for extent in extents):
        raise ValueError(f"shape {extents} has an extent less than the minimum (1).")
    needed = math.prod(extents) * kind.itemsize
    size = os.stat(path).st_size
    if size != needed:
        name = os.path.basename(os.fspath(path))
        raise ValueError(f'weights file "{name}" has {size} bytes; shape {extents} of {kind} needs {needed}.')
    return np.memmap(path, dtype=kind, mode="r", shape=extents)
