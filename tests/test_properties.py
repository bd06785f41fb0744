# SPDX-License-Identifier: Apache-2.0
"""Arbitrary shapes: convolutions of any geometry against PyTorch in float64, engines against each other."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import HealthCheck, given, settings

import mpscnn
from cases import viewed
from conftest import Guarded
from oracle import MPSCNNMath, compare
from oracle.MPSCNNConvolution import tap

# Derandomized: the same examples in every run. No deadline: a busy machine is not a failure.
BOUNDED = settings(
    max_examples=120,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    """A convolution whose result has at least one pixel."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, "depth-wise"]))
    if groups == "depth-wise":
        channels = outputs = groups = draw(st.integers(2, 9))
    elif groups == 1:
        channels, outputs = draw(pairs(1, 9))
    else:
        channels, outputs = (groups * 4 * n for n in draw(pairs(1, 2)))
    kernel, stride, dilation = draw(pairs(1, 5)), draw(pairs(1, 4)), draw(pairs(1, 3))
    padding = draw(st.tuples(pairs(0, 4), pairs(0, 4)))
    dilated = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    least = [max(1, extent - sum(sides)) for extent, sides in zip(dilated, padding, strict=True)]
    source = tuple(draw(st.integers(low, low + 9)) for low in least)
    return {
        "x": (draw(st.integers(1, 3)), *source, channels),
        "weight": (outputs, channels // groups, *kernel),
        "stride": stride,
        "dilation": dilation,
        "padding": padding,
        "groups": groups,
        "edge_mode": draw(st.sampled_from(["zero", "clamp"])),
        "dtype": draw(st.sampled_from(["float32", "float16"])),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@st.composite
def transposes(draw: st.DrawFn) -> dict[str, Any]:
    """A transposed convolution whose result has at least one pixel."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, outputs = draw(pairs(1, 7)) if groups == 1 else (groups * 4 * n for n in draw(pairs(1, 2)))
    kernel, stride, source = draw(pairs(1, 5)), draw(pairs(1, 4)), draw(pairs(1, 7))
    extra = tuple(draw(st.integers(0, s - 1)) for s in stride)
    whole = [(n - 1) * s + k + e for n, s, k, e in zip(source, stride, kernel, extra, strict=True)]
    sides = []
    for size in whole:
        before = draw(st.integers(0, min(4, size - 1)))
        sides.append((before, draw(st.integers(0, min(4, size - 1 - before)))))
    return {
        "x": (draw(st.integers(1, 3)), *source, channels),
        "weight": (channels, outputs // groups, *kernel),
        "stride": stride,
        "padding": tuple(sides),
        "output_padding": extra,
        "groups": groups,
        "dtype": draw(st.sampled_from(["float32", "float16"])),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def arrays(row: dict[str, Any], outputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(row["seed"])
    weight = rng.normal(size=row["weight"]) / np.sqrt(np.prod(row["weight"]) / outputs)
    x, bias = rng.normal(size=row["x"]), rng.normal(size=outputs)
    return x.astype(row["dtype"]), weight.astype(np.float32), bias.astype(np.float32)


def check(kernel: mpscnn.Kernel, x: np.ndarray, value: torch.Tensor, magnitude: torch.Tensor, terms: int) -> None:
    """`value` and `magnitude` are NCHW."""
    right, size = (tensor.numpy().transpose(0, 2, 3, 1) for tensor in (value, magnitude))
    bound = compare.sum_bound(size, terms, sums=4.0) + compare.store_bound(right, str(x.dtype), store=1.0)
    assert kernel.result_shape(x.shape) == right.shape
    out = Guarded(right.shape, str(x.dtype))
    kernel(x, out=out.array)
    out.check()
    compare.assert_close(out.array.astype(np.float64), right, bound)


@BOUNDED
@given(convolutions())
def test_convolution_against_torch(row: dict[str, Any]) -> None:
    x, weight, bias = arrays(row, row["weight"][0])
    kernel = mpscnn.Convolution(
        weight,
        bias,
        stride=row["stride"],
        dilation=row["dilation"],
        padding=row["padding"],
        groups=row["groups"],
        edge_mode=row["edge_mode"],
    )
    (top, bottom), (left, right) = row["padding"]
    mode = "replicate" if row["edge_mode"] == "clamp" else "constant"

    def theirs(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> torch.Tensor:
        source = torch.from_numpy(x.astype(np.float64).transpose(0, 3, 1, 2))
        source = F.pad(source, (left, right, top, bottom), mode=mode)
        options = {name: row[name] for name in ("stride", "dilation", "groups")}
        return F.conv2d(source, torch.from_numpy(weight).double(), torch.from_numpy(bias).double(), **options)

    check(kernel, x, theirs(x, weight, bias), theirs(np.abs(x), np.abs(weight), np.abs(bias)), weight[0].size)


@BOUNDED
@given(transposes())
def test_transpose_against_torch(row: dict[str, Any]) -> None:
    outputs = row["weight"][1] * row["groups"]
    x, weight, bias = arrays(row, outputs)
    options = {name: row[name] for name in ("stride", "padding", "output_padding", "groups")}
    kernel = mpscnn.ConvolutionTranspose(weight, bias, **options)
    (top, bottom), (left, right) = row["padding"]
    below, behind = row["output_padding"]

    def theirs(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> torch.Tensor:
        source = torch.from_numpy(x.astype(np.float64).transpose(0, 3, 1, 2).copy())
        kernel = torch.from_numpy(weight).double()
        whole = F.conv_transpose2d(source, kernel, stride=row["stride"], groups=row["groups"])
        whole = F.pad(whole, (-left, behind - right, -top, below - bottom))
        return whole + torch.from_numpy(bias).double()[:, None, None]

    terms = weight.shape[0] // row["groups"] * weight[0, 0].size
    check(kernel, x, theirs(x, weight, bias), theirs(np.abs(x), np.abs(weight), np.abs(bias)), terms)


@BOUNDED
@given(convolutions(), pairs(-9, 9), pairs(1, 6), pairs(0, 3), st.integers(0, 2))
def test_clip_and_offset(
    row: dict[str, Any], offset: tuple[int, int], size: tuple[int, int], origin: tuple[int, int], channel: int
) -> None:
    """Any part of a destination from any position of the source; nothing else is written."""
    from oracle.MPSCNNConvolution import convolution

    if row["weight"][0] % 4:
        channel = 0
    x, weight, bias = arrays(row, row["weight"][0])
    images = x.shape[0]
    kernel = mpscnn.Convolution(
        weight,
        bias,
        stride=row["stride"],
        dilation=row["dilation"],
        groups=row["groups"],
        edge_mode=row["edge_mode"],
        padding=row["padding"],
        offset=offset,
        clip_rect=((*origin, 0), (*size, images)),
        destination_feature_channel_offset=4 * channel,
    )
    window = {
        "size": size,
        "offset": offset,
        "stride": row["stride"],
        "dilation": row["dilation"],
        "groups": row["groups"],
        "edge": row["edge_mode"],
    }
    ohwi = weight.astype(np.float64).transpose(0, 2, 3, 1)
    right = convolution(x.astype(np.float64), ohwi, bias.astype(np.float64), **window)
    magnitude = convolution(np.abs(x).astype(np.float64), np.abs(ohwi), np.abs(bias).astype(np.float64), **window)
    bound = compare.sum_bound(magnitude, weight[0].size, 4.0) + compare.store_bound(right, row["dtype"], 1.0)

    extents = (images + 1, origin[0] + size[0] + 1, origin[1] + size[1] + 2, 4 * channel + right.shape[-1] + 4)
    region = (
        slice(0, images),
        slice(origin[0], origin[0] + size[0]),
        slice(origin[1], origin[1] + size[1]),
        slice(4 * channel, 4 * channel + right.shape[-1]),
    )
    out = Guarded(extents, row["dtype"])
    kernel(x, out=out.array)
    out.check(region)
    compare.assert_close(out.array[region].astype(np.float64), right, bound)


@st.composite
def operands(draw: st.DrawFn) -> dict[str, Any]:
    """Two sources whose extents broadcast, possibly within larger arrays, and their positions."""
    whole = [draw(st.integers(1, high)) for high in (3, 9, 9, 19)]
    one = st.tuples(*(st.sampled_from([extent, extent, 1]) for extent in whole))
    places = st.one_of(st.none(), pairs(-11, 11))
    edges = st.sampled_from(["zero", "clamp"])
    return {
        "shapes": (draw(one), draw(one)),
        "offsets": (draw(places), draw(places)),
        "edges": (draw(edges), draw(edges)),
        "views": (draw(st.sampled_from(["dense", "nchw", "channels"])), draw(st.sampled_from(["dense", "steps"]))),
        "dtypes": (
            draw(st.sampled_from(["float32", "float16", "uint8"])),
            draw(st.sampled_from(["float32", "uint16"])),
        ),
        "operation": draw(st.sampled_from(["Add", "Subtract", "Multiply"])),
        "scales": draw(st.sampled_from([(1.0, 1.0), (-0.5, 2.0)])),
        "limits": draw(st.sampled_from([(None, None), (-0.25, None), (-0.5, 0.5)])),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@BOUNDED
@given(operands())
def test_arithmetic_against_numpy(row: dict[str, Any]) -> None:
    """NumPy broadcasts like strides of 0; offsets crop rows and columns of the source."""
    rng = np.random.default_rng(row["seed"])
    sources = []
    for shape, dtype, view in zip(row["shapes"], row["dtypes"], row["views"], strict=True):
        kind = np.dtype(dtype)
        full = rng.integers(0, np.iinfo(kind).max, shape, kind, endpoint=True) if kind.kind == "u" else None
        sources.append(viewed(rng.normal(size=shape).astype(kind) if full is None else full, view))
    extents = np.broadcast_shapes(*row["shapes"])
    seen = []
    for x, offset, edge in zip(sources, row["offsets"], row["edges"], strict=True):
        places = []
        for axis in (1, 2):
            start = 0 if offset is None else offset[axis - 1]
            repeats = x.shape[axis] == 1 and extents[axis] > 1
            places.append(start + (np.zeros(extents[axis], int) if repeats else np.arange(extents[axis])))
        seen.append(tap(compare.as_numbers(x), *places, edge))
    kernel = getattr(mpscnn, row["operation"])(
        primary_scale=row["scales"][0],
        secondary_scale=row["scales"][1],
        minimum_value=row["limits"][0],
        maximum_value=row["limits"][1],
        primary_offset=row["offsets"][0],
        secondary_offset=row["offsets"][1],
        primary_edge_mode=row["edges"][0],
        secondary_edge_mode=row["edges"][1],
    )
    right = MPSCNNMath.arithmetic(row["operation"], *seen, row["scales"], 0.0, *row["limits"])
    size = MPSCNNMath.magnitude(row["operation"], *seen, row["scales"], 0.0)
    assert kernel.result_shape(*row["shapes"]) == right.shape == extents
    out = Guarded(right.shape, "float32", "channels" if row["seed"] % 2 else "dense")
    kernel(*sources, out=out.array)
    out.check()
    bound = 8 * compare.U * size + compare.store_bound(right, "float32", 1.0)
    compare.assert_close(out.array.astype(np.float64), right, bound)


@BOUNDED
@given(st.one_of(convolutions(), transposes()), st.sampled_from(["pixels", "same", "valid"]))
def test_engines_agree_on_shapes(null_device: mpscnn.Device, row: dict[str, Any], policy: str) -> None:
    """The null engine checks and computes shapes like the CPU engine: the same result or the same error."""
    is_transpose = "output_padding" in row
    outputs = row["weight"][1] * row["groups"] if is_transpose else row["weight"][0]
    x, weight, bias = arrays(row, outputs)
    options = {name: row[name] for name in ("stride", "groups", "output_padding", "dilation") if name in row}
    padding = row["padding"] if policy == "pixels" else policy
    answers = []
    for device in (None, null_device):
        kind = mpscnn.ConvolutionTranspose if is_transpose else mpscnn.Convolution
        kernel = kind(weight, bias, padding=padding, **options, device=device)
        try:
            shape = kernel.result_shape(x.shape)
            result = kernel(x)
            assert result.shape == shape
            assert result.dtype == x.dtype
            answers.append(str(shape))
        except ValueError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]
