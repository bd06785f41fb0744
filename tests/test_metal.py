# SPDX-License-Identifier: Apache-2.0
"""mpscnn.metal_function: arguments and results from Python. The language itself: test_metal_functions.py."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn.importing.ops import general
from support import random

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
SWISH = (
    HEAD
    + """
constant float beta [[function_constant(0)]];
kernel void swish(texture2d_array<float, access::read> x [[texture(0)]],
                  texture2d_array<float, access::write> y [[texture(1)]],
                  uint3 gid [[thread_position_in_grid]]) {
    float4 v = x.read(gid.xy, gid.z);
    y.write(v / (1.0f + exp(-beta * v)), gid.xy, gid.z);
}
"""
)
PARAMS = (
    HEAD
    + """
struct Params { half scale; float3 shift; int count; };
kernel void apply(texture2d<float, access::read> x [[texture(0)]],
                  texture2d<float, access::write> y [[texture(2)]],
                  texture2d<float, access::write> z [[texture(1)]],
                  constant Params& p [[buffer(0)]],
                  device const float* table [[buffer(1)]],
                  device float* sums [[buffer(2)]],
                  constant ushort& n [[buffer(3)]],
                  uint2 gid [[thread_position_in_grid]]) {
    float4 v = x.read(gid);
    y.write(v * float(p.scale) + float4(p.shift, float(p.count)), gid);
    z.write(v * table[n], gid);
    if (gid.x == 0 && gid.y == 0) for (int i = 0; i < p.count; ++i) sums[i] = table[i] * 2;
}
"""
)
PARAMS_TYPE = np.dtype(
    {"names": ["scale", "shift", "count"], "formats": ["f2", "(3,)f4", "i4"], "offsets": [0, 16, 32], "itemsize": 48}
)


EMPTY = HEAD + "#pragma openmps {}\nkernel void f(uint i [[thread_position_in_grid]]) {{}}"


def swish(x: np.ndarray, beta: float) -> np.ndarray:
    return x / (1 + np.exp(-beta * x.astype(np.float64)))


@pytest.fixture(scope="module")
def function() -> mpscnn.MetalFunction:
    return mpscnn.metal_function(SWISH, "swish", constants={"beta": 1.5})


def shift_function() -> mpscnn.MetalFunction:
    return mpscnn.metal_function(PARAMS, "apply")


def params() -> np.ndarray:
    value = np.zeros((), PARAMS_TYPE)
    value["scale"], value["shift"], value["count"] = 0.5, (1, 2, 3), 4
    return value


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 5, 7, 3), (1, 3, 5, 4), (3, 9, 4, 13), (2, 56, 56, 256)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_arrays(function: mpscnn.MetalFunction, shape: tuple[int, ...], dtype: str) -> None:
    x = random(shape).astype(dtype)
    y = function(x)
    assert (y.shape, y.dtype) == (shape, x.dtype)
    np.testing.assert_allclose(y, swish(x, 1.5), rtol=2e-3 if dtype == "float16" else 2e-6, atol=1e-6)


def test_images_and_kernels_in_one_command_buffer(function: mpscnn.MetalFunction) -> None:
    """Encoded between kernels, on an image that the next kernel reads."""
    x, weight = random((1, 12, 9, 6)), random((8, 6, 3, 3))
    convolution, relu = mpscnn.Convolution(weight, padding=1), mpscnn.NeuronReLU()
    with mpscnn.CommandBuffer() as commands:
        wide = convolution.encode(commands, mpscnn.Image.from_array(x))
        y = function.encode(commands, wide)
        z = relu.encode(commands, y)
    np.testing.assert_allclose(z.numpy(), np.maximum(swish(convolution(x), 1.5), 0), rtol=2e-6, atol=1e-6)
    again = mpscnn.Image(y.shape, "float16")
    with mpscnn.CommandBuffer() as commands:
        assert function.encode(commands, wide, out=again) is again
    np.testing.assert_array_equal(again.numpy(), y.numpy().astype(np.float16))
    assert isinstance(function(wide), mpscnn.Image)


def test_every_kind_of_argument() -> None:
    f = shift_function()
    assert [(one.name, one.kind, one.access, one.index) for one in f.arguments] == [
        ("x", "texture", "read", 0),
        ("z", "texture", "write", 1),
        ("y", "texture", "write", 2),
        ("p", "buffer", "read", 0),
        ("table", "buffer", "read", 1),
        ("sums", "buffer", "read_write", 2),
        ("n", "buffer", "read", 3),
    ]
    assert [one.nbytes for one in f.arguments] == [0, 0, 0, 48, 4, 4, 2]
    assert [one.scalar for one in f.arguments] == ["float32"] * 3 + ["", "float32", "float32", "uint16"]
    x, table, sums = random((1, 4, 3, 4)), np.arange(4, dtype=np.float32), mpscnn.Buffer(16)
    z, y = f(x, params(), table, sums, 3)
    np.testing.assert_allclose(y, 0.5 * x + np.float32([1, 2, 3, 4]), rtol=1e-6)
    np.testing.assert_allclose(z, 3 * x, rtol=1e-6)
    np.testing.assert_array_equal(sums.numpy("float32"), 2 * table)
    z, y = f(x=x, n=np.uint16(2), p=params().tobytes(), sums=sums, table=table, out_shape={"y": (1, 5, 3, 4)})
    assert (z.shape, y.shape) == (x.shape, (1, 5, 3, 4))
    np.testing.assert_allclose(z, 2 * x, rtol=1e-6)


def test_large_arrays_and_buffers() -> None:
    """More than the 4,096 bytes of setBytes."""
    source = HEAD + (
        "kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],"
        " uint i [[thread_position_in_grid]]) { y[i] = 3 * x[i]; }"
    )
    f = mpscnn.metal_function(source, "scale")
    x = random((5000,))
    y = mpscnn.Buffer(4 * x.size)
    assert f(x, y, grid=(x.size,)) is None
    np.testing.assert_array_equal(y.numpy("float32"), np.float32(3) * x)
    shared = mpscnn.Buffer(4 * x.size)
    shared.numpy("float32")[...] = x + 1
    f(shared, y, grid=[x.size], threadgroup=(64,))
    np.testing.assert_array_equal(y.numpy("float32"), np.float32(3) * (x + 1))


def test_constants_and_macros() -> None:
    source = HEAD + (
        "constant ushort n [[function_constant(0)]]; constant bool twice [[function_constant(1)]];"
        " constant float a [[function_constant(2)]]; constant int b [[function_constant(3)]];"
        "kernel void fill(texture2d_array<float, access::write> y [[texture(0)]],"
        " uint3 gid [[thread_position_in_grid]])"
        " { y.write(float4(n * (twice ? 2 : 1) + a + b + VALUE), gid.xy, gid.z); }"
    )
    f = mpscnn.metal_function(
        source, "fill", constants={"n": np.uint16(3), "twice": True, "a": 0.5, "b": -7}, macros={"VALUE": 100}
    )
    np.testing.assert_array_equal(f(out_shape=(1, 2, 2, 8)), np.full((1, 2, 2, 8), 99.5, np.float32))
    half = f(out_shape=(1, 2, 2, 8), out_dtype="float16")
    assert half.dtype == np.float16


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: f(), TypeError, r"^swish: the argument x is missing\.$"),
        (lambda f: f(1, 2), TypeError, r"^swish: 2 arguments; the function takes x\.$"),
        (lambda f: f(X, x=X), TypeError, r"^swish: x is given twice\.$"),
        (lambda f: f(X, z=1), TypeError, r'^swish: "z" is not one of its arguments \(x\)\.$'),
        (lambda f: f(3), TypeError, r"^swish: x \(int\) is not an Image or an array\.$"),
        (lambda f: f(X, out_shape=(1, 2)), ValueError, r"shape"),
        (
            lambda f: f(X, out_shape={"z": X.shape}),
            ValueError,
            r'^swish: out_shape has "z", which is not a result \(y\)',
        ),
        (lambda f: f(X, out_shape=4), TypeError, r"^swish: out_shape \(int\) is not a shape \(N, H, W, C\)\.$"),
        (lambda f: f(X, grid=(0, 1)), ValueError, r"^grid\[0\] \(0\) is less than the minimum \(1\)\.$"),
        (lambda f: f(X, grid=(1, 1, 1, 1)), ValueError, r"^len\(grid\) \(4\) is not 1, 2 or 3 \(x, y, z\)\.$"),
        (
            lambda f: f(X, threadgroup=(2048,)),
            ValueError,
            r"^swish: a threadgroup of 2048 x 1 x 1 threads is beyond the function's limit \(\d+\)\.$",
        ),
    ],
)
def test_wrong_calls(function: mpscnn.MetalFunction, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(function)


X = np.ones((1, 2, 2, 4), np.float32)


@pytest.mark.parametrize(
    ("named", "error", "message"),
    [
        ({"p": b"1234"}, ValueError, r"^apply: p has 4 bytes, not a multiple of the 48 bytes of its type\.$"),
        ({"p": 3}, TypeError, r"^apply: p \(int\) is not an array, as its type needs\.$"),
        ({"p": "x"}, TypeError, r"^apply: p \(str\) is not a number or an array\.$"),
        ({"n": 70000}, ValueError, r"^apply: n \(70000\) is greater than the maximum \(65535\)\.$"),
        ({"n": np.float32(1)}, TypeError, r"^apply: n\.dtype \(float32\) is not uint16, that of the source\.$"),
        ({"sums": X}, TypeError, r"^apply: sums \(ndarray\) is not a Buffer, which the function writes to\.$"),
        (
            {"x": np.ones((2, 2, 2, 4), np.float32)},
            ValueError,
            r"^apply: x is a texture2d, which has one image of at most 4 channels; .* is \(2, 2, 2, 4\)",
        ),
    ],
)
def test_wrong_values(named: dict[str, Any], error: type[Exception], message: str) -> None:
    f = shift_function()
    right = {"x": X, "p": params(), "table": np.ones(4, np.float32), "sums": mpscnn.Buffer(16), "n": 0}
    shapes = {"y": (1, 2, 2, 4), "z": (1, 2, 2, 4)}
    f(**right, out_shape=shapes)
    with pytest.raises(error, match=message):
        f(**(right | named), out_shape=shapes)
    f(**right, out_shape=shapes)


@pytest.mark.parametrize(
    ("source", "name", "options", "error", "message"),
    [
        (HEAD + "kernel void f(uint i [[thread_position_in_grid]]) {\n  int x = y;\n}", "f", {}, ValueError, r"4.*y"),
        (
            HEAD + "kernel void f(uint i [[thread_position_in_grid]]) {}",
            "g",
            {},
            ValueError,
            r'name \("g"\) .* has "f"',
        ),
        (HEAD, "g", {}, ValueError, r'name \("g"\) is not a function of the source, which has none\.'),
        (EMPTY.format("sum(f)"), "f", {}, ValueError, r":3: error: #pragma openmps sum is not product or permutation"),
        (EMPTY.format("product(g)"), "f", {}, ValueError, r":3: .* names g, which is not a kernel function"),
        (EMPTY.format("product f"), "f", {}, ValueError, r":3: .* takes the form meaning\(function\)"),
        (3, "g", {}, TypeError, r"source \(int\) is not a str"),
        (SWISH, "swish", {}, ValueError, r"beta"),
        (SWISH, "swish", {"constants": {"beta": "1"}}, TypeError, r"constants\['beta'\] \(str\) is not a number"),
        (SWISH, "swish", {"constants": {"beta": np.float64(1)}}, TypeError, r"constants\['beta'\] \(float64\)"),
        (SWISH, "swish", {"constants": {"beta": 2**31}}, ValueError, r"greater than the maximum \(2147483647\)"),
    ],
)
def test_wrong_sources(source: Any, name: str, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        mpscnn.metal_function(source, name, **options)


@pytest.mark.parametrize("rows", [6, 8])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products(dtype: str, rows: int) -> None:
    """The engine's own product is for matrices that fit; the function takes missing rows as zeros."""
    f = mpscnn.metal_function(general.SOURCE, "multiply_matrices")
    a, b = random((1, 3, 5, 8), dtype, seed=1), random((1, 3, rows, 7), dtype, seed=2)
    found = f(a, b, out_shape=(1, 3, 5, 7), grid=(2, 3, 2))
    expected = a[..., :rows].astype(float) @ b.astype(float)
    np.testing.assert_allclose(found, expected, atol=1e-6 if dtype == "float32" else 0.01)


def test_permutations_beyond_the_source() -> None:
    """Places behind the last value, and an axis that runs over the end of a row."""
    f = mpscnn.metal_function(general.SOURCE, "rearrange")
    x = random((1, 2, 3, 5), "float32", seed=3)

    def check(first: int, axes: list[tuple[int, int]], order: tuple[int, int, int] = (0, 1, 2)) -> None:
        """`axes`: extents and strides; `order`: that of rows, columns and channels in which places are counted."""
        extents, strides = zip(*axes, strict=True)
        shape = (1, 1, 1, *extents) if len(axes) == 1 else (1, 1, *extents)
        counted = x[0].transpose(order)
        p = np.array([len(axes), *shape[2:], *counted.shape, *order, first, *extents, *strides], np.uint32)
        index = np.full(extents, first)
        for axis, (extent, stride) in enumerate(axes):
            index += stride * np.arange(extent).reshape([-1 if i == axis else 1 for i in range(len(axes))])
        values = np.concatenate([counted.ravel(), np.zeros(64, np.float32)])
        np.testing.assert_array_equal(f(x, p=p, out_shape=shape).reshape(extents), values[index])

    check(20, [(20, 1)])
    check(1, [(4, 7)])
    check(3, [(3, 1), (3, 4)])
    check(3, [(3, 1)])
    check(1, [(2, 1)], (1, 2, 0))
    check(2, [(3, 6), (2, 1)], (2, 1, 0))
    check(29, [(5, 1)], (1, 2, 0))


def test_a_function_without_results_needs_a_grid() -> None:
    f = mpscnn.metal_function(HEAD + "kernel void f(device int* y [[buffer(0)]]) { y[0] = 7; }", "f")
    y = mpscnn.Buffer(4)
    with pytest.raises(ValueError, match=r"^f: grid is missing: the function has no result"):
        f(y)
    f(y, grid=(1,))
    assert y.numpy("int32")[0] == 7
    assert repr(f) == '<mpscnn.MetalFunction "f">'
    assert f.name == "f"
    assert f.device == mpscnn.Device()


def test_threadgroup_memory() -> None:
    source = HEAD + (
        "kernel void reverse(device float* x [[buffer(0)]], threadgroup float* copy [[threadgroup(0)]],"
        " uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {"
        " copy[i] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = copy[n - 1 - i]; }"
    )
    f = mpscnn.metal_function(source, "reverse")
    x = mpscnn.Buffer(4 * 64)
    x.numpy("float32")[...] = np.arange(64)
    f(x, 4 * 64, grid=(64,), threadgroup=(64,))
    np.testing.assert_array_equal(x.numpy("float32"), np.arange(64)[::-1])


@pytest.mark.parametrize("fast_math", [True, False])
@pytest.mark.parametrize(("kind", "dtype"), [("float4", "float32"), ("float3", "float32"), ("half4", "float16")])
def test_exponentials_of_vectors(kind: str, dtype: str, fast_math: bool) -> None:
    """To one rounding in float32, also where results are subnormal, infinite or NaN."""
    packed = kind.replace("float3", "packed_float3")
    source = HEAD + (
        f"kernel void e(device const {packed}* x [[buffer(0)]], device {packed}* y [[buffer(1)]],"
        f" uint i [[thread_position_in_grid]]) {{ y[i] = exp({kind}(x[i])); }}"
    )
    special = [0, -0.0, np.inf, -np.inf, np.nan, 88.7228, 88.7229, 1e30, -1e30, -87.4, -103.9, -104.5]
    with np.errstate(over="ignore"):
        x = np.concatenate([np.linspace(-106, 90, 120000), special]).astype(dtype)
        expected = np.exp(x.astype(np.float64))
        rounded = expected.astype(np.float32).astype(dtype)
    lanes = int(kind[-1])
    y = mpscnn.Buffer(x.nbytes)
    mpscnn.metal_function(source, "e", fast_math=fast_math)(x, y, grid=(x.size // lanes,))
    got = y.numpy(dtype)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(rounded))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    finite = np.isfinite(rounded)
    step = np.spacing(np.abs(rounded[finite]))
    assert np.all(np.abs(got[finite].astype(np.float64) - expected[finite]) <= 0.51 * step)


SAMPLED = (
    HEAD
    + """
kernel void resize(texture2d<float> x [[texture(0)]], texture2d<float, access::write> y [[texture(1)]],
                   sampler s [[sampler(0)]], constant float2& shift [[buffer(0)]],
                   uint2 gid [[thread_position_in_grid]]) {
    y.write(x.sample(s, (float2(gid) + 0.5) / float2(y.get_width(), y.get_height()) + shift), gid);
}
"""
)


def doubled(x: np.ndarray) -> np.ndarray:
    """Twice the height and width, linear between the centers of pixels."""
    for axis in (1, 2):
        at = np.clip((np.arange(2 * x.shape[axis]) - 0.5) / 2, 0, x.shape[axis] - 1)
        left = np.floor(at).astype(int)
        right = np.minimum(left + 1, x.shape[axis] - 1)
        part = (at - left).reshape([-1 if i == axis else 1 for i in range(4)])
        x = x.take(left, axis) * (1 - part) + x.take(right, axis) * part
    return x


def test_samplers() -> None:
    """A sampler is a dict with the words that the language has for its options."""
    f = mpscnn.metal_function(SAMPLED, "resize")
    assert [(one.name, one.kind, one.index) for one in f.arguments][-1] == ("s", "sampler", 0)
    x, none = random((1, 4, 3, 4)), np.zeros(2, np.float32)
    y = f(x, none, {"filter": "linear"}, out_shape=(1, 8, 6, 4))
    np.testing.assert_allclose(y, doubled(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(f(x, none, s={}, out_shape=(1, 8, 6, 4)), x.repeat(2, 1).repeat(2, 2))
    shift = np.float32([1 / 3, -1 / 4])  # one pixel to the right, one up
    np.testing.assert_array_equal(f(x, shift, {"address": "repeat"}), np.roll(x, (1, -1), (1, 2)))
    shifted = f(x, shift, {"s_address": "clamp_to_zero", "address": "repeat"})
    np.testing.assert_array_equal(shifted[:, :, 2], 0)
    np.testing.assert_array_equal(shifted[:, :, :2], np.roll(x, 1, 1)[:, :, 1:])
    white = f(x, shift, {"address": "clamp_to_border", "border_color": "opaque_white"})
    np.testing.assert_array_equal(white[:, 0], 1)
    pixels = f(x, none, {"coord": "pixel", "filter": "nearest"}, out_shape=(1, 2, 2, 4))
    np.testing.assert_array_equal(pixels, np.broadcast_to(x[:, :1, :1], (1, 2, 2, 4)))
    for wrong, error, message in [
        (3, TypeError, r"^resize: s \(int\) is not a dict of a sampler's options\.$"),
        ({"mip": "linear"}, ValueError, r'^resize: s: "mip" is not an option of a sampler \(coord, filter, '),
        ({"filter": "cubic"}, ValueError, r'^resize: s: filter \("cubic"\) is not one of "nearest", "linear"\.$'),
        ({"coord": "pixel", "address": "repeat"}, ValueError, r'coord \("pixel"\) does not go with an address'),
    ]:
        with pytest.raises(error, match=message):
            f(x, none, wrong)


def test_sampler_of_a_layer() -> None:
    f = mpscnn.metal_function(SAMPLED, "resize")
    graph = mpscnn.Graph()
    options = {"shift": np.zeros(2, np.float32), "s": {"filter": "linear"}}
    y = graph.add(f, graph.input("x", channels=4), out_shape=lambda x: (x[0], 2 * x[1], 2 * x[2], 4), **options)
    graph.output(y, "y")
    x = random((3, 4, 3, 4))
    np.testing.assert_allclose(mpscnn.Network(graph)(x), doubled(x), rtol=1e-5, atol=1e-6)
