# SPDX-License-Identifier: Apache-2.0
"""Trainer: forward, loss, backward and update of a network, one command buffer for each step."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks, _core, _progress
from .._interrupts import held_back
from ..layers import layer_table
from ..network import Network
from . import checkpoint
from .boundary import Boundary, check_lengths, pair
from .history import Epoch, History
from .inference import with_values
from .model import read
from .operations import BatchNormalization
from .parameters import TRACKED, constants, tracked_batches
from .plan import Plan
from .step import Step

if TYPE_CHECKING:
    from .._typing import ImageLayout, LossType

Array = NDArray[Any]
_NOTHING = "model: there is nothing to train: no layer has parameters that are not frozen."


class Trainer(_checks.Made):
    """Trains a network with MPS's gradient kernels, losses and optimizers.

    A step is one command buffer: forward, loss, backward, and for each layer the optimizer's step, all on the device.
    ``in_flight`` of them are on their way at once, so that the next one is encoded while one is at work. Parameters
    have PyTorch's names and layouts wherever they come in or go out. One thread at a time may use a trainer.

    Parameters
    ----------
    model : list of layers, torch.nn.Module or Graph
        Layers as in `mpscnn.load(..., layers=...)`: (name, kind, options), called as in torch.nn. Of a module the
        parameters are copied; it is traced once, and is not needed afterwards.
    state_dict : mapping of str to array, optional
        Of a list of layers: parameters to begin with. Layers without any are drawn as torch.nn draws them, for which
        their options tell the sizes: ("conv1", "Conv2d", {"in_channels": 3, "out_channels": 8, "kernel_size": 3}).
    input_shapes : tuple of int
        (N, C, H, W) of the input; batches may have another N. Graphs whose inputs have all extents need none.
    loss : str or Loss
        Of a Loss the type, weight, label_smoothing, number_of_classes, epsilon and delta. Whatever its reduction, a
        step's loss is the mean over the batch: of pixels for "softmax_cross_entropy", of images for
        "cosine_distance", of values for the others; torch.nn's reduction="mean". A number_of_classes of 1 is that of
        the channels.
    optimizer : Optimizer, optional
        Default: OptimizerStochasticGradientDescent(0.01, momentum_scale=0.9). Its learning_rate may be set between
        steps.
    frozen : sequence of str
        Names of layers, or what comes before a dot in them, whose parameters stay as they are. So do those of a
        module's layers that require no gradient.
    batch_norm_momentum : float, 0 to 1, optional
        How fast the running statistics follow in all layers. Default: in each as its own momentum says, None of which
        is the mean over all batches; 0.1 where the model tells none.
    in_flight : int, >= 1, steps
    seed : int, >= 0
        Of parameters that are drawn, of dropout, and of the order of images in `fit`.
    device : Device, optional

    Raises
    ------
    TypeError, ValueError
        "model (int) is not a list of layers, a torch.nn.Module or a Graph.", 'frozen: "conv9" is the name of no node,
        nor the beginning of one.', 'layer "conv1" (Conv2d): out_channels is missing, ...'
    NotImplementedError
        "MPS has no gradient of "crop" (Slice)." with all nodes of which that is so; a module with dropout, which a
        traced graph has not.
    mpscnn.ImportError
        What the readers of models raise.

    Source
    ------
    python/mpscnn/training/. Kernels: MPSNeuralNetwork; the order of a step is that of Apple's MPSNNGraph, which is not
    used.

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
        loss: LossType | _core.Loss = "softmax_cross_entropy",
        optimizer: _core.Optimizer | None = None,
        frozen: Iterable[str] = (),
        batch_norm_momentum: float | None = None,
        in_flight: int = 2,
        seed: int = 0,
        device: _core.Device | None = None,
    ) -> None:
        self._in_flight = _checks.integer(in_flight, "in_flight", minimum=1)
        self._seed = _checks.integer(seed, "seed", minimum=0)
        if isinstance(frozen, str) or not isinstance(frozen, Iterable):
            _checks.refuse(frozen, "frozen", "a sequence of names")
        frozen = [_checks.text(name, f"frozen[{i}]") for i, name in enumerate(frozen)]
        momentum = None if batch_norm_momentum is None else _fraction(batch_norm_momentum, "batch_norm_momentum")
        self._loss = _core.Loss(loss, device=device) if isinstance(loss, str) else loss
        _checks.instance(self._loss, "loss", _core.Loss)
        if optimizer is None:
            optimizer = _core.OptimizerStochasticGradientDescent(0.01, momentum_scale=0.9, device=device)
        self.optimizer = _checks.instance(optimizer, "optimizer", _core.Optimizer)
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
            device=device,
        )
        trained = self._plan.trained
        if not trained:
            raise ValueError(_NOTHING)
        known = {one.key for layer in self._plan.layers for one in layer.parameters}
        self._constants = constants(source.arrays, known.union(self._plan.normalizations))
        for layer in trained:
            layer.prepare(self.optimizer)
        self._steps = 0
        self._at_work: deque[Step] = deque()
        self._losses: dict[int, _core.Loss] = {}
        self._labels: dict[tuple[Any, ...], _core.LossLabels] = {}
        self.history = History()

    # ---- a step

    def step(self, x: Any, labels: Any) -> Step:
        """Encode and commit one step; while fewer than ``in_flight`` are at work, this does not wait.

        Parameters
        ----------
        x : array, shape of the input with any N
            In the input's layout, (N, C, H, W) for models of PyTorch. float32, float16, or uint8 as 0...1. Not to be
            changed before the step has completed: the device may read it in place.
        labels : array
            Class numbers, shape (N,), or (N, H, W) for an image of predictions; or floating-point numbers, in the shape
            and layout of the output.

        Returns
        -------
        Step
            Its loss, accuracy and output can be asked for, now or later.

        Raises
        ------
        ValueError
            "x.shape (4, 3, 8, 8) is not (N, 1, 8, 8), of one image or more.", "LossLabels: labels[3] (10) is not less
            than the number of classes (10)."
        TypeError
            "x.dtype (int64) is not a floating-point type or uint8."
        FloatingPointError
            "step 12: the loss is nan; ...", of a step before.
        """
        while len(self._at_work) >= self._in_flight:
            self._complete(self._at_work[0])
        x, order = self._boundary.sources(x)
        targets, classes = self._boundary.targets(labels, len(x))
        with held_back():
            return self._encode(x, order, targets, classes)

    def _encode(self, x: Array, order: ImageLayout, targets: Array, classes: Array | None) -> Step:
        plan, images = self._plan, len(x)
        commands = _core.CommandBuffer._in_parts(self._device, f"step {self._steps}")
        sources: list[_core.Image] = []
        outputs: list[_core.Image] = []
        compared: list[_core.LossLabels] = []
        first = 0
        for count in plan.parts(images):
            part = slice(first, first + count)
            sources.append(_core.Image.from_array(x[part], order, device=self._device))
            outputs.append(_core.Image((count, *self._boundary.result), device=self._device))
            compared.append(self._compared(targets[part], len(compared)))
            first += count

        def loss(predictions: list[_core.Image]) -> list[_core.Image]:
            kernel = self._mean_loss(images)
            return [
                kernel.encode(commands, image, of_part, temporary=True)
                for image, of_part in zip(predictions, compared, strict=True)
            ]

        plan.encode(commands, self._steps, sources, outputs, loss, self.optimizer)
        commands.commit()
        step = Step(self, self._steps, commands, outputs, compared, classes)
        self._at_work.append(step)
        self._steps += 1
        return step

    def _complete(self, step: Step) -> None:
        while step._loss is None:
            first = self._at_work[0]
            first._commands.wait()
            with held_back():
                first._loss = float(sum(labels.loss.sum(dtype=np.float64) for labels in first._labels))
                self._at_work.popleft()
                first._labels = []
                for layer in self._plan.layers:
                    layer.did_complete(first.number % self._in_flight)
            if not math.isfinite(first._loss):
                raise FloatingPointError(
                    f"step {first.number}: the loss is {first._loss}; the parameters are of no use any more. Load a"
                    f" checkpoint, and lower the learning rate ({self.optimizer.learning_rate:g}) or look at the"
                    " images."
                )

    def wait(self) -> None:
        """Until all steps have completed.

        Raises
        ------
        FloatingPointError
            "step 12: the loss is nan; ..."
        """
        while self._at_work:
            self._complete(self._at_work[-1])

    def _drain(self) -> None:
        """Until all steps have completed, whatever became of them: their parameters are about to be replaced."""
        while self._at_work:
            with contextlib.suppress(FloatingPointError):
                self._complete(self._at_work[-1])

    # ---- labels and losses

    def _compared(self, targets: Array, part: int) -> _core.LossLabels:
        """Labels on the device: objects of the step that had the same place are used again."""
        place = (self._steps % self._in_flight, part, targets.shape, targets.dtype.kind)
        if place in self._labels:
            self._labels[place].write(targets)
        else:
            # Few sizes of batches come up: the usual one, and that of the last one of an epoch.
            if len(self._labels) > 8 * self._in_flight:
                self._labels.clear()
            classes = self._boundary.result[2] if targets.dtype.kind in "iu" else None
            self._labels[place] = _core.LossLabels(targets, number_of_classes=classes, device=self._device)
        return self._labels[place]

    def _mean_loss(self, images: int) -> _core.Loss:
        """The loss whose sum over a batch of so many images is their mean."""
        if images not in self._losses:
            given = self._loss
            height, width, channels = self._boundary.result
            values = {"softmax_cross_entropy": height * width, "cosine_distance": 1}
            self._losses[images] = _core.Loss(
                given.type,
                weight=given.weight / (images * values.get(given.type, height * width * channels)),
                label_smoothing=given.label_smoothing,
                # 1, which a Loss has unless it is told another, is no number to smooth labels with.
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
        """Train on all images, `epochs` times more.

        Parameters
        ----------
        x, labels : arrays
            As of `step`, of any number of images.
        epochs : int, >= 1
        batch_size : int, >= 1, images
            The last batch of an epoch may have fewer.
        validation : (x, labels), optional
            Other images, which are looked at after each epoch.
        shuffle : bool
            A new order in each epoch, which depends on ``seed`` and the number of the epoch alone.
        learning_rate : callable, optional
            Of the number of the step, counted from 0 over all calls, to the rate of that step.
        augment : callable, optional
            Of x and labels of a batch and a numpy.random.Generator to those that are trained with.
        checkpoint : path, optional
            `save` is called for this folder after each epoch.
        plot : path, optional
            The history is drawn there after each epoch: .svg, .png, .pdf.
        progress : bool, callable or None
            True: a bar of tqdm's; a callable is given the number of steps done, and that of all.

        Returns
        -------
        History
            Of all epochs of this trainer.

        Raises
        ------
        ValueError, TypeError
            As of `step`; "len(labels) (90) is not len(x) (100)."
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
        """Loss and accuracy of the network as it is now: running statistics, no dropout.

        Parameters
        ----------
        x, labels : arrays
            As of `step`, of any number of images.
        batch_size : int, >= 1, images

        Returns
        -------
        (float, float or None)
            Means over the images; no accuracy where labels are no class numbers.

        Raises
        ------
        ValueError, TypeError
            As of `step`.
        """
        batch_size = _checks.integer(batch_size, "batch_size", minimum=1)
        x, labels = _checks.array(x, "x"), _checks.array(labels, "labels")
        check_lengths(x, labels, "x", "labels")
        net, losses, right = self.network(), 0.0, []
        for start in range(0, len(x), batch_size):
            images = self._boundary.images(x[start : start + batch_size])
            targets, classes = self._boundary.targets(labels[start : start + batch_size], len(images))
            predictions = self._boundary.result_as_nhwc(net(np.ascontiguousarray(images)))
            values, _ = self._mean_loss(len(images))(predictions, targets)
            losses += float(values.sum(dtype=np.float64)) * len(images)
            if classes is not None:
                right.append((predictions.argmax(-1) == classes.reshape(predictions.shape[:3])).ravel())
        return losses / len(x), float(np.concatenate(right).mean()) if right else None

    # ---- what comes out

    def state_dict(self) -> dict[str, Array]:
        """Copies of all parameters, by PyTorch's names and in its layouts; waits for the steps at work.

        Returns
        -------
        dict of str to array, float32
            For ``module.load_state_dict({name: torch.from_numpy(value) ...})``. "num_batches_tracked", int64, goes on
            with each step from what it was in the model. What kernels have for good, as the slope of a frozen PReLU,
            and buffers of a module are there as they were in the model.

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
                found[counters[layer]] = np.array(layer.tracked, np.int64)
        return found | {key: value.copy() for key, value in self._constants.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Parameters from arrays or tensors with PyTorch's names and layouts.

        Parameters
        ----------
        state_dict : mapping of str to array
            All that `state_dict` answers. What is never trained may be missing, and "num_batches_tracked", which stays
            what it is then.

        Raises
        ------
        ValueError
            'state_dict has no "conv1.weight".', 'state_dict: "conv1.weight" has shape (8, 3, 3, 3), the parameter has
            (8, 1, 3, 3).', 'state_dict: "fc2.weight" is the name of no parameter.' Nothing has changed then.
        NotImplementedError
            Other values than the model's of what kernels have for good.
        """
        if not isinstance(state_dict, Mapping):
            _checks.refuse(state_dict, "state_dict", "a mapping of arrays")
        self._drain()
        with held_back():
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
        with _core.CommandBuffer(self._device) as commands:
            for layer in self._plan.layers:
                if layer.parameters:
                    layer.load({one.key: arrays[one.key] for one in layer.parameters})
                    layer.reload(commands)
        for key, normalization in self._plan.normalizations.items():
            normalization.tracked = tracked.get(key, normalization.tracked)

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
        """The network as it is now, for inference: running statistics folded in, no dropout.

        Parameters
        ----------
        **options
            Of `Network`: dtype, mean, std, allow_reduced_precision, optimize, device.

        Returns
        -------
        Network
            With parameters of its own.

        Raises
        ------
        TypeError, ValueError
            As of `Network`.
        """
        values = self.state_dict()
        return Network(with_values(self._graph, self._plan, values), **{"device": self._device, **options})

    # ---- files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a checkpoint: model.safetensors, which PyTorch reads, and optimizer.safetensors.

        Whenever the process ends, `load` finds this checkpoint or the one before it.

        Parameters
        ----------
        folder : path
            Made if it is not there. A checkpoint in it is replaced.

        Raises
        ------
        OSError
            It cannot be written.
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
        """Go on where a checkpoint was written: parameters, optimizer, number of steps and history.

        Parameters
        ----------
        folder : path
            As given to `save`, by a trainer of the same model with the same kind of optimizer.

        Raises
        ------
        mpscnn.InvalidModelError
            There is no checkpoint, or a damaged one.
        ValueError
            It is one of another model or optimizer. Nothing has changed then.
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
            step._commands.wait()  # what the optimizer remembers is looked at
        known = {key for layer in trained for key in checkpoint.check(layer, arrays, where)}
        for key in arrays:
            if key not in known:
                raise ValueError(f'{where}: "{key}" is nothing that this optimizer remembers.')
        self._drain()
        with held_back():
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
    """Means over the steps of an epoch."""

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
