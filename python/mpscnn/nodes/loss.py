# SPDX-License-Identifier: Apache-2.0
"""Nodes: Losses."""

from __future__ import annotations

from typing import Any, cast

from .. import _checks, _core
from ..losses import Loss, YOLOLoss
from ._base import FilterNode, GradientFilterNode, LabelsNode, Source, StateNode, _PlainNode, _wrapped


def _loss(loss: Any, name: str, kind: type) -> Any:
    return _core._graph_loss(_checks.instance(loss, name, kind))


class LossNode(FilterNode, prefix="MPSCNN"):
    """MPSCNNLossNode: a loss; ``result_image`` is its gradient with respect to the source.

    Calls of the graph take `mpscnn.LossLabels`, which have the loss afterwards.

    Parameters
    ----------
    source : ImageNode or FilterNode
        Predictions.
    loss : Loss
    """

    __slots__ = ()

    def __init__(self, source: Source, loss: Loss) -> None:
        given = _loss(loss, f"{type(self).__name__}: loss", Loss)
        self._make("initWithSource:lossDescriptor:", self._source(source), given)

    @property
    def input_labels(self) -> LabelsNode:
        """The labels; with a label of its own, the graph names them."""
        return cast(LabelsNode, _wrapped(self._object.get("inputLabels")))


class YOLOLossNode(FilterNode, prefix="MPSCNN"):
    """MPSCNNYOLOLossNode: the loss of predicted boxes; see `LossNode`.

    Parameters
    ----------
    source : ImageNode or FilterNode
    loss : YOLOLoss
    """

    __slots__ = ()

    def __init__(self, source: Source, loss: YOLOLoss) -> None:
        given = _loss(loss, f"{type(self).__name__}: loss", YOLOLoss)
        self._make("initWithSource:lossDescriptor:", self._source(source), given)

    input_labels = LossNode.input_labels


class ForwardLossNode(FilterNode, prefix="MPSNN"):
    """MPSNNForwardLossNode: a loss of images; ``result_image`` is the loss.

    Parameters
    ----------
    source, labels : ImageNode or FilterNode
    loss : Loss
        Its options.
    weights : ImageNode or FilterNode, optional
        Factors of the losses.
    """

    __slots__ = ()

    def __init__(self, source: Source, labels: Source, loss: Loss, weights: Source | None = None) -> None:
        given = _loss(loss, f"{type(self).__name__}: loss", Loss)
        images = [self._source(source), self._source(labels, "labels")]
        if weights is not None:
            images.append(self._source(weights, "weights"))
        self._make("initWithSources:lossDescriptor:", images, given)


class LossGradientNode(GradientFilterNode, prefix="MPSNN"):
    """MPSNNLossGradientNode: the gradient of a `ForwardLossNode`.

    Parameters
    ----------
    source_gradient : ImageNode or FilterNode
        Gradient of the loss.
    source, labels, loss, weights
        Those of the forward node.
    gradient_state : StateNode, optional
    is_labels_gradient : bool, default False
        Whether the gradient is with respect to the labels.
    """

    __slots__ = ()

    def __init__(
        self,
        source_gradient: Source,
        source: Source,
        labels: Source,
        loss: Loss,
        weights: Source | None = None,
        *,
        gradient_state: StateNode | None = None,
        is_labels_gradient: bool = False,
    ) -> None:
        name = type(self).__name__
        images = [
            self._source(source_gradient, "source_gradient"),
            self._source(source),
            self._source(labels, "labels"),
        ]
        if weights is not None:
            images.append(self._source(weights, "weights"))
        state = None if gradient_state is None else _checks.instance(gradient_state, name, StateNode)._object
        self._make(
            "initWithSources:gradientState:lossDescriptor:isLabelsGradientFilter:",
            images,
            state,
            _loss(loss, f"{name}: loss", Loss),
            _checks.boolean(is_labels_gradient, f"{name}: is_labels_gradient"),
        )


class InitialGradientNode(_PlainNode, prefix="MPSNN"):
    """MPSNNInitialGradientNode: ones, the gradient of a loss with respect to itself."""

    __slots__ = ()
