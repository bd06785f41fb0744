# SPDX-License-Identifier: Apache-2.0
"""Gradients by central differences of a float64 forward function: the expected values of every gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Offsets in steps and their weights; the error is proportional to the fourth power of the step.
STENCIL = ((1, 2 / 3), (-1, -2 / 3), (2, -1 / 12), (-2, 1 / 12))
MOST_VALUES = 1 << 21  # per batch of copies


def gradient(
    forward: Callable[[Array], Array],
    x: Array,
    weight: Array,
    *,
    apart: Sequence[int] = (),
    step: float = 2.0**-16,
    linear: bool = False,
) -> tuple[Array, Array]:
    """Return the derivative of sum(weight * forward(x)) by each value of x, and the sum of its terms' magnitudes.

    `forward` maps a batch (K, *x.shape) to (K, *weight.shape). Along the axes `apart`, result i depends only on value i
    of x, so that these values are perturbed together. For a `linear` function, the derivatives are its exact results
    for the perturbations alone.
    """
    apart = tuple(apart)
    together = tuple(axis for axis in range(x.ndim) if axis not in apart)
    assert all(x.shape[axis] == weight.shape[axis] for axis in apart)
    summed = tuple(1 + axis for axis in range(weight.ndim) if axis not in apart)
    places = list(np.ndindex(*(x.shape[axis] for axis in together)))
    most = max(1, MOST_VALUES // max(x.size, weight.size))
    sums, sizes = [], []
    for first in range(0, len(places), most):
        batch = places[first : first + most]
        moves = np.zeros((len(batch), *x.shape))
        for k, place in enumerate(batch):
            index: list[int | slice] = [slice(None)] * x.ndim
            for axis, at in zip(together, place, strict=True):
                index[axis] = at
            moves[(k, *index)] = 1
        if linear:
            slope = forward(moves)
        else:
            slope = sum(share / step * forward(x + offset * step * moves) for offset, share in STENCIL)
        terms = weight * slope
        sums.append(terms.sum(axis=summed))
        sizes.append(np.abs(terms).sum(axis=summed))

    def placed(parts: list[Array]) -> Array:
        shape = [x.shape[axis] for axis in (*together, *apart)]
        return np.concatenate(parts).reshape(shape).transpose(np.argsort((*together, *apart)))

    return placed(sums), placed(sizes)


def over_images(
    forward: Callable[..., Array], inputs: Sequence[Array] = (np.empty(0),), which: int = 0
) -> Callable[[Array], Array]:
    """Turn a function of images (N, ...) into one of batches of copies (K, N, ...) of input `which`."""

    def batched(x: Array) -> Array:
        copies = [np.broadcast_to(other, (len(x), *np.shape(other))) for other in inputs]
        copies[which] = x
        result = forward(*(copy.reshape(-1, *copy.shape[2:]) for copy in copies))
        return result.reshape(*x.shape[:2], *result.shape[1:])

    return batched


def over_copies(forward: Callable[..., Array], inputs: Sequence[Array], which: int) -> Callable[[Array], Array]:
    """Turn a function of several inputs into one of copies (K, ...) of input `which`, called for each copy."""
    return lambda x: np.stack([forward(*inputs[:which], one, *inputs[which + 1 :]) for one in x])


def gradients(
    forward: Callable[..., Array], inputs: Sequence[Array], weight: Array, *, by_image: bool, step: float = 2.0**-16
) -> list[Array]:
    """Return derivatives of sum(weight * forward(*inputs)) by every input; `by_image`: images are independent."""
    found = []
    for which, x in enumerate(inputs):
        function = (over_images if by_image else over_copies)(forward, inputs, which)
        found.append(gradient(function, x, weight, apart=(0,) if by_image else (), step=step)[0])
    return found
