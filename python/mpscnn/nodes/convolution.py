# SPDX-License-Identifier: Apache-2.0
"""Nodes: Convolutions and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from .. import _checks, _core
from ..optimizers import Optimizer
from ._base import FilterNode, GradientFilterNode, Padding, Size, Source, StateNode, _choice, _given, _index, _Object

if TYPE_CHECKING:
    from .. import _typing as t
    from ..descriptors import ConvolutionDescriptor, NeuronDescriptor
    from ..kernels import Kernel


class Weights(_Object):
    """Weights of a convolution node, which nodes of several graphs may share: ``ConvolutionNode(y, node.weights)``.

    With an optimizer, each encode of a graph that computes their gradients updates them. Graphs that share them read
    the new values in `MPSNNGraph.reload_from_data_sources`.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("Weights cannot be made; they are the weights of a node.")

    @property
    def descriptor(self) -> ConvolutionDescriptor:
        """Geometry of the kernel."""
        return self._object.descriptor

    @property
    def is_trained(self) -> bool:
        """Whether an optimizer has changed them."""
        return self._object.is_trained

    @property
    def weight(self) -> NDArray[np.float32]:
        """A copy of the values that an optimizer has computed, OHWI, float32.

        Raises
        ------
        RuntimeError
            "weights: no optimizer has changed them yet.", or a command buffer that writes them has not completed.
        """
        return cast("NDArray[np.float32]", self._object.trained().weights.copy())

    @property
    def bias(self) -> NDArray[np.float32] | None:
        """A copy of the bias, as `weight`; None if there is none."""
        bias = self._object.trained().biases
        return None if bias is None else cast("NDArray[np.float32]", bias.copy())

    @classmethod
    def _of(cls, kernel: str, weight: Any, optimizer: Optimizer | None, arguments: dict[str, Any]) -> Weights:
        if isinstance(weight, Weights):
            if arguments or optimizer is not None:
                given = [*arguments, *(["optimizer"] if optimizer is not None else [])]
                raise ValueError(f"{kernel}Node: {given[0]} was given together with Weights, which have it.")
            return weight
        made = object.__new__(cls)
        if optimizer is not None:
            _checks.instance_of(optimizer, f"{kernel}Node: optimizer", Optimizer)
        made._object = _core._graph_weights(kernel, {"weight": weight, **arguments}, optimizer)
        return made


class _WeightsNode(FilterNode):
    """A node with weights."""

    __slots__ = ("_weights",)
    _weights: Weights

    _KERNEL: ClassVar[str] = ""

    def _make_with(
        self, source: Any, weight: Any, optimizer: Optimizer | None, arguments: dict[str, Any], *more: Any
    ) -> None:
        image = self._source(source)
        self._weights = Weights._of(type(self).__name__.removesuffix("Node"), weight, optimizer, arguments)
        selector = "initWithSource:weights:" + "".join(more[::2])
        self._make(selector, image, self._weights._object, *more[1::2])

    @property
    def weights(self) -> Weights:
        """The weights, which other nodes may share."""
        return self._weights

    training_style = _choice(
        "trainingStyle",
        ("none", "cpu", "gpu"),
        'How gradients update the weights: "gpu", the default, by their optimizer or the update() of their source; '
        '"cpu", by its update_on_cpu(), when the encode has completed; "none".',
    )


class ConvolutionNode(_WeightsNode, prefix="MPSCNN"):
    """MPSCNNConvolutionNode: a convolution; depth-wise if ``groups`` is the number of channels.

    Parameters
    ----------
    source : ImageNode or FilterNode
    weight : array, data source or Weights
        Those of `mpscnn.Convolution`, or of another node. Data sources and Weights have the parameters from ``bias``
        to ``kernel_dtype``.
    bias, stride, dilation, groups, sub_pixel_scale_factor, activation, layout, ranges, lookup_table, kernel_dtype
        As those of `mpscnn.Convolution`.
    padding
        See `FilterNode`.
    optimizer : Optimizer, optional
        Updates the weights in graphs that compute their gradients.
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        weight: t.Array | t.WeightSource | Weights,
        bias: t.Values | None = None,
        *,
        stride: Size = 1,
        dilation: Size = 1,
        groups: int = 1,
        sub_pixel_scale_factor: int = 1,
        activation: str | NeuronDescriptor | Kernel | None = None,
        layout: str | None = None,
        ranges: t.Values | None = None,
        lookup_table: t.Values | None = None,
        kernel_dtype: str | None = None,
        padding: Padding | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        given = _given(
            bias=bias,
            stride=stride,
            dilation=dilation,
            groups=groups,
            sub_pixel_scale_factor=sub_pixel_scale_factor,
            activation=activation,
            layout=layout,
            ranges=ranges,
            lookup_table=lookup_table,
            kernel_dtype=kernel_dtype,
        )
        self._make_with(source, weight, optimizer, given)
        self._object.set("accumulatorPrecision", 1)  # float32 weights require it
        self._set_padding(padding)

    @property
    def accumulator_precision(self) -> str:
        """Precision of sums: "float32", the default, or "float16"."""
        return ("float16", "float32")[self._object.get("accumulatorPrecision")]

    @accumulator_precision.setter
    def accumulator_precision(self, precision: str) -> None:
        name = f"{type(self).__name__}: accumulator_precision"
        self._object.set("accumulatorPrecision", _index(precision, name, ("float16", "float32")))


class ConvolutionTransposeNode(_WeightsNode, prefix="MPSCNN"):
    """MPSCNNConvolutionTransposeNode: a transposed convolution.

    Parameters
    ----------
    source : ImageNode or FilterNode
    weight : array, data source or Weights
        Those of `mpscnn.ConvolutionTranspose`, or of another node.
    bias, stride, groups, activation, layout
        As those of `mpscnn.ConvolutionTranspose`.
    padding, output_padding
        Pixels that are cut off the result, and rows and columns that are added to it, as in PyTorch; see `FilterNode`.
    optimizer : Optimizer, optional
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        weight: t.Array | t.WeightSource | Weights,
        bias: t.Values | None = None,
        *,
        stride: Size = 1,
        groups: int = 1,
        activation: str | NeuronDescriptor | Kernel | None = None,
        layout: str | None = None,
        padding: Padding | None = None,
        output_padding: Size = 0,
        optimizer: Optimizer | None = None,
    ) -> None:
        given = _given(bias=bias, stride=stride, groups=groups, activation=activation, layout=layout)
        self._make_with(source, weight, optimizer, given)
        self._set_padding(padding, output_padding=output_padding)


class FullyConnectedNode(_WeightsNode, prefix="MPSCNN"):
    """MPSCNNFullyConnectedNode: a product of the whole image and a matrix.

    Parameters
    ----------
    source : ImageNode or FilterNode
    weight : array, data source or Weights
        Those of `mpscnn.FullyConnected`, or of another node.
    bias, activation, layout, feature_map
        As those of `mpscnn.FullyConnected`.
    optimizer : Optimizer, optional
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        weight: t.Array | t.WeightSource | Weights,
        bias: t.Values | None = None,
        *,
        activation: str | NeuronDescriptor | Kernel | None = None,
        layout: str | None = None,
        feature_map: Sequence[SupportsIndex] | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        given = _given(bias=bias, activation=activation, layout=layout, feature_map=feature_map)
        self._make_with(source, weight, optimizer, given)
        self._object.set("accumulatorPrecision", 1)


class _BinaryNode(_WeightsNode):
    """A convolution with weights of one bit."""

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        weight: t.Array | t.WeightSource | Weights,
        bias: t.Values | None = None,
        *,
        type: Literal["binary_weights", "xnor", "and"] = "binary_weights",
        scale: SupportsIndex | float = 1.0,
        beta_scaling: bool = False,
        in_channels: int | None = None,
        activation: str | NeuronDescriptor | Kernel | None = None,
    ) -> None:
        name = self.__class__.__name__
        kind = _index(type, f"{name}: type", ("binary_weights", "xnor", "and"))
        given = _given(bias=bias, in_channels=in_channels, activation=activation)
        flags = int(_checks.boolean(beta_scaling, f"{name}: beta_scaling"))
        factor = _checks.real(scale, f"{name}: scale")
        self._make_with(source, weight, None, given, "scaleValue:", factor, "type:", kind, "flags:", flags)


class BinaryConvolutionNode(_BinaryNode, prefix="MPSCNN"):
    """MPSCNNBinaryConvolutionNode: a convolution with weights of one bit.

    Parameters
    ----------
    source : ImageNode or FilterNode
    weight : array of uint32, data source or Weights
        Those of `mpscnn.BinaryConvolution`, or of another node.
    bias, type, beta_scaling, in_channels, activation
        As those of `mpscnn.BinaryConvolution`.
    scale : float, default 1
        Factor of the result.
    stride, dilation, padding
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        weight: t.Array | t.WeightSource | Weights,
        bias: t.Values | None = None,
        *,
        stride: Size = 1,
        dilation: Size = 1,
        padding: Padding | None = None,
        type: Literal["binary_weights", "xnor", "and"] = "binary_weights",
        scale: SupportsIndex | float = 1.0,
        beta_scaling: bool = False,
        in_channels: int | None = None,
        activation: str | NeuronDescriptor | Kernel | None = None,
    ) -> None:
        self._source(source)
        if not isinstance(weight, Weights):
            given = _given(bias=bias, stride=stride, dilation=dilation, in_channels=in_channels, activation=activation)
            weight = Weights._of("BinaryConvolution", weight, None, given)
            bias = in_channels = activation = None
        super().__init__(
            source,
            weight,
            bias,
            type=type,
            scale=scale,
            beta_scaling=beta_scaling,
            in_channels=in_channels,
            activation=activation,
        )
        self._set_padding(padding)


class BinaryFullyConnectedNode(_BinaryNode, prefix="MPSCNN"):
    """MPSCNNBinaryFullyConnectedNode: a fully connected layer with weights of one bit.

    Parameters
    ----------
    source, weight, bias, type, scale, beta_scaling, in_channels, activation
        As those of `BinaryConvolutionNode`.
    """

    __slots__ = ()


class _WeightsGradientNode(GradientFilterNode):
    __slots__ = ()

    _STATE: ClassVar[str] = "convolutionGradientState"

    def __init__(
        self,
        source_gradient: Source,
        source_image: Source,
        gradient_state: StateNode,
        weights: Weights | None = None,
    ) -> None:
        name = f"{type(self).__name__}: weights"
        own = None if weights is None else _checks.instance_of(weights, name, Weights)._object
        self._make(
            f"initWithSourceGradient:sourceImage:{self._STATE}:weights:",
            *self._gradient(source_gradient, source_image, gradient_state),
            own,
        )

    training_style = _choice("trainingStyle", ("none", "cpu", "gpu"), "As that of the forward node.")


class ConvolutionGradientNode(_WeightsGradientNode, prefix="MPSCNN"):
    """MPSCNNConvolutionGradientNode: gradients of a convolution's source and weights.

    Parameters
    ----------
    source_gradient, source_image, gradient_state
        See `GradientFilterNode`.
    weights : Weights, optional
        None: those of the forward node.
    """

    __slots__ = ()


class ConvolutionTransposeGradientNode(_WeightsGradientNode, prefix="MPSCNN"):
    """MPSCNNConvolutionTransposeGradientNode: of a transposed convolution; see `ConvolutionGradientNode`."""

    __slots__ = ()
    _STATE = "convolutionTransposeGradientState"


class FullyConnectedGradientNode(_WeightsGradientNode, prefix="MPSCNN"):
    """MPSCNNFullyConnectedGradientNode: of a fully connected layer; see `ConvolutionGradientNode`."""

    __slots__ = ()
