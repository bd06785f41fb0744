# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of importers against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from ops_support import build, check, is_fixed, run

from mpscnn.importing.builder import UnmappedError
from mpscnn.importing.ops import arithmetic, pooling, reduction, shape

A = (2, 3, 5, 4)
OTHER = ((1, 3, 7, 7),)
OTHERS = (((1, 3, 9, 6), (1, 3, 9, 6)), ((3, 3, 1, 7), (3, 3, 1, 7)))
BINARY = [
    (arithmetic.add, torch.add),
    (arithmetic.subtract, torch.sub),
    (arithmetic.multiply, torch.mul),
    (arithmetic.divide, torch.div),
]
EXTREMES = [(arithmetic.maximum, torch.maximum), (arithmetic.minimum, torch.minimum)]


def constant(*extents: int) -> np.ndarray:
    rng = np.random.default_rng([3, *extents])
    return np.asarray(rng.standard_normal(extents) * 2 + 0.1, np.float32)


@pytest.mark.parametrize(("op", "reference"), BINARY)
def test_two_tensors(op, reference):
    check(op, reference, A, A, others=OTHERS, fixed=False)
    check(op, reference, A, (2, 3, 1, 1), others=(((1, 3, 7, 7), (1, 3, 1, 1)),), fixed=False)
    check(op, reference, (2, 1, 5, 1), (2, 3, 1, 4), fixed=False)
    check(op, reference, (2, 6), (2, 6), axes="NC")
    check(op, reference, (2, 6, 5), (2, 1, 5), axes="NCW", others=(((2, 6, 9), (2, 1, 9)),))


@pytest.mark.parametrize(("op", "reference"), BINARY)
@pytest.mark.parametrize(
    "extents", [(), (1,), (3, 1, 1), (1, 3, 1, 1), (4,), (5, 1), (1, 1, 5, 4), (3, 5, 4), (1, 3, 5, 4), (3, 1, 4)]
)
def test_a_tensor_and_a_constant(op, reference, extents):
    c = constant(*extents)
    fixed = c.size > 3
    others = () if fixed else ((1, 3, 7, 6),)
    check(lambda b, x: op(b, x, c), lambda x: reference(x, torch.from_numpy(c)), A, fixed=fixed, others=others)
    check(
        lambda b, x: op(b, c, x),
        lambda x: reference(torch.from_numpy(c), x),
        A,
        fixed=fixed,
        others=others,
        positive=True,
    )


@pytest.mark.parametrize(("op", "reference"), BINARY)
def test_a_constant_that_enlarges(op, reference):
    c = constant(3, 1, 4)
    check(lambda b, x: op(b, x, c), lambda x: reference(x, torch.from_numpy(c)), (2, 1, 5, 1))
    equal = np.full((3, 1, 4), 0.5, np.float32)
    check(lambda b, x: op(b, x, equal), lambda x: reference(x, torch.from_numpy(equal)), (2, 1, 5, 1))


def test_one_number_written_many_times():
    graph, _ = build(lambda b, x: arithmetic.add(b, x, np.full((3, 5, 4), 2.0)), np.zeros(A, np.float32))
    assert [node.kernel for node in graph] == ["NeuronLinear"]


@pytest.mark.parametrize(("op", "reference"), BINARY[:2])
def test_alpha(op, reference):
    c = constant(3, 1, 1)
    check(lambda b, x, y: op(b, x, y, alpha=0.75), lambda x, y: reference(x, y, alpha=0.75), A, A)
    check(lambda b, x: op(b, x, c, alpha=2), lambda x: reference(x, torch.from_numpy(c), alpha=2), A)
    check(lambda b, x: op(b, c, x, alpha=2), lambda x: reference(torch.from_numpy(c), x, alpha=2), A)


@pytest.mark.parametrize("swapped", [False, True])
def test_axes_of_extent_1_stand_for_any(swapped):
    """(N, 1, 1, C) of a transposed tensor combined with (N, H, W, C), in both orders."""

    def op(builder, x, y):
        means = shape.permute(builder, reduction.mean(builder, y, (2, 3), True), (0, 2, 3, 1))
        result = arithmetic.subtract(builder, means, x) if swapped else arithmetic.subtract(builder, x, means)
        return reduction.mean(builder, result, 3)  # its axes are those of the image

    def reference(x, y):
        means = y.mean((2, 3), True).permute(0, 2, 3, 1)
        return (means - x if swapped else x - means).mean(3)

    check(op, reference, (2, 5, 4, 3), A, axes=("NHWC", "NCHW"), fixed=False)


@pytest.mark.parametrize("swapped", [False, True])
def test_other_names_of_axes(swapped):
    """The channels of one tensor are the rows of the other, where their extent is 1."""

    def op(builder, x, y):
        sums = shape.permute(builder, reduction.sum(builder, y, (1, 2), True), (0, 2, 1, 3))
        return arithmetic.add(builder, sums, x) if swapped else arithmetic.add(builder, x, sums)

    check(op, lambda x, y: x + y.sum((1, 2), True), (2, 3, 5, 4), (2, 3, 5, 4), fixed=False)


def test_an_extent_of_1_that_may_change_is_fixed():
    graph, _ = build(
        arithmetic.add, np.zeros((1, 3, 1, 4), np.float32), np.zeros((1, 3, 1, 1), np.float32), axes=("NCHW", "NCWH")
    )
    assert is_fixed(graph)


def test_division_by_numbers_whose_reciprocal_is_none():
    x = np.float32([[1, -2, 0, np.inf]])
    subnormal = np.float32(2.0**-140)
    for divisor in (0.0, 1e-45, subnormal, [1e-45, -subnormal, subnormal, 2], 3.3e38, np.inf):
        graph, _ = build(lambda b, t, d=divisor: arithmetic.divide(b, t, np.float32(d)), x, axes="NC")
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(run(graph, x), x / np.float32(divisor))
            np.testing.assert_array_equal(run(graph, x * subnormal), x * subnormal / np.float32(divisor))


def test_types_of_constants():
    x = np.ones((1, 3), np.float32)
    for c in (2, np.int64([2]), np.float16([2]), np.array([2], ml_dtypes.bfloat16), np.bool_(True) * 2):
        graph, _ = build(lambda b, t, c=c: arithmetic.multiply(b, t, c), x, axes="NC")
        np.testing.assert_array_equal(run(graph, x), x * 2)
    with pytest.raises(UnmappedError, match="complex64"):
        build(lambda b, t: arithmetic.multiply(b, t, np.complex64(1j)), x, axes="NC")
    with pytest.raises(TypeError, match="neither a"):
        build(lambda b, t: arithmetic.multiply(b, 1, 2), x, axes="NC")


@pytest.mark.parametrize(("op", "reference"), EXTREMES)
def test_extremes(op, reference):
    check(op, reference, A, A, fixed=True)
    check(op, reference, (2, 1, 5, 4), (2, 1, 5, 4), others=(((1, 1, 9, 6), (1, 1, 9, 6)),), fixed=False)
    check(op, reference, (2, 6), (2, 6), axes="NC", fixed=False)
    check(lambda b, x: op(b, x, 0.3), lambda x: reference(x, torch.tensor(0.3)), A, others=((1, 3, 7, 7),), fixed=False)
    check(lambda b, x: op(b, 0.3, x), lambda x: reference(x, torch.tensor(0.3)), A)
    c = constant(3, 5, 4)
    check(lambda b, x: op(b, x, c), lambda x: reference(x, torch.from_numpy(c)), A)


def test_extremes_are_exact():
    a = np.float32([[1e-8, -1e8, np.inf, -np.inf, 5]])
    b = np.float32([[1e8, 1, -np.inf, 2, 5]])
    graph, _ = build(arithmetic.maximum, a, b, axes="NC")
    np.testing.assert_array_equal(run(graph, a, b), np.maximum(a, b))


@pytest.mark.parametrize(("op", "reference"), EXTREMES)
@pytest.mark.parametrize("sign", ["mixed", "positive", "negative"])
@pytest.mark.parametrize("first", [True, False])
def test_extremes_with_a_constant_for_each_channel(op, reference, sign, first):
    """At any size, also larger than a constant image may be."""
    t = np.float32([-1.5, 0, 2, -1e30, 1e-3, -1e-41]).reshape(1, -1, 1, 1)
    t = {"mixed": t, "positive": np.abs(t), "negative": -np.abs(t)}[sign]
    order = (lambda a, b: (a, b)) if first else (lambda a, b: (b, a))
    check(
        lambda b, x: op(b, *order(x, t)),
        lambda x: reference(*order(x, torch.from_numpy(t))),
        (2, 6, 5, 4),
        others=((1, 6, 40, 50),),
        fixed=False,
    )
    x = np.float32([1e-6, -1e-6, np.inf, -np.inf, 1e30, -1e30, 0.1, -0.1, 1.7]).reshape(1, 1, 3, 3).repeat(6, 1)
    graph, _ = build(lambda b, x: op(b, *order(x, t)), x)
    expected = reference(torch.from_numpy(x), torch.from_numpy(t)).numpy()
    np.testing.assert_allclose(run(graph, x), expected, rtol=3e-7, atol=1e-37)


def test_constants_larger_than_an_image():
    """They would load, and fail at run time."""
    large = np.ones((1, 16385, 2), np.float32)
    large[0, 0, 0] = 2
    x = np.zeros((1, 1, 1, 2), np.float32)
    with pytest.raises(UnmappedError, match=r"a constant of 16385 x 2 pixels and 1 channels, more than the maximum"):
        build(lambda b, x: arithmetic.add(b, x, large), x)
    with pytest.raises(UnmappedError, match="maximum of tensors of different shapes"):
        build(lambda b, x: arithmetic.maximum(b, x, large), x)


def test_constants_of_more_values_than_a_fully_connected_layer_has():
    for op, reference in ((arithmetic.add, torch.add), (arithmetic.maximum, torch.maximum)):
        c = constant(91, 91)
        check(
            lambda b, x, op=op, c=c: op(b, x, c), lambda x, r=reference, c=c: r(x, torch.from_numpy(c)), (2, 3, 91, 91)
        )


@pytest.mark.parametrize(("low", "high"), [(-1, 0.5), (None, 0.5), (-0.5, None), (0, 6), (-np.inf, np.inf)])
def test_clamp(low, high):
    check(
        lambda b, x: arithmetic.clamp(b, x, low, high), lambda x: torch.clamp(x, low, high), A, others=((1, 3, 7, 7),)
    )
    x = np.float32([[np.inf, -np.inf, 3e38, -3e38, 0.25, 1e-30]])
    graph, _ = build(lambda b, t: arithmetic.clamp(b, t, low, high), x, axes="NC")
    np.testing.assert_array_equal(run(graph, x), np.clip(x, low, high))


@pytest.mark.parametrize(
    ("op", "reference", "positive"),
    [
        (arithmetic.neg, torch.neg, False),
        (arithmetic.abs, torch.abs, False),
        (arithmetic.square, torch.square, False),
        (arithmetic.sqrt, torch.sqrt, True),
        (arithmetic.rsqrt, torch.rsqrt, True),
        (arithmetic.reciprocal, torch.reciprocal, False),
        (arithmetic.exp, torch.exp, False),
        (arithmetic.log, torch.log, True),
    ],
)
def test_functions(op, reference, positive):
    check(op, reference, A, positive=positive, others=((1, 3, 7, 7),), fixed=False)


@pytest.mark.parametrize("exponent", [1, 2, 3, 4, 0.5, -1, -2, 1.7, 0])
def test_pow(exponent):
    check(
        lambda b, x: arithmetic.pow(b, x, exponent),
        lambda x: torch.pow(x, exponent),
        A,
        positive=exponent != round(exponent),
        fixed=False,
    )
    check(lambda b, x: arithmetic.pow(b, 2.5, x), lambda x: torch.pow(2.5, x), A, fixed=False)


def test_a_constant_after_a_pooling_fixes_nothing():
    """A result reduced to one pixel has one pixel for every source."""
    c = constant(1, 3, 2, 2)

    def op(builder, x):
        pooled = pooling.adaptive_avg_pool2d(builder, pooling.global_avg_pool2d(builder, x), (2, 2))
        return arithmetic.add(builder, pooled, c)

    check(op, lambda x: x.mean((2, 3), True) + torch.from_numpy(c), A, others=((1, 3, 9, 9),), fixed=False)


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (lambda b, x: arithmetic.add(b, x, reduction.mean(b, x, (2, 3))), "4 and 2 axes"),
        (lambda b, x: arithmetic.add(b, x, shape.permute(b, x, (0, 2, 1, 3))), "behind the batch|another order"),
        (lambda b, x: arithmetic.add(b, x, np.ones((2, 1, 1, 1)) * [[[[1]]], [[[2]]]]), "for each image of the batch"),
        (lambda b, x: arithmetic.add(b, x, np.arange(7)), "do not broadcast"),
        (lambda b, x: arithmetic.add(b, x, np.ones((1, 1, 1, 1, 2))), "with a tensor of 4 axes"),
        (lambda b, x: arithmetic.pow(b, x, x), "both computed"),
        (lambda b, x: arithmetic.pow(b, -2, x), "positive number"),
        (lambda b, x: arithmetic.pow(b, x, np.arange(4)), "of its own"),
        (lambda b, x: arithmetic.maximum(b, x, reduction.mean(b, x, (2, 3), True)), "different shapes"),
    ],
)
def test_refusals(op, reason):
    with pytest.raises(UnmappedError, match=reason):
        build(op, np.zeros(A, np.float32))
