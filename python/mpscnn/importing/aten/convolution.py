# SPDX-License-Identifier: Apache-2.0
"""Convolutions and linear layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from ..ops import arithmetic, convolution, deformable, einsum, elementwise, general, parts, shape, volumes
from ..torch_arguments import Arguments, Merged, Rows
from .registry import operator


@operator("conv3d", "conv2d", "conv1d")
def _conv(b: Builder, a: Arguments) -> Tensor:
    weight = a.array("weight")
    padding: Any = a["padding"] if isinstance(a["padding"], str) else a.integers("padding")
    return _convolution(b, a, weight, padding, a.integer("groups"))


def _convolution(b: Builder, a: Arguments, weight: NDArray[Any], padding: Any, groups: int) -> Tensor:
    x, bias = a.source, a.optional_array("bias")
    if x.rank == weight.ndim - 1:
        raise UnmappedError(f"an input without a batch, {x.rank} axes")
    if weight.ndim == 4:
        compute = parts.conv2d if x.rank == 5 else convolution.conv2d
        return compute(b, x, weight, bias, a.pair("stride"), padding, a.pair("dilation"), groups)
    if weight.ndim == 3:
        pads = padding if isinstance(padding, str) else a.one("padding")
        return convolution.conv1d(b, x, weight, bias, a.one("stride"), pads, a.one("dilation"), groups)
    if weight.ndim == 5:
        pads3 = padding if isinstance(padding, str) else a.triple("padding")
        return volumes.conv3d(b, x, weight, bias, a.triple("stride"), pads3, a.triple("dilation"), groups)
    raise UnmappedError(f"a convolution along {weight.ndim - 2} axes")


@operator("conv_transpose3d", "conv_transpose2d", "conv_transpose1d")
def _conv_transpose(b: Builder, a: Arguments) -> Tensor:
    x, weight, bias = a.source, a.array("weight"), a.optional_array("bias")
    if x.rank == weight.ndim - 1:
        raise UnmappedError(f"an input without a batch, {x.rank} axes")
    if weight.ndim == 4:
        return convolution.conv_transpose2d(
            b,
            x,
            weight,
            bias,
            a.pair("stride"),
            a.pair("padding"),
            a.pair("output_padding"),
            a.integer("groups"),
            a.pair("dilation"),
        )
    if weight.ndim == 3:
        return convolution.conv_transpose1d(
            b,
            x,
            weight,
            bias,
            a.one("stride"),
            a.one("padding"),
            a.one("output_padding"),
            a.integer("groups"),
            a.one("dilation"),
        )
    if weight.ndim == 5:
        return volumes.conv_transpose3d(
            b,
            x,
            weight,
            bias,
            a.triple("stride"),
            a.triple("padding"),
            a.triple("output_padding"),
            a.integer("groups"),
            a.triple("dilation"),
        )
    raise UnmappedError(f"a transposed convolution along {weight.ndim - 2} axes")


@operator("convolution", "_convolution")
def _core_convolution(b: Builder, a: Arguments) -> Tensor:
    if a["transposed"]:
        return _conv_transpose(b, a)
    return _convolution(b, a, a.array("weight"), a.integers("padding"), a.integer("groups"))


@operator("torchvision.deform_conv2d")
def _deformable(b: Builder, a: Arguments) -> Tensor:
    x, weight = a.tensor("input"), a.array("weight")
    sources: list[Tensor | None] = []
    for name in ("offset", "mask"):
        source = a.operand(name) if name == "offset" or a["use_mask"] else None
        if source is not None and not isinstance(source, Tensor):
            source = general.constant(b, x, elementwise.of_image(source, 4))
        sources.append(source)
    offset, mask = sources
    assert offset is not None
    pads = a.integer("pad_h"), a.integer("pad_w")
    return deformable.deform_conv2d(
        b,
        x,
        weight,
        offset,
        mask,
        a.optional_array("bias"),
        (a.integer("stride_h"), a.integer("stride_w")),
        ((pads[0], pads[0]), (pads[1], pads[1])),
        (a.integer("dilation_h"), a.integer("dilation_w")),
        a.integer("groups"),
        a.integer("offset_groups"),
    )


def _linear(b: Builder, value: Any, weight: NDArray[Any], bias: NDArray[Any] | None, a: Arguments) -> Any:
    """Apply a linear layer, also to pixels that are merged with the batch."""
    if isinstance(value, Rows):
        assert isinstance(value.turned.tensor, Tensor)
        y = convolution.linear(b, value.turned.tensor, weight, bias)
        return Rows(replace(value.turned, tensor=y), (value.shape[0], len(weight)))
    if isinstance(value, Merged):
        if value.tensor.shape[-1:] != value.shape[-1:]:
            return value.with_(convolution.linear(b, value.apart(b), weight, bias))
        y = convolution.linear(b, value.tensor, weight, bias)
        return replace(value, tensor=y, shape=(*value.shape[:-1], len(weight)))
    return convolution.linear(b, a.tensor("input") if value is None else value, weight, bias)


def _first(a: Arguments, name: str) -> Any:
    return a[name] if isinstance(a[name], (Merged, Rows)) else a.tensor(name)


@operator("linear")
def _linear_layer(b: Builder, a: Arguments) -> Any:
    return _linear(b, _first(a, "input"), a.array("weight"), a.optional_array("bias"), a)


@operator("addmm")
def _addmm(b: Builder, a: Arguments) -> Any:
    source, weight, bias = _first(a, "mat1"), a.array("mat2").T, a.array("self")
    alpha, beta = a.number("alpha"), a.number("beta")
    if bias.ndim > 1 and bias.shape[0] == 1:
        bias = bias[0]
    if bias.ndim == 0 or bias.shape == (1,):
        bias = np.full(len(weight), bias.reshape(()), np.float32)
    return _linear(b, source, weight if alpha == 1 else weight * alpha, bias if beta == 1 else bias * beta, a)


@operator("mm", "matmul", "bmm")
def _matmul(b: Builder, a: Arguments) -> Any:
    name, other = ("mat2", a["mat2"]) if "mat2" in a else ("other", a["other"])
    if not isinstance(other, torch.Tensor) or isinstance(a["self"], torch.Tensor):
        return _product(b, a, "self", name)
    weight = a.array(name)
    if weight.ndim == 3 and (weight == weight[:1]).all():
        weight = weight[0]  # core ATen repeats it for each row of pixels
    if weight.ndim != 2:
        return _product(b, a, "self", name)
    return _linear(b, _first(a, "self"), weight.T, None, a)


def _product(b: Builder, a: Arguments, first: str, second: str) -> Tensor:
    """Return the product of two matrices, for each of several; one of them may be a constant."""
    one, other = a.operand(first), a.operand(second)
    like = next(x for x in (one, other) if isinstance(x, Tensor))
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one.rank != other.rank:
        raise UnmappedError(f"a product of tensors of {one.rank} and {other.rank} axes")
    one, other = (x if isinstance(x, Tensor) else general.matrices(b, x, like) for x in (one, other))
    return general.matmul(b, one, other)


@operator("baddbmm")
def _baddbmm(b: Builder, a: Arguments) -> Any:
    product = _product(b, a, "batch1", "batch2")
    beta, alpha = a.number("beta"), a.number("alpha")
    product = arithmetic.multiply(b, product, alpha)
    if beta == 0:
        return product
    more = a.operand("self")
    if not isinstance(more, Tensor):
        more = np.asarray(more, np.float32) * np.float32(beta)
        return arithmetic.add(b, product, more)
    return general.binary(b, arithmetic.add, product, arithmetic.multiply(b, more, beta))


def _as_often(b: Builder, x: Tensor, heads: int) -> Tensor:
    """Return each head of keys or values as often as there are heads of queries for it."""
    own = x.shape[-3]
    return x if own == heads else shape.repeat_interleave(b, x, heads // own, x.rank - 3)


@operator("scaled_dot_product_attention")
def _attention(b: Builder, a: Arguments) -> Tensor:
    if a.number("dropout_p") > 0:
        raise UnmappedError("dropout in training: call module.eval() before the export")
    operands = [a.operand(name) for name in ("query", "key", "value")]
    like = next(x for x in operands if isinstance(x, Tensor))
    query, key, value = (x if isinstance(x, Tensor) else general.matrices(b, x, like) for x in operands)
    if a["enable_gqa"]:
        key, value = (_as_often(b, x, query.shape[-3]) for x in (key, value))
    mask: Any = None
    if a["attn_mask"] is not None:
        mask = a.operand("attn_mask")
        if not isinstance(mask, Tensor):
            mask = np.asarray(mask)
            if mask.dtype == np.bool_:
                mask = np.where(mask, np.float32(0), np.float32(-np.inf))
            if mask.ndim == query.rank:
                if len(mask) != 1:
                    raise UnmappedError(f"a mask of shape {mask.shape}, of its own for each image")
                mask = mask[0]
    if a["is_causal"]:
        rows, columns = query.shape[-2], key.shape[-2]
        mask = np.where(np.tri(rows, columns, dtype=bool), np.float32(0), np.float32(-np.inf))
    return general.attention(b, query, key, value, mask, a.optional_number("scale"))


@operator("einsum")
def _einsum(b: Builder, a: Arguments) -> Tensor:
    operands = []
    for value in a["tensors"]:
        a.values["part"] = value
        operands.append(a.operand("part"))
    return einsum.einsum(b, str(a["equation"]), operands)
