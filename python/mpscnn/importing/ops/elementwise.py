# SPDX-License-Identifier: Apache-2.0
"""Functions of each value of one, two or three tensors that are no neurons: comparisons, choices, rounding, erf.

They are Metal functions. Truth values are 1 and 0. Operands broadcast as in NumPy, and heights and widths stay free
where the axes of the operands allow it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from . import arithmetic, general

# Expressions of a value v.
UNARY = {
    "sin": "sin(v)",
    "cos": "cos(v)",
    "tan": "tan(v)",
    "asin": "asin(v)",
    "acos": "acos(v)",
    "atan": "atan(v)",
    "sinh": "sinh(v)",
    "cosh": "cosh(v)",
    "asinh": "asinh(v)",
    "acosh": "acosh(v)",
    "atanh": "atanh(v)",
    "exp2": "exp2(v)",
    "log2": "log2(v)",
    "log10": "log10(v)",
    "expm1": "exponential_less_one(v)",
    "log1p": "logarithm_of_one_more(v)",
    "erf": "error_function(v)",
    "erfc": "complement_of_error_function(v)",
    "floor": "floor(v)",
    "ceil": "ceil(v)",
    "round": "rint(v)",
    "trunc": "trunc(v)",
    "frac": "v - trunc(v)",
    "sign": "sign(v)",
    "not": "truth(v == 0.0f)",
    "isnan": "truth(isnan(v))",
    "isinf": "truth(isinf(v))",
    "isfinite": "truth(isfinite(v))",
}

# Expressions of two values a and b.
BINARY = {
    "gt": "truth(a > b)",
    "ge": "truth(a >= b)",
    "lt": "truth(a < b)",
    "le": "truth(a <= b)",
    "eq": "truth(a == b)",
    "ne": "truth(a != b)",
    "and": "truth(a != 0.0f) * truth(b != 0.0f)",
    "or": "max(truth(a != 0.0f), truth(b != 0.0f))",
    "xor": "abs(truth(a != 0.0f) - truth(b != 0.0f))",
    "maximum": "select(select(a, b, a < b), b, isnan(b))",
    "minimum": "select(select(a, b, b < a), b, isnan(b))",
    "pow": "pow(a, b)",
    "atan2": "atan2(a, b)",
    "fmod": "fmod(a, b)",
    "remainder": "modulo(a, b)",
    "floor_divide": "floored_quotient(a, b)",
    "trunc_divide": "trunc(a / b)",
    "copysign": "copysign(a, b)",
    "heaviside": "select(truth(a > 0.0f), b, a == 0.0f)",
    "hardshrink": "select(float4(0.0f), a, abs(a) > b)",
    "divide": "a / b",
}


def _switch(result: str, table: dict[str, str]) -> str:
    cases = "\n".join(f"        case {i}: {result} = {text}; break;" for i, text in enumerate(table.values()))
    return f"switch (kind) {{\n{cases}\n        default: break;\n    }}"


SOURCE = f"""
#include <metal_stdlib>
using namespace metal;

static float4 truth(bool4 condition) {{ return select(float4(0.0f), float4(1.0f), condition); }}

// The rounding of 1 + v is that of its logarithm's argument: their quotient corrects it.
static float4 logarithm_of_one_more(float4 v) {{
    float4 u = 1.0f + v, d = u - 1.0f;
    return select(select(log(u) * (v / d), log(u), isinf(u)), v, d == 0.0f);
}}

static float4 exponential_less_one(float4 v) {{
    float4 u = exp(v), d = u - 1.0f;
    return select(select(d * (v / log(u)), d, isinf(u) || u == 0.0f), v, d == 0.0f);
}}

// Chebyshev series of erf(x) / x in x^2 for |x| < 1, and of exp(x^2) erfc(x) in 1 / (1 + x / 2) beyond: the max error
// is 1.5e-7.
static float4 complement_beyond_one(float4 x) {{
    float4 t = 1.0f / (1.0f + 0.5f * x);
    float4 p = 0.10859774878858886f + t * -0.11131799823836583f;
    p = 0.20819515229593633f + t * p;
    p = 0.2224288602067805f + t * p;
    p = 0.2892797574089073f + t * p;
    p = 0.28110639909991547f + t * p;
    p = 5.246059379976353e-05f + t * p;
    return exp(-x * x) * p;
}}

static float4 error_function_below_one(float4 v) {{
    float4 z = v * v;
    float4 p = -0.0008018854992987633f + z * 7.882497112276038e-05f;
    p = 0.005189311942650253f + z * p;
    p = -0.026854328796012152f + z * p;
    p = 0.11283597463485726f + z * p;
    p = -0.3761262690358013f + z * p;
    return v * (1.1283791658815028f + z * p);
}}

static float4 error_function(float4 v) {{
    float4 beyond = copysign(1.0f - complement_beyond_one(min(abs(v), 10.0f)), v);
    return select(select(beyond, error_function_below_one(v), abs(v) < 1.0f), v, isnan(v));
}}

static float4 complement_of_error_function(float4 v) {{
    float4 beyond = complement_beyond_one(min(abs(v), 10.0f));
    beyond = select(beyond, 2.0f - beyond, v < 0.0f);
    return select(select(beyond, 1.0f - error_function_below_one(v), abs(v) < 1.0f), v, isnan(v));
}}

// Remainder with the divisor's sign.
static float4 modulo(float4 a, float4 b) {{
    float4 r = fmod(a, b);
    return select(r, r + b, r * sign(b) < 0.0f);
}}

static float4 floored_quotient(float4 a, float4 b) {{
    float4 r = modulo(a, b);
    return select(rint((a - r) / b), a / b, b == 0.0f || isinf(a));
}}

// The value of an operand for the thread's pixel: axes of extent 1 repeat. bit: whether it has a single channel.
static float4 operand(texture2d_array<float, access::read> x, uint3 gid, uint bit) {{
    uint2 at = uint2(min(gid.x, x.get_width() - 1), min(gid.y, x.get_height() - 1));
    float4 v = x.read(at, min(gid.z, x.get_array_size() - 1));
    return bit != 0 ? float4(v.x) : v;
}}

kernel void unary(texture2d_array<float, access::read> x [[texture(0)]],
                  texture2d_array<float, access::write> y [[texture(1)]],
                  constant uint& kind [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {{
    float4 v = x.read(gid.xy, gid.z), r = 0.0f;
    {_switch("r", UNARY)}
    y.write(r, gid.xy, gid.z);
}}

kernel void binary(texture2d_array<float, access::read> first [[texture(0)]],
                   texture2d_array<float, access::read> second [[texture(1)]],
                   texture2d_array<float, access::write> y [[texture(2)]],
                   constant uint& kind [[buffer(0)]], constant uint& single [[buffer(1)]],
                   uint3 gid [[thread_position_in_grid]]) {{
    float4 a = operand(first, gid, single & 1), b = operand(second, gid, single & 2), r = 0.0f;
    {_switch("r", BINARY)}
    y.write(r, gid.xy, gid.z);
}}

kernel void choose(texture2d_array<float, access::read> condition [[texture(0)]],
                   texture2d_array<float, access::read> first [[texture(1)]],
                   texture2d_array<float, access::read> second [[texture(2)]],
                   texture2d_array<float, access::write> y [[texture(3)]],
                   constant uint& single [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {{
    float4 c = operand(condition, gid, single & 1);
    y.write(select(operand(second, gid, single & 4), operand(first, gid, single & 2), c != 0.0f), gid.xy, gid.z);
}}
"""


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Rule for the shape of a result."""
    return tuple(np.broadcast_shapes(*shapes))


def unary(builder: Builder, x: Tensor, kind: str) -> Tensor:
    """Return a function of each value, one of `UNARY`."""
    return builder.add(general.function("unary", SOURCE), x, kind=list(UNARY).index(kind))


def _number(builder: Builder, like: Tensor, value: Any) -> Tensor:
    """Return a constant number as an image of one pixel with the batch of `like`."""
    y = builder.add(
        general.function("constants"),
        like,
        out_shape=general.Shaped((1, 1, 1)),
        values=np.full(1, value, np.float32),
        count=1,
        height=1,
        width=1,
        channels=1,
    )
    return replace(y, flat=None)


def _aligned(builder: Builder, operands: list[Any]) -> list[Tensor]:
    """Return operands, arrays and numbers among them, as tensors with the same axes."""
    like = max((x for x in operands if isinstance(x, Tensor)), key=lambda x: x.size)
    for x in operands:
        if isinstance(x, Tensor):
            like, _ = arithmetic.align(builder, like, x)
    found = []
    for x in operands:
        if isinstance(x, Tensor):
            found.append(arithmetic.align(builder, like, x)[1])
            continue
        array = np.asarray(x)
        if array.size == 1 and array.ndim <= like.rank:
            found.append(replace(_number(builder, like, array.reshape(())), axes=like.axes))
            continue
        image_like, image, kind = arithmetic._split(builder, like, array)
        if kind == "scalar":
            found.append(replace(_number(builder, like, image[0]), axes=like.axes))
            continue
        image = image.reshape(1, 1, -1) if kind == "channels" else image
        constant = arithmetic.constant_image(builder, image_like, image)
        found.append(replace(constant, axes=like.axes, flat=image_like.flat))
    if any(x.axes != like.axes for x in found) or any(x.flat != like.flat for x in found if x.size > 1):
        raise UnmappedError("tensors whose axes are in another order")
    return [replace(x, flat=like.flat) for x in found]


def _apply(builder: Builder, name: str, operands: tuple[Any, ...], **values: Any) -> Tensor:
    if not any(isinstance(x, Tensor) for x in operands):
        raise UnmappedError("constants alone")
    tensors = _aligned(builder, list(operands))
    height, width, channels = (max(x.extent(axis) for x in tensors) for axis in "HWC")
    for x in tensors:
        for axis, extent in (("H", height), ("W", width)):
            if x.extent(axis) != extent and not builder.is_constant(x, axis):
                builder.fix()  # the axis has extent 1 only here
    single = sum((x.channels == 1 and channels > 1) << i for i, x in enumerate(tensors))
    return builder.add(
        general.function(name, SOURCE),
        *tensors,
        out_shape=_broadcast,
        single=single,
        height=height,
        width=width,
        channels=channels,
        **values,
    )


def binary(builder: Builder, a: Any, b: Any, kind: str) -> Tensor:
    """Return a function of the values of two operands, one of `BINARY`."""
    return of_several(builder, _binary, a, b, kind=kind)


def _binary(builder: Builder, a: Any, b: Any, kind: str) -> Tensor:
    return _apply(builder, "binary", (a, b), kind=list(BINARY).index(kind))


def where(builder: Builder, condition: Any, a: Any, b: Any) -> Tensor:
    """Return the values of `a` where the condition is not 0, elsewhere those of `b`."""
    return of_several(builder, lambda builder, *operands: _apply(builder, "choose", operands), condition, a, b)


def of_several(builder: Builder, function: Callable[..., Tensor], *operands: Any, **options: Any) -> Tensor:
    """Apply a function of tensors and constants that broadcast.

    If the function does not take their axes, a tensor of the same rank is arranged like the largest one, and otherwise
    all are stored in the order of their axes. Constants have the axis of the batch if they have as many axes.
    """
    try:
        return function(builder, *operands, **options)
    except UnmappedError as error:
        refused = error
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors or any(x.rank != tensors[0].rank for x in tensors):
        raise refused  # the batch of one meets another axis of the other
    like = max(tensors, key=lambda x: x.size)
    if len(tensors) > 1 and like.flat is None:
        from . import shape

        try:
            same = [shape.arrange(builder, x, like.axes) if isinstance(x, Tensor) else x for x in operands]
            return function(builder, *same, **options)
        except UnmappedError:
            pass
    try:
        parts = [x if isinstance(x, Tensor) else of_image(x, like.rank) for x in operands]
        return general.binary(builder, function, *parts, **options)
    except UnmappedError as error:
        raise refused if str(error) == str(refused) else UnmappedError(f"{refused}; {error}") from None


def of_image(constant: Any, rank: int) -> NDArray[Any]:
    """Return a constant without the axis of the batch, for operators on tensors of `rank` axes."""
    array: NDArray[Any] = np.asarray(constant)
    if array.ndim == rank and array.ndim:
        if array.shape[0] != 1:
            raise UnmappedError(f"a constant of shape {array.shape} with values of its own for each image of the batch")
        first: NDArray[Any] = array[0]
        return first
    if array.ndim > rank:
        raise UnmappedError(f"a constant of shape {array.shape} with a tensor of {rank} axes")
    return array


def threshold(builder: Builder, x: Tensor, threshold: float, value: float) -> Tensor:
    """Same as torch.nn.functional.threshold: `value` where x is not greater than the threshold."""
    return where(builder, binary(builder, x, threshold, "gt"), x, value)


def nan_to_num(builder: Builder, x: Tensor, nan: float, high: float, low: float) -> Tensor:
    """Same as torch.nan_to_num."""
    y = where(builder, unary(builder, x, "isnan"), nan, x)
    y = where(builder, binary(builder, y, math.inf, "eq"), high, y)
    return where(builder, binary(builder, y, -math.inf, "eq"), low, y)


def maximum(builder: Builder, a: Any, b: Any) -> Tensor:
    """Return the elementwise max, by MPS's kernels if the shapes are equal."""
    return _by_kernels(builder, arithmetic.maximum, "maximum", a, b)


def minimum(builder: Builder, a: Any, b: Any) -> Tensor:
    """Return the elementwise min, by MPS's kernels if the shapes are equal."""
    return _by_kernels(builder, arithmetic.minimum, "minimum", a, b)


def pow(builder: Builder, base: Any, exponent: Any) -> Tensor:
    """Return base ** exponent, by MPS's kernels if one of them is a number."""
    return _by_kernels(builder, arithmetic.pow, "pow", base, exponent)


def _by_kernels(builder: Builder, function: Callable[..., Tensor], kind: str, a: Any, b: Any) -> Tensor:
    try:
        return function(builder, a, b)
    except UnmappedError:
        return binary(builder, a, b, kind)
