# SPDX-License-Identifier: Apache-2.0
"""Optimizers: steps against torch.optim and NumPy in float64, trained layers, states, and refusals."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import mpscnn
from support import assert_close, held_queue, random

SIZES = [1, 7, 1000, 100003]
STEPS = 20
RATE = 0.01
Array = NDArray[Any]


def floats(buffer: mpscnn.Buffer) -> Array:
    return buffer.numpy("float32")


def buffer_of(values: Array) -> mpscnn.Buffer:
    buffer = mpscnn.Buffer(values.nbytes)
    floats(buffer)[:] = values
    return buffer


def gradients(size: int, steps: int = STEPS) -> Iterator[Array]:
    for step in range(steps):
        yield random((size,), seed=100 + step)


class Ours:
    """An optimizer with one Buffer."""

    def __init__(self, optimizer: mpscnn.Optimizer, values: Array) -> None:
        self.optimizer = optimizer
        self.buffer, self.gradient = buffer_of(values), mpscnn.Buffer(values.nbytes)
        self.state = optimizer.state_for(self.buffer)

    def step(self, gradient: Array) -> None:
        floats(self.gradient)[:] = gradient
        with mpscnn.CommandBuffer() as commands:
            self.optimizer.encode(commands, self.gradient, self.state)

    @property
    def values(self) -> Array:
        return floats(self.buffer)


class Theirs:
    """An optimizer of torch.optim in float64."""

    def __init__(self, make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], values: Array) -> None:
        self.values = torch.tensor(values.astype(np.float64), requires_grad=True)
        self.optimizer = make([self.values])

    def step(self, gradient: Array) -> None:
        self.values.grad = torch.tensor(gradient.astype(np.float64))
        self.optimizer.step()


def adam(
    value: Array, grads: list[Array], *, rate: float, amsgrad: bool = False, start: int = 0, beta2: float = 0.999
) -> Array:
    """MPS's Adam in float64, by its formulas."""
    beta1, epsilon = 0.9, 1e-8
    value = value.astype(np.float64)
    m, v, greatest = np.zeros_like(value), np.zeros_like(value), np.zeros_like(value)
    for t, g in enumerate(grads, start + 1):
        g = g.astype(np.float64)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        greatest = np.maximum(greatest, v)
        corrected = rate * np.sqrt(1 - beta2**t) / (1 - beta1**t)
        value = value - corrected * m / (np.sqrt(greatest if amsgrad else v) + epsilon)
    return value


SGD, RMSProp, Adam = mpscnn.OptimizerStochasticGradientDescent, mpscnn.OptimizerRMSProp, mpscnn.OptimizerAdam
PAIRS: dict[str, tuple[Callable[[], mpscnn.Optimizer], Callable[[list[torch.Tensor]], torch.optim.Optimizer]]] = {
    "sgd": (lambda: SGD(RATE), lambda p: torch.optim.SGD(p, RATE)),
    "momentum": (lambda: SGD(RATE, momentum_scale=0.9), lambda p: torch.optim.SGD(p, RATE, momentum=0.9)),
    "nesterov": (
        lambda: SGD(RATE, momentum_scale=0.9, use_nesterov_momentum=True),
        lambda p: torch.optim.SGD(p, RATE, momentum=0.9, nesterov=True),
    ),
    "rmsprop": (
        lambda: RMSProp(RATE, decay=0.95, epsilon=1e-3),
        lambda p: torch.optim.RMSprop(p, RATE, alpha=0.95, eps=1e-3),
    ),
    "l2": (
        lambda: SGD(RATE, momentum_scale=0.5, regularization="l2", regularization_scale=0.1),
        lambda p: torch.optim.SGD(p, RATE, momentum=0.5, weight_decay=0.1),
    ),
    "l2 of rmsprop": (
        lambda: RMSProp(RATE, regularization="l2", regularization_scale=0.1),
        lambda p: torch.optim.RMSprop(p, RATE, alpha=0.9, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAIRS)
def test_against_torch(name: str, size: int) -> None:
    ours_of, theirs_of = PAIRS[name]
    start = random((size,))
    ours, theirs = Ours(ours_of(), start), Theirs(theirs_of, start)
    for gradient in gradients(size):
        ours.step(gradient)
        theirs.step(gradient)
    assert_close(ours.values, theirs.values.detach().numpy())
    assert ours.state.time_step == STEPS


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_adam_against_torch(size: int, amsgrad: bool) -> None:
    """PyTorch's eps corresponds to another one in each step."""
    start, epsilon = random((size,)), 1e-2
    ours = Ours(Adam(RATE, beta2=0.9, epsilon=epsilon, amsgrad=amsgrad), start)
    theirs = Theirs(lambda p: torch.optim.Adam(p, RATE, betas=(0.9, 0.9), amsgrad=amsgrad), start)
    for t, gradient in enumerate(gradients(size), 1):
        theirs.optimizer.param_groups[0]["eps"] = epsilon / np.sqrt(1 - 0.9**t)
        ours.step(gradient)
        theirs.step(gradient)
    assert_close(ours.values, theirs.values.detach().numpy())


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_adam_by_its_formulas(size: int, amsgrad: bool) -> None:
    start = random((size,))
    # Later gradients are small, so that the max second moment is not the last one.
    grads = [gradient * (0.1 if step > 5 else 1) for step, gradient in enumerate(gradients(size))]
    ours = Ours(Adam(0.1, beta2=0.9, amsgrad=amsgrad), start)
    for gradient in grads:
        ours.step(gradient)
    assert_close(ours.values, adam(start, grads, rate=0.1, beta2=0.9, amsgrad=amsgrad))
    other = adam(start, grads, rate=0.1, beta2=0.9, amsgrad=not amsgrad)
    assert np.abs(ours.values - other).max() > 1e-3, "AMSGrad makes a difference here"


def test_time_step_of_a_state() -> None:
    start, gradient = random((7,)), random((7,), seed=1)
    ours = Ours(Adam(RATE), start)
    ours.state.time_step = 41
    ours.step(gradient)
    assert ours.state.time_step == 42
    assert_close(ours.values, adam(start, [gradient], rate=RATE, start=41))
    assert np.abs(ours.values - adam(start, [gradient], rate=RATE)).max() > 1e-4


def test_layers_of_one_optimizer_have_time_steps_of_their_own() -> None:
    """Apple's time step counts encodes."""
    optimizer = Adam(RATE)
    starts = [random((7,)), random((9,))]
    layers = [Ours(optimizer, start) for start in starts]
    for step in range(3):
        for layer in layers:
            layer.step(random(layer.values.shape, seed=step))
    for layer, start in zip(layers, starts, strict=True):
        wanted = adam(start, [random(start.shape, seed=step) for step in range(3)], rate=RATE)
        assert_close(layer.values, wanted)


def test_a_learning_rate_that_changes() -> None:
    """The momentum includes it, except Nesterov's; encoded steps keep theirs."""
    start, rates = random((7,)), [0.1, 0.1, 0.001, 0.001]
    grads = list(gradients(7, len(rates)))
    for nesterov in (False, True):
        optimizer = SGD(momentum_scale=0.5, use_nesterov_momentum=nesterov)
        ours = Ours(optimizer, start)
        value, m = start.astype(np.float64), np.zeros(7)
        buffers = [buffer_of(gradient) for gradient in grads]
        with mpscnn.CommandBuffer() as commands:
            for rate, gradient, buffer in zip(rates, grads, buffers, strict=True):
                optimizer.learning_rate = rate
                assert optimizer.learning_rate == rate
                optimizer.encode(commands, buffer, ours.state)
                m = 0.5 * m + (gradient if nesterov else rate * gradient)
                value = value - (rate * (gradient + 0.5 * m) if nesterov else m)
            optimizer.learning_rate = 5
        assert_close(ours.values, value)


PREPARED: dict[str, tuple[dict[str, Any], Callable[[Array, Array], Array]]] = {
    "clipped": ({"gradient_clip": (-0.5, 0.25)}, lambda g, v: g.clip(-0.5, 0.25)),
    "clipped on one side": ({"gradient_clip": (-np.inf, 0.25)}, lambda g, v: g.clip(None, 0.25)),
    "rescaled": ({"gradient_rescale": 0.125}, lambda g, v: g * 0.125),
    "l1": ({"regularization": "l1", "regularization_scale": 0.3}, lambda g, v: g + 0.3 * np.sign(v)),
    "l2": ({"regularization": "l2", "regularization_scale": 0.3}, lambda g, v: g + 0.3 * v),
    "clipped, then rescaled, then l2": (
        {
            "gradient_clip": (-0.5, 0.25),
            "gradient_rescale": 4,
            "regularization": "l2",
            "regularization_scale": -0.3,
        },
        lambda g, v: g.clip(-0.5, 0.25) * 4 - 0.3 * v,
    ),
}


@pytest.mark.parametrize("name", PREPARED)
@pytest.mark.parametrize(
    "kind", [SGD, partial(RMSProp, epsilon=0.5), partial(Adam, epsilon=0.5)], ids=["sgd", "rmsprop", "adam"]
)
def test_changes_of_the_gradient_before_a_step(kind: Callable[..., mpscnn.Optimizer], name: str) -> None:
    """The same step as for the changed gradient. With a small epsilon, two optimizers would not depend on its scale."""
    options, prepare = PREPARED[name]
    ours, plain = (Ours(optimizer, random((1000,))) for optimizer in (kind(0.1, **options), kind(0.1)))
    for gradient in gradients(1000, 3):
        prepared = prepare(gradient.astype(np.float64), plain.values.astype(np.float64))
        ours.step(gradient)
        plain.step(prepared)
        assert_close(ours.values, plain.values)
    untouched = Ours(kind(0.1), random((1000,)))
    for gradient in gradients(1000, 3):
        untouched.step(gradient)
    assert np.abs(untouched.values - ours.values).max() > 1e-3


def test_l1_of_zero() -> None:
    ours = Ours(SGD(1, regularization="l1", regularization_scale=1), np.array([0, 2, -2], np.float32))
    ours.step(np.zeros(3))
    assert ours.values.tolist() == [0, 1, -1]


def test_attributes() -> None:
    optimizer = Adam(
        0.1, beta1=0.5, beta2=0.25, epsilon=1e-3, amsgrad=True, gradient_rescale=2, gradient_clip=(-1, 1),
        regularization="l1", regularization_scale=3,
    )  # fmt: skip
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.amsgrad) == (0.5, 0.25, 1e-3, True)
    assert (optimizer.gradient_rescale, optimizer.gradient_clip) == (2, (-1, 1))
    assert (optimizer.regularization, optimizer.regularization_scale) == ("l1", 3)
    assert (optimizer.learning_rate, optimizer.device) == (0.1, mpscnn.Device())
    plain = SGD(momentum_scale=0.5, use_nesterov_momentum=True)
    assert (plain.learning_rate, plain.momentum_scale, plain.use_nesterov_momentum) == (0.001, 0.5, True)
    assert (plain.gradient_clip, plain.regularization, plain.regularization_scale) == (None, None, 0)
    assert (RMSProp().decay, RMSProp().epsilon) == (0.9, 1e-8)
    assert repr(plain) == "<mpscnn.OptimizerStochasticGradientDescent learning_rate=0.001>"
    state = plain.state_for(mpscnn.Buffer(8))
    assert state.optimizer is plain
    assert repr(state) == "<mpscnn.OptimizerState of OptimizerStochasticGradientDescent, time_step 0>"


# ------------------------------------------------------------------------------------------------------------ states


KINDS: dict[str, tuple[Callable[[], mpscnn.Optimizer], list[str]]] = {
    "sgd": (lambda: SGD(), []),
    "momentum": (lambda: SGD(momentum_scale=0.9), ["momentum"]),
    "rmsprop": (lambda: RMSProp(), ["sum_of_squares"]),
    "adam": (lambda: Adam(), ["momentum", "velocity"]),
    "amsgrad": (lambda: Adam(amsgrad=True), ["momentum", "velocity", "maximum_velocity"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_state_goes_on_from_a_file(name: str) -> None:
    make, names = KINDS[name]
    first, grads = Ours(make(), random((9,))), list(gradients(9, 6))
    for gradient in grads[:3]:
        first.step(gradient)
    saved = first.state.state_dict()
    assert list(saved) == [*names, "time_step"]
    file = io.BytesIO()
    np.savez(file, **saved)
    file.seek(0)
    second = Ours(make(), first.values)
    second.state.load_state_dict(np.load(file))
    assert second.state.time_step == 3
    for gradient in grads[3:]:
        first.step(gradient)
        second.step(gradient)
    np.testing.assert_array_equal(first.values, second.values)
    for key in names:
        assert np.any(saved[key])
        assert not np.array_equal(saved[key], first.state.state_dict()[key]), "a copy"


def test_states_that_do_not_fit() -> None:
    state = Adam().state_for(mpscnn.Buffer(8))
    before = state.state_dict()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"momentum": np.ones(2), "time_step": 5}, 'saved has no "velocity"'),
        (before | {"velocity": np.ones(3)}, r"velocity\.shape \(3,\) of saved is not \(2,\)"),
        (before | {"momentum": np.ones(2), "other": 1}, "saved has 4 entries, expected 3"),
        (before | {"momentum": np.ones(2), "time_step": -1}, r"time_step \(-1\) is less than the minimum \(0\)"),
        (before | {"time_step": 2**53 + 1}, r"time_step \(9007199254740993\) is greater than the maximum"),
    ]
    for saved, match in wrong:
        with pytest.raises(ValueError, match=match):
            state.load_state_dict(saved)
    with pytest.raises(TypeError, match=r"time_step \(str\) is not an int"):
        state.load_state_dict(before | {"time_step": "5"})
    with pytest.raises(ValueError, match=r"time_step \(-1\) is less than the minimum \(0\)"):
        state.time_step = -1
    assert all(np.array_equal(value, before[key]) for key, value in state.state_dict().items()), "nothing changed"


def test_a_state_that_is_being_written() -> None:
    ours = Ours(Adam(), random((9,)))
    commands = mpscnn.CommandBuffer()
    ours.optimizer.encode(commands, ours.gradient, ours.state)
    with pytest.raises(RuntimeError, match=r"OptimizerState: the command buffer that writes it has not completed"):
        ours.state.state_dict()
    with held_queue():
        commands.commit()
        with pytest.raises(RuntimeError, match=r"OptimizerState: the command buffer that writes it has not completed"):
            ours.state.load_state_dict({})
    commands.wait()
    assert ours.state.state_dict()["time_step"] == 1


def test_an_array_of_numpys_is_updated() -> None:
    values, gradient = mpscnn.empty(4096), mpscnn.empty(4096)
    values[:], gradient[:] = 1, 2
    optimizer = SGD(0.25)
    state = optimizer.state_for(mpscnn.Buffer(values))
    with mpscnn.CommandBuffer() as commands:
        optimizer.encode(commands, mpscnn.Buffer(gradient), state)
    assert np.all(values == 0.5)


def test_steps_allocate_nothing() -> None:
    ours = Ours(Adam(), random((100003,)))
    ours.step(random((100003,)))
    before = mpscnn.memory.current()
    for _ in range(5):
        ours.step(random((100003,)))
        assert mpscnn.memory.current() == before


# ------------------------------------------------------------------------------------------------------------ layers


class Layer:
    """A convolution, and PyTorch's with the same numbers in float64."""

    def __init__(self, *, bias: bool = True, kind: type[Any] = mpscnn.Convolution) -> None:
        self.weight, self.bias = random((6, 4, 3, 2)), random((6,)) if bias else None
        self.x, self.grad = random((2, 7, 5, 4)), random((2, 7, 6, 6), seed=3)
        self.conv = kind(self.weight, self.bias, padding=1)
        self.torch = torch.nn.Conv2d(4, 6, (3, 2), padding=1, bias=bias, dtype=torch.float64)
        with torch.no_grad():
            self.torch.weight.copy_(torch.tensor(self.weight))
            if self.torch.bias is not None and self.bias is not None:
                self.torch.bias.copy_(torch.tensor(self.bias))

    def torch_step(self, optimizer: torch.optim.Optimizer) -> tuple[Array, Array]:
        """Return result and gradient of the source before the step."""
        x = torch.tensor(self.x.astype("f8").transpose(0, 3, 1, 2), requires_grad=True)
        optimizer.zero_grad()
        y = self.torch(x)
        y.backward(torch.tensor(self.grad.astype("f8").transpose(0, 3, 1, 2)))
        optimizer.step()
        assert x.grad is not None
        return y.detach().numpy().transpose(0, 2, 3, 1), x.grad.numpy().transpose(0, 2, 3, 1)


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_is_trained(bias: bool) -> None:
    """One command buffer per step; the last one shows the weights of both kernels."""
    layer = Layer(bias=bias)
    conv, optimizer = layer.conv, SGD(RATE, momentum_scale=0.9)
    theirs = torch.optim.SGD(layer.torch.parameters(), RATE, momentum=0.9)
    with mpscnn.CommandBuffer() as commands:
        weights = optimizer.state_for(conv.export_weights(commands))
    x, grad = mpscnn.Image.from_array(layer.x), mpscnn.Image.from_array(layer.grad)
    for _ in range(3):
        with mpscnn.CommandBuffer() as commands:
            y, state = conv.encode(commands, x, with_state=True)
            grad_x = conv.gradient.encode(commands, grad, x, state)
            optimizer.encode(commands, state, weights)
            conv.reload(commands, weights.values)
            conv.gradient.reload(commands, weights.values)
        right_y, right_x = layer.torch_step(theirs)
        assert_close(y.numpy(), right_y)
        assert_close(grad_x.numpy(), right_x)
    with torch.no_grad():
        assert_close(weights.values.weights, layer.torch.weight.numpy().transpose(0, 2, 3, 1))
        if bias:
            assert layer.torch.bias is not None
            assert_close(weights.values.biases, layer.torch.bias.numpy())
        names = ["weights.momentum", "biases.momentum"] if bias else ["weights.momentum"]
        assert list(weights.state_dict()) == [*names, "time_step"]
        assert weights.state_dict()["weights.momentum"].shape == (6, 3, 2, 4)
    assert weights.time_step == 3


def test_weights_and_biases_are_one_time_step() -> None:
    layer, optimizer = Layer(), Adam(0.1)
    with mpscnn.CommandBuffer() as commands:
        weights = optimizer.state_for(layer.conv.export_weights(commands))
    grads: dict[str, list[Array]] = {"weights": [], "biases": []}
    for _ in range(3):
        _, state = layer.conv(layer.x, with_state=True)
        layer.conv.gradient(layer.grad, layer.x, state)
        with mpscnn.CommandBuffer() as commands:
            optimizer.encode(commands, state, weights)
        grads["weights"].append(state.grad_weight.copy())
        grads["biases"].append(state.grad_bias.copy())
    assert layer.bias is not None
    assert_close(weights.values.weights, adam(layer.weight.transpose(0, 2, 3, 1), grads["weights"], rate=0.1))
    assert_close(weights.values.biases, adam(layer.bias, grads["biases"], rate=0.1))
    assert weights.time_step == 3


def test_a_gradient_kernel_is_reloaded() -> None:
    """On a command buffer: earlier encodes use the old weights."""
    layer, other = Layer(), Layer()
    new = mpscnn.Convolution(-2 * layer.weight, padding=1)
    grad, x = mpscnn.Image.from_array(layer.grad), mpscnn.Image.from_array(layer.x)
    _, state = new(layer.x, with_state=True)
    wanted = new.gradient(layer.grad, layer.x, state)
    _, state = other.conv(layer.x, with_state=True)
    old = other.conv.gradient(layer.grad, layer.x, state)
    with mpscnn.CommandBuffer() as commands:
        values = new.export_weights(commands)
        _, state = layer.conv.encode(commands, x, with_state=True)
        before = layer.conv.gradient.encode(commands, grad, x, state)
        layer.conv.gradient.reload(commands, values)
        _, state = layer.conv.encode(commands, x, with_state=True)
        after = layer.conv.gradient.encode(commands, grad, x, state)
    np.testing.assert_array_equal(before.numpy(), old)
    np.testing.assert_array_equal(after.numpy(), wanted)
    with pytest.raises(ValueError, match=r"ConvolutionGradient: weights of the state has 4 bytes; the kernel needs"):
        layer.conv.gradient.reload(mpscnn.CommandBuffer(), mpscnn.ConvolutionWeightsAndBiasesState([1.0]))


def test_batch_normalization_is_trained() -> None:
    x, grad = random((3, 5, 4, 6)), random((3, 5, 4, 6), seed=2)
    gamma, beta = random((6,), seed=4), random((6,), seed=5)
    kernel = mpscnn.BatchNormalization(gamma, beta, epsilon=1e-5)
    statistics, gradient = mpscnn.BatchNormalizationStatistics(), mpscnn.BatchNormalizationStatisticsGradient()
    optimizer, values = RMSProp(0.1), mpscnn.NormalizationGammaAndBetaState(gamma, beta)
    weights, batch = optimizer.state_for(values), mpscnn.BatchNormalizationState(6)
    theirs = torch.nn.BatchNorm2d(6, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(gamma))
        theirs.bias.copy_(torch.tensor(beta))
    their_optimizer = torch.optim.RMSprop(theirs.parameters(), 0.1, alpha=0.9)
    images = mpscnn.Image.from_array(x), mpscnn.Image.from_array(grad)
    for _ in range(3):
        with mpscnn.CommandBuffer() as commands:
            statistics.encode(commands, images[0], batch)
            y = kernel.encode(commands, images[0], batch)
            gradient.encode(commands, images[1], images[0], batch)
            kernel.gradient.encode(commands, images[1], images[0], batch)
            optimizer.encode(commands, batch, weights)
            kernel.reload(commands, values)
        their_optimizer.zero_grad()
        right = theirs(torch.tensor(x.astype("f8").transpose(0, 3, 1, 2)))
        right.backward(torch.tensor(grad.astype("f8").transpose(0, 3, 1, 2)))
        their_optimizer.step()
        assert_close(y.numpy(), right.detach().numpy().transpose(0, 2, 3, 1))
    assert weights.values is values
    with torch.no_grad():
        assert_close(values.gamma, theirs.weight.numpy())
        assert_close(values.beta, theirs.bias.numpy())
    assert list(weights.state_dict()) == ["gamma.sum_of_squares", "beta.sum_of_squares", "time_step"]


@pytest.mark.parametrize("groups", [None, 3])
def test_instance_and_group_normalization_are_trained(groups: int | None) -> None:
    x, grad = random((3, 5, 4, 6)), random((3, 5, 4, 6), seed=2)
    gamma, beta = random((6,), seed=4), random((6,), seed=5)
    kernel: Any = (
        mpscnn.GroupNormalization(gamma, beta, groups=groups)
        if groups
        else mpscnn.InstanceNormalization(gamma, beta)
    )  # fmt: skip
    optimizer, values = SGD(0.1), mpscnn.NormalizationGammaAndBetaState(gamma, beta)
    weights = optimizer.state_for(values)
    _, state = kernel(x, with_state=True)
    kernel.gradient(grad, x, state)
    with mpscnn.CommandBuffer() as commands:
        optimizer.encode(commands, state, weights)
        kernel.reload(commands, values)
    assert_close(values.gamma, gamma - 0.1 * state.grad_gamma)
    assert_close(values.beta, beta - 0.1 * state.grad_beta)
    assert np.abs(state.grad_gamma).min() > 1e-3
    fresh: Any = type(kernel)(values.gamma, values.beta, **({"groups": groups} if groups else {}))
    np.testing.assert_array_equal(kernel(x), fresh(x))


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("kind", [lambda: SGD(0.1, momentum_scale=0.5), Adam], ids=["sgd", "adam"])
def test_states_of_parts_are_summed_up(groups: int | None, kind: Callable[[], mpscnn.Optimizer]) -> None:
    """The same as for the whole batch, twice; the states' own gradients are unchanged."""
    x, grad, gamma, beta = random((7, 5, 4, 6)), random((7, 5, 4, 6), seed=2), random((6,)), random((6,), seed=5)

    def trained(cuts: list[slice]) -> Any:
        kernel: Any = (
            mpscnn.GroupNormalization(gamma, beta, groups=groups)
            if groups
            else mpscnn.InstanceNormalization(gamma, beta)
        )  # fmt: skip
        optimizer, values = kind(), mpscnn.NormalizationGammaAndBetaState(gamma, beta)
        weights = optimizer.state_for(values)
        for _ in range(2):
            images = [mpscnn.Image.from_array(x[cut]) for cut in cuts]
            gradients = [mpscnn.Image.from_array(grad[cut]) for cut in cuts]
            with mpscnn.CommandBuffer() as commands:
                states = [kernel.encode(commands, image, with_state=True)[1] for image in images]
                for given, image, state in zip(gradients, images, states, strict=True):
                    kernel.gradient.encode(commands, given, image, state)
                optimizer.encode(commands, states if len(states) > 1 else states[0], weights)
                kernel.reload(commands, values)
        return values, states, weights.time_step

    whole, (state,), _ = trained([slice(0, 7)])
    values, states, steps = trained([slice(0, 2), slice(2, 3), slice(3, 7)])
    assert steps == 2
    assert_close(values.gamma, whole.gamma, 1e-5)
    assert_close(values.beta, whole.beta, 1e-5)
    assert np.abs(values.gamma - gamma).min() > 1e-4
    assert_close(sum(one.grad_gamma for one in states), state.grad_gamma, 1e-4)


# ----------------------------------------------------------------------------------------------------------- refusals


def test_wrong_numbers() -> None:
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: SGD(np.inf), r"OptimizerStochasticGradientDescent: learning_rate \(inf\) is not a finite number"),
        (lambda: Adam(1e39), r"OptimizerAdam: learning_rate \(1e\+39\) is not a finite number of float32"),
        (lambda: setattr(Adam(), "learning_rate", np.nan), r"OptimizerAdam: learning_rate \(nan\) is not a finite"),
        (lambda: SGD(momentum_scale=np.nan), r"momentum_scale \(nan\) is not a finite number of float32"),
        (lambda: RMSProp(decay=1.5), r"OptimizerRMSProp: decay \(1\.5\) is not between 0 and 1"),
        (lambda: RMSProp(epsilon=-1), r"OptimizerRMSProp: epsilon \(-1\) is less than the minimum \(0\)"),
        (lambda: Adam(beta1=1), r"OptimizerAdam: beta1 \(1\) is not at least 0 and less than 1"),
        (lambda: Adam(beta2=-0.5), r"OptimizerAdam: beta2 \(-0\.5\) is not at least 0 and less than 1"),
        (lambda: Adam(epsilon=np.nan), r"OptimizerAdam: epsilon \(nan\) is not a finite number"),
        (lambda: Adam(gradient_rescale=np.inf), r"gradient_rescale \(inf\) is not a finite number of float32"),
        (lambda: Adam(gradient_clip=(2, 1)), r"OptimizerAdam: gradient_clip \(2, 1\) is not a minimum and a maximum"),
        (lambda: Adam(gradient_clip=(np.nan, 1)), r"gradient_clip \(nan, 1\) is not a minimum and a maximum"),
        (lambda: Adam(gradient_clip=(1, 2, 3)), r"len\(gradient_clip\) \(3\) is not 2"),
        (lambda: Adam(regularization="l3"), r'regularization \("l3"\) is not "l1" or "l2"'),
        (lambda: Adam(regularization_scale=1), r"regularization_scale \(1\) was given without regularization"),
        (lambda: Adam().state_for(mpscnn.Buffer(6)), r"OptimizerAdam: values has 6 bytes, not a multiple of 4"),
    ]
    for make, match in wrong:
        with pytest.raises(ValueError, match=match):
            make()


def test_wrong_types() -> None:
    optimizer, values = Adam(), mpscnn.Buffer(8)
    state, commands = optimizer.state_for(values), mpscnn.CommandBuffer()
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: Adam(gradient_clip=1), r"gradient_clip \(1\) is not a pair of numbers"),
        (lambda: Adam(gradient_clip=("a", 1)), r"gradient_clip \(\('a', 1\)\) is not a sequence of numbers"),
        (lambda: mpscnn.Optimizer(), r"Optimizer: No constructor defined|cannot be made"),
        (lambda: optimizer.state_for(np.ones(2, np.float32)), r"values \(ndarray\) is not a Buffer, Conv"),
        (
            lambda: optimizer.encode(commands, np.ones(2, np.float32), state),
            r"gradient \(ndarray\) is not a Buffer,",
        ),
        (lambda: optimizer.encode(commands, values, values), r"state \(Buffer\) is not an OptimizerState"),
        (lambda: optimizer.encode(None, values, state), r"command_buffer \(NoneType\) is not a CommandBuffer"),
        (lambda: state.load_state_dict([1]), r"saved \(list\) is not a mapping"),
    ]
    for make, match in wrong:
        with pytest.raises(TypeError, match=match):
            make()


def test_gradients_that_do_not_fit() -> None:
    optimizer, commands, layer = Adam(), mpscnn.CommandBuffer(), Layer()
    buffer = optimizer.state_for(mpscnn.Buffer(28))
    conv = optimizer.state_for(mpscnn.ConvolutionWeightsAndBiasesState(layer.weight, layer.bias))
    norm = optimizer.state_for(mpscnn.NormalizationGammaAndBetaState([1, 1], [0, 0]))
    _, unused = layer.conv(layer.x, with_state=True)
    _, used = layer.conv(layer.x, with_state=True)
    layer.conv.gradient(layer.grad, layer.x, used)
    relu = mpscnn.NeuronReLU()
    _, of_relu = relu(layer.x, with_state=True)
    small = optimizer.state_for(mpscnn.ConvolutionWeightsAndBiasesState(layer.weight, np.ones(5)))
    batch = mpscnn.BatchNormalizationState(2)
    same = mpscnn.Buffer(8)
    wrong: list[tuple[type[Exception], Callable[[], Any], str]] = [
        (
            ValueError,
            lambda: optimizer.encode(commands, mpscnn.Buffer(32), buffer),
            "OptimizerAdam: gradient has 8 elements; values of state has 7",
        ),
        (
            ValueError,
            lambda: optimizer.encode(commands, used, small),
            "OptimizerAdam: grad_bias of gradient has 6 elements; biases of state has 5",
        ),
        (
            ValueError,
            lambda: optimizer.encode(commands, same, optimizer.state_for(same)),
            "OptimizerAdam: gradient is the buffer of the values",
        ),
        (
            ValueError,
            lambda: Adam().encode(commands, mpscnn.Buffer(28), buffer),
            r"OptimizerAdam: state is that of another optimizer \(OptimizerAdam\)",
        ),
        (
            TypeError,
            lambda: optimizer.encode(commands, used, buffer),
            "OptimizerAdam: gradient is not a Buffer, and the values of state are one",
        ),
        (
            TypeError,
            lambda: optimizer.encode(commands, mpscnn.Buffer(28), conv),
            "gradient is not a GradientState, and the values of state are those of a convolution",
        ),
        (
            TypeError,
            lambda: optimizer.encode(commands, mpscnn.Buffer(8), norm),
            "gradient is neither a GradientState nor a BatchNormalizationState",
        ),
        (
            TypeError,
            lambda: optimizer.encode(commands, of_relu, conv),
            "OptimizerAdam: gradient is the state of NeuronReLU, which has no grad_weight",
        ),
        (
            RuntimeError,
            lambda: optimizer.encode(commands, unused, conv),
            "OptimizerAdam: no gradient kernel that computes grad_weight has been encoded with gradient",
        ),
        (
            RuntimeError,
            lambda: optimizer.encode(commands, batch, norm),
            "OptimizerAdam: no gradients of the statistics have been encoded to gradient",
        ),
    ]
    wrong += [
        (ValueError, lambda: optimizer.encode(commands, [], norm), "OptimizerAdam: gradient is an empty sequence"),
        (ValueError, lambda: optimizer.encode(commands, [used, used], conv), "OptimizerAdam: .* the same state twice"),
        (TypeError, lambda: optimizer.encode(commands, [used, same], conv), r"gradient\[1\] \(Buffer\) is not a Gra"),
        (RuntimeError, lambda: optimizer.encode(commands, [used, unused], conv), "no gradient kernel that computes"),
        (TypeError, lambda: optimizer.encode(commands, [used], buffer), "and the values of state are one"),
    ]
    for error, encode, match in wrong:
        with pytest.raises(error, match=match):
            encode()
    assert {state.time_step for state in (buffer, conv, norm, small)} == {0}


def test_a_command_buffer_that_was_committed() -> None:
    ours = Ours(Adam(), random((7,)))
    commands = mpscnn.CommandBuffer()
    commands.commit()
    commands.wait()
    with pytest.raises(RuntimeError, match=r"OptimizerAdam: the command buffer has been committed already"):
        ours.optimizer.encode(commands, ours.gradient, ours.state)


def test_another_device() -> None:
    devices = mpscnn.Device.all()
    if len(devices) < 2:
        pytest.skip("there is only one device")
    ours = Ours(Adam(), random((7,)))
    other = mpscnn.Buffer(28, device=devices[1])
    with pytest.raises(ValueError, match="values"):
        ours.optimizer.state_for(other)
    with pytest.raises(ValueError, match="gradient"):
        ours.optimizer.encode(mpscnn.CommandBuffer(), other, ours.state)
    with pytest.raises(ValueError, match="OptimizerAdam"):
        ours.optimizer.encode(mpscnn.CommandBuffer(devices[1]), ours.gradient, ours.state)
