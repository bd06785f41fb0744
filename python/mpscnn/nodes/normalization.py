# SPDX-License-Identifier: Apache-2.0
"""Nodes: Normalizations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from .. import _checks, _core
from ..optimizers import Optimizer
from ._base import (
    FilterNode,
    GradientFilterNode,
    Size,
    Source,
    StateNode,
    _choice,
    _Object,
    _pair,
    _PlainGradientNode,
    _real,
)

if TYPE_CHECKING:
    from .. import _typing as t


class NormalizationValues(_Object):
    """Values of a normalization node, which nodes may share: ``BatchNormalizationNode(y, node.values)``.

    With an optimizer, each encode of a graph that computes their gradients updates them. Graphs that share them read
    the new values in `MPSNNGraph.reload_from_data_sources`.
    """

    __slots__ = ("_kernel",)
    _kernel: str

    def __init__(self) -> None:
        raise TypeError("NormalizationValues cannot be made; they are the values of a node.")

    @property
    def is_trained(self) -> bool:
        """Whether an optimizer has changed them."""
        return self._object.is_trained

    def _copy(self, index: int) -> NDArray[np.float32] | None:
        values = self._object.trained_values()[index]
        return None if values is None else cast("NDArray[np.float32]", values.numpy("float32").copy())

    @property
    def gamma(self) -> NDArray[np.float32]:
        """A copy of the factors that an optimizer has computed, shape (C,), float32.

        Raises
        ------
        RuntimeError
            "values: no optimizer has changed them yet.", or a command buffer that writes them has not completed.
        """
        return cast("NDArray[np.float32]", self._copy(0))

    @property
    def beta(self) -> NDArray[np.float32]:
        """A copy of the offsets, as `gamma`."""
        return cast("NDArray[np.float32]", self._copy(1))

    @property
    def mean(self) -> NDArray[np.float32] | None:
        """A copy of the moving mean of a batch normalization, as `gamma`; None: it does not change."""
        return self._copy(2)

    @property
    def variance(self) -> NDArray[np.float32] | None:
        """A copy of the moving variance, divided by n - 1 as PyTorch's, as `mean`."""
        return self._copy(3)

    @classmethod
    def _of(
        cls, kernel: str, gamma: Any, optimizer: Optimizer | None, momentum: Any, arguments: dict[str, Any]
    ) -> NormalizationValues:
        extra = {"optimizer": optimizer, "momentum": momentum}
        if isinstance(gamma, NormalizationValues):
            given = [*arguments, *(name for name, value in extra.items() if value is not None)]
            if given:
                raise ValueError(
                    f"{kernel}Node: {given[0]} was given together with NormalizationValues, which have it."
                )
            if gamma._kernel != kernel:
                raise ValueError(f"{kernel}Node: gamma has the values of a {gamma._kernel}Node.")
            return gamma
        if optimizer is not None:
            _checks.instance_of(optimizer, f"{kernel}Node: optimizer", Optimizer)
        elif momentum is not None:
            raise ValueError(f"{kernel}Node: momentum ({momentum!r}) was given without optimizer.")
        weight = 0.1 if momentum is None else _checks.real(momentum, f"{kernel}Node: momentum")
        if not 0 <= weight <= 1:
            raise ValueError(f"{kernel}Node: momentum ({weight}) is not between 0 and 1.")
        made = object.__new__(cls)
        made._kernel = kernel
        made._object = _core._graph_normalization(kernel, {"gamma": gamma, **arguments}, optimizer, weight)
        return made


_TRAINING_STYLE = _choice(
    "trainingStyle",
    ("none", "cpu", "gpu"),
    'How gradients update the values: "gpu", the default, by their optimizer or the update methods of their source; '
    '"cpu", by its update_on_cpu(), when the encode has completed; "none".',
)


class _NormalizationNode(FilterNode):
    """A normalization with values for each channel."""

    __slots__ = ("_values",)
    _values: NormalizationValues

    def _make_normalization(
        self, source: Any, gamma: Any, arguments: dict[str, Any], optimizer: Optimizer | None, momentum: Any = None
    ) -> None:
        image = self._source(source)
        kernel = type(self).__name__.removesuffix("Node")
        given = {name: value for name, value in arguments.items() if value is not None}
        self._values = NormalizationValues._of(kernel, gamma, optimizer, momentum, given)
        self._make("initWithSource:dataSource:", image, self._values._object)

    @property
    def values(self) -> NormalizationValues:
        """The values, which other nodes may share."""
        return self._values

    training_style = _TRAINING_STYLE


class BatchNormalizationNode(_NormalizationNode, prefix="MPSCNN"):
    """MPSCNNBatchNormalizationNode.

    Parameters
    ----------
    source : ImageNode or FilterNode
    gamma, beta, mean, variance, epsilon
        As those of `mpscnn.BatchNormalization`; gamma may be a data source or `NormalizationValues`, which have the
        other parameters.
    optimizer : Optimizer, optional
        Updates gamma and beta in graphs that compute their gradients. Those graphs normalize by the mean and variance
        of the batch, and add these to the moving ones.
    momentum : float, 0 to 1, default 0.1
        With an optimizer: weight of a batch in the moving mean and variance, as in PyTorch.

    Raises
    ------
    ValueError
        "BatchNormalizationNode: momentum (1.5) is not between 0 and 1.", "BatchNormalizationNode: momentum (0.5) was
        given without optimizer."
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        gamma: t.Values | t.NormalizationSource | NormalizationValues,
        beta: t.Values | None = None,
        mean: t.Values | None = None,
        variance: t.Values | None = None,
        *,
        epsilon: float | None = None,
        optimizer: Optimizer | None = None,
        momentum: t.Real | None = None,
    ) -> None:
        given = {"beta": beta, "mean": mean, "variance": variance, "epsilon": epsilon}
        self._make_normalization(source, gamma, given, optimizer, momentum)
        counting = self._values._object.counting()
        if counting is not None:
            self._object.set("paddingPolicy", counting)

    _flags = _choice("flags", ("automatic", "always", "never"), "Apple's property.")

    @property
    def flags(self) -> str:
        """When the statistics of the batch replace mean and variance.

        "automatic", in graphs with gradients; "always"; "never", so that the moving mean and variance do not change.
        """
        return cast(str, self._flags)

    @flags.setter
    def flags(self, flags: str) -> None:
        self._flags = flags
        policy = self._object.get("paddingPolicy")
        if policy is not None and policy.apple_class == "PyMPSCountingPadding":
            policy.set("follows", flags != "never")


class InstanceNormalizationNode(_NormalizationNode, prefix="MPSCNN"):
    """MPSCNNInstanceNormalizationNode.

    Parameters
    ----------
    source : ImageNode or FilterNode
    gamma, beta, epsilon
        As those of `mpscnn.InstanceNormalization`; gamma may be a data source or `NormalizationValues`, which have the
        other parameters.
    optimizer : Optimizer, optional
        Updates gamma and beta in graphs that compute their gradients.
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        gamma: t.Values | t.NormalizationSource | NormalizationValues,
        beta: t.Values | None = None,
        *,
        epsilon: float | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        self._make_normalization(source, gamma, {"beta": beta, "epsilon": epsilon}, optimizer)


class GroupNormalizationNode(_NormalizationNode, prefix="MPSCNN"):
    """MPSCNNGroupNormalizationNode.

    Parameters
    ----------
    source : ImageNode or FilterNode
    gamma, beta, groups, epsilon
        As those of `mpscnn.GroupNormalization`; gamma may be a data source or `NormalizationValues`, which have the
        other parameters.
    optimizer : Optimizer, optional
        Updates gamma and beta in graphs that compute their gradients.
    """

    __slots__ = ()

    def __init__(
        self,
        source: Source,
        gamma: t.Values | t.NormalizationSource | NormalizationValues,
        beta: t.Values | None = None,
        groups: int | None = None,
        *,
        epsilon: float | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        self._make_normalization(source, gamma, {"beta": beta, "groups": groups, "epsilon": epsilon}, optimizer)


class BatchNormalizationGradientNode(_PlainGradientNode, prefix="MPSCNN"):
    """MPSCNNBatchNormalizationGradientNode; see `GradientFilterNode`."""

    __slots__ = ()
    training_style = _TRAINING_STYLE


class InstanceNormalizationGradientNode(_PlainGradientNode, prefix="MPSCNN"):
    """MPSCNNInstanceNormalizationGradientNode; see `GradientFilterNode`."""

    __slots__ = ()
    training_style = _TRAINING_STYLE


class GroupNormalizationGradientNode(_PlainGradientNode, prefix="MPSCNN"):
    """MPSCNNGroupNormalizationGradientNode; see `GradientFilterNode`."""

    __slots__ = ()
    training_style = _TRAINING_STYLE


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
