# SPDX-License-Identifier: Apache-2.0
"""Every case row on the device, against the float64 oracle and PyTorch, with three ways of calling a kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mpscnn
from cases import Case, Inputs, all_cases, make
from conftest import NULL_DEVICE, Guarded
from mpscnn import _core
from oracle import compare
from oracle.expected import Expected, expected
from oracle.torch_reference import reference


@lru_cache(maxsize=64)
def prepared(case: Case, dtype: str) -> tuple[Inputs, Expected]:
    """Return the row's arrays and expected result; cached for the tests of one row."""
    inputs = make(case, dtype)
    return inputs, expected(case, inputs, case.result_dtype or dtype)


Sources = list[np.ndarray]
# Kernels that return a state have their own tests (test_normalization.py).
STATES = {row["name"] for row in _core.kernel_table() if row["result"] == "state"}
CASES = [case for case in all_cases() if case.kernel not in STATES]
ROWS = [pytest.param(case, dtype, id=f"{case}-{dtype}") for case in CASES for dtype in case.dtypes]


def _activation(case: Case, inputs: Inputs) -> Any:
    if case.activation is None or isinstance(case.activation, str):
        return case.activation
    name, *numbers = case.activation
    if name == "prelu":
        assert inputs.slopes is not None
        return mpscnn.NeuronDescriptor("prelu", data=inputs.slopes.tolist())
    return mpscnn.NeuronDescriptor(name, *numbers)


def _data_source(case: Case, inputs: Inputs) -> tuple[Any, dict[str, Any]]:
    """Return a data source with batch normalization, which only it can have, and the remaining parameters."""
    assert case.layout == "OHWI"
    assert inputs.weight is not None
    out_channels, height, width, in_group = inputs.weight.shape
    depthwise = in_group == 1 and case.groups == out_channels > 1
    params = dict(case.params)
    described = {name: params.pop(name) for name in ("stride", "dilation") if name in params}
    params.pop("layout")
    groups = params.pop("groups", 1)
    descriptor = mpscnn.ConvolutionDescriptor(
        (height, width),
        in_group * groups,
        out_channels,
        groups=1 if depthwise else groups,
        depthwise=depthwise,
        activation=_activation(case, inputs),
        batch_norm=mpscnn.BatchNorm(**inputs.norm),
        **described,
    )
    source = SimpleNamespace(
        load=lambda: True,
        purge=lambda: None,
        descriptor=descriptor,
        weights=inputs.weight,
        bias=inputs.bias,
        kernel_dtype=params.pop("kernel_dtype", None),
    )
    return source, params


def build(case: Case, inputs: Inputs, device: mpscnn.Device | None = None) -> mpscnn.Kernel:
    """Make the kernel of a row."""
    kind = getattr(mpscnn, case.kernel)
    params = dict(case.params)
    if case.kernel == "NeuronGradient":
        return kind(_activation(case, inputs), **params, device=device)
    if case.given and not case.is_binary:
        params |= inputs.given
        if case.activation is not None:
            params["activation"] = _activation(case, inputs)
        return kind(**params, device=device)
    if not case.weight:
        if inputs.slopes is not None:
            params["a" if case.kernel == "NeuronPReLU" else "data"] = inputs.slopes
        return kind(**params, device=device)
    if inputs.norm is not None:
        source, params = _data_source(case, inputs)
        return kind(source, **params, device=device)
    if case.is_binary:
        params |= inputs.given
        params["in_channels"] = case.weight[3]
    if case.quantized:
        params[case.quantized] = getattr(inputs, case.quantized)
    return kind(inputs.weight, inputs.bias, **params, activation=_activation(case, inputs), device=device)


def _alone(kernel: mpscnn.Kernel, case: Case, sources: Sources, right: Expected, dtype: str) -> np.ndarray:
    if case.out:
        pytest.skip("the row's result needs a destination")
    whole = kernel(*sources, dtype=case.result_dtype)
    assert whole.dtype == np.dtype(dtype)
    assert whole.shape == right.shape
    assert kernel.result_shape(*(source.shape for source in sources)) == right.shape
    return whole[right.region]


def _into(kernel: mpscnn.Kernel, case: Case, sources: Sources, right: Expected, dtype: str) -> np.ndarray:
    out = Guarded(right.shape, dtype, case.out_view)
    assert kernel(*sources, out=out.array) is out.array
    out.check(right.region)
    return out.array[right.region]


def _chained(kernel: mpscnn.Kernel, case: Case, sources: Sources, right: Expected, dtype: str) -> np.ndarray:
    """A copy, the kernel, then times -2: all in one command buffer, with temporary images between them."""
    if case.out or right.first != (0, 0, 0, 0):
        pytest.skip("a part of a temporary image would stay undefined")
    copy = mpscnn.NeuronLinear(1.0, 0.0)
    scale = mpscnn.NeuronLinear(-2.0 if np.dtype(dtype).kind == "f" else 1.0, 0.0)
    out = Guarded(right.shape, dtype)
    with mpscnn.CommandBuffer() as buffer:
        copies = [copy.encode(buffer, mpscnn.Image.from_array(x), temporary=True) for x in sources]
        assert all((one.is_temporary, one.read_count) == (True, 1) for one in copies)
        result = kernel.encode(buffer, *copies, temporary=True, dtype=case.result_dtype)
        assert [one.read_count for one in (*copies, result)] == [0] * len(copies) + [1]
        assert result.shape == right.shape
        last = scale.encode(buffer, result, out=mpscnn.Image(right.shape, dtype))
    last.numpy(out=out.array)
    out.check()
    return out.array if out.array.dtype.kind == "u" else out.array.astype(np.float64) / -2


WAYS: dict[str, Callable[..., np.ndarray]] = {"alone": _alone, "into": _into, "chained": _chained}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_against_oracle(case: Case, dtype: str, way: str) -> None:
    inputs, right = prepared(case, dtype)
    before = [source.copy() for source in inputs.sources]
    result_dtype = case.result_dtype or dtype
    kernel = build(case, inputs)
    if way == "chained" and np.dtype(dtype).kind == "f" and np.isnan(right.value).all():
        pytest.skip("nothing to scale")

    result = WAYS[way](kernel, case, inputs.sources, right, result_dtype)

    for source, kept in zip(inputs.sources, before, strict=True):
        assert np.array_equal(source, kept, equal_nan=kept.dtype.kind == "f"), "a source was written"
    numbers = compare.as_numbers(result)
    compare.assert_close(numbers, right.value, right.bound)
    # The comparison must refuse wrong results.
    for name, mutant in compare.mutants(numbers, right.value, right.bound).items():
        with pytest.raises(AssertionError):
            compare.assert_close(mutant, right.value, right.bound, name)


@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_against_torch(case: Case, dtype: str) -> None:
    inputs = prepared(case, dtype)[0]
    theirs = reference(case, inputs)
    if theirs is None:
        pytest.skip("PyTorch has no such operator")
    if case.out:
        pytest.skip("the row is about the destination")
    right = prepared(case, dtype)[1]
    result = build(case, inputs)(*inputs.sources, dtype=case.result_dtype)[right.region]
    numbers = compare.as_numbers(result)
    if result.dtype.kind == "u":
        theirs = np.clip(theirs, 0, 1)
    representable = np.isfinite(right.value)  # values that overflow the result's type are compared with the oracle only
    compare.assert_close(np.where(representable, numbers, 0), np.where(representable, theirs, 0), right.bound)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_engine_sizes_alike(case: Case, engine: mpscnn.Device) -> None:
    """Also with the null engine: shapes and types, and nothing but the result is written."""
    inputs, right = prepared(case, case.dtypes[0])
    dtype = case.result_dtype or case.dtypes[0]
    kernel = build(case, inputs, engine)
    out = Guarded(right.shape, dtype, case.out_view)
    kernel(*inputs.sources, out=out.array)
    out.check(None if case.out_view != "dense" or engine.name == NULL_DEVICE else right.region)
    if not case.out:
        assert kernel.result_shape(*(source.shape for source in inputs.sources)) == right.shape
        result = kernel(*inputs.sources, dtype=case.result_dtype)
        assert (result.shape, result.dtype) == (right.shape, np.dtype(dtype))


@pytest.mark.parametrize("case", [case for case in all_cases() if case.weight][::5], ids=str)
def test_a_kernel_is_used_again(case: Case) -> None:
    """The same kernel and source give the same bits, also after another source."""
    inputs, right = prepared(case, case.dtypes[0])
    kernel = build(case, inputs)
    results = []
    for x in (inputs.x, np.zeros_like(inputs.x), inputs.x):
        out = Guarded(right.shape, case.result_dtype or case.dtypes[0])
        kernel(x, out=out.array)
        results.append(out.array[right.region])
    np.testing.assert_array_equal(results[0], results[2])


def test_attributes_count_at_the_time_of_encoding() -> None:
    """Attributes set after encode() do not affect it [MPSKernel.h]."""
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4, 1)
    kernel = mpscnn.NeuronLinear(1.0, 0.0)
    with mpscnn.CommandBuffer() as buffer:
        image = mpscnn.Image.from_array(x)
        first = kernel.encode(buffer, image)
        kernel.offset = (1, 1)
        second = kernel.encode(buffer, image)
        kernel.edge_mode = "clamp"
        third = kernel.encode(buffer, image)
        kernel.offset = None
        fourth = kernel.encode(buffer, image)
    shifted = np.zeros_like(x)
    shifted[:, :2, :3] = x[:, 1:, 1:]
    np.testing.assert_array_equal(first.numpy(), x)
    np.testing.assert_array_equal(second.numpy(), shifted)
    np.testing.assert_array_equal(third.numpy(), np.pad(x[:, 1:, 1:], ((0, 0), (0, 1), (0, 1), (0, 0)), mode="edge"))
    np.testing.assert_array_equal(fourth.numpy(), x)


def test_a_temporary_image_is_read_twice() -> None:
    x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(1, 2, 3, 4)
    with mpscnn.CommandBuffer() as buffer:
        middle = mpscnn.NeuronLinear(2.0, 1.0).encode(buffer, mpscnn.Image.from_array(x), temporary=True)
        middle.read_count = 2
        one = mpscnn.NeuronReLU().encode(buffer, middle)
        two = mpscnn.NeuronAbsolute().encode(buffer, middle)
    np.testing.assert_array_equal(one.numpy(), np.maximum(2 * x + 1, 0))
    np.testing.assert_array_equal(two.numpy(), np.abs(2 * x + 1))


def test_temporaries_do_not_run_into_each_other(rng) -> None:
    """Two parallel chains: storage that is recycled early must not be read late."""
    a, b = (rng.normal(size=(1, 9, 11, 5)).astype(np.float32) for _ in range(2))
    double, halve = mpscnn.NeuronLinear(2.0, 0.0), mpscnn.NeuronLinear(0.5, 0.0)
    with mpscnn.CommandBuffer() as buffer:
        x = double.encode(buffer, mpscnn.Image.from_array(a), temporary=True)
        y = double.encode(buffer, mpscnn.Image.from_array(b), temporary=True)
        for _ in range(5):
            x, y = halve.encode(buffer, x, temporary=True), halve.encode(buffer, y, temporary=True)
            x, y = double.encode(buffer, x, temporary=True), double.encode(buffer, y, temporary=True)
        x, y = halve.encode(buffer, x), halve.encode(buffer, y)
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(y.numpy(), b)


def test_no_memory_is_kept(no_leak, rng) -> None:
    x = rng.normal(size=(2, 33, 35, 8)).astype(np.float32)
    weight = rng.normal(size=(8, 8, 3, 3)).astype(np.float32)

    def once() -> None:
        kernel = mpscnn.Convolution(weight, padding=1)
        kernel(x)
        with mpscnn.CommandBuffer() as buffer:
            kernel.encode(buffer, kernel.encode(buffer, mpscnn.Image.from_array(x), temporary=True))

    once()
    with no_leak():
        for _ in range(5):
            once()


def test_nothing_is_printed() -> None:
    """Nor by the Objective-C runtime, which reports objects autoreleased without a pool."""
    program = """
import numpy as np, mpscnn
x = np.ones((2, 5, 6, 4), np.float32)
conv = mpscnn.Convolution(np.ones((8, 4, 3, 3), np.float32), padding="same", activation="relu")
conv(x)
with mpscnn.CommandBuffer() as buffer:
    y = mpscnn.NeuronTanH().encode(buffer, conv.encode(buffer, mpscnn.Image.from_array(x), temporary=True))
y.numpy()
try:
    conv(x[..., :3])
except ValueError:
    pass
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("", "")
