# SPDX-License-Identifier: Apache-2.0
"""Invalid data sources and descriptors, and data sources that fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpscnn
from support import Source, assert_close, conv2d, random

from . import Array, W, X, canary


def descriptor(**options: Any) -> mpscnn.ConvolutionDescriptor:
    return mpscnn.ConvolutionDescriptor(3, 4, 8, **options)


OHWI = (8, 3, 3, 4)


class UnlikelyError(Exception):
    """Raised only here."""


@pytest.mark.parametrize("method", ["load", "purge"])
@pytest.mark.parametrize(
    "error", [UnlikelyError("the disk is gone"), KeyboardInterrupt(), FileNotFoundError(2, "No such file")], ids=repr
)
def test_a_data_source_whose_method_raises(method: str, error: BaseException) -> None:
    class Broken(Source):
        pass

    def fail(self: Any) -> None:
        raise error

    setattr(Broken, method, fail)
    with pytest.raises(type(error)) as caught:
        mpscnn.Convolution(Broken(descriptor(), random(OHWI)))
    assert caught.value is error, "the exception itself comes through"
    assert any(entry.name == "fail" for entry in caught.traceback), "and so does where it was raised"
    canary()


MEMBERS = ("descriptor", "weights", "bias", "ranges", "lookup_table", "label", "kernel_dtype")


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("kind", ["method", "property"])
def test_a_data_source_whose_member_raises(member: str, kind: str) -> None:
    error = UnlikelyError(member)

    def fail(self: Any) -> None:
        raise error

    class Broken:
        load_calls = purge_calls = 0

        def load(self) -> bool:
            self.load_calls += 1
            return True

        def purge(self) -> None:
            self.purge_calls += 1

    for name, value in (("descriptor", descriptor()), ("weights", random(OHWI))):
        setattr(Broken, name, value)
    setattr(Broken, member, fail if kind == "method" else property(fail))
    source = Broken()
    with pytest.raises(UnlikelyError) as caught:
        mpscnn.Convolution(source)
    assert caught.value is error
    assert source.load_calls == source.purge_calls, "loads and purges are balanced"
    canary()


def test_a_data_source_whose_load_declines() -> None:
    class Declines(Source):
        def load(self) -> bool:
            super().load()
            return False

    source = Declines(descriptor(), random(OHWI))
    with pytest.raises(RuntimeError, match=r"data source: load\(\) returned False"):
        mpscnn.Convolution(source)
    assert source.calls == ["load"], "what has not been loaded is not purged"


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_data_source_that_fails_later(fails_at: int) -> None:
    """However often MPS loads, the caller gets the failure of any load, and every load has its purge."""

    class Fails(Source):
        def load(self) -> bool:
            super().load()
            if self.calls.count("load") == fails_at:
                raise UnlikelyError(f"load {fails_at}")
            return True

    source = Fails(descriptor(), random(OHWI))
    try:
        mpscnn.Convolution(source)
        raised = False
    except UnlikelyError:
        raised = True
    loads = source.calls.count("load")
    assert raised == (loads >= fails_at)
    assert source.calls.count("purge") == loads - raised


def test_a_data_source_whose_load_returns_something_else() -> None:
    class Strange(Source):
        def load(self) -> Any:
            return "yes"

    with pytest.raises(TypeError, match=r"load\(\) returned 'yes', which is not True, False or None"):
        mpscnn.Convolution(Strange(descriptor(), random(OHWI)))


def test_load_that_returns_none_has_loaded() -> None:
    class Quiet(Source):
        def load(self) -> None:  # type: ignore[override]
            super().load()

    x, weight = random(X), random(W)
    y = mpscnn.Convolution(Quiet(descriptor(), mpscnn.reorder(weight)))(x)
    assert_close(y, conv2d(x, weight))


@pytest.mark.parametrize(
    ("members", "raises", "match"),
    [
        ({"weights": None}, ValueError, r"data source: weights is None"),
        ({"weights": "conv1.bin"}, TypeError, r"weights \(str\) is not an array"),
        (
            {"weights": Array((8, 3, 3, 3))},
            ValueError,
            r"weights of shape \(8, 3, 3, 3\) have 216 elements; .* asks for 288 \(OHWI",
        ),
        (
            {"weights": Array((9, 3, 3, 4))},
            ValueError,
            r"weights of shape \(9, 3, 3, 4\) have 324 elements; .* asks for 288",
        ),
        (
            {"weights": Array(OHWI, "float64")},
            TypeError,
            r"weights\.dtype \(float64\) is not float32, float16 or uint8",
        ),
        ({"weights": Array(OHWI, "uint8")}, ValueError, r"uint8 weights need either ranges or lookup_table"),
        (
            {"weights": Array(OHWI, "uint8"), "ranges": Array((4, 2))},
            ValueError,
            r"ranges\.shape \(4, 2\) is not a contiguous \(8, 2\)",
        ),
        (
            {"weights": Array(OHWI, "uint8"), "lookup_table": Array((16,))},
            ValueError,
            r"lookup_table\.shape \(16,\) is not .*\(256,\)",
        ),
        ({"bias": Array((4,))}, ValueError, r"data source: bias\.shape \(4,\) is not a contiguous \(8,\)"),
        ({"bias": Array((8,), "float16")}, TypeError, r"data source: bias\.dtype \(float16\) is not float32"),
        ({"bias": 0.0}, TypeError, r"bias \(float\) is not an array"),
        ({"descriptor": None}, TypeError, r"descriptor \(NoneType\) is not a ConvolutionDescriptor"),
        ({"descriptor": (3, 4, 8)}, TypeError, r"descriptor \(tuple\) is not a ConvolutionDescriptor"),
        ({"kernel_dtype": "int32"}, (TypeError, ValueError), r"kernel_dtype \(int32\) is not"),
        ({"kernel_dtype": "half"}, None, ""),
    ],
    ids=str,
)
def test_what_a_data_source_returns(members: dict[str, Any], raises: Any, match: str) -> None:
    made = {name: value.make() if isinstance(value, Array) else value for name, value in members.items()}
    source = Source(descriptor(), random(OHWI))
    for name, value in made.items():
        setattr(source, name, value)
    if raises is None:
        mpscnn.Convolution(source)
    else:
        with pytest.raises(raises, match=match):
            mpscnn.Convolution(source)
    assert source.calls.count("load") == source.calls.count("purge")
    canary()


def test_weights_of_a_data_source_that_are_not_contiguous() -> None:
    with pytest.raises(ValueError, match=r"weights are not C-contiguous \(strides \("):
        mpscnn.Convolution(Source(descriptor(), random((8, 3, 3, 8))[..., ::2]))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"groups": 3}, r"groups \(3\) does not divide"),
        ({"groups": 0}, r"groups \(0\) is less than the minimum \(1\)"),
        ({"stride": 0}, r"stride height \(0\) is less than the minimum \(1\)"),
        ({"dilation": (1, 0)}, r"dilation width \(0\) is less than the minimum \(1\)"),
        ({"depthwise": True}, r"depth-wise convolution has as many output channels \(8\) as input channels \(4\)"),
        (
            {"sub_pixel_scale_factor": 3},
            r"out_channels \(8\) is not a multiple of sub_pixel_scale_factor squared \(9\)",
        ),
        ({"sub_pixel_scale_factor": -2}, r"sub_pixel_scale_factor \(-2\) is less than the minimum \(1\)"),
        ({"sub_pixel_scale_factor": 2**32}, r"sub_pixel_scale_factor \(4294967296\)"),
    ],
    ids=str,
)
def test_descriptors(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        mpscnn.Convolution(Source(descriptor(**options), random(OHWI)))
    canary()


@pytest.mark.parametrize("channels", [(0, 8), (4, 0), (-4, 8), (2**62, 2**62)], ids=str)
def test_descriptors_with_impossible_channels(channels: tuple[int, int]) -> None:
    made = mpscnn.ConvolutionDescriptor(3, *channels)
    with pytest.raises((ValueError, MemoryError), match=r"channels \(|shape \("):
        mpscnn.Convolution(Source(made, random(OHWI)))


def test_descriptor_arguments() -> None:
    for kernel_size in ((3,), "3", 1.5, (1.5, 2), True):
        with pytest.raises(TypeError, match=r"kernel_size"):
            mpscnn.ConvolutionDescriptor(kernel_size, 4, 8)
    with pytest.raises(ValueError, match=r"mean, variance, gamma and beta have 8, 8, 7 and 8 values"):
        mpscnn.BatchNorm([0] * 8, [1] * 8, [1] * 7, [0] * 8)
    with pytest.raises(ValueError, match=r"batch_norm has 7 values; out_channels is 8"):
        descriptor(batch_norm=mpscnn.BatchNorm(*[[1] * 7] * 4))


@pytest.mark.parametrize(
    "parameter",
    [
        {"bias": np.zeros(8, np.float32)},
        {"stride": 2},
        {"dilation": 2},
        {"groups": 2},
        {"activation": "relu"},
        {"sub_pixel_scale_factor": 2},
        {"kernel_dtype": "float16"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_a_data_source_provides_is_not_given_twice(parameter: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(parameter))}.* was given together with a data source"):
        mpscnn.Convolution(Source(descriptor(), random(OHWI)), **parameter)


def test_a_failed_reload_leaves_the_old_weights() -> None:
    weight, x = random(W), random(X)
    source = Source(descriptor(), mpscnn.reorder(weight))
    kernel = mpscnn.Convolution(source)
    source.weights = random((8, 3, 3, 5))
    with pytest.raises(ValueError, match=r"weights of shape \(8, 3, 3, 5\) have 360 elements"):
        kernel.reload()
    source.weights = None
    with pytest.raises(ValueError, match=r"weights is None"):
        kernel.reload()
    source.weights, source.descriptor = random((4, 3, 3, 4)), mpscnn.ConvolutionDescriptor(3, 4, 4)
    with pytest.raises((ValueError, RuntimeError), match=r"4 x 3 x 3 x 4|out_channels"):
        kernel.reload()
    assert source.calls.count("load") == source.calls.count("purge")
    assert_close(kernel(x), conv2d(x, weight))
    with pytest.raises(RuntimeError, match=r"no data source to reload"):
        mpscnn.NeuronReLU().reload()
