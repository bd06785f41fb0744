# SPDX-License-Identifier: Apache-2.0
"""Gradients of float64 functions by central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def numeric_vjp(
    forward: Callable[..., Array], inputs: Sequence[Array], upstream: Array, *, step: float = 1e-5
) -> list[Array]:
    """Return the gradient of sum(forward(*inputs) * upstream) with respect to every input."""
    found = []
    for i, values in enumerate(inputs):
        gradient = np.zeros(values.shape)
        for at in np.ndindex(values.shape):
            ends = []
            for signed in (step, -step):
                moved = values.copy()
                moved[at] += signed
                ends.append((forward(*inputs[:i], moved, *inputs[i + 1 :]) * upstream).sum())
            gradient[at] = (ends[0] - ends[1]) / (2 * step)
        found.append(gradient)
    return found


def numeric_vjp_of_images(
    forward: Callable[..., Array], inputs: Sequence[Array], upstream: Array, *, step: float = 1e-5
) -> list[Array]:
    """The same for functions of images (N, H, W, C) that treat each image by itself: one call for all steps."""
    found = [np.zeros(values.shape) for values in inputs]
    for n in range(len(upstream)):
        images = [values[n] for values in inputs]
        for i, image in enumerate(images):
            steps = step * np.eye(image.size).reshape(-1, *image.shape)
            stacks = [np.broadcast_to(other, (2 * image.size, *other.shape)) for other in images]
            stacks[i] = np.concatenate([image + steps, image - steps])
            sums = (forward(*stacks) * upstream[n]).reshape(2, image.size, -1).sum(-1)
            found[i][n] = ((sums[0] - sums[1]) / (2 * step)).reshape(image.shape)
    return found
