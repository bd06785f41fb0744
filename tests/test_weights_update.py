# SPDX-License-Identifier: Apache-2.0
"""Data sources that compute their next weights: update() on a command buffer, update_on_cpu() on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import mpscnn
from support import Source, held_queue

RATE = 0.125
Kernel = Any


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def descriptor() -> mpscnn.ConvolutionDescriptor:
    return mpscnn.ConvolutionDescriptor(3, in_channels=4, out_channels=6, stride=(2, 1))


class OnDevice(Source):
    """Steps of gradient descent on the device."""

    def __init__(self, **members: Any) -> None:
        super().__init__(descriptor(), normal(6, 3, 3, 4, seed=1), normal(6, seed=2), **members)
        self.optimizer = mpscnn.OptimizerStochasticGradientDescent(RATE)
        self.given: list[tuple[Any, ...]] = []
        self.values: Any = None

    def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
        self.given.append((command_buffer, gradient_state, source_state))
        if self.values is None:
            self.values = self.optimizer.state_for(source_state)
        self.optimizer.encode(command_buffer, gradient_state, self.values)
        return self.values.values


class OnCpu(Source):
    """The same steps in NumPy."""

    def __init__(self, **members: Any) -> None:
        super().__init__(descriptor(), normal(6, 3, 3, 4, seed=1), normal(6, seed=2), **members)
        self.given: list[tuple[Any, ...]] = []

    def update_on_cpu(self, gradient_state: Any, source_state: Any) -> Any:
        self.given.append((gradient_state, source_state))
        self.weights = source_state.weights - RATE * gradient_state.grad_weight
        self.bias = source_state.biases - RATE * gradient_state.grad_bias
        return None


class Twin:
    """PyTorch's convolution with the same weights in float64, and its steps."""

    def __init__(self, source: Source) -> None:
        self.weight = torch.tensor(np.array(source.weights, "f8").transpose(0, 3, 1, 2), requires_grad=True)
        self.bias = torch.tensor(np.array(source.bias, "f8"), requires_grad=True)

    def step(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the result, and the gradient of half its sum of squares by the source; then take one step."""
        source = torch.tensor(x.transpose(0, 3, 1, 2).astype("f8"), requires_grad=True)
        y = F.conv2d(source, self.weight, self.bias, (2, 1))
        of_x, of_w, of_b = torch.autograd.grad((y**2).sum() / 200, (source, self.weight, self.bias))
        with torch.no_grad():
            self.weight -= RATE * of_w
            self.bias -= RATE * of_b
        return y.detach().numpy().transpose(0, 2, 3, 1), of_x.numpy().transpose(0, 2, 3, 1)


def near(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * float(np.abs(wanted).max()))


HUNDREDTH = mpscnn.NeuronLinear(0.01, 0)


def encode_step(
    kernel: Kernel, commands: mpscnn.CommandBuffer, x: mpscnn.Image
) -> tuple[mpscnn.Image, mpscnn.Image, Any]:
    y, state = kernel.encode(commands, x, with_state=True)
    grad = HUNDREDTH.encode(commands, y)
    return y, kernel.gradient.encode(commands, grad, x, state), state


X = normal(3, 7, 6, 4, seed=3)


def test_on_the_device() -> None:
    """Three steps on one command buffer: later ones use the results of earlier ones, forward and backward."""
    source = OnDevice()
    kernel, twin = mpscnn.Convolution(source), Twin(source)
    x, results = mpscnn.Image.from_array(X), []
    with mpscnn.CommandBuffer() as commands:
        for _ in range(3):
            y, grad_x, state = encode_step(kernel, commands, x)
            kernel.gradient.update(commands, state)
            assert source.given[-1][:2] == (commands, state)
            results.append((y, grad_x))
    assert len(source.given) == 3
    for step, (y, grad_x) in enumerate(results):
        if step > 0:  # the weights at that time; the first ones are updated in place
            near(source.given[step][2].weights, twin.weight.detach().numpy().transpose(0, 2, 3, 1))
            near(source.given[step][2].biases, twin.bias.detach().numpy())
        wanted, wanted_grad = twin.step(X)
        near(y.numpy(), wanted)
        near(grad_x.numpy(), wanted_grad)
    near(kernel(X), twin.step(X)[0])


def test_on_the_cpu() -> None:
    source = OnCpu()
    kernel, twin = mpscnn.Convolution(source), Twin(source)
    x = mpscnn.Image.from_array(X)
    for _ in range(3):
        with mpscnn.CommandBuffer() as commands:
            y, grad_x, state = encode_step(kernel, commands, x)
        kernel.gradient.update_on_cpu(state)
        assert source.given[-1][0] is state
        wanted, wanted_grad = twin.step(X)
        near(y.numpy(), wanted)
        near(grad_x.numpy(), wanted_grad)
    near(kernel(X), twin.step(X)[0])
    assert source.calls.count("load") == source.calls.count("purge")


def test_other_convolutions() -> None:
    class Halves(Source):
        def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
            half = mpscnn.ConvolutionWeightsAndBiasesState(self.weights / 2, self.bias / 2)
            assert gradient_state.encodes == 1
            assert source_state.weights.shape == self.weights.shape
            return half

        def update_on_cpu(self, gradient_state: Any, source_state: Any) -> bool:
            self.weights, self.bias = source_state.weights / 2, source_state.biases / 2
            return True

    for make, kernel_size, x in (
        (mpscnn.FullyConnected, (7, 6), X),
        (mpscnn.ConvolutionTranspose, (3, 2), X),
        (mpscnn.Convolution, (1, 1), X),
    ):
        of_kernel = mpscnn.ConvolutionDescriptor(kernel_size, in_channels=4, out_channels=5)
        source = Halves(of_kernel, normal(5, *kernel_size, 4), normal(5))
        kernel: Kernel = make(source)
        whole, state = kernel(x, with_state=True)
        grad_x = kernel.gradient(whole, x, state)
        with mpscnn.CommandBuffer() as commands:
            kernel.gradient.update(commands, state)
        near(kernel(x), whole / 2)
        near(kernel.gradient(whole, x), grad_x / 2)
        kernel.gradient.update_on_cpu(state)
        near(kernel(x), whole / 4)
        near(kernel.gradient(whole, x), grad_x / 4)


@pytest.mark.parametrize("way", ["device", "cpu"])
def test_nothing_new(way: str) -> None:
    """None, and False on the CPU: the kernel keeps its weights, and the data source is not read."""

    class Keeps(Source):
        def update(self, *_: Any) -> None:
            self.calls.append("update")

        def update_on_cpu(self, *_: Any) -> bool:
            self.calls.append("update_on_cpu")
            return False

    source = Keeps(descriptor(), normal(6, 3, 3, 4), normal(6))
    kernel = mpscnn.Convolution(source)
    y, state = kernel(X, with_state=True)
    kernel.gradient(y, X, state)
    source.weights = source.weights * 2
    source.calls.clear()
    if way == "device":
        with mpscnn.CommandBuffer() as commands:
            kernel.gradient.update(commands, state)
        assert source.calls == ["update"]
    else:
        kernel.gradient.update_on_cpu(state)
        assert source.calls == ["update_on_cpu"]
    np.testing.assert_array_equal(kernel(X), y)


def test_of_a_batch_in_parts() -> None:
    """The sums over the parts, and only after all of them have been encoded."""
    source = OnDevice()
    kernel, twin = mpscnn.Convolution(source), Twin(source)
    parts = [mpscnn.Image.from_array(X[:2]), mpscnn.Image.from_array(X[2:])]
    state: Any = True
    with mpscnn.CommandBuffer() as commands:
        forward = []
        for part in parts:
            y, state = kernel.encode(commands, part, with_state=state)
            forward.append(HUNDREDTH.encode(commands, y))
        kernel.gradient.encode(commands, forward[1], parts[1], state)
        with pytest.raises(RuntimeError, match="ConvolutionGradient: gradients of 1 of the 2 forward encodes of state"):
            kernel.gradient.update(commands, state)
        assert source.given == []
        kernel.gradient.encode(commands, forward[0], parts[0], state)
        kernel.gradient.update(commands, state)
    twin.step(X)
    near(kernel(X), twin.step(X)[0])


def test_methods_of_an_instance_count() -> None:
    """Methods are looked up when the kernel is made."""
    calls = []
    source = Source(descriptor(), normal(6, 3, 3, 4), normal(6), update=lambda *given: calls.append(given))
    kernel = mpscnn.Convolution(source)
    y, state = kernel(X, with_state=True)
    kernel.gradient(y, X, state)
    with mpscnn.CommandBuffer() as commands:
        kernel.gradient.update(commands, state)
    assert len(calls) == 1
    with pytest.raises(TypeError, match=r"ConvolutionGradient: the data source has no update_on_cpu\(\)"):
        kernel.gradient.update_on_cpu(state)


def test_one_update_inside_of_another() -> None:
    """Layers that share their steps: each call has its own arguments and result."""
    inner_source = OnDevice()
    inner = mpscnn.Convolution(inner_source)
    y, inner_state = inner(X, with_state=True)
    inner.gradient(y * np.float32(0.01), X, inner_state)

    class Outer(OnDevice):
        def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
            inner.gradient.update(command_buffer, inner_state)
            return super().update(command_buffer, gradient_state, source_state)

    outer_source = Outer()
    outer = mpscnn.Convolution(outer_source)
    _, state = outer(X, with_state=True)
    outer.gradient(2 * y * np.float32(0.01), X, state)
    with mpscnn.CommandBuffer() as commands:
        outer.gradient.update(commands, state)
    assert [given[1] for given in inner_source.given] == [inner_state]
    assert [given[1] for given in outer_source.given] == [state]
    weights = normal(6, 3, 3, 4, seed=1)
    with mpscnn.CommandBuffer() as commands:
        of_inner, of_outer = inner.export_weights(commands), outer.export_weights(commands)
    near(of_outer.weights - weights, 2 * (of_inner.weights - weights))


# ------------------------------------------------------------------------------------------------------- threads


def test_threads() -> None:
    """Each thread has its own kernel, and Python runs meanwhile; callbacks run on the calling thread."""
    stop = threading.Event()

    def spin() -> int:
        count = 0
        while not stop.is_set():
            count += 1
        return count

    class Watched(OnDevice):
        threads: list[int]

        def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
            self.threads.append(threading.get_ident())
            return super().update(command_buffer, gradient_state, source_state)

    wanted = []
    twin = Twin(OnDevice())
    for _ in range(6):
        wanted.append(twin.step(X)[0])

    def train(_: int) -> bool:
        source = Watched(threads=[])
        kernel = mpscnn.Convolution(source)
        x = mpscnn.Image.from_array(X)
        for right in wanted:
            with mpscnn.CommandBuffer() as commands:
                y, _, state = encode_step(kernel, commands, x)
                kernel.gradient.update(commands, state)
            near(y.numpy(), right)
        return set(source.threads) == {threading.get_ident()}

    with ThreadPoolExecutor(5) as pool:
        spinning = pool.submit(spin)
        try:
            assert list(pool.map(train, range(8))) == [True] * 8
        finally:
            stop.set()
    assert spinning.result() > 0


def test_the_gil_is_free_while_it_waits() -> None:
    """update_on_cpu() exports weights and waits for the device; meanwhile Python can run, and release the device."""
    source = OnCpu()
    kernel = mpscnn.Convolution(source)
    y, state = kernel(X, with_state=True)
    kernel.gradient(y, X, state)
    done = []
    with held_queue():
        thread = threading.Thread(target=lambda: done.append(kernel.gradient.update_on_cpu(state)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert done == []
    thread.join(60)
    assert done == [None]


# -------------------------------------------------------------------------------------------------------- errors


class MyError(Exception):
    pass


def failing(**methods: Callable[..., Any]) -> tuple[Kernel, np.ndarray, Any]:
    kernel = mpscnn.Convolution(Source(descriptor(), normal(6, 3, 3, 4), normal(6), **methods))
    y, state = kernel(X, with_state=True)
    kernel.gradient(y, X, state)
    return kernel, y, state


def throw(*_: Any) -> Any:
    raise MyError("no step today")


def test_exceptions_come_out() -> None:
    kernel, y, state = failing(update=throw, update_on_cpu=throw)
    image = mpscnn.Image.from_array(X)
    with mpscnn.CommandBuffer() as commands:
        with pytest.raises(MyError, match="no step today"):
            kernel.gradient.update(commands, state)
        after = kernel.encode(commands, image)  # the command buffer can still be used
    np.testing.assert_array_equal(after.numpy(), y)
    with pytest.raises(MyError, match="no step today"):
        kernel.gradient.update_on_cpu(state)
    np.testing.assert_array_equal(kernel(X), y)
    kernel.reload()  # no exception is left for later calls


@pytest.mark.parametrize("given", [3, "weights", np.zeros(3, np.float32)])
def test_wrong_results_of_update(given: Any) -> None:
    kernel, y, state = failing(update=lambda *_: given)
    with (
        mpscnn.CommandBuffer() as commands,
        pytest.raises(
            TypeError,
            match=r"data source: update\(\) returned .*, which is not a ConvolutionWeightsAndBiasesState or None",
        ),
    ):
        kernel.gradient.update(commands, state)
    np.testing.assert_array_equal(kernel(X), y)


def test_weights_of_another_size() -> None:
    kernel, y, state = failing(update=lambda *_: mpscnn.ConvolutionWeightsAndBiasesState([1, 2], [3]))
    with (
        mpscnn.CommandBuffer() as commands,
        pytest.raises(ValueError, match="Convolution: weights of the state has 8 bytes; the kernel needs 864"),
    ):
        kernel.gradient.update(commands, state)
    np.testing.assert_array_equal(kernel(X), y)


def test_wrong_results_of_update_on_cpu() -> None:
    kernel, _, state = failing(update_on_cpu=lambda *_: 1)
    with pytest.raises(TypeError, match=r"data source: update_on_cpu\(\) returned 1, which is not True, False or None"):
        kernel.gradient.update_on_cpu(state)


def test_data_sources_without_the_methods() -> None:
    for kernel in (mpscnn.Convolution(normal(6, 4, 3, 3)), failing()[0]):
        y, state = kernel(X, with_state=True)
        kernel.gradient(y, X, state)
        with mpscnn.CommandBuffer() as commands:
            with pytest.raises(TypeError, match=r"ConvolutionGradient: the data source has no update\(\)"):
                kernel.gradient.update(commands, state)
            with pytest.raises(TypeError, match=r"ConvolutionGradient: the data source has no update_on_cpu\(\)"):
                kernel.gradient.update_on_cpu(state)


def test_kernels_without_gradients_of_weights() -> None:
    kernel, _, state = failing(update=throw)
    relu = mpscnn.NeuronReLU()
    with mpscnn.CommandBuffer() as commands:
        for other in (kernel, relu, relu.gradient, mpscnn.Dropout().gradient):
            name = type(other).__name__
            with pytest.raises(TypeError, match=f"{name}: the kernel computes no gradients of weights"):
                other.update(commands, state)
            with pytest.raises(TypeError, match=f"{name}: the kernel computes no gradients of weights"):
                other.update_on_cpu(state)


def test_states_that_do_not_fit() -> None:
    kernel, _, _ = failing(update=throw, update_on_cpu=throw)
    _, _, strange = failing(update=throw)
    y, state = kernel(X, with_state=True)
    with mpscnn.CommandBuffer() as commands:
        with pytest.raises(ValueError, match="ConvolutionGradient: state is that of another Convolution, not of the"):
            kernel.gradient.update(commands, strange)
        message = "ConvolutionGradient: no gradient kernel that computes grad_weight has been encoded with state"
        with pytest.raises(RuntimeError, match=message):
            kernel.gradient.update(commands, state)
        with pytest.raises(RuntimeError, match=message):
            kernel.gradient.update_on_cpu(state)
        kernel.gradient.encode(commands, mpscnn.Image.from_array(y), mpscnn.Image.from_array(X), state)
        with pytest.raises(RuntimeError, match="the command buffer that writes it has not completed"):
            kernel.gradient.update_on_cpu(state)
    with pytest.raises(RuntimeError, match="ConvolutionGradient: the command buffer has been committed already"):
        kernel.gradient.update(commands, state)
    with pytest.raises(MyError):
        kernel.gradient.update_on_cpu(state)
