# SPDX-License-Identifier: Apache-2.0
"""Rows of convolutions: forward, transposed, binary, and their gradients (engine/problem/conv.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from oracle import MPSCNNBinaryConvolution as binary  # noqa: N813
from oracle.MPSCNNConvolution import convolution, stuffed, sub_pixel
from oracle.MPSCNNNeuron import TYPES
from oracle.MPSCNNPooling import maximum

from .engine import (
    EDGES,
    GATED,
    NUMBERS,
    Alias,
    Array,
    Extents,
    Pair,
    Random,
    Stored,
    Window,
    activate,
    activated,
    chance,
    floats,
    image,
    pick,
    random_neuron,
    region,
    row,
    values_of,
    whole,
)
from .finite_differences import gradient
from .row_file import Row

# Without logarithm, whose argument must be positive.
NEURONS = [name for name, _ in TYPES if name != "logarithm"]
RELATIVE = 2e-6  # relative to the sum of the terms' magnitudes


def correlate(x: Array, weights: Array, bias: Array | None, window: Window, groups: int, size: Pair) -> Array:
    return convolution(
        x,
        weights,
        bias,
        size=size,
        offset=window.offset(),
        stride=window.stride,
        dilation=window.dilation,
        groups=groups,
        edge=window.edge,
    )


def transposed(x: Array, weights: Array, bias: Array | None, window: Window, groups: int, size: Pair) -> Array:
    """The window's stride is the up-sampling factor."""
    plain = Window(window.kernel, (1, 1), window.dilation, window.start)
    return correlate(stuffed(x, window.stride), weights, bias, plain, groups, size)


def mixes_pixels(window: Window, groups: int) -> bool:
    """Return whether Winograd's convolution takes the window. It adds pixels of a tile before it multiplies them, so
    its errors are those of the largest sums around.
    """
    return (window.kernel, window.stride, window.dilation, groups) == ((3, 3), (1, 1), (1, 1), 1)


def largest(sizes: Array) -> Array:
    """Return the max of each image and channel for all of its pixels, or of an output and input for all taps."""
    return np.broadcast_to(sizes.max(axis=(1, 2), keepdims=True), sizes.shape)


def with_error(
    function: Any, x: Array, weights: Array, bias: Array | None, window: Window, groups: int, size: Pair
) -> tuple[Array, Array]:
    """Return the sums and those of their terms' magnitudes."""
    sizes = function(np.abs(x), np.abs(weights), None if bias is None else np.abs(bias), window, groups, size)
    if function is correlate and mixes_pixels(window, groups):
        sizes = largest(sizes)
    return function(x, weights, bias, window, groups, size), sizes


def random_weights(rng: Random, out: int, kernel: Pair, inputs: int, groups: int, bias: bool) -> dict[str, Any]:
    return {
        "weights": floats(rng, (out, *kernel, inputs), -1, 1),
        "weights.groups": groups,
        "weights.bias": floats(rng, out, -1, 1) if bias else None,
    }


def arrays(fields: dict[str, Any]) -> tuple[Array, Array | None]:
    bias = fields["weights.bias"]
    return fields["weights"].astype(np.float64), None if bias is None else bias.astype(np.float64)


def without_slope(name: str) -> str | dict[str, Any]:
    """Return ReLU and ReLUN with a slope of 0, as most networks have them."""
    return {"type": NUMBERS[name], "a": 0.0, "b": 1.5, "c": 0.0} if name in ("relu", "relun") else name


def forward_row(
    rng: Random,
    kind: str,
    name: str,
    src: Stored,
    weights: dict[str, Any],
    window: Window,
    size: Pair,
    neuron: str | dict[str, Any],
    *,
    r: int = 1,
    formats: str = "",
    only: str = "",
    reduced: bool = False,
    addend: Stored | None = None,
    in_place: bool = False,
) -> Row:
    """`only`: the format of the result, instead of float32 and `formats`."""
    w, bias = arrays(weights)
    function = transposed if kind == "Transpose" else correlate
    f = random_neuron(rng, neuron, len(w)) if isinstance(neuron, str) else neuron
    inner = (-(-size[0] // r), -(-size[1] // r))
    sums, sizes = with_error(function, values_of(src), w, bias, window, weights["weights.groups"], inner)
    result, error = activated(None if neuron == "none" else f, sums, sizes * (2.0**-7 if reduced else RELATIVE))
    if r > 1:
        result, error = (sub_pixel(part, r)[:, : size[0], : size[1]] for part in (result, error))
    fields = {"src": src, **weights, "window": window.fields(), "neuron": f, "reduced_precision": reduced}
    if r > 1:
        fields["subpixel"] = r
    if addend is not None:
        result = result + values_of(addend)
        error = error + np.abs(result) * 2e-7
        kind_after = pick(rng, ("none", "relu", "relun", "sigmoid", "softsign"))
        if kind_after != "none":  # otherwise the addend alone tests the field
            fields["after"] = random_neuron(rng, kind_after, len(w))
            result, error = activated(fields["after"], result, error)
        fields["addend"] = Alias("dst", addend) if in_place else addend
    if addend is not None and in_place:
        only = addend.dtype.name
    if not only:
        return row(kind, name, fields, {"dst": (result, error)}, formats)
    return row(kind, name, fields, {"dst": (result, error)}, dst=only)


def random_start(rng: Random, extent: int, reach: int) -> int:
    which = whole(rng, 0, 7)
    if which == 0:
        return whole(rng, 1, extent)  # crops the source, possibly all of it
    if which == 1:
        return -reach - whole(rng, 0, 5)  # some windows entirely out of bounds
    if which == 2:
        return extent + whole(rng, 0, 3)  # no source pixel is read
    return 0 if which == 3 else -whole(rng, 0, reach - 1)


def random_channels(rng: Random) -> tuple[int, int, int]:
    """Return groups, inputs and outputs of each group."""
    inputs, outputs = pick(rng, (1, 2, 3, 4, 5, 8, 13, 16, 17, 32)), whole(rng, 1, 20)
    which = whole(rng, 0, 4)
    if which == 0:
        return whole(rng, 1, 4), inputs, outputs
    if which == 1:
        return pick(rng, (2, 3, 7, 8, 16, 20, 33)), 1, 1
    if which == 2:
        return whole(rng, 2, 9), 1, whole(rng, 1, 3)
    return 1, inputs, outputs


def convolutions() -> Iterator[Row]:
    for seed in range(320):
        rng = np.random.default_rng(1000 + seed)
        h, w = whole(rng, 1, 17), whole(rng, 1, 17)
        kernel = (whole(rng, 1, 5), whole(rng, 1, 5))
        dilation = (pick(rng, (1, 1, 1, 2, 3)), pick(rng, (1, 1, 1, 2, 3)))
        window = Window(
            kernel,
            (whole(rng, 1, 3), whole(rng, 1, 3)),
            dilation,
            tuple(random_start(rng, e, (k - 1) * d + 1) for e, k, d in zip((h, w), kernel, dilation, strict=True)),  # type: ignore[arg-type]
            "clamp" if chance(rng, 3) else "zero",
        )
        groups, inputs, outputs = random_channels(rng)
        r = whole(rng, 2, 3) if chance(rng, 6) else 1
        outputs *= r * r
        n = pick(rng, (1, 1, 2, 3))
        size = (whole(rng, 1, 9), whole(rng, 1, 9))
        src = image(rng, (n, h, w, groups * inputs), formats="float32 float32 float32 float16 unorm8 unorm16")
        weights = random_weights(rng, groups * outputs, kernel, inputs, groups, chance(rng, 2))
        addend = None
        if r == 1 and chance(rng, 4):
            addend = image(rng, (n, *size, groups * outputs), formats="float32 float32 float16")
        yield forward_row(
            rng,
            "Conv",
            f"random {seed}",
            src,
            weights,
            window,
            size,
            pick(rng, NEURONS),
            r=r,
            formats=pick(rng, ("", "", "float16", "unorm8", "unorm16")),
            reduced=seed % 16 == 0,
            addend=addend,
            in_place=chance(rng, 2),
        )


# n, h, w, channels, result h, w, channels, kernel h, w, stride, start, groups, why
LAYERS = [
    (1, 31, 33, 64, 31, 33, 64, 3, 3, 1, -1, 1, "several threads"),
    (2, 30, 30, 48, 15, 15, 96, 1, 1, 2, 0, 1, "1x1 with stride"),
    (1, 41, 40, 3, 20, 20, 32, 7, 7, 2, -3, 1, "first layer"),
    (1, 48, 48, 3, 48, 48, 64, 5, 5, 1, -2, 1, "super-resolution, first layer"),
    (1, 48, 48, 32, 48, 48, 12, 3, 3, 1, -1, 1, "12 channels of result"),
    (1, 7, 5, 64, 1, 1, 200, 7, 5, 1, 0, 1, "fully connected, height is not width"),
    (5, 7, 7, 32, 1, 1, 77, 7, 7, 1, 0, 1, "fully connected, batch"),
    (3, 1, 1, 515, 1, 1, 33, 1, 1, 1, 0, 1, "fully connected, one pixel"),
    (5, 2, 2, 64, 2, 2, 80, 3, 3, 1, -1, 1, "few pixels"),
    (9, 2, 3, 130, 2, 2, 128, 3, 3, 1, -1, 2, "few pixels, groups"),
    (20, 1, 1, 66, 1, 1, 65, 3, 3, 1, -1, 1, "few pixels: one"),
    (7, 2, 3, 70, 2, 3, 72, 5, 5, 1, -2, 1, "few pixels, 5 x 5"),
    (8200, 2, 1, 64, 2, 1, 64, 3, 3, 1, -1, 1, "few pixels, more images than fit at once"),
    (1, 7, 5, 8, 1, 1, 9, 6, 5, 1, 0, 1, "window one row short of the source"),
    (1, 4, 4, 512, 4, 4, 512, 3, 3, 1, -1, 1, "512 channels"),
    (1, 5, 4, 1024, 5, 4, 256, 1, 1, 1, 0, 1, "1024 channels"),
    (1, 28, 28, 96, 28, 28, 96, 3, 3, 1, -1, 96, "depth-wise, several threads"),
    (1, 28, 28, 24, 28, 28, 48, 3, 3, 1, -1, 24, "depth-wise with multiplier 2"),
    (1, 14, 14, 128, 14, 14, 128, 3, 3, 1, -1, 32, "four channels per group"),
    (1, 14, 14, 60, 14, 14, 60, 3, 3, 1, -1, 3, "twenty channels per group"),
    (1, 3, 3, 16, 40, 40, 8, 3, 3, 1, -20, 1, "source far inside of a large destination"),
    (1, 64, 64, 16, 2, 2, 8, 3, 3, 40, 5, 1, "stride much larger than the window"),
    (1, 1, 200, 16, 1, 198, 16, 1, 3, 1, 0, 1, "one row"),
    (2, 9, 9, 1, 9, 9, 1, 3, 3, 1, -1, 1, "one channel each"),
    (1, 30, 29, 64, 28, 27, 96, 3, 3, 1, 0, 1, "many tiles, a panel and a half"),
    (2, 13, 18, 176, 13, 18, 72, 3, 3, 1, -1, 1, "tiles of both images, shared by the threads"),
    (1, 14, 14, 512, 14, 14, 512, 3, 3, 1, -1, 1, "512 channels"),
    (3, 23, 6, 40, 21, 9, 24, 3, 3, 1, 1, 1, "tiles far outside of the source"),
    (2, 19, 21, 40, 19, 21, 3, 9, 7, 1, -4, 1, "three outputs"),
    (1, 33, 40, 16, 17, 20, 4, 5, 5, 2, -2, 1, "four outputs, strides"),
    (2, 14, 30, 72, 14, 30, 2, 1, 1, 1, 0, 1, "two outputs of a pixel"),
    (1, 31, 29, 100, 35, 33, 1, 3, 3, 1, -3, 1, "one output, windows outside of the source"),
]


def layers() -> Iterator[Row]:
    """Yield rows for shapes that have their own implementation."""
    for index, (n, h, w, c, to_h, to_w, out, kh, kw, stride, start, groups, why) in enumerate(LAYERS):
        for neuron in ("none", "prelu") if n < 1000 else ("softplus",):
            rng = np.random.default_rng(50000 + index)
            window = Window((kh, kw), (stride, stride), (1, 1), (start, start))
            weights = random_weights(rng, out, (kh, kw), c // groups, groups, index % 3 != 0)
            src = floats(rng, (n, h, w, c))
            yield forward_row(rng, "Conv", f"{why}, {neuron}", src, weights, window, (to_h, to_w), neuron)


def sums_of_tiles() -> Iterator[Row]:
    """Yield rows of Winograd's convolution with an addend: all neurons that it includes, and one that it does not."""
    for index, neuron in enumerate(("none", "relu", "relun", "swish", "hard_swish", "sigmoid")):
        rng = np.random.default_rng(55000 + index)
        weights = random_weights(rng, 40, (3, 3), 24, 1, index % 2 == 0)
        src, addend = floats(rng, (2, 9, 14, 24)), floats(rng, (2, 9, 14, 40))
        window = Window((3, 3), (1, 1), (1, 1), (-1, -1))
        for in_place in (False, True):
            name = f"tiles and an addend{', in place' if in_place else ''}, {neuron}"
            f = gated(neuron) if neuron.endswith("swish") else without_slope(neuron)
            yield forward_row(rng, "Conv", name, src, weights, window, (9, 14), f, addend=addend, in_place=in_place)


# n, h, w, channels, kernel, stride, neuron
IN_VECTORS = [
    (1, 14, 14, 576, 3, 1, "relun"),
    (1, 28, 28, 40, 5, 1, "swish"),
    (2, 7, 7, 72, 5, 1, "hard_swish"),
    (1, 56, 57, 24, 3, 2, "swish"),
    (1, 15, 23, 120, 5, 2, "relu"),
    (3, 5, 4, 16, 3, 1, "hard_swish"),
    (1, 112, 112, 32, 3, 1, "none"),
]


def in_vectors() -> Iterator[Row]:
    """Yield rows of depth-wise windows as networks have them, with results side by side in registers; and of products
    whose activation may be a pass of its own."""
    for index, (n, h, w, c, k, s, neuron) in enumerate(IN_VECTORS):
        rng = np.random.default_rng(360000 + index)
        weights = random_weights(rng, c, (k, k), 1, c, index % 2 == 0)
        window = Window((k, k), (s, s), start=(-(k // 2),) * 2)
        f = gated(neuron) if neuron.endswith("swish") else without_slope(neuron)
        size = ((h - 1) // s + 1, (w - 1) // s + 1)
        yield forward_row(rng, "Conv", f"in vectors {index}", floats(rng, (n, h, w, c)), weights, window, size, f)
        if neuron.endswith("swish"):
            weights = random_weights(rng, 48, (1, 1), c, 1, True)
            src = floats(rng, (n, h, w, c), -30, 30)
            yield forward_row(rng, "Conv", f"gated {index}", src, weights, Window(), (h, w), f, formats="float16")


def gated(name: str) -> dict[str, Any]:
    return {"type": GATED + ("swish", "hard_swish").index(name), "a": 0.25, "b": 0.375, "c": 0.0}


def depthwise() -> Iterator[Row]:
    """Yield rows, and rows of their gradients, whose channels and columns are computed several at a time."""
    for neuron in ("none", "relun"):
        rng = np.random.default_rng(209000)
        src = image(rng, (3, 19, 20, 60), formats="float16")
        weights = random_weights(rng, 60, (3, 3), 1, 60, True)
        window = Window((3, 3), start=(-1, -1))
        name = f"depth-wise, many threads, {neuron}"
        yield forward_row(rng, "Conv", name, src, weights, window, (19, 20), without_slope(neuron), only="float16")
    for seed in range(64):
        rng = np.random.default_rng(210000 + seed)
        k, s = (3, 5)[seed % 2], (1, 2)[seed // 2 % 2]
        c, n = 4 * whole(rng, 1, 12), whole(rng, 1, 3)
        h, w = whole(rng, 1, 19), whole(rng, 1, 19)
        size = (whole(rng, 1, 14), whole(rng, 1, 14))
        dtype = pick(rng, ("float32", "float16"))
        start = (whole(rng, -k - 2, 2), whole(rng, -k - 2, 2))
        window = Window((k, k), (s, s), (1, 1), start, EDGES[seed // 4 % 2])
        src, e = image(rng, (n, h, w, c), formats=dtype), image(rng, (n, *size, c), formats=dtype)
        weights = random_weights(rng, c, (k, k), 1, c, chance(rng, 2))
        formats = "float16" if dtype == "float16" else ""
        neuron = pick(rng, NEURONS)
        if seed % 3 == 0:
            neuron = without_slope(pick(rng, ("none", "relu", "relun")))
        yield forward_row(rng, "Conv", f"depth-wise {seed}", src, weights, window, size, neuron, formats=formats)
        is_part = chance(rng, 3)
        yield gradient_row(
            rng,
            f"depth-wise {seed}",
            False,
            src,
            weights,
            window,
            e,
            first=(whole(rng, -3, 3), whole(rng, -3, 3)) if is_part else (0, 0),
            size=(whole(rng, 1, h + 2), whole(rng, 1, w + 2)) if is_part else None,
            accumulates=chance(rng, 3),
            formats=formats,
        )


# n, h, w, channels, channels of the result, kernel, stride, dilation, start, edge, neuron, why
WINDOWS = [
    (2, 20, 21, 32, 40, (3, 3), (1, 1), (1, 1), (-1, -1), "zero", "relun", "a chunk per tap"),
    (1, 30, 29, 24, 64, (3, 3), (2, 2), (1, 1), (0, 0), "zero", "none", "taps of less than a chunk, stride 2"),
    (3, 12, 15, 8, 72, (5, 3), (1, 2), (1, 1), (-2, -1), "zero", "relu", "four taps in a chunk"),
    (2, 14, 13, 48, 16, (3, 3), (1, 1), (2, 3), (-2, -3), "zero", "relun", "dilation"),
    (1, 9, 10, 64, 24, (3, 5), (1, 1), (1, 1), (-3, 2), "zero", "none", "windows outside of the source"),
    (1, 12, 9, 40, 32, (4, 2), (1, 1), (1, 1), (-1, -1), "clamp", "relun", "clamped edges"),
    (1, 16, 18, 16, 32, (3, 3), (1, 1), (1, 1), (-1, -1), "zero", "elu", "another activation"),
    (4, 60, 56, 16, 96, (3, 3), (1, 1), (1, 1), (-1, -1), "zero", "relun", "tiles of 32 x 64"),
]

# n, h, w, channels, channels of the result, stride, start, neuron, why
PRODUCTS = [
    (2, 33, 32, 32, 16, 1, 0, "relun", "one chunk of terms, many rows"),
    (1, 18, 17, 24, 144, 1, 0, "relun", "less than a chunk, outputs beyond the last group"),
    (1, 29, 31, 16, 96, 1, 0, "none", "half a chunk"),
    (3, 19, 20, 40, 64, 1, 0, "relun", "less than two chunks, two groups"),
    (2, 26, 27, 64, 24, 1, 0, "relu", "two chunks, tiles of one group"),
    (1, 36, 31, 96, 40, 1, 0, "relun", "tiles of 32 x 64"),
    (1, 20, 21, 144, 24, 1, 0, "none", "more than four chunks"),
    (1, 5, 7, 96, 1000, 1, 0, "none", "1000 outputs"),
    (1, 7, 7, 960, 24, 1, 0, "relun", "many chunks, few tiles"),
    (1, 3, 3, 960, 160, 1, 0, "none", "many chunks, less than a tile of rows"),
    (1, 12, 14, 200, 40, 1, 0, "sigmoid", "another activation"),
    (1, 12, 14, 200, 40, 1, 0, "prelu", "slopes per channel"),
    (2, 21, 23, 128, 72, 2, 1, "relun", "stride and start"),
    (1, 40, 41, 256, 32, 3, 0, "elu", "stride of 3, another activation"),
]


def exact_weights(rng: Random, out: int, kernel: Pair, inputs: int, bias: bool) -> dict[str, Any]:
    """Return weights and bias that float16 has: large convolutions round theirs to it."""
    weights = random_weights(rng, out, kernel, inputs, 1, bias)
    return {
        key: np.round(value * 64) / 64 if isinstance(value, np.ndarray) else value for key, value in weights.items()
    }


def products() -> Iterator[Row]:
    """Yield rows of float16 with many products of tensor cores: 1 x 1, and 3 channels with strides."""
    for index, (n, h, w, c, out, stride, start, neuron, why) in enumerate(PRODUCTS):
        for has_addend in (False, True):
            rng = np.random.default_rng(330000 + index)
            size = (-(-(h - start) // stride), -(-(w - start) // stride))
            window = Window((1, 1), (stride, stride), (1, 1), (start, start))
            src = image(rng, (n, h, w, c), formats="float16")
            weights = exact_weights(rng, out, (1, 1), c, index % 3 != 0)
            addend = image(rng, (n, *size, out), formats="float16") if has_addend else None
            name = f"{why}, {'sum' if has_addend else 'no sum'}"
            result = forward_row(
                rng,
                "Conv",
                name,
                src,
                weights,
                window,
                size,
                without_slope(neuron),
                only="float16",
                addend=addend,
                in_place=index % 2 == 0,
            )
            result.settings["gap_step"] = "8"  # aligned pixels
            yield result
    for k, n, h, w, out, start, stride in (
        (3, 2, 57, 70, 32, -1, 2),
        (3, 1, 64, 66, 40, 0, 2),
        (3, 1, 96, 66, 32, 1, 2),
        (3, 1, 200, 48, 64, -2, 4),
        (7, 1, 41, 40, 64, -3, 2),
        (7, 2, 38, 26, 72, -2, 2),
        (7, 1, 30, 62, 32, -3, 2),
    ):
        for has_addend in (False, True):
            rng = np.random.default_rng(340000 + 100 * k + h)
            size = tuple((e - 2 * start - k) // stride + 1 for e in (h, w))
            src = image(rng, (n, h, w, 3), formats="float16")
            if start >= 0:  # beside the windows
                src[:, :, :start] = src[:, :, start + (size[1] - 1) * stride + k :] = np.inf
            weights = exact_weights(rng, out, (k, k), 3, has_addend)
            addend = image(rng, (n, *size, out), formats="float16") if has_addend else None
            window = Window((k, k), (stride, stride), start=(start, start))
            name = f"first layer {k} x {k}, {out} channels, {'sum' if has_addend else 'no sum'}"
            neuron = without_slope(("relun", "none", "relu")[h % 3])
            yield forward_row(rng, "Conv", name, src, weights, window, size, neuron, only="float16", addend=addend)


# n, h, w, channels of the result, start, start of the pooling, edge of it, activation
POOLED = [
    (1, 61, 66, 64, -3, -1, "clamp", "relu"),
    (2, 40, 70, 40, -3, 0, "zero", "relun"),
    (1, 37, 43, 24, -2, -1, "zero", "relu"),  # an odd number of values in a row
    (3, 30, 22, 64, 0, -2, "zero", "relu"),
    (133, 14, 14, 24, -3, -1, "zero", "relu"),  # tiles of 4 rows, more than a GPU has multiprocessors
]


def pooled() -> Iterator[Row]:
    """Yield rows of first layers with the max pooling behind them."""
    for index, (n, h, w, out, start, pool_start, edge, neuron) in enumerate(POOLED):
        for dtype in ("float16", "float32"):
            rng = np.random.default_rng(357000 + index)
            inner = tuple((e - 2 * start - 7) // 2 + 1 for e in (h, w))
            size = tuple((e - 2 * pool_start - 3) // 2 + 1 for e in inner)
            src = image(rng, (n, h, w, 3), formats=dtype)
            is_rounded = index == 1  # by products of reduced precision
            if dtype == "float32" and not is_rounded:
                src = np.round(src * 64) / np.float32(64)  # tf32 and bfloat16 have these values
            if start == 0:
                src[:, :, (inner[1] - 1) * 2 + 7 :] = np.inf  # beside the windows
            weights = exact_weights(rng, out, (7, 7), 3, index % 2 == 0)
            window, pool = (
                Window((7, 7), (2, 2), start=(start, start)),
                Window((3, 3), (2, 2), (1, 1), (pool_start,) * 2, edge),
            )
            sums, sizes = with_error(correlate, values_of(src), *arrays(weights), window, 1, inner)
            f = without_slope(neuron)
            assert isinstance(f, dict)
            values, error = activated(f, sums, sizes * (2.0**-7 if is_rounded else RELATIVE))
            at = {"size": size, "offset": pool.offset(), "kernel": pool.kernel, "stride": pool.stride}
            at |= {"dilation": pool.dilation, "edge": edge}
            fields = {"src": src, **weights, "window": window.fields(), "neuron": f, "pool": pool.fields()}
            fields |= {"h": inner[0], "w": inner[1], "reduced_precision": is_rounded or dtype == "float32"}
            expected = (maximum(values, **at), maximum(error, **at))
            yield row("ConvPool", f"first layer {index}, {dtype}", fields, {"dst": expected}, dst=dtype)


def photographs() -> Iterator[Row]:
    """Yield rows whose sources have three bytes per pixel, as the inputs of networks."""
    for index, (n, h, w, k) in enumerate([(2, 10, 8, 3), (1, 12, 11, 5)]):
        rng = np.random.default_rng(355000 + index)
        src = image(rng, (n, h, w, 3), formats="unorm8")
        weights = exact_weights(rng, 16, (k, k), 3, True)
        window = Window((k, k), (1, 1), start=(-(k // 2), -(k // 2)))
        name = f"three bytes, {k} x {k}"
        # The library reads the source as float16.
        yield forward_row(rng, "Conv", name, src, weights, window, (h, w), "none", only="float16", reduced=True)


# n, h, w, channels, outputs, kernel, start, dilation, neuron
OF_BFLOATS = [
    (2, 9, 7, 32, 32, (3, 3), -1, 1, 1, "relu"),
    (1, 5, 6, 40, 50, (3, 3), -1, 1, 1, "none"),
    (3, 4, 4, 70, 33, (5, 5), -2, 1, 1, "relun"),
    (1, 11, 12, 64, 96, (1, 1), 0, 1, 1, "none"),
    (2, 6, 5, 33, 40, (2, 3), 0, 1, 1, "relu"),
    (1, 13, 10, 96, 64, (3, 3), -2, 2, 1, "none"),
    (5, 7, 7, 64, 40, (3, 3), -1, 1, 1, "relu"),
    (2, 3, 3, 34, 36, (3, 1), -4, 1, 1, "none"),
    (1, 4, 40, 32, 65, (1, 5), 2, 1, 1, "relu"),
    (2, 9, 7, 40, 48, (3, 3), -1, 1, 2, "relu"),
    (1, 8, 12, 64, 40, (1, 1), 0, 1, 2, "none"),
    (2, 10, 9, 33, 32, (5, 3), -2, 2, 3, "relun"),
    (3, 5, 9, 100, 70, (1, 1), 0, 1, 1, "relu"),
]


def of_bfloats() -> Iterator[Row]:
    """Yield rows whose products may be of bfloat16, without rounding."""
    for index, (n, h, w, c, out, kernel, start, dilation, stride, neuron) in enumerate(OF_BFLOATS):
        for adds in (False, True):
            rng = np.random.default_rng(395000 + index)
            weights = exact_weights(rng, out, kernel, c, index % 2 == 0)
            window = Window(kernel, (stride, stride), (dilation, dilation), (start, start))
            size = -(-h // stride), -(-w // stride)
            src = np.round(floats(rng, (n, h, w, c)) * 64) / np.float32(64)
            addend = np.round(floats(rng, (n, *size, out)) * 64) / np.float32(64) if adds else None
            yield forward_row(
                rng,
                "Conv",
                f"of bfloats {index}{', a sum' if adds else ''}",
                src,
                weights,
                window,
                size,
                without_slope(neuron),
                reduced=True,
                addend=addend,
                in_place=adds and index % 2 == 0,
            )


def windows() -> Iterator[Row]:
    """Yield rows of float16 with windows of several taps, for tensor cores."""
    for index, (n, h, w, c, out, kernel, stride, dilation, start, edge, neuron, why) in enumerate(WINDOWS):
        for has_addend in (False, True):
            rng = np.random.default_rng(350000 + index)
            size = tuple(
                (e - 2 * s - (k - 1) * d - 1) // t + 1 if s < 0 else (e - s - (k - 1) * d - 1) // t + 1
                for e, k, s, d, t in zip((h, w), kernel, start, dilation, stride, strict=True)
            )
            src = image(rng, (n, h, w, c), formats="float16")
            weights = exact_weights(rng, out, kernel, c, index % 3 != 0)
            addend = image(rng, (n, *size, out), formats="float16") if has_addend else None
            window = Window(kernel, stride, dilation, start, edge)
            name = f"windows: {why}, {'sum' if has_addend else 'no sum'}"
            result = forward_row(
                rng, "Conv", name, src, weights, window, size, without_slope(neuron), only="float16", addend=addend
            )
            result.settings["gap_step"] = "8"  # aligned pixels
            yield result


# n, h, w, channels, channels of the result, kernel, start, neuron, why
FEW_INPUTS = [
    (1, 70, 131, 1, 64, (5, 5), (-2, -2), "relu", "one channel, several tiles"),
    (2, 41, 66, 1, 40, (3, 7), (-1, -3), "none", "40 outputs"),
    (1, 40, 65, 2, 96, (3, 3), (0, 1), "relun", "two channels, 96 outputs, cropped"),
    (1, 44, 90, 3, 32, (9, 9), (0, 0), "none", "27 values in a row of the window"),
    (2, 21, 70, 3, 24, (5, 5), (-2, -4), "relu", "15 values"),
    (1, 37, 67, 4, 72, (11, 8), (-5, -3), "none", "the largest window"),
    (3, 30, 31, 4, 16, (2, 1), (-3, 2), "relun", "one column, windows outside"),
]


def few_inputs() -> Iterator[Row]:
    """Yield rows of float16 with few channels and without strides, for tensor cores."""
    for index, (n, h, w, c, out, kernel, start, neuron, why) in enumerate(FEW_INPUTS):
        for has_addend in (False, True):
            rng = np.random.default_rng(356000 + index)
            size = tuple(e - 2 * min(s, 0) - max(s, 0) - k + 1 for e, k, s in zip((h, w), kernel, start, strict=True))
            src = image(rng, (n, h, w, c), formats="float16")
            if start[1] >= 0:  # the columns beside the windows are infinite
                size = (size[0], size[1] - 2)
                src[:, :, : start[1]] = src[:, :, start[1] + size[1] + kernel[1] - 1 :] = np.inf
            weights = exact_weights(rng, out, kernel, c, index % 3 != 0)
            addend = image(rng, (n, *size, out), formats="float16") if has_addend else None
            name = f"few inputs: {why}, {'sum' if has_addend else 'no sum'}"
            window, f = Window(kernel, start=start), without_slope(neuron)
            yield forward_row(rng, "Conv", name, src, weights, window, size, f, only="float16", addend=addend)


# n, h, w, channels, channels of the result, kernel, start, edge, neuron, why
FEW_OUTPUTS = [
    (1, 72, 80, 32, 3, (9, 9), (-4, -4), "zero", "none", "27 products of a pixel"),
    (2, 40, 131, 64, 9, (3, 3), (-1, -1), "zero", "tanh", "two chunks, several tiles"),
    (1, 50, 66, 40, 1, (5, 3), (0, 2), "clamp", "relu", "a part of a chunk, clamped, cropped"),
    (1, 37, 63, 16, 8, (2, 4), (-1, -3), "clamp", "prelu", "slopes per channel"),
    (3, 31, 33, 24, 16, (4, 2), (-5, -1), "zero", "sigmoid", "32 products, rows outside"),
    (1, 21, 190, 72, 1, (1, 32), (0, -16), "zero", "none", "32 columns"),
]


def few_outputs() -> Iterator[Row]:
    """Yield rows of float16 with few outputs and without strides, for tensor cores."""
    for index, (n, h, w, c, out, kernel, start, edge, neuron, why) in enumerate(FEW_OUTPUTS):
        for has_addend in (False, True):
            rng = np.random.default_rng(357000 + index)
            size = tuple(e - 2 * min(s, 0) - max(s, 0) - k + 1 for e, k, s in zip((h, w), kernel, start, strict=True))
            src = image(rng, (n, h, w, c), formats="float16")
            weights = exact_weights(rng, out, kernel, c, index % 3 != 0)
            addend = image(rng, (n, *size, out), formats="float16") if has_addend else None
            name = f"few outputs: {why}, {'sum' if has_addend else 'no sum'}"
            window, f = Window(kernel, start=start, edge=edge), without_slope(neuron)
            result = forward_row(rng, "Conv", name, src, weights, window, size, f, only="float16", addend=addend)
            result.settings["gap_step"] = "8"  # aligned pixels
            yield result


# n, h, w (of the result), channels, factor, channels of the result, kernel, edge, neuron
SUB_PIXELS = [
    (1, 72, 90, 32, 3, 1, (3, 3), "zero", "none"),
    (2, 40, 48, 16, 2, 3, (5, 3), "clamp", "tanh"),
    (1, 60, 52, 40, 4, 3, (3, 3), "zero", "relu"),
    (1, 64, 130, 64, 2, 16, (1, 1), "zero", "none"),
]


def sub_pixels() -> Iterator[Row]:
    """Yield rows of float16 with squares of pixels as outputs, for tensor cores."""
    for index, (n, h, w, c, r, out, kernel, edge, neuron) in enumerate(SUB_PIXELS):
        rng = np.random.default_rng(365000 + index)
        src = image(rng, (n, h // r, w // r, c), formats="float16")
        weights = exact_weights(rng, r * r * out, kernel, c, index % 2 == 0)
        window = Window(kernel, start=(-(kernel[0] // 2), -(kernel[1] // 2)), edge=edge)
        name = f"sub-pixels, factor {r}, {out} channels"
        yield forward_row(rng, "Conv", name, src, weights, window, (h, w), without_slope(neuron), r=r, only="float16")


# Type, a and b of activations that cuDNN computes as part of a convolution.
FOLLOWING = [
    ("none", 0.0, 0.0),
    ("relu", 0.0, 0.0),
    ("relu", 0.25, 0.0),
    ("relun", 0.0, 1.5),
    ("sigmoid", 0.0, 0.0),
    ("tanh", 1.0, 1.0),
    ("elu", 0.75, 0.0),
    ("gelu", 0.0, 0.0),
]
# n, h, w, channels, channels of the result, kernel, stride, dilation, groups
FOLLOWED = [
    (2, 9, 8, 16, 24, (1, 1), (1, 1), (1, 1), 1),
    (1, 12, 7, 3, 16, (3, 2), (2, 1), (1, 1), 1),
    (3, 6, 9, 8, 8, (3, 5), (1, 2), (2, 1), 1),
    (1, 7, 7, 24, 16, (2, 3), (1, 1), (1, 1), 2),
    (2, 8, 11, 32, 8, (1, 1), (2, 3), (1, 1), 1),
    (1, 1, 37, 24, 16, (1, 1), (1, 1), (1, 1), 1),
]


def for_libraries(rows: list[Row]) -> list[Row]:
    """Return the rows for libraries, which read weights, bias and source in the format of the result: those of float32
    as they are, and all of them with the error of rounding a term's factors to float16.
    """
    single = [
        Row(row.name, {key: value for key, value in row.settings.items() if key != "formats"}, row.arrays)
        for row in rows
        if "float16" not in (value for key, value in row.settings.items() if key.startswith("format:"))
    ]
    factor = np.float32(2.0**-10 / RELATIVE)
    loosened = [
        Row(
            row.name,
            row.settings,
            {key: value * factor if key.startswith("tolerance:") else value for key, value in row.arrays.items()},
        )
        for row in rows
    ]
    return single + loosened


def followed() -> Iterator[Row]:
    """Yield rows with all orders of bias, activation, sum and activation, and of unequal paddings."""
    for shape, (n, h, w, c, out, kernel, stride, dilation, groups) in enumerate(FOLLOWED):
        rng = np.random.default_rng(360000 + shape)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        start = (-whole(rng, 0, reach[0] - 1), -whole(rng, 0, reach[1] - 1))
        window = Window(kernel, stride, dilation, start)
        rest = [e - s - r for e, s, r in zip((h, w), start, reach, strict=True)]
        size = (rest[0] // stride[0] + 1, rest[1] // stride[1] + 1)
        for index, (name, a, b) in enumerate(FOLLOWING):
            for is_after in (False, True) if groups == 1 else (False,):  # sums are only without groups
                src = image(rng, (n, h, w, c), formats="float16")
                weights = random_weights(rng, out, kernel, c // groups, groups, (shape + index // 3) % 3 != 0)
                for key in ("weights", "weights.bias"):  # values that float16 has
                    weights[key] = None if weights[key] is None else np.round(weights[key] * 64) / 64
                f = {"type": NUMBERS[name], "a": a, "b": b, "c": 0.0}
                values, sizes = with_error(correlate, values_of(src), *arrays(weights), window, groups, size)
                error = sizes * RELATIVE
                fields = {"src": src, **weights, "window": window.fields()}
                if not is_after:
                    fields["neuron"] = f
                    values, error = activated(f, values, error)
                if is_after or (groups == 1 and index % 2):
                    fields["addend"] = image(rng, values.shape, formats="float16")
                    values = values + values_of(fields["addend"])
                    error = error + np.abs(values) * 2e-7
                if is_after:
                    fields["after"] = f
                    values, error = activated(f, values, error)
                where = "after the sum" if is_after else "before it"
                for dtype in ("float32", "float16"):
                    if "addend" in fields:
                        fields["addend"] = fields["addend"].astype(dtype)
                    title = f"followed {shape}, {name} {a} {where}, {dtype}"
                    if is_after and name == "none":  # before a row with the same choice
                        in_place = fields | {"addend": Alias("dst", fields["addend"])}
                        yield row("Conv", f"{title}, in place", in_place, {"dst": (values, error)}, dst=dtype)
                    result = row("Conv", title, fields, {"dst": (values, error)}, dst=dtype)
                    result.settings["gap_step"] = "8"  # aligned pixels
                    yield result


def transposes() -> Iterator[Row]:
    for seed in range(150):
        rng = np.random.default_rng(90000 + seed)
        kernel = (whole(rng, 1, 5), whole(rng, 1, 5))
        stride = (whole(rng, 1, 4), whole(rng, 1, 4))
        dilation = (pick(rng, (1, 1, 1, 2)), pick(rng, (1, 1, 1, 2)))
        extents = (whole(rng, 1, 9), whole(rng, 1, 9))
        usual = not chance(rng, 3)  # as used by frameworks
        start, size = [], []
        for e, k, s, d in zip(extents, kernel, stride, dilation, strict=True):
            reach = (k - 1) * d + 1
            pad = whole(rng, 0, reach - 1)
            start.append(pad - reach + 1 if usual else whole(rng, -reach - 3, e * s + 2))
            full = (e - 1) * s + reach - 2 * pad + whole(rng, 0, s - 1)
            size.append(max(full, 1) if usual else whole(rng, 1, 24))
        groups, inputs, outputs = 1, pick(rng, (1, 3, 4, 8, 16, 19)), whole(rng, 1, 18)
        if chance(rng, 3):
            groups = whole(rng, 2, 5)
        if chance(rng, 6):
            groups, inputs, outputs = 16, 1, 1
        src = image(rng, (pick(rng, (1, 1, 2)), *extents, groups * inputs), formats="float32 float32 float16")
        weights = random_weights(rng, groups * outputs, kernel, inputs, groups, chance(rng, 2))
        window = Window(kernel, stride, dilation, (start[0], start[1]))
        formats = pick(rng, ("", "float16"))
        neuron = pick(rng, NEURONS)
        yield forward_row(
            rng, "Transpose", f"random {seed}", src, weights, window, (size[0], size[1]), neuron, formats=formats
        )


# Inputs, outputs, pixels, kernel, stride, padding: decoders whose kernels oneDNN processes in several parts.
DECODERS = [
    (512, 64, 8, 4, 2, 1),
    (512, 16, 4, 4, 2, 1),
    (1024, 512, 4, 4, 2, 1),
    (1024, 3, 8, 4, 2, 1),
    (256, 128, 12, 4, 2, 1),
    (256, 128, 16, 4, 2, 1),
    (256, 128, 32, 4, 2, 1),
    (384, 64, 32, 4, 2, 1),
    (384, 256, 12, 4, 2, 1),
    (2048, 256, 8, 4, 2, 1),
    (100, 1024, 1, 4, 1, 0),
    (512, 256, 14, 2, 2, 0),
    (512, 256, 8, 3, 2, 1),
    (512, 128, 8, 5, 2, 2),
    (1024, 256, 7, 6, 3, 1),
    (512, 128, 16, 8, 4, 2),
]


# n, h, w (of the source), channels, channels of the result, factor, neuron
SQUARES = [
    (2, 17, 19, 64, 32, 2, "none"),
    (1, 15, 14, 40, 72, 2, "relu"),
    (1, 30, 9, 96, 8, 3, "relun"),
    (3, 4, 3, 512, 40, 4, "none"),
    (1, 22, 21, 8, 128, 2, "relu"),
    (1, 24, 26, 24, 16, 5, "none"),
    (1, 12, 14, 128, 24, 2, "sigmoid"),
]


def squares() -> Iterator[Row]:
    """Yield rows of float16 whose windows neither overlap nor leave gaps, for tensor cores."""
    for index, (n, h, w, c, out, r, neuron) in enumerate(SQUARES):
        rng = np.random.default_rng(358000 + index)
        src = image(rng, (n, h, w, c), formats="float16")
        weights = exact_weights(rng, out, (r, r), c, index % 3 != 2)
        window = Window((r, r), (r, r), (1, 1), (1 - r, 1 - r))
        name = f"squares of {r} x {r}, {c} -> {out} channels"
        size, f = (h * r, w * r), without_slope(neuron)
        result = forward_row(rng, "Transpose", name, src, weights, window, size, f, only="float16")
        result.settings["gap_step"] = "8"  # aligned pixels
        yield result


# The same; by the CPU engine in parts of some rows, some images, or all.
PARTED_SQUARES = [
    (2, 37, 64, 16, 64, 2, "relu"),
    (7, 9, 30, 33, 128, 2, "none"),
    (1, 3, 520, 7, 512, 2, "sigmoid"),
    (3, 5, 6, 12, 20, 3, "prelu"),
    (1, 1, 1, 512, 40, 4, "none"),
]


def parted_squares() -> Iterator[Row]:
    """Yield rows whose windows neither overlap nor leave gaps, also with a part of the results."""
    for index, (n, h, w, c, out, r, neuron) in enumerate(PARTED_SQUARES):
        for format in ("float32", "float16"):
            rng = np.random.default_rng(359000 + index)
            src = image(rng, (n, h, w, c), formats=format)
            weights = exact_weights(rng, out, (r, r), c, index % 3 != 2)
            for start, size in (
                ((1 - r, 1 - r), (h * r, w * r)),
                ((2 - r, 1 - r), (h * r - 1, w * r)),  # cropped
                ((2 - r, 1 - r), (h * r, w * r)),  # the last row sees nothing
            ):
                window = Window((r, r), (r, r), (1, 1), start)
                name = f"squares of {r} x {r} in parts, {c} -> {out} channels, {size[0]} rows from {start[0]}, {format}"
                formats = format if format == "float16" else ""
                yield forward_row(rng, "Transpose", name, src, weights, window, size, neuron, formats=formats)


def decoders() -> Iterator[Row]:
    """Yield rows; with weights of 0, each result is the activated bias."""
    for inputs, outputs, pixels, kernel, stride, padding in DECODERS:
        size = (pixels - 1) * stride + kernel - 2 * padding
        bias = (np.arange(outputs) % 9 - 4).astype(np.float32)
        window = Window((kernel,) * 2, (stride,) * 2, (1, 1), (padding - kernel + 1,) * 2)
        for neuron in (
            {"type": 0},
            {"type": 2, "a": 2.0, "b": 1.0, "c": 0.0},
            {"type": 1, "a": 0.0, "b": 0.0, "c": 0.0},
        ):
            fields = {
                "src": np.ones((1, pixels, pixels, inputs), np.float32),
                "weights": Extents((outputs, kernel, kernel, inputs)),
                "weights.bias": bias,
                "window": window.fields(),
                "neuron": neuron,
            }
            result = activate({"a": 0.0, "b": 0.0, "c": 0.0} | neuron, bias.astype(np.float64))
            expected = np.broadcast_to(result, (1, size, size, outputs))
            name = f"{inputs} -> {outputs}, {pixels} pixels, kernel {kernel}, neuron {neuron['type']}"
            yield row("Transpose", name, fields, {"dst": expected})


# ------------------------------------------------------------------------------------------------------------ binary


BINARY_TYPES = ("binary_weights", "xnor", "logical_and")


def packed(bits: Stored) -> Stored:
    """Pack 32 channels into a word, the lowest bit first."""
    words = -(-bits.shape[-1] // 32)
    padded = np.zeros((*bits.shape[:-1], words * 32), np.uint8)
    padded[..., : bits.shape[-1]] = bits
    return np.packbits(padded, axis=-1, bitorder="little").view(np.int32)


def binaries() -> Iterator[Row]:
    for seed in range(90):
        rng = np.random.default_rng(120000 + seed)
        kind = BINARY_TYPES[seed % 3]
        inputs, outputs = pick(rng, (1, 3, 31, 32, 33, 64, 100)), pick(rng, (1, 5, 16, 17, 40))
        h, w, n = whole(rng, 1, 7), whole(rng, 1, 7), whole(rng, 1, 2)
        kernel = (whole(rng, 1, 3), whole(rng, 1, 3))
        window = Window(
            kernel,
            (whole(rng, 1, 2), whole(rng, 1, 2)),
            (whole(rng, 1, 2), whole(rng, 1, 2)),
            (whole(rng, -3, 2), whole(rng, -3, 2)),
            pick(rng, EDGES),
        )
        size = (whole(rng, 1, 6), whole(rng, 1, 6))
        bits = rng.integers(0, 2, (outputs, *kernel, inputs)).astype(np.uint8)
        uses_beta = chance(rng, 2)
        terms = {
            "scale": floats(rng, outputs) if chance(rng, 2) else None,
            "bias": floats(rng, outputs) if chance(rng, 2) else None,
            "input_scale": floats(rng, inputs) if chance(rng, 2) else None,
            "input_bias": floats(rng, inputs) if chance(rng, 2) else None,
        }
        src = image(rng, (n, h, w, inputs), formats="float32 float32 float16 unorm8")
        # The sign of u matters, so compute it in float32.
        u = values_of(src).astype(np.float32)
        if terms["input_bias"] is not None:
            u = u + terms["input_bias"]
        if terms["input_scale"] is not None:
            u = u * terms["input_scale"]
        seen = {"size": size, "offset": window.offset(), "stride": window.stride, "dilation": window.dilation}
        sums, beta = binary.convolution(u.astype(np.float64), bits, kind, edge=window.edge, **seen)  # type: ignore[arg-type]
        sizes, _ = binary.convolution(u.astype(np.float64), bits, kind, edge=window.edge, sizes=True, **seen)  # type: ignore[arg-type]
        scale = (1.0 if terms["scale"] is None else terms["scale"].astype(np.float64)) * (beta if uses_beta else 1.0)
        bias = 0.0 if terms["bias"] is None else terms["bias"].astype(np.float64)
        f = random_neuron(rng, pick(rng, ("none", "relu", "sigmoid", "tanh")), outputs)
        result, error = activated(f, sums * scale + bias, (sizes * np.abs(scale) + np.abs(bias)) * RELATIVE)
        fields = {
            "src": src,
            "weights": packed(bits),
            "weights.type": seed % 3,
            "weights.uses_beta": uses_beta,
            "weights.in_channels": inputs,
            **{f"weights.{key}": value for key, value in terms.items()},
            "window": window.fields(),
            "neuron": f,
        }
        yield row("BinaryConv", f"{kind} {seed}", fields, {"dst": (result, error)}, pick(rng, ("", "float16")))


# --------------------------------------------------------------------------------------------------------- gradients


def gradient_row(
    rng: Random,
    name: str,
    is_transpose: bool,
    src: Stored,
    weights: dict[str, Any],
    window: Window,
    diff_dst: Stored,
    *,
    first: Pair = (0, 0),
    size: Pair | None = None,
    wants: int = 3,
    accumulates: bool = False,
    formats: str = "",
    reduced: bool = False,
) -> Row:
    """`wants`: 1 for the source's gradient, 2 for those of weights and biases."""
    relative = 2.0**-7 if reduced else RELATIVE
    w, _ = arrays(weights)
    groups: int = weights["weights.groups"]
    x, e = values_of(src), values_of(diff_dst)
    n, h, width, channels = x.shape
    results, outputs = (e.shape[1], e.shape[2]), e.shape[3]
    inputs = channels // groups
    function = transposed if is_transpose else correlate
    fields: dict[str, Any] = {
        "diff_dst": diff_dst,
        "src": src if wants & 2 else Extents(src.shape),
        "first_h": first[0],
        "first_w": first[1],
        **weights,
        "window": window.fields(),
        "accumulates": accumulates,
        "reduced_precision": reduced,
    }
    expected: dict[str, Any] = {}
    if wants & 1:
        size = size or (h, width)
        # Without clamping, the gradient continues beyond the source: make that larger.
        margin = (0, 0)
        wide = window
        if window.edge == "zero":
            margin = tuple(max(0, -first[i], first[i] + size[i] - x.shape[1 + i]) for i in (0, 1))  # type: ignore[assignment]
            move = [margin[i] * (window.stride[i] if is_transpose else 1) for i in (0, 1)]
            start = (window.start[0] + move[0], window.start[1] + move[1])
            wide = Window(window.kernel, window.stride, window.dilation, start, window.edge)
        grown = np.zeros((n, h + 2 * margin[0], width + 2 * margin[1], groups, inputs))

        def by_source(batch: Array, filters: Array = w) -> Array:
            images = batch.reshape(-1, *grown.shape[1:3], channels)
            result = function(images, filters, None, wide, groups, results)
            return result.reshape(*batch.shape[:2], *results, groups, outputs // groups)

        split = e.reshape(n, *results, groups, outputs // groups)
        parts = gradient(by_source, grown, split, apart=(0, 3), linear=True)
        if window.edge == "clamp":  # taps of a window that read one pixel may cancel
            sizes, _ = gradient(partial(by_source, filters=np.abs(w)), grown, np.abs(split), apart=(0, 3), linear=True)
            parts = (parts[0], sizes)
        if not is_transpose and mixes_pixels(window, groups):
            parts = (parts[0], largest(parts[1].reshape(*grown.shape[:3], channels)))
        at = (first[0] + margin[0], first[1] + margin[1])
        value, error = (region(part.reshape(*grown.shape[:3], channels), at, size) for part in parts)
        expected["diff_src"] = (value, error * relative)
    if wants & 2:
        last = w.transpose(1, 2, 3, 0)  # outputs last, as in the result

        def by_weights(batch: Array) -> Array:
            count = len(batch)
            split = batch.reshape(count, *last.shape[:3], groups, outputs // groups)
            if (split == split[..., :1]).all():  # outputs with equal filters have equal results
                split = split[..., :1]
            filters = split.transpose(4, 0, 5, 1, 2, 3).reshape(-1, *last.shape[:3])
            result = function(x, filters, None, window, groups, results)
            parts = result.reshape(n, *results, groups, count, split.shape[-1]).transpose(4, 0, 1, 2, 3, 5)
            return np.broadcast_to(parts, (*parts.shape[:-1], outputs // groups)).reshape(count, n, *results, outputs)

        by_weight = [part.transpose(3, 0, 1, 2) for part in gradient(by_weights, last, e, apart=(3,), linear=True)]
        if not is_transpose and mixes_pixels(window, groups):
            by_weight[1] = largest(by_weight[1])
        by_bias = [e.sum((0, 1, 2)), np.abs(e).sum((0, 1, 2))]
        for key, (value, error) in (("diff_weights", by_weight), ("diff_bias", by_bias)):
            value, error = value.ravel(), error.ravel()
            if accumulates:
                fields[key] = floats(rng, value.size)
                value, error = value + fields[key], error + np.abs(fields[key])
            expected[key] = (value, error * relative)
    kind = "TransposeGradient" if is_transpose else "ConvGradient"
    return row(kind, name, fields, expected, formats)


def random_gradients() -> Iterator[Row]:
    for seed in range(170):
        rng = np.random.default_rng(150000 + seed)
        is_transpose = chance(rng, 3)
        kernel = (whole(rng, 1, 4), whole(rng, 1, 4))
        start = tuple(whole(rng, -7, 5) if chance(rng, 3) else -whole(rng, 0, k // 2) for k in kernel)
        if chance(rng, 40):
            start = (pick(rng, (-50, 50)), start[1])
        window = Window(
            kernel,
            (whole(rng, 1, 3), whole(rng, 1, 3)),
            (pick(rng, (1, 1, 2, 3)), pick(rng, (1, 1, 2, 3))),
            start,  # type: ignore[arg-type]
            "clamp" if not is_transpose and chance(rng, 3) else "zero",
        )
        groups, inputs, outputs = 1, whole(rng, 1, 9), whole(rng, 1, 9)
        if chance(rng, 3):
            groups, inputs, outputs = pick(rng, (2, 7, 16, 33, 40, 64)), 1, 2 if chance(rng, 6) else 1
        elif chance(rng, 3):
            groups, inputs, outputs = whole(rng, 2, 3), pick(rng, (1, 3, 4, 8, 16)), pick(rng, (2, 4, 16))
        elif chance(rng, 4):
            inputs, outputs = pick(rng, (16, 20, 32)), pick(rng, (16, 30, 48))
        n = whole(rng, 1, 3)
        src = image(rng, (n, whole(rng, 1, 7), whole(rng, 1, 7), groups * inputs), formats="float32 float16")
        diff_dst = image(rng, (n, whole(rng, 1, 6), whole(rng, 1, 6), groups * outputs), formats="float32 float16")
        is_part = chance(rng, 3)
        weights = random_weights(rng, groups * outputs, kernel, inputs, groups, True)
        yield gradient_row(
            rng,
            f"random {seed}",
            is_transpose,
            src,
            weights,
            window,
            diff_dst,
            first=(whole(rng, -3, 3), whole(rng, -3, 3)) if is_part else (0, 0),
            size=(whole(rng, 1, src.shape[1] + 2), whole(rng, 1, src.shape[2] + 2)) if is_part else None,
            wants=whole(rng, 1, 3),
            accumulates=chance(rng, 3),
            formats=pick(rng, ("", "float16")),
            reduced=seed % 4 == 0,
        )


# n, h, w, channels, channels of the result, kernel, stride, groups, edge, why
GRADIENTS = [
    (2, 9, 8, 16, 10, 3, 1, 1, "zero", "a layer"),
    (2, 9, 8, 3, 16, 7, 2, 1, "zero", "first layer"),
    (2, 7, 6, 24, 20, 3, 1, 1, "clamp", "clamped"),
    (4, 5, 5, 32, 64, 1, 2, 1, "zero", "1x1 with stride"),
    (2, 8, 7, 12, 20, 5, 1, 2, "zero", "groups"),
    (2, 10, 9, 40, 40, 3, 2, 40, "zero", "depth-wise with stride"),
    (2, 10, 9, 40, 40, 3, 1, 40, "clamp", "depth-wise, clamped"),
    (9, 2, 2, 64, 80, 3, 1, 1, "zero", "few pixels"),
    (12, 3, 1, 67, 64, 3, 2, 1, "zero", "few pixels with stride"),
    (9, 2, 2, 64, 64, 5, 1, 2, "clamp", "few pixels, groups, clamped"),
    (20, 1, 1, 64, 65, 3, 1, 1, "zero", "few pixels: one"),
    (2, 1, 2, 512, 8, 3, 1, 1, "zero", "512 channels"),
    (2, 1, 2, 16, 600, 3, 1, 1, "zero", "600 channels of result"),
    (2, 9, 14, 24, 72, 3, 1, 1, "zero", "many tiles"),
]


def gradients() -> Iterator[Row]:
    """Yield rows for shapes that have their own implementation."""
    for index, (n, h, w, c, out, kernel, stride, groups, edge, why) in enumerate(GRADIENTS):
        rng = np.random.default_rng(160000 + index)
        window = Window((kernel,) * 2, (stride,) * 2, (1, 1), (-(kernel // 2),) * 2, edge)
        src = floats(rng, (n, h, w, c))
        diff_dst = floats(rng, (n, -(-h // stride), -(-w // stride), out))
        weights = random_weights(rng, out, (kernel,) * 2, c // groups, groups, False)
        yield gradient_row(rng, why, False, src, weights, window, diff_dst)
    for h, w, c, out in ((4, 3, 20, 30), (7, 7, 8, 5), (1, 1, 130, 33)):
        rng = np.random.default_rng(170000 + h)
        weights = random_weights(rng, out, (h, w), c, 1, False)
        src, diff_dst = floats(rng, (5, h, w, c)), floats(rng, (5, 1, 1, out))
        yield gradient_row(rng, f"fully connected {h} x {w}", False, src, weights, Window((h, w)), diff_dst)


# n, rows and columns of the result, groups, inputs and outputs of a group, kernel, stride
REDUCED = [
    (2, 3, 2, 1, 96, 64, 1, 1),
    (16, 1, 1, 1, 130, 72, 1, 1),  # fully connected
    (2, 2, 3, 1, 64, 96, 1, 2),
    (2, 3, 3, 1, 32, 48, 3, 1),
    (2, 2, 2, 1, 32, 64, 3, 2),
    (2, 34, 31, 1, 16, 32, 3, 1),  # more pixels than patches are made of
    (2, 4, 5, 1, 3, 64, 7, 2),  # first layer
    (2, 3, 3, 2, 32, 32, 3, 1),
    (2, 6, 5, 40, 1, 1, 3, 1),  # depth-wise
]


def reduced_gradients() -> Iterator[Row]:
    """Yield rows of gradients that may be products of bfloat16."""
    for index, (n, h, w, groups, inputs, outputs, kernel, stride) in enumerate(REDUCED):
        rng = np.random.default_rng(390000 + index)
        window = Window((kernel,) * 2, (stride,) * 2, start=(-(kernel // 2),) * 2)
        src = floats(rng, (n, h * stride, w * stride, groups * inputs))
        diff_dst = floats(rng, (n, h, w, groups * outputs))
        weights = random_weights(rng, groups * outputs, (kernel,) * 2, inputs, groups, False)
        for is_part in (False, True):
            yield gradient_row(
                rng,
                f"reduced {index}{', a part' if is_part else ''}",
                False,
                src,
                weights,
                window,
                diff_dst,
                first=(1, -1) if is_part else (0, 0),
                size=(h * stride, w * stride + 1) if is_part else None,
                wants=2 if h > 30 else 3,
                accumulates=is_part,
                reduced=True,
            )


def gradients_of_many_rows() -> Iterator[Row]:
    """Yield rows whose sums are made of many partial ones, with and without sums of earlier calls."""
    for seed in range(10):
        rng = np.random.default_rng(310000 + seed)
        k = whole(rng, 1, 3)
        groups, inputs, outputs = ((1, 1, 2), (1, 2, 1), (4, 1, 1), (2, 2, 3), (8, 1, 1))[seed // 2]
        shape = (whole(rng, 3, 5), whole(rng, 40, 60), whole(rng, 1, 4))
        window = Window((k, k), start=(-(k // 2),) * 2, edge=pick(rng, EDGES))
        src = image(rng, (*shape, groups * inputs), formats="float32 float16")
        e = image(rng, (*shape, groups * outputs), formats="float32 float16")
        weights = random_weights(rng, groups * outputs, (k, k), inputs, groups, False)
        name, accumulates = f"many rows {seed}", seed % 2 == 1
        yield gradient_row(rng, name, False, src, weights, window, e, wants=2, accumulates=accumulates)


def many_products() -> Iterator[Row]:
    """Yield rows of few results with many products each."""
    for seed in range(8):
        rng = np.random.default_rng(320000 + seed)
        c, out, n = pick(rng, (600, 1030)), whole(rng, 1, 12), whole(rng, 1, 3)
        src = image(rng, (n, 2, 2, c), formats="float32 float16")
        weights = random_weights(rng, out, (2, 2), c, 1, True)
        addend = image(rng, (n, 1, 1, out)) if chance(rng, 2) else None
        window = Window((2, 2), start=(whole(rng, -1, 1), 0), edge=pick(rng, EDGES))
        yield forward_row(rng, "Conv", f"many products {seed}", src, weights, window, (1, 1), "relu", addend=addend)
        window = Window((2, 2), (2, 2), start=(-1, -1))
        yield forward_row(rng, "Transpose", f"many products {seed}", src, weights, window, (2, 3), "sigmoid")


# Extents, groups, inputs and outputs of a group, kernel, stride, dilation, padding, rows and columns of the result.
LARGE_TRANSPOSES = [
    ((4, 3, 3), 1, 64, 64, 4, 2, 1, 1, (6, 6)),
    ((6, 2, 3), 1, 96, 48, 3, 2, 1, 1, (4, 6)),
    ((3, 4, 3), 2, 32, 64, 3, 1, 2, 0, (8, 7)),
    ((8, 2, 2), 1, 64, 40, 2, 2, 1, 0, (4, 4)),
    ((4, 3, 4), 1, 128, 16, 5, 3, 1, 3, (7, 9)),  # the first pixels of the source are not read
    ((5, 3, 3), 4, 32, 24, 3, 2, 1, -1, (9, 8)),
    ((6, 5, 4), 1, 64, 64, 1, 1, 1, 0, (5, 4)),  # a product
    ((4, 6, 5), 1, 64, 32, 3, 1, 2, 2, (6, 5)),
    ((2, 5, 3), 1, 136, 76, 3, 2, 1, 1, (9, 5)),  # weights are more than one tile along both axes
    ((2, 5, 3), 2, 72, 72, 3, 2, 1, 1, (9, 5)),
]


def large_points() -> Iterator[Row]:
    """Yield rows of gradients of 1 x 1 convolutions with at least 2^20 products, in one format."""
    for index, (extents, inputs, outputs, stride, size) in enumerate(
        [((36, 3, 2), 64, 128, 1, (3, 2)), ((30, 5, 3), 60, 136, 2, (3, 2)), ((48, 4, 3), 96, 64, 3, (2, 2))]
    ):  # the last one reads beyond the source
        for format in ("float32", "float16"):
            rng = np.random.default_rng(340000 + index)
            window = Window((1, 1), (stride,) * 2)
            weights = random_weights(rng, outputs, (1, 1), inputs, 1, False)
            weights["weights"] = np.round(weights["weights"] * 256) / 256  # exact in float16
            src = image(rng, (*extents, inputs), formats=format)
            diff_dst = image(rng, (extents[0], *size, outputs), formats=format)
            formats = format if format == "float16" else ""
            yield gradient_row(
                rng, f"large 1 x 1 {index}, {format}", False, src, weights, window, diff_dst, formats=formats
            )


# n, height, width, channels, outputs, kernel, stride, dilation, padding
FIRST_LAYERS = [
    (5, 18, 15, 3, 16, 7, 2, 1, 3),
    (3, 12, 21, 1, 8, 3, 1, 2, 1),
    (6, 11, 9, 4, 24, 5, 3, 1, 0),
    (2, 9, 13, 2, 40, 2, 1, 1, 1),
]


def first_layers() -> Iterator[Row]:
    """Yield rows of gradients of weights with few channels, in one format."""
    for index, (n, h, w, c, outputs, k, stride, dilation, padding) in enumerate(FIRST_LAYERS):
        for format in ("float32", "float16"):
            rng = np.random.default_rng(350000 + index)
            window = Window((k, k), (stride,) * 2, (dilation,) * 2, (-padding,) * 2)
            weights = random_weights(rng, outputs, (k, k), c, 1, False)
            src = image(rng, (n, h, w, c), formats=format)
            size = [(extent + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for extent in (h, w)]
            diff_dst = image(rng, (n, *size, outputs), formats=format)
            name = f"first layer {index}, {format}"
            accumulates = index % 2 == 1
            yield gradient_row(rng, name, False, src, weights, window, diff_dst, wants=2, accumulates=accumulates)


# n, height, width, channels, outputs, kernel, stride, dilation, start, rows and columns of the result
FEW_WEIGHTS = [
    (3, 14, 13, 16, 8, (3, 3), (1, 1), (1, 1), (-1, -1), (14, 13)),
    (4, 15, 12, 8, 24, (3, 2), (2, 1), (1, 1), (-1, 0), (8, 12)),  # the last column is beyond the source
    (2, 12, 19, 24, 16, (2, 5), (1, 3), (2, 1), (-2, -3), (13, 8)),
    (3, 9, 9, 32, 8, (1, 3), (1, 1), (1, 4), (2, -5), (7, 8)),
]


def few_weights() -> Iterator[Row]:
    """Yield rows of gradients of few weights with aligned channels, in one format."""
    for index, (n, h, w, c, outputs, kernel, stride, dilation, start, size) in enumerate(FEW_WEIGHTS):
        for format in ("float32", "float16"):
            rng = np.random.default_rng(360000 + index)
            weights = random_weights(rng, outputs, kernel, c, 1, False)
            src, diff_dst = image(rng, (n, h, w, c), formats=format), image(rng, (n, *size, outputs), formats=format)
            window = Window(kernel, stride, dilation, start)
            name = f"few weights {index}, {format}"
            accumulates = index % 2 == 1
            yield gradient_row(rng, name, False, src, weights, window, diff_dst, wants=2, accumulates=accumulates)


# n, height, width, channels, outputs, with a bias, stride
WEIGHTS_3X3 = [
    (3, 7, 7, 64, 64, False, 1),
    (2, 9, 14, 72, 40, True, 1),  # tiles of 64 channels that are not full
    (1, 4, 78, 32, 136, False, 1),  # the widest images
    (9, 1, 1, 128, 32, False, 1),
    (2, 21, 26, 32, 32, True, 1),
    (5, 2, 33, 40, 64, False, 1),
    (2, 28, 28, 64, 64, False, 2),
    (3, 21, 19, 72, 40, True, 2),
    (1, 16, 124, 32, 136, False, 2),  # the widest images
    (2, 22, 27, 40, 32, True, 2),
    (9, 13, 14, 32, 32, False, 2),  # small images
]


def weights_3x3() -> Iterator[Row]:
    """Yield rows of gradients of weights of 3 x 3 convolutions with many channels, float16."""
    for index, (n, h, w, c, outputs, has_bias, stride) in enumerate(WEIGHTS_3X3):
        rng = np.random.default_rng(370000 + index)
        weights = random_weights(rng, outputs, (3, 3), c, 1, has_bias)
        size = ((h + stride - 1) // stride, (w + stride - 1) // stride)
        src, diff_dst = image(rng, (n, h, w, c), formats="float16"), image(rng, (n, *size, outputs), formats="float16")
        window = Window((3, 3), (stride, stride), start=(-1, -1))
        name, accumulates = f"weights 3 x 3 {index}", index % 2 == 1
        yield gradient_row(rng, name, False, src, weights, window, diff_dst, wants=2, accumulates=accumulates)


# n, height, width, outputs, start, rows and columns of the result
STEMS = [
    (3, 18, 16, 16, (-3, -3), (9, 8)),
    (2, 9, 24, 64, (-2, -2), (4, 11)),
    (1, 31, 40, 40, (-3, -3), (16, 20)),
    (4, 6, 8, 8, (1, -5), (3, 6)),  # windows end beyond the source
    (2, 16, 72, 24, (-4, 0), (10, 33)),
    (4, 30, 16, 16, (-3, -3), (15, 8)),  # many partial sums
]


def weights_of_stems() -> Iterator[Row]:
    """Yield rows of gradients of weights of 7 x 7 convolutions of 3 channels with a stride of 2, float16."""
    for index, (n, h, w, outputs, start, size) in enumerate(STEMS):
        rng = np.random.default_rng(380000 + index)
        weights = random_weights(rng, outputs, (7, 7), 3, 1, index == 2)
        src, diff_dst = image(rng, (n, h, w, 3), formats="float16"), image(rng, (n, *size, outputs), formats="float16")
        window = Window((7, 7), (2, 2), start=start)
        name, accumulates = f"weights of a stem {index}", index % 2 == 1
        yield gradient_row(rng, name, False, src, weights, window, diff_dst, wants=2, accumulates=accumulates)


# n, height, width, channels, outputs, kernel, dilation, start, rows and columns of the result
WITHOUT_STRIDES = [
    (2, 9, 8, 8, 12, (3, 3), (1, 1), (-1, -1), (9, 8)),
    (1, 7, 10, 4, 8, (2, 5), (1, 1), (0, -3), (6, 11)),
    (2, 8, 9, 12, 4, (3, 2), (2, 3), (-4, -1), (9, 8)),
    (1, 6, 6, 8, 8, (4, 3), (1, 1), (-3, 0), (9, 4)),
    (1, 5, 4, 72, 136, (3, 3), (1, 1), (-1, -1), (5, 4)),
]


def without_strides() -> Iterator[Row]:
    """Yield rows of gradients by the source, float32, that a forward convolution can compute; and transposed ones."""
    for index, (n, h, w, c, outputs, kernel, dilation, start, size) in enumerate(WITHOUT_STRIDES):
        rng = np.random.default_rng(370000 + index)
        window = Window(kernel, (1, 1), dilation, start)
        src, diff_dst = floats(rng, (n, h, w, c)), floats(rng, (n, *size, outputs))
        weights = random_weights(rng, outputs, kernel, c, 1, False)
        yield gradient_row(rng, f"without strides {index}", False, src, weights, window, diff_dst, wants=1)
        weights = random_weights(rng, c, kernel, outputs, 1, False)
        before = ((kernel[0] - 1) * dilation[0], (kernel[1] - 1) * dilation[1])
        window = Window(kernel, (1, 1), dilation, (-before[0] - start[0], -before[1] - start[1]))
        name = f"without strides {index}"
        yield forward_row(rng, "Transpose", name, diff_dst, weights, window, (h, w), "none")


def large_transposes() -> Iterator[Row]:
    """Yield rows of transposed convolutions and their gradients with at least 2^20 products, in one format."""
    for index, (extents, groups, inputs, outputs, k, stride, dilation, padding, size) in enumerate(LARGE_TRANSPOSES):
        for format in ("float32", "float16"):
            rng = np.random.default_rng(330000 + index)
            start = (padding - (k - 1) * dilation,) * 2
            window = Window((k, k), (stride,) * 2, (dilation,) * 2, start)
            weights = random_weights(rng, groups * outputs, (k, k), inputs, groups, format == "float32")
            weights["weights"] = np.round(weights["weights"] * 256) / 256  # exact in float16
            src = image(rng, (*extents, groups * inputs), formats=format)
            diff_dst = image(rng, (extents[0], *size, groups * outputs), formats=format)
            name = f"large {index}, {format}"
            formats = format if format == "float16" else ""
            neuron = "sigmoid" if format == "float32" else "none"
            yield forward_row(rng, "Transpose", name, src, weights, window, size, neuron, formats=formats)
            accumulates = index % 2 == 1
            yield gradient_row(
                rng, name, True, src, weights, window, diff_dst, accumulates=accumulates, formats=formats
            )


def rows() -> Iterator[Row]:
    for part in (
        depthwise,
        in_vectors,
        products,
        windows,
        few_inputs,
        few_outputs,
        sub_pixels,
        pooled,
        photographs,
        followed,
        many_products,
        gradients_of_many_rows,
        reduced_gradients,
        convolutions,
        layers,
        of_bfloats,
        sums_of_tiles,
        transposes,
        squares,
        parted_squares,
        decoders,
        large_points,
        first_layers,
        few_weights,
        weights_3x3,
        weights_of_stems,
        without_strides,
        large_transposes,
        binaries,
        random_gradients,
        gradients,
    ):
        yield from part()
