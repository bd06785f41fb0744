# SPDX-License-Identifier: Apache-2.0
"""Resizing, padding and blocks of pixels of importers against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ops_support import build, check, is_fixed, run
from torch.nn import functional

from mpscnn.importing.builder import UnmappedError
from mpscnn.importing.ops import resize

A = (2, 3, 6, 4)
OTHERS = ((1, 3, 9, 5), (2, 3, 1, 7), (1, 3, 4, 4))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear"])
@pytest.mark.parametrize("factor", [2.0, 3.0, 4.0, 5.0, (2.0, 3.0), (1.0, 2.0), (8.0, 1.0)])
def test_whole_factors_take_any_size(mode, factor):
    def op(b, x):
        return resize.interpolate(b, x, scale_factor=factor, mode=mode)

    check(op, lambda x: functional.interpolate(x, scale_factor=factor, mode=mode), A, others=OTHERS, fixed=False)


@pytest.mark.parametrize("factor", [2.0, 3.0, (2.0, 5.0)])
def test_aligned_corners_by_whole_factors(factor):
    check(
        lambda b, x: resize.interpolate(b, x, scale_factor=factor, mode="bilinear", align_corners=True),
        lambda x: functional.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=True),
        A,
        others=OTHERS,
        fixed=False,
    )


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("factor", [0.5, 1 / 3, 0.25, (0.5, 1.0)])
def test_whole_divisors_take_any_size(mode, factor):
    def op(b, x):
        return resize.interpolate(b, x, scale_factor=factor, mode=mode)

    # PyTorch computes positions from the given scale, as ours are.
    check(
        op,
        lambda x: functional.interpolate(x, scale_factor=factor, mode=mode),
        (2, 3, 12, 12),
        others=((1, 3, 13, 12), (2, 3, 25, 15)),
        fixed=False,
    )


@pytest.mark.parametrize("size", [(12, 8), (7, 5), (3, 2), (11, 4), (6, 9), (1, 1), (13, 1), (6, 4)])
@pytest.mark.parametrize(
    ("mode", "align"), [("nearest", None), ("nearest-exact", None), ("bilinear", False), ("bilinear", True)]
)
def test_sizes(size, mode, align):
    check(
        lambda b, x: resize.interpolate(b, x, size, mode=mode, align_corners=align),
        lambda x: functional.interpolate(x, size, mode=mode, align_corners=align),
        A,
        fixed=True,
    )


@pytest.mark.parametrize("factor", [1.5, 0.75, 2.3, (1.7, 0.6)])
@pytest.mark.parametrize(("mode", "align"), [("nearest", None), ("bilinear", False), ("bilinear", True)])
@pytest.mark.parametrize("recompute", [None, True])
def test_broken_factors(factor, mode, align, recompute):
    check(
        lambda b, x: resize.interpolate(b, x, None, factor, mode, align, recompute),
        lambda x: functional.interpolate(x, None, factor, mode, align, recompute),
        A,
        fixed=True,
    )


def test_sequences():
    for mode in ("nearest", "linear"):
        check(
            lambda b, x, m=mode: resize.interpolate(b, x, scale_factor=2, mode=m),
            lambda x, m=mode: functional.interpolate(x, scale_factor=2, mode=m),
            (2, 3, 7),
            axes="NCW",
            others=((1, 3, 4),),
        )


def test_larger_factors():
    for factor in (8, 16):
        check(
            lambda b, x, f=factor: resize.interpolate(b, x, scale_factor=f, mode="bilinear"),
            lambda x, f=factor: functional.interpolate(x, scale_factor=f, mode="bilinear"),
            A,
            others=OTHERS,
        )


@pytest.mark.parametrize("factor", [2.0, 3.0, 4.0, 5.0])
def test_infinity_stays_infinity(factor):
    """At clamped positions PyTorch multiplies the second pixel by zero, so the edges differ."""
    x = np.ones((1, 1, 7, 7), np.float32)
    x[0, 0, 3, 3] = np.inf
    graph, _ = build(lambda b, t: resize.interpolate(b, t, scale_factor=factor, mode="bilinear"), x)
    wanted = functional.interpolate(torch.from_numpy(x), scale_factor=factor, mode="bilinear").numpy()
    result = run(graph, x)
    assert np.isinf(result).any()
    known = ~np.isnan(wanted)
    np.testing.assert_allclose(result[known], wanted[known], rtol=1e-6)
    assert not np.isnan(result).any()


def positions(i, scale, source, result, coordinates):
    """ONNX's coordinates written differently: one pixel at a time, with Python's numbers."""
    if coordinates == "align_corners":
        return 0.0 if result == 1 else i * (source - 1) / (result - 1)
    if coordinates == "asymmetric":
        return i / scale
    if coordinates == "pytorch_half_pixel" and result == 1:
        return 0.0
    if coordinates == "half_pixel_symmetric":
        adjustment = result / (scale * source)
        return source / 2 * (1 - adjustment) + (i + 0.5) / scale - 0.5
    return (i + 0.5) / scale - 0.5


def sampled(x, scale, size, mode, coordinates, rounding):
    """Resize by one matrix for rows and one for columns."""
    matrices = []
    for axis in range(2):
        source, result = x.shape[2 + axis], size[axis]
        m = torch.zeros(result, source, dtype=torch.float64)
        for i in range(result):
            p = positions(i, scale[axis], source, result, coordinates)
            if mode == "nearest":
                floor = int(np.floor(p))
                k = {
                    "floor": floor,
                    "ceil": int(np.ceil(p)),
                    "round_prefer_floor": floor if p - floor <= 0.5 else floor + 1,
                    "round_prefer_ceil": floor if p - floor < 0.5 else floor + 1,
                }[rounding]
                m[i, min(max(k, 0), source - 1)] += 1
            else:
                p = min(max(p, 0), source - 1)
                k = min(int(p), source - 1)
                m[i, k] += 1 - (p - k)
                m[i, min(k + 1, source - 1)] += p - k
        matrices.append(m)
    return torch.einsum("nchw,ih,jw->ncij", x, *matrices)


@pytest.mark.parametrize("rounding", sorted(resize.ROUNDING))
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
)
@pytest.mark.parametrize("scale", [(2, 2), (3, 1), (0.5, 0.5), (1.5, 2), (0.6, 1.25)])
def test_nearest_of_onnx(rounding, coordinates, scale):
    def of(x):
        size = [int(np.floor(e * s)) for e, s in zip(x.shape[2:], scale, strict=True)]
        return sampled(x, scale, size, "nearest", coordinates, rounding)

    def op(b, x):
        return resize.resize(b, x, scale=scale, mode="nearest", coordinates=coordinates, rounding=rounding)

    graph = check(op, of, A)
    if not is_fixed(graph):
        check(op, of, A, others=((1, 3, 8, 5), (2, 3, 2, 7), (1, 3, 31, 4)))


@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
)
@pytest.mark.parametrize("scale", [(2, 2), (3, 1), (0.5, 0.5), (1.5, 2), (0.6, 1.25), (0.2, 2)])
def test_linear_of_onnx(coordinates, scale):
    def of(x):
        size = [int(np.floor(e * s)) for e, s in zip(x.shape[2:], scale, strict=True)]
        return sampled(x, scale, size, "linear", coordinates, "")

    def op(b, x):
        return resize.resize(b, x, scale=scale, mode="linear", coordinates=coordinates)

    graph = check(op, of, A)
    if not is_fixed(graph):
        check(op, of, A, others=((1, 3, 8, 5), (2, 3, 2, 7), (1, 3, 31, 4)))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
@pytest.mark.parametrize("pads", [(1, 2), (1, 2, 3, 0), (0, 0, 2, 1), (-1, 2, 1, -2), (-1, -1)])
def test_pad(mode, pads):
    value = 1.5 if mode == "constant" else None

    def reference(x):
        x = functional.pad(x, [min(p, 0) for p in pads])
        more = [max(p, 0) for p in pads]
        return functional.pad(x, more + [0] * (4 - len(more)), mode, value)

    check(
        lambda b, x: resize.pad(b, x, pads, mode, value),
        reference,
        A,
        fixed=min(pads) < 0,
        others=() if min(pads) < 0 else ((1, 3, 9, 5), (3, 3, 5, 8)),
    )


def test_pad_of_channels():
    for pads in ((0, 0, 0, 0, 1, 2), (1, 0, 0, 2, 5, 0), (0, 0, 0, 0, -1, 0), (0, 0, 0, 0, -1, 2)):
        check(
            lambda b, x, p=pads: resize.pad(b, x, p, value=-2),
            lambda x, p=pads: functional.pad(x, p, value=-2),
            A,
            fixed=False,
        )
    check(
        lambda b, x: resize.pad(b, x, (1, 2, 3, 4)),
        lambda x: functional.pad(x, (1, 2, 3, 4)),
        A,
        axes="NHWC",
        fixed=False,
    )
    check(lambda b, x: resize.pad(b, x, (1, 2)), lambda x: functional.pad(x, (1, 2)), (2, 5), axes="NC")


@pytest.mark.parametrize("r", [1, 2, 3])
def test_pixel_shuffle(r):
    check(
        lambda b, x: resize.pixel_shuffle(b, x, r),
        lambda x: functional.pixel_shuffle(x, r),
        (2, 2 * r * r, 5, 4),
        others=((1, 2 * r * r, 3, 7),),
        fixed=False,
    )
    check(
        lambda b, x: resize.pixel_unshuffle(b, x, r),
        lambda x: functional.pixel_unshuffle(x, r),
        (2, 3, 6, 12),
        others=((1, 3, 12, 6),),
        fixed=False,
    )


def test_position_major():
    def to_space(x):
        n, c, h, w = x.shape
        x = x.reshape(n, 2, 2, c // 4, h, w)
        return x.permute(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)

    def to_depth(x):
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // 2, 2, w // 2, 2)
        return x.permute(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)

    check(lambda b, x: resize.pixel_shuffle(b, x, 2, position_major=True), to_space, (2, 12, 5, 4))
    check(lambda b, x: resize.pixel_unshuffle(b, x, 2, position_major=True), to_depth, A)


def test_values_are_kept_exactly():
    """Without arithmetic, values are copied bit by bit."""
    x = np.random.default_rng(5).standard_normal((1, 3, 6, 4)).astype(np.float32)
    for op in (
        lambda b, t: resize.interpolate(b, t, scale_factor=0.5),
        lambda b, t: resize.interpolate(b, t, (3, 2)),
        lambda b, t: resize.interpolate(b, t, (7, 9)),
        lambda b, t: resize.pixel_unshuffle(b, t, 2),
    ):
        graph, _ = build(op, x)
        assert set(run(graph, x).ravel()) <= set(x.ravel())


@pytest.mark.parametrize(
    ("op", "axes", "reason"),
    [
        (lambda b, x: resize.interpolate(b, x, (9, 9), mode="area"), "NCHW", "area"),
        (lambda b, x: resize.interpolate(b, x), "NCHW", "size None and scale_factor None"),
        (
            lambda b, x: resize.interpolate(b, x, (3, 3), mode="bilinear", align_corners=True, antialias=True),
            "NCHW",
            "antialias",
        ),
        (lambda b, x: resize.interpolate(b, x, scale_factor=0.1), "NCHW", "of 6 pixels by 0.1"),
        (lambda b, x: resize.interpolate(b, x, scale_factor=-1), "NCHW", "by -1"),
        (lambda b, x: resize.interpolate(b, x, (0, 3)), "NCHW", "to 0 pixels"),
        (lambda b, x: resize.interpolate(b, x, (3, 3, 3)), "NCHW", "of 2 axes"),
        (lambda b, x: resize.interpolate(b, x, scale_factor=2), "NHWC", "axes NHWC"),
        (lambda b, x: resize.pad(b, x, (1, 9), "circular"), "NCHW", "circular"),
        (lambda b, x: resize.pad(b, x, (4, 0), "reflect"), "NCHW", "reflection of 4 pixels of 4"),
        (lambda b, x: resize.pad(b, x, (-2, -2)), "NCHW", "leaves nothing"),
        (lambda b, x: resize.pad(b, x, (0, 0, 0, 0, 0, 0, 1, 0)), "NCHW", "the batch"),
        (lambda b, x: resize.pad(b, x, (1,)), "NCHW", r"padding \(1,\)"),
        (lambda b, x: resize.pixel_shuffle(b, x, 2), "NCHW", "of 3 channels"),
        (lambda b, x: resize.pixel_unshuffle(b, x, 4), "NCHW", "of 6 x 4 pixels"),
    ],
)
def test_refusals(op, axes, reason):
    with pytest.raises(UnmappedError, match=reason):
        build(op, np.zeros(A, np.float32), axes=axes)


def test_antialias_of_an_enlargement_changes_nothing():
    check(
        lambda b, x: resize.interpolate(b, x, (12, 8), mode="bilinear", antialias=True),
        lambda x: functional.interpolate(x, (12, 8), mode="bilinear", antialias=True),
        A,
    )
