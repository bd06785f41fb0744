# SPDX-License-Identifier: Apache-2.0
"""Batches in parts: forward encodes that share a state, whose gradients are sums over all of them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import mpscnn
from support import APPLE

Kernel = Any


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def slices(parts: Sequence[int]) -> list[slice]:
    ends = list(itertools.accumulate(parts))
    return [slice(end - count, end) for end, count in zip(ends, parts, strict=True)]


# One kernel for each kind of shared state, and PyTorch's convolution with the same weights (O, I, H, W) in float64.
def plain() -> tuple[Kernel, Callable[..., torch.Tensor]]:
    weight, bias = normal(6, 5, 3, 2, seed=1), normal(6, seed=2)
    kernel = mpscnn.Convolution(weight, bias, stride=(2, 1), padding=(1, 0), dilation=(1, 2))
    return kernel, lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2))


def grouped() -> tuple[Kernel, Callable[..., torch.Tensor]]:
    weight, bias = normal(8, 4, 3, 3, seed=1), normal(8, seed=2)
    return mpscnn.Convolution(weight, bias, groups=2, padding=1), lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 2)


def depthwise() -> tuple[Kernel, Callable[..., torch.Tensor]]:
    weight, bias = normal(5, 1, 3, 3, seed=1), normal(5, seed=2)
    return mpscnn.Convolution(weight, bias, groups=5, padding=1), lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 5)


def pointwise() -> tuple[Kernel, Callable[..., torch.Tensor]]:
    weight, bias = normal(7, 5, 1, 1, seed=1), normal(7, seed=2)
    return mpscnn.Convolution(weight, bias), F.conv2d


def fully_connected() -> tuple[Kernel, Callable[..., torch.Tensor]]:
    weight, bias = normal(4, 5, 7, 6, seed=1), normal(4, seed=2)
    return mpscnn.FullyConnected(weight.reshape(4, -1), bias, feature_map=(5, 7, 6)), F.conv2d


KERNELS = {make.__name__: make for make in (plain, grouped, depthwise, pointwise, fully_connected)}
CHANNELS = {"grouped": 8}


def of_torch(
    kernel: Kernel, function: Callable[..., torch.Tensor], x: np.ndarray, grad: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the gradients by source (N, H, W, C), weights (O, H, W, I) and biases."""
    source = kernel.data_source
    source.load()
    weight, bias = np.array(source.weights), np.array(source.bias)
    source.purge()
    tensors = [
        torch.tensor(x.transpose(0, 3, 1, 2).astype("f8"), requires_grad=True),
        torch.tensor(weight.transpose(0, 3, 1, 2).astype("f8"), requires_grad=True),
        torch.tensor(bias.astype("f8"), requires_grad=True),
    ]
    y = function(*tensors)
    of_x, of_w, of_b = torch.autograd.grad(y, tensors, torch.tensor(grad.transpose(0, 3, 1, 2).astype("f8")))
    return of_x.numpy().transpose(0, 2, 3, 1), of_w.numpy().transpose(0, 2, 3, 1), of_b.numpy()


def near(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * float(np.abs(wanted).max()))


class InParts:
    """A batch run through a kernel on one command buffer, one Image per part."""

    def __init__(self, kernel: Kernel, x: np.ndarray, parts: Sequence[int]) -> None:
        self.kernel, self.slices = kernel, slices(parts)
        self.sources = [mpscnn.Image.from_array(x[part]) for part in self.slices]
        self.state: Any = True
        self.results = []
        with mpscnn.CommandBuffer() as commands:
            for source in self.sources:
                y, self.state = kernel.encode(commands, source, with_state=self.state)
                self.results.append(y)
        self.y = np.concatenate([y.numpy() for y in self.results])
        self.grad = normal(*self.y.shape, seed=3)

    def back(self, commands: mpscnn.CommandBuffer, part: int) -> mpscnn.Image:
        grad = mpscnn.Image.from_array(self.grad[self.slices[part]])
        return self.kernel.gradient.encode(commands, grad, self.sources[part], self.state)


@pytest.mark.parametrize("parts", [(3, 3), (9, 8), (1, 2, 3), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_sums_over_the_parts(name: str, parts: tuple[int, ...]) -> None:
    kernel, function = KERNELS[name]()
    x = normal(sum(parts), 7, 6, CHANNELS.get(name, 5), seed=4)
    batch = InParts(kernel, x, parts)
    assert batch.state.encodes == len(parts)
    with mpscnn.CommandBuffer() as commands:
        backwards = [batch.back(commands, part) for part in reversed(range(len(parts)))]
    grad_x = np.concatenate([image.numpy() for image in reversed(backwards)])
    right = of_torch(kernel, function, x, batch.grad)
    for found, wanted in zip((grad_x, batch.state.grad_weight, batch.state.grad_bias), right, strict=True):
        near(found, wanted)

    whole, state = kernel(x, with_state=True)
    np.testing.assert_allclose(batch.y, whole, rtol=1e-5, atol=1e-5)
    kernel.gradient(batch.grad, x, state)
    near(batch.state.grad_weight, state.grad_weight)
    near(batch.state.grad_bias, state.grad_bias)


@pytest.mark.parametrize("parts", [(3, 3), (3, 2)], ids=str)
def test_a_transposed_convolution(parts: tuple[int, ...]) -> None:
    weight = normal(5, 3, 3, 4, seed=1)  # I, O, H, W
    kernel = mpscnn.ConvolutionTranspose(weight, normal(3), stride=2, padding=1, output_padding=1)
    x = normal(sum(parts), 4, 5, 5, seed=4)
    batch = InParts(kernel, x, parts)
    with mpscnn.CommandBuffer() as commands:
        for part in range(len(parts)):
            batch.back(commands, part)
    tensor = torch.tensor(weight.astype("f8"), requires_grad=True)
    y = F.conv_transpose2d(torch.tensor(x.transpose(0, 3, 1, 2).astype("f8")), tensor, None, 2, 1, 1)
    y.backward(torch.tensor(batch.grad.transpose(0, 3, 1, 2).astype("f8")))
    assert tensor.grad is not None
    near(batch.state.grad_weight, tensor.grad.numpy()[:, :, ::-1, ::-1].transpose(1, 2, 3, 0))  # MPS's are rotated
    near(batch.state.grad_bias, batch.grad.astype("f8").sum((0, 1, 2)))


def test_more_images_than_an_image_holds() -> None:
    """32 images of 512 channels, which need parts."""
    kernel = mpscnn.Convolution(normal(512, 512, 1, 1, seed=1) / 16)
    x = normal(32, 1, 2, 512)
    if APPLE:
        with pytest.raises(ValueError, match=r"has more images \(32\) than the maximum \(16\) for 512 channels"):
            kernel(x, with_state=True)
    batch = InParts(kernel, x, (16, 16))
    with mpscnn.CommandBuffer() as commands:
        for part in range(2):
            batch.back(commands, part)
    right = np.einsum("nhwo,nhwi->oi", batch.grad.astype("f8"), x.astype("f8"))
    near(batch.state.grad_weight, right[:, None, None])


def test_arrays() -> None:
    kernel, function = plain()
    x = normal(5, 7, 6, 5)
    state: Any = True
    grads = []
    for part in slices((3, 2)):
        y, state = kernel(x[part], with_state=state)
        grads.append(normal(*y.shape, seed=part.start))
    assert repr(state) == "<mpscnn.GradientState of 2 encodes of Convolution>"
    found = [kernel.gradient(grad, x[part], state) for part, grad in zip(slices((3, 2)), grads, strict=True)]
    right = of_torch(kernel, function, x, np.concatenate(grads))
    near(np.concatenate(found), right[0])
    near(state.grad_weight, right[1])


def test_one_command_buffer_and_temporary_images() -> None:
    """Forward and backward without waiting; the parts pass through a second kernel, which has its own states."""
    conv, function = plain()
    relu = mpscnn.NeuronReLU()
    x = normal(5, 7, 6, 5)
    sources = [mpscnn.Image.from_array(x[part]) for part in slices((3, 2))]
    state: Any = True
    grads = []
    with mpscnn.CommandBuffer() as commands:
        forward = []
        for source in sources:
            a, state = conv.encode(commands, source, with_state=state)
            forward.append((source, a, *relu.encode(commands, a, with_state=True)))
        for source, a, b, of_relu in forward:
            grad = relu.gradient.encode(commands, b, a, of_relu, temporary=True)
            grads.append(conv.gradient.encode(commands, grad, source, state))
    right = of_torch(conv, function, x, np.maximum(conv(x), 0))
    near(np.concatenate([grad.numpy() for grad in grads]), right[0])
    near(state.grad_weight, right[1])


def test_a_copy_of_the_kernel_joins() -> None:
    """Threads have copies of a kernel, which can extend the kernel's states."""
    kernel, function = plain()
    x = normal(4, 7, 6, 5)
    y, state = kernel(x[:2], with_state=True)
    z, same = copy.copy(kernel)(x[2:], with_state=state)
    assert same is state
    kernel.gradient(y, x[:2], state)
    kernel.gradient(z, x[2:], state)
    near(state.grad_weight, of_torch(kernel, function, x, np.concatenate([y, z]))[1])


@pytest.mark.parametrize("parts", [(3, 3), (3, 2)], ids=str)
def test_gradient_option_applies_to_each_part(parts: tuple[int, ...]) -> None:
    kernel, function = plain()
    x = normal(sum(parts), 7, 6, 5)
    batch = InParts(kernel, x, parts)
    right = of_torch(kernel, function, x, batch.grad)
    kernel.gradient.gradient_option = "data"
    with mpscnn.CommandBuffer() as commands:
        first = batch.back(commands, 0)
    near(first.numpy(), right[0][batch.slices[0]])
    kernel.gradient.gradient_option = "all"
    with mpscnn.CommandBuffer() as commands:
        second = batch.back(commands, 1)
    near(second.numpy(), right[0][batch.slices[1]])
    with pytest.raises(RuntimeError, match="gradients of 1 of the 2 forward encodes"):
        batch.state.grad_weight  # noqa: B018
    kernel.gradient.gradient_option = "weights_and_bias"
    with mpscnn.CommandBuffer() as commands:
        batch.back(commands, 0)
    near(batch.state.grad_weight, right[1])


def test_a_command_buffer_for_each_part() -> None:
    kernel, function = plain()
    x = normal(5, 7, 6, 5)
    batch = InParts(kernel, x, (3, 2))
    buffers = [mpscnn.CommandBuffer(), mpscnn.CommandBuffer()]
    for part, commands in enumerate(buffers):
        batch.back(commands, part)
    buffers[1].label = "the second"
    with pytest.raises(RuntimeError, match="the command buffer that writes it has not completed"):
        batch.state.grad_weight  # noqa: B018
    for commands in buffers:
        commands.commit()
    buffers[0].wait()
    buffers[1].wait()
    near(batch.state.grad_weight, of_torch(kernel, function, x, batch.grad)[1])


def test_an_optimizer_takes_the_sum() -> None:
    kernel, function = plain()
    x = normal(5, 7, 6, 5)
    batch = InParts(kernel, x, (3, 2))
    right = of_torch(kernel, function, x, batch.grad)
    optimizer = mpscnn.OptimizerStochasticGradientDescent(0.5)
    with mpscnn.CommandBuffer() as commands:
        values = optimizer.state_for(kernel.export_weights(commands))
    before = values.values.weights.copy()
    with mpscnn.CommandBuffer() as commands:
        batch.back(commands, 1)
        with pytest.raises(
            RuntimeError,
            match="OptimizerStochasticGradientDescent: gradients of 1 of the 2 forward encodes of gradient have been "
            "encoded; grad_weight is the sum over all",
        ):
            optimizer.encode(commands, batch.state, values)
        batch.back(commands, 0)
        optimizer.encode(commands, batch.state, values)
    near(values.values.weights, before - 0.5 * right[1])


# --------------------------------------------------------------------------------------------------------- errors


def test_read_before_all_parts() -> None:
    kernel, _ = plain()
    batch = InParts(kernel, normal(6, 7, 6, 5), (2, 2, 2))
    with pytest.raises(RuntimeError, match="no gradient kernel that computes grad_bias has been encoded"):
        batch.state.grad_bias  # noqa: B018
    for encoded in (1, 2):
        with mpscnn.CommandBuffer() as commands:
            batch.back(commands, encoded)
        with pytest.raises(
            RuntimeError,
            match=f"GradientState: gradients of {encoded} of the 3 forward encodes of the state have been encoded; "
            "grad_bias is the sum over all",
        ):
            batch.state.grad_bias  # noqa: B018
    with mpscnn.CommandBuffer() as commands:
        batch.back(commands, 0)
    near(batch.state.grad_bias, batch.grad.astype("f8").sum((0, 1, 2)))


@pytest.mark.parametrize("parts", [(2, 2), (3, 2)], ids=str)
def test_more_gradients_than_encodes(parts: tuple[int, ...]) -> None:
    kernel, function = plain()
    x = normal(sum(parts), 7, 6, 5)
    batch = InParts(kernel, x, parts)
    with mpscnn.CommandBuffer() as commands:
        batch.back(commands, 0)
        if parts[0] != parts[1]:
            with pytest.raises(RuntimeError, match="ConvolutionGradient: the state has been used already"):
                batch.back(commands, 0)
        batch.back(commands, 1)
        for part in range(2):
            with pytest.raises(RuntimeError, match="ConvolutionGradient: the state has been used already"):
                batch.back(commands, part)
    near(batch.state.grad_weight, of_torch(kernel, function, x, batch.grad)[1])


def test_gradients_of_other_shapes() -> None:
    kernel, _ = plain()
    x = normal(5, 7, 6, 5)
    batch = InParts(kernel, x, (3, 2))
    for grad, seen in ((batch.grad[:1], x[:1]), (batch.grad[:3], x[:2]), (batch.grad, x)):
        with pytest.raises(
            ValueError,
            match=r"grad_y.shape \(\d, .*\) and x.shape \(\d, .*\) are those of none of the 2 forward encode",
        ):
            kernel.gradient(grad, seen, batch.state)


def test_states_that_cannot_be_joined() -> None:
    kernel, _ = plain()
    other, _ = plain()
    x = normal(2, 7, 6, 5)
    _, state = kernel(x, with_state=True)
    with pytest.raises(ValueError, match="Convolution: with_state is the state of another Convolution"):
        other(x, with_state=state)
    with pytest.raises(ValueError, match="NeuronReLU: with_state is the state of another Convolution"):
        mpscnn.NeuronReLU()(x, with_state=state)
    with pytest.raises(
        ValueError,
        match=r"Convolution: x.shape \(2, 8, 6, 5\) differs from that of the first encode of with_state \(2, 7, 6, 5\)",
    ):
        kernel(normal(2, 8, 6, 5), with_state=state)
    kernel.offset = (1, 1)
    with pytest.raises(ValueError, match="Convolution: padding, offset, edge mode or the channels that are read have"):
        kernel(x, with_state=state)
    kernel.offset = None
    kernel.edge_mode = "clamp"
    with pytest.raises(ValueError, match="Convolution: padding, offset, edge mode or the channels that are read have"):
        kernel(x, with_state=state)
    kernel.edge_mode = "zero"
    assert state.encodes == 1  # the refused encode has not joined
    y, _ = kernel(x, with_state=state)
    kernel.gradient(y, x, state)
    with pytest.raises(
        RuntimeError, match="Convolution: with_state has been used by a gradient already; the next batch takes a new"
    ):
        kernel(x, with_state=state)


ALONE: dict[str, Callable[[], Kernel]] = {
    "PoolingMax": lambda: mpscnn.PoolingMax(2),
    "NeuronReLU": mpscnn.NeuronReLU,
    "Dropout": mpscnn.Dropout,
    "SoftMax": mpscnn.SoftMax,
    "InstanceNormalization": lambda: mpscnn.InstanceNormalization(np.ones(4, np.float32)),
    "GroupNormalization": lambda: mpscnn.GroupNormalization(np.ones(4, np.float32), groups=2),
    "Add": mpscnn.Add,
}


@pytest.mark.parametrize("name", ALONE)
def test_kernels_whose_states_are_not_shared(name: str) -> None:
    kernel = ALONE[name]()
    sources = [normal(2, 4, 4, 4)] * (2 if name == "Add" else 1)
    _, state = kernel(*sources, with_state=True)
    with pytest.raises(
        TypeError,
        match=f"{name}: with_state is a GradientState; a state of this kernel is of one encode, which no other joins",
    ):
        kernel(*sources, with_state=state)


def test_batch_normalization_leaves_no_gradient_state() -> None:
    kernel = mpscnn.BatchNormalization(np.ones(4, np.float32))
    x = normal(2, 4, 4, 4)
    state = mpscnn.BatchNormalizationStatistics()(x)
    with pytest.raises(TypeError, match="BatchNormalization: with_state was given; the kernel leaves no state"):
        kernel(x, state, with_state=True)


def test_wrong_types() -> None:
    kernel, _ = plain()
    x = normal(2, 7, 6, 5)
    for given, name in ((mpscnn.BatchNormalizationState(5), "BatchNormalizationState"), (None, "NoneType")):
        with pytest.raises(TypeError, match=rf"with_state \({name}\) is not True, False or a GradientState"):
            kernel(x, with_state=given)
    y, state = kernel(x, with_state=np.True_)
    with pytest.raises(TypeError, match="ConvolutionGradient: with_state was given; the kernel leaves no state"):
        kernel.gradient(y, x, with_state=state)


# ------------------------------------------------------------------------------------------- batch normalization


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("parts", [(4, 4), (9, 8), (1, 2, 5)], ids=str)
def test_batch_normalization(parts: tuple[int, ...], activation: str | None) -> None:
    """On one command buffer: statistics, results and gradients of the whole batch; then those of the next one."""
    channels = 6
    gamma, beta = normal(2, channels, seed=1)
    norm = mpscnn.BatchNormalization(gamma, beta, epsilon=1e-3, activation=activation)
    statistics = mpscnn.BatchNormalizationStatistics()
    statistics_gradient = mpscnn.BatchNormalizationStatisticsGradient(activation=activation)
    state = mpscnn.BatchNormalizationState(channels)
    for seed in (2, 3):
        x = normal(sum(parts), 5, 4, channels, seed=seed) * 3 + np.arange(sum(parts), dtype="f4")[:, None, None, None]
        grad = normal(*x.shape, seed=seed + 10)
        xs, grads = ([mpscnn.Image.from_array(array[part]) for part in slices(parts)] for array in (x, grad))
        with mpscnn.CommandBuffer() as commands:
            for part in xs:
                statistics.encode(commands, part, state)
            ys = [norm.encode(commands, part, state) for part in xs]
            for part, of_part in zip(xs, grads, strict=True):
                statistics_gradient.encode(commands, of_part, part, state)
            found = [norm.gradient.encode(commands, g, part, state) for part, g in zip(xs, grads, strict=True)]

        tensors = [torch.tensor(v.astype("f8"), requires_grad=True) for v in (x.transpose(0, 3, 1, 2), gamma, beta)]
        y = F.batch_norm(tensors[0], None, None, tensors[1], tensors[2], True, 0.0, 1e-3)
        y = F.relu(y) if activation else y
        right = torch.autograd.grad(y, tensors, torch.tensor(grad.transpose(0, 3, 1, 2).astype("f8")))
        assert state.count == sum(parts) * 5 * 4
        near(state.mean, x.astype("f8").mean((0, 1, 2)))
        near(state.variance, x.astype("f8").var((0, 1, 2)))
        near(np.concatenate([image.numpy() for image in ys]), y.detach().numpy().transpose(0, 2, 3, 1))
        near(np.concatenate([image.numpy() for image in found]), right[0].numpy().transpose(0, 2, 3, 1))
        near(state.grad_gamma, right[1].numpy())
        near(state.grad_beta, right[2].numpy())
