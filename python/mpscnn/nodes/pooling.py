# SPDX-License-Identifier: Apache-2.0
"""Nodes: Poolings."""

from __future__ import annotations

from .. import _checks
from ._base import FilterNode, GradientFilterNode, Padding, Size, Source, StateNode, _pair, _policy


class _PoolingNode(FilterNode):
    """A pooling."""

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        kernel_size: Size,
        stride: Size | None = None,
        *,
        padding: Padding | None = None,
        ceil_mode: bool = False,
    ) -> None:
        name = type(self).__name__
        size = _pair(kernel_size, f"{name}: kernel_size")
        step = size if stride is None else _pair(stride, f"{name}: stride")
        self._make(
            "initWithSource:kernelWidth:kernelHeight:strideInPixelsX:strideInPixelsY:", self._source(source), size, step
        )
        self._set_padding(padding, _checks.boolean(ceil_mode, f"{name}: ceil_mode"))


class PoolingMaxNode(_PoolingNode, prefix="MPSCNN"):
    """MPSCNNPoolingMaxNode: max pooling.

    Parameters
    ----------
    source : ImageNode or FilterNode
    kernel_size : int or pair
    stride : int or pair, optional
        None: kernel_size.
    padding, ceil_mode
        See `FilterNode`. With ceil_mode, a window that begins in the source or its padding may end beyond it.
    """

    __slots__ = ()


class PoolingAverageNode(_PoolingNode, prefix="MPSCNN"):
    """MPSCNNPoolingAverageNode: average pooling.

    Parameters
    ----------
    source, kernel_size, stride, padding, ceil_mode
        As those of `PoolingMaxNode`.
    count_include_pad : bool, optional
        Whether averages count the pixels of the padding, which must be in pixels. None: as if zeros were all around the
        source.
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        kernel_size: Size,
        stride: Size | None = None,
        *,
        padding: Padding | None = None,
        ceil_mode: bool = False,
        count_include_pad: bool | None = None,
    ) -> None:
        super().__init__(source, kernel_size, stride)
        ceil = _checks.boolean(ceil_mode, "PoolingAverageNode: ceil_mode")
        count = count_include_pad
        if count is not None:
            _checks.boolean(count, "PoolingAverageNode: count_include_pad")
            if isinstance(padding, str) or padding is None or hasattr(type(padding), "destination"):
                raise ValueError("PoolingAverageNode: count_include_pad needs padding in pixels.")
        self._set_padding(padding, ceil, count_include_pad=count)


class PoolingL2NormNode(_PoolingNode, prefix="MPSCNN"):
    """MPSCNNPoolingL2NormNode: L2 norm of each window.

    Parameters
    ----------
    source : ImageNode or FilterNode
    kernel_size : int or pair
    stride : int or pair, optional
        None: kernel_size.
    padding, ceil_mode
        See `FilterNode`. With ceil_mode, a window that begins in the source or its padding may end beyond it.
    """

    __slots__ = ()


class DilatedPoolingMaxNode(FilterNode, prefix="MPSCNN"):
    """MPSCNNDilatedPoolingMaxNode: max pooling of pixels at a distance.

    Parameters
    ----------
    source : ImageNode or FilterNode
    kernel_size, stride, dilation : int or pair
        Stride None: kernel_size.
    padding, ceil_mode
        See `PoolingMaxNode`.
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        kernel_size: Size,
        stride: Size | None = None,
        *,
        dilation: Size = 1,
        padding: Padding | None = None,
        ceil_mode: bool = False,
    ) -> None:
        name = type(self).__name__
        size = _pair(kernel_size, f"{name}: kernel_size")
        self._make(
            "initWithSource:kernelWidth:kernelHeight:strideInPixelsX:strideInPixelsY:dilationRateX:dilationRateY:",
            self._source(source),
            size,
            size if stride is None else _pair(stride, f"{name}: stride"),
            _pair(dilation, f"{name}: dilation"),
        )
        self._set_padding(padding, _checks.boolean(ceil_mode, f"{name}: ceil_mode"))


class _PoolingGradientNode(GradientFilterNode):
    """The gradient of a pooling."""

    __slots__ = ()

    def __init__(
        self,
        source_gradient: Source,
        source_image: Source,
        gradient_state: StateNode,
        kernel_size: Size,
        stride: Size | None = None,
        *,
        padding: Padding | None = None,
    ) -> None:
        name = type(self).__name__
        size = _pair(kernel_size, f"{name}: kernel_size")
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:kernelWidth:kernelHeight:strideInPixelsX:"
            "strideInPixelsY:paddingPolicy:",
            *self._gradient(source_gradient, source_image, gradient_state),
            size,
            size if stride is None else _pair(stride, f"{name}: stride"),
            None if padding is None else _policy(padding, name),
        )


class PoolingMaxGradientNode(_PoolingGradientNode, prefix="MPSCNN"):
    """MPSCNNPoolingMaxGradientNode; see `PoolingAverageGradientNode`."""

    __slots__ = ()


class PoolingAverageGradientNode(_PoolingGradientNode, prefix="MPSCNN"):
    """MPSCNNPoolingAverageGradientNode.

    Parameters
    ----------
    source_gradient, source_image, gradient_state
        See `GradientFilterNode`.
    kernel_size, stride, padding
        Those of the forward node.
    """

    __slots__ = ()


class PoolingL2NormGradientNode(_PoolingGradientNode, prefix="MPSCNN"):
    """MPSCNNPoolingL2NormGradientNode; see `PoolingAverageGradientNode`."""

    __slots__ = ()


class DilatedPoolingMaxGradientNode(GradientFilterNode, prefix="MPSCNN"):
    """MPSCNNDilatedPoolingMaxGradientNode: see `PoolingAverageGradientNode`, with a dilation."""

    __slots__ = ()

    def __init__(
        self,
        source_gradient: Source,
        source_image: Source,
        gradient_state: StateNode,
        kernel_size: Size,
        stride: Size | None = None,
        dilation: Size = 1,
    ) -> None:
        name = type(self).__name__
        size = _pair(kernel_size, f"{name}: kernel_size")
        self._make(
            "initWithSourceGradient:sourceImage:gradientState:kernelWidth:kernelHeight:strideInPixelsX:"
            "strideInPixelsY:dilationRateX:dilationRateY:",
            *self._gradient(source_gradient, source_image, gradient_state),
            size,
            size if stride is None else _pair(stride, f"{name}: stride"),
            _pair(dilation, f"{name}: dilation"),
        )
