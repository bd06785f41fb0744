# SPDX-License-Identifier: Apache-2.0
"""Patterns of several nodes that exporters write for one function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..ops.activation import SOFTPLUS_IS_LINEAR
from .elementwise import is_number

if TYPE_CHECKING:
    from onnx import NodeProto


VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Identity")
FLOATS = frozenset({1, 10, 11, 16})  # float32, float16, float64, bfloat16, of TensorProto.DataType


def _reader(node: NodeProto) -> str:
    is_whole = node.op_type == "Cast" and not any(a.name == "to" and a.i in FLOATS for a in node.attribute)
    return "" if is_whole else str(node.op_type)


# Reductions of a stack of values, and the operators of these values.
_OF_STACKS = {"ReduceMax": "Max", "ReduceMean": "Mean", "ReduceMin": "Min", "ReduceSum": "Sum"}


def without_stacks(nodes: Iterable[NodeProto], integers: Callable[[str], list[int] | None]) -> list[NodeProto]:
    """Return the nodes with sums, means and extrema of values in place of those over a stack of them.

    Exporters write `torch.stack(values).sum(0)`, whose stack has an axis in front of that of the batch.
    """
    from onnx import helper

    found = list(nodes)
    makers = {name: node for node in found for name in node.output}

    def axes_of(node: NodeProto) -> list[int] | None:
        given = [list(a.ints) for a in node.attribute if a.name == "axes"]
        return given[0] if given else integers(node.input[1]) if len(node.input) > 1 else None

    def unstacked(name: str) -> str:
        node = makers.get(name)
        is_one = node is not None and node.op_type == "Unsqueeze" and not node.domain and axes_of(node) == [0]
        return str(node.input[0]) if is_one and node is not None else ""

    for place, node in enumerate(found):
        keeps = next((a.i for a in node.attribute if a.name == "keepdims"), 1)
        if node.op_type not in _OF_STACKS or node.domain or keeps or axes_of(node) != [0]:
            continue
        stack = makers.get(node.input[0])
        if stack is None or stack.op_type != "Concat" or stack.domain or [a.i for a in stack.attribute] != [0]:
            continue
        values = [unstacked(name) for name in stack.input]
        if all(values):
            found[place] = helper.make_node(_OF_STACKS[node.op_type], values, [node.output[0]], node.name)
    return found


def _axis(node: NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "axis"), 0)


def _turned(node: NodeProto, x: NDArray[Any]) -> NDArray[Any]:
    order: list[int] | None = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
    found: NDArray[Any] = x.transpose(order)
    return found


def _gathered(node: NodeProto, x: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    if any(a.name == "batch_dims" and a.i for a in node.attribute):
        raise LookupError
    found: NDArray[Any] = x[tuple(np.moveaxis(places, -1, 0))]
    return found


def _chosen(node: NodeProto, condition: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.where(condition.astype(bool), a, b)
    return found


# Operators of an adaptive pooling, and those of its sums.
_OF_POOLS: dict[str, Callable[..., NDArray[Any]]] = {
    "Add": lambda node, a, b: a + b,
    "Div": lambda node, a, b: a / b,
    "Gather": lambda node, x, places: x.take(places, _axis(node)),
    "GatherND": _gathered,
    "Transpose": _turned,
    "Where": _chosen,
}
_OF_SUMS = ("Add", "Gather", "GatherND", "Transpose", "Where")
_LONGEST_CHAIN, _MOST_PLACES, _MOST_VALUES = 4096, 1 << 20, 1 << 26  # nodes, indices, values of all nodes together


def _size(node: NodeProto, given: list[NDArray[Any]]) -> int:
    """Return a limit of the number of values that a node of an adaptive pooling computes."""
    if node.op_type in ("Gather", "GatherND"):
        return given[0].size * given[1].size
    return math.prod(np.broadcast_shapes(*(one.shape for one in given)))


def _adaptive_means(x: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Return the means of areas of an image (N, C, H, W), as torch.nn.functional.adaptive_avg_pool2d."""
    for axis, count in zip((2, 3), size, strict=True):
        extent = x.shape[axis]
        bounds = [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]
        x = np.concatenate([x.take(range(*pair), axis).mean(axis, keepdims=True) for pair in bounds], axis)
    return x


class Patterns:
    """Finder of patterns of nodes that compute a function of one value.

    The patterns are GELU, x / 2 * (1 + erf(x / sqrt(2))), with its factors in any usual order; softplus that returns x
    above a threshold where both are equal in float32; local response normalization, x / (k + alpha * mean) ** beta,
    with the mean of squares over neighbouring channels by a pooling along three axes; and adaptive average pooling, the
    sum of values at constant places in windows, with zeros for those beyond the end of a window, by their number.

    Parameters
    ----------
    nodes : sequence of NodeProto
    constant : callable
        Takes a name and returns the constant number with this name, or None.
    integers : callable
        Takes a name and returns the list of constant integers with this name, or None.
    array : callable
        Takes a name and returns the constant with this name that the file has, or None.
    """

    def __init__(
        self,
        nodes: Any,
        constant: Callable[[str], Any],
        integers: Callable[[str], list[int] | None],
        array: Callable[[str], NDArray[Any] | None],
    ) -> None:
        self._constant, self._integers, self._array = constant, integers, array
        self._makers: dict[str, NodeProto] = {name: node for node in nodes for name in node.output if name}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self.sources: dict[str, tuple[str, str]] = {}
        """For each such value, "gelu", "same", "lrn" or "pool", and the value that it is a function of."""
        self.windows: dict[str, tuple[int, float, float, float]] = {}
        """For each local response normalization: size, alpha, beta, k."""
        self.pools: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
        """For each adaptive pooling: the extents of its source, and those of its result."""
        for node in nodes:
            if node.op_type == "Erf" and not node.domain and len(node.input) == 1:
                self._match_gelu(node)
            if node.op_type == "Where" and not node.domain and len(node.input) == 3:
                self._match_softplus(node)
            if node.op_type == "Div" and not node.domain and len(node.input) == 2:
                self._match_lrn(node)
                self._match_pool(node)

    def readers(self, name: str) -> tuple[str, ...]:
        """Return the operators of the nodes that read a value; "" for a Cast to another type than one of floats."""
        return tuple(_reader(node) for node in self._readers.get(name, ()))

    def _other(self, node: NodeProto, operator: str, test: Callable[[str], bool]) -> str | None:
        """Return the other operand of a binary node if one passes the test, otherwise None."""
        if node.op_type != operator or node.domain or len(node.input) != 2:
            return None
        for i in (0, 1):
            if test(node.input[i]) and not (operator == "Div" and i == 0):
                return str(node.input[1 - i])
        return None

    def _is(self, number: float) -> Callable[[str], bool]:
        return lambda name: is_number(self._constant(name), number)

    def _only_reader(self, name: str) -> NodeProto | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 else None

    def _match_gelu(self, erf: NodeProto) -> None:
        scaled = self._makers.get(erf.input[0])
        if scaled is None:
            return
        x = self._other(scaled, "Div", self._is(math.sqrt(2))) or self._other(scaled, "Mul", self._is(math.sqrt(0.5)))
        plus = self._only_reader(erf.output[0])
        if x is None or plus is None or self._other(plus, "Add", self._is(1.0)) != erf.output[0]:
            return
        product = self._only_reader(plus.output[0])
        if product is None or product.op_type != "Mul" or len(product.input) != 2:
            return
        factor = self._other(product, "Mul", lambda name: name == plus.output[0])
        if factor is None:
            return
        halved = self._makers.get(factor)
        if halved is not None and factor != x and self._half_of(halved) == x:
            self._found(product, x)  # (x / 2) * (1 + erf)
            return
        last = self._only_reader(product.output[0])
        if last is None:
            return
        if factor == x and self._half_of(last) == product.output[0]:
            self._found(last, x)  # (x * (1 + erf)) / 2
        elif self._is(0.5)(factor) and self._other(last, "Mul", lambda name: name == product.output[0]) == x:
            self._found(last, x)  # x * ((1 + erf) / 2)

    def _half_of(self, node: NodeProto) -> str | None:
        return self._other(node, "Mul", self._is(0.5)) or self._other(node, "Div", self._is(2.0))

    def _found(self, node: NodeProto, x: str) -> None:
        self.sources[node.output[0]] = "gelu", x

    def _scalar_and_other(self, node: NodeProto | None, operator: str) -> tuple[float, str] | None:
        """Return the constant number and the other operand of a binary node."""
        if node is None or node.op_type != operator or node.domain or len(node.input) != 2:
            return None
        for number, other in ((node.input[1], node.input[0]), (node.input[0], node.input[1])):
            value = self._constant(number)
            if value is not None and value.dtype.kind == "f" and value.size == 1:
                return float(value.ravel()[0]), str(other)
        return None

    def _behind_views(self, name: str) -> NodeProto | None:
        node = self._makers.get(name)
        while node is not None:
            if node.op_type in VIEWS:
                node = self._makers.get(node.input[0])
            elif node.op_type == "If":  # a squeeze if the axis has extent 1
                branches = [a.g.node for a in node.attribute if a.HasField("g")]
                inner = [one for nodes in branches for one in nodes if one.op_type != "Constant"]
                read = {one.input[0] for one in inner}
                if any(one.op_type not in VIEWS for one in inner) or len(read) != 1:
                    return node
                node = self._makers.get(read.pop())
            else:
                return node
        return None

    def _match_lrn(self, quotient: NodeProto) -> None:
        """Match x / (AveragePool(Pad(x * x)) * alpha + k) ** beta, with a window along the channels."""
        source = str(quotient.input[0])
        power = self._makers.get(quotient.input[1])
        beta = self._scalar_and_other(power, "Pow")
        if beta is None or power is None or beta[1] != power.input[0]:
            return
        total = self._scalar_and_other(self._makers.get(beta[1]), "Add")
        product = total and self._scalar_and_other(self._makers.get(total[1]), "Mul")
        pool = product and self._behind_views(product[1])
        if not total or not product or not pool or pool.op_type != "AveragePool" or pool.domain:
            return
        attributes = {a.name: a for a in pool.attribute}
        kernel = list(attributes["kernel_shape"].ints)
        plain = all(
            list(attributes[name].ints) == [value] * len(attributes[name].ints)
            for name, value in (("strides", 1), ("dilations", 1), ("pads", 0))
            if name in attributes
        )
        size = kernel[0]
        pad = self._behind_views(pool.input[0])
        if not plain or kernel[1:] != [1] * (len(kernel) - 1) or size < 2 or pad is None or pad.op_type != "Pad":
            return
        square = self._behind_views(pad.input[0])
        if square is None or not self._is_square(square, source) or not self._pads_channels(pad, size):
            return
        self.sources[quotient.output[0]] = "lrn", source
        self.windows[quotient.output[0]] = (size, product[0], beta[0], total[0])

    def _match_pool(self, quotient: NodeProto) -> None:
        """Match the mean of values that GatherND takes from windows, whatever the order of the sums is.

        The nodes are computed for random values: they are linear.
        """
        chain: dict[str, NodeProto] = {}
        wanted, places, source = [quotient], None, None
        while wanted:
            node = wanted.pop()
            if node.output[0] in chain:
                continue
            operators = _OF_SUMS if chain else ("Div",)
            if node.domain or node.op_type not in operators or len(chain) > _LONGEST_CHAIN:
                return
            chain[node.output[0]] = node
            if node.op_type != "GatherND":
                read = node.input[:1] if node.op_type in ("Div", "Gather") else node.input
                makers = [self._makers.get(name) for name in read]
                wanted += [maker for maker in makers if maker is not None and maker.op_type != "Constant"]
                continue
            first = self._makers.get(node.input[0])
            if places is not None or first is None or first.op_type != "Transpose" or first.domain:
                return
            chain[first.output[0]] = first
            places, source = self._array(node.input[1]), str(first.input[0])
        if places is None or source is None or places.ndim != 5 or places.shape[-1] != 2 or places.size > _MOST_PLACES:
            return
        if not places.size or places.dtype.kind != "i" or places.min() < 0:
            return
        extents = int(places[..., 0].max()) + 1, int(places[..., 1].max()) + 1
        size = places.shape[0], places.shape[2]
        if math.prod(extents) > _MOST_PLACES:
            return
        x = np.random.default_rng(0).uniform(-1, 1, (2, 3, *extents))
        try:
            with np.errstate(all="ignore"):
                found = self._computed(quotient.output[0], {source: x}, chain)
        except (IndexError, ValueError, TypeError, LookupError):
            return
        if found.shape == (2, 3, *size) and np.allclose(found, _adaptive_means(x, size), rtol=1e-6, atol=1e-6):
            self.sources[quotient.output[0]] = "pool", source
            self.pools[quotient.output[0]] = extents, size

    def _computed(self, name: str, known: dict[str, NDArray[Any]], chain: dict[str, NodeProto]) -> NDArray[Any]:
        """Return the value of the last of some nodes."""
        waiting, left_over = [name], _MOST_VALUES
        while waiting:
            if len(waiting) > 3 * len(chain) + 1:  # of a path without a cycle; a node reads at most three values
                raise LookupError("a cycle")
            node = chain.get(waiting[-1])
            if node is None:
                array = self._array(waiting[-1])
                if array is None:
                    raise LookupError(waiting[-1])
                known[waiting.pop()] = array
                continue
            left = [one for one in node.input if one not in known]
            if left:
                waiting += left
                continue
            given = [known[one] for one in node.input]
            left_over -= _size(node, given)
            if left_over < 0:
                raise LookupError("too many values")
            known[waiting.pop()] = _OF_POOLS[node.op_type](node, *given)
        return known[name]

    def _is_square(self, node: NodeProto, source: str) -> bool:
        if node.op_type == "Mul":
            return list(node.input) == [source, source]
        return node.op_type == "Pow" and node.input[0] == source and self._is(2.0)(node.input[1])

    def _pads_channels(self, pad: NodeProto, size: int) -> bool:
        """Return whether one axis is padded by zeros, as PyTorch's local_response_norm does."""
        attributes = {a.name: a for a in pad.attribute}
        if "mode" in attributes and attributes["mode"].s != b"constant":
            return False
        if len(pad.input) > 2 and pad.input[2]:
            value = self._constant(pad.input[2])
            if value is None or value.any():
                return False
        pads = list(attributes["pads"].ints) if "pads" in attributes else self._integers(pad.input[1])
        if pads is None:
            return False
        half = len(pads) // 2
        changed = [(before, after) for before, after in zip(pads[:half], pads[half:], strict=True) if before or after]
        return changed == [(size // 2, (size - 1) // 2)]

    def _match_softplus(self, where: NodeProto) -> None:
        """Match Where(beta * x > threshold, x, softplus(beta * x) / beta)."""
        greater, x, y = (self._makers.get(where.input[0]), where.input[1], where.input[2])
        if greater is None or greater.op_type != "Greater" or len(greater.input) != 2:
            return
        threshold = self._constant(greater.input[1])
        if threshold is None or threshold.dtype.kind != "f" or not threshold.ravel()[0] >= SOFTPLUS_IS_LINEAR:
            return
        argument = greater.input[0]
        softplus = self._makers.get(y)
        if argument != x:
            scaled = self._makers.get(argument)
            beta = next((n for n in scaled.input if n != x), None) if scaled is not None else None
            if scaled is None or beta is None or self._other(scaled, "Mul", lambda name: name == beta) != x:
                return
            if softplus is None or softplus.op_type != "Div" or list(softplus.input)[1:] != [beta]:
                return
            softplus = self._makers.get(softplus.input[0])
        if softplus is not None and softplus.op_type == "Softplus" and list(softplus.input) == [argument]:
            self.sources[where.output[0]] = "same", y
