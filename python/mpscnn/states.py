# SPDX-License-Identifier: Apache-2.0
"""States: values in device memory that one kernel computes and another one reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._public import public
from .buffer import Buffer

if TYPE_CHECKING:
    from typing import SupportsIndex

    from numpy.typing import NDArray

    from . import _typing as t
    from .device import Device


def _buffer(values: Any, name: str, device: Device | None, any_rank: bool = False) -> Buffer:
    """Return a Buffer as it is; copy anything else into a new one, as float32."""
    if isinstance(values, Buffer):
        if values.nbytes % 4:
            raise ValueError(f"{name} has {values.nbytes} bytes, not a multiple of 4.")
        return values
    if not isinstance(values, (list, tuple)):
        values = _core._view(values, name)
    array = np.ascontiguousarray(values, np.float32)
    if array.ndim != 1 and not any_rank:
        raise ValueError(f"{name}.ndim ({array.ndim}) is not 1.")
    if array.size < 1:
        raise ValueError(f"{name}.shape {array.shape} has an extent (0) less than the minimum (1).")
    buffer = Buffer(array.nbytes, device=device)
    buffer._fill(array)
    return buffer


@public
class ConvolutionWeightsAndBiasesState(_core._ConvolutionWeightsAndBiasesState):
    """Weights and biases of a convolution in device memory.

    ``kernel.export_weights(command_buffer)`` returns one, ``kernel.reload(command_buffer, state)`` reads one.

    Parameters
    ----------
    weights : Buffer, array or sequence, shape (O, kH, kW, I / groups) or any shape with as many elements
        In MPS's order; those of a transposed convolution are rotated. A Buffer of float32 numbers is used in place;
        anything else is copied into a new one as float32.
    biases : Buffer, array or sequence, shape (O,), optional
        None: a kernel that reads the state has no biases afterwards.
    device : Device, default Device()

    Raises
    ------
    ValueError
        "biases.ndim (2) is not 1."
    TypeError
        "weights (int) is not an array: ..."

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNConvolutionWeightsAndBiasesState.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> conv = mpscnn.Convolution(np.ones((1, 2, 1, 1), np.float32))
    >>> with mpscnn.CommandBuffer() as commands:
    ...     conv.reload(commands, mpscnn.ConvolutionWeightsAndBiasesState([2, 3], [10]))
    ...     state = conv.export_weights(commands)
    >>> conv(np.ones((1, 1, 1, 2), np.float32)).item(), state.weights.ravel().tolist()
    (15.0, [2.0, 3.0])
    """

    __slots__ = ()

    def __init__(
        self,
        weights: Buffer | t.Array | t.Values,
        biases: Buffer | t.Values | None = None,
        *,
        device: Device | None = None,
    ) -> None:
        super().__init__(
            _buffer(weights, "weights", device, any_rank=True),
            None if biases is None else _buffer(biases, "biases", device),
        )

    @property
    def weights(self) -> NDArray[np.float32]:
        """float32, writable: a view of the buffer, which committed work may read or write.

        Exported weights have shape (O, kH, kW, I / groups), others one axis.
        """
        return self._weights.numpy("float32", self._shape or None)

    @property
    def biases(self) -> NDArray[np.float32] | None:
        """Shape (O,), float32, writable: a view of the buffer; or None."""
        biases: Buffer | None = self._biases
        return None if biases is None else biases.numpy("float32")

    def __repr__(self) -> str:
        biases = 0 if self.biases is None else self.biases.size
        return f"<mpscnn.ConvolutionWeightsAndBiasesState of {self.weights.size} weights, {biases} biases>"


@public
class NormalizationGammaAndBetaState(_core._NormalizationGammaAndBetaState):
    """Gamma and beta in device memory, for ``kernel.reload(command_buffer, state)``.

    Parameters
    ----------
    gamma, beta : Buffers, arrays or sequences, shape (C,)
        Buffers of float32 numbers are used in place; anything else is copied into a new one as float32.
    device : Device, default Device()

    Raises
    ------
    ValueError
        "gamma.ndim (2) is not 1."
    TypeError
        "gamma (int) is not an array: ..."

    Source
    ------
    MPSNeuralNetwork/MPSCNNNormalizationWeights.h, MPSCNNNormalizationGammaAndBetaState.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> norm = mpscnn.InstanceNormalization(np.ones(2, np.float32))
    >>> state = mpscnn.NormalizationGammaAndBetaState([0, 0], [3, 4])
    >>> with mpscnn.CommandBuffer() as commands:
    ...     norm.reload(commands, state)
    >>> norm(np.ones((1, 1, 1, 2), np.float32)).tolist()
    [[[[3.0, 4.0]]]]
    """

    __slots__ = ()

    def __init__(self, gamma: Buffer | t.Values, beta: Buffer | t.Values, *, device: Device | None = None) -> None:
        super().__init__(_buffer(gamma, "gamma", device), _buffer(beta, "beta", device))

    @property
    def gamma(self) -> NDArray[np.float32]:
        """Shape (C,), float32, writable: a view of the buffer, which committed work may read."""
        return self._gamma.numpy("float32")

    @property
    def beta(self) -> NDArray[np.float32]:
        """Shape (C,), float32, writable: a view of the buffer, which committed work may read."""
        return self._beta.numpy("float32")

    def __repr__(self) -> str:
        return f"<mpscnn.NormalizationGammaAndBetaState of {self.gamma.size} channels>"


@public
class NormalizationMeanAndVarianceState(_core._NormalizationMeanAndVarianceState):
    """Mean and variance in device memory, for ``kernel.reload(command_buffer, state)``.

    Parameters
    ----------
    mean, variance : Buffers, arrays or sequences, shape (C,)
        Buffers of float32 numbers are used in place; anything else is copied into a new one as float32.
    device : Device, default Device()

    Raises
    ------
    ValueError
        "mean.ndim (2) is not 1."
    TypeError
        "mean (int) is not an array: ..."

    Source
    ------
    MPSNeuralNetwork/MPSCNNBatchNormalization.h, MPSCNNNormalizationMeanAndVarianceState.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> norm = mpscnn.BatchNormalization(np.ones(2, np.float32), epsilon=0)
    >>> with mpscnn.CommandBuffer() as commands:
    ...     norm.reload(commands, mpscnn.NormalizationMeanAndVarianceState([1, 2], [4, 1]))
    >>> norm(np.ones((1, 1, 1, 2), np.float32)).tolist()
    [[[[0.0, -1.0]]]]
    """

    __slots__ = ()

    def __init__(self, mean: Buffer | t.Values, variance: Buffer | t.Values, *, device: Device | None = None) -> None:
        super().__init__(_buffer(mean, "mean", device), _buffer(variance, "variance", device))

    @property
    def mean(self) -> NDArray[np.float32]:
        """Shape (C,), float32, writable: a view of the buffer, which committed work may read."""
        return self._mean.numpy("float32")

    @property
    def variance(self) -> NDArray[np.float32]:
        """Shape (C,), float32, writable: a view of the buffer, which committed work may read."""
        return self._variance.numpy("float32")

    def __repr__(self) -> str:
        return f"<mpscnn.NormalizationMeanAndVarianceState of {self.mean.size} channels>"


@public
class BatchNormalizationState(_core._BatchNormalizationState):
    """Mean and variance of a batch.

    ``BatchNormalizationStatistics()(x)`` returns one, or accumulates into a given one;
    ``BatchNormalization(gamma)(x, state)`` normalizes with it. Statistics that are encoded after that begin a new
    batch, so one state can be reused for all steps of a training. It is in device memory: nothing is copied to the CPU
    until ``mean`` or ``variance`` is read.

    Parameters
    ----------
    channels : int, >= 1
    device : Device, default Device()

    Raises
    ------
    ValueError
        "BatchNormalizationState: channels (0) is less than the minimum (1)."
    RuntimeError
        "BatchNormalizationState: no statistics have been encoded to it.", and before the command buffer that computes
        them has completed.

    Source
    ------
    MPSNeuralNetwork/MPSCNNBatchNormalization.h, MPSCNNBatchNormalizationState.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> statistics = mpscnn.BatchNormalizationStatistics()
    >>> state = statistics(np.array([[[[1.0, 5.0], [3.0, 5.0]]]], np.float32))
    >>> state.mean.tolist(), state.variance.tolist(), state.count
    ([2.0, 5.0], [1.0, 0.0], 2)
    >>> state = statistics(np.full((1, 1, 2, 2), 5, np.float32), state)
    >>> state.mean.tolist(), state.count
    ([3.5, 5.0], 4)
    """

    __slots__ = ()

    def __init__(self, channels: SupportsIndex, *, device: Device | None = None) -> None:
        super().__init__(channels, device)

    def reset(self) -> None:
        """Begin a new batch: the statistics that are encoded next are not added to earlier ones."""
        self._reset()


@public
class GradientState(_core._GradientState):
    """State that a forward kernel passes to its gradient kernel.

    ``y, state = kernel.encode(commands, x, with_state=True)`` returns one,
    ``kernel.gradient.encode(commands, grad_y, x, state)`` uses it, once. It contains the geometry of the forward encode
    and the gradients with respect to parameters that the gradient kernel computes. These are sums over all images, in
    device memory that NumPy accesses without a copy.

    Chunks of one batch share the state of a convolution: ``conv.encode(commands, chunk, with_state=state)`` adds a
    chunk, before any gradient kernel has used the state. Chunks may differ only in the number of images. The gradient
    kernel then uses the state once for each chunk, in any order.

    Raises
    ------
    TypeError
        "GradientState: a forward encode makes it (with_state=True)."
    AttributeError
        "GradientState: the state of PoolingMax has no grad_weight."
    RuntimeError
        "GradientState: no gradient kernel that computes grad_weight has been encoded with the state.", "GradientState:
        gradients of 1 of the 2 forward encodes of the state have been encoded; grad_weight is the sum over all.", and
        before the command buffers that compute it have completed.

    Source
    ------
    MPSNeuralNetwork/MPSNNGradientState.h, MPSNNGradientState and the classes derived from it.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> x = np.array([[[[-1.0, 2.0]]]], np.float32)
    >>> relu = mpscnn.NeuronReLU()
    >>> y, state = relu(x, with_state=True)
    >>> relu.gradient(np.ones_like(y), x, state).tolist()
    [[[[0.0, 1.0]]]]
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("GradientState: a forward encode makes it (with_state=True).")

    def _view(self, name: str) -> NDArray[np.float32]:
        buffer, shape = self._values(name)
        return buffer.numpy("float32", shape)

    @property
    def grad_weight(self) -> NDArray[np.float32]:
        """Shape (O, kH, kW, I / groups), float32: with respect to the weights, in MPS's order; a view.

        ``.transpose(0, 3, 1, 2)`` is PyTorch's order.
        """
        return self._view("grad_weight")

    @property
    def grad_bias(self) -> NDArray[np.float32]:
        """Shape (O,), float32: with respect to the biases; a view."""
        return self._view("grad_bias")

    @property
    def grad_gamma(self) -> NDArray[np.float32]:
        """Shape (C,), float32: with respect to gamma; a view."""
        return self._view("grad_gamma")

    @property
    def grad_beta(self) -> NDArray[np.float32]:
        """Shape (C,), float32: with respect to beta; a view."""
        return self._view("grad_beta")
