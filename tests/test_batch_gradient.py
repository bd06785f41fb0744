# SPDX-License-Identifier: Apache-2.0
"""Batch normalization in training: statistics, the kernel, the statistics' gradients, the kernel's gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import mpscnn

EPSILON = 1e-5


class Layer:
    """The four kernels of a layer, and PyTorch's results for the same numbers in float64."""

    def __init__(self, shape: tuple[int, int, int, int], activation: str | None = None, dtype: str = "float32") -> None:
        rng = np.random.default_rng(3)
        self.x = (rng.normal(size=shape) * 2 + 1).astype(dtype)
        self.grad = rng.normal(size=shape).astype(dtype)
        self.gamma, self.beta = rng.normal(size=(2, shape[3])).astype(np.float32)
        self.kernel = mpscnn.BatchNormalization(self.gamma, self.beta, epsilon=EPSILON, activation=activation)
        self.statistics = mpscnn.BatchNormalizationStatistics()
        self.statistics_gradient = mpscnn.BatchNormalizationStatisticsGradient(activation=activation)
        x = torch.tensor(self.x.astype("f8").transpose(0, 3, 1, 2), requires_grad=True)
        gamma, beta = (torch.tensor(v.astype("f8"), requires_grad=True) for v in (self.gamma, self.beta))
        y = F.batch_norm(x, None, None, gamma, beta, True, 0.0, EPSILON)
        if activation:
            y = {"relu": F.relu, "tanh": torch.tanh}[activation](y)
        grads = torch.autograd.grad(y, (x, gamma, beta), torch.tensor(self.grad.astype("f8").transpose(0, 3, 1, 2)))
        self.right_x = grads[0].numpy().transpose(0, 2, 3, 1)
        self.right_gamma, self.right_beta = grads[1].numpy(), grads[2].numpy()


@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
@pytest.mark.parametrize("shape", [(3, 5, 7, 6), (1, 9, 4, 37), (8, 1, 1, 3), (2, 16, 16, 64)])
def test_against_autograd(shape: tuple[int, int, int, int], activation: str | None) -> None:
    layer = Layer(shape, activation)
    state = layer.statistics(layer.x)
    layer.kernel(layer.x, state)
    assert layer.statistics_gradient(layer.grad, layer.x, state) is state
    found = layer.kernel.gradient(layer.grad, layer.x, state)
    scale = max(1.0, float(np.abs(layer.right_gamma).max()))
    np.testing.assert_allclose(found, layer.right_x, atol=1e-5 * float(np.abs(layer.right_x).max()))
    np.testing.assert_allclose(state.grad_gamma, layer.right_gamma, atol=1e-5 * scale)
    np.testing.assert_allclose(state.grad_beta, layer.right_beta, atol=1e-5 * scale)


def test_one_command_buffer_and_the_next_batch() -> None:
    """One state is used in every step: the statistics after a gradient begin a new batch."""
    layer = Layer((4, 6, 5, 8), "relu")
    state = mpscnn.BatchNormalizationState(8)
    x, grad = mpscnn.Image.from_array(layer.x), mpscnn.Image.from_array(layer.grad)
    for _ in range(2):
        with mpscnn.CommandBuffer() as commands:
            layer.statistics.encode(commands, x, state)
            layer.kernel.encode(commands, x, state)
            layer.statistics_gradient.encode(commands, grad, x, state)
            found = layer.kernel.gradient.encode(commands, grad, x, state)
        assert state.count == 4 * 6 * 5
        np.testing.assert_allclose(found.numpy(), layer.right_x, atol=1e-5)
        np.testing.assert_allclose(state.grad_gamma, layer.right_gamma, atol=1e-4)


def test_a_batch_in_parts() -> None:
    layer = Layer((6, 5, 4, 7))
    state = mpscnn.BatchNormalizationState(7)
    for part in (slice(0, 4), slice(4, 6)):
        layer.statistics(layer.x[part], state)
    for part in (slice(0, 4), slice(4, 6)):
        layer.kernel(layer.x[part], state)
    for part in (slice(0, 4), slice(4, 6)):
        layer.statistics_gradient(layer.grad[part], layer.x[part], state)
    found = np.concatenate(
        [layer.kernel.gradient(layer.grad[p], layer.x[p], state) for p in (slice(0, 4), slice(4, 6))]
    )
    np.testing.assert_allclose(found, layer.right_x, atol=1e-5)
    np.testing.assert_allclose(state.grad_beta, layer.right_beta, atol=1e-4)


def test_errors() -> None:
    layer = Layer((2, 3, 3, 4))
    with pytest.raises(TypeError, match="BatchNormalizationGradient: state is missing"):
        layer.kernel.gradient(layer.grad, layer.x)
    state = layer.statistics(layer.x)
    with pytest.raises(RuntimeError, match="no gradients have been encoded to it"):
        state.grad_gamma  # noqa: B018
    with pytest.raises(RuntimeError, match="no gradients of the statistics have been encoded to state"):
        layer.kernel.gradient(layer.grad, layer.x, state)
    with pytest.raises(ValueError, match="x has 3 channels; state has 4"):
        layer.statistics_gradient(layer.grad[..., :3], layer.x[..., :3], state)
    with pytest.raises(ValueError, match=r"grad_y.shape \(1, 3, 3, 4\) is not that of x \(2, 3, 3, 4\)"):
        layer.statistics_gradient(layer.grad[:1], layer.x, state)
    with pytest.raises(RuntimeError, match="no statistics have been encoded to state"):
        layer.statistics_gradient(layer.grad, layer.x, mpscnn.BatchNormalizationState(4))
