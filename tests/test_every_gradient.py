# SPDX-License-Identifier: Apache-2.0
"""Common to all gradient kernels, on a case of the forward kernel: threads, memory, positions of results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import mpscnn
from cases import Case
from conftest import Guarded
from test_forward import build
from test_gradient import BY_APPLE, CASES, NEEDS_STATE, ROWS, encoded

# The first case of each forward kernel that has no special values or memory layout.
PLAIN = {
    case.kernel: case
    for case in reversed(CASES)
    if not case.values
    and (case.x_view, case.second_view) == ("dense", "dense")
    and BY_APPLE[ROWS[case.kernel]["gradient"]]["forward"]
}
EACH = pytest.mark.parametrize("case", PLAIN.values(), ids=str)
# Others count the pixels of clip_rect from the first pixel of a whole result, like forward kernels.
LIES_ON_SOURCE = ("Pad", "Pooling", "DilatedPooling", "Upsampling")


class Tried:
    """A forward kernel and its gradient by the first source."""

    def __init__(self, case: Case) -> None:
        self.forward = encoded(case)
        self.kernel = self.forward.kernel.gradients[0]
        self.grad = self.forward.grad
        self.takes_y = self.forward.second(0) is self.forward.y
        self.whole = self()

    def __call__(self, **given: Any) -> np.ndarray:
        """Call with a new state."""
        y, state = self.forward.kernel(*self.forward.inputs.sources, with_state=True)
        return self.kernel(self.grad, y if self.takes_y else self.forward.second(0), state, **given)


def skip_sequences(case: Case) -> None:
    if case.kernel == "Dropout":
        pytest.skip("its masks follow each other")


def test_every_gradient_is_tried() -> None:
    assert {f"{name}Gradient" for name in PLAIN} == {name for name, row in ROWS.items() if row["forward"]}


@EACH
def test_a_rectangle_of_the_destination(case: Case) -> None:
    skip_sequences(case)
    if case.kernel == "Reshape":
        pytest.skip("has as many values as the source, wherever they are put")
    tried = Tried(case)
    n, h, w, c = tried.whole.shape
    height, width = max(1, h - 2), max(1, w - 2)
    tried.kernel.clip_rect = ((1, 1, 0), (height, width, n))
    out = Guarded((n, h + 1, w + 1, c), "float32")
    tried(out=out.array)
    written = (slice(None), slice(1, 1 + height), slice(1, 1 + width))
    out.check(written)
    first = 1 if case.kernel.startswith(LIES_ON_SOURCE) else 0
    wanted = tried.whole[:, first : first + height, first : first + width]
    np.testing.assert_allclose(out.array[written], wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max(initial=0.0))
    with pytest.raises(ValueError, match="clip_rect needs a destination"):
        tried()


@EACH
def test_a_result_over_a_source(case: Case) -> None:
    """Refused, unless the source is copied first."""
    skip_sequences(case)
    tried = Tried(case)
    extents = [max(a, b) for a, b in zip(tried.whole.shape, tried.grad.shape, strict=True)]
    memory = np.full(extents, np.nan, np.float32)
    over = memory[tuple(slice(0, extent) for extent in tried.grad.shape)]
    over[:] = tried.grad
    out = memory[tuple(slice(0, extent) for extent in tried.whole.shape)]
    tried.grad = over
    try:
        tried(out=out)
    except ValueError as error:
        assert "share memory" in str(error)  # noqa: PT017
        return
    np.testing.assert_array_equal(out, tried.whole)


@EACH
def test_an_image_is_not_both(case: Case) -> None:
    tried = Tried(case)
    seen = mpscnn.Image.from_array(tried.forward.second(0))
    grad = mpscnn.Image.from_array(tried.grad)
    buffer = mpscnn.CommandBuffer()
    for both in (seen, grad):
        if both.shape == tried.whole.shape:
            with pytest.raises(ValueError, match=r"out|same image|destination"):
                tried.kernel.encode(buffer, grad, seen, tried.forward.state, out=both)
    buffer.commit()
    buffer.wait()


@EACH
def test_reduced_precision(case: Case) -> None:
    skip_sequences(case)
    tried = Tried(case)
    tried.kernel.allow_reduced_precision = True
    assert tried.kernel.allow_reduced_precision
    np.testing.assert_allclose(tried(), tried.whole, rtol=2e-2, atol=2e-2 * np.abs(tried.whole).max(initial=0.0))


@EACH
def test_four_threads(case: Case) -> None:
    """One kernel; each thread has its own command buffers and states."""
    skip_sequences(case)
    tried = Tried(case)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: tried(), range(16)):
            np.testing.assert_array_equal(found, tried.whole)


@EACH
def test_no_memory_is_kept(case: Case, no_leak: Any) -> None:
    tried = Tried(case)
    with no_leak():
        for _ in range(50):
            tried()


@EACH
def test_sizes_do_not_depend_on_the_engine(case: Case, null_device: mpscnn.Device) -> None:
    forward = encoded(case)
    shapes = (forward.grad.shape, forward.second(0).shape)
    if case.kernel in NEEDS_STATE:
        pytest.skip("the state says how large the source was")
    kernel: Any = build(case, forward.inputs, null_device)
    assert kernel.gradient.result_shape(*shapes) == forward.kernel.gradient.result_shape(*shapes)
