# SPDX-License-Identifier: Apache-2.0
"""ImageConversion: dtypes and alpha, against float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import APPLE, random

DTYPES = ["float32", "float16", "uint8", "uint16"]
X = (2, 3, 5, 4)


def pixels(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return random pixels: beyond 0...1 where the dtype allows it, with halfway cases of uint8."""
    if dtype.startswith("uint"):
        return np.random.default_rng(1).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    x = np.random.default_rng(1).uniform(-0.5, 1.5, shape)
    x.reshape(-1)[:4] = (0, 1, 0.5 / 255, 2.5)
    return x.astype(dtype)


def values(x: np.ndarray) -> np.ndarray:
    """Return the values as the device reads them."""
    return x / np.float64(np.iinfo(x.dtype).max) if x.dtype.kind == "u" else x.astype(np.float64)


def assert_stored(got: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    """Assert errors of at most half a step of the dtype, plus float32 arithmetic."""
    assert got.dtype == np.dtype(dtype)
    if dtype.startswith("uint"):
        most = np.iinfo(dtype).max
        step = np.abs(got - np.clip(expected, 0, 1) * most)
        assert step.max() <= 0.5 + most * 2.0**-23
        return
    error = np.abs(got.astype(np.float64) - expected)
    assert (error <= np.finfo(dtype).eps * (np.abs(expected) + 2.0**-13)).all()


ALPHA = ["non_premultiplied", "alpha_is_one", "premultiplied"]


def oracle(x: np.ndarray, source: str, destination: str, background: np.ndarray) -> np.ndarray:
    """Return the expected colours and alpha of an image of four channels, float64."""
    colour, a = x[..., :3], x[..., 3:]
    if source == "alpha_is_one":
        a = np.ones_like(a)
    if source == "premultiplied":
        over = colour
        with np.errstate(divide="ignore", invalid="ignore"):
            straight = np.where(a == 0, 0, colour / a)
    else:
        over, straight = colour * a, colour
    if destination == "alpha_is_one":
        return np.concatenate([over + background * (1 - a), np.ones_like(a)], -1)
    return np.concatenate([straight if destination == "non_premultiplied" else over, a], -1)


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_dtypes(source: str, target: str) -> None:
    """More than four channels, not a multiple of four."""
    kernel = mpscnn.ImageConversion(target)
    assert kernel.dtype == np.dtype(target)
    for channels in (1, 3, 4, 9):
        x = pixels((2, 3, 5, channels), source)
        y = kernel(x)
        assert_stored(y, values(x), target)
        if source == target:
            np.testing.assert_array_equal(y, x)
        image = kernel(mpscnn.Image.from_array(x))
        assert isinstance(image, mpscnn.Image)
        np.testing.assert_array_equal(image.numpy(), y)


@pytest.mark.parametrize("destination", ALPHA)
@pytest.mark.parametrize("source", ALPHA)
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("uint8", "float32"), ("float32", "uint8")], ids=str)
def test_alpha(dtypes: tuple[str, str], source: str, destination: str) -> None:
    x = pixels(X, dtypes[0])
    x[0, 0, 0, 3] = 0
    background = np.array([1, 0.25, 0])
    kernel = mpscnn.ImageConversion(
        dtypes[1], source_alpha=source, destination_alpha=destination, background_color=tuple(background)
    )
    assert (kernel.source_alpha, kernel.destination_alpha) == (source, destination)
    assert repr(kernel) == f"<mpscnn.ImageConversion to {dtypes[1]}, alpha {source} to {destination}>"
    expected = oracle(values(x), source, destination, background)
    y = kernel(x)
    if dtypes[1] == "uint8":
        assert_stored(y, expected, "uint8")
    else:
        np.testing.assert_allclose(y, expected, rtol=4e-7, atol=4e-7)


def test_out() -> None:
    x = random(X)
    kernel = mpscnn.ImageConversion("float16")
    out = np.empty(X, np.float16)
    assert kernel(x, out) is out
    np.testing.assert_array_equal(out, x.astype(np.float16))
    wide = np.full((*X[:3], 8), 7, np.float16)
    kernel(x, out=wide[..., ::2])  # channels that are not adjacent
    np.testing.assert_array_equal(wide[..., ::2], out)
    assert (wide[..., 1::2] == 7).all()
    image = mpscnn.Image(X, "float16")
    assert kernel(mpscnn.Image.from_array(x), image) is image
    np.testing.assert_array_equal(image.numpy(), out)


def test_on_a_command_buffer() -> None:
    x = pixels(X, "uint8")
    with mpscnn.CommandBuffer() as cb:
        seen = mpscnn.ImageConversion("float32").encode(cb, mpscnn.Image.from_array(x), temporary=True)
        assert seen.is_temporary
        assert seen.dtype == np.float32
        result = mpscnn.NeuronLinear(a=2, b=0).encode(cb, seen)
        half = mpscnn.ImageConversion("float16").encode(cb, result)
    np.testing.assert_allclose(result.numpy(), 2 * values(x), rtol=3e-7)
    np.testing.assert_array_equal(half.numpy(), result.numpy().astype(np.float16))


def test_more_images_than_one_image_holds() -> None:
    x = random((2050, 1, 1, 8))
    np.testing.assert_array_equal(mpscnn.ImageConversion("float16")(x), x.astype(np.float16))


# -------------------------------------------------------------------------------------- offset, clip_rect and edge_mode


def moved(x: np.ndarray, offset: tuple[int, ...], size: tuple[int, int], edge: str) -> np.ndarray:
    """Return the pixels of x from `offset` on, padded by NumPy."""
    y, x0, first = (*offset, 0)[:3]
    frame = 20
    mode: Any = {"mode": "edge"} if edge == "clamp" else {"mode": "constant"}
    wide = np.pad(x, ((0, 0), (frame, frame), (frame, frame), (0, 0)), **mode)
    return wide[first:, frame + y : frame + y + size[0], frame + x0 : frame + x0 + size[1]]


@pytest.mark.parametrize("edge", ["zero", "clamp"])
@pytest.mark.parametrize("offset", [(0, 0), (1, 2), (-2, 1), (2, -3, 1), (-9, 9), (0, 0, 2)], ids=str)
@pytest.mark.parametrize("target", ["float32", "uint8"])
def test_offset(target: str, offset: tuple[int, ...], edge: str) -> None:
    x = pixels((3, 6, 7, 4), "float32")
    kernel = mpscnn.ImageConversion(target, offset=offset, edge_mode=edge)
    assert (kernel.offset, kernel.edge_mode, kernel.clip_rect) == (offset, edge, None)
    expected = moved(x, offset, (6, 7), edge)
    y = kernel(x)
    assert_stored(y, expected, target)
    np.testing.assert_array_equal(kernel(mpscnn.Image.from_array(x)).numpy(), y)
    with mpscnn.CommandBuffer() as cb:
        encoded = kernel.encode(cb, mpscnn.Image.from_array(x))
        hidden = kernel.encode(cb, mpscnn.Image.from_array(x), temporary=True)
        again = mpscnn.ImageConversion(target).encode(cb, hidden)
    np.testing.assert_array_equal(encoded.numpy(), y)
    np.testing.assert_array_equal(again.numpy(), y)
    out = np.empty(y.shape, target)
    assert kernel(x, out) is out
    np.testing.assert_array_equal(out, y)


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("edge", ["zero", "clamp"])
@pytest.mark.parametrize(
    ("clip", "offset"),
    [
        (((0, 0, 0), (4, 5, 3)), None),
        (((2, 1, 1), (3, 4, 2)), None),
        (((1, 3, 0), (6, 2, 1)), (2, -1)),
        (((5, 0, 3), (1, 9, 1)), (0, 2, 2)),
    ],
    ids=str,
)
def test_clip_rect(clip: Any, offset: Any, edge: str, strided: bool) -> None:
    """A part of a destination of another size; its other pixels are unchanged."""
    x = pixels((3, 6, 7, 4), "float32")
    kernel = mpscnn.ImageConversion("float16", clip_rect=clip, edge_mode=edge)
    kernel.offset = offset
    assert kernel.clip_rect == clip
    wide = np.full((4, 8, 9, 8), 7, np.float16)
    out = wide[..., ::2] if strided else np.full((4, 8, 9, 4), 7, np.float16)
    kernel(x, out)
    (y, x0, n), (height, width, images) = clip
    expected = np.full((4, 8, 9, 4), 7, np.float16)
    expected[n : n + images, y : y + height, x0 : x0 + width] = moved(x, offset or (0, 0), (height, width), edge)[
        :images
    ].astype(np.float16)
    np.testing.assert_array_equal(out, expected)
    assert (wide[..., 1::2] == 7).all()
    image = mpscnn.Image.from_array(np.full((4, 8, 9, 4), 7, np.float16))
    assert kernel(mpscnn.Image.from_array(x), out=image) is image
    np.testing.assert_array_equal(image.numpy(), expected)


def test_alpha_of_a_part() -> None:
    x = pixels((1, 6, 7, 4), "float32")
    kernel = mpscnn.ImageConversion(destination_alpha="premultiplied", offset=(2, 1), clip_rect=((1, 1, 0), (3, 4, 1)))
    out = np.zeros((1, 5, 6, 4), np.float32)
    kernel(x, out)
    wanted = oracle(values(x), "non_premultiplied", "premultiplied", np.zeros(3))[:, 2:5, 1:5]
    np.testing.assert_allclose(out[:, 1:4, 1:5], wanted, rtol=4e-7, atol=4e-7)
    assert not out[:, 0].any()


def test_attributes_are_set_and_taken_back() -> None:
    x = pixels((2, 6, 7, 4), "float32")
    kernel = mpscnn.ImageConversion()
    assert (kernel.offset, kernel.clip_rect, kernel.edge_mode) == (None, None, "zero")
    kernel.offset, kernel.edge_mode, kernel.clip_rect = (3, 3), "clamp", ((0, 0, 0), (1, 1, 1))
    kernel.offset, kernel.edge_mode, kernel.clip_rect = None, "zero", None
    np.testing.assert_array_equal(kernel(x), x)


def test_an_offset_in_pixels_of_more_images_than_one_holds() -> None:
    x = random((2050, 2, 1, 8))
    np.testing.assert_array_equal(mpscnn.ImageConversion(offset=(1, 0))(x)[:, :1], x[:, 1:])
    if APPLE:
        with pytest.raises(ValueError, match=r"has more images \(2050\) than the maximum \(1024\)"):
            mpscnn.ImageConversion(offset=(0, 0, 1))(x)
    else:
        np.testing.assert_array_equal(mpscnn.ImageConversion(offset=(0, 0, 1))(x), x[1:])


@pytest.mark.parametrize(
    ("attribute", "value", "raises", "match"),
    [
        ("offset", 3, TypeError, r"offset \(3\) is not \(y, x\) or \(y, x, image\)\."),
        ("offset", (1,), TypeError, r"offset \(1\) is not \(y, x\) or"),
        ("offset", (1.5, 2), TypeError, r"offset \(\(1\.5, 2\)\) is not \(y, x\)"),
        ("offset", (2**40, 0), ValueError, r"offset \(1099511627776, 0\) is greater than the maximum \(1073741824\)\."),
        ("offset", (0, -(2**40)), ValueError, r"offset .* is less than the minimum \(-1073741824\)\."),
        (
            "clip_rect",
            (1, 2, 3),
            TypeError,
            r"clip_rect \(1, 2, 3\) is not \(\(y, x, image\), \(height, width, images\)\)",
        ),
        (
            "clip_rect",
            ((0, 0, 0), (0, 1, 1)),
            ValueError,
            r"clip_rect .* has an extent \(0\) less than the minimum \(1\)",
        ),
        (
            "clip_rect",
            ((0, -1, 0), (1, 1, 1)),
            ValueError,
            r"clip_rect .* has an origin \(-1\) less than the minimum \(0\)",
        ),
        ("edge_mode", "mirror", ValueError, r'edge_mode \("mirror"\) is not one of "zero", "clamp"\.'),
        ("edge_mode", 0, TypeError, r"edge_mode \(0\) is not a string\."),
        ("edge_mode", None, TypeError, r"edge_mode \(None\) is not a string\."),
    ],
)
def test_wrong_attributes(attribute: str, value: Any, raises: type[Exception], match: str) -> None:
    """The same errors as for kernels of the table."""
    for name in ("NeuronReLU", "ImageConversion"):
        kind = getattr(mpscnn, name)
        with pytest.raises(raises, match=f"{name}: {match}") as made:
            kind(**{attribute: value})
        kernel = kind()
        with pytest.raises(raises, match=f"{name}: {match}") as set_later:
            setattr(kernel, attribute, value)
        assert str(made.value) == str(set_later.value)


def image(dtype: str = "float32") -> mpscnn.Image:
    return mpscnn.Image(X, dtype)


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: mpscnn.ImageConversion("int32"), TypeError, r"dtype \(int32\) is not float32, float16, uint8 or uint16\."),
    (
        lambda: mpscnn.ImageConversion(source_alpha="straight"),
        ValueError,
        r'source_alpha \("straight"\) is not "non_premultiplied", "alpha_is_one" or "premultiplied"\.',
    ),
    (
        lambda: mpscnn.ImageConversion(background_color=(1, 2)),
        ValueError,
        r"ImageConversion: len\(background_color\) \(2\) is not 3 \(red, green, blue\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion(destination_alpha="premultiplied")(random((1, 2, 3, 5))),
        ValueError,
        r'source_alpha \("non_premultiplied"\) and destination_alpha \("premultiplied"\) ask for a change of alpha, '
        r"which images of 5 channels have not\.",
    ),
    (
        lambda: mpscnn.ImageConversion(source_alpha="alpha_is_one", destination_alpha="alpha_is_one")(
            mpscnn.Image((1, 2, 3, 5))
        ),
        ValueError,
        r"which images of 5 channels have not\.",
    ),
    (
        lambda: mpscnn.ImageConversion("uint8")(random(X), np.empty(X, np.float32)),
        TypeError,
        r"ImageConversion: out\.dtype \(float32\) is not dtype \(uint8\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion("uint8")(image(), image()),
        TypeError,
        r"ImageConversion: out\.dtype \(float32\) is not dtype \(uint8\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion()(random(X), np.empty((1, 3, 5, 4), np.float32)),
        ValueError,
        r"ImageConversion: out\.shape \(1, 3, 5, 4\) is not x\.shape \(2, 3, 5, 4\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion()(image(), mpscnn.Image((1, 3, 5, 4))),
        ValueError,
        r"ImageConversion: out\.shape \(1, 3, 5, 4\) is not x\.shape \(2, 3, 5, 4\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion(offset=(0, 0, 2))(random(X)),
        ValueError,
        r"ImageConversion: offset has image \(2\), not in \[0, 2\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion(offset=(0, 0, -1)).encode(mpscnn.CommandBuffer(), image()),
        ValueError,
        r"ImageConversion: offset has image \(-1\), not in \[0, 2\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion(offset=(0, 0, 1))(random(X), np.empty(X, np.float32)),
        ValueError,
        r"ImageConversion: out\.shape \(2, 3, 5, 4\) is not the result's \(1, 3, 5, 4\)\.",
    ),
    *[
        (call, ValueError, r"ImageConversion: clip_rect needs a destination \(out\) whose other pixels are kept\.")
        for call in (
            lambda: mpscnn.ImageConversion(clip_rect=((0, 0, 0), (1, 1, 1)))(random(X)),
            lambda: mpscnn.ImageConversion(clip_rect=((0, 0, 0), (1, 1, 1)))(image()),
            lambda: mpscnn.ImageConversion(clip_rect=((0, 0, 0), (1, 1, 1))).encode(mpscnn.CommandBuffer(), image()),
            lambda: mpscnn.ImageConversion(clip_rect=((0, 0, 0), (1, 1, 1))).encode(
                mpscnn.CommandBuffer(), image(), temporary=True
            ),
        )
    ],
    (
        lambda: mpscnn.ImageConversion(clip_rect=((1, 0, 0), (3, 1, 1)))(image(), image()),
        ValueError,
        r"ImageConversion: clip_rect reaches 4 along the height of out \(3\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion(clip_rect=((0, 5, 0), (1, 1, 1)))(random(X), np.empty(X, np.float32)),
        ValueError,
        r"ImageConversion: clip_rect reaches 6 along the width of out \(5\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion(clip_rect=((0, 0, 0), (1, 1, 3)))(image(), mpscnn.Image((3, 3, 5, 4))),
        ValueError,
        r"ImageConversion: clip_rect has 3 images; x provides 2\.",
    ),
    (
        lambda: mpscnn.ImageConversion(clip_rect=((0, 0, 0), (1, 1, 1)))(image(), mpscnn.Image((3, 3, 5, 3))),
        ValueError,
        r"ImageConversion: out has 3 channels; x has 4\.",
    ),
    (
        lambda: mpscnn.ImageConversion()(random((3, 5, 4))),
        ValueError,
        r"ImageConversion: x\.ndim \(3\) is not 4 \(N, H, W, C\)\.",
    ),
    (
        lambda: mpscnn.ImageConversion().encode(mpscnn.CommandBuffer(), image(), image(), temporary=True),
        ValueError,
        r"ImageConversion: temporary \(True\) was given together with out\.",
    ),
]


@pytest.mark.parametrize(("wrong", "raises", "match"), ERRORS, ids=[match for _, _, match in ERRORS])
def test_wrong_conversions(wrong: Callable[[], Any], raises: type[Exception], match: str) -> None:
    with pytest.raises(raises, match=match):
        wrong()


def test_a_committed_command_buffer_takes_no_conversion() -> None:
    cb = mpscnn.CommandBuffer()
    cb.commit()
    cb.wait()
    with pytest.raises(RuntimeError, match=r"ImageConversion: the command buffer has been committed already"):
        mpscnn.ImageConversion().encode(cb, image())
