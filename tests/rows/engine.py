# SPDX-License-Identifier: Apache-2.0
"""Rows for cpp_engine_rows: problems by the names of their fields (csrc/openmps/engine/problem), and helpers for the
families of rows. tests/cpp/test_engine_rows.cpp describes the keys of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle.MPSCNNConvolution import tap
from oracle.MPSCNNNeuron import NUMBERS, TYPES, neuron, slope

from .row_file import Row

Array = NDArray[np.float64]
Stored = NDArray[Any]
Pair = tuple[int, int]
Random = np.random.Generator

EDGES = ("zero", "clamp")
GATED = 0x100  # number of the first neuron that Apple does not have: x times sigmoid(x), x times hard_sigmoid(x)
FORMATS = {"float32": np.float32, "float16": np.float16, "unorm8": np.uint8, "unorm16": np.uint16}


@dataclass(frozen=True)
class Alias:
    """The memory of the field `path`; `values` are those before the run."""

    path: str
    values: Stored | None = None


@dataclass(frozen=True)
class Extents:
    """An image without memory."""

    shape: tuple[int, ...]


def single(value: float) -> float:
    """Return the value rounded to float32, as the fields store it."""
    return float(np.float32(value))


def row(
    kind: str, name: str, fields: Mapping[str, Any], expected: Mapping[str, Any], formats: str = "", **format_of: str
) -> Row:
    """Make a problem. `fields`: numbers, arrays, mappings of these and lists of mappings; None keeps a field's default.

    `expected`: values after the run by path, or pairs of these and their tolerance. `formats`: formats for the results
    besides float32; `format_of`: for single results.
    """
    result = Row(f"{kind} {name}", {"problem": kind})
    if formats:
        result.settings["formats"] = formats
    for path, name_of in format_of.items():
        result.settings[f"format:{path}"] = name_of

    def put(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, each in value.items():
                put(f"{path}.{key}" if path else key, each)
        elif isinstance(value, list):
            result.settings[f"{path}.count"] = len(value)
            for index, each in enumerate(value):
                put(f"{path}.{index}", each)
        elif isinstance(value, Operand):
            put(path, value.fields())
        elif isinstance(value, np.ndarray):
            result.arrays[path] = value
        elif isinstance(value, Alias):
            result.settings[f"alias:{path}"] = value.path
            put(path, value.values)
        elif isinstance(value, Extents):
            result.settings[f"extents:{path}"] = " ".join(map(str, value.shape))
        elif value is not None:
            result.settings[path] = value

    put("", fields)
    for path, wanted in expected.items():
        values, tolerance = wanted if isinstance(wanted, tuple) else (wanted, 0.0)
        values = np.asarray(values, np.float64)
        result.arrays[f"expect:{path}"] = values
        if np.ndim(tolerance):
            result.arrays[f"tolerance:{path}"] = np.broadcast_to(np.asarray(tolerance, np.float32), values.shape)
        else:
            result.settings[f"tolerance:{path}"] = float(tolerance)
    return result


# ---------------------------------------------------------------------------------------------------------- random


def chance(rng: Random, one_in: int) -> bool:
    return bool(rng.integers(one_in) == 0)


def whole(rng: Random, low: int, high: int) -> int:
    """Return a random integer, both bounds included."""
    return int(rng.integers(low, high + 1))


def pick(rng: Random, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def real(rng: Random, low: float, high: float) -> float:
    return single(rng.uniform(low, high))


def floats(rng: Random, shape: int | tuple[int, ...], low: float = -2, high: float = 2) -> Stored:
    return rng.uniform(low, high, shape).astype(np.float32)


def image(
    rng: Random,
    shape: tuple[int, ...],
    low: float = -2,
    high: float = 2,
    formats: str = "float32 float32 float16 unorm8",
) -> Stored:
    """Return a random image in one of the formats; normalized integers are between 0 and 1."""
    dtype = FORMATS[pick(rng, formats.split())]
    if dtype in (np.uint8, np.uint16):
        return rng.integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)
    return rng.uniform(low, high, shape).astype(dtype)


def values_of(stored: Stored) -> Array:
    """Return the values as read by a kernel, float32."""
    if stored.dtype in (np.uint8, np.uint16):
        return (stored / float(np.iinfo(stored.dtype).max)).astype(np.float32).astype(np.float64)
    return stored.astype(np.float64)


# ---------------------------------------------------------------------------------------------------- common structs


@dataclass(frozen=True)
class Window:
    """Window of problem/common.hpp."""

    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    start: Pair = (0, 0)
    edge: str = "zero"

    def fields(self) -> dict[str, int]:
        names = ("kernel", "stride", "dilation", "start")
        sizes = {f"{name}_{axis}": getattr(self, name)[i] for name in names for i, axis in enumerate("hw")}
        return sizes | {"edge": EDGES.index(self.edge)}

    def reach(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def offset(self) -> Pair:
        """Return the position of the window's middle, to which offsets of Apple's kernels and of the oracles refer."""
        return self.start[0] + self.reach(0) // 2, self.start[1] + self.reach(1) // 2


@dataclass(frozen=True)
class Operand:
    """Operand of problem/common.hpp."""

    view: Stored
    start: Pair = (0, 0)
    repeat: tuple[bool, bool, bool] = (False, False, False)
    edge: str = "zero"

    def fields(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "start_h": self.start[0],
            "start_w": self.start[1],
            **{f"repeat_{axis}": self.repeat[i] for i, axis in enumerate("hwc")},
            "edge": EDGES.index(self.edge),
        }

    def seen(self, h: int, w: int, c: int) -> Array:
        """Return the values read by each element of the destination."""
        view = values_of(self.view)
        rows = self.start[0] + (0 if self.repeat[0] else 1) * np.arange(h)
        columns = self.start[1] + (0 if self.repeat[1] else 1) * np.arange(w)
        found = tap(view, rows, columns, self.edge)
        return np.repeat(found[..., :1], c, axis=3) if self.repeat[2] else found


def operand(rng: Random, stored: Stored, h: int, w: int, plain: bool, repeats: bool = False) -> Operand:
    """Return the image at a random position relative to a destination of h x w."""
    if plain:
        return Operand(stored)
    start = tuple(
        whole(rng, -size - 2, stored.shape[1 + i] + 2) if chance(rng, 3) else 0 for i, size in enumerate((h, w))
    )
    repeat = tuple(repeats and chance(rng, 3) for _ in range(3))
    return Operand(stored, start, repeat, pick(rng, EDGES))  # type: ignore[arg-type]


def region(x: Array, first: Pair, size: Pair) -> Array:
    """Return pixels from `first` on, 0 beyond the image."""
    return tap(x, first[0] + np.arange(size[0]), first[1] + np.arange(size[1]), "zero")


def random_neuron(rng: Random, name: str, channels: int) -> dict[str, Any]:
    """Return a Neuron of the type with random parameters."""
    a, b, c = real(rng, -1.5, 1.5), real(rng, -1.5, 1.5), real(rng, 0.5, 3)
    if name in ("relu", "relun") and chance(rng, 2):
        a, b = 0.0, 1.25
    if name in ("tanh", "softplus") and chance(rng, 2):
        a = b = 1.0
    if name == "power":
        c = pick(rng, (1.0, 2.0, 3.0))
    if name == "exponential" and chance(rng, 2):
        c = -1.0
    if name == "logarithm":
        a, b, c = 1.0, 0.25, pick(rng, (-1.0, 3.0))
    slopes = floats(rng, channels, -1, 1) if name == "prelu" else None
    return {"type": NUMBERS[name], "a": a, "b": b, "c": c, "a_per_channel": slopes}


def parameters(f: Mapping[str, Any]) -> tuple[str, ArrayLike, float, float]:
    slopes = f.get("a_per_channel")
    return TYPES[f["type"]][0], f["a"] if slopes is None else slopes.astype(np.float64), f["b"], f["c"]


def activate(f: Mapping[str, Any], x: Array) -> Array:
    """Return f(x), channels last."""
    if f["type"] >= GATED:
        return x * activate({**f, "type": f["type"] - GATED + NUMBERS["sigmoid"]}, x)
    name, a, b, c = parameters(f)
    return neuron(name, x, a, b, c)


def neuron_slope(f: Mapping[str, Any], x: Array) -> Array:
    name, a, b, c = parameters(f)
    return slope(name, x, a, b, c)


def activated(f: Mapping[str, Any] | None, x: Array, error: Array) -> tuple[Array, Array]:
    """Return f(x) and its permitted error if x has the error `error`."""
    if f is None:
        return x, error + np.abs(x) * 4e-7
    y = activate(f, x)
    change = np.maximum(np.abs(activate(f, x + error) - y), np.abs(activate(f, x - error) - y))
    return y, change + np.abs(y) * 4e-7 + 1e-7
