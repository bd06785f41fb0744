# SPDX-License-Identifier: Apache-2.0
"""Nodes: Arithmetic, concatenation, padding and reshaping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from .. import _checks
from ._base import (
    FilterNode,
    GradientFilterNode,
    Source,
    StateNode,
    _choice,
    _index,
    _integer,
    _PlainGradientNode,
    _real,
)

_COMPARISONS = ("equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal")


class _ArithmeticNode(FilterNode):
    """A filter of two images.

    Parameters
    ----------
    left, right : ImageNode or FilterNode
        One of them may have one pixel, or one channel, for all of the other's, if its strides are 0.
    """

    __slots__ = ()

    def __init__(self, left: Source, right: Source) -> None:
        self._make("initWithLeftSource:rightSource:", self._source(left, "left"), self._source(right, "right"))

    primary_scale = _real("primaryScale", "Factor of the left image.")
    secondary_scale = _real("secondaryScale", "Factor of the right image.")
    bias = _real("bias", "Added to the result.")
    minimum_value = _real("minimumValue", "Min of the result.")
    maximum_value = _real("maximumValue", "Max of the result.")
    primary_stride_in_pixels_x = _integer("primaryStrideInPixelsX", "0: the left image's first column for all.")
    primary_stride_in_pixels_y = _integer("primaryStrideInPixelsY", "0: the left image's first row for all.")
    primary_stride_in_feature_channels = _integer(
        "primaryStrideInFeatureChannels", "0: the left image's first channel for all."
    )
    secondary_stride_in_pixels_x = _integer("secondaryStrideInPixelsX", "0: the right image's first column for all.")
    secondary_stride_in_pixels_y = _integer("secondaryStrideInPixelsY", "0: the right image's first row for all.")
    secondary_stride_in_feature_channels = _integer(
        "secondaryStrideInFeatureChannels", "0: the right image's first channel for all."
    )


class AdditionNode(_ArithmeticNode, prefix="MPSNN"):
    """MPSNNAdditionNode: the sum of two images, left and right."""

    __slots__ = ()


class SubtractionNode(_ArithmeticNode, prefix="MPSNN"):
    """MPSNNSubtractionNode: the difference of two images, left and right."""

    __slots__ = ()


class MultiplicationNode(_ArithmeticNode, prefix="MPSNN"):
    """MPSNNMultiplicationNode: the product of two images, left and right."""

    __slots__ = ()


class DivisionNode(_ArithmeticNode, prefix="MPSNN"):
    """MPSNNDivisionNode: the quotient of two images, left and right."""

    __slots__ = ()


class ComparisonNode(_ArithmeticNode, prefix="MPSNN"):
    """MPSNNComparisonNode: 1 where the comparison of two images, left and right, holds, else 0."""

    __slots__ = ()
    comparison_type = _choice("comparisonType", _COMPARISONS, 'Comparison: "equal", "less", ...')


class _ArithmeticGradientNode(GradientFilterNode):
    """The gradient of a sum, a difference or a product."""

    __slots__ = ()

    def __init__(
        self,
        source_gradient: Source,
        source_image: Source,
        gradient_state: StateNode,
        *,
        is_secondary: bool = False,
    ) -> None:
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:isSecondarySourceFilter:",
            *self._gradient(source_gradient, source_image, gradient_state),
            _checks.boolean(is_secondary, f"{type(self).__name__}: is_secondary"),
        )


class AdditionGradientNode(_ArithmeticGradientNode, prefix="MPSNN"):
    """MPSNNAdditionGradientNode.

    Parameters
    ----------
    source_gradient, source_image, gradient_state
        See `GradientFilterNode`; source_image is the other source.
    is_secondary : bool, default False
        Whether the gradient is with respect to the right source.
    """

    __slots__ = ()


class SubtractionGradientNode(_ArithmeticGradientNode, prefix="MPSNN"):
    """MPSNNSubtractionGradientNode; see `AdditionGradientNode`."""

    __slots__ = ()


class MultiplicationGradientNode(_ArithmeticGradientNode, prefix="MPSNN"):
    """MPSNNMultiplicationGradientNode; see `AdditionGradientNode`."""

    __slots__ = ()


class ConcatenationNode(FilterNode, prefix="MPSNN"):
    """MPSNNConcatenationNode: joins the channels of images, each rounded up to a multiple of 4 channels.

    Parameters
    ----------
    sources : iterable of ImageNode or FilterNode
    """

    __slots__ = ()

    def __init__(self, sources: Iterable[Source]) -> None:
        if not hasattr(type(sources), "__iter__"):
            _checks.refuse(sources, "ConcatenationNode: sources", "an iterable of nodes")
        self._make("initWithSources:", [self._source(one, "sources") for one in sources])


class ConcatenationGradientNode(_PlainGradientNode, prefix="MPSNN"):
    """MPSNNConcatenationGradientNode: the part of a gradient that belongs to a source; see `GradientFilterNode`."""

    __slots__ = ()


class PadNode(FilterNode, prefix="MPSNN"):
    """MPSNNPadNode: adds pixels and channels around an image.

    Parameters
    ----------
    source : ImageNode or FilterNode
    before, after : (height, width, channels)
        Numbers of rows, columns and channels.
    edge_mode : "zero", "clamp", "mirror", "mirror_with_edge" or "constant", default "zero"
    fill_value : float, default 0
        With "constant".
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        before: Sequence[SupportsIndex],
        after: Sequence[SupportsIndex],
        *,
        edge_mode: str = "zero",
        fill_value: float = 0.0,
    ) -> None:
        name = type(self).__name__
        sides = [_checks.integers(one, f"{name}: {what}", 0) for one, what in ((before, "before"), (after, "after"))]
        for side, what in zip(sides, ("before", "after"), strict=True):
            if len(side) != 3:
                raise ValueError(f"{name}: {what} {side} is not (height, width, channels).")
        mode = _index(edge_mode, f"{name}: edge_mode", ("zero", "clamp", "mirror", "mirror_with_edge", "constant"))
        self._make("initWithSource:paddingSizeBefore:paddingSizeAfter:edgeMode:", self._source(source), *sides, mode)
        self.fill_value = _checks.real(fill_value, f"{name}: fill_value")

    fill_value = _real("fillValue", 'Value of the added pixels, with edge_mode "constant".')


class PadGradientNode(_PlainGradientNode, prefix="MPSNN"):
    """MPSNNPadGradientNode; see `GradientFilterNode`."""

    __slots__ = ()


class ReshapeNode(FilterNode, prefix="MPSNN"):
    """MPSNNReshapeNode: the same values with other extents.

    Parameters
    ----------
    source : ImageNode or FilterNode
    shape : (height, width, channels)
    """

    __slots__ = ()

    def __init__(self, source: Source, shape: Sequence[SupportsIndex]) -> None:
        extents = _checks.integers(shape, "ReshapeNode: shape", 1)
        if len(extents) != 3:
            raise ValueError(f"ReshapeNode: shape {extents} is not (height, width, channels).")
        self._make(
            "initWithSource:resultWidth:resultHeight:resultFeatureChannels:",
            self._source(source),
            extents[:2],
            extents[2],
        )


class ReshapeGradientNode(_PlainGradientNode, prefix="MPSNN"):
    """MPSNNReshapeGradientNode; see `GradientFilterNode`."""

    __slots__ = ()
