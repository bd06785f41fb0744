# SPDX-License-Identifier: Apache-2.0
"""Normalization beyond its case rows: statistics and their states, data sources, reloads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import mpscnn
from cases import Case, all_cases, make
from oracle import MPSCNNBatchNormalization as moments  # noqa: N813
from oracle import compare
from oracle.expected import expected
from support import Values, address, assert_close, random
from test_forward import STATES

GAMMA, BETA = random((6,), seed=1), random((6,), seed=2)
MEAN, VARIANCE = random((6,), seed=3), np.abs(random((6,), seed=4)) + np.float32(0.25)
X = (3, 5, 7, 6)


def by_torch(x: Any, *values: Any, training: bool = False, **options: Any) -> np.ndarray:
    """Return F.batch_norm of (N, H, W, C) in float64; `values`: mean, variance, gamma, beta."""
    source = torch.from_numpy(np.ascontiguousarray(x, np.float64)).permute(0, 3, 1, 2)
    mean, variance, gamma, beta = (None if v is None else torch.from_numpy(v.astype(np.float64)) for v in values)
    y = F.batch_norm(source, mean, variance, gamma, beta, training, **options)
    return y.permute(0, 2, 3, 1).numpy()


# -------------------------------------------------------------------------------------------------- statistics


ROWS = [
    pytest.param(case, dtype, id=f"{case}-{dtype}")
    for case in all_cases()
    if case.kernel in STATES
    for dtype in case.dtypes
]


@pytest.mark.parametrize("way", ["array", "image", "temporary"])
@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_statistics_against_oracle(case: Case, dtype: str, way: str) -> None:
    x = make(case, dtype).x
    right = expected(case, make(case, dtype), "float32")
    kernel = getattr(mpscnn, case.kernel)(**case.params)
    if way == "temporary":
        with mpscnn.CommandBuffer() as buffer:
            copy = mpscnn.NeuronLinear(1.0, 0.0).encode(buffer, mpscnn.Image.from_array(x), temporary=True)
            state = kernel.encode(buffer, copy)
            assert copy.read_count == 0
    else:
        state = kernel(mpscnn.Image.from_array(x) if way == "image" else x)
    assert isinstance(state, mpscnn.BatchNormalizationState)
    assert (state.channels, state.count) == (right.value.shape[3], int(np.prod(x.shape[:3])))
    result = np.stack([state.mean, state.variance])[None, None]
    assert result.dtype == np.float32
    compare.assert_close(result.astype(np.float64), right.value, right.bound)
    for name, mutant in compare.mutants(result.astype(np.float64), right.value, right.bound).items():
        with pytest.raises(AssertionError):
            compare.assert_close(mutant, right.value, right.bound, name)


@pytest.mark.parametrize("parts", [(1, 2, 4), (4, 3), (1,) * 7])
def test_a_batch_in_parts(parts: tuple[int, ...]) -> None:
    """Parts of unequal size and different values; also the sums of a part with a distant mean."""
    x = random((7, 4, 5, 6))
    x[3:] += 50
    statistics, state = mpscnn.BatchNormalizationStatistics(), mpscnn.BatchNormalizationState(6)
    first = 0
    for part in parts:
        assert statistics(x[first : first + part], state) is state
        first += part
        assert state.count == first * 20
        mean, variance = moments.statistics(x[:first].astype(np.float64))
        assert_close(state.mean, mean)
        assert_close(state.variance, variance)


def test_more_images_than_one_image_object_takes() -> None:
    x = random((9, 2, 3, 2048))
    state = mpscnn.BatchNormalizationStatistics()(x)
    mean, variance = moments.statistics(x.astype(np.float64))
    assert state.count == 54
    assert_close(state.mean, mean)
    assert_close(state.variance, variance)
    y = mpscnn.BatchNormalization(np.ones(2048, np.float32))(x, state)
    assert_close(y, moments.normalize(x.astype(np.float64), mean, variance, 1, 0, 1e-5))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_normalization_by_a_state(dtype: str, activation: str | None) -> None:
    """As PyTorch does in training; the kernel's own mean and variance are ignored."""
    x = (random(X) * 3 + 5).astype(dtype)
    wanted = by_torch(x, None, None, GAMMA, BETA, training=True)
    wanted = np.maximum(wanted, 0) if activation else wanted
    state = mpscnn.BatchNormalizationStatistics()(x)
    for given in ({}, {"mean": MEAN, "variance": VARIANCE}):
        kernel = mpscnn.BatchNormalization(GAMMA, BETA, **given, activation=activation)
        for y in (kernel(x, state), kernel(x, state=state), kernel(mpscnn.Image.from_array(x), state).numpy()):
            assert y.dtype == np.dtype(dtype)
            assert_close(y, wanted, 1e-5 if dtype == "float32" else 1e-3)
    out = np.empty((3, 5, 7, 6), np.float32)
    assert kernel(x, state, out=out) is out
    assert_close(out, wanted, 1e-5)
    assert_close(kernel(x), np.maximum(by_torch(x, MEAN, VARIANCE, GAMMA, BETA), 0 if activation else -np.inf), 1e-3)


def test_statistics_have_no_place() -> None:
    """They cover all pixels: neither offset nor rectangle applies."""
    with pytest.raises(ValueError, match=r"offset \(1, 0\) is greater than the maximum \(0\)"):
        mpscnn.BatchNormalizationStatistics(offset=(1, 0))
    kernel = mpscnn.BatchNormalizationStatistics(clip_rect=((0, 0, 0), (2, 2, 1)))
    with pytest.raises(ValueError, match=r"clip_rect is set; there is no destination"):
        kernel(random(X))


def test_groups_divide_the_channels() -> None:
    with pytest.raises(ValueError, match=r"GroupNormalization: groups \(4\) does not divide channels \(6\)"):
        mpscnn.GroupNormalization(GAMMA, groups=4)


def test_one_command_buffer_from_statistics_to_the_result() -> None:
    x = random(X) * 2 - 3
    with mpscnn.CommandBuffer() as buffer:
        middle = mpscnn.NeuronLinear(-1.0, 4.0).encode(buffer, mpscnn.Image.from_array(x), temporary=True)
        middle.read_count = 2
        state = mpscnn.BatchNormalizationStatistics().encode(buffer, middle)
        result = mpscnn.BatchNormalization(GAMMA, BETA).encode(buffer, middle, state)
        assert middle.read_count == 0
    assert_close(result.numpy(), by_torch(4 - x, None, None, GAMMA, BETA, training=True))


def test_a_state_serves_a_whole_training() -> None:
    """Statistics after a normalization begin a new batch; reset() begins one at once."""
    first, second = random(X), random(X, seed=9) * 4 + 2
    statistics, norm = mpscnn.BatchNormalizationStatistics(), mpscnn.BatchNormalization(GAMMA)
    state = statistics(first)
    norm(first, state)
    assert state.count == 105, "what was used can be read, and used again"
    norm(first, state)
    assert statistics(second, state).count == 105
    assert_close(state.mean, moments.statistics(second.astype(np.float64))[0])
    assert statistics(first, state).count == 210
    state.reset()
    assert state.count == 0
    with pytest.raises(RuntimeError, match="no statistics have been encoded"):
        _ = state.mean
    assert_close(statistics(first, state).mean, moments.statistics(first.astype(np.float64))[0])


def test_arrays_of_a_state_are_copies() -> None:
    statistics = mpscnn.BatchNormalizationStatistics()
    state = statistics(random(X))
    mean = state.mean
    kept = mean.copy()
    statistics(random(X) + 7, state)
    np.testing.assert_array_equal(mean, kept)
    mean[...] = np.nan
    assert np.isfinite(state.mean).all()


def test_repr_of_a_state() -> None:
    state = mpscnn.BatchNormalizationStatistics()(random(X))
    assert repr(state) == "<mpscnn.BatchNormalizationState of 6 channels, 105 values each>"
    assert state.device.name == mpscnn.Device().name


def test_states_of_several_threads() -> None:
    """Kernels are shared; each thread has its own state."""
    statistics, norm = mpscnn.BatchNormalizationStatistics(), mpscnn.BatchNormalization(GAMMA, BETA)
    results: dict[int, np.ndarray] = {}

    def work(seed: int) -> None:
        x = random(X, seed=seed) * seed
        for _ in range(10):
            results[seed] = norm(x, statistics(x))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for seed, y in results.items():
        assert_close(y, by_torch(random(X, seed=seed) * seed, None, None, GAMMA, BETA, training=True))


# --------------------------------------------------------------------------------- values: arrays, data sources


KINDS: dict[str, dict[str, Any]] = {
    "BatchNormalization": {"mean": MEAN, "variance": VARIANCE},
    "GroupNormalization": {"groups": 3},
    "InstanceNormalization": {},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_is_as_good_as_arrays(kind: str) -> None:
    x = random(X)
    wanted = getattr(mpscnn, kind)(GAMMA, BETA, **KINDS[kind])(x)
    source = Values(GAMMA, channels=6, beta=BETA, epsilon=1e-5, **KINDS[kind])
    kernel = getattr(mpscnn, kind)(source)
    np.testing.assert_array_equal(kernel(x), wanted)
    assert kernel.data_source is source
    assert source.calls.count("load") == source.calls.count("purge") >= 1
    # The built-in source's attributes make the same kernel again.
    built_in = getattr(mpscnn, kind)(GAMMA, BETA, **KINDS[kind]).data_source
    np.testing.assert_array_equal(getattr(mpscnn, kind)(built_in)(x), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_members_of_a_source_may_be_methods(kind: str) -> None:
    class Methods(mpscnn.NormalizationDataSource):
        def channels(self) -> int:
            return 6

        def gamma(self) -> np.ndarray:
            return GAMMA

        @property
        def beta(self) -> np.ndarray:
            return BETA

        def epsilon(self) -> float:
            return 0.5

        def label(self) -> str:
            return "third"

        groups, mean, variance = 3, MEAN, VARIANCE

    x = random(X)
    kernel = getattr(mpscnn, kind)(Methods())
    np.testing.assert_array_equal(kernel(x), getattr(mpscnn, kind)(GAMMA, BETA, **KINDS[kind], epsilon=0.5)(x))


def test_the_built_in_source_has_the_members_of_one_in_python() -> None:
    source = mpscnn.BatchNormalization(GAMMA, BETA, MEAN, VARIANCE, epsilon=0.25, label="first").data_source
    wanted = {*mpscnn.NormalizationDataSource.__annotations__, "load", "purge"}
    assert {name for name in vars(type(source)) if not name.startswith("_")} == wanted
    for name, value in {"gamma": GAMMA, "beta": BETA, "mean": MEAN, "variance": VARIANCE}.items():
        array = getattr(source, name)
        assert address(array) == address(value), "in place"
        assert not array.flags.writeable
    assert (source.channels, source.groups, source.epsilon, source.label) == (6, None, 0.25, "first")
    assert repr(source) == "<mpscnn.NormalizationDataSource, built in, of 6 channels>"
    plain = mpscnn.GroupNormalization(GAMMA, groups=2).data_source
    assert (plain.groups, plain.beta, plain.mean, plain.label) == (2, None, None, None)
    assert plain.load() is True
    plain.purge()


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy, np.ndarray.tolist, np.ndarray.tobytes])
def test_values_come_as_arrays_tensors_and_lists(convert: Any) -> None:
    x, right = random(X), by_torch(random(X), MEAN, VARIANCE, GAMMA, BETA)
    if convert is np.ndarray.tobytes:
        with pytest.raises(TypeError, match=r"gamma\.dtype \(uint8\) is not float16"):
            mpscnn.InstanceNormalization(GAMMA.tobytes())
        return
    kernel = mpscnn.BatchNormalization(*(convert(v) for v in (GAMMA, BETA, MEAN, VARIANCE)))
    assert_close(kernel(x), right)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_values_of_other_types_are_converted(dtype: str) -> None:
    values = [value.astype(dtype) for value in (GAMMA, BETA, MEAN, VARIANCE)]
    x = random(X)
    rounded = [value.astype(np.float32) for value in values]
    np.testing.assert_array_equal(mpscnn.BatchNormalization(*values)(x), mpscnn.BatchNormalization(*rounded)(x))
    strided = [np.repeat(value, 2)[::-2][::-1] for value in values]
    np.testing.assert_array_equal(mpscnn.BatchNormalization(*strided)(x), mpscnn.BatchNormalization(*rounded)(x))


def test_modules_of_torch() -> None:
    """Their parameters and buffers, passed unchanged."""
    x = random(X)
    tensor = torch.from_numpy(x).permute(0, 3, 1, 2)
    norm = torch.nn.BatchNorm2d(6)
    norm(tensor)
    norm.eval()
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(GAMMA))
        norm.bias.copy_(torch.from_numpy(BETA))
        wanted = norm(tensor).permute(0, 2, 3, 1).numpy()
    kernel = mpscnn.BatchNormalization(norm.weight, norm.bias, norm.running_mean, norm.running_var, epsilon=norm.eps)
    assert_close(kernel(x), wanted)
    group = torch.nn.GroupNorm(3, 6)
    with torch.no_grad():
        wanted = group(tensor).permute(0, 2, 3, 1).numpy()
    assert_close(mpscnn.GroupNormalization(group.weight, group.bias, group.num_groups, epsilon=group.eps)(x), wanted)


def test_epsilon_of_a_source_that_names_none() -> None:
    """Apple's default is the smallest normal float: a channel without spread is divided by its root."""
    x = np.full((1, 3, 2, 4), 2, np.float32)
    x[0, 0, 0] = [2, 2 + 2**-12, 2, 2]
    given = mpscnn.InstanceNormalization(np.ones(4, np.float32))(x)
    own = mpscnn.InstanceNormalization(Values(np.ones(4, np.float32)))(x)
    assert_close(own[0, 0, 0], [0, 5**0.5, 0, 0], 1e-4)
    assert abs(given[0, 0, 0, 1]) < 0.1, "PyTorch's epsilon is far greater than that variance"


def test_gamma_may_be_missing() -> None:
    x = random((1, 4, 5, 4))
    np.testing.assert_array_equal(
        mpscnn.InstanceNormalization(Values(None, epsilon=1e-5))(x),
        mpscnn.InstanceNormalization(np.ones(4, np.float32), np.zeros(4, np.float32))(x),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_reload_reads_again(kind: str) -> None:
    x = random(X)
    values = {"gamma": GAMMA.copy(), "beta": BETA.copy(), **{k: np.copy(v) for k, v in KINDS[kind].items()}}
    if "groups" in values:
        values["groups"] = 3
    kernel = getattr(mpscnn, kind)(**values)
    before = kernel(x)
    commands = mpscnn.CommandBuffer()
    recorded = kernel.encode(commands, mpscnn.Image.from_array(x))
    for name in ("gamma", "beta", "mean", "variance"):
        if name in values:
            values[name] *= 3
    np.testing.assert_array_equal(kernel(x), before)
    kernel.reload()
    np.testing.assert_array_equal(kernel(x), getattr(mpscnn, kind)(**values)(x))
    assert np.abs(kernel(x) - before).max() > 0.1
    commands.commit()
    commands.wait()
    np.testing.assert_array_equal(recorded.numpy(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_gamma_and_beta_from_the_device(kind: str) -> None:
    """Earlier encodes use the old values, later ones the contents of the buffers at execution."""
    x = random(X)
    kernel, made = getattr(mpscnn, kind)(GAMMA, BETA, **KINDS[kind]), getattr(mpscnn, kind)
    buffer = mpscnn.Buffer(6 * 4)
    state = mpscnn.NormalizationGammaAndBetaState(buffer, BETA.tolist())
    with mpscnn.CommandBuffer() as commands:
        image = mpscnn.Image.from_array(x)
        before = kernel.encode(commands, image)
        kernel.reload(commands, state)
        after = kernel.encode(commands, image)
        state.gamma[...] = 2 * GAMMA
        assert address(state.gamma) == address(buffer.numpy("float32")), "the buffer itself"
    np.testing.assert_array_equal(before.numpy(), made(GAMMA, BETA, **KINDS[kind])(x))
    np.testing.assert_array_equal(after.numpy(), made(2 * GAMMA, BETA, **KINDS[kind])(x))
    np.testing.assert_array_equal(kernel(x), after.numpy())
    kernel.reload()
    np.testing.assert_array_equal(kernel(x), before.numpy())
    assert repr(state) == "<mpscnn.NormalizationGammaAndBetaState of 6 channels>"


@pytest.mark.parametrize("source", ["values", "state"])
@pytest.mark.parametrize("given", [{}, {"mean": MEAN, "variance": VARIANCE}])
def test_mean_and_variance_from_the_device(source: str, given: dict[str, Any]) -> None:
    """Statistics from training become the kernel's own without the CPU."""
    x = random(X) * 2 + 1
    kernel = mpscnn.BatchNormalization(GAMMA, BETA, **given)
    with mpscnn.CommandBuffer() as commands:
        if source == "state":
            state: Any = mpscnn.BatchNormalizationStatistics().encode(commands, mpscnn.Image.from_array(x))
        else:
            state = mpscnn.NormalizationMeanAndVarianceState(2 * MEAN, 3 * VARIANCE)
        kernel.reload(commands, state)
        encoded = kernel.encode(commands, mpscnn.Image.from_array(x))
    np.testing.assert_array_equal(kernel(x), encoded.numpy())
    np.testing.assert_array_equal(kernel(x), mpscnn.BatchNormalization(GAMMA, BETA, state.mean, state.variance)(x))
    kernel.reload()
    if given:
        np.testing.assert_array_equal(kernel(x), mpscnn.BatchNormalization(GAMMA, BETA, **given)(x))
    else:
        with pytest.raises(ValueError, match="the kernel has no mean and variance, and no state was given"):
            kernel(x)


def test_activation_of_a_kernel() -> None:
    kernel = mpscnn.BatchNormalization(GAMMA, BETA, MEAN, VARIANCE, activation=mpscnn.NeuronELU(0.5))
    assert (kernel.neuron_descriptor.type, kernel.neuron_descriptor.a) == ("elu", 0.5)
    assert mpscnn.BatchNormalization(GAMMA).neuron_descriptor is None


def test_no_memory_is_kept(no_leak: Any) -> None:
    x = random((2, 33, 35, 6))

    def once() -> None:
        statistics, norm = mpscnn.BatchNormalizationStatistics(), mpscnn.BatchNormalization(GAMMA, BETA)
        state = statistics(x)
        norm(x, state)
        mpscnn.GroupNormalization(GAMMA, groups=2)(x)
        mpscnn.LocalContrastNormalization(3)(x)

    once()
    with no_leak():
        for _ in range(5):
            once()


# ------------------------------------------------------------------------------------------ values from elsewhere


def test_numbers_that_were_measured() -> None:
    """Results of Apple's kernels for the ramp 1 ... 16 in one channel, with kernels of 3 and defaults."""
    ramp = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 4, 1)
    np.testing.assert_allclose(mpscnn.SpatialNormalization(3)(ramp)[0, 0, 0, 0], 2.48832257e-05, rtol=2e-6)
    np.testing.assert_allclose(mpscnn.LocalContrastNormalization(3)(ramp)[0, 0, 0, 0], -17.7777786, rtol=1e-6)
    even = mpscnn.SpatialNormalization(2, beta=1.0, alpha=4.0, delta=0.0)(ramp)
    np.testing.assert_allclose(ramp[0, :2, :2, 0] / even[0, :2, :2, 0], [[1, 5], [26, 66]], rtol=1e-6)
    channels = np.ones((1, 1, 1, 6), np.float32)
    third = mpscnn.CrossChannelNormalization(3, beta=1.0, delta=0.0)(channels)[0, 0, 0]
    np.testing.assert_allclose(1 / third, np.array([2, 3, 3, 3, 3, 2]) / 3, rtol=1e-6)


def test_defaults_are_apples() -> None:
    x = random((1, 5, 6, 9))
    for kind, given in (
        ("CrossChannelNormalization", {"kernel_size": 5, "alpha": 1.0, "beta": 5.0, "delta": 1.0}),
        ("SpatialNormalization", {"alpha": 1.0, "beta": 5.0, "delta": 1.0}),
        ("LocalContrastNormalization", {"alpha": 0.0, "beta": 0.5, "delta": 1 / 1024, "p0": 1.0, "pm": 0.0, "ps": 1.0}),
    ):
        size = {} if "kernel_size" in given else {"kernel_size": 3}
        kernel = getattr(mpscnn, kind)
        np.testing.assert_array_equal(kernel(**size)(x), kernel(**size, **given)(x))
