# SPDX-License-Identifier: Apache-2.0
"""Layers of shapes.txt on integers, whose sums float32 represents exactly in any order. Winograd's convolution rounds.

python tests/shapes.py file.npz     compares the results written by save(), and prints the differences
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import mpscnn

LIST = Path(__file__).with_name("shapes.txt")
SLOPE = 0.25
MOST_CHANNELS = 8192
"""Of all images of a batch."""
# The implementation may be chosen, unless these variables exclude it.
WINOGRAD = os.environ.get("MPSCNN_WINOGRAD") != "0" and os.environ.get("MPSCNN_IMPL") in (None, "winograd")


class Row(NamedTuple):
    """A line of shapes.txt, which describes the numbers."""

    kind: str
    inputs: int
    outputs: int
    groups: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    size: tuple[int, int]
    bias: int
    extra: int
    network: str

    @classmethod
    def parse(cls, line: str) -> Row:
        kind, *words, network = line.split()
        n = [int(word) for word in words]
        pairs = [(n[i], n[i + 1]) for i in range(3, 13, 2)]
        return cls(kind, n[0], n[1], n[2], *pairs, n[13], n[14], network)

    def __str__(self) -> str:
        pairs = (*self.kernel, *self.stride, *self.padding, *self.dilation, *self.size)
        return " ".join(map(str, (self.kind, *self[1:4], *pairs, self.bias, self.extra, self.network)))

    def cut(self, size: int) -> Row:
        """Return the row with height and width limited to `size`, but no less than one window needs."""
        least = [(k - 1) * d + 1 - 2 * p for k, d, p in zip(self.kernel, self.dilation, self.padding, strict=True)]
        return self._replace(size=tuple(min(n, max(size, m)) for n, m in zip(self.size, least, strict=True)))

    @property
    def is_pooling(self) -> bool:
        return self.kind in ("max", "average")

    @property
    def is_exact(self) -> bool:
        if self.kind == "average":  # divides
            return False
        ones = (1, 1)
        return not WINOGRAD or (self.kernel, self.stride, self.dilation, self.groups) != ((3, 3), ones, ones, 1)

    @property
    def weights(self) -> int:
        return 0 if self.is_pooling else self.inputs * self.outputs // self.groups * self.kernel[0] * self.kernel[1]

    @property
    def multiplications(self) -> int:
        height, width = self.size
        strides = 1 if self.kind == "transpose" else self.stride[0] * self.stride[1]
        return self.weights * height * width // strides


def rows() -> list[Row]:
    return [Row.parse(line) for line in LIST.read_text().splitlines() if not line.startswith("#")]


def whole(rng: np.random.Generator, shape: tuple[int, ...], most: int) -> NDArray[np.float32]:
    return rng.integers(-most, most, shape, dtype=np.int16, endpoint=True).astype(np.float32)


def given(row: Row, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return x (N, H, W, C) with more than 8 bits per value, weight in PyTorch's order, and bias."""
    rng = np.random.default_rng(seed)
    few = min(5, MOST_CHANNELS // max(row.inputs, row.outputs))
    images = few if row.size[0] * row.size[1] <= 4 else int(rng.choice([1, 1, 2]))
    arrays = {"x": whole(rng, (images, *row.size, row.inputs), 511)}
    if row.is_pooling:
        return arrays
    first, second = row.outputs, row.inputs // row.groups
    if row.kind == "transpose":
        first, second = row.inputs, row.outputs // row.groups
    arrays["weight"] = whole(rng, (first, second, *(() if row.kind == "linear" else row.kernel)), 7)
    if row.bias:
        arrays["bias"] = whole(rng, (row.outputs,), 511)
    return arrays


def incoming(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a gradient of the result."""
    return whole(np.random.default_rng(7), shape, 7)


def kernel(row: Row, arrays: dict[str, Any], activation: Any = None) -> Any:
    weight, bias = arrays.get("weight"), arrays.get("bias")
    if row.kind == "linear":
        return mpscnn.FullyConnected(weight, bias, activation=activation)
    pads: dict[str, Any] = {"stride": row.stride, "padding": row.padding}
    if row.kind == "max":
        return mpscnn.PoolingMax(row.kernel, ceil_mode=bool(row.extra), **pads)
    if row.kind == "average":
        return mpscnn.PoolingAverage(row.kernel, ceil_mode=bool(row.extra), count_include_pad=bool(row.bias), **pads)
    pads |= {"groups": row.groups, "activation": activation}
    if row.kind == "transpose":
        return mpscnn.ConvolutionTranspose(weight, bias, output_padding=row.extra, **pads)
    return mpscnn.Convolution(weight, bias, dilation=row.dilation, **pads)


def computed(row: Row, arrays: dict[str, Any], *, gradients: bool = True) -> dict[str, NDArray[np.float32]]:
    """Return the result, the result with a fused activation, and gradients; those of weights in the state's order."""
    layer = kernel(row, arrays)
    found = {}
    if gradients:
        found["y"], state = layer(arrays["x"], with_state=True)
        found["grad_x"] = layer.gradient(incoming(found["y"].shape), arrays["x"], state)
        if not row.is_pooling:
            found["grad_weight"] = state.grad_weight
            if row.bias:
                found["grad_bias"] = state.grad_bias
    else:
        found["y"] = layer(arrays["x"])
    if not row.is_pooling:
        found["activated"] = kernel(row, arrays, mpscnn.NeuronReLU(SLOPE))(arrays["x"])
    return found


def differences(row: Row, found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Compare exactly where the row is."""
    wrong = []
    for name, values in found.items():
        right = wanted[name]
        if values.shape != right.shape:
            wrong.append(f"{row}: {name} has shape {values.shape}, not {right.shape}")
            continue
        tolerance = 1e-5 * np.abs(right).max(initial=1.0) if not row.is_exact else 0.0
        error = np.abs(values - right)
        if not (error <= tolerance).all():
            wrong.append(f"{row}: {name} is off by up to {error.max()} in {(error > tolerance).mean():.1%} of values")
    return wrong


def save(path: Path, cases: Iterable[tuple[Row, int, dict[str, Any]]]) -> None:
    arrays: dict[str, Any] = {}
    lines = []
    for i, (row, seed, wanted) in enumerate(cases):
        lines.append(f"{seed} {row}")
        arrays |= {f"{i}.{name}": values for name, values in wanted.items()}
    np.savez(path, rows=np.array(lines), **arrays)


def main(path: str) -> None:
    with np.load(path) as file:
        for i, case in enumerate(file["rows"]):
            seed, text = str(case).split(maxsplit=1)
            row = Row.parse(text)
            found = computed(row, given(row, int(seed)))
            for line in differences(row, found, {name: file[f"{i}.{name}"] for name in found}):
                print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
