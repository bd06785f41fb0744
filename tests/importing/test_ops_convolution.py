# SPDX-License-Identifier: Apache-2.0
"""Convolutions and linear layers of importers: cases that PyTorch's operators do not cover, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)

import mpscnn
from interpreter import interpret
from mpscnn.importing.builder import Builder, Tensor, UnmappedError
from mpscnn.importing.ops import convolution, shape


def run(body: Any, x: np.ndarray, axes: str = "NCHW", imported: tuple[int, ...] | None = None) -> np.ndarray:
    """Return the result of `body`, called with a Builder and a Tensor, for `x`; `imported`: the shape at import."""
    builder = Builder()
    builder.output("y", body(builder, builder.input("x", imported or x.shape[1:], axes)))
    return interpret(builder.graph, x=x)["y"]


def draw(rng: np.random.Generator, *extents: int) -> np.ndarray:
    return rng.standard_normal(extents).astype(np.float32)


def close(y: np.ndarray, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("padding", [((1, 2), (0, 3)), ((0, 0), (2, 1)), ((3, 0), (0, 0))])
@pytest.mark.parametrize("size", [(7, 9), (6, 5)])
def test_pixels_of_padding_for_each_side(rng: np.random.Generator, padding: Any, size: tuple[int, int]) -> None:
    x, w = draw(rng, 3, 5, *size), draw(rng, 4, 5, 3, 2)
    (top, bottom), (left, right) = padding
    expected = F.conv2d(F.pad(torch.tensor(x), (left, right, top, bottom)), torch.tensor(w), stride=2)
    close(run(lambda b, t: convolution.conv2d(b, t, w, None, 2, padding), x, imported=(5, 7, 9)), expected)


def test_transposed_convolution_cut_on_each_side(rng: np.random.Generator) -> None:
    x, w = draw(rng, 2, 5, 6, 7), draw(rng, 5, 4, 3, 4)
    full = F.conv_transpose2d(torch.tensor(x), torch.tensor(w), stride=2)
    y = run(lambda b, t: convolution.conv_transpose2d(b, t, w, None, 2, ((1, 0), (2, 1))), x)
    close(y, full[:, :, 1:, 2:-1])


@pytest.mark.parametrize("transposed", [False, True])
def test_an_image_that_lies_on_its_side(rng: np.random.Generator, transposed: bool) -> None:
    """The tensor's height is the image's width."""
    x, w, bias = draw(rng, 2, 4, 6, 9), draw(rng, 4, 4, 3, 2), draw(rng, 4)
    arguments: dict[str, Any] = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
    ours = convolution.conv_transpose2d if transposed else convolution.conv2d
    theirs = F.conv_transpose2d if transposed else F.conv2d
    expected = theirs(torch.tensor(x).transpose(2, 3), torch.tensor(w), torch.tensor(bias), **arguments)
    close(run(lambda b, t: ours(b, shape.transpose(b, t, 2, 3), w, bias, **arguments), x), expected)


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs"), [(2, 3, 5), (4, 1, 2), (6, 2, 2), (8, 1, 3), (5, 1, 1), (3, 4, 8)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_groups(rng: np.random.Generator, groups: int, inputs: int, outputs: int, transposed: bool) -> None:
    x, bias = draw(rng, 2, groups * inputs, 5, 6), draw(rng, groups * outputs)
    if transposed:
        w = draw(rng, groups * inputs, outputs, 2, 3)
        expected = F.conv_transpose2d(torch.tensor(x), torch.tensor(w), torch.tensor(bias), 2, groups=groups)
        y = run(lambda b, t: convolution.conv_transpose2d(b, t, w, bias, 2, groups=groups), x)
    else:
        w = draw(rng, groups * outputs, inputs, 2, 3)
        expected = F.conv2d(torch.tensor(x), torch.tensor(w), torch.tensor(bias), 2, groups=groups)
        y = run(lambda b, t: convolution.conv2d(b, t, w, bias, 2, groups=groups), x)
    close(y, expected)


@pytest.mark.parametrize("axes", ["NCHW", "NHWC", "NWCH", "NHCW"])
def test_a_linear_layer_of_an_image_in_any_order(rng: np.random.Generator, axes: str) -> None:
    x, w = draw(rng, 2, 3, 4, 5), draw(rng, 6, 60)
    y = run(lambda b, t: convolution.linear(b, shape.flatten(b, t), w), x, axes)
    close(y, torch.tensor(x.reshape(2, -1) @ w.T))


def test_a_linear_layer_fixes_the_size() -> None:
    builder = Builder()
    x = builder.input("x", (3, 1, 1))
    convolution.linear(builder, shape.flatten(builder, x), np.ones((2, 3), np.float32))
    assert builder.graph.inputs["x"].height == 1, "a map of 1 x 1 pixels at this size alone"


def refusal(body: Any, *extents: int, axes: str = "NCHW") -> None:
    builder = Builder()
    body(builder, builder.input("x", extents, axes))


ONES = np.ones((4, 3, 3, 3), np.float32)
INVALID = {
    "channels": (lambda b, x: convolution.conv2d(b, x, np.ones((4, 2, 3, 3), np.float32)), "a source of 3 channels"),
    "groups": (lambda b, x: convolution.conv2d(b, x, ONES, groups=3), "in 3 groups"),
    "bias": (lambda b, x: convolution.conv2d(b, x, ONES, np.ones(3, np.float32)), r"bias has shape \(3,\), not \(4,\)"),
    "axes": (lambda b, x: convolution.conv2d(b, x, ONES[0]), "have 3 axes"),
    "extents": (lambda b, x: convolution.conv2d(b, x, ONES, dilation=5), "leaves"),
    "linear": (lambda b, x: convolution.linear(b, x, np.ones((2, 4), np.float32)), "take 4 values"),
}
UNMAPPED = {
    "same": (lambda b, x: convolution.conv2d(b, x, ONES, stride=2, padding="same"), "with a stride"),
    "output_padding": (
        lambda b, x: convolution.conv_transpose2d(b, x, np.ones((3, 4, 3, 3), np.float32), output_padding=1),
        "not less than the stride",
    ),
    "huge_groups": (
        lambda b, x: convolution.conv2d(
            b, x, np.broadcast_to(np.float32(0), (6, 1, 8192, 8192)), padding=8192, groups=3
        ),
        "bytes",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name: str) -> None:
    body, reason = INVALID[name]
    with pytest.raises(mpscnn.InvalidModelError, match=reason):
        refusal(body, 3, 6, 8)


@pytest.mark.parametrize("name", UNMAPPED)
def test_unmapped(name: str) -> None:
    body, reason = UNMAPPED[name]
    with pytest.raises(UnmappedError, match=reason):
        refusal(body, 3, 6, 8)


def test_weights_of_groups_stay_where_they_are() -> None:
    """Weights are copied only if zeros have to be put between them."""
    builder = Builder()
    x = builder.input("x", (8, 5, 5))
    w = np.ones((8, 4, 3, 3), np.float32)
    convolution.conv2d(builder, x, w, groups=2)
    assert builder.graph.nodes[0].arguments["weight"] is w
    assert isinstance(x, Tensor)
