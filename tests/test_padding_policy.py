# SPDX-License-Identifier: Apache-2.0
"""Padding policies written in Python: arguments of their calls, effects of their results, ownership."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from support import APPLE, assert_close, conv2d, random

X, W = (2, 5, 7, 4), (8, 4, 3, 2)


def extent(kernel: mpscnn.UnaryKernel, axis: int) -> int:
    return (kernel.kernel_size[axis] - 1) * kernel.dilation[axis] + 1


class Framed(mpscnn.PaddingPolicy):
    """Pads as many pixels at the top, bottom, left and right as PyTorch; negative numbers crop."""

    def __init__(self, top: int = 0, bottom: int = 0, left: int = 0, right: int = 0) -> None:
        self.sides = top, bottom, left, right

    def destination(self, kernel: mpscnn.UnaryKernel, sources: list[Any], suggested: tuple[int, ...]) -> Any:
        (n, h, w, _), c = sources[0], suggested[3]
        top, bottom, left, right = self.sides
        height = (h + top + bottom - extent(kernel, 0)) // kernel.stride[0] + 1
        width = (w + left + right - extent(kernel, 1)) // kernel.stride[1] + 1
        return (n, height, width, c), (extent(kernel, 0) // 2 - top, extent(kernel, 1) // 2 - left)


class Full(mpscnn.PaddingPolicy):
    def destination(self, kernel: mpscnn.UnaryKernel, sources: list[Any], suggested: tuple[int, ...]) -> Any:
        frame = [extent(kernel, axis) - 1 for axis in (0, 1)]
        return Framed(frame[0], frame[0], frame[1], frame[1]).destination(kernel, sources, suggested)


class Counting(mpscnn.PaddingPolicy):
    """Returns every suggestion, and records its calls."""

    def __init__(self, *flags: str) -> None:
        self.padding_method = flags
        self.asked: list[tuple[Any, ...]] = []

    def destination(self, kernel: mpscnn.UnaryKernel, sources: list[Any], suggested: tuple[int, ...]) -> Any:
        self.asked.append((kernel, sources, suggested))
        return suggested


class Answers(mpscnn.PaddingPolicy):
    """Returns or raises the same answer every time."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def destination(self, kernel: mpscnn.UnaryKernel, sources: list[Any], suggested: tuple[int, ...]) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(suggested) if callable(self.answer) else self.answer


class UnlikelyError(Exception):
    """Raised only here."""


# --------------------------------------------------------------------------------------------------------- the results


@pytest.mark.parametrize("dilation", [1, (2, 3)], ids=str)
def test_full_convolution(dilation: Any) -> None:
    x, weight = random(X), random(W)
    y = mpscnn.Convolution(weight, padding=Full(), dilation=dilation)(x)
    rows, columns = (dilation, dilation) if dilation == 1 else dilation
    frame = (2 * rows, 1 * columns)
    assert y.shape == (2, 5 + frame[0], 7 + frame[1], 8)
    assert_close(y, conv2d(x, weight, padding=frame, dilation=dilation))


@pytest.mark.parametrize("sides", [(0, 0, 0, 0), (1, 0, 0, 2), (-1, -1, -2, 0), (3, -2, -1, 4)], ids=str)
@pytest.mark.parametrize("stride", [1, (2, 3)], ids=str)
def test_frames_and_crops(sides: tuple[int, int, int, int], stride: Any) -> None:
    x, weight, bias = random(X), random(W), random((8,))
    y = mpscnn.Convolution(weight, bias, padding=Framed(*sides), stride=stride)(x)
    top, bottom, left, right = sides
    source = torch.nn.functional.pad(torch.from_numpy(x).permute(0, 3, 1, 2), (left, right, top, bottom))
    assert_close(y, conv2d(source.permute(0, 2, 3, 1).numpy(), weight, bias, stride=stride))


def test_pooling() -> None:
    x = random(X)
    y = mpscnn.PoolingMax(3, 2, padding=Framed(1, 1, 0, 0))(x)
    source = torch.from_numpy(x).permute(0, 3, 1, 2)
    expected = torch.nn.functional.max_pool2d(source, 3, 2, padding=(1, 0)).permute(0, 2, 3, 1)
    np.testing.assert_array_equal(y, expected.numpy())
    y = mpscnn.PoolingAverage(2, 1, padding=Framed(-1, -1, -1, -1))(x)
    expected = torch.nn.functional.avg_pool2d(source[:, :, 1:-1, 1:-1], 2, 1).permute(0, 2, 3, 1)
    assert_close(y, expected.numpy())


def test_binary_convolution() -> None:
    x, words = random((1, 5, 6, 32)), mpscnn.pack_bits(random((4, 32, 3, 3)))
    expected = mpscnn.BinaryConvolution(words, padding=2)(x)
    np.testing.assert_array_equal(mpscnn.BinaryConvolution(words, padding=Full())(x), expected)


def test_transposed_convolution() -> None:
    """The offset is kernelOffset: 3 // 2 - 3 + 1 + p for p rows cropped at the top."""
    x, weight = random((1, 4, 3, 4)), random((4, 8, 3, 2))

    class Cut(mpscnn.PaddingPolicy):
        def destination(self, kernel: Any, sources: Any, suggested: tuple[int, ...]) -> Any:
            n, h, w, _ = sources[0]
            shape = (n, (h - 1) * 2 + 3 - 1, (w - 1) * 2 + 2 - 1, suggested[3])
            return shape, (3 // 2 - 3 + 1 + 1, 2 // 2 - 2 + 1 + 0)

    y = mpscnn.ConvolutionTranspose(weight, stride=2, padding=Cut())(x)
    source = torch.from_numpy(x).permute(0, 3, 1, 2)
    whole = torch.nn.functional.conv_transpose2d(source, torch.from_numpy(weight), stride=2)
    assert_close(y, whole[:, :, 1:, :-1].permute(0, 2, 3, 1).numpy())


@pytest.mark.parametrize(
    ("flags", "padding"),
    [
        (("size_valid_only",), "valid"),
        (("size_same", "add_remainder_to_bottom_right"), "same"),
        (("size_full", "align_centered"), ((2, 2), (1, 1))),
    ],
    ids=str,
)
def test_suggestions_are_those_of_the_flags(flags: tuple[str, ...], padding: Any) -> None:
    x, weight = random(X), random(W)
    expected = mpscnn.Convolution(weight, padding=padding)(x)
    np.testing.assert_array_equal(mpscnn.Convolution(weight, padding=Counting(*flags))(x), expected)


@pytest.mark.parametrize(
    ("flag", "frame"),
    [
        ("align_top_left", ((1, 0), (1, 0))),
        ("align_bottom_right", ((0, 1), (0, 1))),
        ("add_remainder_to_top_left", ((1, 0), (1, 0))),
        ("add_remainder_to_top_right", ((1, 0), (0, 1))),
        ("add_remainder_to_bottom_left", ((0, 1), (1, 0))),
        ("add_remainder_to_bottom_right", ((0, 1), (0, 1))),
    ],
)
def test_flags_place_the_window(flag: str, frame: Any) -> None:
    """A window of 2 x 2 that keeps the size has one row and one column of padding."""
    x = random((1, 4, 5, 3))
    y = mpscnn.PoolingMax(2, 1, padding=Counting("size_same", flag))(x)
    np.testing.assert_array_equal(y, mpscnn.PoolingMax(2, 1, padding=frame)(x))


def test_a_source_smaller_than_the_window() -> None:
    """The suggestion is below 1; the policy increases it."""
    x, weight = random((1, 1, 1, 4)), random((8, 4, 4, 3))
    asked = Counting("size_valid_only")
    with pytest.raises(ValueError, match=r"padding policy Counting: height \(-2\) is less than the minimum \(1\)"):
        mpscnn.Convolution(weight, padding=asked)(x)
    assert asked.asked[0][2] == (1, -2, -1, 8)
    assert_close(mpscnn.Convolution(weight, padding=Full())(x), conv2d(x, weight, padding=(3, 2)))


def test_an_offset_that_is_set_goes_before_the_policy() -> None:
    x, weight = random(X), random(W)
    kernel = mpscnn.Convolution(weight, padding=Full(), offset=(1, 1))
    assert_close(kernel(x)[:, :3, :6], conv2d(x, weight))
    kernel.offset = None
    assert_close(kernel(x), conv2d(x, weight, padding=(2, 1)))


def test_no_offset_is_that_of_the_suggestion() -> None:
    x, weight = random(X), random(W)
    shape = (2, 4, 8, 8)
    for answer in (shape, (shape, None), [list(shape), None], torch.Size(shape), np.array(shape)):
        y = mpscnn.Convolution(weight, padding=Answers(answer))(x)
        wider = np.pad(x, ((0, 0), (0, 1), (0, 2), (0, 0)))
        assert_close(y, conv2d(wider, weight))


def test_room_for_more_channels() -> None:
    x, weight = random(X), random(W)
    policy = Answers(lambda s: (*s[:3], s[3] + 4))
    kernel = mpscnn.Convolution(weight, padding=policy)
    assert kernel.result_shape(X) == (2, 3, 6, 12)
    assert_close(kernel(x)[..., :8], conv2d(x, weight))
    kernel.destination_feature_channel_offset = 4
    assert kernel.result_shape(X) == (2, 3, 6, 16)
    out = np.full((2, 3, 6, 12), 7, np.float32)
    kernel(x, out=out)
    assert_close(out[..., 4:], conv2d(x, weight))
    assert (out[..., :4] == 7).all()


def test_sub_pixel_convolution() -> None:
    x, weight = random((1, 5, 6, 4)), random((8, 4, 3, 3))
    asked = Counting("size_same")
    y = mpscnn.Convolution(weight, padding=asked, sub_pixel_scale_factor=2)(x)
    np.testing.assert_array_equal(y, mpscnn.Convolution(weight, padding="same", sub_pixel_scale_factor=2)(x))
    assert asked.asked[0][2] == y.shape


def test_any_object_with_the_members_will_do() -> None:
    class Duck:
        padding_method = "size_same"

        def destination(self, kernel: Any, sources: Any, suggested: Any) -> Any:
            return suggested

    x, weight = random(X), random(W)
    np.testing.assert_array_equal(
        mpscnn.Convolution(weight, padding=Duck())(x), mpscnn.Convolution(weight, padding=Counting("size_same"))(x)
    )


# ------------------------------------------------------------------------------------------------------- the questions


def test_what_a_policy_is_asked() -> None:
    policy = Counting("size_valid_only")
    kernel = mpscnn.Convolution(random(W), padding=policy, stride=2, dilation=(1, 3), label="first")
    assert policy.asked == [], "nobody asks while the kernel is made"
    with mpscnn.CommandBuffer() as cb:
        image = mpscnn.Image.from_array(random(X))
        hidden = kernel.encode(cb, image, temporary=True)
        mpscnn.NeuronReLU().encode(cb, hidden)
    ((asking, sources, suggested),) = policy.asked
    assert asking is kernel
    assert sources == [X]
    assert suggested == (2, 2, 2, 8)
    assert (asking.kernel_size, asking.stride, asking.dilation) == ((3, 2), (2, 2), (1, 3))
    kernel(random(X))
    assert len(policy.asked) == 3, "for the shape, and for the encode"
    assert kernel.result_shape((1, 9, 9, 4)) == (1, 4, 3, 8)
    assert policy.asked[3][1:] == ([(1, 9, 9, 4)], (1, 4, 3, 8))


def test_windows_of_kernels() -> None:
    for kernel, window in (
        (mpscnn.PoolingMax((3, 2), (2, 1)), ((3, 2), (2, 1), (1, 1))),
        (mpscnn.DilatedPoolingMax(3, (2, 4), stride=(5, 1)), ((3, 3), (5, 1), (2, 4))),
        (mpscnn.NeuronReLU(), ((1, 1), (1, 1), (1, 1))),
        (mpscnn.ConvolutionTranspose(random((4, 8, 3, 2)), stride=(2, 3)), ((3, 2), (2, 3), (1, 1))),
    ):
        assert (kernel.kernel_size, kernel.stride, kernel.dilation) == window
        with pytest.raises(AttributeError):
            kernel.stride = 2


def test_properties_can_be_read_by_the_policy() -> None:
    seen: list[Any] = []

    class Reads(Full):
        def destination(self, kernel: Any, sources: Any, suggested: Any) -> Any:
            seen.append((kernel.label, kernel.edge_mode, kernel.offset, kernel.data_source.descriptor.out_channels))
            return super().destination(kernel, sources, suggested)

    mpscnn.Convolution(random(W), padding=Reads(), label="first")(random(X))
    assert seen[0] == ("first", "zero", None, 8)


def test_many_images_are_run_in_parts() -> None:
    x, weight = random((300, 3, 3, 64)), random((4, 64, 2, 2))
    asked = Counting("size_valid_only")
    assert_close(mpscnn.Convolution(weight, padding=asked)(x), conv2d(x, weight))
    if APPLE:
        assert max(sources[0][0] for _, sources, _ in asked.asked) < 300
    assert_close(mpscnn.Convolution(weight, padding=Full())(x), conv2d(x, weight, padding=1))


def test_flags_may_change() -> None:
    class Changing(Counting):
        pass

    policy = Changing("size_same")
    kernel = mpscnn.Convolution(random(W), padding=policy)
    assert kernel.result_shape(X) == (2, 5, 7, 8)
    policy.padding_method = "size_full"  # type: ignore[assignment]
    assert kernel.result_shape(X) == (2, 7, 8, 8)
    policy.padding_method = "size_large"  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r'Convolution: padding policy Changing: padding_method \("size_large"\)'):
        kernel.result_shape(X)


# -------------------------------------------------------------------------------------------------------------- errors

WHO = "Convolution: padding policy Answers: "
BAD = [
    (None, TypeError, r"destination\(\) returned None, which is neither a shape \(N, H, W, C\) nor \(shape, offset\)"),
    (5, TypeError, r"destination\(\) returned 5, which is neither"),
    ("full", TypeError, r"destination\(\) returned 'full', which is neither"),
    ((None, None), TypeError, r"destination\(\) returned \(None, None\), which is neither"),
    ((5, 7), ValueError, r"len\(shape\) \(2\) is not 4 \(N, H, W, C\)"),
    ((2, 5, 7), ValueError, r"len\(shape\) \(3\) is not 4 \(N, H, W, C\)"),
    ((2, 5, 7, 8, 1), ValueError, r"len\(shape\) \(5\) is not 4"),
    (((2, 5, 7), None), ValueError, r"len\(shape\) \(3\) is not 4"),
    ((2, 5.0, 7, 8), TypeError, r"shape\[1\] \(5\.0\) is not an int"),
    ((2, True, 7, 8), TypeError, r"shape\[1\] \(True\) is not an int"),
    ((2, float("nan"), 7, 8), TypeError, r"shape\[1\] \(nan\) is not an int"),
    ((2, 2**70, 7, 8), ValueError, r"shape\[1\] \(1180591620717411303424\) is beyond 64 bits"),
    ((2, 0, 7, 8), ValueError, r"height \(0\) is less than the minimum \(1\)"),
    ((2, -3, 7, 8), ValueError, r"height \(-3\) is less than the minimum \(1\)"),
    ((2, 5, -(2**63), 8), ValueError, r"width \(-9223372036854775808\) is less than the minimum \(1\)"),
    ((2, 16385, 7, 8), ValueError, r"height \(16385\) is greater than the maximum \(16384\)"),
    ((2, 5, 2**62, 8), ValueError, r"width \(4611686018427387904\) is greater than the maximum \(16384\)"),
    ((3, 5, 7, 8), ValueError, r"number of images \(3\) is not that of the suggestion \(2\)"),
    ((2, 5, 7, 7), ValueError, r"number of channels \(7\) is less than the minimum \(8\)"),
    ((2, 5, 7, 8196), ValueError, r"number of channels \(8196\) is greater than the maximum \(8192\)"),
    (((2, 5, 7, 8), 1), TypeError, r"offset \(1\) is not \(y, x\) or None"),
    (((2, 5, 7, 8), "up"), TypeError, r"offset \('up'\) is not \(y, x\) or None"),
    (((2, 5, 7, 8), (1,)), ValueError, r"len\(offset\) \(1\) is not 2 \(y, x\)"),
    (((2, 5, 7, 8), (1, 1, 0)), ValueError, r"len\(offset\) \(3\) is not 2 \(y, x\)"),
    (((2, 5, 7, 8), (float("nan"), 0)), TypeError, r"offset\[0\] \(nan\) is not an int"),
    (((2, 5, 7, 8), (0, 0.5)), TypeError, r"offset\[1\] \(0\.5\) is not an int"),
    (((2, 5, 7, 8), (0, 2**40)), ValueError, r"offset x \(1099511627776\) is greater than the maximum \(1073741824\)"),
    (((2, 5, 7, 8), (-(2**40), 0)), ValueError, r"offset y \(-1099511627776\) is less than the minimum"),
]


@pytest.mark.parametrize("how", ["call", "encode", "temporary", "shape"])
@pytest.mark.parametrize(("answer", "raises", "match"), BAD, ids=[repr(row[0]) for row in BAD])
def test_wrong_answers(answer: Any, raises: type[Exception], match: str, how: str) -> None:
    x, weight = random(X), random(W)
    policy = Answers(answer)
    kernel = mpscnn.Convolution(weight, padding=policy)
    calls = {
        "call": lambda: kernel(x),
        "shape": lambda: kernel.result_shape(X),
        "encode": lambda: kernel.encode(mpscnn.CommandBuffer(), mpscnn.Image.from_array(x)),
        "temporary": lambda: kernel.encode(mpscnn.CommandBuffer(), mpscnn.Image.from_array(x), temporary=True),
    }
    with pytest.raises(raises, match=WHO + match) as caught:
        calls[how]()
    assert type(caught.value) is raises
    # The kernel still works.
    policy.answer = lambda suggested: suggested
    assert_close(kernel(x), conv2d(x, weight))


@pytest.mark.parametrize(
    ("flags", "raises", "match"),
    [
        ("full", ValueError, r'padding_method \("full"\) is not one of "align_centered", .*"size_full"\.'),
        (
            ("size_same", "size_full"),
            ValueError,
            r'padding_method has both "size_same" and "size_full", of which one is possible',
        ),
        (
            ("align_centered", "align_top_left"),
            ValueError,
            r'padding_method has both "align_centered" and "align_top_left"',
        ),
        (16, TypeError, r"padding_method \(16\) is not a str or a tuple of them"),
        (None, TypeError, r"padding_method \(None\) is not a str or a tuple of them"),
        (("size_same", 3), TypeError, r"padding_method \(int\) is not a str"),
    ],
    ids=str,
)
def test_wrong_flags(flags: Any, raises: type[Exception], match: str) -> None:
    policy = Counting()
    policy.padding_method = flags
    with pytest.raises(raises, match="padding policy Counting: " + match):
        mpscnn.Convolution(random(W), padding=policy)


def test_objects_that_are_not_policies() -> None:
    with pytest.raises(TypeError, match=r"abstract"):
        mpscnn.PaddingPolicy()  # type: ignore[abstract]
    for given in (Full, object(), 1.5):
        with pytest.raises(TypeError, match=r'Convolution: padding \(.*\) is not .*, "same", "valid" or a padding pol'):
            mpscnn.Convolution(random(W), padding=given)
    with pytest.raises(ValueError, match=r"Pad: padding is a number of pixels here, not a policy"):
        mpscnn.Pad(Full())
    with pytest.raises(ValueError, match=r"count_include_pad \(True\) needs padding in pixels"):
        mpscnn.PoolingAverage(2, padding=Full(), count_include_pad=True)


@pytest.mark.parametrize("error", [UnlikelyError("no"), KeyboardInterrupt(), ValueError("mine")], ids=repr)
def test_exceptions_come_through(error: BaseException) -> None:
    x, weight = random(X), random(W)
    policy = Answers(error)
    kernel = mpscnn.Convolution(weight, padding=policy)
    for call in (lambda: kernel(x), lambda: kernel.result_shape(X)):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error, "the exception itself"
        assert any(entry.name == "destination" for entry in caught.traceback), "and where it was raised"
    error.__traceback__ = None
    policy.answer = lambda suggested: suggested
    assert_close(kernel(x), conv2d(x, weight))


def test_flags_that_raise() -> None:
    class Raises(Counting):
        @property
        def padding_method(self) -> Any:
            raise UnlikelyError("no flags")

        @padding_method.setter
        def padding_method(self, value: Any) -> None:
            pass

    with pytest.raises(UnlikelyError, match="no flags"):
        mpscnn.Convolution(random(W), padding=Raises())


def test_answers_that_raise_when_they_are_read() -> None:
    class Shape(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            raise UnlikelyError("not readable")

    with pytest.raises(UnlikelyError, match="not readable"):
        mpscnn.Convolution(random(W), padding=Answers(Shape([2, 5, 7, 8])))(random(X))


def test_a_policy_does_not_use_the_kernel_that_calls_it() -> None:
    class Recursive(mpscnn.PaddingPolicy):
        def destination(self, kernel: Any, sources: Any, suggested: Any) -> Any:
            kernel(random(X))

    kernel = mpscnn.Convolution(random(W), padding=Recursive())
    with pytest.raises(RuntimeError, match=r"Recursive: the kernel is used inside of the policy that it asks"):
        kernel(random(X))


def test_a_policy_may_use_other_kernels() -> None:
    class Asks(mpscnn.PaddingPolicy):
        def __init__(self) -> None:
            self.other = mpscnn.Convolution(random(W), padding=Full())

        def destination(self, kernel: Any, sources: Any, suggested: Any) -> Any:
            self.other(random(X))
            return self.other.result_shape(sources[0]), (-1, 0)

    assert_close(mpscnn.Convolution(random(W), padding=Asks())(random(X)), conv2d(random(X), random(W), padding=(2, 1)))


def test_answers_that_differ_are_noticed() -> None:
    sizes = iter(range(3, 100))
    policy = Answers(lambda suggested: (2, next(sizes), *suggested[2:]))
    with pytest.raises(ValueError, match=r"out\.shape \(2, 3, 6, 8\) is not the result's \(2, 4, 6, 8\)"):
        mpscnn.Convolution(random(W), padding=policy)(random(X))


# ------------------------------------------------------------------------------------------------- copies and owners


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda kernel: pickle.loads(pickle.dumps(kernel))])
def test_copies(how: Any) -> None:
    x, weight = random(X), random(W)
    policy = Framed(1, 0, 2, 0)
    kernel = mpscnn.Convolution(weight, padding=policy, edge_mode="clamp")
    expected = kernel(x)
    again = how(kernel)
    np.testing.assert_array_equal(again(x), expected)
    policy.sides = (0, 0, 0, 0)
    assert (again(x).shape != expected.shape) == (how is copy.copy), "copy.copy() has the policy itself"
    del kernel, policy
    gc.collect()
    again(x)


def test_an_archived_kernel_has_its_policy() -> None:
    policy = Counting("size_full")
    kernel = mpscnn.PoolingMax(3, 1, padding=policy)
    archived = kernel._archived()
    x = random(X)
    y = archived(x)
    assert y.shape == (2, 7, 9, 4)
    assert len(policy.asked) == 2
    np.testing.assert_array_equal(y, kernel(x))


@pytest.mark.parametrize("copied", [False, True], ids=["one kernel", "and its copy"])
def test_cycles_are_collected(copied: bool) -> None:
    class Knows(Full):
        kernel: Any = None

    policy = Knows()
    kernel = mpscnn.Convolution(random(W), padding=policy)
    policy.kernel = kernel
    kernel(random(X))
    if copied:
        policy.copies = copy.copy(kernel), copy.deepcopy(kernel)  # type: ignore[attr-defined]
    alive = weakref.ref(policy), weakref.ref(kernel)
    gc.collect()
    assert policy.kernel is kernel
    assert kernel(random(X)).shape == (2, 7, 8, 8)
    del policy, kernel
    gc.collect()
    assert [one() for one in alive] == [None, None]


def test_a_copy_keeps_the_policy_alive() -> None:
    """The garbage collector must not count the copy's reference as part of the cycle."""

    class Knows(Full):
        kernel: Any = None

    policy = Knows()
    kernel = mpscnn.Convolution(random(W), padding=policy)
    policy.kernel = kernel
    again = copy.copy(kernel)
    alive = weakref.ref(policy)
    del policy, kernel
    for _ in range(3):
        gc.collect()
    assert alive() is not None
    assert alive().kernel is not None  # type: ignore[union-attr]
    assert again(random(X)).shape == (2, 7, 8, 8)


def test_owners_go_with_the_kernel() -> None:
    policy = Full()
    alive = weakref.ref(policy)
    kernel = mpscnn.PoolingMax(3, padding=policy)
    del policy
    gc.collect()
    assert alive() is not None
    kernel(random(X))
    del kernel
    gc.collect()
    assert alive() is None


def test_refused_kernels_keep_nothing() -> None:
    policy = Counting("size_large")
    alive = weakref.ref(policy)
    with pytest.raises(ValueError, match="size_large"):
        mpscnn.PoolingMax(3, padding=policy)
    del policy
    gc.collect()
    assert alive() is None


# ------------------------------------------------------------------------------------------------------------- threads


def test_threads() -> None:
    """One policy, one kernel, many threads; others read the kernel meanwhile, without waiting for the GIL."""
    x, weight = random(X), random(W)
    expected = conv2d(x, weight, padding=(2, 1))
    asked: set[str] = set()

    class Slow(Full):
        def destination(self, kernel: Any, sources: Any, suggested: Any) -> Any:
            asked.add(threading.current_thread().name)
            threading.Event().wait(0.001)  # releases the GIL
            return super().destination(kernel, sources, suggested)

    kernel = mpscnn.Convolution(weight, padding=Slow(), label="shared")
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                assert kernel.label == "shared"
                assert kernel.result_shape(X) == (2, 7, 8, 8)
                assert_close((kernel if number % 2 else copy.copy(kernel))(x), expected)
                assert kernel.kernel_size == (3, 2)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "they wait for each other"
    assert failed == []
    assert len(asked) == 6


def test_exceptions_reach_their_own_thread() -> None:
    class ByThread(mpscnn.PaddingPolicy):
        def destination(self, kernel: Any, sources: Any, suggested: Any) -> Any:
            raise UnlikelyError(threading.current_thread().name)

    kernel = mpscnn.PoolingMax(2, padding=ByThread())
    seen: dict[str, str] = {}

    def work() -> None:
        name = threading.current_thread().name
        for _ in range(20):
            try:
                kernel(random(X))
            except UnlikelyError as error:
                seen[name] = str(error)
                if str(error) != name:
                    return

    threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == {thread.name: thread.name for thread in threads}
