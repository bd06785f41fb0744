# SPDX-License-Identifier: Apache-2.0
"""Nodes: Activation functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .. import _checks, _core
from ._base import FilterNode, GradientFilterNode, Source, StateNode

if TYPE_CHECKING:
    from .. import _typing as t
    from ..descriptors import NeuronDescriptor
    from ..kernels import Kernel


class NeuronNode(FilterNode, prefix="MPSCNN"):
    """MPSCNNNeuronNode: any activation function.

    Parameters
    ----------
    source : ImageNode or FilterNode
    activation : str, NeuronDescriptor or neuron kernel
        As that of `mpscnn.Convolution`.
    """

    __slots__ = ()

    def __init__(self, source: Source, activation: str | NeuronDescriptor | Kernel) -> None:
        self._make("nodeWithSource:descriptor:", self._source(source), _core._graph_neuron(activation))


class _NeuronNode(NeuronNode):
    """An activation function with parameters a, b and c, or fewer; None: Apple's defaults."""

    __slots__ = ()
    _PARAMETERS: ClassVar[str] = ""

    def _make_neuron(self, source: Any, *values: float | None) -> None:
        if all(value is None for value in values):
            self._make("initWithSource:", self._source(source))
            return
        name = type(self).__name__
        numbers = [_checks.real(value, f"{name}: {letter}") for letter, value in zip("abc", values, strict=False)]
        self._make(
            "initWithSource:" + "".join(f"{letter}:" for letter in "abc"[: len(values)]), self._source(source), *numbers
        )


class _NeuronOfNone(_NeuronNode):
    __slots__ = ()

    def __init__(self, source: Source) -> None:
        self._make_neuron(source)


class _NeuronOfA(_NeuronNode):
    __slots__ = ()

    def __init__(self, source: Source, a: float | None = None) -> None:
        self._make_neuron(source, a)


class _NeuronOfAB(_NeuronNode):
    __slots__ = ()

    def __init__(self, source: Source, a: float | None = None, b: float | None = None) -> None:
        self._make_neuron(source, a, b)


class _NeuronOfABC(_NeuronNode):
    __slots__ = ()

    def __init__(self, source: Source, a: float | None = None, b: float | None = None, c: float | None = None) -> None:
        self._make_neuron(source, a, b, c)


class NeuronAbsoluteNode(_NeuronOfNone, prefix="MPSCNN"):
    """MPSCNNNeuronAbsoluteNode: |x|."""

    __slots__ = ()


class NeuronELUNode(_NeuronOfA, prefix="MPSCNN"):
    """MPSCNNNeuronELUNode: x for x > 0, else a (e^x - 1)."""

    __slots__ = ()


class NeuronExponentialNode(_NeuronOfABC, prefix="MPSCNN"):
    """MPSCNNNeuronExponentialNode: c^(a x + b); c -1: e."""

    __slots__ = ()


class NeuronGeLUNode(_NeuronOfNone, prefix="MPSCNN"):
    """MPSCNNNeuronGeLUNode: (1 + erf(x / sqrt(2))) x / 2."""

    __slots__ = ()


class NeuronHardSigmoidNode(_NeuronOfAB, prefix="MPSCNN"):
    """MPSCNNNeuronHardSigmoidNode: a x + b, between 0 and 1."""

    __slots__ = ()


class NeuronLinearNode(_NeuronOfAB, prefix="MPSCNN"):
    """MPSCNNNeuronLinearNode: a x + b."""

    __slots__ = ()


class NeuronLogarithmNode(_NeuronOfABC, prefix="MPSCNN"):
    """MPSCNNNeuronLogarithmNode: log_c(a x + b); c -1: e."""

    __slots__ = ()


class NeuronPowerNode(_NeuronOfABC, prefix="MPSCNN"):
    """MPSCNNNeuronPowerNode: (a x + b)^c."""

    __slots__ = ()


class NeuronReLUNode(_NeuronOfA, prefix="MPSCNN"):
    """MPSCNNNeuronReLUNode: x for x > 0, else a x."""

    __slots__ = ()


class NeuronReLUNNode(_NeuronOfAB, prefix="MPSCNN"):
    """MPSCNNNeuronReLUNNode: min(x, b) for x > 0, else a x."""

    __slots__ = ()


class NeuronSigmoidNode(_NeuronOfNone, prefix="MPSCNN"):
    """MPSCNNNeuronSigmoidNode: 1 / (1 + e^-x)."""

    __slots__ = ()


class NeuronSoftPlusNode(_NeuronOfAB, prefix="MPSCNN"):
    """MPSCNNNeuronSoftPlusNode: a log(1 + e^(b x))."""

    __slots__ = ()


class NeuronSoftSignNode(_NeuronOfNone, prefix="MPSCNN"):
    """MPSCNNNeuronSoftSignNode: x / (1 + |x|)."""

    __slots__ = ()


class NeuronTanHNode(_NeuronOfAB, prefix="MPSCNN"):
    """MPSCNNNeuronTanHNode: a tanh(b x)."""

    __slots__ = ()


class NeuronPReLUNode(_NeuronNode, prefix="MPSCNN"):
    """MPSCNNNeuronPReLUNode: x for x > 0, else a x, with a slope for each channel.

    Parameters
    ----------
    source : ImageNode or FilterNode
    a : array or sequence of float, shape (C,)
    """

    __slots__ = ()

    def __init__(self, source: Source, a: t.Values) -> None:
        slopes = _checks.floats(a, "NeuronPReLUNode: a")
        self._make("initWithSource:aData:", self._source(source), _core._graph_floats(slopes.tolist()))


class NeuronGradientNode(GradientFilterNode, prefix="MPSCNN"):
    """MPSCNNNeuronGradientNode: the gradient of an activation function.

    Parameters
    ----------
    source_gradient, source_image, gradient_state
        See `GradientFilterNode`.
    activation : str, NeuronDescriptor or neuron kernel
        That of the forward node.
    """

    __slots__ = ()

    def __init__(
        self,
        source_gradient: Source,
        source_image: Source,
        gradient_state: StateNode,
        activation: str | NeuronDescriptor | Kernel,
    ) -> None:
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:descriptor:",
            *self._gradient(source_gradient, source_image, gradient_state),
            _core._graph_neuron(activation),
        )
