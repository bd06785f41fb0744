# SPDX-License-Identifier: Apache-2.0
"""PyTorch tensors whose values differ from their memory, or that have no memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import mpscnn
from support import random, run_python

SHAPE = (1, 5, 7, 4)


def negated(values: torch.Tensor) -> torch.Tensor:
    """Return the same values, stored with the opposite sign."""
    view = torch.complex(torch.zeros_like(values), -values).conj().imag
    assert view.is_neg()
    assert torch.equal(view, values)
    return view


def network(channels_first: bool = False) -> mpscnn.Network:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4, layout="NCHW" if channels_first else "NHWC")
    graph.output(graph.add("NeuronLinear", x, a=2.0), "y")
    return mpscnn.Network(graph)


def test_negated_views_as_input() -> None:
    x = torch.from_numpy(random(SHAPE))
    expected = 2 * x.numpy()
    np.testing.assert_array_equal(mpscnn.NeuronLinear(a=2.0)(negated(x)), expected)
    np.testing.assert_array_equal(network()(negated(x)), expected)
    np.testing.assert_array_equal(mpscnn.Image.from_array(negated(x)).numpy(), x.numpy())


def test_negated_views_as_weights() -> None:
    weight, bias, x = torch.from_numpy(random((8, 4, 3, 3))), torch.from_numpy(random((8,))), random(SHAPE)
    expected = mpscnn.Convolution(weight, bias)(x)
    np.testing.assert_array_equal(mpscnn.Convolution(negated(weight), negated(bias))(x), expected)
    np.testing.assert_array_equal(mpscnn.reorder(negated(weight), "OIHW", "OHWI"), weight.permute(0, 2, 3, 1).numpy())


def outs(out: object) -> list[Callable[[], object]]:
    x = random(SHAPE)
    return [lambda: mpscnn.NeuronLinear(a=2.0)(x, out=out), lambda: network()(x, out=out)]


def test_outs_that_are_refused() -> None:
    for call in outs(negated(torch.ones(SHAPE))):
        with pytest.raises(ValueError, match="out is a negated view: its memory has the other sign"):
            call()
    for call in outs(torch.ones(SHAPE, requires_grad=True)):
        with pytest.raises(ValueError, match=r"out requires grad, .* give out.detach\(\)"):
            call()
    for call in outs(torch.ones(1, 1, 7, 4).expand(SHAPE)):
        with pytest.raises(ValueError, match=r"out: indices along axis 1 name the same element twice"):
            call()
    repeated = np.lib.stride_tricks.as_strided(np.ones(4, np.float32), SHAPE, (0, 0, 0, 4))
    for call in outs(repeated):
        with pytest.raises(ValueError, match=r"out: indices along axis 1 name the same element twice"):
            call()


def test_one_out_for_two_results() -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4)
    graph.output(graph.add("NeuronLinear", x, a=2.0), "y")
    graph.output(graph.add("NeuronLinear", x, a=3.0), "z")
    net = mpscnn.Network(graph)
    both, values = np.zeros((2, *SHAPE), np.float32), random(SHAPE)
    with pytest.raises(ValueError, match=r"out\[1\] may share memory with out\[0\]\."):
        net(values, out=(both[0], both[0]))
    with pytest.raises(ValueError, match=r"out\[1\] may share memory with out\[0\]\."):
        net(values, out=(both[0], torch.from_numpy(both[0])))
    net(values, out=(both[0], both[1]))
    np.testing.assert_array_equal(both[0], 2 * values)


def test_tensors_without_memory() -> None:
    """In a separate process, which reading address 0 would end."""
    output = run_python(
        """
        import warnings
        import numpy as np, torch, mpscnn
        from torch._subclasses.fake_tensor import FakeTensorMode
        warnings.simplefilter("ignore")  # PyTorch's, of the first address of a FakeTensor
        graph = mpscnn.Graph()
        graph.output(graph.add("NeuronReLU", graph.input("x", channels=4, layout="NCHW")), "y")
        net = mpscnn.Network(graph)

        def views(x):
            return x, x.permute(0, 3, 1, 2), x.permute(1, 2, 3, 0)

        def resized(place, bytes):
            tensor = torch.ones(2, 1, 5, 7, 4)
            made = views(tensor[place])
            tensor.untyped_storage().resize_(bytes)
            return made

        with FakeTensorMode():
            fake = torch.ones(2, 1, 5, 7, 4)
        cases = [views(fake[0]), views(fake[1]), views(torch._efficientzerotensor((1, 5, 7, 4)))]
        cases += [resized(0, 0), resized(1, 0), resized(1, 8 * 140 - 4)]
        refused = 0
        for x, nchw, weight in cases:
            for call in (
                lambda: mpscnn.NeuronReLU()(x),
                lambda: mpscnn.NeuronReLU()(np.ones(x.shape, np.float32), out=x),
                lambda: mpscnn.Image.from_array(x),
                lambda: mpscnn.Convolution(weight),
                lambda: mpscnn.reorder(weight, "OIHW", "OHWI"),
                lambda: net(nchw),
            ):
                try:
                    call()
                except ValueError as error:
                    assert ") has no memory: it" in str(error), error
                    refused += 1
        print(refused)
        """
    )
    assert output == "36\n"


def test_a_tensor_of_no_elements_has_no_memory() -> None:
    assert network()(torch.empty((0, 5, 7, 4))).shape == (0, 5, 7, 4)
