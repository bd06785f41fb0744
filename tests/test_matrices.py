# SPDX-License-Identifier: Apache-2.0
"""Matrix, and the kernels that copy between images and matrices."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from support import address, only_openmps, random

X = (3, 4, 5, 7)
DTYPES = ["float32", "float16", "uint8", "uint16", "int32", "uint32"]


def rows_of(x: np.ndarray, layout: str) -> np.ndarray:
    """Return a matrix with image i in row i."""
    return (x if layout == "HWC" else x.transpose(0, 3, 1, 2)).reshape(len(x), -1)


def pixels(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype.startswith("uint"):
        return np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype=dtype)
    return random(shape).astype(dtype)


# ---------------------------------------------------------------------------------------------------------- matrices


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_new_matrix_is_zero(dtype: str) -> None:
    matrix = mpscnn.Matrix(3, 5, dtype)
    assert (matrix.rows, matrix.columns, matrix.shape) == (3, 5, (3, 5))
    assert matrix.dtype == np.dtype(dtype)
    assert matrix.device == mpscnn.Device()
    assert repr(matrix) == f"<mpscnn.Matrix (3, 5) {dtype}>"
    view = matrix.numpy()
    assert view.flags.c_contiguous
    assert view.flags.writeable
    assert not view.any()
    view[2, 4] = 7
    assert matrix.numpy()[2, 4] == 7


def test_float32_is_the_default() -> None:
    assert mpscnn.Matrix(1, 1).dtype == mpscnn.Matrix(1, 1, None).dtype == np.float32


@pytest.mark.parametrize(
    ("make", "raises", "match"),
    [
        (lambda: mpscnn.Matrix(0, 5), ValueError, r"Matrix: rows \(0\) is less than the minimum \(1\)\."),
        (lambda: mpscnn.Matrix(3, -1), ValueError, r"Matrix: columns \(-1\) is less than the minimum \(1\)\."),
        (lambda: mpscnn.Matrix(3, 5, "float64"), TypeError, r"Matrix: dtype \(float64\) is not float32, float16"),
        (lambda: mpscnn.Matrix(2**62, 2**62), MemoryError, r"need more bytes than can be counted\."),
        (lambda: mpscnn.Matrix(2**40, 2**10), MemoryError, r"more than the device's max_buffer_bytes"),
        (lambda: mpscnn.Matrix.from_array(random((2, 3, 4))), ValueError, r"Matrix: x\.ndim \(3\) is not 2\."),
        (lambda: mpscnn.Matrix.from_array(np.ones((2, 3))), TypeError, r"Matrix: dtype \(float64\) is not"),
        (lambda: mpscnn.Matrix.from_array(np.ones((0, 3), "f4")), ValueError, r"Matrix: rows \(0\) is less"),
    ],
)
def test_invalid_matrices(make: Callable[[], Any], raises: type[Exception], match: str) -> None:
    with pytest.raises(raises, match=match):
        make()


def test_an_array_on_whole_pages_is_shared() -> None:
    x = mpscnn.empty((1024, 4))
    for copy in (None, False):
        matrix = mpscnn.Matrix.from_array(x, copy=copy)
        assert address(matrix.numpy()) == address(x)
        x[5, 3] = 8
        assert matrix.numpy()[5, 3] == 8
    x[5, 3] = 2
    copied = mpscnn.Matrix.from_array(x, copy=True)
    x[5, 3] = 9
    assert copied.numpy()[5, 3] == 2


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (lambda: mpscnn.empty((1024, 8))[:, :4], "are not C-contiguous"),
        (lambda: mpscnn.empty((1024, 4))[1:], "is not a positive multiple of the page size"),
        (lambda: mpscnn.empty((2048, 4)).reshape(-1)[4:4100].reshape(1024, 4), "is not a multiple of the page size"),
    ],
)
def test_an_array_that_cannot_be_shared_is_copied(x: Callable[[], np.ndarray], reason: str) -> None:
    array = x()
    array[...] = random(array.shape)
    matrix = mpscnn.Matrix.from_array(array)
    np.testing.assert_array_equal(matrix.numpy(), array)
    assert not np.shares_memory(matrix.numpy(), array)
    with pytest.raises(BufferError, match=reason):
        mpscnn.Matrix.from_array(array, copy=False)


def test_a_read_only_array_is_copied() -> None:
    x = mpscnn.empty((1024, 4))
    x[...] = 3
    x.flags.writeable = False
    matrix = mpscnn.Matrix.from_array(x)
    matrix.numpy()[...] = 4
    assert (x == 3).all()
    with pytest.raises(BufferError, match="read-only"):
        mpscnn.Matrix.from_array(x, copy=False)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda matrix: matrix.numpy(),
    "asarray": np.asarray,
    "from_dlpack": np.from_dlpack,
    "memoryview": lambda matrix: np.asarray(memoryview(matrix)),
    "torch": lambda matrix: torch.from_dlpack(matrix).numpy(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_other_libraries_see_the_memory_and_hold_it(view: Callable[[Any], Any], no_leak: Any) -> None:
    matrix = mpscnn.Matrix(3, 5)
    seen = view(matrix)
    assert (seen.dtype, seen.shape, address(seen)) == (np.float32, (3, 5), address(matrix.numpy()))
    seen[1, 2] = 77
    assert matrix.numpy()[1, 2] == 77
    with no_leak():
        views = [view(mpscnn.Matrix(64, 64)) for _ in range(4)]
        for index, one in enumerate(views):
            one[...] = index
        gc.collect()
        noise = [view(mpscnn.Matrix(64, 64)) for _ in range(4)]
        assert [set(one.reshape(-1).tolist()) for one in views] == [{0}, {1}, {2}, {3}]
        assert not any(one.any() for one in noise)
        del views, noise, one


def test_copies_of_a_matrix() -> None:
    matrix = mpscnn.Matrix(2, 3, "int32")
    matrix.numpy()[...] = np.arange(6).reshape(2, 3)
    assert matrix.__dlpack_device__() == (1, 0)
    assert np.asarray(matrix, "float32").dtype == np.float32
    assert not np.shares_memory(matrix.__array__(copy=True), matrix.numpy())
    with pytest.raises(ValueError, match=r"Matrix: dtype \(float32\) is not the matrix's \(int32\), which copy=False"):
        matrix.__array__("float32", copy=False)


# ------------------------------------------------------------------------------------------------------------ copies


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "uint16"])
def test_there_and_back(layout: str, dtype: str) -> None:
    x = pixels(X, dtype)
    to, back = mpscnn.ImageCopyToMatrix(layout), mpscnn.MatrixCopyToImage(layout)
    assert (to.layout, to.origin, back.layout, back.origin) == (layout, (0, 0), layout, (0, 0))
    matrix = to(mpscnn.Image.from_array(x))
    assert matrix.dtype == x.dtype
    np.testing.assert_array_equal(matrix.numpy(), rows_of(x, layout))
    image = mpscnn.Image(X, dtype)
    assert back(matrix, image) is image
    np.testing.assert_array_equal(image.numpy(), x)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_origin(layout: str) -> None:
    x = random(X)
    matrix = mpscnn.Matrix(6, 150)
    matrix.numpy()[...] = np.nan
    to = mpscnn.ImageCopyToMatrix(layout, origin=(2, 3))
    assert to.origin == (2, 3)
    assert repr(to) == f"<mpscnn.ImageCopyToMatrix {layout} from (2, 3) on>"
    assert to(mpscnn.Image.from_array(x), matrix) is matrix
    expected = np.full((6, 150), np.nan, np.float32)
    expected[2:5, 3:143] = rows_of(x, layout)
    np.testing.assert_array_equal(matrix.numpy(), expected)
    image = mpscnn.Image(X)
    mpscnn.MatrixCopyToImage(layout, origin=(2, 3))(matrix, image)
    np.testing.assert_array_equal(image.numpy(), x)
    made = to(mpscnn.Image.from_array(x))
    assert made.shape == (5, 143)
    np.testing.assert_array_equal(made.numpy(), np.nan_to_num(expected[:5, :143]))


def test_on_a_command_buffer() -> None:
    """From channels-first values of one network to the columns of another, through a temporary image."""
    x = random(X)
    with mpscnn.CommandBuffer() as cb:
        image = mpscnn.NeuronReLU().encode(cb, mpscnn.Image.from_array(x), temporary=True)
        matrix = mpscnn.ImageCopyToMatrix("CHW").encode(cb, image)
        assert image.read_count == 0
        out = mpscnn.MatrixCopyToImage("HWC").encode(cb, matrix, mpscnn.Image((3, 7, 4, 5)))
        with pytest.raises(RuntimeError, match=r"Matrix: the command buffer that writes it has not completed"):
            matrix.numpy()
        with pytest.raises(RuntimeError, match=r"Matrix: the command buffer that writes it has not completed"):
            memoryview(matrix)
    np.testing.assert_array_equal(matrix.numpy(), rows_of(np.maximum(x, 0), "CHW"))
    np.testing.assert_array_equal(out.numpy(), np.maximum(x, 0).transpose(0, 3, 1, 2))


def test_a_shared_array_lives_until_the_work_is_done() -> None:
    cb = mpscnn.CommandBuffer()
    x = mpscnn.empty((1024, 4))
    x[...] = np.arange(4096).reshape(1024, 4)
    image = mpscnn.Image((1024, 1, 1, 4))
    mpscnn.MatrixCopyToImage().encode(cb, mpscnn.Matrix.from_array(x, copy=False), image)
    expected = x.copy()
    del x
    gc.collect()
    noise = [mpscnn.empty((1024, 4)) for _ in range(8)]
    for one in noise:
        one[...] = -1
    cb.commit()
    cb.wait()
    np.testing.assert_array_equal(image.numpy().reshape(1024, 4), expected)


def image_of(dtype: str = "float32") -> mpscnn.Image:
    return mpscnn.Image.from_array(pixels(X, dtype))


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: mpscnn.ImageCopyToMatrix()(image_of(), mpscnn.Matrix(2, 140)),
        ValueError,
        r"ImageCopyToMatrix: 3 rows of 140 values from origin \(0, 0\) on end beyond out\.shape \(2, 140\)\.",
    ),
    (
        lambda: mpscnn.ImageCopyToMatrix(origin=(0, 1))(image_of(), mpscnn.Matrix(3, 140)),
        ValueError,
        r"ImageCopyToMatrix: 3 rows of 140 values from origin \(0, 1\) on end beyond out\.shape \(3, 140\)\.",
    ),
    (
        lambda: mpscnn.ImageCopyToMatrix(origin=(9, 0))(image_of(), mpscnn.Matrix(3, 140)),
        ValueError,
        r"from origin \(9, 0\) on",
    ),
    (
        lambda: mpscnn.MatrixCopyToImage(origin=(1, 0))(mpscnn.Matrix(3, 140), image_of()),
        ValueError,
        r"MatrixCopyToImage: 3 rows of 140 values from origin \(1, 0\) on end beyond x\.shape \(3, 140\)\.",
    ),
    (
        lambda: mpscnn.ImageCopyToMatrix()(image_of("float16"), mpscnn.Matrix(3, 140)),
        TypeError,
        r"ImageCopyToMatrix: out\.dtype \(float32\) is not that of x \(float16\)\.",
    ),
    (
        lambda: mpscnn.MatrixCopyToImage()(mpscnn.Matrix(3, 140, "int32"), image_of()),
        TypeError,
        r"MatrixCopyToImage: x\.dtype \(int32\) is not that of out \(float32\)\.",
    ),
    (lambda: mpscnn.ImageCopyToMatrix("NHWC"), ValueError, r'layout \("NHWC"\) is not "CHW" or "HWC"\.'),
    (
        lambda: mpscnn.MatrixCopyToImage(origin=(0, -1)),
        ValueError,
        r"MatrixCopyToImage: origin \(0, -1\) is negative\.",
    ),
    (
        lambda: mpscnn.ImageCopyToMatrix(origin=(1, 2, 3)),
        ValueError,
        r"ImageCopyToMatrix: len\(origin\) \(3\) is not 2 \(row, column\)\.",
    ),
    (
        lambda: mpscnn.ImageCopyToMatrix(origin=(2**63 - 1, 0))(image_of()),
        MemoryError,
        r"ImageCopyToMatrix: origin \(9223372036854775807, 0\) is beyond any matrix\.",
    ),
]


@pytest.mark.parametrize(("wrong", "raises", "match"), ERRORS, ids=[match for _, _, match in ERRORS])
def test_wrong_copies(wrong: Callable[[], Any], raises: type[Exception], match: str) -> None:
    with pytest.raises(raises, match=match):
        wrong()


def test_a_committed_command_buffer_takes_no_copies() -> None:
    cb = mpscnn.CommandBuffer()
    cb.commit()
    cb.wait()
    match = "the command buffer has been committed already; its status is completed"
    with pytest.raises(RuntimeError, match=f"ImageCopyToMatrix: {match}"):
        mpscnn.ImageCopyToMatrix().encode(cb, image_of())
    with pytest.raises(RuntimeError, match=f"MatrixCopyToImage: {match}"):
        mpscnn.MatrixCopyToImage().encode(cb, mpscnn.Matrix(3, 140), image_of())


def test_a_read_only_image_takes_no_rows() -> None:
    x = random(X)
    x.flags.writeable = False
    image = mpscnn.Image.from_array(x)
    if image.numpy().flags.writeable:
        pytest.skip("images have memory of their own here")
    with pytest.raises(ValueError, match=r"MatrixCopyToImage: out is read-only\."):
        mpscnn.MatrixCopyToImage()(mpscnn.Matrix(3, 140), image)


# --------------------------------------------------------------------------------------------------- temporary matrices


def test_a_temporary_matrix_on_the_way() -> None:
    x = pixels(X, "float32")
    with mpscnn.CommandBuffer() as cb:
        rows = mpscnn.ImageCopyToMatrix("HWC").encode(cb, mpscnn.Image.from_array(x), temporary=True)
        assert rows.is_temporary
        assert rows.read_count == 1
        assert repr(rows) == "<mpscnn.temporary Matrix (3, 140) float32>"
        assert (rows.rows, rows.columns, rows.shape) == (3, 140, (3, 140))
        result = mpscnn.MatrixCopyToImage("HWC").encode(cb, rows, mpscnn.Image(X))
        assert rows.read_count == 0
    np.testing.assert_array_equal(result.numpy(), x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "uint16"])
def test_a_temporary_matrix_as_a_destination(dtype: str) -> None:
    """Two images in one matrix, which is read three times."""
    a, b = pixels(X, dtype), pixels(X, dtype)[::-1].copy()
    with mpscnn.CommandBuffer() as cb:
        store = mpscnn.Matrix.temporary(cb, 6, 150, dtype)
        assert store.dtype == np.dtype(dtype)
        assert store.device is cb.device
        store.read_count = 3
        mpscnn.ImageCopyToMatrix(origin=(0, 10)).encode(cb, mpscnn.Image.from_array(a), out=store)
        mpscnn.ImageCopyToMatrix(origin=(3, 10)).encode(cb, mpscnn.Image.from_array(b), store)
        results = [
            mpscnn.MatrixCopyToImage(origin=(row, 10)).encode(cb, store, mpscnn.Image(X, dtype)) for row in (3, 0, 3)
        ]
        assert store.read_count == 0
    for result, expected in zip(results, (b, a, b), strict=True):
        np.testing.assert_array_equal(result.numpy(), expected)


def test_storage_of_temporary_matrices_is_used_again() -> None:
    x = pixels(X, "float32")
    there, back = mpscnn.ImageCopyToMatrix(), mpscnn.MatrixCopyToImage()
    with mpscnn.CommandBuffer() as cb:
        image = mpscnn.Image.from_array(x)
        for _ in range(50):
            image = back.encode(cb, there.encode(cb, image, temporary=True), mpscnn.Image(X))
    np.testing.assert_array_equal(image.numpy(), x)


def test_a_temporary_matrix_after_its_last_read() -> None:
    cb = mpscnn.CommandBuffer()
    there, back = mpscnn.ImageCopyToMatrix(), mpscnn.MatrixCopyToImage()
    rows = there.encode(cb, image_of(), temporary=True)
    result = back.encode(cb, rows, mpscnn.Image(X))
    with pytest.raises(RuntimeError, match=r"MatrixCopyToImage: x is a temporary matrix whose read_count is 0"):
        back.encode(cb, rows, mpscnn.Image(X))
    with pytest.raises(RuntimeError, match=r"ImageCopyToMatrix: out is a temporary matrix whose read_count is 0"):
        there.encode(cb, image_of(), out=rows)
    with pytest.raises(RuntimeError, match=r"Matrix: read_count is 0 already; the storage is gone"):
        rows.read_count = 3
    cb.commit()
    cb.wait()
    np.testing.assert_array_equal(result.numpy(), pixels(X, "float32"))


@pytest.mark.parametrize("read", [lambda m: m.numpy(), np.asarray, memoryview, np.from_dlpack])
def test_the_cpu_does_not_read_a_temporary_matrix(read: Callable[[Any], Any]) -> None:
    cb = mpscnn.CommandBuffer()
    rows = mpscnn.Matrix.temporary(cb, 2, 3)
    with pytest.raises((RuntimeError, BufferError), match=r"Matrix: a temporary matrix cannot be read by the CPU"):
        read(rows)
    rows.read_count = 0
    cb.commit()
    cb.wait()


@only_openmps("commit looks for temporary matrices that were not read")
def test_a_temporary_matrix_that_is_not_read() -> None:
    cb = mpscnn.CommandBuffer()
    rows = mpscnn.ImageCopyToMatrix().encode(cb, image_of(), temporary=True)
    with pytest.raises(RuntimeError, match=r"MPSTemporaryMatrix.* readCount 1 when .* must be 0"):
        cb.commit()
    rows.read_count = 0
    cb.commit()
    cb.wait()


def test_read_counts() -> None:
    matrix = mpscnn.Matrix(2, 3)
    assert not matrix.is_temporary
    assert matrix.read_count == 0
    with pytest.raises(RuntimeError, match=r"Matrix: only a temporary matrix has a read_count"):
        matrix.read_count = 1
    cb = mpscnn.CommandBuffer()
    temporary = mpscnn.Matrix.temporary(cb, 2, 3)
    with pytest.raises(ValueError, match=r"Matrix: read_count \(-1\) is less than the minimum \(0\)"):
        temporary.read_count = -1
    with pytest.raises(TypeError, match=r"read_count \(float\) is not an int"):
        temporary.read_count = 1.0  # type: ignore[assignment]
    temporary.read_count = 0
    cb.commit()
    cb.wait()
    with pytest.raises(RuntimeError, match=r"commit"):
        mpscnn.Matrix.temporary(cb, 2, 3)


def test_a_temporary_matrix_of_another_command_buffer() -> None:
    first, second = mpscnn.CommandBuffer(), mpscnn.CommandBuffer()
    rows = mpscnn.ImageCopyToMatrix().encode(first, image_of(), temporary=True)
    with pytest.raises(RuntimeError, match=r"belongs to another command buffer"):
        mpscnn.MatrixCopyToImage().encode(second, rows, mpscnn.Image(X))
    result = mpscnn.MatrixCopyToImage().encode(first, rows, mpscnn.Image(X))
    for cb in (first, second):
        cb.commit()
        cb.wait()
    np.testing.assert_array_equal(result.numpy(), pixels(X, "float32"))


@pytest.mark.parametrize(
    ("arguments", "raises", "match"),
    [
        ((0, 3), ValueError, r"Matrix: rows \(0\) is less than the minimum \(1\)\."),
        ((2, -1), ValueError, r"Matrix: columns \(-1\) is less than the minimum \(1\)\."),
        ((2, 3, "float64"), TypeError, r"Matrix: dtype \(float64\) is not float32, float16, uint8"),
        ((2**40, 2**10), MemoryError, r"more than the device's max_buffer_bytes"),
        ((2**62, 2**62), MemoryError, r"need more bytes than can be counted"),
        ((2.0, 3), TypeError, r"rows \(float\) is not an int\."),
    ],
    ids=str,
)
def test_invalid_temporary_matrices(arguments: Any, raises: type[Exception], match: str) -> None:
    with pytest.raises(raises, match=match):
        mpscnn.Matrix.temporary(mpscnn.CommandBuffer(), *arguments)


def test_temporary_and_out_exclude_each_other() -> None:
    with pytest.raises(ValueError, match=r"ImageCopyToMatrix: temporary \(True\) was given together with out\."):
        mpscnn.ImageCopyToMatrix().encode(mpscnn.CommandBuffer(), image_of(), mpscnn.Matrix(3, 140), temporary=True)
