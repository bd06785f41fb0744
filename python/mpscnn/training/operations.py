# SPDX-License-Identifier: Apache-2.0
"""Layers of a network in training: they record the kernels, gradient kernels and optimizer steps of a training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..buffer import Buffer
from ..device import CommandBuffer, Device
from ..kernels import KERNELS, row_of
from ..optimizers import Optimizer, OptimizerState
from ..states import BatchNormalizationState, NormalizationGammaAndBetaState
from .lowering import Operation
from .parameters import STATISTICS, SUFFIXES, Parameter, placeholder, to_mps, to_torch

Array = NDArray[Any]
OUTPUT = 1  # number of this value in a _core._TrainingPlan


class Recording:
    """Recording of a training step.

    Attributes
    ----------
    plan : _core._TrainingPlan
    values : dict of str to int
        Values of the forward pass by their names.
    states : dict of str to int
        States that forward kernels return, by the names of operations.
    """

    def __init__(self, plan: _core._TrainingPlan, values: dict[str, int]) -> None:
        self.plan, self.values = plan, values
        self.states: dict[str, int] = {}


def make_kernel(name: str, device: Device | None, **arguments: Any) -> Any:
    """Return a kernel of the table by its name."""
    kind: Any = KERNELS[name]
    return kind(**arguments, device=device)


def drawn_seed(*numbers: int) -> int:
    """Return a seed for a kernel, derived from these numbers."""
    (seed,) = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return int(seed) >> 1  # kernels take 63 bits


class Layer:
    """Operation with its kernels, which records itself in a training step.

    Attributes
    ----------
    operation : Operation
    wants : list of bool
        For each source, whether its gradient is needed.
    is_trained : bool
        Whether the optimizer changes its parameters.
    has_gradient : bool
        Whether it is part of the backward pass.
    parameters : list of Parameter
    in_place : bool
        Whether the kernels read the weights that the optimizer changes, instead of copies.
    """

    in_place = False

    def __init__(self, operation: Operation, wants: list[bool], is_trained: bool, device: Device | None) -> None:
        self.operation, self.wants, self.is_trained, self.device = operation, wants, is_trained, device
        self.parameters: list[Parameter] = []
        self.has_gradient = is_trained or any(wants)

    def forward(self, recording: Recording, out: int | None) -> int:
        """Record the kernel, into `out` or into a new value; return the result."""
        raise NotImplementedError

    def backward(self, recording: Recording, grad: int) -> list[int | None]:
        """Record the gradients with respect to sources and to parameters; return those of the sources."""
        raise NotImplementedError

    def update(self, recording: Recording) -> None:
        """Record the optimizer's step."""

    def arrays(self) -> dict[str, Array]:
        """Return copies of the parameters by argument, in MPS's order."""
        return {}

    def set_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Replace the parameters; call reload() afterwards."""

    def reload(self, commands: CommandBuffer) -> None:
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
        self.set_arrays(arrays)


class _Trainable(Layer):
    """A layer whose parameters are values that an optimizer changes."""

    values: Any = None
    optimized: OptimizerState | None = None

    def kernels(self) -> list[Any]:
        """Return the kernels that have copies of the parameters."""
        raise NotImplementedError

    def gradients(self, recording: Recording) -> Any:
        """Return the state, or the list of BatchNormalizationStates, with the gradients of the parameters."""
        raise NotImplementedError

    def buffers(self) -> dict[str, Buffer]:
        """Return the parameters by argument."""
        if self.values is None:
            return {}
        if isinstance(self.values, NormalizationGammaAndBetaState):
            return {"gamma": self.values._gamma, "beta": self.values._beta}
        found = {"weight": self.values._weights}
        return found if self.values._biases is None else found | {"bias": self.values._biases}

    def shape_of(self, argument: str) -> tuple[int, ...] | None:
        """Return the shape of a parameter in MPS's order; None for one axis."""
        return self.values._shape if argument == "weight" else None

    def arrays(self) -> dict[str, Array]:
        return {name: one._copied("float32", self.shape_of(name)) for name, one in self.buffers().items()}

    def set_arrays(self, arrays: Mapping[str, Array]) -> None:
        for name, one in self.buffers().items():
            one._fill(np.asarray(arrays[name], np.float32))

    def prepare(self, optimizer: Optimizer) -> None:
        """Allocate the state of the optimizer."""
        self.optimized = optimizer.state_for(self.values)

    def update(self, recording: Recording) -> None:
        assert self.optimized is not None
        recording.plan.update(self.optimized, self.gradients(recording), self.kernels())

    def reload(self, commands: CommandBuffer) -> None:
        if self.values is not None:
            for kernel in self.kernels():
                kernel.reload(commands, self.values)

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
        return NormalizationGammaAndBetaState(np.asarray(gamma), np.asarray(beta), device=self.device)


class KernelLayer(_Trainable):
    """One kernel, with its gradient kernels."""

    def __init__(self, operation: Operation, wants: list[bool], is_trained: bool, device: Device | None) -> None:
        super().__init__(operation, wants, is_trained, device)
        self.kernel: Any = make_kernel(operation.kernel, device, **{"label": operation.name, **operation.arguments})
        self._is_convolution = "weight" in SUFFIXES.get(operation.kernel, {})
        self._reads_result = row_of(KERNELS[operation.kernel])["family"] == "softmax"
        if self._is_convolution:
            with CommandBuffer(self.kernel.device) as commands:
                self.values = self.kernel.export_weights(commands)
            if is_trained and not wants[0]:
                self.kernel.gradient.gradient_option = "weights_and_bias"
            elif wants[0] and not is_trained:
                self.kernel.gradient.gradient_option = "data"
        elif operation.kernel in SUFFIXES:
            self.values = self.gamma_and_beta()
        self._encoded = self._gradients()
        if self._is_convolution and is_trained:
            self._read_in_place()

    def _read_in_place(self) -> None:
        """Let the kernels read the weights in place if the device can, and drop the given array."""
        kernels = (self.kernel, *self.kernel.gradients)
        with CommandBuffer(self.kernel.device) as commands:
            taken = [kernel._read_in_place(commands, self.values) for kernel in kernels]
        self.in_place = all(taken)
        if not self.in_place:
            return
        weight = placeholder(self.operation.arguments["weight"])
        self.operation = replace(self.operation, arguments={**self.operation.arguments, "weight": weight})
        for kernel in kernels:
            kernel.__dict__["_arguments"] = {**kernel.__dict__["_arguments"], "weight": weight}

    def reload(self, commands: CommandBuffer) -> None:
        if not self.in_place:
            super().reload(commands)
            return
        for kernel in self.kernels():
            kernel._read_in_place(commands, self.values)

    def allow_reduced_precision(self) -> None:
        """Let the convolution and its gradients use products of reduced precision."""
        if self._is_convolution:
            for kernel in (self.kernel, *self.kernel.gradients):
                kernel.allow_reduced_precision = True

    def _gradients(self) -> list[tuple[int, Any, str]]:
        """Return source, gradient kernel and the kernel's other operand, for each gradient kernel that is encoded."""
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

    def forward(self, recording: Recording, out: int | None) -> int:
        sources = [recording.values[name] for name in self.operation.sources]
        if not self._encoded:
            return recording.plan.encode(self.kernel, sources, out)
        result, recording.states[self.operation.name] = recording.plan.encode_with_state(self.kernel, sources, out)
        return result

    def backward(self, recording: Recording, grad: int) -> list[int | None]:
        gradients: list[int | None] = [None] * len(self.wants)
        for i, kernel, second in self._encoded:
            sources = [grad, recording.values[second]]
            made = recording.plan.encode(kernel, sources, state=recording.states[self.operation.name])
            if self.wants[i]:
                gradients[i] = made
        return gradients

    def gradients(self, recording: Recording) -> int:
        return recording.states[self.operation.name]

    def kernels(self) -> list[Any]:
        with_gradient = self._is_convolution and self.wants[0]
        return [self.kernel, self.kernel.gradient] if with_gradient else [self.kernel]


class Sum(KernelLayer):
    """Sum of two images of equal extents, whose gradients are equal, too."""

    def _gradients(self) -> list[tuple[int, Any, str]]:
        return super()._gradients()[:1] if self.operation.arguments else []

    def backward(self, recording: Recording, grad: int) -> list[int | None]:
        made = [one for one in super().backward(recording, grad) if one is not None]
        shared = made[0] if made else grad
        return [shared if wanted else None for wanted in self.wants]


class Dropout(KernelLayer):
    """Dropout with masks that depend on the number of the step, so that resumed training uses the same masks."""

    def before_step(self, plan: _core._TrainingPlan, step: int) -> None:
        """Replace the recorded kernels by those of a step."""
        arguments = self.operation.arguments
        # A new kernel per step, because MPS's seed cannot be changed.
        seed = drawn_seed(arguments.get("seed", 0), step)
        before, encoded = self.kernel, self._encoded
        self.kernel = make_kernel("Dropout", self.device, **{"label": self.operation.name, **arguments, "seed": seed})
        self._encoded = self._gradients()
        plan.replace_kernel(before, self.kernel)
        for (_, old, _), (_, new, _) in zip(encoded, self._encoded, strict=True):
            plan.replace_kernel(old, new)


class BatchNormalization(_Trainable):
    """Normalization by batch statistics, which update the running statistics."""

    def __init__(
        self,
        operation: Operation,
        wants: list[bool],
        is_trained: bool,
        device: Device | None,
        slots: int,
    ) -> None:
        super().__init__(operation, wants, is_trained, device)
        arguments = {name: value for name, value in operation.arguments.items() if name not in STATISTICS}
        activation = arguments.get("activation")
        self.kernel: Any = make_kernel("BatchNormalization", device, **{"label": operation.name, **arguments})
        self._statistics: Any = make_kernel("BatchNormalizationStatistics", device)
        self._sums: Any = make_kernel("BatchNormalizationStatisticsGradient", device, activation=activation)
        channels = len(arguments["gamma"])
        self._states = [BatchNormalizationState(channels, device=device) for _ in range(slots)]
        self.values = self.gamma_and_beta()
        mean, variance = (
            np.full(channels, initial) if operation.arguments.get(name) is None else operation.arguments[name]
            for name, initial in zip(STATISTICS, (0, 1), strict=True)
        )
        self.running = _core._RunningStatistics(mean.tolist(), variance.tolist())

    def forward(self, recording: Recording, out: int | None) -> int:
        source = [recording.values[self.operation.sources[0]]]
        recording.plan.encode_state(self._statistics, source, self._states)
        recording.plan.track(self.running, self._states)
        return recording.plan.encode(self.kernel, source, out, batch_states=self._states)

    def backward(self, recording: Recording, grad: int) -> list[int | None]:
        sources = [grad, recording.values[self.operation.sources[0]]]
        recording.plan.encode_state(self._sums, sources, self._states)
        if not self.wants[0]:
            return [None]
        return [recording.plan.encode(self.kernel.gradient, sources, batch_states=self._states)]

    def gradients(self, recording: Recording) -> list[BatchNormalizationState]:
        return self._states

    def kernels(self) -> list[Any]:
        return [self.kernel]

    def arrays(self) -> dict[str, Array]:
        statistics = dict(zip(STATISTICS, (self.running.mean, self.running.variance), strict=True))
        return super().arrays() | statistics


class Concatenation(Layer):
    """Concatenation of channels, by copying each source into the result and its gradient out of the result's."""

    def __init__(self, operation: Operation, wants: list[bool], device: Device | None, channels: list[int]) -> None:
        super().__init__(operation, wants, False, device)
        self._channels = sum(channels)
        self._forward, self._backward = [], []
        for i, count in enumerate(channels):
            first = sum(channels[:i])
            copy = {"type": "none", "label": operation.name}
            place = {"source_feature_channel_offset": first, "source_feature_channel_max_count": count}
            self._forward.append(make_kernel("Neuron", device, **copy, destination_feature_channel_offset=first))
            self._backward.append(make_kernel("Neuron", device, **copy, **place))

    def forward(self, recording: Recording, out: int | None) -> int:
        values = [recording.values[name] for name in self.operation.sources]
        result = recording.plan.allocate(values[0], self._channels, out)
        for kernel, source in zip(self._forward, values, strict=True):
            recording.plan.encode(kernel, [source], result)
        return result

    def backward(self, recording: Recording, grad: int) -> list[int | None]:
        return [
            recording.plan.encode(kernel, [grad]) if wanted else None
            for kernel, wanted in zip(self._backward, self.wants, strict=True)
        ]
