# SPDX-License-Identifier: Apache-2.0
"""The ONNX operator Attention, of versions 23 and later."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Tensor, UnmappedError
from ..ops import activation, arithmetic, elementwise, general, shape
from .node import Call, Value
from .table import operator

NOUGHT, NEVER = np.float32(0), np.float32(-np.inf)


def _in_heads(call: Call, x: Tensor, attribute: str) -> Tensor:
    """Return a source as (N, heads, sequence, size)."""
    if x.rank == 4:
        return x
    if x.rank != 3:
        raise InvalidModelError(f"{call.name} (Attention): a source of {x.rank} axes, not 3 or 4.")
    length, width = x.shape
    heads = call.integer(attribute)
    if heads < 1 or width % heads:
        raise InvalidModelError(f"{call.name} (Attention): {attribute} ({heads}) does not divide {width}.")
    return shape.permute(call.builder, shape.reshape(call.builder, x, (length, heads, width // heads)), (0, 2, 1, 3))


def _with_past(call: Call, x: Tensor, index: int) -> Tensor:
    """Return keys or values behind those of earlier calls."""
    if call.value(index) is None:
        return x
    past = call.tensor(index)
    if past.rank != 4:
        raise InvalidModelError(f"{call.name} (Attention): input {index} has {past.rank} axes, not 4.")
    return shape.cat(call.builder, [past, x], 2)


def _allowed(call: Call, rows: int, columns: int, past: int) -> NDArray[np.bool_]:
    """Return which keys each row of a query may see, by its place."""
    ahead = np.arange(columns) - np.arange(past, past + rows)[:, None]  # places of keys from that of the query
    found = np.ones((rows, columns), bool)
    if call.integer("is_causal", 0):
        found &= ahead <= 0
    for attribute, distance in (("left_window_size", -ahead), ("right_window_size", ahead)):
        size = call.integer(attribute, -1)
        if size >= 0:
            found &= distance <= size
    return found


def _mask(call: Call, rows: int, columns: int) -> NDArray[np.float32] | Tensor | None:
    """Return the mask as numbers that are added: constant without the batch, or computed with four axes."""
    given = call.value(3)
    if isinstance(given, Tensor):
        if given.rank != 4 or given.shape[-1] != columns:
            raise UnmappedError(
                f"a computed mask of {given.rank} axes and {given.shape[-1:]} keys, not 4 and {columns}"
            )
        return elementwise.where(call.builder, given, 0.0, -np.inf) if call.type_of(3) == "bool" else given
    mask = call.array(3, "a mask", None)
    if mask is None:
        return None
    if mask.ndim not in (2, 3, 4) or mask.shape[-1] > columns or mask.dtype.kind not in "fb":
        raise InvalidModelError(f"{call.name} (Attention): a mask of {mask.dtype} of shape {mask.shape}.")
    if mask.dtype.kind == "b":
        mask = np.where(mask, NOUGHT, NEVER)
    if mask.ndim == 4:
        if not (mask == mask[:1]).all():
            raise UnmappedError(f"a mask of shape {mask.shape}, of its own for each image")
        mask = mask[0]
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, columns - mask.shape[-1])]
    return np.pad(mask.astype(np.float32), missing, constant_values=NEVER)


@operator("Attention")
def _attention(call: Call) -> list[Value]:
    b = call.builder
    if call.value(6) is not None:
        raise UnmappedError("nonpad_kv_seqlen: a number of keys that is computed of values")
    sources = [call.tensor(i) for i in range(3)]
    query, key, value = (
        _in_heads(call, x, name)
        for x, name in zip(sources, ("q_num_heads", "kv_num_heads", "kv_num_heads"), strict=True)
    )
    past = call.value(4)
    before = past.shape[1] if isinstance(past, Tensor) and past.rank == 4 else 0
    key, value = _with_past(call, key, 4), _with_past(call, value, 5)
    present = [key, value]
    heads, rows, size = query.shape
    groups, columns, _ = key.shape
    if key.shape[2] != size or value.shape[:2] != (groups, columns) or heads % groups:
        raise InvalidModelError(
            f"{call.name} (Attention): queries {query.shape}, keys {key.shape} and values {value.shape} do not fit."
        )
    for x in (query, key, value):
        b.fix_unless_constant(x)
    if heads != groups:
        places = np.repeat(np.arange(groups), heads // groups)
        key, value = (general.gather(b, x, 0, places) for x in (key, value))
    scale = call.real("scale", 1 / math.sqrt(size))
    scores = general.matmul(b, arithmetic.multiply(b, query, scale), general.permute(b, key, (0, 2, 1)))
    stages = [scores]
    softcap = call.real("softcap", 0.0)
    if softcap > 0:
        capped = activation.tanh(b, arithmetic.multiply(b, scores, 1 / softcap))
        scores = arithmetic.multiply(b, capped, softcap)
    stages.append(scores)
    mask = _mask(call, rows, columns)
    scores = _masked(call, scores, mask, _allowed(call, rows, columns, before))
    stages.append(scores)
    weights = b.add("SoftMax", general.store(b, scores))
    if isinstance(mask, Tensor):  # a row without keys has weights of 0
        weights = elementwise.where(b, elementwise.unary(b, weights, "isnan"), 0.0, weights)
    stages.append(weights)
    y: Any = general.matmul(b, weights, value)
    if sources[0].rank == 3:
        y = shape.permute(b, y, (0, 2, 1, 3))
        y = shape.reshape(b, y, (rows, heads * value.shape[-1]))
    mode = call.integer("qk_matmul_output_mode", 0)
    if mode not in range(4):
        raise InvalidModelError(f"{call.name} (Attention): qk_matmul_output_mode ({mode}) is not one of 0 to 3.")
    return [y, *present, stages[mode]]


def _masked(
    call: Call, scores: Tensor, mask: NDArray[np.float32] | Tensor | None, allowed: NDArray[np.bool_]
) -> Tensor:
    b = call.builder
    constant: Any = np.where(allowed, NOUGHT, NEVER)
    if isinstance(mask, Tensor):
        scores = general.binary(b, arithmetic.add, scores, mask)
    elif mask is not None:
        constant = constant + mask
    if np.isneginf(constant.max(-1)).any():
        raise UnmappedError("a mask that leaves no key to a row")
    return general.binary(b, arithmetic.add, scores, constant) if constant.any() else scores
