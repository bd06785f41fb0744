# SPDX-License-Identifier: Apache-2.0
"""Optimizers: update values from their gradients, on the device and in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from . import _checks, _core, _options
from ._public import public
from .buffer import Buffer
from .states import (
    BatchNormalizationState,
    ConvolutionWeightsAndBiasesState,
    GradientState,
    NormalizationGammaAndBetaState,
)

if TYPE_CHECKING:
    from ._typing import Real
    from .device import CommandBuffer, Device

Regularization = Literal["l1", "l2"]

_VALUES = (Buffer, ConvolutionWeightsAndBiasesState, NormalizationGammaAndBetaState)
_GRADIENTS = (Buffer, GradientState, BatchNormalizationState)


@_options.attributes
class Optimizer(_core._Optimizer):
    """Base class of the optimizers; cannot be instantiated.

    Each step computes, element by element:

        g = gradient
        g = min(max(g, minimum), maximum)           with gradient_clip
        g = g * gradient_rescale
        g = g + regularization_scale * sign(value)  with regularization="l1"
        g = g + regularization_scale * value        with regularization="l2"; PyTorch's weight_decay

    and then the optimizer's own formula. The state between steps is in an OptimizerState, made once for each Buffer or
    layer; steps allocate no device memory. One optimizer can be used with any number of OptimizerStates.

    The gradients of a batch are sums over its images. For their mean, set gradient_rescale to 1 / number of images.

    Attributes
    ----------
    gradient_rescale : float
        Factor of the gradients, applied after clipping.
    gradient_clip : (float, float) or None
        Min and max of the elements of gradients.
    regularization : "l1", "l2" or None
    regularization_scale : float
    device : Device

    Raises
    ------
    RuntimeError
        "OptimizerAdam: the command buffer has been committed already; ...", and for gradients that no encoded gradient
        kernel computes.

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h, MPSNNOptimizer and MPSNNOptimizerDescriptor.
    """

    gradient_rescale: float
    gradient_clip: tuple[float, float] | None
    regularization: Regularization | None
    regularization_scale: float

    def __init__(self, *, device: Device | None = None) -> None:
        raise TypeError("Optimizer cannot be made; make an object of a derived class, such as OptimizerAdam.")

    def _make(self, arguments: dict[str, Any]) -> None:
        kind = next(one for one in type(self).__mro__ if one.__module__ == __name__)
        self._given = _options.given(arguments)
        _core._Optimizer.__init__(self, kind.__name__, self._given, arguments["device"])

    @property
    def learning_rate(self) -> float:
        """float: learning rate of the steps that are encoded next. Can be set."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Real) -> None:
        self._learning_rate = learning_rate

    def state_for(
        self, values: Buffer | ConvolutionWeightsAndBiasesState | NormalizationGammaAndBetaState
    ) -> OptimizerState:
        """Return a new zero-initialized OptimizerState for the values.

        Parameters
        ----------
        values : Buffer, ConvolutionWeightsAndBiasesState or NormalizationGammaAndBetaState
            float32, updated in place by each step. A Buffer is one array of any shape; ``mpscnn.Buffer(array)`` uses
            the array's own memory. ``kernel.export_weights(command_buffer)`` returns the state of a convolution; it
            can be passed before that command buffer is committed.

        Returns
        -------
        OptimizerState

        Raises
        ------
        TypeError
            "values (ndarray) is not a Buffer, ..."
        ValueError
            "OptimizerAdam: values has 6 bytes, not a multiple of 4."
        """
        return self._state_for(_checks.instance_of(values, "values", *_VALUES))

    def encode(
        self,
        command_buffer: CommandBuffer,
        gradient: Buffer | GradientState | BatchNormalizationState | Sequence[GradientState],
        state: OptimizerState,
    ) -> None:
        """Append a step to a command buffer: update the values of the state.

        Reload the kernels afterwards: ``kernel.reload(command_buffer, state.values)``, and
        ``kernel.gradient.reload(command_buffer, state.values)`` if a convolution's gradient kernel computes the
        gradient of its source.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        gradient : Buffer, GradientState, BatchNormalizationState or list of GradientState
            For values in a Buffer: a Buffer of as many float32 numbers. For a convolution: the GradientState of its
            forward encode, with a gradient kernel already encoded that computes grad_weight and grad_bias. For gamma
            and beta: the GradientState of an instance or group normalization, or the BatchNormalizationState. A list
            of states, one per chunk of a batch, is summed.
        state : OptimizerState
            A result of this optimizer's ``state_for()``.

        Raises
        ------
        TypeError
            "OptimizerAdam: gradient is not a GradientState, and the values of state are those of a convolution."
        ValueError
            "OptimizerAdam: gradient has 8 elements; values of state has 7.", "OptimizerAdam: state is that of another
            optimizer (OptimizerAdam)."
        RuntimeError
            "OptimizerAdam: no gradient kernel that computes grad_weight has been encoded with gradient."
        """
        if isinstance(gradient, (list, tuple)):
            gradient = [_checks.instance(one, f"gradient[{i}]", GradientState) for i, one in enumerate(gradient)]
        else:
            _checks.instance_of(gradient, "gradient", *_GRADIENTS, last="a list of GradientStates")
        self._encode(command_buffer, gradient, state)

    def __repr__(self) -> str:
        if not vars(self):
            return f"<mpscnn.{type(self).__name__}, not made>"
        return f"<mpscnn.{type(self).__name__} learning_rate={self.learning_rate:g}>"


@public
class OptimizerState(_core._OptimizerState):
    """Values and the state that an optimizer keeps for them.

    ``optimizer.state_for(values)`` returns one. It is in device memory; ``state_dict()`` returns a copy to save, which
    ``load_state_dict()`` restores. The copy does not contain the values: the caller of ``state_for()`` saves them.

    Raises
    ------
    RuntimeError
        "OptimizerState: the command buffer that writes it has not completed ..."

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h: vectors that the encode methods take, such as momentum and velocity.

    Examples
    --------
    >>> import mpscnn
    >>> optimizer = mpscnn.OptimizerAdam()
    >>> state = optimizer.state_for(mpscnn.Buffer(8))
    >>> state.state_dict()
    {'momentum': array([0., 0.], dtype=float32), 'velocity': array([0., 0.], dtype=float32), 'time_step': 0}
    >>> state.load_state_dict(state.state_dict() | {"time_step": 10})
    >>> state.time_step
    10
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("OptimizerState cannot be made; optimizer.state_for(values) returns one.")

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the state arrays, by name, and time_step.

        Returns
        -------
        dict of str to float32 array, and "time_step" to int
            The arrays have the values' shape: "momentum" of SGD, "sum_of_squares" of RMSProp, "momentum", "velocity"
            and "maximum_velocity" of Adam; with prefixes "weights." and "biases.", or "gamma." and "beta.", if the
            values have these two parts. ``np.savez`` can write the dict.
        """
        arrays = {name: buffer._copied("float32", shape) for name, buffer, shape in self._arrays()}
        return arrays | {"time_step": self.time_step}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore a result of state_dict(). If any part of it does not fit, nothing is changed.

        Parameters
        ----------
        saved : mapping
            Result of state_dict(); arrays are converted to float32.

        Raises
        ------
        ValueError
            'OptimizerState: saved has no "momentum".', "OptimizerState: momentum.shape (3,) of saved is not (2,)."
        TypeError
            "saved (list) is not a mapping, as state_dict() makes it."
        """
        if not hasattr(saved, "keys"):
            _checks.refuse(saved, "saved", "a mapping, as state_dict() makes it")
        arrays = {name: (buffer, tuple(shape)) for name, buffer, shape in self._arrays()}
        for name in (*arrays, "time_step"):
            if name not in saved:
                raise ValueError(f'OptimizerState: saved has no "{name}".')
        if len(saved) != len(arrays) + 1:
            raise ValueError(f"OptimizerState: saved has {len(saved)} entries, expected {len(arrays) + 1}.")
        loaded = {name: np.asarray(_core._view(saved[name], name), np.float32) for name in arrays}
        for name, array in loaded.items():
            if array.shape != arrays[name][1]:
                raise ValueError(f"OptimizerState: {name}.shape {array.shape} of saved is not {arrays[name][1]}.")
        step = saved["time_step"]  # np.load() returns an array without axes
        self.time_step = step.item() if isinstance(step, np.ndarray) and step.ndim == 0 else step
        for name, array in loaded.items():
            arrays[name][0]._fill(array)

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer that made the state."""
        return cast(Optimizer, self._optimizer)

    @property
    def values(self) -> Buffer | ConvolutionWeightsAndBiasesState | NormalizationGammaAndBetaState:
        """The optimized values, as given."""
        return self._values


@_options.attributes
class OptimizerStochasticGradientDescent(Optimizer):
    """Stochastic gradient descent, with momentum.

    With g as in Optimizer:

        value -= learning_rate * g                                              momentum_scale 0
        m = momentum_scale * m + learning_rate * g;  value -= m
        m = momentum_scale * m + g;  value -= learning_rate * (g + momentum_scale * m)  use_nesterov_momentum

    ``torch.optim.SGD(lr=learning_rate, momentum=momentum_scale, nesterov=use_nesterov_momentum)`` computes the same
    with a constant learning rate, and with Nesterov's momentum always. Without it, m includes the learning rate here
    but not in PyTorch: a new rate applies to later gradients only, in PyTorch to all.

    Parameters
    ----------
    learning_rate : float, default 0.001
    momentum_scale : float, default 0
        0: no momentum, and no state.
    use_nesterov_momentum : bool, default False
    gradient_rescale : float, default 1
    gradient_clip : (float, float), optional
        Min and max of the elements of gradients; None: no clipping.
    regularization : "l1", "l2" or None, default None
    regularization_scale : float, default 0
    device : Device, default Device()

    Raises
    ------
    ValueError
        "OptimizerStochasticGradientDescent: learning_rate (inf) is not a finite number of float32."

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h, MPSNNOptimizerStochasticGradientDescent.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> values, gradient = mpscnn.Buffer(8), mpscnn.Buffer(8)
    >>> values.numpy("float32")[:] = 1, 2
    >>> gradient.numpy("float32")[:] = 4, -4
    >>> optimizer = mpscnn.OptimizerStochasticGradientDescent(0.25, momentum_scale=0.5)
    >>> state = optimizer.state_for(values)
    >>> with mpscnn.CommandBuffer() as commands:
    ...     optimizer.encode(commands, gradient, state)
    ...     optimizer.encode(commands, gradient, state)
    >>> values.numpy("float32").tolist(), state.time_step
    ([-1.5, 4.5], 2)
    """

    momentum_scale: float
    use_nesterov_momentum: bool

    def __init__(
        self,
        learning_rate: Real = 0.001,
        *,
        momentum_scale: Real = 0.0,
        use_nesterov_momentum: bool = False,
        gradient_rescale: Real = 1.0,
        gradient_clip: Sequence[Real] | None = None,
        regularization: Regularization | None = None,
        regularization_scale: Real = 0.0,
        device: Device | None = None,
    ) -> None:
        self._make(locals())


@_options.attributes
class OptimizerRMSProp(Optimizer):
    """RMSProp: gradients divided by the root of their running mean square.

    With g as in Optimizer:

        s = decay * s + (1 - decay) * g**2
        value -= learning_rate * g / (sqrt(s) + epsilon)

    ``torch.optim.RMSprop(lr=learning_rate, alpha=decay, eps=epsilon)`` computes the same.

    Parameters
    ----------
    learning_rate : float, default 0.001
    decay : float, 0 to 1, default 0.9
    epsilon : float, >= 0, default 1e-8
    gradient_rescale : float, default 1
    gradient_clip : (float, float), optional
        Min and max of the elements of gradients; None: no clipping.
    regularization : "l1", "l2" or None, default None
    regularization_scale : float, default 0
    device : Device, default Device()

    Raises
    ------
    ValueError
        "OptimizerRMSProp: decay (2) is not between 0 and 1."

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h, MPSNNOptimizerRMSProp.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> values, gradient = mpscnn.Buffer(8), mpscnn.Buffer(8)
    >>> gradient.numpy("float32")[:] = 2, -4
    >>> optimizer = mpscnn.OptimizerRMSProp(0.5, decay=0, epsilon=0)
    >>> with mpscnn.CommandBuffer() as commands:
    ...     optimizer.encode(commands, gradient, optimizer.state_for(values))
    >>> values.numpy("float32").tolist()
    [-0.5, 0.5]
    """

    decay: float
    epsilon: float

    def __init__(
        self,
        learning_rate: Real = 0.001,
        *,
        decay: Real = 0.9,
        epsilon: Real = 1e-08,
        gradient_rescale: Real = 1.0,
        gradient_clip: Sequence[Real] | None = None,
        regularization: Regularization | None = None,
        regularization_scale: Real = 0.0,
        device: Device | None = None,
    ) -> None:
        self._make(locals())


@_options.attributes
class OptimizerAdam(Optimizer):
    """Adam, and with amsgrad=True its variant AMSGrad.

    With g as in Optimizer, and t = 1, 2, ... the number of the step:

        rate = learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t)
        m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g**2
        value -= rate * m / (sqrt(v) + epsilon)
        M = max(M, v);  value -= rate * m / (sqrt(M) + epsilon)    amsgrad

    ``torch.optim.Adam(lr=learning_rate, betas=(beta1, beta2), eps=epsilon / sqrt(1 - beta2**t))`` computes the same,
    also with amsgrad, but its eps would have to change in each step.

    Apple's class counts every encode as a time step, so each layer of a network would advance it. Here each
    OptimizerState has its own time_step.

    Parameters
    ----------
    learning_rate : float, default 0.001
    beta1, beta2 : float, 0 <= beta < 1, default 0.9 and 0.999
    epsilon : float, >= 0, default 1e-8
    amsgrad : bool, default False
    gradient_rescale : float, default 1
    gradient_clip : (float, float), optional
        Min and max of the elements of gradients; None: no clipping.
    regularization : "l1", "l2" or None, default None
    regularization_scale : float, default 0
    device : Device, default Device()

    Raises
    ------
    ValueError
        "OptimizerAdam: beta1 (1) is not at least 0 and less than 1."

    Source
    ------
    MPSNeuralNetwork/MPSNNOptimizers.h, MPSNNOptimizerAdam.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> conv = mpscnn.Convolution(np.ones((1, 1, 1, 1), np.float32))
    >>> optimizer = mpscnn.OptimizerAdam(0.5, epsilon=0)
    >>> with mpscnn.CommandBuffer() as commands:
    ...     weights = optimizer.state_for(conv.export_weights(commands))
    >>> x = mpscnn.Image.from_array(np.full((1, 1, 1, 1), 3, np.float32))
    >>> with mpscnn.CommandBuffer() as commands:
    ...     y, state = conv.encode(commands, x, with_state=True)
    ...     grad_x = conv.gradient.encode(commands, y, x, state)
    ...     optimizer.encode(commands, state, weights)
    ...     conv.reload(commands, weights.values)
    ...     conv.gradient.reload(commands, weights.values)
    >>> round(conv(x).numpy().item(), 4)
    1.5
    """

    beta1: float
    beta2: float
    epsilon: float
    amsgrad: bool

    def __init__(
        self,
        learning_rate: Real = 0.001,
        *,
        beta1: Real = 0.9,
        beta2: Real = 0.999,
        epsilon: Real = 1e-08,
        amsgrad: bool = False,
        gradient_rescale: Real = 1.0,
        gradient_clip: Sequence[Real] | None = None,
        regularization: Regularization | None = None,
        regularization_scale: Real = 0.0,
        device: Device | None = None,
    ) -> None:
        self._make(locals())
