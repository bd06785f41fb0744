# SPDX-License-Identifier: Apache-2.0
"""Pooling of importers against PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from ops_support import build, check, run
from torch.nn import functional

from mpscnn.importing.builder import UnmappedError
from mpscnn.importing.ops import pooling

OTHERS = ((1, 3, 9, 16), (3, 3, 20, 5), (1, 3, 7, 7), (2, 3, 8, 9))


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        (2, None, 0, 1),
        (3, 2, 1, 1),
        ((3, 2), (2, 3), (1, 0), 1),
        (1, 3, 0, 1),
        ((2, 5), (3, 1), (1, 2), 1),
        (3, 1, 1, 2),
        ((2, 3), (2, 1), (1, 1), (3, 2)),
        (2, 4, 1, 3),
        (2, 5, 1, 2),
        (3, (3, 2), 0, 2),
    ],
)
def test_max_pool2d(kernel, stride, padding, dilation, ceil_mode):
    def op(builder, x):
        return pooling.max_pool2d(builder, x, kernel, stride, padding, dilation, ceil_mode)

    def reference(x):
        return functional.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)

    graph = check(op, reference, (2, 3, 11, 8))
    if not graph.inputs["x0"].fixed_by:
        check(op, reference, (2, 3, 11, 8), others=OTHERS)
    else:
        assert ceil_mode
        assert dilation != 1
        for height, width in itertools.product(range(8, 14), repeat=2):
            check(op, reference, (1, 2, height, width))


def test_max_pool2d_stays_free():
    """If no window can begin after the source, dilation with ceil_mode needs no fixed size."""
    graph, _ = build(lambda b, x: pooling.max_pool2d(b, x, 3, 2, 1, 2, True), np.zeros((1, 1, 9, 9), np.float32))
    assert not graph.inputs["x0"].fixed_by


@pytest.mark.parametrize("pads", [((1, 0), (0, 1)), ((0, 2), (1, 1)), ((2, 1), (2, 0))])
@pytest.mark.parametrize("dilation", [1, 2])
def test_asymmetric_padding(pads, dilation):
    def reference(x):
        padded = functional.pad(x, (*pads[1], *pads[0]), value=-torch.inf)
        return functional.max_pool2d(padded, 3, 2, 0, dilation)

    check(
        lambda b, x: pooling.max_pool2d(b, x, 3, 2, pads, dilation),
        reference,
        (2, 3, 11, 8),
        others=OTHERS,
    )


@pytest.mark.parametrize("pads", [((1, 0), (0, 1)), ((0, 2), (1, 1)), ((2, 1), (2, 0))])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_asymmetric_average(pads, include, ceil_mode):
    def reference(x):
        sides = (*pads[1], *pads[0])
        counted = functional.pad(torch.ones_like(x), sides, value=float(include))
        sums = functional.avg_pool2d(functional.pad(x, sides), 4, 2, 0, ceil_mode, divisor_override=1)
        return sums / functional.avg_pool2d(counted, 4, 2, 0, ceil_mode, divisor_override=1)

    check(
        lambda b, x: pooling.avg_pool2d(b, x, 4, 2, pads, ceil_mode, count_include_pad=include),
        reference,
        (2, 3, 11, 8),
        others=OTHERS,
    )


@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [(2, None, 0), (3, 2, 1), ((3, 2), (2, 3), (1, 0)), ((2, 5), (3, 1), (1, 2)), (4, 3, 2)],
)
def test_avg_pool2d(kernel, stride, padding, ceil_mode, include, divisor):
    check(
        lambda b, x: pooling.avg_pool2d(b, x, kernel, stride, padding, ceil_mode, include, divisor),
        lambda x: functional.avg_pool2d(x, kernel, stride, padding, ceil_mode, include, divisor),
        (2, 3, 11, 8),
        others=OTHERS,
    )


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(40, None, 0), (20, 13, 0), ((40, 2), None, 0), (40, 40, 3)])
def test_window_beyond_the_source(kernel, stride, padding):
    """With ceil_mode a window may be longer than the source: it ends with it."""
    others = ((2, 3, 9, 30), (1, 3, 41, 80), (1, 3, 40, 40))
    check(
        lambda b, x: pooling.avg_pool2d(b, x, kernel, stride, padding, True),
        lambda x: functional.avg_pool2d(x, kernel, stride, padding, True),
        (2, 3, 18, 17),
        others=others,
    )
    check(
        lambda b, x: pooling.max_pool2d(b, x, kernel, stride, padding, 1, True),
        lambda x: functional.max_pool2d(x, kernel, stride, padding, 1, True),
        (2, 3, 18, 17),
        others=others,
    )


def test_average_with_gaps():
    def reference(x):
        weight = torch.full((3, 1, 2, 3), 1 / 6, dtype=x.dtype)
        return functional.conv2d(x, weight, None, 2, (1, 2), (2, 1), 3)

    check(
        lambda b, x: pooling.avg_pool2d(b, x, (2, 3), 2, (1, 2), dilation=(2, 1)),
        reference,
        (2, 3, 11, 8),
        others=OTHERS,
    )


@pytest.mark.parametrize("p", [1, 2, 4])
def test_lp_pool2d(p):
    check(
        lambda b, x: pooling.lp_pool2d(b, x, p, 3, 2, True),
        lambda x: functional.lp_pool2d(x, p, 3, 2, True),
        (2, 3, 11, 8),
        others=OTHERS,
        positive=p == 1,
    )


def test_absolute_norm():
    def reference(x):
        return (functional.avg_pool2d(functional.pad(x.abs() ** 3, (1, 0, 0, 1)), 2, 2) * 4) ** (1 / 3)

    check(
        lambda b, x: pooling.lp_pool2d(b, x, 3, 2, None, False, ((0, 1), (1, 0)), absolute=True),
        reference,
        (2, 3, 11, 8),
        others=OTHERS,
    )


@pytest.mark.parametrize("axes", ["NCW", "NCH"])
def test_one_dimension(axes):
    check(
        lambda b, x: pooling.max_pool2d(b, x, 3, 2, [1], 1),
        lambda x: functional.max_pool1d(x, 3, 2, 1),
        (2, 3, 11),
        axes=axes,
        others=((1, 3, 30),),
    )
    check(
        lambda b, x: pooling.avg_pool2d(b, x, [4], [3], [2], True, False),
        lambda x: functional.avg_pool1d(x, 4, 3, 2, True, False),
        (2, 3, 11),
        axes=axes,
        others=((1, 3, 30),),
    )
    check(
        lambda b, x: pooling.adaptive_avg_pool2d(b, x, [4]),
        lambda x: functional.adaptive_avg_pool1d(x, 4),
        (2, 3, 11),
        axes=axes,
    )


def test_axes_in_another_order():
    """For a tensor (N, C, W, H), the first extent of a window is along the width."""
    check(
        lambda b, x: pooling.max_pool2d(b, x, (3, 2), (2, 1), (1, 0)),
        lambda x: functional.max_pool2d(x, (3, 2), (2, 1), (1, 0)),
        (2, 3, 11, 8),
        axes="NCWH",
    )
    check(
        lambda b, x: pooling.adaptive_max_pool2d(b, x, (3, 1)),
        lambda x: functional.adaptive_max_pool2d(x, (3, 1)),
        (2, 3, 11, 8),
        axes="NCWH",
    )


@pytest.mark.parametrize(
    ("size", "output"),
    [
        ((14, 21), (7, 7)),
        ((7, 9), (3, 4)),
        ((6, 5), (7, 7)),
        ((3, 2), (6, 6)),
        ((11, 8), (None, 4)),
        ((11, 8), (1, 3)),
        ((11, 8), (5, 1)),
        ((7, 7), 7),
        ((13, 10), (6, 6)),
        ((5, 5), (2, None)),
    ],
)
def test_adaptive(size, output):
    """Kernels for the extents of fixed inputs; other extents stay free if both are pooled."""
    is_sized = isinstance(output, int) or None not in output
    for own, reference in (
        (pooling.adaptive_avg_pool2d, functional.adaptive_avg_pool2d),
        (pooling.adaptive_max_pool2d, functional.adaptive_max_pool2d),
    ):
        for is_fixed in (False, True):

            def op(builder, x, own=own, is_fixed=is_fixed):
                if is_fixed:
                    builder.fix()
                return own(builder, x, output)

            graph = check(
                op,
                lambda x, reference=reference: reference(x, output),
                (2, 3, *size),
                others=((1, 3, 9, 16), (1, 3, 4, 5)) if is_sized and not is_fixed else (),
                fixed=is_fixed or not is_sized,
            )
            assert any(node.kernel == "AdaptivePool" for node in graph.nodes) == (is_sized and not is_fixed)


def test_adaptive_of_a_fixed_extent_fixes_nothing():
    """A result pooled to one row has one row for every source."""

    def op(builder, x):
        return pooling.adaptive_avg_pool2d(builder, pooling.global_avg_pool2d(builder, x), (2, 2))

    check(
        op,
        lambda x: functional.adaptive_avg_pool2d(functional.adaptive_avg_pool2d(x, 1), 2),
        (2, 3, 4, 6),
        others=((1, 3, 9, 9),),
    )


def test_global():
    check(
        pooling.global_avg_pool2d,
        lambda x: functional.adaptive_avg_pool2d(x, 1),
        (2, 3, 11, 8),
        others=OTHERS,
        fixed=False,
    )
    check(
        pooling.global_max_pool2d,
        lambda x: functional.adaptive_max_pool2d(x, 1),
        (2, 3, 11, 8),
        others=OTHERS,
        fixed=False,
    )


def test_infinite_values():
    x = np.full((1, 1, 3, 3), -np.inf, np.float32)
    graph, _ = build(lambda b, t: pooling.max_pool2d(b, t, 2, 1, 1), x)
    assert (run(graph, x) == -np.inf).all()


@pytest.mark.parametrize(
    ("op", "axes", "reason"),
    [
        (lambda b, x: pooling.max_pool2d(b, x, 2, 1, 2), "NCHW", r"padding \(2, 2\) around windows of 2"),
        (lambda b, x: pooling.max_pool2d(b, x, 12), "NCHW", "a window of 12 pixels on 11"),
        (lambda b, x: pooling.max_pool2d(b, x, 2, 0), "NCHW", r"stride \(0, 0\)"),
        (lambda b, x: pooling.max_pool2d(b, x, 2, 1, ((-1, 0), (0, 0))), "NCHW", "negative padding"),
        (lambda b, x: pooling.max_pool2d(b, x, 2), "NHWC", "axes NHWC"),
        (lambda b, x: pooling.max_pool2d(b, x, (2, 2, 2)), "NCHW", "3 extents"),
        (lambda b, x: pooling.avg_pool2d(b, x, 2, divisor_override=0), "NCHW", "divided by 0"),
        (lambda b, x: pooling.avg_pool2d(b, x, 2, 1, 1, False, False, dilation=2), "NCHW", "with gaps"),
        (lambda b, x: pooling.lp_pool2d(b, x, 3, 2), "NCHW", "exponent 3"),
        (lambda b, x: pooling.lp_pool2d(b, x, float("inf"), 2), "NCHW", "exponent inf"),
        (lambda b, x: pooling.adaptive_avg_pool2d(b, x, (20000, 3)), "NCHW", "to .20000, 3. pixels, more than"),
        (lambda b, x: pooling.adaptive_avg_pool2d(b, x, (0, 1)), "NCHW", r"to \(0, 1\) pixels"),
        (lambda b, x: pooling.adaptive_avg_pool2d(b, x, (1, 1, 1)), "NCHW", "for 2 axes"),
    ],
)
def test_refusals(op, axes, reason):
    with pytest.raises(UnmappedError, match=reason):
        build(op, np.zeros((1, 3, 11, 8), np.float32), axes=axes)
