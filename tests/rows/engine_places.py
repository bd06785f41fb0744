# SPDX-License-Identifier: Apache-2.0
"""Rows of problems that move values: copies, buffers, resampling, reshaping and padding, and their gradients
(engine/problem/copy.hpp, resample.hpp, reshape.hpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle.MPSCNNUpsampling import bilinear, nearest
from oracle.MPSImageResampling import lanczos
from oracle.MPSNNGridSample import grid_sample
from oracle.MPSNNReshape import pad, reshape

from .engine import Array, Random, chance, floats, image, operand, pick, real, region, row, values_of, whole
from .finite_differences import gradient, over_images
from .row_file import Row

MANY = "float32 float32 float16 unorm8 unorm16"
FEW = "float32 float32 float16 unorm8"
RESULTS = ("", "float16", "unorm8", "unorm16")

# -------------------------------------------------------------------------------------------------------- resampling

TYPES = ("nearest", "bilinear")
EDGES = ("zero", "clamp", "zero_samples")
Positions = dict[str, float]


def positions(axis: Positions, count: int) -> Array:
    return axis["start"] + np.arange(count) * axis["numerator"] / axis["denominator"]


def resampled(x: Array, kind: str, edge: str, h: Positions, w: Positions, size: tuple[int, int]) -> Array:
    rows, columns = positions(h, size[0]), positions(w, size[1])
    sample = nearest if kind == "nearest" else bilinear
    result = sample(x, rows, columns, "zero" if edge == "zero" else "clamp")
    if edge != "zero_samples":
        return result
    inside = ((rows >= 0) & (rows <= x.shape[1] - 1))[:, None] & ((columns >= 0) & (columns <= x.shape[2] - 1))
    return np.where(inside[..., None], result, 0.0)


def random_positions(rng: Random, size: int, count: int) -> Positions:
    which = whole(rng, 0, 3)
    numerator, denominator = real(rng, -2, 2), real(rng, 0.5, 3)
    if which == 0:
        numerator, denominator = 1.0, float(whole(rng, 1, 4))  # a whole factor
    elif which == 1:
        numerator, denominator = float(size), float(count)  # the whole source
    elif which == 2:
        numerator, denominator = float(size - 1), float(max(count - 1, 1))  # with its corners
    start = 0.0
    if chance(rng, 3):
        start = float(whole(rng, -4, 12)) if chance(rng, 2) else real(rng, -4, 12)
    return {"start": start, "numerator": numerator, "denominator": denominator}


def resample_row(seed: int) -> Row:
    rng = np.random.default_rng(700000 + seed)
    n, c, large = whole(rng, 1, 2), pick(rng, (1, 2, 3, 4, 15, 16, 20, 37, 64, 300, 512)), seed % 25 == 0
    src = image(rng, (n, whole(rng, 1, 9), whole(rng, 1, 9), c), formats=MANY)
    size = (whole(rng, 1, 60 if large else 12), whole(rng, 1, 40 if large else 12))
    kind, edge = pick(rng, ("nearest", "bilinear", "bilinear")), pick(rng, EDGES)
    regions = [
        {axis: random_positions(rng, src.shape[1 + i], size[i]) for i, axis in enumerate("hw")}
        for _ in range(3 if chance(rng, 4) else 1)
    ]
    x = values_of(src)
    # All regions of an image come before those of the next image.
    parts = [resampled(x, kind, edge, region["h"], region["w"], size) for region in regions]
    value = np.stack(parts, axis=1).reshape(-1, *size, c)
    fields = {"src": src, "type": TYPES.index(kind), "edge": EDGES.index(edge), "regions": regions}
    expected = {"dst": (value, 1e-7 if kind == "nearest" else 2e-6)}
    return row("Resample", f"{kind} {edge} {seed}", fields, expected, pick(rng, RESULTS))


def resample_exactly() -> Iterator[Row]:
    """A sample at a pixel's position is that pixel: neighbours of weight 0 are ignored, even if infinite."""
    rng = np.random.default_rng(5)
    for c in (1, 20):
        src = floats(rng, (1, 3, 49, c))
        src[0, 1] = np.where(np.arange(49)[:, None] % 2, np.inf, np.arange(49)[:, None])
        steps = np.arange(49 * 49)
        low, share = steps // 49, (steps % 49) / 49  # 49 * (1 / 49.0) is less than 1
        x = values_of(src)
        with np.errstate(invalid="ignore"):
            between = x[:, :, low] * (1 - share)[:, None] + x[:, :, np.minimum(low + 1, 48)] * share[:, None]
        value = np.where(share[:, None] == 0, x[:, :, low], between)
        error = np.where(share[:, None] == 0, 0.0, 2e-6 + 0 * np.zeros_like(value))
        one = {"start": 0.0, "numerator": 1.0}
        regions = [{"h": {**one, "denominator": 1.0}, "w": {**one, "denominator": 49.0}}]
        fields = {"src": src, "type": 1, "edge": 1, "regions": regions}
        yield row("Resample", f"exactly, {c}", fields, {"dst": (value, error)})


def resample_gradient_row(seed: int, least: int = 1) -> Row:
    """`least`: results per pixel of the source."""
    rng = np.random.default_rng(810000 + seed)
    n, c = whole(rng, 1, 2), pick(rng, (1, 3, 4, 16, 21, 64, 512) if least == 1 else (1, 3, 4, 21))
    h, w = (whole(rng, 1, 9), whole(rng, 1, 9)) if least == 1 else (whole(rng, 1, 3), whole(rng, 1, 2))
    size = tuple(whole(rng, 1, 16) if chance(rng, 4) else e * whole(rng, 1, 3) for e in (h, w))
    if least > 1:
        size = (h * whole(rng, 5, 24), 0)
        size = (size[0], -(-least * h * w // size[0]) + whole(rng, 0, 2))
    axes = {}
    for name, e, count in zip("hw", (h, w), size, strict=True):
        align = chance(rng, 3)
        axes[name] = {
            "start": float(whole(rng, -3, 3)) if chance(rng, 3) else 0.0,
            "numerator": float(e - 1 if align else e),
            "denominator": float(max(count - 1, 1) if align else count),
        }
    kind, edge = pick(rng, TYPES), pick(rng, EDGES)
    diff = image(rng, (n, *size, c), formats=FEW)
    is_part = chance(rng, 2)
    first = (whole(rng, 0, h - 1), whole(rng, 0, w - 1)) if is_part else (0, 0)
    wanted = (whole(rng, 1, h - first[0]), whole(rng, 1, w - first[1])) if is_part else (h, w)
    value, magnitude = gradient(
        over_images(lambda x: resampled(x, kind, edge, axes["h"], axes["w"], size)),  # type: ignore[arg-type]
        np.zeros((n, h, w, c)),
        values_of(diff),
        apart=(0, 3),
        linear=True,
    )
    fields = {
        "diff_dst": diff,
        "src_h": h,
        "src_w": w,
        "first_h": first[0],
        "first_w": first[1],
        "type": TYPES.index(kind),
        "edge": EDGES.index(edge),
        "region": axes,
    }
    # At a nearly integral position, the adjacent pixel gets a share of 1e-15 or nothing.
    expected = {"diff_src": (region(value, first, wanted), region(magnitude, first, wanted) * 2e-6 + 1e-12)}
    return row("ResampleGradient", f"{kind} {edge} {seed}", fields, expected, pick(rng, ("", "float16", "unorm8")))


def lanczos_row(seed: int) -> Row:
    rng = np.random.default_rng(830000 + seed)
    n, c, large = whole(rng, 1, 2), pick(rng, (1, 2, 3, 4, 16, 37, 64)), seed % 20 == 0
    src = image(rng, (n, whole(rng, 1, 40 if large else 9), whole(rng, 1, 9), c), formats=MANY)
    size = (whole(rng, 1, 12), whole(rng, 1, 30 if large else 12))
    edge = pick(rng, EDGES[:2])
    axes = {}
    for i, axis in enumerate("hw"):
        one = random_positions(rng, src.shape[1 + i], size[i])
        one["numerator"] = abs(one["numerator"]) or 1.0
        if chance(rng, 2):  # pixels are areas
            one = {"numerator": float(src.shape[1 + i]), "denominator": float(size[i])}
            one["start"] = 0.5 * one["numerator"] / one["denominator"] - 0.5
        axes[axis] = one
    x = values_of(src)
    value = lanczos(x, positions(axes["h"], size[0]), positions(axes["w"], size[1]), *map(step, axes.values()), edge)
    fields = {"src": src, "edge": EDGES.index(edge), **axes}
    return row("Lanczos", f"{edge} {seed}", fields, {"dst": (value, 1e-5)}, pick(rng, RESULTS))


def step(axis: Positions) -> float:
    return axis["numerator"] / axis["denominator"]


def grid_sample_row(seed: int) -> Row:
    rng = np.random.default_rng(840000 + seed)
    n, c, plain = whole(rng, 1, 2), pick(rng, (1, 3, 4, 16, 37, 300)), chance(rng, 2)
    large = seed % 15 == 0
    src = image(rng, (n, whole(rng, 1, 9), whole(rng, 1, 9), c), formats=MANY)
    h, w = whole(rng, 1, 20 if large else 7), whole(rng, 1, 700 if seed % 30 == 0 and c < 5 else 7)
    shape = (n, h, w, 2) if plain else (n, whole(rng, 1, h + 3), whole(rng, 1, w + 3), 2)
    grid = operand(rng, image(rng, shape, -2, 9, "float32 float32 float16"), h, w, plain)
    start, adds, edge = (0, 0), chance(rng, 3), pick(rng, EDGES[:2])
    if chance(rng, 3):
        start = (whole(rng, -3, 3), whole(rng, -3, 3))
    at = grid.seen(h, w, 2)
    value = grid_sample(values_of(src), at[..., 1] + start[0], at[..., 0] + start[1], edge, adds)
    fields = {
        "src": src,
        "grid": grid,
        "edge": EDGES.index(edge),
        "adds_position": adds,
        "start_h": start[0],
        "start_w": start[1],
    }
    return row("GridSample", f"{edge} {seed}", fields, {"dst": (value, 4e-6)}, pick(rng, RESULTS))


def grid_sample_ends() -> Iterator[Row]:
    """Positions far away and NaN; pixels of weight 0 are ignored, even if infinite."""
    src = np.array([[1, np.inf], [3, 4]], np.float32).reshape(1, 2, 2, 1)
    grid = np.array([[0, 0], [0, 1], [1e30, 1], [-1e30, 1], [np.nan, 1], [0, np.nan]], np.float32)
    for edge, value in (("zero", (1, 3, 0, 0, 0, 0)), ("clamp", (1, 3, 4, 3, 3, 1))):
        fields = {"src": src, "grid.view": grid.reshape(1, 1, 6, 2), "edge": EDGES.index(edge)}
        yield row("GridSample", f"ends, {edge}", fields, {"dst": np.array(value, float).reshape(1, 1, 6, 1)})


# -------------------------------------------------------------------------------------------------- reshape and pad

PAD_EDGES = ("clamp", "mirror", "mirror_with_edge", "constant")


def reshape_row(seed: int) -> Row:
    rng = np.random.default_rng(800000 + seed)
    before, after = [1, 1, 1], [1, 1, 1]
    for factor in (whole(rng, 1, 4), whole(rng, 1, 5), pick(rng, (1, 3, 7)), pick(rng, (1, 2, 40))):
        before[whole(rng, 0, 2)] *= factor
        after[whole(rng, 0, 2)] *= factor
    src = image(rng, (whole(rng, 1, 3), *before), formats=MANY)
    value = reshape(values_of(src), (after[0], after[1], after[2]))
    name = f"{before} -> {after} {src.dtype}"
    return row("Reshape", name, {"src": src}, {"dst": (value, 1e-7)}, "float16 unorm8 unorm16")


def pad_row(seed: int) -> Row:
    rng = np.random.default_rng(900000 + seed)
    n, c, edge = whole(rng, 1, 2), pick(rng, (1, 2, 3, 5, 16, 40, 512)), PAD_EDGES[seed % 4]
    same = chance(rng, 2)
    src = image(rng, (n, whole(rng, 1, 6), whole(rng, 1, 6), c), formats=MANY)
    size = (whole(rng, 1, 14), whole(rng, 1, 14), c if same else whole(rng, 1, 3 * c + 2))
    starts = (whole(rng, -10, 6), whole(rng, -10, 6), 0 if same else whole(rng, -2 * c, c - 1))
    fill = floats(rng, size[2], 0, 1) if chance(rng, 2) else None
    one = real(rng, 0, 1)
    fields = {
        "src": src,
        **{f"start_{axis}": start for axis, start in zip("hwc", starts, strict=True)},
        "edge": PAD_EDGES.index(edge),
        "fill": one,
        "fill_per_channel": fill,
    }
    value = pad(values_of(src), starts, size, edge, np.array(one) if fill is None else fill.astype(np.float64))
    return row("Pad", f"{edge} {starts} {seed}", fields, {"dst": (value, 1e-7)}, pick(rng, RESULTS))


def pad_gradient_row(seed: int) -> Row:
    rng = np.random.default_rng(820000 + seed)
    n, with_channels = whole(rng, 1, 2), chance(rng, 3)
    c = pick(rng, (1, 3, 4, 16, 21) if with_channels else (1, 3, 4, 16, 21, 64, 512))
    h, w = whole(rng, 1, 7), whole(rng, 1, 7)
    starts = (-whole(rng, -2, 12), -whole(rng, -2, 12), -whole(rng, 0, 9) if with_channels else 0)
    channels = c - starts[2] + whole(rng, 0, 9) if with_channels else c
    size = (whole(rng, 1, 16), whole(rng, 1, 16), channels)
    edge = PAD_EDGES[seed % 4]
    diff = image(rng, (n, *size), formats=FEW)
    is_part = chance(rng, 2)
    first = (whole(rng, 0, h - 1), whole(rng, 0, w - 1)) if is_part else (0, 0)
    wanted = (whole(rng, 1, h - first[0]), whole(rng, 1, w - first[1])) if is_part else (h, w)
    value, magnitude = gradient(
        over_images(lambda x: pad(x, starts, size, edge, np.array(0.0))),
        np.zeros((n, h, w, c)),
        values_of(diff),
        apart=(0,) if with_channels else (0, 3),
        linear=True,
    )
    fields = {
        "diff_dst": diff,
        "src_h": h,
        "src_w": w,
        "first_h": first[0],
        "first_w": first[1],
        **{f"start_{axis}": start for axis, start in zip("hwc", starts, strict=True)},
        "edge": PAD_EDGES.index(edge),
    }
    expected = {"diff_src": (region(value, first, wanted), region(magnitude, first, wanted) * 2e-6)}
    return row("PadGradient", f"{edge} {starts} {seed}", fields, expected, pick(rng, ("", "float16", "unorm8")))


# ------------------------------------------------------------------------------------------------------------ copies


def copy_row(seed: int) -> Row:
    rng = np.random.default_rng(300000 + seed)
    shape = (whole(rng, 1, 3), whole(rng, 1, 20), whole(rng, 1, 20), pick(rng, (1, 2, 3, 4, 7, 16, 33, 64, 512)))
    if shape[3] == 512:
        shape = (shape[0], 3, 4, 512)
    src = image(rng, shape, -0.5, 1.5, ("float32", "float16", "unorm8", "unorm16")[seed % 4])
    x = values_of(src)
    # Equal formats copy the bits.
    error = 0.0 if src.dtype == np.float32 else np.abs(x) * 2.0**-23
    return row("Copy", f"{src.dtype} {shape}", {"src": src}, {"dst": (x, error)}, "float16 unorm8 unorm16")


def buffers() -> Iterator[Row]:
    for size in (1, 1000, 11111, 300000):
        rng = np.random.default_rng(size)
        src, end = rng.integers(0, 256, size + 16).astype(np.uint8), size + 16
        untouched = np.full(end, 255)
        copied, filled = untouched.copy(), untouched.copy()
        copied[4 : 4 + size], filled[3 : 3 + size] = src[2 : 2 + size], 9
        fields: dict[str, Any] = {"src": src, "src_offset": 2, "dst_offset": 4, "bytes": size}
        yield row("BufferCopy", str(size), fields, {"dst": copied})
        words = untouched.copy()
        words[4 : 4 + size // 4 * 4] = src[8 : 8 + size // 4 * 4]
        fields = {"src": src, "src_offset": 8, "dst_offset": 4, "bytes": size // 4 * 4}
        yield row("BufferCopy", f"words of {size}", fields, {"dst": words})
        yield row("BufferFill", str(size), {"offset": 3, "bytes": size, "value": 9}, {"dst": filled})


def pixel_copy_row(seed: int, unit: int = 1) -> Row:
    """Copy bytes of pixels between blocks with different strides, followed by zeros. `unit` divides all of them."""
    rng = np.random.default_rng(310000 + seed)
    h, w, count = whole(rng, 1, 9), whole(rng, 1, 40), unit * whole(rng, 1, 16)
    zeros = unit * whole(rng, 0, 1) * whole(rng, 1, 9)

    def place(least: int) -> tuple[int, int, int, int]:
        pixel = least + unit * whole(rng, 0, 1) * whole(rng, 1, 8)
        stride = pixel * w + unit * whole(rng, 0, 1) * whole(rng, 1, 9)
        offset = unit * whole(rng, 0, 12)
        return offset, pixel, stride, offset + stride * h

    offset, pixel, stride, size = place(count)
    to_offset, to_pixel, to_stride, to_size = place(count + zeros)
    src = rng.integers(0, 256, size).astype(np.uint8)
    copied = np.full(to_size, 255)
    for y in range(h):
        for x in range(w):
            to, start = to_offset + y * to_stride + x * to_pixel, offset + y * stride + x * pixel
            copied[to : to + count] = src[start : start + count]
            copied[to + count : to + count + zeros] = 0
    fields: dict[str, Any] = {
        "src.memory": src,
        "src.offset": offset,
        "src.pixel_stride": pixel,
        "src.row_stride": stride,
        "dst.offset": to_offset,
        "dst.pixel_stride": to_pixel,
        "dst.row_stride": to_stride,
        "h": h,
        "w": w,
        "bytes": count,
        "zeros": zeros,
    }
    return row("PixelCopy", f"{seed}, units of {unit}", fields, {"dst.memory": copied})


# Of ElementType (engine/problem/copy.hpp), before the complex ones.
ELEMENT_TYPES = (
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("bool", "unorm8", "unorm16", "float16", "bfloat16", "float32"),
)
STORED = {"bool": "uint8", "unorm8": "uint8", "unorm16": "uint16", "bfloat16": "uint16"}


def loaded(stored: Array, kind: str) -> Array:
    """Return the numbers: integers, or float32."""
    if kind == "bool":
        return stored != 0
    if kind.startswith("unorm"):
        return stored.astype(np.float32) / np.float32(np.iinfo(stored.dtype).max)
    if kind == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32) if kind == "float16" else stored


def converted(value: Array, kind: str) -> Array:
    """Return the numbers as another type stores them."""
    stored = np.dtype(STORED.get(kind, kind))
    if kind == "bool":
        return (value != 0).astype(stored)
    real = value.astype(np.float32)
    if kind.startswith("unorm"):
        return np.rint(np.clip(real, 0, 1) * np.float32(np.iinfo(stored).max)).astype(stored)
    if kind == "bfloat16":
        bits = real.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(stored)
    if stored.kind == "f" or value.dtype.kind != "f":
        return real.astype(stored) if stored.kind == "f" else value.astype(stored)
    limits = np.iinfo(stored)
    inside = np.trunc(np.where(np.isnan(value), 0, value)).astype(np.float64)
    clamped = np.clip(inside, float(limits.min), np.nextafter(float(limits.max) + 1, 0))
    return np.where(inside >= float(limits.max), limits.max, clamped.astype(stored)).astype(stored)


def strided_copy_row(seed: int, lengths: tuple[int, ...] = ()) -> Row:
    """Copy an array between types and strides: axes in any order in memory, with gaps, some of them backwards."""
    rng = np.random.default_rng(320000 + seed)
    of, to = pick(rng, ELEMENT_TYPES), pick(rng, ELEMENT_TYPES)
    if chance(rng, 2):
        to = of
    lengths = lengths or tuple(whole(rng, 1, 7) for _ in range(whole(rng, 0, 5)))

    def places(element: int, repeats: bool) -> tuple[list[int], int, Array]:
        """Return strides, the offset of the first element, and the offset of every element."""
        strides, step = [0] * len(lengths), element
        offset = element * whole(rng, 0, 5)
        for axis in rng.permutation(len(lengths)):
            if repeats and chance(rng, 5):
                continue
            strides[axis] = step
            step = step * lengths[axis] + element * whole(rng, 0, 1) * whole(rng, 0, 3)
        for axis, length in enumerate(lengths):
            if chance(rng, 4):
                offset += strides[axis] * (length - 1)
                strides[axis] = -strides[axis]
        index = np.indices(lengths).reshape(len(lengths), -1) if lengths else np.zeros((0, 1), int)
        return strides, offset, offset + np.array(strides, int) @ index if lengths else np.array([offset])

    stored_of, stored_to = (np.dtype(STORED.get(kind, kind)) for kind in (of, to))
    src_strides, src_offset, reads = places(stored_of.itemsize, True)
    dst_strides, dst_offset, writes = places(stored_to.itemsize, False)
    count = int(reads.max()) // stored_of.itemsize + 3
    if of in ("float16", "float32", "bfloat16"):
        values = rng.choice([0.3, 1.0, -2.5, 100.7, 300.2, -0.5, 65000, 0.0], count) * rng.uniform(0.5, 1, count)
        src = converted(values.astype(np.float32), of)
    else:
        limits = np.iinfo(stored_of)
        low, high = (0, 1) if of == "bool" else (limits.min, limits.max)
        src = rng.integers(low, high, count, dtype=stored_of, endpoint=True)
    result = src[reads // stored_of.itemsize]
    if of != to:
        with np.errstate(over="ignore"):  # large integers are infinite as float16
            result = converted(loaded(result, of), to)
    filled = np.full(int(writes.max()) + stored_to.itemsize + 7, 255, np.uint8)
    for place, bytes_ in zip(writes, result.view(np.uint8).reshape(-1, stored_to.itemsize), strict=True):
        filled[place : place + stored_to.itemsize] = bytes_
    axes = [
        {"length": length, "src_stride": a, "dst_stride": b}
        for length, a, b in zip(lengths, src_strides, dst_strides, strict=True)
    ]
    fields: dict[str, Any] = {
        "src": src.view(np.uint8),
        "src_offset": src_offset,
        "dst_offset": dst_offset,
        "src_type": ELEMENT_TYPES.index(of),
        "dst_type": ELEMENT_TYPES.index(to),
        "axes": axes,
    }
    return row("StridedCopy", f"{of} to {to}, {lengths}, {seed}", fields, {"dst": filled})


def strided_copies() -> Iterator[Row]:
    yield from map(strided_copy_row, range(300))
    for seed, lengths in enumerate([(101, 67), (33, 5, 70), (64, 64), (300, 300), (3, 1, 200, 65)]):
        yield from (strided_copy_row(1000 + 10 * seed + i, lengths) for i in range(6))


def rows() -> Iterator[Row]:
    yield from strided_copies()
    yield from map(pixel_copy_row, range(60))
    for seed in range(60, 84):
        yield pixel_copy_row(seed, (2, 4, 8, 16)[seed % 4])
    yield from map(resample_row, range(200))
    yield from resample_exactly()
    yield from map(resample_gradient_row, range(200))
    for seed in range(200, 224):
        yield resample_gradient_row(seed, least=256)
    yield from map(lanczos_row, range(120))
    yield from map(grid_sample_row, range(120))
    yield from grid_sample_ends()
    yield from map(reshape_row, range(100))
    yield from map(pad_row, range(160))
    yield from map(pad_gradient_row, range(200))
    yield from map(copy_row, range(120))
    yield from buffers()
