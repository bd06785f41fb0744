# SPDX-License-Identifier: Apache-2.0
"""Reductions of importers against PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from ops_support import build, check, is_fixed, run

from mpscnn.importing.builder import UnmappedError
from mpscnn.importing.ops import reduction, shape

A = (2, 3, 5, 4)
OTHERS = ((1, 3, 9, 6), (3, 3, 1, 7))
SETS = [dims for n in (1, 2, 3) for dims in itertools.combinations((1, 2, 3), n)]
KINDS = [
    (reduction.mean, torch.mean),
    (reduction.sum, torch.sum),
    (reduction.amax, torch.amax),
    (reduction.amin, torch.amin),
    (reduction.logsumexp, torch.logsumexp),
]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dims", SETS)
@pytest.mark.parametrize(("op", "reference"), KINDS)
def test_reductions(op, reference, dims, keepdim):
    check(lambda b, x: op(b, x, dims, keepdim), lambda x: reference(x, dims, keepdim), A, others=OTHERS, fixed=False)


@pytest.mark.parametrize("axes", ["NHWC", "NCWH"])
def test_axes_in_another_order(axes):
    for dims in SETS:
        check(lambda b, x, d=dims: reduction.mean(b, x, d), lambda x, d=dims: x.mean(d), A, axes=axes)
    check(lambda b, x: reduction.amax(b, x, -1), lambda x: x.amax(-1), (2, 5, 4), axes="NCW", others=((1, 5, 9),))
    check(lambda b, x: reduction.sum(b, x, None), lambda x: x.sum((1, 2, 3)), A)


def test_axes_that_were_taken_together():
    for dims, keepdim in itertools.product([(2,), (1,), (1, 2)], [False, True]):
        check(
            lambda b, x, d=dims, k=keepdim: reduction.mean(b, shape.flatten(b, x, 2), d, k),
            lambda x, d=dims, k=keepdim: x.flatten(2).mean(d, keepdim=k),
            A,
        )


@pytest.mark.parametrize("p", [1, 2])
def test_norms(p):
    for dims in SETS:
        check(
            lambda b, x, d=dims: reduction.norm(b, x, p, d, True),
            lambda x, d=dims: torch.linalg.vector_norm(x, p, d, True),
            A,
            others=OTHERS,
        )


@pytest.mark.parametrize("keepdim", [False, True])
def test_arguments(keepdim):
    for op, reference in ((reduction.argmax, torch.argmax), (reduction.argmin, torch.argmin)):
        check(
            lambda b, x, f=op: f(b, x, 1, keepdim),
            lambda x, f=reference: f(x, 1, keepdim).double(),
            (2, 11, 5, 4),
            others=((1, 11, 3, 3),),
        )
        check(
            lambda b, x, f=op: f(b, x, -1, keepdim),
            lambda x, f=reference: f(x, -1, keepdim).double(),
            (3, 9),
            axes="NC",
        )


@pytest.mark.parametrize("dims", SETS)
def test_softmax(dims):
    def reference(x, log):
        z = x - x.amax(dims, True)
        z = z - z.exp().sum(dims, True).log()
        return z if log else z.exp()

    check(lambda b, x: reduction.softmax(b, x, dims), lambda x: reference(x, False), A, others=OTHERS, fixed=False)
    check(lambda b, x: reduction.log_softmax(b, x, dims), lambda x: reference(x, True), A, others=OTHERS, fixed=False)


def test_softmax_of_channels_is_one_kernel():
    x = np.zeros(A, np.float32)
    assert [n.kernel for n in build(lambda b, t: reduction.softmax(b, t, 1), x)[0]] == ["SoftMax"]
    assert [n.kernel for n in build(lambda b, t: reduction.log_softmax(b, t, -1), x, axes="NHWC")[0]] == ["LogSoftMax"]


def test_large_values_do_not_overflow():
    x = np.full((1, 1, 2, 3), 500, np.float32)
    graph, _ = build(lambda b, t: reduction.softmax(b, t, (2, 3)), x)
    np.testing.assert_allclose(run(graph, x), np.full_like(x, 1 / 6), rtol=1e-6)
    x[0, 0, 0, 0] = -500
    graph, _ = build(lambda b, t: reduction.logsumexp(b, t, (2, 3)), x)
    np.testing.assert_allclose(run(graph, x), [[500 + np.log(5)]], rtol=1e-6)


def test_global_means_fix_nothing():
    graph, _ = build(lambda b, t: reduction.mean(b, t, (2, 3)), np.zeros(A, np.float32))
    assert not is_fixed(graph)
    assert [n.kernel for n in graph] == ["ReduceRowMean", "ReduceColumnMean"]


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (lambda b, x: reduction.mean(b, x, 0), "over the batch"),
        (lambda b, x: reduction.mean(b, x, (1, 1)), "twice"),
        (lambda b, x: reduction.mean(b, x, 4), "axis 4"),
        (lambda b, x: reduction.norm(b, x, 3, 1), "exponent 3"),
        (lambda b, x: reduction.argmax(b, x, 0), "over the batch"),
    ],
)
def test_refusals(op, reason):
    with pytest.raises(UnmappedError, match=reason):
        build(op, np.zeros(A, np.float32))
