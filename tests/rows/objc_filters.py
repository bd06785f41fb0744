# SPDX-License-Identifier: Apache-2.0
"""Rows of kernels that have no Python class, for tests/objc/rows_test.mm: comparisons, samples, correlations, Gram
matrices, scaled and transposed images. Settings as in objc_places.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle.MPSCNNMath import COMPARISONS, compare
from oracle.MPSCNNUpsampling import bilinear
from oracle.MPSImageResampling import lanczos, positions
from oracle.MPSNNGridSample import grid_sample
from oracle.MPSNNReduce import local_correlation

from .finite_differences import gradients
from .objc_places import BINARY, GRADIENT, UNARY, Array, called, properties, random, within
from .row_file import Row

EDGES = ("zero", "clamp")


def comparisons() -> Iterator[Row]:
    x, y = random(2, 4, 5, 6), random(2, 4, 5, 6, seed=1)
    x[:, ::2], y[0] = np.round(4 * x[:, ::2]) / 4, np.round(4 * y[0]) / 4
    for kind, name in enumerate(COMPARISONS):
        for threshold in (0.0, 0.25):
            settings = properties(comparisonType=kind, threshold=threshold)
            images, after = {"x": x, "y": y}, {"empty:result": compare(name, x, y, threshold)}
            words = "image:x image:y empty:result"
            yield called(
                f"{name} {threshold}", "MPSNNCompare", "initWithDevice:", BINARY, words, images, after, **settings
            )
    # One pixel of the secondary image for all, and a place in a larger result.
    settings = properties(secondaryStrideInPixelsX=0, secondaryStrideInPixelsY=0, comparisonType=4)
    settings |= properties(clipRect="1,2,0,4,3,2", destinationFeatureChannelOffset=8)
    value = compare("greater", x[:, :3, :4], y[:, :1, :1])
    after = {"empty:result": within((2, 6, 7, 16), (0, 2, 1, 8), value)}
    words = "image:x image:y empty:result"
    yield called("a pixel", "MPSNNCompare", "initWithDevice:", BINARY, words, {"x": x, "y": y}, after, **settings)
    halves = {"x": x.astype(np.float16), "y": y.astype(np.float16)}
    after = {"empty:result": compare("equal", x, y)}
    half = {"result.dtype": "float16"}
    yield called("halves", "MPSNNCompare", "initWithDevice:", BINARY, words, halves, after, **half)


def gram(alpha: float, x: Array) -> Array:
    return alpha * np.einsum("nyxf,nyxc->nfc", x, x)[:, None]


def gram_matrices() -> Iterator[Row]:
    kernel, init = "MPSNNGramMatrixCalculation", "initWithDevice:alpha: 0.25"
    for shape in ((1, 5, 4, 6), (2, 9, 7, 3), (1, 1, 1, 5), (1, 56, 56, 64)):
        x = random(*shape)
        after = {"empty:result": gram(0.25, x.astype(np.float64))}
        yield called(f"{shape}", kernel, init, UNARY, "image:x empty:result", {"x": x}, after)
    x = random(3, 5, 4, 12)
    part = properties(offset="0,0,1", sourceFeatureChannelOffset=4, sourceFeatureChannelMaxCount=5)
    part |= properties(destinationFeatureChannelOffset=4, clipRect="0,0,0,5,1,1")
    value = within((1, 1, 5, 12), (0, 0, 0, 4), gram(0.25, x[1:2, ..., 4:9].astype(np.float64)))
    yield called(
        "channels of an image", kernel, init, UNARY, "image:x empty:result", {"x": x}, {"empty:result": value}, **part
    )
    for shape in ((1, 3, 4, 5), (1, 14, 14, 33)):
        x, e = random(*shape), random(1, 1, shape[3], shape[3], seed=2)
        value = gradients(lambda v: gram(0.5, v), [x.astype("f8")], e.astype("f8"), by_image=False, step=0.5)[0]
        layer = {"layer.class": kernel, "layer.init": "initWithDevice:alpha:", "layer.arguments": "device 0.5"}
        words = "image:e image:x state:x,y empty:result"
        images, after = {"x": x, "e": e, "y": e}, {"empty:result": value}
        name, own = f"gradient {shape}, alpha of the state", "initWithDevice: "
        yield called(name, f"{kernel}Gradient", own, GRADIENT, words, images, after, **layer)
        name, own = f"gradient {shape}, own alpha", "initWithDevice:alpha: 0.5"
        yield called(name, f"{kernel}Gradient", own, BINARY, "image:e image:x empty:result", images, after)


def grid_samples() -> Iterator[Row]:
    x = random(2, 6, 7, 5)
    grid = np.random.default_rng(8).uniform(-2, 8, (2, 4, 9, 2)).astype(np.float32)
    at = grid.astype(np.float64)
    words = "image:x image:grid empty:result"
    for edge, mode in enumerate(EDGES):
        for uses in (True, False):
            value = grid_sample(x.astype(np.float64), at[..., 1], at[..., 0], mode, not uses)
            settings = properties(primaryEdgeMode=edge, useGridValueAsInputCoordinate=int(uses))
            arrays, after = {"x": x, "grid": grid}, {"empty:result": value}
            yield called(
                f"{mode} {uses}", "MPSNNGridSample", "initWithDevice:", BINARY, words, arrays, after, **settings
            )
    moved = grid_sample(x.astype(np.float64), at[:, 1:3, 2:6, 1] - 1, at[:, 1:3, 2:6, 0] + 2, "zero")
    settings = properties(primaryOffset="2,-1,0", secondaryOffset="2,1,0", clipRect="3,2,0,4,2,2")
    after = {"empty:result": within((2, 5, 8, 5), (0, 2, 3, 0), moved)}
    yield called(
        "moved", "MPSNNGridSample", "initWithDevice:", BINARY, words, {"x": x, "grid": grid}, after, **settings
    )


def correlations() -> Iterator[Row]:
    a, b = random(2, 5, 6, 7), random(2, 5, 6, 7, seed=3)
    init = "initWithDevice:windowInX:windowInY:strideInX:strideInY: "
    words = "image:a image:b empty:result"
    for numbers, edge in (((0, 0, 1, 1), 0), ((2, 1, 1, 1), 0), ((1, 2, 2, 3), 1), ((3, 3, 1, 1), 0)):
        wide, high, right, down = numbers
        value = local_correlation(a.astype("f8"), b.astype("f8"), (high, wide), (down, right), EDGES[edge])
        made = init + " ".join(map(str, numbers))
        settings = properties(secondaryEdgeMode=edge)
        arrays, after = {"a": a, "b": b}, {"empty:result": value}
        yield called(f"{numbers} {edge}", "MPSNNLocalCorrelation", made, BINARY, words, arrays, after, **settings)


def scaled(name: str, kernel: str, x: Any, value: Array, transform: Any = None, **settings: Any) -> Row:
    images: dict[str, Any] = {"x": x}
    if transform is not None:
        images["transform"] = np.array(transform, np.float64)
        settings["before.1"] = "kernel setScaleTransform: transform"
    words, after = "image:x empty:result", {"empty:result": value}
    return called(name, kernel, "initWithDevice:", UNARY, words, images, after, **settings)


def resized(kernel: str, x: Array, rows: Array, columns: Array, steps: tuple[float, float], edge: str) -> Array:
    if kernel == "MPSImageLanczosScale":
        return lanczos(x, rows, columns, *steps, edge)
    return bilinear(x, rows, columns, edge)


SIZES = (((1, 5, 6, 4), (13, 11)), ((2, 23, 31, 3), (7, 9)), ((1, 9, 8, 1), (9, 8)), ((1, 60, 7, 2), (5, 20)))


def scales() -> Iterator[Row]:
    """Enlarged, reduced, with a transform, in a part of the result."""
    for kernel in ("MPSImageLanczosScale", "MPSImageBilinearScale"):
        for shape, size in SIZES:
            x = random(*shape).astype(np.float64)
            factors = (size[0] / shape[1], size[1] / shape[2])
            rows, columns = (positions(count, factor) for count, factor in zip(size, factors, strict=True))
            steps = (1 / factors[0], 1 / factors[1])
            for edge, mode in enumerate(EDGES):
                value = resized(kernel, x, rows, columns, steps, mode)
                yield scaled(f"{shape} {size} {mode}", kernel, random(*shape), value, **properties(edgeMode=edge))
            value = resized(kernel, x, rows, columns, steps, "clamp")
            yield scaled(f"{shape} {size}, clamped by default", kernel, random(*shape), value)
            part = properties(clipRect=f"1,2,0,5,3,{shape[0]}")
            inside = within((shape[0], *size, shape[3]), (0, 2, 1, 0), value[:, 2:5, 1:6])
            yield scaled(f"{shape} {size}, a part", kernel, random(*shape), inside, **part)
        x = random(1, 9, 8, 4).astype(np.float64)
        transform = (1.5, 0.75, -2.25, 1.5)
        rows, columns = positions(4, transform[1], transform[3]), positions(6, transform[0], transform[2])
        value = resized(kernel, x, rows, columns, (1 / 0.75, 1 / 1.5), "clamp")
        placed = within((1, 6, 9, 4), (0, 1, 2, 0), value)
        yield scaled("a transform", kernel, random(1, 9, 8, 4), placed, transform, **properties(clipRect="2,1,0,6,4,1"))


def transposes() -> Iterator[Row]:
    for shape in ((1, 4, 7, 1), (2, 5, 3, 6), (1, 1, 9, 4), (1, 8, 1, 3)):
        x = random(*shape)
        after = {"empty:result": x.transpose(0, 2, 1, 3).astype(np.float64)}
        yield called(f"{shape}", "MPSImageTranspose", "initWithDevice:", UNARY, "image:x empty:result", {"x": x}, after)
    x = random(2, 4, 7, 5)
    for edge, mode in enumerate(("constant", "edge")):
        seen = np.pad(x.astype(np.float64), ((0, 0), (0, 3), (1, 2), (0, 0)), mode=mode)  # type: ignore[call-overload]
        value = seen[1:, 1:7, 0:9].transpose(0, 2, 1, 3)
        settings = properties(offset="-1,1,1", clipRect="1,0,0,6,9,1", edgeMode=edge)
        after = {"empty:result": within((1, 10, 8, 5), (0, 0, 1, 0), value)}
        words = "image:x empty:result"
        yield called(
            f"moved, {mode}", "MPSImageTranspose", "initWithDevice:", UNARY, words, {"x": x}, after, **settings
        )


def rows() -> Iterator[Row]:
    for part in (comparisons, gram_matrices, grid_samples, correlations, scales, transposes):
        yield from part()
