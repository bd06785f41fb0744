# SPDX-License-Identifier: Apache-2.0
"""Normalization."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from ..ops import normalization, shape, volumes
from ..torch_arguments import Arguments, Merged, Missing
from .registry import operator

_OF_BATCH = (
    "normalization by the statistics of the batch: call module.eval() before the export; with track_running_stats=False"
    " there are no others"
)


@operator("batch_norm", "_native_batch_norm_legit", "native_batch_norm")
def _batch_norm(b: Builder, a: Arguments) -> Any:
    several = a.node.target._schema.name != "aten::batch_norm"  # type: ignore[union-attr]
    if a["training"]:
        if several and "running_mean" not in a:
            return [_instance_norm_of_batch(b, a), *[Missing("statistics of a normalization")] * 2]
        raise UnmappedError(_OF_BATCH)
    names, eps = ("running_mean", "running_var", "weight", "bias"), a.number("eps")
    momentum = a.number("momentum")
    y: Tensor | Merged
    if isinstance(a["input"], Merged) and len(a["input"].shape) == 2 and a["input"].shape[0] != 1:
        # Rows of all images, normalized along their last axis.
        x = shape.transpose(b, a["input"].apart(b), 1, 2)
        x = _by_statistics(b, a, x)
        y = a["input"].with_(shape.transpose(b, x, 1, 2))
    elif isinstance(a["input"], Merged):
        x = _images_as_channels(a["input"])
        mean, variance, weight, bias = (_one_of_many(a.optional_array(name), x.channels, name) for name in names)
        assert mean is not None
        assert variance is not None
        y = Merged(normalization.batch_norm(b, x, mean, variance, weight, bias, eps, momentum), a["input"].shape)
    else:
        y = _by_statistics(b, a, a.source)
    return [y, *[Missing("statistics of a normalization")] * 3] if several else y


def _by_statistics(b: Builder, a: Arguments, x: Tensor) -> Tensor:
    """Return batch normalization of a tensor's channels by the node's own statistics."""
    mean, variance = a.array("running_mean"), a.array("running_var")
    weight, bias = a.optional_array("weight"), a.optional_array("bias")
    norm = volumes.batch_norm if x.rank == 5 else normalization.batch_norm
    return norm(b, x, mean, variance, weight, bias, eps=a.number("eps"), momentum=a.number("momentum"))


@operator("_native_batch_norm_legit_no_training")
def _batch_norm_in_inference(b: Builder, a: Arguments) -> Any:
    a.values["training"] = False
    return _batch_norm(b, a)


def _instance_norm_of_batch(b: Builder, a: Arguments) -> Merged | Tensor:
    """Return core ATen's instance normalization: batch normalization of one image with the channels of all images."""
    source = a["input"]
    eps = a.number("eps")
    if isinstance(source, Merged):
        x = _images_as_channels(source)
        weight, bias = (_one_of_many(a.optional_array(name), x.channels, name) for name in ("weight", "bias"))
        return Merged(normalization.instance_norm(b, x, None, None, weight, bias, True, eps), source.shape)
    # For a batch of one image both are the same; a view before it indicates instance normalization.
    before = a.node.args[0]
    if isinstance(before, torch.fx.Node) and "view" in str(before.target) and a.batch == 1:
        return normalization.instance_norm(
            b, a.tensor("input"), None, None, a.optional_array("weight"), a.optional_array("bias"), True, eps
        )
    raise UnmappedError(_OF_BATCH)


def _images_as_channels(source: Merged) -> Tensor:
    """Return the tensor that was viewed as one image with the channels of all images."""
    x = source.tensor
    if source.shape[0] != 1 or source.shape[2:] != x.shape[1:] or x.axes[1:2] != "C":
        raise UnmappedError(f"normalization of {source.shape}, the batch taken together with other axes")
    return x


def _one_of_many(values: NDArray[Any] | None, channels: int, name: str) -> NDArray[Any] | None:
    """Return the values of one image, if the values are repeated for each image."""
    if values is None:
        return None
    rows = values.reshape(-1, channels)
    if (rows != rows[0]).any():
        raise UnmappedError(f"{name}: values of their own for each image")
    first: NDArray[Any] = rows[0]
    return first


@operator("instance_norm")
def _instance_norm(b: Builder, a: Arguments) -> Tensor:
    return normalization.instance_norm(
        b,
        a.source,
        a.optional_array("running_mean"),
        a.optional_array("running_var"),
        a.optional_array("weight"),
        a.optional_array("bias"),
        a["use_input_stats"],
        a.number("eps"),
    )


@operator("group_norm")
def _group_norm(b: Builder, a: Arguments) -> Tensor:
    return normalization.group_norm(
        b, a.source, a.integer("num_groups"), a.optional_array("weight"), a.optional_array("bias"), a.number("eps")
    )


@operator("native_group_norm")
def _native_group_norm(b: Builder, a: Arguments) -> list[Any]:
    y = normalization.group_norm(
        b, a.source, a.integer("group"), a.optional_array("weight"), a.optional_array("bias"), a.number("eps")
    )
    return [y, *[Missing("statistics of a normalization")] * 2]


@operator("layer_norm")
def _layer_norm(b: Builder, a: Arguments) -> Tensor:
    return normalization.layer_norm(
        b,
        a.source,
        a.integers("normalized_shape"),
        a.optional_array("weight"),
        a.optional_array("bias"),
        a.number("eps"),
    )


@operator("rms_norm")
def _rms_norm(b: Builder, a: Arguments) -> Tensor:
    eps = a.optional_number("eps")
    if eps is None:
        eps = float(torch.finfo(a.node.meta["val"].dtype).eps)
    return normalization.rms_norm(b, a.source, len(a.integers("normalized_shape")), a.optional_array("weight"), eps)


@operator("native_layer_norm")
def _native_layer_norm(b: Builder, a: Arguments) -> list[Any]:
    return [_layer_norm(b, a), *[Missing("statistics of a normalization")] * 2]
