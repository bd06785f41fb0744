# SPDX-License-Identifier: Apache-2.0
"""Layers of a network in training: they encode kernels, gradient kernels and the step of the optimizer.

Each value of a batch is one Image, or several chunks if one MPSImage cannot hold the batch: all lists of images here
have one Image per chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..kernels import KERNELS, row_of
from .lowering import Operation
from .parameters import STATISTICS, SUFFIXES, Parameter, to_mps, to_torch

Images: TypeAlias = list[_core.Image]
Array = NDArray[Any]


class Batch:
    """A batch in the forward and backward pass.

    Attributes
    ----------
    commands : CommandBuffer
    step : int
        Number of the step.
    slot : int
        Index among the steps in flight: batch normalization keeps a state for each.
    values, states : dict
        By names of values and of operations.
    """

    def __init__(self, commands: _core.CommandBuffer, step: int, slot: int, values: dict[str, Images]) -> None:
        self.commands, self.step, self.slot, self.values = commands, step, slot, values
        self.states: dict[str, Any] = {}


def make_kernel(name: str, device: _core.Device | None, **arguments: Any) -> Any:
    """Return a kernel of the table by its name."""
    kind: Any = KERNELS[name]
    return kind(**arguments, device=device)


def drawn_seed(*numbers: int) -> int:
    """Return a seed for a kernel, derived from these numbers."""
    (seed,) = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return int(seed) >> 1  # kernels take 63 bits


class Layer:
    """An operation that encodes itself.

    Attributes
    ----------
    operation : Operation
    wants : list of bool
        For each source, whether its gradient is needed.
    is_trained : bool
        Whether the optimizer changes its parameters.
    has_gradient : bool
        Whether it takes part in the backward pass.
    parameters : list of Parameter
    """

    def __init__(self, operation: Operation, wants: list[bool], is_trained: bool, device: _core.Device | None) -> None:
        self.operation, self.wants, self.is_trained, self.device = operation, wants, is_trained, device
        self.parameters: list[Parameter] = []
        self.has_gradient = is_trained or any(wants)

    def forward_reads(self) -> list[str]:
        """Return the values that the encodes of forward() read, one entry per encode."""
        return list(dict.fromkeys(self.operation.sources))

    def backward_reads(self) -> list[str]:
        """Return the values of the forward pass that the encodes of backward() read, one entry per read."""
        raise NotImplementedError

    def gradient_reads(self) -> int:
        """Return the number of encodes of backward() that read the gradient of the result."""
        raise NotImplementedError

    def forward(self, batch: Batch, out: Images | None) -> Images:
        """Encode the kernel, into `out` or into temporary images."""
        raise NotImplementedError

    def backward(self, batch: Batch, grad: Images) -> list[Images | None]:
        """Encode the gradients with respect to sources, as temporary images, and to parameters."""
        raise NotImplementedError

    def update(self, batch: Batch, optimizer: _core.Optimizer) -> None:
        """Encode the optimizer's step."""

    def did_complete(self, slot: int) -> None:
        """Finish the step on the CPU after the command buffer has completed."""

    def arrays(self) -> dict[str, Array]:
        """Return the parameters by argument, in MPS's order; they can be written in place."""
        return {}

    def reload(self, commands: _core.CommandBuffer) -> None:
        """Encode a reload of the kernels' parameters from the arrays."""

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters by key, in PyTorch's order."""
        arrays = self.arrays()
        return {one.key: to_torch(self.operation, one, arrays[one.argument]) for one in self.parameters}

    def load(self, state_dict: Mapping[str, Array]) -> None:
        """Copy parameters from arrays in PyTorch's order; call reload() afterwards."""
        arrays = self.arrays()
        for one in self.parameters:
            into = arrays[one.argument]
            into[...] = to_mps(self.operation, one, state_dict[one.key], into.shape)


class _Trainable(Layer):
    """A layer whose parameters are values that an optimizer changes."""

    values: Any = None
    optimized: _core.OptimizerState | None = None

    def gradients(self, batch: Batch) -> Any:
        """Return the gradients for the optimizer."""
        raise NotImplementedError

    def prepare(self, optimizer: _core.Optimizer) -> None:
        """Allocate the state of the optimizer."""
        self.optimized = optimizer.state_for(self.values)

    def update(self, batch: Batch, optimizer: _core.Optimizer) -> None:
        assert self.optimized is not None
        optimizer.encode(batch.commands, self.gradients(batch), self.optimized)
        self.reload(batch.commands)

    def gamma_and_beta(self) -> Any:
        arguments = self.operation.arguments
        gamma, beta = arguments["gamma"], arguments.get("beta")
        if beta is None:
            if self.is_trained:
                raise ValueError(
                    f'node "{self.operation.name}": beta is None; give zeros so that it is trained, or name the node in'
                    " frozen."
                )
            beta = np.zeros(len(gamma))
        return _core.NormalizationGammaAndBetaState(np.asarray(gamma), np.asarray(beta), device=self.device)


class KernelLayer(_Trainable):
    """One kernel, with its gradient kernels."""

    def __init__(self, operation: Operation, wants: list[bool], is_trained: bool, device: _core.Device | None) -> None:
        super().__init__(operation, wants, is_trained, device)
        self.kernel: Any = make_kernel(operation.kernel, device, **{"label": operation.name, **operation.arguments})
        self._is_convolution = "weight" in SUFFIXES.get(operation.kernel, {})
        self._reads_result = row_of(KERNELS[operation.kernel])["family"] == "softmax"
        if self._is_convolution:
            with _core.CommandBuffer(self.kernel.device) as commands:
                self.values = self.kernel.export_weights(commands)
            if is_trained and not wants[0]:
                self.kernel.gradient.gradient_option = "weights_and_bias"
            elif wants[0] and not is_trained:
                self.kernel.gradient.gradient_option = "data"
        elif operation.kernel in SUFFIXES:
            self.values = self.gamma_and_beta()
        self._encoded = self._gradients()

    def _gradients(self) -> list[tuple[int, Any, str]]:
        """Return source, gradient kernel and the other value it reads, for each gradient kernel that is encoded."""
        if not self.has_gradient:
            return []
        sources, found = self.operation.sources, []
        for i, kernel in enumerate(self.kernel.gradients):
            if self._reads_result:
                second = self.operation.result
            else:
                second = sources[1 - i] if self.operation.kernel == "Multiply" else sources[i]
            if self.wants[i] or self.is_trained:
                found.append((i, kernel, second))
        return found

    def backward_reads(self) -> list[str]:
        return [second for _, _, second in self._encoded]

    def gradient_reads(self) -> int:
        return len(self._encoded)

    def forward(self, batch: Batch, out: Images | None) -> Images:
        sources = [batch.values[name] for name in self.operation.sources]
        results: Images = []
        states: list[Any] = []
        for chunk in range(len(sources[0])):
            images = [source[chunk] for source in sources]
            target: dict[str, Any] = {"temporary": True} if out is None else {"out": out[chunk]}
            if not self.has_gradient:
                results.append(self.kernel.encode(batch.commands, *images, **target))
                continue
            # A convolution's state accumulates over the chunks; normalizations have a state with statistics per chunk.
            joined = states[0] if chunk and self._is_convolution else True
            result, state = self.kernel.encode(batch.commands, *images, **target, with_state=joined)
            results.append(result)
            states.append(state)
        batch.states[self.operation.name] = states
        return results

    def backward(self, batch: Batch, grad: Images) -> list[Images | None]:
        states = batch.states[self.operation.name]
        gradients: list[Images | None] = [None] * len(self.wants)
        for i, kernel, name in self._encoded:
            second = batch.values[name]
            made = [
                kernel.encode(batch.commands, image, second[chunk], states[chunk], temporary=True)
                for chunk, image in enumerate(grad)
            ]
            if self.wants[i]:
                gradients[i] = made
            else:
                for image in made:
                    image.read_count = 0  # only the gradient of the weights is computed; the image has no content
        return gradients

    def gradients(self, batch: Batch) -> Any:
        states = batch.states[self.operation.name]
        return states[0] if self._is_convolution else states

    def arrays(self) -> dict[str, Array]:
        if self._is_convolution:
            return {"weight": self.values.weights, "bias": self.values.biases}
        return {} if self.values is None else {"gamma": self.values.gamma, "beta": self.values.beta}

    def reload(self, commands: _core.CommandBuffer) -> None:
        if self.values is None:
            return
        self.kernel.reload(commands, self.values)
        if self._is_convolution and self.wants[0]:
            self.kernel.gradient.reload(commands, self.values)


class Dropout(KernelLayer):
    """Dropout with masks that depend on the number of the step: training resumed from a checkpoint repeats them."""

    def forward(self, batch: Batch, out: Images | None) -> Images:
        arguments = self.operation.arguments
        # A new kernel per step, because MPS's seed cannot be changed.
        seed = drawn_seed(arguments.get("seed", 0), batch.step)
        given = {"label": self.operation.name, **arguments, "seed": seed}
        self.kernel = make_kernel("Dropout", self.device, **given)
        self._encoded = self._gradients()
        return super().forward(batch, out)


class BatchNormalization(_Trainable):
    """Normalization by batch statistics, which update the running statistics.

    Attributes
    ----------
    momentum : float or None
        Weight of the batch in the running statistics, 0 to 1; None: means over all batches.
    tracked : int
        Batches that the running statistics have seen.
    """

    momentum: float | None = 0.1
    tracked = 0

    def __init__(
        self,
        operation: Operation,
        wants: list[bool],
        is_trained: bool,
        device: _core.Device | None,
        slots: int,
    ) -> None:
        super().__init__(operation, wants, is_trained, device)
        arguments = {name: value for name, value in operation.arguments.items() if name not in STATISTICS}
        activation = arguments.get("activation")
        self.kernel: Any = make_kernel("BatchNormalization", device, **{"label": operation.name, **arguments})
        self._statistics: Any = make_kernel("BatchNormalizationStatistics", device)
        self._sums: Any = make_kernel("BatchNormalizationStatisticsGradient", device, activation=activation)
        channels = len(arguments["gamma"])
        self._states = [_core.BatchNormalizationState(channels, device=device) for _ in range(slots)]
        self.values = self.gamma_and_beta()
        self._running = {
            name: np.array(
                np.full(channels, initial) if operation.arguments.get(name) is None else operation.arguments[name],
                np.float32,
            )
            for name, initial in zip(STATISTICS, (0, 1), strict=True)
        }

    def forward_reads(self) -> list[str]:
        return list(self.operation.sources) * 2

    def backward_reads(self) -> list[str]:
        return list(self.operation.sources) * self.gradient_reads()

    def gradient_reads(self) -> int:
        return 1 + self.wants[0]

    def forward(self, batch: Batch, out: Images | None) -> Images:
        state, source = self._states[batch.slot], batch.values[self.operation.sources[0]]
        n, h, w, _ = source[0].shape
        if n * h * w == 1 and len(source) == 1:
            raise ValueError(
                f'node "{self.operation.name}": the batch has 1 value of each channel, and batch normalization needs 2.'
            )
        for image in source:
            self._statistics.encode(batch.commands, image, state)
        return [
            self.kernel.encode(
                batch.commands, image, state, **({"temporary": True} if out is None else {"out": out[chunk]})
            )
            for chunk, image in enumerate(source)
        ]

    def backward(self, batch: Batch, grad: Images) -> list[Images | None]:
        state, source = self._states[batch.slot], batch.values[self.operation.sources[0]]
        for image, x in zip(grad, source, strict=True):
            self._sums.encode(batch.commands, image, x, state)
        if not self.wants[0]:
            return [None]
        kernel = self.kernel.gradient
        return [
            [
                kernel.encode(batch.commands, image, x, state, temporary=True)
                for image, x in zip(grad, source, strict=True)
            ]
        ]

    def gradients(self, batch: Batch) -> Any:
        return self._states[batch.slot]

    def did_complete(self, slot: int) -> None:
        """Update the running statistics; like PyTorch's, the running variance is unbiased (divided by n - 1)."""
        state = self._states[slot]
        count = state.count
        self.tracked += 1
        momentum = np.float32(1 / self.tracked if self.momentum is None else self.momentum)
        for name, found in (("mean", state.mean), ("variance", state.variance * (count / (count - 1)))):
            self._running[name] += momentum * (found - self._running[name])

    def arrays(self) -> dict[str, Array]:
        return {"gamma": self.values.gamma, "beta": self.values.beta, **self._running}

    def reload(self, commands: _core.CommandBuffer) -> None:
        self.kernel.reload(commands, self.values)


class Concatenation(Layer):
    """Concatenation of channels: copies each source to its place, and its gradient from there."""

    def __init__(
        self, operation: Operation, wants: list[bool], device: _core.Device | None, channels: list[int]
    ) -> None:
        super().__init__(operation, wants, False, device)
        self._channels = sum(channels)
        self._forward, self._backward = [], []
        for i, count in enumerate(channels):
            first = sum(channels[:i])
            copy = {"type": "none", "label": operation.name}
            place = {"source_feature_channel_offset": first, "source_feature_channel_max_count": count}
            self._forward.append(make_kernel("Neuron", device, **copy, destination_feature_channel_offset=first))
            self._backward.append(make_kernel("Neuron", device, **copy, **place))

    def forward_reads(self) -> list[str]:
        return list(self.operation.sources)

    def backward_reads(self) -> list[str]:
        return []

    def gradient_reads(self) -> int:
        return sum(self.wants)

    def forward(self, batch: Batch, out: Images | None) -> Images:
        results: Images = []
        for chunk, first in enumerate(batch.values[self.operation.sources[0]]):
            shape = (*first.shape[:3], self._channels)
            result = _core.Image.temporary(batch.commands, shape) if out is None else out[chunk]
            for kernel, source in zip(self._forward, self.operation.sources, strict=True):
                kernel.encode(batch.commands, batch.values[source][chunk], out=result)
            results.append(result)
        return results

    def backward(self, batch: Batch, grad: Images) -> list[Images | None]:
        return [
            [kernel.encode(batch.commands, image, temporary=True) for image in grad] if wanted else None
            for kernel, wanted in zip(self._backward, self.wants, strict=True)
        ]
