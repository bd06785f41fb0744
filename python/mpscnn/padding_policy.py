# SPDX-License-Identifier: Apache-2.0
"""User-defined padding: the positions of a kernel's windows."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from . import _typing as t
    from .kernels import UnaryKernel


class PaddingPolicy(ABC):
    """User-defined size of a kernel's result and positions of its windows, which MPS requests (protocol MPSNNPadding).

    Derive from it and pass an object as ``padding``, wherever "same" is allowed. ``destination()`` is called whenever a
    shape is needed or a kernel is encoded, on the calling thread: once by ``encode(..., temporary=True)``, twice by
    ``kernel(x)`` and by other encodes that make their result; both calls must return the same. Arrays of more images
    than an Image holds are run in chunks, with a call for each chunk. Exceptions are raised to the caller. The policy
    may read properties of the kernel but must not call or encode it.

    A kernel's ``offset``, if set, overrides the policy's. ``copy.copy(kernel)`` shares the policy,
    ``copy.deepcopy(kernel)`` and pickles copy it.

    Attributes
    ----------
    padding_method : str or tuple of str, default "size_valid_only"
        Flags of MPSNNPaddingMethod, from which MPS computes ``suggested``; at most one from each line.

        "size_valid_only", "size_same", "size_full"
        "align_centered", "align_top_left", "align_bottom_right"
        "add_remainder_to_top_left", "..._top_right", "..._bottom_left", "..._bottom_right"

    Raises
    ------
    Any exception of ``destination()``, and
    ValueError
        'Convolution: padding policy Full: height (0) is less than the minimum (1).', "... width (20000) is greater than
        the maximum (16384).", "... len(shape) (3) is not 4 (N, H, W, C)."
    TypeError
        "Convolution: padding policy Full: offset[0] (nan) is not an int.", "... destination() returned None, which is
        neither a shape (N, H, W, C) nor (shape, offset)."
    RuntimeError
        "Convolution: padding policy Full: the kernel is used inside of the policy that it asks."

    Source
    ------
    MPSNeuralNetwork/MPSNeuralNetworkTypes.h, MPSNNPadding and MPSNNPaddingMethod.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> class Full(mpscnn.PaddingPolicy):
    ...     '''Every pixel whose window overlaps the source: PyTorch's padding of kernel_size - 1.'''
    ...
    ...     def destination(self, kernel, sources, suggested):
    ...         n, h, w, c = suggested  # as with padding 0
    ...         top, left = (size - 1 for size in kernel.kernel_size)
    ...         shape = (n, h + 2 * top, w + 2 * left, c)
    ...         return shape, ((top + 1) // 2 - top, (left + 1) // 2 - left)
    >>> mpscnn.Convolution(np.ones((4, 4, 3, 3), np.float32), padding=Full())(np.ones((1, 5, 7, 4), np.float32)).shape
    (1, 7, 9, 4)
    """

    # Any: derived classes may use attributes or properties.
    padding_method: Any = "size_valid_only"

    @abstractmethod
    def destination(
        self,
        kernel: UnaryKernel,
        sources: list[tuple[int, int, int, int]],
        suggested: tuple[int, int, int, int],
    ) -> Any:
        """Return the shape of the result, or ``(shape, offset)``.

        Parameters
        ----------
        kernel : UnaryKernel
            The kernel that is encoded; ``kernel_size``, ``stride`` and ``dilation`` can be read.
        sources : list of (N, H, W, C)
        suggested : (N, H, W, C)
            The shape by ``padding_method``; H and W may be less than 1 if the window is larger than the source.

        Returns
        -------
        shape : (N, H, W, C), pixels
            N is that of ``suggested``, H and W are 1 to 16384. C is at least that of ``suggested``; additional channels
            are not written and have undefined values.
        offset : (y, x), pixels, or None
            Source pixel under the centre of the first window, where the centre of k taps is tap k // 2: with p rows of
            padding at the top and e = (kernel_size - 1) * dilation + 1, y is e // 2 - p. For a transposed convolution
            it is Apple's kernelOffset, and y is k // 2 - k + 1 + p for p rows cropped at the top. None: the offset by
            ``padding_method``.
        """


def _destination(
    policy: t.PaddingPolicy, kernel_name: str, kernel: UnaryKernel, sources: list[Any], suggested: Any
) -> tuple[int, ...]:
    """Return the policy's shape, followed by its offset if there is one. Called by the core."""
    return _placement(f"{kernel_name}: padding policy {type(policy).__name__}", policy, kernel, sources, suggested)


def _placement(who: str, policy: t.PaddingPolicy, kernel: Any, sources: list[Any], suggested: Any) -> tuple[int, ...]:
    answer = policy.destination(kernel, sources, suggested)
    shape, offset = answer, None
    if _is_sequence(answer) and len(answer) == 2 and (_is_sequence(answer[0]) or not hasattr(answer[0], "__index__")):
        shape, offset = answer
    if not _is_sequence(shape):
        raise TypeError(
            f"{who}: destination() returned {answer!r}, which is neither a shape (N, H, W, C) nor (shape, offset)."
        )
    extents = _integers(who, "shape", shape, "N, H, W, C")
    if offset is None:
        return extents
    if not _is_sequence(offset):
        raise TypeError(f"{who}: offset ({offset!r}) is not (y, x) or None.")
    return extents + _integers(who, "offset", offset, "y, x")


def _is_sequence(value: Any) -> bool:
    return hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes))


def _integers(who: str, name: str, values: Any, axes: str) -> tuple[int, ...]:
    if len(values) != len(axes.split(", ")):
        raise ValueError(f"{who}: len({name}) ({len(values)}) is not {len(axes.split(', '))} ({axes}).")
    numbers = [values[i] for i in range(len(values))]
    for i, value in enumerate(numbers):
        if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "__index__"):
            raise TypeError(f"{who}: {name}[{i}] ({value!r}) is not an int.")
        if not -(2**63) <= operator.index(value) < 2**63:
            raise ValueError(f"{who}: {name}[{i}] ({value}) is beyond 64 bits.")
    return tuple(operator.index(value) for value in numbers)
