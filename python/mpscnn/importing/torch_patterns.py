# SPDX-License-Identifier: Apache-2.0
"""Patterns of nodes that compute one operator: local response normalization, and decompositions of core ATen."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sympy  # type: ignore[import-untyped]
import torch

from .builder import Builder, Tensor, UnmappedError
from .ops import activation, arithmetic, convolution, normalization, resize
from .torch_arguments import Arguments

Compute: TypeAlias = "Callable[[Builder, Arguments], Tensor]"


@dataclass(frozen=True)
class Pattern:
    """Operator that several nodes compute together; it replaces the last of them.

    Attributes
    ----------
    operator : str
        Name for tables and errors.
    arguments : dict
        Arguments of `compute`, by name; a node is an argument's value.
    compute : callable
    """

    operator: str
    arguments: dict[str, Any]
    compute: Compute

    @property
    def sources(self) -> list[torch.fx.Node]:
        """The nodes that the operator reads."""
        return [value for value in self.arguments.values() if isinstance(value, torch.fx.Node)]


def operator_name(node: torch.fx.Node) -> str:
    """Return the name in `OPERATORS`: "conv2d"; "add" for add_; with the namespace if that is not aten."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return ""
    name = node.target._opname
    if node.target.namespace != "aten":
        return f"{node.target.namespace}.{name}"
    return name if name.startswith("__") else name.rstrip("_")


def patterns(node: torch.fx.Node) -> Iterator[Pattern]:
    """Yield the patterns that end at this node."""
    last = operator_name(node)
    for name, template, compute in _BY_OPERATOR.get(last, ()):
        found: dict[str, Any] = {}
        if _match(node, template, found):
            yield Pattern(name, found, compute)
            return
    match = _FUNCTIONS.get(last)
    pattern = match(node) if match else None
    if pattern is not None:
        yield pattern


# ---- templates: an operator and its arguments; a word matches any value, the same value wherever it occurs


def _match(value: Any, template: Any, found: dict[str, Any]) -> bool:
    if isinstance(template, str):
        if template not in found:
            found[template] = value
            return True
        return found[template] is value or (not isinstance(value, torch.fx.Node) and bool(found[template] == value))
    if isinstance(template, tuple):
        arguments = _call(value, template[0])
        return (
            arguments is not None
            and len(arguments) == len(template) - 1
            and all(map(lambda a, t: _match(a, t, found), arguments, template[1:]))
        )
    return not isinstance(value, torch.fx.Node) and bool(value == template)


def _prelu(builder: Builder, arguments: Arguments) -> Tensor:
    x, slopes = arguments.tensor("x"), arguments.array("weight")
    if slopes.size > 1 and (slopes.ndim != x.rank or slopes.shape[1] != slopes.size):
        raise UnmappedError(f"slopes of shape {slopes.shape} for {x.rank} axes")
    return activation.prelu(builder, x, slopes.reshape(-1))


def _log_sigmoid(builder: Builder, arguments: Arguments) -> Tensor:
    if arguments.array("zero").any():
        raise UnmappedError("log1p")
    return activation.logsigmoid(builder, arguments.tensor("x"))


def _threshold(builder: Builder, arguments: Arguments) -> Tensor:
    value = arguments.array("value")
    if value.size != 1:
        raise UnmappedError(f"values of shape {value.shape} below a threshold")
    threshold = arguments.number("threshold")
    same = np.float32(threshold) == value  # core ATen stores it as float32
    return activation.threshold(builder, arguments.tensor("x"), threshold, threshold if same else float(value))


TEMPLATES: list[tuple[str, Any, Compute]] = [
    # torch.nn.functional.lp_pool2d applies this to sums of powers.
    ("identity", ("mul", ("sign", "x"), ("relu", ("abs", "x"))), lambda b, a: a.tensor("x")),
    ("prelu", ("where", ("gt", "x", 0), "x", ("mul", "weight", "x")), _prelu),
    (
        "softplus",
        (
            "where",
            ("gt", ("mul", "x", "beta"), "threshold"),
            "x",
            ("div", ("log1p", ("exp", ("mul", "x", "beta"))), "beta"),
        ),
        lambda b, a: activation.softplus(b, a.tensor("x"), a.number("beta"), a.number("threshold")),
    ),
    (
        "softplus",
        ("where", ("gt", "x", "threshold"), "x", ("log1p", ("exp", "x"))),
        lambda b, a: activation.softplus(b, a.tensor("x"), 1.0, a.number("threshold")),
    ),
    (
        "celu",
        ("where", ("gt", "x", 0), "x", ("mul", ("expm1", ("div", "x", "alpha")), "alpha")),
        lambda b, a: activation.celu(b, a.tensor("x"), a.number("alpha")),
    ),
    ("celu", ("where", ("gt", "x", 0), "x", ("expm1", "x")), lambda b, a: activation.celu(b, a.tensor("x"))),
    ("log_sigmoid", ("sub", ("minimum", "zero", "x"), ("log1p", ("exp", ("neg", ("abs", "x"))))), _log_sigmoid),
    ("threshold", ("where", ("le", "x", "threshold"), "value", "x"), _threshold),
    (
        "softshrink",
        (
            "where",
            ("gt", ("abs", "x"), "lambd"),
            ("sub", "x", ("mul", ("sign", "x"), "lambd")),
            ("mul", "x", 0),
        ),
        lambda b, a: activation.softshrink(b, a.tensor("x"), a.number("lambd")),
    ),
]


# ---- others


def _local_response_normalization(node: torch.fx.Node) -> Pattern | None:
    """Match x / pow(k + alpha * mean of squares over channels, beta)."""
    quotient = _call(node, "div")
    if quotient is None or len(quotient) != 2:
        return None
    source, divisor = quotient
    power = _call(divisor, "pow")
    total = _call(power[0], "add") if power else None
    product = _call(total[0], "mul") if total else None
    if not (power and total and product and isinstance(source, torch.fx.Node)):
        return None
    mean = _behind_views(product[0])
    pooled = _call(mean, "avg_pool3d") or _call(mean, "avg_pool2d")
    padded = (_call(pooled[0], "pad") or _call(pooled[0], "constant_pad_nd")) if pooled else None
    square = _call(_behind_views(padded[0]), "mul") if padded else None
    if not (pooled and padded and square) or square[0] is not source or square[1] is not source:
        return None
    window, pads, rest = list(pooled[1]), list(padded[1]), list(pooled[2:])
    size, alpha, beta, k = window[0], product[1], power[1], total[1]
    if (
        window[1:] != [1] * (len(window) - 1)
        or pads != [0] * (2 * len(window) - 2) + [size // 2, (size - 1) // 2]
        or [list(stride) for stride in rest] != [[1] * len(window)]
        or not all(value in ("constant", 0) for value in padded[2:])
        or not all(isinstance(number, (int, float)) for number in (size, alpha, beta, k))
    ):
        return None
    return Pattern(
        "local_response_norm",
        {"x": source},
        lambda b, a: normalization.local_response_norm(b, a.tensor("x"), size, alpha, beta, k),
    )


# Permutations of six axes that make a depth to space, or its inverse: PyTorch's, and position-major.
_TO_SPACE = {(0, 1, 4, 2, 5, 3): False, (0, 3, 4, 1, 5, 2): True}
_TO_DEPTH = {(0, 1, 3, 5, 2, 4): False, (0, 3, 5, 1, 2, 4): True}


def _pixel_shuffle(node: torch.fx.Node) -> Pattern | None:
    """Match a view, a permute and a view that move r x r pixels to channels or back."""
    last = _view(node)
    permuted = _call(_behind_copies(last[0]), "permute") if last else None
    first = _view(permuted[0]) if permuted else None
    if not (last and permuted and first) or not isinstance(first[0], torch.fx.Node):
        return None
    source, order = first[0], tuple(permuted[1])
    shape = permuted[0].meta["val"].shape
    before, after = source.meta["val"].shape, node.meta["val"].shape
    if len(shape) != 6 or len(before) != 4 or len(after) != 4:
        return None
    kept: tuple[tuple[Any, ...], tuple[Any, ...]]
    function: Callable[..., Tensor]
    if order in _TO_SPACE:
        major = _TO_SPACE[order]
        factors = (shape[1], shape[2]) if major else (shape[2], shape[3])
        kept = (shape[0], shape[4], shape[5]), (before[0], before[2], before[3])
        result = (shape[4] * factors[0], shape[5] * factors[1])
        function = resize.pixel_shuffle
    elif order in _TO_DEPTH:
        major = _TO_DEPTH[order]
        factors = (shape[3], shape[5])
        kept = (shape[0], shape[1], shape[2], shape[4]), (before[0], before[1], after[2], after[3])
        result = (shape[2], shape[4])
        function = resize.pixel_unshuffle
    else:
        return None
    r = _hint(factors[0])
    if r != _hint(factors[1]) or any(_hint(a) != _hint(b) for a, b in zip(*kept, strict=True)):
        return None
    if tuple(map(_hint, result)) != tuple(map(_hint, after[2:])):
        return None
    return Pattern(
        "pixel_shuffle" if function is resize.pixel_shuffle else "pixel_unshuffle",
        {"x": source},
        lambda b, a: function(b, a.tensor("x"), r, position_major=major),
    )


def _sum_of_stack(node: torch.fx.Node) -> Pattern | None:
    """Match the sum or mean of tensors that are stacked along an axis of their own."""
    name = operator_name(node)
    reduced = _call(node, name) if name in ("sum", "mean") else None
    stack = _call(reduced[0], "stack") if reduced and len(reduced) == 2 else None
    if not (reduced and stack) or len(reduced[0].users) > 1:
        return None
    parts, rank = list(stack[0]), reduced[0].meta["val"].ndim
    dims = reduced[1] if isinstance(reduced[1], (list, tuple)) else [reduced[1]]
    if len(dims) != 1 or dims[0] is None or dims[0] % rank != (stack[1] if len(stack) > 1 else 0) % rank:
        return None
    if not all(map(_is_batch_that_stays, parts)):
        return None

    def compute(builder: Builder, arguments: Arguments) -> Tensor:
        total = arguments.tensor("part_0")
        for place in range(1, len(parts)):
            total = arithmetic.add(builder, total, arguments.tensor(f"part_{place}"))
        return total if name == "sum" else arithmetic.multiply(builder, total, 1 / len(parts))

    return Pattern(f"{name}_of_stack", {f"part_{place}": part for place, part in enumerate(parts)}, compute)


# Sizes for which amounts of padding are compared with the rule.
_COMPARED = range(1, 257)


def _padded_by_size(node: torch.fx.Node) -> Pattern | None:
    """Match a convolution of an image that is padded by amounts that follow from its size, as TensorFlow does."""
    given = _call(node, "conv2d")
    padded = _call(given[0], "pad") if given else None
    if not given or not padded or len(given[0].users) > 1 or padded[2:] not in ((), ("constant",), ("constant", 0.0)):
        return None
    source, amounts = padded[0], list(padded[1])
    pads = [amount.meta.get("val") if isinstance(amount, torch.fx.Node) else amount for amount in amounts]
    if len(pads) != 4 or not any(isinstance(pad, torch.SymInt) and _symbol(pad) is not None for pad in pads):
        return None
    defaults: list[Any] = [None, [1, 1], [0, 0], [1, 1], 1]
    weight = given[1]
    bias, stride, padding, dilation, groups = [*given[2:], *defaults[len(given) - 2 :]]
    if list(padding) != [0, 0] or not isinstance(weight, torch.fx.Node):
        return None
    extents, kernel = source.meta["val"].shape[2:], weight.meta["val"].shape[2:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    around = ((pads[2], pads[3]), (pads[0], pads[1]))
    if not all(map(_is_padded_by_size, extents, around, stride, reach)):
        return None
    left, right, top, bottom = map(_hint, pads)

    def compute(builder: Builder, arguments: Arguments) -> Tensor:
        x = arguments.tensor("x")
        y = convolution.conv2d(
            builder,
            x,
            arguments.array("weight"),
            arguments.optional_array("bias"),
            (stride[0], stride[1]),
            ((top, bottom), (left, right)),
            (dilation[0], dilation[1]),
            groups,
        )
        added = builder.graph.nodes[-1]
        if x.axes == "NCHW" and x.flat is None and added.kernel == "Convolution" and added.name == y.value.name:
            builder.graph.nodes[-1] = added.with_(arguments=added.arguments | {"padding": "same"})
        else:
            builder.fix()
        return y

    return Pattern("conv2d", {"x": source, "weight": weight, "bias": bias}, compute)


def _symbol(extent: Any) -> Any:
    """Return the only symbol of an extent; None if it is constant or has several."""
    symbols = extent.node.expr.free_symbols if isinstance(extent, torch.SymInt) else ()
    return next(iter(symbols)) if len(symbols) == 1 else None


def _is_padded_by_size(extent: Any, around: tuple[Any, Any], stride: int, reach: int) -> bool:
    """Return whether an axis has as many windows as strides begin, and the padding's odd pixel is behind it."""
    symbol = _symbol(extent)
    if symbol is None or stride > reach or any(_symbol(pad) not in (None, symbol) for pad in around):
        return False
    terms = [
        value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value) for value in (extent, *around)
    ]
    for size in _COMPARED:
        n, first, last = (int(term.xreplace({symbol: sympy.Integer(size)})) for term in terms)
        total = max((-(-n // stride) - 1) * stride + reach - n, 0)
        if n > 0 and (first, last) != (total // 2, total - total // 2):
            return False
    return True


def _is_batch_that_stays(node: Any) -> bool:
    """Return whether a node's first extent is the free batch, and no operator changes its values."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    batch: Any = value.shape[0] if isinstance(value, torch.Tensor) and value.ndim else None
    if not isinstance(batch, torch.SymInt) or not batch.node.expr.is_Symbol:
        return False
    return not any(isinstance(u.target, torch._ops.OpOverload) and u.target._schema.is_mutable for u in node.users)


def _view(node: Any) -> tuple[Any, ...] | None:
    return _call(node, "view") or _call(node, "reshape") or _call(node, "_unsafe_view")


def _behind_copies(node: Any) -> Any:
    while isinstance(node, torch.fx.Node) and operator_name(node) in ("clone", "contiguous"):
        node = node.args[0]
    return node


def _hint(extent: Any) -> int:
    return int(extent.node.hint if isinstance(extent, torch.SymInt) else extent)


def _call(node: Any, name: str) -> tuple[Any, ...] | None:
    """Return the arguments of a node if it calls that operator, otherwise None."""
    if isinstance(node, torch.fx.Node) and operator_name(node) == name and not node.kwargs:
        return tuple(node.args)
    return None


def _behind_views(node: Any) -> Any:
    while isinstance(node, torch.fx.Node) and operator_name(node) in ("view", "reshape", "squeeze", "unsqueeze"):
        node = node.args[0]
    return node


# Templates and functions by the operator that the pattern ends with.
_BY_OPERATOR: dict[str, list[tuple[str, Any, Compute]]] = collections.defaultdict(list)
for _entry in TEMPLATES:
    _BY_OPERATOR[_entry[1][0]].append(_entry)
_FUNCTIONS: dict[str, Callable[[torch.fx.Node], Pattern | None]] = {
    "div": _local_response_normalization,
    **dict.fromkeys(("view", "reshape", "_unsafe_view"), _pixel_shuffle),
    **dict.fromkeys(("sum", "mean"), _sum_of_stack),
    "conv2d": _padded_by_size,
}
