# SPDX-License-Identifier: Apache-2.0
"""Trainer: forward, loss, backward and update of a network, with one command buffer for each step."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import _checks, _progress
from .._interrupts import defer_interrupts
from ..device import CommandBuffer, Device
from ..layers import layer_table
from ..loss_labels import LossLabels
from ..losses import Loss
from ..network import Network, _image_dtype
from ..optimizers import Optimizer, OptimizerStochasticGradientDescent
from . import checkpoint
from .boundary import Boundary, check_lengths, pair
from .history import Epoch, History
from .inference import with_values, without_values
from .model import read
from .operations import BatchNormalization
from .parameters import TRACKED, constants, tracked_batches
from .plan import Plan
from .step import Step

if TYPE_CHECKING:
    from .._typing import LossType

Array = NDArray[Any]
_NOTHING = "model: there is nothing to train: no layer has parameters that are not frozen."


class Trainer(_checks.Made):
    """Trainer of a network with MPS's gradient kernels, losses and optimizers.

    A step is one command buffer: forward, loss, backward and the optimizer's step for each layer, all on the device. Up
    to ``in_flight`` steps are in progress, so that one is encoded while another runs. Parameters have PyTorch's names
    and layouts in all arguments and results. One thread at a time may use a trainer.

    Parameters
    ----------
    model : list of layers, torch.nn.Module or Graph
        Layers as in `mpscnn.load(..., layers=...)`: (name, kind, options), named as in torch.nn. A module is traced
        once; its parameters are copied, and it is not needed afterwards.
    state_dict : mapping of str to array, optional
        Initial parameters of a list of layers. Other layers are initialized as in torch.nn, with sizes from their
        options: ("conv1", "Conv2d", {"in_channels": 3, "out_channels": 8, "kernel_size": 3}).
    input_shapes : tuple of int
        (N, C, H, W) of the input; batches may have another N. Not needed for graphs whose inputs have all extents.
    loss : str or Loss, default "softmax_cross_entropy"
        Of a Loss, type, weight, label_smoothing, number_of_classes, epsilon and delta are used, but not the reduction:
        the loss of a step is the mean over the batch, as with reduction="mean" in torch.nn, over pixels for
        "softmax_cross_entropy", images for "cosine_distance", and values for the others. A number_of_classes of 1 means
        the number of channels.
    optimizer : Optimizer, optional
        Default: OptimizerStochasticGradientDescent(0.01, momentum_scale=0.9). Its learning_rate may be set between
        steps.
    frozen : sequence of str
        Names of layers, or prefixes before a dot, whose parameters are not trained. Parameters of a module that do not
        require a gradient are not trained either.
    batch_norm_momentum : float, 0 to 1, optional
        Momentum of the running statistics of all layers. Default: each layer's own, where None means the mean over all
        batches, or 0.1 if the model has none.
    in_flight : int, >= 1, steps, default 2
    dtype : "float32" or "float16", default "float32"
        Of images: activations and their gradients. Parameters, their gradients and statistics are float32. Gradients
        below 6e-8 are 0 in float16. A larger loss keeps them: ``loss=Loss(..., weight=1024)`` with an optimizer of
        ``gradient_rescale=1 / 1024``; the losses of steps are 1024 times as large then.
    allow_reduced_precision : bool, default False
        Whether convolutions and their gradients may round what they multiply, to tf32 or bfloat16, if the device has
        units for them. Images between them may then be stored as bfloat16. Sums and parameters stay float32. With dtype
        "float16", NVIDIA GPUs may add statistics in an order that changes between runs.
    seed : int, >= 0, default 0
        Seed of initial parameters, dropout, and the order of images in `fit`.
    device : Device, default Device()

    Raises
    ------
    TypeError, ValueError
        "model (int) is not a list of layers, a torch.nn.Module or a Graph.", 'frozen: no node is named "conv9" or
        starts with it.', 'layer "conv1" (Conv2d): out_channels is missing, ...', 'optimizer.device is "...", and the
        trainer's is "...": give OptimizerAdam the same device.'
    NotImplementedError
        "MPS has no gradient of "crop" (Slice).", with all such nodes; a module has dropout, which tracing removes.
    mpscnn.ImportError
        Errors of the model readers.

    Source
    ------
    python/mpscnn/training/. Kernels: MPSNeuralNetwork; a step has the order of Apple's MPSNNGraph, which is not used.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> layers = [
    ...     ("conv", "Conv2d", {"in_channels": 1, "out_channels": 8, "kernel_size": 3, "padding": 1}),
    ...     ("relu", "ReLU"), ("pool", "AdaptiveAvgPool2d", {"output_size": 1}), ("flat", "Flatten"),
    ...     ("fc", "Linear", {"in_features": 8, "out_features": 2})]
    >>> trainer = mpscnn.Trainer(layers, input_shapes=(16, 1, 8, 8))
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(16) % 2
    >>> x = (rng.random((16, 1, 8, 8)) * (1 + y[:, None, None, None])).astype(np.float32)
    >>> first, *_, last = [trainer.step(x, y) for _ in range(50)]
    >>> last.loss < first.loss
    True
    >>> sorted(trainer.state_dict())
    ['conv.bias', 'conv.weight', 'fc.bias', 'fc.weight']
    >>> trainer.network()(x).shape
    (16, 2)
    """

    def __init__(
        self,
        model: Any,
        state_dict: Mapping[str, Any] | None = None,
        *,
        input_shapes: Sequence[int] | None = None,
        loss: LossType | Loss = "softmax_cross_entropy",
        optimizer: Optimizer | None = None,
        frozen: Iterable[str] = (),
        batch_norm_momentum: float | None = None,
        in_flight: int = 2,
        dtype: Literal["float32", "float16"] = "float32",
        allow_reduced_precision: bool = False,
        seed: int = 0,
        device: Device | None = None,
    ) -> None:
        self._in_flight = _checks.integer(in_flight, "in_flight", minimum=1)
        self._seed = _checks.integer(seed, "seed", minimum=0)
        self._dtype = _image_dtype(dtype)
        if isinstance(frozen, str) or not isinstance(frozen, Iterable):
            _checks.refuse(frozen, "frozen", "a sequence of names")
        frozen = [_checks.text(name, f"frozen[{i}]") for i, name in enumerate(frozen)]
        momentum = None if batch_norm_momentum is None else _fraction(batch_norm_momentum, "batch_norm_momentum")
        self._loss = Loss(loss, device=device) if isinstance(loss, str) else loss
        _checks.instance(self._loss, "loss", Loss)
        if optimizer is None:
            optimizer = OptimizerStochasticGradientDescent(0.01, momentum_scale=0.9, device=device)
        self.optimizer = _checks.instance(optimizer, "optimizer", Optimizer)
        target = Device() if device is None else device
        if optimizer.device != target:
            raise ValueError(
                f'optimizer.device is "{optimizer.device.name}", and the trainer\'s is "{target.name}": give'
                f" {type(optimizer).__name__} the same device."
            )
        self._device = device
        if input_shapes is not None:
            input_shapes = _checks.integers(input_shapes, "input_shapes", minimum=1)
        source = read(model, state_dict, input_shapes, self._seed)
        self._graph = source.graph
        for what, found in (("inputs", self._graph.inputs), ("outputs", self._graph.outputs)):
            if len(found) != 1:
                raise ValueError(f"model: the number of {what} ({len(found)}) is not 1 ({', '.join(found)}).")
        (source_of,), (output_of,) = self._graph.inputs.values(), self._graph.outputs.values()
        if not self._graph.nodes:
            raise ValueError(_NOTHING)
        table = layer_table(self._graph, input_shapes)
        shapes = {layer.name: layer.output_shape for layer in table}
        shapes |= {
            name: shape for layer in table for name, shape in zip(layer.sources, layer.input_shapes, strict=True)
        }
        self._boundary = Boundary(source_of, output_of, shapes[source_of.name][1:], shapes[output_of.source][1:])
        self._plan = Plan(
            self._graph,
            shapes,
            source.reference,
            frozen=[*frozen, *source.frozen],
            slots=self._in_flight,
            momentum=momentum,
            tracked=tracked_batches(source.arrays, "state_dict"),
            dtype=self._dtype,
            allow_reduced_precision=_checks.boolean(allow_reduced_precision, "allow_reduced_precision"),
            device=device,
        )
        if not self._plan.trained:
            raise ValueError(_NOTHING)
        self._graph = without_values(self._graph, self._plan)
        known = {one.key for layer in self._plan.layers for one in layer.parameters}
        self._constants = constants(source.arrays, known.union(self._plan.normalizations))
        self._plan.record(self.optimizer)
        self._steps = 0
        self._at_work: deque[Step] = deque()
        self._losses: dict[int, Loss] = {}
        self._labels: dict[tuple[Any, ...], LossLabels] = {}
        self.history = History()

    # ---- a step

    def step(self, x: Any, labels: Any) -> Step:
        """Encode and commit one step, without waiting if fewer than ``in_flight`` steps are running.

        Parameters
        ----------
        x : array, shape of the input with any N
            In the input's layout, (N, C, H, W) for PyTorch models. float32, float16, or uint8 as 0...1. Do not change
            it before the step has completed: the device may read it in place.
        labels : array
            Class numbers, shape (N,), or (N, H, W) for predictions per pixel; or floating-point numbers in the shape
            and layout of the output.

        Returns
        -------
        Step
            It has the loss, accuracy and output; reading them waits for the step.

        Raises
        ------
        ValueError
            "x.shape (4, 3, 8, 8) is not (N, 1, 8, 8), of one image or more.", "LossLabels: labels[3] (10) is not less
            than the number of classes (10)."
        TypeError
            "x.dtype (int64) is not a floating-point type or uint8."
        FloatingPointError
            "step 12: the loss is nan; ...", from an earlier step.
        """
        while len(self._at_work) >= self._in_flight:
            self._complete(self._at_work[0])
        x, order = self._boundary.sources(x, self._dtype)
        targets, classes = self._boundary.targets(labels, len(x))
        plan, images = self._plan, len(x)
        with defer_interrupts():
            plan.before_step(self._steps, images)
            compared: list[LossLabels] = []
            first = 0
            for count in plan.core.chunks(images):
                compared.append(self._compared(targets[first : first + count], len(compared)))
                first += count
            core = plan.core.commit(f"step {self._steps}", x, order, compared, self._mean_loss(images), self.optimizer)
            step = Step(self, self._steps, images, core, classes)
            self._at_work.append(step)
            self._steps += 1
        return step

    def _complete(self, step: Step) -> None:
        while step._core.loss is None:
            first = self._at_work[0]
            first._core.wait()
            with defer_interrupts():
                self._plan.core.complete_first()
                self._at_work.popleft()
            loss = first._core.loss
            assert loss is not None
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"step {first.number}: the loss is {loss}; the parameters are of no use any more. Load a"
                    f" checkpoint, and lower the learning rate ({self.optimizer.learning_rate:g}) or look at the"
                    " images."
                )

    def wait(self) -> None:
        """Wait until all steps have completed.

        Raises
        ------
        FloatingPointError
            "step 12: the loss is nan; ..."
        """
        while self._at_work:
            self._complete(self._at_work[-1])

    def _drain(self) -> None:
        """Wait until all steps have completed, ignoring non-finite losses: the parameters are about to be replaced."""
        while self._at_work:
            with contextlib.suppress(FloatingPointError):
                self._complete(self._at_work[-1])

    # ---- labels and losses

    def _compared(self, targets: Array, chunk: int) -> LossLabels:
        """Return labels on the device; objects of an earlier step in the same slot are reused."""
        place = (self._steps % self._in_flight, chunk, targets.shape, targets.dtype.kind)
        if place in self._labels:
            self._labels[place].write(targets)
        else:
            # Usually there are two batch sizes: the given one, and that of an epoch's last batch.
            if len(self._labels) > 8 * self._in_flight:
                self._labels.clear()
            classes = self._boundary.result[2] if targets.dtype.kind in "iu" else None
            self._labels[place] = LossLabels(targets, number_of_classes=classes, device=self._device)
        return self._labels[place]

    def _mean_loss(self, images: int) -> Loss:
        """Return the loss whose sum over a batch of `images` images is the mean."""
        if images not in self._losses:
            given = self._loss
            height, width, channels = self._boundary.result
            values = {"softmax_cross_entropy": height * width, "cosine_distance": 1}
            self._losses[images] = Loss(
                given.type,
                weight=given.weight / (images * values.get(given.type, height * width * channels)),
                label_smoothing=given.label_smoothing,
                # 1 is the default of Loss, with which labels cannot be smoothed.
                number_of_classes=channels if given.number_of_classes == 1 else given.number_of_classes,
                epsilon=given.epsilon,
                delta=given.delta,
                device=self._device,
            )
        return self._losses[images]

    # ---- many steps

    def fit(
        self,
        x: Array,
        labels: Array,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        validation: tuple[Array, Array] | None = None,
        shuffle: bool = True,
        learning_rate: Callable[[int], float] | None = None,
        augment: Callable[[Array, Array, np.random.Generator], tuple[Array, Array]] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        plot: str | os.PathLike[str] | None = None,
        progress: bool | Callable[[int, int | None], object] | None = None,
    ) -> History:
        """Train on all images for `epochs` more epochs.

        Parameters
        ----------
        x, labels : arrays
            As in `step`, for any number of images.
        epochs : int, >= 1, default 1
        batch_size : int, >= 1, images, default 32
            The last batch of an epoch may have fewer images.
        validation : (x, labels), optional
            Other images, evaluated after each epoch.
        shuffle : bool, default True
            Reorder the images in each epoch; the order depends only on ``seed`` and the number of the epoch.
        learning_rate : callable, optional
            Maps the number of a step, counted from 0 over all calls, to its learning rate. Default: the optimizer's.
        augment : callable, optional
            Maps x and labels of a batch and a numpy.random.Generator to the x and labels to train on.
        checkpoint : path, optional
            Folder to which `save` writes after each epoch.
        plot : path, optional
            File in which the history is drawn after each epoch: .svg, .png, .pdf.
        progress : bool, callable or None
            True: show a tqdm bar. A callable is called with the number of completed steps and the total.

        Returns
        -------
        History
            All epochs of this trainer.

        Raises
        ------
        ValueError, TypeError
            As in `step`; "len(labels) (90) is not len(x) (100)."
        FloatingPointError
            "step 12: the loss is nan; ..."
        """
        epochs = _checks.integer(epochs, "epochs", minimum=1)
        batch_size = _checks.integer(batch_size, "batch_size", minimum=1)
        x, labels = _checks.array(x, "x"), _checks.array(labels, "labels")
        check_lengths(x, labels, "x", "labels")
        if validation is not None:
            validation = pair(validation, "validation")
            check_lengths(*validation, "validation x", "validation labels")
            self._boundary.check_images(validation[0], "validation x")
            self._boundary.check_labels(validation[1], len(validation[0]), "validation labels")
        _checks.boolean(shuffle, "shuffle")
        for given, name in ((learning_rate, "learning_rate"), (augment, "augment")):
            if given is not None and not callable(given):
                _checks.refuse(given, name, "a callable")
        if checkpoint is not None:
            _checks.path(checkpoint, "checkpoint")
        if plot is not None:
            History.check_plot(plot)
        starts = range(0, len(x), batch_size)
        show, close = _progress.shower(progress, epochs * len(starts), "step")
        done, text = 0, ""
        try:
            for _ in range(epochs):
                rng = np.random.default_rng([self._seed, len(self.history)])
                order = rng.permutation(len(x)) if shuffle else np.arange(len(x))
                begin, waiting, passed = time.perf_counter(), deque[Step](), _Passed()
                for start in starts:
                    chosen = order[start : start + batch_size]
                    batch = x[chosen], labels[chosen]
                    if augment is not None:
                        batch = pair(augment(*batch, rng), "what augment returns")
                    if learning_rate is not None:
                        self.optimizer.learning_rate = learning_rate(self._steps)
                    waiting.append(self.step(*batch))
                    while len(waiting) >= self._in_flight + 1:
                        passed.add(waiting.popleft())
                    done += 1
                    show(done, text)
                while waiting:
                    passed.add(waiting.popleft())
                seconds = time.perf_counter() - begin
                found = (None, None) if validation is None else self.evaluate(*validation, batch_size=batch_size)
                epoch = Epoch(
                    loss=passed.loss,
                    accuracy=passed.accuracy,
                    validation_loss=found[0],
                    validation_accuracy=found[1],
                    learning_rate=self.optimizer.learning_rate,
                    steps=len(starts),
                    seconds=seconds,
                )
                self.history.append(epoch)
                text = f"epoch {len(self.history)}: {epoch}"
                if plot is not None:
                    self.history.plot(plot)
                if checkpoint is not None:
                    self.save(checkpoint)
        finally:
            close()
        return self.history

    def evaluate(self, x: Array, labels: Array, *, batch_size: int = 32) -> tuple[float, float | None]:
        """Return loss and accuracy of the current network, with running statistics and without dropout.

        Parameters
        ----------
        x, labels : arrays
            As in `step`, for any number of images.
        batch_size : int, >= 1, images, default 32

        Returns
        -------
        (float, float or None)
            Means over the images; the accuracy is None if labels are not class numbers.

        Raises
        ------
        ValueError, TypeError
            As in `step`.
        """
        batch_size = _checks.integer(batch_size, "batch_size", minimum=1)
        x, labels = _checks.array(x, "x"), _checks.array(labels, "labels")
        check_lengths(x, labels, "x", "labels")
        net, losses, right = self.network(), 0.0, []
        for start in range(0, len(x), batch_size):
            images = x[start : start + batch_size]
            if self._boundary.input.dtype:
                self._boundary.check_images(images, "x")  # the network converts them
            else:
                images = self._boundary.images(images)
            targets, classes = self._boundary.targets(labels[start : start + batch_size], len(images))
            predictions = self._boundary.result_as_nhwc(net(np.ascontiguousarray(images)))
            values, _ = self._mean_loss(len(images))(predictions, targets)
            losses += float(values.sum(dtype=np.float64)) * len(images)
            if classes is not None:
                right.append((predictions.argmax(-1) == classes.reshape(predictions.shape[:3])).ravel())
        return losses / len(x), float(np.concatenate(right).mean()) if right else None

    # ---- results

    def state_dict(self) -> dict[str, Array]:
        """Return copies of all parameters with PyTorch's names and layouts; waits for running steps.

        Returns
        -------
        dict of str to array, float32
            Use ``module.load_state_dict({name: torch.from_numpy(value) ...})``. "num_batches_tracked", int64, starts at
            its value in the model and increases with each step. Constants of kernels, such as the slope of a frozen
            PReLU, and buffers of a module are included unchanged.

        Raises
        ------
        FloatingPointError
            "step 12: the loss is nan; ..."
        """
        self.wait()
        found: dict[str, Array] = {}
        counters = {layer: key for key, layer in self._plan.normalizations.items()}
        for layer in self._plan.layers:
            found.update(layer.state_dict())
            if isinstance(layer, BatchNormalization) and layer in counters:
                found[counters[layer]] = np.array(layer.running.tracked, np.int64)
        return found | {key: value.copy() for key, value in self._constants.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load parameters from arrays or tensors with PyTorch's names and layouts.

        Parameters
        ----------
        state_dict : mapping of str to array
            All entries of a result of `state_dict`. Constants and "num_batches_tracked" may be missing; they then keep
            their values.

        Raises
        ------
        ValueError
            'state_dict has no "conv1.weight".', 'state_dict: "conv1.weight" has shape (8, 3, 3, 3), the parameter has
            (8, 1, 3, 3).', 'state_dict: "fc2.weight" is the name of no parameter.' Nothing is changed.
        NotImplementedError
            A constant of a kernel differs from the model's.
        """
        if not isinstance(state_dict, Mapping):
            _checks.refuse(state_dict, "state_dict", "a mapping of arrays")
        self._drain()
        with defer_interrupts():
            self._load(state_dict, "state_dict")

    def _load(self, state_dict: Mapping[str, Any], where: str) -> None:
        parameters = {one.key: one for layer in self._plan.layers for one in layer.parameters}
        for key in state_dict:
            if key in self._constants:
                self._check_constant(state_dict[key], key, where)
            elif key not in parameters and not str(key).endswith(TRACKED):
                raise ValueError(f'{where}: "{key}" is the name of no parameter.')
        arrays = {}
        for key, one in parameters.items():
            if key not in state_dict:
                raise ValueError(f'{where} has no "{key}".')
            arrays[key] = _checks.array(state_dict[key], f'{where}["{key}"]')
            checkpoint.check_array(arrays, key, one.shape, where)
        tracked = tracked_batches(state_dict, where)
        with CommandBuffer(self._device) as commands:
            for layer in self._plan.layers:
                if layer.parameters:
                    layer.load({one.key: arrays[one.key] for one in layer.parameters})
                    layer.reload(commands)
        for key, normalization in self._plan.normalizations.items():
            normalization.running.tracked = tracked.get(key, normalization.running.tracked)

    def _check_constant(self, value: Any, key: str, where: str) -> None:
        constant = self._constants[key]
        array = _checks.array(value, f'{where}["{key}"]')
        if array.shape != constant.shape:
            raise ValueError(f'{where}: "{key}" has shape {array.shape}, the model has {constant.shape}.')
        if not np.array_equal(array.astype(constant.dtype), constant, equal_nan=constant.dtype.kind == "f"):
            raise NotImplementedError(
                f'{where}: "{key}" is not what it was in the model, and no kernel can be given another: make a new'
                " Trainer."
            )

    def network(self, **options: Any) -> Network:
        """Return the current network for inference, with running statistics folded in and without dropout.

        Parameters
        ----------
        **options
            Options of `Network`: dtype, mean, std, allow_reduced_precision, optimize, device.

        Returns
        -------
        Network
            It has copies of the parameters.

        Raises
        ------
        TypeError, ValueError
            As in `Network`.
        """
        values = self.state_dict()
        return Network(with_values(self._graph, self._plan, values), **{"device": self._device, **options})

    # ---- files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a checkpoint: model.safetensors, which PyTorch reads, and optimizer.safetensors.

        If the process is killed, `load` finds either this checkpoint or the previous one.

        Parameters
        ----------
        folder : path
            Created if missing. A checkpoint in it is replaced.

        Raises
        ------
        OSError
            The checkpoint cannot be written.
        """
        folder = _checks.path(folder, "folder")
        model = self.state_dict()
        arrays: dict[str, Array] = {}
        times: dict[str, int] = {}
        for layer in self._plan.trained:
            found, times[layer.operation.name] = checkpoint.remembered(layer)
            arrays.update(found)
        facts = {
            "steps": self._steps,
            "optimizer": type(self.optimizer).__name__,
            "learning_rate": self.optimizer.learning_rate,
            "time_steps": times,
            "history": self.history.to_dict(),
        }
        checkpoint.write(folder, model, arrays, facts)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Resume from a checkpoint: parameters, optimizer state, number of steps and history.

        Parameters
        ----------
        folder : path
            Written by `save` of a trainer of the same model with the same kind of optimizer.

        Raises
        ------
        mpscnn.InvalidModelError
            There is no checkpoint, or it is damaged.
        ValueError
            The checkpoint is of another model or optimizer. Nothing is changed.
        """
        folder = _checks.path(folder, "folder")
        model, arrays, facts = checkpoint.read(folder)
        where = f'"{os.fspath(folder)}"'
        if facts["optimizer"] != type(self.optimizer).__name__:
            raise ValueError(f"{where}: its optimizer is {facts['optimizer']}, not {type(self.optimizer).__name__}.")
        trained = self._plan.trained
        if set(facts["time_steps"]) != {layer.operation.name for layer in trained}:
            raise ValueError(f"{where}: other layers were trained.")
        for step in self._at_work:
            step._core.wait()  # the checks below read the optimizer's state
        known = {key for layer in trained for key in checkpoint.check(layer, arrays, where)}
        for key in arrays:
            if key not in known:
                raise ValueError(f'{where}: "{key}" is nothing that this optimizer remembers.')
        self._drain()
        with defer_interrupts():
            self._load(model, where)
            for layer in trained:
                checkpoint.restore(layer, arrays, facts["time_steps"][layer.operation.name])
            self.optimizer.learning_rate = facts["learning_rate"]
            self._steps, self.history = facts["steps"], facts["history"]

    def __repr__(self) -> str:
        if "_plan" not in vars(self):
            return "<mpscnn.Trainer, not made>"
        return f"<mpscnn.Trainer of {len(self._plan.layers)} layers, {self._steps} steps>"


class _Passed:
    """Accumulator of means over the steps of an epoch."""

    def __init__(self) -> None:
        self._images = 0
        self._loss = 0.0
        self._right: float | None = None

    def add(self, step: Step) -> None:
        self._images += step.images
        self._loss += step.loss * step.images
        if (accuracy := step.accuracy) is not None:
            self._right = (self._right or 0.0) + accuracy * step.images

    @property
    def loss(self) -> float:
        return self._loss / self._images

    @property
    def accuracy(self) -> float | None:
        return None if self._right is None else self._right / self._images


def _fraction(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        _checks.refuse(value, name, "a number")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} ({value}) is not between 0 and 1.")
    return float(value)
