# SPDX-License-Identifier: Apache-2.0
"""Weights of convolutions in device memory: exported from and reloaded into kernels, on command buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpscnn
from support import random

X = (2, 6, 7, 8)
KERNELS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "convolution": ("Convolution", (12, 8, 3, 2), {"padding": 1}),
    "groups": ("Convolution", (16, 4, 3, 3), {"groups": 2, "padding": 1}),
    "depth-wise": ("Convolution", (8, 1, 3, 3), {"groups": 8}),
    "fully connected": ("FullyConnected", (5, 8, 6, 7), {"layout": "OIHW"}),
    "transposed": ("ConvolutionTranspose", (8, 4, 3, 2), {"stride": 2}),
}


def made(name: str, *, bias: bool = True, sign: int = 1) -> tuple[mpscnn.Kernel, np.ndarray]:
    kernel, shape, options = KERNELS[name]
    outputs = shape[1] if kernel == "ConvolutionTranspose" else shape[0]
    weight = sign * random(shape)
    return getattr(mpscnn, kernel)(weight, random((outputs,)) if bias else None, **options), weight


@pytest.mark.parametrize("name", KERNELS)
def test_from_one_kernel_to_another(name: str) -> None:
    """In one command buffer: earlier encodes use the old weights."""
    (first, _), (second, _) = made(name), made(name, sign=-1)
    x = random(X)
    old, new = first(x), second(x)
    assert not np.array_equal(old, new)
    image = mpscnn.Image.from_array(x)
    with mpscnn.CommandBuffer() as commands:
        before = first.encode(commands, image)
        first.reload(commands, second.export_weights(commands))
        after = first.encode(commands, image)
    np.testing.assert_array_equal(before.numpy(), old)
    np.testing.assert_array_equal(after.numpy(), new)
    np.testing.assert_array_equal(first(x), new)


def test_exported_values() -> None:
    kernel, weight = made("convolution")
    with mpscnn.CommandBuffer() as commands:
        state = kernel.export_weights(commands)
    assert state.weights.dtype == np.float32
    np.testing.assert_array_equal(state.weights, weight.transpose(0, 2, 3, 1))
    assert state.biases is not None
    assert state.biases.shape == (12,)
    assert repr(state) == "<mpscnn.ConvolutionWeightsAndBiasesState of 576 weights, 12 biases>"


def test_a_transposed_kernel_is_rotated() -> None:
    kernel, weight = made("transposed", bias=False)
    with mpscnn.CommandBuffer() as commands:
        state = kernel.export_weights(commands)
    np.testing.assert_array_equal(state.weights, weight[:, :, ::-1, ::-1].transpose(1, 2, 3, 0))
    assert state.biases is None


def test_weights_of_a_users() -> None:
    kernel, _ = made("convolution")
    weight, x = random((12, 8, 3, 2)), random(X)
    wanted = mpscnn.Convolution(weight, padding=1)(x)
    ohwi = mpscnn.reorder(weight, "OIHW", "OHWI")
    for values in (ohwi, ohwi.ravel().tolist(), mpscnn.Buffer(ohwi.nbytes)):
        state = mpscnn.ConvolutionWeightsAndBiasesState(values)
        state.weights[...] = ohwi.ravel()
        with mpscnn.CommandBuffer() as commands:
            kernel.reload(commands, state)
        np.testing.assert_array_equal(kernel(x), wanted)


def test_a_reload_reads_the_buffer_at_execution() -> None:
    kernel = mpscnn.Convolution(np.ones((1, 1, 1, 1), np.float32))
    state = mpscnn.ConvolutionWeightsAndBiasesState([2.0], [1.0])
    commands = mpscnn.CommandBuffer()
    kernel.reload(commands, state)
    state.weights[:] = 5
    commands.commit()
    commands.wait()
    state.weights[:] = 7
    assert kernel(np.ones((1, 1, 1, 1), np.float32)).item() == 6


def test_wrong_states() -> None:
    kernel, _ = made("convolution")
    commands = mpscnn.CommandBuffer()
    few = mpscnn.ConvolutionWeightsAndBiasesState(np.ones(575))
    with pytest.raises(ValueError, match=r"weights of the state has 2300 bytes; the kernel needs 2304 \(OHWI \(12, 3"):
        kernel.reload(commands, few)
    biases = mpscnn.ConvolutionWeightsAndBiasesState(np.ones(576), np.ones(11))
    with pytest.raises(ValueError, match=r"biases of the state has 44 bytes; the kernel needs 48"):
        kernel.reload(commands, biases)
    with pytest.raises(TypeError, match=r"NeuronReLU: the kernel has no weights to export"):
        mpscnn.NeuronReLU().export_weights(commands)
    with pytest.raises(TypeError, match=r"BinaryConvolution: the kernel has no weights to reload"):
        mpscnn.BinaryConvolution(np.ones((1, 1, 1, 1), np.uint32)).reload(commands, few)
    with pytest.raises(TypeError, match=r"Convolution: state was given without command_buffer"):
        kernel.reload(None, few)
    commands.commit()
    commands.wait()
    with pytest.raises(RuntimeError, match=r"the command buffer has been committed already"):
        kernel.export_weights(commands)
