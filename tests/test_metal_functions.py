# SPDX-License-Identifier: Apache-2.0
"""Metal functions (tests/functions/*.metal) against NumPy; tests/objc/functions_test.mm runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import only_openmps

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "tests" / "functions"
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
Array = np.ndarray[Any, Any]

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="the program tries openmps, which is not built on macOS"),
    only_openmps("the program tries openmps itself"),
    pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan"),
]

FORMATS = {"uint8": 1, "uint16": 2, "float16": 3, "float32": 4}  # MPSImageFeatureChannelFormat
# MTLDataType of function constants.
TYPES = {"float": 3, "float2": 4, "half": 16, "int": 29, "ushort": 41, "bool": 53}


@dataclass
class Call:
    """A call: arrays by index. Textures are N, H, W, C in the image's own type."""

    source: str
    function: str
    threads: tuple[int, int, int] = (1, 1, 1)
    group: tuple[int, int, int] = (1, 1, 1)
    groups: tuple[int, int, int] | None = None
    textures: dict[int, Array] = field(default_factory=dict)
    buffers: dict[int, Array] = field(default_factory=dict)
    bytes_: dict[int, Array] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    samplers: dict[int, dict[str, int]] = field(default_factory=dict)
    constants: list[tuple[int, str, Array]] | None = None
    macros: dict[str, str] = field(default_factory=dict)
    fast_math: bool = True


@dataclass
class Results:
    textures: dict[int, Array]
    buffers: dict[int, Array]


def start(call: Call, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Write the job, and run the program."""

    def keep(name: str, array: Array) -> str:
        (folder / name).write_bytes(np.ascontiguousarray(array).tobytes())
        return str(folder / name)

    job: dict[str, Any] = {
        "source": str(FUNCTIONS / call.source),
        "function": call.function,
        "group": call.group,
        "macros": call.macros,
        "fast_math": int(call.fast_math),
        "textures": [
            {"index": i, "format": FORMATS[a.dtype.name], "file": keep(f"texture{i}", a)}
            | dict(zip("nhwc", a.shape, strict=True))
            for i, a in call.textures.items()
        ],
        "buffers": [
            {"index": i, "file": keep(f"buffer{i}", a), "offset": call.offsets.get(i, 0)}
            for i, a in call.buffers.items()
        ],
        "bytes": [{"index": i, "file": keep(f"bytes{i}", a)} for i, a in call.bytes_.items()],
        "samplers": [{"index": i, "filter": 0, "normalized": 1} | each for i, each in call.samplers.items()],
        "memory": [{"index": i, "length": length} for i, length in call.memory.items()],
    }
    job |= {"groups": call.groups} if call.groups else {"threads": call.threads}
    if call.constants is not None:
        job["constants"] = [
            {"index": i, "type": TYPES[name], "file": keep(f"constant{i}", a)} for i, name, a in call.constants
        ]
    (folder / "job.json").write_text(json.dumps(job))
    assert FOLDER is not None
    command = [str(ROOT / FOLDER / "objc_functions"), str(folder / "job.json")]
    settings = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=settings)


def run(call: Call, folder: Path, **environment: str) -> Results:
    ended = start(call, folder, **environment)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]

    def read(name: str, like: Array) -> Array:
        result: Array = np.frombuffer((folder / f"{name}.out").read_bytes(), like.dtype).reshape(like.shape)
        return result

    return Results(
        {i: read(f"texture{i}", a) for i, a in call.textures.items()},
        {i: read(f"buffer{i}", a) for i, a in call.buffers.items()},
    )


def close(got: Array, expected: Any, tolerance: float = 1e-6) -> None:
    if got.dtype == np.float16:
        tolerance = max(tolerance, 1e-3)
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def uint(*values: int) -> Array:
    return np.array(values, np.uint32)


def floats(*shape: int, seed: int = 0, dtype: str = "float32", low: float = -2, high: float = 2) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def zeros(*shape: int, dtype: str = "float32") -> Array:
    return np.full(shape, 77, dtype)  # not 0: what is not written stays


def rounded_up(n: int, k: int) -> int:
    return (n + k - 1) // k


# ---------------------------------------------------------------------------------------------------- images

SHAPES = [(5, 7, 3), (19, 33, 24), (224, 224, 64), (9, 4, 10), (8, 8, 8)]


def over(h: int, w: int, slices: int) -> dict[str, Any]:
    """Threadgroups of 8 x 8 that cover an image, with threads outside of it."""
    return {"groups": (rounded_up(w, 8), rounded_up(h, 8), slices), "group": (8, 8, 1)}


@pytest.mark.parametrize(("h", "w", "c"), [s for s in SHAPES if s[2] > 4])
def test_planes(h: int, w: int, c: int, tmp_path: Path) -> None:
    planes = floats(c, h, w)
    size = uint(h, w, c)
    args = {"buffers": {0: planes}, "bytes_": {1: size}, **over(h, w, rounded_up(c, 4))}
    image = run(Call("images.metal", "from_planes", textures={0: zeros(1, h, w, c, dtype="float16")}, **args), tmp_path)
    expected = planes.transpose(1, 2, 0)[None].astype(np.float16)
    np.testing.assert_array_equal(image.textures[0], expected)
    args["buffers"] = {0: zeros(c, h, w)}
    back = run(Call("images.metal", "to_planes", textures={0: image.textures[0]}, **args), tmp_path)
    np.testing.assert_array_equal(back.buffers[0], expected[0].transpose(2, 0, 1).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "formula"),
    [("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("maximum", np.maximum)],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_elementwise(name: str, formula: Callable[..., Array], dtype: str, tmp_path: Path) -> None:
    """Images of float16 are read and written as floats."""
    for n, h, w, c in [(1, 19, 33, 24), (3, 6, 5, 10), (1, 7, 7, 5)]:
        a, b = floats(n, h, w, c, dtype=dtype), floats(n, h, w, c, seed=1, dtype=dtype)
        call = Call("images.metal", name, textures={0: a, 1: b, 2: zeros(n, h, w, c, dtype=dtype)})
        call.groups, call.group = (rounded_up(w, 8), rounded_up(h, 8), n * rounded_up(c, 4)), (8, 8, 1)
        expected = formula(a.astype(np.float32), b.astype(np.float32)).astype(dtype)
        np.testing.assert_array_equal(run(call, tmp_path).textures[2], expected)


def test_formats_of_one_call(tmp_path: Path) -> None:
    """Each texture of a call has a format of its own; unorm8 is clamped and rounded."""
    a = np.random.default_rng(0).integers(0, 256, (1, 9, 11, 8), np.uint8)
    b = floats(1, 9, 11, 8, dtype="float16", low=-1, high=1)
    call = Call("images.metal", "add", threads=(11, 9, 2), group=(4, 4, 1))
    call.textures = {0: a, 1: b, 2: zeros(1, 9, 11, 8, dtype="uint8")}
    total = np.clip(a / np.float32(255) + b.astype(np.float32), 0, 1)
    np.testing.assert_array_equal(run(call, tmp_path).textures[2], np.rint(total * np.float32(255)).astype(np.uint8))
    call.textures[2] = zeros(1, 9, 11, 8, dtype="uint16")
    got = run(call, tmp_path).textures[2].astype(np.float64)
    assert abs(got - total.astype(np.float64) * 65535).max() <= 0.51


@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_lanes(c: int, tmp_path: Path) -> None:
    """Lanes that a format lacks read as (0, 0, 0, 1); the fourth of three channels reads 0."""
    image = floats(1, 6, 5, c)
    call = Call("images.metal", "lanes", threads=(5, 6, 1), group=(5, 1, 1))
    call.textures, call.buffers = {0: image}, {0: zeros(6, 5, 4)}
    expected = np.zeros((6, 5, 4), np.float32)
    expected[..., 3] = 1 if c < 3 else 0
    expected[..., :c] = image[0]
    np.testing.assert_array_equal(run(call, tmp_path).buffers[0], expected)


def test_clamp(tmp_path: Path) -> None:
    image = floats(1, 17, 9, 4, dtype="float16")
    call = Call("images.metal", "clamp_values", textures={0: image, 1: zeros(1, 17, 9, 4, dtype="float16")})
    call.groups, call.group, call.bytes_ = (2, 3, 1), (8, 8, 1), {0: np.array([-0.5, 0.25], np.float32)}
    np.testing.assert_array_equal(run(call, tmp_path).textures[1], np.clip(image, np.float16(-0.5), np.float16(0.25)))


@pytest.mark.parametrize(("to_h", "to_w"), [(14, 20), (5, 3), (7, 10)])
def test_resize_nearest(to_h: int, to_w: int, tmp_path: Path) -> None:
    image = floats(1, 7, 10, 12, dtype="float16")
    call = Call("images.metal", "resize_nearest", threads=(to_w, to_h, 3), group=(8, 8, 1))
    call.textures = {0: image, 1: zeros(1, to_h, to_w, 12, dtype="float16")}
    expected = image[:, np.arange(to_h) * 7 // to_h][:, :, np.arange(to_w) * 10 // to_w]
    np.testing.assert_array_equal(run(call, tmp_path).textures[1], expected)


def test_concat(tmp_path: Path) -> None:
    a, b = floats(1, 13, 9, 8, dtype="float16"), floats(1, 13, 9, 7, seed=1, dtype="float16")
    call = Call("images.metal", "concat", threads=(9, 13, 4), group=(3, 13, 1))
    call.textures = {0: a, 1: b, 2: zeros(1, 13, 9, 15, dtype="float16")}
    np.testing.assert_array_equal(run(call, tmp_path).textures[2], np.concatenate([a, b], -1))


@pytest.mark.parametrize("by", [(2, -1, 0), (-40, 0, 0), (0, 3, 1), (1, 1, -1), (0, 0, 9)])
def test_reads_outside(by: tuple[int, int, int], tmp_path: Path) -> None:
    """Reads outside of the image, in each direction and slice, are 0."""
    image = floats(1, 6, 9, 12)
    call = Call("images.metal", "shift", threads=(9, 6, 3), group=(4, 2, 1))
    call.textures, call.bytes_ = {0: image, 1: zeros(1, 6, 9, 12)}, {0: np.array([*by, 0], np.int32)}
    expected = np.zeros_like(image)
    for y, x, z in np.ndindex(6, 9, 3):
        at = np.array([x, y, z]) + by
        if (at >= 0).all() and (at < [9, 6, 3]).all():
            expected[0, y, x, 4 * z : 4 * z + 4] = image[0, at[1], at[0], 4 * at[2] : 4 * at[2] + 4]
    np.testing.assert_array_equal(run(call, tmp_path).textures[1], expected)


def test_writes_outside(tmp_path: Path) -> None:
    """Writes outside of the image change nothing, in it or behind it."""
    call = Call("images.metal", "scatter", threads=(12, 12, 1), group=(4, 4, 1), textures={0: zeros(1, 5, 6, 4)})
    y, x = np.indices((5, 6))
    expected = np.stack([x + 2, y + 2, np.ones_like(x), 2 * np.ones_like(x)], -1)[None]
    np.testing.assert_array_equal(run(call, tmp_path).textures[0], expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_read_write(dtype: str, tmp_path: Path) -> None:
    image = floats(2, 6, 9, 6, dtype=dtype)
    call = Call("images.metal", "in_place", threads=(9, 6, 4), group=(4, 4, 1), textures={0: image})
    np.testing.assert_array_equal(run(call, tmp_path).textures[0], (image.astype(np.float32) * 2 + 1).astype(dtype))


def test_convolution(tmp_path: Path) -> None:
    image, weights = floats(1, 29, 31, 8, dtype="float16"), floats(9, dtype="float16")
    call = Call("images.metal", "convolve_3x3", textures={0: image, 1: zeros(*image.shape, dtype="float16")})
    call.buffers, call.groups, call.group = {0: weights}, (4, 4, 2), (8, 8, 1)
    padded = np.pad(image.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = sum(padded[:, i // 3 : i // 3 + 29, i % 3 : i % 3 + 31] * np.float32(weights[i]) for i in range(9))
    close(run(call, tmp_path).textures[1], expected, 2e-3)


# -------------------------------------------------------------------------------------------------- samplers


def index(mode: str, i: Array, n: int) -> tuple[Array, Array]:
    """Return texel indices, and whether they are inside."""
    if mode == "edge":
        return np.clip(i, 0, n - 1), np.ones(i.shape, bool)
    if mode == "repeat":
        return i % n, np.ones(i.shape, bool)
    if mode == "mirrored once":
        return np.clip(np.where(i < 0, -1 - i, i), 0, n - 1), np.ones(i.shape, bool)
    if mode == "mirrored":
        j = i % (2 * n)
        return np.where(j < n, j, 2 * n - 1 - j), np.ones(i.shape, bool)
    return np.clip(i, 0, n - 1), (i >= 0) & (i < n)


def texels(image: Array, modes: tuple[str, str], y: Array, x: Array, border: Any = 0) -> Array:
    (i, row), (j, column) = index(modes[0], y, image.shape[0]), index(modes[1], x, image.shape[1])
    return np.where((row & column)[:, None], image[i, j], border)


def sampled(
    image: Array, at: Array, mode: str | tuple[str, str], linear: bool, normalized: bool, border: Any = 0
) -> Array:
    """Sample at (x, y) with an address mode, or those of rows and of columns."""
    modes = (mode, mode) if isinstance(mode, str) else mode
    at = at.astype(np.float64) * ([image.shape[1], image.shape[0]] if normalized else 1)
    if not linear:
        i = np.floor(at).astype(int)
        return texels(image, modes, i[:, 1], i[:, 0], border)
    first = np.floor(at - 0.5).astype(int)
    u, v = (at - 0.5 - first).T[:, :, None]
    x, y = first.T
    upper = texels(image, modes, y, x, border) * (1 - u) + texels(image, modes, y, x + 1, border) * u
    lower = texels(image, modes, y + 1, x, border) * (1 - u) + texels(image, modes, y + 1, x + 1, border) * u
    result: Array = upper * (1 - v) + lower * v
    return result


@pytest.mark.parametrize(
    ("name", "mode", "linear", "normalized"),
    [
        ("nearest_edge", "edge", False, False),
        ("nearest_normalized", "edge", False, True),
        ("linear_edge", "edge", True, False),
        ("linear_zero", "zero", True, False),
        ("linear_repeat", "repeat", True, True),
        ("nearest_mirrored", "mirrored", False, True),
    ],
)
def test_samplers(name: str, mode: str, linear: bool, normalized: bool, tmp_path: Path) -> None:
    image = floats(1, 11, 7, 4)
    low, high = (-1.5, 2.5) if normalized else (-6, 17)
    at = floats(200, 2, low=low, high=high)
    call = Call("samplers.metal", name, threads=(200, 1, 1), group=(64, 1, 1), textures={0: image})
    call.buffers = {0: at, 1: zeros(200, 4)}
    close(run(call, tmp_path).buffers[1], sampled(image[0], at, mode, linear, normalized), 1e-5)


MODES = ["edge", "mirrored once", "repeat", "mirrored", "zero", "border"]  # by MTLSamplerAddressMode
BORDERS = [[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]]  # by MTLSamplerBorderColor


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(
    ("s", "t", "border"), [(0, 3, 0), (1, 2, 0), (2, 1, 0), (3, 0, 0), (4, 4, 0), (5, 5, 1), (5, 0, 2), (0, 5, 1)]
)
def test_sampler_arguments(s: int, t: int, border: int, linear: bool, tmp_path: Path) -> None:
    image, at = floats(1, 11, 7, 4), floats(200, 2, low=-1.5, high=2.5)
    call = Call("samplers.metal", "given", threads=(200, 1, 1), group=(64, 1, 1), textures={0: image})
    call.buffers = {0: at, 1: zeros(200, 2, 4)}
    call.samplers = {0: {}, 2: {"filter": int(linear), "s": s, "t": t, "border": border}}
    got = run(call, tmp_path).buffers[1]
    close(got[:, 0], sampled(image[0], at, "edge", False, True))
    close(got[:, 1], sampled(image[0], at, (MODES[t], MODES[s]), linear, True, BORDERS[border]), 1e-5)


def test_constexpr_border(tmp_path: Path) -> None:
    image, at = floats(1, 11, 7, 4), floats(200, 2, low=-6, high=17)
    call = Call("samplers.metal", "white_border", threads=(200, 1, 1), group=(64, 1, 1), textures={0: image})
    call.buffers = {0: at, 1: zeros(200, 4)}
    close(run(call, tmp_path).buffers[1], sampled(image[0], at, "border", True, False, BORDERS[2]), 1e-5)


def test_linear_slices(tmp_path: Path) -> None:
    image = floats(1, 8, 6, 12, dtype="float16")
    call = Call("samplers.metal", "linear_slices", threads=(15, 20, 3), group=(8, 8, 1))
    call.textures = {0: image, 1: zeros(1, 20, 15, 12, dtype="float16")}
    y, x = np.indices((20, 15))
    at = np.stack([(x.ravel() + 0.5) / 15, (y.ravel() + 0.5) / 20], -1)
    expected = sampled(image[0].astype(np.float64), at, "edge", True, True).reshape(1, 20, 15, 12)
    close(run(call, tmp_path).textures[1], expected, 2e-3)


# ------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("threads", "group"),
    [((7, 5, 3), (4, 2, 2)), ((8, 4, 2), (4, 4, 2)), ((1, 1, 9), (1, 1, 4)), ((70, 2, 1), (32, 2, 1))],
)
def test_ids(threads: tuple[int, int, int], group: tuple[int, int, int], tmp_path: Path) -> None:
    call = Call("arguments.metal", "ids", threads=threads, group=group)
    call.buffers = {0: np.zeros((threads[2], threads[1], threads[0], 22), np.uint32)}
    got = run(call, tmp_path).buffers[0]
    for z, y, x in np.ndindex(got.shape[:3]):
        at, per, all_ = np.array([x, y, z]), np.array(group), np.array(threads)
        local, which = at % per, at // per
        size = np.minimum(per, all_ - which * per)
        linear = (local[2] * size[1] + local[1]) * size[0] + local[0]
        groups = -(-all_ // per)
        assert got[z, y, x].tolist() == [*at, *local, linear, *which, *size, *per, *all_, *groups]


def test_small_ids(tmp_path: Path) -> None:
    call = Call("arguments.metal", "small_ids", threads=(11, 6, 1), group=(4, 4, 1))
    call.buffers = {0: np.zeros((6, 11, 7), np.uint16)}
    got = run(call, tmp_path).buffers[0]
    for y, x in np.ndindex(6, 11):
        size = min(4, 11 - x // 4 * 4)
        assert got[y, x].tolist() == [x, y, x % 4, y % 4 * size + x % 4, x // 4, y // 4, size]


def test_without_indices(tmp_path: Path) -> None:
    b = floats(9)
    call = Call("arguments.metal", "without_indices", threads=(9, 1, 1), group=(3, 1, 1))
    call.buffers, call.bytes_ = {0: zeros(9), 1: b}, {2: np.array([3], np.float32)}
    close(run(call, tmp_path).buffers[0], 3 * b)


@pytest.mark.parametrize("negate", [0, 1])
def test_structs(negate: int, tmp_path: Path) -> None:
    """Fields have Metal's offsets: float3 takes 16 bytes, packed_float3 12."""
    inner = np.dtype(
        {
            "names": ["color", "packed", "small"],
            "formats": [("f4", 3), ("f4", 3), ("f2", 4)],
            "offsets": [0, 16, 32],
            "itemsize": 48,
        }
    )
    outer = np.dtype(
        {
            "names": ["inner", "scale", "count", "negate"],
            "formats": [(inner, 2), ("f4", 2), "u2", "u1"],
            "offsets": [0, 96, 104, 106],
            "itemsize": 112,
        }
    )
    p = np.zeros(1, outer)
    p["inner"]["color"], p["inner"]["packed"] = floats(1, 2, 3), floats(1, 2, 3, seed=1)
    p["inner"]["small"], p["scale"], p["count"], p["negate"] = floats(1, 2, 4, seed=2), (5, 3), 2, negate
    call = Call("arguments.metal", "structs", buffers={0: zeros(1)}, bytes_={1: p})
    each = p["inner"][0]
    expected = (
        (each["color"] * each["packed"]).sum()
        + each["small"][:, 3].astype(np.float64).sum()
        + each["packed"][:, 1].sum()
    )
    close(run(call, tmp_path).buffers[0], [-3 * expected if negate else expected], 1e-5)


def test_element_types(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    buffers = {
        0: rng.integers(0, 256, (20, 4), np.uint8),
        1: rng.integers(-30000, 30000, 20, np.int16),
        2: floats(20, dtype="float16"),
        3: rng.integers(-1000, 1000, 20, np.int64),
    }
    call = Call("arguments.metal", "element_types", threads=(20, 1, 1), group=(7, 1, 1), buffers=buffers)
    got = run(call, tmp_path).buffers
    np.testing.assert_array_equal(got[0], buffers[0][:, ::-1] + np.uint8(1))
    np.testing.assert_array_equal(got[1], np.trunc(-buffers[1].astype(float) / 2).astype(np.int16))
    close(got[2], buffers[2].astype(np.float64) / 2 + 1)
    np.testing.assert_array_equal(got[3], buffers[3] * 3000000000)


def test_buffer_offsets(tmp_path: Path) -> None:
    b = floats(20)
    call = Call("arguments.metal", "without_indices", threads=(9, 1, 1), group=(9, 1, 1), offsets={0: 8, 1: 16})
    call.buffers, call.bytes_ = {0: zeros(20), 1: b}, {2: np.array([3], np.float32)}
    expected = zeros(20)
    expected[2:11] = 3 * b[4:13]
    close(run(call, tmp_path).buffers[0], expected)


# ---------------------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("n", [64, 1000, 40000])
def test_reduce(n: int, tmp_path: Path) -> None:
    groups = rounded_up(n, 64)
    x = floats(n)
    call = Call("groups.metal", "reduce", groups=(groups, 1, 1), group=(64, 1, 1))
    call.buffers, call.bytes_ = {0: x, 1: zeros(groups)}, {2: uint(n)}
    expected = np.pad(x, (0, groups * 64 - n)).reshape(groups, 64).sum(1)
    close(run(call, tmp_path).buffers[1], expected, 1e-4)


@pytest.mark.parametrize("size", [16, 256, 1024])
def test_barriers_in_functions(size: int, tmp_path: Path) -> None:
    x = floats(3, size)
    call = Call(
        "groups.metal", "standardize", groups=(3, 1, 1), group=(size, 1, 1), memory={0: 4 * size}, buffers={0: x}
    )
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    close(run(call, tmp_path).buffers[0], expected, 1e-4)


@pytest.mark.parametrize("shape", [(1, 56, 56, 24), (2, 5, 9, 8)])
def test_instance_norm(shape: tuple[int, int, int, int], tmp_path: Path) -> None:
    image = floats(*shape, dtype="float16")
    call = Call("groups.metal", "instance_norm", textures={0: image, 1: zeros(*shape, dtype="float16")})
    call.groups, call.group = (1, 1, shape[0] * shape[3] // 4), (16, 16, 1)
    x = image.astype(np.float64)
    expected = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5)
    close(run(call, tmp_path).textures[1], expected, 3e-3)


def test_rounds(tmp_path: Path) -> None:
    call = Call(
        "groups.metal", "rounds", groups=(40, 1, 1), group=(32, 1, 1), buffers={0: np.zeros((40, 32), np.uint32)}
    )
    expected = [np.roll(np.arange(32) + 32 * group, -group) for group in range(40)]
    np.testing.assert_array_equal(run(call, tmp_path).buffers[0], expected)


@pytest.mark.parametrize("groups", [(2, 3, 4), (5, 2, 3), (1, 4, 2)])
def test_positions_of_groups(tmp_path: Path, groups: tuple[int, int, int]) -> None:
    call = Call("groups.metal", "positions", groups=groups, group=(2, 2, 1))
    call.buffers = {0: np.zeros((*groups[::-1], 4), np.uint32)}
    z, y, x = np.indices(groups[::-1])
    expected = np.repeat((x + 10 * y + 100 * z)[..., None], 4, axis=-1)
    np.testing.assert_array_equal(run(call, tmp_path).buffers[0], expected)


def test_histogram(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(3, 251, 128 * 100, np.uint8)
    call = Call("groups.metal", "histogram", groups=(100, 1, 1), group=(128, 1, 1))
    call.buffers = {0: x, 1: np.zeros(16, np.uint32), 2: np.array([-5, 999], np.int32)}
    got = run(call, tmp_path).buffers
    np.testing.assert_array_equal(got[1], np.bincount(x // 16, minlength=16))
    assert got[2].tolist() == [x.max(), x.min()]


def test_atomics_without_groups(tmp_path: Path) -> None:
    call = Call("groups.metal", "count", threads=(1000, 100, 1), group=(32, 1, 1), buffers={0: uint(5)})
    assert run(call, tmp_path).buffers[0].tolist() == [5 + 2 * 334 * 100]


# -------------------------------------------------------------------------------------------------- language


def test_swizzles(tmp_path: Path) -> None:
    v = floats(6, 4)
    call = Call("language.metal", "swizzles", threads=(6, 1, 1), group=(6, 1, 1), buffers={0: v})
    a = v.astype(np.float64)[:, [1, 0, 2, 3]]
    a[:, 2:] *= 2
    a[:, :3] += [1, 2, 3]
    b = a[:, [3, 2]] + 1
    a[:, 0] += b[:, 1]
    close(run(call, tmp_path).buffers[0], np.stack([a[:, 2], a[:, 1], a[:, 0], b[:, 0]], 1))


def test_constructors(tmp_path: Path) -> None:
    call = Call("language.metal", "constructors", buffers={0: zeros(8, 4)})
    expected = [
        [1, 2, 3, 4], [1.5, 1.5, 1.5, 2], [-1, 2, -3, 4], np.array([200, 100, 50, 255]) / 255,
        [np.float16(0.1), 1e4, -2, 3.5], [7] * 4, [2, 3, 4, 5], [2, 1, 2, 1],
    ]  # fmt: skip
    close(run(call, tmp_path).buffers[0], np.array(expected, np.float64))


def test_literals(tmp_path: Path) -> None:
    call = Call("language.metal", "literals", buffers={0: zeros(14)})
    expected = [0, 1 / 3, 16, 1e-3, 2.5, np.inf, 1, np.pi, 4 + 160 + 12000 + 800000, 1, 0.5, 1 - 7 - 3, np.pi, 0x3C00]
    close(run(call, tmp_path).buffers[0], expected)


def test_halves(tmp_path: Path) -> None:
    x = floats(100, dtype="float16", low=-20, high=20)
    call = Call("language.metal", "halves", threads=(100, 1, 1), group=(32, 1, 1), buffers={0: x}, fast_math=False)
    c = x * x + np.float16(1)
    close(run(call, tmp_path).buffers[0], np.where(c > 100, c / np.float16(3), -c), 1e-3)


def test_integers(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-50, 50, 40, np.int32)
    call = Call(
        "language.metal",
        "integers",
        threads=(40, 1, 1),
        group=(8, 1, 1),
        buffers={0: x, 1: np.zeros((40, 6), np.int32)},
    )
    bits = x.astype(np.uint32)
    short = [(x + i).astype(np.uint16).astype(np.int64) for i in range(3)]
    expected = np.stack(
        [
            abs(x) % 7,
            np.maximum(x, 3) - np.minimum(x, -3),
            [int(b).bit_count() for b in bits],
            [32 - int(b).bit_length() for b in bits],
            np.clip(x, -10, 10) * 4,
            (short[1] ^ 3) + (short[2] >> 1),
        ],
        1,
    )
    np.testing.assert_array_equal(run(call, tmp_path).buffers[1], expected)


def test_matrices(tmp_path: Path) -> None:
    columns, v, h = floats(4, 4), floats(4, seed=1), floats(4, 4, seed=2, dtype="float16")
    call = Call("language.metal", "matrices", buffers={0: zeros(6, 4)}, bytes_={1: columns, 2: v, 3: h})
    m = columns.T.astype(np.float64)
    r = np.array([[2, 0, 1], [0, 3, 0], [0, 0, 4]])
    half = h.T.astype(np.float64) @ v.astype(np.float16).astype(np.float64)
    expected = [m @ v, v @ m, (m @ m.T)[:, 1], half, [*(r @ v[:3]), 24], [3, 2, 6, 12]]
    got = run(call, tmp_path).buffers[0]
    close(got[[0, 1, 2, 4, 5]], [expected[i] for i in (0, 1, 2, 4, 5)], 1e-5)
    close(got[3], half, 1e-2)


@pytest.mark.parametrize("fast_math", [True, False])
def test_math(fast_math: bool, tmp_path: Path) -> None:
    x = np.concatenate([floats(300, low=-6, high=6), np.array([0, 0.5, -0.5, 1.5, 2.5, -2.5, 1], np.float32)])
    call = Call("language.metal", "math", threads=(x.size, 1, 1), group=(64, 1, 1), fast_math=fast_math)
    call.buffers = {0: x, 1: zeros(32, x.size)}
    d = x.astype(np.float64)
    y = abs(d) + 0.1
    away = np.sign(d) * np.floor(abs(d) + 0.5)
    t = np.clip((d + 1) / 2, 0, 1)
    expected = [
        np.exp(d), np.exp2(d), np.sin(d), np.cos(d), np.tanh(d), np.arctan(d), np.floor(d), np.ceil(d), away,
        np.rint(d), np.trunc(d), abs(d), abs(d), np.sign(d), np.clip(d, 0, 1), d - np.floor(d),
        np.log(y), np.log2(y), np.log10(y), np.sqrt(y), 1 / np.sqrt(y), y**1.5, np.exp(-y), d * y + 1, d + (y - d) / 4,
        d >= 0.5, t * t * (3 - 2 * t), np.clip(d, -0.5, 0.5), np.fmod(x, np.float32(0.7)), np.arctan2(d, y),
        np.clip(d, -1, 1), np.copysign(y, d),
    ]  # fmt: skip
    close(run(call, tmp_path).buffers[1], expected, 1e-5)


def test_geometry(tmp_path: Path) -> None:
    a, b = floats(10, 4), floats(10, 4, seed=1)
    call = Call(
        "language.metal", "geometry", threads=(10, 1, 1), group=(10, 1, 1), buffers={0: a, 1: b, 2: zeros(10, 11)}
    )
    p, q = a[:, :3].astype(np.float64), b[:, :3].astype(np.float64)
    length = np.linalg.norm(p, axis=1)
    columns = [
        (p * q).sum(1),
        length,
        np.linalg.norm(p - q, axis=1),
        *(p / length[:, None]).T,
        *np.cross(p, q).T,
        (q * q).sum(1),
        (p > q).any(1),
    ]
    close(run(call, tmp_path).buffers[2], np.stack(columns, 1), 1e-5)


def test_calls(tmp_path: Path) -> None:
    call = Call("language.metal", "calls", buffers={0: zeros(7)})
    close(run(call, tmp_path).buffers[0], [7, 30, 2, 3, 33, 5, 3])


def test_templates(tmp_path: Path) -> None:
    x, i = floats(10), np.arange(-5, 5, dtype=np.int32)
    call = Call("language.metal", "scaled_float_3", threads=(10, 1, 1), group=(10, 1, 1), buffers={0: x})
    close(run(call, tmp_path).buffers[0], 3 * x)
    call.function, call.buffers = "scaled_int_5", {0: i}
    np.testing.assert_array_equal(run(call, tmp_path).buffers[0], 5 * i)


# ------------------------------------------------------------------------------------- constants and macros


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("factor", [None, 0.5])
def test_function_constants(has_bias: bool, factor: float | None, tmp_path: Path) -> None:
    """Arguments whose function constant is false are not there: neither must be bound."""
    x, bias, image = floats(6), floats(6, seed=1), floats(1, 1, 6, 4)
    call = Call("constants.metal", "biased", threads=(6, 1, 1), group=(6, 1, 1))
    call.buffers = {0: zeros(6), 1: x} | ({2: bias} if has_bias else {})
    call.textures = {} if has_bias else {0: image}
    call.constants = [(0, "bool", np.array([has_bias])), (1, "ushort", np.array([3], np.uint16))]
    if factor is not None:
        call.constants.append((2, "float", np.array([factor], np.float32)))
    added = bias if has_bias else image[0, 0, :, 0]
    close(run(call, tmp_path).buffers[0], (x + 3 + added) * (10 if factor is None else factor), 1e-5)
    del call.buffers[1]
    ended = start(call, tmp_path)
    assert ended.returncode != 0
    assert "argument in, buffer(1): no buffer or bytes are set" in ended.stdout + ended.stderr


def test_types_of_function_constants(tmp_path: Path) -> None:
    call = Call("constants.metal", "typed", buffers={0: zeros(4)})
    call.constants = [
        (3, "int", np.array([-7], np.int32)),
        (4, "float2", np.array([1e-30, -np.inf], np.float32)),
        (5, "half", np.array([0.1], np.float16)),
    ]
    got = run(call, tmp_path).buffers[0]
    assert got.tolist() == [-7, np.float32(1e-30), -np.inf, np.float32(np.float16(0.1))]


def test_functions_without_constants(tmp_path: Path) -> None:
    call = Call("constants.metal", "unrelated", buffers={0: zeros(1)})
    assert run(call, tmp_path).buffers[0].tolist() == [5]
    call = Call("constants.metal", "typed", buffers={0: zeros(4)}, constants=[(3, "int", np.array([1], np.int32))])
    ended = start(call, tmp_path)
    assert ended.returncode == 3
    assert "function constant pair (index 4), which has no value" in ended.stdout


@pytest.mark.parametrize(
    ("macros", "scale", "addend"), [({}, 2, 0), ({"SCALE": "3"}, 3, 100), ({"SCALE": "(2 + 2)", "OFFSET": "-1"}, 4, -1)]
)
def test_macros(macros: dict[str, str], scale: int, addend: int, tmp_path: Path) -> None:
    for name, x in [("affine_float", floats(10)), ("affine_int", np.arange(-5, 5, dtype=np.int32))]:
        call = Call("macros.metal", name, threads=(10, 1, 1), group=(5, 1, 1), buffers={0: x}, macros=macros)
        close(run(call, tmp_path).buffers[0], np.maximum(x.astype(np.float64) * scale + addend, 1))


def test_version(tmp_path: Path) -> None:
    assert run(Call("macros.metal", "version", buffers={0: np.zeros(1, np.int32)}), tmp_path).buffers[0] == 1


# ----------------------------------------------------------------------------------------------- SIMD groups


def lanes(threads: int, group: int, width: int) -> list[list[int]]:
    """Return the threads of each group of `width` threads, in a grid of one dimension."""
    starts = range(0, threads, group)
    groups = [range(start, min(start + group, threads)) for start in starts]
    return [list(one[i : i + width]) for one in groups for i in range(0, len(one), width)]


def test_simd_ids(tmp_path: Path) -> None:
    """The last threadgroup of each axis has fewer threads."""
    threads, group = (25, 5, 1), (12, 4, 1)
    call = Call("simd.metal", "ids", threads=threads, group=group, buffers={0: np.zeros((25, 9), np.uint32)})
    got = run(call, tmp_path).buffers[0]  # threads with the same x write the same values at last, in no given order
    assert (got[:, [2, 8]] == 32).all()
    call = Call("simd.metal", "ids", threads=(75, 1, 1), group=(70, 1, 1), buffers={0: zeros(75, 9, dtype="uint32")})
    got = run(call, tmp_path).buffers[0]
    i = np.r_[np.arange(70), np.arange(5)]
    size = np.r_[np.full(70, 70), np.full(5, 5)]
    expected = [i % 32, i // 32, 0 * i + 32, -(-size // 32), 0 * i + 3, i % 4, i // 4, -(-size // 4), 0 * i + 32]
    np.testing.assert_array_equal(got.T, expected)


REDUCTIONS: list[Callable[[Array], Any]] = [
    np.sum,
    lambda x: np.prod(x | 1, dtype=np.int32),
    np.min,
    np.max,
    np.bitwise_and.reduce,
    np.bitwise_or.reduce,
    np.bitwise_xor.reduce,
]
GRIDS = [(1, 1), (32, 32), (96, 64), (150, 70), (40, 1024)]


@pytest.mark.parametrize(("name", "width"), [("reductions", 32), ("quad_reductions", 4)])
@pytest.mark.parametrize(("threads", "group"), GRIDS)
def test_simd_reductions(name: str, width: int, threads: int, group: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-1000, 1000, threads, dtype=np.int32)
    call = Call("simd.metal", name, threads=(threads, 1, 1), group=(group, 1, 1))
    call.buffers = {0: x, 1: zeros(threads, 7, dtype="int32")}
    got = run(call, tmp_path).buffers[1]
    for each in lanes(threads, group, width):
        expected = [int(reduction(x[each])) for reduction in REDUCTIONS]
        np.testing.assert_array_equal(got[each], np.broadcast_to(expected, (len(each), 7)))


def test_simd_types(tmp_path: Path) -> None:
    x = floats(40, 4)
    call = Call("simd.metal", "typed", threads=(40, 1, 1), group=(40, 1, 1), buffers={0: x, 1: zeros(40, 4, 4)})
    got = run(call, tmp_path).buffers[1]
    half = x.astype(np.float16)
    for each in lanes(40, 40, 32):
        close(got[each, 0], np.broadcast_to(x[each].sum(0), (len(each), 4)), 1e-5)
        np.testing.assert_array_equal(got[each, 1], np.broadcast_to(half[each].max(0), (len(each), 4)))
        total = x[each].sum(0)
        close(got[each, 2], np.broadcast_to([x[each, 0].min(), total[1], sum(each), total[3]], (len(each), 4)), 1e-5)
        other = np.array(each) ^ 1
        np.testing.assert_array_equal(got[each, 3, :2], x[other][:, [3, 2]])
        np.testing.assert_array_equal(got[each, 3, 2:], np.broadcast_to(half[each[3], :2], (len(each), 2)))


@pytest.mark.parametrize(("threads", "group"), GRIDS)
def test_simd_prefixes(threads: int, group: int, tmp_path: Path) -> None:
    x = floats(threads, low=0.5, high=1.5)
    call = Call("simd.metal", "prefixes", threads=(threads, 1, 1), group=(group, 1, 1))
    call.buffers = {0: x, 1: zeros(threads, 8)}
    got = run(call, tmp_path).buffers[1]
    for width, first in [(32, 0), (4, 4)]:
        for each in lanes(threads, group, width):
            sums, products = np.cumsum(x[each], dtype=float), np.cumprod(x[each], dtype=float)
            expected = [np.r_[0, sums[:-1]], sums, np.r_[1, products[:-1]], products]
            close(got[each, first : first + 4], np.transpose(expected), 1e-5)


@pytest.mark.parametrize("delta", [0, 1, 3, 5])
def test_simd_shuffles(delta: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 100, 64, dtype=np.uint32)
    call = Call("simd.metal", "shuffles", threads=(64, 1, 1), group=(64, 1, 1))
    call.buffers, call.bytes_ = {0: x, 1: zeros(64, 15, dtype="uint32")}, {2: np.array([delta], np.uint16)}
    got = run(call, tmp_path).buffers[1]
    i = np.arange(32)
    vector, at = i // 8 * 8, i % 8
    for start in (0, 32):
        v = x[start : start + 32]
        fill = v + 1000
        expected = [
            np.full(32, v[delta]),
            np.full(32, v[0]),
            v[i * 5 % 32],
            np.where(i >= delta, v[(i - delta) % 32], v),
            np.where(i + delta < 32, v[(i + delta) % 32], v),
            v[i ^ delta],
            v[(i - delta) % 32],
            v[(i + delta) % 32],
            np.where(i >= delta, v[(i - delta) % 32], fill[(i - delta) % 32]),
            np.where(i + delta < 32, v[(i + delta) % 32], fill[(i + delta) % 32]),
            np.where(at >= delta, v[vector + (at - delta) % 8], fill[vector + (at - delta) % 8]),
            np.where(at + delta < 8, v[vector + (at + delta) % 8], fill[vector + (at + delta) % 8]),
            v[i ^ delta % 4],
            v[i // 4 * 4 + delta % 4],
            v[i // 4 * 4 + (i - delta) % 4],
        ]
        np.testing.assert_array_equal(got[start : start + 32].T, expected)


def test_simd_inactive_threads(tmp_path: Path) -> None:
    """The second SIMD group has 8 threads: shuffles from others keep the own value."""
    x = np.arange(100, 140, dtype=np.uint32)
    call = Call("simd.metal", "shuffles", threads=(40, 1, 1), group=(40, 1, 1))
    call.buffers, call.bytes_ = {0: x, 1: zeros(40, 15, dtype="uint32")}, {2: np.array([3], np.uint16)}
    got, v, i = run(call, tmp_path).buffers[1][32:], x[32:], np.arange(8)
    np.testing.assert_array_equal(got[:, 2], np.where(i * 5 % 32 < 8, v[i * 5 % 32 % 8], v))
    np.testing.assert_array_equal(got[:, 3], np.where(i >= 3, v[i - 3], v))
    np.testing.assert_array_equal(got[:, 4], np.where(i < 5, v[(i + 3) % 8], v))
    np.testing.assert_array_equal(got[:, 6], np.where(i >= 3, v[i - 3], v))
    call.bytes_[2][0] = 20
    got = run(call, tmp_path).buffers[1][32:]
    np.testing.assert_array_equal(got[:, [0, 3, 4, 5]], np.broadcast_to(v[:, None], (8, 4)))


def mask(conditions: Array) -> int:
    return sum(1 << i for i, each in enumerate(conditions) if each)


@pytest.mark.parametrize(("threads", "group"), [(32, 32), (75, 64)])
def test_simd_votes(threads: int, group: int, tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(0, 10, threads, dtype=np.uint32)
    call = Call("simd.metal", "votes", threads=(threads, 1, 1), group=(group, 1, 1))
    call.buffers = {0: x, 1: zeros(threads, 10, dtype="uint32")}
    got = run(call, tmp_path).buffers[1]
    for each in lanes(threads, group, 32):
        v = x[each]
        count = len(each)
        everywhere = [mask(v > 4), (v > 8).any(), (v < 9).all(), (1 << count) - 1]
        np.testing.assert_array_equal(got[each, :4], np.broadcast_to(everywhere, (count, 4)))
        np.testing.assert_array_equal(got[each, 4], np.arange(count) == 0)
        # all() of a vote is about 32 threads.
        np.testing.assert_array_equal(got[each, 6], np.full(count, (v > 4).any() + 2 * (count == 32)))
        odd = v % 2 == 1
        first = np.flatnonzero(odd)[0]
        np.testing.assert_array_equal(got[each, 7], np.where(odd, mask(odd), 77))
        np.testing.assert_array_equal(got[each, 8], np.where(odd, np.arange(count) == first, 77))
        quads = np.array([(v[i // 4 * 4 : i // 4 * 4 + 4] == 3).any() for i in range(count)])
        np.testing.assert_array_equal(got[each, 9], np.where(odd, 1 + 2 * (v == 3).any() + 4 * quads, 77))
    for each in lanes(threads, group, 4):
        np.testing.assert_array_equal(got[each, 5], np.full(len(each), mask(x[each] > 4)))


@pytest.mark.parametrize(("threads", "group"), [(32, 32), (75, 64)])
def test_simd_branches(threads: int, group: int, tmp_path: Path) -> None:
    """Functions of SIMD groups act on the threads that are active: in branches, loops and after returns."""
    x = np.random.default_rng(2).integers(0, 10, threads, dtype=np.uint32)
    call = Call("simd.metal", "branches", threads=(threads, 1, 1), group=(group, 1, 1))
    call.buffers = {0: x, 1: zeros(threads, 5, dtype="uint32")}
    got = run(call, tmp_path).buffers[1]
    for each in lanes(threads, group, 32):
        v = x[each].astype(int)
        rest = v[v % 3 != 0]
        np.testing.assert_array_equal(
            got[each, 0], np.where(v % 3 == 0, v[v % 3 == 0].sum(), 1000 + rest.max(initial=0))
        )
        np.testing.assert_array_equal(got[each, 1], [sum((v > k).sum() for k in range(n)) for n in v])
        np.testing.assert_array_equal(got[each, 2], np.full(len(each), v.sum()))
        large = v[v > 2]
        np.testing.assert_array_equal(
            got[each, 4], np.where(v > 2, len(large) + large.sum(), 1000 + len(v) - len(large))
        )
        np.testing.assert_array_equal(got[each, 3], np.where(v > 5, 77, (v <= 5).sum()))


def test_simd_with_barriers(tmp_path: Path) -> None:
    x = floats(7 * 160)
    call = Call("simd.metal", "two_levels", groups=(7, 1, 1), group=(160, 1, 1), buffers={0: x, 1: zeros(7)})
    close(run(call, tmp_path).buffers[1], x.reshape(7, 160).sum(1), 1e-5)


def test_simd_barriers(tmp_path: Path) -> None:
    call = Call("simd.metal", "ring", threads=(128, 1, 1), group=(64, 1, 1), buffers={0: zeros(128, dtype="uint32")})
    i = np.arange(128)
    np.testing.assert_array_equal(run(call, tmp_path).buffers[0], i // 32 * 32 + (i + 5) % 32)


def test_own_functions_of_such_names(tmp_path: Path) -> None:
    call = Call("simd.metal", "own", threads=(8, 1, 1), group=(8, 1, 1), buffers={0: zeros(8, dtype="uint32")})
    np.testing.assert_array_equal(run(call, tmp_path).buffers[0], np.arange(8) // 4 + 1)


# ------------------------------------------------------------------------------------------------- compilers


def test_errors_name_lines(tmp_path: Path) -> None:
    source = tmp_path / "wrong.metal"
    source.write_text("kernel void f(device float* x [[buffer(0)]]) {\n    x[0] = 1;\n    x[1] = undeclared;\n}\n")
    ended = start(Call(str(source), "f"), tmp_path)
    assert ended.returncode == 3
    assert "library failed: MTLLibraryErrorDomain 3" in ended.stdout
    assert "program_source:3:" in ended.stdout
    assert "undeclared" in ended.stdout
    assert "/tmp" not in ended.stdout


@pytest.mark.parametrize("compiler", ["/nowhere/c++", "false", "echo -n"])
def test_no_compiler(compiler: str, tmp_path: Path) -> None:
    call = Call("images.metal", "in_place", threads=(9, 6, 1), textures={0: floats(1, 6, 9, 8)})
    ended = start(call, tmp_path, MPSCNN_METAL_COMPILER=compiler, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert ended.returncode == 3
    assert "library failed: MTLLibraryErrorDomain 1" in ended.stdout or compiler == "echo -n"
    assert compiler in ended.stdout or compiler == "echo -n"


def test_nothing_in_path(tmp_path: Path) -> None:
    ended = start(Call("images.metal", "in_place"), tmp_path, PATH=str(tmp_path), MPSCNN_METAL_COMPILER="")
    assert ended.returncode == 3
    assert "install the extra mpscnn[metal], or clang++ or g++" in ended.stdout


ZIG = Path(sysconfig.get_path("purelib")) / "ziglang" / "zig"  # of the extra mpscnn[metal]
IDENTITY = """
kernel void identity(texture2d_array<float, access::read> x [[texture(0)]],
                     texture2d_array<float, access::write> y [[texture(1)]], uint3 p [[thread_position_in_grid]]) {
  y.write(x.read(p.xy, p.z), p.xy, p.z);
}
"""


def test_the_compiler_of_the_extra(tmp_path: Path) -> None:
    """A function on a machine without compilers, by the program that is installed beside the package."""
    if Path(mpscnn.__file__).parents[1] != ZIG.parents[1]:  # built by make dev
        pytest.skip("mpscnn is not installed in the folder of packages that has ziglang")
    code = f"""
import numpy as np, mpscnn
f = mpscnn.metal_function({IDENTITY!r}, "identity", device=mpscnn.Device())
x = np.arange(64, dtype=np.float32).reshape(1, 2, 8, 4)
np.testing.assert_array_equal(f(x, out_shape=x.shape), x)
"""
    names = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    settings = {key: value for key, value in os.environ.items() if key != "MPSCNN_METAL_COMPILER"} | names
    subprocess.run([sys.executable, "-c", code], check=True, env=settings)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]  # Zig's own files are gone


@pytest.mark.parametrize("compiler", ["g++", "clang++-19", f"{ZIG} c++"], ids=["g++", "clang++", "zig c++"])
def test_compilers(compiler: str, tmp_path: Path) -> None:
    """All compilers, without files of earlier processes and with them; wrong sources."""
    wrong = tmp_path / "wrong.metal"
    wrong.write_text("kernel void f(device float* x [[buffer(0)]]) {\n    x[0] = undeclared;\n}\n")
    ended = start(Call(str(wrong), "f"), tmp_path, MPSCNN_METAL_COMPILER=compiler)
    assert ended.returncode == 3
    assert "program_source:2:" in ended.stdout
    assert "undeclared" in ended.stdout
    cache = tmp_path / "cache"
    for call, output in [
        (Call("language.metal", "constructors", buffers={0: zeros(8, 4)}), 0),
        (Call("groups.metal", "reduce", groups=(5, 1, 1), group=(64, 1, 1), bytes_={2: uint(300)}), 1),
    ]:
        if call.function == "reduce":
            call.buffers = {0: floats(300), 1: zeros(5)}
        settings = {"MPSCNN_METAL_COMPILER": compiler, "XDG_CACHE_HOME": str(cache)}
        first = run(call, tmp_path, **settings).buffers[output]
        files = sorted(cache.rglob("*"))
        assert any(path.name.startswith("function-") for path in files)
        np.testing.assert_array_equal(run(call, tmp_path, **settings).buffers[output], first)
        assert sorted(cache.rglob("*")) == files
        close(first, run(call, tmp_path).buffers[output], 1e-5)


@pytest.mark.parametrize("engine", ["split", "cuda-host"])
@pytest.mark.parametrize("function", ["add", "instance_norm", "in_place"])
def test_engines_with_their_own_memory(engine: str, function: str, tmp_path: Path) -> None:
    """The processor's engine solves the problem on copies, and buffers, too, come back."""
    image = floats(1, 12, 9, 8)
    call = Call("images.metal", function, threads=(9, 12, 2), group=(3, 3, 1))
    call.textures = {i: floats(1, 12, 9, 8, seed=i) for i in range(3)}
    if function == "instance_norm":
        call.source, call.groups, call.group = "groups.metal", (1, 1, 2), (4, 4, 1)
    expected = run(call, tmp_path)
    got = run(call, tmp_path, MPSCNN_ENGINE=engine)
    for i, each in expected.textures.items():
        np.testing.assert_array_equal(got.textures[i], each)
    call = Call("language.metal", "scaled_float_3", threads=(10, 1, 1), group=(10, 1, 1), buffers={0: image.ravel()})
    assert run(call, tmp_path, MPSCNN_ENGINE=engine).buffers[0][:10].tolist() == (3 * image.ravel()[:10]).tolist()
