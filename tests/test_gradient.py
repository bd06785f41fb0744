# SPDX-License-Identifier: Apache-2.0
"""Gradient kernels: every case row of every forward kernel with a gradient, against autograd and finite differences."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import mpscnn
from cases import Case, Inputs, all_cases, make, viewed
from conftest import Guarded
from mpscnn import _core
from oracle.expected import expected
from oracle.torch_reference import gradients
from test_forward import build

ROWS = {row["name"]: row for row in _core.kernel_table()}
BY_APPLE = {row["apple_class"]: row for row in ROWS.values()}
# Forward kernels whose gradient is in the table. test_batch_gradient.py tests BatchNormalization in training.
FORWARD = {
    name
    for name, row in ROWS.items()
    if row["gradient"] in BY_APPLE and not row["forward"] and not name.startswith("BatchNormalization")
}
# Without rows of other subjects: 8-bit sources, results of another type, parts of a destination.
CASES = [
    case
    for case in all_cases()
    if case.kernel in FORWARD
    and case.dtypes[0] == "float32"
    and not case.result_dtype
    and not case.out
    # test_a_source_that_is_repeated_over_images
    and not (case.second and case.x[0] != case.second[0])
    # The gradient is that of the result's own channels.
    and "destination_feature_channel_offset" not in case.params
    # test_fused_activations
    and not (case.weight and (case.activation or case.batch_norm))
    and case.params.get("sub_pixel_scale_factor", 1) == 1
    and not case.quantized
]
NEEDS_STATE = {"Add", "Subtract", "Multiply", "Dropout", "InstanceNormalization", "GroupNormalization"}
# Rows with values at jumps of the derivative, which test_kinks tests.
JUMPS: dict[str, str] = {}


@dataclass
class Encoded:
    """A forward encode of a row, and a gradient of its result."""

    kernel: Any
    inputs: Inputs
    y: np.ndarray
    state: mpscnn.GradientState
    grad: np.ndarray

    def second(self, source: int) -> np.ndarray:
        """Return the second source of the gradient kernel for a source."""
        row = BY_APPLE[ROWS[type(self.kernel).__name__]["gradient"]]
        if "y" in row["sources"]:
            return self.y
        return self.inputs.sources[1 - source if "other" in row["sources"] else source]


def encoded(case: Case, dtype: str = "float32") -> Encoded:
    inputs = _inputs(case, dtype)
    kernel: Any = build(case, inputs)
    y, state = kernel(*inputs.sources, with_state=True)
    grad = np.random.default_rng(7).normal(size=y.shape).astype(y.dtype)
    return Encoded(kernel, inputs, y, state, grad)


@lru_cache(maxsize=32)
def _inputs(case: Case, dtype: str) -> Inputs:
    return make(case, dtype)


def finite(case: Case) -> bool:
    """Return whether the row has neither NaN nor infinities, which have no derivative."""
    inputs = _inputs(case, "float32")
    right = expected(case, inputs, "float32").value
    return bool(all(np.isfinite(x).all() for x in inputs.sources) and np.isfinite(right).all())


def whole(grad: np.ndarray, case: Case, source: int, x: np.ndarray) -> np.ndarray:
    """Return the gradient for all images and channels of a source; it is 0 for those that the row does not read."""
    prefix = ("primary_", "secondary_")[source] if case.second else ""
    first = case.params.get(f"{prefix}source_feature_channel_offset", 0)
    offset = case.params.get(f"{prefix}offset")
    image = offset[2] if offset and len(offset) == 3 else 0
    full = np.zeros(x.shape, np.float64)
    images, height, width, channels = grad.shape  # extent 1 where a stride of 0 repeats
    full[image : image + images, :height, :width, first : first + channels] = grad
    return full


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference relative to the largest value; incoming gradients are about 1."""
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max(initial=0.0) / max(np.abs(wanted).max(initial=0.0), 5e-2))


def parameters(case: Case, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return autograd's gradients by the names and in the order of the state."""
    named = {}
    if "weight" in found:
        weight = found["weight"]
        if case.layout == "OI":
            channels, height, width = case.params.get("feature_map") or (weight.shape[1], 1, 1)
            named["grad_weight"] = weight.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        elif case.kernel == "ConvolutionTranspose" and case.layout == "IOHW":  # MPS's order is rotated
            groups = np.split(weight[:, :, ::-1, ::-1], case.groups)
            named["grad_weight"] = np.concatenate([part.transpose(1, 2, 3, 0) for part in groups])
        else:
            named["grad_weight"] = mpscnn.reorder(np.ascontiguousarray(weight), case.layout)
    return named | {f"grad_{name}": found[name] for name in ("bias", "gamma", "beta") if name in found}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_autograd(case: Case) -> None:
    if not finite(case):
        pytest.skip("the row is about NaN or infinities")
    if case.values and case.kernel.startswith("Neuron"):
        pytest.skip("values are on a kink: test_kinks of test_two_sources.py")
    forward = encoded(case)
    right = gradients(case, forward.inputs, forward.grad)
    if right is None:
        pytest.skip("PyTorch has no such operator")
    for source, kernel in enumerate(forward.kernel.gradients):
        found = kernel(forward.grad, forward.second(source), forward.state)
        wanted = np.nan_to_num(right[f"source{source}"])  # the norm of zeros has no derivative: 0
        assert found.dtype == np.float32
        extended = np.zeros(wanted.shape)
        extended[tuple(slice(0, extent) for extent in found.shape)] = found
        assert relative(extended, wanted) < 2e-5
    # PyTorch also rounds the gradient of a rounded weight.
    halves = case.weight_dtype == "float16" or case.params.get("kernel_dtype") == "float16"
    for name, wanted in parameters(case, right).items():
        assert relative(getattr(forward.state, name), wanted) < (1e-3 if halves else 2e-5), name


DROPPED = [case for case in CASES if case.kernel == "Dropout"]


@pytest.mark.parametrize("case", DROPPED, ids=str)
def test_gradient_of_dropped_values(case: Case) -> None:
    """Each encode has its own mask, which its result shows."""
    forward = encoded(case)
    x = forward.inputs.x
    found = forward.kernel.gradient(forward.grad, x, forward.state)
    if found.shape == forward.y.shape and not any("offset" in name for name in case.params):
        np.testing.assert_allclose(found, forward.grad * (forward.y / x), rtol=1e-5)
    # Dropout is linear and independent for each channel.
    offset = case.params.get("offset", (0, 0))
    image = offset[2] if len(offset) == 3 else 0
    first = case.params.get("source_feature_channel_offset", 0)
    read = x[image:, ..., first : first + found.shape[3]].astype(np.float64)
    assert found.any() == forward.y.any()
    np.testing.assert_allclose(
        (read[: len(found)] * found).sum((1, 2)),
        (forward.y.astype(np.float64) * forward.grad).sum((1, 2)),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_finite_differences(case: Case) -> None:
    """With our own forward kernel, along a random direction: sum(y * grad) changes by the product with the gradient."""
    if not finite(case) or case.kernel == "Dropout":
        pytest.skip("the row is about NaN or infinities, or each call has a mask of its own")
    if case.values and ("Max" in case.kernel or "Norm" in case.kernel or case.kernel.startswith("Neuron")):
        pytest.skip("values are equal, or on a kink")
    forward = encoded(case)
    rng = np.random.default_rng(5)
    for source, kernel in enumerate(forward.kernel.gradients):
        found = kernel(forward.grad, forward.second(source), forward.state)
        x = forward.inputs.sources[source]
        gradient = whole(found, case, source, x)
        direction = rng.normal(size=x.shape)

        def value(step: float) -> np.ndarray:
            moved = list(forward.inputs.sources)
            moved[source] = (x + step * direction).astype(np.float32)  # noqa: B023
            return np.asarray(forward.kernel(*moved), np.float64)

        kinks = "Max" in case.kernel or case.kernel.startswith(("Neuron", "Add", "Subtract"))
        reduced = "allow_reduced_precision" in case.params  # convolutions are linear in them: a step of any size
        h = 1.0 if reduced else 2.0**-14 if kinks else 2.0**-8
        change = ((value(h) - value(-h)) * forward.grad).sum() / (2 * h)
        # Rounding of the results, and kinks between the two points.
        noise = np.abs(forward.y * forward.grad).sum() * (2.0**-9 if reduced else 2.0**-24) / h
        bound = 4e-3 * (np.abs(gradient * direction).sum() + 1e-3) + noise
        assert abs(change - (gradient * direction).sum()) <= bound


@pytest.mark.parametrize("case", [case for case in CASES if case.kernel not in NEEDS_STATE], ids=str)
def test_without_a_state(case: Case) -> None:
    """The geometry is the forward kernel's current one."""
    forward = encoded(case)
    kernel = forward.kernel.gradient
    if "SoftMax" in case.kernel and any("offset" in name for name in case.params):
        with pytest.raises(TypeError, match="state is missing: the forward kernel reads a part of its source"):
            kernel(forward.grad, forward.y)
        return
    with_state = kernel(forward.grad, forward.second(0), forward.state)
    np.testing.assert_array_equal(kernel(forward.grad, forward.second(0)), with_state)
    assert kernel.result_shape(forward.grad.shape, forward.second(0).shape) == with_state.shape


@pytest.mark.parametrize("case", [case for case in CASES if "float16" in case.dtypes], ids=str)
def test_halves(case: Case) -> None:
    """Return float32's result for the same numbers, rounded once."""
    if not finite(case):
        pytest.skip("the row is about NaN or infinities")
    if case.kernel == "Dropout":
        pytest.skip("each call has a mask of its own")
    half = encoded(case, "float16")
    single = encoded(case)
    sources = [x.astype(np.float32) for x in half.inputs.sources]
    single.y, single.state = single.kernel(*sources, with_state=True)
    for source, kernel in enumerate(half.kernel.gradients):
        seen = half.second(source)
        found = kernel(half.grad, seen, half.state)
        assert found.dtype == np.float16
        wanted = single.kernel.gradients[source](half.grad.astype("f4"), seen.astype("f4"), single.state)
        rounded = wanted.astype(np.float16)
        ulp = np.spacing(np.abs(rounded)).astype(np.float64)
        assert (np.abs(found.astype(np.float64) - wanted) <= 1.01 * ulp + 1e-7).all()


ONE_EACH = list({case.kernel: case for case in reversed(CASES) if case.kernel not in NEEDS_STATE}.values())


@pytest.mark.parametrize("view", ["nchw", "channels", "steps", "reversed"])
@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_any_strides(case: Case, view: str) -> None:
    forward = encoded(case)
    seen = forward.second(0)
    wanted = forward.kernel.gradient(forward.grad, seen)
    out = Guarded(wanted.shape, "float32", view)
    found = forward.kernel.gradient(viewed(forward.grad, view), viewed(seen, view), out=out.array)
    assert found is out.array
    out.check()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_places_in_the_destination(case: Case) -> None:
    """destinationFeatureChannelOffset and clipRect."""
    forward = encoded(case)
    kernel = forward.kernel.gradient
    seen = forward.second(0)
    wanted = kernel(forward.grad, seen)
    n, h, w, c = wanted.shape
    kernel.destination_feature_channel_offset = 8
    behind = 0 if case.kernel == "Reshape" else 3
    out = Guarded((n, h, w, 8 + c + behind), "float32")
    kernel(forward.grad, seen, out=out.array)
    out.check((slice(None), slice(None), slice(None), slice(8, 8 + c)))
    np.testing.assert_array_equal(out.array[..., 8 : 8 + c], wanted)


@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_one_command_buffer(case: Case) -> None:
    """Forward and backward with temporary images, each read once."""
    forward = encoded(case)
    wanted = forward.kernel.gradient(forward.grad, forward.second(0))
    takes_y = forward.second(0) is forward.y
    x = mpscnn.Image.from_array(forward.inputs.x)
    with mpscnn.CommandBuffer() as commands:
        y, state = forward.kernel.encode(commands, x, temporary=not takes_y, with_state=True)
        grad = mpscnn.NeuronLinear(1, 0).encode(commands, mpscnn.Image.from_array(forward.grad), temporary=True)
        if not takes_y:
            y.read_count = 0
        result = forward.kernel.gradient.encode(commands, grad, y if takes_y else x, state)
        assert grad.read_count == 0
    np.testing.assert_array_equal(result.numpy(), wanted)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k))])
@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_copies(case: Case, way: Any) -> None:
    if case.batch_norm and way is not copy.copy:
        pytest.skip("the row's data source is not one that can be pickled")
    forward = encoded(case)
    kernel = forward.kernel.gradient
    kernel.label = "back"
    twin = way(kernel)
    assert (type(twin), twin.label) == (type(kernel), "back")
    seen = forward.second(0)
    np.testing.assert_array_equal(twin(forward.grad, seen), kernel(forward.grad, seen))


def test_a_gradient_follows_its_forward_kernel() -> None:
    x = np.arange(36, dtype=np.float32).reshape(1, 6, 6, 1)
    pool = mpscnn.PoolingMax(2)
    gradient = pool.gradient
    assert gradient is pool.gradient
    pool.offset = (2, 2)
    ones = np.ones((1, 3, 3, 1), np.float32)
    moved = gradient(ones, x)
    assert gradient.offset == (2, 2)
    pool.offset = None
    assert not np.array_equal(moved, gradient(ones, x))
    np.testing.assert_array_equal(mpscnn.PoolingMaxGradient(2)(ones, x), gradient(ones, x))


# ------------------------------------------------------------------------------------------------------- errors


def pooled() -> tuple[Any, np.ndarray, np.ndarray, mpscnn.GradientState]:
    x = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2)
    pool = mpscnn.PoolingMax(2)
    y, state = pool(x, with_state=True)
    return pool, x, np.ones_like(y), state


def test_state_of_another_kernel() -> None:
    pool, x, grad, _ = pooled()
    _, _, _, other = pooled()
    with pytest.raises(ValueError, match="state is that of another PoolingMax, not of the kernel"):
        pool.gradient(grad, x, other)


def test_state_used_twice() -> None:
    pool, x, grad, state = pooled()
    pool.gradient(grad, x, state)
    with pytest.raises(RuntimeError, match="PoolingMaxGradient: the state has been used already"):
        pool.gradient(grad, x, state)


def test_gradient_of_the_wrong_size() -> None:
    pool, x, grad, state = pooled()
    with pytest.raises(
        ValueError, match=r"grad_y.shape \(1, 1, 2, 2\) is not that of the result of the forward encode"
    ):
        pool.gradient(grad[:, :1], x, state)
    with pytest.raises(ValueError, match=r"grad_y.shape \(1, 1, 2, 2\) is not that of the forward kernel's result"):
        pool.gradient(grad[:, :1], x)
    with pytest.raises(ValueError, match=r"x.shape \(1, 4, 2, 2\) is not what the forward encode had"):
        pool.gradient(grad, x[:, :, :2], state)


def test_gradients_are_read_when_they_are_there() -> None:
    conv = mpscnn.Convolution(np.ones((1, 1, 1, 1), np.float32))
    x = mpscnn.Image.from_array(np.ones((1, 2, 2, 1), np.float32))
    with mpscnn.CommandBuffer() as commands:
        _, state = conv.encode(commands, x, with_state=True)
        with pytest.raises(
            RuntimeError, match="no gradient kernel that computes grad_bias has been encoded with the state"
        ):
            state.grad_bias  # noqa: B018
        conv.gradient.encode(commands, x, x, state)
        with pytest.raises(RuntimeError, match="the command buffer that writes it has not completed"):
            state.grad_bias  # noqa: B018
    assert state.grad_bias.tolist() == [4.0]


def test_only_the_source() -> None:
    """A state has no gradients of parameters that were not computed."""
    conv = mpscnn.Convolution(np.ones((1, 1, 1, 1), np.float32))
    x = np.ones((1, 2, 2, 1), np.float32)
    y, state = conv(x, with_state=True)
    conv.gradient.gradient_option = "data"
    conv.gradient(y, x, state)
    with pytest.raises(RuntimeError, match="no gradient kernel that computes grad_weight has been encoded"):
        state.grad_weight  # noqa: B018
    conv.gradient.gradient_option = "weights_and_bias"  # of the same state: not used for these yet
    conv.gradient(y, x, state)
    assert state.grad_weight.item() == 4.0


def test_missing_state() -> None:
    a = np.ones((1, 2, 2, 1), np.float32)
    with pytest.raises(TypeError, match="AddGradient: state is missing: the forward encode leaves it"):
        mpscnn.Add().gradients[0](a, a)
    with pytest.raises(TypeError, match="Add: the kernel has 2 sources; see gradients"):
        mpscnn.Add().gradient  # noqa: B018


def test_states_where_none_belong() -> None:
    pool, x, grad, state = pooled()
    with pytest.raises(TypeError, match="PoolingMax: state was given; the kernel takes none"):
        pool(x, state)
    with pytest.raises(TypeError, match="state is not a GradientState"):
        pool.gradient(grad, x, mpscnn.BatchNormalizationState(2))
    with pytest.raises(TypeError, match="AddGradient: state is not a GradientState"):
        mpscnn.Add().gradients[0](x, x, mpscnn.BatchNormalizationState(2))
    with pytest.raises(TypeError, match=r"state \(int\) is not a BatchNormalizationState or GradientState"):
        pool.gradient(grad, x, state=3)
    with pytest.raises(TypeError, match="PoolingMaxGradient: the kernel has no gradient kernel"):
        pool.gradient.gradient  # noqa: B018
    with pytest.raises(TypeError, match="with_state was given; the kernel leaves no state"):
        pool.gradient(grad, x, with_state=True)
    with pytest.raises(AttributeError, match="the state of PoolingMax has no grad_weight"):
        state.grad_weight  # noqa: B018


def test_a_source_that_is_repeated_over_images() -> None:
    with pytest.raises(
        NotImplementedError, match="Add: a has more than 1 image, b has 1: there is no gradient of a source"
    ):
        mpscnn.Add()(np.ones((2, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32), with_state=True)


def test_kinks() -> None:
    """Among equal maxima, the first in row-major order; slopes at 0 as in test_two_sources."""
    pool = mpscnn.PoolingMax(2)
    x = np.zeros((1, 2, 2, 1), np.float32)
    assert pool.gradient(np.ones((1, 1, 1, 1), np.float32), x).ravel().tolist() == [1, 0, 0, 0]
