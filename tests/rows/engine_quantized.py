# SPDX-License-Identifier: Apache-2.0
"""Rows of problems on 8-bit numbers (engine/problem/quantized.hpp). Results are equal, but for values that lie in the
middle of two steps up to float32's rounding, which may be one step off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .engine import (
    GATED,
    NUMBERS,
    Array,
    Random,
    Stored,
    Window,
    activated,
    chance,
    floats,
    image,
    pick,
    real,
    row,
    whole,
)
from .engine_convolution import correlate
from .engine_pooling import pooled
from .row_file import Row

MAX = 255
MIDDLE = 2e-3  # steps


def steps(rng: Random, low: float = 0.01, high: float = 0.1) -> dict[str, Any]:
    return {"scale": real(rng, low, high), "zero": pick(rng, (0, 0, 128, 255, whole(rng, 1, 254)))}


def numbers(rng: Random, shape: tuple[int, ...]) -> Stored:
    return rng.integers(0, MAX + 1, shape).astype(np.uint8)


def read(q: Stored, given: dict[str, Any]) -> Array:
    return float(np.float32(given["scale"])) * (q.astype(np.float64) - given["zero"])


def stored(value: Array, given: dict[str, Any], error: Array | float) -> tuple[Array, Array]:
    """Return the numbers as a kernel reads them, q / 255, and their tolerance."""
    scale = float(np.float32(given["scale"]))
    least, inside, most = (
        np.clip(x / scale, -given["zero"], MAX - given["zero"]) for x in (value - error, value, value + error)
    )
    distance = np.abs(inside - np.floor(inside) - 0.5)
    one_off = distance < MIDDLE + error / scale
    # Errors of more than a step are those of sums that nearly cancel out.
    off = np.where(one_off, np.maximum(1.0, np.ceil(np.maximum(most - inside, inside - least))), 0.0)
    return (np.rint(inside) + given["zero"]) / MAX, off / MAX + 1e-6


def gate_row(seed: int) -> Row:
    """Activations that are not piecewise linear functions of sums alone."""
    rng = np.random.default_rng(980000 + seed)
    kernel = pick(rng, ((1, 1), (3, 3)))
    inputs, outputs, h, w = pick(rng, (3, 16, 31)), pick(rng, (4, 33, 64)), whole(rng, 1, 9), whole(rng, 1, 9)
    window = Window(kernel, (1, 1), (1, 1), (-(kernel[0] // 2), -(kernel[1] // 2)))
    src, src_steps = numbers(rng, (whole(rng, 1, 2), h, w, inputs)), steps(rng)
    weights = rng.integers(-127, 128, (outputs, *kernel, inputs)) * rng.uniform(0.0002, 0.002, (outputs, 1, 1, 1))
    weights = weights.astype(np.float32)
    bias = floats(rng, outputs, -3, 3) if chance(rng, 2) else None
    kind = pick(rng, ("swish", "swish", "hard_swish", "hard_sigmoid", "sigmoid"))
    gates = {"swish": GATED, "hard_swish": GATED + 1, **NUMBERS}
    neuron = {"type": gates[kind], "a": real(rng, 0.1, 0.3), "b": real(rng, 0.3, 0.6), "c": 0.0}
    x, exact = read(src, src_steps), weights.astype(np.float64)
    sums = correlate(x, exact, None if bias is None else bias.astype(np.float64), window, 1, (h, w))
    sizes = correlate(np.abs(x), np.abs(exact), None if bias is None else np.abs(bias), window, 1, (h, w))
    value, error = activated(neuron, sums, sizes * 2e-6)
    fields: dict[str, Any] = {
        "src": src,
        "weights": weights,
        "weights.groups": 1,
        "weights.bias": bias,
        "neuron": neuron,
        "window": window.fields(),
        "src_steps": src_steps,
    }
    if chance(rng, 3):
        return row("QuantizedConv", f"{kind} {seed}, values", fields, {"dst": (value, error + 1e-5)})
    span = max(float(np.ptp(value)), 1e-3)
    fields["dst_steps"] = steps(rng, span / 300, span / 100)
    result = stored(value, fields["dst_steps"], error + 1e-5)
    return row("QuantizedConv", f"{kind} {seed}", fields, {"dst": result}, dst="unorm8")


def neuron_of(rng: Random) -> dict[str, Any] | None:
    kind = pick(rng, ("none", "none", "relu", "relun"))
    return None if kind == "none" else {"type": NUMBERS[kind], "a": 0.0, "b": real(rng, 0.5, 6), "c": 0.0}


def conv_row(seed: int) -> Row:
    rng = np.random.default_rng(910000 + seed)
    kernel = pick(rng, ((1, 1), (3, 3), (3, 3), (5, 5), (7, 7), (1, 3)))
    kind = pick(rng, ("plain", "plain", "plain", "depthwise", "groups"))
    inputs, outputs = pick(rng, (1, 3, 4, 16, 31, 64, 67)), pick(rng, (1, 4, 16, 33, 64, 80))
    groups = 1
    if kind == "depthwise":
        groups = outputs = pick(rng, (4, 16, 17, 32, 72))
        inputs = 1
    elif kind == "groups":
        groups, inputs, outputs = 4, pick(rng, (4, 16)), 4 * pick(rng, (4, 16))
    stride, dilation = pick(rng, ((1, 1), (1, 1), (2, 2))), pick(rng, ((1, 1), (1, 1), (2, 2)))
    start = tuple(
        -whole(rng, 0, (k - 1) * d) if chance(rng, 4) else -((k - 1) * d // 2)
        for k, d in zip(kernel, dilation, strict=True)
    )
    window = Window(kernel, stride, dilation, start)
    h, w = whole(rng, 1, 14), whole(rng, 1, 14)
    size = (-(-h // stride[0]), -(-w // stride[1]))
    if chance(rng, 8):  # the whole source
        window, size = Window((h, w)), (1, 1)
        kernel = window.kernel
    src = numbers(rng, (whole(rng, 1, 2), h, w, inputs * groups))
    src_steps = steps(rng)
    whole_multiples = seed % 7 != 6
    weights = rng.integers(-127, 128, (outputs, *kernel, inputs)) * rng.uniform(0.002, 0.02, (outputs, 1, 1, 1))
    if not whole_multiples:
        weights = rng.uniform(-1, 1, weights.shape)
    weights = weights.astype(np.float32)
    bias = floats(rng, outputs, -3, 3) if chance(rng, 2) else None
    neuron = neuron_of(rng)
    x, exact = read(src, src_steps), weights.astype(np.float64)
    sums = correlate(x, exact, None if bias is None else bias.astype(np.float64), window, groups, size)
    sizes = correlate(np.abs(x), np.abs(exact), None if bias is None else np.abs(bias), window, groups, size)
    value, error = activated(neuron, sums, sizes * 2e-6)
    fields = {
        "src": src,
        "weights": weights,
        "weights.groups": groups,
        "weights.bias": bias,
        "neuron": neuron,
        "window": window.fields(),
        "src_steps": src_steps,
    }
    name = f"{kind} {seed}" + ("" if whole_multiples else ", other weights")
    if chance(rng, 5):
        return row("QuantizedConv", name + ", values", fields, {"dst": (value, error + 1e-6)})
    span = max(float(np.ptp(value)), 1e-3)
    fields["dst_steps"] = steps(rng, span / 300, span / 100)
    return row("QuantizedConv", name, fields, {"dst": stored(value, fields["dst_steps"], error)}, dst="unorm8")


def sum_row(seed: int) -> Row:
    rng = np.random.default_rng(920000 + seed)
    shape = (whole(rng, 1, 3), whole(rng, 1, 30), whole(rng, 1, 9), pick(rng, (1, 3, 16, 37, 512)))
    fields: dict[str, Any] = {"src0": numbers(rng, shape), "src1": numbers(rng, shape)}
    fields |= {"src0_steps": steps(rng), "src1_steps": steps(rng), "dst_steps": steps(rng, 0.03, 0.2)}
    value = read(fields["src0"], fields["src0_steps"]) + read(fields["src1"], fields["src1_steps"])
    if chance(rng, 2):
        fields["min"] = pick(rng, (0.0, 0.0, 100.0))  # 100: above all numbers of the result
    if chance(rng, 3):
        fields["max"] = fields.get("min", 0.0) + real(rng, 1, 6)
    value = np.clip(value, fields.get("min"), fields.get("max")) if {"min", "max"} & fields.keys() else value
    return row("QuantizedSum", str(seed), fields, {"dst": stored(value, fields["dst_steps"], 1e-5)}, dst="unorm8")


def steps_of(rng: Random, span: float) -> dict[str, Any]:
    """Return steps: small ones saturate nearly everything; with the tiniest, numbers need more than 32 bits."""
    return steps(rng, *pick(rng, ((span / 300, span / 100), (span / 3e3, span / 1e3), (span * 1e-13, span * 1e-12))))


def inside_row(seed: int) -> Row:
    """Windows inside of the source, with blocks of 64 and 32 outputs, and pixels of several blocks."""
    rng = np.random.default_rng(990000 + seed)
    kernel, stride = pick(rng, ((1, 1), (1, 1), (3, 3), (2, 3))), pick(rng, ((1, 1), (1, 1), (2, 2), (1, 2)))
    dilation = pick(rng, ((1, 1), (1, 1), (2, 1)))
    inputs, outputs = pick(rng, (4, 8, 36, 64)), pick(rng, (17, 32, 33, 64, 96, 97, 130))
    start = pick(rng, ((0, 0), (0, 0), (1, 2)))
    size = (whole(rng, 1, 5), pick(rng, (1, 5, 12, 13, 15, 19)))
    window = Window(kernel, stride, dilation, start)
    h, w = (
        a + (n - 1) * s + (k - 1) * d + 1 + whole(rng, 0, 1)
        for a, n, s, k, d in zip(start, size, stride, kernel, dilation, strict=True)
    )
    src, src_steps = numbers(rng, (whole(rng, 1, 3), h, w, inputs)), steps(rng)
    weights = rng.integers(-128, 128, (outputs, *kernel, inputs)) * rng.uniform(0.002, 0.02, (outputs, 1, 1, 1))
    weights = weights.astype(np.float32)
    bias = floats(rng, outputs, -3, 3) if chance(rng, 2) else None
    neuron = neuron_of(rng)
    x, exact = read(src, src_steps), weights.astype(np.float64)
    sums = correlate(x, exact, None if bias is None else bias.astype(np.float64), window, 1, size)
    sizes = correlate(np.abs(x), np.abs(exact), None if bias is None else np.abs(bias), window, 1, size)
    value, error = activated(neuron, sums, sizes * 2e-6)
    fields: dict[str, Any] = {
        "src": src,
        "weights": weights,
        "weights.groups": 1,
        "weights.bias": bias,
        "neuron": neuron,
        "window": window.fields(),
        "src_steps": src_steps,
    }
    if chance(rng, 5):
        return row("QuantizedConv", f"inside {seed}, values", fields, {"dst": (value, error + 1e-6)})
    fields["dst_steps"] = steps_of(rng, max(float(np.ptp(value)), 1e-3))
    return row(
        "QuantizedConv", f"inside {seed}", fields, {"dst": stored(value, fields["dst_steps"], error)}, dst="unorm8"
    )


def depthwise_row(seed: int) -> Row:
    """Windows of all rows within four, blocks of 64 and 32 channels, borders, saturation."""
    rng = np.random.default_rng(940000 + seed)
    kernel, stride = pick(rng, ((3, 3), (5, 5))), pick(rng, ((1, 1), (2, 2)))
    channels = pick(rng, (2, 16, 31, 32, 33, 64, 65, 96, 97, 100, 160))
    start = (-whole(rng, 0, kernel[0]), -whole(rng, 0, kernel[1]))
    window = Window(kernel, stride, (1, 1), start)
    h, w = whole(rng, 1, 12), whole(rng, 1, 20)
    size = (whole(rng, 1, 2 + h // stride[0]), whole(rng, 1, 2 + w // stride[1]))
    src, src_steps = numbers(rng, (whole(rng, 1, 3), h, w, channels)), steps(rng)
    if chance(rng, 5):
        src[...] = 255  # sums of the largest products
    weights = rng.integers(-128, 128, (channels, *kernel, 1))
    if chance(rng, 5):
        weights[...] = -128
    weights = (weights * rng.uniform(0.002, 0.02, (channels, 1, 1, 1))).astype(np.float32)
    bias = floats(rng, channels, -3, 3) if chance(rng, 2) else None
    neuron = neuron_of(rng)
    x, exact = read(src, src_steps), weights.astype(np.float64)
    sums = correlate(x, exact, None if bias is None else bias.astype(np.float64), window, channels, size)
    sizes = correlate(np.abs(x), np.abs(exact), None if bias is None else np.abs(bias), window, channels, size)
    value, error = activated(neuron, sums, sizes * 2e-6)
    fields: dict[str, Any] = {
        "src": src,
        "weights": weights,
        "weights.groups": channels,
        "weights.bias": bias,
        "neuron": neuron,
        "window": window.fields(),
        "src_steps": src_steps,
    }
    span = max(float(np.ptp(value)), 1e-3)
    if chance(rng, 5):
        return row("QuantizedConv", f"depth-wise {kernel[0]} {seed}, values", fields, {"dst": (value, error + 1e-6)})
    fields["dst_steps"] = steps_of(rng, span)
    result = stored(value, fields["dst_steps"], error)
    return row("QuantizedConv", f"depth-wise {kernel[0]} {seed}", fields, {"dst": result}, dst="unorm8")


def product_row(seed: int) -> Row:
    rng = np.random.default_rng(950000 + seed)
    shape = (whole(rng, 1, 3), whole(rng, 1, 30), whole(rng, 1, 9), pick(rng, (1, 3, 16, 37, 512)))
    other = pick(rng, (shape, (shape[0], 1, 1, shape[3])))
    fields: dict[str, Any] = {"src0": numbers(rng, shape), "src1": numbers(rng, other)}
    fields |= {"src0_steps": steps(rng), "src1_steps": steps(rng), "dst_steps": steps(rng, 0.03, 0.9)}
    if other != shape and chance(rng, 2):
        fields["src1"] = floats(rng, other, -2, 2)
        del fields["src1_steps"]
        factors = fields["src1"].astype(np.float64)
    else:
        factors = read(fields["src1"], fields["src1_steps"])
    value = read(fields["src0"], fields["src0_steps"]) * factors
    error = 1e-6 * np.abs(value)
    name = f"{'pixel' if other != shape else 'image'}{'' if 'src1_steps' in fields else ' of floats'} {seed}"
    return row("QuantizedProduct", name, fields, {"dst": stored(value, fields["dst_steps"], error)}, dst="unorm8")


def pixel_sum_row(seed: int) -> Row:
    rng = np.random.default_rng(960000 + seed)
    c = pick(rng, (1, 3, 16, 33, 64, 100))
    shape = (whole(rng, 1, 3), pick(rng, (1, 7, 19, 40)), pick(rng, (1, 7, 13, 30)), c)
    src = numbers(rng, shape)
    if chance(rng, 4):
        src[...] = 255
    fields: dict[str, Any] = {"src": src, "src_steps": steps(rng), "scale": pick(rng, (1 / (shape[1] * shape[2]), 0.1))}
    value = fields["scale"] * read(src, fields["src_steps"]).sum((1, 2), keepdims=True)
    if chance(rng, 3):
        return row("QuantizedPixelSum", f"values {seed}", fields, {"dst": (value, 1e-6 * np.abs(value) + 1e-6)})
    fields["dst_steps"] = steps(rng)
    return row("QuantizedPixelSum", str(seed), fields, {"dst": stored(value, fields["dst_steps"], 1e-6)}, dst="unorm8")


def map_row(seed: int) -> Row:
    rng = np.random.default_rng(970000 + seed)
    shape = (whole(rng, 1, 3), whole(rng, 1, 9), whole(rng, 1, 9), pick(rng, (1, 3, 64, 70, 129, 1000)))
    src, table = numbers(rng, shape), rng.integers(0, MAX + 1, MAX + 1)
    fields = {"src": src, "numbers": table.astype(np.float32)}
    return row("QuantizedMap", str(seed), fields, {"dst": (table[src] / MAX, 1e-6)}, dst="unorm8")


def pool_row(seed: int) -> Row:
    """Maxima of numbers, which are read and stored without conversion."""
    rng = np.random.default_rng(930000 + seed)
    c, h, w = pick(rng, (1, 3, 16, 64, 77)), whole(rng, 1, 12), whole(rng, 1, 12)
    kernel = (whole(rng, 1, 5), whole(rng, 1, 5))
    start = tuple(-whole(rng, 0, k - 1) for k in kernel)
    window = Window(kernel, (whole(rng, 1, 3), whole(rng, 1, 3)), (1, 1), start, pick(rng, ("zero", "clamp")))
    size = (whole(rng, 1, 6), whole(rng, 1, 6))
    src = image(rng, (whole(rng, 1, 2), h, w, c), formats="unorm8")
    value = pooled("max", src / float(MAX), window, size, (0, 0))
    fields = {"src": src, "type": 0, "window": window.fields()}
    return row("Pool", f"of bytes {seed}", fields, {"dst": (value, 1e-6)}, dst="unorm8")


def rows() -> Iterator[Row]:
    yield from map(conv_row, range(200))
    yield from map(sum_row, range(60))
    yield from map(pool_row, range(40))
    yield from map(depthwise_row, range(80))
    yield from map(inside_row, range(80))
    yield from map(product_row, range(40))
    yield from map(pixel_sum_row, range(40))
    yield from map(map_row, range(30))
    yield from map(gate_row, range(60))
