# SPDX-License-Identifier: Apache-2.0
"""ONNX operators with windows and weights: convolutions, linear layers, pooling, normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidModelError
from ..builder import Builder, Tensor, UnmappedError
from ..ops import arithmetic, convolution, deformable, einsum, general, pooling, reduction, shape
from .node import Call, Value
from .table import operator

EXTENT_LIMIT = 1 << 20  # max pixels of windows and of images
SAME = ("SAME_UPPER", "SAME_LOWER")


class Windows:
    """Geometry of a node's windows: one number per spatial axis of the tensor."""

    def __init__(self, call: Call, x: Tensor, kernel: Sequence[int]) -> None:
        self.call, self.x = call, x
        self.rank = x.rank - 2
        self.kernel = list(kernel)
        if len(self.kernel) != self.rank or self.rank not in (1, 2):
            raise UnmappedError(f"windows of {len(self.kernel)} axes on a tensor of {x.rank} axes")
        self.stride = self._extents("strides")
        self.dilation = self._extents("dilations")
        if min(*self.kernel, *self.stride, *self.dilation) < 1:
            raise InvalidModelError(
                f"{call.name}: kernel {self.kernel}, strides {self.stride}, dilations {self.dilation}."
            )
        if max(*self.kernel, *self.stride, *self.dilation) > EXTENT_LIMIT:
            raise UnmappedError(f"windows of {self.kernel} pixels, steps of {self.stride}, more than the limit")
        self.mode = call.text("auto_pad", "NOTSET")
        self.reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        if self.mode not in (*SAME, "VALID", "NOTSET"):
            raise InvalidModelError(f'{call.name}: auto_pad "{self.mode}".')

    def _extents(self, name: str) -> list[int]:
        values = self.call.integers(name, [1] * self.rank)
        if len(values) != self.rank:
            raise InvalidModelError(f"{self.call.name}: {name} {values} for {self.rank} axes.")
        return values

    def explicit(self) -> tuple[tuple[int, int], ...]:
        """Return the padding in the node's attribute."""
        pads = self.call.integers("pads", [0] * (2 * self.rank)) if self.mode == "NOTSET" else [0] * (2 * self.rank)
        if len(pads) != 2 * self.rank or min(pads) < 0:
            raise InvalidModelError(f"{self.call.name}: pads {pads} for {self.rank} axes.")
        return tuple(zip(pads[: self.rank], pads[self.rank :], strict=True))

    @property
    def follows_size(self) -> bool:
        """Whether the padding depends on the extents, and MPS's "same" equals it at any extents."""
        return (
            self.mode == "SAME_UPPER"
            and all(s <= r for s, r in zip(self.stride, self.reach, strict=True))
            and any(s > 1 for s in self.stride)
        )

    def padding(self) -> tuple[tuple[int, int], ...]:
        """Return (before, after) of each axis, and fix heights and widths if the padding depends on them."""
        if self.mode not in SAME:
            return self.explicit()
        found = []
        for extent, stride, reach in zip(self.x.shape[1:], self.stride, self.reach, strict=True):
            total = max((-(-extent // stride) - 1) * stride + reach - extent, 0)
            small, large = total // 2, total - total // 2
            found.append((small, large) if self.mode == "SAME_UPPER" else (large, small))
        depends = any(s > 1 and r > 1 for s, r in zip(self.stride, self.reach, strict=True))
        # With a stride of 1 the total padding is reach - 1, even if the window is larger than the source.
        if depends and not self.follows_size:
            self.call.builder.fix_unless_constant(self.x)
        return tuple(found)


def _pads(pads: tuple[tuple[int, int], ...]) -> Any:
    return pads[0] if len(pads) == 1 else pads


def _follow_size(builder: Builder, before: int) -> None:
    """Set MPS's padding policy "same" for the kernel that was just added."""
    nodes = builder.graph.nodes
    places = [i for i in range(before, len(nodes)) if nodes[i].kernel != "MetalFunction"]  # functions turn its axes
    assert len(places) == 1, nodes[before:]
    node = nodes[places[0]]
    nodes[places[0]] = node.with_(arguments=node.arguments | {"padding": "same"})


# ---- convolutions and linear layers


def _kernel_of(call: Call, x: Tensor, weight: NDArray[Any]) -> list[int]:
    if weight.ndim != x.rank:
        raise InvalidModelError(f"{call.name}: weights {weight.shape} for a tensor of {x.rank} axes.")
    kernel = list(weight.shape[2:])
    given = call.integers("kernel_shape", kernel)
    if given != kernel:
        raise InvalidModelError(f"{call.name}: kernel_shape {given}, but weights {weight.shape}.")
    return kernel


@operator("Conv")
def _conv(call: Call) -> Value:
    return convolve(call, call.tensor(), call.weights(1, "weights"), call.weights_or_none(2, "a bias"))


@operator("DeformConv")
def _deform_conv(call: Call) -> Value:
    x, weight = call.tensor(), call.weights(1, "weights")
    w = Windows(call, x, _kernel_of(call, x, weight))
    if w.rank != 2:
        raise UnmappedError(f"a deformable convolution along {w.rank} axes")
    mask = call.value(4)
    if isinstance(mask, np.ndarray):
        raise UnmappedError("a constant mask")
    padding = w.padding()
    return deformable.deform_conv2d(
        call.builder,
        x,
        weight,
        call.tensor(2),
        mask,
        call.weights_or_none(3, "a bias"),
        (w.stride[0], w.stride[1]),
        (padding[0], padding[1]),
        (w.dilation[0], w.dilation[1]),
        call.integer("group", 1),
        call.integer("offset_group", 1),
    )


def convolve(call: Call, x: Tensor, weight: NDArray[Any], bias: NDArray[Any] | None) -> Tensor:
    """Return the convolution with the node's geometry."""
    w = Windows(call, x, _kernel_of(call, x, weight))
    padding, groups = w.padding(), call.integer("group", 1)
    before = len(call.builder.graph.nodes)
    if w.rank == 1:
        y = convolution.conv1d(call.builder, x, weight, bias, w.stride[0], padding[0], w.dilation[0], groups)
    else:
        y = convolution.conv2d(
            call.builder,
            x,
            weight,
            bias,
            (w.stride[0], w.stride[1]),
            (padding[0], padding[1]),
            (w.dilation[0], w.dilation[1]),
            groups,
        )
    if w.follows_size:
        if w.rank == 1:
            call.builder.fix_unless_constant(x)
        else:
            _follow_size(call.builder, before)
    return y


@operator("ConvTranspose")
def _conv_transpose(call: Call) -> Value:
    x, weight, bias = call.tensor(), call.weights(1, "weights"), call.weights_or_none(2, "a bias")
    w = Windows(call, x, _kernel_of(call, x, weight))
    more = call.integers("output_padding", [0] * w.rank)
    if len(more) != w.rank or min(more) < 0:
        raise InvalidModelError(f"{call.name}: output_padding {more} for {w.rank} axes.")
    wanted = call.integers("output_shape", None)
    if wanted is not None:
        wanted = wanted[-w.rank :]
        call.builder.fix_unless_constant(x)
    elif w.mode in SAME:
        wanted = [e * s for e, s in zip(x.shape[1:], w.stride, strict=True)]
    padding: list[tuple[int, int]] = list(w.explicit())
    if wanted is not None:
        if len(wanted) != w.rank:
            raise InvalidModelError(f"{call.name}: output_shape {wanted} for {w.rank} axes.")
        padding = []
        for i, extent in enumerate(x.shape[1:]):
            total = w.stride[i] * (extent - 1) + more[i] + w.reach[i] - wanted[i]
            if total < 0:  # larger than all windows cover
                more[i] -= total
                total = 0
            half = total // 2
            padding.append((half, total - half) if w.mode == "SAME_UPPER" else (total - half, half))
    groups = call.integer("group", 1)
    if w.rank == 1:
        return convolution.conv_transpose1d(
            call.builder, x, weight, bias, w.stride[0], padding[0], more[0], groups, w.dilation[0]
        )
    return convolution.conv_transpose2d(
        call.builder,
        x,
        weight,
        bias,
        (w.stride[0], w.stride[1]),
        (padding[0], padding[1]),
        (more[0], more[1]),
        groups,
        (w.dilation[0], w.dilation[1]),
    )


@operator("Gemm")
def _gemm(call: Call) -> Value:
    if isinstance(call.value(1), Tensor) or not isinstance(call.value(0), Tensor):
        raise UnmappedError("a product with a computed matrix whose first axis is the batch: images would be mixed")
    x, weight = call.tensor(), call.weights(1, "weights")
    if call.integer("transA", 0):
        raise UnmappedError("transA: the batch would be summed over")
    if weight.ndim != 2 or x.rank != 2:
        raise InvalidModelError(f"{call.name}: a product of {x.rank} axes and weights {weight.shape}.")
    weight = weight if call.integer("transB", 0) else weight.T
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    if alpha != 1:
        weight = weight.astype(np.float32) * np.float32(alpha)
    other = call.value(2)
    bias: NDArray[Any] | None = None
    if other is not None and not isinstance(other, Tensor):
        offsets = np.asarray(call.operand(2))
        if offsets.ndim < 2 or offsets.shape[0] == 1:
            offsets = offsets.reshape(-1).astype(np.float32)
            if offsets.size not in (1, len(weight)):
                raise InvalidModelError(f"{call.name}: a bias of {offsets.size} values for {len(weight)} results.")
            bias = np.broadcast_to(offsets * np.float32(beta) if beta != 1 else offsets, (len(weight),)).copy()
            other = None
    y = convolution.linear(call.builder, x, weight, bias)
    if other is None:
        return y
    added = call.operand(2)
    if beta != 1:
        added = arithmetic.multiply(call.builder, added, beta) if isinstance(added, Tensor) else added * beta
    return arithmetic.add(call.builder, y, added)


@operator("MatMul")
def _matmul(call: Call) -> Value:
    builder, first, second = call.builder, call.value(0), call.value(1)
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.rank != second.rank:
            raise UnmappedError(f"a product of computed tensors of {first.rank} and {second.rank} axes")
        return general.matmul(builder, first, second)
    if isinstance(first, Tensor):
        weight = call.weights(1, "weights")
        while weight.ndim > 2 and weight.shape[0] == 1 and weight.ndim <= first.rank:
            weight = weight[0]
        if weight.ndim > 2:
            return general.matmul(builder, first, general.matrices(builder, weight, first))
        if weight.ndim == 0 or first.rank < 2:
            raise UnmappedError(f"a product with weights {weight.shape} of a tensor of {first.rank} axes")
        y = convolution.linear(builder, first, weight.T if weight.ndim == 2 else weight[None])
        return shape.squeeze(builder, y, -1) if weight.ndim == 1 else y
    x, weight = call.tensor(1), call.weights(0, "weights")
    if weight.ndim < 2 or x.rank < 3:
        raise UnmappedError(f"weights {weight.shape} in front of a tensor of {x.rank} axes")
    if weight.ndim > 2:
        return general.matmul(builder, general.matrices(builder, weight, x), x)
    y = convolution.linear(builder, shape.transpose(builder, x, -1, -2), weight)
    return shape.transpose(builder, y, -1, -2)


@operator("Einsum")
def _einsum(call: Call) -> Value:
    operands = [call.operand(i) for i in range(len(call.values))]
    return einsum.einsum(call.builder, call.text("equation"), operands)


# ---- pooling


def _kernel_shape(call: Call) -> list[int]:
    return call.integers("kernel_shape")


def _pooled(call: Call) -> Tensor:
    """Return the source, as an image if its axes were taken together or apart, or turned."""
    x = call.tensor()
    return general.with_channels_second(call.builder, x)


@operator("MaxPool")
def _max_pool(call: Call) -> Value:
    call.only_first_output()
    x = _pooled(call)
    w = Windows(call, x, _kernel_shape(call))
    y = pooling.max_pool2d(
        call.builder, x, w.kernel, w.stride, _both(w.padding()), w.dilation, bool(call.integer("ceil_mode", 0))
    )
    return _following(call, w, x, y)


def _both(pads: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    return list(pads)


def _following(call: Call, w: Windows, x: Tensor, y: Tensor, **arguments: Any) -> Tensor:
    """Set the padding policy "same" for the kernel that was just added, if the padding depends on the source's size."""
    if not w.follows_size:
        return y
    node = call.builder.graph.nodes[-1]
    if w.rank == 1 or set(w.dilation) != {1} or "padding" not in node.arguments or node.name != y.value.name:
        call.builder.fix_unless_constant(x)
        return y
    changed = {k: v for k, v in node.arguments.items() if k not in ("count_include_pad", "ceil_mode")}
    call.builder.graph.nodes[-1] = node.with_(arguments=changed | {"padding": "same"} | arguments)
    return y


@operator("AveragePool")
def _average_pool(call: Call) -> Value:
    x = _pooled(call)
    w = Windows(call, x, _kernel_shape(call))
    include, ceil_mode = bool(call.integer("count_include_pad", 0)), bool(call.integer("ceil_mode", 0))
    y = pooling.avg_pool2d(
        call.builder, x, w.kernel, w.stride, _both(w.padding()), ceil_mode, include, None, w.dilation
    )
    # edge_mode "clamp" counts the pixels inside of the source, "zero" all taps.
    return _following(call, w, x, y, edge_mode="zero" if include else "clamp")


@operator("LpPool")
def _lp_pool(call: Call) -> Value:
    x = _pooled(call)
    w = Windows(call, x, _kernel_shape(call))
    if set(w.dilation) != {1}:
        raise UnmappedError("norm pooling with gaps")
    if w.follows_size:
        call.builder.fix_unless_constant(x)
    ceil_mode = bool(call.integer("ceil_mode", 0))
    return pooling.lp_pool2d(
        call.builder, x, call.integer("p", 2), w.kernel, w.stride, ceil_mode, _both(w.padding()), absolute=True
    )


@operator("GlobalAveragePool")
def _global_average_pool(call: Call) -> Value:
    x = call.tensor()
    return reduction.mean(call.builder, x, range(2, x.rank), True)


@operator("GlobalMaxPool")
def _global_max_pool(call: Call) -> Value:
    x = call.tensor()
    return reduction.amax(call.builder, x, range(2, x.rank), True)


@operator("GlobalLpPool")
def _global_lp_pool(call: Call) -> Value:
    x = call.tensor()
    return reduction.norm(call.builder, x, call.integer("p", 2), range(2, x.rank), True)
