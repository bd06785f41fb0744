# SPDX-License-Identifier: Apache-2.0
"""Nodes: Reductions and Gram matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from .. import _checks
from ._base import FilterNode, GradientFilterNode, Source, StateNode, _PlainGradientNode, _PlainNode, _real


class _ReductionNode(_PlainNode):
    """A reduction along an axis."""

    __slots__ = ()

    @property
    def clip_rect_source(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The part of the source that is read: (y, x, image) and (height, width, images)."""
        numbers = self._object.get("clipRectSource")
        return numbers[:3], numbers[3:]

    @clip_rect_source.setter
    def clip_rect_source(self, region: Sequence[Sequence[SupportsIndex]]) -> None:
        name = f"{type(self).__name__}: clip_rect_source"
        numbers = tuple(number for part in region for number in _checks.integers(part, name, 0))
        if len(numbers) != 6:
            raise ValueError(f"{name} {numbers} is not ((y, x, image), (height, width, images)).")
        self._object.set("clipRectSource", numbers)


class ReductionRowMinNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionRowMinNode: the min of each row."""

    __slots__ = ()


class ReductionRowMaxNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionRowMaxNode: the max of each row."""

    __slots__ = ()


class ReductionRowMeanNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionRowMeanNode: the mean of each row."""

    __slots__ = ()


class ReductionRowSumNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionRowSumNode: the sum of each row."""

    __slots__ = ()


class ReductionColumnMinNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionColumnMinNode: the min of each column."""

    __slots__ = ()


class ReductionColumnMaxNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionColumnMaxNode: the max of each column."""

    __slots__ = ()


class ReductionColumnMeanNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionColumnMeanNode: the mean of each column."""

    __slots__ = ()


class ReductionColumnSumNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionColumnSumNode: the sum of each column."""

    __slots__ = ()


class ReductionFeatureChannelsMinNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionFeatureChannelsMinNode: the min of the channels of each pixel."""

    __slots__ = ()


class ReductionFeatureChannelsMaxNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionFeatureChannelsMaxNode: the max of the channels of each pixel."""

    __slots__ = ()


class ReductionFeatureChannelsMeanNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionFeatureChannelsMeanNode: the mean of the channels of each pixel."""

    __slots__ = ()


class ReductionFeatureChannelsSumNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionFeatureChannelsSumNode: the sum of the channels of each pixel, times ``weight``."""

    __slots__ = ()
    weight = _real("weight", "Factor of the sum.")


class ReductionFeatureChannelsArgumentMinNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionFeatureChannelsArgumentMinNode: the channel of the min of each pixel."""

    __slots__ = ()


class ReductionFeatureChannelsArgumentMaxNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionFeatureChannelsArgumentMaxNode: the channel of the max of each pixel."""

    __slots__ = ()


class ReductionSpatialMeanNode(_ReductionNode, prefix="MPSNN"):
    """MPSNNReductionSpatialMeanNode: the mean of all pixels, for each channel."""

    __slots__ = ()


class ReductionSpatialMeanGradientNode(_PlainGradientNode, prefix="MPSNN"):
    """MPSNNReductionSpatialMeanGradientNode; see `GradientFilterNode`."""

    __slots__ = ()


class GramMatrixCalculationNode(FilterNode, prefix="MPSNN"):
    """MPSNNGramMatrixCalculationNode: the products of all pairs of channels, summed over the pixels.

    Parameters
    ----------
    source : ImageNode or FilterNode
    alpha : float, default 1
        Factor of the sums.
    """

    __slots__ = ()

    def __init__(self, source: Source, alpha: float = 1.0) -> None:
        factor = _checks.real(alpha, "GramMatrixCalculationNode: alpha")
        self._make("initWithSource:alpha:", self._source(source), factor)


class GramMatrixCalculationGradientNode(GradientFilterNode, prefix="MPSNN"):
    """MPSNNGramMatrixCalculationGradientNode: see `GradientFilterNode`; alpha is that of the forward node."""

    __slots__ = ()

    def __init__(
        self, source_gradient: Source, source_image: Source, gradient_state: StateNode, alpha: float = 1.0
    ) -> None:
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:alpha:",
            *self._gradient(source_gradient, source_image, gradient_state),
            _checks.real(alpha, "GramMatrixCalculationGradientNode: alpha"),
        )
