# SPDX-License-Identifier: Apache-2.0
"""Descriptors of kernels: activation, batch normalization, geometry of a convolution."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex, cast

import numpy as np

from . import _checks, _core
from ._public import public

if TYPE_CHECKING:
    from . import _typing as t
    from .kernels import Kernel


class _Descriptor:
    """Base class for pickling: calls the constructor with the attributes named like its parameters."""

    __slots__ = ()
    _ARGUMENTS: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {name: getattr(self, name) for name in self._ARGUMENTS}
        return functools.partial(type(self), **arguments), ()


def _shown(number: float) -> str:
    """Return the fewest digits that identify a float32: "0.1", "2.0", "1e-05"."""
    return str(np.float32(number))


@public
class NeuronDescriptor(_core._NeuronDescriptor, _Descriptor):
    """An activation function and its parameters, to fuse into a kernel.

    Parameters
    ----------
    type : str
        "none", "relu", "linear", "sigmoid", "hard_sigmoid", "tanh", "absolute", "softplus", "softsign", "elu", "prelu",
        "relun", "power", "exponential", "logarithm" or "gelu"; PyTorch's spellings "identity", "leaky_relu",
        "hardsigmoid", "abs", "relu6", "exp" and "log" are also accepted, here and for ``activation=``.
    a, b, c : float, optional
        Parameters of the formula, which is in the docstring of that type's neuron kernel; stored in single
        precision. None: the default of the type, PyTorch's if PyTorch has the function: a = 0.01 for "leaky_relu";
        a = 1/6, b = 0.5 for both spellings of the hard sigmoid; a = 0, b = 6 for "relu6" and "relun"; a = 0 for "relu";
        1, 0 for "linear"; 1, 1 for "tanh" and "softplus"; 1 for "elu"; 1, 0, 1 for "power"; 1, 0, -1 (base e) for
        "exponential" and "logarithm".
    data : sequence of float, optional
        For "prelu": one slope per channel.

    Raises
    ------
    ValueError
        'NeuronDescriptor: type ("selu") is not one of "none", "identity", ...'
        'NeuronDescriptor: data has 0 values; type is "prelu" and only "prelu" takes some.'
    TypeError
        "type (int) is not a str.", "a (str) is not a number.", "data (float) is not a sequence of numbers."

    Source
    ------
    MPSNeuralNetwork/MPSCNNNeuron.h, MPSNNNeuronDescriptor.
    """

    __slots__ = ()
    _ARGUMENTS = ("type", "a", "b", "c", "data")

    def __init__(
        self,
        type: t.ActivationName,
        a: t.Real | None = None,
        b: t.Real | None = None,
        c: t.Real | None = None,
        data: Iterable[SupportsFloat] = (),
    ) -> None:
        super().__init__(type, a, b, c, _checks.floats(data, "data"))

    @property
    def type(self) -> t.NeuronType:
        """Name of the function, in Apple's spelling."""
        return cast("t.NeuronType", self._type)

    def __repr__(self) -> str:
        numbers = [
            f", {name}={_shown(number)}"
            for i, (name, number) in enumerate(zip("abc", (self.a, self.b, self.c), strict=True))
            if i < self._parameters or number != 0
        ]
        slopes = ", ".join(_shown(one) for one in self.data[:8])
        if len(self.data) > 8:
            slopes += f", ... {len(self.data)} values"
        data = f", data=[{slopes}]" if slopes else ""
        return f'mpscnn.NeuronDescriptor("{self.type}"{"".join(numbers)}{data})'


@public
class BatchNorm(_core._BatchNorm, _Descriptor):
    """Batch normalization in inference, folded into the weights of a convolution.

    gamma / sqrt(variance + epsilon) * (y - mean) + beta, applied after the bias and before the activation.

    Parameters
    ----------
    mean, variance, gamma, beta : sequences of float, shape (O,)
        Copied, in single precision.
    epsilon : float, default 1e-5
        Added to the variance.

    Raises
    ------
    ValueError
        "BatchNorm: mean, variance, gamma and beta have 8, 8, 7 and 8 values, not the same number.",
        "mean.ndim (2) is not 1."
    TypeError
        "mean (float) is not a sequence of numbers.", "epsilon (str) is not a number."

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h,
    MPSCNNConvolutionDescriptor setBatchNormalizationParametersForInferenceWithMean:variance:gamma:beta:epsilon:.
    """

    __slots__ = ()
    _ARGUMENTS = ("mean", "variance", "gamma", "beta", "epsilon")

    def __init__(
        self,
        mean: Iterable[SupportsFloat],
        variance: Iterable[SupportsFloat],
        gamma: Iterable[SupportsFloat],
        beta: Iterable[SupportsFloat],
        epsilon: t.Real = 1e-5,
    ) -> None:
        super().__init__(
            _checks.floats(mean, "mean"),
            _checks.floats(variance, "variance"),
            _checks.floats(gamma, "gamma"),
            _checks.floats(beta, "beta"),
            _checks.real(epsilon, "epsilon"),
        )

    def __repr__(self) -> str:
        return f"<mpscnn.BatchNorm of {len(self.mean)} channels, epsilon {_shown(self.epsilon)}>"


@public
class ConvolutionDescriptor(_core._ConvolutionDescriptor, _Descriptor):
    """Geometry of a convolution, for data sources.

    Parameters
    ----------
    kernel_size : int or (int, int), pixels, >= 1
        Height and width.
    in_channels, out_channels : int, >= 1
        Channels of source and result, of all groups together.
    stride, dilation : int or (int, int), pixels, >= 1, default 1
        Step of the window on the source, and spacing of its taps.
    groups : int, >= 1, default 1
        Each group has a multiple of 4 input and output channels.
    depthwise : bool, default False
        One filter per channel: weights have shape (C, H, W, 1), and groups is 1.
    sub_pixel_scale_factor : int, >= 1, default 1
        Depth-to-space factor r: r * r groups of result channels become r x r pixels.
    activation : str, NeuronDescriptor, neuron kernel or None, default None
    batch_norm : BatchNorm, optional
        Folded into the weights; one value per output channel.

    Raises
    ------
    ValueError
        "ConvolutionDescriptor: batch_norm has 7 values; out_channels is 8.", 'activation ("swish") is not one of ...'
        Inconsistent numbers raise where a kernel is made from the descriptor:
        "data source: groups (3) does not divide in_channels (4) and out_channels (8)."
    TypeError
        "ConvolutionDescriptor: kernel_size (1.5) is not an integer or a pair (height, width).",
        "in_channels (str) is not an int.", "batch_norm (int) is not a BatchNorm."

    Source
    ------
    MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNConvolutionDescriptor and its subclasses.
    """

    __slots__ = ()
    _ARGUMENTS = (
        "kernel_size",
        "in_channels",
        "out_channels",
        "stride",
        "dilation",
        "groups",
        "depthwise",
        "sub_pixel_scale_factor",
        "activation",
        "batch_norm",
    )

    def __init__(
        self,
        kernel_size: t.Pair,
        in_channels: SupportsIndex,
        out_channels: SupportsIndex,
        *,
        stride: t.Pair = 1,
        dilation: t.Pair = 1,
        groups: SupportsIndex = 1,
        depthwise: bool = False,
        sub_pixel_scale_factor: SupportsIndex = 1,
        activation: t.ActivationName | NeuronDescriptor | Kernel | None = None,
        batch_norm: BatchNorm | None = None,
    ) -> None:
        super().__init__(
            kernel_size,
            in_channels,
            out_channels,
            stride,
            dilation,
            groups,
            depthwise,
            sub_pixel_scale_factor,
            activation,
            batch_norm,
        )

    def __repr__(self) -> str:
        defaults = {"stride": (1, 1), "dilation": (1, 1), "groups": 1, "depthwise": False, "sub_pixel_scale_factor": 1}
        text = f"mpscnn.ConvolutionDescriptor({self.kernel_size}, {self.in_channels}, {self.out_channels}"
        for name in self._ARGUMENTS[3:]:
            if (value := getattr(self, name)) != defaults.get(name):
                text += f", {name}={value}"
        return text + ")"
