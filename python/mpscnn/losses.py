# SPDX-License-Identifier: Apache-2.0
"""Losses of predictions with respect to labels, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from . import _checks, _core, _options
from . import _typing as t
from .image import Image
from .loss_labels import LossLabels, label_arrays, numbers_of

if TYPE_CHECKING:
    from .device import CommandBuffer, Device

_Out = TypeVar("_Out")


class _OfLabels:
    """Mixin with the methods of losses that take LossLabels."""

    _TAKES_CLASS_NUMBERS = True

    if TYPE_CHECKING:

        def _call(self, x: Any, labels: LossLabels, out: Any) -> Any: ...
        def _encode(self, *arguments: Any) -> Image: ...
        def _shapes(self, x: Any) -> tuple[tuple[int, int, int, int], tuple[int, int, int]]: ...
        @property
        def device(self) -> Device: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        x: Image,
        labels: LossLabels | t.Array | t.Nested,
        weights: t.Array | t.Nested | None = None,
        *,
        out: Image | None = None,
    ) -> tuple[NDArray[np.float32], Image]: ...

    @overload
    def __call__(
        self,
        x: t.Array,
        labels: LossLabels | t.Array | t.Nested,
        weights: t.Array | t.Nested | None = None,
        *,
        out: None = None,
    ) -> tuple[NDArray[np.float32], NDArray[Any]]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        labels: LossLabels | t.Array | t.Nested,
        weights: t.Array | t.Nested | None = None,
        *,
        out: _Out,
    ) -> tuple[NDArray[np.float32], _Out]: ...

    def __call__(self, x: Any, labels: Any, weights: Any = None, *, out: Any = None) -> Any:
        """Compute loss and gradient, and wait for the results.

        Parameters
        ----------
        x : array, shape (N, H, W, C), or Image
            Predictions.
        labels : LossLabels, array or sequence
            Arrays as in LossLabels; class numbers (not for YOLOLoss) are less than the number of channels of x.
        weights : array or sequence, optional
            Only with labels that are arrays; see LossLabels.
        out : array or Image of x's shape, float32 or float16, optional
            Destination of the gradient.

        Returns
        -------
        (array, array or Image)
            The loss, float32, shape (N, 1, 1, 1), or x's shape with reduction "none"; and the gradient, an array or
            Image as x is, float16 if x is float16, else float32.
        """
        return self._call(x, self._labels_for(x, labels, weights), out)

    def _labels_for(self, x: Any, labels: Any, weights: Any) -> LossLabels:
        """Return the LossLabels itself, or one made from arrays for these predictions."""
        name = next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ == __name__)
        shape, loss_shape = self._shapes(x)
        if isinstance(labels, LossLabels):
            if weights is not None:
                raise ValueError(f"{name}: weights were given together with LossLabels, which have their own.")
            return labels
        if isinstance(labels, Image):
            raise TypeError(f"{name}: labels is an Image; LossLabels(labels) takes it.")
        given = numbers_of(labels, "labels")
        if given.dtype.kind == "f":
            if given.shape != shape:
                raise ValueError(f"{name}: labels.shape {given.shape} is not x.shape {shape}.")
        elif not self._TAKES_CLASS_NUMBERS:
            raise TypeError(f"{name}: labels.dtype ({given.dtype}) is not a floating point type.")
        made = LossLabels.__new__(LossLabels)
        arrays = label_arrays(name, given, weights, shape[3])
        _core._LossLabels.__init__(made, *arrays, loss_shape, self.device)
        return made

    def encode(
        self,
        command_buffer: CommandBuffer,
        x: Image,
        labels: LossLabels,
        out: Image | None = None,
        temporary: bool = False,
    ) -> Image:
        """Append the computation of loss and gradient to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
            Predictions.
        labels : LossLabels
            Of x's shape. ``labels.loss`` is the loss when the command buffer has completed; another encode with the
            same object replaces it.
        out : Image, optional
            Destination of the gradient: x's shape, float32 or float16.
        temporary : bool, default False
            Only kernels on this command buffer can read the gradient, not the CPU.

        Returns
        -------
        Image
            The gradient, which may be read when the command buffer has completed.
        """
        return self._encode(command_buffer, x, labels, out, temporary)


@_options.attributes
class Loss(_OfLabels, _core._Loss):
    r"""Loss of predictions, and its gradient with respect to them.

    With y the prediction, t the label and w the weight of a value, its loss is w l and its gradient w dl/dy:

    =============================  ====================================================================================
    type                           l
    =============================  ====================================================================================
    "mean_absolute_error"          \|y - t\|
    "mean_squared_error"           (y - t)²
    "softmax_cross_entropy"        -t log softmax(y), over the channels of a pixel; y are logits
    "sigmoid_cross_entropy"        max(y, 0) - y t + log(1 + exp(-\|y\|)); y are logits
    "categorical_cross_entropy"    -t log y; y are probabilities
    "hinge"                        max(1 - (2 t - 1) y, 0); t is 0 or 1
    "huber"                        (y - t)² / 2 up to \|y - t\| = delta, delta (\|y - t\| - delta / 2) beyond
    "cosine_distance"              1 - sum(y t) of an image
    "log"                          -t log(y + epsilon) - (1 - t) log(1 - y + epsilon)
    "kullback_leibler_divergence"  t (log t - y); y are logarithms of probabilities
    =============================  ====================================================================================

    The gradient is that of the sum for every reduction: "mean" and "sum_by_nonzero_weights" divide the loss, but not
    the gradient. Use ``weight=1 / N`` for the gradient of a mean over N.

    Parameters
    ----------
    type : str
        A type from the table.
    reduction : "none", "sum", "mean" or "sum_by_nonzero_weights", default "sum"
        Reduction of an image's losses to one. A mean is over H W C values, that of "softmax_cross_entropy" over H W
        pixels; "sum_by_nonzero_weights" divides by the number of weights that are not 0. "cosine_distance" supports
        only "sum".
    weight : float, default 1
        w if the labels have no weights.
    label_smoothing : float, 0 to 1, default 0
        s: t is replaced by t (1 - s) + s / number_of_classes in "softmax_cross_entropy", and by t (1 - s) + s / 2 in
        "sigmoid_cross_entropy"; not used by the other types.
    number_of_classes : int, >= 1, default 1
        For label_smoothing.
    epsilon : float, >= 0, default 1e-7
        For "log".
    delta : float, >= 0, default 1
        For "huber", in units of y.
    reduce_across_batch : bool, default False
        Reduce the losses of all images to that of the first; the others are 0. No effect with reduction "none".
    device : Device, default Device()

    Raises
    ------
    ValueError
        "Loss: labels.shape (2, 1, 1, 3) is not x.shape (2, 1, 1, 4)."
        "Loss: reduction ("mean") is not "sum", the only one of type "cosine_distance"."
        "Loss: label_smoothing (1.5) is not between 0 and 1."
    TypeError
        "Loss: out.dtype (uint8) is not float32 or float16."
    RuntimeError
        "Loss: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSCNNLoss and MPSCNNLossDescriptor.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> loss = mpscnn.Loss("mean_squared_error", reduction="mean")
    >>> value, grad = loss(np.array([[[[1.0, 2.0]]]], np.float32), np.array([[[[0.0, 4.0]]]], np.float32))
    >>> value.item(), grad.tolist()
    (2.5, [[[[2.0, -4.0]]]])
    >>> value, grad = mpscnn.Loss("softmax_cross_entropy")(np.zeros((1, 1, 1, 4), np.float32), [3])
    >>> grad.tolist()
    [[[[0.25, 0.25, 0.25, -0.75]]]]
    """

    type: t.LossType
    reduction: t.LossReduction
    weight: float
    label_smoothing: float
    number_of_classes: int
    epsilon: float
    delta: float
    reduce_across_batch: bool

    def __init__(
        self,
        type: t.LossType,
        *,
        reduction: t.LossReduction = "sum",
        weight: t.Real = 1.0,
        label_smoothing: t.Real = 0.0,
        number_of_classes: SupportsIndex = 1,
        epsilon: t.Real = 1e-7,
        delta: t.Real = 1.0,
        reduce_across_batch: bool = False,
        device: Device | None = None,
    ) -> None:
        self._given = _options.given(locals())
        super().__init__(self._given, device)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.Loss, not made>"
        return f'<mpscnn.Loss "{self.type}", reduction "{self.reduction}">'


@_options.attributes
class YOLOLoss(_OfLabels, _core._YOLOLoss):
    """Loss of YOLO's box predictions, and its gradient.

    Each pixel of the predictions is a cell of the grid that an image is divided into, and each cell predicts a box for
    each anchor box: its channels are X, Y, W, H, C, F0, F1, ... of the first anchor box, then of the second, and so
    on. Labels have the same channels: the box's centre in its cell (0 to 1), its width and height in cells, more than 0
    where there is an object, and the classes' probabilities. Cells without an object have 0 for all but the classes.
    The labels of a cell are repeated for each anchor box; these rules select the anchor boxes that they apply to:

    ==========  =======================================================================================================
    fit         intersection over union of anchor box and label, both with the same centre
    object      label's c > 0, and no other anchor box of the cell fits better, or fit > min_iou_for_object_presence
    absent      no object, and fit < max_iou_for_object_absence; boxes that are neither have no confidence loss
    iou         of the label and the box (sigmoid(X), sigmoid(Y), exp(W) anchor width, exp(H) anchor height)
    ==========  =======================================================================================================

    The loss of an anchor box is the sum of these terms. The gradient is that of the sum over all; iou is constant:

    =====================================================  ============================================================
    object                                                 scale_xy xy_loss(sigmoid(X), x), likewise Y;
                                                           scale_wh wh_loss(W, log(w / anchor width + 1e-5)), likewise
                                                           H; scale_class classes_loss(F, f)
    object, absent                                         scale_object, or scale_no_object, times
                                                           confidence_loss(C, iou or, without rescore, 1; 0 if absent)
    =====================================================  ============================================================

    Apple's header specifies little of this; the rest follows an implementation of models that run on MPS
    (docs/differences_from_apple.md).

    Parameters
    ----------
    anchor_boxes : array or sequence, shape (A, 2), > 0
        Width and height of each anchor box, in cells.
    xy_loss, wh_loss, confidence_loss, classes_loss : Loss or str
        Losses of the terms, each a type or a Loss, whose reduction is ignored. "cosine_distance" is not allowed.
    reduction : "none", "sum", "mean" or "sum_by_nonzero_weights", default "sum"
        Reduction of an image's losses to one. The gradient is that of the sum.
    rescore : bool, default True
        The confidence label of an object is its iou, otherwise 1.
    scale_xy, scale_wh, scale_no_object, scale_object, scale_class : float, default 10, 10, 5, 100 and 2
        Factors of the terms.
    min_iou_for_object_presence, max_iou_for_object_absence : float, 0 to 1, default 0.7 and 0.3
    reduce_across_batch : bool, default False
        Reduce the losses of all images to that of the first; the others are 0. No effect with reduction "none".
    device : Device, default Device()

    Raises
    ------
    ValueError
        "YOLOLoss: x has 26 channels, which are not 5 or more for each of 3 anchor boxes."
        "YOLOLoss: anchor_boxes.shape (3,) is not (number of boxes, 2), width and height of each."
        "YOLOLoss: anchor_boxes[1, 0] (0) is not a finite number greater than 0."
        "YOLOLoss: labels.shape (1, 7, 7, 50) is not x.shape (1, 7, 7, 75)."
    TypeError
        "YOLOLoss: labels.dtype (int64) is not a floating point type."
        "YOLOLoss: wh_loss (int) is not a Loss or its type, a str."
    RuntimeError
        "YOLOLoss: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSCNNYOLOLoss and MPSCNNYOLOLossDescriptor.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> loss = mpscnn.YOLOLoss([[1, 1], [3, 2]], wh_loss=mpscnn.Loss("huber", delta=0.5))
    >>> labels = np.zeros((1, 1, 1, 2, 5), np.float32)
    >>> labels[0, 0, 0, :] = 0.5, 0.5, 3, 2, 1  # a box in the middle of the cell, as large as the second anchor box
    >>> value, grad = loss(np.zeros((1, 1, 1, 10), np.float32), labels.reshape(1, 1, 1, 10))
    >>> bool(np.isclose(value.item(), (100 + 5) * np.log(2), rtol=1e-5)), np.abs(grad).max(), grad.argmin().item()
    (True, np.float32(50.0), 9)
    """

    _TAKES_CLASS_NUMBERS = False

    xy_loss: Loss
    wh_loss: Loss
    confidence_loss: Loss
    classes_loss: Loss
    reduction: t.LossReduction
    rescore: bool
    reduce_across_batch: bool
    scale_xy: float
    scale_wh: float
    scale_no_object: float
    scale_object: float
    scale_class: float
    min_iou_for_object_presence: float
    max_iou_for_object_absence: float

    def __init__(
        self,
        anchor_boxes: t.Array | t.Nested,
        *,
        xy_loss: Loss | t.LossType = "mean_squared_error",
        wh_loss: Loss | t.LossType = "huber",
        confidence_loss: Loss | t.LossType = "sigmoid_cross_entropy",
        classes_loss: Loss | t.LossType = "softmax_cross_entropy",
        reduction: t.LossReduction = "sum",
        rescore: bool = True,
        scale_xy: t.Real = 10.0,
        scale_wh: t.Real = 10.0,
        scale_no_object: t.Real = 5.0,
        scale_object: t.Real = 100.0,
        scale_class: t.Real = 2.0,
        min_iou_for_object_presence: t.Real = 0.7,
        max_iou_for_object_absence: t.Real = 0.3,
        reduce_across_batch: bool = False,
        device: Device | None = None,
    ) -> None:
        boxes, options = _boxes(anchor_boxes), _options.given(locals())
        options.pop("anchor_boxes")
        terms = [_term(options.pop(name), name, device) for name in _TERMS]
        super().__init__(boxes, terms, options, device)
        self._given, self._boxes = {**dict(zip(_TERMS, terms, strict=True)), **options}, boxes

    @property
    def anchor_boxes(self) -> NDArray[np.float32]:
        """array, shape (A, 2), float32: width and height; a copy."""
        return _checks.made(self, "self")._boxes.astype(np.float32)

    @property
    def number_of_anchor_boxes(self) -> int:
        """The number of anchor boxes."""
        return len(_checks.made(self, "self")._boxes)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.YOLOLoss, not made>"
        return f'<mpscnn.YOLOLoss of {self.number_of_anchor_boxes} anchor boxes, reduction "{self.reduction}">'


@_options.attributes
class ForwardLoss(_core._ForwardLossKernel):
    """Loss of predictions, with labels in images or arrays; LossGradient computes its gradient.

    Labels and weights have the shape of the predictions. See Loss for the types and their formulas.

    Parameters
    ----------
    type, reduction, weight, label_smoothing, number_of_classes, epsilon, delta, reduce_across_batch : as in Loss
    device : Device, default Device()

    Raises
    ------
    ValueError
        "ForwardLoss: labels.shape (2, 1, 1, 3) is not x.shape (2, 1, 1, 4)."
    TypeError
        "ForwardLoss: x is an Image; labels (ndarray) is not."
    RuntimeError
        "ForwardLoss: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSNNForwardLoss.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> loss = mpscnn.ForwardLoss("mean_squared_error", reduction="mean")
    >>> loss(np.array([[[[1.0, 2.0]]]], np.float32), np.array([[[[0.0, 4.0]]]], np.float32)).tolist()
    [[[[2.5]]]]
    """

    type: t.LossType
    weight: float
    label_smoothing: float
    number_of_classes: int
    epsilon: float
    delta: float
    reduction: t.LossReduction
    reduce_across_batch: bool

    def __init__(
        self,
        type: t.LossType,
        *,
        reduction: t.LossReduction = "sum",
        weight: t.Real = 1.0,
        label_smoothing: t.Real = 0.0,
        number_of_classes: SupportsIndex = 1,
        epsilon: t.Real = 1e-7,
        delta: t.Real = 1.0,
        reduce_across_batch: bool = False,
        device: Device | None = None,
    ) -> None:
        self._given = _options.given(locals())
        super().__init__("ForwardLoss", self._given, device)

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        x: Image,
        labels: Image,
        weights: Image | None = None,
        *,
        out: Image | None = None,
    ) -> Image: ...

    @overload
    def __call__(
        self,
        x: t.Array,
        labels: t.Array,
        weights: t.Array | None = None,
        *,
        out: None = None,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        labels: t.Array,
        weights: t.Array | None = None,
        *,
        out: _Out,
    ) -> _Out: ...

    def __call__(self, x: Any, labels: Any, weights: Any = None, *, out: Any = None) -> Any:
        """Compute the loss and wait for the result.

        Parameters
        ----------
        x, labels, weights : arrays or Images, shape (N, H, W, C)
            weights are optional.
        out : array or Image of the result's shape, float32 or float16, optional

        Returns
        -------
        array or Image, as x is
            Shape (N, 1, 1, 1), or x's with reduction "none"; float32. With reduce_across_batch the first image has the
            sum, and the others are 0.
        """
        return self._call({"x": x, "labels": labels, "weights": weights}, out)

    def encode(
        self,
        command_buffer: CommandBuffer,
        x: Image,
        labels: Image,
        weights: Image | None = None,
        *,
        out: Image | None = None,
        temporary: bool = False,
    ) -> Image:
        """Append the computation of the loss to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x, labels, weights : Image
            All have the same shape; weights are optional.
        out : Image, optional
            Destination of the loss; None: a new image.
        temporary : bool, default False
            Only kernels on this command buffer can read the result, not the CPU.

        Returns
        -------
        Image
            May be read when the command buffer has completed.
        """
        return self._encode(command_buffer, {"x": x, "labels": labels, "weights": weights}, out, temporary)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.ForwardLoss, not made>"
        return f'<mpscnn.ForwardLoss "{self.type}", reduction "{self.reduction}">'


@_options.attributes
class LossGradient(_core._ForwardLossKernel):
    """Gradient of a ForwardLoss with respect to predictions or labels.

    The result is the derivative of the weighted losses, times the incoming gradient. It is that of a sum for every
    reduction of the ForwardLoss.

    Parameters
    ----------
    type, weight, label_smoothing, number_of_classes, epsilon, delta : as in the ForwardLoss
    compute_label_gradients : bool, default False
        Compute the gradient with respect to the labels, not to the predictions.
    device : Device, default Device()

    Raises
    ------
    ValueError
        "LossGradient: grad.shape (2, 3, 1, 1) is neither (2, 1, 1, 1) nor x.shape (2, 3, 3, 4)."
    TypeError
        "LossGradient: grad is an array; x (Image) is not."
    RuntimeError
        "LossGradient: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSNNLossGradient.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> x, labels = np.array([[[[1.0, 2.0]]]], np.float32), np.array([[[[0.0, 4.0]]]], np.float32)
    >>> loss = mpscnn.ForwardLoss("mean_squared_error")(x, labels)
    >>> grad = mpscnn.InitialGradient()(loss)
    >>> mpscnn.LossGradient("mean_squared_error")(grad, x, labels).tolist()
    [[[[2.0, -4.0]]]]
    """

    type: t.LossType
    weight: float
    label_smoothing: float
    number_of_classes: int
    epsilon: float
    delta: float
    compute_label_gradients: bool

    def __init__(
        self,
        type: t.LossType,
        *,
        weight: t.Real = 1.0,
        label_smoothing: t.Real = 0.0,
        number_of_classes: SupportsIndex = 1,
        epsilon: t.Real = 1e-7,
        delta: t.Real = 1.0,
        compute_label_gradients: bool = False,
        device: Device | None = None,
    ) -> None:
        self._given = _options.given(locals())
        super().__init__("LossGradient", self._given, device)

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        grad: Image,
        x: Image,
        labels: Image,
        weights: Image | None = None,
        *,
        out: Image | None = None,
    ) -> Image: ...

    @overload
    def __call__(
        self,
        grad: t.Array,
        x: t.Array,
        labels: t.Array,
        weights: t.Array | None = None,
        *,
        out: None = None,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        grad: t.Array,
        x: t.Array,
        labels: t.Array,
        weights: t.Array | None = None,
        *,
        out: _Out,
    ) -> _Out: ...

    def __call__(self, grad: Any, x: Any, labels: Any, weights: Any = None, *, out: Any = None) -> Any:
        """Compute the gradient and wait for the result.

        Parameters
        ----------
        grad : array or Image, shape (N, H, W, C) or (N, 1, 1, 1)
            Gradient with respect to the losses, or to each image's loss.
        x, labels, weights : arrays or Images, shape (N, H, W, C)
            The sources of the ForwardLoss.
        out : array or Image of x's shape, float32 or float16, optional

        Returns
        -------
        array or Image, as grad is
            x's shape; float16 if x is float16, else float32.
        """
        return self._call({"grad": grad, "x": x, "labels": labels, "weights": weights}, out)

    def encode(
        self,
        command_buffer: CommandBuffer,
        grad: Image,
        x: Image,
        labels: Image,
        weights: Image | None = None,
        *,
        out: Image | None = None,
        temporary: bool = False,
    ) -> Image:
        """Append the computation of the gradient to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        grad : Image, shape (N, H, W, C) or (N, 1, 1, 1)
        x, labels, weights : Image, shape (N, H, W, C)
            The sources of the ForwardLoss.
        out : Image, optional
            Destination of the gradient; None: a new image.
        temporary : bool, default False
            Only kernels on this command buffer can read the result, not the CPU.

        Returns
        -------
        Image
            May be read when the command buffer has completed.
        """
        sources = {"grad": grad, "x": x, "labels": labels, "weights": weights}
        return self._encode(command_buffer, sources, out, temporary)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.LossGradient, not made>"
        return f'<mpscnn.LossGradient "{self.type}">'


class InitialGradient(_core._ForwardLossKernel):
    """Ones of the shape of a source: the initial gradient of a backward pass.

    Parameters
    ----------
    device : Device, default Device()

    Raises
    ------
    ValueError
        "InitialGradient: out.shape (1, 1, 1, 2) is not the result's (1, 1, 1, 1)."
    TypeError
        "InitialGradient: x is an Image; out (ndarray) is not."
    RuntimeError
        "InitialGradient: the command buffer has been committed already; its status is completed."

    Source
    ------
    MPSNeuralNetwork/MPSCNNLoss.h, MPSNNInitialGradient.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> mpscnn.InitialGradient()(np.zeros((1, 1, 2, 1), np.float32)).tolist()
    [[[[1.0], [1.0]]]]
    """

    def __init__(self, device: Device | None = None) -> None:
        super().__init__("InitialGradient", {}, device)
        self._given = {"device": device}

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        x: Image,
        *,
        out: Image | None = None,
    ) -> Image: ...

    @overload
    def __call__(
        self,
        x: t.Array,
        *,
        out: None = None,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        *,
        out: _Out,
    ) -> _Out: ...

    def __call__(self, x: Any, *, out: Any = None) -> Any:
        """Return ones in the shape of x.

        Parameters
        ----------
        x : array or Image, shape (N, H, W, C)
        out : array or Image of x's shape, float32 or float16, optional

        Returns
        -------
        array or Image, as x is
            x's shape; float16 if x is float16, else float32.
        """
        return self._call({"x": x}, out)

    def encode(
        self,
        command_buffer: CommandBuffer,
        x: Image,
        *,
        out: Image | None = None,
        temporary: bool = False,
    ) -> Image:
        """Append the fill with ones to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
        out : Image, optional
        temporary : bool, default False
            Only kernels on this command buffer can read the result, not the CPU.

        Returns
        -------
        Image
            May be read when the command buffer has completed.
        """
        return self._encode(command_buffer, {"x": x}, out, temporary)

    def __repr__(self) -> str:
        return "<mpscnn.InitialGradient>" if vars(self) else "<mpscnn.InitialGradient, not made>"


_TERMS = ("xy_loss", "wh_loss", "confidence_loss", "classes_loss")


def _term(loss: Any, name: str, device: Device | None) -> Loss:
    """Return the Loss, or a new one for the name of its type."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"YOLOLoss: {name} ({type(loss).__name__}) is not a Loss or its type, a str.")
    try:
        return Loss(loss, device=device)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"YOLOLoss: {name}: {error}") from None


def _boxes(anchor_boxes: Any) -> NDArray[np.float64]:
    if isinstance(anchor_boxes, (int, float)):
        _checks.refuse(anchor_boxes, "anchor_boxes", "an array")
    boxes = _checks.array(anchor_boxes, "anchor_boxes")
    if boxes.dtype.kind not in "fiu":
        raise TypeError(f"YOLOLoss: anchor_boxes.dtype ({boxes.dtype}) is not a type of numbers.")
    if boxes.ndim != 2 or boxes.shape[1] != 2:
        raise ValueError(
            f"YOLOLoss: anchor_boxes.shape {boxes.shape} is not (number of boxes, 2), width and height of each."
        )
    return boxes.astype(np.float64)
