# SPDX-License-Identifier: Apache-2.0
"""Nodes: Softmax, scaling and dropout."""

from __future__ import annotations

from .. import _checks
from ._base import (
    FilterNode,
    GradientFilterNode,
    Size,
    Source,
    StateNode,
    _pair,
    _PlainGradientNode,
    _PlainNode,
)


class SoftMaxNode(_PlainNode, prefix="MPSCNN"):
    """MPSCNNSoftMaxNode: e^x over the sum of e^x, along the channels."""

    __slots__ = ()


class LogSoftMaxNode(_PlainNode, prefix="MPSCNN"):
    """MPSCNNLogSoftMaxNode: the logarithm of the softmax."""

    __slots__ = ()


class SoftMaxGradientNode(_PlainGradientNode, prefix="MPSCNN"):
    """MPSCNNSoftMaxGradientNode; see `GradientFilterNode`."""

    __slots__ = ()


class LogSoftMaxGradientNode(_PlainGradientNode, prefix="MPSCNN"):
    """MPSCNNLogSoftMaxGradientNode; see `GradientFilterNode`."""

    __slots__ = ()


class UpsamplingNearestNode(FilterNode, prefix="MPSCNN"):
    """MPSCNNUpsamplingNearestNode: repeats pixels.

    Parameters
    ----------
    source : ImageNode or FilterNode
    scale_factor : int or pair
    """

    __slots__ = ()

    def __init__(self, source: Source, scale_factor: Size) -> None:
        factor = _pair(scale_factor, f"{type(self).__name__}: scale_factor")
        self._make("initWithSource:integerScaleFactorX:integerScaleFactorY:", self._source(source), factor)


class UpsamplingBilinearNode(FilterNode, prefix="MPSCNN"):
    """MPSCNNUpsamplingBilinearNode: linear interpolation.

    Parameters
    ----------
    source : ImageNode or FilterNode
    scale_factor : int or pair
    align_corners : bool, default False
        Whether the corners of both images coincide.
    """

    __slots__ = ()

    def __init__(self, source: Source, scale_factor: Size, *, align_corners: bool = False) -> None:
        name = type(self).__name__
        factor = _pair(scale_factor, f"{name}: scale_factor")
        aligned = _checks.boolean(align_corners, f"{name}: align_corners")
        self._make(
            "initWithSource:integerScaleFactorX:integerScaleFactorY:alignCorners:",
            self._source(source),
            factor,
            aligned,
        )


class _UpsamplingGradientNode(GradientFilterNode):
    __slots__ = ()

    def __init__(
        self, source_gradient: Source, source_image: Source, gradient_state: StateNode, scale_factor: Size
    ) -> None:
        height, width = _pair(scale_factor, f"{type(self).__name__}: scale_factor")
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:scaleFactorX:scaleFactorY:",
            *self._gradient(source_gradient, source_image, gradient_state),
            (height, width),
        )


class UpsamplingNearestGradientNode(_UpsamplingGradientNode, prefix="MPSCNN"):
    """MPSCNNUpsamplingNearestGradientNode: see `GradientFilterNode`; scale_factor is that of the forward node."""

    __slots__ = ()


class UpsamplingBilinearGradientNode(_UpsamplingGradientNode, prefix="MPSCNN"):
    """MPSCNNUpsamplingBilinearGradientNode: see `GradientFilterNode`; scale_factor is that of the forward node."""

    __slots__ = ()


class ScaleNode(FilterNode, prefix="MPSNN"):
    """MPSNNScaleNode: base class of the nodes that scale images to a size; cannot be made."""

    __slots__ = ()


class _ScaleNode(ScaleNode):
    __slots__ = ()

    def __init__(self, source: Source, size: Size) -> None:
        height, width = _pair(size, f"{type(self).__name__}: size")
        self._make("initWithSource:outputSize:", self._source(source), (height, width, 1))


class LanczosScaleNode(_ScaleNode, prefix="MPSNN"):
    """MPSNNLanczosScaleNode: scales an image by Lanczos's filter.

    Parameters
    ----------
    source : ImageNode or FilterNode
    size : int or pair, pixels
        Of the result.
    """

    __slots__ = ()


class BilinearScaleNode(_ScaleNode, prefix="MPSNN"):
    """MPSNNBilinearScaleNode: scales an image by linear interpolation; see `LanczosScaleNode`."""

    __slots__ = ()


class DropoutNode(FilterNode, prefix="MPSCNN"):
    """MPSCNNDropoutNode: sets values to 0 at random, and scales the others by 1 / keep_probability.

    Parameters
    ----------
    source : ImageNode or FilterNode
    keep_probability : float, 0 to 1, default 0.5
    seed : int, >= 0, default 0
    mask_stride : int or pair, default 1
        Pixels that share a decision.
    """

    __slots__ = ()

    def __init__(self, source: Source, keep_probability: float = 0.5, *, seed: int = 0, mask_stride: Size = 1) -> None:
        name = type(self).__name__
        height, width = _pair(mask_stride, f"{name}: mask_stride")
        self._make(
            "initWithSource:keepProbability:seed:maskStrideInPixels:",
            self._source(source),
            _checks.real(keep_probability, f"{name}: keep_probability"),
            _checks.integer(seed, f"{name}: seed", 0),
            (height, width, 1),
        )


class DropoutGradientNode(GradientFilterNode, prefix="MPSCNN"):
    """MPSCNNDropoutGradientNode: see `GradientFilterNode`; the other arguments are those of the forward node."""

    __slots__ = ()

    def __init__(
        self,
        source_gradient: Source,
        source_image: Source,
        gradient_state: StateNode,
        keep_probability: float = 0.5,
        *,
        seed: int = 0,
        mask_stride: Size = 1,
    ) -> None:
        name = type(self).__name__
        height, width = _pair(mask_stride, f"{name}: mask_stride")
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:keepProbability:seed:maskStrideInPixels:",
            *self._gradient(source_gradient, source_image, gradient_state),
            _checks.real(keep_probability, f"{name}: keep_probability"),
            _checks.integer(seed, f"{name}: seed", 0),
            (height, width, 1),
        )
