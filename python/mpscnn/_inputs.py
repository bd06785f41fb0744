# SPDX-License-Identifier: Apache-2.0
"""Shapes and types of a model's inputs. Arrays whose type is none of images are converted before each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _checks, _sizes
from .graph import FRACTIONS, INPUT_DTYPES, Input

EXACT = 1 << 24  # float32 holds all whole numbers up to this magnitude


def is_integer(dtype: str) -> bool:
    """Return whether values of an `Input.dtype` are whole numbers or truth values."""
    return dtype not in ("", "bfloat16")


def dtype_name(array: Any) -> str:
    """Return the name of an array's type, "int64" or "bfloat16", of NumPy, ml_dtypes, PyTorch and others."""
    return str(getattr(array, "dtype", "")).removeprefix("torch.")


def check_sizes(spec: Input, extents: Mapping[str, int]) -> None:
    """Raise ValueError if a batch, height or width ("N", "H", "W") does not meet the condition of an input."""
    if not spec.sizes:
        return
    batch, height, width = (extents.get(letter, 1) for letter in "NHW")
    if not _sizes.holds(spec.sizes, height, width, batch):
        what = f"{height} x {width} is not a size"
        if "batch" in _sizes.reads(spec.sizes):
            what = f"a batch of {batch}, of {height} x {width}, is not one"
        raise ValueError(
            f'input "{spec.name}": {what} that the model was imported for: it takes other branches or fails unless'
            f" {_sizes.violated(spec.sizes, height, width, batch)}. Load it again for this size."
        )


def converted(array: Any, spec: Input) -> Any:
    """Return an array that an image takes, for an input whose `dtype` is not "".

    Raise TypeError for an array of another type, ValueError for a number that float32 does not hold.
    """
    if not hasattr(array, "dtype"):
        array = as_array(array)
    name = dtype_name(array)
    if spec.dtype == "bfloat16":
        return _floats(array) if name == "bfloat16" else array
    if name == "":
        return array  # no array: the core says so
    if name != spec.dtype:
        of_torch = hasattr(array, "to") and str(array.dtype).startswith("torch.")
        how = f".to(torch.{spec.dtype})" if of_torch else f'.astype("{spec.dtype}")'
        raise TypeError(
            f'input "{spec.name}": dtype ({name}) is not {spec.dtype}, the type of the model\'s input: convert the'
            f" array with {how}."
        )
    if spec.dtype in FRACTIONS:
        return array
    if spec.dtype in ("int32", "int64", "uint32", "uint64"):
        _check_magnitude(array, spec)
    return _floats(array)


def rounded(array: NDArray[Any], spec: Input) -> NDArray[Any]:
    """Return numbers in the type of the model's input, rounded and clamped if it has whole numbers."""
    if not is_integer(spec.dtype) or dtype_name(array) == spec.dtype:
        return array
    if spec.dtype == "bool":
        return np.asarray(np.asarray(array) > 0)
    limits = np.iinfo(spec.dtype)
    low, high = max(limits.min, -EXACT), min(limits.max, EXACT)
    return np.asarray(np.clip(np.rint(np.asarray(array, np.float64)), low, high).astype(spec.dtype))


def as_floats(array: Any, spec: Input) -> NDArray[Any]:
    """Return the values that the graph's input has for an array."""
    found: NDArray[Any] = np.asarray(converted(array, spec) if spec.dtype else array)
    if spec.dtype in FRACTIONS:
        found = found.astype(np.float32) / np.float32(FRACTIONS[spec.dtype])
    return found


def as_array(array: Any) -> Any:
    """Return a buffer or a DLPack array as a NumPy array, other objects as they are."""
    try:
        return np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(memoryview(array))
    except (TypeError, BufferError, RuntimeError, ValueError):
        return array


def _floats(array: Any) -> Any:
    if hasattr(array, "astype"):
        return array.astype(np.float32)
    if hasattr(array, "float"):  # a tensor of PyTorch
        return array.float()
    return np.asarray(array).astype(np.float32)


def _check_magnitude(array: Any, spec: Input) -> None:
    if 0 in getattr(array, "shape", (0,)):
        return
    for value in (int(array.min()), int(array.max())):
        if abs(value) > EXACT:
            raise ValueError(
                f'input "{spec.name}": a value ({value}) is {"less" if value < 0 else "greater"} than the'
                f" {'minimum' if value < 0 else 'maximum'} ({EXACT if value > 0 else -EXACT}): whole numbers are"
                " float32 here, which holds those up to 2 ** 24."
            )


assert set(FRACTIONS) < set(INPUT_DTYPES)


def image_shape(spec: Input, shape: Sequence[int] | None, *, is_checked: bool = True) -> tuple[int, int, int, int]:
    """Return (N, H, W, C) of one input; None is a batch of 1. `is_checked`: the input's condition on sizes."""
    extents: dict[str, int | None] = {"N": 1, "H": spec.height, "W": spec.width, "C": spec.channels}
    if shape is None:
        free = [
            word for letter, word in (("H", "height"), ("W", "width"), ("C", "channels")) if extents[letter] is None
        ]
        if free:
            raise ValueError(f'input "{spec.name}": {" and ".join(free)} are free: give its shape ({spec.layout}).')
    else:
        layout, shape = spec.layout, _checks.integers(shape, f'input_shapes["{spec.name}"]', minimum=0)
        if len(shape) != len(layout):
            raise ValueError(f'input "{spec.name}": the shape {shape} has not the {len(layout)} extents of {layout}.')
        extents.update(dict.fromkeys("HWC", 1))
        extents.update(zip(layout, shape, strict=True))
    n, h, w, c = (int(extents[letter] or 1) for letter in "NHWC")
    if is_checked:
        check_sizes(spec, {"N": n, "H": h, "W": w})
    return n, h, w, c
