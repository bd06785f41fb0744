# SPDX-License-Identifier: Apache-2.0
"""Sums of products with a letter for each axis, the batch first."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..builder import Builder, Tensor, UnmappedError
from . import general, reduction, shape


def einsum(builder: Builder, equation: str, operands: Sequence[Tensor | NDArray[Any] | float]) -> Tensor:
    """Same as torch.einsum. Arrays are constants without an axis of the batch.

    Tensors whose axes outnumber their letters have an axis behind the batch that is merged with it.
    """
    equation = equation.replace(" ", "")
    sources, arrow, result = equation.partition("->")
    letters = sources.split(",")
    if not arrow:
        counted = [letter for letter in sorted(set(sources) - {","}) if sources.count(letter) == 1]
        result = "".join(counted)
    refused = f'einsum "{equation}"'
    if "." in equation or len(letters) != len(operands) or any(len(set(one)) < len(one) for one in letters):
        raise UnmappedError(refused)
    tensors = [(one, x) for one, x in zip(letters, operands, strict=True) if isinstance(x, Tensor)]
    like = tensors[0][1]
    batch = tensors[0][0][0]
    merged = like.rank == len(tensors[0][0]) + 1
    more = next(letter for letter in string.ascii_letters if letter not in equation) if merged else ""
    if result[:1] != batch:
        raise UnmappedError(f"{refused}, with the batch at another place")
    terms: list[tuple[str, Tensor]] = []
    for one, x in zip(letters, operands, strict=True):
        if not isinstance(x, Tensor):
            if batch in one:
                raise UnmappedError(f"{refused} of a constant for each image")
            terms.append((one, general.constant(builder, like, np.asarray(x, np.float32))))
            continue
        if one[:1] != batch:
            raise UnmappedError(f"{refused} along the batch")
        if x.rank != len(one) + len(more):
            raise UnmappedError(f"{refused} of tensors with the batch at different places")
        terms.append((more + one[1:], x))
    result = more + result[1:]
    while len(terms) > 2:
        # Products of two, with the letters that are still read.
        (first, x), (second, y), *rest = terms
        needed = set(result).union(*(one for one, _ in rest))
        kept = [letter for letter in dict.fromkeys(first + second) if letter in needed]
        terms = [_product(builder, (first, x), (second, y), "".join(kept)), *rest]
    if len(terms) == 1:
        return _of_one(builder, *terms[0], result)[1]
    return _product(builder, terms[0], terms[1], result)[1]


def _of_one(builder: Builder, letters: str, x: Tensor, result: str) -> tuple[str, Tensor]:
    """Sum over the letters that the result has not, and permute the others."""
    gone = [place for place, letter in enumerate(letters, 1) if letter not in result]
    if gone:
        x = reduction.sum(builder, x, gone)
        letters = "".join(letter for letter in letters if letter in result)
    if set(letters) != set(result):
        raise UnmappedError(f'einsum to "{result}" of axes "{letters}"')
    order = [0, *(1 + letters.index(letter) for letter in result)]
    return result, shape.permute(builder, x, order)


def _product(
    builder: Builder, first: tuple[str, Tensor], second: tuple[str, Tensor], result: str
) -> tuple[str, Tensor]:
    (a, x), (b, y) = first, second
    # Axes of one tensor that are summed over are summed first.
    own = "".join(letter for letter in a if letter in b or letter in result)
    other = "".join(letter for letter in b if letter in a or letter in result)
    a, x = (a, x) if own == a else _of_one(builder, a, x, own)
    b, y = (b, y) if other == b else _of_one(builder, b, y, other)
    return result, general.einsum(builder, (a, x), (b, y), result)
