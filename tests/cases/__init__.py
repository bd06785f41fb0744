# SPDX-License-Identifier: Apache-2.0
"""Case rows, one module per Apple header, and the arrays that they describe. Never imports mpscnn.

A row's text is its test id, and selects the row with `pytest -k`.
"""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Tolerance:
    """Permitted error of a result, derived in tests/oracle/compare.py.

    `sums` counts float32 roundings of the sum, `store` units of the result's epsilon; `products` is the relative error
    of each product before it is added. A row with its own tolerance gives the reason.
    """

    sums: float = 4.0
    store: float = 1.0
    products: float = 0.0
    reason: str = "default"


def _text(value: object) -> str:
    """Format extents as 2x3 and pairs of pairs as 1x0_2x1, without operators of `pytest -k`."""
    if isinstance(value, (tuple, list)):
        extents = all(isinstance(item, int) and item >= 0 for item in value)
        return ("x" if extents else "_").join(_text(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel, its sources, and the reason for the combination."""

    kernel: str
    x: tuple[int, int, int, int]  # the first source
    why: str
    second: tuple[int, int, int, int] | None = None  # kernels with two sources
    second_dtype: str | None = None  # default: that of the first source
    second_view: str = "dense"
    params: dict[str, Any] = field(default_factory=dict)
    weight: tuple[int, ...] | None = None  # extents in the order of `layout`
    weight_dtype: str = "float32"
    bias: bool = True
    quantized: str = ""  # uint8 weights: "ranges" or "lookup_table"
    activation: tuple[Any, ...] | str | None = None  # (type, a, b, c), or one of the short names
    batch_norm: bool = False
    dtypes: tuple[str, ...] = ("float32", "float16")
    result_dtype: str | None = None
    x_view: str = "dense"
    out: tuple[int, int, int, int] | None = None  # a destination larger than the result
    out_view: str = "dense"
    values: tuple[float, ...] = ()  # the last source repeats these values
    centre: float = 0.0  # the first source's values are distributed around it
    given: tuple[str, ...] = ()  # arrays of one value per channel: gamma, beta, mean, variance; terms of binary kernels
    tolerance: Tolerance = Tolerance()
    tags: frozenset[str] = frozenset({"ci"})

    def __str__(self) -> str:
        parts = [self.kernel, f"x:{_text(self.x)}"]
        parts += [f"second:{_text(self.second)}"] if self.second else []
        parts += [f"second:{self.second_dtype}"] if self.second_dtype else []
        parts += [f"second:{self.second_view}"] if self.second_view != "dense" else []
        if self.weight:
            parts.append(f"weight:{_text(self.weight)}")
        if self.weight_dtype != "float32":
            parts.append(self.weight_dtype)
        parts += [self.quantized] if self.quantized else []
        parts += ["no_bias"] if self.weight and not self.bias else []
        parts += ["batch_norm"] if self.batch_norm else []
        parts += [f"{name}:{_text(value)}" for name, value in self.params.items()]
        if self.activation:
            parts.append(
                "activation:" + _text([self.activation] if isinstance(self.activation, str) else self.activation)
            )
        parts += [f"values:{len(self.values)}"] if self.values else []
        parts += [f"centre:{self.centre:g}"] if self.centre else []
        parts += [f"given:{'_'.join(self.given)}"] if self.given else []
        parts += [f"x:{self.x_view}"] if self.x_view != "dense" else []
        parts += [f"out:{_text(self.out)}"] if self.out else []
        parts += [f"out:{self.out_view}"] if self.out_view != "dense" else []
        parts += [f"{dtype}_in" for dtype in self.dtypes] if self.result_dtype else []
        parts += [f"{self.result_dtype}_out"] if self.result_dtype else []
        return "/".join(parts)

    @property
    def is_binary(self) -> bool:
        """Return whether the weights have one bit each; `weight` then counts bits."""
        return self.kernel in ("BinaryConvolution", "BinaryFullyConnected")

    @property
    def groups(self) -> int:
        return int(self.params.get("groups", 1))

    def pair(self, name: str) -> tuple[int, int]:
        value = self.params.get(name, 1)
        return (value, value) if isinstance(value, int) else tuple(value)

    def out_channels(self) -> int:
        """Return the channels of the convolution, before a sub-pixel rearrangement."""
        assert self.weight
        layout = self.layout
        if layout == "IOHW":
            return self.weight[1] * self.groups
        return self.weight[layout.index("C" if layout == "C1HW" else "O")]

    @property
    def layout(self) -> str:
        fallback = {"ConvolutionTranspose": "IOHW", "FullyConnected": "OI"}.get(self.kernel, "OIHW")
        fallback = "OHWI" if self.is_binary else fallback
        return str(self.params.get("layout", fallback))


_FIELDS = set(Case.__dataclass_fields__) - {"params"}


def row(kernel: str, *, why: str, tags: Iterable[str] = ("ci",), **arguments: Any) -> Case:
    """Make a Case; other arguments than its fields are parameters of the kernel (also bias, without weights)."""
    fields = _FIELDS if "weight" in arguments else _FIELDS - {"bias"}
    own = {name: arguments.pop(name) for name in list(arguments) if name in fields}
    return Case(kernel, why=why, tags=frozenset(tags), params=arguments, **own)


@dataclass
class Inputs:
    """The arrays of a row."""

    x: Array
    second: Array | None = None
    weight: Array | None = None  # in the layout of the row
    bits: Array | None = None  # of binary kernels: OHWI; `weight` has them packed into words
    bias: Array | None = None
    ranges: Array | None = None
    lookup_table: Array | None = None
    slopes: Array | None = None
    norm: dict[str, Any] | None = None
    given: dict[str, Array] = field(default_factory=dict)  # by name, (C,)

    @property
    def sources(self) -> list[Array]:
        return [self.x] if self.second is None else [self.x, self.second]


def _source(extents: tuple[int, ...], values: tuple[float, ...], dtype: str, rng: np.random.Generator) -> Array:
    kind = np.dtype(dtype)
    if kind.kind == "u":
        return rng.integers(0, np.iinfo(kind).max, extents, kind, endpoint=True)
    if values:
        return np.resize(np.array(values), extents).astype(kind)
    return rng.normal(size=extents).astype(kind)


def viewed(x: Array, view: str) -> Array:
    """Return the same values in another memory layout."""
    images, height, width, channels = x.shape
    if view == "dense":
        return np.ascontiguousarray(x)
    if view == "nchw":
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    if view == "reversed":
        return np.ascontiguousarray(x[:, ::-1, ::-1])[:, ::-1, ::-1]
    if view == "channels":  # a run of channels of a wider array, which an image can share
        base = np.full((images, height, width, channels + 5), 77, x.dtype)
        base[..., 3 : 3 + channels] = x
        return base[..., 3 : 3 + channels]
    if view == "steps":  # every other pixel
        base = np.full((images, height * 2, width * 3, channels), 77, x.dtype)
        base[:, ::2, ::3] = x
        return base[:, ::2, ::3]
    if view == "broadcast":  # one image, N times
        return np.broadcast_to(np.ascontiguousarray(x[:1]), x.shape)
    if view == "read-only":
        x = np.ascontiguousarray(x)
        x.setflags(write=False)
        return x
    raise ValueError(view)


def _words(bits: Array) -> Array:
    """Pack bits: bit c % 32 of word c // 32 is that of channel c."""
    words = np.zeros((*bits.shape[:-1], -(-bits.shape[-1] // 32)), np.uint32)
    for channel in range(bits.shape[-1]):
        words[..., channel // 32] |= bits[..., channel].astype(np.uint32) << np.uint32(channel % 32)
    return words


def make(case: Case, dtype: str) -> Inputs:
    """Return the arrays, seeded by the row's text: the same numbers in any order of tests."""
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    x = _source(case.x, () if case.second else case.values, dtype, rng)
    if case.centre:
        x = (x + case.centre).astype(dtype)
    if case.x_view == "broadcast":
        x[:] = x[0]
    inputs = Inputs(viewed(x, case.x_view))
    if case.second:
        second = _source(case.second, case.values, case.second_dtype or dtype, rng)
        inputs.second = viewed(second, case.second_view)
        if case.activation and case.activation[0] == "prelu":
            inputs.slopes = rng.normal(size=case.second[3]).astype(np.float32)
    first, most = (case.params.get(f"source_feature_channel_{name}") for name in ("offset", "max_count"))
    read = min(case.x[3] - (first or 0), most or case.x[3])
    slopes_are_given = case.activation and case.activation[0] == "prelu" and case.given and not case.weight
    if case.params.get("type") == "prelu" or case.kernel == "NeuronPReLU" or slopes_are_given:
        inputs.slopes = rng.normal(size=read).astype(np.float32)
    for name in () if case.is_binary else case.given:
        given = rng.uniform(0.2, 2, read) if name == "variance" else rng.normal(size=read)
        inputs.given[name] = (given + (case.centre if name == "mean" else 0)).astype(np.float32)
    if not case.weight:
        return inputs

    terms = int(np.prod(case.weight)) // case.out_channels()
    weight = rng.normal(size=case.weight) / np.sqrt(terms)
    if case.quantized:
        inputs.weight = rng.integers(0, 255, case.weight, np.uint8, endpoint=True)
        low = rng.normal(size=case.out_channels())
        inputs.ranges = np.stack([low, low + rng.uniform(0.1, 2, low.shape)], axis=1).astype(np.float32)
        inputs.lookup_table = (rng.normal(size=256) / np.sqrt(terms)).astype(np.float32)
    elif case.is_binary:
        inputs.bits = rng.integers(0, 1, case.weight, np.uint8, endpoint=True)
        inputs.weight = _words(inputs.bits)
        extents = {"scale": case.weight[0], "input_bias": case.weight[3], "input_scale": case.weight[3]}
        inputs.given = {name: rng.normal(size=extents[name]).astype(np.float32) for name in case.given}
    elif case.weight_dtype == "bfloat16":
        import ml_dtypes

        inputs.weight = weight.astype(ml_dtypes.bfloat16)
    else:
        inputs.weight = weight.astype(case.weight_dtype)
    outputs = case.out_channels()
    if case.bias:
        inputs.bias = rng.normal(size=outputs).astype(np.float32)
    if case.activation and case.activation[0] == "prelu":
        inputs.slopes = rng.normal(size=outputs).astype(np.float32)
    if case.batch_norm:
        names = ("mean", "variance", "gamma", "beta")
        numbers = [
            rng.normal(size=outputs),
            rng.uniform(0.2, 2, outputs),
            rng.normal(size=outputs),
            rng.normal(size=outputs),
        ]
        inputs.norm = {name: value.astype(np.float32) for name, value in zip(names, numbers, strict=True)}
        inputs.norm["epsilon"] = 0.125  # large enough to have an effect, and exact
    return inputs


def all_cases() -> list[Case]:
    """Return the cases of all modules of this package, sorted by module name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [case for name in names for case in importlib.import_module(f"{__name__}.{name}").CASES]
