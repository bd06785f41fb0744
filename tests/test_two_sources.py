# SPDX-License-Identifier: Apache-2.0
"""Kernels with two sources: images, temporaries, broadcasting along images, kinks of gradients, wrong calls."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from support import random, shares_images

A = (3, 5, 6, 7)


def image(array: np.ndarray) -> mpscnn.Image:
    return mpscnn.Image.from_array(array)


# -------------------------------------------------------------------------------------------------- images


def test_images_in_images_out() -> None:
    a, b = random(A), random(A, seed=1)
    result = mpscnn.Subtract()(image(a), image(b))
    assert isinstance(result, mpscnn.Image)
    np.testing.assert_array_equal(result.numpy(), a - b)
    out = mpscnn.Image(A)
    assert mpscnn.Multiply()(image(a), image(b), out=out) is out
    np.testing.assert_array_equal(out.numpy(), a * b)


def test_one_image_as_both_sources() -> None:
    x = random(A)
    same = image(x)
    np.testing.assert_array_equal(mpscnn.Multiply()(same, same).numpy(), x * x)
    np.testing.assert_array_equal(mpscnn.Subtract()(x, x), np.zeros_like(x))


def test_the_result_has_the_type_of_the_first_source() -> None:
    a, b = random(A, "float16"), random(A)
    assert mpscnn.Add()(a, b).dtype == np.float16
    assert mpscnn.Add()(b, a).dtype == np.float32
    assert mpscnn.Add()(a, b, dtype="float32").dtype == np.float32


def test_a_residual_block() -> None:
    """x + f(x) in one command buffer, through temporaries, as in networks."""
    x = random(A)
    double, relu, add = mpscnn.NeuronLinear(2.0, 0.0), mpscnn.NeuronReLU(), mpscnn.Add()
    with mpscnn.CommandBuffer() as buffer:
        trunk = double.encode(buffer, image(x), temporary=True)
        trunk.read_count = 2
        branch = relu.encode(buffer, trunk, temporary=True)
        total = add.encode(buffer, trunk, branch, temporary=True)
        assert (trunk.read_count, branch.read_count, total.read_count) == (0, 0, 1)
        result = double.encode(buffer, total)
    np.testing.assert_array_equal(result.numpy(), 2 * (2 * x + np.maximum(2 * x, 0)))


def test_a_temporary_that_is_both_sources_is_read_once() -> None:
    x = random(A)
    with mpscnn.CommandBuffer() as buffer:
        middle = mpscnn.NeuronLinear(3.0, 0.0).encode(buffer, image(x), temporary=True)
        result = mpscnn.Multiply().encode(buffer, middle, middle)
        assert middle.read_count == 0
    np.testing.assert_allclose(result.numpy(), (3 * x) ** 2, rtol=1e-6)


@pytest.mark.parametrize("first", [True, False], ids=["a repeats", "b repeats"])
def test_one_image_for_several_through_temporaries(first: bool) -> None:
    """MPS has no stride for images: there are several encodes, and each temporary counts as read once."""
    copy = mpscnn.NeuronLinear(1.0, 0.0)
    many, one = random(A), random((1, *A[1:]), seed=1)
    with mpscnn.CommandBuffer() as buffer:
        sources = [copy.encode(buffer, image(x), temporary=True) for x in (many, one)]
        sources = sources[::-1] if first else sources
        middle = mpscnn.Subtract().encode(buffer, *sources, temporary=True)
        assert [x.read_count for x in (*sources, middle)] == [0, 0, 1]
        result = copy.encode(buffer, middle)
    np.testing.assert_array_equal(result.numpy(), one - many if first else many - one)


def test_properties_are_back_after_several_encodes() -> None:
    """The clip rectangle and offsets for single images are restored."""
    kernel = mpscnn.Add()
    many, one = random(A), random((1, *A[1:]), seed=1)
    np.testing.assert_array_equal(kernel(many, one), many + one)
    np.testing.assert_array_equal(kernel(many, many), many + many)
    assert (kernel.clip_rect, kernel.primary_offset, kernel.secondary_offset) == (None, None, None)


@shares_images
def test_an_error_between_several_encodes_changes_nothing() -> None:
    """The second of three encodes is refused; the kernel and temporaries are unchanged."""
    kernel, copy = mpscnn.Add(), mpscnn.NeuronLinear(1.0, 0.0)
    many, out = random(A), mpscnn.empty(A, "float32")
    with pytest.raises(ValueError, match="share memory"):
        kernel(many, out[1:2], out=out)
    np.testing.assert_array_equal(kernel(many, many), many + many)
    with mpscnn.CommandBuffer() as buffer:
        middle = copy.encode(buffer, image(many), temporary=True)
        with pytest.raises(ValueError, match="share memory"):
            kernel.encode(buffer, middle, image(out[:1]), out=image(out))
        assert middle.read_count == 1
        result = kernel.encode(buffer, middle, image(many))
    np.testing.assert_array_equal(result.numpy(), many + many)


@pytest.mark.parametrize("images", [1, 4, 9])  # an MPSImage holds four images of 2048 channels
@pytest.mark.parametrize("shared", [True, False], ids=["one for all", "one each"])
def test_more_images_than_fit(images: int, shared: bool) -> None:
    a, b = random((images, 2, 3, 2048)), random((1 if shared else images, 2, 1, 2048), seed=1)
    np.testing.assert_array_equal(mpscnn.Add()(a, b), a + b)
    np.testing.assert_array_equal(mpscnn.Subtract()(b, a), b - a)


def test_threads_share_a_kernel() -> None:
    """Strides are set for each call: threads with other shapes are not affected."""
    kernel = mpscnn.Add()
    wrong: list[str] = []

    def work(shape: tuple[int, int, int, int]) -> None:
        a, b = random(A), random(shape, seed=2)
        for _ in range(200):
            if not np.array_equal(kernel(a, b), a + b):
                wrong.append(str(shape))
                return

    shapes = [A, (1, 1, 1, 7), (3, 5, 1, 1), (1, 5, 6, 1)]
    threads = [threading.Thread(target=work, args=(shape,)) for shape in shapes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_attributes_count_at_the_time_of_encoding() -> None:
    a, b = random((1, 3, 4, 4)), random((1, 3, 4, 4), seed=1)
    kernel = mpscnn.Add()
    with mpscnn.CommandBuffer() as buffer:
        first = kernel.encode(buffer, image(a), image(b))
        kernel.secondary_offset = (1, 0)
        second = kernel.encode(buffer, image(a), image(b))
        kernel.secondary_edge_mode = "clamp"
        third = kernel.encode(buffer, image(a), image(b))
        kernel.secondary_offset = None
        fourth = kernel.encode(buffer, image(a), image(b))
    below = np.pad(b[:, 1:], ((0, 0), (0, 1), (0, 0), (0, 0)))
    np.testing.assert_array_equal(first.numpy(), a + b)
    np.testing.assert_array_equal(second.numpy(), a + below)
    np.testing.assert_array_equal(third.numpy(), a + np.concatenate([b[:, 1:], b[:, 2:]], axis=1))
    np.testing.assert_array_equal(fourth.numpy(), a + b)


# ------------------------------------------------------------------------------------------------ wrong calls


def test_mixed_sources_are_refused() -> None:
    x = random(A)
    kernel = mpscnn.Add()
    with pytest.raises(TypeError, match=r"Add: a is an Image; b is not\."):
        kernel(image(x), x)
    with pytest.raises(TypeError, match=r"Add: a is an Image; out is not\."):
        kernel(image(x), image(x), out=np.empty_like(x))
    with mpscnn.CommandBuffer() as buffer:
        with pytest.raises(TypeError, match=r"^b \(ndarray\) is not an Image\.$"):
            kernel.encode(buffer, image(x), x)
        with pytest.raises(TypeError, match=r"Add: the number of sources \(3\) is not 2 \(a, b\)\."):
            kernel.encode(buffer, image(x), image(x), image(x))
        with pytest.raises(TypeError, match=r"NeuronReLU: the number of sources \(2\) is not 1 \(x\)\."):
            mpscnn.NeuronReLU().encode(buffer, image(x), image(x))
        result = kernel.encode(buffer, image(x), image(x))
    np.testing.assert_array_equal(result.numpy(), x + x)
    np.testing.assert_array_equal(kernel(x, image(x)), x + x)  # an image is an array as well


@pytest.mark.parametrize("which", [0, 1])
@shares_images
def test_in_place_is_refused(which: int) -> None:
    sources = [random(A), random(A, seed=1)]
    before = [x.copy() for x in sources]
    with pytest.raises(ValueError, match=rf"{('primary', 'secondary')[which]}Image and the destination share memory"):
        mpscnn.Add()(*sources, out=sources[which])
    for x, kept in zip(sources, before, strict=True):
        np.testing.assert_array_equal(x, kept)


def test_result_shapes() -> None:
    assert mpscnn.Add().result_shape((2, 5, 1, 7), (1, 1, 6, 7)) == (2, 5, 6, 7)
    assert mpscnn.Add(destination_feature_channel_offset=8).result_shape(A, A) == (3, 5, 6, 15)
    with pytest.raises(TypeError, match=r"the number of sources \(1\) is not 2"):
        mpscnn.Add().result_shape(A)
    with pytest.raises(ValueError, match=r"shape \(3, 0, 6, 7\) has an extent \(0\)"):
        mpscnn.Add().result_shape(A, (3, 0, 6, 7))
    with pytest.raises(ValueError, match="the width of a"):
        mpscnn.Add().result_shape(A, (3, 5, 2, 7))


# -------------------------------------------------------------------------------------------------- gradients

ACTIVATIONS: dict[str, Any] = {
    "by name": "tanh",
    "by descriptor": mpscnn.NeuronDescriptor("tanh", 1.0, 1.0),
    "by kernel": mpscnn.NeuronTanH(),
}


@pytest.mark.parametrize("how", ACTIVATIONS)
def test_ways_to_say_which_function(how: str) -> None:
    grad, x = random(A), random(A, seed=1)
    kernel = mpscnn.NeuronGradient(ACTIVATIONS[how])
    np.testing.assert_allclose(kernel(grad, x), grad / np.cosh(x.astype(np.float64)) ** 2, rtol=1e-6)
    descriptor = kernel.neuron_descriptor
    assert (descriptor.type, descriptor.a, descriptor.b) == ("tanh", 1.0, 1.0)


# (function, source, slope): the header's cases at their boundaries [MPSCNNNeuron.h].
KINKS = [
    (("relu", 0.25), 0.0, 1.0),
    (("relu", 0.25), -0.0, 1.0),
    (("relu", 0.25), -1e-30, 0.25),
    (("elu", 0.5), 0.0, 1.0),
    (("elu", 0.5), -1e-30, 0.5),
    (("absolute",), 0.0, 0.0),
    (("absolute",), -1e-30, -1.0),
    (("hard_sigmoid", 0.25, 0.5), -2.0, 0.25),
    (("hard_sigmoid", 0.25, 0.5), 2.0, 0.25),
    (("hard_sigmoid", 0.25, 0.5), math.nextafter(-2.0, -3.0) - 1e-6, 0.0),
    (("hard_sigmoid", 0.25, 0.5), 2.0 + 1e-6, 0.0),
    (("relun", 0.5, 6.0), 6.0, 0.0),
    (("relun", 0.5, 6.0), 5.999, 1.0),
    (("relun", 0.5, 6.0), 0.0, 1.0),
    (("relun", 0.5, 6.0), -1.0, 0.5),
    (("relun", -1.0, 2.0), -2.0, 0.0),
    (("power", 1.0, 0.0, 0.0), 0.0, 0.0),
    (("power", 2.0, 0.0, 1.0), 0.0, 2.0),
    (("logarithm", 1.0, 0.0, -1.0), 0.0, math.inf),
]


@pytest.mark.parametrize(("function", "at", "slope"), KINKS)
def test_kinks(function: tuple[Any, ...], at: float, slope: float) -> None:
    x = np.full((1, 1, 3, 5), at, np.float32)
    grad = np.full_like(x, 3.0)
    result = mpscnn.NeuronGradient(mpscnn.NeuronDescriptor(*function))(grad, x)
    np.testing.assert_array_equal(result, np.full_like(x, np.float32(3.0 * slope)))


def test_backward_through_a_product_and_an_activation() -> None:
    """d/dx of sum(w * tanh(a * x)) with these kernels, against autograd."""
    x, w = random((2, 4, 5, 6)), random((1, 1, 1, 6), seed=1)
    scale = mpscnn.NeuronLinear(1.5, 0.0)
    with mpscnn.CommandBuffer() as buffer:
        hidden = scale.encode(buffer, image(x))
        ones = image(np.ones_like(x))
        grad = mpscnn.Multiply().encode(buffer, ones, image(w), temporary=True)
        grad = mpscnn.NeuronGradient("tanh").encode(buffer, grad, hidden, temporary=True)
        result = mpscnn.NeuronGradient(scale).encode(buffer, grad, image(x))
    tensor = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    (torch.from_numpy(w.astype(np.float64)) * torch.tanh(1.5 * tensor)).sum().backward()
    assert tensor.grad is not None
    np.testing.assert_allclose(result.numpy(), tensor.grad.numpy(), rtol=2e-6, atol=1e-6)
