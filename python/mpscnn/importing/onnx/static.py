# SPDX-License-Identifier: Apache-2.0
"""Evaluation of values that are known at import: constants, and computations on shapes.

The batch stays a symbol. Heights and widths are known, but values computed from them are marked (`extent.Extent`), and
using such a number fixes the heights and widths of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import UnmappedError
from ..ops import resize
from . import scales
from .extent import Extent, ImageNumber, extents, is_symbolic, settled
from .reading import DTYPES, dtype_name

if TYPE_CHECKING:
    from .node import Call

SIZE_LIMIT = 1 << 26  # max values of a computed array
SYMBOLS_LIMIT = 1 << 12  # max values that are compared one by one
OBJECTS_LIMIT = 1 << 20  # max values that are computed of sizes


def _checked(shape: Iterable[int]) -> tuple[int, ...]:
    found = tuple(int(e) for e in shape)
    if any(e < 0 for e in found) or math.prod(found) > SIZE_LIMIT:
        raise UnmappedError(f"a constant of shape {found}")
    return found


def _limited(size: int, limit: int) -> None:
    if size > limit:
        raise UnmappedError(f"{size} values computed of sizes, more than the maximum ({limit})")


def _together(arrays: Iterable[NDArray[Any]]) -> None:
    try:
        _checked(np.broadcast_shapes(*(a.shape for a in arrays)))
    except ValueError:
        raise InvalidModelError(f"shapes {[a.shape for a in arrays]} do not broadcast.") from None


def _elementwise(f: Callable[..., Any]) -> Callable[[Call, list[Any]], list[Any]]:
    def run(call: Call, arrays: list[Any]) -> list[Any]:
        _together(arrays)
        if any(array.dtype == object for array in arrays):
            _limited(math.prod(np.broadcast_shapes(*(array.shape for array in arrays))), OBJECTS_LIMIT)
        with np.errstate(all="ignore"):
            return [np.asarray(f(*arrays))]

    return run


def _settled(f: Callable[..., Any]) -> Callable[[Call, list[Any]], list[Any]]:
    inner = _elementwise(f)

    def run(call: Call, arrays: list[Any]) -> list[Any]:
        return inner(call, [settled(a, call.builder.fix) for a in arrays])

    return run


def _divide(a: Any, b: Any) -> Any:
    if a.dtype == object or b.dtype == object:
        whole = all(
            isinstance(v.value if isinstance(v, Extent) else v, (int, np.integer, type(None)))
            for v in (*a.ravel(), *b.ravel())
        )
        return a // b if whole else a / b
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        if (b == 0).any():
            raise InvalidModelError("a division of integers by 0.")
        quotient = np.abs(a) // np.abs(b)
        return (quotient * np.sign(a) * np.sign(b)).astype(a.dtype)
    return np.divide(a, b)


def _power(a: Any, b: Any) -> Any:
    return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _equal(call: Call, arrays: list[Any]) -> list[Any]:
    """Compare values; a size of the batch, which is at least 1, is no number below."""
    if not any(map(is_symbolic, arrays)):
        return _settled(np.equal)(call, arrays)
    _together(arrays)
    a, b = np.broadcast_arrays(*arrays)
    _limited(a.size, SYMBOLS_LIMIT)
    found = np.empty(a.size, bool)
    for i, pair in enumerate(zip(a.ravel(), b.ravel(), strict=True)):
        of_batch = [isinstance(v, Extent) and v.of == ("", "N") and v.ratio > 0 for v in pair]
        small = [not isinstance(v, Extent) and v < 1 for v in pair]
        if (of_batch[0] and small[1]) or (of_batch[1] and small[0]):
            found[i] = False
            continue
        one, other = settled(extents(pair), call.builder.fix)
        found[i] = one == other
    return [found.reshape(a.shape)]


def _where(call: Call, arrays: list[Any]) -> list[Any]:
    _together(arrays)
    return [np.where(settled(arrays[0], call.builder.fix), *arrays[1:])]


def _rounding(f: Callable[[float], int], array_f: Callable[..., Any]) -> Callable[[Call, list[Any]], list[Any]]:
    def run(call: Call, arrays: list[Any]) -> list[Any]:
        (array,) = arrays
        if is_symbolic(array):
            return [_map(array, lambda v: v.rounded(f) if isinstance(v, Extent) else f(v))]
        return [np.asarray(array_f(array))]

    return run


def _map(array: NDArray[Any], f: Callable[[Any], Any]) -> NDArray[Any]:
    found = np.empty(array.size, object)
    found[:] = [f(v) for v in array.ravel()]
    return found.reshape(array.shape)


def _cast(call: Call, arrays: list[Any]) -> list[Any]:
    number = call.integer("to")
    dtype = DTYPES.get(number)
    if dtype is None:
        raise UnmappedError(f"a constant as {dtype_name(number)}")
    return [_converted(call, arrays[0], np.dtype(np.float32) if number == 16 else dtype)]


def _cast_like(call: Call, arrays: list[Any]) -> list[Any]:
    array, like = arrays
    if like.dtype.kind not in "fiubO":
        raise UnmappedError(f"a constant as {like.dtype}")
    floats = like.dtype == object and any(isinstance(getattr(v, "value", v), float) for v in like.ravel())
    dtype = np.dtype(np.float32 if floats else np.int64) if like.dtype == object else like.dtype
    return [_converted(call, array, dtype)]


def _converted(call: Call, array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values as those of a type; sizes stay symbols."""
    if is_symbolic(array):
        if dtype.kind in "iu":
            return _map(array, lambda v: v.rounded(math.trunc) if isinstance(v, Extent) else int(v))
        if dtype.kind == "f":
            return _map(array, lambda v: v.real() if isinstance(v, Extent) else float(v))
        array = settled(array, call.builder.fix)
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _gather(call: Call, arrays: list[Any]) -> list[Any]:
    data, indices = arrays[0], settled(arrays[1], call.builder.fix)
    axis = call.integer("axis", 0)
    if not data.ndim or not -data.ndim <= axis < data.ndim:
        raise InvalidModelError(f"axis {axis} of an array of {data.ndim} axes.")
    extent = data.shape[axis]
    if indices.size and not (-extent <= indices.min() and indices.max() < extent):
        raise InvalidModelError(f"an index beyond the {extent} along axis {axis}.")
    _checked(data.shape[: axis % data.ndim] + indices.shape + data.shape[axis % data.ndim + 1 :])
    return [np.take(data, indices.astype(np.int64), axis=axis)]


def _concat(call: Call, arrays: list[Any]) -> list[Any]:
    if any(a.dtype == object for a in arrays):
        arrays = [a.astype(object) for a in arrays]
    _checked([sum(a.size for a in arrays)])
    return [np.concatenate(arrays, axis=call.integer("axis"))]


def _axes(call: Call, arrays: list[Any]) -> list[int] | None:
    if len(arrays) > 1 and arrays[1] is not None:
        return [int(a) for a in settled(arrays[1], call.builder.fix).ravel()]
    return call.integers("axes", None)


def _squeeze(call: Call, arrays: list[Any]) -> list[Any]:
    axes = _axes(call, arrays)
    return [np.squeeze(arrays[0], None if axes is None else tuple(axes))]


def _unsqueeze(call: Call, arrays: list[Any]) -> list[Any]:
    axes = _axes(call, arrays)
    if axes is None or arrays[0].ndim + len(axes) > 32:
        raise InvalidModelError("Unsqueeze without axes.")
    return [np.expand_dims(arrays[0], tuple(axes))]


def _reshape(call: Call, arrays: list[Any]) -> list[Any]:
    array = arrays[0]
    shape = [int(e) for e in settled(arrays[1], call.builder.fix).ravel()]
    if not call.integer("allowzero", 0):
        shape = [array.shape[i] if e == 0 else e for i, e in enumerate(shape)]
    return [array.reshape(shape)]


def _slice(call: Call, arrays: list[Any]) -> list[Any]:
    array = arrays[0]
    starts, stops, axes, steps = call.slices(array.ndim, arrays[1:])
    index = [slice(None)] * array.ndim
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        index[axis] = slice(start, None if step < 0 and stop < -array.shape[axis] else stop, step)
    return [array[tuple(index)]]


def _range(call: Call, arrays: list[Any]) -> list[Any]:
    if all(array.size == 1 for array in arrays):
        first, last, by = (array.ravel()[0] for array in arrays)
        if isinstance(last, Extent) and last.is_batch and not isinstance(first, Extent) and (first, by) == (0, 1):
            return [extents([ImageNumber(None)])]
    start, stop, step = (settled(a, call.builder.fix).ravel()[0] for a in arrays)
    if step == 0 or not np.isfinite([start, stop, step]).all():
        raise InvalidModelError(f"a range from {start} to {stop} by {step}.")
    _checked([max(math.ceil((float(stop) - float(start)) / float(step)), 0)])
    return [np.arange(start, stop, step).astype(np.asarray(start).dtype)]


def _constant_of_shape(call: Call, arrays: list[Any]) -> list[Any]:
    items = list(arrays[0].ravel())
    if items and isinstance(items[0], Extent) and items[0].is_batch:
        items[0] = 1  # the same for each image
    shape = _checked(settled(extents(items), call.builder.fix).tolist())
    value = call.tensor_attribute("value")
    fill = np.zeros(1, np.float32) if value is None else value.ravel()[:1]
    return [np.broadcast_to(fill, shape) if shape else fill.reshape(())]


def _expand(call: Call, arrays: list[Any]) -> list[Any]:
    items = list(arrays[1].ravel())
    if items and isinstance(items[0], Extent) and items[0].is_batch:
        items[0] = 1
    shape = settled(extents(items), call.builder.fix).tolist()
    return [np.broadcast_to(arrays[0], _checked(np.broadcast_shapes(arrays[0].shape, tuple(shape))))]


def _tile(call: Call, arrays: list[Any]) -> list[Any]:
    repeats = settled(arrays[1], call.builder.fix).ravel().tolist()
    if len(repeats) != arrays[0].ndim:
        raise InvalidModelError(f"repeats {repeats} of an array of {arrays[0].ndim} axes.")
    _checked(e * r for e, r in zip(arrays[0].shape, repeats, strict=True))
    return [np.tile(arrays[0], repeats)]


def _split(call: Call, arrays: list[Any]) -> list[Any]:
    array, axis = arrays[0], call.integer("axis", 0)
    if not -array.ndim <= axis < array.ndim:
        raise InvalidModelError(f"axis {axis} of an array of {array.ndim} axes.")
    sizes = call.split_sizes(array.shape[axis], arrays[1] if len(arrays) > 1 else None)
    return list(np.split(array, np.cumsum(sizes)[:-1], axis=axis))


def _transpose(call: Call, arrays: list[Any]) -> list[Any]:
    return [np.transpose(arrays[0], call.integers("perm", None))]


def _flatten(call: Call, arrays: list[Any]) -> list[Any]:
    axis = call.integer("axis", 1)
    array = arrays[0]
    axis = axis + array.ndim if axis < 0 else axis
    return [array.reshape(math.prod(array.shape[:axis]), -1)]


def _reduction(f: Callable[..., Any]) -> Callable[[Call, list[Any]], list[Any]]:
    def run(call: Call, arrays: list[Any]) -> list[Any]:
        axes = _axes(call, arrays)
        if not axes and call.integer("noop_with_empty_axes", 0):
            return [arrays[0]]
        keep = bool(call.integer("keepdims", 1))
        array = arrays[0] if f is _prod else settled(arrays[0], call.builder.fix)
        with np.errstate(all="ignore"):
            return [np.asarray(f(array, axis=tuple(axes) if axes else None, keepdims=keep))]

    return run


def _prod(array: Any, axis: Any, keepdims: bool) -> Any:
    if array.dtype == object:
        return np.asarray(np.multiply.reduce(array.ravel())).reshape((1,) * array.ndim if keepdims else ())
    return np.prod(array, axis=axis, keepdims=keepdims, dtype=array.dtype)


def axis_of_scales(call: Call) -> int:
    """Return the axis that has a scale for each place."""
    if call.integer("block_size", 0):
        raise UnmappedError("blocks of quantized values")
    return call.integer("axis", 1)


def type_of_numbers(call: Call, of_zero: np.dtype[Any] | None) -> np.dtype[Any]:
    """Return the type of QuantizeLinear's result, which is that of the zero point if there is one."""
    number = call.integer("output_dtype", 0) or 2
    dtype = DTYPES.get(number) if of_zero is None else of_zero
    if dtype is None:
        raise UnmappedError(f"values quantized as {dtype_name(number)}")
    return scales.of_numbers(dtype)


def _quantize(call: Call, arrays: list[Any]) -> list[Any]:
    """Quantize a constant: round(x / scale) + zero point."""
    x, scale, zero = (*(settled(a, call.builder.fix) for a in arrays[:2]), arrays[2] if len(arrays) > 2 else None)
    dtype = type_of_numbers(call, None if zero is None else zero.dtype)
    step, offset = scales.checked(scale, zero, x.shape, axis_of_scales(call), divides=True)
    return [scales.quantized(x, step, offset, dtype)]


def _dequantize(call: Call, arrays: list[Any]) -> list[Any]:
    """Dequantize weights: (x - zero point) * scale, along one axis."""
    x, scale = arrays[:2]
    zero = arrays[2] if len(arrays) > 2 else None
    scale, offset = scales.checked(scale, zero, x.shape, axis_of_scales(call))
    return [scales.dequantized(x, scale, offset)]


def _referenced(call: Call, arrays: list[Any]) -> list[Any]:
    """Evaluate a node with ONNX's reference implementation; its results are no larger than its sources."""
    arrays = [None if a is None else settled(a, call.builder.fix) for a in arrays]
    _together(a for a in arrays if a is not None)
    return call.evaluated(arrays)


def _rearranged(call: Call, arrays: list[Any]) -> list[Any]:
    return call.evaluated([settled(a, call.builder.fix) for a in arrays])


def _coordinates(indices: NDArray[Any], extents: tuple[int, ...]) -> tuple[NDArray[np.int64], ...]:
    """Return an index for each of the first axes of an array of shape `extents`, from the last axis of `indices`."""
    if indices.dtype.kind not in "iu" or not indices.ndim or not 0 < indices.shape[-1] <= len(extents):
        raise InvalidModelError(f"indices of type {indices.dtype} and shape {indices.shape} for {len(extents)} axes.")
    found = []
    for extent, numbers in zip(extents, np.moveaxis(indices.astype(np.int64), -1, 0), strict=False):
        if numbers.size and not (-extent <= numbers.min() and numbers.max() < extent):
            raise InvalidModelError(f"an index beyond the {extent} of an axis.")
        found.append(numbers % extent if extent else numbers)
    return tuple(found)


def _gather_nd(call: Call, arrays: list[Any]) -> list[Any]:
    data, indices = (settled(a, call.builder.fix) for a in arrays)
    if call.integer("batch_dims", 0):
        raise UnmappedError("constants by indices of their own for each image of the batch")
    at = _coordinates(indices, data.shape)
    _checked((*indices.shape[:-1], *data.shape[len(at) :]))
    return [data[at]]


def _scatter(call: Call, arrays: list[Any]) -> list[Any]:
    data, indices, updates = (settled(a, call.builder.fix) for a in arrays)
    if call.operator == "ScatterND":
        at = _coordinates(indices, data.shape)
    else:
        axis = call.integer("axis", 0)
        if not -data.ndim <= axis < data.ndim or indices.ndim != data.ndim:
            raise InvalidModelError(f"axis {axis} and indices of shape {indices.shape} for {data.ndim} axes.")
        _checked((indices.size, indices.ndim))
        places = np.indices(indices.shape)
        places[axis] = indices
        at = _coordinates(np.moveaxis(places, 0, -1), data.shape)
    wanted = (*at[0].shape, *data.shape[len(at) :])
    if updates.shape != wanted:
        raise InvalidModelError(f"updates of shape {updates.shape}, not {wanted}.")
    kind, result = call.text("reduction", "none"), data.copy()
    if kind not in _COMBINED:
        raise InvalidModelError(f'reduction "{kind}".')
    function = _COMBINED[kind]
    if function is None:
        result[at] = updates
    else:
        function.at(result, at, updates)
    return [result]


_COMBINED: dict[str, Any] = {
    "none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def _one_hot_size(call: Call, arrays: list[Any]) -> list[Any]:
    _checked([*arrays[0].shape, int(settled(arrays[1], call.builder.fix).reshape(()))])
    return call.evaluated([settled(a, call.builder.fix) for a in arrays])


def _matmul(call: Call, arrays: list[Any]) -> list[Any]:
    a, b = arrays
    if a.ndim > 1 and b.ndim > 1:
        _checked([math.prod(a.shape[:-1]) * b.shape[-1] * math.prod(b.shape[:-2])])
    return [np.matmul(a, b)]


def _resize(call: Call, arrays: list[Any]) -> list[Any]:
    """Resize a constant, as a network does with positions that it was trained with."""
    x = settled(arrays[0], call.builder.fix)
    given = [None if array is None else settled(array, call.builder.fix) for array in arrays[1:]]
    names = call.text("mode", "nearest"), call.text("coordinate_transformation_mode", "half_pixel")
    if call.opset < 11 or names[0] not in ("nearest", "linear", "cubic") or names[1] not in resize.COORDINATES:
        raise UnmappedError(f"a constant resized by {names[0]} and {names[1]}, in opset {call.opset}")
    if call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnmappedError("a constant resized in its aspect ratio")
    axes = [axis % x.ndim for axis in call.integers("axes", list(range(x.ndim)))]
    numbers = [array for array in given[1:3] if array is not None and array.size]
    if len(numbers) != 1 or numbers[0].size != len(axes) or len(set(axes)) < len(axes):
        raise InvalidModelError(f"scales and sizes {[array.tolist() for array in numbers]} for axes {axes}.")
    of_axes = dict(zip(axes, numbers[0].ravel().tolist(), strict=True))
    is_size = len(given) > 2 and numbers[0] is given[2]
    smaller = any(e < x.shape[a] if is_size else e < 1 for a, e in of_axes.items())
    if call.integer("antialias", 0) and smaller:
        raise UnmappedError("antialias")
    rounding = call.text("nearest_mode", "round_prefer_floor")
    if rounding not in resize.ROUNDING:
        raise InvalidModelError(f'nearest_mode "{rounding}".')
    sizes, scales = (of_axes, {}) if is_size else ({}, of_axes)
    coefficient, is_inner = call.real("cubic_coeff_a", -0.75), bool(call.integer("exclude_outside", 0))
    return [resize.of_constant(x, sizes, scales, *names, rounding, coefficient, names[0] == "cubic" and is_inner)]


def _pad(call: Call, arrays: list[Any]) -> list[Any]:
    """Pad a constant, as a mask or positions that a network extends to a whole number of windows."""
    found: list[Any] = [None if a is None else settled(a, call.builder.fix) for a in arrays]
    x, pads, value, axes = [*found, None, None, None][:4]
    given = call.integers("pads", None) if pads is None else [int(e) for e in pads.ravel()]
    along = list(range(np.ndim(x))) if axes is None else [int(e) for e in axes.ravel()]
    if x is None or given is None or len(given) != 2 * len(along) or any(not -x.ndim <= e < x.ndim for e in along):
        raise InvalidModelError(f"pads {given} for axes {along} of {np.ndim(x)}.")
    sides = [(0, 0)] * x.ndim
    for axis, before, after in zip(along, given[: len(along)], given[len(along) :], strict=True):
        sides[axis % x.ndim] = before, after
    _checked(e + min(before, 0) + min(after, 0) for e, (before, after) in zip(x.shape, sides, strict=True))
    _checked(e + before + after for e, (before, after) in zip(x.shape, sides, strict=True))
    mode: Any = call.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise InvalidModelError(f'mode "{mode}".')
    if mode != "constant" and any(not 0 <= p < e for e, pair in zip(x.shape, sides, strict=True) for p in pair):
        raise UnmappedError(f'a constant of shape {x.shape} with the pads {given} of mode "{mode}"')
    number = call.real("value", 0.0) if value is None or not value.size else value.ravel()[0]
    options: dict[str, Any] = {"constant_values": number} if mode == "constant" else {}
    ends = zip(x.shape, sides, strict=True)
    kept = x[tuple(slice(max(-before, 0), e - max(-after, 0)) for e, (before, after) in ends)]
    return [np.pad(kept, [(max(before, 0), max(after, 0)) for before, after in sides], mode, **options)]


def _conv(call: Call, arrays: list[Any]) -> list[Any]:
    """Convolve constants, as a network does with positions, by ONNX's reference implementation."""
    x, weight, *bias = (None if array is None else settled(array, call.builder.fix) for array in arrays)
    if x is None or weight is None or x.ndim < 3 or weight.ndim != x.ndim or 0 in (*x.shape, *weight.shape):
        raise InvalidModelError("a convolution without values or weights, or of other axes.")
    reach = [
        (k - 1) * d + 1 for k, d in zip(weight.shape[2:], call.integers("dilations", [1] * (x.ndim - 2)), strict=True)
    ]
    pads = call.integers("pads", [0] * (2 * x.ndim - 4))
    if any(not 0 <= pad < 2 * extent for pad, extent in zip(pads, 2 * reach, strict=True)):
        raise UnmappedError(f"a constant convolved with pads {pads}")
    places = math.prod(e + 4 * r for e, r in zip(x.shape[2:], reach, strict=True)) * len(x)
    if places * weight.size > SIZE_LIMIT:
        raise UnmappedError(f"a constant of shape {x.shape} convolved with weights {weight.shape}")
    return call.evaluated([x, weight, *bias])


def _gemm(call: Call, arrays: list[Any]) -> list[Any]:
    """Multiply constant matrices, as a network does with positions: alpha * a @ b + beta * c."""
    a, b, c = (None if array is None else settled(array, call.builder.fix) for array in [*arrays, None][:3])
    if a is None or b is None or a.ndim != 2 or b.ndim != 2:
        raise InvalidModelError("a product that is not of two matrices.")
    a, b = a.T if call.integer("transA", 0) else a, b.T if call.integer("transB", 0) else b
    _checked((len(a), b.shape[1]))
    y = a @ b * a.dtype.type(call.real("alpha", 1.0))
    if c is not None:
        if np.broadcast_shapes(y.shape, c.shape) != y.shape:
            raise InvalidModelError(f"a sum of {y.shape} and {c.shape}.")
        y = y + c * a.dtype.type(call.real("beta", 1.0))
    return [y.astype(a.dtype)]


def _batch_normalization(call: Call, arrays: list[Any]) -> list[Any]:
    """Normalize constants: weights that are standardized, for which exporters write this operator in training."""
    x, scale, bias, *statistics = (settled(a, call.builder.fix) for a in arrays)
    if x.ndim < 2 or any(a.shape != x.shape[1:2] for a in (scale, bias, *statistics)) or call.opset < 7:
        raise UnmappedError("constants alone, of other shapes or in an opset before 7")
    to = (-1, *(1,) * (x.ndim - 2))
    mean, variance = (a.astype(np.float64) for a in statistics)
    if call.integer("training_mode", 0):
        axes, momentum = (0, *range(2, x.ndim)), call.real("momentum", 0.9)
        own = x.mean(axes, np.float64), x.var(axes, np.float64)
        statistics = [momentum * old + (1 - momentum) * new for old, new in zip((mean, variance), own, strict=True)]
        mean, variance = own
    factor = scale / np.sqrt(variance + call.real("epsilon", 1e-5))
    y = (x - mean.reshape(to)) * factor.reshape(to) + bias.reshape(to)
    return [y.astype(x.dtype), *(a.astype(np.float32) for a in statistics)]


def _round(v: float) -> int:
    return int(np.round(v))


# Operators without a size of their own.
REFERENCED = (
    *("Acosh", "ArgMax", "ArgMin", "Asinh", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
    *("Celu", "Cosh", "CumProd", "Elu", "EyeLike", "HardSigmoid", "HardSwish", "Hardmax", "LogSoftmax", "Mean", "Mish"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "Selu", "Shrink", "Sinh"),
    *("Softplus", "Softsign", "ThresholdedRelu"),
    *("Acos", "Asin", "Atan", "Clip", "Cos", "CumSum", "Erf", "Gelu", "IsInf", "IsNaN", "LayerNormalization"),
    *("LeakyRelu", "Relu", "Sigmoid", "Sign", "Sin", "Softmax", "Sum", "Tan", "Tanh", "Xor"),
)

OPERATORS: dict[str, Callable[[Call, list[Any]], list[Any]]] = {
    "Abs": _settled(np.abs),
    "Add": _elementwise(lambda a, b: a + b),
    "And": _settled(np.logical_and),
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _rounding(math.ceil, np.ceil),
    "Concat": _concat,
    "Conv": _conv,
    "ConstantOfShape": _constant_of_shape,
    "DequantizeLinear": _dequantize,
    "Div": _elementwise(_divide),
    "Dropout": lambda call, arrays: [arrays[0]],
    "Equal": _equal,
    "Exp": _settled(np.exp),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _rounding(math.floor, np.floor),
    "Gather": _gather,
    "Gemm": _gemm,
    "Greater": _settled(np.greater),
    "GreaterOrEqual": _settled(np.greater_equal),
    "Identity": lambda call, arrays: [arrays[0]],
    "Less": _settled(np.less),
    "LessOrEqual": _settled(np.less_equal),
    "Log": _settled(np.log),
    "MatMul": _matmul,
    "Max": _settled(lambda *a: np.maximum.reduce(np.broadcast_arrays(*a))),
    "Min": _settled(lambda *a: np.minimum.reduce(np.broadcast_arrays(*a))),
    "Mod": _elementwise(lambda a, b: a % b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Neg": _elementwise(lambda a: -a),
    "Not": _settled(np.logical_not),
    "Or": _settled(np.logical_or),
    "Pad": _pad,
    "Pow": _settled(_power),
    "QuantizeLinear": _quantize,
    "Range": _range,
    "Reciprocal": _settled(lambda a: (1 / a).astype(a.dtype)),
    "ReduceMax": _reduction(np.max),
    "ReduceMean": _reduction(np.mean),
    "ReduceMin": _reduction(np.min),
    "ReduceProd": _reduction(_prod),
    "ReduceSum": _reduction(np.sum),
    "Reshape": _reshape,
    "Resize": _resize,
    "Round": _rounding(_round, np.round),
    "Shape": lambda call, arrays: [call.shape_slice(arrays[0].shape)],
    "Size": lambda call, arrays: [np.array(arrays[0].size, np.int64)],
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _settled(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _elementwise(lambda a, b: a - b),
    "Tile": _tile,
    "GatherElements": _rearranged,
    "GatherND": _gather_nd,
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scatter),
    "Transpose": _transpose,
    "Trilu": _rearranged,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    **dict.fromkeys(("Compress", "NonZero", "Unique"), _rearranged),
    "OneHot": _one_hot_size,
} | dict.fromkeys(REFERENCED, _referenced)
OPERATORS |= {f"com.microsoft.{name}": OPERATORS[name] for name in ("DequantizeLinear", "QuantizeLinear")}
