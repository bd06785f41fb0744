# SPDX-License-Identifier: Apache-2.0
"""Nodes: Normalizations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _checks, _core
from ._base import (
    FilterNode,
    GradientFilterNode,
    Size,
    Source,
    StateNode,
    _choice,
    _given,
    _pair,
    _PlainGradientNode,
    _real,
)

if TYPE_CHECKING:
    from .. import _typing as t


class _NormalizationNode(FilterNode):
    """A normalization with values for each channel."""

    __slots__ = ()

    def _make_normalization(
        self, source: Any, gamma: Any, arguments: dict[str, Any], groups: int | None = None
    ) -> None:
        image = self._source(source)
        given = {"gamma": gamma, **_given(**arguments)} | ({} if groups is None else {"groups": groups})
        values = _core._graph_weights(type(self).__name__.removesuffix("Node"), given, None)
        self._make("initWithSource:dataSource:", image, values)


class BatchNormalizationNode(_NormalizationNode, prefix="MPSCNN"):
    """MPSCNNBatchNormalizationNode.

    Graphs do not update gamma, beta, mean and variance; a `mpscnn.Trainer` does.

    Parameters
    ----------
    source : ImageNode or FilterNode
    gamma, beta, mean, variance, epsilon
        As those of `mpscnn.BatchNormalization`; gamma may be a data source.
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        gamma: t.Values | t.NormalizationSource,
        beta: t.Values | None = None,
        mean: t.Values | None = None,
        variance: t.Values | None = None,
        *,
        epsilon: float | None = None,
    ) -> None:
        given = {"beta": beta, "mean": mean, "variance": variance, "epsilon": epsilon}
        self._make_normalization(source, gamma, given)

    flags = _choice(
        "flags",
        ("automatic", "always", "never"),
        'When the statistics of the batch replace mean and variance: "automatic", in graphs with gradients; "always"; '
        '"never".',
    )


class InstanceNormalizationNode(_NormalizationNode, prefix="MPSCNN"):
    """MPSCNNInstanceNormalizationNode.

    Parameters
    ----------
    source : ImageNode or FilterNode
    gamma, beta, epsilon
        As those of `mpscnn.InstanceNormalization`; gamma may be a data source.
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        gamma: t.Values | t.NormalizationSource,
        beta: t.Values | None = None,
        *,
        epsilon: float | None = None,
    ) -> None:
        self._make_normalization(source, gamma, {"beta": beta, "epsilon": epsilon})


class GroupNormalizationNode(_NormalizationNode, prefix="MPSCNN"):
    """MPSCNNGroupNormalizationNode.

    Parameters
    ----------
    source : ImageNode or FilterNode
    gamma, beta, groups, epsilon
        As those of `mpscnn.GroupNormalization`; gamma may be a data source.
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        gamma: t.Values | t.NormalizationSource,
        beta: t.Values | None = None,
        groups: int | None = None,
        *,
        epsilon: float | None = None,
    ) -> None:
        self._make_normalization(source, gamma, {"beta": beta, "epsilon": epsilon}, groups=groups)


class BatchNormalizationGradientNode(_PlainGradientNode, prefix="MPSCNN"):
    """MPSCNNBatchNormalizationGradientNode; see `GradientFilterNode`."""

    __slots__ = ()


class InstanceNormalizationGradientNode(_PlainGradientNode, prefix="MPSCNN"):
    """MPSCNNInstanceNormalizationGradientNode; see `GradientFilterNode`."""

    __slots__ = ()


class GroupNormalizationGradientNode(_PlainGradientNode, prefix="MPSCNN"):
    """MPSCNNGroupNormalizationGradientNode; see `GradientFilterNode`."""

    __slots__ = ()


class _LocalNode(FilterNode):
    """A normalization by the neighbours of each value."""

    __slots__ = ()

    def __init__(self, source: Source, kernel_size: int) -> None:
        size = _checks.integer(kernel_size, f"{type(self).__name__}: kernel_size", 1)
        self._make("initWithSource:kernelSize:", self._source(source), size)

    alpha = _real("alpha", "Factor of the sum of squares.")
    beta = _real("beta", "Exponent.")
    delta = _real("delta", "Added to the scaled sum.")


class SpatialNormalizationNode(_LocalNode, prefix="MPSCNN"):
    """MPSCNNSpatialNormalizationNode: by the pixels of a window.

    Parameters
    ----------
    source : ImageNode or FilterNode
    kernel_size : int, pixels
        Height and width of the window.
    """

    __slots__ = ()


class LocalContrastNormalizationNode(_LocalNode, prefix="MPSCNN"):
    """MPSCNNLocalContrastNormalizationNode: by mean and variance of a window.

    Parameters
    ----------
    source : ImageNode or FilterNode
    kernel_size : int, pixels
        Height and width of the window.
    """

    __slots__ = ()
    p0 = _real("p0", "As that of mpscnn.LocalContrastNormalization.")
    pm = _real("pm", "As that of mpscnn.LocalContrastNormalization.")
    ps = _real("ps", "As that of mpscnn.LocalContrastNormalization.")


class CrossChannelNormalizationNode(_LocalNode, prefix="MPSCNN"):
    """MPSCNNCrossChannelNormalizationNode: by neighbouring channels.

    Parameters
    ----------
    source : ImageNode or FilterNode
    kernel_size : int, channels
    """

    __slots__ = ()


class SpatialNormalizationGradientNode(GradientFilterNode, prefix="MPSCNN"):
    """MPSCNNSpatialNormalizationGradientNode.

    Parameters
    ----------
    source_gradient, source_image, gradient_state
        See `GradientFilterNode`.
    kernel_size : int
        That of the forward node.
    """

    __slots__ = ()

    def __init__(
        self, source_gradient: Source, source_image: Source, gradient_state: StateNode, kernel_size: int
    ) -> None:
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:kernelSize:",
            *self._gradient(source_gradient, source_image, gradient_state),
            _checks.integer(kernel_size, f"{type(self).__name__}: kernel_size", 1),
        )

    alpha = _real("alpha", "That of the forward node.")
    beta = _real("beta", "That of the forward node.")
    delta = _real("delta", "That of the forward node.")


class CrossChannelNormalizationGradientNode(SpatialNormalizationGradientNode, prefix="MPSCNN"):
    """MPSCNNCrossChannelNormalizationGradientNode; see `SpatialNormalizationGradientNode`."""

    __slots__ = ()


class LocalContrastNormalizationGradientNode(GradientFilterNode, prefix="MPSCNN"):
    """MPSCNNLocalContrastNormalizationGradientNode; see `SpatialNormalizationGradientNode`."""

    __slots__ = ()

    def __init__(
        self, source_gradient: Source, source_image: Source, gradient_state: StateNode, kernel_size: Size
    ) -> None:
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:kernelWidth:kernelHeight:",
            *self._gradient(source_gradient, source_image, gradient_state),
            _pair(kernel_size, f"{type(self).__name__}: kernel_size"),
        )

    alpha = _real("alpha", "That of the forward node.")
    beta = _real("beta", "That of the forward node.")
    delta = _real("delta", "That of the forward node.")
    p0 = _real("p0", "That of the forward node.")
    pm = _real("pm", "That of the forward node.")
    ps = _real("ps", "That of the forward node.")
