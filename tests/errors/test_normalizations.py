# SPDX-License-Identifier: Apache-2.0
"""Kernels of normalization that cannot be made or called, their data sources and states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpscnn
from support import Values, held_queue, random

from . import Array, Error, canary, check_row

BY_VALUES = ("BatchNormalization", "GroupNormalization", "InstanceNormalization")
WINDOWS = ("LocalContrastNormalization", "SpatialNormalization")
X = (1, 5, 7, 4)
ONES = np.ones(4, np.float32)


def _groups(kernel: str) -> dict[str, Any]:
    return {"groups": 2} if kernel == "GroupNormalization" else {}


def _of_values(kernel: str) -> list[Error]:
    split = _groups(kernel)
    mean = {"mean": (4,), "variance": np.ones(4, np.float32)} if kernel == "BatchNormalization" else {}
    return [
        Error(kernel, raises=TypeError, match=rf"{kernel}: missing a required argument: 'gamma'"),
        Error(kernel, gamma=3, raises=TypeError, match=r"gamma \(int\) is not an array"),
        Error(
            kernel, gamma=None, raises=TypeError, match=rf"{kernel}: gamma \(None\) is not an array or a data source"
        ),
        Error(kernel, gamma=(2, 2), **split, raises=ValueError, match=rf"{kernel}: gamma.ndim \(2\) is not 1"),
        Error(
            kernel, gamma=(0,), **split, raises=ValueError, match=r"gamma.shape \(0,\) has an extent \(0\) less than"
        ),
        Error(kernel, gamma=(4,), beta=(3,), **split, raises=ValueError, match=r"beta.shape \(3,\) is not gamma.shape"),
        Error(
            kernel,
            gamma=Array((4,), "uint8"),
            **split,
            raises=TypeError,
            match=r"gamma.dtype \(uint8\) is not float16, bfloat16, float32 or float64",
        ),
        Error(kernel, gamma=(4,), epsilon=-1e-5, **split, raises=ValueError, match=r"epsilon \(-1e-05\) is less than"),
        Error(kernel, gamma=(4,), epsilon=float("nan"), **split, raises=ValueError, match=r"epsilon \(nan\) is not a"),
        Error(
            kernel, gamma=(4,), epsilon="small", **split, raises=TypeError, match=r"epsilon \('small'\) is not a num"
        ),
        Error(
            kernel,
            gamma=(4,),
            **split,
            **mean,
            x=(1, 5, 7, 5),
            raises=ValueError,
            match=rf"{kernel}: x has 5 channels to read; gamma has 4\.",
        ),
        Error(
            kernel,
            gamma=(4,),
            **split,
            **mean,
            source_feature_channel_offset=4,
            x=(1, 5, 7, 6),
            raises=ValueError,
            match=rf"{kernel}: x has 2 channels to read; gamma has 4\.",
        ),
    ]


ROWS = [
    *[error for kernel in BY_VALUES for error in _of_values(kernel)],
    Error("GroupNormalization", gamma=(4,), raises=ValueError, match=r"groups \(None\) is needed with gamma in an arr"),
    Error(
        "GroupNormalization", gamma=(4,), groups=3, raises=ValueError, match=r"groups \(3\) does not divide .* \(4\)"
    ),
    Error("GroupNormalization", gamma=(4,), groups=0, raises=ValueError, match=r"groups \(0\) is less than"),
    Error("GroupNormalization", gamma=(4,), groups=1.5, raises=TypeError, match=r"groups \(1\.5\) is not an integer"),
    Error("BatchNormalization", gamma=(4,), mean=(4,), raises=ValueError, match=r"variance \(None\) goes with mean"),
    Error(
        "BatchNormalization", gamma=(4,), variance=(4,), raises=ValueError, match=r"mean \(None\) goes with variance"
    ),
    Error(
        "BatchNormalization",
        gamma=(4,),
        mean=(4,),
        variance=np.float32([1, 2, -3, 4]),
        raises=ValueError,
        match=r"BatchNormalization: variance\[2\] \(-3\) is less than the minimum \(0\)",
    ),
    Error(
        "BatchNormalization",
        gamma=(4,),
        mean=(4,),
        variance=np.float32([1, np.nan, 3, 4]),
        raises=ValueError,
        match=r"variance\[1\] \(nan\) is less than the minimum",
    ),
    Error(
        "BatchNormalization",
        gamma=(4,),
        activation=mpscnn.NeuronDescriptor("prelu", data=[1, 2, 3]),
        raises=ValueError,
        match=r"activation has 3 PReLU slopes for 4 channels",
    ),
    Error("BatchNormalization", gamma=(4,), activation="reluu", raises=ValueError, match=r"\"reluu\"\) is not one of"),
    *[
        Error(kernel, kernel_size=size, raises=kind, match=rf"{kernel}: kernel_size {match}")
        for kernel in ("CrossChannelNormalization", *WINDOWS)
        for size, kind, match in (
            (0, ValueError, r"\(0\) is less than the minimum \(1\)"),
            (1 << 31, ValueError, r"\(2147483648\) is greater than the maximum"),
            ((3, 3), TypeError, r"\(\(3, 3\)\) is not an integer"),
            (2.5, TypeError, r"\(2\.5\) is not an integer"),
        )
    ],
    *[Error(kernel, raises=TypeError, match=r"missing a required argument: 'kernel_size'") for kernel in WINDOWS],
    Error("CrossChannelNormalization", alpha="1", raises=TypeError, match=r"alpha \('1'\) is not a number"),
    Error("SpatialNormalization", kernel_size=3, p0=1.0, raises=TypeError, match=r"unexpected keyword argument 'p0'"),
    Error("LocalContrastNormalization", kernel_size=3, pm=None, raises=TypeError, match=r"pm \(None\) is not a number"),
    *[
        Error(
            "BatchNormalizationStatistics",
            **{name: value},
            x=X,
            raises=ValueError,
            match=rf"BatchNormalizationStatistics: {name} is set; there is no destination",
        )
        for name, value in (
            ("clip_rect", ((0, 0, 0), (2, 2, 1))),
            ("destination_feature_channel_offset", 4),
        )
    ],
    Error("BatchNormalizationStatistics", offset=(1, 0), raises=ValueError, match=r"offset \(1, 0\) is greater than"),
    Error("BatchNormalizationStatistics", edge_mode="clamp", raises=ValueError, match=r"edge_mode .* is not one of"),
    Error("BatchNormalizationStatistics", x=X, out=X, raises=TypeError, match=r"out was given; the result is a Batch"),
    Error("BatchNormalizationStatistics", x=X, dtype="float16", raises=TypeError, match=r"dtype was given; the result"),
    Error("BatchNormalizationStatistics", x=(5, 7, 4), raises=ValueError, match=r"x.ndim \(3\) is not 4"),
]


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_row(row: Error) -> None:
    check_row(row)


# ------------------------------------------------------------------------------------------------------ states


def test_states_that_do_not_fit() -> None:
    x, statistics = random(X), mpscnn.BatchNormalizationStatistics()
    state = statistics(x)
    kernel = mpscnn.BatchNormalization(np.ones(4, np.float32))
    with pytest.raises(ValueError, match=r"the kernel has no mean and variance, and no state was given"):
        kernel(x)
    with pytest.raises(ValueError, match=r"BatchNormalizationStatistics: x has 3 channels to read; state has 4"):
        statistics(x[..., :3], state)
    with pytest.raises(ValueError, match=r"BatchNormalization: state has 4 channels; gamma has 5"):
        mpscnn.BatchNormalization(np.ones(5, np.float32))(random((1, 2, 2, 5)), state)
    with pytest.raises(RuntimeError, match=r"BatchNormalization: no statistics have been encoded to state"):
        kernel(x, mpscnn.BatchNormalizationState(4))
    with pytest.raises(TypeError, match=r"NeuronReLU: state was given; the kernel takes none"):
        mpscnn.NeuronReLU()(x, state=state)
    with pytest.raises(TypeError, match=r"the number of sources \(2\) is not 1 \(x\)"):
        kernel(x, state, state)
    with pytest.raises(TypeError, match=r"the number of sources \(2\) is not 1 \(x\)"):
        statistics(x, x)
    with pytest.raises(TypeError, match=r"BatchNormalizationStatistics: the result is a state, not an image"):
        statistics.result_shape(X)
    with pytest.raises(TypeError, match=r"temporary was given; the result is a BatchNormalizationState"):
        statistics.encode(mpscnn.CommandBuffer(), mpscnn.Image.from_array(x), temporary=True)
    assert state.count == 35, "nothing of this has changed it"
    np.testing.assert_allclose(state.mean, x.mean((0, 1, 2)), rtol=1e-5, atol=1e-6)
    canary()


@pytest.mark.parametrize("channels", [0, -1, 10**6])
def test_channels_of_a_state(channels: int) -> None:
    with pytest.raises(ValueError, match=rf"\({channels}\)"):
        mpscnn.BatchNormalizationState(channels)


def test_a_state_is_not_read_too_early() -> None:
    x = mpscnn.Image.from_array(random(X))
    state, statistics = mpscnn.BatchNormalizationState(4), mpscnn.BatchNormalizationStatistics()
    with pytest.raises(RuntimeError, match=r"no statistics have been encoded to it"):
        _ = state.mean
    commands = mpscnn.CommandBuffer()
    statistics.encode(commands, x, state)
    for name in ("mean", "variance"):
        with pytest.raises(RuntimeError, match=r"BatchNormalizationState: the command buffer .* has not completed"):
            getattr(state, name)
    with held_queue():
        commands.commit()
        with pytest.raises(RuntimeError, match=r"has not completed"):
            _ = state.variance
    commands.wait()
    assert state.mean.shape == state.variance.shape == (4,)


def test_devices_of_states_must_agree(device: mpscnn.Device, null_device: mpscnn.Device) -> None:
    x, state = random(X), mpscnn.BatchNormalizationState(4, device=null_device)
    for kernel in (
        mpscnn.BatchNormalizationStatistics(device=device),
        mpscnn.BatchNormalization(np.ones(4, np.float32)),
    ):
        with pytest.raises(ValueError, match=r"state"):
            kernel(x, state)


def test_reloads_that_do_not_fit() -> None:
    values, commands = mpscnn.NormalizationMeanAndVarianceState([1, 2, 3], [1, 1, 1]), mpscnn.CommandBuffer()
    kernel = mpscnn.BatchNormalization(ONES)
    with pytest.raises(TypeError, match=r"BatchNormalization: state was given without command_buffer"):
        kernel.reload(state=values)
    with pytest.raises(TypeError, match=r"BatchNormalization: command_buffer was given without state"):
        kernel.reload(commands)
    with pytest.raises(ValueError, match=r"mean of the state has 12 bytes; 4 channels need 16"):
        kernel.reload(commands, values)
    with pytest.raises(ValueError, match=r"beta of the state has 8 bytes; 4 channels need 16"):
        kernel.reload(commands, mpscnn.NormalizationGammaAndBetaState(ONES, mpscnn.Buffer(8)))
    with pytest.raises(TypeError, match=r"InstanceNormalization: the kernel has no mean and variance to reload"):
        mpscnn.InstanceNormalization(ONES).reload(commands, values)
    with pytest.raises(TypeError, match=r"NeuronReLU: the kernel has no gamma and beta to reload"):
        mpscnn.NeuronReLU().reload(commands, mpscnn.NormalizationGammaAndBetaState(ONES, ONES))
    with pytest.raises(RuntimeError, match=r"no statistics have been encoded to state"):
        kernel.reload(commands, mpscnn.BatchNormalizationState(4))
    commands.commit()
    with pytest.raises(RuntimeError, match=r"BatchNormalization: the command buffer has been committed already"):
        kernel.reload(commands, mpscnn.NormalizationMeanAndVarianceState(ONES, ONES))
    for wrong, match in (([[1, 2]], r"gamma\.ndim \(2\) is not 1"), ([], r"\(0,\) has an extent \(0\)")):
        with pytest.raises(ValueError, match=match):
            mpscnn.NormalizationGammaAndBetaState(wrong, ONES)
    with pytest.raises(ValueError, match=r"gamma has 6 bytes, not a multiple of 4"):
        mpscnn.NormalizationGammaAndBetaState(mpscnn.Buffer(6), ONES)
    commands.wait()
    canary()


# ------------------------------------------------------------------------------------------------ data sources


class UnlikelyError(Exception):
    """Raised only here."""


@pytest.mark.parametrize("kernel", BY_VALUES)
@pytest.mark.parametrize("member", ["load", "purge", "channels", "gamma", "beta", "epsilon", "label"])
def test_a_source_whose_member_raises(kernel: str, member: str) -> None:
    error = UnlikelyError(member)

    def fail(self: Any) -> None:
        raise error

    broken = type("Broken", (Values,), {member: fail if member in ("load", "purge") else property(fail)})
    source = broken.__new__(broken)
    source.set_up(groups=2, **({} if member == "gamma" else {"gamma": np.ones(4, np.float32)}))
    with pytest.raises(UnlikelyError) as caught:
        getattr(mpscnn, kernel)(source)
    assert caught.value is error
    assert any(entry.name == "fail" for entry in caught.traceback)
    canary()


def test_a_source_that_does_not_load() -> None:
    class Declining(Values):
        def load(self) -> bool:
            return False

    with pytest.raises(RuntimeError, match=r"data source: load\(\) returned False"):
        mpscnn.InstanceNormalization(Declining(np.ones(4, np.float32)))


@pytest.mark.parametrize(
    ("kernel", "members", "raises", "match"),
    [
        ("InstanceNormalization", {"channels": 0}, ValueError, r"channels \(0\) is less than the minimum \(1\)"),
        ("InstanceNormalization", {"channels": 1 << 40}, ValueError, r"channels \(1099511627776\) is greater than"),
        ("InstanceNormalization", {"channels": 1 << 70}, ValueError, r"channels \(1180591620717411303424\) is beyond"),
        ("InstanceNormalization", {"channels": 4.0}, TypeError, r"channels \(float\) is not an int"),
        ("InstanceNormalization", {"channels": None}, ValueError, r"channels is None"),
        ("InstanceNormalization", {"channels": 5}, ValueError, r"gamma\.shape \(4,\) is not a contiguous \(5,\)"),
        (
            "InstanceNormalization",
            {"gamma": ONES.astype("float64")},
            TypeError,
            r"gamma\.dtype \(float64\) is not float",
        ),
        ("InstanceNormalization", {"gamma": np.ones(8, np.float32)[::2]}, ValueError, r"gamma\.shape .* contiguous"),
        ("InstanceNormalization", {"beta": ONES[:3]}, ValueError, r"beta\.shape \(3,\) is not a contiguous \(4,\)"),
        ("InstanceNormalization", {"beta": "x"}, TypeError, r"beta \(str\) is not an array"),
        ("InstanceNormalization", {"epsilon": -1}, ValueError, r"epsilon \(-1\) is less than the minimum \(0\)"),
        ("InstanceNormalization", {"epsilon": "1"}, TypeError, r"epsilon \(str\) is not a number"),
        ("GroupNormalization", {"groups": None}, ValueError, r"groups is None"),
        ("GroupNormalization", {"groups": 3}, ValueError, r"groups \(3\) does not divide channels \(4\)"),
        ("GroupNormalization", {"groups": 0}, ValueError, r"groups \(0\) is less than the minimum \(1\)"),
        ("GroupNormalization", {"groups": True}, TypeError, r"groups \(bool\) is not an int"),
        ("BatchNormalization", {"mean": ONES}, ValueError, r"variance is None, mean is not"),
        ("BatchNormalization", {"variance": ONES}, ValueError, r"mean is None, variance is not"),
        ("BatchNormalization", {"mean": ONES, "variance": -ONES}, ValueError, r"variance\[0\] \(-1\) is less than"),
        ("BatchNormalization", {"mean": ONES[:2], "variance": ONES}, ValueError, r"mean\.shape \(2,\) is not"),
    ],
)
def test_what_a_source_returns(kernel: str, members: dict[str, Any], raises: Any, match: str) -> None:
    source = Values(**({"gamma": ONES, "groups": 2} | members))
    with pytest.raises(raises, match=rf"(data source: )?{match}"):
        getattr(mpscnn, kernel)(source)
    assert source.calls.count("load") == source.calls.count("purge"), "what was loaded is purged"
    canary()


@pytest.mark.parametrize(
    ("kernel", "name", "value"),
    [
        ("BatchNormalization", "mean", ONES),
        ("BatchNormalization", "variance", ONES),
        ("GroupNormalization", "groups", 2),
        *((kernel, "beta", ONES) for kernel in BY_VALUES),
        *((kernel, "epsilon", 1e-3) for kernel in BY_VALUES),
    ],
)
def test_what_a_source_provides_is_not_given_twice(kernel: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{kernel}: {name} was given together with a data source, which provides it"):
        getattr(mpscnn, kernel)(Values(ONES, groups=2), **{name: value})


def test_a_failed_reload_leaves_the_old_values() -> None:
    x, source = random(X), Values(random((4,)))
    kernel = mpscnn.InstanceNormalization(source)
    before = kernel(x)
    for name, value, match in (
        ("channels", 5, r"channels \(5\) is not that of the kernel \(4\)"),
        ("beta", ONES[:2], r"beta\.shape \(2,\)"),
        ("gamma", ONES.astype("float16"), r"gamma\.dtype \(float16\) is not float32"),
    ):
        kept = getattr(source, name)
        setattr(source, name, value)
        with pytest.raises((ValueError, TypeError), match=match):
            kernel.reload()
        setattr(source, name, kept)
        np.testing.assert_array_equal(kernel(x), before)
